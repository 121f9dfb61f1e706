"""Forests and tree weights, against enumeration of all spanning trees and dense inverses."""

from __future__ import annotations

from itertools import combinations, islice

import numpy as np
import pytest
from scipy.sparse import diags_array
from scipy.sparse.linalg import splu

from fieldfit.entropy import effective_resistance
from fieldfit.entropy import tree_weights as tree_weights_module
from fieldfit.entropy.effective_resistance import edge_probabilities
from fieldfit.entropy.tree_weights import (
    forest_cover,
    forest_mixture,
    hyperforest_weights,
    is_mixture_of_forests,
    maximum_weight_forest,
    rooted_order,
    spanning_tree_probabilities,
    tree_weights,
)
from fieldfit.errors import InvalidInputError
from fieldfit.graph import spanning_forests as forests_module
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.spanning_forests import balanced_forests
from fieldfit.graph.structure import count_cycles
from fieldfit.numeric.selected_inverse import elimination_cost

# -- independent twins --------------------------------------------------------------------


def is_forest(graph: FactorGraph, members) -> bool:
    chosen = [graph.scope(a) for a in np.flatnonzero(members)]
    if any(len(scope) < 2 for scope in chosen):
        return False
    part = FactorGraph(graph.cardinalities, chosen)
    return count_cycles(part.n_variables, part.scope_offsets, part.slot_variables) == 0


def is_maximal(graph: FactorGraph, members) -> bool:
    for factor in np.flatnonzero(~members & (graph.arities >= 2)):
        larger = members.copy()
        larger[factor] = True
        if is_forest(graph, larger):
            return False
    return True


def n_components(n_variables: int, scopes) -> int:
    labels = list(range(n_variables))
    for scope in scopes:
        for variable in scope[1:]:
            old, new = labels[variable], labels[scope[0]]
            labels = [new if label == old else label for label in labels]
    return len(set(labels))


def spanning_forests(graph: FactorGraph) -> list[tuple[int, ...]]:
    """All spanning forests of a pairwise graph, by trying every set of edges of that size."""
    pairs = [a for a in range(graph.n_factors) if len(graph.scope(a)) == 2]
    rank = graph.n_variables - n_components(graph.n_variables, [graph.scope(a) for a in pairs])
    result = []
    for chosen in combinations(pairs, rank):
        members = np.zeros(graph.n_factors, dtype=bool)
        members[list(chosen)] = True
        if is_forest(graph, members):
            result.append(chosen)
    return result


def dense_probabilities(graph: FactorGraph) -> np.ndarray:
    """Effective resistances of a connected graph, from a dense inverse.

    ``L + 1 1' / n`` is regular, and its inverse is the pseudo-inverse of ``L`` plus ``1 1' / n``,
    which cancels in every resistance.  A pseudo-inverse must tell rounded zeros from eigenvalues.
    """
    ends = np.array([graph.scope(a) for a in range(graph.n_factors)])
    laplacian = np.zeros((graph.n_variables, graph.n_variables))
    for u, v in ends:
        laplacian[[u, v, u, v], [u, v, v, u]] += [1.0, 1.0, -1.0, -1.0]
    inverse = np.linalg.inv(laplacian + 1.0 / graph.n_variables)
    u, v = ends.T
    return inverse[u, u] + inverse[v, v] - 2 * inverse[u, v]


def random_multigraph(rng, n_variables: int, n_edges: int) -> FactorGraph:
    """Random pairs (parallel ones happen), with factors of arity 0 and 1 among them."""
    scopes = [tuple(rng.choice(n_variables, 2, replace=False)) for _ in range(n_edges)]
    scopes += [(), (int(rng.integers(n_variables)),)]
    return FactorGraph(np.full(n_variables, 2), [scopes[k] for k in rng.permutation(len(scopes))])


def random_hypergraph(rng, n_variables: int, n_factors: int, max_arity: int = 4) -> FactorGraph:
    arities = rng.integers(0, min(max_arity, n_variables) + 1, n_factors)
    scopes = [tuple(rng.choice(n_variables, k, replace=False)) for k in arities]
    return FactorGraph(np.full(n_variables, 2), scopes)


