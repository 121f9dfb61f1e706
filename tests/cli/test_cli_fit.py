"""``fieldfit fit``: models of every kind from files, and one clear line for every mistake."""

from __future__ import annotations

import gzip
import inspect
import io
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from learning_files import (
    SENTENCES,
    WRITERS,
    graphs,
    images,
    matchings,
    samples,
    write_alignment,
    write_archive,
    write_columns,
    write_crfsuite,
    write_graphs,
    write_matchings,
    write_rooms,
    write_table,
    write_training,
)
from numpy.testing import assert_array_equal

from fieldfit._registry import OBJECTIVES, find
from fieldfit.cli import fit as fit_command
from fieldfit.cli.kinds.registry import KINDS
from fieldfit.cli.kinds.sequence_kinds import detect_format
from fieldfit.cli.kinds.token_features import token_attributes
from fieldfit.cli.main import main
from fieldfit.io.samples import read_fasta
from fieldfit.io.sequences import read_crfsuite
from fieldfit.learners.problem import TemplateProblem
from fieldfit.learners.registry import LEARNERS
from fieldfit.models.chain.chain_crf import ChainCRF
from fieldfit.models.graphs.graph_crf import GraphCRF
from fieldfit.models.grid_crf import GridCRF
from fieldfit.models.loading import load
from fieldfit.models.matching_crf import MatchingCRF
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.potts_model import PottsModel

NAMES = [kind.name for kind in KINDS]
EDGES = "example,row,column,matched,f\n"


def fit(kind, train, model, *options):
    files = [train] if isinstance(train, str) else train
    return main(["fit", kind, "--train", *files, "--model", str(model), *map(str, options)])


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


# -- what is learned ----------------------------------------------------------------------


def test_grid_as_the_estimator_learns_it(tmp_path, capsys):
    assert fit("grid", write_archive(tmp_path / "t.npz"), tmp_path / "m.ff", "--l2", 0.5) == 0
    expected = GridCRF(l2=0.5, random_state=0).fit(*images())
    assert_array_equal(load(tmp_path / "m.ff").weights_, expected.weights_)


def test_graph_as_the_estimator_learns_it(tmp_path, capsys):
    train = write_graphs(tmp_path / "t.jsonl")
    assert fit("graph", train, tmp_path / "m.ff", "--objective", "bethe", "--l2", 0.5) == 0
    X = [(np.array(g["nodes"]), g["edges"]) for g in graphs()]
    expected = GraphCRF("bethe", l2=0.5, random_state=0).fit(X, [g["labels"] for g in graphs()])
    assert_array_equal(load(tmp_path / "m.ff").weights_, expected.weights_)


def test_chain_as_the_estimator_learns_it(tmp_path, capsys):
    train = write_crfsuite(tmp_path / "t.crf")
    assert fit("chain", train, tmp_path / "m.ff", "--l2", 0.5, "--all-possible-transitions") == 0
    expected = ChainCRF(l2=0.5, all_possible_transitions=True).fit(*read_crfsuite(train))
    assert_array_equal(load(tmp_path / "m.ff").weights_, expected.weights_)
    assert "(crfsuite format)" in capsys.readouterr().out


def test_ising_as_the_estimator_learns_it(tmp_path, capsys):
    values = samples(n_labels=6)
    train = write_table(tmp_path / "t.csv", values)
    options = ["--threshold", 3, "--drop", "fourth", "--l2", 0.5]
    assert fit("ising", train, tmp_path / "m.ff", *options) == 0
    binary = np.where(np.isnan(values), np.nan, values >= 3)[:, :3]
    expected = IsingModel(l2=0.5).fit(binary)
    model = load(tmp_path / "m.ff")
    assert_array_equal(model.weights_, expected.weights_)
    assert_array_equal(model.standard_errors_, expected.standard_errors_)
    assert list(model.feature_names_in_) == ["first", "second", "third"]


def test_ising_with_chosen_columns_and_edges(tmp_path, capsys):
    train = write_table(tmp_path / "t.csv")
    edges = tmp_path / "edges.csv"
    edges.write_text("fourth,first\nfirst,second\n\n")
    options = ["--columns", "second,first,fourth", "--edges", edges]
    assert fit("ising", train, tmp_path / "m.ff", *options) == 0
    model = load(tmp_path / "m.ff")
    expected = IsingModel().fit(samples()[:, [1, 0, 3]], edges=[[2, 1], [1, 0]])
    assert_array_equal(model.weights_, expected.weights_)


