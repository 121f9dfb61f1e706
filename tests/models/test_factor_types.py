"""Factors of three nodes and more in `GraphCRF`: the weights it finds, and what it refuses."""

from __future__ import annotations

import json
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from fields import configurations, graphs, triples
from objectives import OBJECTIVES as ENTRIES
from scipy.stats import chi2

import fieldfit as ff
from fieldfit._registry import OBJECTIVES
from fieldfit.cli.main import main
from fieldfit.errors import FileFormatError, InvalidInputError, TooLargeError
from fieldfit.learners.problem import TemplateProblem
from fieldfit.models import FactorType
from fieldfit.shards import write

FORMS = ("full", "symmetric", "potts", "potts-labels", "robust-potts")


# -- the model, written down without the package -------------------------------------------


def parameters(form, n_labels, arity):
    """Keys of the parameters of a table, in their order; `key` says which one labels use."""
    if form == "full":
        return list(product(range(n_labels), repeat=arity))
    if form == "symmetric":
        return list(combinations_with_replacement(range(n_labels), arity))
    if form == "potts-labels":
        return list(range(n_labels))
    fewest = -(-arity // n_labels)  # of labels that agree
    return [arity] if form == "potts" else list(range(fewest + 1, arity + 1))


def key(form, labels):
    labels = tuple(int(label) for label in labels)
    if form == "full":
        return labels
    if form == "symmetric":
        return tuple(sorted(labels))
    if form == "potts-labels":
        return labels[0] if len(set(labels)) == 1 else None
    return max(map(labels.count, labels))


def counts(form, n_labels, every, scopes, features):
    """Statistics of a type for every labelling: a constant, then one for each feature."""
    names = parameters(form, n_labels, scopes.shape[1])
    table = {
        labels: [float(name == key(form, labels)) for name in names]
        for labels in product(range(n_labels), repeat=scopes.shape[1])
    }
    rows = [
        np.array([table[tuple(labels)] for labels in every[:, scope].tolist()]) for scope in scopes
    ]
    found = [sum(rows, np.zeros((len(every), len(names))))]
    for d in range(features.shape[1]):
        found.append(sum((row * x[d] for row, x in zip(rows, features, strict=True)), 0 * found[0]))
    return np.concatenate(found, axis=1)


def statistics(x, n_labels, forms, intercept=True):
    """All labellings of an example and the vectors ``f`` with ``s(y) = w . f``."""
    nodes, factors = x
    every = configurations(len(nodes), n_labels)
    one_hot = np.eye(n_labels)[every]
    parts = [np.einsum("nd,snk->sdk", nodes, one_hot).reshape(len(every), -1)]
    if intercept:
        parts.append(one_hot.sum(axis=1))
    for name, (form, arity, n_features) in forms.items():
        given = factors.get(name, np.zeros((0, arity), dtype=int))
        empty = np.zeros((len(given), 0))
        scopes, features = given if isinstance(given, tuple) else (given, empty)
        if not len(scopes):
            features = np.zeros((0, n_features))
        parts.append(counts(form, n_labels, every, np.asarray(scopes), features))
    return every, np.concatenate(parts, axis=1)


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


# -- the optimum ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_features", [0, 2])
def test_likelihood_is_stationary_by_enumeration(form, n_features):
    X, Y = triples(n_features=n_features, n_nodes=5)
    Y[2][3] = -1
    crf = ff.GraphCRF("likelihood", l2=0.4, tol=1e-9, factors={"triples": form}).fit(X, Y)
    forms = {"edges": ("symmetric", 2, 0), "triples": (form, 3, n_features)}
    gradient = 0.4 * crf.weights_
    for x, y in zip(X, Y, strict=True):
        every, vectors = statistics(x, 3, forms)
        scores = vectors @ crf.weights_
        agree = np.all((y < 0) | (every == y), axis=1)
        gradient = gradient + softmax(scores) @ vectors
        gradient = gradient - softmax(scores[agree]) @ vectors[agree]
    assert crf.converged_
    assert np.abs(gradient).max() < 1e-5
    assert np.abs(crf.weight_blocks_["triples"]).max() > 0.05


def test_pairs_by_another_name_are_edges():
    X, Y = graphs(n_edge_features=1)
    edges = ff.GraphCRF("trw", l2=0.1).fit(X, Y)
    named = [(nodes, {"pairs": (pairs, features)}) for nodes, pairs, features in X]
    pairs = ff.GraphCRF("trw", l2=0.1).fit(named, Y)
    np.testing.assert_array_equal(pairs.weights_, edges.weights_)
    assert list(pairs.weight_blocks_) == ["unary", "intercept", "pairs", "pairs_features"]
    by_name = [(nodes, {"edges": (pairs, features)}) for nodes, pairs, features in X]
    again = ff.GraphCRF("trw", l2=0.1).fit(by_name, Y)
    np.testing.assert_array_equal(again.weights_, edges.weights_)
    np.testing.assert_array_equal(again.predict(X)[0], edges.predict(by_name)[0])


def test_order_of_nodes_counts_only_in_full_tables():
    X, Y = triples()
    turned = [
        (nodes, {name: np.asarray(own)[:, ::-1] for name, own in factors.items()})
        for nodes, factors in X
    ]
    for form in FORMS:
        crf = ff.GraphCRF("likelihood", l2=0.1, tol=1e-9, factors={"triples": form})
        there = crf.fit(X, Y).weight_blocks_["triples"]
        back = crf.fit(turned, Y).weight_blocks_["triples"]
        same = back.transpose(2, 1, 0) if form == "full" else back
        np.testing.assert_allclose(there, same, atol=1e-6)


def test_robust_potts_has_a_weight_for_each_number_of_labels_that_agree():
    X = [(np.zeros((4, 1)), {"squares": [(0, 1, 2, 3)]})]
    crf = ff.GraphCRF("likelihood", l2=0.1, factors={"squares": "robust-potts"}, n_labels=3)
    names = [what for _, what in crf.fit(X, [[0, 0, 0, 1]]).top_weights()]
    assert {name for name in names if name.startswith("squares")} == {
        "squares 3 of 4 labels equal",
        "squares equal labels",
    }
    largest, *_ = (what for _, what in crf.top_weights() if what.startswith("squares"))
    assert largest == "squares 3 of 4 labels equal"


# -- weights of a model that data were drawn from -------------------------------------------


def drawn(seed, form, n_examples, n_labels, truth, forms):
    """Examples, labels drawn by enumeration, and the information about the weights."""
    rng = np.random.default_rng(seed)
    X, Y, information = [], [], 0.0
    for m in range(n_examples):
        n_nodes = 5 + m % 2
        scopes = np.array([rng.permutation(n_nodes)[:3] for _ in range(3)])
        factors = {
            "edges": np.array([(i, i + 1) for i in range(n_nodes - 1)]),
            "triples": (scopes, rng.normal(size=(3, 1))),
        }
        x = (rng.normal(size=(n_nodes, 1)), factors)
        every, vectors = statistics(x, n_labels, forms)
        chances = softmax(vectors @ truth)
        centred = vectors - chances @ vectors
        information = information + (centred * chances[:, None]).T @ centred
        X.append(x)
        Y.append(every[rng.choice(len(every), p=chances)])
    return X, Y, information


@pytest.mark.parametrize(
    ("form", "n_labels"),
    [("symmetric", 2), ("full", 2), ("potts", 3), ("potts-labels", 2), ("robust-potts", 3)],
)
def test_weights_of_a_drawn_model_are_found_within_standard_errors(form, n_labels):
    forms = {"edges": ("symmetric", 2, 0), "triples": (form, 3, 1)}
    probe = (np.zeros((3, 1)), {"triples": (np.array([(0, 1, 2)]), np.ones((1, 1)))})
    n_weights = statistics(probe, n_labels, forms)[1].shape[1]
    truth = np.random.default_rng(5).normal(scale=0.7, size=n_weights)
    X, Y, information = drawn(1, form, 1500, n_labels, truth, forms)
    crf = ff.GraphCRF("likelihood", l2=1e-6, tol=1e-9, max_iter=500, factors={"triples": form})
    found = crf.fit(X, Y).weights_
    # weights that give the same distribution differ by what the information does not see
    values, vectors = np.linalg.eigh(information)
    seen = vectors[:, values > 1e-8 * values.max()]
    errors = seen.T @ (found - truth)
    covariance = np.linalg.inv(seen.T @ information @ seen)
    standard_errors = np.sqrt(np.diag(seen @ covariance @ seen.T))
    assert np.all(np.abs(seen @ errors) < 4 * standard_errors)
    mean_square = errors @ np.linalg.solve(covariance, errors) / len(errors)
    low, high = chi2.ppf([0.005, 0.995], len(errors)) / len(errors)
    assert low < mean_square < high
    assert 4 * standard_errors.max() < 1.5  # the data say something about every weight


# -- every objective ------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.pairs_only], ids=str)
def test_gradient_by_weights_is_that_of_the_value(entry):
    """The template of triples with features and the tables of an objective, together."""
    X, Y = triples(count=3, n_nodes=5, n_labels=2, n_features=1)
    crf = ff.GraphCRF("likelihood", l2=0.1, n_labels=2, factors={"triples": "full"}).fit(X, Y)
    weights = 0.3 * np.random.default_rng(0).normal(size=len(crf.weights_))
    problem = TemplateProblem(entry.objective, list(crf._parts(X, crf._labels(X, Y))))
    gradient = problem.evaluate(weights).gradient
    step, expected = 1e-4, np.empty_like(weights)
    for k in range(len(weights)):
        move = step * np.eye(len(weights))[k]
        above, below = problem.evaluate(weights + move), problem.evaluate(weights - move)
        expected[k] = (above.value - below.value) / (2 * step)
    # of the order of 1e-8 in the step's square; contrasts and searches leave more rounding
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-6 * scale)


