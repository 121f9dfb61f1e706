"""Kikuchi's free energy: kernels against a twin, exactness, accuracy, rising values, errors.

The laws that every inference owes are in `test_laws.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assertions import assert_distributions, assert_locally_consistent, assert_same_beliefs
from problems import PROBLEMS, random_graph, random_tables
from reference.regions import four_cycles, twin_of

import fieldfit as ff
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.potentials import conditioned_unary
from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct
from fieldfit.inference.kikuchi.kikuchi_run import RegionRun, plain_messages
from fieldfit.inference.kikuchi.region_graph import RegionGraph


def spin_glass(seed, side, coupling=1.5, field=0.25):
    """Spins of size one on a grid, couplings and fields uniform around zero."""
    rng = np.random.default_rng(seed)
    graph = ff.FactorGraph.grid(side, side, 2)
    strength = rng.uniform(-coupling, coupling, (graph.n_factors, 1, 1))
    unary = rng.uniform(-field, field, (side * side, 1)) * np.array([[1.0, -1.0]])
    return graph, ff.Potentials(graph, unary, strength * np.array([[1.0, -1.0], [-1.0, 1.0]]))


def outer_sets(graph):
    """What "plaquettes" stands for."""
    scopes = [graph.scope(a) for a in range(graph.n_factors) if graph.scope(a)]
    pairs = [scope for scope in scopes if len(scope) == 2]
    return [*four_cycles(pairs), *scopes, *((i,) for i in range(graph.n_variables))]


def region_beliefs(run):
    regions = run.regions
    return {
        regions.scope(r): np.exp(
            run.state.log_belief[regions.table_offsets[r] : regions.table_offsets[r + 1]]
        ).reshape([regions.cardinalities[i] for i in regions.scope(r)])
        for r in range(regions.n_regions)
    }


def twin_models():
    rng = np.random.default_rng(0)
    mixed = ff.FactorGraph(
        [2, 3, 2, 2, 3, 2], [(1, 0), (1, 2, 3), (3, 4), (4,), (2, 0, 4), (), (4, 5), (5, 0)]
    )
    grid = ff.FactorGraph.grid(3, 3, 2)
    return {
        "grid": (grid, random_tables(rng, grid), None),
        "mixed": (mixed, random_tables(rng, mixed), None),
        "zeros": (mixed, random_tables(rng, mixed, zeros=0.25, kept=np.array(6 * [1])), {5: 1}),
        # probabilities underflow, so that sums run in the log domain
        "huge": (grid, random_tables(rng, grid, scale=300.0), None),
    }


# -- kernels ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", twin_models())
@pytest.mark.parametrize(("moves_lines", "damping"), [(False, 0.0), (True, 0.0), (True, 0.3)])
def test_sweeps_are_those_of_the_twin(name, moves_lines, damping):
    graph, potentials, observed = twin_models()[name]
    twin = twin_of(graph, potentials, outer_sets(graph), observed)
    regions = RegionGraph.of(graph)
    assert [regions.scope(r) for r in range(regions.n_outer, regions.n_regions)] == twin.inner
    run = RegionRun(
        ff.graph.Batch.of([graph]),
        regions,
        potentials,
        conditioned_unary(graph, potentials, observed),
    )
    everyone, never = run.everyone, np.zeros(1)
    for sweep in range(4):
        run.sweep(everyone, never, 1, np.array([damping]) if moves_lines else None)
        twin.sweep(False, moves_lines, damping)
        expected = twin.beliefs()
        for region, belief in region_beliefs(run).items():
            np.testing.assert_allclose(
                belief, expected[region], rtol=0, atol=1e-9, err_msg=f"{sweep}, {region}"
            )
    # two sweeps in one call go there and back
    run.sweep(everyone, never, 2, np.array([damping]) if moves_lines else None)
    twin.sweep(False, moves_lines, damping)
    twin.sweep(True, moves_lines, damping)
    for region, belief in region_beliefs(run).items():
        np.testing.assert_allclose(belief, twin.beliefs()[region], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["grid", "mixed", "zeros"])
def test_the_dual_of_a_round_falls_to_its_maximum(name):
    """Every sweep is an exact descent on the dual, and at the end it is the primal value."""
    graph, potentials, observed = twin_models()[name]
    twin = twin_of(graph, potentials, outer_sets(graph), observed)
    run = RegionRun(
        ff.graph.Batch.of([graph]),
        RegionGraph.of(graph),
        potentials,
        conditioned_unary(graph, potentials, observed),
    )
    duals = []
    for _ in range(60):
        run.sweep(run.everyone, np.zeros(1), 1)
        left_out = sum(
            max(-twin.counts[s], 0.0) * float(np.sum(b[b > 0] * (np.log(b[b > 0] * b.size))))
            for s, b in region_beliefs(run).items()
            if s in twin.counts
        )
        duals.append(run.values(run.everyone)[0][0] - left_out)  # without what the line leaves out
    assert np.diff(duals).max() <= 1e-12 * abs(duals[0])
    assert duals[0] > duals[-1] + 1e-3
    value = twin.value(region_beliefs(run))
    assert run.values(run.everyone)[0][0] == pytest.approx(value, rel=1e-9)


# -- exactness ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["double-loop", "messages"])
def test_exact_on_a_junction_tree(method):
    """Two neighbouring columns of a grid at a time: a chain of large regions."""
    rng = np.random.default_rng(1)
    graph = ff.FactorGraph.grid(3, 5, 2)
    potentials = random_tables(rng, graph, scale=1.5)
    pixel = np.arange(15).reshape(3, 5)
    columns = [pixel[:, k : k + 2].ravel().tolist() for k in range(4)]
    result = GeneralizedSumProduct(columns, method=method, tol=1e-12).run(graph, potentials)
    exact = ff.BruteForce().run(graph, potentials)
    assert (result.converged, result.bound) == (True, "exact")
    assert result.log_partition == pytest.approx(exact.log_partition, rel=1e-11)
    assert_same_beliefs(result.beliefs, exact.beliefs, atol=1e-10)


@pytest.mark.parametrize("method", ["double-loop", "messages"])
@pytest.mark.parametrize(
    ("scopes", "seeds"),
    [
        ([(0, 1), (1, 2), (2, 3)], (751, 1348, 1840)),
        ([(0, 1, 2), (1, 2, 3), (2, 3, 4)], (373, 1490, 1750, 2206, 2757)),
        ([(0, 1, 2, 3), (0, 1, 2, 4), (1, 2, 5)], (1808, 2683, 2841)),
    ],
)
def test_what_is_called_exact_is_exact_at_strong_couplings(scopes, seeds, method):
    """Labels rise from 1e-100 while the beliefs of all regions agree, about another one."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n_variables = 1 + max(i for scope in scopes for i in scope)
        graph = ff.FactorGraph([2, 2, 3, 2, 3, 3][:n_variables], scopes)
        potentials = random_tables(rng, graph, scale=100.0, zeros=0.5)
        exact = ff.BruteForce().run(graph, potentials)
        result = GeneralizedSumProduct(method=method).run(graph, potentials)
        assert (result.converged, result.bound) == (True, "exact")
        assert result.log_partition == pytest.approx(exact.log_partition, abs=1e-5)
        assert_same_beliefs(result.beliefs, exact.beliefs, atol=1e-4)


