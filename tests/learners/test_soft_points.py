"""Marginals of matchings by Newton's method, their curvature, and learning with soft points."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.inference.matching.matching_marginals import matching_marginals
from fieldfit.inference.matching.matching_messages import (
    SWEEPS,
    matching_messages,
    rounded_to_polytope,
)
from fieldfit.inference.matching.matching_newton import newton_marginals, statistics_curvature
from fieldfit.inference.matching.matching_polytope import MatchingPolytope
from fieldfit.learners.dual_blocks import DualModel
from fieldfit.learners.dual_newton import DualNewton
from fieldfit.models.matching_problems import MatchingBlock, MatchingExample
from fieldfit.objectives.mle_struct import MLEStruct


def maximum(polytope, weights, rho):
    """Marginals by messages alone, to the last digits."""
    found = matching_messages(polytope, weights, rho, 1e-13, 20_000)
    assert found.converged
    return found.point


@pytest.mark.parametrize("rho", [0.5, 0.75, 1.0])
@pytest.mark.parametrize(("shape", "perfect"), [((5, 5), True), ((3, 5), True), ((4, 4), False)])
def test_newton_finds_the_fixed_point_of_messages(rho, shape, perfect):
    rng = np.random.default_rng(0)
    polytope = MatchingPolytope(np.ones(shape, dtype=bool), perfect=perfect)
    weights = rng.normal(size=polytope.n_edges)
    early = matching_messages(polytope, weights, rho, 1e-13, 5).point
    found = newton_marginals(polytope, weights, rho, early, 1e-9)
    assert found is not None
    np.testing.assert_allclose(found, maximum(polytope, weights, rho), rtol=0, atol=1e-8)


@pytest.mark.parametrize("rho", [0.5, 0.75, 1.0])
@pytest.mark.parametrize(("shape", "perfect"), [((4, 4), True), ((3, 4), True), ((3, 3), False)])
def test_curvature_is_the_derivative_of_expected_features(rho, shape, perfect):
    rng = np.random.default_rng(1)
    polytope = MatchingPolytope(np.ones(shape, dtype=bool), perfect=perfect)
    features = rng.normal(size=(polytope.n_edges, 3))
    weights = 0.3 * rng.normal(size=3)

    def expected(w):
        return maximum(polytope, features @ w, rho)[: polytope.n_edges] @ features

    step = 1e-5
    numeric = np.array(
        [
            (expected(weights + step * unit) - expected(weights - step * unit)) / (2.0 * step)
            for unit in np.eye(3)
        ]
    )
    found = statistics_curvature(
        polytope, features, rho, maximum(polytope, features @ weights, rho)
    )
    np.testing.assert_allclose(found, numeric, rtol=1e-6, atol=1e-7)


def test_balanced_points_are_in_the_polytope():
    rng = np.random.default_rng(2)
    polytope = MatchingPolytope(np.ones((4, 4), dtype=bool))
    near = rng.random(16)
    point = rounded_to_polytope(polytope, np.concatenate([near, 1.0 - near]))
    t = polytope.matrix(point[:16])
    np.testing.assert_allclose([t.sum(axis=0), t.sum(axis=1)], 1.0, atol=1e-12)
    assert t.min() >= 0.0
    exact = polytope.uniform_point()
    np.testing.assert_allclose(rounded_to_polytope(polytope, exact), exact, atol=1e-15)


@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_soft_points_find_the_weights_of_vertices(rho):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(8, 5, 5, 3))
    Y = [ff.Assignment().match(x @ [1.0, -1.0, 0.5] + rng.normal(size=(5, 5))).partners for x in X]
    soft = ff.MatchingCRF(ff.MLEStruct(points="marginals", tol=1e-8), rho=rho, l2=1.0).fit(X, Y)
    hard = ff.MatchingCRF(ff.MLEStruct(tol=1e-6), rho=rho, l2=1.0, max_iter=3000).fit(X, Y)
    np.testing.assert_allclose(soft.weights_, hard.weights_, rtol=0, atol=5e-3)
    # bounds from both sides hold in every iteration
    best = soft.trace_[-1]["objective"]
    for row in soft.trace_:
        assert row["objective"] <= best + 1e-7
        assert row["objective"] + row["gap"] >= best - 1e-7


def test_predicted_marginals_are_those_of_best_matchings():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(3, 4, 4, 2))
    crf = ff.MatchingCRF(rho=0.5).fit(X, [np.arange(4)] * 3)
    for x, found in zip(X, crf.predict_marginals(X), strict=True):
        expected = matching_marginals(x @ crf.weights_, rho=0.5, tol=1e-9, max_iter=20_000)
        np.testing.assert_allclose(found, expected.marginals, rtol=0, atol=1e-3)


def test_newton_finds_what_messages_are_too_slow_for():
    rng = np.random.default_rng(5)
    polytope = MatchingPolytope(np.ones((6, 6), dtype=bool))
    slow = 0
    for _ in range(40):
        weights = 20.0 * rng.normal(size=(6, 6))
        early = matching_messages(polytope, polytope.values(weights), 0.5, 1e-10, max(SWEEPS))
        if not early.converged:
            slow += 1
            found = matching_marginals(weights, rho=0.5, tol=1e-7)
            assert (found.converged, found.n_iter) == (True, 1)  # one best matching, to certify
    assert slow > 0


class Blurred(MatchingBlock):
    """A block whose messages stop too early: a tenth of its points is anything."""

    def marginals(self, potentials, n_sweeps=0):
        found = super().marginals(potentials, n_sweeps)
        return None if found is None else 0.9 * found + 0.1 * self.start()


def test_bounds_hold_where_messages_are_wrong():
    rng = np.random.default_rng(6)
    polytope = MatchingPolytope(np.ones((4, 4), dtype=bool))
    matched = polytope.of_partners(np.arange(4))
    examples = [
        MatchingExample(polytope, rng.normal(size=(16, 2)) + matched[:, None], matched)
        for _ in range(5)
    ]
    objective = MLEStruct(points="marginals", tol=1e-8)
    l2 = np.ones(2)

    def bounds(kind):
        statistics = np.sum([one.statistics for one in examples], axis=0)
        blocks = [kind(one, 0.5) for one in examples]
        method = DualNewton(objective, DualModel(blocks, statistics, 5, 1, blocks), l2)
        for _ in range(10):
            method.step()
        return method.lower, method.upper

    lower, upper = bounds(MatchingBlock)
    assert upper - lower < 1e-6
    low, high = bounds(Blurred)
    assert low < lower - 1e-3
    assert high > upper + 1e-3
