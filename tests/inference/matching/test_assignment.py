"""Bipartite matchings against enumeration, as matrices and as factor graphs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matching_problems import decorated
from reference.matchings import best_score, bipartite_matchings, degree_matchings
from scipy.optimize import linprog

import fieldfit as ff
from fieldfit.inference.matching.assignment import Assignment
from fieldfit.inference.matching.matching_polytope import matching_edges, matching_graph

INF = np.inf


def random_weights(rng, n, m, style):
    """Normal, with ties, with forbidden edges, or with both; now and then all zero."""
    weights = rng.normal(size=(n, m))
    if style % 2:
        weights = np.round(2.0 * weights) / 2.0
    if style % 4 >= 2:
        weights[rng.random((n, m)) < 0.45] = -INF
    return np.zeros((n, m)) if style == 6 else weights


def check(weights, match, best, *, perfect):
    assert match.score == pytest.approx(best, abs=1e-12)
    assert match.score == pytest.approx(weights[match.edges].sum(), abs=1e-12)
    assert match.edges.sum(axis=0).max(initial=0) <= 1
    partners = match.partners
    matched = np.flatnonzero(partners >= 0)
    assert np.array_equal(np.argwhere(match.edges), np.stack([matched, partners[matched]], axis=1))
    if perfect:
        assert len(matched) == min(weights.shape)
    else:
        assert (weights[match.edges] > 0.0).all()


@pytest.mark.parametrize("perfect", [True, False])
def test_a_thousand_matrices(perfect):
    n_infeasible = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(1, 6, 2)
        weights = random_weights(rng, n, m, seed % 7)
        best = best_score(weights, bipartite_matchings(n, m, perfect=perfect))
        solver = Assignment(perfect=perfect)
        if best == -INF:
            n_infeasible += 1
            with pytest.raises(ff.errors.ZeroWeightError, match=r"possible (rows|columns)"):
                solver.match(weights)
            continue
        check(weights, solver.match(weights), best, perfect=perfect)
    assert n_infeasible > 20 or not perfect


@pytest.mark.parametrize("n", [7, 8])
def test_up_to_eight_rows(n):
    orders = np.array(list(itertools.permutations(range(n))))
    for seed in range(5):
        weights = np.random.default_rng(seed).normal(size=(n, n))
        best = weights[np.arange(n), orders].sum(axis=1).max()
        check(weights, Assignment().match(weights), best, perfect=True)
        padded = np.maximum(weights, 0.0)[np.arange(n), orders].sum(axis=1).max()
        check(weights, Assignment(perfect=False).match(weights), padded, perfect=False)


def test_the_rows_without_partners_are_named():
    weights = np.zeros((4, 4))
    weights[[0, 2, 3], 1:] = -INF
    with pytest.raises(
        ff.errors.ZeroWeightError, match=r"the 2 rows \[0, 2\] have only 1 possible columns"
    ):
        Assignment().match(weights)
    with pytest.raises(
        ff.errors.ZeroWeightError, match=r"the 2 columns \[0, 2\] have only 1 possible rows"
    ):
        Assignment().match(np.vstack([weights.T, np.full((1, 4), -INF)])[:, :3])


def test_a_batch_names_its_example():
    good = np.eye(3)
    matches = Assignment().match_batch([good, np.eye(2, 5)])
    assert [match.partners.tolist() for match in matches] == [[0, 1, 2], [0, 1]]
    assert len(Assignment().match_batch(np.zeros((4, 2, 2)))) == 4
    with pytest.raises(ff.errors.ZeroWeightError, match=r"weights\[1\]: .* the 1 rows \[0\]"):
        Assignment().match_batch([good, np.full((1, 1), -INF)])
    with pytest.raises(ff.InvalidInputError, match=r"weights\[0\] must be a numeric matrix"):
        Assignment().match_batch([np.zeros(3)])


def test_empty_matrices():
    for shape in ((0, 0), (0, 3), (3, 0)):
        match = Assignment().match(np.zeros(shape))
        assert match.score == 0.0
        assert match.partners.tolist() == [-1] * shape[0]


@pytest.mark.parametrize("value", [np.nan, INF])
def test_bad_weights(value):
    with pytest.raises(ff.InvalidInputError, match=r"weights must be below \+inf .* at \(1, 0\)"):
        Assignment().match([[0.0, 1.0], [value, 0.0]])


# -- capacities ---------------------------------------------------------------------------


def random_capacities(rng, n, m, perfect):
    """Degrees of a random set of edges if they must all be filled."""
    if not perfect:
        return rng.integers(0, 4, n), rng.integers(0, 4, m)
    edges = rng.random((n, m)) < 0.5
    return edges.sum(axis=1), edges.sum(axis=0)


@pytest.mark.parametrize("perfect", [True, False])
def test_a_thousand_matrices_with_capacities(perfect):
    n_infeasible = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(1, 4, 2)
        weights = random_weights(rng, n, m, seed % 7)
        rows, columns = random_capacities(rng, n, m, perfect)
        best = best_score(weights, degree_matchings(rows, columns, perfect=perfect))
        solver = Assignment(perfect=perfect, capacity=(rows, columns))
        if best == -INF:
            n_infeasible += 1
            with pytest.raises(ff.errors.ZeroWeightError, match="fills all capacities"):
                solver.match(weights)
            continue
        match = solver.match(weights)
        assert match.score == pytest.approx(best, abs=1e-12)
        for axis, capacity in ((1, rows), (0, columns)):
            degrees = match.edges.sum(axis=axis)
            assert (degrees == capacity).all() if perfect else (degrees <= capacity).all()
    assert n_infeasible > 20 or not perfect


@pytest.mark.parametrize("perfect", [True, False])
def test_larger_capacities_against_a_linear_program(perfect):
    """The polytope of bipartite matchings with capacities has integral vertices."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(5, 15, 2)
        weights = rng.normal(size=(n, m))
        rows, columns = random_capacities(rng, n, m, perfect)
        sums = np.concatenate(
            [np.kron(np.eye(n), np.ones((1, m))), np.kron(np.ones((1, n)), np.eye(m))]
        )
        limits = np.concatenate([rows, columns])
        demands = {"A_eq": sums, "b_eq": limits} if perfect else {"A_ub": sums, "b_ub": limits}
        expected = -linprog(-weights.ravel(), bounds=(0, 1), **demands).fun
        match = Assignment(perfect=perfect, capacity=(rows, columns)).match(weights)
        assert match.score == pytest.approx(expected, abs=1e-8)