def test_columns_of_text_that_are_not_used(tmp_path, capsys):
    write_table(tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    named = ["who," + lines[0], *(f"person {k},{line}" for k, line in enumerate(lines[1:]))]
    train = tmp_path / "named.csv"
    train.write_text("\n".join(named) + "\n")
    expected = IsingModel().fit(samples()[:, :3])
    for options in (
        ["--drop", "who,fourth"],
        ["--drop", "who", "fourth"],
        ["--columns", "first,second", "third"],
    ):
        assert fit("ising", str(train), tmp_path / "m.ff", *options) == 0
        assert_array_equal(load(tmp_path / "m.ff").weights_, expected.weights_)
        assert main(["score", "--model", str(tmp_path / "m.ff"), str(train)]) == 0
    capsys.readouterr()
    assert fit("ising", str(train), tmp_path / "m.ff") == 2
    assert_one_error_line(capsys.readouterr(), "line 2", "'who'", "'person 0'", "dropped")


def test_the_same_alignment_in_other_forms(tmp_path, capsys):
    plain = write_alignment(tmp_path / "t.fasta")
    found = read_fasta(plain, "-ACD")
    letters = ["".join("-ACD"[k] for k in row) for row in found.labels]
    a3m, stockholm = tmp_path / "t.a3m", tmp_path / "t.sto"
    with_insertions = [f"{x[:2]}{'gh'[: k % 3]}{x[2:]}" for k, x in enumerate(letters)]
    a3m.write_text("".join(f">{k}\n{x}\n" for k, x in enumerate(with_insertions)))
    rows = [f"{k} {x[:3]}" for k, x in enumerate(letters)]
    rows += [f"{k} {x[3:]}" for k, x in enumerate(letters)]
    stockholm.write_text("# STOCKHOLM 1.0\n#=GF ID t\n" + "\n".join(rows) + "\n//\n")
    weights = []
    for train in (plain, str(a3m), str(stockholm)):
        assert fit("potts", train, tmp_path / "m.ff", "--alphabet=-ACD") == 0
        weights.append(load(tmp_path / "m.ff").weights_)
    assert_array_equal(weights[0], weights[1])
    assert_array_equal(weights[0], weights[2])


def test_potts_with_contacts(tmp_path, capsys):
    train = write_alignment(tmp_path / "t.fasta")
    contacts = tmp_path / "contacts.csv"
    options = ["--alphabet=-ACD", "--identity", 0.8, "--contacts", contacts]
    assert fit("potts", train, tmp_path / "m.ff", *options) == 0
    labels = read_fasta(train, "-ACD").labels
    expected = PottsModel(n_labels=4, identity=0.8).fit(labels, sample_weight="identity")
    model = load(tmp_path / "m.ff")
    assert_array_equal(model.weights_, expected.weights_)
    lines = contacts.read_text().splitlines()
    assert lines[0] == "first,second,score,norm"
    assert lines[1].startswith("1,5,")  # the columns that agree, counted from 1
    assert len(lines) == 1 + 10
    assert str(contacts) in capsys.readouterr().out


def test_matchings_as_the_estimator_learns_them(tmp_path, capsys):
    X, Y = matchings()
    expected = MatchingCRF(l2=0.5).fit(X, Y)
    archive = write_matchings(tmp_path / "t.npz")
    table = write_rooms(tmp_path / "t.csv")
    ragged = tmp_path / "ragged.npz"
    np.savez(
        ragged,
        features=X.reshape(-1, X.shape[-1]),
        shapes=[x.shape[:2] for x in X],
        partners=Y.reshape(-1),
    )
    for train in (archive, table, str(ragged)):
        assert fit("matching", train, tmp_path / "m.ff", "--l2", 0.5) == 0
        assert_array_equal(load(tmp_path / "m.ff").weights_, expected.weights_)
    assert "12 matchings, 192 edges" in capsys.readouterr().out


def test_several_partners_from_files(tmp_path, capsys):
    X, Y = matchings()
    matched = np.eye(4, dtype=int)[Y] | np.eye(4, dtype=int)[(Y + 1) % 4]
    np.savez(tmp_path / "t.npz", features=X, matched=matched)
    train = str(tmp_path / "t.npz")
    assert fit("matching", train, tmp_path / "m.ff", "--capacity", 2) == 0
    expected = MatchingCRF(capacity=2).fit(X, matched)
    assert_array_equal(load(tmp_path / "m.ff").weights_, expected.weights_)
    assert fit("matching", train, tmp_path / "m.ff", "--quiet") == 2
    assert "at most one partner, got 2; for several see --capacity" in capsys.readouterr().err


def test_rooms_of_a_general_graph(tmp_path, capsys):
    pytest.importorskip("rustworkx")
    rng = np.random.default_rng(0)
    lines, X, Y = [EDGES.replace("f", "near")], [], []
    for example in range(6):
        x = rng.normal(size=(4, 4)).round(3)
        x = np.triu(x, 1) + np.triu(x, 1).T
        partners = np.array([[1, 0, 3, 2], [2, 3, 0, 1]][example % 2])
        for i in range(4):
            for j in range(i + 1, 4):
                lines.append(f"{example},n{i},n{j},{int(partners[i] == j)},{x[i, j]}\n")
        X.append(x[..., None])
        Y.append(partners)
    (tmp_path / "t.csv").write_text("".join(lines))
    options = ["--graph", "general", "--rho", 0.5]
    assert fit("matching", str(tmp_path / "t.csv"), tmp_path / "m.ff", *options) == 0
    expected = MatchingCRF(kind="general", rho=0.5).fit(X, Y)
    assert_array_equal(load(tmp_path / "m.ff").weights_, expected.weights_)
    assert "36 edges" in capsys.readouterr().out


def test_bad_archives_of_matchings(tmp_path, capsys):
    X, Y = matchings()
    cases = {
        "expected the array 'features'": {"x": X},
        "(examples, rows, columns, features)": {"features": X[0], "partners": Y},
        "'partners' or 'matched'": {"features": X},
        "'partners' with an integer for each of 48 rows": {"features": X, "partners": Y[:, :3]},
        "example 0: expected the partner of row 0 below 4": {"features": X, "partners": Y + 4},
        "(192, features)": {"features": X[:2].reshape(-1, 3), "shapes": [[4, 4]] * 12},
        "two integers for each example": {"features": X.reshape(-1, 3), "shapes": [4, 4]},
        "0 or 1 for each edge": {"features": X, "matched": Y},
        "expected numbers": {"features": X.astype(str), "partners": Y},
    }
    for message, arrays in cases.items():
        np.savez(tmp_path / "t.npz", **arrays)
        assert fit("matching", str(tmp_path / "t.npz"), tmp_path / "m.ff", "--quiet") == 2
        assert_one_error_line(capsys.readouterr(), "t.npz", message)


def test_letters_that_do_not_occur_are_labels_too(tmp_path, capsys):
    train = write_alignment(tmp_path / "t.fasta", letters="-AC")
    assert fit("potts", train, tmp_path / "m.ff", "--max-iter", 5, "--quiet") == 0
    assert load(tmp_path / "m.ff").fields_.shape == (5, 21)


def test_skip_chains_link_equal_words(tmp_path, capsys):
    kind = next(kind for kind in KINDS if kind.name == "skip-chain")
    # "Green" comes twice in the third sentence, and "cat" in the first one now
    sentences = [SENTENCES[0].replace("dog", "cat"), *SENTENCES[1:]]
    train = write_columns(tmp_path / "t.txt", sentences)
    for link, expected in (("capitalised", {2: [[0, 4]]}), ("words", {0: [[1, 4]], 2: [[0, 4]]})):
        assert fit("skip-chain", train, tmp_path / "m.ff", "--link", link, "--l2", 0.1) == 0
        model = load(tmp_path / "m.ff")
        _, data = kind.stored_reader(model).read([train])
        found = enumerate(joints.links for joints in model._joints(data.examples))
        assert {index: links.tolist() for index, links in found if len(links)} == expected
        assert model.weight_blocks_["skip"].any()
        assert not any("link" in name for name in model.attributes_)


@pytest.mark.parametrize("kind", NAMES)
def test_several_files_are_one_training_set(kind, tmp_path, capsys):
    train = write_training(kind, tmp_path)
    assert fit(kind, [train, train], tmp_path / "m.ff", "--json", "--max-iter", 2, "--l2", 1) == 0
    double = strict_json(capsys.readouterr().out)
    assert fit(kind, train, tmp_path / "m.ff", "--json", "--max-iter", 2, "--l2", 1) == 0
    single = strict_json(capsys.readouterr().out)
    first = int(single["data"].split()[0])
    assert int(double["data"].split()[0]) == 2 * first


@pytest.mark.parametrize("kind", ["chain", "graph", "ising", "potts"])
def test_gzip_and_standard_input(kind, tmp_path, capsys, monkeypatch):
    train = write_training(kind, tmp_path)
    with open(train, "rb") as file:
        data = file.read()
    zipped = tmp_path / "zipped.gz"
    zipped.write_bytes(gzip.compress(data))
    weights = []
    for name in (train, str(zipped), "-"):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        assert fit(kind, name, tmp_path / "m.ff", "--max-iter", 3, "--quiet") == 0
        weights.append(load(tmp_path / "m.ff").weights_)
    assert_array_equal(weights[0], weights[1])
    assert_array_equal(weights[0], weights[2])


def test_pictures(tmp_path, capsys):
    image_module = pytest.importorskip("PIL.Image")
    x, y = images()
    pixels = np.clip(100 + 50 * x, 0, 255).astype(np.uint8)
    labels = np.where(y < 0, 255, y).astype(np.uint8)
    for folder, arrays in (("images", pixels), ("labels", labels)):
        (tmp_path / "data" / folder).mkdir(parents=True)
        for index, array in enumerate(arrays):
            image_module.fromarray(array).save(tmp_path / "data" / folder / f"{index}.png")
    np.savez(tmp_path / "data.npz", images=pixels, masks=labels)
    assert fit("grid", str(tmp_path / "data"), tmp_path / "m.ff", "--edge-features") == 0
    options = ["--edge-features", "--arrays", "images,masks"]
    assert fit("grid", str(tmp_path / "data.npz"), tmp_path / "n.ff", *options) == 0
    assert_array_equal(load(tmp_path / "m.ff").weights_, load(tmp_path / "n.ff").weights_)


# -- options ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("chain", "--min-frequency 2 --boundary-weights --decode map", {
            "min_freq": 2, "boundary_weights": True, "decode": "map",
        }),
        ("skip-chain", "--max-links 3 --skip-table potts --batch-size 2", {
            "max_links": 3, "skip_table": "potts", "batch_size": 2,
        }),
        ("grid", "--neighbors 8 --pairwise potts --directions shared --n-labels 3", {
            "neighbors": 8, "pairwise": "potts", "directions": "shared", "n_labels": 3,
        }),
        ("graph", "--pairwise full --learner adam --seed 5 --n-jobs 2", {
            "pairwise": "full", "learner": "adam", "random_state": 5, "n_jobs": 2,
        }),
        ("ising", "--l1 0.5 --l2 0 --tol 0.001", {"l1": 0.5, "l2": 0.0, "tol": 0.001}),
        ("potts", "--identity 0.7 --l2 3", {"identity": 0.7, "l2": 3.0, "n_labels": 21}),
        ("matching", "--not-perfect --rho 0.5", {"perfect": False, "rho": 0.5}),
    ],
)  # fmt: skip
def test_options_reach_the_estimator(kind, options, expected, tmp_path, capsys):
    train = write_training(kind, tmp_path)
    assert fit(kind, train, tmp_path / "m.ff", "--max-iter", 4, *options.split()) == 0
    parameters = load(tmp_path / "m.ff").get_params()
    assert {name: parameters[name] for name in expected} == expected
    assert parameters["max_iter"] == 4


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_defaults_in_the_help_are_those_of_the_estimator(kind):
    estimator = find(kind.estimator)
    signature = inspect.signature(estimator).parameters
    for name, value in kind.defaults.items():
        assert signature[name].default == value, name
    assert kind.estimator == estimator.__name__


