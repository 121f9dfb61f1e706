"""``fieldfit inspect``: what a model file holds and how it was learned."""

from __future__ import annotations

import argparse
import csv
import io
import math
import os
from typing import Any

from fieldfit.cli._options import count
from fieldfit.cli._output import (
    format_bytes,
    format_ending,
    format_pairs,
    format_table,
    print_json,
    require_new,
)
from fieldfit.cli.kinds.registry import load_model

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Show what a model is, how it was learned and whether that converged, and its strongest weights:
  chain         attribute / label, and label -> label
  grid, graph   what each weight belongs to
  ising         couplings and thresholds, with standard errors
  potts         pairs of variables by their corrected coupling strength
  matching      weights of the features of pairs
"""

EXAMPLES = """\
examples:
  fieldfit inspect chunks.ff
  fieldfit inspect network.ff --top 50 --json
  fieldfit inspect network.ff --edges network.csv
"""

#: Parameters of estimators that say nothing about the model.
BORING = ("verbose", "n_jobs", "objective")


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the options of the command."""
    parser = subparsers.add_parser(
        "inspect",
        help="show what a model file holds",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("model", metavar="M", help="file that fieldfit fit wrote")
    parser.add_argument(
        "--top", metavar="N", type=count(0), default=20, help="strongest weights (default: 20)"
    )
    parser.add_argument(
        "--edges",
        metavar="F",
        help="write the network of an ising or potts model: CSV with source, target, weight and, "
        "where the model has them, standard_error",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no tables")


def run(args: argparse.Namespace) -> int:
    """Read the model, tell."""
    kind, model = load_model(args.model)
    if args.edges is not None:
        _write_edges(args, model)
    parameters = model.get_params(deep=False)
    options = {
        name: value
        for name, value in parameters.items()
        if name not in BORING and value is not None
    }
    about = kind.describe(model)
    trace = _trace(model.trace_)
    tables = kind.strongest(model, args.top)
    notes = getattr(model, "notes_", {})
    fields = {
        "model": args.model,
        "bytes": os.path.getsize(args.model),
        "kind": kind.name,
        "estimator": type(model).__name__,
        "objective": str(model.objective),
        "options": {name: _shown(value) for name, value in options.items()},
        **about,
        "n_weights": len(model.weights_),
        "weight_blocks": {name: list(shape) for name, shape in model._block_shapes.items()},
        "n_iter": int(model.n_iter_),
        "converged": bool(model.converged_),
        "status": model.status_,
        "trace": trace,
        "train": notes.get("train"),
        "data": notes.get("data"),
        "reader": notes.get("reader"),
        "strongest": {table.title: table.rows for table in tables},
    }
    if args.json:
        print_json(fields)
        return 0
    print(format_pairs(_pairs(fields, about)))
    for table in tables:
        if table.rows:
            print(f"\n{table.heading}\n{format_table(list(table.rows[0]), table.rows)}")
    return 0


def _write_edges(args: argparse.Namespace, model: Any) -> None:
    """The edge list as programs for networks read it."""
    from fieldfit.errors import InvalidInputError
    from fieldfit.io._atomic_file import write_atomically

    require_new({"--edges": args.edges}, [args.model])
    if not hasattr(model, "edge_list"):
        raise InvalidInputError(
            f"--edges needs an ising or potts model, got a {type(model).__name__}"
        )
    edges = model.edge_list()
    columns = ["source", "target", "weight"]
    if any(edge.standard_error is not None for edge in edges):
        columns.append("standard_error")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([getattr(edge, column) for column in columns] for edge in edges)
    write_atomically(args.edges, [text.getvalue().encode()])


def _trace(trace: list[dict[str, Any]]) -> dict[str, Any]:
    """First and last line of the trace, and what matters in between."""
    if not trace:
        return {"n_rows": 0}
    first, last = trace[0], trace[-1]
    return {
        "n_rows": len(trace),
        "objective_first": first.get("objective"),
        "objective_last": last.get("objective"),
        "gradient_norm_last": last.get("gradient_norm", last.get("gap")),
        "most_unconverged": max(row.get("unconverged", 0.0) for row in trace),
        "best_validation": max(
            (row["validation"] for row in trace if "validation" in row), default=None
        ),
        "seconds": last.get("seconds"),
    }


def _pairs(fields: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """The first table."""
    trace = fields["trace"]
    options = ", ".join(f"{name}={value}" for name, value in fields["options"].items())
    shown: dict[str, Any] = {
        "model": f"{fields['model']}, {format_bytes(fields['bytes'])}",
        "kind": f"{fields['kind']} ({fields['estimator']})",
        "objective": fields["objective"],
        "options": options,
    }
    for name, value in about.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        shown[name.replace("n_", "number of ").replace("_", " ")] = text
    blocks = ", ".join(
        f"{name} {' x '.join(map(str, shape))}" for name, shape in fields["weight_blocks"].items()
    )
    shown["weights"] = f"{fields['n_weights']} ({blocks})"
    if fields["data"] is not None:
        shown["trained on"] = f"{fields['data']} ({', '.join(fields['train'])})"
    shown["iterations"] = fields["n_iter"]
    shown["converged"] = format_ending(fields["converged"], fields["status"])
    if trace.get("objective_last") is not None:
        shown["value"] = f"{trace['objective_first']:.8g} at first, {trace['objective_last']:.8g}"
    if trace.get("best_validation") is not None:
        shown["validation"] = f"{trace['best_validation']:.6g} at best"
    if trace.get("seconds") is not None:
        shown["time"] = f"{trace['seconds']:.3g} s"
    return shown


def _shown(value: Any) -> Any:
    """A parameter as JSON has it; objects as their text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)
