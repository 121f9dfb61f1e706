r"""Preconditioned conjugate gradients with Steihaug's test for negative curvature.

Solves ``H x = r`` for a symmetric ``H`` that is known by its products with vectors.  In exact
arithmetic the iterates of a positive definite ``H`` minimise ``x' H x / 2 - r' x`` over growing
subspaces.  A direction ``p`` with ``p' H p <= flat |p|^2`` ends the iteration (``|p|`` in the norm
of the preconditioner): ``H`` is indefinite, or rounding decides, and the ``x`` so far is still a
descent direction of the quadratic model.

`conjugate_gradients` is one loop for all users.  ``H`` is a named tuple of arrays, for whose class
two kernels are registered by `linear_operator`,

    multiply(operator, x, out)        out = H x
    precondition(operator, r, out)    out = P^-1 r

Numba compiles the loop anew for every class, with the kernels inside.  (Kernels could be arguments
of a kernel, too, but then nothing of it would be cached on disk.)

References: Hestenes and Stiefel, J. Research National Bureau of Standards 49 (1952); Steihaug, "The
conjugate gradient method and trust regions in large scale optimization", SIAM J. Numerical Analysis
20 (1983).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH

__all__ = ["conjugate_gradients", "linear_operator", "solve_by_conjugate_gradients"]

Apply = Callable[[Any, FloatArray, FloatArray], None]
#: By class of named tuple: products with the matrix, and with the inverse of its preconditioner.
_operators: dict[type, tuple[Apply, Apply]] = {}


def linear_operator(cls: type, multiply: Apply, precondition: Apply) -> None:
    """Register the kernels of a class of named tuples."""
    _operators[cls] = multiply, precondition


def _multiply(operator: Any, x: FloatArray, out: FloatArray) -> None:
    """``out = H x``; stands for the registered kernel in compiled code."""


def _precondition(operator: Any, residual: FloatArray, out: FloatArray) -> None:
    """``out = P^-1 residual``, likewise."""


@overload(_multiply, strict=False)
def _compiled_multiply(operator: Any, x: Any, out: Any) -> Apply:
    apply = _operators[operator.instance_class][0]
    return lambda operator, x, out: apply(operator, x, out)


@overload(_precondition, strict=False)
def _compiled_precondition(operator: Any, residual: Any, out: Any) -> Apply:
    apply = _operators[operator.instance_class][1]
    return lambda operator, residual, out: apply(operator, residual, out)


@kernel(fastmath=SAFE_FASTMATH)
def conjugate_gradients(
    operator: Any,
    tol: float,
    max_iter: int,
    flat: float,
    residual: FloatArray,
    x: FloatArray,
    direction: FloatArray,
    image: FloatArray,
) -> int:
    """Iterations, or ``-1 - iterations`` if the next direction has no positive curvature.

    ``residual`` is the right-hand side, and is overwritten; ``x`` becomes the solution;
    ``direction`` and ``image`` are working memory.  Ends when the residual has fallen to ``tol`` of
    its first size in the norm of ``P^-1``.  After negative curvature in the first iteration ``x``
    is the preconditioned right-hand side.
    """
    n = len(x)
    x[:] = 0.0
    _precondition(operator, residual, direction)
    rho = 0.0
    for j in range(n):
        rho += residual[j] * direction[j]
    target = tol * tol * rho
    length = rho  # |direction|^2 in the norm of P, by recurrence
    for n_iter in range(max_iter):
        if not rho > target:
            return n_iter
        _multiply(operator, direction, image)
        curvature = 0.0
        for j in range(n):
            curvature += direction[j] * image[j]
        if not curvature > flat * length:
            if n_iter == 0:
                x[:] = direction
            return -1 - n_iter
        alpha = rho / curvature
        for j in range(n):
            x[j] += alpha * direction[j]
            residual[j] -= alpha * image[j]
        _precondition(operator, residual, image)
        following = 0.0
        for j in range(n):
            following += residual[j] * image[j]
        beta = following / rho
        for j in range(n):
            direction[j] = image[j] + beta * direction[j]
        length = following + beta * beta * length
        rho = following
    return max_iter


# -- sparse matrices ----------------------------------------------------------------------------


class SparseOperator(NamedTuple):
    """The upper triangle of a symmetric matrix by columns, and its inverse diagonal."""

    indptr: LongArray
    indices: IntArray
    values: FloatArray
    inverse_diagonal: FloatArray


@kernel
def _multiply_sparse(matrix: SparseOperator, x: FloatArray, out: FloatArray) -> None:
    out[:] = 0.0
    for j in range(len(x)):
        total = 0.0
        value = x[j]
        for p in range(np.uint64(matrix.indptr[j]), np.uint64(matrix.indptr[j + 1])):
            i = np.uint32(matrix.indices[p])
            if i < np.uint32(j):
                total += matrix.values[p] * x[i]
                out[i] += matrix.values[p] * value
            elif i == np.uint32(j):
                total += matrix.values[p] * value
        out[j] += total


@kernel
def _divide_by_diagonal(matrix: SparseOperator, residual: FloatArray, out: FloatArray) -> None:
    for j in range(len(residual)):
        out[j] = matrix.inverse_diagonal[j] * residual[j]


linear_operator(SparseOperator, _multiply_sparse, _divide_by_diagonal)


@kernel
def solve_by_conjugate_gradients(
    indptr: LongArray,
    indices: IntArray,
    values: FloatArray,
    tol: float,
    max_iter: int,
    x: FloatArray,
) -> int:
    """Solve in place with the diagonal as preconditioner: ``x`` is the right-hand side at first.

    Returns the iterations, or -1 if the matrix is not positive definite.
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
    operator = SparseOperator(indptr, indices, values, inverse)
    n_iter = conjugate_gradients(
        operator, tol, max_iter, 0.0, residual, x, np.empty(n_rows), np.empty(n_rows)
    )
    x *= size
    return max(n_iter, -1)
