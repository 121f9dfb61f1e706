r"""How beliefs give way to forces: the linear system of a concave problem, factors eliminated.

Let ``F(b) = sum_a w_a b_a log b_a + sum_i w_i b_i log b_i`` have a weight for every configuration.
Its second derivative is diagonal, and a step ``d`` that keeps the beliefs consistent under forces
``x`` is

    d_a = c_a (x_a + sum_i lam_ai - const),   c_a = b_a / w_a,     margins of d_a = q_i - r_ai
    (w_i / b_i) q_i + sum_a lam_ai - const = x_i

where ``q_i`` is the step of the beliefs of variable ``i`` and ``r`` what margins lack at the start.
With the covariances ``C_a`` of label indicators under ``c_a`` (centred, the label of largest belief
of each variable left out) the multipliers of a factor follow from the steps of its variables,
``lam_a = C_a^-1 (q_a - r_a)``, which leaves a system for variables alone,

    (N + sum_a P_a' C_a^-1 P_a) q = x + sum_a P_a' C_a^-1 r_a,
    N_i = diag(w_i / b_i) + w_i(ref) / b_i(ref)

of size ``sum_i (K_i - 1)`` and with the sparsity of the graph.  It is positive definite whenever
``F`` is convex on the consistent beliefs, even if some weights of variables are zero or negative.

**Range.**  The unknowns are ``z = q / sqrt(b)``: then ``N`` is of the size of the weights and
``C_a`` of their inverse, whatever the beliefs are.  Factors that tie variables together (a hard
constraint, or beliefs next to one) make ``C_a`` singular; the pivots of its correlations are kept
above ``GUARD``.  That spoils the solution by as much, and a repetition with what is left (`respond`
measures it) restores it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.factor_messages import next_row

__all__ = [
    "Blocks",
    "NodePattern",
    "fill_blocks",
    "fill_node_matrix",
    "fill_right_hand_side",
    "recover_steps",
    "respond",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Rounding of stiff blocks costs 1e-16 / GUARD of the soft ones' digits, the guard itself GUARD:
#: in the middle one repetition repairs both.
GUARD = 1e-8


class NodePattern(NamedTuple):
    """Where the blocks of the node system lie; unknowns are in the order of elimination."""

    rows: IntArray  # first unknown of each variable
    column_starts: LongArray  # first stored entry of its first column
    column_lengths: IntArray  # stored entries of each of its columns
    block_rows: (
        IntArray  # by factor and two of its positions: where one's rows begin in the other's
    )
    block_offsets: LongArray  # where the positions of each factor begin
    inverse_offsets: LongArray  # where the inverse of each factor's block begins


class Blocks(NamedTuple):
    """The numbers of one system."""

    scale: FloatArray  # sqrt(b) by unary entry, 0 for labels that are impossible
    reference: IntArray  # label of each variable that is left out
    free: BoolArray  # variables that may move
    inverses: FloatArray  # C_a^-1 of every factor, row by row


@njit(cache=True, nogil=True, error_model="numpy")
def _widest(structure: Any) -> int:
    """Most labels of all variables of one factor together."""
    widest = 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        widest = max(widest, structure.message_offsets[stop] - structure.message_offsets[first])
    return widest


@njit(cache=True, nogil=True, error_model="numpy")
def _invert(matrix: FloatArray, n: int, floor: float) -> None:
    """Invert a symmetric matrix in place from its lower triangle, pivots kept above ``floor``."""
    for j in range(n):
        for i in range(j, n):
            total = matrix[i * n + j]
            for k in range(j):
                total -= matrix[i * n + k] * matrix[j * n + k]
            if i > j:
                matrix[i * n + j] = total / matrix[j * n + j]
            else:
                matrix[j * n + j] = np.sqrt(max(total, floor))
    for i in range(n):  # the inverse of the triangle, row by row
        inverse = 1.0 / matrix[i * n + i]
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += matrix[i * n + k] * matrix[k * n + j]
            matrix[i * n + j] = -total * inverse
        matrix[i * n + i] = inverse
    for i in range(n):
        for j in range(i + 1):  # the diagonal last: it is needed by all others of the row
            total = 0.0
            for k in range(i, n):
                total += matrix[k * n + i] * matrix[k * n + j]
            matrix[i * n + j] = total
    for i in range(n):
        for j in range(i):
            matrix[j * n + i] = matrix[i * n + j]


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_pair(structure: Any, factor: int, compliance: FloatArray, blocks: Any, matrix: FloatArray,
               n: int) -> float:  # fmt: skip
    """Uncentred second moments of two variables, lower triangle; returns the sum of the table."""
    first = structure.scope_offsets[factor]
    left, right = structure.slot_variables[first], structure.slot_variables[first + 1]
    n_left, n_right = structure.cardinalities[left], structure.cardinalities[right]
    left_reference, right_reference = blocks.reference[left], blocks.reference[right]
    entry = structure.table_offsets[factor]
    total = 0.0
    for k in range(n_left):
        u = k - (1 if k > left_reference else 0)
        margin = 0.0
        v = n_left - 1
        for y in range(n_right):
            value = compliance[entry]
            entry += 1
            margin += value
            if y == right_reference:
                continue
            matrix[v * n + v] += value
            if k != left_reference:
                matrix[v * n + u] = value
            v += 1
        if k != left_reference:
            matrix[u * n + u] = margin
        total += margin
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_any(structure: Any, factor: int, compliance: FloatArray, blocks: Any, matrix: FloatArray,
              n: int) -> float:  # fmt: skip
    """The same for any arity."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    digits = np.zeros(last - first + 1, dtype=np.int32)
    places = np.empty(last - first + 1, dtype=np.int64)
    own = structure.slot_variables[last]
    n_last = structure.cardinalities[own]
    total = 0.0
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for y in range(n_last):
            value = compliance[row + y]
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


