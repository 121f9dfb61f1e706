"""Sums over matchings: enumeration, factor graphs, derivatives, closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reference.matchings import bipartite_matchings, general_matchings, partition

import fieldfit as ff
from fieldfit.inference.matching.matching_partition import matching_partition
from fieldfit.inference.matching.matching_polytope import matching_edges, matching_graph

INF = np.inf


def random_weights(rng, n, m, kind, scale, zeros):
    weights = scale * rng.normal(size=(n, m))
    weights[rng.random((n, m)) < zeros] = -INF
    if kind == "general":
        weights = np.triu(weights, 1) + np.triu(weights, 1).T
        weights = np.where(np.isnan(weights), -INF, weights)
        np.fill_diagonal(weights, rng.normal(size=n))  # not used
    return weights


def compare(weights, kind, perfect, *, rtol=1e-12):
    """True if there is a matching."""
    n, m = weights.shape
    every = (
        general_matchings(n, perfect=perfect)
        if kind == "general"
        else bipartite_matchings(n, m, perfect=perfect)
    )
    value, marginals = partition(weights, every)
    if value == -INF:
        with pytest.raises(ff.errors.ZeroWeightError, match="must allow a perfect matching"):
            matching_partition(weights, kind, perfect)
        return False
    result = matching_partition(weights, kind, perfect)
    assert result.log_partition == pytest.approx(value, rel=rtol, abs=rtol)
    expected = np.zeros((n, m))
    for (i, j), share in marginals.items():
        expected[i, j] = share
        if kind == "general":
            expected[j, i] = share
    assert np.allclose(result.marginals, expected, rtol=1e-10, atol=1e-13)
    return True


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("kind", ["bipartite", "general"])
def test_against_enumeration(kind, perfect):
    n_feasible = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(0, 6, 2)
        m = n if kind == "general" else m
        scale, zeros = (1.0, 30.0, 400.0)[seed % 3], 0.3 * (seed % 2)
        weights = random_weights(rng, n, m, kind, scale, zeros)
        n_feasible += compare(weights, kind, perfect)
    assert n_feasible > (90 if perfect else 299)


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("kind", ["bipartite", "general"])
def test_up_to_eight(kind, perfect):
    for n in (6, 7, 8):
        if (n, perfect, kind) == (8, False, "bipartite"):
            continue  # 1.4 million matchings: 7 with 8 is enough
        rng = np.random.default_rng(n)
        compare(random_weights(rng, n, n, kind, 2.0, 0.1), kind, perfect)
    if kind == "bipartite":
        for shape in ((5, 8), (8, 5)):
            rng = np.random.default_rng(9)
            assert compare(random_weights(rng, *shape, kind, 2.0, 0.0), kind, perfect)


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("kind", ["bipartite", "general"])
def test_marginals_are_the_gradient(kind, perfect):
    rng = np.random.default_rng(3)
    weights = random_weights(rng, 6, 6, kind, 1.0, 0.0)
    result = matching_partition(weights, kind, perfect)
    step = 1e-5
    for i, j in matching_edges(weights, kind):
        ends = []
        for sign in (1.0, -1.0):
            moved = weights.copy()
            moved[i, j] += sign * step
            if kind == "general":
                moved[j, i] = moved[i, j]
            ends.append(matching_partition(moved, kind, perfect).log_partition)
        slope = (ends[0] - ends[1]) / (2.0 * step)
        assert result.marginals[i, j] == pytest.approx(slope, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("kind", ["bipartite", "general"])
def test_against_the_factor_graph(kind, perfect):
    weights = random_weights(np.random.default_rng(4), 4, 4, kind, 1.0, 0.0)
    exact = ff.BruteForce().run(*matching_graph(weights, kind, perfect=perfect))
    result = matching_partition(weights, kind, perfect)
    assert result.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
    rows, columns = matching_edges(weights, kind).T
    assert np.allclose(
        result.marginals[rows, columns], exact.beliefs.unary_matrix()[:, 1], rtol=1e-11, atol=0.0
    )
    if kind == "bipartite" and perfect:
        labels = ff.BruteForce().run(*matching_graph(weights, encoding="labels"))
        assert result.log_partition == pytest.approx(labels.log_partition, rel=1e-12)
        assert np.allclose(result.marginals, labels.beliefs.unary_matrix(), rtol=1e-11, atol=0.0)


def test_numbers_of_matchings():
    """Factorials, double factorials, involutions."""
    for n in (1, 4, 9, 16):
        full = matching_partition(np.zeros((n, n)))
        assert full.log_partition == pytest.approx(math.lgamma(n + 1), rel=1e-13)
        assert full.marginals == pytest.approx(np.full((n, n), 1.0 / n), rel=1e-12)
    for n in (2, 8, 16):
        pairs = matching_partition(np.zeros((n, n)), "general")
        double_factorial = math.prod(range(1, n, 2))
        assert math.exp(pairs.log_partition) == pytest.approx(double_factorial, rel=1e-11)
    involutions = [1, 1]
    for n in range(2, 15):
        involutions.append(involutions[-1] + (n - 1) * involutions[-2])
    free = matching_partition(np.zeros((14, 14)), "general", perfect=False)
    assert math.exp(free.log_partition) == pytest.approx(involutions[14], rel=1e-11)
    placements = sum(math.comb(6, k) * math.perm(9, k) for k in range(7))
    rooks = matching_partition(np.zeros((6, 9)), perfect=False)
    assert math.exp(rooks.log_partition) == pytest.approx(placements, rel=1e-12)


def test_a_marginal_matrix_is_doubly_stochastic():
    weights = 5.0 * np.random.default_rng(1).normal(size=(15, 15))
    marginals = matching_partition(weights).marginals
    assert np.abs(marginals.sum(axis=0) - 1.0).max() < 1e-12
    assert np.abs(marginals.sum(axis=1) - 1.0).max() < 1e-12


def test_what_is_refused():
    with pytest.raises(ff.errors.ZeroWeightError, match="must allow a perfect matching"):
        matching_partition(np.zeros((3, 3)), "general")
    with pytest.raises(ff.errors.TooLargeError, match=r"subsets of 30 need 17.2 GB"):
        matching_partition(np.zeros((30, 30)))
    with pytest.raises(ff.InvalidInputError, match=r"must be symmetric, got 0.0 at \(0, 1\)"):
        matching_partition([[0.0, 0.0], [1.0, 0.0]], "general")
    with pytest.raises(ff.InvalidInputError, match=r"below \+inf .* got nan at \(0, 0\)"):
        matching_partition([[np.nan]])


def test_the_comparison_can_fail():
    weights = np.random.default_rng(0).normal(size=(3, 3))
    value, _ = partition(weights, bipartite_matchings(3, 3, perfect=True))
    assert matching_partition(weights + 1e-6).log_partition != pytest.approx(value, rel=1e-12)
