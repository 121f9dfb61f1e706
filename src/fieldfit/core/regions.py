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

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.errors import InvalidInputError
from fieldfit.kernels.regions import RegionArrays

__all__ = ["RegionGraph", "Regions"]

IntArray = NDArray[np.int32]

NAMES = ("bethe", "plaquettes")


@dataclass(frozen=True, eq=False)
class RegionGraph:
    """Regions of a graph with their counting numbers; made by `RegionGraph.of`.

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
    is_acyclic: bool  # the outer regions form a junction tree, so that the entropy is exact

    @classmethod
    def of(cls, graph: FactorGraph, regions: Regions = "plaquettes") -> RegionGraph:
        """Regions of a graph, remembered for as long as the graph lives.

        ``"bethe"``: a region for each factor, and single variables.  ``"plaquettes"``: all cycles
        of four variables without a chord (the 2x2 blocks of a grid), and the scopes of factors
        that lie in none of them.  Lists of variables: the outer regions; every factor of two or
        more variables must lie in one, a variable in none of them is a region of its own.
        """
        from fieldfit.core import cluster_variation as build  # which needs this class

        if isinstance(regions, RegionGraph):
            if not regions._fits(graph):
                raise InvalidInputError(
                    f"regions must be made for a graph of this structure ({graph!r})"
                )
            return regions
        key = _checked_key(regions)
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
        from fieldfit.core.region_union import union_of_regions

        if batch.n_examples == 1 or isinstance(regions, RegionGraph):
            return cls.of(batch.graph, regions)
        key = "examples", _checked_key(regions)
        known = _KNOWN.setdefault(batch.graph, {})
        if key not in known:
            firsts: dict[tuple[bytes, ...], FactorGraph] = {}
            parts = [cls.of(firsts.setdefault(_digest(g), g), regions) for g in batch.graphs]
            known[key] = union_of_regions(batch, parts)
        return known[key]

    # -- queries --------------------------------------------------------------------------

    @property
    def n_regions(self) -> int:
        return len(self.counts)

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


def _checked_key(regions: str | Sequence[Sequence[int]]) -> Key:
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
            f"regions must be one of {NAMES} or lists of variables, got {regions!r}"
        ) from None


def _digest(graph: FactorGraph) -> tuple[bytes, ...]:
    """Equal for graphs of one structure."""
    arrays = graph.cardinalities, graph.scope_offsets, graph.slot_variables
    return tuple(array.tobytes() for array in arrays)
