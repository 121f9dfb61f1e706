"""Exact sums over the matchings of small graphs.

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
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.matching_graphs import checked_weights
from fieldfit.errors import TooLargeError, ZeroWeightError
from fieldfit.kernels.matching_sums import sum_bipartite, sum_general, sum_permutations

__all__ = ["MatchingPartition", "matching_partition"]


@dataclass(frozen=True)
class MatchingPartition:
    """Logarithm of the sum over all matchings, and the probability of each edge.

    ``marginals`` has the shape of the weights; it is the gradient of ``log_partition`` (of a
    general graph, with respect to the weight of an edge, which stands at two places).
    """

    log_partition: float
    marginals: NDArray[np.float64]


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

    Examples
    --------
    >>> result = matching_partition(np.log([[1.0, 2.0], [3.0, 4.0]]))
    >>> round(float(np.exp(result.log_partition)), 9), result.marginals.round(9).tolist()
    (10.0, [[0.4, 0.6], [0.6, 0.4]])
    """
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


def _bipartite(
    weights: NDArray[np.float64], perfect: bool, max_memory: float
) -> tuple[float, NDArray[np.float64]]:
    n, m = weights.shape
    is_permanent = perfect and n == m
    _require_memory(m, 2 if is_permanent else n + 2, max_memory)
    visits = np.empty(2**m)
    marginals = np.empty((n, m))
    if is_permanent:
        return sum_permutations(weights, np.empty(2**m), visits, marginals), marginals
    return sum_bipartite(weights, perfect, np.empty((n + 1, 2**m)), visits, marginals), marginals


def _general(
    weights: NDArray[np.float64], perfect: bool, max_memory: float
) -> tuple[float, NDArray[np.float64]]:
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
