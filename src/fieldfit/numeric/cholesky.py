"""Dense and sparse Cholesky factorisations of positive definite matrices, by rows and by blocks.

*Dense* (`cholesky_root`, `cholesky_solve`, `cholesky_inverse`): small matrices, flat and row by
row.

*Sparse* (`symbolic`, `factorise`, `solve_factorised`): ``M = L D L'`` row by row.  Only the upper
triangle of ``M`` is read, column by column (``indptr``, ``indices``, ``values``; what lies below
the diagonal in a column is skipped), and the unknowns are already in the order in which they are to
be eliminated.  The pattern of ``L`` depends on that of ``M`` alone, so `symbolic` runs once for a
graph and `factorise` as often as the numbers change: row ``j`` of ``L`` solves a triangular system
with the rows before it, and touches only the nodes below ``j`` in the elimination tree.

*By blocks* (`factorise_blocks`, `solve_blocks`): ``M = L L'`` for unknowns that come in blocks of
one size.  A variable with ``K`` labels has ``m = K - 1`` unknowns, which are coupled to the same
neighbours, so the pattern is one of ``m x m`` blocks.  An index is looked up once for a product of
two blocks, whose inner loops have a length that the compiler knows and run over neighbouring
numbers.

References: Davis, "Algorithm 849: a concise sparse Cholesky factorization package", ACM Trans.
Mathematical Software 31 (2005); Liu, "The role of elimination trees in sparse factorization", SIAM
J. Matrix Analysis 11 (1990).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import carray
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.matrix_vector import subtract_product
from fieldfit.numeric.simd import load, stack_scratch, store

__all__ = [
    "Symbolic",
    "cholesky_inverse",
    "cholesky_root",
    "cholesky_solve",
    "climb",
    "factorise",
    "factorise_blocks",
    "solve_blocks",
    "solve_factorised",
    "symbolic",
]

# -- dense ------------------------------------------------------------------------------------


@kernel
def cholesky_root(matrix: FloatArray, n: int, least: FloatArray, is_raised: bool) -> bool:
    """The lower triangle of the Cholesky root of an ``n x n`` matrix, in place.

    Only the lower triangle of ``matrix`` is read.  A pivot that is not above ``least[j]`` is raised
    to it if ``is_raised``, and otherwise becomes infinite, so that unknown ``j`` drops out of every
    solve.  False if a pivot is not positive, or not a number.
    """
    for j in range(n):
        total = matrix[j * n + j]
        for c in range(j):
            total -= matrix[j * n + c] * matrix[j * n + c]
        if total <= least[j]:
            total = least[j] if is_raised else np.inf
        if not total > 0.0:
            return False
        root = np.sqrt(total)
        matrix[j * n + j] = root
        for i in range(j + 1, n):
            total = matrix[i * n + j]
            for c in range(j):
                total -= matrix[i * n + c] * matrix[j * n + c]
            matrix[i * n + j] = total / root
    return True


@kernel
def cholesky_solve(root: FloatArray, n: int, x: FloatArray) -> None:
    """Solve in place with a root of `cholesky_root`: ``x`` is the right-hand side at first."""
    for i in range(n):
        value = x[i]
        for c in range(i):
            value -= root[i * n + c] * x[c]
        x[i] = value / root[i * n + i]
    for i in range(n - 1, -1, -1):
        value = x[i]
        for c in range(i + 1, n):
            value -= root[c * n + i] * x[c]
        x[i] = value / root[i * n + i]


@kernel
def cholesky_inverse(matrix: FloatArray, n: int) -> None:
    """The full symmetric inverse from a root of `cholesky_root`, in place."""
    for i in range(n):  # the inverse of the triangle, row by row
        inverse = 1.0 / matrix[i * n + i]
        for j in range(i):
            total = 0.0
            for c in range(j, i):
                total += matrix[i * n + c] * matrix[c * n + j]
            matrix[i * n + j] = -total * inverse
        matrix[i * n + i] = inverse
    for i in range(n):
        for j in range(i + 1):  # the diagonal last: it is needed by all others of the row
            total = 0.0
            for c in range(i, n):
                total += matrix[c * n + i] * matrix[c * n + j]
            matrix[i * n + j] = total
    for i in range(n):
        for j in range(i):
            matrix[j * n + i] = matrix[i * n + j]


# -- sparse -----------------------------------------------------------------------------------


class Symbolic(NamedTuple):
    """What the factorisation needs to know of a pattern."""

    parents: IntArray  # the elimination tree, -1 at a root
    starts: LongArray  # where each column of L begins


def symbolic(indptr: LongArray, indices: IntArray) -> Symbolic:
    """Elimination tree and column starts of ``L`` (without its diagonal of ones)."""
    return Symbolic(*_elimination_tree(indptr, indices))


@kernel
def _elimination_tree(indptr: LongArray, indices: IntArray) -> tuple[IntArray, LongArray]:
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
    return parents, np.cumsum(counts)


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


# -- sparse by blocks ---------------------------------------------------------------------------


@kernel
def factorise_blocks(
    k: tuple[int, ...],
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

    ``k`` is a tuple of length ``K`` (static), whose values do not matter.  Block row ``j`` of the
    upper triangle of ``M`` is read from columns ``j m`` to ``j m + m - 1``, each with all rows of
    its blocks, the diagonal block last and in full.

    ``shape`` is the pattern of blocks.  Pivots below ``guard`` times the diagonal are raised, as in
    `factorise`.
    """
    m = len(k) - 1
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
            for c in range(m):
                for u in range(m):
                    value = values[first + c * length + p + u]
                    if i == j:
                        pivot[u * m + c] = value
                    else:
                        work[i * size + u * m + c] = value
            top = climb(i, j, parents, seen, path, order, top)
        for c in range(m):
            least[c] = guard * pivot[c * m + c]
        for q in range(top, n_blocks):
            i = order[q]
            block = i * size
            _divide(k, diagonal, work, block)
            _subtract_products(k, rows, lower, starts[i], ends[i], work, block)
            place = ends[i] * size
            rows[ends[i]] = j
            ends[i] += 1
            for u in range(m):  # the transpose goes to L
                for c in range(m):
                    lower[place + c * m + u] = work[block + u * m + c]
                    work[block + u * m + c] = 0.0
            for u in range(m):
                for v in range(m):
                    total = 0.0
                    for c in range(m):
                        total += lower[place + u * m + c] * lower[place + v * m + c]
                    pivot[u * m + v] -= total
        if not cholesky_root(pivot, m, least, True):
            return j
    return -1


