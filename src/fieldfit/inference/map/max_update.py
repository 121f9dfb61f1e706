r"""Kernels of max-product: message updates, decoding, and dual bounds from the messages.

    m_ai(y_i) = max_{y_a \ y_i} th_a(y_a) + sum_{j != i} lam_aj(y_j)

is the zero-temperature limit of the update in `fieldfit.inference.messages.message_arrays`, with
beliefs and ``lam`` as there.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from fieldfit._typing import FloatArray, Index, IntArray
from fieldfit.graph.structure import Structure, next_row
from fieldfit.inference.messages.factor_update import commit_slot, contract_max, incoming_vectors
from fieldfit.inference.messages.message_arrays import (
    ABOVE_TOLERANCE,
    CONTRADICTION,
    NO_WEIGHT,
    Model,
    Plan,
    State,
)
from fieldfit.inference.messages.message_sweeps import refresh
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, load, stack_scratch, store


@kernel(fastmath=SAFE_FASTMATH)
def update_max_pairs(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    begin: Index,
    end: Index,
    model: Model,
    state: State,
    outgoing: FloatArray,
) -> int:
    """New messages of the pair slots ``begin`` to ``end``, not yet written to the state."""
    n_labels = len(k)
    inner = carray(stack_scratch(k, 1), (n_labels,))
    flags = 0
    for index in range(begin, end):
        signed = load(plan.pair_factor, index)
        factor = signed if signed >= 0 else ~signed
        target = load(plan.pair_target, index)
        source = load(plan.pair_source, index)
        incoming = target - n_labels if signed >= 0 else target + n_labels
        weight = load(model.factor_weight, factor)
        table = load(structure.table_offsets, factor)
        row = (index - begin) * n_labels
        for y in range(n_labels):
            old = load(state.message, incoming + y)
            value = weight * load(state.log_belief, source + y) - old
            store(inner, y, value if old > NO_WEIGHT else NO_WEIGHT)
        if signed >= 0:
            for j in range(n_labels):
                store(outgoing, row + j, NO_WEIGHT)
            for i in range(n_labels):
                shift = load(inner, i)
                for j in range(n_labels):
                    value = shift + load(model.log_table, table + i * n_labels + j)
                    store(outgoing, row + j, max(load(outgoing, row + j), value))
        else:
            for i in range(n_labels):
                top = NO_WEIGHT
                for j in range(n_labels):
                    value = load(inner, j) + load(model.log_table, table + i * n_labels + j)
                    top = max(top, value)
                store(outgoing, row + i, top)
    return flags


@kernel(fastmath=SAFE_FASTMATH)
def commit_max_pairs(
    k: tuple[int, ...],
    plan: Plan,
    begin: Index,
    end: Index,
    message: FloatArray,
    outgoing: FloatArray,
    damping: float,
    floor: float,
) -> float:
    """Normalise, damp and write; the largest change, or -1 if some message forbids all labels."""
    n_labels = len(k)
    largest = 0.0
    for index in range(begin, end):
        target = plan.pair_target[index]
        row = (index - begin) * n_labels
        top = NO_WEIGHT
        for y in range(n_labels):
            top = max(top, outgoing[row + y])
        if top == NO_WEIGHT:
            return -1.0
        for y in range(n_labels):
            value = outgoing[row + y] - top
            value = max(value, floor) if value > NO_WEIGHT else NO_WEIGHT
            old = message[target + y]
            if value != old:
                largest = max(largest, abs(value - old))
                if damping != 0.0 and value > NO_WEIGHT and old > NO_WEIGHT:
                    value = (1.0 - damping) * value + damping * old
            message[target + y] = value
    return largest


@kernel(fastmath=SAFE_FASTMATH)
def update_max_slots(
    structure: Structure,
    plan: Plan,
    begin: Index,
    end: Index,
    model: Model,
    state: State,
    damping: float,
) -> float:
    """Messages of all other slots; the largest change, or -1 if some message forbids all labels."""
    width, arity = 1, 1
    for position in range(begin, end):
        factor = structure.slot_factors[plan.slots[position]]
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    lam, outer = np.empty(width), np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    prefix = np.empty(arity + 1)
    largest = 0.0
    index = begin
    while index < end:
        factor = structure.slot_factors[plan.slots[index]]
        base = structure.message_offsets[structure.scope_offsets[factor]]
        if incoming_vectors(structure, model, state, factor, lam):
            return -1.0
        following = index
        while following < end and structure.slot_factors[plan.slots[following]] == factor:
            slot = plan.slots[following]
            contract_max(structure, model.log_table, slot, factor, lam, outer, digits, prefix)
            following += 1
        while index < following:
            slot = plan.slots[index]
            start = structure.message_offsets[slot] - base
            change = commit_slot(
                structure, slot, 1.0, model.floor, outer, start, state.message, damping
            )
            if change < 0.0:
                return -1.0
            largest = max(largest, change)
            index += 1
    return largest


@kernel
def run_max_sweeps(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    model: Model,
    state: State,
    damping: float,
    tol: float,
    max_sweeps: int,
) -> tuple[int, float, int]:
    """Sweep until no message changes by more than ``tol``; sweeps, last change, flags."""
    n_levels = len(plan.variable_offsets) - 1
    n_labels = len(k)
    widest = 0
    for level in range(n_levels):
        widest = max(widest, plan.pair_offsets[level + 1] - plan.pair_offsets[level])
    outgoing = np.empty(widest * n_labels)
    residual = np.inf
    n_sweeps = 0
    while n_sweeps < max_sweeps and residual > tol:
        residual = 0.0
        flags = 0
        for level in range(n_levels):
            begin, end = plan.pair_offsets[level], plan.pair_offsets[level + 1]
            flags |= update_max_pairs(k, structure, plan, begin, end, model, state, outgoing)
            change = commit_max_pairs(
                k, plan, begin, end, state.message, outgoing, damping, model.floor
            )
            if change < 0.0:
                return n_sweeps, np.inf, CONTRADICTION
            residual = max(residual, change)
            begin, end = plan.slot_offsets[level], plan.slot_offsets[level + 1]
            change = update_max_slots(structure, plan, begin, end, model, state, damping)
            if change < 0.0:
                return n_sweeps, np.inf, CONTRADICTION
            residual = max(residual, change)
            begin, end = plan.variable_offsets[level], plan.variable_offsets[level + 1]
            flags |= refresh(k, structure, plan.variables, begin, end, model, state)
        if flags & CONTRADICTION:
            return n_sweeps, np.inf, CONTRADICTION
        n_sweeps += 1
    return n_sweeps, residual, 0 if residual <= tol else ABOVE_TOLERANCE


@kernel
def decode(
    structure: Structure, model: Model, state: State, order: IntArray, answer: IntArray
) -> None:
    """Choose labels one variable after the other, each given those chosen before.

    A factor contributes its table with chosen variables fixed and ``lam`` for the others, so that
    ties are broken consistently; on an acyclic graph, from the roots outwards, this is exact.
    """
    width, arity, most = 1, 1, 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    for i in range(len(structure.cardinalities)):
        most = max(most, structure.cardinalities[i])
    lam, outer = np.empty(width), np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    prefix = np.empty(arity + 1)
    score = np.empty(most)
    answer[:] = -1
    for i in order:
        for y in range(structure.cardinalities[i]):
            score[y] = model.unary[structure.unary_offsets[i] + y]
        for position in range(
            structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        ):
            slot = structure.variable_slots[position]
            factor = structure.slot_factors[slot]
            first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
            base = structure.message_offsets[first]
            incoming_vectors(structure, model, state, factor, lam)
            for other in range(first, stop):
                chosen = answer[structure.slot_variables[other]]
                if chosen >= 0:
                    offset = structure.message_offsets[other] - base
                    for y in range(structure.cardinalities[structure.slot_variables[other]]):
                        lam[offset + y] = 0.0 if y == chosen else NO_WEIGHT
            contract_max(structure, model.log_table, slot, factor, lam, outer, digits, prefix)
            for y in range(structure.cardinalities[i]):
                score[y] += outer[structure.message_offsets[slot] - base + y]
        best = 0
        for y in range(1, structure.cardinalities[i]):
            if score[y] > score[best]:
                best = y
        answer[i] = best


@kernel
def factor_maximum(
    structure: Structure, log_table: FloatArray, factor: int, lam: FloatArray, digits: IntArray
) -> float:
    """``max_{y_a} th_a + sum_i lam_ai`` for the vectors in ``lam``."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    base = structure.message_offsets[first]
    n_last = structure.cardinalities[structure.slot_variables[last]]
    row_lam = structure.message_offsets[last] - base
    digits[: last - first] = 0
    top = NO_WEIGHT
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        shift = 0.0
        for position in range(first, last):
            shift += lam[structure.message_offsets[position] - base + digits[position - first]]
        for y in range(n_last):
            top = max(top, shift + log_table[row + y] + lam[row_lam + y])
        next_row(structure, first, last, digits)
    return top


