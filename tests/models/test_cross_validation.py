"""scikit-learn's cross-validation and search on every estimator, with examples of any sizes."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_predict, cross_val_score

import fieldfit as ff
from fieldfit.models.answer_list import AnswerList

RNG = np.random.default_rng(0)


def _chains(lengths):
    words = [RNG.choice(["a", "b", "c"], length).tolist() for length in lengths]
    return [[{"w": word} for word in sentence] for sentence in words], [
        [word.upper() for word in sentence] for sentence in words
    ]


def _pictures(sizes):
    X = [RNG.normal(size=(size, size + 1)) for size in sizes]
    return X, [(x > 0).astype(int) for x in X]


def _graphs(sizes):
    X = [(RNG.normal(size=(size, 2)), [(0, 1)]) for size in sizes]
    return X, [(nodes[:, 0] > 0).astype(int) for nodes, _ in X]


def _matchings(sizes):
    X = [RNG.normal(size=(size, size, 2)) for size in sizes]
    return X, [ff.Assignment().match(x @ [2.0, -1.0]).partners for x in X]


def _linked(lengths):
    X, Y = _chains(lengths)
    return [(tokens, [(0, 2)]) for tokens in X], Y


OPTIONS = {"objective": "pseudolikelihood", "n_labels": 2}
KINDS = {
    "chain": (ff.ChainCRF(), _chains),
    "skip-chain": (ff.SkipChainCRF("pseudolikelihood"), _linked),
    "grid": (ff.GridCRF(**OPTIONS, l2=1.0), _pictures),
    "graph": (ff.GraphCRF(**OPTIONS, l2=1.0), _graphs),
    "matching": (ff.MatchingCRF("likelihood"), _matchings),
}
#: In the last case each fold has one size, which differs from those of the others.
SIZES = {
    "equal": [4] * 6,
    "different": [3, 4, 5, 4, 3, 5],
    "by fold": [3, 3, 4, 4, 5, 5],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_cross_validated_predictions(kind, sizes):
    estimator, make = KINDS[kind]
    X, Y = make(sizes)
    found = cross_val_predict(estimator, X, Y, cv=3)
    assert len(found) == 6
    assert (found.dtype == object) == (len(set(sizes)) > 1)
    for fold in np.split(np.arange(6), 3):
        rest = np.setdiff1d(np.arange(6), fold)
        model = estimator.fit([X[k] for k in rest], [Y[k] for k in rest])
        for k, expected in zip(fold, model.predict([X[k] for k in fold]), strict=True):
            np.testing.assert_array_equal(found[k], expected)


def test_leaving_one_out():
    X, Y = _chains([2, 3, 3, 4])
    found = cross_val_predict(ff.ChainCRF(), X, Y, cv=LeaveOneOut())
    assert [len(labels) for labels in found] == [2, 3, 3, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_search(kind):
    estimator, make = KINDS[kind]
    X, Y = make(SIZES["different"])
    assert cross_val_score(estimator, X, Y, cv=3).shape == (3,)
    search = GridSearchCV(estimator, {"l2": [0.1, 100.0]}, cv=2).fit(X, Y)
    assert search.best_params_["l2"] in (0.1, 100.0)
    assert len(search.predict(X)) == 6


@pytest.mark.parametrize("model", [ff.IsingModel(), ff.PottsModel()], ids=["ising", "potts"])
def test_samples(model):
    samples = RNG.integers(0, 2, (60, 4)).astype(float)
    samples[3, 2] = np.nan
    assert cross_val_score(model, samples, cv=3).shape == (3,)
    search = GridSearchCV(model, {"l2": [0.1, 100.0]}, cv=2).fit(samples)
    assert search.best_params_["l2"] in (0.1, 100.0)
    filled = cross_val_predict(model, samples, cv=3)
    np.testing.assert_array_equal(filled[~np.isnan(samples)], samples[~np.isnan(samples)])


# -- the list of answers ------------------------------------------------------------------

EQUAL = AnswerList([np.arange(3), np.arange(3, 6)])
DIFFERENT = AnswerList([np.arange(2), np.arange(3)])


def test_a_list_in_every_respect():
    assert isinstance(DIFFERENT, list)
    assert [one.tolist() for one in DIFFERENT] == [[0, 1], [0, 1, 2]]
    for other in (pickle.loads(pickle.dumps(DIFFERENT)), copy.deepcopy(DIFFERENT)):
        assert type(other) is AnswerList
        assert [one.tolist() for one in other] == [[0, 1], [0, 1, 2]]
    assert np.concatenate(DIFFERENT).tolist() == [0, 1, 0, 1, 2]
    assert np.stack(EQUAL).shape == (2, 3)


def test_numpy_sees_arrays():
    plain = list(EQUAL)
    np.testing.assert_array_equal(EQUAL, plain)
    assert np.array(EQUAL, dtype=float).dtype == float
    assert np.mean(EQUAL) == np.mean(plain)
    assert (np.equal(EQUAL, plain)).all()
    assert np.array_equal(EQUAL, plain)
    np.testing.assert_array_equal(np.concatenate([EQUAL, EQUAL]), np.concatenate([plain, plain]))
    np.testing.assert_array_equal(
        np.concatenate([EQUAL, plain], axis=1), np.concatenate([plain, plain], axis=1)
    )
    np.testing.assert_array_equal(np.where(EQUAL, EQUAL, 7), np.where(plain, plain, 7))
    assert np.asarray(AnswerList()).shape == (0,)
    assert np.asarray(DIFFERENT).shape == (2,)
