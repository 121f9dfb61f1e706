"""Curvature of the entropy of matchings on bipartite graphs, and Newton's method for marginals.

The surrogate is ``<W, t> + H(t)`` (`core.matching_polytope`).  Its second derivative along edges is
diagonal, so with ``V`` the inverse of that diagonal and ``A`` the edges around nodes, the change of
the maximum with the weights is

    C = dt/dW = V - V A^T (A V A^T)^-1 A V

and ``A V A^T`` has one row for each node only.  Message passing finds most of the maximum in a few
sweeps, but where matchings are nearly certain its last digits take hundreds of them; from there

    t <- t + V (g - A^T nu),    A V A^T nu = A V g - (1 - A t),    g = W + dH/dt

squares the error with each step.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.inference.matching.matching_polytope import MatchingPolytope

__all__ = ["newton_marginals", "statistics_curvature"]

#: Bethe's entropy is flat along an edge at ``t = 1/2`` (its curvature is in the sums at nodes);
#: less than this share of the curvature of ``t log t`` counts as this much.
FLAT = 1e-6
#: Entries below this do not move.
TINY = 1e-300
MAX_STEPS = 15
#: Logarithms of entries above `SMALL` change by at most so much in a step, others by `LOWEST`.
LONGEST, SMALL, LOWEST = 1.5, 1e-7, 20.0


def newton_marginals(
    polytope: MatchingPolytope, weights: FloatArray, rho: float, point: FloatArray, tol: float
) -> FloatArray | None:
    """The maximum, from a point near it; ``None`` if that was not near enough.

    ``tol`` bounds both the last relative change of entries of size and what sums at nodes lack.
    """
    n, alone = polytope.n_edges, polytope.alone
    first, second = polytope.ends.T
    t, rest, lonely = (part.copy() for part in np.split(point, [n, 2 * n]))
    for _ in range(MAX_STEPS):
        flexible, loose = _flexible(t, rest, rho), _loose(lonely, rho)
        log_t = np.log(np.maximum(t, TINY))
        log_rest = np.log(np.maximum(rest, TINY))
        slope = weights - log_t - 1.0 + (1.0 - 2.0 * rho) * (log_rest + 1.0)
        lonely_slope = -rho * (np.log(np.maximum(lonely, TINY)) + 1.0)
        lacking = 1.0 - _sums(polytope, t, lonely)
        pull = _sums(polytope, flexible * slope, loose * lonely_slope) - lacking
        try:
            nu = np.linalg.solve(_sum_matrix(polytope, flexible, loose), pull)
        except np.linalg.LinAlgError:
            return None
        change = flexible * (slope - nu[first] - nu[second])
        lonely_change = loose * (lonely_slope - nu[alone])
        moved = change / np.minimum(t, rest).clip(TINY)
        lonely_moved = lonely_change / lonely.clip(TINY)
        is_low = t <= rest
        size = max(
            _largest_move(np.minimum(t, rest), np.where(is_low, moved, -moved)),
            _largest_move(lonely, lonely_moved),
        )
        if not np.isfinite(size):
            return None
        # in logarithms, which is what the maximum is linear in where an edge is unlikely
        length = min(1.0, LONGEST / size) if size > 0.0 else 1.0
        factor = np.exp(np.clip(length * moved, -LOWEST, LOWEST))
        low = np.where(is_low, t * factor, rest / factor)
        low = np.minimum(low, 0.5 + 0.5 * np.minimum(t, rest))
        t, rest = np.where(is_low, low, 1.0 - low), np.where(is_low, 1.0 - low, low)
        lonely = lonely * np.exp(np.clip(length * lonely_moved, -LOWEST, LOWEST))
        if size <= tol and np.abs(lacking).max() <= tol:
            return np.concatenate([t, rest, lonely])
    return None


def statistics_curvature(
    polytope: MatchingPolytope, features: FloatArray, rho: float, point: FloatArray
) -> FloatArray:
    """``F^T C F``: how the expected features follow their weights."""
    n = polytope.n_edges
    flexible, loose = _flexible(point[:n], point[n : 2 * n], rho), _loose(point[2 * n :], rho)
    scaled = flexible[:, None] * features
    around = np.zeros((polytope.n_nodes, n))
    around[polytope.ends.T, np.arange(n)] = 1.0
    crossing = around @ scaled
    found: FloatArray = features.T @ scaled
    inverse = np.linalg.pinv(_sum_matrix(polytope, flexible, loose), rcond=1e-13, hermitian=True)
    found -= crossing.T @ (inverse @ crossing)
    return 0.5 * (found + found.T)


def _largest_move(values: FloatArray, moved: FloatArray) -> float:
    """Of logarithms; what is next to nothing, and stays so, may move as it likes."""
    after = values * np.exp(np.clip(moved, -LOWEST, LOWEST))
    return float(np.max(np.abs(moved)[np.maximum(values, after) > SMALL], initial=0.0))


def _flexible(t: FloatArray, rest: FloatArray, rho: float) -> FloatArray:
    """``1 / (1/t + (1 - 2 rho) / (1 - t))``."""
    bend = rest + (1.0 - 2.0 * rho) * t
    bend = np.where(bend >= 0.0, np.maximum(bend, FLAT), np.minimum(bend, -FLAT))
    return t * rest / bend


def _loose(lonely: FloatArray, rho: float) -> FloatArray:
    return lonely / rho if rho > 0.0 else np.zeros_like(lonely)


def _sums(polytope: MatchingPolytope, edges: FloatArray, lonely: FloatArray) -> FloatArray:
    """``A`` times a vector."""
    found = np.zeros(polytope.n_nodes)
    for side in range(2):
        found += np.bincount(polytope.ends[:, side], weights=edges, minlength=polytope.n_nodes)
    found[polytope.alone] += lonely
    return found


def _sum_matrix(polytope: MatchingPolytope, flexible: FloatArray, loose: FloatArray) -> FloatArray:
    """``A V A^T``, without its null vector (rows against columns) where nobody may be alone."""
    n_rows = polytope.shape[0]
    block = polytope.matrix(flexible)
    found = np.diag(_sums(polytope, flexible, loose))
    found[:n_rows, n_rows:] = block
    found[n_rows:, :n_rows] = block.T
    if not len(polytope.alone):
        sign = np.concatenate([np.ones(n_rows), -np.ones(polytope.n_nodes - n_rows)])
        found += np.abs(np.diagonal(found)).mean() / len(sign) * np.outer(sign, sign)
    return found
