"""Objectives (loss functions) of learning: labels and potentials in, values and gradients out.

    values_m = L(th_m, y_m),    gradient = d sum_m L / d th          for each example m

Objectives live in potential space.  Who made the potentials (a template, a network, a table) does
not matter to them, and so one objective serves every model.

What a learner or a model has to know of an objective is declared by the class.  ``problem_kind`` is
the form of the learning problem; a model without a faster form for a kind falls back to ``"sum"``,
which is always right:

======================  ==========================================================================
``"sum"``               a sum over examples of `Objective.evaluate`
``"likelihood"``        log-partition minus score: of complete labels only the statistics matter,
                        and ``inference`` gives the rest
``"camel"``             the same with the maximum entropy of CAMEL, whose learner has rounds
``"moments"``           solved in closed form by ``moments`` and ``potentials``
``"pseudolikelihood"``  a sum over variables of conditional distributions (of blocks, if there are
                        ``blocks``)
``"chains"``            expectations from Gibbs chains, one for each sample
``"dual"``              a concave dual over one polytope for each example (``entropy``, ``oracle``)
``"margin"``            loss-augmented decoding with ``margin`` times the Hamming loss
======================  ==========================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import plain_array
from fieldfit._typing import BoolArray, FloatArray, LabelArray
from fieldfit.entropy.counting_numbers import TreeReweighted
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, observed_labels, require_graph
from fieldfit.graph.result import InferenceResult
from fieldfit.graph.template import Template
from fieldfit.inference.messages.sum_product import SumProduct

__all__ = [
    "Evaluation",
    "Inference",
    "Objective",
    "default_prediction",
    "raise_impossible",
    "require_inference",
    "require_possible",
    "require_possible_where_seen",
]


class Inference(Protocol):
    """What objectives and estimators need of an inference over batches.

    Every `fieldfit.inference.base.Inference` is one.  It is a protocol because an objective with
    several sets of weights runs on as many potentials at once (`WeightedInference`, the unrolled
    sweeps with weights of their own), which that base class does not know.
    """

    def run_batch(
        self,
        batch: Batch,
        potentials: Any,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """Beliefs of the union graph, and one log-partition for each example.

        ``potentials`` are `Potentials`, or a sequence of them for several sets of weights.
        """
        ...


@dataclass(frozen=True)
class Evaluation:
    """An objective at one point.

    Attributes
    ----------
    values
        One value for each example, to be minimised; ``None`` for objectives that only have a
        gradient (contrastive divergence).
    gradient
        Derivative of the sum of the values with respect to the potentials of the union graph.
        Examples do not share potentials, so it is also each example's own.
    converged_examples
        Whether the inference of each example converged.
    state
        What the next evaluation on the same batch may start from (``init=``); not meant to be read.
    set_gradients
        Where there are several sets of potentials, the derivative by each; ``gradient`` is then
        their sum, the derivative by what all sets have in common.
    """

    values: FloatArray | None
    gradient: Potentials
    converged_examples: BoolArray
    state: Any = field(default=None, repr=False)
    set_gradients: tuple[Potentials, ...] = ()


class Objective(ABC):
    """A function of potentials and labels that learning makes small.

    Subclasses are frozen dataclasses of options and implement `evaluate`.
    """

    #: The name that ``objective=`` of the estimators takes.
    name: ClassVar[str]
    #: False where the gradient is only a subgradient or a sample: quasi-Newton does not apply.
    is_smooth: ClassVar[bool] = True
    #: True where values grow in proportion to the potentials, so that zero weights have the value
    #: zero: a falling value is then no sign of progress.
    is_homogeneous: ClassVar[bool] = False
    #: False where the gradient leaves out a part of the derivative of the values: they say whether
    #: a model is good, but not whether a step along the gradient was.
    is_conservative: ClassVar[bool] = True
    #: The form of the learning problem, by which models choose how to pose it: one of the kinds
    #: that the head of this file lists.
    problem_kind: ClassVar[str] = "sum"
    #: The learner that it is meant for, by name: ``"lbfgs"``, ``"adam"`` (subgradients and draws),
    #: ``"camel-rounds"`` or ``"dual-frank-wolfe"``.  The last two need complete labels; where some
    #: are missing, `evaluate` is minimised as for any other objective.
    learner_name: ClassVar[str] = "lbfgs"
    #: How an estimator turns a fitted model into labels, unless it is told otherwise.
    decode: ClassVar[Literal["marginals", "map"]] = "marginals"

    @property
    def has_kinks(self) -> bool:
        """Whether the values are a maximum of smooth branches.

        Their minimum may then lie where branches meet: a step that gains little is no sign of it.
        """
        return False

    @property
    def advice(self) -> str:
        """A clause for the status of a fit that did not converge."""
        return ""

    @property
    def n_weight_sets(self) -> int:
        """Sets of weights that it learns side by side.

        Above 1 if every sweep has its own, or if entropies are fitted beside potentials.
        """
        return 1

    def learner_options(self) -> dict[str, float]:
        """Options of `learner_name` that differ from its defaults."""
        return {}

    def templates(self, template: Template) -> tuple[Template, ...]:
        """The map from weights to potentials of every set; the model's own for all by default."""
        return (template,) * self.n_weight_sets

    @abstractmethod
    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient on a batch.

        ``labels`` has one entry for each variable of the union graph, ``-1`` where it is missing;
        ``init`` is the ``state`` of an earlier evaluation on this batch.
        """

    def evaluate_sets(
        self,
        batch: Batch,
        potentials: Sequence[Potentials],
        labels: LabelArray,
        init: Any = None,
    ) -> Evaluation:
        """`evaluate` for ``n_weight_sets`` potentials, made from as many sets of weights."""
        raise InvalidInputError(
            f"objective must have several sets of weights, got {type(self).__name__} with one"
        )

    @abstractmethod
    def prediction(self, graph: FactorGraph) -> Inference:
        """The inference that predictions should use on a graph like this.

        A model fitted with a surrogate must predict with the same surrogate (Wainwright 2006).
        """

    def value_and_grad(
        self, graph: FactorGraph, potentials: Potentials, labels: ArrayLike
    ) -> tuple[float | None, Potentials]:
        """Value (``None`` if there is none) and gradient on the potentials of one graph."""
        require_graph(graph, potentials)
        checked = observed_labels(graph, plain_array("labels", labels), name="labels")
        evaluation = self.evaluate(Batch.of([graph]), potentials, checked)
        values = evaluation.values
        return None if values is None else float(values.sum()), evaluation.gradient


# -- What objectives check -----------------------------------------------------------------


def require_inference(inference: Any) -> None:
    """Refuse what is no inference over batches of graphs."""
    if isinstance(inference, type) or not hasattr(inference, "run_batch"):
        raise InvalidInputError(
            "inference must be an object such as Exact(), SumProduct() or MeanField(), "
            f"got {inference!r}"
        )


# Labels that the potentials rule out are refused by every objective, in one sentence.  A hard zero
# is part of the model's structure, not a weight that learning could move.  A value of ``+inf``
# would end every line search without a word, so labels of weight zero raise `ZeroWeightError` and
# name the example.


def require_possible(batch: Batch, scores: FloatArray) -> None:
    """Refuse complete labels of which an example has the score ``-inf``."""
    bad = np.flatnonzero(np.isneginf(scores))
    if len(bad):
        raise ZeroWeightError(
            f"labels must have positive weight, those of example {bad[0]} of {batch.n_examples} "
            "are ruled out by a potential of -inf"
        )


def require_possible_where_seen(batch: Batch, potentials: Potentials, labels: LabelArray) -> None:
    """Refuse labels, of which some may be missing, that a single entry of ``-inf`` rules out."""
    graph = batch.graph
    seen = np.flatnonzero(labels >= 0)
    if len(seen) == graph.n_variables:
        require_possible(batch, batch.scores(potentials, labels))
        return
    scores = np.zeros(graph.n_variables)
    scores[seen] = potentials.unary_values[graph.unary_offsets[seen] + labels[seen]]
    n_missing = np.bincount(
        graph.slot_factors[labels[graph.slot_variables] < 0], minlength=graph.n_factors
    )
    local = np.zeros(graph.n_factors, dtype=np.int64)
    for position in range(int(graph.arities.max(initial=0))):
        has = np.flatnonzero((graph.arities > position) & (n_missing == 0))
        variables = graph.slot_variables[graph.scope_offsets[has] + position]
        local[has] = local[has] * graph.cardinalities[variables] + labels[variables]
    entries = potentials.factor_values[graph.table_offsets[:-1] + local]
    tables = np.where(n_missing == 0, entries, 0.0)
    require_possible(batch, batch.sum_variables(scores) + batch.sum_factors(tables))


def raise_impossible(batch: Batch, potentials: Potentials, labels: LabelArray) -> NoReturn:
    """Name an example whose labels are ruled out, as well as single entries can tell."""
    require_possible_where_seen(batch, potentials, labels)
    raise ZeroWeightError(
        "labels must have positive weight, those of some example leave no label for a missing "
        "variable: a potential of -inf rules each of them out"
    )


# -- Predictions of objectives without an inference of their own ---------------------------


def default_prediction(graph: FactorGraph) -> SumProduct:
    """Exact on a graph without cycles, otherwise tree-reweighted message passing.

    Pseudo-likelihood, piecewise and margin objectives approximate no log-partition, so they bind
    predictions to none.  On graphs with cycles they tend to strong couplings, where plain belief
    propagation often has several fixed points or does not converge; the tree-reweighted one is
    unique and changes continuously with the potentials.
    """
    return SumProduct() if graph.is_acyclic else SumProduct(entropy=TreeReweighted())