def test_a_single_region_is_brute_force():
    rng = np.random.default_rng(2)
    graph = random_graph(rng, 6, 8, max_labels=3)
    potentials = random_tables(rng, graph, zeros=0.1)
    result = GeneralizedSumProduct([range(6)]).run(graph, potentials)
    exact = ff.BruteForce().run(graph, potentials)
    assert (result.bound, result.n_iter) == ("exact", 1)
    assert result.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
    assert_same_beliefs(result.beliefs, exact.beliefs, atol=1e-12)


@pytest.mark.parametrize("method", ["double-loop", "messages"])
@pytest.mark.parametrize(
    "name",
    ["mixed cardinalities", "repeated scopes", "arity four", "random hypergraph",
     "grid of three labels", "complete graph", "zeros on a grid", "evidence and zeros"],
)  # fmt: skip
def test_bethe_regions_are_bethe(name, method):
    """The registry's problems are weak enough for Bethe's stationary point to be unique."""
    (problem,) = (given for given in PROBLEMS if given.name == name)
    given = problem.graph, problem.potentials, problem.observed
    result = GeneralizedSumProduct("bethe", method=method, tol=1e-10, max_iter=20_000).run(*given)
    for other in (ff.SumProduct(tol=1e-11).run(*given), ff.DoubleLoop(tol=1e-10).run(*given)):
        assert result.converged
        assert other.converged
        assert result.log_partition == pytest.approx(other.log_partition, rel=1e-8)
        assert_same_beliefs(result.beliefs, other.beliefs, atol=1e-6)


