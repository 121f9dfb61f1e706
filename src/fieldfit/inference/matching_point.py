"""The point of a matching polytope that maximises ``<W, t> + H(t)``, where messages find it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.matching_polytope import MatchingPolytope
from fieldfit.inference.capacity_messages import capacity_messages
from fieldfit.inference.matching_messages import matching_messages

__all__ = ["MatchingPoint", "matching_point"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class MatchingPoint:
    """The point, ``None`` if it was not found, and where later messages may start."""

    point: FloatArray | None
    state: FloatArray | None = None


def matching_point(
    polytope: MatchingPolytope, weights: FloatArray, rho: float, init: FloatArray | None = None
) -> MatchingPoint:
    """By prices with capacities, by opinions of nodes otherwise; bipartite graphs only.

    Messages do not know that of an odd set of nodes one must look outside, so on other graphs they
    would leave the polytope.
    """
    if polytope.capacities is not None:
        prices = capacity_messages(polytope, weights, init=init)
        return MatchingPoint(prices.point, None if prices.point is None else prices.state)
    if polytope.kind == "general":
        return MatchingPoint(None)
    found = matching_messages(polytope, weights, rho, init=init)
    return MatchingPoint(found.point, found.state) if found.converged else MatchingPoint(None)
