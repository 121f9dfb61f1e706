"""Runs of CAMEL as users have them: checkpoints, missing labels, options, estimators, files."""

from __future__ import annotations

import numpy as np
import pytest
from camel_problems import (
    SOLVERS,
    VARIANTS,
    TiedModel,
    camel,
    conditional,
    learn,
    round_ends,
)
from sklearn.base import clone

import fieldfit as ff
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.learners.camel_dual import JointDual, WeightDual
from fieldfit.learners.camel_rounds import CamelRounds
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.problem import TemplateProblem

# -- checkpoints --------------------------------------------------------------------------

#: Some steps of several rounds, and a checkpoint after every third step.
INNER = LBFGS(max_iter=12, tol=1e-4, checkpoint_every=3)
SHORT = {"max_rounds": 3, "round_tol": 1e-4, "tol": 1e-5}


class Killed(Exception):
    """Stands for a kill: nothing is done about it."""


class Clock:
    """Counts evaluations of all duals, and raises an error at the one that is asked for."""

    def __init__(self, monkeypatch):
        self.n_calls, self.last, self.error = 0, np.inf, Killed
        for dual in (JointDual, WeightDual):
            monkeypatch.setattr(dual, "evaluate", self._counted(dual.evaluate))

    def _counted(self, evaluate):
        def counted(dual, weights):
            self.n_calls += 1
            if self.n_calls >= self.last:
                raise self.error
            return evaluate(dual, weights)

        return counted

    def wind(self, n_calls, error=Killed):
        self.n_calls, self.last, self.error = 0, n_calls, error


def small_run(solver, checkpoint=None, variant="cccp", l1=0.0):
    problem = conditional(ff.Camel(variant, solver=solver, **SHORT), n_examples=4, n_parts=2)
    return learn(problem, l2=0.1, l1=l1, inner=INNER, checkpoint=checkpoint)


def assert_same_run(fit, expected):
    np.testing.assert_array_equal(fit.weights, expected.weights)
    assert (fit.n_iter, fit.converged, fit.status) == (
        expected.n_iter, expected.converged, expected.status,
    )  # fmt: skip
    for row, wanted in zip(fit.trace, expected.trace, strict=True):
        assert row | {"seconds": 0.0} == wanted | {"seconds": 0.0}


