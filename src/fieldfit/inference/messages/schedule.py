"""Message schedules: flooding, sequential, tree and any given order, as plans that kernels run.

A plan lists slots in levels.  Slots of one level do not depend on each other, so a level runs in
blocks and in threads, and the result is the same as updating its slots one after the other.
Any sequential order has such a plan (its dependency levels): a row-by-row sweep of a grid, for
instance, becomes a wave front along the anti-diagonals, with bit for bit the same messages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import IntArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.memos import Memo
from fieldfit.graph.ragged import rows
from fieldfit.graph.spanning_forests import RootedForest, forest_cover, rooted_order
from fieldfit.graph.structure import (
    Structure,
    counting_order,
    greedy_colors,
    slot_levels,
    variable_levels,
)
from fieldfit.inference.messages.message_arrays import Plan
from fieldfit.numeric.compile import kernel

__all__ = [
    "SCHEDULES",
    "cached_plan",
    "common_labels",
    "flooding_plan",
    "grid_clique_order",
    "message_order_plan",
    "plan_for",
    "sequential_plan",
    "tree_order_plan",
    "tree_plan",
]

# -- a plan from slots and their levels, in linear time and with little extra memory ------


@kernel
def is_pair_slot(structure: Structure, slot: int, n_labels: int) -> bool:
    """True if the slot's factor has two variables, both with ``n_labels`` labels."""
    factor = structure.slot_factors[slot]
    first = structure.scope_offsets[factor]
    if structure.scope_offsets[factor + 1] - first != 2:
        return False
    left, right = structure.slot_variables[first], structure.slot_variables[first + 1]
    return structure.cardinalities[left] == n_labels and structure.cardinalities[right] == n_labels


@kernel
def build_plan(
    structure: Structure, slots: IntArray, levels: IntArray, n_levels: int, n_labels: int
) -> tuple[IntArray, ...]:
    """A `Plan` of slots with levels; inside a level the given order is kept.

    A level's variables are listed in the order in which its slots first name them.
    """
    order = counting_order(levels, n_levels)
    listed_at = np.full(len(structure.cardinalities), -1, dtype=np.int32)
    n_pairs, n_variables = 0, 0
    for index in order:
        n_pairs += is_pair_slot(structure, slots[index], n_labels)
        variable = structure.slot_variables[slots[index]]
        if listed_at[variable] != levels[index]:
            listed_at[variable] = levels[index]
            n_variables += 1
    plan = Plan(
        np.empty(n_pairs, dtype=np.int32),
        np.empty(n_pairs, dtype=np.int32),
        np.empty(n_pairs, dtype=np.int32),
        np.zeros(n_levels + 1, dtype=np.int32),
        np.empty(len(slots) - n_pairs, dtype=np.int32),
        np.zeros(n_levels + 1, dtype=np.int32),
        np.empty(n_variables, dtype=np.int32),
        np.zeros(n_levels + 1, dtype=np.int32),
    )
    listed_at[:] = -1
    n_pairs, n_slots, n_variables = 0, 0, 0
    for index in order:
        slot, level = slots[index], levels[index]
        variable = structure.slot_variables[slot]
        if is_pair_slot(structure, slot, n_labels):
            factor = structure.slot_factors[slot]
            first = structure.scope_offsets[factor]
            other = first if slot > first else first + 1
            plan.pair_target[n_pairs] = structure.message_offsets[slot]
            plan.pair_source[n_pairs] = structure.unary_offsets[structure.slot_variables[other]]
            plan.pair_factor[n_pairs] = factor if slot > first else ~factor
            n_pairs += 1
        else:
            plan.slots[n_slots] = slot
            n_slots += 1
        if listed_at[variable] != level:
            listed_at[variable] = level
            plan.variables[n_variables] = variable
            n_variables += 1
        plan.pair_offsets[level + 1] = n_pairs
        plan.slot_offsets[level + 1] = n_slots
        plan.variable_offsets[level + 1] = n_variables
    for level in range(n_levels):  # levels without slots
        plan.pair_offsets[level + 1] = max(plan.pair_offsets[level + 1], plan.pair_offsets[level])
        plan.slot_offsets[level + 1] = max(plan.slot_offsets[level + 1], plan.slot_offsets[level])
        plan.variable_offsets[level + 1] = max(
            plan.variable_offsets[level + 1], plan.variable_offsets[level]
        )
    return (
        plan.pair_target,
        plan.pair_source,
        plan.pair_factor,
        plan.pair_offsets,
        plan.slots,
        plan.slot_offsets,
        plan.variables,
        plan.variable_offsets,
    )


# -- schedules ----------------------------------------------------------------------------

SCHEDULES = ("flooding", "sequential", "tree", "residual")

#: Small enough for the arrays of a run to stay in the cache from one colour to the next, large
#: enough for its levels to be worth splitting among threads (100 kB to 8 MB sweep equally fast).
RUN_BYTES = 1_500_000
#: So that the levels of a run still fill a few blocks.
SHORTEST_RUN = 64


