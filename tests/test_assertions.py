"""Every helper assertion rejects a wrong answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assertions import (
    assert_bound,
    assert_close,
    assert_distributions,
    assert_locally_consistent,
    assert_no_nan,
    assert_same_beliefs,
)
from problems import HIDDEN_ZERO_WEIGHT, PROBLEMS, ZERO_WEIGHT, random_tables
from reference.mean_field import enumerate_model
from reference.sum_product import SumProductTwin, primal_value

from fieldfit.entropy.counting_numbers import Bethe
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs
from fieldfit.errors import ZeroWeightError


@pytest.fixture
def result():
    graph = FactorGraph([2, 3], [(0, 1)])
    problem = replace(
        PROBLEMS[0], graph=graph, potentials=random_tables(np.random.default_rng(0), graph)
    )
    return problem.exact


def changed(beliefs, unary=None, factor=None):
    """A copy with one number put in at (index, value)."""
    copy = Beliefs(beliefs.graph, beliefs.unary_values.copy(), beliefs.factor_values.copy())
    if unary is not None:
        copy.unary_values[unary[0]] = unary[1]
    if factor is not None:
        copy.factor_values[factor[0]] = factor[1]
    return copy


def test_right_answers_pass(result):
    assert_distributions(result.beliefs)
    assert_locally_consistent(result.beliefs, atol=1e-12)
    assert_same_beliefs(result.beliefs, result.beliefs, atol=0.0)
    assert_no_nan(result)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e-3, 0.9])
def test_distributions_reject(result, value):
    with pytest.raises(AssertionError):
        assert_distributions(changed(result.beliefs, unary=(1, value)))
    with pytest.raises(AssertionError):
        assert_distributions(changed(result.beliefs, factor=(4, value)))


def test_distributions_reject_values_that_only_sum_to_one(result):
    beliefs = changed(result.beliefs, unary=(0, -0.5))
    beliefs.unary_values[1] = 1.5
    with pytest.raises(AssertionError, match="negative"):
        assert_distributions(beliefs)


def test_local_consistency_rejects(result):
    beliefs = changed(result.beliefs)
    beliefs.factor_values += np.array([1, -1, 0, 0, 0, 0]) * 2e-6  # still a distribution
    assert_distributions(beliefs)
    with pytest.raises(AssertionError):
        assert_locally_consistent(beliefs, atol=1e-6)


def test_same_beliefs_rejects(result):
    for beliefs in (
        changed(result.beliefs, unary=(2, result.beliefs.unary_values[2] + 1e-5)),
        changed(result.beliefs, factor=(2, result.beliefs.factor_values[2] + 1e-5)),
    ):
        with pytest.raises(AssertionError):
            assert_same_beliefs(result.beliefs, beliefs, atol=1e-6)


def test_close_rejects():
    assert_close(1.0 + 1e-11, 1.0, atol=1e-10)
    for value in (1.0 + 2e-10, np.nan, np.inf):
        with pytest.raises(AssertionError):
            assert_close(value, 1.0, atol=1e-10)


def test_bound_rejects():
    assert_bound("upper", 2.0, 1.0)
    assert_bound("lower", 0.0, 1.0)
    assert_bound("upper", 0.0, -np.inf)
    assert_bound("exact", 1.0 + 1e-12, 1.0)
    for kind, value in (
        ("upper", 1 - 1e-8), ("lower", 1 + 1e-8), ("exact", 1 - 1e-8), ("exact", 1 + 1e-8),
        ("upper", np.nan), ("lower", np.nan), (None, 1.0),
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            assert_bound(kind, value, 1.0)
    with pytest.raises(AssertionError):
        assert_bound("lower", 0.0, -np.inf)


def test_no_nan_rejects(result):
    for wrong in (
        replace(result, log_partition=np.nan),
        replace(result, log_partition=-np.inf),
        replace(result, residual=np.nan),
        replace(result, log_partitions=np.array([np.nan])),
        replace(result, state=(np.zeros(2), np.array([np.nan]))),
        replace(result, beliefs=changed(result.beliefs, factor=(0, np.nan))),
    ):
        with pytest.raises(AssertionError):
            assert_no_nan(wrong)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_exact_answers_of_the_registry_agree_with_plain_enumeration(problem):
    value, unary, factors = enumerate_model(problem.graph, problem.potentials, problem.observed)
    assert_close(problem.exact.log_partition, value, atol=1e-11)
    flat = [
        np.concatenate([np.zeros(0), *(np.ravel(t) for t in part)]) for part in (unary, factors)
    ]
    assert_same_beliefs(problem.exact.beliefs, Beliefs(problem.graph, *flat), atol=1e-12)


@pytest.mark.parametrize("problem", ZERO_WEIGHT + HIDDEN_ZERO_WEIGHT, ids=str)
def test_zero_weight_models_have_no_weight(problem):
    assert problem.best_score == -np.inf
    with pytest.raises(ZeroWeightError):
        _ = problem.exact


def test_names_of_problems_are_distinct():
    names = [p.name for p in PROBLEMS + ZERO_WEIGHT + HIDDEN_ZERO_WEIGHT]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.is_acyclic], ids=str)
def test_the_twin_is_exact_on_acyclic_graphs(problem):
    """The twin itself is trusted only as far as enumeration confirms it."""
    counting = Bethe().counting_numbers(problem.graph)
    twin = SumProductTwin(problem.graph, problem.potentials, counting, problem.observed).solve()
    assert_same_beliefs(twin.beliefs(), problem.exact.beliefs, atol=1e-10)
    value = primal_value(problem.graph, problem.potentials, counting, problem.exact.beliefs)
    assert_close(value, problem.exact.log_partition, atol=1e-10)
