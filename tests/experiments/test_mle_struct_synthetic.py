"""`mle-struct-synthetic`: exact draws, estimators, brackets, and a small run of the command."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest

import fieldfit as ff
from experiments.__main__ import main
from experiments.tang2016.synthetic.methods import (
    ESTIMATORS,
    estimate,
    sample_matchings,
    signal_weights,
)
from experiments.tang2016.synthetic.report import n_violations
from experiments.tang2016.synthetic.run import Design, RandomMatchings

SMALL = Design(sizes=(3, 4), n_samples=(5, 40), n_repeats=2)


def test_draws_have_the_distribution():
    rng = np.random.default_rng(0)
    weights = signal_weights(4, 1.5, 0.5, rng)
    n_samples = 40_000
    drawn = sample_matchings(weights, n_samples, rng)
    scores = {
        order: np.exp(weights[np.arange(4), list(order)].sum())
        for order in itertools.permutations(range(4))
    }
    total = sum(scores.values())
    found = dict.fromkeys(scores, 0)
    for row in drawn.tolist():
        found[tuple(row)] += 1
    for order, score in scores.items():
        share = score / total
        error = 4.5 * np.sqrt(share * (1.0 - share) / n_samples)
        assert found[order] / n_samples == pytest.approx(share, abs=error)


@pytest.mark.parametrize("name", ["bethe", "rw"])
def test_one_weighted_example_is_many_samples(name):
    """The estimate from the mean matching equals that from one example for each sample."""
    rng = np.random.default_rng(1)
    drawn = sample_matchings(signal_weights(4, 1.0, 0.2, rng), 12, rng)
    found = estimate(name, drawn, 1.0, 1e-8)
    assert found.converged
    features = np.broadcast_to(np.eye(16).reshape(4, 4, 16), (12, 4, 4, 16))
    crf = ff.MatchingCRF(ff.MLEStruct(tol=1e-7), rho=ESTIMATORS[name], l2=1.0, max_iter=2000)
    crf.fit(features, list(drawn))
    np.testing.assert_allclose(found.weights.ravel(), crf.weights_, rtol=0, atol=2e-3)


def test_estimates_are_bracketed():
    rng = np.random.default_rng(2)
    drawn = sample_matchings(signal_weights(5, 2.0, 0.1, rng), 30, rng)
    found = {name: estimate(name, drawn, 1.0, 1e-7) for name in ESTIMATORS}
    assert all(one.converged for one in found.values())
    assert found["rw"].surrogate < found["exact"].surrogate < found["bethe"].surrogate
    best = found["exact"].log_likelihood
    assert best == pytest.approx(found["exact"].surrogate, abs=1e-6)
    assert all(found[name].log_likelihood < best for name in ("bethe", "rw"))


def test_violations_are_counted():
    key = {"signal": "low", "n": 3, "n_samples": 5}
    rows = [
        {**key, "repeat": repeat, "method": method, "surrogate": value}
        for repeat, values in enumerate([(-3.0, -2.0, -1.0), (-1.0, -2.0, -3.0)])
        for method, value in zip(("rw", "exact", "bethe"), values, strict=True)
    ]
    assert n_violations(rows) == 1


def test_the_command(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(RandomMatchings, "full", SMALL)
    out = tmp_path / "out"
    assert main(["mle-struct-synthetic", "--out", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["headline"]["violated brackets"] == 0
    assert summary["headline"]["runs"] == 2 * 2 * 2 * 2
    with open(out / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 16
    assert {row["method"] for row in rows} == set(ESTIMATORS)
    assert {"seconds", "converged", "log_likelihood", "surrogate"} <= set(rows[0])
    for row in rows:
        if row["method"] == "exact":
            assert float(row["log_likelihood"]) == pytest.approx(float(row["surrogate"]), abs=1e-5)
    report = (out / "report.md").read_text()
    assert "violated in 0 of 16 runs" in report
    assert (out / "likelihood.png").exists()
    assert (out / "brackets.png").exists()
