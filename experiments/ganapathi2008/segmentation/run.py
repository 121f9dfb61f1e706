"""Table 3 of Ganapathi et al. (2008): labels of superpixels in photographs.

One graph for each photograph: a variable for each superpixel, with the log-probabilities of boosted
classifiers for features, and an edge where two superpixels touch, with one symmetric table for all
of them.  Few weights are shared by very many factors, which leaves the beliefs of piecewise
training free to disagree; and loops are tight, which is hard on loopy belief propagation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.estimators.graph import GraphCRF
from fieldfit.learner.lbfgs import LBFGS
from fieldfit.objective._base import Objective
from fieldfit.objective.camel import Camel
from experiments.base import Outcome, Settings
from experiments.ganapathi2008.methods import METHODS, TITLES, train
from experiments.ganapathi2008.segmentation.classifier import (
    Boosting,
    Trial,
    classified,
)
from experiments.ganapathi2008.segmentation.data import (
    LABELS,
    FloatArray,
    LabelArray,
    Picture,
    halves,
    pixel_accuracy,
    prepared,
    read_corel,
)
from experiments.ganapathi2008.segmentation.figures import labelled_pictures, shown_indices
from experiments.ganapathi2008.segmentation.report import (
    CLASSIFIER,
    Corpus,
    accuracy_bars,
    headline,
    report,
    table,
)

__all__ = ["FULL", "QUICK", "Design", "run", "run_design"]

#: The method whose accuracy ranks the pictures that are shown.
RANKED_BY = "cccp"
#: Penalty with potentials out of fold.  The paper has none, but labels that are never seen side by
#: side then have no best weight, and no method would converge.
UNSEEN_L2 = 1.0
#: Halves, and limits, of learning with these potentials: rounds of CCCP crawl there.
UNSEEN_HALVES = 1
UNSEEN_LIMITS: dict[str, Any] = {"max_iter": 60, "max_rounds": 6, "value_tol": 1e-5}


@dataclass(frozen=True)
class Design:
    """Size of the experiment, and what the model sees.

    ``n_images`` are taken at random for each half (``None``: all), each is cut into about
    ``n_regions`` superpixels; ``n_folds`` make the training pictures' potentials.  A descent ends
    when the objective falls by less than ``value_tol`` of itself in five iterations; CCCP ends
    after ``max_rounds`` (the paper's had settled after seven).  The penalty of each method is one
    of ``penalties``, chosen on held out training pictures.
    """

    n_images: int | None = None
    n_regions: int = 200
    n_halves: int = 3
    n_folds: int = 5
    boosting: Boosting = field(default_factory=Boosting)
    penalties: tuple[float, ...] = (1.0, 10.0, 100.0)
    max_iter: int = 150
    max_rounds: int = 12
    value_tol: float = 1e-6
    methods: tuple[str, ...] = METHODS


FULL = Design()
QUICK = Design(
    n_images=40,
    n_regions=80,
    n_halves=1,
    n_folds=4,
    boosting=Boosting(n_members=1, n_rounds=40),
    penalties=(10.0,),
    max_iter=60,
)


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce camel-segmentation``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """All methods on all halves."""
    if settings.data is None:
        raise InvalidInputError(
            "--data must name the folder of the data sets for camel-segmentation"
        )
    images, truths = read_corel(settings.data)
    n_steps = len(design.methods) + 1
    total = design.n_halves * n_steps + UNSEEN_HALVES * len(design.methods) + 1
    settings.progress(0, total, "superpixels")
    used = sorted(
        {
            int(index)
            for half in range(design.n_halves)
            for part in halves(len(images), design.n_images, half, settings.seed)
            for index in part
        }
    )
    pictures = {index: prepared(images[index], truths[index], design.n_regions) for index in used}

    found = []
    for half in range(design.n_halves):
        parts = halves(len(images), design.n_images, half, settings.seed)
        training, test = ([pictures[index] for index in part] for part in parts)
        done = 1 + half * n_steps + min(half, UNSEEN_HALVES) * len(design.methods)

        def progress(step: int, what: str, done: int = done, half: int = half) -> None:
            settings.progress(done + step, total, f"half {half + 1}, {what}")

        found.append(_run_half(design, settings, half, training, test, progress))
    settings.progress(total, total, "done")

    rows = [row for half in found for row in half.rows]
    unseen = [row for half in found for row in half.unseen]
    alone = [half.alone for half in found]
    return Outcome(
        rows=rows,
        table=table([*rows, *alone]),
        report=report(rows, unseen, alone, _corpus(design, list(pictures.values()), found[0])),
        tables={"classifier": alone, "out_of_fold": unseen},
        figures={
            "accuracy": accuracy_bars(rows),
            "pictures": labelled_pictures(found[0].shown, found[0].shown_labels),
        },
        headline=headline(rows, alone),
    )


@dataclass(frozen=True)
class Half:
    """What came out of one half: rows of the tables, and some test pictures with their labels.

    ``rows`` learn from potentials that know the training pictures, ``unseen`` from others.
    """

    rows: list[dict[str, Any]]
    unseen: list[dict[str, Any]]
    alone: dict[str, Any]
    n_training: int
    n_test: int
    shown: list[Picture]
    shown_labels: dict[str, list[LabelArray]]


def _run_half(
    design: Design,
    settings: Settings,
    half: int,
    training: Sequence[Picture],
    test: Sequence[Picture],
    progress: Callable[[int, str], None],
) -> Half:
    progress(0, "classifiers")
    seed = settings.seed * design.n_halves + half
    unaries = classified(training, test, design.boosting, design.n_folds, seed)
    found = {CLASSIFIER: [_best(values) for values in unaries.test]}
    columns = {"method": CLASSIFIER, "fold": half}
    # the columns of training are empty: nothing of it is comparable
    untrained = dict.fromkeys(("seconds", "converged", "outer_loops", "inner_iterations"))
    guesses = [_best(values) for values in unaries.unseen]
    alone = {**columns, **untrained, **_scores(training, guesses, test, found[CLASSIFIER])}

    rows = []
    fit = partial(_fit, design, settings)
    for number, method in enumerate(design.methods):
        progress(1 + number, TITLES[method])
        l2 = _best_penalty(fit, method, training, unaries.trial, design.penalties)
        fitted = fit(Task(training, test, unaries.by_heart, unaries.test), method, l2)
        found[method] = fitted.test_labels
        scores = _scores(training, fitted.training_labels, test, fitted.test_labels)
        rows.append({"method": method, "fold": half, "l2": l2, **fitted.columns, **scores})
    unseen = []
    if half < UNSEEN_HALVES:
        short = partial(_fit, replace(design, **UNSEEN_LIMITS), settings)
        for number, method in enumerate(design.methods):
            progress(1 + len(rows) + number, f"{TITLES[method]}, out of fold")
            task = Task(training, test, unaries.unseen, unaries.test)
            fitted = short(task, method, UNSEEN_L2)
            scores = _scores(training, fitted.training_labels, test, fitted.test_labels)
            columns = {"method": method, "fold": half, "l2": UNSEEN_L2}
            unseen.append({**columns, **fitted.columns, **scores})

    ranking = found.get(RANKED_BY, found[CLASSIFIER])
    right = [
        float(np.mean(guess == picture.labels))
        for picture, guess in zip(test, ranking, strict=True)
    ]
    shown = shown_indices(right)
    return Half(
        rows=rows,
        unseen=unseen,
        alone=alone,
        n_training=len(training),
        n_test=len(test),
        shown=[test[index] for index in shown],
        shown_labels={
            method: [guesses[index] for index in shown] for method, guesses in found.items()
        },
    )


@dataclass(frozen=True)
class Task:
    """Pictures to learn from and to label, and the potentials of both."""

    training: Sequence[Picture]
    test: Sequence[Picture]
    training_potentials: Sequence[FloatArray]
    test_potentials: Sequence[FloatArray]


@dataclass(frozen=True)
class Fitted:
    """What a method makes of a task."""

    columns: dict[str, Any]
    training_labels: list[LabelArray]
    test_labels: list[LabelArray]


def _fit(design: Design, settings: Settings, task: Task, method: str, l2: float) -> Fitted:
    """Learn and label."""
    # the same model in other units, in which a descent needs a tenth of the iterations
    joined = np.concatenate(list(task.training_potentials))
    centre, spread = joined.mean(axis=0), joined.std(axis=0)

    def examples(pictures: Sequence[Picture], potentials: Sequence[FloatArray]) -> list[Any]:
        return [
            ((values - centre) / spread, picture.edges)
            for picture, values in zip(pictures, potentials, strict=True)
        ]

    known = examples(task.training, task.training_potentials)
    labels = [picture.labels for picture in task.training]
    trained = train(_maker(design, settings, l2), method, known, labels)
    with warnings.catch_warnings():
        # every method predicts by belief propagation, whose last beliefs are as good as any
        warnings.simplefilter("ignore", ConvergenceWarning)
        new = trained.estimator.predict(examples(task.test, task.test_potentials))
        return Fitted(trained.columns(), trained.estimator.predict(known), new)


def _best_penalty(
    fit: Callable[[Task, str, float], Fitted],
    method: str,
    training: Sequence[Picture],
    trial: Trial,
    penalties: Sequence[float],
) -> float:
    """The penalty with which held out training pictures are labelled best; the first, if equal."""
    if len(penalties) == 1:
        return penalties[0]
    seen, held_out = ([training[index] for index in part] for part in (trial.seen, trial.held_out))
    task = Task(
        seen,
        held_out,
        [trial.potentials[index] for index in trial.seen],
        [trial.potentials[index] for index in trial.held_out],
    )
    right = [_accuracy(held_out, fit(task, method, l2).test_labels) for l2 in penalties]
    return penalties[int(np.argmax(right))]


def _maker(design: Design, settings: Settings, l2: float) -> Callable[[Objective], GraphCRF]:
    """Builds the estimator, the same for all methods but for objective and penalty."""

    def make(objective: Objective) -> GraphCRF:
        if isinstance(objective, Camel):
            objective = replace(objective, max_rounds=design.max_rounds)
        return GraphCRF(
            objective,
            l2=l2,
            learner=LBFGS(max_iter=design.max_iter, tol=1e-4, value_tol=design.value_tol),
            pairwise="symmetric",
            n_labels=len(LABELS),
            n_jobs=settings.n_jobs,
        )

    return make


def _best(values: FloatArray) -> LabelArray:
    return np.asarray(values.argmax(axis=1), dtype=np.int32)


def _scores(
    training: Sequence[Picture],
    guesses: Sequence[LabelArray],
    test: Sequence[Picture],
    labels: Sequence[LabelArray],
) -> dict[str, float]:
    """Shares of superpixels and pixels of test pictures, and superpixels of training pictures."""
    return {
        "accuracy": _accuracy(test, labels),
        "pixel_accuracy": pixel_accuracy(test, labels),
        "training_accuracy": _accuracy(training, guesses),
    }


def _accuracy(pictures: Sequence[Picture], found: Sequence[LabelArray]) -> float:
    truth = np.concatenate([picture.labels for picture in pictures])
    return float(np.mean(np.concatenate(list(found)) == truth))


def _corpus(design: Design, pictures: Sequence[Picture], half: Half) -> Corpus:
    n_regions = sum(picture.n_regions for picture in pictures)
    return Corpus(
        n_images=len(pictures) if design.n_images is None else design.n_images,
        n_halves=design.n_halves,
        n_training=half.n_training,
        n_test=half.n_test,
        n_regions=round(n_regions / len(pictures)),
        ceiling=pixel_accuracy(pictures, [picture.labels for picture in pictures]),
        degree=2.0 * sum(len(picture.edges) for picture in pictures) / n_regions,
        n_features=pictures[0].features.shape[1],
        n_members=design.boosting.n_members,
        n_rounds=design.boosting.n_rounds,
        n_folds=design.n_folds,
        penalties=design.penalties,
        unseen_l2=UNSEEN_L2,
        unseen_rounds=int(UNSEEN_LIMITS["max_rounds"]),
    )
