"""Fits that begin at given weights."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fieldfit as ff
from fieldfit.entropy.counting_numbers import Convex
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.objectives.implicit_loss import ImplicitLoss
from fieldfit.objectives.procedural_loss import ProceduralLoss


def stripes(seed=0, count=6):
    rng = np.random.default_rng(seed)
    Y = np.repeat(rng.integers(0, 2, size=(count, 5, 1)), 6, axis=2)
    return list(Y + rng.normal(size=Y.shape)), list(Y)


def one_step(objective, start=None):
    """The objective at the first weights is in the first row of the trace."""
    X, Y = stripes()
    crf = ff.GridCRF(objective=objective, l2=0.1, max_iter=1)
    with pytest.warns(ConvergenceWarning):
        crf.fit(X, Y, start=start)
    return crf


def test_a_fit_that_begins_at_the_optimum_ends_there():
    X, Y = stripes()
    first = ff.GridCRF(objective="pseudolikelihood", l2=0.1).fit(X, Y)
    again = ff.GridCRF(objective="pseudolikelihood", l2=0.1).fit(X, Y, start=first.weights_)
    assert again.n_iter_ <= 1 < first.n_iter_
    assert_allclose(again.weights_, first.weights_, atol=1e-3)


def test_weights_are_repeated_for_every_sweep():
    own = np.random.default_rng(1).normal(size=one_step("pseudolikelihood").weights_.shape)
    shared = one_step(ProceduralLoss("ucl", n_sweeps=2), own)
    apart = one_step(ProceduralLoss("ucl", n_sweeps=2, per_sweep_weights=True), own)
    explicit = one_step(ProceduralLoss("ucl", n_sweeps=2, per_sweep_weights=True), np.tile(own, 2))
    assert apart.weights_.shape == (2 * len(own),)
    assert_array_equal(apart.weights_, explicit.weights_)
    assert not np.array_equal(apart.weights_[: len(own)], shared.weights_)


def test_a_fitted_entropy_begins_as_given():
    own = 0.1 * np.random.default_rng(2).normal(size=one_step("pseudolikelihood").weights_.shape)
    objective = ImplicitLoss("ucl", entropy=Convex(0.5), fit_entropy="tied")
    short = one_step(objective, own)
    full = one_step(objective, np.concatenate([own, np.zeros(len(short.weights_) - len(own))]))
    assert_array_equal(short.weights_, full.weights_)


def test_starts_that_do_not_fit():
    X, Y = stripes()
    crf = ff.GridCRF(objective="pseudolikelihood")
    with pytest.raises(InvalidInputError, match=r"start must have shape \(12,\), got \(3,\)"):
        crf.fit(X, Y, start=np.zeros(3))
    with pytest.raises(InvalidInputError, match="start must be finite"):
        crf.fit(X, Y, start=np.full(12, np.nan))
    with pytest.raises(InvalidInputError, match="start must be an array of real numbers"):
        crf.fit(X, Y, start="zero")


def _data():
    rng = np.random.default_rng(3)
    sequences = [rng.normal(size=(5, 2)) for _ in range(6)]
    tags = [(sequence[:, 0] > 0).astype(int) for sequence in sequences]
    nodes = [(rng.normal(size=(4, 2)), [(0, 1), (1, 2), (2, 3)]) for _ in range(5)]
    samples = rng.integers(0, 2, size=(80, 3))
    features = rng.normal(size=(5, 3, 3, 2))
    return {
        "ChainCRF": (ff.ChainCRF(), (sequences, tags)),
        "SkipChainCRF": (ff.SkipChainCRF(), ([(one, [(0, 3)]) for one in sequences], tags)),
        "GridCRF": (ff.GridCRF(l2=0.1), stripes()),
        "GraphCRF": (ff.GraphCRF(l2=0.1), (nodes, [(one[0][:, 0] > 0) * 1 for one in nodes])),
        "MatchingCRF": (
            ff.MatchingCRF("likelihood"),
            (list(features), [rng.permutation(3) for _ in features]),
        ),
        "IsingModel": (ff.IsingModel(), (samples,)),
        "PottsModel": (ff.PottsModel(), (samples,)),
        "MixtureField": (ff.MixtureField(l2=0.1), (samples, [(0, 1), (1, 2)])),
    }


@pytest.mark.parametrize("name", sorted(_data()))
def test_every_estimator_takes_a_start(name):
    """One that begins at the optimum ends there, and a bad one is refused by name."""
    estimator, data = _data()[name]
    weights = estimator.fit(*data).weights_
    n_iter = estimator.n_iter_
    estimator.fit(*data, start=weights)
    # a fit may also end where its objective no longer falls, a few steps short of the gradient
    assert estimator.n_iter_ <= max(1, n_iter // 10) < n_iter, estimator.status_
    assert_allclose(estimator.weights_, weights, atol=1e-2)
    with pytest.raises(InvalidInputError, match="start must have shape"):
        estimator.fit(*data, start=weights[:-1])
