"""Tables of a report, in Markdown and for the terminal, and bars beside those of a paper.

An experiment with methods and folds gives its rows (those of ``results.csv``) and says with
`Column` which figures to show and what the paper prints for them.  Scores in the rows are shares of
one, as everywhere in fieldfit; tables and figures show percent.  With several folds a cell is
``mean (standard deviation)``.

>>> rows = [
...     {"method": "piecewise", "fold": 0, "micro_f1": 0.88},
...     {"method": "piecewise", "fold": 1, "micro_f1": 0.90},
... ]
>>> micro = Column("micro_f1", "micro-F1", paper={"piecewise": "88.5 (0.9)"})
>>> print(paper_table(rows, [micro]))
| method | micro-F1, paper | micro-F1 |
| --- | --- | --- |
| piecewise | 88.5 (0.9) | 89.0 (1.4) |
>>> means(rows, micro)
{'piecewise': 0.89}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.base import Figure, Row

__all__ = [
    "OUR_COLOUR",
    "PAPER_COLOUR",
    "Column",
    "bar_chart",
    "deviation",
    "distinct",
    "fold_cell",
    "markdown_table",
    "mean_cell",
    "mean_of",
    "means",
    "paper_table",
    "terminal_table",
    "text_table",
    "tidy",
    "values_of",
]

#: Grey for what the paper prints, one colour for ours.
PAPER_COLOUR, OUR_COLOUR = "#9a9a9a", "#2a6fbb"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; numbers are given as text by the caller."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned for a terminal, the first to the left and the others to the right."""
    lines = [[str(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def distinct(rows: Sequence[Row], column: str) -> list[Any]:
    """Values of a column in their order, each once.

    >>> distinct([{"method": "b"}, {"method": "a"}, {"method": "b"}], "method")
    ['b', 'a']
    """
    return list(dict.fromkeys(row[column] for row in rows))


def values_of(rows: Sequence[Row], column: str, **where: Any) -> list[float]:
    """Numbers of a column in the rows whose other columns are as given; ``None`` is left out.

    >>> values_of([{"method": "a", "x": 1.0}, {"method": "b", "x": 2.0}], "x", method="b")
    [2.0]
    """
    return [
        row[column]
        for row in rows
        if row[column] is not None and all(row[name] == value for name, value in where.items())
    ]


def mean_of(rows: Sequence[Row], column: str, **where: Any) -> float:
    """Their mean, NaN if there is none."""
    values = values_of(rows, column, **where)
    return float(np.mean(values)) if values else np.nan


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample, 0 of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def tidy(axes: Any) -> None:
    """A light grid, and no frame at the top and at the right."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def mean_cell(values: Sequence[float], digits: int) -> str:
    """``mean (standard error)``; the mean alone of a single value.

    >>> mean_cell([1.0, 2.0], 2), mean_cell([1.0], 2)
    ('1.50 (0.50)', '1.00')
    """
    text = f"{np.mean(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f})"
    return text


# -- methods and folds --------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """One figure of the table.

    Parameters
    ----------
    key
        Its name in the rows.
    title
        Heading; the paper's figures stand beside it under ``title, paper``.
    paper
        What the paper prints, by method; empty if it prints nothing.
    scale, digits
        How our number is shown: times ``scale`` (100 for scores), with ``digits`` decimals.
    """

    key: str
    title: str
    paper: Mapping[str, str] = field(default_factory=dict)
    scale: float = 100.0
    digits: int = 1


def means(rows: Sequence[Row], column: Column) -> dict[str, float]:
    """Mean over folds for each method, unscaled, methods in the order of the rows."""
    return {
        method: float(np.mean(values)) for method, values in _by_method(rows, column.key).items()
    }


def fold_cell(values: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """``mean (standard deviation)`` over folds; the mean alone if there is one fold.

    >>> fold_cell([0.88, 0.90], scale=100.0), fold_cell([0.88], scale=100.0)
    ('89.0 (1.4)', '88.0')
    """
    scaled = scale * np.asarray(values, dtype=np.float64)
    mean = f"{scaled.mean():.{digits}f}"
    return mean if len(scaled) < 2 else f"{mean} ({scaled.std(ddof=1):.{digits}f})"


def _by_method(rows: Sequence[Row], key: str) -> dict[str, list[float]]:
    """Figures of one column, by method; folds without one (``None``) are left out."""
    found: dict[str, list[float]] = {}
    for row in rows:
        values = found.setdefault(row["method"], [])
        if row[key] is not None:
            values.append(float(row[key]))
    return {method: values for method, values in found.items() if values}


def paper_table(
    rows: Sequence[Row], columns: Sequence[Column], titles: Mapping[str, str] | None = None
) -> str:
    """Markdown: methods by columns, the paper's figures beside ours.

    ``titles`` are what methods are called in the table, where not by their names.
    """
    header = ["method"]
    for column in columns:
        header += [f"{column.title}, paper"] * bool(column.paper) + [column.title]
    return markdown_table(header, _cells(rows, columns, titles or {}, with_paper=True))


def terminal_table(
    rows: Sequence[Row], columns: Sequence[Column], titles: Mapping[str, str] | None = None
) -> str:
    """Our figures alone, aligned for a terminal."""
    header = ["method", *(column.title for column in columns)]
    return text_table(header, _cells(rows, columns, titles or {}, with_paper=False))


def _cells(
    rows: Sequence[Row], columns: Sequence[Column], titles: Mapping[str, str], *, with_paper: bool
) -> list[list[str]]:
    ours = [_by_method(rows, column.key) for column in columns]
    table = []
    for method in distinct(rows, "method"):
        line = [titles.get(method, method)]
        for column, found in zip(columns, ours, strict=True):
            if with_paper and column.paper:
                line.append(column.paper.get(method, "-"))
            values = found.get(method)
            line.append(fold_cell(values, column.scale, column.digits) if values else "-")
        table.append(line)
    return table


def bar_chart(rows: Sequence[Row], column: Column, title: str, titles: Mapping[str, str]) -> Figure:
    """A drawing of our means (bars: standard deviation over folds) beside the paper's figures.

    The axis begins above zero, near the smallest figure: the methods often differ by little.
    """
    ours = _by_method(rows, column.key)

    def draw(figure: Any) -> None:
        figure.set_size_inches(7.0, 3.2)
        axes = figure.add_subplot()
        height = 0.38
        ends: list[float] = []
        for place, (method, values) in enumerate(ours.items()):
            scaled = column.scale * np.asarray(values)
            spread = scaled.std(ddof=1) if len(scaled) > 1 else 0.0
            bars = [(height / 2, scaled.mean(), spread, OUR_COLOUR, "fieldfit")]
            printed = _printed(column.paper.get(method, ""))
            if printed is not None:
                bars.append((-height / 2, *printed, PAPER_COLOUR, "paper"))
            for offset, mean, deviation, colour, name in bars:
                axes.barh(
                    place + offset,
                    mean,
                    height,
                    xerr=deviation or None,
                    color=colour,
                    capsize=3.0,
                    label=name if not place else None,
                )
                axes.annotate(
                    f"{mean:.{column.digits}f}",
                    (mean + deviation, place + offset),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8,
                )
                ends += [mean - deviation, mean + deviation]
        axes.set_yticks(range(len(ours)), [titles.get(method, method) for method in ours])
        axes.invert_yaxis()
        margin = max(max(ends) - min(ends), 1.0)
        begin = max(0.0, np.floor(min(ends) - 0.5 * margin))
        axes.set_xlim(begin, max(ends) + 0.2 * margin)  # the last is room for the figures
        axes.set_xlabel(f"{column.title} (the axis begins at {begin:.0f})")
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
        figure.tight_layout()

    return draw


def _printed(cell: str) -> tuple[float, float] | None:
    """Mean and standard deviation of a cell of the paper such as ``88.5 (.9)``."""
    found = re.fullmatch(r"\s*([\d.]+)\s*(?:\(([\d.]+)\))?\s*", cell)
    return None if found is None else (float(found[1]), float(found[2] or 0.0))
