"""Table 2 of Ganapathi et al. (2008): fields of seminar announcements, by skip-chains.

Four fields (start and end time, location, speaker) are extracted from mails; one graph for each
mail, a chain with edges between equal capitalised words, as in Sutton and McCallum, "Collective
segmentation and labeling of distant entities in information extraction" (2004).  All methods learn
the same model from the same features; the prior has variance 10, so ``l2 = 0.1``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.ganapathi2008.methods import METHODS, Training, train
from experiments.ganapathi2008.seminars.report import Corpus, headline, micro_bars, report, table
from experiments.ganapathi2008.seminars.scores import field_scores
from experiments.seminar_features import mail_features
from experiments.seminar_mails import (
    Example,
    Folds,
    Split,
    describe_folds,
    split_mails,
    without_links,
)
from experiments.seminars_reader import FIELDS, SeminarMail
from fieldfit import ChainCRF, SkipChainCRF
from fieldfit.features.text import repeated_capitalised
from fieldfit.objectives import Objective

#: What ``micro_f1`` and ``macro_f1`` count; the other level is in columns of its own.
LEVEL = "entity"
#: What the model without skip edges is called; it is no method of the paper.
CHAIN = "exact chain"


@dataclass(frozen=True)
class Design:
    """Size of the experiment, and what the model sees.

    ``n_mails`` are taken at random (``None``: all) and split into ``n_folds`` parts, of which
    ``n_runs`` are used for testing in turn.  ``min_count`` drops features that fewer training
    tokens have, as the paper does; ``max_links`` is the largest number of equal words that are
    linked pair by pair.  Two, so each word is linked to its next occurrence: with all pairs a word
    that occurs ten times has nine votes on itself.  On a split of the first fold's training mails
    LBP had an entity F1 of 88.5 with pairs of up to ten, 89.4 with next occurrences, and the chain
    without links 89.5.
    """

    n_mails: int | None = None
    n_folds: int = 4
    n_runs: int = 4
    max_iter: int = 400
    tol: float = 1e-4
    min_count: int = 2
    max_links: int = 2
    methods: tuple[str, ...] = METHODS


FULL = Design()
QUICK = Design(n_mails=100, n_runs=1)


class Fields(Plan[Design]):
    """A task is one method on one fold, or the chain without skip edges."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """Folds and methods."""
        folds = range(self.design.n_runs)
        return [(fold, method) for fold in folds for method in (*self.design.methods, CHAIN)]

    def run_task(self, task: Task, results: Results) -> Result:
        """Train on all folds but one, and test on that."""
        fold, method = int(task[0]), str(task[1])
        split = self.kept("split", fold, lambda: self._split(fold))
        if method == CHAIN:
            chain = self._chain().fit(without_links(split.training), split.training_labels)
            scores = field_scores(split.test_labels, chain.predict(without_links(split.test)))
            return Result(tables={"chain": [{"method": CHAIN, "fold": fold, **scores}]})
        found = train(self._make, method, split.training, split.training_labels)
        scores = field_scores(split.test_labels, found.estimator.predict(split.test))
        facts = {"n_weights": len(found.estimator.weights_)}
        return Result([_row(method, fold, found, scores)], facts=facts)

    def outcome(self, results: Results) -> Outcome:
        design, rows, chain_rows = self.design, results.rows(), results.table("chain")
        spans = Counter(span.field for mail in self.mails for span in mail.spans)
        counts = [results[task].facts["n_weights"] for task in self.tasks() if task[1] != CHAIN]
        corpus = Corpus(
            n_mails=len(self.mails),
            n_tokens=sum(len(mail.tokens) for mail in self.mails),
            spans={name: spans[name] for name in FIELDS},
            n_links=sum(len(links) for _, links in self.examples),
            # two digits: it differs between folds
            n_weights=round(int(np.mean(counts)), -4),
            folds=describe_folds(design),
            max_links=design.max_links,
            min_count=design.min_count,
        )
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, chain_rows, corpus, LEVEL),
            tables={"chain": chain_rows},
            figures={"micro-f1": micro_bars(rows, LEVEL)},
            headline=headline(rows),
        )

    @cached_property
    def folds(self) -> Folds:
        """Which mails are in which fold."""
        return Folds.read(self.settings.data_folder, self.design, self.settings.seed)

    @property
    def mails(self) -> list[SeminarMail]:
        """All mails, fold by fold."""
        return self.folds.mails

    @cached_property
    def examples(self) -> list[Example]:
        """Features and links of all mails."""
        max_links = self.design.max_links
        links = [repeated_capitalised(mail.tokens, max_links=max_links) for mail in self.mails]
        return list(zip(map(mail_features, self.mails), links, strict=True))

    def _split(self, fold: int) -> Split:
        labels = [list(mail.labels) for mail in self.mails]
        return split_mails(self.examples, labels, self.folds.of(fold), self.design.min_count)

    def _make(self, objective: Objective) -> SkipChainCRF:
        return SkipChainCRF(
            objective,
            l2=0.1,
            max_iter=self.design.max_iter,
            tol=self.design.tol,
            # without a weight, a step that training never shows (O to inside) would cost nothing
            all_possible_transitions=True,
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        )

    def _chain(self) -> ChainCRF:
        """The same model without skip edges, which can be learned exactly."""
        return ChainCRF(
            l2=0.1,
            max_iter=self.design.max_iter,
            tol=self.design.tol,
            all_possible_transitions=True,
            n_jobs=self.settings.n_jobs,
        )


def _row(method: str, fold: int, found: Training, scores: dict[str, float]) -> dict[str, Any]:
    """A row of ``results.csv``."""
    return {
        "method": method,
        "fold": fold,
        **found.columns(),
        "micro_f1": scores[f"{LEVEL}_micro_f1"],
        "macro_f1": scores[f"{LEVEL}_macro_f1"],
        **scores,
        "status": found.status,
    }
