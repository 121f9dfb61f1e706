"""Where shards are evaluated: a process that keeps what it can and replays what it lacks.

    messages after evaluation k = a function of (shard, weights of evaluations 1..k since the reset)

A `Workplace` holds some shards in memory, and warm starts of all that it has evaluated, in memory
or in scratch files.  A request names the shard, the number of the evaluation since the reset, and
the weights of that evaluation, perhaps with those before it.  Whoever lacks the state of the
evaluation before replays the log; so a lost worker changes the time of a fit and not its bits.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._parallel import one_blas_thread
from fieldfit._typing import FloatArray
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.learners.problem import Problem, ProblemValue
from fieldfit.objectives.base import Objective
from fieldfit.shards.problem_files import ProblemFile, StoredProblem
from fieldfit.shards.reading import Shards
from fieldfit.shards.state_files import StateFile

__all__ = ["Answer", "Call", "Job", "Request", "Workplace", "packed", "serve", "unpacked"]


class Call(NamedTuple):
    """An evaluation of a shard: of one mini-batch, or of all of it (``None``)."""

    part: int | None
    weights: FloatArray


class Request(NamedTuple):
    """Evaluate a shard; ``calls`` are the last ones up to number ``serial`` since the reset."""

    shard: int
    reset: int
    serial: int
    calls: tuple[Call, ...]

    @property
    def is_whole_log(self) -> bool:
        return len(self.calls) == self.serial


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    ``value`` is ``None`` where the state of the evaluation before is missing, where the shard could
    not be read (``trouble`` says why) and where its evaluation failed (``error``).  ``is_warm``:
    the shard keeps a state.
    """

    shard: int
    value: ProblemValue | None = None
    is_warm: bool = True
    seconds: float = 0.0
    replay_seconds: float = 0.0
    n_replayed: int = 0
    trouble: str = ""
    error: str = ""


@dataclass
class _State:
    """Which evaluation a shard has seen last, and what of it is in files and not in memory.

    ``file`` has its warm start, ``prepared`` says where the rest is, if that is worth keeping.
    """

    reset: int = -1
    serial: int = 0
    is_warm: bool = False
    file: StateFile | None = None
    prepared: StoredProblem | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Workplace:
    """Shards of one fit in one process.

    ``estimator`` knows its model (`_open_shards` has been called) and makes problems of shards.
    """

    def __init__(self, shards: Shards, estimator: Any, objective: Objective) -> None:
        self.shards = shards
        self.estimator = estimator
        self.objective = objective
        self._problems: dict[int, Problem] = {}
        self._bytes = 0.0
        self._states: dict[int, _State] = {}
        self._unions: dict[tuple[int, ...], Any] = {}
        self._problem_file: ProblemFile | None = None
        self._lock = threading.Lock()

    def evaluate(self, request: Request) -> Answer:
        """Value and gradient over a shard, after a replay where it is needed."""
        with self._lock:
            state = self._states.setdefault(request.shard, _State())
        with state.lock, one_blas_thread():
            return self._evaluate(request, state)

    def _evaluate(self, request: Request, state: _State) -> Answer:
        shard, first = request.shard, request.serial - len(request.calls)
        known = state.serial if state.reset == request.reset else 0
        if known >= request.serial:  # the same request came twice: its state is of later numbers
            known = 0
        if known < first:
            return Answer(shard)
        begin = time.perf_counter()
        problem = self._problem(shard, state)
        if known == 0:
            problem.reset_warm_start()
        state.reset, state.serial = -1, 0  # until it is known how this ends
        *log, last = request.calls[known - first :]
        for call in log:
            _value(problem, call)
        middle = time.perf_counter()
        value = _value(problem, last)
        self._keep(shard, problem, state)
        state.reset, state.serial = request.reset, request.serial
        return Answer(
            shard,
            value,
            state.is_warm,
            time.perf_counter() - middle,
            middle - begin if log else 0.0,
            len(log),
        )

    def _problem(self, shard: int, state: _State) -> Problem:
        """The sum over a shard, with its warm start."""
        problem = self._problems.get(shard)
        if problem is None:
            if state.prepared is None or self._problem_file is None:
                problem = self.load(shard)
            else:
                problem = self._problem_file.load(state.prepared)
            if state.file is not None:
                problem.give_warm_start(state.file.load(problem.graphs()))
        return problem

    def load(self, shard: int) -> Problem:
        """The sum over a shard, read from its file."""
        stored = self.shards.read(shard)
        manifest = self.shards.manifest
        try:
            made: Problem = self.estimator._shard_problem(
                self.objective, stored, manifest.n_examples, self._unions
            )
        except FileFormatError as error:
            path = self.shards.folder / manifest.shards[shard].file
            raise FileFormatError(f"{path}: {error}") from None
        return made

    def _keep(self, shard: int, problem: Problem, state: _State) -> None:
        """Leave a shard in memory if there is room, and its warm start in a file otherwise."""
        if shard in self._problems:
            return
        entry = self.shards.manifest.shards[shard]
        n_bytes = entry.n_bytes + self.estimator._shard_bytes(entry.n_variables, entry.n_edges)
        with self._lock:
            has_room = self._bytes + n_bytes <= self.shards.memory
            if has_room:
                self._bytes += n_bytes
                self._problems[shard] = problem
        warm_start = problem.take_warm_start()
        state.is_warm, state.file = warm_start is not None, None
        if has_room:
            problem.give_warm_start(warm_start)
            return
        if warm_start is not None:
            state.file = StateFile(warm_start, problem.graphs(), self.shards.scratch)
        if self.estimator._has_own_graphs and state.prepared is None:
            with self._lock:
                if self._problem_file is None:
                    self._problem_file = ProblemFile(self.shards.scratch)
            state.prepared = self._problem_file.store(problem)


