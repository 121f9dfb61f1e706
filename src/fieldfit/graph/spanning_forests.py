"""Spanning forests of a factor graph: greedy, maximum-weight, balanced, rooted; bridges.

A set of factors is a *forest* if the bipartite graph of variables and these factors has no cycle.
Tree-based schedules sweep over them, and tree-reweighted entropies are averages over them.  A
factor of arity zero or one is in no forest: it closes no cycle and carries no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.structure import Structure, find_root
from fieldfit.numeric.compile import kernel

__all__ = [
    "RootedForest",
    "balanced_forests",
    "forest_cover",
    "maximum_weight_forest",
    "rooted_order",
]

# -- kernels: growing, components, bridges, search, rooting -------------------------------


@kernel
def greedy_forest(
    n_variables: int,
    scope_offsets: IntArray,
    slot_variables: IntArray,
    order: LongArray,
    members: BoolArray,
) -> int:
    """Mark as ``members`` the factors, taken in ``order``, that close no cycle; their number.

    This is Kruskal's algorithm for pairs.  A factor of higher arity closes no cycle if all its
    variables lie in different trees.
    """
    parents = np.arange(n_variables).astype(np.int32)
    seen = np.full(n_variables, -1, dtype=np.int32)  # last factor that met this root
    n_members = 0
    for factor in order:
        begin, end = scope_offsets[factor], scope_offsets[factor + 1]
        if end - begin < 2:
            members[factor] = False
            continue
        if end - begin == 2:  # the common case spares the memory traffic of `seen`
            first = find_root(parents, slot_variables[begin])
            other = find_root(parents, slot_variables[begin + 1])
            members[factor] = first != other
            n_members += first != other
            parents[max(first, other)] = min(first, other)
            continue
        members[factor] = True
        for slot in range(begin, end):
            root = find_root(parents, slot_variables[slot])
            if seen[root] == factor:
                members[factor] = False
                break
            seen[root] = factor
        if members[factor]:
            n_members += 1
            first = find_root(parents, slot_variables[begin])
            for slot in range(begin + 1, end):
                parents[find_root(parents, slot_variables[slot])] = first
    return n_members


@kernel
def label_components(
    scope_offsets: IntArray, slot_variables: IntArray, linking: BoolArray, labels: IntArray
) -> int:
    """Number the connected components by their first variable; only ``linking`` factors join."""
    n_variables = len(labels)
    parents = np.arange(n_variables).astype(np.int32)
    for factor in range(len(scope_offsets) - 1):
        if linking[factor]:
            for slot in range(scope_offsets[factor] + 1, scope_offsets[factor + 1]):
                first = find_root(parents, slot_variables[slot - 1])
                other = find_root(parents, slot_variables[slot])
                # the smaller index is the root, hence met first below
                parents[max(first, other)] = min(first, other)
    n_components = 0
    for variable in range(n_variables):
        root = find_root(parents, variable)
        if root == variable:
            labels[variable] = n_components
            n_components += 1
        else:
            labels[variable] = labels[root]
    return n_components


@kernel
def find_bridges(structure: Structure, bridges: BoolArray) -> None:
    """Mark the pairwise factors that lie on no cycle (Tarjan 1974), without recursion.

    A tree edge of the depth-first search is a bridge if no edge leads from its subtree back to
    or above its upper end.  Parallel edges are told apart by their factor, so they are none.
    """
    n_variables = len(structure.cardinalities)
    offsets = structure.variable_slot_offsets
    times = np.zeros(n_variables, dtype=np.int32)  # of discovery; 0 is not yet
    lowest = np.zeros(n_variables, dtype=np.int32)  # earliest time reachable from the subtree
    entry = np.full(n_variables, -1, dtype=np.int32)  # factor by which it was discovered
    position = offsets[:-1].copy()
    stack = np.empty(n_variables, dtype=np.int32)
    clock = 0
    for start in range(n_variables):
        if times[start] > 0:
            continue
        clock += 1
        times[start] = lowest[start] = clock
        stack[0] = start
        height = 1
        while height > 0:
            variable = stack[height - 1]
            if position[variable] < offsets[variable + 1]:
                slot = structure.variable_slots[position[variable]]
                position[variable] += 1
                factor = structure.slot_factors[slot]
                if factor == entry[variable]:
                    continue
                begin = structure.scope_offsets[factor]
                other = structure.slot_variables[2 * begin + 1 - slot]
                if times[other] > 0:
                    lowest[variable] = min(lowest[variable], times[other])
                else:
                    clock += 1
                    times[other] = lowest[other] = clock
                    entry[other] = factor
                    stack[height] = other
                    height += 1
            else:
                height -= 1
                if height > 0:
                    above = stack[height - 1]
                    lowest[above] = min(lowest[above], lowest[variable])
                    bridges[entry[variable]] = lowest[variable] > times[above]


@kernel
def breadth_first_factors(structure: Structure, starts: IntArray, order: LongArray) -> int:
    """Factors of arity two or more in the order a breadth-first search meets them; their number.

    The search starts at ``starts`` in turn, which must reach every component.
    """
    n_variables = len(structure.cardinalities)
    seen_variable = np.zeros(n_variables, dtype=np.bool_)
    seen_factor = np.zeros(len(structure.scope_offsets) - 1, dtype=np.bool_)
    queue = np.empty(n_variables, dtype=np.int32)
    n_queued = n_done = n_factors = 0
    for start in starts:
        if seen_variable[start]:
            continue
        seen_variable[start] = True
        queue[n_queued] = start
        n_queued += 1
        while n_done < n_queued:
            variable = queue[n_done]
            n_done += 1
            for position in range(
                structure.variable_slot_offsets[variable],
                structure.variable_slot_offsets[variable + 1],
            ):
                factor = structure.slot_factors[structure.variable_slots[position]]
                if seen_factor[factor]:
                    continue
                seen_factor[factor] = True
                order[n_factors] = factor
                n_factors += 1
                for slot in range(
                    structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
                ):
                    other = structure.slot_variables[slot]
                    if not seen_variable[other]:
                        seen_variable[other] = True
                        queue[n_queued] = other
                        n_queued += 1
    return n_factors


@kernel
def breadth_first_distances(structure: Structure, starts: IntArray, distances: IntArray) -> None:
    """Number of factors between each variable and the nearest of ``starts``, which reach all."""
    distances[:] = -1
    queue = np.empty(len(distances), dtype=np.int32)
    n_queued = 0
    for start in starts:
        distances[start] = 0
        queue[n_queued] = start
        n_queued += 1
    n_done = 0
    while n_done < n_queued:
        variable = queue[n_done]
        n_done += 1
        for position in range(
            structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
        ):
            factor = structure.slot_factors[structure.variable_slots[position]]
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                other = structure.slot_variables[slot]
                if distances[other] < 0:
                    distances[other] = distances[variable] + 1
                    queue[n_queued] = other
                    n_queued += 1


@kernel
def largest_in_components(labels: IntArray, values: IntArray, result: IntArray) -> None:
    """First variable of the largest value in each component."""
    result[:] = -1
    for variable in range(len(labels)):
        best = result[labels[variable]]
        if best < 0 or values[variable] > values[best]:
            result[labels[variable]] = variable


@kernel
def tree_centers(structure: Structure, members: BoolArray, centers: IntArray) -> int:
    """One central variable for each tree of a forest; their number, or -1 if there is a cycle.

    Leaves (variables or factors with one neighbour left) are removed from a first-in first-out
    queue; the node that goes last in its tree is a centre of the tree.
    """
    n_variables = len(structure.cardinalities)
    n_factors = len(structure.scope_offsets) - 1
    n_nodes = n_variables  # variables and members; factor a is node n_variables + a
    left = np.zeros(n_variables + n_factors, dtype=np.int32)  # neighbours not yet removed
    for factor in range(n_factors):
        if members[factor]:
            n_nodes += 1
            begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
            left[n_variables + factor] = end - begin
            for slot in range(begin, end):
                left[structure.slot_variables[slot]] += 1
    removed = np.zeros(n_variables + n_factors, dtype=np.bool_)
    last = np.full(n_factors, -1, dtype=np.int32)  # variable whose removal the factor saw last
    queue = np.empty(n_nodes, dtype=np.int32)
    n_queued = n_centers = 0
    for variable in range(n_variables):
        if left[variable] <= 1:
            queue[n_queued] = variable
            n_queued += 1
    n_done = 0
    while n_done < n_queued:
        node = queue[n_done]
        n_done += 1
        removed[node] = True
        neighbor = -1
        if node >= n_variables:
            factor = node - n_variables
            if left[node] == 0:
                centers[n_centers] = last[factor]
                n_centers += 1
                continue
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                if not removed[structure.slot_variables[slot]]:
                    neighbor = structure.slot_variables[slot]
        else:
            if left[node] == 0:
                centers[n_centers] = node
                n_centers += 1
                continue
            for position in range(
                structure.variable_slot_offsets[node], structure.variable_slot_offsets[node + 1]
            ):
                factor = structure.slot_factors[structure.variable_slots[position]]
                if members[factor] and not removed[n_variables + factor]:
                    neighbor = n_variables + factor
                    last[factor] = node
        left[neighbor] -= 1
        if left[neighbor] == 1:
            queue[n_queued] = neighbor
            n_queued += 1
    return n_centers if n_done == n_nodes else -1


@kernel
def root_forest(
    structure: Structure, members: BoolArray, roots: IntArray, out: RootedForest
) -> None:
    """Breadth-first search of a forest from its ``roots``; fills the arrays of ``out``.

    ``out`` has the fields of `fieldfit.graph.spanning_forests.RootedForest`, the slots set to -1.
    """
    n_queued = 0
    for root in roots:
        out.variables[n_queued] = root
        out.variable_depths[root] = 0
        n_queued += 1
    n_done = n_reached = 0
    while n_done < n_queued:
        variable = out.variables[n_done]
        n_done += 1
        depth = out.variable_depths[variable]
        for position in range(
            structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
        ):
            up = structure.variable_slots[position]
            factor = structure.slot_factors[up]
            if not members[factor] or out.up_slots[factor] >= 0:
                continue
            out.up_slots[factor] = up
            out.factor_depths[factor] = depth
            out.factors[n_reached] = factor
            n_reached += 1
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                if slot != up:
                    other = structure.slot_variables[slot]
                    out.parent_slots[other] = slot
                    out.variable_depths[other] = depth + 1
                    out.variables[n_queued] = other
                    n_queued += 1


# -- forests of graphs --------------------------------------------------------------------

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
    covered, and the fractions converge with an error that falls like one over the number of
    forests, not like its square root.  With ``targets`` the fractions become proportional to them,
    as far as the graph allows.
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


def _shuffled(factors: LongArray, generator: np.random.Generator) -> LongArray:
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


def _grow(graph: FactorGraph, order: LongArray) -> BoolArray:
    members = np.zeros(graph.n_factors, dtype=np.bool_)
    greedy_forest(graph.n_variables, graph.scope_offsets, graph.slot_variables, order, members)
    return members


def _breadth_first(graph: FactorGraph) -> LongArray:
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
