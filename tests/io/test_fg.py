"""libDAI factor graph files: round trips and every refusal."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from test_uai import assert_same_logs, models

from fieldfit.errors import FileFormatError, InvalidInputError, TooLargeError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.io import read_fg, read_uai, write_fg


def read_text(text, **options):
    return read_fg(io.BytesIO(text.encode()), **options)


EXAMPLE = """\
# two factors
2

2
0 1
2 3
# entries, the first variable fastest
5
0 1.0
1 2.0
2 3.0
3 4.0
5 6.0

1
2
2
2
0 0.25
1 0.75
"""


def test_first_variable_runs_fastest_and_missing_entries_are_zero():
    graph, potentials = read_text(EXAMPLE)
    assert_array_equal(graph.cardinalities, [2, 3, 2])
    assert [graph.scope(a) for a in range(2)] == [(0, 1), (2,)]
    assert_allclose(np.exp(potentials.factor(0)), [[1, 3, 0], [2, 4, 6]], rtol=1e-14)
    assert potentials.factor(0)[0, 2] == -np.inf
    assert_allclose(np.exp(potentials.factor(1)), [0.25, 0.75], rtol=1e-14)


def test_three_variables_out_of_order():
    entries = " ".join(f"{k} {k + 1}" for k in range(12))
    graph, potentials = read_text(f"1 3 2 0 1 3 2 2 12 {entries}")
    assert graph.scope(0) == (2, 0, 1)
    table = np.exp(potentials.factor(0))
    for y2, y0, y1 in np.ndindex(3, 2, 2):
        assert_allclose(table[y2, y0, y1], y2 + 3 * (y0 + 2 * y1) + 1, rtol=1e-14)


@settings(max_examples=150, deadline=None)
@given(model=models())
def test_round_trip(tmp_path_factory, model):
    graph, potentials = model
    path = tmp_path_factory.mktemp("fg") / "model.fg"
    write_fg(path, graph, potentials)
    again, read = read_fg(path)
    assert_array_equal(again.cardinalities, graph.cardinalities)
    assert [again.scope(a) for a in range(graph.n_factors)] == [
        graph.scope(a) for a in range(graph.n_factors)
    ]
    assert_same_logs(read.factor_values[: graph.table_offsets[-1]], potentials.factor_values)
    unary = np.zeros_like(potentials.unary_values)
    for a in range(graph.n_factors, again.n_factors):
        (i,) = again.scope(a)
        unary[graph.unary_offsets[i] : graph.unary_offsets[i + 1]] = read.factor(a)
    assert_same_logs(unary, potentials.unary_values)


def test_numbers_that_no_factor_names_become_variables_with_one_label(tmp_path):
    graph, potentials = read_text("1\n\n2\n1 3\n2 2\n4\n0 1\n1 2\n2 3\n3 4\n")
    assert_array_equal(graph.cardinalities, [1, 2, 1, 2])
    assert graph.scope(0) == (1, 3)
    write_fg(tmp_path / "model.fg", graph, potentials)
    again, read = read_fg(tmp_path / "model.fg")
    assert again.n_factors == 1
    assert_array_equal(again.cardinalities, graph.cardinalities)
    assert_same_logs(read.factor_values, potentials.factor_values)


def test_variables_without_factor_are_written_as_factors_of_weight_one(tmp_path):
    graph = FactorGraph([3, 2, 1], [(1,)])
    write_fg(tmp_path / "model.fg", graph, Potentials(graph))
    again, read = read_fg(tmp_path / "model.fg")
    assert_array_equal(again.cardinalities, [3, 2, 1])
    assert [again.scope(a) for a in range(3)] == [(1,), (0,), (2,)]
    assert not read.factor_values.any()


def test_gzip_both_ways(tmp_path):
    graph, potentials = read_text(EXAMPLE)
    write_fg(tmp_path / "model.fg.gz", graph, potentials)
    assert_same_logs(read_fg(tmp_path / "model.fg.gz")[1].factor_values, potentials.factor_values)


REFUSED = {
    "empty": ("", "the file is empty"),
    "only comments": ("# nothing\n# here\n", "the file is empty"),
    "word": ("MARKOV 1 2 0", "line 1: expected a number, found 'MARKOV'"),
    "too many factors": ("5\n\n1\n0", "announces 5 factors, but only 2 numbers follow"),
    "fewer blocks": (
        "2\n\n1\n0\n2\n1\n0 1\n",
        "expected the number of variables of factor 1, found the end of the file",
    ),
    "cut before the entries": ("1\n\n2\n0 1\n2 2", "expected the number of nonzero entries"),
    "cut in the entries": (
        "1\n\n1\n0\n2\n2\n0 1\n1",
        "expected 2 nonzero entries of factor 0, .*end",
    ),
    "negative label": ("1 1 -1 2 1 0 1", "expected the label of a variable .* found '-1'"),
    "cardinality 0": ("1\n\n1\n0\n0\n0", "line 5, token 4: expected the cardinality .* found '0'"),
    "inconsistent": (
        "2\n\n1\n0\n2\n1\n0 1\n\n1\n0\n3\n1\n0 1",
        "expected 2 as cardinality of variable 0 in every block, found 3",
    ),
    "repeated variable": (
        "1\n\n2\n0 0\n2 2\n1\n0 1",
        "line 4, token 4: expected distinct variables in the scope of factor 0, found '0'",
    ),
    "index out of range": (
        "1\n\n1\n0\n2\n1\n2 1",
        r"line 7, token 6: expected the index of an entry of factor 0 \(in 0..1\), found '2'",
    ),
    "index twice": (
        "1\n\n1\n0\n2\n2\n0 1\n0 1",
        "line 8, token 8: expected every table entry at most once, found '0'",
    ),
    "fractional count": (
        "1\n\n1.5\n0",
        "expected the number of variables of factor 0, found '1.5'",
    ),
    "negative weight": ("1 1 0 2 1 0 -1", "expected a weight of at least 0, found '-1'"),
    "nan": ("1 1 0 2 1 0 nan", "expected a weight of at least 0, found 'nan'"),
    "inf": ("1 1 0 2 1 0 inf", "expected a finite weight, found 'inf'"),
    "trailing": ("1 1 0 2 1 0 1 9", "expected the end of the file, found '9'"),
    "unused labels": ("1 1 2000000000 2 1 0 1", "leave at most 1000000 numbers unused"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_files(text, message, tmp_path):
    path = tmp_path / "bad.fg"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message) as raised:
        read_fg(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 0 1 50000 25000 1 0 1", "needs 10 GB for its tables, max_memory allows 4 GB"),
        ("1 3 0 1 2 50000 50000 50000 1 0 1", "the limit is"),
    ],
)
def test_tables_beyond_memory_are_refused_before_allocation(text, message):
    with pytest.raises(TooLargeError, match=message):
        read_text(text)


def test_the_memory_limit_can_be_moved():
    text = "1 2 0 1 500 500 1 0 1"
    assert read_text(text)[0].table_offsets[-1] == 250_000
    with pytest.raises(TooLargeError):
        read_text(text, max_memory=1e6)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60) | st.text("0123 .#e-\n", max_size=80).map(str.encode))
def test_arbitrary_bytes_are_read_or_refused(data):
    try:
        graph, potentials = read_fg(io.BytesIO(data), max_memory=1e6)
    except InvalidInputError:
        return
    assert not np.isnan(potentials.factor_values).any()
    assert len(potentials.factor_values) == graph.table_offsets[-1]


@pytest.mark.data
@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
def test_real_models_survive_the_other_format(tmp_path):
    paths = sorted(Path(os.environ["FIELDFIT_DATA"], "uai2014", "mar_pr").glob("*.uai"))
    assert len(paths) == 21
    for path in paths:
        graph, potentials = read_uai(path)
        write_fg(tmp_path / "model.fg", graph, potentials)
        again, read = read_fg(tmp_path / "model.fg")
        assert_array_equal(again.cardinalities, graph.cardinalities)
        n_slots, n_entries = graph.n_slots, graph.table_offsets[-1]
        assert_array_equal(again.slot_variables[:n_slots], graph.slot_variables)
        assert_same_logs(read.factor_values[:n_entries], potentials.factor_values)
