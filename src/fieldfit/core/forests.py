"""Forests of a factor graph: sets of factors without a cycle.

Tree-based schedules sweep over them, and tree-reweighted entropies are averages over them.  A
factor of arity zero or one is in no forest: it closes no cycle and carries no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.errors import InvalidInputError
from fieldfit.kernels.trees import (
    breadth_first_distances,
    breadth_first_factors,
    greedy_forest,
    label_components,
    largest_in_components,
    root_forest,
    tree_centers,
)

__all__ = [
    "RootedForest",
    "balanced_forests",
    "forest_cover",
    "maximum_weight_forest",
    "rooted_order",
]

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

#: Balanced forests are drawn from this seed, so that weights are the same in every run.
SEED = 20050901
#: Factors shuffled together; a few hundred kilobytes of index arrays.
BLOCK = 4096


class RootedForest(NamedTuple):
    """A forest with a direction: away from one central variable of each tree.

    Attributes
    ----------
    variables
        All variables, roots first, in breadth-first order.
    factors
        The members, in the order in which the search meets them (depths never decrease).
    up_slots
        For each factor the slot of its variable nearest to the root; -1 if not a member.
    factor_depths
        For each factor the depth of that variable; -1 if not a member.
    parent_slots
        For each variable the slot by which its parent factor holds it; -1 for a root.
    variable_depths
        For each variable the number of factors between it and its root.
    """

    variables: IntArray
    factors: IntArray
    up_slots: IntArray
    factor_depths: IntArray
    parent_slots: IntArray
    variable_depths: IntArray


def rooted_order(graph: FactorGraph, members: ArrayLike) -> RootedForest:
    """Root every tree of a forest at its centre, so that the depth is the least possible.

    Parameters
    ----------
    graph
        The structure.
    members
        Boolean array ``(n_factors,)`` that marks the factors of the forest; entries of factors
        of arity zero and one are ignored.
    """
    chosen = np.asarray(members)
    if chosen.shape != (graph.n_factors,) or chosen.dtype != np.bool_:
        raise InvalidInputError(
            f"members must be a boolean array of shape ({graph.n_factors},), "
            f"got dtype {chosen.dtype} and shape {chosen.shape}"
        )
    chosen = chosen & (graph.arities >= 2)
    centers = np.empty(graph.n_variables, dtype=np.int32)
    n_centers = int(tree_centers(graph.structure, chosen, centers))
    if n_centers < 0:
        raise InvalidInputError("members must be a forest, got factors that close a cycle")
    rooted = RootedForest(
        variables=np.empty(graph.n_variables, dtype=np.int32),
        factors=np.empty(int(chosen.sum()), dtype=np.int32),
        up_slots=np.full(graph.n_factors, -1, dtype=np.int32),
        factor_depths=np.full(graph.n_factors, -1, dtype=np.int32),
        parent_slots=np.full(graph.n_variables, -1, dtype=np.int32),
        variable_depths=np.zeros(graph.n_variables, dtype=np.int32),
    )
    root_forest(graph.structure, chosen, centers[:n_centers], rooted)
    return rooted


def maximum_weight_forest(graph: FactorGraph, weights: ArrayLike) -> BoolArray:
    """Forest that takes factors by decreasing weight and leaves out those that close a cycle.

    For pairs this is the maximum-weight spanning forest (Kruskal).  With factors of higher arity
    it is a maximal forest, not always the heaviest one: acyclic sets are then no matroid.  Every
    component is spanned whatever the sign of the weights.
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (graph.n_factors,) or np.isnan(values).any():
        raise InvalidInputError(
            f"weights must be {graph.n_factors} numbers, one for each factor, "
            f"got shape {values.shape}{' with NaN' if np.isnan(values).any() else ''}"
        )
    return _grow(graph, np.argsort(-values, kind="stable"))


