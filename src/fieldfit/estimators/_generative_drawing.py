"""Samples from a generative model, and the model of independent variables that fits samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.potentials import Potentials
from fieldfit.errors import TooLargeError
from fieldfit.estimators._generative_parameters import PairwiseParameters
from fieldfit.estimators._generative_samples import Samples
from fieldfit.inference.exact import Exact
from fieldfit.inference.exact_sampling import sample_exactly
from fieldfit.inference.gibbs import Gibbs

__all__ = ["draw_samples", "independent_start"]

FloatArray = NDArray[np.float64]

#: Memory in bytes and table entries up to which samples are exact; about a second.
LIMITS = Exact(max_memory=2.0**28, max_operations=1e8)
#: Gibbs chains that run side by side.
N_CHAINS = 64
#: Size of the entries that couplings of hidden variables start with.
HIDDEN_COUPLING = 0.1


def draw_samples(
    parameters: PairwiseParameters,
    weights: FloatArray,
    n_samples: int,
    generator: np.random.Generator,
    *,
    burn_in: int,
    n_sweeps_between: int,
) -> NDArray[np.int64]:
    """Labels, shape (n_samples, n_variables): exact where that is cheap, else by Gibbs chains."""
    graph, potentials = parameters.graph, parameters.potentials(weights)
    try:
        exact = sample_exactly(graph, potentials, n_samples, random_state=generator, limits=LIMITS)
        return exact.astype(np.int64)
    except TooLargeError:
        n_chains = max(1, min(n_samples, N_CHAINS))
        gibbs = Gibbs(burn_in=burn_in, n_chains=n_chains, random_state=generator)
        drawn = gibbs.sample(graph, potentials, n_samples, n_sweeps_between)
        return drawn.astype(np.int64)


def independent_start(
    parameters: PairwiseParameters, samples: Samples, random_state: int | None = None
) -> FloatArray:
    """Weights of independent variables with the samples' frequencies.

    Half a sample is added to each label, so that one that never occurs has a finite field.
    Variables that are hidden in all samples start with small random couplings: at zero they
    would say nothing about the others, and learning would never find out what they could say.
    """
    counts = np.full((parameters.n_variables, parameters.n_labels), 0.5)
    for label in range(parameters.n_labels):
        counts[:, label] += samples.weights @ (samples.labels == label)
    unary = np.log(counts)
    unary -= unary.mean(axis=1, keepdims=True)
    tables = np.zeros((parameters.n_edges, parameters.n_labels**2))
    hidden = np.all(samples.labels < 0, axis=0)
    joined = hidden[parameters.edges].any(axis=1)
    if joined.any():
        generator = np.random.default_rng(0 if random_state is None else random_state)
        size = (int(joined.sum()), tables.shape[1])
        tables[joined] = generator.normal(scale=HIDDEN_COUPLING, size=size)
    potentials = Potentials.from_flat(parameters.graph, unary.reshape(-1), tables.reshape(-1))
    return parameters.weights_of(potentials)