def test_beliefs_are_the_gradient_of_the_value():
    """At a stationary point of the free energy, for unary entries and tables alike."""
    rng = np.random.default_rng(3)
    graph = ff.FactorGraph.grid(3, 4, 2)
    potentials = random_tables(rng, graph, scale=0.7)
    solver = GeneralizedSumProduct(tol=1e-13, max_iter=20_000)
    result = solver.run(graph, potentials)
    step = 1e-4
    for name in ("unary_values", "factor_values"):
        values = getattr(potentials, name)
        for entry in rng.choice(len(values), 6, replace=False):
            ends = []
            for sign in (1.0, -1.0):
                moved = values.copy()
                moved[entry] += sign * step
                pair = {"unary_values": potentials.unary_values,
                        "factor_values": potentials.factor_values, name: moved}  # fmt: skip
                ends.append(solver.run(graph, ff.Potentials.from_flat(graph, **pair)).log_partition)
            slope = (ends[0] - ends[1]) / (2 * step)
            assert slope == pytest.approx(getattr(result.beliefs, name)[entry], abs=1e-7)


# -- accuracy -----------------------------------------------------------------------------


@pytest.mark.parametrize("side", [6, 10])
def test_plaquettes_at_least_halve_the_error_of_bethe(side):
    """Couplings uniform in [-1.5, 1.5], fields in [-0.25, 0.25]: far beyond halving, in fact."""
    errors = {"bethe": [], "plaquettes": []}
    for seed in range(5):
        graph, potentials = spin_glass(seed, side)
        exact = ff.Exact().run(graph, potentials).beliefs.unary_matrix()
        for kind, found in errors.items():
            result = GeneralizedSumProduct(kind).run(graph, potentials)
            assert result.converged, result.status
            found.append(np.abs(result.beliefs.unary_matrix() - exact).mean())
    assert np.mean(errors["plaquettes"]) <= 0.5 * np.mean(errors["bethe"])
    assert np.mean(errors["plaquettes"]) <= 0.1 * np.mean(errors["bethe"])
    assert np.mean(errors["bethe"]) > 0.02  # otherwise there would be nothing to gain


def test_blocks_of_a_grid_with_diagonals():
    """Eight neighbours: the blocks are cliques, and are given as lists."""
    rng = np.random.default_rng(4)
    graph = ff.FactorGraph.grid(4, 4, 3, neighbors=8)
    potentials = random_tables(rng, graph, scale=0.7)
    pixel = np.arange(16).reshape(4, 4)
    blocks = [pixel[r : r + 2, c : c + 2].ravel() for r in range(3) for c in range(3)]
    exact = ff.Exact().run(graph, potentials)
    errors = {}
    for name, regions in (("bethe", "bethe"), ("blocks", blocks)):
        result = GeneralizedSumProduct(regions).run(graph, potentials)
        assert result.converged, result.status
        errors[name] = np.abs(result.beliefs.unary_values - exact.beliefs.unary_values).mean()
    assert errors["blocks"] < 0.2 * errors["bethe"]


