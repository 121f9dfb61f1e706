"""Structured SVM (max-margin) and structured perceptron, by loss-augmented decoding.

    value = max_y [s(y) + Delta(y, labels)] - s(labels)
    gradient = indicator of the maximiser - indicator of the labels           (a subgradient)

``Delta`` is the Hamming loss, the number of labelled variables that ``y`` gets wrong (the
structured hinge loss).  It is added to the unary potentials, so loss-augmented decoding is an
ordinary MAP search.  The perceptron has ``Delta = 0``: a stochastic subgradient step with one
example is the perceptron's correction, and averaging the weights over the steps is the averaged
perceptron.  Where labels are missing, ``s(labels)`` is the best score that agrees with the labels
there are, and ``Delta`` counts only those (latent structured SVM).

A search that proves nothing may return less than the score of the labels; then the labels are the
better maximiser, and the value is 0.  It is also 0 where a search finds no labelling at all that
agrees with the labels; either way the example counts as not converged.

References: Taskar, Guestrin and Koller, "Max-margin Markov networks", Neural Information Processing
Systems 16 (2004); Tsochantaridis et al., "Large margin methods for structured and interdependent
output variables", J. Machine Learning Research 6 (2005); for missing labels Yu and Joachims,
"Learning structural SVMs with latent variables", Int. Conference on Machine Learning (2009);
Collins, "Discriminative training methods for hidden Markov models", Empirical Methods in Natural
Language Processing (2002), for the perceptron.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, LabelArray
from fieldfit._validation import require_one_of
from fieldfit.entropy.counting_numbers import TreeReweighted
from fieldfit.errors import ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, selected_entries
from fieldfit.graph.ragged import expand
from fieldfit.inference.map.base import MapSearch, require_oracle
from fieldfit.inference.map.max_product import MaxProduct
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.objectives.base import (
    Evaluation,
    Objective,
    default_prediction,
    raise_impossible,
    require_possible,
)

__all__ = ["MaxMargin", "Perceptron", "default_oracle", "hinge"]

#: Sweeps of the default search on graphs with cycles.  On grids with attractive couplings 30 sweeps
#: are within 0.5 % of the score after 100; more sweeps improve mainly the bound.
MAX_SWEEPS = 100


@dataclass(frozen=True, kw_only=True)
class MaxMargin(Objective):
    """Structured hinge loss; minimised by subgradient steps.

    Parameters
    ----------
    oracle
        The MAP search for the best labelling: `MaxProduct(...)`, `ExactMap()` or another.
        ``None`` is `MaxProduct()` on graphs without cycles, where it is exact, and tree-reweighted
        max-product otherwise.
    loss
        ``"hamming"``, the number of wrong variables.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.5, 0.0], [0.0, 2.0]])
    >>> value, gradient = MaxMargin().value_and_grad(graph, potentials, [0, 1])
    >>> value, gradient.unary(0), gradient.unary(1)
    (0.5, array([-1.,  1.]), array([0., 0.]))
    """

    name: ClassVar[str] = "max-margin"
    problem_kind: ClassVar[str] = "margin"
    #: Weight of the Hamming loss in the search.
    margin: ClassVar[float] = 1.0
    learner_name: ClassVar[str] = "adam"
    is_smooth: ClassVar[bool] = False
    decode: ClassVar[Literal["marginals", "map"]] = "map"
    oracle: MapSearch | None = field(default=None, kw_only=False)
    loss: Literal["hamming"] = "hamming"

    def __post_init__(self) -> None:
        require_oracle(self.oracle)
        require_one_of("loss", self.loss, ("hamming",))

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and a subgradient; examples whose maximum is not proved count as unconverged."""
        return hinge(batch, potentials, labels, self.oracle, self.margin)

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """For marginals, which this objective does not fit (see `default_prediction`)."""
        return default_prediction(graph)


