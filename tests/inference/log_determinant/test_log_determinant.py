"""The log-determinant relaxation: against its twin, enumeration, closed forms and differences."""

from __future__ import annotations

import numpy as np
import pytest
from assertions import assert_bound, assert_distributions, assert_locally_consistent
from reference.log_determinant import log_determinant_bound

import fieldfit as ff
from benchmarks.bounds import random_pairs, slopes
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference.log_determinant import moment_hessian
from fieldfit.inference.log_determinant.log_determinant import LogDeterminant
from fieldfit.inference.log_determinant.moment_hessian import AllMoments, TabledMoments
from fieldfit.inference.log_determinant.moment_model import MomentModel, noise_covariance

TIGHT = LogDeterminant(tol=1e-11)


def complete(n, k=2):
    return ff.FactorGraph.from_edges(n, [(i, j) for i in range(n) for j in range(i)], k)


def spin_tables(graph, rng, strength):
    """Couplings of either sign, small fields."""
    spins = np.array([[1.0, -1.0], [-1.0, 1.0]])
    couplings = rng.uniform(-strength, strength, graph.n_factors)
    fields = rng.uniform(-0.25, 0.25, (graph.n_variables, 1)) * np.array([[1.0, -1.0]])
    return ff.Potentials(graph, fields, couplings[:, None, None] * spins)


# -- the number -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(12))
def test_the_twin_finds_the_same_maximum(number):
    graph, potentials = random_pairs(number)
    value, means = log_determinant_bound(graph, potentials)
    result = TIGHT.run(graph, potentials)
    assert result.converged
    scale = max(1.0, abs(value))
    assert result.log_partition == pytest.approx(value, abs=1e-8 * scale)
    np.testing.assert_allclose(result.beliefs.unary_values, means, rtol=0, atol=1e-6)


def test_frustrated_spins_need_both_constraints():
    """Each of them makes the bound smaller; without one it is another number."""
    graph = complete(5)
    potentials = spin_tables(graph, np.random.default_rng(4), 4.0)
    both = TIGHT.run(graph, potentials).log_partition
    twin = log_determinant_bound(graph, potentials)[0]
    no_tables = log_determinant_bound(graph, potentials, local=False)[0]
    no_matrix = log_determinant_bound(graph, potentials, semidefinite=False)[0]
    assert both == pytest.approx(twin, abs=1e-7)
    assert no_tables > both + 1e-3
    assert no_matrix > both + 1e-3
    assert_bound("upper", both, ff.BruteForce().run(graph, potentials).log_partition)


@pytest.mark.parametrize("number", range(60))
def test_the_bound_holds_on_random_models(number):
    """At the end and on the way; `python -m benchmarks.bounds --models 500` has more."""
    graph, potentials = random_pairs(number)
    exact = ff.BruteForce().run(graph, potentials).log_partition
    values = []
    for max_iter in (1, 3, 100):
        result = LogDeterminant(max_iter=max_iter).run(graph, potentials)
        assert result.bound == "upper"
        assert_bound("upper", result.log_partition, exact)
        assert_distributions(result.beliefs)
        assert_locally_consistent(result.beliefs, atol=1e-9)
        values.append(result.log_partition)
    assert result.converged
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("number", range(0, 60, 6))
def test_beliefs_are_the_gradient_of_the_bound(number):
    slope, expected = slopes(number, TIGHT, 1e-4)
    assert slope == pytest.approx(expected, abs=1e-5 * max(1.0, abs(expected)))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_uniform_variables_have_a_closed_form(k):
    """Covariance ``(1/K) (I - 11'/K)`` and noise of the same form, determinant ``1/K`` of it."""
    graph = ff.FactorGraph.chain(3, k)
    noisy = 1.0 / k + 1.0 / 12.0 + 1.0 / (6.0 * k)
    each = 0.5 * (k - 1) * np.log(2.0 * np.pi * np.e * noisy) - 0.5 * np.log(k)
    assert TIGHT.run(graph, ff.Potentials(graph)).log_partition == pytest.approx(3 * each, abs=1e-9)
    assert each > np.log(k)