def test_lists_in_the_help_are_those_of_the_library():
    assert fit_command.LEARNERS == LEARNERS
    offered = {name for kind in KINDS for name in kind.objectives}
    assert offered == set(OBJECTIVES)


@pytest.mark.parametrize(
    ("kind", "objective"), [(kind.name, name) for kind in KINDS for name in kind.objectives]
)
def test_every_objective_that_is_offered_works(kind, objective, tmp_path, capsys):
    train = write_training(kind, tmp_path)
    if kind in ("ising", "potts"):  # moment matching needs complete samples and no penalty
        train = write_table(tmp_path / "complete.csv", samples()[:, [0, 1, 3]], names="a,b,c")
    options = ["--l2", 0 if objective == "moment-matching" else 0.1, "--max-iter", 3]
    assert fit(kind, train, tmp_path / "m.ff", "--objective", objective, *options) == 0
    assert np.isfinite(load(tmp_path / "m.ff").weights_).all()


def test_window_attributes_are_those_of_the_templates():
    """Against a direct reading: every template whose positions lie inside the sentence."""
    rows = [tuple(token.split()[:2]) for token in SENTENCES[0].split("|")]
    templates = [[("w", k)] for k in range(-2, 3)] + [[("w", -1), ("w", 0)], [("w", 0), ("w", 1)]]
    templates += [[("pos", k)] for k in range(-2, 3)]
    templates += [[("pos", k), ("pos", k + 1)] for k in range(-2, 2)]
    templates += [[("pos", k), ("pos", k + 1), ("pos", k + 2)] for k in range(-2, 1)]
    for t, found in enumerate(token_attributes(rows, "window", 2)):
        expected = {"__BOS__"} if t == 0 else {"__EOS__"} if t == len(rows) - 1 else set()
        for template in templates:
            if all(0 <= t + k < len(rows) for _, k in template):
                names = "|".join(f"{name}[{k}]" for name, k in template)
                values = "|".join(rows[t + k][("w", "pos").index(name)] for name, k in template)
                expected.add(f"{names}={values}")
        assert len(found) == len(set(found))
        assert set(found) == expected


