"""Contrastive divergence of a pairwise Markov random field: one Gibbs chain for each sample.

Samples are cut into mini-batches at random, once; a learner takes a step after each of them.  The
chains of a mini-batch run together on the model at the current weights, and no graph is made for a
sample.

Persistent chains belong to no sample: there is one set of them, as many as a mini-batch has
samples, and every mini-batch takes it further.  (With chains for each sample, which move once in an
epoch, the model would run away from them.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit._parallel import n_threads
from fieldfit._typing import FloatArray
from fieldfit.inference.conditioning import GeneralModel, condition, sweep_form
from fieldfit.inference.gibbs.gibbs_chains import ChainRunner
from fieldfit.inference.gibbs.gibbs_sweeps import Chains
from fieldfit.learners.problem import ProblemValue, total
from fieldfit.models.pairwise.pairwise_parameters import PairwiseParameters
from fieldfit.models.pairwise.pairwise_problems import PairwiseProblem, SampleData
from fieldfit.models.pairwise.sample_conditionals import count_pairs
from fieldfit.models.pairwise.sample_data import Samples
from fieldfit.objectives.contrastive_divergence import ContrastiveDivergence, Drawn

__all__ = ["GibbsChainsProblem", "gibbs_chains_problem"]

LabelRows = NDArray[np.int32]

#: Samples in a mini-batch, about, and most mini-batches: more steps than this in an epoch gain
#: little, because the chains have to be set up for each.
SAMPLES_PER_PART, MAX_PARTS = 100, 20


@dataclass(frozen=True)
class _Rows:
    """Samples of one mini-batch, of which the same variables are missing."""

    labels: LabelRows
    weights: FloatArray
    missing: NDArray[np.bool_]


class GibbsChainsProblem(PairwiseProblem):
    """Statistics of the samples against those after some sweeps from them."""

    is_smooth = False
    is_conservative = False

    def __init__(
        self,
        parameters: PairwiseParameters,
        samples: Samples,
        objective: ContrastiveDivergence,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(parameters, samples)
        self.objective: ContrastiveDivergence = objective
        self.n_jobs = n_threads(n_jobs)
        # rows that occur several times have as many chains, which share their weight
        times = np.maximum(np.rint(samples.weights), 1.0).astype(np.int64)
        rows = np.repeat(np.arange(samples.n_rows), times)
        rows = np.random.default_rng(objective.random_state).permutation(rows)
        self.n_parts = min(max(1, len(rows) // SAMPLES_PER_PART), MAX_PARTS)
        share = samples.weights / times
        self._parts = [
            _grouped(samples.labels[part].astype(np.int32), share[part])
            for part in np.array_split(rows, self.n_parts)
        ]
        self._completed: list[list[LabelRows | None]] = []
        self._pool: LabelRows | None = None
        self.reset_warm_start()

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        return total([self.evaluate_part(weights, part) for part in range(self.n_parts)])

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        given, options = self.parameters, self.objective
        potentials = given.potentials(weights)
        model, colors = condition(given.graph, potentials, None)
        k = given.n_labels
        unary = np.zeros((given.n_variables, k))
        tables = np.zeros((given.n_edges, k, k))

        def count(labels: LabelRows, weights_of_rows: FloatArray) -> None:
            # the kernel counts labels of two bytes
            count_pairs(labels.astype(np.int16), weights_of_rows, given.edges, unary, tables)

        found = []
        for index, rows in enumerate(self._parts[part]):
            generator = options.generator(potentials, None, rows.labels)
            completed = self._complete(rows, part, index, model, colors, generator)
            count(completed, -rows.weights)
            found.append(completed)
            if not options.persistent:
                chains = completed.copy()
                self._sweep(chains, options.n_sweeps, model, colors, generator)
                count(chains, rows.weights)
        if options.persistent:
            if self._pool is None:
                self._pool = np.concatenate(found)
            drawn = Drawn(self._pool, self._pool)
            generator = options.generator(potentials, drawn, self._parts[part][0].labels)
            self._sweep(self._pool, options.n_sweeps, model, colors, generator)
            share = sum(rows.weights.sum() for rows in self._parts[part]) / len(self._pool)
            count(self._pool, np.full(len(self._pool), share))
        n_rows = sum(len(rows.labels) for rows in self._parts[part])
        return ProblemValue(None, given.table_gradient(unary, tables), 0, n_rows)

    def _complete(
        self,
        rows: _Rows,
        part: int,
        index: int,
        model: GeneralModel,
        colors: NDArray[np.int32],
        generator: np.random.Generator,
    ) -> LabelRows:
        """The samples with their missing labels drawn, from where the last draw left them."""
        completed = rows.labels.copy()
        if not rows.missing.any():
            return completed
        before = self._completed[part][index]
        if before is None:
            size = (len(completed), int(rows.missing.sum()))
            completed[:, rows.missing] = generator.integers(self.parameters.n_labels, size=size)
        else:
            completed[:, rows.missing] = before[:, rows.missing]
        chosen = rows.missing[model.variables]
        hidden = model._replace(variables=model.variables[chosen])
        self._sweep(completed, self.objective.n_hidden_sweeps, hidden, colors[chosen], generator)
        self._completed[part][index] = completed
        return completed

    def _sweep(
        self,
        labels: LabelRows,
        n_sweeps: int,
        model: GeneralModel,
        colors: NDArray[np.int32],
        generator: np.random.Generator,
    ) -> None:
        """Sweeps over ``model.variables``, in place."""
        graph = self.parameters.graph
        keys = generator.integers(2**64, size=len(labels), dtype=np.uint64)
        chains = Chains(labels, keys)
        with ChainRunner(graph, sweep_form(graph, model), colors, chains, self.n_jobs) as runner:
            runner.advance(n_sweeps)

    def reset_warm_start(self) -> None:
        """Chains start at the samples again."""
        self._completed = [[None] * len(part) for part in self._parts]
        self._pool = None


def _grouped(labels: LabelRows, weights: FloatArray) -> list[_Rows]:
    """Rows with the same missing variables together."""
    patterns, member = np.unique(labels < 0, axis=0, return_inverse=True)
    return [
        _Rows(
            np.ascontiguousarray(labels[member.reshape(-1) == index]),
            weights[member.reshape(-1) == index],
            pattern,
        )
        for index, pattern in enumerate(patterns)
    ]


def gibbs_chains_problem(objective: ContrastiveDivergence, data: SampleData) -> GibbsChainsProblem:
    """Contrastive divergence, for `fieldfit.models.dispatch`."""
    return GibbsChainsProblem(data.parameters, data.samples, objective, data.n_jobs)
