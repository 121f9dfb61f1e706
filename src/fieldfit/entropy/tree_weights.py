"""Spanning-tree probabilities ``rho`` of edges, which make a reweighted entropy an upper bound.

Let ``F`` be a forest of factors (no cycle).  Dropping all other factors from a distribution with
the given marginals can only raise its entropy, and on a forest the entropy is Bethe's::

    H(mu)  <=  H_F(mu)  =  sum over a in F of H(mu_a) + sum over i of (1 - d_i(F)) H(mu_i)

An average over forests ``F`` keeps the inequality and has the counting numbers ``c_a = rho_a``,
``c_i = 1 - sum over a on i of rho_a``, where ``rho_a`` is the fraction of forests that hold ``a``
(Wainwright, Jaakkola and Willsky 2005; for any arity the argument is the same).  Each ``H_F`` is
concave in locally consistent pseudo-marginals, hence so is the average.  Leaving a factor out of
a forest leaves a forest, so ``rho`` may be lowered at will: all that counts is a mixture of
forests that holds every factor *at least* with probability ``rho_a``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit.entropy.effective_resistance import edge_probabilities
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.ragged import offsets_of, ranges, rows
from fieldfit.graph.spanning_forests import (
    RootedForest,
    balanced_forests,
    forest_cover,
    label_components,
    maximum_weight_forest,
    rooted_order,
)
from fieldfit.numeric.compile import kernel

__all__ = [
    "RootedForest",
    "forest_cover",
    "forest_mixture",
    "hyperforest_weights",
    "is_mixture_of_forests",
    "maximum_weight_forest",
    "rooted_order",
    "spanning_tree_probabilities",
    "tree_weights",
]

# -- exact test whether edge weights lie in the forest polytope of a graph ----------------
#
# Weights ``rho`` are a convex combination of forests (or lie below one) if and only if every
# non-empty set ``S`` of nodes satisfies ``rho(edges inside S) <= |S| - 1`` (Edmonds 1970).  Since
# ``2 rho(inside S) = sum over S of degree - rho(boundary of S)``, this reads ::
#
#     min over S of  [ rho(boundary of S) + sum over i in S of (2 - degree_i) ]  >=  2,
#
# which is a minimum cut for each node that is forced into ``S`` (Padberg and Wolsey 1983).  The
# flow without a forced node is found once; then two more units must fit from each node to the
# sink.


@kernel
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


@kernel
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


# -- default weights ----------------------------------------------------------------------

#: Multiplications for exact spanning-tree probabilities, about ten seconds: enough for a grid of
#: 550 x 550 or a random cubic graph of 10,000 nodes.
MAX_COST = 5e9
#: A mixture has at least this many forests, and enough to hold every factor ``MIN_COUNT`` times.
#: On random hypergraphs, grids and complete graphs the weight of every factor is then within 0.07
#: (at the median 0.01) of that of 4,096 forests.
MIN_FORESTS = 128
MIN_COUNT = 16
#: Slots visited by a mixture, a few seconds; a mixture that holds every factor stops here.
MAX_VISITS = 10**8
#: Largest number of edges for the exact test of given weights (a minimum cut for each variable).
MAX_TEST_EDGES = 2000
#: Given weights may exceed proven ones by this much.
TOLERANCE = 1e-9
#: Components are treated together up to this many slots, to save the overhead of small ones.
GROUP_SLOTS = 200_000


def tree_weights(graph: FactorGraph) -> FloatArray:
    """Default ``rho`` of each factor: in (0, 1], and 0 for factors of arity below two.

    A component of pairs gets `spanning_tree_probabilities`, one with larger factors gets
    `hyperforest_weights`.  Each component is treated as if it were alone, so the weights of an
    example do not depend on its batch, and equal components are computed once.
    """
    weights = np.zeros(graph.n_factors)
    pairs: list[_Component] = []
    for component in _components(graph):
        if component.arities.max() == 2:
            pairs.append(component)
        else:
            weights[component.factors] = hyperforest_weights(_union([component]))
    for group in _groups(pairs):
        values = edge_probabilities(_union(group), MAX_COST)
        begin = 0
        for component in group:
            end = begin + len(component.arities)
            weights[component.factors] = (
                spanning_tree_probabilities(_union([component]))
                if values is None
                else values[begin:end]
            )
            begin = end
    return weights


def spanning_tree_probabilities(graph: FactorGraph, *, max_cost: float = MAX_COST) -> FloatArray:
    """Probability of each pair in a uniform random spanning forest; 0 for lower arities.

    Exact (see `fieldfit.entropy.effective_resistance`) as long as the sparse factorisation takes at
    most ``max_cost`` multiplications; above that the fractions of a mixture of spanning forests,
    `hyperforest_weights`, which are as valid but more even than uniform trees would give.
    """
    if graph.arities.max(initial=0) > 2:
        raise InvalidInputError(
            f"graph must have factors of arity at most 2, got arity {graph.arities.max()}"
        )
    exact = edge_probabilities(graph, max_cost)
    return hyperforest_weights(graph) if exact is None else exact


def hyperforest_weights(graph: FactorGraph) -> FloatArray:
    """Fraction of the forests of `forest_mixture` that hold each factor.

    The average of forests is a mixture of forests by construction, so the bound holds exactly,
    whatever the number of forests; more forests only make the weights more even.
    """
    counts = np.zeros(graph.n_factors)
    n_forests = 0
    for members in _mixture(graph):
        counts += members
        n_forests += 1
    return counts / n_forests


def forest_mixture(graph: FactorGraph) -> BoolArray:
    """The forests whose average is `hyperforest_weights`, shape ``(n_forests, n_factors)``."""
    return np.array(list(_mixture(graph)))


def is_mixture_of_forests(graph: FactorGraph, rho: FloatArray) -> bool | None:
    """Whether a mixture of forests holds every factor at least ``rho`` often.

    True if proved, False if disproved, ``None`` if neither proof succeeded.  Entries of factors
    of arity below two are ignored.
    """
    linking = graph.arities >= 2
    wanted = np.where(linking, rho, 0.0)
    if bool(np.all(wanted <= tree_weights(graph) + TOLERANCE)):
        return True
    if graph.arities.max(initial=0) == 2 and np.count_nonzero(linking) <= MAX_TEST_EDGES:
        return _passes_cuts(graph, wanted)
    return True if _is_reached(graph, wanted) else None


def _mixture(graph: FactorGraph) -> Iterator[BoolArray]:
    """Balanced forests, until every factor is held often enough for even weights."""
    linking = graph.arities >= 2
    counts = np.zeros(graph.n_factors, dtype=np.int64)
    for n_forests, members in enumerate(balanced_forests(graph), start=1):
        yield members
        counts += members
        least = int(counts[linking].min(initial=n_forests))
        if least == n_forests:  # every forest holds everything: the graph is a forest
            return
        is_even = n_forests >= MIN_FORESTS and least >= MIN_COUNT
        if is_even or (n_forests * graph.n_slots > MAX_VISITS and least >= 1):
            return


# -- given weights ------------------------------------------------------------------------


def _is_reached(graph: FactorGraph, wanted: FloatArray) -> bool:
    """Try to build a mixture that holds every factor as often as wanted."""
    targets = np.where(graph.arities >= 2, wanted, 1.0)
    counts = np.zeros(graph.n_factors)
    n_forests = max(MIN_FORESTS, min(1024, MAX_VISITS // max(1, graph.n_slots)))
    for index, members in enumerate(islice(balanced_forests(graph, targets), n_forests)):
        counts += members
        if bool(np.all(counts >= (wanted - TOLERANCE) * (index + 1))):
            return True
    return False


def _passes_cuts(graph: FactorGraph, wanted: FloatArray) -> bool:
    """Exact test for pairs, by minimum cuts in integers."""
    unit = 2**45  # 2,000 edges rounded to this grid are off by 3e-11 in all, and do not overflow
    pairs = np.flatnonzero(graph.arities == 2)
    first = graph.scope_offsets[pairs]
    u, v = graph.slot_variables[first], graph.slot_variables[first + 1]
    flow = np.rint(wanted[pairs] * unit).astype(np.int64)
    excess = np.full(graph.n_variables, -2 * unit, dtype=np.int64)
    np.add.at(excess, u, flow)
    np.add.at(excess, v, flow)
    node = np.arange(graph.n_variables)
    source, sink = graph.n_variables, graph.n_variables + 1
    # arc k and its twin k + n_arcs: edges have both capacities, terminal arcs only the first
    tails = np.concatenate([u, np.where(excess > 0, source, node)])
    heads = np.concatenate([v, np.where(excess > 0, node, sink)])
    forward = np.concatenate([flow, np.abs(excess)])
    backward = np.concatenate([flow, np.zeros_like(excess)])
    all_tails = np.concatenate([tails, heads])
    order = np.argsort(all_tails, kind="stable")
    places = np.empty(len(order), dtype=np.int32)
    places[order] = np.arange(len(order))
    starts = np.searchsorted(all_tails[order], np.arange(graph.n_variables + 3))
    return bool(
        in_forest_polytope(
            starts.astype(np.int32),
            np.concatenate([heads, tails])[order].astype(np.int32),
            np.roll(places, len(tails))[order],
            np.concatenate([forward, backward])[order],
            unit,
            int(TOLERANCE * unit),
        )
    )


# -- components ---------------------------------------------------------------------------


class _Component(NamedTuple):
    """One shape of component, with its variables numbered from 0, and where it occurs."""

    n_variables: int
    slot_variables: IntArray
    arities: IntArray
    factors: LongArray  # (n_occurrences, n_factors of the component)


def _components(graph: FactorGraph) -> list[_Component]:
    """The different connected components that have a factor of arity two or more."""
    linking = np.flatnonzero(graph.arities >= 2)
    labels = np.empty(graph.n_variables, dtype=np.int32)
    n_components = int(
        label_components(graph.scope_offsets, graph.slot_variables, graph.arities >= 2, labels)
    )
    sizes = np.bincount(labels, minlength=n_components)
    # number the variables inside their component, in the order of the graph
    by_label = np.argsort(labels, kind="stable")
    local = np.empty(graph.n_variables, dtype=np.int32)
    local[by_label] = ranges(np.zeros(n_components, dtype=np.int64), sizes)
    # factors, and their slots, sorted by component
    owners = labels[graph.slot_variables[graph.scope_offsets[linking]]]
    factors = linking[np.argsort(owners, kind="stable")]
    arities = graph.arities[factors]
    slot_offsets = offsets_of(arities)
    slots = local[graph.slot_variables[rows(graph.scope_offsets, factors)]]
    factor_offsets = offsets_of(np.bincount(owners, minlength=n_components))
    shapes: dict[tuple[int, bytes, bytes], tuple[slice, slice, list[LongArray]]] = {}
    for label in np.flatnonzero(np.diff(factor_offsets)):
        begin, end = int(factor_offsets[label]), int(factor_offsets[label + 1])
        span = slice(begin, end)
        slot_span = slice(int(slot_offsets[begin]), int(slot_offsets[end]))
        key = (int(sizes[label]), slots[slot_span].tobytes(), arities[span].tobytes())
        shapes.setdefault(key, (span, slot_span, []))[2].append(factors[span])
    return [
        _Component(key[0], slots[slot_span], arities[span], np.array(occurrences))
        for key, (span, slot_span, occurrences) in shapes.items()
    ]


def _groups(components: list[_Component]) -> list[list[_Component]]:
    """Consecutive components, up to `GROUP_SLOTS` slots together."""
    groups: list[list[_Component]] = []
    n_slots = GROUP_SLOTS
    for component in components:
        if n_slots + len(component.slot_variables) > GROUP_SLOTS:
            groups.append([])
            n_slots = 0
        groups[-1].append(component)
        n_slots += len(component.slot_variables)
    return groups


def _union(components: list[_Component]) -> FactorGraph:
    sizes = np.array([c.n_variables for c in components])
    first = offsets_of(sizes)[:-1]  # variable of each component
    shifts = np.repeat(first, [len(c.slot_variables) for c in components])
    return FactorGraph.from_flat(
        cardinalities=np.ones(int(sizes.sum()), dtype=np.int32),
        slot_variables=np.concatenate([c.slot_variables for c in components]) + shifts,
        arities=np.concatenate([c.arities for c in components]),
    )
