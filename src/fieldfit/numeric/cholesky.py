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

from typing import Any, NamedTuple

import numpy as np
from numba import carray
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import load, stack_scratch, store

__all__ = [
    "Symbolic",
    "climb",
    "conjugate_gradients",
    "factorise",
    "factorise_blocks",
    "solve_blocks",
    "solve_factorised",
    "symbolic",
]


class Symbolic(NamedTuple):
    """What the factorisation needs to know of a pattern."""

    parents: IntArray  # the elimination tree, -1 at a root
    starts: LongArray  # where each column of L begins


@kernel
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


@kernel
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


@kernel
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


@kernel
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


@kernel
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


@kernel
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


# -- Block factor --------------------------------------------------------------------------
# `sparse_factor` for unknowns that come in blocks of one size: ``M = L L'`` block by block.
#
# A variable with ``K`` labels has ``m = K - 1`` unknowns, which are coupled to the same
# neighbours, so the pattern is one of ``m x m`` blocks.  An index is looked up once for a product
# of two blocks, whose inner loops have a length that the compiler knows and run over neighbouring
# numbers.
#
# ``labels`` is a tuple of length ``K`` whose values do not matter.  Block row ``j`` of the upper
# triangle of ``M`` is read from columns ``j m`` to ``j m + m - 1``, each with all rows of its
# blocks, the diagonal block last and in full.


@kernel
def factorise_blocks(
    labels: Any,
    indptr: LongArray,
    indices: IntArray,
    values: FloatArray,
    shape: Symbolic,
    rows: IntArray,
    lower: FloatArray,
    diagonal: FloatArray,
    guard: float,
) -> int:
    """Fill the blocks of ``L``, those of its diagonal apart; the first bad block, or -1.

    ``shape`` is the pattern of blocks.  Pivots below ``guard`` times the diagonal are raised, as in
    `sparse_factor.factorise`.
    """
    m = len(labels) - 1
    size = m * m
    n_blocks = (len(indptr) - 1) // m
    parents, starts = shape.parents, shape.starts
    ends = starts[:-1].copy()  # where the next block of each column goes
    work = np.zeros(n_blocks * size)
    path = np.empty(n_blocks, dtype=np.uint32)
    order = np.empty(n_blocks, dtype=np.uint32)
    seen = np.full(n_blocks, -1, dtype=np.int32)
    least = np.empty(m)
    for j in range(n_blocks):
        seen[j] = j
        top = n_blocks
        pivot = diagonal[j * size : (j + 1) * size]
        first, length = indptr[j * m], indptr[j * m + 1] - indptr[j * m]
        for p in range(0, length, m):
            i = indices[first + p] // m
            for k in range(m):
                for u in range(m):
                    value = values[first + k * length + p + u]
                    if i == j:
                        pivot[u * m + k] = value
                    else:
                        work[i * size + u * m + k] = value
            top = climb(i, j, parents, seen, path, order, top)
        for k in range(m):
            least[k] = guard * pivot[k * m + k]
        for q in range(top, n_blocks):
            i = order[q]
            block = i * size
            _divide(labels, diagonal, work, block)
            _subtract_products(labels, rows, lower, starts[i], ends[i], work, block)
            place = ends[i] * size
            rows[ends[i]] = j
            ends[i] += 1
            for u in range(m):  # the transpose goes to L
                for k in range(m):
                    lower[place + k * m + u] = work[block + u * m + k]
                    work[block + u * m + k] = 0.0
            for u in range(m):
                for v in range(m):
                    total = 0.0
                    for k in range(m):
                        total += lower[place + u * m + k] * lower[place + v * m + k]
                    pivot[u * m + v] -= total
        if not _root(labels, pivot, least):
            return j
    return -1


@kernel
def _divide(labels: Any, diagonal: FloatArray, work: FloatArray, block: int) -> None:
    """``C^-1 W`` in place, with the triangle ``C`` of the diagonal block of the same index."""
    m = len(labels) - 1
    for u in range(m):
        inverse = 1.0 / load(diagonal, block + u * m + u)
        for k in range(m):
            value = load(work, block + u * m + k)
            for v in range(u):
                value -= load(diagonal, block + u * m + v) * load(work, block + v * m + k)
            store(work, block + u * m + k, value * inverse)


@kernel(fastmath={"contract"})
def _subtract_products(
    labels: Any,
    rows: IntArray,
    lower: FloatArray,
    begin: int,
    end: int,
    work: FloatArray,
    block: int,
) -> None:
    """``W_r -= L_r W`` for the blocks ``begin`` to ``end`` of a column, with its block ``W``."""
    m = len(labels) - 1
    # on the stack, where the compiler knows that no other array overlaps
    right = carray(stack_scratch(labels, len(labels)), (m * m,))
    line = carray(stack_scratch(labels, 1), (m,))
    for z in range(m * m):
        store(right, z, load(work, block + z))
    for p in range(begin, end):
        target, left = np.int64(load(rows, p)) * m * m, p * m * m
        for u in range(m):
            for k in range(m):
                store(line, k, load(work, target + u * m + k))
            for v in range(m):
                share = load(lower, left + u * m + v)
                for k in range(m):
                    store(line, k, load(line, k) - share * load(right, v * m + k))
            for k in range(m):
                store(work, target + u * m + k, load(line, k))


@kernel
def _root(labels: Any, pivot: FloatArray, least: FloatArray) -> bool:
    """The lower triangle of the root of a block, in place; false if it is not positive definite."""
    m = len(labels) - 1
    for j in range(m):
        total = pivot[j * m + j]
        for k in range(j):
            total -= pivot[j * m + k] * pivot[j * m + k]
        total = max(total, least[j])
        if not total > 0.0:
            return False
        root = np.sqrt(total)
        pivot[j * m + j] = root
        for i in range(j + 1, m):
            total = pivot[i * m + j]
            for k in range(j):
                total -= pivot[i * m + k] * pivot[j * m + k]
            pivot[i * m + j] = total / root
    return True


@kernel
def solve_blocks(
    labels: Any,
    shape: Symbolic,
    rows: IntArray,
    lower: FloatArray,
    diagonal: FloatArray,
    x: FloatArray,
) -> None:
    """Solve in place: ``x`` is the right-hand side and then the solution."""
    m = len(labels) - 1
    size = m * m
    starts = shape.starts
    n_blocks = len(x) // m
    for j in range(n_blocks):
        own, block = j * m, j * size
        for u in range(m):
            value = load(x, own + u)
            for v in range(u):
                value -= load(diagonal, block + u * m + v) * load(x, own + v)
            store(x, own + u, value / load(diagonal, block + u * m + u))
        for p in range(starts[j], starts[j + 1]):
            target, place = np.int64(rows[p]) * m, p * size
            for u in range(m):
                value = load(x, target + u)
                for v in range(m):
                    value -= load(lower, place + u * m + v) * load(x, own + v)
                store(x, target + u, value)
    for j in range(n_blocks - 1, -1, -1):
        own, block = j * m, j * size
        for p in range(starts[j], starts[j + 1]):
            source, place = np.int64(rows[p]) * m, p * size
            for u in range(m):
                value = load(x, source + u)
                for v in range(m):
                    store(x, own + v, load(x, own + v) - load(lower, place + u * m + v) * value)
        for u in range(m - 1, -1, -1):
            value = load(x, own + u)
            for v in range(u + 1, m):
                value -= load(diagonal, block + v * m + u) * load(x, own + v)
            store(x, own + u, value / load(diagonal, block + u * m + u))
