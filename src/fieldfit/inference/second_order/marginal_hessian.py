r"""Reduced KKT system (Schur complement) of beliefs: Hessian-vector products and solves.

A step ``(d_a, q_i)`` of locally consistent beliefs under a linear function with gradient ``x`` is
the solution of the KKT system

    d_a = c_a (x_a + sum_i lam_ai - const),   c_a = b_a / w_a,     margins of d_a = q_i - r_ai
    (w_i / b_i) q_i + sum_a lam_ai - const = x_i

with ``r`` the *marginalisation residual*, what the margins of factor beliefs exceed those of
variables by at the start.  The multipliers of a factor follow from the steps of its variables,
``lam_a = C_a^-1 (q_a - r_a)``, which leaves a system for variables alone,

    H q = x + sum_a P_a' C_a^-1 r_a,       H = N + sum_a P_a' C_a^-1 P_a

(`hessian_blocks` has its blocks and its units).  It is positive definite whenever the free energy
is convex on consistent beliefs, even if some weights of variables are zero or negative, and then
has a sparse Cholesky factorisation whose pattern belongs to the graph (`kkt_pattern`).  A batch is
a union of graphs, so its system falls apart into those of the examples.  Where the factorisation
would take too much time or memory, conjugate gradients do instead.

One operator serves Newton's method on the dual and quadratic bounds in the primal
(`fieldfit.inference.convex`), implicit gradients, linear response, and Newton's method on Bethe's
free energy (`bethe_newton`).  The last one shares the blocks and their products with vectors, but
not the factorisation: away from a minimum its matrix is indefinite in *some* examples of a batch,
each example has a damping of its own, and negative curvature is something to be used (Steihaug),
not an error.  Its blocks also have a guard of 1e-14 where the factorisation needs 1e-8, see
`GUARD`.

Reference for the elimination of constraints: Nocedal and Wright, "Numerical Optimization", section
16.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit.entropy.weighted_entropy import add_to_margins, add_to_tables, subtract_from_unary
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.structure import Structure
from fieldfit.inference.second_order.hessian_blocks import (
    BlockLayout,
    HessianBlocks,
    apply_block,
    fill_blocks,
    hessian_matvec,
    reference_labels,
    widest_factor,
)
from fieldfit.inference.second_order.kkt_pattern import BlockPlaces, kkt_pattern, slot_entries
from fieldfit.numeric.cholesky import (
    factorise,
    factorise_blocks,
    solve_blocks,
    solve_factorised,
)
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.conjugate_gradient import solve_by_conjugate_gradients

__all__ = ["HessianSolveResult", "IndefiniteError", "MarginalHessian"]

#: Guard of the blocks.  In the assembled matrix rounding of ill-conditioned blocks costs 1e-16 /
#: GUARD of the digits of all others, the guard itself GUARD of its own: in the middle one step of
#: iterative refinement repairs both.
GUARD = 1e-8
#: Conjugate gradients: the residual falls to this fraction of its size.  They are repeated for what
#: is left, so that it need not be less.
CG_TOL = 1e-10
CG_MAX_ITER = 5000
#: Steps of iterative refinement, at most and at least (the largest residual hides others where
#: beliefs differ by many orders), and the fraction of the first residual that is then good enough.
MAX_REFINEMENTS = 8
MIN_REFINEMENTS = 2
REFINED = 1e-13
#: Least pivot of a factorisation, as a fraction of the diagonal, where no weight is negative so
#: that the system must be positive definite.
PIVOT_GUARD = 1e-13
#: Least belief of a label in a system: its square root must not overflow when it is divided by.
SMALLEST = 1e-300


class IndefiniteError(ArithmeticError):
    """The reduced KKT matrix is not positive definite, or too nearly so to be solved.

    The entropy is not concave at these beliefs or, with positive weights, so nearly flat in some
    direction that rounding decides.
    """


@dataclass(frozen=True)
class HessianSolveResult:
    """A step that leaves beliefs consistent.

    ``unary`` and ``factors`` are the steps, ``multipliers`` those of consistency (by message
    entry), and ``residual`` the fraction of the right-hand side that is left.
    """

    unary: FloatArray
    factors: FloatArray
    multipliers: FloatArray
    residual: float


class MarginalHessian:
    """The Hessian of a free energy on locally consistent beliefs.

    Parameters
    ----------
    graph
        The structure.
    unary, factors
        Beliefs; the second derivative is ``w / b`` there.
    unary_weights, factor_weights
        Entropy weights by configuration, those of factors positive.
    free
        Variables that may move; all if ``None``.
    smallest
        Beliefs of variables are taken as at least this, unless a label is ``impossible``.
    impossible
        Labels (unary entries) without weight; those of belief zero if ``None``.
    direct
        Factorise the matrix (true) or use conjugate gradients (false); by its size if ``None``.
    require_definite
        Raise `IndefiniteError` if the matrix is not positive definite; otherwise it is then
        factorised by SuperLU, with pivoting, and only a singular one raises it.
    guard
        Least pivot of the correlations of a factor, see `GUARD`.
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
        require_definite: bool = True,
        guard: float = GUARD,
    ) -> None:
        self.graph = graph
        self.pattern = kkt_pattern(graph)
        is_out = unary <= 0.0 if impossible is None else impossible
        raised = np.where(is_out, 0.0, np.maximum(unary, smallest))
        self._weights = np.ascontiguousarray(unary_weights)
        #: ``w / b`` by unary entry, 0 where there is no belief.
        self.hessian_diagonal = np.zeros(len(unary))
        np.divide(unary_weights, raised, out=self.hessian_diagonal, where=raised > 0.0)
        #: ``b / w`` by table entry, 0 for factors without entropy.
        self.inverse_hessian_diagonal = np.zeros(len(factors))
        np.divide(
            factors, factor_weights, out=self.inverse_hessian_diagonal, where=factor_weights > 0.0
        )
        self.blocks = HessianBlocks(
            sqrt_beliefs=np.sqrt(raised),
            reference=np.empty(graph.n_variables, dtype=np.int32),
            free=np.ones(graph.n_variables, dtype=np.bool_) if free is None else free,
            values=np.empty(int(self.pattern.layout.offsets[-1])),
        )
        structure, layout = graph.structure, self.pattern.layout
        reference_labels(structure, 0, graph.n_variables, raised, self.blocks.reference)
        fill_blocks(
            structure, layout, self.inverse_hessian_diagonal, self.blocks, guard,
            np.array([[0, graph.n_factors]]),
        )  # fmt: skip
        self._values = np.empty(len(self.pattern.indices))
        _assemble(structure, layout, self.pattern.places, self.blocks, self._weights, self._values)
        self._guard = PIVOT_GUARD if unary_weights.min(initial=0.0) >= 0.0 else 0.0
        self._lu: Any = None
        self._is_direct = self.pattern.is_direct if direct is None else direct
        if self._is_direct and not self._factorise():
            if require_definite:
                raise IndefiniteError("the reduced KKT matrix is not positive definite")
            self._lu = self._factorise_indefinite()

    @property
    def n_unknowns(self) -> int:
        """All labels but one of every variable."""
        return self.pattern.n_unknowns

    @property
    def is_definite(self) -> bool:
        """False if a factorisation met negative curvature (see ``require_definite``)."""
        return self._lu is None

    def matvec(self, z: FloatArray) -> FloatArray:
        """``H z``, both in the units ``dq / sqrt(b)`` and the order of ``pattern.layout``."""
        return hessian_matvec(self.graph, self.pattern.layout, self.blocks, self._weights, z)

    def _factorise(self) -> bool:
        """Cholesky's factorisation; false if the matrix is not positive definite."""
        pattern = self.pattern
        width = max(len(pattern.k) - 1, 1)
        n_blocks = int(pattern.shape.starts[-1])
        self._rows = np.empty(n_blocks, dtype=np.int32)
        self._lower = np.empty(n_blocks * width**2)
        # roots of the diagonal blocks, or inverse pivots where blocks are single numbers
        self._diagonal = np.empty(pattern.n_unknowns * width)
        arguments = (
            pattern.indptr, pattern.indices, self._values, pattern.shape, self._rows, self._lower,
            self._diagonal, self._guard,
        )  # fmt: skip
        bad = factorise_blocks(pattern.k, *arguments) if pattern.k else factorise(*arguments)
        return bad < 0

    def _factorise_indefinite(self) -> Any:
        from scipy.sparse import csc_array, triu
        from scipy.sparse.linalg import splu

        pattern = self.pattern
        shape = (pattern.n_unknowns, pattern.n_unknowns)
        stored = csc_array((self._values, pattern.indices, pattern.indptr), shape=shape)
        upper = triu(stored, format="csc")  # diagonal blocks are stored in full
        try:
            return splu((upper + triu(stored, 1).T).tocsc(), permc_spec="MMD_AT_PLUS_A")
        except RuntimeError as error:
            raise IndefiniteError("the reduced KKT matrix is singular") from error

    def solve_reduced(self, right: FloatArray) -> FloatArray:
        """``H^-1 right`` for a vector of unknowns, which may be overwritten."""
        pattern = self.pattern
        if self._lu is not None:
            return np.asarray(self._lu.solve(right), dtype=np.float64)
        if self._is_direct:
            factor = (pattern.shape, self._rows, self._lower, self._diagonal, right)
            if pattern.k:
                solve_blocks(pattern.k, *factor)
            else:
                solve_factorised(*factor)
            return right
        n_iter = solve_by_conjugate_gradients(
            pattern.indptr, pattern.indices, self._values, CG_TOL, CG_MAX_ITER, right
        )
        if n_iter < 0:
            raise IndefiniteError("the reduced KKT matrix is not positive definite")
        return right

    def solve_once(
        self,
        residual: FloatArray,
        gradient: FloatArray,
        steps: FloatArray,
        multipliers: FloatArray,
    ) -> None:
        """One solve without refinement, added to steps and multipliers.

        ``residual`` is that of marginalisation, by message entry, ``gradient`` by unary entry.
        """
        structure, layout = self.graph.structure, self.pattern.layout
        right = np.empty(self.n_unknowns)
        _fill_right_hand_side(structure, layout, self.blocks, gradient, residual, right)
        solution = self.solve_reduced(right)
        _recover_steps(structure, layout, self.blocks, solution, residual, steps, multipliers)

    def solve(
        self,
        unary_gradient: FloatArray,
        factor_gradient: FloatArray,
        unary_base: FloatArray | None = None,
        factor_base: FloatArray | None = None,
        max_refinements: int = MAX_REFINEMENTS,
    ) -> HessianSolveResult:
        """The step under a gradient, from beliefs (``base``) that need not be consistent.

        Gradients must be finite; those by impossible configurations do not matter.  Residuals are
        those of the full KKT system, without guards (iterative refinement).  Raises
        `IndefiniteError` if rounding leaves no solution.
        """
        graph, structure = self.graph, self.graph.structure
        entries, is_single = slot_entries(graph)
        steps = np.zeros(len(self.hessian_diagonal))
        multipliers = np.zeros(int(graph.message_offsets[-1]))
        first = left = 0.0
        for n_solves in range(max_refinements + 1):
            tables = factor_gradient.copy()
            add_to_tables(structure, multipliers, tables)
            _apply_inverse_diagonal(graph.table_offsets, self.inverse_hessian_diagonal, tables)
            residual = np.zeros(len(multipliers))
            add_to_margins(structure, tables, residual)
            if factor_base is not None:
                add_to_margins(structure, factor_base, residual)
            residual -= (steps if unary_base is None else steps + unary_base)[entries]
            residual[is_single] = 0.0
            gradient = unary_gradient - self.hessian_diagonal * steps
            subtract_from_unary(structure, multipliers, gradient)
            before, left = left, self._size(residual, gradient, entries)
            if not np.isfinite(left):
                raise IndefiniteError("rounding leaves no solution of the reduced KKT system")
            first = left if n_solves == 0 else first
            is_small = left == 0.0 or (n_solves >= MIN_REFINEMENTS and left <= REFINED * first)
            # repeated solves gain several digits each until rounding is all that is left
            if is_small or (n_solves > MIN_REFINEMENTS and left > 0.5 * before):
                break
            if n_solves < max_refinements:
                self.solve_once(residual, gradient, steps, multipliers)
                if not (np.isfinite(steps).all() and np.isfinite(multipliers).all()):
                    raise IndefiniteError("rounding leaves no solution of the reduced KKT system")
        return HessianSolveResult(steps, tables, multipliers, left / first if first > 0.0 else 0.0)

    def _size(self, residual: FloatArray, gradient: FloatArray, entries: LongArray) -> float:
        """Largest residual in the units of the reduced system, infinite beyond numbers."""
        graph, roots = self.graph, self.blocks.sqrt_beliefs
        margins = np.zeros(len(residual))
        reference = gradient[graph.unary_offsets[:-1] + self.blocks.reference]
        with np.errstate(over="ignore", invalid="ignore"):
            np.divide(np.abs(residual), roots[entries], out=margins, where=roots[entries] > 0.0)
            slopes = np.abs(gradient - np.repeat(reference, graph.cardinalities)) * roots
        slopes[~np.repeat(self.blocks.free, graph.cardinalities)] = 0.0
        return max(float(margins.max(initial=0.0)), float(slopes.max(initial=0.0)))


