"""Sums over the regions of a picture: means, spreads, histograms, shapes, neighbours.

Regions are given by a label image ``segments``, every number ``0..N-1`` of which occurs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._arrays import plain_array
from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError
from fieldfit.features._image_channels import (
    CHANNEL_NAMES,
    N_PATTERNS,
    binary_patterns,
    pixel_channels,
)

__all__ = [
    "SHAPE_NAMES",
    "IndexArray",
    "adjacent_regions",
    "checked_segments",
    "described_regions",
    "feature_names",
    "histograms",
    "means",
    "neighbour_means",
    "shapes",
    "spreads",
]

IndexArray = NDArray[np.intp]

SHAPE_NAMES = (
    "row", "column", "height", "width", "area", "roundness", "row spread", "column spread",
    "elongation", "at top", "at bottom", "at side",
)  # fmt: skip


def checked_segments(segments: Any) -> IndexArray:
    """The label image as integers, every one of ``0..N-1`` used."""
    given = plain_array("segments", segments)
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


def means(segments: IndexArray, channels: FloatArray) -> FloatArray:
    """Mean ``(N, C)`` of each channel over each region."""
    flat = segments.ravel()
    count = np.bincount(flat)
    values = channels.reshape(flat.size, -1)
    sums = [np.bincount(flat, weights=column) for column in values.T]
    return np.stack(sums, axis=1) / count[:, None]


def spreads(segments: IndexArray, channels: FloatArray, mean: FloatArray) -> FloatArray:
    """Standard deviation ``(N, C)`` around the given means."""
    # around the mean, not as a difference of squares: no digits cancel
    return np.sqrt(means(segments, (channels - mean[segments]) ** 2))


def histograms(segments: IndexArray, bins: IndexArray, n_bins: int) -> FloatArray:
    """Share ``(N, n_bins)`` of each region's pixels in each bin."""
    n_regions = int(segments.max()) + 1
    joint = np.bincount((segments * n_bins + bins).ravel(), minlength=n_regions * n_bins)
    counts = joint.reshape(n_regions, n_bins)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def adjacent_regions(segments: IndexArray) -> tuple[IndexArray, IndexArray]:
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


def neighbour_means(values: FloatArray, edges: IndexArray, lengths: IndexArray) -> FloatArray:
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


def shapes(segments: IndexArray, edges: IndexArray, lengths: IndexArray) -> FloatArray:
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

    def border(pixels: IndexArray) -> FloatArray:
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


# -- Image features ------------------------------------------------------------------------
# The features of a region: itself, what lies beside it, and the picture that it is part of.
#
# A patch of grey is water in one picture and hide in another; what decides is what is around it.
# So a region is described by
#
# * itself: means and spreads of the channels, histograms of colour and local binary patterns,
#   place, size and form;
# * its neighbours: means over adjacent regions and over theirs, and how it differs from them;
# * the picture: means, spreads, colour histograms and a coarse layout of all of it, the same for
#   all its regions, and where the region stands in it.  Photographs of one kind of scene are alike,
#   and a classifier learns which labels belong to which.


#: Bins of each Lab channel in a histogram.
N_COLOUR_BINS = 8
#: Ranges of the histograms in units of `LAB_RANGE`; natural colours are within a half of grey.
LAB_LIMITS = ((0.0, 1.0), (-0.5, 0.5), (-0.5, 0.5))
LAB_CHANNELS = slice(3, 6)
#: Channels of neighbours and picture: colour, and texture at the finest scale.
CONTEXT_CHANNELS = (3, 4, 5, 6, 7, 10)
#: The layout of a picture: as many rows and columns of cells.
N_CELLS = 3
#: Spreads below this are those of a picture of one colour: about one grey value of 255.
SMALLEST_SPREAD = 0.004


def described_regions(image: FloatArray, segments: IndexArray) -> FloatArray:
    """Features ``(N, F)`` of the regions of a picture with values in [0, 1]."""
    edges, lengths = adjacent_regions(segments)
    channels = pixel_channels(image)
    mean = means(segments, channels)
    context = channels[:, :, CONTEXT_CHANNELS]
    own = mean[:, CONTEXT_CHANNELS]
    around = neighbour_means(own, edges, lengths)
    middle, spread = context.mean(axis=(0, 1)), context.std(axis=(0, 1))
    colours = _colour_bins(channels[:, :, LAB_CHANNELS])
    whole = np.zeros_like(segments)
    rows, cells = _layout(*segments.shape)
    picture = [
        middle,
        spread,
        *(histograms(whole, bins, N_COLOUR_BINS)[0] for bins in colours),
        means(cells, context).ravel(),
        spreads(rows, context, means(rows, context)).ravel(),
    ]
    return np.concatenate(
        [
            mean,
            spreads(segments, channels, mean),
            *(histograms(segments, bins, N_COLOUR_BINS) for bins in colours),
            histograms(segments, binary_patterns(image), N_PATTERNS),
            shapes(segments, edges, lengths),
            around,
            own - around,
            neighbour_means(around, edges, lengths),
            (own - middle) / np.maximum(spread, SMALLEST_SPREAD),
            np.tile(np.concatenate(picture), (len(mean), 1)),
        ],
        axis=1,
    )


def feature_names() -> list[str]:
    """What the columns of `described_regions` are."""
    context = [CHANNEL_NAMES[channel] for channel in CONTEXT_CHANNELS]
    lab = CHANNEL_NAMES[LAB_CHANNELS]
    bins = [f"{name} in bin {index}" for name in lab for index in range(N_COLOUR_BINS)]
    thirds = range(N_CELLS)
    cells = [f"row {row} column {column}" for row in thirds for column in thirds]
    return [
        *(f"mean {name}" for name in CHANNEL_NAMES),
        *(f"spread {name}" for name in CHANNEL_NAMES),
        *bins,
        *(f"binary pattern {index}" for index in range(N_PATTERNS)),
        *SHAPE_NAMES,
        *(f"neighbours' {name}" for name in context),
        *(f"{name} over neighbours'" for name in context),
        *(f"neighbours' neighbours' {name}" for name in context),
        *(f"{name} in the picture" for name in context),
        *(f"picture's mean {name}" for name in context),
        *(f"picture's spread {name}" for name in context),
        *(f"picture's {name}" for name in bins),
        *(f"picture's {name} in {cell}" for cell in cells for name in context),
        *(f"picture's spread {name} in row {row}" for row in thirds for name in context),
    ]


def _layout(height: int, width: int) -> tuple[IndexArray, IndexArray]:
    """Label images of the `N_CELLS` strips from top to bottom, and of the cells."""
    row = np.arange(height) * N_CELLS // height
    column = np.arange(width) * N_CELLS // width
    rows = np.broadcast_to(row[:, None], (height, width))
    return rows, rows * N_CELLS + column


def _colour_bins(lab: FloatArray) -> list[IndexArray]:
    """The bin of every pixel in each channel of Lab."""
    bins = []
    for channel, (low, high) in enumerate(LAB_LIMITS):
        scaled = (lab[:, :, channel] - low) / (high - low) * N_COLOUR_BINS
        bins.append(np.clip(scaled, 0, N_COLOUR_BINS - 1).astype(np.intp))
    return bins
