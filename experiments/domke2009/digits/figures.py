"""The figures of ``domke-digits``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.base import Figure, Row
from experiments.domke2009.digits_data import DigitSplit
from experiments.tables import distinct, mean_of

FloatArray = NDArray[np.float64]

#: Lines of the figure of errors, where these methods were run.
DRAWN = ("pseudo", "lbp", "convex", "ucl", "ucl+entropy", "ucl-1", "ucl-4")
N_SHOWN = 9


def error_curves(rows: Sequence[Row]) -> Figure:
    """Test error of some methods against the noise."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(6.4, 4.2)
        axes = figure.subplots()
        noises = distinct(rows, "noise")
        for method in (name for name in DRAWN if name in distinct(rows, "method")):
            values = [mean_of(rows, "uclass", method=method, noise=noise) for noise in noises]
            axes.plot([100 * noise for noise in noises], values, marker="o", label=method)
        axes.set_yscale("log")
        axes.set_xlabel("noise, % of pixels set at random")
        axes.set_ylabel("share of wrong test pixels")
        axes.grid(color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.tight_layout()

    return draw


def pictures(split: DigitSplit, beliefs: Mapping[str, FloatArray]) -> Figure:
    """Nine test pictures, what was seen of them, and every method's belief in ink."""

    def draw(figure: Any) -> None:
        lines: dict[str, NDArray[Any]] = {"true": split.test, "seen": split.noisy_test, **beliefs}
        n_shown = min(N_SHOWN, len(split.test))
        height, width = split.test.shape[1:]
        # one picture of all, with a grey line between them: hundreds of panels take minutes
        mosaic = np.full((len(lines) * (height + 1), n_shown * (width + 1)), 0.5)
        for row, images in enumerate(lines.values()):
            for column, image in enumerate(images[:n_shown]):
                top, left = row * (height + 1), column * (width + 1)
                mosaic[top : top + height, left : left + width] = 1.0 - image
        figure.set_size_inches(0.6 * n_shown + 1.2, 0.6 * len(lines) + 0.2)
        axes = figure.subplots()
        axes.imshow(mosaic, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
        middles = np.arange(len(lines)) * (height + 1) + height / 2
        axes.set_yticks(middles, list(lines), fontsize=8)
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.set_layout_engine("constrained")

    return draw
