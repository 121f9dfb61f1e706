"""Solves of the node system (`kernels.node_system`): the pattern once, numbers as they come.

The order of elimination and the pattern of the factor are found once for each graph and kept as
long as it lives.  A batch is a union of graphs, so its system falls apart into those of the
examples.  Where the factorisation would take too much time or memory, conjugate gradients do
instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit.entropy.weighted_entropy import add_to_margins, add_to_tables, subtract_from_unary
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.inference.second_order.hessian_blocks import (
    Blocks,
    fill_blocks,
    node_matrix,
    slot_entries,
    widest,
)
from fieldfit.numeric.cholesky import (
    conjugate_gradients,
    factorise,
    factorise_blocks,
    solve_blocks,
    solve_factorised,
)
from fieldfit.numeric.compile import kernel

__all__ = [
    "IndefiniteError",
    "NodeSystem",
    "Response",
    "fill_node_matrix",
    "fill_right_hand_side",
    "recover_steps",
    "respond",
]

# -- Node system ---------------------------------------------------------------------------
# How beliefs give way to forces: the linear system of a concave problem, factors eliminated.
#
# Let ``F(b) = sum_a w_a b_a log b_a + sum_i w_i b_i log b_i`` have a weight for every
# configuration. Its second derivative is diagonal, and a step ``d`` that keeps the beliefs
# consistent under forces ``x`` is
#
#     d_a = c_a (x_a + sum_i lam_ai - const),   c_a = b_a / w_a,     margins of d_a = q_i - r_ai
#     (w_i / b_i) q_i + sum_a lam_ai - const = x_i
#
# where ``q_i`` is the step of the beliefs of variable ``i`` and ``r`` what margins lack at the
# start. With the covariances ``C_a`` of label indicators under ``c_a`` (centred, the label of
# largest belief of each variable left out) the multipliers of a factor follow from the steps of its
# variables, ``lam_a = C_a^-1 (q_a - r_a)``, which leaves a system for variables alone,
#
#     (N + sum_a P_a' C_a^-1 P_a) q = x + sum_a P_a' C_a^-1 r_a,
#     N_i = diag(w_i / b_i) + w_i(ref) / b_i(ref)
#
# of size ``sum_i (K_i - 1)`` and with the sparsity of the graph.  It is positive definite whenever
# ``F`` is convex on the consistent beliefs, even if some weights of variables are zero or negative.
#
# **Range.**  The unknowns are ``z = q / sqrt(b)``: then ``N`` is of the size of the weights and
# ``C_a`` of their inverse, whatever the beliefs are.  Factors that tie variables together (a hard
# constraint, or beliefs next to one) make ``C_a`` singular; the pivots of its correlations are kept
# above ``GUARD``.  That spoils the solution by as much, and a repetition with what is left
# (`respond` measures it) restores it.


@kernel
def fill_node_matrix(
    structure: Any,
    pattern: Any,
    blocks: Any,
    beliefs: FloatArray,
    weights: FloatArray,
    values: FloatArray,
) -> None:
    """The upper triangle of the node system, column by column."""
    values[:] = 0.0
    for i in range(len(structure.cardinalities)):
        begin = structure.unary_offsets[i]
        n = structure.cardinalities[i] - 1
        start, length = pattern.column_starts[i], pattern.column_lengths[i]
        own = length - n
        reference = blocks.reference[i]
        common = weights[begin + reference] / beliefs[begin + reference]
        for k in range(n):
            label = k + (1 if k >= reference else 0)
            size = blocks.scale[begin + label]
            place = start + k * length + own
            if size == 0.0 or not blocks.free[i]:
                values[place + k] = 1.0
                continue
            for v in range(n):
                other = v + (1 if v >= reference else 0)
                values[place + v] = common * size * blocks.scale[begin + other]
            # where a belief was raised to the least one, so is w / b lowered
            values[place + k] += weights[begin + label]
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin, end = pattern.inverse_offsets[factor], pattern.inverse_offsets[factor + 1]
        if end == begin:
            continue
        inverse = blocks.inverses[begin:end]
        n = 0
        for slot in range(first, stop):
            n += structure.cardinalities[structure.slot_variables[slot]] - 1
        arity = stop - first
        column_base = 0
        for q in range(arity):
            right = structure.slot_variables[first + q]
            n_right = structure.cardinalities[right] - 1
            start, length = pattern.column_starts[right], pattern.column_lengths[right]
            row_base = 0
            for p in range(arity):
                left = structure.slot_variables[first + p]
                n_left = structure.cardinalities[left] - 1
                within = pattern.block_rows[pattern.block_offsets[factor] + p * arity + q]
                if within >= 0 and blocks.free[left] and blocks.free[right]:
                    for v in range(n_right):
                        place = start + v * length + within
                        source = (column_base + v) * n + row_base
                        for u in range(n_left):
                            values[place + u] += inverse[source + u]
                row_base += n_left
            column_base += n_right


@kernel
def _gather_lack(structure: Any, first: int, stop: int, blocks: Any, lack: FloatArray,
                 out: FloatArray) -> int:  # fmt: skip
    """What the margins of one factor lack, in scaled unknowns; returns their number."""
    n = 0
    for slot in range(first, stop):
        variable = structure.slot_variables[slot]
        begin, source = structure.unary_offsets[variable], structure.message_offsets[slot]
        for y in range(structure.cardinalities[variable]):
            if y != blocks.reference[variable]:
                size = blocks.scale[begin + y]
                out[n] = lack[source + y] / size if size > 0.0 else 0.0
                n += 1
    return n


@kernel
def fill_right_hand_side(
    structure: Any, pattern: Any, blocks: Any, force: FloatArray, lack: FloatArray, out: FloatArray
) -> None:
    """``x + sum_a P_a' C_a^-1 r_a`` for forces by unary entry and ``r`` by message entry."""
    for i in range(len(structure.cardinalities)):
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], pattern.rows[i]
        for y in range(structure.cardinalities[i]):
            if y == reference:
                continue
            size = blocks.scale[begin + y] if blocks.free[i] else 0.0
            out[row] = size * (force[begin + y] - force[begin + reference]) if size > 0.0 else 0.0
            row += 1
    scaled = np.empty(widest(structure))
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin = pattern.inverse_offsets[factor]
        if pattern.inverse_offsets[factor + 1] == begin:
            continue
        n = _gather_lack(structure, first, stop, blocks, lack, scaled)
        base = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            count = structure.cardinalities[variable] - 1
            if blocks.free[variable]:
                for u in range(count):
                    total = 0.0
                    for v in range(n):
                        total += blocks.inverses[begin + (base + u) * n + v] * scaled[v]
                    out[pattern.rows[variable] + u] += total
            base += count
    for i in range(len(structure.cardinalities)):  # impossible labels do not move
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], pattern.rows[i]
        for y in range(structure.cardinalities[i]):
            if y != reference:
                if blocks.scale[begin + y] == 0.0 or not blocks.free[i]:
                    out[row] = 0.0
                row += 1


