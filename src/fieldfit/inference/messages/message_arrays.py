r"""The sum-product message update under any counting numbers, and the arrays that kernels share.

With counting numbers ``c_a`` of factors and totals ``chat_i = c_i + sum_a c_a`` of variables,

    m_ai(y_i)    = c_a log sum_{y_a \ y_i} exp((th_a(y_a) + sum_{j != i} lam_aj(y_j)) / c_a)
    log tau_i    = (th_i + sum_a m_ai) / chat_i
    lam_aj       = c_a log tau_j - m_aj

``c_a = chat_i = 1`` is loopy belief propagation, ``c_a = rho_a`` tree-reweighted propagation, and
``c_a = 1, c_i >= 0`` block-coordinate descent on a convex dual.  The state is the messages ``m``
(one vector for each slot, maximum 0) and the log-beliefs ``log tau`` (maximum 0); ``lam`` is
formed on the fly.

Two kernels compute messages: `pair_update.update_pairs` for "pair" slots, i.e. slots of pairwise
factors whose two variables both have the common number of labels ``K``, and
`factor_update.update_slots` for all others.  (A slot is one position of one scope: an edge of the
factor graph.)  Kernels are compiled for ``K``, which they take as the length of a tuple ``k``: it
is then part of the type, and the compiled code is cached on disk once per ``K``, never per graph.

Range: with both the table and the incoming vector scaled to maximum 1, what underflows is below
1e-300, so a sum above `TINY` is right to full precision.  A message with any smaller sum is
computed again in the log domain, entry by entry.  Hard zeros therefore cost time, never digits.
Loopy messages may send a label's weight to zero faster and faster; their logarithms are kept above
``floor``, beyond the reach of any sum of potentials, so that this never ends in an infinity that
would look like a hard zero.

References: Yedidia, Freeman and Weiss, "Constructing free-energy approximations and generalized
belief propagation algorithms", IEEE Transactions on Information Theory 51 (2005); Hazan and
Shashua, "Norm-product belief propagation", IEEE Transactions on Information Theory 56 (2010).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import FloatArray, IntArray

#: See "Range" above; far from both 1e-300 and 1, so that neither bound is tight.
TINY = 1e-250
NO_WEIGHT = -np.inf

#: Flags that kernels return, combined by "or".
CONTRADICTION = 1
ABOVE_TOLERANCE = 2


class Model(NamedTuple):
    """Numbers of one run: potentials with evidence and entropy applied."""

    unary: FloatArray  # th_i, arity-1 factors and evidence included
    log_table: FloatArray  # th_a
    exp_table: FloatArray  # exp((th_a - max th_a) / c_a)
    factor_weight: FloatArray  # c_a
    variable_total: FloatArray  # chat_i
    floor: float  # see "Range"


class State(NamedTuple):
    """What a sweep changes."""

    message: FloatArray  # m_ai, maximum 0
    log_belief: FloatArray  # log tau_i, maximum 0


class Plan(NamedTuple):
    """Slots in the order of a schedule, cut into levels whose slots are independent.

    In one level all messages are computed from the old beliefs, then the beliefs of
    ``variables`` are refreshed.  ``pair_factor`` is the factor if the message goes to the second
    variable of its scope and its bitwise complement if it goes to the first.
    """

    pair_target: IntArray  # first message entry of the slot
    pair_source: IntArray  # first belief entry of the factor's other variable
    pair_factor: IntArray
    pair_offsets: IntArray
    slots: IntArray  # all other slots; slots of one factor in a level are adjacent
    slot_offsets: IntArray
    variables: IntArray
    variable_offsets: IntArray


class Changes(NamedTuple):
    """Largest change of a message entry in the last sweep, by position in the plan."""

    pair: FloatArray
    slot: FloatArray
