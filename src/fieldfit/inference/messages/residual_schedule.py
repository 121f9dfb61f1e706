"""Residual belief propagation: variables with large pending changes first.

A variable's *pending change* is the sum of the changes of its neighbours' beliefs since its own
messages were last computed.  It bounds what an update could change, so no message is computed only
to learn its residual: every message computed is used (Sutton and McCallum, "Improved dynamic
schedules for belief propagation", UAI 2007; Elidan, McGraw and Koller, "Residual belief
propagation", UAI 2006, for exact residuals).

Priorities are relaxed: passes over the variables update those whose pending change exceeds a
threshold, and the threshold falls when few are left.  A queue that always yields the largest one
costs about ten times as much for each message (a move in a bucket queue is 70 ns of unpredictable
branches, and the order it gives defeats the cache), and needs no fewer messages.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.ragged import row_numbers
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.factor_update import update_slots
from fieldfit.inference.messages.message_arrays import CONTRADICTION, Model, Plan, State
from fieldfit.inference.messages.message_sweeps import refresh
from fieldfit.inference.messages.pair_update import update_pairs
from fieldfit.inference.messages.schedule import plan_of_levels
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import load, store

__all__ = ["by_variable_plan", "residual_messages"]

#: Variables updated together; with 16, the three calls for each group cost a quarter more.
GROUP = 64
#: The threshold is lowered when fewer than this fraction of the variables exceeded it in a pass.
FEW = 1.0 / 32.0
#: By how much: the next threshold is this times the largest pending change.
LOWERING = 0.25


@kernel
def empty_group(capacity: int) -> Plan:
    """A plan with a single level and space for the slots of a group."""
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
@kernel(inline="always")
def add_to_group(
    structure: Structure,
    by_variable: Plan,
    variable: int,
    group: Plan,
    pending: FloatArray,
    stamp: float,
) -> None:
    """Append a variable and its slots, and block its neighbours for the rest of the group.

    A message is formed from a belief and the message back; were a neighbour in the same group, one
    of the two would be old and the other new.
    """
    n_pairs, n_slots = group.pair_offsets[1], group.slot_offsets[1]
    for position in range(
        load(by_variable.pair_offsets, variable), load(by_variable.pair_offsets, variable + 1)
    ):
        source = load(by_variable.pair_source, position)
        store(group.pair_target, n_pairs, load(by_variable.pair_target, position))
        store(group.pair_source, n_pairs, source)
        store(group.pair_factor, n_pairs, load(by_variable.pair_factor, position))
        store(pending, 2 * source + 1, stamp)
        n_pairs += 1
    for position in range(
        by_variable.slot_offsets[variable], by_variable.slot_offsets[variable + 1]
    ):
        group.slots[n_slots] = by_variable.slots[position]
        n_slots += 1
        factor = structure.slot_factors[by_variable.slots[position]]
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            entry = structure.unary_offsets[structure.slot_variables[slot]]
            pending[2 * entry + 1] = stamp
    group.pair_offsets[1], group.slot_offsets[1] = n_pairs, n_slots
    group.variables[group.variable_offsets[1]] = variable
    group.variable_offsets[1] += 1


@kernel
def update_group(
    k: tuple[int, ...],
    structure: Structure,
    by_variable: Plan,
    model: Model,
    state: State,
    group: Plan,
    change: FloatArray,
    pending: FloatArray,
    damping: float,
    tol: float,
) -> int:
    """Update the variables of a group, tell their neighbours, and empty it; returns flags.

    A belief moves by at most the sum of the changes of its messages over ``chat_i``.
    """
    n_variables = group.variable_offsets[1]
    n_pairs, n_slots = group.pair_offsets[1], group.slot_offsets[1]
    flags = 0
    if n_pairs > 0:
        flags |= update_pairs(k, structure, group, 0, n_pairs, model, state, change, damping, tol)
    if n_slots > 0:
        flags |= update_slots(
            structure, group, 0, n_slots, model, state, change[n_pairs:], damping, tol
        )
    flags |= refresh(k, structure, group.variables, 0, n_variables, model, state)
    first, at = 0, 0
    for position in range(n_variables):
        i = group.variables[position]
        end = first + by_variable.pair_offsets[i + 1] - by_variable.pair_offsets[i]
        stop = at + by_variable.slot_offsets[i + 1] - by_variable.slot_offsets[i]
        moved = 0.0
        for pair in range(first, end):
            moved += load(change, pair)
        for index in range(at, stop):
            moved += change[n_pairs + index]
        # a label just excluded moves infinitely far; keep sums of pending changes finite
        moved = min(moved / model.variable_total[i], 1e100)
        for pair in range(first, end):
            entry = 2 * load(group.pair_source, pair)
            store(pending, entry, load(pending, entry) + moved)
        for index in range(at, stop):
            factor = structure.slot_factors[group.slots[index]]
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                other = structure.slot_variables[slot]
                if other != i:
                    pending[2 * structure.unary_offsets[other]] += moved
        first, at = end, stop
    group.pair_offsets[1] = group.slot_offsets[1] = group.variable_offsets[1] = 0
    return flags


@kernel
def run_residual(
    k: tuple[int, ...],
    structure: Structure,
    by_variable: Plan,
    model: Model,
    state: State,
    pending: FloatArray,
    damping: float,
    tol: float,
    max_messages: int,
) -> tuple[int, int]:
    """Update by pending change until none exceeds ``tol``; number of messages and flags.

    ``by_variable`` is a plan with one level for each variable, in index order.  ``pending`` holds,
    at twice the first unary entry of a variable (the name that plans use for it), its pending
    change and, beside it, the number of the last group that blocked it.  Passes alternate between
    both directions.  Stops early after about ``max_messages`` messages.
    """
    n_variables = len(structure.cardinalities)
    capacity = 4 * GROUP
    threshold = tol
    for i in range(n_variables):
        degree = structure.variable_slot_offsets[i + 1] - structure.variable_slot_offsets[i]
        capacity = max(capacity, degree)
        threshold = max(threshold, LOWERING * pending[2 * structure.unary_offsets[i]])
        pending[2 * structure.unary_offsets[i] + 1] = 0.0
    group = empty_group(capacity)
    change = np.empty(capacity)
    stamp = 1.0
    flags = 0
    n_messages = 0
    forward = True
    while n_messages < max_messages and flags & CONTRADICTION == 0:
        n_above = 0
        largest = 0.0
        for index in range(n_variables):
            i = index if forward else n_variables - 1 - index
            entry = 2 * load(structure.unary_offsets, i)
            change_ahead = load(pending, entry)
            if change_ahead <= threshold:
                largest = max(largest, change_ahead)
                continue
            n_above += 1
            if load(pending, entry + 1) == stamp:
                continue  # in the next pass
            degree = structure.variable_slot_offsets[i + 1] - structure.variable_slot_offsets[i]
            n_waiting = group.pair_offsets[1] + group.slot_offsets[1]
            if group.variable_offsets[1] == GROUP or n_waiting + degree > capacity:
                flags |= update_group(
                    k, structure, by_variable, model, state, group, change, pending,
                    damping, tol,
                )  # fmt: skip
                stamp += 1.0
            store(pending, entry, 0.0)
            add_to_group(structure, by_variable, i, group, pending, stamp)
            n_messages += degree
        flags |= update_group(
            k, structure, by_variable, model, state, group, change, pending, damping, tol
        )
        stamp += 1.0
        forward = not forward
        if n_above == 0 and threshold <= tol:
            break
        if n_above < FEW * n_variables or n_above == 0:
            threshold = max(tol, min(LOWERING * largest, LOWERING * threshold))
    return n_messages, flags


# -- setting up and running ---------------------------------------------------------------

_PLANS: WeakKeyDictionary[FactorGraph, Plan] = WeakKeyDictionary()


def by_variable_plan(graph: FactorGraph) -> Plan:
    """A plan with one level for each variable (remembered while the graph lives)."""
    if graph not in _PLANS:
        structure = graph.structure
        levels = row_numbers(structure.variable_slot_offsets).astype(np.int32)
        _PLANS[graph] = plan_of_levels(
            graph, structure.variable_slots, levels, n_levels=graph.n_variables
        )
    return _PLANS[graph]


def residual_messages(
    graph: FactorGraph,
    k: tuple[int, ...],
    model: Model,
    state: State,
    pending: NDArray[np.float64],
    damping: float,
    tol: float,
    max_messages: int,
) -> tuple[int, bool]:
    """Run the schedule; number of messages and whether a contradiction was met."""
    n_messages, flags = run_residual(
        k, graph.structure, by_variable_plan(graph), model, state, pending,
        damping, tol, max_messages,
    )  # fmt: skip
    return int(n_messages), bool(flags & CONTRADICTION)
