"""UAI models, evidence and answers: round trips, real files, and every refusal."""

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fieldfit.errors import FileFormatError, InvalidInputError, TooLargeError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.io import (
    MapAnswer,
    MarginalAnswer,
    PartitionAnswer,
    format_answer,
    read_answer,
    read_evidence,
    read_uai,
    write_answer,
    write_evidence,
    write_uai,
)

# log values that files must keep: ordinary ones, hard zeros, and weights that no double holds
LOG_VALUES = st.one_of(
    st.floats(-30, 30),
    st.just(-np.inf),
    st.floats(-5000, 5000),
    st.sampled_from([0.0, -708.5, -744.0, -746.0, 709.7, 709.8, -1e12, 1e12, -1e300]),
)


@st.composite
def models(draw, unary=True):
    """A graph with factors of arity 0-4, and its potentials."""
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=0, max_size=6))
    variables = st.integers(0, len(cardinalities) - 1) if cardinalities else st.nothing()
    scopes = draw(
        st.lists(st.lists(variables, max_size=min(4, len(cardinalities)), unique=True), max_size=5)
    )
    graph = FactorGraph(cardinalities, scopes)

    def values(count):
        return np.array(draw(st.lists(LOG_VALUES, min_size=count, max_size=count)), dtype=float)

    n_unary = int(graph.unary_offsets[-1])
    unary_values = values(n_unary) if unary and draw(st.booleans()) else np.zeros(n_unary)
    factor_values = values(int(graph.table_offsets[-1]))
    return graph, Potentials.from_flat(graph, unary_values, factor_values)


def assert_same_logs(actual, expected):
    # exp and log of a value near 0 lose relative, not absolute, precision
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-15)


def read_text(text, **options):
    return read_uai(io.BytesIO(text.encode()), **options)


TWO_FACTORS = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 4 1 1 2\n\n6\n 1 1 0\n 1 2 3\n"


# -- models -------------------------------------------------------------------------------


def test_last_variable_runs_fastest_and_weights_become_logs():
    graph, potentials = read_text(TWO_FACTORS)
    assert [graph.scope(a) for a in range(2)] == [(0, 1), (1, 2)]
    with np.errstate(divide="ignore"):
        assert_allclose(potentials.factor(0), np.log([[4, 1], [1, 2]]), rtol=1e-15)
        assert_allclose(potentials.factor(1), np.log([[1, 1, 0], [1, 2, 3]]), rtol=1e-15)
    assert not potentials.unary_values.any()


def test_a_scope_out_of_order_keeps_its_order():
    graph, potentials = read_text("BAYES 2 2 3 1 2 1 0 6 1 2 3 4 5 6")
    assert graph.scope(0) == (1, 0)
    assert_allclose(np.exp(potentials.factor(0)), [[1, 2], [3, 4], [5, 6]], rtol=1e-14)


@settings(max_examples=150, deadline=None)
@given(model=models())
def test_round_trip(tmp_path_factory, model):
    graph, potentials = model
    path = tmp_path_factory.mktemp("uai") / "model.uai"
    write_uai(path, graph, potentials)
    again, read = read_uai(path)
    assert_array_equal(again.cardinalities, graph.cardinalities)
    assert [again.scope(a) for a in range(graph.n_factors)] == [
        graph.scope(a) for a in range(graph.n_factors)
    ]
    assert_same_logs(read.factor_values[: graph.table_offsets[-1]], potentials.factor_values)
    assert not read.unary_values.any()
    # what was unary comes back as factors of arity one, after the others
    unary = np.zeros_like(potentials.unary_values)
    for a in range(graph.n_factors, again.n_factors):
        (i,) = again.scope(a)
        unary[graph.unary_offsets[i] : graph.unary_offsets[i + 1]] = read.factor(a)
    assert_same_logs(unary, potentials.unary_values)


