"""The ``fieldfit`` command: one sub-command, one file.

A sub-command module offers ``add_parser(subparsers)``, which declares its options and sets
``run`` as the default of the parser, and ``run(args) -> int``, the exit status.  Heavy imports
belong inside ``run``, so that ``--help`` answers at once.

Exit status: 0 on success, 2 on bad usage or bad input with one line on standard error, 130 after
an interrupt.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn, TextIO

from fieldfit.cli import compare, demo, fit, infer, inspect, predict, score, shard
from fieldfit.errors import InvalidInputError, MissingDependencyError, WorkersLostError

__all__ = ["main"]

COMMANDS = (infer, fit, compare, shard, predict, score, inspect, demo)

EXAMPLES = """\
examples:
  fieldfit infer model.uai                      marginals of every variable, exact if it fits
  fieldfit infer model.uai --task PR            log10 of the partition function
  fieldfit infer model.uai --task MAP --json    a best labelling, as one JSON object
  fieldfit fit chain --train train.txt --model chunks.ff
  fieldfit predict --model chunks.ff test.txt   labels of new sequences
  fieldfit compare chain --train train.txt --out which      which objective for these data
  fieldfit shard grid --train *.npz --out data  examples that stay on disk, for fit --shards
  fieldfit demo                                 learn to restore noisy digits, write a page
  fieldfit fit --help                           kinds of models that can be learned
  fieldfit infer --help                         all options of a command
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    try:
        args = _build_parser().parse_args(argv)
        args.command_line = shlex.join(["fieldfit", *(sys.argv[1:] if argv is None else argv)])
    except SystemExit as stop:  # argparse has said what it had to say
        return int(stop.code or 0)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            status: int = args.run(args)
            sys.stdout.flush()
        except KeyboardInterrupt as stop:
            print(str(stop) or "interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:
            # the reader (head, less) has gone: what is left in the buffer must not be flushed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            return _fail(f"{where}{error.strerror or error}")
        except (InvalidInputError, MissingDependencyError, WorkersLostError) as error:
            return _fail(str(error))
        except MemoryError as error:
            return _fail(f"not enough memory ({error or 'allocation failed'}); see --max-memory")
    return status


class _Parser(argparse.ArgumentParser):
    """Argument parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.split())
        self.exit(2, f"{self.prog}: error: {line} (see {self.prog} --help)\n")


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fieldfit",
        description="Markov and conditional random fields: inference and learning.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


class _Version(argparse.Action):
    """Look the version up only when it is asked for."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        from importlib.metadata import version

        print(f"fieldfit {version('fieldfit')}")
        parser.exit(0)


def _fail(message: str) -> int:
    print(f"fieldfit: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
