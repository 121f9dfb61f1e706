"""The picture of ``camel-segmentation``: photographs, their labels, and what each method found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.base import Figure
from experiments.ganapathi2008.methods import TITLES
from experiments.ganapathi2008.segmentation.data import LABELS, LabelArray, Picture

#: Colours of the labels, near what they stand for.
COLOURS = ("#7a5195", "#f2c14e", "#2f6db5", "#dfe7ec", "#4c9a4a", "#b0764a", "#8fd0f0")
#: Ranks of the pictures that are shown, as shares of all: from hard to easy.
RANKS = (0.1, 0.3, 0.5, 0.7, 0.9)


def shown_indices(accuracies: Sequence[float]) -> list[int]:
    """Pictures at fixed ranks of accuracy, hard ones first, so that the choice is not biased."""
    order = np.argsort(accuracies, kind="stable")
    places = {int(rank * len(order)): None for rank in RANKS}  # without repetition, in order
    return [int(order[place]) for place in places]


def labelled_pictures(
    pictures: Sequence[Picture], found: Mapping[str, Sequence[LabelArray]]
) -> Figure:
    """A drawing with a row for each picture, and a column for each method's labels."""

    def draw(figure: Any) -> None:
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch

        columns = ["picture", "truth", *found]
        figure.set_size_inches(1.75 * len(columns), 1.3 * len(pictures) + 0.6)
        panels = figure.subplots(len(pictures), len(columns), squeeze=False)
        figure.subplots_adjust(
            left=0.005, right=0.995, top=0.94, bottom=0.09, wspace=0.03, hspace=0.22
        )
        for row, picture in enumerate(pictures):
            shown = [picture.image, picture.truth]
            shown += [labels[row][picture.segments] for labels in found.values()]
            for axes, column, pixels in zip(panels[row], columns, shown, strict=True):
                axes.imshow(pixels, cmap=ListedColormap(COLOURS), vmin=-0.5, vmax=len(LABELS) - 0.5)
                axes.set_axis_off()
                if row == 0:
                    axes.set_title(TITLES.get(column, column), fontsize=9)
                if column in found:
                    right = np.mean(found[column][row] == picture.labels)
                    axes.text(
                        0.5, -0.03, f"{right:.0%}", transform=axes.transAxes, fontsize=7,
                        ha="center", va="top",
                    )  # fmt: skip
        figure.legend(
            [Patch(facecolor=colour, edgecolor="#555555", linewidth=0.5) for colour in COLOURS],
            LABELS,
            loc="lower center",
            ncols=len(LABELS),
            fontsize=9,
            frameon=False,
        )

    return draw
