"""Text files of numbers: fast to read, exact in their error messages.

UAI and libDAI files are white-space separated numbers, the first of them counts that say how
many follow.  All numbers of a file are converted in one pass, so that the readers only do index
arithmetic on one array, and an announced size is compared with the numbers that are really there
before anything is allocated.  Lines and tokens are located only when an error needs them.

Weights keep their logarithm even where a double cannot hold them: ``1e-400`` is not zero.
"""

from __future__ import annotations

import codecs
import gzip
import math
import os
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit._validation import require_number, require_output, require_path
from fieldfit.errors import FileFormatError, InvalidInputError, TooLargeError
from fieldfit.graph.factor_graph import MAX_ENTRIES, FactorGraph
from fieldfit.graph.potentials import Potentials, require_graph
from fieldfit.io._atomic_file import write_atomically

__all__ = [
    "NumberFile",
    "Source",
    "graph_of_scopes",
    "integer_texts",
    "ranges",
    "read_bytes",
    "require_memory",
    "require_writable",
    "unary_factors",
    "weight_texts",
    "write_text",
]

Positions = NDArray[np.int64]

#: What the readers take: a path (plain or gzip), or an open binary file.
Source = str | os.PathLike[str] | BinaryIO

#: Below it doubles lose digits.
SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
LOG_10 = math.log(10.0)
#: A weight of 1e-400 is a weight; with longer exponents even its logarithm is beyond doubles.
MAX_EXPONENT_DIGITS = 310
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_NUMBER = re.compile(
    rb"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE
)


