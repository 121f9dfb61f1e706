"""Heat maps: tables whose cells are coloured by their numbers, and confusion matrices.

Colours are laid over the card with at most `STRONGEST` of opacity, so that digits can be read on
them, by the contrast that accessibility rules ask for, in light and in dark.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from fieldfit.report.page_parts import MINUS, number, picture, text, words

__all__ = ["confusion_table", "heat_map", "heat_picture"]

#: Opacity of the strongest colour.
STRONGEST = 0.6
#: Wider maps have no digits; still larger ones are pictures.
MAX_COLUMNS_WITH_DIGITS, MAX_CELLS = 14, 40 * 40
#: As in the style sheet: of positive and of negative numbers.
POSITIVE, NEGATIVE = (27, 108, 168), (200, 85, 61)


def heat_map(
    matrix: NDArray[np.float64],
    row_names: Sequence[object],
    column_names: Sequence[object],
    *,
    caption: str = "Heat map",
    corner: str = "",
    decimals: int | None = None,
    marked: Collection[tuple[int, int]] = (),
) -> str:
    """Numbers as colours: blue if positive, red if negative, NaN empty.

    Small maps show their numbers, larger ones when the pointer rests on a cell; what has more than
    `MAX_CELLS` cells becomes a picture.  ``corner`` says what rows and columns are; numbers have so
    many ``decimals``, or three digits of the largest; cells of ``marked`` get a frame.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    largest = float(np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0))
    scale = _scale(matrix, largest)
    if matrix.size > MAX_CELLS:
        size = " by ".join(str(length) for length in matrix.shape)
        note = f"{size} cells, rows and columns in the order of the model."
        return heat_picture(matrix, caption) + scale + words(note)
    dense = matrix.shape[1] > MAX_COLUMNS_WITH_DIGITS
    if decimals is None:
        decimals = int(np.clip(2 - np.floor(np.log10(largest or 1.0)), 0, 8))
    lines = []
    for i, name in enumerate(row_names):
        cells = [
            _cell(
                value,
                largest,
                "" if dense else _fixed(value, decimals),
                f"{name}, {column_names[j]}: {number(value)}",
                (i, j) in marked,
            )
            for j, value in enumerate(matrix[i].tolist())
        ]
        lines.append(f'<tr><th scope="row">{text(name)}</th>{"".join(cells)}</tr>')
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in column_names)
    first = f"<td class='none'>{text(corner)}</td>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table class="heat{" dense" if dense else ""}"><thead><tr>{first}{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{scale}"
    )


def heat_picture(matrix: NDArray[np.float64], description: str) -> str:
    """A large matrix as a picture, one pixel for each number, transparent where it is 0."""
    values = np.nan_to_num(np.asarray(matrix, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    largest = max(float(np.abs(values).max(initial=0.0)), 1e-300)
    pixels = np.empty((*values.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.where((values >= 0)[..., None], POSITIVE, NEGATIVE)
    pixels[..., 3] = np.round(255.0 * np.abs(values) / largest)
    return f'<div class="map">{picture(pixels, description)}</div>'


def _fixed(value: float, decimals: int) -> str:
    """A number with so many decimals; a plain 0 for what rounds to it."""
    if not np.isfinite(value):
        return number(value)
    shown = f"{value:.{decimals}f}"
    return shown.replace("-", MINUS) if float(shown) != 0.0 else "0"


def _cell(value: float, largest: float, shown: str, hint: str, marked: bool) -> str:
    kinds = ["marked"] if marked else []
    if not np.isfinite(value):
        kinds.append("none")
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    color = f' style="background:{_color(value, largest)}"' if np.isfinite(value) else ""
    return f'<td{kind}{color} title="{text(hint)}">{shown}</td>'


def _color(value: float, largest: float) -> str:
    share = 0.0 if largest == 0.0 else STRONGEST * abs(value) / largest
    return f"rgb(var({'--positive' if value >= 0 else '--negative'}) / {share:.3f})"


def _scale(matrix: NDArray[np.float64], largest: float) -> str:
    """What the colours mean."""
    if largest == 0.0:
        return ""
    has_negative = bool((matrix[np.isfinite(matrix)] < 0).any())
    low = f"rgb(var(--negative) / {STRONGEST})" if has_negative else "rgb(var(--positive) / 0)"
    middle = ", rgb(var(--positive) / 0)" if has_negative else ""
    ends = (-largest if has_negative else 0.0, largest)
    return (
        f'<p class="scale" aria-hidden="true">{number(ends[0], 3)}'
        f'<i style="background:linear-gradient(90deg, {low}{middle}, '
        f'rgb(var(--positive) / {STRONGEST}))"></i>{number(ends[1], 3)}</p>'
    )


def confusion_table(
    counts: NDArray[np.int64], names: Sequence[object], caption: str = "Confusion matrix"
) -> str:
    """How often each label (rows) was predicted as each (columns); colours by share of the row.

    What is right is blue, mistakes are red.
    """
    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shares = counts / totals
    dense = len(names) > MAX_COLUMNS_WITH_DIGITS
    lines = []
    for i, name in enumerate(names):
        cells = []
        for j, count in enumerate(counts[i].tolist()):
            signed = shares[i, j] if i == j else -shares[i, j]
            hint = f"{name} predicted as {names[j]}: {count}, {100 * shares[i, j]:.1f} %"
            cells.append(_cell(float(signed), 1.0, "" if dense else number(count), hint, False))
        lines.append(f'<tr><th scope="row">{text(name)}</th>{"".join(cells)}</tr>')
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in names)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table class="heat{" dense" if dense else ""}"><thead>'
        f"<tr><td class='none'>truth ↓ predicted →</td>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
