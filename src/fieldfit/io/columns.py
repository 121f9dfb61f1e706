"""Column files (CoNLL): one token in each line, an empty line between sequences, plain or gzip.

    He        PRP  B-NP
    reckons   VBZ  B-VP

All lines of a file have the same number of columns, separated by white space or by ``separator``.
"""

from __future__ import annotations

from fieldfit.errors import FileFormatError
from fieldfit.io._tokens import Source, _read_bytes

__all__ = ["decoded_lines", "read_columns"]


def read_columns(source: Source, separator: str | None = None) -> list[list[tuple[str, ...]]]:
    r"""Read the sequences of a column file: for each a list of tokens, for each its columns.

    Parameters
    ----------
    source
        Path or open binary file; gzip is recognised by its content.
    separator
        What stands between two columns; ``None`` is any white space.

    Examples
    --------
    >>> import io
    >>> sequences = read_columns(io.BytesIO(b"He PRP B-NP\nreckons VBZ B-VP\n\nSo RB O\n"))
    >>> [len(tokens) for tokens in sequences]
    [2, 1]
    >>> sequences[0][1]
    ('reckons', 'VBZ', 'B-VP')
    """
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
    name, data = _read_bytes(source)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{name}, line {line}: expected UTF-8 text, found byte 0x{data[error.start]:02x}"
        ) from None
    # not splitlines(): words may hold characters that it takes for the end of a line
    return name, [line.removesuffix("\r") for line in text.split("\n")]
