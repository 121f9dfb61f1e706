"""Networks as SVG: variables as circles, couplings as lines by their strength."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fieldfit.plot import spring_layout
from fieldfit.report.page_parts import number, text

__all__ = ["MAX_NODES", "network"]

#: Of the drawing in its own units, and what stays free around it for names.
SIZE, MARGIN = 640.0, 46.0
#: Least distance of two circles, in radii, so that their line is seen, and steps to get there.
GAP, N_PUSHES = 3.2, 80
#: More circles than this cannot be told apart; the time of the layout grows with their square.
MAX_NODES = 120
#: Lines that are drawn, the strongest.
MAX_LINES = 400


def network(
    strengths: NDArray[np.float64],
    names: Sequence[object],
    *,
    colors: Sequence[str] | None = None,
    wrong: Sequence[bool] | None = None,
    caption: str = "Network",
    plain: bool = False,
) -> str:
    """Draw a symmetric matrix of couplings: blue if positive, red and dashed if negative.

    Parameters
    ----------
    strengths
        ``(n, n)``; the width of a line is proportional to the size, and 0 is no line.
    names
        Of the variables.
    colors, wrong
        How circles are filled (CSS colours), and which get a dashed ring.
    caption
        What assistive technology calls the drawing.
    plain
        All lines alike, where only the graph matters.
    """
    matrix = np.asarray(strengths, dtype=np.float64)
    sizes = np.abs(matrix)
    radius = float(np.clip(120.0 / np.sqrt(max(len(matrix), 1)), 7.0, 20.0))
    places = _places(sizes, GAP * radius)
    parts = [
        f'<svg class="network" viewBox="0 0 {SIZE:g} {SIZE:g}" role="img" '
        f'aria-label="{text(caption)}">'
    ]
    parts += _lines(matrix, names, places, plain)
    for k, (x, y) in enumerate(places):
        fill = f' style="fill:{colors[k]}"' if colors is not None else ""
        kind = ' class="wrong"' if wrong is not None and wrong[k] else ""
        parts.append(
            f'<circle{kind}{fill} cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
            f"<title>{text(names[k])}</title></circle>"
        )
    for k, (x, y) in enumerate(places):
        name = str(names[k])
        inside = len(name) * 6.5 < 2 * radius
        shown = name if len(name) <= 18 else name[:17] + "…"
        parts.append(
            f'<text x="{x:.1f}" y="{y + (4 if inside else radius + 12):.1f}">{text(shown)}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts)


def _places(sizes: NDArray[np.float64], apart: float) -> NDArray[np.float64]:
    """Where circles go: the drawing filled, and no two closer than ``apart`` if there is room."""
    places = _filled(spring_layout(sizes))
    for _ in range(N_PUSHES):
        way = places[:, None] - places[None]
        distance = np.sqrt((way**2).sum(axis=2)) + 1e-9
        push = np.maximum(apart - distance, 0.0) / distance / 2.0
        np.fill_diagonal(push, 0.0)
        if not push.any():
            break
        places = _filled(places + (push[:, :, None] * way).sum(axis=1))
    return places


def _filled(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places stretched to the drawing, in both directions."""
    low, high = places.min(axis=0, initial=np.inf), places.max(axis=0, initial=-np.inf)
    span = np.where(high - low > 1e-9, high - low, 1.0)
    share = np.where(high - low > 1e-9, (places - low) / span, 0.5)
    return np.asarray(MARGIN + share * (SIZE - 2 * MARGIN))


def _lines(
    matrix: NDArray[np.float64],
    names: Sequence[object],
    places: NDArray[np.float64],
    plain: bool,
) -> list[str]:
    """Couplings, the strongest last, on top."""
    first, second = np.triu_indices(len(matrix), 1)
    values = matrix[first, second]
    order = np.argsort(np.abs(values), kind="stable")
    order = order[values[order] != 0.0][-MAX_LINES:]
    largest = float(np.abs(values).max(initial=0.0))
    parts = []
    for e in order:
        i, j = int(first[e]), int(second[e])
        share = 0.25 if plain else abs(values[e]) / largest
        kind = "plain" if plain else ("minus" if values[e] < 0 else "plus")
        hint = f"{names[i]}, {names[j]}" + ("" if plain else f": {number(float(values[e]))}")
        parts.append(
            f'<line class="{kind}" x1="{places[i, 0]:.1f}" y1="{places[i, 1]:.1f}" '
            f'x2="{places[j, 0]:.1f}" y2="{places[j, 1]:.1f}" '
            f'stroke-width="{0.6 + 6.0 * share:.2f}" stroke-opacity="{0.25 + 0.65 * share:.2f}">'
            f"<title>{text(hint)}</title></line>"
        )
    return parts