# -- the double loop ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bethe", "plaquettes"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_free_energy_never_rises(kind, seed):
    """Round by round from a cold start, computed from the beliefs of regions alone."""
    graph, potentials = spin_glass(seed, 6, coupling=2.5)
    values = []
    for n_rounds in (1, 2, 3, 5, 8, 13, 21, 40):
        result = GeneralizedSumProduct(
            kind, first_sweeps=0, max_rounds=n_rounds, tol=1e-9, max_iter=20_000
        ).run(graph, potentials)
        regions = RegionGraph.of(graph, kind)
        log_belief = result.state.log_belief
        sizes = np.diff(regions.table_offsets)
        terms = -np.exp(log_belief) * np.repeat(regions.counts, sizes) * log_belief
        score = potentials.dot(result.beliefs)
        values.append(score + terms.sum())
        recorded = result.diagnostics["free_energies"]
        assert recorded.shape == (n_rounds, 1)
        assert (np.diff(recorded[:, 0]) <= 0.0).all()
        # rounds are solved to a hundredth of what beliefs move in them
        assert -recorded[-1, 0] == pytest.approx(values[-1], rel=1e-3)
        assert -recorded[-1, 0] == result.log_partition
    assert np.diff(values).min() > -1e-4 * abs(values[-1])
    assert values[-1] > values[0] + 0.02


def test_exact_rounds_raise_the_value_to_the_last_digit():
    """Without the short cut of loosely solved rounds the beliefs themselves never get worse."""
    graph, potentials = spin_glass(2, 6, coupling=2.5)
    twin = twin_of(graph, potentials, outer_sets(graph))
    run = RegionRun(
        ff.graph.Batch.of([graph]),
        RegionGraph.of(graph),
        potentials,
        conditioned_unary(graph, potentials, None),
    )
    values = []
    for _ in range(15):
        run.sweep(run.everyone, np.array([1e-12]), 20_000)
        values.append(twin.value(region_beliefs(run)))
        run.relinearise_at_beliefs(run.everyone)
    assert np.diff(values).min() > 0.0


@pytest.mark.parametrize("seed", range(3))
def test_both_methods_and_both_starts_end_at_a_fixed_point_of_messages(seed):
    graph, potentials = spin_glass(seed, 6, coupling=2.0)
    solver = GeneralizedSumProduct(tol=1e-9, max_rounds=20_000)
    results = [
        solver.run(graph, potentials),
        replace(solver, first_sweeps=0).run(graph, potentials),
        replace(solver, method="messages").run(graph, potentials),
        replace(solver, method="messages", damping=0.5, max_iter=20_000).run(graph, potentials),
    ]
    for result in results:
        assert result.converged, result.status
        assert_distributions(result.beliefs)
        assert_locally_consistent(result.beliefs, atol=1e-7)
        again = replace(solver, method="messages", tol=1e-6, max_iter=1).run(
            graph, potentials, init=result
        )
        assert again.converged
        assert_same_beliefs(again.beliefs, result.beliefs, atol=1e-6)
        assert result.log_partition == pytest.approx(results[0].log_partition, rel=1e-9)


def test_strong_couplings_converge():
    """Couplings of up to 8: tables span 32 natural logarithms."""
    graph, potentials = spin_glass(0, 6, coupling=8.0)
    result = GeneralizedSumProduct(max_rounds=5000).run(graph, potentials)
    assert result.converged, result.status
    assert_distributions(result.beliefs)
    bethe = GeneralizedSumProduct("bethe", max_rounds=5000).run(graph, potentials)
    exact = ff.Exact().run(graph, potentials)
    assert abs(result.log_partition - exact.log_partition) < 0.2 * abs(
        bethe.log_partition - exact.log_partition
    )


# -- zeros, evidence, labels --------------------------------------------------------------


def test_several_labels_with_zeros_and_evidence():
    rng = np.random.default_rng(5)
    graph = ff.FactorGraph.grid(4, 4, 3)
    kept = rng.integers(0, 3, 16)
    potentials = random_tables(rng, graph, scale=1.0, zeros=0.1, kept=kept)
    observed = {0: int(kept[0]), 9: int(kept[9])}
    exact = ff.Exact().run(graph, potentials, observed)
    found = {}
    for kind in ("bethe", "plaquettes"):
        result = GeneralizedSumProduct(kind, max_rounds=5000).run(graph, potentials, observed)
        assert result.converged, result.status
        assert_distributions(result.beliefs)
        assert result.beliefs.unary(9)[kept[9]] == 1.0
        assert (result.beliefs.factor_values[np.isneginf(potentials.factor_values)] == 0.0).all()
        found[kind] = np.abs(result.beliefs.unary_values - exact.beliefs.unary_values).mean()
    assert found["plaquettes"] < 0.3 * found["bethe"]


