"""Max-product: optimal on trees, ties included; its bound holds everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assertions import assert_bound
from problems import ising, random_graph, random_tables, random_tree

import fieldfit as ff
from fieldfit.graph.potentials import conditioned_unary
from fieldfit.inference.map.max_product import iterated_conditional_modes

SCHEDULES = ("flooding", "sequential", "tree")


def best_score(graph, potentials, observed=None):
    return float(ff.BruteForce().scores(graph, potentials, observed).max())


def check(graph, potentials, result, observed=None):
    best = best_score(graph, potentials, observed)
    assert result.score == potentials.score(result.labels)
    assert_bound("lower", result.score, best)
    assert_bound("upper", result.upper_bound, best)
    assert result.upper_bound >= result.score
    if result.optimal:
        assert result.score == pytest.approx(best, abs=1e-9, rel=1e-9)
    return best


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(30))
def test_optimal_on_trees(seed, schedule):
    rng = np.random.default_rng(seed)
    graph = random_tree(rng, int(rng.integers(1, 9)), max_arity=2 + seed % 3)
    potentials = random_tables(rng, graph, zeros=0.3 if seed % 2 else 0.0)
    result = ff.MaxProduct(schedule=schedule).run(graph, potentials)
    best = check(graph, potentials, result)
    assert result.optimal
    assert result.score == pytest.approx(best, abs=1e-10)
    assert result.status.endswith("the labelling is optimal")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(30))
def test_ties_on_trees_are_broken_consistently(seed, schedule):
    """Potentials in {0, 1, -inf}: many best labellings, and single maxima do not fit together."""
    rng = np.random.default_rng(100 + seed)
    graph = random_tree(rng, 8, max_arity=2 + seed % 2)
    kept = rng.integers(0, graph.cardinalities)
    potentials = random_tables(rng, graph, zeros=0.2, kept=kept)
    for values in (potentials.unary_values, potentials.factor_values):
        finite = np.isfinite(values)
        values[finite] = rng.integers(0, 2, finite.sum())
    result = ff.MaxProduct(schedule=schedule).run(graph, potentials)
    assert result.score == check(graph, potentials, result)
    assert result.optimal


def test_a_tie_between_two_labellings():
    """Two equal spins without field: [0, 0] and [1, 1] are best, [0, 1] is not."""
    graph = ff.FactorGraph.chain(6, 2)
    table = np.array([[1.0, 0.0], [0.0, 1.0]])
    result = ff.MaxProduct().run(graph, ff.Potentials(graph, None, [table] * 5))
    assert result.labels.tolist() in ([0] * 6, [1] * 6)
    assert result.score == 5.0


@pytest.mark.parametrize("entropy", [ff.Bethe(), ff.TreeReweighted(), ff.Convex()], ids=str)
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_bound_on_random_models(first, entropy):
    n_feasible = 0
    for seed in range(first, first + 20):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(2, 7)), int(rng.integers(1, 9)), max_labels=4)
        kept = rng.integers(0, graph.cardinalities)
        zeros = (0.0, 0.2, 0.5)[seed % 3]
        potentials = random_tables(rng, graph, zeros=zeros, kept=kept)
        observed = {0: int(kept[0])} if seed % 4 == 0 else None
        solver = ff.MaxProduct(entropy=entropy, schedule=SCHEDULES[seed % 3], max_iter=200)
        result = solver.run(graph, potentials, observed)
        check(graph, potentials, result, observed)
        n_feasible += result.score > -np.inf
        if result.score == -np.inf:
            assert not result.optimal
            assert "hard constraint" in result.status
    assert n_feasible >= 15


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("entropy", [ff.Bethe(), ff.TreeReweighted()], ids=str)
def test_nothing_is_proved_by_messages_that_overflow(entropy, schedule):
    """Equality constraints in cycles multiply the evidence, and not that of all variables alike."""
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 5))
        scopes = [tuple(rng.choice(n, 2, replace=False)) for _ in range(int(rng.integers(2, 8)))]
        graph = ff.FactorGraph([2] * n, scopes)
        potentials = ff.Potentials(graph, rng.normal(size=(n, 2)), [equal] * len(scopes))
        check(
            graph,
            potentials,
            ff.MaxProduct(entropy=entropy, schedule=schedule).run(graph, potentials),
        )


def test_bound_at_strong_coupling_without_convergence():
    graph, potentials = ising(np.random.default_rng(1), 4, 4, 3.0)
    best = ff.ExactMap().run(graph, potentials).score
    for max_iter in (1, 3, 50):
        for entropy in (ff.Bethe(), ff.TreeReweighted()):
            result = ff.MaxProduct(entropy=entropy, max_iter=max_iter).run(graph, potentials)
            assert_bound("upper", result.upper_bound, best)
            assert_bound("lower", result.score, best)
            assert result.n_iter <= max_iter
            assert result.converged or "not converged" in result.status


def test_single_changes_do_not_mend_constraints_at_the_cost_of_evidence():
    """Two copies of an observed variable: changing it would break one constraint and mend two."""
    graph = ff.FactorGraph([2, 2, 2], [(0, 1), (0, 2)])
    equal = np.where(np.eye(2) > 0, 0.0, -np.inf)
    potentials = ff.Potentials(graph, factors=[equal, equal])
    unary = conditioned_unary(graph, potentials, {0: 0})
    labels = np.array([0, 1, 1], dtype=np.int32)
    order = np.arange(3, dtype=np.int32)
    iterated_conditional_modes(graph.structure, unary, potentials.factor_values, order, labels)
    assert labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", [1143, 1721])
def test_labels_agree_with_the_evidence_where_constraints_are_broken(seed):
    rng = np.random.default_rng(seed)
    graph = ff.FactorGraph([2] * 5, [(0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 3, 4), (0, 1, 4)])
    kept = rng.integers(0, 2, 5)
    potentials = random_tables(rng, graph, zeros=0.5, kept=kept)
    observed = {0: int(kept[0])}
    for entropy in (ff.Bethe(), ff.TreeReweighted()):
        result = ff.MaxProduct(entropy, max_iter=100).run(graph, potentials, observed)
        assert result.labels[0] == kept[0]
        check(graph, potentials, result, observed)


def test_a_gap_is_stated():
    """Three spins that want to differ pairwise: the bound cannot be met."""
    graph = ff.FactorGraph.from_edges(3, [(0, 1), (1, 2), (2, 0)], 2)
    table = np.array([[0.0, 1.0], [1.0, 0.0]])
    result = ff.MaxProduct().run(graph, ff.Potentials(graph, None, [table] * 3))
    assert result.score == 2.0
    assert not result.optimal
    assert result.upper_bound == pytest.approx(3.0)
    assert "at most 1 below the best score" in result.status


def test_options():
    graph = ff.FactorGraph.chain(3, 2)
    potentials = ff.Potentials(graph)
    for options, sentence in (
        ({"entropy": "trw"}, "entropy must be an object such as Bethe"),
        ({"schedule": "residual"}, "schedule must be one of .*, got 'residual'"),
        ({"damping": 1.0}, "damping must be in"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
    ):
        with pytest.raises(ff.InvalidInputError, match=sentence):
            ff.MaxProduct(**options)
    with pytest.raises(ff.InvalidInputError, match="potentials must belong"):
        ff.MaxProduct().run(ff.FactorGraph.chain(4, 2), potentials)


def test_progress_is_told():
    graph, potentials = ising(np.random.default_rng(1), 4, 4, 0.5)
    calls = []
    result = ff.MaxProduct().run(graph, potentials, progress=lambda n, r: calls.append((n, r)))
    assert calls
    assert calls[-1][0] == result.n_iter


def test_the_check_can_fail():
    graph = ff.FactorGraph.chain(3, 2)
    potentials = random_tables(np.random.default_rng(0), graph)
    good = ff.MaxProduct().run(graph, potentials)
    for wrong in (
        replace(good, score=good.score + 1.0),
        replace(good, upper_bound=good.score - 1.0),
        replace(good, labels=1 - good.labels, score=potentials.score(1 - good.labels)),
    ):
        with pytest.raises(AssertionError):
            check(graph, potentials, wrong)
