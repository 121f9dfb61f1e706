"""Mean field against its plain twin and against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from reference.mean_field import bound, enumerate_model, plain_score, random_model, update

from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.inference.conditioning import condition, feasible_labels, is_binary_pairwise
from fieldfit.inference.mean_field.mean_field import MeanField


def unary_list(result):
    graph = result.beliefs.graph
    return [result.beliefs.unary(i) for i in range(graph.n_variables)]


def random_evidence(rng, graph, kept):
    """Evidence that agrees with a possible configuration."""
    return {i: int(kept[i]) for i in range(graph.n_variables) if rng.random() < 0.25}


def assert_fixed_point(graph, potentials, result, observed=None, *, atol):
    beliefs = unary_list(result)
    for i in range(graph.n_variables):
        np.testing.assert_allclose(
            update(graph, potentials, beliefs, i, observed), beliefs[i], rtol=0, atol=atol
        )


def ising(rng, n=4, coupling=1.0, zeros=False):
    graph = FactorGraph.grid(n, n, 2)
    tables = coupling * rng.normal(size=(graph.n_factors, 2, 2))
    if zeros:
        tables[0, 1, 1] = -np.inf
    return graph, Potentials(graph, rng.normal(size=(n * n, 2)), tables)


@pytest.mark.parametrize("seed", range(200))
def test_bound_holds_and_beliefs_are_products(seed):
    rng = np.random.default_rng(seed)
    graph, potentials, kept = random_model(rng, zeros=(0.0, 0.3, 0.6)[seed % 3])
    observed = random_evidence(rng, graph, kept) if seed % 2 else None
    exact, marginals, _ = enumerate_model(graph, potentials, observed)
    result = MeanField().run(graph, potentials, observed)
    beliefs = unary_list(result)
    assert result.bound == "lower"  # the feasible configuration is always found at this size
    assert result.log_partition <= exact + 1e-10
    assert result.log_partition == pytest.approx(bound(graph, potentials, beliefs), abs=1e-10)
    for i, marginal in enumerate(marginals):
        assert beliefs[i].sum() == pytest.approx(1.0, abs=1e-12)
        assert np.all(beliefs[i][marginal == 0] == 0)  # what is impossible has no belief
    for a in range(graph.n_factors):
        expected = np.ones(())
        for i in graph.scope(a):
            expected = np.multiply.outer(expected, beliefs[i])
        np.testing.assert_allclose(result.beliefs.factor(a), expected, rtol=1e-12, atol=1e-290)
    if result.converged:
        assert_fixed_point(graph, potentials, result, observed, atol=1e-7)


@pytest.mark.parametrize("update_rule", ["coordinate", "parallel"])
def test_fixed_point_satisfies_the_update_equation(update_rule):
    # a tolerance well below the asserted distance: a sweep's change is not yet the distance
    solver = MeanField(
        update=update_rule, damping=0.0 if update_rule == "coordinate" else 0.5, tol=1e-11,
        max_iter=20_000,
    )  # fmt: skip
    for seed in range(20):
        rng = np.random.default_rng(seed)
        graph, potentials, kept = random_model(rng)
        observed = random_evidence(rng, graph, kept)
        result = solver.run(graph, potentials, observed)
        assert result.converged, result.status
        assert result.residual <= 1e-11
        assert_fixed_point(graph, potentials, result, observed, atol=1e-8)


@pytest.mark.parametrize("damping", [0.0, 0.6])
@pytest.mark.parametrize("zeros", [0.0, 0.15])
def test_bound_never_falls_under_coordinate_updates(zeros, damping):
    risen = 0
    for seed in range(30):
        graph, potentials, _ = random_model(np.random.default_rng(seed), zeros=zeros, scale=2.0)
        values = []
        result = None
        for _ in range(8):
            solver = MeanField(max_iter=1, damping=damping, tol=0.0)
            result = solver.run(graph, potentials, init=result)
            values.append(result.log_partition)
        assert np.all(np.diff(values) >= -1e-10)
        risen += values[-1] > values[0] + 1e-6
    assert risen >= 5  # the test would be empty if nothing moved


def test_one_sweep_is_the_twin_sweep():
    for seed in range(10):
        graph, potentials, _ = random_model(np.random.default_rng(seed))
        model, _ = condition(graph, potentials, None)
        beliefs = [np.full(k, 1.0 / k) for k in graph.cardinalities]
        for i in model.variables:
            beliefs[i] = update(graph, potentials, beliefs, i)
        result = MeanField(max_iter=1).run(graph, potentials)
        np.testing.assert_allclose(
            result.beliefs.unary_values, np.concatenate(beliefs), rtol=0, atol=1e-13
        )


def test_one_parallel_step_is_the_twin_step_with_damping():
    for seed in range(10):
        graph, potentials, _ = random_model(np.random.default_rng(seed))
        uniform = [np.full(k, 1.0 / k) for k in graph.cardinalities]
        expected = [0.9 * u + 0.1 * update(graph, potentials, uniform, i)
                    for i, u in enumerate(uniform)]  # fmt: skip
        result = MeanField(update="parallel", damping=0.9, max_iter=1).run(graph, potentials)
        np.testing.assert_allclose(
            result.beliefs.unary_values, np.concatenate(expected), rtol=0, atol=1e-13
        )


@pytest.mark.parametrize("update_rule", ["coordinate", "parallel"])
def test_binary_form_takes_the_same_steps_as_the_twin(update_rule):
    graph, potentials = ising(np.random.default_rng(3))
    model, _ = condition(graph, potentials, {5: 1})
    assert is_binary_pairwise(graph, model)
    beliefs = [np.full(2, 0.5) for _ in range(16)]
    beliefs[5] = np.array([0.0, 1.0])
    for _ in range(3):
        source = list(beliefs) if update_rule == "parallel" else beliefs
        for i in model.variables:
            new = update(graph, potentials, source, i, {5: 1})
            beliefs[i] = 0.3 * beliefs[i] + 0.7 * new
    result = MeanField(update=update_rule, damping=0.3, max_iter=3).run(graph, potentials, {5: 1})
    np.testing.assert_allclose(
        result.beliefs.unary_values, np.concatenate(beliefs), rtol=0, atol=1e-13
    )


def test_models_without_linking_factors_are_exact():
    rng = np.random.default_rng(0)
    graph = FactorGraph([2, 3, 1, 4], [(1,), (1,), (), (3,)])
    potentials = Potentials(
        graph,
        unary=[rng.normal(size=2), None, None, [0.0, -np.inf, 30.0, -40.0]],
        factors=[rng.normal(size=graph.table_shape(a)) for a in range(4)],
    )
    exact, marginals, tables = enumerate_model(graph, potentials)
    result = MeanField().run(graph, potentials)
    assert result.converged
    assert result.log_partition == pytest.approx(exact, abs=1e-10)
    for i, marginal in enumerate(marginals):
        np.testing.assert_allclose(result.beliefs.unary(i), marginal, rtol=0, atol=1e-13)
    for a, table in enumerate(tables):
        np.testing.assert_allclose(result.beliefs.factor(a), table, rtol=0, atol=1e-13)


def test_empty_graph_and_constants():
    graph = FactorGraph([], [(), ()])
    result = MeanField().run(graph, Potentials(graph, factors=[np.array(1.5), np.array(-0.5)]))
    assert (result.log_partition, result.converged) == (1.0, True)
    np.testing.assert_array_equal(result.beliefs.factor_values, [1.0, 1.0])
    assert MeanField().run(FactorGraph([]), Potentials(FactorGraph([]))).log_partition == 0.0


# -- hard zeros ---------------------------------------------------------------------------


def parity(n_variables, odd=0):
    """Table that allows the configurations of one parity."""
    grid = np.indices((2,) * n_variables).sum(axis=0) % 2
    return np.where(grid == odd, 0.0, -np.inf)


@pytest.mark.parametrize("update_rule", ["coordinate", "parallel"])
def test_parity_constraints_end_in_point_masses(update_rule):
    rng = np.random.default_rng(0)
    # a shuffled ring of equalities and two parity checks: no two labels are free on their own
    order = rng.permutation(9)
    scopes = [(int(order[i]), int(order[i + 1])) for i in range(8)] + [(0, 4, 8), (1, 3, 5, 7)]
    graph = FactorGraph([2] * 9, scopes)
    potentials = Potentials(
        graph, rng.normal(size=(9, 2)), [parity(2)] * 8 + [parity(3), parity(4)]
    )
    result = MeanField(update=update_rule).run(graph, potentials)
    exact, _, _ = enumerate_model(graph, potentials)
    assert result.bound == "lower"
    assert result.converged
    assert set(np.unique(result.beliefs.unary_values)) == {0.0, 1.0}
    score = plain_score(graph, potentials, result.beliefs.argmax())
    assert result.log_partition == pytest.approx(score, abs=1e-12)
    assert result.log_partition <= exact


@pytest.mark.parametrize("update_rule", ["coordinate", "parallel"])
def test_exclusion_keeps_a_spread_out_belief_where_it_can(update_rule):
    # two neighbours must not both be 1: not both may be spread out, but one may
    graph = FactorGraph.grid(5, 5, 2)
    table = np.array([[0.0, 0.0], [0.0, -np.inf]])
    potentials = Potentials(graph, None, np.broadcast_to(table, (graph.n_factors, 2, 2)).copy())
    result = MeanField(update=update_rule).run(graph, potentials)
    assert result.bound == "lower"
    assert result.converged, result.status
    # one checkerboard colour free: 12 or 13 free variables of entropy log 2
    assert result.log_partition >= 12 * np.log(2) - 1e-9
    assert result.log_partition <= np.log(55447)  # independent sets of the 5 x 5 grid, OEIS A006506


def test_no_product_distribution_is_said_so(monkeypatch):
    # the search is what finds a start here; without its budget the result must be honest
    monkeypatch.setattr(
        "fieldfit.inference.mean_field.mean_field.feasible_labels", lambda *_, **__: None
    )
    graph = FactorGraph([2, 2], [(0, 1)])
    result = MeanField().run(graph, Potentials(graph, factors=[parity(2)]))
    assert result.log_partition == -np.inf
    assert result.bound is None
    assert not result.converged
    assert "-inf" in result.status


@pytest.mark.parametrize(
    ("potentials", "observed"),
    [
        (lambda g: Potentials(g, factors=[parity(2), parity(2), parity(2, odd=1)]), None),
        (lambda g: Potentials(g, unary=[[-np.inf, -np.inf], None, None]), None),
        (lambda g: Potentials(g, unary=[[0.0, -np.inf], None, None]), {0: 1}),
        (lambda g: Potentials(g, factors=[parity(2), parity(2), None]), {0: 0, 2: 1}),
    ],
)
def test_weight_zero_is_an_error(potentials, observed):
    graph = FactorGraph([2, 2, 2], [(0, 1), (1, 2), (2, 0)])
    with pytest.raises(ZeroWeightError, match="positive weight"):
        MeanField().run(graph, potentials(graph), observed)


def test_search_agrees_with_enumeration():
    found = impossible = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n = 6
        scopes = [tuple(int(i) for i in rng.permutation(n)[: rng.integers(2, 4)]) for _ in range(8)]
        graph = FactorGraph(rng.integers(2, 4, size=n), scopes)
        zeros = rng.uniform(0.3, 0.75)
        factors = [np.where(rng.random(graph.table_shape(a)) < zeros, -np.inf, 0.0)
                   for a in range(8)]  # fmt: skip
        potentials = Potentials(graph, factors=factors)
        with np.errstate(invalid="ignore"):
            exact, _, _ = enumerate_model(graph, potentials)
        try:
            model, _ = condition(graph, potentials, None)
            labels = feasible_labels(model, rng.random(len(model.unary)))
        except ZeroWeightError:
            assert not np.isfinite(exact)
            impossible += 1
        else:
            assert plain_score(graph, potentials, labels) > -np.inf
            found += 1
    assert min(found, impossible) > 20


def test_search_colors_a_large_grid():
    graph = FactorGraph.grid(60, 60, 3)
    table = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    potentials = Potentials(graph, None, np.broadcast_to(table, (graph.n_factors, 3, 3)).copy())
    model, _ = condition(graph, potentials, {0: 2})
    labels = feasible_labels(model, np.random.default_rng(0).random(len(model.unary)))
    assert labels is not None
    assert labels[0] == 2
    assert potentials.score(labels) == 0.0


def test_tiny_beliefs_do_not_vanish_from_products():
    # each belief of 1 is about 1e-174: their product would underflow and hide the hard zero
    graph = FactorGraph([2, 2], [(0, 1)])
    potentials = Potentials(
        graph, unary=[[0.0, -400.0]] * 2, factors=[[[0.0, 0.0], [0.0, -np.inf]]]
    )
    init = Beliefs(graph, np.array([1.0, 1e-174, 1.0, 1e-174]), np.zeros(4))
    result = MeanField().run(graph, potentials, init=init)
    assert result.bound == "lower"
    assert 0.0 in result.beliefs.unary_values


def test_large_finite_penalties_give_no_nan():
    graph = FactorGraph.chain(3, 3)
    potentials = Potentials(graph, None, np.full((2, 3, 3), -1.7e308))
    for update_rule in ("coordinate", "parallel"):
        with np.errstate(over="ignore"):  # the sum of two such scores is beyond a double
            result = MeanField(update=update_rule).run(graph, potentials)
        assert not np.isnan(result.beliefs.unary_values).any()
        assert not np.isnan(result.log_partition)


# -- starting points, batches, options ----------------------------------------------------


def test_restarts_leave_the_symmetric_saddle_point():
    graph = FactorGraph.grid(4, 4, 2)
    potentials = Potentials(
        graph, None, np.broadcast_to(2.0 * np.eye(2), (graph.n_factors, 2, 2)).copy()
    )
    uniform = MeanField().run(graph, potentials)
    np.testing.assert_array_equal(uniform.beliefs.unary_values, 0.5)
    best = MeanField(n_restarts=4, random_state=1).run(graph, potentials)
    assert best.converged
    assert best.log_partition > uniform.log_partition + 1.0
    again = MeanField(n_restarts=4, random_state=1).run(graph, potentials)
    np.testing.assert_array_equal(best.beliefs.unary_values, again.beliefs.unary_values)


def test_warm_start_continues():
    graph, potentials = ising(np.random.default_rng(5), coupling=2.0)
    full = MeanField(max_iter=6, tol=0.0).run(graph, potentials)
    first = MeanField(max_iter=2, tol=0.0).run(graph, potentials)
    rest = MeanField(max_iter=4, tol=0.0).run(graph, potentials, init=first.beliefs)
    np.testing.assert_array_equal(full.beliefs.unary_values, rest.beliefs.unary_values)
    done = MeanField().run(graph, potentials)
    assert MeanField().run(graph, potentials, init=done).n_iter == 1


def test_init_is_corrected_by_evidence():
    graph = FactorGraph.chain(3, 3)
    potentials = Potentials(graph, None, np.random.default_rng(0).normal(size=(2, 3, 3)))
    init = Beliefs.from_labels(graph, [0, 0, 0])
    result = MeanField().run(graph, potentials, {0: 2}, init=init)
    np.testing.assert_array_equal(result.beliefs.unary(0), [0.0, 0.0, 1.0])


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_batch_is_the_examples_one_by_one(zeros):
    rng = np.random.default_rng(1)
    models = [random_model(rng, zeros=zeros) for _ in range(6)]
    models.append((FactorGraph([]), Potentials(FactorGraph([])), None))
    batch = Batch.of([graph for graph, _, _ in models])
    joined = batch.pack([potentials for _, potentials, _ in models])
    result = MeanField(tol=1e-12, max_iter=5000).run_batch(batch, joined)
    assert result.converged_examples.all()
    assert result.log_partition == pytest.approx(result.log_partitions.sum())
    for m, (graph, potentials, _) in enumerate(models):
        single = MeanField(tol=1e-12, max_iter=5000).run(graph, potentials)
        assert result.log_partitions[m] == pytest.approx(single.log_partition, abs=1e-8)


def test_unconverged_says_so_and_still_bounds():
    graph, potentials = ising(np.random.default_rng(5), n=3, coupling=3.0)
    exact, _, _ = enumerate_model(graph, potentials)
    result = MeanField(max_iter=1).run(graph, potentials)
    assert not result.converged
    assert not result.converged_examples.any()
    assert result.n_iter == 1
    assert result.residual > 1e-8
    assert result.status.startswith("not converged: beliefs moved by")
    assert "after 1 sweep (tol 1e-08); more sweeps may help" in result.status
    assert result.bound == "lower"
    assert result.log_partition <= exact


def test_progress_is_told():
    graph, potentials = ising(np.random.default_rng(5))
    calls = []
    result = MeanField().run(graph, potentials, progress=lambda *call: calls.append(call))
    assert [n for n, _ in calls] == list(range(1, result.n_iter + 1))
    assert calls[-1][1] == result.residual


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update": "both"}, "update must be"),
        ({"damping": 1.0}, r"damping must be in \[0, 1\), got 1.0"),
        ({"damping": float("nan")}, "damping"),
        ({"tol": -1.0}, "tol must be at least 0"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"n_restarts": 0}, "n_restarts must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InvalidInputError, match=message):
        MeanField(**options)


def test_bad_data():
    graph = FactorGraph.chain(3, 2)
    with pytest.raises(InvalidInputError, match="potentials must belong to"):
        MeanField().run(graph, Potentials(FactorGraph.chain(2, 2)))
    other = Beliefs.from_labels(FactorGraph.chain(2, 2), [0, 0])
    with pytest.raises(InvalidInputError, match="init must hold 6 unary beliefs, got 4"):
        MeanField().run(graph, Potentials(graph), init=other)
    bad = Beliefs(graph, np.full(6, np.nan), np.zeros(8))
    with pytest.raises(InvalidInputError, match="init must hold finite beliefs"):
        MeanField().run(graph, Potentials(graph), init=bad)