@pytest.mark.parametrize("variant", ["cccp", "cccp-empirical"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_killed_runs_end_with_the_same_bits(solver, variant, tmp_path, monkeypatch):
    """Killed in every stage, and resumed; the double loop is warm-started from round to round."""
    expected = small_run(solver, tmp_path / "straight", variant)
    assert {"piecewise", "round 0", "round 1", "round 2"} <= {
        row["stage"] for row in expected.trace
    }
    clock, n_kills = Clock(monkeypatch), 0
    while True:
        clock.wind(5 + n_kills % 4)
        try:
            fit = small_run(solver, tmp_path / "killed", variant)
            break
        except Killed:
            n_kills += 1
    assert n_kills >= 8
    assert_same_run(fit, expected)


@pytest.mark.parametrize("solver", SOLVERS)
def test_interrupts_leave_a_run_that_can_go_on(solver, tmp_path, monkeypatch):
    """At the very start, in a search, and where a round gives way to the next one."""
    expected = small_run(solver, tmp_path / "straight")
    clock = Clock(monkeypatch)
    for n_calls in (1, 2, 6, *range(13, 18), 30):
        path = tmp_path / f"file {n_calls}"
        clock.wind(n_calls, KeyboardInterrupt)
        interrupted = small_run(solver, path)
        assert "interrupted after" in interrupted.status
        assert np.isfinite(interrupted.weights).all()
        clock.wind(np.inf)
        resumed = small_run(solver, path)
        assert "stopped at max_rounds=3" in resumed.status
        if solver == "joint":  # without warm starts even the bits are those of a run left alone
            assert_same_run(resumed, expected)
        np.testing.assert_allclose(resumed.weights, expected.weights, rtol=0, atol=1e-3)


def test_a_finished_run_returns_its_result_at_once(tmp_path, monkeypatch):
    expected = small_run("joint", tmp_path / "file")
    Clock(monkeypatch).wind(1)
    assert_same_run(small_run("joint", tmp_path / "file"), expected)


def test_checkpoints_of_other_runs_are_refused(tmp_path):
    path = tmp_path / "file"
    small_run("joint", path)
    with pytest.raises(InvalidInputError, match="the digest of the data"):
        learn(
            conditional(ff.Camel("cccp", solver="joint", **SHORT), seed=5, n_examples=4, n_parts=2),
            l2=0.1, inner=INNER, checkpoint=path,
        )  # fmt: skip
    with pytest.raises(InvalidInputError, match="objective is"):
        small_run("double-loop", path)
    with pytest.raises(InvalidInputError, match="objective is"):
        small_run("joint", path, "camel0")
    with pytest.raises(InvalidInputError, match=r"l1 is 0\.5 here"):
        small_run("joint", path, l1=0.5)


@pytest.mark.parametrize("make", [ff.IsingModel, ff.PottsModel])
def test_checkpoints_of_other_samples_are_refused(make, tmp_path):
    first, second = binary_samples(seed=0), binary_samples(seed=1)
    model = make("camel0", l2=0.1).fit(first, checkpoint=tmp_path / "file")
    again = make("camel0", l2=0.1).fit(first, checkpoint=tmp_path / "file")
    np.testing.assert_array_equal(again.weights_, model.weights_)
    with pytest.raises(InvalidInputError, match="the digest of the data"):
        make("camel0", l2=0.1).fit(second, checkpoint=tmp_path / "file")


# -- rounds -------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_limits_are_said(solver):
    fit = learn(conditional(ff.Camel(solver=solver, max_rounds=2, round_tol=1e-12)), l2=0.1)
    assert not fit.converged
    assert "stopped at max_rounds=2 without convergence: beliefs still moved by" in fit.status
    assert len(round_ends(fit.trace)) == 2
    fit = learn(
        conditional(ff.Camel("camel0", solver=solver)), l2=0.1, inner=LBFGS(max_iter=3, tol=1e-12)
    )
    assert (fit.converged, fit.n_iter) == (False, 6)
    assert fit.status.startswith("the last round stopped at max_iter=3")


def test_a_round_that_is_cut_short_is_no_convergence():
    """Beliefs that stay because nothing was done are not a fixed point."""
    problem = conditional(ff.Camel(round_tol=10.0, max_rounds=5))
    fit = learn(problem, l2=0.1, inner=LBFGS(max_iter=2, tol=1e-12))
    assert not fit.converged
    assert fit.status.startswith("stopped without convergence: beliefs moved by")
    assert "stopped at max_iter=2" in fit.status


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_trace_tells_stages_and_rounds(variant):
    fit = learn(conditional(ff.Camel(variant)), l2=0.1, inner=LBFGS())
    assert fit.converged
    stages = [row["stage"] for row in fit.trace]
    order = list(dict.fromkeys(stages))
    assert order == ["piecewise", *(f"round {n}" for n in range(len(order) - 1))]
    assert stages == sorted(stages, key=order.index)
    for row in fit.trace:
        assert {"objective", "gradient_norm", "unconverged", "seconds", "stage"} <= set(row)
    ends = round_ends(fit.trace)
    assert len(ends) == len(order) - 1
    assert all("change" in row for row in ends[variant != "cccp-empirical" :])
    if variant == "camel0":
        assert len(ends) == 1
        assert "change" not in ends[0]
    else:
        assert ends[-1]["change"] <= 1e-3 < ends[-2]["change"]


def test_a_given_start_skips_piecewise_training():
    problem = conditional(camel("camel0"))
    whole = learn(problem, l2=0.1)
    given = conditional(camel("camel0", start="given"))
    fit = learn(given, l2=0.1)
    assert {row["stage"] for row in fit.trace} == {"round 0"}
    np.testing.assert_allclose(fit.weights, whole.weights, rtol=0, atol=1e-5)


def test_smoothing_is_a_choice_of_the_first_tangent_only():
    ends = []
    for smoothing in (0.02, 0.1, 1.0):
        fit = learn(TiedModel(camel("cccp-empirical", smoothing=smoothing)), l2=0.1)
        ends.append((fit.weights, round_ends(fit.trace)[0]["objective"]))
    for weights, _ in ends[1:]:
        np.testing.assert_allclose(weights, ends[0][0], rtol=0, atol=1e-4)
    # the tangent at uniform beliefs is flat: each of the entropies is counted as log 2
    problem = TiedModel(camel("camel0"))
    lowest = learn(problem, l2=0.1).trace[-1]["objective"]
    n_entropies = int(np.sum(problem.graph.degrees - 1))
    expected = lowest - problem.n_samples * n_entropies * np.log(2)
    assert ends[2][1] == pytest.approx(expected, rel=1e-9)
    assert len({round(value, 3) for _, value in ends}) == 3


def test_an_l1_penalty_makes_the_same_weights_exactly_zero():
    runs = {solver: learn(conditional(camel("cccp", solver)), l2=0.1, l1=1.0) for solver in SOLVERS}
    joint, double = (runs[solver].weights for solver in SOLVERS)
    assert 3 < np.sum(joint == 0.0) < len(joint) - 3
    np.testing.assert_array_equal(joint == 0.0, double == 0.0)
    np.testing.assert_allclose(joint, double, rtol=0, atol=1e-5)
    joint, double = (round_ends(run.trace)[-1]["objective"] for run in runs.values())
    assert joint == pytest.approx(double, rel=1e-9)


def test_examples_of_weight_zero_do_not_count():
    problem = conditional(camel("cccp"), n_examples=4)
    (part,) = problem.parts
    part.example_weights[1] = 0.0
    reduced = learn(problem, l2=0.1)
    rows = [0, 2, 3]
    kept = conditional(camel("cccp"), n_examples=4, n_parts=4)
    without = TemplateProblem(problem.objective, [kept.parts[row] for row in rows])
    np.testing.assert_allclose(reduced.weights, learn(without, l2=0.1).weights, rtol=0, atol=1e-5)


# -- the objective at given potentials ----------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_learned_weights_minimise_the_objective(variant):
    """``B(th) - <th, y>`` of the same object: its value and a gradient of zero at the end."""
    problem = conditional(camel(variant, tol=1e-10))
    fit = learn(problem, l2=0.1)
    found = problem.evaluate(fit.weights)
    gradient = found.gradient + 0.1 * fit.weights
    np.testing.assert_allclose(gradient, 0.0, atol=1e-4)
    value = found.value + 0.05 * fit.weights @ fit.weights
    last = round_ends(fit.trace)[-1]
    assert value == pytest.approx(last["objective"], rel=1e-7)
    if variant == "cccp":
        predicted = problem.objective.prediction(problem.parts[0].batch.graph)
        assert predicted == ff.SumProduct(schedule="residual", tol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "cccp0"}, "variant must be one of"),
        ({"solver": "lbfgs"}, "solver must be one of"),
        ({"sides": 2}, "sides must be one of"),
        ({"start": None}, "start must be one of"),
        ({"smoothing": 0.0}, r"smoothing must be in \(0, 1\], got 0.0"),
        ({"smoothing": float("nan")}, r"smoothing must be finite and in \(0, 1\], got nan"),
        ({"round_tol": 0.0}, "round_tol must be positive, got 0.0"),
        ({"tol": -1e-3}, "tol must be positive, got -0.001"),
        ({"max_rounds": 0}, "max_rounds must be an integer of at least 1, got 0"),
        ({"max_rounds": 2.5}, "max_rounds must be an integer of at least 1, got 2.5"),
        ({"max_rounds": True}, "max_rounds must be an integer of at least 1, got True"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InvalidInputError, match=message):
        ff.Camel(**options)


def test_numpy_integers_are_integers():
    assert ff.Camel(max_rounds=np.int64(3)).max_rounds == 3


# -- estimators ---------------------------------------------------------------------------


def sentences(n_sequences=8, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(int(rng.integers(3, 7)), 2)) for _ in range(n_sequences)]
    return X, [(x[:, 0] + 0.7 * rng.normal(size=len(x)) > 0).astype(int).tolist() for x in X]


