"""Formulas as pictures inside the page, typeset when the site is built: no script, no network."""

from functools import cache
from html import escape

import latex2mathml.converter
import ziamath
from docutils import nodes
from sphinx.errors import ExtensionError

SIZE = 17
ziamath.config.svg2 = False  # glyphs as paths: several formulas of a page share no names


@cache
def picture(formula, inline):
    """An SVG element in the colour of the text, with the formula itself for those who listen."""
    formula = " ".join(formula.split())
    if "\\" in latex2mathml.converter.convert(formula):
        raise ExtensionError(f"a formula has a command that is not known: {formula}")
    drawn = ziamath.Latex(formula, size=SIZE, color="currentColor", inline=inline)
    style = f' style="vertical-align: {drawn.getyofst():.2f}px"' if inline else ""
    label = escape(formula, quote=True)
    return drawn.svg().replace("<svg ", f'<svg role="img" aria-label="{label}"{style} ', 1)


def visit_inline(writer, node):
    """A formula in a line of text."""
    writer.body.append(picture(node.astext(), inline=True))
    raise nodes.SkipNode


def visit_display(writer, node):
    """A formula on a line of its own."""
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    writer.body.append(picture(node.astext(), inline=False))
    writer.body.append("</div>")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer ``"formulas"``; a formula that is not understood ends the build."""
    app.add_html_math_renderer("formulas", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
