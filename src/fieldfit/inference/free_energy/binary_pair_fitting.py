r"""Binary pairs with given margins in closed form; gradient of Bethe's free energy by variables.

For given beliefs ``q`` of the variables, Bethe's free energy is least at the factor beliefs

    xi_a(y_a) = exp(th_a(y_a) + sum_{i in a} u_ai(y_i)),    margins q_i,

and is then a function of ``q`` alone:

    F(q) = sum_i [-<th_i, q_i> + (1 - d_i) <log q_i, q_i>] + sum_a sum_{i in a} <u_ai, q_i>

By the envelope theorem its derivative by ``q_i`` is ``log q_i - target_i`` up to a constant, with

    target_i = th_i + sum_a (log q_i - u_ai)

so that stationary points are those where every variable has the belief that its target gives.

Two binary variables.  Only ``W = th_00 + th_11 - th_01 - th_10`` matters; flipping the labels of
the second variable makes it positive.  With ``b = exp(-|W|)``, ``c = 1 - b``, margins ``p, r`` and
their complements ``p', r'``,

    d = p - r,   s = p r' + p' r,   R = sqrt(b^2 + 2 b c s + c^2 d^2)
    smaller of xi_01, xi_10 = 2 b (r p' if d >= 0 else p r') / (b + c |d| + R), the other + |d|
    smaller of xi_00, xi_11 = 2 (p r if p + r <= 1 else p' r') / (b + c (their sum) + R),
                              the other + |p + r - 1|

This is the root of the quadratic equation of Welling and Teh (2001), each entry as a quotient or
sum of positive numbers: nothing cancels but ``p - r`` and ``p + r - 1``, which are taken between
whichever of the numbers and their complements are small.  Nothing overflows for any ``W``.  Where
``b`` or a belief is too small for this to stay in range, the same is done in logarithms.

Reference: Welling and Teh, "Belief optimization for binary networks: a stable alternative to loopy
belief propagation", UAI 2001.
"""

from __future__ import annotations

from math import exp, expm1, log, log1p, sqrt

import numpy as np
from numba import carray

from fieldfit._typing import ByteArray, FloatArray, IntArray, LongArray
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.inference.messages.message_beliefs import normalise
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, stack_scratch, store

__all__ = [
    "CONSTANT",
    "GENERAL",
    "PAIR",
    "SINGLE",
    "all_binary",
    "factor_kinds",
    "fit_binary_pairs",
    "fit_log_pair",
    "log_pair",
    "variable_beliefs",
    "variable_targets",
]

# -- binary pairs in the log domain ---------------------------------------------------------------
# Slow and rarely needed: for couplings beyond 200, beliefs below 1e-87 and labels that are certain.


LOG_2 = 0.6931471805599453


@kernel
def log_sum(x: float, y: float) -> float:
    """``log(exp x + exp y)``."""
    top = max(x, y)
    return top if top == NO_WEIGHT else top + log1p(exp(-abs(x - y)))


@kernel
def log_gap(x: float, y: float) -> float:
    """``log |exp x - exp y|``."""
    return NO_WEIGHT if x == y else max(x, y) + log(-expm1(-abs(x - y)))


@kernel
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


