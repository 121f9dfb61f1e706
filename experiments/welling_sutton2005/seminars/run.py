"""Table 1 of Welling and Sutton (2005): which tokens of seminar announcements name a speaker.

Skip-chains with two labels: a chain along the tokens of a mail, and edges between equal capitalised
words.  In the *2-clique* model tables are constants, in the *4-clique* model they depend on the
features of the tokens.  Seven ways to learn them are compared by token F1 and by what training
costs; the prior has variance 10, so ``l2 = 0.1``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.mcnemar import mcnemar
from experiments.seminar_features import mail_features
from experiments.seminar_mails import (
    Example,
    Folds,
    Split,
    describe_folds,
    in_matrices,
    split_mails,
)
from experiments.seminars_reader import SeminarMail
from experiments.welling_sutton2005.seminars.figures import f1_bars, time_points
from experiments.welling_sutton2005.seminars.methods import (
    METHODS,
    Decisions,
    choose_links,
    predict_speakers,
    token_scores,
    train,
)
from experiments.welling_sutton2005.seminars.report import Corpus, headline, report, table
from fieldfit import SkipChainCRF
from fieldfit.features.text import repeated_capitalised
from fieldfit.objectives import Objective

#: The two models, and whether their edges have features.
MODELS = {"2-clique": False, "4-clique": True}


@dataclass(frozen=True)
class Design:
    """Size of the experiment, and what the model sees.

    ``n_mails`` are taken at random (``None``: all) and split into ``n_folds`` parts, of which
    ``n_runs`` are used for testing in turn.  ``min_count`` drops features that fewer training
    tokens have.  ``max_links`` are rules for links, of which every fold chooses on its training
    mails: the largest number of equal words that are linked pair by pair (2: each word is linked
    to its next occurrence, 10: nearly all pairs, as in the paper).  ``warm_start`` lets likelihoods
    begin inference where it ended at the last evaluation; the paper begins afresh.
    """

    n_mails: int | None = None
    n_folds: int = 5
    n_runs: int = 5
    max_iter: int = 150
    tol: float = 1e-4
    min_count: int = 2
    max_links: tuple[int, ...] = (2, 10)
    warm_start: bool = False
    methods: tuple[str, ...] = METHODS


FULL = Design()
QUICK = Design(n_mails=100, n_folds=4, n_runs=1, max_iter=30, tol=1e-3)


#: The task of a fold that chooses which words are linked.
LINKS = "links"


class Speakers(Plan[Design]):
    """A task is one method for one model on one fold; links are chosen for each fold first."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``(fold, "links")`` and ``(fold, model, method)``."""
        found: list[Task] = []
        for fold in range(self.design.n_runs):
            found.append((fold, LINKS))
            found += [(fold, model, method) for model in MODELS for method in self.design.methods]
        return found

    def run_task(self, task: Task, results: Results) -> Result:
        """Train on all folds but one, and test on that."""
        fold = int(task[0])
        if task[1] == LINKS:
            return self._choose_links(fold)
        model, method = str(task[1]), str(task[2])
        rule = int(results[fold, LINKS].facts["rule"])
        split = self.kept("split", fold, lambda: self._split(fold, rule))
        true = np.concatenate(split.test_labels).astype(bool)
        found = train(
            self._maker(model),
            method,
            split.training,
            split.training_labels,
            warm_start=self.design.warm_start,
        )
        guess = predict_speakers(found.estimator, split.test)
        row = {
            "model": model,
            "fold": fold,
            "method": method,
            **token_scores(true, guess),
            **found.columns(),
            "status": str(found.estimator.status_),
        }
        facts = {"n_weights": len(found.estimator.weights_)}
        return Result([row], facts=facts, arrays={"right": guess == true})

    def outcome(self, results: Results) -> Outcome:
        design, labels = self.design, self.labels
        rows = results.rows()
        rows.sort(key=lambda row: list(MODELS).index(row["model"]))  # stable: folds stay in order
        folds = range(design.n_runs)
        right: dict[tuple[str, str], list[Decisions]] = {}
        n_weights: dict[str, list[int]] = {model: [] for model in MODELS}
        for model in MODELS:
            for method in design.methods:
                for fold in folds:
                    found = results[fold, model, method]
                    right.setdefault((model, method), []).append(found.arrays["right"])
                    n_weights[model].append(found.facts["n_weights"])
        tests, links = _compare(right), results.table(LINKS)
        corpus = Corpus(
            n_mails=len(self.folds.mails),
            n_tokens=sum(map(len, labels)),
            n_speaker_tokens=sum(map(sum, labels)),
            n_links=max(int(results[fold, LINKS].facts["n_links"]) for fold in folds),
            # two digits: they differ between folds
            n_weights={model: round(int(np.mean(found)), -4) for model, found in n_weights.items()},
            folds=describe_folds(design),
            min_count=design.min_count,
        )
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, tests, links, corpus),
            tables={"mcnemar": tests, "links": links},
            figures={"f1": f1_bars(rows), "time": time_points(rows)},
            headline=headline(rows),
        )

    def warm_up(self) -> None:
        """One iteration of every method on a few mails."""
        rule, few = self.design.max_links[0], slice(0, 4)
        examples, labels = self.examples[rule][:8], self.labels[:8]
        split = in_matrices(split_mails(examples, labels, few, 1))
        for model in MODELS:
            for method in self.design.methods:
                make = self._maker(model, max_iter=1)
                train(make, method, split.training, split.training_labels)

    @cached_property
    def folds(self) -> Folds:
        """Which mails are in which fold."""
        return Folds.read(self.settings.data_folder, self.design, self.settings.seed)

    @cached_property
    def examples(self) -> dict[int, list[Example]]:
        """Features of all mails, with the links of each rule."""
        return linked_mails(self.folds.mails, self.design.max_links)

    @cached_property
    def labels(self) -> list[list[int]]:
        """Whether tokens are in the name of a speaker."""
        return [
            [int(label.endswith("-speaker")) for label in mail.labels] for mail in self.folds.mails
        ]

    def _choose_links(self, fold: int) -> Result:
        rule, tried = choose_links(
            self._maker("2-clique"),
            self.examples,
            self.labels,
            self.folds.of(fold),
            self.design.min_count,
        )
        rows = [{"fold": fold, **row, "chosen": row["max_links"] == rule} for row in tried]
        n_links = sum(len(pairs) for _, pairs in self.examples[rule])
        return Result(tables={LINKS: rows}, facts={"rule": rule, "n_links": n_links})

    def _split(self, fold: int, rule: int) -> Split:
        examples, test = self.examples[rule], self.folds.of(fold)
        return in_matrices(split_mails(examples, self.labels, test, self.design.min_count))

    def _maker(
        self, model: str, max_iter: int | None = None
    ) -> Callable[[Objective], SkipChainCRF]:
        """Builds the estimator for an objective."""

        def make(objective: Objective) -> SkipChainCRF:
            return SkipChainCRF(
                objective,
                edge_features=MODELS[model],
                l2=0.1,
                max_iter=self.design.max_iter if max_iter is None else max_iter,
                tol=self.design.tol,
                fit_intercept=False,  # features have a constant
                all_possible_transitions=True,
                n_jobs=self.settings.n_jobs,
                random_state=self.settings.seed,
            )

        return make


def linked_mails(mails: Sequence[SeminarMail], rules: Sequence[int]) -> dict[int, list[Example]]:
    """Features of all mails, with the links of each rule."""
    features = [mail_features(mail) for mail in mails]
    return {
        rule: [
            (tokens, repeated_capitalised(mail.tokens, max_links=rule))
            for tokens, mail in zip(features, mails, strict=True)
        ]
        for rule in rules
    }


def _compare(right: dict[tuple[str, str], list[Decisions]]) -> list[dict[str, Any]]:
    """McNemar's test of all pairs of methods of a model, on the tokens of all test folds."""
    found = []
    pooled = {key: np.concatenate(decisions) for key, decisions in right.items()}
    for (model, first), (other, second) in combinations(pooled, 2):
        if model == other:
            test = mcnemar(pooled[model, first], pooled[other, second])
            found.append(
                {
                    "model": model,
                    "first": first,
                    "second": second,
                    "only_first": test.only_first,
                    "only_second": test.only_second,
                    "p_value": test.p_value,
                }
            )
    return found
