"""Solves of the node system (`kernels.node_system`): the pattern once, numbers as they come.

The order of elimination and the pattern of the factor are found once for each graph and kept as
long as it lives.  A batch is a union of graphs, so its system falls apart into those of the
examples.  Where the factorisation would take too much time or memory, conjugate gradients do
instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.inference._node_pattern import node_matrix, slot_entries
from fieldfit.kernels.block_factor import factorise_blocks, solve_blocks
from fieldfit.kernels.node_blocks import Blocks, fill_blocks
from fieldfit.kernels.node_system import (
    fill_node_matrix,
    fill_right_hand_side,
    recover_steps,
    respond,
)
from fieldfit.kernels.sparse_factor import conjugate_gradients, factorise, solve_factorised
from fieldfit.kernels.weighted_entropy import (
    add_to_margins,
    add_to_tables,
    subtract_from_unary,
)

__all__ = ["IndefiniteError", "NodeSystem", "Response"]

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

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
