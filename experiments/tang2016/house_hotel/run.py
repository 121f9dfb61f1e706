"""Matching landmarks of two views of a house or a hotel, as in Tang et al. (2016).

The weights of 60 features of pairs of landmarks are learned for every gap between frames by
MLE-Struct (the likelihood of matchings with a concave entropy) and by max-margin, and compared with
the assignment that does not weight them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence as List
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.tang2016.house_hotel.data import (
    KINDS,
    SEQUENCES,
    FloatArray,
    Sequence,
    read_sequences,
)
from experiments.tang2016.house_hotel.figures import (
    confidence_bars,
    error_curves,
    landmark_picture,
    rho_curves,
)
from experiments.tang2016.house_hotel.methods import (
    LEARNED,
    METHODS,
    UNWEIGHTED,
    Learned,
    Options,
    choose,
    confidence,
    error_of,
    learn,
    scaled_features,
    unweighted_errors,
)
from experiments.tang2016.house_hotel.report import Findings, headline, report, table
from fieldfit import Adam, Assignment, ConvergenceWarning, MatchingCRF


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``kinds`` are ways to compare histograms, of which the best on validation pairs of
    ``kind_gaps`` is taken for everything (one: no choice); ``penalties`` are tried for each gap
    and method, ``kind_penalties`` for each kind.  ``max_pairs`` limits the pairs of a split.
    """

    gaps: tuple[int, ...] = tuple(range(0, 100, 10))
    kinds: tuple[str, ...] = KINDS
    kind_gaps: tuple[int, ...] = (50, 70, 90)
    penalties: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    kind_penalties: tuple[float, ...] = (0.3, 3.0)
    rho: float = 0.5
    rhos: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    rho_gaps: tuple[int, ...] = (50, 90)
    first_confident_gap: int = 30
    n_timed: int = 50
    timed_gaps: tuple[int, ...] = (30, 40, 50, 60, 70)
    max_pairs: int | None = None
    tol: float = 1e-3
    max_iter: int = 200


FULL = Design()
QUICK = Design(
    gaps=(0, 30, 60, 90),
    kinds=("chi-square",),
    penalties=(0.3, 3.0),
    rhos=(0.5, 1.0),
    rho_gaps=(90,),
    n_timed=10,
    max_pairs=8,
)


#: Tasks beside those of the results: ways to compare histograms, counting numbers, training time,
#: steps of Adam.
KIND, RHO, TIME, STEPS = "kind", "rho", "time", "steps"
#: Adam with its own step, and with a short one for long.
OWN_STEPS, SHORT_STEPS = "default", "short steps"


