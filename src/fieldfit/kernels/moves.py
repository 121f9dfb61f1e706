"""Kernels of expansion moves: where they start, what they may change, and what pairs they need."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT
from fieldfit.kernels.cuts import is_submodular

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@njit(cache=True, nogil=True, error_model="numpy")
def take_best_labels(
    structure: Any, unary: FloatArray, moving: BoolArray, labels: IntArray
) -> None:
    """Give every moving variable its best label by itself."""
    for i in range(len(labels)):
        if moving[i]:
            start = structure.unary_offsets[i]
            labels[i] = np.argmax(unary[start : structure.unary_offsets[i + 1]])


@njit(cache=True, nogil=True, error_model="numpy")
def offer_label(
    structure: Any,
    unary: FloatArray,
    moving: BoolArray,
    labels: IntArray,
    label: int,
    offered: IntArray,
) -> int:
    """What each variable may change to: ``label`` if it may move and has it, else its own label.

    Returns the number of variables that may change.
    """
    n_offers = 0
    for i in range(len(labels)):
        offered[i] = labels[i]
        if (
            moving[i]
            and labels[i] != label
            and label < structure.cardinalities[i]
            and unary[structure.unary_offsets[i] + label] != NO_WEIGHT
        ):
            offered[i] = label
            n_offers += 1
    return n_offers


@njit(cache=True, nogil=True, error_model="numpy")
def find_unsuitable_move(
    structure: Any, unary: FloatArray, tables: FloatArray, factors: IntArray, moving: BoolArray
) -> IntArray:
    """Factor and labels ``a, b, c`` for which a move to ``c`` is no minimum cut; -1 if none.

    Moves need ``th(a, b) + th(c, c) >= th(a, c) + th(c, b)`` for all possible labels.
    """
    found = np.full(4, -1, dtype=np.int32)
    for factor in factors:
        slot = structure.scope_offsets[factor]
        i, j = structure.slot_variables[slot], structure.slot_variables[slot + 1]
        if not moving[i]:
            continue
        n_rows, n_columns = structure.cardinalities[i], structure.cardinalities[j]
        table = tables[structure.table_offsets[factor] : structure.table_offsets[factor + 1]]
        if _is_potts(table, n_rows, n_columns):
            continue
        of_i = unary[structure.unary_offsets[i] : structure.unary_offsets[i + 1]]
        of_j = unary[structure.unary_offsets[j] : structure.unary_offsets[j + 1]]
        for c in range(min(n_rows, n_columns)):
            if of_i[c] == NO_WEIGHT or of_j[c] == NO_WEIGHT:
                continue
            for a in range(n_rows):
                if a == c or of_i[a] == NO_WEIGHT:
                    continue
                for b in range(n_columns):
                    if b == c or of_j[b] == NO_WEIGHT:
                        continue
                    if not is_submodular(
                        table[a * n_columns + b],
                        table[a * n_columns + c],
                        table[c * n_columns + b],
                        table[c * n_columns + c],
                    ):
                        found[0], found[1], found[2], found[3] = factor, a, b, c
                        return found
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def _is_potts(table: FloatArray, n_rows: int, n_columns: int) -> bool:
    """One value off the diagonal and none on it that is smaller: no need to look at all triples."""
    if n_rows < 2 or n_columns < 2:
        return True
    off = table[1]
    for a in range(n_rows):
        for b in range(n_columns):
            value = table[a * n_columns + b]
            if (value < off) if a == b else (value != off):
                return False
    return True
