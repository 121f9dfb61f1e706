"""Message passing over matchings: beliefs of nodes about their edges, without tables.

With ``rho`` the counting number of nodes and ``x_ie`` what node ``i`` thinks of its edge ``e`` (the
belief of the node is the softmax of ``x_i``), stationary points of the surrogate satisfy

    L_ie = log sum over other edges k of i of exp x_ik   (+ 1 inside, if i may stay alone)
    x_ie = W_e + (1 - rho) L_ie - rho L_je               for the other end j of e

because the odds of an edge, ``x_ie - L_ie``, are the same for both ends: ``W_e - rho (L_ie +
L_je)``.  For ``rho = 1`` this is belief propagation.

References: Huang and Jebara, "Approximating the permanent with belief propagation" (2009); Vontobel
(2013), who proves convergence for ``rho = 1`` and perfect bipartite matchings; Chertkov and
Yedidia, "Approximating the permanent with fractional belief propagation", JMLR 14 (2013).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.simd import fast_exp, fast_log

__all__ = ["run_matching_sweeps"]

#: Opinions beyond this run away: the maximum is at a vertex, where odds are infinite.
DIVERGED = 1e6
#: The smallest normal number: logarithms of less are not taken.
TINY = 2.2250738585072014e-308

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]


@njit(cache=True, nogil=True, error_model="numpy")
def _others(
    incident: LongArray, x: FloatArray, alone: bool, scratch: FloatArray, others: FloatArray
) -> float:
    """``L`` of all edges of a node, and the logarithm of the whole sum.

    Sums of what comes before and after an edge have only positive terms, so nothing cancels when
    one edge is nearly certain.  Loops with exponentials and logarithms do nothing else, so that
    they become vector instructions.
    """
    n = incident.size
    largest = 0.0 if alone else -np.inf
    terms, before = scratch[0][:n], scratch[1][:n]
    for k in range(n):
        terms[k] = x[incident[k]]
        largest = max(largest, terms[k])
    if largest == -np.inf:
        for place in incident:
            others[place] = -np.inf
        return -np.inf
    for k in range(n):
        terms[k] = fast_exp(terms[k] - largest)
    total = fast_exp(-largest) if alone else 0.0
    for k in range(n):
        before[k] = total
        total += terms[k]
    after = 0.0
    for k in range(n - 1, -1, -1):
        before[k] += after
        after += terms[k]
    for k in range(n):
        terms[k] = fast_log(max(before[k], TINY))
    for k in range(n):
        others[incident[k]] = largest + terms[k] if before[k] > 0.0 else -np.inf
    return largest + np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def run_matching_sweeps(
    offsets: LongArray,
    incident: LongArray,
    may_be_alone: NDArray[np.bool_],
    weights: FloatArray,
    rho: float,
    damping: float,
    tol: float,
    max_iter: int,
    x: FloatArray,
    others: FloatArray,
    totals: FloatArray,
    scratch: FloatArray,
) -> tuple[int, float]:
    """Sweeps over the nodes until no ``x`` changes by more than ``tol``.

    Places are ends of edges: end ``s`` of edge ``e`` is ``s * n_edges + e``; ``incident[offsets[i]
    : offsets[i + 1]]`` are those of node ``i``.  ``x`` and ``others`` (that is ``L``) are changed;
    ``totals`` gets the logarithm of each node's sum.  ``scratch`` has two rows of the largest
    degree.  Returns the number of sweeps and the last change.
    """
    n_edges = weights.size
    n_nodes = offsets.size - 1
    for node in range(n_nodes):
        mine = incident[offsets[node] : offsets[node + 1]]
        totals[node] = _others(mine, x, may_be_alone[node], scratch, others)
    change = np.inf
    for sweep in range(max_iter):
        change = 0.0
        for node in range(n_nodes):
            mine = incident[offsets[node] : offsets[node + 1]]
            for place in mine:
                edge = place if place < n_edges else place - n_edges
                other_end = place + n_edges if place < n_edges else place - n_edges
                new = weights[edge] + (1.0 - rho) * others[place] - rho * others[other_end]
                new = damping * x[place] + (1.0 - damping) * new
                if not abs(new) < DIVERGED:  # or not a number
                    return sweep + 1, np.inf
                moved = abs(new - x[place])
                if moved > change:
                    change = moved
                x[place] = new
            totals[node] = _others(mine, x, may_be_alone[node], scratch, others)
        if change <= tol:
            return sweep + 1, change
    return max_iter, change
