"""Who evaluates shards: anything with ``submit(function, *arguments) -> future``.

A plain executor (joblib's loky, ``concurrent.futures``) gets a task for each shard and may run it
anywhere, so a worker that has not seen the shard before replays its log.  A ``distributed.Client``
has workers with names; there every shard has a home (`dask_homes`).
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field
from typing import Any

from fieldfit._validation import require_integer, require_number, shown
from fieldfit.errors import InvalidInputError, WorkersLostError
from fieldfit.objectives.base import Objective
from fieldfit.shards.reading import Shards
from fieldfit.shards.workplace import Answer, Job, Request, serve, unpacked

__all__ = ["RESUME", "Crew", "Workers", "make_crew", "named_shards"]

#: How every sentence about lost workers ends.
RESUME = "a fit with the same checkpoint= goes on from the last one that was written"


@dataclass(frozen=True, kw_only=True)
class Workers:
    """A client with limits on how long to wait for its workers.

    Parameters
    ----------
    client
        Anything with ``submit(function, *arguments)``, such as a ``distributed.Client``.
    task_seconds
        A worker that has not answered after so long counts as hanging: its shards go to others.
        It must be longer than an evaluation of all shards of one worker, replay included.
    absent_seconds
        How long to wait when no worker is left, before the fit ends with an error.
    max_losses
        A shard that was alone with its worker when this was lost, so many times in an evaluation,
        ends the fit: it is likely to need more memory than workers have.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> Workers(ThreadPoolExecutor(2), task_seconds=60).absent_seconds
    120.0
    """

    client: Any = field(kw_only=False)
    task_seconds: float = 600.0
    absent_seconds: float = 120.0
    max_losses: int = 3

    def __post_init__(self) -> None:
        if isinstance(self.client, type) or not callable(getattr(self.client, "submit", None)):
            raise InvalidInputError(
                f"client must have a method submit(function, *arguments), got {shown(self.client)}"
            )
        require_number("task_seconds", self.task_seconds, above=0)
        require_number("absent_seconds", self.absent_seconds, at_least=0)
        require_integer("max_losses", self.max_losses, at_least=1)


class Crew(ABC):
    """Evaluates requests somewhere else."""

    #: Workers at the last evaluation, if that is known.
    n_workers: int | None = None

    def __init__(self, workers: Workers, job: Job) -> None:
        self.workers = workers
        self.job = job

    @abstractmethod
    def evaluate(
        self, requests: Sequence[Request], whole: Callable[[Request], Request]
    ) -> list[Answer]:
        """Answers in the order of the requests; ``whole`` adds the log to a request."""

    def close(self) -> None:  # noqa: B027  (nothing to release)
        """End of the fit."""


def make_crew(client: Any, shards: Shards, estimator: Any, objective: Objective) -> Crew:
    """Workers behind a client, for one fit."""
    workers = client if isinstance(client, Workers) else Workers(client)
    job = Job(
        uuid.uuid4().hex,
        str(shards.folder),
        shards.memory,
        None if shards.scratch is None else str(shards.scratch),
        shards.manifest.digest(),
        estimator._for_workers(),
        objective,
    )
    if hasattr(workers.client, "scheduler_info"):
        from fieldfit.shards.dask_homes import DaskCrew

        return DaskCrew(workers, job, [entry.n_bytes for entry in shards.manifest.shards])
    return ExecutorCrew(workers, job)


def named_shards(shards: Sequence[int]) -> str:
    """Numbers of shards for a sentence.

    >>> named_shards([4]), named_shards([0, 3, 1])
    ('shard 4', 'shards 0, 1, 3')
    """
    numbers = ", ".join(map(str, sorted(shards)[:8])) + ", ..." * (len(shards) > 8)
    return f"shard{'s' * (len(shards) != 1)} {numbers}"


class ExecutorCrew(Crew):
    """An executor whose workers have no names: a task for each shard."""

    def evaluate(
        self, requests: Sequence[Request], whole: Callable[[Request], Request]
    ) -> list[Answer]:
        """Submit all, and again with their log those whose worker lacked a state."""
        submit = self.workers.client.submit
        waiting = {self._submit(submit, request): request for request in requests}
        found: dict[int, Answer] = {}
        deadline = time.monotonic() + self.workers.task_seconds
        try:
            while waiting:
                patience = max(0.0, deadline - time.monotonic())
                done, _ = wait(waiting, timeout=patience, return_when=FIRST_COMPLETED)
                if not done:
                    shards = [request.shard for request in waiting.values()]
                    raise WorkersLostError(
                        f"no worker has answered in {self.workers.task_seconds:g} seconds "
                        f"(task_seconds) for {named_shards(shards)}; {RESUME}"
                    )
                deadline = time.monotonic() + self.workers.task_seconds
                for future in done:
                    request = waiting.pop(future)
                    answer = self._answer(future, request)
                    if answer.value is None:  # the log is needed
                        waiting[self._submit(submit, whole(request))] = request
                    else:
                        found[request.shard] = answer
        finally:
            for future in waiting:
                future.cancel()
        return [found[request.shard] for request in requests]

    def _submit(self, submit: Callable[..., Any], request: Request) -> Any:
        return submit(serve, self.job, [request])

    def _answer(self, future: Any, request: Request) -> Answer:
        try:
            (answer,) = future.result()
        except (OSError, RuntimeError) as error:
            if not _is_broken(error):
                raise
            raise WorkersLostError(
                f"a worker process was lost while it evaluated {named_shards([request.shard])}, "
                f"and this executor cannot go on without it ({type(error).__name__}); {RESUME}"
            ) from error
        if answer.trouble:
            raise InvalidInputError(f"{answer.trouble} (shard {request.shard}, on a worker)")
        return unpacked(answer)


def _is_broken(error: BaseException) -> bool:
    """Whether an executor says that its processes are gone."""
    from concurrent.futures import BrokenExecutor

    return isinstance(error, BrokenExecutor)
