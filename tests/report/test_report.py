"""Reports of fits: every kind is complete, right, well-formed and safe from hostile names."""

from __future__ import annotations

import re
import threading
import warnings
from copy import copy
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from report_cases import HOSTILE, KINDS, PREDICTED, Page, case
from sklearn.exceptions import NotFittedError
from sklearn.metrics import confusion_matrix, log_loss

import fieldfit as ff
from fieldfit._registry import MODELS
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.report.kinds.base import KindReport, Request
from fieldfit.report.kinds.registry import report_kind
from fieldfit.report.page_parts import number
from fieldfit.report.page_script import SCRIPT
from fieldfit.report.report_page import report_page


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Pages of all kinds, written when they are first asked for."""
    folder = tmp_path_factory.mktemp("reports")
    made = {}

    def source(kind, with_data=True):
        if (kind, with_data) not in made:
            name = f"{kind}{'' if with_data else '-alone'}.html"
            made[kind, with_data] = case(kind).write(folder / name, with_data)
        return made[kind, with_data]

    return source


# -- every kind ------------------------------------------------------------------------------


def test_every_estimator_has_a_kind_of_its_own():
    classes = [report_kind(getattr(ff, name)()) for name in MODELS]
    assert KindReport not in classes
    assert len({type(case(kind).model) for kind in KINDS}) == len(MODELS)


@pytest.mark.parametrize("with_data", [True, False])
def test_page_is_well_formed_and_needs_nothing(kind, sources, with_data):
    source = sources(kind, with_data)
    page = Page(source)  # checks that elements are nested
    names = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(names) == len(set(names))
    links = [attrs["href"] for attrs in page.all("a")]
    assert {link.removeprefix("#") for link in links} <= set(names)
    assert all(attrs["src"].startswith("data:image/png;base64,") for attrs in page.all("img"))
    assert not {"link", "iframe", "object", "form"} & {tag for tag, _ in page.tags}
    plain = re.sub(r"base64,[^\"]*|sha256-[^']*", "", source)
    assert not re.search(r"https?:|url\(|@import|\son\w+=", plain)
    assert not re.search(r"\b(nan|inf)\b", page.text)


def test_status_comes_first_and_everything_is_there(kind, sources):
    given = case(kind)
    page = Page(sources(kind))
    told = given.model.status_.removeprefix("converged").lstrip(": ").rstrip(".")[1:]
    assert told in page.text
    assert page.text.index(told) < page.text.index(page.headings[0])
    assert set(given.sections) <= set(page.headings)
    for option in given.model.get_params(deep=False):
        assert option in page.text
    assert np.__version__ in page.text
    assert type(given.model).__name__ in page.text


def test_page_without_data_has_what_the_estimator_knows(kind, sources):
    page = Page(sources(kind, with_data=False))
    assert "Weights" in page.headings
    assert not {"Predictions", "Scores", "Certificate", PREDICTED} & set(page.headings)
    assert "Made without data" in page.text


def test_hostile_names_are_text(kind, sources):
    source = sources(kind)
    assert HOSTILE not in source
    page = Page(source)
    assert HOSTILE in page.text or kind == "chain"
    assert len(page.all("script")) == 1
    assert f"<script>{SCRIPT}</script>" in source


def test_the_check_of_pages_can_fail():
    with pytest.raises(AssertionError, match="closes"):
        Page("<div><p></div>")
    with pytest.raises(AssertionError, match="not closed"):
        Page("<div>")


def test_reports_leave_the_estimator_as_it_was(kind, tmp_path):
    given = case(kind)
    before = {name: id(value) for name, value in vars(given.model).items()}
    given.write(tmp_path / "fit.html")
    assert {name: id(value) for name, value in vars(given.model).items()} == before


def test_loaded_models_have_a_report(kind, tmp_path, sources):
    given = case(kind)
    if kind == "skip-chain":
        assert isinstance(given.model.skip_edges, str)
    given.model.save(tmp_path / "model.ff")
    ff.load(tmp_path / "model.ff").report(tmp_path / "fit.html")
    page = Page((tmp_path / "fit.html").read_text())
    assert "Weights" in page.headings
    assert given.model.status_.rstrip(".")[-20:] in page.text


# -- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["chain", "skip-chain", "grid", "graph"])
def test_scores_are_those_of_the_predictions(kind, sources):
    given = case(kind)
    X, Y = given.data
    page = Page(sources(kind))
    assert page.figure("accuracy") == f"{100 * given.model.score(X, Y):.2f} %"
    true = np.concatenate([np.ravel(y) for y in Y])
    found = np.concatenate([np.ravel(y) for y in given.model.predict(X)])
    n_labels = len(given.model.predict_marginals(X)[0].reshape(-1, 3 if kind != "graph" else 2)[0])
    beliefs = np.concatenate([b.reshape(-1, n_labels) for b in given.model.predict_marginals(X)])
    known = true != -1 if kind == "graph" else np.ones(len(true), dtype=bool)
    expected = confusion_matrix(true[known], found[known])
    counts = page.tables["Confusion matrix"].rows
    assert_array_equal([[int(cell) for cell in row[1:]] for row in counts], expected)
    assert page.figure("log-loss") == number(float(log_loss(true[known], beliefs[known])))
    labels = page.tables["Scores of each label"]
    assert [int(v) for v in labels.column("given")] == expected.sum(axis=1).tolist()
    recall = np.diag(expected) / expected.sum(axis=1)
    assert_allclose([float(v) for v in labels.column("recall")], recall)


def test_chunks_have_their_score(sources):
    given = case("chain")
    X, Y = given.data
    expected = ff.metrics.chunk_f1(Y, [y.tolist() for y in given.model.predict(X)])
    assert Page(sources("chain")).figure("F1 of chunks") == f"{100 * expected:.2f} %"
    assert "F1 of chunks" not in Page(sources("skip-chain")).text  # other names of labels


def test_chain_weights(sources):
    model = case("chain").model
    page = Page(sources("chain"))
    strongest = page.tables["Strongest weights"]
    expected = model.top_weights(60)
    assert [float(v) for v in strongest.column("weight")] == [weight for weight, _ in expected]
    assert strongest.column("attribute / label") == [what for _, what in expected]
    transitions = page.tables["Weights of transitions"].rows
    has_weight = model._layout.transitions >= 0
    assert [
        [cell != number(None) for cell in row[1:]] for row in transitions
    ] == has_weight.tolist()


def test_tokens_are_shown_with_label_and_truth(sources):
    given = case("chain")
    X, Y = given.data
    page = Page(sources("chain"))
    tokens = [attrs for tag, attrs in page.tags if "token" in (attrs.get("class") or "").split()]
    assert len(tokens) == sum(len(x) for x in X[:4])
    wrong = [attrs for attrs in tokens if attrs["class"] == "token wrong"]
    found = given.model.predict(X[:4])
    assert len(wrong) == sum(int((a != np.array(b)).sum()) for a, b in zip(found, Y, strict=False))
    assert wrong


def test_grid_tables_and_pictures(sources):
    given = case("grid")
    page = Page(sources("grid"))
    assert len(page.all("img")) == 3 * 5  # seen, truth, predicted, confidence, mistakes
    names = [row[0] for row in page.tables["Weights of features"].rows]
    assert names == given.options["feature_names"]
    unary = given.model.weight_blocks_["unary"]
    hints = [attrs.get("title") or "" for attrs in page.all("td")]
    assert f"red, water: {number(float(unary[0, 2]))}" in hints
    path = page.tables["Penalties"]
    assert_allclose(
        [float(v) for v in path.column("held-out accuracy")],
        [row["score"] for row in given.model.path_],
    )


@pytest.mark.parametrize("kind", ["grid", "graph"])
def test_bounds_are_those_of_the_model(kind, sources):
    given = case(kind)
    X, Y = given.data
    # one by one: what is exact "where that is cheap" depends on how many are asked for at once
    pairs = [given.model.log_likelihood_bounds(X[k : k + 1], Y[k : k + 1]) for k in range(len(X))]
    lower, upper = np.concatenate(pairs, axis=1)
    page = Page(sources(kind))
    assert page.figure("lower bound") == number(float(lower.sum()))
    assert page.figure("upper bound") == number(float(upper.sum()))


def test_network_has_estimates_with_errors(sources):
    given = case("ising")
    model = given.model
    page = Page(sources("ising"))
    table = page.tables["Table of couplings"]
    values = [float(v) for v in table.column("estimate")]
    n = model.n_features_in_
    order = np.argsort(-np.abs(model.weights_[n:]), kind="stable")
    assert values == model.weights_[n:][order].tolist()
    fresh = copy(model)  # its covariance is not kept in the shared one
    assert_allclose([float(v) for v in table.column("error")], fresh.standard_errors_[n:][order])
    thresholds = page.tables["Table of thresholds"]
    assert thresholds.column("threshold") == given.options["feature_names"]
    drawn = [attrs for attrs in page.all("line") if attrs.get("class") in ("plus", "minus")]
    ends = fresh.confidence_intervals()[n:]
    assert len(drawn) == ((ends[:, 0] > 0) | (ends[:, 1] < 0)).sum()


def test_network_without_errors_says_why(tmp_path):
    samples = np.random.default_rng(0).integers(0, 2, size=(100, 4))
    ff.IsingModel(l1=1.0).fit(samples).report(tmp_path / "fit.html")
    page = Page((tmp_path / "fit.html").read_text())
    assert "Standard errors need l1 = 0" in page.text
    assert page.tables["Table of couplings"].header == ["coupling", "estimate"]


@pytest.mark.parametrize("kind", ["ising", "potts"])
def test_variables_are_predicted_from_the_others(kind, sources):
    """Against the differences of whole configurations' scores."""
    model, (samples,) = case(kind).model, case(kind).data
    graph, potentials = model.to_model()
    q = graph.uniform_cardinality

    def score(y):
        total = sum(potentials.unary(i)[y[i]] for i in range(graph.n_variables))
        return total + sum(
            potentials.factor(a)[tuple(y[i] for i in graph.scope(a))]
            for a in range(graph.n_factors)
        )

    right = 0
    for row in samples:
        for i in range(len(row)):
            scores = [score([*row[:i], k, *row[i + 1 :]]) for k in range(q)]
            right += int(np.argmax(scores) == row[i])
    assert Page(sources(kind)).figure("accuracy") == f"{100 * right / samples.size:.2f} %"


