"""Maps between tables: which entry of a small table each entry of a large one is summed into."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import MAX_ENTRIES
from fieldfit.core.region_sets import SetFamily, row_codes
from fieldfit.errors import TooLargeError

__all__ = ["MapPool", "offsets_of"]

IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]


class MapPool:
    """Maps from the tables of regions to smaller ones, each kept once."""

    def __init__(self, regions: SetFamily, shapes: LongArray) -> None:
        self._regions, self._shapes = regions, shapes
        self._starts: dict[tuple[int, ...], int] = {}
        self._maps: list[IntArray] = []
        self._runs: list[int] = []
        self._length = 0

    def maps(self, hosts: LongArray, targets: LongArray) -> LongArray:
        """Where the map from each host to the variables of its row begins (0 without a host)."""
        starts = np.zeros(len(hosts), dtype=np.int64)
        hosted = np.flatnonzero(hosts >= 0)
        rows, shapes = self._regions.rows[hosts[hosted]], self._shapes[hosts[hosted]]
        width, n_targets = rows.shape[1], targets.shape[1]
        # a map is known by the shape of the host and the positions of the variables in it
        keys = np.empty((len(hosted), width + n_targets), dtype=np.int64)
        keys[:, :width] = shapes
        for column in range(n_targets):
            wanted = targets[hosted, column]
            is_there = (rows == wanted[:, None]) & (wanted < self._regions.n_variables)[:, None]
            keys[:, width + column] = np.where(is_there.any(axis=1), is_there.argmax(axis=1), -1)
        if len(hosted):
            _, first, group = np.unique(row_codes(keys), return_index=True, return_inverse=True)
            known = [self._start(row[:width], row[width:]) for row in keys[first].tolist()]
            starts[hosted] = np.array(known, dtype=np.int64)[group]
        return starts

    def _start(self, shape: list[int], positions: list[int]) -> int:
        used = [p for p in positions if p >= 0]
        key = (*shape, -1, *used)
        if key not in self._starts:
            digits = np.indices(shape).reshape(len(shape), -1)
            entries = np.zeros(digits.shape[1], dtype=np.int64)
            for position in used:  # Horner, first variable slowest
                entries = entries * shape[position] + digits[position]
            self._starts[key] = self._length
            self._maps.append(entries.astype(np.int32))
            # the axes behind the last one that is kept
            self._runs.append(int(np.prod(shape[max(used, default=-1) + 1 :])))
            self._length += len(entries)
        return self._starts[key]

    def runs(self, starts: LongArray) -> IntArray:
        """How many entries in a row each map sends to the same one."""
        known = dict(zip(self._starts.values(), self._runs, strict=True))
        distinct, group = np.unique(starts, return_inverse=True)
        runs = np.array([known[start] for start in distinct.tolist()], dtype=np.int32)
        return runs[group]

    def joined(self) -> IntArray:
        return np.concatenate([np.zeros(0, dtype=np.int32), *self._maps])


def offsets_of(sizes: NDArray[Any]) -> IntArray:
    """Where each of several stretches begins, and where the last one ends."""
    total = int(sizes.sum(dtype=np.int64)) if len(sizes) else 0
    if total > MAX_ENTRIES:
        raise TooLargeError(f"the regions have {total} entries, the limit is {MAX_ENTRIES}")
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
