r"""Central path of a free energy on the local polytope: primal-dual Newton steps with a barrier.

    min_b  F(b) - mu sum_a sum_y log b_a(y),     F(b) = - <th, b> + sum w b log b,

over consistent beliefs, with ``mu -> 0``.  With ``z = mu / b_a`` as a variable of its own
(primal-dual) a step ``d`` solves

    <d, D d> / 2 - <x, d> -> min,    D = diag((w_a + z) / b_a),  diag(w_i / b_i),
    x_a = th_a - w_a (log b_a + 1) + mu / b_a,    x_i = th_i - w_i (log b_i + 1)

over steps that make the beliefs consistent: one solve of the reduced KKT system
(`marginal_hessian`), with the entropy weight ``w_a + z`` for each configuration.  Then ``z`` moves
by ``mu / b_a - z - (z / b_a) d_a``; both go at most a fraction of the way to the boundary, and
``mu`` falls with the average of ``z b``.  The start need not be consistent.

Reference: Wright, "Primal-Dual Interior-Point Methods" (1997).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray
from fieldfit.entropy.weighted_entropy import weighted_beliefs
from fieldfit.errors import InvalidInputError
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.convex.convex_problem import ConvexProblem, Multipliers
from fieldfit.inference.second_order.kkt_pattern import batch_pattern
from fieldfit.inference.second_order.marginal_hessian import (
    HessianSolveResult,
    IndefiniteError,
    MarginalHessian,
)

__all__ = ["CentralPath", "PathState"]

#: First barrier parameter: this fraction of the range of the potentials, for an average belief.
INITIAL_BARRIER = 0.1
#: The barrier parameter becomes this fraction of the average of ``z b``, by the length of the last
#: step (longer than the second number).
REDUCTIONS = ((0.02, 0.99), (0.1, 0.9), (0.3, 0.5), (0.8, 0.2), (1.0, 0.0))
#: From a warm start changes must become this much smaller in every iteration.
FASTER = 0.2
#: Fraction of the way to the boundary.
BACK_OFF = 0.99
#: Solves in a step, iterative refinement included.
SOLVES = 3
#: Least pivots of the correlations of a factor.  Hard constraints, and beliefs near them, need a
#: small one; where rounding spoils a step, it is taken again with the next.
GUARDS = (1e-11, 1e-9, 1e-8)
#: A step has been spoilt if beliefs agree less well than before by this factor, and than this; what
#: is less is repaired by the steps that follow.
SPOILT = 10.0
SPOILT_GAP = 1e-6
#: Least belief of a possible configuration.
SMALLEST = 1e-250


@dataclass(frozen=True)
class PathState(Multipliers):
    """Multipliers, and the slack ``z`` of every configuration."""

    slack: FloatArray


class CentralPath(ABC):
    """One run in progress; every example has a barrier parameter and step lengths of its own."""

    def __init__(self, problem: ConvexProblem, tol: float) -> None:
        graph, n_examples = problem.graph, problem.batch.n_examples
        batch_pattern(problem.batch)
        self.problem, self.tol = problem, tol
        self.n_iter = 0
        self.active = np.ones(n_examples, dtype=np.bool_)
        self.converged = np.zeros(n_examples, dtype=np.bool_)
        self.changes = np.full(n_examples, np.inf)
        self.multipliers = np.zeros(int(graph.message_offsets[-1]))
        self.possible = np.isfinite(problem.tables) & problem.is_linking_entry
        self.possible_labels = ~problem.impossible
        self._is_warm = np.zeros(n_examples, dtype=np.bool_)
        self._guard = 0  # place in `GUARDS`
        self._isolated = expand(graph.degrees == 0, graph.unary_offsets)
        self._counts = np.maximum(self.by_table(np.add, self.possible.astype(np.float64)), 1.0)
        self.factors = _uniform(self.possible, graph.table_offsets)
        self.unary = self._unary_start()
        self._start = self.unary, self.factors
        scale = np.maximum(problem.ranges(), 1.0)
        average = self.by_table(np.add, self.factors) / self._counts
        self._first_barrier = INITIAL_BARRIER * scale * average
        self.barrier = self._first_barrier
        self.slack = self._over_beliefs(problem.by_table(self.barrier))
        self.gaps = problem.gaps(problem.residual(self.unary, self.factors))

    def _unary_start(self) -> FloatArray:
        """Equal beliefs; variables without factors, which have no barrier, are solved at once."""
        problem, graph = self.problem, self.problem.graph
        scores = np.where(self._isolated | problem.impossible, problem.unary, 0.0)
        weights = np.where(self._isolated, problem.unary_weights, 1.0)
        beliefs, logs = np.empty(len(scores)), np.empty(len(scores))
        weighted_beliefs(
            graph.unary_offsets, scores, weights, beliefs, logs, np.empty(graph.n_variables)
        )
        return np.where(self.possible_labels, np.maximum(beliefs, SMALLEST), 0.0)

    # -- where to begin -----------------------------------------------------------------------

    def warm_start(self, init: InferenceResult) -> None:
        """Begin at an earlier result, near the end of the path, as long as that goes well."""
        if not init.beliefs.graph.has_structure_of(self.problem.graph):
            raise InvalidInputError("init must be a result on a graph of this structure")
        slack = init.state.slack if isinstance(init.state, PathState) else None
        self.begin_at(init.beliefs.unary_values, init.beliefs.factor_values, slack)

    def begin_at(
        self, unary: FloatArray, factors: FloatArray, slack: FloatArray | None = None
    ) -> None:
        """Begin at these beliefs, without a barrier where no slack is given."""
        problem = self.problem
        self._is_warm[:] = True
        no_change = np.zeros(1)
        self.unary = _moved(unary, no_change, self.possible_labels)
        self.factors = _moved(factors, no_change, self.possible)
        self.slack = np.zeros(len(self.factors))
        if slack is not None:
            self.slack = np.where(self.possible, slack, 0.0)
        self.barrier = self._average_product()
        self.gaps = problem.gaps(problem.residual(self.unary, self.factors))

    def start_again(self, examples: BoolArray) -> None:
        """Begin in the middle after all, where steps from an earlier result do not converge."""
        problem = self.problem
        unary, factors = self._start
        self._is_warm &= ~examples
        self.unary = np.where(problem.by_unary(examples), unary, self.unary)
        self.factors = np.where(problem.by_table(examples), factors, self.factors)
        self.barrier = np.where(examples, self._first_barrier, self.barrier)
        slack = self._over_beliefs(problem.by_table(self.barrier))
        self.slack = np.where(problem.by_table(examples), slack, self.slack)
        self.gaps = problem.gaps(problem.residual(self.unary, self.factors))
        self.changes = np.where(examples, np.inf, self.changes)

    # -- what differs between free energies ---------------------------------------------------

    def hessian_weights(self) -> FloatArray:
        """Entropy weights of variables in the matrix of a step."""
        return self.problem.unary_weights

    def shortened(self, length: FloatArray, step: HessianSolveResult) -> FloatArray:
        """Lengths of a step, by example, at most those that leave beliefs positive."""
        return length

    @abstractmethod
    def is_solved(self, length: FloatArray) -> BoolArray:
        """Examples whose last step says that they have converged."""

    def give_way(self, examples: BoolArray) -> None:
        """Go on after a step that failed; without a larger guard these stay where they are."""
        if self._guard + 1 < len(GUARDS):
            self._guard += 1
        else:
            self.active &= ~examples

    # -- steps --------------------------------------------------------------------------------

    def step(self) -> None:
        """One Newton step of all examples that have not converged, and a smaller barrier."""
        self.n_iter += 1
        pull = self._over_beliefs(self.problem.by_table(self.barrier))
        try:
            found = self._newton_step(pull)
        except IndefiniteError:  # or rounding: beliefs are closer to hard constraints than numbers
            self._give_way_or_start_again(self.active)
            return
        slack_step = pull - self.slack - self.slack * self._over_beliefs(found.factors)
        longest = np.minimum(
            _longest(self.factors, found.factors, self.by_table),
            _longest(self.unary, found.unary, self._by_unary),
        )
        length = np.where(self.active, self.shortened(longest, found), 0.0)
        slack_length = _longest(self.slack, slack_step, self.by_table)
        was_warm, before = self._is_warm & self.active, self.changes
        moved = self._move(found, slack_step, length, np.where(self.active, slack_length, 0.0))
        solved = moved & self.is_solved(length)
        self.converged |= solved
        self.active &= ~solved
        if (spoilt := self.active & ~moved & ~was_warm).any():
            self.give_way(spoilt)
        shorter = np.where(moved, np.minimum(length, slack_length), 0.0)
        self.barrier = self._average_product() * np.select(
            [shorter >= least for _, least in REDUCTIONS], [fraction for fraction, _ in REDUCTIONS]
        )
        is_fast = moved & (length == 1.0) & (self.changes <= FASTER * before)
        if (slow := self.active & was_warm & ~is_fast).any():
            self.start_again(slow)

    def _give_way_or_start_again(self, examples: BoolArray) -> None:
        """What began at an earlier result begins in the middle before guards are raised."""
        if (warm := examples & self._is_warm).any():
            self.start_again(warm)
        else:
            self.give_way(examples)

    def _newton_step(self, pull: FloatArray) -> HessianSolveResult:
        problem = self.problem
        unary_gradient, gradient = self.gradients()
        weights = np.where(self.possible, problem.factor_weights + self.slack, 1.0)
        hessian = MarginalHessian(
            problem.graph, self.unary, self.factors, self.hessian_weights(), weights,
            impossible=problem.impossible, guard=GUARDS[self._guard],
        )  # fmt: skip
        return hessian.solve(unary_gradient, gradient + pull, self.unary, self.factors, SOLVES)

    def gradients(self) -> tuple[FloatArray, FloatArray]:
        """``- dF / db`` by unary and by table entry, 0 where nothing moves."""
        problem = self.problem
        logs = np.log(self.factors, out=np.zeros(len(self.factors)), where=self.possible)
        gradient = problem.tables - problem.factor_weights * (logs + 1.0)
        unary_logs = np.log(self.unary, out=np.zeros(len(self.unary)), where=self.possible_labels)
        unary_gradient = problem.unary - problem.unary_weights * (unary_logs + 1.0)
        return (
            np.where(self.possible_labels & ~self._isolated, unary_gradient, 0.0),
            np.where(self.possible, gradient, 0.0),
        )

    def _move(
        self,
        step: HessianSolveResult,
        slack_step: FloatArray,
        length: FloatArray,
        slack_length: FloatArray,
    ) -> BoolArray:
        """Move the examples for which rounding has not spoilt the step; which they are."""
        problem = self.problem
        unary, factors = self.moved(length, step)
        gaps = problem.gaps(problem.residual(unary, factors))
        moved = self.active & (gaps <= np.maximum(SPOILT_GAP, SPOILT * self.gaps))
        changes = problem.largest_by_example(
            np.abs(unary - self.unary), np.abs(factors - self.factors)
        )
        self.changes = np.where(moved, changes, self.changes)
        self.gaps = np.where(moved, gaps, self.gaps)
        self.factors = np.where(problem.by_table(moved), factors, self.factors)
        self.unary = np.where(problem.by_unary(moved), unary, self.unary)
        slack_change = problem.by_table(np.where(moved, slack_length, 0.0)) * slack_step
        self.slack = _moved(self.slack, slack_change, self.possible)
        self.multipliers = np.where(problem.by_message(moved), step.multipliers, self.multipliers)
        return moved

    def moved(self, length: FloatArray, step: HessianSolveResult) -> tuple[FloatArray, FloatArray]:
        """Beliefs of variables and factors some way along a step."""
        problem = self.problem
        return (
            _moved(self.unary, problem.by_unary(length) * step.unary, self.possible_labels),
            _moved(self.factors, problem.by_table(length) * step.factors, self.possible),
        )

    def normalised(self) -> tuple[FloatArray, FloatArray]:
        """The beliefs, each table scaled to the sum one."""
        graph = self.problem.graph
        parts = []
        for offsets, values in (
            (graph.unary_offsets, self.unary),
            (graph.table_offsets, self.factors),
        ):
            total = reduce_rows(np.add, values, offsets)
            parts.append(values / expand(np.where(total > 0.0, total, 1.0), offsets))
        return parts[0], parts[1]

    # -- sums -----------------------------------------------------------------------------------

    def _average_product(self) -> FloatArray:
        """The average of ``z b`` of each example."""
        return self.by_table(np.add, self.slack * self.factors) / self._counts

    def _over_beliefs(self, values: FloatArray) -> FloatArray:
        """Divided by the beliefs of factors, 0 where they are impossible."""
        return np.divide(values, self.factors, out=np.zeros(len(values)), where=self.possible)

    def by_table(self, combine: np.ufunc, values: FloatArray) -> FloatArray:
        """Table entries combined by example."""
        return reduce_rows(combine, values, self.problem.batch.table_offsets)

    def _by_unary(self, combine: np.ufunc, values: FloatArray) -> FloatArray:
        return reduce_rows(combine, values, self.problem.batch.unary_offsets)


def _uniform(possible: BoolArray, offsets: NDArray[np.int32]) -> FloatArray:
    """Equal beliefs of all that is possible in each table."""
    counts = reduce_rows(np.add, possible.astype(np.float64), offsets)
    return np.where(possible, 1.0 / expand(np.maximum(counts, 1.0), offsets), 0.0)


def _longest(values: FloatArray, step: FloatArray, by_example: Any) -> FloatArray:
    """How far each example may go: at most the whole step, and most of the way to the boundary."""
    loss = np.divide(-step, values, out=np.zeros(len(values)), where=values > 0.0)
    steepest = by_example(np.maximum, np.maximum(loss, 0.0))
    return np.asarray(np.minimum(1.0, BACK_OFF / np.maximum(steepest, BACK_OFF)))


def _moved(values: FloatArray, change: FloatArray, possible: BoolArray) -> FloatArray:
    return np.where(possible, np.maximum(values + change, SMALLEST), 0.0)