@kernel
def recover_steps(
    structure: Any,
    pattern: Any,
    blocks: Any,
    solution: FloatArray,
    lack: FloatArray,
    steps: FloatArray,
    messages: FloatArray,
) -> None:
    """Add ``q`` to the steps of variables, and ``C_a^-1 (q_a - r_a)`` to the multipliers."""
    for i in range(len(structure.cardinalities)):
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], pattern.rows[i]
        total = 0.0
        for y in range(structure.cardinalities[i]):
            if y != reference:
                step = blocks.scale[begin + y] * solution[row]
                steps[begin + y] += step
                total += step
                row += 1
        steps[begin + reference] -= total
    scaled = np.empty(widest(structure))
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin = pattern.inverse_offsets[factor]
        if pattern.inverse_offsets[factor + 1] == begin:
            continue
        n = _gather_lack(structure, first, stop, blocks, lack, scaled)
        u = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for k in range(structure.cardinalities[variable] - 1):
                scaled[u] = solution[pattern.rows[variable] + k] - scaled[u]
                u += 1
        u = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            entry, target = structure.unary_offsets[variable], structure.message_offsets[slot]
            for y in range(structure.cardinalities[variable]):
                if y == blocks.reference[variable]:
                    continue
                total = 0.0
                for v in range(n):
                    total += blocks.inverses[begin + u * n + v] * scaled[v]
                if blocks.scale[entry + y] > 0.0:
                    messages[target + y] += total / blocks.scale[entry + y]
                u += 1


@kernel
def respond(offsets: IntArray, compliance: FloatArray, tables: FloatArray) -> None:
    """``c (x - <c, x> / sum c)`` for every vector, in place; 0 where ``c`` is."""
    for k in range(len(offsets) - 1):
        begin, end = offsets[k], offsets[k + 1]
        total, mean = 0.0, 0.0
        for z in range(begin, end):
            if compliance[z] > 0.0:
                total += compliance[z]
                mean += compliance[z] * tables[z]
        mean = mean / total if total > 0.0 else 0.0
        for z in range(begin, end):
            tables[z] = compliance[z] * (tables[z] - mean) if compliance[z] > 0.0 else 0.0


