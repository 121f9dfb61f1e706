"""Potentials and beliefs: layout, scores, inner products, evidence, and every error."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PROBLEMS, random_tables
from reference.mean_field import plain_score

import fieldfit as ff
from fieldfit.graph.potentials import folded_unary, observed_labels

INF = np.inf


@pytest.fixture
def graph():
    return ff.FactorGraph([2, 3, 2], [(0, 1), (2,), (2, 1, 0), ()])


@pytest.fixture
def potentials(graph):
    return random_tables(np.random.default_rng(0), graph)


# -- layout -------------------------------------------------------------------------------


def test_tables_are_stored_in_scope_order(graph):
    unary = [[1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0]]
    factors = [np.arange(6).reshape(2, 3), [8.0, 9.0], np.arange(12).reshape(2, 3, 2), 0.5]
    potentials = ff.Potentials(graph, unary, factors)
    assert potentials.unary_values.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert potentials.factor_values.tolist() == [*range(6), 8, 9, *range(12), 0.5]
    assert potentials.unary(1).tolist() == [3, 4, 5]
    assert potentials.factor(2)[1, 2, 0] == 10
    assert potentials.factor(2).shape == (2, 3, 2)
    assert potentials.factor(3).shape == ()
    assert potentials.score([1, 2, 0]) == 2 + 5 + 6 + 5 + 8 + factors[2][0, 2, 1] + 0.5


def test_what_is_left_out_is_zero(graph):
    assert not ff.Potentials(graph).factor_values.any()
    partly = ff.Potentials(graph, [None, [1, 2, 3], None], [None, [4, 5], None, None])
    assert partly.unary_values.tolist() == [0, 0, 1, 2, 3, 0, 0]
    assert partly.factor_values.sum() == 9


def test_arrays_for_uniform_graphs():
    grid = ff.FactorGraph.grid(2, 2, 3)
    unary, tables = np.arange(12.0).reshape(4, 3), np.arange(36.0).reshape(4, 3, 3)
    potentials = ff.Potentials(grid, unary, tables)
    np.testing.assert_array_equal(potentials.unary(2), unary[2])
    np.testing.assert_array_equal(potentials.factor(3), tables[3])
    np.testing.assert_array_equal(
        ff.Potentials(grid, list(unary), list(tables)).factor_values, potentials.factor_values
    )
    # other number types and memory orders
    same = ff.Potentials(grid, unary.astype(int), np.asfortranarray(tables))
    np.testing.assert_array_equal(same.factor_values, potentials.factor_values)


def test_views_write_through_and_inputs_are_copied(potentials, graph):
    potentials.unary(0)[1] = 42.0
    assert potentials.unary_values[1] == 42.0
    potentials.factor(0)[1, 2] = 43.0
    assert potentials.factor_values[5] == 43.0
    table = np.zeros((3, 2))
    made = ff.Potentials(ff.FactorGraph([3, 2], [(0, 1)]), None, table[None])
    table[:] = 1.0
    assert not made.factor_values.any()


def test_from_flat_does_not_copy(graph):
    unary, factor = np.zeros(7), np.zeros(21)
    potentials = ff.Potentials.from_flat(graph, unary, factor)
    assert potentials.unary_values is unary
    assert potentials.factor_values is factor


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_score_and_indicators(problem):
    graph, potentials = problem.graph, problem.potentials
    rng = np.random.default_rng(1)
    for _ in range(5):
        labels = rng.integers(0, graph.cardinalities)
        score = potentials.score(labels)
        assert score == pytest.approx(plain_score(graph, potentials, labels), abs=1e-9)
        indicator = ff.Beliefs.from_labels(graph, labels)
        assert potentials.dot(indicator) == pytest.approx(score, abs=1e-9)
        np.testing.assert_array_equal(indicator.argmax(), labels)
        assert indicator.unary_values.sum() == graph.n_variables
        assert indicator.factor_values.sum() == graph.n_factors


def test_dot_counts_zero_times_minus_infinity_as_zero():
    graph = ff.FactorGraph([2, 2], [(0, 1)])
    potentials = ff.Potentials(graph, [[0, -INF], None], [[[1, -INF], [-INF, 2]]])
    assert potentials.dot(ff.Beliefs.from_labels(graph, [0, 0])) == 1.0
    assert potentials.dot(ff.Beliefs.from_labels(graph, [1, 1])) == -INF


def test_argmax_takes_the_first_of_equals(graph):
    beliefs = ff.Beliefs(graph, np.array([0.5, 0.5, 0.2, 0.4, 0.4, 0.0, 1.0]), np.zeros(21))
    assert beliefs.argmax().tolist() == [0, 1, 1]
    uniform = ff.FactorGraph.chain(2, 3)
    beliefs = ff.Beliefs(uniform, np.array([0.2, 0.4, 0.4, 1.0, 0.0, 0.0]), np.zeros(9))
    assert beliefs.argmax().tolist() == [1, 0]
    assert ff.Beliefs(ff.FactorGraph([]), np.zeros(0), np.zeros(0)).argmax().tolist() == []


def test_folded_unary_adds_factors_of_arity_one():
    graph = ff.FactorGraph([2, 3], [(1,), (0, 1), (1,), (0,)])
    potentials = ff.Potentials(
        graph, [[1, 2], [3, 4, 5]], [[10, 20, -INF], None, [100, 200, 300], [7, 8]]
    )
    assert folded_unary(potentials).tolist() == [8, 10, 113, 224, -INF]
    assert potentials.unary_values.tolist() == [1, 2, 3, 4, 5]  # a new array


def test_repr(potentials):
    assert repr(potentials).startswith("Potentials(FactorGraph(3 variables")


# -- evidence -----------------------------------------------------------------------------


def test_observed_labels(graph):
    assert observed_labels(graph, None).tolist() == [-1, -1, -1]
    assert observed_labels(graph, {1: 2}).tolist() == [-1, 2, -1]
    assert observed_labels(graph, [-1, 2, 0]).tolist() == [-1, 2, 0]
    given = np.array([0, -1, -1])
    assert observed_labels(graph, given) is not given


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unary", "factors", "sentence"),
    [
        ([[0, 0]], None, "unary must have 3 tables, got 1"),
        (None, [None] * 5, "factors must have 4 tables, got 5"),
        ([[0, 0], [0, 0], None], None, r"unary\[1\] must have shape \(3,\), got \(2,\)"),
        (None, [np.zeros((3, 2)), None, None, None],
         r"factors\[0\] must have shape \(2, 3\), got \(3, 2\)"),
        (None, [None, None, None, [0.0]], r"factors\[3\] must have shape \(\), got \(1,\)"),
        ([[0, np.nan], None, None], None, r"unary\[0\] must hold log values .*, got nan"),
        ([None, None, [0, INF]], None, r"unary\[2\] must hold log values below \+inf .*, got inf"),
        (None, [None, [np.nan, 0], None, None], r"factors\[1\] must hold log values .*, got nan"),
        (None, [None, None, None, INF], r"factors\[3\] must hold log values .*, got inf"),
    ],
)  # fmt: skip
def test_bad_tables(graph, unary, factors, sentence):
    with pytest.raises(ff.InvalidInputError, match=sentence):
        ff.Potentials(graph, unary, factors)


def test_bad_arrays_for_uniform_graphs():
    grid = ff.FactorGraph.grid(2, 2, 3)
    for unary, factors, sentence in (
        (np.zeros((4, 2)), None, r"unary\[0\] must have shape \(3,\), got \(2,\)"),
        (np.zeros((5, 3)), None, "unary must have 4 tables, got 5"),
        (None, np.zeros((4, 2, 2)), r"factors\[0\] must have shape \(3, 3\), got \(2, 2\)"),
        (np.full((4, 3), np.nan), None, r"unary\[0\] must hold log values"),
        (None, np.where(np.arange(36).reshape(4, 3, 3) == 20, INF, 0.0), r"factors\[2\] must hold"),
    ):
        with pytest.raises(ff.InvalidInputError, match=sentence):
            ff.Potentials(grid, unary, factors)


def test_minus_infinity_is_legal_everywhere(graph):
    potentials = ff.Potentials.from_flat(graph, np.full(7, -INF), np.full(21, -INF))
    ff.Potentials(
        graph,
        [potentials.unary(i) for i in range(3)],
        [potentials.factor(a) for a in range(4)],
    )


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([0, 0], r"labels must be an integer array of shape \(3,\), got .*\(2,\)"),
        ([0.0, 0.0, 0.0], "labels must be an integer array .*, got dtype float64"),
        ([0, 3, 0], r"labels: the label of variable 1 must be in 0\.\.2, got 3"),
        ([0, 0, -1], r"labels: the label of variable 2 must be in 0\.\.1, got -1"),
    ],
)
def test_bad_labels(potentials, graph, labels, sentence):
    with pytest.raises(ff.InvalidInputError, match=sentence):
        potentials.score(labels)
    with pytest.raises(ff.InvalidInputError, match=sentence):
        ff.Beliefs.from_labels(graph, labels)


def test_bad_indices_and_flat_shapes(potentials, graph):
    for call, sentence in (
        (lambda: potentials.unary(3), r"variable must be in 0\.\.2, got 3"),
        (lambda: potentials.unary(-1), r"variable must be in 0\.\.2, got -1"),
        (lambda: potentials.factor(4), r"factor must be in 0\.\.3, got 4"),
        (lambda: ff.Potentials.from_flat(graph, np.zeros(6), np.zeros(21)),
         r"_values must have shapes \(7,\) and \(21,\), got \(6,\) and \(21,\)"),
        (lambda: ff.Beliefs(graph, np.zeros(7), np.zeros((3, 7))),
         r"_values must have shapes \(7,\) and \(21,\), got \(7,\) and \(3, 7\)"),
    ):  # fmt: skip
        with pytest.raises(ff.InvalidInputError, match=sentence):
            call()