def test_writing_twice_gives_the_same_bytes(tmp_path):
    graph = FactorGraph([2, 3], [(0, 1)])
    values = np.random.default_rng(0).normal(size=6)
    potentials = Potentials.from_flat(graph, np.zeros(5), values)
    write_uai(tmp_path / "a.uai", graph, potentials)
    write_uai(tmp_path / "b.uai", *read_uai(tmp_path / "a.uai"))
    # exp(log(w)) may move the last digit, so compare values at full precision
    first, second = read_uai(tmp_path / "a.uai")[1], read_uai(tmp_path / "b.uai")[1]
    assert_allclose(first.factor_values, second.factor_values, rtol=1e-14)


def test_gzip_both_ways(tmp_path):
    graph, potentials = read_text(TWO_FACTORS)
    write_uai(tmp_path / "model.uai.gz", graph, potentials)
    assert (tmp_path / "model.uai.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert_same_logs(read_uai(tmp_path / "model.uai.gz")[1].factor_values, potentials.factor_values)
    cut = gzip.compress(TWO_FACTORS.encode())[:-12]
    with pytest.raises(FileFormatError, match="not complete gzip data"):
        read_uai(io.BytesIO(cut))


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("1e-400", -400 * np.log(10)),
        ("2.5E+400", np.log(2.5) + 400 * np.log(10)),
        ("0." + "0" * 400 + "25", np.log(2.5) - 401 * np.log(10)),
        ("1" + "0" * 400, 400 * np.log(10)),
        ("3e-320", np.log(3) - 320 * np.log(10)),
        ("0e5", -np.inf),
        ("0.000e-400", -np.inf),
        ("-0.0", -np.inf),
    ],
)
def test_weights_outside_the_range_of_doubles_keep_their_logarithm(token, expected):
    _, potentials = read_text(f"MARKOV 1 2 1 1 0 2 {token} 0")
    assert_allclose(potentials.factor_values, [expected, -np.inf], rtol=1e-14)


@pytest.mark.parametrize("text", ["MARKOV 0 0", "MARKOV 2 3 1 0", "markov 1 2 1 0 1 2.5"])
def test_degenerate_models(text, tmp_path):
    graph, potentials = read_text(text)
    write_uai(tmp_path / "model.uai", graph, potentials)
    again, read = read_uai(tmp_path / "model.uai")
    assert_array_equal(again.cardinalities, graph.cardinalities)
    assert again.n_factors == graph.n_factors
    assert_same_logs(read.factor_values, potentials.factor_values)


