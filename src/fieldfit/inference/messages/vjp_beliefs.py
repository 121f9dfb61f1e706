"""Vector-Jacobian products of normalised beliefs, where every backward pass begins.

A belief is ``b = exp(v) / sum exp(v)``, so

    g[v] = b (g[b] - <g[b], b>)

with ``v = log tau_i`` for variables and ``v = (th_a + sum_i lam_ai) / c_a`` for factors; see
`fieldfit.inference.messages.vjp_arrays` for the notation.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.structure import Structure, next_row
from fieldfit.inference.messages.message_arrays import Model, State
from fieldfit.inference.messages.vjp_arrays import Adjoint
from fieldfit.inference.messages.vjp_factor_update import add_margins
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store


@kernel(fastmath=SAFE_FASTMATH)
def normalised_beliefs(
    unary_offsets: IntArray, log_belief: FloatArray, beliefs: FloatArray
) -> None:
    """``exp(log tau_i) / sum``, for log-beliefs with maximum 0, as sweeps leave them."""
    for z in range(len(log_belief)):
        store(beliefs, z, fast_exp(load(log_belief, z)))
    for i in range(len(unary_offsets) - 1):
        begin, end = load(unary_offsets, i), load(unary_offsets, i + 1)
        total = 0.0
        for z in range(begin, end):
            total += load(beliefs, z)
        inverse = 1.0 / total
        for z in range(begin, end):
            store(beliefs, z, load(beliefs, z) * inverse)


@kernel(fastmath=SAFE_FASTMATH)
def vjp_unary_beliefs(
    unary_offsets: IntArray, beliefs: FloatArray, derivative: FloatArray, log_belief: FloatArray
) -> None:
    """Derivative by the beliefs of variables to derivative by ``log tau``, added up."""
    for i in range(len(unary_offsets) - 1):
        begin, end = load(unary_offsets, i), load(unary_offsets, i + 1)
        mean = 0.0
        for z in range(begin, end):
            mean += load(beliefs, z) * load(derivative, z)
        for z in range(begin, end):
            value = load(beliefs, z) * (load(derivative, z) - mean)
            store(log_belief, z, load(log_belief, z) + value)


@kernel(fastmath=SAFE_FASTMATH)
def vjp_factor_beliefs(
    structure: Structure,
    model: Model,
    state: State,
    beliefs: FloatArray,
    derivative: FloatArray,
    adjoint: Adjoint,
    entropy: bool,
) -> None:
    """Derivative by the beliefs of factors to derivatives by tables, ``lam`` and ``log tau``."""
    width, arity = 1, 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    margins = np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    for factor in range(len(structure.scope_offsets) - 1):
        first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
        begin, end = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        mean, largest = 0.0, 0.0
        for z in range(begin, end):
            mean += load(beliefs, z) * load(derivative, z)
            largest = max(largest, abs(load(derivative, z)))
        if largest == 0.0 or last < first:
            continue
        if last == first:  # the belief of its variable
            source = structure.unary_offsets[structure.slot_variables[first]]
            for z in range(end - begin):
                value = beliefs[begin + z] * (derivative[begin + z] - mean)
                adjoint.log_belief[source + z] += value
            continue
        inverse = 1.0 / model.factor_weight[factor]
        base = structure.message_offsets[first]
        n_last = structure.cardinalities[structure.slot_variables[last]]
        row_start = structure.message_offsets[last] - base
        margins[: structure.message_offsets[last + 1] - base] = 0.0
        digits[: last - first] = 0
        for row in range(begin, end, n_last):
            total = 0.0
            for y in range(n_last):
                value = load(beliefs, row + y) * (load(derivative, row + y) - mean) * inverse
                store(adjoint.table, row + y, load(adjoint.table, row + y) + value)
                store(margins, row_start + y, load(margins, row_start + y) + value)
                total += value
            if last - first == 1:  # a pair: rows are the labels of its first variable
                margins[digits[0]] = total
                digits[0] += 1
                continue
            for position in range(first, last):
                offset = structure.message_offsets[position] - base
                margins[offset + digits[position - first]] += total
            next_row(structure, first, last, digits)
        add_margins(structure, factor, -1, state, margins, adjoint, entropy)
