"""``fieldfit predict``, ``score`` and ``inspect``: what learned models say, and their mistakes."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from learning_files import (
    SENTENCES,
    graphs,
    images,
    matchings,
    rows_of,
    samples,
    write_alignment,
    write_archive,
    write_columns,
    write_crfsuite,
    write_graphs,
    write_rooms,
    write_table,
    write_training,
)
from numpy.testing import assert_allclose, assert_array_equal

from fieldfit.cli._evaluation import LabelCounts
from fieldfit.cli.kinds.registry import KINDS
from fieldfit.cli.main import main
from fieldfit.metrics import chunk_f1
from fieldfit.models.chain.chain_crf import ChainCRF
from fieldfit.models.chain.skip_chain_crf import SkipChainCRF
from fieldfit.models.grid_crf import GridCRF
from fieldfit.models.loading import load
from fieldfit.models.mixture_field import MixtureField
from fieldfit.models.pairwise.ising_model import IsingModel

NAMES = [kind.name for kind in KINDS]


def assert_one_error_line(captured, *parts):
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert "error: " in lines[0]
    assert captured.out == ""
    for part in parts:
        assert part in lines[0]


def strict_json(text):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def learn(tmp_path, capsys):
    """Write training data, fit a model to them, return the names of both files."""

    def run(kind, *options, train=None):
        train = write_training(kind, tmp_path) if train is None else train
        model = str(tmp_path / "model.ff")
        command = ["fit", kind, "--train", str(train), "--model", model, "--quiet"]
        assert main([*command, *options]) == 0
        capsys.readouterr()
        return model, train

    return run


def run_json(capsys, *arguments):
    assert main([*map(str, arguments), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return strict_json(captured.out)


# -- chains -------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [write_columns, write_crfsuite])
def test_labels_of_sequences(write, learn, tmp_path, capsys):
    model, train = learn("chain", "--l2", "0.01", train=write(tmp_path / "t"))
    assert main(["predict", "--model", model, train, "--quiet"]) == 0
    captured = capsys.readouterr()
    expected = ["".join(row[2] + "\n" for row in rows_of(sentence)) for sentence in SENTENCES]
    assert captured.out == "\n".join(expected)  # so little regularised that all is learned
    assert captured.err == ""


def test_columns_without_labels(learn, tmp_path, capsys):
    model, train = learn("chain")
    plain = write_columns(tmp_path / "plain.txt", with_labels=False)
    found = [
        run_json(capsys, "predict", "--model", model, name)["labels"] for name in (train, plain)
    ]
    assert found[0] == found[1]


def test_labels_in_the_first_column(learn, tmp_path, capsys):
    moved = tmp_path / "moved.txt"
    text = "\n".join("".join(f"{c} {a} {b}\n" for a, b, c in rows_of(s)) for s in SENTENCES)
    moved.write_text(text)
    model, _ = learn("chain", "--column", "1", train=str(moved))
    other, train = learn("chain")
    assert_array_equal(load(model).weights_, load(other).weights_)
    fields = run_json(capsys, "score", "--model", model, train)
    assert fields["accuracy"] > 0


@pytest.mark.parametrize("kind", ["chain", "skip-chain"])
def test_marginals_of_sequences(kind, learn, tmp_path, capsys):
    model, train = learn(kind)
    out = tmp_path / "out.txt"
    assert main(["predict", "--model", model, train, "--marginals", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"written to {out}" in captured.err
    fields = run_json(capsys, "predict", "--model", model, train, "--marginals")
    classes = fields["classes"]
    assert classes == ["B-AP", "B-NP", "B-VP", "I-NP", "O"]
    blocks = out.read_text().split("\n\n")
    assert len(blocks) == len(SENTENCES)
    for block, labels, marginals in zip(blocks, fields["labels"], fields["marginals"], strict=True):
        for line, label, beliefs in zip(block.split("\n"), labels, marginals, strict=False):
            first, *rest = line.split("\t")
            assert first == label
            assert [entry.rsplit(":", 1)[0] for entry in rest] == classes
            shown = [float(entry.rsplit(":", 1)[1]) for entry in rest]
            assert_allclose(shown, beliefs, rtol=1e-5)
            assert_allclose(sum(beliefs), 1.0, rtol=1e-9)
            assert classes[int(np.argmax(beliefs))] == label


def test_score_of_chunks(learn, tmp_path, capsys):
    model, _ = learn("chain")
    # what the model has never seen so: two chunks instead of one, a chunk in front
    others = [
        SENTENCES[0].replace("I-NP", "B-NP"),
        "ran VBD O|the DT B-VP|cat NN I-NP",
        SENTENCES[2],
    ]
    test = write_columns(tmp_path / "test.txt", others)
    fields = run_json(capsys, "score", "--model", model, test)
    given = [[row[2] for row in rows_of(sentence)] for sentence in others]
    predicted = run_json(capsys, "predict", "--model", model, test)["labels"]
    flat = list(zip(itertools.chain(*given), itertools.chain(*predicted), strict=True))
    assert fields["accuracy"] == sum(a == b for a, b in flat) / len(flat) < 1.0
    assert fields["chunks"]["f1"] == chunk_f1(given, predicted)
    assert [row["type"] for row in fields["chunk_types"]] == ["NP", "VP"]
    row = next(row for row in fields["labels"] if row["label"] == "B-NP")
    hits = flat.count(("B-NP", "B-NP"))
    assert row["precision"] == hits / sum(b == "B-NP" for _, b in flat)
    assert row["recall"] == hits / sum(a == "B-NP" for a, _ in flat)
    assert main(["score", "--model", model, test]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for part in ("accuracy", "chunk f1", "B-NP", "precision"):
        assert part in captured.out


def test_labels_that_are_no_chunks_have_no_chunk_table(learn, tmp_path, capsys):
    train = tmp_path / "t.txt"
    train.write_text("the DET\ndog NOUN\n\na DET\n")
    model, _ = learn("chain", train=str(train))
    assert "chunks" not in run_json(capsys, "score", "--model", model, train)


def test_labels_that_were_never_seen_are_errors_with_a_warning(learn, tmp_path, capsys):
    model, _ = learn("chain", "--l2", "0.01")
    test = tmp_path / "test.txt"
    test.write_text("the DT B-NP\ncat NN I-NP\n\nran VBD B-VP\n. . B-XY\n")
    assert main(["score", "--model", model, str(test)]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(f"warning: {test}, line 5: the label 'B-XY' was not seen")
    assert len(captured.err.splitlines()) == 1
    assert "accuracy         0.7500" in captured.out


def test_missing_labels_do_not_count(learn, tmp_path, capsys):
    model, _ = learn("chain", "--l2", "0.01", train=write_crfsuite(tmp_path / "t"))
    test = tmp_path / "test.crf"
    test.write_text("B-NP\tw[0]=the\tpos=DT\tbias\n\tw[0]=cat\tpos=NN\tbias\n")
    assert run_json(capsys, "score", "--model", model, test)["n_labels"] == 1
    test.write_text("\tw[0]=the\tpos=DT\tbias\n")
    assert main(["score", "--model", model, str(test)]) == 2
    assert_one_error_line(capsys.readouterr(), "test.crf, line 1", "label to score against")


def test_models_of_programs_take_files_with_attributes(tmp_path, capsys):
    train = write_crfsuite(tmp_path / "t.crf")
    X, Y = [[{"w[0]=the": 1.0}, {"w[0]=dog": 1.0}]], [["B-NP", "I-NP"]]
    ChainCRF(l2=0.1).fit(X, Y).save(tmp_path / "m.ff")
    assert len(run_json(capsys, "predict", "--model", tmp_path / "m.ff", train)["labels"]) == 4
    linked = [[{**token, "key": 1} for token in X[0]]]
    SkipChainCRF(skip_edges="key", l2=0.1).fit(linked, Y).save(tmp_path / "s.ff")
    assert main(["predict", "--model", str(tmp_path / "s.ff"), train]) == 2
    assert_one_error_line(capsys.readouterr(), "skip-chain", "which tokens are linked")


# -- grids --------------------------------------------------------------------------------


def test_archives_of_labels(learn, tmp_path, capsys):
    model, _ = learn("grid")
    x, _ = images(seed=1)
    np.savez(tmp_path / "test.npz", X=x)
    out = tmp_path / "out.npz"
    command = ["predict", "--model", model, str(tmp_path / "test.npz"), "--marginals"]
    assert main([*command, "--out", str(out)]) == 0
    expected = load(model)
    with np.load(out) as archive:
        assert_array_equal(archive["y"], expected.predict(x))
        assert_array_equal(archive["marginals"], expected.predict_marginals(x))
    capsys.readouterr()
    fields = run_json(capsys, *command)
    assert_array_equal(fields["labels"], expected.predict(x))
    assert_allclose(fields["marginals"], expected.predict_marginals(x), rtol=1e-12)
    fields = run_json(capsys, *command, "--out", out)
    assert fields["out"] == str(out)
    assert "labels" not in fields


def test_folders_of_pictures(tmp_path, capsys):
    image_module = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, shape in (("b", (4, 5)), ("a", (3, 6))):
        labels = np.repeat(rng.integers(0, 2, size=(shape[0], 1)), shape[1], axis=1)
        pixels = np.clip(80 + 90 * labels + 40 * rng.normal(size=shape), 0, 255)
        for folder, array in (("images", pixels), ("labels", labels)):
            (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
            picture = image_module.fromarray(array.astype(np.uint8))
            picture.save(tmp_path / "data" / folder / f"{name}.png")
    data, model, out = str(tmp_path / "data"), str(tmp_path / "m.ff"), tmp_path / "out"
    assert main(["fit", "grid", "--train", data, "--model", model, "--l2", "0.1"]) == 0
    command = ["predict", "--model", model, data, "--out", str(out), "--marginals"]
    assert main(command) == 0
    assert sorted(file.name for file in out.iterdir()) == ["a.npz", "a.png", "b.npz", "b.png"]
    capsys.readouterr()
    expected = run_json(capsys, "predict", "--model", model, data)["labels"]
    for name, labels in zip("ab", expected, strict=True):
        with image_module.open(out / f"{name}.png") as picture:
            assert_array_equal(np.asarray(picture), labels)
        with np.load(out / f"{name}.npz") as archive:
            assert_array_equal(archive["marginals"][0].argmax(axis=-1), labels)
    # pictures of two sizes are no archive, and one folder cannot hold two files of one name
    assert main(["predict", "--model", model, data, "--out", str(tmp_path / "o.npz")]) == 2
    assert_one_error_line(capsys.readouterr(), "one shape")
    assert main(["predict", "--model", model, data, data, "--out", str(out)]) == 2
    assert_one_error_line(capsys.readouterr(), "a.png twice")


def test_score_of_pixels(learn, tmp_path, capsys):
    model, train = learn("grid", "--l2", "1")
    x, y = images()
    fields = run_json(capsys, "score", "--model", model, train)
    crf = load(model)
    assert fields["accuracy"] == crf.score(x, y) < 1.0
    assert fields["n_labels"] == (y >= 0).sum()
    found, known = np.array(crf.predict(x)), y >= 0
    for label, row in enumerate(fields["labels"]):
        both = ((found == label) & (y == label))[known].sum()
        either = ((found == label) | (y == label))[known].sum()
        assert row["iou"] == both / either
    assert fields["mean_iou"] == np.mean([row["iou"] for row in fields["labels"]])
    assert main(["score", "--model", model, train]) == 0
    assert "mean IoU" in capsys.readouterr().out


def test_mistakes_with_grids(learn, tmp_path, capsys):
    model, train = learn("grid")
    assert main(["predict", "--model", model, train]) == 2
    assert_one_error_line(capsys.readouterr(), "--out must be given")
    assert main(["predict", "--model", model, train, "--out", train]) == 2
    assert_one_error_line(capsys.readouterr(), "--out must not be a file that is read")
    assert main(["predict", "--model", model, train, "--out", "no/such/o.npz"]) == 2
    assert_one_error_line(capsys.readouterr(), "--out must lie in a folder that exists")
    x, y = images()
    np.savez(tmp_path / "high.npz", x=x, y=y + 2)
    assert main(["score", "--model", model, str(tmp_path / "high.npz")]) == 2
    assert_one_error_line(capsys.readouterr(), "high.npz, image 0", "0..1", "got 3")
    np.savez(tmp_path / "none.npz", x=x, y=np.full_like(y, -1))
    assert main(["score", "--model", model, str(tmp_path / "none.npz")]) == 2
    assert_one_error_line(capsys.readouterr(), "none.npz, image 0", "label to score against")
    np.savez(tmp_path / "wide.npz", x=np.stack([x, x], axis=-1), y=y)
    for command in ("score", "predict"):
        options = ["--out", str(tmp_path / "o.npz")] if command == "predict" else []
        assert main([command, "--model", model, str(tmp_path / "wide.npz"), *options]) == 2
        assert_one_error_line(capsys.readouterr(), "wide.npz, image 0", "1 feature", "got 2")
    assert main(["score", "--model", model, write_columns(tmp_path / "text.txt")]) == 2
    assert_one_error_line(capsys.readouterr(), "text.txt", "not a complete .npz archive")


# -- graphs -------------------------------------------------------------------------------


def test_labels_of_graphs(learn, tmp_path, capsys):
    model, train = learn("graph")
    unlabelled = [{k: v for k, v in g.items() if k != "labels"} for g in graphs()]
    test = write_graphs(tmp_path / "test.jsonl", unlabelled)
    assert main(["predict", "--model", model, test, "--marginals"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    X = [(np.array(g["nodes"]), g["edges"]) for g in graphs()]
    crf = load(model)
    assert_array_equal([line["labels"] for line in lines], crf.predict(X))
    assert_allclose([line["marginals"] for line in lines], crf.predict_marginals(X), rtol=1e-12)
    fields = run_json(capsys, "score", "--model", model, train)
    assert fields["accuracy"] == crf.score(X, [g["labels"] for g in graphs()])


# -- samples ------------------------------------------------------------------------------


def enumerated(model):
    """All configurations of a small model and their probabilities."""
    graph, potentials = model.to_model()
    labels = np.array(list(itertools.product(*map(range, graph.cardinalities.tolist()))))
    scores = np.array([potentials.score(y) for y in labels])
    return labels, np.exp(scores - np.logaddexp.reduce(scores))


@pytest.mark.parametrize("kind", ["ising", "potts"])
def test_log_likelihood_of_samples(kind, learn, tmp_path, capsys):
    values = samples(n_labels=2 if kind == "ising" else 3)
    model, train = learn(kind, train=write_table(tmp_path / "t.csv", values))
    fields = run_json(capsys, "predict", "--model", model, train)
    labels, probabilities = enumerated(load(model))
    expected = [
        np.log(probabilities[((labels == row) | np.isnan(row)).all(axis=1)].sum()) for row in values
    ]
    assert fields["exact"] is True
    assert_allclose(fields["lower"], expected, rtol=1e-9)
    assert fields["upper"] == fields["lower"]
    assert main(["predict", "--model", model, train, "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sample\tlower\tupper"
    assert_allclose([float(line.split("\t")[1]) for line in lines[1:]], expected, rtol=1e-6)

    fields = run_json(capsys, "score", "--model", model, train)
    assert_allclose(fields["log_likelihood_lower"], np.mean(expected), rtol=1e-9)
    assert fields["exact"] is True
    assert_allclose(fields["log_pseudo_likelihood"], load(model).score(values), rtol=1e-9)


def test_bounds_where_exact_is_out_of_reach(learn, tmp_path, capsys, monkeypatch):
    from fieldfit.errors import TooLargeError
    from fieldfit.inference import likelihood_bounds as bounds_module

    model, train = learn("ising")
    exact = run_json(capsys, "predict", "--model", model, train)
    average = run_json(capsys, "score", "--model", model, train)

    def refuse(*_, **__):
        raise TooLargeError("too large")

    monkeypatch.setattr(bounds_module.Exact, "run_batch", refuse)
    monkeypatch.setattr(IsingModel, "log_likelihood", refuse)
    bounds = run_json(capsys, "predict", "--model", model, train)
    assert bounds["exact"] is False
    assert np.all(np.array(bounds["lower"]) <= np.array(exact["lower"]) + 1e-9)
    assert np.all(np.array(bounds["upper"]) >= np.array(exact["lower"]) - 1e-9)
    fields = run_json(capsys, "score", "--model", model, train)
    middle = average["log_likelihood_lower"]
    assert fields["log_likelihood_lower"] <= middle <= fields["log_likelihood_upper"]
    assert main(["score", "--model", model, train]) == 0
    assert "between" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["ising", "potts"])
def test_missing_values(kind, learn, tmp_path, capsys):
    n_labels = 2 if kind == "ising" else 3
    values = samples(n_labels=n_labels)
    model, _ = learn(kind, train=write_table(tmp_path / "t.csv", values))
    asked = np.array([[1, np.nan, 0, np.nan], [0, 1, 0, 1], [np.nan, 0, 1, 1]])
    test = write_table(tmp_path / "asked.csv", asked)
    fields = run_json(capsys, "predict", "--model", model, test, "--marginals")
    labels, probabilities = enumerated(load(model))
    names = ["first", "second", "third", "fourth"]
    places = [(int(row), int(column)) for row, column in np.argwhere(np.isnan(asked))]
    assert [(e["sample"], e["column"]) for e in fields["missing"]] == [
        (row + 1, names[column]) for row, column in places
    ]
    for (row, column), entry in zip(places, fields["missing"], strict=True):
        fits = ((labels == asked[row]) | np.isnan(asked[row])).all(axis=1)
        weights = [probabilities[fits & (labels[:, column] == k)].sum() for k in range(n_labels)]
        expected = np.array(weights) / np.sum(weights)
        assert list(entry["marginals"]) == [str(k) for k in range(n_labels)]
        assert_allclose(list(entry["marginals"].values()), expected, rtol=1e-9)
    assert main(["predict", "--model", model, test, "--marginals", "--quiet"]) == 0
    first = capsys.readouterr().out.splitlines()[0].split("\t")
    assert first[:2] == ["1", "second"]
    assert first[2].startswith("0:")


def test_surrogates_predict_with_themselves(learn, tmp_path, capsys):
    model, _ = learn("ising", "--objective", "trw")
    test = write_table(tmp_path / "asked.csv", np.array([[np.nan] * 4]))
    found = run_json(capsys, "predict", "--model", model, test, "--marginals")["missing"]
    fitted = load(model)
    beliefs = fitted._objective().inference.run(*fitted.to_model()).beliefs
    for k, entry in enumerate(found):
        assert_allclose(list(entry["marginals"].values()), beliefs.unary(k), rtol=0, atol=1e-6)


def test_columns_go_by_name(learn, tmp_path, capsys):
    values = samples()
    model, train = learn("ising", "--columns", "first,second,third")
    expected = run_json(capsys, "predict", "--model", model, train)["lower"]
    turned = write_table(tmp_path / "turned.csv", values[:, [2, 0, 1]], names="third,first,second")
    assert run_json(capsys, "predict", "--model", model, turned)["lower"] == expected
    bare = write_table(tmp_path / "bare.csv", values[:, :3], names="")
    assert run_json(capsys, "predict", "--model", model, bare)["lower"] == expected
    other = write_table(tmp_path / "other.csv", values[:, :3], names="first,second,3rd")
    assert main(["predict", "--model", model, other]) == 2
    assert_one_error_line(capsys.readouterr(), "other.csv", "'third'", "first, second, 3rd")
    short = write_table(tmp_path / "short.csv", values[:, :2], names="")
    assert main(["predict", "--model", model, short]) == 2
    assert_one_error_line(capsys.readouterr(), "short.csv", "'first'")


def test_mistakes_with_samples(learn, tmp_path, capsys):
    model, _ = learn("potts", "--alphabet=-ACD")
    test = tmp_path / "test.fasta"
    test.write_text(">a\nACDA\n")
    assert main(["score", "--model", model, str(test)]) == 2
    assert_one_error_line(capsys.readouterr(), "test.fasta", "5 letters", "found 4")
    assert main(["score", "--model", model, write_table(tmp_path / "t.csv")]) == 2
    assert_one_error_line(capsys.readouterr(), "t.csv", "alignment", "found a table")
    test.write_text(">a\nACDAX\n")
    assert main(["score", "--model", model, str(test)]) == 2
    assert_one_error_line(capsys.readouterr(), "test.fasta, line 1", "'X'")
    model, _ = learn("ising")
    test = write_table(tmp_path / "test.csv", samples(n_labels=3))
    for command in ("score", "predict"):
        assert main([command, "--model", model, test]) == 2
        assert_one_error_line(capsys.readouterr(), "test.csv, sample ", "column '", "got 2")


def test_models_of_programs_take_tables(tmp_path, capsys):
    IsingModel().fit(samples()[:, :2]).save(tmp_path / "m.ff")
    test = write_table(tmp_path / "t.csv", samples()[:, :3], names="")
    assert main(["predict", "--model", str(tmp_path / "m.ff"), test]) == 2
    assert_one_error_line(capsys.readouterr(), "t.csv, sample 1", "2 columns", "got 3")
    test = write_table(tmp_path / "t.csv", samples()[:, :2], names="a,b")
    assert len(run_json(capsys, "predict", "--model", tmp_path / "m.ff", test)["lower"]) == 60


# -- matchings ----------------------------------------------------------------------------


def test_predicted_matchings(learn, tmp_path, capsys):
    model, _ = learn("matching", train=write_rooms(tmp_path / "t.csv"))
    X, _ = matchings()
    crf = load(model)
    test = write_rooms(tmp_path / "test.csv", with_labels=False)
    assert main(["predict", "--model", model, test, "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "example,row,column"
    expected = [
        f"{example},r{i},c{j}"
        for example, partners in enumerate(crf.predict(X))
        for i, j in enumerate(partners)
    ]
    assert lines[1:] == expected
    fields = run_json(capsys, "predict", "--model", model, test, "--marginals")
    assert_allclose(fields["marginals"], crf.predict_marginals(X), rtol=1e-12)
    assert fields["matched"][0] == [[i, int(j)] for i, j in enumerate(crf.predict(X)[0])]
    out = tmp_path / "out.csv"
    command = ["predict", "--model", model, test, "--marginals", "--out", str(out)]
    assert main(command) == 0
    header, first, *_ = out.read_text().splitlines()
    assert header == "example,row,column,matched,probability"
    assert float(first.split(",")[-1]) == pytest.approx(fields["marginals"][0][0][0], rel=1e-5)


def test_score_of_matchings(learn, tmp_path, capsys):
    model, train = learn("matching")
    X, Y = matchings()
    crf = load(model)
    fields = run_json(capsys, "score", "--model", model, train)
    assert fields["accuracy"] == fields["precision"] == fields["recall"] == crf.score(X, Y)
    assert fields["exact"] is True
    assert_allclose(fields["log_likelihood_lower"], crf.log_likelihood(X, Y).mean(), rtol=1e-12)
    assert main(["score", "--model", model, train]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_score_of_matchings_with_several_partners(learn, tmp_path, capsys):
    X, Y = matchings()
    matched = np.eye(4, dtype=int)[Y]
    np.savez(tmp_path / "t.npz", features=X, matched=matched)
    model, train = learn("matching", "--capacity", "2", "--not-perfect", train=tmp_path / "t.npz")
    fields = run_json(capsys, "score", "--model", model, train)
    crf = load(model)
    assert fields["accuracy"] == crf.score(X, matched)
    assert fields["exact"] is False
    assert fields["log_likelihood_lower"] <= fields["log_likelihood_upper"] == 0.0
    found = sum(int(one.sum()) for one in crf.predict(X))
    assert fields["n_predicted"] == found
    assert main(["score", "--model", model, str(train)]) == 0
    assert "between" in capsys.readouterr().out


def test_features_of_matchings_go_by_name(learn, tmp_path, capsys):
    model, train = learn("matching", train=write_rooms(tmp_path / "t.csv"))
    rows = [line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines()]
    turned = tmp_path / "turned.csv"
    turned.write_text("".join(",".join(row[::-1]) + "\n" for row in rows))
    first, second = (run_json(capsys, "score", "--model", model, f) for f in (train, turned))
    assert first["accuracy"] == second["accuracy"]
    assert run_json(capsys, "inspect", model)["strongest"]["strongest weights"][0]["of"] == "first"
    other = tmp_path / "other.csv"
    other.write_text("example,row,column,matched,fourth\n0,a,b,1,1\n")
    assert main(["score", "--model", model, str(other)]) == 2
    assert_one_error_line(capsys.readouterr(), "other.csv", "first, second, third", "fourth")


# -- inspect ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NAMES)
def test_inspect(kind, learn, capsys):
    model, train = learn(kind, "--l2", "1")
    assert main(["inspect", model]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for part in (kind, "objective", "l2=1.0", "weights", train, "yes, ", "strongest"):
        assert part in captured.out
    fields = run_json(capsys, "inspect", model, "--top", 3)
    fitted = load(model)
    assert fields["kind"] == kind
    assert fields["n_weights"] == len(fitted.weights_)
    assert fields["trace"]["objective_last"] == fitted.trace_[-1]["objective"]
    assert fields["trace"]["n_rows"] == fields["n_iter"] == fitted.n_iter_
    assert fields["options"]["l2"] == 1.0
    tables = dict(fields["strongest"])
    if kind == "ising":
        assert len(tables.pop("thresholds")) == fitted.n_features_in_  # never cut
    assert all(len(rows) == 3 for rows in tables.values())
    assert main(["inspect", model, "--top", "2"]) == 0
    assert re.search(r"^strongest \w+, 2 of \d+", capsys.readouterr().out, re.MULTILINE)
    assert main(["inspect", model, "--top", "0"]) == 0
    assert "strongest" not in capsys.readouterr().out


def test_strongest_weights_of_a_chain(learn, capsys):
    model, _ = learn("chain")
    fields = run_json(capsys, "inspect", model, "--top", 5)
    rows = fields["strongest"]["strongest weights"]
    assert [(row["weight"], row["of"]) for row in rows] == load(model).top_weights(5)
    assert fields["labels"] == ["B-AP", "B-NP", "B-VP", "I-NP", "O"]


@pytest.mark.parametrize("pairwise", ["full", "symmetric", "potts", "potts-labels"])
def test_weights_of_a_grid_have_the_right_names(pairwise, learn, capsys):
    model, _ = learn("grid", "--pairwise", pairwise, "--edge-features", "--n-labels", "3")
    fields = run_json(capsys, "inspect", model, "--top", 1000)
    rows = fields["strongest"]["strongest weights"]
    blocks = load(model).weight_blocks_
    named = {row["of"]: row["weight"] for row in rows}
    assert len(named) == len(rows) == fields["n_weights"]
    assert named["unary feature 0 / label 1"] == blocks["unary"][0, 1]
    assert named["intercept label 2"] == blocks["intercept"][2]
    assert named == {what: weight for weight, what in load(model).top_weights(1000)}
    vertical = blocks["vertical"].reshape(-1)
    features = blocks["horizontal_features"].reshape(-1)
    entry, place = {
        "full": ("label 2 - label 1", 7),
        "symmetric": ("label 1 - label 2", 4),
        "potts": ("equal labels", 0),
        "potts-labels": ("label 2 - label 2", 2),
    }[pairwise]
    assert named[f"vertical {entry}"] == vertical[place]
    assert named[f"horizontal feature 0 / {entry}"] == features[place]


def test_couplings_have_standard_errors_if_they_are_stored(learn, capsys):
    model, _ = learn("ising")
    fitted = load(model)
    rows = run_json(capsys, "inspect", model)["strongest"]["strongest couplings"]
    assert rows[0]["coupling"] == "first - second"
    assert rows[0]["estimate"] == fitted.couplings_[0, 1]
    assert rows[0]["error"] == fitted.coupling_errors_[0, 1]
    model, _ = learn("ising", "--l1", "0.1")
    rows = run_json(capsys, "inspect", model)["strongest"]["strongest couplings"]
    assert "error" not in rows[0]


def test_numbered_columns_keep_their_numbers(learn, tmp_path, capsys):
    values = samples()[:, :2]
    lines = [",".join("NA" if np.isnan(v) else f"{v:.0f}" for v in row) for row in values]
    train = tmp_path / "t.csv"
    train.write_text("\n".join(lines) + "\n")
    model, _ = learn("ising", "--columns", "1,0", train=str(train))
    found = run_json(capsys, "score", "--model", model, train)["log_likelihood_lower"]
    assert_allclose(found, load(model).log_likelihood(values[:, ::-1]) / len(values))


def test_the_network_as_a_list_of_edges(learn, tmp_path, capsys):
    model, _ = learn("ising")
    out = tmp_path / "edges.csv"
    assert main(["inspect", model, "--edges", str(out)]) == 0
    rows = [line.split(",") for line in out.read_text().splitlines()]
    assert rows[0] == ["source", "target", "weight", "standard_error"]
    expected = load(model).edge_list()
    assert [(a, b, float(w), float(e)) for a, b, w, e in rows[1:]] == [tuple(e) for e in expected]
    model, _ = learn("ising", "--l1", "0.1")
    assert main(["inspect", model, "--edges", str(out), "--json"]) == 0
    assert out.read_text().startswith("source,target,weight\n")
    model, _ = learn("chain")
    capsys.readouterr()
    assert main(["inspect", model, "--edges", str(out)]) == 2
    assert_one_error_line(capsys.readouterr(), "--edges", "ising or potts", "ChainCRF")
    assert main(["inspect", model, "--edges", model]) == 2
    assert_one_error_line(capsys.readouterr(), "--edges", model)


def test_contacts_are_counted_from_1(learn, tmp_path, capsys):
    model, _ = learn("potts")
    assert main(["inspect", model]) == 0
    is_alignment = load(model).notes_["reader"]["alphabet"] is not None
    assert ("columns of the alignment, the first is 1" in capsys.readouterr().out) == is_alignment
    model, _ = learn("potts", "--alphabet=-ACD", train=write_alignment(tmp_path / "t.fasta"))
    assert main(["inspect", model]) == 0
    assert "columns of the alignment, the first is 1" in capsys.readouterr().out


def test_inspect_tells_that_a_model_did_not_converge(tmp_path, capsys):
    train, model = write_archive(tmp_path / "t.npz"), str(tmp_path / "m.ff")
    command = ["fit", "grid", "--train", train, "--model", model, "--quiet"]
    assert main([*command, "--max-iter", "1", "--validation", train]) == 0
    capsys.readouterr()
    assert main(["inspect", model]) == 0
    out = capsys.readouterr().out
    assert "NO, stopped at max_iter=1" in out
    assert "validation" in out


def test_inspect_of_a_model_with_an_objective_object(tmp_path, capsys):
    from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

    GridCRF(PseudoLikelihood(), l2=0.1).fit(*images()).save(tmp_path / "m.ff")
    assert run_json(capsys, "inspect", tmp_path / "m.ff")["objective"].startswith("PseudoLik")


# -- model files --------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["predict", "score", "inspect"])
def test_bad_model_files(command, learn, tmp_path, capsys):
    _, train = learn("ising")
    good = (tmp_path / "model.ff").read_bytes()
    bad = tmp_path / "bad.ff"

    def run():
        rest = [str(bad)] if command == "inspect" else ["--model", str(bad), train]
        assert main([command, *rest]) == 2
        return capsys.readouterr()

    assert_one_error_line(run(), f"{bad}: No such file")
    for content in (b"", b"text", good[:-1], good[:100], good[:200] + b"!" + good[201:]):
        bad.write_bytes(content)
        assert_one_error_line(run(), str(bad), "damaged")
    MixtureField("bethe").fit(np.array([[0, 1], [1, 0]]), [[0, 1]]).save(bad)
    assert_one_error_line(run(), str(bad), "MixtureField")


def test_missing_and_empty_data(learn, tmp_path, capsys):
    model, _ = learn("chain")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    for command in ("predict", "score"):
        assert main([command, "--model", model, "none.txt"]) == 2
        assert_one_error_line(capsys.readouterr(), "none.txt: No such file")
        assert main([command, "--model", model, str(empty)]) == 2
        assert_one_error_line(capsys.readouterr(), "empty.txt: the file is empty")
        assert main([command, "--model", model]) == 2
        assert_one_error_line(capsys.readouterr(), "required")


def test_standard_input(learn, tmp_path, capsys, monkeypatch):
    model, train = learn("chain")
    with open(train, "rb") as file:
        data = file.read()
    expected = run_json(capsys, "predict", "--model", model, train)["labels"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert run_json(capsys, "predict", "--model", model, "-")["labels"] == expected
    bad = SimpleNamespace(buffer=io.BytesIO(b"a b c d\n"))
    monkeypatch.setattr(sys, "stdin", bad)
    assert main(["predict", "--model", model, "-"]) == 2
    assert_one_error_line(capsys.readouterr(), "standard input", "expected 2 or 3 columns")


def test_predictions_that_did_not_converge_warn(learn, tmp_path, capsys, monkeypatch):
    from fieldfit.errors import ConvergenceWarning

    model, train = learn("grid")
    predict = GridCRF.predict

    def warned(self, X):
        import warnings

        warnings.warn("GridCRF: did not converge", ConvergenceWarning, stacklevel=2)
        return predict(self, X)

    monkeypatch.setattr(GridCRF, "predict", warned)
    for command in ("score", "predict"):
        assert main([command, "--model", model, train, "--json"]) == 0
        assert capsys.readouterr().err == "warning: GridCRF: did not converge\n"


@pytest.mark.parametrize("command", ["predict", "score", "inspect"])
def test_help(command, capsys):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"fieldfit {command} " in text
    assert "examples:" in text
    assert "--json" in text


# -- counts -------------------------------------------------------------------------------


def test_counts_of_labels_without_meaning_are_left_out():
    counts = LabelCounts.of(np.array([0, 0, -1, 1]), np.array([0, 1, 1, 1]), ["a", "b", "c"])
    assert counts.n_labels == 3
    assert counts.accuracy == 2 / 3
    rows = {row["label"]: row for row in counts.rows()}
    assert (rows["a"]["precision"], rows["a"]["recall"]) == (1.0, 0.5)
    assert np.isnan(rows["c"]["f1"])
    assert counts.mean_iou == 0.5
    assert "c" not in [line.split()[0] for line in counts.table().splitlines()]


def test_letters_are_shown_as_letters(learn, tmp_path, capsys):
    train = write_alignment(tmp_path / "t.fasta")
    model, _ = learn("potts", "--alphabet=-ACD", train=train)
    kind = next(kind for kind in KINDS if kind.name == "potts")
    assert kind.value_names(load(model)) == ["-", "A", "C", "D"]
