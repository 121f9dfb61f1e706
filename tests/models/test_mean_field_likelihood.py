"""Mean-field likelihood without a penalty: bounded below, and honest about its kinks."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.errors import ConvergenceWarning
from fieldfit.inference.mean_field.mean_field import MeanField, better_examples
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters, full_edges
from fieldfit.models.pairwise.pairwise_problems import LikelihoodProblem
from fieldfit.models.pairwise.potts_model import PottsModel
from fieldfit.models.pairwise.sample_data import Samples
from fieldfit.models.pairwise.sample_partition import InferredPartition

N = 8


def answers(seed, n_labels=2, n_rows=150):
    """Answers that have a tendency of the person in common."""
    rng = np.random.default_rng(seed)
    tendency = 2.0 * rng.normal(size=(n_rows, 1)) + rng.normal(size=(n_rows, N))
    cuts = np.quantile(tendency, np.arange(1, n_labels) / n_labels)
    return np.searchsorted(cuts, tendency)


@pytest.mark.parametrize("seed", range(4))
def test_fit_without_penalty_stays_finite_and_says_so(seed):
    with pytest.warns(ConvergenceWarning, match="'pseudolikelihood'"):
        model = IsingModel("mean-field", l2=0.0).fit(answers(seed))
    assert not model.converged_
    assert "gradient norm" in model.status_
    assert "larger l2" in model.status_
    assert np.abs(model.weights_).max() < 100.0
    assert model.trace_[-1]["objective"] >= 0.0


def test_one_branch_alone_runs_off():
    """The fit above without the other starts, for some tables: what the starts are good for."""
    worst = 0.0
    for seed in range(8):
        samples = Samples.of(answers(seed).astype(np.int16), np.ones(150))
        parameters = IsingParameters(N, full_edges(N))
        problem = LikelihoodProblem(parameters, samples, MeanField())
        problem.partition = InferredPartition(parameters, MeanField())
        fit = LBFGS().minimize(problem, 0.01 * np.ones(problem.n_weights))
        worst = min(worst, fit.trace[-1]["objective"])
    assert worst < 0.0


def test_more_labels():
    with pytest.warns(ConvergenceWarning, match="'pseudolikelihood'"):
        model = PottsModel("mean-field", l2=0.0, max_iter=60).fit(answers(5, n_labels=3))
    assert not model.converged_
    assert model.trace_[-1]["objective"] >= 0.0


def test_a_penalty_gives_a_smooth_minimum():
    model = IsingModel("mean-field", l2=300.0).fit(answers(6))
    assert model.converged_
    assert model.trace_[-1]["gradient_norm"] < 1e-2


def test_bound_is_at_least_the_score_of_every_row():
    labels = answers(7).astype(np.int16)
    samples = Samples.of(labels, np.ones(len(labels)))
    parameters = IsingParameters(N, full_edges(N))
    problem = LikelihoodProblem(parameters, samples, MeanField())
    rng = np.random.default_rng(8)
    for scale in (0.1, 1.0, 10.0, 100.0):
        weights = scale * rng.normal(size=parameters.n_weights)
        bound, _ = problem.partition.evaluate(weights)
        scores = parameters.statistics(samples.labels) @ weights
        assert bound >= scores.max() - 1e-9 * scale


@pytest.mark.parametrize("strength", [40.0, 400.0])
def test_value_is_not_negative_from_any_start(strength):
    graph = ff.FactorGraph.chain(2, 2)
    fields = np.array([[0.0, -strength / 4]] * 2)
    potentials = ff.Potentials(graph, fields, np.array([[[0.0, 0.0], [0.0, strength]]]))
    batch = ff.graph.Batch.of([graph, graph])
    both = ff.Potentials.from_flat(
        batch.graph, np.tile(potentials.unary_values, 2), np.tile(potentials.factor_values, 2)
    )
    stuck = MeanField().run_batch(
        batch, both, init=ff.Beliefs.from_labels(batch.graph, [0, 0, 0, 0])
    )
    labels = np.array([1, 1, 0, 0], dtype=np.int32)
    assert stuck.log_partitions[0] < potentials.score([1, 1])
    evaluation = ff.Likelihood(MeanField()).evaluate(batch, both, labels, (stuck, None, None))
    assert np.all(evaluation.values >= 0.0)


def test_better_examples_takes_each_from_its_own_run():
    graph = ff.FactorGraph.chain(2, 2)
    potentials = ff.Potentials(graph, np.zeros((2, 2)), 8.0 * np.eye(2)[None])
    batch = ff.graph.Batch.of([graph, graph])
    tables = np.concatenate([potentials.factor_values, 0.5 * potentials.factor_values])
    both = ff.Potentials.from_flat(batch.graph, np.zeros(8), tables)
    uniform = MeanField().run_batch(batch, both)
    broken = MeanField().run_batch(
        batch, both, init=ff.Beliefs.from_labels(batch.graph, [0, 0, 1, 1])
    )
    merged = better_examples(batch, uniform, broken)
    expected = np.maximum(uniform.log_partitions, broken.log_partitions)
    np.testing.assert_array_equal(merged.log_partitions, expected)
    assert merged.log_partition == pytest.approx(expected.sum())


def test_conditional_models_say_it_too():
    rng = np.random.default_rng(9)
    truth = np.cumsum(rng.normal(size=(12, 12)), axis=1) > 0
    picture = (truth + 1.5 * rng.normal(size=truth.shape))[:, :, None]
    with pytest.warns(ConvergenceWarning, match="'pseudolikelihood'"):
        model = ff.GridCRF("mean-field", l2=0.0).fit([picture], [truth.astype(int)])
    assert not model.converged_
    assert "larger l2" in model.status_
