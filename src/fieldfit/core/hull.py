"""A point of a polytope as a mixture of points that a MAP search has found.

`kernels/hull.py` says what is minimised.  A `HullPoint` keeps one block of it (an example, or a few
together): where it is, of which points it is made, and their features.  Without storage it only
knows where it is, and can take plain Frank-Wolfe steps.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from fieldfit.kernels.hull import Hull, add_slopes, entropy, pairwise_steps, search_step

__all__ = ["LONGEST", "HullPoint"]

FloatArray = NDArray[np.float64]

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