@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "log-determinant"])
def test_every_objective_learns(name):
    X, Y = triples(count=10, n_nodes=7, seed=2, n_features=1)
    crf = ff.GraphCRF(name, l2=0.1, max_iter=40).fit(X, Y)
    share = np.bincount(np.concatenate(Y)).max() / np.concatenate(Y).size
    assert crf.score(X, Y) > max(0.7, share)
    for x, beliefs in zip(X, crf.predict_marginals(X), strict=True):
        assert beliefs.shape == (len(x[0]), 3)
        np.testing.assert_allclose(beliefs.sum(axis=-1), 1.0, atol=1e-12)
    labels = crf.set_params(decode="map").predict(X)
    assert [len(y) for y in labels] == [len(y) for y in Y]


@pytest.mark.parametrize(
    "objective",
    [
        ff.MLEStruct(oracle=ff.MaxFlow()),
        ff.MaxMargin(ff.RoofDuality()),
        ff.Perceptron(ff.CycleCuts()),
        ff.MaxMargin(ff.PlanarIsing()),
        ff.Likelihood(ff.FrankWolfe(oracle=ff.MaxFlow(), entropy=ff.TreeReweighted())),
        ff.Likelihood(ff.inference.LogDeterminant()),
    ],
    ids=lambda objective: type(objective).__name__,
)
@pytest.mark.parametrize("l2", [0.1, "auto"])
def test_searches_for_pairs_are_refused_before_any_work(objective, l2):
    X, Y = triples(n_labels=2)
    crf = ff.GraphCRF(objective, l2=l2)
    with pytest.raises(InvalidInputError, match="'triples' must join at most 2 nodes for"):
        crf.fit(X, Y)
    assert not hasattr(crf, "trace_")
    pairs = [(nodes, factors["edges"]) for nodes, factors in X]
    if l2 != "auto" and isinstance(objective, ff.MLEStruct):
        ff.GraphCRF(objective, l2=l2, max_iter=1, pairwise="potts")._types_of(pairs, 2)


