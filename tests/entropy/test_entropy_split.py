"""Splits of entropies where nothing is left for roots: Bethe's, on a component with one cycle."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.entropy.counting_numbers import CountingNumbers
from fieldfit.entropy.entropy_split import split_entropy


def single_cycle(rng, n_variables, length):
    """Pairs around a cycle, and a tree that hangs on it."""
    edges = [(i, (i + 1) % length) for i in range(length)]
    edges += [(int(rng.integers(i)), i) for i in range(length, n_variables)]
    names = rng.permutation(n_variables)
    return ff.FactorGraph.from_edges(n_variables, [(names[i], names[j]) for i, j in edges], 2)


def assert_splits(graph, atol):
    counting = ff.Bethe().counting_numbers(graph)
    assert counting.concave
    split = split_entropy(graph, counting)
    assert min(split.factor.min(), split.variable.min(), split.slot.min()) >= 0.0
    np.testing.assert_array_equal(split.factor, 0.0)
    np.testing.assert_allclose(split.factor_total, counting.factor, rtol=1e-12)
    received = np.bincount(graph.slot_variables, split.slot, graph.n_variables)
    np.testing.assert_allclose(split.variable - received, counting.variable, atol=atol)


def test_a_pair_on_a_cycle_of_two():
    """Weights of 1/2 and 1/4: the matrix of the first step would be singular to the last bit."""
    assert_splits(ff.FactorGraph([2, 2, 2], [(0, 1), (1, 2), (1, 2)]), atol=1e-9)


@pytest.mark.parametrize(("n_variables", "length"), [(4, 3), (10, 4), (100, 3), (400, 300)])
@pytest.mark.parametrize("seed", range(5))
def test_random_single_cycles(n_variables, length, seed):
    assert_splits(single_cycle(np.random.default_rng(seed), n_variables, length), atol=1e-9)


def test_larger_factors_and_several_components():
    """One cycle, none, and a variable by itself; halves that do not add up to the last bit."""
    scopes = [(0, 1, 2), (2, 1, 3), (4, 5), (5, 6, 7), (9, 10), (9, 11), (10, 11), (11,)]
    assert_splits(ff.FactorGraph([2, 3, 2, 2, 3, 2, 2, 2, 2, 3, 2, 2], scopes), atol=1e-9)


def test_a_sum_that_is_too_small_is_refused():
    """Conditional entropies cannot add up to fewer entropies than none."""
    graph = ff.FactorGraph([2, 2, 2], [(0, 1), (1, 2), (1, 2)])
    counting = CountingNumbers.of(
        graph, np.ones(3), np.array([0.0, -2.5, -1.0]), bound=None, concave=True, reason="a test"
    )
    assert split_entropy(graph, counting) is None


def test_a_run_that_stalls_on_a_cycle_is_finished():
    """Both pairs of the cycle are strong, so that a sweep gains a thousandth."""
    graph = ff.FactorGraph([2, 2, 2], [(0, 1), (1, 2), (1, 2)])
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    potentials = ff.Potentials(
        graph, [[0.3, 0.0], [0.0, 0.2], [0.1, 0.0]], [signs, 4.0 * signs, 3.5 * signs]
    )
    result = ff.SumProduct().run(graph, potentials)
    assert result.converged, result.status
    assert "which stalled" in result.status
    others = (
        ff.SumProduct(accelerate=False, max_iter=100_000, tol=1e-11),
        ff.inference.InteriorPoint(ff.Bethe()),
    )
    for other in others:
        found = other.run(graph, potentials)
        assert found.converged, found.status
        assert found.log_partition == pytest.approx(result.log_partition, rel=1e-7)
        np.testing.assert_allclose(
            found.beliefs.unary_values, result.beliefs.unary_values, atol=1e-6
        )
