"""Contrastive free energy: k-step descent of a variational free energy from the data.

    value = F(Q_0) - F(Q_k) >= 0            gradient = E_{Q_k}[f] - E_{Q_0}[f]

``Q_0`` sits at the data, and the reconstruction ``Q_k`` is what ``k`` descent steps on the free
energy ``F`` make of it.  A model that is right leaves the data where they are.  The families:

* ``"mean-field"``: products of single beliefs; a step moves all of them towards their update;
* ``"bethe"``: beliefs of variables and, for each factor, the best table that agrees with them
  (belief optimisation); a step moves the beliefs of variables along the natural gradient;
* ``"kikuchi"``: beliefs of regions; a step is one round of a convergent double loop.

Every example has its own step length, which is cut until its free energy falls: so the value is
never negative.  With ``n_steps=None`` the steps go on to a stationary point, and this is likelihood
learning with mean field, Bethe's or Kikuchi's approximation, started at the data.

Missing labels: ``F`` is first minimised over their beliefs, the known ones held at the data, and
this is ``Q_0``; then all beliefs descend.

The gradient leaves out how ``Q_k`` itself depends on the weights.  This term is small, vanishes for
``k`` without limit, and is not the gradient of anything simple; a learner must go by slopes, not
by values (``is_conservative``).

Reference: Welling and Sutton, "Learning in Markov random fields with contrastive free energies",
Artificial Intelligence and Statistics (2005).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import require_integer, require_number, require_one_of
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.ragged import expand
from fieldfit.inference.free_energy.k_step_descent import descend_bethe, descend_mean_field
from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct
from fieldfit.inference.kikuchi.kikuchi_descent import descend_kikuchi
from fieldfit.inference.kikuchi.region_graph import Regions, require_regions
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.objectives.base import Evaluation, Inference, Objective, require_possible_where_seen

__all__ = ["ContrastiveFreeEnergy"]

FAMILIES = ("bethe", "mean-field", "kikuchi")
#: Rounds of Kikuchi's family that stand for "to convergence".
MANY_ROUNDS = 1000


@dataclass(frozen=True, kw_only=True)
class ContrastiveFreeEnergy(Objective):
    """Free energy of the data minus that of their reconstruction by a few descent steps.

    Parameters
    ----------
    family
        ``"bethe"``, ``"mean-field"`` or ``"kikuchi"``, see above.
    n_steps
        Descent steps from the data; ``None``: to a stationary point.
    smoothing
        Beliefs at the data have this probability for all other labels together: at a corner the
        slope of the entropy is infinite.
    regions
        For ``"kikuchi"``: regions as `GeneralizedSumProduct` takes them.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> objective = ContrastiveFreeEnergy("bethe", n_steps=1)
    >>> value, gradient = objective.value_and_grad(graph, ff.Potentials(graph), [0, 1])
    >>> round(value, 3), gradient.unary(1).round(3)
    (1.384, array([ 0.5, -0.5]))
    """

    name: ClassVar[str] = "contrastive-free-energy"
    is_conservative: ClassVar[bool] = False
    family: Literal["bethe", "mean-field", "kikuchi"] = field(default="bethe", kw_only=False)
    n_steps: int | None = 5
    smoothing: float = 1e-4
    regions: Regions = "plaquettes"

    def __post_init__(self) -> None:
        require_one_of("family", self.family, FAMILIES)
        require_integer("n_steps", self.n_steps, at_least=1, or_none=True)
        require_number("smoothing", self.smoothing, above=0, below=0.5)
        require_regions(self.regions)

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient of every example at once."""
        require_possible_where_seen(batch, potentials, labels)
        if self.family == "kikuchi":
            return self._evaluate_regions(batch, potentials, labels)
        descend = descend_mean_field if self.family == "mean-field" else descend_bethe
        graph = batch.graph
        known = labels >= 0
        before: _State = _State() if init is None else init
        vectors = before.vectors
        log_start = smoothed_labels(graph, labels, self.smoothing)
        hidden = None
        converged = np.ones(batch.n_examples, dtype=np.bool_)
        if not known.all():
            if before.hidden is not None:
                held = expand(known, graph.unary_offsets)
                log_start = np.where(held, log_start, before.hidden)
            minimum = descend(batch, potentials, log_start, None, ~known, vectors)
            log_start = hidden = minimum.log_unary
            converged, vectors = minimum.converged_examples, minimum.state
        free = np.ones(graph.n_variables, dtype=np.bool_)
        end = descend(batch, potentials, log_start, self.n_steps, free, vectors)
        gradient = Potentials.from_flat(
            graph,
            end.unary - end.start_unary,
            end.factors - end.start_factors,
        )
        values = end.start_free_energies - end.free_energies
        if self.n_steps is None:
            converged = converged & end.converged_examples
        state = _State(end.state, hidden, end.n_messages)
        return Evaluation(values, gradient, converged, state)

    def _evaluate_regions(
        self, batch: Batch, potentials: Potentials, labels: LabelArray
    ) -> Evaluation:
        """Kikuchi's family: rounds of the double loop."""
        known = labels >= 0
        n_rounds = MANY_ROUNDS if self.n_steps is None else int(self.n_steps)
        unary = np.exp(smoothed_labels(batch.graph, labels, self.smoothing))
        converged = np.ones(batch.n_examples, dtype=np.bool_)
        if known.all():
            end = descend_kikuchi(batch, potentials, unary, n_rounds, regions=self.regions)
        else:
            minimum = descend_kikuchi(
                batch, potentials, unary, MANY_ROUNDS, free=~known, regions=self.regions
            )
            converged = minimum.converged_examples & ~minimum.moving_examples
            end = descend_kikuchi(
                batch, potentials, minimum, n_rounds,
                regions=self.regions, smoothing=self.smoothing,
            )  # fmt: skip
        gradient = Potentials.from_flat(
            batch.graph,
            end.unary - end.start_unary,
            end.factors - end.start_factors,
        )
        converged = converged & end.converged_examples
        if self.n_steps is None:
            converged = converged & ~end.moving_examples
        values = end.start_free_energies - end.free_energies
        return Evaluation(values, gradient, converged)

    def prediction(self, graph: FactorGraph) -> Inference:
        """The inference whose free energy it is."""
        if self.family == "mean-field":
            return MeanField()
        if self.family == "kikuchi":
            return GeneralizedSumProduct(self.regions)
        return SumProduct()


class _State(NamedTuple):
    """Where the next evaluation starts its inner problems, and what this one has cost."""

    vectors: FloatArray | None = None
    hidden: FloatArray | None = None
    n_messages: int = 0


def smoothed_labels(graph: FactorGraph, labels: LabelArray, smoothing: float) -> FloatArray:
    """Log-beliefs at the labels, the rest spread over the others; uniform where missing."""
    cardinalities = graph.cardinalities
    known = (labels >= 0) & (cardinalities > 1)
    rest = np.where(known, smoothing / np.maximum(cardinalities - 1, 1), 1.0 / cardinalities)
    log_unary = expand(np.log(rest), graph.unary_offsets)
    places = graph.unary_offsets[:-1][known] + labels[known]
    log_unary[places] = np.log1p(-smoothing)
    return log_unary
