"""Gibbs sampling against its plain twin, enumeration and known mixing rates.

Statistical checks use fixed seeds.  Each compares M estimates with exact values at a distance
of z standard errors, with z such that a correct sampler on fresh seeds would fail the whole
check with probability below 1e-4 (Bonferroni over the M comparisons).
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from reference.gibbs import chain, conditional, splitmix64
from reference.mean_field import enumerate_model, random_model

from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.conditioning import condition
from fieldfit.inference.gibbs.gibbs import Gibbs, _keys, gibbs_sweeps
from fieldfit.inference.gibbs.gibbs_chains import CountHistory
from fieldfit.numeric.random_numbers import random_bits, random_uniform

FALSE_ALARMS = 1e-4


def critical(n_comparisons):
    """Two-sided critical value in standard errors."""
    return NormalDist().inv_cdf(1.0 - FALSE_ALARMS / (2 * n_comparisons))


def standard_error(marginal, size):
    """Of the mean of indicators; a sum of probabilities may exceed one in its last bit."""
    return np.sqrt(marginal * np.maximum(1.0 - marginal, 0.0) / size)


def ising_pair(coupling):
    """Two spins: labels agree with weight exp(2 coupling) to one."""
    graph = FactorGraph([2, 2], [(0, 1)])
    return graph, Potentials(graph, factors=[coupling * np.array([[1.0, -1.0], [-1.0, 1.0]])])


# -- random numbers -----------------------------------------------------------------------


def test_random_bits_are_splitmix64():
    # first outputs for the seed 1234567 (Rosetta Code, "Pseudo-random numbers/Splitmix64")
    golden = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [int(random_bits(np.uint64(1234567), n)) for n in range(5)] == golden
    for key, counter in [(0, 0), (2**64 - 1, 7), (2**63, 2**40)]:
        assert int(random_bits(np.uint64(key), counter)) == splitmix64(key, counter)


def test_uniforms_are_uniform_along_counters_and_keys():
    for values in (
        np.array([random_uniform(np.uint64(11), n) for n in range(20_000)]),
        np.array([random_uniform(np.uint64(splitmix64(3, k)), 5) for k in range(20_000)]),
    ):
        assert values.min() >= 0.0
        assert values.max() < 1.0
        counts = np.histogram(values, bins=50, range=(0, 1))[0]
        chi_square = np.sum((counts - 400.0) ** 2 / 400.0)
        # 49 degrees of freedom: mean 49, standard deviation 9.9
        assert 49 - 4 * 9.9 < chi_square < 49 + 5 * 9.9
        lag = np.corrcoef(values[1:], values[:-1])[0, 1]
        assert abs(lag) < critical(4) / np.sqrt(len(values))


# -- the chain ----------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_labels_are_those_of_the_twin(zeros):
    moved = 0
    for seed in range(12):
        graph, potentials, kept = random_model(np.random.default_rng(seed), zeros=zeros)
        model, _ = condition(graph, potentials, None)
        key = _keys(np.random.default_rng(seed), 1)[0]
        expected, _ = chain(graph, potentials, kept, model.variables, 5, key)
        labels = gibbs_sweeps(graph, potentials, kept, n_sweeps=5, random_state=seed)
        np.testing.assert_array_equal(labels, expected)
        moved += not np.array_equal(labels, kept)
    assert moved >= 6


def test_binary_form_draws_the_labels_of_the_twin():
    rng = np.random.default_rng(0)
    graph = FactorGraph([2] * 6, [(0, 1), (1, 2), (2, 0), (3, 2), (2, 3), (5,), ()])
    potentials = Potentials(
        graph,
        rng.normal(size=(6, 2)),
        [rng.normal(size=graph.table_shape(a)) for a in range(graph.n_factors)],
    )
    model, _ = condition(graph, potentials, None)
    start = np.zeros((3, 6), dtype=int)
    labels = gibbs_sweeps(graph, potentials, start, n_sweeps=40, random_state=4)
    keys = _keys(np.random.default_rng(4), 3)
    for row in range(3):
        expected, _ = chain(graph, potentials, start[row], model.variables, 40, keys[row])
        np.testing.assert_array_equal(labels[row], expected)
    assert len(np.unique(labels, axis=0)) > 1  # chains have their own streams


def test_beliefs_average_the_conditionals_of_the_twin():
    graph, potentials, kept = random_model(np.random.default_rng(3))
    solver = Gibbs(n_sweeps=25, burn_in=0, random_state=9, n_chains=1)
    result = solver.run(graph, potentials, init=kept)
    generator = np.random.default_rng(9)
    generator.random(int(graph.unary_offsets[-1]))  # spent on the starting point
    model, _ = condition(graph, potentials, None)
    key = _keys(generator, 1)[0]
    labels, averages = chain(graph, potentials, kept, model.variables, 25, key)
    np.testing.assert_array_equal(result.state[0], labels)
    np.testing.assert_allclose(
        result.beliefs.unary_values, np.concatenate(averages), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("seed", range(6))
def test_marginals_within_their_standard_errors(seed):
    rng = np.random.default_rng(seed)
    graph, potentials, kept = random_model(rng, scale=0.8)
    observed = {0: int(kept[0])} if seed % 2 else None
    _, unary, factors = enumerate_model(graph, potentials, observed)
    result = Gibbs(n_sweeps=5000, burn_in=100, random_state=seed).run(graph, potentials, observed)
    assert result.converged, result.status
    sizes = result.diagnostics["effective_sample_sizes"]
    z = critical(int(graph.unary_offsets[-1] + graph.table_offsets[-1]))
    for i, marginal in enumerate(unary):
        error = standard_error(marginal, sizes[i])
        assert np.all(np.abs(result.beliefs.unary(i) - marginal) <= z * error + 1e-12)
        assert result.beliefs.unary(i).sum() == pytest.approx(1.0, abs=1e-12)
    for a, marginal in enumerate(factors):
        # a configuration's indicator mixes no slower than half the slowest of its variables here
        size = min((sizes[i] for i in graph.scope(a)), default=1.0) / 2
        error = standard_error(marginal, size)
        assert np.all(np.abs(result.beliefs.factor(a) - marginal) <= z * error + 1e-12)
        assert result.beliefs.factor(a).sum() == pytest.approx(1.0, abs=1e-12)
    if observed:
        assert result.beliefs.unary(0)[observed[0]] == 1.0


def test_binary_grid_marginals():
    rng = np.random.default_rng(2)
    graph = FactorGraph.grid(3, 4, 2)
    potentials = Potentials(
        graph, rng.normal(size=(12, 2)), 0.7 * rng.normal(size=(graph.n_factors, 2, 2))
    )
    _, unary, _ = enumerate_model(graph, potentials, {5: 0})
    result = Gibbs(n_sweeps=8000, random_state=0).run(graph, potentials, {5: 0})
    sizes = result.diagnostics["effective_sample_sizes"]
    for i, marginal in enumerate(unary):
        error = standard_error(marginal, sizes[i])
        assert np.all(np.abs(result.beliefs.unary(i) - marginal) <= critical(24) * error + 1e-12)


def test_a_wrong_model_would_be_noticed():
    graph, potentials = ising_pair(0.3)
    _, other = ising_pair(0.4)
    _, _, factors = enumerate_model(graph, other)
    result = Gibbs(n_sweeps=5000, random_state=0).run(graph, potentials)
    size = result.diagnostics["effective_sample_sizes"].min() / 2
    error = standard_error(factors[0], size)
    assert np.any(np.abs(result.beliefs.factor(0) - factors[0]) > critical(4) * error)


@pytest.mark.parametrize("n_chains", [1, 2, 5])
@pytest.mark.parametrize("kind", ["binary", "general"])
def test_results_do_not_depend_on_threads(kind, n_chains):
    rng = np.random.default_rng(0)
    if kind == "binary":
        graph = FactorGraph.grid(7, 5, 2)
        potentials = Potentials(
            graph, rng.normal(size=(35, 2)), rng.normal(size=(graph.n_factors, 2, 2))
        )
    else:
        graph, potentials, _ = random_model(rng, n_variables=8, zeros=0.2)
    results = [
        Gibbs(n_sweeps=30, burn_in=5, random_state=1, n_chains=n_chains, n_jobs=n_jobs).run(
            graph, potentials
        )
        for n_jobs in (None, 2, 3)
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].state, other.state)
        np.testing.assert_array_equal(results[0].beliefs.unary_values, other.beliefs.unary_values)
        np.testing.assert_array_equal(results[0].beliefs.factor_values, other.beliefs.factor_values)
        assert results[0].log_partition == other.log_partition
        assert results[0].status == other.status


def test_seeds_decide():
    graph, potentials = ising_pair(0.5)
    runs = [Gibbs(n_sweeps=50, random_state=s).run(graph, potentials) for s in (1, 1, 2)]
    values = [run.beliefs.unary_values for run in runs]
    np.testing.assert_array_equal(values[0], values[1])
    assert not np.array_equal(values[0], values[2])


# -- hard zeros and evidence --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_impossible_configurations_are_never_drawn(seed):
    rng = np.random.default_rng(seed)
    graph, potentials, kept = random_model(rng, zeros=0.45)
    observed = {0: int(kept[0])}
    solver = Gibbs(burn_in=3, random_state=seed, n_chains=3)
    samples = solver.sample(graph, potentials, n_samples=20, observed=observed)
    assert samples.shape == (20, graph.n_variables)
    assert np.all(samples[:, 0] == kept[0])
    for labels in samples:
        assert potentials.score(labels) > -np.inf
    result = Gibbs(n_sweeps=20, random_state=seed).run(graph, potentials, observed)
    exact, unary, _ = enumerate_model(graph, potentials, observed)
    assert -np.inf < result.log_partition <= exact + 1e-10
    assert result.bound == "lower"
    for i, marginal in enumerate(unary):
        assert np.all(result.beliefs.unary(i)[marginal == 0] == 0)
    assert np.all(result.beliefs.factor_values[np.isneginf(potentials.factor_values)] == 0)


def test_equality_constraints_freeze_chains_and_are_reported():
    # two possible configurations that single-variable moves do not connect
    graph = FactorGraph.chain(4, 2)
    table = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    potentials = Potentials(graph, None, np.broadcast_to(table, (3, 2, 2)).copy())
    result = Gibbs(n_sweeps=200, random_state=0, n_chains=8).run(graph, potentials)
    assert not result.converged
    assert result.diagnostics["max_split_r_hat"] == np.inf
    assert result.diagnostics["min_effective_sample_size"] <= 16  # halves of eight chains
    assert "not mixed" in result.status
    assert result.log_partition == pytest.approx(0.0)  # a configuration's score bounds log 2


def test_no_start_is_said_so(monkeypatch):
    monkeypatch.setattr("fieldfit.inference.gibbs.gibbs.feasible_labels", lambda *_: None)
    graph, potentials = ising_pair(1.0)
    result = Gibbs().run(graph, potentials)
    assert not result.converged
    assert (result.log_partition, result.bound) == (-np.inf, None)
    assert "no configuration of positive weight" in result.status
    with pytest.raises(InvalidInputError, match="no configuration of positive weight"):
        Gibbs().sample(graph, potentials, 2)


def test_weight_zero_is_an_error():
    graph = FactorGraph([2, 2], [(0, 1)])
    potentials = Potentials(graph, factors=[np.full((2, 2), -np.inf)])
    with pytest.raises(ZeroWeightError, match="positive weight"):
        Gibbs().run(graph, potentials)


def test_empty_graph_isolated_variables_and_one_label():
    result = Gibbs(n_sweeps=5).run(FactorGraph([]), Potentials(FactorGraph([])))
    assert result.log_partition == 0.0
    graph = FactorGraph([1, 3], [()])
    potentials = Potentials(graph, [None, [0.0, 1.0, -np.inf]], [np.array(2.0)])
    result = Gibbs(n_sweeps=500, random_state=0).run(graph, potentials)
    assert result.converged, result.status
    expected = np.array([1.0, np.e, 0.0]) / (1 + np.e)
    np.testing.assert_allclose(result.beliefs.unary(1), expected, rtol=0, atol=1e-14)
    assert result.log_partition == pytest.approx(2.0 + np.log(1 + np.e))  # exact for a product
    np.testing.assert_array_equal(result.beliefs.factor(0), 1.0)


# -- mixing -------------------------------------------------------------------------------


@pytest.mark.parametrize("coupling", [0.0, 0.5, 1.0])
def test_effective_sample_size_of_two_spins(coupling):
    # a sweep multiplies the spin's expectation by tanh(J)^2, so its autocorrelation is
    # lambda^t with lambda = tanh(J)^2, and N draws are worth N (1 - lambda) / (1 + lambda)
    graph, potentials = ising_pair(coupling)
    result = Gibbs(n_sweeps=20_000, random_state=5).run(graph, potentials)
    rate = np.tanh(coupling) ** 2
    expected = 80_000 * (1 - rate) / (1 + rate)
    # 564 batch means give a relative standard deviation of sqrt(2 / 563) = 6 %
    np.testing.assert_allclose(
        result.diagnostics["effective_sample_sizes"], expected, rtol=0.25, atol=0
    )
    assert result.diagnostics["min_effective_sample_size"] <= 80_000
    assert 0.99 < result.diagnostics["max_split_r_hat"] < 1.01
    assert result.converged


def test_slow_chains_are_not_called_mixed():
    graph, potentials = ising_pair(4.0)  # one change of sign in about 3000 sweeps
    result = Gibbs(n_sweeps=300, random_state=1, n_chains=6).run(graph, potentials)
    assert not result.converged
    assert result.diagnostics["max_split_r_hat"] > 1.05


def test_mixing_figures_of_known_counts():
    # two chains of eight sweeps on one indicator, batches of two
    series = np.array([[1, 1, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0, 1, 1]])
    counts = np.zeros((2, 1), dtype=np.int32)
    history = CountHistory(counts, 8)
    for done in range(1, 9):
        counts[:, 0] += series[:, done - 1]
        if done in history.stops():
            history.note(done)
    mixing = history.mixing()
    p = series.mean()
    means = series.reshape(8, 2).mean(axis=1)
    sigma2 = 2 * means.var(ddof=1)
    assert mixing.frequencies[0] == p
    assert mixing.effective_sample_sizes[0] == pytest.approx(16 * p * (1 - p) / sigma2)
    halves = series.reshape(4, 4)
    within = halves.var(axis=1, ddof=1).mean()
    between = halves.mean(axis=1).var(ddof=1)
    assert mixing.split_r_hats[0] == pytest.approx(np.sqrt(3 / 4 + between / within))


@pytest.mark.parametrize("n_sweeps", [1, 2, 3, 4, 5])
def test_very_short_runs_give_no_nan(n_sweeps):
    graph, potentials, _ = random_model(np.random.default_rng(1), zeros=0.2)
    result = Gibbs(n_sweeps=n_sweeps, burn_in=0, random_state=0, n_chains=1).run(graph, potentials)
    assert not result.converged
    assert not np.isnan(result.residual)
    for figures in (result.diagnostics["effective_sample_sizes"], result.beliefs.factor_values):
        assert not np.isnan(figures).any()


# -- samples, starting points, options ----------------------------------------------------


def test_samples_have_the_right_frequencies():
    graph, potentials = ising_pair(0.6)
    _, _, factors = enumerate_model(graph, potentials)
    solver = Gibbs(burn_in=20, random_state=0, n_chains=50)
    samples = solver.sample(graph, potentials, n_samples=5000, n_sweeps_between=10)
    # ten sweeps apart the autocorrelation is tanh(0.6)^20 < 1e-5: independent draws
    frequencies = np.bincount(2 * samples[:, 0] + samples[:, 1], minlength=4) / 5000
    exact = factors[0].ravel()
    error = standard_error(exact, 5000)
    assert np.all(np.abs(frequencies - exact) <= critical(4) * error)


def test_sampling_is_the_run_of_sweeps():
    graph, potentials, kept = random_model(np.random.default_rng(2))
    solver = Gibbs(burn_in=4, random_state=7, n_chains=2)
    samples = solver.sample(graph, potentials, n_samples=5, n_sweeps_between=3, init=kept)
    model, _ = condition(graph, potentials, None)
    generator = np.random.default_rng(7)
    generator.random((2, len(model.unary)))
    keys = _keys(generator, 2)
    for row in range(5):
        expected, _ = chain(
            graph, potentials, kept, model.variables, 4 + 3 * (row // 2), keys[row % 2]
        )
        np.testing.assert_array_equal(samples[row], expected)


def test_sweeps_start_at_the_given_labels():
    graph, potentials, kept = random_model(np.random.default_rng(2), zeros=0.2)
    rows = np.tile(kept, (3, 1))
    np.testing.assert_array_equal(gibbs_sweeps(graph, potentials, rows, 0), rows)
    assert gibbs_sweeps(graph, potentials, kept, 1).shape == kept.shape
    after = gibbs_sweeps(graph, potentials, rows, 3, observed={1: int(kept[1])})
    assert np.all(after[:, 1] == kept[1])


def test_earlier_result_is_a_start():
    graph, potentials, _ = random_model(np.random.default_rng(2), zeros=0.2)
    first = Gibbs(n_sweeps=10, random_state=0).run(graph, potentials)
    samples = Gibbs(burn_in=0, random_state=1).sample(graph, potentials, 4, init=first)
    np.testing.assert_array_equal(samples, first.state)


def test_conditional_twin_is_normalised_score():
    graph, potentials = ising_pair(0.5)
    np.testing.assert_allclose(
        conditional(graph, potentials, np.array([0, 1]), 0),
        [1 / (1 + np.e**2 / np.e), 1 / (1 + np.e**-1)],
    )


def test_progress_is_told():
    graph, potentials = ising_pair(0.5)
    calls = []
    Gibbs(n_sweeps=9, burn_in=4).run(graph, potentials, progress=lambda done, _: calls.append(done))
    assert calls[-1] == 13
    assert calls == sorted(calls)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_sweeps": 0}, "n_sweeps must be an integer of at least 1, got 0"),
        ({"burn_in": -1}, "burn_in must be an integer of at least 0, got -1"),
        ({"n_chains": 0}, "n_chains must be an integer of at least 1, got 0"),
        ({"n_jobs": 0}, "n_jobs must not be 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InvalidInputError, match=message):
        Gibbs(**options)


def test_bad_labels():
    graph = FactorGraph([2, 2], [(0, 1)])
    potentials = Potentials(graph, factors=[np.array([[0.0, -np.inf], [0.0, 0.0]])])
    with pytest.raises(InvalidInputError, match="labels must have positive weight"):
        gibbs_sweeps(graph, potentials, [0, 1], 1)
    with pytest.raises(InvalidInputError, match=r"labels: the label of variable 1 .* got 2"):
        gibbs_sweeps(graph, potentials, [0, 2], 1)
    with pytest.raises(InvalidInputError, match="labels must be integers of shape"):
        gibbs_sweeps(graph, potentials, [0.0, 1.0], 1)
    with pytest.raises(InvalidInputError, match="init must have 1 or 4 rows, got 2"):
        Gibbs().run(graph, potentials, init=np.zeros((2, 2), dtype=int))
    with pytest.raises(
        InvalidInputError, match="n_sweeps_between must be an integer of at least 1"
    ):
        Gibbs().sample(graph, potentials, 1, n_sweeps_between=0)