def forest_cover(graph: FactorGraph) -> list[BoolArray]:
    """A few spanning forests that together hold every factor of arity two or more.

    The first is breadth-first from a variable near the middle, hence shallow; each later one
    takes first, again in breadth-first order, what no earlier one holds.
    """
    linking = graph.arities >= 2
    order = _breadth_first(graph)
    forests: list[BoolArray] = []
    covered = ~linking
    while not covered.all():
        # a boolean key: stable sorting keeps the breadth-first order in both halves
        members = _grow(graph, order[np.argsort(covered[order], kind="stable")])
        forests.append(members)
        covered |= members
    return forests


def balanced_forests(graph: FactorGraph, targets: FloatArray | None = None) -> Iterator[BoolArray]:
    """Endless sequence of spanning forests that hold every factor about equally often.

    Each forest is grown greedily from the factors that the earlier ones held least often, ties
    broken at random from a fixed seed.  So after ``arboricity`` forests (about) every factor is
    covered, and the shares settle with an error that falls like one over the number of forests,
    not like its square root.  With ``targets`` the shares become proportional to them, as far
    as the graph allows.
    """
    generator = np.random.default_rng(SEED)
    linking = np.flatnonzero(graph.arities >= 2)
    counts = np.zeros(graph.n_factors, dtype=np.int64)
    while True:
        order = _shuffled(linking, generator)
        load = counts[order]
        if targets is None:
            # in 16 bits, which NumPy sorts by radix; what lies above is in every forest anyway
            key = np.minimum(load - load.min(initial=0), 65535).astype(np.uint16)
        else:
            key = load / targets[order]
        members = _grow(graph, order[np.argsort(key, kind="stable")])
        counts += members
        yield members


def _shuffled(factors: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Random order: of blocks, and inside each block.

    Factors near each other in the graph are mostly near each other in the list; blocks keep them
    in the processor's cache, which makes growing a forest of millions almost four times faster.
    """
    if len(factors) <= BLOCK:
        return generator.permutation(factors)
    n_blocks = -(-len(factors) // BLOCK)
    padded = np.full(n_blocks * BLOCK, -1, dtype=np.int64)
    padded[: len(factors)] = factors
    blocks = padded.reshape(n_blocks, BLOCK)[generator.permutation(n_blocks)]
    order = generator.permuted(blocks, axis=1).ravel()
    return order[order >= 0]


def _grow(graph: FactorGraph, order: NDArray[np.int64]) -> BoolArray:
    members = np.zeros(graph.n_factors, dtype=np.bool_)
    greedy_forest(graph.n_variables, graph.scope_offsets, graph.slot_variables, order, members)
    return members


def _breadth_first(graph: FactorGraph) -> NDArray[np.int64]:
    """Factors of arity two or more, in breadth-first order from central variables."""
    order = np.empty(int(np.count_nonzero(graph.arities >= 2)), dtype=np.int64)
    breadth_first_factors(graph.structure, _central_variables(graph), order)
    return order


def _central_variables(graph: FactorGraph) -> IntArray:
    """One variable near the middle of each component.

    Landmarks are placed one after the other as far as possible from the earlier ones; the
    variable whose largest distance to a landmark is least is near the middle (five landmarks
    find the corners, hence the middle, of a grid).
    """
    labels = np.empty(graph.n_variables, dtype=np.int32)
    linking = graph.arities >= 2
    n_components = int(label_components(graph.scope_offsets, graph.slot_variables, linking, labels))
    distances = np.empty(graph.n_variables, dtype=np.int32)
    nearest = np.full(graph.n_variables, np.iinfo(np.int32).max, dtype=np.int32)
    farthest = np.zeros(graph.n_variables, dtype=np.int32)
    variables = np.empty(n_components, dtype=np.int32)
    largest_in_components(labels, farthest, variables)
    for _ in range(5):
        breadth_first_distances(graph.structure, variables, distances)
        np.minimum(nearest, distances, out=nearest)
        np.maximum(farthest, distances, out=farthest)
        largest_in_components(labels, nearest, variables)
    largest_in_components(labels, -farthest, variables)
    return variables
