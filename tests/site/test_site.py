"""The site that ``make docs`` builds: every name, every picture, every link, no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build/site"
NEEDED = ("sphinx", "myst_parser", "numpydoc", "pydata_sphinx_theme", "sphinx_gallery")
NEEDED += ("sphinx_design", "sphinx_copybutton")

for module in NEEDED:
    pytest.importorskip(module, reason=f"{module}: needs pip install 'fieldfit[docs]'")
if not (ROOT / "docs/conf.py").exists():
    pytest.skip("the package is tested without its repository", allow_module_level=True)

sys.path.insert(0, str(ROOT / "docs/_extensions"))
import api_pages  # noqa: E402
import decision_trees  # noqa: E402
import repository_links  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of ziamath, in Python 3.11 and 3.12
    import formulas

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


class Page(HTMLParser):
    """Links, sources and places of one page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.sources, self.places, self.tags = [], [], set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.add(tag)
        self.places.update(filter(None, (found.get("id"), found.get("name"))))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("script", "img", "iframe", "source", "video") and found.get("src"):
            self.sources.append(found["src"])
        if tag == "link" and found.get("href"):
            self.sources.append(found["href"])


@pytest.fixture(scope="module")
def site():
    """The site, as ``make docs`` builds it; examples that have not changed are not run again."""
    command = re.search(r"python (-m sphinx .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    done = subprocess.run(
        [sys.executable, *command[1].split()],
        cwd=ROOT,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return SITE


@cache
def pages():
    return {
        path: Page(path) for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts
    }


def test_there_are_pages(site):
    assert len(pages()) > 200
    assert (site / "index.html") in pages()


def test_every_public_name_has_a_page(site):
    for path in api_pages.all_paths():
        page = site / f"api/generated/{path}.html"
        assert page.exists(), path
        assert path in pages()[page].places, f"{page.name} does not document it"


def test_search_finds_names_and_words(site):
    text = (site / "searchindex.js").read_text()
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    found = _found(index, "treereweight")  # words are kept by their stems
    titles = {index["titles"][place] for place in found}
    assert "TreeReweighted" in titles
    names = {row[4] for row in index["objects"]["fieldfit"]}
    assert {"TreeReweighted", "GridCRF", "infer"} <= names
    assert _found(index, "camel")


def _found(index, term):
    places = []
    for terms in (index["terms"], index["titleterms"]):
        found = terms.get(term, [])
        places += found if isinstance(found, list) else [found]
    return places


@pytest.mark.parametrize("name", EXAMPLES)
def test_gallery_pages_show_pictures_and_offer_notebooks(site, name):
    page = pages()[site / f"gallery/{name}.html"]
    assert any(f"sphx_glr_{name}_001.png" in source for source in page.sources)
    assert any(link.endswith(f"{name}.ipynb") for link in page.links)
    index = pages()[site / "gallery/index.html"]
    assert any(f"{name}_thumb.png" in source for source in index.sources)


def test_the_gallery_is_large_enough():
    assert len(EXAMPLES) >= 16


def test_internal_links_lead_to_pages_and_places(site):
    broken = []
    for path, page in pages().items():
        for link in {*page.links, *page.sources}:
            parts = urlsplit(link)
            if parts.scheme or link in ("#", ""):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append((path.name, link))
            elif parts.fragment and target in pages():
                places = pages()[target].places
                broken += [(path.name, link)] if unquote(parts.fragment) not in places else []
    assert not broken, broken[:20]


def test_nothing_is_fetched_from_the_network(site):
    for path, page in pages().items():
        outside = [source for source in page.sources if urlsplit(source).netloc]
        assert not outside, (path, outside)
    for style in site.rglob("*.css"):
        text = style.read_text()
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", text), style


def test_formulas_are_typeset(site):
    for name in ("likelihood", "camel", "contrastive", "mle-struct", "implicit", "procedural"):
        page = (site / f"{name}.html").read_text()
        assert '<div class="math' in page, name
        assert "aria-label" in page.split('<div class="math')[1].split("</div>")[0]


def test_pages_on_methods_link_to_the_reference(site):
    links = pages()[site / "chain.html"].links
    assert any("api/generated/fieldfit.ChainCRF.html" in link for link in links)


# -- our extensions -----------------------------------------------------------------------


def test_links_to_files_of_the_repository_become_links_to_pages():
    text = "[a](../examples/camel.py) [b](../README.md) [c](grid.md#idea) [d](https://example.org)"
    found = repository_links.rewrite(text, "camel", "docs/camel.md")
    assert "(gallery/camel.rst)" in found
    assert "(index.rst)" in found
    assert "(grid.md#idea)" in found
    assert "(https://example.org)" in found


def test_reports_of_experiments_become_pages():
    text = "[a](../../experiments/tang2016/synthetic/results/report.md)"
    found = repository_links.rewrite(text, "papers/tang2016", "docs/papers/tang2016.md")
    assert found == "[a](reports/tang2016-synthetic.rst)"


def test_a_formula_that_is_not_understood_ends_the_build():
    assert formulas.picture(r"\frac{1}{2}", inline=False).startswith("<svg ")
    with pytest.raises(Exception, match="command that is not known"):
        formulas.picture(r"\nonsense{x}", inline=False)


@pytest.mark.parametrize("name", decision_trees.PICTURES)
def test_decision_trees_are_those_that_are_drawn(name):
    assert (ROOT / "docs/images" / name).read_text() == decision_trees.PICTURES[name]()


def test_the_citation_names_five_papers():
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found["version"] == version[1]
    assert len(found["references"]) == 5
    assert all(paper["authors"] and paper["year"] for paper in found["references"])