class HouseHotel(Plan[Design]):
    """A task is one method at one gap of one sequence; kinds of features are compared first."""

    full, quick = FULL, QUICK

    def tasks(self) -> List[Task]:
        """``(sequence, gap, method)``, and those beside."""
        design = self.design
        found: list[Task] = []
        if len(design.kinds) > 1:
            found += [(KIND, kind) for kind in design.kinds]
        for name in SEQUENCES:
            for gap in design.gaps:
                found += [(name, gap, method) for method in METHODS]
                if name == "house" and gap in design.rho_gaps:
                    found += [(RHO, gap, rho) for rho in design.rhos]
        found += [(TIME, method) for method in LEARNED]
        found += [(STEPS, name, steps) for name in SEQUENCES for steps in (OWN_STEPS, SHORT_STEPS)]
        return found

    def run_task(self, task: Task, results: Results) -> Result:
        """Train and test one method."""
        design, what = self.design, str(task[0])
        if what == KIND:
            options = replace(self.options, kind=str(task[1]))
            return Result(tables={"kinds": [_try_kind(design, self.sequences, options)]})
        options = replace(self.options, kind=self._best_kind(results))
        if what == TIME:
            return Result(tables={TIME: [_time(design, self.sequences[0], options, str(task[1]))]})
        if what == STEPS:
            name, gap = str(task[1]), max(design.gaps)
            l2 = results[name, gap, "max-margin"].rows[0]["l2"]
            seed = self.settings.seed
            row = _hinge_row(self._sequence(name), gap, l2, str(task[2]), design, options, seed)
            return Result(tables={STEPS: [row]})
        sequence, gap = self._sequence("house" if what == RHO else what), int(task[1])
        training, validation, test = self._features(sequence, gap, options.kind)
        if what == RHO:
            l2, rho = results[sequence.name, gap, "mle-struct"].rows[0]["l2"], float(task[2])
            other = learn("mle-struct", training, validation, l2, replace(options, rho=rho))
            error = error_of(other.model, test)
            row = _row("mle-struct", sequence.name, gap, other, error) | {"rho": rho}
            return Result(tables={RHO: [row]})
        method = str(task[2])
        if method == UNWEIGHTED:
            plain = [sequence.features(pair, "squared") for pair in sequence.of(gap, "test")]
            same = unweighted_errors(test)
            return Result([_unweighted_row(sequence.name, gap, unweighted_errors(plain), same)])
        found = choose(method, training, validation, design.penalties, options)
        row = _row(method, sequence.name, gap, found, error_of(found.model, test))
        matches: list[dict[str, Any]] = []
        if method == "mle-struct":
            row["rho"] = design.rho
            if gap >= design.first_confident_gap:
                these = confidence(found.model, test)
                matches = [{"sequence": sequence.name, "gap": gap, **one} for one in these]
        return Result([row], tables={"matches": matches})

    def outcome(self, results: Results) -> Outcome:
        design, rows = self.design, results.rows()
        options = replace(self.options, kind=self._best_kind(results))
        kinds = [{**row, "chosen": row["kind"] == options.kind} for row in results.table("kinds")]
        rhos, matches = results.table(RHO), results.table("matches")
        timing, steps = results.table(TIME), results.table(STEPS)
        findings = Findings(
            rows, kinds, rhos, matches, timing, steps, options, design.penalties, design.kind_gaps
        )
        cases = list(dict.fromkeys((row["sequence"], row["gap"]) for row in matches))
        last = ("house", max(design.gaps))
        name, gap = last if last in cases else cases[0]
        shown = [row for row in matches if (row["sequence"], row["gap"]) == (name, gap)]
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(findings),
            tables={"kinds": kinds, RHO: rhos, "matches": matches, TIME: timing, STEPS: steps},
            figures={
                "error": error_curves(rows),
                "rho": rho_curves(rhos),
                "confidence": confidence_bars(matches),
                "landmarks": landmark_picture(self._sequence(name), gap, shown),
            },
            headline=headline(findings),
        )

    def warm_up(self) -> None:
        """A short training of both methods, so that compilation is not timed."""
        options = replace(self.options, max_iter=2)
        training, validation, _ = self._features(
            self.sequences[0], self.design.gaps[-1], self.design.kinds[0]
        )
        for method in LEARNED:
            learn(method, training[:2], validation[:1], 1.0, options)

    @cached_property
    def sequences(self) -> list[Sequence]:
        """House and hotel."""
        found = read_sequences(self.settings.data_folder)
        return [_limited(one, self.design.max_pairs) for one in found]

    @property
    def options(self) -> Options:
        """What all trainings share, but for the kind of features."""
        design = self.design
        return Options("squared", design.rho, design.tol, design.max_iter, self.settings.n_jobs)

    def _sequence(self, name: str) -> Sequence:
        return next(one for one in self.sequences if one.name == name)

    def _best_kind(self, results: Results) -> str:
        if len(self.design.kinds) == 1:
            return self.design.kinds[0]
        return str(min(results.table("kinds"), key=lambda row: row["validation_error"])["kind"])

    def _features(
        self, sequence: Sequence, gap: int, kind: str
    ) -> tuple[list[FloatArray], list[FloatArray], list[FloatArray]]:
        """Of training, validation and test pairs."""
        training, scale = scaled_features(sequence, sequence.of(gap, "train"), kind)
        validation, _ = scaled_features(sequence, sequence.of(gap, "validate"), kind, scale)
        test, _ = scaled_features(sequence, sequence.of(gap, "test"), kind, scale)
        return training, validation, test


def _limited(sequence: Sequence, max_pairs: int | None) -> Sequence:
    """The first pairs of each gap and split only."""
    if max_pairs is None:
        return sequence
    seen: dict[tuple[int, int], int] = {}
    kept = []
    for number, (gap, split) in enumerate(sequence.pairs[:, :2].tolist()):
        # test pairs are cheap, and the baseline's errors are known for all of them
        seen[gap, split] = seen.get((gap, split), 0) + (split != 2)
        if seen[gap, split] <= max_pairs:
            kept.append(number)
    return replace(sequence, pairs=sequence.pairs[kept])


