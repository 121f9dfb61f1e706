"""What the learning commands know about a kind of model.

``fit``, ``predict``, ``score`` and ``inspect`` are the same for all kinds; a `Kind` says how files
become examples, how predictions are written, what a score consists of and what weights mean.

How files were read (which column, which features, which threshold) is part of what was learned: the
options are the fields of a `Reader`, which is kept in the model file and read again by ``predict``.
"""

from __future__ import annotations

import argparse
import io
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from fieldfit._registry import OBJECTIVES_OF

if TYPE_CHECKING:
    from fieldfit.errors import InvalidInputError, Place

__all__ = [
    "Answer",
    "Data",
    "Kind",
    "NamedBytes",
    "Reader",
    "Report",
    "Table",
    "located",
    "open_source",
]


@dataclass(frozen=True)
class Data:
    """Examples of one or several files.

    ``place(index)`` says where an example was read, ``place(index, position)`` one of its labels;
    ``columns`` are the names of the variables of samples.
    """

    files: Sequence[str]
    examples: Any
    labels: list[Any] | None
    place: Callable[..., str]
    summary: str
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class Answer:
    """Predictions: as text, as fields of a JSON object, and to a file (or folder)."""

    fields: dict[str, Any]
    text: str | None
    write: Callable[[str], None]

    @classmethod
    def of_text(cls, fields: dict[str, Any], text: str) -> Answer:
        """Predictions that are lines of text."""

        def write(path: str) -> None:
            from fieldfit.io._atomic_file import write_atomically

            write_atomically(path, [text.encode()])

        return cls(fields, text, write)


@dataclass(frozen=True)
class Report:
    """A table for people and the same as fields of a JSON object."""

    fields: dict[str, Any]
    text: str


class Table(NamedTuple):
    """Some rows of the ``n_all`` that there are, and what they are."""

    title: str
    rows: list[dict[str, Any]]
    n_all: int
    #: What a reader of the table has to know.
    note: str = ""

    @property
    def heading(self) -> str:
        """The title, how many rows there are if some are left out, and the note."""
        shown, note = len(self.rows), f" ({self.note})" if self.note else ""
        return self.title + (f", {shown} of {self.n_all}" if shown < self.n_all else "") + note


@dataclass(frozen=True)
class Reader(ABC):
    """Reads the files of one kind; the fields are all it needs to know."""

    @abstractmethod
    def read(self, paths: Sequence[str], *, with_labels: bool = True) -> tuple[Self, Data]:
        """Examples of all files, and the reader with what it found out from them."""

    def as_notes(self) -> dict[str, Any]:
        """For the model file."""
        return asdict(self)

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> Self:
        """The reader of a model file; options of a later version are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in notes.items() if name in known})


class Kind(ABC):
    """One kind of model on the command line."""

    name: ClassVar[str]
    estimator: ClassVar[str]
    sentence: ClassVar[str]
    example: ClassVar[str]
    data: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]] = OBJECTIVES_OF["conditional"]
    #: Whether ``fieldfit shard`` writes its data to disk.
    has_shards: ClassVar[bool] = False
    #: Of the estimator, repeated for ``--help``; a test compares them.
    defaults: ClassVar[dict[str, Any]]

    @abstractmethod
    def add_options(self, parser: argparse._ActionsContainer) -> None:
        """Options that only this kind has."""

    @abstractmethod
    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        """Arguments of the estimator that those options, and what was read, give."""

    @abstractmethod
    def reader(self, args: argparse.Namespace) -> Reader:
        """The reader that the options ask for."""

    @abstractmethod
    def stored_reader(self, model: Any) -> Reader:
        """The reader that a fitted model was trained with, or the plain one."""

    def check_shards(self, args: argparse.Namespace) -> None:  # noqa: B027  (most take all options)
        """Refuse options that have no meaning for ``fieldfit shard``."""

    def output_files(self, args: argparse.Namespace) -> dict[str, str | None]:
        """Options that name further files which ``fit`` writes, and the files."""
        return {}

    def fit(
        self, estimator: Any, data: Data, validation: Data | None, args: argparse.Namespace
    ) -> None:
        """Call the estimator's ``fit``."""
        held_out = None if validation is None else (validation.examples, validation.labels)
        options = {"checkpoint": args.checkpoint, "validation": held_out}
        if getattr(args, "client", None) is not None:
            options["client"] = args.client
        estimator.fit(data.examples, data.labels, **options)

    def fit_options(self, args: argparse.Namespace, data: Data) -> dict[str, Any]:
        """Arguments of the estimator's ``fit`` that the options of this kind give."""
        return {}

    def finish(self, model: Any, args: argparse.Namespace) -> dict[str, Any]:
        """Write the further files, and say what should be in the summary."""
        return {}

    def report_names(self, model: Any) -> dict[str, Any]:
        """``label_names`` and ``feature_names`` of a report, where files have them."""
        return {}

    def accuracy(self, model: Any, data: Data) -> float | None:
        """Share of the labels that the model predicts, where that has a meaning."""
        value: float = model.score(data.examples, data.labels)
        return value

    @abstractmethod
    def predict(self, model: Any, data: Data, args: argparse.Namespace) -> Answer:
        """Predictions for examples."""

    @abstractmethod
    def score(self, model: Any, data: Data) -> Report:
        """How well the model does on examples with labels."""

    @abstractmethod
    def describe(self, model: Any) -> dict[str, Any]:
        """What the model is about: labels, numbers of features, ..."""

    def strongest(self, model: Any, count: int) -> list[Table]:
        """Tables of the weights that matter most."""
        rows = [{"weight": weight, "of": what} for weight, what in model.top_weights(count)]
        return [Table("strongest weights", rows, len(model.weights_))]


#: What complaints call the arguments.
_SUBJECTS = {"X": "features", "Y": "labels", "samples": "samples"}


@contextmanager
def located(data: Data | None, held_out: Data | None = None) -> Iterator[None]:
    """Say files and lines instead of ``X[3]`` or row 3 in complaints about examples.

    ``held_out`` are the examples that were given for validation.
    """
    from fieldfit.errors import InvalidInputError

    try:
        yield
    except InvalidInputError as error:
        place = error.place
        source = held_out if place is not None and place.is_validation else data
        if place is None or source is None:
            raise  # about an option, or it has a place already
        raise type(error)(f"{_where(place, source)}: {_sentence(error, source)}") from None


def _where(place: Place, source: Data) -> str:
    """File and line, or all files where it is about no single example."""
    if place.example is None:
        return ", ".join(source.files)
    position = place.column if place.position is None else place.position
    return source.place(place.example, position)


def _sentence(error: InvalidInputError, source: Data) -> str:
    """The requirement with a subject, and the name of a column that no line can give."""
    place, sentence = error.place, error.requirement
    assert place is not None
    if sentence.startswith("must"):
        sentence = f"{_SUBJECTS[place.argument]} {sentence}"
    if place.example is None and place.column is not None:
        known = place.column < len(source.columns)
        name = repr(source.columns[place.column]) if known else str(place.column)
        sentence = f"{sentence} in column {name}"
    return sentence


class NamedBytes(io.BytesIO):
    """The bytes of a file that may be read more than once, with a name for error messages."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name


def open_source(path: str) -> NamedBytes:
    """The content of a file, decompressed; ``-`` is standard input."""
    from fieldfit.io._text import read_bytes

    if path == "-":
        name, data = read_bytes(NamedBytes(sys.stdin.buffer.read(), "standard input"))
    else:
        name, data = read_bytes(path)
    return NamedBytes(data, name)
