"""Marginal-based learning by implicit differentiation of a concave variational problem.

    value = L(b*(th), y),    b*(th) = argmax <th, b> + H(b)  over locally consistent beliefs

The beliefs are found by message passing or in the primal, and the gradient by the implicit function
theorem (one sparse linear system) or by two more inferences at perturbed potentials
(`fieldfit.inference.second_order.implicit_gradient`).  The loss ``L`` looks only at beliefs of what
is labelled, so missing labels need no inference of their own.

References: Domke, "Learning convex inference of marginals", Uncertainty in Artificial Intelligence
(2008); thesis (2009), chapter 4; Domke, "Implicit differentiation by perturbation", NIPS (2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import LabelArray
from fieldfit._validation import require_one_of
from fieldfit.entropy.configuration_weights import (
    TIES,
    EntropyTies,
    EntropyWeights,
    entropy_gradient,
    entropy_template,
    scaled_weights,
)
from fieldfit.entropy.counting_numbers import Convex, Entropy
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.result import InferenceResult
from fieldfit.graph.template import Template
from fieldfit.inference.convex.convex_dual import ConvexDual
from fieldfit.inference.convex.convex_primal import ConvexPrimal
from fieldfit.inference.convex.convex_solver import run_with_hessian
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.inference.second_order.implicit_gradient import (
    implicit_gradient,
    perturbation_gradient,
)
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, MarginalHessian
from fieldfit.objectives.base import Evaluation, Objective, require_possible_where_seen
from fieldfit.objectives.likelihood import converged_examples, light_start
from fieldfit.objectives.marginal_losses import MarginalLoss

__all__ = ["ImplicitLoss"]

GRADIENTS = ("solve", "perturbation")
SOLVERS = ("messages", "primal")

#: Tolerance of the two inferences of a perturbation, whose error is divided by the step.
PERTURBED_TOL = 1e-13
#: Relative residual that a solve may leave; above it no example counts as converged.
SOLVED = 1e-6
#: Most iterations in the primal before the dual takes over; ten to thirty are usual.
PRIMAL_ITERATIONS = 60


@dataclass(frozen=True)
class WeightedInference:
    """Beliefs from two sets of potentials: the model's own, and logarithms of entropy weights.

    The weights are those of ``entropy`` times what the second set stands for (`entropy_template`).
    """

    entropy: Entropy
    tol: float

    def weights(self, graph: FactorGraph, logs: Potentials) -> EntropyWeights:
        """The entropy weights."""
        base = EntropyWeights.of(self.entropy, graph)
        if not base.is_positive:
            raise InvalidInputError(
                "entropy must have positive weights for every variable and factor to be fitted, "
                f"got {self.entropy!r}"
            )
        return scaled_weights(base, logs)

    def run_batch(
        self,
        batch: Batch,
        potentials: Sequence[Potentials],
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """Beliefs, and one maximum for each example."""
        return self.run_with_hessian(batch, potentials, observed, init)[0]

    def run_with_hessian(
        self,
        batch: Batch,
        potentials: Sequence[Potentials],
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> tuple[InferenceResult, MarginalHessian | None]:
        """The same, and what `ConvexPrimal` leaves for the gradient."""
        own, logs = potentials
        weights = self.weights(batch.graph, logs)
        # the primal gains from a start at earlier beliefs, the dual reaches what is hardest
        primal = ConvexPrimal(tol=self.tol, max_iter=PRIMAL_ITERATIONS)
        found = run_with_hessian(primal, batch, own, observed, init, weights)
        if found[0].converged:
            return found
        return run_with_hessian(ConvexDual(tol=self.tol), batch, own, observed, weights=weights)


@dataclass(frozen=True, kw_only=True)
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
    fit_entropy
        Learn the entropy beside the potentials (``gradient="solve"`` only), by numbers that
        multiply the weights of ``entropy``, all of which must be positive: ``"tied"`` has one for
        all variables and one for each block of factors, ``"configuration"`` (or ``True``) one for
        each configuration, and ``"features"`` one for each configuration and feature.  Their
        logarithms are further weights of the model, under the same penalty.
    solver
        How beliefs are found: by ``"messages"`` (`SumProduct`) or in the ``"primal"``
        (`ConvexPrimal`, which needs positive weights).  A sweep of messages costs much less than an
        iteration in the primal, but where variables have little entropy of their own and couplings
        are strong, messages need thousands of sweeps and the primal four to eight iterations.  Its
        beliefs are right to ``tol``, logarithms of tiny ones less so; it may not converge where
        potentials are in the hundreds.  A fitted entropy always takes the primal.
    tol, max_iter, n_jobs
        As in `SumProduct`; ``max_iter`` counts sweeps of messages.  The value is not stationary in
        the messages, unlike a likelihood, so the tolerance is tighter than usual in learning.

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
    loss: str | MarginalLoss = field(default="ucl", kw_only=False)
    entropy: Entropy = field(default_factory=Convex)
    gradient: Literal["solve", "perturbation"] = "solve"
    fit_entropy: bool | EntropyTies = False
    solver: Literal["messages", "primal"] = "messages"
    tol: float = 1e-8
    max_iter: int = 5000
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        MarginalLoss.to_learn_with(self.loss)
        if not isinstance(self.entropy, Entropy) or self.entropy.is_optimized:
            raise InvalidInputError(
                "entropy must be an object with fixed counting numbers, such as Convex() or "
                f"TreeReweighted(), got {self.entropy!r}"
            )
        require_one_of("gradient", self.gradient, GRADIENTS)
        require_one_of("solver", self.solver, SOLVERS)
        if self.gradient == "perturbation" and self.solver != "messages":
            raise InvalidInputError(
                f"solver must be 'messages' for gradient='perturbation', got {self.solver!r}"
            )
        self._check_fit_entropy()
        self._messages()  # checks the others

    @property
    def n_weight_sets(self) -> int:
        """One, and one more if the entropy is fitted."""
        return 1 if self.fit_entropy is False else 2

    def templates(self, template: Template) -> tuple[Template, ...]:
        """The map to potentials and, if the entropy is fitted, that to logarithms of weights."""
        ties = self._ties()
        return (template,) if ties is None else (template, entropy_template(template, ties))

    def _messages(self) -> SumProduct:
        """Message passing, for weights that do not depend on the configuration."""
        return SumProduct(
            entropy=self.entropy, tol=self.tol, max_iter=self.max_iter, n_jobs=self.n_jobs
        )

    def _solver(self) -> SumProduct | ConvexPrimal:
        if self.solver == "messages":
            return self._messages()
        return ConvexPrimal(entropy=self.entropy, tol=self.tol)

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient under the entropy as it is given.

        Messages, or beliefs in the primal, start from those of the last evaluation.
        """
        require_possible_where_seen(batch, potentials, labels)
        self._require_concave(batch.graph)
        result, hessian = self._run(batch, potentials, init)
        values, derivative = MarginalLoss.to_learn_with(self.loss).value_and_derivative(
            batch, result.beliefs, labels
        )
        converged = converged_examples(result, batch)
        if self.gradient == "solve":
            weights = EntropyWeights.of(self.entropy, batch.graph)
            try:
                found = implicit_gradient(result.beliefs, weights, derivative, hessian=hessian)
            except IndefiniteError:
                return _beyond_arithmetic(batch, 1)
            gradient = found.potentials
            converged = converged & (found.residual <= SOLVED)
        else:
            tight = replace(self._messages(), tol=PERTURBED_TOL)
            gradient, perturbed_converged = perturbation_gradient(
                batch,
                potentials,
                derivative,
                lambda moved: tight.run_batch(batch, moved, init=result),
            )
            converged = converged & perturbed_converged
        start = light_start(result) if self.solver == "messages" else result
        return Evaluation(values, gradient, converged, start)

    def _run(
        self, batch: Batch, potentials: Potentials, init: Any
    ) -> tuple[InferenceResult, MarginalHessian | None]:
        """Beliefs, and the Hessian there if the solver has left it."""
        solver = self._solver()
        if isinstance(solver, ConvexPrimal):
            return run_with_hessian(solver, batch, potentials, init=init)
        return solver.run_batch(batch, potentials, init=init), None

    def evaluate_sets(
        self,
        batch: Batch,
        potentials: Sequence[Potentials],
        labels: LabelArray,
        init: Any = None,
    ) -> Evaluation:
        """Values and gradients for potentials and logarithms of numbers that multiply weights."""
        if self.n_weight_sets == 1:
            return super().evaluate_sets(batch, potentials, labels, init)
        own, logs = potentials
        require_possible_where_seen(batch, own, labels)
        inference = WeightedInference(self.entropy, self.tol)
        result, hessian = inference.run_with_hessian(batch, potentials, init=init)
        values, derivative = MarginalLoss.to_learn_with(self.loss).value_and_derivative(
            batch, result.beliefs, labels
        )
        weights = inference.weights(batch.graph, logs)
        try:
            found = implicit_gradient(result.beliefs, weights, derivative, hessian=hessian)
        except IndefiniteError:
            return _beyond_arithmetic(batch, self.n_weight_sets)
        by_logs = entropy_gradient(weights, logs, found.weights)
        return Evaluation(
            values,
            found.potentials,
            converged_examples(result, batch) & (found.residual <= SOLVED),
            result,
            set_gradients=(found.potentials, by_logs),
        )

    def prediction(self, graph: FactorGraph) -> SumProduct | ConvexPrimal | WeightedInference:
        """The same inference."""
        if self.n_weight_sets > 1:
            return WeightedInference(self.entropy, self.tol)
        return self._solver()

    def _ties(self) -> EntropyTies | None:
        if isinstance(self.fit_entropy, str):
            return self.fit_entropy
        return "configuration" if self.fit_entropy else None

    def _check_fit_entropy(self) -> None:
        require_one_of("fit_entropy", self.fit_entropy, (True, False, *TIES))
        if self._ties() is not None and self.gradient != "solve":
            raise InvalidInputError(
                f"gradient must be 'solve' to fit the entropy, got {self.gradient!r}"
            )

    def _require_concave(self, graph: FactorGraph) -> None:
        counting = self.entropy.counting_numbers(graph)
        if not counting.concave:
            raise InvalidInputError(
                f"entropy must be concave on the graph, got {self.entropy!r}: {counting.reason}"
            )


def _beyond_arithmetic(batch: Batch, n_sets: int) -> Evaluation:
    """Where beliefs are too nearly certain for a gradient: an infinite value.

    A line search then takes a shorter step.
    """
    graph = batch.graph
    nothing = Potentials(graph)
    return Evaluation(
        np.full(batch.n_examples, np.inf),
        nothing,
        np.zeros(batch.n_examples, dtype=np.bool_),
        set_gradients=(nothing,) * n_sets if n_sets > 1 else (),
    )
