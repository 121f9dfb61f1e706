"""Skip-chains: links, agreement with chains and with enumeration, files, errors."""

import numpy as np
import pytest
from sklearn.base import clone

import fieldfit as ff
from fieldfit.models.chain.skip_chain_crf import (
    checked_breaks,
    checked_links,
    equal_values,
    marked_tokens,
)

RNG = np.random.default_rng(5)
WORDS = ["Ann", "Bob", "saw", "met", "the", "dog"]
LABELS = ["O", "PER"]


def sentences(count, seed=0):
    """Names are marked for linking, and are persons or not all through a sentence."""
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(count):
        words = rng.choice(WORDS, size=rng.integers(3, 9))
        tokens = [{"w": word, "noise": str(rng.integers(3))} for word in words]
        for token, word in zip(tokens, words, strict=True):
            if word[0].isupper():
                token["name"] = word
        X.append(tokens)
        persons = {name for name in ("Ann", "Bob") if rng.random() < 0.7}
        Y.append(["PER" if word in persons else "O" for word in words])
    return X, Y


@pytest.fixture(scope="module")
def data():
    return sentences(30)


def test_equal_values_are_linked_pair_by_pair_and_in_a_row_when_many():
    x = [{"k": "a"}, {}, {"k": "b"}, {"k": "a"}, {"k": "a"}]
    assert equal_values(0, x, "k", 10) == [(0, 3), (0, 4), (3, 4)]
    assert equal_values(0, x, "k", 2) == [(0, 3), (3, 4)]


def test_links_are_sorted_unique_and_leave_neighbours_to_the_chain():
    given = [(4, 0), (0, 4), (1, 2), (3, 1), (3, 4), (2, 2)]
    whole = np.zeros(0, dtype=int)
    assert checked_links(0, given, 5, whole).tolist() == [[0, 4], [1, 3]]
    assert checked_links(0, given, 5, np.array([2])).tolist() == [[0, 4], [1, 2], [1, 3]]
    assert checked_links(0, [], 5, whole).shape == (0, 2)


def test_breaks_are_positions_inside_the_sequence():
    assert checked_breaks(0, [3, 0, 3, 1], 4).tolist() == [1, 3]
    assert checked_breaks(0, [], 0).shape == (0,)
    assert marked_tokens(0, [{"s": True}, {}, {"s": "x"}, {"s": False}], "s") == [0, 2]


def test_without_links_it_is_a_chain(data):
    X, Y = data
    chain = ff.ChainCRF(l2=0.5, tol=1e-8).fit(X, Y)
    stripped = [[{k: v for k, v in t.items() if k != "name"} for t in x] for x in X]
    plain = ff.ChainCRF(l2=0.5, tol=1e-8).fit(stripped, Y)
    skip = ff.SkipChainCRF("likelihood", skip_edges=lambda x: [], l2=0.5, tol=1e-8).fit(X, Y)
    n = len(chain.weights_)
    np.testing.assert_allclose(skip.weights_[:n], chain.weights_, atol=1e-5)
    assert np.all(skip.weights_[n:] == 0.0)
    named = ff.SkipChainCRF("likelihood", skip_edges="absent", l2=0.5, tol=1e-8).fit(stripped, Y)
    np.testing.assert_allclose(named.weights_[: len(plain.weights_)], plain.weights_, atol=1e-5)


def every_third(x):
    """Where the chains of a sequence are cut."""
    return range(3, len(x), 3)


def brute_force_log_likelihood(crf, x, y, joints):
    """Enumerate all labellings of one sequence with weights read from the blocks."""
    blocks = crf.weight_blocks_
    layout = crf._layout
    number = {name: k for k, name in enumerate(crf.attributes_)}
    n_labels = len(crf.classes_)
    unary = np.zeros((len(x), n_labels))
    for t, token in enumerate(x):
        for key, value in token.items():
            attribute = number.get(f"{key}:{value}")
            if attribute is None:
                continue
            for k in range(layout.state_offsets[attribute], layout.state_offsets[attribute + 1]):
                unary[t, layout.state_labels[k]] += blocks["state"][k]
    transition = np.zeros((n_labels, n_labels))
    chosen = layout.transitions >= 0
    transition[chosen] = blocks["transition"].ravel()[layout.transitions[chosen]]
    skip = np.empty((n_labels, n_labels))
    skip[np.triu_indices(n_labels)] = blocks["skip"]
    skip.T[np.triu_indices(n_labels)] = blocks["skip"]
    labels = np.indices((n_labels,) * len(x)).reshape(len(x), -1).T
    scores = unary[np.arange(len(x)), labels].sum(axis=1)
    for t in range(1, len(x)):
        if t not in joints.breaks:
            scores += transition[labels[:, t - 1], labels[:, t]]
    if "start" in blocks:
        starts = [0, *joints.breaks]
        scores += blocks["start"][labels[:, starts]].sum(axis=1)
        ends = [*(joints.breaks - 1), len(x) - 1]
        scores += blocks["end"][labels[:, ends]].sum(axis=1)
    scores += sum(skip[labels[:, s], labels[:, t]] for s, t in joints.links)
    true = [list(crf.classes_).index(name) for name in y]
    row = int(np.flatnonzero((labels == true).all(axis=1))[0])
    return scores[row] - np.logaddexp.reduce(scores)


