"""The report of ``contrastive-hidden``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.base import Figure, Row
from experiments.tables import (
    OUR_COLOUR,
    PAPER_COLOUR,
    deviation,
    distinct,
    fold_cell,
    markdown_table,
    mean_of,
    text_table,
    values_of,
)

#: The model without hidden units.
INDEPENDENT = "independent pixels"

WHAT_WAS_DONE = """
## What was done

The paper leaves hidden variables to future work, so there is no table to compare with. The model is
a restricted Boltzmann machine: {n_visible} black-and-white pixels of scikit-learn's digits (those
that vary), each joined to {n_hidden} hidden units, {n_weights} weights, `l2 = {l2:g}`.
{n_training} digits to learn from, {n_test} to test, random splits and starts ({n_repeats}), the
same for all methods. The log-likelihood of digits is exact (clique tree; hidden units summed out),
in nats for a digit.

`CFk` relaxes k steps from the data by mean field or Bethe; `CDk` makes k Gibbs sweeps from them;
`PCD1` keeps its chains, and learns in shorter steps so that they keep up. `exact` follows the
gradient of the likelihood itself, for five times as many iterations, because it is cheap here. The
likelihood of a model with hidden units has many optima, so even this ends where its start leads.
A few steps from the data see the model near the data only: probability that it puts far from any
digit goes unnoticed and costs likelihood, while chains that wander can find it.
"""


@dataclass(frozen=True)
class Machine:
    """What the report says of model and data."""

    n_visible: int
    n_hidden: int
    n_training: int
    n_test: int
    n_repeats: int
    l2: float

    @property
    def n_weights(self) -> int:
        return self.n_visible + self.n_hidden + self.n_visible * self.n_hidden


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    return text_table(*_cells(rows))


def report(rows: Sequence[Row], machine: Machine) -> str:
    """Markdown of the whole."""
    text = WHAT_WAS_DONE.format(**vars(machine), n_weights=machine.n_weights)
    return "\n\n".join(
        part.strip()
        for part in (
            text,
            "## What was found",
            markdown_table(*_cells(rows)),
            "Means over splits, standard deviations in brackets; *seconds* are wall time of "
            "training.",
            "![Log-likelihood of test digits](likelihood.png)",
            "![Couplings of hidden units, one small picture each](filters.png)",
        )
    )


def headline(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean test log-likelihoods."""
    return {
        method: mean_of(rows, "log_likelihood", method=method)
        for method in distinct(rows, "method")
    }


def likelihood_bars(rows: Sequence[Row]) -> Figure:
    """Test log-likelihood of every method."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(7.0, 3.4)
        axes = figure.subplots()
        methods = distinct(rows, "method")
        values = [mean_of(rows, "log_likelihood", method=method) for method in methods]
        spread = [deviation(values_of(rows, "log_likelihood", method=method)) for method in methods]
        colours = [PAPER_COLOUR if method == INDEPENDENT else OUR_COLOUR for method in methods]
        axes.errorbar(values, methods, xerr=spread, fmt="none", ecolor="#444444", capsize=3)
        axes.scatter(values, methods, c=colours, zorder=3)
        axes.invert_yaxis()
        axes.grid(axis="x", color="#dddddd")
        axes.set_xlabel("log-likelihood of a test digit, nats (higher is better)")
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()

    return draw


def filters(weights: Mapping[str, NDArray[np.float64]], used: NDArray[np.bool_]) -> Figure:
    """Couplings of the hidden units of each method, as pictures; pixels not ``used`` are white."""

    def draw(figure: Any) -> None:
        n_hidden = next(iter(weights.values())).shape[1]
        figure.set_size_inches(0.8 * n_hidden + 1.2, 0.8 * len(weights))
        panels = figure.subplots(len(weights), n_hidden, squeeze=False)
        for row, (method, couplings) in zip(panels, weights.items(), strict=True):
            limit = float(np.abs(couplings).max()) or 1.0
            for axes, column in zip(row, couplings.T, strict=True):
                picture = np.zeros(used.shape)
                picture[used] = column
                axes.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
                axes.set_xticks([])
                axes.set_yticks([])
            row[0].set_ylabel(method, rotation=0, ha="right", va="center", fontsize=8)
        figure.tight_layout(pad=0.4)

    return draw


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    header = ["method", "test", "training", "seconds", "iterations", "converged, %"]
    lines = []
    for method in distinct(rows, "method"):
        lines.append(
            [
                method,
                fold_cell(values_of(rows, "log_likelihood", method=method), digits=2),
                fold_cell(values_of(rows, "training_log_likelihood", method=method), digits=2),
                fold_cell(values_of(rows, "seconds", method=method), digits=1),
                f"{mean_of(rows, 'n_iter', method=method):.0f}",
                f"{100.0 * mean_of(rows, 'converged', method=method):.0f}",
            ]
        )
    return header, lines