# -- kernels ------------------------------------------------------------------------------------


@kernel
def _assemble(
    structure: Structure,
    layout: BlockLayout,
    places: BlockPlaces,
    blocks: HessianBlocks,
    weights: FloatArray,
    values: FloatArray,
) -> None:
    """The upper triangle of ``H``, column by column, diagonal blocks in full."""
    values[:] = 0.0
    for i in range(len(structure.cardinalities)):
        begin = structure.unary_offsets[i]
        n = structure.cardinalities[i] - 1
        start, length = places.column_starts[i], places.column_lengths[i]
        own = length - n
        reference = blocks.reference[i]
        root = blocks.sqrt_beliefs[begin + reference]
        common = weights[begin + reference] / (root * root)
        for u in range(n):
            label = u + (1 if u >= reference else 0)
            size = blocks.sqrt_beliefs[begin + label]
            place = start + u * length + own
            if size == 0.0 or not blocks.free[i]:
                values[place + u] = 1.0
                continue
            for v in range(n):
                other = v + (1 if v >= reference else 0)
                values[place + v] = common * size * blocks.sqrt_beliefs[begin + other]
            # where a belief was raised to the least one, so is w / b lowered
            values[place + u] += weights[begin + label]
    pair = np.empty(4)
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = layout.offsets[factor], layout.offsets[factor + 1]
        if end == begin:
            continue
        if layout.is_pair[factor]:
            _pair_entries(blocks.values, begin, pair)
            _add_block(structure, places, blocks, factor, pair, values)
        else:
            _add_block(structure, places, blocks, factor, blocks.values[begin:end], values)