@pytest.mark.parametrize("boundary", [False, True])
@pytest.mark.parametrize("breaks", [None, every_third])
def test_the_exact_objective_is_the_likelihood_of_enumeration(data, breaks, boundary):
    X, Y = data
    crf = ff.SkipChainCRF(
        "likelihood", skip_edges="name", breaks=breaks, boundary_weights=boundary, l2=0.3
    ).fit(X, Y)
    assert crf.converged_
    plain = crf._sequences(X)
    total = sum(
        brute_force_log_likelihood(crf, x, y, joints)
        for x, y, joints in zip(plain, Y, crf._joints(X), strict=True)
    )
    expected = -total + 0.15 * crf.weights_ @ crf.weights_
    assert crf.trace_[-1]["objective"] == pytest.approx(expected, rel=1e-9)


# strong couplings of densely linked names make tree-reweighted prediction slow: it says so
@pytest.mark.filterwarnings("ignore:.*examples did not converge")
@pytest.mark.parametrize("objective", ["trw", "bethe", "pseudolikelihood", "piecewise"])
def test_objectives_converge_and_learn(data, objective):
    X, Y = data
    crf = ff.SkipChainCRF(objective, skip_edges="name", l2=1.0).fit(X, Y)
    assert crf.converged_
    assert crf.score(X, Y) > 0.8
    marginals = crf.predict_marginals(X)
    assert [m.shape for m in marginals] == [(len(x), 2) for x in X]
    np.testing.assert_allclose(np.concatenate(marginals).sum(axis=1), 1.0, atol=1e-9)


def test_linked_tokens_help_each_other():
    """A name that is ambiguous in one place takes its label from the clear place."""
    X, Y = sentences(80, seed=3)
    for x, y in zip(X, Y, strict=True):
        for token, label in zip(x, y, strict=True):
            token["clue"] = label if RNG.random() < 0.5 else "none"
    crf = ff.SkipChainCRF("trw", skip_edges="name", l2=0.1).fit(X, Y)
    skip = crf.weight_blocks_["skip"]  # O-O, O-PER, PER-PER
    assert skip[0] + skip[2] > 2 * skip[1]


def test_threads_do_not_change_the_weights(data):
    X, Y = data
    one = ff.SkipChainCRF("trw", skip_edges="name", batch_size=7).fit(X, Y)
    two = ff.SkipChainCRF("trw", skip_edges="name", batch_size=7, n_jobs=2).fit(X, Y)
    assert np.array_equal(one.weights_, two.weights_)


def test_given_edges_equal_named_ones(data):
    X, Y = data
    named = ff.SkipChainCRF("trw", skip_edges="name").fit(X, Y)
    joints = named._joints(X)
    pairs = [(x, joint.links) for x, joint in zip(named._sequences(X), joints, strict=True)]
    given = ff.SkipChainCRF("trw").fit(pairs, Y)
    assert np.array_equal(given.weights_, named.weights_)
    assert [p.tolist() for p in given.predict(pairs)] == [p.tolist() for p in named.predict(X)]


def test_breaks_by_name_function_and_triple_are_the_same(data):
    X, Y = data
    marked = [[dict(token) for token in x] for x in X]
    for x in marked:
        for t in every_third(x):
            x[t]["begins"] = True
    named = ff.SkipChainCRF("trw", skip_edges="name", breaks="begins").fit(marked, Y)
    by_function = ff.SkipChainCRF("trw", skip_edges="name", breaks=every_third).fit(X, Y)
    joints = by_function._joints(X)
    triples = [(x, *joint) for x, joint in zip(by_function._sequences(X), joints, strict=True)]
    given = ff.SkipChainCRF("trw").fit(triples, Y)
    assert np.array_equal(named.weights_, by_function.weights_)
    assert np.array_equal(named.weights_, given.weights_)
    assert not np.array_equal(
        named.weights_, ff.SkipChainCRF("trw", skip_edges="name").fit(X, Y).weights_
    )
    for a, b in zip(named.predict_marginals(marked), given.predict_marginals(triples), strict=True):
        assert np.array_equal(a, b)


