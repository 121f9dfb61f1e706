"""All configurations of a small pairwise model on {0, 1}, in a vector of length ``2**n``.

Configuration ``y`` is the integer with bit ``i`` equal to ``y_i``.  Scores

    s(y) = sum_i t_i y_i + sum_{i > j} w_ij y_i y_j

are built by doubling: the configurations with highest bit ``i`` are those below ``2**i`` plus the
field ``t_i + sum_{j < i} w_ij y_j``, itself built by doubling.  A superset sum (fast zeta
transform) then turns probabilities into *all* moments at once, ``m[S] = E[product of y_i over i in
S]``, so that the covariance of the sufficient statistics (moments of up to four variables) costs
nothing more. Both take about ``n 2**(n-1)`` additions: two milliseconds for 18 variables.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.simd import fast_exp

__all__ = ["configuration_weights", "subset_moments"]

FloatArray = NDArray[np.float64]


@njit(cache=True, nogil=True, error_model="numpy")
def configuration_weights(
    thresholds: FloatArray, couplings: FloatArray, weights: FloatArray
) -> float:
    """Fill ``weights`` (of length ``2**n``) with probabilities; returns the log-partition."""
    weights[0] = 0.0
    for i in range(len(thresholds)):
        half = 1 << i
        lower = weights[:half]
        upper = weights[half : 2 * half]
        upper[0] = thresholds[i]
        for j in range(i):
            quarter = 1 << j
            coupling = couplings[i, j]
            for y in range(quarter):
                upper[quarter + y] = upper[y] + coupling
        for y in range(half):
            upper[y] += lower[y]
    largest = weights.max()
    total = 0.0
    for y in range(len(weights)):
        weights[y] = fast_exp(weights[y] - largest)
        total += weights[y]
    scale = 1.0 / total
    for y in range(len(weights)):
        weights[y] *= scale
    return largest + np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def subset_moments(weights: FloatArray) -> None:
    """Replace probabilities by moments: ``m[S] = sum of weights over all supersets of S``."""
    size = len(weights)
    step = 1
    while step < size:
        for start in range(0, size, 2 * step):
            lower = weights[start : start + step]
            upper = weights[start + step : start + 2 * step]
            for y in range(step):
                lower[y] += upper[y]
        step *= 2
