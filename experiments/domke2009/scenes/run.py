"""Street scenes with missing labels: a classifier of pixels alone, and fields fitted four ways.

CamVid at 60 x 80 pixels stands in for StreetScenes, with the same five labels; what has none of
them is unlabelled, and no loss looks there.  Reference: Domke, thesis (2009), section 6.5.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.domke2009.scenes.data import FILE, LABELS, Scenes, draw_scenes
from experiments.domke2009.scenes.report import headline, pictures, report, shown_scenes, table
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

COLUMNS = ("method", "uclass", "uquad", "train_uclass", "seconds", "converged", "n_iter")
ENTROPY = Convex(unary=0.01, factor=1.0)
#: Beliefs of Bethe's entropy that have not settled by then circle.
LOOPY = Likelihood(SumProduct(entropy=Bethe(), tol=1e-4, max_iter=100))
#: The model without edges, whose beliefs need no propagation.
BASELINE = "baseline"


@dataclass(frozen=True)
class Method:
    """What is fitted; which inference predicts, if another; whose weights come first.

    ``share`` is the part of the iterations that a fit is given: one that finds the beliefs to
    convergence takes as long as hundreds with a few sweeps.
    """

    objective: Objective
    predict: Objective | None = None
    start: str | None = None
    share: float = 1.0


#: Rows of table 6.3 of the thesis.  All start from zero, as there; a fitted entropy starts from
#: the fit with the given one.
METHODS: dict[str, Method] = {
    "pseudo": Method(PseudoLikelihood(), predict=LOOPY),
    BASELINE: Method(ProceduralLoss("uquad", n_sweeps=1)),
    "uquad": Method(ImplicitLoss("uquad", entropy=ENTROPY, solver="primal", tol=1e-6), share=0.2),
    "uquad+entropy": Method(
        ImplicitLoss("uquad", entropy=ENTROPY, fit_entropy=True, tol=1e-6), start="uquad", share=0.1
    ),
    "uquad-1": Method(ProceduralLoss("uquad", n_sweeps=1, order="grid")),
    "uquad-2": Method(ProceduralLoss("uquad", n_sweeps=2, order="grid")),
}


@dataclass(frozen=True)
class Design:
    """Size of the experiment.  ``stride`` takes one of so many pixels each way."""

    n_train: int = 20
    n_test: int = 60
    stride: int = 1
    n_clusters: int = 50
    methods: tuple[str, ...] = tuple(METHODS)
    l2: float = 1.0
    max_iter: int = 300


FULL = Design()
QUICK = Design(n_train=8, n_test=10, stride=3, n_clusters=20, max_iter=60)


class StreetScenes(Plan[Design]):
    """A task is one method."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """The methods."""
        return [(method,) for method in self.design.methods]

    def run_task(self, task: Task, results: Results) -> Result:
        """The row of a method, its weights, and its labels of some test pictures."""
        name = str(task[0])
        scenes, (train, test) = self.scenes, self.features
        method = METHODS[name]
        kind = GraphCRF if name == BASELINE else GridCRF
        # no constant: indicators of patches sum to one
        crf = kind(
            objective=method.objective,
            l2=self.design.l2,
            max_iter=max(1, round(method.share * self.design.max_iter)),
            tol=1e-3,
            fit_intercept=False,
            n_labels=len(LABELS),
            n_jobs=self.settings.n_jobs,
        )
        start = None if method.start is None else results[(method.start,)].arrays["weights"]
        given = _without_edges if name == BASELINE else list
        flat = [y.ravel() for y in scenes.train_labels]
        labels: list[Any] = flat if name == BASELINE else scenes.train_labels
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the row says so
            crf.fit(given(train), labels, start=start)
            seconds = time.perf_counter() - began
            if method.predict is not None:
                crf.set_params(objective=method.predict)
            found = crf.predict_marginals(given(test))
            seen = crf.predict_marginals(given(train))
        row: dict[str, Any] = {"method": name, **_scores(found, scenes.test_labels)}
        row["train_uclass"] = _scores(seen, scenes.train_labels)["uclass"]
        row |= {"seconds": seconds, "converged": crf.converged_, "n_iter": crf.n_iter_}
        shown = [
            found[m].reshape(*test[m].shape[:2], -1).argmax(axis=2) for m in shown_scenes(scenes)
        ]
        return Result(
            [{column: row[column] for column in COLUMNS}],
            arrays={"weights": crf.weights_, "labels": np.stack(shown).astype(np.uint8)},
        )

    def outcome(self, results: Results) -> Outcome:
        rows = results.rows()
        labels = {name: results[(name,)].arrays["labels"] for name in self.design.methods}
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, self.scenes, self.design),
            figures={"scenes": pictures(self.scenes, labels)},
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
