"""A point of the local polytope after a few sweeps of messages, for pairs of binary variables.

Beliefs of factors and variables agree only when messages have converged.  Methods that need *some*
point of the polytope near the maximum of ``<th, tau> + H(tau)``, and can bound what it lacks, need
not wait for that: the beliefs of the variables are taken as they are after a few sweeps, and the
tables are the best ones with these margins (`fieldfit.kernels.consistent_pairs`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import CountingNumbers, Entropy
from fieldfit.core.potentials import Potentials
from fieldfit.inference._message_model import build_model, refresh_all
from fieldfit.inference._message_run import MessageRun
from fieldfit.inference.sum_product import SumProduct
from fieldfit.kernels.arrays import State
from fieldfit.kernels.beliefs import unary_beliefs
from fieldfit.kernels.consistent_pairs import fill_consistent_pairs

__all__ = ["ConsistentPoints"]

FloatArray = NDArray[np.float64]


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

    def forget(self) -> None:
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