class NumberFile:
    """The numbers of one file in order, with the place of each for error messages.

    Parameters
    ----------
    source
        Path or open binary file; gzip is recognised by its content.
    keywords
        If given, the file must begin with one of these words, and ``keyword`` says which.
    comments
        Whether ``#`` begins a comment that ends with the line.
    """

    def __init__(
        self, source: Source, *, keywords: tuple[str, ...] = (), comments: bool = False
    ) -> None:
        self.name, data = read_bytes(source)
        if comments and b"#" in data:
            # blanks of the same length keep every line number
            data = re.sub(rb"#[^\n]*", lambda found: b" " * len(found[0]), data)
        self._text = data + b"\n"  # so that every token has an end
        self.keyword, self._begin = self._take_keyword(keywords)
        self.values = self._convert()

    # -- reading --------------------------------------------------------------------------

    def _take_keyword(self, keywords: tuple[str, ...]) -> tuple[str, int]:
        first = re.match(rb"\s*(\S+)", self._text)
        if first is None:
            needed = " or ".join(keywords) or "a number"
            raise FileFormatError(f"{self.name}: the file is empty, expected {needed}")
        if not keywords:
            return "", 0
        word = first[1].decode("ascii", "backslashreplace")
        if word.upper() not in keywords:
            raise FileFormatError(
                f"{self.name}, line {self._line(first.start(1))}: "
                f"expected {' or '.join(keywords)}, found {_quoted(first[1])}"
            )
        return word.upper(), first.end()

    def _convert(self) -> FloatArray:
        body = self._text[self._begin :].strip()
        if not body:
            return np.zeros(0)
        with warnings.catch_warnings():
            # unmatched text is an error in new NumPy and a deprecation warning in older ones
            warnings.simplefilter("error", DeprecationWarning)
            try:
                values = np.fromstring(body, dtype=np.float64, sep=" ")
            except (ValueError, DeprecationWarning):
                self._refuse_text()
        # one number for each token: NumPy would split "1-2" into two numbers
        blank = _blanks(self._text, self._begin)
        if len(values) != np.count_nonzero(blank[1:] & ~blank[:-1]):
            self._refuse_text()
        return values

    def _refuse_text(self) -> NoReturn:
        for found in re.finditer(rb"\S+", self._text[self._begin :]):
            if not _NUMBER.fullmatch(found[0]):
                line = self._line(self._begin + found.start())
                raise FileFormatError(
                    f"{self.name}, line {line}: expected a number, found {_quoted(found[0])}"
                )
        raise FileFormatError(f"{self.name}: the file holds text that is not a number")

    # -- places ---------------------------------------------------------------------------

    @cached_property
    def _token_spans(self) -> tuple[Positions, Positions]:
        """Byte offsets of the beginning and end of every number."""
        blank = np.concatenate([[True], _blanks(self._text, self._begin)])
        begins = np.flatnonzero(blank[:-1] & ~blank[1:]) + self._begin
        ends = np.flatnonzero(~blank[:-1] & blank[1:]) + self._begin
        return begins, ends

    def _token(self, position: int) -> bytes:
        begins, ends = self._token_spans
        return self._text[begins[position] : ends[position]]

    def _line(self, offset: int) -> int:
        return self._text.count(b"\n", 0, offset) + 1

    def expected(self, position: int, requirement: str) -> FileFormatError:
        """The error for a number (or the end of the file) that breaks a requirement."""
        if position >= len(self.values):
            return FileFormatError(
                f"{self.name}: expected {requirement}, "
                f"found the end of the file after {len(self.values)} numbers"
            )
        line = self._line(int(self._token_spans[0][position]))
        token = position + 1 + bool(self.keyword)
        return FileFormatError(
            f"{self.name}, line {line}, token {token}: expected {requirement}, "
            f"found {_quoted(self._token(position))}"
        )

    # -- checked access -------------------------------------------------------------------

    @property
    def n_numbers(self) -> int:
        return len(self.values)

    def integer(self, position: int, what: str, low: int = 0, high: int = MAX_ENTRIES) -> int:
        """One integer in ``low..high``."""
        return int(self.integers(np.array([position]), what, low, high)[0])

    def count(self, position: int, what: str) -> int:
        """A number of things, each of which needs at least one further number in the file."""
        count = self.integer(position, f"the number of {what}")
        left = self.n_numbers - position - 1
        if count > left:
            raise FileFormatError(
                f"{self.name}: the file announces {count} {what}, but only {left} numbers follow"
            )
        return count

    def integers(
        self, positions: Positions, what: str, low: int = 0, high: int = MAX_ENTRIES
    ) -> Positions:
        """Integers in ``low..high`` at the given positions."""
        if len(positions) and positions[-1] >= self.n_numbers:
            raise self.expected(self.n_numbers, what)
        numbers = self.values[positions]
        good = (numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers))
        if not good.all():
            limits = f"in {low}..{high}" if high < MAX_ENTRIES else f"of at least {low}"
            first = int(positions[np.flatnonzero(~good)[0]])
            raise self.expected(first, f"{what} (an integer {limits})")
        return numbers.astype(np.int64)

    def log_weights(self, positions: Positions) -> FloatArray:
        """Natural logarithms of the weights at the given positions; weight 0 gives ``-inf``."""
        weights = self.values[positions]
        bad = np.flatnonzero(~(weights >= 0))
        if len(bad):
            raise self.expected(int(positions[bad[0]]), "a weight of at least 0")
        with np.errstate(divide="ignore"):
            logs = np.log(weights)
        outside = np.flatnonzero((weights < SMALLEST_NORMAL) | (weights == np.inf))
        if len(outside):
            self._restore_logs(logs, positions, outside)
        return logs

    def _restore_logs(self, logs: FloatArray, positions: Positions, outside: Positions) -> None:
        """Logarithms from the text for weights that under- or overflowed as doubles.

        Plain zeros, the common case, are told apart without a Python loop: they have no digit
        1-9.
        """
        begins, ends = self._token_spans
        spans = np.stack([begins[positions[outside]], ends[positions[outside]]], axis=1).ravel()
        text = np.frombuffer(self._text, dtype=np.uint8)
        is_digit = (text >= ord("1")) & (text <= ord("9"))
        has_digit = np.logical_or.reduceat(is_digit, spans)[::2]
        infinite = self.values[positions[outside]] == np.inf
        for index in outside[has_digit | infinite]:
            token = self._token(int(positions[index])).decode("ascii").lower()
            if "inf" in token:
                raise self.expected(int(positions[index]), "a finite weight")
            try:
                logs[index] = _log_of_decimal(token)
            except (ArithmeticError, ValueError):
                raise self.expected(
                    int(positions[index]), "a weight whose logarithm is a number"
                ) from None

    def finish(self, position: int) -> None:
        """Refuse numbers after the last one that belongs to the model."""
        if position < self.n_numbers:
            raise self.expected(position, "the end of the file")


def ranges(begins: Positions, lengths: Positions) -> Positions:
    """Concatenation of ``begin .. begin + length - 1`` for every pair."""
    first = np.cumsum(lengths) - lengths
    return np.repeat(begins - first, lengths) + np.arange(int(lengths.sum()))


def graph_of_scopes(
    file: NumberFile, cardinalities: Positions, begins: Positions, arities: Positions
) -> FactorGraph:
    """Graph whose scopes stand in the file from the given positions on (already in range)."""
    variables = file.values[ranges(begins, arities)].astype(np.int64)
    try:
        return FactorGraph.from_flat(cardinalities, variables, arities)
    except TooLargeError:
        raise
    except InvalidInputError:
        # a repeated variable is all that is left to be wrong; only now its place is looked for
        for factor, (begin, arity) in enumerate(zip(begins, arities, strict=True)):
            scope = file.values[begin : begin + arity].tolist()
            for slot, variable in enumerate(scope):
                if variable in scope[:slot]:
                    raise file.expected(
                        int(begin) + slot, f"distinct variables in the scope of factor {factor}"
                    ) from None
        raise


