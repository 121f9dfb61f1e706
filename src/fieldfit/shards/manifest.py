"""The manifest of a folder of shards: which files there are, and what a model must agree with.

It is one JSON file, written last, so that a folder with a manifest is complete.  It holds the kind
of the model, the options that decided how the data were stored, what is known of the model before
its weights (numbers of labels and features), and the digest and the counts of each shard.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from fieldfit._validation import shown
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io._atomic_file import write_atomically
from fieldfit.io.stored import Stored

__all__ = ["MANIFEST", "MODEL_FILE", "Manifest", "ShardEntry"]

#: Name of the file, and of that of the arrays of a model (a vocabulary).
MANIFEST, MODEL_FILE = "manifest.json", "model.safetensors"
#: Version 2 may have factors of any arity in its shards.
FORMAT, VERSION = "fieldfit-shards", 2


@dataclass(frozen=True)
class ShardEntry:
    """A shard's file (in the folder), its digest, and counts of what it holds."""

    file: str
    digest: str
    n_bytes: int
    n_examples: int
    n_variables: int
    n_edges: int
    n_missing: int


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds."""

    kind: str
    options: dict[str, Any]
    model: dict[str, Any]
    shards: tuple[ShardEntry, ...]
    #: Digest of the file of what is known of the model as arrays; empty if there is none.
    model_digest: str = ""
    #: What the program that wrote them wants to find again; the command line keeps its reader here.
    notes: dict[str, Any] = field(default_factory=dict)
    #: The first version of the format whose readers understand the shards.
    version: int = 1

    @property
    def n_examples(self) -> int:
        return sum(shard.n_examples for shard in self.shards)

    @property
    def is_complete(self) -> bool:
        """Whether no label is missing."""
        return all(shard.n_missing == 0 for shard in self.shards)

    def digest(self) -> str:
        """Of all shards, and of what was decided about them."""
        return sha256(self._text().encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Write it as a whole; the folder is complete from then on."""
        content = {**json.loads(self._text()), "sha256": self.digest()}
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        write_atomically(folder / MANIFEST, [text.encode()])

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Manifest:
        """The manifest of a folder; refuses folders that have none, and altered ones."""
        path = Path(folder) / MANIFEST
        if not path.is_file():
            raise FileFormatError(
                f"{os.fspath(folder)}: expected a folder of shards with a {MANIFEST}, found none; "
                "a folder whose writing was interrupted has none either"
            )
        try:
            return cls._parsed(path.read_bytes())
        except FileFormatError as error:
            raise FileFormatError(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def _parsed(cls, text: bytes) -> Manifest:
        try:
            content = Stored({}, json.loads(text))
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"expected JSON, found something else ({error})") from None
        if content.text("format") != FORMAT:
            raise FileFormatError(
                f"expected format {FORMAT}, found {shown(content.text('format'))}"
            )
        if content.integer("version", 1) > VERSION:
            raise FileFormatError(
                f"expected version {VERSION} at most, found {content.integer('version', 1)} of a "
                "newer fieldfit"
            )
        entries = [_entry(Stored({}, given)) for given in content.items("shards", dict)]
        found = cls(
            content.text("kind"),
            content.mapping("options"),
            content.mapping("model"),
            tuple(entries),
            content.text("model_digest"),
            content.mapping("notes"),
            content.integer("version", 1),
        )
        if not entries:
            raise FileFormatError("expected at least one shard, found none")
        if content.text("sha256") != found.digest():
            raise FileFormatError("expected the digest of its content, found another one")
        return found

    def require_options(self, kind: str, options: dict[str, Any]) -> None:
        """Refuse a model that would have stored the data in another way."""
        if kind != self.kind:
            raise InvalidInputError(f"shards must be those of a {kind}, got shards of {self.kind}")
        for name, value in options.items():
            if self.options.get(name) != value:
                raise InvalidInputError(
                    f"shards must have been written with {name}={value!r} as here, got shards with "
                    f"{name}={self.options.get(name)!r}"
                )

    def _text(self) -> str:
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps(content, allow_nan=False, sort_keys=True)


def _entry(given: Stored) -> ShardEntry:
    counts = {
        entry.name: given.integer(entry.name, 0)
        for entry in fields(ShardEntry)
        if entry.name.startswith("n_")
    }
    file = given.text("file")
    if Path(file).name != file:
        raise FileFormatError(f"expected the name of a file in the folder, found {shown(file)}")
    return ShardEntry(file, given.text("digest"), **counts)
