"""Plans of unrolled sweeps: an order that holds for every example of a batch, and a cache."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.errors import InvalidInputError
from fieldfit.inference.schedule import cached_plan, grid_clique_order
from fieldfit.kernels.arrays import Plan

__all__ = ["GRID_ORDER", "batch_plan"]

IntArray = NDArray[np.int32]

#: The name of `grid_clique_order`, for grids of any size.
GRID_ORDER = "grid"


def batch_plan(batch: Batch, schedule: str, order: Any, *, is_bethe: bool) -> Plan:
    """The plan of a schedule on the union graph, kept as long as that lives.

    ``order`` names variables or messages of *one* example; every example follows it by itself.
    """
    if order is None:
        return cached_plan(batch.graph, schedule, is_bethe=is_bethe)
    given = order if isinstance(order, str) else np.asarray(order)
    key = given if isinstance(given, str) else (given.dtype.str, given.shape, given.tobytes())
    plans = _PLANS.setdefault(batch.graph, {})
    if key not in plans:
        joined = _joined_order(batch, given)
        plans[key] = cached_plan(batch.graph, schedule, joined, is_bethe=is_bethe)
    return plans[key]


_PLANS: WeakKeyDictionary[FactorGraph, dict[Any, Plan]] = WeakKeyDictionary()


def _joined_order(batch: Batch, order: str | NDArray[Any]) -> NDArray[Any]:
    """The order of every example, moved to where the example lies in the union.

    Step by step through all examples at once: levels come out the same, and wide.
    """
    if isinstance(order, str):
        orders: list[IntArray] = []
        for example, graph in enumerate(batch.graphs):
            before = batch.graphs[max(example - 1, 0)]
            if example and graph.has_structure_of(before):
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
        return (order[None, :] + shifts).reshape(-1)
    shifts = np.stack([batch.factor_offsets[:-1], batch.variable_offsets[:-1]], axis=1)
    return (order[None, :, :] + shifts[:, None, :]).reshape(-1, 2)


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
