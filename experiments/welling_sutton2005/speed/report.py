"""The report of ``contrastive-speed``: when methods stop, what that costs, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from experiments.base import Row
from experiments.tables import distinct, markdown_table, mean_cell, mean_of, text_table, values_of
from experiments.welling_sutton2005.seminars.methods import LEARNING_TOL
from experiments.welling_sutton2005.seminars.report import PAPER_SECONDS
from experiments.welling_sutton2005.speed.figures import of_row
from experiments.welling_sutton2005.speed.methods import FASTEST, REFERENCE
from experiments.welling_sutton2005.speed.stopping import MARGIN, PATIENCE

WHAT_WAS_DONE = """
## What was done

Mails, features and the two models are those of `contrastive-seminars`: {n_folds} random parts, of
which {n_runs} (4-clique: {n_penalty_runs}) serve as test mails in turn. Of the other mails a
quarter is held out, and all methods learn from the rest, in one thread. Each capitalised word is
linked to its next occurrence, the rule that all folds of `contrastive-seminars` have chosen on
their training mails.

- *CFk*: contrastive free energy of Bethe's family, k steps from the labels.
- *ML-bp*: likelihood by belief propagation, to changes below {tol:g} at every evaluation. *Trees*:
  exact sweeps on spanning trees; *sequential*: one variable after the other, fieldfit's default.
  *Cold*: from messages of 1; *warm*: from those of the last evaluation. The paper's is
  "{reference}".

All learn by L-BFGS (at most {max_iter} iterations) with l2 = {l2:g}, the paper's prior, in the
2-clique model; in the 4-clique model the penalty is one of {penalties}, chosen on the held-out
mails. All predict by sequential propagation. F1 of held-out and of test mails is computed after
every iteration up to the 30th, then after every fifth; the clock stands still meanwhile, and
starts when features are encoded.