@kernel
def _pair_entries(values: FloatArray, begin: int, entries: FloatArray) -> None:
    """The four entries of ``C_a^-1`` of a binary pair."""
    left, right, coupling = values[begin], values[begin + 1], values[begin + 3]
    diagonal = values[begin + 2] + abs(coupling)
    entries[0], entries[3] = left * left * diagonal, right * right * diagonal
    entries[1] = entries[2] = -left * right * coupling


@kernel
def _add_block(
    structure: Structure,
    places: BlockPlaces,
    blocks: HessianBlocks,
    factor: int,
    block: FloatArray,
    values: FloatArray,
) -> None:
    """Add ``P_a' C_a^-1 P_a`` of one factor."""
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    arity, n = stop - first, 0
    for slot in range(first, stop):
        n += structure.cardinalities[structure.slot_variables[slot]] - 1
    column_base = 0
    for q in range(arity):
        right = structure.slot_variables[first + q]
        n_right = structure.cardinalities[right] - 1
        start, length = places.column_starts[right], places.column_lengths[right]
        row_base = 0
        for p in range(arity):
            left = structure.slot_variables[first + p]
            n_left = structure.cardinalities[left] - 1
            within = places.block_rows[places.block_offsets[factor] + p * arity + q]
            if within >= 0 and blocks.free[left] and blocks.free[right]:
                for v in range(n_right):
                    place = start + v * length + within
                    source = (column_base + v) * n + row_base
                    for u in range(n_left):
                        values[place + u] += block[source + u]
            row_base += n_left
        column_base += n_right