@pytest.mark.parametrize("method", ["double-loop", "messages"])
def test_no_configuration_is_an_error(method):
    graph = ff.FactorGraph.grid(2, 3, 2)
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    solver = GeneralizedSumProduct(method=method)
    with pytest.raises(ZeroWeightError, match=r"no configuration of the variables \(.*is possible"):
        solver.run(graph, ff.Potentials(graph, None, equal), observed={0: 0, 5: 1})
    constant = ff.FactorGraph([2], [()])
    with pytest.raises(ZeroWeightError, match="a constant factor is -inf"):
        solver.run(constant, ff.Potentials(constant, None, [-np.inf]))


def test_runaway_messages_end_without_a_false_claim():
    """Hard constraints around cycles: log-beliefs fall without end, but none becomes a zero."""
    graph = ff.FactorGraph.grid(4, 4, 2)
    rng = np.random.default_rng(6)
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    potentials = ff.Potentials(graph, 0.1 * rng.normal(size=(16, 2)), equal)
    for kind in ("bethe", "plaquettes"):
        for method in ("double-loop", "messages"):
            result = GeneralizedSumProduct(kind, method=method, max_rounds=300).run(
                graph, potentials
            )
            assert_distributions(result.beliefs)
            assert np.isfinite(result.log_partition)
    exact = ff.Exact().run(graph, potentials)
    # what plaquettes say is one label for all
    assert result.beliefs.unary(0) == pytest.approx(result.beliefs.unary(15), abs=1e-5)
    assert abs(result.log_partition - exact.log_partition) < 1.0


@pytest.mark.parametrize("damping", [None, 0.2])
def test_multipliers_that_grow_are_given_up(damping):
    """Updates that go the wrong way on purpose: the run ends at its start, and says so."""
    graph, potentials = spin_glass(0, 4)
    run = RegionRun(
        ff.graph.Batch.of([graph]),
        RegionGraph.of(graph),
        potentials,
        conditioned_unary(graph, potentials, None),
    )
    run.model.total[:] *= -0.5
    plain_messages(run, 2000, 1e-6, damping)
    assert run.gaps[0] == np.inf
    assert run.n_sweeps[0] < 2000
    assert (run.state.multiplier == 0.0).all()
    assert_distributions(run.beliefs())


# -- starts and batches -------------------------------------------------------------------


@pytest.mark.parametrize("method", ["double-loop", "messages"])
def test_a_start_at_the_end_stays_there(method):
    graph, potentials = spin_glass(1, 6)
    solver = GeneralizedSumProduct(method=method, tol=1e-8)
    first = solver.run(graph, potentials)
    before = first.state.multiplier.copy()
    again = replace(solver, tol=1e-6).run(graph, potentials, init=first)
    assert again.n_iter <= 2
    assert_same_beliefs(again.beliefs, first.beliefs, atol=1e-6)
    np.testing.assert_array_equal(first.state.multiplier, before)


def test_a_start_under_other_evidence_shuts_nothing_out():
    graph, potentials = spin_glass(1, 4)
    start = GeneralizedSumProduct().run(graph, potentials, observed={5: 0, 10: 1})
    for observed in (None, {5: 1, 3: 0}):
        warm = GeneralizedSumProduct(tol=1e-9).run(graph, potentials, observed, init=start)
        cold = GeneralizedSumProduct(tol=1e-9).run(graph, potentials, observed)
        assert warm.log_partition == pytest.approx(cold.log_partition, rel=1e-8)


