"""Steps of beliefs towards their targets, by example (see `scaling`).

A step of length ``t`` is ``log q_i <- (1 - t) log q_i + t target_i``, normalised: a natural
gradient step on a free energy whose derivative by ``q_i`` is ``log q_i - target_i``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT
from fieldfit.kernels.scaling import all_binary
from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store

__all__ = ["copy_ranges", "full_step_residuals", "step_examples", "sum_examples"]

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def step_examples(
    structure: Any,
    offsets: LongArray,
    examples: LongArray,
    lengths: FloatArray,
    log_beliefs: FloatArray,
    targets: FloatArray,
    free: BoolArray,
    stepped: FloatArray,
) -> None:
    """Log-beliefs of some examples after a step of their length; variables not free stay put.

    ``offsets`` say where the variables of each example begin, ``lengths`` are by example.
    """
    for k in range(len(examples)):
        begin, end = offsets[examples[k]], offsets[examples[k] + 1]
        length = lengths[examples[k]]
        if all_binary(structure.cardinalities, begin, end):
            base = load(structure.unary_offsets, begin)
            for i in range(end - begin):
                z = base + 2 * i
                log_0, log_1 = load(log_beliefs, z), load(log_beliefs, z + 1)
                old = log_1 - log_0
                new = load(targets, z + 1) - load(targets, z)
                odds = old + length * (new - old)
                size = abs(odds)
                above = -fast_log(1.0 + fast_exp(-size))
                below = above - size
                moves = free[begin + i] & (abs(old) < np.inf)
                step_0, step_1 = below if odds > 0.0 else above, above if odds > 0.0 else below
                store(stepped, z, step_0 if moves else log_0)
                store(stepped, z + 1, step_1 if moves else log_1)
            continue
        for i in range(begin, end):
            first, stop = load(structure.unary_offsets, i), load(structure.unary_offsets, i + 1)
            if not free[i]:
                for z in range(first, stop):
                    store(stepped, z, load(log_beliefs, z))
                continue
            top = NO_WEIGHT
            for z in range(first, stop):
                old = load(log_beliefs, z)
                value = old + length * (load(targets, z) - old) if old > NO_WEIGHT else NO_WEIGHT
                store(stepped, z, value)
                top = max(top, value)
            total = 0.0
            for z in range(first, stop):
                total += fast_exp(load(stepped, z) - top)
            top += fast_log(total)
            for z in range(first, stop):
                store(stepped, z, load(stepped, z) - top)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def full_step_residuals(
    structure: Any,
    log_beliefs: FloatArray,
    targets: FloatArray,
    free: BoolArray,
    residuals: FloatArray,
) -> None:
    """For each variable how far a full step would move its belief."""
    n_variables = len(free)
    if all_binary(structure.cardinalities, 0, n_variables):
        for i in range(n_variables):
            old = load(log_beliefs, 2 * i + 1) - load(log_beliefs, 2 * i)
            new = load(targets, 2 * i + 1) - load(targets, 2 * i)
            small, small_new = fast_exp(-abs(old)), fast_exp(-abs(new))
            belief, aim = small / (1.0 + small), small_new / (1.0 + small_new)
            # both are the smaller belief: of the same label, or of one and the other
            opposite = 1.0 - aim
            distance = abs(belief - (aim if (old > 0.0) == (new > 0.0) else opposite))
            moves = free[i] & (abs(old) < np.inf)
            store(residuals, i, distance if moves else 0.0)
        return
    for i in range(n_variables):
        residuals[i] = 0.0
        if not free[i]:
            continue
        first, stop = structure.unary_offsets[i], structure.unary_offsets[i + 1]
        top, total, top_target, total_target = NO_WEIGHT, 0.0, NO_WEIGHT, 0.0
        for z in range(first, stop):
            top = max(top, load(log_beliefs, z))
            top_target = max(top_target, load(targets, z))
        for z in range(first, stop):
            total += fast_exp(load(log_beliefs, z) - top)
            total_target += fast_exp(load(targets, z) - top_target)
        largest = 0.0
        for z in range(first, stop):
            belief = fast_exp(load(log_beliefs, z) - top) / total
            aim = fast_exp(load(targets, z) - top_target) / total_target
            largest = max(largest, abs(belief - aim))
        residuals[i] = largest


@njit(cache=True, nogil=True, error_model="numpy")
def sum_examples(
    values: FloatArray, offsets: LongArray, examples: LongArray, sums: FloatArray
) -> None:
    """Add to ``sums[k]`` the values of example ``examples[k]``, in their order."""
    for k in range(len(examples)):
        total = 0.0
        for z in range(offsets[examples[k]], offsets[examples[k] + 1]):
            total += values[z]
        sums[k] += total


@njit(cache=True, nogil=True, error_model="numpy")
def copy_ranges(
    source: FloatArray, target: FloatArray, offsets: LongArray, examples: LongArray
) -> None:
    """Copy the entries of some examples."""
    for k in range(len(examples)):
        for z in range(offsets[examples[k]], offsets[examples[k] + 1]):
            store(target, z, load(source, z))
