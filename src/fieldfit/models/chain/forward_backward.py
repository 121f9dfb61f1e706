"""Forward-backward and Viterbi algorithms of linear chains; value and gradient of the likelihood.

    value = sum over sequences of log Z - log Z(labels),    gradient = E[f] - E[f | labels]

Everything is fused: scores of a sequence's tokens from its attributes (`sparse_scores`),
forward-backward, residuals (marginals minus labels) back into the weights.  What is kept beyond a
sequence are the gradient and two K x K tables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import FloatArray, LabelArray, LongArray
from fieldfit.models.chain.chain_rows import RowShape, rank_update, row_width, vector_times_table
from fieldfit.models.chain.sparse_scores import (
    StateIndex,
    TokenEntries,
    add_token_gradients,
    token_scores,
)
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store

__all__ = [
    "FLOOR",
    "ChainModel",
    "ChainScratch",
    "add_and_clear",
    "best_labels",
    "chain_group",
    "chain_marginals",
    "exponentials",
    "log_forward_backward",
    "scaled_backward",
    "scaled_forward",
]

# -- Forward-backward on one sequence: scaled, or in the log domain where that may underflow ---
# With scores ``s_t`` (K for each token) and transitions ``T``, after the maximum of every ``s_t``
# and that of ``T`` is taken out, ``u_t = exp s_t`` and ``E = exp T`` lie in [0, 1] and
#
#     f_t = u_t * (E^T f_{t-1}) / c_t         c_t makes f_t sum to 1
#     b_{t-1} = E v_t,   v_t = u_t * b_t / c_t
#     p(y_t) = f_t * b_t,    p(y_{t-1}, y_t) = f_{t-1} E v_t^T,    log Z = sum log c_t + maxima.
#
# The expected transitions of a sequence are ``E`` times the sum of the outer products of
# ``f_{t-1}`` and ``v_t``; no table is kept for any token.
#
# **Range.** Sums of positive numbers have no cancellation, so every entry is right to a few units
# in the last place unless something underflowed.  What underflows is below 1e-307; if therefore
# *every* entry of every unnormalised ``f_t`` and of every ``b_t`` is above `FLOOR`, what was lost
# is less than one part in 1e16 of *each entry*, and stays so through the recursion.  (A floor for
# the sums alone would not do: a path that is negligible now may be the only one later.)  The other
# sequences are computed again with logarithms, entry by entry.  There is no
# overflow to test for: ``b_t`` is at most ``1 / f_t``.
#
# Where a token's label is observed, ``u_t`` is 1 for it and 0 for others, which are then not
# tested. Reference: Rabiner, "A tutorial on hidden Markov models", Proceedings of the IEEE 77
# (1989).


#: Entries below it are not trusted.  Terms that vanish are below 4e-308 (`fast_exp`), so K of them
#: are less than K times 4e-18 of a sum above it.
FLOOR = 1e-290
#: Its logarithm, rounded up.
LOG_FLOOR = -667.0


# Without NaN a maximum is associative and can run in SIMD; scores are finite or -inf.
@kernel(fastmath={"nnan", "nsz", "reassoc"})
def exponentials(
    shape: RowShape,
    n_labels: int,
    length: int,
    scores: FloatArray,
    given: LabelArray,
    unary: FloatArray,
    tops: FloatArray,
) -> bool:
    """``u_t`` and the maxima; ``given`` holds labels (-1: none), or is empty for a free run.

    Returns whether every entry that counts is above `FLOOR`.
    """
    width = row_width(shape)
    low = 0.0
    for t in range(length):
        row = t * width
        label = given[t] if given.size else -1
        if label >= 0:
            for y in range(width):
                store(unary, row + y, -np.inf)
            store(unary, row + label, 0.0)
            store(tops, t, load(scores, row + label))
            continue
        top = bottom = load(scores, row)
        for y in range(1, n_labels):
            score = load(scores, row + y)
            top = max(top, score)
            bottom = min(bottom, score)
        low = min(low, bottom - top)
        store(tops, t, top)
        for y in range(n_labels):
            store(unary, row + y, load(scores, row + y) - top)
        for y in range(n_labels, width):
            store(unary, row + y, -np.inf)
    for k in range(length * width):  # one long loop, which LLVM turns into vectors
        store(unary, k, fast_exp(load(unary, k)))
    return low >= LOG_FLOOR


@kernel(fastmath=SAFE_FASTMATH | {"nnan"})
def _scale_row(
    shape: RowShape, unary: FloatArray, row: int, forward: FloatArray
) -> tuple[float, float]:
    """``forward * unary`` in place; its sum, and its least entry where ``unary`` is not zero."""
    total = 0.0
    low = 1.0
    for y in range(row_width(shape)):
        u = load(unary, row + y)
        value = load(forward, row + y) * u
        store(forward, row + y, value)
        total += value
        low = min(low, value if u > 0.0 else 1.0)
    return total, low


@kernel(fastmath=SAFE_FASTMATH)
def scaled_forward(
    shape: RowShape,
    length: int,
    exp_transition: FloatArray,
    unary: FloatArray,
    forward: FloatArray,
    inverse_scales: FloatArray,
) -> tuple[float, bool]:
    """All ``f_t`` and ``1 / c_t``; returns ``sum log c_t`` and whether entries can be trusted."""
    width = row_width(shape)
    for y in range(width):
        store(forward, y, 1.0)
    log_sum = 0.0
    for t in range(length):
        row = t * width
        if t > 0:
            vector_times_table(shape, forward, row - width, exp_transition, forward, row)
        total, low = _scale_row(shape, unary, row, forward)
        if not low >= FLOOR:
            return 0.0, False
        inverse = 1.0 / total
        for y in range(width):
            store(forward, row + y, load(forward, row + y) * inverse)
        store(inverse_scales, t, inverse)
        log_sum += fast_log(total)
    return log_sum, True


@kernel(fastmath=SAFE_FASTMATH | {"nnan"})
def scaled_backward(
    shape: RowShape,
    length: int,
    exp_transposed: FloatArray,
    unary: FloatArray,
    forward: FloatArray,
    inverse_scales: FloatArray,
    backward: FloatArray,
    marginals: FloatArray,
) -> bool:
    """All ``v_t`` (into ``backward``) and marginals; ``b_t`` passes through ``marginals``."""
    width = row_width(shape)
    last = (length - 1) * width
    for y in range(width):
        store(marginals, last + y, 1.0)
    for t in range(length - 1, -1, -1):
        row = t * width
        inverse = load(inverse_scales, t)
        low = 1.0
        for y in range(width):
            u = load(unary, row + y)
            b = load(marginals, row + y)
            low = min(low, b if u > 0.0 else 1.0)
            store(backward, row + y, u * b * inverse)
        if not low >= FLOOR:
            return False
        if t > 0:
            vector_times_table(shape, backward, row, exp_transposed, marginals, row - width)
        for y in range(width):
            store(marginals, row + y, load(marginals, row + y) * load(forward, row + y))
    return True


@kernel
def _log_sum(values: FloatArray, count: int) -> float:
    top = -np.inf
    for k in range(count):
        top = max(top, values[k])
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(count):
        total += np.exp(values[k] - top)
    return top + np.log(total)


@kernel
def log_forward_backward(
    width: int,
    n_labels: int,
    length: int,
    transition: FloatArray,
    scores: FloatArray,
    given: LabelArray,
    weight: float,
    forward: FloatArray,
    backward: FloatArray,
    marginals: FloatArray,
    counts: FloatArray,
) -> float:
    """The same with logarithms throughout.

    Expected transitions, times ``weight``, are added to ``counts``.  ``transition`` is
    the table of logarithms, ``width`` numbers to a row.  Returns ``log Z``.
    """
    terms = np.empty(n_labels)
    for t in range(length):
        row = t * width
        for y in range(n_labels):
            if given.size and given[t] >= 0 and given[t] != y:
                forward[row + y] = -np.inf
                continue
            if t == 0:
                forward[row + y] = scores[row + y]
                continue
            for x in range(n_labels):
                terms[x] = forward[row - width + x] + transition[x * width + y]
            forward[row + y] = scores[row + y] + _log_sum(terms, n_labels)
    last = (length - 1) * width
    log_partition = _log_sum(forward[last : last + n_labels], n_labels)
    for t in range(length - 1, -1, -1):
        row = t * width
        for x in range(n_labels):
            if t == length - 1:
                backward[row + x] = 0.0
                continue
            for y in range(n_labels):
                following = row + width + y
                terms[y] = transition[x * width + y] + scores[following] + backward[following]
                if given.size and given[t + 1] >= 0 and given[t + 1] != y:
                    terms[y] = -np.inf
            backward[row + x] = _log_sum(terms, n_labels)
        for y in range(width):
            marginals[row + y] = 0.0
        for y in range(n_labels):
            marginals[row + y] = np.exp(forward[row + y] + backward[row + y] - log_partition)
        if t == length - 1:
            continue
        for x in range(n_labels):
            if forward[row + x] == -np.inf:
                continue
            base = forward[row + x] - log_partition
            for y in range(n_labels):
                following = row + width + y
                if forward[following] == -np.inf:
                    continue
                counts[x * width + y] += weight * np.exp(
                    base + transition[x * width + y] + scores[following] + backward[following]
                )
    return log_partition


# -- Value, gradient and marginals of a group of sequences ---------------------------------


class ChainModel(NamedTuple):
    """Weights as an evaluation reads them; rows and tables are ``width`` labels wide.

    ``transition`` holds logarithms, ``exp_transition`` their exponentials after
    ``transition_top``, the largest of them, is taken out (0 in the padding), ``exp_transposed``
    their transpose.  ``start`` and ``end`` are added to the scores of a sequence's first and last
    token.
    """

    weights: FloatArray
    rows: FloatArray
    transition: FloatArray
    exp_transition: FloatArray
    exp_transposed: FloatArray
    transition_top: float
    start: FloatArray
    end: FloatArray


class ChainScratch(NamedTuple):
    """Memory of one worker: a row for each token of the longest sequence, and what is summed up.

    ``outer`` (free, observed) is multiplied by ``exp_transition`` at the end; ``counts``
    (likewise) are expected transitions as they are.
    """

    scores: FloatArray
    unary: FloatArray
    forward: FloatArray
    backward: FloatArray
    marginals: FloatArray
    observed_marginals: FloatArray
    tops: FloatArray
    inverse_scales: FloatArray
    outer: FloatArray
    observed_outer: FloatArray
    counts: FloatArray
    observed_counts: FloatArray
    start: FloatArray
    end: FloatArray
    rows: FloatArray
    gradient: FloatArray


@kernel
def _sequence_scores(
    shape: RowShape,
    entries: TokenEntries,
    states: StateIndex,
    model: ChainModel,
    begin: int,
    end: int,
    scratch: ChainScratch,
) -> None:
    width = row_width(shape)
    token_scores(shape, entries, states, model.weights, model.rows, begin, end, scratch.scores)
    last = (end - begin - 1) * width
    for y in range(width):
        scratch.scores[y] += model.start[y]
        scratch.scores[last + y] += model.end[y]


@kernel
def _forward_backward(
    shape: RowShape,
    n_labels: int,
    length: int,
    model: ChainModel,
    given: LabelArray,
    weight: float,
    scratch: ChainScratch,
    marginals: FloatArray,
    outer: FloatArray,
    counts: FloatArray,
) -> tuple[float, bool]:
    """``log Z`` of the sequence in ``scratch.scores``, its marginals and expected transitions.

    The transitions are multiplied by ``weight``.  Also returns whether logarithms were needed.
    """
    fine = exponentials(shape, n_labels, length, scratch.scores, given, scratch.unary, scratch.tops)
    log_partition = 0.0
    if fine:
        log_partition, fine = scaled_forward(
            shape, length, model.exp_transition, scratch.unary, scratch.forward,
            scratch.inverse_scales,
        )  # fmt: skip
    if fine:
        fine = scaled_backward(
            shape, length, model.exp_transposed, scratch.unary, scratch.forward,
            scratch.inverse_scales, scratch.backward, marginals,
        )  # fmt: skip
    if not fine:
        log_partition = log_forward_backward(
            row_width(shape), n_labels, length, model.transition, scratch.scores, given, weight,
            scratch.forward, scratch.backward, marginals, counts,
        )  # fmt: skip
        return log_partition, True
    if weight != 1.0:
        for k in range(length * row_width(shape)):
            scratch.backward[k] *= weight
    rank_update(shape, scratch.forward, scratch.backward, length - 1, outer)
    for t in range(length):
        log_partition += scratch.tops[t]
    return log_partition + (length - 1) * model.transition_top, False


@kernel
def chain_group(
    shape: RowShape,
    n_labels: int,
    entries: TokenEntries,
    states: StateIndex,
    model: ChainModel,
    sequence_offsets: LongArray,
    token_labels: LabelArray,
    sequence_weights: FloatArray,
    first: int,
    last: int,
    scratch: ChainScratch,
) -> tuple[float, int]:
    """Sequences ``first`` to ``last``: their value, and how many needed logarithms.

    The gradient is *added* to ``scratch`` (``gradient``, ``rows``, ``outer``, ``counts``,
    ``start``, ``end``).
    """
    width = row_width(shape)
    value = 0.0
    n_careful = 0
    nothing = token_labels[:0]
    for sequence in range(first, last):
        begin, end = sequence_offsets[sequence], sequence_offsets[sequence + 1]
        length = end - begin
        weight = sequence_weights[sequence] if sequence_weights.size else 1.0
        given = token_labels[begin:end]
        n_given = 0
        for t in range(length):
            n_given += given[t] >= 0
        if n_given == 0:  # also if the sequence is empty: free and observed are the same
            continue
        _sequence_scores(shape, entries, states, model, begin, end, scratch)
        free, careful = _forward_backward(
            shape, n_labels, length, model, nothing, weight, scratch, scratch.marginals,
            scratch.outer, scratch.counts,
        )  # fmt: skip
        n_careful += careful
        marginals = scratch.marginals
        if n_given == length:
            score = 0.0
            for t in range(length):
                label = given[t]
                score += scratch.scores[t * width + label]
                marginals[t * width + label] -= 1.0
                if t > 0:
                    pair = given[t - 1] * width + label
                    score += model.transition[pair]
                    scratch.observed_counts[pair] += weight
            value += weight * (free - score)
        else:
            observed, careful = _forward_backward(
                shape, n_labels, length, model, given, weight, scratch,
                scratch.observed_marginals, scratch.observed_outer, scratch.observed_counts,
            )  # fmt: skip
            for k in range(length * width):
                marginals[k] -= scratch.observed_marginals[k]
            value += weight * (free - observed)
        if weight != 1.0:
            for k in range(length * width):
                marginals[k] *= weight
        add_token_gradients(
            shape, entries, states, marginals, begin, end, scratch.rows, scratch.gradient
        )
        for y in range(width):
            scratch.start[y] += marginals[y]
            scratch.end[y] += marginals[(length - 1) * width + y]
    return value, n_careful


@kernel
def chain_marginals(
    shape: RowShape,
    n_labels: int,
    entries: TokenEntries,
    states: StateIndex,
    model: ChainModel,
    sequence_offsets: LongArray,
    first: int,
    last: int,
    scratch: ChainScratch,
    out: FloatArray,
) -> None:
    """Marginals of the sequences ``first`` to ``last`` into ``out``, ``n_labels`` to a token."""
    width = row_width(shape)
    nothing = np.empty(0, dtype=np.int32)
    for sequence in range(first, last):
        begin, end = sequence_offsets[sequence], sequence_offsets[sequence + 1]
        if begin == end:
            continue
        _sequence_scores(shape, entries, states, model, begin, end, scratch)
        _forward_backward(
            shape, n_labels, end - begin, model, nothing, 1.0, scratch, scratch.marginals,
            scratch.outer, scratch.counts,
        )  # fmt: skip
        for t in range(begin, end):
            for y in range(n_labels):
                out[t * n_labels + y] = scratch.marginals[(t - begin) * width + y]


@kernel
def add_and_clear(source: FloatArray, target: FloatArray) -> None:
    """``target += source; source = 0`` in one pass over memory."""
    for k in range(source.size):
        target[k] += source[k]
        source[k] = 0.0


# -- Viterbi's algorithm: the best labelling of each sequence ------------------------------
#     d_t(y) = s_t(y) + max_x (d_{t-1}(x) + T(x, y)),    the maximising x is kept for backtracking
#
# Of several best labellings the one is returned whose labels, from the last token backwards, are
# lowest.


@kernel
def best_labels(
    shape: RowShape,
    n_labels: int,
    entries: TokenEntries,
    states: StateIndex,
    model: ChainModel,
    sequence_offsets: LongArray,
    first: int,
    last: int,
    scores: FloatArray,
    previous: LabelArray,
    out: LabelArray,
    best_scores: FloatArray,
) -> None:
    """Labels of the sequences ``first`` to ``last``, and the scores of these labellings.

    ``scores`` (doubles) and ``previous`` (int32) have a row for each token of
    the longest sequence.
    """
    width = row_width(shape)
    for sequence in range(first, last):
        begin, end = sequence_offsets[sequence], sequence_offsets[sequence + 1]
        length = end - begin
        best_scores[sequence] = 0.0
        if length == 0:
            continue
        token_scores(shape, entries, states, model.weights, model.rows, begin, end, scores)
        for y in range(n_labels):
            scores[y] += model.start[y]
            scores[(length - 1) * width + y] += model.end[y]
        for t in range(1, length):
            row = t * width
            before = row - width
            for y in range(n_labels):
                top = scores[before] + model.transition[y]
                chosen = 0
                for x in range(1, n_labels):
                    value = scores[before + x] + model.transition[x * width + y]
                    if value > top:
                        top = value
                        chosen = x
                scores[row + y] += top
                previous[row + y] = chosen
        row = (length - 1) * width
        label = 0
        for y in range(1, n_labels):
            if scores[row + y] > scores[row + label]:
                label = y
        best_scores[sequence] = scores[row + label]
        for t in range(length - 1, -1, -1):
            out[begin + t] = label
            if t > 0:
                label = previous[t * width + label]
