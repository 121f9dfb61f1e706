"""Exact inference and exact MAP: against enumeration, transfer matrices and reference answers."""

from __future__ import annotations

import math
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldfit.errors import InvalidInputError, TooLargeError, ZeroWeightError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.brute_force import BruteForce
from fieldfit.inference.junction_tree.clique_tables import MAX_LANES
from fieldfit.inference.junction_tree.elimination_order import Budget, find_plan
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.map.exact_map import ExactMap
from fieldfit.io.uai import read_uai
from fieldfit.io.uai_answers import read_answer, read_evidence

DATA = os.environ.get("FIELDFIT_DATA")


# -- models -------------------------------------------------------------------------------


def random_potentials(rng, graph, zeros=0.0, scale=1.0):
    def values(count):
        return np.where(rng.random(count) < zeros, -np.inf, scale * rng.normal(size=count))

    return Potentials.from_flat(
        graph, values(graph.unary_offsets[-1]), values(graph.table_offsets[-1])
    )


def random_model(seed):
    """Arity 0 to 4, cardinality 1 to 5, repeated scopes, isolated variables, zeros, evidence."""
    rng = np.random.default_rng(seed)
    n_variables = int(rng.integers(0, 8))
    cardinalities = rng.integers(1, 6, n_variables)
    while np.prod(cardinalities) > 20_000:
        cardinalities = np.maximum(cardinalities - 1, 1)
    scopes = []
    for _ in range(int(rng.integers(0, 2 * n_variables + 2))):
        arity = min(int(rng.integers(0, 5)), n_variables)
        scopes.append(tuple(int(i) for i in rng.permutation(n_variables)[:arity]))
    scopes += scopes[:1]
    graph = FactorGraph(cardinalities, scopes)
    zeros = float(rng.choice([0.0, 0.1, 0.3]))
    potentials = random_potentials(rng, graph, zeros, scale=float(rng.choice([1.0, 5.0])))
    chosen = np.flatnonzero(rng.random(n_variables) < 0.2)
    observed = {int(i): int(rng.integers(cardinalities[i])) for i in chosen}
    return graph, potentials, observed


def random_edges(rng, n_variables, n_edges):
    pairs = np.sort(rng.integers(0, n_variables, size=(2 * n_edges, 2)), axis=1)
    return np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)[:n_edges]


def assert_same_answer(result, reference, tolerance):
    np.testing.assert_allclose(
        result.log_partition, reference.log_partition, rtol=0, atol=tolerance
    )
    for values, expected in (
        (result.beliefs.unary_values, reference.beliefs.unary_values),
        (result.beliefs.factor_values, reference.beliefs.factor_values),
    ):
        np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)


# -- enumeration --------------------------------------------------------------------------


def test_enumeration_by_hand():
    graph = FactorGraph([2, 2], [(1, 0), (1,), ()])
    tables = [np.log([[1.0, 2.0], [3.0, 4.0]]), np.log([1.0, 5.0]), np.array(math.log(7.0))]
    result = BruteForce().run(graph, Potentials(graph, [np.log([1.0, 10.0]), None], tables))
    # weights of (y0, y1), times 7: 1, 15, 20, 200
    total = 7.0 * (1 + 15 + 20 + 200)
    np.testing.assert_allclose(result.log_partition, math.log(total), rtol=1e-14)
    np.testing.assert_allclose(result.beliefs.unary(0), [16 / 236, 220 / 236], rtol=1e-14)
    expected = np.array([[1, 20], [15, 200]]) / 236
    np.testing.assert_allclose(result.beliefs.factor(0), expected, rtol=1e-14)
    np.testing.assert_allclose(result.beliefs.factor(1), [21 / 236, 215 / 236], rtol=1e-14)
    assert result.beliefs.factor(2) == pytest.approx(1.0)
    assert (result.bound, result.converged, result.n_iter, result.residual) == ("exact", True, 1, 0)


def test_enumeration_lists_scores_and_configurations_in_one_order():
    graph, potentials, observed = random_model(5)
    scores = BruteForce().scores(graph, potentials, observed)
    configurations = BruteForce().configurations(graph, observed)
    assert len(np.unique(configurations, axis=0)) == len(scores)
    for labels, score in zip(configurations, scores, strict=True):
        np.testing.assert_allclose(potentials.score(labels), score, rtol=1e-12)
        assert all(labels[i] == label for i, label in observed.items())


