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
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar, Protocol

import numpy as np

from fieldfit._random_state import random_generator, require_random_state
from fieldfit._typing import FloatArray
from fieldfit._validation import require_flag, require_number
from fieldfit.errors import InvalidInputError
from fieldfit.learners.base import (
    Fit,
    Learner,
    PenalisedProblem,
    Penalty,
    Validation,
    require_task,
    set_pseudo_gradient,
)
from fieldfit.learners.checkpoint import State, restore_generator
from fieldfit.learners.loop import Method, Outcome, Row, Run, require_options
from fieldfit.learners.problem import Problem, ProblemValue

__all__ = ["SGD", "Adam", "AdamEpochs", "Epochs", "GradientEpochs"]

# -- One epoch -----------------------------------------------------------------------------


#: Epochs in which the objective must fall by more than ``tol``.
PERIOD = 5
#: Where it does not, the step is halved, so often at most: to a 64th.
MAX_SHORTENINGS = 6
#: Exponent of the averaging.
EXPONENT = 3.0
#: How often the step may be halved, after points that are not finite, before the run is given up.
MAX_HALVINGS = 40
#: Where there is no value, the averaged weights must stay within this share of their length for
#: `PERIOD` epochs.  Draws of a gradient know them no better than to about a percent.
STILLNESS = 0.005


class EpochOptions(Protocol):
    """What the state needs of the options."""

    @property
    def step(self) -> float | None: ...
    @property
    def tol(self) -> float: ...
    @property
    def averaging(self) -> bool: ...
    @property
    def decay(self) -> float: ...
    @property
    def random_state(self) -> int | None: ...


