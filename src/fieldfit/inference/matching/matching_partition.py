"""Permanent and hafnian: exact partition functions and marginals of matchings of small graphs.

    log Z(W) = log sum_Y exp(sum_ij W_ij Y_ij),    tau_ij = d log Z / d W_ij = P(Y_ij = 1)

Over perfect matchings Z is the permanent of ``exp(W)`` for a bipartite graph and its hafnian for a
general one; sums over all matchings (the monomer-dimer model) are there for both.  These numbers
are hard to compute (Valiant, "The complexity of computing the permanent", Theoretical Computer
Science 8, 1979), so this is a reference for up to about twenty nodes on a side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import FloatArray
from fieldfit._validation import require_flag, require_number
from fieldfit.errors import TooLargeError, ZeroWeightError
from fieldfit.inference.matching.matching_polytope import checked_weights
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp

__all__ = [
    "MatchingPartition",
    "matching_partition",
    "sum_bipartite",
    "sum_general",
    "sum_permutations",
]

# -- Dynamic programming over subsets ------------------------------------------------------
# Each kernel first fills ``rest``, the logarithm of the sum over all ways to go on from a state,
# and then walks from the first state with the probabilities ``visits`` of being in each one; the
# probability of an edge is the sum of those of the steps that use it.  All terms are positive, so
# nothing cancels (Ryser's formula alternates in sign), and differences of ``rest`` are logarithms
# of probabilities, so nothing overflows.
#
# A set of columns or nodes is an integer, one bit for each.  Steps are ``O(n 2^n)``.


@kernel
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


@kernel
def _size(members: int) -> int:
    count = 0
    while members:
        members &= members - 1
        count += 1
    return count


@kernel
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
                probability = visits[used] * fast_exp(step)
                marginals[row, column] += probability
                visits[after] += probability
    return rest[0]


@kernel
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
                    probability = visit * fast_exp(step)
                    marginals[row, column] += probability
                    visits[after] += probability
    return rest[0, 0]


@kernel
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
                probability = visits[left] * fast_exp(
                    weights[first, node] + rest[after] - rest[left]
                )
                marginals[first, node] += probability
                visits[after] += probability
    for first in range(n):
        for node in range(first + 1, n):
            marginals[node, first] = marginals[first, node]
    return rest[everyone]


# -- The partition function ----------------------------------------------------------------


@dataclass(frozen=True)
class MatchingPartition:
    """Logarithm of the sum over all matchings, and the probability of each edge.

    ``marginals`` has the shape of the weights; it is the gradient of ``log_partition`` (of a
    general graph, with respect to the weight of an edge, which stands at two places).
    """

    log_partition: float
    marginals: FloatArray


def matching_partition(
    weights: ArrayLike,
    kind: Literal["bipartite", "general"] = "bipartite",
    perfect: bool = True,
    max_memory: float = 1e9,
) -> MatchingPartition:
    """Exact log-partition and edge marginals of the distribution over matchings.

    Parameters
    ----------
    weights
        Log-weights of the edges, ``-inf`` for none: a matrix of rows and columns, or the symmetric
        matrix of a general graph (its diagonal is not used).
    perfect
        Sum over perfect matchings, in which everybody on the smaller side has a partner; otherwise
        over all matchings, the empty one included.
    max_memory
        Bytes that the sums may take: 16 for each subset of the rows of a square matrix, or of the
        nodes of a general graph; for rectangular matrices and matchings that are not perfect about
        8 times the larger side for each subset of the smaller one.
    kind
        ``"bipartite"`` or ``"general"``.

    Returns
    -------
    MatchingPartition
        ``log_partition``, and ``marginals`` in the shape of the weights.

    Examples
    --------
    >>> result = matching_partition(np.log([[1.0, 2.0], [3.0, 4.0]]))
    >>> round(float(np.exp(result.log_partition)), 9), result.marginals.round(9).tolist()
    (10.0, [[0.4, 0.6], [0.6, 0.4]])
    """
    require_flag("perfect", perfect)
    require_number("max_memory", max_memory, above=0, finite=False)
    array = checked_weights(weights, kind)
    if kind == "general":
        value, marginals = _general(array, perfect, max_memory)
    elif array.shape[0] >= array.shape[1]:  # states are subsets of the columns
        value, marginals = _bipartite(array, perfect, max_memory)
    else:
        value, flipped = _bipartite(np.ascontiguousarray(array.T), perfect, max_memory)
        marginals = np.ascontiguousarray(flipped.T)
    if value == -np.inf:
        raise ZeroWeightError("weights must allow a perfect matching, got none")
    return MatchingPartition(value, marginals)


def _bipartite(weights: FloatArray, perfect: bool, max_memory: float) -> tuple[float, FloatArray]:
    n, m = weights.shape
    is_permanent = perfect and n == m
    _require_memory(m, 2 if is_permanent else n + 2, max_memory)
    visits = np.empty(2**m)
    marginals = np.empty((n, m))
    if is_permanent:
        return sum_permutations(weights, np.empty(2**m), visits, marginals), marginals
    return sum_bipartite(weights, perfect, np.empty((n + 1, 2**m)), visits, marginals), marginals


def _general(weights: FloatArray, perfect: bool, max_memory: float) -> tuple[float, FloatArray]:
    n = len(weights)
    _require_memory(n, 2, max_memory)
    marginals = np.empty((n, n))
    value = sum_general(weights, perfect, np.empty(2**n), np.empty(2**n), marginals)
    return value, marginals


def _require_memory(n_members: int, n_vectors: int, max_memory: float) -> None:
    needed = 8.0 * n_vectors * 2.0**n_members
    if needed > max_memory:
        raise TooLargeError(
            f"sums over matchings with subsets of {n_members} need {needed / 1e9:.3g} GB, "
            f"max_memory is {max_memory / 1e9:.3g} GB"
        )
