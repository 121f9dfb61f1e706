"""IsingModel: fits, missing values, samples, bounds, scikit-learn conventions, errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from ising_problems import INFERENCES, SPARSE, N, drawn_from, grid_model, problem_of, random_samples
from reference import pairwise_samples as twin
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from fieldfit.entropy.counting_numbers import Bethe, Convex, TreeReweighted
from fieldfit.errors import ConvergenceWarning, InvalidInputError, TooLargeError
from fieldfit.graph.batch import Batch
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters, full_edges
from fieldfit.models.pairwise.pairwise_problems import ReplicatedProblem
from fieldfit.models.pairwise.sample_partition import InferredPartition
from fieldfit.objectives.moment_matching import MomentMatching
from fieldfit.objectives.piecewise import Piecewise
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

# -- fits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["pseudolikelihood", "likelihood"])
def test_fit_recovers_a_known_model(objective):
    parameters, truth = grid_model()
    samples = drawn_from(parameters, truth, 20_000, seed=5)
    model = IsingModel(objective, l2=0.0).fit(samples, parameters.edges)
    assert model.converged_
    ratios = (model.weights_ - truth) / model.standard_errors_
    assert np.abs(ratios).max() < 4.0
    np.testing.assert_allclose(model.thresholds_, model.weights_[:9])
    couplings = model.couplings_
    np.testing.assert_array_equal(couplings, couplings.T)
    assert couplings[tuple(parameters.edges[3])] == model.weight_blocks_["couplings"][3]
    assert couplings[0, 8] == 0.0


def test_likelihood_fit_matches_moments():
    """The defining property of the maximum: the model's moments are the samples' moments."""
    samples = random_samples(200, seed=6).astype(int)
    model = IsingModel("likelihood", l2=0.0, tol=1e-9).fit(samples)
    graph, potentials = model.to_model()
    beliefs = Exact().run(graph, potentials).beliefs
    np.testing.assert_allclose(beliefs.unary_matrix()[:, 1], samples.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("entropy", [Bethe(), TreeReweighted(), Convex(unary=0.5)])
@pytest.mark.parametrize("encoding", ["binary", "spin"])
def test_moment_matching_reproduces_empirical_moments(entropy, encoding):
    parameters, truth = grid_model(scale=0.3)
    samples = drawn_from(parameters, truth, 3000, seed=7)
    values = 2 * samples - 1 if encoding == "spin" else samples
    model = IsingModel(MomentMatching(entropy), encoding=encoding).fit(values, parameters.edges)
    graph, potentials = model.to_model()
    result = SumProduct(entropy=entropy, tol=1e-12, max_iter=5000).run(graph, potentials)
    assert result.converged
    np.testing.assert_allclose(result.beliefs.unary_matrix()[:, 1], samples.mean(axis=0), atol=1e-6)
    first, second = parameters.edges.T
    both = (samples[:, first] * samples[:, second]).mean(axis=0)
    np.testing.assert_allclose(result.beliefs.factor_values[3::4], both, atol=1e-6)


def test_moment_matching_is_the_surrogate_fit():
    parameters, truth = grid_model(scale=0.3)
    samples = drawn_from(parameters, truth, 3000, seed=7)
    closed = IsingModel("moment-matching").fit(samples, parameters.edges)
    learned = IsingModel("trw", l2=0.0, tol=1e-8).fit(samples, parameters.edges)
    np.testing.assert_allclose(closed.weights_, learned.weights_, atol=1e-4)
    assert closed.n_iter_ == 0
    np.testing.assert_allclose(closed.standard_errors_, learned.standard_errors_, rtol=1e-3)


def test_encodings_give_the_same_distribution():
    samples = random_samples(300, seed=8).astype(int)
    binary = IsingModel("likelihood", l2=0.0, tol=1e-9).fit(samples)
    spin = IsingModel("likelihood", l2=0.0, tol=1e-9, encoding="spin").fit(2 * samples - 1)
    np.testing.assert_allclose(binary.couplings_, 4 * spin.couplings_, atol=1e-5)
    assert binary.log_likelihood(samples) == pytest.approx(
        spin.log_likelihood(2 * samples - 1), rel=1e-9
    )


def test_any_objective_object_can_be_used():
    samples = random_samples(100, seed=9).astype(int)
    model = IsingModel(Piecewise()).fit(samples)
    assert model.converged_
    blocks = [np.array([0, 1]), np.array([2, 3, 4])]
    block = IsingModel(PseudoLikelihood(blocks=blocks), l2=0.0).fit(samples)
    exact = IsingModel("likelihood", l2=0.0).fit(samples)
    assert np.abs(block.weights_ - exact.weights_).max() < 3 * exact.standard_errors_.max()


def test_objective_on_copies_is_the_fast_path():
    rng = np.random.default_rng(10)
    samples = random_samples(missing=0.2)
    parameters = IsingParameters(N, SPARSE)
    weights = rng.normal(size=parameters.n_weights)
    fast = problem_of("pseudolikelihood", parameters, samples, np.ones(len(samples)))
    slow = ReplicatedProblem(parameters, fast.samples, PseudoLikelihood())
    assert fast.evaluate(weights).value == pytest.approx(slow.evaluate(weights).value, rel=1e-11)
    np.testing.assert_allclose(
        fast.evaluate(weights).gradient, slow.evaluate(weights).gradient, atol=1e-11
    )


def test_equal_rows_and_weights_are_interchangeable():
    samples = random_samples(30, seed=11).astype(int)
    twice = IsingModel(l2=0.5).fit(np.concatenate([samples, samples]))
    weighted = IsingModel(l2=0.5).fit(samples, sample_weight=np.full(30, 2.0))
    np.testing.assert_allclose(twice.weights_, weighted.weights_, atol=1e-12)
    # but two observations say more than one that counts double
    assert np.all(twice.standard_errors_ < weighted.standard_errors_)


def test_rows_with_missing_entries_are_used():
    parameters, truth = grid_model()
    samples = drawn_from(parameters, truth, 4000, seed=12).astype(float)
    kept = samples.copy()
    kept[2000:, 0] = np.nan
    for objective in ("pseudolikelihood", "likelihood"):
        model = IsingModel(objective, l2=0.0).fit(kept, parameters.edges)
        deleted = IsingModel(objective, l2=0.0).fit(kept[:2000], parameters.edges)
        # couplings far from the gap are as sharp as with all samples
        far = 9 + int(np.flatnonzero((parameters.edges == [7, 8]).all(axis=1))[0])
        assert model.standard_errors_[far] < 0.8 * deleted.standard_errors_[far]
        assert np.abs((model.weights_ - truth) / model.standard_errors_).max() < 4.0


def test_result_does_not_depend_on_threads():
    samples = random_samples(700, n=9, seed=13, missing=0.01)
    one = IsingModel(n_jobs=1).fit(samples)
    three = IsingModel(n_jobs=3).fit(samples)
    np.testing.assert_array_equal(one.weights_, three.weights_)


def test_l1_makes_couplings_exactly_zero():
    samples = random_samples(200, seed=14).astype(int)
    model = IsingModel(l2=0.0, l1=15.0).fit(samples)
    assert (model.weight_blocks_["couplings"] == 0.0).sum() >= 5
    with pytest.raises(InvalidInputError, match="l1 = 0"):
        _ = model.standard_errors_


# -- scikit-learn and files ---------------------------------------------------------------


def test_scikit_learn_conventions():
    model = IsingModel("trw", l2=0.3)
    assert clone(model).get_params() == model.get_params()
    samples = random_samples(120, seed=15).astype(int)
    search = GridSearchCV(IsingModel(), {"l2": [0.1, 1.0]}, cv=2).fit(samples)
    assert search.best_params_["l2"] in (0.1, 1.0)


def test_score_is_the_mean_log_likelihood():
    samples = random_samples(50, seed=16).astype(int)
    model = IsingModel("likelihood").fit(samples)
    assert model.score(samples) == pytest.approx(model.log_likelihood(samples) / 50)
    assert model.score(samples) == pytest.approx(
        -twin.negative_log_likelihood(
            *twin.ising_tables(model.thresholds_, model.couplings_, model.edges_),
            model.edges_,
            samples,
            np.full(50, 1 / 50),
        )
    )


def test_validation_ends_the_fit_early():
    train, held_out = random_samples(20, n=8, seed=17), random_samples(20, n=8, seed=18)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = IsingModel(l2=0.0).fit(train, validation=held_out)
    assert all("validation" in row for row in model.trace_)


def test_names_come_from_a_data_frame():
    class Frame:
        columns = ("a", "b", "c", "d", "e")

        def __array__(self, dtype=None, copy=None):
            return random_samples(40)

    model = IsingModel().fit(Frame())
    assert tuple(model.feature_names_in_) == Frame.columns
    text = model.summary()
    assert "a - b" in text or "b - a" in text
    assert "95 % interval" in text
    assert len(text.splitlines()) == 4 + 2 + 5 + 10
    assert "first - second" in model.summary(names=["first", "second", "x", "y", "z"])


def test_checkpoint_resumes(tmp_path):
    samples = random_samples(100, seed=19)
    whole = IsingModel().fit(samples)
    path = tmp_path / "state"
    with pytest.warns(ConvergenceWarning):
        IsingModel(max_iter=10).fit(samples, checkpoint=path)
    resumed = IsingModel().fit(samples, checkpoint=path)
    np.testing.assert_array_equal(whole.weights_, resumed.weights_)


# -- sampling -----------------------------------------------------------------------------


def test_exact_samples_have_the_moments_of_the_model():
    model = IsingModel("likelihood").fit(random_samples(100, seed=20).astype(int))
    drawn = model.sample(40_000, random_state=0)
    graph, potentials = model.to_model()
    beliefs = Exact().run(graph, potentials).beliefs
    np.testing.assert_allclose(drawn.mean(axis=0), beliefs.unary_matrix()[:, 1], atol=0.012)
    first, second = model.edges_.T
    both = (drawn[:, first] * drawn[:, second]).mean(axis=0)
    np.testing.assert_allclose(both, beliefs.factor_values[3::4], atol=0.012)
    np.testing.assert_array_equal(drawn, model.sample(40_000, random_state=0))


def test_gibbs_samples_of_a_large_model(monkeypatch):
    n = 30
    chain = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    samples = random_samples(300, n=n, seed=21, values=(-1, 1))
    model = IsingModel(encoding="spin").fit(samples, chain)
    graph, potentials = model.to_model()
    expected = 2 * Exact().run(graph, potentials).beliefs.unary_matrix()[:, 1] - 1
    exact = model.sample(4000, random_state=1)
    monkeypatch.setattr("fieldfit.models.parts.EXACT_SAMPLING", Exact(max_memory=100))
    chains = model.sample(4000, random_state=1, burn_in=100, n_sweeps_between=5)
    for drawn in (exact, chains):
        assert set(np.unique(drawn)) == {-1, 1}
        np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.1)
    assert not np.array_equal(exact, chains)
    assert model.sample(0).shape == (0, n)


# -- bounds -------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_bounds_bracket_the_log_likelihood(missing):
    rng = np.random.default_rng(22)
    samples = random_samples(30, n=8, seed=22, missing=missing)
    model = IsingModel(l2=2.0).fit(samples)
    model.weights_ = rng.normal(size=model.weights_.shape)
    exact = model.log_likelihood(samples)
    lower, upper = model.log_likelihood_bounds(samples)
    assert lower < exact < upper
    assert upper - lower < 2.0 * abs(exact)


def test_exact_log_likelihood_refuses_what_is_too_large():
    samples = random_samples(40, n=60, seed=23)
    model = IsingModel(l2=10.0).fit(samples)
    with pytest.raises(TooLargeError, match="log_likelihood_bounds"):
        model.log_likelihood(samples)
    lower, upper = model.log_likelihood_bounds(samples)
    assert np.isfinite([lower, upper]).all()
    assert lower < upper


# -- errors -------------------------------------------------------------------------------

GOOD = random_samples(10).astype(int)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((0, 3)), "at least one row"),
        (np.zeros(3), "two axes"),
        (np.array([[0, 1], [1, 2]]), r"0 or 1.*got 2 in row 1, column 1"),
        (np.array([[0, 0.5], [1, 0]]), r"got 0\.5 in row 0, column 1"),
        (np.array([[0, np.inf], [1, 0]]), r"got inf in row 0, column 1"),
        (np.array([["a", "b"]]), "must be numbers"),
        (
            np.array([[0, 1], [0, 0]]),
            r"both values in every column \(drop .*\), got no 1 in column 0",
        ),
        (np.array([[0, -1], [1, -1]]), r"label in every column unless .* got none in column 1"),
        (np.array([[0, np.nan], [1, np.nan]]), "got none in column 1"),
    ],
)
def test_bad_samples_are_refused(samples, message):
    with pytest.raises(InvalidInputError, match=message):
        IsingModel().fit(samples)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 5]], r"variables 0\.\.4, got \[0, 5\] at 0"),
        ([[0, 1], [1, 0]], r"every pair once, got \[1, 0\] again at 1"),
        ([[2, 2]], "two different variables"),
        ([[0.5, 1.0]], "edges must be integers, got dtype float64"),
        ([0, 1], r"shape \(n_edges, 2\)"),
    ],
)
def test_bad_edges_are_refused(edges, message):
    with pytest.raises(InvalidInputError, match=message):
        IsingModel().fit(GOOD, edges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2": -1.0}, "l2"),
        ({"encoding": "potts"}, "encoding must be one of 'binary', 'spin'"),
        ({"objective": "nonsense"}, "objective"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        IsingModel(**options).fit(GOOD)


def test_bad_weights_and_other_samples_are_refused():
    with pytest.raises(InvalidInputError, match=r"shape \(10,\)"):
        IsingModel().fit(GOOD, sample_weight=np.ones(3))
    with pytest.raises(InvalidInputError, match="at least 0, got -1"):
        IsingModel().fit(GOOD, sample_weight=-np.ones(10))
    with pytest.raises(InvalidInputError, match="not be 0 for every"):
        IsingModel().fit(GOOD, sample_weight=np.zeros(10))
    model = IsingModel().fit(GOOD)
    with pytest.raises(InvalidInputError, match="5 columns, got 3"):
        model.score(GOOD[:, :3])
    with pytest.raises(InvalidInputError, match="level"):
        model.confidence_intervals(1.5)
    with pytest.raises(InvalidInputError, match="names must have 5"):
        model.summary(names=["a"])


def test_too_many_missing_entries_are_refused():
    samples = random_samples(30, n=20, seed=24)
    samples[7, :17] = np.nan
    with pytest.raises(TooLargeError, match=r"at most 15 missing.*got 17 in row 7"):
        IsingModel().fit(samples)
    with pytest.raises(InvalidInputError, match="complete for moment matching"):
        IsingModel("moment-matching").fit(samples)


def test_rows_without_any_entry_change_nothing():
    samples = random_samples(30, seed=25)
    empty = np.full((3, N), np.nan)
    for objective in ("pseudolikelihood", "likelihood", "trw"):
        some = IsingModel(objective).fit(np.concatenate([samples, empty]))
        np.testing.assert_array_equal(some.weights_, IsingModel(objective).fit(samples).weights_)


def test_spin_values_are_not_missing_values():
    samples = random_samples(30, seed=26, values=(-1, 1)).astype(int)
    model = IsingModel(encoding="spin").fit(samples)
    assert model._data.samples.n_complete == model._data.samples.n_rows
    with pytest.raises(InvalidInputError, match=r"-1 or 1.*got 0 in row"):
        IsingModel(encoding="spin").fit(GOOD)


def test_batch_of_one_graph_is_reused():
    """The free part is one graph whatever the number of samples."""
    parameters = IsingParameters(N, full_edges(N))
    partition = InferredPartition(parameters, INFERENCES["trw"])
    assert isinstance(partition._batch, Batch)
    assert partition._batch.n_examples == 1


def test_nothing_is_learned_or_scored_from_nothing():
    """A mean over no label would be NaN."""
    model = IsingModel().fit([[0, 1], [1, 0], [1, 1], [0, 0]])
    empty = np.full((3, 2), np.nan)
    for call in (
        lambda: model.score(empty),
        lambda: model.log_likelihood(empty),
        lambda: model.log_likelihood_bounds(empty),
        lambda: IsingModel().fit(empty, edges=[(0, 1)]),
        lambda: IsingModel().fit([[0, 1], [1, 0]], validation=empty),
    ):
        with pytest.raises(InvalidInputError, match="samples must hold at least one label"):
            call()
