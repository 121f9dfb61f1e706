"""Procedural fitting: the objective beyond its laws, and what estimators make of it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fieldfit as ff
from fieldfit.adjoint.losses import MarginalLoss
from fieldfit.objective.auto import make_objective
from fieldfit.objective.likelihood import Likelihood
from fieldfit.objective.procedural import ProceduralLoss


def pictures(rng, count, height=14, width=12, noise=0.6):
    """Rectangles of ones; ``noise`` is the share of pixels that are drawn anew."""
    labels = np.zeros((count, height, width), dtype=np.int64)
    for picture in labels:
        top, left = rng.integers(0, height - 7), rng.integers(0, width - 6)
        picture[top : top + rng.integers(5, 8), left : left + rng.integers(4, 7)] = 1
    drawn = rng.random(labels.shape) < noise
    seen = np.where(drawn, rng.integers(0, 2, labels.shape), labels)
    return list(seen[..., None].astype(float)), list(labels)


@pytest.mark.parametrize("loss", ["ucl", "cquad"])
def test_noisy_pictures(loss):
    rng = np.random.default_rng(0)
    X, Y = pictures(rng, 24)
    objective = ProceduralLoss(loss, n_sweeps=3, order="grid")
    crf = ff.GridCRF(objective=objective, l2=0.1, max_iter=1000).fit(X[:12], Y[:12])
    alone = LogisticRegression().fit(
        np.concatenate([x.reshape(-1, 1) for x in X[:12]]),
        np.concatenate([y.ravel() for y in Y[:12]]),
    )
    seen = np.concatenate([x.reshape(-1, 1) for x in X[12:]])
    independent = float(np.mean(alone.predict(seen) == np.concatenate([y.ravel() for y in Y[12:]])))
    assert crf.score(X[12:], Y[12:]) > independent + 0.08


def test_predictions_are_the_same_sweeps_and_do_not_warn():
    rng = np.random.default_rng(1)
    X, Y = pictures(rng, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crf = ff.GridCRF(objective=ProceduralLoss(n_sweeps=2), l2=0.1, max_iter=200).fit(X, Y)
        marginals = crf.predict_marginals(X)
        crf.predict(X)
        crf.score(X, Y)
    (part,) = crf._parts(X[:1])
    potentials = part.template.potentials(crf.weights_)
    run = crf.objective.sweeps().record(part.batch, potentials)
    np.testing.assert_allclose(
        marginals[0].reshape(-1), run.beliefs().unary_values, rtol=0, atol=1e-13
    )


def test_a_model_file_keeps_it(tmp_path):
    rng = np.random.default_rng(2)
    X, Y = pictures(rng, 4)
    objective = ProceduralLoss(MarginalLoss("suclass", sharpness=5.0), 2, ff.Convex(), order="grid")
    crf = ff.GridCRF(objective=objective, l2=1.0).fit(X, Y)
    crf.save(tmp_path / "model")
    again = ff.load(tmp_path / "model")
    assert again.objective == objective
    for before, after in zip(crf.predict_marginals(X), again.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(before, after)


def test_exact_sweeps_give_the_likelihood_of_single_variables():
    """On a tree, one variable labelled, ``ucl`` is ``-log p(y_i)``: the likelihood with the rest
    missing."""
    rng = np.random.default_rng(3)
    graph = ff.FactorGraph.chain(6, 3)
    potentials = ff.Potentials.from_flat(
        graph,
        rng.normal(size=graph.unary_offsets[-1]),
        rng.normal(size=graph.table_offsets[-1]),
    )
    labels = np.full(6, -1)
    labels[2] = 1
    value, gradient = ProceduralLoss(n_sweeps=1).value_and_grad(graph, potentials, labels)
    exact, expected = Likelihood().value_and_grad(graph, potentials, labels)
    assert value == pytest.approx(exact, rel=1e-12)
    np.testing.assert_allclose(gradient.unary_values, expected.unary_values, atol=1e-12)
    np.testing.assert_allclose(gradient.factor_values, expected.factor_values, atol=1e-12)


def test_options():
    objective = make_objective("procedural")
    assert objective == ProceduralLoss()
    assert objective.prediction(ff.FactorGraph.chain(2, 2)) == objective.sweeps()
    with pytest.raises(ff.InvalidInputError, match="loss must be one of"):
        ProceduralLoss("likelihood")
    with pytest.raises(ff.InvalidInputError, match="to be learned with, got 'uclass'"):
        ProceduralLoss("uclass")
    with pytest.raises(ff.InvalidInputError, match="n_sweeps must be"):
        ProceduralLoss(n_sweeps=-1)
