"""What holds for grids and graphs alike: scikit-learn's rules, missing labels, threads, files."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from fields import graphs, images
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import fieldfit as ff
from fieldfit.models.parts import LEAST_ENTRIES, MOST_ENTRIES, even_groups, mini_batches


@dataclass(frozen=True)
class Kind:
    """An estimator and data for it."""

    estimator: Any
    data: Any

    def make(self, objective="trw", **options):
        return self.estimator(objective, **{"l2": 0.1, **options})


KINDS = {"grid": Kind(ff.GridCRF, images), "graph": Kind(ff.GraphCRF, graphs)}
both = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def as_floats(x, scale=1.0):
    """Scale the features of one example of either kind."""
    return (x[0] * scale, *x[1:]) if isinstance(x, tuple) else x * scale


def many(kind, copies=4):
    """Several data sets one after the other."""
    X, Y = [], []
    for seed in range(copies):
        x, y = kind.data(seed=seed)
        X, Y = [*X, *x], [*Y, *y]
    return X, Y


# -- scikit-learn -------------------------------------------------------------------------


@both
def test_parameters_and_clones(kind):
    objective = ff.Likelihood(ff.SumProduct(entropy=ff.TreeReweighted()))
    crf = kind.make(objective, l2=0.5, pairwise="potts", n_jobs=2)
    copy = clone(crf)
    assert copy is not crf
    assert copy.get_params() == crf.get_params()
    assert set(crf.get_params()) >= {
        "objective",
        "l2",
        "l1",
        "learner",
        "max_iter",
        "tol",
        "decode",
    }
    crf.set_params(l2=2.0, objective="bethe")
    assert (crf.l2, crf.objective) == (2.0, "bethe")
    with pytest.raises(ValueError, match="Invalid parameter"):
        crf.set_params(lambda_=1.0)
    assert "l2=2.0" in repr(crf)


@both
def test_a_clone_forgets_and_a_refit_starts_anew(kind):
    X, Y = kind.data()
    crf = kind.make().fit(X, Y)
    first = crf.weights_
    with pytest.raises(NotFittedError, match="must be fitted first"):
        clone(crf).predict(X)
    np.testing.assert_array_equal(crf.fit(X, Y).weights_, first)


@both
def test_a_refit_may_have_more_labels_and_features(kind):
    X, Y = kind.data()
    crf = kind.make().fit(X, Y)
    X, Y = kind.data(n_labels=3, n_features=3, seed=1)
    assert crf.fit(X, Y).n_labels_ == 3
    assert crf.n_features_in_ == 3
    np.testing.assert_array_equal(crf.weights_, kind.make().fit(X, Y).weights_)


@both
def test_a_refit_that_fails_leaves_no_model_behind(kind):
    X, Y = kind.data()
    crf = kind.make().fit(X, Y)
    with pytest.raises(ff.InvalidInputError):
        crf.fit(X, [np.zeros_like(y) for y in Y])
    with pytest.raises(NotFittedError):
        crf.predict(X)


@both
@pytest.mark.parametrize(
    "call",
    [
        lambda crf, X, Y: crf.predict(X),
        lambda crf, X, Y: crf.predict_marginals(X),
        lambda crf, X, Y: crf.score(X, Y),
        lambda crf, X, Y: crf.sample(X),
        lambda crf, X, Y: crf.log_likelihood_bounds(X, Y),
        lambda crf, X, Y: crf.weight_blocks_,
        lambda crf, X, Y: crf.save("nowhere"),
    ],
)
def test_not_fitted(kind, call):
    with pytest.raises(NotFittedError):
        call(kind.make(), *kind.data())


@both
def test_grid_search_over_lists(kind):
    X, Y = many(kind)
    search = GridSearchCV(
        kind.make(), {"l2": [0.1, 10.0], "objective": ["pseudolikelihood", "trw"]}, cv=KFold(3)
    ).fit(X, Y)
    assert search.best_params_["l2"] in (0.1, 10.0)
    assert len(search.predict(X)) == len(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(cross_val_score(kind.make("pseudolikelihood"), X, Y, cv=3)) == 3


@both
def test_pipeline_over_lists(kind):
    X, Y = kind.data()
    halve = FunctionTransformer(lambda X: [as_floats(x, 0.5) for x in X])
    pipeline = make_pipeline(halve, kind.make()).fit(X, Y)
    alone = kind.make().fit([as_floats(x, 0.5) for x in X], Y)
    np.testing.assert_array_equal(pipeline[-1].weights_, alone.weights_)
    assert pipeline.score(X, Y) == alone.score([as_floats(x, 0.5) for x in X], Y)


@both
def test_fit_changes_neither_data_nor_options(kind):
    X, Y = kind.data()
    before = kind.data()
    crf = kind.make()
    options = crf.get_params()
    assert crf.fit(X, Y) is crf
    assert crf.get_params() == options
    for now, then in zip(X, before[0], strict=True):
        for a, b in zip(*((now, then) if isinstance(now, tuple) else ([now], [then])), strict=True):
            np.testing.assert_array_equal(a, b)
    for now, then in zip(Y, before[1], strict=True):
        np.testing.assert_array_equal(now, then)


# -- labels and weights of examples -------------------------------------------------------


@both
@pytest.mark.parametrize("objective", ["likelihood", "trw", "pseudolikelihood"])
def test_an_example_without_labels_changes_nothing(kind, objective):
    X, Y = kind.data()
    crf = kind.make(objective, tol=1e-8)
    without = crf.fit(X[1:], Y[1:]).weights_
    unknown = np.full_like(Y[0], -1)
    np.testing.assert_allclose(crf.fit(X, [unknown, *Y[1:]]).weights_, without, atol=1e-5)


@both
def test_score_counts_what_is_labelled(kind):
    X, Y = kind.data()
    crf = kind.make().fit(X, Y)
    found = crf.predict(X)
    hidden = [np.where(y == f, y, -1) for y, f in zip(Y, found, strict=True)]
    assert crf.score(X, hidden) == 1.0
    right = np.concatenate([(y == f).ravel() for y, f in zip(Y, found, strict=True)])
    assert crf.score(X, Y) == right.mean()
    with pytest.raises(ff.InvalidInputError, match="at least one label"):
        crf.score(X, [np.full_like(y, -1) for y in Y])


@both
@pytest.mark.parametrize("objective", ["likelihood", "trw", "pseudolikelihood", "piecewise"])
def test_a_weight_of_two_is_the_example_twice(kind, objective):
    X, Y = kind.data()
    crf = kind.make(objective, tol=1e-9)
    weighted = crf.fit(X, Y, sample_weight=[2.0, 1.0, 0.0, *[1.0] * (len(X) - 3)]).weights_
    repeated = crf.fit([X[0], X[0], X[1], *X[3:]], [Y[0], Y[0], Y[1], *Y[3:]]).weights_
    np.testing.assert_allclose(weighted, repeated, atol=1e-5)
    assert np.abs(weighted - crf.fit(X, Y).weights_).max() > 1e-3


@both
def test_n_labels_makes_room_for_labels_not_seen(kind):
    X, Y = kind.data()
    crf = kind.make(n_labels=5).fit(X, Y)
    assert crf.n_labels_ == 5
    assert crf.predict_marginals(X)[0].shape[-1] == 5
    one = kind.make(n_labels=2).fit(X, [np.zeros_like(y) for y in Y])
    assert all((labels == 0).all() for labels in one.predict(X))


# -- parts, threads -----------------------------------------------------------------------


@both
def test_batch_size_does_not_change_the_result(kind):
    X, Y = many(kind)
    whole = kind.make(tol=1e-8).fit(X, Y)
    for size in (1, 3, 100):
        crf = kind.make(tol=1e-8, batch_size=size).fit(X, Y)
        np.testing.assert_allclose(crf.weights_, whole.weights_, atol=1e-6)
        for first, second in zip(crf.predict_marginals(X), whole.predict_marginals(X), strict=True):
            np.testing.assert_allclose(first, second, atol=1e-5)


@both
@pytest.mark.parametrize("objective", ["trw", "likelihood", "pseudolikelihood", "max-margin"])
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_threads_change_nothing_to_the_last_bit(kind, objective):
    X, Y = many(kind)
    one, three = (
        kind.make(objective, batch_size=2, n_jobs=n_jobs, max_iter=15).fit(X, Y)
        for n_jobs in (None, 3)
    )
    np.testing.assert_array_equal(one.weights_, three.weights_)
    np.testing.assert_array_equal(
        np.concatenate([y.ravel() for y in one.predict(X)]),
        np.concatenate([y.ravel() for y in three.predict(X)]),
    )
    np.testing.assert_array_equal(
        one.log_likelihood_bounds(X, Y), three.log_likelihood_bounds(X, Y)
    )


def test_linear_algebra_keeps_its_threads_but_for_the_fit():
    info = pytest.importorskip("threadpoolctl").threadpool_info
    before = [library["num_threads"] for library in info()]
    seen = []

    class Looking(ff.Likelihood):
        def evaluate(self, batch, potentials, labels, init=None):
            seen.extend(
                library["num_threads"] for library in info() if library["user_api"] == "blas"
            )
            return super().evaluate(batch, potentials, labels, init)

    ff.GridCRF(Looking(), l2=0.1).fit(*images())
    assert set(seen) == {1}
    assert [library["num_threads"] for library in info()] == before


def test_other_labels_with_an_old_state_are_other_labels():
    graph = ff.FactorGraph.grid(2, 3, 2)
    rng = np.random.default_rng(0)
    batch = ff.graph.Batch.of([graph])
    potentials = ff.Potentials.from_flat(graph, rng.normal(size=12), rng.normal(size=28))
    objective = ff.Likelihood(ff.SumProduct(tol=1e-10))
    state = objective.evaluate(batch, potentials, np.zeros(6, dtype=np.int32)).state
    for other in (np.ones(6), np.array([1, 0, -1, 0, -1, 1])):
        labels = other.astype(np.int32)
        fresh = objective.evaluate(batch, potentials, labels)
        again = objective.evaluate(batch, potentials, labels, state)
        np.testing.assert_allclose(again.values, fresh.values, atol=1e-8)
        np.testing.assert_allclose(
            again.gradient.factor_values, fresh.gradient.factor_values, atol=1e-8
        )
        state = again.state


def test_groups_are_even_and_complete():
    rng = np.random.default_rng(0)
    for count, size in product((1, 2, 7, 90, 1000), (10, 3_000, 2_000_000)):
        entries = rng.integers(size // 2, size, size=count).tolist()
        groups = even_groups(entries)
        np.testing.assert_array_equal(np.concatenate(groups), np.arange(count))
        sums = np.array([sum(entries[m] for m in group) for group in groups])
        assert (sums <= max(MOST_ENTRIES, LEAST_ENTRIES) + 2 * size).all()
        if sum(entries) > 100 * LEAST_ENTRIES and count > 50:
            assert len(groups) >= 8
            assert sums.max() < 2.5 * sums.mean()
    assert even_groups([]) == []
    assert [len(group) for group in even_groups([5] * 7, 3)] == [3, 3, 1]


def test_mini_batches_are_complete_and_mixed():
    for count, size in product((1, 5, 20, 90), (None, 1, 7, 200)):
        groups = mini_batches(count, size)
        assert sorted(np.concatenate(groups).tolist()) == list(range(count))
        assert len(groups) <= 20 or size is not None
        assert max(map(len, groups)) <= (size or max(1, -(-count // 20)))
    assert mini_batches(90)[0].tolist() == [0, 18, 36, 54, 72]


@both
def test_stochastic_learners_get_mini_batches(kind):
    X, Y = many(kind, 8)
    crf = kind.make("trw", l2=1.0).fit(X, Y)
    seen = []

    class Counting(ff.Adam):
        def minimize(self, problem, start, **options):
            seen.append(problem.n_parts)
            return super().minimize(problem, start, **options)

    adam = kind.make("trw", l2=1.0, learner=Counting(max_iter=100, random_state=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)
        adam.fit(X, Y)
        clone(adam).set_params(batch_size=5).fit(X, Y)
    assert adam.trace_[-1]["objective"] < 1.02 * crf.trace_[-1]["objective"]
    assert seen == [-(-len(X) // 2), -(-len(X) // 5)]


# -- learning: validation, checkpoints, warnings --------------------------------------------


@both
def test_validation_ends_the_fit_early(kind):
    X, Y = many(kind)
    held_out = kind.data(seed=9)
    learner = ff.LBFGS(patience=3)
    crf = kind.make(l2=1e-6, learner=learner).fit(X, Y, validation=held_out)
    scores = [row["validation"] for row in crf.trace_]
    assert "stopped early" in crf.status_
    assert crf.n_iter_ == int(np.argmax(scores)) + 1 + 3
    assert crf.score(*held_out) == max(scores)


@both
@pytest.mark.parametrize("objective", ["trw", "max-margin"])
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_a_fit_resumes_from_its_checkpoint(kind, objective, tmp_path):
    X, Y = many(kind)
    learner = {"trw": ff.LBFGS, "max-margin": ff.Adam}[objective]
    options = {"random_state": 0} if objective == "max-margin" else {}
    files = [tmp_path / "whole", tmp_path / "cut"]

    def fitted(max_iter, path, X=X):
        chosen = learner(max_iter=max_iter, checkpoint_every=3, tol=1e-12, **options)
        return kind.make(objective, learner=chosen).fit(X, Y, checkpoint=path)

    whole = fitted(12, files[0])
    first = fitted(6, files[1])
    assert first.n_iter_ == 6
    resumed = fitted(12, files[1])
    assert [row["objective"] for row in resumed.trace_] == [
        row["objective"] for row in whole.trace_
    ]
    np.testing.assert_array_equal(resumed.weights_, whole.weights_)
    with pytest.raises(ValueError, match="checkpoint"):
        fitted(12, files[1], X=[as_floats(x, 2.0) for x in X])


@both
def test_a_learner_that_does_not_converge_warns(kind):
    X, Y = kind.data()
    with pytest.warns(ff.ConvergenceWarning, match="stopped at max_iter=2") as caught:
        crf = kind.make(max_iter=2).fit(X, Y)
    assert caught[0].filename == __file__
    assert not crf.converged_


@both
def test_inference_that_does_not_converge_warns(kind):
    X, Y = kind.data()
    hasty = ff.Likelihood(ff.SumProduct(entropy=ff.TreeReweighted(), max_iter=2))
    with pytest.warns(ff.ConvergenceWarning, match="of the examples had not converged") as caught:
        crf = kind.make(hasty, max_iter=30).fit(X, Y)
    assert caught[0].filename == __file__
    assert crf.trace_[-1]["unconverged"] > 0
    for call in (crf.predict, crf.predict_marginals, lambda X: crf.score(X, Y)):
        with pytest.warns(ff.ConvergenceWarning, match="examples did not converge") as caught:
            call(X)
        assert caught[0].filename == __file__


# -- prediction ---------------------------------------------------------------------------


@both
def test_prediction_does_not_depend_on_company(kind):
    X, Y = many(kind)
    crf = kind.make().fit(X, Y)
    together = crf.predict_marginals(X)
    for m in (0, 3, len(X) - 1):
        np.testing.assert_allclose(crf.predict_marginals([X[m]])[0], together[m], atol=1e-6)
    assert crf.predict([]) == []
    assert crf.predict_marginals([]) == []


@both
def test_labels_are_those_of_largest_belief_or_jointly_best(kind):
    X, Y = kind.data()
    crf = kind.make("likelihood").fit(X, Y)
    for beliefs, labels in zip(crf.predict_marginals(X), crf.predict(X), strict=True):
        np.testing.assert_array_equal(beliefs.argmax(axis=-1), labels)
    crf.set_params(decode="map")
    best = crf.predict(X)
    for m, labels in enumerate(best):
        likely = crf.log_likelihood_bounds([X[m]], [labels])[0][0]
        for other in crf.sample([X[m]], 50, random_state=0)[0]:
            assert crf.log_likelihood_bounds([X[m]], [other])[1][0] <= likely + 1e-9
    with pytest.raises(ff.InvalidInputError, match="decode must be"):
        crf.set_params(decode="best").predict(X)


@both
def test_bounds_are_exact_on_small_examples_and_bracket_large_ones(kind):
    X, Y = kind.data()
    crf = kind.make("likelihood", l2=0.3).fit(X, Y)
    low, high = crf.log_likelihood_bounds(X, Y)
    assert low.shape == high.shape == (len(X),)
    np.testing.assert_allclose(low, high, atol=1e-9)
    penalty = 0.15 * float(crf.weights_ @ crf.weights_)
    assert -low.sum() + penalty == pytest.approx(crf.trace_[-1]["objective"], rel=1e-9)
    hidden = [y.copy() for y in Y]
    for y in hidden:
        y.reshape(-1)[0] = -1
    assert (crf.log_likelihood_bounds(X, hidden)[0] >= low - 1e-12).all()


def test_bounds_of_a_large_image_bracket():
    X, Y = images(sizes=((40, 40), (3, 3)), seed=1)
    crf = ff.GridCRF("pseudolikelihood", l2=1.0, batch_size=1).fit(X, Y)
    low, high = crf.log_likelihood_bounds(X, Y)
    assert low[0] < high[0] < 0
    assert low[1] == pytest.approx(high[1])


@both
def test_samples_have_the_models_marginals(kind):
    X, Y = kind.data()
    crf = kind.make("likelihood", l2=1.0).fit(X, Y)
    drawn = crf.sample(X, 4000, random_state=0)
    for samples, y, beliefs in zip(drawn, Y, crf.predict_marginals(X), strict=True):
        assert samples.shape == (4000, *y.shape)
        counted = np.stack([(samples == k).mean(axis=0) for k in range(crf.n_labels_)], axis=-1)
        np.testing.assert_allclose(counted, beliefs, atol=0.04)
    again = crf.sample(X, 4000, random_state=0)
    np.testing.assert_array_equal(drawn[-1], again[-1])
    assert crf.sample(X)[0].shape == (1, *Y[0].shape)
    with pytest.raises(ff.InvalidInputError, match="n_samples must be an integer of at least 0"):
        crf.sample(X, -1)


def test_large_images_are_sampled_by_gibbs():
    X, Y = images(sizes=((30, 30),), noise=0.3, seed=1)
    crf = ff.GridCRF("pseudolikelihood", l2=1.0).fit(X, Y)
    (samples,) = crf.sample(X, 3, random_state=0, burn_in=50)
    assert samples.shape == (3, 30, 30)
    assert np.mean(samples == Y[0]) > 0.9


# -- files --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("objective", ["trw", ff.PseudoLikelihood(), "max-margin"], ids=str)
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_a_model_comes_back_from_its_file(kind, objective, tmp_path):
    X, Y = kind.data()
    crf = kind.make(objective, max_iter=20).fit(X, Y)
    crf.save(tmp_path / "model")
    again = ff.load(tmp_path / "model")
    assert type(again) is type(crf)
    assert again.get_params() == crf.get_params()
    np.testing.assert_array_equal(again.weights_, crf.weights_)
    for first, second in zip(again.predict_marginals(X), crf.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(first, second)
    for first, second in zip(again.predict(X), crf.predict(X), strict=True):
        np.testing.assert_array_equal(first, second)
    assert again.status_ == crf.status_
    assert list(again.weight_blocks_) == list(crf.weight_blocks_)


def test_edge_features_come_back_too(tmp_path):
    for kind, options, data in (
        (KINDS["grid"], {"edge_features": [1]}, images()),
        (KINDS["graph"], {}, graphs(n_edge_features=2)),
    ):
        crf = kind.make(**options).fit(*data)
        crf.save(tmp_path / "model")
        again = ff.load(tmp_path / "model")
        for first, second in zip(again.predict(data[0]), crf.predict(data[0]), strict=True):
            np.testing.assert_array_equal(first, second)


# -- refusals -----------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y: ([], []), "X must hold at least one example, got an empty list"),
        (lambda X, Y: (X, Y[:-1]), "X and Y must have one entry for each example, got . and ."),
        (lambda X, Y: (iter(X), Y), "X must be a list of examples, got list_iterator"),
        (lambda X, Y: (X, "labels"), "Y must be a list of examples, got str"),
        (lambda X, Y: (X, [Y[0], Y[1][:1], *Y[2:]]), r"Y\[1\] must have shape"),
        (lambda X, Y: (X, [Y[0], Y[1] * 1.0, *Y[2:]]), r"Y\[1\] must hold integer labels.*float64"),
        (
            lambda X, Y: (X, [Y[0], Y[1] * 0 - 2, *Y[2:]]),
            r"Y\[1\]: labels must be at least -1.*got -2",
        ),
        (lambda X, Y: (X, [y * 0 for y in Y]), "at least two different labels.*got only label 0"),
        (
            lambda X, Y: (X, [y * 0 - 1 for y in Y]),
            "at least two different labels.*no label at all",
        ),
    ],
)
def test_bad_data_are_refused_in_a_sentence(kind, change, message):
    with pytest.raises(ff.InvalidInputError, match=message) as caught:
        kind.make().fit(*change(*kind.data()))
    assert "\n" not in str(caught.value)


@both
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2": -1.0}, "l2 must be at least 0, got -1.0"),
        ({"max_iter": 0}, "max_iter must be an integer"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"n_labels": 1}, "n_labels must be an integer of at least 2 or None, got 1"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"decode": "best"}, "decode must be"),
        ({"objective": "trv"}, "objective must be one of"),
        ({"learner": "newton"}, "learner must be"),
        ({"n_jobs": 0}, "n_jobs must not be 0"),
    ],
    ids=str,
)
def test_bad_options_are_refused(kind, options, message):
    X, Y = kind.data()
    with pytest.raises(ff.InvalidInputError, match=message):
        kind.estimator(**options).fit(X, Y)


@both
@pytest.mark.parametrize("void", [255, 5000, 2**31 - 2])
def test_a_void_label_does_not_ask_for_hundreds_of_labels(kind, void):
    X, Y = kind.data()
    marked = [y.copy() for y in Y]
    marked[1].reshape(-1)[0] = void
    with pytest.raises(ff.InvalidInputError, match=rf"got {void} and no .*ignore_label={void}"):
        kind.make().fit(X, marked)
    missing = [np.where(y == void, -1, y) for y in marked]
    ignoring = kind.make(ignore_label=void).fit(X, marked)
    plain = kind.make().fit(X, missing)
    np.testing.assert_array_equal(ignoring.weights_, plain.weights_)
    assert ignoring.score(X, marked) == plain.score(X, missing)
    bounds = ignoring.log_likelihood_bounds(X, marked), plain.log_likelihood_bounds(X, missing)
    np.testing.assert_array_equal(*bounds)


@both
def test_gaps_between_labels_need_the_number_of_labels(kind):
    X, Y = kind.data()
    shifted = [y + 1 for y in Y]
    with pytest.raises(ff.InvalidInputError, match=r"without gaps, got . and no 0: .*np\.unique"):
        kind.make().fit(X, shifted)
    n_labels = 2 + max(int(y.max()) for y in Y)
    assert kind.make(n_labels=n_labels).fit(X, shifted).n_labels_ == n_labels


@both
def test_tables_beyond_memory_are_refused_before_they_are_made(kind):
    X, Y = kind.data()
    with pytest.raises(ff.errors.TooLargeError, match=r"30000 labels need tables of .* GB"):
        kind.make(n_labels=30_000).fit(X, Y)


@both
def test_labels_beyond_the_models_are_refused(kind):
    X, Y = kind.data()
    crf = kind.make().fit(X, Y)
    more = [Y[0], Y[1] + 7, *Y[2:]]
    with pytest.raises(ff.InvalidInputError, match=r"Y\[1\]: labels must be in 0\.\."):
        crf.score(X, more)
    with pytest.raises(ff.InvalidInputError, match=r"validation: Y\[1\]: labels must be in"):
        crf.fit(X, Y, validation=(X, more))
    with pytest.raises(ff.InvalidInputError, match="validation must be a pair"):
        crf.fit(X, Y, validation=X[:1])
    with pytest.raises(ff.InvalidInputError, match=r"Y\[1\]: labels must be in 0..1 \(n_labels\)"):
        kind.make(n_labels=2).fit(X, [Y[0] * 0, *more[1:]])


@both
@pytest.mark.parametrize(
    ("first", "message"),
    [
        ([1.0, 1.0], r"sample_weight must have shape \(\d,\), .* got \(\d,\)"),
        (["heavy"], "sample_weight must be an array of real numbers"),
        ([-1.0], r"sample_weight\[0\] must be a finite number of at least 0, got -1.0"),
        ([np.nan], r"sample_weight\[0\] must be a finite number of at least 0, got nan"),
    ],
)
def test_bad_sample_weights_are_refused(kind, first, message):
    X, Y = kind.data()
    with pytest.raises(ff.InvalidInputError, match=message):
        kind.make().fit(X, Y, sample_weight=[*first, *[1.0] * (len(X) - 1)])


@both
def test_another_number_of_features_is_refused_at_prediction(kind):
    X, Y = kind.data()
    crf = kind.make().fit(X, Y)
    other, _ = kind.data(n_features=3)
    with pytest.raises(ff.InvalidInputError, match=r"X\[1\]: there must be 2 features.*got 3"):
        crf.predict([X[0], other[1]])
    with pytest.raises(ff.InvalidInputError, match="X must be a list of examples"):
        crf.predict("images")