# -- The algorithm -------------------------------------------------------------------------


#: Conjugate gradients: the residual falls to this share of its size.  They are repeated for what is
#: left, so that it need not be less.
CG_TOL = 1e-10
CG_MAX_ITER = 5000
#: Solves with what is left of the residuals, at most and at least (the largest residual hides
#: others where beliefs differ by many orders), and the share of the first residual that is then
#: good enough.
MAX_ROUNDS = 8
MIN_ROUNDS = 2
ENOUGH = 1e-13
#: Least pivot of a factorisation, as a share of the diagonal, where no weight is negative so that
#: the system must be positive definite.
PIVOT_GUARD = 1e-13
#: Least belief of a label in a system: its square root must not overflow when it is divided by.
SMALLEST = 1e-300


class IndefiniteError(ArithmeticError):
    """The node system is not positive definite, or too nearly so to be solved.

    The entropy is not concave at these beliefs or, with positive weights, so nearly flat in some
    direction that rounding decides.
    """


@dataclass(frozen=True)
class Response:
    """A step that leaves beliefs consistent.

    ``unary`` and ``factors`` are the steps, ``messages`` the multipliers of consistency (by message
    entry), and ``residual`` the share of the forces that is left unbalanced.
    """

    unary: FloatArray
    factors: FloatArray
    messages: FloatArray
    residual: float


