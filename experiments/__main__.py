"""``python -m experiments``: run an experiment of a paper; write table, report and figures."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from experiments.catalogue import EXPERIMENTS

__all__ = ["main"]

DESCRIPTION = """\
Run an experiment of a paper.  DIR gets results.csv (one row for each method and setting),
report.md (the paper's figures beside ours, versions, seed, machine time) and PNG figures.

Every finished task is stored in DIR/rows.jsonl at once.  A run that was interrupted goes on where
it stopped if it is started again with the same command; a run with other settings needs a DIR of
its own, or --fresh.
"""

EXAMPLES = """\
examples:
  python -m experiments --list
  python -m experiments wainwright-fig3 --quick --out fig3
  python -m experiments domke-digits --data ~/data --out digits --n-jobs 2
  python -m experiments --record digits         keep report and figures beside the experiment
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, 2 for bad usage, 130 after an interrupt."""
    parser = _parser()
    try:
        args = parser.parse_args(argv)
        _check(parser, args)
    except SystemExit as stop:  # argparse has said what it had to say
        return int(stop.code or 0)
    if args.list:
        return _list(args.json)
    return _guarded(args)


def _guarded(args: argparse.Namespace) -> int:
    """Run, and turn errors of the user into one line."""
    from fieldfit.errors import InvalidInputError, MissingDependencyError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(
                f"warning: {_one_line(message)}", file=sys.stderr
            )
            return _record(args.record) if args.record is not None else _run(args)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader has gone: what is left in the buffer must not be flushed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        message: object = f"{where}{error.strerror or error}"
    except (InvalidInputError, MissingDependencyError) as error:
        message = error
    print(f"experiments: error: {_one_line(message)}", file=sys.stderr)
    return 2


def _run(args: argparse.Namespace) -> int:
    from experiments.base import Settings
    from experiments.driver import run_experiment

    data = None if args.data is None else Path(args.data)
    with _progress(args.name, args.quiet) as progress:
        settings = Settings(args.quick, args.seed, args.n_jobs, data, progress)
        summary = run_experiment(args.name, args.out or args.name, settings, fresh=args.fresh)
    table = summary.pop("table")
    print(json.dumps(summary, indent=2) if args.json else table)
    sys.stdout.flush()
    if not (args.quiet or args.json):
        files = ", ".join(summary["files"])
        print(f"{summary['seconds']:.0f} s; written: {files}", file=sys.stderr)
    return 0


def _record(folder: str) -> int:
    from experiments.record import record

    for path in record(Path(folder)):
        print(path)
    return 0


def _list(as_json: bool) -> int:
    if as_json:
        found = [
            {"name": e.name, "summary": e.summary, "paper": e.paper, "data": e.needs_data}
            for e in EXPERIMENTS.values()
        ]
        print(json.dumps({"experiments": found}, indent=2))
        return 0
    width = max(map(len, EXPERIMENTS))
    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name:<{width}}  {experiment.summary}")
    return 0


# -- arguments ----------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Argument parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"experiments: error: {_one_line(message)} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m experiments",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="experiment, see --list")
    parser.add_argument("--list", action="store_true", help="list the experiments and exit")
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets, where needed")
    parser.add_argument("--out", metavar="DIR", help="folder of the results (default: NAME)")
    parser.add_argument(
        "--quick", action="store_true", help="a smaller run of the same code, a minute or some"
    )
    parser.add_argument("--seed", metavar="N", type=_integer(0), default=0, help="default: 0")
    parser.add_argument(
        "--n-jobs", metavar="N", type=_integer(-1), help="threads; -1 = one for each processor"
    )
    parser.add_argument("--fresh", action="store_true", help="discard the rows that --out holds")
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.add_argument(
        "--record", metavar="DIR", help="copy report and figures of a run beside its experiment"
    )
    return parser


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Complain before anything is imported."""
    if args.list or args.record is not None:
        return
    if args.name is None:
        parser.error("NAME must be given; --list shows the experiments")
    if args.name not in EXPERIMENTS:
        parser.error(f"NAME must be one of {', '.join(EXPERIMENTS)}, got {args.name}")
    if args.n_jobs == 0:
        parser.error("--n-jobs must not be 0")
    if args.data is not None and not Path(args.data).is_dir():
        parser.error(f"--data must be a folder that exists, got {args.data}")
    if args.data is None and EXPERIMENTS[args.name].needs_data:
        parser.error(f"--data must name the folder of the data sets for {args.name}")


def _integer(low: int) -> Callable[[str], int]:
    def parse(given: str) -> int:
        try:
            value = int(given)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {low}, got {given!r}")
        return value

    return parse


# -- progress -----------------------------------------------------------------------------


@contextmanager
def _progress(name: str, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Yield ``progress(done, total, what)``: a bar on a terminal, some ten lines elsewhere."""
    if quiet:
        yield lambda done, total, what: None
        return
    if not sys.stderr.isatty():
        yield _Lines(name)
        return
    from tqdm import tqdm

    with tqdm(desc=name, file=sys.stderr, leave=False, unit="task") as bar:

        def update(done: int, total: int, what: str) -> None:
            if bar.total is None:  # what was found does not count for the speed
                bar.total, bar.initial, bar.n = total, done, done
            if done == bar.initial:  # nor does compilation
                bar.unpause()
            bar.set_postfix_str(what, refresh=False)
            bar.update(done - bar.n)
            bar.refresh()

        yield update


class _Lines:
    """Progress in lines: what was found, and then every tenth of the tasks, with the time left."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.first: int | None = None
        self.shown = -1
        self.begin = time.monotonic()

    def __call__(self, done: int, total: int, what: str) -> None:
        if self.first is None:
            self.first = done
            if done:
                self._say(f"{done} of {total} tasks found")
        if done == self.first:
            self.begin = time.monotonic()  # compilation does not count for the speed
            return
        tenth = done * 10 // max(total, 1)
        if tenth == self.shown:
            return
        self.shown = tenth
        left = (time.monotonic() - self.begin) / (done - self.first) * (total - done)
        end = f", about {_duration(left)} left" if done < total else ""
        self._say(f"{done * 100 // total} %, {done} of {total} tasks{end}; {what}")

    def _say(self, text: str) -> None:
        print(f"{self.name}: {_one_line(text)}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100.0 else f"{seconds / 60.0:.0f} min"


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())


if __name__ == "__main__":
    sys.exit(main())