@njit(cache=True, nogil=True, error_model="numpy")
def fill_blocks(structure: Any, pattern: Any, compliance: FloatArray, blocks: Any) -> None:
    """``C_a^-1`` of every factor of arity two or more, in scaled unknowns."""
    widest = _widest(structure)
    scale = np.empty(widest)
    margins = np.empty(widest)
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin, end = pattern.inverse_offsets[factor], pattern.inverse_offsets[factor + 1]
        if end == begin:
            continue
        matrix = blocks.inverses[begin:end]
        matrix[:] = 0.0
        n = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for y in range(structure.cardinalities[variable]):
                if y != blocks.reference[variable]:
                    scale[n] = blocks.scale[structure.unary_offsets[variable] + y]
                    n += 1
        if stop - first == 2:
            total = _fill_pair(structure, factor, compliance, blocks, matrix, n)
        else:
            total = _fill_any(structure, factor, compliance, blocks, matrix, n)
        for u in range(n):
            margins[u] = matrix[u * n + u]
        # correlations: each row and column divided by its size in scaled unknowns, which `scale`
        # becomes part of
        for u in range(n):
            if scale[u] == 0.0:
                scale[u] = 1.0
                for v in range(n):
                    matrix[max(u, v) * n + min(u, v)] = 0.0
                margins[u] = 0.0
                matrix[u * n + u] = total
            centred = matrix[u * n + u] - margins[u] * (margins[u] / total)
            size = max(centred / scale[u] / scale[u], GUARD * total)
            scale[u] *= np.sqrt(size)
        for u in range(n):
            for v in range(u):
                centred = matrix[u * n + v] - margins[u] * (margins[v] / total)
                matrix[u * n + v] = centred / scale[u] / scale[v]
            matrix[u * n + u] = 1.0
        _invert(matrix, n, GUARD)
        u = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for y in range(structure.cardinalities[variable]):
                if y != blocks.reference[variable]:
                    own = blocks.scale[structure.unary_offsets[variable] + y]
                    scale[u] = own / scale[u] if own > 0.0 else 1.0 / scale[u]
                    u += 1
        for u in range(n):
            for v in range(n):
                matrix[u * n + v] *= scale[u] * scale[v]


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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
    scaled = np.empty(_widest(structure))
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


@njit(cache=True, nogil=True, error_model="numpy")
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
    scaled = np.empty(_widest(structure))
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


@njit(cache=True, nogil=True, error_model="numpy")
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