def test_spelling_attributes():
    (found,) = token_attributes([("Xaver-77",)], "spelling", 0)
    assert {"w[0]=Xaver-77", "lower=xaver-77", "shape=Aa-0", "prefix=Xav", "suffix=-77"} <= set(
        found
    )
    assert token_attributes([("a",)], "spelling", 0)[0].count("prefix=a") == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He PRP B-NP\nran VBD B-VP\n", "columns"),
        ("He\tPRP\tB-NP\nran\tVBD\tB-VP\n", "columns"),
        ("B-NP\tw=He\tp=PRP\nB-VP\tw=ran\tp=VBD\n", "crfsuite"),
        ("B-NP\tHe\tBOS\tPRP\nB-VP\tran\tVBD\n", "crfsuite"),
        ("", "columns"),
    ],
)
def test_formats_are_recognised(text, expected):
    assert detect_format(text.encode()) == expected


def test_a_format_can_be_stated(tmp_path, capsys):
    train = tmp_path / "t.txt"
    train.write_text("A\tx\ty\nB\tz\ty\n")
    assert fit("chain", str(train), tmp_path / "m.ff", "--format", "crfsuite", "--quiet") == 0
    assert set(load(tmp_path / "m.ff").attributes_) == {"x", "y", "z"}
    options = ["--column", 1, "--features", "plain", "--quiet"]
    assert fit("chain", str(train), tmp_path / "m.ff", *options) == 0
    assert set(load(tmp_path / "m.ff").attributes_) == {"w[0]=x", "w[0]=z", "pos[0]=y"}