class NodeSystem:
    """The system at some beliefs and weights; raises `IndefiniteError` if it is none of a maximum.

    Parameters
    ----------
    graph
        The structure.
    unary, factors
        Beliefs; the system is that of the second derivative ``w / b`` there.
    unary_weights, factor_weights
        Entropy weights by configuration, those of factors positive.
    free
        Variables that may move; all if ``None``.
    smallest
        Beliefs of variables are taken as at least this, unless a label is ``impossible``.
    impossible
        Labels (unary entries) without weight; those of belief zero if ``None``.
    """

    def __init__(
        self,
        graph: FactorGraph,
        unary: FloatArray,
        factors: FloatArray,
        unary_weights: FloatArray,
        factor_weights: FloatArray,
        *,
        free: BoolArray | None = None,
        smallest: float = SMALLEST,
        impossible: BoolArray | None = None,
        direct: bool | None = None,
    ) -> None:
        self.graph = graph
        self.matrix = node_matrix(graph)
        is_dead = unary <= 0.0 if impossible is None else impossible
        self._unary = np.where(is_dead, 0.0, np.maximum(unary, smallest))
        self._stiffness = np.zeros(len(unary))
        np.divide(unary_weights, self._unary, out=self._stiffness, where=self._unary > 0.0)
        used = factor_weights > 0.0  # the others belong to factors without entropy
        self.compliance = np.zeros(len(factors))
        np.divide(factors, factor_weights, out=self.compliance, where=used)
        self._blocks = Blocks(
            scale=np.sqrt(self._unary),
            reference=_largest(graph, self._unary),
            free=np.ones(graph.n_variables, dtype=np.bool_) if free is None else free,
            inverses=np.empty(int(self.matrix.pattern.inverse_offsets[-1])),
        )
        fill_blocks(graph.structure, self.matrix.pattern, self.compliance, self._blocks)
        self._values = np.empty(len(self.matrix.indices))
        fill_node_matrix(
            graph.structure, self.matrix.pattern, self._blocks, self._unary,
            np.ascontiguousarray(unary_weights), self._values,
        )  # fmt: skip
        self._guard = PIVOT_GUARD if unary_weights.min(initial=0.0) >= 0.0 else 0.0
        self._is_direct = self.matrix.is_direct if direct is None else direct
        if self._is_direct:
            self._factorise()

    def _factorise(self) -> None:
        matrix = self.matrix
        width = max(len(matrix.labels) - 1, 1)
        n_blocks = int(matrix.shape.starts[-1])
        self._rows = np.empty(n_blocks, dtype=np.int32)
        self._lower = np.empty(n_blocks * width**2)
        # roots of the diagonal blocks, or inverse pivots where blocks are single numbers
        self._diagonal = np.empty((len(matrix.indptr) - 1) * width)
        arguments = (
            matrix.indptr, matrix.indices, self._values, matrix.shape, self._rows, self._lower,
            self._diagonal, self._guard,
        )  # fmt: skip
        if matrix.labels:
            bad = factorise_blocks(matrix.labels, *arguments)
        else:
            bad = factorise(*arguments)
        if bad >= 0:
            raise IndefiniteError("the node system is not positive definite")

    def _solve(self, right: FloatArray) -> FloatArray:
        matrix = self.matrix
        if self._is_direct:
            factor = (matrix.shape, self._rows, self._lower, self._diagonal, right)
            if matrix.labels:
                solve_blocks(matrix.labels, *factor)
            else:
                solve_factorised(*factor)
        elif (
            conjugate_gradients(
                matrix.indptr, matrix.indices, self._values, CG_TOL, CG_MAX_ITER, right
            )
            < 0
        ):
            raise IndefiniteError("the node system is not positive definite")
        return right

    def correct(
        self, lack: FloatArray, force: FloatArray, steps: FloatArray, messages: FloatArray
    ) -> None:
        """One solve: add to steps and multipliers what ``lack`` and ``force`` ask for."""
        structure, pattern = self.graph.structure, self.matrix.pattern
        right = np.empty(len(self.matrix.indptr) - 1)
        fill_right_hand_side(structure, pattern, self._blocks, force, lack, right)
        recover_steps(structure, pattern, self._blocks, self._solve(right), lack, steps, messages)

    def respond(
        self,
        unary_force: FloatArray,
        factor_force: FloatArray,
        unary_base: FloatArray | None = None,
        factor_base: FloatArray | None = None,
        max_rounds: int = MAX_ROUNDS,
    ) -> Response:
        """The step under forces, from beliefs (``base``) that need not be consistent.

        Forces must be finite; those on impossible configurations do not matter.  Raises
        `IndefiniteError` if rounding leaves no solution.
        """
        graph, structure = self.graph, self.graph.structure
        entries, is_single = slot_entries(graph)
        steps = np.zeros(len(self._unary))
        messages = np.zeros(int(graph.message_offsets[-1]))
        first = left = 0.0
        for n_rounds in range(max_rounds + 1):
            tables = factor_force.copy()
            add_to_tables(structure, messages, tables)
            respond(graph.table_offsets, self.compliance, tables)
            lack = np.zeros(len(messages))
            add_to_margins(structure, tables, lack)
            if factor_base is not None:
                add_to_margins(structure, factor_base, lack)
            lack -= (steps if unary_base is None else steps + unary_base)[entries]
            lack[is_single] = 0.0
            force = unary_force - self._stiffness * steps
            subtract_from_unary(structure, messages, force)
            before, left = left, self._size(lack, force, entries)
            first = left if n_rounds == 0 else first
            is_small = left == 0.0 or (n_rounds >= MIN_ROUNDS and left <= ENOUGH * first)
            # repeated solves gain several digits each until rounding is all that is left
            if is_small or (n_rounds > MIN_ROUNDS and left > 0.5 * before):
                break
            if n_rounds < max_rounds:
                self.correct(lack, force, steps, messages)
                if not (np.isfinite(steps).all() and np.isfinite(messages).all()):
                    raise IndefiniteError("rounding leaves no solution of the node system")
        return Response(steps, tables, messages, left / first if first > 0.0 else 0.0)

    def _size(self, lack: FloatArray, force: FloatArray, entries: LongArray) -> float:
        """Largest residual in the units of the scaled system."""
        graph, scale = self.graph, self._blocks.scale
        margins = np.zeros(len(lack))
        np.divide(np.abs(lack), scale[entries], out=margins, where=scale[entries] > 0.0)
        reference = force[graph.unary_offsets[:-1] + self._blocks.reference]
        forces = np.abs(force - np.repeat(reference, graph.cardinalities)) * scale
        forces[~np.repeat(self._blocks.free, graph.cardinalities)] = 0.0
        return max(float(margins.max(initial=0.0)), float(forces.max(initial=0.0)))


def _largest(graph: FactorGraph, unary: FloatArray) -> NDArray[np.int32]:
    """The label of largest belief of each variable."""
    if graph.n_variables == 0:
        return np.zeros(0, dtype=np.int32)
    cardinality = graph.uniform_cardinality
    if cardinality is not None:
        return np.asarray(unary.reshape(-1, cardinality).argmax(axis=1), dtype=np.int32)
    top = np.repeat(np.maximum.reduceat(unary, graph.unary_offsets[:-1]), graph.cardinalities)
    labels = np.arange(len(unary)) - np.repeat(graph.unary_offsets[:-1], graph.cardinalities)
    is_top = np.where(unary == top, labels, np.iinfo(np.int32).max)
    return np.minimum.reduceat(is_top, graph.unary_offsets[:-1]).astype(np.int32)
