"""Sums over all matchings of a small graph, by dynamic programming over sets.

Each kernel first fills ``rest``, the logarithm of the sum over all ways to go on from a state, and
then walks from the first state with the probabilities ``visits`` of being in each one; the
probability of an edge is the sum of those of the steps that use it.  All terms are positive, so
nothing cancels (Ryser's formula alternates in sign), and differences of ``rest`` are logarithms of
probabilities, so nothing overflows.

A set of columns or nodes is an integer, one bit for each.  Steps are ``O(n 2^n)``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.simd import fast_exp

__all__ = ["sum_bipartite", "sum_general", "sum_permutations"]

FloatArray = NDArray[np.float64]


@njit(cache=True, nogil=True, error_model="numpy")
def _log_sum(terms: FloatArray, count: int) -> float:
    largest = -np.inf
    for k in range(count):
        largest = max(largest, terms[k])
    if largest == -np.inf:
        return largest
    total = 0.0
    for k in range(count):
        total += fast_exp(terms[k] - largest)
    return largest + np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def _size(members: int) -> int:
    count = 0
    while members:
        members &= members - 1
        count += 1
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def sum_permutations(
    weights: FloatArray, rest: FloatArray, visits: FloatArray, marginals: FloatArray
) -> float:
    """Rows of a square matrix find partners one after the other; a state is the columns in use.

    Their number is the next row.  ``rest`` and ``visits`` have ``2**n`` entries.
    """
    n = len(weights)
    terms = np.empty(n)
    rest[(1 << n) - 1] = 0.0
    for used in range((1 << n) - 2, -1, -1):
        row = _size(used)
        count = 0
        for column in range(n):
            if not used >> column & 1:
                terms[count] = weights[row, column] + rest[used | 1 << column]
                count += 1
        rest[used] = _log_sum(terms, count)
    marginals[:] = 0.0
    visits[:] = 0.0
    visits[0] = 1.0 if rest[0] > -np.inf else 0.0
    for used in range((1 << n) - 1):
        if visits[used] == 0.0:
            continue
        row = _size(used)
        for column in range(n):
            if not used >> column & 1:
                after = used | 1 << column
                step = weights[row, column] + rest[after] - rest[used]
                share = visits[used] * fast_exp(step)
                marginals[row, column] += share
                visits[after] += share
    return rest[0]


@njit(cache=True, nogil=True, error_model="numpy")
def sum_bipartite(
    weights: FloatArray, full: bool, rest: FloatArray, visits: FloatArray, marginals: FloatArray
) -> float:
    """A row may stay alone, so that a state has its row, too: ``rest`` is ``(n + 1, 2**m)``.

    ``full``: every column must have a partner in the end.
    """
    n, m = weights.shape
    terms = np.empty(m + 1)
    rest[n] = -np.inf if full else 0.0
    rest[n, (1 << m) - 1] = 0.0
    for row in range(n - 1, -1, -1):
        for used in range(1 << m):
            terms[0] = rest[row + 1, used]
            count = 1
            for column in range(m):
                if not used >> column & 1:
                    terms[count] = weights[row, column] + rest[row + 1, used | 1 << column]
                    count += 1
            rest[row, used] = _log_sum(terms, count)
    marginals[:] = 0.0
    visits[:] = 0.0
    visits[0] = 1.0 if rest[0, 0] > -np.inf else 0.0
    for row in range(n):
        # larger sets have already moved on to the next row, so one vector is enough
        for used in range((1 << m) - 1, -1, -1):
            visit = visits[used]
            if visit == 0.0:
                continue
            visits[used] = visit * fast_exp(rest[row + 1, used] - rest[row, used])
            for column in range(m):
                if not used >> column & 1:
                    after = used | 1 << column
                    step = weights[row, column] + rest[row + 1, after] - rest[row, used]
                    share = visit * fast_exp(step)
                    marginals[row, column] += share
                    visits[after] += share
    return rest[0, 0]


@njit(cache=True, nogil=True, error_model="numpy")
def sum_general(
    weights: FloatArray, perfect: bool, rest: FloatArray, visits: FloatArray, marginals: FloatArray
) -> float:
    """Nodes of any graph; a state is the set of nodes that are left, and the first one is next."""
    n = len(weights)
    terms = np.empty(n + 1)
    rest[0] = 0.0
    for left in range(1, 1 << n):
        first = 0
        while not left >> first & 1:
            first += 1
        others = left & (left - 1)
        count = 0
        if not perfect:
            terms[0] = rest[others]
            count = 1
        for node in range(first + 1, n):
            if others >> node & 1:
                terms[count] = weights[first, node] + rest[others ^ 1 << node]
                count += 1
        rest[left] = _log_sum(terms, count)
    everyone = (1 << n) - 1
    marginals[:] = 0.0
    visits[:] = 0.0
    visits[everyone] = 1.0 if rest[everyone] > -np.inf else 0.0
    for left in range(everyone, 0, -1):
        if visits[left] == 0.0:
            continue
        first = 0
        while not left >> first & 1:
            first += 1
        others = left & (left - 1)
        if not perfect:
            visits[others] += visits[left] * fast_exp(rest[others] - rest[left])
        for node in range(first + 1, n):
            if others >> node & 1:
                after = others ^ 1 << node
                share = visits[left] * fast_exp(weights[first, node] + rest[after] - rest[left])
                marginals[first, node] += share
                visits[after] += share
    for first in range(n):
        for node in range(first + 1, n):
            marginals[node, first] = marginals[first, node]
    return rest[everyone]
