"""Factor beliefs ``xi_a = exp(th_a + sum_i u_ai)`` from their vectors (see `scaling`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.factor_messages import next_row
from fieldfit.kernels.scaling import CONSTANT, GENERAL, PAIR, SINGLE
from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = ["fill_table", "fill_tables"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
ByteArray = NDArray[np.uint8]

#: Binary pairs whose tables are filled together, 8 kB: exponents are still in the first-level cache
#: when their exponentials are taken.
PAIRS_AT_ONCE = 256


@njit(cache=True, nogil=True, error_model="numpy")
def fill_table(
    structure: Any,
    tables: FloatArray,
    factor: int,
    lam: FloatArray,
    digits: IntArray,
    prefix: FloatArray,
    scaled: FloatArray,
) -> None:
    """``exp(th_a + sum_i u_ai)`` of one factor; the vectors lie one after the other in ``lam``."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    base = structure.message_offsets[first]
    n_last = structure.cardinalities[structure.slot_variables[last]]
    row_lam = structure.message_offsets[last] - base
    digits[: last - first] = 0
    prefix[0] = 0.0
    changed = first
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for position in range(changed, last):
            offset = structure.message_offsets[position] - base + digits[position - first]
            prefix[position - first + 1] = prefix[position - first] + lam[offset]
        for y in range(n_last):
            value = prefix[last - first] + (tables[row + y] + lam[row_lam + y])
            scaled[row + y] = fast_exp(min(value, 600.0))
        changed = next_row(structure, first, last, digits)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def fill_pair_tables(
    structure: Any,
    kinds: ByteArray,
    tables: FloatArray,
    vectors: FloatArray,
    begin: int,
    end: int,
    scaled: FloatArray,
) -> None:
    """Beliefs of the binary pairs among factors ``begin`` to ``end``."""
    factor = begin
    while factor < end:
        if load(kinds, factor) != PAIR:
            factor += 1
            continue
        # tables of pairs that follow each other are contiguous: exponentials run in SIMD
        first = factor
        while factor < end and factor - first < PAIRS_AT_ONCE and load(kinds, factor) == PAIR:
            place = load(structure.message_offsets, load(structure.scope_offsets, factor))
            table = load(structure.table_offsets, factor)
            own_0, own_1 = load(vectors, place), load(vectors, place + 1)
            other_0, other_1 = load(vectors, place + 2), load(vectors, place + 3)
            store(scaled, table, load(tables, table) + (own_0 + other_0))
            store(scaled, table + 1, load(tables, table + 1) + (own_0 + other_1))
            store(scaled, table + 2, load(tables, table + 2) + (own_1 + other_0))
            store(scaled, table + 3, load(tables, table + 3) + (own_1 + other_1))
            factor += 1
        table = load(structure.table_offsets, first)
        for z in range(table, table + 4 * (factor - first)):
            store(scaled, z, fast_exp(load(scaled, z)))


@njit(cache=True, nogil=True, error_model="numpy")
def fill_tables(
    structure: Any,
    kinds: ByteArray,
    tables: FloatArray,
    beliefs: FloatArray,
    vectors: FloatArray,
    begin: int,
    end: int,
    scaled: FloatArray,
) -> None:
    """Beliefs of all factors ``begin`` to ``end`` from their vectors; see `fill_table`."""
    fill_pair_tables(structure, kinds, tables, vectors, begin, end, scaled)
    width, arity = 1, 1
    for factor in range(begin, end):
        if kinds[factor] == GENERAL:
            first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
            width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
            arity = max(arity, stop - first)
    lam = np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    prefix = np.empty(arity + 1)
    for factor in range(begin, end):
        if kinds[factor] == PAIR:
            continue
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        table = structure.table_offsets[factor]
        if kinds[factor] == CONSTANT:
            scaled[table] = 1.0
        elif kinds[factor] == SINGLE:
            source = structure.unary_offsets[structure.slot_variables[first]]
            for z in range(structure.table_offsets[factor + 1] - table):
                scaled[table + z] = beliefs[source + z]
        else:
            base = structure.message_offsets[first]
            for z in range(structure.message_offsets[stop] - base):
                lam[z] = vectors[base + z]
            fill_table(structure, tables, factor, lam, digits, prefix, scaled)
