"""Pictures as graphs of superpixels, for `GraphCRF`, and as grids of pixels, for `GridCRF`.

    segments = superpixels(image)                    a label image: which region each pixel is in
    edges = region_graph(segments)                   which regions touch
    features = region_features(image, segments)      what each region looks like, and its context
    labels = region_labels(truth, segments)          the commonest label of its pixels
    picture = paint(crf.predict(...)[0], segments)   back to pixels

A few hundred regions stand for ten thousand pixels, each large enough to have a texture.  Their
features are many and not linear in anything; `out_of_fold` turns them into log-probabilities of a
scikit-learn classifier, which a random field then weighs against the edges.

    scene = SceneFeatures().fit(training_images)     colours, gradients and patches of every pixel
    features = scene.transform(images)               (height, width, 177) each

References
----------
R. Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods", IEEE
Transactions on Pattern Analysis and Machine Intelligence 34, 2012; S. Gould et al., "Multi-class
segmentation with relative location prior", Int. Journal of Computer Vision 80, 2008.  Features of
pixels: `SceneFeatures`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import plain_array
from fieldfit._typing import FloatArray
from fieldfit._validation import require_flag, require_integer, require_number
from fieldfit.errors import InvalidInputError
from fieldfit.features._image_channels import checked_image, import_scikit_image
from fieldfit.features._image_out_of_fold import OutOfFold, out_of_fold
from fieldfit.features._image_pixels import PatchCodebook, SceneFeatures
from fieldfit.features._image_regions import (
    N_CELLS,
    IndexArray,
    adjacent_regions,
    checked_segments,
    described_regions,
    feature_names,
    means,
)

__all__ = [
    "OutOfFold",
    "PatchCodebook",
    "SceneFeatures",
    "boundary_features",
    "out_of_fold",
    "paint",
    "region_feature_names",
    "region_features",
    "region_graph",
    "region_labels",
    "stretched",
    "superpixels",
]


def superpixels(
    image: ArrayLike, n: int = 200, compactness: float = 10.0, sigma: float = 1.0
) -> IndexArray:
    """Cut a picture into about ``n`` connected regions of like colour (SLIC).

    Parameters
    ----------
    image
        ``(height, width, 3)``, bytes or numbers in [0, 1].
    n
        Number of regions asked for; there may be some more or fewer.
    compactness
        Large: regions are squares.  Small: they follow colours, however ragged.
    sigma
        Width of the smoothing beforehand, in pixels; without it regions follow the noise.

    Returns
    -------
    array
        ``(height, width)``; every number from 0 to the largest is a region.
    """
    import_scikit_image()
    from skimage.segmentation import slic

    pixels = checked_image(image)
    require_integer("n", n, at_least=1, at_most=pixels.shape[0] * pixels.shape[1])
    require_number("compactness", compactness, above=0)
    require_number("sigma", sigma, at_least=0)
    found = slic(
        pixels, n_segments=n, compactness=compactness, sigma=sigma, start_label=0, channel_axis=2
    )
    # numbers that SLIC has merged away are left out
    return np.unique(found, return_inverse=True)[1].reshape(found.shape)


def region_graph(segments: ArrayLike) -> IndexArray:
    """Edges ``(E, 2)`` between regions that touch, each once, the smaller number first.

    Parameters
    ----------
    segments
        ``(height, width)``, the region of each pixel, from `superpixels`.

    Returns
    -------
    array
        ``(E, 2)``.

    Examples
    --------
    >>> region_graph([[0, 0, 1], [2, 2, 1]])
    array([[0, 1],
           [0, 2],
           [1, 2]])
    """
    return adjacent_regions(checked_segments(segments))[0]


def boundary_features(image: ArrayLike, segments: ArrayLike) -> FloatArray:
    """Features ``(E, 3)`` of the edges of `region_graph`, for models whose edges have some.

    Length of the common boundary (in parts of the geometric mean of the square roots of the two
    areas), likeness of the two colours ``exp(-d)``, and the product of both; ``d`` is the distance
    of the mean colours in Lab, divided by its mean over the picture.

    Parameters
    ----------
    image
        ``(height, width, 3)``, bytes or numbers in [0, 1].
    segments
        ``(height, width)``, the region of each pixel, from `superpixels`.

    Returns
    -------
    array
        ``(E, 3)``.
    """
    import_scikit_image()
    from skimage.color import rgb2lab

    pixels, regions = _checked_pair(image, segments)
    edges, lengths = adjacent_regions(regions)
    areas = np.bincount(regions.ravel())
    length = lengths / np.prod(areas[edges], axis=1) ** 0.25
    colours = means(regions, rgb2lab(pixels))
    distance = np.linalg.norm(colours[edges[:, 0]] - colours[edges[:, 1]], axis=1)
    # distances in Lab below 1 cannot be seen, so a picture of one colour has likeness 1
    likeness = np.exp(-distance / max(1.0, float(distance.mean()))) if len(edges) else distance
    return np.stack([length, likeness, length * likeness], axis=1)


def region_features(image: ArrayLike, segments: ArrayLike) -> FloatArray:
    """Features ``(N, F)`` of the regions; `region_feature_names` says what they are.

    Colour, texture, place and form of the region, of its neighbours, and of the whole picture.
    Values are of the order of 1, but not standardised.

    Parameters
    ----------
    image
        ``(height, width, 3)``, bytes or numbers in [0, 1].
    segments
        ``(height, width)``, the region of each pixel, from `superpixels`.

    Returns
    -------
    array
        ``(N, F)``.
    """
    import_scikit_image()
    pixels, regions = _checked_pair(image, segments)
    if min(regions.shape) < N_CELLS:
        raise InvalidInputError(
            f"image must have at least {N_CELLS} x {N_CELLS} pixels, got {pixels.shape[:2]}"
        )
    return described_regions(pixels, regions)


def region_feature_names() -> list[str]:
    """Names of the columns of `region_features`.

    Returns
    -------
    list of str
        One for each column.

    Examples
    --------
    >>> names = region_feature_names()
    >>> names[3], names[-1]
    ('mean lightness', "picture's spread laplacian at 1 in row 2")
    """
    return feature_names()


def region_labels(
    labels: ArrayLike, segments: ArrayLike, min_share: float = 0.0
) -> NDArray[np.int32]:
    """The commonest label of each region's pixels ``(N,)``; ``-1`` where there is none.

    Pixels of label ``-1`` do not count.  A region is ``-1`` if it has no others, or if less than
    ``min_share`` of all its pixels have the commonest label; of equal ones the smallest is taken.

    Parameters
    ----------
    labels
        ``(height, width)``, ``-1`` where missing.
    segments
        ``(height, width)``, the region of each pixel, from `superpixels`.
    min_share
        Share of its pixels that must have the label.

    Returns
    -------
    array
        ``(N,)``.

    Examples
    --------
    >>> region_labels([[1, 1, -1], [1, 0, -1]], [[0, 0, 1], [0, 0, 1]])
    array([ 1, -1], dtype=int32)
    """
    regions = checked_segments(segments)
    require_number("min_share", min_share, at_least=0, at_most=1)
    given = plain_array("labels", labels)
    if given.shape != regions.shape or given.dtype.kind not in "iu":
        raise InvalidInputError(
            f"labels must be integers of shape {regions.shape} as segments, got dtype "
            f"{given.dtype} and shape {given.shape}"
        )
    # compared as they are: -1 does not fit into unsigned integers
    if given.dtype.kind == "i" and given.min() < -1:
        raise InvalidInputError(f"labels must be at least -1, got {given.min()}")
    if given.max() > np.iinfo(np.int32).max:
        raise InvalidInputError(f"labels must be integers of 32 bits, got {given.max()}")
    n_regions = int(regions.max()) + 1
    is_known = given.ravel() >= 0
    # counted by their rank: a void label of 2**31 - 1 asks for no more memory than one of 255
    seen, ranks = np.unique(given.ravel()[is_known], return_inverse=True)
    n_labels = len(seen)
    if n_labels == 0:
        return np.full(n_regions, -1, dtype=np.int32)
    codes = regions.ravel()[is_known] * n_labels + ranks
    counts = np.bincount(codes, minlength=n_regions * n_labels).reshape(n_regions, n_labels)
    most = counts.max(axis=1)
    is_clear = (most > 0) & (most >= min_share * np.bincount(regions.ravel()))
    commonest = seen[counts.argmax(axis=1)].astype(np.int32)
    return np.where(is_clear, commonest, np.int32(-1))


def paint(values: ArrayLike, segments: ArrayLike) -> NDArray[Any]:
    """Values ``(N, ...)`` of regions as values ``(height, width, ...)`` of their pixels.

    Parameters
    ----------
    values
        One for each region.
    segments
        ``(height, width)``, the region of each pixel, from `superpixels`.

    Returns
    -------
    array
        One value for each pixel.

    Examples
    --------
    >>> paint([5, 7], [[0, 0, 1], [0, 1, 1]])
    array([[5, 5, 7],
           [5, 7, 7]])
    """
    regions = checked_segments(segments)
    given = plain_array("values", values)
    n_regions = int(regions.max()) + 1
    if given.ndim == 0 or len(given) != n_regions:
        raise InvalidInputError(
            f"values must have one entry for each of the {n_regions} regions, "
            f"got shape {given.shape}"
        )
    return np.asarray(given[regions])


def stretched(image: ArrayLike, by_channel: bool = False, percent: float = 0.5) -> FloatArray:
    """The picture with its contrast stretched, so that dark and pale photographs look alike.

    All but ``percent`` of the values at either end then fill [0, 1].  ``by_channel`` does so for
    red, green and blue apart, which takes out the colour of the light as well.

    Parameters
    ----------
    image
        ``(height, width, 3)``, bytes or numbers in [0, 1].
    by_channel
        Whether to stretch each channel for itself.
    percent
        Of the values at either end that may leave [0, 1].

    Returns
    -------
    array
        Of the same shape, numbers in [0, 1].
    """
    pixels = checked_image(image)
    require_flag("by_channel", by_channel)
    require_number("percent", percent, at_least=0, below=50)
    axes = (0, 1) if by_channel else None
    low, high = np.percentile(pixels, [percent, 100.0 - percent], axis=axes)
    # a picture of one colour has no contrast to stretch: less than five grey values of 255
    return np.asarray(np.clip((pixels - low) / np.maximum(high - low, 0.02), 0.0, 1.0))


# -- checks -------------------------------------------------------------------------------


def _checked_pair(image: ArrayLike, segments: ArrayLike) -> tuple[FloatArray, IndexArray]:
    pixels, regions = checked_image(image), checked_segments(segments)
    if pixels.shape[:2] != regions.shape:
        raise InvalidInputError(
            f"segments must have the shape of the image, {pixels.shape[:2]}, got {regions.shape}"
        )
    return pixels, regions
