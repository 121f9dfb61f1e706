"""Figures of ``mle-struct-roommates``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.base import Figure
from experiments.tables import mean_of
from experiments.tang2016.roommates.report import methods_of

Row = dict[str, Any]


def room_curves(rows: Sequence[Row]) -> Figure:
    """Error of the weights and accuracy against the number of dormitories."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(9.0, 3.6)
        rooms = [row for row in rows if row["part"] == "rooms"]
        sizes = sorted({row["n_train"] for row in rooms})
        panels = (("cosine", "cosine of learned and hidden weights"), ("accuracy", "accuracy"))
        for place, (name, title) in enumerate(panels):
            axes = figure.add_subplot(1, 2, place + 1)
            for method in methods_of(rooms, "rooms"):
                means = [mean_of(rooms, name, method=method, n_train=size) for size in sizes]
                if method == "true weights":
                    if name == "accuracy":
                        axes.plot(sizes, means, color="black", linestyle=":", label=method)
                    continue
                axes.plot(sizes, means, marker="o", label=method)
            axes.set_xscale("log")
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.minorticks_off()
            axes.set_xlabel("dormitories")
            axes.set_title(title)
        axes.legend(fontsize=8)
        figure.tight_layout()

    return draw


def dating_bars(rows: Sequence[Row]) -> Figure:
    """Area under the curve for both questions, one mark for each fold."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(8.0, 3.4)
        titles = {"dating": "before the evening", "dating-degrees": "given the degrees"}
        for place, (part, title) in enumerate(titles.items()):
            axes = figure.add_subplot(1, 2, place + 1)
            methods = methods_of(rows, part)
            for x, method in enumerate(methods):
                values = [
                    row["auc"] for row in rows if row["part"] == part and row["method"] == method
                ]
                axes.bar(x, np.mean(values), width=0.6, color="C0", alpha=0.5)
                axes.plot(np.full(len(values), x), values, "k.", markersize=4)
            axes.axhline(0.5, color="grey", linewidth=0.8)
            axes.set_xticks(range(len(methods)), methods, fontsize=8)
            axes.set_ylim(0.4, 1.0)
            axes.set_title(f"AUC within waves, {title}", fontsize=10)
        figure.tight_layout()

    return draw