# -- what is said -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NAMES)
def test_summary(kind, tmp_path, capsys):
    model = tmp_path / "m.ff"
    assert fit(kind, write_training(kind, tmp_path), model, "--accuracy", "--l2", 1) == 0
    captured = capsys.readouterr()
    for part in ("objective", "iterations", "yes, ", "weights", f"{model}, ", " s\n"):
        assert part in captured.out
    assert ("on the training data" in captured.out) == (kind not in ("ising", "potts"))
    assert captured.err.startswith("training data: ")
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("kind", NAMES)
def test_json(kind, tmp_path, capsys):
    model = tmp_path / "m.ff"
    train = write_training(kind, tmp_path)
    assert fit(kind, train, model, "--json", "--accuracy", "--l2", 1) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    fields = strict_json(captured.out)
    assert fields["kind"] == kind
    assert fields["converged"] is True
    assert fields["n_weights"] == len(load(model).weights_)
    assert fields["objective_value"] == load(model).trace_[-1]["objective"]
    assert fields["train"] == [train]


def test_quiet(tmp_path, capsys):
    assert fit("ising", write_table(tmp_path / "t.csv"), tmp_path / "m.ff", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_a_fit_that_does_not_converge_is_a_model_with_a_warning(tmp_path, capsys):
    train = write_archive(tmp_path / "t.npz")
    assert fit("grid", train, tmp_path / "m.ff", "--max-iter", 1, "--quiet") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: GridCRF: stopped at max_iter=1")
    assert len(captured.err.splitlines()) == 1
    assert load(tmp_path / "m.ff").converged_ is False


def test_progress_is_shown_on_a_terminal_only(tmp_path, monkeypatch, capsys):
    train = write_archive(tmp_path / "t.npz")
    for options, expected in (([], True), (["--quiet"], False), (["--json"], False)):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            assert fit("grid", train, tmp_path / "m.ff", *options) == 0
        assert ("it" in terminal.getvalue() and "objective" in terminal.getvalue()) == expected
    assert load(tmp_path / "m.ff").verbose == 0


@pytest.mark.parametrize("kind", NAMES)
def test_validation(kind, tmp_path, capsys):
    train = write_training(kind, tmp_path)
    options = ["--validation", train, "--quiet", "--max-iter", 8]
    assert fit(kind, train, tmp_path / "m.ff", *options) == 0
    assert all("validation" in row for row in load(tmp_path / "m.ff").trace_)


# -- interruptions ------------------------------------------------------------------------


def test_interrupt_keeps_the_checkpoint_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    train = write_archive(tmp_path / "t.npz")
    assert fit("grid", train, tmp_path / "whole.ff", "--l2", 0.1, "--quiet") == 0
    calls = iter(range(1000))
    evaluate = TemplateProblem.evaluate

    def interrupted(self, weights):
        if next(calls) == 12:
            raise KeyboardInterrupt
        return evaluate(self, weights)

    options = ["--l2", 0.1, "--checkpoint", tmp_path / "c", "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(TemplateProblem, "evaluate", interrupted)
        assert fit("grid", train, tmp_path / "m.ff", *options) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("interrupted after ")
    assert "no model was written" in captured.err
    assert str(tmp_path / "c") in captured.err
    assert not (tmp_path / "m.ff").exists()
    assert (tmp_path / "c").exists()
    assert fit("grid", train, tmp_path / "m.ff", *options) == 0
    # without checkpoints warm starts last longer, so the last digits differ
    np.testing.assert_allclose(
        load(tmp_path / "m.ff").weights_, load(tmp_path / "whole.ff").weights_, rtol=0, atol=1e-3
    )


def test_interrupt_signal(tmp_path):
    """A process of its own that would run for hours."""
    train = write_archive(tmp_path / "t.npz")
    command = [sys.executable, "-m", "fieldfit.cli.main", "fit", "grid", "--train", train]
    command += ["--model", str(tmp_path / "m.ff"), "--checkpoint", str(tmp_path / "c")]
    command += ["--learner", "sgd", "--max-iter", "100000000", "--tol", "1e-300", "--quiet"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell lets its background jobs ignore interrupts, and their children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 600  # only against hanging
        while not (tmp_path / "c").exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("interrupted")
    assert not (tmp_path / "m.ff").exists()
    assert (tmp_path / "c").exists()


def test_a_failure_leaves_the_old_model(tmp_path, capsys):
    model = tmp_path / "m.ff"
    model.write_bytes(b"precious")
    (tmp_path / "bad.csv").write_text("a,b\n0,2\n1,0\n")
    assert fit("ising", str(tmp_path / "bad.csv"), model) == 2
    assert model.read_bytes() == b"precious"
    assert sorted(os.listdir(tmp_path)) == ["bad.csv", "m.ff"]


# -- mistakes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("", ["KIND"]),
        ("magic --train x --model m", ["magic", "chain", "matching"]),
        ("matching --train x --model m --capacity 0", ["--capacity", "at least 1", "'0'"]),
        ("matching --train x --model m --capacity 1,2,3", ["--capacity", "'1,2,3'"]),
        ("matching --train x --model m --rho 1.5", ["--rho", "between 0 and 1", "'1.5'"]),
        ("matching --train x --model m --graph tripartite", ["--graph", "tripartite"]),
        ("chain --model m", ["--train"]),
        ("chain --train x", ["--model"]),
        ("chain --train x --model m --objective magic", ["--objective", "magic", "likelihood"]),
        ("chain --train x --model m --neighbors 8", ["--neighbors"]),
        ("grid --train x --model m --neighbors 6", ["--neighbors", "6"]),
        ("grid --train x --model m --arrays x", ["--arrays", "two names", "'x'"]),
        ("ising --train x --model m --columns a,,b", ["--columns", "'a,,b'"]),
        ("ising --train x --model m --threshold nan", ["--threshold", "'nan'"]),
        ("potts --train x --model m --identity 1.5", ["--identity", "at most 1", "'1.5'"]),
        ("graph --train x --model m --l2 -1", ["--l2", "at least 0", "'-1'"]),
        ("graph --train x --model m --max-iter 0", ["--max-iter", "at least 1", "'0'"]),
        ("graph --train x --model m --learner newton", ["--learner", "newton"]),
        ("chain --train no/such/file --model m", ["no/such/file: No such file"]),
        ("grid --train no/such/file --model m", ["no/such/file: No such file"]),
        ("chain --train x --model no/folder/m", ["--model", "folder that exists", "no/folder/m"]),
        ("chain --train x --model .", ["--model", "name of a file"]),
        ("chain --train x --model ./x", ["--model must not be a file that is read", "./x"]),
        ("chain --train x --model m --checkpoint m", ["--checkpoint must not be a file"]),
        ("potts --train x --model m --contacts x", ["--contacts must not be a file"]),
        ("graph --train x --model m --checkpoint no/f/c", ["--checkpoint", "folder that exists"]),
    ],
)
def test_bad_usage(arguments, parts, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *arguments.split()]) == 2
    assert_one_error_line(capsys.readouterr(), *parts)


