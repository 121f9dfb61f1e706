"""`camel-diagnosis` at a small size, on pictures made here; its rounds against the library's."""

import csv
import dataclasses
from itertools import pairwise

import numpy as np
import pytest

import fieldfit as ff
from experiments.__main__ import main
from experiments.base import Settings
from experiments.driver import run_plan
from experiments.ganapathi2008.diagnosis import run as camel_diagnosis
from experiments.ganapathi2008.diagnosis.field import (
    Field,
    Precision,
    random_beliefs,
    rounds,
    smoothed_labels,
)
from experiments.ganapathi2008.diagnosis.pictures import (
    columns_of,
    cut_picture,
    normalised_cuts,
)
from experiments.ganapathi2008.diagnosis.report import CLASSIFIER
from experiments.ganapathi2008.diagnosis.run import MAIN, REMEDIES, Design, Diagnosis, Setting
from experiments.ganapathi2008.segmentation.classifier import Boosting
from experiments.ganapathi2008.segmentation.data import LABELS
from fieldfit.features.image import region_feature_names, superpixels
from fieldfit.learners import LBFGS, CamelRounds, Penalty, TemplateProblem

pytest.importorskip("skimage")
pytest.importorskip("matplotlib")

SMALL = Design(
    n_images=12,
    n_regions=16,
    n_halves=2,
    n_folds=3,
    boosting=Boosting(n_members=1, n_rounds=5),
    max_rounds=4,
    early=2,
    n_parts=2,
    shown=(0, 3),
    precise=Precision(tol=1e-6, learner_tol=1e-5, value_tol=1e-8),
    settings=(Setting("slic", "wide", "out of fold"), Setting("cuts", "narrow", "in sample")),
)
TIGHT = Precision(tol=1e-9, learner_tol=1e-7, value_tol=1e-13, max_iter=500)


