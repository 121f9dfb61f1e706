"""Figures of ``contrastive-speed``: F1 against processor time, and messages of a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.base import Figure, Row
from experiments.tables import distinct, mean_of, tidy
from experiments.welling_sutton2005.speed.methods import CONTRASTIVE, PROPAGATION

#: Warm colours for contrastive free energies, cold ones for propagation.
COLOURS = dict(
    zip(
        (*CONTRASTIVE, *PROPAGATION),
        ("#e8b84a", "#e07b39", "#c1272d", "#7d1a4a", "#222222", "#8a8a8a", "#6fa8dc", "#1f5fa8"),
        strict=True,
    )
)
Points = list[Row]


def of_row(row: Row, points: Sequence[Row]) -> Points:
    """The points of one training."""
    names = ("model", "fold", "method", "l2")
    return [point for point in points if all(point[name] == row[name] for name in names)]


def courses(rows: Sequence[Row], points: Sequence[Row]) -> Figure:
    """Test F1 against processor time, means over folds; a dot where held-out mails say stop."""

    def draw_method(axes: Any, chosen: Sequence[Row], colour: str, method: str) -> None:
        seconds, scores = _mean_course(chosen, points, "seconds", "test_f1")
        axes.plot(seconds, 100.0 * scores, color=colour, linewidth=1.3, label=method)
        axes.plot(
            mean_of(chosen, "seconds"),
            100.0 * mean_of(chosen, "test_f1"),
            "o", color=colour, markersize=7, markeredgecolor="white",
        )  # fmt: skip
        axes.set_xlabel("training, seconds of processor time")
        axes.set_ylabel("token F1 of test mails, percent")

    return _panels(rows, draw_method)


def gradients(rows: Sequence[Row], points: Sequence[Row]) -> Figure:
    """Messages of one gradient against iterations, means over folds."""

    def draw_method(axes: Any, chosen: Sequence[Row], colour: str, method: str) -> None:
        evaluations, messages = _mean_course(chosen, points, "evaluations", "messages")
        iterations = _iterations(chosen, points)
        spent = np.diff(messages, prepend=0.0) / np.maximum(np.diff(evaluations, prepend=0.0), 1e-9)
        axes.plot(iterations, 1e-6 * spent, color=colour, linewidth=1.3, label=method)
        axes.set_yscale("log")
        axes.set_xlabel("iterations")
        axes.set_ylabel("million messages a gradient")

    return _panels(rows, draw_method)


def _panels(
    rows: Sequence[Row], draw_method: Callable[[Any, Sequence[Row], str, str], None]
) -> Figure:
    """A panel for each model, a line for each method."""

    def draw(figure: Any) -> None:
        models = distinct(rows, "model")
        figure.set_size_inches(5.0 * len(models) + 2.0, 4.0)
        panels = figure.subplots(1, len(models), squeeze=False)[0]
        names: dict[str, Any] = {}
        for axes, model in zip(panels, models, strict=True):
            of_panel = [row for row in rows if row["model"] == model]
            for method in distinct(of_panel, "method"):
                chosen = [row for row in of_panel if row["method"] == method]
                draw_method(axes, chosen, COLOURS[method], method)
            axes.set_xscale("log")
            axes.set_title(model, fontsize=10)
            tidy(axes)
            names |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        panels[-1].legend(
            list(names.values()), list(names),
            loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8,
        )  # fmt: skip
        figure.tight_layout()

    return draw


def _iterations(chosen: Sequence[Row], points: Sequence[Row]) -> list[int]:
    """Iterations that were scored in all folds."""
    found = [{int(p["iteration"]) for p in of_row(row, points)} for row in chosen]
    return sorted(set.intersection(*found))


def _mean_course(chosen: Sequence[Row], points: Sequence[Row], x: str, y: str) -> tuple[Any, Any]:
    """Means over folds of two columns, iteration by iteration."""
    iterations = _iterations(chosen, points)
    of_folds = []
    for row in chosen:
        found = {point["iteration"]: (point[x], point[y]) for point in of_row(row, points)}
        of_folds.append([found[iteration] for iteration in iterations])
    mean = np.mean(of_folds, axis=0)
    return mean[:, 0], mean[:, 1]
