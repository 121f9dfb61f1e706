"""Options, statuses and behaviour of `SumProduct` beyond the laws of `test_laws.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assertions import (
    assert_bound,
    assert_close,
    assert_distributions,
    assert_no_nan,
    assert_same_beliefs,
)
from problems import ising, random_graph, random_tables
from reference.sum_product import SumProductTwin, primal_value

import fieldfit as ff

ENTROPIES = (ff.Bethe(), ff.TreeReweighted(), ff.Convex(), ff.TreeReweighted(0.5))
SCHEDULES = ("flooding", "sequential", "tree", "residual")


@pytest.fixture(scope="module")
def grid():
    graph = ff.FactorGraph.grid(4, 5, 3)
    return graph, random_tables(np.random.default_rng(0), graph, 0.5)


@pytest.fixture(scope="module")
def frustrated():
    """Strong couplings of both signs, where plain belief propagation does not converge."""
    return ising(np.random.default_rng(3), 10, 10, 3.0)


# -- options ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"schedule": "random"}, "schedule must be one of .*'residual'.*, got 'random'"),
        ({"damping": 1.0}, r"damping must be in \[0, 1\) or None, got 1.0"),
        ({"damping": -0.1}, r"damping must be in \[0, 1\) or None, got -0.1"),
        ({"damping": np.nan}, r"damping must be finite and in \[0, 1\) or None, got nan"),
        ({"tol": 0.0}, "tol must be positive, got 0.0"),
        ({"tol": np.nan}, "tol must be finite and positive, got nan"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"n_jobs": 0}, "n_jobs must not be 0"),
        ({"order": [0, 1], "schedule": "tree"}, "order needs schedule='sequential', got .*'tree'"),
        ({"order": [0, 20]}, r"order must name variables 0\.\.19, got 0\.\.20"),
        ({"order": [-1, 3]}, r"order must name variables 0\.\.19, got -1\.\.3"),
        ({"order": [0.5, 1.0]}, "order must be integers, got dtype float64"),
        ({"order": np.zeros((2, 2, 2), int)}, r"order must be .*, got .*shape \(2, 2, 2\)"),
        ({"order": list(range(19))}, "order must name every variable .*, variable 19 is missing"),
    ],
)  # fmt: skip
def test_bad_options_are_named(grid, options, sentence):
    with pytest.raises(ff.InvalidInputError, match=sentence):
        ff.SumProduct(**options).run(*grid)


@pytest.mark.parametrize(
    ("observed", "sentence"),
    [
        ({20: 0}, r"observed must name variables 0\.\.19, got 20"),
        ({-1: 0}, r"observed must name variables 0\.\.19, got -1"),
        ({3: 3}, r"observed: the label of variable 3 must be in 0\.\.2, got 3"),
        ({3: -1}, r"observed: the label of variable 3 must be in 0\.\.2, got -1"),
        (np.zeros(19, int), r"observed must be .*shape \(20,\), got .*\(19,\)"),
        (np.zeros(20), "observed must be .*integer array.*, got dtype float64"),
        (np.full(20, 7), r"observed: the label of variable 0 must be in 0\.\.2, got 7"),
        (np.full(20, -2), r"observed: the label of variable 0 must be in 0\.\.2, got -2"),
    ],
)
def test_bad_evidence_is_named(grid, observed, sentence):
    with pytest.raises(ff.InvalidInputError, match=sentence):
        ff.SumProduct().run(*grid, observed)


def test_potentials_must_belong_to_the_graph(grid):
    with pytest.raises(ff.InvalidInputError, match="potentials must belong to"):
        ff.SumProduct().run(ff.FactorGraph.grid(5, 4, 2), grid[1])


def test_init_must_come_from_the_same_structure(grid):
    other = ff.FactorGraph.chain(3, 2)
    small = ff.SumProduct().run(other, ff.Potentials(other))
    with pytest.raises(ff.InvalidInputError, match="init must be a SumProduct result"):
        ff.SumProduct().run(*grid, init=small)
    exact = ff.Exact().run(*grid)
    with pytest.raises(ff.InvalidInputError, match="init must be a SumProduct result"):
        ff.SumProduct().run(*grid, init=exact)


def test_options_are_frozen_and_shown():
    solver = ff.SumProduct(tol=1e-3)
    with pytest.raises(AttributeError):
        solver.tol = 1.0
    assert "tol=0.001" in repr(solver)
    with pytest.raises(TypeError):
        ff.SumProduct(tolerance=1e-3)


# -- what is reported ---------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("entropy", ENTROPIES, ids=str)
def test_fields_at_convergence(grid, entropy, schedule):
    graph, potentials = grid
    result = ff.SumProduct(entropy=entropy, schedule=schedule, tol=1e-9).run(graph, potentials)
    assert result.converged
    assert result.residual <= 1e-9
    assert result.status.startswith("converged: largest message change")
    assert result.method == f"SumProduct({type(entropy).__name__}, {schedule})"
    assert result.log_partitions.tolist() == [result.log_partition]
    assert result.converged_examples.tolist() == [True]
    counting = entropy.counting_numbers(graph)
    assert result.bound == counting.bound
    value = primal_value(graph, potentials, counting, result.beliefs)
    assert_close(result.log_partition, value, atol=1e-7)


def test_known_values():
    """Two equal spins of coupling J: log Z = log(2 e^J + 2 e^-J), P(equal) = e^J / (2 cosh J)."""
    coupling = 0.7
    graph = ff.FactorGraph([2, 2], [(0, 1)])
    table = coupling * np.array([[1.0, -1.0], [-1.0, 1.0]])
    result = ff.SumProduct().run(graph, ff.Potentials(graph, None, [table]))
    assert_close(result.log_partition, np.log(4 * np.cosh(coupling)), atol=1e-14)
    together = np.exp(coupling) / (4 * np.cosh(coupling))
    np.testing.assert_allclose(np.diag(result.beliefs.factor(0)), [together] * 2, rtol=1e-14)
    assert result.bound == "exact"


def test_bethe_on_a_ring_is_the_transfer_matrix_fixed_point():
    """Uniform ring of n spins: Bethe's value is n log of the top eigenvalue of exp(J s s')."""
    n, coupling = 6, 0.8
    graph = ff.FactorGraph.from_edges(n, [(k, (k + 1) % n) for k in range(n)], 2)
    table = coupling * np.array([[1.0, -1.0], [-1.0, 1.0]])
    result = ff.SumProduct(tol=1e-12).run(
        graph, ff.Potentials(graph, None, np.tile(table, (n, 1, 1)))
    )
    assert_close(result.log_partition, n * np.log(2 * np.cosh(coupling)), atol=1e-12)
    exact = np.log((2 * np.cosh(coupling)) ** n + (2 * np.sinh(coupling)) ** n)
    assert result.log_partition < exact - 1e-3  # Bethe is not exact here
    assert result.bound is None


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_non_convergence_is_visible(frustrated, schedule):
    result = ff.SumProduct(schedule=schedule, damping=0.0, max_iter=50).run(*frustrated)
    assert not result.converged
    assert result.residual > 1e-3
    assert not result.converged_examples.any()
    assert result.status.startswith("not converged: largest message change")
    assert "TreeReweighted" in result.status
    assert result.bound is None
    assert_no_nan(result)
    assert_distributions(result.beliefs)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_more_sweeps_than_asked_for(frustrated, schedule):
    for max_iter in (1, 7, 8, 20):
        result = ff.SumProduct(schedule=schedule, max_iter=max_iter).run(*frustrated)
        assert not result.converged
        assert result.n_iter <= max_iter


def test_automatic_damping_converges_where_plain_flooding_does_not():
    """A frustrated ring of antiferromagnetic triangles: flooding oscillates, damped it settles."""
    graph = ff.FactorGraph.from_edges(6, [(i, j) for i in range(6) for j in range(i)], 2)
    table = -0.9 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    unary = 0.1 * np.random.default_rng(0).normal(size=(6, 2))
    potentials = ff.Potentials(graph, unary, np.tile(table, (15, 1, 1)))
    plain = ff.SumProduct(schedule="flooding", damping=0.0, max_iter=2000).run(graph, potentials)
    assert not plain.converged
    automatic = ff.SumProduct(schedule="flooding", max_iter=2000).run(graph, potentials)
    assert automatic.converged, automatic.status
    by_hand = ff.SumProduct(schedule="flooding", damping=0.6, max_iter=2000).run(graph, potentials)
    assert_same_beliefs(automatic.beliefs, by_hand.beliefs, atol=1e-6)


def test_damping_does_not_move_the_fixed_point(grid):
    plain = ff.SumProduct(damping=0.0, tol=1e-10).run(*grid)
    for damping in (0.3, 0.8):
        damped = ff.SumProduct(damping=damping, tol=1e-10).run(*grid)
        assert damped.converged
        assert damped.n_iter > plain.n_iter
        assert_same_beliefs(damped.beliefs, plain.beliefs, atol=1e-8)


def test_concave_entropies_converge_on_the_frustrated_model(frustrated):
    """Where belief propagation fails, sequential descent on the convex dual does not."""
    result = ff.SumProduct(entropy=ff.Convex(unary=0.5), tol=1e-8, max_iter=20_000).run(*frustrated)
    assert result.converged, result.status
    assert result.bound == "upper"


def test_convex_value_falls_with_every_sweep_and_always_bounds():
    """A convex entropy's value is a dual one: monotone and a bound before convergence too."""
    graph, potentials = ising(np.random.default_rng(5), 4, 4, 3.0)
    exact = ff.Exact().run(graph, potentials).log_partition
    values, result = [], None
    for _ in range(12):
        solver = ff.SumProduct(entropy=ff.Convex(), max_iter=1, damping=0.0, tol=1e-13)
        result = solver.run(graph, potentials, init=result)
        assert result.bound == "upper"
        assert_bound("upper", result.log_partition, exact)
        values.append(result.log_partition)
    assert np.all(np.diff(values) <= 1e-10)
    assert values[0] - values[-1] > 1e-3