# -- what users call -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fieldfit.errors.NoGainWarning")
def test_penalties_are_chosen_though_a_fold_lacks_a_type():
    X, Y = triples(count=12, n_labels=2)
    X = [(nodes, {"edges": own["edges"]}) for nodes, own in X[:-1]] + X[-1:]
    crf = ff.GraphCRF("trw", factors={"triples": "potts"}).fit(X, Y)
    assert crf.weight_blocks_["triples"].shape == (1,)
    assert crf.path_


def test_a_declared_type_needs_no_example():
    X, Y = triples(n_labels=2)
    pairs = [(nodes, {"edges": own["edges"]}) for nodes, own in X]
    declared = {"triples": FactorType(3, n_features=1, tables="potts")}
    crf = ff.GraphCRF("likelihood", l2=0.1, factors=declared).fit(pairs, Y)
    np.testing.assert_array_equal(crf.weight_blocks_["triples"], 0.0)
    assert crf.weight_blocks_["triples_features"].shape == (1, 1)
    X, _ = triples(n_labels=2, n_features=1)
    np.testing.assert_array_equal(
        np.concatenate(crf.predict(X)), np.concatenate(crf.predict(pairs))
    )


def test_bounds_and_samples():
    X, Y = triples(n_labels=2, n_nodes=5)
    crf = ff.GraphCRF("likelihood", l2=0.1).fit(X, Y)
    low, high = crf.log_likelihood_bounds(X, Y)
    forms = {"edges": ("symmetric", 2, 0), "triples": ("symmetric", 3, 0)}
    for m, (x, y) in enumerate(zip(X, Y, strict=True)):
        every, vectors = statistics(x, 2, forms)
        exact = np.log(softmax(vectors @ crf.weights_)[np.all(every == y, axis=1)][0])
        assert low[m] - 1e-9 <= exact <= high[m] + 1e-9
        assert high[m] - low[m] < 1e-6  # so few nodes are summed exactly
    samples = crf.sample(X[:1], n_samples=7, random_state=0)
    assert np.asarray(samples[0]).shape == (7, 5)


