"""The convergent double loop on Bethe's free energy: rising values, stationary ends, zeros, errors.

The laws that every inference owes are in `test_laws.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
from problems import PROBLEMS, ising, random_tables, random_tree
from reference.sum_product import primal_value

import fieldfit as ff
from fieldfit.errors import InvalidInputError, ZeroWeightError


def bethe_value(graph, potentials, beliefs):
    """Bethe's objective at beliefs, computed from them alone."""
    return primal_value(graph, potentials, ff.Bethe().counting_numbers(graph), beliefs)


def hard_grid():
    """Frustrated and strongly coupled: plain propagation runs in circles on it."""
    return ising(np.random.default_rng(1), 5, 5, coupling=3.0, field=1.0)


def hard_complete_graph():
    graph = ff.FactorGraph.from_edges(8, [(i, j) for i in range(8) for j in range(i)], 2)
    return graph, random_tables(np.random.default_rng(10), graph, scale=3.0)


HARD = {"grid": hard_grid, "complete graph": hard_complete_graph}


def easy_models():
    """Weak couplings, where Bethe's free energy has one stationary point."""
    rng = np.random.default_rng(3)
    mixed = ff.FactorGraph([2, 3, 4, 2, 5, 3], [(0, 1), (1, 2, 3), (3, 4), (4,), (2, 0), ()])
    grid = ff.FactorGraph.grid(4, 5, 3)
    return [(graph, random_tables(rng, graph, scale=0.4)) for graph in (mixed, grid)]


# -- where propagation fails --------------------------------------------------------------


@pytest.mark.parametrize("name", HARD)
def test_it_converges_where_propagation_does_not(name):
    graph, potentials = HARD[name]()
    flooding = ff.SumProduct(schedule="flooding", damping=0.0, max_iter=2000).run(graph, potentials)
    assert not flooding.converged
    assert flooding.residual > 0.1  # it runs in circles, and is not just slow
    result = ff.DoubleLoop().run(graph, potentials)
    assert result.converged, result.status
    assert result.status.startswith("converged: largest change of a belief")
    assert result.log_partition == pytest.approx(
        bethe_value(graph, potentials, result.beliefs), rel=1e-6
    )
    # what was found is a fixed point of propagation, even if an unstable one
    swept = ff.SumProduct(schedule="flooding", damping=0.0, max_iter=1).run(
        graph, potentials, init=result
    )
    np.testing.assert_allclose(
        swept.beliefs.unary_values, result.beliefs.unary_values, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("name", HARD)
def test_the_value_rises_round_by_round(name):
    graph, potentials = HARD[name]()
    values, residuals = [], []
    for n_rounds in (1, 2, 3, 4, 6, 9, 14, 22):
        solver = ff.DoubleLoop(tol=1e-10, max_rounds=n_rounds, max_iter=20_000, accelerate=False)
        result = solver.run(graph, potentials)
        assert (result.n_iter, result.converged, result.bound) == (n_rounds, False, None)
        # the line is made up for, so that the value is Bethe's own at these beliefs
        value = bethe_value(graph, potentials, result.beliefs)
        assert result.log_partition == pytest.approx(value, rel=1e-8)
        values.append(value)
        residuals.append(result.residual)
    assert residuals[0] == np.inf  # there was nothing to compare with
    assert np.diff(values).min() > -1e-9 * abs(values[-1])
    assert values[-1] > values[0] + 0.1


@pytest.mark.parametrize("index", [0, 1])
def test_it_agrees_with_propagation_where_that_converges(index):
    graph, potentials = easy_models()[index]
    bp = ff.SumProduct(tol=1e-12).run(graph, potentials)
    result = ff.DoubleLoop(tol=1e-10).run(graph, potentials)
    assert bp.converged
    assert result.converged
    assert result.log_partition == pytest.approx(bp.log_partition, rel=1e-9)
    for name in ("unary_values", "factor_values"):
        np.testing.assert_allclose(
            getattr(result.beliefs, name), getattr(bp.beliefs, name), rtol=0, atol=1e-7
        )


# -- graphs without cycles, zeros, evidence -----------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["zeros on a tree", "exclusive chain", "forced labels", "huge range with zeros", "hypertree",
     "evidence on a tree", "isolated variables", "empty graph", "constants only"],
)  # fmt: skip
def test_without_cycles_it_is_exact(name):
    (problem,) = (given for given in PROBLEMS if given.name == name)
    result = ff.DoubleLoop(tol=1e-11, max_rounds=5000).run(
        problem.graph, problem.potentials, problem.observed
    )
    assert (result.converged, result.bound) == (True, "exact"), result.status
    assert result.log_partition == pytest.approx(problem.exact.log_partition, rel=1e-9, abs=1e-9)
    for name in ("unary_values", "factor_values"):
        np.testing.assert_allclose(
            getattr(result.beliefs, name), getattr(problem.exact.beliefs, name), rtol=0, atol=1e-8
        )


