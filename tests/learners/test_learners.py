"""L-BFGS, OWL-QN, Adam, SGD: optima against independent solvers, stopping, trace, interrupts."""

from __future__ import annotations

import re

import numpy as np
import pytest
from learning import Failing, Function, Logistic, Remembering, proximal_gradient
from scipy.optimize import minimize, rosen, rosen_der
from scipy.special import expit, log_expit, logsumexp, softmax

from fieldfit.errors import InvalidInputError
from fieldfit.learners import loop
from fieldfit.learners.base import Penalty, set_pseudo_gradient
from fieldfit.learners.lbfgs import LBFGS, CorrectionPairs
from fieldfit.learners.line_search import slope_search, wolfe_search
from fieldfit.learners.loop import time_limit
from fieldfit.learners.problem import Problem, ProblemValue
from fieldfit.learners.registry import make_learner
from fieldfit.learners.stochastic import SGD, Adam

# -- smooth functions ---------------------------------------------------------------------


def logistic(n_examples, n_weights, l2, scales=1.0, common=0.0, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_examples, n_weights)) + common * rng.normal(size=(n_examples, 1))
    features *= scales
    signs = np.where(rng.random(n_examples) < expit(features @ rng.normal(size=n_weights)), 1, -1)

    def function(weights):
        margins = signs * (features @ weights)
        value = -log_expit(margins).sum() + 0.5 * l2 * weights @ weights
        return value, -features.T @ (signs * expit(-margins)) + l2 * weights

    return function, np.zeros(n_weights)


def multinomial(n_examples, n_features, n_labels, l2, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_examples, n_features))
    labels = rng.integers(0, n_labels, n_examples)
    rows = np.arange(n_examples)
    features[rows, labels % n_features] += 1.0

    def function(weights):
        scores = features @ weights.reshape(n_features, n_labels)
        value = (logsumexp(scores, axis=1) - scores[rows, labels]).sum()
        beliefs = softmax(scores, axis=1)
        beliefs[rows, labels] -= 1.0
        gradient = (features.T @ beliefs).ravel() + l2 * weights
        return value + 0.5 * l2 * weights @ weights, gradient

    return function, np.zeros(n_features * n_labels)


def quadratic(n_weights, condition, seed=0):
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(n_weights, n_weights)))
    matrix = (basis * np.geomspace(1.0, condition, n_weights)) @ basis.T
    vector = rng.normal(size=n_weights)

    def function(weights):
        return 0.5 * weights @ matrix @ weights - vector @ weights, matrix @ weights - vector

    return function, np.zeros(n_weights)


def poisson(n_examples, n_weights, seed=0):
    rng = np.random.default_rng(seed)
    features = 0.3 * rng.normal(size=(n_examples, n_weights))
    counts = rng.poisson(np.exp(features @ rng.normal(size=n_weights)))

    def function(weights):
        scores = features @ weights
        with np.errstate(over="ignore"):
            rates = np.exp(scores)
        value = (rates - counts * scores).sum() + 0.05 * weights @ weights
        return value, features.T @ (rates - counts) + 0.1 * weights

    return function, np.zeros(n_weights)


def rosenbrock(start):
    return lambda weights: (rosen(weights), rosen_der(weights)), np.array(start, dtype=float)


SMOOTH = {
    "logistic": logistic(500, 20, 1.0),
    "logistic, hardly penalised": logistic(300, 30, 1e-2),
    "logistic, badly scaled": logistic(200, 20, 1e-2, scales=np.geomspace(0.3, 3.0, 20)),
    "logistic, correlated": logistic(300, 60, 0.1, common=3.0),
    "logistic, large": logistic(4000, 80, 1.0),
    "multinomial": multinomial(800, 30, 5, 0.1),
    "multinomial, large": multinomial(800, 40, 6, 1.0),
    "Rosenbrock 2": rosenbrock([-1.2, 1.0]),
    "Rosenbrock 10": rosenbrock(np.zeros(10)),
    "Rosenbrock 20": rosenbrock(np.tile([-1.2, 1.0], 10)),
    "quadratic 1e2": quadratic(100, 1e2),
    "quadratic 1e4": quadratic(30, 1e4),
    "Poisson": poisson(400, 20),
}


def evaluations_to(values, target):
    return next(count for count, value in enumerate(values, start=1) if value <= target)