def random_cubic(rng, n_variables: int) -> FactorGraph:
    ring, pairs = rng.permutation(n_variables), rng.permutation(n_variables)
    edges = [np.stack([ring, np.roll(ring, 1)], axis=1), pairs.reshape(-1, 2)]
    return FactorGraph.from_edges(n_variables, np.concatenate(edges), 2)


SPECIAL = {
    "no variables": FactorGraph([]),
    "isolated": FactorGraph([2, 3]),
    "arity below two": FactorGraph([2, 3], [(), (1,), (1,)]),
    "one edge": FactorGraph([2, 2], [(1, 0)]),
    "parallel": FactorGraph([2, 2], [(0, 1), (1, 0), (0, 1)]),
    "repeated triple": FactorGraph([2, 2, 2], [(0, 1, 2), (2, 1, 0)]),
    "triangle and bridge": FactorGraph([2] * 5, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4,)]),
    "two triangles": FactorGraph([2] * 7, [(0, 1), (1, 2), (2, 0), (4, 5), (5, 6), (6, 4)]),
}

# -- spanning-tree probabilities ----------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_probabilities_match_enumeration_of_spanning_forests(seed):
    rng = np.random.default_rng(seed)
    graph = random_multigraph(rng, int(rng.integers(2, 7)), int(rng.integers(1, 10)))
    forests = spanning_forests(graph)
    share = np.zeros(graph.n_factors)
    for chosen in forests:
        share[list(chosen)] += 1 / len(forests)
    np.testing.assert_allclose(spanning_tree_probabilities(graph), share, rtol=0, atol=1e-12)
    np.testing.assert_allclose(tree_weights(graph), share, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "graph",
    [
        FactorGraph.grid(7, 9, 2),
        FactorGraph.grid(6, 6, 2, neighbors=8),
        FactorGraph.from_edges(12, list(combinations(range(12), 2)), 2),
        random_cubic(np.random.default_rng(0), 200),
        FactorGraph.from_edges(40, [(i, (i + 1) % 40) for i in range(40)], 2),
    ],
    ids=["grid", "grid8", "complete", "cubic", "ring"],
)
def test_probabilities_match_dense_inverse(graph):
    expected = dense_probabilities(graph)
    actual = spanning_tree_probabilities(graph)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-11)


def test_known_probabilities():
    n = 9  # complete graph: 2 / n by symmetry; ring: 1 - 1 / n; k parallel edges: 1 / k
    complete = FactorGraph.from_edges(n, list(combinations(range(n), 2)), 2)
    np.testing.assert_allclose(tree_weights(complete), 2 / n, rtol=1e-13)
    ring = FactorGraph.from_edges(n, [(i, (i + 1) % n) for i in range(n)], 2)
    np.testing.assert_allclose(tree_weights(ring), 1 - 1 / n, rtol=1e-13)
    np.testing.assert_allclose(tree_weights(SPECIAL["parallel"]), 1 / 3, rtol=1e-14)


@pytest.mark.parametrize("name", SPECIAL)
def test_weights_of_special_graphs(name):
    graph = SPECIAL[name]
    weights = tree_weights(graph)
    assert weights.shape == (graph.n_factors,)
    assert np.all((weights > 0) == (graph.arities >= 2))
    assert np.all(weights <= 1)


def test_bridges_are_exactly_one():
    rng = np.random.default_rng(5)
    for _ in range(50):
        graph = random_multigraph(rng, 8, 9)
        weights = tree_weights(graph)
        for a in np.flatnonzero(graph.arities == 2):
            rest = [graph.scope(b) for b in range(graph.n_factors) if b != a and graph.scope(b)]
            whole = [graph.scope(b) for b in range(graph.n_factors) if graph.scope(b)]
            is_bridge = n_components(8, rest) > n_components(8, whole)
            assert (weights[a] == 1.0) == is_bridge


