"""Several partners each: prices and bounds against enumeration, learning against regression."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fieldfit as ff
from fieldfit.errors import InvalidInputError
from fieldfit.inference.matching.matching_marginals import matching_marginals
from fieldfit.inference.matching.matching_messages import capacity_messages
from fieldfit.inference.matching.matching_polytope import MatchingPolytope

#: All matrices of 0 and 1 of this shape.
SHAPE = (3, 4)
ALL = ((np.arange(2**12)[:, None] >> np.arange(12)) & 1).reshape(-1, *SHAPE)


def feasible(capacities, perfect):
    sums = ALL.sum(axis=2), ALL.sum(axis=1)
    keep = [
        (found == given if perfect else found <= given).all(axis=1)
        for found, given in zip(sums, capacities, strict=True)
    ]
    return ALL[keep[0] & keep[1]]


def random_capacities(rng):
    drawn = rng.random(SHAPE) < rng.choice([0.2, 0.5, 0.8])
    return drawn.sum(axis=1).astype(np.int64), drawn.sum(axis=0).astype(np.int64)


@pytest.mark.parametrize("perfect", [True, False])
def test_the_surrogate_is_an_upper_bound_and_its_point_is_right(perfect):
    rng = np.random.default_rng(0)
    n_prices = 0
    for _ in range(100):
        weights = rng.choice([0.5, 2.0]) * rng.normal(size=SHAPE)
        capacities = random_capacities(rng)
        matchings = feasible(capacities, perfect)
        exact = np.logaddexp.reduce((matchings * weights).sum(axis=(1, 2)))
        found = matching_marginals(
            weights, perfect=perfect, rho=0.0, capacities=capacities, tol=1e-6
        )
        assert found.converged
        assert found.bound == "upper"
        assert found.log_partition >= exact - 1e-9
        sums = found.marginals.sum(axis=1), found.marginals.sum(axis=0)
        for side, given in zip(sums, capacities, strict=True):
            assert (side <= given + 1e-8).all()
            if perfect:
                assert_allclose(side, given, rtol=0, atol=1e-8)
        polytope = MatchingPolytope.of_weights(weights, "bipartite", perfect, capacities)
        point = capacity_messages(polytope, polytope.values(weights)).point
        if point is not None:  # the same by searches alone
            n_prices += 1
            assert_allclose(polytope.values(found.marginals), point[:12], rtol=0, atol=1e-6)
    assert n_prices > 60


def test_free_places_cost_nothing():
    rng = np.random.default_rng(1)
    weights = rng.normal(size=SHAPE)
    many = np.full(3, 4), np.full(4, 3)
    found = matching_marginals(weights, perfect=False, rho=0.0, capacities=many)
    assert_allclose(found.marginals, 1.0 / (1.0 + np.exp(-weights)), rtol=1e-6)
    # independent edges are then the truth
    assert_allclose(found.log_partition, np.logaddexp(0.0, weights).sum(), rtol=1e-6)


def test_without_binding_capacities_it_is_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(2)
    X = rng.normal(size=(10, 5, 6, 3))
    Y = (rng.random((10, 5, 6)) < 1.0 / (1.0 + np.exp(-X @ [1.0, -1.0, 0.5]))).astype(int)
    crf = ff.MatchingCRF(ff.MLEStruct(points="marginals", tol=1e-7), perfect=False, capacity=6)
    crf.fit(X, Y)
    expected = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10)
    expected.fit(X.reshape(-1, 3), Y.reshape(-1))
    assert crf.converged_
    assert_allclose(crf.weights_, expected.coef_[0], rtol=0, atol=2e-3)


@pytest.mark.parametrize("points", ["vertices", "marginals"])
def test_vertices_and_prices_have_the_same_optimum(points):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(8, 4, 4, 2))
    Y = [
        ff.Assignment(capacity=2).match(x @ [1.5, -1.0] + rng.gumbel(size=(4, 4))).edges for x in X
    ]
    crf = ff.MatchingCRF(ff.MLEStruct(points=points, tol=1e-3), capacity=2).fit(X, Y)
    assert crf.converged_

    def objective(weights):
        total = 0.5 * weights @ weights
        for x, y in zip(X, Y, strict=True):
            capacities = np.full(4, 2), np.full(4, 2)
            found = matching_marginals(x @ weights, rho=0.0, capacities=capacities)
            total += found.log_partition - (x @ weights)[y].sum()
        return total

    # the certified gap bounds the objective, and no weights near by are better than that
    best = objective(crf.weights_)
    for _ in range(10):
        assert objective(crf.weights_ + 0.05 * rng.normal(size=2)) >= best - 1e-3 * best


@pytest.mark.parametrize("objective", ["mle-struct", "max-margin", "perceptron"])
def test_degrees_of_each_example(objective):
    """Weights come back from matchings given their degrees; features of rows do not matter."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 5, 5, 2))
    rows = np.broadcast_to(rng.normal(size=(30, 5, 1, 1)), (30, 5, 5, 1))
    scores = X @ [3.0, 0.0] + 2.0 * rows[..., 0] + rng.logistic(size=(30, 5, 5))
    Y = (scores > 1.0).astype(int)
    degrees = [(y.sum(axis=1), y.sum(axis=0)) for y in Y]
    crf = ff.MatchingCRF(objective, l2=0.1, max_iter=300)
    features = np.concatenate([X, rows], axis=3)
    if objective != "mle-struct":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # kinks end late
            crf.fit(features, Y, capacities=degrees)
    else:
        crf = ff.MatchingCRF(ff.MLEStruct(points="marginals"), l2=0.1)
        crf.fit(features, Y, capacities=degrees)
        assert abs(crf.weights_[2]) < 1e-6
        marginals = crf.predict_marginals(features, capacities=degrees)
        assert_allclose(marginals[0].sum(axis=1), degrees[0][0], rtol=0, atol=1e-6)
    assert crf.weights_[0] > 3 * abs(crf.weights_[1])
    found = crf.predict(features, capacities=degrees)
    assert_array_equal(found[0].sum(axis=0), degrees[0][1])
    assert (
        np.mean([(one * y).sum() / max(y.sum(), 1) for one, y in zip(found, Y, strict=True)]) > 0.8
    )