@pytest.mark.parametrize("name", SMOOTH)
def test_lbfgs_needs_as_few_evaluations_as_scipy(name):
    function, start = SMOOTH[name]
    ours, theirs = Function(function, len(start)), Function(function, len(start))
    fit = LBFGS(max_iter=3000, tol=1e-9, value_tol=0.0).minimize(ours, start)

    def counted(weights):
        found = theirs.evaluate(weights)
        return found.value, found.gradient

    options = {"maxcor": 10, "ftol": 0.0, "gtol": 1e-9, "maxiter": 3000, "maxfun": 10_000}
    answer = minimize(counted, start, jac=True, method="L-BFGS-B", options=options)
    assert fit.converged, fit.status
    np.testing.assert_allclose(fit.weights, answer.x, rtol=1e-5, atol=1e-5)
    best, first = min(ours.values + theirs.values), ours.values[0]
    for accuracy in (1e-3, 1e-6, 1e-9):
        target = best + accuracy * (first - best)
        ratio = evaluations_to(ours.values, target) / evaluations_to(theirs.values, target)
        assert ratio <= 1.3, f"{ratio:.2f} times scipy's evaluations to {accuracy}"


def test_an_iteration_is_one_evaluation():
    function, start = SMOOTH["multinomial"]
    problem = Function(function, len(start))
    fit = LBFGS().minimize(problem, start)
    assert fit.converged
    assert len(problem.values) <= fit.n_iter + 2
    assert len(fit.trace) == fit.n_iter


def test_two_loop_recursion_is_that_of_bfgs():
    """Against the recursion for the dense inverse Hessian, with pairs going round the circle."""
    rng = np.random.default_rng(0)
    matrix = np.diag(rng.uniform(0.5, 5.0, 6))
    pairs = CorrectionPairs(3, 6)
    kept = []
    for _ in range(7):
        step = rng.normal(size=6)
        assert pairs.add(step, matrix @ step)
        kept = [*kept[-2:], (step, matrix @ step)]
    step, change = kept[-1]
    inverse = np.eye(6) * (step @ change) / (change @ change)
    for step, change in kept:
        left = np.eye(6) - np.outer(step, change) / (step @ change)
        inverse = left @ inverse @ left.T + np.outer(step, step) / (step @ change)
    vector = rng.normal(size=6)
    product = vector.copy()
    pairs.multiply(product)
    np.testing.assert_allclose(product, inverse @ vector, rtol=1e-12)
    assert not pairs.add(step, -change)
    np.testing.assert_array_equal(pairs.steps[pairs.newest], kept[-1][0])


@pytest.mark.parametrize("step", [1e-6, 1e-2, 1.0, 50.0, 1e5])
@pytest.mark.parametrize(
    "line",
    [
        (lambda t: (t - 2.0) ** 2, lambda t: 2.0 * (t - 2.0)),
        (lambda t: t**4 - 8.0 * t, lambda t: 4.0 * t**3 - 8.0),
        (lambda t: -t / (t**2 + 2.0), lambda t: (t**2 - 2.0) / (t**2 + 2.0) ** 2),
        (
            lambda t: -np.log(3.0 - t) - 2.0 * t if t < 3.0 else np.nan,
            lambda t: 1.0 / (3.0 - t) - 2.0,
        ),
    ],
    ids=["parabola", "quartic", "valley", "barrier"],
)
def test_line_search_meets_the_wolfe_conditions(line, step):
    value, slope = line
    steps = []

    def evaluate(step):
        steps.append(step)
        with np.errstate(all="ignore"):
            return value(step), slope(step)

    search = wolfe_search(evaluate, value(0.0), slope(0.0), step, noise=0.0)
    assert search.is_good
    assert steps[-1] == search.step
    assert value(search.step) <= value(0.0) + 1e-4 * search.step * slope(0.0)
    assert abs(slope(search.step)) <= 0.9 * abs(slope(0.0))
    assert len(steps) <= 20


# -- fields that are no gradients ---------------------------------------------------------


