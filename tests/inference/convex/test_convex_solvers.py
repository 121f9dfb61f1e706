"""Concave problems with a weight for every configuration: the solvers agree."""

from __future__ import annotations

import numpy as np
import pytest
from assertions import assert_locally_consistent
from problems import random_graph, random_tables
from reference.implicit import constraints

import fieldfit as ff
from fieldfit.entropy.configuration_weights import EntropyWeights
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.inference.convex import convex_primal
from fieldfit.inference.convex.convex_dual import ConvexDual
from fieldfit.inference.convex.convex_primal import ConvexPrimal
from fieldfit.inference.convex.convex_solver import run_with_hessian
from fieldfit.inference.second_order.implicit_gradient import implicit_gradient
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, MarginalHessian

SOLVERS = {
    "dual": ConvexDual(tol=1e-11),
    "primal": ConvexPrimal(tol=1e-10),
    "blocks": ConvexPrimal(tol=1e-10, block_size=3, overlap=1),
}
by_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def random_weights(rng, graph, least=0.1):
    unary = [rng.uniform(least, 1.0, int(k)) for k in graph.cardinalities]
    factors = [rng.uniform(least, 1.0, graph.table_shape(a)) for a in range(graph.n_factors)]
    return EntropyWeights(graph, unary, factors)


def value_of(beliefs, potentials, weights):
    """``<th, b> - sum w b log b``; potentials of factors of arity one count with the variable."""
    total = potentials.dot(beliefs)
    for b, w in (
        (beliefs.unary_values, weights.unary_values),
        (beliefs.factor_values, weights.factor_values),
    ):
        total -= float(np.sum(w[b > 0] * b[b > 0] * np.log(b[b > 0])))
    return total


def stationarity(beliefs, potentials, weights):
    """How far ``th - w (log b + 1)`` is from the span of the constraints: zero at the optimum."""
    graph = beliefs.graph
    assert not np.any(graph.arities < 2)
    b = np.concatenate([beliefs.unary_values, beliefs.factor_values])
    w = np.concatenate([weights.unary_values, weights.factor_values])
    th = np.concatenate([potentials.unary_values, potentials.factor_values])
    matrix, force = constraints(graph), th - w * (np.log(b) + 1.0)
    multipliers = np.linalg.lstsq(matrix.T, force, rcond=None)[0]
    return float(np.abs(force - matrix.T @ multipliers).max())


# -- optimality ---------------------------------------------------------------------------


@by_solver
@pytest.mark.parametrize("seed", range(4))
def test_solutions_are_consistent_and_stationary(solver, seed):
    rng = np.random.default_rng(seed)
    scopes = [(0, 1), (1, 2), (2, 0), (0, 2, 3), (3, 4), (4, 1)]
    graph = ff.FactorGraph([2, 3, 2, 4, 2], scopes)
    potentials, weights = random_tables(rng, graph), random_weights(rng, graph)
    result = solver.run(graph, potentials, weights=weights)
    assert result.converged, result.status
    assert_locally_consistent(result.beliefs, atol=1e-9)
    assert stationarity(result.beliefs, potentials, weights) < 1e-7
    assert result.log_partition == pytest.approx(
        value_of(result.beliefs, potentials, weights), abs=1e-9
    )


def test_other_beliefs_are_not_stationary():
    """The check above can fail."""
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(2, 2, 2)
    potentials, weights = random_tables(rng, graph), random_weights(rng, graph)
    beliefs = ConvexDual().run(graph, potentials, weights=EntropyWeights(graph)).beliefs
    assert stationarity(beliefs, potentials, weights) > 1e-3


