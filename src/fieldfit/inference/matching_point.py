"""The point of a matching polytope that maximises ``<W, t> + H(t)``, where messages find it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.matching_polytope import MatchingPolytope
from fieldfit.inference.capacity_messages import capacity_messages
from fieldfit.inference.matching_messages import matching_messages
from fieldfit.inference.matching_newton import newton_marginals

__all__ = ["MatchingPoint", "balanced", "has_newton", "matching_point"]

FloatArray = NDArray[np.float64]

#: Sweeps with each damping before Newton's method takes over, and if that was too early.
SWEEPS = (30, 300)


@dataclass(frozen=True)
class MatchingPoint:
    """The point, ``None`` if it was not found, and where later messages may start."""

    point: FloatArray | None
    state: FloatArray | None = None


def has_newton(polytope: MatchingPolytope) -> bool:
    """Whether Newton's method applies: bipartite graphs, one partner each.

    Messages do not know that of an odd set of nodes one must look outside, so on other graphs they
    would leave the polytope.
    """
    return polytope.kind == "bipartite" and polytope.capacities is None


def matching_point(
    polytope: MatchingPolytope,
    weights: FloatArray,
    rho: float,
    tol: float = 1e-10,
    init: FloatArray | None = None,
) -> MatchingPoint:
    """By prices with capacities, by opinions of nodes and Newton's method otherwise.

    Where neither settles, a point of the polytope close to where messages are is given instead: the
    callers certify points by best matchings, whatever they are.
    """
    if polytope.capacities is not None:
        prices = capacity_messages(polytope, weights, init=init)
        return MatchingPoint(prices.point, None if prices.point is None else prices.state)
    if not has_newton(polytope):
        return MatchingPoint(None)
    for n_sweeps in SWEEPS:
        found = matching_messages(polytope, weights, rho, tol, n_sweeps, init=init)
        if not np.isfinite(found.residual):
            return MatchingPoint(None)
        if found.converged:
            return MatchingPoint(found.point, found.state)
        init = found.state
        # nearly certain matchings settle slowly
        point = newton_marginals(polytope, weights, rho, found.point, tol)
        if point is not None:
            return MatchingPoint(point, init)
    return MatchingPoint(balanced(polytope, found.point), init)


def balanced(polytope: MatchingPolytope, point: FloatArray) -> FloatArray | None:
    """Shares of edges with rows and columns that add up to one, close to those of a point.

    Rows and columns are scaled down to at most one, and what is missing is spread over all edges
    (Altschuler, Weed and Rigollet, "Near-linear time approximation algorithms for optimal transport
    via Sinkhorn iteration", NIPS 2017).  ``None`` if nodes may be alone or edges are missing.
    """
    if len(polytope.alone) or not polytope.is_complete:
        return None
    t = polytope.matrix(point[: polytope.n_edges])
    t /= np.maximum(t.sum(axis=1, keepdims=True), 1.0)
    t /= np.maximum(t.sum(axis=0), 1.0)
    rows, columns = 1.0 - t.sum(axis=1), 1.0 - t.sum(axis=0)
    missing = rows.sum()
    if missing > 0.0:
        t += np.outer(np.maximum(rows, 0.0), np.maximum(columns, 0.0)) / missing
    return polytope.point(polytope.values(t))