@kernel
def _gather_residual(
    structure: Structure,
    factor: int,
    blocks: HessianBlocks,
    residual: FloatArray,
    out: FloatArray,
) -> int:
    """The marginalisation residual of one factor in scaled unknowns; returns their number."""
    n = 0
    for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
        variable = structure.slot_variables[slot]
        begin, source = structure.unary_offsets[variable], structure.message_offsets[slot]
        for y in range(structure.cardinalities[variable]):
            if y != blocks.reference[variable]:
                root = blocks.sqrt_beliefs[begin + y]
                out[n] = residual[source + y] / root if root > 0.0 else 0.0
                n += 1
    return n


@kernel
def _fill_right_hand_side(
    structure: Structure,
    layout: BlockLayout,
    blocks: HessianBlocks,
    gradient: FloatArray,
    residual: FloatArray,
    out: FloatArray,
) -> None:
    """``x + sum_a P_a' C_a^-1 r_a`` for ``x`` by unary entry and ``r`` by message entry."""
    for i in range(len(structure.cardinalities)):
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], layout.rows[i]
        for y in range(structure.cardinalities[i]):
            if y == reference:
                continue
            root = blocks.sqrt_beliefs[begin + y] if blocks.free[i] else 0.0
            difference = gradient[begin + y] - gradient[begin + reference]
            out[row] = root * difference if root > 0.0 else 0.0
            row += 1
    scratch = np.empty((2, widest_factor(structure)))
    scaled, image = scratch[0], scratch[1]
    for factor in range(len(structure.scope_offsets) - 1):
        begin = layout.offsets[factor]
        if layout.offsets[factor + 1] == begin:
            continue
        n = _gather_residual(structure, factor, blocks, residual, scaled)
        is_pair = layout.is_pair[factor]
        apply_block(is_pair, blocks.values, begin, n, scaled, image)
        base = 0
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            variable = structure.slot_variables[slot]
            count = structure.cardinalities[variable] - 1
            if blocks.free[variable]:
                for u in range(count):
                    out[layout.rows[variable] + u] += image[base + u]
            base += count
    for i in range(len(structure.cardinalities)):  # impossible labels do not move
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], layout.rows[i]
        for y in range(structure.cardinalities[i]):
            if y != reference:
                if blocks.sqrt_beliefs[begin + y] == 0.0 or not blocks.free[i]:
                    out[row] = 0.0
                row += 1