@kernel
def fit_log_pair(
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
    # u_i(y) + u_j(z) = v_yz; each gets one half of an entry that exists
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


# -- kinds of factors -----------------------------------------------------------------------------

#: What a factor is to these kernels; `PAIR` has two binary variables and a finite table.
CONSTANT, SINGLE, PAIR, GENERAL = 0, 1, 2, 3
#: Factors per block, a few vectors of everything; blocks are filled up, so that all of them run
#: through the same instructions and a factor's numbers do not depend on its place.
BLOCK = 64
#: The closed form runs in the linear domain for |W| up to 200 and beliefs down to exp(-200): the
#: smallest entry is then above exp(-600), about 1e-261.
LARGEST_COUPLING = 200.0
SMALLEST_BELIEF = 1.4e-87


@kernel
def factor_kinds(structure: Structure, tables: FloatArray, kinds: ByteArray) -> None:
    """Sort the factors by how they are fitted."""
    for factor in range(len(kinds)):
        first = structure.scope_offsets[factor]
        arity = structure.scope_offsets[factor + 1] - first
        kind = CONSTANT if arity == 0 else SINGLE if arity == 1 else GENERAL
        begin = structure.table_offsets[factor]
        if arity == 2 and structure.table_offsets[factor + 1] - begin == 4:
            is_binary = structure.cardinalities[structure.slot_variables[first]] == 2
            for z in range(begin, begin + 4):
                is_binary &= tables[z] > NO_WEIGHT
            kind = PAIR if is_binary else GENERAL
        kinds[factor] = kind


# -- binary pairs in blocks -----------------------------------------------------------------------


# Without NaN a minimum is associative and can run in SIMD; nothing here is NaN.
@kernel(cache=False, fastmath={"nnan", "nsz", "reassoc"})
def smallest_of(values: FloatArray) -> float:
    """Smallest value of a block."""
    smallest = load(values, 0)
    for k in range(1, BLOCK):
        smallest = min(smallest, load(values, k))
    return smallest


@kernel(cache=False, fastmath={"nnan", "nsz", "reassoc"})
def largest_size(values: FloatArray) -> float:
    """Largest absolute value of a block."""
    largest = 0.0
    for k in range(BLOCK):
        largest = max(largest, abs(load(values, k)))
    return largest


@kernel(fastmath=SAFE_FASTMATH)
def fit_binary_pairs(
    structure: Structure,
    kinds: ByteArray,
    tables: FloatArray,
    beliefs: FloatArray,
    log_beliefs: FloatArray,
    ranges: LongArray,
    vectors: FloatArray,
    terms: FloatArray,
) -> None:
    """``u`` and ``sum_i <u_ai, q_i>`` of the binary pairs among some ranges of factors."""
    chosen = np.empty(BLOCK, dtype=np.int64)
    coupling = carray(stack_scratch((0, 0), 32), (BLOCK,))
    p0 = carray(stack_scratch((0, 0), 32), (BLOCK,))
    p1 = carray(stack_scratch((0, 0), 32), (BLOCK,))
    r0 = carray(stack_scratch((0, 0), 32), (BLOCK,))
    r1 = carray(stack_scratch((0, 0), 32), (BLOCK,))
    base = carray(stack_scratch((0, 0), 32), (BLOCK,))
    own = carray(stack_scratch((0, 0), 32), (BLOCK,))
    other = carray(stack_scratch((0, 0), 32), (BLOCK,))
    run, factor = 0, ranges[0, 0] if len(ranges) else 0
    while run < len(ranges):
        count = 0
        while count < BLOCK:
            if factor >= ranges[run, 1]:
                run += 1
                if run == len(ranges):
                    break
                factor = ranges[run, 0]
                continue
            if load(kinds, factor) == PAIR:
                first = load(structure.scope_offsets, factor)
                left = load(structure.unary_offsets, load(structure.slot_variables, first))
                right = load(structure.unary_offsets, load(structure.slot_variables, first + 1))
                table = load(structure.table_offsets, factor)
                store(chosen, count, factor)
                value = (load(tables, table) - load(tables, table + 1)) + (
                    load(tables, table + 3) - load(tables, table + 2)
                )
                store(coupling, count, value)
                store(p0, count, load(beliefs, left))
                store(p1, count, load(beliefs, left + 1))
                store(r0, count, load(beliefs, right))
                store(r1, count, load(beliefs, right + 1))
                count += 1
            factor += 1
        for k in range(count, BLOCK):
            store(coupling, k, 0.0)
            store(p0, k, 0.5)
            store(p1, k, 0.5)
            store(r0, k, 0.5)
            store(r1, k, 0.5)
        is_narrow = largest_size(coupling) <= LARGEST_COUPLING and (
            min(min(smallest_of(p0), smallest_of(p1)), min(smallest_of(r0), smallest_of(r1)))
            >= SMALLEST_BELIEF
        )
        for k in range(BLOCK):
            strength = load(coupling, k)
            one, not_one = load(p1, k), load(p0, k)
            straight, crossed = load(r1, k), load(r0, k)
            is_flipped = strength < 0.0
            two = crossed if is_flipped else straight
            not_two = straight if is_flipped else crossed
            b = fast_exp(-abs(strength))
            c = 1.0 - b
            direct, opposite = one - two, not_two - not_one
            difference = direct if one <= not_two else opposite
            is_first = difference >= 0.0
            gap = abs(difference)
            root = sqrt(
                b * b
                + 2.0 * b * c * (one * not_two + not_one * two)
                + c * c * difference * difference
            )
            first_product, second_product = two * not_one, one * not_two
            product = first_product if is_first else second_product
            small = 2.0 * b * product / (b + c * gap + root)
            large = small + gap
            x01 = small if is_first else large
            x10 = large if is_first else small
            direct, opposite = one - not_two, two - not_one
            excess = opposite if is_first else direct
            is_low = excess <= 0.0
            first_product, second_product = one * two, not_one * not_two
            first_sum, second_sum = one + two, not_one + not_two
            product = first_product if is_low else second_product
            total = first_sum if is_low else second_sum
            small = 2.0 * product / (b + c * total + root)
            large = small + abs(excess)
            x00 = large if is_low else small
            x11 = small if is_low else large
            corner = x01 if is_flipped else x00
            above = x11 if is_flipped else x10
            beside = x00 if is_flipped else x01
            inverse = 1.0 / corner
            store(base, k, fast_log(corner))
            store(own, k, fast_log(above * inverse))
            store(other, k, fast_log(beside * inverse))
        for k in range(count):
            index = load(chosen, k)
            first = load(structure.scope_offsets, index)
            place = load(structure.message_offsets, first)
            table = load(structure.table_offsets, index)
            corner = load(tables, table)
            half = 0.5 * (load(base, k) - corner)
            value = load(own, k) - (load(tables, table + 2) - corner)
            value_other = load(other, k) - (load(tables, table + 1) - corner)
            store(vectors, place, half)
            store(vectors, place + 1, half + value)
            store(vectors, place + 2, half)
            store(vectors, place + 3, half + value_other)
            store(terms, index, 2.0 * half + load(p1, k) * value + load(r1, k) * value_other)
        if is_narrow:
            continue
        for k in range(count):
            least = min(min(p0[k], p1[k]), min(r0[k], r1[k]))
            if least >= SMALLEST_BELIEF and abs(coupling[k]) <= LARGEST_COUPLING:
                continue
            index = chosen[k]
            first = structure.scope_offsets[index]
            left = structure.unary_offsets[structure.slot_variables[first]]
            right = structure.unary_offsets[structure.slot_variables[first + 1]]
            place = structure.message_offsets[first]
            fit_log_pair(
                tables, structure.table_offsets[index], log_beliefs, left, right, vectors, place
            )
            total = 0.0
            for y in range(2):
                if beliefs[left + y] > 0.0:
                    total += beliefs[left + y] * vectors[place + y]
                if beliefs[right + y] > 0.0:
                    total += beliefs[right + y] * vectors[place + 2 + y]
            terms[index] = total


# -- variables ------------------------------------------------------------------------------------


@kernel
def all_binary(cardinalities: IntArray, begin: int, end: int) -> bool:
    """True if some variables all have two labels; loops over them can then run in SIMD."""
    others = 0
    for i in range(begin, end):
        others |= load(cardinalities, i) ^ 2
    return begin < end and others == 0


@kernel(fastmath=SAFE_FASTMATH)
def variable_beliefs(
    structure: Structure, log_beliefs: FloatArray, begin: int, end: int, beliefs: FloatArray
) -> None:
    """Beliefs of variables ``begin`` to ``end``, normalised to the last digit."""
    if all_binary(structure.cardinalities, begin, end):
        source = load(structure.unary_offsets, begin)
        for z in range(source, source + 2 * (end - begin), 2):
            odds = load(log_beliefs, z + 1) - load(log_beliefs, z)
            small = fast_exp(-abs(odds))
            large = 1.0 / (1.0 + small)
            small = small * large
            store(beliefs, z, small if odds > 0.0 else large)
            store(beliefs, z + 1, large if odds > 0.0 else small)
        return
    for i in range(begin, end):
        first = load(structure.unary_offsets, i)
        if load(structure.unary_offsets, i + 1) - first == 2:
            odds = load(log_beliefs, first + 1) - load(log_beliefs, first)
            small = fast_exp(-abs(odds))
            large = 1.0 / (1.0 + small)
            small = small * large
            store(beliefs, first, small if odds > 0.0 else large)
            store(beliefs, first + 1, large if odds > 0.0 else small)
        else:
            normalise(log_beliefs, first, load(structure.unary_offsets, i + 1), beliefs, first)


@kernel(fastmath=SAFE_FASTMATH)
def variable_targets(
    structure: Structure,
    is_binary: bool,
    unary: FloatArray,
    beliefs: FloatArray,
    log_beliefs: FloatArray,
    vectors: FloatArray,
    begin: int,
    end: int,
    targets: FloatArray,
    terms: FloatArray,
) -> None:
    """Targets and terms of ``F`` of variables ``begin`` to ``end``.

    A label without belief has no target either: it is excluded for good.
    """
    for i in range(begin, end):
        first, stop = load(structure.unary_offsets, i), load(structure.unary_offsets, i + 1)
        slot, last = (
            load(structure.variable_slot_offsets, i),
            load(structure.variable_slot_offsets, i + 1),
        )
        degree = float(last - slot)
        if stop - first == 2:  # the common case, in registers
            log_0, log_1 = load(log_beliefs, first), load(log_beliefs, first + 1)
            sum_0, sum_1 = 0.0, 0.0
            for position in range(slot, last):
                own = load(structure.variable_slots, position)
                place = 2 * own if is_binary else load(structure.message_offsets, own)
                sum_0 += load(vectors, place)
                sum_1 += load(vectors, place + 1)
            value_0 = load(unary, first) + degree * log_0 - sum_0
            value_1 = load(unary, first + 1) + degree * log_1 - sum_1
            is_out_0, is_out_1 = log_0 == NO_WEIGHT, log_1 == NO_WEIGHT
            store(targets, first, NO_WEIGHT if is_out_0 else value_0)
            store(targets, first + 1, NO_WEIGHT if is_out_1 else value_1)
            term_0 = load(beliefs, first) * ((1.0 - degree) * log_0 - load(unary, first))
            term_1 = load(beliefs, first + 1) * ((1.0 - degree) * log_1 - load(unary, first + 1))
            store(terms, i, (0.0 if is_out_0 else term_0) + (0.0 if is_out_1 else term_1))
            continue
        for z in range(first, stop):
            store(targets, z, load(unary, z) + degree * load(log_beliefs, z))
        for position in range(slot, last):
            place = load(structure.message_offsets, load(structure.variable_slots, position))
            for y in range(stop - first):
                value = load(targets, first + y) - load(vectors, place + y)
                store(targets, first + y, value)
        total = 0.0
        for z in range(first, stop):
            belief, log_belief = load(beliefs, z), load(log_beliefs, z)
            is_out = log_belief == NO_WEIGHT
            value = belief * ((1.0 - degree) * log_belief - load(unary, z))
            total += 0.0 if belief == 0.0 else value
            store(targets, z, NO_WEIGHT if is_out else load(targets, z))
        store(terms, i, total)
