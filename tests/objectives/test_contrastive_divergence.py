"""Contrastive divergence against its exact expectation, and what chains remember."""

import numpy as np
import pytest
from reference.gibbs import sweep_matrix

import fieldfit as ff
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.inference.junction_tree.exact import sample_exactly
from fieldfit.objectives.contrastive_divergence import ContrastiveDivergence

#: Draws of each estimate, and how many standard errors it may be away: of about 100 comparisons in
#: this file one in ten thousand runs would fail by chance, and the seeds are fixed.
N_DRAWS, STANDARD_ERRORS = 20_000, 5.0


def model(seed, cardinalities=(2, 3, 2, 2), scopes=((0, 1), (1, 2), (2, 3), (3, 0), (0, 1, 2))):
    graph = ff.FactorGraph(cardinalities, scopes)
    rng = np.random.default_rng(seed)
    unary = rng.normal(size=graph.unary_offsets[-1])
    return graph, ff.Potentials.from_flat(graph, unary, rng.normal(size=graph.table_offsets[-1]))


def copies(graph, potentials, n):
    batch = Batch.of([graph] * n)
    tiled = (np.tile(part, n) for part in (potentials.unary_values, potentials.factor_values))
    return batch, ff.Potentials.from_flat(batch.graph, *tiled)


def rows(gradient, n):
    """The gradient of each copy."""
    parts = gradient.unary_values, gradient.factor_values
    return np.concatenate([part.reshape(n, -1) for part in parts], axis=1)


def statistics(graph):
    """Indicators of every configuration, one row each."""
    found = []
    for labels in ff.BruteForce().configurations(graph):
        beliefs = ff.Beliefs.from_labels(graph, labels)
        found.append(np.concatenate([beliefs.unary_values, beliefs.factor_values]))
    return np.array(found)


def require_mean(samples, expected):
    # of events so rare that they were not seen, as many as chance could have kept away
    unseen = 2.0 * STANDARD_ERRORS / len(samples)
    error = samples.std(axis=0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(axis=0) - expected) <= STANDARD_ERRORS * error + unseen)


@pytest.mark.parametrize("n_sweeps", [1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_gradient_averages_to_its_expectation(n_sweeps, seed):
    graph, potentials = model(seed)
    configurations = ff.BruteForce().configurations(graph)
    labels = configurations[7 * seed + 5]
    start = np.all(configurations == labels, axis=1).astype(float)
    after = start @ np.linalg.matrix_power(sweep_matrix(graph, potentials), n_sweeps)
    expected = (after - start) @ statistics(graph)
    batch, tiled = copies(graph, potentials, N_DRAWS)
    objective = ContrastiveDivergence(n_sweeps, random_state=seed)
    found = objective.evaluate(batch, tiled, np.tile(labels, N_DRAWS).astype(np.int32))
    assert found.values is None
    require_mean(rows(found.gradient, N_DRAWS), expected)


def test_the_comparison_can_fail():
    """One sweep more, and the same number of draws tells the difference."""
    graph, potentials = model(0)
    configurations = ff.BruteForce().configurations(graph)
    start = np.all(configurations == configurations[5], axis=1).astype(float)
    expected = (start @ sweep_matrix(graph, potentials) - start) @ statistics(graph)
    batch, tiled = copies(graph, potentials, N_DRAWS)
    labels = np.tile(configurations[5], N_DRAWS).astype(np.int32)
    found = ContrastiveDivergence(2).evaluate(batch, tiled, labels)
    with pytest.raises(AssertionError):
        require_mean(rows(found.gradient, N_DRAWS), expected)


def test_missing_labels_are_drawn_first():
    """With many sweeps the gradient is that of the likelihood: free minus observed moments."""
    graph, potentials = model(2)
    labels = np.array([1, -1, 0, -1], dtype=np.int32)
    _, exact = ff.Likelihood().value_and_grad(graph, potentials, labels)
    batch, tiled = copies(graph, potentials, N_DRAWS)
    objective = ContrastiveDivergence(n_sweeps=30, n_hidden_sweeps=30)
    found = objective.evaluate(batch, tiled, np.tile(labels, N_DRAWS))
    expected = np.concatenate([exact.unary_values, exact.factor_values])
    require_mean(rows(found.gradient, N_DRAWS), expected)


def test_persistent_chains_forget_the_data():
    """After many evaluations of one sweep they are draws of the model."""
    graph, potentials = model(3)
    labels = ff.BruteForce().configurations(graph)[0]
    _, exact = ff.Likelihood().value_and_grad(graph, potentials, labels)
    batch, tiled = copies(graph, potentials, N_DRAWS)
    given = np.tile(labels, N_DRAWS).astype(np.int32)
    objective = ContrastiveDivergence(1, persistent=True)
    state = None
    for _ in range(30):
        found = objective.evaluate(batch, tiled, given, state)
        state = found.state
    expected = np.concatenate([exact.unary_values, exact.factor_values])
    require_mean(rows(found.gradient, N_DRAWS), expected)


def test_the_same_weights_give_the_same_answer():
    graph, potentials = model(4)
    objective = ContrastiveDivergence(1)
    labels = [0, 2, 1, 1]
    first, again, other = (
        given.value_and_grad(graph, potentials, labels)[1].factor_values
        for given in (objective, objective, ContrastiveDivergence(1, random_state=1))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_it_learns_an_ising_model():
    """Weights from samples of a model come near those of exact learning."""
    rng = np.random.default_rng(5)
    edges = [(i, i + 1) for i in range(5)] + [(0, 5), (1, 4)]
    graph = ff.FactorGraph([2] * 6, edges)
    tables = [np.array([[c, -c], [-c, c]]) for c in rng.uniform(-0.6, 0.6, len(edges))]
    unary = [np.array([-f, f]) for f in rng.uniform(-0.3, 0.3, 6)]
    potentials = ff.Potentials(graph, unary=unary, factors=tables)
    samples = sample_exactly(graph, potentials, 3000, random_state=0)
    exact = ff.IsingModel("likelihood", l2=1.0).fit(samples, edges=edges)
    found = ff.IsingModel("cd", l2=1.0, max_iter=400).fit(samples, edges=edges)
    np.testing.assert_allclose(found.weights_, exact.weights_, atol=0.06)
    assert found.converged_
    with pytest.raises(InvalidInputError, match="standard errors need an objective with a gradie"):
        found.standard_errors_  # noqa: B018


def test_bad_options_and_data():
    with pytest.raises(InvalidInputError, match="n_sweeps must be an integer of at least 1, got 0"):
        ContrastiveDivergence(0)
    with pytest.raises(InvalidInputError, match="n_hidden_sweeps must be an integer"):
        ContrastiveDivergence(n_hidden_sweeps=1.5)
    graph = ff.FactorGraph([2, 2], [(0, 1)])
    potentials = ff.Potentials(graph, factors=[[[0.0, -np.inf], [0.0, 0.0]]])
    for labels in ([0, 1], [-1, 1]):
        if labels[0] >= 0:
            with pytest.raises(ZeroWeightError, match="those of example 0 of 1 are ruled out"):
                ContrastiveDivergence().value_and_grad(graph, potentials, labels)
        else:
            ContrastiveDivergence().value_and_grad(graph, potentials, labels)
