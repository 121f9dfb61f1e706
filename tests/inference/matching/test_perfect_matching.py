"""Matchings in general graphs against enumeration, dual bounds and bipartite ones."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from matching_problems import decorated
from reference.matchings import best_score, general_matchings
from scipy.optimize import linprog

import fieldfit as ff
from fieldfit.inference.matching.assignment import Assignment
from fieldfit.inference.matching.matching_polytope import matching_edges, matching_graph
from fieldfit.inference.matching.perfect_matching import PerfectMatching

pytest.importorskip("rustworkx")

INF = np.inf


def random_weights(rng, n, style):
    """Normal, with ties, with missing edges, of very different sizes, or all zero."""
    weights = rng.normal(size=(n, n))
    if style % 2:
        weights = np.round(2.0 * weights) / 2.0
    if style % 4 >= 2:
        weights[rng.random((n, n)) < 0.4] = -INF
    if style == 4:
        weights *= 10.0 ** rng.integers(-8, 9, size=(n, n))
    if style == 6:
        weights[:] = 0.0
    weights = np.where(np.tri(n, dtype=bool), weights.T, weights)
    np.fill_diagonal(weights, 7.0)  # not used
    return weights


def check(weights, match, best, *, perfect):
    scale = np.abs(weights[np.isfinite(weights)]).max(initial=1.0)
    assert match.score == pytest.approx(best, abs=1e-14 * scale, rel=1e-14)
    assert (match.edges == match.edges.T).all()
    partners = match.partners
    matched = np.flatnonzero(partners >= 0)
    assert (partners[partners[matched]] == matched).all()
    assert (partners[matched] != matched).all()
    values = weights[matched, partners[matched]]
    assert match.score == pytest.approx(0.5 * values.sum(), abs=1e-12 * scale)
    assert (len(matched) == len(weights)) if perfect else (values > 0.0).all()


@pytest.mark.parametrize("perfect", [True, False])
def test_a_thousand_matrices(perfect):
    n_infeasible = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(0, 4)) * 2 if perfect else int(rng.integers(0, 7))
        weights = random_weights(rng, n, seed % 7)
        best = best_score(weights, general_matchings(n, perfect=perfect))
        solver = PerfectMatching(perfect=perfect)
        if best == -INF:
            n_infeasible += 1
            with pytest.raises(ff.errors.ZeroWeightError, match="in the largest one the nodes"):
                solver.match(weights)
            continue
        check(weights, solver.match(weights), best, perfect=perfect)
    assert n_infeasible > 20 or not perfect


@pytest.mark.parametrize("perfect", [True, False])
def test_eight_nodes(perfect):
    for seed in range(30):
        weights = random_weights(np.random.default_rng(seed), 8, seed % 2)
        best = best_score(weights, general_matchings(8, perfect=perfect))
        check(weights, PerfectMatching(perfect=perfect).match(weights), best, perfect=perfect)


def blossom_bound(weights):
    """Edmonds' linear program, odd sets added while they are violated (by enumeration)."""
    n = len(weights)
    ends = np.argwhere(np.triu(np.ones((n, n)), 1))
    nodes = (ends[:, :, None] == np.arange(n)).any(axis=1).T.astype(float)
    sets = [np.array([b >> k & 1 for k in range(n)], dtype=bool) for b in range(1, 2**n)]
    odd = [s for s in sets if s.sum() % 2 and s.sum() >= 3]
    inside = np.array([s[ends].all(axis=1) for s in odd], dtype=float)
    limits = np.array([s.sum() // 2 for s in odd], dtype=float)
    found = linprog(
        -weights[ends[:, 0], ends[:, 1]], inside, limits, nodes, np.ones(n), bounds=(0, None)
    )
    return -found.fun


def test_the_dual_bound_is_met():
    for seed in range(5):
        weights = random_weights(np.random.default_rng(seed), 10, 0)
        match = PerfectMatching().match(weights)
        assert match.score == pytest.approx(blossom_bound(weights), abs=1e-8)


def test_bipartite_graphs_of_medium_size():
    """Another route to the same score, with sides of forty and fifty."""
    for seed in range(5):
        weights = np.random.default_rng(seed).normal(size=(40, 40 + 10 * (seed % 2)))
        n, m = weights.shape
        joined = np.full((n + m, n + m), -INF)
        joined[:n, n:] = weights
        joined[n:, :n] = weights.T
        for perfect in (True, False) if n == m else (False,):
            expected = Assignment(perfect=perfect).match(weights).score
            found = PerfectMatching(perfect=perfect).match(joined)
            assert found.score == pytest.approx(expected, rel=1e-13)


def test_the_order_of_nodes_does_not_matter():
    rng = np.random.default_rng(2)
    weights = random_weights(rng, 60, 0)
    score = PerfectMatching().match(weights).score
    order = rng.permutation(60)
    shuffled = PerfectMatching().match(weights[np.ix_(order, order)])
    assert shuffled.score == pytest.approx(score, rel=1e-13)


def test_tiny_differences_count():
    """Two matchings that differ by a millionth of a millionth."""
    weights = np.full((4, 4), -INF)
    for (i, j), value in {(0, 1): 1.0, (2, 3): 1.0, (0, 2): 1.0, (1, 3): 1.0 + 1e-12}.items():
        weights[i, j] = weights[j, i] = value
    assert PerfectMatching().match(weights).partners.tolist() == [2, 3, 0, 1]
    assert PerfectMatching(perfect=False).match(weights).partners.tolist() == [2, 3, 0, 1]


def test_a_batch_names_its_example():
    matches = PerfectMatching().match_batch([np.ones((2, 2)), np.ones((4, 4))])
    assert [match.score for match in matches] == [1.0, 2.0]
    with pytest.raises(ff.InvalidInputError, match=r"weights\[1\]: .* even number .* got 3"):
        PerfectMatching().match_batch([np.ones((2, 2)), np.ones((3, 3))])


# -- factor graphs ------------------------------------------------------------------------


def compare(graph, potentials, observed=None):
    """True if there is a matching."""
    best = float(ff.BruteForce().scores(graph, potentials, observed).max())
    if best == -INF:
        with pytest.raises(ff.errors.ZeroWeightError, match="weight"):
            PerfectMatching().run(graph, potentials, observed)
        return False
    result = PerfectMatching().run(graph, potentials, observed)
    assert result.score == pytest.approx(best, abs=1e-11, rel=1e-13)
    assert result.score == potentials.score(result.labels)
    assert result.optimal
    for variable, label in (observed or {}).items():
        assert result.labels[variable] == label
    return True


@pytest.mark.parametrize("perfect", [True, False])
def test_a_thousand_graphs_of_edge_variables(perfect):
    n_feasible = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 6))
        weights = random_weights(rng, n, seed % 7)
        graph, potentials = matching_graph(weights, "general", perfect=perfect)
        observed = None
        if seed % 3 == 0 and graph.n_variables:
            observed = {int(rng.integers(graph.n_variables)): int(rng.integers(2))}
        n_feasible += compare(graph, decorated(rng, graph, potentials), observed)
    assert n_feasible > (250 if perfect else 900)


