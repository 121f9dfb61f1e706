"""Sweeps by log-ratios against the plain twin, and against the general kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import random_tables
from reference.sum_product import SumProductTwin, with_maximum_zero

import fieldfit as ff
from fieldfit.inference.messages.binary_sweeps import BinarySweeps
from fieldfit.inference.messages.message_arrays import ABOVE_TOLERANCE
from fieldfit.inference.messages.message_run import build_model, initial_state
from fieldfit.inference.messages.schedule import sequential_plan

ENTROPIES = (ff.Bethe(), ff.TreeReweighted(), ff.Convex(), ff.Convex(unary=0.3, factor=0.7))
every_entropy = pytest.mark.parametrize("entropy", ENTROPIES, ids=str)


def random_pairs(seed, scale=1.0, n=40, n_edges=90):
    """Random pairs, some of them parallel, beside factors of one variable and a constant."""
    rng = np.random.default_rng(seed)
    edges = [tuple(rng.choice(n, 2, replace=False)) for _ in range(n_edges)]
    graph = ff.FactorGraph([2] * (n + 1), [(3,), *edges, (), (7,)])
    return graph, random_tables(rng, graph, scale)


def sweeps_of(graph, potentials, entropy):
    model = build_model(graph, potentials, entropy.counting_numbers(graph), None)
    state = initial_state(graph, model, None)
    return BinarySweeps.of(graph, sequential_plan(graph), model, state, None), state


def assert_same_as_twin(graph, state, twin):
    found, expected = state.message.reshape(-1, 2), twin.flat_messages().reshape(-1, 2)
    linking = graph.arities[graph.slot_factors] >= 2
    np.testing.assert_allclose(
        np.diff(found)[linking], np.diff(expected)[linking], rtol=1e-12, atol=1e-12
    )
    beliefs = np.concatenate([with_maximum_zero(one) for one in twin.log_beliefs])
    connected = np.repeat(graph.degrees > 0, 2)
    np.testing.assert_allclose(
        state.log_belief[connected], beliefs[connected], rtol=1e-12, atol=1e-12
    )


@every_entropy
@pytest.mark.parametrize("damping", [0.0, 0.4])
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_sweeps_are_those_of_the_twin(entropy, damping, scale):
    graph, potentials = random_pairs(1, scale)
    sweeps, state = sweeps_of(graph, potentials, entropy)
    twin = SumProductTwin(graph, potentials, entropy.counting_numbers(graph))
    order = sequential_plan(graph).variables
    for _ in range(3):
        twin.sequential_sweep(order, damping)
        n_sweeps, flags, _ = sweeps.run(sweeps.everything, damping, 1e-300, 1)
        assert (n_sweeps, flags) == (1, ABOVE_TOLERANCE)
        sweeps.write_back()
        assert_same_as_twin(graph, state, twin)


@every_entropy
def test_a_restricted_sweep_leaves_the_rest_alone(entropy):
    graph, potentials = random_pairs(2)
    sweeps, state = sweeps_of(graph, potentials, entropy)
    twin = SumProductTwin(graph, potentials, entropy.counting_numbers(graph))
    order = sequential_plan(graph).variables
    rng = np.random.default_rng(0)
    for _ in range(4):
        active = rng.random(graph.n_variables) < 0.5
        part = sweeps.restricted(active)
        assert sweeps.n_active(part) == int(active[order].sum())
        assert sweeps.n_messages(part) == int(graph.degrees[active].sum())
        before = twin.flat_messages()
        twin.sequential_sweep(order[active[order]])
        _, _, changes = sweeps.run(part, 0.0, 1e-300, 1)
        sweeps.write_back()
        assert_same_as_twin(graph, state, twin)
        moved = np.abs(np.diff((twin.flat_messages() - before).reshape(-1, 2)).ravel())
        expected = np.zeros(graph.n_variables)
        np.maximum.at(expected, graph.slot_variables, moved)
        np.testing.assert_allclose(changes, expected, rtol=1e-9, atol=1e-12)


def test_what_does_not_suit_is_left_to_the_general_kernels():
    graph, potentials = random_pairs(3)
    sweeps, _ = sweeps_of(graph, potentials, ff.Bethe())
    assert sweeps is not None
    for entry, value in ((1, -np.inf), (2, 250.0)):
        unsuitable = ff.Potentials.from_flat(
            graph, potentials.unary_values, potentials.factor_values.copy()
        )
        unsuitable.factor(5).reshape(-1)[entry] = value
        assert sweeps_of(graph, unsuitable, ff.Bethe())[0] is None
    forbidden = ff.Potentials.from_flat(
        graph, potentials.unary_values.copy(), potentials.factor_values
    )
    forbidden.unary(int(np.flatnonzero(graph.degrees)[0]))[1] = -np.inf
    assert sweeps_of(graph, forbidden, ff.Bethe())[0] is None
    triple = ff.FactorGraph([2, 2, 2], [(0, 1), (0, 1, 2)])
    assert sweeps_of(triple, ff.Potentials(triple), ff.Bethe())[0] is None
    three = ff.FactorGraph.grid(3, 3, 3)
    assert sweeps_of(three, ff.Potentials(three), ff.Bethe())[0] is None


@pytest.mark.parametrize("size", [0.5, 4.0, 1e5])
def test_extreme_unary_potentials(size):
    """Beyond the largest ratio a message is that of a certain neighbour."""
    rng = np.random.default_rng(4)
    graph = ff.FactorGraph.grid(5, 6, 2)
    tables = rng.uniform(-20.0, 20.0, (graph.n_factors, 2, 2))
    potentials = ff.Potentials(graph, size * rng.normal(size=(30, 2)), tables)
    sweeps, state = sweeps_of(graph, potentials, ff.TreeReweighted())
    twin = SumProductTwin(graph, potentials, ff.TreeReweighted().counting_numbers(graph))
    for _ in range(3):
        twin.sequential_sweep(sequential_plan(graph).variables)
        sweeps.run(sweeps.everything, 0.0, 1e-300, 1)
    sweeps.write_back()
    assert_same_as_twin(graph, state, twin)


@pytest.mark.parametrize("entropy", ENTROPIES[:2], ids=str)
def test_the_fixed_point_is_that_of_the_general_kernels(entropy):
    rng = np.random.default_rng(5)
    graph = ff.FactorGraph.grid(12, 11, 2)
    potentials = random_tables(rng, graph, 0.4)
    by_ratios = ff.SumProduct(entropy=entropy, tol=1e-12).run(graph, potentials)
    general = ff.SumProduct(entropy=entropy, tol=1e-12, schedule="flooding", damping=0.3).run(
        graph, potentials
    )
    assert by_ratios.converged
    assert general.converged
    assert by_ratios.log_partition == pytest.approx(general.log_partition, rel=1e-11)
    np.testing.assert_allclose(
        by_ratios.beliefs.factor_values, general.beliefs.factor_values, rtol=0, atol=1e-10
    )


def test_threads_give_the_same_bits():
    rng = np.random.default_rng(6)
    graph = ff.FactorGraph.grid(110, 100, 2)  # levels that are split among threads
    potentials = random_tables(rng, graph, 0.7)
    solver = ff.SumProduct(entropy=ff.TreeReweighted(), max_iter=30, accelerate=False)
    one = solver.run(graph, potentials)
    for n_jobs in (2, 3):
        several = replace(solver, n_jobs=n_jobs).run(graph, potentials)
        assert several.n_iter == one.n_iter
        np.testing.assert_array_equal(several.state.message, one.state.message)
        np.testing.assert_array_equal(several.beliefs.unary_values, one.beliefs.unary_values)
