"""``fieldfit demo``: numbers, table, JSON and the page it writes."""

from __future__ import annotations

import base64
import json
import re
import struct
import subprocess
import sys
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fieldfit.cli._page import Series, line_chart, picture, png_bytes
from fieldfit.cli.demo_methods import METHODS, Outcome
from fieldfit.cli.demo_page import bound_words
from fieldfit.cli.demo_picture import NOISE, Restoration, draw_picture
from fieldfit.cli.main import main
from fieldfit.inference.brute_force import BruteForce

NAMES = [method.name for method in METHODS]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One run on a picture that is small enough for exact inference."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-W", "error", "-m", "fieldfit.cli.main", "demo"]
    options = ["--size", "14", "--seed", "3", "--json", "--out", str(folder / "out")]
    done = subprocess.run(command + options, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (folder / "out" / "index.html").read_text(encoding="utf-8")
    return json.loads(done.stdout), done.stderr, page


# -- the command --------------------------------------------------------------------------


def test_every_method_is_reported(small):
    fields, _, _ = small
    rows = {row["method"]: row for row in fields["methods"]}
    assert list(rows) == [*NAMES, "exact"]
    for row in rows.values():
        assert 0 <= row["pixels_wrong"] <= 14 * 14
        assert row["log_loss"] > 0
        assert row["seconds"] >= 0
        assert row["status"]
    assert rows["independent pixels"]["log_partition"] is None
    assert rows["exact"]["bound"] == "exact"


def test_bounds_enclose_the_exact_value(small):
    fields, _, _ = small
    rows = {row["method"]: row for row in fields["methods"]}
    exact = rows["exact"]["log_partition"]
    assert rows["mean field"]["log_partition"] <= exact <= rows["tree-reweighted"]["log_partition"]
    patch = fields["patch"]
    assert len(patch["couplings"]) == len(patch["exact"]) >= 5
    lower, upper = np.array(patch["mean field"]), np.array(patch["tree-reweighted"])
    assert np.all(lower <= np.array(patch["exact"]) + 1e-9)
    assert np.all(upper >= np.array(patch["exact"]) - 1e-9)
    assert upper[-1] - lower[-1] > 1e-3  # at strong coupling neither is exact


def test_progress_and_place_are_told(small):
    fields, talk, _ = small
    for name in NAMES:
        assert name in talk
    assert fields["page"].endswith("index.html")


def test_table_and_quiet(tmp_path, capsys):
    arguments = ["demo", "--size", "10", "--quiet", "--out", str(tmp_path / "a" / "b")]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert len(lines) == 1 + len(NAMES) + 1  # the head, the methods, exact
    assert lines[-1].startswith("exact")
    assert (tmp_path / "a" / "b" / "index.html").exists()


@pytest.mark.parametrize("options", [["--size", "7"], ["--size", "x"], ["--seed", "-1"]])
def test_bad_options(options, capsys):
    assert main(["demo", *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "must be an integer" in error


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


# -- the page -----------------------------------------------------------------------------


class Tags(HTMLParser):
    """Collects tags, and checks that they nest."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_complete_and_needs_no_network(small):
    fields, _, page = small
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    sources = [attrs["src"] for tag, attrs in tags.seen if "src" in attrs]
    assert len(sources) == 2 * (1 + len(fields["methods"]))
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not any(tag in ("script", "link", "iframe") for tag, _ in tags.seen)
    assert "http" not in page.replace("http-equiv", "")
    assert [tag for tag, _ in tags.seen].count("svg") == 2
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"\b(nan|inf|None)\b", re.sub(r"base64,[^\"]*", "", page))
    for row in fields["methods"]:
        assert row["method"] in page
        assert f"<td>{row['pixels_wrong']}</td>" in page


def decoded(png):
    """Pixels of a PNG file as `png_bytes` writes them, with its checksums verified."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place, chunks = 8, {}
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", png[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(kind + data)
        chunks[kind] = data
        place += 12 + length
    width, height, depth, color, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert depth == 8
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()
    shape = (height, width, 3) if color == 2 else (height, width)
    return rows[:, 1:].reshape(shape)


@pytest.mark.parametrize("shape", [(3, 5), (4, 2, 3), (1, 1)])
def test_png_round_trip(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert_array_equal(decoded(png_bytes(pixels)), pixels)
    data = re.search(r'base64,([^"]*)"', picture(pixels, 'a "b" <c>'))
    assert_array_equal(decoded(base64.b64decode(data[1])), pixels)


def test_png_opens_elsewhere(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    pixels = np.random.default_rng(1).integers(0, 256, (6, 7, 3)).astype(np.uint8)
    (tmp_path / "a.png").write_bytes(png_bytes(pixels))
    assert_allclose(image.imread(tmp_path / "a.png"), pixels / 255.0, rtol=0, atol=1e-6)


def test_chart_places_points():
    points = [(0.0, 0.0), (10.0, 1.0)]
    chart = line_chart([Series("a & b", "#123456", points)], "x", "y")
    (path,) = re.findall(r'<polyline points="([^"]*)"', chart)
    (x0, y0), (x1, y1) = [tuple(map(float, pair.split(","))) for pair in path.split()]
    assert x1 > x0
    assert y1 < y0  # up is up
    assert "a &amp; b" in chart


def test_chart_of_awkward_numbers():
    series = [Series("a", "#000", [(1, 1e-3), (2, 0.0), (3, np.inf), (4, 1e-9)])]
    chart = line_chart(series, "x", "y", log_y=True)
    assert len(re.findall("<circle", chart)) == 2
    assert "nothing to draw" in line_chart([Series("a", "#000", [])], "x", "y")
    assert "nan" not in line_chart([Series("a", "#000", [(0.0, 5.0)])], "x", "y")


# -- the problem --------------------------------------------------------------------------


def test_picture_has_ink_and_paper_at_any_size():
    for size in (8, 16, 96, 300):
        picture_of_size = draw_picture(size)
        assert picture_of_size.shape == (size, size)
        assert 0.05 < picture_of_size.mean() < 0.6
    assert_allclose(draw_picture(96).mean(), draw_picture(300).mean(), rtol=0.05)


def test_model_is_the_posterior():
    problem = Restoration.generate(3, seed=0, coupling=0.7)
    graph, potentials = problem.model()
    labels = np.random.default_rng(1).integers(0, 2, (3, 3))
    expected = -0.5 * ((problem.noisy - labels) ** 2).sum() / NOISE**2
    expected += 0.7 * ((labels[1:] == labels[:-1]).sum() + (labels[:, 1:] == labels[:, :-1]).sum())
    assert_allclose(potentials.score(labels.ravel()), expected, rtol=1e-12)
    truth = BruteForce().run(graph, potentials).beliefs.unary_values[1::2].reshape(3, 3)
    for method in METHODS[1:]:
        ours = method.restore(problem, 0)
        assert np.abs(ours.ink - truth).max() < 0.2, method.name  # of about the right model


def test_independent_pixels_are_bayes_rule():
    problem = Restoration.generate(9, seed=2, coupling=1.0)
    ours = METHODS[0].restore(problem, 0)
    odds = np.exp((2 * problem.noisy - 1) / (2 * NOISE**2))
    assert_allclose(ours.ink, odds / (1 + odds), rtol=1e-9)
    assert problem.n_wrong(ours.ink) == ((problem.noisy > 0.5) != (problem.clean == 1)).sum()


def test_neighbours_help():
    """On a large picture every coupled method makes at most half of the mistakes."""
    problem = Restoration.generate(64, seed=0, coupling=1.0)
    wrong = {m.name: problem.n_wrong(m.restore(problem, 0).ink) for m in METHODS}
    alone = wrong.pop("independent pixels")
    assert all(count < alone / 2 for count in wrong.values()), wrong


def test_losses_of_known_answers():
    problem = Restoration.generate(8, seed=0, coupling=1.0)
    truth = (problem.clean == 1).astype(float)
    assert problem.n_wrong(truth) == 0
    assert problem.n_wrong(1 - truth) == 64
    assert_allclose(problem.log_loss(np.full((8, 8), 0.5)), np.log(2), rtol=1e-12)
    assert problem.log_loss(truth) == 0
    assert np.isfinite(problem.log_loss(1 - truth))


@pytest.mark.parametrize(
    ("bound", "value", "words"),
    [
        ("upper", 1.0, "upper bound"),
        ("lower", 1.0, "lower bound"),
        ("exact", 1.0, "exact"),
        (None, 1.0, "estimate"),
        (None, float("nan"), ""),
    ],
)
def test_words_for_bounds(bound, value, words):
    outcome = Outcome("a", np.zeros((1, 1)), 0.0, True, 1, "", value, bound)
    assert bound_words(outcome) == words
