r"""Boykov-Kolmogorov maximum flow / minimum s-t cut: augmenting paths between two search trees.

A network has nodes, arcs between them, and two terminals that are not stored: ``terminal[i]`` is
the residual capacity from the source to node ``i`` if it is positive, and minus that from ``i`` to
the sink if it is negative.  Two trees of arcs with residual capacity grow from the terminals.
Where they touch, the flow along the path is augmented by its bottleneck; nodes whose arc to the
parent is then saturated are *orphans*, which look for another parent and become free if there is
none.  When no *active* node can grow, nodes of the source tree are one side of a minimum cut, and
those of the sink tree one side of another; they differ by the free nodes.

An orphan takes the parent with the shortest path to the terminal.  Distances are kept with the time
at which they were known to be right, so that most walks to the terminal end after one step.

Range: capacities are non-negative and may be infinite.  A path without finite capacity has no
minimum cut; it is cut at its source, which is marked in ``conflict``, and the rest goes on.  A path
saturates its bottleneck to an exact zero.  What rounding leaves in other arcs is dropped if it is
below `ROUNDING`, relative to the two directions of the arc together, which no flow changes.

Speed: indices are unsigned, because checks for negative ones (which count from the end) cost as
much as the search itself; counters are local variables; and the stages of `solve` stand in one
function, because a call that takes ten arrays costs as much as a short path.

Reference: Boykov and Kolmogorov, "An experimental comparison of min-cut/max-flow algorithms for
energy minimization in vision", IEEE Trans. Pattern Analysis and Machine Intelligence 26 (2004).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import ByteArray, FloatArray
from fieldfit.numeric.compile import kernel

Index = np.uint32
IndexArray = NDArray[np.uint32]

#: Two units in the last place of the capacity that an arc and its reverse have together.
ROUNDING = 4.5e-16

ONE = np.uint32(1)
ZERO = np.uint32(0)
#: Sides of a node.
FREE, SOURCE, SINK = np.uint32(0), np.uint32(1), np.uint32(2)
#: In place of an arc; all are above `LAST_ARC`.
AT_TERMINAL, NO_PARENT, NO_ARC = np.uint32(2**32 - 1), np.uint32(2**32 - 2), np.uint32(2**32 - 3)
LAST_ARC = np.uint32(2**32 - 4)
#: Distance of a descendant of an orphan.
FAR = np.uint32(2**31)
#: Columns of `Trees.node`: what is read together lies together.
PARENT, STAMP, DISTANCE, SIDE = ZERO, ONE, np.uint32(2), np.uint32(3)


class Network(NamedTuple):
    """CutNetwork sorted by the node that they leave; each has a reverse."""

    offsets: IndexArray  # arcs of node i are offsets[i] .. offsets[i + 1]
    heads: IndexArray  # node that the arc enters
    reverses: IndexArray  # the arc in the other direction


class Flow(NamedTuple):
    """What an augmentation changes."""

    residual: FloatArray  # of each arc
    terminal: FloatArray  # of each node, see above
    inflow: FloatArray  # flow that enters the network at each node
    conflict: ByteArray  # 1 at a node with an infinite path from source to sink


class Trees(NamedTuple):
    """The two search trees, and queues of active nodes and of orphans."""

    node: IndexArray  # (n_nodes, 4): arc to the parent, time stamp, distance, side
    is_active: ByteArray
    queue: IndexArray
    orphans: IndexArray


@kernel
def solve(network: Network, flow: Flow, trees: Trees) -> None:
    """Raise the flow to its maximum; sides of the minimum cuts are then in ``trees.node``."""
    offsets, heads, reverses = network
    residual, terminal, inflow, conflict = flow
    node, is_active, queue, orphans = trees
    n_nodes = np.uint32(len(terminal))
    _push_through_single_arcs(network, flow)
    n_active = _root_trees(flow, trees)
    head, clock = ZERO, ZERO
    while n_active > ZERO:
        i = queue[head]
        head = _ring_next(head, n_nodes)
        n_active = np.uint32(n_active - ONE)
        is_active[i] = 0
        side = node[i, SIDE]
        arc, last = offsets[i], offsets[np.uint32(i + ONE)]
        while node[i, SIDE] != FREE:
            # grow until the other tree is met; an earlier arc that is free again wakes the node
            middle = NO_ARC
            while arc < last:
                back = reverses[arc]
                if residual[arc if side == SOURCE else back] > 0.0:
                    j = heads[arc]
                    if node[j, SIDE] == FREE:
                        node[j, SIDE] = side
                        _set_parent(j, back, i, node)
                        if is_active[j] == 0:
                            is_active[j] = 1
                            queue[_ring_end(head, n_active, n_nodes)] = j
                            n_active = np.uint32(n_active + ONE)
                    elif node[j, SIDE] != side:
                        middle = arc if side == SOURCE else back
                        break
                    elif node[j, STAMP] <= node[i, STAMP] and node[j, DISTANCE] > node[i, DISTANCE]:
                        _set_parent(
                            j, back, i, node
                        )  # a shorter path to the terminal, as far as is known
                arc = np.uint32(arc + ONE)
            if middle == NO_ARC:
                break
            # augment: send the bottleneck of the path through it
            start, end, amount = _bottleneck(middle, heads, reverses, residual, node)
            amount = min(amount, min(terminal[start], -terminal[end]))
            if amount < np.inf:
                inflow[start] += amount
                terminal[start] -= amount
                terminal[end] += amount
                _push_flow(middle, reverses[middle], amount, residual)
            else:
                conflict[start] = 1
                terminal[start] = 0.0
                amount = 0.0
            n_orphans = ZERO
            k = heads[reverses[middle]]
            while k != start:
                up = node[k, PARENT]
                if _push_flow(reverses[up], up, amount, residual):
                    n_orphans = _add_orphan(k, n_orphans, node, orphans)
                k = heads[up]
            if terminal[start] <= 0.0:
                n_orphans = _add_orphan(start, n_orphans, node, orphans)
            k = heads[middle]
            while k != end:
                up = node[k, PARENT]
                if _push_flow(up, reverses[up], amount, residual):
                    n_orphans = _add_orphan(k, n_orphans, node, orphans)
                k = heads[up]
            if terminal[end] >= 0.0:
                n_orphans = _add_orphan(end, n_orphans, node, orphans)
            # adopt: find parents for the orphans, or free them and make their children orphans
            first = np.uint32(n_nodes - n_orphans)
            clock = np.uint32(clock + ONE)
            while n_orphans > ZERO:
                orphan = orphans[first]
                first = _ring_next(first, n_nodes)
                n_orphans = np.uint32(n_orphans - ONE)
                if _adopt(orphan, clock, offsets, heads, reverses, residual, node):
                    continue
                own = node[orphan, SIDE]
                node[orphan, SIDE] = FREE
                for out in range(offsets[orphan], offsets[np.uint32(orphan + ONE)]):
                    k = heads[out]
                    if node[k, SIDE] == own:
                        if node[k, PARENT] == reverses[out]:
                            node[k, PARENT] = NO_PARENT
                            orphans[_ring_end(first, n_orphans, n_nodes)] = k
                            n_orphans = np.uint32(n_orphans + ONE)
                        usable = reverses[out] if own == SOURCE else np.uint32(out)
                        if is_active[k] == 0 and residual[usable] > 0.0:
                            is_active[k] = 1
                            queue[_ring_end(head, n_active, n_nodes)] = k
                            n_active = np.uint32(n_active + ONE)


@kernel
def _push_through_single_arcs(network: Network, flow: Flow) -> None:
    """What can flow from the source through one arc between two nodes to the sink.

    Such paths are found here for a fraction of what the trees pay for them.
    """
    offsets, heads, reverses = network
    residual, terminal, inflow, conflict = flow
    for place in range(len(terminal)):
        i = np.uint32(place)
        inflow[i] = 0.0
        conflict[i] = 0
        arc, last = offsets[i], offsets[np.uint32(i + ONE)]
        while arc < last and terminal[i] > 0.0:
            j = heads[arc]
            amount = min(residual[arc], min(terminal[i], -terminal[j]))
            if 0.0 < amount < np.inf:
                inflow[i] += amount
                terminal[i] -= amount
                terminal[j] += amount
                _push_flow(arc, reverses[arc], amount, residual)
            arc = np.uint32(arc + ONE)


@kernel
def _root_trees(flow: Flow, trees: Trees) -> Index:
    """Trees of one level: the nodes with an arc from or to a terminal; their number."""
    node = trees.node
    n_active = ZERO
    for place in range(len(flow.terminal)):
        i = np.uint32(place)
        node[i, STAMP] = ZERO
        if flow.terminal[i] == 0.0:
            node[i, SIDE] = FREE
            node[i, PARENT] = NO_PARENT
            node[i, DISTANCE] = ZERO
            trees.is_active[i] = 0
        else:
            node[i, SIDE] = SOURCE if flow.terminal[i] > 0.0 else SINK
            node[i, PARENT] = AT_TERMINAL
            node[i, DISTANCE] = ONE
            trees.is_active[i] = 1
            trees.queue[n_active] = i
            n_active = np.uint32(n_active + ONE)
    return n_active


@kernel(forceinline=True)
def _ring_next(place: Index, n_places: Index) -> Index:
    """The next place of a ring."""
    return np.uint32(place + ONE) if place + ONE < n_places else ZERO


@kernel(forceinline=True)
def _ring_end(first: Index, count: Index, n_places: Index) -> Index:
    """The first place of a ring behind those that are taken."""
    place = np.uint32(first + count)
    return np.uint32(place - n_places) if place >= n_places else place


@kernel(forceinline=True)
def _set_parent(j: Index, arc: Index, i: Index, node: IndexArray) -> None:
    """Make ``i`` the parent of ``j``."""
    node[j, PARENT] = arc
    node[j, STAMP] = node[i, STAMP]
    node[j, DISTANCE] = np.uint32(node[i, DISTANCE] + ONE)


@kernel(forceinline=True)
def _push_flow(arc: Index, back: Index, amount: float, residual: FloatArray) -> bool:
    """Send flow through one arc; whether that saturates it."""
    left = residual[arc] - amount
    other = residual[back] + amount
    if left <= ROUNDING * other and other < np.inf:
        left = 0.0
    residual[arc] = left
    residual[back] = other
    return left <= 0.0


@kernel(forceinline=True)
def _add_orphan(i: Index, n_orphans: Index, node: IndexArray, orphans: IndexArray) -> Index:
    """Put a node before the other orphans, counted from the end of the ring; their number.

    Along a path the one nearest to the terminal comes first, so that the others may become its
    children.
    """
    node[i, PARENT] = NO_PARENT
    n_orphans = np.uint32(n_orphans + ONE)
    orphans[np.uint32(len(orphans)) - n_orphans] = i
    return n_orphans


@kernel
def _bottleneck(
    middle: Index, heads: IndexArray, reverses: IndexArray, residual: FloatArray, node: IndexArray
) -> tuple[Index, Index, float]:
    """First and last node of the path through an arc, and its least residual."""
    amount = residual[middle]
    start = heads[reverses[middle]]
    arc = node[start, PARENT]
    while arc <= LAST_ARC:
        amount = min(amount, residual[reverses[arc]])
        start = heads[arc]
        arc = node[start, PARENT]
    end = heads[middle]
    arc = node[end, PARENT]
    while arc <= LAST_ARC:
        amount = min(amount, residual[arc])
        end = heads[arc]
        arc = node[end, PARENT]
    return start, end, amount


@kernel
def _adopt(
    i: Index,
    clock: Index,
    offsets: IndexArray,
    heads: IndexArray,
    reverses: IndexArray,
    residual: FloatArray,
    node: IndexArray,
) -> bool:
    """Attach an orphan to the neighbour that is nearest to the terminal, if there is one."""
    side = node[i, SIDE]
    parent, shortest = NO_PARENT, FAR
    for arc in range(offsets[i], offsets[np.uint32(i + ONE)]):
        j = heads[arc]
        if node[j, SIDE] == side:
            usable = reverses[arc] if side == SOURCE else np.uint32(arc)
            if residual[usable] > 0.0:
                distance = _distance(j, clock, heads, node)
                if distance < shortest:
                    parent, shortest = np.uint32(arc), distance
    if parent == NO_PARENT:
        return False
    node[i, PARENT] = parent
    node[i, STAMP] = clock
    node[i, DISTANCE] = np.uint32(shortest + ONE)
    return True


@kernel(forceinline=True)
def _distance(j: Index, clock: Index, heads: IndexArray, node: IndexArray) -> Index:
    """Arcs from a node to its terminal, `FAR` from an orphan; remembered all along the path."""
    distance = ZERO
    k = j
    while True:
        if node[k, STAMP] == clock:
            distance = np.uint32(distance + node[k, DISTANCE])
            break
        distance = np.uint32(distance + ONE)
        arc = node[k, PARENT]
        if arc == AT_TERMINAL:
            node[k, STAMP] = clock
            node[k, DISTANCE] = ONE
            break
        if arc == NO_PARENT:
            distance = FAR
            break
        k = heads[arc]
    if distance < FAR:
        k = j
        left = distance
        while node[k, STAMP] != clock:
            node[k, STAMP] = clock
            node[k, DISTANCE] = left
            left = np.uint32(left - ONE)
            k = heads[node[k, PARENT]]
    return distance
