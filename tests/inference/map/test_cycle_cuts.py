"""Odd-cycle inequalities against enumeration: the model, separation, bounds and branch and cut."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from assertions import assert_bound
from problems import ising, random_graph, random_tables

import fieldfit as ff
from fieldfit.graph.potentials import observed_labels
from fieldfit.inference.map.cycle_cuts import (
    cut_model,
    neighbour_lists,
    odd_cycles,
    reduced_model,
    shortest_odd_cycles,
)
from fieldfit.inference.map.projected_cycles import projected_relaxation


def binary_model(seed, n_variables=6):
    """Random pairs (some repeated), single factors and a constant; hard zeros in every other."""
    rng = np.random.default_rng(seed)
    pairs = [tuple(rng.permutation(n_variables)[:2]) for _ in range(int(rng.integers(3, 12)))]
    scopes = [*pairs, pairs[0][::-1], (0,), ()]
    graph = ff.FactorGraph(np.full(n_variables, 2), [tuple(map(int, s)) for s in scopes])
    kept = rng.integers(0, 2, n_variables)
    zeros = 0.2 * (seed % 2)
    potentials = random_tables(rng, graph, scale=2.0, zeros=zeros, kept=kept)
    observed = {1: int(kept[1])} if seed % 3 == 0 else None
    return rng, graph, potentials, observed


def linear_score(model, labels):
    x = labels[model.variables] != model.first[model.variables]
    differs = x[model.ends[:, 0]] != x[model.ends[:, 1]]
    return model.constant + float(model.slopes @ x) + float(model.weights @ differs)


def test_the_score_is_linear_in_labels_and_changes():
    for seed in range(0, 100, 2):
        rng, graph, potentials, _ = binary_model(seed)
        fixed = rng.random(graph.n_variables) < 0.3
        first = rng.integers(0, 2, graph.n_variables).astype(np.int32)
        second = np.where(fixed, first, 1 - first).astype(np.int32)
        unary = potentials.unary_values.copy()
        single = graph.table_offsets[:-1][graph.arities == 1]
        unary[:2] += potentials.factor_values[single[0] : single[0] + 2]
        model = cut_model(graph, unary, potentials.factor_values, first, second)
        assert len(model.weights) == len({tuple(pair) for pair in model.ends})
        for _ in range(5):
            labels = np.where(rng.random(graph.n_variables) < 0.5, first, second)
            assert linear_score(model, labels) == pytest.approx(potentials.score(labels), abs=1e-9)


def violated(ends, z, n_variables):
    """The smallest ``sum_F (1 - z) + sum_{C - F} z`` over closed walks, by Floyd's algorithm."""
    distance = np.full((2 * n_variables, 2 * n_variables), np.inf)
    for (i, j), length in zip(ends, z, strict=True):
        for a, b in ((i, j), (j, i)):
            for copy in range(2):
                same = a + copy * n_variables, b + copy * n_variables
                cross = a + copy * n_variables, b + (1 - copy) * n_variables
                distance[same] = min(distance[same], length)
                distance[cross] = min(distance[cross], 1.0 - length)
    for k in range(2 * n_variables):
        distance = np.minimum(distance, distance[:, k : k + 1] + distance[k : k + 1])
    return min(distance[i, i + n_variables] for i in range(n_variables))


def test_separation_finds_a_cycle_if_there_is_one():
    n_violated = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 8))
        every = np.array([(i, j) for i in range(n) for j in range(i + 1, n)])
        ends = every[rng.random(len(every)) < 0.6].reshape(-1, 2)
        z = rng.random(len(ends)) ** 2
        rows, pairs, values, right = odd_cycles(neighbour_lists(n, ends), z, set())
        shortest = violated(ends, z, n)
        assert (len(right) > 0) == (shortest < 1.0 - 1e-3)
        n_violated += len(right) > 0
        left = np.bincount(rows, values * z[pairs], minlength=len(right))
        assert (left > right).all()  # violated by z ...
        if len(right):
            assert (left - right).max() == pytest.approx(1.0 - shortest, abs=1e-9)
        for labels in product((0, 1), repeat=n):  # ... and by no labelling
            x = np.array(labels)
            changes = (x[ends[:, 0]] != x[ends[:, 1]]).astype(float)
            own = np.bincount(rows, values * changes[pairs], minlength=len(right))
            assert (own <= right + 1e-9).all()
    assert n_violated > 50


def test_cycles_are_closed_and_simple():
    rng = np.random.default_rng(0)
    ends = np.array([(i, j) for i in range(9) for j in range(i + 1, 9)])
    sizes = np.zeros(9, dtype=np.int64)
    z = 0.4 * rng.random(len(ends))
    pairs, is_odd = shortest_odd_cycles(
        neighbour_lists(9, ends), z, np.zeros(len(ends)), np.inf, 100, sizes
    )
    assert sizes.sum() == len(pairs) > 0
    cuts = np.cumsum(sizes[sizes > 0])[:-1]
    for cycle, odd in zip(np.split(pairs, cuts), np.split(is_odd, cuts), strict=True):
        assert (np.bincount(ends[cycle].ravel(), minlength=9)[np.unique(ends[cycle])] == 2).all()
        assert odd.sum() % 2 == 1