def test_sentences_of_a_document_are_chains_without_links(data):
    """Cut at all sentence ends and without links, documents are what their sentences are."""
    X, Y = data
    single = ff.ChainCRF(l2=0.5, tol=1e-8).fit(X, Y)
    documents, labels = [], []
    for first in range(0, len(X), 3):
        lengths = [len(x) for x in X[first : first + 3]]
        tokens = [token for x in X[first : first + 3] for token in x]
        documents.append((tokens, [], np.cumsum(lengths)[:-1]))
        labels.append([label for y in Y[first : first + 3] for label in y])
    joint = ff.SkipChainCRF("likelihood", l2=0.5, tol=1e-8).fit(documents, labels)
    np.testing.assert_allclose(joint.weights_[: len(single.weights_)], single.weights_, atol=1e-5)
    np.testing.assert_allclose(
        np.concatenate(joint.predict_marginals(documents)),
        np.concatenate(single.predict_marginals(X)),
        atol=1e-5,
    )


def test_a_transition_across_a_break_is_none():
    X = [([{"w": "a"}, {"w": "b"}, {"w": "c"}], [], [2])]
    crf = ff.SkipChainCRF("trw").fit(X, [["A", "B", "C"]])
    assert crf.weight_blocks_["transition"].shape == (1,)
    whole = ff.SkipChainCRF("trw").fit([X[0][:2]], [["A", "B", "C"]])
    assert whole.weight_blocks_["transition"].shape == (2,)


def test_map_decoding_and_missing_labels(data):
    X, Y = data
    partial = [[None if t % 4 == 3 else label for t, label in enumerate(y)] for y in Y]
    crf = ff.SkipChainCRF("bethe", skip_edges="name", decode="map").fit(X, partial)
    assert crf.score(X, Y) > 0.8


def test_files_keep_predictions_and_refuse_functions(data, tmp_path):
    X, Y = data
    crf = ff.SkipChainCRF("trw", skip_edges="name").fit(X, Y)
    crf.save(tmp_path / "model")
    again = ff.load(tmp_path / "model")
    for a, b in zip(crf.predict_marginals(X), again.predict_marginals(X), strict=True):
        assert np.array_equal(a, b)
    with pytest.raises(ff.InvalidInputError, match="function cannot be written"):
        ff.SkipChainCRF(skip_edges=lambda x: []).fit(X, Y).save(tmp_path / "other")
    with pytest.raises(ff.InvalidInputError, match=r"breaks .* function cannot be written"):
        ff.SkipChainCRF(skip_edges="name", breaks=every_third).fit(X, Y).save(tmp_path / "other")


def test_scikit_learn_clones_it():
    crf = ff.SkipChainCRF(skip_edges="name", max_links=4)
    assert clone(crf).get_params() == crf.get_params()


@pytest.mark.parametrize(
    ("skip_edges", "x", "words"),
    [
        (None, [{"w": "a"}], ["X[0]", "pair"]),
        (lambda x: [(0, 9)], [{"w": "a"}, {"w": "b"}], ["X[0]", "0..1", "9"]),
        (lambda x: [0, 1], [{"w": "a"}, {"w": "b"}], ["X[0]", "pairs"]),
        ("name", [["w=a"], ["w=b"]], ["X[0][0]", "dictionary"]),
        (3, [{"w": "a"}], ["skip_edges", "3"]),
        (None, ([{"w": "a"}, {}], [], [2]), ["X[0]", "breaks", "0..1", "2"]),
        (None, ([{"w": "a"}, {}], [], [0.5]), ["X[0]", "breaks", "positions", "float"]),
        (None, ([{"w": "a"}], [], [], []), ["X[0]", "triple"]),
    ],
)
def test_bad_joints_are_refused_in_one_sentence(skip_edges, x, words):
    length = len(x[0]) if isinstance(x, tuple) else len(x)
    with pytest.raises(ff.InvalidInputError) as caught:
        ff.SkipChainCRF(skip_edges=skip_edges).fit([x], [["a", "b"][:length]])
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("breaks", "x", "words"),
    [
        (3, ([{"w": "a"}], []), ["breaks must be the name", "3"]),
        ("s", ([{"w": "a"}], [], [0]), ["X[0]", "pair"]),
        ("s", ([["w=a"], ["w"]], []), ["X[0][0]", "dictionary", "breaks", "'s'"]),
        (lambda x: [[0]], ([{"w": "a"}, {}], []), ["X[0]", "breaks", "shape (1, 1)"]),
    ],
)
def test_bad_breaks_are_refused_in_one_sentence(breaks, x, words):
    with pytest.raises(ff.InvalidInputError) as caught:
        ff.SkipChainCRF(breaks=breaks).fit([x], [["a", "b"][: len(x[0])]])
    for word in words:
        assert word in str(caught.value)
