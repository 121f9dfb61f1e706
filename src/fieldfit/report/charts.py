"""Charts as SVG: lines with a legend and values under the pointer, calibration, bars.

Colours are those of the style sheet, so that charts change with it from light to dark.  What the
script of a page needs to say values stands in the attributes of the figure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fieldfit.report.page_parts import Cell, number, text

__all__ = [
    "N_BINS",
    "Calibration",
    "Series",
    "bar",
    "calibration_bins",
    "calibration_chart",
    "line_chart",
]

#: Of a chart in its own units; the browser scales it.
WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 46
#: Radius of a dot, and of the largest one where they show counts.
DOT, LARGEST_DOT = 2.6, 9.0
#: Lines with more points than this are drawn without dots, which would hide them.
MAX_DOTS = 40
#: Points of a line that are kept, evenly spread, the first and the last among them.
MAX_POINTS = 400
#: Colours of lines that the style sheet has.
N_COLORS = 8
N_BINS = 10


@dataclass(frozen=True)
class Series:
    """One line of a chart; without a colour it gets one by its place.

    ``radii`` are those of the dots, ``notes`` words behind the values under the pointer.
    """

    name: str
    color: str
    points: Sequence[tuple[float, float]]
    radii: Sequence[float] = ()
    notes: Sequence[str] = ()


def line_chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    are_shares: bool = False,
) -> str:
    """A legend and an SVG line chart; on a logarithmic axis points at or below 0 are left out.

    A linear horizontal axis begins at 0.  With ``are_shares`` both axes go from 0 to 1, and a
    dashed line is where they are equal.
    """
    lines = [
        replace(
            s, color=s.color or f"var(--s{k % N_COLORS})", points=_drawn(s.points, log_x, log_y)
        )
        for k, s in enumerate(series)
    ]
    points = [point for line in lines for point in line.points]
    if not points:
        return '<p class="soft">nothing to draw</p>'
    axes = _Axes.around([(0.0, 0.0), (1.0, 1.0)] if are_shares else points, log_x, log_y)
    title = f"{y_label} against {x_label}"
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(title)}">']
    parts += axes.grid(x_label, y_label)
    if are_shares:
        low, high = axes.x_ticks[0], axes.x_ticks[-1]
        parts.append(
            f'<line class="diagonal" x1="{axes.across(low):.1f}" y1="{axes.down(low):.1f}" '
            f'x2="{axes.across(high):.1f}" y2="{axes.down(high):.1f}"/>'
        )
    for line in lines:
        parts += _polyline(line, axes)
    parts.append("</svg>")
    legend = ""
    if len(lines) > 1:  # a single line is what the axis says
        items = [
            f'<li><i style="background:{line.color}"></i>{text(line.name)}</li>' for line in lines
        ]
        legend = f'<ul class="legend">{"".join(items)}</ul>'
    data = [{"name": s.name, "color": s.color, "points": axes.values(s)} for s in lines]
    return (
        f'{legend}<div class="chart" tabindex="0" role="group" data-x="{text(x_label)}" '
        f'data-top="{TOP}" data-bottom="{HEIGHT - BOTTOM}" '
        f'data-series="{text(json.dumps(data))}" '
        f'aria-label="Chart: {text(title)}. Arrow keys read its values.">'
        + "\n".join(parts)
        + "</div>"
    )


@dataclass(frozen=True)
class _Axes:
    """Ticks, and the way from values (logarithms on a logarithmic axis) to places."""

    x_ticks: list[float]
    y_ticks: list[float]
    log_x: bool
    log_y: bool

    @classmethod
    def around(cls, points: Sequence[tuple[float, float]], log_x: bool, log_y: bool) -> _Axes:
        widths, heights = zip(*points, strict=True)
        first = min(widths) if log_x else min(0.0, *widths)
        return cls(
            _ticks(first, max(widths), whole=log_x),
            _ticks(min(heights), max(heights), whole=log_y),
            log_x,
            log_y,
        )

    def across(self, x: float) -> float:
        scale = (WIDTH - LEFT - RIGHT) / (self.x_ticks[-1] - self.x_ticks[0])
        return LEFT + (x - self.x_ticks[0]) * scale

    def down(self, height: float) -> float:
        scale = (HEIGHT - TOP - BOTTOM) / (self.y_ticks[-1] - self.y_ticks[0])
        return HEIGHT - BOTTOM - (height - self.y_ticks[0]) * scale

    def values(self, line: Series) -> list[list[float | str]]:
        """Place and values of each point, for the script."""
        return [
            [
                round(self.across(x), 1),
                round(self.down(y), 1),
                _shown(x, self.log_x),
                _shown(y, self.log_y) + (f", {line.notes[k]}" if line.notes else ""),
            ]
            for k, (x, y) in enumerate(line.points)
        ]

    def grid(self, x_label: str, y_label: str) -> list[str]:
        parts = []
        for tick in self.y_ticks:
            y = self.down(tick)
            kind = "axis" if tick == 0 and not self.log_y else "grid"
            ends = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
            parts.append(f'<line class="{kind}" {ends}/>')
            parts.append(_label(LEFT - 8, y + 4, _number(tick, self.log_y), "end"))
        below = HEIGHT - BOTTOM + 18
        parts += [
            _label(self.across(tick), below, _number(tick, self.log_x)) for tick in self.x_ticks
        ]
        parts.append(_label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, text(x_label)))
        turned = f"translate(14 {(TOP + HEIGHT - BOTTOM) / 2:g}) rotate(-90)"
        parts.append(f'<g class="y-name" transform="{turned}">{_label(0, 0, text(y_label))}</g>')
        return parts


def _polyline(line: Series, axes: _Axes) -> list[str]:
    places = [(axes.across(x), axes.down(height)) for x, height in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [
        f'<polyline points="{path}" fill="none" style="stroke:{line.color}" stroke-width="2" '
        'stroke-linejoin="round" stroke-linecap="round"/>'
    ]
    for k, (x, y) in enumerate(places if len(places) <= MAX_DOTS else ()):
        radius = line.radii[k] if line.radii else DOT
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" style="fill:{line.color}"/>'
        )
    return parts


def _drawn(
    points: Sequence[tuple[float, float]], log_x: bool, log_y: bool
) -> list[tuple[float, float]]:
    """Points that can be drawn, on the scales of the axes, not more than `MAX_POINTS`."""
    placed = [
        (math.log10(x) if log_x else float(x), math.log10(y) if log_y else float(y))
        for x, y in points
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)
    ]
    if len(placed) <= MAX_POINTS:
        return placed
    kept = np.unique(np.linspace(0, len(placed) - 1, MAX_POINTS).round().astype(int))
    return [placed[k] for k in kept]


def _shown(value: float, is_log: bool) -> str:
    return number(10.0**value if is_log else value, 5)


def _label(x: float, y: float, content: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{content}</text>'


def _number(tick: float, is_log: bool) -> str:
    if not is_log:
        return f"{tick:g}".replace("e+0", "e").replace("e+", "e")
    if -3 <= tick <= 3:
        return f"{10.0**tick:g}"
    return f'10<tspan dy="-5" font-size="9">{tick:g}</tspan>'


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """About five round numbers that enclose a range."""
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / 5.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, round(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]


# -- calibration --------------------------------------------------------------------------


def calibration_bins(
    confidence: NDArray[np.float64], is_right: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """For each tenth of confidence: predictions, sum of confidences, predictions that are right."""
    place = np.clip((confidence * N_BINS).astype(np.int64), 0, N_BINS - 1)
    columns = (np.ones(len(place)), confidence, is_right.astype(np.float64))
    return np.stack([np.bincount(place, column, N_BINS) for column in columns], axis=1)


@dataclass(frozen=True)
class Calibration:
    """How often predictions of about the same confidence are right.

    One entry for each tenth of confidence that occurs: mean confidence, share that is right, count.
    """

    confidence: NDArray[np.float64]
    right: NDArray[np.float64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, confidence: NDArray[np.float64], is_right: NDArray[np.bool_]) -> Calibration:
        """From the probability of each predicted label, and whether it is the true one."""
        return cls.of_bins(calibration_bins(confidence, is_right))

    @classmethod
    def of_bins(cls, bins: NDArray[np.float64]) -> Calibration:
        """From what `calibration_bins` gives, or from a sum of such tables."""
        counts, sums, hits = bins[bins[:, 0] > 0].T
        return cls(sums / counts, hits / counts, counts.astype(np.int64))

    @property
    def points(self) -> list[tuple[float, float]]:
        """Mean confidence and share that is right."""
        return list(zip(self.confidence.tolist(), self.right.tolist(), strict=True))

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of the two, weighted by count."""
        apart = np.abs(self.confidence - self.right)
        return float((self.counts * apart).sum() / max(int(self.counts.sum()), 1))


def calibration_chart(found: Calibration, name: str = "share that is right") -> str:
    """Share of right predictions against their confidence; the diagonal is perfect calibration.

    The area of a dot is proportional to the number of predictions.
    """
    shares = found.counts / max(int(found.counts.max(initial=0)), 1)
    radii = np.maximum(LARGEST_DOT * np.sqrt(shares), 1.5).tolist()
    notes = [f"of {number(count)} predictions" for count in found.counts.tolist()]
    series = [Series(name, "", found.points, radii, notes)]
    return line_chart(series, "confidence", name, are_shares=True)


# -- bars ---------------------------------------------------------------------------------


def bar(value: float, largest: float, shown: str = "") -> Cell:
    """A cell of a table that shows a number with a bar: blue if positive, red if negative.

    ``shown`` is plain text in place of the number.
    """
    share = 0.0 if largest <= 0 or not math.isfinite(value) else min(1.0, abs(value) / largest)
    kind = "--positive" if value > 0 else "--negative"
    drawn = f'<i style="width:{4.0 * share:.2f}rem;background:rgb(var({kind}))"></i>'
    return Cell(f"{drawn} {text(shown) or number(value)}", float(value), "bar")
