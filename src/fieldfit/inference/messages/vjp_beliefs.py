r"""The reverse pass through message updates: its arrays, and the derivatives it computes.

Write ``g[x]`` for the derivative of the final value by ``x``.  The update of `arrays` has three
steps; backwards, the last one first, with ``p(y_a | y_i)`` the terms of the sum in ``m_ai(y_i)``
divided by the sum:

    belief     log tau_i = (th_i + sum_a m_ai) / chat_i
               s = g[log tau_i] / chat_i;  g[th_i] += s;  g[m_ai] += s for all a on i;
               g[chat_i] -= <s, log tau_i>
    message    m_ai = c_a log sum exp((th_a + sum_j lam_aj) / c_a)
               t(y_a) = g[m_ai](y_i) p(y_a | y_i);  g[th_a] += t;
               g[lam_aj] += the margin of t on j, for all j != i
    incoming   lam_aj = c_a log tau_j - m_aj
               g[log tau_j] += c_a g[lam_aj];  g[m_aj] -= g[lam_aj]

The third step waits until the belief of ``j`` is next met on the way back: ``g[lam]`` is kept for
each slot, and the variable gathers.  So no two slots of a level write to the same place; threads
share a level, and the sums have one order.

Messages and log-beliefs matter only up to constants, so each of these derivatives sums to zero
over the labels of its variable, and the normalisation to maximum 0 needs no step of its own.  But
what rounding adds to such a sum would be handed on from a variable to *all* its messages and
grow like the number of paths; so ``g[m]`` is moved to sum zero before it is used.
(Neither has the floor of `arrays`, which messages of soft tables never reach and those of hard
zeros only after many sweeps around cycles.)

Counting numbers.  The update is homogeneous of degree one in ``(th, m, lam, c, chat)`` with
``log tau`` fixed.  By Euler's rule the derivative of one message by its own ``c_a`` is
what the potentials and messages leave over,

    c_a g[c_a] = <g[m_ai], m_ai> + sum_{j != i} <margin of t on j, m_aj> - <t, th_a>

where ``c_a log tau_j`` in ``lam_aj`` is included.  The last terms of all sweeps add up to
``<g[th_a], th_a>`` and are taken once, at the end.  The same holds for beliefs of factors, with
``t`` the derivative by ``th_a`` and no first term.

Damping: ``m = (1 - d) new + d old`` sends ``(1 - d) g[m]`` to the update and ``d g[m]`` to the
message that it overwrote.

Range: sums and terms are those of the forward pass, in the linear domain with maximum 1; where a
sum is not above `TINY` the terms are computed again in the log domain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.structure import next_row
from fieldfit.inference.messages.vjp_factor_update import add_margins
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store


class Adjoint(NamedTuple):
    """Derivatives of the final value, on the way back."""

    message: FloatArray  # by m_ai
    incoming: FloatArray  # by lam_ai, since the belief of i was last met
    log_belief: FloatArray  # by log tau_i, as far as the beliefs themselves are read
    unary: FloatArray  # by th_i
    table: FloatArray  # by th_a
    products: FloatArray  # inner products with messages in c_a g[c_a]
    variable_total: FloatArray  # by chat_i


class Tape(NamedTuple):
    """The messages that one sweep overwrites, by their position in the plan."""

    pair: FloatArray  # K for each pair slot
    slot: FloatArray  # of all other slots, one after the other
    slot_offsets: NDArray[np.int64]


# -- Reverse beliefs -----------------------------------------------------------------------
# The way back through normalised beliefs, where every reverse pass begins (see `reverse_arrays`).
#
# A belief is ``b = exp(v) / sum exp(v)``, so ``g[v] = b (g[b] - <g[b], b>)``, with ``v = log
# tau_i`` for variables and ``v = (th_a + sum_i lam_ai) / c_a`` for factors.


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
def reverse_unary_beliefs(
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
def reverse_factor_beliefs(
    structure: Any,
    model: Any,
    state: Any,
    beliefs: FloatArray,
    derivative: FloatArray,
    adjoint: Any,
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
