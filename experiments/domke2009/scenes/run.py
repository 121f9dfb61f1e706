"""Street scenes with missing labels: a classifier of pixels alone, and fields fitted four ways.

CamVid at 60 x 80 pixels stands in for StreetScenes, with the same five labels; what has none of
them is unlabelled, and no loss looks there.  Reference: Domke, thesis (2009), section 6.5.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.entropy import Bethe, Convex
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.estimators.graph import GraphCRF
from fieldfit.estimators.grid import GridCRF
from fieldfit.features.image import SceneFeatures
from fieldfit.inference.sum_product import SumProduct
from fieldfit.objective._base import Objective
from fieldfit.objective.implicit import ImplicitLoss
from fieldfit.objective.likelihood import Likelihood
from fieldfit.objective.procedural import ProceduralLoss
from fieldfit.objective.pseudo_likelihood import PseudoLikelihood
from experiments.base import Outcome, Settings
from experiments.domke2009.scenes.data import FILE, LABELS, Scenes, draw_scenes
from experiments.domke2009.scenes.report import headline, pictures, report, table

__all__ = ["FULL", "METHODS", "QUICK", "Design", "run", "run_design"]

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


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce domke-scenes``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """Every method on one choice of pictures."""
    if settings.data is None:
        raise InvalidInputError("--data must name the folder of the data sets for domke-scenes")
    rng = np.random.default_rng(settings.seed)
    scenes = draw_scenes(settings.data / FILE, design.n_train, design.n_test, design.stride, rng)
    features = SceneFeatures(design.n_clusters, random_state=settings.seed)
    train = features.fit(scenes.train_images).transform(scenes.train_images)
    test = features.transform(scenes.test_images)
    rows: list[dict[str, Any]] = []
    weights: dict[str, FloatArray] = {}
    beliefs: dict[str, list[FloatArray]] = {}
    for name in design.methods:
        settings.progress(len(rows), len(design.methods), name)
        row, weights[name], beliefs[name] = _fitted(
            name, scenes, train, test, design, settings, weights
        )
        rows.append({column: row[column] for column in COLUMNS})
    settings.progress(len(rows), len(rows), "done")
    return Outcome(
        rows=rows,
        table=table(rows),
        report=report(rows, scenes, design),
        figures={"scenes": pictures(scenes, beliefs)},
        headline=headline(rows),
    )


def _fitted(
    name: str,
    scenes: Scenes,
    train: list[FloatArray],
    test: list[FloatArray],
    design: Design,
    settings: Settings,
    weights: dict[str, FloatArray],
) -> tuple[dict[str, Any], FloatArray, list[FloatArray]]:
    """The row of a method, its weights and its beliefs on test pictures."""
    method = METHODS[name]
    kind = GraphCRF if name == BASELINE else GridCRF
    # no constant: indicators of patches sum to one
    crf = kind(
        objective=method.objective,
        l2=design.l2,
        max_iter=max(1, round(method.share * design.max_iter)),
        tol=1e-3,
        fit_intercept=False,
        n_labels=len(LABELS),
        n_jobs=settings.n_jobs,
    )
    start = None if method.start is None else weights[method.start]
    shown = _without_edges if name == BASELINE else list
    flat = [y.ravel() for y in scenes.train_labels]
    labels: list[Any] = flat if name == BASELINE else scenes.train_labels
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the row says so
        crf.fit(shown(train), labels, start=start)
        seconds = time.perf_counter() - began
        if method.predict is not None:
            crf.set_params(objective=method.predict)
        found = crf.predict_marginals(shown(test))
        seen = crf.predict_marginals(shown(train))
    row: dict[str, Any] = {"method": name, **_scores(found, scenes.test_labels)}
    row["train_uclass"] = _scores(seen, scenes.train_labels)["uclass"]
    row |= {"seconds": seconds, "converged": crf.converged_, "n_iter": crf.n_iter_}
    beliefs = [b.reshape(*x.shape[:2], -1) for b, x in zip(found, test, strict=True)]
    return row, crf.weights_, beliefs


def _without_edges(features: list[FloatArray]) -> list[Any]:
    """Pixels of pictures as variables that know nothing of each other."""
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
