"""The acceptance run: message passing and mean field on many random models, against enumeration.

Arity 1 to 4, two, three or five labels, hard zeros, evidence, trees and loops.  The number of
models is `FIELDFIT_RANDOM_MODELS` (1000 by default, a minute on one core).
"""

from __future__ import annotations

import os
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
from problems import Problem, random_graph, random_tables, random_tree

import fieldfit as ff

N_MODELS = int(os.environ.get("FIELDFIT_RANDOM_MODELS", "1000"))
#: Models of one test: small enough to point at, large enough not to drown in overhead.
PER_TEST = 20
MAX_CONFIGURATIONS = 20_000

ENTROPIES = {"bp": ff.Bethe(), "trw": ff.TreeReweighted(), "convex": ff.Convex()}


def random_problem(seed):
    """One model; every third is a tree, every second has hard zeros, every third evidence."""
    rng = np.random.default_rng([20_050_901, seed])
    while True:
        n_variables = int(rng.integers(2, 8))
        if seed % 3 == 0:
            graph = random_tree(rng, n_variables, max_arity=int(rng.integers(2, 5)), max_labels=5)
        else:
            graph = random_graph(rng, n_variables, int(rng.integers(1, 2 * n_variables)))
        if np.prod(graph.cardinalities.astype(float)) <= MAX_CONFIGURATIONS:
            break
    kept = rng.integers(0, graph.cardinalities)
    zeros = float(rng.uniform(0.05, 0.4)) if seed % 2 else 0.0
    scale = float(rng.choice([0.2, 1.0, 3.0]))
    observed = {}
    if seed % 3 == 1:
        observed = {i: int(kept[i]) for i in range(n_variables) if rng.random() < 0.3}
    potentials = random_tables(rng, graph, scale, zeros, kept)
    return Problem(f"random model {seed}", graph, potentials, observed or None)


def solver(name, **options):
    return ff.SumProduct(entropy=ENTROPIES[name], max_iter=5000, **options)


def check_result(problem, result):
    assert_no_nan(result)
    assert_distributions(result.beliefs)
    if result.converged:
        assert_locally_consistent(result.beliefs, atol=1e-6)
    if result.bound is not None:
        assert_bound(result.bound, result.log_partition, problem.exact.log_partition)


@pytest.mark.parametrize("first", range(0, N_MODELS, PER_TEST))
def test_random_models(first):
    n_converged = dict.fromkeys(ENTROPIES, 0)
    seeds = range(first, min(first + PER_TEST, N_MODELS))
    for seed in seeds:
        problem = random_problem(seed)
        graph, exact = problem.graph, problem.exact
        results = {
            name: solver(name).run(graph, problem.potentials, problem.observed)
            for name in ENTROPIES
        }
        for name, result in results.items():
            check_result(problem, result)
            n_converged[name] += result.converged
        if graph.is_acyclic:
            for name in ("bp", "trw"):
                assert results[name].bound == "exact"
                assert_same_beliefs(results[name].beliefs, exact.beliefs, atol=1e-10)
                assert_close(results[name].log_partition, exact.log_partition, atol=1e-10)
        if results["trw"].converged:
            assert results["trw"].bound in ("upper", "exact")
        assert results["convex"].bound in ("upper", "exact")  # a dual value, converged or not
        mean_field = ff.MeanField().run(graph, problem.potentials, problem.observed)
        check_result(problem, mean_field)
        assert mean_field.bound == "lower"
    # the checks at convergence would be empty if little converged
    assert n_converged["trw"] >= 0.9 * len(seeds)
    assert n_converged["convex"] >= 0.9 * len(seeds)
    assert n_converged["bp"] >= 0.6 * len(seeds)


@pytest.mark.parametrize("first", range(0, N_MODELS // 4, PER_TEST))
def test_schedules_reach_the_same_fixed_point_where_it_is_unique(first):
    """Concave entropies, and any entropy on trees."""
    n_compared = 0
    seeds = range(first, min(first + PER_TEST, N_MODELS // 4))
    for seed in seeds:
        problem = random_problem(seed)
        for name, entropy in ENTROPIES.items():
            if not entropy.counting_numbers(problem.graph).concave:
                continue
            results = {
                schedule: solver(name, schedule=schedule, tol=1e-9).run(
                    problem.graph, problem.potentials, problem.observed
                )
                for schedule in ("flooding", "sequential", "tree", "residual")
            }
            flooding = results["flooding"]
            for schedule, result in results.items():
                check_result(problem, result)
                if flooding.converged and result.converged:
                    n_compared += schedule != "flooding"
                    assert_same_beliefs(result.beliefs, flooding.beliefs, atol=1e-6)
                    assert_close(
                        result.log_partition, flooding.log_partition, atol=1e-7, rtol=1e-12
                    )
    assert n_compared >= 2 * len(seeds)


def test_the_models_cover_what_they_claim():
    problems = [random_problem(seed) for seed in range(200)]
    assert {int(a) for p in problems for a in p.graph.arities} == {1, 2, 3, 4}
    assert {int(k) for p in problems for k in p.graph.cardinalities} == {2, 3, 5}
    for share in (
        np.mean([p.graph.is_acyclic for p in problems]),
        np.mean([np.isneginf(p.potentials.factor_values).any() for p in problems]),
        np.mean([p.observed is not None for p in problems]),
        1.0 - np.mean([p.graph.is_acyclic for p in problems]),
    ):
        assert share > 0.2
    again = random_problem(17)
    np.testing.assert_array_equal(
        again.potentials.factor_values, problems[17].potentials.factor_values
    )


def test_a_wrong_value_would_be_noticed():
    problem = random_problem(3)
    result = solver("trw").run(problem.graph, problem.potentials, problem.observed)
    with pytest.raises(AssertionError):
        check_result(
            problem, replace(result, log_partition=result.log_partition - 1e-3, bound="upper")
        )
