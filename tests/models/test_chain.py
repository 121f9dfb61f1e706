"""ChainCRF: input formats, options, predictions, errors, scikit-learn's rules, real data."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.io.sequences import read_columns
from fieldfit.metrics import chunk_f1
from fieldfit.models.chain.chain_crf import ChainCRF
from fieldfit.models.chain.chain_features import Vocabulary, read_items
from fieldfit.models.loading import load
from tests.reference import chain as twin

WORDS = {"DET": ["the", "a"], "NOUN": ["dog", "cat", "bird"], "VERB": ["sees", "runs"]}


def sentences(rng, count):
    """Determiner noun verb, with some words left out, as feature dictionaries."""
    X, Y = [], []
    for _ in range(count):
        labels = [name for name in ("DET", "NOUN", "VERB", "DET", "NOUN") if rng.random() < 0.8]
        words = [str(rng.choice(WORDS[name])) for name in labels]
        X.append([{"word": word, "bias": 1.0, "short": len(word) < 4} for word in words])
        Y.append(labels)
    return X, Y


@pytest.fixture(scope="module")
def corpus():
    return sentences(np.random.default_rng(0), 30)


# -- feature dictionaries ------------------------------------------------------------------------


def attributes_of(token):
    vocabulary = Vocabulary()
    features = read_items([[token]], vocabulary, grow=True)
    names = list(vocabulary)
    values = features.values if features.values.size else np.ones(len(features.indices))
    return [(names[k], float(v)) for k, v in zip(features.indices, values, strict=True)]


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ({"word": "the", "n": 2, "t": True}, [("word:the", 1.0), ("n", 2.0), ("t", 1.0)]),
        ({"no": False, "zero": 0.0, "b": np.bool_(True)}, [("b", 1.0)]),
        (["a", "b", "a"], [("a", 1.0), ("b", 1.0), ("a", 1.0)]),
        (
            {"p": {"a": 1, "b": "c", "d": {"e": 2.0}}},
            [("p:a", 1.0), ("p:b:c", 1.0), ("p:d:e", 2.0)],
        ),
        ({"l": ["x", "y"], "s": {"q"}}, [("l:x", 1.0), ("l:y", 1.0), ("s:q", 1.0)]),
        ({"b", "c", "a"}, [("a", 1.0), ("b", 1.0), ("c", 1.0)]),
        ({b"k": b"v", "f": np.float32(0.5)}, [("k:v", 1.0), ("f", 0.5)]),
        ({"": "", "a:b": "é"}, [(":", 1.0), ("a:b:é", 1.0)]),
    ],
)
def test_dictionaries_are_read_as_crfsuite_reads_them(token, expected):
    """Expected names and values are those of python-crfsuite 0.9.12 (ItemSequence)."""
    assert attributes_of(token) == expected


def test_values_may_appear_late():
    features = read_items([[["a", "b"], {"a": 0.5, "c": True}], [{"b": "x"}]], Vocabulary(), True)
    assert features.values.tolist() == [1.0, 1.0, 0.5, 1.0, 1.0]
    assert features.offsets.tolist() == [0, 2, 4, 5]
    assert features.sequence_offsets.tolist() == [0, 2, 3]


def test_unknown_attributes_are_left_out_when_predicting():
    features = read_items([[{"a": True, "b": True}, {"c": "d"}]], {"b": 0})
    assert features.indices.tolist() == [0]
    assert features.offsets.tolist() == [0, 1, 1]


def test_dictionaries_equal_matrices(corpus):
    X, Y = corpus
    by_name = ChainCRF(l2=0.3).fit(X, Y)
    vocabulary = Vocabulary()
    flat = read_items(X, vocabulary, grow=True)
    values = flat.values if flat.values.size else np.ones(len(flat.indices))
    matrix = csr_matrix((values, flat.indices, flat.offsets), (flat.n_tokens, len(vocabulary)))
    rows = [
        matrix[a:b] for a, b in zip(flat.sequence_offsets, flat.sequence_offsets[1:], strict=False)
    ]
    by_column = ChainCRF(l2=0.3, fit_intercept=False).fit(rows, Y)
    np.testing.assert_allclose(by_column.weights_, by_name.weights_, atol=1e-10)
    dense = [row.toarray() for row in rows]
    by_array = ChainCRF(l2=0.3, fit_intercept=False, all_possible_states=False).fit(dense, Y)
    np.testing.assert_allclose(by_array.weights_, by_name.weights_, atol=1e-10)
    assert by_name.attributes_ == list(vocabulary)
    for found, expected in zip(
        by_array.predict_marginals(dense), by_name.predict_marginals(X), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-10)


# -- learning and predicting ---------------------------------------------------------------------


def test_fit_finds_the_optimum(corpus):
    """The objective exceeds its minimum by at most ``|gradient|^2 / l2 / 2``: it is l2-convex."""
    X, Y = corpus
    crf = ChainCRF(l2=0.5, tol=1e-8).fit(X, Y)
    features = read_items(X, crf._vocabulary)
    labels = np.array([crf.classes_.tolist().index(name) for y in Y for name in y])

    def objective(weights):
        value = twin.value(crf._layout, features, labels, weights)
        return value + 0.25 * float(weights @ weights)

    found, step = objective(crf.weights_), 1e-4
    sides = crf.weights_ + step * np.stack([np.eye(len(crf.weights_)), -np.eye(len(crf.weights_))])
    plus, minus = (np.array([objective(weights) for weights in side]) for side in sides)
    gradient = (plus - minus) / (2 * step)
    assert gradient @ gradient / 0.5 / 2 < 1e-6 * found
    assert crf.trace_[-1]["objective"] == pytest.approx(found, rel=1e-10)
    assert crf.converged_


def test_missing_labels(corpus):
    """None in lists of names, -1 in integers; a model learns from the rest, and scores the rest."""
    X, Y = corpus
    rng = np.random.default_rng(1)
    holes = [[None if rng.random() < 0.3 else name for name in y] for y in Y]
    crf = ChainCRF(l2=0.1).fit(X, holes)
    assert crf.classes_.tolist() == ["DET", "NOUN", "VERB"]
    assert crf.score(X, Y) > 0.95
    numbers = {"DET": 0, "NOUN": 1, "VERB": 2, None: -1}
    coded = [np.array([numbers[name] for name in y], dtype=int) for y in holes]
    same = ChainCRF(l2=0.1).fit(X, coded)
    assert same.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(same.weights_, crf.weights_)
    assert same.score(X, coded) == crf.score(X, holes)


def test_decoding(corpus):
    X, Y = corpus
    crf = ChainCRF(l2=0.5).fit(X, Y)
    marginals = crf.predict_marginals(X)
    assert [m.shape for m in marginals] == [(len(x), 3) for x in X]
    for found, labels in zip(marginals, crf.predict(X), strict=True):
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
        assert labels.tolist() == crf.classes_[found.argmax(axis=1)].tolist()
    best = crf.set_params(decode="map").predict(X)
    assert np.mean(np.concatenate(best) == np.concatenate(Y)) > 0.95
    with pytest.raises(InvalidInputError, match="decode must be"):
        crf.set_params(decode="viterbi").predict(X)


def test_empty_sequences_are_kept(corpus):
    X, Y = corpus
    crf = ChainCRF(l2=0.5).fit([[], *X, []], [[], *Y, []])
    np.testing.assert_allclose(crf.weights_, ChainCRF(l2=0.5).fit(X, Y).weights_, atol=1e-12)
    assert [len(labels) for labels in crf.predict([[], X[0], []])] == [0, len(X[0]), 0]
    assert crf.predict_marginals([[]])[0].shape == (0, 3)
    assert crf.predict([]) == []


@pytest.mark.parametrize("objective", ["pseudolikelihood", "piecewise", "bethe", "trw"])
def test_other_objectives(corpus, objective):
    X, Y = corpus
    crf = ChainCRF(objective, l2=0.1).fit([[], *X], [[], *Y])
    assert crf.score(X, Y) > 0.95
    if objective in ("bethe", "trw"):  # exact on chains
        np.testing.assert_array_equal(
            crf.weights_, ChainCRF(l2=0.1).fit([[], *X], [[], *Y]).weights_
        )


@pytest.mark.parametrize("objective", ["max-margin", "perceptron", "mean-field"])
def test_objectives_of_another_kind(corpus, objective):
    X, Y = corpus
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        crf = ChainCRF(objective, l2=0.1, max_iter=30, batch_size=5, random_state=0).fit(X, Y)
        assert crf.score(X, Y) > 0.9


def test_l1_gives_zeros(corpus):
    X, Y = corpus
    dense, sparse = ChainCRF(l2=0.1).fit(X, Y), ChainCRF(l2=0.0, l1=1.0).fit(X, Y)
    assert np.count_nonzero(sparse.weights_) < 0.7 * np.count_nonzero(dense.weights_)
    assert sparse.score(X, Y) > 0.95


def test_options_about_weights(corpus):
    X, Y = corpus
    n_pairs = len(ChainCRF().fit(X, Y).weights_)
    crf = ChainCRF(all_possible_states=True, all_possible_transitions=True, boundary_weights=True)
    blocks = crf.fit(X, Y).weight_blocks_
    n_attributes = len(crf.attributes_)
    assert {name: block.shape for name, block in blocks.items()} == {
        "state": (n_attributes, 3),
        "transition": (3, 3),
        "start": (3,),
        "end": (3,),
    }
    assert len(crf.weights_) > n_pairs > len(ChainCRF(min_freq=10).fit(X, Y).weights_)
    described = {what: weight for weight, what in crf.top_weights(10_000)}
    assert len(described) == len(crf.weights_)
    row = crf.attributes_.index("word:dog")
    assert described["word:dog / NOUN"] == blocks["state"][row, 1]
    assert described["DET -> NOUN"] == blocks["transition"][0, 1]
    assert described["end / VERB"] == blocks["end"][2]


def test_sample_weight_and_validation(corpus):
    X, Y = corpus
    doubled = ChainCRF(l2=0.5).fit([*X, X[0]], [*Y, Y[0]])
    weighted = ChainCRF(l2=0.5).fit(X, Y, sample_weight=[2.0] + [1.0] * (len(X) - 1))
    np.testing.assert_allclose(weighted.weights_, doubled.weights_, atol=1e-4)
    crf = ChainCRF(l2=0.5).fit(X[:20], Y[:20], validation=(X[20:], Y[20:]))
    assert crf.trace_[-1]["validation"] > 0.9


def test_threads_give_the_same_weights(corpus):
    X, Y = corpus
    alone = ChainCRF(l2=0.5, batch_size=4).fit(X, Y)
    together = ChainCRF(l2=0.5, batch_size=4, n_jobs=3).fit(X, Y)
    np.testing.assert_array_equal(alone.weights_, together.weights_)


def test_saved_model_predicts_the_same(corpus, tmp_path):
    X, Y = corpus
    X = [[{**token, "naïve \n key": "\x00"} for token in x] for x in X]
    crf = ChainCRF(l2=0.5, boundary_weights=True).fit(X, Y)
    crf.save(tmp_path / "chain.ff")
    again = load(tmp_path / "chain.ff")
    assert again.attributes_ == crf.attributes_
    assert again.get_params() == crf.get_params()
    assert again.classes_.tolist() == crf.classes_.tolist()
    for found, expected in zip(again.predict_marginals(X), crf.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(found, expected)
    rows = [np.eye(3)[: len(x)] for x in X[:3]]
    by_column = ChainCRF().fit(rows, [y[:3] for y in Y[:3]])
    by_column.save(tmp_path / "columns.ff")
    assert load(tmp_path / "columns.ff").attributes_ == ["x0", "x1", "x2", "intercept"]


def test_resuming_gives_the_same_bits(corpus, tmp_path):
    X, Y = corpus
    whole = ChainCRF(l2=0.5).fit(X, Y)
    path = tmp_path / "progress"
    with pytest.warns(ConvergenceWarning):
        ChainCRF(l2=0.5, max_iter=5).fit(X, Y, checkpoint=path)
    np.testing.assert_array_equal(
        ChainCRF(l2=0.5).fit(X, Y, checkpoint=path).weights_, whole.weights_
    )


# -- scikit-learn --------------------------------------------------------------------------------


def test_scikit_learn_conventions(corpus):
    X, Y = corpus
    crf = ChainCRF("piecewise", l2=0.25, min_freq=1)
    copy = clone(crf)
    assert copy.get_params() == crf.get_params()
    assert not hasattr(copy, "weights_")
    search = GridSearchCV(ChainCRF(), {"l2": [0.1, 100.0]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"l2": 0.1}
    assert search.score(X, Y) > 0.95


# -- errors --------------------------------------------------------------------------------------

TOKEN = {"a": 1.0}


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        ([], [], "X must hold at least one sequence"),
        ([[TOKEN]], [["A"], ["B"]], "one entry for each sequence, got 1 and 2"),
        ([[TOKEN], [TOKEN]], [["A"], ["B", "A"]], r"Y\[1\] must have one label for each of the 1"),
        ([[TOKEN], [TOKEN]], [["A"], ["A"]], "at least two different labels .* only 'A'"),
        ([[TOKEN], [TOKEN]], [[None], [None]], "no label at all"),
        ([[TOKEN], [TOKEN]], [["A"], [1]], "strings or integers, not both"),
        ([[TOKEN], [TOKEN]], [[0], [-2]], r"Y\[1\]: integer labels must be at least -1"),
        ([[TOKEN], [TOKEN]], [["A"], [0.5]], r"Y\[1\]: labels must be strings or integers"),
        ([[TOKEN], [TOKEN]], [["A"], [["B"]]], r"Y\[1\]: labels must be strings or integers"),
        ([[TOKEN], [TOKEN]], ["A", "B"], r"Y must be .* those of one sequence are \[labels\]"),
        ([[TOKEN], [{"a": float("nan")}]], [["A"], ["B"]], r"X\[1\]\[0\]: feature 'a' must be fin"),
        ([[TOKEN], [{"a": None}]], [["A"], ["B"]], r"X\[1\]\[0\]: feature 'a' must be .* NoneType"),
        ([[TOKEN], [{1: 2.0}]], [["A"], ["B"]], r"X\[1\]\[0\]: names of features must be strings"),
        ([[TOKEN], [3]], [["A"], ["B"]], r"X\[1\]\[0\]: a token must be a dictionary"),
        (
            [TOKEN, TOKEN],
            [["A"], ["B"]],
            r"X must be .* one sequence is \[tokens\]",
        ),
        (
            [np.ones((1, 2)), np.full((1, 2), np.nan)],
            [["A"], ["B"]],
            r"X\[1\]: features must be fi",
        ),
        ([np.ones((1, 2)), np.ones((1, 3))], [["A"], ["B"]], r"X\[1\] must have 2 features"),
        ([np.ones((1, 2)), np.ones(1)], [["A"], ["B"]], r"X\[1\] must be a matrix"),
        ([np.ones((1, 2)), [TOKEN]], [["A"], ["B"]], r"X\[1\] must be a matrix"),
        ([[TOKEN] * 9000], [range(9000)], "at most 8192 different labels"),
        (csr_matrix(np.ones((2, 2))), [["A"], ["B"]], "X must be a list of sequences"),
    ],
)
def test_bad_input_is_named(X, Y, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        ChainCRF().fit(X, Y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"l2": -1.0}, {"max_iter": 0}, {"min_freq": -1}, {"decode": "best"}, {"objective": "exact"},
     {"batch_size": 0}, {"n_jobs": 0}],
)  # fmt: skip
def test_bad_options_are_named(options, corpus):
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        ChainCRF(**options).fit(*corpus)


def test_prediction_checks_its_input(corpus):
    crf = ChainCRF().fit(*corpus)
    with pytest.raises(InvalidInputError, match=r"X\[0\]\[0\]"):
        crf.predict([[3.0]])
    with pytest.raises(InvalidInputError, match="at least one label"):
        crf.score([[TOKEN]], [[None]])
    assert crf.score([[TOKEN]], [["ADVERB"]]) == 0.0
    with pytest.raises(Exception, match="must be fitted first"):
        ChainCRF().predict([[TOKEN]])


# -- real data -----------------------------------------------------------------------------------


@pytest.mark.data
def test_chunking_sample():
    """300 sentences of CoNLL-2000 with words and tags around each token."""
    folder = os.environ.get("FIELDFIT_DATA")
    if not folder:
        pytest.skip("FIELDFIT_DATA is not set")

    def load_part(name, count):
        rows = read_columns(Path(folder) / "conll2000" / f"{name}.txt.gz")[:count]
        X = [
            [
                {
                    f"{kind}[{k}]": sentence[t + k][column]
                    for column, kind in enumerate(("w", "pos"))
                    for k in (-1, 0, 1)
                    if 0 <= t + k < len(sentence)
                }
                for t in range(len(sentence))
            ]
            for sentence in rows
        ]
        return X, [[row[2] for row in sentence] for sentence in rows]

    crf = ChainCRF(l2=2.0, max_iter=60, tol=1e-3).fit(*load_part("train", 300))
    X, Y = load_part("test", 100)
    assert chunk_f1(Y, crf.predict(X)) > 0.85
