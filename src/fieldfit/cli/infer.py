"""``fieldfit infer``: marginals, partition function or best labelling of a model file."""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from fieldfit._registry import INFERENCE_METHODS, MAP_METHODS
from fieldfit.cli._options import count, number
from fieldfit.cli._output import Reporter, format_bytes, print_json, require_new

if TYPE_CHECKING:
    from fieldfit.graph.factor_graph import FactorGraph
    from fieldfit.graph.potentials import Potentials
    from fieldfit.graph.result import InferenceResult, MapResult
    from fieldfit.io.uai_answers import Answer

__all__ = ["add_parser", "run"]

METHODS = tuple(dict.fromkeys([*INFERENCE_METHODS, *MAP_METHODS]))
SCHEDULES = ("flooding", "sequential", "tree", "residual")

DESCRIPTION = """\
Answer one question about a model in a UAI (.uai) or libDAI (.fg) file, plain or gzip:
  MAR   the marginal distribution of every variable
  PR    log10 of the partition function (the probability of the evidence, for a Bayesian network)
  MAP   a labelling of largest weight
The answer is written in UAI form to standard output or --out; what was done, and whether it is
exact, a bound or not converged, is said on standard error.
"""

EXAMPLES = """\
examples:
  fieldfit infer model.uai
  fieldfit infer model.uai --task PR --evidence model.uai.evid --out model.uai.PR
  fieldfit infer model.uai --method trw --task PR          an upper bound on log10 Z
  fieldfit infer model.uai --method frank-wolfe --task PR  the same, with a certified gap
  fieldfit infer model.uai --method max-flow --task MAP    a minimum cut, or why there is none
  fieldfit infer model.fg --method bp --schedule residual --damping 0.2 --json
  zcat model.uai.gz | fieldfit infer - --task MAP
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the options of the command."""
    parser = subparsers.add_parser(
        "infer",
        help="marginals, partition function or best labelling of a model file",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("model", metavar="MODEL", help="model file (.uai, .fg), - = standard input")
    evidence = parser.add_mutually_exclusive_group()
    evidence.add_argument("--evidence", metavar="F", help="evidence file; default: MODEL.evid")
    evidence.add_argument(
        "--no-evidence", action="store_true", help="do not look for an evidence file"
    )
    parser.add_argument(
        "--task", type=str.upper, choices=("MAR", "PR", "MAP"), default="MAR", help="default: MAR"
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="auto",
        help="auto (default) is exact within --max-memory, otherwise the best approximation; "
        f"one of {', '.join(METHODS)}; see docs/map.md for those of MAP",
        metavar="NAME",
    )
    parser.add_argument("--schedule", choices=SCHEDULES, help="order of message updates")
    parser.add_argument(
        "--damping",
        metavar="X",
        type=number("at least 0 and below 1", lambda x: 0 <= x < 1),
        help="share of the old message that is kept, in [0, 1)",
    )
    parser.add_argument(
        "--tol",
        metavar="X",
        type=number("above 0", lambda x: x > 0),
        help="largest message change at convergence",
    )
    parser.add_argument("--max-iter", metavar="N", type=count(1), help="most sweeps")
    parser.add_argument(
        "--max-memory",
        metavar="GB",
        type=number("above 0", lambda x: x > 0),
        default=4.0,
        help="memory that the model and an exact method may take (default: 4)",
    )
    parser.add_argument("--seed", metavar="N", type=count(0), help="seed of random methods")
    parser.add_argument("--out", metavar="F", help="write the answer to this file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="no summary, only warnings")


def run(args: argparse.Namespace) -> int:
    """Read the model, run the method, write the answer."""
    _check_method(args)
    _check_out(args)
    reporter = Reporter(quiet=args.quiet)
    graph, potentials = _read_model(args)
    observed = _read_evidence(args, graph, reporter)
    reporter.note(_model_summary(args.model, graph, observed))

    begin = time.perf_counter()
    answer: Answer
    if args.task == "MAP":
        found = _decode(args, graph, potentials, observed, reporter)
        answer, fields = _map_answer(found)
    else:
        result = _infer(args, graph, potentials, observed, reporter)
        answer, fields = _belief_answer(args, result)
    seconds = time.perf_counter() - begin

    from fieldfit.io.uai_answers import format_answer, write_answer

    common = {"model": args.model, "task": args.task, **fields, "seconds": seconds}
    if args.out is not None:
        write_answer(args.out, answer)
    if args.json:
        print_json(common)
    elif args.out is None:
        sys.stdout.write(format_answer(answer))
    _report(common, reporter)
    return 0


# -- input --------------------------------------------------------------------------------


def _read_model(args: argparse.Namespace) -> tuple[FactorGraph, Potentials]:
    from fieldfit.io import read_fg, read_uai
    from fieldfit.io._text import read_bytes

    max_memory = args.max_memory * 1e9
    if args.model == "-":
        _, data = read_bytes(io.BytesIO(sys.stdin.buffer.read()))
        # a .fg file begins with a number or a comment, a .uai file with a word
        is_fg = data.lstrip()[:1] in b"#0123456789" and bool(data.strip())
        return (read_fg if is_fg else read_uai)(io.BytesIO(data), max_memory=max_memory)
    is_fg = args.model.removesuffix(".gz").endswith(".fg")
    return (read_fg if is_fg else read_uai)(args.model, max_memory=max_memory)


def _read_evidence(
    args: argparse.Namespace, graph: FactorGraph, reporter: Reporter
) -> dict[int, int]:
    from fieldfit.io import read_evidence

    if args.evidence is not None:
        return read_evidence(args.evidence, graph)
    if args.no_evidence or args.model == "-":
        return {}
    beside = _beside(args.model)
    if not os.path.isfile(beside):
        return {}
    reporter.note(f"evidence: {beside}, found beside the model (--no-evidence to ignore it)")
    return read_evidence(beside, graph)


def _check_out(args: argparse.Namespace) -> None:
    """Refuse, before any work, to write where it is impossible or would destroy an input."""
    if args.out is None:
        return
    beside = [] if args.no_evidence or args.evidence is not None else [_beside(args.model)]
    require_new({"--out": args.out}, [args.model, *([args.evidence] if args.evidence else beside)])


def _beside(model: str) -> str:
    """Where the evidence of a model lies by habit."""
    return model.removesuffix(".gz") + ".evid"


def _check_method(args: argparse.Namespace) -> None:
    """Refuse a method that does not do the task before a large file is read."""
    from fieldfit.errors import InvalidInputError

    allowed = MAP_METHODS if args.task == "MAP" else INFERENCE_METHODS
    if args.method not in allowed:
        raise InvalidInputError(
            f"--method with --task {args.task} must be one of {', '.join(allowed)}, "
            f"got {args.method}"
        )


# -- methods ------------------------------------------------------------------------------


def _infer(
    args: argparse.Namespace,
    graph: FactorGraph,
    potentials: Potentials,
    observed: dict[int, int],
    reporter: Reporter,
) -> InferenceResult:
    from fieldfit.inference.auto import infer

    with reporter.progress(args.method, args.max_iter) as progress:
        return infer(
            graph,
            potentials,
            method=args.method,
            observed=observed,
            max_memory=args.max_memory * 1e9,
            schedule=args.schedule,
            damping=args.damping,
            tol=args.tol,
            max_iter=args.max_iter,
            random_state=args.seed,
            progress=progress,
        )


def _decode(
    args: argparse.Namespace,
    graph: FactorGraph,
    potentials: Potentials,
    observed: dict[int, int],
    reporter: Reporter,
) -> MapResult:
    from fieldfit.inference.auto import decode

    with reporter.progress(args.method, args.max_iter) as progress:
        return decode(
            graph,
            potentials,
            method=args.method,
            observed=observed,
            max_memory=args.max_memory * 1e9,
            schedule=args.schedule,
            damping=args.damping,
            tol=args.tol,
            max_iter=args.max_iter,
            progress=progress,
        )


# -- output -------------------------------------------------------------------------------


def _belief_answer(
    args: argparse.Namespace, result: InferenceResult
) -> tuple[Answer, dict[str, Any]]:
    from fieldfit.errors import InvalidInputError
    from fieldfit.io.uai_answers import MarginalAnswer, PartitionAnswer

    log10_partition = result.log_partition / math.log(10.0)
    fields: dict[str, Any] = {
        "method": result.method or args.method,
        "converged": bool(result.converged),
        "status": result.status,
        "bound": result.bound,
        "log_partition": float(result.log_partition),
        "log10_partition": float(log10_partition),
        "n_iter": int(result.n_iter),
        "residual": float(result.residual),
        "memory": result.diagnostics.get("memory"),
    }
    if args.task == "PR":
        if not math.isfinite(log10_partition):
            raise InvalidInputError(
                f"--method {args.method} does not estimate the partition function, "
                "choose another one for --task PR"
            )
        return PartitionAnswer(float(log10_partition)), fields
    answer = MarginalAnswer.from_beliefs(result.beliefs)
    return answer, fields | {"marginals": [marginal.tolist() for marginal in answer.marginals]}


def _map_answer(found: MapResult) -> tuple[Answer, dict[str, Any]]:
    from fieldfit.io.uai_answers import MapAnswer

    fields: dict[str, Any] = {
        "method": found.method,
        "converged": bool(found.converged),
        "status": found.status,
        "bound": None,
        "log_partition": None,
        "log10_partition": None,
        "n_iter": int(found.n_iter),
        "residual": None,
        "labels": found.labels.tolist(),
        "score": float(found.score),
        "upper_bound": float(found.upper_bound),
        "optimal": bool(found.optimal),
    }
    return MapAnswer(found.labels), fields


def _model_summary(name: str, graph: FactorGraph, observed: dict[int, int]) -> str:
    size = format_bytes(8.0 * (int(graph.table_offsets[-1]) + int(graph.unary_offsets[-1])))
    evidence = f", {len(observed)} observed" if observed else ""
    return f"model: {name}, {graph!r}, {size}{evidence}"


def _report(fields: dict[str, Any], reporter: Reporter) -> None:
    """The summary: method, how it ended, and what is proved."""
    memory = fields.get("memory")
    needed = f", {format_bytes(memory)} of memory" if memory else ""
    reporter.note(f"method: {fields['method']}{needed}, {fields['seconds']:.3g} s")
    if fields["task"] == "MAP":
        proof = "optimal" if fields["optimal"] else f"at most {fields['upper_bound']:.6g}"
        reporter.note(f"score: {fields['score']:.6g} (natural logarithm; {proof})")
    elif math.isfinite(fields["log10_partition"]):
        proof = {"exact": "exact", "upper": "upper bound", "lower": "lower bound"}.get(
            fields["bound"], "an estimate, no bound"
        )
        reporter.note(f"log10 Z: {fields['log10_partition']:.6g} ({proof})")
    if fields["converged"]:
        reporter.note(f"status: {fields['status']}")
    else:
        ending = ": " if "not converged" in fields["status"] else " did not converge: "
        reporter.warning(f"{fields['method']}{ending}{fields['status']}")
