"""What text files may begin with, and what no reader should choke on, for every text format."""

from __future__ import annotations

import codecs
import io
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

import fieldfit as ff
from benchmarks import fuzz_corpus as corpus
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io.graphs import read_graphs
from fieldfit.io.matchings import read_matchings
from fieldfit.io.sequences import read_crfsuite

READERS = {
    "uai": (ff.read_uai, corpus.UAI),
    "fg": (ff.read_fg, corpus.FG),
    "evidence": (ff.io.read_evidence, b"1 0 1\n"),
    "answer": (ff.io.read_answer, b"MAP\n3 0 1 2\n"),
    "samples": (ff.io.read_samples, corpus.CSV),
    "fasta": (ff.io.read_fasta, corpus.FASTA),
    "a3m": (ff.io.read_alignment, corpus.A3M),
    "stockholm": (ff.io.read_alignment, corpus.STOCKHOLM),
    "columns": (ff.io.read_columns, corpus.COLUMNS),
    "crfsuite": (read_crfsuite, corpus.CRFSUITE),
    "graphs": (read_graphs, corpus.GRAPHS),
    "matchings": (read_matchings, corpus.MATCHINGS),
}
each = pytest.mark.parametrize(("read", "text"), READERS.values(), ids=READERS)


def plain(value):
    """What was read, as something that can be compared."""
    if isinstance(value, ff.FactorGraph):
        return repr(value), value.slot_variables.tolist()
    if isinstance(value, ff.Potentials):
        return value.unary_values.tolist(), value.factor_values.tolist()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, repr(value.tolist())
    if is_dataclass(value):
        return [(field.name, plain(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


@each
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
    ids=["utf-8", "utf-16, little", "utf-16, big"],
)
def test_a_byte_order_mark_is_accepted(read, text, mark, encoding):
    marked = mark + text.decode().encode(encoding)
    assert plain(read(io.BytesIO(marked))) == plain(read(io.BytesIO(text)))


@each
def test_half_a_character_after_a_mark_is_refused(read, text):
    with pytest.raises(FileFormatError, match="not complete UTF-16 text"):
        read(io.BytesIO(codecs.BOM_UTF16_LE + b"\x00\xd8"))


@each
def test_files_opened_as_text_are_refused(read, text):
    with pytest.raises(InvalidInputError, match=r"source must be .* opened in binary mode"):
        read(io.StringIO(text.decode()))


@pytest.mark.parametrize(
    "digits",
    ["1e" + "9" * 400, "1e-" + "9" * 400, "1e-1" + "0" * 308, "1e-" + "9" * 309],
    ids=["large", "small", "log below doubles", "exponent beyond doubles"],
)
def test_exponents_beyond_their_own_logarithm(digits):
    text = f"MARKOV 1 2 1 1 0 2 1.0 {digits}"
    with pytest.raises(FileFormatError, match="a weight whose logarithm is a number, found '1e"):
        ff.read_uai(io.BytesIO(text.encode()))


def test_digits_without_end_are_refused_at_once():
    text = b"MARKOV 1 2 1 1 0 2 1.0 " + b"3" * 2**20 + b"x"
    with pytest.raises(FileFormatError, match=r"expected a number, found '3{40}'\.\.\."):
        ff.read_uai(io.BytesIO(text))


@pytest.mark.parametrize("read", [ff.io.read_samples, read_matchings])
def test_fields_of_a_megabyte(read):
    table = b"example,row,column,matched,age\n0,a,x,1," + b"7" * 2**20 + b"\n"
    with pytest.raises(FileFormatError, match="line 2: expected a table of values") as caught:
        read(io.BytesIO(table))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", ["1e999", "inf", "1_000", "0x10", "'1'"])
def test_what_python_or_nobody_reads_as_a_number(value):
    with pytest.raises(FileFormatError, match="line 2: expected a number or NA in column 'b'"):
        ff.io.read_samples(io.BytesIO(f"a,b\n0,{value}\n".encode()))


def test_deep_json():
    with pytest.raises(FileFormatError, match="line 1: expected a JSON object"):
        read_graphs(io.BytesIO(b'{"nodes": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"))


def test_long_texts_are_cut_in_messages():
    with pytest.raises(FileFormatError, match="expected '>' and a name") as caught:
        ff.io.read_fasta(io.BytesIO(b"A" * 10**5))
    assert len(str(caught.value)) < 200


def test_letters_outside_of_ascii_are_no_letters_of_an_alphabet():
    with pytest.raises(FileFormatError, match=r"expected letters of 'AC.', found 'ü'"):
        ff.io.read_fasta(io.BytesIO(">a\nAü".encode()), alphabet="AC?")
    found = ff.io.read_fasta(io.BytesIO(">a\nAü".encode()), alphabet="AC?", unknown="C")
    assert found.labels.tolist() == [[0, 1]]
