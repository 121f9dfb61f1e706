"""The pictures of ``mle-struct-segmentation``: read, described pixel by pixel, split.

A pixel has its colour at four scales, less the mean of the picture; the spread of grey around it;
the log-ratio of its colour's frequencies in the middle and along the border of the picture, at
three scales (horses are in the middle); the strength of edges around it; and its place.  All are
fixed functions of one picture, standardised over the training pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fieldfit import InvalidInputError
from fieldfit.io import read_image_archive

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]

#: Where the pictures are in the folder of data sets.
FILE = Path("weizmann_horses", "horses_64x64.npz")
#: Features whose differences the tables of neighbours depend on: the colour of the pixel itself.
COLOURS = (0, 1, 2)
#: Widths of the smoothings of colours, and of the log-ratios, in pixels of 64 x 64.
COLOUR_SCALES = (1.0, 2.0, 4.0)
RATIO_SCALES = (1.0, 3.0)
#: Bins of a colour channel in the histograms of middle and border.
N_BINS = 6
#: The middle is within this of the centre, the border beyond (half a side is 1).
MIDDLE, BORDER = 0.5, 0.8
#: Added to the share of a bin, so that a colour seen in one place only has a finite ratio.
SMALLEST_SHARE = 1e-3
#: Pictures whose pixels correlate more than this are copies of each other (some files are the same
#: photograph twice); a random split would put one in training and the other in test.
COPY = 0.98


@dataclass(frozen=True)
class Horses:
    """Features and labels of training and test pictures; pictures are kept to be shown."""

    training: list[FloatArray]
    training_labels: list[LabelArray]
    test: list[FloatArray]
    test_labels: list[LabelArray]
    test_pictures: list[FloatArray]


def read_horses(folder: Path, n_training: int, n_test: int, side: int, seed: int) -> Horses:
    """A random split; pictures are reduced to ``side`` pixels by means of blocks."""
    path = folder / FILE
    if not path.is_file():
        raise InvalidInputError(
            f"--data must be a folder with the file {FILE.as_posix()} for "
            f"mle-struct-segmentation, got {folder} without it"
        )
    found = read_image_archive(path, arrays=("images", "masks"))
    assert found.labels is not None
    kept = distinct(found.images)
    if len(kept) < n_training + n_test:
        raise InvalidInputError(
            f"{path}: expected at least {n_training + n_test} different pictures, found {len(kept)}"
        )
    used = np.random.default_rng(seed).permutation(kept)[: n_training + n_test]
    pictures = [_reduced(found.images[index], side) for index in used]
    labels = [_sampled(found.labels[index], side) for index in used]
    features = [pixel_features(picture) for picture in pictures]
    known = np.concatenate([x.reshape(-1, x.shape[2]) for x in features[:n_training]])
    centre, spread = known.mean(axis=0), known.std(axis=0)
    standard = [(x - centre) / spread for x in features]
    return Horses(
        training=standard[:n_training],
        training_labels=labels[:n_training],
        test=standard[n_training:],
        test_labels=labels[n_training:],
        test_pictures=pictures[n_training:],
    )


def distinct(pictures: Sequence[FloatArray]) -> NDArray[np.intp]:
    """Indices of the pictures that are no copy of an earlier one."""
    flat = np.stack([picture.ravel() for picture in pictures])
    flat -= flat.mean(axis=1, keepdims=True)
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)
    is_copy = np.any(np.tril(flat @ flat.T, -1) > COPY, axis=1)
    return np.flatnonzero(~is_copy)


def _reduced(picture: FloatArray, side: int) -> FloatArray:
    block = picture.shape[0] // side
    shape = (side, block, side, block, picture.shape[2])
    return np.asarray(picture.reshape(shape).mean(axis=(1, 3)))


def _sampled(labels: LabelArray, side: int) -> LabelArray:
    """One pixel of each block: labels are never averaged."""
    block = labels.shape[0] // side
    return np.ascontiguousarray(labels[block // 2 :: block, block // 2 :: block], dtype=np.int32)


def pixel_features(picture: FloatArray) -> FloatArray:
    """Features ``(height, width, 23)`` of a colour picture with values in [0, 1]."""
    from scipy.ndimage import gaussian_filter

    scale = picture.shape[0] / 64.0
    mean = picture.mean(axis=(0, 1))
    grey = picture.mean(axis=2)
    rows, columns = np.meshgrid(
        *(np.linspace(-1.0, 1.0, length) for length in grey.shape), indexing="ij"
    )
    found: list[FloatArray] = [picture - mean]
    for width in COLOUR_SCALES:
        found.append(gaussian_filter(picture, (width * scale, width * scale, 0.0)) - mean)
    around = gaussian_filter(grey, 2.0 * scale)
    variance = gaussian_filter(grey**2, 2.0 * scale) - around**2
    ratio = _log_ratio(picture, rows, columns)
    edges = np.hypot(*np.gradient(gaussian_filter(grey, scale)))
    single = [
        np.sqrt(np.maximum(variance, 0.0)),
        ratio,
        *(gaussian_filter(ratio, width * scale) for width in RATIO_SCALES),
        gaussian_filter(edges, 2.0 * scale),
        rows, columns, rows**2, columns**2, rows * columns, rows**2 * columns**2,
    ]  # fmt: skip
    return np.concatenate([*found, np.stack(single, axis=2)], axis=2)


def _log_ratio(picture: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """How much commoner each pixel's colour is in the middle than along the border."""
    from scipy.ndimage import gaussian_filter

    bins = np.minimum((picture * N_BINS).astype(np.intp), N_BINS - 1)
    codes = (bins[:, :, 0] * N_BINS + bins[:, :, 1]) * N_BINS + bins[:, :, 2]
    away = np.maximum(np.abs(rows), np.abs(columns))
    shares: Sequence[FloatArray] = [
        gaussian_filter(
            np.bincount(codes[where], minlength=N_BINS**3).reshape((N_BINS,) * 3) / where.sum(), 0.7
        )
        for where in (away < MIDDLE, away > BORDER)
    ]
    ratio = np.log((shares[0] + SMALLEST_SHARE) / (shares[1] + SMALLEST_SHARE))
    return np.asarray(ratio.ravel()[codes])