def test_one_round_is_enough_where_no_entropy_is_negative():
    graph = ff.FactorGraph([2, 3, 2], [(0, 1), (2,)])
    potentials = random_tables(np.random.default_rng(0), graph)
    result = ff.DoubleLoop().run(graph, potentials)
    assert (result.n_iter, result.residual, result.bound) == (1, 0.0, "exact")
    exact = ff.BruteForce().run(graph, potentials)
    assert result.log_partition == pytest.approx(exact.log_partition, rel=1e-12)


def test_no_configuration_is_an_error():
    graph = ff.FactorGraph.chain(3, 2)
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    with pytest.raises(ZeroWeightError, match="total weight zero"):
        ff.DoubleLoop().run(graph, ff.Potentials(graph, None, equal), observed={0: 0, 2: 1})


# -- starts -------------------------------------------------------------------------------


def test_a_start_at_the_end_stays_there():
    graph, potentials = hard_grid()
    first = ff.DoubleLoop().run(graph, potentials)
    again = ff.DoubleLoop().run(graph, potentials, init=first)
    assert again.n_iter < first.n_iter / 10
    np.testing.assert_allclose(
        again.beliefs.unary_values, first.beliefs.unary_values, rtol=0, atol=1e-6
    )
    assert again.log_partition == pytest.approx(first.log_partition, rel=1e-9)


