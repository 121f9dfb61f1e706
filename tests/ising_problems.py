"""Small Ising models and samples for tests, and the check of gradients."""

from __future__ import annotations

import warnings

import numpy as np

from fieldfit.entropy.counting_numbers import Bethe, Convex, TreeReweighted
from fieldfit.errors import ConvergenceWarning
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters
from fieldfit.models.pairwise.pairwise_problems import (
    LikelihoodProblem,
    PseudoLikelihoodProblem,
    ReplicatedProblem,
)
from fieldfit.models.pairwise.sample_data import Samples, checked_labels
from fieldfit.objectives.piecewise import Piecewise
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

N = 5
SPARSE = np.array([[0, 1], [2, 1], [3, 4], [4, 0]])


def random_samples(n_samples=12, n=N, missing=0.0, seed=0, values=(0, 1)):
    rng = np.random.default_rng(seed)
    samples = rng.choice(values, (n_samples, n)).astype(float)
    samples[rng.random(samples.shape) < missing] = np.nan
    samples[: len(values)] = np.array(values)[:, None]  # every column has all values
    return samples


def grid_model(side=3, seed=0, scale=0.5):
    """A grid with random thresholds and couplings, as a fitted-looking model."""
    rng = np.random.default_rng(seed)
    index = np.arange(side * side).reshape(side, side)
    edges = np.concatenate(
        [
            np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], 1),
            np.stack([index[:-1].ravel(), index[1:].ravel()], 1),
        ]
    )
    parameters = IsingParameters(side * side, edges)
    return parameters, scale * rng.normal(size=parameters.n_weights)


def drawn_from(parameters, weights, n_samples, seed):
    """Exact samples from known parameters."""
    model = IsingModel(max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(random_samples(4, parameters.n_variables), parameters.edges)
    model.weights_ = weights
    return model.sample(n_samples, random_state=seed)


def problem_of(objective, parameters, samples, weights):
    labels = checked_labels(samples, (-1, 1) if parameters.encoding == "spin" else (0, 1))
    rows = Samples.of(labels, weights)
    if objective == "pseudolikelihood":
        return PseudoLikelihoodProblem(parameters, rows)
    if isinstance(objective, (PseudoLikelihood, Piecewise)):
        return ReplicatedProblem(parameters, rows, objective)
    return LikelihoodProblem(parameters, rows, objective)


INFERENCES = {
    "exact": Exact(),
    "bethe": SumProduct(entropy=Bethe(), tol=1e-12),
    "trw": SumProduct(entropy=TreeReweighted(), tol=1e-12),
    "convex": SumProduct(entropy=Convex(unary=0.5), tol=1e-12),
    "mean-field": MeanField(tol=1e-13),
}


def relative_gradient_error(problem, weights, step=1e-5):
    """Central differences of the value against the gradient."""
    gradient = problem.evaluate(weights).gradient
    numeric = np.empty_like(weights)
    for index in range(len(weights)):
        moved = weights.copy()
        moved[index] += step
        above = problem.evaluate(moved).value
        moved[index] -= 2 * step
        numeric[index] = (above - problem.evaluate(moved).value) / (2 * step)
    return np.abs(gradient - numeric).max() / np.abs(gradient).max()
