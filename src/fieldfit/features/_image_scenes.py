"""All features of table 6.2 together, as one object that is fitted to training pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fieldfit.errors import InvalidInputError
from fieldfit.features._image_channels import FloatArray
from fieldfit.features._image_checks import checked_image
from fieldfit.features._image_pixels import N_ANGLES, PatchCodebook, gradient_histograms

__all__ = ["SceneFeatures"]

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
