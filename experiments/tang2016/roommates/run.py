"""Matchings that are not pictures: room-mates with hidden preferences, and speed dating.

Tang et al. learn which students share a room; their data are not public.  Two experiments stand in:

* *rooms*: dormitories drawn exactly from a model with known weights over general perfect matchings
  (`rooms`), so that one sees whether weights are recovered, and exact likelihoods are known;
* *dating*: the waves of a speed-dating study, b-matchings of women and men (`data`, `waves`),
  before the evening and given everybody's number of matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.tang2016.roommates.data import FILE, Wave, read_waves
from experiments.tang2016.roommates.figures import dating_bars, room_curves
from experiments.tang2016.roommates.report import headline, report, table
from experiments.tang2016.roommates.rooms import ROOM_METHODS, Rooms, draw_rooms, room_row
from experiments.tang2016.roommates.waves import BEFORE, GIVEN_DEGREES, before_row, degrees_row

#: Columns of ``results.csv``; empty where they do not apply.
COLUMNS = (
    "part", "method", "n_train", "repeat", "seconds", "converged", "weight_error", "cosine",
    "accuracy", "log_likelihood", "log_likelihood_lower", "calibration", "auc", "log_loss",
    "precision",
)  # fmt: skip


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``n_train`` dormitories of ``n_people`` train, ``n_test`` test, ``n_repeats`` times with other
    draws.  Waves are split into ``n_folds`` parts, of which ``n_runs`` are used for testing in
    turn.  ``l2`` is the penalty of all methods for rooms and ``dating_l2`` that for waves.
    """

    n_people: int = 8
    n_train: tuple[int, ...] = (10, 20, 40)
    n_test: int = 100
    n_repeats: int = 3
    l2: float = 0.3
    tol: float = 1e-3
    n_folds: int = 7
    n_runs: int = 7
    dating_l2: float = 3.0


FULL = Design()
QUICK = Design(n_people=6, n_train=(10, 20), n_test=50, n_repeats=1, n_runs=2)


#: Parts of the experiment.
ROOMS, DATING, DEGREES = "rooms", "dating", "dating-degrees"


class RoomMates(Plan[Design]):
    """A task is one method, on one draw of rooms or one fold of waves."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``("rooms", repeat, n_train, method)``, and ``(part, fold, method)`` of waves."""
        found: list[Task] = [
            (ROOMS, repeat, n_train, method)
            for repeat in range(self.design.n_repeats)
            for n_train in self.design.n_train
            for method in ROOM_METHODS
        ]
        for fold in range(self.design.n_runs):
            found += [(DATING, fold, method) for method in BEFORE]
            found += [(DEGREES, fold, method) for method in GIVEN_DEGREES]
        return found

    def run_task(self, task: Task, results: Results) -> Result:
        """The row of a method."""
        design, n_jobs = self.design, self.settings.n_jobs
        part, number, method = str(task[0]), int(task[1]), str(task[-1])
        if part == ROOMS:
            rooms, largest = self._rooms(number), max(design.n_train)
            n_train = int(task[2])
            test = rooms.part(largest, largest + design.n_test)
            training = rooms.part(0, n_train)
            found = room_row(method, training, test, design.l2, design.tol, n_jobs)
        else:
            learn = before_row if part == DATING else degrees_row
            known, new = self._fold(number)
            found = learn(method, known, new, design.dating_l2, n_jobs)
            n_train = len(known)
        return Result([_row(part, found, n_train, number)])

    def outcome(self, results: Results) -> Outcome:
        rows = results.rows()
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, self.waves, self.design),
            figures={"rooms": room_curves(rows), "dating": dating_bars(rows)},
            headline=headline(rows),
        )

    def warm_up(self) -> None:
        """Run everything once on very small examples."""
        n_jobs = self.settings.n_jobs
        rooms = draw_rooms(4, 4, np.random.default_rng(0))
        for method in ROOM_METHODS:
            room_row(method, rooms, rooms, 10.0, 0.1, n_jobs)
        small = [wave for wave in self.waves if len(wave.features) < 8]
        for method in BEFORE:
            before_row(method, small, small, 100.0, n_jobs)
        for method in GIVEN_DEGREES[:-1]:
            degrees_row(method, small, small, 100.0, n_jobs)

    @cached_property
    def waves(self) -> list[Wave]:
        """All waves of speed dating."""
        return read_waves(self.settings.data_folder / FILE)

    def _rooms(self, repeat: int) -> Rooms:
        design = self.design
        rng = np.random.default_rng([self.settings.seed, repeat])
        count = max(design.n_train) + design.n_test
        return self.kept("rooms", repeat, lambda: draw_rooms(count, design.n_people, rng))

    def _fold(self, fold: int) -> tuple[list[Wave], list[Wave]]:
        """Waves to learn from, and waves to test on."""
        waves = self.waves
        order = np.random.default_rng(self.settings.seed).permutation(len(waves))
        chosen = np.array_split(order, self.design.n_folds)[fold]
        return (
            [waves[index] for index in order if index not in chosen],
            [waves[index] for index in chosen],
        )


def _row(part: str, found: dict[str, Any], n_train: int, repeat: int) -> dict[str, Any]:
    given = {"part": part, "n_train": n_train, "repeat": repeat, **found}
    return {name: given.get(name) for name in COLUMNS}
