"""Seminar announcements (Freitag, 1998): mails with fields tagged in line.

A file holds one JSON object in each line, ``{"id": 3, "part": "train", "text": "..."}``, plain or
gzip.  The text of a mail is tagged with ``<stime>``, ``<etime>``, ``<location>`` and ``<speaker>``
(fields) and with ``<sentence>`` and ``<paragraph>`` (structure).  Three things need care:

* the first line of a mail is its message id, such as ``<0.15.9.94@andrew.cmu.edu.1>``: it looks
  like a tag and is text, so nothing but the six known tags is removed;
* structure crosses fields, as in ``<location>DH 2315</sentence></location>``: each kind of tag is
  followed on its own;
* structure may be left open, and then it ends with the mail; a field may not.

Labels belong to tokens, spans to characters.  A few spans end inside a word (``Dr. Kishan Bahet``,
then ``i``), and some leave out the last point of ``p.m.``: their labels cover the whole token.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fieldfit import InvalidInputError
from fieldfit.errors import FileFormatError

__all__ = ["FIELDS", "SeminarMail", "Span", "parse_mail", "read_seminars", "token_offsets"]

IntArray = NDArray[np.int64]
Source = str | os.PathLike[str] | BinaryIO

#: Fields to extract.
FIELDS = ("stime", "etime", "location", "speaker")
#: Tags that only say how the text is laid out.
STRUCTURE = ("sentence", "paragraph")
_TAG = re.compile(f"<(/?)({'|'.join((*FIELDS, *STRUCTURE))})>")

#: What makes a token, first match wins.  Times and room numbers come apart from what they touch
#: (``4-5:30``, ``3:30pm``), a point stays with what it abbreviates (``p.m.``, ``Dr.``, ``W.``).
_TOKEN = re.compile(
    r"""
      [\w.+%-]+@[\w-]+(?:\.[\w-]+)*            # address
    | [a-z]\w*(?:\.[a-z][\w-]*){2,}            # host or bulletin board: cmu.cs.robotics
    | [AaPp]\.[Mm]\b\.?                        # p.m.
    | \d{1,2}[:.]\d{2}(?!\d)                   # 3:30, 9.00
    | \d{1,4}(?=[AaPp]\.?[Mm]\b|noon\b)        # 10 of 10am
    | (?:Dr|Mr|Mrs|Ms|Prof|Profs|Jr|Sr|St|Rm)\.
    | [Pp][Hh]\.?[Dd]\b\.?                     # Ph.D.
    | [A-Z]\.(?=[\s,A-Z]|$)                    # W. of W. Smith
    | [A-Za-z]'[A-Z][a-z]+                     # O'Hallaron
    | [^\W_]+                                  # letters and digits: DH3313, A18C, 40th
    | '[a-z]{1,2}\b                            # 's
    | ([^\w\s]|_)\1*                           # a rule of dashes is one token
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Span:
    """Characters ``begin`` to ``end`` (exclusive) of the text of a mail belong to ``field``."""

    begin: int
    end: int
    field: str


@dataclass(frozen=True)
class SeminarMail:
    """One mail without its tags, in tokens.

    Attributes
    ----------
    id, part
        As in the file.
    text
        The mail without tags.
    tokens, labels
        Words, and for each ``B-field``, ``I-field`` or ``O``.
    offsets
        Where tokens begin and end in the text, ``(T, 2)``.
    lines
        Line of each token, from 0; ``line_texts`` are the lines.
    sentences, paragraphs
        Number of the tagged sentence (paragraph) of each token, -1 outside of any.
    spans
        Tagged fields, in characters, by their begin.
    """

    id: int
    part: str
    text: str
    tokens: tuple[str, ...]
    labels: tuple[str, ...]
    offsets: IntArray
    lines: IntArray
    sentences: IntArray
    paragraphs: IntArray
    spans: tuple[Span, ...]

    @property
    def line_texts(self) -> list[str]:
        """The lines of the text."""
        return self.text.split("\n")


def read_seminars(source: Source) -> list[SeminarMail]:
    r"""Read tagged mails.

    Parameters
    ----------
    source
        Path or open binary file; gzip is recognised by its content.

    Examples
    --------
    >>> import io
    >>> line = b'{"id": 1, "part": "train", "text": "Who: <speaker>Dr. Ann Lee</speaker>, CMU"}'
    >>> mail = read_seminars(io.BytesIO(line))[0]
    >>> list(zip(mail.tokens, mail.labels))[2:5]
    [('Dr.', 'B-speaker'), ('Ann', 'I-speaker'), ('Lee', 'I-speaker')]
    """
    name, lines = _decoded_lines(source)
    mails = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        mail_id, part, text = _record(place, line)
        try:
            mails.append(parse_mail(text, mail_id=mail_id, part=part))
        except InvalidInputError as error:
            raise FileFormatError(f"{place}: mail {mail_id}: {error}") from None
    if not mails:
        raise FileFormatError(f"{name}: the file is empty, expected one mail in each line")
    return mails


def _decoded_lines(source: Source) -> tuple[str, list[str]]:
    """Name of the file, and its lines."""
    if isinstance(source, (str, os.PathLike)):
        name, data = os.fspath(source), Path(source).read_bytes()
    else:
        name, data = str(getattr(source, "name", "<stream>")), source.read()
    try:
        text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()
    except (EOFError, OSError, zlib.error) as error:
        raise FileFormatError(f"{name}: the file is not complete gzip data ({error})") from None
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name}: expected UTF-8 text, {error.reason}") from None
    return name, text.split("\n")