def test_a_checkpoint_of_another_fit(tmp_path, capsys):
    train = write_table(tmp_path / "t.csv")
    options = ["--checkpoint", tmp_path / "c", "--quiet"]
    assert fit("ising", train, tmp_path / "m.ff", *options) == 0
    assert fit("ising", train, tmp_path / "m.ff", *options, "--l2", 7) == 2
    assert_one_error_line(capsys.readouterr(), str(tmp_path / "c"), "l2 is 7.0 here")


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x1f\x8bnot gzip", b"\xff\xfe\x00garbage\xff"])
def test_empty_and_broken_files(kind, content, tmp_path, capsys):
    path = tmp_path / "train"
    path.write_bytes(content)
    assert fit(kind, str(path), tmp_path / "m.ff") == 2
    assert_one_error_line(capsys.readouterr(), str(path))
    assert not (tmp_path / "m.ff").exists()


@pytest.mark.parametrize(
    ("kind", "text", "parts"),
    [
        ("chain", "He PRP B\nran VBD\n", ["line 2", "expected 3 columns", "found 2"]),
        ("chain", "A\tw=x\n\nB\tw=y:zz\tb\n", ["line 3", "finite number", "'zz'"]),
        ("chain", "He PRP B\nran VBD B\n", ["train: labels must", "only 'B'"]),
        ("chain", "He\nran\n", ["at least 2 columns", "found 1"]),
        ("skip-chain", "He PRP B\n\nran VBD\n", ["line 3", "expected 3 columns"]),
        ("graph", '{"nodes": [[1]], "edges": [], "labels": [0]}\n{"nodes": 3}', ["line 2"]),
        ("graph", '\n{"nodes": [[1]], "edges": [], "labels": [0, 1]}', ["line 2", "1 labels", "2"]),
        ("graph", '{"nodes": [[1]], "edges": [], "labels": ["a"]}', ["line 1", "integers", "'a'"]),
        ("graph", '{"nodes": [[1], [2]], "edges": [[0, 2]], "labels": [0, 1]}', ["line 1", "0..1"]),
        ("graph", '{"nodes": [[1]], "edges": [], "labels": [0], "x": 1}\n', ["line 1", "'x'"]),
        ("graph", '{"nodes": [[1]], "edges": [[0, 1, 2]], "labels": [0]}\n', ["line 1", "edges"]),
        ("graph", '{"nodes": [[1]], "edges": []}\n', ["line 1", "labels"]),
        ("graph", "{1}\n", ["line 1", "JSON object"]),
        ("graph", "[1]\n", ["line 1", "JSON object", "list"]),
        ("ising", "a,b\n0,1\n1,yes\n", ["line 3", "'b'", "'yes'"]),
        ("ising", "a,b\n0,1\n1\n", ["line 3", "expected 2 values", "found 1"]),
        ("ising", "a,b\n0,1\n1,3\n", ["sample 2, column 'b'", "0 or 1", "got 3"]),
        ("ising", "a,b\n0,1\n1,1\n", ["train: samples must", "no 0 in column 'b'"]),
        ("potts", ">a\nAC\n>b\nACD\n", ["line 3", "2 letters", "found 3"]),
        ("potts", ">a\nAC\n>b\nA*\n", ["line 3", "'*'"]),
        ("potts", "a,b\n0,1\n0.5,1\n", ["sample 2, column 'a'", "got 0.5"]),
        ("matching", "example,row,column\n0,a,x\n", ["line 1", "without 'matched'"]),
        ("matching", "example,row,column,matched\n0,a,x,1\n", ["line 1", "features"]),
        ("matching", EDGES + "0,a,x,1\n", ["line 2", "expected 5 values", "found 4"]),
        ("matching", EDGES + "0,a,x,1,blue\n", ["line 2", "'f'", "'blue'"]),
        ("matching", EDGES + "0,a,x,2,1\n", ["line 2", "0 or 1", "'2'"]),
        ("matching", EDGES + "0,a,x,1,1\n0,a,x,1,1\n", ["line 3", "'a' and 'x' again"]),
        ("matching", EDGES + "0,a,x,1,1\n0,a,y,1,1\n", ["line 2", "--capacity"]),
        ("matching", EDGES + "7,a,x,1,1\n7,b,x,1,1\n", ["example '7' from line 2", "twice"]),
        ("matching", EDGES + "7,a,x,0,1\n", ["example '7' from line 2", "everybody a partner"]),
    ],
)  # fmt: skip
def test_bad_lines_are_named(kind, text, parts, tmp_path, capsys):
    path = tmp_path / "train"
    path.write_text(text)
    assert fit(kind, str(path), tmp_path / "m.ff") == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines[0].startswith("training data") or len(lines) == 1
    for part in parts:
        assert part in lines[-1]
    assert "error: " in lines[-1]
    assert captured.out == ""


