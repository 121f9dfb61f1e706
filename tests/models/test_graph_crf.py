"""`GraphCRF`: the weights it finds, and the graphs it takes."""

from __future__ import annotations

import numpy as np
import pytest
from fields import graphs, grid_edges, images, likelihood_gradient
from scipy.sparse import csr_matrix

import fieldfit as ff
from fieldfit._registry import OBJECTIVES


def twin_examples(X, Y):
    """Graphs as features, edges and labels, without the package."""
    examples = []
    for x, y in zip(X, Y, strict=True):
        values = x[2] if len(x) == 3 else [None] * len(x[1])
        edges = [("edges", i, j, v) for (i, j), v in zip(x[1], values, strict=True)]
        examples.append((np.asarray(x[0]), edges, np.asarray(y)))
    return examples


# -- the optimum --------------------------------------------------------------------------


@pytest.mark.parametrize("tying", ["full", "symmetric", "potts", "potts-labels"])
@pytest.mark.parametrize("n_edge_features", [0, 2])
def test_likelihood_is_stationary_by_enumeration(tying, n_edge_features):
    X, Y = graphs(n_edge_features=n_edge_features)
    Y[1][2] = -1
    Y[3][:] = -1  # nothing is known of this one
    crf = ff.GraphCRF("likelihood", l2=0.4, tol=1e-8, pairwise=tying).fit(X, Y)
    gradient = likelihood_gradient(
        crf.weights_, 0.4, twin_examples(X, Y), 3, tying=tying, names=("edges",)
    )
    assert crf.converged_
    assert np.abs(gradient).max() < 1e-6
    assert np.abs(crf.weights_).max() > 0.1


def test_surrogates_are_exact_on_trees():
    X, Y = graphs(n_nodes=7)
    X = [(features, edges[:-1]) for features, edges in X]  # without the edge that closes a cycle
    exact = ff.GraphCRF("likelihood", l2=0.1, tol=1e-8).fit(X, Y)
    for name in ("bethe", "trw"):
        crf = ff.GraphCRF(name, l2=0.1, tol=1e-8).fit(X, Y)
        np.testing.assert_allclose(crf.weights_, exact.weights_, atol=1e-5)


def test_a_grid_is_a_graph():
    X, Y = images()
    grid = ff.GridCRF("trw", l2=0.1, tol=1e-8, pairwise="symmetric", directions="shared").fit(X, Y)
    as_graphs = [
        (x.reshape(-1, 2), [(i, j) for _, i, j in grid_edges(*y.shape)])
        for x, y in zip(X, Y, strict=True)
    ]
    graph = ff.GraphCRF("trw", l2=0.1, tol=1e-8).fit(as_graphs, [y.ravel() for y in Y])
    np.testing.assert_allclose(graph.weights_, grid.weights_, atol=1e-6)
    for first, second in zip(graph.predict(as_graphs), grid.predict(X), strict=True):
        np.testing.assert_array_equal(first, second.ravel())


def test_direction_of_an_edge_counts_only_in_full_tables():
    X, Y = graphs()
    turned = [(features, edges[:, ::-1]) for features, edges in X]
    options = {"l2": 0.1, "tol": 1e-8}
    for tying in ("symmetric", "potts"):
        there = ff.GraphCRF("likelihood", pairwise=tying, **options).fit(X, Y)
        back = ff.GraphCRF("likelihood", pairwise=tying, **options).fit(turned, Y)
        np.testing.assert_allclose(there.weights_, back.weights_, atol=1e-8)
    there = ff.GraphCRF("likelihood", pairwise="full", **options).fit(X, Y).weight_blocks_
    back = ff.GraphCRF("likelihood", pairwise="full", **options).fit(turned, Y).weight_blocks_
    np.testing.assert_allclose(there["edges"], back["edges"].T, atol=1e-6)


@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns(name):
    X, Y = graphs(count=12, n_nodes=8, seed=2)
    crf = ff.GraphCRF(name, l2=0.1, max_iter=40).fit(X, Y)
    share = np.bincount(np.concatenate(Y)).max() / np.concatenate(Y).size
    assert crf.score(X, Y) > max(0.7, share)
    for x, beliefs in zip(X, crf.predict_marginals(X), strict=True):
        assert beliefs.shape == (len(x[0]), 3)
        np.testing.assert_allclose(beliefs.sum(axis=-1), 1.0, atol=1e-12)


# -- graphs -------------------------------------------------------------------------------


