r"""Beliefs under entropy weights for every configuration, by Newton's method on the dual.

The dual ``G(lam)`` (`_convex_problem`) is convex and smooth, and each step solves the node system
(`_node_system`): a few steps where message passing would need thousands of sweeps, any arity, and
weights that differ between the configurations of a table, for which there is no message update in
closed form.

Newton's method is at its best near the optimum.  It is brought there by *heat*: an equal amount is
added to all weights, so that the problem is easy, and taken away in stages.  Every stage is a
descent with a line search, and the last one, without heat, is the problem itself.

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
from fieldfit.inference.convex.convex_solver import ConvexSolver, Solution
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, NodeSystem

__all__ = ["ConvexDual"]

#: Heat falls to this share as soon as margins and beliefs of a stage agree to within `LOOSE`.
COOLING = 0.2
LOOSE = 0.1
#: Heat is gone when it is below this share of the least weight.
COLD = 0.2
#: First heat: this share of the largest score, and at least the largest weight.
HOT = 0.1
#: Steps of a stage after which it starts again with more heat.
PATIENCE = 60
#: A start of which margins and beliefs agree to within this needs no heat.
NEAR = 0.5
#: Line search: share of the promised descent that is enough, shortest step, rounding of values.
SUFFICIENT = 1e-4
SHORTEST = 1e-10
ROUNDING = 1e-14
#: In a step beliefs count as at least this: a label whose belief vanished may come back.
SMALLEST = 1e-30


@dataclass(frozen=True)
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

    entropy: Entropy = field(default_factory=Convex)
    tol: float = 1e-8
    max_iter: int = 500

    _work: ClassVar[str] = "step"
    _measure: ClassVar[str] = "largest disagreement of beliefs"

    def _solve(
        self, problem: ConvexProblem, init: InferenceResult | None, progress: Progress | None
    ) -> Solution:
        descent = _Descent(problem, start_messages(problem, init))
        while descent.active(self.tol).any() and descent.n_iter < self.max_iter:
            descent.step(self.tol)
            if progress is not None:
                progress(descent.n_iter, float(descent.gaps.max(initial=0.0)))
        point = descent.point
        if descent.heat.any():
            point = problem.dual(point.messages, np.zeros(problem.batch.n_examples))
        gaps = problem.gaps(point.lack)
        return Solution(
            beliefs=problem.beliefs(point.unary, point.factors),
            messages=point.messages,
            values=point.values,
            settled=gaps <= self.tol,
            residual=float(gaps.max(initial=0.0)),
            n_iter=descent.n_iter,
        )


class _Descent:
    """One run in progress; every example has its own heat and step length."""

    def __init__(self, problem: ConvexProblem, messages: FloatArray | None) -> None:
        self.problem = problem
        n_examples = problem.batch.n_examples
        self.n_iter = 0
        self.heat = np.zeros(n_examples)
        self.is_stuck = np.zeros(n_examples, dtype=np.bool_)
        self._least = problem.least_weights()
        largest = problem.factor_weights.max(initial=0.0), problem.unary_weights.max(initial=0.0)
        self._hot = np.maximum(HOT * problem.ranges(), max(largest))
        self._n_steps = np.zeros(n_examples, dtype=np.int64)
        self.point = problem.dual(problem.start() if messages is None else messages, self.heat)
        self.gaps = problem.gaps(self.point.lack)
        self._restart(self.gaps > NEAR)

    def _restart(self, examples: BoolArray) -> None:
        """Forget the multipliers of some examples and begin with heat."""
        if not examples.any():
            return
        self.heat = np.where(examples, self._hot, self.heat)
        fresh = np.where(
            self.problem.by_message(examples), self.problem.start(), self.point.messages
        )
        self._n_steps[examples] = 0
        self._refresh(fresh)

    def _refresh(self, messages: FloatArray) -> None:
        self.point = self.problem.dual(messages, self.heat)
        self.gaps = self.problem.gaps(self.point.lack)

    def active(self, tol: float) -> BoolArray:
        """Examples that are under way."""
        return ((self.gaps > tol) | (self.heat > 0.0)) & ~self.is_stuck

    def step(self, tol: float) -> None:
        """One step of all examples under way, and less heat where the stage is done."""
        problem = self.problem
        cooler = (self.heat > 0.0) & (self.gaps <= LOOSE)
        if cooler.any():
            heat = np.where(cooler, COOLING * self.heat, self.heat)
            self.heat = np.where(heat < COLD * self._least, 0.0, heat)
            self._n_steps[cooler] = 0
            self._refresh(self.point.messages)
        active = self.active(tol)
        self.n_iter += 1
        self._n_steps[active] += 1
        lost = active & (self._n_steps > PATIENCE)
        if lost.any():
            self._hot[lost] /= COOLING
            self._restart(lost)
        try:
            direction = self._direction()
        except IndefiniteError:  # rounding: beliefs are closer to hard constraints than numbers are
            self.is_stuck |= active
            return
        slopes = problem.slopes(self.point.lack, direction)
        lengths = np.where(active & (slopes < 0.0), 1.0, 0.0)
        slack = ROUNDING * (1.0 + np.abs(self.point.values))
        while True:
            moved = self.point.messages + problem.by_message(lengths) * direction
            trial = problem.dual(moved, self.heat)
            promised = self.point.values + SUFFICIENT * lengths * slopes + slack
            refused = (lengths > 0.0) & ~(trial.values <= promised)
            if not refused.any():
                break
            lengths[refused] *= 0.5
            lengths[lengths < SHORTEST] = 0.0
        before = self.gaps
        self.point, self.gaps = trial, problem.gaps(trial.lack)
        # without a step there will be none later; with values equal to rounding, gaps must fall
        no_descent = -lengths * slopes <= slack
        self.is_stuck |= active & no_descent & (self.gaps >= 0.5 * before) & (self.heat == 0.0)

    def _direction(self) -> FloatArray:
        point, problem = self.point, self.problem
        unary_weights, factor_weights = problem.heated(self.heat)
        system = NodeSystem(
            problem.graph, point.unary, point.factors, unary_weights, factor_weights,
            smallest=SMALLEST, impossible=problem.impossible,
        )  # fmt: skip
        messages = np.zeros(len(point.messages))
        system.correct(point.lack, np.zeros(len(point.unary)), np.zeros(len(point.unary)), messages)
        return messages
