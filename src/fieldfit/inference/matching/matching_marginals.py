"""Marginals of random matchings (Bethe permanent) by pairwise Frank-Wolfe over best matchings.

    B(W) = max over t of <W, t> + H(t)

over the polytope of matchings, with the entropy of
`fieldfit.inference.matching.matching_polytope`.  The oracle of Frank-Wolfe is a best matching
(`fieldfit.inference.frank_wolfe.frank_wolfe` says how, and what the gap proves).  On bipartite
graphs message passing finds the point itself as a rule, and the searches certify it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import FloatArray
from fieldfit._validation import require_flag, require_integer, require_number
from fieldfit.errors import InvalidInputError
from fieldfit.graph.result import Bound
from fieldfit.inference.frank_wolfe.active_set import ActiveSet
from fieldfit.inference.frank_wolfe.frank_wolfe import Point, covering_point, run_frank_wolfe
from fieldfit.inference.matching.assignment import Assignment
from fieldfit.inference.matching.matching_messages import matching_point
from fieldfit.inference.matching.matching_polytope import (
    Capacities,
    Kind,
    MatchingPolytope,
    checked_weights,
    require_rho,
)
from fieldfit.inference.matching.perfect_matching import PerfectMatching

__all__ = [
    "MatchingMarginals",
    "best_edges",
    "inner_point",
    "matching_marginals",
    "matching_oracle",
]


@dataclass(frozen=True)
class MatchingMarginals:
    """Edge probabilities of a surrogate, and its log-partition.

    Attributes
    ----------
    marginals
        In the shape of the weights.
    log_partition
        ``B(W)``; with ``bound == "upper"`` raised by the gap, so that it is a bound.
    bound
        ``"upper"`` for ``rho`` up to 1/2, ``"lower"`` for Bethe's on bipartite graphs, else
        ``None``: nothing is proved.
    gap
        How far the value found can be below ``B(W)``.
    converged, n_iter
        Whether the gap met the tolerance, and the number of matchings that were asked for.
    """

    marginals: FloatArray
    log_partition: float
    bound: Bound
    gap: float
    converged: bool
    n_iter: int


def matching_marginals(
    weights: ArrayLike,
    kind: Kind = "bipartite",
    perfect: bool = True,
    rho: float = 1.0,
    tol: float = 1e-6,
    max_iter: int = 1000,
    capacities: Capacities | None = None,
) -> MatchingMarginals:
    """Edge probabilities of ``p(Y) ~ exp(sum W_ij Y_ij)`` over matchings, approximately.

    Parameters
    ----------
    weights, kind, perfect
        As `fieldfit.inference.matching.matching_partition.matching_partition`, which is exact,
        takes them.
    rho
        Counting number of the nodes: 1 is Bethe's entropy, 1/2 gives an upper bound.
    tol
        Of the gap, relative to the value (or to 1, if that is larger).
    capacities
        Numbers of partners of rows and of columns of a bipartite graph; needs ``rho = 0``, the
        entropy of independent edges, which is never below the true one.
    max_iter
        Most matchings that are asked for.

    Returns
    -------
    MatchingMarginals
        Edge probabilities, the log-partition, what is proved about it, and the gap.

    Examples
    --------
    >>> found = matching_marginals(np.log([[1.0, 2.0], [3.0, 4.0]]))
    >>> found.bound, found.converged, bool(found.log_partition <= np.log(10.0))
    ('lower', True, True)
    """
    rho = require_rho(rho)
    require_flag("perfect", perfect)
    require_number("tol", tol, above=0)
    require_integer("max_iter", max_iter, at_least=1)
    array = checked_weights(weights, kind)
    if capacities is not None and rho != 0.0:
        raise InvalidInputError(f"rho must be 0 with capacities (independent edges), got {rho:g}")
    polytope = MatchingPolytope.of_weights(array, kind, perfect, capacities)
    edge_weights = polytope.values(array)
    potentials = np.zeros(2 * polytope.n_edges + len(polytope.alone))
    potentials[: polytope.n_edges] = edge_weights
    start = inner_point(polytope)
    nothing = np.zeros(0)
    coefficients = polytope.coefficients(rho)
    active = ActiveSet(start, nothing, float(potentials @ start), coefficients, nothing)
    # where messages find the answer, searches have nothing left to do but to certify
    marginals = matching_point(polytope, edge_weights, rho).point
    if marginals is not None:
        index = active.add(marginals, nothing, float(potentials @ marginals))
        active.move_weights(nothing, 0.0, 1, index)
    end = run_frank_wolfe(
        active, potentials, lambda slopes: best_edges(polytope, slopes), tol, max_iter
    )
    bound: Bound = None
    if rho <= 0.5:
        bound = "upper"
    elif rho == 1.0 and kind == "bipartite":
        bound = "lower"
    return MatchingMarginals(
        marginals=polytope.matrix(active.x[: polytope.n_edges]),
        log_partition=end.value + end.gap if bound == "upper" else end.value,
        bound=bound,
        gap=end.gap,
        converged=end.converged,
        n_iter=end.n_iter,
    )


def matching_oracle(polytope: MatchingPolytope) -> Assignment | PerfectMatching:
    """The search for best matchings of a graph."""
    if polytope.kind == "bipartite":
        return Assignment(perfect=polytope.perfect, capacity=polytope.capacities)
    return PerfectMatching(perfect=polytope.perfect)


def best_edges(polytope: MatchingPolytope, slopes: FloatArray) -> Point:
    """The vertex of largest linear score: a best matching."""
    weights, constant = polytope.edge_weights(slopes)
    found = matching_oracle(polytope).match(polytope.matrix(weights, -np.inf))
    t = polytope.values(found.edges.astype(np.float64))
    return Point(polytope.point(t), found.score + constant)


def inner_point(polytope: MatchingPolytope) -> FloatArray:
    """A point at which every edge that some matching uses is positive.

    Uniform on a complete graph; otherwise the mean of matchings that use, each, as many edges as
    possible that no other one does.
    """
    if polytope.is_complete and polytope.n_edges and polytope.capacities is None:
        return polytope.uniform_point()
    everything = np.ones(2 * polytope.n_edges + len(polytope.alone), dtype=np.bool_)
    return covering_point(lambda slopes: best_edges(polytope, slopes), everything)
