"""`contrastive-seminars`: methods and their costs, McNemar's test, and a small run."""

from __future__ import annotations

import csv
import gzip
import json
import os
from math import comb
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

import fieldfit as ff
from experiments.__main__ import main
from experiments.base import Settings
from experiments.driver import run_plan
from experiments.mcnemar import mcnemar
from experiments.welling_sutton2005.seminars.methods import (
    METHODS,
    Meter,
    MeteredInference,
    choose_links,
    contrastive_objective,
    token_scores,
)
from experiments.welling_sutton2005.seminars.report import PAPER, side_by_side, speed_ups
from experiments.welling_sutton2005.seminars.run import FULL, Design, Speakers
from fieldfit.graph.batch import Batch


def random_problem(seed=0, n_graphs=3):
    """A batch of cycles with a tail, potentials and labels."""
    rng = np.random.default_rng(seed)
    graphs = [
        ff.FactorGraph.from_edges(6, [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 5)], 2)
        for _ in range(n_graphs)
    ]
    batch = Batch.of(graphs)
    graph = batch.graph
    potentials = ff.Potentials.from_flat(
        graph, rng.normal(size=2 * graph.n_variables), rng.normal(size=4 * graph.n_factors)
    )
    return batch, potentials, rng.integers(0, 2, graph.n_variables).astype(np.int32)


# -- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_objectives_are_counted(method):
    batch, potentials, labels = random_problem()
    meter = Meter()
    objective = contrastive_objective(method, meter)
    first = objective.evaluate(batch, potentials, labels)
    assert meter.n_examples == batch.n_examples
    per_sweep = batch.graph.n_slots
    # every method looks at every factor, and CFk at least k + 1 times unless it settles before
    assert meter.n_messages >= 2 * per_sweep
    if method == "CF5-bethe":
        assert 6 * per_sweep <= meter.n_messages <= 30 * per_sweep
    assert np.all(first.values >= 0.0) or method.startswith("ML")
    # a second evaluation costs the same: nothing is kept from the first
    before = meter.n_messages
    again = objective.evaluate(batch, potentials, labels, first.state)
    assert meter.n_messages == 2 * before
    np.testing.assert_allclose(again.values, first.values, atol=1e-12)


@pytest.mark.parametrize("method", ["ML-mf", "ML-bp"])
def test_warm_starts_save_messages(method):
    batch, potentials, labels = random_problem()
    meter = Meter()
    objective = contrastive_objective(method, meter, warm_start=True)
    first = objective.evaluate(batch, potentials, labels)
    before = meter.n_messages
    again = objective.evaluate(batch, potentials, labels, first.state)
    assert meter.n_messages < 2 * before
    np.testing.assert_allclose(again.values, first.values, atol=1e-6)


def test_counts_of_messages_are_those_of_the_sweeps():
    batch, potentials, _ = random_problem()
    meter = Meter()
    flooding = ff.SumProduct(schedule="flooding", max_iter=7, tol=1e-300)
    MeteredInference(flooding, meter).run_batch(batch, potentials)
    assert meter.n_messages == 7 * batch.graph.n_slots


def test_long_contrast_is_likelihood():
    """Many steps from the data and propagation from nothing find the same gradient."""
    batch, potentials, labels = random_problem(seed=1)
    long = contrastive_objective("CF500-bethe", Meter()).evaluate(batch, potentials, labels)
    whole = contrastive_objective("ML-bp", Meter()).evaluate(batch, potentials, labels)
    # the contrast starts at labels smoothed by 1e-4
    np.testing.assert_allclose(long.gradient.unary_values, whole.gradient.unary_values, atol=2e-4)
    np.testing.assert_allclose(long.gradient.factor_values, whole.gradient.factor_values, atol=5e-4)


