r"""Hessian of a free energy by factor blocks: the reduced KKT matrix, and products with vectors.

Let ``F(b) = sum_a w_a b_a log b_a + sum_i w_i b_i log b_i`` have a weight for every configuration
(Bethe: ``w_a = 1``, ``w_i = 1 - d_i``).  Its second derivative ``diag(w / b)`` on locally
consistent beliefs is, after the factor beliefs have been eliminated (Schur complement), a quadratic
form in the beliefs ``q_i`` of variables alone,

    H = N + sum_a P_a' C_a^-1 P_a,      N_i = diag(w_i / b_i) + w_i(ref) / b_i(ref)

with ``C_a`` the covariance of the label indicators of factor ``a`` under ``c_a = b_a / w_a``, the
*inverse Hessian diagonal*.  The label of largest belief of each variable, its reference, is left
out, which leaves ``sum_i (K_i - 1)`` unknowns.

**Units.**  The unknowns are ``z = dq / sqrt(b)``: then ``N`` is of the size of the weights and
``C_a`` of their inverse, whatever the beliefs are.  In these units the metric of the natural
gradient, ``sum_i <dq_i, dq_i / q_i>``, is ``N`` with all weights 1; so Levenberg and Marquardt's
damping in that metric is nothing but a number added to the weights ``w_i``.

**Range.**  Factors that tie variables together (strong couplings, hard constraints) make ``C_a``
singular; ``guard`` bounds the pivots of its correlations from below, and the condition of a block
by ``1 / guard``.  For two binary variables with correlation ``rho``

    C^-1 = S [ I / (1 + |rho|) + |rho| / (1 - rho^2) (1, -sign rho)' (1, -sign rho) ] S

where nothing cancels in ``1 - rho^2``, which is a sum of products of entries of ``c_a``.  Blocks of
binary pairs are kept in this form: products with vectors then take the difference of two unknowns
before they multiply it by something huge.  A label without belief has no unknown, and one that is
certain tells the other variables of a factor nothing.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, Index, IntArray, LongArray
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.structure import Structure, next_row
from fieldfit.numeric.cholesky import cholesky_inverse, cholesky_root
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import load, store

__all__ = [
    "BlockLayout",
    "HessianBlocks",
    "VariableTerms",
    "apply_block",
    "block_layout",
    "fill_blocks",
    "fill_variable_terms",
    "hessian_matvec",
    "hessian_vector_product",
    "reference_labels",
    "widest_factor",
]


class BlockLayout(NamedTuple):
    """Where unknowns and blocks lie."""

    rows: IntArray  # first unknown of each variable
    offsets: LongArray  # where the block of each factor begins
    is_pair: BoolArray  # factors of two variables with two labels each


class HessianBlocks(NamedTuple):
    """The Hessian at some beliefs, factor by factor."""

    sqrt_beliefs: FloatArray  # by unary entry, 0 for labels that are impossible
    reference: IntArray  # label of each variable that is left out
    free: BoolArray  # variables that may move
    # C_a^-1 of every factor of arity two or more, row by row; of a binary pair the diagonal of S,
    # 1 / (1 + |rho|), and |rho| / (1 - rho^2) with the sign of rho
    values: FloatArray


class VariableTerms(NamedTuple):
    """``N_i = diag(w) + common_i s s'`` with ``s = sqrt(b)``, reference labels left out."""

    roots: FloatArray  # s, by unknown
    weights: FloatArray  # w, by unknown
    common: FloatArray  # w(ref) / b(ref), by variable


# weak keys, and values that do not refer to the graph
_layouts: WeakKeyDictionary[FactorGraph, BlockLayout] = WeakKeyDictionary()


def block_layout(graph: FactorGraph) -> BlockLayout:
    """Unknowns in the order of the variables, kept as long as the graph lives."""
    found = _layouts.get(graph)
    if found is None:
        sizes = graph.cardinalities.astype(np.int64) - 1
        rows = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int32)
        counts = np.bincount(graph.slot_factors, sizes[graph.slot_variables], graph.n_factors)
        counts = np.where(graph.arities >= 2, counts, 0).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts**2)])
        is_pair = (graph.arities == 2) & (np.diff(graph.table_offsets) == 4)
        first = graph.slot_variables[graph.scope_offsets[:-1][is_pair]]
        is_pair[is_pair] = graph.cardinalities[first] == 2
        found = _layouts[graph] = BlockLayout(rows, offsets, is_pair)
    return found


@kernel
def widest_factor(structure: Structure) -> int:
    """Most labels of all variables of one factor together."""
    most = 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        most = max(most, structure.message_offsets[stop] - structure.message_offsets[first])
    return most


