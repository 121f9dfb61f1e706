"""PottsModel: objectives against enumeration, gauges, contact scores, sequence weights, errors."""

from __future__ import annotations

import numpy as np
import pytest
from ising_problems import relative_gradient_error
from reference import pairwise_samples as twin

from fieldfit.entropy.counting_numbers import TreeReweighted
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.pairwise_parameters import PottsParameters, full_edges, zero_sum
from fieldfit.models.pairwise.pairwise_problems import (
    LikelihoodProblem,
    PseudoLikelihoodProblem,
    ReplicatedProblem,
)
from fieldfit.models.pairwise.potts_model import PottsModel, sequence_weights
from fieldfit.models.pairwise.sample_data import Samples, checked_labels
from fieldfit.objectives.moment_matching import MomentMatching
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

N, K = 4, 3
SPARSE = np.array([[1, 0], [1, 2], [3, 0]])


def random_samples(n_samples=15, n=N, k=K, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    samples = rng.integers(0, k, (n_samples, n))
    samples[rng.random(samples.shape) < missing] = -1
    samples[:k] = np.arange(k)[:, None]
    return samples


def problem_of(objective, parameters, samples, weights):
    rows = Samples.of(checked_labels(samples), weights)
    if objective == "pseudolikelihood":
        return PseudoLikelihoodProblem(parameters, rows)
    return LikelihoodProblem(parameters, rows, objective)


# -- objectives ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_labels", [2, 3, 9])
@pytest.mark.parametrize("edges", [None, SPARSE], ids=["full", "sparse"])
@pytest.mark.parametrize("missing", [0.0, 0.25])
@pytest.mark.parametrize("objective", ["pseudolikelihood", "likelihood"])
def test_value_and_gradient(objective, missing, edges, n_labels):
    n = N if n_labels < 9 else 3
    edges = full_edges(n) if edges is None or n < N else edges
    rng = np.random.default_rng(n_labels)
    samples = random_samples(n=n, k=n_labels, missing=missing)
    sample_weights = rng.random(len(samples))
    parameters = PottsParameters(n, edges, n_labels)
    weights = rng.normal(size=parameters.n_weights)
    inference = objective if objective == "pseudolikelihood" else Exact()
    problem = problem_of(inference, parameters, samples, sample_weights)
    reference = (
        twin.negative_log_pseudo_likelihood
        if objective == "pseudolikelihood"
        else twin.negative_log_likelihood
    )
    expected = reference(*parameters.tables(weights), edges, samples, sample_weights)
    assert problem.evaluate(weights).value == pytest.approx(expected, rel=1e-11)
    if n_labels < 9:
        assert relative_gradient_error(problem, weights) < 1e-6
    np.testing.assert_allclose(
        problem.samples.weights @ problem.scores(weights),
        problem.evaluate(weights).gradient,
        atol=1e-9,
    )


def test_surrogate_with_missing_labels():
    rng = np.random.default_rng(1)
    samples = random_samples(missing=0.2)
    parameters = PottsParameters(N, full_edges(N), K)
    weights = 0.5 * rng.normal(size=parameters.n_weights)
    inference = SumProduct(entropy=TreeReweighted(), tol=1e-12)
    problem = problem_of(inference, parameters, samples, rng.random(len(samples)))
    assert relative_gradient_error(problem, weights) < 1e-6


def test_fast_path_is_the_objective_on_copies():
    rng = np.random.default_rng(2)
    samples = random_samples(40, n=6, k=5, missing=0.1)
    parameters = PottsParameters(6, full_edges(6), 5)
    weights = rng.normal(size=parameters.n_weights)
    fast = problem_of("pseudolikelihood", parameters, samples, np.ones(40))
    slow = ReplicatedProblem(parameters, fast.samples, PseudoLikelihood())
    np.testing.assert_allclose(
        fast.evaluate(weights).gradient, slow.evaluate(weights).gradient, atol=1e-11
    )


def test_two_labels_give_the_ising_model():
    samples = random_samples(200, k=2, seed=3)
    potts = PottsModel("likelihood", l2=0.0, tol=1e-9, max_iter=2000).fit(samples)
    ising = IsingModel("likelihood", l2=0.0, tol=1e-9).fit(samples)
    tables = potts.zero_sum_couplings_
    found = tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0] + tables[:, 0, 0]
    np.testing.assert_allclose(found, ising.weight_blocks_["couplings"], atol=1e-5)
    assert potts.log_likelihood(samples) == pytest.approx(ising.log_likelihood(samples), rel=1e-9)