def test_a_single_spin_is_a_problem_in_one_unknown():
    graph = ff.FactorGraph([2])
    potentials = ff.Potentials(graph, [[0.3, 1.4]])
    m = np.linspace(1e-6, 1.0 - 1e-6, 2_000_001)
    values = 0.3 + 1.1 * m + 0.5 * np.log(2.0 * np.pi * np.e * (m * (1.0 - m) + 1.0 / 12.0))
    result = TIGHT.run(graph, potentials)
    assert result.log_partition == pytest.approx(values.max(), abs=1e-9)
    assert result.beliefs.unary(0)[1] == pytest.approx(m[values.argmax()], abs=1e-5)


def test_components_add_up():
    """Nothing is gained by moments between variables that do not depend on each other."""
    first, potentials = random_pairs(9)
    batch = ff.graph.Batch.of([first, first])
    union = batch.pack([potentials, potentials])
    one = TIGHT.run(first, potentials)
    two = TIGHT.run(batch.graph, union)
    assert two.log_partition == pytest.approx(2.0 * one.log_partition, abs=1e-8)
    value, _ = log_determinant_bound(batch.graph, union)
    assert value == pytest.approx(two.log_partition, abs=1e-7)


def test_moments_of_beliefs_are_a_covariance():
    graph = complete(6)
    result = TIGHT.run(graph, spin_tables(graph, np.random.default_rng(1), 3.0))
    moments = np.eye(7)
    for i in range(6):
        moments[0, i + 1] = moments[i + 1, 0] = moments[i + 1, i + 1] = result.beliefs.unary(i)[1]
    for a in range(graph.n_factors):
        i, j = graph.scope(a)
        moments[i + 1, j + 1] = moments[j + 1, i + 1] = result.beliefs.factor(a)[1, 1]
    assert np.linalg.eigvalsh(moments)[0] > -1e-8


# -- noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_noise_has_the_second_moment_of_the_voronoi_cell(k):
    """Points of the hyperplane, each moved to the cell around the origin of the lattice."""
    rng = np.random.default_rng(k)
    steps = np.vstack([np.eye(k - 1), -np.ones((1, k - 1))])  # columns: e_i - e_K
    points = rng.random((100_000, k - 1)) @ steps.T  # uniform on a cell of another shape
    shifts = np.array(np.meshgrid(*[range(-2, 3)] * (k - 1))).reshape(k - 1, -1).T @ steps.T
    distance = (points**2).sum(1)[:, None] - 2.0 * points @ shifts.T + (shifts**2).sum(1)
    inside = (points - shifts[distance.argmin(1)])[:, : k - 1]
    found = inside.T @ inside / len(inside)
    np.testing.assert_allclose(found, noise_covariance(k), rtol=0, atol=2e-3)


def test_the_noise_does_not_know_which_label_is_left_out():
    """Another reference label is a change of coordinates of determinant one."""
    change = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, -1.0, -1.0]])
    noise = noise_covariance(4)
    np.testing.assert_allclose(change @ noise @ change.T, noise, rtol=0, atol=1e-15)


# -- Newton systems ---------------------------------------------------------------------------


def system_at(kind, rng):
    model = MomentModel.of(np.array([2, 3, 2, 4]), np.array([(0, 1), (1, 2), (3, 0)]))
    n = model.n_coordinates + 1
    root, scaling = rng.normal(size=(2, n, n))
    inverse = root @ root.T + np.eye(n)
    weights = rng.random(len(model.table_shift)) + 0.1
    return kind(model, inverse, scaling, np.linalg.inv(scaling), weights), model


@pytest.mark.parametrize("kind", [AllMoments, TabledMoments])
def test_a_step_minimises_its_quadratic(kind):
    rng = np.random.default_rng(3)
    system, model = system_at(kind, rng)
    right = rng.normal(size=(2, model.n_coordinates + 1, model.n_coordinates + 1))
    matrix, vector = right[0] + right[0].T, rng.normal(size=model.n_tabled)

    def quadratic(step):
        change = model.matrix(step, 0.0)
        tables = model.to_tables @ step[: model.n_tabled]
        curved = 0.5 * system.inverse @ change @ system.inverse
        curved = curved + system.metric @ change @ system.metric
        value = 0.5 * np.sum(change * curved) + 0.5 * tables @ (system.weights * tables)
        return value - np.sum(matrix * change) - vector @ step[: model.n_tabled]

    step = system.solve(matrix, vector)
    lowest = quadratic(step)
    for _ in range(20):
        move = 1e-3 * rng.normal(size=len(step))
        above, below = quadratic(step + move) - lowest, quadratic(step - move) - lowest
        assert above > 0.0
        assert above == pytest.approx(below, rel=1e-6)  # no slope is left


