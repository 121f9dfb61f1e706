"""Roof duality: the linear program's value and beliefs, and labels that are part of an optimum."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from assertions import assert_bound, assert_distributions, consistency_error
from problems import HIDDEN_ZERO_WEIGHT, PROBLEMS, ZERO_WEIGHT, ising, pair_model
from reference.max_flow import best_score, half_integral_value, local_polytope_value

import fieldfit as ff
from fieldfit.inference.map.graph_cut.cut_network import binary_choices, cut_network
from fieldfit.inference.map.graph_cut.max_flow import MaxFlow
from fieldfit.inference.map.graph_cut.roof_duality import (
    HALF,
    RoofDuality,
    half_integral,
    switch_to_submodular,
)

INF = np.inf


def decided(beliefs):
    """Labels of persistent variables."""
    graph = beliefs.graph
    return {
        i: int(beliefs.unary(i).argmax())
        for i in range(graph.n_variables)
        if beliefs.unary(i).max() == 1.0
    }


def check(graph, potentials, observed=None):
    """All promises at once; the result, or ``None`` for a relaxation without weight."""
    value = local_polytope_value(graph, potentials, observed)
    best = best_score(graph, potentials, observed)
    if value == -INF:
        with pytest.raises(ff.errors.ZeroWeightError, match="total weight zero"):
            RoofDuality().run(graph, potentials, observed)
        assert best == -INF
        return None
    result = RoofDuality().run(graph, potentials, observed)
    beliefs = result.beliefs
    assert result.upper_bound == pytest.approx(value, abs=1e-8)
    assert potentials.dot(beliefs) == pytest.approx(result.upper_bound, abs=1e-10)
    assert_distributions(beliefs, atol=0)
    assert consistency_error(beliefs) == 0.0
    assert set(beliefs.unary_values) <= {0.0, 0.5, 1.0}
    assert result.labels.dtype == np.int32
    assert result.score == potentials.score(result.labels)
    assert_bound("lower", result.score, best)
    assert_bound("upper", result.upper_bound, best)
    known = decided(beliefs)
    assert all(result.labels[i] == y for i, y in (known | (observed or {})).items())
    if best > -INF:
        assert best_score(graph, potentials, known | (observed or {})) == pytest.approx(
            best, abs=1e-9
        )
    if len(known) == graph.n_variables:
        assert result.optimal
    if result.optimal:
        assert result.score == pytest.approx(best, abs=1e-9)
    return result


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_value_beliefs_and_persistent_labels(first):
    n_checked = n_undecided = n_partly = 0
    for seed in range(first, first + 100):
        rng = np.random.default_rng(seed)
        graph, potentials = pair_model(
            rng,
            int(rng.integers(1, 9)),
            ties=seed % 2 == 0,
            zeros=0.08 if seed % 3 == 0 else 0.0,
            one_label=seed % 5 == 0,
            field=float(rng.choice([0.0, 0.1, 0.3, 1.0])),
            density=3.0,
            slope=float(rng.choice([0.0, 0.25, 1.0])),
        )
        observed = {0: int(rng.integers(graph.cardinalities[0]))} if seed % 4 == 1 else None
        result = check(graph, potentials, observed)
        if result is not None:
            n_known = len(decided(result.beliefs))
            n_checked += 1
            n_undecided += n_known < graph.n_variables
            n_partly += 0 < n_known < graph.n_variables
    assert n_checked >= 80
    assert n_undecided >= 10
    assert n_partly >= 3


def test_as_few_variables_as_possible_are_undecided():
    """Against all assignments of {0, 1/2, 1}."""
    halves = [np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([0.5, 0.5])]
    n_with_halves = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph, potentials = pair_model(
            rng, 4, ties=seed % 2 == 0, field=0.2, density=3.0, slope=0.25 * (seed % 3)
        )
        result = RoofDuality().run(graph, potentials)
        values = {}
        for unary in product(range(3), repeat=graph.n_variables):
            values[unary] = half_integral_value(graph, potentials, [halves[k] for k in unary])
        best = max(values.values())
        assert result.upper_bound == pytest.approx(best, abs=1e-9)
        fewest = min(unary.count(2) for unary, v in values.items() if v > best - 1e-9)
        assert graph.n_variables - len(decided(result.beliefs)) == fewest
        n_with_halves += fewest > 0
    assert n_with_halves >= 10


def test_two_copies_agree_with_one_cut_where_no_cycle_is_frustrated():
    """The short way is not the only one that is tested."""
    for seed in range(80):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 9))
        graph, potentials = pair_model(rng, n, ties=seed % 2 == 0, zeros=0.05 * (seed % 3 == 0))
        signs = rng.integers(0, 2, n)
        for a in np.flatnonzero(graph.arities == 2):
            table, (i, j) = potentials.factor(int(a)), graph.scope(int(a))
            wants_equal = bool(signs[i] == signs[j])
            with np.errstate(invalid="ignore"):
                is_equal = not table[0, 0] + table[1, 1] < table[0, 1] + table[1, 0]
            if wants_equal != is_equal:
                table[:] = table[::-1].copy()
        cuts, batch = cut_network(graph, "RoofDuality"), ff.graph.Batch.of([graph])
        try:
            result = RoofDuality().run(graph, potentials)
        except ff.errors.ZeroWeightError:
            continue
        pairs, _ = binary_choices(graph, potentials, None, cuts.factors)
        choices, dual = half_integral(batch, cuts, pairs)
        assert dual[0] == pytest.approx(result.upper_bound, abs=1e-10)
        if np.isfinite(potentials.factor_values).all():
            assert result.optimal
            assert (choices != HALF).all()
            labels = np.where(choices == 1, pairs.second, pairs.first)
            assert potentials.score(labels) == pytest.approx(result.score, abs=1e-10)


def test_turning_round():
    graph = ff.FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)], 2)
    cuts = cut_network(graph, "RoofDuality")
    equal, differ, nothing = np.eye(2), 1.0 - np.eye(2), np.zeros((2, 2))
    for tables, expected in (
        ([equal, equal, equal, equal], True),
        ([differ, equal, differ, equal], True),
        ([differ, equal, equal, equal], False),
        ([differ, equal, equal, nothing], True),
    ):
        pairs, _ = binary_choices(graph, ff.Potentials(graph, None, tables), None, cuts.factors)
        assert switch_to_submodular(graph.structure, cuts.network, pairs) == expected
        if not expected:
            assert pairs.first.tolist() == [0] * 4


def test_submodular_models_have_the_score_of_the_cut():
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(30, 30, 2)
    tables = rng.random((graph.n_factors, 1, 1)) * np.eye(2)
    potentials = ff.Potentials(graph, rng.normal(size=(900, 2)), tables)
    roof, cut = RoofDuality().run(graph, potentials), MaxFlow().run(graph, potentials)
    assert roof.optimal
    assert roof.score == pytest.approx(cut.score, rel=1e-13)
    np.testing.assert_array_equal(roof.beliefs.argmax(), cut.labels)
    assert roof.status == "all 900 variables are decided; the labelling is optimal"


def test_a_frustrated_triangle_and_its_status():
    graph = ff.FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)], 2)
    potentials = ff.Potentials(graph, [None, None, None, [0.0, 9.0]], 1.0 - np.eye(2))
    result = RoofDuality().run(graph, potentials)
    assert decided(result.beliefs) == {3: 1}
    assert result.upper_bound == 12.5
    assert result.score == 12.0
    assert not result.optimal
    assert (
        result.status
        == "1 of 4 variables are decided; the labelling is at most 0.5 below the best score"
    )


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_registry_of_problems(problem):
    arguments = (problem.graph, problem.potentials, problem.observed)
    possible = [
        1 if i in (problem.observed or {}) else np.isfinite(problem.potentials.unary(i)).sum()
        for i in range(problem.graph.n_variables)
    ]
    if problem.max_arity > 2 or max(possible, default=0) > 2:
        with pytest.raises(ff.InvalidInputError, match="at most two"):
            RoofDuality().run(*arguments)
        return
    result = RoofDuality().run(*arguments)
    value = (
        local_polytope_value(problem.graph, problem.potentials, problem.observed)
        if (problem.graph.n_variables or problem.graph.n_factors)
        else 0.0
    )
    scale = max(1.0, abs(value))
    assert result.upper_bound == pytest.approx(value, abs=1e-8 * scale)
    assert problem.potentials.dot(result.beliefs) == pytest.approx(value, abs=1e-8 * scale)
    assert_bound("lower", result.score, problem.best_score)
    if problem.is_acyclic:
        assert result.optimal


@pytest.mark.parametrize("problem", ZERO_WEIGHT + HIDDEN_ZERO_WEIGHT, ids=str)
def test_models_without_weight(problem):
    """Half beliefs get round a contradiction that only a search finds."""
    if int(problem.graph.arities.max(initial=0)) > 2:
        return
    try:
        result = RoofDuality().run(problem.graph, problem.potentials, problem.observed)
    except ff.errors.ZeroWeightError:
        return
    assert problem in HIDDEN_ZERO_WEIGHT
    assert result.score == -INF
    assert not result.optimal
    assert "hard constraint" in result.status


def test_three_labels_of_which_two_are_possible():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        graph = ff.FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 3)
        unary = rng.normal(size=(4, 3))
        unary[np.arange(4), rng.integers(0, 3, 4)] = -INF
        check(graph, ff.Potentials(graph, unary, list(rng.normal(size=(5, 3, 3)))))


def test_batches_are_solved_like_single_graphs():
    models = [
        pair_model(np.random.default_rng(seed), 6, field=0.3, density=3.0) for seed in range(25)
    ]
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    together = RoofDuality().run_batch(batch, batch.pack([p for _, p in models]))
    alone = [RoofDuality().run(*model) for model in models]
    assert together.upper_bound == pytest.approx(sum(r.upper_bound for r in alone), abs=1e-9)
    np.testing.assert_allclose(together.scores, [r.score for r in alone], atol=1e-9)
    assert together.optimal_examples.tolist() == [r.optimal for r in alone]
    assert 0 < together.optimal_examples.sum() < len(models)
    for part, single in zip(batch.split(together.beliefs), alone, strict=True):
        assert decided(part).keys() == decided(single.beliefs).keys()


def test_large_grid_and_other_names_of_variables():
    rng = np.random.default_rng(2)
    graph, potentials = ising(rng, 200, 200, 0.5, field=0.5)
    result = RoofDuality().run(graph, potentials)
    assert potentials.dot(result.beliefs) == pytest.approx(result.upper_bound, rel=1e-12)
    assert consistency_error_of_pairs(result.beliefs) == 0.0
    assert 0 < len(decided(result.beliefs)) < 40000
    names = rng.permutation(40000)
    edges = names[graph.slot_variables.reshape(-1, 2)]
    other = ff.FactorGraph.from_edges(40000, edges, 2)
    unary = np.empty((40000, 2))
    unary[names] = potentials.unary_matrix()
    tables = potentials.factor_values.reshape(-1, 2, 2)
    again = RoofDuality().run(other, ff.Potentials(other, unary, tables))
    assert again.upper_bound == pytest.approx(result.upper_bound, rel=1e-12)
    np.testing.assert_array_equal(
        again.beliefs.unary_matrix()[names] == 0.5, result.beliefs.unary_matrix() == 0.5
    )
    bound = ff.MaxProduct(entropy=ff.Convex(), max_iter=100).run(graph, potentials)
    assert result.upper_bound <= bound.upper_bound + 1e-6
    assert bound.score <= result.upper_bound + 1e-6


def consistency_error_of_pairs(beliefs):
    """As `consistency_error`, without a loop over factors."""
    tables = beliefs.factor_values.reshape(-1, 2, 2)
    unary = beliefs.unary_matrix()[beliefs.graph.slot_variables.reshape(-1, 2)]
    return max(
        np.abs(tables.sum(axis=2) - unary[:, 0]).max(),
        np.abs(tables.sum(axis=1) - unary[:, 1]).max(),
    )


@pytest.mark.parametrize("unit", [0.1, 1 / 3, 0.7])
def test_rounding_leaves_value_and_beliefs_optimal(unit):
    """Multiples of a number that is no binary fraction tie only up to rounding."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        graph = ff.FactorGraph.grid(*rng.integers(3, 20, 2), 2, neighbors=8 if seed % 2 else 4)
        unary = rng.integers(-3, 4, (graph.n_variables, 2)) * float(seed % 3)
        spins = np.array([[1.0, -1.0], [-1.0, 1.0]])
        tables = rng.integers(-4, 5, (graph.n_factors, 1, 1)) * spins
        whole = RoofDuality().run(graph, ff.Potentials(graph, unary, tables))
        potentials = ff.Potentials(graph, unit * unary, unit * tables)
        rounded = RoofDuality().run(graph, potentials)
        assert rounded.upper_bound == pytest.approx(unit * whole.upper_bound, rel=1e-12)
        assert potentials.dot(rounded.beliefs) == pytest.approx(rounded.upper_bound, rel=1e-12)


