"""The belief of a binary pair with given margins in the log domain, any range (see `scaling`).

Slow and rarely needed: for couplings beyond 200, beliefs below 1e-87 and labels that are certain.
"""

from __future__ import annotations

from math import exp, expm1, log, log1p

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT

__all__ = ["log_pair", "scale_log_pair"]

FloatArray = NDArray[np.float64]

LOG_2 = 0.6931471805599453


@njit(cache=True, nogil=True, error_model="numpy")
def log_sum(x: float, y: float) -> float:
    """``log(exp x + exp y)``."""
    top = max(x, y)
    return top if top == NO_WEIGHT else top + log1p(exp(-abs(x - y)))


@njit(cache=True, nogil=True, error_model="numpy")
def log_gap(x: float, y: float) -> float:
    """``log |exp x - exp y|``."""
    return NO_WEIGHT if x == y else max(x, y) + log(-expm1(-abs(x - y)))


@njit(cache=True, nogil=True, error_model="numpy")
def log_pair(
    coupling: float, p0: float, p1: float, r0: float, r1: float
) -> tuple[float, float, float, float]:
    """``log xi`` at 00, 01, 10, 11 from log-beliefs, any range; see the head of the file."""
    if p0 == NO_WEIGHT or r0 == NO_WEIGHT or p1 == NO_WEIGHT or r1 == NO_WEIGHT:
        return p0 + r0, p0 + r1, p1 + r0, p1 + r1  # a variable that is certain is independent
    if coupling < 0.0:
        r0, r1 = r1, r0
    log_b = -abs(coupling)
    log_c = NO_WEIGHT if coupling == 0.0 else log(-expm1(log_b))
    log_d = log_gap(p1, r1) if p1 <= r0 else log_gap(p0, r0)
    log_s = log_sum(p1 + r0, p0 + r1)
    log_root = 0.5 * log_sum(
        2.0 * log_b, log_sum(LOG_2 + log_b + log_c + log_s, 2.0 * (log_c + log_d))
    )
    is_first = p1 >= r1 if p1 <= r0 else r0 >= p0  # d >= 0
    product = r1 + p0 if is_first else p1 + r0
    small = LOG_2 + log_b + product - log_sum(log_sum(log_b, log_c + log_d), log_root)
    large = log_sum(small, log_d)
    x01, x10 = (small, large) if is_first else (large, small)
    log_e = log_gap(r1, p0) if is_first else log_gap(p1, r0)
    is_low = r1 <= p0 if is_first else p1 <= r0  # p + r <= 1
    one, two = (p1, r1) if is_low else (p0, r0)
    small = LOG_2 + one + two - log_sum(log_sum(log_b, log_c + log_sum(one, two)), log_root)
    large = log_sum(small, log_e)
    x00, x11 = (large, small) if is_low else (small, large)
    if coupling < 0.0:
        return x01, x00, x11, x10
    return x00, x01, x10, x11


@njit(cache=True, nogil=True, error_model="numpy")
def scale_log_pair(
    tables: FloatArray,
    table: int,
    log_beliefs: FloatArray,
    left: int,
    right: int,
    vectors: FloatArray,
    place: int,
) -> None:
    """``u`` of one binary pair in the log domain; of a label without belief it is ``-inf``."""
    t00, t01, t10, t11 = tables[table], tables[table + 1], tables[table + 2], tables[table + 3]
    p0, p1 = log_beliefs[left], log_beliefs[left + 1]
    r0, r1 = log_beliefs[right], log_beliefs[right + 1]
    x00, x01, x10, x11 = log_pair((t00 - t01) + (t11 - t10), p0, p1, r0, r1)
    v00, v01, v10, v11 = x00 - t00, x01 - t01, x10 - t10, x11 - t11
    # u_i(y) + u_j(z) = v_yz; the halves of one that exists are shared out between both
    if p0 > NO_WEIGHT and r0 > NO_WEIGHT:
        half = 0.5 * v00
        own0, own1, other0, other1 = half, v10 - half, half, v01 - half
    elif p0 > NO_WEIGHT:
        half = 0.5 * v01
        own0, own1, other0, other1 = half, v11 - half, NO_WEIGHT, half
    elif r0 > NO_WEIGHT:
        half = 0.5 * v10
        own0, own1, other0, other1 = NO_WEIGHT, half, half, v11 - half
    else:
        half = 0.5 * v11
        own0, own1, other0, other1 = NO_WEIGHT, half, NO_WEIGHT, half
    vectors[place], vectors[place + 1] = own0, own1
    vectors[place + 2], vectors[place + 3] = other0, other1
