"""The report of ``mle-struct-house-hotel``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.base import Row
from experiments.tables import markdown_table, text_table
from experiments.tang2016.house_hotel.data import SEQUENCES
from experiments.tang2016.house_hotel.methods import LEARNED, METHODS, UNWEIGHTED, Options

#: Gaps over which errors are averaged: at smaller ones hardly anything is wrong.
FIRST_HARD_GAP = 30
#: Edges of the bins of confidence.
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

WHAT_WAS_DONE = """
## What was done

Two frames of a sequence (house: 111 frames, hotel: 101), as many frames apart as the *gap* says,
have the same {n_landmarks} landmarks; which belongs to which is to be found. A landmark is
described by its shape context, the numbers of other landmarks in 60 bins of distance and
direction. The weight of an edge is a weighted sum over the bins of how different the counts of
its two ends are; the 60 weights are learned from the training pairs of a gap, `l2` is chosen on
its validation pairs from {penalties} (the larger of two that are as good), and the error is the
share of wrong partners on its test pairs. Training, validation and test pairs are those of the
data (first frame modulo three).

- *mle-struct*: `MatchingCRF(MLEStruct(points="marginals"), rho={rho:g})`, the surrogate
  likelihood, to a certified gap of {tol:g} of the objective (`converged`).
- *max-margin*: `MatchingCRF("max-margin")`, hinge loss, with the same features, by averaged Adam.
- *unweighted*: the best assignment by the sum of squared differences over all bins.

Landmarks and shape contexts are those distributed for graph matching (Caetano et al.; Zhou and De
la Torre, CVPR 2012); shape contexts of the hotel were recomputed by the same recipe. The paper
prints curves without figures, and says that both learned methods perform comparably.
"""

KINDS_TEXT = """
Counts may be compared in several ways, which is decided on validation pairs: mean validation
error over gaps {gaps}, with the better of two penalties. The best mean over both sequences and
both methods is used for everything else. Features are scaled to -1 on average over the training
pairs.
"""

CONFIDENCE_TEXT = """
A probabilistic model says how sure it is. The probability of a chosen edge is its marginal under
the entropy that the model was learned with, over the test pairs of gaps of {first} and more.
"""


@dataclass(frozen=True)
class Findings:
    """All tables."""

    rows: Sequence[Row]
    kinds: Sequence[Row]
    rhos: Sequence[Row]
    matches: Sequence[Row]
    timing: Sequence[Row]
    steps: Sequence[Row]
    options: Options
    penalties: Sequence[float]
    kind_gaps: Sequence[int]


def table(rows: Sequence[Row]) -> str:
    """For the terminal: error in percent."""
    return "\n\n".join(f"{name}\n{text_table(*_errors(rows, name))}" for name in _sequences(rows))


def report(findings: Findings) -> str:
    """Markdown of the whole."""
    rows, options = findings.rows, findings.options
    n_landmarks = findings.timing[0]["n_landmarks"]
    parts = [
        WHAT_WAS_DONE.format(
            n_landmarks=n_landmarks,
            penalties=", ".join(f"{l2:g}" for l2 in findings.penalties),
            rho=options.rho,
            tol=options.tol,
        ),
        "## Error against the gap",
        *(
            f"{name}, percent:\n\n{markdown_table(*_errors(rows, name))}"
            for name in _sequences(rows)
        ),
        f"Mean over gaps of {FIRST_HARD_GAP} and more, and what that is of *unweighted*:",
        _means(rows),
        "![Error against the gap](error.png)",
        "## Features",
        _kinds(findings),
        "## rho",
        "Test error, percent, on the house for counting numbers of nodes between 1/2 (an upper "
        "bound of the partition function) and 1 (Bethe's), with the `l2` that was chosen for "
        f"{options.rho:g}. The paper reports little difference.",
        markdown_table(*_rhos(findings.rhos)),
        "![Error against rho](rho.png)",
        "## Confidence",
        CONFIDENCE_TEXT.format(first=FIRST_HARD_GAP),
        _confidence(findings.matches),
        "![Confidence of right and wrong matches](confidence.png)",
        "![Matches of two frames](landmarks.png)",
        "## Training",
        _timing(findings),
    ]
    return "\n\n".join(part.strip() for part in parts)


def headline(findings: Findings) -> dict[str, Any]:
    """Shares of the baseline's error, the largest lag behind max-margin, training time."""
    rows = findings.rows
    found: dict[str, Any] = {"features": findings.options.kind}
    for name in _sequences(rows):
        for method in LEARNED:
            found[f"{name} {method} share of unweighted"] = mean_share(rows, name, method)
        found[f"{name} mle-struct minus max-margin"] = _mean(rows, name, "mle-struct") - _mean(
            rows, name, "max-margin"
        )
        found[f"{name} gaps not below unweighted"] = _not_below(rows, name)
    for row in findings.timing:
        found[f"{row['method']} processor seconds, {row['n_pairs']} pairs"] = row[
            "processor_seconds"
        ]
    return found


