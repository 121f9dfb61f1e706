"""The message update of pairs with a common number of labels, in blocks of 32 messages.

A block of messages is gathered, exponentiated, multiplied with the tables and taken the
logarithm of as a whole, so that exponentials and logarithms run in SIMD over the block.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from fieldfit._typing import FloatArray
from fieldfit.graph.structure import Structure
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
from fieldfit.numeric.matrix_vector import table_times, table_transposed_times
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, stack_scratch, store

#: Messages per block: two blocks of 21-label messages fit the first-level cache. Even, so that the
#: two slots of one factor, which follow each other when flooding, are always in one block.
BLOCK = 32


# Without NaN a maximum is associative and can run in SIMD; its callers never pass one.
@kernel(cache=False, fastmath={"nnan", "nsz", "reassoc"})
def largest_of(k: tuple[int, ...], values: FloatArray, start: int) -> float:
    """Largest of ``len(k)`` values."""
    largest = load(values, start)
    for y in range(1, len(k)):
        largest = max(largest, load(values, start + y))
    return largest


@kernel(fastmath=SAFE_FASTMATH)
def update_pairs(
    k: tuple[int, ...],
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
    """Messages of the pair slots at plan positions ``begin`` to ``end``; returns flags."""
    n_labels = len(k)
    inner = carray(stack_scratch(k, 32), (n_labels * BLOCK,))
    outer = carray(stack_scratch(k, 32), (n_labels * BLOCK,))
    message = state.message
    flags = 0
    if n_labels == 2:
        return update_binary_pairs(
            k, structure, plan, begin, end, model, state, change, damping, tol
        )
    for block in range(begin, end, BLOCK):
        count = min(BLOCK, end - block)
        # lam of the other variable, maximum 0, divided by c
        for m in range(count):
            factor = load(plan.pair_factor, block + m)
            target = load(plan.pair_target, block + m)
            source = load(plan.pair_source, block + m)
            incoming = target - n_labels if factor >= 0 else target + n_labels
            weight = load(model.factor_weight, factor if factor >= 0 else ~factor)
            row = m * n_labels
            for y in range(n_labels):
                old = load(message, incoming + y)
                value = weight * load(state.log_belief, source + y) - old
                store(inner, row + y, value if old > NO_WEIGHT else NO_WEIGHT)
            top = largest_of(k, inner, row)
            if top == NO_WEIGHT:
                flags |= CONTRADICTION
                top = 0.0
            inverse = 1.0 if weight == 1.0 else 1.0 / weight
            for y in range(n_labels):
                store(inner, row + y, (load(inner, row + y) - top) * inverse)
        for z in range(count * n_labels):
            store(inner, z, fast_exp(load(inner, z)))
        # sums over the other variable
        for m in range(count):
            factor = load(plan.pair_factor, block + m)
            row = m * n_labels
            if factor >= 0:
                table = load(structure.table_offsets, factor)
                table_transposed_times(k, model.exp_table, table, inner, row, outer, row)
            else:
                table = load(structure.table_offsets, ~factor)
                table_times(k, model.exp_table, table, inner, row, outer, row)
        small = 0
        for z in range(count * n_labels):
            small |= 0 if load(outer, z) > TINY else 1
        if small:
            log_block(k, structure, plan, block, count, model, state, outer)
        else:
            for z in range(count * n_labels):
                store(outer, z, fast_log(load(outer, z)))
        flags |= commit_block(k, plan, block, count, model, message, outer, change, damping, tol)
    return flags


@kernel(fastmath=SAFE_FASTMATH)
def update_binary_pairs(
    k: tuple[int, ...],
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
    """`update_pairs` for two labels: only log-ratios matter, so one exp and one log suffice."""
    ratio = carray(stack_scratch(k, 16), (BLOCK,))
    outer = carray(stack_scratch(k, 32), (2 * BLOCK,))
    message = state.message
    flags = 0
    for block in range(begin, end, BLOCK):
        count = min(BLOCK, end - block)
        for m in range(count):
            factor = load(plan.pair_factor, block + m)
            target = load(plan.pair_target, block + m)
            source = load(plan.pair_source, block + m)
            incoming = target - 2 if factor >= 0 else target + 2
            weight = load(model.factor_weight, factor if factor >= 0 else ~factor)
            old_0, old_1 = load(message, incoming), load(message, incoming + 1)
            value_0 = weight * load(state.log_belief, source) - old_0
            value_1 = weight * load(state.log_belief, source + 1) - old_1
            value_0 = value_0 if old_0 > NO_WEIGHT else NO_WEIGHT
            value_1 = value_1 if old_1 > NO_WEIGHT else NO_WEIGHT
            if max(value_0, value_1) == NO_WEIGHT:
                flags |= CONTRADICTION
                value_0 = value_1 = 0.0
            difference = value_1 - value_0
            store(ratio, m, difference if weight == 1.0 else difference / weight)
        for m in range(count):
            store(outer, m, fast_exp(-abs(load(ratio, m))))
        for m in range(count):
            factor = load(plan.pair_factor, block + m)
            table = load(structure.table_offsets, factor if factor >= 0 else ~factor)
            entry_01 = load(model.exp_table, table + 1)
            entry_10 = load(model.exp_table, table + 2)
            small = load(outer, m)
            inner_0 = 1.0 if load(ratio, m) <= 0.0 else small
            inner_1 = small if load(ratio, m) <= 0.0 else 1.0
            cross_0 = entry_10 if factor >= 0 else entry_01
            cross_1 = entry_01 if factor >= 0 else entry_10
            store(outer, m, inner_0 * load(model.exp_table, table) + inner_1 * cross_0)
            store(outer, BLOCK + m, inner_0 * cross_1 + inner_1 * load(model.exp_table, table + 3))
        tiny = 0
        for m in range(count):
            tiny |= 0 if load(outer, m) > TINY and load(outer, BLOCK + m) > TINY else 1
        if tiny:
            for z in range(2 * count):
                outer[z] = 0.0
            log_block(k, structure, plan, block, count, model, state, outer)
            flags |= commit_block(
                k, plan, block, count, model, message, outer, change, damping, tol
            )
            continue
        for m in range(count):
            store(ratio, m, fast_log(load(outer, BLOCK + m) / load(outer, m)))
        for m in range(count):
            factor = load(plan.pair_factor, block + m)
            target = load(plan.pair_target, block + m)
            value = load(model.factor_weight, factor if factor >= 0 else ~factor) * load(ratio, m)
            value = min(max(value, model.floor), -model.floor)
            old_0, old_1 = load(message, target), load(message, target + 1)
            value_0, value_1 = min(0.0, -value), min(0.0, value)
            largest = max(abs(value_0 - old_0), abs(value_1 - old_1))
            if damping != 0.0 and old_0 > NO_WEIGHT and old_1 > NO_WEIGHT:
                value_0 = (1.0 - damping) * value_0 + damping * old_0
                value_1 = (1.0 - damping) * value_1 + damping * old_1
            store(message, target, value_0)
            store(message, target + 1, value_1)
            store(change, block + m, largest)
            flags |= ABOVE_TOLERANCE if largest > tol else 0
    return flags


@kernel(fastmath=SAFE_FASTMATH)
def log_block(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    block: int,
    count: int,
    model: Model,
    state: State,
    outer: FloatArray,
) -> None:
    """Logarithms of a block in which some sum is too small; those messages are summed again."""
    n_labels = len(k)
    lam = carray(stack_scratch(k, 1), (n_labels,))
    for m in range(count):
        row = m * n_labels
        small = False
        for y in range(n_labels):
            small |= not outer[row + y] > TINY
        if not small:
            for y in range(n_labels):
                outer[row + y] = np.log(outer[row + y])
            continue
        factor = plan.pair_factor[block + m]
        target = plan.pair_target[block + m]
        source = plan.pair_source[block + m]
        forward = factor >= 0
        factor = factor if forward else ~factor
        incoming = target - n_labels if forward else target + n_labels
        weight = model.factor_weight[factor]
        for y in range(n_labels):
            old = state.message[incoming + y]
            lam[y] = weight * state.log_belief[source + y] - old if old > NO_WEIGHT else NO_WEIGHT
        table = structure.table_offsets[factor]
        for y in range(n_labels):
            start = table + y if forward else table + y * n_labels
            step = n_labels if forward else 1
            top = NO_WEIGHT
            for x in range(n_labels):
                top = max(top, model.log_table[start + x * step] + lam[x])
            total = 0.0
            if top > NO_WEIGHT:
                for x in range(n_labels):
                    total += np.exp((model.log_table[start + x * step] + lam[x] - top) / weight)
                outer[row + y] = top / weight + np.log(total)
            else:
                outer[row + y] = NO_WEIGHT


# Inlined by force: a call would push every field of every array on the stack, for each block.
@kernel(fastmath=SAFE_FASTMATH, inline="always")
def commit_block(
    k: tuple[int, ...],
    plan: Plan,
    block: int,
    count: int,
    model: Model,
    message: FloatArray,
    outer: FloatArray,
    change: FloatArray,
    damping: float,
    tol: float,
) -> int:
    """Normalise, damp and write the messages of one block, and record their changes."""
    n_labels = len(k)
    distance = carray(stack_scratch(k, 1), (n_labels,))
    flags = 0
    for m in range(count):
        factor = load(plan.pair_factor, block + m)
        target = load(plan.pair_target, block + m)
        weight = load(model.factor_weight, factor if factor >= 0 else ~factor)
        row = m * n_labels
        top = largest_of(k, outer, row)
        if top == NO_WEIGHT:
            flags |= CONTRADICTION
            top = 0.0
        for y in range(n_labels):
            value = weight * (load(outer, row + y) - top)
            value = max(value, model.floor) if value > NO_WEIGHT else NO_WEIGHT
            old = load(message, target + y)
            store(outer, row + y, value)
            store(distance, y, abs(value - old) if value != old else 0.0)
        largest = largest_of(k, distance, 0)
        if damping != 0.0:
            for y in range(n_labels):
                value, old = load(outer, row + y), load(message, target + y)
                if value > NO_WEIGHT and old > NO_WEIGHT:
                    store(outer, row + y, (1.0 - damping) * value + damping * old)
        for y in range(n_labels):
            store(message, target + y, load(outer, row + y))
        store(change, block + m, largest)
        flags |= ABOVE_TOLERANCE if largest > tol else 0
    return flags
