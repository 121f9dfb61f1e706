"""What the generative estimators minimise: sums over samples that share one model.

No graph is made for a sample.  Each problem also gives the scores (one gradient for each distinct
row) and the Hessian, from which standard errors come.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np

from fieldfit._typing import FloatArray, LabelArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.learners.problem import Assessment, Problem, n_threads
from fieldfit.models.pairwise.conditional_scores import binary_hessian, conditional_scores
from fieldfit.models.pairwise.missing_labels import (
    MissingRows,
    known_conditionals,
    missing_log_sums,
)
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters, PairwiseParameters
from fieldfit.models.pairwise.sample_conditionals import (
    LANES,
    binary_conditionals,
    count_pairs,
    label_conditionals,
)
from fieldfit.models.pairwise.sample_data import Samples
from fieldfit.models.pairwise.sample_partition import Partition, difference_hessian, make_partition
from fieldfit.objectives.base import Evaluation, Inference, Objective
from fieldfit.objectives.likelihood import converged_examples

__all__ = [
    "ConditionalsProblem",
    "CopiesProblem",
    "GenerativeProblem",
    "MomentProblem",
    "ObservedPart",
]

# -- Any objective on a generative model: one copy of the graph for each distinct row ------


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


# -- The algorithm -------------------------------------------------------------------------


class ConditionalsProblem(GenerativeProblem):
    """Pseudo-likelihood of single variables, missing labels summed out.

    ``- sum_m v_m sum over known i of log p(y_mi | other known labels)``.
    """

    def __init__(
        self, parameters: PairwiseParameters, samples: Samples, n_jobs: int | None = None
    ) -> None:
        super().__init__(parameters, samples)
        self.n_jobs = n_threads(n_jobs)
        complete = samples.labels[: samples.n_complete].astype(np.uint8)
        self._complete = np.ascontiguousarray(complete.T)
        self._missing = MissingRows(parameters, samples, n_more=1)

    def assess(self, weights: FloatArray) -> Assessment:
        value, gradient = self._complete_part(weights)
        if self._missing.n_rows:
            more, unary, tables = self._missing.evaluate(known_conditionals, weights)
            value += more
            gradient += self.parameters.table_gradient(unary, tables)
        return Assessment(value, gradient, 0, self.samples.n_rows)

    def _complete_part(self, weights: FloatArray) -> tuple[float, FloatArray]:
        given, n_complete = self.parameters, self.samples.n_complete
        values = np.zeros(given.n_variables)
        sample_weights = self.samples.weights[:n_complete]
        if isinstance(given, IsingParameters):
            thresholds, couplings = given.binary(weights)
            own = np.zeros(given.n_variables)
            sides = np.zeros((2, given.n_edges))
            self._over_variables(
                lambda begin, end: binary_conditionals(
                    begin, end, given.neighbors, np.ascontiguousarray(thresholds),
                    np.ascontiguousarray(couplings), self._complete, sample_weights,
                    values, own, sides,
                )
            )  # fmt: skip
            return float(values.sum()), given.binary_gradient(own, sides[0] + sides[1])
        fields, tables = given.tables(weights)
        lanes = (0.0,) * (-(-given.n_labels // LANES) * LANES)
        own = np.zeros_like(fields)
        sides = np.zeros((2, *tables.shape))
        self._over_variables(
            lambda begin, end: label_conditionals(
                lanes, begin, end, given.neighbors, fields, tables, self._complete,
                sample_weights, values, own, sides,
            )
        )  # fmt: skip
        sides[0] += sides[1]
        return float(values.sum()), given.table_gradient(own, sides[0])

    def _over_variables(self, run: Callable[[int, int], None]) -> None:
        """Ranges of variables in threads; they write to different places."""
        n_variables = self.parameters.n_variables
        n_jobs = min(self.n_jobs, n_variables)
        if n_jobs == 1:
            run(0, n_variables)
            return
        bounds = np.linspace(0, n_variables, n_jobs + 1).astype(int)
        with ThreadPoolExecutor(n_jobs) as pool:
            list(pool.map(run, bounds[:-1].tolist(), bounds[1:].tolist()))

    def scores(self, weights: FloatArray) -> FloatArray:
        complete = self.samples.labels[: self.samples.n_complete]
        rows = conditional_scores(self.parameters, complete, weights)
        return np.concatenate([rows, self._missing.row_gradients(known_conditionals, weights)])

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Curvature of logistic regressions for complete binary rows, else differences."""
        if not isinstance(self.parameters, IsingParameters):
            return super().hessian(weights)
        known = self.samples.take(slice(0, self.samples.n_complete))
        hessian = binary_hessian(self.parameters, known.labels, known.weights, weights)
        if self._missing.n_rows:
            hessian += self._missing.hessian(known_conditionals, weights)
        return hessian


