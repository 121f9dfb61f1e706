"""The five methods of Ganapathi et al. (2008), alike for all three of their experiments.

Every method learns the same model.  As in the paper, all of them predict with residual belief
propagation, whatever they were trained with, so that the figures compare training alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fieldfit import Bethe, Camel, ConvergenceWarning, Likelihood, Piecewise, SumProduct
from fieldfit.objectives import Objective

#: Names of the methods in ``results.csv``, in the order of the paper's tables.
METHODS = ("piecewise", "camel0", "lbp", "cccp", "cccp-empirical")
#: Of messages in learning: the library's default.
LEARNING_TOL = 1e-6
#: Tolerance of message passing inside a round; the value is right to about its square.
CAMEL_TOL = 1e-5
#: Rounds end when beliefs move by a hundredth in one of them.  On text, further rounds change next
#: to nothing; where variables have many neighbours, rounds are slow and their limit is far away.
ROUND_TOL = 1e-2
#: What the paper calls them.
TITLES: Mapping[str, str] = {
    "piecewise": "piecewise",
    "camel0": "CAMEL(0)",
    "lbp": "LBP",
    "cccp": "CCCP CAMEL",
    "cccp-empirical": "CCCP CAMEL (empirical)",
}


def camel_objective(method: str) -> Objective:
    """The objective of one of `METHODS`."""
    if method == "piecewise":
        # factors see the evidence of their variables, as in the problem that CAMEL constrains
        return Piecewise(unary="shared")
    if method == "lbp":
        return Likelihood(SumProduct(entropy=Bethe(), schedule="residual", tol=LEARNING_TOL))
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    return Camel(variant=method, tol=CAMEL_TOL, round_tol=ROUND_TOL)  # type: ignore[arg-type]


def prediction_objective() -> Objective:
    """What makes an estimator predict by residual belief propagation."""
    return Likelihood(SumProduct(entropy=Bethe(), schedule="residual", tol=1e-4))


@dataclass(frozen=True)
class Training:
    """A fitted estimator, ready to predict, and how its training went."""

    estimator: Any
    seconds: float
    converged: bool
    #: Iterations of the learner in each round (one round for methods that do not relinearise).
    iterations: tuple[int, ...]
    status: str

    def columns(self) -> dict[str, Any]:
        """The columns of ``results.csv`` that say how a training went."""
        return {
            "seconds": self.seconds,
            "converged": self.converged,
            "outer_loops": len(self.iterations),
            "inner_iterations": sum(self.iterations),
            "inner_by_loop": " ".join(map(str, self.iterations)),
        }


def train(
    make: Callable[[Objective], Any], method: str, examples: Sequence[Any], labels: Sequence[Any]
) -> Training:
    """Fit one method; ``make`` builds the estimator for an objective.

    Non-convergence is part of the findings: it is kept in the result instead of a warning.
    """
    estimator = make(camel_objective(method))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(examples, labels)
    seconds = time.perf_counter() - begin
    counts: dict[str, int] = {}
    for row in estimator.trace_:
        # learning with LBP starts afresh where propagation has changed to another fixed point
        stage = row.get("stage", f"start {row.get('restarts', 0)}")
        counts[stage] = counts.get(stage, 0) + 1
    counts.pop("piecewise", None)  # the warm start of the rounds; the method itself has no stages
    iterations = tuple(counts.values())
    converged, status = bool(estimator.converged_), str(estimator.status_)
    estimator.set_params(objective=prediction_objective())
    return Training(estimator, seconds, converged, iterations, status)
