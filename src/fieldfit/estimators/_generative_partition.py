"""The log-partition of a generative model as a function of its weights.

All samples share one model, so learning by (surrogate) likelihood needs it once in each iteration,
with its gradient (the model's moments) and, for standard errors, its Hessian (their covariance).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.result import InferenceResult
from fieldfit.estimators._generative_parameters import IsingParameters, PairwiseParameters
from fieldfit.inference.exact import Exact
from fieldfit.inference.linear_response import LinearResponse
from fieldfit.inference.sum_product import SumProduct
from fieldfit.kernels.binary_enumeration import configuration_weights, subset_moments
from fieldfit.objective._base import Inference

__all__ = [
    "MAX_ENUMERATED",
    "EnumeratedPartition",
    "InferredPartition",
    "Partition",
    "difference_hessian",
    "make_partition",
]

FloatArray = NDArray[np.float64]

#: Variables up to which all ``2**n`` configurations are held in memory (128 MB, 0.3 s).
MAX_ENUMERATED = 24
#: ... whatever the graph; above this only if the graph is dense, where a clique tree is slower.
ALWAYS_ENUMERATED = 16


class Partition(ABC):
    """Abstract base: ``B(w)`` with its derivatives."""

    #: Whether the last `evaluate` converged.
    converged = True

    @abstractmethod
    def evaluate(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """``B`` and its gradient."""

    @abstractmethod
    def hessian(self, weights: FloatArray) -> FloatArray:
        """Second derivatives of ``B``."""

    def forget(self) -> None:  # noqa: B027  (most keep nothing)
        """Drop what the next evaluation would start from."""


class EnumeratedPartition(Partition):
    """Exact, binary variables only: every configuration in one vector."""

    def __init__(self, parameters: IsingParameters) -> None:
        self.parameters = parameters
        self._moments = np.empty(1 << parameters.n_variables)
        bits = 1 << np.arange(parameters.n_variables)
        pairs = bits[parameters.edges[:, 0]] | bits[parameters.edges[:, 1]]
        self._subsets = np.concatenate([bits, pairs])

    def evaluate(self, weights: FloatArray) -> tuple[float, FloatArray]:
        value = self._fill(weights)
        subset_moments(self._moments)
        return value, self._to_weights(self._moments[self._subsets])

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Covariance of the sufficient statistics: moments of up to four variables."""
        self._fill(weights)
        subset_moments(self._moments)
        means = self._moments[self._subsets]
        both = self._moments[self._subsets[:, None] | self._subsets[None, :]]
        covariance: FloatArray = both - np.outer(means, means)
        if self.parameters.encoding == "binary":
            return covariance
        return self._to_weights(self._to_weights(covariance).T)

    def _fill(self, weights: FloatArray) -> float:
        thresholds, couplings = self.parameters.binary(weights)
        matrix = self.parameters.coupling_matrix(couplings)
        return float(configuration_weights(thresholds.copy(), matrix, self._moments))

    def _to_weights(self, moments: FloatArray) -> FloatArray:
        first, second = np.split(moments, [self.parameters.n_variables], axis=-1)
        return self.parameters.binary_gradient(first, second)


class InferredPartition(Partition):
    """By any inference, exact or not; warm-started from the last evaluation."""

    def __init__(self, parameters: PairwiseParameters, inference: Inference) -> None:
        self.parameters = parameters
        self.inference = inference
        self._batch = Batch.of([parameters.graph])
        self._last: InferenceResult | None = None

    def evaluate(self, weights: FloatArray) -> tuple[float, FloatArray]:
        result = self.run(weights)
        return result.log_partition, self.parameters.gradient(result.beliefs)

    def run(self, weights: FloatArray) -> InferenceResult:
        """The inference at some weights."""
        result = self.inference.run_batch(
            self._batch, self.parameters.potentials(weights), init=self._last
        )
        self.converged = result.converged
        self._last = result
        return result

    def hessian(self, weights: FloatArray) -> FloatArray:
        """By linear response for message passing, else by differences of the moments."""
        if not isinstance(self.inference, SumProduct) or self.inference.entropy.is_optimized:
            return difference_hessian(lambda w: self.evaluate(w)[1], weights)
        graph = self.parameters.graph
        counting = self.inference.entropy.counting_numbers(graph)
        response = LinearResponse(graph, self.run(weights).beliefs, counting)
        design = self.parameters.design()
        hessian: FloatArray = design.T @ response.apply(design)
        return (hessian + hessian.T) / 2.0

    def forget(self) -> None:
        self._last = None


def make_partition(parameters: PairwiseParameters, inference: Inference) -> Partition:
    """Enumeration where it is the faster exact way, else the given inference."""
    if isinstance(inference, Exact) and isinstance(parameters, IsingParameters):
        n = parameters.n_variables
        dense = 4 * parameters.n_edges > n * (n - 1)
        if n <= ALWAYS_ENUMERATED or (n <= MAX_ENUMERATED and dense):
            return EnumeratedPartition(parameters)
    return InferredPartition(parameters, inference)


def difference_hessian(
    gradient: Callable[[FloatArray], FloatArray], weights: FloatArray, step: float = 1e-4
) -> FloatArray:
    """Hessian by central differences of a gradient.

    The step balances the truncation error (``step**2``) against the tolerance of an inference
    divided by the step.
    """
    columns = []
    for index in range(len(weights)):
        moved = weights.copy()
        moved[index] = weights[index] + step
        above = gradient(moved)
        moved[index] = weights[index] - step
        columns.append((above - gradient(moved)) / (2.0 * step))
    hessian = np.array(columns)
    return (hessian + hessian.T) / 2.0