def common_labels(graph: FactorGraph) -> tuple[int, ...]:
    """``k`` of pair kernels: a tuple as long as the number of labels they are compiled for."""
    return (0,) * graph.pair_cardinality


def linking_slots(graph: FactorGraph) -> IntArray:
    """Slots of factors of arity two or more, in factor order."""
    return np.flatnonzero(graph.arities[graph.slot_factors] >= 2).astype(np.int32)


def plan_of_levels(
    graph: FactorGraph, slots: IntArray, levels: IntArray, n_levels: int | None = None
) -> Plan:
    """Plan from slots and the level of each; the order inside a level is kept."""
    if n_levels is None:
        n_levels = int(levels.max(initial=-1)) + 1
    n_labels = len(common_labels(graph))
    return Plan(*build_plan(graph.structure, slots, levels, n_levels, n_labels))


def flooding_plan(graph: FactorGraph) -> Plan:
    """All messages from the old beliefs, then all beliefs."""
    slots = linking_slots(graph)
    return plan_of_levels(graph, slots, np.zeros(len(slots), dtype=np.int32))


def sequential_plan(graph: FactorGraph, order: ArrayLike | None = None) -> Plan:
    """One variable after the other: all messages into it, then its belief.

    Without an ``order`` variables go in runs of neighbouring indices, inside a run by colour (no
    two variables of a colour share a factor): wide levels whose arrays stay in the cache, so this
    is the fastest sequential order per sweep.  ``order`` may name a variable several times (a
    forward and a backward pass are one sweep then).
    """
    structure = graph.structure
    if order is None:
        colors = greedy_colors(structure)
        n_colors = int(colors.max(initial=-1)) + 1
        runs = np.arange(graph.n_variables, dtype=np.int32) // _run_length(graph)
        groups = runs * n_colors + colors
        sequence = counting_order(groups, int(groups.max(initial=-1)) + 1)
        levels = groups[sequence]
    else:
        sequence = _checked_order(graph, order)
        levels = variable_levels(structure, sequence)
    slots = structure.variable_slots[rows(structure.variable_slot_offsets, sequence)]
    return plan_of_levels(graph, slots, np.repeat(levels, graph.degrees[sequence]))


def message_order_plan(graph: FactorGraph, messages: ArrayLike) -> Plan:
    """One message after the other: rows ``(factor, variable)``, in any given order."""
    pairs = np.asarray(messages)
    if pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InvalidInputError(
            "order must have rows (factor, variable) to name messages, "
            f"got dtype {pairs.dtype} and shape {pairs.shape}"
        )
    slots = _slots_of(graph, pairs[:, 0], pairs[:, 1])
    missing = np.setdiff1d(linking_slots(graph), slots)
    if len(missing):
        raise InvalidInputError(
            f"order must name every message, that of factor {graph.slot_factors[missing[0]]} to "
            f"variable {graph.slot_variables[missing[0]]} is missing"
        )
    return plan_of_levels(graph, slots, slot_levels(graph.structure, slots))


def grid_clique_order(height: int, width: int) -> IntArray:
    """Messages of `FactorGraph.grid` in the clique order of Domke's thesis (2009, section 5.3).

    Vertical pairs line by line from the upper left corner, then horizontal pairs likewise, then
    the same backwards; both messages of a pair at each visit.  Information from any pixel reaches
    every other one in a single iteration.  Rows ``(factor, variable)``, for ``SumProduct(order=)``.

    Parameters
    ----------
    height, width
        Of the grid.

    Returns
    -------
    array
        Rows ``(factor, variable)``.

    Examples
    --------
    >>> grid_clique_order(2, 2).shape
    (16, 2)
    """
    ends = FactorGraph.grid(height, width, 1).slot_variables.reshape(-1, 2)
    n_horizontal = height * (width - 1)
    vertical, horizontal = np.arange(n_horizontal, len(ends)), np.arange(n_horizontal)
    forward = np.concatenate([vertical, horizontal])
    factors = np.repeat(np.concatenate([forward, forward[::-1]]), 2)
    receivers = ends[factors[::2], ::-1].ravel()
    return np.stack([factors, receivers], axis=1).astype(np.int32)


def tree_plan(graph: FactorGraph) -> Plan:
    """Tree-based reparameterisation: an exact two-pass sweep on each of a few spanning forests.

    The forests together cover every factor; one sweep visits all of them.  On an acyclic graph
    there is one forest, and one sweep is exact.  Wainwright, Jaakkola and Willsky (2003).  Only
    for Bethe's counting numbers: see `tree_order_plan`.
    """
    all_slots: list[IntArray] = []
    all_levels: list[IntArray] = []
    base = 0
    for members in forest_cover(graph):
        forest = rooted_order(graph, members)
        slots, levels = _two_passes(graph, forest)
        all_slots.append(slots)
        all_levels.append(levels + base)
        base += int(levels.max()) + 1 if len(levels) else 0
    if not all_slots:
        return flooding_plan(graph)
    return plan_of_levels(
        graph, np.concatenate(all_slots), np.concatenate(all_levels).astype(np.int32)
    )


