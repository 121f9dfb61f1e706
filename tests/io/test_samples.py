"""Tables and alignments from files, and pictures of fitted models."""

from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from fieldfit.errors import FileFormatError, InvalidInputError, MissingDependencyError
from fieldfit.io.alignments import read_alignment
from fieldfit.io.samples import PROTEIN_ALPHABET, read_fasta, read_samples
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.potts_model import PottsModel
from fieldfit.plot import plot_contacts, plot_network, spring_layout

DATA = os.environ.get("FIELDFIT_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="FIELDFIT_DATA is not set")


def stream(text):
    return io.BytesIO(text.encode())


# -- tables -------------------------------------------------------------------------------


def test_table_with_names_and_missing_values(tmp_path):
    text = 'a,"b, c",d\n0,1,NA\n\n1, ,0.5\n'
    for path in (tmp_path / "plain.csv", tmp_path / "packed.csv.gz"):
        data = text.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        table = read_samples(path)
        assert table.names == ("a", "b, c", "d")
        np.testing.assert_array_equal(table.values, [[0, 1, np.nan], [1, np.nan, 0.5]])
    chosen = table.columns(["d", "a"])
    np.testing.assert_array_equal(chosen.values, [[np.nan, 0], [0.5, 1]])
    with pytest.raises(InvalidInputError, match="'x'"):
        table.columns(["x"])


def test_table_without_names():
    table = read_samples(stream("0;1\n1;NA\n"), delimiter=";")
    assert table.names == ("0", "1")
    assert table.values.shape == (2, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("a,b\n", "at least one line of values"),
        ("a,b\n0,1\n0\n", "line 3: expected 2 values, found 1"),
        ("a,b\n0,1\n\n0,yes\n", "line 4: expected a number or NA in column 'b', found 'yes'"),
        ("a,a\n0,1\n", "line 1: the column 'a' is named twice"),
    ],
)
def test_bad_tables_are_refused(text, message):
    with pytest.raises(FileFormatError, match=message):
        read_samples(stream(text))
    with pytest.raises(FileFormatError, match="UTF-8"):
        read_samples(io.BytesIO(b"a,\xff\n"))


TEXTS = "who,a,b\nAnn,0,1\nBob,1,NA\n"


@pytest.mark.parametrize(
    "options",
    [
        {"drop": ["who"]},
        {"columns": ["a", "b"]},
        {"columns": ("a", "b", "who"), "drop": ["who"]},
    ],
)
def test_columns_that_are_not_read_may_hold_anything(options):
    table = read_samples(stream(TEXTS), **options)
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.values, [[0, 1], [1, np.nan]])


def test_chosen_columns():
    assert read_samples(stream(TEXTS), columns=["b", "a"]).names == ("b", "a")
    with pytest.raises(FileFormatError, match=r"line 2: .*'who', found 'Ann' .*dropped"):
        read_samples(stream(TEXTS))
    for options in ({"drop": ["nose"]}, {"columns": ["nose"]}):
        with pytest.raises(InvalidInputError, match="column named 'nose', found who, a, b"):
            read_samples(stream(TEXTS), **options)


# -- alignments ---------------------------------------------------------------------------


def test_alignment():
    found = read_fasta(stream(">one first\nAC-\nY\n\n>two\n----\n"))
    assert found.names == ("one first", "two")
    assert found.alphabet == PROTEIN_ALPHABET
    assert found.labels.tolist() == [[1, 2, 0, 20], [0, 0, 0, 0]]


def test_unknown_letters():
    with pytest.raises(FileFormatError, match=r"line 3.*found 'X' in 'two' \(give unknown='-'"):
        read_fasta(stream(">one\nAC\n>two\nAX\n"))
    assert read_fasta(stream(">two\nAX\n"), unknown="-").labels.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("ACD\n", "line 1: expected '>'"),
        (">one\nAC\n>two\nACD\n", "line 3: expected aligned sequences of 2 letters, found 3"),
        (">one\n>two\nA\n", "line 1: expected aligned sequences of 1 letters, found 0"),
    ],
)
def test_bad_alignments_are_refused(text, message):
    with pytest.raises(FileFormatError, match=message):
        read_fasta(stream(text))


def test_bad_alphabets_are_refused():
    for options in ({"alphabet": ""}, {"alphabet": "AA"}, {"unknown": "?"}):
        with pytest.raises(InvalidInputError):
            read_fasta(stream(">one\nA\n"), **options)


A2M = ">one\nAC.-\n>two\nCCaA\n"
A3M = ">one\nAC-\n>two\nCCacdA\n"
STOCKHOLM = """# STOCKHOLM 1.0
#=GF ID   family
#=GS one  AC P1

one  AC.
two  CCa
#=GR two SS ...

one  -
two  A
#=GC RF xx.x
//
"""


@pytest.mark.parametrize("text", [A2M, A3M, STOCKHOLM, ">one\nAC-\n>two\nCCA\n"])
def test_forms_of_alignments(text):
    found = read_alignment(stream(text), "-AC")
    assert found.names == ("one", "two")
    assert found.labels.tolist() == [[1, 2, 0], [2, 2, 1]]


