"""Dask: every shard has a home, a worker that keeps its messages, for as long as that lives.

One task for each worker and evaluation carries the weights once, and brings back one gradient for
each shard.  Nothing is scattered and no worker owns anything: the shards of a worker that is gone,
or does not answer, go to others, which replay.  Dask itself would wait in several of these cases (a
task bound to a worker that is gone, a result that was lost with its worker); so the loop below
never waits for a single future, looks at the workers every second, and sends tasks again by itself.
"""

from __future__ import annotations

import queue
import time
import uuid
import warnings
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fieldfit.errors import InvalidInputError, WorkersLostError
from fieldfit.shards.workers import RESUME, Crew, Workers
from fieldfit.shards.workplace import Answer, Job, Request, serve, unpacked

__all__ = ["DaskCrew"]

#: A request that was lost so often is given up, whatever the reason.
MOST_TIMES = 20
#: Seconds between two looks at the list of workers.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class _Task:
    """Requests at a worker."""

    key: str
    home: str
    requests: list[Request]
    future: Any
    sent: float = field(default_factory=time.monotonic)


class DaskCrew(Crew):
    """Workers of a ``distributed.Client``."""

    def __init__(self, workers: Workers, job: Job, sizes: Sequence[int]) -> None:
        super().__init__(workers, job)
        self.client = workers.client
        self.sizes = sizes
        self.homes: dict[int, str] = {}
        self._hanging: set[str] = set()
        self._last_look = -LOOK_SECONDS
        self._living: list[str] = []
        self._known: set[str] = set()

    def evaluate(
        self, requests: Sequence[Request], whole: Callable[[Request], Request]
    ) -> list[Answer]:
        """Answers of all requests, whatever happens to single workers."""
        run = _Evaluation(self, whole)
        try:
            run.send(list(requests), is_first=True)
            while len(run.found) < len(requests):
                run.receive()
                run.look_after_workers()
                run.send_held()
        finally:
            run.cancel()
        return [run.found[request.shard] for request in requests]

    # -- workers ----------------------------------------------------------------------------

    def living(self, *, afresh: bool = False) -> list[str]:
        """Addresses of the workers that can be given shards."""
        now = time.monotonic()
        if afresh or now - self._last_look >= LOOK_SECONDS:
            self._living = sorted(self._seen() - self._hanging)
            self._last_look = time.monotonic()
            self.n_workers = len(self._living)
        return self._living

    def _seen(self) -> set[str]:
        client = self.client
        if client.status in ("closed", "closing"):
            raise WorkersLostError(f"the connection to Dask's scheduler was lost; {RESUME}")
        # a scheduler that is slow to answer, or out of reach, says nothing about its workers
        with suppress(KeyError, OSError):
            seen = set(client.scheduler_info(n_workers=-1)["workers"])
            if client.status == "running":
                self._known = seen
        return self._known

    def wait_for_workers(self) -> list[str]:
        """The living workers, at least one; waits for a stated time if there is none."""
        begin = time.monotonic()
        while not (living := self.living(afresh=True)) or self.client.status == "connecting":
            if time.monotonic() - begin > self.workers.absent_seconds:
                raise WorkersLostError(
                    f"no worker has been there for {self.workers.absent_seconds:g} seconds "
                    f"(absent_seconds); {RESUME}"
                )
            time.sleep(min(0.1, LOOK_SECONDS))
        return living

    def set_hanging(self, worker: str) -> None:
        """Send nothing more to a worker that does not answer."""
        self._hanging.add(worker)

    def place(self, shard: int, living: Sequence[str], avoided: set[str]) -> str:
        """The home of a shard; a new one if it has none, or that is gone or to be avoided."""
        home = self.homes.get(shard)
        if home is not None and home in living and home not in avoided:
            return home
        loads = self._loads(living)
        chosen = min((worker for worker in living if worker not in avoided), key=loads.__getitem__)
        self.homes[shard] = chosen
        return chosen

    def balance(self, living: Sequence[str]) -> None:
        """Give workers that have no shard a fair share of those of the others."""
        loads = self._loads(living)
        owned = {
            worker: [s for s, home in self.homes.items() if home == worker] for worker in living
        }
        for idle in [worker for worker in living if not owned[worker]]:
            while True:
                busiest = max(living, key=loads.__getitem__)
                if not owned[busiest]:
                    break
                shard = min(owned[busiest], key=self.sizes.__getitem__)
                if loads[idle] + self.sizes[shard] >= loads[busiest]:
                    break
                owned[busiest].remove(shard)
                owned[idle].append(shard)
                loads[busiest] -= self.sizes[shard]
                loads[idle] += self.sizes[shard]
                self.homes[shard] = idle

    def _loads(self, living: Sequence[str]) -> dict[str, int]:
        loads = dict.fromkeys(living, 0)
        for shard, home in self.homes.items():
            if home in loads:
                loads[home] += self.sizes[shard]
        return loads