@pytest.mark.parametrize(
    "graph",
    [
        FactorGraph.grid(80, 70, 2),
        FactorGraph.grid(2, 3000, 2),
        FactorGraph.from_edges(20_000, [(i, (i + 1) % 20_000) for i in range(20_000)], 2),
        random_cubic(np.random.default_rng(1), 2000),
        random_multigraph(np.random.default_rng(2), 500, 400),
    ],
    ids=["grid", "ladder", "long ring", "cubic", "sparse"],
)
def test_probabilities_sum_to_the_rank(graph):
    scopes = np.array([graph.scope(a) for a in np.flatnonzero(graph.arities == 2)])
    rank = int(maximum_weight_forest(graph, np.ones(graph.n_factors)).sum())
    assert len(scopes) >= rank
    weights = edge_probabilities(graph, max_cost=1e9)
    assert weights is not None
    np.testing.assert_allclose(weights.sum(), rank, rtol=1e-9)


def test_wheel_with_a_hub_is_cheap_and_exact():
    n = 3000  # spoke probabilities of a large wheel tend to 1 / sqrt(5) (golden ratio)
    rim = np.arange(1, n + 1)
    edges = np.concatenate(
        [np.stack([rim, np.roll(rim, 1)], axis=1), np.stack([0 * rim, rim], axis=1)]
    )
    weights = spanning_tree_probabilities(FactorGraph.from_edges(n + 1, edges, 2), max_cost=1e5)
    np.testing.assert_allclose(weights[n:], 1 / np.sqrt(5), rtol=1e-10)


def test_fill_that_underflows_is_not_left_out(monkeypatch):
    """On a long cycle fill falls below 1e-308, where SuperLU's factor has no entry any more."""
    found = []
    inverse = effective_resistance._inverse_entries

    def watched(factor):
        found.append(inverse(factor))
        return found[-1]

    monkeypatch.setattr(effective_resistance, "_inverse_entries", watched)
    test_wheel_with_a_hub_is_cheap_and_exact()
    assert found[0] is None
    assert np.isfinite(found[1][0]).all()
    assert np.isfinite(found[1][1]).all()


def test_both_factorisations_give_the_same_inverse():
    rng = np.random.default_rng(0)
    edges = np.array([(i, j) for i in range(40) for j in range(i) if rng.random() < 0.1])
    laplacian = effective_resistance._laplacian(edges.astype(np.int32), 40)
    laplacian += diags_array(np.full(40, 0.5))
    laplacian = laplacian.tocsc()
    dense = np.linalg.inv(laplacian.toarray())
    factors = splu(laplacian, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    ranks = factors.perm_c.astype(np.int32)
    order = np.argsort(ranks)
    for factor in (
        effective_resistance._below_diagonal(factors),
        effective_resistance._with_all_fill(laplacian, ranks),
    ):
        diagonal, below = effective_resistance._inverse_entries(factor)
        np.testing.assert_allclose(diagonal, np.diag(dense)[order], rtol=1e-12)
        columns = np.repeat(np.arange(40), np.diff(factor.starts))
        np.testing.assert_allclose(below, dense[order[factor.rows], order[columns]], rtol=1e-10)


def test_higher_arity_is_refused_by_spanning_trees():
    with pytest.raises(InvalidInputError, match="arity at most 2, got arity 3"):
        spanning_tree_probabilities(FactorGraph([2, 2, 2], [(0, 1, 2)]))


def test_too_costly_graphs_get_a_mixture_of_forests():
    graph = FactorGraph.grid(12, 12, 2)
    assert edge_probabilities(graph, max_cost=10.0) is None
    weights = spanning_tree_probabilities(graph, max_cost=10.0)
    np.testing.assert_array_equal(weights, forest_mixture(graph).mean(axis=0))
    np.testing.assert_allclose(weights.sum(), 143, rtol=1e-12)
    exact = spanning_tree_probabilities(graph)
    assert np.abs(weights - exact).max() < 0.2
    assert weights.min() > 0.4


@pytest.mark.parametrize(
    ("graph", "factor"),
    [
        (FactorGraph.grid(40, 40, 2), 3.0),
        (random_cubic(np.random.default_rng(3), 400), 1.5),
        (FactorGraph.from_edges(30, list(combinations(range(30), 2)), 2), 1.1),
    ],
    ids=["grid", "cubic", "complete"],
)
def test_estimated_cost_is_close_to_that_of_the_factorisation(graph, factor):
    from scipy.sparse.linalg import splu

    from fieldfit.entropy.effective_resistance import _laplacian

    ends = graph.slot_variables.reshape(-1, 2) - 1  # variable 0 is the ground
    matrix = _laplacian(ends.astype(np.int32), graph.n_variables - 1)
    estimate = elimination_cost(matrix.indptr, matrix.indices, 1e12)
    options = {"SymmetricMode": True}
    lower = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).L
    true_cost = float(np.sum((np.diff(lower.indptr) - 1.0) ** 2))
    assert true_cost / factor < estimate < true_cost * factor
    assert elimination_cost(matrix.indptr, matrix.indices, estimate * 0.9) == np.inf


