r"""Newton's method on the dual of a concave free energy, with annealing (a homotopy).

The dual ``G(lam)`` (`convex_problem`) is convex and smooth, and each step solves the reduced KKT
system (`marginal_hessian`): a few steps where message passing would need thousands of sweeps, any
arity, and weights that differ between the configurations of a table, for which there is no message
update in closed form.

Newton's method is at its best near the optimum.  It is brought there by annealing: a *temperature*
is added to all weights, so that the problem is easy, and lowered in stages.  Every stage is a
descent with a line search, and the last one, at temperature zero, is the problem itself.

Reference: Domke, thesis (2009), section 4.3, which eliminates nothing and takes the beliefs of
variables and factors without normalisation; the duals are equal at the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fieldfit._typing import BoolArray, FloatArray
from fieldfit.entropy.counting_numbers import Convex, Entropy
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Progress
from fieldfit.inference.convex.convex_problem import ConvexProblem, start_messages
from fieldfit.inference.convex.convex_solver import ConvexResult, ConvexSolver
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, MarginalHessian

__all__ = ["ConvexDual"]

#: The temperature is multiplied by this as soon as margins and beliefs of a stage agree to within
#: `STAGE_TOL`.
ANNEAL_FACTOR = 0.2
STAGE_TOL = 0.1
#: It becomes zero when it is below this fraction of the least weight.
MIN_TEMPERATURE = 0.2
#: Initial temperature: this fraction of the largest score, and at least the largest weight.
INITIAL_TEMPERATURE = 0.1
#: Steps of a stage after which it starts again at a higher temperature.
PATIENCE = 60
#: A start of which margins and beliefs agree to within this needs no annealing.
WARM_START_TOL = 0.5
#: Line search: sufficient fraction of the predicted decrease, shortest step, rounding of values.
SUFFICIENT = 1e-4
SHORTEST = 1e-10
ROUNDING = 1e-14
#: In a step beliefs count as at least this: a label whose belief vanished may come back.
SMALLEST = 1e-30


@dataclass(frozen=True, kw_only=True)
class ConvexDual(ConvexSolver):
    """Newton's method on the dual of a concave problem.

    Parameters
    ----------
    entropy
        An entropy with positive numbers for variables and factors, such as `Convex()`; a run may be
        given weights for every configuration instead.
    tol
        Converged when the margins of factor beliefs and the beliefs of variables agree to this.
    max_iter
        Most steps.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.0, 1.0]] + [None] * 8, factors=np.eye(2))
    >>> result = ConvexDual().run(graph, potentials)
    >>> result.converged, result.bound, result.beliefs.unary(8).round(3)
    (True, 'upper', array([0.499, 0.501]))
    """

    entropy: Entropy = field(default_factory=Convex, kw_only=False)
    tol: float = 1e-8
    max_iter: int = 500

    _work: ClassVar[str] = "step"
    _measure: ClassVar[str] = "largest disagreement of beliefs"

    def _solve(
        self, problem: ConvexProblem, init: InferenceResult | None, progress: Progress | None
    ) -> ConvexResult:
        descent = _Descent(problem, start_messages(problem, init))
        while descent.active(self.tol).any() and descent.n_iter < self.max_iter:
            descent.step(self.tol)
            if progress is not None:
                progress(descent.n_iter, float(descent.gaps.max(initial=0.0)))
        point = descent.point
        if descent.temperature.any():
            point = problem.dual(point.messages, np.zeros(problem.batch.n_examples))
        gaps = problem.gaps(point.residual)
        return ConvexResult(
            beliefs=problem.beliefs(point.unary, point.factors),
            multipliers=point.messages,
            values=point.values,
            converged=gaps <= self.tol,
            residual=float(gaps.max(initial=0.0)),
            n_iter=descent.n_iter,
        )


class _Descent:
    """One run in progress; every example has its own temperature and step length."""

    def __init__(self, problem: ConvexProblem, messages: FloatArray | None) -> None:
        self.problem = problem
        n_examples = problem.batch.n_examples
        self.n_iter = 0
        self.temperature = np.zeros(n_examples)
        self.is_stuck = np.zeros(n_examples, dtype=np.bool_)
        self._least_weights = problem.least_weights()
        largest = problem.factor_weights.max(initial=0.0), problem.unary_weights.max(initial=0.0)
        self._initial_temperature = np.maximum(INITIAL_TEMPERATURE * problem.ranges(), max(largest))
        self._n_steps = np.zeros(n_examples, dtype=np.int64)
        self.point = problem.dual(
            problem.start() if messages is None else messages, self.temperature
        )
        self.gaps = problem.gaps(self.point.residual)
        self._restart(self.gaps > WARM_START_TOL)

    def _restart(self, examples: BoolArray) -> None:
        """Drop the multipliers of some examples and start annealing again."""
        if not examples.any():
            return
        self.temperature = np.where(examples, self._initial_temperature, self.temperature)
        fresh = np.where(
            self.problem.by_message(examples), self.problem.start(), self.point.messages
        )
        self._n_steps[examples] = 0
        self._refresh(fresh)

    def _refresh(self, messages: FloatArray) -> None:
        self.point = self.problem.dual(messages, self.temperature)
        self.gaps = self.problem.gaps(self.point.residual)

    def active(self, tol: float) -> BoolArray:
        """Examples that have not converged."""
        return ((self.gaps > tol) | (self.temperature > 0.0)) & ~self.is_stuck

    def step(self, tol: float) -> None:
        """One step of all active examples, and a lower temperature where the stage is done."""
        problem = self.problem
        is_done = (self.temperature > 0.0) & (self.gaps <= STAGE_TOL)
        if is_done.any():
            lowered = np.where(is_done, ANNEAL_FACTOR * self.temperature, self.temperature)
            is_cold = lowered < MIN_TEMPERATURE * self._least_weights
            self.temperature = np.where(is_cold, 0.0, lowered)
            self._n_steps[is_done] = 0
            self._refresh(self.point.messages)
        active = self.active(tol)
        self.n_iter += 1
        self._n_steps[active] += 1
        is_slow = active & (self._n_steps > PATIENCE)
        if is_slow.any():
            self._initial_temperature[is_slow] /= ANNEAL_FACTOR
            self._restart(is_slow)
        try:
            direction = self._newton_direction()
        except IndefiniteError:  # rounding: beliefs are closer to hard constraints than numbers are
            self.is_stuck |= active
            return
        slopes = problem.slopes(self.point.residual, direction)
        lengths = np.where(active & (slopes < 0.0), 1.0, 0.0)
        slack = ROUNDING * (1.0 + np.abs(self.point.values))
        while True:
            moved = self.point.messages + problem.by_message(lengths) * direction
            trial = problem.dual(moved, self.temperature)
            sufficient = self.point.values + SUFFICIENT * lengths * slopes + slack
            refused = (lengths > 0.0) & ~(trial.values <= sufficient)
            if not refused.any():
                break
            lengths[refused] *= 0.5
            lengths[lengths < SHORTEST] = 0.0
        before = self.gaps
        self.point, self.gaps = trial, problem.gaps(trial.residual)
        # without a step there will be none later; with values equal to rounding, gaps must fall
        no_descent = -lengths * slopes <= slack
        self.is_stuck |= (
            active & no_descent & (self.gaps >= 0.5 * before) & (self.temperature == 0.0)
        )

    def _newton_direction(self) -> FloatArray:
        point, problem = self.point, self.problem
        unary_weights, factor_weights = problem.tempered_weights(self.temperature)
        hessian = MarginalHessian(
            problem.graph, point.unary, point.factors, unary_weights, factor_weights,
            smallest=SMALLEST, impossible=problem.impossible,
        )  # fmt: skip
        direction = np.zeros(len(point.messages))
        gradient, steps = np.zeros(len(point.unary)), np.zeros(len(point.unary))
        hessian.solve_once(point.residual, gradient, steps, direction)
        return direction
