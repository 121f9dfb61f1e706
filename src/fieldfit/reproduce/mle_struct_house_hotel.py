"""Matching landmarks of two views of a house or a hotel, as in Tang et al. (2016).

The weights of 60 features of pairs of landmarks are learned for every gap between frames by
MLE-Struct (the likelihood of matchings with a concave entropy) and by max-margin, and compared with
the assignment that does not weight them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fieldfit.errors import InvalidInputError
from fieldfit.inference.matching.matching_polytope import MatchingPolytope
from fieldfit.learners.stochastic import Adam
from fieldfit.models.matching_crf import MatchingCRF
from fieldfit.models.matching_problems import MatchingExample, MatchingHinge
from fieldfit.objectives.max_margin import MaxMargin
from fieldfit.reproduce._base import Outcome, Settings
from fieldfit.reproduce._house_hotel_data import KINDS, Sequence, read_sequences
from fieldfit.reproduce._house_hotel_methods import (
    LEARNED,
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
from fieldfit.reproduce._mle_struct_house_hotel_figures import (
    confidence_bars,
    error_curves,
    landmark_picture,
    rho_curves,
)
from fieldfit.reproduce._mle_struct_house_hotel_report import Findings, headline, report, table

__all__ = ["FULL", "QUICK", "Design", "run", "run_design"]


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


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce mle-struct-house-hotel``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """All gaps of both sequences."""
    if settings.data is None:
        raise InvalidInputError(
            "--data must name the folder of the data sets for mle-struct-house-hotel"
        )
    sequences = [_limited(one, design.max_pairs) for one in read_sequences(settings.data)]
    options = Options("squared", design.rho, design.tol, design.max_iter, settings.n_jobs)
    total = len(sequences) * (len(design.gaps) + len(design.kinds)) + 2
    kinds: list[dict[str, Any]] = []
    for number, kind in enumerate(design.kinds):
        if len(design.kinds) > 1:
            settings.progress(number * len(sequences), total, f"features: {kind}")
            kinds.append(_try_kind(design, sequences, replace(options, kind=kind)))
    best = min(kinds, key=lambda row: row["validation_error"])["kind"] if kinds else design.kinds[0]
    for row in kinds:
        row["chosen"] = row["kind"] == best
    options = replace(options, kind=best)

    rows: list[dict[str, Any]] = []
    matches: list[dict[str, Any]] = []
    rhos: list[dict[str, Any]] = []
    pictured: tuple[Sequence, int, list[dict[str, Any]]] | None = None
    done = len(sequences) * len(design.kinds)
    for sequence in sequences:
        for gap in design.gaps:
            settings.progress(done, total, f"{sequence.name}, gap {gap}")
            done += 1
            training, scale = scaled_features(sequence, sequence.of(gap, "train"), best)
            validation, _ = scaled_features(sequence, sequence.of(gap, "validate"), best, scale)
            test, _ = scaled_features(sequence, sequence.of(gap, "test"), best, scale)
            for method in LEARNED:
                found = choose(method, training, validation, design.penalties, options)
                rows.append(_row(method, sequence.name, gap, found, error_of(found.model, test)))
                if method != "mle-struct":
                    continue
                rows[-1]["rho"] = design.rho
                if gap >= design.first_confident_gap:
                    these = confidence(found.model, test)
                    matches += [{"sequence": sequence.name, "gap": gap, **one} for one in these]
                    if pictured is None or (sequence.name, gap) == ("house", max(design.gaps)):
                        pictured = (sequence, gap, these)
                if sequence.name == "house" and gap in design.rho_gaps:
                    for rho in design.rhos:
                        other = learn(
                            method, training, validation, found.l2, replace(options, rho=rho)
                        )
                        error = error_of(other.model, test)
                        rhos.append(_row(method, sequence.name, gap, other, error) | {"rho": rho})
            plain = [sequence.features(pair, "squared") for pair in sequence.of(gap, "test")]
            same = unweighted_errors(test)
            rows.append(_unweighted_row(sequence.name, gap, unweighted_errors(plain), same))
    settings.progress(total - 2, total, "training time")
    timing = [_time(design, sequences[0], options, method) for method in LEARNED]
    settings.progress(total - 1, total, "step of max-margin")
    steps = _compare_steps(design, sequences, options, rows)
    settings.progress(total, total, "done")
    findings = Findings(
        rows, kinds, rhos, matches, timing, steps, options, design.penalties, design.kind_gaps
    )
    assert pictured is not None
    return Outcome(
        rows=rows,
        table=table(rows),
        report=report(findings),
        tables={"kinds": kinds, "rho": rhos, "matches": matches, "time": timing, "steps": steps},
        figures={
            "error": error_curves(rows),
            "rho": rho_curves(rhos),
            "confidence": confidence_bars(matches),
            "landmarks": landmark_picture(*pictured),
        },
        headline=headline(findings),
    )


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


def _compare_steps(
    design: Design, sequences: list[Sequence], options: Options, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The hinge loss that Adam reaches with its own step, and with a short one for long."""
    found = []
    for sequence in sequences:
        gap = max(design.gaps)
        (l2,) = [
            row["l2"]
            for row in rows
            if (row["method"], row["sequence"], row["gap"]) == ("max-margin", sequence.name, gap)
        ]
        training, _ = scaled_features(sequence, sequence.of(gap, "train"), options.kind)
        partners = [np.arange(len(x)) for x in training]
        polytope = MatchingPolytope(np.ones(training[0].shape[:2], dtype=np.bool_))
        matched = polytope.of_partners(partners[0])
        examples = [
            MatchingExample(polytope, x.reshape(len(matched), -1), matched) for x in training
        ]
        hinge = MatchingHinge(MaxMargin(), examples, 1.0, options.n_jobs, 1.0)
        for name, learner in (
            ("default", None),
            ("short steps", Adam(step=0.02, max_iter=20 * design.max_iter, tol=1e-7)),
        ):
            model = MatchingCRF(
                "max-margin", l2=l2, learner=learner, max_iter=design.max_iter, tol=1e-5
            ).fit(training, partners)
            weights = model.weights_
            value = hinge.evaluate(weights).value
            assert value is not None
            found.append(
                {
                    "sequence": sequence.name,
                    "gap": gap,
                    "l2": l2,
                    "steps": name,
                    "n_iter": int(model.n_iter_),
                    "converged": bool(model.converged_),
                    "objective": value + 0.5 * l2 * float(weights @ weights),
                }
            )
    return found
