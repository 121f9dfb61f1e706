"""Figures of ``mle-struct-segmentation``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.base import Figure
from experiments.tang2016.segmentation.data import Horses, LabelArray

Row = dict[str, Any]

COLOURS = {
    "mle-struct": "#c1272d",
    "mle-struct-blocks": "#d77fa1",
    "mle-struct-averaged": "#8e5ea2",
    "mle-struct-map": "#e39b3b",
    "trw": "#1f5fa8",
    "trw-loose": "#6fa8dc",
    "trw-afresh": "#333333",
}
#: Below this the optimum itself is not known better.
FLOOR = 1e-7
#: Ranks of the pictures that are shown, as shares of all: from easy to hard.
RANKS = (0.1, 0.3, 0.5, 0.7, 0.9)
#: Methods whose labels are shown; double loops of one objective look the same.
SHOWN = ("mle-struct", "mle-struct-map", "trw", "pseudo-likelihood", "max-margin")


def curves(trace: Sequence[Row]) -> Figure:
    """Relative suboptimality against processor time, a panel for each penalty."""

    def draw(figure: Any) -> None:
        penalties = sorted({row["l2"] for row in trace})
        n_columns = min(2, len(penalties))
        n_rows = -(-len(penalties) // n_columns)
        figure.set_size_inches(5.2 * n_columns, 3.6 * n_rows)
        panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        names: dict[str, Any] = {}
        for axes, l2 in zip(panels, penalties, strict=False):
            of_panel = [row for row in trace if row["l2"] == l2]
            for method in dict.fromkeys(row["method"] for row in of_panel):
                rows = [row for row in of_panel if row["method"] == method]
                seconds = [row["seconds"] for row in rows]
                values = [max(row["suboptimality"], FLOOR) for row in rows]
                (line,) = axes.loglog(
                    seconds, values, color=COLOURS[method], marker="o", markersize=3, label=method
                )
                names[method] = line
                if method == "mle-struct":
                    gaps = [max(row["gap"], FLOOR) for row in rows]
                    (line,) = axes.loglog(
                        seconds, gaps, color=COLOURS[method], linestyle=":", linewidth=1
                    )
                    names["its certified gap"] = line
            axes.axhline(0.01, color="#999999", linewidth=0.8, linestyle="--")
            axes.set_title(f"l2 = {l2:g}", fontsize=10)
            axes.set_xlabel("seconds of processor time")
            axes.set_ylabel("P(w) / optimum - 1")
        for axes in panels[len(penalties) :]:
            axes.set_axis_off()
        figure.legend(
            list(names.values()), list(names), loc="lower center", ncols=len(names), fontsize=8,
            frameon=False,
        )  # fmt: skip
        figure.tight_layout(rect=(0.0, 0.05, 1.0, 1.0))

    return draw


def error_curves(trace: Sequence[Row]) -> Figure:
    """Test error against processor time."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(6.4, 4.2)
        axes = figure.subplots()
        for method in dict.fromkeys(row["method"] for row in trace):
            rows = [
                row for row in trace if row["method"] == method and row["test_error"] is not None
            ]
            axes.semilogx(
                [row["seconds"] for row in rows],
                [100.0 * row["test_error"] for row in rows],
                color=COLOURS[method], marker="o", markersize=3, label=method,
            )  # fmt: skip
        axes.set_ylim(7.0, 16.0)
        axes.set_xlabel("seconds of processor time")
        axes.set_ylabel("wrong test pixels, %")
        axes.legend(fontsize=8, frameon=False)
        figure.tight_layout()

    return draw


def shown_indices(errors: Sequence[float]) -> list[int]:
    """Pictures at fixed ranks of error, easy ones first, so that the choice is not biased."""
    order = np.argsort(errors, kind="stable")
    places = {int(rank * len(order)): None for rank in RANKS}  # without repetition, in order
    return [int(order[place]) for place in places]


def shown_labels(
    horses: Horses, found: Mapping[str, Sequence[LabelArray]], shown: Sequence[int]
) -> Figure:
    """A row for each picture: itself, the truth, and the labels of some methods."""

    def draw(figure: Any) -> None:
        methods = [method for method in SHOWN if method in found]
        columns = ["picture", "truth", *methods]
        figure.set_size_inches(1.3 * len(columns), 1.4 * len(shown) + 0.3)
        panels = figure.subplots(len(shown), len(columns), squeeze=False)
        figure.subplots_adjust(
            left=0.005, right=0.995, top=0.94, bottom=0.03, wspace=0.03, hspace=0.2
        )
        for row, index in enumerate(shown):
            truth = horses.test_labels[index]
            pictures = [horses.test_pictures[index], truth]
            pictures += [found[method][index] for method in methods]
            for axes, column, pixels in zip(panels[row], columns, pictures, strict=True):
                axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axes.set_axis_off()
                if row == 0:
                    axes.set_title(column, fontsize=8)
                if column in found:
                    wrong = np.mean(found[column][index] != truth)
                    axes.text(
                        0.5, -0.03, f"{wrong:.1%} wrong", transform=axes.transAxes, fontsize=7,
                        ha="center", va="top",
                    )  # fmt: skip

    return draw
