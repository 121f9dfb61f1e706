"""Table 1 of Ganapathi et al. (2008): names in the CoNLL-2003 articles, by skip-chains.

One graph for each article: a chain along each sentence, and an edge between any two tokens with the
same capitalised word.  All methods learn the same model from the same features; the prior has
variance 10, so ``l2 = 0.1``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fieldfit.errors import InvalidInputError
from fieldfit.estimators.skip_chain import SkipChainCRF
from fieldfit.features.text import TextFeatures, drop_rare
from fieldfit.learner.lbfgs import LBFGS
from fieldfit.objective._base import Objective
from experiments.base import Outcome, Settings
from experiments.ganapathi2008.methods import METHODS, TITLES, train
from experiments.ganapathi2008.ner.data import (
    entity_scores,
    examples,
    model_labels,
    read_documents,
)
from experiments.ganapathi2008.ner.report import Corpus, headline, micro_bars, report, table

__all__ = ["FULL", "QUICK", "Design", "run", "run_design"]


@dataclass(frozen=True)
class Design:
    """Size of the experiment, and what the model sees.

    ``n_train`` and ``n_test`` are numbers of articles (``None``: all).  ``min_count`` drops
    features that fewer training tokens have, as the paper does; ``max_links`` is the largest number
    of equal words that are linked pair by pair.  A descent ends when the objective falls by less
    than ``value_tol`` of itself in five iterations: far more than F1 can show.
    """

    n_train: int | None = None
    n_test: int | None = None
    max_iter: int = 250
    tol: float = 1e-3
    value_tol: float = 1e-4
    min_count: int = 2
    max_links: int = 10
    features: TextFeatures = field(default_factory=TextFeatures)
    methods: tuple[str, ...] = METHODS


FULL = Design()
QUICK = Design(n_train=60, n_test=40, max_iter=60)


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce camel-ner``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """All methods on one training set; scores on both test sets of the shared task."""
    if settings.data is None:
        raise InvalidInputError("--data must name the folder of the data sets for camel-ner")
    documents = {
        part: read_documents(settings.data, part)[: design.n_train if part == "train" else n_test]
        for part, n_test in (("train", None), ("testa", design.n_test), ("testb", design.n_test))
    }
    given = {
        part: examples(articles, design.features, design.max_links)
        for part, articles in documents.items()
    }
    kept = drop_rare([x[0] for x in given["train"]], design.min_count)
    training_set = [(tokens, *x[1:]) for tokens, x in zip(kept, given["train"], strict=True)]
    labels = model_labels(documents["train"])

    def make(objective: Objective) -> SkipChainCRF:
        return SkipChainCRF(
            objective,
            l2=0.1,
            learner=LBFGS(max_iter=design.max_iter, tol=design.tol, value_tol=design.value_tol),
            all_possible_transitions=True,
            n_jobs=settings.n_jobs,
            random_state=settings.seed,
        )

    rows: list[dict[str, Any]] = []
    n_weights = 0
    for number, method in enumerate(design.methods):
        settings.progress(number, len(design.methods), TITLES[method])
        training = train(make, method, training_set, labels)
        n_weights = len(training.estimator.weights_)
        row: dict[str, Any] = {"method": method, "fold": 0, **training.columns()}
        for part, prefix in (("testb", ""), ("testa", "testa_")):
            predicted = training.estimator.predict(given[part])
            scores = entity_scores(documents[part], predicted)
            row.update({prefix + name: score for name, score in scores.items()})
        rows.append({**row, "status": training.status})
    settings.progress(len(design.methods), len(design.methods), "done")
    corpus = Corpus.of(documents, training_set, n_weights)
    return Outcome(
        rows=rows,
        table=table(rows),
        report=report(rows, corpus, design.min_count, design.max_links),
        figures={"micro-f1": micro_bars(rows)},
        headline=headline(rows),
    )