@pytest.mark.parametrize("form", [*FORMS, "auto", FactorType(3, n_features=1, tables="potts")])
def test_a_saved_model_is_the_same(tmp_path, form):
    X, Y = triples(n_features=1)
    crf = ff.GraphCRF("trw", l2=0.1, factors={"triples": form}).fit(X, Y)
    crf.save(tmp_path / "model.ff")
    again = ff.load(tmp_path / "model.ff")
    assert again.factor_types_ == crf.factor_types_
    assert again.get_params()["factors"] == {"triples": form}
    assert again.top_weights(100) == crf.top_weights(100)
    for a, b in zip(crf.predict_marginals(X), again.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_files_of_pairs_do_not_name_types():
    X, Y = graphs(n_edge_features=2)
    crf = ff.GraphCRF("piecewise", l2=0.1).fit(X, Y)
    about = crf._model_metadata()
    assert about["n_edge_features"] == 2
    assert "factor_types" not in about


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (["triples", 3, 10**9, "full"], "'n_features' to be an integer in 0.."),
        (["triples", 40, 0, "potts"], "must have tables of at most"),
        (["triples", 3, 0, "cubic"], "tables must be"),
        (["triples", 3], "expected an entry 'n_features'"),
        (["a,b", 3, 0, "full"], "without a comma"),
        ("triples", "a list of entries of their type"),
    ],
)
def test_altered_types_of_a_file_are_refused(monkeypatch, tmp_path, entry, sentence):
    X, Y = triples()
    crf = ff.GraphCRF("piecewise", l2=0.1).fit(X, Y)
    about = crf._model_metadata() | {"factor_types": [entry]}
    monkeypatch.setattr(type(crf), "_model_metadata", lambda self: about)
    crf.save(tmp_path / "model.ff")
    with pytest.raises(FileFormatError, match=sentence):
        ff.load(tmp_path / "model.ff")


