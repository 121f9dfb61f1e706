"""``fieldfit fit``: learn a model from files."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from fieldfit._registry import OBJECTIVES_OF, find
from fieldfit.cli._options import count, number
from fieldfit.cli._output import (
    Reporter,
    format_bytes,
    format_ending,
    format_pairs,
    print_json,
    require_new,
)
from fieldfit.cli.kinds.base import Data, Kind, located
from fieldfit.cli.kinds.registry import KINDS
from fieldfit.cli.shard import dask_client, open_shards

__all__ = ["add_parser", "run"]

#: Of `fieldfit.learners.registry`, written out so that ``--help`` imports nothing; a test compares.
LEARNERS = ("lbfgs", "adam", "sgd")

DESCRIPTION = """\
Learn a model from files and write it to one file, which predict, score and inspect read.
Each kind of model has options of its own: see fieldfit fit KIND --help.
"""

EPILOG = """\
A fit that does not converge still writes its model, with a warning.  With --checkpoint, a fit
that was interrupted or killed goes on where it was when the same command is given again.
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the command, one parser for each kind."""
    examples = "\n".join(f"  {kind.example}" for kind in KINDS)
    parser = subparsers.add_parser(
        "fit",
        help="learn a model from files",
        description=DESCRIPTION,
        epilog=f"examples:\n{examples}\n\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(title="kinds of models", metavar="KIND", required=True)
    for kind in KINDS:
        _add_kind(kinds, kind)


def _add_kind(kinds: argparse._SubParsersAction[Any], kind: Kind) -> None:
    parser = kinds.add_parser(
        kind.name,
        help=kind.sentence,
        description=f"Learn {kind.sentence} ({kind.estimator}).\nData: {kind.data}.",
        epilog=f"example:\n  {kind.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, kind=kind)
    defaults = kind.defaults
    files = parser.add_argument_group("files")
    if kind.has_shards:
        source = files.add_mutually_exclusive_group(required=True)
        source.add_argument("--train", metavar="F", nargs="+", help="training data")
        source.add_argument("--shards", metavar="DIR", help="training data of fieldfit shard")
        files.add_argument(
            "--dask", metavar="ADDRESS", help="with --shards: scheduler whose workers evaluate them"
        )
    else:
        files.add_argument("--train", metavar="F", nargs="+", required=True, help="training data")
    files.add_argument("--model", metavar="OUT", required=True, help="file of the learned model")
    files.add_argument(
        "--validation", metavar="F", nargs="+", help="held-out data; the fit ends when it is best"
    )
    files.add_argument(
        "--checkpoint", metavar="F", help="file to write progress to, and to resume from"
    )
    files.add_argument(
        "--report", metavar="F", help="write a page about the fit (HTML, one file, no network)"
    )
    files.add_argument(
        "--test",
        metavar="F",
        nargs="+",
        help="data that the report shows predictions for (default: the training data)",
    )
    learning = parser.add_argument_group("learning")
    learning.add_argument(
        "--objective",
        metavar="NAME",
        choices=kind.objectives,
        default=defaults["objective"],
        help=f"one of {', '.join(kind.objectives)} (default: {defaults['objective']})",
    )
    may_choose = kind.objectives == OBJECTIVES_OF["conditional"]
    chosen = "; auto: chosen on held-out examples" if may_choose else ""
    learning.add_argument(
        "--l2",
        metavar="X",
        type=number("of at least 0", lambda x: x >= 0, ("auto",) if may_choose else ()),
        default=defaults["l2"],
        help=f"lambda in lambda/2 |w|^2, beside the sum over examples{chosen} "
        f"(default: {defaults['l2']})",
    )
    learning.add_argument(
        "--l1",
        metavar="X",
        type=number("of at least 0", lambda x: x >= 0),
        default=defaults["l1"],
        help=f"factor of |w|_1 (default: {defaults['l1']:g})",
    )
    learning.add_argument(
        "--max-iter",
        metavar="N",
        type=count(1),
        default=defaults["max_iter"],
        help=f"most iterations (default: {defaults['max_iter']})",
    )
    learning.add_argument(
        "--tol",
        metavar="X",
        type=number("above 0", lambda x: x > 0),
        default=defaults["tol"],
        help=f"tolerance of the learner (default: {defaults['tol']:g})",
    )
    learning.add_argument(
        "--learner",
        choices=LEARNERS,
        help="default: lbfgs if the objective is smooth, else adam; mle-struct has its own",
    )
    learning.add_argument(
        "--n-jobs",
        metavar="N",
        type=int,
        help="threads, -1 for all processors (default: 1); the result is the same",
    )
    learning.add_argument(
        "--seed", metavar="N", type=count(0), default=0, help="of random learners (default: 0)"
    )
    kind.add_options(parser.add_argument_group(f"options of {kind.name}"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--accuracy", action="store_true", help="also compute the accuracy on the training data"
    )
    output.add_argument("--json", action="store_true", help="print one JSON object, no table")
    output.add_argument("--quiet", action="store_true", help="no progress and no table")


def run(args: argparse.Namespace) -> int:
    """Read, learn, write."""
    kind: Kind = args.kind
    reporter = Reporter(quiet=args.quiet or args.json)
    _check_files(args)
    begin = time.perf_counter()
    reader, data = _training(args)
    reporter.note(f"training data: {data.summary}, {time.perf_counter() - begin:.3g} s")
    validation = None
    if args.validation is not None:
        _, validation = reader.read(args.validation)
        reporter.note(f"validation data: {validation.summary}")

    test = None
    if args.test is not None:
        _, test = reader.read(args.test)
        reporter.note(f"test data: {test.summary}")

    estimator = _estimator(args, reader)
    begin = time.perf_counter()
    with reporter.warnings_at_the_end():
        with located(data, validation), dask_client(getattr(args, "dask", None)) as args.client:
            kind.fit(estimator, data, validation, args)
        seconds = time.perf_counter() - begin
        if estimator.status_.startswith("interrupted"):
            raise KeyboardInterrupt(_interruption(args, estimator.status_))
        extra = kind.finish(estimator, args)
        accuracy = kind.accuracy(estimator, data) if args.accuracy else None
    # where and how the model was learned is not part of it
    estimator.set_params(verbose=0)
    estimator.notes_ = {"reader": reader.as_notes(), "train": data.files, "data": data.summary}
    estimator.save(args.model)
    fields = _fields(args, estimator, data, seconds, accuracy) | extra
    if args.report is not None:
        _write_report(args, estimator, data if test is None else test)
        fields["report"] = args.report
    if args.json:
        print_json(fields)
    elif not args.quiet:
        print(format_pairs(_summary(args, fields, data)))
    return 0


def _training(args: argparse.Namespace) -> tuple[Any, Data]:
    """The reader and its examples: from files, or shards with the reader that wrote them."""
    if getattr(args, "shards", None) is None:
        return args.kind.reader(args).read(args.train)
    return open_shards(args.kind, args)


def _write_report(args: argparse.Namespace, estimator: Any, data: Data) -> None:
    """The page about the fit, on examples that are in memory."""
    from fieldfit.report.kinds.base import Request
    from fieldfit.report.report_page import write_report

    has_data = getattr(args, "shards", None) is None or args.test is not None
    shown = (data.examples, data.labels) if has_data else (None, None)
    request = Request(estimator, *shown, **args.kind.report_names(estimator))
    with located(data):
        write_report(args.report, request, args.command_line)


def _estimator(args: argparse.Namespace, reader: Any) -> Any:
    kind: Kind = args.kind
    return find(kind.estimator)(
        objective=args.objective,
        l2=args.l2,
        l1=args.l1,
        max_iter=args.max_iter,
        tol=args.tol,
        learner=args.learner,
        random_state=args.seed,
        n_jobs=args.n_jobs,
        verbose=int(not args.quiet and not args.json and sys.stderr.isatty()),
        **kind.parameters(args, reader),
    )


def _check_files(args: argparse.Namespace) -> None:
    """Refuse, before any work, outputs that cannot be written or that are also inputs."""
    outputs = {
        "--model": args.model,
        "--checkpoint": args.checkpoint,
        "--report": args.report,
    }
    outputs |= args.kind.output_files(args)
    inputs = [*(args.train or ()), *(args.validation or ()), *(args.test or ())]
    require_new(outputs, inputs)
    if args.test is not None and args.report is None:
        from fieldfit.errors import InvalidInputError

        raise InvalidInputError("--test needs --report, which shows the model on the data")
    if getattr(args, "dask", None) is not None and args.shards is None:
        from fieldfit.errors import InvalidInputError

        raise InvalidInputError(f"--dask needs --shards, got {args.dask} with --train")


def _interruption(args: argparse.Namespace, status: str) -> str:
    kept = (
        "with --checkpoint a fit can go on later"
        if args.checkpoint is None
        else f"the same command goes on from {args.checkpoint}"
    )
    return f"{status.rstrip('.')}; no model was written, {kept}"


def _fields(
    args: argparse.Namespace, estimator: Any, data: Data, seconds: float, accuracy: float | None
) -> dict[str, Any]:
    last = estimator.trace_[-1] if estimator.trace_ else {}
    return {
        "model": args.model,
        "kind": args.kind.name,
        "estimator": args.kind.estimator,
        "objective": args.objective,
        "objective_value": last.get("objective"),
        "gradient_norm": last.get("gradient_norm"),
        "n_iter": int(estimator.n_iter_),
        "converged": bool(estimator.converged_),
        "status": estimator.status_,
        "n_weights": len(estimator.weights_),
        "train": list(data.files),
        "data": data.summary,
        "accuracy": accuracy,
        "seconds": seconds,
    }


def _summary(args: argparse.Namespace, fields: dict[str, Any], data: Data) -> dict[str, Any]:
    """What the table at the end shows."""
    value = fields["objective_value"]
    shown: dict[str, Any] = {
        "kind": f"{fields['kind']} ({fields['estimator']})",
        "data": data.summary,
        "objective": fields["objective"] + ("" if value is None else f", {value:.8g} at the end"),
        "iterations": fields["n_iter"],
        "converged": format_ending(fields["converged"], fields["status"]),
        "weights": fields["n_weights"],
    }
    if fields["accuracy"] is not None:
        shown["accuracy"] = f"{fields['accuracy']:.4f} on the training data"
    shown["time"] = f"{fields['seconds']:.3g} s"
    shown["model"] = f"{args.model}, {format_bytes(os.path.getsize(args.model))}"
    if "report" in fields:
        shown["report"] = f"{args.report}, {format_bytes(os.path.getsize(args.report))}"
    if "contacts" in fields:
        shown["contacts"] = fields["contacts"]
    return shown
