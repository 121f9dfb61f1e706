"""Newton's method for marginals of bipartite matchings, and the Hessian of their log-partition.

The surrogate is ``<W, t> + H(t)`` (`fieldfit.inference.matching.matching_polytope`).  Its Hessian
along edges is diagonal, so with ``V`` the inverse of that diagonal and ``A`` the incidence matrix
of nodes and edges, the change of the maximum with the weights is, by the Schur complement of the
KKT system,

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
#: less than this fraction of the curvature of ``t log t`` counts as this much.
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
    t, rest, unmatched = (part.copy() for part in np.split(point, [n, 2 * n]))
    for _ in range(MAX_STEPS):
        inverse, unmatched_inverse = _edge_inverse(t, rest, rho), _unmatched_inverse(unmatched, rho)
        log_t = np.log(np.maximum(t, TINY))
        log_rest = np.log(np.maximum(rest, TINY))
        slope = weights - log_t - 1.0 + (1.0 - 2.0 * rho) * (log_rest + 1.0)
        unmatched_slope = -rho * (np.log(np.maximum(unmatched, TINY)) + 1.0)
        residual = 1.0 - _incidence_sums(polytope, t, unmatched)
        rhs = (
            _incidence_sums(polytope, inverse * slope, unmatched_inverse * unmatched_slope)
            - residual
        )
        try:
            nu = np.linalg.solve(_schur_complement(polytope, inverse, unmatched_inverse), rhs)
        except np.linalg.LinAlgError:
            return None
        change = inverse * (slope - nu[first] - nu[second])
        unmatched_change = unmatched_inverse * (unmatched_slope - nu[alone])
        moved = change / np.minimum(t, rest).clip(TINY)
        unmatched_moved = unmatched_change / unmatched.clip(TINY)
        is_low = t <= rest
        size = max(
            _largest_move(np.minimum(t, rest), np.where(is_low, moved, -moved)),
            _largest_move(unmatched, unmatched_moved),
        )
        if not np.isfinite(size):
            return None
        # in logarithms, which is what the maximum is linear in where an edge is unlikely
        length = min(1.0, LONGEST / size) if size > 0.0 else 1.0
        factor = np.exp(np.clip(length * moved, -LOWEST, LOWEST))
        low = np.where(is_low, t * factor, rest / factor)
        low = np.minimum(low, 0.5 + 0.5 * np.minimum(t, rest))
        t, rest = np.where(is_low, low, 1.0 - low), np.where(is_low, 1.0 - low, low)
        unmatched = unmatched * np.exp(np.clip(length * unmatched_moved, -LOWEST, LOWEST))
        if size <= tol and np.abs(residual).max() <= tol:
            return np.concatenate([t, rest, unmatched])
    return None


def statistics_curvature(
    polytope: MatchingPolytope, features: FloatArray, rho: float, point: FloatArray
) -> FloatArray:
    """``F^T C F``: how the expected features follow their weights."""
    n = polytope.n_edges
    inverse = _edge_inverse(point[:n], point[n : 2 * n], rho)
    unmatched_inverse = _unmatched_inverse(point[2 * n :], rho)
    weighted = inverse[:, None] * features
    around = np.zeros((polytope.n_nodes, n))
    around[polytope.ends.T, np.arange(n)] = 1.0
    crossing = around @ weighted
    found: FloatArray = features.T @ weighted
    schur = _schur_complement(polytope, inverse, unmatched_inverse)
    found -= crossing.T @ (np.linalg.pinv(schur, rcond=1e-13, hermitian=True) @ crossing)
    return 0.5 * (found + found.T)


def _largest_move(values: FloatArray, moved: FloatArray) -> float:
    """Largest change of a logarithm, those of entries that are and stay negligible left out."""
    after = values * np.exp(np.clip(moved, -LOWEST, LOWEST))
    return float(np.max(np.abs(moved)[np.maximum(values, after) > SMALL], initial=0.0))


def _edge_inverse(t: FloatArray, rest: FloatArray, rho: float) -> FloatArray:
    """``1 / (1/t + (1 - 2 rho) / (1 - t))``."""
    scaled = rest + (1.0 - 2.0 * rho) * t
    scaled = np.where(scaled >= 0.0, np.maximum(scaled, FLAT), np.minimum(scaled, -FLAT))
    return t * rest / scaled


def _unmatched_inverse(unmatched: FloatArray, rho: float) -> FloatArray:
    return unmatched / rho if rho > 0.0 else np.zeros_like(unmatched)


def _incidence_sums(
    polytope: MatchingPolytope, edges: FloatArray, unmatched: FloatArray
) -> FloatArray:
    """``A`` times a vector."""
    found = np.zeros(polytope.n_nodes)
    for side in range(2):
        found += np.bincount(polytope.ends[:, side], weights=edges, minlength=polytope.n_nodes)
    found[polytope.alone] += unmatched
    return found


def _schur_complement(
    polytope: MatchingPolytope, inverse: FloatArray, unmatched_inverse: FloatArray
) -> FloatArray:
    """``A V A^T``, without its null vector (rows against columns) where nobody may be alone."""
    n_rows = polytope.shape[0]
    block = polytope.matrix(inverse)
    found = np.diag(_incidence_sums(polytope, inverse, unmatched_inverse))
    found[:n_rows, n_rows:] = block
    found[n_rows:, :n_rows] = block.T
    if not len(polytope.alone):
        sign = np.concatenate([np.ones(n_rows), -np.ones(polytope.n_nodes - n_rows)])
        found += np.abs(np.diagonal(found)).mean() / len(sign) * np.outer(sign, sign)
    return found
