"""`contrastive-speed`: what is counted, when to stop, and a small run."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

import fieldfit as ff
from experiments.__main__ import main
from experiments.base import Settings
from experiments.welling_sutton2005.seminars.methods import Meter
from experiments.welling_sutton2005.speed.methods import (
    METHODS,
    PREDICTION,
    REFERENCE,
    Course,
    Judge,
    Point,
    follow,
    objective_of,
)
from experiments.welling_sutton2005.speed.report import seconds_to_quality, speed_ups
from experiments.welling_sutton2005.speed.run import FULL, Design, Speed
from experiments.welling_sutton2005.speed.stopping import PATIENCE, course_row, stopped
from fieldfit.learners import Problem, ProblemValue


def course(scores, test=None):
    """Points with these held-out scores; everything else grows with the iterations."""
    test = scores if test is None else test
    return [
        Point(i, 0.5 * i, 2 * i, 100 * i, held_out, of_test)
        for i, (held_out, of_test) in enumerate(zip(scores, test, strict=True), start=1)
    ]


# -- when to stop -----------------------------------------------------------------------------


class Slow(Problem):
    """A sum of fourth powers, which takes many iterations."""

    n_weights, n_parts = 20, 1

    def evaluate(self, weights):
        scale = np.logspace(0.0, 6.0, 20)
        return ProblemValue(float(scale @ weights**4), 4.0 * scale * weights**3, 0, 1)

    def evaluate_part(self, weights, part):
        return self.evaluate(weights)


def test_the_rule_is_that_of_the_learners():
    """What the rule keeps is what `LBFGS` keeps with the same scores and patience."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = np.concatenate([np.cumsum(rng.random(rng.integers(1, 9))), rng.random(37)])
        given = iter(scores)
        fit = ff.LBFGS(38, tol=0.0, value_tol=0.0, patience=PATIENCE).minimize(
            Slow(), np.linspace(1.0, 3.0, 20), validation=lambda weights, given=given: next(given)
        )
        kept, end = stopped(course(scores[: fit.n_iter]))
        assert f"those of iteration {kept.iteration}," in fit.status
        assert end.iteration == fit.n_iter


def test_the_rule_waits_and_keeps_the_first_of_equals():
    scores = [0.1, 0.5, 0.5, *[0.4] * 7]
    kept, end = stopped(course(scores))
    assert (kept.iteration, end.iteration) == (2, 10)
    kept, end = stopped(course([*scores, 0.4, 0.4, 0.9]))  # too late
    assert (kept.iteration, end.iteration) == (2, 2 + PATIENCE)
    kept, end = stopped(course([*scores, 0.9]))
    assert (kept.iteration, end.iteration) == (11, 11)


def test_rows_never_look_at_test_scores():
    scores = [0.1, 0.6, 0.3]
    one = course_row(Course(course(scores, [0.0, 0.1, 0.9]), np.zeros(1), True, "converged."))
    two = course_row(Course(course(scores, [0.9, 0.2, 0.1]), np.zeros(1), True, "converged."))
    assert (one["test_f1"], two["test_f1"]) == (0.1, 0.2)
    differing = {key for key in one if one[key] != two[key]}
    assert differing == {"test_f1", "end_test_f1"}
    assert one["messages_per_gradient"] == 50.0
    assert (one["seconds"], one["end_seconds"]) == (1.0, 1.5)


def test_equal_quality_is_measured_in_each_fold():
    def rows(fold, method, scores):
        name = {"model": "2-clique", "fold": fold, "method": method, "l2": 0.1}
        points = course(scores)
        row = {**name, **course_row(Course(points, np.zeros(1), True, ""))}
        return row, [{**name, **vars(point)} for point in points]

    found = [
        rows(0, REFERENCE, [0.5, 0.7, 0.8]),
        rows(1, REFERENCE, [0.9, 0.9, 0.9]),
        rows(0, "CF5", [0.6, 0.795, 0.7]),
        rows(1, "CF5", [0.6, 0.7, 0.885]),
    ]
    points = [point for _, some in found for point in some]
    timed = seconds_to_quality([row for row, _ in found], points)
    assert [row["quality_seconds"] for row in timed] == [1.5, 0.5, 1.0, None]
    assert speed_ups(timed, "quality_seconds") == {REFERENCE: 1.0}  # CF5 is not there in fold 1
    assert speed_ups(timed[:3], "quality_seconds") == {REFERENCE: 1.0, "CF5": 1.0}
    assert speed_ups(timed[2:], "seconds") == {}