HEADER = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n"
REFUSED = {
    "empty": ("", "the file is empty, expected MARKOV or BAYES"),
    "blank": (" \n\n", "the file is empty"),
    "wrong word": ("MARKV 1 2 0", "line 1: expected MARKOV or BAYES, found 'MARKV'"),
    "binary": ("\x00\x01\x02", r"expected MARKOV or BAYES, found '\\x00"),
    "only the word": ("MARKOV\n", "expected the number of variables, found the end of the file"),
    "cut in cardinalities": ("MARKOV\n3\n2 2", "announces 3 variables, but only 2 numbers follow"),
    "no factor count": ("MARKOV\n2\n2 2", "expected the number of factors, found the end"),
    "cut in scopes": (
        "MARKOV\n3\n2 2 3\n2\n2 0 1",
        "expected the arity of factor 1 .* found the end of the file",
    ),
    "cut in the last scope": (
        "MARKOV\n3\n2 2 3\n1\n2 0",
        "expected a variable of a scope, found the end of the file",
    ),
    "no tables": (HEADER, "need 10 numbers .* ends in the table of factor 0 after 0 of them"),
    "cut in tables": (HEADER + "4 1 1 1 1 6 1 1", "ends in the table of factor 1 after 6 of them"),
    "cardinality 0": (
        "MARKOV\n2\n2 0\n0",
        "line 3, token 4: expected the cardinality of a variable .*at least 1.*, found '0'",
    ),
    "cardinality 2.5": ("MARKOV 1 2.5 0", "expected the cardinality .* found '2.5'"),
    "negative count": ("MARKOV -1", "expected the number of variables .* found '-1'"),
    "scope out of range": (
        "MARKOV\n2\n2 2\n1\n2 0 2\n4 1 1 1 1",
        r"line 5, token 8: expected a variable of a scope \(an integer in 0..1\), found '2'",
    ),
    "arity too large": ("MARKOV 2 2 2 1 3 0 1 0", "expected the arity of factor 0 .*found '3'"),
    "repeated variable": (
        "MARKOV\n2\n2 2\n2\n1 0\n2 1 1\n2 1 1\n4 1 1 1 1",
        "line 6, token 10: expected distinct variables in the scope of factor 1, found '1'",
    ),
    "size does not match scope": (
        HEADER + "5 1 1 1 1 1 6 1 1 1 1 1 1",
        r"line 7, token 13: expected the size 4 of the table of factor 0 \(2 x 2\), found '5'",
    ),
    "table too short": (
        HEADER + "4\n1 1 1\n6\n1 1 1 1 1 1",
        "expected the size 6 of the table of factor 1 .*factor 0 has a wrong length.*found '1'",
    ),
    "table too long": (
        HEADER + "4\n1 1 1 1 0.5\n6\n1 1 1 1 1 1",
        "line 8, token 18: expected the size 6 .*wrong length.*, found '0.5'",
    ),
    "trailing numbers": (TWO_FACTORS + "7", "line 14, token 25: expected the end .* found '7'"),
    "trailing text": (TWO_FACTORS + "end", "line 14: expected a number, found 'end'"),
    "not a number": (HEADER + "4 1 x 1 1", "line 7: expected a number, found 'x'"),
    "two numbers in one": (HEADER + "4 1 1-3 1 1", "line 7: expected a number, found '1-3'"),
    "comma": (HEADER + "4 1,1 1 1", "line 7: expected a number, found '1,1'"),
    "nan": (HEADER + "4 1 nan 1 1 6 1 1 1 1 1 1", "expected a weight of at least 0, found 'nan'"),
    "inf": (HEADER + "4 1 inf 1 1 6 1 1 1 1 1 1", "expected a finite weight, found 'inf'"),
    "negative": (
        HEADER + "4 1 -0.5 1 1 6 1 1 1 1 1 1",
        "line 7, token 15: expected a weight of at least 0, found '-0.5'",
    ),
    "many variables": ("MARKOV 9999999999 2", "expected the number of variables .*"),
    "many factors": ("MARKOV 1 2 1000000 1 0", "announces 1000000 factors, but only 2"),
    "10 GB table": (
        "MARKOV 3 1250 1000 1000 1 3 0 1 2 1250000000 1 1",
        r"need 1250000000 numbers \(10 GB\), but the file ends",
    ),
    "table beyond every limit": (
        "MARKOV 3 100000 100000 100000 1 3 0 1 2 8 1 1",
        r"table of 1e\+15 entries .* and the file holds 12 numbers",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_files(text, message, tmp_path):
    path = tmp_path / "bad.uai"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FileFormatError, match=message) as raised:
        read_uai(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


@settings(max_examples=60, deadline=None)
@given(model=models(), data=st.data())
def test_every_truncation_is_refused(tmp_path_factory, model, data):
    graph, potentials = model
    path = tmp_path_factory.mktemp("uai") / "model.uai"
    write_uai(path, graph, potentials)
    tokens = path.read_text().split()
    keep = data.draw(st.integers(0, len(tokens) - 1))
    with pytest.raises(FileFormatError):
        read_text(" ".join(tokens[:keep]))


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=80) | st.text("MARKOVBES 0123456789.e-+\n", max_size=80).map(str.encode)
)
def test_arbitrary_bytes_are_read_or_refused(data):
    for source in (data, b"MARKOV " + data):
        try:
            graph, potentials = read_uai(io.BytesIO(source), max_memory=1e6)
        except InvalidInputError:
            continue
        assert not np.isnan(potentials.factor_values).any()
        assert len(potentials.factor_values) == graph.table_offsets[-1]


