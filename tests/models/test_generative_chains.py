"""Contrastive divergence of generative models: chains of samples against exact expectations."""

from __future__ import annotations

import numpy as np
import pytest
from reference.gibbs import sweep_matrix
from test_contrastive_divergence import STANDARD_ERRORS, statistics

import fieldfit as ff
from fieldfit.inference.junction_tree.exact import sample_exactly
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters
from fieldfit.models.pairwise.sample_chains import GibbsChainsProblem
from fieldfit.models.pairwise.sample_data import Samples
from fieldfit.objectives.contrastive_divergence import ContrastiveDivergence

EDGES = np.array([[0, 1], [1, 2], [2, 3], [0, 3]])
#: Copies of a sample, so the mean over them has small errors.
N_COPIES = 40_000


def problem(objective, samples):
    parameters = IsingParameters(4, EDGES)
    weights = np.random.default_rng(1).normal(size=parameters.n_weights)
    labels = np.tile(np.asarray(samples, dtype=np.int16), (N_COPIES // len(samples), 1))
    return GibbsChainsProblem(
        parameters, Samples.of(labels, np.ones(len(labels))), objective
    ), weights


def require_gradient(found, expected_moments, problem, n_rows=N_COPIES, n_chains=N_COPIES):
    """Compare with ``E[f]`` of two distributions over configurations, given as their difference."""
    given = problem.parameters
    moments = expected_moments @ statistics(given.graph)
    unary = moments[: 2 * 4].reshape(4, 2)
    expected = n_rows * given.table_gradient(unary, moments[2 * 4 :].reshape(-1, 2, 2))
    # statistics of a chain are at most 2 apart, so this is above the standard error
    error = n_rows / np.sqrt(n_chains)
    np.testing.assert_allclose(found, expected, rtol=0, atol=STANDARD_ERRORS * error)
    assert np.abs(expected).max() > 4 * STANDARD_ERRORS * error  # or nothing is compared


def distribution(graph, potentials):
    scores = ff.BruteForce().scores(graph, potentials)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


@pytest.mark.parametrize("n_sweeps", [1, 2])
def test_complete_samples(n_sweeps):
    sample = [1, 0, 0, 1]
    given, weights = problem(ContrastiveDivergence(n_sweeps), [sample])
    graph, potentials = given.parameters.graph, given.parameters.potentials(weights)
    start = np.all(ff.BruteForce().configurations(graph) == sample, axis=1).astype(float)
    after = start @ np.linalg.matrix_power(sweep_matrix(graph, potentials), n_sweeps)
    require_gradient(given.evaluate(weights).gradient, after - start, given)


def test_missing_labels():
    """Drawn given the others; with many sweeps this is the gradient of the likelihood."""
    sample = np.array([1, -1, 0, -1])
    given, weights = problem(ContrastiveDivergence(25, n_hidden_sweeps=25), [sample])
    graph, potentials = given.parameters.graph, given.parameters.potentials(weights)
    free = distribution(graph, potentials)
    agrees = (ff.BruteForce().configurations(graph) == sample)[:, sample >= 0].all(axis=1)
    observed = np.where(agrees, free, 0.0) / free[agrees].sum()
    require_gradient(given.evaluate(weights).gradient, free - observed, given)


def test_missing_labels_go_on_from_where_they_were():
    """One sweep each time: after many evaluations they, too, are draws given the others."""
    sample = np.array([1, -1, -1, -1])
    given, weights = problem(ContrastiveDivergence(25, n_hidden_sweeps=1), [sample])
    graph, potentials = given.parameters.graph, given.parameters.potentials(weights)
    free = distribution(graph, potentials)
    agrees = ff.BruteForce().configurations(graph)[:, 0] == 1
    observed = np.where(agrees, free, 0.0) / free[agrees].sum()
    nudge = 1e-9 * np.arange(len(weights))  # other random numbers
    for number in range(20):
        found = given.evaluate(weights + number * nudge)
    require_gradient(found.gradient, free - observed, given)


def test_persistent_chains_forget_the_samples_and_others_do_not():
    sample = [1, 0, 0, 1]
    objective = ContrastiveDivergence(1, persistent=True)
    given, weights = problem(objective, [sample])
    graph, potentials = given.parameters.graph, given.parameters.potentials(weights)
    start = np.all(ff.BruteForce().configurations(graph) == sample, axis=1).astype(float)
    n_chains = N_COPIES // given.n_parts
    # the first mini-batch is a sweep away from its samples, the next one another ...
    sweep = sweep_matrix(graph, potentials)
    for part, n_sweeps in ((0, 1), (3, 2)):
        found = given.evaluate_part(weights, part).gradient
        after = start @ np.linalg.matrix_power(sweep, n_sweeps)
        require_gradient(found, after - start, given, n_rows=n_chains, n_chains=n_chains)
    # ... and many of them are draws of the model
    for _ in range(3):
        found = given.evaluate(weights)
    free = distribution(graph, potentials)
    require_gradient(found.gradient, free - start, given, n_chains=n_chains)
    given.reset_warm_start()
    found = given.evaluate_part(weights, 0).gradient
    require_gradient(found, start @ sweep - start, given, n_rows=n_chains, n_chains=n_chains)


def test_persistent_chains_learn():
    """With several mini-batches in an epoch chains keep up with the weights."""
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    graph = ff.FactorGraph([2] * 4, edges)
    tables = [np.array([[0.7, -0.7], [-0.7, 0.7]])] * len(edges)
    samples = sample_exactly(graph, ff.Potentials(graph, factors=tables), 2000, random_state=0)
    exact = ff.IsingModel("likelihood", l2=1.0).fit(samples, edges=edges)
    objective = ContrastiveDivergence(1, persistent=True)
    found = ff.IsingModel(objective, l2=1.0, max_iter=400, random_state=0).fit(samples, edges=edges)
    assert found.converged_
    likelihoods = [model.log_likelihood(samples) / 2000 for model in (exact, found)]
    assert likelihoods[1] > likelihoods[0] - 0.002


@pytest.mark.parametrize("persistent", [False, True])
def test_a_fit_that_is_resumed(tmp_path, persistent):
    """Stopped at a checkpoint and resumed, the weights are the same to the last bit."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]
    graph = ff.FactorGraph([2] * 5, edges)
    tables = [np.array([[0.5, -0.5], [-0.5, 0.5]])] * len(edges)
    samples = sample_exactly(graph, ff.Potentials(graph, factors=tables), 600, random_state=0)
    samples = samples.astype(float)
    samples[::3, 4] = np.nan

    def model(max_iter):
        objective = ContrastiveDivergence(1, persistent=persistent)
        return ff.IsingModel(objective, l2=1.0, max_iter=max_iter, random_state=0)

    whole = model(1000).fit(samples, edges=edges, checkpoint=tmp_path / "whole")
    with pytest.warns(ff.ConvergenceWarning):
        model(30).fit(samples, edges=edges, checkpoint=tmp_path / "parts")
    parts = model(1000).fit(samples, edges=edges, checkpoint=tmp_path / "parts")
    assert whole.converged_
    assert parts.n_iter_ == whole.n_iter_ > 30
    np.testing.assert_array_equal(parts.weights_, whole.weights_)
