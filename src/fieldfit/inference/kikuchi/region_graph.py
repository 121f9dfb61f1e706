"""Region graphs of the cluster variation method (Kikuchi), in flat index arrays.

*Outer* regions are sets of variables, none inside another, that cover the scope of every factor;
*inner* regions are all their intersections.  The counting numbers

    c_r = 1 - sum of c over the regions that contain r

make every variable and every factor count once.  The entropy ``sum_r c_r H(b_r)`` is exact if the
outer regions form a junction tree; it is Bethe's if they are the factors and the inner ones single
variables; and it gets better as more short cycles lie inside regions.

Regions are numbered outer ones first.  Their tables lie one after the other, variables in rising
order, the last one fastest (``table_offsets``).  A *link* joins an inner region to an outer one
that contains it.  A *map* gives for each entry of a region's table the entry of a smaller table (of
an inner region, a factor or a variable) that it is summed into; maps depend on shapes and
positions only, so that all plaquettes of a grid share a few.

References: Kikuchi, "A theory of cooperative phenomena", Physical Review 81 (1951); Yedidia,
Freeman and Weiss, "Constructing free-energy approximations and generalized belief propagation
algorithms", IEEE Transactions on Information Theory 51 (2005).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, IntArray, LongArray
from fieldfit._validation import require_index, require_instance
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import MAX_ENTRIES, FactorGraph, require_factor_graph
from fieldfit.graph.ragged import offsets_of
from fieldfit.inference.kikuchi.region_sets import SetFamily, row_codes
from fieldfit.inference.kikuchi.region_sweeps import RegionArrays

__all__ = [
    "MapPool",
    "RegionGraph",
    "Regions",
    "checked_key",
    "offsets_of",
    "require_regions",
    "structure_of",
    "union_of_regions",
]

NAMES = ("bethe", "plaquettes")


@dataclass(frozen=True, eq=False)
class RegionGraph:
    """Regions of a graph with their counting numbers; made by `RegionGraph.of`.

    Parameters
    ----------
    cardinalities, factor_scopes
        Of the graph.
    n_outer, counts
        The number of outer regions, which come first, and the counting number of each region.
    scope_offsets, scope_variables, table_offsets
        Variables of each region, and where its table begins.
    link_offsets, link_outer, link_maps, link_runs, message_offsets
        Which outer regions contain an inner one, and how their tables are summed.
    unary_hosts, unary_maps, factor_hosts, factor_maps, maps
        In which region each potential counts, and where.
    acyclic_examples
        Whether the regions of each example form a junction tree and count as in one, so that
        beliefs are exact; a single flag unless they were made by `RegionGraph.of_batch`.

    Examples
    --------
    >>> regions = RegionGraph.of(FactorGraph.grid(3, 3, 2), "plaquettes")
    >>> regions.n_outer, regions.n_regions
    (4, 9)
    >>> [(regions.scope(r), float(regions.counts[r])) for r in (0, 4, 8)]
    [((0, 1, 3, 4), 1.0), ((1, 4), -1.0), ((4,), 1.0)]
    """

    # the arrays of the graph, not the graph: regions are remembered while their graph lives
    cardinalities: IntArray
    factor_scopes: tuple[IntArray, IntArray]  # offsets and variables
    n_outer: int
    counts: NDArray[np.float64]
    scope_offsets: IntArray
    scope_variables: IntArray
    table_offsets: IntArray
    link_offsets: IntArray  # of inner regions
    link_outer: IntArray
    link_maps: NDArray[np.int64]  # where a map begins in ``maps``
    link_runs: IntArray  # how many neighbouring entries a map sends to the same one
    message_offsets: IntArray  # of links
    unary_hosts: IntArray  # the smallest region that contains a variable
    unary_maps: NDArray[np.int64]
    factor_hosts: IntArray  # likewise of a factor; -1: it has no variable
    factor_maps: NDArray[np.int64]
    maps: IntArray
    acyclic_examples: BoolArray  # where they form a junction tree, so that the entropy is exact

    @classmethod
    def of(cls, graph: FactorGraph, regions: Regions = "plaquettes") -> RegionGraph:
        """Regions of a graph, remembered for as long as the graph lives.

        ``"bethe"``: a region for each factor, and single variables.  ``"plaquettes"``: all cycles
        of four variables without a chord (the 2x2 blocks of a grid), and the scopes of factors
        that lie in none of them.  Lists of variables: the outer regions; every factor of two or
        more variables must lie in one, a variable in none of them is a region of its own.
        """
        from fieldfit.inference.kikuchi import cluster_variation as build

        require_factor_graph(graph)
        if isinstance(regions, RegionGraph):
            if not regions._fits(graph):
                raise InvalidInputError(
                    f"regions must be made for a graph of this structure ({graph!r})"
                )
            return regions
        key = checked_key(regions)
        known = _KNOWN.setdefault(graph, {})
        if key not in known:
            if key == "bethe":
                known[key] = build.bethe(graph)
            elif isinstance(key, str):
                known[key] = build.cluster_variation(graph, build.plaquettes(graph))
            else:
                known[key] = build.cluster_variation(graph, build.given(graph, key))
        return known[key]

    @classmethod
    def of_batch(cls, batch: Batch, regions: Regions = "plaquettes") -> RegionGraph:
        """Regions of every example; lists name the variables of each example by themselves.

        Examples of one structure share the work.
        """
        require_instance("batch", batch, Batch, "Batch.of([graph])")
        if batch.n_examples == 1 or isinstance(regions, RegionGraph):
            return cls.of(batch.graph, regions)
        key = "examples", checked_key(regions)
        known = _KNOWN.setdefault(batch.graph, {})
        if key not in known:
            firsts: dict[tuple[bytes, ...], FactorGraph] = {}
            parts = [cls.of(firsts.setdefault(structure_of(g), g), regions) for g in batch.graphs]
            known[key] = union_of_regions(batch, parts)
        return known[key]

    # -- queries --------------------------------------------------------------------------

    @property
    def n_regions(self) -> int:
        return len(self.counts)

    @property
    def is_acyclic(self) -> bool:
        """Whether the regions form a junction tree, so that the entropy is exact."""
        return bool(self.acyclic_examples.all())

    @property
    def n_inner(self) -> int:
        return self.n_regions - self.n_outer

    @property
    def n_tables(self) -> int:
        """Entries of all tables."""
        return int(self.table_offsets[-1])

    @cached_property
    def n_links(self) -> IntArray:
        """For each inner region the number of outer ones that contain it."""
        return np.diff(self.link_offsets)

    def scope(self, region: int) -> tuple[int, ...]:
        """Variables of one region, in rising order."""
        require_index("region", region, len(self.scope_offsets) - 1)
        begin, end = self.scope_offsets[region], self.scope_offsets[region + 1]
        return tuple(int(i) for i in self.scope_variables[begin:end])

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For each region those directly below it, to be read by people (slow on large graphs)."""
        scopes = [frozenset(self.scope(r)) for r in range(self.n_regions)]
        inner = range(self.n_outer, self.n_regions)
        below = [
            [s for s in inner if s != r and scopes[s] <= scopes[r]] for r in range(len(scopes))
        ]
        return tuple(
            tuple(s for s in found if not any(scopes[s] < scopes[t] for t in found))
            for found in below
        )

    @cached_property
    def arrays(self) -> RegionArrays:
        """What kernels take."""
        return RegionArrays(
            n_outer=self.n_outer,
            table_offsets=self.table_offsets,
            link_offsets=self.link_offsets,
            link_outer=self.link_outer,
            link_map=self.link_maps,
            link_run=self.link_runs,
            message_offsets=self.message_offsets,
            maps=self.maps,
        )

    def __repr__(self) -> str:
        return f"RegionGraph({self.n_outer} outer and {self.n_inner} inner regions)"

    def _fits(self, graph: FactorGraph) -> bool:
        return (
            np.array_equal(self.cardinalities, graph.cardinalities)
            and np.array_equal(self.factor_scopes[0], graph.scope_offsets)
            and np.array_equal(self.factor_scopes[1], graph.slot_variables)
        )


