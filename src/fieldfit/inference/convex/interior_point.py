r"""Primal-dual interior-point method for concave free energies on the local polytope.

    max_b  <th, b> - sum_a c_a <b_a, log b_a> - sum_i c_i <b_i, log b_i>

over consistent beliefs, for any entropy that is concave there: tree-reweighted, convex, Bethe's on
a graph with at most one cycle.  Strong potentials make the problem nearly a linear program, where
message passing is slow; a logarithmic barrier ``mu sum_a sum log b_a`` with ``mu -> 0`` leads there
in 15 to 30 Newton steps, whatever the potentials.  With ``z = mu / b_a`` as a variable of its own
(primal-dual) a step ``d`` solves

    <d, D d> / 2 - <x, d> -> min,    D = diag((c_a + z) / b_a),  diag(c_i / b_i),
    x_a = th_a - c_a (log b_a + 1) + mu / b_a,    x_i = th_i - c_i (log b_i + 1)

over steps that make the beliefs consistent: one solve of the reduced KKT system
(`marginal_hessian`), with the entropy weight ``c_a + z`` for each configuration.  Then ``z`` moves
by ``mu / b_a - z - (z / b_a) d_a``; both go at most a fraction of the way to the boundary, and
``mu`` falls with the average of ``z b``.  The start need not be consistent.  The multipliers of a
step make an upper bound (`split_dual`), so that the distance from the maximum is known.

References: Wright, "Primal-Dual Interior-Point Methods" (1997); Nesterov and Nemirovskii,
"Interior-Point Polynomial Algorithms in Convex Programming" (1994), section 5.1, for entropies as
functions compatible with the barrier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray
from fieldfit.entropy.configuration_weights import EntropyWeights
from fieldfit.entropy.counting_numbers import Entropy, TreeReweighted
from fieldfit.entropy.entropy_split import EntropySplit, split_entropy
from fieldfit.entropy.weighted_entropy import weighted_beliefs
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Progress
from fieldfit.inference.convex.convex_problem import ConvexProblem, Multipliers
from fieldfit.inference.convex.convex_solver import ConvexResult, ConvexSolver
from fieldfit.inference.convex.split_dual import split_dual_values
from fieldfit.inference.second_order.kkt_pattern import batch_pattern
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, MarginalHessian

__all__ = ["InteriorPoint", "interior_point"]

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


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(ConvexSolver):
    """Newton's method on a path through the inside of the local polytope.

    Takes 15 to 30 iterations where message passing takes thousands of sweeps: strong couplings,
    hard zeros.  An iteration factorises a sparse matrix with a row for every label but one of each
    variable.  The log-partition that it reports is an upper bound on the surrogate's maximum at any
    time.

    Parameters
    ----------
    entropy
        A concave entropy with positive numbers for factors, such as `TreeReweighted()`.
    tol
        Converged when beliefs of factors and variables agree to this, no belief changes by more in
        an iteration, and value and upper bound differ by at most this (relative to the value).
    max_iter
        Most iterations.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> potentials = ff.Potentials(graph, factors=[[[9.0, 0.0], [0.0, 9.0]]] * 12)
    >>> result = InteriorPoint().run(graph, potentials)
    >>> result.converged, result.bound, round(result.log_partition, 4)
    (True, 'upper', 108.6932)
    """

    entropy: Entropy = field(default_factory=TreeReweighted, kw_only=False)
    tol: float = 1e-8
    max_iter: int = 100

    _work: ClassVar[str] = "iteration"
    _measure: ClassVar[str] = "largest change of a belief"

    def _weights(self, batch: Batch, weights: EntropyWeights | None) -> EntropyWeights:
        if weights is not None:
            return super()._weights(batch, weights)
        counting = self.entropy.counting_numbers(batch.graph)
        linking = batch.graph.arities >= 2
        if not counting.concave or not np.all(counting.factor[linking] > 0.0):
            raise InvalidInputError(
                "entropy must be concave on the local polytope, with positive numbers for factors, "
                f"got {self.entropy!r}: {counting.reason}"
            )
        return EntropyWeights.of(self.entropy, batch.graph)

    def _solve(
        self, problem: ConvexProblem, init: InferenceResult | None, progress: Progress | None
    ) -> ConvexResult:
        split = None
        if not (problem.unary_weights > 0.0).all():  # then they are those of the entropy
            split = split_entropy(problem.graph, self.entropy.counting_numbers(problem.graph))
        return interior_point(problem, split, self.tol, self.max_iter, init, progress)


def interior_point(
    problem: ConvexProblem,
    split: EntropySplit | None,
    tol: float,
    max_iter: int,
    init: InferenceResult | None = None,
    progress: Progress | None = None,
) -> ConvexResult:
    """Solve a concave problem; without a split the dual of positive weights bounds it."""
    batch_pattern(problem.batch)
    path = _Path(problem, split, tol)
    if init is not None:
        path.warm_start(init)
    while path.active.any() and path.n_iter < max_iter:
        path.step()
        if progress is not None:
            progress(path.n_iter, float(path.changes.max(initial=0.0)))
    return ConvexResult(
        beliefs=problem.beliefs(*path.normalised()),
        multipliers=path.multipliers,
        values=path.bounds,
        converged=path.converged,
        residual=float(path.changes.max(initial=0.0)),
        n_iter=path.n_iter,
        state=PathState(path.multipliers, path.slack),
    )


class _Path:
    """One run in progress; every example has a barrier parameter and step lengths of its own."""

    def __init__(self, problem: ConvexProblem, split: EntropySplit | None, tol: float) -> None:
        graph, n_examples = problem.graph, problem.batch.n_examples
        self.problem, self._split, self._tol = problem, split, tol
        self.n_iter = 0
        self.active = np.ones(n_examples, dtype=np.bool_)
        self.converged = np.zeros(n_examples, dtype=np.bool_)
        self._guard = 0  # place in `GUARDS`
        self.changes = np.full(n_examples, np.inf)
        self.multipliers = np.zeros(int(graph.message_offsets[-1]))
        self._is_warm = np.zeros(n_examples, dtype=np.bool_)
        self._possible = np.isfinite(problem.tables) & problem.is_linking_entry
        self._possible_labels = ~problem.impossible
        self._isolated = expand(graph.degrees == 0, graph.unary_offsets)
        self._counts = np.maximum(self._by_table(np.add, self._possible.astype(np.float64)), 1.0)
        self.factors = _uniform(self._possible, graph.table_offsets)
        self.unary = self._unary_start()
        self._start = self.unary, self.factors
        scale = np.maximum(problem.ranges(), 1.0)
        self._first_barrier = INITIAL_BARRIER * scale * self._by_table(np.add, self.factors)
        self._first_barrier /= self._counts
        self._barrier = self._first_barrier
        self.slack = self._divide(problem.by_table(self._barrier))
        self.bounds = self._bounds()
        self._gaps = problem.gaps(problem.residual(self.unary, self.factors))

    def warm_start(self, init: InferenceResult) -> None:
        """Begin at an earlier result, near the end of the path, as long as that goes well."""
        problem = self.problem
        if not init.beliefs.graph.has_structure_of(problem.graph):
            raise InvalidInputError("init must be a result on a graph of this structure")
        self._is_warm[:] = True
        no_change = np.zeros(1)
        self.unary = _moved(init.beliefs.unary_values, no_change, self._possible_labels)
        self.factors = _moved(init.beliefs.factor_values, no_change, self._possible)
        self.slack = np.zeros(len(self.factors))
        if isinstance(init.state, PathState):
            self.slack = np.where(self._possible, init.state.slack, 0.0)
        self._barrier = self._by_table(np.add, self.slack * self.factors) / self._counts
        self._gaps = problem.gaps(problem.residual(self.unary, self.factors))

    def _start_again(self, examples: BoolArray) -> None:
        """Begin in the middle after all."""
        problem = self.problem
        unary, factors = self._start
        self._is_warm &= ~examples
        self.unary = np.where(problem.by_unary(examples), unary, self.unary)
        self.factors = np.where(problem.by_table(examples), factors, self.factors)
        self._barrier = np.where(examples, self._first_barrier, self._barrier)
        slack = self._divide(problem.by_table(self._barrier))
        self.slack = np.where(problem.by_table(examples), slack, self.slack)
        self._gaps = problem.gaps(problem.residual(self.unary, self.factors))
        self.changes = np.where(examples, np.inf, self.changes)

    def _unary_start(self) -> FloatArray:
        """Equal beliefs; variables without factors, which have no barrier, are solved at once."""
        problem, graph = self.problem, self.problem.graph
        scores = np.where(self._isolated | problem.impossible, problem.unary, 0.0)
        weights = np.where(self._isolated, problem.unary_weights, 1.0)
        beliefs, logs = np.empty(len(scores)), np.empty(len(scores))
        weighted_beliefs(
            graph.unary_offsets, scores, weights, beliefs, logs, np.empty(graph.n_variables)
        )
        return np.where(self._possible_labels, np.maximum(beliefs, SMALLEST), 0.0)

    def step(self) -> None:
        """One Newton step of all examples that have not converged, and a smaller barrier."""
        problem = self.problem
        self.n_iter += 1
        pull = self._divide(problem.by_table(self._barrier))
        try:
            found = self._newton_step(pull)
        except IndefiniteError:  # rounding: beliefs are closer to hard constraints than numbers are
            self._give_way(self.active)
            return
        slack_step = pull - self.slack - self.slack * self._divide(found.factors)
        length = np.minimum(
            _longest(self.factors, found.factors, self._by_table),
            _longest(self.unary, found.unary, self._by_unary),
        )
        slack_length = _longest(self.slack, slack_step, self._by_table)
        length, slack_length = np.where(self.active, [length, slack_length], 0.0)
        factors = _moved(self.factors, problem.by_table(length) * found.factors, self._possible)
        unary = _moved(self.unary, problem.by_unary(length) * found.unary, self._possible_labels)
        gaps = problem.gaps(problem.residual(unary, factors))
        spoilt = self.active & ~(gaps <= np.maximum(SPOILT_GAP, SPOILT * self._gaps))
        moved = self.active & ~spoilt
        changes = problem.largest_by_example(
            np.abs(unary - self.unary), np.abs(factors - self.factors)
        )
        slow = moved & self._is_warm & ~((length == 1.0) & (changes <= FASTER * self.changes))
        self.changes = np.where(moved, changes, self.changes)
        self._gaps = np.where(moved, gaps, self._gaps)
        self.factors = np.where(problem.by_table(moved), factors, self.factors)
        self.unary = np.where(problem.by_unary(moved), unary, self.unary)
        slack_length = np.where(moved, slack_length, 0.0)
        self.slack = _moved(self.slack, problem.by_table(slack_length) * slack_step, self._possible)
        self.multipliers = np.where(problem.by_message(moved), found.multipliers, self.multipliers)
        self._judge(moved, length)
        if spoilt.any():
            self._give_way(spoilt)
        length = np.where(moved, length, 0.0)
        average = self._by_table(np.add, self.slack * self.factors) / self._counts
        shorter = np.minimum(length, slack_length)
        self._barrier = average * np.select(
            [shorter >= least for _, least in REDUCTIONS], [fraction for fraction, _ in REDUCTIONS]
        )
        slow = self.active & (slow | (spoilt & self._is_warm))
        if slow.any():
            self._start_again(slow)

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

    def _newton_step(self, pull: FloatArray) -> Any:
        problem = self.problem
        logs = np.log(self.factors, out=np.zeros(len(self.factors)), where=self._possible)
        gradient = problem.tables - problem.factor_weights * (logs + 1.0) + pull
        unary_logs = np.log(self.unary, out=np.zeros(len(self.unary)), where=self._possible_labels)
        unary_gradient = problem.unary - problem.unary_weights * (unary_logs + 1.0)
        weights = np.where(self._possible, problem.factor_weights + self.slack, 1.0)
        hessian = MarginalHessian(
            problem.graph, self.unary, self.factors, problem.unary_weights, weights,
            impossible=problem.impossible, guard=GUARDS[self._guard],
        )  # fmt: skip
        return hessian.solve(
            np.where(self._possible_labels & ~self._isolated, unary_gradient, 0.0),
            np.where(self._possible, gradient, 0.0), self.unary, self.factors, SOLVES,
        )  # fmt: skip

    def _judge(self, moved: BoolArray, length: FloatArray) -> None:
        """Bounds at the new multipliers, kept if smaller, and which examples have converged."""
        problem, tol = self.problem, self._tol
        self.bounds = np.where(moved, np.minimum(self.bounds, self._bounds()), self.bounds)
        values = problem.primal(self.unary, self.factors, np.zeros(problem.batch.n_examples))
        distance = np.abs(self.bounds - values) / np.maximum(1.0, np.abs(values))
        done = moved & (length == 1.0) & (self.changes <= tol) & (self._gaps <= tol)
        done &= distance <= tol
        self.converged |= done
        self.active &= ~done

    def _give_way(self, spoilt: BoolArray) -> None:
        """Go on with a larger guard; without one, these examples stay where they are."""
        if self._guard + 1 < len(GUARDS):
            self._guard += 1
        else:
            self.active &= ~spoilt

    def _bounds(self) -> FloatArray:
        problem = self.problem
        if self._split is None:
            return problem.dual(self.multipliers, np.zeros(problem.batch.n_examples)).values
        return problem.constants + split_dual_values(
            problem.batch, problem.unary, problem.tables, self._split, self.multipliers
        )

    def _divide(self, values: FloatArray) -> FloatArray:
        """Divided by the beliefs of factors, 0 where they are impossible."""
        return np.divide(values, self.factors, out=np.zeros(len(values)), where=self._possible)

    def _by_table(self, combine: np.ufunc, values: FloatArray) -> FloatArray:
        batch = self.problem.batch
        return reduce_rows(combine, values, batch.graph.table_offsets[batch.factor_offsets])

    def _by_unary(self, combine: np.ufunc, values: FloatArray) -> FloatArray:
        batch = self.problem.batch
        return reduce_rows(combine, values, batch.graph.unary_offsets[batch.variable_offsets])


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
