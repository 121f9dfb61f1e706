"""Report and figures of ``mle-struct-synthetic``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from experiments.base import Figure, Row
from experiments.tables import deviation, distinct, markdown_table, text_table, tidy

#: Rounding that is no violation of a bracket, nats per sample.
ROUNDING = 1e-9

COLOURS = {"exact": "#222222", "bethe": "#1f6fb4", "rw": "#d1651a"}
LABELS = {"exact": "exact", "bethe": "Bethe, rho = 1", "rw": "reweighted, rho = 1/2"}

WHAT_WAS_DONE = """
## What was done

Perfect matchings of n rows with n columns are drawn, exactly, from `p(Y) ~ exp(sum W_ij Y_ij)`.
The text that we have of the paper has lost the entries of `W`; here they are {low:g} (*low*
signal) or {high:g} (*high*) on the diagonal and 0 elsewhere, plus {noise:g} times a normal number
on every edge, drawn anew in each of {n_repeats} repeats. One weight for each edge is learned,
with `l2 = {l2:g}`, from the first M samples of a repeat by

- *exact*: the true likelihood (sums over all matchings) by L-BFGS,
- *bethe*: MLE-Struct with `rho = 1`, whose surrogate likelihood is an upper bound of the true
  one,
- *rw*: MLE-Struct with `rho = 1/2`, whose surrogate is a lower bound,

the latter two to a certified gap of {tol:g} of the objective. Figures are nats per sample, means
over repeats, standard deviations in brackets; the penalty is included.
"""

READING = """
`l` is the true regularised likelihood, `l_bethe` and `l_rw` are the surrogates. The left columns
say how good the estimates are; `l(w_exact)` is the largest possible. The right ones bracket it:
the largest value of the reweighted surrogate is below it, that of Bethe's above.
"""


class _Design(Protocol):
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def noise(self) -> float: ...
    @property
    def l2(self) -> float: ...
    @property
    def tol(self) -> float: ...
    @property
    def n_repeats(self) -> int: ...


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    return text_table(*_cells(rows))


def report(rows: Sequence[Row], design: _Design) -> str:
    """Markdown of the whole."""
    done = WHAT_WAS_DONE.format(
        low=design.low, high=design.high, noise=design.noise, l2=design.l2, tol=design.tol,
        n_repeats=design.n_repeats,
    )  # fmt: skip
    n_runs = len(rows) // len(LABELS)
    open_runs = sum(not row["converged"] for row in rows)
    brackets = (
        f"Brackets were violated in {n_violations(rows)} of {n_runs} runs; {open_runs} of "
        f"{len(rows)} estimates did not converge."
    )
    return "\n\n".join(
        part.strip()
        for part in (
            done,
            "## What was found",
            READING,
            markdown_table(*_cells(rows)),
            brackets,
            _comparison(rows),
            "![True likelihood of the estimates](likelihood.png)",
            "![Brackets of the largest likelihood](brackets.png)",
        )
    )


def headline(rows: Sequence[Row]) -> dict[str, Any]:
    """Violations, and how much likelihood the surrogates lose."""
    found: dict[str, Any] = {
        "violated brackets": n_violations(rows),
        "runs": len(rows) // len(LABELS),
        "unconverged": sum(not row["converged"] for row in rows),
    }
    for signal in distinct(rows, "signal"):
        for method in ("bethe", "rw"):
            found[f"{signal} {method} mean loss"] = float(np.mean(_losses(rows, signal, method)))
    return found


def n_violations(rows: Sequence[Row]) -> int:
    """Runs in which ``l_rw <= l <= l_bethe`` does not hold at the optima."""
    count = 0
    for run in _runs(rows).values():
        low, middle, high = (run[name]["surrogate"] for name in ("rw", "exact", "bethe"))
        slack = ROUNDING * max(1.0, abs(middle))
        count += not (low <= middle + slack and middle <= high + slack)
    return count


def likelihood_curves(rows: Sequence[Row]) -> Figure:
    """True likelihood of the estimates against the number of samples, for the largest graphs."""
    return _curves(rows, "log_likelihood", "true log-likelihood per sample, regularised")


def bracket_curves(rows: Sequence[Row]) -> Figure:
    """The largest values of the three objectives, likewise."""
    return _curves(rows, "surrogate", "largest value of the objective, per sample")


def _curves(rows: Sequence[Row], key: str, label: str) -> Figure:
    n = max(row["n"] for row in rows)

    def draw(figure: Any) -> None:
        figure.set_size_inches(9.0, 3.6)
        signals = distinct(rows, "signal")
        panels = figure.subplots(1, len(signals), squeeze=False)[0]
        for axes, signal in zip(panels, signals, strict=True):
            for method, colour in COLOURS.items():
                values: dict[int, list[float]] = {}
                for row in rows:
                    if (row["signal"], row["method"], row["n"]) == (signal, method, n):
                        values.setdefault(row["n_samples"], []).append(row[key])
                axes.errorbar(
                    list(values), [np.mean(v) for v in values.values()],
                    yerr=[deviation(v) for v in values.values()],
                    marker="o", markersize=4, capsize=3, color=colour, label=LABELS[method],
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set_xlabel("number of samples")
            axes.set_title(f"{signal} signal, n = {n}", fontsize=10)
            tidy(axes)
        panels[0].set_ylabel(label)
        panels[-1].legend(frameon=False, fontsize=8)
        figure.tight_layout()

    return draw


def _comparison(rows: Sequence[Row]) -> str:
    """Who is better, counted, and what the paper says."""
    lines = []
    for signal in distinct(rows, "signal"):
        bethe, rw = _losses(rows, signal, "bethe"), _losses(rows, signal, "rw")
        lines.append(
            [
                signal,
                f"{bethe.mean():.4f}",
                f"{rw.mean():.4f}",
                f"{int((bethe <= rw).sum())} of {len(bethe)}",
            ]
        )
    header = ("signal", "loss of bethe", "loss of rw", "bethe no worse than rw")
    return (
        "Loss of true likelihood against the exact estimate, mean over all sizes and numbers of "
        "samples (the paper: Bethe's is better in both regimes, and at low signal all are about "
        f"alike):\n\n{markdown_table(header, lines)}"
    )


def _losses(rows: Sequence[Row], signal: str, method: str) -> np.ndarray[Any, Any]:
    return np.array(
        [
            run["exact"]["log_likelihood"] - run[method]["log_likelihood"]
            for key, run in _runs(rows).items()
            if key[0] == signal
        ]
    )


def _runs(rows: Sequence[Row]) -> dict[tuple[Any, ...], dict[str, Row]]:
    found: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        key = (row["signal"], row["n"], row["n_samples"], row["repeat"])
        found.setdefault(key, {})[row["method"]] = row
    return found


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    header = [
        "signal", "n", "M", "l(w_exact)", "l(w_bethe)", "l(w_rw)", "l_rw(w_rw)",
        "l_bethe(w_bethe)",
    ]  # fmt: skip
    groups: dict[tuple[Any, ...], list[dict[str, Row]]] = {}
    for key, run in _runs(rows).items():
        groups.setdefault(key[:3], []).append(run)
    lines = []
    for key, runs in groups.items():
        columns = [("exact", "log_likelihood"), ("bethe", "log_likelihood")]
        columns += [("rw", "log_likelihood"), ("rw", "surrogate"), ("bethe", "surrogate")]
        cells = []
        for method, name in columns:
            values = [run[method][name] for run in runs]
            cells.append(f"{np.mean(values):.3f} ({deviation(values):.3f})")
        lines.append([*map(str, key), *cells])
    return header, lines
