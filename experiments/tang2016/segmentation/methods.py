"""The methods of ``mle-struct-segmentation``, and the clock and the objective they share.

All learn the same `GridCRF` with the same penalty.  `Recorded` notes the weights after every
iteration with the processor time so far; `Surrogate` computes the objective there afterwards, so
that this is not timed.
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

from experiments.tang2016.segmentation.data import COLOURS
from fieldfit import (
    LBFGS,
    Adam,
    ConvergenceWarning,
    GridCRF,
    InferenceResult,
    Likelihood,
    MaxMargin,
    MLEStruct,
    Potentials,
    PseudoLikelihood,
    RoofDuality,
    SumProduct,
    TreeReweighted,
)
from fieldfit.graph import Batch
from fieldfit.learners import DualFrankWolfe, Fit, Learner, Penalty, Problem, Validation
from fieldfit.objectives import Objective

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]

#: Iterations without a better "score" after which a recorded run would end: never.
ENDLESS = 10**9
#: Tolerance of messages: that of the library in learning, and one that saves most sweeps.
MESSAGE_TOL, LOOSE_TOL = 1e-6, 1e-3
#: Certified gap, as a share of the objective, at which MLE-Struct stops.
GAP = 1e-4

#: Sweeps of a double loop by the book, from uniform messages every time.
BOOK_SWEEPS = 40

#: Test errors are computed whenever processor time has grown by this factor, and in the end.
LATER = 1.5

SINGLE_LOOP = "mle-struct"
#: Frank-Wolfe steps of blocks towards marginals.
BLOCKS = "mle-struct-blocks"
#: The same with averaged weights.
AVERAGED = "mle-struct-averaged"
#: As in the paper.
SEARCHES = "mle-struct-map"
#: Double loops for the same objective as MLE-Struct's.
DOUBLE_LOOPS = ("trw", "trw-loose", "trw-afresh")
METHODS = (
    SINGLE_LOOP, BLOCKS, AVERAGED, SEARCHES, *DOUBLE_LOOPS, "pseudo-likelihood", "max-margin",
)  # fmt: skip

#: What was tried for MLE-Struct.
VARIANTS: dict[str, MLEStruct] = {
    "marginals, quasi-Newton": MLEStruct(points="marginals", step="quasi-newton", tol=GAP),
    "marginals, line search, block, from the labels": MLEStruct(
        points="marginals", directions="frank-wolfe", start="labels", tol=GAP
    ),
    "marginals, line search, block": MLEStruct(
        points="marginals", directions="frank-wolfe", tol=GAP
    ),
    "vertices, fixed steps, block": MLEStruct(step="fixed", directions="frank-wolfe", tol=GAP),
    "vertices, line search, batch": MLEStruct(mode="batch", directions="frank-wolfe", tol=GAP),
    "vertices, line search, block": MLEStruct(directions="frank-wolfe", tol=GAP),
    "vertices, stored and pairwise, block": MLEStruct(tol=GAP),
    "vertices, line search, block, from the labels": MLEStruct(
        directions="frank-wolfe", start="labels", tol=GAP
    ),
    "marginals, line search, batch, from the labels": MLEStruct(
        points="marginals", mode="batch", directions="frank-wolfe", start="labels", tol=GAP
    ),
    "marginals, stored and pairwise, block, from the labels": MLEStruct(
        points="marginals", start="labels", tol=GAP
    ),
}
#: Which of them the table of methods has.
CHOSEN = {
    SINGLE_LOOP: "marginals, quasi-Newton",
    BLOCKS: "marginals, line search, block, from the labels",
    AVERAGED: "marginals, line search, block, from the labels",
    SEARCHES: "vertices, line search, block",
}


@dataclass(frozen=True)
class Limits:
    """``max_iter`` of L-BFGS, steps and passes of MLE-Struct, epochs of subgradients.

    A descent ends when the objective falls by less than ``value_tol`` of itself in five iterations.
    """

    max_iter: int = 100
    value_tol: float = 1e-5
    n_steps: int = 100
    n_passes: int = 25
    n_map_passes: int = 40
    n_epochs: int = 30


@dataclass(frozen=True)
class Afresh:
    """Inference that starts from uniform messages every time, as in a plain double loop."""

    inference: SumProduct

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Any = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """What the inference finds, whatever it could start from."""
        return self.inference.run_batch(batch, potentials, observed)


def objective_of(method: str) -> Objective:
    """The objective of a method's name."""
    if method in CHOSEN:
        objective: Objective = VARIANTS[CHOSEN[method]]
        return objective
    tree = TreeReweighted()
    table: dict[str, Callable[[], Objective]] = {
        "trw": lambda: Likelihood(SumProduct(entropy=tree, tol=MESSAGE_TOL)),
        "trw-loose": lambda: Likelihood(SumProduct(entropy=tree, tol=LOOSE_TOL)),
        "trw-afresh": lambda: Likelihood(
            Afresh(SumProduct(entropy=tree, tol=1e-12, max_iter=BOOK_SWEEPS, accelerate=False))
        ),
        "pseudo-likelihood": PseudoLikelihood,
        "max-margin": lambda: MaxMargin(RoofDuality()),
    }
    return table[method]()