class Epochs(Method):
    """The state of a stochastic learner."""

    def __init__(self, options: EpochOptions, problem: PenalisedProblem) -> None:
        n_weights = problem.problem.n_weights
        self.options = options
        self.problem = problem
        self.n_parts = problem.problem.n_parts
        self.generator = random_generator(options.random_state)
        self.current = np.zeros(n_weights)
        self.average = np.zeros(n_weights) if options.averaging else self.current
        self.step_size = 0.0
        self.n_updates = 0
        self.n_halvings = self.n_shortenings = 0
        self.values: list[float] = []
        #: For objectives without a value: the answer some epochs ago, and how many.
        self.earlier: FloatArray | None = None
        self.n_since = 0
        self._gradient = np.empty(n_weights)
        self._epoch_gradient = np.empty(n_weights)
        self._safe = np.empty((2, n_weights))
        self._scratch = np.empty(n_weights)

    @abstractmethod
    def first_step_size(self) -> float:
        """What ``step=None`` means for the problem at hand."""

    @abstractmethod
    def update(self, gradient: FloatArray, rate: float) -> FloatArray | float:
        """Move the weights; returns by what a gradient was multiplied, for the proximal step."""

    # -- one epoch ------------------------------------------------------------------------

    def begin(self, start: FloatArray) -> None:
        self.is_consistent = False
        np.copyto(self.current, start)
        np.copyto(self.average, start)
        found = self.problem.problem.evaluate(self.current)
        if not _is_finite(found):
            raise InvalidInputError(
                "start must have a finite objective and gradient, got an objective of "
                f"{found.value}"
            )
        self.problem.require_examples(found.n_examples)
        given = self.options.step
        self.step_size = self.first_step_size() if given is None else given
        self._safe[:] = start
        self.is_consistent = True

    def step(self) -> Row:
        self.is_consistent = False
        self._epoch_gradient[:] = 0.0
        value: float | None = 0.0
        n_unconverged = n_examples = 0
        is_whole = is_idle = True
        for part in self.generator.permutation(self.n_parts):
            found = self.problem.evaluate_part(self.current, int(part))
            n_unconverged += found.n_unconverged
            n_examples += found.n_examples
            if not _is_finite(found):
                self._retreat()
                is_whole = False
                continue
            self._epoch_gradient += found.gradient
            is_idle &= not (found.value or found.gradient.any())
            if value is not None:
                value = None if found.value is None else value + float(found.value)
            self._move(found.gradient)
        self.problem.require_examples(n_examples)
        if not is_whole:
            value, self.values = None, []
        elif value is not None:
            value += self.problem.value(self.current)
            self.values = [*self.values[-PERIOD:], value]
            if not self.problem.problem.is_homogeneous:
                self._judge()
            elif is_idle and self.outcome is None:
                self.outcome = Outcome(True, "converged: an epoch went by without a mistake")
        else:
            self._judge_movement()
        self.is_consistent = True
        return {
            "objective": value,
            "gradient_norm": self._gradient_norm(),
            "unconverged": n_unconverged / max(1, n_examples),
        }

    @property
    def scale(self) -> float:
        """From the sum over a mini-batch to the objective per example."""
        return self.n_parts / max(1, self.problem.n_examples or 1)

    def _move(self, gradient: FloatArray) -> None:
        np.copyto(self._safe[0], self.current)
        np.copyto(self._safe[1], self.average)
        self.n_updates += 1
        epochs = self.n_updates / self.n_parts
        rate = self.step_size / np.sqrt(1.0 + self.options.decay * epochs)
        self.set_direction(gradient)
        multiplier = self.update(self._gradient, rate)
        if self.problem.has_l1:
            shrinking = multiplier * (self.problem.l1 * self.scale / self.n_parts)
            np.abs(self.current, out=self._scratch)
            self._scratch -= shrinking
            np.maximum(self._scratch, 0.0, out=self._scratch)
            np.copysign(self._scratch, self.current, out=self.current)
        if self.options.averaging:
            share = (EXPONENT + 1.0) / (self.n_updates + EXPONENT)
            np.subtract(self.current, self.average, out=self._scratch)
            self._scratch *= share
            self.average += self._scratch

    def set_direction(self, gradient: FloatArray) -> None:
        """The gradient of a mini-batch and its share of the penalty, per example."""
        np.copyto(self._gradient, gradient)
        self.problem.add_gradient(self.current, self._gradient, 1.0 / self.n_parts)
        self._gradient *= self.scale

    def _retreat(self) -> None:
        """Back to the last point with a finite objective, with half the step from now on."""
        np.copyto(self.current, self._safe[0])
        np.copyto(self.average, self._safe[1])
        self.step_size *= 0.5
        self.n_halvings += 1
        if self.n_halvings > MAX_HALVINGS:
            self.outcome = Outcome(
                False,
                "stopped without convergence: the objective is not finite, even with the step "
                f"halved {MAX_HALVINGS} times",
            )

    def _judge(self) -> None:
        """Where the objective falls no more, it is the step that keeps it up: shorten it."""
        if self.outcome is not None or len(self.values) <= PERIOD:
            return
        tol, fall = self.options.tol, self.values[0] - min(self.values[1:])
        if fall > tol * abs(self.values[-1]):
            return
        self.values = self.values[-1:]
        self._shorten(
            f"converged: the objective of an epoch fell by no more than {tol:.3g} of its value "
            f"in {PERIOD} epochs, and not with shorter steps either"
        )

    def _judge_movement(self) -> None:
        """Without a value: whether the answer still moves."""
        self.n_since += 1
        if self.earlier is not None and self.n_since < PERIOD:
            return
        if self.earlier is not None and self.outcome is None:
            np.subtract(self.weights, self.earlier, out=self._scratch)
            moved = float(np.sqrt(np.dot(self._scratch, self._scratch)))
            if moved <= STILLNESS * float(np.sqrt(np.dot(self.weights, self.weights))):
                self._shorten(
                    f"converged: weights moved by no more than {STILLNESS:.3g} of their length in "
                    f"{PERIOD} epochs of several lengths of steps"
                )
        self.earlier, self.n_since = self.weights.copy(), 0

    def _shorten(self, end: str) -> None:
        """Halve the step; the last time, that was the end."""
        self.n_shortenings += 1
        self.step_size *= 0.5
        if self.n_shortenings > MAX_SHORTENINGS:
            self.outcome = Outcome(True, end)

    def _gradient_norm(self) -> float:
        gradient = self._epoch_gradient
        self.problem.add_gradient(self.current, gradient)
        if self.problem.has_l1:
            set_pseudo_gradient(self.current, gradient, self.problem.l1, out=self._scratch)
            gradient = self._scratch
        return float(np.sqrt(np.dot(gradient, gradient)))

    # -- state ----------------------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        return self.average

    def arrays(self) -> dict[str, FloatArray]:
        """Vectors that a checkpoint holds, by name."""
        return {"current": self.current, "average": self.average, "safe": self._safe}

    def state(self) -> State:
        numbers: dict[str, Any] = {
            "n_examples": self.problem.n_examples,
            "n_updates": self.n_updates,
            "n_halvings": self.n_halvings,
            "n_shortenings": self.n_shortenings,
            "step_size": self.step_size,
            "values": self.values,
            "n_since": self.n_since,
            "generator": self.generator.bit_generator.state,
        }
        earlier = {} if self.earlier is None else {"earlier": self.earlier}
        return State({**self.arrays(), **earlier}, numbers)

    def restore(self, state: State) -> None:
        for name, array in self.arrays().items():
            np.copyto(array, state.array(name, array.shape))
        self.problem.n_examples = state.integer("n_examples", 0)
        self.earlier = None
        if "earlier" in state.arrays:
            self.earlier = state.array("earlier", self.current.shape).copy()
        self.n_since = state.integer("n_since", 0)
        self.n_updates = state.integer("n_updates", 0)
        self.n_halvings = state.integer("n_halvings", 0)
        self.n_shortenings = state.integer("n_shortenings", 0)
        self.step_size, self.values = state.number("step_size"), state.items("values", float)
        restore_generator(self.generator, state)


