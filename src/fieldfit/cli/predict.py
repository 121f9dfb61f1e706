"""``fieldfit predict``: what a learned model says about new data."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from fieldfit.cli._output import Reporter, print_json, require_new
from fieldfit.cli.kinds.base import located
from fieldfit.cli.kinds.registry import load_model

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Predict with a model that fieldfit fit has written.  What comes out depends on the kind of model:
  chain         one label on each line, a blank line between sequences
  grid          --out F.npz with the array y, or --out DIR with a PNG file for each image
  graph         one JSON object with the labels of a graph on each line
  ising, potts  the log-likelihood of each sample, or bounds on it (equal if it is exact)
  matching      a CSV table of the pairs that are matched: example, row, column
With --marginals:
  chain         behind the label, tab-separated, the probability of each one: label:probability
  grid, graph   also the array, or the list, of marginals
  ising, potts  one line for each missing value: sample, column, value:probability, ...
  matching      all pairs, whether they are matched, and the probability
"""

EXAMPLES = """\
examples:
  fieldfit predict --model chunks.ff test.txt --marginals --out test.labels
  fieldfit predict --model scenes.ff test.npz --out predicted.npz
  fieldfit predict --model scenes.ff photos --out predicted
  fieldfit predict --model network.ff answers.csv --marginals
  fieldfit predict --model rooms.ff applicants.csv --out rooms.csv
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the options of the command."""
    parser = subparsers.add_parser(
        "predict",
        help="labels, marginals or log-likelihoods by a learned model",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--model", metavar="M", required=True, help="file that fieldfit fit wrote")
    parser.add_argument(
        "inputs", metavar="INPUT", nargs="+", help="data as for fit, labels are not needed"
    )
    parser.add_argument("--marginals", action="store_true", help="also probabilities")
    parser.add_argument("--out", metavar="F", help="write to this file (or folder)")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object; the predictions are in it unless --out is given",
    )
    parser.add_argument("--quiet", action="store_true", help="no summary, only warnings")


def run(args: argparse.Namespace) -> int:
    """Read the model and the data, predict, write."""
    from fieldfit.errors import InvalidInputError

    kind, model = load_model(args.model)
    reporter = Reporter(quiet=args.quiet or args.json)
    if args.out is not None:
        _check_out(args)
    elif kind.name == "grid" and not args.json:
        raise InvalidInputError("--out must be given for a grid model: an .npz file or a folder")
    _, data = kind.stored_reader(model).read(args.inputs, with_labels=False)
    begin = time.perf_counter()
    with reporter.warnings_at_the_end(), located(data):
        answer = kind.predict(model, data, args)
    seconds = time.perf_counter() - begin

    if args.out is not None:
        answer.write(args.out)
    if args.json:
        found = answer.fields if args.out is None else {"out": args.out}
        common = {"model": args.model, "kind": kind.name, "inputs": args.inputs}
        print_json(common | {"data": data.summary, "seconds": seconds} | found)
    elif args.out is None:
        sys.stdout.write(answer.text or "")
    where = "" if args.out is None else f", written to {args.out}"
    reporter.note(f"predicted: {data.summary}, {seconds:.3g} s{where}")
    return 0


def _check_out(args: argparse.Namespace) -> None:
    """Refuse, before any work, to write where it is impossible or would destroy an input."""
    require_new({"--out": args.out}, [args.model, *args.inputs], or_folder=True)