class Rotated(Problem):
    """A strongly monotone field that is not the gradient of its (useless) value."""

    n_weights, n_parts, is_conservative = 4, 1, False

    def __init__(self):
        rng = np.random.default_rng(3)
        turned = rng.normal(size=(4, 4))
        self.matrix = np.diag([1.0, 2.0, 5.0, 9.0]) + 0.2 * (turned - turned.T)
        self.zero = rng.normal(size=4)
        self.n_evaluations = 0

    def evaluate(self, weights):
        self.n_evaluations += 1
        away = weights - self.zero
        field = self.matrix @ away + 0.1 * away**3
        return ProblemValue(float(self.n_evaluations), field, 0, 1)

    def evaluate_part(self, weights, part):
        return self.evaluate(weights)


def test_a_field_without_a_function_is_led_to_its_zero():
    """Values rise with every evaluation; only slopes are looked at."""
    problem = Rotated()
    fit = LBFGS(tol=1e-9, value_tol=0.0).minimize(problem, np.zeros(4))
    assert fit.converged, fit.status
    np.testing.assert_allclose(fit.weights, problem.zero, atol=1e-8)


def test_by_values_the_same_field_would_be_given_up():
    problem = Rotated()
    problem.is_conservative = True
    fit = LBFGS(tol=1e-9, value_tol=0.0).minimize(problem, np.zeros(4))
    assert not fit.converged


@pytest.mark.parametrize("first", [1e-6, 1e-2, 1.0, 30.0, 1e6])
@pytest.mark.parametrize(
    "slope",
    [
        lambda t: t - 3.0,
        lambda t: np.tanh(t - 5.0) - 0.01,
        lambda t: 1.0 - 2.0 / (1.0 + t) ** 2,
        lambda t: np.nan if t > 40.0 else t - 3.0,
    ],
)
def test_slope_search(slope, first):
    search = slope_search(lambda step: (0.0, float(slope(step))), float(slope(0.0)), first)
    assert search.is_good
    assert abs(slope(search.step)) <= 0.9 * abs(slope(0.0))


def test_slope_search_stops_before_a_jump():
    search = slope_search(lambda step: (0.0, -1.0 if step < 2.5 else 3.0), -1.0, 1.0)
    assert search.is_good
    assert 2.2 < search.step < 2.5
    from_the_start = slope_search(lambda step: (0.0, 3.0), -1.0, 1.0)
    assert not from_the_start.is_good


def test_slope_search_gives_up_on_a_constant_slope():
    search = slope_search(lambda step: (0.0, -1.0), -1.0, 1.0)
    assert not search.is_good


class Drawn(Problem):
    """A gradient with noise, and no value."""

    n_weights, n_parts, is_smooth, is_conservative = 3, 5, False, False

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.zero = np.array([1.0, -2.0, 0.5])

    def evaluate_part(self, weights, part):
        noise = self.rng.normal(scale=0.5, size=3)
        return ProblemValue(None, 4.0 * (weights - self.zero) + noise, 0, 4)

    def evaluate(self, weights):
        return ProblemValue(None, 20.0 * (weights - self.zero), 0, 20)


def test_without_a_value_the_weights_must_come_to_rest():
    fit = Adam(max_iter=300, random_state=0).minimize(Drawn(), np.zeros(3))
    assert fit.converged, fit.status
    assert "weights moved by no more than" in fit.status
    assert fit.n_iter < 300
    assert all(row["objective"] is None for row in fit.trace)
    np.testing.assert_allclose(fit.weights, Drawn().zero, atol=0.05)
    short = Adam(max_iter=20, random_state=0).minimize(Drawn(), np.zeros(3))
    assert not short.converged


# -- penalties ----------------------------------------------------------------------------


@pytest.mark.parametrize("l2", [0.0, 0.5])
@pytest.mark.parametrize("l1", [0.3, 3.0, 15.0])
def test_owlqn_against_proximal_gradient(l1, l2):
    problem = Logistic(n_examples=300, n_weights=25, seed=1)
    fit = LBFGS(tol=1e-10).minimize(problem, np.zeros(25), penalty=Penalty(l2=l2, l1=l1))
    expected = proximal_gradient(problem, l1, l2)
    assert fit.converged, fit.status
    np.testing.assert_allclose(fit.weights, expected, atol=1e-6)
    np.testing.assert_array_equal(fit.weights == 0.0, expected == 0.0)
    assert l1 < 1 or (expected == 0).any()


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_owlqn_with_a_penalty_for_each_weight(l2):
    problem = Logistic(n_examples=300, n_weights=25, seed=1)
    l1 = np.where(np.arange(25) % 3 == 0, 0.0, 10.0)
    fit = LBFGS(tol=1e-10).minimize(problem, np.zeros(25), penalty=Penalty(l2=l2, l1=l1))
    expected = proximal_gradient(problem, l1, l2)
    assert fit.converged, fit.status
    np.testing.assert_allclose(fit.weights, expected, atol=1e-6)
    assert (fit.weights[l1 == 0.0] != 0.0).all()
    assert (fit.weights[l1 > 0.0] == 0.0).any()


