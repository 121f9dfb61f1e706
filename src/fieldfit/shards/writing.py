"""Writing shards: an iterator of examples becomes files, with one shard in memory at a time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fieldfit._validation import require_integer, require_path, shown
from fieldfit.errors import InvalidInputError, Place
from fieldfit.io._container import write_container
from fieldfit.shards.cutting import SHARD_SIZE, is_full
from fieldfit.shards.manifest import MANIFEST, Manifest, ShardEntry
from fieldfit.shards.reading import FORMAT, VERSION, Shards

__all__ = ["ShardCoder", "write", "write_with_notes"]


class ShardCoder(ABC):
    """How a model stores its examples: gathers those of one shard, and counts over all of them."""

    #: Variables and edges gathered so far, and labels among them that are missing.
    n_examples = n_variables = n_edges = n_missing = 0

    @property
    def size(self) -> int:
        """What the cut into shards goes by."""
        return self.n_variables + self.n_edges

    @abstractmethod
    def measure(self, index: int, x: Any) -> int:
        """Variables and edges of an example that has not been added."""

    @abstractmethod
    def add(self, index: int, x: Any, y: Any, weight: float | None) -> None:
        """Check an example and keep it until `take`."""

    @abstractmethod
    def take(self) -> dict[str, NDArray[Any]]:
        """Arrays of the shard, which ends here."""

    @abstractmethod
    def model(self) -> dict[str, Any]:
        """What is known of the model when all examples have been seen."""


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
        A `GridCRF` or `GraphCRF` with the options that it will be fitted with.
    examples
        Pairs ``(x, y)``, or ``(x, y, weight)`` with a factor of the example's share of the
        objective; any iterable, of which one shard is in memory at a time.
    shard_size
        Variables and edges of a shard, at most, but for an example that is larger by itself.
        ``None`` is 2**20, by which data in memory are cut as well.  Sums over data that were cut
        in another way differ in their last bits.
    verbose
        1 shows a progress bar.

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
    entries: list[ShardEntry] = []
    with _progress(verbose) as show:
        for index, (x, y, weight) in enumerate(_triples(examples)):
            following = coder.measure(index, x)
            if is_full(coder.size, following, SHARD_SIZE if shard_size is None else shard_size):
                entries.append(_write_shard(path, len(entries), coder))
            coder.add(index, x, y, weight)
            show()
    if coder.n_examples:
        entries.append(_write_shard(path, len(entries), coder))
    if not entries:
        raise InvalidInputError("examples must hold at least one example, got none")
    options = estimator._shard_options()
    kind, model = type(estimator).__name__, coder.model()
    Manifest(kind, options, model, tuple(entries), notes()).write(path)
    return Shards(path)


def _coder(estimator: Any) -> ShardCoder:
    make = getattr(estimator, "_shard_coder", None)
    if make is None or isinstance(estimator, type):
        raise InvalidInputError(
            f"estimator must be a GridCRF or a GraphCRF, got {shown(estimator)}"
        )
    estimator._check_options()
    coder: ShardCoder = make()
    return coder


def _new_folder(folder: Any) -> Path:
    require_path("folder", folder)
    path = Path(folder)
    if (path / MANIFEST).exists():
        raise InvalidInputError(
            f"folder must be new or empty, got {os.fspath(folder)!r} with shards in it"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"folder must be a folder that can be made, got {os.fspath(folder)!r} ({error})"
        ) from None
    return path


def _triples(examples: Any) -> Iterator[tuple[Any, Any, float | None]]:
    if isinstance(examples, (str, bytes, dict)) or not hasattr(examples, "__iter__"):
        raise InvalidInputError(f"examples must be pairs (x, y), got {shown(examples)}")
    for index, given in enumerate(examples):
        if not (isinstance(given, (tuple, list)) and len(given) in (2, 3)):
            raise InvalidInputError(
                f"must be a pair (x, y) or (x, y, weight), got {shown(given)}",
                Place("examples", index),
            )
        yield given[0], given[1], given[2] if len(given) == 3 else None


def _write_shard(folder: Path, number: int, coder: ShardCoder) -> ShardEntry:
    counts = {
        name: getattr(coder, name) for name in ("n_examples", "n_variables", "n_edges", "n_missing")
    }
    name = f"shard-{number:05d}.safetensors"
    digest = write_container(folder / name, FORMAT, VERSION, counts, coder.take())
    return ShardEntry(name, digest, os.path.getsize(folder / name), **counts)


@contextmanager
def _progress(verbose: int) -> Iterator[Any]:
    if verbose <= 0:
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(unit="example") as bar:
        yield bar.update