class AdamEpochs(Epochs):
    """Steps divided by the root of the mean square of each weight's gradient."""

    def __init__(
        self, options: EpochOptions, problem: PenalisedProblem, beta1: float, beta2: float
    ) -> None:
        super().__init__(options, problem)
        self.beta1, self.beta2 = beta1, beta2
        self.means = np.zeros_like(self.current)
        self.squares = np.zeros_like(self.current)
        self._multiplier = np.empty_like(self.current)

    def first_step_size(self) -> float:
        return 0.1

    def update(self, gradient: FloatArray, rate: float) -> FloatArray | float:
        scratch, multiplier = self._scratch, self._multiplier
        self.means *= self.beta1
        self.means += np.multiply(gradient, 1.0 - self.beta1, out=scratch)
        self.squares *= self.beta2
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1.0 - self.beta2
        self.squares += scratch
        # both means start at zero; this is what they would be without that start
        np.divide(self.squares, 1.0 - self.beta2**self.n_updates, out=multiplier)
        np.sqrt(multiplier, out=multiplier)
        multiplier += 1e-8
        np.divide(rate, multiplier, out=multiplier)
        np.divide(self.means, 1.0 - self.beta1**self.n_updates, out=scratch)
        scratch *= multiplier
        self.current -= scratch
        return multiplier

    def arrays(self) -> dict[str, FloatArray]:
        return super().arrays() | {"means": self.means, "squares": self.squares}


class GradientEpochs(Epochs):
    """Steps along the gradient."""

    def first_step_size(self) -> float:
        """The longest ``2^k / |g|`` that lowers the first mini-batch by half of the prediction.

        On a parabola that is a step of at least half the best one.
        """
        first = self.problem.evaluate_part(self.current, 0)
        if first.value is None:
            raise InvalidInputError(
                "step must be given for an objective that has only a gradient, got None"
            )
        self.set_direction(first.gradient)
        squared = float(np.dot(self._gradient, self._gradient))
        if squared == 0.0:
            return 1.0
        begin = self.scale * (first.value + self.problem.value(self.current) / self.n_parts)
        trial = np.empty_like(self.current)

        def is_lower(step: float) -> bool:
            np.multiply(self._gradient, -step, out=trial)
            np.add(trial, self.current, out=trial)
            value = self.problem.evaluate_part(trial, 0).value
            if value is None or not np.isfinite(value):
                return False
            now = self.scale * (value + self.problem.value(trial) / self.n_parts)
            return bool(now <= begin - 0.5 * step * squared)

        step = 1.0 / np.sqrt(squared)
        if is_lower(step):
            while is_lower(2.0 * step) and step < 1e6:
                step *= 2.0
            return float(step)
        while step > 1e-12:
            step *= 0.5
            if is_lower(step):
                break
        return float(step)

    def update(self, gradient: FloatArray, rate: float) -> FloatArray | float:
        np.multiply(gradient, rate, out=self._scratch)
        self.current -= self._scratch
        return rate


def _is_finite(found: ProblemValue) -> bool:
    gradient = found.gradient
    return bool(np.isfinite(np.dot(gradient, gradient))) and (
        found.value is None or bool(np.isfinite(found.value))
    )


# -- The learners --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Stochastic(Learner):
    """Options that both learners have."""

    is_stochastic: ClassVar[bool] = True
    step: float | None = field(default=None, kw_only=False)
    max_iter: int = 100
    tol: float = 1e-5
    averaging: bool = True
    decay: float = 0.0
    random_state: int | None = None
    patience: int = 10
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        require_options(self)
        require_number("step", self.step, above=0, or_none=True)
        require_number("tol", self.tol, at_least=0)
        require_flag("averaging", self.averaging)
        require_number("decay", self.decay, at_least=0)
        require_random_state(self.random_state)

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
        require_task(problem, penalty, validation, verbose)
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


@dataclass(frozen=True, kw_only=True)
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
        require_number("beta1", self.beta1, at_least=0, below=1)
        require_number("beta2", self.beta2, at_least=0, below=1)

    def _method(self, problem: PenalisedProblem) -> Epochs:
        return AdamEpochs(self, problem, self.beta1, self.beta2)


@dataclass(frozen=True, kw_only=True)
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
