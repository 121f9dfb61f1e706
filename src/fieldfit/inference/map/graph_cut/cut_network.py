"""Flow networks of binary pairwise models: submodular pairs as capacities of an s-t cut.

Every variable chooses between two labels, ``first[i]`` (``x_i = 0``, the source's side) and
``second[i]`` (``x_i = 1``, the sink's side); they are equal if there is no choice.  A table of a
pair is then four numbers, in *normal form*

    th(x_i, x_j) = constant + slope_i x_i + slope_j x_j
                   - forward [x_i = 0, x_j = 1] - backward [x_i = 1, x_j = 0]

with capacities ``forward, backward >= 0`` if ``th(0,0) + th(1,1) >= th(0,1) + th(1,0)``; two equal
capacities where all four numbers are finite, because the least flow then goes to the terminals.  A
hard zero is an infinite capacity, or forbids a label of one variable.

Reference: Kolmogorov and Zabih, "What energy functions can be minimized via graph cuts?", IEEE
Trans. Pattern Analysis and Machine Intelligence 26 (2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fieldfit._typing import BoolArray, ByteArray, FloatArray, Index, IntArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, conditioned_unary
from fieldfit.graph.structure import Structure
from fieldfit.inference.base import Evidence
from fieldfit.inference.map.base import no_labelling
from fieldfit.inference.map.graph_cut.boykov_kolmogorov import (
    SIDE,
    SINK,
    Flow,
    IndexArray,
    Network,
    Trees,
    solve,
)
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import load, store

__all__ = [
    "BinaryPairs",
    "CutNetwork",
    "binary_choices",
    "cut_network",
    "examples_with",
    "minimum_cut",
    "new_flow",
    "new_trees",
]

# -- Normal form of a table, and capacities ------------------------------------------------

#: A pair counts as submodular if it is so up to this, relative to its entries: tables that are
#: computed, e.g. as sums of weights, miss equality by rounding.
SLACK = 1e-12
#: Bits of a set of forbidden labels.
NOT_FIRST, NOT_SECOND = 1, 2


class BinaryPairs(NamedTuple):
    """A model of pairs with two labels to choose from for each variable."""

    unary: FloatArray
    tables: FloatArray
    factors: IntArray  # factors of arity two
    first: IntArray
    second: IntArray


@kernel
def build_network(
    structure: Structure, factors: IntArray, slot_arcs: IndexArray
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """A `Network`: a node for each variable, an arc for each slot of a pair, in their order.

    ``slot_arcs`` receives the arc of each slot.
    """
    n_arcs = len(structure.variable_slots)
    for arc in range(n_arcs):
        store(slot_arcs, load(structure.variable_slots, arc), np.uint32(arc))
    offsets = structure.variable_slot_offsets.astype(np.uint32)
    heads = np.empty(n_arcs, dtype=np.uint32)
    reverses = np.empty(n_arcs, dtype=np.uint32)
    for factor in factors:
        slot = load(structure.scope_offsets, factor)
        there, back = load(slot_arcs, slot), load(slot_arcs, slot + 1)
        store(heads, there, np.uint32(load(structure.slot_variables, slot + 1)))
        store(heads, back, np.uint32(load(structure.slot_variables, slot)))
        store(reverses, there, back)
        store(reverses, back, there)
    return offsets, heads, reverses


@kernel
def choose_labels(
    structure: Structure, unary: FloatArray, first: IntArray, second: IntArray, counts: IntArray
) -> None:
    """First and last possible label of each variable, and how many are possible."""
    for i in range(len(structure.cardinalities)):
        first[i] = second[i] = counts[i] = 0
        for y in range(structure.cardinalities[i]):
            if unary[structure.unary_offsets[i] + y] != NO_WEIGHT:
                if counts[i] == 0:
                    first[i] = y
                second[i] = y
                counts[i] += 1


@kernel(forceinline=True)
def pair_table(
    structure: Structure, pairs: BinaryPairs, factor: Index
) -> tuple[float, float, float, float]:
    """``th(0,0), th(0,1), th(1,0), th(1,1)`` of one pair."""
    slot = load(structure.scope_offsets, factor)
    i, j = load(structure.slot_variables, slot), load(structure.slot_variables, slot + 1)
    n_columns = load(structure.cardinalities, j)
    start = load(structure.table_offsets, factor)
    low = start + load(pairs.first, i) * n_columns
    high = start + load(pairs.second, i) * n_columns
    left, right = load(pairs.first, j), load(pairs.second, j)
    return (
        load(pairs.tables, low + left),
        load(pairs.tables, low + right),
        load(pairs.tables, high + left),
        load(pairs.tables, high + right),
    )


@kernel(forceinline=True)
def is_submodular(t00: float, t01: float, t10: float, t11: float) -> bool:
    """Whether a minimum cut can represent the table; sums of two equal entries cancel exactly."""
    if t01 == NO_WEIGHT or t10 == NO_WEIGHT:
        return True
    if t00 == NO_WEIGHT or t11 == NO_WEIGHT:
        return False
    excess = (t00 - t10) + (t11 - t01)
    return excess >= 0.0 or excess >= -SLACK * (abs(t00) + abs(t01) + abs(t10) + abs(t11))


@kernel(forceinline=True)
def _line(low: float, high: float) -> tuple[float, float, int]:
    """``constant + slope x`` through two values, and which of them are forbidden."""
    if low == NO_WEIGHT:
        if high == NO_WEIGHT:
            return 0.0, 0.0, NOT_FIRST | NOT_SECOND
        return high, 0.0, NOT_FIRST
    if high == NO_WEIGHT:
        return low, 0.0, NOT_SECOND
    return low, high - low, 0


@kernel(forceinline=True)
def normal_form(
    t00: float, t01: float, t10: float, t11: float
) -> tuple[float, float, float, float, float, int, int]:
    """Constant, slopes, forward and backward capacity, forbidden labels of both variables.

    The table has to be submodular.
    """
    if t00 != NO_WEIGHT and t01 != NO_WEIGHT and t10 != NO_WEIGHT and t11 != NO_WEIGHT:
        half = max(0.0, 0.5 * ((t00 - t10) + (t11 - t01)))
        slope_i = 0.5 * ((t10 - t00) + (t11 - t01))
        slope_j = 0.5 * ((t01 - t00) + (t11 - t10))
        return t00, slope_i, slope_j, half, half, 0, 0
    # a row or a column of hard zeros forbids a label; what is left is a line
    if t00 == NO_WEIGHT and t01 == NO_WEIGHT:
        constant, slope, forbidden = _line(t10, t11)
        return constant, 0.0, slope, 0.0, 0.0, NOT_FIRST, forbidden
    if t10 == NO_WEIGHT and t11 == NO_WEIGHT:
        constant, slope, forbidden = _line(t00, t01)
        return constant, 0.0, slope, 0.0, 0.0, NOT_SECOND, forbidden
    if t00 == NO_WEIGHT and t10 == NO_WEIGHT:
        constant, slope, forbidden = _line(t01, t11)
        return constant, slope, 0.0, 0.0, 0.0, forbidden, NOT_FIRST
    if t01 == NO_WEIGHT and t11 == NO_WEIGHT:
        constant, slope, forbidden = _line(t00, t10)
        return constant, slope, 0.0, 0.0, 0.0, forbidden, NOT_SECOND
    # otherwise the diagonal is finite and infinite capacities do it
    if t01 == NO_WEIGHT and t10 == NO_WEIGHT:
        slope = 0.5 * (t11 - t00)
        return t00, slope, slope, np.inf, np.inf, 0, 0
    if t01 == NO_WEIGHT:
        return t00, t10 - t00, t11 - t10, np.inf, 0.0, 0, 0
    return t00, t11 - t01, t01 - t00, 0.0, np.inf, 0, 0


@kernel
def fill_capacities(
    structure: Structure,
    pairs: BinaryPairs,
    slot_arcs: IndexArray,
    residual: FloatArray,
    terminal: FloatArray,
    forbidden: ByteArray,
) -> tuple[int, int]:
    """Capacities of the network; the first pair that is not submodular, a variable without label.

    Where there is none of them, -1.  Capacities mean nothing if a pair is not submodular.

    ``forbidden`` receives the labels that a table excludes.  A variable without any has no arc to a
    terminal, so that the rest of the network can be solved nevertheless.
    """
    n_variables = len(structure.cardinalities)
    for i in range(n_variables):
        start = structure.unary_offsets[i]
        terminal[i] = pairs.unary[start + pairs.first[i]] - pairs.unary[start + pairs.second[i]]
        forbidden[i] = 0
    unsuitable = -1
    for factor in pairs.factors:
        t00, t01, t10, t11 = pair_table(structure, pairs, factor)
        if unsuitable < 0 and not is_submodular(t00, t01, t10, t11):
            unsuitable = factor
        _, slope_i, slope_j, forward, backward, not_i, not_j = normal_form(t00, t01, t10, t11)
        slot = load(structure.scope_offsets, factor)
        i, j = load(structure.slot_variables, slot), load(structure.slot_variables, slot + 1)
        store(terminal, i, load(terminal, i) - slope_i)
        store(terminal, j, load(terminal, j) - slope_j)
        if not_i | not_j:
            forbidden[i] |= not_i
            forbidden[j] |= not_j
        store(residual, load(slot_arcs, slot), forward)
        store(residual, load(slot_arcs, slot + 1), backward)
    empty = -1
    for i in range(n_variables):
        if forbidden[i] == NOT_FIRST:
            terminal[i] = -np.inf
        elif forbidden[i] == NOT_SECOND:
            terminal[i] = np.inf
        elif forbidden[i] != 0:
            terminal[i] = 0.0
            empty = i
    return unsuitable, empty


# -- The network of a graph, and its minimum cut -------------------------------------------


@dataclass(frozen=True, eq=False)
class CutNetwork:
    """The flow network of a graph of pairs: one node for each variable, two arcs for each pair."""

    network: Network
    slot_arcs: IndexArray
    factors: IntArray  # factors of arity two


# weak keys, and values that do not refer to the graph: a graph takes its network with it
_NETWORKS: WeakKeyDictionary[FactorGraph, CutNetwork] = WeakKeyDictionary()


def cut_network(graph: FactorGraph, method: str) -> CutNetwork:
    """The network of a graph, made once; refuses factors of more than two variables."""
    cuts = _NETWORKS.get(graph)
    if cuts is None:
        large = np.flatnonzero(graph.arities > 2)
        if len(large):
            raise InvalidInputError(
                f"factor {large[0]} must have at most two variables for {method}, got "
                f"{graph.arities[large[0]]}; ExactMap and MaxProduct take any number"
            )
        factors = np.flatnonzero(graph.arities == 2).astype(np.int32)
        slot_arcs = np.zeros(graph.n_slots, dtype=np.uint32)
        network = Network(*build_network(graph.structure, factors, slot_arcs))
        cuts = _NETWORKS[graph] = CutNetwork(network, slot_arcs, factors)
    return cuts


def binary_choices(
    graph: FactorGraph,
    potentials: Potentials,
    observed: Evidence,
    factors: IntArray,
) -> tuple[BinaryPairs, IntArray]:
    """The first and last possible label of every variable, and how many are possible."""
    unary = conditioned_unary(graph, potentials, observed)
    constants = potentials.factor_values[graph.table_offsets[:-1][graph.arities == 0]]
    if np.isneginf(constants).any():
        raise no_labelling("a constant factor is -inf")
    first, second, counts = (np.empty(graph.n_variables, dtype=np.int32) for _ in range(3))
    choose_labels(graph.structure, unary, first, second, counts)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise no_labelling(f"no label of variable {empty[0]} is possible")
    # kernels are compiled for writeable arrays; a read-only view is copied
    tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
    return BinaryPairs(unary, tables, factors, first, second), counts


def minimum_cut(graph: FactorGraph, cuts: CutNetwork, pairs: BinaryPairs) -> ByteArray:
    """A minimum cut: 1 for each variable that takes its second label.

    Refuses pairs that are not submodular.
    """
    flow = new_flow(graph.n_variables, len(cuts.network.heads))
    forbidden = np.empty(graph.n_variables, dtype=np.uint8)
    unsuitable, empty = fill_capacities(
        graph.structure, pairs, cuts.slot_arcs, flow.residual, flow.terminal, forbidden
    )
    if unsuitable >= 0:
        t00, t01, t10, t11 = pair_table(graph.structure, pairs, unsuitable)
        raise InvalidInputError(
            f"factor {unsuitable} must be submodular, th(0,0) + th(1,1) >= th(0,1) + th(1,0), for "
            f"MaxFlow, got {t00:.6g} + {t11:.6g} < {t01:.6g} + {t10:.6g}; RoofDuality takes any "
            "pairs of two labels"
        )
    if empty >= 0:
        raise no_labelling(f"hard zeros exclude every label of variable {empty}")
    trees = new_trees(graph.n_variables)
    solve(cuts.network, flow, trees)
    if flow.conflict.any():
        where = np.flatnonzero(flow.conflict)[0]
        raise no_labelling(f"hard zeros around variable {where} contradict each other")
    # free nodes may be on either side: of equally good labels the first
    choices: ByteArray = (trees.node[:, SIDE] == SINK).astype(np.uint8)
    return choices


def new_flow(n_nodes: int, n_arcs: int) -> Flow:
    """Arrays for a flow; capacities are not set."""
    return Flow(
        residual=np.empty(n_arcs),
        terminal=np.empty(n_nodes),
        inflow=np.empty(n_nodes),
        conflict=np.empty(n_nodes, dtype=np.uint8),
    )


def new_trees(n_nodes: int) -> Trees:
    """Arrays for the search trees."""
    return Trees(
        node=np.empty((n_nodes, 4), dtype=np.uint32),
        is_active=np.empty(n_nodes, dtype=np.uint8),
        queue=np.empty(n_nodes, dtype=np.uint32),
        orphans=np.empty(n_nodes, dtype=np.uint32),
    )


def examples_with(batch: Batch, variables: BoolArray) -> BoolArray:
    """Which examples have a variable of a given set."""
    some: BoolArray = batch.max_variables(variables.astype(np.float64)) > 0.0
    return some
