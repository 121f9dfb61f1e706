"""Blocks of the node system (see `node_system`): inverse covariances of labels in each factor."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.factor_messages import next_row

__all__ = ["Blocks", "NodePattern", "fill_blocks", "widest"]

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
def widest(structure: Any) -> int:
    """Most labels of all variables of one factor together."""
    most = 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        most = max(most, structure.message_offsets[stop] - structure.message_offsets[first])
    return most


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
    scale = np.empty(widest(structure))
    margins = np.empty(widest(structure))
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
