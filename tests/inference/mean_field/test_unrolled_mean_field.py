"""Unrolled mean field against a plain twin, and its derivatives against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PROBLEMS
from test_unrolled import STEP, flat, random_direction, random_potentials, unflat

import fieldfit as ff
from fieldfit.inference.conditioning import condition
from fieldfit.inference.mean_field.unrolled_mean_field import UnrolledMeanField

SOFT = [
    p
    for p in PROBLEMS
    if p.graph.n_variables and p.scale < 100 and np.isfinite(p.potentials.factor_values).all()
]
by_damping = pytest.mark.parametrize("damping", [0.0, 0.4])


def twin(graph, potentials, observed, n_sweeps, damping):
    """Coordinate updates with tables that are broadcast, in the order of the model."""
    model, _ = condition(graph, potentials, observed)
    offsets = graph.unary_offsets
    unary = [model.unary[offsets[i] : offsets[i + 1]] for i in range(graph.n_variables)]
    beliefs = [np.isfinite(u) / np.isfinite(u).sum() for u in unary]
    for _ in range(n_sweeps):
        for j in model.variables:
            energy = unary[j].copy()
            for a in range(graph.n_factors):
                scope = list(graph.scope(a))
                if len(scope) < 2 or j not in scope:
                    continue
                table = np.moveaxis(potentials.factor(a), scope.index(j), 0)
                for i in reversed([i for i in scope if i != j]):
                    table = table @ beliefs[i]
                energy = energy + table
            new = np.exp(energy - energy.max())
            beliefs[j] = (1 - damping) * new / new.sum() + damping * beliefs[j]
    return np.concatenate(beliefs)


@by_damping
def test_forward_is_the_plain_twin(damping):
    for problem in SOFT:
        graph = problem.graph
        expected = twin(graph, problem.potentials, problem.observed, 3, damping)
        sweeps = UnrolledMeanField(3, damping=damping)
        result = sweeps.run(graph, problem.potentials, problem.observed)
        np.testing.assert_allclose(
            result.beliefs.unary_values, expected, rtol=0, atol=1e-12, err_msg=problem.name
        )
        run = sweeps.record(ff.graph.Batch.of([graph]), problem.potentials, problem.observed)
        np.testing.assert_array_equal(flat(run.beliefs()), flat(result.beliefs))


@by_damping
def test_transposed_product(damping):
    rng = np.random.default_rng(0)
    sweeps = UnrolledMeanField(3, damping=damping)
    for problem in SOFT:
        graph, start = problem.graph, flat(problem.potentials)
        batch = ff.graph.Batch.of([graph])
        for _ in range(3):
            u, v = random_direction(graph, rng), random_direction(graph, rng, start)
            ends = [
                flat(sweeps.record(batch, unflat(graph, start + s * v), problem.observed).beliefs())
                for s in (STEP, -STEP)
            ]
            expected = np.dot(u, ends[0] - ends[1]) / (2 * STEP)
            run = sweeps.record(batch, problem.potentials, problem.observed)
            (gradient,) = run.vjp(unflat(graph, u), run.beliefs()).potentials
            assert np.all(flat(gradient)[np.isneginf(start)] == 0.0)
            scale = max(1.0, float(np.abs(flat(gradient)).max()) * np.sqrt(len(v)))
            found = np.dot(flat(gradient), v)
            assert found == pytest.approx(expected, abs=1e-6 * scale), problem.name


@by_damping
def test_each_sweep_with_its_own_potentials(damping):
    rng = np.random.default_rng(1)
    graph = ff.FactorGraph([2, 3, 2, 3], [(0, 1), (1, 2, 3), (0, 3), (2,), (0, 2)])
    batch, sweeps = ff.graph.Batch.of([graph]), UnrolledMeanField(3, damping=damping)
    starts = [random_direction(graph, rng) for _ in range(3)]
    u = random_direction(graph, rng)
    run = sweeps.record(batch, [unflat(graph, start) for start in starts])
    found = run.vjp(unflat(graph, u), run.beliefs()).potentials
    for sweep in range(3):
        v = random_direction(graph, rng)
        ends = []
        for sign in (1.0, -1.0):
            moved = [start + sign * STEP * v * (t == sweep) for t, start in enumerate(starts)]
            again = sweeps.record(batch, [unflat(graph, values) for values in moved])
            ends.append(flat(again.beliefs()))
        expected = np.dot(u, ends[0] - ends[1]) / (2 * STEP)
        assert np.dot(flat(found[sweep]), v) == pytest.approx(expected, abs=1e-6)


def test_a_result_is_a_bound():
    graph = ff.FactorGraph.grid(3, 3, 2)
    potentials = random_potentials(graph, np.random.default_rng(2))
    result = UnrolledMeanField(1).run(graph, potentials)
    assert result.bound == "lower"
    assert result.log_partition <= ff.Exact().run(graph, potentials).log_partition
    assert not result.converged
    assert result.converged_examples is None
    assert result.status.startswith("stopped after 1 sweep, as asked")
    many = UnrolledMeanField(300).run(graph, potentials)
    settled = ff.MeanField(tol=1e-12).run(graph, potentials)
    np.testing.assert_allclose(flat(many.beliefs), flat(settled.beliefs), atol=1e-9)


def test_hard_zeros_and_bad_options_are_refused():
    graph = ff.FactorGraph.chain(2, 2)
    hard = ff.Potentials(graph, None, [[[0.0, -np.inf], [0.0, 0.0]]])
    with pytest.raises(ff.InvalidInputError, match=r"got -inf in factors\[0\]"):
        UnrolledMeanField().run(graph, hard)
    with pytest.raises(ff.InvalidInputError, match="n_sweeps must be"):
        UnrolledMeanField(0)
    with pytest.raises(ff.InvalidInputError, match="damping must be"):
        UnrolledMeanField(damping=-0.1)
