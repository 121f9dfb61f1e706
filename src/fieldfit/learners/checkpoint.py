"""Checkpoints: the state of a learner on disk, so that a killed run goes on where it was.

A checkpoint is one file, replaced as a whole after every ``checkpoint_every`` iterations and at the
end (`fieldfit.io._container` says how it is written and checked).  A run that is resumed from it
ends with the same weights, to the last bit, as the run that was never killed.  For that, the
problem resets its warm starts whenever a checkpoint is written, because the file does not hold
them: both runs then go on from the same numbers.  This is why checkpoints are counted in iterations
and not in seconds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._validation import SHOWN, require_output, shown
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io._container import read_container, write_container
from fieldfit.io.model_file import decode, encode
from fieldfit.io.stored import Stored
from fieldfit.learners.base import Penalty
from fieldfit.learners.problem import Problem

__all__ = ["Checkpoint", "State", "restore_generator"]

FORMAT, VERSION = "fieldfit-checkpoint", 1

#: What a run has to keep.
State = Stored

#: Options that may differ between a run and its continuation.
FREE_OPTIONS = frozenset({"max_iter"})


@dataclass(frozen=True)
class Checkpoint:
    """A file, and what it must be a checkpoint of."""

    path: Path
    identity: dict[str, Any]

    @classmethod
    def of(
        cls, path: str | os.PathLike[str], options: object, problem: Problem, penalty: Penalty
    ) -> Checkpoint:
        """The checkpoint of a learner with these options on this problem."""
        require_output("checkpoint", path)
        return cls(Path(path), _identity(options, problem, penalty))

    def read(self) -> State | None:
        """The state in the file; ``None`` if there is no file."""
        if not self.path.exists():
            return None
        content, arrays = read_container(self.path, FORMAT, VERSION)
        with self.located():
            entries = State(arrays, content)
            found = entries.mapping("identity")
            for name, wanted in self.identity.items():
                if found.get(name) != wanted:
                    raise InvalidInputError(
                        f"checkpoint {os.fspath(self.path)!r} must belong to this learner and "
                        f"problem: {name} is {_text(wanted)} here, and {_text(found.get(name))} in "
                        "the file"
                    )
            return State(arrays, decode(entries.value("numbers"), arrays))

    @contextmanager
    def located(self) -> Iterator[None]:
        """Put the name of the file in front of what is said about its content."""
        try:
            yield
        except FileFormatError as error:
            raise FileFormatError(f"{os.fspath(self.path)}: {error}") from None

    def write(self, state: State) -> None:
        """Replace the file as a whole."""
        arrays = dict(state.arrays)
        content = {"identity": self.identity, "numbers": encode(state.numbers, arrays, "numbers")}
        write_container(self.path, FORMAT, VERSION, content, arrays)


def restore_generator(generator: np.random.Generator, state: State) -> None:
    """Let random numbers go on where they were."""
    try:
        generator.bit_generator.state = state.mapping("generator")
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"expected 'generator' to be the state of a random generator, found another ({error})"
        ) from None


def _identity(options: object, problem: Problem, penalty: Penalty) -> dict[str, Any]:
    """What must be the same for a run to go on, in words and digests."""
    assert is_dataclass(options)
    assert not isinstance(options, type)
    settings = {
        name: repr(value) for name, value in asdict(options).items() if name not in FREE_OPTIONS
    }
    return {
        "learner": type(options).__name__,
        **settings,
        "the number of weights": problem.n_weights,
        "the number of parts": problem.n_parts,
        "l1": _number_or_digest(penalty.l1),
        "l2": _number_or_digest(penalty.l2),
        "the digest of the data": problem.fingerprint(),
    }


def _number_or_digest(given: float | NDArray[np.float64]) -> float | str:
    array = np.asarray(given, dtype=np.float64)
    return float(array) if array.ndim == 0 else "an array of digest " + _digest(array)


def _digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def _text(value: Any) -> str:
    if value is None:
        return "missing"
    return value if isinstance(value, str) and len(value) <= SHOWN else shown(value)
