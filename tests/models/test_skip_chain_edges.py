"""Skip-chains whose edges look at the input: tables by loops, gradients, files, threads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import fieldfit as ff
from fieldfit.cli.main import main
from fieldfit.models.chain import chain_tokens as _chain_tokens
from fieldfit.models.chain import skip_edges as _edge_weights
from fieldfit.models.chain.sparse_scores import LIST, ROW, SINGLE

WORDS = ["Ann", "Bob", "saw", "met", "the", "dog"]
NAMES = ["A", "B", "C"]


def sentences(count=12, seed=0, n_labels=3, *, longest=7, valued=True):
    """Feature dictionaries with a name to link by, and labels that depend on words and places."""
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for length in rng.integers(1, longest + 1, count):
        words = rng.choice(WORDS, size=length)
        tokens = [{"w": str(word), "noise": str(rng.integers(3))} for word in words]
        for token in tokens:
            if token["w"][0].isupper():
                token["name"] = token["w"]
            if valued and rng.random() < 0.5:
                token["size"] = float(rng.normal())
        X.append(tokens)
        numbers = np.array([WORDS.index(word) for word in words])
        Y.append([NAMES[k] for k in (numbers + rng.integers(0, 2, length)) % n_labels])
    return X, Y


def every_third(x):
    return range(3, len(x), 3)


def named_features(token):
    """Attribute names and values of a dictionary, as the estimator has them."""
    return {
        f"{key}:{value}" if isinstance(value, str) else key: 1.0
        if isinstance(value, str)
        else float(value)
        for key, value in token.items()
    }


def tables_by_loops(crf, x, joints):
    """Unary vectors, chain tables and skip tables of one sequence, with loops and dictionaries."""
    n_labels = len(crf.classes_)
    attributes = {name: number for number, name in enumerate(crf.attributes_)}
    blocks = {name: block.ravel() for name, block in crf.weight_blocks_.items()}

    def weights(name, layout):
        """Weight of every (attribute, label or parameter) that has one."""
        found = {}
        for attribute in range(layout.n_attributes):
            for k in range(layout.state_offsets[attribute], layout.state_offsets[attribute + 1]):
                found[attribute, int(layout.state_labels[k])] = blocks[name][k]
        return found

    edges = crf._edge_weights.layouts
    state = weights("state", crf._layout)
    chain = weights("transition_features", edges[0])
    skip = weights("skip_features", edges[1])

    def score(found, token, label):
        return sum(
            value * found.get((attributes[name], label), 0.0)
            for name, value in named_features(token).items()
            if name in attributes
        )

    unary = [[score(state, token, k) for k in range(n_labels)] for token in x]
    pairs = {}
    for t in range(1, len(x)):
        if t in joints.breaks:
            continue
        table = np.zeros((n_labels, n_labels))
        for k in range(n_labels):
            for m in range(n_labels):
                group = int(crf._layout.transitions[k, m])
                if group >= 0:
                    table[k, m] = blocks["transition"][group] + score(chain, x[t - 1], group)
        pairs[t - 1, t] = table
    number = {}  # of the unordered pairs
    for k in range(n_labels):
        for m in range(k, n_labels):
            number[k, m] = number[m, k] = len(set(number.values()))
    for s, t in joints.links.tolist():
        table = np.zeros((n_labels, n_labels))
        for k in range(n_labels):
            for m in range(n_labels):
                group = number[k, m]
                table[k, m] = blocks["skip"][group]
                table[k, m] += score(skip, x[s], group) + score(skip, x[t], group)
        pairs[s, t] = table
    return np.array(unary), pairs


def check_potentials(crf, X, *, atol=1e-12):
    """Compare the potentials of all parts with those by loops, at the fitted weights."""
    joints, plain = crf._joints(X), crf._sequences(X)
    parts = crf._parts(crf._encode(X))
    m = 0
    n_pairs = 0
    for part in parts:
        graph = part.batch.graph
        potentials = part.template.potentials(crf.weights_)
        for first, last in zip(
            part.batch.variable_offsets[:-1], part.batch.variable_offsets[1:], strict=True
        ):
            while not len(plain[m]):  # empty sequences are in no part
                m += 1
            unary, pairs = tables_by_loops(crf, plain[m], joints[m])
            for t in range(last - first):
                np.testing.assert_allclose(potentials.unary(first + t), unary[t], atol=atol)
            chosen = [
                a for a in range(graph.n_factors) if first <= graph.slot_variables[2 * a] < last
            ]
            assert len(chosen) == len(pairs)
            for a in chosen:
                s, t = graph.slot_variables[2 * a : 2 * a + 2] - first
                np.testing.assert_allclose(potentials.factor(a), pairs[s, t], atol=atol)
            n_pairs += len(pairs)
            m += 1
    assert n_pairs


@pytest.mark.parametrize("breaks", [None, every_third])
@pytest.mark.parametrize("everything", [False, True])
def test_tables_are_those_of_loops(breaks, everything):
    X, Y = sentences()
    X.insert(4, [])
    Y.insert(4, [])
    crf = ff.SkipChainCRF(
        "pseudolikelihood",
        skip_edges="name",
        breaks=breaks,
        edge_features=True,
        l2=0.1,
        max_iter=20,
        tol=1e-1,
        batch_size=5,
        all_possible_states=everything,
        all_possible_transitions=everything,
    ).fit(X, Y)
    check_potentials(crf, X)
    n_attributes = len(crf.attributes_)
    blocks = crf.weight_blocks_
    assert list(blocks) == ["state", "transition", "skip", "transition_features", "skip_features"]
    assert sum(block.size for block in blocks.values()) == crf.weights_.size
    if everything:
        assert blocks["transition_features"].shape == (n_attributes, 9)
        assert blocks["skip_features"].shape == (n_attributes, 6)
    else:
        assert blocks["transition_features"].ndim == 1
        assert blocks["skip_features"].size < 6 * n_attributes
    # new sequences, with words that training did not show
    new, _ = sentences(seed=7)
    new[0][0]["w"] = "unknown"
    check_potentials(crf, new)


def test_tables_can_fail():
    X, Y = sentences()
    crf = ff.SkipChainCRF(
        "pseudolikelihood", skip_edges="name", edge_features=True, max_iter=5, tol=1e-1
    ).fit(X, Y)
    for name in ("transition_features", "skip_features"):
        weights = crf.weights_.copy()
        crf.weight_blocks_[name].ravel()[0] += 0.1
        expected = crf.weights_.copy()
        parts = crf._parts(crf._encode(X))
        crf.weights_ = weights
        moved = [p.template.potentials(expected).factor_values for p in parts]
        same = [p.template.potentials(weights).factor_values for p in parts]
        assert not np.allclose(np.concatenate(moved), np.concatenate(same), atol=1e-3)


def test_all_kinds_of_attributes_are_used(monkeypatch):
    """Rows, lists and single weights of the kernels: rare attributes, and no room for rows."""
    monkeypatch.setattr(_chain_tokens, "ROW_BYTES", 0)
    X, Y = sentences(16, valued=False)
    for m, x in enumerate(X):
        for t, token in enumerate(x):
            token[f"rare {(3 * m + t) % 20}"] = 1.0 + t
    crf = ff.SkipChainCRF(
        "pseudolikelihood", skip_edges="name", edge_features=True, max_iter=10, tol=1e-1
    ).fit(X, Y)
    kinds = set(crf._encode(X).edges[0].states.kinds.tolist())
    assert {ROW, LIST, SINGLE} <= kinds
    check_potentials(crf, X)


def problem_of(crf, X, Y):
    """The problem that `fit` minimises."""
    crf.classes_ = np.array(sorted({y for labels in Y for y in labels if y is not None}))
    labels = np.array(
        [-1 if y is None else list(crf.classes_).index(y) for labels in Y for y in labels],
        dtype=np.int32,
    )
    tokens = crf._encode_training(X, labels)
    return crf._problem_of_tokens(crf._objective(), tokens, labels, None)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("breaks", [None, every_third])
def test_gradients_are_central_differences(breaks, missing):
    X, Y = sentences(8, seed=2, longest=6)
    if missing:
        Y = [[None if t % 3 == 1 else y for t, y in enumerate(labels)] for labels in Y]
    crf = ff.SkipChainCRF("likelihood", skip_edges="name", breaks=breaks, edge_features=True)
    problem = problem_of(crf, X, Y)
    rng = np.random.default_rng(0)
    weights = 0.3 * rng.normal(size=problem.n_weights)
    gradient = problem.evaluate(weights).gradient
    scale = np.abs(gradient).max()
    for k in range(problem.n_weights):
        moved = [weights.copy(), weights.copy()]
        moved[0][k] += 1e-4
        moved[1][k] -= 1e-4
        numeric = (problem.evaluate(moved[0]).value - problem.evaluate(moved[1]).value) / 2e-4
        assert gradient[k] == pytest.approx(numeric, abs=1e-6 * scale), k


def test_edges_that_see_the_input_learn_what_constants_cannot():
    """Whether a word agrees with its neighbour depends on the word: no constant table says so."""
    rng = np.random.default_rng(1)
    X, Y = [], []
    for _ in range(60):
        labels = [str(rng.integers(2))]
        words = []
        for _ in range(7):
            words.append(str(rng.choice(["keep", "swap"])))
            labels.append(labels[-1] if words[-1] == "keep" else str(1 - int(labels[-1])))
        tokens = [{"w": word} for word in [*words, "end"]]
        tokens[0]["first"] = labels[0]
        X.append((tokens, []))
        Y.append(labels)
    plain = ff.SkipChainCRF("likelihood", l2=0.1).fit(X[:40], Y[:40])
    edges = ff.SkipChainCRF("likelihood", l2=0.1, edge_features=True).fit(X[:40], Y[:40])
    assert plain.score(X[40:], Y[40:]) < 0.75
    assert edges.score(X[40:], Y[40:]) == 1.0


def test_matrices_have_an_intercept_for_states_alone():
    X, Y = sentences(10, valued=False)
    names = sorted({name for x in X for token in x for name in named_features(token)})
    number = {name: k for k, name in enumerate(names)}
    dense = []
    for x in X:
        matrix = np.zeros((len(x), len(names)))
        for t, token in enumerate(x):
            for name in named_features(token):
                matrix[t, number[name]] = 1.0
        dense.append(matrix)
    links = [[(0, len(x) - 1)] if len(x) > 2 else [] for x in X]
    options = {"edge_features": True, "l2": 0.5}
    crf = ff.SkipChainCRF("bethe", **options).fit(list(zip(dense, links, strict=True)), Y)
    assert crf.weight_blocks_["state"].shape == (len(names) + 1, 3)
    assert crf.weight_blocks_["transition_features"].shape[0] == len(names)
    sparse = [(csr_matrix(x), pairs) for x, pairs in zip(dense, links, strict=True)]
    seen = ff.SkipChainCRF("bethe", **options, all_possible_states=True).fit(sparse, Y)
    np.testing.assert_allclose(seen.weights_, crf.weights_, atol=1e-12)


def test_threads_and_parts_do_not_change_the_weights():
    X, Y = sentences(30)
    options = {"skip_edges": "name", "edge_features": True, "max_iter": 30, "tol": 1e-3}
    one = ff.SkipChainCRF("bethe", **options, batch_size=7).fit(X, Y)
    two = ff.SkipChainCRF("bethe", **options, batch_size=7, n_jobs=2).fit(X, Y)
    whole = ff.SkipChainCRF("bethe", **options).fit(X, Y)
    assert np.array_equal(one.weights_, two.weights_)
    np.testing.assert_allclose(one.weights_, whole.weights_, atol=1e-2)


@pytest.mark.parametrize("table", ["symmetric", "full", "potts", "potts-labels"])
def test_files_keep_predictions(tmp_path, table):
    X, Y = sentences(20)
    crf = ff.SkipChainCRF(
        "bethe", skip_edges="name", skip_table=table, edge_features=True, l2=0.5
    ).fit(X, Y)
    crf.save(tmp_path / "model")
    again = ff.load(tmp_path / "model")
    for a, b in zip(crf.predict_marginals(X), again.predict_marginals(X), strict=True):
        assert np.array_equal(a, b)
    assert again.top_weights(50) == crf.top_weights(50)
    assert list(again.weight_blocks_) == list(crf.weight_blocks_)
    map_labels = crf.set_params(decode="map").predict(X)
    assert np.mean(np.concatenate(map_labels) == np.concatenate(Y)) > 0.6


def test_a_killed_fit_resumes_to_the_same_bits(tmp_path):
    X, Y = sentences(20)
    options = {"skip_edges": "name", "edge_features": True, "tol": 1e-6}
    whole = ff.SkipChainCRF("pseudolikelihood", **options, max_iter=40)
    with pytest.warns(ff.ConvergenceWarning):
        ff.SkipChainCRF("pseudolikelihood", **options, max_iter=10).fit(
            X, Y, checkpoint=tmp_path / "state"
        )
    resumed = ff.SkipChainCRF("pseudolikelihood", **options, max_iter=40)
    for crf in (whole, resumed):
        try:
            crf.fit(X, Y, checkpoint=tmp_path / ("state" if crf is resumed else "other"))
        except ff.ConvergenceWarning:
            pytest.fail("40 iterations are enough")
    assert np.array_equal(whole.weights_, resumed.weights_)
    # other edges are another problem
    with pytest.raises(ff.InvalidInputError, match="checkpoint"):
        ff.SkipChainCRF("pseudolikelihood", skip_edges="name").fit(
            X, Y, checkpoint=tmp_path / "state"
        )


def test_weights_have_names():
    X, Y = sentences(20, n_labels=2, valued=False)
    crf = ff.SkipChainCRF("bethe", skip_edges="name", edge_features=True, l2=0.5).fit(X, Y)
    named = {what: weight for weight, what in crf.top_weights(len(crf.weights_))}
    assert len(named) == len(crf.weights_)
    assert named["A ~ B"] == crf.weight_blocks_["skip"][1]
    assert any(what.startswith("w:Bob / A ~") for what in named)
    assert any(what.startswith("w:Ann / A ->") for what in named)
    potts = ff.SkipChainCRF("bethe", skip_edges="name", skip_table="potts", l2=0.5).fit(X, Y)
    assert "equal labels" in {what for _, what in potts.top_weights(len(potts.weights_))}


def test_too_many_parameters_are_refused(monkeypatch):
    monkeypatch.setattr(_edge_weights, "MOST_PARAMETERS", 2)
    X, Y = sentences(5)
    with pytest.raises(ff.InvalidInputError, match=r"edge_features must be False .* got"):
        ff.SkipChainCRF(skip_edges="name", edge_features=True).fit(X, Y)


def test_rare_attributes_of_edges_are_dropped():
    X, Y = sentences(20)
    options = {"skip_edges": "name", "edge_features": True, "max_iter": 5, "tol": 1.0}
    every = ff.SkipChainCRF("piecewise", **options).fit(X, Y)
    frequent = ff.SkipChainCRF("piecewise", **options, min_freq=3).fit(X, Y)
    for name in ("transition_features", "skip_features"):
        assert frequent.weight_blocks_[name].size < every.weight_blocks_[name].size


def test_the_command(tmp_path, capsys):
    train, model = tmp_path / "train.txt", tmp_path / "m.ff"
    train.write_text("Ann B\nsaw A\nAnn B\n\nthe A\nBob B\nmet A\nBob B\n")
    given = ["--train", str(train), "--model", str(model), "--edge-features", "--l2", "0.1"]
    assert main(["fit", "skip-chain", *given, "--objective", "bethe"]) == 0
    assert ff.load(model).edge_features
    capsys.readouterr()
    assert main(["inspect", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "transition_features" in shown
    assert "skip_features" in shown
    assert main(["predict", "--model", str(model), str(train)]) == 0
    assert capsys.readouterr().out.split() == ["B", "A", "B", "A", "B", "A", "B"]
