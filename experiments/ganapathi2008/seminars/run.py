"""Table 2 of Ganapathi et al. (2008): fields of seminar announcements, by skip-chains.

Four fields (start and end time, location, speaker) are extracted from mails; one graph for each
mail, a chain with edges between equal capitalised words, as in Sutton and McCallum, "Collective
segmentation and labeling of distant entities in information extraction" (2004).  All methods learn
the same model from the same features; the prior has variance 10, so ``l2 = 0.1``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fieldfit.errors import InvalidInputError
from fieldfit.estimators.chain import ChainCRF
from fieldfit.estimators.skip_chain import SkipChainCRF
from fieldfit.features.text import repeated_capitalised
from experiments.seminars_reader import FIELDS, read_seminars
from fieldfit.objective._base import Objective
from experiments.base import Outcome, Settings
from experiments.ganapathi2008.methods import METHODS, TITLES, Training, train
from experiments.seminar_features import mail_features
from experiments.ganapathi2008.seminars.report import Corpus, headline, micro_bars, report, table
from experiments.ganapathi2008.seminars.scores import field_scores
from experiments.seminar_mails import FILE, mail_folds, split_mails, without_links

__all__ = ["FULL", "QUICK", "Design", "mail_folds", "run", "run_design"]

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


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce camel-seminars``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """All methods on all folds."""
    if settings.data is None:
        raise InvalidInputError("--data must name the folder of the data sets for camel-seminars")
    mails = read_seminars(settings.data / FILE)
    folds = mail_folds(len(mails), design, settings.seed)
    mails = [mails[index] for index in np.concatenate(folds)]
    links = [repeated_capitalised(mail.tokens, max_links=design.max_links) for mail in mails]
    examples = list(zip(map(mail_features, mails), links, strict=True))
    labels = [list(mail.labels) for mail in mails]

    rows: list[dict[str, Any]] = []
    chain_rows: list[dict[str, Any]] = []
    n_weights: list[int] = []
    total = design.n_runs * len(design.methods)
    make = _maker(design, settings)
    ends = np.cumsum([len(fold) for fold in folds]).tolist()
    for number in range(design.n_runs):
        fold = slice(ends[number] - len(folds[number]), ends[number])
        split = split_mails(examples, labels, fold, design.min_count)
        for method in design.methods:
            settings.progress(len(rows), total, f"fold {number + 1}, {TITLES[method]}")
            found = train(make, method, split.training, split.training_labels)
            n_weights.append(len(found.estimator.weights_))
            scores = field_scores(split.test_labels, found.estimator.predict(split.test))
            rows.append(_row(method, number, found, scores))
        chain = _chain(design, settings).fit(without_links(split.training), split.training_labels)
        scores = field_scores(split.test_labels, chain.predict(without_links(split.test)))
        chain_rows.append({"method": CHAIN, "fold": number, **scores})
    settings.progress(total, total, "done")

    spans = Counter(span.field for mail in mails for span in mail.spans)
    corpus = Corpus(
        n_mails=len(mails),
        n_tokens=sum(len(mail.tokens) for mail in mails),
        spans={name: spans[name] for name in FIELDS},
        n_links=sum(map(len, links)),
        # two digits: it differs between folds
        n_weights=round(int(np.mean(n_weights)), -4),
        folds=_describe_folds(design),
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


def _maker(design: Design, settings: Settings) -> Callable[[Objective], SkipChainCRF]:
    """Builds the estimator for an objective."""

    def make(objective: Objective) -> SkipChainCRF:
        return SkipChainCRF(
            objective,
            l2=0.1,
            max_iter=design.max_iter,
            tol=design.tol,
            # without a weight, a step that training never shows (O to inside) would cost nothing
            all_possible_transitions=True,
            n_jobs=settings.n_jobs,
            random_state=settings.seed,
        )

    return make


def _chain(design: Design, settings: Settings) -> ChainCRF:
    """The same model without skip edges, which can be learned exactly."""
    return ChainCRF(
        l2=0.1,
        max_iter=design.max_iter,
        tol=design.tol,
        all_possible_transitions=True,
        n_jobs=settings.n_jobs,
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


def _describe_folds(design: Design) -> str:
    share = f"{design.n_folds} random parts"
    if design.n_runs == design.n_folds:
        return f"They are split into {share}, each of which is the test set once."
    return f"They are split into {share}, of which {design.n_runs} serves as test set."
