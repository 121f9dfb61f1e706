"""One method within its time: a penalty by successive halving, then a fit for each fold.

All penalties get a few iterations; the better half of them, by held-out examples of the first fold,
goes on with twice as many, until one is left (Jamieson and Talwalkar, "Non-stochastic best arm
identification and hyperparameter optimization", AISTATS 2016).  It is then fitted to the end.  Of
the time, 40 % are for the search and 40 % for the fits of the folds, which share it; the rest is
for scoring.  Bounds on the likelihood are left out where the time is over.  Kernels are compiled
before the time begins.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fieldfit._typing import FloatArray
from fieldfit.comparison.held_out_scores import (
    HeldOutScores,
    held_out_errors,
    held_out_scores,
)
from fieldfit.comparison.method_candidates import BASELINE
from fieldfit.errors import InvalidInputError, MissingDependencyError, TooLargeError
from fieldfit.learners.loop import time_limit
from fieldfit.models.penalties import RelativePenalty, require_uninterrupted

__all__ = ["Data", "Fold", "MethodRow", "Task", "run_method"]

#: Iterations of the first round of the search.
FIRST_ITERATIONS = 15
SEARCH_SHARE, SCORING_SHARE = 0.4, 0.2
#: A fit of the search may be this much less accurate than the last one.
SEARCH_TOL = 1e-3
#: No limit is shorter: a fit that has not begun has nothing to show.
LEAST_SECONDS = 0.1
#: Examples and samples that kernels are compiled on, and a limit that is none.
FEW_EXAMPLES, FEW_SAMPLES, PATIENT = 2, 200, 1e9
#: What a method may end with on data of the user that others manage.
FAILURES = (
    *(InvalidInputError, TooLargeError, MissingDependencyError),
    *(MemoryError, FloatingPointError, np.linalg.LinAlgError),
)


@dataclass(frozen=True)
class Data:
    """Examples and their labels; samples have no ``Y``."""

    X: Any
    Y: Any = None

    def __len__(self) -> int:
        return len(self.X)

    def part(self, chosen: NDArray[np.intp]) -> Data:
        return Data(_rows(self.X, chosen), None if self.Y is None else _rows(self.Y, chosen))


def _rows(given: Any, chosen: NDArray[np.intp]) -> Any:
    if hasattr(given, "iloc"):
        return given.iloc[chosen]
    if isinstance(given, np.ndarray) and given.dtype != object:
        return given[chosen]
    return [given[index] for index in chosen]


@dataclass(frozen=True)
class Fold:
    """Examples to learn from, and examples to be scored on."""

    train: Data
    held_out: Data


@dataclass(frozen=True)
class Task:
    """What all methods are given.

    ``options`` are those that follow from all examples together (the number of labels),
    ``fit_options`` arguments of ``fit``; ``measure`` is the one that counts, ``"error"`` or
    ``"log_loss"``.
    """

    estimator: Any
    folds: Sequence[Fold]
    test: Data | None
    options: Mapping[str, Any]
    fit_options: Mapping[str, Any]
    measure: str


@dataclass
class MethodRow:
    """What a method has come to.

    Attributes
    ----------
    method
        Name of the objective.
    failed
        Why it has no scores; empty if it has.
    l2
        The penalty that was chosen.
    scores, test
        On held-out examples of all folds, and on test examples, of the fit of the first fold.
    seconds, seconds_of_fit
        By the clock, in all and of the fit of the first fold from its first to its last iteration.
    converged, n_iter, status, unconverged
        Of the fit of the first fold; ``unconverged`` is the share of examples whose inference had
        not converged at its end.
    search
        One row for each fit of the search.
    """

    method: str
    failed: str = ""
    l2: Any = None
    scores: HeldOutScores | None = None
    test: HeldOutScores | None = None
    seconds: float = 0.0
    seconds_of_fit: float = 0.0
    converged: bool = False
    n_iter: int = 0
    unconverged: float = 0.0
    status: str = ""
    search: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        row = dict(vars(self))
        row["l2"] = vars(self.l2) if isinstance(self.l2, RelativePenalty) else self.l2
        for name in ("scores", "test"):
            row[name] = None if row[name] is None else row[name].as_json()
        return row

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        row = dict(stored)
        if isinstance(row["l2"], dict):
            row["l2"] = RelativePenalty(**row["l2"])
        for name in ("scores", "test"):
            row[name] = None if row[name] is None else HeldOutScores.from_json(row[name])
        return cls(**row)


def run_method(task: Task, method: str, candidates: Sequence[Any], seconds: float) -> MethodRow:
    """Search, fit, score; what goes wrong is part of the row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the row has the status
        _compile_kernels(task, method, candidates[0])
    row, begin = MethodRow(method), time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _run(task, row, candidates, seconds)
    except FAILURES as error:
        row.failed = " ".join(str(error).split()) or type(error).__name__
    row.seconds = time.monotonic() - begin
    return row


