"""Piecewise likelihood: every table is normalised by itself.

    value = sum_a [log sum_{y_a} exp th_a(y_a) - th_a(y_a at its labels)]  (and unary tables alike)

The product of the pieces' normalisers counts every labelling, and combinations in which pieces
disagree as well, so with complete labels the value is never below that of the likelihood.  No
inference is needed.  Where labels are missing a piece sums over those of its own variables.

Reference: Sutton and McCallum, "Piecewise training for undirected models", Uncertainty in
Artificial Intelligence (2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials, add_to_single_factors, folded_unary
from fieldfit.errors import InvalidInputError
from fieldfit.inference.sum_product import SumProduct
from fieldfit.kernels.pieces import factor_pieces, unary_pieces
from fieldfit.objective._base import Evaluation, LabelArray, Objective
from fieldfit.objective._errors import raise_impossible
from fieldfit.objective.prediction import default_prediction

__all__ = ["Piecewise"]


@dataclass(frozen=True)
class Piecewise(Objective):
    """Negative log piecewise likelihood.

    Parameters
    ----------
    unary
        ``"separate"``: the unary table of a variable is a piece, and so is every factor.
        ``"shared"``: the unary potentials of a variable (factors of arity one included) are spread
        evenly over its factors of larger arity, so that a piece sees the evidence of its
        variables; a variable without such factors is a piece by itself.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> value, gradient = Piecewise().value_and_grad(graph, ff.Potentials(graph), [0, -1])
    >>> round(value, 6), gradient.factor(0)[0]
    (1.386294, array([-0.25, -0.25]))
    """

    name: ClassVar[str] = "piecewise"
    unary: Literal["separate", "shared"] = "separate"

    def __post_init__(self) -> None:
        if self.unary not in ("separate", "shared"):
            raise InvalidInputError(f"unary must be 'separate' or 'shared', got {self.unary!r}")

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient in one pass over the tables; nothing is kept."""
        graph = batch.graph
        is_shared = self.unary == "shared"
        tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
        own = folded_unary(potentials) if is_shared else potentials.unary_values
        own = np.require(own, np.float64, ["C", "W"])
        alone = graph.degrees == 0 if is_shared else np.ones(graph.n_variables, dtype=np.bool_)
        unary, factors = np.empty(len(own)), np.empty(len(tables))
        by_variable, by_factor = np.empty(graph.n_variables), np.empty(graph.n_factors)
        weights = np.repeat(1.0 / np.maximum(graph.degrees, 1), graph.cardinalities)
        share = own * weights if is_shared else own
        starts = graph.unary_offsets[graph.slot_variables]
        impossible = unary_pieces(graph.structure, own, labels, alone, unary, by_variable) >= 0
        margins = np.zeros(len(own) if is_shared else 0)
        impossible |= (
            factor_pieces(
                graph.structure,
                tables,
                share,
                starts,
                is_shared,
                labels,
                factors,
                margins,
                by_factor,
            )
            >= 0
        )
        if impossible:
            raise_impossible(batch, potentials, labels)
        if is_shared:
            unary += margins * weights
            add_to_single_factors(graph, unary, factors)
        values = batch.sum_variables(by_variable) + batch.sum_factors(by_factor)
        gradient = Potentials.from_flat(graph, unary, factors)
        return Evaluation(values, gradient, np.ones(batch.n_examples, dtype=np.bool_))

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """Exact without cycles, else tree-reweighted (see `default_prediction`)."""
        return default_prediction(graph)
