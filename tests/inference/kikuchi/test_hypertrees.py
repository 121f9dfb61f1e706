"""Convexified Kikuchi: hypertrees, their entropies, bounds at any multipliers, best weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import ising, random_graph, random_tables
from reference.regions import has_junction_tree
from reference.sum_product import entropy as entropy_of

import fieldfit as ff
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.inference.kikuchi.hypertree_entropy import reweighted_regions
from fieldfit.inference.kikuchi.region_graph import RegionGraph

HYPERTREES = ff.HypertreeReweighted()


def kikuchi(regions="plaquettes", entropy=HYPERTREES, **options):
    return ff.GeneralizedSumProduct(regions, entropy=entropy, **options)


def random_model(seed):
    """A small model, its regions, and evidence or hard zeros in some."""
    rng = np.random.default_rng(seed)
    kind = seed % 5
    if kind < 2:
        graph, potentials = ising(rng, 2 + kind, 3, float(rng.choice([0.5, 2.0, 4.0])), 0.5)
        regions = "plaquettes"
    elif kind == 2:
        pairs = [(i, j) for i in range(5) for j in range(i)]
        graph = ff.FactorGraph.from_edges(5, [p for p in pairs if rng.random() < 0.8], 2)
        potentials = random_tables(rng, graph, float(rng.choice([0.5, 2.0])))
        regions = [(i, j, k) for i in range(5) for j in range(i) for k in range(j)]
    else:
        graph = random_graph(rng, 5, int(rng.integers(2, 7)), max_arity=3, max_labels=3)
        zeros = 0.2 if kind == 4 else 0.0
        potentials = random_tables(rng, graph, 1.5, zeros, np.zeros(5, dtype=int))
        regions = "plaquettes" if rng.random() < 0.5 else "bethe"
    observed = {0: 0} if seed % 3 == 0 else None
    return graph, potentials, regions, observed


# -- the proof that comes with the numbers ------------------------------------------------


def region_scopes(reweighted):
    regions = reweighted.regions
    return [regions.scope(r) for r in range(regions.n_regions)]


def joint_entropies(rng, graph, scopes):
    """Entropies of all regions, and of the whole, under a random distribution."""
    joint = rng.gamma(0.3, size=[int(k) for k in graph.cardinalities])
    joint /= joint.sum()
    axes = range(joint.ndim)
    margins = [joint.sum(axis=tuple(i for i in axes if i not in scope)) for scope in scopes]
    return np.array([entropy_of(margin) for margin in margins]), entropy_of(joint)


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_forests_are_acyclic_and_their_entropies_never_too_small(first):
    """Acyclic by the weight of a junction tree, another criterion than the one they grow by."""
    for seed in range(first, first + 100):
        graph, _, regions, _ = random_model(seed)
        reweighted = reweighted_regions(Batch.of([graph]), regions, HYPERTREES)
        scopes = region_scopes(reweighted)
        (mixture,) = reweighted.mixtures
        assert mixture.weights.sum() == pytest.approx(1.0, abs=1e-12)
        rng = np.random.default_rng(seed)
        entropies, whole = joint_entropies(rng, graph, scopes)
        average = np.zeros(len(scopes))
        for forest, weight in zip(mixture.forests, mixture.weights, strict=True):
            members = [frozenset(scopes[r]) for r in forest.members]
            assert frozenset().union(*members) == frozenset(range(graph.n_variables))
            assert has_junction_tree(members)
            assert forest.entropy(entropies) >= whole - 1e-9
            np.add.at(average, forest.members, weight)
            inside = forest.separators >= 0
            np.add.at(average, forest.separators[inside], -weight)
        # the stored numbers are those of the mixture, and the terms prove them concave
        np.testing.assert_allclose(reweighted.regions.counts, average, rtol=0, atol=1e-12)
        terms = reweighted.terms
        assert (terms.weight > 0).all()
        for upper, lower in zip(terms.upper, terms.lower, strict=True):
            assert lower < 0 or set(scopes[lower]) < set(scopes[upper])
        assert (reweighted.regions.counts[: reweighted.regions.n_outer] > 0).all()


def test_every_variable_counts_once():
    graph = ff.FactorGraph.grid(4, 5, 2)
    reweighted = reweighted_regions(Batch.of([graph]), "plaquettes", HYPERTREES)
    total = np.zeros(20)
    for scope, count in zip(region_scopes(reweighted), reweighted.regions.counts, strict=True):
        total[list(scope)] += count
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-12)


def test_plaquettes_of_a_grid_are_used_evenly():
    """No forest has more than (n - 2) / 2 plaquettes: each adds two variables at least."""
    graph = ff.FactorGraph.grid(10, 10, 2)
    reweighted = reweighted_regions(Batch.of([graph]), "plaquettes", HYPERTREES)
    weights = reweighted.regions.counts[: reweighted.regions.n_outer]
    assert weights.sum() <= 49.0 + 1e-9
    assert weights.sum() >= 45.0
    assert weights.min() >= 0.3


# -- bounds -------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_bounds_hold_converged_or_not(first):
    n_converged = 0
    for seed in range(first, first + 100):
        graph, potentials, regions, observed = random_model(seed)
        exact = ff.BruteForce().run(graph, potentials, observed).log_partition
        early = kikuchi(regions, max_rounds=1, max_iter=1, first_sweeps=1)
        tight = kikuchi(regions, tol=1e-8)
        values = []
        for solver in (early, tight):
            result = solver.run(graph, potentials, observed)
            assert result.bound in ("upper", "exact")
            assert result.log_partition >= exact - 1e-8 * (1.0 + abs(exact))
            values.append(result.log_partition)
        assert values[1] <= values[0] + 1e-7 * (1.0 + abs(values[0]))
        if result.bound == "exact":
            assert result.log_partition == pytest.approx(exact, abs=1e-7)
        n_converged += result.converged
    assert n_converged == 100


def test_the_bound_is_the_value_at_consistent_beliefs():
    """``<th, b> + sum_r c_r H(b_r)`` from the beliefs of regions: the gap is closed."""
    graph, potentials = ising(np.random.default_rng(5), 4, 4, 2.0, 0.3)
    result = kikuchi(tol=1e-11).run(graph, potentials)
    reweighted = reweighted_regions(Batch.of([graph]), "plaquettes", HYPERTREES)
    offsets, logs = reweighted.regions.table_offsets, result.state.log_belief
    value = potentials.unary_values @ result.beliefs.unary_values
    value += potentials.factor_values @ result.beliefs.factor_values
    for r, count in enumerate(reweighted.regions.counts):
        belief = np.exp(logs[offsets[r] : offsets[r + 1]])
        value += count * entropy_of(belief / belief.sum())
    assert result.log_partition == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_beliefs_are_the_gradient_of_the_value(first):
    """Differences of the value in a random direction of the potentials."""
    step = 1e-4
    for seed in range(first, first + 100):
        graph, potentials, regions, observed = random_model(seed)
        rng = np.random.default_rng(seed)
        solver = kikuchi(regions, tol=1e-10, max_iter=5000)
        to_unary = rng.normal(size=len(potentials.unary_values))
        to_factors = rng.normal(size=len(potentials.factor_values))
        middle = solver.run(graph, potentials, observed)
        values = []
        for sign in (step, -step):
            moved = ff.Potentials.from_flat(
                graph,
                potentials.unary_values + sign * to_unary,
                potentials.factor_values + sign * to_factors,
            )
            values.append(solver.run(graph, moved, observed, init=middle).log_partition)
        beliefs = middle.beliefs
        slope = to_unary @ beliefs.unary_values + to_factors @ beliefs.factor_values
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, abs=2e-4)


def test_exact_on_a_junction_tree_in_any_order():
    """Three outer triangles around an inner one: only some orders grow all of them."""
    rng = np.random.default_rng(2)
    triangles = [(0, 1, 3), (1, 2, 4), (0, 2, 5), (0, 1, 2)]
    graph = ff.FactorGraph([2, 3, 2, 3, 2, 2], triangles)
    potentials = random_tables(rng, graph, 2.0)
    exact = ff.BruteForce().run(graph, potentials)
    result = kikuchi("bethe", tol=1e-11).run(graph, potentials)
    assert result.bound == "exact"
    assert result.log_partition == pytest.approx(exact.log_partition, abs=1e-8)
    np.testing.assert_allclose(
        result.beliefs.unary_values, exact.beliefs.unary_values, rtol=0, atol=1e-8
    )


def test_a_mixture_on_a_chain_is_a_bound_and_not_exact():
    """The regions form a junction tree, but half of the mixture leaves each of them out."""
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.chain(3, 2)
    potentials = random_tables(rng, graph, scale=2.0)
    exact = ff.Exact().run(graph, potentials).log_partition
    whole = [(0, 1), (1, 2)]
    for hypertrees, bound in (
        ([[(0, 1)], [(1, 2)]], "upper"),
        ([[(0, 1)], [(1, 2)], whole], "upper"),
        ([whole, whole], "exact"),
    ):
        entropy = ff.HypertreeReweighted(hypertrees=hypertrees)
        result = kikuchi(entropy=entropy).run(graph, potentials)
        assert (result.converged, result.bound) == (True, bound)
        if bound == "upper":
            assert result.log_partition > exact + 1e-3
        else:
            assert result.log_partition == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("coupling", [0.5, 1.5, 3.0])
def test_tighter_than_trees_on_grids(coupling):
    for seed in range(5):
        graph, potentials = ising(np.random.default_rng(seed), 5, 5, coupling, 0.25)
        trees = ff.SumProduct(ff.TreeReweighted()).run(graph, potentials).log_partition
        result = kikuchi().run(graph, potentials)
        exact = ff.Exact().run(graph, potentials).log_partition
        assert result.converged, result.status
        assert exact - 1e-8 <= result.log_partition
        assert result.log_partition - exact < 0.5 * (trees - exact)


def test_optimised_weights_tighten_the_bound_and_stay_proved():
    for seed in range(4):
        graph, potentials = ising(np.random.default_rng(seed), 4, 4, 1.5, 0.25)
        exact = ff.Exact().run(graph, potentials).log_partition
        even = kikuchi().run(graph, potentials).log_partition
        optimised = kikuchi(entropy=ff.HypertreeReweighted("optimized")).run(graph, potentials)
        assert optimised.bound == "upper"
        assert "optimized" in optimised.method
        assert exact - 1e-8 <= optimised.log_partition
        assert optimised.log_partition < even


def test_optimised_weights_of_a_batch_are_those_of_its_examples():
    solver = kikuchi(entropy=ff.HypertreeReweighted("optimized"))
    models = [ising(np.random.default_rng(seed), 3, 3 + seed, 1.0, 0.25) for seed in range(3)]
    batch = Batch.of([graph for graph, _ in models])
    together = solver.run_batch(batch, batch.pack([potentials for _, potentials in models]))
    even = kikuchi().run_batch(batch, batch.pack([potentials for _, potentials in models]))
    for m, (graph, potentials) in enumerate(models):
        exact = ff.Exact().run(graph, potentials).log_partition
        assert exact - 1e-8 <= together.log_partitions[m] < even.log_partitions[m]


def test_strong_couplings_converge():
    graph, potentials = ising(np.random.default_rng(0), 8, 8, 8.0, 1.0)
    result = kikuchi(max_rounds=5000).run(graph, potentials)
    assert result.converged, result.status
    exact = ff.Exact().run(graph, potentials).log_partition
    assert exact - 1e-8 <= result.log_partition <= exact + 0.2 * 64


# -- given hypertrees ---------------------------------------------------------------------

SQUARES = [(0, 1, 3, 4), (1, 2, 4, 5), (3, 4, 6, 7), (4, 5, 7, 8)]


def corners():
    """The four hypertrees of a 3x3 grid that leave one plaquette out."""
    return [[square for square in SQUARES if square != left_out] for left_out in SQUARES]


def test_given_hypertrees_have_the_weights_that_they_say():
    graph, potentials = ising(np.random.default_rng(1), 3, 3, 1.0, 0.3)
    given = ff.HypertreeReweighted(hypertrees=corners())
    reweighted = reweighted_regions(Batch.of([graph]), "plaquettes", given)
    np.testing.assert_allclose(reweighted.regions.counts[:4], 0.75, rtol=0, atol=1e-12)
    result = kikuchi(entropy=given).run(graph, potentials)
    assert result.bound == "upper"
    assert result.log_partition >= ff.Exact().run(graph, potentials).log_partition
    uneven = replace(given, rho=[0.7, 0.1, 0.1, 0.1])
    counts = reweighted_regions(Batch.of([graph]), "plaquettes", uneven).regions.counts
    np.testing.assert_allclose(counts[:4], [0.3, 0.9, 0.9, 0.9], rtol=0, atol=1e-12)
    assert given == ff.HypertreeReweighted(hypertrees=corners())
    assert given != uneven
    assert hash(given) == hash(ff.HypertreeReweighted(hypertrees=corners()))


def test_a_region_graph_gives_its_outer_regions():
    graph, potentials = ising(np.random.default_rng(1), 3, 4, 1.0, 0.3)
    regions = RegionGraph.of(graph, "plaquettes")
    named, given = (kikuchi(r).run(graph, potentials) for r in ("plaquettes", regions))
    assert given.log_partition == named.log_partition


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": "best"}, r"rho must be None, \"optimized\" or, with hypertrees"),
        ({"rho": [0.5, 0.5]}, "without them"),
        ({"rho": [0.5, 0.5], "hypertrees": [[(0, 1)]]}, r"rho must have shape \(1,\)"),
        ({"rho": [0.5], "hypertrees": [[(0, 1)]]}, "rho must be positive with the sum 1"),
        ({"hypertrees": "plaquettes"}, "hypertrees must be lists of regions"),
        ({"hypertrees": []}, "hypertrees must be lists of regions"),
        ({"hypertrees": [[0, 1]]}, "hypertrees must be lists of regions"),
        ({"hypertrees": 3}, "hypertrees must be lists of regions"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InvalidInputError, match=message):
        ff.HypertreeReweighted(**options)


@pytest.mark.parametrize(
    ("hypertrees", "message"),
    [
        ([SQUARES], r"hypertrees\[0\] must be acyclic"),
        (corners()[:1], r"hypertrees must hold every outer region, \(0, 1, 3, 4\) is in none"),
        ([[(0, 1, 2)]], r"\(0, 1, 2\) lies in none of them"),
        ([[(0, 99)]], "a region of hypertrees must name variables 0..8"),
    ],
)
def test_hypertrees_that_prove_nothing_are_refused(hypertrees, message):
    graph = ff.FactorGraph.grid(3, 3, 2)
    with pytest.raises(InvalidInputError, match=message):
        kikuchi(entropy=ff.HypertreeReweighted(hypertrees=hypertrees)).run(
            graph, ff.Potentials(graph)
        )


def test_bad_entropy():
    with pytest.raises(InvalidInputError, match="entropy must be an object such as Hypertree"):
        ff.GeneralizedSumProduct(entropy=ff.TreeReweighted())


# -- learning -----------------------------------------------------------------------------


def test_learning_by_name():
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 2, (60, 9))
    grid = ff.FactorGraph.grid(3, 3, 2)
    edges = [grid.scope(a) for a in range(grid.n_factors)]
    exact, trees, hypertrees = (
        ff.IsingModel(name, l2=0.1).fit(samples, edges).couplings_
        for name in ("likelihood", "trw", "trw-kikuchi")
    )
    assert np.abs(hypertrees - exact).max() < np.abs(trees - exact).max()
