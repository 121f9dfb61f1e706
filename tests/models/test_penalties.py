"""Penalties by block, relative to statistics, and chosen on held-out examples; given scores."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

import fieldfit as ff
from fieldfit.errors import InvalidInputError, NoGainWarning
from fieldfit.models.penalties import standard_error

RelativePenalty = ff.models.RelativePenalty


def blobs(count, seed=0, noise=1.5):
    """Pictures of blobs under noise: neighbours help."""
    rng = np.random.default_rng(seed)
    smooth = gaussian_filter(rng.normal(size=(count, 12, 12)), sigma=(0, 1.5, 1.5))
    Y = (smooth > 0).astype(int)
    return (Y + noise * rng.normal(size=Y.shape))[..., None], Y


def log_probabilities(X, n_labels=2):
    """What a classifier would say of each pixel."""
    scores = np.stack([(0.3 + k) * X[..., 0] for k in range(n_labels)], axis=-1)
    return log_softmax(scores - [0.4 * k for k in range(n_labels)], axis=-1)


def unrelated(count, seed=0):
    """Labels without any relation to those of the neighbours, given the features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 6, 6, 2))
    return X, (X[..., 0] + 0.5 * rng.normal(size=X.shape[:3]) > 0).astype(int)


# -- independent variables ----------------------------------------------------------------


def test_independent_variables_are_logistic_regression():
    X, Y = blobs(4)
    crf = ff.GridCRF("independent", l2=0.5, tol=1e-8).fit(X, Y)
    other = LogisticRegression(C=2.0, tol=1e-10, fit_intercept=False).fit(
        np.c_[X.reshape(-1, 1), np.ones(Y.size)], Y.ravel()
    )
    # two symmetric columns of weights have half the penalty of their difference
    twice = ff.GridCRF("independent", l2=1.0, tol=1e-8).fit(X, Y)
    weights = np.r_[twice.weight_blocks_["unary"][0], twice.weight_blocks_["intercept"]]
    np.testing.assert_allclose(weights[1::2] - weights[::2], other.coef_[0], atol=1e-4)
    assert list(crf.weight_blocks_) == ["unary", "intercept"]


def test_fits_begin_with_independent_variables():
    X, Y = blobs(3)
    alone = ff.GridCRF("independent", l2=0.1, tol=1e-3).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)
        one_step = ff.GridCRF("trw", l2=0.1, max_iter=1).fit(X, Y)
        same = ff.GridCRF("trw", l2=0.1, max_iter=1).fit(X, Y, start=alone.weights_)
    np.testing.assert_array_equal(one_step.weights_, same.weights_)


# -- penalties by block -------------------------------------------------------------------


def test_a_number_for_each_block():
    X, Y = blobs(4)
    names = ff.GridCRF("piecewise", l2=0.1).fit(X, Y).weight_blocks_
    same = ff.GridCRF("piecewise", l2=dict.fromkeys(names, 0.1)).fit(X, Y)
    np.testing.assert_array_equal(same.weights_, ff.GridCRF("piecewise", l2=0.1).fit(X, Y).weights_)
    strong = dict.fromkeys(names, 0.1) | {"vertical": 1e6}
    crf = ff.GridCRF("piecewise", l2=strong).fit(X, Y)
    assert np.abs(crf.weight_blocks_["vertical"]).max() < 1e-3
    assert np.abs(crf.weight_blocks_["horizontal"]).max() > 0.1


def test_every_sweep_has_the_penalties_of_its_blocks():
    X, Y = blobs(3)
    objective = ff.ProceduralLoss(n_sweeps=2, per_sweep_weights=True)
    l2 = {"unary": 1e6, "intercept": 1.0, "horizontal": 1.0, "vertical": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)
        crf = ff.GridCRF(objective, l2=l2, max_iter=30).fit(X, Y)
    for name, weights in crf.weight_blocks_.items():
        assert (np.abs(weights).max() < 1e-2) == name.startswith("unary")


