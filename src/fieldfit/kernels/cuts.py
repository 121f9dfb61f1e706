r"""From tables of pairs to a flow network whose cuts are labellings.

Every variable chooses between two labels, ``first[i]`` (``x_i = 0``, the source's side) and
``second[i]`` (``x_i = 1``); they are equal if there is no choice.  A table of a pair is then
four numbers, in *normal form*

    th(x_i, x_j) = constant + slope_i x_i + slope_j x_j
                   - forward [x_i = 0, x_j = 1] - backward [x_i = 1, x_j = 0]

with capacities ``forward, backward >= 0`` if ``th(0,0) + th(1,1) >= th(0,1) + th(1,0)``; two equal
capacities where all four numbers are finite, because the least flow then goes to the terminals.  A
hard zero is an infinite capacity, or forbids a label of one variable.

Reference: Kolmogorov and Zabih, "What energy functions can be minimized via graph cuts?", IEEE
Trans. Pattern Analysis and Machine Intelligence 26 (2004).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT
from fieldfit.kernels.max_flow import IndexArray, Network

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
ByteArray = NDArray[np.uint8]

#: A pair counts as submodular if it is so up to this, relative to its entries: tables that are
#: computed, e.g. as sums of weights, miss equality by rounding.
SLACK = 1e-12
#: Bits of a set of forbidden labels.
NOT_FIRST, NOT_SECOND = 1, 2


class Pairs(NamedTuple):
    """A model of pairs with two labels to choose from for each variable."""

    unary: FloatArray
    tables: FloatArray
    factors: IntArray  # factors of arity two
    first: IntArray
    second: IntArray


@njit(cache=True, nogil=True, error_model="numpy")
def build_network(structure: Any, factors: IntArray, slot_arcs: IndexArray) -> Network:
    """One node for each variable, one arc for each slot of a pair, in the order of the slots.

    ``slot_arcs`` receives the arc of each slot.
    """
    n_arcs = len(structure.variable_slots)
    for arc in range(n_arcs):
        slot_arcs[structure.variable_slots[arc]] = arc
    offsets = structure.variable_slot_offsets.astype(np.uint32)
    heads = np.empty(n_arcs, dtype=np.uint32)
    reverses = np.empty(n_arcs, dtype=np.uint32)
    for factor in factors:
        slot = structure.scope_offsets[factor]
        there, back = slot_arcs[slot], slot_arcs[slot + 1]
        heads[there] = structure.slot_variables[slot + 1]
        heads[back] = structure.slot_variables[slot]
        reverses[there] = back
        reverses[back] = there
    return Network(offsets, heads, reverses)


@njit(cache=True, nogil=True, error_model="numpy")
def choose_labels(
    structure: Any, unary: FloatArray, first: IntArray, second: IntArray, counts: IntArray
) -> None:
    """First and last possible label of each variable, and how many are possible."""
    for i in range(len(structure.cardinalities)):
        first[i] = second[i] = counts[i] = 0
        for y in range(structure.cardinalities[i]):
            if unary[structure.unary_offsets[i] + y] != NO_WEIGHT:
                if counts[i] == 0:
                    first[i] = y
                second[i] = y
                counts[i] += 1


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def four_entries(structure: Any, pairs: Pairs, factor: int) -> tuple[float, float, float, float]:
    """``th(0,0), th(0,1), th(1,0), th(1,1)`` of one pair."""
    slot = structure.scope_offsets[factor]
    i, j = structure.slot_variables[slot], structure.slot_variables[slot + 1]
    n_columns = structure.cardinalities[j]
    start = structure.table_offsets[factor]
    low, high = start + pairs.first[i] * n_columns, start + pairs.second[i] * n_columns
    left, right = pairs.first[j], pairs.second[j]
    return (
        pairs.tables[low + left],
        pairs.tables[low + right],
        pairs.tables[high + left],
        pairs.tables[high + right],
    )


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def is_submodular(t00: float, t01: float, t10: float, t11: float) -> bool:
    """Whether a minimum cut can represent the table; sums of two equal entries cancel exactly."""
    if t01 == NO_WEIGHT or t10 == NO_WEIGHT:
        return True
    if t00 == NO_WEIGHT or t11 == NO_WEIGHT:
        return False
    excess = (t00 - t10) + (t11 - t01)
    return excess >= 0.0 or excess >= -SLACK * (abs(t00) + abs(t01) + abs(t10) + abs(t11))


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _line(low: float, high: float) -> tuple[float, float, int]:
    """``constant + slope x`` through two values, and which of them are forbidden."""
    if low == NO_WEIGHT:
        if high == NO_WEIGHT:
            return 0.0, 0.0, NOT_FIRST | NOT_SECOND
        return high, 0.0, NOT_FIRST
    if high == NO_WEIGHT:
        return low, 0.0, NOT_SECOND
    return low, high - low, 0


@njit(cache=True, nogil=True, error_model="numpy")
def normal_form(
    t00: float, t01: float, t10: float, t11: float
) -> tuple[float, float, float, float, float, int, int]:
    """Constant, slopes, forward and backward capacity, forbidden labels of both variables.

    The table has to be submodular.
    """
    if t00 != NO_WEIGHT and t01 != NO_WEIGHT and t10 != NO_WEIGHT and t11 != NO_WEIGHT:
        half = max(0.0, 0.5 * ((t00 - t10) + (t11 - t01)))
        slope_i = 0.5 * ((t10 - t00) + (t11 - t01))
        slope_j = 0.5 * ((t01 - t00) + (t11 - t10))
        return t00, slope_i, slope_j, half, half, 0, 0
    # a row or a column of hard zeros forbids a label; what is left is a line
    if t00 == NO_WEIGHT and t01 == NO_WEIGHT:
        constant, slope, forbidden = _line(t10, t11)
        return constant, 0.0, slope, 0.0, 0.0, NOT_FIRST, forbidden
    if t10 == NO_WEIGHT and t11 == NO_WEIGHT:
        constant, slope, forbidden = _line(t00, t01)
        return constant, 0.0, slope, 0.0, 0.0, NOT_SECOND, forbidden
    if t00 == NO_WEIGHT and t10 == NO_WEIGHT:
        constant, slope, forbidden = _line(t01, t11)
        return constant, slope, 0.0, 0.0, 0.0, forbidden, NOT_FIRST
    if t01 == NO_WEIGHT and t11 == NO_WEIGHT:
        constant, slope, forbidden = _line(t00, t10)
        return constant, slope, 0.0, 0.0, 0.0, forbidden, NOT_SECOND
    # otherwise the diagonal is finite and infinite capacities do it
    if t01 == NO_WEIGHT and t10 == NO_WEIGHT:
        slope = 0.5 * (t11 - t00)
        return t00, slope, slope, np.inf, np.inf, 0, 0
    if t01 == NO_WEIGHT:
        return t00, t10 - t00, t11 - t10, np.inf, 0.0, 0, 0
    return t00, t11 - t01, t01 - t00, 0.0, np.inf, 0, 0


@njit(cache=True, nogil=True, error_model="numpy")
def find_unsuitable_pair(structure: Any, pairs: Pairs) -> int:
    """The first pair that is not submodular, or -1."""
    for factor in pairs.factors:
        t00, t01, t10, t11 = four_entries(structure, pairs, factor)
        if not is_submodular(t00, t01, t10, t11):
            return factor
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def fill_capacities(
    structure: Any,
    pairs: Pairs,
    slot_arcs: IndexArray,
    residual: FloatArray,
    terminal: FloatArray,
    forbidden: ByteArray,
) -> int:
    """Capacities of the network of submodular pairs; a variable without a label, or -1.

    ``forbidden`` receives the labels that a table excludes.  A variable without any has no arc to a
    terminal, so that the rest of the network can be solved nevertheless.
    """
    n_variables = len(structure.cardinalities)
    for i in range(n_variables):
        start = structure.unary_offsets[i]
        terminal[i] = pairs.unary[start + pairs.first[i]] - pairs.unary[start + pairs.second[i]]
        forbidden[i] = 0
    for factor in pairs.factors:
        t00, t01, t10, t11 = four_entries(structure, pairs, factor)
        _, slope_i, slope_j, forward, backward, not_i, not_j = normal_form(t00, t01, t10, t11)
        slot = structure.scope_offsets[factor]
        i, j = structure.slot_variables[slot], structure.slot_variables[slot + 1]
        terminal[i] -= slope_i
        terminal[j] -= slope_j
        forbidden[i] |= not_i
        forbidden[j] |= not_j
        residual[slot_arcs[slot]] = forward
        residual[slot_arcs[slot + 1]] = backward
    empty = -1
    for i in range(n_variables):
        if forbidden[i] == NOT_FIRST:
            terminal[i] = -np.inf
        elif forbidden[i] == NOT_SECOND:
            terminal[i] = np.inf
        elif forbidden[i] != 0:
            terminal[i] = 0.0
            empty = i
    return empty
