"""The inference that predicts where an objective was not trained with one of its own."""

from __future__ import annotations

from fieldfit.core.entropy import TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.inference.sum_product import SumProduct

__all__ = ["default_prediction"]


def default_prediction(graph: FactorGraph) -> SumProduct:
    """Exact on a graph without cycles, otherwise tree-reweighted message passing.

    Pseudo-likelihood, piecewise and margin objectives approximate no log-partition, so they bind
    predictions to none.  On graphs with cycles they tend to strong couplings, where plain belief
    propagation often has several fixed points or does not converge; the tree-reweighted one is
    unique and changes continuously with the potentials.
    """
    return SumProduct() if graph.is_acyclic else SumProduct(entropy=TreeReweighted())
