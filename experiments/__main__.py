"""``fieldfit reproduce``: run an experiment of a paper and write table, report and figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fieldfit.cli._output import Reporter, print_json
from fieldfit.errors import InvalidInputError

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Run an experiment of a paper.  DIR gets results.csv (one row for each method and setting),
report.md (the paper beside ours, versions, seed, machine time) and PNG figures.
"""

EXAMPLES = """\
examples:
  fieldfit reproduce --list
  fieldfit reproduce wainwright-fig3 --quick
  fieldfit reproduce wainwright-fig3 --out fig3 --seed 1 --n-jobs 2
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the options of the command."""
    parser = subparsers.add_parser(
        "reproduce",
        help="run an experiment of a paper: table, report and figures",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", nargs="?", help="experiment, see --list")
    parser.add_argument("--list", action="store_true", help="list the experiments and exit")
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets, where needed")
    parser.add_argument("--out", metavar="DIR", help="folder of the results (default: NAME)")
    parser.add_argument(
        "--quick", action="store_true", help="a smaller run of the same code, about a minute"
    )
    parser.add_argument("--seed", metavar="N", type=_integer(0), default=0, help="default: 0")
    parser.add_argument(
        "--n-jobs", metavar="N", type=_integer(-1), help="threads; -1 = one for each processor"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def run(args: argparse.Namespace) -> int:
    """List the experiments, or run one."""
    from experiments.base import EXPERIMENTS, Settings, find_experiment, run_experiment

    if args.list:
        return _list(EXPERIMENTS, args.json)
    if args.name is None:
        raise InvalidInputError("NAME must be given; fieldfit reproduce --list lists them")
    find_experiment(args.name)
    data = _data_folder(args.data)
    with _progress(args.name, args.quiet) as progress:
        settings = Settings(args.quick, args.seed, args.n_jobs, data, progress)
        summary = run_experiment(args.name, args.out or args.name, settings)
    table = summary.pop("table")
    if args.json:
        print_json(summary)
    else:
        print(table)
    reporter = Reporter(quiet=args.quiet or args.json)
    reporter.note(f"{summary['seconds']:.0f} s; written: {', '.join(summary['files'])}")
    return 0


def _list(experiments: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(
            {
                "experiments": [
                    {"name": e.name, "summary": e.summary, "paper": e.paper, "data": e.needs_data}
                    for e in experiments.values()
                ]
            }
        )
        return 0
    width = max(map(len, experiments))
    for experiment in experiments.values():
        print(f"{experiment.name:<{width}}  {experiment.summary}")
    return 0


def _data_folder(given: str | None) -> Path | None:
    if given is None:
        return None
    folder = Path(given)
    if not folder.is_dir():
        raise InvalidInputError(f"--data must be a folder that exists, got {given}")
    return folder


@contextmanager
def _progress(name: str, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Yield ``progress(done, total, what)``: a bar on a terminal, some ten lines elsewhere."""
    if quiet:
        yield lambda done, total, what: None
        return
    if not sys.stderr.isatty():
        reporter = Reporter()

        def line(done: int, total: int, what: str) -> None:
            if done * 10 // total > (done - 1) * 10 // total:
                reporter.note(f"{name}: {done * 100 // total} %, {what}")

        yield line
        return
    from tqdm import tqdm

    with tqdm(desc=name, file=sys.stderr, leave=False) as bar:

        def update(done: int, total: int, what: str) -> None:
            bar.total = total
            bar.set_postfix_str(what, refresh=False)
            bar.update(done - bar.n)

        yield update


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
