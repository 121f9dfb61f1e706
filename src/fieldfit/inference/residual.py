"""The residual schedule of `SumProduct`: set up, run, count."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.inference.schedule import plan_of_levels
from fieldfit.kernels.arrays import CONTRADICTION, Plan
from fieldfit.kernels.residual import run_residual

__all__ = ["by_variable_plan", "residual_messages"]

_PLANS: WeakKeyDictionary[FactorGraph, Plan] = WeakKeyDictionary()


def by_variable_plan(graph: FactorGraph) -> Plan:
    """A plan with one level for each variable (remembered while the graph lives)."""
    if graph not in _PLANS:
        slots = graph.structure.variable_slots
        levels = np.repeat(np.arange(graph.n_variables, dtype=np.int32), graph.degrees)
        _PLANS[graph] = plan_of_levels(graph, slots, levels, n_levels=graph.n_variables)
    return _PLANS[graph]


def residual_messages(
    graph: FactorGraph,
    labels: tuple[int, ...],
    model: Any,
    state: Any,
    waiting: NDArray[np.float64],
    damping: float,
    tol: float,
    max_messages: int,
) -> tuple[int, bool]:
    """Run the schedule; number of messages and whether a contradiction was met."""
    n_messages, flags = run_residual(
        labels, graph.structure, by_variable_plan(graph), model, state, waiting,
        damping, tol, max_messages,
    )  # fmt: skip
    return int(n_messages), bool(flags & CONTRADICTION)
