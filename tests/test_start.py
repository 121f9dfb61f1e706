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
    objective = ImplicitLoss("ucl", Convex(0.5), fit_entropy="tied")
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
