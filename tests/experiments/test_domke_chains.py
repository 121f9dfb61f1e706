"""The experiment ``domke-chains``: sources of sequences, and the whole on a small scale."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from experiments.base import Settings
from experiments.domke2009.chains.data import SOURCES, draw_chain_labels, draw_sequences
from experiments.domke2009.chains.run import (
    COLUMNS,
    METHODS,
    Chains,
    Design,
    _scores,
    chain_part,
)
from experiments.driver import run_plan
from fieldfit.objectives.likelihood import Likelihood


def test_labels_are_drawn_from_the_chain():
    """Shares of all labellings of three variables, within four standard errors."""
    rng = np.random.default_rng(0)
    unary, table = rng.normal(size=(3, 2)), rng.normal(size=(2, 2))
    n_draws = 20_000
    labels = draw_chain_labels(np.broadcast_to(unary, (n_draws, 3, 2)), table, rng)
    all_labels = list(itertools.product((0, 1), repeat=3))
    scores = np.array([sum(unary[i, y[i]] for i in range(3)) + table[y[0], y[1]] + table[y[1], y[2]]
                       for y in all_labels])  # fmt: skip
    expected = np.exp(scores - np.logaddexp.reduce(scores))
    found = np.bincount(labels @ [4, 2, 1], minlength=8) / n_draws
    assert np.all(np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / n_draws))


def test_sources():
    rng = np.random.default_rng(1)
    drawn = {name: draw_sequences(name, 400, 50, rng) for name in SOURCES}
    runs = drawn["semi-misspecified"]
    changes = np.abs(np.diff(runs.labels, axis=1)).sum(axis=1)
    assert set(changes) <= {4, 5}  # runs of ten in fifty places
    flipped = drawn["misspecified"].labels.sum(axis=1)
    assert set(flipped) == {5, 45}
    # 20 000 places each, four standard errors
    for name, wrong in (("semi-misspecified", 0.3), ("misspecified", 0.375)):
        share = np.mean(drawn[name].labels != drawn[name].seen)
        assert abs(share - wrong) < 4 * np.sqrt(wrong * (1 - wrong) / 20_000)


def test_scores_are_exact():
    sequences = draw_sequences("misspecified", 3, 8, np.random.default_rng(2))
    part = chain_part(sequences)
    weights = np.random.default_rng(3).normal(size=part.template.n_weights)
    scores = _scores(part, weights)
    values = Likelihood().evaluate(part.batch, part.template.potentials(weights), part.labels)
    assert_allclose(scores["cl"], values.values.sum() / 24, rtol=1e-10)
    assert 0.0 <= scores["uclass"] <= 1.0
    assert scores["ucl"] < scores["ccl"]


def test_the_whole_experiment():
    design = Design(length=20, n_train=(8,), n_test=20, n_repeats=2, max_iter=15)
    outcome = run_plan(Chains(design, Settings()))
    assert len(outcome.rows) == 3 * 2 * len(METHODS)
    assert all(tuple(row) == COLUMNS for row in outcome.rows)
    assert {row["method"] for row in outcome.rows} == set(METHODS)
    errors = outcome.headline["semi-misspecified"]
    assert errors["cl"] < 0.3  # as seen
    assert set(outcome.headline) == set(SOURCES)
    assert "Errors less those of `cl`" in outcome.report
    figure = pytest.importorskip("matplotlib.figure").Figure
    for draw in outcome.figures.values():
        draw(figure())
