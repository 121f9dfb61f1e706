"""Tables of regions: potentials collected in them, margins, products, and Kikuchi's free energy.

- F(b) = sum_r <th_r, b_r> + c_r H(b_r)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, IntArray
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store

# -- sums and products of a table over a map, in the linear and in the log domain ---------


@kernel(fastmath=SAFE_FASTMATH)
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


@kernel(fastmath=SAFE_FASTMATH)
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


@kernel
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


@kernel
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


# -- all regions --------------------------------------------------------------------------


@kernel
def add_tables(
    table_offsets: IntArray,
    hosts: IntArray,
    host_maps: NDArray[np.int64],
    maps: IntArray,
    offsets: IntArray,
    tables: FloatArray,
    potential: FloatArray,
) -> None:
    """Add each table to the potential of its host region (a negative host has none)."""
    for index in range(len(hosts)):
        host = hosts[index]
        if host < 0:
            continue
        begin, base, at = table_offsets[host], host_maps[index], offsets[index]
        for x in range(table_offsets[host + 1] - begin):
            potential[begin + x] += tables[at + maps[base + x]]


@kernel
def sum_tables(
    table_offsets: IntArray,
    hosts: IntArray,
    host_maps: NDArray[np.int64],
    maps: IntArray,
    offsets: IntArray,
    log_belief: FloatArray,
    tables: FloatArray,
) -> None:
    """Fill each table with the normalised sums of the belief of its host region."""
    for index in range(len(hosts)):
        host = hosts[index]
        first, last = offsets[index], offsets[index + 1]
        if host < 0:
            tables[first:last] = 1.0
            continue
        begin, base = table_offsets[host], host_maps[index]
        norm = log_total(log_belief, begin, table_offsets[host + 1])
        tables[first:last] = 0.0
        total = 0.0
        for x in range(table_offsets[host + 1] - begin):
            weight = np.exp(log_belief[begin + x] - norm)
            tables[first + maps[base + x]] += weight
            total += weight
        for entry in range(first, last):
            tables[entry] /= total


@kernel
def product_tables_of_regions(
    table_offsets: IntArray,
    scope_offsets: IntArray,
    scope_variables: IntArray,
    cardinalities: IntArray,
    unary_offsets: IntArray,
    log_unary: FloatArray,
    log_belief: FloatArray,
) -> None:
    """Fill the log-belief of every region with the sum of those of its variables."""
    for region in range(len(scope_offsets) - 1):
        begin = table_offsets[region]
        size = 1
        log_belief[begin] = 0.0
        for slot in range(scope_offsets[region], scope_offsets[region + 1]):
            variable = scope_variables[slot]
            cardinality, offset = cardinalities[variable], unary_offsets[variable]
            # expand in place from the back: entry i becomes entries i K ... i K + K - 1
            for i in range(size - 1, -1, -1):
                before = log_belief[begin + i]
                for y in range(cardinality):
                    log_belief[begin + i * cardinality + y] = before + log_unary[offset + y]
            size *= cardinality


@kernel
def kikuchi_terms(
    table_offsets: IntArray,
    counts: FloatArray,
    potential: FloatArray,
    log_belief: FloatArray,
    terms: FloatArray,
) -> None:
    """``<th_r, b_r> + c_r H(b_r)`` of every region, with ``0 * -inf = 0``."""
    for region in range(len(table_offsets) - 1):
        term = 0.0
        for entry in range(table_offsets[region], table_offsets[region + 1]):
            if log_belief[entry] > -np.inf:
                term += np.exp(log_belief[entry]) * (
                    potential[entry] - counts[region] * log_belief[entry]
                )
        terms[region] = term
