"""Batches: a disjoint union with its boundaries."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PROBLEMS, random_tables

import fieldfit as ff

GRAPHS = [p.graph for p in PROBLEMS]


@pytest.fixture
def batch():
    return ff.graph.Batch.of(GRAPHS)


def test_the_union_has_every_variable_and_factor(batch):
    union = batch.graph
    assert batch.n_examples == len(GRAPHS)
    assert union.n_variables == sum(g.n_variables for g in GRAPHS)
    assert union.n_factors == sum(g.n_factors for g in GRAPHS)
    for m, graph in enumerate(GRAPHS):
        first = batch.variable_offsets[m]
        np.testing.assert_array_equal(
            union.cardinalities[first : batch.variable_offsets[m + 1]], graph.cardinalities
        )
        for a in range(graph.n_factors):
            shifted = tuple(int(first) + i for i in graph.scope(a))
            assert union.scope(int(batch.factor_offsets[m]) + a) == shifted


def test_factor_types_are_kept():
    grid = ff.FactorGraph.grid(2, 2, 2)
    batch = ff.graph.Batch.of([grid, ff.FactorGraph.chain(2, 2), grid])
    assert batch.graph.factor_types.tolist() == [0, 0, 1, 1, 0, 0, 0, 1, 1]


def test_one_graph_is_its_own_union():
    graph = ff.FactorGraph.chain(3, 2)
    assert ff.graph.Batch.of([graph]).graph is graph


def test_pack_and_split(batch):
    packed = batch.pack([p.potentials for p in PROBLEMS])
    beliefs = ff.Beliefs(batch.graph, packed.unary_values, packed.factor_values)
    parts = batch.split(beliefs)
    assert len(parts) == len(PROBLEMS)
    for part, problem in zip(parts, PROBLEMS, strict=True):
        assert part.graph is problem.graph
        np.testing.assert_array_equal(part.unary_values, problem.potentials.unary_values)
        np.testing.assert_array_equal(part.factor_values, problem.potentials.factor_values)
    parts[2].unary_values[0] = 5.0  # views
    assert beliefs.unary_values[batch.graph.unary_offsets[batch.variable_offsets[2]]] == 5.0


def test_scores_add_up(batch):
    rng = np.random.default_rng(0)
    tables = [random_tables(rng, g) for g in GRAPHS]
    labels = [rng.integers(0, g.cardinalities) for g in GRAPHS]
    expected = sum(t.score(y) for t, y in zip(tables, labels, strict=True))
    assert batch.pack(tables).score(np.concatenate(labels)) == pytest.approx(expected)


def test_sums_and_maxima_by_example(batch):
    rng = np.random.default_rng(1)
    by_variable = rng.normal(size=batch.graph.n_variables)
    by_factor = rng.normal(size=batch.graph.n_factors)
    variables = np.split(by_variable, batch.variable_offsets[1:-1])
    factors = np.split(by_factor, batch.factor_offsets[1:-1])
    np.testing.assert_allclose(batch.sum_variables(by_variable), [v.sum() for v in variables])
    np.testing.assert_allclose(batch.sum_factors(by_factor), [f.sum() for f in factors])
    np.testing.assert_array_equal(
        batch.max_variables(by_variable), [v.max() if len(v) else 0.0 for v in variables]
    )
    np.testing.assert_array_equal(
        batch.variable_examples(),
        np.repeat(np.arange(len(GRAPHS)), [g.n_variables for g in GRAPHS]),
    )


def test_empty_examples_at_both_ends():
    empty, chain = ff.FactorGraph([]), ff.FactorGraph.chain(2, 2)
    batch = ff.graph.Batch.of([empty, chain, empty, empty, chain, empty])
    assert batch.sum_variables(np.array([1.0, 2, 3, 4])).tolist() == [0, 3, 0, 0, 7, 0]
    assert batch.sum_factors(np.array([5.0, 6])).tolist() == [0, 5, 0, 0, 6, 0]


def test_errors(batch):
    with pytest.raises(ff.InvalidInputError, match="graphs must hold at least one graph, got none"):
        ff.graph.Batch.of([])
    with pytest.raises(
        ff.InvalidInputError, match=f"potentials must have {len(GRAPHS)} entries, got 1"
    ):
        batch.pack([PROBLEMS[0].potentials])
    chain, grid = ff.FactorGraph.chain(4, 2), ff.FactorGraph.grid(2, 2, 2)
    with pytest.raises(ff.InvalidInputError, match=r"potentials\[1\] must belong to"):
        ff.graph.Batch.of([chain, grid]).pack([ff.Potentials(chain), ff.Potentials(chain)])
