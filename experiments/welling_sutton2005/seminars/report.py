"""The report of ``contrastive-seminars``: the paper's table 1 beside ours, costs, significance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.base import Row
from experiments.tables import Column, fold_cell, markdown_table, means, paper_table, terminal_table
from experiments.welling_sutton2005.seminars.methods import CHOOSER

#: Table 1 of the paper: token F1, percent.
PAPER: Mapping[str, Mapping[str, float]] = {
    "2-clique": {
        "CF5-bethe": 70.08, "CF10-bethe": 68.35, "CF15-bethe": 61.80, "CF500-bethe": 63.44,
        "CF10-mf": 57.91, "ML-mf": 60.98, "ML-bp": 68.19,
    },
    "4-clique": {
        "CF5-bethe": 74.94, "CF10-bethe": 75.23, "CF15-bethe": 76.51, "CF500-bethe": 75.86,
        "CF10-mf": 55.91, "ML-mf": 65.31, "ML-bp": 78.71,
    },
}  # fmt: skip
#: Mean training times of the paper, in seconds, and as it prints them (2-clique model).
PAPER_SECONDS = {"CF5-bethe": 83 * 60.0, "ML-bp": 19 * 3600.0}
PAPER_TIMES = {"CF5-bethe": "83 minutes", "ML-bp": "19 hours"}
#: What the others are compared with.
REFERENCE = "ML-bp"

WHAT_WAS_DONE = """
## What was done

The {n_mails} seminar announcements of Freitag (1998), {n_tokens:,} tokens, {n_speaker_tokens:,} of
them in the name of a speaker; the label of a token says whether it is one of those. {folds} One
graph for each mail: a chain along its tokens, and up to {n_links:,} edges between equal capitalised
words. Features are those of `camel-seminars`: words, shapes,
affixes, neighbours, headers and layout of lines, runs of capitalised words; no parts of speech and
no lists of names, which the paper has. Features of fewer than {min_count} training tokens are
dropped.

- *2-clique*: tables of edges are constants; about {two:,} weights.
- *4-clique*: the table of an edge of the chain also depends on the features of its first token,
  that of a skip edge on those of both tokens (`edge_features=True`); about {four:,} weights.

All methods have the same features, a Gaussian prior of variance 10 (`l2 = 0.1`) and L-BFGS. As in
the paper, *ML-bp* runs propagation on spanning trees from messages of 1, *ML-mf* damped parallel
updates from uniform beliefs, each to convergence (changes below 1e-6, for mean field at most 200
sweeps) at every evaluation; *CFk* takes k steps from the smoothed labels of every mail. Bethe
methods predict by propagation, mean field ones by mean field.
"""

CHOICES = """
Features come from `camel-seminars`, where they were chosen on mails that are test mails of some
folds here, and the paper had others; so a comparison with the paper's F1 also compares features.
Which words are linked is chosen for every fold on its own training mails: three quarters to learn
from with {chooser} (2-clique), one quarter for token F1. Two rules: each capitalised word to its
next occurrence, or all pairs of words that occur up to ten times (the paper: all pairs).
"""

HOW_TO_READ = """
F1 counts tokens; figures in brackets are standard deviations over folds. *Messages* are counted in
millions over the whole training: vectors that factors send to variables, whatever the method does
with them. *Speed-up* is how many times less than ML-bp a method needs. Times also hold what all
methods share, the products of features and weights at each evaluation.
"""

FASTER = """
In the paper CF5-bethe trained in 83 minutes, ML-bp in 19 hours (2-clique model): {paper:.1f} times
faster. Here:
"""


@dataclass(frozen=True)
class Corpus:
    """Sizes that a report tells."""

    n_mails: int
    n_tokens: int
    n_speaker_tokens: int
    n_links: int
    n_weights: Mapping[str, int]
    folds: str
    min_count: int


def columns() -> list[Column]:
    """F1 of both models, as in the paper's table."""
    return [
        Column(
            f"f1 {model}",
            f"F1, {model}",
            paper={method: f"{f1:.2f}" for method, f1 in printed.items()},
        )
        for model, printed in PAPER.items()
    ]


