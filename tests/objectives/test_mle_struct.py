"""MLE-Struct against the double loop: same weights, valid gaps at every iteration."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.objectives.mle_struct import MLEStruct


def grids(n_examples, shape, seed, n_features=2):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(*shape, n_features)) for _ in range(n_examples)]
    Y = [(x[..., 0] + 0.7 * rng.normal(size=shape) > 0).astype(int) for x in X]
    return X, Y


def double_loop(estimator, X, Y, l2, entropy=None, **options):
    inference = ff.SumProduct(entropy or ff.TreeReweighted(), tol=1e-12, max_iter=20_000)
    return estimator(ff.Likelihood(inference), l2=l2, tol=1e-10, max_iter=1000).fit(X, Y, **options)


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("mode", ["block", "batch"])
@pytest.mark.parametrize("l2", [1.0, 10.0, 100.0])
def test_weights_of_the_double_loop(mode, l2):
    """At a gap of 1e-6 of the objective weights differ by less than 1e-4 of the largest."""
    X, Y = grids(6, (3, 3), 1)
    expected = double_loop(ff.GridCRF, X, Y, l2)
    found = ff.GridCRF(MLEStruct(tol=1e-6, mode=mode), l2=l2, max_iter=2000).fit(X, Y)
    assert found.converged_, found.status_
    assert relative(found.weights_, expected.weights_) < 1e-4
    optimum = expected.trace_[-1]["objective"]
    for row in found.trace_:
        # the dual is below the optimum, and never further than the gap
        assert row["objective"] <= optimum * (1.0 + 1e-9)
        assert row["gap"] >= optimum * (1.0 - 1e-9) - row["objective"]
    assert found.trace_[-1]["gap"] <= 1e-6 * optimum * (1.0 + 1e-6)


@pytest.mark.parametrize("step", ["line-search", "fixed"])
@pytest.mark.parametrize("mode", ["block", "batch"])
def test_plain_frank_wolfe_comes_near(step, mode):
    X, Y = grids(4, (3, 3), 2)
    expected = double_loop(ff.GridCRF, X, Y, 50.0)
    objective = MLEStruct(tol=1e-9, mode=mode, step=step, directions="frank-wolfe")
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=300"):
        found = ff.GridCRF(objective, l2=50.0, max_iter=300).fit(X, Y)
    optimum = expected.trace_[-1]["objective"]
    assert relative(found.weights_, expected.weights_) < (2e-2 if step == "fixed" else 5e-3)
    assert all(row["gap"] >= optimum - row["objective"] - 1e-8 for row in found.trace_)
    if step == "line-search":
        values = [row["objective"] for row in found.trace_]
        assert np.all(np.diff(values) >= -1e-9)


@pytest.mark.parametrize("mode", ["block", "batch"])
def test_marginals_as_points(mode):
    """Messages instead of vertices: the same optimum, and MAP searches still certify every row."""
    X, Y = grids(5, (3, 3), 11)
    expected = double_loop(ff.GridCRF, X, Y, 5.0)
    objective = MLEStruct(tol=1e-6, mode=mode, points="marginals")
    found = ff.GridCRF(objective, l2=5.0, max_iter=500).fit(X, Y)
    assert found.converged_, found.status_
    # this gap is nearly sharp, so it ends earlier; the penalty alone curves the objective by l2
    distance = np.linalg.norm(found.weights_ - expected.weights_)
    assert distance <= np.sqrt(2.0 * found.trace_[-1]["gap"] / 5.0)
    assert relative(found.weights_, expected.weights_) < 1e-3
    optimum = expected.trace_[-1]["objective"]
    for row in found.trace_:
        assert row["objective"] <= optimum * (1.0 + 1e-9)
        assert row["gap"] >= optimum * (1.0 - 1e-9) - row["objective"]


@pytest.mark.parametrize("points", ["vertices", "marginals"])
@pytest.mark.parametrize("directions", ["pairwise", "frank-wolfe"])
def test_start_at_the_labels(points, directions):
    """Another way to the same optimum, with a gap from the first row on."""
    X, Y = grids(6, (3, 4), 13)
    l2 = 20.0
    expected = double_loop(ff.GridCRF, X, Y, l2)
    objective = MLEStruct(tol=1e-4, points=points, directions=directions, start="labels")
    found = ff.GridCRF(objective, l2=l2, max_iter=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found.fit(X, Y)
    assert found.converged_ or (points, directions) == ("vertices", "frank-wolfe")
    optimum = expected.trace_[-1]["objective"]
    for row in found.trace_:
        assert np.isfinite(row["gap"])
        assert row["objective"] <= optimum * (1.0 + 1e-9)
        assert row["gap"] >= optimum * (1.0 - 1e-9) - row["objective"]
    distance = np.linalg.norm(found.weights_ - expected.weights_)
    assert distance <= np.sqrt(2.0 * found.trace_[-1]["gap"] / l2)


def test_matchings_start_at_the_labels():
    """Where the polytope is another one, too, the gap is valid from the first row on."""
    rng = np.random.default_rng(15)
    X, Y = rng.normal(size=(6, 4, 4, 2)), np.array([rng.permutation(4) for _ in range(6)])
    fits = [
        ff.MatchingCRF(MLEStruct(ff.Bethe(), tol=1e-6, start=start), l2=1.0, max_iter=3000)
        for start in ("uniform", "labels")
    ]
    uniform, labels = (crf.fit(X, Y) for crf in fits)
    assert labels.converged_
    assert relative(labels.weights_, uniform.weights_) < 1e-2
    optimum = max(crf.trace_[-1]["objective"] for crf in fits)
    for row in labels.trace_:
        assert optimum - row["objective"] - 1e-9 <= row["gap"] < np.inf


@pytest.mark.parametrize("points", ["vertices", "marginals"])
def test_examples_without_weight(points):
    X, Y = grids(3, (2, 3), 12)
    objective = MLEStruct(tol=1e-8, points=points)
    with_weight = ff.GridCRF(objective, l2=3.0, max_iter=2000)
    with_weight.fit(X, Y, sample_weight=[1.0, 0.0, 1.0])
    without = ff.GridCRF(objective, l2=3.0, max_iter=2000).fit(X[::2], Y[::2])
    allowed = sum(np.sqrt(2.0 * one.trace_[-1]["gap"] / 3.0) for one in (with_weight, without))
    assert np.linalg.norm(with_weight.weights_ - without.weights_) <= allowed < 1e-3


def test_chains_of_three_labels_are_exact():
    """On a tree with Bethe's entropy this is maximum likelihood."""
    rng = np.random.default_rng(3)
    X = [(rng.normal(size=(5, 2)), np.array([[0, 1], [1, 2], [2, 3], [3, 4]])) for _ in range(8)]
    Y = [rng.integers(0, 3, 5) for _ in X]
    expected = ff.GraphCRF("likelihood", l2=2.0, tol=1e-10, max_iter=1000).fit(X, Y)
    found = ff.GraphCRF(MLEStruct(ff.Bethe(), tol=1e-6), l2=2.0, max_iter=3000).fit(X, Y)
    assert found.converged_
    assert relative(found.weights_, expected.weights_) < 1e-4


