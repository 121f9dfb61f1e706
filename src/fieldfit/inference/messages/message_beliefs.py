"""Beliefs and the value of the surrogate from messages (see `message_arrays`).

At normalised ``log tau`` the Lagrangian of ``max <th, tau> + H_c(tau)`` has the value

    B = sum_a c_a log Z_a + sum_i chat_i log z_i,
    Z_a = sum_{y_a} exp((th_a + sum_i lam_ai) / c_a),
    z_i = sum_{y_i} exp((th_i + sum_a m_ai) / chat_i)

which has no ``1 / c_i`` and is stationary in the messages: its error is of second order in theirs.
For ``c_a > 0`` and ``c_i >= 0`` it is the dual function, so it bounds the maximum from above for
*any* messages, converged or not.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from fieldfit._typing import FloatArray
from fieldfit.graph.structure import Structure, next_row
from fieldfit.inference.messages.message_arrays import NO_WEIGHT, TINY, Model, State
from fieldfit.inference.messages.pair_update import largest_of
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, stack_scratch, store


@kernel(fastmath=SAFE_FASTMATH)
def fill_exp_tables(
    structure: Structure, log_table: FloatArray, factor_weight: FloatArray, exp_table: FloatArray
) -> int:
    """``exp((th_a - max th_a) / c_a)``; the first factor that forbids everything, or -1."""
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        top = NO_WEIGHT
        for z in range(begin, end):
            top = max(top, load(log_table, z))
        if top == NO_WEIGHT:
            return factor
        inverse = 1.0 / factor_weight[factor]
        for z in range(begin, end):
            store(exp_table, z, fast_exp((load(log_table, z) - top) * inverse))
    return -1


@kernel(fastmath=SAFE_FASTMATH)
def normalise(values: FloatArray, begin: int, end: int, target: FloatArray, offset: int) -> float:
    """``target = exp(values) / sum`` over one range; returns the logarithm of the sum."""
    top = NO_WEIGHT
    for z in range(begin, end):
        top = max(top, load(values, z))
    if top == NO_WEIGHT:  # a contradiction, reported elsewhere
        for z in range(end - begin):
            target[offset + z] = 0.0
        return NO_WEIGHT
    total = 0.0
    for z in range(end - begin):
        value = fast_exp(load(values, begin + z) - top)
        store(target, offset + z, value)
        total += value
    inverse = 1.0 / total
    for z in range(end - begin):
        store(target, offset + z, load(target, offset + z) * inverse)
    return top + fast_log(total)


@kernel(fastmath=SAFE_FASTMATH)
def unary_beliefs(
    structure: Structure,
    model: Model,
    state: State,
    beliefs: FloatArray,
    log_normalizer: FloatArray,
) -> None:
    """Beliefs of all variables and ``log z_i``; normalises ``state.log_belief`` on the way."""
    for i in range(len(structure.cardinalities)):
        begin, end = load(structure.unary_offsets, i), load(structure.unary_offsets, i + 1)
        inverse = 1.0 / load(model.variable_total, i)
        for z in range(begin, end):
            store(state.log_belief, z, load(model.unary, z))
        for position in range(
            load(structure.variable_slot_offsets, i), load(structure.variable_slot_offsets, i + 1)
        ):
            source = load(structure.message_offsets, load(structure.variable_slots, position))
            for y in range(end - begin):
                value = load(state.log_belief, begin + y) + load(state.message, source + y)
                store(state.log_belief, begin + y, value)
        for z in range(begin, end):
            store(state.log_belief, z, load(state.log_belief, z) * inverse)
        log_sum = normalise(state.log_belief, begin, end, beliefs, begin)
        store(log_normalizer, i, log_sum)
        if log_sum > NO_WEIGHT:
            for z in range(begin, end):
                store(state.log_belief, z, load(state.log_belief, z) - log_sum)


@kernel(fastmath=SAFE_FASTMATH)
def factor_beliefs(
    structure: Structure,
    model: Model,
    state: State,
    beliefs: FloatArray,
    log_normalizer: FloatArray,
) -> None:
    """Beliefs and ``log Z_a`` (0 for factors that send no messages) where that is still NaN.

    Needs the normalised log-beliefs that `unary_beliefs` leaves.
    """
    width, arity = 1, 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    lam = np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    prefix = np.empty(arity + 1)
    for factor in range(len(structure.scope_offsets) - 1):
        first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
        begin, end = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        if not np.isnan(log_normalizer[factor]):
            continue
        log_normalizer[factor] = 0.0
        if last < first:
            beliefs[begin] = 1.0
            continue
        if last == first:
            source = structure.unary_offsets[structure.slot_variables[first]]
            # log-beliefs of diverging messages are normalised only up to their rounding
            normalise(state.log_belief, source, source + end - begin, beliefs, begin)
            continue
        weight = model.factor_weight[factor]
        inverse = 1.0 / weight
        base = structure.message_offsets[first]
        for slot in range(first, last + 1):
            source = structure.unary_offsets[structure.slot_variables[slot]]
            offset = structure.message_offsets[slot]
            for y in range(structure.message_offsets[slot + 1] - offset):
                old = state.message[offset + y]
                value = weight * state.log_belief[source + y] - old
                lam[offset - base + y] = value * inverse if old > NO_WEIGHT else NO_WEIGHT
        n_last = structure.cardinalities[structure.slot_variables[last]]
        row_lam = structure.message_offsets[last] - base
        digits[: last - first] = 0
        prefix[0] = 0.0
        changed = first
        for row in range(begin, end, n_last):
            for position in range(changed, last):
                offset = structure.message_offsets[position] - base
                prefix[position - first + 1] = (
                    prefix[position - first] + lam[offset + digits[position - first]]
                )
            shift = prefix[last - first]
            for y in range(n_last):
                value = load(model.log_table, row + y) * inverse + load(lam, row_lam + y)
                store(beliefs, row + y, shift + value)
            changed = next_row(structure, first, last, digits)
        log_normalizer[factor] = normalise(beliefs, begin, end, beliefs, begin)


@kernel
def largest_disagreements(
    structure: Structure, unary: FloatArray, tables: FloatArray, disagreement: FloatArray
) -> None:
    """For each variable, how far the marginals of its factors' beliefs are from its own belief.

    Beliefs that come from messages and agree everywhere are a stationary point of the surrogate;
    for a concave entropy, its maximum.
    """
    width, arity = 1, 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    marginal = np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    disagreement[:] = 0.0
    for factor in range(len(structure.scope_offsets) - 1):
        first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
        if last <= first:
            continue
        base = structure.message_offsets[first]
        n_last = structure.cardinalities[structure.slot_variables[last]]
        row_marginal = structure.message_offsets[last] - base
        marginal[: structure.message_offsets[last + 1] - base] = 0.0
        digits[: last - first] = 0
        for row in range(
            structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last
        ):
            total = 0.0
            for y in range(n_last):
                total += tables[row + y]
                marginal[row_marginal + y] += tables[row + y]
            for position in range(first, last):
                offset = structure.message_offsets[position] - base
                marginal[offset + digits[position - first]] += total
            next_row(structure, first, last, digits)
        for slot in range(first, last + 1):
            i = structure.slot_variables[slot]
            for y in range(structure.cardinalities[i]):
                gap = abs(
                    marginal[structure.message_offsets[slot] - base + y]
                    - unary[structure.unary_offsets[i] + y]
                )
                disagreement[i] = max(disagreement[i], gap)


# -- Pairwise factors with a common number of labels --------------------------------------
#
#     tau_a(x, y) = e(x) E_a(x, y) f(y) / Z,    e = exp(lam_ax / c_a), f likewise,
#     E_a = exp(th_a / c_a)
#
# with ``e``, ``f`` and ``E_a`` scaled to maximum 1.  The tables ``E_a`` are those of the messages,
# so a factor costs ``2 K`` exponentials instead of ``K^2``, and learning needs beliefs at every
# step.


@kernel(fastmath=SAFE_FASTMATH)
def pair_beliefs(
    k: tuple[int, ...],
    structure: Structure,
    model: Model,
    state: State,
    beliefs: FloatArray,
    log_normalizer: FloatArray,
) -> None:
    """Beliefs and ``log Z_a`` of the pairs; of all other factors ``log_normalizer`` becomes NaN.

    So does it where the sum is too small to be right in the linear domain.
    """
    n_labels = len(k)
    inner = carray(stack_scratch(k, 2), (2 * n_labels,))
    for factor in range(len(structure.scope_offsets) - 1):
        first = load(structure.scope_offsets, factor)
        store(log_normalizer, factor, np.nan)
        if load(structure.scope_offsets, factor + 1) - first != 2:
            continue
        is_common = True
        for side in range(2):
            variable = load(structure.slot_variables, first + side)
            is_common &= load(structure.cardinalities, variable) == n_labels
        if not is_common:
            continue
        weight = load(model.factor_weight, factor)
        inverse = 1.0 if weight == 1.0 else 1.0 / weight
        shift = 0.0
        possible = True
        for side in range(2):
            variable = load(structure.slot_variables, first + side)
            source = load(structure.unary_offsets, variable)
            offset = load(structure.message_offsets, first + side)
            row = side * n_labels
            for y in range(n_labels):
                old = load(state.message, offset + y)
                value = weight * load(state.log_belief, source + y) - old
                store(inner, row + y, value * inverse if old > NO_WEIGHT else NO_WEIGHT)
            top = largest_of(k, inner, row)
            possible &= top > NO_WEIGHT
            shift += top
            for y in range(n_labels):
                store(inner, row + y, fast_exp(load(inner, row + y) - top))
        if not possible:
            continue
        table = load(structure.table_offsets, factor)
        top = load(model.log_table, table)
        for z in range(1, n_labels * n_labels):
            top = max(top, load(model.log_table, table + z))
        total = 0.0
        for x in range(n_labels):
            scale = load(inner, x)
            start = table + x * n_labels
            for y in range(n_labels):
                value = scale * load(model.exp_table, start + y) * load(inner, n_labels + y)
                store(beliefs, start + y, value)
                total += value
        if not total > TINY:
            continue
        normalizer = 1.0 / total
        for z in range(n_labels * n_labels):
            store(beliefs, table + z, load(beliefs, table + z) * normalizer)
        store(log_normalizer, factor, fast_log(total) + shift + top * inverse)
