"""What an experiment is made of: a plan of tasks, their results, and the outcome.

An experiment is a subclass of `Plan`.  It lists its *tasks*, computes the rows of one task, and
makes report and figures of the rows of all.  The driver (`experiments.driver`) does the rest: it
stores the result of a task as soon as it is finished, skips the tasks that are stored already, and
writes the files.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from fieldfit import InvalidInputError

__all__ = [
    "Array",
    "Figure",
    "Outcome",
    "Plan",
    "Progress",
    "Result",
    "Results",
    "Row",
    "Settings",
    "Task",
]

#: What identifies a task, such as ``(noise, repeat, method)``; unique within an experiment.
Task = tuple[str | int | float, ...]
Row = Mapping[str, Any]
Array = NDArray[Any]
#: Draws on a new Matplotlib figure.
Figure = Callable[[Any], None]
#: ``progress(done, total, what)``: tasks that are done, and what comes next.
Progress = Callable[[int, int, str], None]
Design = TypeVar("Design")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Settings:
    """How to run: ``quick`` is a smaller run of the same code, ``data`` a folder of data sets."""

    quick: bool = False
    seed: int = 0
    n_jobs: int | None = None
    data: Path | None = None
    progress: Progress = field(default=lambda done, total, what: None)

    @property
    def data_folder(self) -> Path:
        """The folder of data sets, which must have been given."""
        if self.data is None:
            raise InvalidInputError("--data must name the folder of the data sets, got none")
        return self.data

    @property
    def n_threads(self) -> int:
        """Threads for ``n_jobs`` in scikit-learn's sense."""
        if self.n_jobs is None:
            return 1
        return self.n_jobs if self.n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + self.n_jobs)


@dataclass(frozen=True)
class Result:
    """What a task found.

    Attributes
    ----------
    rows
        Of ``results.csv``.
    tables
        Rows of further tables, by name.
    facts
        Anything else that the report or a later task needs: numbers, strings, lists of them.
    arrays
        The same for arrays: weights that a later task starts from, pictures for a figure.
    """

    rows: Sequence[Row] = ()
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)


class Results(Protocol):
    """Results of the tasks that are finished, as they were read back from the disk."""

    def __getitem__(self, task: Task) -> Result:
        """The result of one task, with its arrays."""

    def rows(self) -> list[dict[str, Any]]:
        """Rows of all tasks, in their order."""

    def table(self, name: str) -> list[dict[str, Any]]:
        """Rows of a further table, likewise."""


@dataclass(frozen=True)
class Outcome:
    """What an experiment found.

    Attributes
    ----------
    rows
        Of ``results.csv``; all have the same columns.
    table
        For the terminal.
    report
        Markdown: what was done, the paper's figures beside ours, what differs and why.
    tables
        Further tables, by the name of their file without ``.csv``.
    figures
        By the name of the file without ``.png``; the report refers to them by that file name.
    headline
        The figures that matter most, for ``--json``.
    """

    rows: Sequence[Row]
    table: str
    report: str
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    headline: Mapping[str, Any] = field(default_factory=dict)


class Plan(ABC, Generic[Design]):
    """An experiment of a certain size.

    Results must depend on design, seed and data alone: a run that was interrupted goes on with the
    first task that is not stored, in a new process.  A task may read the results of earlier ones
    (a penalty that was chosen, weights to start from), unless ``n_at_once`` is larger than one.
    What is costly to prepare and can be computed again, such as features, belongs into a
    ``cached_property``.
    """

    #: Sizes of the run that is reported and of a quick one; dataclasses.
    full: ClassVar[Any]
    quick: ClassVar[Any]

    def __init__(self, design: Design, settings: Settings) -> None:
        self.design = design
        self.settings = settings
        self._kept: dict[str, tuple[Hashable, Any]] = {}

    @property
    def n_at_once(self) -> int:
        """Number of tasks that may run at the same time, in threads."""
        return 1

    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """All tasks, in the order in which they are to run."""

    @abstractmethod
    def run_task(self, task: Task, results: Results) -> Result:
        """Compute one task."""

    @abstractmethod
    def outcome(self, results: Results) -> Outcome:
        """Report and figures, from the results of all tasks."""

    def warm_up(self) -> None:
        """Compile what tasks use, so that seconds are seconds of learning."""

    def kept(self, kind: str, key: Hashable, make: Callable[[], Value]) -> Value:
        """What ``make`` returns; of each kind the value of the last key is kept.

        For what several tasks in a row share, such as the pictures of one repeat.
        """
        if kind not in self._kept or self._kept[kind][0] != key:
            self._kept[kind] = (key, make())
        value: Value = self._kept[kind][1]
        return value

    def describe(self, task: Task) -> str:
        """A task in words, for the progress bar."""
        return ", ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in task)