def test_pairs_of_potts_models(sources):
    model = case("potts").model
    table = Page(sources("potts")).tables["Strongest pairs"]
    scores = model.contact_scores()
    first, second = model.edges_.T
    expected = np.sort(scores[first, second])[::-1]
    assert [float(v) for v in table.column("score")] == expected.tolist()
    assert (table.rows[0][0], table.rows[0][1]) == ("1", "4")


def test_matching_weights_and_marginals(sources):
    given = case("matching")
    X, Y = given.data
    page = Page(sources("matching"))
    table = page.tables["Weights of features"]
    assert sorted(map(float, table.column("weight"))) == sorted(given.model.weights_.tolist())
    assert page.figure("score") == f"{100 * given.model.score(X, Y):.2f} %"
    marginals = given.model.predict_marginals(X[:1])[0]
    shown = page.tables["Probabilities of edges of example 0"].rows
    assert_allclose([[float(c) for c in row[1:]] for row in shown], marginals, atol=0.005)
    marked = [attrs for attrs in page.all("td") if attrs.get("class") == "marked"]
    assert len(marked) == 4 * 6


def test_mixture_errors(sources):
    given = case("mixture")
    Y, Z = given.data
    page = Page(sources("mixture"))
    assert page.figure("mean squared error") == number(-given.model.score(Z, Y, 0.6))
    assert len(page.all("img")) == 4 * 4


