"""The structure: flat layout, constructors, queries, and every validation error."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff

SCOPES = [(0, 1), (), (1, 2, 3), (3,), (1, 0), (4, 2)]


@pytest.fixture
def graph():
    return ff.FactorGraph([2, 3, 1, 4, 2, 5], SCOPES, factor_types=[0, 0, 1, 2, 0, 0])


# -- layout -------------------------------------------------------------------------------


def test_sizes_and_offsets(graph):
    assert (graph.n_variables, graph.n_factors, graph.n_slots) == (6, 6, 10)
    assert graph.cardinalities.tolist() == [2, 3, 1, 4, 2, 5]
    assert graph.unary_offsets.tolist() == [0, 2, 5, 6, 10, 12, 17]
    assert graph.scope_offsets.tolist() == [0, 2, 2, 5, 6, 8, 10]
    assert graph.slot_variables.tolist() == [0, 1, 1, 2, 3, 3, 1, 0, 4, 2]
    assert graph.slot_factors.tolist() == [0, 0, 2, 2, 2, 3, 4, 4, 5, 5]
    assert graph.table_offsets.tolist() == [0, 6, 7, 19, 23, 29, 31]
    assert graph.message_offsets.tolist() == [0, 2, 5, 8, 9, 13, 17, 20, 22, 24, 25]
    assert graph.arities.tolist() == [2, 0, 3, 1, 2, 2]
    assert graph.factor_types.tolist() == [0, 0, 1, 2, 0, 0]


def test_queries(graph):
    assert [graph.scope(a) for a in range(6)] == SCOPES
    assert [graph.table_shape(a) for a in range(6)] == [(2, 3), (), (3, 1, 4), (4,), (3, 2), (2, 1)]
    assert graph.degrees.tolist() == [2, 3, 2, 1, 1, 0]  # factors of arity one do not count
    assert graph.uniform_cardinality is None
    assert ff.FactorGraph.chain(3, 4).uniform_cardinality == 4
    assert ff.FactorGraph([]).uniform_cardinality is None
    assert repr(graph) == (
        "FactorGraph(6 variables, 1-5 labels; factors: 1 of arity 0, 1 of arity 1, "
        "3 of arity 2, 1 of arity 3)"
    )
    assert "none" in repr(ff.FactorGraph([]))


def test_slots_around_a_variable(graph):
    structure = graph.structure
    for i in range(graph.n_variables):
        begin, end = structure.variable_slot_offsets[i : i + 2]
        slots = structure.variable_slots[begin:end].tolist()
        expected = [
            s for s in range(graph.n_slots)
            if graph.slot_variables[s] == i and graph.arities[graph.slot_factors[s]] >= 2
        ]  # fmt: skip
        assert slots == expected


def test_everything_is_read_only_and_32_bit(graph):
    for name in ("cardinalities", "scope_offsets", "slot_variables", "unary_offsets",
                 "table_offsets", "message_offsets", "factor_types"):  # fmt: skip
        array = getattr(graph, name)
        assert array.dtype == np.int32, name
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_the_callers_arrays_are_copied():
    cardinalities, scopes = np.array([2, 2, 2], dtype=np.int32), np.array([[0, 1]], dtype=np.int32)
    graph = ff.FactorGraph(cardinalities, scopes)
    cardinalities[0], scopes[0, 0] = 9, 2
    assert graph.cardinalities.tolist() == [2, 2, 2]
    assert graph.scope(0) == (0, 1)


@pytest.mark.parametrize(
    ("scopes", "is_acyclic"),
    [
        ([], True),
        ([(0, 1), (1, 2)], True),
        ([(0, 1), (1, 2), (2, 0)], False),
        ([(0, 1), (1, 0)], False),  # parallel factors are a cycle
        ([(0, 1, 2), (2, 3)], True),
        ([(0, 1, 2), (2, 1)], False),
        ([(0,), (0,), (), ()], True),  # arities below two close nothing
    ],
)
def test_cycles(scopes, is_acyclic):
    assert ff.FactorGraph([2, 2, 2, 2], scopes).is_acyclic == is_acyclic


# -- constructors -------------------------------------------------------------------------


def test_scopes_as_array_and_as_lists():
    pairs = [(0, 1), (2, 1)]
    for scopes in (
        pairs,
        np.array(pairs),
        np.array(pairs, dtype=np.int8),
        [np.array(p) for p in pairs],
        [[0.0, 1.0], [2.0, 1.0]],
    ):
        graph = ff.FactorGraph([2, 3, 2], scopes)
        assert [graph.scope(a) for a in range(2)] == pairs


def test_from_flat(graph):
    again = ff.FactorGraph.from_flat(
        graph.cardinalities, graph.slot_variables, graph.arities, graph.factor_types
    )
    for name in ("cardinalities", "scope_offsets", "slot_variables", "table_offsets",
                 "message_offsets", "factor_types"):  # fmt: skip
        np.testing.assert_array_equal(getattr(again, name), getattr(graph, name))


def test_chain():
    graph = ff.FactorGraph.chain(4, 3)
    assert graph.cardinalities.tolist() == [3, 3, 3, 3]
    assert [graph.scope(a) for a in range(3)] == [(0, 1), (1, 2), (2, 3)]
    assert ff.FactorGraph.chain(1, 2).n_factors == 0


def test_grid():
    graph = ff.FactorGraph.grid(2, 3, 4)
    scopes = [graph.scope(a) for a in range(graph.n_factors)]
    assert scopes == [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]
    assert graph.factor_types.tolist() == [0, 0, 0, 0, 1, 1, 1]
    eight = ff.FactorGraph.grid(2, 3, 4, neighbors=8)
    assert [eight.scope(a) for a in range(7, 11)] == [(0, 4), (1, 5), (3, 1), (4, 2)]
    assert eight.factor_types[7:].tolist() == [2, 2, 3, 3]
    assert ff.FactorGraph.grid(1, 1, 2).n_factors == 0
    assert ff.FactorGraph.grid(1, 5, 2).is_acyclic


def test_from_edges():
    graph = ff.FactorGraph.from_edges(3, [(2, 0), (1, 2)], [2, 3, 4])
    assert graph.cardinalities.tolist() == [2, 3, 4]
    assert [graph.scope(a) for a in range(2)] == [(2, 0), (1, 2)]
    for nothing in ([], np.zeros((0, 2), dtype=int)):
        assert ff.FactorGraph.from_edges(3, nothing, 2).n_factors == 0


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([2, 0, 3],), r"cardinalities\[1\] must be at least 1, got 0"),
        (([2, -4],), r"cardinalities\[1\] must be at least 1, got -4"),
        (([[2, 2]],), r"cardinalities must be one-dimensional, got shape \(1, 2\)"),
        (([2.5],), "cardinalities must be integers, got dtype float64"),
        ((["a"],), "cardinalities must be integers, got dtype"),
        (([2, 2], [(0, 2)]), r"scopes\[0\] must name variables 0\.\.1, got 2"),
        (([2, 2], [(0, 1), (-1, 0)]), r"scopes\[1\] must name variables 0\.\.1, got -1"),
        (([2, 2], [(0, 1), (1, 1)]),
         r"scopes\[1\] must name distinct variables, got variable 1 twice"),
        (([2, 2, 2], [(0, 1, 2), (2, 0, 2)]),
         r"scopes\[1\] must name distinct variables, got variable 2 twice"),
        (([2, 2], [(0, 0.5)]), "scopes must be integers, got dtype float64"),
        (([], [(0,)]), r"scopes\[0\] must name variables"),
        (([2, 2], [(0, 1)], [0, 1]), r"factor_types must have shape \(1,\), got \(2,\)"),
        (([2, 2], [(0, 1)], [-1]), "factor_types must be at least 0, got -1"),
        (([2, 2], [(0, 1)], [0.5]), "factor_types must be integers, got dtype float64"),
    ],
)  # fmt: skip
def test_bad_graphs(arguments, sentence):
    with pytest.raises(ff.InvalidInputError, match=sentence):
        ff.FactorGraph(*arguments)


def test_bad_constructor_arguments():
    for build, sentence in (
        (lambda: ff.FactorGraph.chain(0, 2), "n_variables must be an integer of at least 1, got 0"),
        (lambda: ff.FactorGraph.grid(0, 3, 2), "height must be an integer of at least 1, got 0"),
        (lambda: ff.FactorGraph.grid(3, -1, 2), "width must be an integer of at least 1, got -1"),
        (lambda: ff.FactorGraph.grid(2, 2, 2, neighbors=6), "neighbors must be one of 4, 8, got 6"),
        (lambda: ff.FactorGraph.grid(2, 2, 0), "n_labels must be an integer of at least 1, got 0"),
        (lambda: ff.FactorGraph.from_edges(3, [0, 1], 2),
         r"edges must have shape \(n_edges, 2\), got \(2,\)"),
        (lambda: ff.FactorGraph.from_edges(2, [(0, 1, 1)], 2),
         r"edges must have shape .*, got \(1, 3\)"),
        (lambda: ff.FactorGraph.from_edges(2, [(0, 5)], 2),
         r"edges must name variables 0\.\.1, got \[0, 5\] at 0"),
    ):  # fmt: skip
        with pytest.raises(ff.InvalidInputError, match=sentence):
            build()


def test_tables_too_large_are_refused_before_they_are_made():
    with pytest.raises(
        ff.errors.TooLargeError, match=r"scopes\[0\] needs a table of 1e\+10 entries \(80 GB\)"
    ):
        ff.FactorGraph([10] * 10, [tuple(range(10))])
    with pytest.raises(ff.errors.TooLargeError, match=r"needs a table of .* entries"):
        ff.FactorGraph([2] * 2000, [tuple(range(2000))])  # beyond the range of floating point
    # each table fits, all together do not
    with pytest.raises(
        ff.errors.TooLargeError, match="the graph has 3200000000 table entries, the limit"
    ):
        ff.FactorGraph([40_000] * 3, [(0, 1), (1, 2)])
