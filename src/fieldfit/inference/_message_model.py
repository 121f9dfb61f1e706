"""The arrays that message passing starts from: the model of a run and its first state."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.entropy import CountingNumbers
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials, conditioned_unary
from fieldfit.core.result import InferenceResult
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.inference.schedule import common_labels
from fieldfit.kernels.arrays import CONTRADICTION, Model, State
from fieldfit.kernels.beliefs import fill_exp_tables
from fieldfit.kernels.sweeps import refresh

__all__ = ["at_floor", "build_model", "initial_state", "raise_contradiction"]


def build_model(
    graph: FactorGraph,
    potentials: Potentials,
    counting: CountingNumbers,
    observed: dict[int, int] | ArrayLike | None,
) -> Model:
    """Potentials with evidence and entropy applied, checked for factors that forbid everything."""
    unary = conditioned_unary(graph, potentials, observed)
    weight = np.where(graph.arities >= 2, counting.factor, 1.0)
    # kernels are compiled for writeable arrays; a read-only view is copied
    tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
    exp_table = np.empty(len(tables))
    empty = fill_exp_tables(graph.structure, tables, weight, exp_table)
    if empty >= 0:
        raise ZeroWeightError(
            f"the model has total weight zero: every entry of factors[{empty}] is -inf"
        )
    return Model(
        unary=unary,
        log_table=tables,
        exp_table=exp_table,
        factor_weight=weight,
        variable_total=counting.variable_total,
        floor=_floor(unary, tables, graph.n_variables + graph.n_factors),
    )


def _floor(unary: NDArray[np.float64], tables: NDArray[np.float64], n_tables: int) -> float:
    """Ten times less than any sum of potentials, one from each table (taken as at least 100).

    On an acyclic graph a message is such a sum, so nothing is cut off there, however long a chain
    of hard constraints adds up its evidence.
    """
    largest = 100.0
    for values in (unary, tables):
        least = float(values.min(initial=0.0))
        if least == -np.inf:
            least = float(values.min(initial=0.0, where=values > -np.inf))
        largest = max(largest, -least, float(values.max(initial=0.0)))
    return -10.0 * largest * (1 + n_tables)


def initial_state(graph: FactorGraph, model: Model, init: InferenceResult | None) -> State:
    """Uniform messages, or those of an earlier result; beliefs to match."""
    n_messages = int(graph.message_offsets[-1])
    if init is None:
        message = np.zeros(n_messages)
    else:
        earlier = init.state
        if not isinstance(earlier, State) or len(earlier.message) != n_messages:
            raise InvalidInputError("init must be a SumProduct result on a graph of this structure")
        # an excluded label may be possible under the new potentials: forget exclusions
        message = np.where(np.isneginf(earlier.message), 0.0, earlier.message)
    state = State(message=message, log_belief=np.empty(int(graph.unary_offsets[-1])))
    refresh_all(graph, model, state)
    return state


def at_floor(graph: FactorGraph, model: Model, state: State) -> NDArray[np.bool_]:
    """Variables with a message near the floor (damping only approaches it): it would fall on."""
    is_low = state.message < 0.5 * model.floor
    if not is_low.any():
        return np.zeros(graph.n_variables, dtype=np.bool_)
    is_low &= state.message > -np.inf
    slots = np.searchsorted(graph.message_offsets, np.flatnonzero(is_low), side="right") - 1
    low = np.zeros(graph.n_variables, dtype=np.bool_)
    low[graph.slot_variables[slots]] = True
    return low


def refresh_all(graph: FactorGraph, model: Model, state: State) -> None:
    """Beliefs of all variables from the messages; raises if a variable has no label left."""
    everyone = np.arange(graph.n_variables, dtype=np.int32)
    labels = common_labels(graph)
    flags = refresh(labels, graph.structure, everyone, 0, len(everyone), model, state)
    if flags & CONTRADICTION:
        raise_contradiction(graph, state)


def raise_contradiction(graph: FactorGraph, state: State) -> NoReturn:
    """Say which variable has no possible label."""
    impossible = np.add.reduceat(
        state.log_belief > -np.inf, graph.unary_offsets[:-1], dtype=np.int64
    )
    empty = np.flatnonzero(impossible == 0)
    where = f"no label of variable {empty[0]} is possible" if len(empty) else "messages vanish"
    raise ZeroWeightError(f"the model (with its evidence) has total weight zero: {where}")