def test_moment_matching_reproduces_pair_frequencies():
    samples = random_samples(800, seed=4)
    model = PottsModel(MomentMatching(TreeReweighted())).fit(samples)
    graph, potentials = model.to_model()
    result = SumProduct(entropy=TreeReweighted(), tol=1e-12).run(graph, potentials)
    for edge, (i, j) in enumerate(model.edges_):
        table = np.zeros((K, K))
        np.add.at(table, (samples[:, i], samples[:, j]), 1 / 800)
        np.testing.assert_allclose(result.beliefs.factor(edge), table, atol=1e-6)


def test_result_does_not_depend_on_threads():
    samples = random_samples(300, n=7, k=4, seed=5)
    one = PottsModel(n_jobs=1).fit(samples)
    two = PottsModel(n_jobs=2).fit(samples)
    np.testing.assert_array_equal(one.weights_, two.weights_)


# -- gauges and contacts ------------------------------------------------------------------


def test_zero_sum_gauge_is_the_same_distribution():
    rng = np.random.default_rng(6)
    edges = full_edges(N)
    fields, couplings = rng.normal(size=(N, K)), rng.normal(size=(len(edges), K, K))
    moved = zero_sum(fields, couplings, edges)
    rows = twin.configurations(N, K)
    before = twin.configuration_scores(fields, couplings, edges, rows)
    after = twin.configuration_scores(*moved, edges, rows)
    np.testing.assert_allclose(after - after[0], before - before[0], atol=1e-12)
    np.testing.assert_allclose(moved[0].sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(moved[1].sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(moved[1].sum(axis=2), 0.0, atol=1e-12)
    np.testing.assert_allclose(zero_sum(*moved, edges)[1], moved[1], atol=1e-12)


def test_contact_scores_do_not_depend_on_the_gauge():
    rng = np.random.default_rng(7)
    model = PottsModel(l2=1.0).fit(random_samples(100, seed=7))
    before = model.contact_scores()
    shift = rng.normal(size=(len(model.edges_), K))
    model.couplings_[...] += shift[:, :, None]  # moved from the fields of the first variables
    np.testing.assert_allclose(model.contact_scores(), before, atol=1e-12)
    assert not np.allclose(model.contact_scores(gauge="fitted"), before)


def test_contact_scores_are_those_of_the_formula():
    model = PottsModel(l2=1.0).fit(random_samples(100, seed=8))
    norms = np.zeros((N, N))
    for (i, j), table in zip(model.edges_, model.zero_sum_couplings_, strict=True):
        norms[i, j] = norms[j, i] = np.linalg.norm(table)
    np.testing.assert_allclose(model.contact_scores(correction=None), norms)
    means = norms.sum(axis=1) / (N - 1)
    corrected = norms - np.outer(means, means) / (norms.sum() / (N * (N - 1)))
    np.fill_diagonal(corrected, 0.0)
    np.testing.assert_allclose(model.contact_scores(), corrected, atol=1e-12)
    without = model.contact_scores(correction=None, ignore_labels=[0])
    assert np.all(without <= norms + 1e-12)
    assert model.summary(n_pairs=2).count(" - ") == 2
    for options in ({"gauge": "wrong"}, {"correction": "wrong"}, {"ignore_labels": [7]}):
        with pytest.raises(InvalidInputError):
            model.contact_scores(**options)


def test_contacts_of_a_known_model_are_found():
    rng = np.random.default_rng(9)
    first = rng.integers(0, 4, (2000, 3))
    keep = rng.random((2000, 3)) < 0.7
    second = np.where(keep, (first + 1) % 4, rng.integers(0, 4, (2000, 3)))
    scores = PottsModel(l2=5.0).fit(np.concatenate([first, second], axis=1)).contact_scores()
    rows, columns = np.triu_indices(6, 1)
    best = np.argsort(-scores[rows, columns])[:3]
    assert {(int(rows[k]), int(columns[k])) for k in best} == {(0, 3), (1, 4), (2, 5)}


# -- sequence weights ---------------------------------------------------------------------


@pytest.mark.parametrize("identity", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("n_columns", [5, 70, 130])
def test_sequence_weights_against_all_pairs(identity, n_columns):
    rng = np.random.default_rng(10)
    ancestors = rng.integers(0, 4, (6, n_columns))
    samples = ancestors[rng.integers(0, 6, 60)]
    change = rng.random(samples.shape) < 0.25
    samples = np.where(change, rng.integers(0, 4, samples.shape), samples)
    samples[10:15] = samples[3]
    equal = (samples[:, None] == samples[None]).sum(axis=2)
    expected = 1.0 / (equal >= identity * n_columns - 1e-9).sum(axis=1)
    np.testing.assert_allclose(sequence_weights(samples, identity), expected)
    np.testing.assert_array_equal(
        sequence_weights(samples, identity, n_jobs=3), sequence_weights(samples, identity)
    )


def test_fit_takes_sequence_weights_by_name():
    samples = random_samples(60, n=6, seed=11)
    named = PottsModel(identity=0.7).fit(samples, sample_weight="identity")
    given = PottsModel().fit(samples, sample_weight=sequence_weights(samples, 0.7))
    np.testing.assert_array_equal(named.weights_, given.weights_)
    with pytest.raises(InvalidInputError, match="sample_weight"):
        PottsModel().fit(samples, sample_weight="nonsense")
    with pytest.raises(InvalidInputError, match="identity"):
        sequence_weights(samples, 0.0)


# -- samples and errors -------------------------------------------------------------------


def test_samples_have_the_moments_of_the_model():
    model = PottsModel("likelihood", l2=1.0).fit(random_samples(60, seed=12))
    drawn = model.sample(30_000, random_state=0)
    graph, potentials = model.to_model()
    beliefs = Exact().run(graph, potentials).beliefs
    for i in range(N):
        found = np.bincount(drawn[:, i], minlength=K) / 30_000
        np.testing.assert_allclose(found, beliefs.unary(i), atol=0.015)
    table = np.zeros((K, K))
    np.add.at(table, (drawn[:, 0], drawn[:, 1]), 1 / 30_000)
    np.testing.assert_allclose(table, beliefs.factor(0), atol=0.015)


def test_bounds_bracket_the_log_likelihood():
    samples = random_samples(40, n=5, seed=13, missing=0.1)
    model = PottsModel(l2=1.0).fit(samples)
    lower, upper = model.log_likelihood_bounds(samples)
    assert lower < model.log_likelihood(samples) < upper


@pytest.mark.parametrize(
    ("options", "samples", "message"),
    [
        ({}, np.zeros((4, 3), dtype=int), "at least two labels, got only 0"),
        ({"l2": 0.0}, [[0, 1], [0, 2]], "two labels in every column unless l2 is positive"),
        ({"n_labels": 2}, [[0, 1], [0, 2]], r"0\.\.1, got 2 in row 1, column 1"),
        ({"n_labels": 1}, [[0, 1], [0, 2]], "n_labels must be an integer in .2, 255. or None"),
        ({"identity": 2.0}, [[0, 1], [0, 2]], "identity"),
        ({}, [[0, 300], [1, 2]], r"0\.\.254.*got 300"),
        ({}, [[0, -2], [1, 2]], "got -2 in row 0, column 1"),
        ({}, [[1, 5], [2, 3], [4, 1]], "without gaps, got 5 and no 0: np.unique.*n_labels=6"),
        ({}, [[0, 1], [1, 4]], "without gaps, got 4 and no 2"),
        ({}, [["1", "2"], ["2", "1"]], "samples must be numbers"),
        ({}, np.full((3, 2), 1j), "samples must be numbers"),
        ({}, [[]], "at least one row"),
    ],
)
def test_bad_input_is_refused(options, samples, message):
    with pytest.raises(InvalidInputError, match=message):
        PottsModel(**options).fit(np.array(samples))


def test_later_samples_must_have_known_labels():
    model = PottsModel().fit(random_samples(30))
    with pytest.raises(InvalidInputError, match=r"0\.\.2, got 3"):
        model.score([[0, 1, 2, 3]])
    model.set_params(n_labels=None)
    model.fit(random_samples(30, k=4))  # a new fit may have more
    assert model.fields_.shape == (N, 4)


def test_large_models_have_no_standard_errors():
    model = PottsModel(l2=10.0).fit(random_samples(50, n=12, k=9))
    with pytest.raises(TooLargeError, match="at most 5000"):
        _ = model.standard_errors_
