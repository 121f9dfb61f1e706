r"""The dual of the linearised maximum-entropy problem of CAMEL, in one pass over a graph.

Every factor of arity two or more is a log-linear model of its own, as in piecewise training, that
also sees one vector ``u`` for each of its slots:

    pi_a(y_a) = exp(th_a(y_a) + sum_{i in a} u_ai(y_i)) / Z_a
    u_ai      = th_i / d_i + bias_ai + delta_ai - mean over b of delta_bi

``delta`` are the multipliers of the constraints that factors agree on their variables; taking away
their mean over the factors of a variable makes them sum to zero, so that what one factor is given
another one pays.  The derivative of ``sum_a log Z_a`` by ``delta_ai`` is then how far the margin
of ``pi_a`` lies from the mean of all margins for ``i``.  A variable without such a factor is a
model by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT
from fieldfit.kernels.pieces import add_margins, fill_piece, largest, normalised
from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = ["factor_models", "linearise_slots", "slot_vectors", "variable_models"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def slot_vectors(
    structure: Any, unary: FloatArray, bias: FloatArray, delta: FloatArray, out: FloatArray
) -> None:
    """``u`` of every slot, laid out like messages; an empty ``bias`` is zero."""
    for i in range(len(structure.cardinalities)):
        first, stop = structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        if first == stop:
            continue
        begin, n_labels = structure.unary_offsets[i], structure.cardinalities[i]
        inverse = 1.0 / (stop - first)
        # the place of the first slot holds the sum until its own turn, the last, comes
        total = structure.message_offsets[structure.variable_slots[first]]
        for y in range(n_labels):
            store(out, total + y, load(unary, begin + y))
        for k in range(first, stop):
            place = structure.message_offsets[structure.variable_slots[k]]
            for y in range(n_labels):
                store(out, total + y, load(out, total + y) - load(delta, place + y))
        for k in range(stop - 1, first - 1, -1):
            place = structure.message_offsets[structure.variable_slots[k]]
            for y in range(n_labels):
                store(out, place + y, load(out, total + y) * inverse + load(delta, place + y))
    if len(bias):
        for z in range(len(out)):
            store(out, z, load(out, z) + load(bias, z))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def pair_model(
    labels: Any, tables: FloatArray, vectors: FloatArray, begin: int, left: int, right: int,
    beliefs: FloatArray, margins: FloatArray,
) -> float:  # fmt: skip
    """Beliefs, margins and ``log Z`` of one pairwise factor with ``len(labels)`` labels each."""
    n_labels = len(labels)
    size = n_labels * n_labels
    for x in range(n_labels):
        shift = load(vectors, left + x)
        row = begin + x * n_labels
        for y in range(n_labels):
            store(beliefs, row + y, load(tables, row + y) + load(vectors, right + y) + shift)
    top = largest(beliefs, begin, size)
    if top == NO_WEIGHT:
        return NO_WEIGHT
    for z in range(size):
        store(beliefs, begin + z, fast_exp(load(beliefs, begin + z) - top))
    total = 0.0
    for x in range(n_labels):
        row = begin + x * n_labels
        own = 0.0
        for y in range(n_labels):
            value = load(beliefs, row + y)
            own += value
            store(margins, right + y, load(margins, right + y) + value)
        store(margins, left + x, own)
        total += own
    inverse = 1.0 / total
    for z in range(size):
        store(beliefs, begin + z, load(beliefs, begin + z) * inverse)
    for y in range(n_labels):
        store(margins, left + y, load(margins, left + y) * inverse)
        store(margins, right + y, load(margins, right + y) * inverse)
    return top + np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def factor_models(
    labels: Any,
    structure: Any,
    tables: FloatArray,
    vectors: FloatArray,
    beliefs: FloatArray,
    margins: FloatArray,
    values: FloatArray,
) -> int:
    """``pi_a``, its margins and ``log Z_a`` of all factors; one without weight, or -1.

    Factors of arity one have no beliefs of their own here, and constants only their value.  The
    length of the tuple ``labels`` is the number of labels that pairs are compiled for; ``margins``
    is given as zeros.
    """
    n_labels = len(labels)
    starts = structure.message_offsets
    arity = 1
    for factor in range(len(values)):
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    digits = np.empty(arity, dtype=np.int32)
    impossible = -1
    for factor in range(len(values)):
        n_slots = structure.scope_offsets[factor + 1] - structure.scope_offsets[factor]
        begin, end = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        if n_slots == 0:
            values[factor] = tables[begin]
            beliefs[begin] = 1.0
            continue
        if n_slots == 1:
            values[factor] = 0.0
            beliefs[begin:end] = 0.0
            continue
        first = structure.scope_offsets[factor]
        is_pair = n_slots == 2
        for slot in range(first, first + n_slots):
            is_pair &= structure.cardinalities[structure.slot_variables[slot]] == n_labels
        if is_pair:
            left, right = structure.message_offsets[first], structure.message_offsets[first + 1]
            values[factor] = pair_model(
                labels, tables, vectors, begin, left, right, beliefs, margins
            )
            if values[factor] == NO_WEIGHT and impossible < 0:
                impossible = factor
            continue
        fill_piece(structure, tables, vectors, starts, factor, digits, beliefs, begin)
        # reads an entry before it writes it, so a table may be replaced where it lies
        values[factor] = normalised(beliefs, begin, end - begin, beliefs, begin)
        if values[factor] == NO_WEIGHT and impossible < 0:
            impossible = factor
        add_margins(structure, beliefs, starts, factor, digits, margins)
    return impossible


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def variable_models(
    structure: Any,
    unary: FloatArray,
    margins: FloatArray,
    beliefs: FloatArray,
    gaps: FloatArray,
    values: FloatArray,
) -> int:
    """Beliefs of variables: the mean of their margins; ``gaps`` are the margins less that mean.

    A variable without factors is a log-linear model by itself, and adds its ``log Z``.  Returns
    one without weight, or -1.
    """
    impossible = -1
    for i in range(len(values)):
        first, stop = structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        begin = structure.unary_offsets[i]
        n_labels = structure.cardinalities[i]
        values[i] = 0.0
        if first == stop:
            values[i] = normalised(unary, begin, n_labels, beliefs, begin)
            if values[i] == NO_WEIGHT and impossible < 0:
                impossible = i
            continue
        inverse = 1.0 / (stop - first)
        for y in range(n_labels):
            store(beliefs, begin + y, 0.0)
        for k in range(first, stop):
            place = structure.message_offsets[structure.variable_slots[k]]
            for y in range(n_labels):
                store(beliefs, begin + y, load(beliefs, begin + y) + load(margins, place + y))
        for y in range(n_labels):
            store(beliefs, begin + y, load(beliefs, begin + y) * inverse)
        for k in range(first, stop):
            place = structure.message_offsets[structure.variable_slots[k]]
            for y in range(n_labels):
                store(gaps, place + y, load(margins, place + y) - load(beliefs, begin + y))
    return impossible


@njit(cache=True, nogil=True, error_model="numpy")
def linearise_slots(
    structure: Any, margins: FloatArray, on_both_sides: bool, smallest: float, out: FloatArray
) -> None:
    """Slopes of ``- (d_i - 1) H(tau_i)``, shared out over the slots of each variable.

    The factors of a variable stand in a row, and each of the ``d_i - 1`` entropies belongs to two
    neighbours in it.  It is a function of the first one's margin, which then gets all of its slope,
    or of the mean of both margins, and each gets half.
    """
    out[:] = 0.0
    for i in range(len(structure.cardinalities)):
        first, stop = structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        for k in range(first, stop - 1):
            left = structure.message_offsets[structure.variable_slots[k]]
            right = structure.message_offsets[structure.variable_slots[k + 1]]
            for y in range(structure.cardinalities[i]):
                if on_both_sides:
                    mean = 0.5 * (margins[left + y] + margins[right + y])
                    half = 0.5 * np.log(max(mean, smallest))
                    out[left + y] += half
                    out[right + y] += half
                else:
                    out[left + y] += np.log(max(margins[left + y], smallest))
