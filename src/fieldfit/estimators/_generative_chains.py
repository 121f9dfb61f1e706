"""Contrastive divergence of generative models: one Gibbs chain for each sample, one shared model.

Samples are cut into mini-batches at random, once; a learner takes a step after each of them.  The
chains of a mini-batch run together on the model at the current weights, and no graph is made for a
sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.potentials import Potentials
from fieldfit.estimators._generative_copies import GenerativeProblem
from fieldfit.estimators._generative_parameters import PairwiseParameters
from fieldfit.estimators._generative_samples import Samples
from fieldfit.inference._chains import ChainRunner
from fieldfit.inference._conditioned import condition, sweep_form
from fieldfit.kernels.gibbs import Chains
from fieldfit.kernels.models import GeneralModel
from fieldfit.kernels.sample_conditionals import count_pairs
from fieldfit.learner.problem import Assessment, n_threads, total
from fieldfit.objective.contrastive_divergence import ContrastiveDivergence, Drawn

__all__ = ["ChainsProblem"]

FloatArray = NDArray[np.float64]
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


class ChainsProblem(GenerativeProblem):
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
        self._drawn: list[list[Drawn | None]] = []
        self.forget()

    def assess(self, weights: FloatArray) -> Assessment:
        return total([self.assess_part(weights, part) for part in range(self.n_parts)])

    def assess_part(self, weights: FloatArray, part: int) -> Assessment:
        given = self.parameters
        potentials = given.potentials(weights)
        model, colors = condition(given.graph, potentials, None)
        k = given.n_labels
        unary = np.zeros((given.n_variables, k))
        tables = np.zeros((given.n_edges, k, k))
        n_rows = 0
        for index, rows in enumerate(self._parts[part]):
            drawn = self._draw(rows, self._drawn[part][index], potentials, model, colors)
            self._drawn[part][index] = drawn
            for labels, sign in ((drawn.chain, 1.0), (drawn.completed, -1.0)):
                # the kernel counts labels of two bytes
                short = labels.astype(np.int16)
                count_pairs(short, sign * rows.weights, given.edges, unary, tables)
            n_rows += len(rows.labels)
        return Assessment(None, given.table_gradient(unary, tables), 0, n_rows)

    def _draw(
        self,
        rows: _Rows,
        before: Drawn | None,
        potentials: Potentials,
        model: GeneralModel,
        colors: NDArray[np.int32],
    ) -> Drawn:
        """Complete the samples, and let all variables go."""
        options = self.objective
        generator = options.generator(potentials, before, rows.labels)
        completed = rows.labels.copy()
        if rows.missing.any():
            if before is None:
                size = (len(completed), int(rows.missing.sum()))
                completed[:, rows.missing] = generator.integers(self.parameters.n_labels, size=size)
            else:
                completed[:, rows.missing] = before.completed[:, rows.missing]
            chosen = rows.missing[model.variables]
            hidden = model._replace(variables=model.variables[chosen])
            self._sweep(completed, options.n_hidden_sweeps, hidden, colors[chosen], generator)
        chain = completed.copy()
        if options.persistent and before is not None:
            chain = before.chain.copy()
        self._sweep(chain, options.n_sweeps, model, colors, generator)
        return Drawn(completed, chain)

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

    def forget(self) -> None:
        """Chains start at the samples again."""
        self._drawn = [[None] * len(part) for part in self._parts]

    def scores(self, weights: FloatArray) -> FloatArray:
        raise NotImplementedError("draws of a gradient have no standard errors")


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
