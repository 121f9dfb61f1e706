"""The methods of table 6.1 of the thesis: what is fitted, from where, and how it predicts."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from experiments.base import Plan
from experiments.domke2009.digits_data import FILE, INK, Digits, DigitSplit, draw_split, read_digits
from fieldfit import (
    Bethe,
    ConvergenceWarning,
    Convex,
    GridCRF,
    ImplicitLoss,
    Likelihood,
    ProceduralLoss,
    PseudoLikelihood,
    SumProduct,
)
from fieldfit.objectives import Objective

FloatArray = NDArray[np.float64]

#: The method whose weights all others start from.
CONVEX = "convex"
WITH_ENTROPY = "ucl+entropy"
LOSSES = ("ucl", "ccl", "uquad", "cquad")
N_ITERATIONS = (1, 2, 3, 4)
#: ``w(y_c) = 1, w(y_i) = .01`` of section 6.2.
ENTROPY = Convex(unary=0.01, factor=1.0)
#: Errors of pixels do not change with beliefs that are closer than this.
BELIEF_TOL = 1e-5
#: The value of an implicit loss, unlike a likelihood, is only as exact as the beliefs.
IMPLICIT_TOL = 1e-6
#: Beliefs of Bethe's entropy that have not settled by then circle.
LOOPY = SumProduct(entropy=Bethe(), tol=BELIEF_TOL, max_iter=200)


@dataclass(frozen=True)
class Method:
    """A row of the table.

    ``family`` is a heading of the report; ``start`` the method whose weights are taken first;
    ``predict`` an objective whose inference predicts, if not that of the fit.
    """

    family: str
    objective: Objective
    start: str | None = CONVEX
    predict: Objective | None = None


@dataclass(frozen=True)
class Limits:
    """Of every fit: penalty, and when the learner stops."""

    l2: float = 1.0
    max_iter: int = 100
    tol: float = 1e-3
    n_jobs: int | None = None


def procedural(loss: str, n_iterations: int) -> ProceduralLoss:
    """``n_iterations`` of the thesis, each down and up the whole grid."""
    return ProceduralLoss(loss, n_sweeps=n_iterations, order="grid")


def _methods() -> dict[str, Method]:
    likelihood, implicit, procedure = "likelihood", "implicit fitting", "procedural fitting"
    methods = {
        "pseudo": Method(likelihood, PseudoLikelihood(), start=None, predict=Likelihood(LOOPY)),
        CONVEX: Method(
            likelihood, Likelihood(SumProduct(entropy=ENTROPY, tol=BELIEF_TOL)), start=None
        ),
        "lbp": Method(likelihood, Likelihood(LOOPY)),
    }
    for loss in LOSSES:
        # messages do not settle in a thousand sweeps under an entropy with so little of variables
        objective = ImplicitLoss(loss, entropy=ENTROPY, solver="primal", tol=IMPLICIT_TOL)
        methods[loss] = Method(implicit, objective)
    entropy = ImplicitLoss("ucl", entropy=ENTROPY, fit_entropy=True, tol=IMPLICIT_TOL)
    methods[WITH_ENTROPY] = Method(implicit, entropy, start="ucl")
    for loss in LOSSES:
        for n_iterations in N_ITERATIONS:
            methods[f"{loss}-{n_iterations}"] = Method(procedure, procedural(loss, n_iterations))
    return methods


METHODS: dict[str, Method] = _methods()
#: Fits for losses that the thesis prints few figures of.
SIDE_METHODS = tuple(name for name in METHODS if name.startswith(LOSSES[1:]))


def fit_method(
    method: Method, split: DigitSplit, limits: Limits, start: FloatArray | None
) -> tuple[GridCRF, float]:
    """A field fitted to the training pictures, ready to predict, and the seconds that it took.

    Unary potentials are a table of label and noisy pixel; horizontal and vertical pairs have a
    table each.
    """
    crf = GridCRF(
        objective=method.objective,
        l2=limits.l2,
        max_iter=limits.max_iter,
        tol=limits.tol,
        n_jobs=limits.n_jobs,
    )
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the row says so
        crf.fit(list(split.noisy_train), list(split.train), start=start)
    seconds = time.perf_counter() - began
    if method.predict is not None:
        crf.set_params(objective=method.predict)
    return crf, seconds


def held_out_split(split: DigitSplit) -> DigitSplit:
    """Every third training picture in place of those of the test."""
    left_out = np.arange(len(split.train)) % 3 == 2
    return DigitSplit(
        split.train[~left_out], split.noisy_train[~left_out],
        split.train[left_out], split.noisy_train[left_out],
    )  # fmt: skip


def belief_scores(beliefs: FloatArray, truth: NDArray[Any]) -> dict[str, float]:
    """Univariate losses for a pixel: errors, logarithmic and quadratic."""
    right = np.take_along_axis(beliefs, truth[..., None], axis=-1)[..., 0]
    return {
        "uclass": float(np.mean(beliefs.argmax(axis=-1) != truth)),
        "ucl": float(-np.log(np.maximum(right, 1e-300)).mean()),
        "uquad": float(np.mean((beliefs**2).sum(axis=-1) - 2.0 * right)),
    }


class DigitDesign(Protocol):
    """Pictures of each digit, and limits of every fit."""

    @property
    def n_each(self) -> int: ...

    @property
    def limits(self) -> Limits: ...


Design = TypeVar("Design", bound=DigitDesign)


class DigitPlan(Plan[Design]):
    """What the experiments on digits share."""

    @cached_property
    def digits(self) -> Digits:
        """All pictures."""
        return read_digits(self.settings.data_folder / FILE)

    @property
    def limits(self) -> Limits:
        """Of every fit."""
        return replace(self.design.limits, n_jobs=self.settings.n_jobs)

    def few(self, noise: float) -> DigitSplit:
        """Two pictures, to compile with."""
        split = self.split(0, noise)
        return DigitSplit(
            split.train[:2], split.noisy_train[:2], split.test[:2], split.noisy_test[:2]
        )

    def split(self, repeat: int, noise: float, ink: int = INK) -> DigitSplit:
        """One choice of pictures, at one level of noise."""
        seed = (self.settings.seed, repeat)
        return self.kept(
            "split",
            (repeat, noise, ink),
            lambda: draw_split(self.digits, self.design.n_each, noise, seed, ink),
        )
