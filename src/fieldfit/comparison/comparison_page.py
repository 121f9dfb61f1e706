"""The page of a comparison: recommendation, table, calibration, errors against time, search."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fieldfit.comparison.method_candidates import BASELINE
from fieldfit.report.charts import Series, bar, line_chart
from fieldfit.report.page_parts import (
    MINUS,
    Cell,
    Section,
    card,
    cards,
    code,
    number,
    page,
    table,
    tally,
    text,
    words,
)

if TYPE_CHECKING:
    from fieldfit.comparison.comparison_result import Comparison
    from fieldfit.comparison.method_search import MethodRow

__all__ = ["comparison_lead", "comparison_page", "comparison_sections", "comparison_table"]

MEANINGS = {
    "error": "share of held-out labels that are wrong, with its standard error over examples "
    "(for samples: entries predicted from the others of their row)",
    "log-loss": "mean of -log p(label) in nats, by the method's own marginals; small is good, and "
    "log K is what guessing among K labels costs",
    "calibration": "how far confidence and share of right labels are apart; 0 is perfect",
    "gain": "how much less is lost than by independent variables on the same examples",
    "log-likelihood": "of one example, in nats: proved bounds, or the value where it is exact; "
    "nothing where none can be proved",
    "seconds": "by the clock, search and all folds together",
}


def comparison_page(found: Comparison) -> str:
    """A complete document."""
    name = type(found.estimator).__name__
    return page(f"Which method: {name}", *comparison_sections(found), lead=comparison_lead(found))


def comparison_lead(found: Comparison) -> str:
    """The recommendation, its figures, and the line that fits the winner."""
    best = found.best
    lead = f'<p class="lead">{text(found.recommendation)}</p>'
    if best is not None and best.scores is not None:
        lead += tally(
            {
                "Method": best.method,
                "Held-out error": f"{100 * best.scores.error:.2f} %",
                "Log-loss": best.scores.mean_log_loss,
                "Seconds": round(best.seconds, 1),
            }
        )
        lead += code(f"import fieldfit as ff\n\n{found.code}", "The line that fits the winner")
    return lead


def comparison_sections(found: Comparison) -> list[Section]:
    """Table, charts, search, and how it was made."""
    return [
        Section("Methods", _methods(found)),
        *_charts(found),
        Section("Search for penalties", _search(found)),
        Section("How this was made", _making(found)),
    ]


def comparison_table(found: Comparison) -> str:
    """The table alone, for notebooks."""
    shown = table(*_cells(found), sortable=False, caption="Methods")
    return f"{shown}<p>{text(found.recommendation)}</p>"


def _methods(found: Comparison) -> str:
    header, rows = _cells(found)
    notes = [words(found.description)]
    if found.worse:
        names = ", ".join(row.method for row in found.worse)
        notes.append(words(f"Worse than independent variables on these data: {names}."))
    failed = [row for row in found.methods if row.scores is None]
    notes += [words(f"{row.method} failed: {row.failed}") for row in failed]
    texts = [row.status or row.failed for row in found.methods]
    return "".join(notes) + card(table(header, rows, caption="Methods", titles=texts))


def _cells(found: Comparison) -> tuple[list[str], list[list[Any]]]:
    is_tested = any(row.test is not None for row in found.methods)
    header = ["method", "error", "gain", *["test error"] * is_tested, "log-loss", "calibration"]
    header += ["log-likelihood", "seconds", "converged"]
    errors = [row.scores.error for row in found.methods if row.scores is not None]
    largest = max(errors, default=1.0)
    return header, [_row(found, row, largest, is_tested) for row in found.methods]


def _row(found: Comparison, row: MethodRow, largest: float, is_tested: bool) -> list[Any]:
    mark = " (recommended)" if row is found.best else ""
    scores = row.scores
    if scores is None:
        rest = [None] * (5 + is_tested)
        return [f"{row.method} (failed)", *rest, round(row.seconds, 1), "no"]
    tested = None if row.test is None else _with_error(row.test.error, row.test.error_se)
    return [
        f"{row.method}{mark}",
        _with_error(scores.error, scores.error_se, largest),
        None if row.method == BASELINE else _with_error(*found.gain(row)),
        *[tested] * is_tested,
        round(scores.mean_log_loss, 4),
        round(scores.calibration_error, 3),
        Cell(text(scores.bracket) or number(None), scores.lower),
        round(row.seconds, 1),
        "yes" if row.converged else "no",
    ]


def _with_error(value: float, error: float, largest: float = 0.0) -> Cell:
    """A number with its standard error, and a bar if ``largest`` is given."""
    shown = f"{value:.4f} ± {error:.4f}".replace("-", MINUS)
    return bar(value, largest, shown) if largest else Cell(shown, value)


def _charts(found: Comparison) -> list[Section]:
    rows = found.ranking
    if not rows:
        return []
    scored = [(row, row.scores) for row in rows if row.scores is not None]
    lines = [Series(row.method, "", scores.calibration.points) for row, scores in scored]
    calibration = line_chart(lines, "confidence", "share that is right", are_shares=True)
    points = [Series(row.method, "", [(row.seconds, scores.error)]) for row, scores in scored]
    against = line_chart(points, "seconds", "held-out error", log_x=True)
    return [
        Section(
            "Calibration and time",
            cards(
                card(
                    calibration,
                    title="Calibration",
                    note="On the diagonal a method is as often right as it is sure.",
                ),
                card(against, title="Error against time", note="Left and below is better."),
            ),
        )
    ]


def _search(found: Comparison) -> str:
    rows = [
        [row.method, one["l2"], one["n_iter"], one[found.measure], one["converged"], one["seconds"]]
        for row in found.methods
        for one in row.search
    ]
    header = ["method", "l2", "iterations", found.measure.replace("_", "-"), "converged", "seconds"]
    note = (
        "Every penalty gets a few iterations, the better half goes on with twice as many, by "
        "held-out examples of the first fold."
    )
    return words(note) + card(table(header, rows, caption="Fits of the search", text_columns=(1,)))


def _making(found: Comparison) -> str:
    meanings = "".join(
        f"<dt>{text(name)}</dt><dd>{text(meaning)}</dd>" for name, meaning in MEANINGS.items()
    )
    versions = ", ".join(f"{name} {version(name)}" for name in ("fieldfit", "numpy", "scipy"))
    again = found.command or f"ff.compare({found.estimator!r}, X, Y)"
    parts = [
        card(f'<dl class="facts">{meanings}</dl>', title="What the columns mean"),
        card(
            code(again, "The same again"),
            words(f"{versions}, Python {platform.python_version()}."),
            words(
                "The recommendation goes by held-out examples of the training data; the penalty of "
                "each method was chosen on those of the first fold, so errors are a little low."
            ),
            title="The same again",
        ),
    ]
    return cards(*parts)
