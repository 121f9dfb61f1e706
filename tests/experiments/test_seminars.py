"""Seminar announcements: tags in line, tokens of times and names, errors that say where."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.seminars_reader import FIELDS, parse_mail, read_seminars, token_offsets
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.metrics import chunks

MAIL = (
    "<0.2.5.95.cd01+@andrew.cmu.edu.0>\n"
    "Type:     cmu.andrew.academic.sds.seminars\n"
    "Time:     <stime>4:00</stime> - <etime>5:30</etime>\n"
    "\n"
    "<paragraph><sentence><speaker>Dr. Jo Lee</speaker> will speak</sentence>. "
    "<sentence>Come to <location>PH 223D</sentence></location>.</paragraph>\n"
)


def words(text):
    return [text[begin:end] for begin, end in token_offsets(text)]


def line(text, **changes):
    return json.dumps({"id": 7, "part": "train", "text": text, **changes})


# -- one mail -------------------------------------------------------------------------------------


def test_fields_structure_and_lines():
    mail = parse_mail(MAIL, mail_id=3, part="train")
    assert (mail.id, mail.part) == (3, "train")
    assert mail.tokens[:3] == ("<", "0.2.5.95.cd01+@andrew.cmu.edu.0", ">")
    assert [mail.text[span.begin : span.end] for span in mail.spans] == [
        "4:00",
        "5:30",
        "Dr. Jo Lee",
        "PH 223D",
    ]
    assert [kind for _, _, kind in sorted(chunks(mail.labels))] == [
        "stime",
        "etime",
        "speaker",
        "location",
    ]
    by_word = {word: place for place, word in enumerate(mail.tokens)}
    # the sentence closes inside of the location, the point after it is outside
    assert mail.sentences[by_word["Dr."]] == 0
    assert mail.sentences[by_word["223D"]] == 1
    assert mail.sentences[len(mail.tokens) - 1] == -1
    assert mail.paragraphs[len(mail.tokens) - 1] == 0
    assert mail.paragraphs[by_word["Type"]] == -1
    assert mail.lines[by_word["4:00"]] == 2
    assert mail.line_texts[2] == "Time:     4:00 - 5:30"
    assert mail.line_texts[3] == ""


def test_structure_left_open_ends_with_the_mail():
    mail = parse_mail("a <sentence>b c</sentence> d <sentence>e f")
    assert mail.sentences.tolist() == [-1, 0, 0, -1, 1, 1]
    again = parse_mail("<sentence>a <sentence>b</sentence> c")
    assert again.sentences.tolist() == [0, 1, -1]


def test_spans_that_end_inside_a_token_cover_it():
    mail = parse_mail("<speaker>Dr. Bahet</speaker>i at <stime>4 p.m</stime>.")
    assert list(zip(mail.tokens, mail.labels, strict=True)) == [
        ("Dr.", "B-speaker"),
        ("Baheti", "I-speaker"),
        ("at", "O"),
        ("4", "B-stime"),
        ("p.m.", "I-stime"),
    ]
    # the span itself is as tagged
    assert mail.text[mail.spans[0].begin : mail.spans[0].end] == "Dr. Bahet"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n<stime>4", "text must close <stime> of line 2, got the end"),
        ("a</stime> b", "text must have <stime> before </stime>, got </stime> in line 1"),
        ("<stime>4 <stime>5</stime>", "text must have </stime>, got <stime> in line 1"),
        ("<stime> </stime>", "the stime from character 0 to 1 is empty"),
        ("<stime>3:</stime><etime>30</etime>", "character 2 to 4 shares a token with another"),
    ],
)
def test_bad_tags(text, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_mail(text)


def test_mail_without_anything():
    mail = parse_mail("")
    assert mail.tokens == mail.labels == mail.spans == ()
    assert mail.offsets.shape == (0, 2)


# -- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3:30-5:00", ["3:30", "-", "5:00"]),
        ("7 PM", ["7", "PM"]),
        ("10am, 12noon", ["10", "am", ",", "12", "noon"]),
        ("3:30pm-5pm", ["3:30", "pm", "-", "5", "pm"]),
        ("at 4:30 p.m. in", ["at", "4:30", "p.m.", "in"]),
        ("9.00 A.M", ["9.00", "A.M"]),
        ("WeH 5409", ["WeH", "5409"]),
        ("DH3313, BH-129", ["DH3313", ",", "BH", "-", "129"]),
        ("Dr. Jane W. Doe, Ph.D.", ["Dr.", "Jane", "W.", "Doe", ",", "Ph.D."]),
        ("Dr.Ted O'Hara's talk", ["Dr.", "Ted", "O'Hara", "'s", "talk"]),
        ("Kai-Fu Lee.", ["Kai", "-", "Fu", "Lee", "."]),
        ("on 15-Sep-94 at 22:29", ["on", "15", "-", "Sep", "-", "94", "at", "22:29"]),
        ("andrew.cmu.edu (jd@cs.cmu.edu)", ["andrew.cmu.edu", "(", "jd@cs.cmu.edu", ")"]),
        ("-----\n*** END", ["-----", "***", "END"]),
        ("snake_case", ["snake", "_", "case"]),
    ],
)  # fmt: skip
def test_tokens(text, expected):
    assert words(text) == expected


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_tokens_hold_every_character_but_white_space(text):
    assert "".join(words(text)) == "".join(text.split())


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_files(tmp_path, packed):
    path = tmp_path / "mails.jsonl"
    data = f"{line(MAIL)}\n\n{line('plain', id=8, part='test')}\n".encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    first, second = read_seminars(path)
    assert (first.id, second.id, second.part) == (7, 8, "test")
    assert second.labels == ("O",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "mails.jsonl: the file is empty, expected one mail in each line"),
        ("hello\n", "mails.jsonl, line 1: expected a JSON object, found 'hello'"),
        ("[1]\n", "line 1: expected a JSON object, found a value of type list"),
        (f"{line('a')}\n{line('a', id='x')}", "line 2: expected 'id' of type int, found 'x'"),
        ('{"id": 1, "part": "train"}', "line 1: expected 'text' of type str, found None"),
        (line("<stime>4"), "line 1: mail 7: text must close <stime> of line 1, got the end"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "mails.jsonl"
    path.write_text(content)
    with pytest.raises(FileFormatError, match=message) as caught:
        read_seminars(path)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text():
    with pytest.raises(FileFormatError, match="expected UTF-8 text"):
        read_seminars(io.BytesIO(b'{"id": 1}\n\xff'))


@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
def test_the_corpus_keeps_every_span():
    """Counts of the corpus as it is distributed; no span is lost to tokens."""
    mails = read_seminars(Path(os.environ["FIELDFIT_DATA"], "seminars", "seminars.jsonl.gz"))
    assert Counter(mail.part for mail in mails) == {"train": 301, "test": 184}
    tagged = Counter(span.field for mail in mails for span in mail.spans)
    assert tagged == {"stime": 982, "etime": 431, "location": 642, "speaker": 756}
    labelled = Counter(kind for mail in mails for _, _, kind in chunks(mail.labels))
    assert labelled == tagged
    changed = []
    for mail in mails:
        for (first, last, kind), span in zip(sorted(chunks(mail.labels)), mail.spans, strict=True):
            begin, end = mail.offsets[first, 0], mail.offsets[last - 1, 1]
            assert kind == span.field
            # a label covers its span: at most one blank of a span is in no token
            assert begin == span.begin
            assert end >= span.end or mail.text[end : span.end].isspace()
            changed.append(mail.text[span.end : end].strip())
    # what is added: the point of "p.m.", and the rest of words that were cut
    assert set(changed) == {"", ".", ".m.", "i", "l", "r"}
    assert {field for mail in mails for field in {span.field for span in mail.spans}} == set(FIELDS)
    assert all(np.diff(mail.lines).min(initial=0) >= 0 for mail in mails)
