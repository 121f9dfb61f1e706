"""The report of ``mle-struct-roommates``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.tables import markdown_table, mean_cell, mean_of, text_table, values_of
from experiments.tang2016.roommates.data import N_PAIR_FEATURES, Wave

if TYPE_CHECKING:
    from experiments.tang2016.roommates.run import Design


Row = dict[str, Any]

ROOMS = """
## Rooms

The paper's students are not public, so dormitories are drawn: {n_people} people answer five
questions (uniform in [0, 1]), a pair has the absolute differences of the answers and a product of
the last one, and rooms of two are a perfect matching drawn *exactly* from the model with hidden
weights. {n_train} dormitories to learn from, {n_test} to test, {n_repeats} draws; `l2 = {l2:g}`
for all methods.

`likelihood` sums over all matchings; `mle-struct` (Bethe's entropy) and `mle-struct-rw` (`rho =
1/2`) never see a sum, only best matchings, and stop at a certified gap of {tol:g} of the
objective. `max-margin` has no probabilities. `logistic` is logistic regression of all pairs, each
by itself, and then the best matching. *Weight error* is relative to the hidden weights, *cosine*
leaves the length out. *Log-likelihood* is exact and for a dormitory; *at least* is what the
reweighted entropy proves without the exact sum (for general graphs nothing better than 0 is
proved from above). *Calibration* is the mean distance of predicted from observed shares in ten
bins of pairs, with the marginals that belong to the method.
"""

DATING = """
## Speed dating

{n_waves} waves, {n_pairs} pairs that met, {n_matches} matches ({share:.1%}); split by wave into
{n_folds} parts, of which {n_runs} are test sets in turn. Only answers given before the evening
are used: {n_pair} features of pairs, {n_person} sums over both persons. `l2 = {dating_l2:g}` for
all methods. AUC is within waves.

**Before the evening.** `mle-struct` is a b-matching of at most 15 partners, more than anybody
had. Capacities hardly bind, and with independent edges the surrogate is then logistic regression:
the two rows differ by the penalty on the constant and by how far each was optimised. *Precision*
is that of a best b-matching with at most two partners each.
"""

DEGREES = """
**Given the degrees.** Everybody's number of matches is told, and the question is who with whom.
`mle-struct` conditions on the degrees in training (exact degrees, `perfect=True` with
`capacities`), so what concerns one person alone drops out; `logistic` takes its weights of pairs
from the unconditional model, and all predict with the same polytope. *Precision* is the share of
pairs of the best matching with these degrees that were matches.
"""

COLUMN_TITLES = {
    "weight_error": "weight error",
    "log_likelihood": "log-likelihood",
    "log_likelihood_lower": "at least",
    "log_loss": "log-loss",
    "auc": "AUC",
}
ROOM_COLUMNS = (
    "weight_error", "cosine", "accuracy", "log_likelihood", "log_likelihood_lower", "calibration",
)  # fmt: skip
DATING_COLUMNS = ("auc", "log_loss", "precision")


def methods_of(rows: Sequence[Row], part: str) -> list[str]:
    """Methods in their order."""
    return list(dict.fromkeys(row["method"] for row in rows if row["part"] == part))


def _cell(rows: Sequence[Row], method: str, column: str) -> str:
    values = values_of(rows, column, method=method)
    return mean_cell(values, 3) if values else "-"


def _seconds(rows: Sequence[Row], method: str) -> str:
    chosen = [row for row in rows if row["method"] == method]
    n_open = sum(row["converged"] is False for row in chosen)
    note = f", {n_open} of {len(chosen)} not converged" if n_open else ""
    return f"{np.mean([row['seconds'] for row in chosen]):.2g}{note}"


def _table(
    rows: Sequence[Row], part: str, columns: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    chosen = [row for row in rows if row["part"] == part]
    header = ["method", *(COLUMN_TITLES.get(name, name) for name in columns), "seconds"]
    lines = []
    for method in methods_of(rows, part):
        cells = [_cell(chosen, method, name) for name in columns]
        lines.append([method, *cells, _seconds(chosen, method)])
    return header, lines


def _largest(rows: Sequence[Row]) -> list[Row]:
    """Rooms learned from the most dormitories."""
    sizes = [row["n_train"] for row in rows if row["part"] == "rooms"]
    return [row for row in rows if row["part"] != "rooms" or row["n_train"] == max(sizes)]


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    chosen = _largest(rows)
    return "\n\n".join(
        f"{part}\n{text_table(*_table(chosen, part, columns))}"
        for part, columns in (
            ("rooms", ("cosine", "accuracy", "log_likelihood", "calibration")),
            ("dating", DATING_COLUMNS),
            ("dating-degrees", DATING_COLUMNS),
        )
    )


def report(rows: Sequence[Row], waves: Sequence[Wave], design: Design) -> str:
    """Markdown of the whole."""
    sizes = sorted({row["n_train"] for row in rows if row["part"] == "rooms"})
    parts = [
        ROOMS.format(
            n_people=design.n_people, n_train=" / ".join(map(str, sizes)), n_test=design.n_test,
            n_repeats=design.n_repeats, l2=design.l2, tol=design.tol,
        )
    ]  # fmt: skip
    for size in sizes:
        chosen = [row for row in rows if row["part"] == "rooms" and row["n_train"] == size]
        parts += [
            f"From {size} dormitories:",
            markdown_table(*_table(chosen, "rooms", ROOM_COLUMNS)),
        ]
    parts.append("![Cosine and accuracy against the number of dormitories](rooms.png)")
    n_pairs = sum(int(wave.met.sum()) for wave in waves)
    n_matches = sum(int(wave.matches.sum()) for wave in waves)
    parts += [
        DATING.format(
            n_waves=len(waves), n_pairs=n_pairs, n_matches=n_matches, share=n_matches / n_pairs,
            n_folds=design.n_folds, n_runs=design.n_runs, n_pair=N_PAIR_FEATURES,
            n_person=waves[0].features.shape[2] - N_PAIR_FEATURES, dating_l2=design.dating_l2,
        ),
        markdown_table(*_table(rows, "dating", DATING_COLUMNS)),
        DEGREES,
        markdown_table(*_table(rows, "dating-degrees", DATING_COLUMNS)),
        "Means, with standard errors over draws or folds in brackets; *seconds* are wall time of "
        "training.",
        "![AUC within waves](dating.png)",
        "## What was found",
        _findings(rows),
    ]  # fmt: skip
    return "\n\n".join(part.strip() for part in parts)


def _findings(rows: Sequence[Row]) -> str:
    """Sentences whose figures come from this run."""
    rooms = [row for row in _largest(rows) if row["part"] == "rooms"]
    before = [row for row in rows if row["part"] == "dating"]
    given = [row for row in rows if row["part"] == "dating-degrees"]

    def loss(method: str) -> float:
        best = mean_of(rooms, "log_likelihood", method="true weights")
        return best - mean_of(rooms, "log_likelihood", method=method)

    def auc(of: Sequence[Row], method: str) -> float:
        return mean_of(of, "auc", method=method)

    def log_loss(method: str) -> float:
        return mean_of(given, "log_loss", method=method)

    accuracies = {
        method: mean_of(rooms, "accuracy", method=method) for method in methods_of(rooms, "rooms")
    }
    cosines = {
        method: mean_of(rooms, "cosine", method=method) for method in methods_of(rooms, "rooms")
    }
    return (
        f"- Rooms: the hidden weights themselves find {accuracies['true weights']:.1%} of the "
        f"room-mates, because rooms are random; learned ones find {accuracies['likelihood']:.1%} "
        f"(likelihood), {accuracies['mle-struct']:.1%} (MLE-Struct), "
        f"{accuracies['max-margin']:.1%} (max-margin) and {accuracies['logistic']:.1%} (logistic). "
        f"Test log-likelihood is {loss('mle-struct'):.3f} nats for a dormitory below that of the "
        f"hidden weights for MLE-Struct, {loss('likelihood'):.3f} for the exact likelihood; "
        f"cosines are {cosines['mle-struct']:.3f}, {cosines['likelihood']:.3f} and, of the "
        f"logistic regression, {cosines['logistic']:.3f}. Never summing over matchings costs "
        "next to nothing here; between the other methods compare the standard errors.\n"
        "- The proved lower bound is far below the likelihood on general graphs: it brackets, it "
        "does not replace.\n"
        f"- Dating: before the evening AUC is {auc(before, 'logistic'):.3f} for logistic "
        f"regression and {auc(before, 'mle-struct'):.3f} for the b-matching, where 0.5 is chance: "
        "questionnaires say little about who will match.\n"
        f"- Given the degrees, these alone reach an AUC of {auc(given, 'degrees only'):.3f} (who "
        "had no match cannot be in one); features of pairs change it to "
        f"{auc(given, 'mle-struct'):.3f} (learned given the degrees) and "
        f"{auc(given, 'logistic'):.3f} (logistic), log-loss from {log_loss('degrees only'):.4f} "
        f"to {log_loss('mle-struct'):.4f} and {log_loss('logistic'):.4f}. "
        "These answers say little about who suits whom."
    )


def headline(rows: Sequence[Row]) -> dict[str, Any]:
    """Accuracies of rooms, areas under curves of waves."""
    chosen = _largest(rows)
    found = {
        f"rooms {method} accuracy": mean_of(chosen, "accuracy", method=method, part="rooms")
        for method in methods_of(chosen, "rooms")
    }
    for part in ("dating", "dating-degrees"):
        of_part = [row for row in rows if row["part"] == part]
        for method in methods_of(of_part, part):
            found[f"{part} {method} auc"] = mean_of(of_part, "auc", method=method)
    return found
