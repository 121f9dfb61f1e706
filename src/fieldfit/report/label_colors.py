"""Colours of labels: the same for a token, a pixel and a node, told apart by colour-blind readers.

The first eight are those of Okabe and Ito ("Color universal design", 2008) but for black, which
light and dark pages would swallow; more labels get hues by the golden angle.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fieldfit.report.page_parts import text

__all__ = ["css_color", "label_legend", "label_pixels", "rgb_colors"]

_FIRST = (
    (86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66), (0, 114, 178),
    (213, 94, 0), (150, 150, 150),
)  # fmt: skip
#: Of a circle, in the golden ratio.
_GOLDEN_TURN = 0.381966
#: Labels that a legend names.
MAX_NAMED = 24


def rgb_colors(n_labels: int) -> NDArray[np.uint8]:
    """One colour for each label, shape (n_labels, 3)."""
    found = [_FIRST[k] if k < len(_FIRST) else _later(k) for k in range(n_labels)]
    return np.array(found, dtype=np.uint8).reshape(-1, 3)


def _later(k: int) -> tuple[int, int, int]:
    red, green, blue = colorsys.hls_to_rgb((k * _GOLDEN_TURN) % 1.0, 0.45 + 0.2 * (k % 2), 0.6)
    return round(255 * red), round(255 * green), round(255 * blue)


def css_color(label: int, opacity: float = 1.0) -> str:
    """Colour of a label for a style; with little opacity, text can be read on it."""
    red, green, blue = rgb_colors(label + 1)[label].tolist()
    return f"rgb({red} {green} {blue} / {opacity:.3f})"


def label_pixels(labels: NDArray[np.integer], n_labels: int) -> NDArray[np.uint8]:
    """A picture of labels; what has none (below 0) is white."""
    colors = np.concatenate([rgb_colors(n_labels), np.full((1, 3), 255, dtype=np.uint8)])
    return colors[np.where(labels < 0, n_labels, labels)]


def label_legend(names: Sequence[str]) -> str:
    """What the colours mean."""
    items = [
        f'<li><i class="box" style="background:{css_color(k)}"></i>{text(name)}</li>'
        for k, name in enumerate(names[:MAX_NAMED])
    ]
    if len(names) > MAX_NAMED:
        items.append(f"<li>and {len(names) - MAX_NAMED} more</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'