def test_enumeration_refuses_and_counts():
    graph = FactorGraph.chain(23, 2)
    with pytest.raises(TooLargeError, match=r"4194304 configurations, the model has 8388608"):
        BruteForce().run(graph, Potentials(graph))
    graph = FactorGraph.chain(2000, 2)  # the number itself is beyond floating point
    with pytest.raises(TooLargeError, match=r"about 10\*\*602"):
        BruteForce().run(graph, Potentials(graph))


# -- the clique tree against enumeration ----------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_random_models_match_enumeration(seed):
    graph, potentials, observed = random_model(seed)
    try:
        reference = BruteForce().run(graph, potentials, observed)
    except ZeroWeightError:
        for method in (Exact(), ExactMap()):
            with pytest.raises(ZeroWeightError, match="weight"):
                method.run(graph, potentials, observed)
        return
    assert_same_answer(Exact().run(graph, potentials, observed), reference, tolerance=1e-10)
    best = ExactMap().run(graph, potentials, observed)
    scores = BruteForce().scores(graph, potentials, observed)
    np.testing.assert_allclose(best.score, scores.max(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(best.upper_bound, best.score, rtol=0, atol=1e-10)
    assert best.score == potentials.score(best.labels)
    assert best.optimal
    assert all(best.labels[i] == label for i, label in observed.items())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("zeros", [0.0, 0.02])
def test_clusters_of_many_rows_match_enumeration(seed, zeros):
    """Dense graphs, whose clusters are far larger than the lanes of one row."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        graph = FactorGraph.from_edges(17, random_edges(rng, 17, 90), 2)
    else:
        scopes = [tuple(int(i) for i in rng.permutation(9)[: 2 + k % 3]) for k in range(24)]
        graph = FactorGraph(rng.integers(3, 5, 9), scopes)
    potentials = random_potentials(rng, graph, zeros)
    observed = {3: 1} if seed % 3 else None
    result = Exact().run(graph, potentials, observed)
    assert result.diagnostics["n_operations"] > 8 * MAX_LANES
    assert_same_answer(result, BruteForce().run(graph, potentials, observed), tolerance=1e-10)
    scores = BruteForce().scores(graph, potentials, observed)
    best = ExactMap().run(graph, potentials, observed)
    np.testing.assert_allclose(best.score, scores.max(), rtol=0, atol=1e-10)


def test_cardinality_beyond_the_lanes():
    rng = np.random.default_rng(0)
    graph = FactorGraph([700, 3, 300, 2], [(0, 1), (1, 3), (3, 2)])
    potentials = random_potentials(rng, graph, zeros=0.2)
    assert_same_answer(
        Exact().run(graph, potentials), BruteForce().run(graph, potentials), tolerance=1e-10
    )


def test_read_only_potentials():
    graph = FactorGraph([2, 3, 2], [(0, 1), (2, 1), (1,)])
    potentials = random_potentials(np.random.default_rng(3), graph)
    potentials.factor_values.flags.writeable = False
    potentials.unary_values.flags.writeable = False
    assert Exact().run(graph, potentials).bound == "exact"


def test_empty_graph():
    graph = FactorGraph([], [])
    result = Exact().run(graph, Potentials(graph))
    assert result.log_partition == 0.0
    assert ExactMap().run(graph, Potentials(graph)).labels.shape == (0,)
    graph = FactorGraph([], [()])
    assert Exact().run(graph, Potentials(graph, None, [np.array(2.5)])).log_partition == 2.5


def test_everything_observed():
    graph = FactorGraph([2, 3, 1, 2], [(0, 1), (3, 1, 2), (1,), ()])
    potentials = random_potentials(np.random.default_rng(11), graph)
    labels = np.array([1, 2, 0, 1])
    result = Exact().run(graph, potentials, labels)
    np.testing.assert_allclose(result.log_partition, potentials.score(labels), rtol=1e-12)
    assert set(np.unique(result.beliefs.factor_values)) <= {0.0, 1.0}


def test_zero_weight_seen_only_by_propagation():
    """Three variables of two labels that must all differ: no single table forbids everything."""
    graph = FactorGraph.from_edges(3, [(0, 1), (1, 2), (0, 2)], 2)
    differ = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)
    for method in (Exact(), ExactMap(), BruteForce()):
        with pytest.raises(ZeroWeightError, match="positive weight"):
            method.run(graph, Potentials(graph, None, [differ] * 3))


def test_potentials_of_another_graph():
    graph = FactorGraph.chain(3, 2)
    for method in (Exact(), ExactMap(), BruteForce()):
        with pytest.raises(InvalidInputError, match="potentials must belong"):
            method.run(graph, Potentials(FactorGraph.chain(4, 2)))


# -- beyond enumeration -------------------------------------------------------------------


def test_long_chain_matches_forward_backward():
    n_variables, n_labels = 100_000, 3
    graph = FactorGraph.chain(n_variables, n_labels)
    potentials = random_potentials(np.random.default_rng(1), graph)
    unary = np.exp(potentials.unary_values.reshape(n_variables, n_labels))
    pair = np.exp(potentials.factor_values.reshape(-1, n_labels, n_labels))
    forward = np.empty((n_variables, n_labels))
    backward = np.ones((n_variables, n_labels))
    log_partition = 0.0
    forward[0] = unary[0]
    for t in range(1, n_variables):
        forward[t - 1] /= (total := forward[t - 1].sum())
        log_partition += math.log(total)
        forward[t] = (forward[t - 1] @ pair[t - 1]) * unary[t]
    log_partition += math.log(forward[-1].sum())
    for t in range(n_variables - 2, -1, -1):
        backward[t] = pair[t] @ (unary[t + 1] * backward[t + 1])
        backward[t] /= backward[t].sum()
    marginals = forward * backward
    marginals /= marginals.sum(axis=1, keepdims=True)
    result = Exact().run(graph, potentials)
    np.testing.assert_allclose(result.log_partition, log_partition, rtol=1e-12)
    values = result.beliefs.unary_values.reshape(n_variables, n_labels)
    np.testing.assert_allclose(values, marginals, rtol=0, atol=1e-11)
    assert result.diagnostics["width"] == 1


@pytest.mark.parametrize("n_columns", [9, 12])
def test_grid_matches_transfer_matrix(n_columns):
    """Ising strip without field: log Z by powers of the matrix between neighbouring columns."""
    height, coupling = 6, 0.4
    graph = FactorGraph.grid(height, n_columns, 2)
    spins = np.array([[coupling, -coupling], [-coupling, coupling]])
    states = 1 - 2 * ((np.arange(2**height)[:, None] >> np.arange(height)) & 1)
    inside = np.exp(coupling * (states[:, 1:] * states[:, :-1]).sum(axis=1))
    between = np.exp(coupling * states @ states.T) * inside
    total = inside @ np.linalg.matrix_power(between.T, n_columns - 1).sum(axis=0)
    result = Exact().run(graph, Potentials(graph, None, [spins] * graph.n_factors))
    np.testing.assert_allclose(result.log_partition, math.log(total), rtol=1e-13)
    np.testing.assert_allclose(result.beliefs.unary_values, 0.5, atol=1e-12)


@pytest.mark.parametrize("kind", ["star", "tree", "two hubs", "strip"])
def test_large_sparse_graphs(kind):
    rng = np.random.default_rng(2)
    n = 30_000
    if kind == "star":
        graph = FactorGraph.from_edges(n, np.stack([np.zeros(n - 1, int), np.arange(1, n)], 1), 2)
    elif kind == "tree":
        graph = FactorGraph.from_edges(
            n, np.stack([rng.integers(0, np.arange(1, n)), np.arange(1, n)], 1), 2
        )
    elif kind == "two hubs":
        leaves = np.arange(2, n)
        edges = [np.stack([np.full(n - 2, hub), leaves], 1) for hub in (0, 1)]
        graph = FactorGraph.from_edges(n, np.concatenate(edges), 2)
    else:
        graph = FactorGraph.grid(4, n // 4, 2)
    potentials = random_potentials(rng, graph)
    result = Exact().run(graph, potentials)
    assert result.diagnostics["width"] <= {"star": 1, "tree": 1, "two hubs": 2, "strip": 6}[kind]
    factors = result.beliefs.factor_values.reshape(-1, 2, 2)
    unary = result.beliefs.unary_values.reshape(-1, 2)
    scopes = graph.slot_variables.reshape(-1, 2)
    np.testing.assert_allclose(factors.sum(axis=2), unary[scopes[:, 0]], rtol=0, atol=1e-10)
    np.testing.assert_allclose(factors.sum(axis=1), unary[scopes[:, 1]], rtol=0, atol=1e-10)
    # Fenchel: A = <th, tau> + H; for trees the entropy is that of Bethe
    if kind in ("star", "tree"):
        degrees = np.bincount(scopes.ravel(), minlength=n)
        entropy = -(factors * np.log(factors)).sum()
        entropy += ((degrees - 1)[:, None] * unary * np.log(unary)).sum()
        value = potentials.dot(result.beliefs) + entropy
        np.testing.assert_allclose(value, result.log_partition, rtol=1e-11)
    best = ExactMap().run(graph, potentials)
    np.testing.assert_allclose(best.score, best.upper_bound, rtol=1e-12)


def test_evidence_lowers_the_width():
    graph = FactorGraph.grid(20, 20, 2)
    separators = {20 * row + column: 0 for row in range(20) for column in (4, 9, 14)}
    assert Exact().memory(graph, separators) < 0.05 * Exact().memory(graph)


# -- cost ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["grid", "dense", "chain"])
def test_memory_is_predicted(kind):
    if kind == "grid":
        graph = FactorGraph.grid(16, 16, 2)
    elif kind == "dense":
        graph = FactorGraph.from_edges(34, [(i, 17 + j) for i in range(17) for j in range(17)], 2)
    else:
        graph = FactorGraph.chain(5000, 20)
    potentials = random_potentials(np.random.default_rng(0), graph)
    predicted = Exact().memory(graph)
    tracemalloc.start()
    try:
        Exact().run(graph, potentials)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.8 * peak <= predicted <= 1.2 * peak


def test_refusal_states_memory_and_width():
    graph = FactorGraph.grid(14, 14, 2)
    needed = Exact().memory(graph)
    assert Exact(max_memory=needed).run(graph, Potentials(graph)).bound == "exact"
    for method in (Exact(max_memory=2e5), ExactMap(max_memory=2e5)):
        with pytest.raises(TooLargeError, match=r"GB .* \(width \d+\), .* max_memory 0.0002 GB"):
            method.run(graph, Potentials(graph))


def test_huge_treewidth_is_refused_early():
    graph = FactorGraph.grid(300, 300, 2)
    with pytest.raises(TooLargeError, match="at least"):
        Exact().run(graph, Potentials(graph))
    assert Exact().memory(graph) > 4e9


def test_one_huge_clique_is_refused_by_its_operations():
    graph = FactorGraph.from_edges(60, np.stack(np.triu_indices(60, 1), 1), 2)
    with pytest.raises(TooLargeError, match=r"1.15e\+18 operations"):
        Exact().run(graph, Potentials(graph))


def test_dense_graph_is_refused_before_its_triangles_are_counted():
    graph = FactorGraph.from_edges(1200, np.stack(np.triu_indices(1200, 1), 1), 2)
    with pytest.raises(TooLargeError, match=r"at least .* \(width 1199\)"):
        Exact().run(graph, Potentials(graph))


def test_restarts_only_help():
    graph = FactorGraph.grid(17, 17, 2)
    labels = np.full(graph.n_variables, -1, dtype=np.int32)
    costs = [
        find_plan(graph, labels, Budget(4e9, 1e11, n_restarts, 0)).n_operations
        for n_restarts in (1, 4, 40)
    ]
    assert costs[0] >= costs[1] >= costs[2]
    assert costs[2] < costs[0]


def test_answer_does_not_depend_on_the_order():
    rng = np.random.default_rng(8)
    graph = FactorGraph.from_edges(60, random_edges(rng, 60, 110), 3)
    potentials = random_potentials(rng, graph)
    first, second = (
        Exact(random_state=seed, n_restarts=1).run(graph, potentials) for seed in (0, 1)
    )
    assert_same_answer(first, second, tolerance=1e-10)


# -- reference answers of the UAI 2014 competition ------------------------------------------

#: Models that take less than a second each; the others take up to seven (DBN_13, 1.4 GB).
FAST_MODELS = [
    "Alchemy_11", "CSP_12", "Grids_11", "Grids_13", "ObjectDetection_51", "Pedigree_12",
    "Promedus_15", "Promedus_22", "Promedus_27", "Promedus_30", "Segmentation_11",
    "Segmentation_13", "Segmentation_15", "linkage_16",
]  # fmt: skip


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="FIELDFIT_DATA does not name the folder of the data sets")
@pytest.mark.parametrize("name", FAST_MODELS)
def test_reference_answers(name):
    path = Path(DATA) / "uai2014" / "mar_pr" / f"{name}.uai"
    graph, potentials = read_uai(path)
    observed = read_evidence(Path(f"{path}.evid"))
    result = Exact().run(graph, potentials, observed)
    printed = Path(f"{path}.PR").read_text().split()[1]
    # the answers have six significant digits: half a unit of the last one
    half_unit = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    reference = float(printed)
    log10_partition = result.log_partition / math.log(10.0)
    np.testing.assert_allclose(log10_partition, reference, rtol=0, atol=1.001 * half_unit)
    marginals = read_answer(Path(f"{path}.MAR")).marginals
    assert len(marginals) == graph.n_variables
    for i, expected in enumerate(marginals):
        np.testing.assert_allclose(result.beliefs.unary(i), expected, rtol=0, atol=1e-5)
