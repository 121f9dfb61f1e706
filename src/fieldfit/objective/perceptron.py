"""Structured perceptron: the score of the labels against that of the best labelling.

    value = max_y s(y) - s(labels)            gradient = indicator of the best - of the labels

A stochastic subgradient step with one example is the perceptron's correction, and averaging the
weights over the steps is the averaged perceptron.  It is the loss of `MaxMargin` without a margin.

Reference: Collins, "Discriminative training methods for hidden Markov models", Empirical Methods in
Natural Language Processing (2002).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.inference.sum_product import SumProduct
from fieldfit.objective._base import Evaluation, LabelArray, Objective
from fieldfit.objective.max_margin import hinge
from fieldfit.objective.prediction import default_prediction
from fieldfit.oracle._base import MapOracle, require_oracle

__all__ = ["Perceptron"]


@dataclass(frozen=True)
class Perceptron(Objective):
    """How far the score of the labels is below the best one.

    Parameters
    ----------
    oracle
        As in `MaxMargin`.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.5, 0.0], [0.0, 2.0]])
    >>> value, gradient = Perceptron().value_and_grad(graph, potentials, [1, 1])
    >>> value, gradient.unary(0), gradient.unary(1)
    (0.5, array([ 1., -1.]), array([0., 0.]))
    """

    name: ClassVar[str] = "perceptron"
    is_smooth: ClassVar[bool] = False
    is_homogeneous: ClassVar[bool] = True
    decode: ClassVar[Literal["marginals", "map"]] = "map"
    oracle: MapOracle | None = None

    def __post_init__(self) -> None:
        require_oracle(self.oracle)

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and a subgradient; examples whose maximum is not proved count as unconverged."""
        return hinge(batch, potentials, labels, self.oracle, margin=0.0)

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """For marginals, which this objective does not fit (see `default_prediction`)."""
        return default_prediction(graph)
