"""Penalised empirical risk minimisation: the interface of learners, and the penalty.

    minimise  F(w) = sum over examples + sum over j of l2_j / 2 w_j^2  +  sum over j of l1_j |w_j|

A learner takes a problem and a starting point, and returns weights with their history.  The
penalty's smooth part (L2) is differentiated with the problem; where there is an L1 part, learners
use the pseudo-gradient (Andrew and Gao, ICML 2007).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray
from fieldfit._validation import require_callable, require_instance, require_verbose
from fieldfit.errors import InvalidInputError
from fieldfit.learners.problem import Problem, ProblemValue

__all__ = [
    "Fit",
    "Learner",
    "PenalisedProblem",
    "Penalty",
    "Point",
    "Validation",
    "checked_start",
    "require_task",
    "set_pseudo_gradient",
]

#: Score of some weights on held-out data; larger is better.
Validation = Callable[[FloatArray], float]


@dataclass(frozen=True)
class Penalty:
    """``l2/2 |w|^2 + l1 |w|_1``; a prior of variance ``1/l2`` and one of scale ``1/l1``.

    Either may be an array with one value for each weight.

    Parameters
    ----------
    l2, l1
        Strengths: a number, or an array with one value for each weight.

    Examples
    --------
    >>> penalty = Penalty(l2=2.0)
    >>> penalty.l2, penalty.l1
    (2.0, 0.0)
    """

    l2: float | FloatArray = 0.0
    l1: float | FloatArray = 0.0

    def __post_init__(self) -> None:
        for name in ("l2", "l1"):
            given = real_numbers(name, getattr(self, name))
            bad = given[~((given >= 0) & np.isfinite(given))]
            if bad.size:
                raise InvalidInputError(f"{name} must be finite and at least 0, got {bad.flat[0]}")


@dataclass(frozen=True)
class Fit:
    """What a learner returns.

    ``trace`` has one dictionary for each iteration: ``"objective"`` (with the penalty; ``None`` if
    there is no value), ``"gradient_norm"``, ``"unconverged"`` (share of examples whose inference
    did not converge), ``"seconds"`` (since the start, over all resumed runs), and ``"validation"``
    where a validation score was computed.

    Attributes
    ----------
    weights
        The weights.
    n_iter, converged, status
        How the fit ended.
    trace
        One dictionary for each iteration, as above.
    """

    weights: FloatArray
    n_iter: int
    converged: bool
    status: str
    trace: list[dict[str, Any]] = field(default_factory=list)


class Learner(ABC):
    """Moves weights until a problem is solved; subclasses are frozen dataclasses of options."""

    #: True: it takes a step after every part of the data (a mini-batch).
    is_stochastic: ClassVar[bool] = False
    #: False: the weights that it is given to begin with make no difference.
    uses_start: ClassVar[bool] = True

    @abstractmethod
    def minimize(
        self,
        problem: Problem,
        start: FloatArray,
        *,
        penalty: Penalty = Penalty(),
        checkpoint: str | PathLike[str] | None = None,
        validation: Validation | None = None,
        verbose: int = 0,
    ) -> Fit:
        """Minimise ``problem`` plus ``penalty`` from ``start``.

        ``checkpoint`` names a file that is written now and then, and resumed from if it exists;
        ``validation`` is called after every iteration and can end the run early; ``verbose=1``
        shows a progress bar.
        """


# -- The penalised problem -----------------------------------------------------------------
# Weight vectors can have a million entries, so nothing is allocated here after the start.


class Point:
    """Weights, with the value and gradient there; the arrays are overwritten in place.

    ``value`` includes the whole penalty, ``gradient`` only its smooth part (``l2``).
    """

    def __init__(self, n_weights: int) -> None:
        self.weights = np.zeros(n_weights)
        self.gradient = np.zeros(n_weights)
        self.value = np.inf
        self.n_unconverged = 0
        self.n_examples = 0

    @property
    def is_finite(self) -> bool:
        """Whether value and gradient can be used."""
        # a sum of squares is finite only if every entry is, and makes no array of flags
        return bool(np.isfinite(self.value)) and bool(
            np.isfinite(np.dot(self.gradient, self.gradient))
        )

    @property
    def unconverged_share(self) -> float:
        """Share of the examples whose inference did not converge."""
        return self.n_unconverged / max(1, self.n_examples)


class PenalisedProblem:
    """``problem`` plus ``penalty``, checked once."""

    def __init__(self, problem: Problem, penalty: Penalty) -> None:
        self.problem = problem
        self.l2 = _checked("l2", penalty.l2, problem.n_weights)
        self.l1 = _checked("l1", penalty.l1, problem.n_weights)
        #: Whether the penalty is nonsmooth (L1), so that weights become exactly zero.
        self.has_l1 = bool(np.any(self.l1 > 0.0))
        #: How many examples there are, once it is known; it must not change after that.
        self.n_examples: int | None = None
        self._scratch = np.empty(problem.n_weights)

    def evaluate(self, point: Point) -> None:
        """Value and gradient at ``point.weights``, written into ``point``."""
        found = self.problem.evaluate(point.weights)
        if found.value is None:
            raise InvalidInputError(
                "problem must have a value for this learner, got an objective that has only a "
                "gradient; use Adam or SGD"
            )
        self.require_examples(found.n_examples)
        # the problem may keep its array, so it is copied and never changed
        np.copyto(point.gradient, found.gradient)
        point.value = float(found.value) + self.value(point.weights)
        self.add_gradient(point.weights, point.gradient)
        point.n_unconverged = found.n_unconverged
        point.n_examples = found.n_examples

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        """One group of examples, without the penalty."""
        return self.problem.evaluate_part(weights, part)

    def value(self, weights: FloatArray) -> float:
        """The whole penalty."""
        scaled = np.multiply(weights, self.l2, out=self._scratch)
        smooth = 0.5 * float(np.dot(scaled, weights))
        if not self.has_l1:
            return smooth
        np.abs(weights, out=self._scratch)
        self._scratch *= self.l1
        return smooth + float(self._scratch.sum())

    def add_gradient(
        self, weights: FloatArray, gradient: FloatArray, fraction: float = 1.0
    ) -> None:
        """Add ``fraction`` times the gradient of the smooth penalty."""
        np.multiply(weights, self.l2, out=self._scratch)
        if fraction != 1.0:
            self._scratch *= fraction
        gradient += self._scratch

    def require_examples(self, n_examples: int) -> None:
        """Refuse another number of examples than before: the checkpoint was of other data."""
        if self.n_examples is None:
            self.n_examples = n_examples
        elif self.n_examples != n_examples:
            raise InvalidInputError(
                f"checkpoint must belong to this problem, got one of {self.n_examples} examples "
                f"for a problem of {n_examples}"
            )


def require_task(problem: Any, penalty: Any, validation: Validation | None, verbose: int) -> None:
    """Refuse what no learner can work with."""
    require_instance("problem", problem, Problem, "TemplateProblem(objective, parts)")
    require_instance("penalty", penalty, Penalty, "Penalty(l2=0.1)")
    require_callable("validation", validation, or_none=True)
    require_verbose(verbose)


def set_pseudo_gradient(
    weights: FloatArray, gradient: FloatArray, l1: FloatArray, out: FloatArray
) -> None:
    """The one-sided derivative of ``F + l1 |w|_1`` in the direction of steepest descent.

    Where a weight is not zero it is ``g + l1 sign(w)``.  At zero, ``g`` is shrunk towards zero
    by ``l1``, and vanishes if no direction leads downhill.
    """
    np.clip(gradient, -l1, l1, out=out)
    np.negative(out, out=out, where=weights == 0.0)
    is_other = weights != 0.0
    np.sign(weights, out=out, where=is_other)
    np.multiply(out, l1, out=out, where=is_other)
    out += gradient


def checked_start(start: FloatArray, n_weights: int) -> FloatArray:
    """The starting weights as a fresh float vector."""
    weights = real_numbers("start", start).copy()
    if weights.shape != (n_weights,):
        raise InvalidInputError(f"start must have shape ({n_weights},), got {weights.shape}")
    if not np.isfinite(weights).all():
        raise InvalidInputError("start must be finite, got NaN or infinity")
    return weights


def _checked(name: str, given: float | FloatArray, n_weights: int) -> FloatArray:
    array = np.asarray(given, dtype=np.float64)
    if array.shape not in ((), (n_weights,)):
        raise InvalidInputError(
            f"{name} must be a number or an array of shape ({n_weights},), got shape {array.shape}"
        )
    return array
