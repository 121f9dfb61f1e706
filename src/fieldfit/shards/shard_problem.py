"""The sum over shards as a learner sees it: a `Problem` whose data stay on disk.

    F(w) = sum over shards, in their order, of what their parts add up to in theirs

Shards are evaluated in this process, one after the other, or by a client.  The problem keeps the
log of the weights since the last reset of warm starts, because a worker may need it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any

from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError
from fieldfit.learners.problem import Problem, ProblemValue, total
from fieldfit.objectives.base import Objective
from fieldfit.shards.reading import Shards
from fieldfit.shards.workers import Crew, make_crew
from fieldfit.shards.workplace import Answer, Call, Request, Workplace

__all__ = ["ShardProblem"]

#: Learners that see the beliefs of all examples at once.
_WHOLE = {"camel-rounds": "CAMEL", "dual-frank-wolfe": "MLE-Struct"}


class ShardProblem(Problem):
    """An objective summed over shards.

    Parameters
    ----------
    shards
        The data; they must be those of ``estimator``, which takes over what they say of the model.
    estimator
        Makes the problem of each shard.
    objective
        What is summed.
    client
        Who evaluates the shards; ``None``: this process.
    """

    def __init__(self, shards: Shards, estimator: Any, objective: Objective, client: Any) -> None:
        manifest = shards.manifest
        manifest.require_options(type(estimator).__name__, estimator._shard_options())
        if objective.learner_name in _WHOLE:
            raise InvalidInputError(
                f"objective must be a sum over examples for shards, got "
                f"{_WHOLE[objective.learner_name]}, whose learner works on the beliefs of all "
                "examples at once"
            )
        estimator._open_shards(shards)
        small = estimator._shard_problem(objective, None, manifest.n_examples, {})
        self._small = small
        self.objective = objective
        self.n_weights = small.n_weights
        self.is_smooth = small.is_smooth
        self.is_homogeneous = small.is_homogeneous
        self.is_conservative = small.is_conservative
        self.is_replayed = small.is_replayed
        self.learner_name = small.learner_name
        self.notes = small.notes
        self.is_complete = manifest.is_complete
        self.shards = shards
        self._places = _mini_batches(shards, estimator, objective)
        self.n_parts = len(self._places)
        self._crew: Crew | None = None
        self._workplace: Workplace | None = None
        if client is None:
            self._workplace = Workplace(shards, estimator, objective)
        else:
            self._crew = make_crew(client, shards, estimator, objective)
        self._n_resets = 0
        self._logs: dict[int, list[Call]] = {}
        self._is_warm = True
        self._figures: dict[str, float] = {}

    def __enter__(self) -> ShardProblem:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._crew is not None:
            self._crew.close()

    # -- the interface of learners ----------------------------------------------------------

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        """Sum over the shards, in their order."""
        call = Call(None, weights.copy())
        return total(self._values([(shard, call) for shard in range(len(self.shards))]))

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        """One mini-batch of one shard."""
        shard, inner = self._places[part]
        return self._values([(shard, Call(inner, weights.copy()))])[0]

    def reset_warm_start(self) -> None:
        """Let all shards begin afresh, whoever holds them."""
        self._n_resets += 1
        self._logs.clear()

    def first_weights(self, start: FloatArray | None) -> FloatArray:
        return self._small.first_weights(start)

    def fingerprint(self) -> str:
        """A digest of the objective, the shards, and their cut into mini-batches."""
        text = f"{self.objective!r} {self.shards.manifest.digest()} {self._places!r}"
        return sha256(text.encode()).hexdigest()

    def take_figures(self) -> dict[str, Any]:
        """Seconds computing, replaying and communicating, replays and workers, since the last."""
        figures, self._figures = self._figures, {}
        if self._crew is None:
            return {}
        found: dict[str, Any] = {**figures, "replays": int(figures.get("replays", 0))}
        if self._crew.n_workers is not None:
            found["workers"] = self._crew.n_workers
        return found

    # -- requests ---------------------------------------------------------------------------

    def _values(self, calls: Sequence[tuple[int, Call]]) -> list[ProblemValue]:
        requests = []
        for shard, call in calls:
            log = self._logs.setdefault(shard, [])
            log.append(call)
            requests.append(Request(shard, self._n_resets, len(log), (call,)))
        begin = time.perf_counter()
        if self._workplace is not None:
            answers = [self._workplace.evaluate(request) for request in requests]
        else:
            assert self._crew is not None
            answers = self._crew.evaluate(requests, self._whole)
        self._count(answers, time.perf_counter() - begin)
        if not any(answer.is_warm for answer in answers):
            for shard, _ in calls:  # nothing to replay
                self._logs.pop(shard)
            self._n_resets += 1
        values = [answer.value for answer in answers]
        assert all(value is not None for value in values)
        return [value for value in values if value is not None]

    def _whole(self, request: Request) -> Request:
        """A request with all that a worker may have to replay."""
        return request._replace(calls=tuple(self._logs[request.shard]))

    def _count(self, answers: Sequence[Answer], elapsed: float) -> None:
        computing = sum(answer.seconds for answer in answers)
        replaying = sum(answer.replay_seconds for answer in answers)
        n_workers = 1 if self._crew is None else self._crew.n_workers or 1
        found = {
            "seconds_computing": computing,
            "seconds_replaying": replaying,
            "seconds_communicating": max(0.0, elapsed - (computing + replaying) / n_workers),
            "replays": float(sum(answer.n_replayed for answer in answers)),
        }
        for name, value in found.items():
            self._figures[name] = self._figures.get(name, 0.0) + value


def _mini_batches(
    shards: Shards, estimator: Any, objective: Objective
) -> list[tuple[int, int | None]]:
    """Shard and number in it of each mini-batch; a shard is one for learners that take them all."""
    n_examples = shards.manifest.n_examples
    places: list[tuple[int, int | None]] = []
    for shard, entry in enumerate(shards.manifest.shards):
        count = estimator._shard_mini_batches(objective, entry.n_examples, n_examples)
        places += [(shard, None)] if count is None else [(shard, part) for part in range(count)]
    return places
