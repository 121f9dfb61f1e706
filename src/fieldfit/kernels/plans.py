"""Build a plan from slots and their levels, in linear time and with little extra memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import Plan
from fieldfit.kernels.structure import counting_order

IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True)
def is_pair_slot(structure: Any, slot: int, n_labels: int) -> bool:
    """True if the slot's factor has two variables, both with ``n_labels`` labels."""
    factor = structure.slot_factors[slot]
    first = structure.scope_offsets[factor]
    if structure.scope_offsets[factor + 1] - first != 2:
        return False
    left, right = structure.slot_variables[first], structure.slot_variables[first + 1]
    return structure.cardinalities[left] == n_labels and structure.cardinalities[right] == n_labels


@njit(cache=True, nogil=True)
def build_plan(
    structure: Any, slots: IntArray, levels: IntArray, n_levels: int, n_labels: int
) -> Any:
    """`arrays.Plan` of slots with levels; inside a level the given order is kept.

    A level's variables are listed in the order in which its slots first name them.
    """
    order = counting_order(levels, n_levels)
    listed_at = np.full(len(structure.cardinalities), -1, dtype=np.int32)
    n_pairs, n_variables = 0, 0
    for index in order:
        n_pairs += is_pair_slot(structure, slots[index], n_labels)
        variable = structure.slot_variables[slots[index]]
        if listed_at[variable] != levels[index]:
            listed_at[variable] = levels[index]
            n_variables += 1
    plan = Plan(
        np.empty(n_pairs, dtype=np.int32),
        np.empty(n_pairs, dtype=np.int32),
        np.empty(n_pairs, dtype=np.int32),
        np.zeros(n_levels + 1, dtype=np.int32),
        np.empty(len(slots) - n_pairs, dtype=np.int32),
        np.zeros(n_levels + 1, dtype=np.int32),
        np.empty(n_variables, dtype=np.int32),
        np.zeros(n_levels + 1, dtype=np.int32),
    )
    listed_at[:] = -1
    n_pairs, n_slots, n_variables = 0, 0, 0
    for index in order:
        slot, level = slots[index], levels[index]
        variable = structure.slot_variables[slot]
        if is_pair_slot(structure, slot, n_labels):
            factor = structure.slot_factors[slot]
            first = structure.scope_offsets[factor]
            other = first if slot > first else first + 1
            plan.pair_target[n_pairs] = structure.message_offsets[slot]
            plan.pair_source[n_pairs] = structure.unary_offsets[structure.slot_variables[other]]
            plan.pair_factor[n_pairs] = factor if slot > first else ~factor
            n_pairs += 1
        else:
            plan.slots[n_slots] = slot
            n_slots += 1
        if listed_at[variable] != level:
            listed_at[variable] = level
            plan.variables[n_variables] = variable
            n_variables += 1
        plan.pair_offsets[level + 1] = n_pairs
        plan.slot_offsets[level + 1] = n_slots
        plan.variable_offsets[level + 1] = n_variables
    for level in range(n_levels):  # levels without slots
        plan.pair_offsets[level + 1] = max(plan.pair_offsets[level + 1], plan.pair_offsets[level])
        plan.slot_offsets[level + 1] = max(plan.slot_offsets[level + 1], plan.slot_offsets[level])
        plan.variable_offsets[level + 1] = max(
            plan.variable_offsets[level + 1], plan.variable_offsets[level]
        )
    return plan
