"""``fieldfit shard``: training data on disk, which ``fieldfit fit --shards`` learns from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fieldfit._registry import find
from fieldfit.cli._options import count
from fieldfit.cli._output import Reporter, format_bytes, format_pairs, print_json
from fieldfit.cli.kinds.base import Data, Kind, Reader, located
from fieldfit.cli.kinds.registry import KINDS

__all__ = ["add_parser", "dask_client", "open_shards", "run"]

DESCRIPTION = """\
Write training data to a folder of shards, one file after the other, so that a fit need not hold
them in memory.  Options of the kind must be those that fieldfit fit will be given.
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the command, one parser for each kind that has shards."""
    parser = subparsers.add_parser(
        "shard",
        help="write training data to shards, for fits that are larger than memory",
        description=DESCRIPTION,
        epilog="example:\n  fieldfit shard grid --train *.npz --out data\n"
        "  fieldfit fit grid --shards data --model model.ff",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(title="kinds of models", metavar="KIND", required=True)
    for kind in KINDS:
        if kind.has_shards:
            _add_kind(kinds, kind)


def _add_kind(kinds: argparse._SubParsersAction[Any], kind: Kind) -> None:
    parser = kinds.add_parser(
        kind.name, help=kind.sentence, description=f"{DESCRIPTION}Data: {kind.data}."
    )
    parser.set_defaults(run=run, kind=kind)
    files = parser.add_argument_group("files")
    files.add_argument("--train", metavar="F", nargs="+", required=True, help="training data")
    files.add_argument("--out", metavar="DIR", required=True, help="folder of the shards")
    files.add_argument(
        "--shard-size",
        metavar="N",
        type=count(1),
        help="variables and edges (entries of a table) of a shard, at most (default: 2**20)",
    )
    kind.add_options(parser.add_argument_group(f"options of {kind.name}"))
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print one JSON object, no table")
    output.add_argument("--quiet", action="store_true", help="no progress and no table")


def run(args: argparse.Namespace) -> int:
    """Read file by file, write shard by shard."""
    from fieldfit.errors import InvalidInputError
    from fieldfit.shards.writing import write_with_notes

    kind: Kind = args.kind
    stream = _Stream(kind.reader(args), args.train)
    kind.check_shards(args)
    estimator = find(kind.estimator)(**kind.parameters(args, stream.reader))
    show = int(not args.quiet and not args.json and sys.stderr.isatty())
    with Reporter(quiet=args.quiet or args.json).warnings_at_the_end():
        try:
            shards = write_with_notes(
                args.out, estimator, stream.examples(), args.shard_size, show, stream.notes
            )
        except InvalidInputError as error:
            if error.place is None or error.place.example is None or stream.data is None:
                raise
            place = replace(error.place, example=error.place.example - stream.n_before)
            with located(stream.data):
                raise type(error)(error.requirement, place) from None
    fields = {
        "out": args.out,
        "kind": kind.name,
        "estimator": kind.estimator,
        "n_examples": shards.manifest.n_examples,
        "n_shards": len(shards),
        "n_bytes": sum(entry.n_bytes for entry in shards.manifest.shards),
    }
    if args.json:
        print_json(fields)
    elif not args.quiet:
        size = format_bytes(int(fields["n_bytes"]))
        shown = {"examples": fields["n_examples"], "shards": f"{len(shards)}, {size}"}
        print(format_pairs({"kind": kind.name, **shown, "folder": args.out}))
    return 0


@dataclass
class _Stream:
    """Examples of files, of which one is in memory at a time."""

    reader: Reader
    files: list[str]
    data: Data | None = None
    n_before: int = 0
    n_read: int = field(default=0, repr=False)

    def examples(self) -> Iterator[Any]:
        """Pairs of features and labels; a table of samples is one piece."""
        for file in self.files:
            self.reader, self.data = self.reader.read([file])
            self.n_before = self.n_read
            self.n_read += len(self.data.examples)
            if self.data.labels is None:
                yield self.data.examples
            else:
                yield from zip(self.data.examples, self.data.labels, strict=True)

    def notes(self) -> dict[str, Any]:
        return {"reader": self.reader.as_notes(), "train": self.files}


# -- for ``fieldfit fit`` ------------------------------------------------------------------


def open_shards(kind: Kind, args: argparse.Namespace) -> tuple[Reader, Data]:
    """Shards as training data, with the reader that wrote them."""
    from fieldfit.shards.reading import Shards

    shards = Shards(args.shards)
    notes = shards.manifest.notes.get("reader")
    reader = kind.reader(args)
    if isinstance(notes, dict):
        reader = type(reader).from_notes(notes)
    summary = f"{shards.manifest.n_examples} examples in {len(shards)} shards"
    columns = getattr(reader, "columns", None) or ()
    return reader, Data([args.shards], shards, None, lambda *_: args.shards, summary, columns)


@contextmanager
def dask_client(address: str | None) -> Iterator[Any]:
    """A client of a running scheduler, or ``None`` without an address."""
    if address is None:
        yield None
        return
    from fieldfit.errors import InvalidInputError, MissingDependencyError

    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address
        from distributed.comm.registry import get_backend
    except ImportError as error:
        raise MissingDependencyError(
            "--dask needs Dask, which is not installed: pip install 'fieldfit[dask]'"
        ) from error
    try:
        # a client of an address that is none ends with an error when it is collected
        get_backend(parse_address(address)[0])
        client = Client(address, timeout=10)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"--dask must be the address of a running scheduler, got {address} ({error})"
        ) from None
    with client:
        yield client