def hinge(
    batch: Batch,
    potentials: Potentials,
    labels: LabelArray,
    oracle: MapSearch | None,
    margin: float,
) -> Evaluation:
    """The loss above with ``Delta`` = ``margin`` for each wrong variable."""
    graph = batch.graph
    if oracle is None:
        oracle = default_oracle(graph)
    target, target_scores, proved = _best_agreeing(batch, potentials, labels, oracle)
    augmented = potentials
    if margin:
        unary = potentials.unary_values + margin * _is_wrong(graph, labels)
        augmented = Potentials.from_flat(graph, unary, potentials.factor_values)
    found = oracle.run_batch(batch, augmented)
    assert found.scores is not None
    assert found.optimal_examples is not None
    # A tie goes to the labelling found: at weights of zero everything ties, and a perceptron that
    # took its own labels there would never begin.
    is_rival = (found.scores >= target_scores) & (target_scores > -np.inf)
    values = np.where(is_rival, found.scores, 0.0) - np.where(is_rival, target_scores, 0.0)
    rival = np.where(is_rival[batch.variable_examples()], found.labels, target)
    gradient = _difference(graph, rival, target)
    return Evaluation(values, gradient, proved & found.optimal_examples)


def default_oracle(graph: FactorGraph) -> MapSearch:
    """Exact max-product on a graph without cycles, tree-reweighted max-product otherwise.

    With attractive couplings, as most fitted fields have, it finds better labellings than plain
    max-product; with random tables on a grid, slightly worse ones.
    """
    if graph.is_acyclic:
        return MaxProduct()
    return MaxProduct(entropy=TreeReweighted(), max_iter=MAX_SWEEPS)


def _best_agreeing(
    batch: Batch, potentials: Potentials, labels: LabelArray, oracle: MapSearch
) -> tuple[LabelArray, FloatArray, BoolArray]:
    """The best labelling that agrees with the given labels, its scores, and what is proved."""
    if np.all(labels >= 0):
        scores = batch.scores(potentials, labels)
        require_possible(batch, scores)
        return labels, scores, np.ones(batch.n_examples, dtype=np.bool_)
    try:
        found = oracle.run_batch(batch, potentials, observed=labels)
    except ZeroWeightError:
        raise_impossible(batch, potentials, labels)
    assert found.scores is not None
    assert found.optimal_examples is not None
    # a score of -inf: the search found nothing possible, which it then does not call optimal
    return found.labels, found.scores, found.optimal_examples


def _is_wrong(graph: FactorGraph, labels: LabelArray) -> BoolArray:
    """Unary entries of labels other than the given one; none where it is missing."""
    wrong = expand(labels >= 0, graph.unary_offsets)
    given = np.flatnonzero(labels >= 0)
    wrong[graph.unary_offsets[given] + labels[given]] = False
    return wrong


def _difference(graph: FactorGraph, rival: LabelArray, target: LabelArray) -> Potentials:
    """Indicator of one labelling minus that of another."""
    unary = np.zeros(int(graph.unary_offsets[-1]))
    factors = np.zeros(int(graph.table_offsets[-1]))
    for chosen, sign in ((rival, 1.0), (target, -1.0)):
        unary_entries, table_entries = selected_entries(graph, chosen)
        unary[unary_entries] += sign
        factors[table_entries] += sign
    return Potentials.from_flat(graph, unary, factors)


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
    problem_kind: ClassVar[str] = "margin"
    #: Weight of the Hamming loss in the search: none.
    margin: ClassVar[float] = 0.0
    learner_name: ClassVar[str] = "adam"
    is_smooth: ClassVar[bool] = False
    is_homogeneous: ClassVar[bool] = True
    decode: ClassVar[Literal["marginals", "map"]] = "map"
    oracle: MapSearch | None = None

    def __post_init__(self) -> None:
        require_oracle(self.oracle)

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and a subgradient; examples whose maximum is not proved count as unconverged."""
        return hinge(batch, potentials, labels, self.oracle, self.margin)

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """For marginals, which this objective does not fit (see `default_prediction`)."""
        return default_prediction(graph)