def test_dots_may_be_gaps_and_small_letters_may_be_letters():
    text = "# STOCKHOLM 1.0\none A.\ntwo AC\n//\n"
    with pytest.raises(FileFormatError, match=r"line 2: .* found '\.' in 'one' \(give unknown"):
        read_alignment(stream(text), "-AC")
    assert read_alignment(stream(text), "-AC", unknown="-").labels.tolist() == [[1, 0], [1, 2]]
    assert read_alignment(stream(text), ".AC").labels.tolist() == [[1, 0], [1, 2]]
    small = ">one\nac\n>two\nca\n"
    assert read_alignment(stream(small), "ac").labels.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (">one\nACa\n>two\nA\n", "line 3: expected sequences of 2 letters without insertions"),
        (">one\nac\n>two\nacc\n", "line 1: expected sequences of 1 letters without insertions"),
        ("# STOCKHOLM 1.0\none AC\n", "expected '//' at the end"),
        ("# STOCKHOLM 1.0\n//\n", "at least one sequence before '//'"),
        ("# STOCKHOLM 1.0\none\n//\n", "line 2: expected a name and a sequence, found 'one'"),
        ("# STOCKHOLM 1.0\none A C\n//\n", "line 2: expected a name and a sequence"),
        ("# STOCKHOLM 1.0\none AC\n//\ntwo AC\n//\n", "line 4: expected one alignment"),
        ("# STOCKHOLM 1.0\none AC\ntwo A\n//\n", "line 3: .* of 2 letters, found 1 in 'two'"),
        ("# STOCKHOLM 1.0\none AX\n//\n", "line 2: expected letters of '-AC', found 'X'"),
    ],
)
def test_broken_alignments_are_refused(text, message):
    with pytest.raises(FileFormatError, match=message):
        read_alignment(stream(text), "-AC")


@needs_data
@pytest.mark.data
def test_real_files():
    folder = Path(DATA)
    alignment = read_fasta(folder / "protein_msa" / "PF00014_mgap6.fasta.gz")
    assert alignment.labels.shape == (13600, 53)
    table = read_samples(folder / "ising_networks" / "wenchuan.csv.gz")
    assert table.values.shape == (362, 17)
    assert np.isnan(table.values).sum() == 22


@needs_data
@pytest.mark.data
def test_symptom_network_of_real_answers():
    """Exact likelihood and pseudo-likelihood agree within the errors, with 22 answers missing."""
    table = read_samples(Path(DATA) / "ising_networks" / "wenchuan.csv.gz")
    answers = np.where(np.isnan(table.values), np.nan, table.values >= 3)
    exact = IsingModel("likelihood").fit(answers)
    fast = IsingModel("pseudolikelihood").fit(answers)
    assert np.isnan(answers).sum() == 22
    ratio = np.abs(exact.weights_ - fast.weights_) / exact.standard_errors_
    assert ratio.max() < 1.0


# -- pictures -----------------------------------------------------------------------------


def test_network_picture():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    rng = np.random.default_rng(0)
    model = IsingModel().fit(rng.integers(0, 2, (50, 6)))
    axes = model.plot_network(names=list("abcdef"))
    assert len(axes.lines) == 15
    assert [text.get_text() for text in axes.texts] == list("abcdef")
    few = model.plot_network(ax=plt.figure().add_subplot(), level=0.999)
    assert len(few.lines) < 15
    plt.close("all")


def test_contact_picture():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    rng = np.random.default_rng(1)
    model = PottsModel().fit(rng.integers(0, 3, (60, 9)))
    contacts = rng.random((9, 9)) < 0.5
    axes = model.plot_contacts(contacts=contacts | contacts.T, n_pairs=4)
    assert sum(len(points.get_offsets()) for points in axes.collections[1:]) == 4
    with pytest.raises(InvalidInputError, match="contacts"):
        plot_contacts(model.contact_scores(), contacts=np.ones((2, 2)))
    plt.close("all")


def test_layout_puts_coupled_variables_together():
    strengths = np.zeros((8, 8))
    strengths[0, 4] = strengths[4, 0] = 1.0
    strengths[1, 5] = strengths[5, 1] = 1.0
    places = spring_layout(strengths)
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    others = np.setdiff1d(np.arange(8), [0, 4])
    assert distance[0, 4] < 0.75 * distance[0, others].min()
    np.testing.assert_array_equal(places, spring_layout(strengths))
    assert np.isfinite(spring_layout(np.zeros((1, 1)))).all()


def test_bad_pictures_are_refused(monkeypatch):
    with pytest.raises(InvalidInputError, match="square"):
        plot_network(np.zeros((2, 3)))
    with pytest.raises(InvalidInputError, match="names"):
        plot_network(np.zeros((2, 2)), names=["a"])
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingDependencyError, match="plot"):
        plot_network(np.zeros((2, 2)))
