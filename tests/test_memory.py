"""What is kept for a graph (plans, orders, patterns) goes with the graph."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from algorithms import INFERENCES, MAP_SEARCHES
from objectives import OBJECTIVES
from problems import random_tables

import fieldfit as ff


def is_freed(use) -> bool:
    """Whether a graph dies after it has been used."""
    graph = ff.FactorGraph([2, 2, 2, 2], [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])
    potentials = random_tables(np.random.default_rng(0), graph)
    use(graph, potentials)
    dead = weakref.ref(graph)
    del graph, potentials
    gc.collect()
    return dead() is None


@pytest.mark.parametrize("algorithm", [*INFERENCES, *MAP_SEARCHES], ids=str)
def test_graphs_are_freed_after_inference(algorithm):
    assert is_freed(algorithm.solver.run)


@pytest.mark.parametrize("entry", OBJECTIVES, ids=str)
def test_graphs_are_freed_after_an_objective(entry):
    def use(graph, potentials):
        entry.objective.value_and_grad(graph, potentials, [0, 1, 1, 0])

    assert is_freed(use)


def test_graphs_are_freed_after_samples_and_automatic_choices():
    def use(graph, potentials):
        ff.infer(graph, potentials, observed={0: 1})
        ff.decode(graph, potentials)
        ff.inference.sample_exactly(graph, potentials, 3, random_state=0)

    assert is_freed(use)


def test_a_graph_that_is_kept_is_seen():
    """The check above can fail."""
    kept = []
    assert not is_freed(lambda graph, potentials: kept.append(graph))
