"""The cluster variation method: outer regions, their intersections, counting numbers.

    c_r = 1 - sum of c over the regions that contain r

Outer regions are plaquettes (chordless 4-cycles), factors, or given; see
`fieldfit.inference.kikuchi.region_graph` for the arrays and the references.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import LongArray
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.graph.factor_graph import MAX_ENTRIES, FactorGraph
from fieldfit.graph.structure import count_cycles
from fieldfit.inference.kikuchi.region_graph import MapPool, RegionGraph, region_offsets
from fieldfit.inference.kikuchi.region_sets import SetFamily, distinct_rows, find_four_cycles

__all__ = [
    "bethe",
    "cluster_variation",
    "given",
    "junction_order",
    "plaquettes",
    "scopes",
    "with_small_regions",
]

#: Plaquettes that are listed; dense bipartite graphs have any number of them.
MAX_PLAQUETTES = 5_000_000


# -- outer regions ------------------------------------------------------------------------


def plaquettes(graph: FactorGraph) -> SetFamily:
    """Cycles of four pairwise factors without a chord, and all scopes."""
    ends = graph.slot_variables[_slots_of(graph, graph.arities == 2)].reshape(-1, 2)
    pairs = distinct_rows(np.concatenate([ends, ends[:, ::-1]]).astype(np.int64))
    offsets = region_offsets(np.bincount(pairs[:, 0], minlength=graph.n_variables))
    neighbours = pairs[:, 1].astype(np.int32)
    capacity = len(ends) + 1
    while True:
        cycles = np.empty((capacity, 4), dtype=np.int32)
        count = find_four_cycles(offsets, neighbours, cycles)
        if count <= capacity:
            break
        if capacity >= MAX_PLAQUETTES:
            raise TooLargeError(
                f"the graph has more than {MAX_PLAQUETTES} plaquettes; give regions as lists"
            )
        capacity = min(4 * capacity, MAX_PLAQUETTES)
    found = SetFamily(np.sort(cycles[:count].astype(np.int64), axis=1), graph.n_variables)
    return found.union(scopes(graph))


def given(
    graph: FactorGraph, sets: tuple[tuple[int, ...], ...], name: str = "regions"
) -> SetFamily:
    """Given lists of variables, checked."""
    for index, members in enumerate(sets):
        where = f"{name}[{index}]" if name == "regions" else f"a region of {name}"
        if len(members) == 0:
            raise InvalidInputError(f"{where} must name at least one variable, got none")
        if len(set(members)) < len(members):
            raise InvalidInputError(f"{where} must name distinct variables, got {members}")
        if members[0] < 0 or members[-1] >= graph.n_variables:
            raise InvalidInputError(
                f"{where} must name variables 0..{graph.n_variables - 1}, got {members}"
            )
    return SetFamily.of(sets, graph.n_variables)


# -- region graphs ------------------------------------------------------------------------


def bethe(graph: FactorGraph) -> RegionGraph:
    """A region for each factor of two or more variables, and the variables that they share.

    Factors with the same scope, or one inside another, stay apart, as they do in `Bethe`.
    """
    linking = graph.arities >= 2
    slots = _slots_of(graph, linking)
    alone = np.flatnonzero(graph.degrees == 0)
    outer = _joined(scopes(graph), SetFamily.singles(alone, graph.n_variables))
    shared = np.flatnonzero(graph.degrees >= 2)
    inner = SetFamily.singles(shared, graph.n_variables)
    place = np.full(graph.n_variables, -1, dtype=np.int64)
    place[shared] = np.arange(len(shared))
    regions = np.repeat(np.arange(int(linking.sum())), graph.arities[linking])
    variables = graph.slot_variables[slots]
    is_shared = place[variables] >= 0
    links = place[variables[is_shared]], regions[is_shared]
    unary_hosts = np.empty(graph.n_variables, dtype=np.int64)
    unary_hosts[variables] = regions  # of a variable with a single factor
    unary_hosts[shared] = len(outer) + np.arange(len(shared))
    unary_hosts[alone] = int(linking.sum()) + np.arange(len(alone))
    factor_hosts = np.full(graph.n_factors, -1, dtype=np.int64)
    factor_hosts[linking] = np.arange(int(linking.sum()))
    counts = 1.0 - graph.degrees[shared].astype(np.float64)
    return _assemble(
        graph, outer, inner, links, counts, unary_hosts, factor_hosts, graph.is_acyclic
    )


def cluster_variation(graph: FactorGraph, candidates: SetFamily) -> RegionGraph:
    """The largest of the candidates, variables that are in none, and all intersections."""
    alone = np.setdiff1d(np.arange(graph.n_variables), candidates.members)
    outer = candidates.union(SetFamily.singles(alone, graph.n_variables)).maximal()
    inner = outer.closure()
    everything = _joined(outer, inner)
    links = _links(outer, inner)
    counts = _counting_numbers(inner, np.bincount(links[0], minlength=len(inner)))
    return _assemble(
        graph, outer, inner, links, counts,
        _smallest_with_variable(everything), _smallest_with_scope(graph, everything),
        junction_order(outer) is not None,
    )  # fmt: skip


def with_small_regions(graph: FactorGraph, candidates: SetFamily, extra: SetFamily) -> RegionGraph:
    """The largest of the candidates; inside them all scopes, single variables and extra sets.

    The family is closed under intersections.  Counting numbers are left at zero, for entropies that
    bring their own.
    """
    singles = SetFamily.singles(np.arange(graph.n_variables), graph.n_variables)
    outer = candidates.union(singles).maximal()
    every_scope = scopes(graph)
    small = every_scope.union(extra)
    n_hosts = np.bincount(small.inside(outer)[0], minlength=len(small))
    for region in np.flatnonzero(n_hosts == 0)[:1]:
        members = tuple(int(i) for i in small.rows[region][: small.sizes[region]])
        raise InvalidInputError(
            f"regions must contain every scope and every region of a hypertree, {members} lies in "
            "none of them"
        )
    closed = outer.union(small).closure()
    inner = closed.union(small).union(singles).without(outer)
    everything = _joined(outer, inner)
    return _assemble(
        graph, outer, inner, _links(outer, inner), np.zeros(len(inner)),
        _smallest_with_variable(everything), _smallest_with_scope(graph, everything),
        junction_order(outer) is not None,
    )  # fmt: skip


def _links(outer: SetFamily, inner: SetFamily) -> tuple[LongArray, LongArray]:
    """Pairs (inner region, outer region that contains it)."""
    sizes = inner.sizes
    some, large = np.flatnonzero(sizes >= 2), np.flatnonzero(outer.sizes >= 3)
    first, second = inner.select(some).inside(outer.select(large))
    single = np.flatnonzero(sizes == 1)
    place = np.full(outer.n_variables, -1, dtype=np.int64)
    place[inner.rows[single, 0]] = single
    members = outer.members
    around = np.repeat(np.arange(len(outer)), outer.sizes)
    hit = place[members] >= 0
    return (
        np.concatenate([some[first], place[members[hit]]]),
        np.concatenate([large[second], around[hit]]),
    )


def _counting_numbers(inner: SetFamily, n_outer: LongArray) -> NDArray[np.float64]:
    """``1 - sum of the counting numbers above``, from large regions to small ones."""
    from scipy.sparse import csr_matrix

    sizes = inner.sizes
    large = np.flatnonzero(sizes >= 2)
    first, second = inner.inside(inner.select(large))
    strictly = first != large[second]
    below, above = first[strictly], large[second][strictly]
    contains = csr_matrix((np.ones(len(below)), (below, above)), shape=(len(inner), len(inner)))
    counts = np.zeros(len(inner))
    for size in np.unique(sizes)[::-1]:
        chosen = sizes == size
        counts[chosen] = (1.0 - n_outer - contains @ counts)[chosen]
    return counts


def _smallest_with_variable(regions: SetFamily) -> LongArray:
    sizes = regions.sizes
    owners = np.repeat(np.arange(len(regions)), sizes)
    order = np.argsort(-sizes[owners], kind="stable")  # the smallest comes last, and stays
    hosts = np.empty(regions.n_variables, dtype=np.int64)
    hosts[regions.members[order]] = owners[order]
    return hosts


def _smallest_with_scope(graph: FactorGraph, regions: SetFamily) -> LongArray:
    """The smallest region that contains each scope; -1 for factors of no variable."""
    hosts = np.full(graph.n_factors, -1, dtype=np.int64)
    linking = np.flatnonzero(graph.arities >= 2)
    given_scopes = scopes(graph)
    found = given_scopes.positions_in(regions)
    missing = np.flatnonzero(found < 0)
    large = np.flatnonzero(regions.sizes >= 3)
    first, second = given_scopes.select(missing).inside(regions.select(large))
    order = np.argsort(-regions.sizes[large[second]], kind="stable")
    found[missing[first[order]]] = large[second[order]]
    hosts[linking] = found
    for factor in linking[found < 0][:1]:
        raise InvalidInputError(
            f"regions must contain every scope, scopes[{factor}] = {graph.scope(factor)} lies in "
            "none of them"
        )
    return hosts


# -- flat arrays --------------------------------------------------------------------------


def _assemble(
    graph: FactorGraph,
    outer: SetFamily,
    inner: SetFamily,
    links: tuple[LongArray, LongArray],
    counts: NDArray[np.float64],
    unary_hosts: LongArray,
    factor_hosts: LongArray,
    is_acyclic: bool,
) -> RegionGraph:
    regions = _joined(outer, inner)
    shapes = np.concatenate([graph.cardinalities, [1]])[regions.rows]
    table_sizes = _checked_sizes(regions, np.prod(shapes, axis=1, dtype=np.float64))
    order = np.lexsort((links[1], links[0]))
    link_inner, link_outer = links[0][order], links[1][order]
    pool = MapPool(regions, shapes)
    link_maps = pool.maps(link_outer, inner.rows[link_inner])
    everyone = SetFamily.singles(np.arange(graph.n_variables), graph.n_variables)
    # factors of one variable are folded into the unary part, but their beliefs have a host too
    single = graph.arities == 1
    factor_hosts[single] = unary_hosts[graph.slot_variables[_slots_of(graph, single)]]
    return RegionGraph(
        cardinalities=graph.cardinalities,
        factor_scopes=(graph.scope_offsets, graph.slot_variables),
        n_outer=len(outer),
        counts=np.concatenate([np.ones(len(outer)), counts]),
        scope_offsets=region_offsets(regions.sizes),
        scope_variables=regions.members.astype(np.int32),
        table_offsets=region_offsets(table_sizes),
        link_offsets=region_offsets(np.bincount(link_inner, minlength=len(inner))),
        link_outer=link_outer.astype(np.int32),
        link_maps=link_maps,
        link_runs=pool.runs(link_maps),
        message_offsets=region_offsets(table_sizes[len(outer) + link_inner]),
        unary_hosts=unary_hosts.astype(np.int32),
        unary_maps=pool.maps(unary_hosts, everyone.rows),
        factor_hosts=factor_hosts.astype(np.int32),
        factor_maps=pool.maps(factor_hosts, _scope_rows(graph)),
        maps=pool.joined(),
        acyclic_examples=np.array([is_acyclic]),
    )


def _checked_sizes(regions: SetFamily, sizes: NDArray[np.float64]) -> LongArray:
    largest = int(np.argmax(sizes)) if len(sizes) else 0
    if len(sizes) and sizes[largest] > MAX_ENTRIES:
        raise TooLargeError(
            f"a region of {int(regions.sizes[largest])} variables needs a table of "
            f"{sizes[largest]:.3g} entries ({8 * sizes[largest] / 1e9:.3g} GB), the limit is "
            f"{MAX_ENTRIES} entries"
        )
    return sizes.astype(np.int64)


def _joined(first: SetFamily, second: SetFamily) -> SetFamily:
    """The sets of one family and then those of another."""
    width = max(first.rows.shape[1], second.rows.shape[1])
    return SetFamily(np.concatenate([first.padded(width), second.padded(width)]), first.n_variables)


def scopes(graph: FactorGraph) -> SetFamily:
    """Scopes of two or more variables."""
    linking = graph.arities >= 2
    flat = graph.slot_variables[_slots_of(graph, linking)]
    return SetFamily.from_flat(flat, graph.arities[linking], graph.n_variables)


def _scope_rows(graph: FactorGraph) -> LongArray:
    """Scopes in their own order, filled up."""
    width = int(graph.arities.max(initial=0))
    rows = np.full((graph.n_factors, width), graph.n_variables, dtype=np.int64)
    rows[np.arange(width) < graph.arities[:, None]] = graph.slot_variables
    return rows


def _slots_of(graph: FactorGraph, chosen: NDArray[np.bool_]) -> LongArray:
    return np.flatnonzero(np.repeat(chosen, graph.arities))


def junction_order(outer: SetFamily) -> LongArray | None:
    """An order in which every region meets those before it inside one of them; ``None`` if none.

    Found backwards: regions are taken away one by one, each with what it shares inside another.

    Reference: Graham, "On the universal relation", University of Toronto (1979).
    """
    offsets, members = region_offsets(outer.sizes), outer.members.astype(np.int32)
    if count_cycles(outer.n_variables, offsets, members) == 0:
        return np.arange(len(outer))
    if bool(np.all(outer.sizes <= 2)):
        return None
    scopes = [members[begin:end].tolist() for begin, end in pairwise(offsets.tolist())]
    around: dict[int, set[int]] = {}
    for region, scope in enumerate(scopes):
        for i in scope:
            around.setdefault(i, set()).add(region)
    waiting, left = list(range(len(scopes))), set(range(len(scopes)))
    taken: list[int] = []
    while waiting:
        region = waiting.pop()
        shared = [i for i in scopes[region] if len(around[i]) > 1]
        inside = set.intersection(*(around[i] for i in shared)) if shared else left
        if region not in left or (shared and len(inside) == 1):
            continue
        left.discard(region)
        taken.append(region)
        for i in scopes[region]:
            around[i].discard(region)
        for i in shared:
            if len(around[i]) == 1:  # its last region no longer shares it
                waiting.extend(around[i])
    return None if left else np.array(taken[::-1], dtype=np.int64)
