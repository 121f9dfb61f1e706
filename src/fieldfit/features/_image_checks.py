"""Checks of pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fieldfit.errors import InvalidInputError
from fieldfit.features._image_channels import FloatArray

__all__ = ["checked_image"]


def checked_image(image: ArrayLike, name: str = "image") -> FloatArray:
    """Colours as numbers in [0, 1]."""
    given = np.asarray(image)
    if given.ndim != 3 or given.shape[2] != 3 or given.size == 0:
        raise InvalidInputError(
            f"{name} must have shape (height, width, 3), got {given.shape}; a grey picture is "
            "np.stack([grey] * 3, axis=2)"
        )
    if given.dtype == np.uint8:
        return np.asarray(given / 255.0)
    if given.dtype.kind != "f":
        raise InvalidInputError(
            f"{name} must hold bytes (uint8) or numbers in [0, 1], got dtype {given.dtype}"
        )
    if not (np.isfinite(given).all() and given.min() >= 0.0 and given.max() <= 1.0):
        raise InvalidInputError(
            f"{name} must hold bytes (uint8) or numbers in [0, 1], "
            f"got numbers from {given.min():g} to {given.max():g}"
        )
    return given.astype(np.float64)