@kernel
def _recover_steps(
    structure: Structure,
    layout: BlockLayout,
    blocks: HessianBlocks,
    solution: FloatArray,
    residual: FloatArray,
    steps: FloatArray,
    multipliers: FloatArray,
) -> None:
    """Add ``q`` to the steps of variables, and ``C_a^-1 (q_a - r_a)`` to the multipliers."""
    for i in range(len(structure.cardinalities)):
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], layout.rows[i]
        total = 0.0
        for y in range(structure.cardinalities[i]):
            if y != reference:
                step = blocks.sqrt_beliefs[begin + y] * solution[row]
                steps[begin + y] += step
                total += step
                row += 1
        steps[begin + reference] -= total
    scratch = np.empty((2, widest_factor(structure)))
    scaled, image = scratch[0], scratch[1]
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin = layout.offsets[factor]
        if layout.offsets[factor + 1] == begin:
            continue
        n = _gather_residual(structure, factor, blocks, residual, scaled)
        u = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for row in range(structure.cardinalities[variable] - 1):
                scaled[u] = solution[layout.rows[variable] + row] - scaled[u]
                u += 1
        is_pair = layout.is_pair[factor]
        apply_block(is_pair, blocks.values, begin, n, scaled, image)
        u = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            entry, target = structure.unary_offsets[variable], structure.message_offsets[slot]
            for y in range(structure.cardinalities[variable]):
                if y == blocks.reference[variable]:
                    continue
                root = blocks.sqrt_beliefs[entry + y]
                if root > 0.0:
                    multipliers[target + y] += image[u] / root
                u += 1


@kernel
def _apply_inverse_diagonal(
    offsets: IntArray, inverse_diagonal: FloatArray, tables: FloatArray
) -> None:
    """``c (x - <c, x> / sum c)`` for every vector, in place; 0 where ``c`` is."""
    for a in range(len(offsets) - 1):
        begin, end = offsets[a], offsets[a + 1]
        total, mean = 0.0, 0.0
        for z in range(begin, end):
            if inverse_diagonal[z] > 0.0:
                total += inverse_diagonal[z]
                mean += inverse_diagonal[z] * tables[z]
        mean = mean / total if total > 0.0 else 0.0
        for z in range(begin, end):
            value = inverse_diagonal[z] * (tables[z] - mean)
            tables[z] = value if inverse_diagonal[z] > 0.0 else 0.0