**Stopping.** The weights with the best held-out F1 are kept, and learning ends when {patience}
iterations have brought no better ones (the default rule of fieldfit's learners). Test mails are
looked at for the figures alone.
"""

HOW_TO_READ = """
Means over folds, standard errors in brackets. *Kept*: up to the weights that the rule keeps;
*stopped*: until it has seen enough; *whole*: without stopping, to convergence, a failed line
search or the last iteration. *Equal quality*: until held-out F1 first is at most {margin:g} (in
percent) below what "{reference}" keeps (how many folds came there, if not all). Messages
are vectors that factors send to variables; a gradient is one evaluation on all training mails.
"""

CAUSES = """
## Causes, by counts

Processor time is gradients x messages of a gradient x time of a message; the last has the products
of features and weights in it, which all methods share. How many times less of each a method needs
than "{reference}" (ratios of means; the product is the speed-up). In the paper
CF5 was {paper:.1f} times faster in whole trainings of the 2-clique model.
"""

TOLERANCES = """
## Tolerances

The paper does not say when its propagation stops. Messages of one gradient of the 2-clique model at
the weights that CF5 ends with (fold 0), from messages of 1, in millions, and how many times those
of CF5:
"""


#: What the status says of the count that keeps a followed training from ending early.
OWN_SCORE = re.compile(r"; the weights are those of iteration \d+, .*? score, [^;]*?(?=;|\.$)")


class Sizes(Protocol):
    """What a report tells of the design."""

    @property
    def n_folds(self) -> int: ...

    @property
    def n_runs(self) -> int: ...

    @property
    def n_penalty_runs(self) -> int: ...

    @property
    def max_iter(self) -> int: ...

    @property
    def l2(self) -> float: ...

    @property
    def penalties(self) -> tuple[float, ...]: ...


#: What is timed, as a prefix of the columns of rows and as a word.
SPANS = {"": "kept", "end_": "whole"}
HEADER = (
    "method", "iterations kept", "CPU s, kept", "CPU s, stopped", "CPU s, equal quality",
    "million messages a gradient", "F1 held-out", "F1 test",
    "iterations, whole", "CPU s, whole", "messages a gradient, whole", "F1 test, whole",
)  # fmt: skip


def seconds_to_quality(rows: Sequence[Row], points: Sequence[Row]) -> list[dict[str, Any]]:
    """When each training first came near the held-out F1 of the reference, in its fold.

    ``quality_seconds`` is ``None`` where it never does.
    """
    targets = {
        (row["model"], row["fold"]): row["held_out_f1"] - MARGIN
        for row in rows
        if row["method"] == REFERENCE
    }
    found = []
    for row in rows:
        target = targets[row["model"], row["fold"]]
        reached = [p["seconds"] for p in of_row(row, points) if p["held_out_f1"] >= target]
        found.append({**row, "quality_seconds": reached[0] if reached else None})
    return found


def speed_ups(rows: Sequence[Row], key: str) -> dict[str, float]:
    """How many times less of something a method needs than the reference, by means over folds.

    Methods that never come there in some fold are left out.
    """
    methods = [m for m in distinct(rows, "method") if not _gaps(rows, m, key)]
    if REFERENCE not in methods:
        return {}
    reference = mean_of(rows, key, method=REFERENCE)
    return {method: reference / mean_of(rows, key, method=method) for method in methods}


def headline(rows: Sequence[Row], points: Sequence[Row]) -> dict[str, float]:
    """Test F1 and speed-ups over the paper's propagation, by model and method."""
    timed, found = seconds_to_quality(rows, points), {}
    for model in distinct(timed, "model"):
        chosen = [row for row in timed if row["model"] == model]
        for method in distinct(chosen, "method"):
            found[f"{model} {method} f1"] = mean_of(chosen, "test_f1", method=method)
        for key, name in (
            ("seconds", "kept"),
            ("quality_seconds", "equal quality"),
            ("end_seconds", "whole"),
        ):
            for method, ratio in speed_ups(chosen, key).items():
                found[f"{model} {method} speed-up, {name}"] = ratio
    return found


def table(rows: Sequence[Row], points: Sequence[Row]) -> str:
    """For the terminal."""
    timed = seconds_to_quality(rows, points)
    parts = []
    for model in distinct(timed, "model"):
        chosen = [row for row in timed if row["model"] == model]
        parts.append(f"{model}\n{text_table(HEADER, _lines(chosen))}")
    return "\n\n".join(parts)


def report(
    rows: Sequence[Row],
    points: Sequence[Row],
    costs: Sequence[Row],
    tried: Sequence[Row],
    sizes: Sizes,
) -> str:
    """What was done, curves, the table, causes, tolerances, penalties, how trainings ended."""
    timed = seconds_to_quality(rows, points)
    done = WHAT_WAS_DONE.format(
        n_folds=sizes.n_folds,
        n_runs=sizes.n_runs,
        n_penalty_runs=sizes.n_penalty_runs,
        max_iter=sizes.max_iter,
        l2=sizes.l2,
        penalties=", ".join(f"{l2:g}" for l2 in sizes.penalties),
        tol=LEARNING_TOL,
        reference=REFERENCE,
        patience=PATIENCE,
    )
    parts = [
        done.strip(),
        "## F1 against processor time",
        "![F1 of test mails against processor time](curves.png)",
        "Means over folds; a dot is where held-out mails say stop.",
        HOW_TO_READ.format(margin=100.0 * MARGIN, reference=REFERENCE).strip(),
    ]
    for model in distinct(timed, "model"):
        chosen = [row for row in timed if row["model"] == model]
        parts.append(f"{model}:\n\n{markdown_table(HEADER, _lines(chosen))}")
    paper = PAPER_SECONDS["ML-bp"] / PAPER_SECONDS["CF5-bethe"]
    parts += [
        CAUSES.format(reference=REFERENCE, paper=paper).strip(),
        _causes(timed),
        "![Messages of one gradient in the course of learning](gradients.png)",
        TOLERANCES.strip(),
        _tolerances(costs),
        f"## Penalties of the 4-clique model\n\n{_penalties(tried, rows)}",
        f"## How training ended\n\n{_endings(tried)}",
    ]
    return "\n\n".join(parts)


def _gaps(rows: Sequence[Row], method: str, key: str) -> int:
    """Folds in which a method has no such figure."""
    return sum(row[key] is None for row in rows if row["method"] == method)


def _lines(rows: Sequence[Row]) -> list[list[str]]:
    """Those of the table of one model."""

    def cell(method: str, key: str, digits: int = 1, scale: float = 1.0) -> str:
        values = [scale * value for value in values_of(rows, key, method=method)]
        text = mean_cell(values, digits) if values else "-"
        missing = _gaps(rows, method, key)
        return f"{text}, {len(values)} of {len(values) + missing} folds" if missing else text

    return [
        [
            method,
            cell(method, "iterations", 0),
            cell(method, "seconds"),
            cell(method, "stop_seconds"),
            cell(method, "quality_seconds"),
            cell(method, "messages_per_gradient", 2, 1e-6),
            cell(method, "held_out_f1", 1, 100.0),
            cell(method, "test_f1", 1, 100.0),
            cell(method, "end_iterations", 0),
            cell(method, "end_seconds"),
            cell(method, "end_messages_per_gradient", 2, 1e-6),
            cell(method, "end_test_f1", 1, 100.0),
        ]
        for method in distinct(rows, "method")
    ]


def _causes(rows: Sequence[Row]) -> str:
    """Speed-ups as products of three ratios."""
    lines = []
    for model in distinct(rows, "model"):
        for prefix, span in SPANS.items():
            chosen = [
                {
                    "method": row["method"],
                    "seconds": row[f"{prefix}seconds"],
                    "gradients": row[f"{prefix}evaluations"],
                    "messages": row[f"{prefix}evaluations"] * row[f"{prefix}messages_per_gradient"],
                }
                for row in rows
                if row["model"] == model
            ]
            seconds, gradients, messages = (
                speed_ups(chosen, key) for key in ("seconds", "gradients", "messages")
            )
            lines += [
                [
                    model,
                    span,
                    method,
                    f"{seconds[method]:.1f}",
                    f"{gradients[method]:.2f}",
                    f"{messages[method] / gradients[method]:.2f}",
                    f"{seconds[method] / messages[method]:.2f}",
                ]
                for method in seconds
                if method != REFERENCE
            ]
    header = (
        "model",
        "training",
        "method",
        "speed-up",
        "gradients",
        "messages a gradient",
        "time a message",
    )
    return markdown_table(header, lines)


def _tolerances(costs: Sequence[Row]) -> str:
    """Messages of one gradient for each tolerance of propagation."""
    unit = next(row["messages"] for row in costs if row["method"] == "CF5")
    lines = [
        [
            row["method"],
            "-" if row["tol"] is None else f"{row['tol']:g}",
            f"{1e-6 * row['messages']:.2f}",
            f"{row['messages'] / unit:.1f}",
            row["unconverged"],
        ]
        for row in costs
    ]
    header = ("method", "tolerance", "messages, millions", "times CF5", "mails not converged")
    return markdown_table(header, lines)


def _penalties(tried: Sequence[Row], rows: Sequence[Row]) -> str:
    """Held-out F1 of all penalties; the chosen one is marked."""
    four = [row for row in tried if row["model"] == "4-clique" and row["method"] != REFERENCE]
    taken = {(row["fold"], row["method"], row["l2"]) for row in rows if row["model"] == "4-clique"}
    penalties = distinct(four, "l2")
    lines = []
    for method in distinct(four, "method"):
        for fold in distinct(four, "fold"):
            cells = []
            for l2 in penalties:
                (row,) = (
                    r for r in four if (r["method"], r["fold"], r["l2"]) == (method, fold, l2)
                )
                mark = " (chosen)" if (fold, method, l2) in taken else ""
                held_out, test = 100.0 * row["held_out_f1"], 100.0 * row["test_f1"]
                cells.append(f"{held_out:.1f} / {test:.1f}{mark}")
            lines.append([method, fold, *cells])
    header = ("method", "fold", *(f"l2 = {l2:g}" for l2 in penalties))
    said = (
        "F1 of held-out / test mails at the weights that the stopping rule keeps. "
        f'"{REFERENCE}" has the penalty of "{FASTEST}", whose objective is the same.'
    )
    return f"{said}\n\n{markdown_table(header, lines)}"


def _endings(tried: Sequence[Row]) -> str:
    lines = [
        (row["model"], row["method"], f"{row['l2']:g}", row["fold"], _said(row)) for row in tried
    ]
    return markdown_table(("model", "method", "l2", "fold", "status"), lines)


def _said(row: Row) -> str:
    return OWN_SCORE.sub("", str(row["status"]))
