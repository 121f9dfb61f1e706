r"""Hypertrees: acyclic families of regions, their junction trees and their entropies.

A family ``T`` of regions is acyclic if they can be put in an order in which every region meets each
connected component of those before it inside a single one of them, its *neighbour*, in a
*separator* (the running intersection property).  Drop all other statistics of a distribution with
marginals ``mu``: among the distributions that agree with it on the regions of ``T`` the Markov
field of the junction tree has the largest entropy, so

    H(mu)  <=  H_T(mu)  =  sum_{r in T} H(mu_r) - sum_{separators s} H(mu_s)
                        =  sum_{roots} H(mu_r) + sum_{other r in T} [H(mu_r) - H(mu_s(r))],

with ``s(r)`` the separator towards the root.  Conditional entropies are concave in consistent
beliefs, and so is every average over hypertrees

    H_rho(mu) = sum_T rho(T) H_T(mu) = sum_r c_r H(mu_r).

Here a *forest* is such a family; it covers every variable, if need be by single ones.
`grow_forest` only ever adds a region that keeps the property, so its result needs no other proof.

Reference: Wainwright, Jaakkola and Willsky, "A new class of upper bounds on the log partition
function", IEEE Transactions on Information Theory 51 (2005), section VII.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit.graph.ragged import offsets_of
from fieldfit.graph.structure import find_root
from fieldfit.inference.kikuchi.region_sets import SetFamily
from fieldfit.numeric.compile import kernel

__all__ = ["EntropyTerms", "Forest", "Nesting", "even_mixture", "forest_of", "mixture_terms"]

#: A mixture has at least this many forests, and enough to hold every outer region `MIN_COUNT`
#: times; 64 forests of a grid use every plaquette more than 25 times.
MIN_FORESTS = 64
MIN_COUNT = 4
#: Slots visited by a mixture, a few seconds; one that holds every outer region stops here.
MAX_VISITS = 3 * 10**7


class Nesting(NamedTuple):
    """Variables of regions, in rising order, and which regions lie strictly inside each one.

    The family has every single variable and is closed under intersections.
    """

    scope_offsets: IntArray
    scope_variables: IntArray
    below_offsets: LongArray
    below: LongArray


@dataclass(frozen=True, eq=False)
class EntropyTerms:
    """A sum of ``weight [H(b_upper) - H(b_lower)]``; ``lower`` is -1 for ``H(b_upper)`` alone.

    No weight is negative and every lower region lies in its upper one, so the sum is concave in
    consistent beliefs.
    """

    upper: LongArray
    lower: LongArray
    weight: FloatArray

    def counts(self, n_regions: int) -> FloatArray:
        """Counting number of each region."""
        inside = self.lower >= 0
        return weighted_counts(self.upper, self.weight, n_regions) - weighted_counts(
            self.lower[inside], self.weight[inside], n_regions
        )

    def mixed(self, other: EntropyTerms, fraction: FloatArray) -> EntropyTerms:
        """``1 - fraction`` of these and ``fraction`` of others, given for each upper region."""
        return merged_terms(
            np.concatenate([self.upper, other.upper]),
            np.concatenate([self.lower, other.lower]),
            np.concatenate(
                [
                    self.weight * (1.0 - fraction[self.upper]),
                    other.weight * fraction[other.upper],
                ]
            ),
        )


def weighted_counts(places: LongArray, weights: FloatArray, length: int) -> FloatArray:
    """Sum of the weights at each place."""
    return np.bincount(places, weights, length).astype(np.float64, copy=False)


def merged_terms(upper: LongArray, lower: LongArray, weight: FloatArray) -> EntropyTerms:
    """Terms sorted by their regions; those of the same regions become one."""
    span = int(lower.max(initial=-1)) + 2
    keys, place = np.unique(upper * span + lower + 1, return_inverse=True)
    total = weighted_counts(place.reshape(-1), weight, len(keys))
    kept = total > 0.0
    return EntropyTerms((keys // span)[kept], (keys % span - 1)[kept], total[kept])


class Links(NamedTuple):
    """Edges of a junction forest: two regions and their separator."""

    first: LongArray
    second: LongArray
    separator: LongArray


# -- kernels ------------------------------------------------------------------------------


@kernel
def _holds(nesting: Nesting, region: int, members: IntArray, n_members: int) -> bool:
    """Whether a region has all of some variables, given in rising order."""
    position, end = nesting.scope_offsets[region], nesting.scope_offsets[region + 1]
    for k in range(n_members):
        while position < end and nesting.scope_variables[position] < members[k]:
            position += 1
        if position == end or nesting.scope_variables[position] != members[k]:
            return False
    return True


@kernel
def _size(nesting: Nesting, region: int) -> int:
    return nesting.scope_offsets[region + 1] - nesting.scope_offsets[region]


@kernel
def _region_of(nesting: Nesting, host: int, members: IntArray, n_members: int) -> int:
    """The region inside or equal to ``host`` that has exactly these variables; -1 if none."""
    if _size(nesting, host) == n_members:
        return host
    for place in range(nesting.below_offsets[host], nesting.below_offsets[host + 1]):
        region = nesting.below[place]
        if _size(nesting, region) == n_members and _holds(nesting, region, members, n_members):
            return region
    return -1


@kernel
def grow_forest(
    nesting: Nesting, n_variables: int, order: LongArray, is_member: BoolArray, links: Links
) -> int:
    """Mark the regions, taken in ``order``, that keep the family acyclic; the number of links.

    A region that lies inside a member adds nothing and is left out.  ``links`` receives the edges
    of the junction forest.
    """
    parents = np.arange(n_variables).astype(np.int32)
    is_covered = np.zeros(n_variables, dtype=np.bool_)
    newest = np.full(n_variables, -1, dtype=np.int64)  # last member on a variable, as a slot
    before = np.full(nesting.scope_offsets[-1], -1, dtype=np.int64)  # the one before it
    owner = np.empty(nesting.scope_offsets[-1], dtype=np.int64)
    widest = 1
    for region in range(len(nesting.scope_offsets) - 1):
        widest = max(widest, _size(nesting, region))
    shared = np.empty(widest, dtype=np.int32)
    n_links = 0
    for region in order:
        begin, end = nesting.scope_offsets[region], nesting.scope_offsets[region + 1]
        is_member[region] = True
        n_new = 0
        for slot in range(begin, end):
            variable = nesting.scope_variables[slot]
            if not is_covered[variable]:
                continue
            root = find_root(parents, variable)
            is_first, n_shared = True, 0
            for other in range(begin, end):
                second = nesting.scope_variables[other]
                if is_covered[second] and find_root(parents, second) == root:
                    is_first &= other >= slot
                    shared[n_shared] = second
                    n_shared += 1
            if not is_first:
                continue
            found, place = -1, newest[variable]
            while place >= 0 and found < 0:
                if _holds(nesting, owner[place], shared, n_shared):
                    found = owner[place]
                place = before[place]
            if found < 0 or n_shared == end - begin:
                is_member[region] = False
                break
            links.first[n_links + n_new] = region
            links.second[n_links + n_new] = found
            links.separator[n_links + n_new] = _region_of(nesting, region, shared, n_shared)
            n_new += 1
        if not is_member[region]:
            continue
        n_links += n_new
        for slot in range(begin, end):
            variable = nesting.scope_variables[slot]
            owner[slot], before[slot] = region, newest[variable]
            newest[variable], is_covered[variable] = slot, True
            first = find_root(parents, nesting.scope_variables[begin])
            parents[find_root(parents, variable)] = first
    return n_links


@kernel
def root_forest(
    order: LongArray, is_member: BoolArray, links: Links, n_links: int, towards: LongArray
) -> None:
    """The separator of each member towards its root; -1 for roots, the first of each tree."""
    n_regions = len(is_member)
    offsets = np.zeros(n_regions + 1, dtype=np.int64)
    for link in range(n_links):
        offsets[links.first[link] + 1] += 1
        offsets[links.second[link] + 1] += 1
    for region in range(n_regions):
        offsets[region + 1] += offsets[region]
    places, around = offsets[:-1].copy(), np.empty(2 * n_links, dtype=np.int64)
    for link in range(n_links):
        for region in (links.first[link], links.second[link]):
            around[places[region]] = link
            places[region] += 1
    is_reached = np.zeros(n_regions, dtype=np.bool_)
    stack = np.empty(n_regions, dtype=np.int64)
    for start in order:
        if is_reached[start] or not is_member[start]:
            continue
        is_reached[start] = True
        towards[start] = -1
        stack[0], height = start, 1
        while height > 0:
            height -= 1
            region = stack[height]
            for place in range(offsets[region], offsets[region + 1]):
                link = around[place]
                other = links.first[link] + links.second[link] - region
                if not is_reached[other]:
                    is_reached[other] = True
                    towards[other] = links.separator[link]
                    stack[height] = other
                    height += 1


# -- forests and their mixtures -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Forest:
    """An acyclic family of regions, and the separator of each towards its root (-1: a root)."""

    members: LongArray
    separators: LongArray

    def entropy(self, entropies: FloatArray) -> float:
        """``H_T`` from the entropy of every region."""
        inside = self.separators[self.separators >= 0]
        return float(entropies[self.members].sum() - entropies[inside].sum())


def forest_of(nesting: Nesting, n_variables: int, order: LongArray) -> Forest:
    """The forest that grows when regions are tried in this order, all of them."""
    n_regions = len(nesting.scope_offsets) - 1
    is_member = np.zeros(n_regions, dtype=np.bool_)
    n_slots = len(nesting.scope_variables)
    links = Links(*(np.empty(n_slots, dtype=np.int64) for _ in range(3)))
    n_links = grow_forest(nesting, n_variables, order, is_member, links)
    towards = np.empty(n_regions, dtype=np.int64)
    root_forest(order, is_member, links, n_links, towards)
    members = np.flatnonzero(is_member)
    return Forest(members, towards[members])


def mixture_terms(forests: list[Forest], weights: FloatArray) -> EntropyTerms:
    """The terms of an average of forests."""
    sizes = [len(forest.members) for forest in forests]
    upper = np.concatenate([forest.members for forest in forests])
    lower = np.concatenate([forest.separators for forest in forests])
    proper = upper != lower  # a region that lies in its neighbour adds nothing
    return merged_terms(upper[proper], lower[proper], np.repeat(weights, sizes)[proper])


def balanced_forests(
    nesting: Nesting, n_variables: int, n_outer: int, random: np.random.Generator
) -> Iterator[Forest]:
    """Forests without end that hold all outer regions about equally often.

    A forest grows around the outer region that was used least, over regions that share as many
    variables as possible, so that few gaps are left; then come the other regions, large ones first.
    """
    neighbours = _outer_neighbours(nesting, n_outer)
    sizes = np.diff(nesting.scope_offsets)
    counts = np.zeros(len(sizes))
    while True:
        ties = random.random(len(sizes))
        start = np.lexsort((ties[:n_outer], counts[:n_outer]))
        distances = np.empty(n_outer, dtype=np.int64)
        _distances(neighbours[0], neighbours[1], start, distances)
        first = np.lexsort((ties[:n_outer], counts[:n_outer], distances))
        rest = n_outer + np.lexsort((ties[n_outer:], counts[n_outer:], -sizes[n_outer:]))
        forest = forest_of(nesting, n_variables, np.concatenate([first, rest]))
        counts[forest.members] += 1.0
        yield forest


def even_mixture(
    nesting: Nesting, n_variables: int, n_outer: int, random: np.random.Generator
) -> list[Forest]:
    """Balanced forests until every outer region is held often enough for even weights."""
    counts = np.zeros(len(nesting.scope_offsets) - 1, dtype=np.int64)
    forests: list[Forest] = []
    for forest in balanced_forests(nesting, n_variables, n_outer, random):
        forests.append(forest)
        counts[forest.members] += 1
        least = int(counts[:n_outer].min(initial=len(forests)))
        if least == len(forests):  # the regions are a forest
            break
        is_even = len(forests) >= MIN_FORESTS and least >= MIN_COUNT
        if is_even or (len(forests) * len(nesting.scope_variables) > MAX_VISITS and least >= 1):
            break
    return forests


def _outer_neighbours(nesting: Nesting, n_outer: int) -> tuple[LongArray, LongArray]:
    """Outer regions that overlap in two variables; pairs, in one."""
    offsets = nesting.scope_offsets[: n_outer + 1]
    outer = SetFamily.from_flat(
        nesting.scope_variables[: offsets[-1]],
        np.diff(offsets),
        int(nesting.scope_variables.max(initial=0)) + 1,
    )
    first, second, common = outer.overlaps(outer)
    least = np.minimum(2, np.minimum(outer.sizes[first], outer.sizes[second]) - 1)
    kept = (first != second) & (common >= least)
    return offsets_of(np.bincount(first[kept], minlength=n_outer)), second[kept]


@kernel
def _distances(
    offsets: LongArray, neighbours: LongArray, starts: LongArray, distances: LongArray
) -> None:
    """Steps from the first of ``starts``; in each further component, from its first one."""
    n = len(distances)
    distances[:] = -1
    queue = np.empty(n, dtype=np.int64)
    n_queued = n_done = last = 0
    for start in starts:
        if distances[start] >= 0:
            continue
        distances[start] = last
        queue[n_queued] = start
        n_queued += 1
        while n_done < n_queued:
            region = queue[n_done]
            n_done += 1
            last = distances[region] + 1
            for place in range(offsets[region], offsets[region + 1]):
                other = neighbours[place]
                if distances[other] < 0:
                    distances[other] = distances[region] + 1
                    queue[n_queued] = other
                    n_queued += 1
