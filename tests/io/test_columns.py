"""Column files, CRFsuite files, and the score of chunks."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest

from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io.sequences import read_columns, read_crfsuite
from fieldfit.metrics import ChunkScore, chunk_f1, chunk_scores, chunks

COLUMNS = b"He PRP B-NP\nreckons VBZ B-VP\n\n\nSo  RB\tO\r\n\r\n"


# -- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_columns(tmp_path, packed):
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress(COLUMNS) if packed else COLUMNS)
    assert read_columns(path) == [
        [("He", "PRP", "B-NP"), ("reckons", "VBZ", "B-VP")],
        [("So", "RB", "O")],
    ]


def test_columns_with_a_separator_may_hold_blanks():
    assert read_columns(io.BytesIO(b"New York\tNNP\n"), separator="\t") == [[("New York", "NNP")]]


def test_words_may_hold_odd_white_space():
    """U+0085 and U+2028 end a line for ``str.splitlines``, but not in these files."""
    text = "a\u0085b\tX\nc\u2028d\tY\n".encode()
    assert read_columns(io.BytesIO(text), "\t") == [[("a\u0085b", "X"), ("c\u2028d", "Y")]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "train.txt: the file is empty"),
        (b"\n \n", "train.txt: the file is empty"),
        (b"a b c\n\nd e\n", "train.txt, line 3: expected 3 columns as in the first line, found 2"),
        (b"a b\nc \xff\n", "train.txt, line 2: expected UTF-8 text, found byte 0xff"),
    ],
)
def test_bad_columns(tmp_path, content, message):
    path = tmp_path / "train.txt"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        read_columns(path)


# -- CRFsuite -------------------------------------------------------------------------------------


def test_crfsuite():
    text = (
        rb"B-NP" b"\tw=He\tlength:2\tlength:0.5\n" b"O\tw=\\:\ta\\\\b:3\t\n\n\n" b"\tw=x\n" b"O\n"
    )
    X, Y = read_crfsuite(io.BytesIO(text))
    assert X == [[{"w=He": 1.0, "length": 2.5}, {"w=:": 1.0, "a\\b": 3.0}], [{"w=x": 1.0}, {}]]
    assert Y == [["B-NP", "O"], [None, "O"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n", "<stream>: the file is empty"),
        (b"O\ta\nO\tw=12:30\tb:x\n", "line 2: expected a finite number after the colon of 'b'"),
        (b"O\ta:nan\n", "line 1: expected a finite number"),
        (b"O\ta:1:2\n", "line 1: expected a finite number after the colon of 'a'"),
        (b"O\ta\\\n", "line 1: expected ':' or .* after a backslash"),
    ],
)
def test_bad_crfsuite(content, message):
    with pytest.raises(FileFormatError, match=message):
        read_crfsuite(io.BytesIO(content))


# -- chunks ---------------------------------------------------------------------------------------


def slow_chunks(labels):
    """The published rules, token by token, on (mark, type) pairs."""
    pairs = [tuple((*label.split("-", 1), "")[:2]) for label in labels] + [("O", "")]
    found, begin = set(), None
    for t, (mark, kind) in enumerate(pairs):
        before, kind_before = pairs[t - 1] if t else ("O", "")
        ends = before != "O" and (mark in ("B", "O") or kind != kind_before)
        starts = mark == "B" or (mark == "I" and (before == "O" or kind != kind_before))
        if ends:
            found.add((begin, t, kind_before))
        if starts:
            begin = t
    return found


def test_chunks_follow_the_rules_of_the_shared_task():
    rng = np.random.default_rng(0)
    names = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    for _ in range(200):
        labels = rng.choice(names, rng.integers(0, 9)).tolist()
        assert chunks(labels) == slow_chunks(labels)


def test_chunks_of_other_notations():
    assert chunks(["S-X", "B-X", "E-X", "I-X", "S-X"]) == {
        (0, 1, "X"), (1, 3, "X"), (3, 4, "X"), (4, 5, "X"),
    }  # fmt: skip
    assert chunks(["I-X", None, "I-X-Y"]) == {(0, 1, "X"), (2, 3, "X-Y")}


def test_chunk_scores():
    true = [["B-X", "I-X", "O", "B-Y"], ["B-X"]]
    guess = [["B-X", "O", "O", "B-Y"], np.array(["B-X"])]
    scores = chunk_scores(true, guess)
    assert scores == {"": ChunkScore(3, 3, 2), "X": ChunkScore(2, 2, 1), "Y": ChunkScore(1, 1, 1)}
    assert (
        scores[""].precision == scores[""].recall == chunk_f1(true, guess) == pytest.approx(2 / 3)
    )
    assert chunk_f1([["O"]], [["O"]]) == 0.0
    with pytest.raises(InvalidInputError, match="got 1 and 2"):
        chunk_f1([["O"]], [["O"], ["O"]])