#: What a user may give: a name, the outer regions, or regions that were made before.
Regions = str | Sequence[Sequence[int]] | RegionGraph

Key = str | tuple[tuple[int, ...], ...]

_KNOWN: WeakKeyDictionary[FactorGraph, dict[Any, RegionGraph]] = WeakKeyDictionary()


def require_regions(regions: Any) -> None:
    """Refuse what says nothing about the regions of a graph."""
    if not isinstance(regions, RegionGraph):
        checked_key(regions)


def checked_key(regions: str | Sequence[Sequence[int]], message: str = "") -> Key:
    """A name or sorted sets, as something that can be looked up."""
    if isinstance(regions, str):
        if regions not in NAMES:
            raise InvalidInputError(
                f"regions must be one of {NAMES} or lists of variables, got {regions!r}"
            )
        return regions
    try:
        return tuple(tuple(sorted(operator.index(i) for i in region)) for region in regions)
    except TypeError:
        raise InvalidInputError(
            message or f"regions must be one of {NAMES} or lists of variables, got {regions!r}"
        ) from None


def structure_of(graph: FactorGraph) -> tuple[bytes, ...]:
    """Equal for graphs of one structure."""
    arrays = graph.cardinalities, graph.scope_offsets, graph.slot_variables
    return tuple(array.tobytes() for array in arrays)