def test_owlqn_from_another_orthant():
    problem = Logistic(seed=2)
    start = 5.0 * np.random.default_rng(0).normal(size=problem.n_weights)
    penalty = Penalty(l1=2.0)
    fit = LBFGS(tol=1e-10).minimize(problem, start, penalty=penalty)
    again = LBFGS(tol=1e-10).minimize(problem, np.zeros(problem.n_weights), penalty=penalty)
    np.testing.assert_allclose(fit.weights, again.weights, atol=1e-6)


def test_pseudo_gradient_is_the_steepest_one_sided_derivative():
    rng = np.random.default_rng(0)
    weights = np.where(rng.random(200) < 0.5, 0.0, rng.normal(size=200))
    gradient = rng.normal(size=200)
    found = np.empty(200)
    set_pseudo_gradient(weights, gradient, 0.7, out=found)
    for index in range(200):
        up = gradient[index] + 0.7 * (1.0 if weights[index] >= 0 else -1.0)
        down = -gradient[index] + 0.7 * (1.0 if weights[index] <= 0 else -1.0)
        expected = up if up < 0 else -down if down < 0 else 0.0
        assert found[index] == pytest.approx(expected, abs=1e-15)


def test_l2_may_differ_between_weights():
    problem = Logistic()
    l2 = np.geomspace(1e-2, 1e2, problem.n_weights)
    fit = LBFGS(tol=1e-9).minimize(problem, np.zeros(problem.n_weights), penalty=Penalty(l2=l2))
    gradient = problem.evaluate(fit.weights).gradient + l2 * fit.weights
    assert np.abs(gradient).max() < 1e-5
    objective = problem.evaluate(fit.weights).value + 0.5 * (l2 * fit.weights**2).sum()
    assert fit.trace[-1]["objective"] == pytest.approx(objective, rel=1e-14)


@pytest.mark.parametrize(
    ("penalty", "message"),
    [
        ({"l2": -1.0}, "l2 must be finite and at least 0, got -1.0"),
        ({"l2": np.array([1.0, 2.0])}, r"l2 must be a number or an array of shape \(12,\)"),
        ({"l2": np.nan}, "l2 must be finite"),
        ({"l1": -0.5}, "l1 must be finite and at least 0, got -0.5"),
    ],
)
@pytest.mark.parametrize("learner", [LBFGS(), Adam()], ids=["lbfgs", "adam"])
def test_bad_penalties_are_refused(learner, penalty, message):
    with pytest.raises(InvalidInputError, match=message):
        learner.minimize(Logistic(), np.zeros(12), penalty=Penalty(**penalty))


# -- accuracy of values, failure ----------------------------------------------------------


@pytest.mark.parametrize("noise", [1e-12, 1e-10, 1e-9])
@pytest.mark.parametrize("l1", [0.0, 2.0])
def test_values_that_agree_to_some_digits(noise, l1):
    rng = np.random.default_rng(0)
    problem = Logistic(n_examples=2000, n_weights=20)

    def inexact(weights):
        exact = problem.evaluate(weights)
        value = exact.value * (1.0 + noise * rng.normal())
        return value, exact.gradient + 1e3 * noise * rng.normal(size=20)

    noisy = Function(inexact, 20)
    fit = LBFGS(tol=1e-9).minimize(noisy, np.zeros(20), penalty=Penalty(l2=1.0, l1=l1))
    exact = LBFGS(tol=1e-9).minimize(problem, np.zeros(20), penalty=Penalty(l2=1.0, l1=l1))
    assert fit.converged, fit.status
    assert len(noisy.values) < 100
    np.testing.assert_allclose(fit.weights, exact.weights, atol=1e-4)


