"""Vector-Jacobian products of the factor update: any arity and cardinality (see `vjp_arrays`).

A term of the derivative of the message to ``i`` is a product over the table's variables,
``t(y_a) = E(y_a) prod_j v_j(y_j)``, with ``v_j = exp(lam_aj / c_a)`` for the others and
``v_i = g / S`` for ``i`` itself.  One walk over the table adds it up and takes all its margins.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.structure import Structure, next_row
from fieldfit.inference.messages.factor_update import contract_exact, contract_sum, incoming_vectors
from fieldfit.inference.messages.message_arrays import NO_WEIGHT, TINY, Model, Plan, State
from fieldfit.inference.messages.vjp_arrays import Adjoint
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp, load, store


@kernel
def spread_products(
    structure: Structure,
    exp_table: FloatArray,
    factor: int,
    vectors: FloatArray,
    table: FloatArray,
    margins: FloatArray,
    digits: IntArray,
    prefix: FloatArray,
) -> None:
    """Add ``E(y_a) prod_j v_j(y_j)`` to a table, and its margins to those of the scope."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    base = structure.message_offsets[first]
    n_last = structure.cardinalities[structure.slot_variables[last]]
    row_start = structure.message_offsets[last] - base
    digits[: last - first] = 0
    prefix[0] = 1.0
    changed = first
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for position in range(changed, last):
            offset = structure.message_offsets[position] - base
            prefix[position - first + 1] = (
                prefix[position - first] * vectors[offset + digits[position - first]]
            )
        scale = prefix[last - first]
        total = 0.0
        for y in range(n_last):
            value = scale * load(exp_table, row + y) * load(vectors, row_start + y)
            store(table, row + y, load(table, row + y) + value)
            store(margins, row_start + y, load(margins, row_start + y) + value)
            total += value
        for position in range(first, last):
            offset = structure.message_offsets[position] - base
            margins[offset + digits[position - first]] += total
        changed = next_row(structure, first, last, digits)


@kernel
def spread_in_logs(
    structure: Structure,
    log_table: FloatArray,
    factor: int,
    slot: int,
    weight: float,
    lam: FloatArray,
    log_sums: FloatArray,
    gradient: FloatArray,
    table: FloatArray,
    margins: FloatArray,
    digits: IntArray,
) -> None:
    """The same terms from logarithms, one exponential for each entry: any range."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    base = structure.message_offsets[first]
    n_last = structure.cardinalities[structure.slot_variables[last]]
    digits[: last - first + 1] = 0
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for y in range(n_last):
            digits[last - first] = y
            value = log_table[row + y]
            for position in range(first, last + 1):
                if position != slot:
                    offset = structure.message_offsets[position] - base
                    value += lam[offset + digits[position - first]]
            own = structure.message_offsets[slot] - base + digits[slot - first]
            if value == NO_WEIGHT or gradient[own] == 0.0:
                continue
            value = gradient[own] * np.exp(value / weight - log_sums[own])
            table[row + y] += value
            for position in range(first, last + 1):
                offset = structure.message_offsets[position] - base
                margins[offset + digits[position - first]] += value
        digits[last - first] = 0
        next_row(structure, first, last, digits)


@kernel
def vjp_slots(
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
    """Derivatives through the other slots at plan positions ``begin`` to ``end``."""
    width, arity = 0, 0
    for index in range(begin, end):
        factor = structure.slot_factors[plan.slots[index]]
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    lam, inner, outer = np.empty(width), np.empty(width), np.empty(width)
    gradient, margins = np.empty(width), np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    prefix = np.empty(arity + 1)
    for index in range(begin, end):
        slot = plan.slots[index]
        factor = structure.slot_factors[slot]
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        base = structure.message_offsets[first]
        weight = model.factor_weight[factor]
        start = structure.message_offsets[slot] - base
        finish = structure.message_offsets[slot + 1] - base
        incoming_vectors(structure, model, state, factor, lam)
        for z in range(structure.message_offsets[stop] - base):
            inner[z] = fast_exp(lam[z] / weight)
            margins[z] = 0.0
        contract_sum(structure, model.exp_table, slot, factor, inner, outer, digits, prefix)
        small = False
        for z in range(start, finish):
            small |= not outer[z] > TINY
        if small:
            contract_exact(
                structure, model.log_table, slot, factor, weight, lam, outer, digits, prefix
            )
        mean, n_possible = 0.0, 0
        for z in range(start, finish):
            if outer[z] > NO_WEIGHT:
                mean += adjoint.message[base + z]
                n_possible += 1
        mean /= max(n_possible, 1)
        for z in range(start, finish):
            value = adjoint.message[base + z] - mean if outer[z] > NO_WEIGHT else 0.0
            gradient[z] = (1.0 - damping) * value
            adjoint.message[base + z] = damping * value
        if small:
            spread_in_logs(
                structure, model.log_table, factor, slot, weight, lam, outer, gradient,
                adjoint.table, margins, digits,
            )  # fmt: skip
        else:
            for z in range(start, finish):
                inner[z] = gradient[z] / outer[z]
            spread_products(
                structure, model.exp_table, factor, inner, adjoint.table, margins, digits, prefix
            )
        add_margins(structure, factor, slot, state, margins, adjoint, entropy)


@kernel
def add_margins(
    structure: Structure,
    factor: int,
    except_slot: int,
    state: State,
    margins: FloatArray,
    adjoint: Adjoint,
    entropy: bool,
) -> None:
    """Margins of a table's derivative go to ``lam`` of every slot but one."""
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    base = structure.message_offsets[first]
    total = 0.0
    for slot in range(first, stop):
        if slot == except_slot:
            continue
        for z in range(structure.message_offsets[slot], structure.message_offsets[slot + 1]):
            adjoint.incoming[z] += margins[z - base]
            if entropy and state.message[z] > NO_WEIGHT:
                total += margins[z - base] * state.message[z]
    if entropy:
        adjoint.products[factor] += total
