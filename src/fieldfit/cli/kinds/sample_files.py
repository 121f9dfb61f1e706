"""Samples from files for Ising and Potts models: tables, alignments, and pairs of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from fieldfit.cli.kinds.base import Data, NamedBytes, Reader, open_source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["NamedSamples", "SampleReader", "read_edges"]


class NamedSamples:
    """An array with column names, which estimators take over like those of a data frame."""

    def __init__(self, values: NDArray[Any], columns: tuple[str, ...]) -> None:
        self.values = values
        self.columns = columns

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.values if dtype is None else self.values.astype(dtype)


@dataclass(frozen=True)
class SampleReader(Reader):
    """CSV tables and alignments.

    ``columns`` are the chosen ones (``None``: all but ``drop``) and, once files have been read,
    those that the model is about.
    """

    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    threshold: float | None = None
    alphabet: str | None = None
    unknown: str | None = None

    def read(self, paths: Sequence[str], *, with_labels: bool = True) -> tuple[Self, Data]:
        import numpy as np

        from fieldfit.io.alignments import is_alignment

        reader = self
        parts: list[NDArray[Any]] = []
        places: list[str] = []
        for path in paths:
            source = open_source(path)
            is_table = not is_alignment(source.getvalue())
            read = reader._read_table if is_table else reader._read_alignment
            reader, found = read(source)
            parts.append(found)
            places += [f"{source.name}, sample {row + 1}" for row in range(len(found))]
        values = np.concatenate(parts)
        columns = reader.columns or ()

        def place(index: int, position: int | None = None) -> str:
            return places[index] + ("" if position is None else f", column {columns[position]!r}")

        missing = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
        data = Data(
            files=paths,
            examples=NamedSamples(values, columns),
            labels=None,
            place=place,
            summary=f"{values.shape[0]} samples of {values.shape[1]} variables"
            + (f", {missing} missing values" if missing else ""),
            columns=columns,
        )
        return reader, data

    def _read_table(self, source: NamedBytes) -> tuple[Self, NDArray[np.float64]]:
        import numpy as np

        from fieldfit.errors import FileFormatError
        from fieldfit.io.samples import read_lines, read_samples

        if self.alphabet is not None:
            raise FileFormatError(
                f"{source.name}: expected an alignment (FASTA, A2M or Stockholm) as the model was "
                "trained with, found a table"
            )
        lines, wanted = read_lines(source), self.columns
        is_known = wanted is None or set(wanted) <= set(lines.names)
        if (
            wanted is not None
            and not (is_known or lines.has_names)
            and len(wanted) == len(lines.names)
        ):
            values = lines.numbers(range(len(wanted)))  # columns go by their order
        else:
            source.seek(0)
            table = read_samples(source, columns=wanted, drop=self.drop)
            wanted, values = table.names, table.values
        if self.threshold is not None:
            values = np.where(np.isnan(values), np.nan, values >= self.threshold)
        return replace(self, columns=wanted, drop=()), values

    def _read_alignment(self, source: NamedBytes) -> tuple[Self, NDArray[np.int16]]:
        from fieldfit.errors import FileFormatError
        from fieldfit.io.alignments import read_alignment
        from fieldfit.io.samples import PROTEIN_ALPHABET

        alphabet = self.alphabet or PROTEIN_ALPHABET
        found = read_alignment(source, alphabet, self.unknown)
        columns = tuple(str(k + 1) for k in range(found.labels.shape[1]))
        if self.columns is not None and self.columns != columns:
            raise FileFormatError(
                f"{source.name}: expected sequences of {len(self.columns)} letters, "
                f"found {len(columns)}"
            )
        return replace(self, columns=columns, alphabet=alphabet), found.labels

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> Self:
        reader = super().from_notes(notes)
        columns = None if reader.columns is None else tuple(reader.columns)
        return replace(reader, columns=columns, drop=tuple(reader.drop))


def read_edges(path: str, columns: Sequence[str]) -> NDArray[np.int64]:
    """Pairs of columns by name, one pair on each line."""
    import numpy as np

    from fieldfit.errors import FileFormatError

    numbers = {name: number for number, name in enumerate(columns)}
    edges = []
    source = open_source(path)
    for place, line in enumerate(source.getvalue().decode("utf-8", "replace").splitlines(), 1):
        pair = [name.strip() for name in line.split(",")]
        if pair == [""]:
            continue
        if len(pair) != 2 or not all(name in numbers for name in pair):
            raise FileFormatError(
                f"{source.name}, line {place}: expected two names of columns separated by a "
                f"comma, found {line.strip()!r}"
            )
        edges.append([numbers[name] for name in pair])
    return np.array(edges, dtype=np.int64).reshape(-1, 2)
