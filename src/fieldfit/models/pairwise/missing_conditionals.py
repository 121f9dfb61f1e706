"""Pseudo-likelihood of rows with missing labels: all conditionals from one table of the latter.

For a row with known labels and missing variables ``U`` let

    W(s) = exp(terms of the score that touch U, with y_U = s)       one table for the row
    R_ik(s) = prod over u in U of exp(J_iu(k, s_u) - J_iu(y_i, s_u))
    A_ik = sum_s W(s) R_ik(s) / sum_s W(s)

The conditional of a known variable ``i`` is the logistic regression on the known labels, with the
odds of ``k`` against ``y_i`` multiplied by ``A_ik``:

    - log p(y_i | known) = log (1 + sum over k != y_i of exp(h_i(k) - h_i(y_i)) A_ik)
    h_i(k) = f_i(k) + sum over known neighbours j of J_ij(k, y_j)

``A_ik`` contracts the table with one vector for each missing variable, one after the other: about
``K**|U|`` multiplications and no exponential.  The gradient is the same in reverse.  A *lane* is
one pair ``(i, k)``; lanes lie next to each other, `BLOCK` at a time, and run in SIMD.

**Range.**  The table and each vector are scaled to maximum 1.  What underflows is below 1e-300, so
a sum above `TINY` is right to full precision; where one is smaller, the variable is enumerated in
the log domain (`fieldfit.models.pairwise.missing_labels`).

Reference: Besag, "Statistical analysis of non-lattice data", The Statistician 24 (1975).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, Index, LongArray
from fieldfit.models.pairwise.missing_labels import (
    FreeScratch,
    free_log_sum,
    free_missing,
    own_log_sum,
)
from fieldfit.models.pairwise.sample_conditionals import Neighbors
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.lane_products import (
    contract_rows,
    contract_table,
    spread_to_rows,
    spread_to_table,
)
from fieldfit.numeric.matrix_vector import LANES, add_row
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store

__all__ = ["missing_conditionals"]

Row = NDArray[np.int16]

#: Lanes that a kernel takes at a time: four vectors of four doubles.
BLOCK = 16
#: The same as a tuple, whose length is known when a kernel is compiled.
BLOCK_LANES = (0.0,) * BLOCK
#: One vector.
FOUR = (0.0,) * LANES
#: Lanes that are kept at once; a variable with more is alone.
MAX_LANES = 64
#: Sums below this are computed again in the log domain.
TINY = 1e-250


class Turned(NamedTuple):
    """Potentials, or a gradient, with each edge at both ends and the own label fastest.

    Rows have the number of labels rounded up to a multiple of `LANES`.
    """

    unary: FloatArray  # (n_variables * row,)
    rows: FloatArray  # (2 n_edges * K * row,) [entry of the neighbours, label of the other, own]


class Contraction(NamedTuple):
    """Memory for the contractions of one row; blocks of lanes one after the other."""

    n_labels: int
    table: FloatArray  # (K**max_missing,) W, the first missing variable fastest
    table_slopes: FloatArray  # (K**max_missing,)
    ratios: FloatArray  # (n_blocks * max_missing * K * BLOCK,) the vectors of each lane
    ratio_slopes: FloatArray  # the same
    sums: FloatArray  # (n_blocks * block_size,) the table after each contraction
    block_sizes: LongArray  # (max_missing + 1,) by the number of missing labels
    odds: FloatArray  # (n_blocks * BLOCK,) log odds of each lane against the own label, then slopes
    scales: FloatArray  # (n_blocks * BLOCK,) logarithms that were taken out of the vectors
    terms: FloatArray  # (row,) of one variable with known ones, then their slopes


@kernel
def missing_conditionals(
    neighbors: Neighbors,
    unary: FloatArray,
    tables: FloatArray,
    labels: NDArray[np.int16],
    sample_weights: FloatArray,
    unary_gradient: FloatArray,
    table_gradient: FloatArray,
    scratch: FreeScratch,
) -> float:
    """``- sum_m v_m sum over known i of log p(y_mi | other known)``; its gradient is added.

    Every row has a missing label.
    """
    n_variables, n_labels = unary.shape
    width = -(-n_labels // LANES) * LANES
    model = _turned(neighbors, unary, tables, width)
    gradient = Turned(np.zeros(len(model.unary)), np.zeros(len(model.rows)))
    work = _new_contraction(n_labels, len(scratch.free) - 1, width)
    at_once = max(1, MAX_LANES // max(1, n_labels - 1))
    known = np.empty(n_variables, dtype=np.int64)
    value = 0.0
    for m in range(labels.shape[0]):
        row, weight = labels[m], sample_weights[m]
        n_missing = free_missing(row, scratch)
        total = _missing_table(neighbors, model, row, n_missing, scratch, work)
        n_known = 0
        for variable in range(n_variables):
            if row[variable] >= 0:
                known[n_known] = variable
                n_known += 1
        taken, n_enumerated = 0.0, 0
        for begin in range(0, n_known, at_once):
            chosen = known[begin : min(begin + at_once, n_known)]
            n_lanes = len(chosen) * (n_labels - 1)
            n_blocks = -(-n_lanes // BLOCK)
            _set_lanes(neighbors, model, row, chosen, n_missing, scratch, work)
            for block in range(n_blocks):
                _contract(block, n_labels, n_missing, work)
            for position in range(len(chosen)):
                found, slopes, in_range = _conditional(
                    position, n_labels, n_missing, total, weight, work
                )
                if in_range:
                    value += weight * found
                    taken += slopes
                else:
                    n_enumerated += 1
                    value += weight * own_log_sum(
                        neighbors, unary, tables, row, chosen[position], n_missing, weight,
                        unary_gradient, table_gradient, scratch,
                    )  # fmt: skip
            for lane in range(n_lanes, n_blocks * BLOCK):
                work.sums[_last_sum(lane, work.block_sizes[n_missing])] = 0.0
            for block in range(n_blocks):
                _contract_back(block, n_labels, n_missing, work)
            _add_lanes(neighbors, row, chosen, n_missing, gradient, scratch, work)
        if n_enumerated > 0:
            value -= n_enumerated * weight * free_log_sum(
                neighbors, unary, tables, row, n_missing, -n_enumerated * weight,
                unary_gradient, table_gradient, scratch,
            )  # fmt: skip
        _add_missing(neighbors, row, n_missing, taken / total, gradient, scratch, work)
    _add_turned(neighbors, gradient, unary_gradient, table_gradient)
    return value


@kernel
def _new_contraction(n_labels: int, max_missing: int, row: int) -> Contraction:
    n_blocks = -(-max(MAX_LANES, n_labels - 1) // BLOCK)
    n_ratios = n_blocks * max_missing * n_labels * BLOCK
    block_sizes = np.zeros(max_missing + 1, dtype=np.int64)
    for n_missing in range(1, max_missing + 1):
        block_sizes[n_missing] = block_sizes[n_missing - 1] + n_labels ** (n_missing - 1) * BLOCK
    return Contraction(
        n_labels,
        np.empty(n_labels**max_missing),
        np.empty(n_labels**max_missing),
        np.empty(n_ratios),
        np.empty(n_ratios),
        np.empty(n_blocks * block_sizes[max_missing]),
        block_sizes,
        np.empty(n_blocks * BLOCK),
        np.empty(n_blocks * BLOCK),
        np.zeros(row),
    )


# -- Potentials at both ends of an edge, and terms of one variable with known ones ---------


# Loops over single entries: array expressions would take seconds to compile.


@kernel
def _turned(neighbors: Neighbors, unary: FloatArray, tables: FloatArray, width: int) -> Turned:
    """``rows[entry, l, k] = J(own label k, label l of the neighbour)``, zero beyond the labels."""
    n_variables, n_labels = unary.shape
    fields = np.zeros(n_variables * width)
    for variable in range(n_variables):
        for k in range(n_labels):
            fields[variable * width + k] = unary[variable, k]
    rows = np.zeros(len(neighbors.edges) * n_labels * width)
    for entry in range(len(neighbors.edges)):
        edge, side = neighbors.edges[entry], neighbors.sides[entry]
        for other in range(n_labels):
            start = (entry * n_labels + other) * width
            for k in range(n_labels):
                rows[start + k] = tables[edge, k, other] if side == 0 else tables[edge, other, k]
    return Turned(fields, rows)


@kernel
def _add_turned(
    neighbors: Neighbors, turned: Turned, unary_gradient: FloatArray, table_gradient: FloatArray
) -> None:
    """The transpose of `_turned`."""
    n_variables, n_labels = unary_gradient.shape
    width = len(turned.unary) // n_variables
    for variable in range(n_variables):
        for k in range(n_labels):
            unary_gradient[variable, k] += turned.unary[variable * width + k]
    for entry in range(len(neighbors.edges)):
        edge, side = neighbors.edges[entry], neighbors.sides[entry]
        for other in range(n_labels):
            start = (entry * n_labels + other) * width
            for k in range(n_labels):
                if side == 0:
                    table_gradient[edge, k, other] += turned.rows[start + k]
                else:
                    table_gradient[edge, other, k] += turned.rows[start + k]


@kernel(forceinline=True)
def _add_row(target: FloatArray, start: Index, source: FloatArray, row: Index, width: int) -> None:
    """``target[start + k] += source[row + k]`` for ``k < width``."""
    for k in range(0, width, LANES):
        add_row(FOUR, target, start + k, source, row + k)


@kernel(forceinline=True)
def _set_terms(
    neighbors: Neighbors,
    model: Turned,
    row: Row,
    variable: int,
    n_labels: int,
    terms: FloatArray,
) -> None:
    """``terms[k] = h_i(k)``."""
    for k in range(len(terms)):
        terms[k] = 0.0
    _add_row(terms, 0, model.unary, variable * len(terms), len(terms))
    for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
        label = np.int64(row[neighbors.variables[entry]])
        if label >= 0:
            start = (entry * n_labels + label) * len(terms)
            _add_row(terms, 0, model.rows, start, len(terms))


@kernel(forceinline=True)
def _add_terms(
    neighbors: Neighbors,
    row: Row,
    variable: int,
    n_labels: int,
    terms: FloatArray,
    gradient: Turned,
) -> None:
    """The transpose of `_set_terms`."""
    _add_row(gradient.unary, variable * len(terms), terms, 0, len(terms))
    for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
        label = np.int64(row[neighbors.variables[entry]])
        if label >= 0:
            start = (entry * n_labels + label) * len(terms)
            _add_row(gradient.rows, start, terms, 0, len(terms))


# -- The table of the missing labels -------------------------------------------------------


@kernel(fastmath=SAFE_FASTMATH)
def _missing_table(
    neighbors: Neighbors,
    model: Turned,
    row: Row,
    n_missing: int,
    scratch: FreeScratch,
    work: Contraction,
) -> float:
    """``W`` with maximum 1, grown by one missing variable at a time; returns its sum."""
    n_labels, table = work.n_labels, work.table
    table[0] = 0.0
    size = 1
    for position in range(n_missing):
        variable = scratch.free[position]
        _set_terms(neighbors, model, row, variable, n_labels, work.terms)
        for own in range(n_labels - 1, -1, -1):
            term = work.terms[own]
            for c in range(size):
                store(table, own * size + c, load(table, c) + term)
        for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
            earlier = scratch.is_free[neighbors.variables[entry]]
            if earlier < 0 or earlier > position:
                continue
            stride = n_labels**earlier
            for other in range(n_labels):
                for own in range(n_labels):
                    term = load(model.rows, (entry * n_labels + other) * len(work.terms) + own)
                    first = own * size + other * stride
                    for begin in range(first, (own + 1) * size, stride * n_labels):
                        for c in range(begin, begin + stride):
                            store(table, c, load(table, c) + term)
        size *= n_labels
    largest = -np.inf
    for c in range(size):
        largest = max(largest, load(table, c))
    total = 0.0
    for c in range(size):
        weight = fast_exp(load(table, c) - largest)
        store(table, c, weight)
        store(work.table_slopes, c, 0.0)
        total += weight
    return total


@kernel(fastmath=SAFE_FASTMATH)
def _add_missing(
    neighbors: Neighbors,
    row: Row,
    n_missing: int,
    taken: float,
    gradient: Turned,
    scratch: FreeScratch,
    work: Contraction,
) -> None:
    """Transpose of `_missing_table`; ``taken`` is the slope of minus the sum of the table."""
    n_labels, slopes = work.n_labels, work.table_slopes
    size = n_labels**n_missing
    for c in range(size):
        store(slopes, c, load(work.table, c) * (load(slopes, c) - taken))
    for position in range(n_missing - 1, -1, -1):
        variable = scratch.free[position]
        size //= n_labels
        for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
            earlier = scratch.is_free[neighbors.variables[entry]]
            if earlier < 0 or earlier > position:
                continue
            stride = n_labels**earlier
            for other in range(n_labels):
                for own in range(n_labels):
                    total = 0.0
                    first = own * size + other * stride
                    for begin in range(first, (own + 1) * size, stride * n_labels):
                        for c in range(begin, begin + stride):
                            total += load(slopes, c)
                    gradient.rows[(entry * n_labels + other) * len(work.terms) + own] += total
        for own in range(n_labels):
            total = 0.0
            for c in range(own * size, (own + 1) * size):
                total += load(slopes, c)
            work.terms[own] = total
        _add_terms(neighbors, row, variable, n_labels, work.terms, gradient)
        for own in range(1, n_labels):
            for c in range(size):
                store(slopes, c, load(slopes, c) + load(slopes, own * size + c))


# -- Conditionals of known variables -------------------------------------------------------


@kernel(fastmath=SAFE_FASTMATH)
def _set_lanes(
    neighbors: Neighbors,
    model: Turned,
    row: Row,
    chosen: LongArray,
    n_missing: int,
    scratch: FreeScratch,
    work: Contraction,
) -> None:
    """Log odds from known neighbours, and the vectors of missing ones, of some known variables."""
    n_labels = work.n_labels
    n_ratios = -(-len(chosen) * (n_labels - 1) // BLOCK) * n_missing * n_labels * BLOCK
    for index in range(n_ratios):
        store(work.ratios, index, 0.0)
        store(work.ratio_slopes, index, 0.0)
    for position in range(len(chosen)):
        variable = chosen[position]
        own, lane = np.int64(row[variable]), position * (n_labels - 1)
        _set_terms(neighbors, model, row, variable, n_labels, work.terms)
        for k in range(n_labels):
            if k != own:
                store(work.odds, lane, load(work.terms, k) - load(work.terms, own))
                store(work.scales, lane, 0.0)
                lane += 1
        for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
            missing = scratch.is_free[neighbors.variables[entry]]
            if missing < 0:
                continue
            lane = position * (n_labels - 1)
            for k in range(n_labels):
                if k == own:
                    continue
                start = (lane // BLOCK * n_missing + missing) * n_labels * BLOCK + lane % BLOCK
                largest = -np.inf
                for s in range(n_labels):
                    first = (entry * n_labels + s) * len(work.terms)
                    ratio = load(model.rows, first + k) - load(model.rows, first + own)
                    store(work.ratios, start + s * BLOCK, ratio)
                    largest = max(largest, ratio)
                for s in range(n_labels):
                    index = start + s * BLOCK
                    store(work.ratios, index, load(work.ratios, index) - largest)
                store(work.scales, lane, load(work.scales, lane) + largest)
                lane += 1
    for index in range(n_ratios):
        store(work.ratios, index, fast_exp(load(work.ratios, index)))


@kernel(fastmath=SAFE_FASTMATH)
def _add_lanes(
    neighbors: Neighbors,
    row: Row,
    chosen: LongArray,
    n_missing: int,
    gradient: Turned,
    scratch: FreeScratch,
    work: Contraction,
) -> None:
    """Transpose of `_set_lanes`."""
    n_labels = work.n_labels
    for position in range(len(chosen)):
        variable = chosen[position]
        own, lane = np.int64(row[variable]), position * (n_labels - 1)
        total = 0.0
        for k in range(n_labels):
            if k != own:
                store(work.terms, k, load(work.odds, lane))
                total += load(work.odds, lane)
                lane += 1
        store(work.terms, own, -total)
        _add_terms(neighbors, row, variable, n_labels, work.terms, gradient)
        for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
            missing = scratch.is_free[neighbors.variables[entry]]
            if missing < 0:
                continue
            lane = position * (n_labels - 1)
            for k in range(n_labels):
                if k == own:
                    continue
                start = (lane // BLOCK * n_missing + missing) * n_labels * BLOCK + lane % BLOCK
                for s in range(n_labels):
                    index, first = start + s * BLOCK, (entry * n_labels + s) * len(work.terms)
                    slope = load(work.ratios, index) * load(work.ratio_slopes, index)
                    store(gradient.rows, first + k, load(gradient.rows, first + k) + slope)
                    store(gradient.rows, first + own, load(gradient.rows, first + own) - slope)
                lane += 1


@kernel
def _contract(block: int, n_labels: int, n_missing: int, work: Contraction) -> None:
    """``X_0 = W``, ``X_(t+1)(c) = sum_s X_t(c K + s) R_t(s)`` for each lane of a block."""
    row = block * n_missing * n_labels * BLOCK
    into = block * work.block_sizes[n_missing]
    size = n_labels ** (n_missing - 1)
    for c in range(size):
        contract_table(
            BLOCK_LANES, n_labels, work.table, c * n_labels, work.ratios, row,
            work.sums, into + c * BLOCK,
        )  # fmt: skip
    for _ in range(1, n_missing):
        source, into = into, into + size * BLOCK
        size //= n_labels
        row += n_labels * BLOCK
        for c in range(size):
            contract_rows(
                BLOCK_LANES, n_labels, work.sums, source + c * n_labels * BLOCK, work.ratios, row,
                work.sums, into + c * BLOCK,
            )  # fmt: skip


@kernel
def _contract_back(block: int, n_labels: int, n_missing: int, work: Contraction) -> None:
    """Transpose of `_contract`; slopes take the place of the sums, the last ones are there."""
    first = block * n_missing * n_labels * BLOCK
    after = (block + 1) * work.block_sizes[n_missing] - BLOCK
    size = 1
    for step in range(n_missing - 1, 0, -1):
        before = after - size * n_labels * BLOCK
        for c in range(size):
            spread_to_rows(
                BLOCK_LANES, n_labels, work.sums, after + c * BLOCK,
                before + c * n_labels * BLOCK, work.ratios, work.ratio_slopes,
                first + step * n_labels * BLOCK,
            )  # fmt: skip
        after = before
        size *= n_labels
    for c in range(size):
        spread_to_table(
            BLOCK_LANES, n_labels, work.sums, after + c * BLOCK, work.table, work.table_slopes,
            c * n_labels, work.ratios, work.ratio_slopes, first,
        )  # fmt: skip


@kernel(forceinline=True)
def _last_sum(lane: int, block_size: int) -> int:
    """Where the last contraction of a lane is."""
    return (lane // BLOCK + 1) * block_size - BLOCK + lane % BLOCK


@kernel(forceinline=True)
def _conditional(
    position: int, n_labels: int, n_missing: int, total: float, weight: float, work: Contraction
) -> tuple[float, float, bool]:
    """``- log p`` of one variable, the sum of its slopes, and whether its sums are in range.

    Its lanes get ``weight`` times the probabilities, its sums the slopes of the contraction.
    """
    block_size = work.block_sizes[n_missing]
    first, last = position * (n_labels - 1), (position + 1) * (n_labels - 1)
    largest, in_range = 0.0, True
    for lane in range(first, last):
        found = work.sums[_last_sum(lane, block_size)]
        in_range = in_range and found >= TINY
        if in_range:
            work.odds[lane] += work.scales[lane] + fast_log(found / total)
            largest = max(largest, work.odds[lane])
    if not in_range:
        for lane in range(first, last):
            work.odds[lane] = 0.0
            work.sums[_last_sum(lane, block_size)] = 0.0
        return 0.0, 0.0, False
    normaliser = fast_exp(-largest)
    for lane in range(first, last):
        work.odds[lane] = fast_exp(work.odds[lane] - largest)
        normaliser += work.odds[lane]
    slopes = 0.0
    for lane in range(first, last):
        work.odds[lane] *= weight / normaliser
        work.sums[_last_sum(lane, block_size)] = (
            work.odds[lane] / work.sums[_last_sum(lane, block_size)]
        )
        slopes += work.odds[lane]
    return largest + fast_log(normaliser), slopes, True
