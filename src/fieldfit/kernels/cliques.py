"""From the buckets of an elimination order to the maximal cliques and their tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.elimination import Elimination

IntArray = NDArray[np.int32]


class Cliques(NamedTuple):
    """The first fields of a `CliqueTree`, and what its cost is counted from."""

    offsets: NDArray[np.int64]
    variables: IntArray
    n_eliminated: IntArray
    parents: IntArray
    homes: IntArray  # the clique in which each variable is eliminated, -1 for observed ones
    clusters: NDArray[np.float64]  # table entries
    separators: NDArray[np.int64]  # table entries


@njit(cache=True, nogil=True)
def merge_buckets(cardinalities: IntArray, elimination: Elimination) -> Cliques:
    """Maximal cliques: each bucket that lies inside another one is joined to it.

    The parent of a bucket is the bucket of its first neighbour to be eliminated, and lies inside
    its child exactly if it has one neighbour less than the child.
    """
    n_variables = len(cardinalities)
    order, offsets, neighbors = elimination.order, elimination.offsets, elimination.neighbors
    n_buckets = len(order)
    ranks = np.full(n_variables, -1, dtype=np.int32)
    for k in range(n_buckets):
        ranks[order[k]] = k
    parents = np.full(n_buckets, -1, dtype=np.int32)
    above = np.full(n_buckets, -1, dtype=np.int32)  # the bucket that k takes in
    below = np.full(n_buckets, -1, dtype=np.int32)  # the bucket that takes k in
    for k in range(n_buckets):
        for position in range(offsets[k], offsets[k + 1]):
            rank = ranks[neighbors[position]]
            if parents[k] < 0 or rank < parents[k]:
                parents[k] = rank
        up = parents[k]
        is_inside = offsets[up + 1] - offsets[up] + 1 == offsets[k + 1] - offsets[k]
        if up >= 0 and below[up] < 0 and is_inside:
            below[up] = k
            above[k] = up

    # numbered by the last variable eliminated, so that a clique comes before its parent
    homes = np.full(n_variables, -1, dtype=np.int32)
    lasts = np.flatnonzero(above < 0)
    n_cliques = len(lasts)
    clique_offsets = np.zeros(n_cliques + 1, dtype=np.int64)
    n_eliminated = np.zeros(n_cliques, dtype=np.int32)
    for c in range(n_cliques):
        k = lasts[c]
        clique_offsets[c + 1] = clique_offsets[c] + offsets[k + 1] - offsets[k]
        while k >= 0:
            homes[order[k]] = c
            n_eliminated[c] += 1
            k = below[k]
        clique_offsets[c + 1] += n_eliminated[c]
    clique_parents = np.full(n_cliques, -1, dtype=np.int32)
    clusters = np.ones(n_cliques)
    separators = np.ones(n_cliques, dtype=np.int64)
    variables = np.empty(clique_offsets[n_cliques], dtype=np.int32)
    for c in range(n_cliques):
        k = lasts[c]
        if parents[k] >= 0:
            clique_parents[c] = homes[order[parents[k]]]
        separator = variables[clique_offsets[c] + n_eliminated[c] : clique_offsets[c + 1]]
        for position in range(len(separator)):
            separator[position] = ranks[neighbors[offsets[k] + position]]
        separator.sort()
        for position in range(len(separator)):
            separator[position] = order[separator[position]]
            separators[c] *= cardinalities[separator[position]]
        clusters[c] = separators[c]
        place = clique_offsets[c] + n_eliminated[c]
        while k >= 0:
            place -= 1
            variables[place] = order[k]
            clusters[c] *= cardinalities[order[k]]
            k = below[k]
    return Cliques(
        clique_offsets, variables, n_eliminated, clique_parents, homes, clusters, separators
    )
