"""The pictures of ``camel-segmentation``: read, cut into superpixels, described, halved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit import InvalidInputError
from fieldfit.features.image import (
    region_features,
    region_graph,
    region_labels,
    stretched,
    superpixels,
)
from fieldfit.io import read_image_archive

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]

#: Where the pictures are in the folder of data sets.
FILE = Path("corel", "corel.npz")
#: What the labels mean, as in the paper.
LABELS = ("rhino / hippo", "polar bear", "water", "snow", "vegetation", "ground", "sky")


@dataclass(frozen=True)
class Picture:
    """A photograph as a graph of superpixels.

    Attributes
    ----------
    image, truth
        Pixels in [0, 1], and their labels.
    segments, edges
        Which superpixel each pixel is in, and which superpixels touch.
    features
        Of the superpixels, for the classifier; in single precision, there are many.
    labels
        The commonest label of each superpixel's pixels.
    """

    image: FloatArray
    truth: LabelArray
    segments: NDArray[np.intp]
    edges: NDArray[np.intp]
    features: NDArray[np.float32]
    labels: LabelArray

    @property
    def n_regions(self) -> int:
        """Number of superpixels."""
        return len(self.labels)


def read_corel(folder: Path) -> tuple[list[FloatArray], list[LabelArray]]:
    """The photographs of the folder of data sets, and the labels of their pixels."""
    path = folder / FILE
    if not path.is_file():
        raise InvalidInputError(
            f"--data must be a folder with the file {FILE.as_posix()} for camel-segmentation, "
            f"got {folder} without it"
        )
    found = read_image_archive(path, arrays=("images", "labels"))
    if found.labels is None or found.images[0].shape[2] != 3:
        raise InvalidInputError(
            f"{path}: expected colour photographs, found {found.images[0].shape}"
        )
    return found.images, found.labels


def prepared(image: FloatArray, truth: LabelArray, n_regions: int) -> Picture:
    """Superpixels of a photograph, and what the classifier and the field see of them.

    Features are those of the picture as it is, with its contrast stretched, and with the colour of
    the light taken out: snow is white, yellow or blue by the hour, and dark in the shade.
    """
    segments = superpixels(image, n_regions)
    views = (image, stretched(image), stretched(image, by_channel=True))
    features = [region_features(view, segments) for view in views]
    return Picture(
        image=image,
        truth=truth,
        segments=segments,
        edges=region_graph(segments),
        features=np.concatenate(features, axis=1).astype(np.float32),
        labels=region_labels(truth, segments),
    )


def halves(n_images: int, n_used: int | None, half: int, seed: int) -> tuple[Any, Any]:
    """Indices of the training and of the test pictures of one random half."""
    order = np.random.default_rng([seed, half]).permutation(n_images)[:n_used]
    middle = len(order) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])


def pixel_accuracy(pictures: Sequence[Picture], labels: Sequence[LabelArray]) -> float:
    """Share of pixels whose superpixel has their label."""
    right = sum(
        int(np.count_nonzero(found[picture.segments] == picture.truth))
        for picture, found in zip(pictures, labels, strict=True)
    )
    return right / sum(picture.truth.size for picture in pictures)
