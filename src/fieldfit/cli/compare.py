"""``fieldfit compare``: which objective for these data."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

from fieldfit._registry import find
from fieldfit.cli._options import count, number, words
from fieldfit.cli._output import Reporter, print_json
from fieldfit.cli.kinds.base import Data, Kind, located
from fieldfit.cli.kinds.registry import KINDS

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Learn from the same data by several objectives, within a budget of time, and say which one to use.
Writes DIR/results.csv and DIR/index.html, a page with table, calibration and recommendation.
Independent variables are always compared: a field that does worse than they do is of no use.
"""

EPILOG = """\
Every method gets the same share of the time, to search its penalty on held-out examples and to fit.
The first run on a machine compiles the kernels, which takes minutes beyond the budget.  Methods
that are done are kept in DIR; the same command goes on after an interrupt.
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the command, one parser for each kind."""
    parser = subparsers.add_parser(
        "compare",
        help="try several objectives on your data, and say which one to use",
        description=DESCRIPTION,
        epilog="examples:\n  fieldfit compare chain --train train.txt --out which\n"
        "  fieldfit compare ising --train answers.csv --threshold 3 --budget 60 --out which\n\n"
        f"{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(title="kinds of models", metavar="KIND", required=True)
    for kind in KINDS:
        _add_kind(kinds, kind)


def _add_kind(kinds: argparse._SubParsersAction[Any], kind: Kind) -> None:
    parser = kinds.add_parser(
        kind.name,
        help=kind.sentence,
        description=f"{DESCRIPTION}\nData: {kind.data}.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, kind=kind)
    files = parser.add_argument_group("files")
    files.add_argument("--train", metavar="F", nargs="+", required=True, help="training data")
    files.add_argument(
        "--test", metavar="F", nargs="+", help="data that take no part in any choice, only scored"
    )
    files.add_argument("--out", metavar="DIR", required=True, help="folder of table and page")
    trying = parser.add_argument_group("comparison")
    trying.add_argument(
        "--methods",
        metavar="A,B,...",
        type=words,
        help=f"objectives, of {', '.join(kind.objectives)} (default: by kind and size of the data)",
    )
    trying.add_argument(
        "--budget",
        metavar="SECONDS",
        type=number("above 0", lambda x: x > 0),
        default=300.0,
        help="for all methods together (default: 300)",
    )
    trying.add_argument(
        "--folds",
        metavar="N",
        type=count(1),
        help="1: hold a quarter out; more: cross-validation (default: by number of examples)",
    )
    trying.add_argument(
        "--max-iter",
        metavar="N",
        type=count(1),
        default=kind.defaults["max_iter"],
        help=f"most iterations of a fit (default: {kind.defaults['max_iter']})",
    )
    trying.add_argument("--n-jobs", metavar="N", type=int, help="threads, -1 for all processors")
    trying.add_argument(
        "--seed", metavar="N", type=count(0), default=0, help="of the cut into folds (default: 0)"
    )
    kind.add_options(parser.add_argument_group(f"options of {kind.name}"))
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print one JSON object, no table")
    output.add_argument("--quiet", action="store_true", help="no progress and no table")


def run(args: argparse.Namespace) -> int:
    """Read, compare, write."""
    from fieldfit.comparison.compare_methods import compare

    kind: Kind = args.kind
    reporter = Reporter(quiet=args.quiet or args.json)
    reader, data = kind.reader(args).read(args.train)
    reporter.note(f"training data: {data.summary}")
    test = None
    if args.test is not None:
        _, given = reader.read(args.test)
        reporter.note(f"test data: {given.summary}")
        test = _pair(given)
    estimator = find(kind.estimator)(
        max_iter=args.max_iter,
        random_state=args.seed,
        n_jobs=args.n_jobs,
        **kind.parameters(args, reader),
    )
    with reporter.warnings_at_the_end(), located(data):
        found = compare(
            estimator,
            _examples(data),
            data.labels,
            args.methods,
            args.budget,
            test=test,
            folds=args.folds,
            folder=args.out,
            fit_options=kind.fit_options(args, data),
            random_state=args.seed,
            verbose=int(not args.quiet and not args.json and sys.stderr.isatty()),
        )
    found = replace(found, command=args.command_line)
    found.write(args.out)
    fields = {"out": args.out, "recommendation": found.recommendation, "code": found.code}
    fields |= {"best": None if found.best is None else found.best.method, "methods": found.rows}
    if args.json:
        print_json(fields)
    elif not args.quiet:
        print(found)
        print(f"page: {args.out}/index.html")
    return 0


def _pair(data: Data) -> Any:
    return _examples(data) if data.labels is None else (data.examples, data.labels)


def _examples(data: Data) -> Any:
    """Examples that can be cut; samples are a table with names."""
    import numpy as np

    return np.asarray(data.examples) if data.labels is None else data.examples
