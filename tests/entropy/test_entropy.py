"""Counting numbers: formulas, caching, errors, and every claim of a bound by brute force."""

from __future__ import annotations

import gc
import weakref
from itertools import combinations

import numpy as np
import pytest

from fieldfit.entropy import counting_numbers as entropy_module
from fieldfit.entropy.counting_numbers import (
    Bethe,
    Convex,
    CountingNumbers,
    Entropy,
    TreeReweighted,
)
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph

ENTROPIES = [
    Bethe(),
    TreeReweighted(),
    TreeReweighted(0.4),
    TreeReweighted("optimized"),
    Convex(),
    Convex(unary=0.0),
    Convex(unary=0.3, factor=0.5),
]


def random_graph(rng, max_arity: int = 4) -> FactorGraph:
    n_variables = int(rng.integers(1, 7))
    cardinalities = rng.integers(1, 4, n_variables)
    arities = rng.integers(0, min(max_arity, n_variables) + 1, int(rng.integers(0, 9)))
    return FactorGraph(
        cardinalities, [tuple(rng.choice(n_variables, k, replace=False)) for k in arities]
    )


def random_joint(rng, graph: FactorGraph) -> np.ndarray:
    """From nearly uniform to nearly one configuration, sometimes with zeros, often correlated."""
    shape = tuple(graph.cardinalities)
    joint = rng.gamma(10.0 ** rng.uniform(-1.5, 1), size=shape) + 1e-300
    if rng.random() < 0.3:  # all variables nearly equal: the hardest case for counting
        joint *= 1e-3
        for label in range(max(shape, default=1)):
            joint[tuple(min(label, k - 1) for k in shape)] += rng.random()
    joint[rng.random(shape) < 0.2] *= rng.integers(2)
    total = joint.sum()
    return joint / total if total > 0 else np.full(shape, 1.0 / joint.size)


def marginal_entropy(joint: np.ndarray, variables) -> float:
    rest = tuple(i for i in range(joint.ndim) if i not in variables)
    marginal = joint.sum(axis=rest)
    positive = marginal[marginal > 0]
    return float(-np.sum(positive * np.log(positive)))


def counted_entropy(numbers: CountingNumbers, graph: FactorGraph, joint: np.ndarray) -> float:
    total = 0.0
    for a in range(graph.n_factors):
        total += numbers.factor[a] * marginal_entropy(joint, graph.scope(a))
    for i in range(graph.n_variables):
        total += numbers.variable[i] * marginal_entropy(joint, (i,))
    return total


# -- formulas -----------------------------------------------------------------------------