def test_a_family_has_one_prediction():
    graph = ff.FactorGraph.chain(3, 2)
    found = {method: contrastive_objective(method, Meter()).prediction(graph) for method in METHODS}
    assert found["ML-bp"].inference == found["CF5-bethe"] == found["CF500-bethe"]
    assert found["ML-mf"].inference == found["CF10-mf"]
    assert found["CF10-mf"].update == "parallel"
    with pytest.raises(ValueError, match="method must be one of"):
        contrastive_objective("CF7-bethe", Meter())


# -- scores and tests -----------------------------------------------------------------------------


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    true, guess = rng.random((2, 300)) < 0.2
    scores = token_scores(true, guess)
    assert scores["f1"] == pytest.approx(f1_score(true, guess), abs=1e-12)
    assert scores["precision"] == pytest.approx(precision_score(true, guess), abs=1e-12)
    assert scores["recall"] == pytest.approx(recall_score(true, guess), abs=1e-12)
    nothing = np.zeros(3, dtype=bool)
    assert token_scores(nothing, nothing) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (5, 5), (3, 11), (30, 12), (400, 350)])
def test_mcnemar_counts_coins(b, c):
    first = np.array([True] * b + [False] * c + [True] * 50 + [False] * 9)
    second = np.array([False] * b + [True] * c + [True] * 50 + [False] * 9)
    found = mcnemar(first, second)
    n = b + c
    tail = sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n
    assert (found.only_first, found.only_second) == (b, c)
    assert found.p_value == pytest.approx(min(1.0, 2 * tail), rel=1e-9)
    assert mcnemar(second, first).p_value == found.p_value


def test_mcnemar_of_fair_coins_is_rarely_small():
    rng = np.random.default_rng(0)
    small = [
        mcnemar(rng.random(200) < 0.9, rng.random(200) < 0.9).p_value < 0.05 for _ in range(400)
    ]
    assert np.mean(small) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    assert mcnemar(np.ones(200, bool), rng.random(200) < 0.9).p_value < 0.01


def test_speed_ups_compare_means():
    rows = [
        {"method": method, "seconds": seconds}
        for method, seconds in [("CF5-bethe", 1.0), ("CF5-bethe", 3.0), ("ML-bp", 10.0)]
    ]
    assert speed_ups(rows, "seconds") == {"CF5-bethe": 5.0, "ML-bp": 1.0}
    assert speed_ups(rows[:2], "seconds") == {}


def test_the_table_has_the_methods_of_the_paper():
    assert all(set(printed) == set(METHODS) for printed in PAPER.values())
    rows = [
        {"method": "ML-bp", "fold": 0, "model": "2-clique", "f1": 0.5},
        {"method": "ML-bp", "fold": 0, "model": "4-clique", "f1": 0.6},
    ]
    assert side_by_side(rows) == [
        {"method": "ML-bp", "fold": 0, "f1 2-clique": 0.5, "f1 4-clique": 0.6}
    ]


# -- the whole experiment -------------------------------------------------------------------------