def test_prediction_score_and_sample():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12, 4, 6, 2))
    Y = [ff.Assignment(capacity=(3, 2)).match(x @ [2.0, -1.0]).edges.astype(int) for x in X]
    crf = ff.MatchingCRF(capacity=(3, 2)).fit(X[:8], Y[:8], validation=(X[8:], Y[8:]))
    assert all("validation" in row for row in crf.trace_)
    found = crf.predict(X)
    assert all((one.sum(axis=1) == 3).all() and (one.sum(axis=0) == 2).all() for one in found)
    overlap = sum(2 * (one * y).sum() for one, y in zip(found, Y, strict=True))
    assert crf.score(X, Y) == overlap / sum(
        (one.sum() + y.sum()) for one, y in zip(found, Y, strict=True)
    )
    lower, upper = crf.log_likelihood_bounds(X[:3], Y[:3])
    assert np.all(lower <= upper)
    assert np.all(upper == 0.0)
    drawn = crf.sample(X[:2], 3)
    assert drawn[0].shape == (3, 4, 6)
    assert (drawn[0].sum(axis=2) == 3).all()


def test_mistakes():
    X = np.zeros((2, 3, 3, 1))
    one, two = np.eye(3, dtype=int), np.ones((3, 3), dtype=int) - np.eye(3, dtype=int)
    cases = [
        (ff.MatchingCRF(capacity=0), [one, one], "capacity must be an integer of at least 1"),
        (ff.MatchingCRF(capacity=(1, 2, 3)), [one, one], "or a pair of them"),
        (ff.MatchingCRF(capacity=1, kind="general"), [one, one], "kind='general'"),
        (ff.MatchingCRF(capacity=1, rho=0.5), [one, one], "rho must be None or 0"),
        (ff.MatchingCRF("likelihood", capacity=1), [one, one], "no exact sums"),
        (ff.MatchingCRF(capacity=2), [two, one], r"Y\[1\] must have exactly 2 partners of row 0"),
        (ff.MatchingCRF(capacity=1, perfect=False), [one, two], "at most 1 partners of row 0"),
        (ff.MatchingCRF(capacity=1), [one, 2 * one], r"Y\[1\] must be a matrix of 0 and 1"),
        (ff.MatchingCRF(capacity=1), [[0, 1, 2]] * 2, "a matrix of 0 and 1 of shape"),
    ]
    for crf, Y, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            crf.fit(X, Y)
    bad = [(np.array([1, 1]), np.array([1, 1, 1]))] * 2
    with pytest.raises(InvalidInputError, match=r"capacities\[0\] must be integers, 3 of rows"):
        ff.MatchingCRF().fit(X, [one, one], capacities=bad)
    with pytest.raises(InvalidInputError, match="rho must be 0 with capacities"):
        matching_marginals(np.zeros((2, 2)), capacities=(np.ones(2, int), np.ones(2, int)))
    with pytest.raises(InvalidInputError, match="learner must be None for mle-struct"):
        ff.MatchingCRF(learner="lbfgs").fit(X, [[0, 1, 2]] * 2)
    fitted = ff.MatchingCRF(capacity=1).fit(X, [one, one])
    with pytest.raises(InvalidInputError, match="capacity must be None for an exact"):
        fitted.log_likelihood(X, [one, one])