def _compile_kernels(task: Task, method: str, l2: Any) -> None:
    """One iteration on a few examples: compilation, once on a machine, is not the method's time."""
    train = task.folds[0].train
    few = train.part(np.arange(min(len(train), FEW_SAMPLES if train.Y is None else FEW_EXAMPLES)))
    with suppress(*FAILURES):  # which the row will have
        model = _fit(task, method, few, PATIENT, None, l2=l2, max_iter=1)
        held_out_scores(model, few.X, few.Y)


def _run(task: Task, row: MethodRow, candidates: Sequence[Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    last_fit = end - SCORING_SHARE * seconds
    first = _chosen(task, row, candidates, SEARCH_SHARE * seconds)
    row.l2, parts = first.l2, []
    for index, fold in enumerate(task.folds):
        share = (last_fit - time.monotonic()) / (len(task.folds) - index)
        model = _fit(task, row.method, fold.train, share, first.weights, l2=first.l2)
        parts.append(_scores(model, fold.held_out, end))
        if index == 0:
            _describe(row, model)
            if task.test is not None:
                row.test = _scores(model, task.test, end)
        first.weights = None  # of another fold: it has seen the examples that are held out now
    row.scores = HeldOutScores.joined(parts)


def _scores(model: Any, data: Data, end: float) -> HeldOutScores:
    return held_out_scores(model, data.X, data.Y, with_bounds=time.monotonic() < end)


def _describe(row: MethodRow, model: Any) -> None:
    last = model.trace_[-1] if model.trace_ else {}
    row.converged, row.n_iter, row.status = bool(model.converged_), model.n_iter_, model.status_
    row.seconds_of_fit = float(last.get("seconds", 0.0))
    row.unconverged = float(last.get("unconverged", 0.0))


# -- the search ------------------------------------------------------------------------------


@dataclass
class _Trial:
    """A penalty and how far its fit has come."""

    l2: Any
    weights: FloatArray | None = None
    loss: float = np.inf
    converged: bool = False


def _chosen(task: Task, row: MethodRow, candidates: Sequence[Any], seconds: float) -> _Trial:
    """The penalty that does best on held-out examples of the first fold."""
    begin, n_iter = time.monotonic(), FIRST_ITERATIONS
    alive = [_Trial(l2) for l2 in candidates]
    n_rounds = int(np.ceil(np.log2(max(len(alive), 1))))
    for round_number in range(n_rounds):
        until = begin + seconds * (round_number + 1) / n_rounds
        for index, trial in enumerate(alive):
            if trial.converged:
                continue
            share = (until - time.monotonic()) / (len(alive) - index)
            if share <= 0 and index > 0:
                break  # the others stay as they were
            _advance(task, row, trial, n_iter, share)
        # of equals the stronger penalty, which comes first
        alive = sorted(alive, key=lambda trial: trial.loss)[: -(-len(alive) // 2)]
        n_iter *= 2
    return alive[0]


def _advance(task: Task, row: MethodRow, trial: _Trial, n_iter: int, seconds: float) -> None:
    fold, begin = task.folds[0], time.monotonic()
    options = {
        "l2": trial.l2,
        "max_iter": n_iter,
        "tol": max(SEARCH_TOL, task.estimator.tol),
    }
    model = _fit(task, row.method, fold.train, seconds, trial.weights, **options)
    scores = held_out_errors(model, fold.held_out.X, fold.held_out.Y)
    trial.loss = scores.mean(task.measure)
    trial.weights, trial.converged = model.weights_, bool(model.converged_)
    row.search.append(
        {
            "l2": str(trial.l2),
            "n_iter": model.n_iter_,
            task.measure: trial.loss,
            "converged": trial.converged,
            "seconds": time.monotonic() - begin,
        }
    )


def _fit(
    task: Task, method: str, train: Data, seconds: float, start: FloatArray | None, **options: Any
) -> Any:
    """A fit that ends in time."""
    model = clone(task.estimator).set_params(
        objective=method, learner=None, verbose=0, **task.options, **options
    )
    fit_options: dict[str, Any] = {**task.fit_options, "start": start}
    if train.Y is None and method == BASELINE:
        fit_options["edges"] = np.zeros((0, 2), dtype=np.int64)
    with time_limit(max(seconds, LEAST_SECONDS)):
        given = (train.X,) if train.Y is None else (train.X, train.Y)
        model.fit(*given, **fit_options)
    require_uninterrupted(model)
    return model
