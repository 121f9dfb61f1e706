"""The features of a region: itself, what lies beside it, and the picture that it is part of.

A patch of grey is water in one picture and hide in another; what decides is what is around it.
So a region is described by

* itself: means and spreads of the channels, histograms of colour and local binary patterns, place,
  size and form;
* its neighbours: means over adjacent regions and over theirs, and how it differs from them;
* the picture: means, spreads, colour histograms and a coarse layout of all of it, the same for all
  its regions, and where the region stands in it.  Photographs of one kind of scene are alike, and a
  classifier learns which labels belong to which.
"""

from __future__ import annotations

import numpy as np

from fieldfit.features._image_channels import (
    CHANNEL_NAMES,
    N_PATTERNS,
    FloatArray,
    binary_patterns,
    pixel_channels,
)
from fieldfit.features._image_regions import (
    SHAPE_NAMES,
    IntArray,
    adjacent_regions,
    histograms,
    means,
    neighbour_means,
    shapes,
    spreads,
)

__all__ = ["described_regions", "feature_names"]

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


def described_regions(image: FloatArray, segments: IntArray) -> FloatArray:
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


def _layout(height: int, width: int) -> tuple[IntArray, IntArray]:
    """Label images of the `N_CELLS` strips from top to bottom, and of the cells."""
    row = np.arange(height) * N_CELLS // height
    column = np.arange(width) * N_CELLS // width
    rows = np.broadcast_to(row[:, None], (height, width))
    return rows, rows * N_CELLS + column


def _colour_bins(lab: FloatArray) -> list[IntArray]:
    """The bin of every pixel in each channel of Lab."""
    bins = []
    for channel, (low, high) in enumerate(LAB_LIMITS):
        scaled = (lab[:, :, channel] - low) / (high - low) * N_COLOUR_BINS
        bins.append(np.clip(scaled, 0, N_COLOUR_BINS - 1).astype(np.intp))
    return bins
