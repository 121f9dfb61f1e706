"""Region graphs against their definitions: closure, counting numbers, hosts, maps, errors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from problems import PROBLEMS, random_graph
from reference.regions import (
    closed_sets,
    counting_numbers,
    four_cycles,
    has_junction_tree,
    maximal_sets,
)

import fieldfit as ff
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference.kikuchi import cluster_variation
from fieldfit.inference.kikuchi.region_graph import _KNOWN, RegionGraph

SEEDS = range(40)


def random_family(seed):
    """Sets of one to five of up to eight variables, and a graph whose factors lie in them."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    sets = [
        tuple(int(i) for i in rng.permutation(n)[: rng.integers(1, min(n, 5) + 1)])
        for _ in range(int(rng.integers(1, 7)))
    ]
    scopes = [
        tuple(int(i) for i in rng.permutation(s)[: rng.integers(0, len(s) + 1)])
        for s in sets
        for _ in range(2)
    ]
    return ff.FactorGraph(rng.integers(1, 4, n), scopes), sets


def covering(graph, sets):
    """The sets and single variables that are in none."""
    alone = set(range(graph.n_variables)) - {i for s in sets for i in s}
    return [*sets, *((i,) for i in alone)]


def scopes_of(regions):
    return [frozenset(regions.scope(r)) for r in range(regions.n_regions)]


def assert_counted_once(graph, regions):
    """Every variable and every factor is in regions whose numbers add up to one."""
    scopes, counts = scopes_of(regions), regions.counts
    for members in [{i} for i in range(graph.n_variables)] + [
        set(graph.scope(a)) for a in range(graph.n_factors) if graph.scope(a)
    ]:
        total = sum(c for scope, c in zip(scopes, counts, strict=True) if members <= scope)
        assert total == 1, members


# -- the cluster variation method ---------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_closure_and_counting_numbers(seed):
    graph, sets = random_family(seed)
    regions = RegionGraph.of(graph, sets)
    outer = maximal_sets(covering(graph, sets))
    inner = closed_sets(outer)
    scopes = scopes_of(regions)
    assert set(scopes[: regions.n_outer]) == set(outer)
    assert set(scopes[regions.n_outer :]) == set(inner)
    assert len(scopes) == len(outer) + len(inner)
    expected = counting_numbers([*outer, *inner])
    assert dict(zip(scopes, regions.counts, strict=True)) == expected
    assert_counted_once(graph, regions)


def test_the_check_of_counting_can_fail():
    graph = ff.FactorGraph.grid(3, 3, 2)
    regions = RegionGraph.of(graph)
    regions.counts[4] += 1
    with pytest.raises(AssertionError):
        assert_counted_once(graph, regions)


