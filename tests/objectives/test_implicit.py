"""Implicit gradients against dense algebra, differences, perturbation and unrolled sweeps."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_graph, random_tables
from reference.implicit import dense_gradient

import fieldfit as ff
from fieldfit.entropy.configuration_weights import EntropyWeights
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.inference.convex.convex_dual import ConvexDual
from fieldfit.inference.messages.unrolled_sum_product import UnrolledSumProduct
from fieldfit.inference.second_order.implicit_gradient import (
    implicit_gradient,
    perturbation_gradient,
)
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, MarginalHessian
from fieldfit.objectives.implicit_loss import ImplicitLoss
from fieldfit.objectives.marginal_losses import SMOOTH_LOSSES, MarginalLoss

GRAPHS = {
    "pairs": ff.FactorGraph.grid(2, 3, 2),
    "mixed pairs": ff.FactorGraph([2, 3, 2, 3], [(0, 1), (1, 2), (2, 3), (3, 0), (1,)]),
    "triples": ff.FactorGraph([2, 3, 2, 2], [(0, 1, 2), (1, 2, 3), (3, 0), (2,), ()]),
}
by_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
by_loss = pytest.mark.parametrize("loss", SMOOTH_LOSSES)
ENTROPIES = {
    "convex": ff.Convex(),
    "half": ff.Convex(0.5, factor=0.5),
    "no variables": ff.Convex(unary=0.0),
    "trees": ff.TreeReweighted(),
}
by_entropy = pytest.mark.parametrize("entropy", ENTROPIES.values(), ids=ENTROPIES)


def flat(vector):
    return np.concatenate([vector.unary_values, vector.factor_values])


def unflat(graph, vector):
    cut = int(graph.unary_offsets[-1])
    return ff.Potentials.from_flat(graph, vector[:cut].copy(), vector[cut:].copy())


def random_weights(rng, graph, least=0.2):
    unary = [rng.uniform(least, 1.5, int(k)) for k in graph.cardinalities]
    factors = [rng.uniform(least, 1.5, graph.table_shape(a)) for a in range(graph.n_factors)]
    return EntropyWeights(graph, unary, factors)


def labels_of(rng, graph, missing):
    labels = rng.integers(0, graph.cardinalities).astype(np.int32)
    if missing:
        labels[rng.integers(graph.n_variables)] = -1
    return labels


def solve(graph, potentials, weights):
    result = ConvexDual(tol=1e-13).run(graph, potentials, weights=weights)
    assert result.residual < 1e-12, result.status
    return result.beliefs


# -- finite differences -------------------------------------------------------------------


@pytest.mark.parametrize("missing", [False, True])
@by_loss
@by_graph
def test_gradients_are_finite_differences(graph, loss, missing):
    """On potentials and on a weight for every configuration."""
    rng = np.random.default_rng(3)
    potentials, weights = random_tables(rng, graph), random_weights(rng, graph)
    batch, labels, chosen = Batch.of([graph]), labels_of(rng, graph, missing), MarginalLoss(loss)

    def values(potentials, weights):
        """One value for each of several potentials and weights, as one batch."""
        union = Batch.of([graph] * len(potentials))
        joined = EntropyWeights.from_flat(
            union.graph,
            np.concatenate([w.unary_values for w in weights]),
            np.concatenate([w.factor_values for w in weights]),
        )
        result = ConvexDual(tol=1e-13).run_batch(union, union.pack(potentials), weights=joined)
        assert result.residual < 1e-12, result.status
        return chosen.values(union, result.beliefs, np.tile(labels, len(potentials)))

    beliefs = solve(graph, potentials, weights)
    _, derivative = chosen.value_and_derivative(batch, beliefs, labels)
    found = implicit_gradient(beliefs, weights, derivative)
    assert found.residual < 1e-12
    step = 1e-4
    for by_weights, vector, gradient in (
        (False, flat(potentials), flat(found.potentials)),
        (True, flat(weights), flat(found.weights)),
    ):
        entries = np.flatnonzero(vector if by_weights else np.ones(len(vector)))
        moved = []
        for z in entries:
            for sign in (1.0, -1.0):
                other = vector.copy()
                other[z] += sign * step
                moved.append(unflat(graph, other))
        if by_weights:
            given = [
                EntropyWeights.from_flat(graph, m.unary_values, m.factor_values) for m in moved
            ]
            sides = values([potentials] * len(moved), given)
        else:
            sides = values(moved, [weights] * len(moved))
        expected = np.zeros(len(vector))
        expected[entries] = (sides[::2] - sides[1::2]) / (2 * step)
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6 * scale)


# -- three ways to one gradient -----------------------------------------------------------


@by_loss
@by_entropy
@by_graph
def test_solve_perturbation_and_long_unrolled_sweeps_agree(graph, entropy, loss):
    rng = np.random.default_rng(5)
    potentials = random_tables(rng, graph, scale=0.7)
    labels, batch = labels_of(rng, graph, missing=True), Batch.of([graph])
    tight = ff.SumProduct(entropy, tol=1e-14, max_iter=20_000)
    result = tight.run(graph, potentials)
    chosen = MarginalLoss(loss)
    _, derivative = chosen.value_and_derivative(batch, result.beliefs, labels)
    weights = EntropyWeights.of(entropy, graph)
    solved = flat(implicit_gradient(result.beliefs, weights, derivative).potentials)
    moved, converged = perturbation_gradient(
        batch, potentials, derivative, lambda th: tight.run_batch(batch, th, init=result)
    )
    assert converged.all()
    run = UnrolledSumProduct(300, entropy=entropy).record(batch, potentials)
    (pulled,) = run.vjp(derivative, run.beliefs()).potentials
    scale = max(1.0, np.abs(solved).max())
    np.testing.assert_allclose(flat(moved), solved, rtol=0, atol=1e-6 * scale)
    np.testing.assert_allclose(flat(pulled), solved, rtol=0, atol=1e-6 * scale)


@by_graph
def test_weights_of_counting_numbers_agree_with_unrolled_sweeps(graph):
    """The sum over a table of the derivatives by its weights is that by its counting number."""
    rng = np.random.default_rng(6)
    entropy, batch = ff.Convex(0.3, factor=0.8), Batch.of([graph])
    potentials = random_tables(rng, graph, scale=0.7)
    derivative = random_tables(rng, graph)
    run = UnrolledSumProduct(400, entropy=entropy).record(batch, potentials)
    pulled = run.vjp(derivative, run.beliefs(), entropy=True)
    weights = EntropyWeights.of(entropy, graph)
    found = implicit_gradient(run.beliefs(), weights, derivative).weights
    by_variable = np.add.reduceat(found.unary_values, graph.unary_offsets[:-1])
    by_factor = np.add.reduceat(found.factor_values, graph.table_offsets[:-1])
    # chat_i = c_i + sum_a c_a: a factor's number moves the totals of its variables too
    linking = graph.arities >= 2
    around = np.zeros(graph.n_factors)
    np.add.at(around, graph.slot_factors, pulled.variable_total[graph.slot_variables])
    has_numbers = graph.degrees > 0
    np.testing.assert_allclose(
        by_variable[has_numbers], pulled.variable_total[has_numbers], rtol=0, atol=1e-7
    )
    np.testing.assert_allclose(
        by_factor[linking], (pulled.factor + around)[linking], rtol=0, atol=1e-7
    )


# -- linear algebra -----------------------------------------------------------------------


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_reduced_system_solves_the_full_one(seed, direct):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 6, 7, max_arity=3, max_labels=3)
    potentials, weights = random_tables(rng, graph), random_weights(rng, graph)
    derivative = random_tables(rng, graph)
    beliefs = solve(graph, potentials, weights)
    found = implicit_gradient(beliefs, weights, derivative, direct=direct)
    expected = dense_gradient(beliefs, weights, derivative)
    np.testing.assert_allclose(flat(found.potentials), expected, rtol=0, atol=1e-10)


def test_wrong_gradients_are_found():
    """The check above can fail: with other weights the solution is another one."""
    rng = np.random.default_rng(1)
    graph = GRAPHS["pairs"]
    potentials, weights = random_tables(rng, graph), random_weights(rng, graph)
    derivative, beliefs = random_tables(rng, graph), solve(graph, potentials, weights)
    expected = dense_gradient(beliefs, weights, derivative)
    other = EntropyWeights(graph, 1.0, 1.0)
    found = implicit_gradient(beliefs, other, derivative)
    assert np.abs(flat(found.potentials) - expected).max() > 1e-3


def test_a_batch_gives_each_example_its_own_gradient():
    rng = np.random.default_rng(2)
    graphs = [*GRAPHS.values(), ff.FactorGraph([3]), GRAPHS["pairs"]]
    tables = [random_tables(rng, g) for g in graphs]
    slopes = [random_tables(rng, g) for g in graphs]
    batch = Batch.of(graphs)
    entropy = ff.Convex()
    together = ff.SumProduct(entropy, tol=1e-13).run_batch(batch, batch.pack(tables)).beliefs
    weights = EntropyWeights.of(entropy, batch.graph)
    found = implicit_gradient(together, weights, batch.pack(slopes)).potentials
    parts = batch.split(ff.Beliefs(batch.graph, found.unary_values, found.factor_values))
    for graph, beliefs, slope, part in zip(
        graphs, batch.split(together), slopes, parts, strict=True
    ):
        alone = implicit_gradient(beliefs, EntropyWeights.of(entropy, graph), slope)
        np.testing.assert_allclose(flat(part), flat(alone.potentials), rtol=0, atol=1e-12)


# -- hard zeros and beliefs next to them --------------------------------------------------


def test_hard_constraints_have_finite_gradients():
    """Equal neighbours: the chain behaves like one variable."""
    graph = ff.FactorGraph.chain(4, 2)
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    potentials = ff.Potentials(graph, [[0.0, 0.3], None, None, [0.2, 0.0]], equal)
    entropy = ff.Convex(0.5, factor=1.0)
    beliefs = ff.SumProduct(entropy, tol=1e-14).run(graph, potentials).beliefs
    derivative = ff.Potentials(graph, [[1.0, 0.0], None, None, None])
    weights = EntropyWeights.of(entropy, graph)
    found = implicit_gradient(beliefs, weights, derivative)
    # b maximises th'b + (4 * 0.5 + 3) H(b) over one binary variable
    b = beliefs.unary(0)
    assert found.residual < 1e-10
    slope = b[0] * b[1] / 5.0
    for i in range(4):
        np.testing.assert_allclose(found.potentials.unary(i), [slope, -slope], atol=1e-9)
    assert np.all(found.potentials.factor_values[np.isneginf(potentials.factor_values)] == 0.0)
    assert np.isfinite(flat(found.weights)).all()


@pytest.mark.parametrize("size", [30.0, 300.0, 3000.0])
@by_loss
def test_nearly_certain_beliefs_have_finite_gradients(loss, size):
    graph = ff.FactorGraph.grid(3, 3, 3)
    rng = np.random.default_rng(8)
    potentials = ff.Potentials(
        graph, size * rng.normal(size=(9, 3)), size * rng.normal(size=(graph.n_factors, 3, 3))
    )
    objective = ImplicitLoss(loss, max_iter=20_000)
    labels = rng.integers(0, 3, 9)
    value, gradient = objective.value_and_grad(graph, potentials, labels)
    assert np.isfinite(value)
    assert np.isfinite(flat(gradient)).all()
    np.testing.assert_allclose(gradient.unary_matrix().sum(axis=1), 0.0, atol=1e-6)


# -- the objective ------------------------------------------------------------------------


def test_bethe_is_refused_on_graphs_with_cycles():
    graph = ff.FactorGraph.grid(3, 3, 2)
    with pytest.raises(InvalidInputError, match="entropy must be concave"):
        ImplicitLoss(entropy=ff.Bethe()).value_and_grad(
            graph, ff.Potentials(graph), np.zeros(9, int)
        )


@by_loss
def test_messages_and_primal_agree(loss):
    graph = ff.FactorGraph.grid(5, 5, 3)
    rng = np.random.default_rng(3)
    potentials, labels = random_tables(rng, graph), rng.integers(-1, 3, 25)
    entropy = ff.Convex(0.1, factor=1.0)
    by_messages, in_primal = (
        ImplicitLoss(loss, entropy=entropy, solver=solver, tol=1e-11, max_iter=20_000)
        for solver in ("messages", "primal")
    )
    value, gradient = by_messages.value_and_grad(graph, potentials, labels)
    other_value, other = in_primal.value_and_grad(graph, potentials, labels)
    assert other_value == pytest.approx(value, abs=1e-8)
    np.testing.assert_allclose(flat(other), flat(gradient), atol=1e-8)
    predictions = [
        objective.prediction(graph).run(graph, potentials) for objective in (by_messages, in_primal)
    ]
    assert predictions[1].method.startswith("ConvexPrimal")
    np.testing.assert_allclose(
        predictions[1].beliefs.unary_values, predictions[0].beliefs.unary_values, atol=1e-8
    )


@pytest.mark.parametrize("options", [{}, {"fit_entropy": True}])
def test_without_a_gradient_the_value_is_infinite(options, monkeypatch):
    # as at steps far too long, from which a line search comes back
    graph = ff.FactorGraph.grid(2, 2, 2)
    objective = ImplicitLoss(**options)
    batch = Batch.of([graph])
    sets = [ff.Potentials(graph)] * objective.n_weight_sets

    def fail(*arguments, **names):
        raise IndefiniteError

    monkeypatch.setattr(MarginalHessian, "solve", fail)
    labels = np.array([0, 1, 1, 0])
    if len(sets) == 1:
        found = objective.evaluate(batch, sets[0], labels)
    else:
        found = objective.evaluate_sets(batch, sets, labels)
    assert np.all(found.values == np.inf)
    assert not found.converged_examples.any()
    assert np.all(flat(found.gradient) == 0.0)
    assert len(found.set_gradients) == (len(sets) if len(sets) > 1 else 0)


def test_primal_needs_positive_weights():
    graph = ff.FactorGraph.grid(2, 2, 2)
    objective = ImplicitLoss(entropy=ff.TreeReweighted(), solver="primal")
    with pytest.raises(InvalidInputError, match="positive weights"):
        objective.value_and_grad(graph, ff.Potentials(graph), [0, 0, 1, 1])


def test_bethe_is_exact_on_trees():
    graph = ff.FactorGraph.chain(4, 3)
    rng = np.random.default_rng(0)
    potentials, labels = random_tables(rng, graph), [0, 2, -1, 1]
    value, gradient = ImplicitLoss("ucl", entropy=ff.Bethe(), tol=1e-12).value_and_grad(
        graph, potentials, labels
    )
    exact = ff.BruteForce().run(graph, potentials).beliefs
    expected = -sum(np.log(exact.unary(i)[y]) for i, y in enumerate(labels) if y >= 0)
    assert value == pytest.approx(expected, abs=1e-10)
    assert np.abs(flat(gradient)).max() > 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "uclass"}, "loss must be one of"),
        ({"loss": "nonsense"}, "loss must be one of"),
        ({"entropy": "convex"}, "entropy must be an object"),
        ({"entropy": ff.TreeReweighted("optimized")}, "entropy must be an object"),
        ({"gradient": "backward"}, "gradient must be one of"),
        ({"solver": "dual"}, "solver must be one of"),
        ({"solver": "primal", "gradient": "perturbation"}, "solver must be 'messages'"),
        ({"tol": 0.0}, "tol must be positive"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        ImplicitLoss(**options)


def test_structures_must_fit():
    graph = GRAPHS["pairs"]
    beliefs = ff.SumProduct(ff.Convex()).run(graph, ff.Potentials(graph)).beliefs
    other = ff.Potentials(GRAPHS["triples"])
    with pytest.raises(InvalidInputError, match="derivative and weights"):
        implicit_gradient(beliefs, EntropyWeights(graph), other)
