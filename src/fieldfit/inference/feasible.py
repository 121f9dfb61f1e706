"""Feasible-configuration search: labels of positive weight, by arc consistency.

Depth-first search over labels with generalised arc consistency: after each decision every
factor that holds a ``-inf`` removes the labels without a supporting table entry, until nothing
changes.  A refuted label is removed for good below its parent decision, so an exhausted search
proves that the model has weight zero.  Work is counted in table entries read; the caller sets the
budget, because the problem is NP-hard.

Reference: Mackworth, "On reading sketch maps", IJCAI 1977 (arc consistency for any arity).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit.graph.structure import Structure
from fieldfit.numeric.compile import kernel

FOUND, IMPOSSIBLE, GAVE_UP = 0, 1, 2

#: How many undecided variables the search looks at for the one with the fewest labels left.
WINDOW = 64


class SearchState(NamedTuple):
    """Labels that are left, and what is needed to take removals back."""

    alive: BoolArray  # by unary entry
    n_alive: IntArray  # by variable
    trail: IntArray  # removed unary entries, oldest first
    trail_variables: IntArray
    waiting: BoolArray  # by factor: in the queue
    queue: IntArray  # ring of factors to revise
    supported: BoolArray  # one factor's labels, position after position
    digits: IntArray
    counters: LongArray  # trail length, queue head, queue length, table entries read


TRAIL, HEAD, LENGTH, WORK = 0, 1, 2, 3


@kernel
def find_hard_factors(structure: Structure, tables: FloatArray) -> BoolArray:
    """Factors of arity two or more with at least one ``-inf``."""
    n_factors = len(structure.scope_offsets) - 1
    hard = np.zeros(n_factors, dtype=np.bool_)
    for factor in range(n_factors):
        if structure.scope_offsets[factor + 1] - structure.scope_offsets[factor] >= 2:
            for entry in range(
                structure.table_offsets[factor], structure.table_offsets[factor + 1]
            ):
                if tables[entry] == -np.inf:
                    hard[factor] = True
                    break
    return hard


@kernel
def _start(structure: Structure, unary: FloatArray) -> SearchState:
    n_variables = len(structure.cardinalities)
    n_factors = len(structure.scope_offsets) - 1
    alive = unary > -np.inf
    n_alive = np.zeros(n_variables, dtype=np.int32)
    for variable in range(n_variables):
        for entry in range(
            structure.unary_offsets[variable], structure.unary_offsets[variable + 1]
        ):
            n_alive[variable] += alive[entry]
    widest, arity = 1, 1
    for factor in range(n_factors):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        widest = max(widest, structure.message_offsets[end] - structure.message_offsets[begin])
        arity = max(arity, end - begin)
    return SearchState(
        alive,
        n_alive,
        np.empty(len(unary), np.int32),
        np.empty(len(unary), np.int32),
        np.zeros(n_factors, np.bool_),
        np.empty(n_factors, np.int32),
        np.empty(widest, np.bool_),
        np.empty(arity, np.int32),
        np.zeros(4, np.int64),
    )


@kernel
def _enqueue(state: SearchState, factor: int) -> None:
    if not state.waiting[factor]:
        state.waiting[factor] = True
        tail = (state.counters[HEAD] + state.counters[LENGTH]) % len(state.queue)
        state.queue[tail] = factor
        state.counters[LENGTH] += 1


@kernel
def _remove(
    structure: Structure, hard: BoolArray, state: SearchState, variable: int, label: int
) -> None:
    """Remove one label and queue the hard factors around its variable."""
    entry = structure.unary_offsets[variable] + label
    state.alive[entry] = False
    state.n_alive[variable] -= 1
    state.trail[state.counters[TRAIL]] = entry
    state.trail_variables[state.counters[TRAIL]] = variable
    state.counters[TRAIL] += 1
    for position in range(
        structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
    ):
        factor = structure.slot_factors[structure.variable_slots[position]]
        if hard[factor]:
            _enqueue(state, factor)


@kernel
def _mark_supported(
    structure: Structure, tables: FloatArray, state: SearchState, factor: int
) -> None:
    """Find the labels of one scope that occur in an allowed entry of living labels."""
    begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    base = structure.message_offsets[begin]
    missing = 0
    for slot in range(begin, end):
        missing += state.n_alive[structure.slot_variables[slot]]
    state.supported[: structure.message_offsets[end] - base] = False
    state.digits[: end - begin] = 0
    for entry in range(structure.table_offsets[factor], structure.table_offsets[factor + 1]):
        state.counters[WORK] += 1
        possible = tables[entry] > -np.inf
        slot = begin
        while possible and slot < end:
            offset = structure.unary_offsets[structure.slot_variables[slot]]
            possible = state.alive[offset + state.digits[slot - begin]]
            slot += 1
        if possible:
            for own in range(begin, end):
                place = structure.message_offsets[own] - base + state.digits[own - begin]
                missing -= not state.supported[place]
                state.supported[place] = True
            if missing == 0:
                break
        position = end - begin - 1
        while position >= 0:
            variable = structure.slot_variables[begin + position]
            state.digits[position] += 1
            if state.digits[position] < structure.cardinalities[variable]:
                break
            state.digits[position] = 0
            position -= 1


@kernel
def _propagate(
    structure: Structure, tables: FloatArray, hard: BoolArray, state: SearchState
) -> bool:
    """Revise queued factors until none is left; false if a variable lost every label."""
    consistent = True
    while state.counters[LENGTH] > 0:
        factor = state.queue[state.counters[HEAD]]
        state.counters[HEAD] = (state.counters[HEAD] + 1) % len(state.queue)
        state.counters[LENGTH] -= 1
        if not consistent:  # only empty the queue
            state.waiting[factor] = False
            continue
        _mark_supported(structure, tables, state, factor)
        # still marked as waiting: its own removals leave it consistent
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        base = structure.message_offsets[begin]
        for slot in range(begin, end):
            variable = structure.slot_variables[slot]
            for label in range(structure.cardinalities[variable]):
                entry = structure.unary_offsets[variable] + label
                place = structure.message_offsets[slot] - base + label
                if state.alive[entry] and not state.supported[place]:
                    _remove(structure, hard, state, variable, label)
            if state.n_alive[variable] == 0:
                consistent = False
        state.waiting[factor] = False
    return consistent


@kernel
def remove_impossible_labels(
    structure: Structure, unary: FloatArray, tables: FloatArray, hard: BoolArray
) -> bool:
    """Set ``unary`` to -inf where arc consistency proves probability zero.

    False if a variable has no label left: then the model has weight zero.
    """
    state = _start(structure, unary)
    consistent = True
    for variable in range(len(structure.cardinalities)):
        if state.n_alive[variable] == 0:
            return False
    for factor in range(len(hard)):
        if hard[factor]:
            _enqueue(state, factor)
    consistent = _propagate(structure, tables, hard, state)
    for entry in range(len(unary)):
        if not state.alive[entry]:
            unary[entry] = -np.inf
    return consistent


@kernel
def _breadth_first(structure: Structure, hard: BoolArray) -> IntArray:
    """Variables of hard factors, neighbours close together."""
    n_variables = len(structure.cardinalities)
    order = np.empty(n_variables, dtype=np.int32)
    seen = np.zeros(n_variables, dtype=np.bool_)
    expanded = np.zeros(len(hard), dtype=np.bool_)
    head, tail = 0, 0
    for root in range(n_variables):
        if seen[root]:
            continue
        root_at = tail
        seen[root] = True
        order[tail] = root
        tail += 1
        while head < tail:
            variable = order[head]
            head += 1
            for position in range(
                structure.variable_slot_offsets[variable],
                structure.variable_slot_offsets[variable + 1],
            ):
                factor = structure.slot_factors[structure.variable_slots[position]]
                if hard[factor] and not expanded[factor]:
                    expanded[factor] = True
                    for slot in range(
                        structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
                    ):
                        other = structure.slot_variables[slot]
                        if not seen[other]:
                            seen[other] = True
                            order[tail] = other
                            tail += 1
        if tail == root_at + 1:  # no hard factor: nothing to decide
            tail = root_at
            head = tail
    return order[:tail].copy()


@kernel
def find_feasible_labels(
    structure: Structure,
    unary: FloatArray,
    tables: FloatArray,
    hard: BoolArray,
    preference: FloatArray,
    budget: int,
    labels: IntArray,
) -> int:
    """Write labels of positive weight; ``FOUND``, ``IMPOSSIBLE`` (proved) or ``GAVE_UP``.

    Of the labels that are left, the one of largest ``preference`` (by unary entry) goes first.
    ``unary`` must be arc consistent already (`remove_impossible_labels`).
    """
    state = _start(structure, unary)
    order = _breadth_first(structure, hard)
    # one row for each open decision: variable, label, trail length before, place in the order
    decisions = np.empty((len(order) + 1, 4), dtype=np.int64)
    depth = 0
    place = 0
    while True:
        while place < len(order) and state.n_alive[order[place]] == 1:
            place += 1
        if place == len(order):
            break
        variable = order[place]
        looked_at = 0
        for other in order[place:]:
            if state.n_alive[other] > 1:
                if state.n_alive[other] < state.n_alive[variable]:
                    variable = other
                looked_at += 1
                if state.n_alive[variable] == 2 or looked_at == WINDOW:
                    break
        label = _preferred(structure, state, preference, variable)
        decisions[depth, 0] = variable
        decisions[depth, 1] = label
        decisions[depth, 2] = state.counters[TRAIL]
        decisions[depth, 3] = place
        depth += 1
        for other_label in range(structure.cardinalities[variable]):
            alive = state.alive[structure.unary_offsets[variable] + other_label]
            if alive and other_label != label:
                _remove(structure, hard, state, variable, other_label)
        consistent = _propagate(structure, tables, hard, state)
        while not consistent:
            if depth == 0:
                return IMPOSSIBLE
            if state.counters[WORK] > budget:
                return GAVE_UP
            depth -= 1
            while state.counters[TRAIL] > decisions[depth, 2]:
                state.counters[TRAIL] -= 1
                state.alive[state.trail[state.counters[TRAIL]]] = True
                state.n_alive[state.trail_variables[state.counters[TRAIL]]] += 1
            place = decisions[depth, 3]
            _remove(structure, hard, state, decisions[depth, 0], decisions[depth, 1])
            consistent = state.n_alive[decisions[depth, 0]] > 0
            consistent = _propagate(structure, tables, hard, state) and consistent
    for variable in range(len(labels)):
        labels[variable] = _preferred(structure, state, preference, variable)
    return FOUND


@kernel
def _preferred(
    structure: Structure, state: SearchState, preference: FloatArray, variable: int
) -> int:
    """The living label of largest preference, the first one on a tie."""
    offset = structure.unary_offsets[variable]
    best = -1
    for label in range(structure.cardinalities[variable]):
        if state.alive[offset + label] and (
            best < 0 or preference[offset + label] > preference[offset + best]
        ):
            best = label
    return best
