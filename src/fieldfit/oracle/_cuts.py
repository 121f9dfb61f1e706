"""What minimum cuts share: the network of a graph, its buffers, and checks of what a cut can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials, conditioned_unary
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.kernels.cuts import Pairs, build_network, choose_labels, fill_capacities
from fieldfit.kernels.max_flow import SIDE, SINK, Flow, IndexArray, Network, Trees, solve

__all__ = [
    "Arcs",
    "arcs_of",
    "choices_of",
    "cut_choices",
    "examples_with",
    "new_flow",
    "new_trees",
    "raise_no_weight",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Arcs:
    """The flow network of a graph of pairs: one node for each variable, two arcs for each pair."""

    network: Network
    slot_arcs: IndexArray
    factors: IntArray  # factors of arity two


# weak keys, and values that do not refer to the graph: a graph takes its network with it
_kept_arcs: WeakKeyDictionary[FactorGraph, Arcs] = WeakKeyDictionary()


def arcs_of(graph: FactorGraph, method: str) -> Arcs:
    """The network of a graph, made once; refuses factors of more than two variables."""
    arcs = _kept_arcs.get(graph)
    if arcs is None:
        large = np.flatnonzero(graph.arities > 2)
        if len(large):
            raise InvalidInputError(
                f"factor {large[0]} must have at most two variables for {method}, got "
                f"{graph.arities[large[0]]}; ExactMap and MaxProduct take any number"
            )
        factors = np.flatnonzero(graph.arities == 2).astype(np.int32)
        slot_arcs = np.zeros(graph.n_slots, dtype=np.uint32)
        network = build_network(graph.structure, factors, slot_arcs)
        arcs = _kept_arcs[graph] = Arcs(network, slot_arcs, factors)
    return arcs


def choices_of(
    graph: FactorGraph,
    potentials: Potentials,
    observed: dict[int, int] | ArrayLike | None,
    factors: IntArray,
) -> tuple[Pairs, IntArray]:
    """The first and last possible label of every variable, and how many are possible."""
    unary = conditioned_unary(graph, potentials, observed)
    constants = potentials.factor_values[graph.table_offsets[:-1][graph.arities == 0]]
    if np.isneginf(constants).any():
        raise_no_weight("a constant factor is -inf")
    first, second, counts = (np.empty(graph.n_variables, dtype=np.int32) for _ in range(3))
    choose_labels(graph.structure, unary, first, second, counts)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise_no_weight(f"no label of variable {empty[0]} is possible")
    # kernels are compiled for writeable arrays; a read-only view is copied
    tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
    return Pairs(unary, tables, factors, first, second), counts


def cut_choices(graph: FactorGraph, arcs: Arcs, pairs: Pairs) -> NDArray[np.uint8]:
    """A minimum cut of submodular pairs: 1 for each variable that takes its second label."""
    flow = new_flow(graph.n_variables, len(arcs.network.heads))
    forbidden = np.empty(graph.n_variables, dtype=np.uint8)
    empty = fill_capacities(
        graph.structure, pairs, arcs.slot_arcs, flow.residual, flow.terminal, forbidden
    )
    if empty >= 0:
        raise_no_weight(f"hard zeros exclude every label of variable {empty}")
    trees = new_trees(graph.n_variables)
    solve(arcs.network, flow, trees)
    if flow.conflict.any():
        where = np.flatnonzero(flow.conflict)[0]
        raise_no_weight(f"hard zeros around variable {where} contradict each other")
    # free nodes may be on either side: of equally good labels the first
    choices: NDArray[np.uint8] = (trees.node[:, SIDE] == SINK).astype(np.uint8)
    return choices


def new_flow(n_nodes: int, n_arcs: int) -> Flow:
    """Room for a flow; capacities are not set."""
    return Flow(
        residual=np.empty(n_arcs),
        terminal=np.empty(n_nodes),
        supply=np.empty(n_nodes),
        conflict=np.empty(n_nodes, dtype=np.uint8),
    )


def new_trees(n_nodes: int) -> Trees:
    """Room for the search trees."""
    return Trees(
        node=np.empty((n_nodes, 4), dtype=np.uint32),
        waiting=np.empty(n_nodes, dtype=np.uint8),
        queue=np.empty(n_nodes, dtype=np.uint32),
        orphans=np.empty(n_nodes, dtype=np.uint32),
    )


def examples_with(batch: Batch, variables: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which examples have a variable of a given set."""
    some: NDArray[np.bool_] = batch.max_variables(variables.astype(np.float64)) > 0.0
    return some


def raise_no_weight(reason: str) -> NoReturn:
    """The error for a model that excludes every labelling."""
    raise ZeroWeightError(f"the model (with its evidence) has total weight zero: {reason}")