def test_points_that_are_not_finite_are_avoided():
    """A barrier at 1, beyond which there is NaN; the minimum lies close to it."""
    seen = []

    def barrier(weights):
        with np.errstate(all="ignore"):
            gap = np.where(weights < 1.0, 1.0 - weights, np.nan)
            value = float((-1e-3 * np.log(gap) - 3.0 * weights).sum())
            seen.append(value)
            return value, 1e-3 / gap - 3.0

    for learner in (LBFGS(tol=1e-9), Adam(step=0.9, max_iter=300)):
        fit = learner.minimize(Function(barrier, 3), np.zeros(3))
        assert np.isfinite(fit.weights).all()
        accuracy = 1e-8 if isinstance(learner, LBFGS) else 1e-2
        np.testing.assert_allclose(fit.weights, 1.0 - 1e-3 / 3.0, atol=accuracy)
        assert all(row["objective"] is None or np.isfinite(row["objective"]) for row in fit.trace)
    assert np.isnan(seen).any()


class Sticking(Problem):
    """A parabola whose inference, once away from the start, keeps to a worse fixed point."""

    n_weights, n_parts = 2, 1

    def __init__(self, height):
        self.height, self.first = height, None

    def evaluate(self, weights):
        away = weights - [1.0, 2.0]
        self.first = weights.copy() if self.first is None else self.first
        extra = 0.0 if np.array_equal(weights, self.first) else self.height
        return ProblemValue(0.5 * float(away @ away) + extra, away, 0, 1)

    def evaluate_part(self, weights, part):
        return self.evaluate(weights)

    def reset_warm_start(self):
        self.first = None


def test_values_of_another_branch_lead_to_a_fresh_start():
    fit = LBFGS(tol=1e-8).minimize(Sticking(100.0), np.array([5.0, -7.0]))
    assert fit.converged, fit.status
    assert fit.trace[-1]["restarts"] >= 1
    assert "started afresh" in fit.status
    np.testing.assert_allclose(fit.weights, [1.0, 2.0], atol=1e-6)
    smooth = LBFGS(tol=1e-8).minimize(Sticking(0.0), np.array([5.0, -7.0]))
    assert "restarts" not in smooth.trace[-1]


@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_a_wrong_gradient_is_noticed(l1):
    problem = Function(lambda weights: (float(weights @ weights), -2.0 * weights - 1.0), 3)
    fit = LBFGS().minimize(problem, np.ones(3), penalty=Penalty(l1=l1))
    assert not fit.converged
    assert "no step along the gradient lowers the objective" in fit.status


def test_start_is_checked_and_kept():
    problem = Logistic()
    with pytest.raises(InvalidInputError, match=r"start must have shape \(12,\), got \(3,\)"):
        LBFGS().minimize(problem, np.zeros(3))
    with pytest.raises(InvalidInputError, match="start must be finite, got NaN"):
        Adam().minimize(problem, np.full(12, np.nan))
    infinite = Function(lambda weights: (np.inf, weights), 2)
    for learner in (LBFGS(), Adam(), SGD()):
        with pytest.raises(InvalidInputError, match="start must have a finite objective"):
            learner.minimize(infinite, np.zeros(2))
    start = np.zeros(12)
    LBFGS().minimize(problem, start)
    assert not start.any()


def test_an_optimal_start_is_returned():
    function, start = quadratic(5, 10.0)
    fit = LBFGS(tol=1e-10).minimize(Function(function, 5), start)
    again = LBFGS(tol=1e-8).minimize(Function(function, 5), fit.weights)
    assert again.n_iter == 0
    assert again.converged
    assert "start is optimal" in again.status
    np.testing.assert_array_equal(again.weights, fit.weights)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iter": -1}, "max_iter must be an integer of at least 0, got -1"),
        ({"max_iter": 2.5}, "max_iter must be an integer"),
        ({"patience": 0}, "patience must be an integer of at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be an integer of at least 1"),
        ({"tol": -1.0}, "tol must be at least 0"),
    ],
)
@pytest.mark.parametrize("kind", [LBFGS, Adam, SGD])
def test_options_are_checked(kind, options, message):
    with pytest.raises(InvalidInputError, match=message):
        kind(**options)


