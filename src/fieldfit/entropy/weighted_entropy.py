r"""Distributions under an entropy with a weight for every outcome, and sums over tables.

The maximum of a linear function plus such an entropy over all distributions,

    phi(x) = max_p <x, p> - sum_k w_k p_k log p_k,

is reached by ``p_k = exp((x_k - mu) / w_k - 1)``, where ``mu`` makes the sum one, and has the value
``mu + sum_k w_k p_k``.  With equal weights this is the usual log-sum-exp.  The logarithm of the sum
is convex and falls with ``mu``, and it is not negative at ``mu = max_k (x_k - w_k)``, so Newton's
steps from there never overshoot.  ``grad phi = p``, and the second derivative is ``diag(c) - c c' /
sum(c)`` with ``c = p / w``.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.structure import Structure, next_row
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp, fast_log, load, store

__all__ = ["add_to_margins", "add_to_tables", "subtract_from_unary", "weighted_beliefs"]

#: Newton's steps for one normaliser; about five are enough for weights within a factor of 1000.
MAX_STEPS = 100


@kernel
def weighted_beliefs(
    offsets: IntArray,
    scores: FloatArray,
    weights: FloatArray,
    beliefs: FloatArray,
    log_beliefs: FloatArray,
    values: FloatArray,
) -> int:
    """Beliefs, their logarithms and ``phi`` of every vector; the first without a label, or -1."""
    for k in range(len(offsets) - 1):
        begin, end = offsets[k], offsets[k + 1]
        mu = -np.inf
        for z in range(begin, end):
            mu = max(mu, scores[z] - weights[z])
        if mu == -np.inf:
            return k
        for _ in range(MAX_STEPS):
            total, slope = 0.0, 0.0
            for z in range(begin, end):
                inverse = 1.0 / load(weights, z)
                value = (load(scores, z) - mu) * inverse - 1.0
                belief = fast_exp(value)
                store(log_beliefs, z, value)
                store(beliefs, z, belief)
                total += belief
                slope += belief * inverse
            step = fast_log(total) * total / slope
            # the sum is at least 1 but for rounding; below that a step would change nothing
            if step <= 1e-15 * (1.0 + abs(mu)):
                break
            mu += step
        weighted = 0.0
        scale = 1.0 / total
        shift = fast_log(total)
        for z in range(begin, end):
            belief = load(beliefs, z) * scale
            store(beliefs, z, belief)
            store(log_beliefs, z, load(log_beliefs, z) - shift)
            weighted += load(weights, z) * belief
        values[k] = mu + weighted
    return -1


@kernel
def add_to_tables(structure: Structure, messages: FloatArray, tables: FloatArray) -> None:
    """Add ``sum_i m_ai(y_i)`` to every table of arity two or more."""
    digits, prefix = np.empty(0, dtype=np.int32), np.empty(0)
    for factor in range(len(structure.scope_offsets) - 1):
        first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
        if last <= first:
            continue
        begin, end = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        own = structure.message_offsets[last]
        n_last = structure.message_offsets[last + 1] - own
        if last == first + 1:
            other = structure.message_offsets[first]
            for row in range(own - other):
                shift = messages[other + row]
                base = begin + row * n_last
                for y in range(n_last):
                    store(
                        tables, base + y, load(tables, base + y) + shift + load(messages, own + y)
                    )
            continue
        if len(digits) < last - first + 1:
            digits = np.zeros(last - first + 1, dtype=np.int32)
            prefix = np.zeros(last - first + 2)
        digits[: last - first] = 0
        prefix[0] = 0.0
        changed = first
        for row in range(begin, end, n_last):
            for position in range(changed, last):
                offset = structure.message_offsets[position]
                prefix[position - first + 1] = (
                    prefix[position - first] + messages[offset + digits[position - first]]
                )
            shift = prefix[last - first]
            for y in range(n_last):
                tables[row + y] += shift + messages[own + y]
            changed = next_row(structure, first, last, digits)


@kernel
def add_to_margins(structure: Structure, tables: FloatArray, messages: FloatArray) -> None:
    """Add the margins of every table of arity two or more to vectors laid out like messages."""
    digits = np.empty(0, dtype=np.int32)
    for factor in range(len(structure.scope_offsets) - 1):
        first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
        if last <= first:
            continue
        begin, end = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        own = structure.message_offsets[last]
        n_last = structure.message_offsets[last + 1] - own
        if last == first + 1:
            other = structure.message_offsets[first]
            for row in range(own - other):
                total = 0.0
                base = begin + row * n_last
                for y in range(n_last):
                    value = load(tables, base + y)
                    total += value
                    store(messages, own + y, load(messages, own + y) + value)
                messages[other + row] += total
            continue
        if len(digits) < last - first + 1:
            digits = np.zeros(last - first + 1, dtype=np.int32)
        digits[: last - first] = 0
        for row in range(begin, end, n_last):
            total = 0.0
            for y in range(n_last):
                total += tables[row + y]
                messages[own + y] += tables[row + y]
            for position in range(first, last):
                messages[structure.message_offsets[position] + digits[position - first]] += total
            next_row(structure, first, last, digits)


@kernel
def subtract_from_unary(structure: Structure, messages: FloatArray, unary: FloatArray) -> None:
    """Take ``sum_a m_ai`` (factors of arity two or more) from the vector of every variable."""
    for i in range(len(structure.cardinalities)):
        begin, end = structure.unary_offsets[i], structure.unary_offsets[i + 1]
        for position in range(
            structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        ):
            source = structure.message_offsets[structure.variable_slots[position]]
            for y in range(end - begin):
                unary[begin + y] -= messages[source + y]