@pytest.fixture
def small_run(monkeypatch, tmp_path):
    """A folder with a few made-up mails, and the experiment on two folds of them."""
    rng = np.random.default_rng(3)
    lines = []
    for number in range(12):
        first, last = rng.choice(["Ann", "Bob", "Eve", "Kim"]), rng.choice(["Lee", "Roe"])
        text = (
            f"<{number}@cs.cmu.edu>\nTime: 3:30\nAbstract:\n"
            f"<speaker>Dr. {first} {last}</speaker> will talk\n"
            f"in Wean Hall. <speaker>{last}</speaker> is known."
        )
        lines.append(json.dumps({"id": number, "part": "train", "text": text}))
    folder = tmp_path / "data" / "seminars"
    folder.mkdir(parents=True)
    (folder / "seminars.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setattr(Speakers, "full", Design(n_folds=2, n_runs=2, min_count=1))
    return tmp_path


def test_the_command(small_run, capsys):
    data, out = str(small_run / "data"), small_run / "out"
    command = ["contrastive-seminars", "--data", data, "--out", str(out), "--json"]
    assert main(command) == 0
    summary = json.loads(capsys.readouterr().out)
    with open(out / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["fold"], row["method"]) for row in rows] == [
        (model, fold, method)
        for model in ("2-clique", "4-clique")
        for fold in "01"
        for method in METHODS
    ]
    fixed = {"model", "fold", "method", "f1", "seconds", "converged"}
    further = {"precision", "recall", "n_iter", "evaluations", "messages", "processor_seconds"}
    assert fixed | further <= set(rows[0])
    for row in rows:
        # six mails say all that there is to say about six others like them
        assert 0.8 <= float(row["f1"]) <= 1.0, row
        assert row["converged"] == "True", row
        assert int(row["evaluations"]) >= int(row["n_iter"]) > 0
        assert int(row["messages"]) > 0
    chosen = [row for row in rows if (row["model"], row["method"]) == ("4-clique", "ML-bp")]
    mean = np.mean([float(row["f1"]) for row in chosen])
    assert summary["headline"]["4-clique ML-bp f1"] == pytest.approx(mean, abs=1e-6)
    assert summary["headline"]["2-clique CF5-bethe speed-up in messages"] > 0.0
    with open(out / "mcnemar.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 2 * 21
    with open(out / "links.csv", newline="") as file:
        tried = list(csv.DictReader(file))
    assert [(row["fold"], row["max_links"]) for row in tried] == [
        (fold, rule) for fold in "01" for rule in ("2", "10")
    ]
    for fold in "01":
        scores = {row["max_links"]: float(row["f1"]) for row in tried if row["fold"] == fold}
        chosen = [r for r in tried if r["fold"] == fold and r["chosen"] == "True"]
        assert len(chosen) == 1
        assert scores[chosen[0]["max_links"]] == max(scores.values())
    report = (out / "report.md").read_text()
    assert "12 seminar announcements" in report
    assert "48 of\nthem" in report  # tokens of speakers: Dr. Ann Lee, and Lee
    assert "| ML-bp | 68.19 |" in report
    assert "13.7 times" in report
    assert (out / "f1.png").exists()
    assert (out / "time.png").exists()


def test_links_are_chosen_without_the_test_mails():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 4, (12, 9))
    labels = [(mail == 3).astype(int).tolist() for mail in words]
    tokens = [[{f"w{word}": 1.0} for word in mail] for mail in words]
    examples = {rule: [(mail, [(0, rule)]) for mail in tokens] for rule in (2, 5)}

    def make(objective):
        return ff.SkipChainCRF(objective, max_iter=5, all_possible_transitions=True)

    test = slice(3, 6)
    rule, found = choose_links(make, examples, labels, test, 1)
    assert rule in (2, 5)
    assert [row["max_links"] for row in found] == [2, 5]
    blank = {r: [*mails[:3], *[mails[0]] * 3, *mails[6:]] for r, mails in examples.items()}
    flipped = [*labels[:3], *[[1] * 9] * 3, *labels[6:]]
    assert choose_links(make, blank, flipped, test, 1) == (rule, found)
    others = [*[[1 - label for label in mail] for mail in labels[:3]], *labels[3:]]
    assert choose_links(make, examples, others, test, 1)[1] != found


def test_data_that_are_not_there(small_run, capsys, tmp_path):
    out = ["--out", str(tmp_path / "out")]
    assert main(["contrastive-seminars", *out]) == 2
    assert "--data must name" in capsys.readouterr().err


@pytest.mark.data
@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
def test_real_mails():
    design = Design(n_mails=150, n_folds=3, n_runs=1, methods=("CF5-bethe", "ML-bp"), tol=1e-3)
    settings = Settings(data=Path(os.environ["FIELDFIT_DATA"]))
    outcome = run_plan(Speakers(design, settings))
    f1 = {(row["model"], row["method"]): row["f1"] for row in outcome.rows}
    assert min(f1.values()) > 0.5
    assert f1["2-clique", "CF5-bethe"] > f1["2-clique", "ML-bp"] - 0.1
    assert FULL.n_folds == 5