def pictures(n=5, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(3, 4, 2)) for _ in range(n)]
    return X, [(x[:, :, 0] + 0.7 * rng.normal(size=(3, 4)) > 0).astype(int) for x in X]


def networks(n=8, seed=0):
    rng = np.random.default_rng(seed)
    edges = np.array([[0, 1], [1, 2], [2, 0], [2, 3]])
    X = [(rng.normal(size=(4, 2)), edges) for _ in range(n)]
    return X, [(x[:, 0] + 0.7 * rng.normal(size=4) > 0).astype(int) for x, _ in X]


def binary_samples(n=40, seed=0):
    rng = np.random.default_rng(seed)
    samples = rng.integers(0, 2, (n, 4))
    same = rng.random(n) < 0.5
    samples[same, 1] = samples[same, 0]
    return samples


def first_and_last(x):
    return [(0, len(x) - 1)]


ESTIMATORS = {
    "chain": (ff.ChainCRF, {}, sentences),
    "skip-chain": (ff.SkipChainCRF, {"skip_edges": first_and_last}, sentences),
    "grid": (ff.GridCRF, {}, pictures),
    "graph": (ff.GraphCRF, {}, networks),
    "ising": (ff.IsingModel, {}, lambda: (binary_samples(),)),
    "potts": (ff.PottsModel, {}, lambda: (binary_samples(),)),
}