@pytest.mark.parametrize("seed", SEEDS)
def test_links_hosts_and_children(seed):
    graph, sets = random_family(seed)
    regions = RegionGraph.of(graph, sets)
    scopes, n_outer = scopes_of(regions), regions.n_outer
    for inner in range(regions.n_inner):
        links = regions.link_outer[regions.link_offsets[inner] : regions.link_offsets[inner + 1]]
        expected = [r for r in range(n_outer) if scopes[n_outer + inner] < scopes[r]]
        assert links.tolist() == expected
        assert len(expected) >= 2
    for a in range(graph.n_factors):
        scope = set(graph.scope(a))
        around = [r for r in range(regions.n_regions) if scope <= scopes[r]]
        if scope:
            assert regions.factor_hosts[a] == min(around, key=lambda r: len(scopes[r]))
        else:
            assert regions.factor_hosts[a] == -1
    for i in range(graph.n_variables):
        around = [r for r in range(regions.n_regions) if i in scopes[r]]
        assert regions.unary_hosts[i] == min(around, key=lambda r: len(scopes[r]))
    for r, found in enumerate(regions.children):
        below = [s for s in range(n_outer, regions.n_regions) if scopes[s] < scopes[r]]
        assert set(found) == {
            s for s in below if not any(scopes[s] < scopes[t] < scopes[r] for t in below)
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_maps_sum_tables(seed):
    """A sum over a map is a sum over axes, for links, factors (axes in any order) and variables."""
    rng = np.random.default_rng(seed)
    graph, sets = random_family(seed)
    regions = RegionGraph.of(graph, sets)

    def check(region, start, scope, run=None):
        names = regions.scope(region)
        table = rng.random([graph.cardinalities[i] for i in names])
        indices = regions.maps[start : start + table.size]
        found = np.bincount(indices, weights=table.ravel())
        letters = {i: chr(97 + k) for k, i in enumerate(names)}
        expression = "".join(letters[i] for i in names) + "->" + "".join(letters[i] for i in scope)
        np.testing.assert_allclose(found, np.einsum(expression, table).ravel(), rtol=1e-13)
        if run is not None:
            assert (indices.reshape(-1, run) == indices[::run, None]).all()

    for inner in range(regions.n_inner):
        for link in range(regions.link_offsets[inner], regions.link_offsets[inner + 1]):
            check(
                regions.link_outer[link],
                regions.link_maps[link],
                regions.scope(regions.n_outer + inner),
                regions.link_runs[link],
            )
    for i in range(graph.n_variables):
        check(regions.unary_hosts[i], regions.unary_maps[i], (i,))
    for a in range(graph.n_factors):
        if graph.scope(a):
            check(regions.factor_hosts[a], regions.factor_maps[a], graph.scope(a))


@pytest.mark.parametrize("seed", SEEDS)
def test_junction_trees_are_recognised(seed):
    graph, sets = random_family(seed)
    expected = has_junction_tree(maximal_sets(covering(graph, sets)))
    assert RegionGraph.of(graph, sets).is_acyclic == expected


def test_both_kinds_of_families_occur():
    """Otherwise the test above would not say much."""
    kinds = [RegionGraph.of(*random_family(seed)).is_acyclic for seed in SEEDS]
    assert 5 <= sum(kinds) <= len(kinds) - 5


# -- named regions ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (4, 6), (1, 5)])
def test_plaquettes_of_a_grid(shape):
    height, width = shape
    graph = ff.FactorGraph.grid(height, width, 2)
    regions = RegionGraph.of(graph, "plaquettes")
    assert_counted_once(graph, regions)
    if height > 1:
        assert regions.n_outer == (height - 1) * (width - 1)
        pixel = np.arange(height * width).reshape(height, width)
        assert scopes_of(regions)[0] == set(pixel[:2, :2].ravel().tolist())
        counts = dict(zip(scopes_of(regions), regions.counts, strict=True))
        expected = {4: 1.0, 2: -1.0, 1: 1.0}
        assert all(c == expected[len(s)] for s, c in counts.items())
    else:
        assert regions.n_outer == width - 1
        assert regions.is_acyclic


def test_plaquettes_of_a_torus():
    pixel = np.arange(20).reshape(4, 5)
    edges = [
        (int(a), int(b))
        for axis in (0, 1)
        for a, b in zip(pixel.ravel(), np.roll(pixel, -1, axis).ravel(), strict=True)
    ]
    regions = RegionGraph.of(ff.FactorGraph.from_edges(20, edges, 2))
    # 20 plaquettes, and the rings of four that go round
    assert regions.n_outer == 25
    assert_counted_once(ff.FactorGraph.from_edges(20, edges, 2), regions)


@pytest.mark.parametrize("seed", range(20))
def test_plaquettes_of_random_graphs(seed):
    rng = np.random.default_rng(seed)
    edges = [(i, j) for i in range(9) for j in range(i) if rng.random() < rng.uniform(0.2, 0.6)]
    graph = ff.FactorGraph.from_edges(9, np.array(edges).reshape(-1, 2), 2)
    regions = RegionGraph.of(graph)
    expected = maximal_sets(covering(graph, [*four_cycles(edges), *edges]))
    assert set(scopes_of(regions)[: regions.n_outer]) == set(expected)
    assert_counted_once(graph, regions)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("kind", ["bethe", "plaquettes"])
def test_named_regions_of_any_graph(kind, problem):
    regions = RegionGraph.of(problem.graph, kind)
    if kind == "bethe":
        assert regions.is_acyclic == problem.graph.is_acyclic
        linking = [a for a in range(problem.graph.n_factors) if len(problem.graph.scope(a)) >= 2]
        alone = int((problem.graph.degrees == 0).sum())
        assert regions.n_outer == len(linking) + alone
        inner = regions.counts[regions.n_outer :]
        degrees = problem.graph.degrees
        np.testing.assert_array_equal(inner, 1.0 - degrees[degrees >= 2])
        for i in range(problem.graph.n_variables):
            around = [c for r, c in enumerate(regions.counts) if i in regions.scope(r)]
            assert sum(around) == 1
    else:
        assert_counted_once(problem.graph, regions)


def test_a_large_grid_is_built_quickly():
    """No time is measured: a loop over pairs of regions would not end."""
    regions = RegionGraph.of(ff.FactorGraph.grid(100, 100, 2))
    assert (regions.n_outer, regions.n_inner) == (9801, 29008)
    assert regions.counts.sum() == 1  # plaquettes - edges + pixels inside
    assert len(regions.maps) < 1000


# -- batches ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bethe", "plaquettes"])
def test_regions_of_a_batch_are_those_of_its_examples(kind):
    graphs = [ff.FactorGraph.grid(3, 3, 2), ff.FactorGraph.chain(3, 3), ff.FactorGraph([2, 3])]
    graphs += [ff.FactorGraph.grid(3, 3, 2), random_graph(np.random.default_rng(0), 5, 6)]
    batch = ff.graph.Batch.of(graphs)
    together = RegionGraph.of_batch(batch, kind)
    direct = RegionGraph.of(batch.graph, kind)
    assert (together.n_outer, together.n_regions) == (direct.n_outer, direct.n_regions)
    assert together.is_acyclic == direct.is_acyclic
    assert sorted(together.counts) == sorted(direct.counts)
    parts = [RegionGraph.of(graph, kind) for graph in graphs]
    scopes = [
        tuple(int(i + start) for i in part.scope(r))
        for layer in (0, 1)
        for part, start in zip(parts, batch.variable_offsets, strict=False)
        for r in (range(part.n_outer) if layer == 0 else range(part.n_outer, part.n_regions))
    ]
    assert [together.scope(r) for r in range(together.n_regions)] == scopes
    for link, outer in enumerate(together.link_outer):
        inner = int(np.searchsorted(together.link_offsets, link, side="right")) - 1
        assert set(together.scope(together.n_outer + inner)) < set(together.scope(outer))
    # equal graphs share their maps
    assert len(together.maps) < sum(len(part.maps) for part in parts)


def test_regions_are_remembered_while_their_graph_lives():
    graph = ff.FactorGraph.grid(3, 4, 2)
    assert RegionGraph.of(graph) is RegionGraph.of(graph)
    assert RegionGraph.of(graph) is not RegionGraph.of(graph, "bethe")
    batch = ff.graph.Batch.of([graph, graph])
    assert RegionGraph.of_batch(batch) is RegionGraph.of_batch(batch)
    regions = weakref.ref(RegionGraph.of(graph))
    n_known = len(_KNOWN)
    del graph, batch
    gc.collect()
    assert regions() is None
    assert len(_KNOWN) <= n_known - 2


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ("loops", r"regions must be one of \('bethe', 'plaquettes'\) or lists .*, got 'loops'"),
        ([[0, 1], [2, 3]], r"scopes\[1\] = \(1, 2\) lies in none of them"),
        ([[0, 1, 2, 4]], r"regions\[0\] must name variables 0\.\.3, got \(0, 1, 2, 4\)"),
        ([[0, 1], [-1, 2]], r"regions\[1\] must name variables 0\.\.3"),
        ([[0, 1, 2, 3], []], r"regions\[1\] must name at least one variable, got none"),
        ([[0, 1, 1]], r"regions\[0\] must name distinct variables, got \(0, 1, 1\)"),
        ([0, 1], "regions must be one of"),
        ([[0.5, 1]], "regions must be one of"),
        (7, "regions must be one of"),
    ],
)
def test_bad_regions(regions, message):
    with pytest.raises(InvalidInputError, match=message):
        RegionGraph.of(ff.FactorGraph.chain(4, 2), regions)


