"""``fieldfit score``: how well a learned model does on labelled data."""

from __future__ import annotations

import argparse
import time
from typing import Any

from fieldfit.cli._output import Reporter, print_json
from fieldfit.cli.kinds.base import located
from fieldfit.cli.kinds.registry import load_model

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Compare the predictions of a model that fieldfit fit has written with given labels:
  chain         accuracy, a table of labels and, for BIO labels, precision, recall and F1 of chunks
  grid, graph   accuracy, mean intersection over union, a table of labels
  ising, potts  mean log pseudo-likelihood, and the mean log-likelihood or bounds on it
  matching      accuracy (share of right partners), precision and recall of pairs, log-likelihood
"""

EXAMPLES = """\
examples:
  fieldfit score --model chunks.ff test.txt
  fieldfit score --model scenes.ff test.npz --json
  fieldfit score --model network.ff held_out.csv
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the options of the command."""
    parser = subparsers.add_parser(
        "score",
        help="compare a learned model with labelled data",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--model", metavar="M", required=True, help="file that fieldfit fit wrote")
    parser.add_argument("inputs", metavar="DATA", nargs="+", help="data with labels, as for fit")
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")


def run(args: argparse.Namespace) -> int:
    """Read the model and the data, predict, compare."""
    kind, model = load_model(args.model)
    _, data = kind.stored_reader(model).read(args.inputs)
    begin = time.perf_counter()
    with Reporter().warnings_at_the_end(), located(data):
        report = kind.score(model, data)
    seconds = time.perf_counter() - begin
    if args.json:
        common = {"model": args.model, "kind": kind.name, "inputs": args.inputs}
        print_json(common | {"seconds": seconds} | report.fields)
    else:
        print(report.text)
    return 0