def _record(place: str, line: str) -> tuple[int, str, str]:
    """Number, part and tagged text of one line."""
    try:
        record: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise FileFormatError(
            f"{place}: expected a JSON object, found {line[:40]!r} ({error})"
        ) from None
    if not isinstance(record, dict):
        raise FileFormatError(
            f"{place}: expected a JSON object, found a value of type {type(record).__name__}"
        )
    for key, kind in (("id", int), ("part", str), ("text", str)):
        if not isinstance(record.get(key), kind):
            raise FileFormatError(
                f"{place}: expected {key!r} of type {kind.__name__}, found {record.get(key)!r:.40}"
            )
    return record["id"], record["part"], record["text"]


def parse_mail(tagged: str, *, mail_id: int = 0, part: str = "") -> SeminarMail:
    """One mail from its tagged text; text without tags has label ``O`` everywhere.

    >>> mail = parse_mail("<stime>4</stime>-<etime>5:30pm</etime> in PH 223D")
    >>> mail.tokens
    ('4', '-', '5:30', 'pm', 'in', 'PH', '223D')
    >>> mail.labels[:4]
    ('B-stime', 'O', 'B-etime', 'I-etime')
    """
    text, found = _without_tags(tagged)
    spans = tuple(span for span in found if span.field in FIELDS)
    offsets = token_offsets(text)
    begins: list[int] = offsets[:, 0].tolist()
    line_begins = [0, *(match.end() for match in re.finditer("\n", text))]
    lines = [bisect_right(line_begins, begin) - 1 for begin in begins]
    return SeminarMail(
        id=mail_id,
        part=part,
        text=text,
        tokens=tuple(text[begin:end] for begin, end in offsets.tolist()),
        labels=_labels(offsets, spans),
        offsets=offsets,
        lines=np.array(lines, dtype=np.int64),
        sentences=_numbers(begins, [span for span in found if span.field == "sentence"]),
        paragraphs=_numbers(begins, [span for span in found if span.field == "paragraph"]),
        spans=spans,
    )


def token_offsets(text: str) -> IntArray:
    """Where the tokens of a text begin and end, ``(T, 2)``.

    >>> text = "Dr. Jane Doe, WeH 5409, 3:30-5 p.m."
    >>> [text[begin:end] for begin, end in token_offsets(text)]
    ['Dr.', 'Jane', 'Doe', ',', 'WeH', '5409', ',', '3:30', '-', '5', 'p.m.']
    """
    return np.array([match.span() for match in _TOKEN.finditer(text)], np.int64).reshape(-1, 2)


def _without_tags(tagged: str) -> tuple[str, list[Span]]:
    """The text, and what its tags enclose, in the order of their begins."""
    pieces: list[str] = []
    length = place = 0
    opened: dict[str, int] = {}
    found: list[Span] = []
    for tag in _TAG.finditer(tagged):
        pieces.append(tagged[place : tag.start()])
        length += tag.start() - place
        place = tag.end()
        closes, kind = bool(tag[1]), tag[2]
        if closes != (kind in opened) and kind in FIELDS:
            wanted = f"</{kind}>" if kind in opened else f"<{kind}> before </{kind}>"
            line = tagged.count("\n", 0, tag.start()) + 1
            raise InvalidInputError(f"text must have {wanted}, got {tag[0]} in line {line}")
        # structure that is opened again ends where the next begins
        if kind in opened:
            found.append(Span(opened.pop(kind), length, kind))
        if not closes:
            opened[kind] = length
    pieces.append(tagged[place:])
    text = "".join(pieces)
    for kind, begin in opened.items():
        if kind in FIELDS:
            line = text.count("\n", 0, begin) + 1
            raise InvalidInputError(f"text must close <{kind}> of line {line}, got the end")
        found.append(Span(begin, len(text), kind))
    found.sort(key=lambda span: (span.begin, span.end))
    return text, found


def _labels(offsets: IntArray, spans: Sequence[Span]) -> tuple[str, ...]:
    """Labels of all tokens that share a character with a span."""
    labels = ["O"] * len(offsets)
    for span in spans:
        first = int(np.searchsorted(offsets[:, 1], span.begin, side="right"))
        last = int(np.searchsorted(offsets[:, 0], span.end, side="left"))
        if first >= last or any(label != "O" for label in labels[first:last]):
            problem = "is empty" if first >= last else "shares a token with another"
            raise InvalidInputError(
                f"text must give every tagged field tokens of its own, but the {span.field} from "
                f"character {span.begin} to {span.end} {problem}"
            )
        labels[first:last] = [f"B-{span.field}", *[f"I-{span.field}"] * (last - first - 1)]
    return tuple(labels)


def _numbers(begins: Sequence[int], spans: Sequence[Span]) -> IntArray:
    """Number of the last span that begins at or before a place and holds it, else -1."""
    starts = [span.begin for span in spans]
    numbers = [bisect_right(starts, begin) - 1 for begin in begins]
    return np.array(
        [
            number if number >= 0 and begin < spans[number].end else -1
            for begin, number in zip(begins, numbers, strict=True)
        ],
        dtype=np.int64,
    )
