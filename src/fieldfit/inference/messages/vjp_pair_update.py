"""Vector-Jacobian products of the pair update, in the same blocks (see `vjp_arrays`).

With ``e = exp(lam / c_a)`` of the other variable and the table ``E``, the message is the logarithm
of ``S(y) = sum_x E(x, y) e(x)``, and a term of its derivative is ``t(x, y) = e(x) E(x, y) r(y)``
with ``r = g / S``.  Its row sums are what goes to ``lam``.  No logarithm is needed.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from fieldfit._typing import FloatArray
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.message_arrays import NO_WEIGHT, TINY, Model, Plan, State
from fieldfit.inference.messages.pair_update import BLOCK, largest_of
from fieldfit.inference.messages.vjp_arrays import Adjoint
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.matrix_vector import (
    spread_columns,
    spread_rows,
    table_times,
    table_transposed_times,
)
from fieldfit.numeric.simd import fast_exp, load, prefetch, stack_scratch, store

#: Messages by which tables are prefetched in advance, and numbers in a cache line.
AHEAD = 2
LINE = 8


# No fast mathematics here and in the other kernels of the backward pass: what may be reordered
# comes out differently where a kernel is compiled into the serial and into the threaded sweep.
@kernel
def vjp_pairs(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    begin: int,
    end: int,
    model: Model,
    state: State,
    adjoint: Adjoint,
    damping: float,
    entropy: bool,
) -> None:
    """Derivatives through the pair slots at plan positions ``begin`` to ``end``."""
    n_labels = len(k)
    if n_labels == 2:
        vjp_binary_pairs(k, structure, plan, begin, end, model, state, adjoint, damping, entropy)
        return
    inner = carray(stack_scratch(k, 32), (n_labels * BLOCK,))
    outer = carray(stack_scratch(k, 1), (n_labels,))
    margin = carray(stack_scratch(k, 1), (n_labels,))
    message = state.message
    for block in range(begin, end, BLOCK):
        count = min(BLOCK, end - block)
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
            top = top if top > NO_WEIGHT else 0.0
            inverse = 1.0 if weight == 1.0 else 1.0 / weight
            for y in range(n_labels):
                store(inner, row + y, (load(inner, row + y) - top) * inverse)
        for z in range(count * n_labels):
            store(inner, z, fast_exp(load(inner, z)))
        for m in range(count):
            factor = load(plan.pair_factor, block + m)
            target = load(plan.pair_target, block + m)
            forward = factor >= 0
            factor = factor if forward else ~factor
            table = load(structure.table_offsets, factor)
            row = m * n_labels
            # tables of one level lie apart, so the processor does not see the next one coming
            ahead = load(plan.pair_factor, min(block + m + AHEAD, end - 1))
            following = load(structure.table_offsets, ahead if ahead >= 0 else ~ahead)
            for z in range(0, n_labels * n_labels, LINE):
                prefetch(model.exp_table, following + z)
                prefetch(adjoint.table, following + z)
            if forward:
                table_transposed_times(k, model.exp_table, table, inner, row, outer, 0)
            else:
                table_times(k, model.exp_table, table, inner, row, outer, 0)
            small = 0
            for y in range(n_labels):
                small |= 0 if load(outer, y) > TINY else 1
            if small:
                vjp_in_logs(k, structure, plan, block + m, model, state, adjoint, damping, margin)
            else:
                mean = 0.0
                for y in range(n_labels):
                    mean += load(adjoint.message, target + y)
                mean /= n_labels
                for y in range(n_labels):
                    gradient = load(adjoint.message, target + y) - mean
                    store(adjoint.message, target + y, gradient)
                    store(outer, y, (1.0 - damping) * gradient / load(outer, y))
                if forward:
                    spread_rows(
                        k, model.exp_table, table, inner, row, outer, 0, adjoint.table,
                        margin, 0,
                    )  # fmt: skip
                else:
                    spread_columns(
                        k, model.exp_table, table, outer, 0, inner, row, adjoint.table,
                        margin, 0,
                    )  # fmt: skip
            incoming = target - n_labels if forward else target + n_labels
            for y in range(n_labels):
                value = load(adjoint.incoming, incoming + y) + load(margin, y)
                store(adjoint.incoming, incoming + y, value)
            for y in range(n_labels):
                store(adjoint.message, target + y, damping * load(adjoint.message, target + y))
            if entropy:
                total = 0.0
                for y in range(n_labels):
                    old = load(message, incoming + y)
                    total += load(margin, y) * old if old > NO_WEIGHT else 0.0
                adjoint.products[factor] += total


@kernel
def vjp_binary_pairs(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    begin: int,
    end: int,
    model: Model,
    state: State,
    adjoint: Adjoint,
    damping: float,
    entropy: bool,
) -> None:
    """`vjp_pairs` for two labels: one exponential for each message."""
    # one value for each message of a block: lam_1 - lam_0 and then exp(lam_0), exp(lam_1); the
    # derivative by its second entry, minus that by the first; four terms by (label of the other
    # variable, label of the target)
    ratio = carray(stack_scratch(k, 16), (BLOCK,))
    inner_0 = carray(stack_scratch(k, 16), (BLOCK,))
    inner_1 = carray(stack_scratch(k, 16), (BLOCK,))
    gradient_1 = carray(stack_scratch(k, 16), (BLOCK,))
    term_00 = carray(stack_scratch(k, 16), (BLOCK,))
    term_01 = carray(stack_scratch(k, 16), (BLOCK,))
    term_10 = carray(stack_scratch(k, 16), (BLOCK,))
    term_11 = carray(stack_scratch(k, 16), (BLOCK,))
    margin = carray(stack_scratch(k, 1), (2,))
    message = state.message
    kept = 1.0 - damping
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
                value_0 = value_1 = 0.0
            difference = value_1 - value_0
            store(ratio, m, difference if weight == 1.0 else difference / weight)
            gradient = 0.5 * (load(adjoint.message, target + 1) - load(adjoint.message, target))
            store(gradient_1, m, gradient)
            table = load(structure.table_offsets, factor if factor >= 0 else ~factor)
            entry_01 = load(model.exp_table, table + 1)
            entry_10 = load(model.exp_table, table + 2)
            store(term_00, m, load(model.exp_table, table))
            store(term_01, m, entry_01 if factor >= 0 else entry_10)
            store(term_10, m, entry_10 if factor >= 0 else entry_01)
            store(term_11, m, load(model.exp_table, table + 3))
        for m in range(count):
            small = fast_exp(-abs(load(ratio, m)))
            store(inner_0, m, 1.0 if load(ratio, m) <= 0.0 else small)
            store(inner_1, m, small if load(ratio, m) <= 0.0 else 1.0)
        tiny = 0
        for m in range(count):
            value_00 = load(term_00, m) * load(inner_0, m)
            value_01 = load(term_01, m) * load(inner_0, m)
            value_10 = load(term_10, m) * load(inner_1, m)
            value_11 = load(term_11, m) * load(inner_1, m)
            outer_0, outer_1 = value_00 + value_10, value_01 + value_11
            tiny |= 0 if outer_0 > TINY and outer_1 > TINY else 1
            scale_0 = -kept * load(gradient_1, m) / outer_0
            scale_1 = kept * load(gradient_1, m) / outer_1
            store(term_00, m, value_00 * scale_0)
            store(term_10, m, value_10 * scale_0)
            store(term_01, m, value_01 * scale_1)
            store(term_11, m, value_11 * scale_1)
            # sums that are too small are told from the others by this
            store(ratio, m, min(outer_0, outer_1))
        for m in range(count):
            factor = load(plan.pair_factor, block + m)
            target = load(plan.pair_target, block + m)
            forward = factor >= 0
            factor = factor if forward else ~factor
            table = load(structure.table_offsets, factor)
            incoming = target - 2 if forward else target + 2
            if tiny and not load(ratio, m) > TINY:
                vjp_in_logs(k, structure, plan, block + m, model, state, adjoint, damping, margin)
                margin_0, margin_1 = load(margin, 0), load(margin, 1)
                for y in range(2):
                    store(adjoint.message, target + y, damping * load(adjoint.message, target + y))
            else:
                store(adjoint.message, target, -damping * load(gradient_1, m))
                store(adjoint.message, target + 1, damping * load(gradient_1, m))
                value_00, value_01 = load(term_00, m), load(term_01, m)
                value_10, value_11 = load(term_10, m), load(term_11, m)
                margin_0, margin_1 = value_00 + value_01, value_10 + value_11
                cross_01 = value_01 if forward else value_10
                cross_10 = value_10 if forward else value_01
                store(adjoint.table, table, load(adjoint.table, table) + value_00)
                store(adjoint.table, table + 1, load(adjoint.table, table + 1) + cross_01)
                store(adjoint.table, table + 2, load(adjoint.table, table + 2) + cross_10)
                store(adjoint.table, table + 3, load(adjoint.table, table + 3) + value_11)
            store(adjoint.incoming, incoming, load(adjoint.incoming, incoming) + margin_0)
            store(adjoint.incoming, incoming + 1, load(adjoint.incoming, incoming + 1) + margin_1)
            if entropy:
                old_0, old_1 = load(message, incoming), load(message, incoming + 1)
                total = margin_0 * old_0 if old_0 > NO_WEIGHT else 0.0
                total += margin_1 * old_1 if old_1 > NO_WEIGHT else 0.0
                adjoint.products[factor] += total


@kernel
def vjp_in_logs(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    index: int,
    model: Model,
    state: State,
    adjoint: Adjoint,
    damping: float,
    margin: FloatArray,
) -> None:
    """Terms of one message with a sum that is too small, and their ``margin``."""
    n_labels = len(k)
    lam = carray(stack_scratch(k, 1), (n_labels,))
    tops = carray(stack_scratch(k, 1), (n_labels,))
    factor = plan.pair_factor[index]
    target = plan.pair_target[index]
    source = plan.pair_source[index]
    forward = factor >= 0
    factor = factor if forward else ~factor
    incoming = target - n_labels if forward else target + n_labels
    weight = model.factor_weight[factor]
    for x in range(n_labels):
        old = state.message[incoming + x]
        lam[x] = weight * state.log_belief[source + x] - old if old > NO_WEIGHT else NO_WEIGHT
        margin[x] = 0.0
    table = structure.table_offsets[factor]
    step = n_labels if forward else 1
    mean, n_possible = 0.0, 0
    for y in range(n_labels):
        start = table + y if forward else table + y * n_labels
        tops[y] = NO_WEIGHT
        for x in range(n_labels):
            tops[y] = max(tops[y], model.log_table[start + x * step] + lam[x])
        if tops[y] > NO_WEIGHT:
            mean += adjoint.message[target + y]
            n_possible += 1
    mean /= max(n_possible, 1)
    for y in range(n_labels):
        if tops[y] == NO_WEIGHT:
            adjoint.message[target + y] = 0.0
            continue
        adjoint.message[target + y] -= mean
        gradient = (1.0 - damping) * adjoint.message[target + y]
        start = table + y if forward else table + y * n_labels
        total = 0.0
        for x in range(n_labels):
            total += np.exp((model.log_table[start + x * step] + lam[x] - tops[y]) / weight)
        for x in range(n_labels):
            value = np.exp((model.log_table[start + x * step] + lam[x] - tops[y]) / weight)
            term = gradient * value / total
            adjoint.table[start + x * step] += term
            margin[x] += term