def test_minimum_degree_has_no_fill_on_trees_and_is_exact_on_cliques():
    from fieldfit.entropy.effective_resistance import _laplacian

    rng = np.random.default_rng(8)
    tree = np.array([(i, rng.integers(i)) for i in range(1, 300)], dtype=np.int32)
    matrix = _laplacian(tree, 300)
    assert elimination_cost(matrix.indptr, matrix.indices, 1e9) == 299  # one entry per column
    clique = _laplacian(np.array(list(combinations(range(10), 2)), dtype=np.int32), 10)
    squares = sum(k**2 for k in range(10))
    assert elimination_cost(clique.indptr, clique.indices, squares) == squares
    assert elimination_cost(clique.indptr, clique.indices, squares - 1) == np.inf


# -- batches ------------------------------------------------------------------------------


def test_weights_do_not_depend_on_the_batch(monkeypatch):
    rng = np.random.default_rng(9)
    graphs = [FactorGraph.grid(4, 5, 2), FactorGraph.chain(4, 2), FactorGraph.grid(4, 5, 3)]
    graphs += [random_multigraph(rng, 7, 9) for _ in range(5)]
    graphs += [random_hypergraph(rng, 8, 10) for _ in range(5)]
    graphs += [graphs[-1], FactorGraph([3])]
    for max_cost in (1e9, 30.0):  # exact, and partly by mixtures
        monkeypatch.setattr(tree_weights_module, "MAX_COST", max_cost)
        union = tree_weights(Batch.of(graphs).graph)
        alone = np.concatenate([tree_weights(graph) for graph in graphs])
        np.testing.assert_allclose(union, alone, rtol=0, atol=1e-12)


# -- mixtures of forests ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_hyperforest_weights_are_an_average_of_forests(seed):
    rng = np.random.default_rng(seed)
    graph = random_hypergraph(rng, int(rng.integers(2, 9)), int(rng.integers(1, 12)))
    mixture = forest_mixture(graph)
    for members in np.unique(mixture, axis=0):
        assert is_forest(graph, members)
        assert is_maximal(graph, members)
    weights = hyperforest_weights(graph)
    np.testing.assert_allclose(weights, mixture.mean(axis=0), rtol=0, atol=1e-15)
    assert np.all((weights > 0) == (graph.arities >= 2))
    np.testing.assert_array_equal(weights, hyperforest_weights(graph))  # no hidden randomness


def test_hyperforest_weights_are_even_on_symmetric_graphs():
    triples = FactorGraph([2] * 8, list(combinations(range(8), 3)))
    weights = hyperforest_weights(triples)  # at most 3 disjointly joined triples on 8 variables
    np.testing.assert_allclose(weights, weights.mean(), rtol=0.15)
    assert weights.mean() > 2.7 / 56


def test_acyclic_hypergraphs_have_weight_one():
    graph = FactorGraph([2] * 8, [(0, 1, 2), (2, 3), (3, 4, 5, 6), (6,), ()])
    np.testing.assert_array_equal(tree_weights(graph), [1, 1, 1, 0, 0])


def test_many_forests_are_needed_to_cover_a_dense_graph(monkeypatch):
    graph = FactorGraph([2] * 14, list(combinations(range(14), 3)))
    monkeypatch.setattr(tree_weights_module, "MAX_VISITS", 1)  # even so, all must be covered
    assert hyperforest_weights(graph).min() > 0


def test_blocks_of_the_random_order_hold_every_factor_once(monkeypatch):
    monkeypatch.setattr(forests_module, "BLOCK", 16)
    order = forests_module._shuffled(np.arange(5, 90), np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(5, 90))
    assert order.tolist() != sorted(order.tolist())


