"""Table 1 of Ganapathi et al. (2008): names in the CoNLL-2003 articles, by skip-chains.

One graph for each article: a chain along each sentence, and an edge between any two tokens with the
same capitalised word.  All methods learn the same model from the same features.  The penalty of
each is chosen among the same few, by micro-F1 on testa of models that were learned from a part of
the training articles; the number of rounds of CCCP is chosen on testa along the training on all of
them.  Then testb is looked at, once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.ganapathi2008.methods import METHODS
from experiments.ganapathi2008.ner.data import (
    Document,
    Example,
    entity_scores,
    examples,
    model_labels,
    read_documents,
)
from experiments.ganapathi2008.ner.report import (
    Choices,
    Corpus,
    headline,
    micro_bars,
    report,
    table,
)
from experiments.ganapathi2008.ner.rounds import ENDLESS, ROUNDS, Candidate, candidates
from fieldfit import LBFGS, ConvergenceWarning, SkipChainCRF
from fieldfit.features.text import TextFeatures, drop_rare
from fieldfit.learners import Learner
from fieldfit.objectives import Objective


@dataclass(frozen=True)
class Design:
    """Size of the experiment, and what the model sees.

    ``n_train`` and ``n_test`` are numbers of articles (``None``: all).  ``min_count`` drops
    features that fewer training tokens have, as the paper does; ``max_links`` is the largest number
    of equal words that are linked pair by pair.  A descent ends when the objective falls by less
    than ``value_tol`` of itself in five iterations: far more than F1 can show.  One of the
    ``penalties`` is chosen with every ``choice_step``-th training article; the paper's prior has
    variance 10, which is a penalty of 0.1.  CCCP has at most ``max_rounds`` rounds.
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
    penalties: tuple[float, ...] = (0.1, 0.3, 1.0)
    choice_step: int = 4
    max_rounds: int = 3


FULL = Design()
QUICK = Design(n_train=60, n_test=40, max_iter=60, choice_step=2)

#: Tasks that try a penalty.
CHOICE = "choice"


class Names(Plan[Design]):
    """A task tries one penalty for one method, or learns with the chosen one and is tested."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``("choice", method, l2)``, then ``(method,)``."""
        design = self.design
        return [
            *((CHOICE, method, l2) for method in design.methods for l2 in design.penalties),
            *((method,) for method in design.methods),
        ]

    def run_task(self, task: Task, results: Results) -> Result:
        """Train one method."""
        if task[0] == CHOICE:
            return self._try_penalty(str(task[1]), float(task[2]))
        method = str(task[0])
        return self._test(method, self._penalty(method, results))

    def outcome(self, results: Results) -> Outcome:
        rows, design = results.rows(), self.design
        n_weights = int(results[(design.methods[-1],)].facts["n_weights"])
        corpus = Corpus.of(self.documents, self.training_set, n_weights)
        tried, rounds = results.table(CHOICE), results.table("rounds")
        n_choice = len(self.training_set[:: design.choice_step])
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(
                rows, corpus, design.min_count, design.max_links, Choices(tried, rounds, n_choice)
            ),
            tables={CHOICE: tried, "rounds": rounds},
            figures={"micro-f1": micro_bars(rows)},
            headline=headline(rows),
        )

    def _try_penalty(self, method: str, l2: float) -> Result:
        """Micro-F1 on testa after a part of the training articles; of rounds, that of the best."""
        step = self.design.choice_step
        found = self._candidates(method, l2, step)
        scores = [self._scores("testa", candidate)["micro_f1"] for candidate in found]
        best = int(np.argmax(np.array(scores, dtype=float)))
        row = {
            "method": method,
            "l2": l2,
            "rounds": found[best].rounds,
            "testa_micro_f1": scores[best],
            "seconds": found[-1].training.seconds,
        }
        return Result(tables={CHOICE: [row]})

    def _penalty(self, method: str, results: Results) -> float:
        """The best on testa; ties go to the smaller one."""
        return max(
            self.design.penalties,
            key=lambda l2: results[CHOICE, method, l2].tables[CHOICE][0]["testa_micro_f1"],
        )

    def _test(self, method: str, l2: float) -> Result:
        """Learn from all training articles; testb sees the rounds that testa has chosen."""
        found = self._candidates(method, l2, 1)
        on_testa = [self._scores("testa", candidate) for candidate in found]
        best = int(np.argmax(np.array([scores["micro_f1"] for scores in on_testa], dtype=float)))
        chosen = found[best]
        row: dict[str, Any] = {
            "method": method,
            "fold": 0,
            "l2": l2,
            **chosen.training.columns(),
            **self._scores("testb", chosen),
            **{f"testa_{name}": score for name, score in on_testa[best].items()},
            "status": chosen.training.status,
        }
        rounds = [
            {
                "method": method,
                "rounds": candidate.rounds,
                "testa_micro_f1": scores["micro_f1"],
                "chosen": candidate is chosen,
            }
            for candidate, scores in zip(found, on_testa, strict=True)
            if method in ROUNDS
        ]
        facts = {"n_weights": len(chosen.weights)}
        return Result([row], tables={"rounds": rounds}, facts=facts)

    def _candidates(self, method: str, l2: float, step: int) -> list[Candidate]:
        """Trainings on every ``step``-th article."""
        design = self.design
        return candidates(
            lambda objective, learner: self._make(objective, l2, learner),
            method,
            self.training_set[::step],
            model_labels(self.documents["train"])[::step],
            design.max_rounds,
            self._descent,
        )

    def _scores(self, part: str, candidate: Candidate) -> dict[str, float | None]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # last beliefs are what counts
            predicted = candidate.estimator().predict(self.examples[part])
        return entity_scores(self.documents[part], predicted)

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

    @property
    def _descent(self) -> LBFGS:
        design = self.design
        return LBFGS(
            max_iter=design.max_iter,
            tol=design.tol,
            value_tol=design.value_tol,
            patience=ENDLESS,
        )

    def _make(self, objective: Objective, l2: float, learner: Learner | None) -> SkipChainCRF:
        return SkipChainCRF(
            objective,
            l2=l2,
            learner=learner or self._descent,
            all_possible_transitions=True,
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        )
