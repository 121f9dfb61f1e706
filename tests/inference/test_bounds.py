"""Two-sided bounds on log-partitions and log-likelihoods against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from assertions import assert_bound
from objectives import CHOSEN, LABELS
from problems import PROBLEMS

import fieldfit as ff
from fieldfit.inference import likelihood_bounds as bounds
from fieldfit.inference.likelihood_bounds import log_likelihood_bounds, log_partition_bounds


@pytest.fixture
def no_exact(monkeypatch):
    """Exact inference refuses everything, as on large graphs."""

    def refuse(self, *arguments, **options):
        raise ff.errors.TooLargeError("refused by the test")

    monkeypatch.setattr(ff.Exact, "run_batch", refuse)


def exact_log_likelihood(problem, labels):
    scores = ff.BruteForce().scores(problem.graph, problem.potentials)
    every = ff.BruteForce().configurations(problem.graph)
    agree = np.all((labels < 0) | (every == labels), axis=1)
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(scores[agree]) - np.logaddexp.reduce(scores)


def random_batch(count=4, seed=0, scale=1.0):
    """Grids of several sizes, small enough to enumerate."""
    rng = np.random.default_rng(seed)
    graphs = [ff.FactorGraph.grid(2 + m % 2, 3, 2) for m in range(count)]
    potentials = [
        ff.Potentials(
            graph,
            unary=[scale * rng.normal(size=2) for _ in range(graph.n_variables)],
            factors=[scale * rng.normal(size=(2, 2)) for _ in range(graph.n_factors)],
        )
        for graph in graphs
    ]
    labels = [rng.integers(-1, 2, size=graph.n_variables) for graph in graphs]
    return graphs, potentials, [given.astype(np.int32) for given in labels]


def exact_values(graphs, potentials, labels):
    values = []
    for graph, given, known in zip(graphs, potentials, labels, strict=True):
        scores = ff.BruteForce().scores(graph, given)
        every = ff.BruteForce().configurations(graph)
        agree = np.all((known < 0) | (every == known), axis=1)
        values.append(np.logaddexp.reduce(scores[agree]) - np.logaddexp.reduce(scores))
    return np.array(values)


# -- where exact inference is cheap ---------------------------------------------------------


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("problem", CHOSEN, ids=str)
def test_exact_where_that_is_cheap(problem, labels):
    given = LABELS[labels](problem)
    low, high = log_likelihood_bounds(ff.graph.Batch.of([problem.graph]), problem.potentials, given)
    expected = exact_log_likelihood(problem, given)
    slack = 1e-9 * max(1.0, problem.scale)
    assert low[0] == pytest.approx(expected, abs=slack)
    assert high[0] == pytest.approx(expected, abs=slack)
    assert high[0] <= 0.0


# -- where it is not ------------------------------------------------------------------------


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("problem", CHOSEN, ids=str)
def test_bounds_bracket_the_likelihood(problem, labels, no_exact):
    given = LABELS[labels](problem)
    low, high = log_likelihood_bounds(ff.graph.Batch.of([problem.graph]), problem.potentials, given)
    expected = exact_log_likelihood(problem, given)
    slack = 1e-6 * max(1.0, problem.scale)
    assert_bound("lower", low[0], expected, slack=slack)
    assert_bound("upper", high[0], expected, slack=slack)
    assert high[0] <= 0.0


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_bounds_bracket_the_log_partition(problem, no_exact):
    scores = ff.BruteForce().scores(problem.graph, problem.potentials)
    if not np.isfinite(scores).any():
        pytest.skip("nothing is possible")
    exact = np.logaddexp.reduce(scores)
    low, high = log_partition_bounds(ff.graph.Batch.of([problem.graph]), problem.potentials)
    assert_bound("lower", low[0], exact, slack=1e-7)
    assert_bound("upper", high[0], exact, slack=1e-6)


def test_every_example_of_a_batch_has_its_own_bounds(no_exact):
    graphs, potentials, labels = random_batch()
    batch = ff.graph.Batch.of(graphs)
    low, high = log_likelihood_bounds(batch, batch.pack(potentials), np.concatenate(labels))
    expected = exact_values(graphs, potentials, labels)
    assert low.shape == high.shape == (4,)
    assert (low <= expected + 1e-6).all()
    assert (expected <= high + 1e-6).all()
    assert (high - low < 3.0).all()  # they say something
    for m in range(4):
        alone = log_likelihood_bounds(ff.graph.Batch.of([graphs[m]]), potentials[m], labels[m])
        np.testing.assert_allclose([low[m], high[m]], np.ravel(alone), atol=1e-5)


def test_company_does_not_make_bounds_looser(monkeypatch):
    """Examples that are too many for exact inference together are still exact one by one."""
    graph = ff.FactorGraph.grid(3, 3, 2)
    rng = np.random.default_rng(0)
    batch = ff.graph.Batch.of([graph] * 3)
    potentials = ff.Potentials(batch.graph, rng.normal(size=(27, 2)), 0.5 * np.eye(2))
    labels = rng.integers(0, 2, 27).astype(np.int32)
    together = log_likelihood_bounds(batch, potentials, labels)
    cost = ff.Exact().run_batch  # refuses more than one example

    def refuse(self, batch, *arguments, **options):
        if batch.n_examples > 1:
            raise ff.errors.TooLargeError("refused by the test")
        return cost.__func__(self, batch, *arguments, **options)

    monkeypatch.setattr(ff.Exact, "run_batch", refuse)
    for found, expected in zip(
        log_likelihood_bounds(batch, potentials, labels), together, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("max_iter", [1, 3])
def test_bounds_hold_without_convergence(max_iter, no_exact, monkeypatch):
    """The tree-reweighted value proves nothing then; the convex dual still does."""

    class Hasty(ff.SumProduct):
        def __init__(self, entropy, tol=1e-8):
            super().__init__(entropy=entropy, tol=tol, max_iter=max_iter)

    monkeypatch.setattr(bounds, "SumProduct", Hasty)
    graphs, potentials, labels = random_batch(scale=2.0, seed=1)
    batch = ff.graph.Batch.of(graphs)
    low, high = log_likelihood_bounds(batch, batch.pack(potentials), np.concatenate(labels))
    expected = exact_values(graphs, potentials, labels)
    assert (low <= expected + 1e-9).all()
    assert (expected <= high + 1e-9).all()


def test_tree_bounds_are_tight(no_exact):
    graph = ff.FactorGraph.chain(5, 3)
    rng = np.random.default_rng(0)
    potentials = ff.Potentials.from_flat(graph, rng.normal(size=15), rng.normal(size=36))
    exact = np.logaddexp.reduce(ff.BruteForce().scores(graph, potentials))
    low, high = log_partition_bounds(ff.graph.Batch.of([graph]), potentials)
    assert high[0] == pytest.approx(exact, abs=1e-6)
    assert low[0] < exact


# -- hard zeros -----------------------------------------------------------------------------


def exclusive_chain():
    """Neighbours must not both be 1."""
    graph = ff.FactorGraph.chain(3, 2)
    table = np.array([[0.0, 0.3], [0.2, -np.inf]])
    return graph, ff.Potentials(graph, factors=[table, table])


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("labels", [[1, 1, 0], [1, 1, -1]])
def test_impossible_labels_have_no_likelihood(labels, exact, request):
    if not exact:
        request.getfixturevalue("no_exact")
    graph, potentials = exclusive_chain()
    low, high = log_likelihood_bounds(
        ff.graph.Batch.of([graph]), potentials, np.array(labels, dtype=np.int32)
    )
    assert low[0] == high[0] == -np.inf


def test_an_impossible_example_leaves_its_company_alone(no_exact):
    graph, potentials = exclusive_chain()
    batch = ff.graph.Batch.of([graph, graph])
    labels = np.array([1, 1, -1, 0, -1, 1], dtype=np.int32)
    low, high = log_likelihood_bounds(batch, batch.pack([potentials, potentials]), labels)
    expected = exact_values([graph], [potentials], [labels[3:]])[0]
    assert low[0] == high[0] == -np.inf
    assert low[1] <= expected + 1e-6
    assert expected <= high[1] + 1e-6
