"""Single-variable ascent on the score of a labelling (iterated conditional modes, Besag 1986)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy")
def conditional_scores(
    structure: Any,
    unary: FloatArray,
    log_table: FloatArray,
    variable: int,
    labels: IntArray,
    forbidden: IntArray,
    scores: FloatArray,
) -> None:
    """Score of each label of one variable given the others, and how many factors forbid it."""
    for y in range(structure.cardinalities[variable]):
        value = unary[structure.unary_offsets[variable] + y]
        forbidden[y] = 1 if value == NO_WEIGHT else 0
        scores[y] = 0.0 if value == NO_WEIGHT else value
    for position in range(
        structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
    ):
        slot = structure.variable_slots[position]
        factor = structure.slot_factors[slot]
        entry, stride = 0, 1
        for other in range(
            structure.scope_offsets[factor + 1] - 1, structure.scope_offsets[factor] - 1, -1
        ):
            j = structure.slot_variables[other]
            if other == slot:
                own_stride = stride
            else:
                entry += stride * labels[j]
            stride *= structure.cardinalities[j]
        start = structure.table_offsets[factor] + entry
        for y in range(structure.cardinalities[variable]):
            value = log_table[start + y * own_stride]
            if value == NO_WEIGHT:
                forbidden[y] += 1
            else:
                scores[y] += value


@njit(cache=True, nogil=True, error_model="numpy")
def ascend(
    structure: Any, unary: FloatArray, log_table: FloatArray, order: IntArray, labels: IntArray
) -> int:
    """Set each variable to its best label until nothing changes; number of changes.

    Fewer broken hard constraints come first, then the score; each change improves one of the two,
    so this ends.  A gain must exceed rounding to count.
    """
    most = 1
    for i in range(len(structure.cardinalities)):
        most = max(most, structure.cardinalities[i])
    forbidden = np.empty(most, dtype=np.int32)
    scores = np.empty(most)
    n_changes = 0
    changed = True
    while changed:
        changed = False
        for i in order:
            conditional_scores(structure, unary, log_table, i, labels, forbidden, scores)
            best = labels[i]
            for y in range(structure.cardinalities[i]):
                gain = scores[y] - scores[best]
                margin = 1e-12 * (1.0 + abs(scores[best]))
                if forbidden[y] < forbidden[best] or (
                    forbidden[y] == forbidden[best] and gain > margin
                ):
                    best = y
            if best != labels[i]:
                labels[i] = best
                changed = True
                n_changes += 1
    return n_changes
