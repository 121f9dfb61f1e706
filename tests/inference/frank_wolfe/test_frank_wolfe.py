"""Marginals by MAP searches alone: certificates, message passing as a second route, hard zeros."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.inference.frank_wolfe.active_set import ActiveSet, search_step
from fieldfit.inference.frank_wolfe.frank_wolfe import FrankWolfe
from fieldfit.io.stored import Stored

GRAPHS = {
    "chain of three labels": ff.FactorGraph.chain(6, 3),
    "tree with a factor of three": ff.FactorGraph([2, 3, 2, 2], [(0, 1, 2), (2, 3)]),
    "grid": ff.FactorGraph.grid(3, 3, 2),
    "triangle": ff.FactorGraph.from_edges(3, [(0, 1), (1, 2), (0, 2)], 2),
    "isolated": ff.FactorGraph([2, 3], []),
}


def random_potentials(graph, scale, seed):
    rng = np.random.default_rng(seed)
    unary = scale * rng.normal(size=int(graph.unary_offsets[-1]))
    return ff.Potentials.from_flat(
        graph, unary, scale * rng.normal(size=int(graph.table_offsets[-1]))
    )


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_it_agrees_with_messages(name, scale):
    """The same surrogate over the same polytope, by a different route."""
    graph = GRAPHS[name]
    potentials = random_potentials(graph, scale, 1)
    found = FrankWolfe(tol=1e-8, max_iter=5000).run(graph, potentials)
    expected = ff.SumProduct(ff.TreeReweighted(), tol=1e-12, max_iter=20_000).run(graph, potentials)
    assert found.converged, found.status
    assert found.bound == "upper"
    np.testing.assert_allclose(found.log_partition, expected.log_partition, rtol=2e-8, atol=2e-8)
    np.testing.assert_allclose(
        found.beliefs.unary_values, expected.beliefs.unary_values, rtol=0, atol=1e-4
    )
    np.testing.assert_allclose(
        found.beliefs.factor_values, expected.beliefs.factor_values, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("keep_active_set", [True, False])
@pytest.mark.parametrize("n_iter", [1, 3, 10])
def test_the_gap_is_a_certificate(keep_active_set, n_iter):
    """However early it stops: value <= B <= value + gap, and B bounds the log-partition."""
    graph = GRAPHS["grid"]
    for seed in range(20):
        potentials = random_potentials(graph, 2.0, seed)
        found = FrankWolfe(tol=1e-12, max_iter=n_iter, keep_active_set=keep_active_set).run(
            graph, potentials
        )
        surrogate = ff.SumProduct(ff.TreeReweighted(), tol=1e-12, max_iter=20_000).run(
            graph, potentials
        )
        assert not found.converged
        assert "not converged" in found.status
        gap = found.diagnostics["gaps"][0]
        assert found.bound == "upper"
        assert found.log_partition >= surrogate.log_partition - 1e-9
        assert found.log_partition - gap <= surrogate.log_partition + 1e-9
        assert found.log_partition >= ff.Exact().run(graph, potentials).log_partition


def test_labellings_stand_for_a_smaller_polytope():
    """With exact MAP searches beliefs are mixtures of labellings, and the value is smaller."""
    graph = GRAPHS["triangle"]
    repulsive = ff.Potentials(graph, factors=[3.0 * (1.0 - np.eye(2))] * 3)
    local = FrankWolfe(tol=1e-9).run(graph, repulsive)
    true = FrankWolfe(ff.ExactMap(), tol=1e-9).run(graph, repulsive)
    assert true.converged
    assert true.log_partition < local.log_partition - 0.5
    # of three variables two are equal, so pairs differ in at most two edges of three
    apart = sum(table[0, 1] + table[1, 0] for table in map(true.beliefs.factor, range(3)))
    assert apart <= 2.0 + 1e-6
    assert true.log_partition >= ff.Exact().run(graph, repulsive).log_partition - 1e-9


def test_examples_of_a_batch_are_alone():
    graphs = [GRAPHS["grid"], GRAPHS["triangle"], GRAPHS["grid"]]
    potentials = [random_potentials(graph, 1.0, seed) for seed, graph in enumerate(graphs)]
    batch = ff.graph.Batch.of(graphs)
    together = FrankWolfe().run_batch(batch, batch.pack(potentials))
    alone = [FrankWolfe().run(g, p) for g, p in zip(graphs, potentials, strict=True)]
    np.testing.assert_array_equal(
        together.log_partitions, [result.log_partition for result in alone]
    )
    np.testing.assert_array_equal(
        together.beliefs.unary_values,
        np.concatenate([result.beliefs.unary_values for result in alone]),
    )


def test_evidence_and_hard_zeros():
    graph = ff.FactorGraph.chain(4, 3)
    potentials = random_potentials(graph, 1.0, 3)
    potentials.factor_values[[0, 5, 13]] = -np.inf
    found = FrankWolfe(tol=1e-9).run(graph, potentials, observed={2: 1})
    exact = ff.Exact().run(graph, potentials, observed={2: 1})
    assert found.converged
    np.testing.assert_allclose(found.log_partition, exact.log_partition, rtol=0, atol=1e-7)
    np.testing.assert_allclose(
        found.beliefs.unary_values, exact.beliefs.unary_values, rtol=0, atol=1e-4
    )
    impossible = ff.Potentials(graph, factors=[np.full((3, 3), -np.inf), None, None])
    with pytest.raises(ZeroWeightError):
        FrankWolfe().run(graph, impossible)


def test_an_entropy_that_is_not_concave_is_refused():
    with pytest.raises(InvalidInputError, match="entropy must be concave on the local polytope"):
        FrankWolfe(entropy=ff.Bethe()).run(GRAPHS["grid"], ff.Potentials(GRAPHS["grid"]))
    chain = GRAPHS["chain of three labels"]
    found = FrankWolfe(entropy=ff.Bethe()).run(chain, ff.Potentials(chain))
    assert found.bound == "upper"  # known up to the gap
    with pytest.raises(InvalidInputError, match="init must be a FrankWolfe result"):
        FrankWolfe().run(
            chain, ff.Potentials(chain), init=ff.SumProduct().run(chain, ff.Potentials(chain))
        )
    with pytest.raises(InvalidInputError, match="oracle must be an object such as"):
        FrankWolfe(oracle="max-flow")
    with pytest.raises(InvalidInputError, match="tol must be positive, got 0"):
        FrankWolfe(tol=0.0)


# -- the steps ----------------------------------------------------------------------------


def test_the_step_is_the_best_on_its_line():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(2, 9))
        coefficients = rng.uniform(0.0, 1.5, n)
        x, end = rng.dirichlet(np.ones(n)), rng.dirichlet(np.full(n, 0.3))
        direction = end - x
        gain, curvature = rng.normal(), rng.uniform(0.0, 3.0)
        step = search_step(coefficients, x, direction, gain, curvature, 1.0, np.empty((3, n)))

        steps = np.append(np.linspace(0.0, 1.0, 2001), step)
        moved = np.maximum(x + steps[:, None] * direction, 1e-300)
        values = (moved * np.log(moved)) @ coefficients - gain * steps
        values += 0.5 * curvature * steps**2
        assert 0.0 <= step <= 1.0
        assert values[-1] <= values[:-1].min() + 1e-12


def test_shares_and_points_agree_after_many_steps():
    """The point is the mixture of what is stored, and small entries keep their digits."""
    rng = np.random.default_rng(1)
    n, n_features = 12, 3
    coefficients, inverse = np.ones(n), np.full(n_features, 0.1)
    mapping = rng.normal(size=(n, n_features))
    start = np.full(n, 1.0 / n)
    active = ActiveSet(start, start @ mapping, 0.0, coefficients, inverse)
    statistics = rng.normal(size=n_features)
    residual = statistics - active.features
    before = 0.5 * residual @ (inverse * residual) - active.entropy()
    for _ in range(400):
        slopes = active.slopes(mapping @ (inverse * residual))
        vertex = np.zeros(n)
        vertex[slopes.argmax()] = 1.0
        place = active.add(vertex, vertex @ mapping, 0.0)
        active.move_weights(residual, 0.0, 5, place)
        now = 0.5 * residual @ (inverse * residual) - active.entropy()
        assert now <= before + 1e-12
        before = now
    used = active.atoms.weights[: active.n_atoms]
    assert used.min() >= 0.0
    np.testing.assert_allclose(used.sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(used @ active.atoms.points[: active.n_atoms], active.x, rtol=1e-9)
    np.testing.assert_allclose(active.x @ mapping, active.features, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(statistics - active.features, residual, rtol=1e-9, atol=1e-12)
    # the optimum of an entropy over a simplex: a softmax at its own weights
    scores = mapping @ (inverse * residual)
    np.testing.assert_allclose(active.x, np.exp(scores) / np.exp(scores).sum(), rtol=0, atol=1e-7)


def test_points_without_share_are_forgotten_when_room_is_short():
    n = 40
    start = np.full(n, 1.0 / n)
    nothing = np.zeros(0)
    active = ActiveSet(start, nothing, 0.0, np.ones(n), nothing)
    for entry in range(n):
        active.add(np.eye(n)[entry], nothing, 0.0)
    assert active.n_atoms <= 16
    state = active.state()
    other = ActiveSet(start, nothing, 0.0, np.ones(n), nothing)
    other.restore(Stored(state, {}))
    np.testing.assert_array_equal(other.x, active.x)
    assert other.n_atoms == active.n_atoms