def test_eliminating_free_moments_changes_nothing(monkeypatch):
    graph = ff.FactorGraph.grid(4, 4, 2)
    potentials = spin_tables(graph, np.random.default_rng(0), 1.5)
    results = []
    for kind in (AllMoments, TabledMoments):
        monkeypatch.setattr(
            "fieldfit.inference.log_determinant.moment_path.moment_system",
            lambda model, *point, kind=kind: kind(model, *point),
        )
        results.append(LogDeterminant(tol=1e-9).run(graph, potentials))
    assert all(result.converged for result in results)
    assert results[0].log_partition == pytest.approx(results[1].log_partition, abs=1e-6)
    np.testing.assert_allclose(
        results[0].beliefs.factor_values, results[1].beliefs.factor_values, rtol=0, atol=1e-5
    )


def test_the_cheaper_system_is_taken():
    costs = {}
    for name, graph in (("grid", ff.FactorGraph.grid(6, 6, 2)), ("complete", complete(12))):
        edges = np.array([graph.scope(a) for a in range(graph.n_factors)])
        model = MomentModel.of(graph.cardinalities, edges)
        n = model.n_coordinates + 1
        weights = np.ones(len(model.table_shift))
        costs[name] = type(
            moment_hessian.moment_system(model, np.eye(n), np.eye(n), np.eye(n), weights)
        )
    assert costs == {"grid": TabledMoments, "complete": AllMoments}


# -- endings, starts and refusals -------------------------------------------------------------


def test_a_run_that_is_cut_short_says_so():
    graph = complete(6)
    potentials = spin_tables(graph, np.random.default_rng(2), 2.0)
    final = TIGHT.run(graph, potentials)
    seen = []
    short = LogDeterminant(max_iter=4).run(
        graph, potentials, progress=lambda n, gap: seen.append((n, gap))
    )
    assert not short.converged
    assert short.status.startswith("not converged: gap")
    assert short.log_partition - short.residual <= final.log_partition <= short.log_partition
    assert [n for n, _ in seen] == [1, 2, 3, 4]
    assert short.residual <= seen[-1][1] + 1e-12


def test_first_steps_with_a_growing_gap_are_no_end(monkeypatch):
    """Strong fields of one sign: the gap of the start is met again after four steps or more."""
    graph = ff.FactorGraph.grid(5, 6, 2)
    fields = np.random.default_rng(0).normal(-8.0, 3.0, size=30)
    potentials = ff.Potentials(
        graph, [[-field, field] for field in fields], np.array([[2.0, -2.0], [-2.0, 2.0]])
    )
    assert LogDeterminant().run(graph, potentials).converged
    monkeypatch.setattr("fieldfit.inference.log_determinant.moment_path.PATIENCE_FAR", 3)
    assert not LogDeterminant().run(graph, potentials).converged


def test_an_impossible_tolerance_ends_by_itself():
    graph = complete(6)
    result = LogDeterminant(tol=1e-300).run(
        graph, spin_tables(graph, np.random.default_rng(2), 2.0)
    )
    assert not result.converged
    assert result.n_iter < 100
    assert result.residual < 1e-7


def test_a_start_saves_steps_and_changes_nothing():
    graph = complete(8)
    rng = np.random.default_rng(5)
    potentials = spin_tables(graph, rng, 1.0)
    near = ff.Potentials.from_flat(
        graph,
        potentials.unary_values + 1e-3 * rng.normal(size=16),
        potentials.factor_values + 1e-3 * rng.normal(size=len(potentials.factor_values)),
    )
    method = LogDeterminant(tol=1e-9)
    first = method.run(graph, potentials)
    cold, warm = method.run(graph, near), method.run(graph, near, init=first)
    assert warm.n_iter < cold.n_iter
    assert warm.log_partition == pytest.approx(cold.log_partition, abs=1e-7)
    np.testing.assert_allclose(
        warm.beliefs.factor_values, cold.beliefs.factor_values, rtol=0, atol=1e-6
    )
    far = spin_tables(graph, rng, 300.0)
    assert method.run(graph, far, init=first).converged


