"""`camel-ner`: reading CoNLL-2003, scores by hand, the whole experiment on a made-up corpus."""

import csv
import gzip
import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.base import Settings
from experiments.driver import run_experiment
from experiments.ganapathi2008.methods import CAMEL_TOL, METHODS
from experiments.ganapathi2008.ner import run as camel_ner
from experiments.ganapathi2008.ner.data import (
    Document,
    begin_marked,
    entity_scores,
    examples,
    model_labels,
    read_documents,
)
from experiments.ganapathi2008.ner.rounds import REST
from experiments.ganapathi2008.ner.run import Names
from fieldfit import Camel, ConvergenceWarning
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.features.text import TextFeatures

pytest.importorskip("matplotlib")

SMALL = camel_ner.Design(max_iter=40, features=TextFeatures(context=False, topic=False))
ARTICLE = """-DOCSTART- -X- O O

Ann NNP I-NP I-PER
met VBD I-VP O
Bob NNP I-NP I-PER
Dane NNP I-NP B-PER

Dane NNP I-NP I-PER
left VBD I-VP O
Rome NNP I-NP I-LOC
. . O O

"""


def written(folder, part, text):
    path = folder / "conll2003" / f"eng.{part}.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))
    return folder


def made_up(rng, n_articles):
    """Articles about a person in a place; the place is clear in one of two sentences."""
    lines = []
    for _ in range(n_articles):
        person, place = rng.choice(["Ann", "Bob", "Eve"]), rng.choice(["Rome", "Oslo", "Bonn"])
        lines += ["-DOCSTART- -X- O O", ""]
        for words in (f"{person} slept in {place} .", f"{place} was calm ."):
            for word in words.split():
                entity = {person: "I-PER", place: "I-LOC"}.get(word, "O")
                lines.append(f"{word} {'NNP' if entity != 'O' else 'NN'} I-NP {entity}")
            lines.append("")
    return "\n".join(lines)


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    for part, n_articles in (("train", 12), ("testa", 4), ("testb", 6)):
        written(tmp_path, part, made_up(rng, n_articles))
    return tmp_path


# -- reading and scoring --------------------------------------------------------------------


def test_documents_begin_at_their_mark(tmp_path):
    (document, second) = read_documents(written(tmp_path, "train", ARTICLE * 2), "train")
    assert document == second
    assert document.words == [["Ann", "met", "Bob", "Dane"], ["Dane", "left", "Rome", "."]]
    assert document.pos[0][1] == "VBD"
    assert document.n_tokens == 8
    assert model_labels([document]) == [
        ["B-PER", "O", "B-PER", "B-PER", "B-PER", "O", "B-LOC", "O"]
    ]


def test_examples_have_links_and_sentence_beginnings(tmp_path):
    documents = read_documents(written(tmp_path, "train", ARTICLE), "train")
    ((tokens, links, begins),) = examples(documents, TextFeatures(), 5)
    assert len(tokens) == 8
    assert links == [(3, 4)]
    assert begins == [4]
    assert tokens[5]["pos"] == "VBD"


@pytest.mark.parametrize(
    ("given", "marked"),
    [
        (["I-A", "I-A", "I-B", "O", "I-A"], ["B-A", "I-A", "B-B", "O", "B-A"]),
        (["O", "I-A", "B-A", "I-A"], ["O", "B-A", "B-A", "I-A"]),
        ([], []),
    ],
)
def test_every_entity_begins_with_a_mark(given, marked):
    assert begin_marked(given) == marked
    assert begin_marked(marked) == marked


def test_scores_by_hand():
    words = [["a"] * 4, ["b"] * 3]
    truth = [["I-PER", "I-PER", "O", "I-LOC"], ["I-LOC", "O", "I-ORG"]]
    document = Document(words, words, truth)
    # PER: cut short; LOC: one of two, across the end of the sentence nothing is joined; ORG right;
    # one MISC that is none
    predicted = [["B-PER", "O", "B-MISC", "B-LOC", "O", "O", "B-ORG"]]
    scores = entity_scores([document], predicted)
    f1 = {"per": 0.0, "loc": 2 / 3, "org": 1.0, "misc": 0.0}
    assert {kind: scores[f"f1_{kind}"] for kind in f1} == pytest.approx(f1)
    assert scores["micro_f1"] == pytest.approx(2 * 2 / (4 + 4))
    assert scores["macro_f1"] == pytest.approx(sum(f1.values()) / 4)
    assert scores["token_micro_f1"] == pytest.approx(2 * 3 / (5 + 4))
    assert scores["token_macro_f1"] == pytest.approx((2 / 3 + 2 / 3 + 1 + 0) / 4)
    perfect = entity_scores([document], model_labels([document]))
    assert set(perfect.values()) == {1.0, None}  # there is no MISC


def test_bad_files_are_refused_in_one_sentence(tmp_path):
    with pytest.raises(InvalidInputError, match=r"conll2003/eng\.train\.gz"):
        read_documents(tmp_path, "train")
    with pytest.raises(FileFormatError, match=r"expected 4 columns .* found 2"):
        read_documents(written(tmp_path, "train", "Ann I-PER\n"), "train")