# -- maps: which entry of a small table each entry of a large one is summed into ----------


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


def region_offsets(sizes: NDArray[Any]) -> IntArray:
    """Offsets of rows of given lengths in 32 bits; refuses what does not fit."""
    total = int(sizes.sum(dtype=np.int64)) if len(sizes) else 0
    if total > MAX_ENTRIES:
        raise TooLargeError(f"the regions have {total} entries, the limit is {MAX_ENTRIES}")
    return offsets_of(sizes).astype(np.int32)


# -- the regions of a batch: those of its examples, one after the other in each layer -----


def union_of_regions(batch: Batch, parts: list[RegionGraph]) -> RegionGraph:
    """Outer regions of all examples, then inner ones of all; equal parts share their maps."""
    outer_starts = offsets_of([part.n_outer for part in parts])
    inner_starts = outer_starts[-1] + offsets_of([part.n_inner for part in parts])
    distinct = {id(part): part for part in parts}
    pool_starts = offsets_of([len(part.maps) for part in distinct.values()])
    pool_of = dict(zip(distinct, pool_starts[:-1], strict=True))
    pools = [pool_of[id(part)] for part in parts]

    def joined(name: str, shifts: Any = None) -> Any:
        """An array of all parts, each shifted by a number of its own."""
        values = [getattr(part, name) for part in parts]
        if shifts is not None:
            values = [v + v.dtype.type(s) for v, s in zip(values, shifts, strict=True)]
        return np.concatenate(values)

    def hosts(name: str) -> NDArray[np.int32]:
        moved = []
        for part, outer, inner in zip(parts, outer_starts, inner_starts, strict=False):
            given = getattr(part, name)
            shift = np.where(given < part.n_outer, outer, inner - part.n_outer)
            moved.append(np.where(given < 0, -1, given + shift).astype(np.int32))
        return np.concatenate(moved)

    n_outer = [part.n_outer for part in parts]
    shifted = [
        part.scope_variables + np.int32(start)
        for part, start in zip(parts, batch.variable_offsets, strict=False)
    ]
    return RegionGraph(
        cardinalities=batch.graph.cardinalities,
        factor_scopes=(batch.graph.scope_offsets, batch.graph.slot_variables),
        n_outer=int(outer_starts[-1]),
        counts=_by_layer([part.counts for part in parts], n_outer),
        scope_offsets=_offsets_by_layer([part.scope_offsets for part in parts], n_outer),
        scope_variables=_by_layer(
            shifted, [int(part.scope_offsets[part.n_outer]) for part in parts]
        ),
        table_offsets=_offsets_by_layer([part.table_offsets for part in parts], n_outer),
        link_offsets=region_offsets(joined("n_links")),
        link_outer=joined("link_outer", outer_starts[:-1]),
        link_maps=joined("link_maps", pools),
        link_runs=joined("link_runs"),
        message_offsets=region_offsets(np.concatenate([np.diff(p.message_offsets) for p in parts])),
        unary_hosts=hosts("unary_hosts"),
        unary_maps=joined("unary_maps", pools),
        factor_hosts=hosts("factor_hosts"),
        factor_maps=joined("factor_maps", pools),
        maps=np.concatenate([part.maps for part in distinct.values()]),
        acyclic_examples=np.array([part.is_acyclic for part in parts]),
    )


def _by_layer(values: list[NDArray[Any]], n_outer: list[int]) -> NDArray[Any]:
    """What belongs to the outer regions of all parts, then the rest of all."""
    outer = [v[:n] for v, n in zip(values, n_outer, strict=True)]
    inner = [v[n:] for v, n in zip(values, n_outer, strict=True)]
    return np.concatenate(outer + inner)


def _offsets_by_layer(offsets: list[NDArray[Any]], n_outer: list[int]) -> NDArray[np.int32]:
    return region_offsets(_by_layer([np.diff(given) for given in offsets], n_outer))