def test_further_options_are_checked():
    with pytest.raises(InvalidInputError, match="history must be an integer of at least 1"):
        LBFGS(history=0)
    with pytest.raises(InvalidInputError, match="value_tol must be at least 0"):
        LBFGS(value_tol=-1.0)
    with pytest.raises(InvalidInputError, match="step must be positive or None"):
        SGD(step=0.0)
    with pytest.raises(InvalidInputError, match=r"beta2 must be in \[0, 1\)"):
        Adam(beta2=1.0)


# -- stopping, trace, progress ------------------------------------------------------------


def test_the_gradient_is_measured_per_example():
    function, start = quadratic(10, 100.0)
    few = LBFGS(tol=1e-4).minimize(Function(function, 10, n_examples=1), start)
    many = LBFGS(tol=1e-4).minimize(Function(function, 10, n_examples=1000), start)
    assert few.trace[-1]["gradient_norm"] <= 1e-4 * max(1.0, np.linalg.norm(few.weights))
    assert 1e-4 < many.trace[-1]["gradient_norm"] <= 0.1
    assert many.n_iter < few.n_iter


def test_a_standstill_is_convergence():
    function, start = quadratic(40, 1e4)
    fit = LBFGS(tol=0.0, value_tol=1e-6, max_iter=5000).minimize(Function(function, 40), start)
    assert fit.converged
    assert "fell by no more than 1e-06 of its value in 5 iterations" in fit.status
    values = [row["objective"] for row in fit.trace]
    assert values[-6] - values[-1] <= 1e-6 * abs(values[-1]) < values[-7] - values[-2]


@pytest.mark.parametrize("learner", [LBFGS(max_iter=3), Adam(max_iter=3)], ids=["lbfgs", "adam"])
def test_trace_and_limit(learner):
    fit = learner.minimize(Remembering(n_parts=4), np.zeros(12), penalty=Penalty(l2=1.0))
    assert fit.n_iter == len(fit.trace) == 3
    assert not fit.converged
    assert "max_iter=3" in fit.status
    for row in fit.trace:
        assert set(row) == {"objective", "gradient_norm", "unconverged", "seconds"}
        assert all(isinstance(value, float) for value in row.values())
    # two of the parts report one example that did not converge
    assert fit.trace[-1]["unconverged"] == pytest.approx(2 / 300)
    assert "inference of 0.667 % of the examples had not converged" in fit.status
    seconds = [row["seconds"] for row in fit.trace]
    assert seconds == sorted(seconds)


MORE = "raise max_iter to 8, say"


@pytest.mark.parametrize(
    ("rows", "clause"),
    [
        ([], ""),
        ([{"objective": 5.0}], f": {MORE}, or loosen tol"),
        ([{"objective": None}] * 2, f": {MORE}, or loosen tol"),
        (
            [{"objective": 5.0}, {"objective": 3.0}, {"objective": 2.0}],
            f": the objective still fell by 1.5 per iteration, {MORE}",
        ),
        (
            [{"objective": 5.0 + 2e-7}, {"objective": 5.0}],
            f": the objective fell by only 2e-07 per iteration at last, loosen tol, or {MORE}",
        ),
        ([{"objective": 5.0}, {"objective": 5.5}], f"rose by 0.5 per iteration at last, .* {MORE}"),
        ([{"objective": 5.0, "gap": 0.25}], f": the gap is still 0.25, {MORE}, or loosen tol"),
        (
            [{"objective": 5.0, "unconverged": 0.5}],
            f": gradients of unconverged inference are inexact, so loosen tol, or {MORE}",
        ),
    ],
)
def test_the_status_at_the_limit_says_what_to_do(rows, clause):
    said = loop._remedy([{"unconverged": 0.0, **row} for row in rows], 4)
    assert re.search(clause, said) if "rose" in clause else said == clause


@pytest.mark.parametrize("learner", [LBFGS(max_iter=3), Adam(max_iter=3)], ids=["lbfgs", "adam"])
def test_what_to_do_is_in_the_status(learner):
    status = learner.minimize(Logistic(), np.zeros(12)).status
    assert "without convergence: the objective still fell by" in status
    assert "raise max_iter to 6" in status


@pytest.mark.parametrize("learner", [LBFGS(tol=1e-12), Adam(), SGD()], ids=["lbfgs", "adam", "sgd"])
def test_early_stopping_keeps_the_best_weights(learner):
    kept = []

    def validation(weights):
        kept.append(weights.copy())
        return -abs(len(kept) - 4.0)

    fit = learner.minimize(Logistic(), np.zeros(12), validation=validation)
    assert fit.n_iter == 14
    np.testing.assert_array_equal(fit.weights, kept[3])
    assert fit.trace[3]["validation"] == 0.0
    assert "iteration 4" in fit.status
    assert fit.converged
    assert "did not improve in 10 iterations" in fit.status