# -- the experiment ---------------------------------------------------------------------------


def test_a_run_leaves_table_report_and_figure(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(Names, "quick", SMALL)
    steps = []
    settings = Settings(
        quick=True, data=corpus, progress=lambda done, total, what: steps.append((done, total))
    )
    summary = run_experiment("camel-ner", tmp_path / "out", settings)
    with open(tmp_path / "out" / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == list(METHODS)
    fixed = ["method", "fold", "seconds", "converged", "outer_loops", "inner_iterations"]
    assert set(fixed) | {"micro_f1", "macro_f1", "token_micro_f1"} <= set(rows[0])
    for row in rows:
        assert 0.8 < float(row["micro_f1"]) <= 1.0
        assert 0.8 < float(row["testa_token_micro_f1"]) <= 1.0
        assert int(row["outer_loops"]) >= 1
        assert int(row["inner_iterations"]) >= 1
    assert steps == [(k, 20) for k in range(21)]
    with open(tmp_path / "out" / "choice.csv", newline="") as file:
        tried = list(csv.DictReader(file))
    for row in rows:
        scores = {
            t["l2"]: float(t["testa_micro_f1"]) for t in tried if t["method"] == row["method"]
        }
        assert list(scores) == ["0.1", "0.3", "1"]
        assert scores[row["l2"]] == max(scores.values())
    with open(tmp_path / "out" / "rounds.csv", newline="") as file:
        rounds = list(csv.DictReader(file))
    for row in rows[3:]:
        of_method = [r for r in rounds if r["method"] == row["method"]]
        (chosen,) = (r for r in of_method if r["chosen"] == "True")
        assert chosen["rounds"] == row["outer_loops"]
        assert chosen["testa_micro_f1"] == max(r["testa_micro_f1"] for r in of_method)
        assert row["testa_micro_f1"] == chosen["testa_micro_f1"]
    report = (tmp_path / "out" / "report.md").read_text()
    assert "12 to learn from" in report
    assert "| LBP | " in report
    assert "86.2" in report
    assert (tmp_path / "out" / "micro-f1.png").read_bytes().startswith(b"\x89PNG")
    assert set(summary["headline"]) == {f"{method} micro_f1" for method in METHODS}


@pytest.mark.parametrize("method", ["cccp", "cccp-empirical"])
def test_candidates_are_what_fewer_rounds_give(corpus, method):
    plan = Names(SMALL, Settings(data=corpus))
    found = plan._candidates(method, 0.3, 1)
    assert [candidate.rounds for candidate in found] == [1, 2, 3][: len(found)]
    assert len(found) > 1
    for candidate in found[:2]:
        camel = Camel(method, tol=CAMEL_TOL, round_tol=REST, max_rounds=candidate.rounds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            crf = plan._make(camel, 0.3, None).fit(
                plan.training_set, model_labels(plan.documents["train"])
            )
        np.testing.assert_allclose(candidate.weights, crf.weights_, atol=1e-6)
        rows = [row for row in crf.trace_ if row["stage"] != "piecewise"]
        assert sum(candidate.training.iterations) == len(rows)
    assert np.abs(found[0].weights - found[1].weights).max() > 1e-4


def test_testb_is_not_looked_at_when_choosing(corpus, tmp_path, monkeypatch):
    looked = []
    scores = Names._scores
    monkeypatch.setattr(
        Names, "_scores", lambda self, part, given: looked.append(part) or scores(self, part, given)
    )
    design = replace(SMALL, methods=("piecewise", "cccp"), penalties=(0.1, 1.0), max_rounds=2)
    monkeypatch.setattr(Names, "quick", design)
    run_experiment("camel-ner", tmp_path / "out", Settings(quick=True, data=corpus))
    first = looked.index("testb")
    assert looked.count("testb") == 2  # once for each method
    assert set(looked[:first]) == {"testa"}
    assert first >= 2 + 2 * 2  # both penalties of both methods, each round of CCCP


def test_designs_are_those_of_the_paper():
    for design in (camel_ner.FULL, camel_ner.QUICK):
        assert design.methods == METHODS
        assert design.min_count == 2
    assert camel_ner.FULL.n_train is None


# -- the real corpus --------------------------------------------------------------------------

DATA = os.environ.get("FIELDFIT_DATA")


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="FIELDFIT_DATA does not name the data sets")
@pytest.mark.parametrize(
    ("part", "n_documents", "n_tokens", "n_entities"),
    [("train", 946, 203_621, 23_499), ("testa", 216, 51_362, 5942), ("testb", 231, 46_435, 5648)],
)
def test_the_corpus_has_its_official_size(part, n_documents, n_tokens, n_entities):
    documents = read_documents(Path(DATA), part)
    assert len(documents) == n_documents
    # the official counts are without the lines that begin documents
    assert sum(document.n_tokens for document in documents) == n_tokens
    labels = [label for document in model_labels(documents) for label in document]
    assert sum(label.startswith("B-") for label in labels) == n_entities
