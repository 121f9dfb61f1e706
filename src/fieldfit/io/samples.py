"""Label samples from files: tables of numbers (CSV) and aligned sequences (FASTA), plain or gzip.

* CSV: one sample in each line, values separated by commas (or by what ``delimiter`` says); a first
  line that is not all numbers names the columns.  ``NA`` and empty entries are missing.  Columns
  that are not used may hold anything.
* FASTA: a line ``>name`` and then the letters of the sequence, in one or several lines; all
  sequences have one length, because they are aligned.  `fieldfit.io.alignments` reads other
  formats, too.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._validation import require_text, require_texts, shown
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io._text import Source, read_bytes

__all__ = [
    "PROTEIN_ALPHABET",
    "Alignment",
    "Records",
    "SampleLines",
    "SampleTable",
    "csv_rows",
    "decoded_text",
    "encoded",
    "fasta_records",
    "read_fasta",
    "read_lines",
    "read_samples",
    "require_alphabet",
]

#: The gap and the twenty amino acids, in the order of their letters.
PROTEIN_ALPHABET = "-ACDEFGHIKLMNPQRSTVWY"
#: How tables write that a value is missing.
MISSING = ("", "NA", "N/A", "NaN", "nan", "?")


@dataclass(frozen=True)
class SampleTable:
    """Numbers: ``values`` (n_samples, n_columns), NaN where missing, and ``names`` of columns."""

    values: NDArray[np.float64]
    names: tuple[str, ...]

    def columns(self, names: list[str] | tuple[str, ...]) -> SampleTable:
        """Some of the columns, in the given order."""
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise InvalidInputError(
                f"names must be columns of the table {list(self.names)}, got {unknown[0]!r}"
            )
        index = [self.names.index(name) for name in names]
        return SampleTable(self.values[:, index], tuple(names))


@dataclass(frozen=True)
class Alignment:
    """Aligned sequences: ``labels`` (n_sequences, n_columns) are positions in ``alphabet``."""

    labels: NDArray[np.int16]
    names: tuple[str, ...]
    alphabet: str


@dataclass(frozen=True)
class SampleLines:
    """The entries of a table as text: of the file ``source``, row ``r`` at line ``places[r]``."""

    source: str
    names: tuple[str, ...]
    has_names: bool
    rows: list[list[str]]
    places: list[int]

    def numbers(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Some columns, which must hold numbers; what the others hold does not matter."""
        values = np.empty((len(self.rows), len(columns)))
        for number, row in enumerate(self.rows):
            for place, column in enumerate(columns):
                entry = row[column]
                if not _is_value(entry):
                    raise FileFormatError(
                        f"{self.source}, line {self.places[number]}: expected a number or NA in "
                        f"column {shown(self.names[column])}, found {shown(entry)} (a column of "
                        "text can be dropped)"
                    )
                values[number, place] = np.nan if entry in MISSING else float(entry)
        return values


def read_samples(
    source: Source,
    delimiter: str = ",",
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
) -> SampleTable:
    r"""Read a table of numbers with optional column names.

    Parameters
    ----------
    source
        Path of the file (plain or gzip) or an open binary file.
    delimiter
        What stands between two columns.
    columns
        Names of those to read, in this order; ``None``: all but those in ``drop``.
    drop
        Names of columns that are not read; they may hold anything.

    Returns
    -------
    SampleTable
        ``names`` of the columns and ``values``, NaN where missing.

    Examples
    --------
    >>> import io
    >>> table = read_samples(io.BytesIO(b"who,first,second\nAnn,0,1\nBob,1,NA\n"), drop=["who"])
    >>> table.names, table.values.tolist()
    (('first', 'second'), [[0.0, 1.0], [1.0, nan]])
    """
    if columns is not None:
        require_texts("columns", columns)
    require_texts("drop", drop)
    lines = read_lines(source, delimiter)
    wanted = lines.names if columns is None else columns
    for name in (*wanted, *drop):
        if name not in lines.names:
            raise InvalidInputError(
                f"{lines.source}: expected a column named {shown(name)}, found "
                f"{', '.join(lines.names)}"
            )
    names = tuple(name for name in wanted if name not in drop)
    return SampleTable(lines.numbers([lines.names.index(name) for name in names]), names)


def read_lines(source: Source, delimiter: str = ",") -> SampleLines:
    """Read the entries of a table, and find out the names of its columns."""
    if not (isinstance(delimiter, str) and len(delimiter) == 1 and delimiter not in '\r\n"'):
        raise InvalidInputError(f"delimiter must be one character, got {shown(delimiter)}")
    name, text = decoded_text(source)
    rows, places = [], []
    for place, row in csv_rows(name, text, delimiter):
        if row:
            rows.append([entry.strip() for entry in row])
            places.append(place)
    if not rows:
        raise FileFormatError(f"{name}: the file is empty, expected a table of numbers")
    n_columns = len(rows[0])
    for row, place in zip(rows, places, strict=True):
        if len(row) != n_columns:
            raise FileFormatError(
                f"{name}, line {place}: expected {n_columns} values, found {len(row)}"
            )
    header = not all(_is_value(entry) for entry in rows[0])
    names = tuple(rows[0]) if header else tuple(str(k) for k in range(n_columns))
    if header and len(set(names)) < n_columns:
        twice = next(entry for entry in names if names.count(entry) > 1)
        raise FileFormatError(f"{name}, line {places[0]}: the column {shown(twice)} is named twice")
    if len(rows) == header:
        raise FileFormatError(f"{name}: expected at least one line of values after the names")
    return SampleLines(name, names, header, rows[header:], places[header:])


