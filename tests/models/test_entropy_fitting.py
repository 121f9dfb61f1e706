"""Entropies learned beside potentials: templates of weights, gradients, estimators, model files."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from problems import random_tables

import fieldfit as ff
from fieldfit.entropy.configuration_weights import (
    TIES,
    EntropyWeights,
    entropy_template,
    scaled_weights,
)
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.template import Block, Template
from fieldfit.learners.problem import Part, TemplateProblem
from fieldfit.objectives.implicit_loss import ImplicitLoss
from fieldfit.objectives.marginal_losses import SMOOTH_LOSSES

by_ties = pytest.mark.parametrize("ties", TIES)


def grid_template(graph, rng):
    """Features and a constant for variables, two types of edges, one with a feature."""
    types = [np.flatnonzero(graph.factor_types == t) for t in (0, 1)]
    return Template(
        graph,
        [
            Block.unary(graph, rng.normal(size=(graph.n_variables, 2))),
            Block.unary(graph, name="intercept"),
            Block.tables(graph, factors=types[0], name="horizontal", shape=(2, 2)),
            Block.tables(graph, "potts", factors=types[1], name="vertical", shape=(2, 2)),
            Block.tables(
                graph, features=rng.normal(size=(len(types[0]), 1)), factors=types[0],
                name="horizontal_features", shape=(2, 2),
            ),
        ],
    )  # fmt: skip


def grid_problem(objective, seed=0):
    rng = np.random.default_rng(seed)
    parts = []
    for sizes in ([(3, 3), (2, 4)], [(1, 5)]):  # a part without vertical edges
        batch = Batch.of([ff.FactorGraph.grid(*size, 2) for size in sizes])
        labels = rng.integers(0, 2, batch.graph.n_variables).astype(np.int32)
        labels[0] = -1
        parts.append(Part(batch, grid_template(batch.graph, rng), labels))
    return TemplateProblem(objective, parts)


# -- templates ----------------------------------------------------------------------------


def test_blocks_of_entropy_weights():
    rng = np.random.default_rng(0)
    template = grid_template(ff.FactorGraph.grid(2, 3, 2), rng)
    names = {}
    for ties in TIES:
        blocks = entropy_template(template, ties).blocks
        names[ties] = {block.name: block.n_weights for block in blocks}
    of = "entropy of "
    assert names["tied"] == {of + "unary": 1, of + "horizontal": 1, of + "vertical": 1}
    assert names["configuration"] == {of + "unary": 2, of + "horizontal": 4, of + "vertical": 4}
    assert names["features"] == {
        of + "unary": 4,
        of + "intercept": 2,
        of + "horizontal": 4,
        of + "vertical": 4,
        of + "horizontal_features": 4,
    }


@by_ties
def test_a_part_without_some_factors_has_the_same_parameters(ties):
    rng = np.random.default_rng(0)
    whole = entropy_template(grid_template(ff.FactorGraph.grid(2, 3, 2), rng), ties)
    row = entropy_template(grid_template(ff.FactorGraph.grid(1, 3, 2), rng), ties)
    assert [(b.name, b.n_weights) for b in whole.blocks] == [
        (b.name, b.n_weights) for b in row.blocks
    ]


def test_weights_are_multiplied():
    graph = ff.FactorGraph.grid(2, 2, 2)
    template = entropy_template(Template(graph, [Block.tables(graph)]), "tied")
    logs = template.potentials(np.array([0.02, -0.01]))
    weights = scaled_weights(EntropyWeights.of(ff.Convex(), graph), logs)
    np.testing.assert_allclose(weights.unary_values, 0.01 * np.exp(0.02), rtol=1e-6)
    np.testing.assert_allclose(weights.factor_values, np.exp(-0.01), rtol=1e-6)
    extreme = scaled_weights(weights, template.potentials(np.array([1e4, -1e4])))
    np.testing.assert_allclose(extreme.unary_values, 1000.0 * weights.unary_values)
    np.testing.assert_allclose(extreme.factor_values, 0.001 * weights.factor_values)


# -- gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
@by_ties
def test_gradients_of_all_weights(ties, loss):
    problem = grid_problem(ImplicitLoss(loss, entropy=ff.Convex(0.5), fit_entropy=ties, tol=1e-12))
    rng = np.random.default_rng(1)
    weights = 0.4 * rng.normal(size=problem.n_weights)
    found = problem.evaluate(weights)
    assert found.n_unconverged == 0
    step = 1e-5
    scale = max(1.0, np.abs(found.gradient).max())
    for _ in range(4):  # no wrong entry is orthogonal to random directions
        direction = rng.normal(size=len(weights))
        ends = [problem.evaluate(weights + sign * step * direction).value for sign in (1.0, -1.0)]
        expected = (ends[0] - ends[1]) / (2 * step)
        assert found.gradient @ direction == pytest.approx(expected, rel=0, abs=2e-6 * scale)


def test_without_changes_the_entropy_is_the_given_one():
    plain = ImplicitLoss("ucl", entropy=ff.Convex(0.5), tol=1e-12)
    fitted = ImplicitLoss("ucl", entropy=ff.Convex(0.5), fit_entropy=True, tol=1e-12)
    one, two = grid_problem(plain), grid_problem(fitted)
    assert two.n_weights == one.n_weights + 2 + 4 + 4
    weights = np.random.default_rng(2).normal(size=one.n_weights)
    alone = one.evaluate(weights)
    both = two.evaluate(np.concatenate([weights, np.zeros(two.n_weights - one.n_weights)]))
    assert both.value == pytest.approx(alone.value, abs=1e-9)
    np.testing.assert_allclose(both.gradient[: one.n_weights], alone.gradient, rtol=0, atol=1e-8)


def test_potentials_alone_are_evaluated_under_the_given_entropy():
    graph = ff.FactorGraph.grid(2, 3, 2)
    potentials = random_tables(np.random.default_rng(0), graph)
    labels = np.array([0, 1, 1, -1, 0, 1])
    plain = ImplicitLoss("uquad").value_and_grad(graph, potentials, labels)
    fitted = ImplicitLoss("uquad", fit_entropy=True).value_and_grad(graph, potentials, labels)
    assert fitted[0] == pytest.approx(plain[0], abs=1e-12)


# -- estimators ---------------------------------------------------------------------------


def pictures(n_pictures, seed):
    """Blocks of black and white, with noise on top."""
    rng = np.random.default_rng(seed)
    Y = [np.kron(rng.integers(0, 2, (3, 3)), np.ones((3, 3), int)) for _ in range(n_pictures)]
    return [(y + rng.normal(scale=1.0, size=y.shape))[..., None] for y in Y], Y


@cache
def fitted_without_entropy():
    return ff.GridCRF(ImplicitLoss("ucl"), l2=0.1, max_iter=60).fit(*pictures(6, seed=0))


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
@by_ties
def test_fitting_the_entropy_lowers_the_objective(ties, tmp_path):
    X, Y = pictures(6, seed=0)
    plain = fitted_without_entropy()
    options = {"l2": 0.1, "max_iter": 15}
    fitted = ff.GridCRF(ImplicitLoss("ucl", fit_entropy=ties), **options).fit(X, Y)
    assert fitted.trace_[-1]["objective"] < plain.trace_[-1]["objective"] - 1e-3
    assert len(fitted.weights_) == sum(block.size for block in fitted.weight_blocks_.values())
    assert any(name.startswith("entropy of") for name in fitted.weight_blocks_)
    path = tmp_path / "model.ff"
    fitted.save(path)
    again = ff.load(path)
    for mine, theirs in zip(fitted.predict_marginals(X), again.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
def test_implicit_fitting_beats_independent_pixels():
    X, Y = pictures(8, seed=1)
    test_X, test_Y = pictures(8, seed=2)
    crf = ff.GridCRF("implicit", l2=0.1, max_iter=30).fit(X, Y)
    alone = ff.GridCRF("implicit", l2=0.1, max_iter=30)
    flat = [x.reshape(-1, 1, 1) for x in X], [y.reshape(-1, 1) for y in Y]
    shuffled = np.random.default_rng(0).permutation(81)
    alone.fit([x[shuffled] for x in flat[0]], [y[shuffled] for y in flat[1]])
    test = [x.reshape(-1, 1, 1)[shuffled] for x in test_X]
    truth = [y.reshape(-1, 1)[shuffled] for y in test_Y]
    assert crf.score(test_X, test_Y) > alone.score(test, truth) + 0.03


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
def test_a_fitted_entropy_is_no_distribution():
    X, Y = pictures(3, seed=0)
    crf = ff.GridCRF(ImplicitLoss(fit_entropy="tied"), max_iter=3).fit(X, Y)
    with pytest.raises(InvalidInputError, match="sample needs one set of weights"):
        crf.sample(X)
    with pytest.raises(InvalidInputError, match="decode must be 'marginals'"):
        ff.GridCRF(ImplicitLoss(fit_entropy=True), decode="map").fit(X, Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit_entropy": "all"}, "fit_entropy must be one of True, False"),
        ({"fit_entropy": True, "gradient": "perturbation"}, "gradient must be 'solve'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        ImplicitLoss(**options)


def test_entropies_that_cannot_be_fitted_are_refused():
    X, Y = pictures(2, seed=0)
    objective = ImplicitLoss(entropy=ff.TreeReweighted(), fit_entropy=True)
    with pytest.raises(InvalidInputError, match="entropy must have positive weights"):
        ff.GridCRF(objective).fit(X, Y)
