"""`Map` picks a method that fits, says why, and is never worse than what it promises."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from assertions import assert_bound
from planar_problems import planar_model
from problems import HIDDEN_ZERO_WEIGHT, PROBLEMS, ZERO_WEIGHT, ising, random_graph, random_tables

import fieldfit as ff
from fieldfit._registry import INFERENCE_METHODS, MAP_METHODS
from fieldfit.inference.auto import Map
from fieldfit.inference.matching.matching_polytope import matching_graph

#: So little room for a clique tree that other methods have to do it.
NARROW = Map(exact=ff.ExactMap(max_memory=1.0, max_operations=1.0, n_restarts=1))


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_problem(problem):
    result = Map().run(problem.graph, problem.potentials, problem.observed)
    assert result.optimal
    assert result.score == pytest.approx(problem.best_score, abs=1e-9, rel=1e-12)
    assert ", because " in result.status


@pytest.mark.parametrize("problem", ZERO_WEIGHT + HIDDEN_ZERO_WEIGHT, ids=str)
def test_no_weight(problem):
    with pytest.raises(ff.errors.ZeroWeightError, match="weight"):
        Map().run(problem.graph, problem.potentials, problem.observed)


def test_a_thousand_models_without_a_clique_tree():
    n_optimal, n_best = 0, 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        graph = random_graph(
            rng, int(rng.integers(2, 6)), int(rng.integers(2, 7)), max_arity=3, max_labels=3
        )
        kept = rng.integers(0, graph.cardinalities)
        potentials = random_tables(rng, graph, zeros=0.2 * (seed % 2), kept=kept)
        if graph.is_acyclic:
            continue
        observed = {0: int(kept[0])} if seed % 4 == 0 else None
        result = NARROW.run(graph, potentials, observed)
        best = float(ff.BruteForce().scores(graph, potentials, observed).max())
        assert result.score == potentials.score(result.labels)
        assert_bound("upper", result.upper_bound, best)
        assert_bound("lower", result.score, best)
        n_best += result.score >= best - 1e-9
        if result.optimal:
            n_optimal += 1
            assert result.score == pytest.approx(best, abs=1e-9, rel=1e-9)
    assert n_optimal > 500
    assert n_best >= n_optimal + 20  # local search finds what no bound proves


def test_the_reason():
    rng = np.random.default_rng(0)
    chain = ff.FactorGraph.chain(4, 3)
    assert (
        Map()
        .run(chain, random_tables(rng, chain))
        .status.startswith("ExactMap, because the graph has no cycle: optimal")
    )
    grid = ff.FactorGraph.grid(3, 3, 3)
    assert (
        Map()
        .run(grid, random_tables(rng, grid))
        .status.startswith("ExactMap, because its clique tree is narrow enough")
    )
    assignment = matching_graph(rng.normal(size=(3, 3)))
    assert (
        Map()
        .run(*assignment)
        .status.startswith("Assignment, because the model encodes a bipartite matching")
    )
    result = NARROW.run(grid, random_tables(rng, grid))
    assert ", because no exact method fits: the labelling is" in result.status


def test_optional_methods():
    pytest.importorskip("rustworkx")
    pytest.importorskip("networkx")
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(4, 4))
    general = matching_graph(weights + weights.T, "general")
    assert Map().run(*general).status.startswith("PerfectMatching, because the model encodes")
    planar = planar_model(rng, 9, "triangulation")
    assert NARROW.run(*planar).status.startswith("PlanarIsing, because the model is planar")


def test_a_batch_takes_the_best_of_each():
    rng = np.random.default_rng(2)
    graphs = [random_graph(rng, 5, 7, max_arity=3, max_labels=3) for _ in range(12)]
    tables = [random_tables(rng, graph, scale=2.0) for graph in graphs]
    batch = ff.graph.Batch.of(graphs)
    potentials = batch.pack(tables)
    result = NARROW.run_batch(batch, potentials)
    best = [ff.BruteForce().scores(g, t).max() for g, t in zip(graphs, tables, strict=True)]
    assert result.scores == pytest.approx(batch.scores(potentials, result.labels))
    assert_bound("upper", result.upper_bound, float(np.sum(best)))
    sure = result.optimal_examples
    assert sure.sum() > 0
    assert result.scores[sure] == pytest.approx(np.array(best)[sure], abs=1e-9)
    assert (result.scores <= np.array(best) + 1e-9).all()


def test_a_glass_with_field_has_a_bound():
    graph, potentials = ising(np.random.default_rng(3), 6, 6, 2.0, field=0.3)
    best = ff.ExactMap().run(graph, potentials).score
    result = NARROW.run(graph, potentials)
    assert_bound("upper", result.upper_bound, best)
    assert_bound("lower", result.score, best)


def test_an_integer_program_may_follow():
    graph, potentials = ising(np.random.default_rng(3), 6, 6, 1.0, field=1.0)
    best = ff.ExactMap().run(graph, potentials).score
    options = {"max_memory": 1.0, "n_restarts": 1, "method": "auto"}
    result = Map(exact=ff.ExactMap(**options)).run(graph, potentials)
    assert result.score == pytest.approx(best, rel=1e-12)
    assert result.status.startswith("ExactMap, because no other exact method fits: optimal: int")
    graph, potentials = ising(np.random.default_rng(3), 12, 12, 3.0, field=0.1)
    best = ff.ExactMap().run(graph, potentials).score
    hasty = Map(exact=ff.ExactMap(**options, time_limit=0.01)).run(graph, potentials)
    assert_bound("upper", hasty.upper_bound, best)
    assert_bound("lower", hasty.score, best)


# -- anytime ------------------------------------------------------------------------------


def torus(seed, side, field=0.5):
    """A frustrated model that no exact method of `NARROW` takes."""
    rng = np.random.default_rng(seed)
    pixel = np.arange(side * side).reshape(side, side)
    ends = [np.stack([pixel, np.roll(pixel, -1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)]
    graph = ff.FactorGraph.from_edges(side * side, np.concatenate(ends), 2)
    spins = np.array([[1.0, -1.0], [-1.0, 1.0]])
    unary = field * rng.normal(size=(side * side, 1)) * np.array([[1.0, -1.0]])
    return graph, ff.Potentials(graph, unary, rng.normal(size=(graph.n_factors, 1, 1)) * spins)


def test_a_frustrated_torus_is_solved():
    for seed in range(3):
        graph, potentials = torus(seed, 9)
        result = NARROW.run(graph, potentials)
        assert result.optimal
        assert result.score == pytest.approx(ff.ExactMap().run(graph, potentials).score, rel=1e-9)
        assert result.status.endswith("the labelling is optimal, by the bound of CycleCuts")


def test_without_a_time_limit_the_seed_decides():
    graph, potentials = torus(0, 8, field=0.1)
    graph3 = ff.FactorGraph.grid(6, 6, 3)
    for model in ((graph, potentials), (graph3, random_tables(np.random.default_rng(1), graph3))):
        first, again = (replace(NARROW, random_state=7).run(*model) for _ in range(2))
        assert np.array_equal(first.labels, again.labels)
        assert (first.score, first.upper_bound) == (again.score, again.upper_bound)
        assert first.status == again.status


@pytest.mark.parametrize("time_limit", [1e-6, 0.05, 1.0])
def test_any_time_has_labels_and_a_bound(time_limit):
    rng = np.random.default_rng(4)
    grid, triples = ff.FactorGraph.grid(5, 5, 3), random_graph(rng, 10, 20, max_labels=3)
    models = [torus(1, 8, field=0.1), (grid, random_tables(rng, grid, scale=2.0))]
    models += [(triples, random_tables(rng, triples, zeros=0.1))]
    for graph, potentials in models:
        best = ff.ExactMap().run(graph, potentials).score
        result = replace(NARROW, time_limit=time_limit).run(graph, potentials)
        assert result.score == potentials.score(result.labels)
        assert_bound("upper", result.upper_bound, best)
        assert_bound("lower", result.score, best)
        assert result.optimal or " below the best score, by the bound of " in result.status


def test_an_integer_program_follows_when_the_time_allows():
    graph = ff.FactorGraph.grid(4, 4, 3)
    potentials = random_tables(np.random.default_rng(11), graph, scale=2.0)
    loose = NARROW.run(graph, potentials)
    tight = replace(NARROW, time_limit=60.0).run(graph, potentials)
    assert tight.optimal
    assert tight.score == pytest.approx(ff.ExactMap().run(graph, potentials).score, rel=1e-9)
    assert_bound("upper", loose.upper_bound, tight.score)


def test_only_examples_without_a_proof_go_on():
    models = [torus(seed, 6, field=1.0) for seed in range(6)]
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    result = NARROW.run_batch(batch, batch.pack([potentials for _, potentials in models]))
    alone = [NARROW.run(*model) for model in models]
    assert result.scores == pytest.approx([one.score for one in alone], abs=1e-9)
    assert result.optimal_examples.tolist() == [one.optimal for one in alone]
    assert result.upper_bound == pytest.approx(sum(one.upper_bound for one in alone), abs=1e-6)
    names = result.method.split(" and ")
    assert names == sorted(set(names))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": 0.0}, "time_limit must be positive or None"),
        ({"random_state": -1}, "random_state must be an integer of at least 0"),
    ],
)
def test_limits_are_checked(options, message):
    with pytest.raises(ff.InvalidInputError, match=message):
        Map(**options)


def test_bad_input_is_not_swallowed():
    graph = ff.FactorGraph.grid(2, 2, 2)
    with pytest.raises(ff.InvalidInputError, match="potentials must belong"):
        Map().run(graph, ff.Potentials(ff.FactorGraph.chain(3, 2)))
    with pytest.raises(ff.InvalidInputError, match="observed must name variables"):
        Map().run(graph, ff.Potentials(graph), {9: 0})


# -- methods by name ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [*INFERENCE_METHODS.values(), *MAP_METHODS.values()],
    ids=lambda method: method.spec.name,
)
def test_every_option_of_a_method_is_a_field_of_its_class(method):
    solver = method.make()
    assert type(solver).__name__ == method.spec.name
    for option in method.options:
        owner = solver
        *path, name = method.renamed.get(option, option).split(".")
        for step in path:
            owner = getattr(owner, step)
        assert name in {field.name for field in fields(owner)}


def test_the_status_begins_with_the_method_that_ran():
    graph = ff.FactorGraph.chain(3, 2)
    potentials = ff.Potentials(graph, unary=[[0.0, 1.0], None, [2.0, 0.0]])
    assert ff.infer(graph, potentials).status.startswith("Exact: ")
    assert ff.infer(graph, potentials, max_memory=1.0).status.startswith(
        "SumProduct(Bethe, residual), because exact inference refused"
    )
    assert ff.infer(graph, potentials, "trw").status.startswith("SumProduct(TreeReweighted")
    assert ff.decode(graph, potentials).status.startswith("ExactMap, because")
    assert ff.decode(graph, potentials, "lp").status.startswith("LinearProgram: ")


def test_options_of_a_name_reach_the_object():
    found = MAP_METHODS["map"].make(max_memory=5.0, damping=0.5)
    assert found == Map(ff.ExactMap(5.0), messages=ff.MaxProduct(damping=0.5))
    assert MAP_METHODS["auto"].make(time_limit=2.0, random_state=3) == Map(
        time_limit=2.0, random_state=3
    )
    graph = ff.FactorGraph.chain(3, 2)
    with pytest.raises(ff.InvalidInputError, match="damping must be left out for method 'lp'"):
        ff.decode(graph, ff.Potentials(graph), "lp", damping=0.5)
    with pytest.raises(ff.InvalidInputError, match="method must be one of 'auto', 'map'"):
        ff.decode(graph, ff.Potentials(graph), "viterbi")