def test_starts_of_other_models_are_dropped_or_refused():
    graph = complete(4)
    potentials = spin_tables(graph, np.random.default_rng(6), 1.0)
    observed = TIGHT.run(graph, potentials, observed={0: 1})
    other = ff.MeanField().run(graph, potentials)
    expected = TIGHT.run(graph, potentials).log_partition
    for start in (observed, other):
        found = TIGHT.run(graph, potentials, init=start).log_partition
        assert found == pytest.approx(expected, abs=1e-9)
    chain = ff.FactorGraph.chain(4, 2)
    with pytest.raises(InvalidInputError, match="init must be a result on a graph"):
        TIGHT.run(graph, potentials, init=TIGHT.run(chain, ff.Potentials(chain)))
    with pytest.raises(InvalidInputError, match="init must be"):
        TIGHT.run(graph, potentials, init=[0, 1, 0, 1])


def test_what_is_not_taken_is_refused_in_a_sentence():
    triple = ff.FactorGraph([2, 2, 2], [(0, 1, 2)])
    with pytest.raises(InvalidInputError, match="factors of at most two variables, got one of 3"):
        TIGHT.run(triple, ff.Potentials(triple))
    chain = ff.FactorGraph.chain(3, 2)
    hard = ff.Potentials(chain, factors=[None, [[0.0, -np.inf], [0.0, 0.0]]])
    with pytest.raises(InvalidInputError, match=r"without hard zeros .* got one in factor 1"):
        TIGHT.run(chain, hard)
    # evidence that leaves nothing of the zero is welcome
    exact = ff.BruteForce().run(chain, hard, {2: 0})
    assert_bound("upper", TIGHT.run(chain, hard, {2: 0}).log_partition, exact.log_partition)
    with pytest.raises(TooLargeError, match="at most max_operations 100 "):
        LogDeterminant(max_operations=100).run(chain, ff.Potentials(chain))


def test_a_large_model_is_refused_before_anything_is_allocated():
    graph = ff.FactorGraph.grid(100, 100, 2)
    with pytest.raises(TooLargeError, match=r"this one needs 1\.01e\+16"):
        LogDeterminant().run(graph, ff.Potentials(graph))


def test_by_name_and_by_command_line_name():
    graph = complete(4)
    potentials = spin_tables(graph, np.random.default_rng(7), 1.0)
    result = ff.infer(graph, potentials, method="log-determinant", tol=1e-9, max_iter=50)
    assert result.method == "LogDeterminant"
    assert result.log_partition == pytest.approx(
        LogDeterminant(tol=1e-9, max_iter=50).run(graph, potentials).log_partition, abs=1e-12
    )


def test_learning_ends_where_moments_are_those_of_the_data():
    rng = np.random.default_rng(8)
    samples = rng.integers(0, 2, size=(300, 5))
    samples[:, 1] = np.where(rng.random(300) < 0.8, samples[:, 0], samples[:, 1])
    samples[:, 3] = np.where(rng.random(300) < 0.7, 1 - samples[:, 2], samples[:, 3])
    edges = [(i, j) for i in range(5) for j in range(i)]
    model = ff.IsingModel("log-determinant", l2=0.0, tol=1e-6).fit(samples, edges)
    graph, potentials = model.to_model()
    beliefs = LogDeterminant(tol=1e-10).run(graph, potentials).beliefs
    means = [beliefs.unary(i)[1] for i in range(5)]
    np.testing.assert_allclose(means, samples.mean(0), rtol=0, atol=1e-4)
    for a in range(graph.n_factors):
        i, j = graph.scope(a)
        expected = (samples[:, i] * samples[:, j]).mean()
        assert beliefs.factor(a)[1, 1] == pytest.approx(expected, abs=1e-4)