def read_fasta(
    source: Source, alphabet: str = PROTEIN_ALPHABET, unknown: str | None = None
) -> Alignment:
    r"""Read aligned sequences; letters become their position in ``alphabet``.

    ``unknown`` is the letter that stands in for letters outside the alphabet (``"-"``, say); with
    ``None`` they are refused.

    Parameters
    ----------
    source
        Path of the file (plain or gzip) or an open binary file.
    alphabet
        The letters, in the order of their labels.
    unknown
        Stands in for letters outside the alphabet; ``None`` refuses them.

    Returns
    -------
    Alignment
        ``names``, ``labels`` with a row for each sequence, and ``alphabet``.

    Examples
    --------
    >>> import io
    >>> found = read_fasta(io.BytesIO(b">first\nAC-\n>second\nCC\nA\n"), alphabet="-AC")
    >>> found.names, found.labels.tolist()
    (('first', 'second'), [[1, 2, 0], [2, 2, 1]])
    """
    require_alphabet(alphabet, unknown)
    name, text = decoded_text(source)
    return encoded(fasta_records(name, text), alphabet, unknown)


@dataclass(frozen=True)
class Records:
    """Sequences of the file ``source`` as text, with their names and the lines they begin at."""

    source: str
    names: list[str]
    sequences: list[str]
    places: list[int]


def fasta_records(name: str, text: str) -> Records:
    """The sequences of a file in which each follows a line ``>name``."""
    names: list[str] = []
    pieces: list[list[str]] = []
    places: list[int] = []
    for place, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith(">"):
            names.append(line[1:].strip())
            pieces.append([])
            places.append(place)
        elif line and not names:
            raise FileFormatError(
                f"{name}, line {place}: expected '>' and a name, found {shown(line)}"
            )
        elif line:
            pieces[-1].append(line)
    if not names:
        raise FileFormatError(
            f"{name}: the file is empty, expected a sequence that begins with '>'"
        )
    return Records(name, names, ["".join(lines) for lines in pieces], places)


def require_alphabet(alphabet: Any, unknown: Any) -> None:
    """Refuse what is no alphabet, and a letter that stands in for others and is not in it."""
    require_text("alphabet", alphabet)
    require_text("unknown", unknown, or_none=True)
    if len(set(alphabet)) < len(alphabet) or not alphabet.isascii():
        raise InvalidInputError(f"alphabet must be different ASCII letters, got {alphabet!r}")
    if unknown is not None and (len(unknown) != 1 or unknown not in alphabet):
        raise InvalidInputError(
            f"unknown must be None or a letter of the alphabet {alphabet!r}, got {unknown!r}"
        )


def encoded(records: Records, alphabet: str, unknown: str | None) -> Alignment:
    """Sequences of one length as labels, the positions of their letters in the alphabet."""
    name, names, sequences, places = (
        records.source, records.names, records.sequences, records.places
    )  # fmt: skip
    length = len(sequences[0])
    for place, sequence, title in zip(places, sequences, names, strict=True):
        if len(sequence) != length or length == 0:
            raise FileFormatError(
                f"{name}, line {place}: expected aligned sequences of {max(length, 1)} letters, "
                f"found {len(sequence)} in {shown(title)}"
            )
    # a letter outside of ASCII becomes one byte that no alphabet has
    letters = re.sub(r"[^\x00-\x7f]", "\x80", "".join(sequences))
    codes = np.frombuffer(letters.encode("latin-1"), dtype=np.uint8)
    table = np.full(256, -1 if unknown is None else alphabet.index(unknown), dtype=np.int16)
    table[np.frombuffer(alphabet.encode("ascii"), dtype=np.uint8)] = np.arange(len(alphabet))
    labels = table[codes].reshape(len(names), length)
    if (labels < 0).any():
        row, column = np.argwhere(labels < 0)[0]
        raise FileFormatError(
            f"{name}, line {places[row]}: expected letters of {alphabet!r}, found "
            f"{sequences[row][column]!r} in {shown(names[row])} (give unknown='-' to read it as a "
            "gap)"
        )
    return Alignment(labels, tuple(names), alphabet)


def csv_rows(name: str, text: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Lines of a table and their numbers."""
    reader = csv.reader(text.splitlines(), delimiter=delimiter)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:  # a value of more than 131,072 characters
        raise FileFormatError(
            f"{name}, line {reader.line_num}: expected a table of values, found a {error}"
        ) from None


def decoded_text(source: Source) -> tuple[str, str]:
    """Name and text of a file in UTF-8."""
    name, data = read_bytes(source)
    try:
        return name, data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name}: expected text in UTF-8 ({error})") from None


def _is_value(entry: str) -> bool:
    if entry in MISSING:
        return True
    try:
        value = float(entry)
    except ValueError:
        return False
    return math.isfinite(value) and "_" not in entry  # Python reads 1_000 as a number
