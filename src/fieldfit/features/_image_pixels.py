"""Features of pixels for linear models: colours, histograms of gradients, indicators of patches.

A field whose potentials are linear in what is seen has to be shown what is not linear: which way
edges run around a pixel, and which of some typical patches it looks like, each at three scales.

*Histogram of gradients* at scale ``k``.  The derivatives ``dx`` and ``dy`` are the image convolved
with ``[-1 0 1]`` and its transpose, every value enlarged to a square of ``1 + 2k`` pixels a side.
A pixel has the angle of ``arctan(dy / dx)`` in one of eight bins and the length ``r``.  The
histogram is over ``7 x 7`` pixels around, ``2^k`` apart, pixel ``i`` with weight ``r_i / sqrt(eps^2
+ sum_j r_j^2)``, where ``eps`` keeps flat regions from counting much.

*Indicators of patches* at a stride ``s``.  The image is smoothed (unless ``s = 1``) and ``5 x 5``
pixels around, ``s`` apart, are compared with centres that k-means has found in random patches; the
nearest centre has a one.

Beyond its border an image goes on as it ends.

References
----------
J. Domke, "Tractable learning and inference in high-treewidth graphical models", doctoral thesis,
University of Maryland, 2009, table 6.2; N. Dalal and B. Triggs, "Histograms of oriented gradients
for human detection", Computer Vision and Pattern Recognition, 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fieldfit._arrays import real_numbers
from fieldfit._random_state import as_seed
from fieldfit._typing import FloatArray
from fieldfit._validation import require_integer, require_list, shown
from fieldfit.errors import InvalidInputError
from fieldfit.features._image_channels import checked_image

__all__ = ["N_ANGLES", "PATCH", "PatchCodebook", "SceneFeatures", "gradient_histograms", "patches"]

N_ANGLES = 8
#: Pixels a side of the neighbourhood of a histogram, and of a patch.
NEIGHBOURHOOD, PATCH = 7, 5
#: Of the weights of gradients, for values in [0, 1].
EPSILON = 0.01
#: Width of the smoothing before patches, in strides.
SMOOTHING = 0.5


def gradient_histograms(image: FloatArray, scale: int) -> FloatArray:
    """Histograms ``(height, width, 8)`` of the gradients of the brightness."""
    from scipy.ndimage import uniform_filter

    side = 1 + 2 * scale
    squares = uniform_filter(image.mean(axis=2), side, mode="nearest") * side**2
    right, down = _difference(squares, side, 1), _difference(squares, side, 0)
    size = np.hypot(right, down)
    # the arctangent of a ratio knows no sign: opposite directions are one
    angles = np.floor(np.arctan2(down, right) / np.pi * N_ANGLES).astype(np.int64) % N_ANGLES
    by_angle = np.zeros((*size.shape, N_ANGLES))
    np.put_along_axis(by_angle, angles[:, :, None], size[:, :, None], axis=2)
    gathered = _neighbourhood_sums(np.dstack([by_angle, size**2]), 2**scale)
    return np.asarray(gathered[:, :, :-1] / np.sqrt(EPSILON**2 + gathered[:, :, -1:]))


def patches(image: FloatArray, stride: int) -> FloatArray:
    """The patch around every pixel ``(height, width, 5 * 5 * channels)``."""
    from scipy.ndimage import gaussian_filter

    if stride > 1:
        sigma = SMOOTHING * stride
        image = gaussian_filter(image, (sigma, sigma, 0.0), mode="nearest")
    reach = stride * (PATCH // 2)
    height, width = image.shape[:2]
    padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    starts = range(0, PATCH * stride, stride)
    seen = [padded[r : r + height, c : c + width] for r in starts for c in starts]
    return np.concatenate(seen, axis=2)


class PatchCodebook(BaseEstimator):  # type: ignore[misc]
    """Typical patches of some pictures, found by k-means.

    Parameters
    ----------
    n_clusters
        Number of typical patches.
    stride
        Distance between the pixels of a patch.
    n_patches
        Patches that k-means sees, chosen at random from all pictures.
    random_state
        Seed of the choice and of k-means.

    Attributes
    ----------
    centres_
        ``(n_clusters, 5 * 5 * channels)``.
    """

    centres_: FloatArray

    def __init__(
        self,
        n_clusters: int = 50,
        *,
        stride: int = 1,
        n_patches: int = 20_000,
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.stride = stride
        self.n_patches = n_patches
        self.random_state = random_state

    def fit(self, images: Sequence[FloatArray], y: Any = None) -> PatchCodebook:
        """Find the centres; ``y`` is ignored."""
        from sklearn.cluster import MiniBatchKMeans

        for name in ("n_clusters", "stride", "n_patches"):
            require_integer(name, getattr(self, name), at_least=1)
        seed = as_seed(self.random_state)
        rng = np.random.default_rng(seed)
        images = _checked_pictures(images)
        counts = np.array([image.shape[0] * image.shape[1] for image in images])
        if counts.sum() < self.n_clusters:
            raise InvalidInputError(
                f"images must have at least n_clusters = {self.n_clusters} pixels, "
                f"got {counts.sum()}"
            )
        # pixels of all pictures in one row; those of each picture are taken in one go
        n_patches = min(self.n_patches, int(counts.sum()))
        chosen = np.sort(rng.choice(int(counts.sum()), n_patches, replace=False))
        cuts = np.searchsorted(chosen, np.cumsum(counts))
        firsts = np.cumsum(counts) - counts
        sample = [
            patches(image, self.stride).reshape(counts[index], -1)[own - firsts[index]]
            for index, (image, own) in enumerate(
                zip(images, np.split(chosen, cuts[:-1]), strict=True)
            )
            if len(own)
        ]
        means = MiniBatchKMeans(self.n_clusters, n_init=3, batch_size=2048, random_state=seed)
        self.centres_ = means.fit(np.concatenate(sample)).cluster_centers_
        return self

    def nearest(self, image: FloatArray) -> NDArray[np.intp]:
        """The centre that is nearest to the patch around each pixel, ``(height, width)``."""
        return self._nearest(self._checked_picture("image", image))

    def _nearest(self, image: FloatArray) -> NDArray[np.intp]:
        around = patches(image, self.stride)
        # |p - c|^2 less |p|^2, which is the same for all centres
        scores = around @ self.centres_.T
        scores -= 0.5 * (self.centres_**2).sum(axis=1)
        return np.asarray(scores.argmax(axis=2))

    def transform(self, images: Sequence[FloatArray]) -> list[FloatArray]:
        """Indicators ``(height, width, n_clusters)`` of each picture."""
        identity = np.eye(self.n_clusters)
        require_list("images", images, "pictures")
        return [
            identity[self._nearest(self._checked_picture(f"images[{m}]", image))]
            for m, image in enumerate(images)
        ]

    def _checked_picture(self, name: str, image: ArrayLike) -> FloatArray:
        if not hasattr(self, "centres_"):
            raise NotFittedError("this PatchCodebook must be fitted first; call fit")
        pixels = _checked_picture(name, image)
        n_channels = self.centres_.shape[1] // PATCH**2
        if pixels.shape[2] != n_channels:
            raise InvalidInputError(
                f"{name} must have {n_channels} channels as in fit, got {pixels.shape[2]}"
            )
        return pixels


def _checked_pictures(images: Sequence[ArrayLike]) -> list[FloatArray]:
    require_list("images", images, "pictures")
    found = [_checked_picture(f"images[{m}]", image) for m, image in enumerate(images)]
    counts = sorted({pixels.shape[2] for pixels in found})
    if len(counts) != 1:
        raise InvalidInputError(
            f"images must be pictures with one number of channels, got {shown(counts)}"
        )
    return found


def _checked_picture(name: str, image: ArrayLike) -> FloatArray:
    pixels = real_numbers(name, image)
    if pixels.ndim != 3 or pixels.size == 0 or not np.isfinite(pixels).all():
        raise InvalidInputError(
            f"{name} must be finite numbers of shape (height, width, channels), got shape "
            f"{pixels.shape} and {shown(pixels)}"
        )
    return pixels


def _difference(values: FloatArray, step: int, axis: int) -> FloatArray:
    """What is ``step`` further along an axis less what is ``step`` before."""
    widths = [(0, 0), (0, 0)]
    widths[axis] = (step, step)
    padded = np.pad(values, widths, mode="edge")
    size = values.shape[axis]
    after = np.take(padded, np.arange(2 * step, 2 * step + size), axis=axis)
    return np.asarray(after - np.take(padded, np.arange(size), axis=axis))


def _neighbourhood_sums(values: FloatArray, stride: int) -> FloatArray:
    """Sums over ``7 x 7`` pixels around every pixel, ``stride`` apart: rows, then columns."""
    reach = stride * (NEIGHBOURHOOD // 2)
    for axis in (0, 1):
        widths = [(0, 0)] * values.ndim
        widths[axis] = (reach, reach)
        padded = np.pad(values, widths, mode="edge")
        size = values.shape[axis]
        values = np.sum(
            [
                np.take(padded, np.arange(start, start + size), axis=axis)
                for start in range(0, NEIGHBOURHOOD * stride, stride)
            ],
            axis=0,
        )
    return values


# -- All features of table 6.2 together, as one object that is fitted to training pictures ---


#: Scales of the histograms of gradients, and strides of the patches.
SCALES = (0, 1, 2)
STRIDES = (1, 2, 4)


class SceneFeatures(BaseEstimator):  # type: ignore[misc]
    """Features of every pixel for `GridCRF`: 177 with 50 clusters.

    RGB in [0, 1] (3), histograms of gradients at three scales (3 x 8) and indicators of the nearest
    typical patch at three scales (3 x ``n_clusters``).  No constant: the indicators of a scale sum
    to one, so ``GridCRF(fit_intercept=False)`` loses nothing.

    Parameters
    ----------
    n_clusters, n_patches, random_state
        As in `PatchCodebook`.

    Attributes
    ----------
    codebooks_
        One for each scale.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> images = rng.random((2, 12, 16, 3))
    >>> features = SceneFeatures(n_clusters=4).fit(images)
    >>> features.transform(images)[0].shape, len(features.feature_names())
    ((12, 16, 39), 39)
    """

    codebooks_: list[PatchCodebook]

    def __init__(
        self, n_clusters: int = 50, *, n_patches: int = 20_000, random_state: int | None = 0
    ) -> None:
        self.n_clusters = n_clusters
        self.n_patches = n_patches
        self.random_state = random_state

    def fit(self, images: Sequence[ArrayLike], y: Any = None) -> SceneFeatures:
        """Find typical patches in pictures ``(height, width, 3)``; ``y`` is ignored."""
        require_list("images", images, "pictures")
        pixels = [checked_image(image, f"images[{m}]") for m, image in enumerate(images)]
        if not pixels:
            raise InvalidInputError("images must hold at least one picture, got none")
        self.codebooks_ = [
            PatchCodebook(
                self.n_clusters,
                stride=stride,
                n_patches=self.n_patches,
                random_state=self.random_state,
            ).fit(pixels)
            for stride in STRIDES
        ]
        return self

    def transform(self, images: Sequence[ArrayLike]) -> list[FloatArray]:
        """Features ``(height, width, n_features)`` of each picture."""
        if not hasattr(self, "codebooks_"):
            raise NotFittedError("this SceneFeatures must be fitted first; call fit")
        require_list("images", images, "pictures")
        return [
            self._transformed(checked_image(image, f"images[{m}]"))
            for m, image in enumerate(images)
        ]

    def feature_names(self) -> list[str]:
        """Names of the features, in their order."""
        names = ["red", "green", "blue"]
        for scale in SCALES:
            names += [f"gradient {angle} at scale {scale}" for angle in range(N_ANGLES)]
        for stride in STRIDES:
            names += [f"patch {centre} at stride {stride}" for centre in range(self.n_clusters)]
        return names

    def _transformed(self, pixels: FloatArray) -> FloatArray:
        found = [pixels]
        found += [gradient_histograms(pixels, scale) for scale in SCALES]
        found += [codebook.transform([pixels])[0] for codebook in self.codebooks_]
        return np.concatenate(found, axis=2)
