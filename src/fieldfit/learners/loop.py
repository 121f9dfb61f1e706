"""The training loop of all learners: trace, progress bar, early stopping, checkpoints, interrupts.

A learner supplies a `Method`, its state between two iterations; `Run` does the rest, so that every
learner keeps the same promises.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit._validation import require_integer, require_number
from fieldfit.errors import CheckpointWarning, FileWriteError
from fieldfit.learners.base import Fit, Penalty, Validation, checked_start
from fieldfit.learners.checkpoint import Checkpoint, State
from fieldfit.learners.problem import Problem

__all__ = ["Method", "Options", "Outcome", "Row", "Run", "require_options", "time_limit"]

#: One line of the trace.
Row = dict[str, Any]

#: Iterations at the end of a run that say how fast the objective falls ...
RECENT = 6
#: ... which is slow if it falls by less than this share of itself in one of them.
SLOW = 1e-6

#: When the fits of this thread have to end (`time.monotonic`), and the limit that said so.
_DEADLINE: ContextVar[tuple[float, float] | None] = ContextVar("deadline", default=None)


def time_limit(seconds: float) -> AbstractContextManager[None]:
    """Fits inside end after the iteration in which so many seconds (of the clock) have passed.

    A fit that is ended keeps its weights; ``converged_`` is False and ``status_`` says why.  All
    fits inside share the time, also those of a search for penalties.  Of two limits, one inside the
    other, the one that ends first counts.

    Parameters
    ----------
    seconds
        Above 0.

    Returns
    -------
    context manager
        For a ``with`` block.

    Examples
    --------
    >>> import fieldfit as ff
    >>> with ff.learners.time_limit(60.0):
    ...     crf = ff.ChainCRF().fit([[["a"], ["b"]]], [["A", "B"]])
    """
    require_number("seconds", seconds, above=0)
    return _limited(float(seconds))


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    outer = _DEADLINE.get()
    own = (time.monotonic() + seconds, seconds)
    token = _DEADLINE.set(own if outer is None else min(own, outer))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def _exceeded_limit() -> float | None:
    """The limit of `time_limit` that has passed, if any."""
    given = _DEADLINE.get()
    return given[1] if given is not None and time.monotonic() >= given[0] else None


#: Warm starts are reset after so many iterations, so that whoever replays them (`fieldfit.shards`)
#: has no more to replay; without a checkpoint too, and in memory, so that the bits are the same.
#: An evaluation without them takes about a third longer, so this costs less than a hundredth.
LOG_ITERATIONS = 100
#: ... or after fewer, so that the weights that are kept for it take about so many bytes at most.
LOG_BYTES = 2**30


@dataclass(frozen=True)
class Outcome:
    """Why a run ended by itself."""

    converged: bool
    status: str


class Method(ABC):
    """A learner in progress.

    ``outcome`` is set when the method can or need not go on.  ``is_consistent`` is False while the
    state is being changed: an interrupt at such a moment writes no checkpoint.
    """

    outcome: Outcome | None = None
    is_consistent: bool = True
    #: True: ``max_iter`` is far beyond what is to be expected, so no share of it is shown.
    is_open_ended: bool = False

    @abstractmethod
    def begin(self, start: FloatArray) -> None:
        """Take the first weights."""

    @abstractmethod
    def step(self) -> Row:
        """One iteration; the row holds objective, gradient norm or gap, and unconverged share."""

    @property
    @abstractmethod
    def weights(self) -> FloatArray:
        """The answer if the run ended now; not to be changed."""

    @abstractmethod
    def state(self) -> State:
        """All that a later run needs in order to go on."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Take over what `state` gave."""

    def reset_warm_start(self) -> None:  # noqa: B027  (most methods evaluate nothing but the problem)
        """Drop what evaluations of its own keep (see `Problem.reset_warm_start`)."""


def restored_outcome(saved: State, name: str) -> Outcome | None:
    """How a run or a round had ended, or ``None`` if it had not."""
    if saved.value(name) is None:
        return None
    converged, status = saved.items(name, (bool, str), length=2)
    return Outcome(bool(converged), str(status))


