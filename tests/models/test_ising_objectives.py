"""Objectives of IsingModel against enumeration; gradients and Hessians against differences."""

from __future__ import annotations

import numpy as np
import pytest
from ising_problems import (
    INFERENCES,
    SPARSE,
    N,
    grid_model,
    problem_of,
    random_samples,
    relative_gradient_error,
)
from reference import pairwise_samples as twin

from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters, full_edges
from fieldfit.models.pairwise.pairwise_problems import ReplicatedProblem
from fieldfit.models.pairwise.sample_data import checked_labels
from fieldfit.models.pairwise.sample_partition import EnumeratedPartition, InferredPartition
from fieldfit.objectives.likelihood import Likelihood

# -- values -------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["binary", "spin"])
@pytest.mark.parametrize("edges", [None, SPARSE], ids=["full", "sparse"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("objective", ["pseudolikelihood", "likelihood"])
def test_value_is_that_of_enumeration(objective, missing, edges, encoding):
    values = (-1, 1) if encoding == "spin" else (0, 1)
    rng = np.random.default_rng(1)
    samples = random_samples(missing=missing, values=values)
    sample_weights = rng.random(len(samples))
    edges = full_edges(N) if edges is None else edges
    parameters = IsingParameters(N, edges, encoding)
    weights = rng.normal(size=parameters.n_weights)
    inference = "pseudolikelihood" if objective == "pseudolikelihood" else Exact()
    found = problem_of(inference, parameters, samples, sample_weights).evaluate(weights).value
    tables = twin.ising_tables(weights[:N], parameters.coupling_matrix(weights[N:]), edges, values)
    reference = (
        twin.negative_log_pseudo_likelihood
        if objective == "pseudolikelihood"
        else twin.negative_log_likelihood
    )
    labels = checked_labels(samples, values)
    assert found == pytest.approx(reference(*tables, edges, labels, sample_weights), rel=1e-11)


@pytest.mark.parametrize("name", INFERENCES)
@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_surrogates_equal_the_objective_on_copies_of_the_graph(name, missing):
    """One free part for all samples is the same as one graph for each."""
    rng = np.random.default_rng(2)
    samples = random_samples(missing=missing)
    weights_of_samples = rng.random(len(samples))
    parameters = IsingParameters(N, full_edges(N))
    weights = 0.4 * rng.normal(size=parameters.n_weights)
    inference = INFERENCES[name]
    problem = problem_of(inference, parameters, samples, weights_of_samples)
    found = problem.evaluate(weights)
    rows = problem.samples
    copies = ReplicatedProblem(parameters, rows, Likelihood(inference)).evaluate(weights)
    assert found.n_unconverged == 0
    assert found.value == pytest.approx(copies.value, rel=1e-7)
    np.testing.assert_allclose(found.gradient, copies.gradient, atol=1e-6)


@pytest.mark.parametrize("encoding", ["binary", "spin"])
def test_enumeration_equals_clique_tree(encoding):
    parameters, weights = grid_model()
    parameters = IsingParameters(9, parameters.edges, encoding)
    enumerated = EnumeratedPartition(parameters)
    inferred = InferredPartition(parameters, Exact())
    value, moments = enumerated.evaluate(weights)
    other_value, other_moments = inferred.evaluate(weights)
    assert value == pytest.approx(other_value, rel=1e-12)
    np.testing.assert_allclose(moments, other_moments, atol=1e-12)
    np.testing.assert_allclose(enumerated.hessian(weights), inferred.hessian(weights), atol=1e-7)


# -- gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["binary", "spin"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", ["pseudolikelihood", *INFERENCES])
def test_gradient_is_that_of_differences(name, missing, encoding):
    rng = np.random.default_rng(3)
    values = (-1, 1) if encoding == "spin" else (0, 1)
    samples = random_samples(missing=missing, values=values)
    parameters = IsingParameters(N, full_edges(N), encoding)
    weights = 0.3 * rng.normal(size=parameters.n_weights)
    objective = INFERENCES.get(name, name)
    problem = problem_of(objective, parameters, samples, rng.random(len(samples)))
    assert relative_gradient_error(problem, weights) < 1e-6


def test_difference_check_can_fail():
    parameters = IsingParameters(N, full_edges(N))
    problem = problem_of("pseudolikelihood", parameters, random_samples(), np.ones(12))
    wrong = np.full(parameters.n_weights, 0.1)
    gradient = problem.evaluate
    problem.evaluate = lambda w: type(gradient(w))(
        gradient(w).value, 1.001 * gradient(w).gradient, 0, 1
    )
    assert relative_gradient_error(problem, wrong) > 1e-4


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("name", ["pseudolikelihood", "exact", "bethe", "trw", "convex"])
def test_scores_add_up_and_hessian_is_the_derivative(name, missing):
    rng = np.random.default_rng(4)
    samples = random_samples(missing=missing, values=(-1, 1))
    parameters = IsingParameters(N, full_edges(N), "spin")
    weights = 0.2 * rng.normal(size=parameters.n_weights)
    problem = problem_of(INFERENCES.get(name, name), parameters, samples, rng.random(len(samples)))
    scores = problem.scores(weights)
    gradient = problem.evaluate(weights).gradient
    np.testing.assert_allclose(problem.samples.weights @ scores, gradient, atol=1e-7)
    step = 1e-4
    columns = []
    for index in range(len(weights)):
        moved = weights.copy()
        moved[index] += step
        above = problem.evaluate(moved).gradient
        moved[index] -= 2 * step
        columns.append((above - problem.evaluate(moved).gradient) / (2 * step))
    np.testing.assert_allclose(problem.hessian(weights), np.array(columns), atol=2e-5)
