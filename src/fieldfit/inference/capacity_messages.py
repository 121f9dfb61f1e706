"""Edge probabilities with several partners each, by prices (`kernels.capacity_messages`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.matching_polytope import MatchingPolytope
from fieldfit.kernels.capacity_messages import run_capacity_sweeps

__all__ = ["CapacityBeliefs", "capacity_messages"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class CapacityBeliefs:
    """A point of the polytope, or ``None`` where no prices were found; ``state`` are the prices."""

    point: FloatArray | None
    n_iter: int
    residual: float
    state: FloatArray


def capacity_messages(
    polytope: MatchingPolytope,
    weights: FloatArray,
    tol: float = 1e-11,
    max_iter: int = 2000,
    init: FloatArray | None = None,
) -> CapacityBeliefs:
    """The maximum of ``<W, t> + H(t)`` with independent edges, of a polytope with capacities.

    Prices run away where some edges are in every matching, or in none, for a reason that no node
    shows by itself; then there is no point.
    """
    assert polytope.capacities is not None
    n, m = polytope.shape
    allowed = polytope.matrix(np.ones(polytope.n_edges)) > 0.0
    is_free = not polytope.perfect
    rows, columns = (capacity.copy() for capacity in polytope.capacities)
    forced = _settle(allowed, rows, columns, is_free)
    prices = np.zeros(n + m) if init is None else init.copy()
    n_iter, residual = run_capacity_sweeps(
        polytope.matrix(weights), allowed, rows, columns, is_free, tol, max_iter,
        prices[:n], prices[n:], np.empty(max(n, m, 1)),
    )  # fmt: skip
    if not residual <= tol:
        return CapacityBeliefs(None, int(n_iter), float(residual), np.zeros(n + m))
    first, second = polytope.edges.T
    # t and 1 - t by themselves, so that small ones keep their digits
    surplus = weights - prices[first] - prices[n + second]
    is_open = allowed[first, second]
    is_forced = forced[first, second].astype(np.float64)
    t = np.where(is_open, np.exp(-np.logaddexp(0.0, -surplus)), is_forced)
    rest = np.where(is_open, np.exp(-np.logaddexp(0.0, surplus)), 1.0 - is_forced)
    return CapacityBeliefs(np.concatenate([t, rest]), int(n_iter), float(residual), prices)


def _settle(allowed: BoolArray, rows: IntArray, columns: IntArray, is_free: bool) -> BoolArray:
    """Take out of ``allowed`` (and the capacities) edges that a node alone decides.

    Returns those that must be used.
    """
    forced = np.zeros_like(allowed)
    while True:
        closed = allowed & ((rows == 0)[:, None] | (columns == 0)[None, :])
        full = np.zeros_like(allowed)
        if not is_free:
            full = allowed & (
                (rows == allowed.sum(axis=1))[:, None] | (columns == allowed.sum(axis=0))[None, :]
            )
        full &= ~closed
        if not closed.any() and not full.any():
            return forced
        forced |= full
        rows -= full.sum(axis=1)
        columns -= full.sum(axis=0)
        allowed &= ~(closed | full)
