"""Parts of a self-contained HTML page: inline PNG pictures, SVG line charts, one style sheet.

Nothing is fetched and nothing is needed beyond NumPy and the standard library, so a page opens
offline and can be sent to a colleague as one file.
"""

from __future__ import annotations

import base64
import html
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Series", "line_chart", "page", "picture", "png_bytes", "text"]

#: Of a chart in its own units; the browser scales it.
WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 46
#: Lines with more points than this are drawn without dots, which would hide them.
MAX_DOTS = 40

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5a6472; --line: #d7dce2;
  --card: #ffffff; --page: #f5f6f8; --code: #f0f2f5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #333b46;
  --card: #1b2027; --page: #12161b; --code: #242b34; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.02em; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; letter-spacing: -.01em; }
p { margin: .6rem 0 .9rem; max-width: 52rem; }
.soft { color: var(--soft); }
.wide { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); }
.card { min-width: 0; padding: 16px; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
.strip { display: grid; grid-template-columns: 190px minmax(0, 1fr); gap: 4px 20px;
  align-items: center; padding: 12px 0; border-bottom: 1px solid var(--line); }
.strip:first-child { padding-top: 0; }
.strip:last-child { padding-bottom: 0; border-bottom: 0; }
.strip > p { margin: 0; font-size: .85rem; line-height: 1.4; color: var(--soft); }
.strip b { display: block; color: var(--ink); font-size: .95rem; }
.tiles { display: grid; grid-template-columns: repeat(10, 1fr); gap: 6px; }
.tiles + .tiles { margin-top: 6px; }
.tiles img { width: 100%; display: block; border-radius: 3px; image-rendering: pixelated; }
@media (max-width: 720px) { .strip { grid-template-columns: minmax(0, 1fr); }
  .tiles { gap: 3px; } .tiles + .tiles { margin-top: 3px; } main { padding: 24px 14px 48px; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .95rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: 7px 10px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 600; font-size: .85rem; white-space: normal;
  vertical-align: bottom; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); }
.axis { stroke: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 0 0 6px; padding: 0;
  list-style: none; font-size: .85rem; color: var(--soft); }
.legend i { display: inline-block; width: 18px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle; }
pre, code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; overflow-x: auto; font-size: .85rem; line-height: 1.5; }
.chip { display: inline-block; width: .8em; height: .8em; border-radius: 2px; }
footer { margin-top: 3rem; font-size: .85rem; color: var(--soft); }
"""


def text(value: object) -> str:
    """Escape for HTML."""
    return html.escape(str(value))


def page(title: str, body: str) -> str:
    """A complete document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


# -- pictures -----------------------------------------------------------------------------


def png_bytes(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of 8-bit pixels: shape (height, width) for grey, (height, width, 3) for colour."""
    height, width = pixels.shape[:2]
    color_type = 2 if pixels.ndim == 3 else 0
    rows = np.zeros((height, 1 + pixels[0].size), dtype=np.uint8)  # each begins with filter type 0
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def picture(pixels: NDArray[np.uint8], description: str) -> str:
    """An ``<img>`` that carries its own data; no description if the context gives one."""
    data = base64.b64encode(png_bytes(pixels)).decode("ascii")
    return f'<img alt="{text(description)}" src="data:image/png;base64,{data}">'


# -- charts -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    color: str
    points: Sequence[tuple[float, float]]


def line_chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """A legend and an SVG line chart; on a logarithmic axis points at or below 0 are left out.

    A linear horizontal axis begins at 0.
    """
    lines = [Series(s.name, s.color, _placed(s.points, log_x, log_y)) for s in series]
    points = [point for line in lines for point in line.points]
    if not points:
        return '<p class="soft">nothing to draw</p>'
    widths, heights = zip(*points, strict=True)
    x_ticks = _ticks(min(widths) if log_x else 0.0, max(widths), whole=log_x)
    y_ticks = _ticks(min(heights), max(heights), whole=log_y)
    x_scale = (WIDTH - LEFT - RIGHT) / (x_ticks[-1] - x_ticks[0])
    y_scale = (HEIGHT - TOP - BOTTOM) / (y_ticks[-1] - y_ticks[0])

    def across(x: float) -> float:
        return LEFT + (x - x_ticks[0]) * x_scale

    def down(height: float) -> float:
        return HEIGHT - BOTTOM - (height - y_ticks[0]) * y_scale

    title = f"{y_label} against {x_label}"
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(title)}">']
    for tick in y_ticks:
        y = down(tick)
        kind = "axis" if tick == 0 and not log_y else "grid"
        ends = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        parts.append(f'<line class="{kind}" {ends}/>')
        parts.append(_label(LEFT - 8, y + 4, _number(tick, log_y), "end"))
    below = HEIGHT - BOTTOM + 18
    parts += [_label(across(tick), below, _number(tick, log_x)) for tick in x_ticks]
    parts.append(_label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, text(x_label)))
    turned = f"translate(14 {(TOP + HEIGHT - BOTTOM) / 2:g}) rotate(-90)"
    parts.append(f'<g transform="{turned}">{_label(0, 0, text(y_label))}</g>')
    for line in lines:
        places = [(across(x), down(height)) for x, height in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{line.color}" stroke-width="2" '
            'stroke-linejoin="round" stroke-linecap="round"/>'
        )
        for x, y in places if len(places) <= MAX_DOTS else ():
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{line.color}"/>')
    parts.append("</svg>")
    legend = "".join(
        f'<li><i style="background:{line.color}"></i>{text(line.name)}</li>' for line in lines
    )
    return f'<ul class="legend">{legend}</ul>' + "\n".join(parts)


def _placed(
    points: Sequence[tuple[float, float]], log_x: bool, log_y: bool
) -> list[tuple[float, float]]:
    """Points that can be drawn, on the scales of the axes."""
    return [
        (math.log10(x) if log_x else x, math.log10(y) if log_y else y)
        for x, y in points
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)
    ]


def _label(x: float, y: float, content: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{content}</text>'


def _number(tick: float, is_log: bool) -> str:
    if not is_log:
        return f"{tick:g}"
    if -3 <= tick <= 3:
        return f"{10.0**tick:g}"
    return f'10<tspan dy="-5" font-size="9">{tick:g}</tspan>'


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """About five round numbers that enclose a range."""
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / 5.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, round(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]
