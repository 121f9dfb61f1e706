"""Base class of the solvers of concave free energies: options, runs and results."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import ArrayLike

from fieldfit._typing import BoolArray, FloatArray
from fieldfit._validation import require_instance, require_integer, require_number
from fieldfit.entropy.configuration_weights import EntropyWeights
from fieldfit.entropy.counting_numbers import Entropy
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Inference, Progress, ending, require_model, require_result
from fieldfit.inference.convex.convex_problem import ConvexProblem, Multipliers, positive_weights
from fieldfit.inference.second_order.marginal_hessian import MarginalHessian

__all__ = ["ConvexResult", "ConvexSolver", "run_with_hessian"]


@dataclass(frozen=True)
class ConvexResult:
    """Where a solver ended.

    ``values`` are those of the dual at ``multipliers``, one for each example, and never below the
    maximum; ``converged`` says which examples have converged.  ``state`` is what a later run can
    start from, if that is more than multipliers, and ``hessian`` that of the last step, at beliefs
    which differ from the last ones by no more than the tolerance.
    """

    beliefs: Beliefs
    multipliers: FloatArray
    values: FloatArray
    converged: BoolArray
    residual: float
    n_iter: int
    state: Multipliers | None = None
    hessian: MarginalHessian | None = None


class ConvexSolver(Inference):
    """Abstract: maximises ``<th, b> - sum w b log b`` over consistent beliefs.

    Subclasses are frozen dataclasses of options and implement `_solve`.
    """

    entropy: Entropy
    tol: float
    max_iter: int
    #: What is counted, and what the residual is, in sentences about a run.
    _work: ClassVar[str]
    _measure: ClassVar[str]

    def __post_init__(self) -> None:
        require_instance("entropy", self.entropy, Entropy, "Convex()")
        require_number("tol", self.tol, above=0)
        require_integer("max_iter", self.max_iter, at_least=1)

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
        weights: EntropyWeights | None = None,
    ) -> InferenceResult:
        """Beliefs and maximum of one graph; ``weights`` take the place of the entropy."""
        require_factor_graph(graph)
        return self.run_batch(Batch.of([graph]), potentials, observed, init, progress, weights)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
        weights: EntropyWeights | None = None,
    ) -> InferenceResult:
        """Beliefs, and one maximum for each example."""
        require_model(batch, potentials, progress)
        require_result(init)
        return self._run(batch, potentials, observed, init, progress, weights)[0]

    def _run(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None,
        init: InferenceResult | None,
        progress: Progress | None,
        weights: EntropyWeights | None,
    ) -> tuple[InferenceResult, MarginalHessian | None]:
        """The result, and the Hessian there if the last step has left one."""
        chosen = self._weights(batch, weights)
        problem = ConvexProblem.of(batch, potentials, chosen, observed)
        found = self._solve(problem, init, progress)
        converged = bool(found.converged.all())
        bound = chosen.bound()
        if weights is None:
            proved = self.entropy.counting_numbers(batch.graph).bound
            # the dual never lies below the maximum, but only the maximum itself may be exact
            bound = proved if converged else ("upper" if proved else None)
        name = "weights" if weights is not None else self.entropy.name
        result = InferenceResult(
            beliefs=found.beliefs,
            log_partition=float(found.values.sum()),
            bound=bound,
            converged=converged,
            n_iter=found.n_iter,
            residual=found.residual,
            status=self._status(found),
            method=f"{type(self).__name__}({name})",
            log_partitions=found.values,
            converged_examples=found.converged,
            state=found.state or Multipliers(found.multipliers),
        )
        return result, found.hessian if converged else None

    def _weights(self, batch: Batch, weights: EntropyWeights | None) -> EntropyWeights:
        """The weights that were given, or those of the entropy, if this solver can use them."""
        return positive_weights(batch, self.entropy, weights)

    @abstractmethod
    def _solve(
        self, problem: ConvexProblem, init: InferenceResult | None, progress: Progress | None
    ) -> ConvexResult:
        """Iterate until all examples have converged, or `max_iter` is reached."""

    def _status(self, found: ConvexResult) -> str:
        work = f"{found.n_iter} {self._work}{'s' if found.n_iter != 1 else ''}"
        measure = f"{self._measure} {found.residual:.2g} after {work}"
        advice = f"more {self._work}s or larger weights"
        return ending(found.converged, measure, self.tol, advice)


def run_with_hessian(
    solver: ConvexSolver,
    batch: Batch,
    potentials: Potentials,
    observed: dict[int, int] | ArrayLike | None = None,
    init: InferenceResult | None = None,
    weights: EntropyWeights | None = None,
) -> tuple[InferenceResult, MarginalHessian | None]:
    """``run_batch``, and the factorised Hessian at the maximum where the last step has left one.

    An implicit gradient needs the same matrix; it takes much memory, so no result keeps it.
    """
    return solver._run(batch, potentials, observed, init, None, weights)
