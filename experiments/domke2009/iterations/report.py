"""The report of ``domke-iterations``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.base import Figure, Row
from experiments.tables import distinct, markdown_table, mean_of, text_table

if TYPE_CHECKING:
    from experiments.domke2009.iterations.run import Design


WHAT_WAS_DONE = """
## What was done

Digits as in `domke-digits` ({n_each} pictures of each digit to learn from and as many to test,
{n_repeats} choices of pictures, noise {noises}). `ucl-k` is fitted for the beliefs after `k`
iterations of propagation, from the weights of `convex`, and tested with 1 to {most} iterations.

The thesis shows this as figure 6.11, without numbers. What it concludes: models that were fitted
with more than one iteration stand some more of them, the one fitted with a single iteration gives
poor results with many.
"""


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    return "\n\n".join(text_table(*_cells(rows, noise)) for noise in distinct(rows, "noise"))


def report(rows: Sequence[Row], design: Design) -> str:
    """Markdown of the whole."""
    noises = ", ".join(f"{100 * noise:.0f} %" for noise in design.noises)
    text = WHAT_WAS_DONE.format(
        n_each=design.n_each, n_repeats=design.n_repeats, noises=noises, most=max(design.tested)
    )
    parts = [text, "## What was found"]
    for noise in distinct(rows, "noise"):
        parts.append(f"Share of wrong test pixels, {100 * noise:.0f} % noise, mean over choices:")
        parts.append(markdown_table(*_cells(rows, noise)))
    parts.append("![Errors against iterations of the test](iterations.png)")
    return "\n\n".join(part.strip() for part in parts)


def headline(rows: Sequence[Row]) -> dict[str, Any]:
    """Errors with as many iterations as in training, and with the most."""
    most = max(row["n_iterations"] for row in rows)
    return {
        f"{method} at {noise:g}": {
            "as trained": _error(rows, method, noise, int(method.split("-")[1])),
            "most": _error(rows, method, noise, most),
        }
        for noise in distinct(rows, "noise")
        for method in distinct(rows, "method")
    }


def curves(rows: Sequence[Row]) -> Figure:
    """Test error against the iterations of the test, a panel for each level of noise."""

    def draw(figure: Any) -> None:
        noises = distinct(rows, "noise")
        figure.set_size_inches(5.0 * len(noises), 3.8)
        for axes, noise in zip(
            figure.subplots(1, len(noises), squeeze=False)[0], noises, strict=True
        ):
            tested = _tested(rows)
            for method in distinct(rows, "method"):
                values = [_error(rows, method, noise, count) for count in tested]
                axes.plot(tested, values, marker="o", label=method)
            axes.set_title(f"{100 * noise:.0f} % noise", fontsize=10)
            axes.set_xlabel("iterations in the test")
            axes.set_ylabel("share of wrong test pixels")
            axes.grid(color="#dddddd")
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False)
        figure.tight_layout()

    return draw


def _tested(rows: Sequence[Row]) -> list[int]:
    return sorted({row["n_iterations"] for row in rows})


def _error(rows: Sequence[Row], method: str, noise: float, n_iterations: int) -> float:
    """Mean over choices of pictures; NaN if this was not tested."""
    return mean_of(rows, "uclass", method=method, noise=noise, n_iterations=n_iterations)


def _cells(rows: Sequence[Row], noise: float) -> tuple[list[str], list[list[str]]]:
    tested = _tested(rows)
    lines = [
        [method, *(f"{_error(rows, method, noise, count):.4f}" for count in tested)]
        for method in distinct(rows, "method")
    ]
    return ["fitted \\ tested with", *(str(count) for count in tested)], lines
