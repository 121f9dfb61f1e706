r"""Interior-point descent on Bethe's free energy, where concave rounds would take too many.

Bethe's free energy ``F(b)`` is the central path's with ``w_a = 1`` and ``w_i = 1 - d_i``: not
convex, but its gradient is known.  A step solves the system of `central_path` with the weights

    w_i = max(1 - d_i, 0) + s min(1 - d_i, 0)

in its matrix.  At ``s = 0`` this is one Newton step of the concave problem that the double loop
(`double_loop`) solves in a round; at ``s = 1`` it is Newton's own.  ``s`` becomes smaller as long
as the matrix is not positive definite, and grows again after whole steps, so that the last steps to
a minimum converge quadratically.  A line search on ``F - mu sum log b`` makes it a descent.  Where
the steps vanish is a stationary point, and so a fixed point of belief propagation.

References: Yuille, "CCCP algorithms to minimize the Bethe and Kikuchi free energies", Neural
Computation 14 (2002), for ``s = 0``; Nocedal and Wright, "Numerical Optimization", section 19.3,
for line searches of interior-point methods.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fieldfit._typing import BoolArray, FloatArray
from fieldfit.entropy.counting_numbers import Bethe
from fieldfit.entropy.weighted_entropy import weighted_beliefs
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Progress, ending, joined
from fieldfit.inference.convex.central_path import CentralPath
from fieldfit.inference.convex.convex_problem import ConvexProblem
from fieldfit.inference.convex.split_dual import messages_of_multipliers
from fieldfit.inference.messages.message_arrays import State
from fieldfit.inference.second_order.kkt_pattern import kkt_pattern
from fieldfit.inference.second_order.marginal_hessian import HessianSolveResult

__all__ = ["bethe_interior_point", "fits_in_memory"]

#: Factors by which ``s`` falls after a matrix that was not positive definite, and grows after a
#: whole step.  With 0.5 and 2 it is often half of what is possible, and saddles are left slowly.
FEWER = 0.7
MORE = 1.15
#: Below this ``s`` becomes zero, where the matrix is always positive definite; and what it returns
#: with.
LEAST_SHARE = 0.05
#: Line search: sufficient fraction of the slope, most halvings, rounding of values.
SUFFICIENT = 1e-4
MAX_HALVINGS = 30
ROUNDING = 1e-12
#: Values of beliefs that agree less well than this are not compared.
COMPARABLE = 1e-8
#: Fraction of the tolerance that steps other than Newton's must reach.
LINEAR = 1e-3
#: Multiple of the tolerance to which one sweep of propagation must reproduce the beliefs.
VERIFIED = 100.0
#: Variables of one example for which the reduced KKT system is tried.
MAX_VARIABLES = 50_000


def fits_in_memory(batch: Batch) -> bool:
    """True if the system of a step can be factorised for each example."""
    if np.diff(batch.variable_offsets).max(initial=0) > MAX_VARIABLES:
        return False
    return all(kkt_pattern(graph).is_direct for graph in batch.graphs)


def bethe_interior_point(
    batch: Batch,
    unary: FloatArray,
    tables: FloatArray,
    tol: float,
    max_iter: int,
    progress: Progress | None = None,
    start: Beliefs | None = None,
) -> InferenceResult:
    """A stationary point of Bethe's free energy of each example, with the messages that make it.

    ``unary`` are potentials with evidence, those of factors of arity one included.  Examples are
    treated one by one: each needs an ``s`` of its own, and tries of its own to find it.  They begin
    in the middle; with ``start`` at these beliefs, and an example whose steps do not converge fast
    from there is given up, because further away they might end at another stationary point.
    """
    first, table = batch.unary_offsets, batch.table_offsets
    results = []
    for m, graph in enumerate(batch.graphs):
        own, entries = slice(first[m], first[m + 1]), slice(table[m], table[m + 1])
        begin = None
        if start is not None:
            begin = start.unary_values[own], start.factor_values[entries]
        results.append(_solve(graph, unary[own], tables[entries], tol, max_iter, progress, begin))
    states = [result.state for result in results]
    return replace(
        joined(batch, results),
        n_iter=sum(result.n_iter for result in results),
        state=State(
            np.concatenate([state.message for state in states]),
            np.concatenate([state.log_belief for state in states]),
        ),
    )


def _solve(
    graph: FactorGraph,
    unary: FloatArray,
    tables: FloatArray,
    tol: float,
    max_iter: int,
    progress: Progress | None,
    begin: tuple[FloatArray, FloatArray] | None,
) -> InferenceResult:
    counting = Bethe().counting_numbers(graph)
    problem = ConvexProblem(
        Batch.of([graph]), unary, tables, expand(counting.variable, graph.unary_offsets),
        expand(np.where(graph.arities >= 2, 1.0, 0.0), graph.table_offsets),
    )  # fmt: skip
    path = _BethePath(problem, tol, stays=begin is not None)
    if begin is not None:
        path.begin_at(*begin)
    while path.active.any() and path.n_iter < max_iter:
        path.step()
        if progress is not None:
            progress(path.n_iter, float(path.changes.max(initial=0.0)))
    values = problem.primal(path.unary, path.factors, np.zeros(1))
    residual = float(path.changes.max(initial=0.0))
    measure = f"largest change of a belief {residual:.2g} after {path.n_iter} iterations"
    state = _state(problem, path)
    distance = _distance(problem, path, state)
    if path.converged[0] and distance > VERIFIED * tol:
        path.converged[:] = False
        residual = distance
        measure = (
            f"propagation would move a belief by {distance:.2g} after {path.n_iter} iterations"
        )
    return InferenceResult(
        beliefs=problem.beliefs(*path.normalised()),
        log_partition=float(values[0]),
        bound=None,
        converged=bool(path.converged[0]),
        n_iter=path.n_iter,
        residual=residual,
        status=ending(path.converged, measure, tol),
        method="bethe_interior_point",
        log_partitions=values,
        converged_examples=path.converged,
        state=state,
    )


class _BethePath(CentralPath):
    """The path of Bethe's free energy; every example has its own ``s``.

    With ``stays`` an example never leaves the beliefs that it began at for the middle.
    """

    def __init__(self, problem: ConvexProblem, tol: float, *, stays: bool) -> None:
        super().__init__(problem, tol)
        self._stays = stays
        self._share = np.ones(problem.batch.n_examples)

    def start_again(self, examples: BoolArray) -> None:
        """Where there is no way back to the middle, give the example up."""
        if self._stays:
            self.active &= ~examples
        else:
            super().start_again(examples)

    def hessian_weights(self) -> FloatArray:
        weights = self.problem.unary_weights
        share = self.problem.by_unary(self._share)
        return np.asarray(np.maximum(weights, 0.0) + share * np.minimum(weights, 0.0))

    def give_way(self, examples: BoolArray) -> None:
        """A matrix that is not positive definite becomes so with a smaller ``s``."""
        if (self._share[examples] > 0.0).any():
            smaller = np.where(self._share > LEAST_SHARE, FEWER * self._share, 0.0)
            self._share = np.where(examples, smaller, self._share)
        else:
            super().give_way(examples)

    def shortened(self, length: FloatArray, step: HessianSolveResult) -> FloatArray:
        """Halved until the value falls enough, where beliefs agree."""
        length, compared = length.copy(), self.active & (self.gaps <= COMPARABLE)
        before = self._merit(self.unary, self.factors)
        slope = self._slope(step)
        slack = ROUNDING * (1.0 + np.abs(before))
        for _ in range(MAX_HALVINGS):
            after = self._merit(*self.moved(length, step))
            refused = compared & ~(after <= before + SUFFICIENT * length * slope + slack)
            if not refused.any():
                break
            length[refused] *= 0.5
        whole = length == 1.0
        self._share = np.where(
            whole & self.active, np.clip(MORE * self._share, LEAST_SHARE, 1.0), self._share
        )
        return length

    def _slope(self, step: HessianSolveResult) -> FloatArray:
        problem = self.problem
        unary_gradient, gradient = self.gradients()
        pull = np.divide(
            problem.by_table(self.barrier), self.factors, out=np.zeros(len(self.factors)),
            where=self.possible,
        )  # fmt: skip
        by_table = self.by_table(np.add, (gradient + pull) * step.factors)
        offsets = problem.batch.unary_offsets
        return -by_table - reduce_rows(np.add, unary_gradient * step.unary, offsets)

    def _merit(self, unary: FloatArray, factors: FloatArray) -> FloatArray:
        problem = self.problem
        logs = np.log(factors, out=np.zeros(len(factors)), where=self.possible)
        values = problem.primal(unary, factors, np.zeros(problem.batch.n_examples))
        return np.asarray(-values - self.barrier * self.by_table(np.add, logs))

    def is_solved(self, length: FloatArray) -> BoolArray:
        """A whole step that changes nothing, and no barrier to speak of.

        Newton's own steps converge quadratically, others by a constant factor: what is left is then
        many times the last change.
        """
        least = np.where(self._share == 1.0, self.tol, LINEAR * self.tol)
        solved = (length == 1.0) & (self.changes <= least) & (self.gaps <= self.tol)
        return np.asarray(solved & (self.by_table(np.add, self.slack * self.factors) <= self.tol))


def _distance(problem: ConvexProblem, path: _BethePath, state: State) -> float:
    """How far the beliefs that the messages make are from those of the path.

    Strong couplings tie beliefs together to more digits than they have: then they agree with each
    other, and yet are not what propagation would make of them.
    """
    graph = problem.graph
    scores = problem.unary.copy()
    np.add.at(scores, problem.entries, state.message)
    beliefs, logs = np.empty(len(scores)), np.empty(len(scores))
    weights, values = np.ones(len(scores)), np.empty(graph.n_variables)
    weighted_beliefs(graph.unary_offsets, scores, weights, beliefs, logs, values)
    return float(np.abs(beliefs - path.normalised()[0]).max(initial=0.0))


def _state(problem: ConvexProblem, path: _BethePath) -> State:
    """Messages, and logarithms of beliefs of variables, both with maximum 0."""
    graph = problem.graph
    weights = np.ones(graph.n_factors)
    message = messages_of_multipliers(graph, problem.tables, weights, path.multipliers)
    tops = reduce_rows(np.maximum, message, graph.message_offsets)
    message -= expand(np.where(np.isfinite(tops), tops, 0.0), graph.message_offsets)
    log_belief = np.full(len(path.unary), -np.inf)
    np.log(path.unary, out=log_belief, where=path.unary > 0.0)
    tops = reduce_rows(np.maximum, log_belief, graph.unary_offsets)
    return State(message, log_belief - expand(tops, graph.unary_offsets))
