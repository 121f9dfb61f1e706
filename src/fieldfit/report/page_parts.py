"""Parts of a self-contained HTML page: document, sections, tables, lists of facts, PNG pictures.

Nothing is fetched and nothing is needed beyond NumPy and the standard library, so a page opens
offline and can be sent to a colleague as one file.  Functions take plain text and escape it; what
they return is HTML.  Arguments that are HTML already are called ``body`` or ``parts``, and a `Cell`
holds what a table cannot make from a number or a text.
"""

from __future__ import annotations

import base64
import html
import math
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.report.page_script import SCRIPT, SCRIPT_POLICY
from fieldfit.report.page_style import STYLE

__all__ = [
    "Cell",
    "Section",
    "card",
    "cards",
    "code",
    "facts",
    "number",
    "page",
    "panel",
    "picture",
    "png_bytes",
    "small_table",
    "table",
    "tally",
    "text",
    "words",
]

DASH, MINUS, THIN_SPACE = "\u2013", "\u2212", "\u202f"
#: Tables with more rows than this scroll inside their card.
TALL_ROWS = 14
#: Nothing may be fetched, and no script runs but ours.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    f"script-src {SCRIPT_POLICY}; base-uri 'none'; form-action 'none'"
)


def text(value: object) -> str:
    """Escape for HTML, in text and in attributes."""
    # a lone surrogate, which file names and broken texts may hold, has no UTF-8
    plain = str(value).encode("utf-8", "replace").decode("utf-8")
    return html.escape(plain)