def test_generative_models():
    rng = np.random.default_rng(4)
    samples = (rng.random((200, 4)) < 0.5).astype(int)
    samples[:, 1] = np.where(rng.random(200) < 0.8, samples[:, 0], samples[:, 1])
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    inference = ff.SumProduct(ff.TreeReweighted(), tol=1e-12, max_iter=20_000)
    expected = ff.IsingModel(ff.Likelihood(inference), l2=5.0, tol=1e-10).fit(samples, edges=edges)
    found = ff.IsingModel(MLEStruct(tol=1e-7), l2=5.0, max_iter=2000).fit(samples, edges=edges)
    assert found.converged_
    assert relative(found.weights_, expected.weights_) < 1e-4


def test_sample_weights_are_copies():
    X, Y = grids(3, (2, 3), 5)
    objective = MLEStruct(tol=1e-8)
    weighted = ff.GridCRF(objective, l2=3.0, max_iter=2000).fit(X, Y, sample_weight=[2, 1, 1])
    copied = ff.GridCRF(objective, l2=3.0, max_iter=2000).fit([X[0], *X], [Y[0], *Y])
    assert relative(weighted.weights_, copied.weights_) < 1e-4


def test_groups_of_examples_and_threads():
    """Blocks of several examples have the same optimum; threads change nothing at all."""
    X, Y = grids(6, (2, 3), 6)
    fits = [
        ff.GridCRF(MLEStruct(tol=1e-7), l2=10.0, max_iter=2000, batch_size=size, n_jobs=n_jobs).fit(
            X, Y
        )
        for size, n_jobs in ((None, 1), (None, 3), (3, 1))
    ]
    np.testing.assert_array_equal(fits[0].weights_, fits[1].weights_)
    assert relative(fits[2].weights_, fits[0].weights_) < 1e-4


