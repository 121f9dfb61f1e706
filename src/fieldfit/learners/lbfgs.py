"""L-BFGS (limited-memory BFGS), and OWL-QN, its form for the L1 penalty.

The direction is ``-H g`` with the inverse Hessian ``H`` of the last correction pairs, the step
comes from a line search along it (`line_search.py`).  With ``l1 > 0`` the objective is nonsmooth
where a weight is zero, and three things change (Andrew and Gao, "Scalable training of
L1-regularized log-linear models", ICML 2007): the gradient is replaced by the pseudo-gradient, the
one-sided derivative in the direction of steepest descent; the direction keeps only entries that go
downhill; and the step ends at the border of the orthant of the current weights, so that weights
become exactly zero.  Curvature is that of the smooth part in both cases.

This is an implementation of its own, and not that of SciPy, because its whole state can be written
to a checkpoint, because values may agree only to the tolerance of an iterative inference, and
because OWL-QN needs both of these and the same memory of steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit._validation import require_integer, require_number
from fieldfit.errors import InvalidInputError
from fieldfit.learners.base import (
    Fit,
    Learner,
    PenalisedProblem,
    Penalty,
    Point,
    Validation,
    require_task,
    set_pseudo_gradient,
)
from fieldfit.learners.checkpoint import State
from fieldfit.learners.line_search import Search, orthant_search, slope_search, wolfe_search
from fieldfit.learners.loop import Method, Outcome, Row, Run, require_options
from fieldfit.learners.problem import Problem

__all__ = ["LBFGS", "CorrectionPairs", "Descent"]

# -- Correction pairs and the two-loop recursion -------------------------------------------
# With pairs ``s_k = w_{k+1} - w_k`` and ``y_k = g_{k+1} - g_k`` the two-loop recursion multiplies a
# vector by the inverse Hessian of BFGS without ever forming it, started from the multiple
# ``(s.y / y.y) I`` of the newest pair.  Reference: Nocedal, "Updating quasi-Newton matrices with
# limited storage", Mathematics of Computation 35 (1980); Liu and Nocedal, Mathematical Programming
# 45 (1989).


#: Below this cosine of the angle between step and change of gradient the curvature of a pair is
#: rounding, and would blow up the next direction.
SMALLEST_COSINE = 1e-12


class CorrectionPairs:
    """The newest ``history`` pairs, in two matrices that are filled in a circle."""

    def __init__(self, history: int, n_weights: int) -> None:
        self.steps = np.zeros((history, n_weights))
        self.changes = np.zeros((history, n_weights))
        self.curvatures = np.zeros(history)
        self.count = 0
        self.newest = -1
        self.scale = 1.0
        self._factors = np.zeros(history)

    def add(self, step: FloatArray, change: FloatArray) -> bool:
        """Take a pair over; False if its curvature is not safely positive, and it is left out."""
        curvature = float(np.dot(step, change))
        squared = float(np.dot(change, change))
        norms = np.sqrt(float(np.dot(step, step)) * squared)
        if not curvature > SMALLEST_COSINE * norms:
            return False
        self.newest = (self.newest + 1) % len(self.curvatures)
        self.count = min(self.count + 1, len(self.curvatures))
        np.copyto(self.steps[self.newest], step)
        np.copyto(self.changes[self.newest], change)
        self.curvatures[self.newest] = curvature
        self.scale = curvature / squared
        return True

    def clear(self) -> None:
        """Forget all pairs: the next direction is that of steepest descent."""
        self.count, self.newest = 0, -1

    def multiply(self, vector: FloatArray) -> None:
        """Replace a contiguous vector by its product with the inverse Hessian."""
        if self.count == 0:
            return
        # in place and in one pass: memory is what this costs, 4 * history passes over the weights
        from scipy.linalg.blas import daxpy

        for row in self._rows():
            factor = float(np.dot(self.steps[row], vector)) / self.curvatures[row]
            self._factors[row] = factor
            daxpy(self.changes[row], vector, a=-factor)
        vector *= self.scale
        for row in reversed(self._rows()):
            factor = float(np.dot(self.changes[row], vector)) / self.curvatures[row]
            daxpy(self.steps[row], vector, a=self._factors[row] - factor)

    def _rows(self) -> list[int]:
        """Rows in use, the newest first."""
        return [(self.newest - age) % len(self.curvatures) for age in range(self.count)]


# -- One iteration of L-BFGS and OWL-QN ----------------------------------------------------


#: How far a value may be wrong, as a share of it: what inference with a tolerance of 1e-8 gives.
NOISE = 1e-9
#: Where the objective has kinks, a gradient this many times the threshold is not flat.
FLAT = 100.0
#: The objective must fall by more than its tolerance within so many iterations.
PERIOD = 5


class Descent(Method):
    """The state of L-BFGS: where it is, where it was, and buffers."""

    def __init__(
        self, problem: PenalisedProblem, history: int, tol: float, value_tol: float
    ) -> None:
        n_weights = problem.problem.n_weights
        self.problem = problem
        self.tol, self.value_tol = tol, value_tol
        self.point = Point(n_weights)
        self.trial = Point(n_weights)
        self.pairs = CorrectionPairs(history, n_weights)
        self.recent: list[float] = []
        #: How often the point was evaluated afresh, and whether it was since the last step.
        self.n_restarts, self.has_restarted = 0, False
        self.direction = np.empty(n_weights)
        self._scratch = np.empty(n_weights)
        #: False: the gradient is not that of the values, which are then no measure of a step.
        self.is_conservative = problem.problem.is_conservative
        # OWL-QN: the pseudo-gradient, and the signs that weights may have after the step
        self.has_l1 = problem.has_l1
        #: Weights without an L1 penalty: nothing holds them in their orthant.
        self.is_free = np.broadcast_to(problem.l1 == 0.0, n_weights if self.has_l1 else 0)
        self.pseudo = np.empty(n_weights) if self.has_l1 else self.point.gradient
        self.orthant = np.empty(n_weights if self.has_l1 else 0)
        self.gradient_norm = np.inf

    # -- one iteration --------------------------------------------------------------------

    def begin(self, start: FloatArray) -> None:
        self.is_consistent = False
        np.copyto(self.point.weights, start)
        self.problem.evaluate(self.point)
        if not self.point.is_finite:
            raise InvalidInputError(
                "start must have a finite objective and gradient, got an objective of "
                f"{self.point.value}"
            )
        self.recent = [self.point.value]
        self._set_gradient()
        self.is_consistent = True
        if self.gradient_norm <= self.threshold():
            self.outcome = Outcome(True, "the start is optimal: " + self._small_gradient())

    def step(self) -> Row:
        search = self._search()
        if search.is_good:
            self._move()
        if self.outcome is None:
            self.outcome = self._judge()
        return self.row()

    def row(self) -> Row:
        """Where the descent is."""
        return {
            "objective": self.point.value,
            "gradient_norm": self.gradient_norm,
            "unconverged": self.point.unconverged_share,
            **({"restarts": self.n_restarts} if self.n_restarts else {}),
        }

    def _search(self) -> Search:
        """A step along the quasi-Newton direction, or else along that of steepest descent."""
        predicted_decrease: float | None = None
        while True:
            slope = self._set_direction()
            step = 1.0
            if self.pairs.count == 0:
                step = 1.0 / np.sqrt(float(np.dot(self.direction, self.direction)))
            if predicted_decrease is None:  # what the first direction would gain on a parabola
                predicted_decrease = -0.5 * slope * step
            if slope < 0.0:
                search = self._search_along(slope, step)
                if search.is_good:
                    return search
            if self.pairs.count > 0:
                self.pairs.clear()
            elif self.has_restarted or predicted_decrease <= NOISE * abs(self.point.value):
                self.outcome = self._blocked(predicted_decrease)
                return Search(0.0, False)
            else:
                self._restart()

    def _restart(self) -> None:
        """Evaluate the point afresh, without what is left of earlier evaluations.

        An inference with several fixed points that is started from its last messages gives values
        of one branch at the point and of another one at the trial points, and no step seems to
        help.  Until a step has succeeded, all evaluations start afresh and belong together again.
        """
        self.has_restarted = True
        self.n_restarts += 1
        self._evaluate_at(self.point)
        self.recent = [self.point.value]
        self._set_gradient()

    def _evaluate_at(self, point: Point) -> None:
        if self.has_restarted:
            self.problem.problem.reset_warm_start()
        self.problem.evaluate(point)

    def _search_along(self, slope: float, step: float) -> Search:
        if self.has_l1:
            return orthant_search(self._evaluate_projected, self.point.value, slope, step)
        if not self.is_conservative:
            return slope_search(self._evaluate, slope, step)
        noise = NOISE * abs(self.point.value)
        return wolfe_search(self._evaluate, self.point.value, slope, step, noise)

    def _evaluate(self, step: float) -> tuple[float, float]:
        """Value and slope after a step."""
        np.multiply(self.direction, step, out=self.trial.weights)
        self.trial.weights += self.point.weights
        self._evaluate_at(self.trial)
        if not self.trial.is_finite:
            return np.inf, np.nan
        return self.trial.value, float(np.dot(self.trial.gradient, self.direction))

    def _evaluate_projected(self, step: float) -> tuple[float, float]:
        """Value after a step that stays in the orthant, and the decrease predicted for it."""
        np.multiply(self.direction, step, out=self.trial.weights)
        self.trial.weights += self.point.weights
        np.multiply(self.trial.weights, self.orthant, out=self._scratch)
        self.trial.weights[(self._scratch <= 0.0) & ~self.is_free] = 0.0
        self._evaluate_at(self.trial)
        np.subtract(self.trial.weights, self.point.weights, out=self._scratch)
        predicted = float(np.dot(self.pseudo, self._scratch))
        return (self.trial.value if self.trial.is_finite else np.inf), predicted

    def _move(self) -> None:
        """Take the trial point, and keep the correction pair."""
        self.is_consistent = False
        self.has_restarted = False
        np.subtract(self.trial.weights, self.point.weights, out=self.direction)
        np.subtract(self.trial.gradient, self.point.gradient, out=self._scratch)
        self.pairs.add(self.direction, self._scratch)
        self.point, self.trial = self.trial, self.point
        self.recent = [*self.recent[-PERIOD:], self.point.value]
        self._set_gradient()
        self.is_consistent = True

    def _judge(self) -> Outcome | None:
        """Whether this is the end."""
        if self.gradient_norm <= self.threshold():
            return Outcome(True, "converged: " + self._small_gradient())
        fall = self.recent[0] - self.recent[-1]
        if not self.is_conservative:
            fall = max(self.recent) - min(self.recent)
        if len(self.recent) > PERIOD and fall <= self.value_tol * abs(self.recent[-1]):
            verb = "fell" if self.is_conservative else "moved"
            if self.problem.problem.has_kinks:
                return Outcome(
                    False,
                    f"stopped without convergence: the objective {verb} by no more than "
                    f"{self.value_tol:.3g} of its value in {PERIOD} iterations, but the gradient "
                    f"norm is {self.gradient_norm:.3g}",
                )
            return Outcome(
                True,
                f"converged: the objective {verb} by no more than {self.value_tol:.3g} of its "
                f"value in {PERIOD} iterations (gradient norm {self.gradient_norm:.3g})",
            )
        return None

    def _blocked(self, predicted_decrease: float) -> Outcome:
        """No step helps: at the accuracy of the values this is the optimum, otherwise an error."""
        norm = self.gradient_norm
        is_flat = not self.problem.problem.has_kinks or norm <= FLAT * self.threshold()
        if is_flat and predicted_decrease <= NOISE * abs(self.point.value):
            return Outcome(
                True,
                "converged: no step lowers the objective any further, and the last direction "
                f"predicted only {predicted_decrease:.3g} (gradient norm {norm:.3g})",
            )
        if not self.is_conservative:
            return Outcome(
                False,
                "stopped without convergence: no step along the gradient makes it flatter "
                f"(gradient norm {norm:.3g}); it jumps where the descent of an example branches",
            )
        reason = "its values are inexact, or the gradient is not theirs"
        if self.problem.problem.has_kinks:
            reason = "it is not smooth there"
        return Outcome(
            False,
            "stopped without convergence: no step along the gradient lowers the objective "
            f"(gradient norm {norm:.3g}); {reason}",
        )

    # -- direction ------------------------------------------------------------------------

    def _set_direction(self) -> float:
        """The next direction; returns the slope along it."""
        pseudo = self.pseudo
        np.negative(pseudo, out=self.direction)
        self.pairs.multiply(self.direction)
        if self.has_l1:
            # entries that would go uphill are dropped
            np.multiply(self.direction, pseudo, out=self._scratch)
            self.direction[(self._scratch >= 0.0) & ~self.is_free] = 0.0
            np.sign(self.point.weights, out=self.orthant)
            np.sign(pseudo, out=self._scratch)
            np.copyto(self.orthant, -self._scratch, where=self.orthant == 0.0)
        return float(np.dot(self.direction, pseudo))

    def _set_gradient(self) -> None:
        """The gradient, or with an L1 penalty the one-sided derivative of steepest descent."""
        self.pseudo = self.pseudo if self.has_l1 else self.point.gradient
        if self.has_l1:
            set_pseudo_gradient(
                self.point.weights, self.point.gradient, self.problem.l1, out=self.pseudo
            )
        self.gradient_norm = float(np.sqrt(np.dot(self.pseudo, self.pseudo)))

    # -- stopping -------------------------------------------------------------------------

    def threshold(self) -> float:
        """What the norm of the gradient must fall below."""
        weights = self.point.weights
        size = float(np.sqrt(np.dot(weights, weights)))
        return self.tol * max(self.point.n_examples, size, 1.0)

    def _small_gradient(self) -> str:
        return f"the gradient norm {self.gradient_norm:.3g} is below {self.threshold():.3g}"

    # -- state ----------------------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        return self.point.weights

    def state(self) -> State:
        used = slice(0, self.pairs.count)
        arrays = {
            "weights": self.point.weights,
            "gradient": self.point.gradient,
            "steps": self.pairs.steps[used],
            "changes": self.pairs.changes[used],
            "curvatures": self.pairs.curvatures[used],
        }
        numbers = {
            "value": self.point.value,
            "n_unconverged": self.point.n_unconverged,
            "n_examples": self.point.n_examples,
            "count": self.pairs.count,
            "newest": self.pairs.newest,
            "scale": self.pairs.scale,
            "recent": self.recent,
            "restarts": [self.n_restarts, self.has_restarted],
        }
        return State(arrays, numbers)

    def restore(self, state: State) -> None:
        history, n_weights = self.pairs.steps.shape
        self.point.weights[:] = state.array("weights", (n_weights,))
        self.point.gradient[:] = state.array("gradient", (n_weights,))
        count = state.integer("count", 0, history)
        self.pairs.steps[:count] = state.array("steps", (count, n_weights))
        self.pairs.changes[:count] = state.array("changes", (count, n_weights))
        self.pairs.curvatures[:count] = state.array("curvatures", (count,))
        self.pairs.count = count
        self.pairs.newest = state.integer("newest", -1, count - 1)
        self.pairs.scale = state.number("scale")
        self.point.value = state.number("value")
        self.point.n_examples = self.problem.n_examples = state.integer("n_examples", 0)
        self.point.n_unconverged = state.integer("n_unconverged", 0, self.point.n_examples)
        self.recent = state.items("recent", float)
        restarts, has_restarted = state.items("restarts", (int, bool), length=2)
        self.n_restarts, self.has_restarted = int(restarts), bool(has_restarted)
        self._set_gradient()


# -- The learner ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LBFGS(Learner):
    """Quasi-Newton with limited memory, for smooth objectives; OWL-QN if ``l1 > 0``.

    It stops when the Euclidean norm of the gradient, per example or relative to the weights, is
    small, ``|g| <= tol * max(n_examples, |w|)``, or when the objective fell by no more than
    ``value_tol`` of itself in 5 iterations.

    Parameters
    ----------
    max_iter
        Largest number of iterations; nearly always one evaluation each.
    tol
        See above.
    history
        Steps that are remembered; the memory is ``2 * history`` weight vectors.
    value_tol
        See above; ``None`` is ``tol ** 2``, because near the optimum the objective's error is
        quadratic in the gradient.
    patience
        With ``validation``: iterations without a better score after which the run ends.
    checkpoint_every
        With ``checkpoint``: iterations between two writings.  Each one drops the warm starts of
        the inference.

    Examples
    --------
    >>> from fieldfit.learners.problem import ProblemValue, Problem
    >>> class Parabola(Problem):
    ...     n_weights, n_parts = 2, 1
    ...     def evaluate(self, weights):
    ...         away = weights - [1.0, 2.0]
    ...         return ProblemValue(0.5 * float(away @ away), away, 0, 1)
    ...     def evaluate_part(self, weights, part):
    ...         return self.evaluate(weights)
    >>> LBFGS().minimize(Parabola(), np.zeros(2), penalty=Penalty(l1=1.5)).weights
    array([0. , 0.5])
    """

    max_iter: int = field(default=200, kw_only=False)
    tol: float = 1e-5
    history: int = 10
    value_tol: float | None = None
    patience: int = 10
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        require_options(self)
        require_integer("history", self.history, at_least=1)
        require_number("tol", self.tol, at_least=0)
        require_number("value_tol", self.value_tol, at_least=0, or_none=True)

    def _method(self, problem: PenalisedProblem) -> Descent:
        value_tol = self.tol**2 if self.value_tol is None else self.value_tol
        return Descent(problem, self.history, self.tol, value_tol)

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
        """Minimise ``problem`` plus ``penalty`` from ``start``; see `Learner.minimize`."""
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
