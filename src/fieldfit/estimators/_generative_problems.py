"""What the generative estimators minimise: sums over samples that share one model.

No graph is made for a sample.  Each problem also gives the scores (one gradient for each distinct
row) and the Hessian, from which standard errors come.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.estimators._generative_copies import CopiesProblem, GenerativeProblem, ObservedPart
from fieldfit.estimators._generative_missing import MissingRows
from fieldfit.estimators._generative_parameters import IsingParameters, PairwiseParameters
from fieldfit.estimators._generative_partition import Partition, make_partition
from fieldfit.estimators._generative_rows import binary_hessian, conditional_scores
from fieldfit.estimators._generative_samples import Samples
from fieldfit.inference.exact import Exact
from fieldfit.kernels.free_labels import known_conditionals, missing_log_sums
from fieldfit.kernels.sample_conditionals import (
    LANES,
    binary_conditionals,
    count_pairs,
    label_conditionals,
)
from fieldfit.learner.linear import LinearModel, LinearPart
from fieldfit.learner.problem import Assessment, n_threads
from fieldfit.objective._base import Inference, Objective

__all__ = ["ConditionalsProblem", "MomentProblem"]

FloatArray = NDArray[np.float64]


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
