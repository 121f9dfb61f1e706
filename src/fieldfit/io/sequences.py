"""Column files (CoNLL): one token in each line, an empty line between sequences, plain or gzip.

    He        PRP  B-NP
    reckons   VBZ  B-VP

All lines of a file have the same number of columns, separated by white space or by ``separator``.
"""

from __future__ import annotations

import math
import re

from fieldfit._validation import require_text, shown
from fieldfit.errors import FileFormatError
from fieldfit.io._text import Source, read_bytes

__all__ = ["decoded_lines", "read_columns", "read_crfsuite"]


def read_columns(source: Source, separator: str | None = None) -> list[list[tuple[str, ...]]]:
    r"""Read the sequences of a column file: for each a list of tokens, for each its columns.

    Parameters
    ----------
    source
        Path or open binary file; gzip is recognised by its content.
    separator
        What stands between two columns; ``None`` is any white space.

    Returns
    -------
    list of lists of tuples
        The columns of each token of each sequence.

    Examples
    --------
    >>> import io
    >>> sequences = read_columns(io.BytesIO(b"He PRP B-NP\nreckons VBZ B-VP\n\nSo RB O\n"))
    >>> [len(tokens) for tokens in sequences]
    [2, 1]
    >>> sequences[0][1]
    ('reckons', 'VBZ', 'B-VP')
    """
    require_text("separator", separator, or_none=True)
    name, lines = decoded_lines(source)
    sequences: list[list[tuple[str, ...]]] = []
    tokens: list[tuple[str, ...]] = []
    width = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            if tokens:
                sequences.append(tokens)
                tokens = []
            continue
        columns = tuple(line.split(separator))
        if not width:
            width = len(columns)
        if len(columns) != width:
            raise FileFormatError(
                f"{name}, line {number}: expected {width} columns as in the first line, "
                f"found {len(columns)}"
            )
        tokens.append(columns)
    if tokens:
        sequences.append(tokens)
    if not sequences:
        raise FileFormatError(f"{name}: the file is empty, expected lines with columns")
    return sequences


def decoded_lines(source: Source) -> tuple[str, list[str]]:
    """Name of a text file, and its lines without their ends."""
    name, data = read_bytes(source)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{name}, line {line}: expected UTF-8 text, found byte 0x{data[error.start]:02x}"
        ) from None
    # not splitlines(): words may hold characters that it takes for the end of a line
    return name, [line.removesuffix("\r") for line in text.split("\n")]


# -- Crfsuite ------------------------------------------------------------------------------
# CRFsuite's text files: one token in each line, an empty line between sequences, plain or gzip.
#
#     B-NP<tab>w[0]=He<tab>pos[0]=PRP<tab>length:2
#
# A line has the label and then the attributes, separated by tabs.  An attribute may end in a colon
# and its value (1 if there is none); a colon or a backslash that belongs to the name is written
# ``\:`` or ``\\``.


_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
#: Name (with escapes) and value of an attribute.
_ATTRIBUTE = re.compile(r"((?:[^\\:]|\\.)*)(?::(.*))?", re.DOTALL)


def read_crfsuite(
    source: Source,
) -> tuple[list[list[dict[str, float]]], list[list[str | None]]]:
    r"""Read sequences and their labels, as `ChainCRF` takes them.

    An empty label is missing (``None``).  Values of an attribute that a token has twice are added.

    Examples
    --------
    >>> import io
    >>> X, Y = read_crfsuite(io.BytesIO(b"NOUN\tw=dog\tlength:3\nVERB\tw=\\:\n\nNOUN\tw=cat\n"))
    >>> X
    [[{'w=dog': 1.0, 'length': 3.0}, {'w=:': 1.0}], [{'w=cat': 1.0}]]
    >>> Y
    [['NOUN', 'VERB'], ['NOUN']]
    """
    name, lines = decoded_lines(source)
    sequences: list[list[dict[str, float]]] = []
    label_sequences: list[list[str | None]] = []
    tokens: list[dict[str, float]] = []
    labels: list[str | None] = []
    names: dict[str, str] = {}  # one string for each name, however many tokens have it
    for number, line in enumerate(lines, start=1):
        if not line.strip(" "):
            if tokens:
                sequences.append(tokens)
                label_sequences.append(labels)
                tokens, labels = [], []
            continue
        label, *attributes = line.split("\t")
        token: dict[str, float] = {}
        for text in attributes:
            if not text:  # a tab at the end of the line
                continue
            value = 1.0
            if ":" in text or "\\" in text:
                text, value = _split(text, f"{name}, line {number}")
            text = names.setdefault(text, text)
            token[text] = token[text] + value if text in token else value
        tokens.append(token)
        labels.append(label or None)
    if tokens:
        sequences.append(tokens)
        label_sequences.append(labels)
    if not sequences:
        raise FileFormatError(f"{name}: the file is empty, expected lines with a label")
    return sequences, label_sequences


def _split(text: str, place: str) -> tuple[str, float]:
    """Name and value of an attribute with a colon or an escape."""
    found = _ATTRIBUTE.fullmatch(text)
    if found is None:
        raise FileFormatError(
            f"{place}: expected ':' or '\\' after a backslash, found the end of {shown(text)}"
        )
    name = _ESCAPED.sub(r"\1", found[1])
    if found[2] is None:
        return name, 1.0
    try:
        value = float(found[2].replace("_", "x"))  # Python reads 1_000 as a number
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FileFormatError(
            f"{place}: expected a finite number after the colon of {shown(name)} "
            f"(a colon of the name is written '\\:'), found {shown(found[2])}"
        )
    return name, value