def test_formulas():
    graph = FactorGraph([2, 3, 2, 2, 4], [(0, 1), (1, 2, 3), (0, 2), (1,), ()])
    bethe = Bethe().counting_numbers(graph)
    np.testing.assert_array_equal(bethe.factor, [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(bethe.variable, [-1, -1, -1, 0, 1])
    np.testing.assert_array_equal(bethe.variable_total, np.ones(5))
    convex = Convex(unary=0.25, factor=2.0).counting_numbers(graph)
    np.testing.assert_array_equal(convex.factor, [2, 2, 2, 0, 0])
    np.testing.assert_array_equal(convex.variable, [0.25, 0.25, 0.25, 0.25, 1])
    np.testing.assert_array_equal(convex.variable_total, [4.25, 4.25, 4.25, 2.25, 1])
    given = TreeReweighted([0.5, 0.25, 0.75, 7.0, np.nan]).counting_numbers(graph)
    np.testing.assert_array_equal(given.factor, [0.5, 0.25, 0.75, 0, 0])
    np.testing.assert_array_equal(given.variable, [-0.25, 0.25, 0, 0.75, 1])
    np.testing.assert_array_equal(given.variable_total, np.ones(5))


@pytest.mark.parametrize("entropy", ENTROPIES, ids=repr)
def test_laws_on_random_graphs(entropy):
    rng = np.random.default_rng(0)
    for _ in range(100):
        graph = random_graph(rng)
        numbers = entropy.counting_numbers(graph)
        assert numbers.factor.shape == (graph.n_factors,)
        assert numbers.variable.shape == (graph.n_variables,)
        linking = graph.arities >= 2
        assert np.all(numbers.factor[linking] > 0)
        assert np.all(numbers.factor[~linking] == 0)
        assert np.all(numbers.variable[graph.degrees == 0] == 1)
        total = numbers.variable.copy()
        for a in range(graph.n_factors):
            for i in graph.scope(a):
                total[i] += numbers.factor[a]
        np.testing.assert_allclose(numbers.variable_total, total, rtol=0, atol=1e-13)
        assert numbers.reason.endswith(".")
        assert numbers.bound is None or numbers.concave
        for array in (numbers.factor, numbers.variable, numbers.variable_total):
            assert array.dtype == np.float64
            assert not array.flags.writeable


@pytest.mark.parametrize("entropy", ENTROPIES, ids=repr)
def test_graphs_without_links(entropy):
    for graph in (FactorGraph([]), FactorGraph([3, 1]), FactorGraph([2, 2], [(0,), (), (0,)])):
        numbers = entropy.counting_numbers(graph)
        np.testing.assert_array_equal(numbers.variable, np.ones(graph.n_variables))
        assert np.all(numbers.factor == 0)
        assert numbers.bound == "exact"


# -- what is proved -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_claimed_bounds_hold_for_random_distributions(seed):
    """``H_c(mu) >= H(mu)`` for exact marginals, with equality where "exact" is claimed on trees.

    Thirty graphs for each seed, so 300 graphs in all.
    """
    rng = np.random.default_rng(seed)
    entropies = [
        Bethe(),
        TreeReweighted(),
        TreeReweighted(float(rng.uniform(0.1, 1))),
        Convex(),
        Convex(unary=float(rng.uniform(0, 1)), factor=float(rng.uniform(0.2, 1.2))),
    ]
    for _ in range(30):
        graph = random_graph(rng)
        joint = random_joint(rng, graph)
        true_entropy = marginal_entropy(joint, tuple(range(graph.n_variables)))
        for entropy in entropies:
            numbers = entropy.counting_numbers(graph)
            if numbers.bound is not None:
                assert counted_entropy(numbers, graph, joint) >= true_entropy - 1e-10


def test_default_tree_weights_are_always_a_bound():
    rng = np.random.default_rng(1)
    for _ in range(200):
        numbers = TreeReweighted().counting_numbers(random_graph(rng))
        assert numbers.bound in ("exact", "upper")
        assert numbers.concave


def test_the_check_of_bounds_can_fail():
    # all three variables equal: Bethe on a triangle counts log 2 three times and takes it thrice
    graph = FactorGraph.from_edges(3, [(0, 1), (1, 2), (2, 0)], 2)
    joint = np.zeros((2, 2, 2))
    joint[0, 0, 0] = joint[1, 1, 1] = 0.5
    numbers = Bethe().counting_numbers(graph)
    assert numbers.bound is None
    assert counted_entropy(numbers, graph, joint) < np.log(2) - 0.1
    outside = TreeReweighted(0.9).counting_numbers(graph)
    assert outside.bound is None
    assert counted_entropy(outside, graph, joint) < np.log(2) - 0.1
    few = Convex(unary=0.0, factor=0.3).counting_numbers(graph)
    assert few.bound is None
    assert "below 1" in few.reason


def test_bethe_is_exact_on_trees_of_any_arity():
    """A joint distribution that factorises on the tree has exactly Bethe's entropy."""
    rng = np.random.default_rng(2)
    graph = FactorGraph([2, 3, 2, 2, 3, 2], [(0, 1, 2), (2, 3), (3, 4), (1,), ()])
    for _ in range(20):
        joint = np.ones(tuple(graph.cardinalities))
        for a in range(graph.n_factors):
            table = rng.gamma(0.3, size=graph.table_shape(a)) + 1e-9
            scope = graph.scope(a)
            order = np.argsort(scope)
            shape = [graph.cardinalities[i] if i in scope else 1 for i in range(6)]
            joint = joint * np.transpose(table, order).reshape(shape)
        joint /= joint.sum()
        true_entropy = marginal_entropy(joint, tuple(range(6)))
        for entropy in (Bethe(), TreeReweighted(), TreeReweighted(1.0)):
            numbers = entropy.counting_numbers(graph)
            assert numbers.bound == "exact"
            value = counted_entropy(numbers, graph, joint)
            np.testing.assert_allclose(value, true_entropy, rtol=1e-12)


def test_exact_only_for_the_numbers_of_bethe():
    chain = FactorGraph.chain(4, 2)
    assert TreeReweighted(0.9).counting_numbers(chain).bound == "upper"
    assert Convex().counting_numbers(chain).bound == "upper"
    assert Convex(unary=0.0).counting_numbers(chain).bound == "upper"
    pair = FactorGraph.chain(2, 2)
    assert Convex(unary=0.0).counting_numbers(pair).bound == "exact"


@pytest.mark.parametrize(
    ("scopes", "concave"),
    [
        ([(0, 1), (1, 2), (2, 0)], True),
        ([(0, 1), (1, 2), (2, 0), (3, 4), (3, 4)], True),  # one cycle in each component
        ([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)], False),
        ([(0, 1, 2), (0, 1, 3)], True),
        ([(0, 1, 2), (0, 1, 2)], False),
    ],
)
def test_bethe_is_concave_with_at_most_one_cycle(scopes, concave):
    numbers = Bethe().counting_numbers(FactorGraph([2] * 5, scopes))
    assert numbers.concave is concave
    assert numbers.bound is None


def test_claims_of_concavity_hold_between_pseudo_marginals():
    """Midpoints of locally consistent beliefs that no joint distribution has."""
    rng = np.random.default_rng(3)

    def entropy_of(p):
        positive = p[p > 0]
        return -np.sum(positive * np.log(positive))

    for n, edges in ((3, [(0, 1), (1, 2), (2, 0)]), (4, list(combinations(range(4), 2)))):
        graph = FactorGraph.from_edges(n, edges, 2)
        for entropy in (Bethe(), TreeReweighted(), Convex(), TreeReweighted(0.5)):
            numbers = entropy.counting_numbers(graph)
            if not numbers.concave:
                continue

            def value(singles, pairs, numbers=numbers):
                total = sum(
                    c * entropy_of(p) for c, p in zip(numbers.variable, singles, strict=True)
                )
                return total + sum(
                    c * entropy_of(p) for c, p in zip(numbers.factor, pairs, strict=True)
                )

            def beliefs(n=n, edges=edges):
                q = rng.uniform(0.05, 0.95, n)
                pairs = []
                for i, j in edges:
                    low, high = max(0.0, q[i] + q[j] - 1), min(q[i], q[j])
                    both = low + (high - low) * rng.choice([0.001, 0.999, rng.random()])
                    pairs.append([1 - q[i] - q[j] + both, q[j] - both, q[i] - both, both])
                return np.stack([1 - q, q], axis=1), np.clip(pairs, 0, 1)

            for _ in range(300):
                (s, p), (t, r) = beliefs(), beliefs()
                middle = value((s + t) / 2, (p + r) / 2)
                assert middle >= (value(s, p) + value(t, r)) / 2 - 1e-10


def test_given_weights_are_proved_or_not():
    grid = FactorGraph.grid(5, 5, 2)
    assert TreeReweighted(0.5).counting_numbers(grid).bound == "upper"
    assert TreeReweighted(24 / 40).counting_numbers(grid).bound == "upper"  # all of the rank
    outside = TreeReweighted(0.61).counting_numbers(grid)
    assert outside.bound is None
    assert not outside.concave
    assert "not a mixture" in outside.reason
    triples = FactorGraph([2] * 6, list(combinations(range(6), 3)))
    assert TreeReweighted(0.1).counting_numbers(triples).bound == "upper"  # 10 around a variable
    assert TreeReweighted(0.9).counting_numbers(triples).bound is None


# -- options, errors, caching -------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TreeReweighted(0.0), r"rho must be in \(0, 1\], got 0.0"),
        (lambda: TreeReweighted(1.5), r"rho must be in \(0, 1\], got 1.5"),
        (lambda: TreeReweighted(float("nan")), r"rho must be finite and in \(0, 1\], got nan"),
        (lambda: TreeReweighted("best"), "got 'best'"),
        (lambda: TreeReweighted([[0.5]]), "rho must be None, a number"),
        (lambda: TreeReweighted(True), "rho must be None, a number"),
        (lambda: Convex(unary=-0.1), "unary must be at least 0, got -0.1"),
        (lambda: Convex(factor=0.0), "factor must be positive, got 0.0"),
        (lambda: Convex(factor=float("inf")), "factor must be finite"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_bad_weights_for_a_graph():
    graph = FactorGraph.chain(3, 2)
    with pytest.raises(InvalidInputError, match=r"rho must have shape \(2,\)"):
        TreeReweighted([0.5]).counting_numbers(graph)
    with pytest.raises(InvalidInputError, match=r"rho\[1\] must be in \(0, 1\], got -2"):
        TreeReweighted([0.5, -2.0]).counting_numbers(graph)
    with pytest.raises(InvalidInputError, match=r"rho\[0\] .* got nan"):
        TreeReweighted([np.nan, 0.5]).counting_numbers(graph)


def test_entropies_are_values():
    assert Bethe() == Bethe()
    assert Convex(0.1) == Convex(unary=0.1)
    assert TreeReweighted() == TreeReweighted(None)
    assert TreeReweighted() != TreeReweighted("optimized")
    assert TreeReweighted([0.5, 0.25]) == TreeReweighted(np.array([0.5, 0.25]))
    assert TreeReweighted([0.5, 0.25]) != TreeReweighted([0.25, 0.5])
    assert hash(TreeReweighted([0.5, 0.25])) == hash(TreeReweighted(np.array([0.5, 0.25])))
    assert TreeReweighted("optimized").is_optimized
    assert not TreeReweighted().is_optimized
    assert not TreeReweighted(0.5).is_optimized


def test_given_weights_are_copied():
    rho = np.array([0.5, 0.5])
    entropy = TreeReweighted(rho)
    rho[:] = 1.0
    np.testing.assert_array_equal(entropy.rho, [0.5, 0.5])


def test_numbers_are_computed_once_for_each_graph(monkeypatch):
    calls = []
    weights = entropy_module.tree_weights
    monkeypatch.setattr(
        entropy_module, "tree_weights", lambda graph: calls.append(graph) or weights(graph)
    )
    graph, other = FactorGraph.grid(3, 3, 2), FactorGraph.grid(3, 3, 2)
    first = TreeReweighted().counting_numbers(graph)
    assert TreeReweighted().counting_numbers(graph) is first
    assert TreeReweighted().counting_numbers(other) is not first
    assert len(calls) == 2
    for rho in np.linspace(0.1, 0.5, 20):
        TreeReweighted(rho).counting_numbers(graph)
    assert len(entropy_module._kept_numbers[graph]) <= entropy_module.MAX_CACHED


def test_kept_numbers_die_with_their_graph():
    graph = FactorGraph.grid(3, 3, 2)
    for entropy in ENTROPIES:
        entropy.counting_numbers(graph)
    reference = weakref.ref(graph)
    del graph
    gc.collect()
    assert reference() is None


def test_entropy_is_abstract():
    with pytest.raises(TypeError):
        Entropy()
