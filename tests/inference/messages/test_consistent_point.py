"""Points of the local polytope after a few sweeps."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.graph.batch import Batch
from fieldfit.inference.messages.local_polytope_point import ConsistentPoints, fill_consistent_pairs


def grid_potentials(scale, seed, shape=(4, 5)):
    graph = ff.FactorGraph.grid(*shape, 2)
    rng = np.random.default_rng(seed)
    potentials = ff.Potentials(
        graph,
        rng.normal(scale=scale, size=(graph.n_variables, 2)),
        rng.normal(scale=scale, size=(graph.n_factors, 2, 2)),
    )
    return graph, potentials


def margins(graph, point):
    cut = 2 * graph.n_variables
    unary, tables = point[:cut].reshape(-1, 2), point[cut:].reshape(-1, 2, 2)
    pairs = graph.slot_variables.reshape(-1, 2)
    return (
        tables,
        (tables.sum(axis=2), unary[pairs[:, 0]]),
        (tables.sum(axis=1), unary[pairs[:, 1]]),
    )


@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0, 40.0, 2000.0])
@pytest.mark.parametrize("n_sweeps", [1, 3])
def test_a_point_of_the_polytope_after_any_number_of_sweeps(scale, n_sweeps):
    graph, potentials = grid_potentials(scale, 0)
    points = ConsistentPoints(Batch.of([graph]), ff.TreeReweighted())
    for _ in range(3):
        tables, left, right = margins(graph, points.find(potentials, n_sweeps))
        assert np.all(tables >= 0.0)
        for found, expected in (left, right):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("entropy", [ff.TreeReweighted(), ff.Convex(unary=0.3, factor=0.7)])
def test_it_comes_to_the_beliefs_of_messages(entropy):
    graph, potentials = grid_potentials(1.0, 1)
    points = ConsistentPoints(Batch.of([graph]), entropy)
    for _ in range(60):
        found = points.find(potentials, 5)
    beliefs = ff.SumProduct(entropy, tol=1e-12, max_iter=5000).run(graph, potentials).beliefs
    expected = np.concatenate([beliefs.unary_values, beliefs.factor_values])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


def test_tables_against_a_search_for_the_odds():
    """With margins fixed one number is free, and the best table has the odds of the potentials."""
    graph = ff.FactorGraph.chain(2, 2)
    rng = np.random.default_rng(2)
    for _ in range(200):
        p, r = rng.uniform(0.02, 0.98, size=2)
        log_table, weight = rng.normal(scale=2.0, size=4), rng.uniform(0.3, 1.0)
        strength = (log_table[0] + log_table[3] - log_table[1] - log_table[2]) / weight
        unary, table = np.array([1.0 - p, p, 1.0 - r, r]), np.empty(4)
        fill_consistent_pairs(graph.structure, log_table, np.array([weight]), unary, table)

        low, high = max(0.0, p + r - 1.0), min(p, r)
        for _ in range(200):
            both = 0.5 * (low + high)
            odds = both * (1.0 - p - r + both), (p - both) * (r - both)
            low, high = (both, high) if odds[0] < np.exp(strength) * odds[1] else (low, both)
        expected = [1.0 - p - r + both, r - both, p - both, both]
        np.testing.assert_allclose(table, expected, rtol=1e-8, atol=1e-13)


def test_what_it_suits():
    tree = ff.TreeReweighted()
    assert ConsistentPoints.suits(Batch.of([ff.FactorGraph.grid(2, 2, 2)]), tree)
    assert not ConsistentPoints.suits(Batch.of([ff.FactorGraph.grid(2, 2, 3)]), tree)
    triple = ff.FactorGraph([2, 2, 2], [(0, 1, 2)])
    assert not ConsistentPoints.suits(Batch.of([triple]), tree)
