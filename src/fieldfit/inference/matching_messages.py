"""Edge probabilities of random matchings by message passing (`kernels.matching_messages`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.matching_polytope import MatchingPolytope
from fieldfit.kernels.matching_messages import run_matching_sweeps

__all__ = ["MatchingBeliefs", "matching_messages"]

FloatArray = NDArray[np.float64]

#: Where parallel opinions overshoot: sweeps are tried with these shares of the old ones in turn.
DAMPINGS = (0.0, 0.5, 0.9)


@dataclass(frozen=True)
class MatchingBeliefs:
    """A point of the polytope (see `MatchingPolytope.point`), and how the sweeps ended.

    ``state`` is where later sweeps may start.  Where opinions run away there is no point (``NaN``).
    """

    point: FloatArray
    converged: bool
    n_iter: int
    residual: float
    state: FloatArray


def matching_messages(
    polytope: MatchingPolytope,
    weights: FloatArray,
    rho: float,
    tol: float = 1e-10,
    max_iter: int = 1000,
    init: FloatArray | None = None,
) -> MatchingBeliefs:
    """Beliefs with weights of edges, one for each edge of the polytope.

    Both ends of an edge agree about it, and shares of a node add up to one, to about ``tol``.
    """
    n = polytope.n_edges
    offsets, incident = polytope.incident()
    alone = np.zeros(polytope.n_nodes, dtype=np.bool_)
    alone[polytope.alone] = True
    start = np.concatenate([weights, weights]) if init is None else init
    x = start.copy()
    others, totals = np.empty(2 * n), np.empty(polytope.n_nodes)
    scratch = np.empty((2, int(np.diff(offsets).max(initial=0))))
    n_iter, residual = 0, np.inf
    for damping in DAMPINGS:
        done, residual = run_matching_sweeps(
            offsets, incident, alone, np.ascontiguousarray(weights), float(rho), damping, tol,
            max_iter, x, others, totals, scratch,
        )  # fmt: skip
        n_iter += int(done)
        if residual <= tol:
            break
        if not np.isfinite(residual):
            x[:] = start
    if not np.isfinite(residual):
        nothing = np.full(2 * n + len(polytope.alone), np.nan)
        return MatchingBeliefs(nothing, False, n_iter, np.inf, start)
    first = polytope.ends[:, 0]
    t = np.exp(x[:n] - totals[first])
    rest = np.exp(others[:n] - totals[first])
    point = np.concatenate([t, rest, np.exp(-totals[polytope.alone])])
    return MatchingBeliefs(point, bool(residual <= tol), n_iter, float(residual), x)
