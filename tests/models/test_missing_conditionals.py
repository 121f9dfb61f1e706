"""Conditionals of rows with missing labels: one contraction against enumeration of each."""

from __future__ import annotations

import numpy as np
import pytest
from ising_problems import relative_gradient_error
from reference import pairwise_samples as twin

from fieldfit.models.pairwise import missing_conditionals as contracted
from fieldfit.models.pairwise.missing_labels import MissingRows, known_conditionals
from fieldfit.models.pairwise.pairwise_parameters import PottsParameters, full_edges
from fieldfit.models.pairwise.pairwise_problems import PseudoLikelihoodProblem
from fieldfit.models.pairwise.sample_data import Samples


def rows_with_missing(parameters, n_rows, n_missing, seed):
    """Random labels of which each row lacks between one and ``n_missing``."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, parameters.n_labels, (n_rows, parameters.n_variables))
    for m, row in enumerate(labels):
        row[rng.permutation(len(row))[: 1 + m % n_missing]] = -1
    return Samples.of(labels.astype(np.int16), rng.random(n_rows))


def assert_equals_enumeration(parameters, samples, weights, *, rtol=1e-10):
    rows = MissingRows(parameters, samples, n_more=1)
    found = rows.evaluate(contracted.missing_conditionals, weights)
    expected = rows.evaluate(known_conditionals, weights)
    for one, other in zip(found, expected, strict=True):
        scale = max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize("n_labels", [2, 3, 5])
@pytest.mark.parametrize("sparse", [False, True], ids=["full", "sparse"])
def test_equals_enumeration(n_labels, sparse):
    n = 9
    edges = full_edges(n)
    if sparse:  # in both orders, and a variable without neighbours
        edges = edges[(edges < n - 1).all(axis=1)][::4, ::-1]
    parameters = PottsParameters(n, edges, n_labels)
    weights = np.random.default_rng(1).normal(size=parameters.n_weights)
    samples = rows_with_missing(parameters, 30, 4, seed=2)
    assert_equals_enumeration(parameters, samples, weights)


def test_more_lanes_than_are_kept_at_once():
    n = 2 * contracted.MAX_LANES + 7
    edges = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)
    parameters = PottsParameters(n, np.concatenate([edges, full_edges(8)[1:6]]), 2)
    weights = np.random.default_rng(3).normal(size=parameters.n_weights)
    assert_equals_enumeration(parameters, rows_with_missing(parameters, 5, 6, seed=4), weights)


@pytest.mark.parametrize("scale", [30.0, 700.0])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_strong_couplings_stay_right(scale, n_labels):
    parameters = PottsParameters(7, full_edges(7), n_labels)
    rng = np.random.default_rng(5)
    weights = scale * rng.choice([-1.0, 0.0, 1.0], size=parameters.n_weights)
    samples = rows_with_missing(parameters, 20, 3, seed=6)
    assert_equals_enumeration(parameters, samples, weights)


def test_sums_that_underflow_are_enumerated():
    # the labelling of the missing ones that is best with y_i has no weight with another label
    parameters = PottsParameters(3, full_edges(3), 2)
    tables = 700.0 * np.array([np.eye(2), np.eye(2), -np.eye(2)])
    weights = np.concatenate([np.zeros(6), tables.reshape(-1)])
    samples = Samples.of(np.array([[0, -1, 1], [1, 1, -1]], dtype=np.int16), np.ones(2))
    rows = MissingRows(parameters, samples, n_more=1)
    value, *_ = rows.evaluate(contracted.missing_conditionals, weights)
    expected = twin.negative_log_pseudo_likelihood(
        *parameters.tables(weights), parameters.edges, samples.labels, samples.weights
    )
    assert value == pytest.approx(expected, rel=1e-12)
    assert_equals_enumeration(parameters, samples, weights)


def test_gradient_is_that_of_the_value():
    parameters = PottsParameters(6, full_edges(6), 3)
    samples = rows_with_missing(parameters, 12, 3, seed=7)
    weights = np.random.default_rng(8).normal(size=parameters.n_weights)
    problem = PseudoLikelihoodProblem(parameters, samples)
    assert relative_gradient_error(problem, weights) < 1e-6
    np.testing.assert_allclose(
        samples.weights @ problem.scores(weights), problem.evaluate(weights).gradient, atol=1e-10
    )


def test_the_comparison_can_fail():
    parameters = PottsParameters(4, full_edges(4), 2)
    samples = rows_with_missing(parameters, 6, 2, seed=9)
    weights = np.random.default_rng(10).normal(size=parameters.n_weights)
    rows = MissingRows(parameters, samples, n_more=1)
    value, *_ = rows.evaluate(contracted.missing_conditionals, weights)
    other, *_ = rows.evaluate(known_conditionals, 1.0001 * weights)
    assert value != pytest.approx(other, rel=1e-10)
