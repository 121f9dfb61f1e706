"""Forward-backward on one sequence: scaled sums where they are exact, logarithms where not.

With scores ``s_t`` (K for each token) and transitions ``T``, after the maximum of every ``s_t`` and
that of ``T`` is taken out, ``u_t = exp s_t`` and ``E = exp T`` lie in [0, 1] and

    f_t = u_t * (E^T f_{t-1}) / c_t         c_t makes f_t sum to 1
    b_{t-1} = E v_t,   v_t = u_t * b_t / c_t
    p(y_t) = f_t * b_t,    p(y_{t-1}, y_t) = f_{t-1} E v_t^T,    log Z = sum log c_t + maxima.

The expected transitions of a sequence are ``E`` times the sum of the outer products of
``f_{t-1}`` and ``v_t``; no table is kept for any token.

**Range.** Sums of positive numbers have no cancellation, so every entry is right to a few units
in the last place unless something underflowed.  What underflows is below 1e-307; if therefore
*every* entry of every unnormalised ``f_t`` and of every ``b_t`` is above `FLOOR`, what was lost
is less than one part in 1e16 of *each entry*, and stays so through the recursion.  (A floor for
the sums alone would not do: a path that is negligible now may be the only one later.)  The other
sequences are computed again with logarithms, entry by entry.  There is no
overflow to test for: ``b_t`` is at most ``1 / f_t``.

Where a token's label is observed, ``u_t`` is 1 for it and 0 for others, which are then not tested.
Reference: Rabiner, "A tutorial on hidden Markov models", Proceedings of the IEEE 77 (1989).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fieldfit.kernels.chain_rows import row_width, vector_times_table
from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store

__all__ = [
    "FLOOR",
    "exponentials",
    "log_forward_backward",
    "scaled_backward",
    "scaled_forward",
]

#: Entries below it are not trusted.  Terms that vanish are below 4e-308 (`fast_exp`), so K of them
#: are less than K times 4e-18 of a sum above it.
FLOOR = 1e-290
#: Its logarithm, rounded up.
LOG_FLOOR = -667.0

_options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


# Without NaN a maximum is associative and can run in SIMD; scores are finite or -inf.
@njit(fastmath={"nnan", "nsz", "reassoc"}, **_options)
def exponentials(shape: Any, n_labels: int, length: int, scores: Any, given: Any, unary: Any,
                 tops: Any) -> bool:  # fmt: skip
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


@njit(fastmath=SAFE_FASTMATH | {"nnan"}, **_options)
def _scale_row(shape: Any, unary: Any, row: int, forward: Any) -> tuple[float, float]:
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


@njit(fastmath=SAFE_FASTMATH, **_options)
def scaled_forward(shape: Any, length: int, exp_transition: Any, unary: Any, forward: Any,
                   inverse_scales: Any) -> tuple[float, bool]:  # fmt: skip
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


@njit(fastmath=SAFE_FASTMATH | {"nnan"}, **_options)
def scaled_backward(shape: Any, length: int, exp_transposed: Any, unary: Any, forward: Any,
                    inverse_scales: Any, backward: Any, marginals: Any) -> bool:  # fmt: skip
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


@njit(**_options)
def _log_sum(values: Any, count: int) -> float:
    top = -np.inf
    for k in range(count):
        top = max(top, values[k])
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(count):
        total += np.exp(values[k] - top)
    return top + np.log(total)


@njit(**_options)
def log_forward_backward(
    width: int,
    n_labels: int,
    length: int,
    transition: Any,
    scores: Any,
    given: Any,
    weight: float,
    forward: Any,
    backward: Any,
    marginals: Any,
    counts: Any,
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
