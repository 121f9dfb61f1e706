r"""Iterative proportional fitting (Sinkhorn): factor beliefs with given margins, any arity.

    xi_a(y_a) = exp(th_a(y_a) + sum_{i in a} u_ai(y_i)),    margins q_i

Iterative proportional fitting sets one vector after the other to what its own margin asks for,

    u_ai(y_i) = log q_i(y_i) - log sum_{y_a \ y_i} exp(th_a + sum_{j != i} u_aj)

which is Sinkhorn's iteration for pairs.  It needs about ``exp(W / 2)`` rounds for couplings of size
``W``; so after a few rounds a step of Newton's method follows on the concave function whose
coordinates the rounds maximise,

    D(u) = sum_i <u_ai, q_i> - sum_{y_a} xi_a(y_a)

shortened where it is long, and rounds again.  Rounds run in the linear domain on the table that the
vectors so far have scaled, the first one, and whatever would underflow, in the log domain.

If hard zeros forbid every belief with these margins there is no such ``u``; the rounds do not
converge, and the term of the free energy is ``+inf``.

References: Deming and Stephan, Annals of Mathematical Statistics 11 (1940); Sinkhorn, American
Mathematical Monthly 74 (1967); Knight and Ruiz, "A fast algorithm for matrix balancing", IMA
Journal of Numerical Analysis 33 (2013), for Newton's method.
"""

from __future__ import annotations

from math import log, log1p, sqrt

import numpy as np

from fieldfit._typing import ByteArray, FloatArray, IntArray
from fieldfit.graph.structure import Structure, next_row
from fieldfit.inference.free_energy.binary_pair_fitting import CONSTANT, GENERAL, PAIR, SINGLE
from fieldfit.inference.messages.factor_update import contract_exact, contract_sum
from fieldfit.inference.messages.message_arrays import NO_WEIGHT, TINY
from fieldfit.numeric.cholesky import cholesky_root, cholesky_solve
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = ["fill_table", "fill_tables", "fit_factors"]

# -- factor beliefs from their vectors ------------------------------------------------------------

#: Binary pairs whose tables are filled together, 8 kB: exponents are still in the first-level cache
#: when their exponentials are taken.
PAIRS_AT_ONCE = 256