def side_by_side(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row for each method and fold, with the F1 of both models."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        key = (row["method"], row["fold"])
        blank = {"method": row["method"], "fold": row["fold"]} | {f"f1 {m}": None for m in PAPER}
        found.setdefault(key, blank)[f"f1 {row['model']}"] = row["f1"]
    return list(found.values())


def cost_columns(model: str) -> list[Column]:
    """How trainings went."""
    return [
        Column("f1", "F1"),
        Column("precision", "precision"),
        Column("recall", "recall"),
        Column("converged", "converged, %", digits=0),
        Column("n_iter", "iterations", scale=1.0, digits=0),
        Column("evaluations", "evaluations", scale=1.0, digits=0),
        Column("messages", "messages, millions", scale=1e-6, digits=0),
        Column("processor_seconds", "processor seconds", scale=1.0, digits=1),
        Column("seconds", "seconds", PAPER_TIMES if model == "2-clique" else {}, 1.0, 1),
    ]


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    parts = []
    for model in PAPER:
        chosen = [row for row in rows if row["model"] == model]
        if chosen:
            parts.append(f"{model}\n{terminal_table(chosen, cost_columns(model))}")
    return "\n\n".join(parts)


def headline(rows: Sequence[Row]) -> dict[str, float]:
    """F1 by model and method, and how much faster CF5-bethe is than ML-bp."""
    found = {}
    for model in PAPER:
        chosen = [row for row in rows if row["model"] == model]
        for method, score in means(chosen, Column("f1", "F1")).items():
            found[f"{model} {method} f1"] = score
        for key in ("processor_seconds", "messages"):
            ratios = speed_ups(chosen, key)
            if "CF5-bethe" in ratios:
                name = f"{model} CF5-bethe speed-up in {key.replace('_', ' ')}"
                found[name] = ratios["CF5-bethe"]
    return found


def speed_ups(rows: Sequence[Row], key: str) -> dict[str, float]:
    """How many times less of something a method needs than ML-bp, by means over folds."""
    mean = means(rows, Column(key, key))
    if REFERENCE not in mean:
        return {}
    return {method: mean[REFERENCE] / value for method, value in mean.items() if value > 0.0}


def report(rows: Sequence[Row], tests: Sequence[Row], links: Sequence[Row], corpus: Corpus) -> str:
    """What was done, F1 beside the paper's, costs, significance, how trainings ended."""
    done = WHAT_WAS_DONE.format(
        **vars(corpus),
        two=corpus.n_weights["2-clique"],
        four=corpus.n_weights["4-clique"],
    )
    parts = [
        done.strip(),
        f"## The paper beside ours\n\n{paper_table(side_by_side(rows), columns())}",
        CHOICES.format(chooser=CHOOSER).strip(),
        _links(links),
        "![Token F1 of the methods, ours and the paper's](f1.png)",
        "## Training",
        HOW_TO_READ.strip(),
    ]
    for model in PAPER:
        chosen = [row for row in rows if row["model"] == model]
        if chosen:
            parts.append(f"{model}:\n\n{paper_table(chosen, cost_columns(model))}")
    parts += [
        FASTER.format(paper=PAPER_SECONDS[REFERENCE] / PAPER_SECONDS["CF5-bethe"]).strip(),
        _speed_table(rows),
        "![Training time against F1](time.png)",
        f"## McNemar's test\n\n{_tests(tests)}",
        f"## How training ended\n\n{_endings(rows)}",
    ]
    return "\n\n".join(parts)


def _speed_table(rows: Sequence[Row]) -> str:
    """Speed-ups over ML-bp in seconds and in messages, and time of one evaluation."""
    lines = []
    for model in PAPER:
        chosen = [row for row in rows if row["model"] == model]
        seconds = speed_ups(chosen, "processor_seconds")
        messages = speed_ups(chosen, "messages")
        for method in dict.fromkeys(row["method"] for row in chosen):
            single = [
                1e3 * row["processor_seconds"] / max(row["evaluations"], 1)
                for row in chosen
                if row["method"] == method
            ]
            per_evaluation = [
                1e-6 * row["messages"] / max(row["evaluations"], 1)
                for row in chosen
                if row["method"] == method
            ]
            lines.append(
                (
                    model,
                    method,
                    fold_cell(single, digits=0),
                    fold_cell(per_evaluation, digits=2),
                    f"{seconds[method]:.1f}" if method in seconds else "-",
                    f"{messages[method]:.1f}" if method in messages else "-",
                )
            )
    header = (
        "model", "method", "ms / evaluation", "million messages / evaluation",
        "speed-up, processor seconds", "speed-up, messages",
    )  # fmt: skip
    return markdown_table(header, lines)


def _links(links: Sequence[Row]) -> str:
    """Token F1 of the rules for links on held-out training mails; the chosen one is marked."""
    rules = list(dict.fromkeys(row["max_links"] for row in links))
    lines = [
        [
            fold,
            *(
                f"{100.0 * row['f1']:.1f}{' (chosen)' if row['chosen'] else ''}"
                for row in links
                if row["fold"] == fold
            ),
        ]
        for fold in dict.fromkeys(row["fold"] for row in links)
    ]
    names = ["next occurrence" if rule == 2 else f"pairs of up to {rule}" for rule in rules]
    return markdown_table(("fold", *names), lines)


def _tests(tests: Sequence[Row]) -> str:
    """A table of p-values for each model: rows and columns are methods."""
    parts = [
        "p-values (exact binomial, two-sided) that two methods have equal error rates, on the "
        "decisions about all test tokens together. Tokens of a mail depend on each other, so "
        "small values are a little too small."
    ]
    for model in dict.fromkeys(row["model"] for row in tests):
        chosen = {(row["first"], row["second"]): row for row in tests if row["model"] == model}
        methods = list(dict.fromkeys(name for pair in chosen for name in pair))
        lines = [
            [first, *(_p_value(chosen.get((first, second))) for second in methods[1:])]
            for first in methods[:-1]
        ]
        parts.append(f"{model}:\n\n{markdown_table(('', *methods[1:]), lines)}")
    return "\n\n".join(parts)


def _p_value(row: Row | None) -> str:
    if row is None:
        return ""
    p = float(row["p_value"])
    return "< 0.001" if p < 1e-3 else f"{p:.3f}"


def _endings(rows: Sequence[Row]) -> str:
    lines = [(row["model"], row["method"], row["fold"], row["status"]) for row in rows]
    return markdown_table(("model", "method", "fold", "status"), lines)