@pytest.mark.parametrize("name", ["camel0", "camel", "camel-empirical"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_estimator_knows_the_names(kind, name):
    make, options, data = ESTIMATORS[kind]
    given = data()
    model = make(name, l2=0.5, **options).fit(*given)
    assert model.converged_
    assert model.trace_[0]["stage"] == "piecewise"
    assert len(round_ends(model.trace_)) >= (1 if name == "camel0" else 2)
    variant = {"camel0": "camel0", "camel": "cccp", "camel-empirical": "cccp-empirical"}[name]
    other = make(ff.Camel(variant, solver="joint"), l2=0.5, **options).fit(*given)
    np.testing.assert_allclose(model.weights_, other.weights_, rtol=0, atol=2e-2)
    assert np.isfinite(model.score(*given))


@pytest.mark.parametrize("kind", ["chain", "grid", "graph"])
def test_threads_do_not_change_a_bit(kind):
    make, options, data = ESTIMATORS[kind]
    batches = {} if kind == "chain" else {"batch_size": 2}
    fitted = [
        make(
            ff.Camel(solver=solver, round_tol=0.1), l2=1.0, n_jobs=n_jobs, **options, **batches
        ).fit(*data())
        for solver in SOLVERS
        for n_jobs in (1, 2)
    ]
    for one, two in (fitted[:2], fitted[2:]):
        np.testing.assert_array_equal(one.weights_, two.weights_)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_missing_labels_are_learned_with_inference_inside(kind):
    """No rounds then: L-BFGS on ``B(th) - B(th; known labels)``, down to a gradient of zero."""
    make, options, data = ESTIMATORS[kind]
    given = data()
    if len(given) == 1:
        samples = given[0].astype(float)
        samples[::5, 2] = np.nan
        given = (samples,)
    else:
        X, Y = given
        Y = [np.array(y) for y in Y]
        Y[0].flat[1] = -1
        given = (X, [y.tolist() for y in Y] if "chain" in kind else Y)
    for objective in ("camel0", "camel"):
        model = make(objective, l2=0.5, tol=1e-5, **options).fit(*given)
        assert model.converged_
        assert all("stage" not in row for row in model.trace_)
        assert model.trace_[-1]["gradient_norm"] < 1e-3  # tol times the number of examples
        assert model.trace_[-1]["unconverged"] == 0.0


def test_only_lbfgs_can_run_the_rounds():
    X, Y = networks()
    for learner in ("adam", "sgd", ff.Adam(), CamelRounds()):
        with pytest.raises(InvalidInputError, match="learner must be None, 'lbfgs' or an LBFGS"):
            ff.GraphCRF("camel", learner=learner).fit(X, Y)
    ff.GraphCRF("camel", learner=LBFGS(history=5), l2=0.1).fit(X, Y)
    # where labels are missing there are no rounds, and any learner will do
    Y[0][0] = -1
    adam = ff.Adam(max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        ff.GraphCRF("camel0", learner=adam, l2=0.1).fit(X, Y)


def test_runs_without_convergence_warn():
    X, Y = networks()
    with pytest.warns(ConvergenceWarning, match="stopped at max_rounds=1 without convergence"):
        model = ff.GraphCRF(ff.Camel(max_rounds=1), l2=0.1).fit(X, Y)
    assert not model.converged_


def test_validation_can_end_the_rounds():
    X, Y = networks(12)
    model = ff.GraphCRF("camel", l2=0.1).fit(X[:8], Y[:8], validation=(X[8:], Y[8:]))
    assert "best validation score" in model.status_
    assert all("validation" in row for row in model.trace_)


@pytest.mark.parametrize("kind", ["grid", "potts"])
def test_files_and_clones(kind, tmp_path):
    make, options, data = ESTIMATORS[kind]
    objective = ff.Camel(
        "cccp-empirical", solver="double-loop", sides="one", smoothing=0.2, round_tol=1e-2
    )
    model = make(objective, l2=0.1, **options).fit(*data())
    model.save(tmp_path / "model")
    loaded = ff.load(tmp_path / "model")
    assert loaded.objective == objective == clone(model).objective
    np.testing.assert_array_equal(loaded.weights_, model.weights_)
    assert loaded.trace_ == model.trace_
    assert loaded.score(*data()) == model.score(*data())
