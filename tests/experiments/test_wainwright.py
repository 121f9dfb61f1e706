"""The experiment ``wainwright-fig3`` at a small size."""

import csv
import dataclasses
import json
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

from experiments.__main__ import main
from experiments.base import Settings
from experiments.driver import run_plan
from experiments.wainwright2005.run import Figure3
from experiments.wainwright2005.summary import Summary
from experiments.wainwright2005.trial import METHODS, SPINS, Design, run_trial
from fieldfit import Exact, Potentials

pytest.importorskip("matplotlib")

SMALL = Design(
    size=3,
    couplings=(0.0, 0.5, 1.0),
    alphas=(0.0, 0.1, 0.5, 1.0),
    n_trials=2,
    n_samples=1500,
    n_observations=3,
)


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def small_run(monkeypatch, tmp_path):
    """The command with both designs made small."""
    monkeypatch.setattr(Figure3, "full", SMALL)
    monkeypatch.setattr(Figure3, "quick", dataclasses.replace(SMALL, has_variants=False))
    return tmp_path / "out"


def test_a_run_leaves_table_report_and_figures(small_run, capsys):
    assert main(["wainwright-fig3", "--out", str(small_run), "--n-jobs", "2"]) == 0
    captured = capsys.readouterr()
    assert "bimodal, TRW: loss in percent" in captured.out
    assert "written:" in captured.err
    assert "100 %" in captured.err
    names = sorted(path.name for path in small_run.iterdir())
    assert names == [
        "curves.png", "report.md", "results.csv", "rows.jsonl", "surfaces.png", "variants.csv",
    ]  # fmt: skip
    rows = read_rows(small_run / "results.csv")
    settings = {(r["ensemble"], r["coupling"], r["alpha"], r["method"]) for r in rows}
    assert len(settings) == len(rows) == 2 * 3 * 4 * 3
    assert {row["method"] for row in rows} == {"IND", "BP", "TRW"}
    assert {row["ensemble"] for row in rows} == {"bimodal", "heavy"}
    needed = {"loss_percent", "loss_percent_limit", "seconds", "converged", "standard_error"}
    assert needed <= set(rows[0])
    for row in rows:
        assert float(row["loss_percent"]) >= 0.0
        assert 0.0 <= float(row["converged"]) <= 1.0
        if row["alpha"] == "1":
            assert float(row["loss_percent"]) == 0.0
        assert (row["bound_percent"] == "") == (row["method"] != "TRW")
    report = (small_run / "report.md").read_text()
    assert "python -m experiments wainwright-fig3 --out DIR --n-jobs 2" in report
    assert "numpy " in report
    assert "Seed 0" in report
    assert "measured increase in 0 of" in report
    for picture in re.findall(r"\]\(([^)]+)\)", report):
        assert (small_run / picture).read_bytes().startswith(b"\x89PNG")


def test_json_and_quick(small_run, capsys):
    arguments = ["wainwright-fig3", "--quick", "--seed", "3", "--json"]
    assert main([*arguments, "--out", str(small_run)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["quick"]
    assert answer["seed"] == 3
    assert len(answer["files"]) == 4
    assert answer["headline"]["bimodal TRW largest"] > 0.0
    assert "A quick run" in (small_run / "report.md").read_text()


def test_quick_and_full_designs_cover_the_corners():
    for design in (Figure3.quick, Figure3.full):
        assert {0.0, 0.5, 1.0} <= set(design.couplings)
        assert {0.0, 0.1, 1.0} <= set(design.alphas)
        assert design.size == 8
    assert Figure3.full.n_trials == 100


def test_trials_do_not_depend_on_threads_but_on_the_seed():
    losses = [
        [row["loss_percent"] for row in run_plan(Figure3(SMALL, settings)).rows]
        for settings in (Settings(seed=1), Settings(seed=1, n_jobs=2), Settings(seed=2))
    ]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_a_trial_against_predictions_made_by_hand():
    """The recorded increase is the mean squared distance from the Bayes estimate."""
    design = dataclasses.replace(SMALL, has_variants=False)
    trial = run_trial(design, 1.0, np.random.default_rng(5))
    generator = np.random.default_rng(5)
    graph = design.graph()
    truth = Potentials(
        graph, factors=generator.uniform(0.0, 1.0, graph.n_factors)[:, None, None] * SPINS
    )
    moments = Exact().run(graph, truth).beliefs
    for method in METHODS.values():
        model = method.limit(graph, moments)
        beliefs = model.predict_marginals(np.full(9, np.nan), 0.5)
        assert_allclose(beliefs, moments.unary_matrix(), atol=1e-7)
    # in the ordered field neighbours tell much: independence loses, exact inference does not
    assert trial.increase["bimodal", "IND"][2] > 0.01
    assert np.all(trial.increase["bimodal", "TRW limit"] <= trial.bound["bimodal"] + 1e-12)
    assert_allclose(trial.risk["bimodal"][0], 1.5, rtol=1e-9)  # the variance of the signal
    assert_allclose(trial.risk["heavy"][0], 5.0, rtol=1e-9)
    assert_allclose(trial.risk["heavy"][-1], 0.0, atol=1e-12)


def test_without_coupling_everybody_is_the_bayes_estimator():
    trial = run_trial(dataclasses.replace(SMALL, n_samples=200_000), 0.0, np.random.default_rng(6))
    for (ensemble, method), increase in trial.increase.items():
        relative = increase[:-1] / trial.risk[ensemble][:-1]
        most = 1e-12 if method.endswith("limit") else 0.01 if "1,000" in method else 2e-4
        assert relative.max() < most, (ensemble, method)


def test_summary_agrees_with_plain_errors_within_noise():
    design = dataclasses.replace(
        SMALL, couplings=(1.0,), alphas=(0.5,), n_trials=4, n_observations=400, has_variants=False
    )
    trials = [run_trial(design, 1.0, np.random.default_rng(seed)) for seed in range(4)]
    summary = Summary(design, [trials])
    loss, error = summary.loss("bimodal", "IND")
    plain = summary.plain_loss("bimodal", "IND")
    assert loss[0, 0] > 5.0
    assert abs(loss[0, 0] - plain[0, 0]) < 3.0
    assert error[0, 0] > 0.0
    gap, _ = summary.difference("bimodal", "IND", "TRW")
    assert_allclose(gap, loss - summary.loss("bimodal", "TRW")[0])


def test_the_bayes_estimator_is_not_beaten():
    """On many signals nobody has a smaller squared error than exact inference in the true field."""
    design = dataclasses.replace(
        SMALL, couplings=(1.0,), alphas=(0.3,), n_observations=3000, has_variants=False
    )
    trial = run_trial(design, 1.0, np.random.default_rng(8))
    for method in METHODS:
        assert trial.errors["bimodal", method][0] > trial.error["bimodal"][0]
