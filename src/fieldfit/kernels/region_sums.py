"""Sums and products of a table over a map, in the linear and in the log domain."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def add_up(
    table: FloatArray,
    begin: int,
    size: int,
    maps: IntArray,
    base: int,
    run: int,
    sums: FloatArray,
    at: int,
    n_entries: int,
) -> None:
    """Sums of a table over a map."""
    for y in range(n_entries):
        sums[at + y] = 0.0
    if run == 1:
        for x in range(size):
            target = at + load(maps, base + x)
            store(sums, target, load(sums, target) + load(table, begin + x))
        return
    for block in range(size // run):
        total = 0.0
        for entry in range(begin + block * run, begin + (block + 1) * run):
            total += load(table, entry)
        target = at + load(maps, base + block * run)
        store(sums, target, load(sums, target) + total)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def multiply(
    table: FloatArray,
    begin: int,
    size: int,
    maps: IntArray,
    base: int,
    run: int,
    factors: FloatArray,
) -> None:
    """Multiply the entries of a table by the factors that a map sends them to."""
    if run == 1:
        for x in range(size):
            store(table, begin + x, load(table, begin + x) * load(factors, load(maps, base + x)))
        return
    for block in range(size // run):
        factor = load(factors, load(maps, base + block * run))
        for entry in range(begin + block * run, begin + (block + 1) * run):
            store(table, entry, load(table, entry) * factor)


@njit(cache=True, nogil=True, error_model="numpy")
def log_add_up(
    log_table: FloatArray,
    begin: int,
    size: int,
    maps: IntArray,
    base: int,
    top: FloatArray,
    margins: FloatArray,
    at: int,
    n_entries: int,
) -> None:
    """Logarithm of the sums of ``exp(log_table)`` over a map, each with a maximum of its own."""
    for y in range(n_entries):
        top[y] = -np.inf
        margins[at + y] = 0.0
    for x in range(size):
        y = load(maps, base + x)
        top[y] = max(top[y], load(log_table, begin + x))
    for x in range(size):
        y = load(maps, base + x)
        value = load(log_table, begin + x)
        if value > -np.inf:
            margins[at + y] += fast_exp(value - top[y])
    for y in range(n_entries):
        if top[y] > -np.inf:
            margins[at + y] = top[y] + fast_log(margins[at + y])
        else:
            margins[at + y] = -np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def log_total(values: FloatArray, begin: int, end: int) -> float:
    """Logarithm of the sum of exponentials of a stretch (``-inf`` if all are)."""
    largest = -np.inf
    for entry in range(begin, end):
        largest = max(largest, values[entry])
    if largest == -np.inf:
        return largest
    total = 0.0
    for entry in range(begin, end):
        total += np.exp(values[entry] - largest)
    return largest + np.log(total)
