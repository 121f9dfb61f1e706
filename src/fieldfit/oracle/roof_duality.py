r"""Roof duality (QPBO): the relaxation over the local polytope for pairs of two labels, by a cut.

For any pairwise model of two labels, submodular or not,

    max_{tau in L} <th, tau>  >=  max_y s(y)

has an optimum with unary beliefs in ``{0, 1/2, 1}``; it is half a minimum cut in a network
with two nodes for each variable (`fieldfit.kernels.roof`).  Variables with belief 0 or 1 are
*persistent*: some best labelling has all of these labels.  If there are no others, the labelling
is proved optimal.

References: see `fieldfit.kernels.roof`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Beliefs, Potentials
from fieldfit.core.result import MapResult
from fieldfit.errors import InvalidInputError
from fieldfit.kernels.ascent import ascend
from fieldfit.kernels.balance import turn_round
from fieldfit.kernels.cuts import Pairs
from fieldfit.kernels.max_flow import Network, solve
from fieldfit.kernels.roof import HALF, Constants, fill_beliefs, fill_copies, read_choices
from fieldfit.oracle._base import MapSearch
from fieldfit.oracle._cuts import (
    Arcs,
    arcs_of,
    choices_of,
    cut_choices,
    new_flow,
    new_trees,
    raise_no_weight,
)
from fieldfit.oracle.max_product import MEETING

__all__ = ["RoofDuality"]

FloatArray = NDArray[np.float64]
ByteArray = NDArray[np.uint8]


@dataclass(frozen=True)
class RoofDuality(MapSearch):
    """The half-integral relaxation of a pairwise model of two labels, and the labels it proves.

    ``upper_bound`` is the value of the relaxation over the local polytope and ``beliefs`` an
    optimum of it; a variable is persistent if its beliefs are 0 and 1, undecided if both are one
    half.  Undecided variables are labelled by their unary potentials and then changed one by one
    while that raises the score; ``labels`` has these and the persistent ones.  As few variables as
    possible are undecided: ties are decided by an optimum that is not the only one.

    Factors have at most two variables, and variables at most two possible labels (evidence and hard
    zeros counted).

    Examples
    --------
    >>> graph = FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)], 2)
    >>> potentials = Potentials(graph, [None, None, None, [0.0, 9.0]], 1.0 - np.eye(2))
    >>> result = RoofDuality().run(graph, potentials)
    >>> result.beliefs.unary_matrix()[:, 1].tolist()
    [0.5, 0.5, 0.5, 1.0]
    >>> result.score, result.upper_bound
    (12.0, 12.5)
    """

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        graph = batch.graph
        arcs = arcs_of(graph, "RoofDuality")
        pairs, counts = choices_of(graph, potentials, observed, arcs.factors)
        many = np.flatnonzero(counts > 2)
        if len(many):
            raise InvalidInputError(
                f"variable {many[0]} must have at most two possible labels for RoofDuality, got "
                f"{counts[many[0]]}; MaxFlow and MaxProduct take more"
            )
        if turn_round(graph.structure, arcs.network, pairs):
            choices = cut_choices(graph, arcs, pairs)
            dual = None  # the labelling is optimal
        else:
            choices, dual = _relaxed(batch, arcs, pairs)
        beliefs, linear = _beliefs(batch, pairs, choices)
        undecided = np.flatnonzero(choices == HALF).astype(np.int32)
        labels = np.where(choices == 1, pairs.second, pairs.first)
        if len(undecided):
            _complete(graph, pairs, undecided, labels)
        scores = batch.scores(potentials, labels)
        n_undecided = batch.sum_variables((choices == HALF).astype(np.float64))
        # equal but for rounding
        bounds = np.maximum(linear if dual is None else np.maximum(linear, dual), scores)
        meets = bounds - scores <= MEETING * np.maximum(1.0, np.abs(scores))
        proved = (scores > -np.inf) & (meets | (n_undecided == 0))
        score, bound = float(scores.sum()), float(bounds.sum())
        return MapResult(
            labels=labels,
            score=score,
            upper_bound=bound,
            optimal=bool(proved.all()),
            status=_status(graph.n_variables, len(undecided), score, bound, proved),
            method="RoofDuality",
            n_iter=1,
            scores=scores,
            optimal_examples=proved,
            beliefs=beliefs,
        )


def _relaxed(batch: Batch, arcs: Arcs, pairs: Pairs) -> tuple[ByteArray, FloatArray]:
    """Choices and dual values by the network of two copies."""
    graph, structure = batch.graph, batch.graph.structure
    n_arcs = len(arcs.network.heads)
    offsets = arcs.network.offsets
    network = Network(
        offsets=np.concatenate([offsets, offsets[1:] + np.uint32(n_arcs)]),
        heads=np.empty(2 * n_arcs, dtype=np.uint32),
        reverses=np.empty(2 * n_arcs, dtype=np.uint32),
    )
    flow = new_flow(2 * graph.n_variables, 2 * n_arcs)
    forbidden = np.empty(graph.n_variables, dtype=np.uint8)
    constants = Constants(np.empty(graph.n_variables), np.empty(graph.n_factors))
    empty = fill_copies(
        structure, pairs, arcs.slot_arcs, network, flow.residual, flow.terminal, forbidden,
        constants,
    )  # fmt: skip
    if empty >= 0:
        raise_no_weight(f"hard zeros exclude every label of variable {empty}")
    trees = new_trees(2 * graph.n_variables)
    solve(network, flow, trees)
    if flow.conflict.any():
        where = np.flatnonzero(flow.conflict)[0] % graph.n_variables
        raise_no_weight(f"hard zeros around variable {where} contradict each other")
    choices = np.empty(graph.n_variables, dtype=np.uint8)
    read_choices(network, flow.residual, trees.node, choices)
    constant = graph.arities == 0
    constants.factor[constant] = pairs.tables[graph.table_offsets[:-1][constant]]
    paid = 0.5 * flow.supply.reshape(2, -1).sum(axis=0)
    dual = batch.sum_variables(constants.variable - paid) + batch.sum_factors(constants.factor)
    return choices, dual


def _beliefs(batch: Batch, pairs: Pairs, choices: ByteArray) -> tuple[Beliefs, FloatArray]:
    """Beliefs of the choices, and the linear score of each example."""
    graph = batch.graph
    unary, tables = np.zeros(graph.unary_offsets[-1]), np.zeros(graph.table_offsets[-1])
    values = Constants(np.empty(graph.n_variables), np.empty(graph.n_factors))
    fill_beliefs(graph.structure, pairs, choices, unary, tables, values)
    linear = batch.sum_variables(values.variable) + batch.sum_factors(values.factor)
    return Beliefs(graph, unary, tables), linear


def _complete(
    graph: FactorGraph, pairs: Pairs, undecided: NDArray[np.int32], labels: NDArray[np.int32]
) -> None:
    """Labels of undecided variables: the better one by itself, then single changes that help."""
    start = graph.unary_offsets[undecided]
    first, second = pairs.first[undecided], pairs.second[undecided]
    better = pairs.unary[start + second] > pairs.unary[start + first]
    labels[undecided] = np.where(better, second, first)
    ascend(graph.structure, pairs.unary, pairs.tables, undecided, labels)


def _status(
    n_variables: int, n_undecided: int, score: float, bound: float, proved: NDArray[np.bool_]
) -> str:
    if n_undecided == 0:
        how = f"all {n_variables} variables are decided"
    else:
        how = f"{n_variables - n_undecided} of {n_variables} variables are decided"
    if score == -np.inf:
        return f"{how}; the labelling found breaks a hard constraint, try an exact method"
    if proved.all():
        return f"{how}; the labelling is optimal"
    return f"{how}; the labelling is at most {bound - score:.3g} below the best score"
