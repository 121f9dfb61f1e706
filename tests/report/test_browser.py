"""Pages in a real browser: no errors, no network, tables sort, charts speak, phones, contrast.

Needs the extra ``browser`` and a Chromium of the system (``make browser`` installs both), or the
binary that ``FIELDFIT_CHROMIUM`` names; without them these tests are skipped.  Pictures of the
pages go to the folder that ``FIELDFIT_SCREENSHOTS`` names, or to ``test-results/screenshots``.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest
from learning_files import write_training
from report_cases import KINDS, case

from fieldfit.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("FIELDFIT_CHROMIUM") or next(
    filter(None, map(shutil.which, BINARIES)), None
)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found: run make browser"),
    pytest.mark.skipif(
        find_spec("playwright") is None, reason="no Playwright found: run make browser"
    ),
]

#: The demonstrations on drawn data are comparisons, of chains, networks and matchings.
DEMOS = ["demo", "demo-text", "demo-network", "demo-matching"]
COMPARED = ["compare-grid", "compare-graph"]
PAGES = [*DEMOS, *COMPARED, *KINDS, "chain-alone", "matching-alone"]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    # the sandbox of Chromium does not start as root, as in containers of continuous integration
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """Where each page lies; made when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}

    def address(name):
        if name not in made:
            path = folder / f"{name}.html"
            if name in (*DEMOS, *COMPARED):
                command, _, kind = name.partition("-")
                words = [command, kind or "digits", "--out", str(folder / name)]
                if name in COMPARED:
                    words += ["--train", write_training(kind, folder), "--methods", "trw,piecewise"]
                else:
                    words += ["--quick"]
                with contextlib.redirect_stdout(io.StringIO()):
                    assert main([*words, "--quiet"]) == 0
                path = folder / name / "index.html"
            else:
                case(name.removesuffix("-alone")).write(path, not name.endswith("-alone"))
            made[name] = path.as_uri()
        return made[name]

    return address


@pytest.fixture(params=PAGES)
def name(request):
    return request.param


class Opened:
    """A page with what went wrong on it."""

    def __init__(self, browser, address, size=None, scheme="light", bypass=False):
        self.context = browser.new_context(
            viewport=size or DESKTOP,
            color_scheme=scheme,
            bypass_csp=bypass,
            reduced_motion="reduce",
        )
        self.page = self.context.new_page()
        self.wrong = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)
        self.page.goto(address)

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _dialog(self, dialog):
        self.wrong.append(f"a script of a name ran: {dialog.message}")
        dialog.dismiss()

    def _request(self, request):
        if not request.url.startswith(("file:", "data:")):
            self.wrong.append(f"fetched {request.url}")

    def __enter__(self):
        return self.page

    def __exit__(self, kind, *_):
        self.context.close()
        if kind is None:
            assert self.wrong == []


@pytest.fixture(scope="module")
def screenshots():
    default = ROOT / "test-results" / "screenshots"
    folder = Path(os.environ.get("FIELDFIT_SCREENSHOTS") or default)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# -- what a reader does ----------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_page_opens_without_errors_and_fits_its_width(
    browser, addresses, screenshots, name, size, scheme
):
    with Opened(browser, addresses(name), size, scheme) as page:
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"]
        if page.locator(".chart").count():
            page.locator(".chart").first.focus()
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            page.keyboard.press("Escape")
            page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        path = screenshots / f"{name}-{size['width']}-{scheme}.png"
        page.screenshot(path=path, full_page=True)
        assert path.stat().st_size > 10_000


def keys(table, column):
    """What a column is sorted by, row by row."""
    cells = table.locator(f"tbody tr td:nth-child({column + 1})")
    return cells.evaluate_all("cells => cells.map(c => c.dataset.value ?? c.textContent.trim())")


def is_number(key):
    try:
        float(key)
    except ValueError:
        return False
    return True


def in_order(found):
    """Sorted as the page should: numbers by size, empty cells last."""
    known = [key for key in found if key != ""]
    if all(is_number(key) for key in known):
        known.sort(key=float)
    else:
        known.sort(key=str.casefold)
    return known


