"""Implicit fitting: weights for the beliefs that a concave surrogate will give.

    value = L(b*(th), y),    b*(th) = argmax <th, b> + H(b)  over locally consistent beliefs

The beliefs are found by message passing to convergence, and the gradient by the implicit function
theorem (`adjoint.implicit`, one sparse linear system) or by two more inferences
(`adjoint.perturbation`).  The loss ``L`` looks only at beliefs of what is labelled, so missing
labels need no inference of their own.

Reference: Domke, "Learning convex inference of marginals", Uncertainty in Artificial Intelligence
(2008); thesis (2009), chapter 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from fieldfit.adjoint.implicit import implicit_gradient
from fieldfit.adjoint.losses import SMOOTH_LOSSES, MarginalLoss
from fieldfit.adjoint.perturbation import perturbation_gradient
from fieldfit.core.batch import Batch
from fieldfit.core.entropy import Convex, Entropy
from fieldfit.core.entropy_weights import EntropyWeights
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import InvalidInputError
from fieldfit.inference.sum_product import SumProduct
from fieldfit.objective._base import Evaluation, LabelArray, Objective
from fieldfit.objective._errors import require_possible_where_seen
from fieldfit.objective.likelihood import converged_examples, light_start

__all__ = ["ImplicitLoss"]

GRADIENTS = ("solve", "perturbation")

#: Tolerance of the two inferences of a perturbation, whose error is divided by the step.
PERTURBED_TOL = 1e-13


@dataclass(frozen=True)
class ImplicitLoss(Objective):
    """A loss on the beliefs of a concave surrogate.

    Parameters
    ----------
    loss
        ``"ucl"``, ``"uquad"``, ``"suclass"`` (on beliefs of variables), ``"ccl"``, ``"cquad"`` or
        ``"scclass"`` (on those of factors), or a `MarginalLoss`.
    entropy
        `Convex()` or `TreeReweighted()`.  It must be concave on the graphs it meets, so that
        beliefs are a smooth function of potentials: `Bethe()` is refused on graphs with several
        cycles.
    gradient
        ``"solve"`` (a sparse linear system) or ``"perturbation"`` (two more inferences; less
        exact).
    tol, max_iter, n_jobs
        As in `SumProduct`.  The value is not stationary in the messages, unlike a likelihood, so
        the tolerance is tighter than usual in learning.

    Notes
    -----
    The value is not convex in the weights.  Fits usually start from those of a convex objective.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> value, gradient = ImplicitLoss().value_and_grad(graph, ff.Potentials(graph), [0, 1])
    >>> round(value, 4), gradient.unary(1).round(4)
    (1.3863, array([ 0.495, -0.495]))
    """

    name: ClassVar[str] = "implicit"
    loss: str | MarginalLoss = "ucl"
    entropy: Entropy = field(default_factory=Convex)
    gradient: Literal["solve", "perturbation"] = "solve"
    tol: float = 1e-8
    max_iter: int = 5000
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        if not self._loss().is_smooth:
            raise InvalidInputError(
                f"loss must be one of {SMOOTH_LOSSES} to be learned with, got {self.loss!r}"
            )
        if not isinstance(self.entropy, Entropy) or self.entropy.is_optimized:
            raise InvalidInputError(
                "entropy must be an object with fixed counting numbers, such as Convex() or "
                f"TreeReweighted(), got {self.entropy!r}"
            )
        if self.gradient not in GRADIENTS:
            raise InvalidInputError(f"gradient must be one of {GRADIENTS}, got {self.gradient!r}")
        self.inference()  # checks the others

    def inference(self) -> SumProduct:
        """The map from potentials to beliefs."""
        return SumProduct(
            entropy=self.entropy, tol=self.tol, max_iter=self.max_iter, n_jobs=self.n_jobs
        )

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient; messages start from those of the last evaluation."""
        require_possible_where_seen(batch, potentials, labels)
        self._require_concave(batch.graph)
        result = self.inference().run_batch(batch, potentials, init=init)
        values, derivative = self._loss().value_and_derivative(batch, result.beliefs, labels)
        converged = converged_examples(result, batch)
        if self.gradient == "solve":
            weights = EntropyWeights.of(self.entropy, batch.graph)
            gradient = implicit_gradient(result.beliefs, weights, derivative).potentials
        else:
            tight = replace(self.inference(), tol=PERTURBED_TOL)
            gradient, settled = perturbation_gradient(
                batch,
                potentials,
                derivative,
                lambda moved: tight.run_batch(batch, moved, init=result),
            )
            converged = converged & settled
        return Evaluation(values, gradient, converged, light_start(result))

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """The same inference."""
        return self.inference()

    def _require_concave(self, graph: FactorGraph) -> None:
        counting = self.entropy.counting_numbers(graph)
        if not counting.concave:
            raise InvalidInputError(
                f"entropy must be concave on the graph, got {self.entropy!r}: {counting.reason}"
            )

    def _loss(self) -> MarginalLoss:
        return self.loss if isinstance(self.loss, MarginalLoss) else MarginalLoss(self.loss)
