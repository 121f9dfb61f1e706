"""Hidden variables: a layer of hidden units over digits, learned by contrasts and exactly.

Welling and Sutton (2005) treat hidden variables in their formulas and leave experiments to future
work.  Here is one: a restricted Boltzmann machine over the pixels of small digits.  Every method
sees the pixels only; hidden units are relaxed first with the pixels held, and then everything is.
The machine is small enough for the exact gradient and the exact likelihood of new digits, so the
methods can be compared by what they are after.
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
from experiments.welling_sutton2005.hidden.report import (
    INDEPENDENT,
    Machine,
    filters,
    headline,
    likelihood_bars,
    report,
    table,
)
from fieldfit import (
    LBFGS,
    Adam,
    ContrastiveDivergence,
    ContrastiveFreeEnergy,
    ConvergenceWarning,
    IsingModel,
    Likelihood,
)
from fieldfit.learners import Learner
from fieldfit.objectives import Objective

FloatArray = NDArray[np.float64]

#: Objective of each method; names are those of ``results.csv``.
METHODS: dict[str, Objective] = {
    "exact": Likelihood(),
    "CD1": ContrastiveDivergence(1),
    "CD10": ContrastiveDivergence(10),
    "PCD1": ContrastiveDivergence(1, persistent=True),
    "CF1-mf": ContrastiveFreeEnergy("mean-field", n_steps=1),
    "CF5-mf": ContrastiveFreeEnergy("mean-field", n_steps=5),
    "CF1-bethe": ContrastiveFreeEnergy("bethe", n_steps=1),
    "CF5-bethe": ContrastiveFreeEnergy("bethe", n_steps=5),
}


#: A pixel is used if it is black, and white, in at least this share of the digits.
RARE = 0.02


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``n_pixels`` is the number of rows and of columns of a digit; ``n_epochs`` those of the
    methods that draw, ``max_iter`` the iterations of the others.
    """

    n_training: int = 1200
    n_test: int = 500
    n_pixels: int = 8
    n_hidden: int = 8
    n_repeats: int = 3
    l2: float = 1.0
    max_iter: int = 80
    n_epochs: int = 100
    methods: tuple[str, ...] = tuple(METHODS)


#: How many times as many iterations the exact gradient has: it is the reference.
EXACT_SHARE = 5
#: Steps of Adam, for chains that start at the data, and for chains that are kept: these must not
#: fall behind the weights.
STEP, PERSISTENT_STEP = 0.05, 0.02
FULL = Design()
QUICK = Design(
    n_training=300, n_test=200, n_pixels=4, n_hidden=4, n_repeats=1, max_iter=60, n_epochs=200
)


