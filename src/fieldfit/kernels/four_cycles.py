"""Cycles of four variables without a chord: the plaquettes of a pairwise graph."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy")
def _are_adjacent(offsets: IntArray, neighbours: IntArray, first: int, second: int) -> bool:
    low, high = offsets[first], offsets[first + 1]
    while low < high:
        middle = (low + high) // 2
        if neighbours[middle] < second:
            low = middle + 1
        else:
            high = middle
    return low < offsets[first + 1] and neighbours[low] == second


@njit(cache=True, nogil=True, error_model="numpy")
def find_four_cycles(offsets: IntArray, neighbours: IntArray, cycles: IntArray) -> int:
    """Fill rows ``(u, v, w, x)`` of cycles ``u - v - w - x``, ``u`` the least; how many there are.

    ``neighbours`` are sorted, without repeats.  Rows beyond the length of ``cycles`` are counted
    but not written, up to one more than it.  Each pair of paths from ``u`` over two larger
    neighbours to one end is a cycle, without a chord if neither middles nor ends are joined.
    """
    n = len(offsets) - 1
    joined = np.full(n, -1, dtype=np.int32)  # to the variable at hand
    newest = np.full(n, -1, dtype=np.int32)  # last path that ends here, then along `before`
    owner = np.full(n, -1, dtype=np.int32)  # whose paths `newest` belongs to
    degree = 0
    for u in range(n):
        paths = 0
        for position in range(offsets[u], offsets[u + 1]):
            v = neighbours[position]
            paths += offsets[v + 1] - offsets[v]
        degree = max(degree, paths)
    before = np.empty(max(degree, 1), dtype=np.int32)
    middle = np.empty(max(degree, 1), dtype=np.int32)
    count = 0
    for u in range(n):
        for position in range(offsets[u], offsets[u + 1]):
            joined[neighbours[position]] = u
        n_paths = 0
        for position in range(offsets[u], offsets[u + 1]):
            v = neighbours[position]
            if v < u:
                continue
            for step in range(offsets[v], offsets[v + 1]):
                w = neighbours[step]
                if w <= u or joined[w] == u:
                    continue
                other = newest[w] if owner[w] == u else -1
                before[n_paths], middle[n_paths] = other, v
                newest[w], owner[w] = n_paths, u
                n_paths += 1
                while other >= 0:
                    x = middle[other]
                    if not _are_adjacent(offsets, neighbours, v, x):
                        if count < len(cycles):
                            cycles[count, 0], cycles[count, 1] = u, v
                            cycles[count, 2], cycles[count, 3] = w, x
                        count += 1
                        if count > len(cycles):
                            return count
                    other = before[other]
    return count