def mean_share(rows: Sequence[Row], sequence: str, method: str) -> float:
    """Mean error over hard gaps, as a share of that of the baseline."""
    plain = _mean(rows, sequence, UNWEIGHTED)
    return _mean(rows, sequence, method) / plain if plain > 0.0 else 0.0


def _not_below(rows: Sequence[Row], sequence: str) -> list[int]:
    """Hard gaps at which MLE-Struct is no better than the baseline."""
    errors = {(row["method"], row["gap"]): row["error"] for row in _of(rows, sequence)}
    return [
        gap
        for (method, gap), error in errors.items()
        if method == "mle-struct" and gap >= FIRST_HARD_GAP and error >= errors[UNWEIGHTED, gap]
    ]


def _errors(rows: Sequence[Row], sequence: str) -> tuple[list[str], list[list[str]]]:
    chosen = _of(rows, sequence)
    gaps = sorted({row["gap"] for row in chosen})
    lines = []
    for method in METHODS:
        mine = {row["gap"]: row for row in chosen if row["method"] == method}
        lines.append([method, *(_error(mine[gap]) for gap in gaps)])
        if method in LEARNED:
            lines.append([f"{method}, l2", *(f"{mine[gap]['l2']:g}" for gap in gaps)])
    same = {row["gap"]: row for row in chosen if row["method"] == UNWEIGHTED}
    lines.append(
        ["same features, unweighted"]
        + [f"{100.0 * same[gap]['same_features_error']:.1f}" for gap in gaps]
    )
    return ["gap", *map(str, gaps)], lines


def _error(row: Row) -> str:
    """Percent; a star where training did not converge."""
    return f"{100.0 * row['error']:.1f}{'' if row['converged'] else '*'}"


def _means(rows: Sequence[Row]) -> str:
    lines = []
    for method in METHODS:
        line = [method]
        for name in _sequences(rows):
            mean, share = _mean(rows, name, method), mean_share(rows, name, method)
            line.append(f"{100.0 * mean:.1f} ({100.0 * share:.0f} %)")
        lines.append(line)
    note = "\n\nA star marks trainings that did not converge."
    n_open = sum(not row["converged"] for row in rows)
    return markdown_table(["method", *_sequences(rows)], lines) + (note if n_open else "")


def _kinds(findings: Findings) -> str:
    if not findings.kinds:
        return f"Counts are compared by *{findings.options.kind}* differences."
    columns = [name for name in findings.kinds[0] if name not in ("kind", "chosen")]
    lines = [
        [
            f"{row['kind']}{' (chosen)' if row['chosen'] else ''}",
            *(f"{100.0 * row[name]:.1f}" for name in columns),
        ]
        for row in findings.kinds
    ]
    *others, last = map(str, findings.kind_gaps)
    gaps = f"{', '.join(others)} and {last}" if others else last
    text = KINDS_TEXT.format(gaps=gaps).strip()
    formulas = (
        "*squared* `(a - b)^2`, *absolute* `|a - b|`, *chi-square* `(a - b)^2 / (a + b)`, *root* "
        "`(sqrt a - sqrt b)^2`."
    )
    names = ["mean of learned" if name == "validation_error" else name for name in columns]
    return f"{text}\n\n{formulas}\n\n{markdown_table(['kind', *names], lines)}"