def test_regions_of_another_graph():
    regions = RegionGraph.of(ff.FactorGraph.chain(4, 2))
    assert RegionGraph.of(ff.FactorGraph.chain(4, 2), regions) is regions
    for other in (ff.FactorGraph.chain(5, 2), ff.FactorGraph.chain(4, 3)):
        with pytest.raises(InvalidInputError, match="must be made for a graph of this structure"):
            RegionGraph.of(other, regions)


def test_too_large(monkeypatch):
    graph = ff.FactorGraph(np.full(40, 2), [(0, 1)])
    with pytest.raises(TooLargeError, match=r"a region of 40 variables needs .* 1.1e\+12 entries"):
        RegionGraph.of(graph, [range(40)])
    full = ff.FactorGraph.from_edges(12, [(i, j) for i in range(6) for j in range(6, 12)], 2)
    monkeypatch.setattr(cluster_variation, "MAX_PLAQUETTES", 100)
    with pytest.raises(TooLargeError, match="more than 100 plaquettes; give regions as lists"):
        RegionGraph.of(full)
    monkeypatch.setattr("fieldfit.inference.kikuchi.region_sets.MAX_PAIRS", 10)
    with pytest.raises(TooLargeError, match="regions overlap in"):
        RegionGraph.of(full, [range(12), [0, 1, 2]])