@pytest.mark.parametrize("name", ["trw", "pseudolikelihood", "procedural"])
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_shards_give_the_same_bits(tmp_path, name):
    X, Y = triples(count=9, n_features=1)
    X[0] = (X[0][0], {})  # the first shard knows of no type
    crf = ff.GraphCRF(name, l2=0.1, max_iter=30, factors={"triples": "robust-potts"})
    shards = write(tmp_path / "shards", ff.GraphCRF(), zip(X, Y, strict=True))
    memory = crf.fit(X, Y).weights_
    np.testing.assert_array_equal(crf.fit(shards).weights_, memory)
    for a, b in zip(crf.predict(X), crf.predict(shards), strict=True):
        np.testing.assert_array_equal(a, b)
    assert crf.score(shards) == crf.score(X, Y)


def test_small_shards_hold_their_types(tmp_path):
    X, Y = triples(count=6, n_features=1)
    X[0] = (X[0][0], {})
    shards = write(tmp_path / "shards", ff.GraphCRF(), zip(X, Y, strict=True), shard_size=10)
    assert len(shards) == 6
    crf = ff.GraphCRF("piecewise", l2=0.1, factors={"triples": "full"})
    expected = crf.fit(X, Y).weights_
    np.testing.assert_allclose(crf.fit(shards).weights_, expected, atol=1e-6)
    with pytest.raises(InvalidInputError, match="types of the shards, which have 'edges', 'trip"):
        ff.GraphCRF("piecewise", l2=0.1, factors={"squares": "full"}).fit(shards)
    other = {"triples": FactorType(4)}
    with pytest.raises(InvalidInputError, match="must have arity 3 and n_features 1 as in the sha"):
        ff.GraphCRF("piecewise", l2=0.1, factors=other).fit(shards)
    declared = {"squares": FactorType(4, tables="potts")}
    more = ff.GraphCRF("piecewise", l2=0.1, factors=declared).fit(shards)
    assert more.weight_blocks_["squares"].tolist() == [0.0]


def test_report_and_comparison(tmp_path):
    X, Y = triples(count=10, n_labels=2, n_features=1)
    crf = ff.GraphCRF("trw", l2=0.1).fit(X, Y)
    crf.report(tmp_path / "report.html", X, Y)
    page = (tmp_path / "report.html").read_text()
    assert "label 0 - label 0 - label 1" in page
    found = ff.compare(ff.GraphCRF(l2=0.1), X, Y, methods=["independent", "trw"])
    assert {row["method"] for row in found.rows} == {"independent", "trw"}


# -- errors ----------------------------------------------------------------------------------