def test_isolated_variable_of_huge_cardinality_is_refused_before_allocation():
    with pytest.raises(TooLargeError, match=r"needs 16 GB .* max_memory allows 4 GB"):
        read_text("MARKOV 1 2000000000 0")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no_such\.uai"):
        read_uai(tmp_path / "no_such.uai")


def test_potentials_of_another_graph_are_not_written(tmp_path):
    graph, other = FactorGraph([2, 2], [(0, 1)]), FactorGraph([2, 2], [(1, 0)])
    with pytest.raises(InvalidInputError, match="potentials must belong to the given graph"):
        write_uai(tmp_path / "model.uai", graph, Potentials(other))
    nan = Potentials.from_flat(graph, np.zeros(4), np.full(4, np.nan))
    with pytest.raises(InvalidInputError, match="below"):
        write_uai(tmp_path / "model.uai", graph, nan)
    assert not (tmp_path / "model.uai").exists()


def test_large_file_is_read_as_written(tmp_path):
    graph = FactorGraph.grid(40, 40, 4)
    rng = np.random.default_rng(0)
    values = rng.normal(size=int(graph.table_offsets[-1]))
    values[rng.random(len(values)) < 0.2] = -np.inf
    potentials = Potentials.from_flat(graph, np.zeros(int(graph.unary_offsets[-1])), values)
    write_uai(tmp_path / "grid.uai", graph, potentials)
    again, read = read_uai(tmp_path / "grid.uai")
    assert_array_equal(again.slot_variables, graph.slot_variables)
    assert_same_logs(read.factor_values, values)


# -- evidence -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("0", {}),
        ("0\n", {}),
        ("2 1 0 2 1", {1: 0, 2: 1}),
        ("1\n2 1 0 2 1\n", {1: 0, 2: 1}),  # older form: one sample
        ("1\n0\n", {}),
        ("2 1 0 1 0", {1: 0}),
    ],
)
def test_evidence_forms(text, observed):
    graph = FactorGraph([2, 2, 3], [])
    assert read_evidence(io.BytesIO(text.encode()), graph) == observed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("2 1 0", "announces 2 observed variables, that is 4 further numbers, but 2 follow"),
        ("1 1 0 2 1 0 0", "announces 1 observed"),
        ("2 2 1 0 2 1", "expected the number of samples, which must be 1 .* found '2'"),
        ("1 3 0", r"expected an observed variable \(an integer in 0..2\), found '3'"),
        ("1 -1 0", "expected an observed variable .* found '-1'"),
        ("1 1 2", r"expected a label of variable 1 \(an integer in 0..1\), found '2'"),
        ("1 1 -1", "expected an observed label .* found '-1'"),
        ("2 1 0 1 1", "expected label 0 again for variable 1, found '1'"),
        ("one 1 1", "expected a number, found 'one'"),
        ("1 1 0.5", "found '0.5'"),
    ],
)
def test_refused_evidence(text, message):
    graph = FactorGraph([2, 2, 3], [])
    with pytest.raises(FileFormatError, match=message):
        read_evidence(io.BytesIO(text.encode()), graph)


@given(observed=st.dictionaries(st.integers(0, 1000), st.integers(0, 50)))
def test_evidence_round_trip(tmp_path_factory, observed):
    path = tmp_path_factory.mktemp("evidence") / "model.uai.evid"
    write_evidence(path, observed)
    assert read_evidence(path) == observed


# -- answers ------------------------------------------------------------------------------


