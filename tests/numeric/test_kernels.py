"""Message kernels against their plain twin, and the exponential and logarithm they rest on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assertions import assert_same_beliefs, belief_distance
from numba import njit
from problems import random_graph, random_tables, random_tree
from reference.sum_product import SumProductTwin

from fieldfit.entropy.counting_numbers import Bethe, Convex, TreeReweighted
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.messages.message_arrays import ABOVE_TOLERANCE, CONTRADICTION, Changes
from fieldfit.inference.messages.message_run import build_model, initial_state
from fieldfit.inference.messages.message_sweeps import run_sweeps, threaded_sweeps
from fieldfit.inference.messages.schedule import (
    common_labels,
    flooding_plan,
    grid_clique_order,
    message_order_plan,
    sequential_plan,
    tree_plan,
)
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.numeric.simd import fast_exp, fast_log

ENTROPIES = (Bethe(), TreeReweighted(), Convex(), Convex(unary=0.3, factor=0.7))


# -- exponential and logarithm ------------------------------------------------------------


@njit
def exp_of_all(values, out):
    for k in range(len(values)):
        out[k] = fast_exp(values[k])


@njit
def log_of_all(values, out):
    for k in range(len(values)):
        out[k] = fast_log(values[k])


def applied(function, values):
    out = np.empty(len(values))
    function(np.asarray(values, dtype=np.float64), out)
    return out


# the contract is tighter than NumPy's own rounding, so the reference has 64 bits of mantissa
needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="no long double to compare with"
)


def exp_values():
    rng = np.random.default_rng(0)
    halves = (np.arange(-1020, 1009) + 0.5) * np.log(2.0)  # where the reduced argument is largest
    around = np.concatenate([np.nextafter(halves, -np.inf), halves, np.nextafter(halves, np.inf)])
    return np.concatenate([
        np.linspace(-708.0, 700.0, 400_001), np.linspace(-2.0, 2.0, 400_001),
        np.linspace(-1e-3, 1e-3, 20_001), 10.0 ** rng.uniform(-300, -3, 1000),
        -(10.0 ** rng.uniform(-300, -3, 1000)), around[(around >= -708) & (around <= 700)],
        [0.0, -0.0, -708.0, 700.0],
    ])  # fmt: skip


@needs_long_double
def test_fast_exp_is_accurate():
    values = exp_values()
    exact = np.exp(values.astype(np.longdouble))
    error = np.abs(applied(exp_of_all, values) - exact) / exact
    worst = int(np.argmax(error))
    assert error[worst] < 4e-16, f"exp({values[worst]!r}) is off by {error[worst]}"


def test_fast_exp_is_exact_at_the_edges():
    below = np.array([np.nextafter(-708.0, -np.inf), -709.0, -745.0, -1e5, -1e300, -np.inf])
    np.testing.assert_array_equal(applied(exp_of_all, below), np.zeros(6))
    np.testing.assert_array_equal(applied(exp_of_all, [0.0, -0.0]), [1.0, 1.0])
    assert applied(exp_of_all, [-708.0])[0] > 0.0


def log_values():
    rng = np.random.default_rng(1)
    roots = np.sqrt(0.5) * 2.0 ** np.arange(-1000, 1000)  # where the mantissa wraps round
    smallest, largest = np.finfo(float).tiny, np.finfo(float).max
    return np.concatenate([
        10.0 ** np.linspace(-307.6, 308.2, 400_001), np.linspace(0.5, 2.0, 400_001),
        1.0 + np.linspace(-1e-6, 1e-6, 20_001), 1.0 + 2.0 ** -rng.uniform(1, 52, 1000),
        np.nextafter(roots, 0), roots, np.nextafter(roots, np.inf),
        2.0 ** np.arange(-1022, 1024), [smallest, largest],
    ])  # fmt: skip


@needs_long_double
def test_fast_log_is_accurate():
    values = log_values()
    exact = np.log(values.astype(np.longdouble))
    error = np.abs(applied(log_of_all, values) - exact)
    allowed = np.maximum(4e-15, 4e-16 * np.abs(exact))
    worst = int(np.argmax(error / allowed))
    assert error[worst] < allowed[worst], f"log({values[worst]!r}) is off by {error[worst]}"
    assert applied(log_of_all, [1.0])[0] == 0.0


# -- one sweep is the twin's sweep --------------------------------------------------------


class Kernel:
    """The kernels on one model, driven sweep by sweep."""

    def __init__(self, graph, potentials, entropy, observed=None, plan=None, kernel=run_sweeps):
        self.graph, self.kernel = graph, kernel
        counting = entropy.counting_numbers(graph)
        self.model = build_model(graph, potentials, counting, observed)
        self.state = initial_state(graph, self.model, None)
        self.plan = flooding_plan(graph) if plan is None else plan
        self.changes = Changes(np.zeros(len(self.plan.pair_target)), np.zeros(len(self.plan.slots)))
        self.twin = SumProductTwin(graph, potentials, counting, observed)

    def sweep(self, damping=0.0, n_sweeps=1, tol=1e-300):
        return self.kernel(
            common_labels(self.graph), self.graph.structure, self.plan, self.model, self.state,
            self.changes, damping, tol, n_sweeps,
        )  # fmt: skip

    def assert_same_as_twin(self):
        np.testing.assert_allclose(
            self.state.message, self.twin.flat_messages(), rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(
            self.state.log_belief, np.concatenate(self.twin.log_beliefs), rtol=1e-12, atol=1e-12
        )


def pair_model(seed, n_labels, scale=1.0, zeros=0.0, n=9, n_edges=25):
    """Random pairs (more than one block of messages), some of them parallel."""
    rng = np.random.default_rng(seed)
    edges = [tuple(rng.choice(n, 2, replace=False)) for _ in range(n_edges)]
    graph = FactorGraph.from_edges(n, edges, n_labels)
    return graph, random_tables(rng, graph, scale, zeros)


def general_model(seed, scale=1.0, zeros=0.0):
    """Arities one to four, mixed cardinalities (single labels too), parallel factors."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 7, 12, max_arity=4, max_labels=4, repeats=2)
    cardinalities = graph.cardinalities.copy()
    cardinalities[0] = 1
    graph = FactorGraph(cardinalities, [graph.scope(a) for a in range(graph.n_factors)])
    return graph, random_tables(rng, graph, scale, zeros)