class Options(Protocol):
    """What `Run` needs of a learner's options."""

    @property
    def max_iter(self) -> int: ...
    @property
    def patience(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def is_stochastic(self) -> bool: ...


class Run:
    """One run of a method, perhaps the continuation of an earlier one."""

    def __init__(
        self,
        options: Options,
        method: Method,
        problem: Problem,
        *,
        penalty: Penalty,
        checkpoint: str | PathLike[str] | None,
        validation: Validation | None,
        verbose: int,
    ) -> None:
        self.options = options
        self.method = method
        self.problem = problem
        self.validation = validation
        self.verbose = verbose
        self.trace: list[Row] = []
        self.best_score = -np.inf
        self.best_iter = 0
        self.best_weights: FloatArray | None = None
        self.is_interrupted = False
        #: Why it ended, if it was by a time limit.
        self.ended_by = ""
        self._checkpoint: Checkpoint | None = None
        self._written: tuple[int, bool] | None = None
        #: Why the last checkpoint is not on the disk.
        self._not_written: str | None = None
        if checkpoint is not None:
            self._checkpoint = Checkpoint.of(checkpoint, options, problem, penalty)

    def fit(self, start: FloatArray) -> Fit:
        """Iterate until the method ends, a limit is reached or the user interrupts."""
        start = checked_start(start, self.problem.n_weights)
        saved = None if self._checkpoint is None else self._checkpoint.read()
        if self._checkpoint is not None:
            # from here on the problem remembers nothing that the file does not hold
            self.problem.reset_warm_start()
        if saved is not None and self._checkpoint is not None:
            with self._checkpoint.located():
                self._restore(saved)
        begin = time.perf_counter() - (self.trace[-1]["seconds"] if self.trace else 0.0)
        try:
            if saved is None:
                self.method.begin(start)
            expected = None if self.method.is_open_ended else self.options.max_iter
            with _progress_bar(self.verbose, expected, len(self.trace)) as show:
                while self._may_go_on():
                    row = self.method.step()
                    row.update(self.problem.take_figures())
                    row["seconds"] = time.perf_counter() - begin
                    self.trace.append(row)
                    self._validate()
                    show(row)
                    if len(self.trace) % self.options.checkpoint_every == 0:
                        self._save()
                    if self.problem.is_replayed and len(self.trace) % self._log_iterations() == 0:
                        self._reset_warm_start()
        except KeyboardInterrupt:
            self.is_interrupted = True
        if self.method.is_consistent:
            self._save()
        return self._result()

    def _may_go_on(self) -> bool:
        if self.method.outcome is not None or len(self.trace) >= self.options.max_iter:
            return False
        limit = _exceeded_limit() if self.trace else None  # there is always a first iteration
        if limit is not None:
            done = f"stopped after {len(self.trace)} iterations"
            self.ended_by = f"{done} at the time limit of {limit:g} s"
        return limit is None

    # -- early stopping -------------------------------------------------------------------

    def _validate(self) -> None:
        if self.validation is None:
            return
        score = float(self.validation(self.method.weights))
        self.trace[-1]["validation"] = score
        if self.best_weights is None or score > self.best_score:
            self.best_score, self.best_iter = score, len(self.trace)
            self.best_weights = self.method.weights.copy()
        waited = len(self.trace) - self.best_iter
        if waited >= self.options.patience and self.method.outcome is None:
            self.method.outcome = Outcome(
                True, f"stopped early: the validation score did not improve in {waited} iterations"
            )

    # -- checkpoints ----------------------------------------------------------------------

    def _save(self) -> None:
        """Write what has changed since the last time, and let the problem start afresh."""
        now = (len(self.trace), self.method.outcome is not None)
        if self._checkpoint is None or now == self._written:
            return
        state = self.method.state()
        outcome = self.method.outcome
        numbers: dict[str, Any] = {
            "method": state.numbers,
            "trace": self.trace,
            "outcome": None if outcome is None else [outcome.converged, outcome.status],
            "best": None,
        }
        arrays = {f"method.{name}": array for name, array in state.arrays.items()}
        if self.best_weights is not None:
            numbers["best"] = [self.best_score, self.best_iter]
            arrays["best_weights"] = self.best_weights
        self._write(State(arrays, numbers))
        self._written = now
        self._reset_warm_start()

    def _reset_warm_start(self) -> None:
        self.problem.reset_warm_start()
        self.method.reset_warm_start()

    def _log_iterations(self) -> int:
        """Iterations whose weights may have to be replayed; a function of the problem alone."""
        steps = self.problem.n_parts if self.options.is_stochastic else 1
        return min(LOG_ITERATIONS, max(1, LOG_BYTES // (8 * self.problem.n_weights * steps + 1)))

    def _write(self, state: State) -> None:
        """A checkpoint that cannot be written costs no weights: a warning, and learning goes on."""
        assert self._checkpoint is not None
        try:
            self._checkpoint.write(state)
        except FileWriteError as error:
            if self._not_written is None:
                warnings.warn(
                    f"{error}; learning goes on without this checkpoint",
                    CheckpointWarning,
                    stacklevel=2,
                )
            self._not_written = str(error)
        else:
            self._not_written = None

    def _restore(self, saved: State) -> None:
        self.method.restore(saved.part("method.", saved.value("method")))
        self.trace = saved.items("trace", dict)
        for row in self.trace:
            entries = State({}, row)
            entries.number("seconds")
            entries.number("unconverged")
        self.method.outcome = restored_outcome(saved, "outcome")
        if saved.value("best") is not None:
            score, self.best_iter = saved.items("best", float, length=2)
            self.best_score = float(score)
            self.best_weights = saved.array("best_weights", (self.problem.n_weights,))
        self._written = (len(self.trace), self.method.outcome is not None)

    # -- result ---------------------------------------------------------------------------

    def _result(self) -> Fit:
        outcome, n_iter = self.method.outcome, len(self.trace)
        if outcome is not None:
            status = outcome.status
        elif self.is_interrupted:
            status = f"interrupted after {n_iter} iterations"
        elif self.ended_by:
            status = f"{self.ended_by}, without convergence"
        else:
            status = f"stopped at max_iter={self.options.max_iter} without convergence"
            status += _remedy(self.trace, self.options.max_iter)
        weights = self.method.weights
        if self.best_weights is not None:
            weights = self.best_weights
            status += (
                f"; the weights are those of iteration {self.best_iter}, which have the best "
                f"validation score, {self.best_score:.6g}"
            )
        restarts = self.trace[-1].get("restarts", 0) if self.trace else 0
        if restarts:
            status += (
                f"; inference was started afresh {restarts} time{'s' if restarts > 1 else ''}, "
                "because it had moved to another fixed point"
            )
        share = self.trace[-1]["unconverged"] if self.trace else 0.0
        if share > 0:
            status += (
                f"; the inference of {100 * share:.3g} % of the examples had not converged in the "
                "last iteration"
            )
        if self._not_written is not None:
            status += f"; the last checkpoint is missing, {self._not_written}"
        converged = outcome is not None and outcome.converged
        return Fit(weights.copy(), n_iter, converged, status + ".", self.trace)


def _remedy(trace: list[Row], max_iter: int) -> str:
    """What to do about a run that ended at ``max_iter``, by the last rows of its trace."""
    if not trace:
        return ""
    more = f"raise max_iter to {2 * max_iter}, say"
    if trace[-1]["unconverged"] > 0:
        return f": gradients of unconverged inference are inexact, so loosen tol, or {more}"
    if "gap" in trace[-1]:
        return f": the gap is still {trace[-1]['gap']:.2g}, {more}, or loosen tol"
    values = [row["objective"] for row in trace[-RECENT:]]
    if None in values or len(values) < 2 or not np.isfinite(values).all():
        return f": {more}, or loosen tol"
    fall = (values[0] - values[-1]) / (len(values) - 1)
    if fall < 0:
        steps = "take smaller steps (an option of the learner)"
        return f": the objective rose by {-fall:.2g} per iteration at last, {steps} or {more}"
    if fall <= SLOW * abs(values[-1]):
        slowly = f"fell by only {fall:.2g} per iteration at last"
        return f": the objective {slowly}, loosen tol, or {more}"
    return f": the objective still fell by {fall:.2g} per iteration, {more}"


@contextmanager
def _progress_bar(verbose: int, max_iter: int | None, n_done: int) -> Iterator[Any]:
    """A function that shows a row of the trace."""
    if verbose <= 0:
        yield lambda row: None
        return
    from tqdm import tqdm

    with tqdm(total=max_iter, initial=n_done, unit="iteration") as bar:

        def show(row: Row) -> None:
            shown = {"|gradient|": f"{row['gradient_norm']:.3g}"} if "gradient_norm" in row else {}
            if "gap" in row:
                shown["gap"] = f"{row['gap']:.3g}"
            if row["objective"] is not None:
                shown = {"objective": f"{row['objective']:.8g}", **shown}
            if "stage" in row:
                shown = {"stage": row["stage"], **shown}
            if "validation" in row:
                shown["validation"] = f"{row['validation']:.5g}"
            if row["unconverged"] > 0:
                shown["unconverged"] = f"{row['unconverged']:.1%}"
            for name in ("workers", "replays"):
                if name in row:
                    shown[name] = str(row[name])
            bar.set_postfix(shown, refresh=False)
            bar.update()

        yield show


def require_options(options: Options) -> None:
    """Refuse limits that make no sense."""
    for name, least in (("max_iter", 0), ("patience", 1), ("checkpoint_every", 1)):
        require_integer(name, getattr(options, name), at_least=least)
