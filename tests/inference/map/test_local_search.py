"""Tree moves, fusion moves and local search against enumeration and slow twins."""

from __future__ import annotations

import numpy as np
import pytest
from assertions import assert_bound
from problems import ising, random_graph, random_tables
from reference.local_search import best_on_free, components, has_cycle, score

import fieldfit as ff
from fieldfit.graph.potentials import observed_labels
from fieldfit.inference.map.fusion_moves import fuse_by_roof_duality, fuse_components
from fieldfit.inference.map.local_search import search_labels, search_rounds, soft_model
from fieldfit.inference.map.tree_moves import grow_forest, label_forest, new_forest


def random_model(seed, max_arity=3, zeros=None):
    """A small random model, its evidence, and labels that agree with it."""
    rng = np.random.default_rng(seed)
    graph = random_graph(
        rng, int(rng.integers(2, 7)), int(rng.integers(1, 9)), max_arity, max_labels=3
    )
    kept = rng.integers(0, graph.cardinalities)
    share = 0.25 * (seed % 2) if zeros is None else zeros
    potentials = random_tables(rng, graph, scale=2.0, zeros=share, kept=kept)
    observed = {0: int(kept[0])} if seed % 3 == 0 else None
    evidence = observed_labels(graph, observed)
    labels = np.where(evidence >= 0, evidence, rng.integers(0, graph.cardinalities))
    return rng, graph, potentials, evidence, labels.astype(np.int32)


def fused(graph, model, labels, other):
    """Fusion by components: new labels and the gain."""
    new, scratch = labels.copy(), other.copy()
    parents, gains = np.empty(len(labels), dtype=np.int32), np.empty(len(labels))
    gain = fuse_components(model.structure, model.unary, model.tables, new, scratch, parents, gains)
    assert np.array_equal(new, scratch)
    return new, gain


@pytest.mark.parametrize("block", range(5))
def test_tree_moves_are_the_best_of_all_labels_of_a_maximal_forest(block):
    for seed in range(100 * block, 100 * block + 100):
        rng, graph, potentials, evidence, labels = random_model(seed)
        model = soft_model(graph, potentials, evidence)
        order = rng.permutation(np.flatnonzero(model.movable)).astype(np.int32)
        forest = new_forest(graph.structure)
        n_free, n_factors = grow_forest(graph.structure, order, forest)
        free = np.flatnonzero(forest.is_free)
        assert len(free) == n_free
        assert not has_cycle(graph, set(free))
        for i in set(order) - set(free):
            assert has_cycle(graph, {*free, i})
        before = score(graph, model.unary, model.tables, labels)
        moved = labels.copy()
        label_forest(graph.structure, model.unary, model.tables, moved, forest, n_free, n_factors)
        assert np.array_equal(np.delete(moved, free), np.delete(labels, free))
        after = score(graph, model.unary, model.tables, moved)
        best = best_on_free(graph, model.unary, model.tables, labels, free)
        assert after == pytest.approx(best, rel=1e-12, abs=1e-9)
        assert_bound("upper", after, before)


@pytest.mark.parametrize("block", range(5))
def test_fusion_takes_the_best_of_every_component(block):
    for seed in range(100 * block, 100 * block + 100):
        rng, graph, potentials, evidence, labels = random_model(seed)
        model = soft_model(graph, potentials, evidence)
        other = np.where(evidence >= 0, evidence, rng.integers(0, graph.cardinalities))
        other = other.astype(np.int32)
        expected = before = score(graph, model.unary, model.tables, labels)
        for members in components(graph, labels, other):
            changed = labels.copy()
            changed[list(members)] = other[list(members)]
            expected += max(0.0, score(graph, model.unary, model.tables, changed) - before)
        new, gain = fused(graph, model, labels, other)
        after = score(graph, model.unary, model.tables, new)
        assert after == pytest.approx(expected, rel=1e-12, abs=1e-9)
        assert before + gain == pytest.approx(after, rel=1e-12, abs=1e-9)


