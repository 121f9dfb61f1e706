"""The experiment ``mle-struct-roommates``: draws, scores, waves, and the whole on a small scale."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from experiments.base import Settings
from experiments.driver import run_plan
from experiments.tang2016.roommates import data as dating
from experiments.tang2016.roommates.rooms import PREFERENCES, ROOM_METHODS, _draw, draw_rooms
from experiments.tang2016.roommates.run import COLUMNS, Design, RoomMates
from experiments.tang2016.roommates.scores import area_under_curve, calibration_error, log_loss
from experiments.tang2016.roommates.waves import BEFORE, GIVEN_DEGREES

COLUMN_NAMES = (
    "iid pid gender wave match samerace int_corr imprace goal age go_out date exphappy "
    + " ".join(f"{quality}{kind}" for quality in dating.QUALITIES for kind in ("1_1", "3_1"))
).split()


def write_waves(folder, n_waves=12, size=5, seed=0):
    """A table of meetings in which people of one race match more often."""
    rng = np.random.default_rng(seed)
    lines = [",".join(COLUMN_NAMES)]
    for wave in range(1, n_waves + 1):
        first = 100 * wave
        people = {
            first + k: {
                "age": int(rng.integers(20, 35)), "imprace": 5, "goal": int(rng.integers(1, 3)),
                "go_out": 2, "date": int(rng.integers(1, 7)), "exphappy": int(rng.integers(1, 9)),
                **{f"{q}1_1": 20 for q in dating.QUALITIES},
                **{f"{q}3_1": int(rng.integers(4, 10)) for q in dating.QUALITIES},
            }
            for k in range(2 * size)
        }  # fmt: skip
        for she, he in itertools.product(
            range(first, first + size), range(first + size, first + 2 * size)
        ):
            same = int(rng.random() < 0.5)
            match = int(rng.random() < (0.7 if same else 0.05))
            for one, other, gender in ((she, he, 0), (he, she, 1)):
                row = people[one] | {
                    "iid": one, "pid": other, "gender": gender, "wave": wave, "match": match,
                    "samerace": same, "int_corr": "" if one == first else 0.2,
                }  # fmt: skip
                lines.append(",".join(str(row[name]) for name in COLUMN_NAMES))
    path = folder / dating.FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


def test_rooms_are_drawn_from_the_model():
    """Shares of the three matchings of four people, within four standard errors."""
    rng = np.random.default_rng(0)
    weights = np.triu(rng.normal(size=(4, 4)), 1)
    weights = weights + weights.T
    partner = [int(_draw(weights, rng)[0]) for _ in range(4000)]
    scores = np.array([weights[0, 1] + weights[2, 3], weights[0, 2] + weights[1, 3],
                       weights[0, 3] + weights[1, 2]])  # fmt: skip
    expected = np.exp(scores - np.logaddexp.reduce(scores))
    found = np.bincount(partner, minlength=4)[1:] / 4000
    assert np.all(np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000))


def test_features_of_rooms():
    rooms = draw_rooms(3, 6, np.random.default_rng(1))
    for x, y in zip(rooms.X, rooms.Y, strict=True):
        assert x.shape == (6, 6, len(PREFERENCES))
        assert_allclose(x, x.transpose(1, 0, 2))
        assert (y[y] == np.arange(6)).all()
        assert (y != np.arange(6)).all()


def test_scores():
    used = np.array([True, False, True, False])
    assert area_under_curve(np.array([0.9, 0.1, 0.8, 0.2]), used) == 1.0
    assert area_under_curve(np.zeros(4), used) == 0.5
    assert_allclose(log_loss(np.full(4, 0.5), used), np.log(2.0))
    assert np.isfinite(log_loss(np.array([0.0, 1.0, 0.0, 1.0]), used))
    rng = np.random.default_rng(2)
    p = rng.random(20_000)
    drawn = rng.random(20_000) < p
    assert calibration_error(p, drawn) < 0.02 < 0.1 < calibration_error(p**2, drawn)


def test_waves(tmp_path):
    waves = dating.read_waves(write_waves(tmp_path) / dating.FILE)
    assert [wave.number for wave in waves] == list(range(1, 13))
    for wave in waves:
        assert wave.features.shape[:2] == wave.matches.shape == (5, 5)
        assert wave.met.all()
        women, men = wave.degrees
        assert women.sum() == men.sum() == wave.matches.sum()
    same = np.concatenate([w.features[..., 3].reshape(-1) for w in waves])
    assert set(same) == {0.0, 1.0}


def test_the_whole_experiment(tmp_path):
    data = write_waves(tmp_path)
    design = Design(
        n_people=6, n_train=(6,), n_test=10, n_repeats=1, l2=3.0, tol=1e-2, n_folds=3, n_runs=1
    )
    outcome = run_plan(RoomMates(design, Settings(data=data)))
    assert all(tuple(row) == COLUMNS for row in outcome.rows)
    found = {
        part: tuple(row["method"] for row in outcome.rows if row["part"] == part)
        for part in ("rooms", "dating", "dating-degrees")
    }
    assert found == {"rooms": ROOM_METHODS, "dating": BEFORE, "dating-degrees": GIVEN_DEGREES}
    rooms = {row["method"]: row for row in outcome.rows if row["part"] == "rooms"}
    assert rooms["true weights"]["weight_error"] == 0.0
    for row in rooms.values():
        if row["log_likelihood"] is not None:
            assert row["log_likelihood_lower"] <= row["log_likelihood"]
    given = {row["method"]: row for row in outcome.rows if row["part"] == "dating"}
    assert given["base rate"]["auc"] == 0.5
    assert given["logistic"]["auc"] > 0.6  # the table has a signal
    assert abs(given["logistic"]["auc"] - given["mle-struct"]["auc"]) < 0.1
    assert "speed dating" in outcome.report.lower()
    figure = pytest.importorskip("matplotlib.figure").Figure
    for draw in outcome.figures.values():
        draw(figure())
