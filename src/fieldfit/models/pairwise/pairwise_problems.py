"""Learning problems of a pairwise Markov random field: sums over samples that share one model.

    likelihood          V B(w) - sum_m v_m <w, statistics of m>          V = sum of v
    pseudo-likelihood   - sum_m v_m sum_i log p(y_mi | other labels of m)

Where it can be avoided, no graph is made for a sample.  Each problem also gives the scores (one
gradient for each distinct row) and the Hessian, from which standard errors come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from fieldfit._parallel import n_threads, ordered_map
from fieldfit._typing import FloatArray, LabelArray
from fieldfit.errors import InvalidInputError, Place
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.frank_wolfe.frank_wolfe import concave_counting_numbers
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.learners.closed_form import SolvedProblem
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.learners.problem import Problem, ProblemValue, SumProblem
from fieldfit.models.dispatch import NotApplicable
from fieldfit.models.pairwise.conditional_scores import binary_hessian, conditional_scores
from fieldfit.models.pairwise.missing_conditionals import missing_conditionals
from fieldfit.models.pairwise.missing_labels import MissingRows, missing_log_sums
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters, PairwiseParameters
from fieldfit.models.pairwise.sample_conditionals import (
    LANES,
    binary_conditionals,
    label_conditionals,
)
from fieldfit.models.pairwise.sample_counts import SampleCounts
from fieldfit.models.pairwise.sample_data import Samples
from fieldfit.models.pairwise.sample_partition import Partition, difference_hessian, make_partition
from fieldfit.objectives.base import Evaluation, Inference, Objective
from fieldfit.objectives.camel import Camel
from fieldfit.objectives.likelihood import Likelihood, converged_examples
from fieldfit.objectives.mle_struct import MESSAGE_TOL, MLEStruct
from fieldfit.objectives.moment_matching import MomentMatching, smoothed_moments
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

__all__ = [
    "LikelihoodProblem",
    "ObservedLogPartition",
    "PairwiseProblem",
    "PseudoLikelihoodProblem",
    "ReplicatedProblem",
]

# -- Any objective: the graph replicated for each distinct row -----------------------------


#: Table entries of the copies of a graph that are evaluated together.
ENTRIES_PER_CHUNK = 2**22


class PairwiseProblem(Problem):
    """Abstract base; one part, because the model is evaluated once for all samples of a shard."""

    n_parts = 1

    def __init__(self, parameters: PairwiseParameters, samples: Samples) -> None:
        self.parameters = parameters
        self.samples = samples
        self.n_weights = parameters.n_weights

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        return self.evaluate(weights)

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
        return difference_hessian(lambda w: self.evaluate(w).gradient, weights)


class ReplicatedProblem(PairwiseProblem):
    """Any objective, on one copy of the graph for each distinct row."""

    is_replayed = True

    def __init__(
        self, parameters: PairwiseParameters, samples: Samples, objective: Objective
    ) -> None:
        super().__init__(parameters, samples)
        self.objective: Objective = objective
        self.is_smooth = objective.is_smooth
        self.is_homogeneous = objective.is_homogeneous
        self.is_conservative = objective.is_conservative
        self.notes = (
            "the objective was evaluated on one copy of the model for each distinct sample",
        )
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

    def evaluate(self, weights: FloatArray) -> ProblemValue:
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
        return ProblemValue(value, gradient, n_unconverged, self.samples.n_rows)

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

    def reset_warm_start(self) -> None:
        self._states = [None] * len(self._chunks)

    def take_warm_start(self) -> Any:
        """What the objective keeps of each chunk."""
        states, self._states = self._states, [None] * len(self._chunks)
        return None if all(state is None for state in states) else states

    def give_warm_start(self, state: Any) -> None:
        """Go on from such states."""
        self._states = [None] * len(self._chunks) if state is None else list(state)

    def graphs(self) -> Sequence[FactorGraph]:
        """The model, then its copies by their number."""
        copies = [self._batches[length].graph for length in sorted(self._batches)]
        return [self.parameters.graph, *copies]


@dataclass(frozen=True)
class ObservedLogPartition(Objective):
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


# -- Pseudo-likelihood and (surrogate) likelihood of one shared model ----------------------


class PseudoLikelihoodProblem(PairwiseProblem):
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

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        value, gradient = self._complete_part(weights)
        if self._missing.n_rows:
            more, unary, tables = self._missing.evaluate(missing_conditionals, weights)
            value += more
            gradient += self.parameters.table_gradient(unary, tables)
        return ProblemValue(value, gradient, 0, self.samples.n_rows)

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
        bounds = np.linspace(0, n_variables, n_jobs + 1).astype(int)
        ordered_map(lambda chosen: run(*chosen), pairwise(bounds.tolist()), n_jobs)

    def scores(self, weights: FloatArray) -> FloatArray:
        complete = self.samples.labels[: self.samples.n_complete]
        rows = conditional_scores(self.parameters, complete, weights)
        return np.concatenate([rows, self._missing.row_gradients(missing_conditionals, weights)])

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Curvature of logistic regressions for complete binary rows, else differences."""
        if not isinstance(self.parameters, IsingParameters):
            return super().hessian(weights)
        known = self.samples.take(slice(0, self.samples.n_complete))
        hessian = binary_hessian(self.parameters, known.labels, known.weights, weights)
        if self._missing.n_rows:
            hessian += self._missing.hessian(missing_conditionals, weights)
        return hessian


