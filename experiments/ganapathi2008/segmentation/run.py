"""Table 3 of Ganapathi et al. (2008): labels of superpixels in photographs.

One graph for each photograph: a variable for each superpixel, with the log-probabilities of boosted
classifiers for features, and an edge where two superpixels touch, with one symmetric table for all
of them.  Few weights are shared by very many factors, which leaves the beliefs of piecewise
training free to disagree; and loops are tight, which is hard on loopy belief propagation.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.ganapathi2008.methods import METHODS, train
from experiments.ganapathi2008.segmentation.classifier import (
    Boosting,
    Trial,
    Unaries,
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
from fieldfit import LBFGS, Camel, ConvergenceWarning, GraphCRF
from fieldfit.objectives import Objective

#: The method whose accuracy ranks the pictures that are shown.
RANKED_BY = "cccp"
#: Penalty with potentials out of fold.  The paper has none, but labels that are never seen side by
#: side then have no best weight, and no method would converge.
UNSEEN_L2 = 1.0
#: Halves, and limits, of learning with these potentials: rounds of CCCP are slow there.
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


@dataclass(frozen=True)
class Case:
    """Pictures to learn from and to label, and the potentials of both."""

    training: Sequence[Picture]
    test: Sequence[Picture]
    training_potentials: Sequence[FloatArray]
    test_potentials: Sequence[FloatArray]


@dataclass(frozen=True)
class Fitted:
    """What a method makes of a case."""

    columns: dict[str, Any]
    training_labels: list[LabelArray]
    test_labels: list[LabelArray]


#: Tasks that learn from potentials out of fold.
UNSEEN = "out of fold"


class Superpixels(Plan[Design]):
    """A task trains the classifiers of one half, or one method on their potentials."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``(half, "classifier alone")``, ``(half, method)``, ``(half, method, "out of fold")``."""
        found: list[Task] = []
        for half in range(self.design.n_halves):
            found.append((half, CLASSIFIER))
            found += [(half, method) for method in self.design.methods]
            if half < UNSEEN_HALVES:
                found += [(half, method, UNSEEN) for method in self.design.methods]
        return found

    def run_task(self, task: Task, results: Results) -> Result:
        """A row; labels of the test pictures of the first half are kept for the figure."""
        half, method = int(task[0]), str(task[1])
        if method == CLASSIFIER:
            return self._classify(half)
        training, test = self._parts(half)
        unaries = self.kept("unaries", half, lambda: self._unaries(half, results))
        if task[2:] == (UNSEEN,):
            short = replace(self.design, **UNSEEN_LIMITS)
            case = Case(training, test, unaries.unseen, unaries.test)
            fitted, l2 = self._fit(short, case, method, UNSEEN_L2), UNSEEN_L2
        else:
            l2 = self._best_penalty(method, training, unaries.trial)
            case = Case(training, test, unaries.in_sample, unaries.test)
            fitted = self._fit(self.design, case, method, l2)
        scores = _scores(training, fitted.training_labels, test, fitted.test_labels)
        row = {"method": method, "fold": half, "l2": l2, **fitted.columns, **scores}
        if task[2:] == (UNSEEN,):
            return Result(tables={"out_of_fold": [row]})
        return Result([row], arrays={} if half else {"labels": np.concatenate(fitted.test_labels)})

    def outcome(self, results: Results) -> Outcome:
        rows, alone = results.rows(), results.table("classifier")
        unseen = results.table("out_of_fold")
        training, test = self._parts(0)
        ends = np.cumsum([picture.n_regions for picture in test])[:-1]
        found = {
            method: np.split(results[0, method].arrays["labels"], ends)
            for method in (CLASSIFIER, *self.design.methods)
        }
        ranking = found.get(RANKED_BY, found[CLASSIFIER])
        right = [
            float(np.mean(guess == picture.labels))
            for picture, guess in zip(test, ranking, strict=True)
        ]
        shown = shown_indices(right)
        shown_labels = {
            method: [guesses[index] for index in shown] for method, guesses in found.items()
        }
        return Outcome(
            rows=rows,
            table=table([*rows, *alone]),
            report=report(rows, unseen, alone, self._corpus(len(training), len(test))),
            tables={"classifier": alone, "out_of_fold": unseen},
            figures={
                "accuracy": accuracy_bars(rows),
                "pictures": labelled_pictures([test[index] for index in shown], shown_labels),
            },
            headline=headline(rows, alone),
        )

    @cached_property
    def pictures(self) -> dict[int, Picture]:
        """Superpixels of all photographs that are used."""
        images, truths = read_corel(self.settings.data_folder)
        self._n_images = len(images)
        used = {
            int(index)
            for half in range(self.design.n_halves)
            for part in self._indices(half)
            for index in part
        }
        return {
            index: prepared(images[index], truths[index], self.design.n_regions)
            for index in sorted(used)
        }

    def _indices(self, half: int) -> tuple[Any, Any]:
        return halves(self._n_images, self.design.n_images, half, self.settings.seed)

    def _parts(self, half: int) -> tuple[list[Picture], list[Picture]]:
        """Training and test pictures."""
        pictures = self.pictures
        training, test = ([pictures[index] for index in part] for part in self._indices(half))
        return training, test

    def _classify(self, half: int) -> Result:
        """Train the classifiers of a half; their potentials are kept for the methods."""
        design = self.design
        training, test = self._parts(half)
        seed = self.settings.seed * design.n_halves + half
        unaries = classified(training, test, design.boosting, design.n_folds, seed)
        # the columns of training are empty: nothing of it is comparable
        untrained = dict.fromkeys(("seconds", "converged", "outer_loops", "inner_iterations"))
        guesses = [_best(values) for values in unaries.unseen]
        labels = [_best(values) for values in unaries.test]
        scores = _scores(training, guesses, test, labels)
        row = {"method": CLASSIFIER, "fold": half, **untrained, **scores}
        arrays = {**unaries.arrays(), "labels": np.concatenate(labels)}
        return Result(tables={"classifier": [row]}, arrays=arrays)

    def _unaries(self, half: int, results: Results) -> Unaries:
        training, test = self._parts(half)
        sizes = [[picture.n_regions for picture in part] for part in (training, test)]
        return Unaries.of_arrays(results[half, CLASSIFIER].arrays, *sizes)

    def _fit(self, design: Design, case: Case, method: str, l2: float) -> Fitted:
        """Learn and label."""
        # the same model in other units, in which a descent needs a tenth of the iterations
        joined = np.concatenate(list(case.training_potentials))
        centre, spread = joined.mean(axis=0), joined.std(axis=0)

        def examples(pictures: Sequence[Picture], potentials: Sequence[FloatArray]) -> list[Any]:
            return [
                ((values - centre) / spread, picture.edges)
                for picture, values in zip(pictures, potentials, strict=True)
            ]

        known = examples(case.training, case.training_potentials)
        labels = [picture.labels for picture in case.training]
        trained = train(partial(self._make, design, l2), method, known, labels)
        with warnings.catch_warnings():
            # every method predicts by belief propagation, whose last beliefs are as good as any
            warnings.simplefilter("ignore", ConvergenceWarning)
            new = trained.estimator.predict(examples(case.test, case.test_potentials))
            return Fitted(trained.columns(), trained.estimator.predict(known), new)

    def _make(self, design: Design, l2: float, objective: Objective) -> GraphCRF:
        if isinstance(objective, Camel):
            objective = replace(objective, max_rounds=design.max_rounds)
        return GraphCRF(
            objective,
            l2=l2,
            learner=LBFGS(max_iter=design.max_iter, tol=1e-4, value_tol=design.value_tol),
            unary="full",  # as the paper has it, also for log-probabilities
            pairwise="symmetric",
            n_labels=len(LABELS),
            n_jobs=self.settings.n_jobs,
        )

    def _best_penalty(self, method: str, training: Sequence[Picture], trial: Trial) -> float:
        """The penalty that labels held out training pictures best; the first, if equal."""
        penalties = self.design.penalties
        if len(penalties) == 1:
            return penalties[0]
        seen, held_out = (
            [training[index] for index in part] for part in (trial.seen, trial.held_out)
        )
        case = Case(
            seen,
            held_out,
            [trial.potentials[index] for index in trial.seen],
            [trial.potentials[index] for index in trial.held_out],
        )
        right = [
            _accuracy(held_out, self._fit(self.design, case, method, l2).test_labels)
            for l2 in penalties
        ]
        return penalties[int(np.argmax(right))]

    def _corpus(self, n_training: int, n_test: int) -> Corpus:
        design, pictures = self.design, list(self.pictures.values())
        n_regions = sum(picture.n_regions for picture in pictures)
        return Corpus(
            n_images=len(pictures) if design.n_images is None else design.n_images,
            n_halves=design.n_halves,
            n_training=n_training,
            n_test=n_test,
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
