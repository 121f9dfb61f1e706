"""Symmetric positive definite sparse systems: ``M = L D L'`` row by row, and conjugate gradients.

Only the upper triangle of ``M`` is read, column by column (``indptr``, ``indices``, ``values``;
what lies below the diagonal in a column is skipped), and the unknowns are already in the order in
which they are to be eliminated.  The pattern of ``L`` depends on that of ``M`` alone, so `symbolic`
runs once for a graph and `factorise` as often as the numbers change: row ``j`` of ``L`` solves a
triangular system with the rows before it, and touches only the nodes below ``j`` in the elimination
tree.

References: Davis, "Algorithm 849: a concise sparse Cholesky factorization package", ACM Trans.
Mathematical Software 31 (2005); Liu, "The role of elimination trees in sparse factorization", SIAM
J. Matrix Analysis 11 (1990).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "Symbolic",
    "climb",
    "conjugate_gradients",
    "factorise",
    "solve_factorised",
    "symbolic",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]


class Symbolic(NamedTuple):
    """What the factorisation needs to know of a pattern."""

    parents: IntArray  # the elimination tree, -1 at a root
    starts: LongArray  # where each column of L begins


@njit(cache=True, nogil=True, error_model="numpy")
def symbolic(indptr: LongArray, indices: IntArray) -> Symbolic:
    """Elimination tree and column starts of ``L`` (without its diagonal of ones)."""
    n_rows = len(indptr) - 1
    parents = np.full(n_rows, -1, dtype=np.int32)
    counts = np.zeros(n_rows + 1, dtype=np.int64)
    seen = np.full(n_rows, -1, dtype=np.int32)
    for j in range(n_rows):
        seen[j] = j
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            # climb from each entry of the column until a node that row j already has
            while i < j and seen[i] != j:
                if parents[i] < 0:
                    parents[i] = j
                counts[i + 1] += 1
                seen[i] = j
                i = parents[i]
    return Symbolic(parents, np.cumsum(counts))


@njit(cache=True, nogil=True, error_model="numpy")
def climb(
    i: int,
    j: int,
    parents: IntArray,
    seen: IntArray,
    path: NDArray[np.uint32],
    order: NDArray[np.uint32],
    top: int,
) -> int:
    """Put the unseen nodes from ``i`` up to ``j`` before ``order[top]``; the new ``top``."""
    length = 0
    while seen[i] != j:
        path[length] = i
        length += 1
        seen[i] = j
        i = parents[i]
    while length > 0:  # children before parents
        length -= 1
        top -= 1
        order[top] = path[length]
    return top


@njit(cache=True, nogil=True, error_model="numpy")
def factorise(
    indptr: LongArray,
    indices: IntArray,
    values: FloatArray,
    shape: Symbolic,
    rows: IntArray,
    lower: FloatArray,
    inverse_pivots: FloatArray,
    guard: float,
) -> int:
    """Fill ``L`` and ``1 / D``; the first unknown without a positive pivot, or -1.

    Pivots below ``guard`` times the diagonal are raised to that: of a matrix that is known to be
    positive definite rounding is all that is left of them.
    """
    n_rows = len(indptr) - 1
    parents, starts = shape.parents, shape.starts
    ends = starts[:-1].copy()  # where the next entry of each column goes
    work = np.zeros(n_rows)
    path = np.empty(n_rows, dtype=np.uint32)
    order = np.empty(n_rows, dtype=np.uint32)
    seen = np.full(n_rows, -1, dtype=np.int32)
    for j in range(n_rows):
        seen[j] = j
        top = n_rows
        pivot = 0.0
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            if i > j:
                continue
            if i == j:
                pivot += values[p]
                continue
            work[i] += values[p]
            top = climb(i, j, parents, seen, path, order, top)
        diagonal = pivot
        for q in range(top, n_rows):
            i = order[q]
            value = work[i]
            work[i] = 0.0
            begin, end = np.uint64(starts[i]), np.uint64(ends[i])
            for p in range(begin, end):
                work[rows[p]] -= lower[p] * value
            scaled = value * inverse_pivots[i]
            pivot -= scaled * value
            rows[end] = j
            lower[end] = scaled
            ends[i] += 1
        pivot = max(pivot, guard * diagonal)
        if not pivot > 0.0:
            return j
        inverse_pivots[j] = 1.0 / pivot
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def solve_factorised(
    shape: Symbolic, rows: IntArray, lower: FloatArray, inverse_pivots: FloatArray, x: FloatArray
) -> None:
    """Solve in place: ``x`` is the right-hand side and then the solution."""
    starts = shape.starts
    n_rows = len(x)
    for j in range(n_rows):
        value = x[j]
        for p in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
            x[rows[p]] -= lower[p] * value
    for back in range(n_rows):
        j = n_rows - 1 - back
        value = x[j] * inverse_pivots[j]
        for p in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
            value -= lower[p] * x[rows[p]]
        x[j] = value


@njit(cache=True, nogil=True, error_model="numpy")
def _multiply(
    indptr: LongArray, indices: IntArray, values: FloatArray, x: FloatArray, out: FloatArray
) -> None:
    out[:] = 0.0
    for j in range(len(x)):
        total = 0.0
        value = x[j]
        for p in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
            i = np.uint32(indices[p])
            if i < np.uint32(j):
                total += values[p] * x[i]
                out[i] += values[p] * value
            elif i == np.uint32(j):
                total += values[p] * value
        out[j] += total


@njit(cache=True, nogil=True, error_model="numpy")
def conjugate_gradients(
    indptr: LongArray,
    indices: IntArray,
    values: FloatArray,
    tol: float,
    max_iter: int,
    x: FloatArray,
) -> int:
    """Conjugate gradients with the diagonal; ``x`` is the right-hand side, then the solution.

    Ends when the residual has fallen to ``tol`` of its first size (in the norm of the inverse
    diagonal).  Returns the iterations, or -1 if the matrix is not positive definite.
    """
    n_rows = len(x)
    inverse = np.zeros(n_rows)
    for j in range(n_rows):
        for p in range(indptr[j], indptr[j + 1]):
            if indices[p] == j:
                inverse[j] += values[p]
        if not inverse[j] > 0.0:
            return -1
        inverse[j] = 1.0 / inverse[j]
    residual = x.copy()
    size = 0.0
    for j in range(n_rows):
        size = max(size, abs(residual[j]))
    x[:] = 0.0
    if size == 0.0:
        return 0
    residual /= size  # squares of the residual must not overflow
    direction = inverse * residual
    image = np.empty(n_rows)
    rho = np.dot(residual, direction)
    target = tol * tol * rho
    n_iter = 0
    while rho > target and n_iter < max_iter:
        _multiply(indptr, indices, values, direction, image)
        curvature = np.dot(direction, image)
        if not curvature > 0.0:
            return -1
        step = rho / curvature
        following = 0.0
        for j in range(n_rows):
            x[j] += step * direction[j]
            residual[j] -= step * image[j]
            following += residual[j] * residual[j] * inverse[j]
        ratio = following / rho
        rho = following
        for j in range(n_rows):
            direction[j] = inverse[j] * residual[j] + ratio * direction[j]
        n_iter += 1
    x *= size
    return n_iter