def test_fusion_by_roof_duality_is_never_worse_than_either():
    n_gains = 0
    for seed in range(300):
        rng, graph, potentials, evidence, labels = random_model(seed, max_arity=2)
        model = soft_model(graph, potentials, evidence)
        other = np.where(evidence >= 0, evidence, rng.integers(0, graph.cardinalities))
        first, second = sorted(
            (labels, other.astype(np.int32)),
            key=lambda y: score(graph, model.unary, model.tables, y),
        )
        new = fuse_by_roof_duality(graph, model.unary, model.tables, second, first)
        assert ((new == first) | (new == second)).all()
        before = score(graph, model.unary, model.tables, second)
        after = score(graph, model.unary, model.tables, new)
        assert after >= before - 1e-9 * (1.0 + abs(before))
        n_gains += after > before + 1e-6
    assert n_gains > 50


def test_rounds_never_lower_the_score_nor_leave_possible_labellings():
    for seed in range(200):
        _, graph, potentials, evidence, labels = random_model(seed)
        model = soft_model(graph, potentials, evidence)
        was_possible = False
        for number in range(5):
            before = score(graph, model.unary, model.tables, labels)
            gain = search_rounds(model, labels, np.uint64(seed), number, 1)
            after = score(graph, model.unary, model.tables, labels)
            assert gain >= 0.0
            assert after == pytest.approx(before + gain, rel=1e-9, abs=1e-9)
            is_possible = potentials.score(labels) > -np.inf
            assert is_possible or not was_possible
            was_possible = is_possible
        assert (labels[evidence >= 0] == evidence[evidence >= 0]).all()


def test_a_search_is_never_worse_than_its_starts():
    for seed in range(100):
        rng, graph, potentials, evidence, labels = random_model(seed, zeros=0.0)
        starts = [labels, *(rng.integers(0, graph.cardinalities) for _ in range(3))]
        starts = [np.where(evidence >= 0, evidence, y).astype(np.int32) for y in starts]
        found, n_done = search_labels(
            graph, potentials, evidence, starts=starts, n_starts=2, n_rounds=1
        )
        assert n_done <= 1
        assert potentials.score(found) >= max(map(potentials.score, starts)) - 1e-9


def test_small_models():
    n_best = 0
    for seed in range(500):
        _, graph, potentials, evidence, _ = random_model(seed)
        result = ff.LocalSearch().run(graph, potentials, evidence)
        best = float(ff.BruteForce().scores(graph, potentials, evidence).max())
        assert result.score == potentials.score(result.labels)
        assert (result.labels[evidence >= 0] == evidence[evidence >= 0]).all()
        assert_bound("upper", result.upper_bound, best)
        assert_bound("lower", result.score, best)
        n_best += result.score >= best - 1e-9
        if result.optimal:
            assert result.score == pytest.approx(best, abs=1e-9, rel=1e-9)
    assert n_best >= 498


def test_the_seed_decides():
    graph, potentials = ising(np.random.default_rng(0), 12, 12, 2.0, field=0.3)
    first = ff.LocalSearch(n_rounds=30, random_state=1).run(graph, potentials)
    again = ff.LocalSearch(n_rounds=30, random_state=1).run(graph, potentials)
    assert np.array_equal(first.labels, again.labels)
    assert first.status == again.status
    assert first.n_iter == 30
    best = ff.ExactMap().run(graph, potentials).score
    assert ff.LocalSearch().run(graph, potentials).score >= 0.995 * best


def test_a_time_limit_ends_a_search():
    graph, potentials = ising(np.random.default_rng(0), 12, 12, 2.0, field=0.3)
    result = ff.LocalSearch(time_limit=1e-6).run(graph, potentials)
    assert 1 <= result.n_iter <= 1000
    assert result.score == potentials.score(result.labels)


def test_no_labelling():
    graph = ff.FactorGraph.chain(2, 2)
    impossible = ff.Potentials(graph, [[-np.inf, -np.inf], None])
    with pytest.raises(ff.errors.ZeroWeightError, match="variable 0"):
        ff.LocalSearch().run(graph, impossible)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_starts": 0}, "n_starts must be an integer of at least 1"),
        ({"n_rounds": 0}, "n_rounds must be an integer of at least 1 or None"),
        ({"time_limit": 0.0}, "time_limit must be positive or None"),
        ({"random_state": -1}, "random_state must be an integer of at least 0"),
    ],
)
def test_options(options, message):
    with pytest.raises(ff.InvalidInputError, match=message):
        ff.LocalSearch(**options)
