"""Forests in a factor graph: growing, joining, finding bridges, rooting.

A set of factors is a *forest* if the bipartite graph of variables and these factors has no
cycle.  Only factors of arity two or more matter; arity one and zero never close a cycle and are
never members.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.structure import find_root

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@njit(cache=True, nogil=True, error_model="numpy")
def greedy_forest(
    n_variables: int,
    scope_offsets: IntArray,
    slot_variables: IntArray,
    order: NDArray[np.int64],
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def find_bridges(structure: Any, bridges: BoolArray) -> None:
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


@njit(cache=True, nogil=True, error_model="numpy")
def breadth_first_factors(structure: Any, starts: IntArray, order: NDArray[np.int64]) -> int:
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


@njit(cache=True, nogil=True, error_model="numpy")
def breadth_first_distances(structure: Any, starts: IntArray, distances: IntArray) -> None:
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


@njit(cache=True, nogil=True, error_model="numpy")
def largest_in_components(labels: IntArray, values: IntArray, result: IntArray) -> None:
    """First variable of the largest value in each component."""
    result[:] = -1
    for variable in range(len(labels)):
        best = result[labels[variable]]
        if best < 0 or values[variable] > values[best]:
            result[labels[variable]] = variable


@njit(cache=True, nogil=True, error_model="numpy")
def tree_centers(structure: Any, members: BoolArray, centers: IntArray) -> int:
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


@njit(cache=True, nogil=True, error_model="numpy")
def root_forest(structure: Any, members: BoolArray, roots: IntArray, out: Any) -> None:
    """Breadth-first search of a forest from its ``roots``; fills the arrays of ``out``.

    ``out`` has the fields of `fieldfit.core.forests.RootedForest`, the slots set to -1.
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
