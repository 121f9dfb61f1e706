"""A point of the local polytope after a few sweeps of messages, for pairs of binary variables.

Beliefs of factors and variables agree only when messages have converged.  Methods that need *some*
point of the polytope near the maximum of ``<th, tau> + H(tau)``, and can bound what it lacks, need
not wait for that: the beliefs of the variables are taken as they are after a few sweeps, and the
tables are the best ones with these margins.

For given beliefs ``q`` of the variables and a factor entropy of weight ``c_a``, the table that
maximises ``<th_a, x_a> + c_a H(x_a)`` among those with margins ``q_i, q_j`` is known in closed form
for two binary variables (Welling and Teh, "Belief optimization for binary networks", UAI 2001; the
formula that keeps all digits is derived in
`fieldfit.inference.free_energy.binary_pair_fitting`).  Whatever the beliefs of the variables are,
the result is locally consistent to rounding.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.entropy.counting_numbers import CountingNumbers, Entropy
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.message_arrays import State
from fieldfit.inference.messages.message_beliefs import unary_beliefs
from fieldfit.inference.messages.message_run import MessageRun, build_model, refresh_all
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = ["ConsistentPoints", "fill_consistent_pairs"]

#: Smallest divisor: where one vanishes, so does what is divided.
TINY = 2.2250738585072014e-308


@kernel(fastmath=SAFE_FASTMATH)
def fill_consistent_pairs(
    structure: Structure,
    log_tables: FloatArray,
    factor_weight: FloatArray,
    unary: FloatArray,
    tables: FloatArray,
) -> None:
    """Tables of all factors, which must join two binary variables each, with margins ``unary``."""
    for factor in range(len(factor_weight)):
        first = load(structure.scope_offsets, factor)
        left = load(structure.unary_offsets, load(structure.slot_variables, first))
        right = load(structure.unary_offsets, load(structure.slot_variables, first + 1))
        table = load(structure.table_offsets, factor)
        strength = (
            (load(log_tables, table) - load(log_tables, table + 1))
            + (load(log_tables, table + 3) - load(log_tables, table + 2))
        ) / load(factor_weight, factor)
        one, not_one = load(unary, left + 1), load(unary, left)
        straight, crossed = load(unary, right + 1), load(unary, right)
        is_flipped = strength < 0.0
        two = crossed if is_flipped else straight
        not_two = straight if is_flipped else crossed
        b = fast_exp(-abs(strength))
        c = 1.0 - b
        difference = one - two if one <= not_two else not_two - not_one
        is_first = difference >= 0.0
        gap = abs(difference)
        root = sqrt(
            b * b + 2.0 * b * c * (one * not_two + not_one * two) + c * c * difference * difference
        )
        product = two * not_one if is_first else one * not_two
        small = 2.0 * b * product / max(b + c * gap + root, TINY)
        x01 = small if is_first else small + gap
        x10 = small + gap if is_first else small
        excess = two - not_one if is_first else one - not_two
        is_low = excess <= 0.0
        product = one * two if is_low else not_one * not_two
        total = one + two if is_low else not_one + not_two
        small = 2.0 * product / max(b + c * total + root, TINY)
        x00 = small + abs(excess) if is_low else small
        x11 = small if is_low else small + abs(excess)
        store(tables, table, x01 if is_flipped else x00)
        store(tables, table + 1, x00 if is_flipped else x01)
        store(tables, table + 2, x11 if is_flipped else x10)
        store(tables, table + 3, x10 if is_flipped else x11)


class ConsistentPoints:
    """Points for changing potentials of one batch; messages go on from where they were.

    Parameters
    ----------
    batch
        Graphs of binary variables whose factors all join two (see `suits`).
    entropy
        With factor weights above 0.
    """

    def __init__(self, batch: Batch, entropy: Entropy) -> None:
        self._batch = batch
        self._counting: CountingNumbers = entropy.counting_numbers(batch.graph)
        self._options = SumProduct(entropy=entropy)
        self._message = np.zeros(int(batch.graph.message_offsets[-1]))

    def reset_warm_start(self) -> None:
        """Let messages start from uniform ones again."""
        self._message = np.zeros_like(self._message)

    @staticmethod
    def suits(batch: Batch, entropy: Entropy) -> bool:
        """Whether variables are binary, and factors pairs of positive weight."""
        graph = batch.graph
        return bool(
            np.all(graph.cardinalities == 2)
            and np.all(graph.arities == 2)
            and np.all(entropy.counting_numbers(graph).factor > 0.0)
        )

    def find(self, potentials: Potentials, n_sweeps: int) -> FloatArray:
        """Beliefs of variables, then those of factors, after so many sweeps at most."""
        graph = self._batch.graph
        model = build_model(graph, potentials, self._counting, None)
        state = State(message=self._message, log_belief=np.empty(int(graph.unary_offsets[-1])))
        refresh_all(graph, model, state)
        run = MessageRun(self._options, self._batch, model, state, self._counting, None)
        run.sweeps(n_sweeps)
        self._message = state.message
        cut = int(graph.unary_offsets[-1])
        point = np.empty(cut + int(graph.table_offsets[-1]))
        unary_beliefs(graph.structure, model, state, point[:cut], np.empty(graph.n_variables))
        fill_consistent_pairs(
            graph.structure, model.log_table, model.factor_weight, point[:cut], point[cut:]
        )
        return point
