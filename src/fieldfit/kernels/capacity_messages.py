"""Prices of places: independent edges made to keep numbers of partners.

    t_ij = 1 / (1 + exp(a_i + b_j - W_ij))

maximises ``<W, t>`` plus the entropy of independent edges, where the price ``a_i`` of a row makes
``sum_j t_ij`` its capacity, and ``b_j`` likewise.  If capacities need not be filled, prices are at
least 0, and 0 where places are free.  A sweep sets all rows, then all columns: it maximises the
dual, which is smooth and concave, over one side given the other.  With one partner each and
probabilities instead of odds this would be Sinkhorn's scaling.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["run_capacity_sweeps"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

#: A price is found when a step of Newton's method moves it by less than this.
PRICE_TOL = 1e-13
MAX_NEWTON = 60


@njit(cache=True, nogil=True, error_model="numpy")
def _load(x: FloatArray, count: int, price: float) -> tuple[float, float]:
    """Sum of ``1 / (1 + exp(price - x))``, and minus its derivative."""
    total = slope = 0.0
    for k in range(count):
        # exponentials of negative numbers only, so that nothing overflows
        small = math.exp(-abs(x[k] - price))
        share = 1.0 / (1.0 + small)
        total += share if x[k] >= price else 1.0 - share
        slope += share * (1.0 - share)
    return total, slope


@njit(cache=True, nogil=True, error_model="numpy")
def _price(x: FloatArray, count: int, capacity: int, is_free: bool, start: float) -> float:
    """The price at which the load is the capacity (``is_free``: at most, and none below 0)."""
    if count == 0 or (is_free and capacity >= count):
        return 0.0
    if is_free and _load(x, count, 0.0)[0] <= capacity:
        return 0.0
    least, most = x[0], x[0]
    for k in range(1, count):
        least, most = min(least, x[k]), max(most, x[k])
    # were all entries equal, this would be the answer; the root lies between the extremes
    shift = math.log(capacity / (count - capacity))
    low, high = least - shift - 1.0, most - shift + 1.0
    price = min(max(start, low), high)
    for _ in range(MAX_NEWTON):
        total, slope = _load(x, count, price)
        if total > capacity:
            low = price
        else:
            high = price
        trial = price + (total - capacity) / slope if slope > 0.0 else low - 1.0
        if not low < trial < high:
            trial = 0.5 * (low + high)
        moved = abs(trial - price)
        price = trial
        if moved <= PRICE_TOL * max(1.0, abs(price)):
            break
    return max(price, 0.0) if is_free else price


@njit(cache=True, nogil=True, error_model="numpy")
def run_capacity_sweeps(
    weights: FloatArray,
    allowed: BoolArray,
    row_capacities: IntArray,
    column_capacities: IntArray,
    is_free: bool,
    tol: float,
    max_iter: int,
    rows: FloatArray,
    columns: FloatArray,
    scratch: FloatArray,
) -> tuple[int, float]:
    """Sweeps until loads of rows are right to ``tol``; changes the prices ``rows``, ``columns``.

    Nodes with a capacity of 0, or of all their edges if that must be filled, must have no edges
    (they have no price).  ``scratch`` has room for the edges of a node.  Returns the number of
    sweeps and the largest wrong load of a row; those of columns are right after a sweep.
    """
    n, m = weights.shape
    residual = np.inf
    for n_iter in range(max_iter):
        residual = 0.0
        for i in range(n):
            count = 0
            for j in range(m):
                if allowed[i, j]:
                    scratch[count] = weights[i, j] - columns[j]
                    count += 1
            total = _load(scratch, count, rows[i])[0]
            excess = total - row_capacities[i]
            if count > 0 and (not is_free or rows[i] > 0.0 or excess > 0.0):
                residual = max(residual, abs(excess))
            rows[i] = _price(scratch, count, row_capacities[i], is_free, rows[i])
        if n_iter > 0 and residual <= tol:
            return n_iter, residual
        for j in range(m):
            count = 0
            for i in range(n):
                if allowed[i, j]:
                    scratch[count] = weights[i, j] - rows[i]
                    count += 1
            columns[j] = _price(scratch, count, column_capacities[j], is_free, columns[j])
    return max_iter, residual
