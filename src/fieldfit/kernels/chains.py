"""Value and gradient of the exact likelihood of linear chains, one group of sequences at a time.

    value = sum over sequences of log Z - log Z(labels),    gradient = E[f] - E[f | labels]

Everything is fused: scores of a sequence's tokens from its attributes, forward-backward
(`chain_recursions`), residuals (marginals minus labels) back into the weights (`chain_features`).
What is kept beyond a sequence are the gradient and two K x K tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.chain_features import add_token_gradients, token_scores
from fieldfit.kernels.chain_recursions import (
    exponentials,
    log_forward_backward,
    scaled_backward,
    scaled_forward,
)
from fieldfit.kernels.chain_rows import rank_update, row_width

__all__ = ["ChainModel", "ChainScratch", "add_and_clear", "chain_group", "chain_marginals"]

FloatArray = NDArray[np.float64]
_options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


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


@njit(**_options)
def _sequence_scores(
    shape: Any, entries: Any, states: Any, model: Any, begin: int, end: int, scratch: Any
) -> None:
    width = row_width(shape)
    token_scores(shape, entries, states, model.weights, model.rows, begin, end, scratch.scores)
    last = (end - begin - 1) * width
    for y in range(width):
        scratch.scores[y] += model.start[y]
        scratch.scores[last + y] += model.end[y]


@njit(**_options)
def _forward_backward(
    shape: Any,
    n_labels: int,
    length: int,
    model: Any,
    given: Any,
    weight: float,
    scratch: Any,
    marginals: Any,
    outer: Any,
    counts: Any,
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


@njit(**_options)
def chain_group(
    shape: Any,
    n_labels: int,
    entries: Any,
    states: Any,
    model: Any,
    sequence_offsets: Any,
    token_labels: Any,
    sequence_weights: Any,
    first: int,
    last: int,
    scratch: Any,
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


@njit(**_options)
def chain_marginals(
    shape: Any,
    n_labels: int,
    entries: Any,
    states: Any,
    model: Any,
    sequence_offsets: Any,
    first: int,
    last: int,
    scratch: Any,
    out: Any,
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


@njit(**_options)
def add_and_clear(source: Any, target: Any) -> None:
    """``target += source; source = 0`` in one pass over memory."""
    for k in range(source.size):
        target[k] += source[k]
        source[k] = 0.0
