"""Tables of regions: potentials collected in them, sums of them, products, values."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.region_sums import log_total

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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
