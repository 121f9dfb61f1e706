"""Exact test whether edge weights lie in the forest polytope of a graph.

Weights ``rho`` are a convex combination of forests (or lie below one) if and only if every
non-empty set ``S`` of nodes satisfies ``rho(edges inside S) <= |S| - 1`` (Edmonds 1970).  Since
``2 rho(inside S) = sum over S of degree - rho(boundary of S)``, this reads ::

    min over S of  [ rho(boundary of S) + sum over i in S of (2 - degree_i) ]  >=  2,

which is a minimum cut for each node that is forced into ``S`` (Padberg and Wolsey 1983).  The
flow without a forced node is found once; then two more units must fit from each node to the sink.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]


@njit(cache=True, nogil=True, error_model="numpy")
def augment(
    starts: IntArray,
    heads: IntArray,
    twins: IntArray,
    residual: LongArray,
    ends: tuple[int, int],
    amount: int,
) -> int:
    """Push up to ``amount`` from ``ends[0]`` to ``ends[1]`` by shortest paths; what was pushed."""
    source, sink = ends
    n_nodes = len(starts) - 1
    entry = np.empty(n_nodes, dtype=np.int32)  # arc by which the search came
    queue = np.empty(n_nodes, dtype=np.int32)
    pushed = 0
    while pushed < amount:
        entry[:] = -1
        queue[0] = source
        n_queued, n_done = 1, 0
        while n_done < n_queued and entry[sink] < 0:
            node = queue[n_done]
            n_done += 1
            for arc in range(starts[node], starts[node + 1]):
                head = heads[arc]
                if residual[arc] > 0 and entry[head] < 0 and head != source:
                    entry[head] = arc
                    queue[n_queued] = head
                    n_queued += 1
        if entry[sink] < 0:
            break
        step = amount - pushed
        node = sink
        while node != source:
            step = min(step, residual[entry[node]])
            node = heads[twins[entry[node]]]
        node = sink
        while node != source:
            residual[entry[node]] -= step
            residual[twins[entry[node]]] += step
            node = heads[twins[entry[node]]]
        pushed += step
    return pushed


@njit(cache=True, nogil=True, error_model="numpy")
def in_forest_polytope(
    starts: IntArray,
    heads: IntArray,
    twins: IntArray,
    capacities: LongArray,
    unit: int,
    tolerance: int,
) -> bool:
    """Whether no set of nodes holds more than its size less one, up to ``tolerance``.

    Arcs are listed by their tail; the last two nodes are source and sink, and capacities are
    integers in which ``unit`` stands for 1, so that the test is exact.
    """
    source = len(starts) - 3
    sink = source + 1
    base = capacities.copy()
    supply = 0
    for arc in range(starts[source], starts[source + 1]):
        supply += base[arc]
    ends = (source, sink)
    if augment(starts, heads, twins, base, ends, supply) < supply:
        return False  # some set holds more than its size
    for node in range(source):
        residual = base.copy()
        ends = (node, sink)
        if augment(starts, heads, twins, residual, ends, 2 * unit) < 2 * (unit - tolerance):
            return False
    return True
