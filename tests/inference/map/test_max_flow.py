"""Minimum cuts: flows against scipy, labels against enumeration, moves against all moves."""

from __future__ import annotations

import numpy as np
import pytest
from assertions import assert_bound
from problems import HIDDEN_ZERO_WEIGHT, PROBLEMS, ZERO_WEIGHT
from reference.max_flow import best_move, best_score, shortest_paths
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import fieldfit as ff
from fieldfit.inference.map.graph_cut.boykov_kolmogorov import SIDE, SINK, SOURCE, Network, solve
from fieldfit.inference.map.graph_cut.cut_network import (
    binary_choices,
    cut_network,
    is_submodular,
    new_flow,
    new_trees,
    normal_form,
)
from fieldfit.inference.map.graph_cut.expansion_moves import _best_move as best_move_by_cut
from fieldfit.inference.map.graph_cut.expansion_moves import alpha_expansion
from fieldfit.inference.map.graph_cut.max_flow import MaxFlow

INF = np.inf

# -- the flow -----------------------------------------------------------------------------


def network_of(n_nodes, edges):
    """Both directions of every edge, sorted by the node they leave, and where each edge went."""
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    tails, heads = (
        np.concatenate([edges[:, 0], edges[:, 1]]),
        np.concatenate([edges[:, 1], edges[:, 0]]),
    )
    order = np.argsort(tails, kind="stable")
    place = np.argsort(order)
    n = len(edges)
    other = np.concatenate([place[n:], place[:n]])
    network = Network(
        offsets=np.searchsorted(tails[order], np.arange(n_nodes + 1)).astype(np.uint32),
        heads=heads[order].astype(np.uint32),
        reverses=other[order].astype(np.uint32),
    )
    return network, place[:n], place[n:]


def run_flow(n_nodes, edges, forward, backward, terminal):
    network, there, back = network_of(n_nodes, edges)
    flow, trees = new_flow(n_nodes, 2 * len(there)), new_trees(n_nodes)
    flow.residual[there], flow.residual[back] = forward, backward
    flow.terminal[:] = terminal
    solve(network, flow, trees)
    return flow, trees, (there, back)


def capacity_matrix(n_nodes, edges, forward, backward, terminal):
    """Dense, with the source and the sink as the last two nodes."""
    matrix = np.zeros((n_nodes + 2, n_nodes + 2))
    for (u, v), c, d in zip(edges, forward, backward, strict=True):
        matrix[u, v] += c
        matrix[v, u] += d
    matrix[n_nodes, :n_nodes] = np.maximum(terminal, 0)
    matrix[:n_nodes, n_nodes + 1] = np.maximum(-np.asarray(terminal), 0)
    return matrix


def check_flow(n_nodes, edges, forward, backward, terminal, value):
    """The flow has the value, is a flow, and both cuts cost as much."""
    flow, trees, (there, back) = run_flow(n_nodes, edges, forward, backward, terminal)
    assert flow.inflow.sum() == pytest.approx(value, rel=1e-12, abs=1e-12)
    assert not flow.conflict.any()
    assert (flow.residual >= 0).all()
    np.testing.assert_allclose(
        flow.residual[there] + flow.residual[back], np.add(forward, backward), rtol=1e-12
    )
    sent = np.asarray(forward) - flow.residual[there]
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    out = np.bincount(edges[:, 0], sent, n_nodes) - np.bincount(edges[:, 1], sent, n_nodes)
    np.testing.assert_allclose(out, np.asarray(terminal) - flow.terminal, atol=1e-10)
    matrix = capacity_matrix(n_nodes, edges, forward, backward, terminal)
    for is_source in (trees.node[:, SIDE] == SOURCE, trees.node[:, SIDE] != SINK):
        inside = np.concatenate([is_source, [True, False]])
        assert matrix[np.ix_(inside, ~inside)].sum() == pytest.approx(value, rel=1e-12, abs=1e-12)
    return flow


