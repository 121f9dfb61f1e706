"""Reading shards: a folder as ``fit`` takes it; arrays are mapped from their files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit._validation import require_index, require_number, require_path
from fieldfit.errors import FileFormatError
from fieldfit.io._container import map_container
from fieldfit.io.stored import Stored
from fieldfit.shards.manifest import MODEL_FILE, Manifest

__all__ = ["FORMAT", "VERSION", "Shards", "stored_weights"]

FORMAT, VERSION = "fieldfit-shard", 1


class Shards:
    """A folder of shards, written by `write`; ``fit`` and the methods for prediction take it.

    Parameters
    ----------
    folder
        Where the shards are.
    memory
        Bytes of shards, with their graphs and messages, that stay in memory from one evaluation to
        the next.  The others are read again each time, and their messages go to a scratch file.
    scratch
        Folder for such files; ``None``: the system's temporary folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        memory: float = 1e9,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        require_path("folder", folder)
        require_number("memory", memory, at_least=0)
        if scratch is not None:
            require_path("scratch", scratch)
        self.folder = Path(folder).absolute()
        self.memory = float(memory)
        self.scratch = None if scratch is None else Path(scratch).absolute()
        self.manifest = Manifest.read(folder)
        self._verified: set[int] = set()
        self._model: Stored | None = None

    def __len__(self) -> int:
        """Number of shards."""
        return len(self.manifest.shards)

    def __repr__(self) -> str:
        count, files = self.manifest.n_examples, len(self)
        return (
            f"Shards of {self.manifest.kind}: {count} example{'s' * (count != 1)} in {files} "
            f"file{'s' * (files != 1)}"
        )

    def read(self, shard: int) -> Stored:
        """Arrays of a shard and those of the model, mapped; digests are verified the first time."""
        require_index("shard", shard, len(self))
        entry = self.manifest.shards[shard]
        path = self.folder / entry.file
        if not path.is_file():
            raise FileFormatError(
                f"{os.fspath(path)}: expected shard {shard} of {len(self)}, found no such file"
            )
        digest = None if shard in self._verified else entry.digest
        counts, arrays = map_container(path, FORMAT, VERSION, digest)
        self._verified.add(shard)
        return Stored({**arrays, **self.model().arrays}, counts)

    def model(self) -> Stored:
        """What is known of the model before its weights: numbers, and arrays if it has any."""
        if self._model is None:
            arrays: dict[str, NDArray[Any]] = {}
            if self.manifest.model_digest:
                path = self.folder / MODEL_FILE
                if not path.is_file():
                    raise FileFormatError(f"{path}: expected the model's arrays, found no file")
                _, arrays = map_container(path, FORMAT, VERSION, self.manifest.model_digest)
            self._model = Stored(arrays, self.manifest.model)
        return self._model

    def verify(self) -> None:
        """Compare every file with its digest; one sentence names the first that is wrong."""
        for shard in range(len(self)):
            self._verified.discard(shard)
            self.read(shard)

    def options(self) -> dict[str, Any]:
        """Arguments of another object on the same folder."""
        return {"folder": self.folder, "memory": self.memory, "scratch": self.scratch}


def stored_weights(stored: Stored) -> FloatArray | None:
    """Weights of a shard's examples, if they were given any."""
    if "example_weights" not in stored.arrays:
        return None
    return stored.array("example_weights", (stored.integer("n_examples", 1),))