def test_sparse_features_are_dense_ones():
    X, Y = graphs()
    crf = ff.GraphCRF("trw", l2=0.1)
    dense = crf.fit(X, Y).weights_
    sparse = [(csr_matrix(features), edges) for features, edges in X]
    np.testing.assert_allclose(crf.fit(sparse, Y).weights_, dense, atol=1e-10)
    mixed = [X[0], *sparse[1:]]
    np.testing.assert_allclose(crf.fit(mixed, Y).weights_, dense, atol=1e-10)
    np.testing.assert_array_equal(
        np.concatenate(crf.predict(sparse)), np.concatenate(crf.predict(X))
    )


def test_graphs_without_edges_and_single_nodes():
    X, Y = graphs(n_edge_features=1)
    X[0] = (X[0][0], [], np.zeros((0, 1)))
    X[1] = (X[1][0], [])  # no edges, so nothing is missing
    X[2] = (X[2][0][:1], np.zeros((0, 2), dtype=int), None)
    Y[2] = Y[2][:1]
    crf = ff.GraphCRF("trw", l2=0.1).fit(X, Y)
    assert crf.weight_blocks_["edges_features"].shape == (1, 1)
    full = ff.GraphCRF("trw", l2=0.1, pairwise="symmetric").fit(X, Y)
    assert full.weight_blocks_["edges_features"].shape == (1, 6)
    assert [len(y) for y in crf.predict(X)] == [5, 5, 1, 5, 5]
    bare = [(features, []) for features, *_ in X]
    assert crf.fit(bare, Y).weight_blocks_["edges"].shape == (6,)


def test_repeated_edges_add_up():
    X, Y = graphs()
    doubled = [(features, np.repeat(edges, 2, axis=0)) for features, edges in X]
    once = ff.GraphCRF("likelihood", l2=0.1).fit(X, Y)
    twice = ff.GraphCRF("likelihood", l2=0.1).fit(doubled, Y)
    twice.weights_[:] = once.weights_
    twice.weight_blocks_["edges"][:] /= 2
    np.testing.assert_allclose(
        np.concatenate(twice.predict_marginals(doubled)),
        np.concatenate(once.predict_marginals(X)),
        atol=1e-9,
    )


# -- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((5, 2)), r"X\[1\] must be \(node_features, edges\)"),
        ((np.zeros((5, 2)),), r"X\[1\] must be \(node_features, edges\)"),
        ((np.zeros(5), [(0, 1)]), r"X\[1\]: node features must have shape \(N, F\)"),
        ((np.zeros((0, 2)), []), r"X\[1\]: node features.*at least one node"),
        ((np.full((5, 2), "a"), [(0, 1)]), r"X\[1\]: node features must be an array of real"),
        ((np.zeros((5, 3)), [(0, 1)]), r"X\[1\]: there must be 2 features"),
        ((np.full((5, 2), np.nan), [(0, 1)]), r"X\[1\]: features must be finite, got nan"),
        ((csr_matrix(np.full((5, 2), np.inf)), [(0, 1)]), r"X\[1\]: features must be finite"),
        ((np.zeros((5, 2)), [(0, 5)]), r"X\[1\]: edges must name nodes 0..4, got .0, 5. at 0"),
        ((np.zeros((5, 2)), [(-1, 2)]), r"X\[1\]: edges must name nodes 0..4, got .-1, 2. at 0"),
        ((np.zeros((5, 2)), [(2, 2)]), r"X\[1\]: edges must join two different nodes"),
        ((np.zeros((5, 2)), [(0.0, 1.0)]), r"X\[1\]: edges must be integers"),
        (
            (np.zeros((5, 2)), [(0, 1, 2)]),
            r"X\[1\]: edges must have shape \(n_edges, 2\), got \(1, 3\)",
        ),
        (
            (np.zeros((5, 2)), [(0, 1), (2,)]),
            r"X\[1\]: edges must be an array, got rows of different lengths",
        ),
        ((np.zeros((5, 2)), [(0, 1)], np.zeros((1, 3))), r"X\[1\]: edges must have 0 features"),
        ((np.zeros((5, 2)), [(0, 1)], np.zeros((2, 1))), r"X\[1\]: edge features must have shape"),
        ((np.zeros((5, 2)), [(0, 1)], [[np.nan]]), r"X\[1\]: edge features must be finite"),
    ],
)
def test_graphs_are_checked(x, message):
    X, Y = graphs()
    X[1] = x
    with pytest.raises(ff.InvalidInputError, match=message):
        ff.GraphCRF(l2=0.1).fit(X, Y)


def test_edge_features_must_not_be_forgotten():
    X, Y = graphs(n_edge_features=2)
    crf = ff.GraphCRF("trw", l2=0.1).fit(X, Y)
    with pytest.raises(ff.InvalidInputError, match=r"X\[2\]: edges must have 2 features.*got 0"):
        crf.predict([*X[:2], X[2][:2]])