@pytest.mark.parametrize("seed", range(60))
def test_flow_equals_that_of_shortest_paths(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    edges = [rng.choice(n, 2, replace=False) for _ in range(int(rng.integers(0, 3 * n)) * (n > 1))]
    draw = rng.random if seed % 2 else (lambda size: rng.integers(0, 3, size).astype(float))
    forward, backward = draw(len(edges)), draw(len(edges))
    terminal = draw(n) - draw(n)
    matrix = capacity_matrix(n, edges, forward, backward, terminal)
    value, source_side = shortest_paths(matrix, n, n + 1)
    check_flow(n, edges, forward, backward, terminal, value)
    trees = run_flow(n, edges, forward, backward, terminal)[1]
    if seed % 2 == 0:  # the least source side is that of any maximum flow; integers do not round
        assert set(np.flatnonzero(trees.node[:, SIDE] == SOURCE)) == source_side - {n}


@pytest.mark.parametrize("seed", range(12))
def test_flow_equals_that_of_scipy(seed):
    """Integer capacities on sparse random graphs and on grids."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        graph = ff.FactorGraph.grid(int(rng.integers(10, 40)), int(rng.integers(10, 40)), 2)
        n, edges = graph.n_variables, graph.slot_variables.reshape(-1, 2)
    else:
        n = int(rng.integers(100, 800))
        edges = rng.integers(0, n, (4 * n, 2))
        edges = edges[edges[:, 0] != edges[:, 1]]
    forward, backward = rng.integers(0, 20, (2, len(edges)))
    terminal = rng.integers(-60, 61, n) * (rng.random(n) < rng.choice([0.05, 1.0]))
    rows = np.concatenate([edges[:, 0], edges[:, 1], np.full(n, n), np.arange(n)])
    columns = np.concatenate([edges[:, 1], edges[:, 0], np.arange(n), np.full(n, n + 1)])
    capacities = np.concatenate(
        [forward, backward, np.maximum(terminal, 0), np.maximum(-terminal, 0)]
    )
    sparse = csr_array((capacities.astype(np.int32), (rows, columns)), shape=(n + 2, n + 2))
    value = maximum_flow(sparse, n, n + 1).flow_value
    flow = check_flow(
        n, edges, forward.astype(float), backward.astype(float), terminal.astype(float), value
    )
    assert flow.inflow.sum() == value


def test_check_of_a_flow_can_fail():
    for value in (0.9, 1.1):
        with pytest.raises(AssertionError):
            check_flow(2, [(0, 1)], [1.0], [0.0], [2.0, -3.0], value)
    check_flow(2, [(0, 1)], [1.0], [0.0], [2.0, -3.0], 1.0)


def test_infinite_capacities_and_contradictions():
    """Nodes 0 - 1 - 2 without finite cut, next to 3 - 4 with one."""
    edges = [(0, 1), (1, 2), (3, 4)]
    terminal = [INF, 0.0, -INF, 2.0, -INF]
    flow, _, _ = run_flow(5, edges, [INF, INF, INF], [0.0, 0.0, 0.0], terminal)
    assert flow.conflict.tolist() == [1, 0, 0, 0, 0]
    assert flow.inflow.tolist() == [0, 0, 0, 2, 0]
    flow, trees, _ = run_flow(5, edges, [INF, 3.0, INF], [INF, 0.0, 0.0], terminal)
    assert not flow.conflict.any()
    assert flow.inflow.tolist() == [3, 0, 0, 2, 0]
    assert trees.node[:, SIDE].tolist() == [SOURCE, SOURCE, SINK, SINK, SINK]


def test_capacities_of_very_different_size():
    """Residuals that are only rounding neither count nor keep the search from ending."""
    rng = np.random.default_rng(5)
    graph = ff.FactorGraph.grid(30, 30, 2)
    edges = graph.slot_variables.reshape(-1, 2)
    forward, backward = 10.0 ** rng.uniform(-12, 12, (2, len(edges)))
    terminal = rng.choice([-1, 1], 900) * 10.0 ** rng.uniform(-12, 12, 900)
    flow, trees, _ = run_flow(900, edges, forward, backward, terminal)
    inside = np.append(trees.node[:, SIDE] == SOURCE, [True, False])
    matrix = capacity_matrix(900, edges, forward, backward, terminal)
    cut = matrix[np.ix_(inside, ~inside)].sum()
    assert flow.inflow.sum() == pytest.approx(cut, rel=1e-12)


# -- from tables to capacities ------------------------------------------------------------


def test_normal_form_has_the_entries_of_the_table():
    rng = np.random.default_rng(0)
    n_finite = n_hard = 0
    for _ in range(500):
        table = rng.normal(size=(2, 2))
        table[rng.random((2, 2)) < rng.choice([0.0, 0.4])] = -INF
        entries = table.ravel()
        if not is_submodular(*entries):
            assert np.isfinite(table[0, 1])
            assert np.isfinite(table[1, 0])
            continue
        constant, slope_i, slope_j, forward, backward, not_i, not_j = normal_form(*entries)
        assert forward >= 0
        assert backward >= 0
        for x, y in np.ndindex(2, 2):
            value = constant + slope_i * x + slope_j * y
            value -= forward if (x, y) == (0, 1) else backward if (x, y) == (1, 0) else 0.0
            if not_i >> x & 1 or not_j >> y & 1:
                value = -INF
            if table[x, y] == -INF:
                assert value == -INF
                n_hard += 1
            else:
                assert value == pytest.approx(table[x, y], abs=1e-12)
                n_finite += 1
    assert min(n_finite, n_hard) > 200


# -- labels -------------------------------------------------------------------------------


def submodular_model(rng, n, ties=False, zeros=0.0, one_label=False):
    """Random pairs (repeated ones too), factors of arity 0 and 1, labels in either order."""
    cardinalities = rng.integers(1, 3, n) if one_label else np.full(n, 2)
    n_pairs = int(rng.integers(0, 2 * n)) if n > 1 else 0
    scopes = [tuple(int(i) for i in rng.permutation(n)[:2]) for _ in range(n_pairs)]
    scopes += [(int(rng.integers(n)),), ()]
    graph = ff.FactorGraph(cardinalities, [scopes[k] for k in rng.permutation(len(scopes))])

    def draw(shape):
        values = rng.integers(-1, 2, shape).astype(float) if ties else rng.normal(size=shape)
        return np.array(values)

    def table(shape):
        values = draw(shape)
        if shape != (2, 2):
            return values
        if values[0, 0] + values[1, 1] < values[0, 1] + values[1, 0]:
            values = values[::-1].copy()
        if rng.random() < zeros:
            kind = rng.integers(5)
            if kind in (0, 2):
                values[0, 1] = -INF
            if kind in (1, 2):
                values[1, 0] = -INF
            if kind == 3:
                values[rng.integers(2)] = -INF
            if kind == 4:
                values[:, rng.integers(2)] = -INF
        return values

    unary = [draw((int(k),)) for k in cardinalities]
    for values in unary:
        if rng.random() < zeros / 2:
            values[rng.integers(len(values))] = -INF
    return graph, ff.Potentials(
        graph, unary, [table(graph.table_shape(a)) for a in range(len(scopes))]
    )


def check(graph, potentials, observed=None):
    """Whether the labelling is a best one; False if there is none."""
    best = best_score(graph, potentials, observed)
    if best == -INF:
        with pytest.raises(ff.errors.ZeroWeightError, match="total weight zero"):
            MaxFlow().run(graph, potentials, observed)
        return False
    result = MaxFlow().run(graph, potentials, observed)
    assert result.labels.dtype == np.int32
    assert result.score == potentials.score(result.labels) == result.upper_bound
    assert result.score == pytest.approx(best, abs=1e-9)
    assert result.optimal
    assert result.optimal_examples.all()
    assert all(result.labels[i] == y for i, y in (observed or {}).items())
    assert result.status.startswith("optimal: minimum cut")
    return True


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_labels_are_best_ones(first):
    n_possible = 0
    for seed in range(first, first + 100):
        rng = np.random.default_rng(seed)
        graph, potentials = submodular_model(
            rng,
            int(rng.integers(1, 11)),
            ties=seed % 2 == 0,
            zeros=0.3 if seed % 3 == 0 else 0.0,
            one_label=seed % 5 == 0,
        )
        observed = None
        if seed % 4 == 1:
            i = int(rng.integers(graph.n_variables))
            observed = {i: int(rng.integers(graph.cardinalities[i]))}
        n_possible += check(graph, potentials, observed)
    assert 60 <= n_possible < 100


def test_zero_potentials_take_first_labels():
    graph = ff.FactorGraph.grid(4, 5, 2)
    assert MaxFlow().run(graph, ff.Potentials(graph)).labels.tolist() == [0] * 20


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_registry_of_problems(problem):
    """Every small model is solved, or refused for what it is."""
    try:
        result = MaxFlow().run(problem.graph, problem.potentials, problem.observed)
    except ff.InvalidInputError as error:
        refusal = str(error)
    else:
        refusal = None
    if refusal is not None:
        assert refusal.startswith("factor ")
        assert "for MaxFlow" in refusal
        return
    assert result.score == problem.potentials.score(result.labels)
    assert_bound("lower", result.score, problem.best_score)
    assert_bound("upper", result.upper_bound, problem.best_score)
    if result.optimal:
        assert_bound("exact", result.score, problem.best_score)


@pytest.mark.parametrize("problem", ZERO_WEIGHT + HIDDEN_ZERO_WEIGHT, ids=str)
def test_models_without_weight(problem):
    refused = (ff.errors.ZeroWeightError, ff.InvalidInputError)
    with pytest.raises(refused, match=r"weight zero|submodular|two variables"):
        MaxFlow().run(problem.graph, problem.potentials, problem.observed)


def test_evidence_makes_a_pair_suitable():
    """A pair that would rather differ, of which one label is known."""
    graph = ff.FactorGraph.chain(3, 2)
    differ = [[0.0, 1.0], [1.0, 0.0]]
    potentials = ff.Potentials(graph, None, [differ, np.eye(2)])
    with pytest.raises(ff.InvalidInputError, match="factor 0 must be submodular"):
        MaxFlow().run(graph, potentials)
    assert MaxFlow().run(graph, potentials, {0: 1}).labels.tolist() == [1, 0, 0]


def test_batches_are_solved_like_single_graphs():
    rng = np.random.default_rng(3)
    models = [submodular_model(rng, int(rng.integers(1, 8))) for _ in range(30)]
    graph = ff.FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 3)], [3, 2, 3, 4])
    tables = [np.eye(*graph.table_shape(a)) for a in range(3)]
    unary = [rng.normal(size=k) for k in graph.cardinalities]
    models.insert(7, (graph, ff.Potentials(graph, unary, tables)))
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    potentials = batch.pack([potentials for _, potentials in models])
    together = MaxFlow().run_batch(batch, potentials)
    alone = [MaxFlow().run(*model) for model in models]
    np.testing.assert_allclose(together.scores, [r.score for r in alone], atol=1e-12)
    np.testing.assert_array_equal(together.labels, np.concatenate([r.labels for r in alone]))
    assert together.optimal_examples.tolist() == [r.optimal for r in alone]
    assert together.upper_bound == pytest.approx(sum(r.upper_bound for r in alone), abs=1e-9)
    one_bad = batch.pack([p for _, p in models])
    one_bad.factor_values[:] = -INF
    with pytest.raises(ff.errors.ZeroWeightError):
        MaxFlow().run_batch(batch, one_bad)


def test_large_grid_and_other_names_of_variables():
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(200, 200, 2)
    unary = rng.normal(size=(40000, 2))
    tables = rng.random((graph.n_factors, 1, 1)) * np.eye(2)
    result = MaxFlow().run(graph, ff.Potentials(graph, unary, tables))
    names = rng.permutation(40000)
    edges = names[graph.slot_variables.reshape(-1, 2)]
    other = ff.FactorGraph.from_edges(40000, edges, 2)
    moved = np.empty_like(unary)
    moved[names] = unary
    again = MaxFlow().run(other, ff.Potentials(other, moved, tables))
    assert again.score == pytest.approx(result.score, rel=1e-13)
    bound = ff.MaxProduct(entropy=ff.Convex(), max_iter=30).run(
        graph, ff.Potentials(graph, unary, tables)
    )
    assert bound.score <= result.score + 1e-9 <= bound.upper_bound + 1e-6


# -- moves --------------------------------------------------------------------------------


def metric_model(rng, kind, zeros=0.0):
    """Costs ``-th`` that are Potts, truncated linear, or distances of random points."""
    n, n_labels = int(rng.integers(2, 6)), int(rng.integers(3, 5))
    edges = [rng.permutation(n)[:2] for _ in range(int(rng.integers(1, 2 * n)))]
    graph = ff.FactorGraph.from_edges(n, edges, n_labels)
    labels = np.arange(n_labels)
    distance = {
        "potts": lambda: rng.random() * (1.0 - np.eye(n_labels)),
        "linear": lambda: rng.random() * np.minimum(abs(labels[:, None] - labels), 2.0),
        "points": lambda: (lambda p: np.hypot(*(p[:, :, None] - p[:, None])))(
            rng.normal(size=(2, n_labels))
        ),
    }[kind]
    unary = -rng.exponential(size=(n, n_labels))
    unary[rng.random(unary.shape) < zeros] = -INF
    unary[:, 0] = np.where(np.isneginf(unary).all(axis=1), -1.0, unary[:, 0])
    return graph, ff.Potentials(graph, unary, [-distance() for _ in edges])


@pytest.mark.parametrize("kind", ["potts", "linear", "points"])
def test_moves(kind):
    n_optimal = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph, potentials = metric_model(rng, kind, zeros=0.2 if seed % 4 == 0 else 0.0)
        result = MaxFlow().run(graph, potentials)
        start = np.array([potentials.unary(i).argmax() for i in range(graph.n_variables)])
        best = best_score(graph, potentials)
        assert result.score == potentials.score(result.labels)
        assert result.score >= potentials.score(start)
        assert_bound("lower", result.score, best)
        assert_bound("upper", result.upper_bound, best)
        assert result.converged
        for label in range(int(graph.cardinalities.max())):  # no move improves it
            move = best_move(graph, potentials, result.labels, label)
            assert result.score == pytest.approx(move, abs=1e-9)
        if kind == "potts":
            assert -result.score <= 2.0 * -best + 1e-9
        if result.optimal:
            assert result.score == pytest.approx(best, abs=1e-8)
        n_optimal += abs(result.score - best) < 1e-9
    assert n_optimal >= 45


@pytest.mark.parametrize("kind", ["potts", "linear", "points"])
def test_every_move_is_the_best_of_its_kind(kind):
    """From any labelling to any label, against the enumeration of all such moves."""
    for seed in range(40):
        rng = np.random.default_rng(1000 + seed)
        graph, potentials = metric_model(rng, kind, zeros=0.2 if seed % 4 == 0 else 0.0)
        batch, cuts = ff.graph.Batch.of([graph]), cut_network(graph, "MaxFlow")
        pairs, _ = binary_choices(graph, potentials, None, cuts.factors)
        possible = np.isfinite(potentials.unary_matrix())
        labels = np.array([rng.choice(np.flatnonzero(row)) for row in possible], dtype=np.int32)
        label = int(rng.integers(graph.cardinalities[0]))
        offered = np.where(possible[:, label], label, labels).astype(np.int32)
        flow, trees = new_flow(graph.n_variables, graph.n_slots), new_trees(graph.n_variables)
        moved, allowed = best_move_by_cut(
            batch, cuts, pairs._replace(first=labels, second=offered), flow, trees
        )
        assert allowed.all()
        assert potentials.score(moved) == pytest.approx(
            best_move(graph, potentials, labels, label), abs=1e-9
        )


def test_rounds_of_moves_end_and_say_so():
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(12, 12, 4)
    potentials = ff.Potentials(graph, rng.normal(size=(144, 4)), 0.7 * np.eye(4))
    full, short = MaxFlow().run(graph, potentials), MaxFlow(max_iter=1).run(graph, potentials)
    assert full.converged
    assert full.n_iter > 1
    assert not short.converged
    assert short.n_iter == 1
    assert short.score <= full.score <= full.upper_bound
    assert "no single move improves" in full.status
    assert short.status.startswith("stopped after 1 round")
    tighter = MaxFlow(bound_sweeps=200).run(graph, potentials)
    assert full.score <= tighter.upper_bound < full.upper_bound
    assert MaxFlow(bound_sweeps=1).run(graph, potentials).upper_bound > full.upper_bound


def test_moves_with_hard_zeros():
    """Neighbours must agree: moves lead to a labelling with weight, or say that it has none."""
    graph = ff.FactorGraph.chain(4, 3)
    equal = np.where(np.eye(3, dtype=bool), 0.0, -INF)
    unary = np.array([[0, 1, 0], [2, 0, 0], [0, 0, 3], [0, 1, 0.0]])
    result = MaxFlow().run(graph, ff.Potentials(graph, unary, [equal] * 3))
    assert result.score == 3.0
    assert result.labels.tolist() == [2] * 4
    broken = unary.copy()
    broken[0, 0] = broken[1, 1] = broken[2, 2] = -INF
    with pytest.raises(ff.errors.ZeroWeightError):
        MaxFlow().run(graph, ff.Potentials(graph, broken, [equal] * 3))


def test_variables_with_different_numbers_of_labels():
    rng = np.random.default_rng(8)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = ff.FactorGraph(
            rng.integers(1, 5, 5), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (2,)]
        )
        tables = [np.eye(*graph.table_shape(a)) for a in range(5)] + [None]
        unary = [rng.normal(size=k) for k in graph.cardinalities]
        potentials = ff.Potentials(graph, unary, tables)
        result = MaxFlow().run(graph, potentials)
        assert_bound("lower", result.score, best_score(graph, potentials))
        assert_bound("upper", result.upper_bound, best_score(graph, potentials))
        for label in range(4):
            move = best_move(graph, potentials, result.labels, label)
            assert result.score == pytest.approx(move, abs=1e-9)


def test_moves_do_not_depend_on_company():
    models = [metric_model(np.random.default_rng(seed), "potts") for seed in range(12)]
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    together = MaxFlow().run_batch(batch, batch.pack([p for _, p in models]))
    alone = [MaxFlow().run(*model) for model in models]
    np.testing.assert_array_equal(together.labels, np.concatenate([r.labels for r in alone]))
    np.testing.assert_allclose(together.scores, [r.score for r in alone], atol=1e-12)


def test_examples_that_do_not_move_keep_their_labels():
    graph, potentials = metric_model(np.random.default_rng(0), "potts")
    batch = ff.graph.Batch.of([graph, graph])
    packed = batch.pack([potentials, potentials])
    cuts = cut_network(batch.graph, "MaxFlow")
    pairs, _ = binary_choices(batch.graph, packed, None, cuts.factors)
    start = np.ones(batch.graph.n_variables, dtype=np.int32)
    moved = alpha_expansion(batch, cuts, pairs, packed, np.array([True, False]), start, 10)
    n = graph.n_variables
    assert moved.labels[n:].tolist() == [1] * n
    np.testing.assert_array_equal(moved.labels[:n], MaxFlow().run(graph, potentials).labels)


# -- refusals -----------------------------------------------------------------------------


def test_refusals_are_one_sentence():
    chain = ff.FactorGraph.chain(3, 2)
    differ = np.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(
        ff.InvalidInputError,
        match=r"^factor 1 must be submodular, .* for MaxFlow, got 0 \+ 0 < 1 \+ 1; RoofDuality",
    ):
        MaxFlow().run(chain, ff.Potentials(chain, None, [np.eye(2), differ]))
    large = ff.FactorGraph([2, 2, 2], [(0, 1), (0, 1, 2)])
    with pytest.raises(
        ff.InvalidInputError, match=r"^factor 1 must have at most two variables for MaxFlow, got 3"
    ):
        MaxFlow().run(large, ff.Potentials(large))
    many = ff.FactorGraph.chain(3, 3)
    squared = -((np.arange(3.0)[:, None] - np.arange(3.0)) ** 2)
    with pytest.raises(
        ff.InvalidInputError,
        match=r"^factor 0 must have th\(a,b\) .* got -4 \+ -?0 < -1 \+ -1 for a=0, b=2, c=1",
    ):
        MaxFlow().run(many, ff.Potentials(many, None, [squared] * 2))
    for options, sentence in (
        ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
        ({"bound_sweeps": 0}, "bound_sweeps must be an integer of at least 1"),
    ):
        with pytest.raises(ff.InvalidInputError, match=sentence):
            MaxFlow(**options).run(chain, ff.Potentials(chain))
    with pytest.raises(ff.InvalidInputError, match="potentials must belong"):
        MaxFlow().run(ff.FactorGraph.chain(4, 2), ff.Potentials(chain))


def test_rounding_does_not_make_a_pair_unsuitable():
    """0.1 + 0.2 and 0.3 differ in the last place."""
    graph = ff.FactorGraph.chain(2, 2)
    table = np.array([[0.1, 0.1 + 0.2], [0.0, 0.2]])
    assert table[0, 0] + table[1, 1] < table[0, 1] + table[1, 0] + 1e-15
    assert MaxFlow().run(graph, ff.Potentials(graph, None, [table])).optimal


@pytest.mark.parametrize("unit", [0.1, 1 / 3, 0.7])
def test_ties_up_to_rounding(unit):
    """Multiples of a number that is no binary fraction, against exact arithmetic on integers."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        graph = ff.FactorGraph.grid(*rng.integers(3, 20, 2), 2, neighbors=8 if seed % 2 else 4)
        unary = rng.integers(-3, 4, (graph.n_variables, 2)).astype(float)
        tables = rng.integers(0, 4, (graph.n_factors, 1, 1)) * np.eye(2)
        whole = MaxFlow().run(graph, ff.Potentials(graph, unary, tables))
        rounded = MaxFlow().run(graph, ff.Potentials(graph, unit * unary, unit * tables))
        assert rounded.score == pytest.approx(unit * whole.score, rel=1e-12)


def test_read_only_potentials():
    graph = ff.FactorGraph.chain(3, 2)
    tables = np.eye(2).ravel()[None].repeat(2, axis=0).ravel()
    unary = np.array([0.0, 1.0, 0, 0, 0, 0])
    tables.flags.writeable = unary.flags.writeable = False
    result = MaxFlow().run(graph, ff.Potentials.from_flat(graph, unary, tables))
    assert result.labels.tolist() == [1, 1, 1]


def test_the_network_is_kept_with_its_graph():
    graph = ff.FactorGraph.chain(3, 2)
    assert cut_network(graph, "MaxFlow") is cut_network(graph, "RoofDuality")
    assert cut_network(graph, "MaxFlow") is not cut_network(ff.FactorGraph.chain(3, 2), "MaxFlow")