def test_balanced_forests_follow_targets():
    graph = FactorGraph.from_edges(5, list(combinations(range(5), 2)), 2)
    targets = np.where(np.arange(10) < 4, 0.7, 0.2)  # four edges at node 0: 0.7 each, rest 0.2
    share = np.mean(list(islice(balanced_forests(graph, targets), 400)), axis=0)
    np.testing.assert_allclose(share, targets, atol=0.02)


# -- membership ---------------------------------------------------------------------------


def violates_some_set(graph: FactorGraph, rho) -> float:
    """Largest of rho(inside S) - (|S| - 1), by trying all sets (Edmonds)."""
    worst = -np.inf
    for size in range(1, graph.n_variables + 1):
        for subset in combinations(range(graph.n_variables), size):
            inside = sum(
                rho[a]
                for a in range(graph.n_factors)
                if len(graph.scope(a)) == 2 and set(graph.scope(a)) <= set(subset)
            )
            worst = max(worst, inside - (size - 1))
    return worst


@pytest.mark.parametrize("seed", range(80))
def test_membership_matches_all_subset_inequalities(seed):
    rng = np.random.default_rng(seed)
    graph = random_multigraph(rng, int(rng.integers(2, 7)), int(rng.integers(1, 12)))
    pairs = graph.arities == 2
    direction = np.where(pairs, rng.uniform(0.05, 1, graph.n_factors), 0.0)
    low, high = 0.0, 20.0  # the largest multiple inside, by bisection of the inequalities
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (low, middle)
            if violates_some_set(graph, middle * direction) > 0
            else (
                middle,
                high,
            )
        )
    assert is_mixture_of_forests(graph, direction * low) is True
    assert is_mixture_of_forests(graph, direction * (low + 1e-6)) is False


def test_membership_of_large_and_higher_arity_graphs(monkeypatch):
    rng = np.random.default_rng(4)
    graph = random_hypergraph(rng, 10, 14)
    weights = tree_weights(graph)
    assert is_mixture_of_forests(graph, weights) is True
    assert is_mixture_of_forests(graph, 0.5 * weights) is True
    members = maximum_weight_forest(graph, rng.normal(size=graph.n_factors))
    assert is_mixture_of_forests(graph, 0.5 * weights + 0.5 * members * 0.9) in (True, None)
    assert is_mixture_of_forests(graph, np.ones(graph.n_factors)) is None
    # without the exact test a mixture is built: inside it succeeds, outside it says nothing
    monkeypatch.setattr(tree_weights_module, "MAX_TEST_EDGES", 0)
    grid = FactorGraph.grid(6, 6, 2)
    rho = np.where(grid.factor_types == 0, 0.8, 0.3)  # rows nearly whole, columns seldom
    assert np.any(rho > tree_weights(grid))
    assert is_mixture_of_forests(grid, rho) is True
    assert is_mixture_of_forests(grid, np.full(grid.n_factors, 0.6)) is None


# -- maximum-weight forests, covers, rooting ----------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_maximum_weight_forest_matches_enumeration(seed):
    rng = np.random.default_rng(seed)
    graph = random_multigraph(rng, int(rng.integers(2, 7)), int(rng.integers(1, 10)))
    weights = rng.normal(size=graph.n_factors)
    members = maximum_weight_forest(graph, weights)
    assert is_forest(graph, members)
    best = max(weights[list(chosen)].sum() for chosen in spanning_forests(graph))
    np.testing.assert_allclose(weights[members].sum(), best, rtol=1e-12)


def test_maximum_weight_forest_of_higher_arity_is_a_maximal_forest():
    rng = np.random.default_rng(0)
    for _ in range(40):
        graph = random_hypergraph(rng, 8, 10)
        weights = rng.normal(size=graph.n_factors)
        members = maximum_weight_forest(graph, weights)
        assert is_forest(graph, members)
        assert is_maximal(graph, members)
        linking = np.flatnonzero(graph.arities >= 2)
        if len(linking):
            assert members[linking[np.argmax(weights[linking])]]


