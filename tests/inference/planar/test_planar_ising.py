"""Planar Ising models without field: ground states and partition functions."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from planar_problems import STYLES, planar_model

import fieldfit as ff
from fieldfit.inference.planar.planar_ising import PlanarIsing, planar_ising_log_partition

pytest.importorskip("networkx")
pytest.importorskip("rustworkx")

SPINS = np.array([[1.0, -1.0], [-1.0, 1.0]])


def glass(rng, height, width, scale=1.0, gaussian=True):
    graph = ff.FactorGraph.grid(height, width, 2)
    count = graph.n_factors
    couplings = rng.normal(size=count) if gaussian else rng.choice([-1.0, 1.0], count)
    return graph, ff.Potentials(graph, None, scale * couplings[:, None, None] * SPINS)


def check(graph, potentials, result, observed=None):
    best = float(ff.BruteForce().scores(graph, potentials, observed).max())
    assert result.score == pytest.approx(best, abs=1e-11, rel=1e-12)
    assert result.score == potentials.score(result.labels)
    assert result.upper_bound == result.score
    assert result.optimal
    for variable, label in (observed or {}).items():
        assert result.labels[variable] == label


@pytest.mark.parametrize("style", STYLES)
def test_a_thousand_ground_states(style):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 11))
        graph, potentials = planar_model(rng, n, style, ties=seed % 3 == 0)
        observed = {int(rng.integers(n)): int(rng.integers(2))} if seed % 4 == 0 else None
        check(graph, potentials, PlanarIsing().run(graph, potentials, observed), observed)


@pytest.mark.parametrize("style", STYLES)
def test_twelve_variables(style):
    for seed in range(10):
        rng = np.random.default_rng(1000 + seed)
        graph, potentials = planar_model(rng, 12, style, scale=5.0)
        check(graph, potentials, PlanarIsing().run(graph, potentials))


@pytest.mark.parametrize("gaussian", [True, False])
def test_medium_grids_against_the_clique_tree(gaussian):
    for seed in range(3):
        graph, potentials = glass(np.random.default_rng(seed), 12, 14, gaussian=gaussian)
        result = PlanarIsing().run(graph, potentials)
        assert result.score == pytest.approx(ff.ExactMap().run(graph, potentials).score, rel=1e-12)


def test_a_ring_and_a_tree():
    for couplings, loss in (([1.0, 2.0, 3.0], 0.0), ([-1.0, 2.0, 3.0], 1.0), ([-1, -2, -3], 1.0)):
        ring = ff.FactorGraph.from_edges(3, [(0, 1), (1, 2), (2, 0)], 2)
        tables = np.array(couplings, dtype=float)[:, None, None] * SPINS
        result = PlanarIsing().run(ring, ff.Potentials(ring, None, tables))
        assert result.score == np.abs(couplings).sum() - 2.0 * loss
    tree = ff.FactorGraph.chain(5, 2)
    result = PlanarIsing().run(tree, ff.Potentials(tree, None, -SPINS), {4: 1})
    assert result.labels.tolist() == [1, 0, 1, 0, 1]
    assert result.status == "optimal: 0 of 1 faces are frustrated"


def test_graphs_without_couplings():
    for graph in (ff.FactorGraph([]), ff.FactorGraph([2, 2, 2]), ff.FactorGraph([2, 2], [(0, 1)])):
        result = PlanarIsing().run(graph, ff.Potentials(graph))
        assert result.score == 0.0
        value = planar_ising_log_partition(graph, ff.Potentials(graph))
        assert value == pytest.approx(graph.n_variables * np.log(2.0), abs=1e-13)


def test_a_batch_equals_its_examples():
    rng = np.random.default_rng(3)
    models = [planar_model(rng, 8, style) for style in STYLES]
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    result = PlanarIsing().run_batch(batch, batch.pack([potentials for _, potentials in models]))
    alone = [PlanarIsing().run(graph, potentials).score for graph, potentials in models]
    assert result.scores == pytest.approx(alone, rel=1e-12)


def refusals(function):
    """Every kind of model that is refused, with the reason."""
    grid = ff.FactorGraph.grid(2, 2, 2)
    complete = ff.FactorGraph.from_edges(5, [(i, j) for i in range(5) for j in range(i)], 2)
    houses = ff.FactorGraph.from_edges(6, [(i, 3 + j) for i in range(3) for j in range(3)], 2)
    for graph in (complete, houses):
        tables = np.random.default_rng(0).normal(size=graph.n_factors)[:, None, None] * SPINS
        with pytest.raises(ff.InvalidInputError, match=r"needs a planar graph of couplings"):
            function(graph, ff.Potentials(graph, None, tables))
        tables[-1] = 0.0  # a coupling of zero is no edge, and both graphs are just too much
        function(graph, ff.Potentials(graph, None, tables))
    with pytest.raises(ff.InvalidInputError, match=r"without field.* got a field of -0.5 on vari"):
        function(grid, ff.Potentials(grid, [None, [0.0, 1.0], None, None]))
    with pytest.raises(ff.InvalidInputError, match="without field"):
        function(grid, ff.Potentials(grid, None, np.array([[1.0, 0.0], [0.0, 0.0]])))
    with pytest.raises(ff.InvalidInputError, match="finite potentials"):
        function(grid, ff.Potentials(grid, None, np.array([[0.0, -np.inf], [-np.inf, 0.0]])))
    three = ff.FactorGraph.grid(2, 2, 3)
    with pytest.raises(ff.InvalidInputError, match="binary variables, got 3 labels of variable 0"):
        function(three, ff.Potentials(three))
    large = ff.FactorGraph([2, 2, 2], [(0, 1), (0, 1, 2)])
    with pytest.raises(ff.InvalidInputError, match="got arity 3 of factor 1"):
        function(large, ff.Potentials(large))
    with pytest.raises(ff.InvalidInputError, match="potentials must belong"):
        function(grid, ff.Potentials(large))


def test_what_is_refused():
    refusals(PlanarIsing().run)
    refusals(planar_ising_log_partition)
    graph, potentials = glass(np.random.default_rng(0), 2, 2)
    with pytest.raises(ff.InvalidInputError, match=r"one observed variable .* got 0 and 3 in one"):
        PlanarIsing().run(graph, potentials, {0: 1, 3: 0})


def test_too_many_frustrated_faces():
    graph, potentials = glass(np.random.default_rng(0), 6, 6)
    with pytest.raises(ff.errors.TooLargeError, match="at most max_frustrated 2 frustrated faces"):
        PlanarIsing(max_frustrated=2).run(graph, potentials)


def test_missing_packages_are_named(monkeypatch):
    real = builtins.__import__
    graph, potentials = glass(np.random.default_rng(0), 3, 3)

    def without(name, *arguments, **options):
        if name in missing:
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    missing = ("networkx",)
    for function in (PlanarIsing().run, planar_ising_log_partition):
        with pytest.raises(
            ff.errors.MissingDependencyError, match=r"NetworkX: .*'fieldfit\[planar\]'"
        ):
            function(graph, potentials)
    missing = ("rustworkx",)
    with pytest.raises(ff.errors.MissingDependencyError, match="rustworkx"):
        PlanarIsing().run(graph, potentials)


# -- partition functions ------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("style", STYLES)
def test_the_partition_function_against_enumeration(style, scale):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 11))
        graph, potentials = planar_model(rng, n, style, scale, ties=seed % 3 == 0)
        expected = ff.BruteForce().run(graph, potentials).log_partition
        value = planar_ising_log_partition(graph, potentials)
        assert value == pytest.approx(expected, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("scale", [0.1, 0.44, 1.0, 3.0])
def test_eight_by_eight_against_the_clique_tree(scale):
    for seed in range(4):
        graph, potentials = glass(np.random.default_rng(seed), 8, 8, scale, gaussian=seed % 2 == 0)
        expected = ff.Exact().run(graph, potentials).log_partition
        assert planar_ising_log_partition(graph, potentials) == pytest.approx(expected, rel=1e-11)


def test_digits_that_are_lost_are_not_reported():
    """Very strong couplings: the answer is right, or there is none."""
    n_refused = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph, potentials = glass(rng, 7, 7, scale=float(rng.uniform(5.0, 60.0)))
        expected = ff.Exact().run(graph, potentials).log_partition
        try:
            value = planar_ising_log_partition(graph, potentials)
        except ff.InvalidInputError:
            n_refused += 1
            continue
        assert value == pytest.approx(expected, rel=1e-9)
    assert 0 < n_refused < 40
    graph, potentials = glass(np.random.default_rng(0), 4, 4, scale=1e4)
    with pytest.raises(ff.InvalidInputError, match="double precision"):
        planar_ising_log_partition(graph, potentials)


def test_onsager():
    """The ferromagnet at the critical point of the infinite lattice, from above and below."""
    critical = 0.5 * np.log(1.0 + np.sqrt(2.0))
    catalan = 0.915965594177219
    per_spin = 0.5 * np.log(2.0) + 2.0 * catalan / np.pi
    values = []
    for size in (8, 16, 32):
        graph = ff.FactorGraph.grid(size, size, 2)
        potentials = ff.Potentials(graph, None, critical * SPINS)
        values.append(planar_ising_log_partition(graph, potentials) / size**2)
    assert values[0] < values[1] < values[2] < per_spin
    # the missing boundary goes with 1 / size; Richardson's extrapolation removes that
    assert 2.0 * values[2] - values[1] == pytest.approx(per_spin, abs=5e-3)


def test_the_derivative_is_the_energy():
    """d log Z / dJ_e = E[s_i s_j], by central differences against exact marginals."""
    graph, potentials = glass(np.random.default_rng(5), 4, 5, scale=0.7)
    beliefs = ff.Exact().run(graph, potentials).beliefs
    step = 1e-5
    for factor in (0, 7, graph.n_factors - 1):
        ends = []
        for sign in (1.0, -1.0):
            moved = ff.Potentials(graph, None, potentials.factor_values.reshape(-1, 2, 2).copy())
            moved.factor(factor)[:] += sign * step * SPINS
            ends.append(planar_ising_log_partition(graph, moved))
        expected = float((beliefs.factor(factor) * SPINS).sum())
        assert (ends[0] - ends[1]) / (2.0 * step) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_the_check_can_fail():
    graph, potentials = glass(np.random.default_rng(1), 3, 3)
    wrong = PlanarIsing().run(graph, ff.Potentials(graph, None, -SPINS))
    with pytest.raises(AssertionError):
        check(graph, potentials, wrong)
