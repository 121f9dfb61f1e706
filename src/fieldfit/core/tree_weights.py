"""Weights ``rho`` that make a tree-reweighted entropy an upper bound on the true one.

Let ``F`` be a forest of factors (no cycle).  Dropping all other factors from a distribution with
the given marginals can only raise its entropy, and on a forest the entropy is Bethe's::

    H(mu)  <=  H_F(mu)  =  sum over a in F of H(mu_a) + sum over i of (1 - d_i(F)) H(mu_i)

An average over forests ``F`` keeps the inequality and has the counting numbers ``c_a = rho_a``,
``c_i = 1 - sum over a on i of rho_a``, where ``rho_a`` is the share of forests that hold ``a``
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
from numpy.typing import NDArray

from fieldfit.core.effective_resistance import edge_probabilities
from fieldfit.core.forests import (
    RootedForest,
    balanced_forests,
    forest_cover,
    maximum_weight_forest,
    rooted_order,
)
from fieldfit.core.graph import FactorGraph
from fieldfit.errors import InvalidInputError
from fieldfit.kernels.forest_polytope import in_forest_polytope
from fieldfit.kernels.trees import label_components

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

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

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

    Exact (see `fieldfit.core.effective_resistance`) as long as the sparse factorisation takes at
    most ``max_cost`` multiplications; above that the shares of a mixture of spanning forests,
    `hyperforest_weights`, which are as valid but more even than uniform trees would give.
    """
    if graph.arities.max(initial=0) > 2:
        raise InvalidInputError(
            f"graph must have factors of arity at most 2, got arity {graph.arities.max()}"
        )
    exact = edge_probabilities(graph, max_cost)
    return hyperforest_weights(graph) if exact is None else exact


def hyperforest_weights(graph: FactorGraph) -> FloatArray:
    """Share of the forests of `forest_mixture` that hold each factor.

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
    slot_variables: NDArray[np.int32]
    arities: NDArray[np.int32]
    factors: NDArray[np.int64]  # (n_occurrences, n_factors of the component)


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
    local[by_label] = np.arange(graph.n_variables) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # factors, and their slots, sorted by component
    owners = labels[graph.slot_variables[graph.scope_offsets[linking]]]
    factors = linking[np.argsort(owners, kind="stable")]
    arities = graph.arities[factors]
    slot_ends = np.cumsum(arities)
    inside = np.arange(int(arities.sum())) - np.repeat(slot_ends - arities, arities)
    slots = local[graph.slot_variables[np.repeat(graph.scope_offsets[factors], arities) + inside]]
    factor_ends = np.cumsum(np.bincount(owners, minlength=n_components))
    shapes: dict[tuple[int, bytes, bytes], tuple[slice, slice, list[NDArray[np.int64]]]] = {}
    begin = 0
    for label in np.flatnonzero(np.diff(factor_ends, prepend=0)):
        end = int(factor_ends[label])
        span = slice(begin, end)
        slot_span = slice(int(slot_ends[begin] - arities[begin]), int(slot_ends[end - 1]))
        key = (int(sizes[label]), slots[slot_span].tobytes(), arities[span].tobytes())
        shapes.setdefault(key, (span, slot_span, []))[2].append(factors[span])
        begin = end
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
    shifts = np.repeat(np.cumsum(sizes) - sizes, [len(c.slot_variables) for c in components])
    return FactorGraph.from_flat(
        cardinalities=np.ones(int(sizes.sum()), dtype=np.int32),
        slot_variables=np.concatenate([c.slot_variables for c in components]) + shifts,
        arities=np.concatenate([c.arities for c in components]),
    )
