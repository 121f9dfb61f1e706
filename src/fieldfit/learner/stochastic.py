"""Adam and stochastic gradient descent over mini-batches, with averaging.

The problem's parts are the mini-batches, in a new random order in every epoch.  Part ``p`` of ``P``
moves the weights by the gradient of

    (P / n) (f_p(w) + R(w) / P),        n = number of examples,

the objective per example of an average mini-batch; its sum over an epoch is that of the whole
objective, so that the fixed point is too.  ``l1`` is a proximal step, a shrinking towards zero
after each move, in Adam's own metric.

The answer is an average of all weights so far in which weight ``t`` of ``T`` counts about
``(t / T)^3``: late ones count most, and there is no burn-in to choose (Shamir and Zhang,
"Stochastic gradient descent for non-smooth optimization: convergence results and optimal averaging
schemes", ICML 2013).  Adam: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError
from fieldfit.learner._base import Fit, Learner, Penalty, Validation
from fieldfit.learner._epochs import AdamEpochs, Epochs, GradientEpochs
from fieldfit.learner._penalised import PenalisedProblem
from fieldfit.learner._run import Run, require_options
from fieldfit.learner.problem import Problem

__all__ = ["SGD", "Adam"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class _Stochastic(Learner):
    """Options that both learners have."""

    step: float | None = None
    max_iter: int = 100
    tol: float = 1e-5
    averaging: bool = True
    decay: float = 0.0
    random_state: int | None = None
    patience: int = 10
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        require_options(self)
        if self.step is not None and not (np.isfinite(self.step) and self.step > 0):
            raise InvalidInputError(f"step must be finite and above 0, got {self.step!r}")
        for name in ("tol", "decay"):
            if not getattr(self, name) >= 0:
                raise InvalidInputError(f"{name} must be at least 0, got {getattr(self, name)!r}")

    @abstractmethod
    def _method(self, problem: PenalisedProblem) -> Epochs:
        """The run's state."""

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
        """Minimise ``problem`` plus ``penalty`` from ``start``; see `Learner.minimize`.

        A row of the trace is an epoch.  Its objective is the sum over the mini-batches, each at the
        weights that it met, plus the penalty at the end of the epoch; its gradient likewise.
        """
        run = Run(
            self,
            self._method(PenalisedProblem(problem, penalty)),
            problem,
            penalty=penalty,
            checkpoint=checkpoint,
            validation=validation,
            verbose=verbose,
        )
        return run.fit(start)


@dataclass(frozen=True)
class Adam(_Stochastic):
    """Steps scaled by running means of each weight's gradient and its square.

    Parameters
    ----------
    step
        How far a weight moves in one mini-batch, about; it is divided by
        ``sqrt(1 + decay * epochs)``.  ``None`` is 0.1.
    max_iter
        Number of epochs.
    tol
        When the objective fell by no more than this share of itself in 5 epochs, the step is
        halved; the seventh time, the run ends.  Where the objective has no value (contrastive
        divergence), the weights must have moved by no more than 0.005 of their length
        instead.  A perceptron, whose objective says nothing about
        progress, ends only when an epoch goes by without a mistake.
    averaging
        Whether the answer is the average of the weights rather than the last ones.
    decay
        See ``step``.
    random_state
        Seed of the order of the mini-batches.
    patience, checkpoint_every
        As for `LBFGS`.
    beta1, beta2
        Share of the past in the running means of gradient and square.

    Examples
    --------
    >>> Adam(step=0.1, random_state=0).max_iter
    100
    """

    beta1: float = 0.9
    beta2: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be in [0, 1), got {getattr(self, name)!r}")

    def _method(self, problem: PenalisedProblem) -> Epochs:
        return AdamEpochs(self, problem, self.beta1, self.beta2)


@dataclass(frozen=True)
class SGD(_Stochastic):
    """Plain (sub)gradient steps.

    Parameters
    ----------
    step
        Multiplies the gradient of an average mini-batch, per example; it is divided by
        ``sqrt(1 + decay * epochs)``.  ``None`` finds the longest step, by doubling and halving,
        that still lowers the objective of the first mini-batch.
    max_iter, tol, averaging, decay, random_state, patience, checkpoint_every
        As for `Adam`.

    Examples
    --------
    >>> SGD(step=1.0, decay=0.0).averaging
    True
    """

    def _method(self, problem: PenalisedProblem) -> Epochs:
        return GradientEpochs(self, problem)
