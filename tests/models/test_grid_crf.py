"""`GridCRF`: the weights it finds, and the images it takes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fields import grid_edges, images, likelihood_gradient

import fieldfit as ff
from fieldfit._registry import OBJECTIVES

TYINGS = ("full", "symmetric", "potts", "potts-labels")


def twin_examples(X, Y, *, neighbors=4, shared=False, edge_features=False):
    """Images as features, edges and flat labels, without the package."""
    examples = []
    for x, y in zip(X, Y, strict=True):
        features = x.reshape(-1, x.shape[-1])
        edges = []
        for name, i, j in grid_edges(*y.shape, neighbors):
            values = np.abs(features[i] - features[j]) if edge_features else None
            edges.append(("edges" if shared else name, i, j, values))
        examples.append((features, edges, y.ravel()))
    return examples


# -- the optimum --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tying", "options"),
    [
        *[(tying, {}) for tying in TYINGS],
        *[(tying, {"directions": "shared"}) for tying in TYINGS[1:]],
        ("full", {"neighbors": 8}),
        ("symmetric", {"neighbors": 8, "directions": "shared"}),
        ("full", {"edge_features": True}),
        ("symmetric", {"edge_features": True, "directions": "shared"}),
        ("potts", {"fit_intercept": False}),
    ],
    ids=str,
)
def test_likelihood_is_stationary_by_enumeration(tying, options):
    X, Y = images(sizes=((2, 3), (3, 2), (2, 2)))
    Y[0][0, 1] = -1  # a missing label
    crf = ff.GridCRF("likelihood", l2=0.3, tol=1e-8, pairwise=tying, **options).fit(X, Y)
    neighbors, shared = options.get("neighbors", 4), options.get("directions") == "shared"
    names = ("horizontal", "vertical", "diagonal", "antidiagonal")[: neighbors // 2]
    gradient = likelihood_gradient(
        crf.weights_,
        0.3,
        twin_examples(
            X, Y, neighbors=neighbors, shared=shared, edge_features="edge_features" in options
        ),
        2,
        tying=tying,
        names=("edges",) if shared else names,
        intercept=options.get("fit_intercept", True),
    )
    assert crf.converged_
    assert np.abs(gradient).max() < 1e-6
    assert np.abs(crf.weights_).max() > 0.1


def test_three_labels_are_stationary_by_enumeration():
    X, Y = images(sizes=((2, 2), (1, 3), (2, 3)), n_labels=3, seed=2)
    crf = ff.GridCRF("likelihood", l2=0.5, tol=1e-8).fit(X, Y)
    gradient = likelihood_gradient(
        crf.weights_, 0.5, twin_examples(X, Y), 3, tying="full", names=("horizontal", "vertical")
    )
    assert crf.n_labels_ == 3
    assert np.abs(gradient).max() < 1e-6


def test_the_check_of_stationarity_can_fail():
    X, Y = images(sizes=((2, 2), (2, 3)))
    crf = ff.GridCRF("likelihood", l2=0.3, tol=1e-8).fit(X, Y)
    options = {"tying": "full", "names": ("horizontal", "vertical")}
    for spoiled in (crf.weights_ + 1e-3, np.zeros_like(crf.weights_)):
        gradient = likelihood_gradient(spoiled, 0.3, twin_examples(X, Y), 2, **options)
        assert np.abs(gradient).max() > 1e-4


@pytest.mark.parametrize("shape", [(1, 7), (6, 1)])
def test_surrogates_are_exact_on_chains(shape):
    X, Y = images(sizes=(shape,) * 5, n_labels=3, seed=1)
    options = {"l2": 0.1, "tol": 1e-8}
    exact = ff.GridCRF("likelihood", **options).fit(X, Y)
    for name in ("bethe", "trw"):
        crf = ff.GridCRF(name, **options).fit(X, Y)
        np.testing.assert_allclose(crf.weights_, exact.weights_, atol=1e-5)
        np.testing.assert_allclose(
            np.stack(crf.predict_marginals(X)), np.stack(exact.predict_marginals(X)), atol=1e-6
        )


def test_two_learners_agree():
    X, Y = images()
    crf = ff.GridCRF("trw", l2=1.0, tol=1e-7).fit(X, Y)
    slow = ff.SGD(step=0.2, max_iter=2000, tol=1e-12, random_state=0, averaging=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)
        other = ff.GridCRF("trw", l2=1.0, learner=slow, batch_size=4).fit(X, Y)
    np.testing.assert_allclose(other.weights_, crf.weights_, atol=1e-3)


# -- every objective ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns(name):
    X, Y = images(sizes=((5, 6), (6, 5), (6, 6), (4, 7)), noise=0.5, seed=3)
    crf = ff.GridCRF(name, l2=0.1, max_iter=40).fit(X, Y)
    assert crf.score(X, Y) > 0.9
    assert np.isfinite(crf.weights_).all()
    assert crf.n_iter_ == len(crf.trace_)
    row = set(crf.trace_[-1])
    assert {"objective", "unconverged", "seconds"} <= row
    assert ("gap" if name == "mle-struct" else "gradient_norm") in row
    for x, y, beliefs in zip(X, crf.predict(X), crf.predict_marginals(X), strict=True):
        assert y.shape == x.shape[:2]
        assert y.dtype.kind == "i"
        assert beliefs.shape == (*x.shape[:2], 2)
        np.testing.assert_allclose(beliefs.sum(axis=-1), 1.0, atol=1e-12)


def test_objects_are_objectives_too():
    X, Y = images()
    by_name = ff.GridCRF("pseudolikelihood", l2=0.1).fit(X, Y)
    by_object = ff.GridCRF(ff.PseudoLikelihood(), l2=0.1).fit(X, Y)
    np.testing.assert_array_equal(by_name.weights_, by_object.weights_)


def test_perceptron_stops_when_it_makes_no_mistakes():
    X, Y = images(noise=0.05, seed=4)
    crf = ff.GridCRF("perceptron", l2=0.0).fit(X, Y)
    assert crf.converged_
    assert "without a mistake" in crf.status_
    assert crf.score(X, Y) == 1.0


def test_perceptron_that_errs_runs_to_the_last_epoch():
    X, Y = images(noise=3.0, seed=5)
    with pytest.warns(ff.ConvergenceWarning, match="max_iter=60"):
        crf = ff.GridCRF("perceptron", max_iter=60).fit(X, Y)
    assert crf.n_iter_ == 60


# -- images -------------------------------------------------------------------------------


def test_sizes_may_differ_and_single_pixels_count():
    X, Y = images(sizes=((1, 1), (3, 4), (1, 5), (4, 1)))
    crf = ff.GridCRF("trw", l2=0.1).fit(X, Y)
    assert [y.shape for y in crf.predict(X)] == [(1, 1), (3, 4), (1, 5), (4, 1)]


@pytest.mark.parametrize("name", ["likelihood", "trw", "pseudolikelihood", "mean-field"])
def test_single_pixels_alone_are_logistic_regression(name):
    from sklearn.linear_model import LogisticRegression

    X, Y = images(sizes=((1, 1),) * 30, seed=6)
    crf = ff.GridCRF(name, l2=2.0, tol=1e-9).fit(X, Y)
    flat = np.concatenate([x.reshape(1, -1) for x in X])
    # two vectors +w and -w share the penalty; scikit-learn has their difference and no penalty on
    # the constant, so the constant goes into the features
    flat = np.column_stack([flat, np.ones(len(flat))])
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000)
    peer.fit(flat, np.concatenate([y.ravel() for y in Y]))
    blocks = crf.weight_blocks_
    ours = np.concatenate([blocks["unary"][:, 1] - blocks["unary"][:, 0],
                           [blocks["intercept"][1] - blocks["intercept"][0]]])  # fmt: skip
    np.testing.assert_allclose(ours, peer.coef_[0], atol=1e-5)
    assert not blocks["horizontal"].any()


def test_two_dimensions_are_one_feature():
    X, Y = images(n_features=1)
    flat = [x[:, :, 0] for x in X]
    crf = ff.GridCRF("trw", l2=0.1)
    first, second = crf.fit(X, Y).weights_, crf.fit(flat, Y).weights_
    np.testing.assert_array_equal(first, second)


def test_an_array_of_images_is_a_list_of_images():
    X, Y = images(sizes=((3, 4),) * 5)
    crf = ff.GridCRF("trw", l2=0.1)
    first, second = crf.fit(X, Y).weights_, crf.fit(np.stack(X), np.stack(Y)).weights_
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({}, {"unary": (2, 3), "intercept": (3,), "horizontal": (3, 3), "vertical": (3, 3)}),
        (
            {"pairwise": "symmetric", "directions": "shared", "fit_intercept": False},
            {"unary": (2, 3), "edges": (6,)},
        ),
        (
            {"pairwise": "potts", "neighbors": 8, "fit_intercept": False},
            {"unary": (2, 3), "horizontal": (1,), "vertical": (1,), "diagonal": (1,),
             "antidiagonal": (1,)},
        ),
        (
            {"pairwise": "potts-labels", "directions": "shared", "edge_features": [1]},
            {"unary": (2, 3), "intercept": (3,), "edges": (3,), "edges_features": (1, 3)},
        ),
    ],
    ids=str,
)  # fmt: skip
def test_blocks_have_names_and_shapes(options, shapes):
    X, Y = images(n_labels=3, seed=1)
    crf = ff.GridCRF("trw", l2=0.1, **options).fit(X, Y)
    assert {name: block.shape for name, block in crf.weight_blocks_.items()} == shapes
    crf.weight_blocks_["unary"][0, 0] = 7.0  # views
    assert crf.weights_[0] == 7.0


def test_edge_features_can_be_chosen():
    X, Y = images(n_features=3, seed=1)
    chosen = ff.GridCRF("trw", l2=0.1, edge_features=[2, 0]).fit(X, Y)
    rows = chosen.weight_blocks_["horizontal_features"]
    everything = ff.GridCRF("trw", l2=0.1, edge_features=True).fit(X, Y)
    assert rows.shape == (2, 1)  # Potts, beside full tables
    assert chosen.weight_blocks_["horizontal"].shape == (2, 2)
    assert everything.weight_blocks_["horizontal_features"].shape == (3, 1)
    same = ff.GridCRF("trw", l2=0.1, edge_features=[0, 1, 2]).fit(X, Y)
    np.testing.assert_array_equal(same.weights_, everything.weights_)


# -- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbors": 6}, "neighbors must be one of 4, 8, got 6"),
        ({"directions": "both"}, "directions must be"),
        ({"directions": "shared", "pairwise": "full"}, "needs pairwise='symmetric'"),
        ({"pairwise": "tied"}, "pairwise must be one of"),
        ({"edge_features": "yes"}, "edge_features must be True, False or numbers"),
        ({"edge_features": [5]}, r"edge_features must name features 0\.\.1"),
        ({"edge_features": [-1]}, r"edge_features must name features 0\.\.1"),
    ],
    ids=str,
)
def test_options_are_checked(options, message):
    X, Y = images()
    with pytest.raises(ff.InvalidInputError, match=message):
        ff.GridCRF(**options).fit(X, Y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y: X.__setitem__(1, X[1][0]), r"Y\[1\] must have shape"),
        (lambda X, Y: X.__setitem__(1, np.zeros(3)), r"X\[1\] must have shape \(height, width\)"),
        (lambda X, Y: X.__setitem__(1, np.zeros((2, 0, 2))), r"X\[1\] must have shape"),
        (lambda X, Y: X.__setitem__(1, [[1.0, 2.0], [1.0]]), r"X\[1\] must be an array"),
        (lambda X, Y: X.__setitem__(1, [["a", "b"], ["c", "d"]]), r"Y\[1\] must have shape"),
        (lambda X, Y: X.__setitem__(1, np.full((2, 4, 2), 1j)), r"X\[1\] must be an array"),
        (lambda X, Y: X.__setitem__(1, np.full((2, 4, 2), "a")), r"X\[1\] must be an array"),
        (lambda X, Y: X[2].__setitem__((1, 2, 0), np.nan), r"X\[2\].*got nan at row 1, column 2"),
        (lambda X, Y: X[2].__setitem__((0, 1, 1), -np.inf), r"X\[2\].*got -inf at row 0, column 1"),
        (lambda X, Y: X.__setitem__(2, X[2][:, :, :1]), r"X\[2\]: there must be 2 features"),
    ],
)  # fmt: skip
def test_images_are_checked(change, message):
    X, Y = images()
    change(X, Y)
    with pytest.raises(ff.InvalidInputError, match=message):
        ff.GridCRF(l2=0.1).fit(X, Y)
