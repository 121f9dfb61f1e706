"""Procedural fitting: weights for the beliefs that a few sweeps of message passing will give.

    value = L(b(th), y),    b(th) = beliefs after n_sweeps sweeps from uniform messages

The sweeps need not converge.  They are a map from potentials to beliefs, the same in training and
in prediction, and the gradient is the exact derivative of this map (`UnrolledSumProduct`).  The
loss ``L`` looks only at beliefs of what is labelled, so missing labels need no inference of their
own.

Reference: Domke, thesis (2009), chapter 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from fieldfit.adjoint.losses import SMOOTH_LOSSES, MarginalLoss
from fieldfit.adjoint.unrolled import UnrolledSumProduct
from fieldfit.core.batch import Batch
from fieldfit.core.entropy import Bethe, Entropy
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import InvalidInputError
from fieldfit.objective._base import Evaluation, LabelArray, Objective
from fieldfit.objective._errors import require_possible_where_seen

__all__ = ["ProceduralLoss"]


@dataclass(frozen=True)
class ProceduralLoss(Objective):
    """A loss on the beliefs after a fixed number of sweeps.

    Parameters
    ----------
    loss
        ``"ucl"``, ``"uquad"``, ``"suclass"`` (on beliefs of variables), ``"ccl"``, ``"cquad"`` or
        ``"scclass"`` (on those of factors), or a `MarginalLoss`.
    n_sweeps, entropy, schedule, order, damping, checkpoints, n_jobs
        As in `UnrolledSumProduct`.
    per_sweep_weights
        Give every sweep its own weights.

    Notes
    -----
    The value is not convex in the weights.  Fits usually start from those of a convex objective.

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
    loss: str | MarginalLoss = "ucl"
    n_sweeps: int = 5
    entropy: Entropy = field(default_factory=Bethe)
    schedule: str = "sequential"
    order: Any = None
    damping: float = 0.0
    per_sweep_weights: bool = False
    checkpoints: int | Literal["sqrt"] | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        if not self._loss().is_smooth:
            raise InvalidInputError(
                f"loss must be one of {SMOOTH_LOSSES} to be learned with, got {self.loss!r}"
            )
        self.sweeps()  # checks the others
        if self.per_sweep_weights:
            raise InvalidInputError("per_sweep_weights must be False, got True")

    def sweeps(self) -> UnrolledSumProduct:
        """The map from potentials to beliefs."""
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
        require_possible_where_seen(batch, potentials, labels)
        loss = self._loss()
        run = self.sweeps().record(batch, potentials)
        beliefs = run.beliefs(tables=loss.reads_factors)
        values, derivative = loss.value_and_derivative(batch, beliefs, labels)
        gradient = run.pull_back(derivative, beliefs).potentials[0]
        # the sweeps that were asked for have been made: there is nothing that could fail to settle
        return Evaluation(values, gradient, np.ones(batch.n_examples, dtype=np.bool_))

    def prediction(self, graph: FactorGraph) -> UnrolledSumProduct:
        """The same sweeps from uniform messages, whatever the beliefs are after them."""
        return self.sweeps()

    def _loss(self) -> MarginalLoss:
        return self.loss if isinstance(self.loss, MarginalLoss) else MarginalLoss(self.loss)
