"""Residual scheduling: variables with large pending changes first (see `arrays`).

A variable's *pending change* is the sum of the changes of its neighbours' beliefs since its own
messages were last computed.  It bounds what an update could change, so no message is computed
only to learn its residual: every message computed is used (Sutton and McCallum, "Improved dynamic
schedules for belief propagation", UAI 2007; Elidan, McGraw and Koller, UAI 2006, for exact
residuals).

Priorities are relaxed: passes over the variables update those whose pending change exceeds a
threshold, and the threshold falls when few are left.  A queue that always yields the largest one
costs about ten times as much for each message (a move in a bucket queue is 70 ns of unpredictable
branches, and the order it gives defeats the cache), and needs no fewer messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import CONTRADICTION, Plan
from fieldfit.kernels.factor_messages import update_slots
from fieldfit.kernels.pair_messages import update_pairs
from fieldfit.kernels.sweeps import refresh

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]

#: Variables updated together: on a grid their messages fill two blocks.
GROUP = 16
#: The threshold is lowered when fewer than this share of the variables exceeded it in a pass.
FEW = 1.0 / 32.0
#: By how much: the next threshold is this times the largest pending change.
LOWERING = 0.25


@njit(cache=True, nogil=True, error_model="numpy")
def empty_group(capacity: int) -> Any:
    """A plan with a single level and room for the slots of a group."""
    return Plan(
        np.empty(capacity, dtype=np.int32),
        np.empty(capacity, dtype=np.int32),
        np.empty(capacity, dtype=np.int32),
        np.zeros(2, dtype=np.int32),
        np.empty(capacity, dtype=np.int32),
        np.zeros(2, dtype=np.int32),
        np.empty(GROUP, dtype=np.int32),
        np.zeros(2, dtype=np.int32),
    )


# Inlined by force: a call would push every field of every array on the stack.
@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def add_to_group(by_variable: Any, variable: int, group: Any) -> None:
    """Append a variable and its slots."""
    n_pairs, n_slots = group.pair_offsets[1], group.slot_offsets[1]
    for position in range(
        by_variable.pair_offsets[variable], by_variable.pair_offsets[variable + 1]
    ):
        group.pair_target[n_pairs] = by_variable.pair_target[position]
        group.pair_source[n_pairs] = by_variable.pair_source[position]
        group.pair_factor[n_pairs] = by_variable.pair_factor[position]
        n_pairs += 1
    for position in range(
        by_variable.slot_offsets[variable], by_variable.slot_offsets[variable + 1]
    ):
        group.slots[n_slots] = by_variable.slots[position]
        n_slots += 1
    group.pair_offsets[1], group.slot_offsets[1] = n_pairs, n_slots
    group.variables[group.variable_offsets[1]] = variable
    group.variable_offsets[1] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def update_group(
    labels: Any,
    structure: Any,
    model: Any,
    state: Any,
    group: Any,
    change: FloatArray,
    before: FloatArray,
    pending: FloatArray,
    damping: float,
    tol: float,
) -> int:
    """Update the variables of a group, tell their neighbours, and empty it; returns flags."""
    n_variables = group.variable_offsets[1]
    n_pairs, n_slots = group.pair_offsets[1], group.slot_offsets[1]
    width = len(before) // GROUP
    flags = 0
    for k in range(n_variables):
        i = group.variables[k]
        offset = structure.unary_offsets[i]
        for y in range(structure.cardinalities[i]):
            before[k * width + y] = state.log_belief[offset + y]
    if n_pairs > 0:
        flags |= update_pairs(
            labels, structure, group, 0, n_pairs, model, state, change, damping, tol
        )
    if n_slots > 0:
        flags |= update_slots(structure, group, 0, n_slots, model, state, change, damping, tol)
    flags |= refresh(labels, structure, group.variables, 0, n_variables, model, state)
    for k in range(n_variables):
        i = group.variables[k]
        offset = structure.unary_offsets[i]
        moved = 0.0
        for y in range(structure.cardinalities[i]):
            value = state.log_belief[offset + y]
            if value != before[k * width + y]:
                moved = max(moved, abs(value - before[k * width + y]))
        # a label just excluded moves infinitely far; keep sums of pending changes finite
        moved = min(moved, 1e100)
        for position in range(
            structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        ):
            factor = structure.slot_factors[structure.variable_slots[position]]
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                other = structure.slot_variables[slot]
                if other != i:
                    pending[other] += moved
    group.pair_offsets[1] = group.slot_offsets[1] = group.variable_offsets[1] = 0
    return flags


@njit(cache=True, nogil=True, error_model="numpy")
def run_residual(
    labels: Any,
    structure: Any,
    by_variable: Any,
    model: Any,
    state: Any,
    pending: FloatArray,
    damping: float,
    tol: float,
    max_messages: int,
) -> tuple[int, int]:
    """Update by pending change until none exceeds ``tol``; number of messages and flags.

    ``by_variable`` is a plan with one level for each variable, in index order.  Passes alternate
    between both directions.  Stops early after about ``max_messages`` messages.
    """
    n_variables = len(structure.cardinalities)
    width, capacity = 1, 4 * GROUP
    threshold = tol
    for i in range(n_variables):
        width = max(width, structure.cardinalities[i])
        degree = structure.variable_slot_offsets[i + 1] - structure.variable_slot_offsets[i]
        capacity = max(capacity, degree)
        threshold = max(threshold, LOWERING * pending[i])
    group = empty_group(capacity)
    change = np.empty(capacity)
    before = np.empty(GROUP * width)
    flags = 0
    n_messages = 0
    forward = True
    while n_messages < max_messages and flags & CONTRADICTION == 0:
        n_updated = 0
        largest = 0.0
        for index in range(n_variables):
            i = index if forward else n_variables - 1 - index
            if pending[i] > threshold:
                degree = structure.variable_slot_offsets[i + 1] - structure.variable_slot_offsets[i]
                waiting = group.pair_offsets[1] + group.slot_offsets[1]
                if group.variable_offsets[1] == GROUP or waiting + degree > capacity:
                    flags |= update_group(
                        labels, structure, model, state, group, change, before, pending,
                        damping, tol,
                    )  # fmt: skip
                pending[i] = 0.0
                add_to_group(by_variable, i, group)
                n_messages += degree
                n_updated += 1
            else:
                largest = max(largest, pending[i])
        flags |= update_group(
            labels, structure, model, state, group, change, before, pending, damping, tol
        )
        forward = not forward
        if n_updated == 0 and threshold <= tol:
            break
        if n_updated < FEW * n_variables or n_updated == 0:
            threshold = max(tol, min(LOWERING * largest, LOWERING * threshold))
    return n_messages, flags
