"""Names of a chain model's weights, for people and for files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.estimators._chain_layout import ChainLayout

__all__ = ["describe_weight", "pack_names", "unpack_names"]


def describe_weight(
    layout: ChainLayout, position: int, attributes: Sequence[str], classes: NDArray[Any]
) -> str:
    """What a weight belongs to: ``attribute / label``, ``label -> label`` or ``start / label``."""
    if position < layout.n_states:
        attribute = int(np.searchsorted(layout.state_offsets, position, side="right")) - 1
        return f"{attributes[attribute]} / {classes[layout.state_labels[position]]}"
    position -= layout.n_states
    if position < layout.n_transitions:
        (before,), (after,) = np.nonzero(layout.transitions == position)
        return f"{classes[before]} -> {classes[after]}"
    position -= layout.n_transitions
    where = "start" if position < layout.n_labels else "end"
    return f"{where} / {classes[position % layout.n_labels]}"


def pack_names(names: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Text as one array of bytes, and where each name ends; names may hold any character."""
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), ends


def unpack_names(text: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[str]:
    """Inverse of `pack_names`."""
    raw, bounds = text.tobytes(), [0, *ends.tolist()]
    return [raw[first:last].decode("utf-8", "surrogatepass") for first, last in pairwise(bounds)]
