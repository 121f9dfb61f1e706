"""Elimination orders and their junction trees (clique trees): search, memory and time.

Memory is known before anything large is allocated.  With ``|S_c|`` the number of configurations of
the separator between clique ``c`` and its parent, a run keeps ``sum_c |S_c|`` message entries, and
in the downward pass the marginals of the separators around one clique.  Cluster tables are never
stored (see `fieldfit.inference.junction_tree.clique_tables`), so their size ``sum_c |C_c|`` is a
matter of time alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.errors import TooLargeError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.ragged import offsets_of
from fieldfit.inference.junction_tree.clique_tables import (
    BLOCK_ENTRIES,
    COPY_ENTRIES,
    MAX_BLOCK_ROWS,
    MAX_COPIES,
    JunctionTree,
    Workspace,
    buffer_lengths,
)
from fieldfit.inference.junction_tree.greedy_elimination import (
    COMPLETE,
    Elimination,
    free_neighbors,
    greedy_order,
)
from fieldfit.numeric.compile import kernel

__all__ = ["Budget", "EliminationPlan", "EliminationSearch", "find_plan", "fixed_labels"]

# -- from the buckets of an elimination order to the maximal cliques and their tree -------


class Cliques(NamedTuple):
    """The first fields of a `JunctionTree`, and what its cost is counted from."""

    offsets: LongArray
    variables: IntArray
    n_eliminated: IntArray
    parents: IntArray
    homes: IntArray  # the clique in which each variable is eliminated, -1 for observed ones
    clusters: FloatArray  # table entries
    separators: LongArray  # table entries


@kernel
def merge_buckets(
    cardinalities: IntArray, elimination: Elimination
) -> tuple[LongArray, IntArray, IntArray, IntArray, IntArray, FloatArray, LongArray]:
    """Maximal `Cliques`: each bucket that lies inside another one is joined to it.

    The parent of a bucket is the bucket of its first neighbour to be eliminated, and lies inside
    its child exactly if it has one neighbour less than the child.
    """
    n_variables = len(cardinalities)
    order, offsets, neighbors = elimination.order, elimination.offsets, elimination.neighbors
    n_buckets = len(order)
    ranks = np.full(n_variables, -1, dtype=np.int32)
    for k in range(n_buckets):
        ranks[order[k]] = k
    parents = np.full(n_buckets, -1, dtype=np.int32)
    above = np.full(n_buckets, -1, dtype=np.int32)  # the bucket that k takes in
    below = np.full(n_buckets, -1, dtype=np.int32)  # the bucket that takes k in
    for k in range(n_buckets):
        for position in range(offsets[k], offsets[k + 1]):
            rank = ranks[neighbors[position]]
            if parents[k] < 0 or rank < parents[k]:
                parents[k] = rank
        up = parents[k]
        is_inside = offsets[up + 1] - offsets[up] + 1 == offsets[k + 1] - offsets[k]
        if up >= 0 and below[up] < 0 and is_inside:
            below[up] = k
            above[k] = up

    # numbered by the last variable eliminated, so that a clique comes before its parent
    homes = np.full(n_variables, -1, dtype=np.int32)
    lasts = np.flatnonzero(above < 0)
    n_cliques = len(lasts)
    clique_offsets = np.zeros(n_cliques + 1, dtype=np.int64)
    n_eliminated = np.zeros(n_cliques, dtype=np.int32)
    for c in range(n_cliques):
        k = lasts[c]
        clique_offsets[c + 1] = clique_offsets[c] + offsets[k + 1] - offsets[k]
        while k >= 0:
            homes[order[k]] = c
            n_eliminated[c] += 1
            k = below[k]
        clique_offsets[c + 1] += n_eliminated[c]
    clique_parents = np.full(n_cliques, -1, dtype=np.int32)
    clusters = np.ones(n_cliques)
    separators = np.ones(n_cliques, dtype=np.int64)
    variables = np.empty(clique_offsets[n_cliques], dtype=np.int32)
    for c in range(n_cliques):
        k = lasts[c]
        if parents[k] >= 0:
            clique_parents[c] = homes[order[parents[k]]]
        separator = variables[clique_offsets[c] + n_eliminated[c] : clique_offsets[c + 1]]
        for position in range(len(separator)):
            separator[position] = ranks[neighbors[offsets[k] + position]]
        separator.sort()
        for position in range(len(separator)):
            separator[position] = order[separator[position]]
            separators[c] *= cardinalities[separator[position]]
        clusters[c] = separators[c]
        place = clique_offsets[c] + n_eliminated[c]
        while k >= 0:
            place -= 1
            variables[place] = order[k]
            clusters[c] *= cardinalities[order[k]]
            k = below[k]
    return clique_offsets, variables, n_eliminated, clique_parents, homes, clusters, separators


# -- search for an affordable order -------------------------------------------------------

#: Noise of successive restarts.  None, a little and much each win on some of the UAI 2014 models:
#: grids like 0.3 to 1, the linkage model 1 to 2, where the best of 100 is 20 times below the first.
NOISES = (0.0, 0.3, 1.0, 2.0)
#: A step of the search takes about as long as this many cluster entries in both passes.
ENTRIES_PER_STEP = 8
#: Steps after which a search that found no affordable order gives up (about two seconds).
MAX_STEPS = 25_000_000
#: A single run may take longer on a large graph: a grid needs some 20 steps for each edge.
STEPS_PER_EDGE = 200
#: Sums of table sizes must stay exact in 64-bit integers.
MAX_LOG2_ENTRIES = 52.0


@dataclass(frozen=True)
class Budget:
    """Limits of a search; see `fieldfit.inference.junction_tree.exact.Exact`."""

    max_memory: float
    max_operations: float
    n_restarts: int
    random_state: int


@dataclass(frozen=True)
class EliminationPlan:
    """A junction tree and its cost, without the graph: a memo must not keep its key alive."""

    n_variables: int
    tree: JunctionTree
    n_operations: float  # entries of all cluster tables
    n_marginals: int  # entries of the separators around one clique, the largest sum
    width: int  # variables of the largest cluster, less one
    memory: float  # bytes of a run, beyond the graph and its potentials
    lengths: tuple[int, int, int, int]  # of the buffers, see `buffer_lengths`

    @property
    def n_cliques(self) -> int:
        return len(self.tree.n_eliminated)

    def workspace(self) -> Workspace:
        """Buffers that fit the largest clique of the tree."""
        n_axes, n_lanes, n_tables, n_places = self.lengths
        return Workspace(
            axes=np.empty(self.n_variables, dtype=np.int32),
            sizes=np.empty(n_axes, dtype=np.int64),
            digits=np.empty(n_axes, dtype=np.int64),
            outer=np.empty(n_axes, dtype=np.int64),
            kinds=np.empty(n_tables, dtype=np.int32),
            lane_kinds=np.empty(n_tables, dtype=np.int32),
            origins=np.empty(n_tables, dtype=np.int64),
            offsets=np.empty(n_tables, dtype=np.int64),
            targets=np.empty(n_tables, dtype=np.int64),
            strides=np.empty(n_places, dtype=np.int64),
            steps=np.empty(n_places, dtype=np.int64),
            lane_indices=np.empty(n_places, dtype=np.int64),
            copy_indices=np.empty(n_tables * MAX_COPIES, dtype=np.int64),
            n_copies=np.empty(n_tables, dtype=np.int32),
            copy_offsets=np.empty(n_tables, dtype=np.int64),
            copies=np.empty(COPY_ENTRIES),
            copied_sums=np.empty(COPY_ENTRIES),
            carries=np.empty(MAX_BLOCK_ROWS, dtype=np.int32),
            row_values=np.empty(MAX_BLOCK_ROWS),
            block=np.empty(max(BLOCK_ENTRIES, n_lanes)),
            base=np.empty(n_lanes),
            totals=np.empty(n_lanes),
            maxima=np.empty(n_lanes),
            sums=np.empty(n_lanes),
        )


@dataclass(frozen=True)
class EliminationSearch:
    """What a search found: an affordable plan, or the figures of the best order without one."""

    plan: EliminationPlan | None
    memory: float
    is_lower_bound: bool
    width: int
    n_operations: float

    def plan_within(self, budget: Budget, method: str) -> EliminationPlan:
        """The plan, or the error that says what it would take."""
        if self.plan is not None:
            return self.plan
        at_least = "at least " if self.is_lower_bound else ""
        raise TooLargeError(
            f"{method} needs {at_least}{self.memory / 1e9:.3g} GB and {at_least}"
            f"{self.n_operations:.3g} operations with the best elimination order found (width "
            f"{self.width}), the limits are max_memory {budget.max_memory / 1e9:.3g} GB and "
            f"max_operations {budget.max_operations:.3g}"
        )


def fixed_labels(graph: FactorGraph, labels: IntArray) -> IntArray:
    """Evidence, with the variables added that have one label only."""
    return np.where(graph.cardinalities == 1, np.int32(0), labels)


#: Searches remembered for each graph: learning alternates between a free and an observed run.
SEARCHES_KEPT = 4
_SEARCHES: WeakKeyDictionary[FactorGraph, dict[tuple[bytes, Budget], EliminationSearch]] = (
    WeakKeyDictionary()
)


def find_plan(graph: FactorGraph, labels: IntArray, budget: Budget) -> EliminationSearch:
    """The cheapest junction tree over the variables with label -1 that restarts could find.

    Of the plans that fit the memory the one with the fewest operations is kept, and if none fits
    the one with the least memory.  The last searches of every graph are remembered: they
    depend on which variables are observed, not on their labels or on the potentials.
    """
    key = (np.packbits(labels < 0).tobytes(), budget)
    known = _SEARCHES.setdefault(graph, {})
    if key not in known:
        search = _search(graph, labels, budget)
        while len(known) >= SEARCHES_KEPT:
            known.pop(next(iter(known)))
        known[key] = search
    return known[key]


def _search(graph: FactorGraph, labels: IntArray, budget: Budget) -> EliminationSearch:
    adjacency = free_neighbors(graph.structure, labels)
    most = min(np.log2(max(budget.max_operations, 1.0)), MAX_LOG2_ENTRIES)
    best: EliminationPlan | None = None
    failure: Elimination | None = None
    steps = 0
    for restart in range(max(budget.n_restarts, 1)):
        fits = best is not None and best.memory <= budget.max_memory
        limit = np.log2(max(best.n_operations, 2.0)) if best is not None and fits else most
        elimination = Elimination(
            *greedy_order(
                graph.cardinalities,
                labels,
                adjacency,
                NOISES[restart % len(NOISES)],
                # streams of two restarts meet only after 2**32 draws
                ((budget.random_state * 2**12 + restart) << 32) % 2**63,
                limit,
                max(MAX_STEPS, STEPS_PER_EDGE * len(adjacency[1])),
            )
        )
        steps += elimination.n_steps
        if elimination.status == COMPLETE:
            plan = _measured(graph, elimination)
            if best is None or _is_better(plan, best, budget.max_memory):
                best = plan
        elif failure is None or elimination.log2_largest < failure.log2_largest:
            failure = elimination
        if best is not None and best.memory <= budget.max_memory:
            if steps * ENTRIES_PER_STEP > best.n_operations:
                break
        elif steps > MAX_STEPS:
            break
    if best is not None:
        affordable = best.memory <= budget.max_memory and best.n_operations <= budget.max_operations
        return EliminationSearch(
            best if affordable else None, best.memory, False, best.width, best.n_operations
        )
    assert failure is not None  # every run either completes or fails
    entries = 2.0 ** min(failure.log2_largest, 1000.0)  # still a lower bound, and finite
    return EliminationSearch(None, 8.0 * entries, True, failure.n_largest - 1, entries)


def _is_better(plan: EliminationPlan, best: EliminationPlan, max_memory: float) -> bool:
    if (plan.memory <= max_memory) != (best.memory <= max_memory):
        return plan.memory <= max_memory
    if best.memory <= max_memory:
        return plan.n_operations < best.n_operations
    return plan.memory < best.memory


def _measured(graph: FactorGraph, elimination: Elimination) -> EliminationPlan:
    """Junction tree of an order, with its factors, children and costs."""
    cliques = Cliques(*merge_buckets(graph.cardinalities, elimination))
    n_cliques = len(cliques.n_eliminated)
    factor_homes = _factor_homes(graph, cliques.homes, n_cliques)
    factors, factor_offsets = _grouped(factor_homes, n_cliques)
    children, child_offsets = _grouped(cliques.parents, n_cliques)
    tree = JunctionTree(
        offsets=cliques.offsets,
        variables=cliques.variables,
        n_eliminated=cliques.n_eliminated,
        parents=cliques.parents,
        factor_offsets=factor_offsets,
        factors=factors,
        child_offsets=child_offsets,
        children=children,
        message_offsets=offsets_of(cliques.separators),
    )
    around = offsets_of(cliques.separators[children])[child_offsets]
    n_marginals = int(np.diff(around).max(initial=0))
    n_beliefs = int(graph.unary_offsets[-1]) * 2 + int(graph.table_offsets[-1])
    lengths = buffer_lengths(tree, graph.cardinalities)
    n_doubles = int(tree.message_offsets[-1]) + n_marginals + n_beliefs + n_cliques
    indices = sum(array.nbytes for array in tree) + _workspace_bytes(graph, lengths)
    return EliminationPlan(
        n_variables=graph.n_variables,
        tree=tree,
        n_operations=float(cliques.clusters.sum()),
        n_marginals=n_marginals,
        width=max(elimination.n_largest - 1, 0),
        memory=8.0 * n_doubles + indices,
        lengths=lengths,
    )


def _workspace_bytes(graph: FactorGraph, lengths: tuple[int, int, int, int]) -> int:
    """Bytes of `EliminationPlan.workspace`, which has these shapes."""
    n_axes, n_lanes, n_tables, n_places = lengths
    longs = 3 * n_axes + (4 + MAX_COPIES) * n_tables + 3 * n_places
    doubles = max(BLOCK_ENTRIES, n_lanes) + 4 * n_lanes + 2 * COPY_ENTRIES + MAX_BLOCK_ROWS
    return 8 * (longs + doubles) + 4 * (graph.n_variables + 3 * n_tables + MAX_BLOCK_ROWS)


def _factor_homes(graph: FactorGraph, homes: IntArray, n_cliques: int) -> IntArray:
    """Clique of every factor, -1 for those that bring no table (arity below 2, or all observed).

    The variables of a factor are neighbours of the first one eliminated, and the others are
    eliminated in the same clique or in an ancestor, which has a higher number.
    """
    result = np.full(graph.n_factors, -1, dtype=np.int32)
    linking = np.flatnonzero(graph.arities >= 2)
    if len(linking):
        arities = graph.arities[linking]
        slots = np.flatnonzero(graph.arities[graph.slot_factors] >= 2)
        slot_homes = homes[graph.slot_variables[slots]]
        slot_homes[slot_homes < 0] = n_cliques
        first = np.minimum.reduceat(slot_homes, offsets_of(arities)[:-1])
        result[linking] = np.where(first < n_cliques, first, -1)
    return result


def _grouped(groups: IntArray, n_groups: int) -> tuple[IntArray, LongArray]:
    """Indices of ``groups`` sorted by group, without those of group -1, and the offsets."""
    members = np.flatnonzero(groups >= 0).astype(np.int32)
    owners = groups[members]
    return members[np.argsort(owners, kind="stable")], offsets_of(
        np.bincount(owners, minlength=n_groups)
    )