def number(value: Any, digits: int = 4) -> str:
    """A number for people: so many significant digits, thousands separated, a dash for none."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if isinstance(value, int | np.integer) or (1e4 <= abs(value) < 1e7 and digits < 8):
        shown = f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"
    else:
        shown = f"{value:.{digits}g}"
    return shown.replace(",", THIN_SPACE).replace("-", MINUS)


# -- the document -------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; ``body`` is HTML."""

    title: str
    body: str

    @property
    def name(self) -> str:
        """What links to the section call it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"

    def html(self) -> str:
        return f'<section id="{self.name}">\n<h2>{text(self.title)}</h2>\n{self.body}\n</section>'


def page(title: str, *sections: Section | str, lead: str = "", footer: str = "") -> str:
    """A complete document.

    Parameters
    ----------
    title
        Of the window and, if there is a ``lead``, above everything.
    sections
        `Section` objects, or HTML that stands where it is given.  Several sections with a lead get
        a list of links.
    lead, footer
        HTML before the first section (with the title as heading) and after the last one.
    """
    parts = []
    if lead:
        links = [s for s in sections if isinstance(s, Section)]
        parts.append(f"<header>\n<h1>{text(title)}</h1>\n{lead}\n</header>")
        if len(links) > 2:
            items = "".join(f'<li><a href="#{s.name}">{text(s.title)}</a></li>' for s in links)
            parts.append(
                f'<nav aria-label="Sections of this page"><ul class="contents">{items}</ul></nav>'
            )
    parts += [s.html() if isinstance(s, Section) else s for s in sections]
    if footer:
        parts.append(f"<footer>{footer}</footer>")
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def card(*parts: str, title: str = "", note: str = "") -> str:
    """A white box of HTML, with a heading and a sentence (both plain text) around it."""
    head = f"<h3>{text(title)}</h3>" if title else ""
    tail = f'<p class="soft">{text(note)}</p>' if note else ""
    return f'<div class="card">{head}{"".join(parts)}{tail}</div>'


def cards(*boxes: str) -> str:
    """Boxes side by side where there is room; empty ones are left out."""
    shown = [box for box in boxes if box]
    return f'<div class="wide">{"".join(shown)}</div>' if len(shown) > 1 else "".join(shown)


def words(sentence: str) -> str:
    """A paragraph of plain text in the softer colour."""
    return f'<p class="soft">{text(sentence)}</p>'


def code(program: str, name: str = "Program") -> str:
    """Lines of a program, which scroll where they are long, or of a shell, which break."""
    is_shell = "\n" not in program
    kind = ' class="shell"' if is_shell else ' tabindex="0" role="region"'
    label = "" if is_shell else f' aria-label="{text(name)}"'
    return f"<pre{kind}{label}>{text(program)}</pre>"


# -- tables and lists ---------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A cell whose look is not that of its value: HTML, and what sorting goes by."""

    html: str
    value: Any = ""
    kind: str = ""


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    sortable: bool = True,
    caption: str = "Table",
    titles: Sequence[str] = (),
    text_columns: Sequence[int] = (),
) -> str:
    """A table that scrolls inside itself where it is wider than its place.

    Parameters
    ----------
    header
        Names of the columns, plain text.
    rows
        Cells: numbers (shown by `number`, sorted exactly), texts, ``None`` (a dash), or `Cell`.
    sortable
        Whether a press on a heading sorts.
    caption
        What assistive technology calls the table.
    titles
        A sentence for each row, shown when the pointer rests on it.
    text_columns
        Columns of long texts, which are set from the left and may break, besides the first one.
    """
    lines = []
    listed = [list(row) for row in rows]
    for position, row in enumerate(listed):
        hint = f' title="{text(titles[position])}"' if position < len(titles) else ""
        cells = [_cell(value, column in text_columns) for column, value in enumerate(row)]
        lines.append(f"<tr{hint}>{''.join(cells)}</tr>")
    head = "".join(
        f'<th scope="col"{_words_class(column in text_columns)}>{text(name)}</th>'
        for column, name in enumerate(header)
    )
    kinds = ["sortable"] * sortable + ["narrow"] * (len(header) <= 2)
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    tall = " tall" if len(listed) > TALL_ROWS else ""
    return (
        f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _words_class(is_text: bool) -> str:
    return ' class="words"' if is_text else ""


def _cell(value: Any, is_text: bool) -> str:
    if isinstance(value, Cell):
        kind = f' class="{value.kind}"' if value.kind else _words_class(is_text)
        return f'<td{kind} data-value="{text(_sorted_by(value.value))}">{value.html}</td>'
    if value is None or isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return f'<td data-value="{text(_sorted_by(value))}">{number(value)}</td>'
    return f"<td{_words_class(is_text)}>{text(value)}</td>"


def _sorted_by(value: Any) -> Any:
    """What the script compares: all digits of a number, nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, float | np.floating):
        return "" if math.isnan(value) else repr(float(value)).replace("inf", "Infinity")
    return value


def facts(pairs: Mapping[str, Any]) -> str:
    """A list of names and values; values as in `table`, `Cell` for HTML."""
    items = []
    for name, value in pairs.items():
        is_text = isinstance(value, str)
        shown = value.html if isinstance(value, Cell) else text(value) if is_text else number(value)
        items.append(f"<dt>{text(name)}</dt><dd>{shown}</dd>")
    return f'<dl class="facts">{"".join(items)}</dl>'


def tally(pairs: Mapping[str, Any]) -> str:
    """A few figures, large: names and values, as in `facts`."""
    items = []
    for name, value in pairs.items():
        shown = text(value) if isinstance(value, str) else number(value)
        items.append(f"<div><dt>{text(name)}</dt><dd>{shown}</dd></div>")
    return f'<dl class="tally">{"".join(items)}</dl>'


def small_table(title: str, pairs: Mapping[str, Any]) -> str:
    """Names and values for a notebook, which has its own style sheet and runs no script."""
    rows = "".join(
        f'<tr><th style="text-align:left" scope="row">{text(name)}</th>'
        f'<td style="text-align:left">{text(value) if isinstance(value, str) else number(value)}'
        "</td></tr>"
        for name, value in pairs.items()
    )
    return (
        f'<table><caption style="text-align:left"><b>{text(title)}</b></caption>'
        f"<tbody>{rows}</tbody></table>"
    )


# -- pictures -----------------------------------------------------------------------------


def png_bytes(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of 8-bit pixels: shape (height, width) for grey, (height, width, 3) for colour.

    With four channels the last one is how opaque a pixel is.
    """
    height, width = pixels.shape[:2]
    color_type = {2: 0, 3: 2, 4: 6}[2 if pixels.ndim == 2 else pixels.shape[2]]
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


def panel(pixels: NDArray[np.uint8], caption: str, description: str = "") -> str:
    """A picture with a line of text below it, for a row of class ``panels``."""
    drawn = picture(pixels, description or caption)
    return f"<figure>{drawn}<figcaption>{text(caption)}</figcaption></figure>"
