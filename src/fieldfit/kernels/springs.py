r"""The second derivative of Bethe's free energy by beliefs of variables (see `scaling`).

In the coordinates ``z_i(y) = dq_i(y) / sqrt(q_i(y))`` of the natural gradient, orthogonal to
``sqrt(q_i)``, the second derivative of the free energy is

    (H z)_i = (1 - d_i) z_i + sum_a (A_a^-1 z_a)_i

because the Hessian of the best factor term by its margins is the inverse of their covariance.
``A_a`` has ones on its diagonal and, between the labels of two variables of the factor, the
covariance of their indicators under ``xi_a`` divided by ``sqrt(q_i(y) q_j(y'))``.  For two binary
variables with correlation ``rho`` this is a spring between them,

    z_i / (1 + |rho|) + stiff (z_i - sign(rho) z_j),     stiff = |rho| / (1 - rho^2)

where nothing cancels in ``1 - rho^2 = (sum of products of three entries of xi) / (p p' r r')``.
Strong couplings are stiff springs, which steps along the gradient cannot bend and Newton's steps
leave alone.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.factor_messages import next_row
from fieldfit.kernels.scaling import GENERAL, PAIR

__all__ = ["Springs", "fill_springs"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]
ByteArray = NDArray[np.uint8]

#: Springs are not stiffer than this: stiffer ones tie labels to more digits than beliefs have.
STIFFEST = 1e14


class Springs(NamedTuple):
    """The second derivative, factor by factor."""

    kinds: ByteArray
    soft: FloatArray  # 1 / (1 + |rho|) of a binary pair
    stiff: FloatArray  # with the sign of rho
    inverses: FloatArray  # A_a^-1 of all other factors, row by row, one factor after the other
    offsets: LongArray  # where each of them begins


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_pair(tables: FloatArray, table: int, springs: Any, factor: int) -> None:
    x00, x01, x10, x11 = tables[table], tables[table + 1], tables[table + 2], tables[table + 3]
    springs.soft[factor] = 1.0
    springs.stiff[factor] = 0.0
    covariance = x11 * x00 - x10 * x01
    product = (x00 + x01) * (x10 + x11) * (x00 + x10) * (x01 + x11)
    determinant = x00 * x01 * (x10 + x11) + x10 * x11 * (x00 + x01)
    if not product > 0.0:
        return  # a label is certain, and tells the other variable nothing
    correlation = min(1.0, abs(covariance) / sqrt(product))
    size = STIFFEST
    if correlation * product < STIFFEST * determinant:
        size = correlation * product / determinant
    springs.soft[factor] = 1.0 / (1.0 + correlation)
    springs.stiff[factor] = size if covariance >= 0.0 else -size


@njit(cache=True, nogil=True, error_model="numpy")
def _invert(matrix: FloatArray, size: int, root: FloatArray) -> None:
    """Inverse of a symmetric matrix with unit diagonal, by Cholesky; pivots below rounding stop."""
    for row in range(size):
        for column in range(row + 1):
            value = matrix[row * size + column]
            for k in range(column):
                value -= root[row, k] * root[column, k]
            if column < row:
                root[row, column] = value / root[column, column]
            else:
                root[row, row] = sqrt(max(value, 1.0 / STIFFEST))
    for column in range(size):
        for row in range(size):  # forward
            value = 1.0 if row == column else 0.0
            for k in range(column, row):
                value -= root[row, k] * matrix[k * size + column]
            matrix[row * size + column] = value / root[row, row] if row >= column else 0.0
        for row in range(size - 1, -1, -1):  # and back
            value = matrix[row * size + column]
            for k in range(row + 1, size):
                value -= root[k, row] * matrix[k * size + column]
            matrix[row * size + column] = value / root[row, row]


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_general(
    structure: Any,
    tables: FloatArray,
    beliefs: FloatArray,
    springs: Any,
    factor: int,
    digits: IntArray,
    root: FloatArray,
) -> None:
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    base = structure.message_offsets[first]
    size = structure.message_offsets[stop] - base
    matrix = springs.inverses[springs.offsets[factor] : springs.offsets[factor + 1]]
    matrix[:] = 0.0
    digits[: stop - first] = 0
    for z in range(structure.table_offsets[factor], structure.table_offsets[factor + 1]):
        for one in range(first + 1, stop):
            row = structure.message_offsets[one] - base + digits[one - first]
            for two in range(first, one):
                column = structure.message_offsets[two] - base + digits[two - first]
                matrix[row * size + column] += tables[z]
        next_row(structure, first, stop, digits)
    for one in range(first, stop):
        start = structure.message_offsets[one] - base
        source = structure.unary_offsets[structure.slot_variables[one]] - start
        for row in range(start, structure.message_offsets[one + 1] - base):
            matrix[row * size + row] = 1.0
            for two in range(first, one):
                begin = structure.message_offsets[two] - base
                other = structure.unary_offsets[structure.slot_variables[two]] - begin
                for column in range(begin, structure.message_offsets[two + 1] - base):
                    product = beliefs[source + row] * beliefs[other + column]
                    value = matrix[row * size + column] - product
                    value = value / sqrt(product) if product > 0.0 else 0.0
                    matrix[row * size + column] = value
    _invert(matrix, size, root)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_springs(
    structure: Any,
    tables: FloatArray,
    beliefs: FloatArray,
    factor_offsets: LongArray,
    examples: LongArray,
    springs: Any,
) -> None:
    """The springs of some examples from their factor beliefs ``tables``."""
    size, arity = 1, 1
    for factor in range(len(springs.kinds)):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        if springs.kinds[factor] == GENERAL:
            size = max(size, structure.message_offsets[stop] - structure.message_offsets[first])
            arity = max(arity, stop - first)
    root, digits = np.empty((size, size)), np.empty(arity, dtype=np.int32)
    for k in range(len(examples)):
        for factor in range(factor_offsets[examples[k]], factor_offsets[examples[k] + 1]):
            if springs.kinds[factor] == PAIR:
                _fill_pair(tables, structure.table_offsets[factor], springs, factor)
            elif springs.kinds[factor] == GENERAL:
                _fill_general(structure, tables, beliefs, springs, factor, digits, root)
