"""Randomised greedy elimination orders: weighted min-fill.

Eliminating a variable joins its neighbours pairwise and removes it; the variable with the
neighbours that it had at that moment is its *bucket*.  Finding the best order is NP-hard.
The greedy rule here is weighted min-fill: take the variable that adds the least weight of new
edges, an edge weighing the product of its two cardinalities; noise on the weight makes restarts
differ (Kask, Gelfand, Otten and Dechter, "Pushing the power of stochastic greedy ordering
schemes for inference in graphical models", AAAI 2011).  The weights are kept up to date edge by
edge, so that neither a large sparse graph nor a hub with many leaves costs quadratic time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, IntArray, LongArray
from fieldfit.graph.structure import Structure
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.heap import edge_key, enlarged, find_place, is_joined, sift_down, sift_up
from fieldfit.numeric.random_numbers import random_bits

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


@kernel
def free_neighbors(structure: Structure, labels: IntArray) -> tuple[NDArray[np.int64], IntArray]:
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


@kernel
def _noisy_key(fill: float, noise: float, draw: np.uint64) -> float:
    if fill == 0.0:
        return -1.0  # the neighbours are a clique already: never wrong to eliminate at once
    uniform = np.float64(draw >> np.uint64(11)) * 2.0**-53
    return fill * (1.0 + noise * uniform)


@kernel
def _live(pool: IntArray, starts: LongArray, lengths: IntArray, gone: BoolArray, i: int) -> int:
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


@kernel
def _roomy(array: IntArray, used: int, needed: int) -> IntArray:
    """The array, or a larger copy of its used part, with room for ``needed`` entries."""
    if needed <= len(array):
        return array
    larger = np.empty(2 * needed, dtype=np.int32)
    larger[:used] = array[:used]
    return larger


@kernel
def _edge_set(offsets: NDArray[np.int64], flat: IntArray) -> NDArray[np.int64]:
    n_variables = len(offsets) - 1
    size = 16
    while size < len(flat) + 2:
        size *= 2
    edges = np.full(size, -1, dtype=np.int64)
    for i in range(n_variables):
        for k in range(offsets[i], offsets[i + 1]):
            if flat[k] > i:
                key = edge_key(i, flat[k], n_variables)
                edges[find_place(edges, key)] = key
    return edges


@kernel
def _surroundings(
    offsets: NDArray[np.int64],
    flat: IntArray,
    weights: NDArray[np.float64],
    edges: NDArray[np.int64],
    without_fills: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """For each variable the weight of its neighbours, log2 of its bucket, weight of its fill."""
    n_variables = len(weights)
    around = np.zeros(n_variables)
    sizes = np.log2(weights)
    fills = np.zeros(n_variables)
    for i in range(n_variables):
        squares = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            weight = weights[flat[k]]
            around[i] += weight
            squares += weight * weight
            sizes[i] += np.log2(weight)
        fills[i] = (around[i] * around[i] - squares) / 2
    if without_fills:
        return around, sizes, fills
    # subtract the pairs that are joined: every triangle a < b < c once, from its edge (a, b)
    for a in range(n_variables):
        for k in range(offsets[a], offsets[a + 1]):
            b = flat[k]
            if b <= a:
                continue
            is_a_smaller = offsets[a + 1] - offsets[a] <= offsets[b + 1] - offsets[b]
            few, many = (a, b) if is_a_smaller else (b, a)
            for m in range(offsets[few], offsets[few + 1]):
                c = flat[m]
                if c > b and is_joined(edges, many, c, n_variables):
                    fills[a] -= weights[b] * weights[c]
                    fills[b] -= weights[a] * weights[c]
                    fills[c] -= weights[a] * weights[b]
    return around, sizes, fills


@kernel
def greedy_order(
    cardinalities: IntArray,
    labels: IntArray,
    adjacency: tuple[NDArray[np.int64], IntArray],
    noise: float,
    seed: int,
    log2_limit: float,
    step_limit: int,
) -> tuple[int, IntArray, NDArray[np.int64], IntArray, float, int, int]:
    """An `Elimination`; gives up once a bucket has more than ``2**log2_limit`` entries."""
    n_variables = len(labels)
    offsets, flat = adjacency
    weights = cardinalities.astype(np.float64)  # integers, so that sums of products are exact
    logs = np.log2(weights)
    stream = np.uint64(seed)
    n_draws = 0

    # lists of neighbours that may move to the end of the pool when they grow
    starts = offsets[:-1].copy()
    lengths = (offsets[1:] - offsets[:-1]).astype(np.int32)
    capacities = lengths.copy()
    pool = np.empty(max(2 * len(flat), 16), dtype=np.int32)
    pool[: len(flat)] = flat
    pool_used = len(flat)

    n_edges = len(flat) // 2
    edges = _edge_set(offsets, flat)

    steps = n_edges
    for a in range(n_variables):
        for k in range(offsets[a], offsets[a + 1]):
            if flat[k] > a:
                steps += min(lengths[a], lengths[flat[k]])
    is_dense = steps > step_limit
    around, sizes, fills = _surroundings(offsets, flat, weights, edges, is_dense)

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
        sift_down(heap, places, keys, ties, k, n_left)

    order = np.empty(n_free, dtype=np.int32)
    bucket_offsets = np.zeros(n_free + 1, dtype=np.int64)
    buckets = np.empty(max(2 * len(flat), 16), dtype=np.int32)
    changed = np.empty(n_variables, dtype=np.int32)
    is_changed = np.zeros(n_variables, dtype=np.bool_)
    status = TOO_SLOW if is_dense else COMPLETE
    log2_largest = 0.0
    n_largest = 0
    done = 0
    while n_left and status == COMPLETE:
        v = heap[0]
        n_left -= 1
        if n_left:
            heap[0] = heap[n_left]
            places[heap[0]] = 0
            sift_down(heap, places, keys, ties, 0, n_left)
        degree = _live(pool, starts, lengths, gone, v)
        gone[v] = True
        if sizes[v] > log2_largest or n_largest == 0:
            log2_largest = sizes[v]
            n_largest = degree + 1
        is_last_clique = degree == n_left and fills[v] == 0.0
        if sizes[v] > log2_limit and not is_last_clique:
            status = TOO_LARGE
            break
        begin = bucket_offsets[done]
        needed = begin + (degree * (degree + 1) // 2 if is_last_clique else degree)
        buckets = _roomy(buckets, begin, needed)
        if is_last_clique:
            # whatever is left is one clique: any order will do, and its buckets are nested
            rest = pool[starts[v] : starts[v] + degree]
            order[done] = v
            for k in range(degree + 1):
                if k:
                    order[done] = rest[k - 1]
                begin = bucket_offsets[done]
                buckets[begin : begin + degree - k] = rest[k:]
                done += 1
                bucket_offsets[done] = begin + degree - k
            break
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
                if is_joined(edges, a, b, n_variables):
                    fills[a] += weights[v] * weights[b]
                    fills[b] += weights[v] * weights[a]
        # joining the neighbours
        for k in range(degree):
            a = bucket[k]
            for m in range(k):
                b = bucket[m]
                key = edge_key(a, b, n_variables)
                place = find_place(edges, key)
                if edges[place] == key:
                    continue
                few, many = (a, b) if lengths[a] <= lengths[b] else (b, a)
                length = _live(pool, starts, lengths, gone, few)
                steps += length
                shared = 0.0
                for position in range(starts[few], starts[few] + length):
                    c = pool[position]
                    if is_joined(edges, many, c, n_variables):
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
                    edges = enlarged(edges)
                for x, y in ((a, b), (b, a)):
                    if lengths[x] == capacities[x]:
                        _live(pool, starts, lengths, gone, x)
                    if lengths[x] == capacities[x]:
                        capacity = 2 * capacities[x] + 4
                        pool = _roomy(pool, pool_used, pool_used + capacity)
                        source = starts[x]
                        pool[pool_used : pool_used + lengths[x]] = pool[
                            source : source + lengths[x]
                        ]
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
            sift_up(heap, places, keys, ties, places[a])
            sift_down(heap, places, keys, ties, places[a], n_left)
        steps += n_changed
        if steps > step_limit:
            status = TOO_SLOW
    if status != COMPLETE and n_left:
        # whichever variable comes next, its bucket has at least this size
        next_size = np.inf
        next_degree = n_variables
        for k in range(n_left):
            next_size = min(next_size, sizes[heap[k]])
            next_degree = min(next_degree, _live(pool, starts, lengths, gone, heap[k]))
        if next_size > log2_largest:
            log2_largest = next_size
            n_largest = next_degree + 1
    return (
        status,
        order[:done].copy(),
        bucket_offsets[: done + 1].copy(),
        buckets[: bucket_offsets[done]].copy(),
        log2_largest,
        n_largest,
        steps,
    )
