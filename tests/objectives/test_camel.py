"""CAMEL: what its rounds end with, by hand, by other solvers and by what must hold there."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from camel_problems import (
    EXACTLY,
    SOLVERS,
    VARIANTS,
    TiedModel,
    camel,
    conditional,
    learn,
    round_ends,
    run_rounds,
    three_clusters,
)
from reference.camel import maximum_entropy
from reference.sum_product import entropy, primal_value
from reference.template import dense_matrix
from scipy.optimize import root

import fieldfit as ff
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.learners.problem import weighted

MODELS = {"conditional": conditional, "generative": TiedModel}
#: What is solved to the last digit, and then looked at by several tests.
CASES = [
    *(("generative", variant, l2) for variant in VARIANTS for l2 in (0.0, 0.1)),
    *(("conditional", variant, l2) for variant in ("camel0", "cccp") for l2 in (0.0, 0.1)),
    ("conditional", "cccp-empirical", 0.1),
]
SEVERAL_ROUNDS = [case for case in CASES if case[1] != "camel0"]


@cache
def solved(model, variant, solver, l2, sides="both"):
    """A run to the last digit; tests share it and leave it alone."""
    problem = MODELS[model](camel(variant, solver, sides=sides))
    rounds, rows = run_rounds(problem, l2)
    return problem, rounds, rows


def beliefs_of(problem, rounds):
    """Results of the concave problem of the last round, one for each part, from the weights."""
    found = []
    for index, part in enumerate(problem.linear_model().parts):
        graph, potentials = part.batch.graph, part.mapping.potentials(rounds.weights)
        unary = potentials.unary_values.copy()
        if problem.objective.variant != "camel0":
            counts = np.repeat(np.maximum(graph.degrees - 1, 0), graph.cardinalities)
            unary += counts * np.log(rounds.dual.centres[index])
        linearised = ff.Potentials.from_flat(graph, unary, potentials.factor_values)
        inference = ff.SumProduct(ff.Convex(unary=0.0), tol=1e-13, max_iter=10_000)
        found.append((part, potentials, inference.run_batch(part.batch, linearised)))
    return found


# -- the three clusters of the paper's section 2.2, by hand --------------------------------
#
# A, B, C are binary, f00 and f11 are shared by AB, BC and AC, and the samples are 001, 010, 100:
# per sample f00 occurs once in three clusters and f11 never.  Everything is symmetric, so the
# clusters have one distribution pi, the same for xy and yx, and multipliers of zero.  The moments
# leave only one choice: pi(00) = 1/3, pi(11) = 0, pi(01) = pi(10) = 1/3, and p(0) = 2/3.
#
#     CAMEL(0)   3 H(pi)          = 3 log 3
#     Bethe      3 H(pi) - 3 H(p) = 3 log 3 - 3 (log 3 - 2/3 log 2) = 2 log 2
#
# No finite weights have pi(11) = 0, so these are infima of the duals.


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("variant", "value"),
    [
        ("camel0", 3 * np.log(3)),
        ("cccp", 2 * np.log(2)),
        ("cccp-empirical", 2 * np.log(2)),
    ],
)
def test_three_clusters(variant, value, solver):
    fit = learn(three_clusters(camel(variant, solver, round_tol=1e-5)))
    last = round_ends(fit.trace)[-1]
    assert last["objective"] / 3 == pytest.approx(value, rel=1e-6)
    assert last["entropy"] / 3 == pytest.approx(2 * np.log(2), rel=1e-5)
    w00, w11 = fit.weights
    assert w11 < -12.0
    if variant == "camel0":  # pi(00) = pi(01) needs exp(w00) = 1
        assert last["objective"] / 3 > value
        assert w00 == pytest.approx(0.0, abs=1e-4)
    else:  # exp(w00) p(0) = sqrt(p(0) p(1))
        assert w00 == pytest.approx(-0.5 * np.log(2), abs=1e-3)


def three_cluster_solution(l2, *, negative_entropies):
    """Weights, pi and p: stationary points of the penalised problem, by symmetry.

    With nine clusters in three samples, ``9 pi(00) - 3 + l2 w00 = 0``, ``9 pi(11) + l2 w11 = 0``,
    and ``pi(x, y) ∝ exp(w·f) p(x)^(1/2) p(y)^(1/2)``: of ``log p`` of each variable, which stands
    once in the potentials (d - 1 = 1), either of its two clusters gets one half.
    """

    def table(weights, p):
        share = np.sqrt(p) if negative_entropies else np.ones(2)
        pi = np.exp(np.diag(weights)) * np.outer(share, share)
        return pi / pi.sum()

    def equations(unknown):
        weights, p = unknown[:2], np.array([unknown[2], 1 - unknown[2]])
        pi = table(weights, p)
        return [
            9 * pi[0, 0] - 3 + l2 * weights[0],
            9 * pi[1, 1] + l2 * weights[1],
            pi.sum(axis=1)[0] - p[0],
        ]

    found = root(equations, [0.0, -1.0, 0.6], tol=1e-13)
    assert found.success
    weights, p = found.x[:2], np.array([found.x[2], 1 - found.x[2]])
    return weights, table(weights, p), p


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("l2", [0.1, 3.0])
@pytest.mark.parametrize("variant", VARIANTS)
def test_three_clusters_with_a_penalty(variant, l2, solver):
    negative = variant != "camel0"
    weights, pi, p = three_cluster_solution(l2, negative_entropies=negative)
    problem = three_clusters(camel(variant, solver))
    rounds, rows = run_rounds(problem, l2)
    np.testing.assert_allclose(rounds.weights, weights, rtol=0, atol=1e-6)
    ((_, _, result),) = beliefs_of(problem, rounds)
    np.testing.assert_allclose(
        result.beliefs.factor_values.reshape(9, 2, 2), np.broadcast_to(pi, (9, 2, 2)), atol=1e-6
    )
    # moments miss by l2 w, which costs |l2 w|^2 / (2 l2)
    value = 9 * entropy(pi) - 9 * negative * entropy(p) - 0.5 * l2 * weights @ weights
    last = round_ends(rows)[-1]
    assert last["objective"] == pytest.approx(value, rel=1e-9)
    assert last["entropy"] == pytest.approx(value - 9 * (not negative) * entropy(p), rel=1e-6)


# -- two ways through the dual ------------------------------------------------------------


@pytest.mark.parametrize(("model", "variant", "l2"), CASES)
def test_the_joint_solver_and_the_double_loop_agree(model, variant, l2):
    runs = [solved(model, variant, solver, l2) for solver in SOLVERS]
    joint, double = (round_ends(rows)[-1] for _, _, rows in runs)
    assert joint["objective"] == pytest.approx(double["objective"], rel=1e-9)
    assert joint["entropy"] == pytest.approx(double["entropy"], rel=1e-6)
    for first, second in zip(*(rounds.dual.centres for _, rounds, _ in runs), strict=True):
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-5)
    if l2 > 0:
        np.testing.assert_allclose(runs[0][1].weights, runs[1][1].weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_sides_do_not_matter(model):
    both, one = (solved(model, "cccp", "joint", 0.1, sides) for sides in ("both", "one"))
    np.testing.assert_allclose(one[1].weights, both[1].weights, rtol=0, atol=1e-5)
    objectives = [round_ends(rows)[-1]["objective"] for _, _, rows in (both, one)]
    assert objectives[1] == pytest.approx(objectives[0], rel=1e-9)
    first, second = (run[1].dual.slopes[0] for run in (both, one))
    assert np.abs(first - second).max() > 0.1  # they do get there in different ways


@pytest.mark.parametrize("model", MODELS)
def test_variants_differ(model):
    """Otherwise the comparisons above would say little."""
    weights = {variant: solved(model, variant, "joint", 0.1)[1].weights for variant in VARIANTS}
    np.testing.assert_allclose(weights["cccp"], weights["cccp-empirical"], rtol=0, atol=1e-4)
    assert np.abs(weights["camel0"] - weights["cccp"]).max() > 0.05


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("make", [ff.IsingModel, ff.PottsModel])
def test_the_solvers_agree_on_generative_estimators(make, variant, l2):
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 2, (50, 4))
    samples[:25, 1] = samples[:25, 0]
    edges = [(0, 1), (1, 2), (2, 0), (2, 3)]
    joint, double = (
        make(camel(variant, solver), l2=l2, learner=EXACTLY).fit(samples, edges)
        for solver in SOLVERS
    )
    first, second = (round_ends(model.trace_)[-1]["objective"] for model in (joint, double))
    assert first == pytest.approx(second, rel=1e-9)
    if l2 > 0 or make is ff.IsingModel:  # full tables without a penalty are redundant
        np.testing.assert_allclose(joint.weights_, double.weights_, rtol=0, atol=1e-5)
    if variant == "cccp" and l2 == 0.0:
        # untied tables: the moments are the marginals themselves, and pseudo-moment matching is
        # the closed form of the answer
        matching = ff.MomentMatching(ff.Bethe())
        graph, potentials = joint.to_model()
        moments = matching.moments(graph, samples)
        beliefs = ff.SumProduct(tol=1e-12).run(graph, potentials).beliefs
        np.testing.assert_allclose(beliefs.factor_values, moments.factor_values, rtol=0, atol=1e-5)


# -- the primal: maximum entropy in the beliefs themselves ---------------------------------


def shared_triangle(objective):
    """Triangle of variables with 2, 2 and 3 labels, frequencies of random samples."""
    rng = np.random.default_rng(3)
    graph = ff.FactorGraph([2, 2, 3], [(0, 1), (1, 2), (0, 2)])
    blocks = [
        ff.graph.Block.unary(graph, variables=[0, 1]),
        ff.graph.Block.tables(graph, "potts", factors=[0], name="agreement"),
        ff.graph.Block.tables(graph, factors=[1, 2], name="mixed"),
    ]
    template = ff.graph.Template(graph, blocks)
    samples = rng.integers(0, graph.cardinalities, (30, 3))
    samples[:20, 1] = samples[:20, 0]
    found = [ff.Beliefs.from_labels(graph, row) for row in samples]
    statistics = sum(template.gradient(given) for given in found) / len(found)
    unary = np.mean([given.unary_values for given in found], axis=0)

    class Triangle(TiedModel):
        def __init__(self):
            self.objective, self.n_weights = objective, template.n_weights

        def linear_model(self):
            part = LinearPart(ff.graph.Batch.of([graph]), template, unary)
            return LinearModel([part], statistics, 1)

    return Triangle(), graph, template, statistics


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_primal_has_the_same_optimum(variant, l2, solver):
    problem, graph, template, statistics = shared_triangle(camel(variant, solver))
    rounds, rows = run_rounds(problem, l2)
    value, tables = maximum_entropy(
        graph,
        dense_matrix(template),
        statistics,
        negative_entropies=variant != "camel0",
        l2=l2,
    )
    assert round_ends(rows)[-1]["objective"] == pytest.approx(value, abs=1e-6)
    ((_, _, result),) = beliefs_of(problem, rounds)
    np.testing.assert_allclose(result.beliefs.factor_values, tables, rtol=0, atol=1e-5)
    if l2 > 0:  # the multipliers of the moments are how far these are missed
        missed = statistics - template.gradient(result.beliefs)
        np.testing.assert_allclose(rounds.weights, missed / l2, rtol=0, atol=1e-5)


# -- what holds at a fixed point ----------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("model", "variant"), [case[:2] for case in SEVERAL_ROUNDS if not case[2]])
def test_the_fixed_point_is_stationary_for_bethe_and_has_the_moments(model, variant, solver):
    problem, rounds, rows = solved(model, variant, solver, 0.0)
    moments, value = 0.0, 0.0
    for index, (part, potentials, result) in enumerate(beliefs_of(problem, rounds)):
        graph, unary = part.batch.graph, result.beliefs.unary_values
        np.testing.assert_allclose(rounds.dual.centres[index], unary, rtol=0, atol=1e-5)
        stays = ff.DoubleLoop(tol=1e-9).run_batch(part.batch, potentials, init=result)
        assert stays.converged
        np.testing.assert_allclose(stays.beliefs.unary_values, unary, rtol=0, atol=1e-5)
        # one sweep of loopy belief propagation, and then as many as it wants
        for n_sweeps in (1, 1000):
            bp = ff.SumProduct(max_iter=n_sweeps).run_batch(part.batch, potentials, init=stays)
            np.testing.assert_allclose(bp.beliefs.unary_values, unary, rtol=0, atol=1e-5)
            np.testing.assert_allclose(
                bp.beliefs.factor_values, result.beliefs.factor_values, rtol=0, atol=1e-5
            )
        vector = ff.Potentials.from_flat(graph, unary, result.beliefs.factor_values)
        given = part.weight_of_examples()
        moments = moments + part.mapping.gradient(weighted(part.batch, vector, given))
        for example, beliefs in enumerate(part.batch.split(bp.beliefs)):
            own = part.batch.graphs[example]
            zero, bethe = ff.Potentials(own), ff.Bethe().counting_numbers(own)
            value += given[example] * primal_value(own, zero, bethe, beliefs)
    statistics = problem.linear_model().statistics
    np.testing.assert_allclose(moments, statistics, rtol=0, atol=1e-5 * statistics.max())
    assert round_ends(rows)[-1]["entropy"] == pytest.approx(value, rel=1e-6)


def test_camel0_is_not_stationary_for_bethe():
    """The test above can fail: with one round only, propagation moves away."""
    problem, rounds, _ = solved("conditional", "camel0", "joint", 0.0)
    ((part, potentials, result),) = beliefs_of(problem, rounds)
    bp = ff.SumProduct(max_iter=1).run_batch(part.batch, potentials, init=result)
    assert np.abs(bp.beliefs.unary_values - result.beliefs.unary_values).max() > 1e-3


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("model", "variant", "l2"), SEVERAL_ROUNDS)
def test_the_entropy_never_falls(model, variant, solver, l2):
    """``L_{t-1} <= D_t <= L_t``, and the rounds do gain something."""
    _, _, rows = solved(model, variant, solver, l2)
    ends = round_ends(rows)
    assert len(ends) >= 3
    slack = 1e-7 * abs(ends[-1]["entropy"])
    for before, row in pairwise(ends):
        assert before["entropy"] - slack <= row["objective"] <= row["entropy"] + slack
    assert ends[0]["objective"] >= ends[0]["entropy"] or variant != "cccp"  # nothing is negative
    assert ends[-1]["entropy"] - ends[0]["entropy"] > 100 * slack
    assert all("entropy" not in row for row in rows if row["stage"] == "piecewise")


def test_rough_rounds_rise_too():
    """The default accuracy, as users have it: the entropy falls by less than a millionth."""
    for solver in SOLVERS:
        problem = conditional(ff.Camel(solver=solver, round_tol=1e-6), weighted=False)
        entropies = [
            row["entropy"] for row in round_ends(learn(problem, 0.1, inner=ff.LBFGS()).trace)
        ]
        falls = np.maximum(0.0, -np.diff(entropies))
        assert falls.max() < 1e-6 * entropies[-1]


# -- graphs without cycles ----------------------------------------------------------------


def sequences(n_sequences=12, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(int(rng.integers(1, 7)), 2)) for _ in range(n_sequences)]
    Y = [[int(label) for label in (x[:, 0] + 0.7 * rng.normal(size=len(x)) > 0)] for x in X]
    return X, Y


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_cycles_it_is_maximum_likelihood(solver):
    """Bethe's entropy is the entropy there; that of CAMEL(0) is not."""
    X, Y = sequences()
    exact = ff.ChainCRF("likelihood", l2=0.1, tol=1e-9).fit(X, Y)
    fitted = {
        variant: ff.ChainCRF(camel(variant, solver), l2=0.1, learner=EXACTLY).fit(X, Y)
        for variant in VARIANTS
    }
    for variant in ("cccp", "cccp-empirical"):
        np.testing.assert_allclose(fitted[variant].weights_, exact.weights_, rtol=0, atol=1e-5)
        last = round_ends(fitted[variant].trace_)[-1]
        assert last["entropy"] == pytest.approx(exact.trace_[-1]["objective"], rel=1e-8)
    assert np.abs(fitted["camel0"].weights_ - exact.weights_).max() > 0.05
