"""Blossom algorithm (Edmonds): maximum-weight perfect matching in general graphs.

    max_Y sum_{ij} w_ij Y_ij    over Y with one partner for each node (or at most one)

from the optional package rustworkx.  As a MAP search on a factor graph the class recognises models
that encode a matching (`fieldfit.inference.matching.matching_encoding`).

Weights are integers there.  They are multiplied by the power of two that puts the largest one
between ``2**59`` and ``2**60`` and rounded, which moves a weight by less than ``2**-60`` of the
largest: the score of the matching is best up to the rounding of its own sum.  (Differences and
sums inside have 128 bits.)

References: Edmonds, "Maximum matching and a polyhedron with 0,1-vertices", Journal of Research of
the NBS 69B (1965); Galil, "Efficient algorithms for finding maximum matching in graphs", ACM
Computing Surveys 18 (1986).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import FloatArray, LongArray
from fieldfit._validation import require_flag, require_list
from fieldfit.errors import InvalidInputError, MissingDependencyError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.result import MapResult
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, optimal_result
from fieldfit.inference.matching.assignment import Match
from fieldfit.inference.matching.matching_encoding import ENCODES_A_MATCHING, Matching, recognize
from fieldfit.inference.matching.matching_polytope import checked_weights

__all__ = ["PerfectMatching", "maximum_weight_edges"]

#: Weights are scaled to this many bits, which leaves room for sums in 64 bits.
WEIGHT_BITS = 60


@dataclass(frozen=True)
class PerfectMatching(MapSearch):
    """Maximum-weight matching in a general graph; needs the extra ``matching``.

    `run` reads from the tables of a model which nodes must have a partner.

    Parameters
    ----------
    perfect
        Every node has a partner.  Otherwise only edges that raise the score are used.

    Examples
    --------
    >>> weights = np.array([[0, 5, 4, 0], [5, 0, 0, 4], [4, 0, 0, 1], [0, 4, 1, 0]])
    >>> match = PerfectMatching().match(weights)  # doctest: +SKIP
    >>> match.partners.tolist(), match.score  # doctest: +SKIP
    ([2, 3, 0, 1], 8.0)
    """

    perfect: bool = True

    def __post_init__(self) -> None:
        require_flag("perfect", self.perfect)

    def match(self, weights: ArrayLike) -> Match:
        """The best matching of a symmetric matrix; ``-inf`` is no edge, the diagonal is unused."""
        array = checked_weights(weights, "general")
        n = len(array)
        if self.perfect and n % 2:
            raise InvalidInputError(
                f"weights must have an even number of nodes for a perfect matching, got {n}"
            )
        ends = np.argwhere(np.triu(array > -np.inf, 1))
        values = array[ends[:, 0], ends[:, 1]]
        chosen = maximum_weight_edges(n, ends, values, perfect=self.perfect)
        edges = np.zeros((n, n), dtype=np.bool_)
        first, second = ends[chosen].T
        edges[first, second] = edges[second, first] = True
        return Match(edges, float(values[chosen].sum()))

    def match_batch(self, weights: list[ArrayLike] | FloatArray) -> list[Match]:
        """The same for many matrices, which may differ in size."""
        require_list("weights", weights, "matrices")
        found = []
        for example, matrix in enumerate(weights):
            try:
                found.append(self.match(matrix))
            except InvalidInputError as error:
                raise type(error)(f"weights[{example}]: {error}") from None
        return found

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        models = recognize(batch, potentials, observed)
        labels = [model.labels_of(_solve(model, example)) for example, model in enumerate(models)]
        return optimal_result(
            batch,
            potentials,
            np.concatenate(labels),
            how=ENCODES_A_MATCHING,
            method="PerfectMatching",
        )


def maximum_weight_edges(
    n_nodes: int, ends: LongArray, weights: FloatArray, *, perfect: bool
) -> LongArray:
    """Indices of the edges of a best matching; no two edges may join the same nodes."""
    try:
        import rustworkx
    except ImportError:
        raise MissingDependencyError(
            "matchings in general graphs need rustworkx: pip install 'fieldfit[matching]'"
        ) from None
    given = np.arange(len(weights)) if perfect else np.flatnonzero(weights > 0.0)
    scaled = _integers(weights[given]).tolist()
    first, second = ends[given].T
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from(list(zip(first.tolist(), second.tolist(), scaled, strict=True)))
    pairs = rustworkx.max_weight_matching(graph, max_cardinality=perfect, weight_fn=int)
    if perfect and 2 * len(pairs) < n_nodes:
        alone = sorted(set(range(n_nodes)).difference(*pairs))
        raise ZeroWeightError(
            "weights must allow a perfect matching, but in the largest one the nodes "
            f"{alone[:10]} stay alone"
        )
    keys = np.minimum(first, second) * n_nodes + np.maximum(first, second)
    found = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    is_chosen = np.isin(keys, np.sort(found, axis=1) @ [n_nodes, 1])
    return given[is_chosen]


def _integers(weights: FloatArray) -> LongArray:
    _, exponent = np.frexp(np.abs(weights).max(initial=0.0))
    scaled: LongArray = np.rint(np.ldexp(weights, WEIGHT_BITS - exponent)).astype(np.int64)
    return scaled


def _solve(model: Matching, example: int) -> LongArray:
    """Edges of a best matching of a recognised model.

    If only some nodes need a partner, the graph is taken twice with an edge of weight zero from
    each other node to its twin.  A perfect matching of that is two matchings that leave the same
    nodes out; the better one, taken twice, is no worse, so both are best.
    """
    n = len(model.required)
    best = _without_parallels(model, n)
    ends, weights = model.ends[best], model.weights[best]
    nodes = np.union1d(ends, np.flatnonzero(model.required))
    ends, required, n = np.searchsorted(nodes, ends), model.required[nodes], len(nodes)
    try:
        if not required.any():
            return best[maximum_weight_edges(n, ends, weights, perfect=False)]
        if not required.all():
            free = np.flatnonzero(~required)
            ends = np.concatenate([ends, ends + n, np.stack([free, free + n], axis=1)])
            weights = np.concatenate([weights, weights, np.zeros(len(free))])
            n *= 2
        chosen = maximum_weight_edges(n, ends, weights, perfect=True)
    except ZeroWeightError:
        raise ZeroWeightError(
            f"the model of example {example} has total weight zero: no matching has partners for "
            f"the {required.sum()} factors that need one"
        ) from None
    return best[chosen[chosen < len(best)]]


def _without_parallels(model: Matching, n_nodes: int) -> LongArray:
    """Indices of the best edge between any two nodes."""
    key = model.ends.min(axis=1, initial=n_nodes) * n_nodes + model.ends.max(axis=1, initial=0)
    order = np.lexsort((-model.weights, key))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = np.diff(key[order]) > 0
    return np.asarray(order[is_first], dtype=np.int64)