def test_refusals_are_one_sentence():
    large = ff.FactorGraph([2, 2, 2], [(0, 1), (0, 1, 2)])
    with pytest.raises(
        ff.InvalidInputError, match=r"^factor 1 must have at most two variables for RoofDuality"
    ):
        RoofDuality().run(large, ff.Potentials(large))
    many = ff.FactorGraph([2, 3], [(0, 1)])
    with pytest.raises(
        ff.InvalidInputError,
        match=r"^variable 1 must have at most two possible labels for RoofDuality, got 3",
    ):
        RoofDuality().run(many, ff.Potentials(many))
    assert RoofDuality().run(many, ff.Potentials(many), {1: 2}).labels[1] == 2


def test_the_check_can_fail(monkeypatch):
    rng = np.random.default_rng(1)
    graph, potentials = pair_model(rng, 5, field=0.3)
    good = RoofDuality().run(graph, potentials)
    from dataclasses import replace

    uniform = ff.Beliefs(
        graph, np.full_like(good.beliefs.unary_values, 0.5), good.beliefs.factor_values
    )
    for wrong in (
        replace(good, upper_bound=good.upper_bound - 1e-3),
        replace(good, score=good.score + 1.0),
        replace(good, labels=1 - good.labels, score=potentials.score(1 - good.labels)),
        replace(good, beliefs=uniform),
    ):
        monkeypatch.setattr(RoofDuality, "run", lambda *_, wrong=wrong: wrong)
        with pytest.raises(AssertionError):
            check(graph, potentials)