class LikelihoodProblem(PairwiseProblem):
    """Exact or surrogate likelihood: ``sum_m v_m (B(w) - B(w; known labels of m))``.

    For complete rows this is ``V B(w) - <w, statistics>`` with ``V = sum of v``.  Missing labels
    are summed out exactly if the inference is exact, otherwise by the same surrogate.  ``counts``
    are given for samples of several shards, or for those that are not in memory at all: there are
    no ``samples`` then.
    """

    def __init__(
        self,
        parameters: PairwiseParameters,
        samples: Samples,
        inference: Inference,
        objective: Objective | None = None,
        counts: SampleCounts | None = None,
    ) -> None:
        super().__init__(parameters, samples)
        self.objective = objective
        self.is_complete = samples.n_complete == samples.n_rows
        self.partition: Partition = make_partition(
            parameters, inference, samples.labels[: samples.n_complete]
        )
        self._missing: MissingRows | None = None
        self._copies: ReplicatedProblem | None = None
        if samples.n_complete < samples.n_rows:
            if isinstance(inference, Exact):
                self._missing = MissingRows(parameters, samples, n_more=0)
            else:
                self._copies = ReplicatedProblem(
                    parameters,
                    samples.take(slice(samples.n_complete, None)),
                    ObservedLogPartition(inference),
                )
        if counts is None:
            counts = likelihood_counts(parameters, [samples], inference)
        self.counts = counts
        self._total = counts.total
        self.statistics = parameters.table_gradient(counts.unary, counts.tables)
        self._frequencies = counts.unary.reshape(-1) / self._total

    def linear_model(self) -> LinearModel:
        """One graph that stands for all samples."""
        if not self.is_complete:
            return super().linear_model()
        batch = Batch.of([self.parameters.graph])
        part = LinearPart(batch, self.parameters, self._frequencies, np.array([self._total]))
        return LinearModel([part], self.statistics, self.counts.n_rows)

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        log_partition, moments = self.partition.evaluate(weights)
        known, statistics, n_unconverged = self.known_part(weights)
        if not self.partition.converged:
            n_unconverged = self.counts.n_rows
        return ProblemValue(
            value=self._total * log_partition - known,
            gradient=self._total * moments - statistics,
            n_unconverged=n_unconverged,
            n_examples=self.counts.n_rows,
        )

    def fingerprint(self) -> str:
        """A digest of what is kept of the samples, and of their counts."""
        digest = sha256(super().fingerprint().encode())
        for array in (self.statistics, np.array([self._total])):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def known_part(self, weights: FloatArray) -> tuple[float, FloatArray, int]:
        """``sum_m v_m B(w; known labels of m)``, its gradient, and how many did not converge."""
        value = float(self.statistics @ weights)
        gradient = self.statistics.copy()
        if self._missing is not None:
            more, unary, tables = self._missing.evaluate(missing_log_sums, weights)
            return value + more, gradient + self.parameters.table_gradient(unary, tables), 0
        if self._copies is not None:
            known = self._copies.evaluate(weights)
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

    def reset_warm_start(self) -> None:
        self.partition.reset_warm_start()
        if self._copies is not None:
            self._copies.reset_warm_start()


def likelihood_counts(
    parameters: PairwiseParameters, shards: Sequence[Samples], inference: Inference
) -> SampleCounts:
    """What the known labels add to a likelihood.

    Rows with missing labels count with their known ones if the missing ones are summed out exactly;
    a surrogate sees such rows as a whole.
    """
    found = SampleCounts.of(shards, parameters.n_labels, parameters.edges)
    if isinstance(inference, Exact) or all(shard.n_complete == shard.n_rows for shard in shards):
        return found
    complete = [shard.take(slice(0, shard.n_complete)) for shard in shards]
    known = SampleCounts.of(complete, parameters.n_labels, parameters.edges)
    return replace(found, unary=known.unary, tables=known.tables)