def test_some_must_have_partners_and_others_may():
    n_feasible = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        weights = random_weights(rng, 5, 2)
        graph, must = matching_graph(weights, "general")
        _, may = matching_graph(weights, "general", perfect=False)
        chosen = rng.integers(0, 2, graph.n_factors)
        tables = [(must, may)[c].factor(a) for a, c in enumerate(chosen)]
        n_feasible += compare(graph, ff.Potentials(graph, must.unary_matrix(), tables))
    assert 100 < n_feasible < 300


def test_labels_and_parallel_edges():
    weights = np.random.default_rng(0).normal(size=(3, 4))
    assert compare(*matching_graph(weights, encoding="labels"))
    single = ff.FactorGraph([2, 2, 2], [(0, 1, 2), (2, 0, 1)])
    table = matching_graph(np.zeros((1, 3)))[1].factor(0)
    potentials = ff.Potentials(single, [[0, 1.0], [0, 3.0], [0, 2.0]], [table, table])
    assert PerfectMatching().run(single, potentials).labels.tolist() == [0, 1, 0]


def test_a_batch_of_models():
    rng = np.random.default_rng(5)
    models = [
        matching_graph(random_weights(rng, n, 0), "general", perfect=perfect)
        for n, perfect in ((4, True), (5, False), (2, True))
    ]
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    result = PerfectMatching().run_batch(batch, batch.pack([p for _, p in models]))
    alone = [PerfectMatching().run(graph, potentials).score for graph, potentials in models]
    assert result.scores == pytest.approx(alone, abs=1e-12)


def test_the_edges_are_in_the_order_of_the_builder():
    weights = random_weights(np.random.default_rng(1), 6, 0)
    labels = PerfectMatching().run(*matching_graph(weights, "general")).labels
    edges = PerfectMatching().match(weights).edges
    rows, columns = matching_edges(weights, "general").T
    assert labels.tolist() == edges[rows, columns].astype(int).tolist()


def test_what_is_refused():
    with pytest.raises(ff.InvalidInputError, match=r"even number of nodes .* got 3"):
        PerfectMatching().match(np.zeros((3, 3)))
    with pytest.raises(ff.InvalidInputError, match="weights must be square"):
        PerfectMatching().match(np.zeros((2, 3)))
    chain = ff.FactorGraph.chain(3, 2)
    with pytest.raises(ff.InvalidInputError, match="must encode a matching"):
        PerfectMatching().run(chain, ff.Potentials(chain))


def test_the_missing_package_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name == "rustworkx":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ff.errors.MissingDependencyError, match=r"pip install 'fieldfit\[matching\]'"
    ):
        PerfectMatching().match(np.ones((2, 2)))


def test_the_check_can_fail():
    weights = random_weights(np.random.default_rng(0), 6, 0)
    best = best_score(weights, general_matchings(6, perfect=True))
    wrong = PerfectMatching().match(-weights)
    with pytest.raises(AssertionError):
        check(weights, wrong, best, perfect=True)
