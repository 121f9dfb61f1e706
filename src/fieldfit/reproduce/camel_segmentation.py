"""Table 3 of Ganapathi et al. (2008): labels of superpixels in photographs.

One graph for each photograph: a variable for each superpixel, with the log-probabilities of boosted
classifiers for features, and an edge where two superpixels touch, with one symmetric table for all
of them.  Few weights are shared by very many factors, which leaves the beliefs of piecewise
training free to disagree; and loops are tight, which is hard on loopy belief propagation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.estimators.graph import GraphCRF
from fieldfit.learner.lbfgs import LBFGS
from fieldfit.objective._base import Objective
from fieldfit.reproduce._base import Outcome, Settings
from fieldfit.reproduce._camel import METHODS, TITLES, train
from fieldfit.reproduce._camel_segmentation_classifier import (
    Boosting,
    new_potentials,
    training_potentials,
)
from fieldfit.reproduce._camel_segmentation_data import (
    LABELS,
    FloatArray,
    LabelArray,
    Picture,
    halves,
    pixel_accuracy,
    prepared,
    read_corel,
)
from fieldfit.reproduce._camel_segmentation_figures import labelled_pictures, shown_indices
from fieldfit.reproduce._camel_segmentation_report import (
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


@dataclass(frozen=True)
class Design:
    """Size of the experiment, and what the model sees.

    ``n_images`` are taken at random for each half (``None``: all), each is cut into about
    ``n_regions`` superpixels; ``n_folds`` make the training pictures' potentials.  A descent ends
    when the objective falls by less than ``value_tol`` of itself in five iterations.
    """

    n_images: int | None = None
    n_regions: int = 200
    n_halves: int = 3
    n_folds: int = 5
    boosting: Boosting = field(default_factory=Boosting)
    l2: float = 0.0
    max_iter: int = 300
    value_tol: float = 1e-6
    methods: tuple[str, ...] = METHODS


FULL = Design()
QUICK = Design(
    n_images=40,
    n_regions=80,
    n_halves=1,
    n_folds=4,
    boosting=Boosting(n_members=1, n_rounds=40),
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
    total = design.n_halves * (len(design.methods) + 1) + 1
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
        done = 1 + half * (len(design.methods) + 1)

        def progress(step: int, what: str, done: int = done, half: int = half) -> None:
            settings.progress(done + step, total, f"half {half + 1}, {what}")

        found.append(_run_half(design, settings, half, training, test, progress))
    settings.progress(total, total, "done")

    rows = [row for half in found for row in half.rows]
    alone = [half.alone for half in found]
    return Outcome(
        rows=rows,
        table=table([*rows, *alone]),
        report=report(rows, alone, _corpus(design, list(pictures.values()), found[0])),
        tables={"classifier": alone},
        figures={
            "accuracy": accuracy_bars(rows),
            "pictures": labelled_pictures(found[0].shown, found[0].shown_labels),
        },
        headline=headline(rows, alone),
    )


@dataclass(frozen=True)
class Half:
    """What came out of one half: rows of the tables, and some test pictures with their labels."""

    rows: list[dict[str, Any]]
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
    potentials, classifier = training_potentials(training, design.boosting, design.n_folds, seed)
    test_values = new_potentials(test, classifier)
    # the same model in other units, in which a descent needs a tenth of the iterations
    joined = np.concatenate(potentials)
    centre, spread = joined.mean(axis=0), joined.std(axis=0)
    examples = _examples(training, [(values - centre) / spread for values in potentials])
    labels = [picture.labels for picture in training]
    test_examples = _examples(test, [(values - centre) / spread for values in test_values])

    found = {CLASSIFIER: [_best(values) for values in test_values]}
    columns = {"method": CLASSIFIER, "fold": half}
    # the columns of training are empty: nothing of it is comparable
    untrained = dict.fromkeys(("seconds", "converged", "outer_loops", "inner_iterations"))
    guesses = [_best(values) for values in potentials]
    alone = {**columns, **untrained, **_scores(training, guesses, test, found[CLASSIFIER])}
    rows = []
    for number, method in enumerate(design.methods):
        progress(1 + number, TITLES[method])
        trained = train(_maker(design, settings), method, examples, labels)
        with warnings.catch_warnings():
            # every method predicts by belief propagation, whose last beliefs are as good as any
            warnings.simplefilter("ignore", ConvergenceWarning)
            found[method] = trained.estimator.predict(test_examples)
            guesses = trained.estimator.predict(examples)
        scores = _scores(training, guesses, test, found[method])
        rows.append({"method": method, "fold": half, **trained.columns(), **scores})

    ranking = found.get(RANKED_BY, found[CLASSIFIER])
    right = [
        float(np.mean(guess == picture.labels))
        for picture, guess in zip(test, ranking, strict=True)
    ]
    shown = shown_indices(right)
    return Half(
        rows=rows,
        alone=alone,
        n_training=len(training),
        n_test=len(test),
        shown=[test[index] for index in shown],
        shown_labels={
            method: [guesses[index] for index in shown] for method, guesses in found.items()
        },
    )


def _maker(design: Design, settings: Settings) -> Callable[[Objective], GraphCRF]:
    """Builds the estimator, the same for all methods but for the objective."""

    def make(objective: Objective) -> GraphCRF:
        return GraphCRF(
            objective,
            l2=design.l2,
            learner=LBFGS(max_iter=design.max_iter, tol=1e-4, value_tol=design.value_tol),
            pairwise="symmetric",
            n_labels=len(LABELS),
            n_jobs=settings.n_jobs,
        )

    return make


def _examples(pictures: Sequence[Picture], potentials: Sequence[FloatArray]) -> list[Any]:
    """Pictures as `GraphCRF` takes them."""
    return [(values, picture.edges) for picture, values in zip(pictures, potentials, strict=True)]


def _best(values: FloatArray) -> LabelArray:
    return np.asarray(values.argmax(axis=1), dtype=np.int32)


def _scores(
    training: Sequence[Picture],
    guesses: Sequence[LabelArray],
    test: Sequence[Picture],
    labels: Sequence[LabelArray],
) -> dict[str, float]:
    """Shares of superpixels and pixels of test pictures, and superpixels of training pictures."""

    def accuracy(pictures: Sequence[Picture], found: Sequence[LabelArray]) -> float:
        truth = np.concatenate([picture.labels for picture in pictures])
        return float(np.mean(np.concatenate(list(found)) == truth))

    return {
        "accuracy": accuracy(test, labels),
        "pixel_accuracy": pixel_accuracy(test, labels),
        "training_accuracy": accuracy(training, guesses),
    }


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
        l2=design.l2,
    )
