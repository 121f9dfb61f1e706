r"""Conditional distributions of single variables given all others, for a whole graph in one pass.

    s_i(y) = th_i(y) + sum_{a on i} th_a(y, y_{a \ i})          p(y_i | rest) = softmax(s_i)

Tables are read, and their gradient is written, factor by factor: memory is passed through in order,
and each table only once for all its variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT
from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = ["add_conditioned", "conditional_residuals", "spread_residuals", "with_known_neighbours"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@njit(cache=True, nogil=True, error_model="numpy")
def with_known_neighbours(structure: Any, labels: IntArray, known: BoolArray) -> None:
    """Mark the variables that have a label and whose neighbours all have one."""
    for i in range(len(known)):
        known[i] = labels[i] >= 0
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        complete = True
        for slot in range(begin, end):
            complete &= labels[structure.slot_variables[slot]] >= 0
        if not complete:
            for slot in range(begin, end):
                known[structure.slot_variables[slot]] = False


@njit(cache=True, nogil=True, error_model="numpy")
def own_entries(structure: Any, labels: IntArray, slot: int) -> tuple[int, int]:
    """First table entry, and step, along one variable of a factor, the others at their labels."""
    factor = structure.slot_factors[slot]
    entry, stride, step = structure.table_offsets[factor], 1, 1
    for other in range(
        structure.scope_offsets[factor + 1] - 1, structure.scope_offsets[factor] - 1, -1
    ):
        variable = structure.slot_variables[other]
        if other == slot:
            step = stride
        else:
            entry += stride * labels[variable]
        stride *= structure.cardinalities[variable]
    return entry, step


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def add_conditioned(
    structure: Any, tables: FloatArray, labels: IntArray, known: BoolArray, scores: FloatArray
) -> None:
    """Add ``th_a(y, rest)`` of every factor to the scores of its variables that are ``known``."""
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        if end - begin == 2:
            i, j = structure.slot_variables[begin], structure.slot_variables[begin + 1]
            n_i, n_j = structure.cardinalities[i], structure.cardinalities[j]
            start = structure.table_offsets[factor]
            if known[i]:
                target, column = structure.unary_offsets[i], start + labels[j]
                for y in range(n_i):
                    value = load(scores, target + y) + load(tables, column + y * n_j)
                    store(scores, target + y, value)
            if known[j]:
                target, row = structure.unary_offsets[j], start + labels[i] * n_j
                for y in range(n_j):
                    store(scores, target + y, load(scores, target + y) + load(tables, row + y))
            continue
        for slot in range(begin, end):
            variable = structure.slot_variables[slot]
            if known[variable]:
                entry, step = own_entries(structure, labels, slot)
                target = structure.unary_offsets[variable]
                for y in range(structure.cardinalities[variable]):
                    scores[target + y] += tables[entry + y * step]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def conditional_residuals(
    structure: Any, labels: IntArray, known: BoolArray, scores: FloatArray, values: FloatArray
) -> int:
    """Turn scores into ``p(y | rest) - 1{y = y_i}`` and write ``-log p(y_i | rest)``.

    Both are 0 for variables that are not ``known``.  Returns the first variable whose label has
    probability zero, or -1.
    """
    impossible = -1
    for i in range(len(structure.cardinalities)):
        begin, end = structure.unary_offsets[i], structure.unary_offsets[i + 1]
        values[i] = 0.0
        if not known[i]:
            for z in range(begin, end):
                scores[z] = 0.0
            continue
        own = scores[begin + labels[i]]
        if own == NO_WEIGHT:
            if impossible < 0:
                impossible = i
            continue
        top = own
        for z in range(begin, end):
            top = max(top, load(scores, z))
        total = 0.0
        for z in range(begin, end):
            value = fast_exp(load(scores, z) - top)
            store(scores, z, value)
            total += value
        inverse = 1.0 / total
        for z in range(begin, end):
            store(scores, z, load(scores, z) * inverse)
        scores[begin + labels[i]] -= 1.0
        values[i] = (top - own) + np.log(total)
    return impossible


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def spread_residuals(
    structure: Any, labels: IntArray, known: BoolArray, residuals: FloatArray, gradient: FloatArray
) -> None:
    """The transpose of `add_conditioned`: write (not add) the gradient of every table."""
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        start, stop = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        for z in range(start, stop):
            store(gradient, z, 0.0)
        if end - begin == 2:
            i, j = structure.slot_variables[begin], structure.slot_variables[begin + 1]
            n_i, n_j = structure.cardinalities[i], structure.cardinalities[j]
            if known[j]:
                source, row = structure.unary_offsets[j], start + labels[i] * n_j
                for y in range(n_j):
                    store(gradient, row + y, load(residuals, source + y))
            if known[i]:
                source, column = structure.unary_offsets[i], start + labels[j]
                for y in range(n_i):
                    value = load(gradient, column + y * n_j) + load(residuals, source + y)
                    store(gradient, column + y * n_j, value)
            continue
        for slot in range(begin, end):
            variable = structure.slot_variables[slot]
            if known[variable]:
                entry, step = own_entries(structure, labels, slot)
                source = structure.unary_offsets[variable]
                for y in range(structure.cardinalities[variable]):
                    gradient[entry + y * step] += residuals[source + y]
