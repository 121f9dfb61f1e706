"""Distributions over matchings: brackets, exact references, learning by matchings alone."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.errors import ConvergenceWarning, InvalidInputError, ZeroWeightError
from fieldfit.inference.frank_wolfe.active_set import ActiveSet
from fieldfit.inference.frank_wolfe.frank_wolfe import run_frank_wolfe
from fieldfit.inference.matching.matching_marginals import (
    best_edges,
    inner_point,
    matching_marginals,
)
from fieldfit.inference.matching.matching_messages import matching_messages
from fieldfit.inference.matching.matching_partition import matching_partition
from fieldfit.inference.matching.matching_polytope import MatchingPolytope
from fieldfit.objectives.mle_struct import MLEStruct

N_CASES = 500


def sinkhorn(weights, n_rounds=20_000):
    """The entropy with ``rho = 1/2`` over doubly stochastic matrices, by scaling."""
    scaled = np.exp(weights - weights.max())
    for _ in range(n_rounds):
        scaled /= scaled.sum(axis=1, keepdims=True)
        scaled /= scaled.sum(axis=0, keepdims=True)
        if np.abs(scaled.sum(axis=1) - 1.0).max() < 1e-13:
            break
    value = (weights * scaled).sum() - (scaled * np.log(np.maximum(scaled, 1e-300))).sum()
    return scaled, value


def test_brackets_of_the_log_partition():
    """Bethe's value is never above the truth, the reweighted one never below."""
    rng = np.random.default_rng(0)
    for case in range(N_CASES):
        n = int(rng.integers(2, 7))
        weights = rng.choice([0.3, 1.0, 3.0]) * rng.normal(size=(n, n))
        perfect = bool(case % 3)
        exact = matching_partition(weights, perfect=perfect).log_partition
        lower = matching_marginals(weights, rho=1.0, perfect=perfect, tol=1e-4, max_iter=300)
        upper = matching_marginals(weights, rho=0.5, perfect=perfect, tol=1e-4, max_iter=300)
        assert (lower.bound, upper.bound) == ("lower", "upper")
        assert lower.log_partition <= exact + 1e-9
        assert upper.log_partition >= exact - 1e-9


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_reweighted_entropy_by_scaling(scale):
    """For rho = 1/2 the maximum is Sinkhorn's: an independent solver."""
    rng = np.random.default_rng(1)
    for n in (2, 4, 6):
        weights = scale * rng.normal(size=(n, n))
        expected, value = sinkhorn(weights)
        found = matching_marginals(weights, rho=0.5, tol=1e-8, max_iter=20_000)
        assert found.converged
        np.testing.assert_allclose(found.log_partition, value, rtol=2e-8, atol=2e-8)
        np.testing.assert_allclose(found.marginals, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("rho", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("kind", ["bipartite", "general"])
def test_the_entropy_is_concave(kind, rho, perfect):
    """Along random lines between mixtures of matchings the value at the middle is not below."""
    if kind == "general":
        pytest.importorskip("rustworkx")
    rng = np.random.default_rng(2)
    polytope = MatchingPolytope(np.ones((6, 6), dtype=bool), kind, perfect)
    coefficients = polytope.coefficients(rho)

    def mixture():
        oracle = (ff.Assignment if kind == "bipartite" else ff.PerfectMatching)(perfect=perfect)
        found = []
        for _ in range(4):
            drawn = rng.normal(size=(6, 6))
            edges = oracle.match(drawn + drawn.T).edges
            found.append(polytope.values(edges.astype(float)))
        spread = polytope.uniform_point()[: polytope.n_edges]
        return polytope.point(0.05 * spread + 0.95 * (rng.dirichlet(np.ones(4)) @ found))

    def entropy(x):
        return -(coefficients * x * np.log(x)).sum()

    for _ in range(200):
        first, second = mixture(), mixture()
        middle = entropy(0.5 * (first + second))
        assert middle >= 0.5 * (entropy(first) + entropy(second)) - 1e-12


def test_forbidden_edges():
    weights = np.array([[0.0, -np.inf, 1.0], [2.0, 0.5, -np.inf], [-np.inf, 1.0, 0.0]])
    polytope = MatchingPolytope.of_weights(weights, "bipartite", True)
    start = inner_point(polytope)
    # both matchings of this graph are met: three edges each, and none in common
    np.testing.assert_allclose(start[: polytope.n_edges], 0.5)
    found = matching_marginals(weights, rho=0.5, tol=1e-8)
    exact = matching_partition(weights)
    np.testing.assert_allclose(found.marginals.sum(axis=0), 1.0)
    assert np.all(found.marginals[np.isneginf(weights)] == 0.0)
    assert found.log_partition >= exact.log_partition
    with pytest.raises(ZeroWeightError):
        matching_marginals(np.full((2, 2), -np.inf))


# -- learning -----------------------------------------------------------------------------


def examples(n, m, n_examples, seed, kind="bipartite", perfect=True):
    rng = np.random.default_rng(seed)
    true = np.array([1.5, -1.0])
    X = rng.normal(size=(n_examples, n, m, 2))
    noise = rng.gumbel(size=(n_examples, n, m))
    if kind == "general":
        X = (X + X.transpose(0, 2, 1, 3)) / 2
        noise = (noise + noise.transpose(0, 2, 1)) / 2
    oracle = (ff.Assignment if kind == "bipartite" else ff.PerfectMatching)(perfect=perfect)
    Y = [oracle.match(x @ true + e).partners for x, e in zip(X, noise, strict=True)]
    return X, Y


def surrogate(weights, X, Y, rho, l2, kind="bipartite", perfect=True):
    """The penalised objective by inference to the end, and its gradient."""
    value, gradient = 0.5 * l2 * weights @ weights, l2 * weights
    for x, y in zip(X, Y, strict=True):
        found = matching_marginals(x @ weights, kind, perfect, rho, 1e-9, 20_000)
        polytope = MatchingPolytope(np.ones(x.shape[:2], dtype=bool), kind, perfect)
        edges = polytope.of_partners(y)
        features = x[polytope.edges[:, 0], polytope.edges[:, 1]]
        below = found.log_partition - (found.gap if found.bound == "upper" else 0.0)
        value += below - edges @ features @ weights
        gradient = gradient + (polytope.values(found.marginals) - edges) @ features
    return value, gradient


@pytest.mark.parametrize(
    ("kind", "perfect", "rho"),
    [
        ("bipartite", True, 1.0),
        ("bipartite", True, 0.5),
        ("bipartite", False, 0.75),
        ("general", True, 1.0),
        ("general", False, 0.5),
    ],
)
def test_the_optimum_is_that_of_the_double_loop(kind, perfect, rho):
    """At the weights found the gradient of the objective, by inference inside, vanishes."""
    if kind == "general":
        pytest.importorskip("rustworkx")
    X, Y = examples(4, 4, 6, 3, kind, perfect)
    crf = ff.MatchingCRF(
        MLEStruct(tol=1e-7), kind=kind, perfect=perfect, rho=rho, l2=2.0, max_iter=5000
    ).fit(X, Y)
    assert crf.converged_, crf.status_
    value, gradient = surrogate(crf.weights_, X, Y, rho, 2.0, kind, perfect)
    assert np.abs(gradient).max() < 5e-3
    row = crf.trace_[-1]
    assert row["objective"] <= value + 1e-6
    assert value <= row["objective"] + row["gap"] + 1e-6


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_messages_find_the_point_of_the_searches(rho, perfect):
    """A second solver: opinions of nodes against vertices alone."""
    rng = np.random.default_rng(12)
    for n, m in ((3, 3), (4, 4), (3, 5)):
        polytope = MatchingPolytope(np.ones((n, m), dtype=bool), "bipartite", perfect)
        weights = rng.normal(size=polytope.n_edges)
        found = matching_messages(polytope, weights, rho)
        assert found.converged
        np.testing.assert_allclose(
            polytope.point(found.point[: n * m]), found.point, rtol=0, atol=1e-9
        )
        potentials = np.concatenate([weights, np.zeros(n * m + len(polytope.alone))])
        nothing = np.zeros(0)
        start = inner_point(polytope)
        active = ActiveSet(
            start, nothing, float(potentials @ start), polytope.coefficients(rho), nothing
        )
        end = run_frank_wolfe(
            active, potentials, lambda s, p=polytope: best_edges(p, s), 1e-8, 20_000
        )
        assert end.converged
        np.testing.assert_allclose(active.x, found.point, rtol=0, atol=2e-4)


def test_opinions_that_run_away_are_no_point():
    """Bethe's maximum on two by two is at a vertex, where odds are infinite."""
    polytope = MatchingPolytope(np.ones((2, 2), dtype=bool))
    found = matching_messages(polytope, np.array([9.0, 0.0, 0.0, 9.0]), 1.0)
    assert not found.converged or np.isfinite(found.point).all()
    best = matching_marginals([[9.0, 0.0], [0.0, 9.0]])
    np.testing.assert_allclose(best.marginals, np.eye(2), atol=1e-6)
    np.testing.assert_allclose(best.log_partition, 18.0, atol=1e-5)


def test_the_default_converges():
    X, Y = examples(5, 5, 20, 13)
    crf = ff.MatchingCRF(l2=1.0).fit(X, Y)
    vertices = ff.MatchingCRF(MLEStruct(ff.Bethe(), tol=1e-6), l2=1.0, max_iter=3000).fit(X, Y)
    assert crf.converged_
    np.testing.assert_allclose(crf.weights_, vertices.weights_, rtol=0, atol=0.02)
    weighted = ff.MatchingCRF(l2=1.0).fit(X, Y, sample_weight=[0.0] + 19 * [1.0])
    without = ff.MatchingCRF(l2=1.0).fit(X[1:], Y[1:])
    np.testing.assert_allclose(weighted.weights_, without.weights_, rtol=0, atol=0.02)


def test_exact_learning_and_its_brackets():
    X, Y = examples(5, 5, 30, 4)
    exact = ff.MatchingCRF("likelihood", l2=1.0, tol=1e-8).fit(X, Y)
    bethe = ff.MatchingCRF(MLEStruct(ff.Bethe(), tol=1e-5), l2=1.0, max_iter=2000).fit(X, Y)
    wide = ff.MatchingCRF(
        MLEStruct(ff.TreeReweighted(rho=0.5), tol=1e-5), l2=1.0, max_iter=2000
    ).fit(X, Y)
    assert (bethe._rho(), wide._rho()) == (1.0, 0.5)
    assert exact.weights_[0] > 0.5 > -0.3 > exact.weights_[1]

    def objective(crf):
        return -crf.log_likelihood(X, Y).sum() + 0.5 * crf.weights_ @ crf.weights_

    best = objective(exact)
    assert objective(bethe) >= best - 1e-6
    assert objective(wide) >= best - 1e-6
    assert objective(bethe) < objective(wide)  # as in the paper
    # global brackets of the regularised likelihood: l_rw <= l <= l_bethe
    assert wide.trace_[-1]["objective"] >= best - 1e-4
    assert bethe.trace_[-1]["objective"] <= best + 1e-4
    low, high = bethe.log_likelihood_bounds(X, Y)
    true = bethe.log_likelihood(X, Y)
    assert np.all(low <= true + 1e-9)
    assert np.all(true <= high + 1e-9)


def test_the_exact_gradient():
    from fieldfit.models.matching_problems import ExactMatchings, MatchingExample

    X, Y = examples(4, 4, 3, 5)
    polytope = MatchingPolytope(np.ones((4, 4), dtype=bool))
    given = [
        MatchingExample(polytope, x.reshape(-1, 2), polytope.of_partners(y), 1.0 + k)
        for k, (x, y) in enumerate(zip(X, Y, strict=True))
    ]
    problem = ExactMatchings(ff.Likelihood(), given, 1.0, None)
    weights = np.array([0.7, -0.4])
    found = problem.evaluate(weights)
    for k in range(2):
        step = 1e-5 * np.eye(2)[k]
        difference = problem.evaluate(weights + step).value - problem.evaluate(weights - step).value
        np.testing.assert_allclose(found.gradient[k], difference / 2e-5, rtol=1e-7)


def _independent_value(polytope, features, matched, weights):
    """`IndependentChoices`, node by node."""
    scores, value = features @ weights, 0.0
    if polytope.capacities is not None:
        return float(np.sum(np.log1p(np.exp(scores)) - matched * scores))
    for node in range(polytope.n_nodes):
        own = (polytope.ends == node).any(axis=1)
        choices = [*scores[own], *([0.0] if node in polytope.alone else [])]
        value += np.log(np.sum(np.exp(choices))) - matched[own] @ scores[own]
    return value


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("shape", ["square", "wide", "general", "capacities"])
def test_independent_choices(shape, perfect):
    from fieldfit.models.matching_problems import IndependentChoices, MatchingExample

    rng = np.random.default_rng(1)
    n, m = (4, 6) if shape == "wide" else (4, 4)
    capacities = (np.full(n, 2), np.full(m, 2)) if shape == "capacities" else None
    kind = "general" if shape == "general" else "bipartite"
    polytope = MatchingPolytope(np.ones((n, m), dtype=bool), kind, perfect, capacities)
    features = rng.normal(size=(polytope.n_edges, 2))
    matched = np.zeros(polytope.n_edges)
    matched[rng.integers(polytope.n_edges)] = 1.0  # the formula asks for no matching
    given = [MatchingExample(polytope, features, matched, 1.5)]
    problem = IndependentChoices(ff.objectives.Independent(), given, 1.0, None)
    weights = np.array([0.7, -0.4])

    def value(weights):
        return 1.5 * _independent_value(polytope, features, matched, weights)

    found = problem.evaluate(weights)
    np.testing.assert_allclose(found.value, value(weights), rtol=1e-12)
    for k in range(2):
        step = 1e-5 * np.eye(2)[k]
        difference = (value(weights + step) - value(weights - step)) / 2e-5
        np.testing.assert_allclose(found.gradient[k], difference, rtol=1e-7)


def test_independent_choices_learn_and_match():
    X, Y = examples(5, 5, 40, 6)
    crf = ff.MatchingCRF("independent", l2=0.1).fit(X, Y)
    assert crf.converged_
    assert crf.score(X, Y) > ff.MatchingCRF("likelihood", l2=1.0).fit(X, Y).score(X, Y) - 0.1


@pytest.mark.parametrize("objective", ["max-margin", "perceptron"])
@pytest.mark.filterwarnings("ignore:MatchingCRF. stopped at max_iter")  # not separable
def test_learning_by_mistakes(objective):
    X, Y = examples(5, 5, 40, 6)
    crf = ff.MatchingCRF(objective, l2=0.1, max_iter=200).fit(X, Y)
    exact = ff.MatchingCRF("likelihood", l2=1.0).fit(X, Y)
    assert crf.score(X, Y) > exact.score(X, Y) - 0.1


def test_the_hinge_is_that_of_the_best_rival():
    from itertools import permutations

    from fieldfit.models.matching_problems import MatchingExample, MatchingHinge

    X, Y = examples(4, 4, 5, 7)
    polytope = MatchingPolytope(np.ones((4, 4), dtype=bool))
    weights = np.array([0.3, 0.2])
    for x, y in zip(X, Y, strict=True):
        given = MatchingExample(polytope, x.reshape(-1, 2), polytope.of_partners(y))
        found = MatchingHinge(ff.MaxMargin(), [given], 1.0, None, 1.0).evaluate(weights)
        scores = x @ weights
        own = scores[range(4), y].sum()
        expected = max(
            scores[range(4), rival].sum() + (np.array(rival) != y).sum() - own
            for rival in permutations(range(4))
        )
        np.testing.assert_allclose(found.value, expected, rtol=1e-12)


def test_rectangles_files_and_samples(tmp_path):
    X, Y = examples(3, 5, 20, 8)
    crf = ff.MatchingCRF(l2=1.0).fit(X, Y)
    crf.save(tmp_path / "m.ff")
    again = ff.load(tmp_path / "m.ff")
    np.testing.assert_array_equal(again.weights_, crf.weights_)
    marginals = again.predict_marginals(X)
    assert all(t.shape == (3, 5) for t in marginals)
    np.testing.assert_allclose([t.sum(axis=1) for t in marginals], 1.0, atol=1e-9)
    drawn = crf.sample(X[:2], 50, random_state=0)
    assert drawn[0].shape == (50, 3)
    assert all(len(set(row)) == 3 for row in drawn[0])
    # edges that are likely are drawn often
    often = np.array([(drawn[0] == column).mean(axis=0) for column in range(5)]).T
    assert np.corrcoef(often.ravel(), marginals[0].ravel())[0, 1] > 0.7


def test_nobody_needs_a_partner():
    X, Y = examples(4, 4, 20, 9, perfect=False)
    assert any((y < 0).any() for y in Y)
    crf = ff.MatchingCRF(perfect=False, l2=1.0).fit(X, Y)
    assert crf.score(X, Y) > 0.5
    marginals = crf.predict_marginals(X)
    assert all(t.sum(axis=0).max() <= 1.0 + 1e-9 for t in marginals)


def test_bad_input():
    X, Y = examples(3, 3, 2, 0)
    for x, y, words in (
        (X[:, :, :, 0], Y, r"X\[0\] must have shape \(n, m, n_features\)"),
        ([X[0], X[1][..., :1]], Y, r"X\[1\] must have 2 features as X\[0\], got 1"),
        (X, [[0, 1], Y[1]], r"Y\[0\] must be 3 integers, the partner of each row"),
        (X, [[0, 1, 3], Y[1]], r"Y\[0\]\[2\] must be a column below 3 or -1, got 3"),
        (X, [[0, 1, 1], Y[1]], r"Y\[0\] must name no column twice"),
        (X, [[0, 1, -1], Y[1]], r"Y\[0\] must give everybody a partner, node 2 has none"),
        (np.full_like(X, np.inf), Y, r"X\[0\] must be finite"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            ff.MatchingCRF().fit(x, y)
    broken = X.copy()
    broken[0, 0, Y[0][0]] = np.nan
    with pytest.raises(InvalidInputError, match="must use edges that X has"):
        ff.MatchingCRF().fit(broken, Y)
    for options, words in (
        ({"rho": 1.5}, r"rho must be in \[0, 1\]"),
        ({"kind": "tree"}, "kind must be"),
        ({"objective": "trw"}, "objective must be 'mle-struct', 'likelihood'"),
        ({"objective": MLEStruct(ff.Convex())}, "objective must have the entropy Bethe"),
        ({"kind": "general"}, "must be square and symmetric"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            ff.MatchingCRF(**options).fit(X, Y)
    symmetric = X + X.transpose(0, 2, 1, 3)
    with pytest.raises(InvalidInputError, match="even number of nodes"):
        ff.MatchingCRF(kind="general").fit(symmetric, Y)
    with pytest.raises(InvalidInputError, match="must be mutual"):
        ff.MatchingCRF(kind="general", perfect=False).fit(symmetric, [[1, 2, 0]] * 2)
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=1"):
        ff.MatchingCRF(l2=1e-3, max_iter=1).fit(X, Y)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [([0], r"Y\[1\] must be 3 integers"), ("abc", r"Y\[1\] must be 3 integers"),
     ([0, 1, 5], r"Y\[1\]\[2\] must be a column below 3"), ([0.0, 1.0, 2.0], "3 integers")],
)  # fmt: skip
def test_score_takes_partners_only(wrong, message):
    X = np.random.default_rng(0).normal(size=(2, 3, 3, 1))
    model = ff.MatchingCRF("likelihood").fit(X, [[0, 1, 2], [2, 1, 0]])
    assert 0.0 <= model.score(X, [[0, 1, 2], [-1, -1, 0]]) <= 1.0  # need be no perfect matching
    with pytest.raises(InvalidInputError, match=message):
        model.score(X, [[0, 1, 2], wrong])