def _try_kind(design: Design, sequences: list[Sequence], options: Options) -> dict[str, Any]:
    """Mean validation error of both methods over gaps, and without weights."""
    errors: dict[str, list[float]] = {}
    for sequence in sequences:
        for gap in design.kind_gaps:
            training, scale = scaled_features(sequence, sequence.of(gap, "train"), options.kind)
            validation, _ = scaled_features(
                sequence, sequence.of(gap, "validate"), options.kind, scale
            )
            errors.setdefault(f"{sequence.name} {UNWEIGHTED}", []).append(
                unweighted_errors(validation)
            )
            for method in LEARNED:
                found = choose(method, training, validation, design.kind_penalties, options)
                errors.setdefault(f"{sequence.name} {method}", []).append(found.validation_error)
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    learned = [value for name, value in means.items() if not name.endswith(UNWEIGHTED)]
    return {"kind": options.kind, **means, "validation_error": float(np.mean(learned))}


def _row(method: str, sequence: str, gap: int, found: Learned, error: float) -> dict[str, Any]:
    last = found.model.trace_[-1]
    return {
        "method": method,
        "sequence": sequence,
        "gap": gap,
        "error": error,
        "validation_error": found.validation_error,
        "training_error": found.training_error,
        "l2": found.l2,
        "rho": None,
        "seconds": found.seconds,
        "converged": bool(found.model.converged_),
        "n_iter": int(found.model.n_iter_),
        "objective": float(last["objective"]),
        "objective_gap": last.get("gap"),
        "same_features_error": None,
    }


def _unweighted_row(sequence: str, gap: int, error: float, same: float) -> dict[str, Any]:
    """Of the squared distance; ``same``: of the features that the learned methods have."""
    return {
        "method": UNWEIGHTED,
        "sequence": sequence,
        "gap": gap,
        "error": error,
        "validation_error": None,
        "training_error": None,
        "l2": None,
        "rho": None,
        "seconds": 0.0,
        "converged": True,
        "n_iter": 0,
        "objective": None,
        "objective_gap": None,
        "same_features_error": same,
    }


def _time(design: Design, house: Sequence, options: Options, method: str) -> dict[str, Any]:
    """Training on pairs of several gaps together."""
    lists = [house.of(gap, "train") for gap in design.timed_gaps]
    pairs = [pair for group in zip(*lists, strict=False) for pair in group][: design.n_timed]
    training, _ = scaled_features(house, pairs, options.kind)
    found = learn(method, training, training[:1], 1.0, options)
    last = found.model.trace_[-1]
    return {
        "method": method,
        "n_pairs": len(pairs),
        "n_landmarks": house.n_landmarks,
        "l2": 1.0,
        "processor_seconds": found.processor_seconds,
        "seconds": found.seconds,
        "converged": bool(found.model.converged_),
        "n_iter": int(found.model.n_iter_),
        "objective": float(last["objective"]),
        "objective_gap": last.get("gap"),
        "training_error": found.training_error,
    }


def _hinge_row(
    sequence: Sequence,
    gap: int,
    l2: float,
    steps: str,
    design: Design,
    options: Options,
    seed: int,
) -> dict[str, Any]:
    """The hinge loss that Adam reaches with its own step, or with a short one for long."""
    training, _ = scaled_features(sequence, sequence.of(gap, "train"), options.kind)
    partners = [np.arange(len(x)) for x in training]
    learner = None
    if steps == SHORT_STEPS:
        learner = Adam(step=0.02, max_iter=20 * design.max_iter, tol=1e-7, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is a column of the table
        model = MatchingCRF(
            "max-margin", l2=l2, learner=learner, max_iter=design.max_iter, tol=1e-5
        ).fit(training, partners)
    weights = model.weights_
    value = 0.5 * l2 * float(weights @ weights) + sum(_hinge(x @ weights) for x in training)
    return {
        "sequence": sequence.name,
        "gap": gap,
        "l2": l2,
        "steps": steps,
        "n_iter": int(model.n_iter_),
        "converged": bool(model.converged_),
        "objective": value,
    }


def _hinge(scores: FloatArray) -> float:
    """Hinge loss of a pair whose landmarks are in the same order; wrong partners count one each."""
    places = np.arange(len(scores))
    rival = Assignment().match(scores - np.eye(len(scores))).partners
    margin = len(scores) - float(np.sum(rival == places))
    return max(float(scores[places, rival].sum() - scores.trace()) + margin, 0.0)
