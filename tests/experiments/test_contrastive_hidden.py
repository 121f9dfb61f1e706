"""`contrastive-hidden` at a small size."""

import csv

import numpy as np
import pytest

import fieldfit as ff
from experiments.__main__ import main
from experiments.base import Settings
from experiments.driver import run_plan
from experiments.welling_sutton2005.hidden.report import INDEPENDENT
from experiments.welling_sutton2005.hidden.run import (
    METHODS,
    Design,
    HiddenUnits,
    binary_digits,
    layer_edges,
    with_hidden,
)
from fieldfit.errors import InvalidInputError

pytest.importorskip("matplotlib")

SMALL = Design(
    n_training=200, n_test=100, n_pixels=4, n_hidden=3, n_repeats=1, max_iter=40, n_epochs=150
)


@pytest.fixture(scope="module")
def outcome():
    return run_plan(HiddenUnits(SMALL, Settings()))


def test_hidden_units_beat_independent_pixels(outcome):
    found = {row["method"]: row["log_likelihood"] for row in outcome.rows}
    assert set(found) == {INDEPENDENT, *METHODS}
    for method in METHODS:
        assert found[method] > found[INDEPENDENT] + 0.02, method
    assert found["CF5-bethe"] > found["exact"] - 0.2
    training = {row["method"]: row["training_log_likelihood"] for row in outcome.rows}
    # no method has a larger training likelihood than the one that maximises it
    assert training["exact"] > max(training[method] for method in METHODS) - 0.1


def test_the_command_leaves_tables_and_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(HiddenUnits, "quick", Design(**{**vars(SMALL), "methods": ("CD1",)}))
    assert main(["contrastive-hidden", "--out", str(tmp_path), "--quick"]) == 0
    assert "CD1" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        "results.csv", "report.md", "likelihood.png", "filters.png", "rows.jsonl", "arrays",
    }  # fmt: skip
    with open(tmp_path / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == [INDEPENDENT, "CD1"]
    assert {"method", "seconds", "converged", "log_likelihood"} <= set(rows[0])


def test_log_likelihood_by_enumeration(outcome):
    """The exact log-likelihood of a machine, hidden units summed out by hand."""
    pixels, _ = binary_digits(4)
    pixels = pixels[:60, :6]
    edges = layer_edges(6, 2)
    model = ff.IsingModel("likelihood", l2=1.0, max_iter=20, tol=1e-2, random_state=1)
    model.fit(with_hidden(pixels, 2), edges=edges)
    thresholds, couplings = model.weight_blocks_["thresholds"], model.weight_blocks_["couplings"]
    assert np.abs(couplings).max() > 0.2  # hidden units say something
    states = np.array([[(index >> bit) & 1 for bit in range(8)] for index in range(256)])
    matrix = couplings.reshape(6, 2)
    scores = states @ thresholds + np.einsum("si,ij,sj->s", states[:, :6], matrix, states[:, 6:])
    log_z = np.logaddexp.reduce(scores)
    expected = sum(
        np.logaddexp.reduce(scores[(states[:, :6] == row).all(axis=1)]) - log_z for row in pixels
    )
    assert model.log_likelihood(with_hidden(pixels, 2)) == pytest.approx(expected, abs=1e-8)


def test_hidden_columns_need_edges():
    samples = with_hidden(np.array([[0, 1], [1, 0], [1, 1]]), 1)
    with pytest.raises(InvalidInputError, match=r"unless edges are given .* got none in column 2"):
        ff.IsingModel(l2=1.0).fit(samples)


def test_layers():
    np.testing.assert_array_equal(layer_edges(2, 2), [[0, 2], [0, 3], [1, 2], [1, 3]])
    pixels, used = binary_digits(8)
    assert pixels.shape == (1797, used.sum())
    assert not used[0]
    assert set(np.unique(pixels)) == {0, 1}
