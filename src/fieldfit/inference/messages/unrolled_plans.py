"""Plans of unrolled sweeps on a batch: every example is swept as if it were alone.

A converged result does not depend on the order of messages; that of a few sweeps does.  `plan_for`
may take another order for a union of examples than for each of them (where a run of variables ends,
whether there is a cycle anywhere, which forests cover everything).  Here the order inside an
example is a function of its own graph, so that a fitted model predicts for one picture what it
learned with ninety.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, IntArray
from fieldfit.entropy.counting_numbers import CountingNumbers
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.ragged import ranges, row_numbers, rows
from fieldfit.graph.structure import counting_order, greedy_colors
from fieldfit.inference.messages.message_arrays import Plan
from fieldfit.inference.messages.schedule import (
    RUN_BYTES,
    SHORTEST_RUN,
    cached_plan,
    grid_clique_order,
    plan_of_levels,
)

__all__ = ["GRID_ORDER", "batch_plan"]

#: The name of `grid_clique_order`, for grids of any size.
GRID_ORDER = "grid"


def batch_plan(batch: Batch, schedule: str, order: Any, counting: CountingNumbers) -> Plan:
    """The plan of a schedule on the union graph, kept as long as that lives.

    ``order`` names variables or messages of *one* example; every example follows it by itself.
    """
    is_bethe = _bethe_examples(batch, counting)
    key: Any = (schedule, is_bethe.tobytes())
    if order is not None:
        given = order if isinstance(order, str) else np.asarray(order)
        key = given if isinstance(given, str) else (given.dtype.str, given.shape, given.tobytes())
    plans = _PLANS.setdefault(batch.graph, {})
    if key not in plans:
        if order is not None:
            plans[key] = cached_plan(batch.graph, schedule, _joined_order(batch, given))
        else:
            plans[key] = _joined_plan(batch, schedule, is_bethe)
    return plans[key]


# a batch of one example has that example's graph, so keys say all that a plan depends on
_PLANS: WeakKeyDictionary[FactorGraph, dict[Any, Plan]] = WeakKeyDictionary()


def _bethe_examples(batch: Batch, counting: CountingNumbers) -> BoolArray:
    """Examples whose counting numbers are Bethe's."""
    others = (counting.factor != 1.0) & (batch.graph.arities >= 2)
    n_others = batch.sum_factors(others.astype(np.float64))
    n_others += batch.sum_variables((counting.variable_total != 1.0).astype(np.float64))
    return np.asarray(n_others == 0.0)


def _joined_plan(batch: Batch, schedule: str, is_bethe: BoolArray) -> Plan:
    if schedule == "flooding" or batch.n_examples == 1:
        return cached_plan(batch.graph, schedule, is_bethe=bool(is_bethe[0]))
    acyclic = {id(graph): graph.is_acyclic for graph in batch.graphs}
    is_tree = is_bethe & np.array([acyclic[id(graph)] for graph in batch.graphs])
    if is_tree.all():  # one up and one down pass in every component, alone or not
        return cached_plan(batch.graph, schedule, is_bethe=True)
    if schedule == "sequential" and not is_tree.any():
        return _runs_of_examples(batch)
    slots, levels = [], []
    for example, graph in enumerate(batch.graphs):
        plan = cached_plan(graph, schedule, is_bethe=bool(is_bethe[example]))
        own_slots, own_levels = _slots_and_levels(graph, plan)
        slots.append(own_slots + batch.graph.scope_offsets[batch.factor_offsets[example]])
        levels.append(own_levels)
    return plan_of_levels(
        batch.graph, np.concatenate(slots).astype(np.int32), np.concatenate(levels)
    )


def _slots_and_levels(graph: FactorGraph, plan: Plan) -> tuple[IntArray, IntArray]:
    """The slots of a plan, those of pairs first, and the level of each."""
    factors = np.where(plan.pair_factor >= 0, plan.pair_factor, ~plan.pair_factor)
    pairs = graph.scope_offsets[factors] + (plan.pair_factor >= 0)
    levels = np.concatenate([row_numbers(plan.pair_offsets), row_numbers(plan.slot_offsets)])
    return np.concatenate([pairs, plan.slots]).astype(np.int32), levels.astype(np.int32)


