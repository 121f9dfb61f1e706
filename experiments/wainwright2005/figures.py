"""Figures of ``wainwright-fig3``: the surfaces of the paper, and cuts through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.base import Figure
from experiments.wainwright2005.summary import Summary
from experiments.wainwright2005.trial import COMPONENTS, METHODS

COLORS = {"IND": "#777777", "BP": "#c0392b", "TRW": "#1f5f99"}
#: Height of the paper's axes; ours are extended if a surface is higher.
HEIGHTS = {"bimodal": 50.0, "heavy": 5.0}


def surfaces(summary: Summary) -> Figure:
    """Loss over signal-to-noise and coupling, one panel for each ensemble and method."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(10.0, 6.8)
        # automatic layouts leave much room around 3-D axes, or cut their labels
        figure.subplots_adjust(left=0.0, right=0.96, bottom=0.06, top=0.9, wspace=0.06, hspace=0.16)
        alphas, couplings = np.meshgrid(summary.design.alphas, summary.design.couplings)
        for row, ensemble in enumerate(COMPONENTS):
            losses = {method: summary.loss(ensemble, method)[0] for method in METHODS}
            height = max(HEIGHTS[ensemble], *(float(loss.max()) for loss in losses.values()))
            for column, (method, loss) in enumerate(losses.items()):
                axes = figure.add_subplot(
                    2, 3, 3 * row + column + 1, projection="3d", computed_zorder=False
                )
                axes.plot_surface(
                    alphas, couplings, loss, cmap="viridis", vmin=0.0, vmax=height,
                    edgecolor="black", linewidth=0.3, rstride=1, cstride=1,
                )  # fmt: skip
                axes.set_zlim(0.0, height)
                axes.view_init(elev=25, azim=-60)
                axes.set_xlabel("SNR (alpha)", fontsize=8)
                axes.set_ylabel("coupling", fontsize=8)
                axes.tick_params(labelsize=7, pad=0)
                axes.set_title(f"{method}, {ensemble}", fontsize=10)
        figure.suptitle("Increase of the mean squared error over the Bayes predictor, percent")

    return draw


def curves(summary: Summary) -> Figure:
    """Loss against signal-to-noise at three couplings; dashed: learned from exact marginals."""

    def draw(figure: Any) -> None:
        design = summary.design
        # the coupling nearest to 0.5, the strongest, and one between
        half = int(np.argmin(np.abs(np.array(design.couplings) - 0.5)))
        last = len(design.couplings) - 1
        shown = sorted({half, (half + last + 1) // 2, last})
        figure.set_size_inches(3.3 * len(shown), 5.6)
        figure.set_layout_engine("constrained")
        panels = figure.subplots(2, len(shown), squeeze=False, sharex=True)
        for row, ensemble in zip(panels, COMPONENTS, strict=True):
            for axes, c in zip(row, shown, strict=True):
                for method in METHODS:
                    loss, error = summary.loss(ensemble, method)
                    limit, _ = summary.loss(ensemble, f"{method} limit")
                    axes.errorbar(
                        design.alphas, loss[c], yerr=2.0 * error[c], color=COLORS[method],
                        label=method, marker="o", markersize=3, linewidth=1.2, capsize=2,
                    )  # fmt: skip
                    axes.plot(design.alphas, limit[c], "--", color=COLORS[method], linewidth=0.8)
                axes.set_title(f"{ensemble}, coupling {design.couplings[c]:g}", fontsize=10)
                axes.set_ylim(bottom=0.0)
                axes.grid(alpha=0.3)
        for axes in panels[-1]:
            axes.set_xlabel("signal-to-noise (alpha)")
        for row in panels:
            row[0].set_ylabel("loss, percent")
        panels[0][0].legend()

    return draw
