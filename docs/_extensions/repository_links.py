"""Links of the Markdown pages, which lead to files of the repository, as links of the site.

On a code host ``../examples/camel.py`` is a file; here it is a page of the gallery.  Reports of the
experiments become pages, other files are for download, and a link that leads nowhere is an error.
"""

import re
from pathlib import Path
from posixpath import normpath, relpath

from myst_parser.parsers.sphinx_ import MystParser

ROOT = Path(__file__).resolve().parents[2]

LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
#: Files of the repository that are pages of the site under another name.
PAGES = {
    "README.md": "index",
    "docs/index.md": "guide",
    "docs/coming-from/README.md": "coming-from/index",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changes",
    "SECURITY.md": "security",
    "SUPPORT.md": "support",
    "examples": "gallery/index",
    "experiments": "papers/index",
}


def page_of(target):
    """The page of the site that shows a file of the repository, or ``None``."""
    if target in PAGES:
        return PAGES[target]
    example = re.fullmatch(r"examples/(\w+)\.py", target)
    if example:
        return f"gallery/{example[1]}"
    report = re.fullmatch(r"experiments/(\w+(?:/\w+)*)/results/report\.md", target)
    if report:
        return "papers/reports/" + report[1].replace("/", "-")
    return None


def rewrite(text, docname, source):
    """The text of a page with its links rewritten; ``source``: its file in the repository."""

    def replaced(match):
        link, anchor = match[1], match[2] or ""
        if link.startswith(("https:", "http:", "mailto:")):
            return match[0]
        page = page_of(normpath(f"{Path(source).parent.as_posix()}/{link}"))
        if page is None:
            target = normpath(f"{Path(source).parent.as_posix()}/{link}")
            return relpath(target, Path("docs", docname).parent.as_posix()) + anchor
        if page == "index":
            anchor = ""
        return relpath(page, Path(docname).parent.as_posix()) + ".rst" + anchor

    return LINK.sub(replaced, text)


def on_source(app, docname, content):
    """A page of its own."""
    file = Path(app.env.doc2path(docname))
    if file.suffix == ".md":
        source = file.relative_to(ROOT).as_posix()
        content[0] = rewrite(content[0], docname, source)


class Parser(MystParser):
    """Of Markdown files that a page of the site includes."""

    def parse(self, inputstring, document):
        """As MyST parses it, with other links."""
        file = Path(document["source"]).resolve()
        source = file.relative_to(ROOT).as_posix()
        super().parse(rewrite(inputstring, document.settings.env.docname, source), document)


def write_reports(app, config):
    """A page for each report of an experiment, which includes it."""
    folder = Path(app.srcdir, "papers", "reports")
    folder.mkdir(exist_ok=True)
    for report in sorted(ROOT.glob("experiments/**/results/report.md")):
        page = page_of(report.relative_to(ROOT).as_posix())
        text = ":orphan:\n\n" + include(f"../../../{report.relative_to(ROOT).as_posix()}")
        file = Path(app.srcdir, f"{page}.rst")
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def include(path):
    return f".. include:: {path}\n   :parser: repository_links\n"


def setup(app):
    """Connect what is above."""
    app.connect("config-inited", write_reports)
    app.connect("source-read", on_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
