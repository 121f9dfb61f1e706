"""Messages of factors of any arity and cardinality, one at a time (see `message_arrays`).

A table is walked row by row with an odometer over all variables of the scope but the last; running
products (or sums) over the earlier variables make the cost of a table entry independent of the
arity.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.structure import Structure, next_row
from fieldfit.inference.messages.message_arrays import (
    ABOVE_TOLERANCE,
    CONTRADICTION,
    NO_WEIGHT,
    TINY,
    Model,
    Plan,
    State,
)
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store


@kernel(fastmath=SAFE_FASTMATH)
def incoming_vectors(
    structure: Structure, model: Model, state: State, factor: int, lam: FloatArray
) -> int:
    """``lam_aj`` of every slot of a factor, each with maximum 0, one after the other."""
    flags = 0
    first = structure.scope_offsets[factor]
    base = structure.message_offsets[first]
    weight = model.factor_weight[factor]
    for slot in range(first, structure.scope_offsets[factor + 1]):
        variable = structure.slot_variables[slot]
        source = structure.unary_offsets[variable]
        offset = structure.message_offsets[slot]
        top = NO_WEIGHT
        for y in range(structure.cardinalities[variable]):
            old = state.message[offset + y]
            value = weight * state.log_belief[source + y] - old if old > NO_WEIGHT else NO_WEIGHT
            lam[offset - base + y] = value
            top = max(top, value)
        if top == NO_WEIGHT:
            flags = CONTRADICTION
        else:
            for y in range(structure.cardinalities[variable]):
                lam[offset - base + y] -= top
    return flags


@kernel(fastmath=SAFE_FASTMATH)
def contract_sum(
    structure: Structure,
    exp_table: FloatArray,
    slot: int,
    factor: int,
    inner: FloatArray,
    outer: FloatArray,
    digits: IntArray,
    prefix: FloatArray,
) -> None:
    """``outer(y_i) = sum over the other variables of exp_table * product of their inner``.

    Rows of the table (its last variable) are contiguous; ``prefix`` holds the running products
    over the earlier variables, so that a table entry costs one multiplication and one addition.
    """
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    base = structure.message_offsets[first]
    n_last = structure.cardinalities[structure.slot_variables[last]]
    row_inner = structure.message_offsets[last] - base
    start = structure.message_offsets[slot] - base
    for y in range(structure.cardinalities[structure.slot_variables[slot]]):
        outer[start + y] = 0.0
    digits[: last - first] = 0
    prefix[0] = 1.0
    changed = first
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for position in range(changed, last):
            value = 1.0
            if position != slot:
                value = inner[structure.message_offsets[position] - base + digits[position - first]]
            prefix[position - first + 1] = prefix[position - first] * value
        scale = prefix[last - first]
        if slot == last:
            for y in range(n_last):
                store(outer, start + y, load(outer, start + y) + scale * load(exp_table, row + y))
        else:
            total = 0.0
            for y in range(n_last):
                total += load(exp_table, row + y) * load(inner, row_inner + y)
            outer[start + digits[slot - first]] += scale * total
        changed = next_row(structure, first, last, digits)


@kernel(fastmath=SAFE_FASTMATH)
def contract_max(
    structure: Structure,
    log_table: FloatArray,
    slot: int,
    factor: int,
    lam: FloatArray,
    outer: FloatArray,
    digits: IntArray,
    prefix: FloatArray,
) -> None:
    """``outer(y_i) = max over the other variables of log_table + sum of their lam``."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    base = structure.message_offsets[first]
    n_last = structure.cardinalities[structure.slot_variables[last]]
    row_lam = structure.message_offsets[last] - base
    start = structure.message_offsets[slot] - base
    for y in range(structure.cardinalities[structure.slot_variables[slot]]):
        outer[start + y] = NO_WEIGHT
    digits[: last - first] = 0
    prefix[0] = 0.0
    changed = first
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for position in range(changed, last):
            value = 0.0
            if position != slot:
                value = lam[structure.message_offsets[position] - base + digits[position - first]]
            prefix[position - first + 1] = prefix[position - first] + value
        shift = prefix[last - first]
        if slot == last:
            for y in range(n_last):
                outer[start + y] = max(outer[start + y], shift + log_table[row + y])
        else:
            top = NO_WEIGHT
            for y in range(n_last):
                top = max(top, log_table[row + y] + lam[row_lam + y])
            target = start + digits[slot - first]
            outer[target] = max(outer[target], shift + top)
        changed = next_row(structure, first, last, digits)


