"""Bipartite matching with capacities by successive shortest augmenting paths.

    max sum_ij w_ij x_ij    over x_ij in {0, 1},
    sum_j x_ij <= a_i,  sum_i x_ij <= b_j

is a flow from a source through rows and columns to a sink, in which every edge has capacity one.
Paths of least cost ``-w`` are found by Dijkstra's algorithm; the distances of earlier rounds make
all costs non-negative (``c + d(tail) - d(head)``).  Each flow on the way is the best of its size,
and gains fall from path to path.  So the best matching of any size is reached where the gain
vanishes, and the best of the largest size where no path is left.  A path costs ``O((n + m)^2)``,
and there are ``sum a`` of them at most.

Reference: Ahuja, Magnanti and Orlin, "Network Flows" (1993), section 9.7.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["match_within_capacities"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@njit(cache=True, nogil=True, error_model="numpy")
def match_within_capacities(
    weights: FloatArray,
    row_capacity: IntArray,
    column_capacity: IntArray,
    only_gains: bool,
    used: NDArray[np.bool_],
) -> int:
    """Fill ``used``; number of its edges.  The capacities are counted down to what is left.

    Edges of weight ``-inf`` are never used.  ``only_gains`` stops at the best matching of any
    size, otherwise the best of the largest size is found.
    """
    n, m = weights.shape
    used[:] = False
    row_distance = np.zeros(n)
    column_distance = np.zeros(m)
    sink_distance = np.inf
    for j in range(m):
        largest = -np.inf
        for i in range(n):
            largest = max(largest, weights[i, j])
        if largest > -np.inf:
            column_distance[j] = -largest
            if column_capacity[j] > 0:
                sink_distance = min(sink_distance, -largest)
    row_length = np.empty(n)  # of the shortest path in this round, by reduced costs
    column_length = np.empty(m)
    row_done = np.empty(n, dtype=np.bool_)
    column_done = np.empty(m, dtype=np.bool_)
    from_column = np.empty(n, dtype=np.int64)  # -1: from the source
    from_row = np.empty(m, dtype=np.int64)
    n_used = 0
    while sink_distance < np.inf:
        row_done[:] = False
        column_done[:] = False
        column_length[:] = np.inf
        for i in range(n):
            from_column[i] = -1
            # rounding may leave a reduced cost a hair below zero, here and below
            row_length[i] = max(0.0, -row_distance[i]) if row_capacity[i] > 0 else np.inf
        end, end_length = -1, np.inf
        while True:
            nearest, is_row, length = -1, True, end_length
            for i in range(n):
                if not row_done[i] and row_length[i] < length:
                    nearest, length = i, row_length[i]
            for j in range(m):
                if not column_done[j] and column_length[j] < length:
                    nearest, is_row, length = j, False, column_length[j]
            if nearest < 0:
                break
            if is_row:
                i = nearest
                row_done[i] = True
                for j in range(m):
                    if column_done[j] or used[i, j] or weights[i, j] == -np.inf:
                        continue
                    cost = row_distance[i] - column_distance[j] - weights[i, j]
                    reached = length + max(0.0, cost)
                    if reached < column_length[j]:
                        column_length[j] = reached
                        from_row[j] = i
            else:
                j = nearest
                column_done[j] = True
                if column_capacity[j] > 0:
                    reached = length + max(0.0, column_distance[j] - sink_distance)
                    if reached < end_length:
                        end, end_length = j, reached
                for i in range(n):
                    if used[i, j] and not row_done[i]:
                        cost = column_distance[j] - row_distance[i] + weights[i, j]
                        reached = length + max(0.0, cost)
                        if reached < row_length[i]:
                            row_length[i] = reached
                            from_column[i] = j
        if end < 0:
            break
        sink_distance += end_length
        if only_gains and sink_distance >= 0.0:
            break
        for i in range(n):
            row_distance[i] += min(row_length[i], end_length)
        for j in range(m):
            column_distance[j] += min(column_length[j], end_length)
        column_capacity[end] -= 1
        j = end
        while j >= 0:
            i = from_row[j]
            used[i, j] = True
            j = from_column[i]
            if j >= 0:
                used[i, j] = False
        row_capacity[i] -= 1
        n_used += 1
    return n_used
