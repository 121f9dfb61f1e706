"""Figures of ``mle-struct-house-hotel``."""

from __future__ import annotations

from collections.abc import Sequence as List
from typing import Any

import numpy as np

from experiments.base import Figure, Row
from experiments.tables import tidy
from experiments.tang2016.house_hotel.data import SEQUENCES, Sequence
from experiments.tang2016.house_hotel.methods import METHODS

COLOURS = {"mle-struct": "#1f6fb4", "max-margin": "#d1651a", "unweighted": "#888888"}
MARKERS = {"mle-struct": "o", "max-margin": "s", "unweighted": "x"}
RIGHT, WRONG = "#2a8f4a", "#c0392b"


def error_curves(rows: List[Row]) -> Figure:
    """Test error of all methods against the gap, one panel a sequence."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(9.0, 3.6)
        panels = figure.subplots(1, len(SEQUENCES), sharey=True)
        for axes, name in zip(panels, SEQUENCES, strict=True):
            for method in METHODS:
                mine = [r for r in rows if (r["sequence"], r["method"]) == (name, method)]
                axes.plot(
                    [row["gap"] for row in mine], [100.0 * row["error"] for row in mine],
                    marker=MARKERS[method], markersize=5, color=COLOURS[method], label=method,
                )  # fmt: skip
            axes.set_xlabel("gap, frames")
            axes.set_title(name, fontsize=10)
            tidy(axes)
        panels[0].set_ylabel("wrong matches, percent")
        panels[0].legend(frameon=False, fontsize=8)
        figure.tight_layout()

    return draw


def rho_curves(rhos: List[Row]) -> Figure:
    """Test error against the counting number of nodes."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(5.0, 3.4)
        axes = figure.subplots()
        for gap in sorted({row["gap"] for row in rhos}):
            mine = [row for row in rhos if row["gap"] == gap]
            axes.plot(
                [row["rho"] for row in mine], [100.0 * row["error"] for row in mine],
                marker="o", label=f"house, gap {gap}",
            )  # fmt: skip
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("rho")
        axes.set_ylabel("wrong matches, percent")
        axes.legend(frameon=False, fontsize=8)
        tidy(axes)
        figure.tight_layout()

    return draw


def confidence_bars(matches: List[Row]) -> Figure:
    """Histograms of the probability of chosen edges, right and wrong."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(5.5, 3.4)
        axes = figure.subplots()
        edges = np.linspace(0.0, 1.0, 21).tolist()
        for is_right, colour in ((True, RIGHT), (False, WRONG)):
            values = [row["confidence"] for row in matches if row["is_right"] == is_right]
            if values:
                axes.hist(
                    np.clip(values, 0.0, 1.0), bins=edges, color=colour, alpha=0.6, density=True,
                    label="right" if is_right else "wrong",
                )  # fmt: skip
        axes.set_xlabel("probability of the chosen edge")
        axes.set_ylabel("density")
        axes.legend(frameon=False, fontsize=8)
        tidy(axes)
        figure.tight_layout()

    return draw


def landmark_picture(sequence: Sequence, gap: int, matches: List[Row]) -> Figure:
    """Two frames side by side and the matches between their landmarks.

    The test pair whose number of wrong matches is the median, or the next that has one.
    """
    numbers = sorted({row["pair"] for row in matches})
    wrong = {n: sum(not row["is_right"] for row in matches if row["pair"] == n) for n in numbers}
    order = sorted(numbers, key=lambda n: wrong[n])
    chosen = order[len(order) // 2]
    if wrong[chosen] == 0:
        chosen = order[-1]
    pair = sequence.of(gap, "test")[chosen]

    def draw(figure: Any) -> None:
        figure.set_size_inches(8.5, 4.0)
        axes = figure.subplots()
        first, second = sequence.points[pair.first], sequence.points[pair.second]
        shift = np.array([1.2 * float(np.ptp(sequence.points[..., 0])), 0.0])
        for row in matches:
            if row["pair"] == chosen:
                ends = np.array([first[row["landmark"]], second[row["partner"]] + shift])
                colour = RIGHT if row["is_right"] else WRONG
                axes.plot(*ends.T, color=colour, linewidth=0.6 + 1.2 * row["confidence"], alpha=0.8)
        for points in (first, second + shift):
            axes.plot(*points.T, "o", color="#222222", markersize=3.5)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_title(
            f"{sequence.name}, frames {pair.first} and {pair.second}: {wrong[chosen]} of "
            f"{len(first)} wrong (red); thick lines: sure",
            fontsize=9,
        )
        figure.tight_layout()

    return draw
