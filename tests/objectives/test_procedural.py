"""Procedural fitting: the objective beyond its laws, and what estimators make of it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fieldfit as ff
from fieldfit.inference.mean_field.unrolled_mean_field import UnrolledMeanField
from fieldfit.learners.problem import TemplateProblem
from fieldfit.models.parts import make_parts
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.marginal_losses import MarginalLoss
from fieldfit.objectives.procedural_loss import ProceduralLoss
from fieldfit.objectives.registry import make_objective


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
    assert crf.score(X[12:], Y[12:]) > independent + 0.06


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
    objective = ProceduralLoss(
        MarginalLoss("suclass", sharpness=5.0), n_sweeps=2, entropy=ff.Convex(), order="grid"
    )
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
    with pytest.raises(ff.InvalidInputError, match="entropy must be an object such as"):
        ProceduralLoss(entropy="bethe")
    with pytest.raises(ff.InvalidInputError, match="schedule must be 'sequential' with entropy"):
        ProceduralLoss(entropy="mean-field", schedule="tree")


def test_mean_field():
    rng = np.random.default_rng(4)
    X, Y = pictures(rng, 12)
    objective = ProceduralLoss("uquad", n_sweeps=3, entropy="mean-field")
    crf = ff.GridCRF(objective=objective, l2=0.1, max_iter=1000).fit(X[:6], Y[:6])
    assert crf.score(X[6:], Y[6:]) > 0.8
    assert isinstance(objective.prediction(ff.FactorGraph.chain(2, 2)), UnrolledMeanField)


# -- weights of their own for each sweep --------------------------------------------------


def test_gradient_by_weights_of_each_sweep():
    rng = np.random.default_rng(5)
    X, Y = pictures(rng, 3, 8, 8)
    objective = ProceduralLoss("ccl", n_sweeps=3, per_sweep_weights=True)
    crf = ff.GridCRF(objective=objective, batch_size=2)
    crf.n_labels_ = 2
    labels = crf._checked_labels(X, Y, None)
    labels[1][3] = -1
    weights = np.array([1.0, 0.5, 2.0])
    parts = list(
        make_parts([np.arange(2), np.arange(2, 3)], crf._reader(X), crf._blocks, labels, weights)
    )
    problem = TemplateProblem(objective, parts)
    n_shared = parts[0].template.n_weights
    assert problem.n_weights == 3 * n_shared
    point, step = rng.normal(size=problem.n_weights), 1e-5
    gradient = problem.evaluate(point).gradient
    for z in range(len(point)):
        moved = [point.copy(), point.copy()]
        moved[0][z] += step
        moved[1][z] -= step
        ends = [problem.evaluate(one).value for one in moved]
        assert gradient[z] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-6)
    shared = TemplateProblem(ProceduralLoss("ccl", n_sweeps=3), parts)
    same = np.tile(point[:n_shared], 3)
    assert problem.evaluate(same).value == pytest.approx(shared.evaluate(point[:n_shared]).value)
    np.testing.assert_allclose(
        problem.evaluate(same).gradient.reshape(3, -1).sum(axis=0),
        shared.evaluate(point[:n_shared]).gradient,
        rtol=1e-10,
        atol=1e-9,
    )


def test_fit_with_weights_of_each_sweep(tmp_path):
    rng = np.random.default_rng(6)
    X, Y = pictures(rng, 12)
    objective = ProceduralLoss("ucl", n_sweeps=2, per_sweep_weights=True)
    options = {"l2": 0.1, "max_iter": 1000}
    crf = ff.GridCRF(objective=objective, **options).fit(X, Y)
    shared = ff.GridCRF(objective=ProceduralLoss("ucl", n_sweeps=2), **options).fit(X, Y)
    assert len(crf.weights_) == 2 * len(shared.weights_)
    assert crf.trace_[-1]["objective"] < shared.trace_[-1]["objective"]
    assert set(crf.weight_blocks_) == {
        f"{name}, sweep {sweep}" for name in shared.weight_blocks_ for sweep in (1, 2)
    }
    crf.save(tmp_path / "model")
    again = ff.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_marginals(X)[0], crf.predict_marginals(X)[0])
    with pytest.raises(ff.InvalidInputError, match="sample needs one set of weights"):
        crf.sample(X)
    with pytest.raises(ff.InvalidInputError, match="log_likelihood_bounds needs one set"):
        crf.log_likelihood_bounds(X, Y)
    with pytest.raises(ff.InvalidInputError, match="decode must be 'marginals'"):
        ff.GridCRF(objective=objective, decode="map").fit(X, Y)


def test_who_does_not_take_several_sets_of_weights():
    objective = ProceduralLoss(n_sweeps=2, per_sweep_weights=True)
    with pytest.raises(ff.InvalidInputError, match="objective must have one set of weights"):
        ff.ChainCRF(objective=objective).fit([[{"a": 1.0}, {"b": 1.0}]], [["x", "y"]])
    graph = ff.FactorGraph.chain(2, 2)
    with pytest.raises(ff.InvalidInputError, match="potentials must be 2, one for each sweep"):
        objective.value_and_grad(graph, ff.Potentials(graph), [0, 1])
    batch, labels = ff.graph.Batch.of([graph]), np.array([0, 1], dtype=np.int32)
    with pytest.raises(ff.InvalidInputError, match="must have several sets of weights"):
        ff.Likelihood().evaluate_sets(batch, [ff.Potentials(graph)], labels)