NODES = np.zeros((4, 1))
LABELS = [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("factors", "sentence"),
    [
        ({"t": [(0, 1, 4)]}, r"X\[0\]: scopes of 't' must name nodes 0..3, got \[0, 1, 4\] at 0"),
        ({"t": [(0, 1, 2), (-1, 1, 2)]}, r"must name nodes 0..3, got \[-1, 1, 2\] at 1"),
        ({"t": [(0, 1, 1)]}, r"scopes of 't' must join different nodes, got \[0, 1, 1\] at 0"),
        ({"t": [0, 1, 2]}, r"of shape \(n_factors, n_nodes\) .* got shape \(3,\)"),
        ({"t": [(0,), (1,)]}, r"at least 2 nodes, .* got shape \(2, 1\)"),
        ({"t": [(0, 1, 2), (0, 1)]}, "scopes of 't'"),
        ({"t": [(0.5, 1, 2)]}, "scopes of 't' must"),
        ({"t": ([(0, 1, 2)], np.ones((2, 1)))}, r"features of 't' must have shape \(1, D\), got"),
        ({"t": ([(0, 1, 2)], np.ones(1))}, r"features of 't' must have shape \(1, D\), got"),
        ({"t": ([(0, 1, 2)], [[np.nan]])}, "features of 't' must be finite, got NaN"),
        ({"t": ([(0, 1, 2)], [["a"]])}, "features of 't'"),
        ({"edges": [(0, 1, 2)]}, "X"),
        ({"unary": [(0, 1, 2)]}, "types of factors must be texts .* got 'unary'"),
        ({"t_features": [(0, 1, 2)]}, "types of factors must be texts"),
        ({3: [(0, 1, 2)]}, "types of factors must be texts .* got 3"),
    ],
)
def test_examples_that_are_none_are_refused(factors, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        ff.GraphCRF("piecewise", l2=0.1).fit([(NODES, factors)], [LABELS])


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (
            {"t": ([(0, 1)], [[1.0]])},
            r"X\[1\]: factors of type 't' must join 3 nodes as in",
        ),
        ({"t": [(0, 1, 2)]}, r"X\[1\]: factors of type 't' must have 1 features .* got 0"),
        ({"t": ([(0, 1, 2)], [[1.0, 2.0]])}, "must have 1 features .* got 2"),
    ],
)
def test_types_are_the_same_in_all_examples(second, sentence, tmp_path):
    X = [(NODES, {"t": ([(0, 1, 2)], [[1.0]])}), (NODES, second)]
    crf = ff.GraphCRF("piecewise", l2=0.1)
    with pytest.raises(InvalidInputError, match=sentence):
        crf.fit(X, [LABELS, LABELS])
    with pytest.raises(InvalidInputError, match=sentence):
        write(tmp_path / "shards", crf, zip(X, [LABELS, LABELS], strict=True))
    crf.fit(X[:1], [LABELS])
    with pytest.raises(InvalidInputError, match=sentence.replace(r"X\[1\]", r"X\[0\]")):
        crf.predict(X[1:])


def test_unknown_types_and_forms_are_refused():
    X = [(NODES, {"t": [(0, 1, 2)]})]
    fit = ff.GraphCRF("piecewise", l2=0.1).fit(X, [LABELS])
    with pytest.raises(InvalidInputError, match="must be those of the fit, 't', got 's'"):
        fit.predict([(NODES, {"s": [(0, 1, 2)]})])
    with pytest.raises(InvalidInputError, match="must be those of the fit, 't', got 'edges'"):
        fit.predict([(NODES, [(0, 1)])])
    assert len(fit.predict([(NODES, {}), (NODES, {"s": []}), (NODES, [])])) == 3
    for factors, sentence in {
        "potts": "factors must be a dictionary from types",
        (("t", "cubic"),): r"factors\['t'\] must be",
        (("s", "full"),): "factors must name types of the examples, which have 't', got 's'",
        (("edges", "full"),): "factors must not have 'edges', the form of which is pairwise",
        (("edges", FactorType(3)),): r"factors\['edges'\] must have arity 2",
        (("unary", "full"),): "types of factors must be texts",
    }.items():
        given = factors if isinstance(factors, str) else dict(factors)
        with pytest.raises(InvalidInputError, match=sentence):
            ff.GraphCRF("piecewise", l2=0.1, factors=given).fit(X, [LABELS])
    with pytest.raises(InvalidInputError, match=r"in the dictionary, as \{type:"):
        fit.predict([(NODES, {"t": [(0, 1, 2)]}, np.ones((1, 1)))])
    with pytest.raises(InvalidInputError, match=r"one graph is \[\(node_features"):
        fit.predict((NODES, {"t": [(0, 1, 2)]}))


