"""Any objective on a generative model: one copy of the graph for each distinct row."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import InvalidInputError
from fieldfit.estimators._generative_parameters import PairwiseParameters
from fieldfit.estimators._generative_partition import difference_hessian
from fieldfit.estimators._generative_samples import Samples
from fieldfit.learner.problem import Assessment, Problem
from fieldfit.objective._base import Evaluation, Inference, LabelArray, Objective
from fieldfit.objective.likelihood import converged_examples

__all__ = ["CopiesProblem", "GenerativeProblem", "ObservedPart"]

FloatArray = NDArray[np.float64]

#: Table entries of the copies of a graph that are evaluated together.
ENTRIES_PER_CHUNK = 2**22


class GenerativeProblem(Problem):
    """Abstract base; one part, because the model is evaluated once for all samples."""

    n_parts = 1

    def __init__(self, parameters: PairwiseParameters, samples: Samples) -> None:
        self.parameters = parameters
        self.samples = samples
        self.n_weights = parameters.n_weights

    def assess_part(self, weights: FloatArray, part: int) -> Assessment:
        return self.assess(weights)

    def fingerprint(self) -> str:
        """A digest of the objective, the samples, their weights, and the map from weights."""
        digest = sha256(f"{type(self).__name__} {self.objective!r}".encode())
        # the map is linear: potentials of other parameters differ where all weights are one
        seen = self.parameters.potentials(np.ones(self.n_weights))
        arrays = [self.parameters.edges, self.samples.labels, self.samples.weights]
        for array in [*arrays, seen.unary_values, seen.factor_values]:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def scores(self, weights: FloatArray) -> FloatArray:
        """Gradient of each distinct row of weight 1, shape (n_rows, n_weights)."""
        raise InvalidInputError("objective must have a gradient for each sample, got only draws")

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Second derivatives of the sum."""
        return difference_hessian(lambda w: self.assess(w).gradient, weights)


class CopiesProblem(GenerativeProblem):
    """Any objective, on one copy of the graph for each distinct row."""

    def __init__(
        self, parameters: PairwiseParameters, samples: Samples, objective: Objective
    ) -> None:
        super().__init__(parameters, samples)
        self.objective: Objective = objective
        self.is_smooth = objective.is_smooth
        self.is_conservative = objective.is_conservative
        graph = parameters.graph
        entries = int(graph.unary_offsets[-1] + graph.table_offsets[-1])
        size = max(1, ENTRIES_PER_CHUNK // max(1, entries))
        starts = range(0, samples.n_rows, size)
        self._chunks = [slice(begin, min(begin + size, samples.n_rows)) for begin in starts]
        self._batches = {
            length: Batch.of([graph] * length)
            for length in {chunk.stop - chunk.start for chunk in self._chunks}
        }
        self._states: list[Any] = [None] * len(self._chunks)

    def assess(self, weights: FloatArray) -> Assessment:
        value: float | None = 0.0
        gradient = np.zeros(self.n_weights)
        n_unconverged = 0
        for index, chunk in enumerate(self._chunks):
            evaluation, rows = self._evaluate(index, weights)
            given = self.samples.weights[chunk]
            gradient += self.parameters.gradient(self._as_potentials(given @ rows))
            n_unconverged += int((~evaluation.converged_examples).sum())
            if evaluation.values is None:
                value = None
            elif value is not None:
                value += float(given @ evaluation.values)
        return Assessment(value, gradient, n_unconverged, self.samples.n_rows)

    def scores(self, weights: FloatArray) -> FloatArray:
        scores = np.empty((self.samples.n_rows, self.n_weights))
        for index, chunk in enumerate(self._chunks):
            _, rows = self._evaluate(index, weights)
            for row, gradient in zip(range(chunk.start, chunk.stop), rows, strict=True):
                scores[row] = self.parameters.gradient(self._as_potentials(gradient))
        return scores

    def _evaluate(self, index: int, weights: FloatArray) -> tuple[Any, FloatArray]:
        """The objective on one chunk, with its gradient as one row for each copy."""
        chunk = self._chunks[index]
        labels = self.samples.labels[chunk].astype(np.int32).reshape(-1)
        n_copies = chunk.stop - chunk.start
        batch = self._batches[n_copies]
        one = self.parameters.potentials(weights)
        potentials = Potentials.from_flat(
            batch.graph, np.tile(one.unary_values, n_copies), np.tile(one.factor_values, n_copies)
        )
        evaluation = self.objective.evaluate(batch, potentials, labels, self._states[index])
        self._states[index] = evaluation.state
        unary = evaluation.gradient.unary_values.reshape(n_copies, -1)
        tables = evaluation.gradient.factor_values.reshape(n_copies, -1)
        return evaluation, np.concatenate([unary, tables], axis=1)

    def _as_potentials(self, vector: FloatArray) -> Potentials:
        graph = self.parameters.graph
        unary, tables = np.split(vector, [int(graph.unary_offsets[-1])])
        return Potentials.from_flat(graph, unary, tables)

    def forget(self) -> None:
        self._states = [None] * len(self._chunks)


@dataclass(frozen=True)
class ObservedPart(Objective):
    """The log-partition with the known labels observed, by some inference (nothing to minimise)."""

    name: ClassVar[str] = "observed"
    inference: Inference

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        result = self.inference.run_batch(batch, potentials, observed=labels, init=init)
        gradient = Potentials.from_flat(
            batch.graph, result.beliefs.unary_values, result.beliefs.factor_values
        )
        return Evaluation(
            result.log_partitions, gradient, converged_examples(result, batch), result
        )

    def prediction(self, graph: FactorGraph) -> Inference:
        return self.inference
