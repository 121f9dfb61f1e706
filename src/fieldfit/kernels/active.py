"""Restrict a plan to what may still change.

A message depends on the beliefs of the other variables of its factor.  Where none of them moved by
more than a threshold in the last sweep there is nothing to do; in a large graph, or a batch of many
examples, most messages settle long before the last ones do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import Plan
from fieldfit.kernels.simd import load, store

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy")
def pair_owner(structure: Any, signed_factor: int) -> int:
    """Variable that receives the message of a pair slot."""
    if signed_factor >= 0:
        return load(structure.slot_variables, load(structure.scope_offsets, signed_factor) + 1)
    return load(structure.slot_variables, load(structure.scope_offsets, ~signed_factor))


@njit(cache=True, nogil=True, error_model="numpy")
def variable_changes(structure: Any, plan: Any, changes: Any) -> FloatArray:
    """Largest change of a message into each variable in the last sweep over ``plan``."""
    largest = np.zeros(len(structure.cardinalities))
    for position in range(len(plan.pair_factor)):
        owner = pair_owner(structure, load(plan.pair_factor, position))
        store(largest, owner, max(load(largest, owner), load(changes.pair, position)))
    for position in range(len(plan.slots)):
        owner = structure.slot_variables[plan.slots[position]]
        largest[owner] = max(largest[owner], changes.slot[position])
    return largest


@njit(cache=True, nogil=True, error_model="numpy")
def neighbours_of_moved(structure: Any, largest: FloatArray, threshold: float) -> Any:
    """Mark the variables that share a factor with one that moved by more than ``threshold``."""
    active = np.zeros(len(structure.cardinalities), dtype=np.bool_)
    for j in range(len(structure.cardinalities)):
        if largest[j] > threshold:
            for position in range(
                structure.variable_slot_offsets[j], structure.variable_slot_offsets[j + 1]
            ):
                factor = structure.slot_factors[structure.variable_slots[position]]
                for slot in range(
                    structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
                ):
                    i = structure.slot_variables[slot]
                    if i != j:
                        active[i] = True
    return active


@njit(cache=True, nogil=True, error_model="numpy")
def restricted_plan(structure: Any, plan: Any, active: Any) -> Any:
    """The part of a plan whose messages go to active variables; levels are kept.

    A flooding plan lists the two slots of a pair one after the other, and blocks and threads rely
    on finding both together, so that neither reads what the other writes: both stay or both go.
    """
    n_levels = len(plan.variable_offsets) - 1
    kept = Plan(
        np.empty_like(plan.pair_target),
        np.empty_like(plan.pair_source),
        np.empty_like(plan.pair_factor),
        np.zeros(n_levels + 1, dtype=np.int32),
        np.empty_like(plan.slots),
        np.zeros(n_levels + 1, dtype=np.int32),
        np.empty_like(plan.variables),
        np.zeros(n_levels + 1, dtype=np.int32),
    )
    refreshed = active.copy()
    n_pairs, n_slots, n_variables = 0, 0, 0
    for level in range(n_levels):
        begin, end = plan.pair_offsets[level], plan.pair_offsets[level + 1]
        for position in range(begin, end):
            factor = load(plan.pair_factor, position)
            owner = pair_owner(structure, factor)
            is_kept = active[owner]
            if not is_kept and (
                (position > begin and load(plan.pair_factor, position - 1) == ~factor)
                or (position + 1 < end and load(plan.pair_factor, position + 1) == ~factor)
            ):
                is_kept = active[pair_owner(structure, ~factor)]
                refreshed[owner] |= is_kept
            if is_kept:
                store(kept.pair_target, n_pairs, load(plan.pair_target, position))
                store(kept.pair_source, n_pairs, load(plan.pair_source, position))
                store(kept.pair_factor, n_pairs, factor)
                n_pairs += 1
        for position in range(plan.slot_offsets[level], plan.slot_offsets[level + 1]):
            if active[structure.slot_variables[plan.slots[position]]]:
                kept.slots[n_slots] = plan.slots[position]
                n_slots += 1
        for position in range(plan.variable_offsets[level], plan.variable_offsets[level + 1]):
            if refreshed[plan.variables[position]]:
                kept.variables[n_variables] = plan.variables[position]
                n_variables += 1
        kept.pair_offsets[level + 1] = n_pairs
        kept.slot_offsets[level + 1] = n_slots
        kept.variable_offsets[level + 1] = n_variables
    return Plan(
        kept.pair_target[:n_pairs],
        kept.pair_source[:n_pairs],
        kept.pair_factor[:n_pairs],
        kept.pair_offsets,
        kept.slots[:n_slots],
        kept.slot_offsets,
        kept.variables[:n_variables],
        kept.variable_offsets,
    )
