"""The report of a fit: one page, made from what the estimator knows and from data if there are any.

Written as a whole or not at all.  Everything on it is computed here and now; nothing is kept in the
estimator for it, and in particular no training data.
"""

from __future__ import annotations

import os
import time
from typing import Any

from fieldfit._validation import require_output
from fieldfit.io._atomic_file import write_atomically
from fieldfit.report.fit_sections import fit_status, learning_curve, making, penalty_path
from fieldfit.report.kinds.base import KindReport, Request
from fieldfit.report.kinds.registry import report_kind
from fieldfit.report.page_parts import page, tally, text, words

__all__ = ["report_page", "write_report"]


def write_report(
    path: str | os.PathLike[str], request: Request, command: str | None = None
) -> None:
    """Write the report of a fitted estimator.

    Parameters
    ----------
    path
        Of the HTML file; replaced as a whole if it exists.
    request
        What the report is about.
    command
        The line of a shell that made the fit, where it was made by one.
    """
    require_output("path", path)
    made = report_page(request, os.path.basename(os.fspath(path)), command)
    write_atomically(path, [made.encode()])


def report_page(request: Request, name: str = "fit.html", command: str | None = None) -> str:
    """The page as HTML; ``name`` is the file that it says how to make again."""
    begin = time.perf_counter()
    kind = report_kind(request.estimator)(request)
    kind.check()
    estimator = request.estimator
    shown = kind.sections()
    sections = [*learning_curve(estimator.trace_), *penalty_path(estimator), *shown]
    seconds = time.perf_counter() - begin
    sections.append(making(estimator, _arguments(kind, name), kind.fitted_on, command, seconds))
    figures = {"objective": _objective(estimator), **kind.figures()}
    if estimator.trace_:
        figures |= {"iterations": estimator.n_iter_}
        if "seconds" in estimator.trace_[-1]:
            figures["seconds"] = round(float(estimator.trace_[-1]["seconds"]), 3)
    lead = fit_status(estimator) + tally(figures) + _data_sentence(request, kind)
    footer = (
        f"Report of a fit by fieldfit. This page, {text(name)}, is one file and needs no network."
    )
    return page(f"{type(estimator).__name__}: report of a fit", *sections, lead=lead, footer=footer)


def _objective(estimator: Any) -> str:
    given = estimator.objective
    return given if isinstance(given, str) else type(given).__name__


def _arguments(kind: KindReport, name: str) -> str:
    """Arguments of ``report`` that make this page again."""
    given = [repr(name)]
    for value, argument in zip((kind.request.X, kind.request.Y), kind.arguments, strict=True):
        if value is not None:
            given.append(argument)
    if kind.request.alpha is not None and kind.request.X is not None:
        given.append("alpha=alpha")
    for option in ("label_names", "feature_names"):
        if getattr(kind.request, option) is not None:
            given.append(f"{option}={option}")
    return ", ".join(given)


def _data_sentence(request: Request, kind: KindReport) -> str:
    if request.X is not None:
        return ""
    first = kind.arguments[0]
    return words(
        f"Made without data: report(path, {first}, ...) adds predictions beside the truth, their "
        "calibration and a table of confusions."
    )
