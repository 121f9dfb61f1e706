"""Sums over the regions of a picture: means, spreads, histograms, shapes, neighbours.

Regions are given by a label image ``segments``, every number ``0..N-1`` of which occurs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError
from fieldfit.features._image_channels import FloatArray

__all__ = [
    "SHAPE_NAMES",
    "IntArray",
    "adjacent_regions",
    "checked_segments",
    "histograms",
    "means",
    "neighbour_means",
    "shapes",
    "spreads",
]

IntArray = NDArray[np.intp]

SHAPE_NAMES = (
    "row", "column", "height", "width", "area", "roundness", "row spread", "column spread",
    "elongation", "at top", "at bottom", "at side",
)  # fmt: skip


def checked_segments(segments: Any) -> IntArray:
    """The label image as integers, every one of ``0..N-1`` used."""
    given = np.asarray(segments)
    if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "iu":
        raise InvalidInputError(
            f"segments must be integers of shape (height, width), got dtype {given.dtype} and "
            f"shape {given.shape}"
        )
    if given.min() < 0:
        raise InvalidInputError(f"segments must be at least 0, got {given.min()}")
    if given.max() >= given.size or not np.bincount(given.ravel()).all():
        raise InvalidInputError(
            "segments must use every number from 0 to its largest, "
            f"got {len(np.unique(given))} numbers up to {given.max()}"
        )
    return given.astype(np.intp)


def means(segments: IntArray, channels: FloatArray) -> FloatArray:
    """Mean ``(N, C)`` of each channel over each region."""
    flat = segments.ravel()
    count = np.bincount(flat)
    values = channels.reshape(flat.size, -1)
    sums = [np.bincount(flat, weights=column) for column in values.T]
    return np.stack(sums, axis=1) / count[:, None]


def spreads(segments: IntArray, channels: FloatArray, mean: FloatArray) -> FloatArray:
    """Standard deviation ``(N, C)`` around the given means."""
    # around the mean, not as a difference of squares: no digits cancel
    return np.sqrt(means(segments, (channels - mean[segments]) ** 2))


def histograms(segments: IntArray, bins: IntArray, n_bins: int) -> FloatArray:
    """Share ``(N, n_bins)`` of each region's pixels in each bin."""
    n_regions = int(segments.max()) + 1
    joint = np.bincount((segments * n_bins + bins).ravel(), minlength=n_regions * n_bins)
    counts = joint.reshape(n_regions, n_bins)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def adjacent_regions(segments: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs ``(E, 2)`` of regions with a common boundary, and its length in pixels.

    Pixels are neighbours of the four beside them; the first region of a pair is the smaller.
    """
    n_regions = int(segments.max()) + 1
    pairs = np.concatenate(
        [
            np.stack([segments[:, :-1].ravel(), segments[:, 1:].ravel()], axis=1),
            np.stack([segments[:-1].ravel(), segments[1:].ravel()], axis=1),
        ]
    )
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    codes, lengths = np.unique(pairs[:, 0] * n_regions + pairs[:, 1], return_counts=True)
    return np.stack(np.divmod(codes, n_regions), axis=1), lengths


def neighbour_means(values: FloatArray, edges: IntArray, lengths: IntArray) -> FloatArray:
    """Mean over each region's neighbours, by length of the common boundary; alone: its own."""
    n_regions = len(values)
    sums = np.zeros_like(values)
    np.add.at(sums, edges[:, 0], lengths[:, None] * values[edges[:, 1]])
    np.add.at(sums, edges[:, 1], lengths[:, None] * values[edges[:, 0]])
    total = np.bincount(edges.ravel(), weights=np.repeat(lengths, 2), minlength=n_regions)
    alone = total == 0
    sums[alone] = values[alone]
    total[alone] = 1.0
    return sums / total[:, None]


def shapes(segments: IntArray, edges: IntArray, lengths: IntArray) -> FloatArray:
    """Place, size and form ``(N, len(SHAPE_NAMES))``, in units of the picture."""
    height, width = segments.shape
    flat = segments.ravel()
    n_regions = int(flat.max()) + 1
    rows, columns = (index.ravel().astype(np.float64) for index in np.indices(segments.shape))
    area = np.bincount(flat).astype(np.float64)

    def mean(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(flat, weights=values) / area)

    row, column = mean(rows), mean(columns)
    # 1/12 is the variance within a pixel, so that one pixel has a form too
    row_spread = mean((rows - row[flat]) ** 2) + 1.0 / 12.0
    column_spread = mean((columns - column[flat]) ** 2) + 1.0 / 12.0
    common = mean((rows - row[flat]) * (columns - column[flat]))
    middle, half = (row_spread + column_spread) / 2.0, (row_spread - column_spread) / 2.0
    apart = np.hypot(half, common)

    extents = []
    for places in (rows, columns):
        low, high = np.full(n_regions, np.inf), np.full(n_regions, -np.inf)
        np.minimum.at(low, flat, places)
        np.maximum.at(high, flat, places)
        extents.append(high - low + 1.0)

    def border(pixels: IntArray) -> FloatArray:
        return np.bincount(pixels, minlength=n_regions).astype(np.float64)

    top, bottom = border(segments[0]), border(segments[-1])
    side = border(segments[:, 0]) + border(segments[:, -1])
    inside = np.bincount(edges.ravel(), weights=np.repeat(lengths, 2), minlength=n_regions)
    perimeter = inside + top + bottom + side
    return np.stack(
        [
            (row + 0.5) / height,
            (column + 0.5) / width,
            extents[0] / height,
            extents[1] / width,
            area / segments.size,
            16.0 * area / perimeter**2,  # a square has 1
            np.sqrt(row_spread) / height,
            np.sqrt(column_spread) / width,
            np.sqrt((middle - apart) / (middle + apart)),
            top / width,
            bottom / width,
            side / height,
        ],
        axis=1,
    )
