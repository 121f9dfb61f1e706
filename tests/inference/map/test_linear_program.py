"""The linear program over the local polytope, and the integer program of ExactMap."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from assertions import assert_bound, assert_distributions, assert_locally_consistent
from problems import HIDDEN_ZERO_WEIGHT, PROBLEMS, ZERO_WEIGHT, ising, random_graph, random_tables
from scipy.optimize import linprog

import fieldfit as ff
from fieldfit.graph.potentials import Beliefs, folded_unary
from fieldfit.inference.map.linear_program import LinearProgram, local_polytope


def best_score(graph, potentials, observed=None):
    return float(ff.BruteForce().scores(graph, potentials, observed).max())


def relaxation_value(graph, potentials):
    """The linear program written down row by row, all rows, with arity one and zero as factors."""
    n_unary = int(graph.unary_offsets[-1])
    n_columns = n_unary + int(graph.table_offsets[-1])
    rows, right = [], []
    for i in range(graph.n_variables):
        row = np.zeros(n_columns)
        row[graph.unary_offsets[i] : graph.unary_offsets[i + 1]] = 1.0
        rows.append(row)
        right.append(1.0)
    for a in range(graph.n_factors):
        scope, shape = graph.scope(a), graph.table_shape(a)
        total = np.zeros(n_columns)
        for entry, labels in enumerate(product(*(range(k) for k in shape))):
            total[n_unary + graph.table_offsets[a] + entry] = 1.0
            del labels
        rows.append(total)
        right.append(1.0)
        for position, i in enumerate(scope):
            for k in range(shape[position]):
                row = np.zeros(n_columns)
                row[graph.unary_offsets[i] + k] = -1.0
                for entry, labels in enumerate(product(*(range(size) for size in shape))):
                    if labels[position] == k:
                        row[n_unary + graph.table_offsets[a] + entry] = 1.0
                rows.append(row)
                right.append(0.0)
    values = np.concatenate([potentials.unary_values, potentials.factor_values])
    bounds = [(0.0, 0.0 if value == -np.inf else None) for value in values]
    costs = np.where(np.isfinite(values), -values, 0.0)
    found = linprog(costs, A_eq=np.array(rows), b_eq=right, bounds=bounds)
    return -found.fun if found.status == 0 else -np.inf


def check(graph, potentials, result, observed=None):
    best = best_score(graph, potentials, observed)
    assert result.score == potentials.score(result.labels)
    assert_bound("lower", result.score, best)
    assert_bound("upper", result.upper_bound, best)
    assert result.upper_bound >= result.score
    assert_distributions(result.beliefs, atol=1e-9)
    assert_locally_consistent(result.beliefs, atol=1e-9)
    linear = potentials.dot(result.beliefs)
    assert result.upper_bound == pytest.approx(linear, abs=1e-8, rel=1e-8)
    unary = result.beliefs.unary_values
    is_integral = bool(np.all((unary < 1e-6) | (unary > 1.0 - 1e-6)))
    if is_integral:
        assert result.optimal
    if result.optimal:
        assert result.score == pytest.approx(best, abs=1e-9, rel=1e-9)
        assert "optimal" in result.status
    return is_integral


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_a_thousand_random_models(first):
    n_integral = n_optimal = 0
    for seed in range(first, first + 250):
        rng = np.random.default_rng(seed)
        graph = random_graph(
            rng, int(rng.integers(2, 6)), int(rng.integers(1, 7)), max_arity=3, max_labels=3
        )
        kept = rng.integers(0, graph.cardinalities)
        potentials = random_tables(rng, graph, zeros=0.25 * (seed % 2), kept=kept)
        if seed % 5 == 0:  # ties
            for values in (potentials.unary_values, potentials.factor_values):
                np.round(values, out=values)
        observed = {0: int(kept[0])} if seed % 4 == 0 else None
        result = LinearProgram().run(graph, potentials, observed)
        n_integral += check(graph, potentials, result, observed)
        n_optimal += result.optimal
    assert 150 < n_integral <= n_optimal < 250


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_problem(problem):
    result = LinearProgram().run(problem.graph, problem.potentials, problem.observed)
    is_integral = check(problem.graph, problem.potentials, result, problem.observed)
    if problem.is_acyclic:
        assert result.optimal
        assert problem.name == "zero potentials" or is_integral


@pytest.mark.parametrize("seed", [126, 274, 774, 5375])
def test_labels_agree_with_the_evidence_where_rounding_breaks_constraints(seed):
    """Other labels would break fewer constraints, and may score more than the upper bound."""
    rng = np.random.default_rng(seed)
    graph = ff.FactorGraph(
        [2] * 6, [(0, 1, 2, 4), (2, 4), (0, 4, 5), (2, 3, 5), (0, 1, 4, 5), (1, 3, 4, 5)]
    )
    kept = rng.integers(0, 2, 6)
    potentials = random_tables(rng, graph, zeros=0.5, kept=kept)
    observed = {0: int(kept[0])}
    result = LinearProgram().run(graph, potentials, observed)
    assert result.labels[0] == kept[0]
    assert not check(graph, potentials, result, observed)


def test_the_value_is_that_of_the_full_program():
    n_fractional = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 4, 6, max_arity=3, max_labels=3)
        potentials = random_tables(rng, graph, scale=2.0, zeros=0.2 * (seed % 2))
        result = LinearProgram().run(graph, potentials)
        expected = relaxation_value(graph, potentials)
        assert result.upper_bound == pytest.approx(expected, abs=1e-7)
        n_fractional += result.upper_bound > best_score(graph, potentials) + 1e-6
    assert n_fractional >= 5


def test_a_frustrated_triangle_is_half():
    graph = ff.FactorGraph.from_edges(3, [(0, 1), (1, 2), (2, 0)], 2)
    table = np.array([[0.0, 1.0], [1.0, 0.0]])
    result = LinearProgram().run(graph, ff.Potentials(graph, None, [table] * 3))
    assert result.score == 2.0
    assert result.upper_bound == pytest.approx(3.0, abs=1e-9)
    assert result.beliefs.unary_matrix() == pytest.approx(np.full((3, 2), 0.5), abs=1e-12)
    assert not result.optimal
    assert "3 of 3 variables are fractional" in result.status
    assert "at most 1 below the best score" in result.status


def test_any_multipliers_give_a_bound():
    rng = np.random.default_rng(0)
    for _ in range(50):
        graph = random_graph(rng, 5, 6, max_arity=3, max_labels=3)
        potentials = random_tables(rng, graph)
        polytope = local_polytope(graph)
        scores = np.concatenate(
            [
                folded_unary(potentials),
                potentials.factor_values[polytope.tables],
            ]
        )
        multipliers = rng.normal(size=len(polytope.right))
        bounds = polytope.bounds(
            ff.graph.Batch.of([graph]), scores, np.zeros(graph.n_factors), multipliers
        )
        assert bounds[0] >= best_score(graph, potentials) - 1e-10


def test_indicators_lie_in_the_polytope():
    """The rows of the program hold for every labelling, and fail for most other vectors."""
    rng = np.random.default_rng(1)
    graph = random_graph(rng, 5, 8, max_arity=4, max_labels=3)
    polytope = local_polytope(graph)
    for _ in range(20):
        beliefs = Beliefs.from_labels(graph, rng.integers(0, graph.cardinalities))
        point = np.concatenate([beliefs.unary_values, beliefs.factor_values[polytope.tables]])
        assert np.abs(polytope.matrix @ point - polytope.right).max() == 0.0
        point[rng.integers(len(point))] += 0.5
        assert np.abs(polytope.matrix @ point - polytope.right).max() > 0.4


def test_a_batch_equals_its_examples():
    rng = np.random.default_rng(2)
    graphs = [random_graph(rng, 4, 5, max_arity=3, max_labels=3) for _ in range(40)]
    graphs[7] = ff.FactorGraph([], [()])
    tables = [random_tables(rng, graph) for graph in graphs]
    batch = ff.graph.Batch.of(graphs)
    result = LinearProgram().run_batch(batch, batch.pack(tables))
    alone = [LinearProgram().run(g, t) for g, t in zip(graphs, tables, strict=True)]
    assert result.upper_bound == pytest.approx(sum(one.upper_bound for one in alone), abs=1e-7)
    assert result.optimal_examples.tolist() == [one.optimal for one in alone]
    sure = np.array([one.optimal for one in alone])
    assert result.scores[sure] == pytest.approx([r.score for r in alone if r.optimal], abs=1e-9)
    many = ff.graph.Batch.of([ff.FactorGraph.grid(4, 4, 2)] * 80)  # more than one program
    shared = random_tables(rng, many.graph)
    joint = LinearProgram().run_batch(many, shared)
    assert joint.upper_bound == pytest.approx(shared.dot(joint.beliefs), rel=1e-9)
    assert_locally_consistent(joint.beliefs, atol=1e-9)


@pytest.mark.parametrize("problem", ZERO_WEIGHT, ids=str)
def test_an_empty_polytope_is_refused(problem):
    with pytest.raises(ff.errors.ZeroWeightError, match="weight zero"):
        LinearProgram().run(problem.graph, problem.potentials, problem.observed)


@pytest.mark.parametrize("problem", HIDDEN_ZERO_WEIGHT, ids=str)
def test_a_contradiction_that_the_relaxation_does_not_see(problem):
    result = LinearProgram().run(problem.graph, problem.potentials)
    assert result.score == -np.inf
    assert not result.optimal
    assert "breaks a hard constraint" in result.status


# -- the integer program ------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_a_thousand_integer_programs(first):
    for seed in range(first, first + 250):
        rng = np.random.default_rng(seed)
        graph = random_graph(
            rng, int(rng.integers(2, 6)), int(rng.integers(1, 7)), max_arity=3, max_labels=3
        )
        kept = rng.integers(0, graph.cardinalities)
        potentials = random_tables(rng, graph, zeros=0.25 * (seed % 2), kept=kept)
        observed = {0: int(kept[0])} if seed % 4 == 0 else None
        result = ff.ExactMap(method="integer").run(graph, potentials, observed)
        best = best_score(graph, potentials, observed)
        assert result.score == pytest.approx(best, abs=1e-10, rel=1e-12)
        assert result.score == potentials.score(result.labels)
        assert result.optimal
        assert result.upper_bound == result.score


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_integer_program_on_every_problem(problem):
    result = ff.ExactMap(method="integer").run(problem.graph, problem.potentials, problem.observed)
    assert result.score == pytest.approx(problem.best_score, abs=1e-10, rel=1e-12)


@pytest.mark.parametrize("problem", ZERO_WEIGHT + HIDDEN_ZERO_WEIGHT, ids=str)
def test_the_integer_program_finds_contradictions(problem):
    with pytest.raises(ff.errors.ZeroWeightError, match="weight zero"):
        ff.ExactMap(method="integer").run(problem.graph, problem.potentials, problem.observed)


def test_a_wide_graph_goes_to_the_integer_program():
    """A field makes the relaxation tight, however wide the tree is."""
    graph, potentials = ising(np.random.default_rng(0), 30, 30, 0.6, field=2.0)
    small = ff.ExactMap(max_memory=1e5)
    with pytest.raises(ff.errors.TooLargeError, match="ExactMap needs"):
        small.run(graph, potentials)
    result = replace(small, method="auto").run(graph, potentials)
    assert result.optimal
    assert "integer program" in result.status
    relaxed = LinearProgram().run(graph, potentials)
    assert_bound("upper", relaxed.upper_bound, result.score)
    narrow, tables = ising(np.random.default_rng(0), 4, 4, 1.0)
    assert "cliques" in ff.ExactMap(method="auto").run(narrow, tables).status


def test_a_time_limit_is_honest():
    graph, potentials = ising(np.random.default_rng(0), 12, 12, 3.0)
    best = ff.ExactMap().run(graph, potentials)
    result = ff.ExactMap(method="integer", time_limit=0.02).run(graph, potentials)
    assert not result.optimal
    assert not result.converged
    assert "not proved after time_limit 0.02 s" in result.status
    assert_bound("upper", result.upper_bound, best.score)
    assert_bound("lower", result.score, best.score)
    assert np.isfinite(result.upper_bound)


def test_options_of_the_integer_program():
    graph = ff.FactorGraph.chain(3, 2)
    with pytest.raises(ff.InvalidInputError, match="method must be one of 'auto'"):
        ff.ExactMap(method="search").run(graph, ff.Potentials(graph))
    with pytest.raises(ff.InvalidInputError, match="time_limit must be positive"):
        ff.ExactMap(method="integer", time_limit=0.0).run(graph, ff.Potentials(graph))


def test_the_check_can_fail():
    graph = ff.FactorGraph.chain(3, 2)
    potentials = random_tables(np.random.default_rng(0), graph)
    good = LinearProgram().run(graph, potentials)
    moved = Beliefs(graph, good.beliefs.unary_values[::-1].copy(), good.beliefs.factor_values)
    for wrong in (
        replace(good, score=good.score + 1.0),
        replace(good, upper_bound=good.upper_bound + 1.0),
        replace(good, beliefs=moved),
    ):
        with pytest.raises(AssertionError):
            check(graph, potentials, wrong)
