"""Active sets of Frank-Wolfe: a point of a polytope as a convex combination of atoms.

A point ``x`` is kept as ``x = sum_p weight_p atom_p``, where the atoms are points of the polytope
that a MAP search (the oracle) has found.  What is minimised is

    D(x) = 1/2 sum_k inverse_k r_k^2 - <linear, x> + sum_e c_e x_e log x_e,     r = f - Phi^T x

(``inverse = 1 / l2``; in inference there is no first term, in learning no second).  The slope of
``-D`` along an atom is ``linear_p + <features_p, inverse r> + <atom_p, -c (log x + 1)>``.  A
*pairwise step* moves weight from the atom of lowest slope to that of highest: no call of the oracle
is needed, and nothing but the atoms is looked at.

The first atom lies inside the polytope and keeps a weight of at least `FLOOR`.  At a vertex slopes
are infinite, and where some coefficients are negative (Bethe's entropy) infinities of both signs
cancel: what is left there says nothing about the directions into the polytope.  The maximum moves
by no more than `FLOOR` times what there is to gain from the first atom.

An `ActiveSet` holds one block of the problem (an example, or a few together).  Without atoms it
only knows where it is, and can take plain Frank-Wolfe steps.

Reference: Lacoste-Julien and Jaggi, "On the global linear convergence of Frank-Wolfe optimization
variants", NIPS (2015).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.io.stored import Stored
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_log

__all__ = [
    "FLOOR",
    "LONGEST",
    "ActiveSet",
    "Atoms",
    "add_slopes",
    "entropy",
    "pairwise_steps",
    "search_step",
]

# -- Line search and pairwise steps --------------------------------------------------------

#: Below this an entry counts as zero: its logarithm is that of the smallest normal number.
TINY = 2.2250738585072014e-308
#: A line search ends when a step of Newton's method changes it by less than this, relatively.
STEP_TOL = 1e-10
MAX_NEWTON = 60
#: The smallest weight of the first atom.
FLOOR = 1e-9
#: An entry that falls below this fraction of itself in a step is summed up again.
CANCELLED = 1e-2


class Atoms(NamedTuple):
    """Atoms of one block, in rows, of which the first ``n_atoms`` are in use.

    ``features`` are ``Phi^T`` of the points, ``linear`` their score under fixed potentials.
    """

    points: FloatArray
    features: FloatArray
    linear: FloatArray
    weights: FloatArray


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
    atoms: Atoms,
    n_atoms: int,
    coefficients: FloatArray,
    inverse: FloatArray,
    x: FloatArray,
    residual: FloatArray,
    tol: float,
    n_steps: int,
    first: int,
    scratch: FloatArray,
) -> tuple[int, float]:
    """Move weight between atoms until that gains no more than ``tol``.

    Changes ``x``, ``residual`` and ``atoms.weights``.  ``first`` is an atom that the first step
    moves to, ``-1`` for the best one.  Returns the number of steps, and how far the best atom is
    above ``x`` by the slopes before the last of them: what is left to gain without new atoms.
    ``scratch`` has six rows that are as long as the longest of ``x``, ``residual`` and the atoms.
    """
    points, features, linear, weights = atoms
    slopes, direction = scratch[0][: x.size], scratch[1][: x.size]
    scores = scratch[2]
    left = 0.0
    for done in range(n_steps):
        slopes[:] = 0.0
        add_slopes(coefficients, x, slopes)
        best, worst = 0, -1
        current = 0.0
        for p in range(n_atoms):
            score = linear[p] + _dot(points[p], slopes)
            for k in range(residual.size):
                score += features[p, k] * inverse[k] * residual[k]
            scores[p] = score
            current += weights[p] * score
            if score > scores[best]:
                best = p
            is_movable = weights[p] > (FLOOR if p == 0 else 0.0)
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
        longest = weights[worst] - (FLOOR if worst == 0 else 0.0)
        step = search_step(coefficients, x, direction, gain, curvature, longest, scratch[3:])
        weights[best] += step
        weights[worst] = weights[worst] - step if step < longest else weights[worst] - longest
        for entry in range(x.size):
            if direction[entry] == 0.0:
                continue
            moved = x[entry] + step * direction[entry]
            if moved < CANCELLED * x[entry]:
                # digits were lost, and entries that belong together would no longer agree
                moved = 0.0
                for p in range(n_atoms):
                    moved += weights[p] * points[p, entry]
            x[entry] = moved
        for k in range(residual.size):
            residual[k] -= step * (features[best, k] - features[worst, k])
    return n_steps, left


# -- The active set of one block -----------------------------------------------------------

#: A full step would end at a vertex, where slopes are infinite.
LONGEST = 1.0 - 1e-6
#: Atoms that there is capacity for at first; doubled whenever it is full.
INITIAL_CAPACITY = 8


class ActiveSet:
    """Where one block is, and the atoms that it is a convex combination of.

    Parameters
    ----------
    start, features, linear
        The first atom, inside the polytope; ``Phi^T`` of it; its score under fixed potentials.
    coefficients
        ``c`` of the entropy ``- sum c x log x``, one for each entry.
    inverse
        ``1 / l2``, one for each feature.
    keep_active_set
        Keep the atoms, so that weight can be moved between them.
    """

    def __init__(
        self,
        start: FloatArray,
        features: FloatArray,
        linear: float,
        coefficients: FloatArray,
        inverse: FloatArray,
        *,
        keep_active_set: bool = True,
    ) -> None:
        self.coefficients, self.inverse = coefficients, inverse
        self.x = start.copy()
        self.features, self.linear = features.copy(), linear
        self.keep_active_set = keep_active_set
        self.n_atoms = 0
        capacity = INITIAL_CAPACITY if keep_active_set else 0
        self.atoms = Atoms(
            np.zeros((capacity, start.size)), np.zeros((capacity, features.size)),
            np.zeros(capacity), np.zeros(capacity),
        )  # fmt: skip
        self._indices: dict[bytes, int] = {}
        self._scratch = np.empty((6, max(start.size, features.size, capacity)))
        if keep_active_set:
            self.atoms.weights[self._index(start, features, linear)] = 1.0

    def slopes(self, potentials: FloatArray) -> FloatArray:
        """``th - c (log x + 1)``: the objective of the linear problem for the oracle."""
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
        if self.keep_active_set:
            index = self._index(point, features, linear)
            self.atoms.weights[: self.n_atoms] *= 1.0 - step
            self.atoms.weights[index] += step
        return step

    def add(self, point: FloatArray, features: FloatArray, linear: float) -> int:
        """Add an atom, of weight zero, unless it is there; returns its index."""
        return self._index(point, features, linear)

    def move_weights(
        self, residual: FloatArray, tol: float, n_steps: int, first: int = -1
    ) -> tuple[int, float]:
        """Pairwise steps between atoms; how many, and what they left to gain."""
        n = self.n_atoms
        n_done, left = pairwise_steps(
            self.atoms, n, self.coefficients, self.inverse, self.x, residual,
            tol, n_steps, first, self._scratch,
        )  # fmt: skip
        if n_done:
            weights = self.atoms.weights[:n]
            self.features = weights @ self.atoms.features[:n]
            self.linear = float(weights @ self.atoms.linear[:n])
        return n_done, float(left)

    # -- storage of atoms --------------------------------------------------------------------------

    def _index(self, point: FloatArray, features: FloatArray, linear: float) -> int:
        key = blake2b(point.tobytes(), digest_size=16).digest()
        if key in self._indices:
            return self._indices[key]
        if self.n_atoms == len(self.atoms.linear):
            self._grow()
        index = self.n_atoms
        points, all_features, all_linear, weights = self.atoms
        points[index], all_features[index], all_linear[index] = point, features, linear
        weights[index] = 0.0
        self._indices[key] = index
        self.n_atoms += 1
        return index

    def _grow(self) -> None:
        """Drop the atoms without weight if they are many, and double the capacity otherwise."""
        used = np.flatnonzero(self.atoms.weights[: self.n_atoms] > 0.0)
        if len(used) > self.n_atoms // 2:
            used = np.arange(self.n_atoms)
        capacity = max(INITIAL_CAPACITY, 2 * len(used))
        old = self.atoms
        new = Atoms(*(np.zeros((capacity, *array.shape[1:])) for array in old))
        for to, given in zip(new, old, strict=True):
            to[: len(used)] = given[used]
        moved = {int(index): number for number, index in enumerate(used)}
        self._indices = {
            key: moved[index] for key, index in self._indices.items() if index in moved
        }
        self.atoms, self.n_atoms = new, len(used)
        self._scratch = np.empty((6, max(self.x.size, self.features.size, capacity)))

    def state(self) -> dict[str, FloatArray]:
        """All that a later run needs in order to go on; checkpoints hold it under these names."""
        kept = self.atoms.weights[: self.n_atoms]
        found = {"x": self.x, "features": self.features, "linear": np.array([self.linear])}
        if self.keep_active_set:
            found |= {
                "points": self.atoms.points[: self.n_atoms],
                "point_features": self.atoms.features[: self.n_atoms],
                "point_linear": self.atoms.linear[: self.n_atoms],
                "shares": kept,
            }
        return {name: array.copy() for name, array in found.items()}

    def restore(self, state: Stored) -> None:
        """Take over what `state` gave."""
        x = state.array("x", self.x.shape)
        features = state.array("features", self.features.shape)
        linear = state.array("linear", (1,))
        if self.keep_active_set:
            self.n_atoms, self._indices = 0, {}
            shares = state.array("shares", (None,))
            count = len(shares)
            points = state.array("points", (count, self.x.size))
            of_points = state.array("point_features", (count, self.features.size))
            linear_of_points = state.array("point_linear", (count,))
            capacity = max(INITIAL_CAPACITY, 2 * count)
            self.atoms = Atoms(*(np.zeros((capacity, *array.shape[1:])) for array in self.atoms))
            for point, own, value in zip(points, of_points, linear_of_points, strict=True):
                self._index(np.ascontiguousarray(point), own, float(value))
            self.atoms.weights[:count] = shares
            self._scratch = np.empty((6, max(self.x.size, self.features.size, capacity)))
        self.x, self.features = x.copy(), features.copy()
        self.linear = float(linear[0])
