"""The report of ``domke-chains``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.base import Figure, Row
from experiments.tables import distinct, markdown_table, mean_cell, mean_of, text_table, values_of

if TYPE_CHECKING:
    from experiments.domke2009.chains.run import Design


WHAT_WAS_DONE = """
## What was done

Binary chains of length {length} with a table of label and what is seen and a table for pairs.
Three sources of sequences: *well-specified* ones are drawn from such a chain with random tables;
*semi-misspecified* ones alternate between ten zeros and ten ones, 60 % of what is seen is random;
*misspecified* ones are constant but for five places, 75 % is random. {n_repeats} draws, sizes
{n_train}, {n_test} test sequences each. `cl` is the exact likelihood; the losses on beliefs start
from its weights. `l2 = {l2:g}` for all.

The thesis shows this as figures 3.2 to 3.9, without numbers, and does not give the length of its
sequences or whether it had a penalty. What it concludes: with a right model the loss does not
matter; with a wrong one the likelihood is worse in the limit than losses on marginals, and
pseudo-likelihood worse still.
"""


def sizes_of(rows: Sequence[Row]) -> list[int]:
    """Numbers of training sequences."""
    return sorted({row["n_train"] for row in rows})


def table(rows: Sequence[Row]) -> str:
    """For the terminal: errors with the most training sequences."""
    return text_table(*_cells(rows, "uclass"))


def report(rows: Sequence[Row], design: Design) -> str:
    """Markdown of the whole."""
    titles = (
        ("uclass", "Wrong labels"),
        ("cclass", "Wrong pairs"),
        ("ucl", "Logarithmic loss on variables"),
        ("cl", "Likelihood, for a variable"),
    )
    parts = [WHAT_WAS_DONE.format(**vars(design)), "## What was found", _finding(rows)]
    for column, title in titles:
        parts += [
            f"### {title} (`{column}`), {max(sizes_of(rows))} training sequences",
            markdown_table(*_cells(rows, column)),
        ]
    parts += [
        "Means over draws, standard errors in brackets; `results.csv` has all sizes and losses.",
        "![Learning curves](curves.png)",
    ]
    return "\n\n".join(part.strip() for part in parts)


def headline(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean test errors with the most training sequences."""
    largest = max(sizes_of(rows))
    return {
        source: {
            method: mean_of(rows, "uclass", method=method, data=source, n_train=largest)
            for method in distinct(rows, "method")
        }
        for source in distinct(rows, "data")
    }


def curves(rows: Sequence[Row]) -> Figure:
    """Test error against the number of training sequences, a panel for each source."""

    def draw(figure: Any) -> None:
        sources = distinct(rows, "data")
        figure.set_size_inches(3.4 * len(sources) + 1.0, 3.6)
        figure.set_layout_engine("constrained")
        panels = figure.subplots(1, len(sources), squeeze=False)[0]
        sizes = sizes_of(rows)
        for axes, source in zip(panels, sources, strict=True):
            for method in distinct(rows, "method"):
                means = [
                    mean_of(rows, "uclass", method=method, data=source, n_train=n) for n in sizes
                ]
                axes.plot(sizes, means, marker=".", label=method)
            axes.set_xscale("log")
            axes.set_title(source, fontsize=10)
            axes.set_xlabel("training sequences")
            axes.grid(color="#dddddd")
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("share of wrong test labels")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside right", frameon=False, fontsize=8
        )

    return draw


def _cells(rows: Sequence[Row], column: str) -> tuple[list[str], list[list[str]]]:
    largest = max(sizes_of(rows))
    sources = distinct(rows, "data")
    lines = []
    for method in distinct(rows, "method"):
        values = [
            values_of(rows, column, method=method, data=source, n_train=largest)
            for source in sources
        ]
        lines.append([method, *(mean_cell(found, 4) for found in values)])
    return ["method", *sources], lines


def _finding(rows: Sequence[Row]) -> str:
    """Differences to the likelihood in the same draws, with their standard errors."""
    largest, sentences = max(sizes_of(rows)), []
    for source in distinct(rows, "data"):
        base = np.array(values_of(rows, "uclass", method="cl", data=source, n_train=largest))
        shown = []
        for method in ("pseudo", "ucl", "uquad"):
            values = np.array(
                values_of(rows, "uclass", method=method, data=source, n_train=largest)
            )
            if len(values) < 2 or len(base) != len(values):
                continue
            away = values - base
            error = float(np.std(away, ddof=1) / np.sqrt(len(away)))
            shown.append(f"`{method}` {away.mean():+.4f} ± {error:.4f}")
        if shown:
            sentences.append(f"*{source}*: {', '.join(shown)}")
    if not sentences:
        return "One draw says nothing about differences."
    return f"Errors less those of `cl`, {largest} sequences: {'; '.join(sentences)}."