def _value(problem: Problem, call: Call) -> ProblemValue:
    if call.part is None:
        return problem.evaluate(call.weights)
    return problem.evaluate_part(call.weights, call.part)


# -- What travels between processes --------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A fit as its workers need it; ``estimator`` has options only."""

    run: str
    folder: str
    memory: float
    scratch: str | None
    digest: str
    estimator: Any
    objective: Objective


#: Workplaces of the fits that this process works for, the latest last.
_WORKPLACES: OrderedDict[str, Workplace] = OrderedDict()
_WORKPLACES_LOCK = threading.Lock()
#: Fits whose shards and messages a worker keeps.
MAX_WORKPLACES = 2


def serve(job: Job, requests: Sequence[Request]) -> list[Answer]:
    """Evaluate some shards in a worker; failures are answers too, so that they arrive as such."""
    answers = []
    for request in requests:
        try:
            answers.append(packed(_workplace(job).evaluate(request)))
        except (FileFormatError, OSError) as error:
            answers.append(Answer(request.shard, trouble=str(error) or type(error).__name__))
        except Exception as error:
            name = "" if isinstance(error, InvalidInputError) else f"{type(error).__name__}: "
            answers.append(Answer(request.shard, error=f"{name}{error}"))
    return answers


def _workplace(job: Job) -> Workplace:
    with _WORKPLACES_LOCK:
        if job.run not in _WORKPLACES:
            shards = Shards(job.folder, memory=job.memory, scratch=job.scratch)
            if shards.manifest.digest() != job.digest:
                raise FileFormatError(
                    f"{job.folder}: expected the shards of the fit, found others on this worker"
                )
            job.estimator._open_shards(shards)
            _WORKPLACES[job.run] = Workplace(shards, job.estimator, job.objective)
            while len(_WORKPLACES) > MAX_WORKPLACES:
                _WORKPLACES.popitem(last=False)
        return _WORKPLACES[job.run]


class _SparseGradient(NamedTuple):
    """The entries of a gradient that are not zero."""

    length: int
    places: NDArray[np.int32]
    entries: FloatArray


def packed(answer: Answer) -> Answer:
    """The answer with a short form of its gradient, if most of that is zero."""
    if answer.value is None:
        return answer
    gradient = answer.value.gradient
    places = np.flatnonzero(gradient.view(np.int64))  # by bits: a negative zero is kept
    if 12 * len(places) >= 8 * len(gradient):
        return answer
    sparse = _SparseGradient(len(gradient), places.astype(np.int32), gradient[places])
    return replace(answer, value=replace(answer.value, gradient=sparse))  # type: ignore[arg-type]


def unpacked(answer: Answer) -> Answer:
    """Inverse of `packed`; raises what the evaluation of the shard raised."""
    if answer.error:
        raise InvalidInputError(f"shard {answer.shard}: {answer.error}")
    sparse: Any = None if answer.value is None else answer.value.gradient
    if answer.value is None or not isinstance(sparse, _SparseGradient):
        return answer
    gradient = np.zeros(sparse.length)
    gradient[sparse.places] = sparse.entries
    return replace(answer, value=replace(answer.value, gradient=gradient))