def test_tables_sort_by_pointer_and_by_keyboard(browser, addresses, name):
    with Opened(browser, addresses(name)) as page:
        tables = page.locator("table.sortable")
        n_sorted = 0
        for k in range(tables.count()):
            table = tables.nth(k)
            headings = table.locator("thead th")
            for column in range(headings.count()):
                before = keys(table, column)
                known = [key for key in before if key]
                if len(set(known)) < 2 or not all(is_number(key) for key in known):
                    continue
                button = headings.nth(column).get_by_role("button")
                button.click()
                assert headings.nth(column).get_attribute("aria-sort") == "descending"
                after = keys(table, column)
                assert [key for key in after if key] == in_order(before)[::-1]
                assert after[len(known) :] == [""] * (len(before) - len(known))
                button.focus()
                page.keyboard.press("Enter")
                assert headings.nth(column).get_attribute("aria-sort") == "ascending"
                assert [key for key in keys(table, column) if key] == in_order(before)
                assert table.locator("th[aria-sort]").count() == 1
                n_sorted += 1
            if not headings.first.get_by_role("button").count():
                continue
            headings.first.get_by_role("button").click()  # names
            assert headings.first.get_attribute("aria-sort") in ("ascending", "descending")
        assert n_sorted


def test_charts_say_their_values(browser, addresses, name):
    with Opened(browser, addresses(name)) as page:
        charts = page.locator(".chart")
        if charts.count() == 0:
            assert name == "mixture"  # learned in closed form, shown as pictures
            return
        for k in range(charts.count()):
            chart = charts.nth(k)
            value = chart.locator(".value")
            assert value.is_hidden()
            chart.locator("svg").hover()
            assert value.is_visible()
            assert value.inner_text().startswith(chart.get_attribute("data-x"))
            box, room = value.bounding_box(), chart.bounding_box()
            assert box["x"] >= room["x"] - 1
            assert box["x"] + box["width"] <= room["x"] + room["width"] + 1
            page.mouse.move(1, 1)
            assert value.is_hidden()
            chart.focus()
            page.keyboard.press("Home")
            first = value.inner_text()
            page.keyboard.press("ArrowRight")
            assert value.inner_text() != first
            page.keyboard.press("End")
            assert value.is_visible()
            page.keyboard.press("Escape")
            assert value.is_hidden()


def test_everything_is_reached_with_the_keyboard(browser, addresses):
    with Opened(browser, addresses("ising")) as page:
        n_wanted = page.locator("a, th button, .chart, .scroll, pre").count()
        reached = set()
        for _ in range(n_wanted + 2):
            page.keyboard.press("Tab")
            place = "e => [...document.querySelectorAll('*')].indexOf(e)"
            reached.add(page.evaluate(f"({place})(document.activeElement)"))
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            if len(reached) <= n_wanted:
                assert outline != "none"
        assert len(reached) >= n_wanted


def test_only_the_script_of_the_page_runs(browser, addresses):
    """The policy of the page refuses other scripts, and the check sees it."""
    opened = Opened(browser, addresses("chain"))
    with contextlib.suppress(Exception):
        opened.page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'),"
            "{textContent: 'window.ran = 1'}))"
        )
    assert opened.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in sentence for sentence in opened.wrong)
    opened.context.close()


# -- accessibility ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The source of axe-core: from the Python package that ships it, or from npm."""
    if find_spec("axe_playwright_python") is not None:
        return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    npm = shutil.which("npm")
    folder = tmp_path_factory.mktemp("axe")
    if npm is not None:
        done = subprocess.run(
            [npm, "pack", "axe-core"], cwd=folder, capture_output=True, text=True, check=False
        )
        for archive in folder.glob("*.tgz") if done.returncode == 0 else ():
            with tarfile.open(archive) as packed:
                member = packed.extractfile("package/axe.min.js")
                assert member is not None
                return member.read().decode()
    pytest.skip("no axe-core found: run make browser, or install npm")


@pytest.mark.parametrize(
    ("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["light", "dark"]
)
def test_axe_finds_nothing(browser, addresses, axe, name, size, scheme):
    with Opened(browser, addresses(name), size, scheme, bypass=True) as page:
        page.evaluate(axe)
        found = page.evaluate("axe.run(document)")
        told = [
            f"{rule['id']}: {node['target']} {node.get('failureSummary', '')}"
            for rule in found["violations"]
            for node in rule["nodes"][:3]
        ]
        assert told == []
        assert {"color-contrast", "document-title", "image-alt"} <= {
            r["id"] for r in found["passes"]
        } | {r["id"] for r in found["inapplicable"]}


def test_axe_can_fail(browser, axe, tmp_path):
    path = tmp_path / "poor.html"
    path.write_text(
        '<!doctype html><title>x</title><p style="color:#bbb">pale</p><img src="data:,">'
    )
    with Opened(browser, path.as_uri(), bypass=True) as page:
        page.evaluate(axe)
        found = {rule["id"] for rule in page.evaluate("axe.run(document)")["violations"]}
    assert {"color-contrast", "image-alt", "html-has-lang"} <= found
