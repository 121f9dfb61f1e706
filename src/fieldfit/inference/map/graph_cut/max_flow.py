r"""Best labellings by minimum cuts.

If every variable has two labels and every pair of variables would rather agree,

    th_a(0,0) + th_a(1,1) >= th_a(0,1) + th_a(1,0)                          (submodular)

then ``-s(y)`` is, up to a constant, the capacity of a cut in a network with one node for each
variable, and a minimum cut is a best labelling (Greig, Porteous and Seheult 1989; Kolmogorov and
Zabih 2004).  The cut comes from a maximum flow, see
`fieldfit.inference.map.graph_cut.boykov_kolmogorov`.

More than two labels take one cut for each *move*:
`fieldfit.inference.map.graph_cut.expansion_moves`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.result import MapResult
from fieldfit.inference.map.base import MapSearch
from fieldfit.inference.map.graph_cut.cut_network import (
    Arcs,
    Pairs,
    arcs_of,
    choices_of,
    cut_choices,
    examples_with,
    find_unsuitable_pair,
    four_entries,
)
from fieldfit.inference.map.graph_cut.expansion_moves import expand
from fieldfit.inference.map.max_product import MEETING, message_bounds

__all__ = ["MaxFlow"]


@dataclass(frozen=True)
class MaxFlow(MapSearch):
    """Best labellings of submodular pairs by minimum cuts, good ones of metric pairs by moves.

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

    max_iter: int = 100
    bound_sweeps: int = 20

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        if self.max_iter < 1:
            raise InvalidInputError(f"max_iter must be at least 1, got {self.max_iter}")
        if self.bound_sweeps < 1:
            raise InvalidInputError(f"bound_sweeps must be at least 1, got {self.bound_sweeps}")
        graph = batch.graph
        arcs = arcs_of(graph, "MaxFlow")
        pairs, counts = choices_of(graph, potentials, observed, arcs.factors)
        by_moves = examples_with(batch, (graph.cardinalities > 2) & (counts > 1))
        if not by_moves.any():
            labels = minimum_cut(graph, arcs, pairs)
            return _optimal(batch, potentials, labels, arcs)
        moving = np.repeat(by_moves, np.diff(batch.variable_offsets))
        start = pairs.first.copy()
        if not by_moves.all():  # variables that move stay where they are, in the cut of the others
            second = np.where(moving, pairs.first, pairs.second)
            start[~moving] = minimum_cut(graph, arcs, pairs._replace(second=second))[~moving]
        expansion = expand(batch, arcs, pairs, potentials, by_moves, start, self.max_iter)
        scores = batch.scores(potentials, expansion.labels)
        dual = message_bounds(batch, potentials, observed, self.bound_sweeps)
        bounds = np.where(by_moves, np.maximum(dual, scores), scores)
        with np.errstate(invalid="ignore"):  # an impossible labelling with an infinite bound
            meets = bounds - scores <= MEETING * np.maximum(1.0, np.abs(scores))
        proved = (scores > -np.inf) & meets
        score, bound = float(scores.sum()), float(bounds.sum())
        return MapResult(
            labels=expansion.labels,
            score=score,
            upper_bound=bound,
            optimal=bool(proved.all()),
            status=_status(expansion.n_rounds, expansion.converged, score, bound, proved),
            method="MaxFlow(expansion)",
            converged=expansion.converged,
            n_iter=expansion.n_rounds,
            scores=scores,
            optimal_examples=proved,
        )


def minimum_cut(graph: FactorGraph, arcs: Arcs, pairs: Pairs) -> NDArray[np.int32]:
    """Labels of a minimum cut; refuses pairs that are not submodular."""
    unsuitable = find_unsuitable_pair(graph.structure, pairs)
    if unsuitable >= 0:
        t00, t01, t10, t11 = four_entries(graph.structure, pairs, unsuitable)
        raise InvalidInputError(
            f"factor {unsuitable} must be submodular, th(0,0) + th(1,1) >= th(0,1) + th(1,0), for "
            f"MaxFlow, got {t00:.6g} + {t11:.6g} < {t01:.6g} + {t10:.6g}; RoofDuality takes any "
            "pairs of two labels"
        )
    return np.where(cut_choices(graph, arcs, pairs) == 1, pairs.second, pairs.first)


def _optimal(
    batch: Batch, potentials: Potentials, labels: NDArray[np.int32], arcs: Arcs
) -> MapResult:
    scores = batch.scores(potentials, labels)
    score = float(scores.sum())
    n_nodes, n_arcs = batch.graph.n_variables, len(arcs.network.heads)
    return MapResult(
        labels=labels,
        score=score,
        upper_bound=score,
        optimal=True,
        status=f"optimal: minimum cut of a network of {n_nodes} nodes and {n_arcs} arcs",
        method="MaxFlow",
        n_iter=1,
        scores=scores,
        optimal_examples=np.ones(batch.n_examples, dtype=np.bool_),
    )


def _status(
    n_rounds: int, converged: bool, score: float, bound: float, proved: NDArray[np.bool_]
) -> str:
    rounds = f"{n_rounds} round{'s' if n_rounds != 1 else ''} of expansion moves"
    how = f"{'' if converged else 'stopped after '}{rounds}"
    if converged:
        how += ", no single move improves the labelling"
    if score == -np.inf:
        return f"{how}; the labelling found breaks a hard constraint, try an exact method"
    if proved.all():
        return f"{how}; the labelling is optimal"
    return f"{how}; the labelling is at most {bound - score:.3g} below the best score"