@pytest.mark.parametrize(
    "objective", [MLEStruct(tol=1e-7), MLEStruct(points="marginals", start="labels", tol=1e-9)]
)
def test_a_fit_that_is_resumed(objective, tmp_path):
    X, Y = grids(4, (3, 3), 7)

    def model(max_iter):
        return ff.GridCRF(objective, l2=10.0, max_iter=max_iter)

    whole = model(2000).fit(X, Y, checkpoint=tmp_path / "whole")
    with pytest.warns(ConvergenceWarning):
        model(10).fit(X, Y, checkpoint=tmp_path / "parts")
    parts = model(2000).fit(X, Y, checkpoint=tmp_path / "parts")
    assert parts.n_iter_ == whole.n_iter_ > 10
    np.testing.assert_array_equal(parts.weights_, whole.weights_)


def test_missing_labels_go_by_messages():
    X, Y = grids(4, (3, 3), 8)
    Y[0][0, 0] = -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ff.GridCRF("mle-struct", l2=5.0).fit(X, Y)
    expected = ff.GridCRF("trw", l2=5.0).fit(X, Y)
    assert "gradient_norm" in found.trace_[-1]
    assert relative(found.weights_, expected.weights_) < 1e-3


def test_a_model_is_saved_and_loaded(tmp_path):
    X, Y = grids(3, (2, 2), 9)
    fitted = ff.GridCRF(MLEStruct(oracle=ff.RoofDuality(), tol=1e-5), l2=5.0).fit(X, Y)
    fitted.save(tmp_path / "m.ff")
    again = ff.load(tmp_path / "m.ff")
    np.testing.assert_array_equal(again.weights_, fitted.weights_)
    assert again.objective == fitted.objective
    np.testing.assert_allclose(
        np.concatenate(again.predict_marginals(X)).ravel(),
        np.concatenate(
            ff.GridCRF(MLEStruct(tol=1e-5), l2=5.0).fit(X, Y).predict_marginals(X)
        ).ravel(),
        rtol=0,
        atol=1e-3,
    )


def test_bad_options():
    X, Y = grids(2, (2, 2), 0)
    for options, words in (
        ({"l2": 0.0}, "l2 must be positive for mle-struct"),
        ({"l2": 1.0, "l1": 0.5}, "l1 must be 0 for mle-struct"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            ff.GridCRF("mle-struct", **options).fit(X, Y)
    with pytest.raises(InvalidInputError, match="Bethe is not proved to be on"):
        ff.GridCRF(MLEStruct(ff.Bethe()), l2=1.0).fit(*grids(2, (3, 3), 0))
    for given, words in (
        ({"step": "long"}, "step must be one of"),
        ({"mode": "all"}, "mode must be one of"),
        ({"directions": "away"}, "directions must be one of"),
        ({"step": "fixed"}, "step must be 'line-search' for pairwise directions"),
        ({"points": "edges"}, "points must be one of"),
        ({"start": "random"}, "start must be one of"),
        ({"oracle": 3}, "oracle must be an object such as"),
        ({"tol": 0.0}, "tol must be positive"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            MLEStruct(**given)


def test_later_passes_have_more_sweeps():
    """With few sweeps for good, what messages lack keeps the gap open (over 200 passes here)."""
    rng = np.random.default_rng(0)
    Y = np.repeat(rng.integers(0, 2, size=(8, 6, 1)), 6, axis=2)
    X = Y + 0.8 * rng.normal(size=Y.shape)
    fitted = ff.GridCRF(MLEStruct(points="marginals", tol=1e-4), l2=1.0, max_iter=120).fit(X, Y)
    assert fitted.converged_