def test_progress_bar(capfd):
    LBFGS(max_iter=5).minimize(Remembering(), np.zeros(12), verbose=1, validation=lambda w: 1.0)
    shown = capfd.readouterr().err
    assert "5/5" in shown
    for word in ("objective", "gradient", "validation", "unconverged"):
        assert word in shown
    LBFGS(max_iter=5).minimize(Logistic(), np.zeros(12))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("learner", [LBFGS(), Adam()], ids=["lbfgs", "adam"])
def test_a_time_limit_ends_a_fit(learner, monkeypatch):
    """By a clock of the test: every reading is one second later."""
    ticks = iter(range(1000))
    monkeypatch.setattr("fieldfit.learners.loop.time.monotonic", lambda: float(next(ticks)))
    penalty = Penalty(l2=0.1)
    with time_limit(100.0), time_limit(3.0):
        fit = learner.minimize(Logistic(), np.zeros(12), penalty=penalty)
    assert not fit.converged
    assert 0 < fit.n_iter == len(fit.trace) <= 3
    assert fit.status.startswith(f"stopped after {fit.n_iter} iterations at the time limit of 3 s")
    assert np.any(fit.weights != 0)
    assert learner.minimize(Logistic(), np.zeros(12), penalty=penalty).n_iter > 3
    with pytest.raises(InvalidInputError, match="seconds must be"):
        time_limit(0)


@pytest.mark.parametrize("n_calls", [1, 2, 7])
def test_an_interrupt_returns_what_there_is(n_calls):
    problem = Failing(Logistic(), n_calls, KeyboardInterrupt())
    fit = LBFGS().minimize(problem, np.zeros(12), penalty=Penalty(l2=0.1))
    assert not fit.converged
    assert f"interrupted after {fit.n_iter} iterations" in fit.status
    straight = LBFGS(max_iter=fit.n_iter).minimize(
        Logistic(), np.zeros(12), penalty=Penalty(l2=0.1)
    )
    np.testing.assert_array_equal(fit.weights, straight.weights)


# -- stochastic ---------------------------------------------------------------------------


@pytest.mark.parametrize("averaging", [True, False])
@pytest.mark.parametrize("kind", [Adam, SGD])
def test_stochastic_learners_find_the_optimum(kind, averaging):
    """The parts have different sizes, so a penalty spread wrongly would show."""
    problem = Logistic(n_examples=1000, n_parts=20)
    penalty = Penalty(l2=5.0)
    best = LBFGS(tol=1e-9).minimize(problem, np.zeros(12), penalty=penalty)
    fit = kind(max_iter=200, random_state=0, averaging=averaging).minimize(
        problem, np.zeros(12), penalty=penalty
    )

    def objective(weights):
        return problem.evaluate(weights).value + 2.5 * weights @ weights

    assert objective(fit.weights) <= objective(best.weights) * (1 + 3e-4)
    np.testing.assert_allclose(fit.weights, best.weights, atol=0.03)


@pytest.mark.parametrize("kind", [Adam, SGD])
def test_proximal_steps_make_weights_zero(kind):
    problem = Logistic(n_examples=1000, n_parts=20)
    penalty = Penalty(l1=20.0)
    best = LBFGS(tol=1e-9).minimize(problem, np.zeros(12), penalty=penalty)
    fit = kind(max_iter=300, random_state=0, averaging=False).minimize(
        problem, np.zeros(12), penalty=penalty
    )
    np.testing.assert_allclose(fit.weights, best.weights, atol=0.03)
    assert (best.weights == 0).sum() >= 3
    assert (fit.weights[best.weights == 0] == 0).mean() > 0.3


@pytest.mark.parametrize("kind", [Adam, SGD])
def test_hinge_loss(kind):
    problem = Logistic(n_examples=600, n_parts=12, hinge=True)

    def objective(weights):
        return problem.evaluate(weights).value + 0.5 * weights @ weights

    fit = kind(random_state=0).minimize(problem, np.zeros(12), penalty=Penalty(l2=1.0))
    long = SGD(random_state=1, step=0.5, decay=1.0, tol=0.0, max_iter=2000).minimize(
        problem, np.zeros(12), penalty=Penalty(l2=1.0)
    )
    assert objective(fit.weights) <= objective(long.weights) * 1.01