@kernel(fastmath=SAFE_FASTMATH)
def contract_exact(
    structure: Structure,
    log_table: FloatArray,
    slot: int,
    factor: int,
    weight: float,
    lam: FloatArray,
    outer: FloatArray,
    digits: IntArray,
    prefix: FloatArray,
) -> None:
    """`contract_sum` in the log domain, any range: shift by the maximum, then sum.

    Leaves ``log sum exp((th_a + sum lam) / c_a)`` in ``outer``.
    """
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    base = structure.message_offsets[first]
    n_last = structure.cardinalities[structure.slot_variables[last]]
    row_lam = structure.message_offsets[last] - base
    start = structure.message_offsets[slot] - base
    n_target = structure.cardinalities[structure.slot_variables[slot]]
    contract_max(structure, log_table, slot, factor, lam, outer, digits, prefix)
    sums = np.zeros(n_target)
    digits[: last - first] = 0
    prefix[0] = 0.0
    changed = first
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for position in range(changed, last):
            value = 0.0
            if position != slot:
                value = lam[structure.message_offsets[position] - base + digits[position - first]]
            prefix[position - first + 1] = prefix[position - first] + value
        shift = prefix[last - first]
        if shift > NO_WEIGHT:
            for y in range(n_last):
                own = y if slot == last else digits[slot - first]
                other = 0.0 if slot == last else lam[row_lam + y]
                value = shift + log_table[row + y] + other
                if value > NO_WEIGHT:
                    sums[own] += np.exp((value - outer[start + own]) / weight)
        changed = next_row(structure, first, last, digits)
    for y in range(n_target):
        if outer[start + y] > NO_WEIGHT:
            outer[start + y] = outer[start + y] / weight + np.log(sums[y])


@kernel(fastmath=SAFE_FASTMATH)
def commit_slot(
    structure: Structure,
    slot: int,
    scale: float,
    floor: float,
    outer: FloatArray,
    start: int,
    message: FloatArray,
    damping: float,
) -> float:
    """Normalise ``scale * outer``, damp and write one message; its change, or -1 if all is zero."""
    offset = structure.message_offsets[slot]
    n_labels = structure.cardinalities[structure.slot_variables[slot]]
    top = NO_WEIGHT
    for y in range(n_labels):
        top = max(top, outer[start + y])
    if top == NO_WEIGHT:
        return -1.0
    largest = 0.0
    for y in range(n_labels):
        value = scale * (outer[start + y] - top)
        value = max(value, floor) if value > NO_WEIGHT else NO_WEIGHT
        old = message[offset + y]
        if value != old:
            largest = max(largest, abs(value - old))
            if damping != 0.0 and value > NO_WEIGHT and old > NO_WEIGHT:
                value = (1.0 - damping) * value + damping * old
        message[offset + y] = value
    return largest


@kernel(fastmath=SAFE_FASTMATH)
def update_slots(
    structure: Structure,
    plan: Plan,
    begin: int,
    end: int,
    model: Model,
    state: State,
    change: FloatArray,
    damping: float,
    tol: float,
) -> int:
    """Messages of the other slots at plan positions ``begin`` to ``end``; returns flags."""
    flags = 0
    width, arity = 0, 0
    for index in range(begin, end):
        factor = structure.slot_factors[plan.slots[index]]
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    lam, inner, outer = np.empty(width), np.empty(width), np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    prefix = np.empty(arity + 1)
    index = begin
    while index < end:
        factor = structure.slot_factors[plan.slots[index]]
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        base = structure.message_offsets[first]
        weight = model.factor_weight[factor]
        flags |= incoming_vectors(structure, model, state, factor, lam)
        for z in range(structure.message_offsets[stop] - base):
            inner[z] = fast_exp(lam[z] / weight)
        # all messages of this factor from the old state, then write them
        following = index
        while following < end and structure.slot_factors[plan.slots[following]] == factor:
            slot = plan.slots[following]
            start = structure.message_offsets[slot] - base
            contract_sum(structure, model.exp_table, slot, factor, inner, outer, digits, prefix)
            small = False
            for z in range(start, structure.message_offsets[slot + 1] - base):
                small |= not outer[z] > TINY
            if small:
                contract_exact(
                    structure, model.log_table, slot, factor, weight, lam, outer, digits, prefix
                )
            else:
                for z in range(start, structure.message_offsets[slot + 1] - base):
                    outer[z] = fast_log(outer[z])
            following += 1
        while index < following:
            slot = plan.slots[index]
            start = structure.message_offsets[slot] - base
            largest = commit_slot(
                structure, slot, weight, model.floor, outer, start, state.message, damping
            )
            flags |= CONTRADICTION if largest < 0.0 else 0
            flags |= ABOVE_TOLERANCE if largest > tol else 0
            change[index] = largest
            index += 1
    return flags
