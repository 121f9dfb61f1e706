"""The report of ``domke-entropy``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.base import Figure, Row
from experiments.domke2009.entropy.methods import LEAST_WEIGHT
from experiments.tables import (
    OUR_COLOUR,
    PAPER_COLOUR,
    distinct,
    markdown_table,
    mean_of,
    text_table,
)

if TYPE_CHECKING:
    from experiments.domke2009.entropy.run import Design


KINDS = ("fixed", "fitted")

WHAT_WAS_DONE = """
## What was done

Digits as in `domke-digits` at {noise:.0f} % noise ({n_each} pictures of each digit to learn from
and as many to test, {n_repeats} choices of pictures), implicit fitting of `ucl`. Entropies A, B and
C have `w(y_c) = 1` and `w(y_i) = .01`, `.1`, `1`; those called `r` have every weight drawn
from [0, 1] (at least {least:g} here). *Fixed*: potentials only, from the weights of `convex`.
*Fitted*: from there on, one entropy weight for each configuration of a pixel, of a horizontal and
of a vertical pair as well, through logarithms and under the same penalty `l2 = {l2:g}` (which pulls
A, B and C towards what they were, and `r` towards 1).

The thesis shows errors as figure 6.10 and prints .0710 for A fixed (table 1.1) and a range of
.050 to .059 over all entropies fitted. What it concludes: A is slightly better than B and C;
fitting improves every entropy considerably and makes them alike.
"""


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    return text_table(*_cells(rows))


def report(rows: Sequence[Row], design: Design) -> str:
    """Markdown of the whole."""
    text = WHAT_WAS_DONE.format(
        noise=100 * design.noise,
        n_each=design.n_each,
        n_repeats=design.n_repeats,
        least=LEAST_WEIGHT,
        l2=design.limits.l2,
    )
    fixed, fitted = ([_mean(rows, m, kind) for m in distinct(rows, "method")] for kind in KINDS)
    found = (
        f"Share of wrong test pixels from {min(fixed):.4f} to {max(fixed):.4f} with entropies as "
        f"they are, from {min(fitted):.4f} to {max(fitted):.4f} with fitted ones (thesis: .050 to "
        ".059)."
    )
    parts = (
        text,
        "## What was found",
        markdown_table(*_cells(rows)),
        found,
        "![Errors with fixed and fitted entropies](entropies.png)",
    )
    return "\n\n".join(part.strip() for part in parts)


def headline(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean test errors by entropy."""
    return {m: {kind: _mean(rows, m, kind) for kind in KINDS} for m in distinct(rows, "method")}


def bars(rows: Sequence[Row]) -> Figure:
    """Test errors of all entropies, fixed and fitted."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(6.4, 3.4)
        axes = figure.subplots()
        methods = distinct(rows, "method")
        places = np.arange(len(methods))
        for shift, kind, colour in zip((-0.2, 0.2), KINDS, (PAPER_COLOUR, OUR_COLOUR), strict=True):
            values = [_mean(rows, method, kind) for method in methods]
            axes.bar(places + shift, values, 0.38, color=colour, label=kind)
        axes.set_xticks(places, methods)
        axes.set_ylabel("share of wrong test pixels")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.tight_layout()

    return draw


def _mean(rows: Sequence[Row], method: str, kind: str, column: str = "uclass") -> float:
    return mean_of(rows, column, method=method, entropy=kind)


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    header = ["entropy", "fixed", "fitted", "training, fixed", "training, fitted", "seconds"]
    lines = []
    for method in distinct(rows, "method"):
        errors = [_mean(rows, method, kind, column) for column in ("uclass", "train_uclass")
                  for kind in KINDS]  # fmt: skip
        seconds = sum(_mean(rows, method, kind, "seconds") for kind in KINDS)
        lines.append([method, *(f"{error:.4f}" for error in errors), f"{seconds:.0f}"])
    return header, lines
