"""Figures of ``contrastive-seminars``: F1 beside the paper's, and training time against F1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.base import Figure, Row
from experiments.tables import OUR_COLOUR, PAPER_COLOUR, tidy
from experiments.welling_sutton2005.seminars.report import PAPER

#: Markers of the families of methods.
MARKERS = {"bethe": "o", "mf": "s", "bp": "D"}


def f1_bars(rows: Sequence[Row]) -> Figure:
    """Our means (lines: standard deviation over folds) beside the paper's, one panel a model."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(9.0, 3.6)
        panels = figure.subplots(1, len(PAPER), sharex=True, sharey=True)
        for axes, (model, printed) in zip(panels, PAPER.items(), strict=True):
            found = _by_method(rows, model, "f1", 100.0)
            places = np.arange(len(found))
            ours = [float(np.mean(values)) for values in found.values()]
            spread = [float(np.std(v, ddof=1)) if len(v) > 1 else 0.0 for v in found.values()]
            axes.barh(
                places - 0.19, [printed[method] for method in found], 0.36,
                color=PAPER_COLOUR, label="paper",
            )  # fmt: skip
            axes.barh(places + 0.19, ours, 0.36, xerr=spread, color=OUR_COLOUR, label="fieldfit")
            for place, value, deviation in zip(places, ours, spread, strict=True):
                axes.annotate(
                    f"{value:.1f}", (value + deviation, place + 0.19), xytext=(3, 0),
                    textcoords="offset points", va="center", fontsize=8,
                )  # fmt: skip
            axes.set_yticks(places, list(found))
            axes.set_xlim(0.0, 108.0)
            axes.set_xlabel("token F1, percent")
            axes.set_title(model, fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].invert_yaxis()
        panels[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
        figure.tight_layout()

    return draw


def time_points(rows: Sequence[Row]) -> Figure:
    """Mean training time (logarithmic) against mean F1, one panel a model."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(9.0, 3.6)
        panels = figure.subplots(1, len(PAPER), sharey=True)
        for axes, model in zip(panels, PAPER, strict=True):
            seconds = _by_method(rows, model, "seconds", 1.0)
            for method, scores in _by_method(rows, model, "f1", 100.0).items():
                point = float(np.mean(seconds[method])), float(np.mean(scores))
                axes.plot(
                    *point, MARKERS[method.rsplit("-", 1)[-1]], color=OUR_COLOUR, markersize=6
                )
                axes.annotate(method, point, xytext=(5, 4), textcoords="offset points", fontsize=8)
            axes.set_xscale("log")
            axes.margins(x=0.25, y=0.15)
            axes.set_xlabel("training, seconds")
            axes.set_title(model, fontsize=10)
            tidy(axes)
        panels[0].set_ylabel("token F1, percent")
        figure.tight_layout()

    return draw


def _by_method(rows: Sequence[Row], model: str, key: str, scale: float) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["model"] == model:
            found.setdefault(row["method"], []).append(scale * float(row[key]))
    return found