def tree_order_plan(graph: FactorGraph) -> Plan:
    """The variables of a few spanning forests, from the leaves to the roots and back.

    With counting numbers other than Bethe's the multipliers of one factor depend on all messages
    into a variable, so these must be updated together: then a step is exact (for concave
    entropies it descends on the dual), while single messages along a tree may diverge.
    """
    forests = [rooted_order(graph, members).variables for members in forest_cover(graph)]
    if not forests:
        return flooding_plan(graph)
    passes = [part for forest in forests for part in (forest[::-1], forest)]
    return sequential_plan(graph, np.concatenate(passes))


def plan_for(
    graph: FactorGraph, schedule: str, order: ArrayLike | None = None, *, is_bethe: bool
) -> Plan:
    """The plan of a named schedule (``"residual"`` verifies with the sequential plan)."""
    if schedule == "flooding":
        return flooding_plan(graph)
    if schedule == "tree":
        return tree_plan(graph) if is_bethe else tree_order_plan(graph)
    if graph.is_acyclic and is_bethe and order is None:
        return tree_plan(graph)  # sequential by leaves and back: exact in one sweep
    if order is not None and np.ndim(order) == 2:
        return message_order_plan(graph, order)
    return sequential_plan(graph, order)


def cached_plan(
    graph: FactorGraph, schedule: str, order: ArrayLike | None = None, *, is_bethe: bool = True
) -> Plan:
    """`plan_for`, remembered for as long as the graph lives (unless an order is given)."""
    if order is not None:
        return plan_for(graph, schedule, order, is_bethe=is_bethe)
    plans: dict[tuple[str, bool], Plan] = _PLANS.setdefault(graph, {})
    key = (schedule, is_bethe)
    if key not in plans:
        plans[key] = plan_for(graph, schedule, is_bethe=is_bethe)
    return plans[key]


_PLANS = Memo("plans of messages")


# -- helpers ------------------------------------------------------------------------------


def _two_passes(graph: FactorGraph, forest: RootedForest) -> tuple[IntArray, IntArray]:
    """Slots towards the roots, deepest factors first, then slots away from them."""
    factors = forest.factors
    up_slots, depths = forest.up_slots[factors], forest.factor_depths[factors]
    deepest = int(depths.max(initial=0))
    counts = graph.arities[factors]
    every = rows(graph.scope_offsets, factors)
    is_down = every != np.repeat(up_slots, counts)
    down_slots = every[is_down]
    down_levels = np.repeat(depths, counts)[is_down]
    slots = np.concatenate([up_slots, down_slots]).astype(np.int32)
    levels = np.concatenate([deepest - depths, deepest + 1 + down_levels]).astype(np.int32)
    return slots, levels


def _slots_of(graph: FactorGraph, factors: IntArray, variables: IntArray) -> IntArray:
    """Slot of each (factor, variable); refuses what is not in a scope of two or more variables."""
    known = (factors >= 0) & (factors < graph.n_factors)
    slots = np.full(len(factors), -1, dtype=np.int32)
    for position in range(int(graph.arities.max(initial=0))):
        has = np.flatnonzero(known)
        has = has[graph.arities[factors[has]] > max(position, 1)]
        candidates = graph.scope_offsets[factors[has]] + position
        hit = graph.slot_variables[candidates] == variables[has]
        slots[has[hit]] = candidates[hit]
    for row in np.flatnonzero(slots < 0)[:1]:
        raise InvalidInputError(
            f"order[{row}] must be a factor of two or more variables and one of them, "
            f"got ({factors[row]}, {variables[row]})"
        )
    return slots


def _run_length(graph: FactorGraph) -> int:
    """Variables whose messages, beliefs and tables take about `RUN_BYTES`."""
    entries = 2 * int(graph.message_offsets[-1]) + int(graph.table_offsets[-1])
    entries += 2 * int(graph.unary_offsets[-1])
    per_variable = 8.0 * entries / max(1, graph.n_variables)
    return max(SHORTEST_RUN, int(RUN_BYTES / max(1.0, per_variable)))


def _checked_order(graph: FactorGraph, order: ArrayLike) -> IntArray:
    sequence = np.asarray(order)
    if sequence.ndim != 1 or (sequence.size and sequence.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"order must be a one-dimensional integer array, got dtype {sequence.dtype} "
            f"and shape {sequence.shape}"
        )
    if sequence.size and (sequence.min() < 0 or sequence.max() >= graph.n_variables):
        raise InvalidInputError(
            f"order must name variables 0..{graph.n_variables - 1}, "
            f"got {sequence.min()}..{sequence.max()}"
        )
    missing = np.setdiff1d(np.flatnonzero(graph.degrees), sequence)
    if len(missing):
        raise InvalidInputError(
            f"order must name every variable that has factors, variable {missing[0]} is missing"
        )
    return sequence.astype(np.int32)
