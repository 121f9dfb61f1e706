r"""Tables of binary pairs with given margins: the last step from messages to a point of a polytope.

For given beliefs ``q`` of the variables and a factor entropy of weight ``c_a``, the table that
maximises ``<th_a, x_a> + c_a H(x_a)`` among those with margins ``q_i, q_j`` is known in closed form
for two binary variables (Welling and Teh, "Belief optimization for binary networks", UAI 2001; the
formula that keeps all digits is derived in `fieldfit.kernels.scaling`).  Messages need not have
converged for that: whatever the beliefs of the variables are, the result is locally consistent to
rounding.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = ["fill_consistent_pairs"]

FloatArray = NDArray[np.float64]

#: Smallest divisor: where one vanishes, so does what is divided.
TINY = 2.2250738585072014e-308


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def fill_consistent_pairs(
    structure: Any,
    log_tables: FloatArray,
    factor_weight: FloatArray,
    unary: FloatArray,
    tables: FloatArray,
) -> None:
    """Tables of all factors, which must join two binary variables each, with margins ``unary``."""
    for factor in range(len(factor_weight)):
        first = load(structure.scope_offsets, factor)
        left = load(structure.unary_offsets, load(structure.slot_variables, first))
        right = load(structure.unary_offsets, load(structure.slot_variables, first + 1))
        table = load(structure.table_offsets, factor)
        strength = (
            (load(log_tables, table) - load(log_tables, table + 1))
            + (load(log_tables, table + 3) - load(log_tables, table + 2))
        ) / load(factor_weight, factor)
        one, not_one = load(unary, left + 1), load(unary, left)
        straight, crossed = load(unary, right + 1), load(unary, right)
        is_flipped = strength < 0.0
        two = crossed if is_flipped else straight
        not_two = straight if is_flipped else crossed
        b = fast_exp(-abs(strength))
        c = 1.0 - b
        difference = one - two if one <= not_two else not_two - not_one
        is_first = difference >= 0.0
        gap = abs(difference)
        root = sqrt(
            b * b + 2.0 * b * c * (one * not_two + not_one * two) + c * c * difference * difference
        )
        product = two * not_one if is_first else one * not_two
        small = 2.0 * b * product / max(b + c * gap + root, TINY)
        x01 = small if is_first else small + gap
        x10 = small + gap if is_first else small
        excess = two - not_one if is_first else one - not_two
        is_low = excess <= 0.0
        product = one * two if is_low else not_one * not_two
        total = one + two if is_low else not_one + not_two
        small = 2.0 * product / max(b + c * total + root, TINY)
        x00 = small + abs(excess) if is_low else small
        x11 = small if is_low else small + abs(excess)
        store(tables, table, x01 if is_flipped else x00)
        store(tables, table + 1, x00 if is_flipped else x01)
        store(tables, table + 2, x11 if is_flipped else x10)
        store(tables, table + 3, x10 if is_flipped else x11)