def test_bad_weights_and_members_are_refused():
    graph = FactorGraph.chain(3, 2)
    with pytest.raises(InvalidInputError, match="weights must be 2 numbers"):
        maximum_weight_forest(graph, [1.0])
    with pytest.raises(InvalidInputError, match="with NaN"):
        maximum_weight_forest(graph, [1.0, np.nan])
    with pytest.raises(InvalidInputError, match="members must be a boolean array"):
        rooted_order(graph, [1, 0])
    triangle = FactorGraph([2] * 4, [(0, 1), (1, 2), (2, 0), (2, 3)])
    with pytest.raises(InvalidInputError, match="close a cycle"):
        rooted_order(triangle, np.ones(4, dtype=bool))


@pytest.mark.parametrize("seed", range(40))
def test_forest_cover_and_rooting(seed):
    rng = np.random.default_rng(seed)
    graph = random_hypergraph(rng, int(rng.integers(1, 14)), int(rng.integers(0, 14)))
    cover = forest_cover(graph)
    covered = np.zeros(graph.n_factors, dtype=bool)
    for members in cover:
        assert is_forest(graph, members)
        assert is_maximal(graph, members)
        assert np.any(members & ~covered)  # none is in vain
        covered |= members
        check_rooting(graph, members)
    np.testing.assert_array_equal(covered, graph.arities >= 2)


@pytest.mark.parametrize("name", SPECIAL)
def test_forest_cover_of_special_graphs(name):
    graph = SPECIAL[name]
    for members in forest_cover(graph):
        check_rooting(graph, members)
    check_rooting(graph, np.zeros(graph.n_factors, dtype=bool))


def check_rooting(graph: FactorGraph, members) -> None:
    rooted = rooted_order(graph, members)
    assert sorted(rooted.variables.tolist()) == list(range(graph.n_variables))
    assert sorted(rooted.factors.tolist()) == np.flatnonzero(members).tolist()
    assert np.all(np.diff(rooted.factor_depths[rooted.factors]) >= 0)
    assert np.all(np.diff(rooted.variable_depths[rooted.variables]) >= 0)
    assert np.all(rooted.up_slots[~members] == -1)
    assert np.all(rooted.factor_depths[~members] == -1)
    place = np.empty(graph.n_variables, dtype=int)
    place[rooted.variables] = np.arange(graph.n_variables)
    children = np.zeros(graph.n_variables, dtype=int)
    for a in rooted.factors:
        up = rooted.up_slots[a]
        assert graph.slot_factors[up] == a
        parent = graph.slot_variables[up]
        assert rooted.factor_depths[a] == rooted.variable_depths[parent]
        for slot in range(graph.scope_offsets[a], graph.scope_offsets[a + 1]):
            if slot != up:
                child = graph.slot_variables[slot]
                assert rooted.parent_slots[child] == slot
                assert rooted.variable_depths[child] == rooted.factor_depths[a] + 1
                assert place[child] > place[parent]
                children[child] += 1
    np.testing.assert_array_equal(children, rooted.parent_slots >= 0)
    assert np.all(rooted.variable_depths[rooted.parent_slots < 0] == 0)


def test_roots_are_centres():
    chain = FactorGraph.chain(101, 2)
    rooted = rooted_order(chain, np.ones(100, dtype=bool))
    assert rooted.variable_depths.max() == 50
    rng = np.random.default_rng(3)
    for _ in range(30):  # against the least eccentricity, by all distances
        n = int(rng.integers(2, 25))
        tree = FactorGraph.from_edges(n, [(i, rng.integers(i)) for i in range(1, n)], 2)
        distance = np.full((n, n), n)
        np.fill_diagonal(distance, 0)
        for u, v in tree.slot_variables.reshape(-1, 2):
            distance[u, v] = distance[v, u] = 1
        for k in range(n):
            distance = np.minimum(distance, distance[:, k : k + 1] + distance[k])
        rooted = rooted_order(tree, np.ones(n - 1, dtype=bool))
        assert rooted.variable_depths.max() == distance.max(axis=1).min()


def test_grid_is_covered_by_two_shallow_trees():
    grid = FactorGraph.grid(41, 41, 2)
    cover = forest_cover(grid)
    assert len(cover) == 2
    assert rooted_order(grid, cover[0]).variable_depths.max() == 40