@pytest.mark.parametrize(
    ("l2", "match"),
    [
        ({"unary": 1.0}, "l2 must have a number for each block"),
        ({"unary": 1.0, "intercept": 1, "horizontal": 1, "vertical": 1, "x": 1}, "each block"),
        ({"unary": -1.0}, r"l2\['unary'\] must be at least 0"),
        ("automatic", "l2 must be a number of at least 0, 'auto'"),
    ],
)
def test_other_penalties_are_refused(l2, match):
    X, Y = blobs(3)
    with pytest.raises(InvalidInputError, match=match):
        ff.GridCRF(l2=l2).fit(X, Y)


def test_relative_penalties_do_not_depend_on_the_number_of_examples_or_on_units():
    X, Y = blobs(4)
    options = {"l2": RelativePenalty(0.01, couplings=0.1), "tol": 1e-8, "fit_intercept": False}
    once = ff.GridCRF("piecewise", **options).fit(X, Y)
    twice = ff.GridCRF("piecewise", **options).fit(np.r_[X, X], np.r_[Y, Y])
    np.testing.assert_allclose(twice.weights_, once.weights_, atol=1e-5)
    metres = ff.GridCRF("piecewise", **options).fit(1000.0 * X, Y)
    np.testing.assert_allclose(
        1000.0 * metres.weight_blocks_["unary"], once.weight_blocks_["unary"], atol=1e-5
    )
    weighted = ff.GridCRF("piecewise", **options).fit(X, Y, sample_weight=[2.0] * 4)
    np.testing.assert_allclose(weighted.weights_, once.weights_, atol=1e-5)


def test_relative_penalties_need_blocks_of_features():
    with pytest.raises(InvalidInputError, match="l2 must be a number or numbers by block"):
        ff.ChainCRF(l2=RelativePenalty()).fit([np.eye(2)] * 2, [[0, 1]] * 2)
    with pytest.raises(InvalidInputError, match="l2 must be at least 0"):
        ff.IsingModel(l2="auto").fit(np.eye(2, dtype=int))


# -- penalties that are chosen ------------------------------------------------------------


@pytest.mark.parametrize("objective", ["trw", "pseudolikelihood"])
def test_a_field_that_helps_is_chosen(objective):
    X, Y = blobs(16)
    crf = ff.GridCRF(objective).fit(X, Y)
    assert "of independent variables: chosen on 4 of 16 examples" in crf.status_
    assert np.abs(crf.weight_blocks_["horizontal"]).max() > 0.1
    test = blobs(10, seed=1)
    assert crf.score(*test) > ff.GridCRF("independent").fit(X, Y).score(*test) + 0.05
    kinds = [row["model"] for row in crf.path_]
    assert kinds == sorted(kinds, reverse=True)
    strengths = [row["l2"] for row in crf.path_ if row["model"] == "field"]
    assert strengths == sorted(strengths, reverse=True)


def test_the_choice_does_not_depend_on_threads_and_is_repeated():
    X, Y = blobs(8)
    options = {"objective": "pseudolikelihood", "batch_size": 3}
    found = [ff.GridCRF(**options, n_jobs=n).fit(X, Y) for n in (1, 2, 1)]
    for crf in found[1:]:
        np.testing.assert_array_equal(crf.weights_, found[0].weights_)
        assert crf.status_ == found[0].status_


def test_couplings_that_do_not_help_are_zero_and_the_user_is_told():
    X, Y = unrelated(40)
    with pytest.warns(NoGainWarning, match="no field did better than independent variables"):
        crf = ff.GridCRF("pseudolikelihood").fit(X, Y)
    assert not crf.weight_blocks_["horizontal"].any()
    alone = ff.GridCRF("independent").fit(X, Y)
    assert crf.score(X, Y) == alone.score(X, Y)
    assert "NoGain" not in alone.status_


def test_given_held_out_examples_are_used():
    X, Y = blobs(9)
    crf = ff.GridCRF("trw").fit(X, Y, validation=blobs(5, seed=3))
    assert "chosen on the 5 examples of validation" in crf.status_


def test_few_examples_are_not_split():
    X, Y = blobs(5)
    crf = ff.GridCRF("trw").fit(X, Y)
    assert "l2 was not chosen on held-out examples, which needs 8 examples, got 5" in crf.status_
    assert crf.path_ == []