@pytest.mark.parametrize("method", ["double-loop", "messages"])
def test_company_and_threads_do_not_change_a_bit(method):
    models = [spin_glass(seed, side) for seed, side in ((0, 3), (1, 6), (2, 3), (3, 4))]
    mixed = random_graph(np.random.default_rng(7), 6, 7, max_labels=3)
    models.append((mixed, random_tables(np.random.default_rng(8), mixed, scale=0.5, zeros=0.1)))
    models.append((ff.FactorGraph([3]), ff.Potentials(ff.FactorGraph([3]))))
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    packed = batch.pack([potentials for _, potentials in models])
    solver = GeneralizedSumProduct(method=method)
    together = solver.run_batch(batch, packed)
    for example, (graph, potentials) in enumerate(models):
        alone = solver.run(graph, potentials)
        beliefs = batch.split(together.beliefs)[example]
        np.testing.assert_array_equal(beliefs.unary_values, alone.beliefs.unary_values)
        np.testing.assert_array_equal(beliefs.factor_values, alone.beliefs.factor_values)
        assert together.log_partitions[example] == alone.log_partition
        assert together.converged_examples[example] == alone.converged
    threads = replace(solver, n_jobs=3).run_batch(batch, packed)
    np.testing.assert_array_equal(threads.beliefs.unary_values, together.beliefs.unary_values)
    np.testing.assert_array_equal(threads.log_partitions, together.log_partitions)


def test_lists_name_the_variables_of_each_example():
    models = [spin_glass(seed, 3) for seed in range(3)]
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    lists = [[0, 1, 2, 3, 4, 5], [3, 4, 5, 6, 7, 8]]
    result = GeneralizedSumProduct(lists, tol=1e-11).run_batch(
        batch, batch.pack([potentials for _, potentials in models])
    )
    assert result.bound == "exact"
    for example, (graph, potentials) in enumerate(models):
        exact = ff.Exact().run(graph, potentials)
        assert result.log_partitions[example] == pytest.approx(exact.log_partition, rel=1e-10)


# -- reports and errors -------------------------------------------------------------------


def test_an_early_stop_is_reported():
    graph, potentials = spin_glass(0, 6)
    chain = ff.FactorGraph.chain(2, 2)
    batch = ff.graph.Batch.of([graph, chain])
    packed = batch.pack([potentials, ff.Potentials(chain)])
    result = GeneralizedSumProduct(max_rounds=2, first_sweeps=0).run_batch(batch, packed)
    assert result.converged_examples.tolist() == [False, True]
    assert (result.converged, result.bound, result.n_iter) == (False, None, 2)
    assert result.status.startswith("not converged in 1 of 2 examples: largest change of a belief")
    assert "more rounds or more sweeps" in result.status
    short = GeneralizedSumProduct(method="messages", max_iter=3).run(graph, potentials)
    assert not short.converged
    assert "damping or the double loop may help" in short.status
    # a round that is cut short is not converged either, however little beliefs move
    cut = GeneralizedSumProduct(max_iter=1, max_rounds=3, first_sweeps=0).run(graph, potentials)
    assert not cut.converged


def test_progress_is_told():
    graph, potentials = spin_glass(0, 4)
    told = []
    result = GeneralizedSumProduct(first_sweeps=0).run(
        graph, potentials, progress=lambda n_rounds, change: told.append((n_rounds, change))
    )
    assert [n_rounds for n_rounds, _ in told] == list(range(1, result.n_iter + 1))
    assert told[-1][1] == result.residual <= 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "bp"}, "method must be one of 'double-loop', 'messages', got 'bp'"),
        ({"tol": 0.0}, "tol must be positive, got 0.0"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"max_rounds": 0}, "max_rounds must be an integer of at least 1, got 0"),
        ({"first_sweeps": -1}, "first_sweeps must be an integer of at least 0, got -1"),
        ({"damping": 1.0}, r"damping must be in \[0, 1\) or None, got 1.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InvalidInputError, match=message):
        GeneralizedSumProduct(**options)


def test_bad_input():
    graph, potentials = spin_glass(0, 3)
    chain = ff.FactorGraph.chain(9, 2)
    with pytest.raises(InvalidInputError, match="potentials must belong to the given graph"):
        GeneralizedSumProduct().run(chain, potentials)
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        GeneralizedSumProduct(n_jobs=0)
    for other in (ff.SumProduct(), GeneralizedSumProduct("bethe")):
        start = other.run(graph, potentials)
        with pytest.raises(InvalidInputError, match="init must be a GeneralizedSumProduct result"):
            GeneralizedSumProduct().run(graph, potentials, init=start)
