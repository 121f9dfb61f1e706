"""Quasi-Newton steps of MLE-Struct: bounds that bracket, weights of the double loop, same bits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from reference.point_mixture import simplex_maximum

import fieldfit as ff
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.learners import DualFrankWolfe
from fieldfit.learners.dual_mixture import MAX_POINTS, PointMixture, best_shares
from fieldfit.learners.dual_quasi_newton import FIRST_BLOCKS, sample_sizes
from fieldfit.objectives.mle_struct import MLEStruct


def grids(n_examples, shape, seed, n_features=2):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(*shape, n_features)) for _ in range(n_examples)]
    Y = [(x[..., 0] + 0.7 * rng.normal(size=shape) > 0).astype(int) for x in X]
    return X, Y


def quasi_newton(tol, **options):
    return MLEStruct(points="marginals", step="quasi-newton", tol=tol, **options)


def double_loop(estimator, X, Y, l2, entropy=None, **options):
    inference = ff.SumProduct(entropy or ff.TreeReweighted(), tol=1e-12, max_iter=20_000)
    return estimator(ff.Likelihood(inference), l2=l2, tol=1e-10, max_iter=1000).fit(X, Y, **options)


class Weights(list):
    """Notes the weights after every iteration, the last of which count as the best."""

    def __call__(self, weights):
        self.append(weights.copy())
        return float(len(self))


def require_brackets(trace, optimum):
    for row in trace:
        assert row["objective"] <= optimum * (1.0 + 1e-9)
        assert row["objective"] + row["gap"] >= optimum * (1.0 - 1e-9)


def require_near(fitted, expected, l2):
    """The penalty alone curves the objective by ``l2``, so a gap bounds the distance of weights."""
    assert fitted.converged_, fitted.status_
    distance = np.linalg.norm(fitted.weights_ - expected.weights_)
    assert distance <= np.sqrt(2.0 * fitted.trace_[-1]["gap"] / l2) + 1e-8


# -- mixtures ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_shares_against_an_enumeration_of_faces(seed):
    rng = np.random.default_rng(seed)
    entropies, residuals = 5.0 * rng.random(5), rng.normal(size=(5, 3))
    products = residuals @ residuals.T
    found = best_shares(entropies, products, np.full(5, 0.2))
    assert found.min() >= 0.0
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-12)
    value = entropies @ found - 0.5 * found @ products @ found
    np.testing.assert_allclose(value, simplex_maximum(entropies, products), rtol=1e-6)


def test_a_mixture_that_forgets_points_stays_a_bound():
    """Points of one binary variable: beliefs ``q``, entropy ``h(q)``, feature ``q``."""
    rng = np.random.default_rng(0)
    statistics, l2 = np.array([0.7]), np.array([0.5])

    def dual(q):
        return -q * np.log(q) - (1 - q) * np.log(1 - q) - 0.5 * (statistics[0] - q) ** 2 / l2[0]

    best = dual(np.linspace(1e-6, 1 - 1e-6, 100_001)).max()
    mixture = PointMixture(statistics, l2)
    largest = -np.inf
    for q in rng.uniform(0.01, 0.99, size=3 * MAX_POINTS):
        mixture.add(float(-q * np.log(q) - (1 - q) * np.log(1 - q)), np.array([q]))
        largest = max(largest, dual(q))
        assert largest - 1e-6 <= mixture.bound() <= best + 1e-9
    assert len(mixture.shares) == MAX_POINTS
    assert mixture.bound() > best - 1e-3


def test_samples_double_up_to_all_blocks():
    assert sample_sizes(3) == [3]
    assert sample_sizes(100) == [13, 25, 50, 100]
    for n in range(1, 200):
        sizes = sample_sizes(n)
        assert sizes[-1] == n
        assert sizes[0] >= min(n, FIRST_BLOCKS)
        assert all(small < large <= 2 * small for small, large in pairwise(sizes))


# -- fits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("l2", [0.3, 5.0, 100.0])
@pytest.mark.parametrize("n_examples", [5, 36])
def test_certificates_hold_in_every_iteration(n_examples, l2):
    """With all examples from the first step on, and with samples that grow."""
    X, Y = grids(n_examples, (3, 4), n_examples)
    expected = double_loop(ff.GridCRF, X, Y, l2)
    optimum = expected.trace_[-1]["objective"]
    fitted = ff.GridCRF(quasi_newton(1e-6), l2=l2, max_iter=300).fit(X, Y)
    require_brackets(fitted.trace_, optimum)
    require_near(fitted, expected, l2)
    assert fitted.trace_[-1]["gap"] <= 1e-6 * optimum * (1.0 + 1e-6)


def test_the_gap_bounds_the_objective_of_the_weights():
    """Not only their distance: `P(w)` of the fit, by message passing of its own."""
    X, Y = grids(6, (4, 4), 3)
    l2 = 0.5
    optimum = double_loop(ff.GridCRF, X, Y, l2).trace_[-1]["objective"]
    for tol in (1e-1, 1e-2, 1e-3, 1e-5):
        fitted = ff.GridCRF(quasi_newton(tol), l2=l2, max_iter=300).fit(X, Y)
        inference = ff.SumProduct(ff.TreeReweighted(), tol=1e-12, max_iter=20_000)
        crf = ff.GridCRF(ff.Likelihood(inference), l2=l2, max_iter=1)
        with pytest.warns(ConvergenceWarning):
            crf.fit(X, Y, start=fitted.weights_)
        own = crf.trace_[0]["objective"]  # after one step from there, so not above it
        assert own <= optimum + fitted.trace_[-1]["gap"] + 1e-8 * optimum


def test_strong_couplings():
    rng = np.random.default_rng(5)
    Y = np.repeat(rng.integers(0, 2, size=(12, 6, 1)), 6, axis=2)
    X = Y + 0.8 * rng.normal(size=Y.shape)
    expected = double_loop(ff.GridCRF, X, Y, 0.1)
    fitted = ff.GridCRF(quasi_newton(1e-5), l2=0.1, max_iter=500).fit(X, Y)
    require_brackets(fitted.trace_, expected.trace_[-1]["objective"])
    require_near(fitted, expected, 0.1)


def test_three_labels_go_by_converged_messages():
    rng = np.random.default_rng(3)
    X = [(rng.normal(size=(5, 2)), np.array([[0, 1], [1, 2], [2, 3], [3, 4]])) for _ in range(20)]
    Y = [rng.integers(0, 3, 5) for _ in X]
    expected = ff.GraphCRF("likelihood", l2=2.0, tol=1e-10, max_iter=1000).fit(X, Y)
    objective = quasi_newton(1e-7, entropy=ff.Bethe())
    fitted = ff.GraphCRF(objective, l2=2.0, max_iter=300).fit(X, Y)
    require_brackets(fitted.trace_, expected.trace_[-1]["objective"])
    require_near(fitted, expected, 2.0)


def test_one_example_for_many_samples():
    """Statistics are no vertex of the polytope, so there is no sample of blocks."""
    rng = np.random.default_rng(4)
    samples = (rng.random((200, 4)) < 0.5).astype(int)
    samples[:, 1] = np.where(rng.random(200) < 0.8, samples[:, 0], samples[:, 1])
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    inference = ff.SumProduct(ff.TreeReweighted(), tol=1e-12, max_iter=20_000)
    expected = ff.IsingModel(ff.Likelihood(inference), l2=5.0, tol=1e-10).fit(samples, edges=edges)
    fitted = ff.IsingModel(quasi_newton(1e-8), l2=5.0, max_iter=300).fit(samples, edges=edges)
    require_near(fitted, expected, 5.0)


def test_matchings():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(20, 4, 4, 2))
    Y = [ff.Assignment().match(x @ [1.0, -1.0] + rng.normal(size=(4, 4))).partners for x in X]
    newton = ff.MatchingCRF(MLEStruct(points="marginals", tol=1e-8), rho=0.5, l2=1.0).fit(X, Y)
    fitted = ff.MatchingCRF(quasi_newton(1e-7), rho=0.5, l2=1.0, max_iter=300).fit(X, Y)
    require_near(fitted, newton, 1.0)
    require_brackets(fitted.trace_, newton.trace_[-1]["objective"])


def test_weights_of_examples():
    X, Y = grids(4, (3, 3), 7)
    weights = [2.0, 0.0, 1.0, 1.0]
    fitted = ff.GridCRF(quasi_newton(1e-8), l2=3.0, max_iter=300)
    fitted.fit(X, Y, sample_weight=weights)
    copied = double_loop(ff.GridCRF, [X[0], X[0], *X[2:]], [Y[0], Y[0], *Y[2:]], 3.0)
    require_near(fitted, copied, 3.0)


def test_threads_change_nothing():
    X, Y = grids(20, (3, 3), 8)
    fits = [
        ff.GridCRF(quasi_newton(1e-6), l2=3.0, max_iter=300, n_jobs=n_jobs).fit(X, Y)
        for n_jobs in (1, 3)
    ]
    np.testing.assert_array_equal(fits[0].weights_, fits[1].weights_)


@pytest.mark.parametrize("n_first", [3, 10])
def test_a_fit_that_is_resumed(n_first, tmp_path):
    """In the middle of the samples, and after them."""
    X, Y = grids(36, (3, 4), 9)

    def fit(max_iter, name):
        learner = DualFrankWolfe(quasi_newton(1e-7), max_iter=max_iter, checkpoint_every=n_first)
        crf = ff.GridCRF(quasi_newton(1e-7), l2=2.0, learner=learner)
        return crf.fit(X, Y, checkpoint=tmp_path / name)

    whole = fit(300, "whole")
    with pytest.warns(ConvergenceWarning):
        fit(n_first, "parts")
    parts = fit(300, "parts")
    assert parts.n_iter_ == whole.n_iter_ > n_first
    np.testing.assert_array_equal(parts.weights_, whole.weights_)
    assert [row["gap"] for row in parts.trace_] == [row["gap"] for row in whole.trace_]


def test_a_fit_that_ends_early_says_so():
    X, Y = grids(5, (3, 4), 10)
    with pytest.warns(ConvergenceWarning, match="the gap is still"):
        fitted = ff.GridCRF(quasi_newton(1e-9), l2=1.0, max_iter=4).fit(X, Y)
    assert not fitted.converged_
    assert np.isfinite(fitted.trace_[-1]["gap"])


def test_messages_are_needed():
    with pytest.raises(InvalidInputError, match="points must be 'marginals' for step='quasi-newto"):
        MLEStruct(step="quasi-newton")
    with pytest.raises(InvalidInputError, match="oracle must be None for points='marginals'"):
        quasi_newton(1e-4, oracle=ff.ExactMap())
    with pytest.raises(InvalidInputError, match="oracle must be None for points='marginals'"):
        MLEStruct(points="marginals", oracle=ff.ExactMap())


# -- averages of Frank-Wolfe iterates --------------------------------------------------------


def test_averaged_weights():
    """Iterate ``k`` counts ``k`` times; a group of four blocks makes one."""
    X, Y = grids(4, (3, 3), 11)
    objective = MLEStruct(points="marginals", directions="frank-wolfe", tol=1e-12)
    n_passes = 6

    def weights(average):
        noted = Weights()
        learner = DualFrankWolfe(objective, max_iter=n_passes, averaging=average)
        _Noted.note, _Noted.learner = noted, learner
        crf = ff.GridCRF(objective, l2=30.0, learner=_Noted())
        with pytest.warns(ConvergenceWarning):
            crf.fit(X, Y)
        return noted

    iterates, averages = np.array(weights(False)), np.array(weights(True))
    counts = np.arange(1, n_passes + 1)
    for k in range(1, n_passes + 1):
        expected = counts[:k] @ iterates[:k] / counts[:k].sum()
        np.testing.assert_allclose(averages[k - 1], expected, rtol=1e-10, atol=1e-14)


class _Noted(ff.learners.Learner):
    """A learner that tells its weights after every pass."""

    uses_start = False
    note: Weights
    learner: DualFrankWolfe

    def minimize(self, problem, start, **options):
        return self.learner.minimize(problem, start, **{**options, "validation": self.note})


def test_averages_end_with_the_gap():
    """Weights that a gap is proved for are no average."""
    X, Y = grids(6, (3, 3), 12)
    objective = MLEStruct(tol=1e-5)
    fits = [
        ff.GridCRF(objective, l2=10.0, learner=DualFrankWolfe(objective, averaging=average)).fit(
            X, Y
        )
        for average in (False, True)
    ]
    assert fits[0].converged_
    np.testing.assert_array_equal(fits[0].weights_, fits[1].weights_)


def test_averaged_fits_are_resumed(tmp_path):
    X, Y = grids(6, (3, 3), 13)
    objective = MLEStruct(directions="frank-wolfe", tol=1e-9)

    def fit(max_iter, name):
        learner = DualFrankWolfe(objective, max_iter=max_iter, averaging=True, checkpoint_every=5)
        with pytest.warns(ConvergenceWarning):
            return ff.GridCRF(objective, l2=30.0, learner=learner).fit(
                X, Y, checkpoint=tmp_path / name
            )

    whole = fit(15, "whole")
    fit(5, "parts")
    np.testing.assert_array_equal(fit(15, "parts").weights_, whole.weights_)


def test_quasi_newton_steps_are_not_averaged():
    X, Y = grids(3, (2, 2), 14)
    objective = quasi_newton(1e-4)
    learner = DualFrankWolfe(objective, averaging=True)
    with pytest.raises(InvalidInputError, match="averaging must be False for Newton's and quasi-"):
        ff.GridCRF(objective, l2=1.0, learner=learner).fit(X, Y)
