"""Figure 1 of Tang et al. (2016): likelihood of estimators of random matchings, and its brackets.

Matchings of ``n`` with ``n`` are drawn from a known distribution; one weight for each edge is
learned from them by the exact likelihood, with Bethe's entropy (``rho = 1``) and with the
reweighted one (``rho = 1/2``).  The three are compared by the true likelihood of what they found,
and by the largest values of their own objectives, which bracket it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.tang2016.synthetic.methods import (
    ESTIMATORS,
    estimate,
    sample_matchings,
    signal_weights,
)
from experiments.tang2016.synthetic.report import (
    bracket_curves,
    headline,
    likelihood_curves,
    report,
    table,
)

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``low`` and ``high`` are weights of the diagonal (zero elsewhere), to which ``noise`` times a
    normal number is added for every edge and repeat.
    """

    sizes: tuple[int, ...] = (5, 8, 10, 12)
    n_samples: tuple[int, ...] = (10, 30, 100, 300, 1000)
    n_repeats: int = 10
    low: float = 0.5
    high: float = 3.0
    noise: float = 0.1
    l2: float = 1.0
    tol: float = 1e-7


FULL = Design()
QUICK = Design(sizes=(5, 8), n_samples=(10, 100, 1000), n_repeats=3)


class RandomMatchings(Plan[Design]):
    """A task is one number of samples of one distribution, with all estimators."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """Signals, sizes, repeats and numbers of samples."""
        design = self.design
        return [
            (signal, n, repeat, count)
            for signal in ("low", "high")
            for n in design.sizes
            for repeat in range(design.n_repeats)
            for count in design.n_samples
        ]

    def run_task(self, task: Task, results: Results) -> Result:
        """All estimators, on the first samples of a repeat."""
        signal, n, repeat, count = str(task[0]), int(task[1]), int(task[2]), int(task[3])
        partners = self.kept("partners", task[:3], lambda: self._draw(signal, n, repeat))
        return Result(_rows(self.design, signal, repeat, partners[:count]))

    def outcome(self, results: Results) -> Outcome:
        rows = results.rows()
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, self.design),
            figures={"likelihood": likelihood_curves(rows), "brackets": bracket_curves(rows)},
            headline=headline(rows),
        )

    def warm_up(self) -> None:
        """All estimators once."""
        partners = self._draw("low", 3, 0)[:10]
        _rows(self.design, "low", 0, partners)

    def _draw(self, signal: str, n: int, repeat: int) -> IntArray:
        design = self.design
        strength = design.low if signal == "low" else design.high
        rng = np.random.default_rng([self.settings.seed, n, repeat, int(1000 * strength)])
        weights = signal_weights(n, strength, design.noise, rng)
        return sample_matchings(weights, max(design.n_samples), rng)


def _rows(design: Design, signal: str, repeat: int, partners: IntArray) -> list[dict[str, Any]]:
    found = []
    for method in ESTIMATORS:
        learned = estimate(method, partners, design.l2, design.tol)
        found.append(
            {
                "method": method,
                "signal": signal,
                "n": partners.shape[1],
                "n_samples": len(partners),
                "repeat": repeat,
                "log_likelihood": learned.log_likelihood,
                "surrogate": learned.surrogate,
                "seconds": learned.seconds,
                "converged": bool(learned.converged),
                "n_iter": learned.n_iter,
            }
        )
    return found
