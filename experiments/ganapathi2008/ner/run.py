"""Table 1 of Ganapathi et al. (2008): names in the CoNLL-2003 articles, by skip-chains.

One graph for each article: a chain along each sentence, and an edge between any two tokens with the
same capitalised word.  All methods learn the same model from the same features; the prior has
variance 10, so ``l2 = 0.1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.ganapathi2008.methods import METHODS, train
from experiments.ganapathi2008.ner.data import (
    Document,
    Example,
    entity_scores,
    examples,
    model_labels,
    read_documents,
)
from experiments.ganapathi2008.ner.report import Corpus, headline, micro_bars, report, table
from fieldfit import LBFGS, SkipChainCRF
from fieldfit.features.text import TextFeatures, drop_rare
from fieldfit.objectives import Objective


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


class Names(Plan[Design]):
    """A task is one method: learned from the training set, tested on both test sets."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """The methods."""
        return [(method,) for method in self.design.methods]

    def run_task(self, task: Task, results: Results) -> Result:
        """Train one method."""
        method = str(task[0])
        trained = train(
            self._make, method, self.training_set, model_labels(self.documents["train"])
        )
        row: dict[str, Any] = {"method": method, "fold": 0, **trained.columns()}
        for part, prefix in (("testb", ""), ("testa", "testa_")):
            predicted = trained.estimator.predict(self.examples[part])
            scores = entity_scores(self.documents[part], predicted)
            row.update({prefix + name: score for name, score in scores.items()})
        facts = {"n_weights": len(trained.estimator.weights_)}
        return Result([{**row, "status": trained.status}], facts=facts)

    def outcome(self, results: Results) -> Outcome:
        rows, design = results.rows(), self.design
        n_weights = int(results[(design.methods[-1],)].facts["n_weights"])
        corpus = Corpus.of(self.documents, self.training_set, n_weights)
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, corpus, design.min_count, design.max_links),
            figures={"micro-f1": micro_bars(rows)},
            headline=headline(rows),
        )

    @cached_property
    def documents(self) -> dict[str, list[Document]]:
        """Articles of the three parts of the shared task."""
        design = self.design
        sizes = {"train": design.n_train, "testa": design.n_test, "testb": design.n_test}
        folder = self.settings.data_folder
        return {part: read_documents(folder, part)[:size] for part, size in sizes.items()}

    @cached_property
    def examples(self) -> dict[str, list[Example]]:
        """Features and links of all articles."""
        return {
            part: examples(articles, self.design.features, self.design.max_links)
            for part, articles in self.documents.items()
        }

    @cached_property
    def training_set(self) -> list[Example]:
        """Training articles without rare features."""
        given = self.examples["train"]
        kept = drop_rare([x[0] for x in given], self.design.min_count)
        return [(tokens, *x[1:]) for tokens, x in zip(kept, given, strict=True)]

    def _make(self, objective: Objective) -> SkipChainCRF:
        design = self.design
        return SkipChainCRF(
            objective,
            l2=0.1,
            learner=LBFGS(max_iter=design.max_iter, tol=design.tol, value_tol=design.value_tol),
            all_possible_transitions=True,
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        )
