"""Log-partition of a pairwise Markov random field as a function of its weights, with derivatives.

All samples share one model, so learning by (surrogate) likelihood needs it once in each iteration,
with its gradient (the model's moments) and, for standard errors, its Hessian (their covariance).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from fieldfit._typing import FloatArray, LabelMatrix
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.inference.second_order.linear_response import LinearResponse
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters, PairwiseParameters
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp
from fieldfit.objectives.base import Inference

__all__ = [
    "MAX_ENUMERATED",
    "EnumeratedPartition",
    "InferredPartition",
    "MeanFieldPartition",
    "Partition",
    "configuration_weights",
    "difference_hessian",
    "make_partition",
    "subset_moments",
]

# -- Enumeration of all ``2**n`` configurations of a small binary model --------------------
# Configuration ``y`` is the integer with bit ``i`` equal to ``y_i``.  Scores
#
#     s(y) = sum_i t_i y_i + sum_{i > j} w_ij y_i y_j
#
# are built by doubling: the configurations with highest bit ``i`` are those below ``2**i`` plus
# the field ``t_i + sum_{j < i} w_ij y_j``, itself built by doubling.  A superset sum (fast zeta
# transform) then turns probabilities into *all* moments at once, ``m[S] = E[product of y_i over i
# in S]``, so that the covariance of the sufficient statistics (moments of up to four variables)
# costs nothing more. Both take about ``n 2**(n-1)`` additions: two milliseconds for 18 variables.


@kernel
def configuration_weights(
    thresholds: FloatArray, couplings: FloatArray, weights: FloatArray
) -> float:
    """Fill ``weights`` (of length ``2**n``) with probabilities; returns the log-partition."""
    weights[0] = 0.0
    for i in range(len(thresholds)):
        half = 1 << i
        lower = weights[:half]
        upper = weights[half : 2 * half]
        upper[0] = thresholds[i]
        for j in range(i):
            quarter = 1 << j
            coupling = couplings[i, j]
            for y in range(quarter):
                upper[quarter + y] = upper[y] + coupling
        for y in range(half):
            upper[y] += lower[y]
    largest = weights.max()
    total = 0.0
    for y in range(len(weights)):
        weights[y] = fast_exp(weights[y] - largest)
        total += weights[y]
    scale = 1.0 / total
    for y in range(len(weights)):
        weights[y] *= scale
    return largest + np.log(total)


@kernel
def subset_moments(weights: FloatArray) -> None:
    """Replace probabilities by moments: ``m[S] = sum of weights over all supersets of S``."""
    size = len(weights)
    step = 1
    while step < size:
        for start in range(0, size, 2 * step):
            lower = weights[start : start + step]
            upper = weights[start + step : start + 2 * step]
            for y in range(step):
                lower[y] += upper[y]
        step *= 2


# -- Exact, enumerated or inferred log-partitions ------------------------------------------


#: Variables up to which all ``2**n`` configurations are held in memory (128 MB, 0.3 s).
MAX_ENUMERATED = 24
#: ... whatever the graph; above this only if the graph is dense, where a clique tree is slower.
ALWAYS_ENUMERATED = 16


#: Entries of rows that are scored together.
ENTRIES_AT_ONCE = 2**20


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

    def reset_warm_start(self) -> None:  # noqa: B027  (most keep nothing)
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

    def reset_warm_start(self) -> None:
        self._last = None


class MeanFieldPartition(InferredPartition):
    """Mean field from several starts: its last beliefs, uniform ones, and the best of some rows.

    A row is itself a product distribution, so ``B(w)`` is at least the largest score of the rows
    and the likelihood of none of them exceeds 1 (`fieldfit.objectives.likelihood` says why a
    single local maximum will not do).
    """

    def __init__(
        self, parameters: PairwiseParameters, inference: MeanField, rows: LabelMatrix
    ) -> None:
        super().__init__(parameters, inference)
        self._rows = rows

    def run(self, weights: FloatArray) -> InferenceResult:
        potentials = self.parameters.potentials(weights)
        starts: list[Any] = [None]
        if self._last is not None:
            starts.append(self._last)
        if len(self._rows):
            best = self._rows[int(np.argmax(self._scores(weights)))]
            starts.append(Beliefs.from_labels(self.parameters.graph, best))
        results = [
            self.inference.run_batch(self._batch, potentials, init=start) for start in starts
        ]
        result = max(results, key=lambda found: found.log_partition)
        self.converged = result.converged
        self._last = result
        return result

    def _scores(self, weights: FloatArray) -> FloatArray:
        """Score of each row."""
        given = self.parameters
        unary, tables = given.tables(weights)
        size = max(1, ENTRIES_AT_ONCE // (given.n_edges + given.n_variables))
        scores = np.empty(len(self._rows))
        for begin in range(0, len(scores), size):
            rows = self._rows[begin : begin + size]
            left, right = rows[:, given.edges[:, 0]], rows[:, given.edges[:, 1]]
            scores[begin : begin + size] = unary[np.arange(given.n_variables), rows].sum(axis=1)
            scores[begin : begin + size] += tables[np.arange(given.n_edges), left, right].sum(
                axis=1
            )
        return scores


def make_partition(
    parameters: PairwiseParameters, inference: Inference, rows: LabelMatrix
) -> Partition:
    """Enumeration where it is the faster exact way, else the given inference.

    ``rows`` are complete samples, from which mean field may start.
    """
    if isinstance(inference, MeanField):
        return MeanFieldPartition(parameters, inference, rows)
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