def test_bad_images_are_named(tmp_path, capsys):
    x, y = images()
    is_third = np.arange(len(x))[:, None, None] == 2
    cases = {
        "image 2: features must be finite": {"x": np.where(is_third, np.nan, x)},
        "(6, 5, 6)": {"y": y[:, :4]},
        "at least two different labels": {"y": np.zeros_like(y)},
        "image 0: expected integer labels": {"y": y * 1.0},
    }  # fmt: skip
    for message, changes in cases.items():
        np.savez(tmp_path / "t.npz", **({"x": x, "y": y} | changes))
        assert fit("grid", str(tmp_path / "t.npz"), tmp_path / "m.ff", "--quiet") == 2
        assert_one_error_line(capsys.readouterr(), message)


def test_bad_validation_data_are_named(tmp_path, capsys):
    train = write_archive(tmp_path / "t.npz")
    x, y = images()
    np.savez(tmp_path / "v.npz", x=np.stack([x, x], axis=-1), y=y)
    options = ["--validation", tmp_path / "v.npz", "--quiet"]
    assert fit("grid", train, tmp_path / "m.ff", *options) == 2
    assert_one_error_line(capsys.readouterr(), "v.npz, image 0", "1 feature")
    columns = write_columns(tmp_path / "t.txt")
    (tmp_path / "v.txt").write_text("He PRP\n")
    options = ["--validation", tmp_path / "v.txt", "--quiet"]
    assert fit("chain", columns, tmp_path / "m.ff", *options) == 2
    assert_one_error_line(capsys.readouterr(), "v.txt", "expected 3 columns")


