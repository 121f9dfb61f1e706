"""Models conditioned on evidence, in the form that mean-field and Gibbs sweeps take.

Evidence becomes ``-inf`` on the other labels of a variable; factors of arity one go into the
unary part; labels that hard zeros rule out by arc consistency become ``-inf`` too, which
changes no probability and shows many models of weight zero at once.

`GeneralModel` is the graph with its numbers, for any arity, cardinality and hard zero.
`BinaryPairwise` is for binary variables and factors of arity at most two without hard zeros in
their tables.  With labels 0 and 1, all that a variable's conditional distribution or mean-field
update needs is the log odds, and these are linear in the (expected) labels of the neighbours:

    h_j = c_j + sum_{a = (j, i)} w_a y_i,
    c_j = th_j(1) - th_j(0) + sum_a [th_a(1, 0) - th_a(0, 0)],
    w_a = [th_a(1, 1) - th_a(0, 1)] - [th_a(1, 0) - th_a(0, 0)]      (own label first).

One multiplication for each neighbour and one exponential for each variable replace four table
look-ups and two exponentials; building the form costs about as much as one sweep without it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray, LabelArray
from fieldfit.errors import ZeroWeightError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, conditioned_unary
from fieldfit.graph.structure import Structure, greedy_colors
from fieldfit.inference.base import Evidence
from fieldfit.inference.feasible import (
    IMPOSSIBLE,
    find_feasible_labels,
    find_hard_factors,
    remove_impossible_labels,
)
from fieldfit.numeric.compile import kernel

__all__ = ["condition", "feasible_labels", "is_binary_pairwise", "sweep_form"]


class GeneralModel(NamedTuple):
    """Any model; a sweep visits ``variables`` in their order."""

    structure: Structure
    unary: FloatArray  # factors of arity one and evidence folded in
    tables: FloatArray
    hard: BoolArray  # by factor: arity at least two and some entry is -inf
    variables: IntArray
    max_labels: int
    max_arity: int


class BinaryPairwise(NamedTuple):
    """Rows in the order of a sweep, so that a sweep reads memory from front to back.

    Row ``k`` belongs to variable ``variables[k]``; its neighbours and couplings are entries
    ``offsets[k]:offsets[k + 1]``.
    """

    variables: IntArray
    fields: FloatArray
    offsets: IntArray
    neighbors: IntArray
    couplings: FloatArray


@kernel
def binary_pairwise(
    structure: Structure, unary: FloatArray, tables: FloatArray, order: IntArray
) -> tuple[IntArray, FloatArray, IntArray, IntArray, FloatArray]:
    """A `BinaryPairwise`; ``unary`` may hold -inf (evidence), tables of arity two may not."""
    n_variables = len(order)
    n_entries = len(structure.variable_slots)
    fields = np.empty(n_variables)
    offsets = np.zeros(n_variables + 1, dtype=np.int32)
    neighbors = np.empty(n_entries, dtype=np.int32)
    couplings = np.empty(n_entries)
    entry = 0
    for row in range(n_variables):
        variable = order[row]
        field = unary[2 * variable + 1] - unary[2 * variable]
        for position in range(
            structure.variable_slot_offsets[variable],
            structure.variable_slot_offsets[variable + 1],
        ):
            slot = structure.variable_slots[position]
            factor = structure.slot_factors[slot]
            first = structure.scope_offsets[factor]
            table = structure.table_offsets[factor]
            own_stride = 2 if slot == first else 1
            other_stride = 3 - own_stride
            without = tables[table + own_stride] - tables[table]
            with_neighbor = tables[table + 3] - tables[table + other_stride]
            field += without
            neighbors[entry] = structure.slot_variables[first + 1 if slot == first else first]
            couplings[entry] = with_neighbor - without
            entry += 1
        fields[row] = field
        offsets[row + 1] = entry
    return order, fields, offsets, neighbors, couplings


# -- from potentials and evidence to these forms ------------------------------------------

#: Table entries that a search for a possible configuration may read, about one second.
SEARCH_BUDGET = 300_000_000

NO_WEIGHT = "potentials and observed must leave some configuration of positive weight"


def condition(
    graph: FactorGraph, potentials: Potentials, observed: Evidence
) -> tuple[GeneralModel, LabelArray]:
    """The conditioned model, variables ordered colour by colour, and their colours in order."""
    unary = conditioned_unary(graph, potentials, observed)
    constants = potentials.factor_values[graph.table_offsets[:-1][graph.arities == 0]]
    if np.isneginf(constants).any():
        raise ZeroWeightError(f"{NO_WEIGHT}, got a constant factor of weight zero")
    structure = graph.structure
    hard = find_hard_factors(structure, potentials.factor_values)
    if not remove_impossible_labels(structure, unary, potentials.factor_values, hard):
        raise ZeroWeightError(f"{NO_WEIGHT}, but hard zeros exclude every label of a variable")
    colors = greedy_colors(structure)
    order = np.argsort(colors, kind="stable").astype(np.int32)
    model = GeneralModel(
        structure=structure,
        unary=unary,
        tables=potentials.factor_values,
        hard=hard,
        variables=order,
        max_labels=int(graph.cardinalities.max(initial=1)),
        max_arity=int(graph.arities.max(initial=1)),
    )
    return model, colors[order]


def is_binary_pairwise(graph: FactorGraph, model: GeneralModel) -> bool:
    """True if the log odds of every variable are a finite linear form of the neighbours."""
    return (
        graph.uniform_cardinality == 2
        and int(graph.arities.max(initial=0)) <= 2
        and not bool(model.hard.any())
    )


def sweep_form(graph: FactorGraph, model: GeneralModel) -> GeneralModel | BinaryPairwise:
    """The fastest form of the model."""
    if is_binary_pairwise(graph, model):
        return BinaryPairwise(
            *binary_pairwise(model.structure, model.unary, model.tables, model.variables)
        )
    return model


def feasible_labels(model: GeneralModel, preference: FloatArray) -> LabelArray | None:
    """Labels of positive weight, or ``None`` if the search ran out of its budget.

    Among equally possible labels the search tries those of larger ``preference`` first.
    Raises `ZeroWeightError` if it proves that there are none.
    """
    labels = np.zeros(len(model.variables), dtype=np.int32)
    outcome = find_feasible_labels(
        model.structure, model.unary, model.tables, model.hard, preference, SEARCH_BUDGET, labels
    )
    if outcome == IMPOSSIBLE:
        raise ZeroWeightError(f"{NO_WEIGHT}, but a complete search found none")
    return labels if outcome == 0 else None