def test_capacity_one_is_the_plain_problem():
    for seed in range(50):
        weights = random_weights(np.random.default_rng(seed), 6, 6, seed % 2)
        for perfect in (True, False):
            plain = Assignment(perfect=perfect).match(weights)
            same = Assignment(perfect=perfect, capacity=1).match(weights)
            assert same.score == pytest.approx(plain.score, abs=1e-12)


def test_capacities_are_checked():
    weights = np.zeros((2, 3))
    for capacity, sentence in (
        (2, "equal sums over rows and columns .* got 4 and 6"),
        ((1.5, 1), "capacity of the rows must be integers, got dtype float64"),
        ((1, [1, -1, 1]), "capacity of the columns must be an integer"),
        ((1, [1, 1]), "or 3 of them"),
        ((1, 1, 1), "one integer or a pair"),
    ):
        with pytest.raises(ff.InvalidInputError, match=sentence):
            Assignment(capacity=capacity).match(weights)
    match = Assignment(perfect=False, capacity=2).match(np.ones((2, 3)))
    assert match.score == 4.0
    with pytest.raises(ff.InvalidInputError, match="partners must be unique, got 2 for row 0"):
        _ = match.partners


# -- factor graphs ------------------------------------------------------------------------


def compare(graph, potentials, observed=None):
    """True if there is a matching."""
    best = float(ff.BruteForce().scores(graph, potentials, observed).max())
    if best == -INF:
        with pytest.raises(ff.errors.ZeroWeightError, match="weight"):
            Assignment().run(graph, potentials, observed)
        return False
    result = Assignment().run(graph, potentials, observed)
    assert result.score == pytest.approx(best, abs=1e-11)
    assert result.score == potentials.score(result.labels)
    assert result.upper_bound == result.score
    assert result.optimal
    for variable, label in (observed or {}).items():
        assert result.labels[variable] == label
    return True


@pytest.mark.parametrize("perfect", [True, False])
def test_a_thousand_graphs_of_edge_variables(perfect):
    n_feasible = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(1, 5, 2)
        n, m = (n, m) if n * m <= 12 else (3, 3)
        weights = random_weights(rng, n, m, seed % 7)
        graph, potentials = matching_graph(weights, perfect=perfect)
        observed = None
        if seed % 3 == 0 and graph.n_variables:
            chosen = rng.permutation(graph.n_variables)[: 1 + seed % 2]
            observed = {int(variable): int(rng.integers(2)) for variable in chosen}
        n_feasible += compare(graph, decorated(rng, graph, potentials), observed)
    assert n_feasible > 500


def test_a_thousand_graphs_of_labels():
    n_feasible = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 5))
        weights = random_weights(rng, n, n + int(rng.integers(0, 3)), seed % 7)
        graph, potentials = matching_graph(weights, encoding="labels")
        observed = {0: int(rng.integers(n))} if seed % 3 == 0 else None
        n_feasible += compare(graph, potentials, observed)
    assert n_feasible > 700


