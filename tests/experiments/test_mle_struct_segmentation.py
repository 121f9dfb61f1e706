"""`mle-struct-segmentation`: pictures, clocks, courses, and the whole on a small scale."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fieldfit as ff
from experiments.base import Settings
from experiments.driver import run_experiment
from experiments.tang2016.segmentation import run as experiment
from experiments.tang2016.segmentation.data import (
    FILE,
    distinct,
    pixel_features,
    read_horses,
)
from experiments.tang2016.segmentation.figures import shown_indices
from experiments.tang2016.segmentation.methods import (
    AVERAGED,
    BLOCKS,
    DOUBLE_LOOPS,
    METHODS,
    VARIANTS,
    Limits,
    Surrogate,
    objective_of,
    train,
)
from experiments.tang2016.segmentation.report import _said
from experiments.tang2016.segmentation.run import Segmentation
from experiments.tang2016.segmentation.times import Course, course_of, optimum_of
from fieldfit.errors import InvalidInputError

SMALL = experiment.Design(
    n_training=8,
    n_test=5,
    side=16,
    penalties=(50.0, 500.0),
    followed=(50.0, 500.0),
    n_variants=3,
    limits=Limits(max_iter=30, n_passes=8, n_map_passes=4, n_epochs=2),
)


def write_pictures(folder, n=15, side=16, seed=0):
    """Bright blobs near the middle of noisy pictures, the last one a copy of the first."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    images = rng.integers(0, 120, size=(n, side, side, 3)).astype(np.uint8)
    masks = np.zeros((n, side, side), dtype=np.uint8)
    for image, mask in zip(images, masks, strict=True):
        row, column = rng.integers(side // 3, 2 * side // 3, size=2)
        mask[(rows - row) ** 2 + (columns - column) ** 2 < (side / 5) ** 2] = 1
        image[mask == 1] += 90
    images[-1] = images[0]
    path = folder / FILE
    path.parent.mkdir(parents=True)
    np.savez(path, images=images, masks=masks)
    return folder


@pytest.fixture(scope="module")
def horses(tmp_path_factory):
    return read_horses(write_pictures(tmp_path_factory.mktemp("data")), 8, 5, 16, 0)


def test_pictures_are_standardised_and_copies_left_out(tmp_path, horses):
    known = np.concatenate([x.reshape(-1, x.shape[2]) for x in horses.training])
    assert_allclose(known.mean(axis=0), 0.0, atol=1e-9)
    assert_allclose(known.std(axis=0), 1.0, atol=1e-9)
    folder = write_pictures(tmp_path)
    with pytest.raises(InvalidInputError, match="at least 15 different pictures, found 14"):
        read_horses(folder, 10, 5, 16, 0)
    with pytest.raises(InvalidInputError, match="without it"):
        read_horses(tmp_path / "nowhere", 10, 5, 16, 0)
    rng = np.random.default_rng(1)
    pictures = [rng.random((4, 4, 3)) for _ in range(3)]
    assert distinct([*pictures, 0.5 * pictures[1], pictures[0] + 0.1]).tolist() == [0, 1, 2]


def test_features_know_no_labels_and_are_finite():
    picture = np.random.default_rng(2).random((16, 16, 3))
    assert pixel_features(picture).shape == (16, 16, 23)
    assert np.isfinite(pixel_features(np.zeros((16, 16, 3)))).all()


def test_reduced_pictures_keep_pixels_and_labels_together(tmp_path):
    folder = write_pictures(tmp_path, side=32)
    found = read_horses(folder, 8, 5, 16, 0)
    for picture, labels in zip(found.test_pictures, found.test_labels, strict=True):
        assert (picture.shape, labels.shape) == ((16, 16, 3), (16, 16))
        assert picture[labels == 1].mean() > picture[labels == 0].mean() + 0.2


def test_predictions_belong_to_their_pictures(horses):
    """Errors of the experiment against those of the estimator, picture by picture."""
    trained = train(
        objective_of("trw"), horses.training, horses.training_labels, 50.0, SMALL.limits, 0
    )
    found = trained.predict(horses.test)
    errors = experiment._errors(horses.test_labels, found)
    for error, x, y in zip(errors, horses.test, horses.test_labels, strict=True):
        assert_allclose(1.0 - error, trained.crf.score([x], [y]), atol=1e-12)


def test_the_surrogate_is_what_the_double_loop_minimises(horses):
    given = horses.training, horses.training_labels
    surrogate = Surrogate(*given)
    trained = train(objective_of("trw"), *given, 50.0, SMALL.limits, 0)
    assert len(trained.seconds) == len(trained.weights) == len(trained.crf.trace_)
    assert np.all(np.diff(trained.seconds) >= 0.0)
    own = course_of(trained, surrogate, 50.0, is_value=True)
    again = course_of(trained, surrogate, 50.0, is_value=False)
    assert_allclose(own.values, again.values, rtol=1e-8)
    others = [train(objective_of(name), *given, 50.0, SMALL.limits, 0) for name in DOUBLE_LOOPS[1:]]
    for other in others:
        assert_allclose(surrogate.value(other.weights[-1], 50.0), again.values[-1], rtol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_gaps_of_all_variants_are_certificates(horses, name):
    given = horses.training[:4], horses.training_labels[:4]
    l2 = 300.0
    best = train(objective_of("trw"), *given, l2, Limits(value_tol=1e-12), 0)
    optimum = best.crf.trace_[-1]["objective"]
    trained = train(VARIANTS[name], *given, l2, SMALL.limits, 0)
    surrogate = Surrogate(*given)
    for row, weights in zip(trained.crf.trace_, trained.weights, strict=True):
        assert row["objective"] <= optimum * (1.0 + 1e-7)
        assert row["gap"] >= optimum * (1.0 - 1e-7) - row["objective"]
        assert surrogate.value(weights, l2) >= optimum * (1.0 - 1e-7)


def test_a_course_has_to_stay_within_the_share():
    course = Course(
        [1.0, 2.0, 3.0, 4.0, 5.0], np.array([2.0, 1.005, 1.2, 1.004, 1.0]), [None] * 5,
        [0.3, 0.1, None, 0.2, 0.1],
    )  # fmt: skip
    assert course.seconds_to_error(0.15) == 5.0
    assert course.seconds_to_error(0.25) == 2.0
    assert course.seconds_to_error(0.05) is None
    assert optimum_of([course]) == 1.0
    assert course.iterations_to(1.0, 0.01) == 4
    assert course.seconds_to(1.0, 0.01) == 4.0
    assert course.seconds_to(1.0, 0.5) == 2.0
    assert course.iterations_to(0.5, 0.01) is None
    assert course.seconds_to(0.5, 0.01) is None


def test_the_report_says_who_does_not_get_there():
    def row(method, seconds, times):
        return {
            "l2": 1.0, "method": method, "seconds_to_1_percent": seconds, "times_mle_struct": times,
        }  # fmt: skip

    speed = [row("trw", 4.0, None), row("trw-loose", None, None), row("trw-afresh", 6.0, 2.0)]
    assert _said(speed, 1.0, "trw") == "4.0 s, where `mle-struct` never stays there"
    assert _said(speed, 1.0, "trw-loose") == "never"
    assert _said(speed, 1.0, "trw-afresh") == "2.0 times"


def test_scores():
    truth, found = [np.array([[0, 1], [1, 1]])], [np.array([[0, 1], [0, 1]])]
    assert experiment._errors(truth, found) == [0.25]
    assert_allclose(experiment.intersection_over_union(truth, found), 2 / 3)
    assert shown_indices([0.3, 0.1, 0.2]) == [1, 2, 0]


def test_the_whole(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(Segmentation, "quick", SMALL)
    settings = Settings(quick=True, data=write_pictures(tmp_path / "data"))
    run_experiment("mle-struct-segmentation", tmp_path / "out", settings)
    with open(tmp_path / "out" / "results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["objective"] for row in rows] == list(METHODS)
    assert {"method", "objective", "test_error", "seconds", "converged"} <= set(rows[0])
    by_name = {row["method"]: row for row in rows}
    assert float(by_name["mle-struct"]["gap"]) > 0.0
    assert float(by_name["trw"]["test_error"]) < 0.1  # of blobs that are plain to see
    with open(tmp_path / "out" / "speed.csv", encoding="utf-8") as file:
        speed = list(csv.DictReader(file))
    assert {float(row["l2"]) for row in speed} == set(SMALL.penalties)
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    for words in (
        "## What was tried",
        "## What was found",
        "curves.png",
        "errors.png",
        "pictures.png",
    ):
        assert words in report
    assert (tmp_path / "out" / "curves.png").is_file()
    with open(tmp_path / "out" / "errors.csv", encoding="utf-8") as file:
        errors = {row["method"]: row for row in csv.DictReader(file)}
    assert set(errors) == {"mle-struct", BLOCKS, AVERAGED, *DOUBLE_LOOPS}
    assert_allclose(
        float(errors["trw"]["test_error"]), float(by_name["trw"]["test_error"]), rtol=1e-12
    )


@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
def test_real_pictures():
    """A logistic model of the pixels is better than no horse at all, by far."""
    found = read_horses(Path(os.environ["FIELDFIT_DATA"]), 20, 10, 32, 0)
    crf = ff.GridCRF("pseudolikelihood", l2=100.0, pairwise="potts", directions="shared")
    crf.fit(found.training, found.training_labels)
    nothing = 1.0 - np.mean([labels.mean() for labels in found.test_labels])
    assert crf.score(found.test, found.test_labels) > nothing + 0.05
