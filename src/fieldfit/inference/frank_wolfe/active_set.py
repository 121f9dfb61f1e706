"""A point of a polytope as a mixture of points that a MAP search has found.

`inference/frank_wolfe/active_set.py` says what is minimised.  A `HullPoint` keeps one block of it
(an example, or a few together): where it is, of which points it is made, and their features.
Without storage it only knows where it is, and can take plain Frank-Wolfe steps.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_log

__all__ = [
    "FLOOR",
    "LONGEST",
    "Hull",
    "HullPoint",
    "add_slopes",
    "entropy",
    "pairwise_steps",
    "search_step",
]

# -- Steps between stored points of a polytope, for an entropy with a quadratic penalty ----
# A point ``x`` of the polytope is kept as a mixture ``x = sum_p share_p point_p`` of points that a
# MAP search has found.  What is minimised is
#
#     D(x) = 1/2 sum_k inverse_k r_k^2 - <linear, x> + sum_e c_e x_e log x_e,     r = f - Phi^T x
#
# (``inverse = 1 / l2``; in inference there is no first term, in learning no second).  The slope of
# ``-D`` along a point is ``linear_p + <features_p, inverse r> + <point_p, -c (log x + 1)>``.  A
# pairwise step moves share from the stored point of lowest slope to that of highest: no search for
# a new point is needed, and nothing but the stored points is looked at.
#
# The first point lies inside the polytope and keeps a share of at least `FLOOR`.  At a vertex
# slopes are infinite, and where some coefficients are negative (Bethe's entropy) infinities of
# both signs cancel: what is left there says nothing about the directions into the polytope.  The
# maximum moves by no more than `FLOOR` times what there is to gain from the first point.
#
# Reference: Lacoste-Julien and Jaggi, "On the global linear convergence of Frank-Wolfe
# optimization variants", NIPS (2015).


#: Below this an entry counts as zero: its logarithm is that of the smallest normal number.
TINY = 2.2250738585072014e-308
#: A search along a line ends when a step of Newton's method moves it by less than this share.
STEP_TOL = 1e-10
MAX_NEWTON = 60
#: The smallest share of the first point.
FLOOR = 1e-9
#: An entry that falls below this share of itself in a step is summed up again.
CANCELLED = 1e-2


class Hull(NamedTuple):
    """Stored points of one block, in rows, of which the first ``n_points`` are in use.

    ``features`` are ``Phi^T`` of the points, ``linear`` their score under fixed potentials.
    """

    points: FloatArray
    features: FloatArray
    linear: FloatArray
    shares: FloatArray


@kernel(fastmath=SAFE_FASTMATH)
def add_slopes(coefficients: FloatArray, x: FloatArray, out: FloatArray) -> None:
    """Add the derivative of the entropy, ``-c (log x + 1)``, entry by entry."""
    for entry in range(x.size):
        out[entry] -= coefficients[entry] * (fast_log(max(x[entry], TINY)) + 1.0)


@kernel(fastmath=SAFE_FASTMATH)
def entropy(coefficients: FloatArray, x: FloatArray) -> float:
    """``- sum c x log x``."""
    total = 0.0
    for entry in range(x.size):
        total -= coefficients[entry] * x[entry] * fast_log(max(x[entry], TINY))
    return total


@kernel(fastmath=SAFE_FASTMATH)
def _slope_and_curvature(
    c: FloatArray, x: FloatArray, d: FloatArray, n: int, step: float
) -> tuple[float, float]:
    """First and second derivative of ``sum c x log x`` along ``d``, ``step`` away from ``x``."""
    slope = curvature = 0.0
    for k in range(n):
        moved = max(x[k] + step * d[k], TINY)
        slope += c[k] * d[k] * (fast_log(moved) + 1.0)
        curvature += c[k] * d[k] * d[k] / moved
    return slope, curvature


@kernel
def search_step(
    coefficients: FloatArray,
    x: FloatArray,
    direction: FloatArray,
    gain: float,
    curvature: float,
    longest: float,
    scratch: FloatArray,
) -> float:
    """The step in ``[0, longest]`` that minimises ``D`` along a direction.

    ``gain`` is the slope of the terms outside the entropy at the start, ``curvature`` the second
    derivative of the quadratic one.  The slope of ``D`` rises along the line, so Newton's method
    between two bounds finds its zero.  ``scratch`` has three rows of the length of ``x``.
    """
    n = 0
    c, start, d = scratch[0], scratch[1], scratch[2]
    for entry in range(x.size):
        if direction[entry] != 0.0 and coefficients[entry] != 0.0:
            c[n], start[n], d[n] = coefficients[entry], x[entry], direction[entry]
            n += 1
    slope, bend = _slope_and_curvature(c, start, d, n, longest)
    if slope - gain + curvature * longest <= 0.0:
        return longest
    low, high = 0.0, longest
    step = 0.0
    slope, bend = _slope_and_curvature(c, start, d, n, 0.0)
    for _ in range(MAX_NEWTON):
        value = slope - gain + curvature * step
        if value < 0.0:
            low = step
        else:
            high = step
        bend += curvature
        trial = step - value / bend if bend > 0.0 else low - 1.0
        if not low < trial < high:
            trial = 0.5 * (low + high)
        moved = abs(trial - step)
        step = trial
        if moved <= STEP_TOL * step or high - low <= STEP_TOL * high:
            break
        slope, bend = _slope_and_curvature(c, start, d, n, step)
    return step


@kernel(fastmath=SAFE_FASTMATH)
def _dot(a: FloatArray, b: FloatArray) -> float:
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@kernel
def pairwise_steps(
    hull: Hull,
    n_points: int,
    coefficients: FloatArray,
    inverse: FloatArray,
    x: FloatArray,
    residual: FloatArray,
    tol: float,
    n_steps: int,
    first: int,
    scratch: FloatArray,
) -> tuple[int, float]:
    """Move shares between stored points until that gains no more than ``tol``.

    Changes ``x``, ``residual`` and ``hull.shares``.  ``first`` is a point that the first step moves
    to, ``-1`` for the best one.  Returns the number of steps, and how far the best stored point is
    above ``x`` by the slopes before the last of them: what is left to gain without new points.
    ``scratch`` has six rows that are as long as the longest of ``x``, ``residual`` and the points.
    """
    points, features, linear, shares = hull
    slopes, direction = scratch[0][: x.size], scratch[1][: x.size]
    scores = scratch[2]
    left = 0.0
    for done in range(n_steps):
        slopes[:] = 0.0
        add_slopes(coefficients, x, slopes)
        best, worst = 0, -1
        current = 0.0
        for p in range(n_points):
            score = linear[p] + _dot(points[p], slopes)
            for k in range(residual.size):
                score += features[p, k] * inverse[k] * residual[k]
            scores[p] = score
            current += shares[p] * score
            if score > scores[best]:
                best = p
            is_movable = shares[p] > (FLOOR if p == 0 else 0.0)
            if is_movable and (worst < 0 or score < scores[worst]):
                worst = p
        left = scores[best] - current
        if done == 0 and first >= 0:
            best = first
        if worst < 0 or best == worst or scores[best] - scores[worst] <= tol:
            return done, left
        gain = linear[best] - linear[worst]
        curvature = 0.0
        for k in range(residual.size):
            change = features[best, k] - features[worst, k]
            gain += change * inverse[k] * residual[k]
            curvature += change * inverse[k] * change
        for entry in range(x.size):
            direction[entry] = points[best, entry] - points[worst, entry]
        longest = shares[worst] - (FLOOR if worst == 0 else 0.0)
        step = search_step(coefficients, x, direction, gain, curvature, longest, scratch[3:])
        shares[best] += step
        shares[worst] = shares[worst] - step if step < longest else shares[worst] - longest
        for entry in range(x.size):
            if direction[entry] == 0.0:
                continue
            moved = x[entry] + step * direction[entry]
            if moved < CANCELLED * x[entry]:
                # digits were lost, and entries that belong together would no longer agree
                moved = 0.0
                for p in range(n_points):
                    moved += shares[p] * points[p, entry]
            x[entry] = moved
        for k in range(residual.size):
            residual[k] -= step * (features[best, k] - features[worst, k])
    return n_steps, left


# -- The algorithm -------------------------------------------------------------------------


#: A full step would end at a vertex, where slopes are infinite.
LONGEST = 1.0 - 1e-6
#: Room for points at first; doubled whenever it is full.
FIRST_ROOM = 8


class HullPoint:
    """Where one block is.

    Parameters
    ----------
    start, features, linear
        The first point, inside the polytope; ``Phi^T`` of it; its score under fixed potentials.
    coefficients
        ``c`` of the entropy ``- sum c x log x``, one for each entry.
    inverse
        ``1 / l2``, one for each feature.
    is_stored
        Keep the points, so that shares can be moved between them.
    """

    def __init__(
        self,
        start: FloatArray,
        features: FloatArray,
        linear: float,
        coefficients: FloatArray,
        inverse: FloatArray,
        *,
        is_stored: bool = True,
    ) -> None:
        self.coefficients, self.inverse = coefficients, inverse
        self.x = start.copy()
        self.features, self.linear = features.copy(), linear
        self.is_stored = is_stored
        self.n_points = 0
        room = FIRST_ROOM if is_stored else 0
        self.hull = Hull(
            np.zeros((room, start.size)), np.zeros((room, features.size)),
            np.zeros(room), np.zeros(room),
        )  # fmt: skip
        self._places: dict[bytes, int] = {}
        self._scratch = np.empty((6, max(start.size, features.size, room)))
        if is_stored:
            self.hull.shares[self._place(start, features, linear)] = 1.0

    def slopes(self, potentials: FloatArray) -> FloatArray:
        """``th - c (log x + 1)``: what the next point has to be large in."""
        found = potentials.copy()
        add_slopes(self.coefficients, self.x, found)
        return found

    def entropy(self) -> float:
        """``- sum c x log x`` at the point."""
        return float(entropy(self.coefficients, self.x))

    def step_towards(
        self,
        point: FloatArray,
        features: FloatArray,
        linear: float,
        residual: FloatArray,
        step: float | None = None,
    ) -> float:
        """A Frank-Wolfe step of this length, or of the best one; changes ``residual``, too."""
        direction, change = point - self.x, features - self.features
        if step is None:
            scaled = change * self.inverse
            step = float(
                search_step(
                    self.coefficients, self.x, direction,
                    linear - self.linear + float(scaled @ residual), float(scaled @ change),
                    LONGEST,
                    self._scratch[3:],
                )
            )  # fmt: skip
        # a sum of positive terms, so that small entries keep their digits
        self.x *= 1.0 - step
        self.x += step * point
        self.features += step * change
        self.linear += step * (linear - self.linear)
        residual -= step * change
        if self.is_stored:
            place = self._place(point, features, linear)
            self.hull.shares[: self.n_points] *= 1.0 - step
            self.hull.shares[place] += step
        return step

    def add(self, point: FloatArray, features: FloatArray, linear: float) -> int:
        """Store a point that was found, unless it is there; returns its place."""
        return self._place(point, features, linear)

    def move_shares(
        self, residual: FloatArray, tol: float, n_steps: int, first: int = -1
    ) -> tuple[int, float]:
        """Pairwise steps between stored points; how many, and what they left to gain."""
        n = self.n_points
        n_done, left = pairwise_steps(
            self.hull, n, self.coefficients, self.inverse, self.x, residual,
            tol, n_steps, first, self._scratch,
        )  # fmt: skip
        if n_done:
            shares = self.hull.shares[:n]
            self.features = shares @ self.hull.features[:n]
            self.linear = float(shares @ self.hull.linear[:n])
        return n_done, float(left)

    # -- storage --------------------------------------------------------------------------

    def _place(self, point: FloatArray, features: FloatArray, linear: float) -> int:
        key = blake2b(point.tobytes(), digest_size=16).digest()
        if key in self._places:
            return self._places[key]
        if self.n_points == len(self.hull.linear):
            self._make_room()
        place = self.n_points
        points, all_features, all_linear, shares = self.hull
        points[place], all_features[place], all_linear[place] = point, features, linear
        shares[place] = 0.0
        self._places[key] = place
        self.n_points += 1
        return place

    def _make_room(self) -> None:
        """Forget the points without a share if they are many, and double the room otherwise."""
        used = np.flatnonzero(self.hull.shares[: self.n_points] > 0.0)
        if len(used) > self.n_points // 2:
            used = np.arange(self.n_points)
        room = max(FIRST_ROOM, 2 * len(used))
        old = self.hull
        new = Hull(*(np.zeros((room, *array.shape[1:])) for array in old))
        for to, given in zip(new, old, strict=True):
            to[: len(used)] = given[used]
        moved = {int(place): number for number, place in enumerate(used)}
        self._places = {key: moved[place] for key, place in self._places.items() if place in moved}
        self.hull, self.n_points = new, len(used)
        self._scratch = np.empty((6, max(self.x.size, self.features.size, room)))

    def state(self) -> dict[str, FloatArray]:
        """All that a later run needs in order to go on."""
        kept = self.hull.shares[: self.n_points]
        found = {"x": self.x, "features": self.features, "linear": np.array([self.linear])}
        if self.is_stored:
            found |= {
                "points": self.hull.points[: self.n_points],
                "point_features": self.hull.features[: self.n_points],
                "point_linear": self.hull.linear[: self.n_points],
                "shares": kept,
            }
        return {name: array.copy() for name, array in found.items()}

    def restore(self, state: dict[str, FloatArray]) -> None:
        """Take over what `state` gave."""
        if self.is_stored:
            self.n_points, self._places = 0, {}
            count = len(state["shares"])
            room = max(FIRST_ROOM, 2 * count)
            self.hull = Hull(*(np.zeros((room, *array.shape[1:])) for array in self.hull))
            for place, point in enumerate(state["points"]):
                features, linear = state["point_features"][place], state["point_linear"][place]
                self._place(np.ascontiguousarray(point), features, float(linear))
            self.hull.shares[:count] = state["shares"]
            self._scratch = np.empty((6, max(self.x.size, self.features.size, room)))
        self.x, self.features = state["x"].copy(), state["features"].copy()
        self.linear = float(state["linear"][0])
