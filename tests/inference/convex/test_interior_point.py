"""Interior-point solutions of concave problems, and upper bounds at any multipliers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from assertions import assert_locally_consistent
from problems import random_graph, random_tables

import fieldfit as ff
from fieldfit.entropy.entropy_split import split_entropy
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import conditioned_unary
from fieldfit.inference.convex.convex_dual import ConvexDual
from fieldfit.inference.convex.interior_point import InteriorPoint
from fieldfit.inference.convex.split_dual import split_dual_values

ENTROPIES = {
    "trees": ff.TreeReweighted(),
    "convex": ff.Convex(),
    "no variables": ff.Convex(unary=0.0),
}
by_entropy = pytest.mark.parametrize("entropy", ENTROPIES.values(), ids=ENTROPIES)


def random_structure(rng):
    return random_graph(rng, n_variables=6, n_factors=8, max_arity=3, max_labels=3)


def random_model(rng, scale=1.0, zeros=0.0):
    graph = random_structure(rng)
    return graph, random_tables(rng, graph, scale, zeros)


# -- splits of entropies ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_split_adds_up_to_the_counting_numbers(seed):
    graph = random_structure(np.random.default_rng(seed))
    for entropy in ENTROPIES.values():
        counting = entropy.counting_numbers(graph)
        split = split_entropy(graph, counting)
        assert min(split.factor.min(initial=0), split.variable.min(initial=0)) >= 0.0
        assert split.slot.min(initial=0) >= 0.0
        of_factor = np.bincount(graph.slot_factors, split.slot, graph.n_factors)
        of_variable = np.bincount(graph.slot_variables, split.slot, graph.n_variables)
        linking = graph.arities >= 2
        np.testing.assert_allclose(
            (split.factor + of_factor)[linking], counting.factor[linking], rtol=1e-12
        )
        np.testing.assert_allclose(split.variable - of_variable, counting.variable, atol=1e-12)


def test_numbers_that_are_not_concave_have_no_split():
    graph = ff.FactorGraph.grid(3, 3, 2)
    assert split_entropy(graph, ff.Bethe().counting_numbers(graph)) is None


def test_orientation_of_a_complete_graph_is_symmetric():
    edges = [(i, j) for i in range(5) for j in range(i)]
    graph = ff.FactorGraph.from_edges(5, edges, 2)
    split = split_entropy(graph, ff.TreeReweighted().counting_numbers(graph))
    np.testing.assert_allclose(split.slot, 0.2, atol=1e-12)  # half of 2 / 5
    np.testing.assert_allclose(split.variable, 0.2, atol=1e-12)


# -- bounds -------------------------------------------------------------------------------


def slow_dual(graph, potentials, split, multipliers):
    """``U`` written out, for one graph without hard zeros."""
    total, terms = 0.0, [potentials.unary(i).copy() for i in range(graph.n_variables)]
    for a in range(graph.n_factors):
        table, scope = potentials.factor(a).copy(), [int(i) for i in graph.scope(a)]
        if len(scope) == 0:
            total += float(table)
            continue
        if len(scope) == 1:
            terms[scope[0]] += table
            continue
        for position in range(len(scope)):
            slot = graph.scope_offsets[a] + position
            own = multipliers[graph.message_offsets[slot] : graph.message_offsets[slot + 1]]
            shape = np.ones(len(scope), dtype=int)
            shape[position] = -1
            table = table + own.reshape(shape)
        b = np.exp(table / split.factor_total[a])
        total += split.factor[a] * np.log(b.sum())
        for position, i in enumerate(scope):
            slot = graph.scope_offsets[a] + position
            own = multipliers[graph.message_offsets[slot] : graph.message_offsets[slot + 1]]
            margin = b.sum(axis=tuple(p for p in range(len(scope)) if p != position))
            terms[i] += split.slot[slot] * np.log(margin) - own
    for i, term in enumerate(terms):
        k = split.variable[i]
        total += term.max() + (k * np.log(np.sum(np.exp((term - term.max()) / k))) if k else 0.0)
    return total


@by_entropy
@pytest.mark.parametrize("seed", range(10))
def test_bound_equals_its_formula(seed, entropy):
    rng = np.random.default_rng(seed)
    graph, potentials = random_model(rng)
    split = split_entropy(graph, entropy.counting_numbers(graph))
    multipliers = rng.normal(size=int(graph.message_offsets[-1]))
    value = slow_dual(graph, potentials, split, multipliers)
    unary = conditioned_unary(graph, potentials, None)
    found = split_dual_values(
        Batch.of([graph]), unary, potentials.factor_values, split, multipliers
    )[0]
    constants = sum(
        float(potentials.factor(a)) for a in range(graph.n_factors) if graph.arities[a] == 0
    )
    assert found + constants == pytest.approx(value, rel=1e-10, abs=1e-9)


@by_entropy
def test_bounds_hold_at_any_multipliers_and_are_met_at_the_solution(entropy):
    n_checked = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scale = (0.5, 3.0, 30.0)[seed % 3]
        graph, potentials = random_model(rng, scale, zeros=0.2 * (seed % 2))
        solver = InteriorPoint(entropy, tol=1e-9)
        result = solver.run(graph, potentials)
        assert result.converged
        exact = ff.BruteForce().run(graph, potentials).log_partition
        slack = 1e-8 * (1.0 + abs(exact))
        assert result.log_partition >= exact - slack
        for stopped in range(1, 6):
            early = InteriorPoint(entropy, max_iter=stopped).run(graph, potentials)
            assert early.log_partition >= result.log_partition - slack
            assert early.bound in ("upper", "exact")
            n_checked += 1
    assert n_checked == 300


# -- solutions ----------------------------------------------------------------------------


@by_entropy
@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_message_passing(seed, entropy):
    graph, potentials = random_model(np.random.default_rng(seed))
    slow = ff.SumProduct(entropy, tol=1e-12, max_iter=50_000).run(graph, potentials)
    fast = InteriorPoint(entropy, tol=1e-10).run(graph, potentials)
    assert slow.converged
    assert fast.converged
    assert fast.log_partition == pytest.approx(slow.log_partition, rel=1e-9, abs=1e-8)
    np.testing.assert_allclose(fast.beliefs.unary_values, slow.beliefs.unary_values, atol=1e-7)
    assert_locally_consistent(fast.beliefs, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_the_dual_where_weights_differ_by_configuration(seed):
    rng = np.random.default_rng(seed)
    graph, potentials = random_model(rng)
    weights = ff.entropy.EntropyWeights(
        graph,
        [rng.uniform(0.2, 1.0, int(k)) for k in graph.cardinalities],
        [rng.uniform(0.2, 1.0, graph.table_shape(a)) for a in range(graph.n_factors)],
    )
    dual = ConvexDual(tol=1e-11).run(graph, potentials, weights=weights)
    ours = InteriorPoint(tol=1e-10).run(graph, potentials, weights=weights)
    assert ours.converged
    np.testing.assert_allclose(ours.beliefs.unary_values, dual.beliefs.unary_values, atol=1e-7)
    assert ours.log_partition == pytest.approx(dual.log_partition, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("kind", ["attractive", "mixed", "any"])
def test_strong_couplings_converge_where_sweeps_creep(kind):
    rng = np.random.default_rng(3)
    graph = ff.FactorGraph.grid(12, 12, 2)
    strength = {"attractive": 5.0, "mixed": 5.0 * rng.choice([-1, 1], graph.n_factors)}.get(kind)
    if strength is None:
        tables = rng.normal(0.0, 50.0, (graph.n_factors, 2, 2))
    else:
        tables = np.broadcast_to(strength, graph.n_factors)[:, None, None] * np.eye(2)
    potentials = ff.Potentials(graph, rng.normal(size=(144, 2)), tables)
    result = InteriorPoint(tol=1e-8).run(graph, potentials)
    assert result.converged
    assert result.n_iter <= 40
    assert_locally_consistent(result.beliefs, atol=1e-7)
    # a fixed point of message passing: what the beliefs say is what the messages would
    exact = ff.Exact().run(graph, potentials).log_partition
    assert result.log_partition >= exact


def test_batches_are_their_examples():
    rng = np.random.default_rng(0)
    models = [random_model(rng, scale=scale) for scale in (0.1, 2.0, 20.0)]
    batch = Batch.of([graph for graph, _ in models])
    joint = InteriorPoint(tol=1e-9).run_batch(batch, batch.pack([p for _, p in models]))
    assert joint.converged
    for m, (graph, potentials) in enumerate(models):
        alone = InteriorPoint(tol=1e-9).run(graph, potentials)
        assert joint.log_partitions[m] == pytest.approx(alone.log_partition, rel=1e-8, abs=1e-8)


def test_warm_start_from_a_neighbouring_model():
    rng = np.random.default_rng(1)
    graph, potentials = random_model(rng, scale=2.0)
    first = InteriorPoint().run(graph, potentials)
    moved = ff.Potentials.from_flat(
        graph, potentials.unary_values + 1e-3 * rng.normal(size=len(potentials.unary_values)),
        potentials.factor_values,
    )  # fmt: skip
    cold = InteriorPoint(tol=1e-10).run(graph, moved)
    warm = InteriorPoint(tol=1e-10).run(graph, moved, init=first)
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.beliefs.unary_values, cold.beliefs.unary_values, atol=1e-8)


def test_a_useless_start_costs_iterations_but_no_convergence():
    """Beliefs of sweeps that stalled need not agree at all, nor leave the corners."""
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(12, 12, 2)
    signs = rng.choice([-5.0, 5.0], (graph.n_factors, 1, 1))
    potentials = ff.Potentials(graph, rng.normal(size=(144, 2)), signs * np.eye(2))
    stalled = ff.SumProduct(ff.TreeReweighted(), accelerate=False, max_iter=65).run(
        graph, potentials
    )
    cold = InteriorPoint().run(graph, potentials)
    warm = InteriorPoint().run(graph, potentials, init=stalled)
    assert cold.converged
    assert warm.converged
    assert warm.log_partition == pytest.approx(cold.log_partition, rel=1e-9)


def test_refuses_what_is_not_concave():
    graph = ff.FactorGraph.grid(3, 3, 2)
    with pytest.raises(InvalidInputError, match="entropy must be concave"):
        InteriorPoint(ff.Bethe()).run(graph, ff.Potentials(graph))


@pytest.mark.data
@pytest.mark.parametrize("entropy", [ff.TreeReweighted(), ff.Convex()], ids=["trees", "convex"])
def test_all_uai_models_converge(entropy):
    folder = os.environ.get("FIELDFIT_DATA")
    if not folder:
        pytest.skip("FIELDFIT_DATA is not set")
    models = sorted((Path(folder) / "uai2014" / "mar_pr").glob("*.uai"))
    assert models
    for model in models:
        graph, potentials = ff.read_uai(model)
        if graph.cardinalities.max() > 5:
            continue  # kernels would be compiled for eleven labels
        evidence = ff.io.read_evidence(f"{model}.evid")
        result = InteriorPoint(entropy, tol=1e-6).run(graph, potentials, evidence)
        assert result.converged, f"{model.name}: {result.status}"
        assert result.bound == "upper"