@pytest.mark.parametrize("n_copies", [3, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_messages_that_diverge_are_not_called_converged(n_copies, schedule):
    """Parallel equality constraints multiply the evidence in every sweep until it overflows."""
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    graph = ff.FactorGraph([2, 2], [(0, 1)] * n_copies)
    potentials = ff.Potentials(graph, [[0.0, 0.3], None], [equal] * n_copies)
    result = ff.SumProduct(schedule=schedule, max_iter=3000).run(graph, potentials)
    assert_no_nan(result)
    assert_distributions(result.beliefs)
    assert not result.converged
    reweighted = ff.SumProduct(entropy=ff.TreeReweighted(), schedule=schedule)
    assert_same_beliefs(
        reweighted.run(graph, potentials).beliefs,
        ff.Exact().run(graph, potentials).beliefs,
        atol=1e-8,
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_evidence_adds_up_along_a_chain_of_hard_constraints(schedule):
    """Sums of thousands of potentials are evidence, not divergence: nothing is cut off."""
    n = 1000
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    graph = ff.FactorGraph.chain(n, 2)
    unary = np.zeros((n, 2))
    unary[: n // 2 - 20, 0] = 1000.0
    unary[n // 2 + 20 :, 1] = 1000.0
    unary[n // 2, 1] = 1.0
    potentials = ff.Potentials(graph, unary, np.tile(equal, (n - 1, 1, 1)))
    result = ff.SumProduct(schedule=schedule, max_iter=2000).run(graph, potentials)
    assert result.converged, result.status
    odds = np.exp(-1.0)
    for i in (0, n // 2, n - 1):
        np.testing.assert_allclose(
            result.beliefs.unary(i), [odds / (1 + odds), 1 / (1 + odds)], atol=1e-9
        )


# -- orders -------------------------------------------------------------------------------


def test_any_order_reaches_the_fixed_point(grid):
    graph, potentials = grid
    expected = ff.SumProduct(tol=1e-10).run(graph, potentials)
    rng = np.random.default_rng(1)
    for order in (
        np.arange(20),
        np.arange(20)[::-1],
        rng.permutation(20),
        [*range(20), *range(20)],
    ):
        result = ff.SumProduct(order=order, tol=1e-10).run(graph, potentials)
        assert result.converged
        assert_same_beliefs(result.beliefs, expected.beliefs, atol=1e-8)


def test_an_order_is_followed_literally():
    """One sweep along a chain carries evidence forwards only as far as the order does."""
    graph = ff.FactorGraph.chain(4, 2)
    table = np.array([[1.0, 0.0], [0.0, 1.0]])
    potentials = ff.Potentials(graph, [[0.0, 2.0], None, None, None], [table] * 3)
    exact = ff.Exact().run(graph, potentials)
    forward = ff.SumProduct(order=[0, 1, 2, 3], max_iter=1, damping=0.0).run(graph, potentials)
    np.testing.assert_allclose(forward.beliefs.unary(3), exact.beliefs.unary(3), atol=1e-12)
    twin = SumProductTwin(graph, potentials, ff.Bethe().counting_numbers(graph))
    twin.sequential_sweep([3, 2, 1, 0])
    backward = ff.SumProduct(order=[3, 2, 1, 0], max_iter=1, damping=0.0).run(graph, potentials)
    np.testing.assert_allclose(
        backward.beliefs.unary_values, twin.beliefs().unary_values, atol=1e-12
    )
    assert abs(backward.beliefs.unary(3)[0] - exact.beliefs.unary(3)[0]) > 1e-2


def test_the_default_order_is_exact_on_a_tree_after_one_sweep():
    graph = ff.FactorGraph.chain(30, 3)
    potentials = random_tables(np.random.default_rng(2), graph)
    result = ff.SumProduct().run(graph, potentials)
    assert result.n_iter <= 2  # the second sweep verifies
    assert_close(result.log_partition, ff.Exact().run(graph, potentials).log_partition, atol=1e-10)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ([[0, 0, 1]], "must have rows (factor, variable)"),
        (
            [[0, 3]],
            r"order[0] must be a factor of two or more variables and one of them, got (0, 3)",
        ),
        ([[99, 0]], r"got (99, 0)"),
        ([[0, 0], [0, 1]], "must name every message"),
    ],
)
def test_an_order_of_messages_is_checked(grid, order, words):
    with pytest.raises(ff.InvalidInputError) as error:
        ff.SumProduct(order=order).run(*grid)
    assert words in str(error.value)


def test_the_clique_order_of_the_grid_is_an_order():
    graph = ff.FactorGraph.grid(4, 5, 3)
    potentials = random_tables(np.random.default_rng(0), graph, 0.5)
    expected = ff.SumProduct(tol=1e-10).run(graph, potentials)
    solver = ff.SumProduct(order=ff.inference.grid_clique_order(4, 5), tol=1e-10)
    result = solver.run(graph, potentials)
    assert result.converged
    assert_same_beliefs(result.beliefs, expected.beliefs, atol=1e-8)


# -- evidence, starts, progress -----------------------------------------------------------


def test_evidence_as_mapping_and_as_array(grid):
    labels = np.full(20, -1)
    labels[[2, 7, 19]] = [1, 0, 2]
    first = ff.SumProduct().run(*grid, {2: 1, 7: 0, 19: 2})
    for given in (
        labels,
        labels.astype(np.int8),
        list(labels),
        {np.int64(2): np.int32(1), 7: 0, 19: 2},
    ):
        second = ff.SumProduct().run(*grid, given)
        np.testing.assert_array_equal(second.beliefs.unary_values, first.beliefs.unary_values)
        assert second.log_partition == first.log_partition
    nothing = ff.SumProduct().run(*grid)
    for given in ({}, np.full(20, -1)):
        assert ff.SumProduct().run(*grid, given).log_partition == nothing.log_partition


def test_a_start_from_other_potentials_saves_sweeps(grid):
    graph, potentials = grid
    start = ff.SumProduct(tol=1e-10).run(graph, potentials)
    near = ff.Potentials.from_flat(
        graph, potentials.unary_values + 1e-5, potentials.factor_values * (1 + 1e-6)
    )
    cold = ff.SumProduct(tol=1e-8).run(graph, near)
    warm = ff.SumProduct(tol=1e-8).run(graph, near, init=start)
    assert warm.converged
    assert warm.n_iter < cold.n_iter
    assert_same_beliefs(warm.beliefs, cold.beliefs, atol=1e-7)


def test_a_start_with_excluded_labels_does_not_exclude_them_for_ever(grid):
    graph, potentials = grid
    clamped = ff.SumProduct().run(graph, potentials, {3: 1, 4: 2})
    freed = ff.SumProduct(tol=1e-10).run(graph, potentials, init=clamped)
    expected = ff.SumProduct(tol=1e-10).run(graph, potentials)
    assert_same_beliefs(freed.beliefs, expected.beliefs, atol=1e-8)


def test_a_start_may_change_entropy_and_schedule(grid):
    start = ff.SumProduct().run(*grid)
    for entropy in ENTROPIES:
        for schedule in SCHEDULES:
            solver = ff.SumProduct(entropy=entropy, schedule=schedule, tol=1e-10)
            warm, cold = solver.run(*grid, init=start), solver.run(*grid)
            assert_same_beliefs(warm.beliefs, cold.beliefs, atol=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_progress_is_told(grid, schedule):
    calls = []
    solver = ff.SumProduct(schedule=schedule, tol=1e-10)
    result = solver.run(*grid, progress=lambda n_iter, residual: calls.append((n_iter, residual)))
    assert len(calls) >= 2
    sweeps = [n_iter for n_iter, _ in calls]
    assert sweeps == sorted(sweeps)
    assert sweeps[-1] == result.n_iter
    assert calls[-1][1] == result.residual
    quiet = solver.run(*grid)
    assert_same_beliefs(quiet.beliefs, result.beliefs, atol=1e-8)


def test_a_progress_that_raises_stops_the_run(grid):
    def stop(n_iter, residual):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ff.SumProduct().run(*grid, progress=stop)


def test_runs_leave_their_inputs_alone(grid):
    graph, potentials = grid
    unary, factor = potentials.unary_values.copy(), potentials.factor_values.copy()
    observed = np.full(20, -1)
    observed[0] = 1
    for schedule in SCHEDULES:
        ff.SumProduct(schedule=schedule).run(graph, potentials, observed)
    np.testing.assert_array_equal(potentials.unary_values, unary)
    np.testing.assert_array_equal(potentials.factor_values, factor)
    assert observed[0] == 1


def test_read_only_potentials_are_welcome(grid):
    graph, potentials = grid
    frozen = ff.Potentials.from_flat(
        graph, potentials.unary_values.copy(), potentials.factor_values.copy()
    )
    frozen.unary_values.flags.writeable = False
    frozen.factor_values.flags.writeable = False
    assert (
        ff.SumProduct().run(graph, frozen).log_partition == ff.SumProduct().run(*grid).log_partition
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("entropy", ENTROPIES[:3], ids=lambda entropy: entropy.name)
def test_messages_to_observed_variables_are_left_out_without_loss(grid, entropy, schedule):
    """Evidence as hard zeros of the unary potentials sends every message, and gives the same."""
    graph, potentials = grid
    observed = np.random.default_rng(1).integers(-1, 3, graph.n_variables)
    unary = potentials.unary_values.copy()
    for i in np.flatnonzero(observed >= 0):
        others = np.arange(3) != observed[i]
        unary[graph.unary_offsets[i] : graph.unary_offsets[i + 1]][others] = -np.inf
    clamped = ff.Potentials.from_flat(graph, unary, potentials.factor_values)
    solver = ff.SumProduct(entropy, schedule=schedule, tol=1e-10)
    first, second = solver.run(graph, potentials, observed=observed), solver.run(graph, clamped)
    assert first.converged
    assert_close(first.log_partition, second.log_partition, atol=1e-9)
    assert_same_beliefs(first.beliefs, second.beliefs, atol=1e-8)


def test_evidence_against_hard_zeros_is_still_noticed():
    graph = ff.FactorGraph.chain(3, 2)
    table = np.array([[0.0, 0.0], [0.0, -np.inf]])
    potentials = ff.Potentials(graph, factors=[table, table])
    with pytest.raises(ff.errors.ZeroWeightError):
        ff.SumProduct().run(graph, potentials, observed=np.array([1, 1, -1]))


# -- batches ------------------------------------------------------------------------------


def test_a_batch_says_which_examples_did_not_converge(frustrated, grid):
    hard, easy = frustrated, grid
    batch = ff.graph.Batch.of([easy[0], hard[0], easy[0]])
    potentials = batch.pack([easy[1], hard[1], easy[1]])
    result = ff.SumProduct(damping=0.0, max_iter=200).run_batch(batch, potentials)
    assert result.converged_examples.tolist() == [True, False, True]
    assert not result.converged
    assert "in 1 of 3 examples" in result.status
    alone = ff.SumProduct(damping=0.0).run(*easy)
    for m in (0, 2):
        assert_same_beliefs(batch.split(result.beliefs)[m], alone.beliefs, atol=1e-6)
        assert_close(result.log_partitions[m], alone.log_partition, atol=1e-8)


def test_a_batch_of_many_small_graphs():
    rng = np.random.default_rng(4)
    graphs = [
        random_graph(rng, int(rng.integers(1, 6)), 4, max_arity=3, max_labels=3) for _ in range(40)
    ]
    tables = [random_tables(rng, g, 0.4) for g in graphs]
    batch = ff.graph.Batch.of(graphs)
    for entropy in ENTROPIES[:3]:
        solver = ff.SumProduct(entropy=entropy, tol=1e-10, max_iter=5000)
        together = solver.run_batch(batch, batch.pack(tables))
        parts = batch.split(together.beliefs)
        for m, (graph, potentials) in enumerate(zip(graphs, tables, strict=True)):
            alone = solver.run(graph, potentials)
            assert_same_beliefs(parts[m], alone.beliefs, atol=1e-7)
            assert_close(together.log_partitions[m], alone.log_partition, atol=1e-8)


def test_jobs_give_the_same_answer_on_a_small_graph(grid):
    serial = ff.SumProduct().run(*grid)
    for n_jobs in (1, 2, -1):
        result = replace(ff.SumProduct(), n_jobs=n_jobs).run(*grid)
        np.testing.assert_array_equal(result.beliefs.unary_values, serial.beliefs.unary_values)


# -- optimised weights --------------------------------------------------------------------


def test_optimised_weights_tighten_the_bound_and_never_loosen_it():
    improved = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        graph, potentials = ising(rng, 3, 3, 2.0) if seed % 2 else (None, None)
        if graph is None:
            graph = random_graph(rng, 6, 8, max_arity=3, max_labels=3)
            potentials = random_tables(rng, graph)
        exact = ff.Exact().run(graph, potentials).log_partition
        default = ff.SumProduct(entropy=ff.TreeReweighted()).run(graph, potentials)
        best = ff.SumProduct(entropy=ff.TreeReweighted(rho="optimized")).run(graph, potentials)
        assert best.bound in ("upper", "exact")
        assert_bound("upper", best.log_partition, exact)
        assert best.log_partition <= default.log_partition + 1e-9
        improved += best.log_partition < default.log_partition - 1e-4
    assert improved >= 3