def _runs_of_examples(batch: Batch) -> Plan:
    """`sequential_plan`, with runs that begin anew in every example.

    Small examples share a run (they do not depend on each other), as many as fit the cache.
    """
    graph = batch.graph
    structure = graph.structure
    unary = np.diff(batch.unary_offsets).astype(np.float64)
    tables, messages = np.diff(batch.table_offsets), np.diff(batch.message_offsets)
    counts = np.diff(batch.variable_offsets)
    sizes = 8.0 * (2 * messages + tables + 2 * unary)
    # as `sequential_plan` has it for the example alone
    lengths = np.maximum(SHORTEST_RUN, RUN_BYTES / np.maximum(1.0, sizes / np.maximum(1, counts)))
    first_runs = ((np.cumsum(sizes) - sizes) // RUN_BYTES).astype(np.int64)
    within = ranges(np.zeros(batch.n_examples, dtype=np.int64), counts)
    of_example = batch.variable_examples()
    runs = first_runs[of_example] + within // lengths.astype(np.int64)[of_example]
    colors = greedy_colors(structure)
    groups = runs * (int(colors.max(initial=-1)) + 1) + colors
    dense: IntArray = np.unique(groups, return_inverse=True)[1].astype(np.int32)
    sequence = counting_order(dense, int(dense.max(initial=-1)) + 1)
    ordered = structure.variable_slots[rows(structure.variable_slot_offsets, sequence)]
    return plan_of_levels(graph, ordered, np.repeat(dense[sequence], graph.degrees[sequence]))


def _joined_order(batch: Batch, order: str | NDArray[Any]) -> NDArray[Any]:
    """The order of every example, moved to where the example lies in the union."""
    if isinstance(order, str):
        orders: list[IntArray] = []
        for example, graph in enumerate(batch.graphs):
            if example and graph.has_structure_of(batch.graphs[example - 1]):
                orders.append(orders[-1])
            else:
                orders.append(_grid_order(graph, example))
        return np.concatenate(
            [
                rows + np.array([batch.factor_offsets[m], batch.variable_offsets[m]])
                for m, rows in enumerate(orders)
            ]
        ).astype(np.int32)
    first = batch.graphs[0]
    for example, graph in enumerate(batch.graphs):
        if (graph.n_variables, graph.n_factors) != (first.n_variables, first.n_factors):
            raise InvalidInputError(
                "order must hold for every example: an array needs examples of one structure, "
                f"got {first!r} and, as example {example}, {graph!r}"
            )
    if order.dtype.kind not in "iu" or order.ndim not in (1, 2):
        return order  # refused, in one sentence, by the schedule
    if order.ndim == 1:
        shifts = batch.variable_offsets[:-1].reshape(-1, 1)
        return np.asarray((order[None, :] + shifts).reshape(-1))
    shifts = np.stack([batch.factor_offsets[:-1], batch.variable_offsets[:-1]], axis=1)
    return np.asarray((order[None, :, :] + shifts[:, None, :]).reshape(-1, 2))


def _grid_order(graph: FactorGraph, example: int) -> IntArray:
    """`grid_clique_order` of a graph that must be one of `FactorGraph.grid`."""
    n_variables, n_factors = graph.n_variables, graph.n_factors
    # height + width and height * width are known
    total = 2 * n_variables - n_factors
    root = np.sqrt(max(total * total - 4 * n_variables, 0))
    for height in {round((total - root) / 2), round((total + root) / 2)}:
        if height < 1 or n_variables % height:
            continue
        width = n_variables // height
        grid = FactorGraph.grid(height, width, 1)
        if np.array_equal(grid.slot_variables, graph.slot_variables) and np.array_equal(
            grid.scope_offsets, graph.scope_offsets
        ):
            return grid_clique_order(height, width)
    raise InvalidInputError(
        f"order={GRID_ORDER!r} needs graphs of FactorGraph.grid, got {graph!r} as example {example}"
    )