class _Evaluation:
    """One evaluation: tasks under way, answers that have come."""

    def __init__(self, crew: DaskCrew, whole: Callable[[Request], Request]) -> None:
        self.crew = crew
        self.whole = whole
        self.found: dict[int, Answer] = {}
        self._tasks: dict[str, _Task] = {}
        self._finished: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._held: list[Request] = []
        self._losses: Counter[int] = Counter()
        self._sent: Counter[int] = Counter()
        self._unread: dict[int, set[str]] = {}
        self._last_trouble = ""

    def send(self, requests: list[Request], *, is_first: bool = False) -> None:
        """Requests to the homes of their shards: at first all of a worker in one task.

        What has to be sent again goes one by one, with one such task at a worker, so that a shard
        that takes its worker along is alone when it does so.
        """
        crew = self.crew
        living = crew.wait_for_workers()
        for request in requests:
            self._require_readable(request.shard, living)
            crew.place(request.shard, living, self._unread.get(request.shard, set()))
        if is_first:
            crew.balance(living)
        groups: dict[str, list[Request]] = {}
        for request in requests:
            groups.setdefault(crew.homes[request.shard], []).append(request)
        busy = {task.home for task in self._tasks.values()}
        for home, chosen in groups.items():
            if is_first:
                self._submit(home, chosen)
            elif home in busy:
                self._held += chosen
            else:
                self._submit(home, chosen[:1])
                self._held += chosen[1:]

    def send_held(self) -> None:
        """Send what had to wait for its worker."""
        if self._held:
            held, self._held = self._held, []
            self.send(held)

    def _submit(self, home: str, requests: list[Request]) -> None:
        key = f"fieldfit-{uuid.uuid4().hex}"
        with warnings.catch_warnings():  # weights travel with the task, however many there are
            warnings.filterwarnings("ignore", message="Sending large graph")
            future = self.crew.client.submit(
                serve, self.crew.job, requests, key=key, workers=[home], pure=False
            )
        self._tasks[key] = _Task(key, home, requests, future)
        future.add_done_callback(lambda _: self._finished.put(key))

    def receive(self) -> None:
        """Take what has come within a second."""
        try:
            keys = [self._finished.get(timeout=LOOK_SECONDS)]
            while not self._finished.empty():
                keys.append(self._finished.get())
        except queue.Empty:
            return
        for key in keys:
            if key in self._tasks:
                self._take(self._tasks[key])

    def _take(self, task: _Task) -> None:
        answers = self._result(task)
        if answers is None:
            return self._lose(task)
        del self._tasks[task.key]
        again = []
        for request, answer in zip(task.requests, answers, strict=True):
            if answer.trouble:
                self._unread.setdefault(request.shard, set()).add(task.home)
                self._last_trouble = answer.trouble
                again.append(request)
            elif answer.value is None and not answer.error:
                again.append(self.whole(request))
            else:
                self.found[request.shard] = unpacked(answer)
        if again:
            self.send(again)
        return None

    def _result(self, task: _Task) -> list[Answer] | None:
        """What a task has brought; ``None`` if that is lost, perhaps on its way here."""
        while True:
            if task.future.status in ("cancelled", "lost", "pending"):
                return None  # the scheduler forgot it, or its result went with its worker
            try:
                if task.future.status == "error":  # what a shard raises comes as an answer
                    _raise(task.future.exception(timeout=LOOK_SECONDS))
                    return None
                found = self._gathered(task.future)
                return found[0] if found else None
            except TimeoutError:
                is_late = time.monotonic() - task.sent > self.crew.workers.task_seconds
                if is_late or task.home not in self.crew.living(afresh=True):
                    return None
            except CancelledError:
                return None

    def _gathered(self, future: Any) -> list[list[Answer]]:
        """The result of a finished task, if it comes within a second; nothing if it failed.

        ``Future.result`` would go on waiting after its time for a result that was lost, and log an
        error (``AllExit``) when the future is cancelled; with ``errors="skip"`` that ends quietly.
        """
        client = self.crew.client

        async def gather() -> list[list[Answer]]:
            found: list[list[Answer]] = await client.gather(
                [future], errors="skip", asynchronous=True
            )
            return found

        found: list[list[Answer]] = client.sync(gather, callback_timeout=LOOK_SECONDS)
        return found

    def _require_readable(self, shard: int, living: Sequence[str]) -> None:
        if set(living) <= self._unread.get(shard, set()):
            raise InvalidInputError(
                f"shard {shard} must be readable by some worker, got from each of the "
                f"{len(living)}: {self._last_trouble}"
            )

    # -- lost workers -----------------------------------------------------------------------

    def look_after_workers(self) -> None:
        """Send again what is at workers that are gone or do not answer."""
        if not self._tasks:
            return
        living, now = set(self.crew.living()), time.monotonic()
        for task in list(self._tasks.values()):
            if task.home in living and now - task.sent > self.crew.workers.task_seconds:
                self.crew.set_hanging(task.home)
                self._lose(task)
            elif task.home not in living:
                self._lose(task)

    def _lose(self, task: _Task) -> None:
        """Send the requests of a task again; a shard that was alone with its worker is blamed."""
        self._tasks.pop(task.key)
        task.future.cancel()
        lost = [request for request in task.requests if request.shard not in self.found]
        is_gone = task.home not in self.crew.living(afresh=True)
        for request in lost:
            self._losses[request.shard] += int(is_gone and len(task.requests) == 1)
            self._sent[request.shard] += 1
            n_lost, n_sent = self._losses[request.shard], self._sent[request.shard]
            if n_lost >= self.crew.workers.max_losses or n_sent >= MOST_TIMES:
                raise WorkersLostError(
                    f"{n_lost} workers were lost or did not answer while they evaluated shard "
                    f"{request.shard} alone, which was sent {n_sent + 1} times, the last time to "
                    f"{task.home}; it may need more memory than they have; {RESUME}"
                )
        self.send(lost)

    def cancel(self) -> None:
        """Leave nothing behind."""
        for task in self._tasks.values():
            task.future.cancel()
        self._tasks.clear()


def _raise(error: BaseException | None) -> None:
    """Raise what went wrong in a task, unless that is the loss of its worker."""
    if error is not None and type(error).__module__.partition(".")[0] != "distributed":
        raise error