def landscape(rng, height=24, width=36):
    """Sky over ground over water, the borders at random heights."""
    first, second = np.sort(rng.choice(np.arange(5, height - 4), 2, replace=False))
    truth = np.full((height, width), 2)
    truth[:second] = 5
    truth[:first] = 6
    colours = np.array(
        [[0] * 3, [0] * 3, [30, 60, 160], [0] * 3, [0] * 3, [150, 90, 40], [190, 220, 250]]
    )
    image = colours[truth] + rng.normal(scale=30.0, size=(height, width, 3))
    return np.clip(image, 0, 255).astype(np.uint8), truth.astype(np.uint8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of data sets with twelve landscapes for photographs."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "corel").mkdir()
    rng = np.random.default_rng(0)
    images, labels = zip(*(landscape(rng) for _ in range(12)), strict=True)
    np.savez(folder / "corel" / "corel.npz", images=np.stack(images), labels=np.stack(labels))
    return folder


@pytest.fixture(scope="module")
def outcome(data):
    return run_plan(Diagnosis(SMALL, Settings(data=data)))


@pytest.fixture(scope="module")
def small_field():
    """Four landscapes whose potentials are noisy indicators of the labels."""
    rng = np.random.default_rng(1)
    pictures = [
        cut_picture(image / 255.0, truth.astype(np.int32), 16, "slic")
        for image, truth in (landscape(rng) for _ in range(4))
    ]
    potentials = [
        np.eye(len(LABELS))[one.labels] + rng.normal(size=(one.n_regions, len(LABELS)))
        for one in pictures
    ]
    return Field(pictures, potentials, (np.zeros(len(LABELS)), np.ones(len(LABELS))))


def test_the_command_leaves_tables_and_pictures(data, tmp_path, monkeypatch, capsys):
    short = dataclasses.replace(SMALL, n_halves=1, settings=SMALL.settings[1:], max_rounds=2)
    monkeypatch.setattr(Diagnosis, "quick", short)
    monkeypatch.setattr(camel_diagnosis, "REMEDIES", ())
    out = tmp_path / "out"
    assert main(["camel-diagnosis", "--data", str(data), "--out", str(out), "--quick"]) == 0
    assert "cuts, narrow, in sample" in capsys.readouterr().out
    names = {"results.csv", "classifier.csv", "rounds.csv", "report.md", "objective.png"}
    assert {path.name for path in out.iterdir()} == {*names, "rows.jsonl", "arrays"}
    with open(out / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {*MAIN, "cccp-early"}


def test_rows_and_report(outcome):
    first, second = (setting.name for setting in SMALL.settings)
    for setting, methods in ((first, MAIN + REMEDIES), (second, MAIN)):
        rows = [row for row in outcome.rows if row["setting"] == setting]
        assert {(row["fold"], row["method"]) for row in rows} == {
            (half, method) for half in (0, 1) for method in (*methods, "cccp-early")
        }
    assert len({tuple(row) for row in outcome.rows}) == 1  # the same columns everywhere
    for row in outcome.rows:
        assert 0.0 <= row["accuracy"] <= 1.0
        if row["matched"] is not None:
            assert row["unmatched"] < 0.5
            assert 0.0 <= row["minima"] <= 1.0
    alone = outcome.tables["classifier"]
    assert {(row["setting"], row["method"]) for row in alone} == {
        ("slic, wide", CLASSIFIER),
        ("cuts, narrow", CLASSIFIER),
    }
    assert "never got worse" in outcome.report
    assert "84.4" in outcome.report
    assert f"{first}: cccp-homotopy" in outcome.headline


def test_rounds_rise(outcome):
    """``L_(t-1) <= D_t <= L_t`` in every run."""
    seen = outcome.tables["rounds"]
    runs = {(row["setting"], row["fold"], row["method"]) for row in seen}
    for run in runs:
        rows = [row for row in seen if (row["setting"], row["fold"], row["method"]) == run]
        whole = [row for row in rows if row["part"] == 1.0]
        for row in whole:
            assert row["bound"] <= row["objective"] + 0.1
        for before, row in pairwise(whole):
            assert before["objective"] <= row["bound"] + 0.1


def test_rounds_are_the_librarys(small_field):
    """Another route to the same weights, from CAMEL(0) on and from the labels."""
    n_rounds, l2 = 3, 0.5
    *_, last = rounds(small_field, l2, [0.0], TIGHT)
    centres = {"cccp": last.result.beliefs.unary_values, "cccp-empirical": None}
    for variant, centre in centres.items():
        objective = ff.Camel(variant, max_rounds=n_rounds, round_tol=1e-12, tol=1e-9)
        inner = LBFGS(max_iter=500, tol=1e-7, value_tol=1e-13)
        problem = TemplateProblem(objective, [small_field.part])
        fit = CamelRounds(objective, inner=inner).minimize(
            problem, np.zeros(problem.n_weights), penalty=Penalty(l2=l2)
        )
        assert "max_rounds" in fit.status
        parts = [1.0] * (n_rounds - 1 if centre is not None else n_rounds)
        start = smoothed_labels(small_field) if centre is None else centre
        *_, mine = rounds(small_field, l2, parts, TIGHT, last.weights, start)
        np.testing.assert_allclose(mine.weights, fit.weights, atol=2e-3)
        entropies = [row["entropy"] for row in fit.trace if "entropy" in row]
        assert entropies[-1] == pytest.approx(
            small_field.objective(mine.result.beliefs, l2), rel=1e-5
        )


def test_beliefs_of_the_last_round_stay_under_propagation(small_field):
    """Converged rounds end at a stationary point of Bethe's free energy with the moments."""
    *_, first = rounds(small_field, 5.0, [0.0], TIGHT)
    start = first.result.beliefs.unary_values
    for one in rounds(small_field, 5.0, [1.0] * 60, TIGHT, first.weights, start):
        if one.change < 1e-7:
            break
    pi = one.result.beliefs
    assert np.abs(small_field.mismatch(pi) - 5.0 * one.weights).max() < 1e-4
    warm = small_field.propagate(one.weights, one.result)
    assert small_field.distance(pi, warm.beliefs) < 1e-3
    assert small_field.value(one.weights, pi) == pytest.approx(warm.log_partition, rel=1e-6)
    assert small_field.minima(pi) == 1.0


def test_starts_are_beliefs(small_field):
    for start in (smoothed_labels(small_field), random_beliefs(small_field, [0, 0])):
        table = start.reshape(-1, len(LABELS))
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
        assert table.min() > 0.0
    found = smoothed_labels(small_field).reshape(-1, len(LABELS)).argmax(axis=1)
    np.testing.assert_array_equal(found, small_field.labels)


def test_normalised_cuts_follow_colours():
    image = np.zeros((30, 40, 3))
    image[:, 20:] = 1.0
    small = superpixels(image, 60)
    joined = normalised_cuts(image, small, 10)
    assert 10 <= joined.max() + 1 <= 20
    assert not set(joined[:, :19].ravel()) & set(joined[:, 21:].ravel())
    np.testing.assert_array_equal(normalised_cuts(image, small, 1000), small)


def test_the_narrow_classifier_sees_no_context():
    names = np.array(region_feature_names())
    seen = set(names[columns_of("narrow")])
    assert "mean lightness" in seen
    assert not any("picture" in name or "neighbours" in name for name in seen)
    assert len(columns_of("wide")) == len(names) > 2 * len(seen)


def test_a_run_can_be_repeated(data, outcome, monkeypatch):
    """What a setting finds depends on seed, design and data alone."""
    monkeypatch.setattr(camel_diagnosis, "REMEDIES", ())
    one = dataclasses.replace(SMALL, n_halves=1, settings=SMALL.settings[1:])
    again = run_plan(Diagnosis(one, Settings(data=data))).rows
    name = SMALL.settings[1].name
    before = [row for row in outcome.rows if row["setting"] == name and row["fold"] == 0]
    keys = "method", "accuracy", "training", "objective"
    assert [[row[key] for key in keys] for row in again] == [
        [row[key] for key in keys] for row in before
    ]