def test_unknown_columns(tmp_path, capsys):
    train = write_table(tmp_path / "t.csv")
    assert fit("ising", train, tmp_path / "m.ff", "--columns", "first,nose") == 2
    assert_one_error_line(capsys.readouterr(), "t.csv", "'nose'", "first, second")
    assert fit("ising", train, tmp_path / "m.ff", "--drop", "nose") == 2
    assert_one_error_line(capsys.readouterr(), "t.csv", "'nose'")
    (tmp_path / "e.csv").write_text("first,second\nfirst,nose\n")
    assert fit("ising", train, tmp_path / "m.ff", "--edges", tmp_path / "e.csv", "--quiet") == 2
    assert_one_error_line(capsys.readouterr(), "e.csv, line 2", "first,nose")


# -- the command itself -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_help_teaches(kind, capsys):
    assert main(["fit", kind.name, "--help"]) == 0
    text = capsys.readouterr().out
    assert kind.example in text
    assert kind.sentence in text
    for option in ("--train", "--objective", "--l2", "--checkpoint", "--json", "--quiet"):
        assert option in text
    assert main(["fit", "--help"]) == 0
    assert kind.example in capsys.readouterr().out


def test_the_training_files_cover_all_kinds():
    assert list(WRITERS) == NAMES


def test_help_imports_no_estimator():
    code = (
        "import sys; from fieldfit.cli.main import main; main(['fit', 'chain', '--help']); "
        "print(*(name for name in ('sklearn', 'tqdm', 'PIL', 'scipy.sparse') "
        "if name in sys.modules), file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stderr.strip() == ""


def test_in_a_process_of_its_own(tmp_path):
    train = write_table(tmp_path / "t.csv")
    command = [sys.executable, "-m", "fieldfit.cli.main", "fit", "ising", "--model", "m.ff"]
    good = subprocess.run(
        [*command, "--train", train], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert good.returncode == 0, good.stderr
    assert "converged" in good.stdout
    bad = subprocess.run(
        [*command, "--train", "none.csv"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "fieldfit: error: none.csv: No such file or directory\n"


# -- real data ----------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
def test_a_network_with_missing_answers(tmp_path, capsys):
    train = os.path.join(os.environ["FIELDFIT_DATA"], "ising_networks", "wenchuan.csv.gz")
    model = tmp_path / "m.ff"
    assert fit("ising", train, model, "--threshold", 3, "--json") == 0
    fields = strict_json(capsys.readouterr().out)
    assert fields["data"] == "362 samples of 17 variables, 22 missing values"
    assert fields["converged"] is True
    assert fields["standard_errors"] is True
    assert main(["predict", "--model", str(model), train, "--marginals", "--json"]) == 0
    assert len(strict_json(capsys.readouterr().out)["missing"]) == 22