def test_answer_texts():
    marginals = (np.array([0.25, 0.75]), np.array([0.5, 0.25, 0.25]))
    assert format_answer(MarginalAnswer(marginals)) == "MAR\n2 2 0.25 0.75 3 0.5 0.25 0.25\n"
    assert format_answer(PartitionAnswer(-1.5)) == "PR\n-1.5\n"
    assert format_answer(MapAnswer(np.array([1, 0, 2], dtype=np.int32))) == "MAP\n3 1 0 2\n"
    assert format_answer(MarginalAnswer(())) == "MAR\n0\n"


def test_answer_round_trips(tmp_path):
    rng = np.random.default_rng(1)
    marginals = tuple(rng.dirichlet(np.ones(k)) for k in (1, 2, 5))
    write_answer(tmp_path / "a.MAR", MarginalAnswer(marginals))
    read = read_answer(tmp_path / "a.MAR")
    assert isinstance(read, MarginalAnswer)
    for actual, expected in zip(read.marginals, marginals, strict=True):
        assert_array_equal(actual, expected)
    write_answer(tmp_path / "a.PR", PartitionAnswer(606.279123456789))
    assert read_answer(tmp_path / "a.PR") == PartitionAnswer(606.279123456789)
    write_answer(tmp_path / "a.MAP", MapAnswer(np.array([3, 1, 2], dtype=np.int32)))
    found = read_answer(tmp_path / "a.MAP")
    assert isinstance(found, MapAnswer)
    assert_array_equal(found.labels, [3, 1, 2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FOO 1", "expected MAR or PR or MAP or MPE, found 'FOO'"),
        ("PR", "expected the logarithm of the partition function"),
        ("PR 1 2", "expected the end of the file, found '2'"),
        ("MAP 3 0 1", "announces 3 variables, but only 2"),
        ("MAP 2 0 1 1", "expected the end of the file"),
        ("MAR 1 2 0.5", "expected the probabilities of variable 0"),
        ("MAR 1 2 0.5 1.5", "expected a probability in 0..1, found '1.5'"),
        ("MAR 1 2 0.5 0.5 7", "expected the end of the file, found '7'"),
    ],
)
def test_refused_answers(text, message):
    with pytest.raises(FileFormatError, match=message):
        read_answer(io.BytesIO(text.encode()))


# -- real files ---------------------------------------------------------------------------


def real_models():
    root = os.environ.get("FIELDFIT_DATA")
    paths = sorted(Path(root, "uai2014").glob("*/*.uai")) if root else []
    return [pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in paths]


@pytest.mark.data
@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
@pytest.mark.parametrize("path", real_models())
def test_real_models_round_trip(path, tmp_path):
    graph, potentials = read_uai(path)
    write_uai(tmp_path / "model.uai", graph, potentials)
    again, read = read_uai(tmp_path / "model.uai")
    assert_array_equal(again.cardinalities, graph.cardinalities)
    assert_array_equal(again.scope_offsets, graph.scope_offsets)
    assert_array_equal(again.slot_variables, graph.slot_variables)
    assert_same_logs(read.factor_values, potentials.factor_values)

    observed = read_evidence(f"{path}.evid", graph)
    write_evidence(tmp_path / "model.uai.evid", observed)
    assert read_evidence(tmp_path / "model.uai.evid", graph) == observed
    for task in ("MAR", "PR", "MAP"):
        if Path(f"{path}.{task}").exists():
            answer = read_answer(f"{path}.{task}")
            write_answer(tmp_path / "answer", answer)
            assert format_answer(read_answer(tmp_path / "answer")) == format_answer(answer)
            if isinstance(answer, MarginalAnswer):
                sizes = [len(marginal) for marginal in answer.marginals]
                assert_array_equal(sizes, graph.cardinalities)
            if isinstance(answer, MapAnswer):
                assert np.isfinite(potentials.score(answer.labels))
                for variable, label in observed.items():
                    assert answer.labels[variable] == label


@pytest.mark.data
@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
def test_all_real_models_are_there():
    folders = [Path(param.values[0]).parent.name for param in real_models()]
    assert folders.count("mar_pr") == 21
    assert folders.count("map") == 7