def test_some_must_have_partners_and_others_may():
    """Exactly one here, at most one there, free ends, parallel edges, single factors."""
    tables = {}
    for degree in (1, 2, 3):
        count = np.indices((2,) * degree).sum(axis=0)
        tables[degree] = [np.where(count == 1, 0.0, -INF), np.where(count <= 1, 0.0, -INF)]
    n_feasible = 0
    for seed in range(500):
        rng = np.random.default_rng(seed)
        n_edges = int(rng.integers(2, 9))
        sides = rng.integers([0, 3], [3, 6], (n_edges, 2))
        scopes = [tuple(np.flatnonzero((sides == node).any(axis=1))[:3]) for node in range(6)]
        scopes = [scope for scope in scopes if scope]
        graph = ff.FactorGraph([2] * n_edges, scopes)
        factors = [tables[len(scope)][int(rng.integers(2))] for scope in scopes]
        potentials = ff.Potentials(graph, rng.normal(size=(n_edges, 2)), factors)
        n_feasible += compare(graph, decorated(rng, graph, potentials))
    assert 200 < n_feasible < 500


def test_a_batch_of_models():
    rng = np.random.default_rng(5)
    models = [
        matching_graph(rng.normal(size=(3, 3))),
        matching_graph(rng.normal(size=(2, 4)), encoding="labels"),
        matching_graph(rng.normal(size=(3, 2)), perfect=False),
    ]
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    result = Assignment().run_batch(batch, batch.pack([potentials for _, potentials in models]))
    alone = [Assignment().run(graph, potentials) for graph, potentials in models]
    assert result.labels.tolist() == np.concatenate([one.labels for one in alone]).tolist()
    assert result.scores == pytest.approx([one.score for one in alone], abs=1e-12)
    assert result.optimal_examples.all()


def test_models_that_are_no_matchings():
    chain = ff.FactorGraph.chain(3, 2)
    with pytest.raises(
        ff.InvalidInputError,
        match=r"example 0 must encode a matching.*only 2 of 3 pairs.*factor 0 allows two",
    ):
        Assignment().run(chain, ff.Potentials(chain))
    graph = ff.FactorGraph([2, 3], [(0, 1)])
    with pytest.raises(
        ff.InvalidInputError, match=r"differ in their numbers.*variable 1 has 3 labels"
    ):
        Assignment().run(graph, ff.Potentials(graph))
    triangle = matching_graph(np.ones((3, 3)), "general", perfect=False)
    with pytest.raises(ff.InvalidInputError, match="must be bipartite for Assignment"):
        Assignment().run(*triangle)
    good = matching_graph(np.ones((2, 2)))
    with pytest.raises(ff.InvalidInputError, match="capacity must be None"):
        Assignment(capacity=2).run(*good)
    star = ff.FactorGraph.from_edges(4, [(0, 1), (0, 2), (0, 3)], 2)
    with pytest.raises(ff.InvalidInputError, match="variable 0 is in 3 factors"):
        Assignment().run(star, ff.Potentials(star))
    few = matching_graph(np.zeros((2, 3)), encoding="labels")[0]
    table = [[-INF, 1.0, 0.0], [0.0, -INF, 0.0], [0.0, 0.0, -INF]]
    with pytest.raises(ff.InvalidInputError, match="table of factor 0 is not -inf for equal"):
        Assignment().run(few, ff.Potentials(few, None, [table]))


def test_the_builder():
    weights = np.array([[0.0, 1.0, -INF], [2.0, 3.0, 4.0]])
    assert matching_edges(weights).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]]
    graph, potentials = matching_graph(weights)
    assert graph.n_factors == 5
    assert potentials.score([0, 1, 1, 0, 0]) == 3.0
    assert potentials.score([0, 1, 0, 1, 0]) == -INF  # one column twice
    assert potentials.score([0, 1, 0, 0, 0]) == -INF  # a row without partner
    for options, sentence in (
        ({"encoding": "labels", "perfect": False}, "needs a perfect bipartite matching"),
        ({"encoding": "names"}, "encoding must be"),
        ({"kind": "tripartite"}, "kind must be"),
        ({"kind": "general"}, "must be square"),
    ):
        with pytest.raises(ff.InvalidInputError, match=sentence):
            matching_graph(weights, **options)
    with pytest.raises(ff.InvalidInputError, match="at most 20 edges, got 21"):
        matching_graph(np.zeros((1, 21)))
    with pytest.raises(ff.InvalidInputError, match="weights must be a numeric matrix"):
        matching_graph(np.zeros(3))


def test_the_check_can_fail():
    weights = np.array([[1.0, 3.0], [2.0, 0.5]])
    best = best_score(weights, bipartite_matchings(2, 2, perfect=True))
    wrong = Assignment().match(-weights)
    with pytest.raises(AssertionError):
        check(weights, wrong, best, perfect=True)
