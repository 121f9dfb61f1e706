"""Product distributions: factor beliefs and expectations from unary beliefs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

#: Products of positive beliefs are kept at least this large: zero must mean "impossible".
SMALLEST = 1e-300


@njit(cache=True, nogil=True, error_model="numpy")
def positive_product(x: float, y: float) -> float:
    """``x * y`` for beliefs; zero only if one of them is zero."""
    product = x * y
    if product < SMALLEST and x > 0.0 and y > 0.0:
        return SMALLEST
    return product


@njit(cache=True, nogil=True, error_model="numpy")
def product_tables(
    structure: Any,
    beliefs: FloatArray,
    tables: FloatArray,
    products: FloatArray,
    expectations: FloatArray,
) -> None:
    """Fill every factor's belief ``prod_{i in a} b_i`` and its ``E_b[th_a]``.

    An expectation is ``-inf`` if and only if a configuration of positive probability is forbidden.
    """
    for factor in range(len(structure.scope_offsets) - 1):
        begin = structure.table_offsets[factor]
        size = 1
        products[begin] = 1.0
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            variable = structure.slot_variables[slot]
            cardinality = structure.cardinalities[variable]
            offset = structure.unary_offsets[variable]
            # expand in place from the back: entry i becomes entries i K ... i K + K - 1
            for i in range(size - 1, -1, -1):
                before = products[begin + i]
                for y in range(cardinality):
                    products[begin + i * cardinality + y] = positive_product(
                        before, beliefs[offset + y]
                    )
            size *= cardinality
        expected = 0.0
        for entry in range(begin, begin + size):
            if products[entry] > 0.0:
                expected += products[entry] * tables[entry]
        expectations[factor] = expected
