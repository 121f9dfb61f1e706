"""Street scenes with missing labels: a classifier of pixels alone, and fields fitted four ways.

CamVid at 60 x 80 pixels stands in for StreetScenes, with the same five labels; what has none of
them is unlabelled, and no loss looks there.  For every method the penalty is the one with fewest
errors on a quarter of the training pictures, after a short fit to the others; then all of them are
learned from, and errors are taken at several stages of the fit.  Reference: Domke, thesis (2009),
section 6.5.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.domke2009.scenes.data import FILE, LABELS, Scenes, draw_scenes
from experiments.domke2009.scenes.report import (
    curves,
    headline,
    pictures,
    report,
    shown_scenes,
    table,
)
from fieldfit import (
    Bethe,
    ConvergenceWarning,
    Convex,
    GraphCRF,
    GridCRF,
    ImplicitLoss,
    Likelihood,
    ProceduralLoss,
    PseudoLikelihood,
    SumProduct,
)
from fieldfit.features.image import SceneFeatures
from fieldfit.objectives import Objective

FloatArray = NDArray[np.float64]

COLUMNS = ("method", "l2", "n_iter", "uclass", "uquad", "train_uclass", "seconds", "converged")
#: Columns of the short fits by which penalties are chosen.
CHOICE_COLUMNS = ("method", "l2", "n_iter", "held_out_uclass", "seconds")
ENTROPY = Convex(unary=0.01, factor=1.0)
#: Beliefs of Bethe's entropy that have not settled by then circle.
LOOPY = Likelihood(SumProduct(entropy=Bethe(), tol=1e-4, max_iter=100))
#: The model without edges, whose beliefs need no propagation.
BASELINE = "baseline"


@dataclass(frozen=True)
class Method:
    """What is fitted; which inference predicts, if another; whose weights and penalty come first.

    ``share`` is the part of the iterations that a fit is given: one that finds the beliefs to
    convergence takes as long as several with a few sweeps.
    """

    objective: Objective
    predict: Objective | None = None
    start: str | None = None
    share: float = 1.0

    def stages(self, stages: Sequence[int]) -> list[int]:
        """Its part of some numbers of iterations."""
        return [max(1, round(self.share * stage)) for stage in stages]


#: Rows of table 6.3 of the thesis.  All start from zero, as there; a fitted entropy starts from
#: the fit with the given one.
METHODS: dict[str, Method] = {
    "pseudo": Method(PseudoLikelihood(), predict=LOOPY),
    BASELINE: Method(ProceduralLoss("uquad", n_sweeps=1)),
    "uquad": Method(ImplicitLoss("uquad", entropy=ENTROPY, solver="primal", tol=1e-4), share=0.2),
    "uquad+entropy": Method(
        ImplicitLoss("uquad", entropy=ENTROPY, fit_entropy=True, tol=1e-4), start="uquad", share=0.1
    ),
    "uquad-1": Method(ProceduralLoss("uquad", n_sweeps=1, order="grid")),
    "uquad-2": Method(ProceduralLoss("uquad", n_sweeps=2, order="grid")),
}


@dataclass(frozen=True)
class Design:
    """Size of the experiment.  ``stride`` takes one of so many pixels each way.

    Errors are taken after each of ``stages`` iterations, of which a method has its share.
    """

    n_train: int = 100
    n_test: int = 60
    stride: int = 1
    n_clusters: int = 50
    methods: tuple[str, ...] = tuple(METHODS)
    penalties: tuple[float, ...] = (1.0, 10.0, 100.0)
    choice_iter: int = 60
    stages: tuple[int, ...] = (50, 100, 200, 300)


FULL = Design()
QUICK = Design(
    n_train=8, n_test=10, stride=3, n_clusters=20, penalties=(1.0, 10.0), choice_iter=20,
    stages=(20, 60),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Stage:
    """A fit after some iterations, and the processor time that they took."""

    crf: Any
    seconds: float
    is_alone: bool

    def predict(self, features: list[FloatArray]) -> list[FloatArray]:
        """Beliefs of pixels."""
        found: list[FloatArray] = self.crf.predict_marginals(
            _without_edges(features) if self.is_alone else features
        )
        return found


class StreetScenes(Plan[Design]):
    """Tasks are a short fit for each method and penalty, and a long one for each method."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """For each method the choice of its penalty, then the fit."""
        tasks: list[Task] = []
        for name in self.design.methods:
            if METHODS[name].start is None:
                tasks += [("choose", name, l2) for l2 in self.design.penalties]
            tasks.append(("fit", name))
        return tasks

    def run_task(self, task: Task, results: Results) -> Result:
        """Held-out errors of a short fit, or rows, weights and labels of a long one."""
        name = str(task[1])
        if task[0] == "choose":
            return self._choice(name, float(task[2]))
        return self._fit(name, self._chosen_penalty(name, results), results)

    def _choice(self, name: str, l2: float) -> Result:
        """Errors on held-out training pictures."""
        train, labels = self.features[0], self.scenes.train_labels
        cut = len(train) - len(train) // 4
        (iterations,) = METHODS[name].stages([self.design.choice_iter])
        stage = next(self._stages(name, l2, train[:cut], labels[:cut], [iterations], None))
        held_out = _scores(stage.predict(train[cut:]), labels[cut:])["uclass"]
        row = dict(
            zip(CHOICE_COLUMNS, (name, l2, iterations, held_out, stage.seconds), strict=True)
        )
        return Result(tables={"penalties": [row]})

    def _chosen_penalty(self, name: str, results: Results) -> float:
        """The penalty with fewest held-out errors, of the method that it starts from if it does."""
        name = METHODS[name].start or name

        def held_out(l2: float) -> float:
            (row,) = results[("choose", name, l2)].tables["penalties"]
            return float(row["held_out_uclass"])

        return min(self.design.penalties, key=held_out)

    def _fit(self, name: str, l2: float, results: Results) -> Result:
        """Errors after every stage."""
        scenes, (train, test) = self.scenes, self.features
        method = METHODS[name]
        start = None if method.start is None else results[("fit", method.start)].arrays["weights"]
        iterations = method.stages(self.design.stages)
        rows: list[dict[str, Any]] = []
        for stage in self._stages(name, l2, train, scenes.train_labels, iterations, start):
            found = stage.predict(test)
            row = {"method": name, "l2": l2, **_scores(found, scenes.test_labels)}
            seen = _scores(stage.predict(train), scenes.train_labels)
            row |= {"train_uclass": seen["uclass"], "seconds": stage.seconds}
            row |= {"converged": stage.crf.converged_, "n_iter": stage.crf.n_iter_}
            rows.append({column: row[column] for column in COLUMNS})
        shown = [
            found[m].reshape(*test[m].shape[:2], -1).argmax(axis=2) for m in shown_scenes(scenes)
        ]
        return Result(
            rows,
            arrays={"weights": stage.crf.weights_, "labels": np.stack(shown).astype(np.uint8)},
        )

    def _stages(
        self,
        name: str,
        l2: float,
        train: list[FloatArray],
        labels: list[Any],
        iterations: Sequence[int],
        start: FloatArray | None,
    ) -> Iterator[Stage]:
        """One fit, seen after some numbers of iterations; it ends where it converges."""
        method = METHODS[name]
        is_alone = name == BASELINE
        # no constant: indicators of patches sum to one
        crf = (GraphCRF if is_alone else GridCRF)(
            objective=method.objective,
            l2=l2,
            unary="full",
            tol=1e-3,
            fit_intercept=False,
            n_labels=len(LABELS),
            n_jobs=self.settings.n_jobs,
        )
        if start is None:
            start = np.zeros(_n_weights(train[0].shape[2], is_alone))
        given = _without_edges(train) if is_alone else train
        flat: list[Any] = [y.ravel() for y in labels] if is_alone else labels
        seconds = 0.0
        with TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the row says so
            for stage in iterations:
                began = time.process_time()
                crf.set_params(objective=method.objective, max_iter=stage)
                crf.fit(given, flat, start=start, checkpoint=Path(folder, "fit"))
                seconds += time.process_time() - began
                if method.predict is not None:
                    crf.set_params(objective=method.predict)
                yield Stage(crf, seconds, is_alone)
                if crf.converged_:
                    return

    def outcome(self, results: Results) -> Outcome:
        rows = results.rows()
        labels = {name: results[("fit", name)].arrays["labels"] for name in self.design.methods}
        penalties = results.table("penalties")
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, penalties, self.scenes, self.design),
            tables={"penalties": penalties},
            figures={"scenes": pictures(self.scenes, labels), "stages": curves(rows)},
            headline=headline(rows),
        )

    @cached_property
    def scenes(self) -> Scenes:
        """Pictures and their labels."""
        design, rng = self.design, np.random.default_rng(self.settings.seed)
        path = self.settings.data_folder / FILE
        return draw_scenes(path, design.n_train, design.n_test, design.stride, rng)

    @cached_property
    def features(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """Features of training and test pictures."""
        features = SceneFeatures(self.design.n_clusters, random_state=self.settings.seed)
        train = features.fit(self.scenes.train_images).transform(self.scenes.train_images)
        return train, features.transform(self.scenes.test_images)


def _n_weights(n_features: int, is_alone: bool) -> int:
    """Weights of all features and of pairs: without edges one table, else one each way."""
    n = len(LABELS)
    return n * n_features + (n * (n + 1) // 2 if is_alone else 2 * n * n)


def _without_edges(features: list[FloatArray]) -> list[Any]:
    """Pixels of pictures as independent variables."""
    no_edges = np.zeros((0, 2), dtype=np.int64)
    return [(x.reshape(-1, x.shape[2]), no_edges) for x in features]


def _scores(beliefs: list[FloatArray], labels: list[Any]) -> dict[str, float]:
    """Errors and quadratic loss for a labelled pixel."""
    truth = np.concatenate([y.ravel() for y in labels])
    given = np.concatenate([b.reshape(-1, b.shape[-1]) for b in beliefs])
    is_known = truth >= 0
    truth, given = truth[is_known], given[is_known]
    right = given[np.arange(len(truth)), truth]
    return {
        "uclass": float(np.mean(given.argmax(axis=1) != truth)),
        "uquad": float(np.mean((given**2).sum(axis=1) - 2.0 * right)),
    }
