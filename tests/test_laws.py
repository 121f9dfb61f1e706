"""Laws that every algorithm keeps on every problem: the product of the two registries."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import cache, wraps

import numpy as np
import pytest
from algorithms import INFERENCES, MAP_SEARCHES, SUM_PRODUCT
from assertions import (
    assert_bound,
    assert_close,
    assert_distributions,
    assert_locally_consistent,
    assert_no_nan,
    assert_same_beliefs,
    belief_distance,
)
from problems import HIDDEN_ZERO_WEIGHT, PROBLEMS, ZERO_WEIGHT, Problem
from reference.sum_product import primal_value

from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials

every_inference = pytest.mark.parametrize("algorithm", INFERENCES, ids=str)
every_sum_product = pytest.mark.parametrize("algorithm", SUM_PRODUCT, ids=str)
every_map_search = pytest.mark.parametrize("algorithm", MAP_SEARCHES, ids=str)
ITERATIVE = [
    a
    for a in INFERENCES
    if a.exact != "everywhere" and not a.sampled and getattr(a.solver, "tol", None) is not None
]


@cache
def solve(algorithm, problem):
    return algorithm.run(problem)


def every_problem(law):
    """Hold a law to all problems in one test; each problem that breaks it is reported.

    Tests of their own for 20,000 laws of a millisecond would cost more than the laws.
    """

    @wraps(law)
    def on_all(**given):
        failures = []
        for problem in PROBLEMS:
            if "algorithm" in given and not given["algorithm"].takes(problem):
                continue
            try:
                law(problem=problem, **given)
            except Exception as failure:
                failure.add_note(f"on the problem {problem.name!r}")
                failures.append(failure)
        if failures:
            raise ExceptionGroup(f"{len(failures)} of {len(PROBLEMS)} problems", failures)

    signature = inspect.signature(law)
    rest = [value for name, value in signature.parameters.items() if name != "problem"]
    on_all.__signature__ = signature.replace(parameters=rest)
    return on_all


def test_a_law_that_fails_on_two_problems_names_both():
    chosen, seen = {"parity", "triangle"}, []

    @every_problem
    def law(problem):
        seen.append(problem)
        assert problem.name not in chosen

    with pytest.raises(ExceptionGroup, match="2 of") as caught:
        law()
    assert seen == list(PROBLEMS)
    notes = [failure.__notes__ for failure in caught.value.exceptions]
    assert notes == [["on the problem 'triangle'"], ["on the problem 'parity'"]]


# -- what is reported ---------------------------------------------------------------------


@every_problem
@every_inference
def test_beliefs_are_distributions_and_nothing_is_nan(algorithm, problem):
    result = solve(algorithm, problem)
    assert_no_nan(result)
    assert_distributions(result.beliefs)
    assert result.status
    assert result.method


@every_problem
@every_inference
def test_impossible_configurations_have_no_belief(algorithm, problem):
    result = solve(algorithm, problem)
    assert np.all(result.beliefs.unary_values[np.isneginf(problem.potentials.unary_values)] == 0)
    assert np.all(result.beliefs.factor_values[np.isneginf(problem.potentials.factor_values)] == 0)
    for i, label in (problem.observed or {}).items():
        assert result.beliefs.unary(i)[label] == pytest.approx(1.0, abs=1e-12)


@every_problem
@every_inference
def test_factors_and_variables_agree_at_convergence(algorithm, problem):
    result = solve(algorithm, problem)
    if algorithm.consistent and result.converged:
        assert_locally_consistent(result.beliefs, atol=1e-6)


@every_problem
@every_sum_product
def test_sum_product_converges_on_these_problems(algorithm, problem):
    """The other laws are empty where nothing converges.

    Messages settle, or the beliefs of a concave entropy agree, which proves the maximum too.
    """
    result, tol = solve(algorithm, problem), algorithm.solver.tol
    assert result.converged, result.status
    assert result.status.startswith("converged")
    if result.residual > tol:
        assert algorithm.entropy.counting_numbers(problem.graph).concave
        assert "beliefs agree" in result.status
        assert_locally_consistent(result.beliefs, atol=tol)


@pytest.mark.parametrize("algorithm", [a for a in INFERENCES if a.pairs_only], ids=str)
def test_what_is_not_taken_is_refused(algorithm):
    """In one sentence, unless hard zeros of a table only rule out labels."""
    others = [problem for problem in PROBLEMS if not algorithm.takes(problem)]
    taken = [problem for problem in others if problem.name == "forced labels"]
    for problem in taken:
        result = algorithm.run(problem)
        assert_close(result.log_partition, problem.exact.log_partition, atol=1e-12)
    for problem in others:
        if problem not in taken:
            with pytest.raises(InvalidInputError, match=f"{type(algorithm.solver).__name__} takes"):
                algorithm.run(problem)
    assert len(taken) == 1
    assert len(others) > 10


# -- exactness and bounds -----------------------------------------------------------------


@every_problem
@every_inference
def test_exact_where_it_is_promised(algorithm, problem):
    result = solve(algorithm, problem)
    if algorithm.is_exact_on(problem):
        assert result.bound == "exact"
        assert_same_beliefs(result.beliefs, problem.exact.beliefs, atol=algorithm.slack * 1e-10)
        assert_close(
            result.log_partition, problem.exact.log_partition, atol=algorithm.slack * 1e-10
        )
    elif result.bound == "exact":  # a claim beyond the promise must hold too
        assert_close(result.log_partition, problem.exact.log_partition, atol=algorithm.slack * 1e-9)


@every_problem
@every_inference
def test_bounds_hold(algorithm, problem):
    result = solve(algorithm, problem)
    for kind in {algorithm.bound, result.bound} - {None}:
        assert_bound(kind, result.log_partition, problem.exact.log_partition)
    if algorithm.bound is not None and result.converged:
        assert result.bound in (algorithm.bound, "exact")


@every_problem
@every_sum_product
def test_value_is_the_surrogate_at_the_beliefs(algorithm, problem):
    """The reported value is a dual one; at a fixed point it is ``<th, tau> + H_c(tau)``."""
    result = solve(algorithm, problem)
    counting = algorithm.entropy.counting_numbers(problem.graph)
    value = primal_value(problem.graph, problem.potentials, counting, result.beliefs)
    # beliefs are off by about tol; with potentials of size s the primal is off by s * tol
    assert_close(result.log_partition, value, atol=1e-8 * problem.scale)


@pytest.mark.parametrize(
    "problem", [p for p in PROBLEMS if p.name != "huge range on a ring"], ids=str
)
@pytest.mark.parametrize(
    "entropy", ["Bethe", "TreeReweighted", "Convex", "Convex without variables"]
)
def test_all_schedules_reach_the_same_fixed_point(entropy, problem):
    """The registry's loopy problems are weak enough for Bethe's fixed point to be unique too."""
    results = [solve(a, problem) for a in SUM_PRODUCT if a.name.rsplit(",")[0] == entropy]
    assert len(results) == 4
    for other in results[1:]:
        assert_same_beliefs(other.beliefs, results[0].beliefs, atol=1e-6)
        assert_close(other.log_partition, results[0].log_partition, atol=1e-8, rtol=1e-12)


# -- invariance ---------------------------------------------------------------------------


@cache
def shifted(problem):
    """A constant added to every table, and their sum."""
    graph, rng = problem.graph, np.random.default_rng(0)
    to_unary = rng.normal(scale=5.0, size=graph.n_variables)
    to_factors = rng.normal(scale=5.0, size=graph.n_factors)
    unary = problem.potentials.unary_values + np.repeat(to_unary, graph.cardinalities)
    factor = problem.potentials.factor_values + np.repeat(to_factors, np.diff(graph.table_offsets))
    potentials = Potentials.from_flat(graph, unary, factor)
    moved = Problem("shifted", graph, potentials, problem.observed)
    return moved, to_unary.sum() + to_factors.sum()


@every_problem
@every_inference
def test_a_constant_shifts_the_value_and_leaves_beliefs(algorithm, problem):
    moved, total = shifted(problem)
    result, other = solve(algorithm, problem), algorithm.run(moved)
    # 1000 + 5 rounds at 1e-13, which potentials of that size pass on to beliefs
    assert_same_beliefs(other.beliefs, result.beliefs, atol=algorithm.slack * 1e-8)
    assert_close(other.log_partition - total, result.log_partition, atol=algorithm.slack * 1e-8)


@cache
def relabelled(problem, seed):
    """Rename variables and labels, reorder factors and the axes of their tables.

    Returns the new problem and a function that takes its beliefs back to the old names.
    """
    graph, rng = problem.graph, np.random.default_rng(seed)
    new_name = rng.permutation(graph.n_variables)
    old_name = np.argsort(new_name)
    labels = [rng.permutation(int(k)) for k in graph.cardinalities]  # new label y is old labels[y]
    order = rng.permutation(graph.n_factors)
    axes = [rng.permutation(len(graph.scope(a))) for a in range(graph.n_factors)]

    def renamed(table, a):
        scope = graph.scope(a)
        return table[np.ix_(*(labels[i] for i in scope))].transpose(axes[a]) if scope else table

    other = FactorGraph(
        [int(graph.cardinalities[i]) for i in old_name],
        [tuple(int(new_name[graph.scope(a)[p]]) for p in axes[a]) for a in order],
    )
    potentials = Potentials(
        other,
        [problem.potentials.unary(i)[labels[i]] for i in old_name],
        [renamed(problem.potentials.factor(a), a) for a in order],
    )
    observed = problem.observed and {
        int(new_name[i]): int(np.flatnonzero(labels[i] == y)[0])
        for i, y in problem.observed.items()
    }

    def back(beliefs):
        unary = [np.empty(int(k)) for k in graph.cardinalities]
        factors = [np.empty(graph.table_shape(a)) for a in range(graph.n_factors)]
        for i in range(graph.n_variables):
            unary[i][labels[i]] = beliefs.unary(int(new_name[i]))
        for position, a in enumerate(order):
            table = beliefs.factor(position).transpose(np.argsort(axes[a]))
            factors[a][np.ix_(*(labels[i] for i in graph.scope(a)))] = table
        flat = [np.concatenate([np.zeros(0), *map(np.ravel, part)]) for part in (unary, factors)]
        return Beliefs(graph, *flat)

    return Problem("relabelled", other, potentials, observed), back


@every_problem
def test_relabelling_is_undone_by_its_inverse(problem):
    """The helper itself: renamed potentials come back entry by entry, and scores are the same."""
    other, back = relabelled(problem, 3)
    restored = back(other.potentials)
    np.testing.assert_array_equal(restored.unary_values, problem.potentials.unary_values)
    np.testing.assert_array_equal(restored.factor_values, problem.potentials.factor_values)
    assert other.best_score == pytest.approx(problem.best_score, abs=1e-9)


@every_problem
@every_inference
def test_names_do_not_matter(algorithm, problem):
    other, back = relabelled(problem, 1)
    renamed = algorithm.run(other)
    assert_distributions(renamed.beliefs)
    if renamed.bound is not None:
        assert_bound(renamed.bound, renamed.log_partition, problem.exact.log_partition)
    if algorithm.is_unique_on(problem):
        result = solve(algorithm, problem)
        assert_same_beliefs(back(renamed.beliefs), result.beliefs, atol=algorithm.slack * 1e-6)
        assert_close(
            renamed.log_partition, result.log_partition, atol=algorithm.slack * 1e-8, rtol=1e-12
        )


@every_problem
@every_inference
def test_zero_potentials_give_uniform_beliefs(algorithm, problem):
    graph = problem.graph
    result = algorithm.solver.run(graph, Potentials(graph))
    if not algorithm.sampled:
        uniform_unary = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
        sizes = np.diff(graph.table_offsets)
        uniform = Beliefs(graph, uniform_unary, np.repeat(1.0 / sizes, sizes))
        assert_same_beliefs(result.beliefs, uniform, atol=algorithm.slack * 1e-12)
    # at uniform beliefs H_c is sum of chat_i log K_i, which is log of the number of
    # configurations whenever every variable counts once: exact, Bethe, tree-reweighted, product
    total = np.ones(graph.n_variables)
    if algorithm.entropy is not None:
        total = algorithm.entropy.counting_numbers(graph).variable_total
    expected = float(total @ np.log(graph.cardinalities))
    if algorithm.at_zero is not None:
        expected = algorithm.at_zero(graph)
    if algorithm.sampled:
        assert_bound("lower", result.log_partition, expected)
    else:
        assert_close(result.log_partition, expected, atol=algorithm.slack * 1e-11)


@cache
def clamped(problem):
    """Evidence written into the unary potentials."""
    unary = [problem.potentials.unary(i).copy() for i in range(problem.graph.n_variables)]
    for i, label in (problem.observed or {}).items():
        unary[i][np.arange(len(unary[i])) != label] = -np.inf
    factors = [problem.potentials.factor(a) for a in range(problem.graph.n_factors)]
    potentials = Potentials(problem.graph, unary, factors)
    return Problem("clamped", problem.graph, potentials)


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.observed], ids=str)
@every_inference
def test_evidence_is_conditioning(algorithm, problem):
    if not algorithm.takes(problem):
        pytest.skip("such models are refused")
    result, other = solve(algorithm, problem), algorithm.run(clamped(problem))
    assert_same_beliefs(other.beliefs, result.beliefs, atol=algorithm.slack * 1e-10)
    assert_close(other.log_partition, result.log_partition, atol=algorithm.slack * 1e-9)


@cache
def with_evidence(problem):
    """A possible label of every third variable, and the problem that knows it."""
    graph, answer = problem.graph, []
    for i in range(0, graph.n_variables, 3):
        label = int(problem.exact.beliefs.unary(i).argmax())
        observed = {**(problem.observed or {}), i: label}
        answer.append((i, label, Problem("given", graph, problem.potentials, observed)))
    return answer


@every_problem
@every_inference
def test_any_variable_may_be_observed(algorithm, problem):
    """Evidence on a possible label; the value is that of the conditioned model."""
    graph = problem.graph
    for i, label, given in with_evidence(problem):
        result = algorithm.run(given)
        assert_no_nan(result)
        assert_distributions(result.beliefs)
        expected = np.arange(graph.cardinalities[i]) == label
        np.testing.assert_allclose(result.beliefs.unary(i), expected, rtol=0, atol=1e-12)
        if result.bound is not None:
            assert_bound(result.bound, result.log_partition, given.exact.log_partition)
        if algorithm.is_exact_on(problem):
            assert_same_beliefs(result.beliefs, given.exact.beliefs, atol=algorithm.slack * 1e-10)


@cache
def split_unary(problem):
    """Move a share of every unary potential into a new factor of arity one."""
    graph = problem.graph
    scopes = [graph.scope(a) for a in range(graph.n_factors)]
    other = FactorGraph(graph.cardinalities, scopes + [(i,) for i in range(graph.n_variables)])
    unary = [problem.potentials.unary(i) for i in range(graph.n_variables)]
    factors = [problem.potentials.factor(a) for a in range(graph.n_factors)]
    potentials = Potentials(other, [0.25 * u for u in unary], factors + [0.75 * u for u in unary])
    return Problem("split", other, potentials, problem.observed)


@every_problem
@every_inference
def test_a_unary_potential_may_be_a_factor(algorithm, problem):
    graph = problem.graph
    result, other = solve(algorithm, problem), algorithm.run(split_unary(problem))
    n_entries = len(result.beliefs.factor_values)
    assert_distributions(other.beliefs)
    if not algorithm.sampled:
        same = Beliefs(graph, other.beliefs.unary_values, other.beliefs.factor_values[:n_entries])
        assert_same_beliefs(same, result.beliefs, atol=algorithm.slack * 1e-8)
        np.testing.assert_allclose(
            other.beliefs.factor_values[n_entries:], other.beliefs.unary_values, rtol=0, atol=1e-12
        )
        assert_close(other.log_partition, result.log_partition, atol=algorithm.slack * 1e-8)


# -- batches and warm starts --------------------------------------------------------------


@every_inference
def test_a_batch_gives_each_example_its_own_result(algorithm):
    """All problems at once; empty graphs, mixed label counts, zeros and huge ranges included."""
    problems = [problem for problem in PROBLEMS if algorithm.takes(problem)]
    batch = Batch.of([p.graph for p in problems])
    observed = np.full(batch.graph.n_variables, -1)
    for m, problem in enumerate(problems):
        for i, label in (problem.observed or {}).items():
            observed[batch.variable_offsets[m] + i] = label
    together = algorithm.solver.run_batch(
        batch, batch.pack([p.potentials for p in problems]), observed
    )
    assert_no_nan(together)
    assert together.log_partition == pytest.approx(together.log_partitions.sum(), abs=1e-9)
    for m, (problem, beliefs) in enumerate(
        zip(problems, batch.split(together.beliefs), strict=True)
    ):
        alone = solve(algorithm, problem)
        assert together.converged_examples[m] or not alone.converged, problem
        if algorithm.bound is not None:
            assert_bound(algorithm.bound, together.log_partitions[m], problem.exact.log_partition)
        # mean field may leave a saddle point of the forbidden mass in either direction
        is_free = algorithm.entropy is None and problem.has_zeros
        if is_free or not alone.converged:
            continue
        distance = belief_distance(beliefs, alone.beliefs)
        assert distance <= 1e-6, f"{problem}: beliefs differ by {distance}"
        atol = algorithm.slack * 1e-9 * value_scale(algorithm, problem)
        assert_close(together.log_partitions[m], alone.log_partition, atol=atol, rtol=1e-12)


def value_scale(algorithm, problem):
    """How steep the value is at the answer.

    Sum-product reports a value that is flat there; mean field's optimum may be a corner of the
    simplex, where the value is as steep as the potentials.
    """
    return problem.scale if algorithm.entropy is None else 1.0


@every_problem
@pytest.mark.parametrize("algorithm", ITERATIVE, ids=str)
def test_a_warm_start_from_the_solution_stays_there(algorithm, problem):
    result = solve(algorithm, problem)
    if not result.converged:
        return
    # with the same tolerance another order of updates may find a change just above it
    looser = replace(algorithm.solver, tol=10.0 * algorithm.solver.tol)
    again = looser.run(problem.graph, problem.potentials, problem.observed, init=result)
    assert again.converged
    assert_same_beliefs(again.beliefs, result.beliefs, atol=algorithm.slack * 1e-8)
    atol = algorithm.slack * 1e-9 * value_scale(algorithm, problem)
    assert_close(again.log_partition, result.log_partition, atol=atol, rtol=1e-12)
    # messages forget exclusions, which take sweeps to come back; and where the messages of labels
    # of vanishing belief still drift, the agreement of beliefs is looked at only now and then
    if not problem.has_zeros and result.residual <= algorithm.solver.tol:
        assert again.n_iter <= 2


@every_sum_product
def test_a_start_is_not_changed_by_the_run_that_uses_it(algorithm):
    problem = PROBLEMS[11]
    result = algorithm.run(problem)
    before = result.state.message.copy(), result.beliefs.unary_values.copy()
    algorithm.run(problem, init=result)
    np.testing.assert_array_equal(result.state.message, before[0])
    np.testing.assert_array_equal(result.beliefs.unary_values, before[1])


# -- contradictions -----------------------------------------------------------------------


@pytest.mark.parametrize("problem", ZERO_WEIGHT, ids=str)
@pytest.mark.parametrize("algorithm", INFERENCES + MAP_SEARCHES, ids=str)
def test_a_model_without_weight_is_refused(algorithm, problem):
    expected = (ZeroWeightError,) if algorithm.takes(problem) else (InvalidInputError,)
    with pytest.raises(expected, match=r"weight|takes factors of at most"):
        algorithm.run(problem)


@pytest.mark.parametrize("problem", HIDDEN_ZERO_WEIGHT, ids=str)
@every_inference
def test_a_hidden_contradiction_is_refused_or_claims_nothing_false(algorithm, problem):
    """No message vanishes on these; an upper bound above minus infinity is right."""
    try:
        result = algorithm.run(problem)
    except ZeroWeightError:
        return
    except InvalidInputError:
        assert not algorithm.takes(problem)
        return
    assert algorithm.entropy is not None
    assert_no_nan(result)
    assert_distributions(result.beliefs)
    assert result.bound in ("upper", None)


@pytest.mark.parametrize("problem", HIDDEN_ZERO_WEIGHT, ids=str)
@every_map_search
def test_a_hidden_contradiction_is_never_called_optimal(algorithm, problem):
    try:
        result = algorithm.run(problem)
    except ZeroWeightError:
        return
    assert result.score == -np.inf
    assert not result.optimal
    assert "hard constraint" in result.status


# -- maximisation -------------------------------------------------------------------------


@every_problem
@every_map_search
def test_map_search(algorithm, problem):
    result = algorithm.run(problem)
    best = problem.best_score
    labels = result.labels
    assert labels.shape == (problem.graph.n_variables,)
    assert all(labels[i] == y for i, y in (problem.observed or {}).items())
    assert result.score == problem.potentials.score(labels)
    assert_bound("lower", result.score, best)
    assert_bound("upper", result.upper_bound, best)
    if algorithm.optimal == "everywhere" or (algorithm.optimal == "acyclic" and problem.is_acyclic):
        assert result.optimal
    if result.optimal:
        assert_close(result.score, best, atol=1e-9, rtol=1e-9)
    assert result.status


@every_problem
@every_map_search
def test_map_search_on_other_names(algorithm, problem):
    other, _ = relabelled(problem, 2)
    result = algorithm.run(other)
    assert result.score == other.potentials.score(result.labels)
    assert_bound("upper", result.upper_bound, problem.best_score)
    if result.optimal:
        assert_close(result.score, problem.best_score, atol=1e-9, rtol=1e-9)