class MomentProblem(GenerativeProblem):
    """Exact or surrogate likelihood: ``sum_m v_m (B(w) - B(w; known labels of m))``.

    For complete rows this is ``V B(w) - <w, statistics>`` with ``V = sum of v``.  Missing labels
    are summed out exactly if the inference is exact, otherwise by the same surrogate.
    """

    def __init__(
        self,
        parameters: PairwiseParameters,
        samples: Samples,
        inference: Inference,
        objective: Objective | None = None,
    ) -> None:
        super().__init__(parameters, samples)
        self.objective = objective
        self.is_complete = samples.n_complete == samples.n_rows
        self.partition: Partition = make_partition(parameters, inference)
        self._total = float(samples.weights.sum())
        k = parameters.n_labels
        self._missing: MissingRows | None = None
        self._copies: CopiesProblem | None = None
        counted = samples
        if samples.n_complete < samples.n_rows:
            if isinstance(inference, Exact):
                self._missing = MissingRows(parameters, samples, n_more=0)
            else:
                self._copies = CopiesProblem(
                    parameters,
                    samples.take(slice(samples.n_complete, None)),
                    ObservedPart(inference),
                )
                counted = samples.take(slice(0, samples.n_complete))
        unary = np.zeros((parameters.n_variables, k))
        tables = np.zeros((parameters.n_edges, k, k))
        count_pairs(counted.labels, counted.weights, parameters.edges, unary, tables)
        self.statistics = parameters.table_gradient(unary, tables)
        self._frequencies = unary.reshape(-1) / self._total

    def linear_model(self) -> LinearModel:
        """One graph that stands for all samples."""
        if not self.is_complete:
            return super().linear_model()
        batch = Batch.of([self.parameters.graph])
        part = LinearPart(batch, self.parameters, self._frequencies, np.array([self._total]))
        return LinearModel([part], self.statistics, self.samples.n_rows)

    def assess(self, weights: FloatArray) -> Assessment:
        log_partition, moments = self.partition.evaluate(weights)
        known, statistics, n_unconverged = self.known_part(weights)
        if not self.partition.converged:
            n_unconverged = self.samples.n_rows
        return Assessment(
            value=self._total * log_partition - known,
            gradient=self._total * moments - statistics,
            n_unconverged=n_unconverged,
            n_examples=self.samples.n_rows,
        )

    def known_part(self, weights: FloatArray) -> tuple[float, FloatArray, int]:
        """``sum_m v_m B(w; known labels of m)``, its gradient, and how many did not converge."""
        value = float(self.statistics @ weights)
        gradient = self.statistics.copy()
        if self._missing is not None:
            more, unary, tables = self._missing.evaluate(missing_log_sums, weights)
            return value + more, gradient + self.parameters.table_gradient(unary, tables), 0
        if self._copies is not None:
            known = self._copies.assess(weights)
            assert known.value is not None  # a log-partition always has one
            return value + known.value, gradient + known.gradient, known.n_unconverged
        return value, gradient, 0

    def scores(self, weights: FloatArray) -> FloatArray:
        _, moments = self.partition.evaluate(weights)
        scores = moments - self.parameters.statistics(self.samples.labels)
        known = slice(self.samples.n_complete, None)
        if self._missing is not None:
            scores[known] -= self._missing.row_gradients(missing_log_sums, weights)
        if self._copies is not None:
            scores[known] = moments - self._copies.scores(weights)
        return scores

    def hessian(self, weights: FloatArray) -> FloatArray:
        hessian = self._total * self.partition.hessian(weights)
        if self._missing is not None:
            hessian -= self._missing.hessian(missing_log_sums, weights)
        if self._copies is not None:
            hessian -= self._copies.hessian(weights)
        return hessian

    def forget(self) -> None:
        self.partition.forget()
        if self._copies is not None:
            self._copies.forget()
