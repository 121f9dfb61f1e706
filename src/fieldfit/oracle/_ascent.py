"""The loop of Frank-Wolfe with stored points, for any polytope that can be searched.

`frank_wolfe` says what is maximised, and what the gap proves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.hull import HullPoint
from fieldfit.errors import ZeroWeightError

__all__ = ["Ascent", "Point", "ascend", "covering_point"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: Shares are moved until what the stored points promise is below this share of the gap, or so
#: often at most: a search costs more than many of these steps.
PATIENCE, MAX_MOVES = 0.1, 200


@dataclass(frozen=True)
class Point:
    """A point of the polytope, flat, and a number that no point's linear score exceeds."""

    values: FloatArray
    upper_bound: float


#: A point of largest linear score under some slopes.
Find = Callable[[FloatArray], Point]


@dataclass(frozen=True)
class Ascent:
    """How it ended: ``<th, x> + H(x)`` is ``value``, and at most ``gap`` below its maximum."""

    value: float
    gap: float
    n_iter: int
    converged: bool


def ascend(
    hull: HullPoint, potentials: FloatArray, find: Find, tol: float, max_iter: int
) -> Ascent:
    """Move a point until its gap is below ``tol`` of the value (or of 1, if that is larger).

    ``potentials`` may be ``-inf`` where every point of the polytope is zero.
    """
    is_possible = potentials > -np.inf
    finite = np.where(is_possible, potentials, 0.0)
    nothing = np.zeros(0)
    n_iter = 0
    while True:
        slopes = hull.slopes(potentials)
        point = find(slopes)
        n_iter += 1
        value = hull.linear + hull.entropy()
        gap = max(point.upper_bound - float(np.where(is_possible, slopes, 0.0) @ hull.x), 0.0)
        converged = gap <= tol * max(1.0, abs(value))
        if converged or n_iter == max_iter:
            return Ascent(value, gap, n_iter, converged)
        linear = float(finite @ point.values)
        if hull.is_stored:
            place = hull.add(point.values, nothing, linear)
            hull.move_shares(nothing, PATIENCE * gap, MAX_MOVES, place)
        else:
            hull.step_towards(point.values, nothing, linear, nothing)


def covering_point(find: Find, is_possible: BoolArray) -> FloatArray:
    """A mixture of points of the polytope that is positive wherever one of them can be.

    Some entries are impossible, and make others so.  Searches with a bonus on what has not been met
    yet go on until they meet nothing new.
    """
    total = np.zeros(len(is_possible))
    n_points = 0
    while True:
        wanted = np.where(total > 0.0, 0.0, 1.0)
        point = find(np.where(is_possible, wanted, -np.inf)).values
        if n_points and not np.any((point > 0.0) & (total == 0.0)):
            return total / n_points
        if np.any((point > 0.0) & ~is_possible):
            raise ZeroWeightError(
                "potentials must give some labelling a positive weight; the MAP search found none"
            )
        total += point
        n_points += 1