@kernel
def dual_bounds(
    structure: Structure, model: Model, state: State, by_factor: FloatArray, by_variable: FloatArray
) -> None:
    """Two upper bounds on the best score, by dual decomposition.

    For any ``lam``, ``max s <= sum_a max(th_a + sum_i lam_ai) + sum_i max(th_i - sum_a lam_ai)``.
    The first uses the ``lam`` of the messages, the second ``(th_i + sum_b m_bi) / d_i - m_ai``,
    which leaves nothing for the variables' own terms.  The summands of the two are the rows of
    ``by_factor`` and ``by_variable``, so that they can be added up example by example.
    """
    width, arity = 1, 1
    n_factors = len(structure.scope_offsets) - 1
    for factor in range(n_factors):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    own, shared = np.empty(width), np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    left_own = model.unary.copy()
    left_shared = model.unary.copy()
    for factor in range(n_factors):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        constant = model.log_table[structure.table_offsets[factor]] if stop == first else 0.0
        by_factor[0, factor] = by_factor[1, factor] = constant
        if stop - first < 2:
            continue
        base = structure.message_offsets[first]
        for slot in range(first, stop):
            i = structure.slot_variables[slot]
            degree = structure.variable_slot_offsets[i + 1] - structure.variable_slot_offsets[i]
            for y in range(structure.cardinalities[i]):
                entry = structure.unary_offsets[i] + y
                z = structure.message_offsets[slot] - base + y
                message = state.message[structure.message_offsets[slot] + y]
                belief = state.log_belief[entry]
                if message == NO_WEIGHT or belief == NO_WEIGHT:
                    # the label is impossible: leave it out of both sides
                    own[z] = shared[z] = NO_WEIGHT
                    left_own[entry] = left_shared[entry] = NO_WEIGHT
                    continue
                own[z] = model.factor_weight[factor] * belief - message
                shared[z] = model.variable_total[i] * belief / degree - message
                left_own[entry] -= own[z]
                left_shared[entry] -= shared[z]
        by_factor[0, factor] = factor_maximum(structure, model.log_table, factor, own, digits)
        by_factor[1, factor] = factor_maximum(structure, model.log_table, factor, shared, digits)
    for i in range(len(structure.cardinalities)):
        top_own, top_shared = NO_WEIGHT, NO_WEIGHT
        for z in range(structure.unary_offsets[i], structure.unary_offsets[i + 1]):
            top_own = max(top_own, left_own[z])
            top_shared = max(top_shared, left_shared[z])
        by_variable[0, i] = top_own
        by_variable[1, i] = top_shared
