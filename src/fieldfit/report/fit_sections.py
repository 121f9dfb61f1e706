"""How a fit went: its status, learning curve, penalty path, options, timing and versions."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fieldfit.report.charts import Series, line_chart
from fieldfit.report.page_parts import Section, card, cards, code, facts, number, table, text, words

__all__ = ["PACKAGES", "fit_status", "learning_curve", "making", "penalty_path"]

#: Whose versions a result depends on.
PACKAGES = ("fieldfit", "numpy", "scipy", "numba", "scikit-learn")
#: What a row of the trace may hold beside the objective: name, words, whether its axis is
#: logarithmic.
CURVES = (
    ("gradient_norm", "gradient norm", True),
    ("gap", "gap", True),
    ("validation", "validation score", False),
)


def fit_status(estimator: Any) -> str:
    """The sentence that says how the fit ended, marked by whether it converged."""
    kind, mark = ("", "Converged") if estimator.converged_ else (" open", "Not converged")
    sentence = estimator.status_[:1].upper() + estimator.status_[1:]
    said = sentence.removeprefix("Converged")
    rest = said if estimator.converged_ and said != sentence else f". {sentence}"
    return f'<div class="card status{kind}"><p><b>{mark}</b>{text(rest)}</p></div>'


# -- curves -------------------------------------------------------------------------------


def learning_curve(trace: Sequence[dict[str, Any]]) -> list[Section]:
    """Charts of everything that the trace has; nothing for a fit in one step."""
    if len(trace) < 2:
        return []
    boxes = [_curve(trace, "objective", "objective", False)]
    boxes += [_curve(trace, *entry) for entry in CURVES]
    if any(row.get("unconverged") for row in trace):
        points = [(k + 1, 100.0 * row["unconverged"]) for k, row in enumerate(trace)]
        name = "examples without converged inference in %"
        boxes.append(
            card(
                line_chart([Series(name, "", points)], "iteration", "%"), title="Unconverged share"
            )
        )
    shown = [box for box in boxes if box]
    if not shown:
        return []
    note = (
        "One point for each iteration of the learner. Charts show their values under the pointer, "
        "or with the arrow keys when they have the focus."
    )
    return [Section("Learning curve", cards(*shown) + words(note))]


def _curve(trace: Sequence[dict[str, Any]], key: str, name: str, is_log: bool) -> str:
    points = [(k + 1, row[key]) for k, row in enumerate(trace) if row.get(key) is not None]
    if len(points) < 2:
        return ""
    drawn = line_chart([Series(name, "", points)], "iteration", name, log_y=is_log)
    return card(drawn, title=name[:1].upper() + name[1:])


def penalty_path(estimator: Any) -> list[Section]:
    """Scores of the penalties that were tried on held-out examples."""
    path = getattr(estimator, "path_", None)
    if not path:
        return []
    series = []
    for kind in dict.fromkeys(row["model"] for row in path):
        points = sorted((row["l2"], row["score"]) for row in path if row["model"] == kind)
        series.append(Series(kind, "", points))
    chart = line_chart(series, "penalty", "held-out accuracy", log_x=True)
    header = ("model", "penalty", "held-out accuracy", "standard error", "iterations", "converged")
    keys = ("model", "l2", "score", "standard_error", "n_iter", "converged")
    rows = [[row.get(key) for key in keys] for row in path]
    return [
        Section(
            "Penalties that were tried",
            cards(card(chart), card(table(header, rows, caption="Penalties"))),
        )
    ]


# -- how it was made ----------------------------------------------------------------------


def making(
    estimator: Any, arguments: str, fitted_on: str, command: str | None, seconds: float
) -> Section:
    """Options, timing, versions, and the lines that make the fit and its report again."""
    options = {name: _option(value) for name, value in estimator.get_params(deep=False).items()}
    timing: dict[str, Any] = {"iterations": estimator.n_iter_}
    trace = estimator.trace_
    if trace and "seconds" in trace[-1]:
        timing["learning"] = f"{number(trace[-1]['seconds'], 3)} s"
    path = getattr(estimator, "path_", None)
    if path:
        timing["choice of the penalty"] = f"{number(path[-1]['seconds'], 3)} s"
    timing["this report"] = f"{number(seconds, 2)} s"
    versions = {name: version(name) for name in PACKAGES}
    versions |= {"Python": platform.python_version(), "system": _system()}
    program = f"model = ff.{estimator!r}.fit({fitted_on})\nmodel.report({arguments})"
    again = card(code(f"import fieldfit as ff\n\n{program}", "Python"), title="In Python")
    if command is not None:
        again += card(code(command, "Command line"), title="From the command line")
    about = card(facts(timing), title="Time") + card(facts(versions), title="Versions")
    boxes = cards(card(facts(options), title="Options"), f"<div>{about}</div>")
    return Section("How to make it again", again + boxes)


def _option(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"