# -- what is counted --------------------------------------------------------------------------


def linked_chains(seed=0, n_mails=6):
    """Sparse features, a link, and labels that a feature shows."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(seed)
    examples, labels = [], []
    for _ in range(n_mails):
        words = rng.integers(0, 5, 9)
        features = np.eye(5)[words] + np.eye(5)[np.roll(words, 1)]
        examples.append((csr_matrix(features), [(0, 5), (2, 7)]))
        labels.append(((words == 3) ^ (rng.random(9) < 0.1)).astype(int).tolist())
    return examples, labels


def make(objective, learner):
    return ff.SkipChainCRF(
        objective, l2=0.3, learner=learner, fit_intercept=False, all_possible_transitions=True
    )


@pytest.mark.parametrize("method", METHODS)
def test_trainings_are_followed(method):
    examples, labels = linked_chains()
    seen = []

    def score(weights):
        seen.append(weights.copy())
        return 0.1 * len(seen), 0.0

    found = follow(make, method, examples, labels, score, 8, 1e-9)
    numbers = [point.iteration for point in found.points]
    assert numbers == list(range(1, len(seen) + 1))
    np.testing.assert_array_equal(found.weights, seen[-1])
    for key in ("seconds", "evaluations", "messages"):
        figures = [getattr(point, key) for point in found.points]
        assert all(np.diff(figures) >= 0), key
    assert all(point.evaluations >= point.iteration for point in found.points)
    # the same training without anybody looking
    plain = make(objective_of(method, Meter()), ff.LBFGS(8, tol=1e-9))
    with pytest.warns(ff.ConvergenceWarning):
        plain.fit(examples, labels)
    np.testing.assert_array_equal(plain.weights_, found.weights)


def test_the_clock_stands_still_while_mails_are_scored(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(
        "experiments.welling_sutton2005.speed.methods.time.process_time", lambda: now[0]
    )

    def score(weights):
        now[0] += 7.0
        return 0.0, 0.0

    found = follow(make, "CF2", *linked_chains(), score, 4, 1e-9)
    assert [point.seconds for point in found.points] == [0.0] * 4


def test_a_judge_predicts_like_the_estimator_that_was_trained():
    examples, labels = linked_chains()
    others = linked_chains(seed=1, n_mails=4)
    judge = Judge(make, examples, labels)
    trained = make(ff.Likelihood(PREDICTION), ff.LBFGS(30)).fit(examples, labels)
    true = np.concatenate(others[1])
    guess = np.concatenate(trained.predict(others[0]))
    expected = 2.0 * (true & guess).sum() / (true.sum() + guess.sum())
    assert judge.f1(trained.weights_, *others) == pytest.approx(expected, abs=1e-12)
    assert judge.f1(np.zeros_like(trained.weights_), *others) != pytest.approx(expected)


def test_schedules_and_starts_find_one_gradient():
    examples, labels = linked_chains()
    parts = Judge(make, examples, labels).problem.parts
    weights = 0.3 * np.random.default_rng(0).normal(size=parts[0].template.n_weights)
    gradients, messages = {}, {}
    for method in METHODS:
        meter = Meter()
        problem = ff.learners.TemplateProblem(objective_of(method, meter), parts)
        problem.evaluate(weights)
        before = meter.n_messages
        gradients[method] = problem.evaluate(weights).gradient
        messages[method] = meter.n_messages - before, before
    for method in METHODS[4:]:
        np.testing.assert_allclose(gradients[method], gradients[REFERENCE], atol=1e-4)
    assert messages["CF1"] < messages["CF2"] < messages["CF5"] < messages["CF10"]
    for method in METHODS:
        second, first = messages[method]
        assert second < first if method.endswith("warm") else second == first


# -- the whole experiment ---------------------------------------------------------------------


@pytest.fixture
def data(monkeypatch, tmp_path):
    """A folder with a few made-up mails, and the experiment on two folds of them."""
    rng = np.random.default_rng(3)
    lines = []
    for number in range(16):
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
    small = Design(n_folds=2, n_runs=2, n_penalty_runs=1, max_iter=15, min_count=1)
    monkeypatch.setattr(Speed, "full", small)
    return tmp_path / "data"


def test_mails_are_in_one_group_each(data):
    plan = Speed(replace(Speed.full, n_folds=4), Settings(data=data))
    groups = [plan._mails(1).training, plan._mails(1).held_out, plan._mails(1).test]
    sizes = [len(examples) for examples, _ in groups]
    assert sizes == [9, 3, 4]
    test = plan.labels[plan.folds.of(1)]
    assert groups[2][1] == test
    together = sorted(mail for _, labels in groups for mail in labels)
    assert together == sorted(plan.labels)
    assert all(len(examples) == len(labels) for examples, labels in groups)


def test_no_two_folds_learn_from_the_same_mails(data):
    plan = Speed(replace(Speed.full, n_folds=4), Settings(data=data))
    plan.__dict__["labels"] = [[number] for number in range(16)]  # who is who
    plan.__dict__["examples"] = [([{f"w{number}": 1.0}], []) for number in range(16)]
    learned = []
    for fold in range(4):
        mails = plan._cut(fold)
        groups = [
            {label for (label,) in g[1]} for g in (mails.training, mails.held_out, mails.test)
        ]
        assert groups[2] == set(range(16)[plan.folds.of(fold)])
        assert set.union(*groups) == set(range(16))
        assert sum(map(len, groups)) == 16
        learned.append(frozenset(groups[0]))
    assert len(set(learned)) == 4


def test_the_command(data, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["contrastive-speed", "--data", str(data), "--out", str(out), "--json"]
    assert main(command) == 0
    summary = json.loads(capsys.readouterr().out)
    with open(out / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    two = [(row["fold"], row["method"]) for row in rows if row["model"] == "2-clique"]
    assert two == [(fold, method) for fold in "01" for method in METHODS]
    four = [row for row in rows if row["model"] == "4-clique"]
    assert [(row["method"], row["l2"]) for row in four[:-1]] == [
        (method, l2) for method in ("CF5", "ML-bp, sequential, warm") for l2 in ("0.1", "1", "10")
    ]
    # the paper's propagation has the penalty of the other
    best = max(four[3:6], key=lambda row: float(row["held_out_f1"]))
    assert (four[-1]["method"], four[-1]["l2"]) == (REFERENCE, best["l2"])
    for row in rows:
        assert 0.8 <= float(row["test_f1"]) <= 1.0, row  # mails are alike
        assert int(row["iterations"]) <= int(row["stop_iterations"]) <= int(row["end_iterations"])
        assert int(row["messages"]) > 0
    with open(out / "courses.csv", newline="") as file:
        points = list(csv.DictReader(file))
    assert sum(int(row["end_iterations"]) for row in rows) == len(points)
    with open(out / "gradients.csv", newline="") as file:
        costs = list(csv.DictReader(file))
    trees = [int(row["messages"]) for row in costs if row["method"] == REFERENCE]
    assert len(trees) == 4
    assert trees == sorted(trees)
    report = (out / "report.md").read_text()
    assert "13.7 times faster" in report
    assert "validation score" not in report
    assert (out / "curves.png").exists()
    assert (out / "gradients.png").exists()
    mean = np.mean(
        [float(r["test_f1"]) for r in rows if (r["model"], r["method"]) == ("2-clique", "CF5")]
    )
    assert summary["headline"]["2-clique CF5 f1"] == pytest.approx(mean, abs=1e-6)
    assert summary["headline"][f"2-clique {REFERENCE} speed-up, kept"] == 1.0
    # a second run finds everything, and writes the same report
    assert main(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["tasks_found"] == again["tasks"] == len(rows) + 1
    assert (out / "report.md").read_text() == report


def test_the_full_design_is_the_papers():
    assert (FULL.n_folds, FULL.l2, FULL.n_mails) == (5, 0.1, None)
    assert FULL.n_runs >= 2
    assert FULL.n_penalty_runs >= 2
