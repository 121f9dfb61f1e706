"""`mle-struct-house-hotel`: features, choice of penalties, a small run, and the real landmarks."""

from __future__ import annotations

import csv
import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.base import Settings
from experiments.driver import run_plan
from experiments.tang2016.house_hotel.data import KINDS, edge_features, read_sequences
from experiments.tang2016.house_hotel.methods import METHODS, Options, choose, unweighted_errors
from experiments.tang2016.house_hotel.report import mean_share
from experiments.tang2016.house_hotel.run import Design, HouseHotel, _hinge

SMALL = Design(
    gaps=(0, 30),
    kinds=("squared", "chi-square"),
    kind_gaps=(30,),
    penalties=(0.1, 10.0),
    kind_penalties=(1.0,),
    rhos=(0.5, 1.0),
    rho_gaps=(30,),
    n_timed=3,
    timed_gaps=(30,),
)


def write_sequences(folder):
    """Six landmarks whose first three bins are theirs and whose last three are noise."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name in ("house", "hotel"):
        own = np.array([[0, 0, 4], [0, 4, 0], [4, 0, 0], [4, 4, 0], [0, 4, 4], [4, 4, 4]])
        own = np.repeat(own[None], 60, axis=0)
        own = own + rng.integers(0, 2, own.shape)
        noise = rng.integers(0, 7, (60, 6, 3))
        arrays[f"{name}_shape_context"] = np.concatenate([own, noise], axis=2).astype(np.uint8)
        arrays[f"{name}_points"] = rng.random((60, 6, 2))
        arrays[f"{name}_pairs"] = np.array(
            [(gap, i % 3, i, i + gap) for gap in (0, 30) for i in range(60 - gap)], dtype=np.int16
        )
    (folder / "cmu_house_hotel").mkdir(parents=True)
    np.savez_compressed(folder / "cmu_house_hotel" / "house_hotel.npz", **arrays)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("squared", 9.0), ("absolute", 3.0), ("chi-square", 9.0 / 5.0), ("root", 1.0)],
)
def test_features(kind, expected):
    found = edge_features(np.array([[1.0, 0.0]]), np.array([[4.0, 0.0], [1.0, 0.0]]), kind)
    np.testing.assert_allclose(found, [[[-expected, 0.0], [0.0, 0.0]]], atol=1e-12)


def test_kinds_are_known():
    assert set(KINDS) == {"squared", "absolute", "chi-square", "root"}
    with pytest.raises(ValueError, match="kind must be one of"):
        edge_features(np.ones((1, 2)), np.ones((1, 2)), "cosine")


def test_ties_go_to_the_larger_penalty():
    certain = [10.0 * np.eye(3)[..., None] for _ in range(3)]
    found = choose("mle-struct", certain, certain, (0.1, 1.0), Options("squared", 0.5, 1e-3, 50))
    assert found.validation_error == 0.0
    assert found.l2 == 1.0


def test_the_command(monkeypatch, tmp_path, capsys):
    write_sequences(tmp_path / "data")
    monkeypatch.setattr(HouseHotel, "full", SMALL)
    out = tmp_path / "out"
    data = ["--data", str(tmp_path / "data")]
    assert main(["mle-struct-house-hotel", *data, "--out", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    with open(out / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["sequence"], row["gap"], row["method"]) for row in rows] == [
        (sequence, gap, method)
        for sequence in ("house", "hotel")
        for gap in ("0", "30")
        for method in METHODS
    ]
    assert {"method", "seconds", "converged", "sequence", "gap", "error", "l2", "rho"} <= set(
        rows[0]
    )
    errors = {(r["sequence"], r["gap"], r["method"]): float(r["error"]) for r in rows}
    for sequence in ("house", "hotel"):
        assert errors[sequence, "0", "unweighted"] == 0.0  # a frame with itself
        for method in ("mle-struct", "max-margin"):  # noise is to be ignored
            assert errors[sequence, "30", method] < 0.5 * errors[sequence, "30", "unweighted"]
            key = f"{sequence} {method} share of unweighted"
            assert summary["headline"][key] < 0.5
    with open(out / "rho.csv", newline="") as file:
        assert [row["rho"] for row in csv.DictReader(file)] == ["0.5", "1"]
    with open(out / "kinds.csv", newline="") as file:
        kinds = list(csv.DictReader(file))
    assert [row["kind"] for row in kinds if row["chosen"] == "True"] == [
        min(kinds, key=lambda row: float(row["validation_error"]))["kind"]
    ]
    with open(out / "matches.csv", newline="") as file:
        matches = list(csv.DictReader(file))
    assert len(matches) == 2 * 10 * 6
    assert all(0.0 <= float(row["confidence"]) <= 1.0 + 1e-6 for row in matches)
    for figure in ("error", "rho", "confidence", "landmarks"):
        assert (out / f"{figure}.png").exists()


def test_hinge_loss_by_enumeration():
    rng = np.random.default_rng(0)
    for _ in range(5):
        scores = rng.normal(size=(4, 4))
        values = [
            sum(scores[i, j] + (i != j) for i, j in enumerate(partners)) - scores.trace()
            for partners in itertools.permutations(range(4))
        ]
        assert _hinge(scores) == pytest.approx(max(values), abs=1e-12)


def test_data_that_are_not_there(tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    assert main(["mle-struct-house-hotel", *out]) == 2
    assert "--data must name" in capsys.readouterr().err
    assert main(["mle-struct-house-hotel", "--data", str(tmp_path), *out]) == 2
    assert "--data must have the file" in capsys.readouterr().err


@pytest.mark.data
@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
def test_real_landmarks():
    folder = Path(os.environ["FIELDFIT_DATA"])
    expected = {"house": (0.015, 0.145, 0.524), "hotel": (0.030, 0.184, 0.544)}
    for sequence in read_sequences(folder):
        found = [
            unweighted_errors([sequence.features(pair, "squared") for pair in pairs])
            for pairs in (sequence.of(gap, "test") for gap in (30, 50, 90))
        ]
        np.testing.assert_allclose(found, expected[sequence.name], atol=6e-4)
    design = Design(
        gaps=(90,), kinds=("chi-square",), penalties=(1.0,), rhos=(0.5,), rho_gaps=(90,), n_timed=5
    )
    outcome = run_plan(HouseHotel(design, Settings(data=folder)))
    assert mean_share(outcome.rows, "house", "mle-struct") <= 0.35
    assert all(row["converged"] for row in outcome.rows)
