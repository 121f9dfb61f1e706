r"""Anderson's acceleration of steps towards targets, one example at a time (see `relaxation`).

The *force* on a variable is ``f_i = target_i - log q_i`` with mean zero under ``q_i``; it vanishes
at a stationary point.  From the last few moves ``dl_k`` of log-beliefs and the changes ``df_k`` of
forces that came with them, the accelerated move is

    f - sum_k g_k (dl_k + df_k),     g = argmin | f - sum_k g_k df_k |

in the norm ``sum_i <q_i, f_i^2>``, which is that of the natural gradient.  The small least-squares
problem is solved by Gram and Schmidt's method, newest change first; one that is nearly a
combination of newer ones is left out.

Reference: Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 12 (1965);
Walker and Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numerical Analysis 49
(2011).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT
from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = ["accelerated_targets", "forces", "remember"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: A change of forces of which newer ones leave no more than this share is left out.
DEPENDENT = 1e-7


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def forces(
    structure: Any,
    log_beliefs: FloatArray,
    targets: FloatArray,
    free: BoolArray,
    ranges: LongArray,
    beliefs: FloatArray,
    force: FloatArray,
    slopes: FloatArray,
    residuals: FloatArray,
) -> None:
    """Beliefs and forces in some ranges of variables, and two numbers for each of these.

    The slope, minus the variance of the force, is how fast a step along it changes the free energy;
    the residual is how far a full step moves a belief.
    """
    for run in range(len(ranges)):
        for i in range(ranges[run, 0], ranges[run, 1]):
            first, stop = structure.unary_offsets[i], structure.unary_offsets[i + 1]
            top, total, top_target, total_target = NO_WEIGHT, 0.0, NO_WEIGHT, 0.0
            for z in range(first, stop):
                top = max(top, load(log_beliefs, z))
                top_target = max(top_target, load(targets, z))
            for z in range(first, stop):
                weight = fast_exp(load(log_beliefs, z) - top)
                store(beliefs, z, weight)
                total += weight
                total_target += fast_exp(load(targets, z) - top_target)
            mean = 0.0
            for z in range(first, stop):
                store(beliefs, z, load(beliefs, z) / total)
                value = 0.0
                if free[i] and load(log_beliefs, z) > NO_WEIGHT:
                    value = load(targets, z) - load(log_beliefs, z)
                store(force, z, value)
                mean += load(beliefs, z) * value
            variance, largest = 0.0, 0.0
            for z in range(first, stop):
                if free[i] and load(log_beliefs, z) > NO_WEIGHT:
                    store(force, z, load(force, z) - mean)
                    variance += load(beliefs, z) * load(force, z) * load(force, z)
                    aim = fast_exp(load(targets, z) - top_target) / total_target
                    largest = max(largest, abs(load(beliefs, z) - aim))
            slopes[i] = -variance
            residuals[i] = largest


@njit(cache=True, nogil=True, error_model="numpy")
def remember(
    offsets: LongArray,
    examples: LongArray,
    rows: LongArray,
    before: FloatArray,
    after: FloatArray,
    force_before: FloatArray,
    force_after: FloatArray,
    moves: FloatArray,
    changes: FloatArray,
) -> None:
    """Write the last move of some examples and its change of forces into a row of the history."""
    for k in range(len(examples)):
        row = rows[k]
        for z in range(offsets[examples[k]], offsets[examples[k] + 1]):
            is_out = after[z] == NO_WEIGHT
            moves[row, z] = 0.0 if is_out else after[z] - before[z]
            changes[row, z] = force_after[z] - force_before[z]


@njit(cache=True, nogil=True, error_model="numpy")
def _centre(
    structure: Any, beliefs: FloatArray, begin: int, end: int, values: FloatArray, shift: int
) -> None:
    """Take the mean under the beliefs from the values of each variable.

    The value of unary entry ``z`` is ``values[z - shift]``.
    """
    for i in range(begin, end):
        mean = 0.0
        for z in range(structure.unary_offsets[i], structure.unary_offsets[i + 1]):
            mean += beliefs[z] * values[z - shift]
        for z in range(structure.unary_offsets[i], structure.unary_offsets[i + 1]):
            values[z - shift] -= mean


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def accelerated_targets(
    structure: Any,
    variable_offsets: LongArray,
    examples: LongArray,
    counts: LongArray,
    heads: LongArray,
    log_beliefs: FloatArray,
    beliefs: FloatArray,
    force: FloatArray,
    moves: FloatArray,
    changes: FloatArray,
    targets: FloatArray,
    slopes: FloatArray,
) -> None:
    """Where an accelerated step of length 1 would take some examples, and its slopes.

    Of example ``m`` the last ``counts[m]`` rows of the history count; the next one will go to row
    ``heads[m]``.  A slope that is not negative says that the move is of no use.
    """
    depth = len(moves)
    widest = 0
    for k in range(len(examples)):
        begin, end = variable_offsets[examples[k]], variable_offsets[examples[k] + 1]
        widest = max(widest, structure.unary_offsets[end] - structure.unary_offsets[begin])
    basis, rest, move = np.empty((depth, widest)), np.empty(widest), np.empty(widest)
    triangle, shares = np.empty((depth, depth)), np.empty(depth)
    rows = np.empty(depth, dtype=np.int64)
    for index in range(len(examples)):
        m = examples[index]
        begin, end = variable_offsets[m], variable_offsets[m + 1]
        first = structure.unary_offsets[begin]
        width = structure.unary_offsets[end] - first
        for z in range(width):
            rest[z] = sqrt(beliefs[first + z]) * force[first + z]
        used = 0
        for age in range(counts[m]):
            row = (heads[m] - 1 - age) % depth
            for z in range(width):
                move[z] = changes[row, first + z]
            _centre(structure, beliefs, begin, end, move, first)
            before = 0.0
            for z in range(width):
                value = sqrt(beliefs[first + z]) * move[z]
                basis[used, z] = value
                before += value * value
            for column in range(used):
                product = 0.0
                for z in range(width):
                    product += basis[column, z] * basis[used, z]
                for z in range(width):
                    basis[used, z] -= product * basis[column, z]
                triangle[column, used] = product
            after = 0.0
            for z in range(width):
                after += basis[used, z] * basis[used, z]
            if not after > DEPENDENT * DEPENDENT * before:
                continue
            length = sqrt(after)
            product = 0.0
            for z in range(width):
                basis[used, z] /= length
                product += basis[used, z] * rest[z]
            for z in range(width):
                rest[z] -= product * basis[used, z]
            triangle[used, used] = length
            shares[used] = product
            rows[used] = row
            used += 1
        for z in range(width):
            move[z] = force[first + z]
        for k in range(used - 1, -1, -1):
            for column in range(k + 1, used):
                shares[k] -= triangle[k, column] * shares[column]
            shares[k] /= triangle[k, k]
            for z in range(width):
                row = rows[k]
                move[z] -= shares[k] * (moves[row, first + z] + changes[row, first + z])
        _centre(structure, beliefs, begin, end, move, first)
        slope = 0.0
        for z in range(width):
            slope -= beliefs[first + z] * force[first + z] * move[z]
            # a label that is out stays out: -inf plus anything finite
            targets[first + z] = log_beliefs[first + z] + move[z]
        slopes[m] = slope if used > 0 else 0.0
