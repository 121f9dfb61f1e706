r"""Graph cuts: MAP of submodular binary models by maximum flow, of many labels by alpha-expansion.

If every variable has two labels and every pair of variables prefers equal ones,

    th_a(0,0) + th_a(1,1) >= th_a(0,1) + th_a(1,0)                          (submodular)

then ``-s(y)`` is, up to a constant, the capacity of an s-t cut in a network with one node for each
variable, and a minimum cut is a best labelling.  The cut comes from a maximum flow
(`fieldfit.inference.map.graph_cut.boykov_kolmogorov`).  More than two labels take one cut for each
expansion move (`fieldfit.inference.map.graph_cut.expansion_moves`).

References: Greig, Porteous and Seheult, "Exact maximum a posteriori estimation for binary images",
J. Royal Statistical Society B 51 (1989); Kolmogorov and Zabih, "What energy functions can be
minimized via graph cuts?", IEEE Trans. Pattern Analysis and Machine Intelligence 26 (2004).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fieldfit._typing import IntArray
from fieldfit._validation import require_integer
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.ragged import expand
from fieldfit.graph.result import MapResult
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, certified_result, optimal_result
from fieldfit.inference.map.graph_cut.cut_network import (
    BinaryPairs,
    CutNetwork,
    binary_choices,
    cut_network,
    examples_with,
    minimum_cut,
)
from fieldfit.inference.map.graph_cut.expansion_moves import ExpansionResult, alpha_expansion
from fieldfit.inference.map.max_product import message_bounds

__all__ = ["MaxFlow"]


@dataclass(frozen=True, kw_only=True)
class MaxFlow(MapSearch):
    """Best labellings of submodular pairs by minimum cuts, good ones of metric pairs by expansion.

    Factors have at most two variables.  An example in which every variable has at most two labels
    (or only one that is possible) is solved exactly; its pairs must be submodular.  Any other
    example needs pairs with

        th(a, b) + th(c, c) >= th(a, c) + th(c, b)      for all labels a, b, c,

    as metrics have it (``-th`` with zero diagonal and the triangle inequality; Potts tables with
    equal labels preferred); its labels come from expansion moves, each of which is optimal.

    Parameters
    ----------
    max_iter
        Largest number of rounds of moves, one move for each label in a round.
    bound_sweeps
        Message sweeps for the upper bound of examples that need moves, which is the dual value of
        `MaxProduct` with convex weights: valid after any number of sweeps, tighter after more.

    Examples
    --------
    >>> graph = FactorGraph.chain(3, 2)
    >>> potentials = Potentials(graph, unary=[[0, 1], None, None], factors=[np.eye(2), np.eye(2)])
    >>> result = MaxFlow().run(graph, potentials)
    >>> result.labels.tolist(), result.score, result.optimal
    ([1, 1, 1], 3.0, True)
    """

    max_arity = 2

    max_iter: int = field(default=100, kw_only=False)
    bound_sweeps: int = 20

    def __post_init__(self) -> None:
        require_integer("max_iter", self.max_iter, at_least=1)
        require_integer("bound_sweeps", self.bound_sweeps, at_least=1)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        graph = batch.graph
        cuts = cut_network(graph, "MaxFlow")
        pairs, counts = binary_choices(graph, potentials, observed, cuts.factors)
        by_moves = examples_with(batch, (graph.cardinalities > 2) & (counts > 1))
        if not by_moves.any():
            labels = submodular_labels(graph, cuts, pairs)
            n_arcs = len(cuts.network.heads)
            how = f"minimum cut of a network of {graph.n_variables} nodes and {n_arcs} arcs"
            return optimal_result(batch, potentials, labels, how=how, method="MaxFlow")
        moving = expand(by_moves, batch.variable_offsets)
        start = pairs.first.copy()
        if not by_moves.all():  # variables that move stay where they are, in the cut of the others
            second = np.where(moving, pairs.first, pairs.second)
            start[~moving] = submodular_labels(graph, cuts, pairs._replace(second=second))[~moving]
        expansion = alpha_expansion(batch, cuts, pairs, potentials, by_moves, start, self.max_iter)
        scores = batch.scores(potentials, expansion.labels)
        dual = message_bounds(batch, potentials, observed, self.bound_sweeps)
        return certified_result(
            expansion.labels,
            scores,
            np.where(by_moves, dual, scores),
            how=_how(expansion),
            method="MaxFlow(expansion)",
            converged=expansion.converged,
            n_iter=expansion.n_rounds,
        )


def submodular_labels(graph: FactorGraph, cuts: CutNetwork, pairs: BinaryPairs) -> IntArray:
    """Labels of a minimum cut; refuses pairs that are not submodular."""
    return np.where(minimum_cut(graph, cuts, pairs) == 1, pairs.second, pairs.first)


def _how(expansion: ExpansionResult) -> str:
    n = expansion.n_rounds
    rounds = f"{n} round{'s' if n != 1 else ''} of expansion moves"
    if expansion.converged:
        return f"{rounds}, no single move improves the labelling"
    return f"stopped after {rounds}"
