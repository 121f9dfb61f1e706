"""`sparse_factor` for unknowns that come in blocks of one size: ``M = L L'`` block by block.

A variable with ``K`` labels has ``m = K - 1`` unknowns, which are coupled to the same neighbours,
so the pattern is one of ``m x m`` blocks.  An index is looked up once for a product of two blocks,
whose inner loops have a length that the compiler knows and run over neighbouring numbers.

``labels`` is a tuple of length ``K`` whose values do not matter.  Block row ``j`` of the upper
triangle of ``M`` is read from columns ``j m`` to ``j m + m - 1``, each with all rows of its blocks,
the diagonal block last and in full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit
from numpy.typing import NDArray

from fieldfit.kernels.simd import load, stack_scratch, store
from fieldfit.kernels.sparse_factor import Symbolic, climb

__all__ = ["factorise_blocks", "solve_blocks"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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
