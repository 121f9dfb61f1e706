"""The log of a run: ``rows.jsonl`` in its folder, one line for each finished task.

The first line says what the run is: experiment, design, seed, version of fieldfit.  A line is
written at once and reaches the disk before the next task begins, so that a run which is killed
loses the task that it was at and nothing else.  A last line that is torn is dropped.  Numbers are
written with all their digits, and results are always read back from the log: whether a run was
interrupted makes no difference to its report.  Arrays of a task are in ``arrays/`` beside the log.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import numpy as np

from experiments.base import Array, Result, Task
from fieldfit import InvalidInputError

__all__ = ["RunLog", "header_of"]

#: What can be done about a log that does not fit.
ADVICE = "discard its rows with --fresh, or choose another --out"


def header_of(experiment: str, design: Any, seed: int, version: str) -> dict[str, Any]:
    """The first line of a log: what results depend on."""
    header = {"experiment": experiment, "design": asdict(design), "seed": seed, "version": version}
    return dict(_decoded(_encoded(header)))


class RunLog:
    """Results of the finished tasks of a run; implements `experiments.base.Results`.

    Parameters
    ----------
    folder
        Of the run.
    header
        See `header_of`; a log with another one is refused.
    tasks
        All tasks of the run.
    fresh
        Discard what is there.
    """

    def __init__(
        self, folder: Path, header: Mapping[str, Any], tasks: Sequence[Task], *, fresh: bool = False
    ) -> None:
        self.path = folder / "rows.jsonl"
        self._arrays = folder / "arrays"
        self._numbers = {task: number for number, task in enumerate(tasks)}
        if len(self._numbers) != len(tasks):
            raise ValueError("tasks must differ from each other")
        self._lines: dict[Task, dict[str, Any]] = {}
        if fresh:
            self.path.unlink(missing_ok=True)
            shutil.rmtree(self._arrays, ignore_errors=True)
        self._file = open(self.path, "ab+")  # noqa: SIM115  (open as long as the log)
        try:
            _lock(self._file, folder)
            self._read(header)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    # -- results --------------------------------------------------------------------------

    def __contains__(self, task: Task) -> bool:
        return task in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, task: Task) -> Result:
        line = self._lines[task]
        arrays: dict[str, Array] = {}
        if line["has_arrays"]:
            with np.load(self._array_path(task), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        return Result(line["rows"], line["tables"], line["facts"], arrays)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of all tasks, in their order."""
        return [row for line in self._in_order() for row in line["rows"]]

    def table(self, name: str) -> list[dict[str, Any]]:
        """Rows of a further table, likewise."""
        return [row for line in self._in_order() for row in line["tables"].get(name, ())]

    def _in_order(self) -> list[dict[str, Any]]:
        return [self._lines[task] for task in self._numbers if task in self._lines]

    def seconds(self) -> tuple[float, float]:
        """Wall time and processor time of all tasks."""
        lines = self._lines.values()
        return (
            sum(line["seconds"] for line in lines),
            sum(line["processor_seconds"] for line in lines),
        )

    # -- writing --------------------------------------------------------------------------

    def add(self, task: Task, result: Result, seconds: float, processor_seconds: float) -> None:
        """Store the result of a task; when this returns it is on the disk."""
        if result.arrays:
            self._arrays.mkdir(exist_ok=True)
            path = self._array_path(task)
            beside = path.with_suffix(".part")
            with open(beside, "wb") as file:
                np.savez_compressed(file, allow_pickle=False, **dict(result.arrays))
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        line = {
            "task": list(task),
            "seconds": seconds,
            "processor_seconds": processor_seconds,
            "rows": [dict(row) for row in result.rows],
            "tables": {name: [dict(row) for row in rows] for name, rows in result.tables.items()},
            "facts": dict(result.facts),
            "has_arrays": bool(result.arrays),
        }
        text = _encoded(line)
        self._write(text)
        self._lines[task] = _decoded(text)

    def _write(self, text: str) -> None:
        self._file.write(text.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _array_path(self, task: Task) -> Path:
        # by what the task is, not by its place: a plan may have got more tasks since
        digest = sha256(_encoded(list(task)).encode()).hexdigest()
        return self._arrays / f"{digest[:16]}.npz"

    # -- reading --------------------------------------------------------------------------

    def _read(self, header: Mapping[str, Any]) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):  # the run was killed while it wrote the last line
            self._file.truncate(len(whole))
        lines = []
        for number, text in enumerate(whole.splitlines(), start=1):
            try:
                lines.append(_decoded(text))
            except ValueError:
                raise InvalidInputError(
                    f"{self.path}, line {number}: expected a finished task, found "
                    f"{text[:40].decode(errors='replace')!r}; {ADVICE}"
                ) from None
        if not lines:
            self._write(_encoded(dict(header)))
            return
        differences = list(_differences(lines[0], header))
        if differences:
            raise InvalidInputError(
                f"{self.path.parent} holds rows of another run ({'; '.join(differences)}): {ADVICE}"
            )
        for line in lines[1:]:
            task = tuple(line["task"])
            if task in self._numbers:
                self._lines[task] = line


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    """What differs between two headers, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in dict.fromkeys((*old, *new))
            for found in _differences(old.get(key), new.get(key), f"{name} {key}".strip())
        ]
    return [] if old == new else [f"{name} was {_short(old)}, is {_short(new)}"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _encoded(value: Any) -> str:
    return json.dumps(value, default=_plain)


def _decoded(text: str | bytes) -> Any:
    return json.loads(text)


def _plain(value: Any) -> Any:
    """What JSON does not know: numbers of NumPy, and objects in a design by how they look."""
    return value.item() if isinstance(value, np.generic) else repr(value)


def _lock(file: IO[bytes], folder: Path) -> None:
    """Refuse a folder that another process is writing to (where the system has such locks)."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InvalidInputError(
            f"--out must be a folder of its own, but another run is writing to {folder}"
        ) from None
