"""Figure 1 of Tang et al. (2016): likelihood of estimators of random matchings, and its brackets.

Matchings of ``n`` with ``n`` are drawn from a known distribution; one weight for each edge is
learned from them by the exact likelihood, with Bethe's entropy (``rho = 1``) and with the
reweighted one (``rho = 1/2``).  The three are compared by the true likelihood of what they found,
and by the largest values of their own objectives, which bracket it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.base import Outcome, Settings
from experiments.tang2016.synthetic.report import (
    bracket_curves,
    headline,
    likelihood_curves,
    report,
    table,
)
from experiments.tang2016.synthetic.methods import (
    ESTIMATORS,
    estimate,
    sample_matchings,
    signal_weights,
)

__all__ = ["FULL", "QUICK", "Design", "run", "run_design"]


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


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce mle-struct-synthetic``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """All estimators on the same samples."""
    rows: list[dict[str, Any]] = []
    total = 2 * len(design.sizes) * design.n_repeats
    done = 0
    for name, signal in (("low", design.low), ("high", design.high)):
        for n in design.sizes:
            for repeat in range(design.n_repeats):
                settings.progress(done, total, f"{name} signal, n = {n}")
                rng = np.random.default_rng([settings.seed, n, repeat, int(1000 * signal)])
                weights = signal_weights(n, signal, design.noise, rng)
                partners = sample_matchings(weights, max(design.n_samples), rng)
                for count in design.n_samples:
                    rows += _rows(design, name, repeat, partners[:count])
                done += 1
    settings.progress(total, total, "done")
    return Outcome(
        rows=rows,
        table=table(rows),
        report=report(rows, design),
        figures={"likelihood": likelihood_curves(rows), "brackets": bracket_curves(rows)},
        headline=headline(rows),
    )


def _rows(
    design: Design, signal: str, repeat: int, partners: np.ndarray[Any, np.dtype[np.int64]]
) -> list[dict[str, Any]]:
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
