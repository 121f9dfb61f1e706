r"""The backward pass (reverse-mode differentiation) of message updates: arrays and derivatives.

Write ``g[x]`` for the derivative of the final value by ``x`` (the adjoint, or cotangent, of ``x``).
The update of `fieldfit.inference.messages.message_arrays` has three steps; the backward pass goes
through their vector-Jacobian products, the last one first, with ``p(y_a | y_i)`` the terms of the
sum in ``m_ai(y_i)`` divided by the sum:

    belief     log tau_i = (th_i + sum_a m_ai) / chat_i
               s = g[log tau_i] / chat_i;  g[th_i] += s;  g[m_ai] += s for all a on i;
               g[chat_i] -= <s, log tau_i>
    message    m_ai = c_a log sum exp((th_a + sum_j lam_aj) / c_a)
               t(y_a) = g[m_ai](y_i) p(y_a | y_i);  g[th_a] += t;
               g[lam_aj] += the margin of t on j, for all j != i
    incoming   lam_aj = c_a log tau_j - m_aj
               g[log tau_j] += c_a g[lam_aj];  g[m_aj] -= g[lam_aj]

The third step waits until the backward pass next meets the belief of ``j``: ``g[lam]`` is kept for
each slot, and the variable gathers.  So no two slots of a level write to the same place; threads
share a level, and the sums have one order.

Messages and log-beliefs matter only up to constants, so each of these derivatives sums to zero
over the labels of its variable, and the normalisation to maximum 0 needs no step of its own.  But
what rounding adds to such a sum would be handed on from a variable to *all* its messages and
grow like the number of paths; so ``g[m]`` is moved to sum zero before it is used.
(Nor has the floor of `message_arrays`, which messages of soft tables never reach and those of hard
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

Reference: Eaton and Ghahramani, "Choosing a variable to clamp", AISTATS 2009 (back-belief
propagation); Domke, "Learning graphical model parameters with approximate marginal inference",
IEEE Transactions on Pattern Analysis and Machine Intelligence 35 (2013).
"""

from __future__ import annotations

from typing import NamedTuple

from fieldfit._typing import FloatArray, LongArray

__all__ = ["Adjoint", "Tape"]


class Adjoint(NamedTuple):
    """Derivatives of the final value, accumulated during the backward pass."""

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
    slot_offsets: LongArray