def test_the_order_of_mini_batches_comes_from_the_seed():
    problem = Logistic(n_parts=8)
    fits = [
        Adam(max_iter=5, random_state=seed).minimize(problem, np.zeros(12)) for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(fits[0].weights, fits[1].weights)
    assert np.abs(fits[0].weights - fits[2].weights).max() > 1e-6


def test_average_of_the_weights():
    """The answer against the formula ``a_t = a_{t-1} + 4 / (t + 3) (w_t - a_{t-1})``."""
    function, start = quadratic(3, 10.0)
    average = start
    for n_epochs in range(1, 7):
        options = {"step": 0.05, "tol": 0.0, "max_iter": n_epochs}
        weights = SGD(averaging=False, **options).minimize(Function(function, 3), start).weights
        average = average + 4.0 / (n_epochs + 3.0) * (weights - average)
        found = SGD(**options).minimize(Function(function, 3), start).weights
        np.testing.assert_allclose(found, average, rtol=1e-12)


def test_a_standstill_means_nothing_where_the_value_is_proportional_to_the_weights():
    """A perceptron's value is zero at zero and grows with the weights while they improve."""

    class Proportional(Logistic):
        is_homogeneous = True

    options = {"max_iter": 60, "random_state": 0, "tol": 0.5}
    fit = Adam(**options).minimize(Proportional(), np.zeros(12))
    assert fit.n_iter == 60
    assert Adam(**options).minimize(Logistic(), np.zeros(12)).n_iter < 60

    class Perceptron(Function):
        is_homogeneous = True

    def loss(weights):  # one example of the class +1
        wrong = weights[0] <= 0.0
        return -weights[0] if wrong else 0.0, np.array([-1.0 if wrong else 0.0])

    fit = SGD(step=1.0).minimize(Perceptron(loss, 1), np.full(1, -2.5))
    assert fit.converged
    assert "an epoch went by without a mistake" in fit.status
    assert fit.n_iter == 4


def test_objectives_without_a_value():
    def only_gradient(weights):
        return None, weights - 1.0

    fit = Adam(max_iter=300).minimize(Function(only_gradient, 2), np.zeros(2))
    np.testing.assert_allclose(fit.weights, 1.0, atol=1e-2)
    assert fit.trace[0]["objective"] is None
    with pytest.raises(InvalidInputError, match="problem must have a value for this learner"):
        LBFGS().minimize(Function(only_gradient, 2), np.zeros(2))
    with pytest.raises(InvalidInputError, match="step must be given"):
        SGD().minimize(Function(only_gradient, 2), np.zeros(2))


# -- choice -------------------------------------------------------------------------------


def test_choice_of_the_learner():
    smooth, hinge = Logistic(), Logistic(hinge=True)
    assert make_learner(None, smooth, 50, 1e-3, 0) == LBFGS(max_iter=50, tol=1e-3)
    assert make_learner(None, hinge, 50, None, 7) == Adam(max_iter=50, random_state=7)
    assert make_learner("sgd", smooth, None, None, None) == SGD()
    given = Adam(step=0.3)
    assert make_learner(given, smooth, 50, 1e-3, 0) is given
    for state in (np.random.RandomState(0), np.random.default_rng(0)):
        assert isinstance(make_learner("adam", smooth, random_state=state).random_state, int)
    with pytest.raises(InvalidInputError, match="learner must be None, an object or one of"):
        make_learner("newton", smooth)
    with pytest.raises(InvalidInputError, match="random_state must be None, an integer"):
        make_learner("adam", smooth, random_state="seed")


def test_problems_may_keep_their_gradient():
    """The array that a problem returns is never written to."""

    class Keeping(Function):
        def evaluate(self, weights):
            gradient = weights - 1.0
            gradient.flags.writeable = False
            return ProblemValue(float(0.5 * gradient @ gradient), gradient, 0, 1)

    for learner in (LBFGS(), Adam(), SGD()):
        learner.minimize(Keeping(None, 3), np.zeros(3), penalty=Penalty(l2=1.0, l1=0.1))
