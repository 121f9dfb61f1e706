"""What a pixel looks like: colour and texture channels of a picture.

Colour is given twice, as RGB and as CIE Lab, in which distances are about what the eye sees.
Texture is the response of a small bank of filters on the lightness, at three scales each: size of
the gradient (how much there is to see), the two entries of its orientation tensor (which way it
runs, unlike the gradient itself without a sign that averages away) and the Laplacian (spots and
lines).  Uniform local binary patterns (Ojala et al. 2002) tell textures apart whose contrast is the
same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import plain_array
from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError, MissingDependencyError

__all__ = [
    "CHANNEL_NAMES",
    "N_PATTERNS",
    "FloatArray",
    "binary_patterns",
    "checked_image",
    "import_scikit_image",
    "pixel_channels",
]

#: Standard deviations of the Gaussians of the filters, in pixels.
SCALES = (1.0, 2.0, 4.0)
#: Points of the circle that a local binary pattern compares with its centre.
PATTERN_POINTS = 8
#: Uniform patterns by their number of ones, and one bin for all others.
N_PATTERNS = PATTERN_POINTS + 2
#: Scale of Lab: lightness runs from 0 to 100, and so about do the two others, around 0.
LAB_RANGE = 100.0

CHANNEL_NAMES = (
    "red",
    "green",
    "blue",
    "lightness",
    "green-red",
    "blue-yellow",
    "saturation",
    *(
        f"{filtered} at {scale:g}"
        for scale in SCALES
        for filtered in ("gradient", "horizontal", "diagonal", "laplacian")
    ),
)


def import_scikit_image() -> None:
    """Raise the error that says how to install scikit-image if it is not there."""
    try:
        import skimage  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "superpixels and their features need the package scikit-image, which is not "
            "installed; pip install 'fieldfit[images]' brings it"
        ) from error


def pixel_channels(image: FloatArray) -> FloatArray:
    """Channels ``(height, width, len(CHANNEL_NAMES))`` of a picture with values in [0, 1]."""
    from scipy.ndimage import gaussian_filter, gaussian_laplace
    from skimage.color import rgb2lab

    lab = rgb2lab(image) / LAB_RANGE
    brightest, darkest = image.max(axis=2), image.min(axis=2)
    # of black pixels there is no saturation; one part in 255 keeps the noise of dark ones down
    saturation = (brightest - darkest) / (brightest + 1.0 / 255.0)
    channels = [image, lab, saturation[:, :, None]]
    lightness = lab[:, :, 0]
    for scale in SCALES:
        down = gaussian_filter(lightness, scale, order=(1, 0), mode="nearest") * scale
        right = gaussian_filter(lightness, scale, order=(0, 1), mode="nearest") * scale
        size = np.hypot(down, right)
        safe = np.maximum(size, 1e-12)
        spots = gaussian_laplace(lightness, scale, mode="nearest") * scale**2
        filtered = (size, (right**2 - down**2) / safe, 2.0 * right * down / safe, np.abs(spots))
        channels.append(np.stack(filtered, axis=2))
    return np.concatenate(channels, axis=2)


def binary_patterns(image: FloatArray) -> NDArray[np.intp]:
    """Rotation-invariant uniform local binary patterns ``0..N_PATTERNS-1`` of the brightness."""
    from skimage.feature import local_binary_pattern

    # whole numbers: pixels that look equal compare as equal
    grey = np.rint(image.mean(axis=2) * 255.0).astype(np.uint8)
    patterns = local_binary_pattern(grey, PATTERN_POINTS, 1.0, method="uniform")
    return np.asarray(patterns, dtype=np.intp)


# -- Checks of pictures --------------------------------------------------------------------


def checked_image(image: ArrayLike, name: str = "image") -> FloatArray:
    """Colours as numbers in [0, 1]."""
    given = plain_array(name, image)
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
