"""Interior-point descent on Bethe's free energy: stationary points, also with hard zeros."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from assertions import assert_locally_consistent
from problems import random_tables
from reference.implicit import constraints

import fieldfit as ff
from fieldfit.graph.batch import Batch
from fieldfit.inference.conditioning import condition
from fieldfit.inference.free_energy.bethe_interior_point import bethe_interior_point


def run(graph, potentials, observed=None, tol=1e-9, max_iter=500):
    model, _ = condition(graph, potentials, observed)
    batch = Batch.of([graph])
    return bethe_interior_point(batch, model.unary, potentials.factor_values, tol, max_iter)


def random_model(seed, scale, zeros):
    rng = np.random.default_rng(seed)
    scopes = [tuple(rng.permutation(8)[: rng.integers(2, 4)].tolist()) for _ in range(9)]
    graph = ff.FactorGraph(rng.integers(2, 4, 8), scopes)
    return graph, random_tables(rng, graph, scale, zeros)


def stationarity(potentials, beliefs):
    """How far ``th - w (log b + 1)`` is from the span of the constraints, where beliefs are."""
    graph = beliefs.graph
    b = np.concatenate([beliefs.unary_values, beliefs.factor_values])
    th = np.concatenate([potentials.unary_values, potentials.factor_values])
    w = np.concatenate(
        [np.repeat(1.0 - graph.degrees, graph.cardinalities), np.ones(len(beliefs.factor_values))]
    )
    # logarithms of small beliefs are known to fewer digits
    used = b > 1e-3
    matrix = constraints(graph)[:, used]
    gradient = th[used] - w[used] * (np.log(b[used]) + 1.0)
    multipliers = np.linalg.lstsq(matrix.T, gradient, rcond=None)[0]
    return float(np.abs(gradient - matrix.T @ multipliers).max(initial=0.0))


@pytest.mark.parametrize("scale", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("zeros", [0.0, 0.25])
def test_steps_end_at_fixed_points_of_propagation(scale, zeros):
    for seed in range(15):
        graph, potentials = random_model(seed, scale, zeros)
        result = run(graph, potentials)
        assert result.converged, f"seed {seed}: {result.status}"
        assert_locally_consistent(result.beliefs, atol=1e-7)
        assert stationarity(potentials, result.beliefs) <= 1e-5, f"seed {seed}"
        if zeros:
            continue  # propagation forgets what hard zeros have excluded when it starts again
        after = ff.SumProduct(max_iter=1, schedule="flooding").run(graph, potentials, init=result)
        distance = np.abs(after.beliefs.unary_values - result.beliefs.unary_values).max()
        assert distance <= 1e-6, f"seed {seed} moved by {distance}"
        assert after.log_partition == pytest.approx(result.log_partition, rel=1e-7, abs=1e-7)


def test_without_cycles_it_is_exact():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        graph = ff.FactorGraph.chain(8, 3)
        potentials = random_tables(rng, graph, 5.0, 0.2)
        result = run(graph, potentials)
        exact = ff.Exact().run(graph, potentials)
        assert result.log_partition == pytest.approx(exact.log_partition, rel=1e-9, abs=1e-7)
        np.testing.assert_allclose(
            result.beliefs.unary_values, exact.beliefs.unary_values, atol=1e-6
        )


def test_never_below_the_rounds_it_takes_over_from():
    for seed in range(10):
        graph, potentials = random_model(seed, 3.0, 0.2)
        slow = ff.DoubleLoop(accelerate=False, max_rounds=2000).run(graph, potentials)
        fast = ff.DoubleLoop().run(graph, potentials)
        assert fast.converged
        assert fast.log_partition >= slow.log_partition - 1e-6 * (1.0 + abs(slow.log_partition))


def test_double_loop_says_what_it_did():
    graph, potentials = random_model(0, 8.0, 0.3)
    result = ff.DoubleLoop(tol=1e-12).run(graph, potentials)
    steps = result.diagnostics["n_interior_point"]
    assert (f"{steps} interior-point steps" in result.status) == (steps > 0)


def test_batches_are_their_examples():
    models = [random_model(seed, 3.0, 0.2) for seed in range(4)]
    batch = Batch.of([graph for graph, _ in models])
    joint = ff.DoubleLoop().run_batch(batch, batch.pack([p for _, p in models]))
    assert joint.converged
    for m, (graph, potentials) in enumerate(models):
        alone = ff.DoubleLoop().run(graph, potentials)
        assert joint.log_partitions[m] == pytest.approx(alone.log_partition, rel=1e-6, abs=1e-6)


@pytest.mark.data
@pytest.mark.parametrize("solver", [ff.BeliefOptimization(), ff.DoubleLoop()], ids=["bo", "loop"])
def test_uai_models_with_hard_zeros_converge(solver):
    folder = os.environ.get("FIELDFIT_DATA")
    if not folder:
        pytest.skip("FIELDFIT_DATA is not set")
    for name in ("Promedus_15", "Promedus_22", "Promedus_27", "Pedigree_12", "CSP_12"):
        model = Path(folder) / "uai2014" / "mar_pr" / f"{name}.uai"
        graph, potentials = ff.read_uai(model)
        evidence = ff.io.read_evidence(f"{model}.evid")
        result = solver.run(graph, potentials, evidence)
        assert result.converged, f"{name}: {result.status}"