def test_labels_that_only_one_part_shows():
    rng = np.random.default_rng(0)
    X = [(rng.normal(size=(4, 2)), [(0, 1), (1, 2), (2, 3)]) for _ in range(8)]
    Y = [np.array([0, 1, 0, 1]) for _ in range(8)]
    Y[0] = np.array([2, 2, 2, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoGainWarning)
        crf = ff.GraphCRF("piecewise").fit(X, Y)
    assert crf.n_labels_ == 3


def test_chains_choose_one_number():
    rng = np.random.default_rng(0)
    Y = [np.cumsum(rng.integers(0, 2, size=9)) % 3 for _ in range(12)]
    X = [np.eye(3)[y] + rng.normal(size=(9, 3)) for y in Y]
    crf = ff.ChainCRF(l2="auto").fit(X, Y)
    chosen = max(crf.path_, key=lambda row: row["score"])
    assert f"l2={chosen['l2']:g}, accuracy" in crf.status_
    same = ff.ChainCRF(l2=chosen["l2"]).fit(X, Y)
    np.testing.assert_array_equal(crf.weights_, same.weights_)


def test_validation_tells_of_a_field_that_does_worse():
    X, Y = blobs(6)
    held_out = unrelated(10, seed=4)
    smooth = [(gaussian_filter(x[..., 0], 1.0) > 0).astype(int) for x in held_out[0]]
    held_out = (held_out[0][..., :1] * 0.1, [1 - y for y in smooth])
    Y = np.where(np.indices((12, 12)).sum(axis=0) % 2, Y, 1 - Y)  # neighbours differ
    with pytest.warns(NoGainWarning, match="independent variables do better on the validation"):
        crf = ff.GridCRF("pseudolikelihood", l2=1e-3).fit(X, Y, validation=held_out)
    assert "l2='auto'" in crf.status_


def test_standard_error_of_equal_examples():
    rng = np.random.default_rng(0)
    gains = rng.normal(size=20)
    expected = np.std(gains / 5.0, ddof=1) / np.sqrt(20)
    assert standard_error(gains, np.full(20, 5.0)) == pytest.approx(expected)


# -- given scores of the labels -----------------------------------------------------------


def test_log_probabilities_share_one_weight():
    X, Y = blobs(8)
    scores = log_probabilities(X)
    crf = ff.GridCRF("trw", l2=0.1).fit(scores, Y)
    assert crf.unary_ == "scale"
    assert crf.weight_blocks_["unary"].shape == (1, 1)
    by_hand = ff.GridCRF("trw", l2=0.1, unary="scale").fit(scores, Y)
    np.testing.assert_array_equal(crf.weights_, by_hand.weights_)
    assert ff.GridCRF("trw", l2=0.1, unary="full").fit(scores, Y).unary_ == "full"
    assert ff.GridCRF("trw", l2=0.1).fit(2.0 * scores, Y).unary_ == "full"
    assert ff.GridCRF("trw", l2=0.1).fit(X, Y).unary_ == "full"


def test_scores_of_other_numbers_of_labels_are_refused():
    X, Y = blobs(3)
    with pytest.raises(InvalidInputError, match="unary='scale' needs one feature for each of the"):
        ff.GridCRF(unary="scale", l2=0.1).fit(X, Y)


def test_a_scale_survives_the_model_file(tmp_path):
    X, Y = blobs(12)
    scores = log_probabilities(X)
    crf = ff.GridCRF("pseudolikelihood").fit(scores, Y)
    crf.save(tmp_path / "model.ff")
    read = ff.load(tmp_path / "model.ff")
    assert (read.unary_, read.l2) == ("scale", "auto")
    for one, other in zip(
        read.predict_marginals(scores), crf.predict_marginals(scores), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_stored_penalties(tmp_path):
    X, Y = blobs(3)
    for l2 in (RelativePenalty(0.1, couplings=0.2), {"unary": 1.0, "intercept": 1.0, "edges": 2.0}):
        crf = ff.GridCRF("piecewise", l2=l2, directions="shared").fit(X, Y)
        crf.save(tmp_path / "model.ff")
        assert ff.load(tmp_path / "model.ff").l2 == l2
