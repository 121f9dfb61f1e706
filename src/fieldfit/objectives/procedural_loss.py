"""Marginal-based learning through truncated message passing (backpropagation through inference).

    value = L(b(th), y),    b(th) = beliefs after n_sweeps sweeps from uniform messages

The sweeps need not converge.  They are a map from potentials to beliefs, the same in training and
in prediction, and the gradient is the exact derivative of this map by reverse-mode differentiation
of the unrolled sweeps (`UnrolledSumProduct`).  The loss ``L`` looks only at beliefs of what is
labelled, so missing labels need no inference of their own.

References: Domke, "Tractable learning and inference in high-treewidth graphical models", thesis
(2009), chapter 5; Domke, "Learning graphical model parameters with approximate marginal inference",
IEEE Trans. Pattern Analysis and Machine Intelligence 35 (2013).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from fieldfit._typing import LabelArray
from fieldfit._validation import require_flag
from fieldfit.entropy.counting_numbers import Bethe, Entropy
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.mean_field.unrolled_mean_field import UnrolledMeanField
from fieldfit.inference.messages.unrolled_sum_product import UnrolledSumProduct
from fieldfit.objectives.base import Evaluation, Objective, require_possible_where_seen
from fieldfit.objectives.marginal_losses import MarginalLoss

__all__ = ["ProceduralLoss"]

#: What ``entropy`` takes besides objects: the entropy of products.
MEAN_FIELD = "mean-field"


@dataclass(frozen=True, kw_only=True)
class ProceduralLoss(Objective):
    """A loss on the beliefs after a fixed number of sweeps.

    Parameters
    ----------
    loss
        ``"ucl"``, ``"uquad"``, ``"suclass"`` (on beliefs of variables), ``"ccl"``, ``"cquad"`` or
        ``"scclass"`` (on those of factors), or a `MarginalLoss`.
    n_sweeps, entropy, schedule, order, damping, checkpoints, n_jobs
        As in `UnrolledSumProduct`.  With ``entropy="mean-field"`` the sweeps are those of
        `UnrolledMeanField`, and only ``n_sweeps`` and ``damping`` matter.
    per_sweep_weights
        Give every sweep its own weights: ``n_sweeps`` times as many, those of the first sweep
        first.  Such a model has beliefs, but no potentials of its own that could be sampled from.

    Notes
    -----
    The value is not convex in the weights.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> objective = ProceduralLoss("ucl", n_sweeps=2)
    >>> value, gradient = objective.value_and_grad(graph, ff.Potentials(graph), [0, 1])
    >>> round(value, 4), gradient.unary(1).round(4)
    (1.3863, array([ 0.5, -0.5]))
    """

    name: ClassVar[str] = "procedural"
    loss: str | MarginalLoss = field(default="ucl", kw_only=False)
    n_sweeps: int = 5
    entropy: Entropy | Literal["mean-field"] = field(default_factory=Bethe)
    schedule: str = "sequential"
    order: Any = None
    damping: float = 0.0
    per_sweep_weights: bool = False
    checkpoints: int | Literal["sqrt"] | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        MarginalLoss.to_learn_with(self.loss)
        require_flag("per_sweep_weights", self.per_sweep_weights)
        self.sweeps()  # checks the others

    @property
    def n_weight_sets(self) -> int:
        """One for each sweep, or one for all."""
        return self.n_sweeps if self.per_sweep_weights else 1

    def sweeps(self) -> UnrolledSumProduct | UnrolledMeanField:
        """The map from potentials to beliefs."""
        if isinstance(self.entropy, str):
            self._require_mean_field()
            return UnrolledMeanField(self.n_sweeps, damping=self.damping)
        return UnrolledSumProduct(
            n_sweeps=self.n_sweeps,
            entropy=self.entropy,
            schedule=self.schedule,
            order=self.order,
            damping=self.damping,
            checkpoints=self.checkpoints,
            n_jobs=self.n_jobs,
        )

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient; nothing is kept from one evaluation to the next."""
        if self.per_sweep_weights:
            raise InvalidInputError(
                f"potentials must be {self.n_sweeps}, one for each sweep, as every sweep has its "
                "own weights, got one"
            )
        return self._evaluate(batch, potentials, labels)

    def evaluate_sets(
        self,
        batch: Batch,
        potentials: Sequence[Potentials],
        labels: LabelArray,
        init: Any = None,
    ) -> Evaluation:
        """`evaluate` with potentials of its own for each sweep."""
        return self._evaluate(batch, potentials, labels)

    def _evaluate(
        self, batch: Batch, potentials: Potentials | Sequence[Potentials], labels: LabelArray
    ) -> Evaluation:
        given = (potentials,) if isinstance(potentials, Potentials) else tuple(potentials)
        for one in given:
            # the check costs as much as a sweep, and soft potentials rule nothing out
            if min(one.unary_values.min(initial=0), one.factor_values.min(initial=0)) == -np.inf:
                require_possible_where_seen(batch, one, labels)
        loss = MarginalLoss.to_learn_with(self.loss)
        run = self.sweeps().record(batch, potentials)
        beliefs = run.beliefs(tables=loss.reads_factors)
        values, derivative = loss.value_and_derivative(batch, beliefs, labels)
        gradients = run.vjp(derivative, beliefs).potentials
        # the sweeps that were asked for have been made: nothing could fail to converge
        converged = np.ones(batch.n_examples, dtype=np.bool_)
        if len(gradients) == 1:
            return Evaluation(values, gradients[0], converged)
        total = Potentials.from_flat(
            batch.graph,
            np.sum([one.unary_values for one in gradients], axis=0),
            np.sum([one.factor_values for one in gradients], axis=0),
        )
        return Evaluation(values, total, converged, set_gradients=gradients)

    def prediction(self, graph: FactorGraph) -> UnrolledSumProduct | UnrolledMeanField:
        """The same sweeps from uniform messages, whatever the beliefs are after them."""
        return self.sweeps()

    def _require_mean_field(self) -> None:
        if self.entropy != MEAN_FIELD:
            raise InvalidInputError(
                f"entropy must be an object such as Bethe() or {MEAN_FIELD!r}, got {self.entropy!r}"
            )
        for name, plain in (("schedule", "sequential"), ("order", None), ("checkpoints", None)):
            if isinstance(getattr(self, name), np.ndarray) or getattr(self, name) != plain:
                raise InvalidInputError(
                    f"{name} must be {plain!r} with entropy={MEAN_FIELD!r}, "
                    f"got {getattr(self, name)!r}"
                )
