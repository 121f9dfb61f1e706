"""How often each label and each configuration of a factor occurs in samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["count_configurations"]

FloatArray = NDArray[np.float64]


@njit(cache=True, nogil=True, error_model="numpy")
def count_configurations(
    structure: Any,
    columns: NDArray[np.int32],
    weights: FloatArray,
    unary: FloatArray,
    tables: FloatArray,
) -> None:
    """Add the weight of every sample to the entries that it selects.

    ``columns`` holds the samples variable by variable: the table of one factor stays in the cache
    while its few columns are read in order.
    """
    n_samples = columns.shape[1]
    for variable in range(len(structure.cardinalities)):
        start = structure.unary_offsets[variable]
        for sample in range(n_samples):
            unary[start + columns[variable, sample]] += weights[sample]
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        start = structure.table_offsets[factor]
        for sample in range(n_samples):
            entry = 0
            for slot in range(begin, end):
                variable = structure.slot_variables[slot]
                entry = entry * structure.cardinalities[variable] + columns[variable, sample]
            tables[start + entry] += weights[sample]
