"""The state of L-BFGS and OWL-QN, and one iteration of them.

`lbfgs.py` says what is computed and why.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError
from fieldfit.learner._line_search import Search, orthant_search, slope_search, wolfe_search
from fieldfit.learner._pairs import Pairs
from fieldfit.learner._penalised import PenalisedProblem, Point, set_pseudo_gradient
from fieldfit.learner._run import Method, Outcome, Row
from fieldfit.learner.checkpoint import State

__all__ = ["Descent"]

FloatArray = NDArray[np.float64]

#: How far a value may be wrong, as a share of it: what inference with a tolerance of 1e-8 gives.
NOISE = 1e-9
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
        self.pairs = Pairs(history, n_weights)
        self.recent: list[float] = []
        #: How often the point was evaluated afresh, and whether it was since the last step.
        self.n_restarts, self.has_restarted = 0, False
        self.direction = np.empty(n_weights)
        self._scratch = np.empty(n_weights)
        #: False: the gradient is not that of the values, which then say nothing about a step.
        self.is_conservative = problem.problem.is_conservative
        # OWL-QN: the pseudo-gradient, and the signs that weights may have after the step
        self.has_corners = problem.has_corners
        #: Weights without an L1 penalty: nothing holds them in their orthant.
        self.is_free = np.broadcast_to(problem.l1 == 0.0, n_weights if self.has_corners else 0)
        self.pseudo = np.empty(n_weights) if self.has_corners else self.point.gradient
        self.orthant = np.empty(n_weights if self.has_corners else 0)
        self.gradient_norm = np.inf

    # -- one iteration --------------------------------------------------------------------

    def begin(self, start: FloatArray) -> None:
        self.is_settled = False
        np.copyto(self.point.weights, start)
        self.problem.assess(self.point)
        if not self.point.is_finite:
            raise InvalidInputError(
                "start must have a finite objective and gradient, got an objective of "
                f"{self.point.value}"
            )
        self.recent = [self.point.value]
        self._set_gradient()
        self.is_settled = True
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
        promise: float | None = None
        while True:
            slope = self._set_direction()
            step = 1.0
            if self.pairs.count == 0:
                step = 1.0 / np.sqrt(float(np.dot(self.direction, self.direction)))
            if promise is None:  # what the first direction would gain on a parabola
                promise = -0.5 * slope * step
            if slope < 0.0:
                search = self._search_along(slope, step)
                if search.is_good:
                    return search
            if self.pairs.count > 0:
                self.pairs.clear()
            elif self.has_restarted or promise <= NOISE * abs(self.point.value):
                self.outcome = self._blocked(promise)
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
        self._assess(self.point)
        self.recent = [self.point.value]
        self._set_gradient()

    def _assess(self, point: Point) -> None:
        if self.has_restarted:
            self.problem.problem.forget()
        self.problem.assess(point)

    def _search_along(self, slope: float, step: float) -> Search:
        if self.has_corners:
            return orthant_search(self._evaluate_projected, self.point.value, slope, step)
        if not self.is_conservative:
            return slope_search(self._evaluate, slope, step)
        noise = NOISE * abs(self.point.value)
        return wolfe_search(self._evaluate, self.point.value, slope, step, noise)

    def _evaluate(self, step: float) -> tuple[float, float]:
        """Value and slope after a step."""
        np.multiply(self.direction, step, out=self.trial.weights)
        self.trial.weights += self.point.weights
        self._assess(self.trial)
        if not self.trial.is_finite:
            return np.inf, np.nan
        return self.trial.value, float(np.dot(self.trial.gradient, self.direction))

    def _evaluate_projected(self, step: float) -> tuple[float, float]:
        """Value after a step that stays in the orthant, and what the slope promised for it."""
        np.multiply(self.direction, step, out=self.trial.weights)
        self.trial.weights += self.point.weights
        np.multiply(self.trial.weights, self.orthant, out=self._scratch)
        self.trial.weights[(self._scratch <= 0.0) & ~self.is_free] = 0.0
        self._assess(self.trial)
        np.subtract(self.trial.weights, self.point.weights, out=self._scratch)
        promised = float(np.dot(self.pseudo, self._scratch))
        return (self.trial.value if self.trial.is_finite else np.inf), promised

    def _move(self) -> None:
        """Take the trial point, and remember the way there."""
        self.is_settled = False
        self.has_restarted = False
        np.subtract(self.trial.weights, self.point.weights, out=self.direction)
        np.subtract(self.trial.gradient, self.point.gradient, out=self._scratch)
        self.pairs.add(self.direction, self._scratch)
        self.point, self.trial = self.trial, self.point
        self.recent = [*self.recent[-PERIOD:], self.point.value]
        self._set_gradient()
        self.is_settled = True

    def _judge(self) -> Outcome | None:
        """Whether this is the end."""
        if self.gradient_norm <= self.threshold():
            return Outcome(True, "converged: " + self._small_gradient())
        fall = self.recent[0] - self.recent[-1]
        if not self.is_conservative:
            fall = max(self.recent) - min(self.recent)
        if len(self.recent) > PERIOD and fall <= self.value_tol * abs(self.recent[-1]):
            verb = "fell" if self.is_conservative else "moved"
            return Outcome(
                True,
                f"converged: the objective {verb} by no more than {self.value_tol:.3g} of its "
                f"value in {PERIOD} iterations (gradient norm {self.gradient_norm:.3g})",
            )
        return None

    def _blocked(self, promise: float) -> Outcome:
        """No step helps: at the accuracy of the values this is the optimum, otherwise an error."""
        norm = self.gradient_norm
        if promise <= NOISE * abs(self.point.value):
            return Outcome(
                True,
                "converged: no step lowers the objective any further, and the last direction "
                f"promised only {promise:.3g} (gradient norm {norm:.3g})",
            )
        if not self.is_conservative:
            return Outcome(
                False,
                "stopped without convergence: no step along the gradient makes it flatter "
                f"(gradient norm {norm:.3g}); it jumps where an example changes its way down",
            )
        return Outcome(
            False,
            "stopped without convergence: no step along the gradient lowers the objective "
            f"(gradient norm {norm:.3g}); its values are inexact, or the gradient is not theirs",
        )

    # -- direction ------------------------------------------------------------------------

    def _set_direction(self) -> float:
        """The next direction; returns the slope along it."""
        pseudo = self.pseudo
        np.negative(pseudo, out=self.direction)
        self.pairs.multiply(self.direction)
        if self.has_corners:
            # entries that would go uphill are dropped
            np.multiply(self.direction, pseudo, out=self._scratch)
            self.direction[(self._scratch >= 0.0) & ~self.is_free] = 0.0
            np.sign(self.point.weights, out=self.orthant)
            np.sign(pseudo, out=self._scratch)
            np.copyto(self.orthant, -self._scratch, where=self.orthant == 0.0)
        return float(np.dot(self.direction, pseudo))

    def _set_gradient(self) -> None:
        """The gradient, or with corners the one-sided derivative of steepest descent."""
        self.pseudo = self.pseudo if self.has_corners else self.point.gradient
        if self.has_corners:
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
        arrays, numbers = state.arrays, state.numbers
        np.copyto(self.point.weights, arrays["weights"])
        np.copyto(self.point.gradient, arrays["gradient"])
        used = slice(0, numbers["count"])
        self.pairs.steps[used] = arrays["steps"]
        self.pairs.changes[used] = arrays["changes"]
        self.pairs.curvatures[used] = arrays["curvatures"]
        self.pairs.count, self.pairs.newest = numbers["count"], numbers["newest"]
        self.pairs.scale = numbers["scale"]
        self.point.value = numbers["value"]
        self.point.n_unconverged = numbers["n_unconverged"]
        self.point.n_examples = self.problem.n_examples = numbers["n_examples"]
        self.recent = list(numbers["recent"])
        self.n_restarts, self.has_restarted = numbers["restarts"]
        self._set_gradient()
