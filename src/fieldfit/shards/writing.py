"""Writing shards: an iterator of examples becomes files, with one shard in memory at a time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._arrays import real_numbers
from fieldfit._validation import made_folder, require_integer, require_path, shown
from fieldfit.errors import InvalidInputError, Place
from fieldfit.io._container import map_container, write_container
from fieldfit.io.stored import Stored
from fieldfit.shards.cutting import SHARD_SIZE, is_full
from fieldfit.shards.manifest import MANIFEST, MODEL_FILE, Manifest, ShardEntry
from fieldfit.shards.reading import FORMAT, VERSION, Shards

__all__ = ["ShardCoder", "write", "write_with_notes"]


#: What goes once through the shards that have been written.
Chunks = Callable[[], Iterable[Stored]]


class ShardCoder(ABC):
    """How a model stores its examples: gathers those of one shard, and counts over all of them."""

    #: Variables and edges gathered so far, and labels among them that are missing.
    n_examples = n_variables = n_edges = n_missing = 0

    @property
    def size(self) -> int:
        """What the cut into shards goes by."""
        return self.n_variables + self.n_edges

    def triples(self, examples: Any, shard_size: int) -> Iterator[tuple[Any, Any, Any]]:
        """Examples as ``(x, y, weight)``; refuses what is none."""
        return _triples(examples)

    @property
    def version(self) -> int:
        """Of the manifest: the first one whose readers understand the shards."""
        return 1

    @abstractmethod
    def measure(self, index: int, x: Any) -> int:
        """Variables and edges of an example that has not been added."""

    @abstractmethod
    def add(self, index: int, x: Any, y: Any, weight: Any) -> None:
        """Check an example and keep it until `take`."""

    @abstractmethod
    def take(self) -> dict[str, NDArray[Any]]:
        """Arrays of the shard, which ends here."""

    @abstractmethod
    def model(self, shards: Chunks) -> Stored:
        """What is known of the model when all examples have been seen.

        ``shards`` gives what has been written again, for a second pass.
        """


def write(
    folder: str | os.PathLike[str],
    estimator: Any,
    examples: Iterable[Any],
    *,
    shard_size: int | None = None,
    verbose: int = 0,
) -> Shards:
    """Write examples to a folder of shards, which `Shards` opens and ``fit`` takes.

    Parameters
    ----------
    folder
        A new or empty folder.
    estimator
        A `ChainCRF`, `GridCRF`, `GraphCRF`, `IsingModel` or `PottsModel` with the options that it
        will be fitted with.  Examples for prediction are written with the fitted one: they get its
        labels and attributes.
    examples
        Pairs ``(x, y)``, or ``(x, y, weight)`` with a factor of the example's share of the
        objective; any iterable, of which one shard is in memory at a time.  For `IsingModel` and
        `PottsModel` rows or tables of samples, or pairs ``(table, weights)`` of them.
    shard_size
        Variables and edges of a shard (entries of a table of samples), at most, but for an example
        that is larger by itself.
        ``None`` is 2**20, by which data in memory are cut as well.  Sums over data that were cut
        in another way differ in their last bits.
    verbose
        1 shows a progress bar.  Chains have a second one: when all attributes and labels are known,
        the pairs that have weights are found in a pass over the shards.

    Returns
    -------
    Shards
        The folder, opened.

    Examples
    --------
    >>> import tempfile, fieldfit as ff
    >>> pictures = [([[0.1, 0.9], [0.2, 0.8]], [[0, 1], [0, 1]])] * 3
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = ff.shards.write(folder, ff.GridCRF(), iter(pictures), shard_size=16)
    ...     crf = ff.GridCRF(l2=0.1).fit(shards)
    >>> shards
    Shards of GridCRF: 3 examples in 2 files
    """
    return write_with_notes(folder, estimator, examples, shard_size, verbose, dict)


def write_with_notes(
    folder: str | os.PathLike[str],
    estimator: Any,
    examples: Iterable[Any],
    shard_size: int | None,
    verbose: int,
    notes: Callable[[], dict[str, Any]],
) -> Shards:
    """`write`, with notes for the manifest that are asked for when all examples have been read."""
    require_integer("shard_size", shard_size, at_least=1, or_none=True)
    require_integer("verbose", int(verbose) if isinstance(verbose, bool) else verbose, at_least=0)
    path = _new_folder(folder)
    coder = _coder(estimator)
    most = SHARD_SIZE if shard_size is None else int(shard_size)
    entries: list[ShardEntry] = []
    with _progress(verbose) as show:
        for index, (x, y, weight) in enumerate(coder.triples(examples, most)):
            if is_full(coder.size, coder.measure(index, x), most):
                entries.append(_write_shard(path, len(entries), coder))
            before = coder.n_examples
            coder.add(index, x, y, weight)
            show(coder.n_examples - before)
    if coder.n_examples:
        entries.append(_write_shard(path, len(entries), coder))
    if not entries:
        raise InvalidInputError("examples must hold at least one example, got none")
    options = estimator._shard_options()
    model = coder.model(lambda: _written(path, entries, verbose))
    digest = ""
    if model.arrays:
        digest = write_container(path / MODEL_FILE, FORMAT, VERSION, {}, model.arrays)
    kind = type(estimator).__name__
    found = (model.numbers, tuple(entries), digest, notes(), coder.version)
    Manifest(kind, options, *found).write(path)
    return Shards(path)


def _coder(estimator: Any) -> ShardCoder:
    make = getattr(estimator, "_shard_coder", None)
    coder = None if make is None or isinstance(estimator, type) else make()
    if coder is None:
        raise InvalidInputError(
            "estimator must be a ChainCRF, GridCRF, GraphCRF, IsingModel or PottsModel, got "
            f"{shown(estimator)}"
        )
    estimator._check_options()
    assert isinstance(coder, ShardCoder)
    return coder


def _new_folder(folder: Any) -> Path:
    require_path("folder", folder)
    if (Path(folder) / MANIFEST).exists():
        raise InvalidInputError(
            f"folder must be new or empty, got {os.fspath(folder)!r} with shards in it"
        )
    return made_folder("folder", folder)


def _triples(examples: Any) -> Iterator[tuple[Any, Any, float | None]]:
    if isinstance(examples, (str, bytes, dict)) or not hasattr(examples, "__iter__"):
        raise InvalidInputError(f"examples must be pairs (x, y), got {shown(examples)}")
    for index, given in enumerate(examples):
        if not (isinstance(given, (tuple, list)) and len(given) in (2, 3)):
            raise InvalidInputError(
                f"must be a pair (x, y) or (x, y, weight), got {shown(given)}",
                Place("examples", index),
            )
        weight = given[2] if len(given) == 3 else None
        yield given[0], given[1], None if weight is None else _checked_weight(index, weight)


def _checked_weight(index: int, weight: Any) -> float:
    found = real_numbers("weight", weight, Place("examples", index))
    if found.shape != () or not (np.isfinite(found) and found >= 0):
        raise InvalidInputError(
            f"must have a finite weight of at least 0, got {weight!r}", Place("examples", index)
        )
    return float(found)


def _write_shard(folder: Path, number: int, coder: ShardCoder) -> ShardEntry:
    counts = {
        name: getattr(coder, name) for name in ("n_examples", "n_variables", "n_edges", "n_missing")
    }
    name = f"shard-{number:05d}.safetensors"
    digest = write_container(folder / name, FORMAT, VERSION, counts, coder.take())
    return ShardEntry(name, digest, os.path.getsize(folder / name), **counts)


def _written(folder: Path, entries: list[ShardEntry], verbose: int) -> Iterator[Stored]:
    """The shards that have just been written."""
    with _progress(verbose, "second pass", "shard", len(entries)) as show:
        for entry in entries:
            counts, arrays = map_container(folder / entry.file, FORMAT, VERSION, None)
            yield Stored(arrays, counts)
            show(1)


@contextmanager
def _progress(
    verbose: int, what: str = "writing", unit: str = "example", count: int | None = None
) -> Iterator[Any]:
    if verbose <= 0:
        yield lambda count: None
        return
    from tqdm import tqdm

    with tqdm(desc=what, unit=unit, total=count) as bar:
        yield bar.update
