"""Elimination orders: adjacency of the free variables and one randomised greedy order.

Eliminating a variable joins its neighbours pairwise and removes it; the variable with the
neighbours that it had at that moment is its *bucket*.  Finding the best order is NP-hard.
The greedy rule here is weighted min-fill: take the variable that adds the least weight of new
edges, an edge weighing the product of its two cardinalities; noise on the weight makes restarts
differ (Kask, Gelfand, Otten and Dechter, "Pushing the power of stochastic greedy ordering
schemes for inference in graphical models", AAAI 2011).  The weights are kept up to date edge by
edge, so that neither a large sparse graph nor a hub with many leaves costs quadratic time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.random import random_bits

IntArray = NDArray[np.int32]

COMPLETE, TOO_LARGE, TOO_SLOW = 0, 1, 2


class Elimination(NamedTuple):
    """One run of `greedy_order`.

    ``order`` lists the eliminated variables; the neighbours of ``order[k]`` at its elimination
    are ``neighbors[offsets[k]:offsets[k + 1]]``.  ``log2_largest`` and ``n_largest`` describe the
    largest bucket met (table entries, variables), ``n_steps`` counts the work spent.
    """

    status: int
    order: IntArray
    offsets: NDArray[np.int64]
    neighbors: IntArray
    log2_largest: float
    n_largest: int
    n_steps: int


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
def free_neighbors(structure: Any, labels: IntArray) -> tuple[NDArray[np.int64], IntArray]:
    """Neighbours of every free variable (label -1) through factors, as offsets and a flat list."""
    n_variables = len(labels)
    offsets = np.zeros(n_variables + 1, dtype=np.int64)
    seen = np.full(n_variables, -1, dtype=np.int64)
    flat = np.empty(0, dtype=np.int32)
    for filling in range(2):  # first count, then write
        if filling:
            flat = np.empty(offsets[n_variables], dtype=np.int32)
        position = 0
        for i in range(n_variables):
            if labels[i] < 0:
                seen[i] = 2 * i + filling
                for k in range(
                    structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
                ):
                    factor = structure.slot_factors[structure.variable_slots[k]]
                    for slot in range(
                        structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
                    ):
                        j = structure.slot_variables[slot]
                        if labels[j] < 0 and seen[j] != 2 * i + filling:
                            seen[j] = 2 * i + filling
                            if filling:
                                flat[position] = j
                            position += 1
            if not filling:
                offsets[i + 1] = position
    return offsets, flat


# -- a set of edges: open addressing, keys `low * n + high` ---------------------------------


@njit(cache=True, nogil=True)
def _place(table: NDArray[np.int64], key: int) -> int:
    """Where ``key`` is in the table, or the empty place where it belongs."""
    mask = np.uint64(len(table) - 1)
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing
    place = (mixed >> np.uint64(20)) & mask
    while table[place] != -1 and table[place] != key:
        place = (place + np.uint64(1)) & mask
    return np.int64(place)


@njit(cache=True, nogil=True)
def _edge_key(a: int, b: int, n_variables: int) -> int:
    return a * n_variables + b if a < b else b * n_variables + a


@njit(cache=True, nogil=True)
def _joined(table: NDArray[np.int64], a: int, b: int, n_variables: int) -> bool:
    key = _edge_key(a, b, n_variables)
    return table[_place(table, key)] == key


@njit(cache=True, nogil=True)
def _enlarged(table: NDArray[np.int64]) -> NDArray[np.int64]:
    larger = np.full(2 * len(table), -1, dtype=np.int64)
    for key in table:
        if key != -1:
            larger[_place(larger, key)] = key
    return larger


# -- a heap with positions: smallest (key, tie) at the root ---------------------------------


@njit(cache=True, nogil=True)
def _less(keys: NDArray[np.float64], ties: NDArray[np.uint64], a: int, b: int) -> bool:
    return keys[a] < keys[b] or (keys[a] == keys[b] and ties[a] < ties[b])


@njit(cache=True, nogil=True)
def _sift_up(heap: Any, places: Any, keys: Any, ties: Any, place: int) -> None:
    node = heap[place]
    while place > 0:
        above = (place - 1) >> 1
        if not _less(keys, ties, node, heap[above]):
            break
        heap[place] = heap[above]
        places[heap[place]] = place
        place = above
    heap[place] = node
    places[node] = place


@njit(cache=True, nogil=True)
def _sift_down(heap: Any, places: Any, keys: Any, ties: Any, place: int, size: int) -> None:
    node = heap[place]
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and _less(keys, ties, heap[below + 1], heap[below]):
            below += 1
        if not _less(keys, ties, heap[below], node):
            break
        heap[place] = heap[below]
        places[heap[place]] = place
        place = below
    heap[place] = node
    places[node] = place


@njit(cache=True, nogil=True)
def _noisy_key(fill: float, noise: float, draw: np.uint64) -> float:
    if fill == 0.0:
        return -1.0  # the neighbours are a clique already: never wrong to eliminate at once
    uniform = np.float64(draw >> np.uint64(11)) * 2.0**-53
    return fill * (1.0 + noise * uniform)


@njit(cache=True, nogil=True)
def _live(pool: IntArray, starts: Any, lengths: IntArray, gone: Any, i: int) -> int:
    """Drop the eliminated variables from the list of ``i``; the new length."""
    begin = starts[i]
    kept = 0
    for k in range(lengths[i]):
        j = pool[begin + k]
        if not gone[j]:
            pool[begin + kept] = j
            kept += 1
    lengths[i] = kept
    return kept


@njit(cache=True, nogil=True)
def greedy_order(
    cardinalities: IntArray,
    labels: IntArray,
    adjacency: tuple[NDArray[np.int64], IntArray],
    noise: float,
    seed: int,
    log2_limit: float,
    step_limit: int,
) -> Elimination:
    """One greedy order; gives up once a bucket has more than ``2**log2_limit`` entries."""
    n_variables = len(labels)
    offsets, flat = adjacency
    weights = cardinalities.astype(np.float64)  # integers, so that sums of products are exact
    logs = np.log2(weights)
    stream = np.uint64(seed)
    n_draws = 0

    # lists of neighbours that may move to the end of the pool when they grow
    starts = offsets[:-1].copy()
    lengths = np.diff(offsets).astype(np.int32)
    capacities = lengths.copy()
    pool = np.empty(max(2 * len(flat), 16), dtype=np.int32)
    pool[: len(flat)] = flat
    pool_used = len(flat)

    n_edges = len(flat) // 2
    table_size = 16
    while table_size < 2 * n_edges + 2:
        table_size *= 2
    edges = np.full(table_size, -1, dtype=np.int64)
    for i in range(n_variables):
        for k in range(offsets[i], offsets[i + 1]):
            if flat[k] > i:
                key = _edge_key(i, flat[k], n_variables)
                edges[_place(edges, key)] = key

    # weights around a variable: of its neighbours, of its bucket, of the missing edges
    around = np.zeros(n_variables)
    sizes = logs.copy()
    fills = np.zeros(n_variables)
    steps = n_edges
    for i in range(n_variables):
        squares = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            j = flat[k]
            around[i] += weights[j]
            squares += weights[j] * weights[j]
            sizes[i] += logs[j]
        fills[i] = (around[i] * around[i] - squares) / 2
    for a in range(n_variables):
        for k in range(offsets[a], offsets[a + 1]):
            b = flat[k]
            # every triangle once from its edge (a, b) with the third corner c: a, b < c
            if b <= a:
                continue
            few, many = (a, b) if lengths[a] <= lengths[b] else (b, a)
            steps += lengths[few]
            for m in range(offsets[few], offsets[few + 1]):
                c = flat[m]
                if c > b and _joined(edges, many, c, n_variables):
                    fills[a] -= weights[b] * weights[c]
                    fills[b] -= weights[a] * weights[c]
                    fills[c] -= weights[a] * weights[b]

    gone = labels >= 0
    heap = np.flatnonzero(~gone).astype(np.int32)
    n_left = len(heap)
    n_free = n_left
    places = np.full(n_variables, -1, dtype=np.int32)
    keys = np.zeros(n_variables)
    ties = np.zeros(n_variables, dtype=np.uint64)
    for k in range(n_left):
        i = heap[k]
        places[i] = k
        ties[i] = random_bits(stream, n_draws)
        n_draws += 1
        keys[i] = _noisy_key(fills[i], noise, ties[i])
    for k in range(n_left // 2 - 1, -1, -1):
        _sift_down(heap, places, keys, ties, k, n_left)

    order = np.empty(n_free, dtype=np.int32)
    bucket_offsets = np.zeros(n_free + 1, dtype=np.int64)
    buckets = np.empty(max(2 * len(flat), 16), dtype=np.int32)
    changed = np.empty(n_variables, dtype=np.int32)
    is_changed = np.zeros(n_variables, dtype=np.bool_)
    status = COMPLETE
    log2_largest = 0.0
    n_largest = 0
    done = 0
    while n_left:
        v = heap[0]
        n_left -= 1
        if n_left:
            heap[0] = heap[n_left]
            places[heap[0]] = 0
            _sift_down(heap, places, keys, ties, 0, n_left)
        degree = _live(pool, starts, lengths, gone, v)
        gone[v] = True
        if sizes[v] > log2_largest or n_largest == 0:
            log2_largest = sizes[v]
            n_largest = degree + 1
        if sizes[v] > log2_limit:
            status = TOO_LARGE
            break
        begin = bucket_offsets[done]
        while begin + degree > len(buckets):
            wider = np.empty(2 * len(buckets), dtype=np.int32)
            wider[:begin] = buckets[:begin]
            buckets = wider
        bucket = buckets[begin : begin + degree]
        bucket[:] = pool[starts[v] : starts[v] + degree]
        order[done] = v
        done += 1
        bucket_offsets[done] = begin + degree

        # removing v: every pair (v, x) of neighbours of a, not joined, is no longer missing
        n_changed = 0
        for k in range(degree):
            a = bucket[k]
            around[a] -= weights[v]
            sizes[a] -= logs[v]
            fills[a] -= weights[v] * around[a]
            changed[n_changed] = a
            n_changed += 1
            is_changed[a] = True
        steps += degree * degree // 2
        for k in range(degree):
            a = bucket[k]
            for m in range(k):
                b = bucket[m]
                if _joined(edges, a, b, n_variables):
                    fills[a] += weights[v] * weights[b]
                    fills[b] += weights[v] * weights[a]
        # joining the neighbours
        for k in range(degree):
            a = bucket[k]
            for m in range(k):
                b = bucket[m]
                key = _edge_key(a, b, n_variables)
                place = _place(edges, key)
                if edges[place] == key:
                    continue
                few, many = (a, b) if lengths[a] <= lengths[b] else (b, a)
                length = _live(pool, starts, lengths, gone, few)
                steps += length
                shared = 0.0
                for position in range(starts[few], starts[few] + length):
                    c = pool[position]
                    if _joined(edges, many, c, n_variables):
                        shared += weights[c]
                        fills[c] -= weights[a] * weights[b]
                        if not is_changed[c]:
                            is_changed[c] = True
                            changed[n_changed] = c
                            n_changed += 1
                fills[a] += weights[b] * (around[a] - shared)
                fills[b] += weights[a] * (around[b] - shared)
                around[a] += weights[b]
                around[b] += weights[a]
                sizes[a] += logs[b]
                sizes[b] += logs[a]
                edges[place] = key
                n_edges += 1
                if 2 * n_edges > len(edges):
                    edges = _enlarged(edges)
                for x, y in ((a, b), (b, a)):
                    if lengths[x] == capacities[x]:
                        _live(pool, starts, lengths, gone, x)
                    if lengths[x] == capacities[x]:
                        capacity = 2 * capacities[x] + 4
                        if pool_used + capacity > len(pool):
                            wider = np.empty(2 * (pool_used + capacity), dtype=np.int32)
                            wider[:pool_used] = pool[:pool_used]
                            pool = wider
                        source = starts[x]
                        for position in range(lengths[x]):
                            pool[pool_used + position] = pool[source + position]
                        starts[x] = pool_used
                        capacities[x] = capacity
                        pool_used += capacity
                    pool[starts[x] + lengths[x]] = y
                    lengths[x] += 1
        for k in range(n_changed):
            a = changed[k]
            is_changed[a] = False
            ties[a] = random_bits(stream, n_draws)
            n_draws += 1
            keys[a] = _noisy_key(fills[a], noise, ties[a])
            _sift_up(heap, places, keys, ties, places[a])
            _sift_down(heap, places, keys, ties, places[a], n_left)
        steps += n_changed
        if steps > step_limit:
            status = TOO_SLOW
            break
    return Elimination(
        status,
        order[:done].copy(),
        bucket_offsets[: done + 1].copy(),
        buckets[: bucket_offsets[done]].copy(),
        log2_largest,
        n_largest,
        steps,
    )


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
        if up >= 0 and below[up] < 0:
            if offsets[up + 1] - offsets[up] + 1 == offsets[k + 1] - offsets[k]:
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