def require_memory(file: NumberFile, graph: FactorGraph, max_memory: float) -> None:
    """Refuse a model whose values would take too many bytes, before they are allocated."""
    require_number("max_memory", max_memory, above=0, finite=False)
    needed = 8.0 * (int(graph.unary_offsets[-1]) + int(graph.table_offsets[-1]))
    if needed > max_memory:
        raise TooLargeError(
            f"{file.name}: the model needs {needed / 1e9:.3g} GB for its tables, "
            f"max_memory allows {max_memory / 1e9:.3g} GB"
        )


# -- helpers ------------------------------------------------------------------------------


def read_bytes(source: Source) -> tuple[str, bytes]:
    """Name and content of a file, decompressed if it is gzip."""
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "<stream>"))
        data = source.read()
        if not isinstance(data, bytes):
            raise InvalidInputError("source must be a path or a file opened in binary mode (rb)")
    else:
        require_path("source", source)
        name = os.fspath(source)
        data = Path(source).read_bytes()
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise FileFormatError(
                f"{name}: the file is not complete gzip data ({error})"
            ) from error
    return name, _without_mark(name, data)


def _without_mark(name: str, data: bytes) -> bytes:
    """Text in UTF-8 without the byte-order mark that editors and spreadsheets put in front."""
    if data.startswith(codecs.BOM_UTF8):
        return data[len(codecs.BOM_UTF8) :]
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16").encode()
        except UnicodeError:
            raise FileFormatError(f"{name}: the file is not complete UTF-16 text") from None
    return data


def _blanks(text: bytes, begin: int) -> NDArray[np.bool_]:
    """True for every white-space byte from ``begin`` on."""
    codes = np.frombuffer(text, dtype=np.uint8)[begin:]
    blank: NDArray[np.bool_] = (codes == 32) | ((codes >= 9) & (codes <= 13))
    return blank


def _quoted(token: bytes) -> str:
    text = token[:40].decode("ascii", "backslashreplace")
    return repr(text) + ("..." if len(token) > 40 else "")


def _log_of_decimal(token: str) -> float:
    """Natural logarithm of a decimal of any magnitude."""
    mantissa, _, exponent = token.partition("e")
    digits = Decimal(mantissa)
    if digits.is_zero():
        return -math.inf
    if len(exponent) > MAX_EXPONENT_DIGITS:
        raise OverflowError
    shift = digits.adjusted()
    log = math.log(digits.scaleb(-shift)) + (shift + int(exponent or 0)) * LOG_10
    if not math.isfinite(log):
        raise OverflowError
    return log


# -- Writing -------------------------------------------------------------------------------
# What the writers of model files share: numbers as text, checks, plain or compressed files.


def weight_texts(logs: FloatArray) -> list[str]:
    """Weights ``exp(log)`` in decimal, the shortest text that reads back as the same double.

    A weight that no normal double holds is written as mantissa and exponent worked out from its
    logarithm, so no value is flushed to zero; `NumberFile.log_weights` reads it back.
    """
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(logs)
    texts = list(map(repr, weights.tolist()))
    outside = ((weights < SMALLEST_NORMAL) & (logs > -np.inf)) | (weights == np.inf)
    for index in np.flatnonzero(outside):
        exponent = math.floor(logs[index] / LOG_10)
        mantissa = 10.0 ** (logs[index] / LOG_10 - exponent)
        texts[index] = f"{mantissa:.17g}e{exponent:+d}"
    return texts


def integer_texts(values: NDArray[np.integer[Any]]) -> list[str]:
    """Decimal texts of an integer array."""
    return list(map(str, values.tolist()))


def require_writable(graph: FactorGraph, potentials: Potentials) -> None:
    """Refuse potentials of another graph, and values that no weight stands for."""
    require_graph(graph, potentials)
    for values in (potentials.unary_values, potentials.factor_values):
        if values.size and not np.max(values) < np.inf:
            bad = values[~(values < np.inf)][0]
            raise InvalidInputError(f"potentials must hold log values below +inf, got {bad}")


def unary_factors(potentials: Potentials) -> list[int]:
    """Variables whose unary part is not all zero: files know it only as a factor of arity one."""
    offsets = potentials.graph.unary_offsets[:-1]
    if not len(offsets):
        return []
    used = np.logical_or.reduceat(potentials.unary_values != 0, offsets)
    return [int(variable) for variable in np.flatnonzero(used)]


def write_text(path: str | os.PathLike[str], parts: Iterable[str]) -> None:
    """Write the parts one after another; a name that ends in ``.gz`` is compressed."""
    require_output("path", path)
    chunks = (part.encode("ascii") for part in parts)
    is_compressed = Path(path).suffix == ".gz"
    write_atomically(path, _compressed(chunks) if is_compressed else chunks)


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()