def mixed_model(seed, scale=1.0, zeros=0.0):
    """Pairs with a common number of labels beside pairs and triples with others."""
    rng = np.random.default_rng(seed)
    scopes = [(0, 1), (1, 2), (2, 0), (3, 2), (3, 4), (4, 5), (5, 3), (0, 3, 5), (1, 4), (2, 1)]
    graph = FactorGraph([3, 3, 3, 2, 4, 2], scopes)
    return graph, random_tables(rng, graph, scale, zeros)


MODELS = {
    "pairs of 2": lambda seed, scale, zeros: pair_model(seed, 2, scale, zeros),
    "pairs of 3": lambda seed, scale, zeros: pair_model(seed, 3, scale, zeros),
    "pairs of 5": lambda seed, scale, zeros: pair_model(seed, 5, scale, zeros),
    "pairs of 21": lambda seed, scale, zeros: pair_model(seed, 21, scale, zeros),
    "general": general_model,
    "mixed": mixed_model,
}

every_model = pytest.mark.parametrize("name", MODELS)
every_entropy = pytest.mark.parametrize("entropy", ENTROPIES, ids=str)


def test_the_models_use_the_kernels_they_are_meant_for():
    for name, build in MODELS.items():
        plan = flooding_plan(build(0, 1.0, 0.0)[0])
        assert len(plan.pair_target) > (-1 if name == "general" else 0), name
        assert (len(plan.slots) > 0) == (name in ("general", "mixed")), name
        if name.startswith("pairs"):
            assert len(plan.pair_target) > 32  # more than one block


@every_model
@every_entropy
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_flooding_sweeps_are_the_twin_sweeps(name, entropy, damping):
    graph, potentials = MODELS[name](1, 1.0, 0.0)
    kernel = Kernel(graph, potentials, entropy)
    for _ in range(3):
        change = kernel.twin.flooding_sweep(damping)
        n_sweeps, flags = kernel.sweep(damping)
        assert (n_sweeps, flags) == (1, ABOVE_TOLERANCE)
        kernel.assert_same_as_twin()
        largest = max(kernel.changes.pair.max(initial=0.0), kernel.changes.slot.max(initial=0.0))
        assert largest == pytest.approx(change, rel=1e-10, abs=1e-12)