@kernel
def reference_labels(
    structure: Structure, begin: int, end: int, beliefs: FloatArray, reference: IntArray
) -> None:
    """The label of largest belief of variables ``begin`` to ``end``."""
    for i in range(begin, end):
        first = structure.unary_offsets[i]
        best = 0
        for y in range(1, structure.cardinalities[i]):
            if beliefs[first + y] > beliefs[first + best]:
                best = y
        reference[i] = best


# -- blocks -------------------------------------------------------------------------------------


@kernel
def _fill_binary_pair(
    structure: Structure,
    factor: int,
    inverse_diagonal: FloatArray,
    blocks: HessianBlocks,
    guard: float,
    block: FloatArray,
) -> None:
    """The block of two binary variables, without cancellation and in any range."""
    first = structure.scope_offsets[factor]
    left, right = structure.slot_variables[first], structure.slot_variables[first + 1]
    own, other = 1 - blocks.reference[left], 1 - blocks.reference[right]
    root_left = blocks.sqrt_beliefs[structure.unary_offsets[left] + own]
    root_right = blocks.sqrt_beliefs[structure.unary_offsets[right] + other]
    table = structure.table_offsets[factor]
    x11 = inverse_diagonal[table + 2 * own + other]
    x10 = inverse_diagonal[table + 2 * own + 1 - other]
    x01 = inverse_diagonal[table + 2 - 2 * own + other]
    x00 = inverse_diagonal[table + 2 - 2 * own + 1 - other]
    p0, p1, r0, r1 = x00 + x01, x10 + x11, x00 + x10, x01 + x11
    total = p0 + p1
    # variances in scaled units, and how far they are from being raised to the least one
    least = guard * total
    variance_left, variance_right, ratio = least, least, 1.0
    if root_left > 0.0:
        value = (p1 / root_left) * (p0 / total) / root_left
        variance_left = max(value, least)
        ratio *= value / variance_left
    if root_right > 0.0:
        value = (r1 / root_right) * (r0 / total) / root_right
        variance_right = max(value, least)
        ratio *= value / variance_right
    block[0] = 1.0 / sqrt(variance_left) if root_left > 0.0 else 0.0
    block[1] = 1.0 / sqrt(variance_right) if root_right > 0.0 else 0.0
    block[2], block[3] = 1.0, 0.0
    if not (p0 > 0.0 and p1 > 0.0 and r0 > 0.0 and r1 > 0.0):
        return  # a label is certain, and tells the other variable nothing
    if root_left == 0.0 or root_right == 0.0:
        return
    determinant = ((x00 / p0) * (x01 / r1) + (x10 / p1) * (x11 / r1)) * (total / r0)
    s0, s1, t0, t1 = sqrt(p0), sqrt(p1), sqrt(r0), sqrt(r1)
    correlation = (x11 / s1 / t1) * (x00 / s0 / t0) - (x10 / s1 / t0) * (x01 / s0 / t1)
    size = min(abs(correlation), 1.0)
    determinant += size * size * (1.0 - ratio)
    size *= sqrt(ratio)
    block[2] = 1.0 / (1.0 + size)
    coupling = size / determinant if guard * size < determinant else 1.0 / guard
    block[3] = coupling if correlation >= 0.0 else -coupling


@kernel
def _fill_pair_moments(
    structure: Structure,
    factor: int,
    inverse_diagonal: FloatArray,
    blocks: HessianBlocks,
    matrix: FloatArray,
    n: int,
) -> float:
    """Uncentred second moments of two variables, lower triangle; returns the sum of the table."""
    first = structure.scope_offsets[factor]
    left, right = structure.slot_variables[first], structure.slot_variables[first + 1]
    n_left, n_right = structure.cardinalities[left], structure.cardinalities[right]
    left_reference, right_reference = blocks.reference[left], blocks.reference[right]
    entry = structure.table_offsets[factor]
    total = 0.0
    for x in range(n_left):
        u = x - (1 if x > left_reference else 0)
        margin = 0.0
        v = n_left - 1
        for y in range(n_right):
            value = inverse_diagonal[entry]
            entry += 1
            margin += value
            if y == right_reference:
                continue
            matrix[v * n + v] += value
            if x != left_reference:
                matrix[v * n + u] = value
            v += 1
        if x != left_reference:
            matrix[u * n + u] = margin
        total += margin
    return total