@kernel
def fill_table(
    structure: Structure,
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


@kernel(fastmath=SAFE_FASTMATH)
def fill_pair_tables(
    structure: Structure,
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


@kernel
def fill_tables(
    structure: Structure,
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


# -- fitting --------------------------------------------------------------------------------------

#: Rounds between two steps of Newton's method: its cost is about that of ten rounds.
ROUNDS = 12
#: Multipliers beyond these bounds are moved into the vectors, before they over- or underflow.
LARGEST_MULTIPLIER = 1e100
#: Newton's method solves systems up to this size; larger factors have rounds only.
LARGEST_SYSTEM = 256
#: A pivot below this fraction of its diagonal entry is rounding.
SMALLEST_PIVOT = 1e-13


@kernel
def log_round(
    structure: Structure,
    tables: FloatArray,
    factor: int,
    log_beliefs: FloatArray,
    lam: FloatArray,
    outer: FloatArray,
    digits: IntArray,
    prefix: FloatArray,
) -> float:
    """One round in the log domain; the largest change, ``inf`` if a label is impossible."""
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    base = structure.message_offsets[first]
    largest = 0.0
    for slot in range(first, stop):
        contract_exact(structure, tables, slot, factor, 1.0, lam, outer, digits, prefix)
        source = structure.unary_offsets[structure.slot_variables[slot]]
        start = structure.message_offsets[slot] - base
        for y in range(structure.message_offsets[slot + 1] - base - start):
            value = NO_WEIGHT
            if log_beliefs[source + y] > NO_WEIGHT:
                if outer[start + y] == NO_WEIGHT:
                    return np.inf
                value = log_beliefs[source + y] - outer[start + y]
                largest = max(largest, abs(value - lam[start + y]))
            lam[start + y] = value
    return largest


@kernel
def linear_rounds(
    structure: Structure,
    scaled: FloatArray,
    factor: int,
    beliefs: FloatArray,
    tol: float,
    lam: FloatArray,
    inner: FloatArray,
    outer: FloatArray,
    digits: IntArray,
    prefix: FloatArray,
) -> float:
    """Some rounds on the scaled table; the largest change in the last one."""
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    base = structure.message_offsets[first]
    width = structure.message_offsets[stop] - base
    inner[:width] = 1.0
    largest = np.inf
    is_safe = True
    for _ in range(ROUNDS):
        largest = 0.0
        for slot in range(first, stop):
            contract_sum(structure, scaled, slot, factor, inner, outer, digits, prefix)
            source = structure.unary_offsets[structure.slot_variables[slot]]
            start = structure.message_offsets[slot] - base
            for y in range(structure.message_offsets[slot + 1] - base - start):
                belief = beliefs[source + y]
                if belief == 0.0 or not is_safe:
                    continue
                if outer[start + y] < TINY:
                    is_safe = False
                    continue
                value = belief / outer[start + y]
                largest = max(largest, abs(value / inner[start + y] - 1.0))
                is_safe = 1.0 / LARGEST_MULTIPLIER < value < LARGEST_MULTIPLIER
                inner[start + y] = value
        if largest <= tol or not is_safe:
            break
    for z in range(width):
        lam[z] += log(inner[z])
    return largest if is_safe else np.inf


@kernel
def newton_step(
    structure: Structure,
    scaled: FloatArray,
    factor: int,
    beliefs: FloatArray,
    lam: FloatArray,
    digits: IntArray,
    matrix: FloatArray,
    work: FloatArray,
) -> None:
    """One step of Newton's method on the vectors of a factor whose table has been scaled.

    The matrix holds the margins of single labels and of pairs of labels, with its diagonal scaled
    to 1.  Of every slot but the first one label stays put: constants may move between vectors.
    """
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    base = structure.message_offsets[first]
    width = structure.message_offsets[stop] - base
    step, scale, least = work[0], work[1], work[2]
    _fill_margins(structure, scaled, factor, digits, matrix)
    for slot in range(first, stop):
        source = structure.unary_offsets[structure.slot_variables[slot]]
        start = structure.message_offsets[slot] - base
        pinned = -1
        for y in range(structure.message_offsets[slot + 1] - base - start):
            row = start + y
            margin = matrix[row * width + row]
            step[row], scale[row] = beliefs[source + y] - margin, margin
            if beliefs[source + y] == 0.0 or not margin > TINY:
                scale[row] = 0.0
            elif slot > first and (pinned < 0 or margin > scale[pinned]):
                pinned = row
        if pinned >= 0:
            scale[pinned] = 0.0
    # rows without a pivot, of pinned labels or by rounding, drop out
    for row in range(width):
        scale[row] = 1.0 / sqrt(scale[row]) if scale[row] > 0.0 else 0.0
        least[row] = SMALLEST_PIVOT
        step[row] *= scale[row]
        for column in range(row):
            place = row * width + column
            matrix[place] = matrix[place] * scale[column] * scale[row]
        matrix[row * width + row] = 1.0
    if not cholesky_root(matrix, width, least, False):
        return
    cholesky_solve(matrix, width, step)
    longest = 0.0
    for row in range(width):
        step[row] *= scale[row]
        longest = max(longest, abs(step[row]))
    # third derivatives are bounded by second ones times the length: this much is safe
    reach = 2.0 * (stop - first) * longest
    length = log1p(reach) / reach if reach > 1e-3 else 1.0
    for row in range(width):
        lam[row] += length * step[row]


@kernel
def _fill_margins(
    structure: Structure, scaled: FloatArray, factor: int, digits: IntArray, matrix: FloatArray
) -> None:
    """Margins of single labels (diagonal) and of pairs of labels of a table, lower triangle."""
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    base = structure.message_offsets[first]
    width = structure.message_offsets[stop] - base
    matrix[: width * width] = 0.0
    digits[: stop - first] = 0
    for z in range(structure.table_offsets[factor], structure.table_offsets[factor + 1]):
        for one in range(first, stop):
            row = structure.message_offsets[one] - base + digits[one - first]
            for two in range(first, one + 1):
                column = structure.message_offsets[two] - base + digits[two - first]
                matrix[row * width + column] += scaled[z]
        next_row(structure, first, stop, digits)


@kernel
def fit_factors(
    structure: Structure,
    kinds: ByteArray,
    tables: FloatArray,
    beliefs: FloatArray,
    log_beliefs: FloatArray,
    begin: int,
    end: int,
    tol: float,
    max_rounds: int,
    vectors: FloatArray,
    scaled: FloatArray,
    terms: FloatArray,
) -> int:
    """``u`` and ``sum_i <u_ai, q_i>`` of all but binary pairs; how many did not converge.

    ``vectors`` are where to start; ``scaled`` is working memory as large as the tables.
    """
    width, arity = 1, 1
    for factor in range(begin, end):
        if kinds[factor] == GENERAL:
            first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
            width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
            arity = max(arity, stop - first)
    lam, inner, outer = np.empty(width), np.empty(width), np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    prefix = np.empty(arity + 1)
    size = min(width, LARGEST_SYSTEM)
    matrix, work = np.empty(size * size), np.empty((3, size))
    failures = 0
    for factor in range(begin, end):
        if kinds[factor] == CONSTANT:
            terms[factor] = -tables[structure.table_offsets[factor]]
        if kinds[factor] != GENERAL:
            continue
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        base = structure.message_offsets[first]
        width = structure.message_offsets[stop] - base
        for slot in range(first, stop):
            source = structure.unary_offsets[structure.slot_variables[slot]]
            start = structure.message_offsets[slot]
            for y in range(structure.message_offsets[slot + 1] - start):
                value = vectors[start + y]
                # a vector from elsewhere may shut out a label that has a belief here
                value = 0.0 if value == NO_WEIGHT else value
                lam[start - base + y] = value if log_beliefs[source + y] > NO_WEIGHT else NO_WEIGHT
        n_rounds = 0
        while True:
            change = log_round(structure, tables, factor, log_beliefs, lam, outer, digits, prefix)
            n_rounds += 1
            if change <= tol or change == np.inf or n_rounds >= max_rounds:
                break
            fill_table(structure, tables, factor, lam, digits, prefix, scaled)
            change = linear_rounds(
                structure, scaled, factor, beliefs, tol, lam, inner, outer, digits, prefix
            )
            n_rounds += ROUNDS
            if change <= tol:
                break
            if width <= LARGEST_SYSTEM and change < np.inf:
                fill_table(structure, tables, factor, lam, digits, prefix, scaled)
                newton_step(structure, scaled, factor, beliefs, lam, digits, matrix, work)
        total = 0.0
        for slot in range(first, stop):
            source = structure.unary_offsets[structure.slot_variables[slot]]
            start = structure.message_offsets[slot]
            for y in range(structure.message_offsets[slot + 1] - start):
                vectors[start + y] = lam[start - base + y]
                if beliefs[source + y] > 0.0:
                    total += beliefs[source + y] * lam[start - base + y]
        terms[factor] = total if change <= tol else np.inf
        failures += 0 if change <= tol else 1
    return failures