def _rhos(rhos: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    values = sorted({row["rho"] for row in rhos})
    lines = []
    for gap in sorted({row["gap"] for row in rhos}):
        mine = {row["rho"]: row for row in rhos if row["gap"] == gap}
        lines.append([str(gap), *(_error(mine[rho]) for rho in values)])
    return ["gap \\ rho", *(f"{rho:g}" for rho in values)], lines


def _confidence(matches: Sequence[Row]) -> str:
    wrong = [row for row in matches if not row["is_right"]]
    right = [row for row in matches if row["is_right"]]
    lines = []
    for name, chosen in (("right", right), ("wrong", wrong)):
        values = np.array([row["confidence"] for row in chosen])
        cells = [f"{values.mean():.2f}", f"{np.median(values):.2f}"] if len(values) else ["", ""]
        lines.append([name, str(len(values)), *cells])
    first = markdown_table(["matches", "number", "mean probability", "median"], lines)
    lines = []
    for low, high in pairwise(BINS):
        inside = [
            row
            for row in matches
            if low <= row["confidence"] < high or (high == 1.0 and row["confidence"] >= 1.0)
        ]
        if inside:
            mean = np.mean([row["confidence"] for row in inside])
            share = np.mean([row["is_right"] for row in inside])
            lines.append([f"{low:g} to {high:g}", str(len(inside)), f"{mean:.2f}", f"{share:.2f}"])
    second = markdown_table(["probability", "matches", "mean", "share that is right"], lines)
    ranks = np.array([row["true_rank"] for row in wrong])
    text = ""
    if len(ranks):
        text = (
            f"Of the wrong matches, the true partner has the largest marginal of its row in "
            f"{100.0 * np.mean(ranks == 1):.0f} %, the second largest in "
            f"{100.0 * np.mean(ranks == 2):.0f} %, the third in "
            f"{100.0 * np.mean(ranks == 3):.0f} %."
        )
    return f"{first}\n\n{second}\n\n{text}"


def _timing(findings: Findings) -> str:
    header = [
        "method", "pairs", "l2", "processor seconds", "iterations", "converged", "objective", "gap",
    ]  # fmt: skip
    lines = [
        [
            row["method"], str(row["n_pairs"]), f"{row['l2']:g}",
            f"{row['processor_seconds']:.1f}", str(row["n_iter"]),
            "yes" if row["converged"] else "no", f"{row['objective']:.2f}",
            "" if row["objective_gap"] is None else f"{row['objective_gap']:.2g}",
        ]
        for row in findings.timing
    ]  # fmt: skip
    first = (
        f"Training pairs of several gaps of the house together:\n\n{markdown_table(header, lines)}"
    )
    header = ["sequence", "gap", "l2", "steps", "epochs", "converged", "penalised hinge loss"]
    lines = [
        [
            row["sequence"], str(row["gap"]), f"{row['l2']:g}", row["steps"], str(row["n_iter"]),
            "yes" if row["converged"] else "no", f"{row['objective']:.3f}",
        ]
        for row in findings.steps
    ]  # fmt: skip
    second = (
        "Whether Adam minimises the hinge loss: its own steps beside shorter ones for longer:\n\n"
        f"{markdown_table(header, lines)}"
    )
    seconds = [row["seconds"] for row in findings.rows if row["method"] == "mle-struct"]
    n_open = sum(not r["converged"] for r in findings.rows)
    third = (
        f"One training of mle-struct took {np.median(seconds):.1f} s (median; largest "
        f"{max(seconds):.1f} s of wall time). {n_open} of the "
        f"{sum(r['method'] != UNWEIGHTED for r in findings.rows)} chosen trainings did not "
        "converge."
    )
    return f"{first}\n\n{second}\n\n{third}"


def _mean(rows: Sequence[Row], sequence: str, method: str) -> float:
    values = [
        row["error"]
        for row in _of(rows, sequence)
        if row["method"] == method and row["gap"] >= FIRST_HARD_GAP
    ]
    return float(np.mean(values)) if values else 0.0


def _of(rows: Sequence[Row], sequence: str) -> list[Row]:
    return [row for row in rows if row["sequence"] == sequence]


def _sequences(rows: Sequence[Row]) -> list[str]:
    return [name for name in SEQUENCES if any(row["sequence"] == name for row in rows)]