def test_curves_are_those_of_the_trace(sources):
    model = case("chain").model
    page = Page(sources("chain"))
    charts = [attrs for tag, attrs in page.tags if attrs.get("class") == "chart"]
    assert charts[0]["data-x"] == "iteration"
    assert f"{number(model.trace_[-1]['objective'], 5)}" in charts[0][
        "data-series"
    ].encode().decode("unicode_escape")


# -- what is asked ---------------------------------------------------------------------------


def test_unfitted_estimators_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(NotFittedError, match="this ChainCRF must be fitted first; call fit"):
        ff.ChainCRF().report(tmp_path / "fit.html")


@pytest.mark.parametrize(
    ("kind", "data", "options", "message"),
    [
        ("chain", (None, [["O"]]), {}, "Y must come with X"),
        ("chain", ([], []), {}, "X must hold at least one example"),
        ("chain", ([[{"word": "a"}]], [["O", "O"]]), {}, r"Y\[0\]"),
        ("grid", (np.zeros((1, 4, 4, 3)), np.zeros((1, 5, 4), dtype=int)), {}, r"Y\[0\]"),
        ("grid", (), {"label_names": ["a"]}, "label_names must be 3 names"),
        ("grid", (), {"feature_names": ["a"]}, "feature_names must be 3 names"),
        ("grid", (), {"n_examples": -1}, "n_examples must be"),
        ("ising", (np.zeros((2, 3)),), {}, "X must have 5 columns"),
        ("ising", (np.zeros((2, 5)), [0, 1]), {}, "Y must be None for IsingModel"),
        ("chain", (), {"feature_names": ["a"]}, "feature_names must be None for this model"),
        (
            "mixture",
            (np.zeros((2, 6, 6)), np.zeros((2, 3))),
            {},
            "Z must be finite numbers in the shape",
        ),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_written(kind, data, options, message, tmp_path):
    with pytest.raises(InvalidInputError, match=message):
        case(kind).model.report(tmp_path / "fit.html", *data, **options)
    assert list(tmp_path.iterdir()) == []


def test_files_are_replaced_as_a_whole(tmp_path):
    path = tmp_path / "fit.html"
    path.write_text("old")
    with pytest.raises(InvalidInputError):
        case("matching").model.report(path, [3])
    assert path.read_text() == "old"
    case("matching").model.report(str(path))
    assert [file.name for file in tmp_path.iterdir()] == ["fit.html"]
    assert path.read_text().endswith("</html>\n")


def test_number_of_examples(tmp_path):
    given = case("chain")
    given.model.report(tmp_path / "fit.html", *given.data, n_examples=2)
    page = Page((tmp_path / "fit.html").read_text())
    assert "Sequence 1" in page.text
    assert "Sequence 2" not in page.text
    given.model.report(tmp_path / "fit.html", *given.data, n_examples=0)
    page = Page((tmp_path / "fit.html").read_text())
    assert "Predictions" not in page.headings
    assert "Scores" in page.headings


def test_predictions_without_truth(tmp_path):
    for kind in ("chain", "grid", "graph", "matching", "mixture"):
        given = case(kind)
        given.model.report(tmp_path / "fit.html", given.data[0])
        page = Page((tmp_path / "fit.html").read_text())
        assert "Predictions" in page.headings
        assert "calibration error" not in page.text


def test_labels_that_training_did_not_have_are_counted(tmp_path):
    given = case("chain")
    X, Y = given.data
    other = [["NEW", *Y[0][1:]], *Y[1:]]
    given.model.report(tmp_path / "fit.html", X, other)
    page = Page((tmp_path / "fit.html").read_text())
    assert "1 labels that training did not have" in page.text
    assert "unknown label" in page.text


def test_inferences_that_do_not_converge_are_on_the_page(tmp_path):
    given = case("grid")
    objective = ff.Likelihood(ff.SumProduct(ff.Bethe(), max_iter=1, damping=0.9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        X, Y = given.data
        model = ff.GridCRF(objective, l2=1.0, max_iter=3).fit(X, Y)
    model.report(tmp_path / "fit.html", X, Y)  # no warning: they are errors in tests
    page = Page((tmp_path / "fit.html").read_text())
    assert "Not converged" in page.text
    assert "did not converge; their beliefs are the last ones reached" in page.text


def test_decoding_by_map_is_what_is_shown(tmp_path):
    X, Y = case("chain").data
    model = ff.ChainCRF("perceptron", max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, Y)
    model.report(tmp_path / "fit.html", X, Y)
    page = Page((tmp_path / "fit.html").read_text())
    assert page.figure("accuracy") == f"{100 * model.score(X, Y):.2f} %"


def test_several_sets_of_weights_have_their_boxes(tmp_path):
    X, Y = case("grid").data
    objective = ff.ProceduralLoss(n_sweeps=2, per_sweep_weights=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ff.GridCRF(objective, l2=1.0, max_iter=2).fit(X, Y)
    model.report(tmp_path / "fit.html", X, Y)
    page = Page((tmp_path / "fit.html").read_text())
    for block in model.weight_blocks_:
        assert block[1:] in page.text


def test_matrices_and_lists_of_attributes(tmp_path):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 3)) for _ in range(8)]
    Y = [(x[:, 0] > 0).astype(int).tolist() for x in X]
    model = ff.ChainCRF().fit(X, Y)
    model.report(tmp_path / "fit.html", X, Y, feature_names=["up", "down", "left"])
    assert "up / 1" in Page((tmp_path / "fit.html").read_text()).text
    X = [[["w[0]=dog", "pos[0]=NN"], ["w[0]=runs"]]] * 4
    ff.ChainCRF().fit(X, [["N", "V"]] * 4).report(tmp_path / "fit.html", X, [["N", "V"]] * 4)
    assert "dog" in Page((tmp_path / "fit.html").read_text()).text


def test_estimators_of_no_known_kind_have_the_general_report():
    model = SimpleNamespace(
        objective="likelihood", weights_=np.arange(6.0), status_="done.", converged_=False,
        n_iter_=3, trace_=[{"objective": 3.0, "unconverged": 0.5, "seconds": 0.1}] * 3,
        weight_blocks_={HOSTILE: np.arange(4.0).reshape(2, 2), "rest": np.array([4.0, -5.0])},
        get_params=lambda deep: {"l2": 1.0},
    )  # fmt: skip
    page = Page(report_page(Request(model)))
    assert page.headings == ["Learning curve", "Weights", "How to make it again"]
    assert [float(v) for v in page.tables["rest"].column("weight")] == [-5.0, 4.0]
    assert "Unconverged share" in page.text


def test_reports_can_be_written_in_threads(tmp_path):
    given = case("matching")
    paths = [tmp_path / f"{k}.html" for k in range(4)]
    threads = [threading.Thread(target=given.model.report, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(path.read_text().endswith("</html>\n") for path in paths)


# -- notebooks -------------------------------------------------------------------------------


def test_notebooks_show_the_status_after_a_fit():
    model = case("chain").model
    assert model.status_.rstrip(".") in model._repr_html_()
    assert model.status_.rstrip(".") in model._repr_mimebundle_()["text/html"]
    assert "fitted</b>" not in ff.ChainCRF()._repr_html_()


def test_notebooks_show_results_and_graphs():
    graph = ff.FactorGraph([2, 3], [(0, 1), (0,)])
    shown = graph._repr_html_()
    assert ">factors of arity 2<" in shown
    result = ff.Exact().run(graph, ff.Potentials(graph))
    assert f"{result.log_partition:.4g}" in result._repr_html_()
    assert result.status in result._repr_html_()
    best = ff.Map().run(graph, ff.Potentials(graph))
    assert "optimal" in best._repr_html_()
    for html in (shown, result._repr_html_(), best._repr_html_()):
        Page(html)
        assert "<script" not in html
