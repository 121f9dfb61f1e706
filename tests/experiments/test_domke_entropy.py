"""The experiment ``domke-entropy``: entropies that are held, random ones, the whole when small."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_domke_digits import write_digits

from experiments.base import Settings
from experiments.domke2009.digits_methods import Limits
from experiments.domke2009.entropy.methods import (
    N_CONFIGURATIONS,
    NAMED,
    HeldEntropy,
    digit_parts,
    digit_problem,
    random_entropy,
)
from experiments.domke2009.entropy.run import COLUMNS, Design, Entropies
from experiments.driver import run_plan
from fieldfit.entropy.configuration_weights import EntropyWeights, scaled_weights


def small_parts(seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=(2, 3, 4)).astype(np.int32)
    return digit_parts(rng.integers(0, 2, size=labels.shape).astype(np.float64), labels)


def test_random_weights_are_what_was_drawn():
    entropy = random_entropy(np.random.default_rng(3))
    drawn = np.random.default_rng(3).random(N_CONFIGURATIONS)
    part = small_parts()[0]
    _, template = entropy.objective.templates(part.template)
    graph = part.batch.graph
    base = EntropyWeights.of(entropy.entropy, graph)
    weights = scaled_weights(base, template.potentials(entropy.parameters))
    assert_allclose(weights.unary_values[:2], np.maximum(drawn[:2], 0.02), rtol=1e-10)
    first = int(np.flatnonzero(graph.factor_types == 1)[0])
    start = graph.table_offsets[first]
    assert_allclose(
        weights.factor_values[start : start + 4], np.maximum(drawn[6:], 0.02), rtol=1e-10
    )


def test_held_entropies():
    # gradients are as exact as the beliefs, which depend on where they start from
    objective = replace(NAMED["C"].objective, tol=1e-11)
    problem = digit_problem(objective, small_parts(), Limits())
    held = HeldEntropy(problem, np.full(N_CONFIGURATIONS, 0.1))
    weights = np.random.default_rng(1).normal(size=held.n_weights)
    whole = problem.evaluate(np.append(weights, np.full(N_CONFIGURATIONS, 0.1)))
    found, part = held.evaluate(weights), held.evaluate_part(weights, 0)
    assert_allclose(found.gradient, whole.gradient[: held.n_weights])
    assert_allclose([found.value, part.value], whole.value)
    assert len(whole.gradient) == held.n_weights + N_CONFIGURATIONS


def test_the_whole_experiment(tmp_path):
    design = Design(n_each=1, named=("C",), n_random=1, limits=Limits(max_iter=8))
    outcome = run_plan(Entropies(design, Settings(data=write_digits(tmp_path))))
    assert all(tuple(row) == COLUMNS for row in outcome.rows)
    assert [(row["method"], row["entropy"]) for row in outcome.rows] == [
        ("C", "fixed"),
        ("C", "fitted"),
        ("r1", "fixed"),
        ("r1", "fitted"),
    ]
    assert set(outcome.headline["C"]) == {"fixed", "fitted"}
    assert all(0.0 < row["uclass"] < 0.3 for row in outcome.rows)
    figure = pytest.importorskip("matplotlib.figure").Figure
    for draw in outcome.figures.values():
        draw(figure())
