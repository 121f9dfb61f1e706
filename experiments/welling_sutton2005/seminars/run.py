"""Table 1 of Welling and Sutton (2005): which tokens of seminar announcements name a speaker.

Skip-chains with two labels: a chain along the tokens of a mail, and edges between equal capitalised
words.  In the *2-clique* model tables are constants, in the *4-clique* model they depend on the
features of the tokens.  Seven ways to learn them are compared by token F1 and by what training
costs; the prior has variance 10, so ``l2 = 0.1``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fieldfit.errors import InvalidInputError
from fieldfit.estimators.skip_chain import SkipChainCRF
from fieldfit.features.text import repeated_capitalised
from experiments.seminars_reader import SeminarMail, read_seminars
from fieldfit.objective._base import Objective
from experiments.base import Outcome, Settings
from experiments.seminar_features import mail_features
from experiments.welling_sutton2005.seminars.figures import f1_bars, time_points
from experiments.welling_sutton2005.seminars.links import choose_links
from experiments.welling_sutton2005.seminars.methods import (
    METHODS,
    Decisions,
    predict_speakers,
    token_scores,
    train,
)
from experiments.welling_sutton2005.seminars.report import Corpus, headline, report, table
from experiments.mcnemar import mcnemar
from experiments.seminar_mails import FILE, Example, in_matrices, mail_folds, split_mails

__all__ = ["FULL", "MODELS", "QUICK", "Design", "linked_mails", "run", "run_design"]

#: The two models, and whether their edges look at the input.
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


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce contrastive-seminars``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """All methods for both models on all folds."""
    if settings.data is None:
        raise InvalidInputError(
            "--data must name the folder of the data sets for contrastive-seminars"
        )
    mails = read_seminars(settings.data / FILE)
    folds = mail_folds(len(mails), design, settings.seed)
    mails = [mails[index] for index in np.concatenate(folds)]
    examples = linked_mails(mails, design.max_links)
    labels = [[int(label.endswith("-speaker")) for label in mail.labels] for mail in mails]

    rows: list[dict[str, Any]] = []
    right: dict[tuple[str, str], list[Decisions]] = {}
    n_weights: dict[str, list[int]] = {model: [] for model in MODELS}
    links: list[dict[str, Any]] = []
    n_links = 0
    total = len(MODELS) * design.n_runs * len(design.methods)
    ends = np.cumsum([len(fold) for fold in folds]).tolist()
    for number in range(design.n_runs):
        fold = slice(ends[number] - len(folds[number]), ends[number])
        settings.progress(len(rows), total, f"fold {number + 1}, which words to link")
        rule, tried = choose_links(
            _maker(design, settings, MODELS["2-clique"]), examples, labels, fold, design.min_count
        )
        links += [{"fold": number, **row, "chosen": row["max_links"] == rule} for row in tried]
        n_links = max(n_links, sum(len(pairs) for _, pairs in examples[rule]))
        split = in_matrices(split_mails(examples[rule], labels, fold, design.min_count))
        true = np.concatenate(split.test_labels).astype(bool)
        for model, edge_features in MODELS.items():
            make = _maker(design, settings, edge_features)
            for method in design.methods:
                settings.progress(len(rows), total, f"fold {number + 1}, {model}, {method}")
                if number == 0:  # compile: what it costs is not the method's
                    short = _maker(_SHORT, settings, edge_features)
                    train(short, method, split.training[:4], split.training_labels[:4])
                found = train(
                    make,
                    method,
                    split.training,
                    split.training_labels,
                    warm_start=design.warm_start,
                )
                guess = predict_speakers(found.estimator, split.test)
                right.setdefault((model, method), []).append(guess == true)
                n_weights[model].append(len(found.estimator.weights_))
                rows.append(
                    {
                        "model": model,
                        "fold": number,
                        "method": method,
                        **token_scores(true, guess),
                        **found.columns(),
                        "status": str(found.estimator.status_),
                    }
                )
    settings.progress(total, total, "done")
    rows.sort(key=lambda row: list(MODELS).index(row["model"]))  # stable: folds stay in order

    tests = _compare(right)
    corpus = Corpus(
        n_mails=len(mails),
        n_tokens=sum(map(len, labels)),
        n_speaker_tokens=sum(map(sum, labels)),
        n_links=n_links,
        # two digits: they differ between folds
        n_weights={model: round(int(np.mean(found)), -4) for model, found in n_weights.items()},
        folds=_describe_folds(design),
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


#: One iteration is enough to compile everything.
_SHORT = Design(max_iter=1)


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


def _maker(
    design: Design, settings: Settings, edge_features: bool
) -> Callable[[Objective], SkipChainCRF]:
    """Builds the estimator for an objective."""

    def make(objective: Objective) -> SkipChainCRF:
        return SkipChainCRF(
            objective,
            edge_features=edge_features,
            l2=0.1,
            max_iter=design.max_iter,
            tol=design.tol,
            fit_intercept=False,  # features have a constant
            all_possible_transitions=True,
            n_jobs=settings.n_jobs,
            random_state=settings.seed,
        )

    return make


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


def _describe_folds(design: Design) -> str:
    share = f"{design.n_folds} random parts"
    if design.n_runs == design.n_folds:
        return f"They are split into {share}, each of which is the test set once."
    return f"They are split into {share}, of which {design.n_runs} serves as test set."
