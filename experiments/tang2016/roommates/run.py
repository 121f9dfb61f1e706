"""Matchings that are not pictures: room-mates with hidden preferences, and speed dating.

Tang et al. learn which students share a room; their data are not public.  Two experiments stand in:

* *rooms*: dormitories drawn exactly from a model with known weights over general perfect matchings
  (`_roommates_rooms`), so that one sees whether weights come back, and exact likelihoods are at
  hand;
* *dating*: the waves of a speed-dating study, b-matchings of women and men (`_roommates_dating`,
  `_roommates_waves`), before the evening and given everybody's number of matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fieldfit.errors import InvalidInputError
from experiments.base import Outcome, Settings
from experiments.tang2016.roommates.dating import FILE, Wave, read_waves
from experiments.tang2016.roommates.figures import dating_bars, room_curves
from experiments.tang2016.roommates.report import headline, report, table
from experiments.tang2016.roommates.rooms import ROOM_METHODS, draw_rooms, room_row
from experiments.tang2016.roommates.waves import BEFORE, GIVEN_DEGREES, before_row, degrees_row

__all__ = ["FULL", "QUICK", "Design", "run", "run_design"]

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


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce mle-struct-roommates``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """Both experiments."""
    if settings.data is None:
        raise InvalidInputError(
            "--data must name the folder of the data sets for mle-struct-roommates"
        )
    waves = read_waves(settings.data / FILE)
    total = design.n_repeats * len(design.n_train) * len(ROOM_METHODS)
    total += design.n_runs * (len(BEFORE) + len(GIVEN_DEGREES))
    _compile(waves, settings)
    rows = _rooms(design, settings, total)
    rows += _dating(design, settings, waves, len(rows), total)
    settings.progress(total, total, "done")
    return Outcome(
        rows=rows,
        table=table(rows),
        report=report(rows, waves, design),
        figures={"rooms": room_curves(rows), "dating": dating_bars(rows)},
        headline=headline(rows),
    )


def _rooms(design: Design, settings: Settings, total: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for repeat in range(design.n_repeats):
        rng = np.random.default_rng([settings.seed, repeat])
        largest = max(design.n_train)
        drawn = draw_rooms(largest + design.n_test, design.n_people, rng)
        test = drawn.part(largest, largest + design.n_test)
        for n_train in design.n_train:
            for method in ROOM_METHODS:
                settings.progress(len(rows), total, f"{n_train} dormitories, {method}")
                found = room_row(
                    method, drawn.part(0, n_train), test, design.l2, design.tol, settings.n_jobs
                )
                rows.append(_row("rooms", found, n_train, repeat))
    return rows


def _dating(
    design: Design, settings: Settings, waves: list[Wave], done: int, total: int
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    order = np.random.default_rng(settings.seed).permutation(len(waves))
    folds = np.array_split(order, design.n_folds)
    for fold in range(design.n_runs):
        test = [waves[index] for index in folds[fold]]
        training = [waves[index] for index in order if index not in folds[fold]]
        for part, methods, learn in (
            ("dating", BEFORE, before_row),
            ("dating-degrees", GIVEN_DEGREES, degrees_row),
        ):
            for method in methods:
                settings.progress(done + len(rows), total, f"waves, fold {fold + 1}, {method}")
                found = learn(method, training, test, design.dating_l2, settings.n_jobs)
                rows.append(_row(part, found, len(training), fold))
    return rows


def _row(part: str, found: dict[str, Any], n_train: int, repeat: int) -> dict[str, Any]:
    given = {"part": part, "n_train": n_train, "repeat": repeat, **found}
    return {name: given.get(name) for name in COLUMNS}


def _compile(waves: list[Wave], settings: Settings) -> None:
    """Run everything once on next to nothing: what compilation costs is not a method's."""
    rooms = draw_rooms(4, 4, np.random.default_rng(0))
    for method in ROOM_METHODS:
        room_row(method, rooms, rooms, 10.0, 0.1, settings.n_jobs)
    small = [wave for wave in waves if len(wave.features) < 8]
    for method in BEFORE:
        before_row(method, small, small, 100.0, settings.n_jobs)
    for method in GIVEN_DEGREES[:-1]:
        degrees_row(method, small, small, 100.0, settings.n_jobs)
