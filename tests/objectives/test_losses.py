"""Losses on beliefs against their definitions, written out, and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PROBLEMS

import fieldfit as ff
from fieldfit.graph.potentials import Beliefs
from fieldfit.objectives.marginal_losses import LOSSES, SMOOTH_LOSSES, MarginalLoss

SIZED = [p for p in PROBLEMS if p.graph.n_variables]


def random_beliefs(graph, rng):
    """A normalised vector for each variable and each factor; they need not agree."""
    unary, tables = (
        rng.exponential(size=graph.unary_offsets[-1]),
        rng.exponential(size=graph.table_offsets[-1]),
    )
    for values, offsets in ((unary, graph.unary_offsets), (tables, graph.table_offsets)):
        if len(offsets) > 1:
            values /= np.repeat(np.add.reduceat(values, offsets[:-1]), np.diff(offsets))
    return Beliefs(graph, unary, tables)


def random_labels(graph, rng, missing=0.3):
    labels = rng.integers(0, graph.cardinalities).astype(np.int32)
    return np.where(rng.random(len(labels)) < missing, -1, labels).astype(np.int32)


def twin(name, graph, beliefs, labels, sharpness):
    """The table of definitions, variable by variable and factor by factor."""
    vectors = []
    if name.removeprefix("s").startswith("u"):
        for i in range(graph.n_variables):
            if labels[i] >= 0:
                vectors.append((beliefs.unary(i), labels[i]))
    else:
        for a in range(graph.n_factors):
            scope = graph.scope(a)
            if len(scope) >= 2 and all(labels[i] >= 0 for i in scope):
                table = beliefs.factor(a)
                truth = np.ravel_multi_index([labels[i] for i in scope], table.shape)
                vectors.append((table.ravel(), truth))
    total = 0.0
    for vector, truth in vectors:
        others = np.delete(vector, truth)
        if name in ("ucl", "ccl"):
            total -= np.log(vector[truth])
        elif name in ("uquad", "cquad"):
            total += np.sum(vector**2) - 2 * vector[truth]
        elif name in ("suclass", "scclass"):
            if len(others):
                total += 1 / (1 + np.exp(-sharpness * (others.max() - vector[truth])))
        else:
            total += float(np.argmax(vector) != truth)
    return total


@pytest.mark.parametrize("name", LOSSES)
def test_values_are_the_definitions(name):
    rng = np.random.default_rng(0)
    loss = MarginalLoss(name, sharpness=4.0)
    graphs = [p.graph for p in SIZED]
    batch = ff.graph.Batch.of(graphs)
    beliefs = random_beliefs(batch.graph, rng)
    labels = random_labels(batch.graph, rng)
    values = loss.values(batch, beliefs, labels)
    starts = batch.variable_offsets
    for m, part in enumerate(batch.split(beliefs)):
        expected = twin(name, graphs[m], part, labels[starts[m] : starts[m + 1]], 4.0)
        assert values[m] == pytest.approx(expected, rel=1e-12, abs=1e-12), SIZED[m].name
    if loss.is_smooth:
        np.testing.assert_array_equal(loss.value_and_derivative(batch, beliefs, labels)[0], values)


@pytest.mark.parametrize("name", SMOOTH_LOSSES)
def test_derivative_is_that_of_the_value(name):
    rng = np.random.default_rng(1)
    loss, step = MarginalLoss(name), 1e-6
    for problem in SIZED:
        graph = problem.graph
        batch, beliefs = ff.graph.Batch.of([graph]), random_beliefs(graph, rng)
        labels = random_labels(graph, rng)
        _, derivative = loss.value_and_derivative(batch, beliefs, labels)
        for field in ("unary_values", "factor_values"):
            actual = getattr(derivative, field)
            for z in rng.permutation(len(actual))[:20]:
                ends = []
                for sign in (1.0, -1.0):
                    moved = Beliefs(graph, beliefs.unary_values.copy(),
                                    beliefs.factor_values.copy())  # fmt: skip
                    getattr(moved, field)[z] += sign * step
                    ends.append(loss.values(batch, moved, labels).sum())
                expected = (ends[0] - ends[1]) / (2 * step)
                assert actual[z] == pytest.approx(expected, rel=1e-5, abs=1e-6), problem.name


def test_smoothed_errors_become_errors():
    rng = np.random.default_rng(2)
    batch = ff.graph.Batch.of([ff.FactorGraph.grid(6, 7, 4)])
    beliefs, labels = random_beliefs(batch.graph, rng), random_labels(batch.graph, rng)
    for hard, smooth in (("uclass", "suclass"), ("cclass", "scclass")):
        errors = MarginalLoss(hard).values(batch, beliefs, labels)
        sharp = MarginalLoss(smooth, sharpness=1e6).values(batch, beliefs, labels)
        np.testing.assert_allclose(sharp, errors, atol=1e-9)


def test_errors_count_what_argmax_says():
    """Ties as well: the first label wins."""
    graph = ff.FactorGraph.chain(4, 3)
    beliefs = ff.SumProduct().run(graph, ff.Potentials(graph)).beliefs
    batch = ff.graph.Batch.of([graph])
    for label, expected in ((0, 0.0), (1, 4.0), (2, 4.0)):
        labels = np.full(4, label, dtype=np.int32)
        assert MarginalLoss("uclass").values(batch, beliefs, labels) == expected


@pytest.mark.parametrize("name", ["ucl", "ccl"])
@pytest.mark.parametrize("belief", [0.0, 5e-324, 1e-310, 1e-301])
def test_a_vanishing_belief_stays_finite(name, belief):
    graph = ff.FactorGraph.chain(2, 2)
    unary, tables = np.array([belief, 1.0, 0.5, 0.5]), np.array([belief, 0.5, 0.5, 0.0])
    labels = np.array([0, 0], dtype=np.int32)
    values, derivative = MarginalLoss(name).value_and_derivative(
        ff.graph.Batch.of([graph]), Beliefs(graph, unary, tables), labels
    )
    assert 690.0 < values[0] < 692.0
    for part in (derivative.unary_values, derivative.factor_values):
        assert np.isfinite(part).all()


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_known_counts_nothing(name):
    rng = np.random.default_rng(3)
    batch = ff.graph.Batch.of([ff.FactorGraph([]), ff.FactorGraph.chain(3, 2), ff.FactorGraph([])])
    beliefs = random_beliefs(batch.graph, rng)
    labels = np.full(3, -1, dtype=np.int32)
    np.testing.assert_array_equal(MarginalLoss(name).values(batch, beliefs, labels), np.zeros(3))


def test_a_factor_of_one_variable_does_not_count():
    graph = ff.FactorGraph([2, 2], [(0,), (0, 1), ()])
    beliefs = random_beliefs(graph, np.random.default_rng(4))
    labels = np.array([1, 0], dtype=np.int32)
    value = MarginalLoss("ccl").values(ff.graph.Batch.of([graph]), beliefs, labels)
    assert value == pytest.approx(-np.log(beliefs.factor(1)[1, 0]))


def test_bad_options():
    with pytest.raises(ff.InvalidInputError, match="name must be one of"):
        MarginalLoss("log")
    with pytest.raises(ff.InvalidInputError, match="sharpness must be positive"):
        MarginalLoss("suclass", sharpness=0.0)
    batch = ff.graph.Batch.of([ff.FactorGraph.chain(2, 2)])
    beliefs = random_beliefs(batch.graph, np.random.default_rng(5))
    with pytest.raises(ff.InvalidInputError, match="to have a derivative, got 'uclass'"):
        MarginalLoss("uclass").value_and_derivative(
            batch, beliefs, np.array([0, 0], dtype=np.int32)
        )