@every_model
@every_entropy
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_hard_zeros_and_evidence(name, entropy, damping):
    n_hard = 0  # models where a label is impossible for a message, not only for a table
    for seed in range(3):
        graph, potentials = MODELS[name](seed, 1.0, 0.25)
        # evidence on a label that the unary potential allows
        observed = {1: int(potentials.unary(1).argmax())}
        kernel = Kernel(graph, potentials, entropy, observed)
        for _ in range(3):
            flags = kernel.sweep(damping)[1]
            if flags & CONTRADICTION:  # the evidence may contradict the zeros
                break
            kernel.twin.flooding_sweep(damping)
            kernel.assert_same_as_twin()
        n_hard += np.isneginf(kernel.state.message).any()
    assert n_hard >= 2


@every_model
@every_entropy
@pytest.mark.parametrize("zeros", [0.0, 0.2])
def test_extreme_ranges_take_the_exact_path(name, entropy, zeros):
    graph, potentials = MODELS[name](2, 700.0, zeros)
    kernel = Kernel(graph, potentials, entropy)
    # the tables underflow although their logarithms are finite, and so do sums of products
    assert np.any((kernel.model.exp_table == 0.0) & np.isfinite(kernel.model.log_table))
    for _ in range(3):
        kernel.sweep()
        kernel.twin.flooding_sweep()
        kernel.assert_same_as_twin()
    assert np.any(np.isfinite(kernel.state.message) & (kernel.state.message < -708.0))


@every_model
@every_entropy
@pytest.mark.parametrize("seed", range(3))
def test_a_sequential_plan_is_the_literal_sequence(name, entropy, seed):
    """Variables in any order, some twice: the plan's levels change nothing."""
    graph, potentials = MODELS[name](3 + seed, 1.0, 0.1 * seed)
    rng = np.random.default_rng(seed)
    order = np.concatenate(
        [rng.permutation(graph.n_variables), rng.integers(0, graph.n_variables, 4)]
    )
    kernel = Kernel(graph, potentials, entropy, plan=sequential_plan(graph, order))
    for damping in (0.0, 0.3):
        kernel.sweep(damping)
        kernel.twin.sequential_sweep(order, damping)
        kernel.assert_same_as_twin()


def messages_of(graph, slots):
    return np.stack([graph.slot_factors[slots], graph.slot_variables[slots]], axis=1)