@pytest.mark.parametrize("branch", [False, True])
def test_small_models(branch):
    n_optimal = 0
    for seed in range(500 if not branch else 150):
        _, graph, potentials, observed = binary_model(seed)
        result = ff.CycleCuts(branch=branch).run(graph, potentials, observed)
        best = float(ff.BruteForce().scores(graph, potentials, observed).max())
        assert result.score == potentials.score(result.labels)
        assert_bound("upper", result.upper_bound, best)
        assert_bound("lower", result.score, best)
        n_optimal += result.optimal
        if result.optimal:
            assert result.score == pytest.approx(best, abs=1e-9, rel=1e-9)
    assert n_optimal == 150 if branch else n_optimal > 450


def test_what_roof_duality_decides_is_fixed():
    for seed in range(100):
        _, graph, potentials, observed = binary_model(seed)
        model, evidence = reduced_model(graph, potentials, observed_labels(graph, observed))
        assert (evidence[model.variables] < 0).all()
        best = float(ff.BruteForce().scores(graph, potentials, observed).max())
        fixed = float(ff.BruteForce().scores(graph, potentials, evidence).max())
        assert fixed == pytest.approx(best, abs=1e-9)


def test_a_planar_model_without_field_is_solved():
    graph, potentials = ising(np.random.default_rng(5), 8, 8, 2.0, field=0.0)
    result = ff.CycleCuts().run(graph, potentials)
    assert result.optimal
    assert result.score == pytest.approx(ff.ExactMap().run(graph, potentials).score, rel=1e-9)
    loose = ff.RoofDuality().run(graph, potentials)
    assert result.upper_bound < loose.upper_bound - 1.0


def test_limits_leave_a_bound():
    graph, potentials = ising(np.random.default_rng(6), 10, 10, 2.0, field=0.2)
    best = ff.ExactMap().run(graph, potentials).score
    for options in ({"max_iter": 1}, {"time_limit": 1e-9}, {"time_limit": 1e-9, "branch": True}):
        result = ff.CycleCuts(**options).run(graph, potentials)
        assert_bound("upper", result.upper_bound, best)
        assert_bound("lower", result.score, best)


def test_refusals():
    triple = ff.FactorGraph([2, 2, 2], [(0, 1, 2)])
    with pytest.raises(ff.InvalidInputError, match="at most two variables for CycleCuts"):
        ff.CycleCuts().run(triple, ff.Potentials(triple))
    labels = ff.FactorGraph.chain(2, 3)
    with pytest.raises(ff.InvalidInputError, match="at most two labels for CycleCuts, got 3"):
        ff.CycleCuts().run(labels, ff.Potentials(labels))
    for options, message in (
        ({"max_iter": 0}, "max_iter must be an integer"),
        ({"branch": 1}, "branch must be True or False"),
        ({"time_limit": -1.0}, "time_limit must be positive or None"),
    ):
        with pytest.raises(ff.InvalidInputError, match=message):
            ff.CycleCuts(**options)


# -- more labels and larger factors -------------------------------------------------------


def test_projected_cycles_have_a_bound_between_the_optimum_and_the_linear_program():
    n_smaller, n_loose = 0, 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 6, 12, max_arity=2 + seed % 2, max_labels=3)
        kept = rng.integers(0, graph.cardinalities)
        potentials = random_tables(rng, graph, scale=2.0, zeros=0.1 * (seed % 3), kept=kept)
        observed = observed_labels(graph, {0: int(kept[0])} if seed % 4 == 0 else None)
        best = float(ff.BruteForce().scores(graph, potentials, observed).max())
        loose = ff.LinearProgram().run(graph, potentials, observed).upper_bound
        found = projected_relaxation(graph, potentials, observed, 30)
        assert_bound("upper", found.bound, best)
        assert found.bound <= loose + 1e-6 * (1.0 + abs(loose))
        assert_bound("lower", potentials.score(found.labels), best)
        n_loose += loose > best + 1e-6
        n_smaller += loose > best + 1e-6 and found.bound < loose - 1e-6
    assert n_smaller > 0.4 * n_loose > 20  # every other model has factors of three, which stay


def test_projected_cycles_of_two_labels_are_odd_cycles():
    for seed in range(3):
        graph, potentials = ising(np.random.default_rng(seed), 6, 6, 2.0, field=0.3)
        free = np.full(36, -1, dtype=np.int32)
        projected = projected_relaxation(graph, potentials, free, 50)
        assert projected.bound == pytest.approx(
            ff.CycleCuts().run(graph, potentials).upper_bound, rel=1e-4
        )


def test_a_torus_of_three_labels():
    rng = np.random.default_rng(2)
    pixel = np.arange(36).reshape(6, 6)
    ends = [np.stack([pixel, np.roll(pixel, -1, k)], axis=-1).reshape(-1, 2) for k in (0, 1)]
    graph = ff.FactorGraph.from_edges(36, np.concatenate(ends), 3)
    potentials = random_tables(rng, graph, scale=2.0)
    narrow = ff.Map(ff.ExactMap(max_memory=1.0, max_operations=1.0, n_restarts=1))
    result = narrow.run(graph, potentials)
    assert result.score == pytest.approx(ff.ExactMap().run(graph, potentials).score, rel=1e-9)
    assert result.upper_bound < ff.LinearProgram().run(graph, potentials).upper_bound - 1e-3