@kernel
def _fill_moments(
    structure: Structure,
    factor: int,
    inverse_diagonal: FloatArray,
    blocks: HessianBlocks,
    matrix: FloatArray,
    n: int,
) -> float:
    """The same for any arity."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    digits = np.zeros(last - first + 1, dtype=np.int32)
    places = np.empty(last - first + 1, dtype=np.int64)
    own = structure.slot_variables[last]
    n_last = structure.cardinalities[own]
    total = 0.0
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for y in range(n_last):
            value = inverse_diagonal[row + y]
            total += value
            digits[last - first] = y
            base, count = 0, 0
            for position in range(first, last + 1):
                variable = structure.slot_variables[position]
                label, reference = digits[position - first], blocks.reference[variable]
                if label != reference:
                    places[count] = base + label - (1 if label > reference else 0)
                    count += 1
                base += structure.cardinalities[variable] - 1
            for s in range(count):
                for t in range(s + 1):
                    matrix[places[s] * n + places[t]] += value
        next_row(structure, first, last, digits)
    return total


@kernel
def _gather_roots(
    structure: Structure, factor: int, blocks: HessianBlocks, roots: FloatArray
) -> int:
    """Square roots of the beliefs behind the unknowns of a factor; returns their number."""
    n = 0
    for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
        variable = structure.slot_variables[slot]
        for y in range(structure.cardinalities[variable]):
            if y != blocks.reference[variable]:
                roots[n] = blocks.sqrt_beliefs[structure.unary_offsets[variable] + y]
                n += 1
    return n


@kernel
def _invert_covariance(
    matrix: FloatArray,
    n: int,
    total: float,
    roots: FloatArray,
    guard: float,
    margins: FloatArray,
    scale: FloatArray,
    least: FloatArray,
) -> None:
    """``C^-1`` in scaled unknowns from second moments, in place.

    Correlations are inverted: each row and column is divided by its size in scaled units.
    """
    for u in range(n):
        margins[u], least[u] = matrix[u * n + u], guard
    for u in range(n):
        if roots[u] == 0.0:
            for v in range(n):
                matrix[max(u, v) * n + min(u, v)] = 0.0
            margins[u] = 0.0
            scale[u] = sqrt(total)
            continue
        centred = matrix[u * n + u] - margins[u] * (margins[u] / total)
        scale[u] = roots[u] * sqrt(max(centred / roots[u] / roots[u], guard * total))
    for u in range(n):
        for v in range(u):
            centred = matrix[u * n + v] - margins[u] * (margins[v] / total)
            matrix[u * n + v] = centred / scale[u] / scale[v]
        matrix[u * n + u] = 1.0
    cholesky_root(matrix, n, least, True)
    cholesky_inverse(matrix, n)
    for u in range(n):
        scale[u] = roots[u] / scale[u] if roots[u] > 0.0 else 1.0 / scale[u]
    for u in range(n):
        for v in range(n):
            matrix[u * n + v] *= scale[u] * scale[v]


@kernel
def fill_blocks(
    structure: Structure,
    layout: BlockLayout,
    inverse_diagonal: FloatArray,
    blocks: HessianBlocks,
    guard: float,
    ranges: LongArray,
) -> None:
    """``C_a^-1`` of every factor of arity two or more in some ranges of factors."""
    size = widest_factor(structure)
    roots, margins, scale, least = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for run in range(len(ranges)):
        for factor in range(ranges[run, 0], ranges[run, 1]):
            begin, end = layout.offsets[factor], layout.offsets[factor + 1]
            if end == begin:
                continue
            block = blocks.values[begin:end]
            if layout.is_pair[factor]:
                _fill_binary_pair(structure, factor, inverse_diagonal, blocks, guard, block)
                continue
            block[:] = 0.0
            n = _gather_roots(structure, factor, blocks, roots)
            if structure.scope_offsets[factor + 1] - structure.scope_offsets[factor] == 2:
                total = _fill_pair_moments(structure, factor, inverse_diagonal, blocks, block, n)
            else:
                total = _fill_moments(structure, factor, inverse_diagonal, blocks, block, n)
            _invert_covariance(block, n, total, roots, guard, margins, scale, least)


# -- products with vectors ------------------------------------------------------------------------


# called for every factor in every product: the call would cost as much as the work
@kernel(cache=False, forceinline=True)
def _apply_binary_pair(
    values: FloatArray, begin: int, left: float, right: float
) -> tuple[float, float]:
    scale_left, scale_right = load(values, begin), load(values, begin + 1)
    rest, coupling = load(values, begin + 2), load(values, begin + 3)
    own, other = scale_left * left, scale_right * right
    sign = 1.0 if coupling >= 0.0 else -1.0
    difference = abs(coupling) * (own - sign * other)
    return (
        scale_left * (rest * own + difference),
        scale_right * (rest * other - sign * difference),
    )


@kernel(cache=False, forceinline=True)
def apply_block(
    is_pair: bool, values: FloatArray, begin: int, n: int, x: FloatArray, out: FloatArray
) -> None:
    """``out = C_a^-1 x`` for the ``n`` unknowns of the factor whose block begins at ``begin``."""
    if is_pair:
        out[0], out[1] = _apply_binary_pair(values, begin, x[0], x[1])
        return
    for u in range(n):
        total = 0.0
        for v in range(n):
            total += values[begin + u * n + v] * x[v]
        out[u] = total


@kernel
def fill_variable_terms(
    structure: Structure,
    layout: BlockLayout,
    blocks: HessianBlocks,
    weights: FloatArray,
    variables: tuple[int, int],
    shift: Index,
    terms: VariableTerms,
) -> None:
    """``N`` of some variables (first, last but one) with these weights, by unary entry."""
    for i in range(variables[0], variables[1]):
        begin, row = structure.unary_offsets[i], layout.rows[i] - shift
        reference = blocks.reference[i]
        root = blocks.sqrt_beliefs[begin + reference]
        terms.common[i - variables[0]] = weights[begin + reference] / (root * root)
        for u in range(structure.cardinalities[i] - 1):
            label = begin + u + (1 if u >= reference else 0)
            terms.roots[row + u] = blocks.sqrt_beliefs[label]
            terms.weights[row + u] = weights[label]


@kernel
def hessian_vector_product(
    structure: Structure,
    layout: BlockLayout,
    blocks: HessianBlocks,
    terms: VariableTerms,
    variables: tuple[int, int],
    factors: tuple[int, int],
    shift: Index,
    z: FloatArray,
    out: FloatArray,
    scratch: FloatArray,
) -> None:
    """``out = H z`` of some variables (first, last but one) and all factors on them.

    Unknown ``x`` is at ``x - shift`` in ``z``, ``out`` and ``terms``; those that may not move must
    be 0 in ``z``, and are in ``out``.  ``scratch`` has two rows of the size of `widest_factor`.
    """
    for i in range(variables[0], variables[1]):
        row = layout.rows[i] - shift
        end = row + structure.cardinalities[i] - 1
        product = 0.0
        for u in range(row, end):
            product += load(terms.roots, u) * load(z, u)
        product *= load(terms.common, i - variables[0])
        for u in range(row, end):
            value = load(terms.weights, u) * load(z, u) + load(terms.roots, u) * product
            store(out, u, value)
    for factor in range(factors[0], factors[1]):
        begin = load(layout.offsets, factor)
        if load(layout.offsets, factor + 1) == begin:
            continue
        first = load(structure.scope_offsets, factor)
        if layout.is_pair[factor]:
            left = load(layout.rows, load(structure.slot_variables, first)) - shift
            right = load(layout.rows, load(structure.slot_variables, first + 1)) - shift
            own, other = _apply_binary_pair(blocks.values, begin, load(z, left), load(z, right))
            store(out, left, load(out, left) + own)
            store(out, right, load(out, right) + other)
            continue
        stop = structure.scope_offsets[factor + 1]
        n = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for u in range(structure.cardinalities[variable] - 1):
                scratch[0, n] = z[layout.rows[variable] - shift + u]
                n += 1
        apply_block(False, blocks.values, begin, n, scratch[0], scratch[1])
        n = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for u in range(structure.cardinalities[variable] - 1):
                out[layout.rows[variable] - shift + u] += scratch[1, n]
                n += 1
    for i in range(variables[0], variables[1]):
        if not blocks.free[i]:
            for u in range(structure.cardinalities[i] - 1):
                out[layout.rows[i] - shift + u] = 0.0


def hessian_matvec(
    graph: FactorGraph,
    layout: BlockLayout,
    blocks: HessianBlocks,
    weights: FloatArray,
    z: FloatArray,
) -> FloatArray:
    """``H z`` of a whole graph, with weights of variables by unary entry."""
    structure, everything = graph.structure, (0, graph.n_variables)
    roots, by_unknown, out = (np.empty(len(z)) for _ in range(3))
    terms = VariableTerms(roots, by_unknown, np.empty(graph.n_variables))
    fill_variable_terms(structure, layout, blocks, weights, everything, 0, terms)
    scratch = np.empty((2, widest_factor(structure)))
    hessian_vector_product(
        structure, layout, blocks, terms, everything, (0, graph.n_factors), 0, z, out, scratch
    )
    return out
