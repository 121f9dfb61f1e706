"""Rounds of Kikuchi's double loop from a data point: free energies fall, points stay, errors."""

from __future__ import annotations

import numpy as np
import pytest
from assertions import assert_distributions, assert_locally_consistent
from problems import random_graph, random_tables
from reference.regions import four_cycles, twin_of

import fieldfit as ff
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.potentials import Beliefs
from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct
from fieldfit.inference.kikuchi.kikuchi_descent import descend_kikuchi
from fieldfit.inference.kikuchi.region_graph import RegionGraph


def smoothed(graph, labels, smoothing=1e-2):
    """Points, moved a little towards the other labels."""
    unary = np.repeat(smoothing / graph.cardinalities, graph.cardinalities)
    unary[graph.unary_offsets[:-1] + labels] += 1.0 - smoothing
    return unary


def random_case(seed, strongest=5.0):
    """A grid or a hypergraph, couplings of any strength, data, and how many rounds."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        graph = random_graph(rng, 6, 8, max_arity=3, max_labels=3)
    else:
        graph = ff.FactorGraph.grid(*[(3, 3, 2), (2, 3, 3), (4, 2, 2)][int(rng.integers(3))])
    potentials = random_tables(rng, graph, scale=strongest * 10.0 ** rng.uniform(-2.2, 0.0))
    labels = rng.integers(0, graph.cardinalities)
    start = smoothed(graph, labels, 10.0 ** rng.uniform(-4, -1))
    return graph, potentials, start, int(rng.integers(1, 8))


def outer_sets(graph):
    scopes = [graph.scope(a) for a in range(graph.n_factors) if graph.scope(a)]
    pairs = [scope for scope in scopes if len(scope) == 2]
    return [*four_cycles(pairs), *scopes, *((i,) for i in range(graph.n_variables))]


def product_log_table(graph, start, region):
    """Sums of the logarithms of unary beliefs, one axis for each variable."""
    own = [np.log(start[graph.unary_offsets[i] : graph.unary_offsets[i + 1]]) for i in region]
    return sum(np.ix_(*own)) if own else np.zeros(())


def product_free_energy(graph, potentials, start):
    """Minus expected score and entropy of the product distribution, over all configurations."""
    total = 0.0
    unary = np.split(start, graph.unary_offsets[1:-1])
    for labels in np.ndindex(*(int(k) for k in graph.cardinalities)):
        probability = np.prod([u[y] for u, y in zip(unary, labels, strict=True)])
        if probability > 0:
            total += probability * (np.log(probability) - potentials.score(labels))
    return total


# -- free energies ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_start_is_a_product(seed):
    graph, potentials, start, _ = random_case(seed)
    found = descend_kikuchi(graph, potentials, start, n_rounds=0)
    expected = product_free_energy(graph, potentials, start)
    assert found.start_free_energies[0] == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_array_equal(found.free_energies, found.start_free_energies)
    np.testing.assert_allclose(found.unary, start, rtol=0, atol=1e-12)
    for a in range(graph.n_factors):
        table = Beliefs(graph, found.unary, found.factors).factor(a)
        for position, i in enumerate(graph.scope(a)):
            others = tuple(p for p in range(table.ndim) if p != position)
            own = start[graph.unary_offsets[i] : graph.unary_offsets[i + 1]]
            np.testing.assert_allclose(table.sum(axis=others), own, rtol=0, atol=1e-12)


@pytest.mark.parametrize("regions", ["plaquettes", "bethe"])
def test_the_free_energy_never_rises(regions):
    """Over random models, data and numbers of rounds, and round by round."""
    for seed in range(150):
        graph, potentials, start, n_rounds = random_case(seed)
        found = descend_kikuchi(graph, potentials, start, n_rounds, regions=regions)
        assert found.free_energies[0] <= found.start_free_energies[0], seed
        assert np.isfinite(found.free_energies[0])
        more = descend_kikuchi(graph, potentials, start, n_rounds + 2, regions=regions)
        size = 1.0 + abs(found.free_energies[0])
        assert more.free_energies[0] <= found.free_energies[0] + 1e-6 * size, seed


@pytest.mark.parametrize("seed", range(6))
def test_the_value_is_that_of_the_beliefs(seed):
    """Kikuchi's free energy of what comes out, from the twin's own regions."""
    graph, potentials, start, n_rounds = random_case(seed, strongest=1.0)
    found = descend_kikuchi(graph, potentials, start, n_rounds, tol=1e-11, max_iter=20_000)
    assert found.converged_examples.all()
    twin = twin_of(graph, potentials, outer_sets(graph))
    twin.old = {s: product_log_table(graph, start, s) for s in twin.inner}
    for _ in range(n_rounds):
        for sweep in range(60):
            twin.sweep(sweep % 2 == 1)
        twin.old = dict(twin.log_beliefs)
    beliefs = twin.beliefs()
    assert -found.free_energies[0] == pytest.approx(twin.value(beliefs), rel=1e-6, abs=1e-6)
    for i in range(graph.n_variables):
        region = min((r for r in beliefs if i in r), key=len)
        axes = tuple(k for k, j in enumerate(region) if j != i)
        np.testing.assert_allclose(
            found.unary[graph.unary_offsets[i] : graph.unary_offsets[i + 1]],
            beliefs[region].sum(axis=axes),
            rtol=0,
            atol=1e-5,
        )


def test_many_rounds_are_the_double_loop():
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(4, 4, 2)
    potentials = random_tables(rng, graph, scale=0.6)
    start = smoothed(graph, rng.integers(0, 2, 16))
    found = descend_kikuchi(graph, potentials, start, n_rounds=5000, tol=1e-9)
    result = GeneralizedSumProduct(tol=1e-10).run(graph, potentials)
    assert found.free_energies[0] == pytest.approx(-result.log_partition, rel=1e-9)
    np.testing.assert_allclose(found.unary, result.beliefs.unary_values, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.factors, result.beliefs.factor_values, rtol=0, atol=1e-6)


def test_exact_regions_need_one_round():
    """A junction tree without negative entropies: the first round ends at the exact answer."""
    rng = np.random.default_rng(1)
    graph = ff.FactorGraph.grid(2, 2, 3)
    potentials = random_tables(rng, graph)
    found = descend_kikuchi(graph, potentials, smoothed(graph, np.zeros(4, dtype=int)), 1)
    exact = ff.BruteForce().run(graph, potentials)
    assert found.free_energies[0] == pytest.approx(-exact.log_partition, rel=1e-12)


# -- points, zeros, batches ---------------------------------------------------------------


def test_observed_variables_stay_points():
    rng = np.random.default_rng(2)
    graph = ff.FactorGraph.grid(3, 4, 3)
    potentials = random_tables(rng, graph)
    labels = rng.integers(0, 3, 12)
    free = np.ones(12, dtype=bool)
    free[[0, 5, 6]] = False
    found = descend_kikuchi(graph, potentials, smoothed(graph, labels), 3000, free, tol=1e-8)
    beliefs = Beliefs(graph, found.unary, found.factors)
    assert_distributions(beliefs)
    assert_locally_consistent(beliefs, atol=1e-6)
    for i in (0, 5, 6):
        np.testing.assert_array_equal(beliefs.unary(i), np.arange(3) == labels[i])
    observed = {i: int(labels[i]) for i in (0, 5, 6)}
    result = GeneralizedSumProduct(tol=1e-9).run(graph, potentials, observed)
    assert found.free_energies[0] == pytest.approx(-result.log_partition, rel=1e-7)
    # with everything observed nothing can move, and the free energy is minus the score
    fixed = descend_kikuchi(graph, potentials, smoothed(graph, labels), 2, np.zeros(12, dtype=bool))
    assert fixed.free_energies[0] == pytest.approx(-potentials.score(labels), rel=1e-12)
    assert fixed.start_free_energies[0] == pytest.approx(-potentials.score(labels), rel=1e-12)


def test_hidden_variables_are_inferred_first():
    """The data on known variables, the hidden ones relaxed under them, then everything."""
    rng = np.random.default_rng(3)
    graph = ff.FactorGraph.grid(3, 4, 2)
    potentials = random_tables(rng, graph)
    labels = rng.integers(0, 2, 12)
    known = rng.random(12) < 0.6
    first = descend_kikuchi(graph, potentials, smoothed(graph, labels, 0.5), 3000, ~known, tol=1e-9)
    observed = {int(i): int(labels[i]) for i in np.flatnonzero(known)}
    clamped = GeneralizedSumProduct(tol=1e-10).run(graph, potentials, observed)
    np.testing.assert_allclose(first.unary, clamped.beliefs.unary_values, rtol=0, atol=1e-6)
    last = np.inf
    for n_rounds in (0, 1, 2, 5, 20):
        found = descend_kikuchi(graph, potentials, first, n_rounds, smoothing=1e-3)
        expected = 0.999 * first.unary + 0.001 / 2
        np.testing.assert_allclose(found.start_unary, expected, rtol=0, atol=1e-12)
        uniform = np.full(len(first.factors), 0.25)
        expected = 0.999 * first.factors + 0.001 * uniform
        np.testing.assert_allclose(found.start_factors, expected, rtol=0, atol=1e-12)
        # the mixture is a little worse than what it was mixed from
        assert found.start_free_energies[0] == pytest.approx(first.free_energies[0], abs=0.2)
        assert found.free_energies[0] <= min(found.start_free_energies[0], last)
        last = found.free_energies[0]
    free = GeneralizedSumProduct(tol=1e-9).run(graph, potentials)
    end = descend_kikuchi(graph, potentials, first, 5000, smoothing=1e-3, tol=1e-8)
    assert not end.moving_examples.any()
    assert end.free_energies[0] == pytest.approx(-free.log_partition, rel=1e-7)


def test_a_start_on_forbidden_configurations_has_infinite_energy():
    graph = ff.FactorGraph.grid(2, 3, 2)
    differ = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)
    potentials = ff.Potentials(graph, None, differ)
    labels = np.array([0, 1, 0, 1, 0, 1])
    found = descend_kikuchi(graph, potentials, smoothed(graph, labels), 2000, tol=1e-9)
    assert found.start_free_energies[0] == np.inf
    assert found.free_energies[0] == pytest.approx(-np.log(2), abs=1e-6)  # both colourings
    with pytest.raises(ZeroWeightError):
        descend_kikuchi(
            graph, potentials, smoothed(graph, np.zeros(6, dtype=int)), 5, np.zeros(6, dtype=bool)
        )


def test_company_and_threads_do_not_change_a_bit():
    cases = [random_case(seed)[:3] for seed in range(6)]
    batch = ff.graph.Batch.of([graph for graph, _, _ in cases])
    packed = batch.pack([potentials for _, potentials, _ in cases])
    start = np.concatenate([unary for _, _, unary in cases])
    together = descend_kikuchi(batch, packed, start, 4)
    threads = descend_kikuchi(batch, packed, start, 4, n_jobs=2)
    np.testing.assert_array_equal(threads.unary, together.unary)
    parts = batch.split(Beliefs(batch.graph, together.unary, together.factors))
    for example, (graph, potentials, unary) in enumerate(cases):
        alone = descend_kikuchi(graph, potentials, unary, 4)
        np.testing.assert_array_equal(parts[example].unary_values, alone.unary)
        np.testing.assert_array_equal(parts[example].factor_values, alone.factors)
        assert together.free_energies[example] == alone.free_energies[0]
        assert together.start_free_energies[example] == alone.start_free_energies[0]


def test_rounds_that_are_cut_short_are_reported():
    graph, potentials, start, _ = random_case(4)
    found = descend_kikuchi(graph, potentials, start, 1, max_iter=1, tol=1e-12)
    assert not found.converged_examples.any()


# -- errors -------------------------------------------------------------------------------


def test_bad_input():
    graph = ff.FactorGraph.grid(2, 2, 2)
    zero, start = ff.Potentials(graph), np.full(8, 0.5)
    with pytest.raises(InvalidInputError, match=r"start must have shape \(8,\), got \(7,\)"):
        descend_kikuchi(graph, zero, start[:7], 1)
    with pytest.raises(InvalidInputError, match="start must be a distribution for each"):
        descend_kikuchi(graph, zero, 0.9 * start, 1)
    with pytest.raises(InvalidInputError, match=r"smoothing must be in \[0, 1\), got 1.0"):
        descend_kikuchi(graph, zero, start, 1, smoothing=1.0)
    earlier = descend_kikuchi(graph, zero, start, 1, regions="bethe")
    with pytest.raises(InvalidInputError, match="start must be a descent with these regions"):
        descend_kikuchi(graph, zero, earlier, 1)
    with pytest.raises(
        InvalidInputError, match="n_rounds must be an integer of at least 0, got -1"
    ):
        descend_kikuchi(graph, zero, start, -1)
    with pytest.raises(InvalidInputError, match=r"free must be a boolean array of shape \(4,\)"):
        descend_kikuchi(graph, zero, start, 1, free=[1, 1, 0, 1])
    with pytest.raises(InvalidInputError, match="potentials must belong"):
        descend_kikuchi(ff.FactorGraph.chain(4, 2), zero, start, 1)
    other = RegionGraph.of(ff.FactorGraph.chain(4, 2))
    with pytest.raises(InvalidInputError, match="must be made for a graph of this structure"):
        descend_kikuchi(graph, zero, start, 1, regions=other)
