"""Rounds of CCCP that are scored one by one, so that their number can be chosen.

The weights at the end of every round are kept; one training thus shows what fewer rounds would have
given.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.ganapathi2008.methods import CAMEL_TOL, Training, prediction_objective, train
from fieldfit import LBFGS, Camel, ConvergenceWarning
from fieldfit.learners import CamelRounds, Fit, Learner, Penalty, Problem, TemplateProblem
from fieldfit.learners import Validation as Score
from fieldfit.objectives import Objective

FloatArray = NDArray[np.float64]
#: Builds an estimator of an objective and a learner (``None``: that of the objective).
Maker = Callable[[Objective, Learner | None], Any]

#: Methods with rounds.
ROUNDS = ("cccp", "cccp-empirical")
#: Beliefs that move by less in a round have come to rest.
REST = 1e-4
#: Iterations without a better score after which a followed run would end: never.
ENDLESS = 10**9


@dataclass(frozen=True)
class FollowedRounds(Learner):
    """CAMEL's rounds for an estimator that predicts with another objective.

    ``ends`` gets for each round the number of iterations so far (without those of the piecewise
    start), the seconds so far, and the weights.
    """

    camel: Camel
    inner: LBFGS
    ends: list[tuple[int, float, FloatArray]] = field(default_factory=list)

    def minimize(
        self,
        problem: Problem,
        start: FloatArray,
        *,
        penalty: Penalty = Penalty(),  # noqa: B008  (frozen)
        checkpoint: str | PathLike[str] | None = None,
        validation: Score | None = None,
        verbose: int = 0,
    ) -> Fit:
        """See `Learner.minimize`."""
        assert isinstance(problem, TemplateProblem)
        rounds = TemplateProblem(self.camel, problem.parts, problem.n_jobs)
        passed: list[FloatArray] = []

        def note(weights: FloatArray) -> float:
            passed.append(weights.copy())
            return float(len(passed))  # the last weights are the best

        learner = CamelRounds(self.camel, inner=self.inner)
        fit = learner.minimize(rounds, start, penalty=penalty, validation=note, verbose=verbose)
        n_steps = 0
        for row, following, weights in zip(fit.trace, [*fit.trace[1:], {}], passed, strict=True):
            if row["stage"] == "piecewise":
                continue
            n_steps += 1
            if following.get("stage") != row["stage"]:
                self.ends.append((n_steps, float(row["seconds"]), weights))
        return fit


@dataclass(frozen=True)
class Candidate:
    """A training, or its first rounds: what to predict with, and what it has cost."""

    rounds: int
    training: Training
    weights: FloatArray

    def estimator(self) -> Any:
        """Ready to predict with the weights of these rounds."""
        self.training.estimator.weights_ = self.weights
        return self.training.estimator


def candidates(
    make: Maker,
    method: str,
    examples: Sequence[Any],
    labels: Sequence[Any],
    max_rounds: int,
    inner: LBFGS,
) -> list[Candidate]:
    """Train one method; one candidate for each round, or a single one."""
    if method not in ROUNDS:
        training = train(lambda objective: make(objective, None), method, examples, labels)
        return [Candidate(1, training, training.estimator.weights_)]
    camel = Camel(method, tol=CAMEL_TOL, round_tol=REST, max_rounds=max_rounds)  # type: ignore[arg-type]
    learner = FollowedRounds(camel, inner)
    estimator = make(prediction_objective(), learner)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # part of the findings
        estimator.fit(examples, labels)
    encoding = time.perf_counter() - begin - float(estimator.trace_[-1]["seconds"])
    found: list[Candidate] = []
    before = 0
    iterations: tuple[int, ...] = ()
    for number, (n_steps, seconds, weights) in enumerate(learner.ends, start=1):
        iterations += (n_steps - before,)
        before = n_steps
        training = Training(
            estimator, encoding + seconds, bool(estimator.converged_), iterations,
            str(estimator.status_),
        )  # fmt: skip
        found.append(Candidate(number, training, weights))
    return found
