"""Trainings that are followed: F1 of held-out and of test mails after every iteration.

What is compared are contrastive free energies of few steps, and likelihoods by belief propagation
with the schedule and the starts of the paper (spanning trees, messages of 1 at every evaluation),
or with those of fieldfit (sequential, messages of the last evaluation), or with one of each.  All
predict by the same propagation.  The clock counts processor time of the learner alone: features
are encoded before it starts, and it stands still while mails are scored.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.welling_sutton2005.seminars.methods import (
    LEARNING_TOL,
    Meter,
    MeteredContrast,
    MeteredInference,
    predict_speakers,
    token_scores,
)
from fieldfit import ConvergenceWarning, Likelihood, SumProduct
from fieldfit.learners import LBFGS, Fit, Learner, Penalty, Problem, Validation
from fieldfit.objectives import Objective

FloatArray = NDArray[np.float64]
#: Builds an estimator of an objective and a learner.
Maker = Callable[[Objective, Learner], Any]

#: Steps of contrastive free energies (Bethe's).
CONTRASTIVE: Mapping[str, int] = {"CF1": 1, "CF2": 2, "CF5": 5, "CF10": 10}
#: Schedule of propagation, and whether it begins where it ended at the last evaluation.
PROPAGATION: Mapping[str, tuple[str, bool]] = {
    "ML-bp, trees, cold": ("tree", False),
    "ML-bp, trees, warm": ("tree", True),
    "ML-bp, sequential, cold": ("sequential", False),
    "ML-bp, sequential, warm": ("sequential", True),
}
METHODS = (*CONTRASTIVE, *PROPAGATION)
#: The paper's: what the others are compared with.
REFERENCE = "ML-bp, trees, cold"
#: The fastest propagation.
FASTEST = "ML-bp, sequential, warm"
#: What all methods predict with.
PREDICTION = SumProduct(tol=1e-4)

#: Iterations without a better score after which a followed run would end: never.
ENDLESS = 10**9
#: Every iteration up to this one is scored, later ones if their number is a multiple of `LATER`.
EARLY, LATER = 30, 5


def objective_of(method: str, meter: Meter, tol: float = LEARNING_TOL) -> Objective:
    """The objective of one of `METHODS`; what it costs goes to the meter."""
    if method in CONTRASTIVE:
        return MeteredContrast("bethe", n_steps=CONTRASTIVE[method], meter=meter)
    schedule, is_warm = PROPAGATION[method]
    inference = SumProduct(schedule=schedule, tol=tol)
    return Likelihood(MeteredInference(inference, meter, is_warm))


# -- problems and scores ------------------------------------------------------------------


@dataclass(frozen=True)
class Observed(Learner):
    """One iteration of L-BFGS, which notes the problem that it is given."""

    problems: list[Problem] = field(default_factory=list)

    def minimize(
        self,
        problem: Problem,
        start: FloatArray,
        *,
        penalty: Penalty = Penalty(),  # noqa: B008  (frozen)
        checkpoint: str | PathLike[str] | None = None,
        validation: Validation | None = None,
        verbose: int = 0,
    ) -> Fit:
        """See `Learner.minimize`."""
        self.problems.append(problem)
        return LBFGS(1).minimize(problem, start, penalty=penalty)


class Judge:
    """A fitted estimator that takes any weights: labels and token F1 of some mails.

    It is fitted in one iteration on the training mails, so that it has the same weights.
    """

    def __init__(self, make: Maker, examples: Sequence[Any], labels: Sequence[Any]) -> None:
        observed = Observed()
        self._estimator = make(Likelihood(PREDICTION), observed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one iteration is not enough
            self._estimator.fit(examples, labels)
        #: What the estimator makes of the training mails.
        self.problem = observed.problems[0]

    def f1(self, weights: FloatArray, examples: Sequence[Any], labels: Sequence[Any]) -> float:
        """Token F1 of some mails."""
        self._estimator.weights_ = weights
        true = np.concatenate(labels).astype(bool)
        return token_scores(true, predict_speakers(self._estimator, examples))["f1"]


# -- trainings ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A training after some iterations: what it has cost, and how well it does.

    ``evaluations`` are of value and gradient on all mails; ``messages`` those of all evaluations.
    """

    iteration: int
    seconds: float
    evaluations: int
    messages: int
    held_out_f1: float
    test_f1: float


@dataclass(frozen=True)
class Followed(Learner):
    """A learner that is scored after its iterations; the clock stands still meanwhile."""

    learner: Learner
    meter: Meter
    score: Callable[[FloatArray], tuple[float, float]]
    n_examples: int
    points: list[Point] = field(default_factory=list)

    def minimize(
        self,
        problem: Problem,
        start: FloatArray,
        *,
        penalty: Penalty = Penalty(),  # noqa: B008  (frozen)
        checkpoint: str | PathLike[str] | None = None,
        validation: Validation | None = None,
        verbose: int = 0,
    ) -> Fit:
        """See `Learner.minimize`."""
        count, paused, begin = 0, 0.0, time.process_time()

        def follow(weights: FloatArray) -> float:
            nonlocal count, paused
            count += 1
            if count <= EARLY or count % LATER == 0:
                now = time.process_time()
                self.points.append(self._point(count, now - begin - paused, weights))
                paused += time.process_time() - now
            return float(count)  # the last weights are the best

        fit = self.learner.minimize(
            problem, start, penalty=penalty, checkpoint=checkpoint, validation=follow,
            verbose=verbose,
        )  # fmt: skip
        if not self.points or self.points[-1].iteration < count:
            seconds = time.process_time() - begin - paused
            self.points.append(self._point(count, seconds, fit.weights))
        return fit

    def _point(self, iteration: int, seconds: float, weights: FloatArray) -> Point:
        return Point(
            iteration,
            seconds,
            round(self.meter.n_examples / self.n_examples),
            self.meter.n_messages,
            *self.score(weights),
        )


@dataclass(frozen=True)
class Course:
    """A training that was followed, and how it ended."""

    points: list[Point]
    weights: FloatArray
    converged: bool
    status: str


def follow(
    make: Maker,
    method: str,
    examples: Sequence[Any],
    labels: Sequence[Any],
    score: Callable[[FloatArray], tuple[float, float]],
    max_iter: int,
    tol: float,
) -> Course:
    """Train one method; ``score`` gives the F1 of held-out and of test mails."""
    meter = Meter()
    descent = LBFGS(max_iter, tol=tol, patience=ENDLESS)
    learner = Followed(descent, meter, score, n_examples=len(examples))
    estimator = make(objective_of(method, meter), learner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # part of what is found
        estimator.fit(examples, labels)
    return Course(
        learner.points, estimator.weights_, bool(estimator.converged_), str(estimator.status_)
    )