@kernel
def _divide(k: tuple[int, ...], diagonal: FloatArray, work: FloatArray, block: int) -> None:
    """``C^-1 W`` in place, with the triangle ``C`` of the diagonal block of the same index."""
    m = len(k) - 1
    for u in range(m):
        inverse = 1.0 / load(diagonal, block + u * m + u)
        for c in range(m):
            value = load(work, block + u * m + c)
            for v in range(u):
                value -= load(diagonal, block + u * m + v) * load(work, block + v * m + c)
            store(work, block + u * m + c, value * inverse)


@kernel(fastmath={"contract"})
def _subtract_products(
    k: tuple[int, ...],
    rows: IntArray,
    lower: FloatArray,
    begin: int,
    end: int,
    work: FloatArray,
    block: int,
) -> None:
    """``W_r -= L_r W`` for the blocks ``begin`` to ``end`` of a column, with its block ``W``."""
    m = len(k) - 1
    # on the stack, where the compiler knows that no other array overlaps
    right = carray(stack_scratch(k, len(k)), (m * m,))
    for z in range(m * m):
        store(right, z, load(work, block + z))
    for p in range(begin, end):
        target, left = np.int64(load(rows, p)) * m * m, p * m * m
        subtract_product(k, lower, left, right, 0, work, target)


@kernel
def solve_blocks(
    k: tuple[int, ...],
    shape: Symbolic,
    rows: IntArray,
    lower: FloatArray,
    diagonal: FloatArray,
    x: FloatArray,
) -> None:
    """Solve in place: ``x`` is the right-hand side and then the solution."""
    m = len(k) - 1
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
