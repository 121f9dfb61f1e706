"""Sets of variables in bulk: intersections, containment, closure.

A family of sets is an integer matrix with one sorted row for each set, filled up with the number
of variables.  All that the cluster variation method asks of sets is answered for all of them at
once, by products of sparse incidence matrices: their entries are sizes of overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import IntArray, LongArray
from fieldfit.errors import TooLargeError
from fieldfit.graph.ragged import offsets_of
from fieldfit.numeric.compile import kernel

__all__ = ["SetFamily", "distinct_rows", "row_codes"]

#: Overlapping pairs of sets that are looked at, about 2 GB.
MAX_PAIRS = 100_000_000


def row_codes(rows: LongArray) -> LongArray:
    """One integer for each row (of numbers of at least -1), in lexicographic order.

    Sorting these is several times faster than sorting rows.
    """
    codes = np.zeros(len(rows), dtype=np.int64)
    span = 1
    for column in rows.T:
        n_values = int(column.max(initial=-1)) + 2
        if span * n_values > 2**62:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
            span = int(codes.max(initial=0)) + 1
        codes = codes * n_values + (column + 1)
        span *= n_values
    return codes


def distinct_rows(rows: LongArray) -> LongArray:
    """The different rows, in lexicographic order."""
    return rows[np.unique(row_codes(rows), return_index=True)[1]]


class SetFamily:
    """Sets of variables ``0 .. n_variables - 1``, each a sorted row."""

    def __init__(self, rows: LongArray, n_variables: int) -> None:
        self.rows = rows
        self.n_variables = n_variables

    @classmethod
    def of(cls, sets: Sequence[Sequence[int]], n_variables: int) -> SetFamily:
        """Family from lists of distinct variables, in the given order."""
        sizes = np.fromiter((len(s) for s in sets), dtype=np.int64, count=len(sets))
        flat = np.fromiter((i for s in sets for i in s), dtype=np.int64, count=int(sizes.sum()))
        return cls.from_flat(flat, sizes, n_variables)

    @classmethod
    def from_flat(cls, members: NDArray[Any], sizes: NDArray[Any], n_variables: int) -> SetFamily:
        """Family from concatenated members."""
        width = int(sizes.max(initial=0))
        rows = np.full((len(sizes), width), n_variables, dtype=np.int64)
        rows[np.arange(width) < sizes[:, None]] = members
        rows.sort(axis=1)
        return cls(rows, n_variables)

    @classmethod
    def singles(cls, variables: NDArray[Any], n_variables: int) -> SetFamily:
        return cls(variables.astype(np.int64)[:, None], n_variables)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> LongArray:
        return np.asarray((self.rows < self.n_variables).sum(axis=1))

    @property
    def members(self) -> LongArray:
        """All members, set after set."""
        return self.rows[self.rows < self.n_variables]

    def degrees(self) -> LongArray:
        """Number of sets on each variable."""
        return np.bincount(self.members, minlength=self.n_variables)

    def select(self, chosen: NDArray[Any]) -> SetFamily:
        return SetFamily(self.rows[chosen], self.n_variables)

    def union(self, other: SetFamily) -> SetFamily:
        """The sets of both, in lexicographic order and each once."""
        width = max(self.rows.shape[1], other.rows.shape[1])
        rows = np.concatenate([self.padded(width), other.padded(width)])
        return SetFamily(distinct_rows(rows), self.n_variables)

    def without(self, other: SetFamily) -> SetFamily:
        """The sets that are not in the other family."""
        return self.select(self.positions_in(other) < 0)

    def positions_in(self, other: SetFamily) -> LongArray:
        """Where each set is in the other family (of distinct sets), -1 if it is not."""
        width = max(self.rows.shape[1], other.rows.shape[1])
        rows = np.concatenate([other.padded(width), self.padded(width)])
        distinct, group = np.unique(row_codes(rows), return_inverse=True)
        place = np.full(len(distinct), -1, dtype=np.int64)
        place[group[: len(other)]] = np.arange(len(other))
        return place[group[len(other) :]]

    def incidence(self) -> Any:
        """Sparse matrix with a one for each (set, member)."""
        from scipy.sparse import csr_matrix

        members, sizes = self.members, self.sizes
        offsets = offsets_of(sizes)
        ones = np.ones(len(members), dtype=np.int32)
        return csr_matrix((ones, members, offsets), shape=(len(self), self.n_variables))

    def overlaps(self, other: SetFamily) -> tuple[LongArray, LongArray, LongArray]:
        """All pairs that have a member in common: positions in both families, and how many."""
        left, right = self.incidence(), other.incidence()
        n_pairs = float(np.dot(self.degrees().astype(np.float64), other.degrees()))
        if n_pairs > MAX_PAIRS:
            raise TooLargeError(
                f"regions overlap in {n_pairs:.3g} pairs, the limit is {MAX_PAIRS}: some variable "
                "lies in too many of them"
            )
        product = (left @ right.T).tocoo()
        order = np.lexsort((product.col, product.row))
        return (
            product.row[order].astype(np.int64),
            product.col[order].astype(np.int64),
            product.data[order].astype(np.int64),
        )

    def inside(self, other: SetFamily) -> tuple[LongArray, LongArray]:
        """Pairs (set, set of the other family) where the first lies in the second, or equals it."""
        first, second, common = self.overlaps(other)
        within = common == self.sizes[first]
        return first[within], second[within]

    def intersections(self, other: SetFamily) -> SetFamily:
        """Distinct intersections with sets of the other family that have two or more members."""
        first, second, common = self.overlaps(other)
        proper = (common >= 2) & (common < self.sizes[first]) & (common < other.sizes[second])
        first, second = first[proper], second[proper]
        rows = self.rows[first]
        # a member of both: its key (set, variable) is among the keys of the other family
        stride = self.n_variables + 1
        keys = np.repeat(np.arange(len(other)), other.sizes) * stride + other.members
        asked = second[:, None] * stride + rows
        found = np.searchsorted(keys, asked)
        shared = keys[np.minimum(found, len(keys) - 1)] == asked if len(keys) else rows < 0
        kept = np.where(shared & (rows < self.n_variables), rows, self.n_variables)
        kept.sort(axis=1)
        return SetFamily(distinct_rows(kept), self.n_variables)

    def maximal(self) -> SetFamily:
        """Distinct sets that lie in no other one."""
        family = self.union(self.select(np.zeros(0, dtype=np.int64)))
        sizes = family.sizes
        covered = np.zeros(len(family), dtype=np.bool_)
        # pairs lie in larger sets only, so that hubs of a pairwise graph cost nothing
        some, large = np.flatnonzero(sizes >= 2), np.flatnonzero(sizes >= 3)
        first, second = family.select(some).inside(family.select(large))
        strictly = some[first] != large[second]
        covered[some[first][strictly]] = True
        linked = np.zeros(family.n_variables, dtype=np.bool_)
        linked[family.select(some).members] = True
        single = np.flatnonzero(sizes == 1)
        covered[single] = linked[family.rows[single, 0]]
        return family.select(~covered)

    def closure(self) -> SetFamily:
        """All intersections of two or more of these maximal sets, but for the sets themselves.

        A set of one variable is closed if no other variable lies in all sets around it; larger ones
        come from intersecting until nothing new appears.
        """
        large = self.select(self.sizes >= 3)
        found = large.intersections(large)
        new = found.select(found.sizes >= 3)
        while len(new):
            before, candidates = found, new.intersections(large)
            found = found.union(candidates)
            new = candidates.without(before)
            new = new.select(new.sizes >= 3)
        incidence = self.incidence()
        together = (incidence.T @ incidence).tocoo()
        counts = self.degrees()
        companions = together.row != together.col
        most = np.zeros(self.n_variables, dtype=np.int64)
        np.maximum.at(most, together.row[companions], together.data[companions])
        closed = np.flatnonzero((counts >= 2) & (most < counts))
        return found.union(SetFamily.singles(closed, self.n_variables))

    def padded(self, width: int) -> LongArray:
        """Rows filled up to a common width."""
        missing = width - self.rows.shape[1]
        return np.pad(self.rows, ((0, 0), (0, missing)), constant_values=self.n_variables)


# -- cycles of four variables without a chord: the plaquettes of a pairwise graph ---------


@kernel
def _are_adjacent(offsets: IntArray, neighbours: IntArray, first: int, second: int) -> bool:
    low, high = offsets[first], offsets[first + 1]
    while low < high:
        middle = (low + high) // 2
        if neighbours[middle] < second:
            low = middle + 1
        else:
            high = middle
    return low < offsets[first + 1] and neighbours[low] == second


@kernel
def find_four_cycles(offsets: IntArray, neighbours: IntArray, cycles: IntArray) -> int:
    """Fill rows ``(u, v, w, x)`` of cycles ``u - v - w - x``, ``u`` the least; how many there are.

    ``neighbours`` are sorted, without repeats.  Rows beyond the length of ``cycles`` are counted
    but not written, up to one more than it.  Each pair of paths from ``u`` over two larger
    neighbours to one end is a cycle, without a chord if neither middles nor ends are joined.
    """
    n = len(offsets) - 1
    joined = np.full(n, -1, dtype=np.int32)  # to the variable at hand
    newest = np.full(n, -1, dtype=np.int32)  # last path that ends here, then along `before`
    owner = np.full(n, -1, dtype=np.int32)  # whose paths `newest` belongs to
    degree = 0
    for u in range(n):
        paths = 0
        for position in range(offsets[u], offsets[u + 1]):
            v = neighbours[position]
            paths += offsets[v + 1] - offsets[v]
        degree = max(degree, paths)
    before = np.empty(max(degree, 1), dtype=np.int32)
    middle = np.empty(max(degree, 1), dtype=np.int32)
    count = 0
    for u in range(n):
        for position in range(offsets[u], offsets[u + 1]):
            joined[neighbours[position]] = u
        n_paths = 0
        for position in range(offsets[u], offsets[u + 1]):
            v = neighbours[position]
            if v < u:
                continue
            for step in range(offsets[v], offsets[v + 1]):
                w = neighbours[step]
                if w <= u or joined[w] == u:
                    continue
                other = newest[w] if owner[w] == u else -1
                before[n_paths], middle[n_paths] = other, v
                newest[w], owner[w] = n_paths, u
                n_paths += 1
                while other >= 0:
                    x = middle[other]
                    if not _are_adjacent(offsets, neighbours, v, x):
                        if count < len(cycles):
                            cycles[count, 0], cycles[count, 1] = u, v
                            cycles[count, 2], cycles[count, 3] = w, x
                        count += 1
                        if count > len(cycles):
                            return count
                    other = before[other]
    return count