class MomentMatchingProblem(LikelihoodProblem, SolvedProblem):
    """Surrogate likelihood of untied tables, whose minimum has a closed form."""

    def __init__(
        self,
        parameters: PairwiseParameters,
        samples: Samples,
        objective: MomentMatching,
        counts: SampleCounts | None = None,
    ) -> None:
        inference = objective.prediction(parameters.graph)
        super().__init__(parameters, samples, inference, objective, counts)
        self._matching = objective

    def solution(self) -> tuple[FloatArray, str]:
        """Potentials under which the surrogate has the (smoothed) moments of the samples."""
        self._require_complete()
        graph, matching = self.parameters.graph, self._matching
        counts = self.counts
        unary, tables = counts.unary.reshape(-1), counts.tables.reshape(-1)
        moments = smoothed_moments(graph, unary, tables, counts.total, matching.smoothing)
        return (
            self.parameters.weights_of(matching.potentials(graph, moments)),
            f"the surrogate has the moments of {counts.n_samples} samples, "
            f"smoothing {matching.smoothing:g}",
        )

    def _require_complete(self) -> None:
        rows = self.samples.inverse
        bad = np.flatnonzero((rows < 0) | (rows >= self.samples.n_complete))
        if len(bad):
            row = int(rows[bad[0]])
            column = 0 if row < 0 else int(np.argmax(self.samples.labels[row] < 0))
            raise InvalidInputError(
                "must be complete for moment matching (use another objective), got a missing entry",
                Place("samples", int(bad[0]), column=column),
            )


# -- Where learning begins -----------------------------------------------------------------


#: Size of the entries that couplings of hidden variables start with.
HIDDEN_COUPLING = 0.1


def independent_start(
    parameters: PairwiseParameters, counts: SampleCounts, random_state: int | None = None
) -> FloatArray:
    """Weights of independent variables with the samples' frequencies.

    Half a sample is added to each label, so that one that never occurs has a finite field.
    Variables that are hidden in all samples start with small random couplings: at zero they
    they would be a stationary point, independent of all others, that learning never leaves.
    """
    unary = np.log(counts.unary + 0.5)
    unary -= unary.mean(axis=1, keepdims=True)
    tables = np.zeros((parameters.n_edges, parameters.n_labels**2))
    joined = counts.is_hidden[parameters.edges].any(axis=1)
    if joined.any():
        generator = np.random.default_rng(0 if random_state is None else random_state)
        size = (int(joined.sum()), tables.shape[1])
        tables[joined] = generator.normal(scale=HIDDEN_COUPLING, size=size)
    potentials = Potentials.from_flat(parameters.graph, unary.reshape(-1), tables.reshape(-1))
    return parameters.weights_of(potentials)


# -- The builders that `fieldfit.models.dispatch` names ------------------------------------


@dataclass(frozen=True, eq=False)
class SampleData:
    """One model and its samples, cut into shards.

    ``counts`` are those of samples that are not in memory; there are no shards then.
    """

    parameters: PairwiseParameters
    shards: Sequence[Samples]
    n_jobs: int | None = None
    counts: SampleCounts | None = None

    @cached_property
    def samples(self) -> Samples:
        """All of them, equal rows of different shards put together."""
        if not self.shards:
            return Samples.none(self.parameters.n_variables)
        return Samples.merged(self.shards)

    @property
    def n_samples(self) -> int:
        """How many were given, equal ones and those without labels included."""
        return sum(len(shard.inverse) for shard in self.shards)

    def likelihood_counts(self, inference: Inference) -> SampleCounts:
        """Sums that a likelihood needs, shard by shard."""
        if self.counts is not None:
            return self.counts
        return likelihood_counts(self.parameters, self.shards, inference)

    def summed(self, make: Callable[[Samples], PairwiseProblem]) -> Problem:
        """The sum of the problems of all shards."""
        problems = [make(shard) for shard in self.shards]
        return problems[0] if len(problems) == 1 else SumProblem(problems)


def likelihood_problem(objective: Likelihood | Camel, data: SampleData) -> LikelihoodProblem:
    """The log-partition once for all samples; CAMEL's rounds take its linear model."""
    return _of_counts(objective, data, objective.inference)


def dual_problem(objective: MLEStruct, data: SampleData) -> LikelihoodProblem:
    """The same with a concave entropy: one block of the dual, of the weight of all samples."""
    concave_counting_numbers(objective.entropy, data.parameters.graph)
    return _of_counts(objective, data, SumProduct(entropy=objective.entropy, tol=MESSAGE_TOL))


def _of_counts(objective: Objective, data: SampleData, inference: Inference) -> LikelihoodProblem:
    counts = data.likelihood_counts(inference)
    return LikelihoodProblem(data.parameters, data.samples, inference, objective, counts)


def moment_matching_problem(objective: MomentMatching, data: SampleData) -> MomentMatchingProblem:
    """The surrogate likelihood with its closed form."""
    counts = data.likelihood_counts(objective.prediction(data.parameters.graph))
    return MomentMatchingProblem(data.parameters, data.samples, objective, counts)


def pseudo_likelihood_problem(
    objective: PseudoLikelihood, data: SampleData
) -> Problem | NotApplicable:
    """Kernels over all samples, for conditionals of single variables."""
    if objective.blocks is not None:
        return NotApplicable(
            "the pseudo-likelihood kernels over samples serve single variables, not blocks"
        )
    return data.summed(
        lambda samples: PseudoLikelihoodProblem(data.parameters, samples, data.n_jobs)
    )


def replicated_problem(objective: Objective, data: SampleData) -> Problem:
    """Any objective, on a copy of the graph for each distinct sample of each shard."""
    return data.summed(lambda samples: ReplicatedProblem(data.parameters, samples, objective))