def learner_of(
    objective: Objective, limits: Limits, seed: int, *, average: bool = False
) -> Learner:
    """The learner that goes with an objective."""
    if isinstance(objective, MLEStruct):
        max_iter = limits.n_passes if objective.points == "marginals" else limits.n_map_passes
        if objective.step == "quasi-newton":
            max_iter = limits.n_steps
        return DualFrankWolfe(
            objective, max_iter=max_iter, random_state=seed, patience=ENDLESS, averaging=average
        )
    if not objective.is_smooth:
        return Adam(max_iter=limits.n_epochs, random_state=seed, patience=ENDLESS)
    return LBFGS(max_iter=limits.max_iter, tol=1e-9, value_tol=limits.value_tol, patience=ENDLESS)


@dataclass(frozen=True)
class Recorded(Learner):
    """A learner that notes processor time and weights after every iteration."""

    learner: Learner
    seconds: list[float] = field(default_factory=list)
    weights: list[FloatArray] = field(default_factory=list)

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
        begin = time.process_time()

        def note(weights: FloatArray) -> float:
            self.seconds.append(time.process_time() - begin)
            self.weights.append(weights.copy())
            return float(len(self.seconds))  # the last weights are the best

        return self.learner.minimize(
            problem, start, penalty=penalty, checkpoint=checkpoint, validation=note, verbose=verbose
        )


@dataclass(frozen=True)
class Trained:
    """A fitted field, and its weights after every iteration."""

    crf: GridCRF
    seconds: list[float]
    weights: list[FloatArray]

    @property
    def gaps(self) -> list[float | None]:
        """Certified gap after every iteration, where there is one."""
        return [row.get("gap") for row in self.crf.trace_]

    def errors(
        self, pictures: Sequence[FloatArray], labels: Sequence[LabelArray]
    ) -> list[float | None]:
        """Share of wrong pixels at the weights of some iterations, ``None`` at the others."""
        found: list[float | None] = [None] * len(self.weights)
        last, due = self.crf.weights_, 0.0
        for number, (seconds, weights) in enumerate(zip(self.seconds, self.weights, strict=True)):
            if seconds < due and number + 1 < len(self.weights):
                continue
            due = LATER * seconds
            self.crf.weights_ = weights
            given = zip(labels, self.predict(pictures), strict=True)
            found[number] = float(np.mean([np.mean(y != z) for y, z in given]))
        self.crf.weights_ = last
        return found

    def predict(self, pictures: Sequence[FloatArray]) -> list[LabelArray]:
        """Labels of pictures; beliefs that have not converged are the last ones reached."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self.crf.predict(pictures)


def new_field(objective: Objective, l2: float, learner: Learner | None = None) -> GridCRF:
    """The model of all methods: weights of features, and Potts tables that depend on colours."""
    # one thread: processor time is then what a method costs
    return GridCRF(
        objective,
        l2=l2,
        learner=learner,
        pairwise="potts",
        directions="shared",
        edge_features=COLOURS,
        n_labels=2,
    )


def train(
    objective: Objective,
    pictures: Sequence[FloatArray],
    labels: Sequence[LabelArray],
    l2: float,
    limits: Limits,
    seed: int,
    *,
    average: bool = False,
) -> Trained:
    """Fit; that a method has not converged is part of what is found."""
    learner = Recorded(learner_of(objective, limits, seed, average=average))
    # parts of a stochastic learner are its mini-batches, which the field makes unless it is wrapped
    given = learner if objective.is_smooth else learner.learner
    crf = new_field(objective, l2, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        begin = time.process_time()
        crf.fit(pictures, labels)
        whole = time.process_time() - begin
    if not learner.seconds:
        return Trained(crf, [whole], [crf.weights_])
    return Trained(crf, learner.seconds, learner.weights)


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
        return LBFGS(max_iter=1).minimize(problem, start, penalty=penalty)


class Surrogate:
    """``P(w)``: the penalised tree-reweighted likelihood of some pictures."""

    def __init__(self, pictures: Sequence[FloatArray], labels: Sequence[LabelArray]) -> None:
        observed = Observed()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one iteration is not enough
            new_field(objective_of("trw"), 1.0, observed).fit(pictures, labels)
        (self._problem,) = observed.problems
        self._problem.reset_warm_start()

    def value(self, weights: FloatArray, l2: float) -> float:
        """With messages to `MESSAGE_TOL`; the value is stationary in them."""
        found = self._problem.evaluate(weights).value
        assert found is not None
        return found + 0.5 * l2 * float(weights @ weights)
