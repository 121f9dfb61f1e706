"""A model with its evidence folded in, in the form that mean-field and Gibbs sweeps take.

Evidence becomes ``-inf`` on the other labels of a variable; factors of arity one go into the
unary part; labels that hard zeros rule out by arc consistency become ``-inf`` too, which
changes no probability and shows many models of weight zero at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials, conditioned_unary
from fieldfit.errors import ZeroWeightError
from fieldfit.kernels.feasible import (
    IMPOSSIBLE,
    find_feasible_labels,
    find_hard_factors,
    remove_impossible_labels,
)
from fieldfit.kernels.models import BinaryPairwise, GeneralModel, binary_pairwise
from fieldfit.kernels.structure import greedy_colors

__all__ = ["condition", "feasible_labels", "is_binary_pairwise", "sweep_form"]

FloatArray = NDArray[np.float64]

#: Table entries that a search for a possible configuration may read, about one second.
SEARCH_BUDGET = 300_000_000

NO_WEIGHT = "potentials and observed must leave some configuration of positive weight"


def condition(
    graph: FactorGraph, potentials: Potentials, observed: dict[int, int] | ArrayLike | None
) -> tuple[GeneralModel, NDArray[np.int32]]:
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
        form: BinaryPairwise = binary_pairwise(
            model.structure, model.unary, model.tables, model.variables
        )
        return form
    return model


def feasible_labels(model: GeneralModel, preference: FloatArray) -> NDArray[np.int32] | None:
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