@pytest.mark.parametrize("name", ["pairs of 2", "pairs of 3", "general", "mixed"])
@pytest.mark.parametrize("seed", range(5))
def test_a_message_order_plan_is_the_literal_sequence(name, seed):
    graph, potentials = MODELS[name](10 + seed, 1.0, 0.0)
    rng = np.random.default_rng(seed)
    linking = np.flatnonzero(graph.arities[graph.slot_factors] >= 2)
    slots = np.concatenate([rng.permutation(linking), rng.choice(linking, 6)])
    plan = message_order_plan(graph, messages_of(graph, slots))
    kernel = Kernel(graph, potentials, TreeReweighted(), plan=plan)
    for _ in range(2):
        kernel.sweep()
        kernel.twin.slot_sweep(slots)
        kernel.assert_same_as_twin()


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 1), (3, 4), (4, 3)])
def test_the_clique_order_visits_pairs_forth_and_back(shape):
    height, width = shape
    graph = FactorGraph.grid(height, width, 2)
    order = grid_clique_order(height, width)
    factors = order[:, 0]
    slots = graph.scope_offsets[factors] + (
        graph.slot_variables[graph.scope_offsets[factors]] != order[:, 1]
    )
    np.testing.assert_array_equal(messages_of(graph, slots), order)
    assert len(slots) == 4 * graph.n_factors
    np.testing.assert_array_equal(factors, factors[::-1])
    half = factors[: len(factors) // 2 : 2]
    assert sorted(half) == list(range(graph.n_factors))
    np.testing.assert_array_equal(np.sort(-graph.factor_types[half]), -graph.factor_types[half])
    # both messages of a pair at each visit
    np.testing.assert_array_equal(factors[::2], factors[1::2])
    assert np.all(slots[::2] != slots[1::2])
    vertical = [graph.scope(a) for a in half if graph.factor_types[a] == 1]
    assert vertical == sorted(vertical)  # line by line from the upper left corner
    if graph.n_factors:
        potentials = random_tables(np.random.default_rng(0), graph)
        kernel = Kernel(graph, potentials, Convex(), plan=message_order_plan(graph, order))
        kernel.sweep()
        kernel.twin.slot_sweep(slots)
        kernel.assert_same_as_twin()


@pytest.mark.parametrize("seed", range(10))
def test_one_sweep_of_a_tree_plan_is_exact_on_a_tree(seed):
    rng = np.random.default_rng(seed)
    graph = random_tree(rng, 12, max_arity=2 + seed % 3)
    kernel = Kernel(graph, random_tables(rng, graph), Bethe(), plan=tree_plan(graph))
    kernel.sweep()
    kernel.twin.solve()
    kernel.assert_same_as_twin()
    assert kernel.sweep(tol=1e-11) == (1, 0)


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_plan_covers_every_slot(seed):
    graph = random_graph(np.random.default_rng(seed), 8, 14, max_labels=3)
    plan = tree_plan(graph)
    linking = np.flatnonzero(graph.arities[graph.slot_factors] >= 2)
    first_entry = {int(graph.message_offsets[slot]): int(slot) for slot in linking}
    pairs = [first_entry[int(target)] for target in plan.pair_target]
    assert set(pairs) | {int(slot) for slot in plan.slots} == {int(slot) for slot in linking}


def test_run_sweeps_stops_at_the_tolerance():
    graph, potentials = MODELS["mixed"](0, 0.5, 0.0)
    kernel = Kernel(graph, potentials, TreeReweighted())
    n_sweeps, flags = kernel.sweep(tol=1e-9, n_sweeps=500)
    assert flags == 0
    assert 1 < n_sweeps < 500
    assert kernel.twin.solve().flat_messages() == pytest.approx(kernel.state.message, abs=1e-7)
    assert kernel.sweep(tol=1e-9, n_sweeps=500) == (1, 0)


def test_a_contradiction_is_flagged():
    graph = FactorGraph.chain(3, 2)
    differ = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    potentials = Potentials(graph, None, [differ, differ])
    for scopes, cardinalities in (([(0, 1), (1, 2)], [2, 2, 2]), ([(0, 1), (1, 2)], [2, 2, 3])):
        graph = FactorGraph(cardinalities, scopes)
        last = np.full((2, cardinalities[2]), 0.0)
        last[[0, 1], [0, 1]] = -np.inf
        last[:, 2:] = -np.inf
        potentials = Potentials(graph, None, [differ, last])
        kernel = Kernel(graph, potentials, Bethe(), observed={0: 0, 2: 1})
        flags = [kernel.sweep()[1] for _ in range(3)]
        assert any(flag & CONTRADICTION for flag in flags)


# -- residual and threads -----------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MODELS if name != "pairs of 21"])
@every_entropy
def test_residual_reaches_the_fixed_point_of_the_twin(name, entropy):
    graph, potentials = MODELS[name](4, 0.4, 0.0)
    twin = SumProductTwin(graph, potentials, entropy.counting_numbers(graph)).solve(tol=1e-10)
    solver = SumProduct(entropy=entropy, schedule="residual", tol=1e-10, max_iter=5000)
    result = solver.run(graph, potentials)
    assert result.converged, result.status
    assert_same_beliefs(result.beliefs, twin.beliefs(), atol=1e-7)


def large_models():
    rng = np.random.default_rng(7)
    for name, graph in (
        ("binary grid", FactorGraph.grid(70, 70, 2)),
        ("grid of three labels", FactorGraph.grid(50, 60, 3)),
        ("triples", FactorGraph(
            [2, 3] * 1500, np.stack([np.arange(2990) + k for k in (0, 1, 7)], axis=1))),
        ("pairs of both kinds", FactorGraph([2] * 3000 + [3] * 1000, np.concatenate([
            rng.integers(0, 2000, (6000, 1)), rng.integers(2000, 4000, (6000, 1))], axis=1))),
    ):  # fmt: skip
        potentials = Potentials.from_flat(
            graph,
            rng.normal(size=graph.unary_offsets[-1]),
            0.4 * rng.normal(size=graph.table_offsets[-1]),
        )
        yield pytest.param(graph, potentials, id=name)


LARGE_MODELS = tuple(large_models())


@pytest.mark.parametrize(("graph", "potentials"), LARGE_MODELS)
@pytest.mark.parametrize("schedule", ["flooding", "sequential", "tree", "residual"])
def test_threads_do_not_change_a_bit(graph, potentials, schedule):
    """More sweeps than one kernel call, so that plans cut down to what still changes run too."""
    solver = SumProduct(entropy=Convex(0.2), schedule=schedule, tol=1e-6, max_iter=20, damping=0.1)
    serial = solver.run(graph, potentials)
    assert serial.n_iter > 2
    for n_jobs in (2, 3):
        threaded = replace(solver, n_jobs=n_jobs).run(graph, potentials)
        assert threaded.n_iter == serial.n_iter
        np.testing.assert_array_equal(threaded.state.message, serial.state.message)
        np.testing.assert_array_equal(threaded.beliefs.unary_values, serial.beliefs.unary_values)
        np.testing.assert_array_equal(threaded.beliefs.factor_values, serial.beliefs.factor_values)
        assert threaded.log_partition == serial.log_partition
        assert threaded.residual == serial.residual


@pytest.mark.parametrize(("graph", "potentials"), LARGE_MODELS)
def test_flooding_on_a_large_graph_is_simultaneous(graph, potentials):
    """Blocks and chunks must not let one message of a factor see the other one of its sweep.

    Renaming variables backwards reverses the order of all messages inside a level; a flooding
    sweep does not know the difference.
    """
    # so small a tolerance that both end at max_iter, whatever the rounding
    solver = SumProduct(
        entropy=Convex(0.2), schedule="flooding", tol=1e-15, max_iter=10, damping=0.1
    )
    order = np.arange(graph.n_factors)[::-1]
    other = FactorGraph.from_flat(
        graph.cardinalities,
        np.concatenate([graph.scope(a) for a in order]),
        graph.arities[order],
    )
    tables = np.concatenate([potentials.factor(a).ravel() for a in order])
    reversed_potentials = Potentials.from_flat(other, potentials.unary_values, tables)
    first, second = solver.run(graph, potentials), solver.run(other, reversed_potentials)
    assert first.n_iter == second.n_iter == 10
    distance = np.abs(first.beliefs.unary_values - second.beliefs.unary_values).max()
    assert distance <= 1e-12, f"the order of factors moved a belief by {distance}"


def test_threaded_kernel_alone_is_the_serial_one():
    graph = FactorGraph.grid(60, 60, 2)
    potentials = random_tables(np.random.default_rng(0), graph)
    serial = Kernel(graph, potentials, Bethe())
    threaded = Kernel(graph, potentials, Bethe(), kernel=threaded_sweeps(2))
    for kernel in (serial, threaded):
        kernel.sweep(damping=0.2, n_sweeps=5)
    np.testing.assert_array_equal(threaded.state.message, serial.state.message)
    np.testing.assert_array_equal(threaded.state.log_belief, serial.state.log_belief)
    np.testing.assert_array_equal(threaded.changes.pair, serial.changes.pair)


def test_the_comparison_with_the_twin_can_fail():
    graph, potentials = MODELS["mixed"](1, 1.0, 0.0)
    kernel = Kernel(graph, potentials, Bethe())
    kernel.sweep()
    with pytest.raises(AssertionError):
        kernel.assert_same_as_twin()  # the twin has not moved
    kernel.twin.flooding_sweep(0.001)
    with pytest.raises(AssertionError):
        kernel.assert_same_as_twin()
    fresh = SumProductTwin(graph, potentials, Bethe().counting_numbers(graph))
    assert belief_distance(fresh.beliefs(), kernel.twin.beliefs()) > 1e-3