def test_tables_without_end_are_refused():
    X = [(np.zeros((30, 1)), {"everything": [range(30)]})]
    with pytest.raises(TooLargeError, match="'everything' must have tables of at most 1048576 ent"):
        ff.GraphCRF("pseudolikelihood", l2=0.1, n_labels=2).fit(X, [[0, 1] * 15])


# -- the command line ------------------------------------------------------------------------


def write_lines(path, X, Y):
    lines = []
    for (nodes, factors), y in zip(X, Y, strict=True):
        given = {
            name: {"scopes": own[0].tolist(), "features": own[1].tolist()}
            if isinstance(own, tuple)
            else own.tolist()
            for name, own in factors.items()
            if name != "edges"
        }
        line = {"nodes": nodes.tolist(), "factors": given, "labels": y.tolist()}
        if "edges" in factors:
            line["edges"] = factors["edges"].tolist()
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))


@pytest.mark.parametrize("n_features", [0, 1])
@pytest.mark.parametrize("edges", [True, False])
def test_the_command_learns_what_the_estimator_does(tmp_path, capsys, n_features, edges):
    X, Y = triples(n_features=n_features, edges=edges)
    data, model = tmp_path / "graphs.jsonl", tmp_path / "graphs.ff"
    write_lines(data, X, Y)
    options = ["--objective", "trw", "--l2", "0.1", "--factors", "triples=robust-potts"]
    assert main(["fit", "graph", "--train", str(data), *options, "--model", str(model)]) == 0
    crf = ff.GraphCRF("trw", l2=0.1, factors={"triples": "robust-potts"}).fit(X, Y)
    np.testing.assert_array_equal(ff.load(model).weights_, crf.weights_)
    capsys.readouterr()
    assert main(["score", "--model", str(model), str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(crf.score(X, Y))
    assert main(["inspect", str(model)]) == 0
    assert "triples: 3 nodes" in capsys.readouterr().out
    shards = tmp_path / "shards"
    assert main(["shard", "graph", "--train", str(data), "--out", str(shards)]) == 0
    again = tmp_path / "again.ff"
    assert main(["fit", "graph", "--shards", str(shards), *options, "--model", str(again)]) == 0
    np.testing.assert_array_equal(ff.load(again).weights_, crf.weights_)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('"factors": [[0, 1]]', "line 1: expected 'factors' to be an object"),
        ('"factors": {"edges": [[0, 1]]}', "line 1: expected 'edges' beside 'factors'"),
        ('"factors": {"t": {"scope": []}}', "expected the keys scopes, features of the type 't'"),
        ('"factors": {"t": {"scopes": [[0, 1]], "features": []}}', "one for each factor, found 0"),
        ('"factors": {"t": [[0, 1, 9]]}', "line 1: scopes of 't' must name nodes 0..1"),
        ('"factors": {"t": [[0, 0]]}', "line 1: scopes of 't' must join different nodes"),
        ('"factors": {"unary": [[0, 1]]}', "line 1: types of factors must be texts"),
    ],
)
def test_lines_of_a_file_that_are_none_are_refused(tmp_path, capsys, line, sentence):
    data = tmp_path / "graphs.jsonl"
    data.write_text('{"nodes": [[1.0], [2.0]], "labels": [0, 1], ' + line + "}\n")
    options = ["--l2", "0.1", "--model", str(tmp_path / "m.ff")]
    assert main(["fit", "graph", "--train", str(data), *options]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("given", ["triples", "triples=cubic", "a=full,a=full", "=full", "a=full,"])
def test_forms_that_are_none_are_refused(tmp_path, capsys, given):
    options = ["--factors", given, "--model", str(tmp_path / "m.ff")]
    assert main(["fit", "graph", "--train", "x", *options]) == 2
    assert "must be different names with one of auto, full" in capsys.readouterr().err


def test_help_teaches_the_form_of_files(capsys):
    assert main(["fit", "graph", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert '"factors": {"triples": [[0, 1, 2]' in text
    assert "--factors TYPE=TABLES" in text