class HiddenUnits(Plan[Design]):
    """A task is one method on one random split; all methods begin at the same random weights."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """Splits and methods."""
        repeats = range(self.design.n_repeats)
        return [
            (repeat, name) for repeat in repeats for name in (INDEPENDENT, *self.design.methods)
        ]

    def run_task(self, task: Task, results: Results) -> Result:
        """The row of a method; couplings of the first split are kept for the figure."""
        repeat, method, design = int(task[0]), str(task[1]), self.design
        pixels, _ = self.pixels
        order = np.random.default_rng([self.settings.seed, repeat]).permutation(len(pixels))
        training = pixels[order[: design.n_training]]
        test = pixels[order[design.n_training : design.n_training + design.n_test]]
        if method == INDEPENDENT:
            return Result([_independent(training, test, repeat)])
        n_visible, n_hidden = pixels.shape[1], design.n_hidden
        model = IsingModel(
            METHODS[method],
            l2=design.l2,
            learner=_learner(method, design, repeat),
            random_state=self.settings.seed + repeat,
            n_jobs=self.settings.n_jobs,
        )
        begin = time.perf_counter()
        with warnings.catch_warnings():
            # whether it converged is a column of the results
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(with_hidden(training, n_hidden), edges=layer_edges(n_visible, n_hidden))
        seconds = time.perf_counter() - begin
        row = {
            "method": method,
            "repeat": repeat,
            "seconds": seconds,
            "converged": bool(model.converged_),
            "n_iter": int(model.n_iter_),
            "log_likelihood": _mean_log_likelihood(model, test, n_hidden),
            "training_log_likelihood": _mean_log_likelihood(model, training, n_hidden),
        }
        couplings = model.weight_blocks_["couplings"].reshape(n_visible, n_hidden)
        return Result([row], arrays={} if repeat else {"couplings": couplings})

    def outcome(self, results: Results) -> Outcome:
        rows, design = results.rows(), self.design
        pixels, used = self.pixels
        machine = Machine(
            pixels.shape[1],
            design.n_hidden,
            design.n_training,
            design.n_test,
            design.n_repeats,
            design.l2,
        )
        couplings = {name: results[0, name].arrays["couplings"] for name in design.methods}
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, machine),
            figures={
                "likelihood": likelihood_bars(rows),
                "filters": filters(couplings, used.reshape(design.n_pixels, -1)),
            },
            headline=headline(rows),
        )

    @cached_property
    def pixels(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """All digits, and which pixels are used."""
        return binary_digits(self.design.n_pixels)


def binary_digits(n_pixels: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Scikit-learn's digits in black and white, one row each, and which pixels are used.

    With 4 pixels a side they are means of 2x2.  Pixels at the border that are hardly ever black
    are left out: in a random half they might not vary at all.
    """
    from sklearn.datasets import load_digits

    images = load_digits().images
    share = 8 // n_pixels
    images = images.reshape(len(images), n_pixels, share, n_pixels, share).mean(axis=(2, 4))
    found = (images > 8.0).astype(np.int64).reshape(len(images), -1)
    black = found.mean(axis=0)
    used = (black >= RARE) & (black <= 1.0 - RARE)
    return found[:, used], used


def layer_edges(n_visible: int, n_hidden: int) -> NDArray[np.int64]:
    """Every pixel with every hidden unit; hidden units come after the pixels."""
    visible, hidden = np.meshgrid(np.arange(n_visible), np.arange(n_hidden), indexing="ij")
    return np.stack([visible.ravel(), n_visible + hidden.ravel()], axis=1)


def with_hidden(pixels: NDArray[np.int64], n_hidden: int) -> FloatArray:
    """Samples with a column of missing values for each hidden unit."""
    return np.hstack([pixels.astype(np.float64), np.full((len(pixels), n_hidden), np.nan)])


def _learner(method: str, design: Design, repeat: int) -> Learner:
    objective = METHODS[method]
    if isinstance(objective, ContrastiveDivergence):
        step = PERSISTENT_STEP if objective.persistent else STEP
        return Adam(max_iter=design.n_epochs, step=step, random_state=repeat)
    more = EXACT_SHARE if method == "exact" else 1
    return LBFGS(max_iter=more * design.max_iter, tol=1e-4)


def _mean_log_likelihood(model: IsingModel, pixels: NDArray[np.int64], n_hidden: int) -> float:
    """Exact, per digit, hidden units summed out."""
    return model.log_likelihood(with_hidden(pixels, n_hidden)) / len(pixels)


def _independent(
    training: NDArray[np.int64], test: NDArray[np.int64], repeat: int
) -> dict[str, Any]:
    """Independent pixels: the baseline without hidden units."""
    share = (training.sum(axis=0) + 0.5) / (len(training) + 1.0)

    def log_likelihood(pixels: NDArray[np.int64]) -> float:
        return float(np.mean(pixels @ np.log(share) + (1 - pixels) @ np.log1p(-share)))

    return {
        "method": INDEPENDENT,
        "repeat": repeat,
        "seconds": 0.0,
        "converged": True,
        "n_iter": 0,
        "log_likelihood": log_likelihood(test),
        "training_log_likelihood": log_likelihood(training),
    }
