"""From fitted weights and parts to beliefs, labels, bounds and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import TooLargeError
from fieldfit.inference.bounds import log_likelihood_bounds
from fieldfit.inference.exact import Exact
from fieldfit.inference.exact_sampling import sample_exactly
from fieldfit.inference.gibbs import Gibbs
from fieldfit.learner.problem import Part, n_threads, one_blas_thread, potentials_of
from fieldfit.objective._base import Objective
from fieldfit.objective.max_margin import default_oracle

__all__ = ["beliefs_of", "best_labels", "bounds_of", "draw_labels", "mapped"]

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]
Answer = TypeVar("Answer")

#: Beyond these, which one example takes about a second to reach, Gibbs sampling takes over.
EXACT_SAMPLING = Exact(max_memory=2e8, max_operations=2e8)
#: Gibbs chains that run side by side; more samples are taken from the same chains later on.
MAX_CHAINS = 64


def mapped(
    function: Callable[[Part], Answer], parts: Iterable[Part], n_jobs: int | None
) -> list[Answer]:
    """Results in the order of the parts; a few parts at a time, because they take room."""
    threads = n_threads(n_jobs)
    with one_blas_thread():
        if threads <= 1:
            return [function(part) for part in parts]
        found: list[Answer] = []
        waiting = iter(parts)
        with ThreadPoolExecutor(threads) as pool:
            while chosen := list(islice(waiting, 2 * threads)):
                found += pool.map(function, chosen)
        return found


def beliefs_of(
    objective: Objective, parts: Iterable[Part], weights: FloatArray, n_jobs: int | None
) -> tuple[list[FloatArray], int]:
    """Unary beliefs of each example, and how many examples' inference did not converge."""

    def infer(part: Part) -> tuple[list[FloatArray], int]:
        potentials = potentials_of(objective.templates(part.template), weights)
        result = objective.prediction(part.batch.graph).run_batch(part.batch, potentials)
        beliefs = np.split(result.beliefs.unary_matrix(), part.batch.variable_offsets[1:-1])
        converged = result.converged_examples
        return beliefs, 0 if converged is None else int((~converged).sum())

    found = mapped(infer, parts, n_jobs)
    return [one for beliefs, _ in found for one in beliefs], sum(failed for _, failed in found)


def best_labels(
    objective: Objective,
    decoding: str,
    parts: Iterable[Part],
    weights: FloatArray,
    n_jobs: int | None,
) -> tuple[list[LabelArray], int]:
    """Labels of each example, and how many examples' inference did not converge.

    ``decoding`` is ``"marginals"``, the label of largest belief, or ``"map"``: the jointly best
    labels by the objective's own search or, if it has none, by `default_oracle`.  A search that
    proves nothing does not count as not converged.
    """
    if decoding == "marginals":
        beliefs, n_unconverged = beliefs_of(objective, parts, weights, n_jobs)
        return [one.argmax(axis=1).astype(np.int32) for one in beliefs], n_unconverged

    def search(part: Part) -> list[LabelArray]:
        oracle = getattr(objective, "oracle", None) or default_oracle(part.batch.graph)
        labels = oracle.run_batch(part.batch, part.template.potentials(weights)).labels
        return np.split(labels, part.batch.variable_offsets[1:-1])

    return [one for found in mapped(search, parts, n_jobs) for one in found], 0


def bounds_of(
    parts: Iterable[Part], weights: FloatArray, n_jobs: int | None
) -> tuple[FloatArray, FloatArray]:
    """Bounds on the log-likelihood of each example's labels."""

    def bracket(part: Part) -> tuple[FloatArray, FloatArray]:
        return log_likelihood_bounds(part.batch, part.template.potentials(weights), part.labels)

    found = mapped(bracket, parts, n_jobs)
    return np.concatenate([low for low, _ in found]), np.concatenate([high for _, high in found])


def draw_labels(
    graph: FactorGraph,
    potentials: Potentials,
    n_samples: int,
    generator: np.random.Generator,
    burn_in: int,
    n_sweeps_between: int,
) -> LabelArray:
    """Samples, one in each row: exact and independent where that is cheap, else by Gibbs chains."""
    try:
        return sample_exactly(
            graph, potentials, n_samples, random_state=generator, limits=EXACT_SAMPLING
        )
    except TooLargeError:
        n_chains = max(1, min(n_samples, MAX_CHAINS))
        gibbs = Gibbs(burn_in=burn_in, n_chains=n_chains, random_state=generator)
        return gibbs.sample(graph, potentials, n_samples, n_sweeps_between)
