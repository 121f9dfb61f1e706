"""The report of ``camel-seminars``: the paper's table 2 beside ours, fields, what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.base import Figure, Row
from experiments.ganapathi2008.methods import TITLES
from experiments.ganapathi2008.report import HOW_TO_READ, printed, training_columns
from experiments.seminars_reader import FIELDS
from experiments.tables import Column, bar_chart, markdown_table, means, paper_table, terminal_table

#: Table 2 of the paper.  (It counts no outer loop where there is no relinearisation; we count one.)
OUTER_LOOPS = printed("0", "0", "0", "2", "1")
MACRO_PAPER = printed("88.5 (1.0)", "88.5 (1.0)", "89.6 (1.1)", "88.7 (1.1)", "88.7 (1.1)")
MICRO_PAPER = printed("88.5 (.9)", "88.5 (.9)", "89.6 (1.0)", "88.6 (1.0)", "88.7 (1.0)")
MICRO = Column("micro_f1", "micro-F1", paper=MICRO_PAPER)
MACRO = Column("macro_f1", "macro-F1", paper=MACRO_PAPER)
#: Token F1 by Sutton and McCallum (2004), whose model this is: chain, and skip-chain.
SUTTON = {
    "linear chain": {"stime": 97.5, "etime": 97.5, "location": 88.3, "speaker": 77.3},
    "skip-chain": {"stime": 96.7, "etime": 97.2, "location": 88.1, "speaker": 80.4},
}

WHAT_WAS_DONE = """
## What was done

The {n_mails} seminar announcements of Freitag (1998), {n_tokens:,} tokens with {n_spans:,} tagged
fields ({spans}), every one of which is kept: a tagged field covers the tokens that it shares a
character with. {folds} One graph for each mail: a chain along its tokens, and {n_links:,} edges
between tokens with the same capitalised word, {links}. Labels are begin and inside of the four
fields, and none.

Features are those of `fieldfit.features.text` (words, shapes, affixes, neighbours, conjunctions)
and some that know announcements: kinds of words (clock, room, title), headers such as `Time:` and
`Who:` and the layout of lines, times that equal those of the header, the run of capitalised words
that a token belongs to. The tags of sentences and paragraphs are not used, nor any list of names.
Features of fewer than {min_count} training tokens are dropped; about {n_weights:,} weights remain,
with a Gaussian prior of variance 10 (`l2 = 0.1`).
"""

CHOICES = """
Features and links were chosen by scores on splits of the training mails of the first fold (seed 0).
These are test mails of the other folds, so the first fold alone is the fairer figure; its micro-F1
is {first}.
"""

SCORES = """
The paper does not say what its F1 counts. `micro_f1` and `macro_f1` count **{level}**: {meaning}.
The other level is below and in the columns `{other}_...`; Sutton and McCallum (2004), whose model
this is, count tokens.
"""
CHAIN_NOTE = """
The exact chain is the same model without skip edges, learned by exact likelihood.
"""
MEANINGS = {
    "entity": "a field is right if its first token, its last token and its name are",
    "token": "a token is right if it has the right field, whether the field begins there or not",
}
PLURALS = {"entity": "entities (whole fields)", "token": "tokens"}


@dataclass(frozen=True)
class Corpus:
    """Sizes that a report tells."""

    n_mails: int
    n_tokens: int
    spans: dict[str, int]
    n_links: int
    n_weights: int
    folds: str
    max_links: int
    min_count: int


def columns() -> list[Column]:
    """Those of the paper's table, and times."""
    return [*training_columns(OUTER_LOOPS), MACRO, MICRO]


def level_columns(level: str) -> list[Column]:
    """All scores of one level."""
    fields = [Column(f"{level}_f1_{name}", name) for name in FIELDS]
    return [
        *fields,
        Column(f"{level}_macro_f1", "macro-F1"),
        Column(f"{level}_micro_f1", "micro-F1"),
    ]


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    parts = [terminal_table(rows, columns(), TITLES)]
    for level in PLURALS:
        parts.append(f"{PLURALS[level]}\n{terminal_table(rows, level_columns(level), TITLES)}")
    return "\n\n".join(parts)


def headline(rows: Sequence[Row]) -> dict[str, float]:
    """Micro-F1 by method, means over folds."""
    return {f"{method} micro_f1": score for method, score in means(rows, MICRO).items()}


def micro_bars(rows: Sequence[Row], level: str) -> Figure:
    """Our micro-F1 beside the paper's."""
    return bar_chart(
        rows, MICRO, f"Seminar announcements: micro-F1 of {PLURALS[level]}, percent", TITLES
    )


def report(rows: Sequence[Row], chain_rows: Sequence[Row], corpus: Corpus, level: str) -> str:
    """What was done, the paper's table beside ours, both levels by field, how trainings ended.

    ``chain_rows`` are scores of the model without skip edges.
    """
    (other,) = set(PLURALS) - {level}
    both = [*rows, *chain_rows]
    done = WHAT_WAS_DONE.format(
        **vars(corpus)
        | {
            "n_spans": sum(corpus.spans.values()),
            "spans": ", ".join(f"{name} {count}" for name, count in corpus.spans.items()),
            "links": _describe_links(corpus.max_links),
        }
    )
    scores = SCORES.format(level=PLURALS[level], meaning=MEANINGS[level], other=other)
    parts = [
        done.strip(),
        f"## The paper beside ours\n\n{paper_table(rows, columns(), TITLES)}",
        scores.strip(),
        CHOICES.format(first=_first_fold(rows)).strip(),
        HOW_TO_READ.strip(),
        "![Micro-F1 of the five methods](micro-f1.png)",
        f"## Entities by field\n\n{paper_table(both, level_columns('entity'), TITLES)}",
        f"## Tokens by field\n\n{paper_table(both, level_columns('token'), TITLES)}",
        CHAIN_NOTE.strip(),
        f"Sutton and McCallum (2004), tokens, half of the mails for training:\n\n{_sutton()}",
        f"## How training ended\n\n{_endings(rows)}",
    ]
    return "\n\n".join(parts)


def _describe_links(max_links: int) -> str:
    if max_links == 2:
        return "each occurrence to the next (Sutton and McCallum link all pairs)"
    return f"all pairs of up to {max_links} occurrences, of more each to the next"


def _first_fold(rows: Sequence[Row]) -> str:
    first = {row["method"]: row["micro_f1"] for row in rows if row["fold"] == 0}
    return ", ".join(f"{100.0 * score:.1f} ({TITLES[method]})" for method, score in first.items())


def _sutton() -> str:
    lines = [
        (model, *(f"{scores[name]:.1f}" for name in FIELDS), f"{sum(scores.values()) / 4:.1f}")
        for model, scores in SUTTON.items()
    ]
    return markdown_table(("model", *FIELDS, "macro-F1"), lines)


def _endings(rows: Sequence[Row]) -> str:
    lines = [
        (TITLES[row["method"]], row["fold"], row["inner_by_loop"], row["status"]) for row in rows
    ]
    return markdown_table(("method", "fold", "inner iterations by loop", "status"), lines)
