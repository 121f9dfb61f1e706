"""What all inferences share: batches of single-graph methods, starts, ``n_jobs``, endings."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from assertions import assert_close
from problems import PROBLEMS, random_graph, random_tables

import fieldfit as ff
from fieldfit._parallel import n_threads
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.inference.base import Inference
from fieldfit.inference.gibbs.gibbs import gibbs_sweeps


def all_inferences():
    """Every concrete inference of the package."""
    package = importlib.import_module("fieldfit.inference")
    for module in pkgutil.walk_packages(package.__path__, "fieldfit.inference."):
        importlib.import_module(module.name)
    found, waiting = [], [Inference]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if not getattr(kind, "__abstractmethods__", None):
            found.append(kind)
    return sorted(found, key=lambda kind: kind.__name__)


def classes_with_jobs():
    """Option classes of the package with a field ``n_jobs``, inferences and others."""
    all_inferences()
    found = set()
    for name in list(ff.__all__):
        kind = getattr(ff, name)
        if isinstance(kind, type) and is_dataclass(kind):
            found.add(kind)
    found |= {kind for kind in all_inferences() if is_dataclass(kind)}
    named = [kind for kind in found if "n_jobs" in {field.name for field in fields(kind)}]
    return sorted(named, key=lambda kind: kind.__name__)


def some_batch(seed=0, n_examples=3):
    rng = np.random.default_rng(seed)
    graphs = [random_graph(rng, n_variables=5, n_factors=6) for _ in range(n_examples)]
    batch = Batch.of(graphs)
    potentials = [random_tables(rng, g) for g in graphs]
    return batch, potentials


# -- n_jobs -------------------------------------------------------------------------------


def test_the_classes_with_jobs_are_found():
    names = {kind.__name__ for kind in classes_with_jobs()}
    assert {"SumProduct", "UnrolledSumProduct", "GeneralizedSumProduct", "Gibbs"} <= names
    assert {"DoubleLoop", "BeliefOptimization"} <= names


@pytest.mark.parametrize("kind", classes_with_jobs(), ids=lambda kind: kind.__name__)
def test_jobs_mean_the_same_everywhere(kind):
    """Refused when the object is made, whatever it would have to do later."""
    for given in (None, 1, 3, -1, -2, np.int64(2)):
        kind(n_jobs=given)
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        kind(n_jobs=0)
    for given in (1.5, "all", True):
        with pytest.raises(InvalidInputError, match="n_jobs must be an integer or None"):
            kind(n_jobs=given)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in classes_with_jobs() if hasattr(kind, "run_batch")],
    ids=lambda kind: kind.__name__,
)
def test_results_do_not_depend_on_jobs(kind):
    batch, potentials = some_batch()
    options = {"random_state": 0, "n_sweeps": 20} if kind is ff.Gibbs else {}
    results = [
        kind(n_jobs=n_jobs, **options).run_batch(batch, batch.pack(potentials))
        for n_jobs in (None, 2, -1, -2)
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other.beliefs.unary_values, results[0].beliefs.unary_values)
        np.testing.assert_array_equal(other.log_partitions, results[0].log_partitions)


def test_jobs_of_sweeps():
    graph = ff.FactorGraph.chain(4, 2)
    zero, labels = ff.Potentials(graph), np.zeros(4, dtype=int)
    first = gibbs_sweeps(graph, zero, labels, 3, random_state=0)
    for n_jobs in (2, -1, -2):
        again = gibbs_sweeps(graph, zero, labels, 3, random_state=0, n_jobs=n_jobs)
        np.testing.assert_array_equal(again, first)
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        gibbs_sweeps(graph, zero, labels, 3, n_jobs=0)
    assert n_threads(-10_000) == 1


# -- one graph and many -------------------------------------------------------------------


def test_every_option_but_the_first_is_named():
    for kind in all_inferences():
        positional = [field.name for field in fields(kind) if not field.kw_only]
        if kind.__module__.split(".")[2] in ("messages", "junction_tree", "mean_field", "gibbs",
                                             "kikuchi", "brute_force"):  # fmt: skip
            assert len(positional) == 1, kind


@pytest.mark.parametrize(
    "solver", [ff.BruteForce(), ff.Gibbs(30, burn_in=3, random_state=5)], ids=lambda s: repr(s)
)
def test_a_batch_is_its_examples_one_by_one(solver):
    batch, potentials = some_batch()
    told = []
    together = solver.run_batch(
        batch, batch.pack(potentials), progress=lambda *args: told.append(args)
    )
    assert told
    for m, graph in enumerate(batch.graphs):
        alone = solver.run(graph, potentials[m])
        mine = batch.split(together.beliefs)[m]
        np.testing.assert_array_equal(mine.unary_values, alone.beliefs.unary_values)
        np.testing.assert_array_equal(mine.factor_values, alone.beliefs.factor_values)
        assert together.log_partitions[m] == alone.log_partition
        assert together.converged_examples[m] == alone.converged
        assert together.diagnostics["examples"][m].keys() == alone.diagnostics.keys()
    if not together.converged:
        assert together.status.startswith("not converged in ")


def test_a_batch_of_chains_starts_where_an_earlier_one_ended():
    solver = ff.Gibbs(5, burn_in=0, random_state=1, n_chains=2)
    batch, potentials = some_batch(2)
    packed = batch.pack(potentials)
    first = solver.run_batch(batch, packed)
    again = solver.run_batch(batch, packed, init=first)
    for m, graph in enumerate(batch.graphs):
        alone = solver.run(graph, potentials[m], init=solver.run(graph, potentials[m]))
        mine = batch.split(again.beliefs)[m]
        np.testing.assert_array_equal(mine.unary_values, alone.beliefs.unary_values)
    labels = np.concatenate(first.state.examples, axis=1)
    given = solver.run_batch(batch, packed, init=labels)
    np.testing.assert_array_equal(given.beliefs.unary_values, again.beliefs.unary_values)


def test_a_start_for_another_batch_is_refused():
    solver = ff.Gibbs(5, random_state=1)
    batch, potentials = some_batch(2)
    packed = batch.pack(potentials)
    with pytest.raises(InvalidInputError, match="init must be a result of this method on the same"):
        solver.run_batch(batch, packed, init=solver.run(batch.graphs[0], potentials[0]))
    with pytest.raises(InvalidInputError, match="init must have 15 labels in its last axis"):
        solver.run_batch(batch, packed, init=np.zeros(5, dtype=int))


def test_random_starts_of_mean_field_do_not_depend_on_company():
    solver = ff.MeanField(n_restarts=3, random_state=0, tol=1e-10)
    graph = ff.FactorGraph.grid(3, 3, 2)
    rng = np.random.default_rng(0)
    strong = [ff.Potentials(graph, None, 2.0 * s * np.eye(2)) for s in rng.normal(size=4)]
    batch = Batch.of([graph] * 4)
    together = solver.run_batch(batch, batch.pack(strong))
    for m, potentials in enumerate(strong):
        alone = solver.run(graph, potentials)
        assert_close(together.log_partitions[m], alone.log_partition, atol=1e-8)


@pytest.mark.parametrize("solver", [ff.Exact(), ff.BruteForce()], ids=lambda s: repr(s))
def test_exact_methods_take_a_start_and_report_once(solver):
    problem, told = PROBLEMS[11], []
    result = solver.run(problem.graph, problem.potentials, problem.observed)
    again = solver.run(
        problem.graph,
        problem.potentials,
        problem.observed,
        init=result,
        progress=lambda *args: told.append(args),
    )
    assert again.log_partition == result.log_partition
    assert told == [(1, 0.0)]


def test_enumeration_can_be_learned_with():
    batch, potentials = some_batch(1)
    rng = np.random.default_rng(3)
    labels = np.array([rng.integers(k) for k in batch.graph.cardinalities], dtype=np.int32)
    labels[::4] = -1
    packed = batch.pack(potentials)
    slow, fast = (
        ff.Likelihood(solver).evaluate(batch, packed, labels)
        for solver in (ff.BruteForce(), ff.Exact())
    )
    for mine, other in (
        (slow.values, fast.values),
        (slow.gradient.unary_values, fast.gradient.unary_values),
        (slow.gradient.factor_values, fast.gradient.factor_values),
    ):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-10)
    again = ff.Likelihood(ff.BruteForce()).evaluate(batch, packed, labels, slow.state)
    np.testing.assert_array_equal(again.values, slow.values)
