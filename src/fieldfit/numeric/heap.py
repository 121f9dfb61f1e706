"""Hash set of edges and indexed binary heap, on plain arrays, for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.numeric.compile import kernel

# -- a set of edges: open addressing, keys `low * n + high` ---------------------------------


@kernel
def find_place(table: NDArray[np.int64], key: int) -> int:
    """Where ``key`` is in the table, or the empty place where it belongs."""
    mask = np.uint64(len(table) - 1)
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing
    place = (mixed >> np.uint64(20)) & mask
    while table[place] != -1 and table[place] != key:
        place = (place + np.uint64(1)) & mask
    return int(place)


@kernel
def edge_key(a: int, b: int, n_variables: int) -> int:
    """The key of an edge, whichever way round it is named."""
    return a * n_variables + b if a < b else b * n_variables + a


@kernel
def is_joined(table: NDArray[np.int64], a: int, b: int, n_variables: int) -> bool:
    """True if the edge is in the set."""
    key = edge_key(a, b, n_variables)
    return table[find_place(table, key)] == key


@kernel
def enlarged(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same set with twice the room; keep a set at most half full."""
    larger = np.full(2 * len(table), -1, dtype=np.int64)
    for key in table:
        if key != -1:
            larger[find_place(larger, key)] = key
    return larger


# -- a heap with positions: smallest (key, tie) at the root ---------------------------------


@kernel
def _less(keys: NDArray[np.float64], ties: NDArray[np.uint64], a: int, b: int) -> bool:
    return keys[a] < keys[b] or (keys[a] == keys[b] and ties[a] < ties[b])


@kernel
def sift_up(heap: Any, places: Any, keys: Any, ties: Any, place: int) -> None:
    """Move an entry whose key became smaller towards the root."""
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


@kernel
def sift_down(heap: Any, places: Any, keys: Any, ties: Any, place: int, size: int) -> None:
    """Move an entry whose key became larger away from the root."""
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