@by_solver
def test_no_consistent_beliefs_are_better(solver):
    rng = np.random.default_rng(7)
    graph = random_graph(rng, 5, 5, max_arity=3, max_labels=3)
    potentials, weights = random_tables(rng, graph), random_weights(rng, graph)
    best = solver.run(graph, potentials, weights=weights)
    for _ in range(20):
        other = ff.BruteForce().run(graph, random_tables(rng, graph)).beliefs
        share = rng.random()
        mixed = ff.Beliefs(
            graph,
            share * other.unary_values + (1 - share) * best.beliefs.unary_values,
            share * other.factor_values + (1 - share) * best.beliefs.factor_values,
        )
        assert value_of(mixed, potentials, weights) <= best.log_partition + 1e-9


# -- agreement ----------------------------------------------------------------------------


def grid(height, width, n_labels, scale, seed=0):
    rng = np.random.default_rng(seed)
    graph = ff.FactorGraph.grid(height, width, n_labels)
    unary = scale * rng.normal(size=(graph.n_variables, n_labels))
    return graph, ff.Potentials(
        graph, unary, scale * rng.normal(size=(graph.n_factors, n_labels, n_labels))
    )


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("shape", [(28, 28, 2), (20, 20, 5)], ids=str)
def test_primal_dual_and_messages_agree_on_grids(shape, scale):
    graph, potentials = grid(*shape, scale)
    for entropy in (ff.Convex(), ff.Convex(0.1), ff.Convex(1.0)):
        messages = ff.SumProduct(entropy, tol=1e-11, max_iter=20_000).run(graph, potentials)
        dual = ConvexDual(entropy, tol=1e-10).run(graph, potentials)
        primal = ConvexPrimal(entropy, tol=1e-9).run(graph, potentials)
        assert messages.converged
        assert dual.converged, dual.status
        assert primal.converged, primal.status
        assert primal.n_iter <= 25
        weights = EntropyWeights.of(entropy, graph)
        values = [value_of(r.beliefs, potentials, weights) for r in (messages, dual, primal)]
        values += [r.log_partition for r in (messages, dual, primal)]
        np.testing.assert_allclose(values, values[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("shape", [(28, 28, 2), (20, 20, 5)], ids=str)
def test_primal_and_dual_agree_with_weights_of_configurations(shape):
    graph, potentials = grid(*shape, 1.0)
    weights = random_weights(np.random.default_rng(1), graph)
    dual = ConvexDual(tol=1e-10).run(graph, potentials, weights=weights)
    primal = ConvexPrimal(tol=1e-9).run(graph, potentials, weights=weights)
    assert dual.converged
    assert primal.converged
    assert primal.n_iter <= 25
    assert primal.log_partition == pytest.approx(dual.log_partition, abs=1e-8)
    np.testing.assert_allclose(
        primal.beliefs.factor_values, dual.beliefs.factor_values, rtol=0, atol=1e-8
    )


def test_blocks_agree_with_the_whole():
    graph, potentials = grid(28, 28, 2, 1.0)
    whole = ConvexPrimal(tol=1e-9).run(graph, potentials)
    blocks = ConvexPrimal(tol=1e-9, block_size=200, overlap=3).run(graph, potentials)
    assert blocks.converged, blocks.status
    assert blocks.n_iter <= 25
    assert blocks.log_partition == pytest.approx(whole.log_partition, abs=1e-8)
    np.testing.assert_allclose(
        blocks.beliefs.unary_values, whole.beliefs.unary_values, rtol=0, atol=1e-7
    )


# -- evidence, zeros, batches, starts ------------------------------------------------------


@by_solver
@pytest.mark.parametrize("seed", range(3))
def test_evidence_and_hard_zeros(solver, seed):
    rng = np.random.default_rng(seed)
    graph = ff.FactorGraph([2, 3, 2, 3], [(0, 1), (1, 2), (2, 3), (3, 0), (1, 2, 3), (1,)])
    potentials = random_tables(rng, graph, zeros=0.15, kept=np.zeros(4, dtype=int))
    weights = random_weights(rng, graph)
    result = solver.run(graph, potentials, {2: 0}, weights=weights)
    assert result.converged, result.status
    np.testing.assert_allclose(result.beliefs.unary(2), [1.0, 0.0], atol=1e-12)
    assert np.all(result.beliefs.factor_values[np.isneginf(potentials.factor_values)] == 0.0)
    assert_locally_consistent(result.beliefs, atol=1e-8)
    other = ConvexDual(tol=1e-12).run(graph, potentials, {2: 0}, weights=weights)
    assert result.log_partition == pytest.approx(other.log_partition, abs=1e-8)
    np.testing.assert_allclose(
        result.beliefs.factor_values, other.beliefs.factor_values, rtol=0, atol=1e-6
    )


@by_solver
def test_a_batch_with_weights(solver):
    rng = np.random.default_rng(3)
    graphs = [ff.FactorGraph.grid(2, 3, 2), ff.FactorGraph([3]), ff.FactorGraph.chain(4, 3)]
    tables = [random_tables(rng, g) for g in graphs]
    weights = [random_weights(rng, g) for g in graphs]
    batch = Batch.of(graphs)
    joined = EntropyWeights.from_flat(
        batch.graph,
        np.concatenate([w.unary_values for w in weights]),
        np.concatenate([w.factor_values for w in weights]),
    )
    together = solver.run_batch(batch, batch.pack(tables), weights=joined)
    for value, graph, potentials, own in zip(
        together.log_partitions, graphs, tables, weights, strict=True
    ):
        alone = solver.run(graph, potentials, weights=own)
        assert value == pytest.approx(alone.log_partition, abs=1e-9)


@by_solver
def test_a_start_near_the_solution_saves_steps(solver):
    graph, potentials = grid(8, 8, 3, 2.0)
    cold = solver.run(graph, potentials)
    moved = ff.Potentials.from_flat(
        graph, potentials.unary_values + 1e-3, potentials.factor_values * 1.001
    )
    warm = solver.run(graph, moved, init=cold)
    fresh = solver.run(graph, moved)
    assert warm.n_iter < fresh.n_iter
    assert warm.log_partition == pytest.approx(fresh.log_partition, abs=1e-8)


def extreme_problem():
    """Scores of fifty and weights down to 0.004: a system between 1e-20 and 1e20."""
    rng = np.random.default_rng(115)
    n_labels = int(rng.integers(3, 6))
    graph = ff.FactorGraph.grid(6, 6, n_labels)
    scale, spread = float(rng.choice([1, 10, 50, 200])), float(rng.choice([1, 4, 8]))
    unary = list(scale * rng.normal(size=(36, n_labels)))
    potentials = ff.Potentials(graph, unary, scale * rng.normal(size=(n_labels, n_labels)))
    of_variables = 0.01 * np.exp(rng.uniform(-spread, spread, n_labels))
    of_factors = np.exp(rng.uniform(-spread, spread, (n_labels, n_labels)))
    weights = EntropyWeights(graph, [of_variables] * 36, [of_factors] * graph.n_factors)
    return graph, potentials, weights


def assert_finite(found):
    assert np.isfinite(found.residual)
    assert np.isfinite(found.beliefs.unary_values).all()
    assert np.isfinite(found.beliefs.factor_values).all()


def test_scores_and_weights_of_many_orders():
    graph, potentials, weights = extreme_problem()
    found = ConvexPrimal(tol=1e-6, max_iter=60).run(graph, potentials, weights=weights)
    assert_finite(found)
    assert found.converged, found.status


def test_what_rounding_cannot_solve_is_left_finite(monkeypatch):
    """The solver stops where it is, and says that it has not converged."""
    graph, potentials, weights = extreme_problem()
    solve, calls = MarginalHessian.solve, []

    def fail_later(*arguments):
        calls.append(None)
        if len(calls) > 6:
            raise IndefiniteError
        return solve(*arguments)

    monkeypatch.setattr(MarginalHessian, "solve", fail_later)
    found = ConvexPrimal(tol=1e-6, max_iter=60).run(graph, potentials, weights=weights)
    assert not found.converged
    assert found.n_iter == 7
    assert_finite(found)


def test_beliefs_that_go_to_zero_do_not_slow_the_others():
    # weights of 0.04 against scores of 8: many configurations have beliefs of 1e-30 and less
    graph = ff.FactorGraph.grid(28, 28, 2)
    rng = np.random.default_rng(0)
    scores, table = rng.normal(size=(graph.n_variables, 2)), 8.0 * np.eye(2)
    tables = np.array([[0.21, 1.6], [0.04, 1.6]])

    def problem(stretch):
        potentials = ff.Potentials(graph, list(4.0 * stretch * scores), stretch * table)
        return potentials, EntropyWeights(graph, 0.01, tables / stretch)

    solver = ConvexPrimal(tol=1e-6)
    potentials, weights = problem(1.0)
    cold = solver.run(graph, potentials, weights=weights)
    potentials, weights = problem(1.01)
    warm = solver.run(graph, potentials, weights=weights, init=cold)
    assert warm.converged
    # 6, but 12 if moves stay cautious for the sake of the smallest belief
    assert warm.n_iter <= 9


@by_solver
def test_too_few_steps_are_said(solver):
    from dataclasses import replace

    graph, potentials = grid(6, 6, 2, 3.0)
    result = replace(solver, max_iter=1).run(graph, potentials)
    assert not result.converged
    assert result.status.startswith("not converged")
    # the dual is an upper bound wherever it stops
    assert result.bound == "upper"
    assert result.log_partition >= ff.Exact().run(graph, potentials).log_partition


def test_progress_is_told():
    graph, potentials = grid(4, 4, 2, 1.0)
    for solver in SOLVERS.values():
        told = []
        solver.run(graph, potentials, progress=lambda n, r, told=told: told.append((n, r)))
        assert [n for n, _ in told] == list(range(1, len(told) + 1))


# -- weights ------------------------------------------------------------------------------


def test_weights_are_spread():
    graph = ff.FactorGraph([2, 3, 2], [(0, 1), (1, 2), (1,), ()])
    weights = EntropyWeights(graph, [0.5, 1.0, 2.0], [3.0, 4.0, 9.0, 9.0])
    np.testing.assert_array_equal(weights.unary(1), [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(weights.factor(1), np.full((3, 2), 4.0))
    np.testing.assert_array_equal(weights.factor(2), np.zeros(3))  # part of its variable
    assert weights.is_positive
    assert weights.is_constant
    table = np.arange(1.0, 7.0).reshape(2, 3)
    other = EntropyWeights(graph, 1.0, [table, table.T, np.ones(3), 1.0])
    np.testing.assert_array_equal(other.factor(0), table)
    assert not other.is_constant
    with pytest.raises(ValueError, match="read-only"):
        other.unary_values[0] = 3.0


def test_weights_of_an_entropy():
    graph = ff.FactorGraph.grid(2, 2, 2)
    convex = EntropyWeights.of(ff.Convex(0.25, factor=0.75), graph)
    assert convex.is_positive
    assert convex.bound() == "upper"
    trees = EntropyWeights.of(ff.TreeReweighted(), graph)
    assert not trees.is_positive
    np.testing.assert_allclose(trees.unary_values, -0.5)
    assert EntropyWeights(graph, 0.1, 0.2).bound() is None


@pytest.mark.parametrize(
    ("unary", "factors", "message"),
    [
        (0.0, 1.0, r"unary\[0\] must hold finite weights above 0"),
        (1.0, [1.0, -2.0], r"factors\[1\] must hold finite weights above 0"),
        (np.inf, 1.0, r"unary\[0\]"),
        (None, 1.0, "unary must be a number"),
        ([1.0, 2.0], 1.0, "unary must have 3 tables"),
    ],
)
def test_wrong_weights_are_refused(unary, factors, message):
    with pytest.raises(InvalidInputError, match=message):
        EntropyWeights(ff.FactorGraph.chain(3, 2), unary, factors)


@by_solver
def test_wrong_problems_are_refused(solver):
    graph = ff.FactorGraph.grid(2, 2, 2)
    with pytest.raises(InvalidInputError, match="weights must belong"):
        solver.run(graph, ff.Potentials(graph), weights=EntropyWeights(ff.FactorGraph.chain(3, 2)))
    with pytest.raises(InvalidInputError, match="entropy must have positive weights"):
        type(solver)(ff.TreeReweighted()).run(graph, ff.Potentials(graph))
    other = ff.FactorGraph.chain(3, 2)
    result = solver.run(other, ff.Potentials(other))
    with pytest.raises(InvalidInputError, match="init must be"):
        solver.run(graph, ff.Potentials(graph), init=result)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConvexDual(entropy="convex"), "entropy must be an object"),
        (lambda: ConvexDual(tol=0.0), "tol must be positive"),
        (lambda: ConvexDual(max_iter=0), "max_iter must be an integer of at least 1"),
        (lambda: ConvexPrimal(entropy=3), "entropy must be an object"),
        (lambda: ConvexPrimal(tol=-1.0), "tol must be positive"),
        (lambda: ConvexPrimal(block_size=0), "block_size must be an integer of at least 1"),
        (lambda: ConvexPrimal(overlap=-1), "overlap must be an integer of at least 0"),
    ],
)
def test_wrong_options_are_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


# -- what the last step leaves ---------------------------------------------------------------


def test_the_hessian_of_the_last_step_gives_the_gradient():
    graph, potentials = grid(6, 6, 3, 2.0)
    batch, rng = Batch.of([graph]), np.random.default_rng(5)
    weights = random_weights(rng, graph)
    result, hessian = run_with_hessian(ConvexPrimal(tol=1e-10), batch, potentials, weights=weights)
    assert hessian is not None
    derivative = random_tables(rng, graph)
    kept = implicit_gradient(result.beliefs, weights, derivative, hessian=hessian)
    fresh = implicit_gradient(result.beliefs, weights, derivative)
    for name in ("potentials", "weights"):
        for values in ("unary_values", "factor_values"):
            np.testing.assert_allclose(
                getattr(getattr(kept, name), values),
                getattr(getattr(fresh, name), values),
                rtol=0,
                atol=1e-8,
            )


def test_no_hessian_where_none_belongs_to_the_result():
    graph, potentials = grid(4, 4, 3, 2.0)
    batch = Batch.of([graph])
    for solver in (ConvexPrimal(max_iter=2), ConvexPrimal(block_size=4), ConvexDual()):
        assert run_with_hessian(solver, batch, potentials)[1] is None


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_both_kinds_of_steps_lead_to_the_maximum(monkeypatch, is_warm):
    """Newton's steps from a start elsewhere grow and give way to those of the bound."""
    graph, potentials = grid(8, 8, 4, 20.0)
    start = ConvexPrimal().run(*grid(8, 8, 4, 20.0, seed=1)) if is_warm else None
    used = []
    step = convex_primal.quadratic_step

    def watched(problem, old, counts, temperature, curvature, *others):
        used.extend(curvature)
        return step(problem, old, counts, temperature, curvature, *others)

    monkeypatch.setattr(convex_primal, "quadratic_step", watched)
    entropy = ff.Convex(unary=0.01)
    found = ConvexPrimal(entropy, tol=1e-9).run(graph, potentials, init=start)
    assert found.converged, found.status
    assert used[0] == (convex_primal.NEWTON if is_warm else convex_primal.BOUND)
    assert set(used) == {convex_primal.NEWTON, convex_primal.BOUND}
    dual = ConvexDual(entropy, tol=1e-9).run(graph, potentials)
    assert dual.converged, dual.status
    assert found.log_partition == pytest.approx(dual.log_partition, abs=1e-7)
