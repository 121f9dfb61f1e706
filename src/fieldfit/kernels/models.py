"""The two forms in which mean-field and Gibbs sweeps take a model.

`GeneralModel` is the graph with its numbers, for any arity, cardinality and hard zero.
`BinaryPairwise` is for binary variables and factors of arity at most two without hard zeros in
their tables.  With labels 0 and 1, all that a variable's conditional distribution or mean-field
update needs is the log odds, and these are linear in the (expected) labels of the neighbours:

    h_j = c_j + sum_{a = (j, i)} w_a y_i,
    c_j = th_j(1) - th_j(0) + sum_a [th_a(1, 0) - th_a(0, 0)],
    w_a = [th_a(1, 1) - th_a(0, 1)] - [th_a(1, 0) - th_a(0, 0)]      (own label first).

One multiplication for each neighbour and one exponential for each variable replace four table
look-ups and two exponentials; building the form costs about as much as one sweep without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


class GeneralModel(NamedTuple):
    """Any model; a sweep visits ``variables`` in their order."""

    structure: Any
    unary: FloatArray  # factors of arity one and evidence folded in
    tables: FloatArray
    hard: NDArray[np.bool_]  # by factor: arity at least two and some entry is -inf
    variables: IntArray
    max_labels: int
    max_arity: int


class BinaryPairwise(NamedTuple):
    """Rows in the order of a sweep, so that a sweep reads memory from front to back.

    Row ``k`` belongs to variable ``variables[k]``; its neighbours and couplings are entries
    ``offsets[k]:offsets[k + 1]``.
    """

    variables: IntArray
    fields: FloatArray
    offsets: IntArray
    neighbors: IntArray
    couplings: FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def binary_pairwise(
    structure: Any, unary: FloatArray, tables: FloatArray, order: IntArray
) -> BinaryPairwise:
    """The linear form; ``unary`` may hold -inf (evidence), tables of arity two may not."""
    n_variables = len(order)
    n_entries = len(structure.variable_slots)
    fields = np.empty(n_variables)
    offsets = np.zeros(n_variables + 1, dtype=np.int32)
    neighbors = np.empty(n_entries, dtype=np.int32)
    couplings = np.empty(n_entries)
    entry = 0
    for row in range(n_variables):
        variable = order[row]
        field = unary[2 * variable + 1] - unary[2 * variable]
        for position in range(
            structure.variable_slot_offsets[variable],
            structure.variable_slot_offsets[variable + 1],
        ):
            slot = structure.variable_slots[position]
            factor = structure.slot_factors[slot]
            first = structure.scope_offsets[factor]
            table = structure.table_offsets[factor]
            own_stride = 2 if slot == first else 1
            other_stride = 3 - own_stride
            without = tables[table + own_stride] - tables[table]
            with_neighbor = tables[table + 3] - tables[table + other_stride]
            field += without
            neighbors[entry] = structure.slot_variables[first + 1 if slot == first else first]
            couplings[entry] = with_neighbor - without
            entry += 1
        fields[row] = field
        offsets[row + 1] = entry
    return BinaryPairwise(order, fields, offsets, neighbors, couplings)
