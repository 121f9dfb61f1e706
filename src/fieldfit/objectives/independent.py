"""Independent variables (multinomial logistic regression): what a field must do better than.

    value = sum_{i labelled} [log sum_k exp th_i(k) - th_i(y_i)]

Tables of two and more variables are not part of it, and their gradient is zero; grids and graphs
that learn by it have none.  The model under every random field: where learning begins, and the
score that a field has to beat before its couplings are worth anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fieldfit._typing import LabelArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, add_to_single_factors, folded_unary
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.objectives.base import Evaluation, Objective, require_possible_where_seen
from fieldfit.objectives.piecewise import unary_terms

__all__ = ["Independent"]


@dataclass(frozen=True)
class Independent(Objective):
    """Negative log-likelihood of labels that do not depend on each other.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> value, gradient = Independent().value_and_grad(graph, ff.Potentials(graph), [0, -1])
    >>> round(value, 6), gradient.unary(0)
    (0.693147, array([-0.5,  0.5]))
    """

    name: ClassVar[str] = "independent"
    problem_kind: ClassVar[str] = "independent"

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient in one pass over the variables; nothing is kept."""
        graph = batch.graph
        unary = folded_unary(potentials)
        gradient, tables = np.empty(len(unary)), np.zeros(len(potentials.factor_values))
        values = np.empty(graph.n_variables)
        everything = np.ones(graph.n_variables, dtype=np.bool_)
        require_possible_where_seen(batch, potentials, labels)
        unary_terms(graph.structure, unary, labels, everything, gradient, values)
        add_to_single_factors(graph, gradient, tables)
        return Evaluation(
            values=batch.sum_variables(values),
            gradient=Potentials.from_flat(graph, gradient, tables),
            converged_examples=np.ones(batch.n_examples, dtype=np.bool_),
        )

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """Exact where couplings are zero, as they are unless a start has set them."""
        return SumProduct()
