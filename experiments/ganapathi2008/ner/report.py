"""The report of ``camel-ner``: the paper's table 1 beside ours, and what the model was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.base import Figure, Row
from experiments.ganapathi2008.methods import TITLES
from experiments.ganapathi2008.ner.data import Document, Example
from experiments.ganapathi2008.report import HOW_TO_READ, printed, training_columns
from experiments.tables import (
    Column,
    bar_chart,
    distinct,
    markdown_table,
    means,
    paper_table,
    terminal_table,
)

#: Table 1 of the paper.
MICRO = Column("micro_f1", "micro-F1", paper=printed("85.2", "85.5", "86.2", "86.1", "85.9"))
MACRO = Column("macro_f1", "macro-F1", paper=printed("83.7", "83.9", "84.6", "84.6", "84.5"))
OUTER_LOOPS = printed("1", "1", "3", "2", "2")
INNER_LOOPS = printed("82", "20", "97, 20, 12", "250, 41", "150, 40")
SECONDS = printed("7348", "9348", "13871", "40000", "24833")
FURTHER = (
    Column("token_micro_f1", "tokens, micro-F1"),
    Column("token_macro_f1", "tokens, macro-F1"),
    Column("f1_loc", "LOC"),
    Column("f1_misc", "MISC"),
    Column("f1_org", "ORG"),
    Column("f1_per", "PER"),
    Column("testa_micro_f1", "testa, micro-F1"),
    Column("testa_macro_f1", "testa, macro-F1"),
)

WHAT_WAS_DONE = """
## What was done

The articles of the CoNLL-2003 shared task (English): {n_train:,} to learn from ({n_tokens:,}
tokens in {n_sentences:,} sentences), testa with {n_testa} articles to choose by, and testb with
{n_testb} to test on. One graph for each article: a chain along each sentence ({n_chain:,} edges)
and edges between equal capitalised words of the article ({n_skip:,}; groups of more than
{max_links} are linked each to the next). Labels are begin and inside of the four types of entities,
and none. Features are those of `fieldfit.features.text`: words, case, shape, prefixes and suffixes,
parts of speech, neighbours, conjunctions, and what the rest of the article says about a word. No
lists of names and no other texts are used. Features of fewer than {min_count} training tokens are
dropped; {n_weights:,} weights remain.
"""

CHOSEN = """
## What was chosen on testa

The same for all methods: the penalty (the paper's prior has variance 10, `l2 = 0.1`), by entity
micro-F1 on testa of models that were learned from {n_choice} of the training articles, every
{step}th; then one training on all of them. Rounds of CCCP are scored on testa as they end, and the
best number of them is taken. Testb was looked at once, with what had been chosen.
"""

SCORES = """
F1 of whole entities, by the rules of the shared task (a prediction counts if both ends and the type
are right), on testb; tokens beside it, because the paper does not say which of them it counts.
"""


@dataclass(frozen=True)
class Corpus:
    """Sizes that a report tells."""

    n_train: int
    n_testa: int
    n_testb: int
    n_sentences: int
    n_tokens: int
    n_skip: int
    n_weights: int

    @classmethod
    def of(
        cls, documents: Mapping[str, Sequence[Document]], train: Sequence[Example], n_weights: int
    ) -> Corpus:
        """Count what was learned from."""
        return cls(
            n_train=len(documents["train"]),
            n_testa=len(documents["testa"]),
            n_testb=len(documents["testb"]),
            n_sentences=sum(len(document.words) for document in documents["train"]),
            n_tokens=sum(document.n_tokens for document in documents["train"]),
            n_skip=sum(len(links) for _, links, _ in train),
            n_weights=n_weights,
        )


@dataclass(frozen=True)
class Choices:
    """What was tried on testa: rows of penalties and of rounds, and how many articles were used."""

    penalties: Sequence[Row]
    rounds: Sequence[Row]
    n_articles: int

    def text(self, rows: Sequence[Row], n_train: int) -> str:
        """Tables of both, the chosen ones marked."""
        taken = {row["method"]: row["l2"] for row in rows}
        grid = distinct(self.penalties, "l2")
        lines = [
            [
                TITLES[method],
                *(
                    f"{100.0 * row['testa_micro_f1']:.1f}"
                    + (" (chosen)" if row["l2"] == taken[method] else "")
                    for row in self.penalties
                    if row["method"] == method
                ),
            ]
            for method in distinct(self.penalties, "method")
        ]
        said = CHOSEN.format(n_choice=self.n_articles, step=round(n_train / self.n_articles))
        parts = [said.strip(), markdown_table(("method", *(f"l2 = {l2:g}" for l2 in grid)), lines)]
        if self.rounds:
            numbers = sorted(distinct(self.rounds, "rounds"))
            lines = [
                [
                    TITLES[method],
                    *(
                        f"{100.0 * row['testa_micro_f1']:.2f}"
                        + (" (chosen)" if row["chosen"] else "")
                        for row in self.rounds
                        if row["method"] == method
                    ),
                ]
                for method in distinct(self.rounds, "method")
            ]
            header = ("method", *(f"{n} round{'s' * (n > 1)}" for n in numbers))
            lines = [line + ["-"] * (len(header) - len(line)) for line in lines]
            parts.append(f"Rounds, all training articles:\n\n{markdown_table(header, lines)}")
        return "\n\n".join(parts)


def columns() -> list[Column]:
    """Those of the paper's table."""
    penalty = Column("l2", "l2", scale=1.0)
    return [penalty, *training_columns(OUTER_LOOPS, INNER_LOOPS, SECONDS), MACRO, MICRO]


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    return terminal_table(rows, [*columns(), *FURTHER], TITLES)


def headline(rows: Sequence[Row]) -> dict[str, float]:
    """Micro-F1 on testb by method."""
    return {f"{method} micro_f1": score for method, score in means(rows, MICRO).items()}


def micro_bars(rows: Sequence[Row]) -> Figure:
    """Our micro-F1 beside the paper's."""
    return bar_chart(
        rows, MICRO, "Names in CoNLL-2003 (testb): micro-F1 of entities, percent", TITLES
    )


def report(
    rows: Sequence[Row], corpus: Corpus, min_count: int, max_links: int, choices: Choices
) -> str:
    """What was done, the paper's table beside ours, further scores, how each training ended."""
    sizes = WHAT_WAS_DONE.format(
        **vars(corpus),
        n_chain=corpus.n_tokens - corpus.n_sentences,
        min_count=min_count,
        max_links=max_links,
    )
    endings = [(TITLES[row["method"]], row["inner_by_loop"], row["status"]) for row in rows]
    parts = [
        sizes.strip(),
        choices.text(rows, corpus.n_train),
        f"## The paper beside ours\n\n{paper_table(rows, columns(), TITLES)}",
        SCORES.strip(),
        HOW_TO_READ.strip(),
        "![Micro-F1 of the five methods](micro-f1.png)",
        f"## Further scores\n\n{paper_table(rows, FURTHER, TITLES)}",
        "By type: entities of testb.",
        "## How training ended\n\n"
        + markdown_table(("method", "inner iterations by loop", "status"), endings),
    ]
    return "\n\n".join(parts)