def test_a_start_from_propagation_keeps_its_fixed_point():
    graph, potentials = easy_models()[1]
    bp = ff.SumProduct(tol=1e-12).run(graph, potentials)
    result = ff.DoubleLoop(tol=1e-7).run(graph, potentials, init=bp)
    assert result.n_iter <= 2
    np.testing.assert_allclose(
        result.beliefs.unary_values, bp.beliefs.unary_values, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("coupling", [0.5, 0.6, 0.8])
def test_acceleration_keeps_the_fixed_point_that_rounds_from_a_start_lead_to(coupling):
    """Two phases of a ferromagnet: the start is in the less likely one."""
    graph = ff.FactorGraph.grid(8, 8, 2)
    tables = [coupling * np.array([[1.0, -1.0], [-1.0, 1.0]])] * graph.n_factors
    start = ff.SumProduct().run(graph, ff.Potentials(graph, [[3.0, 0.0]] * 64, tables))
    potentials = ff.Potentials(graph, [[0.0, 0.04]] * 64, tables)
    rounds = ff.DoubleLoop(accelerate=False).run(graph, potentials, init=start)
    fast = ff.DoubleLoop().run(graph, potentials, init=start)
    assert rounds.beliefs.unary(27)[0] > 0.9
    assert fast.diagnostics["n_interior_point"] > 0
    assert fast.n_iter < rounds.n_iter
    np.testing.assert_allclose(
        fast.beliefs.unary_values, rounds.beliefs.unary_values, rtol=0, atol=1e-6
    )
    # without a start the likelier phase is found
    assert ff.DoubleLoop().run(graph, potentials).beliefs.unary(27)[0] < 0.1


def test_a_start_under_other_evidence_shuts_nothing_out():
    """Labels of belief zero in the start come back when they are possible."""
    rng = np.random.default_rng(5)
    graph = random_tree(rng, 7)
    potentials = random_tables(rng, graph)
    start = ff.DoubleLoop().run(graph, potentials, observed={0: 0, 3: 1})
    for observed in (None, {0: 1, 3: 0}):
        result = ff.DoubleLoop(tol=1e-10).run(graph, potentials, observed, init=start)
        exact = ff.Exact().run(graph, potentials, observed)
        assert result.log_partition == pytest.approx(exact.log_partition, rel=1e-8)


# -- batches ------------------------------------------------------------------------------


def test_company_does_not_matter():
    """Examples that come to rest early keep their answer, whoever goes on around them."""
    models = [hard_grid(), *easy_models(), (ff.FactorGraph([3]), None)]
    graphs = [graph for graph, _ in models]
    given = [ff.Potentials(graph) if pots is None else pots for graph, pots in models]
    batch, solver = ff.graph.Batch.of(graphs), ff.DoubleLoop(tol=1e-9)
    together = solver.run_batch(batch, batch.pack(given))
    assert together.converged_examples.all()
    for example, (graph, potentials) in enumerate(zip(graphs, given, strict=True)):
        alone = solver.run(graph, potentials)
        assert together.log_partitions[example] == pytest.approx(alone.log_partition, rel=1e-8)
        np.testing.assert_allclose(
            batch.split(together.beliefs)[example].unary_values,
            alone.beliefs.unary_values,
            rtol=0,
            atol=1e-6,
        )
    assert together.log_partition == pytest.approx(together.log_partitions.sum(), rel=1e-12)


# -- reports and errors -------------------------------------------------------------------


def test_an_early_stop_is_reported():
    graph, potentials = hard_grid()
    batch = ff.graph.Batch.of([graph, ff.FactorGraph.chain(3, 2)])
    packed = batch.pack([potentials, ff.Potentials(batch.graphs[1])])
    result = ff.DoubleLoop(max_rounds=3).run_batch(batch, packed)
    assert result.converged_examples.tolist() == [False, True]
    assert (result.converged, result.bound, result.n_iter) == (False, None, 3)
    assert result.status.startswith("not converged in 1 of 2 examples: largest change of a belief")
    assert f"after 3 rounds and {result.diagnostics['n_sweeps']} sweeps" in result.status


def test_rounds_that_are_cut_short_do_not_count_as_converged():
    graph, potentials = hard_grid()
    result = ff.DoubleLoop(max_iter=1, max_rounds=40).run(graph, potentials)
    assert not result.converged
    assert np.isfinite(result.log_partition)
    assert result.diagnostics["n_sweeps"] == 40


def test_progress_is_told():
    graph, potentials = easy_models()[0]
    told = []
    result = ff.DoubleLoop().run(
        graph, potentials, progress=lambda n_rounds, change: told.append((n_rounds, change))
    )
    assert [n_rounds for n_rounds, _ in told] == list(range(1, result.n_iter + 1))
    assert told[-1][1] == result.residual <= 1e-8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": 0.0}, "tol must be positive, got 0.0"),
        ({"tol": float("nan")}, "tol must be finite and positive, got nan"),
        ({"max_rounds": 0}, "max_rounds must be an integer of at least 1, got 0"),
        ({"max_iter": -1}, "max_iter must be an integer of at least 1, got -1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InvalidInputError, match=message):
        ff.DoubleLoop(**options)


def test_bad_input():
    graph = ff.FactorGraph.chain(3, 2)
    other = ff.FactorGraph([2, 2, 2], [(0, 1), (0, 2)])  # of the same size
    longer = ff.FactorGraph.chain(4, 2)
    solver, zero = ff.DoubleLoop(), ff.Potentials(graph)
    for given in (other, longer):
        with pytest.raises(InvalidInputError, match="potentials must belong to the given graph"):
            solver.run(graph, ff.Potentials(given))
        start = solver.run(given, ff.Potentials(given))
        with pytest.raises(InvalidInputError, match="init must be a result on a graph of this"):
            solver.run(graph, zero, init=start)
    with pytest.raises(InvalidInputError, match="init must be a SumProduct result"):
        solver.run(graph, zero, init=ff.MeanField().run(graph, zero))
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        ff.DoubleLoop(n_jobs=0)
