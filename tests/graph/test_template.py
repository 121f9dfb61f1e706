"""Templates: a linear map and its transpose, against one dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from reference.template import dense_matrix

import fieldfit as ff
from fieldfit.graph.template import Block, Template, tie_entries

CHAIN = ff.FactorGraph.chain(5, 3)
GRID = ff.FactorGraph.grid(3, 4, 2)
TRIPLES = ff.FactorGraph([2] * 6, [(0, 1, 2), (2, 3, 4), (0, 5), (1, 5), (5, 4, 3), (2,)])
UNION = ff.graph.Batch.of([ff.FactorGraph.grid(2, 2, 3), ff.FactorGraph.grid(1, 3, 3), CHAIN]).graph


def rng():
    return np.random.default_rng(4)


def features_of(n_rows, n_features=4):
    values = rng().normal(size=(n_rows, n_features))
    values[rng().random(values.shape) < 0.5] = 0.0
    return values


def of_type(graph, factor_type, arity=2):
    return np.flatnonzero((graph.factor_types == factor_type) & (graph.arities == arity))


def generative(n_examples=3):
    """Parameters of their own for every variable and every edge; tables are the examples."""
    graph = ff.FactorGraph.chain(3, 2)
    batch = ff.graph.Batch.of([graph] * n_examples)
    union = batch.graph
    blocks = [
        Block.unary(union, variables=batch.variable_offsets[:-1] + i, name=f"variable {i}")
        for i in range(graph.n_variables)
    ]
    blocks += [
        Block.tables(union, factors=batch.factor_offsets[:-1] + a, name=f"edge {a}")
        for a in range(graph.n_factors)
    ]
    return Template(union, blocks)


TEMPLATES = {
    "constant": Template(CHAIN, [Block.unary(CHAIN), Block.tables(CHAIN)]),
    "dense features": Template(CHAIN, [Block.unary(CHAIN, features_of(5)), Block.tables(CHAIN)]),
    "sparse features": Template(
        CHAIN,
        [Block.unary(CHAIN, scipy.sparse.csr_matrix(features_of(5))), Block.tables(CHAIN, "potts")],
    ),
    "some variables": Template(
        CHAIN,
        [
            Block.unary(CHAIN, features_of(2), variables=[4, 1], name="two"),
            Block.unary(CHAIN, name="all"),
        ],
    ),
    "horizontal and vertical": Template(
        GRID,
        [
            Block.unary(GRID, features_of(12)),
            Block.tables(GRID, factors=of_type(GRID, 0), name="horizontal"),
            Block.tables(GRID, "symmetric", factors=of_type(GRID, 1), name="vertical"),
        ],
    ),
    "edge features": Template(
        GRID,
        [
            Block.tables(GRID, "full", features_of(17, 2), name="full"),
            Block.tables(GRID, "potts", features_of(17, 3), name="potts"),
            Block.tables(GRID, "symmetric", features_of(17, 1), name="symmetric"),
            Block.tables(
                GRID, "potts-labels", scipy.sparse.csr_matrix(features_of(17)), name="sparse"
            ),
        ],
    ),
    "whole table with features": Template(GRID, [Block.tables(GRID, "full", features_of(17, 2))]),
    "higher order": Template(
        TRIPLES,
        [
            Block.tables(TRIPLES, factors=[0, 1, 4], name="full"),
            Block.tables(TRIPLES, "potts", factors=[4, 0], name="equal"),
            Block.tables(TRIPLES, "symmetric", features_of(3, 2), factors=[0, 1, 4], name="counts"),
            Block.tables(TRIPLES, "potts-labels", factors=[2, 3], name="pairs"),
            Block.tables(TRIPLES, factors=[5], name="single"),
        ],
    ),
    "a batch": Template(
        UNION,
        [
            Block.unary(UNION, features_of(UNION.n_variables)),
            Block.tables(UNION, "potts", factors=of_type(UNION, 0), name="first"),
            Block.tables(UNION, "full", factors=of_type(UNION, 1), name="second"),
        ],
    ),
    "generative": generative(),
    "no weights": Template(CHAIN, []),
    "no factors": Template(
        ff.FactorGraph([2, 2]),
        [
            Block.unary(ff.FactorGraph([2, 2])),
            Block.tables(ff.FactorGraph([2, 2]), shape=(2, 2)),
        ],
    ),
}

by_template = pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())


def flat(vector):
    return np.concatenate([vector.unary_values, vector.factor_values])


def random_vector(graph, seed=5):
    generator = np.random.default_rng(seed)
    return ff.Potentials.from_flat(
        graph,
        generator.normal(size=graph.unary_offsets[-1]),
        generator.normal(size=graph.table_offsets[-1]),
    )


@by_template
def test_potentials_and_gradient_are_those_of_the_matrix(template):
    matrix = dense_matrix(template)
    weights = rng().normal(size=template.n_weights)
    np.testing.assert_allclose(flat(template.potentials(weights)), matrix @ weights, atol=1e-12)
    vector = random_vector(template.graph)
    np.testing.assert_allclose(template.gradient(vector), matrix.T @ flat(vector), atol=1e-12)


@by_template
def test_gradient_is_the_transpose(template):
    """``<Phi w, v> = <w, Phi^T v>``."""
    weights = rng().normal(size=template.n_weights)
    vector = random_vector(template.graph)
    forward = flat(template.potentials(weights)) @ flat(vector)
    assert forward == pytest.approx(weights @ template.gradient(vector), rel=1e-12, abs=1e-12)


def test_the_matrix_can_disagree():
    template = TEMPLATES["edge features"]
    matrix = dense_matrix(template)
    vector = random_vector(template.graph)
    matrix[np.flatnonzero(matrix.any(axis=1))[0]] *= 1.0001
    assert not np.allclose(template.gradient(vector), matrix.T @ flat(vector), atol=1e-12)


def test_sparse_and_dense_features_give_the_same():
    values = features_of(12)
    dense = Template(GRID, [Block.unary(GRID, values)])
    weights = rng().normal(size=dense.n_weights)
    for make in (scipy.sparse.csr_matrix, scipy.sparse.csc_matrix, scipy.sparse.coo_array):
        sparse = Template(GRID, [Block.unary(GRID, make(values))])
        np.testing.assert_allclose(
            sparse.potentials(weights).unary_values, dense.potentials(weights).unary_values
        )
        vector = random_vector(GRID)
        np.testing.assert_allclose(sparse.gradient(vector), dense.gradient(vector))


def test_generative_blocks_are_the_examples_own_sums():
    """The gradient of indicators is a table of counts."""
    template = TEMPLATES["generative"]
    labels = np.array([0, 1, 1, 0, 0, 1, 1, 1, 1])
    counts = template.split(template.gradient(ff.Beliefs.from_labels(template.graph, labels)))
    np.testing.assert_array_equal(counts["variable 0"], [2, 1])
    np.testing.assert_array_equal(counts["edge 0"], [[1, 1], [0, 1]])
    np.testing.assert_array_equal(counts["edge 1"], [[0, 1], [0, 2]])


def test_shapes_and_views():
    template = TEMPLATES["edge features"]
    weights = np.arange(template.n_weights, dtype=float)
    parts = template.split(weights)
    assert {name: part.shape for name, part in parts.items()} == {
        "full": (2, 2, 2), "potts": (3, 1), "symmetric": (1, 3), "sparse": (4, 2),
    }  # fmt: skip
    parts["full"][0, 0, 0] = 9.0
    assert weights[0] == 9.0


@pytest.mark.parametrize(
    ("shape", "tying", "groups", "parameters"),
    [
        ((2, 3), "full", [0, 1, 2, 3, 4, 5], (2, 3)),
        ((3, 3), "symmetric", [0, 1, 2, 1, 3, 4, 2, 4, 5], (6,)),
        ((2, 2), "potts", [0, -1, -1, 0], (1,)),
        ((2, 2), "potts-labels", [0, -1, -1, 1], (2,)),
        ((2, 2, 2), "symmetric", [0, 1, 1, 2, 1, 2, 2, 3], (4,)),
        ((2, 2, 2), "potts", [0, -1, -1, -1, -1, -1, -1, 0], (1,)),
    ],
)
def test_tying(shape, tying, groups, parameters):
    found, found_shape = tie_entries(shape, tying)
    assert found.tolist() == groups
    assert found_shape == parameters


def test_errors():
    mixed = ff.FactorGraph([2, 3, 2], [(0, 1), (1, 2), (0, 2), (0, 1, 2)])
    with pytest.raises(ff.InvalidInputError, match=r"tables must have one shape, got \(2, 3\) and"):
        Block.tables(mixed, factors=[0, 1])
    with pytest.raises(ff.InvalidInputError, match=r"factors must have one arity, got \[2, 3\]"):
        Block.tables(mixed)
    with pytest.raises(ff.InvalidInputError, match="needs tables whose variables have one number"):
        Block.tables(mixed, "potts", factors=[0])
    with pytest.raises(ff.InvalidInputError, match="tying must be one of 'full', 'symmetric'"):
        Block.tables(CHAIN, "half")
    with pytest.raises(ff.InvalidInputError, match=r"features must have shape \(5, n_features\)"):
        Block.unary(CHAIN, np.ones((4, 2)))
    with pytest.raises(ff.InvalidInputError, match="features must be finite"):
        Block.unary(CHAIN, np.full((5, 2), np.nan))
    with pytest.raises(ff.InvalidInputError, match="blocks must have different names"):
        Template(CHAIN, [Block.unary(CHAIN), Block.unary(CHAIN)])
    with pytest.raises(ff.InvalidInputError, match=r"weights must have shape \(3,\), got \(4,\)"):
        Template(CHAIN, [Block.unary(CHAIN)]).potentials(np.zeros(4))
