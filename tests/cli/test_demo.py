"""``fieldfit demo``: numbers, table, JSON, the page it writes and what the page says."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import json
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fieldfit.cli.main import main
from fieldfit.demo import demo_methods
from fieldfit.demo.demo_digits import N_KINDS, NoisyDigits
from fieldfit.demo.demo_methods import METHODS, Level, Outcome, learn, study_levels
from fieldfit.demo.demo_page import FIRST_PROGRAM, Report, demo_page, digits_png
from fieldfit.demo.demo_words import findings
from fieldfit.demo.drawn_examples import DRAWN
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.objectives.registry import make_objective
from fieldfit.report.charts import Series, line_chart
from fieldfit.report.page_parts import picture, png_bytes

NAMES = [method.name for method in METHODS]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One small run of the command: JSON, standard error, page, picture."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    options = ["--seed", "3", "--noise", "0.7", "--json", "--out", str(folder)]
    told, talk = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(talk):
        assert main(["demo", "--quick", *options]) == 0
    page = (folder / "index.html").read_text(encoding="utf-8")
    picture = (folder / "digits.png").read_bytes()
    return json.loads(told.getvalue()), talk.getvalue(), page, picture


@pytest.fixture(scope="module")
def levels():
    """All methods at two levels of noise, learned from ten digits."""
    return list(study_levels(NoisyDigits.load(1, 1, noise=1.0, seed=0), [0.4, 1.0]))


# -- the command --------------------------------------------------------------------------


def test_every_method_is_reported(small):
    fields, _, _, _ = small
    assert [row["method"] for row in fields["methods"]] == NAMES
    for row in fields["methods"]:
        assert 0 < row["pixel_error"] < 0.5
        assert 0 < row["standard_error"] < 0.1
        assert 0.5 < row["confidence"] < 1
        assert 0 < row["log_loss"] < 1
        assert row["seconds"] > 0
        assert row["n_iter"] >= 1
        assert row["status"]
        assert (row["couplings"] is None) == (row["objective"] is None)
    assert (fields["noise"], fields["seed"], fields["size"]) == (0.7, 3, 28)
    assert fields["n_train"] == fields["n_test"] == N_KINDS
    (level,) = fields["levels"]
    errors = {row["method"]: row["pixel_error"] for row in fields["methods"]}
    assert level["pixel_error"] == errors
    assert errors["TRW surrogate"] < errors["independent pixels"] / 2


def test_progress_and_place_are_told(small):
    fields, talk, _, _ = small
    for name in NAMES:
        assert name in talk
    assert fields["page"] in talk
    assert fields["page"].endswith("index.html")
    assert fields["pictures"].endswith("digits.png")


def test_table_and_quiet(tmp_path, capsys):
    arguments = ["demo", "--quick", "--quiet", "--out", str(tmp_path / "a" / "b")]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert all(line.startswith("warning: ") for line in captured.err.splitlines())
    lines = captured.out.splitlines()
    assert lines[0].split()[:2] == ["method", "seconds"]
    assert all(line.startswith(name) for line, name in zip(lines[1:], NAMES, strict=True))
    assert (tmp_path / "a" / "b" / "index.html").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seed", "-1"], "must be an integer of at least 0, got '-1'"),
        (["--noise", "0"], "must be a number above 0 and at most 10, got '0'"),
        (["--noise", "nan"], "must be a number above 0"),
        (["--noise", "much"], "must be a number above 0"),
        (["--size", "30"], "invalid choice: '30'"),
        (["text", "--noise", "0.5"], "--noise must not be given but for digits, got 0.5"),
        (["poems"], "invalid choice: 'poems'"),
    ],
)
def test_bad_options(options, words, capsys):
    assert main(["demo", *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1  # and no minute of learning before
    assert str(tmp_path / "file") in captured.err


def test_help_teaches(capsys):
    assert main(["demo", "--help"]) == 0
    told = capsys.readouterr().out
    for words in (
        "pseudo-likelihood",
        "index.html",
        "digits.png",
        "examples:",
        "--noise",
        "--quick",
    ):
        assert words in told


def test_an_interrupted_fit_ends_the_demo(tmp_path, monkeypatch, capsys):
    """A fit keeps what it has when it is interrupted; the demo must not go on to the next."""

    class Interrupted(demo_methods.GridCRF):
        def fit(self, X, Y):
            self.status_ = "interrupted after 3 iterations."

    monkeypatch.setattr(demo_methods, "GridCRF", Interrupted)
    assert main(["demo", "--quick", "--quiet", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_what_did_not_converge_is_told(tmp_path, monkeypatch, capsys):
    short = tuple(replace(method, max_iter=2) for method in METHODS)
    monkeypatch.setattr(demo_methods, "METHODS", short)
    monkeypatch.setattr(demo_methods, "MAX_ITER", 2)
    assert main(["demo", "--quick", "--quiet", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    warnings = captured.err.splitlines()
    assert len(warnings) >= 3
    assert all(line.startswith("warning: ") for line in warnings)
    assert any(line.startswith("warning: TRW surrogate: ") for line in warnings)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Training did not converge for pseudo-likelihood at noise 0.8 (stopped at" in page
    assert '<td data-value="0">no</td>' in page


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


def parsed(page):
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags.seen


def test_page_is_complete_and_needs_no_network(small):
    fields, _, page, _ = small
    seen = parsed(page)
    sources = [attrs["src"] for _, attrs in seen if "src" in attrs]
    assert len(sources) == N_KINDS * (2 + 2 * len(NAMES))
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    names = [tag for tag, _ in seen]
    assert not {"link", "iframe", "object"} & set(names)
    assert names.count("script") == 1
    assert not re.search("https?:|//|url\\(|@import", re.sub(r"base64,[^\"]*", "", page))
    assert names.count("svg") == 2  # the learning curves; a quick run has one level of noise
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"\b(nan|inf|None)\b", re.sub(r"base64,[^\"]*", "", page))
    for row in fields["methods"]:
        assert row["method"] in page
        assert f"{100 * row['pixel_error']:.1f} &plusmn; " in page
        assert f">{row['log_loss']:.3f}</td>" in page
    assert "fieldfit demo --noise 0.7 --seed 3 --quick" in page


def test_page_of_several_levels(levels):
    page = demo_page(Report(levels, 1.0, 0, False, "1.2.3"))
    assert [tag for tag, _ in parsed(page)].count("svg") == 4
    assert "standard deviation 1." in page
    assert "times as many at noise 1." in page
    curves = re.findall(r'<polyline points="([^"]*)"', page)
    n_studied = sum(method.in_study for method in METHODS)
    assert len(curves) == 2 * (n_studied - 1) + 2 * n_studied
    (pseudo, *_) = [o for o in levels[1].outcomes if o.method.objective == "pseudolikelihood"]
    assert len(curves[0].split()) == pseudo.n_iter


def test_strips_show_truth_and_mistakes(levels):
    """Dark is what was restored as ink; colour is a mistake."""
    level = levels[1]
    pixels = decoded(digits_png(level))[::3, ::3].astype(int)
    size, n_rows = level.digits.size + 4, 2 + len(level.outcomes)
    assert pixels.shape == (n_rows * size, N_KINDS * size, 3)
    tiles = pixels.reshape(n_rows, size, N_KINDS, size, 3).transpose(0, 2, 1, 3, 4)
    tiles = tiles[:, :, 2:-2, 2:-2]
    truth = level.digits.test[1][:N_KINDS] == 1
    assert_array_equal(tiles[-1], np.where(truth, 0, 255)[..., None].repeat(3, -1))
    for outcome, row in zip(level.outcomes, tiles[1:-1], strict=True):
        labels = outcome.ink[:N_KINDS] > 0.5
        colored = row.max(axis=-1) != row.min(axis=-1)
        assert_array_equal(colored, labels != truth)
        assert_array_equal(row.mean(axis=-1) < 128, labels)


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


def test_chart_with_logarithmic_axes():
    points = [(0.01, 1.0), (0.1, 0.1), (1.0, 0.01), (0.0, 5.0)]
    chart = line_chart([Series("a", "#000", points)], "seconds", "height", log_x=True, log_y=True)
    (path,) = re.findall(r'<polyline points="([^"]*)"', chart)
    places = np.array([[float(v) for v in pair.split(",")] for pair in path.split()])
    assert len(places) == 3  # zero has no logarithm
    assert_allclose(places[1], (places[0] + places[2]) / 2, atol=0.11)
    assert 'aria-label="height against seconds"' in chart


# -- what it says -------------------------------------------------------------------------


def fabricated(level, objective, *, share_wrong, **changes):
    """An outcome with so many wrong pixels in every picture, sure of everything."""
    truth = level.digits.test[1] == 1
    pixels = np.arange(truth[0].size).reshape(truth[0].shape)
    wrong = pixels < share_wrong * truth[0].size  # of every picture
    ink = np.where(truth != wrong, 0.99, 0.01)
    return replace(level.find(objective), ink=ink, converged=True, **changes)


def test_findings_are_those_of_the_numbers(levels):
    level = levels[1]
    alone = fabricated(level, None, share_wrong=1 / 4)
    trw = fabricated(level, "trw", share_wrong=1 / 16, couplings=(1.0, 1.25), pixel_weight=3.0)
    bethe = fabricated(level, "bethe", share_wrong=1 / 8)
    strong = {"couplings": (2.0, 2.5), "pixel_weight": 1.5}

    worse = fabricated(level, "pseudolikelihood", share_wrong=3 / 8, **strong)
    worse_level = Level(level.digits, (alone, worse, trw, bethe))
    ranking, why, sure = findings([worse_level], worse_level)
    order = ["TRW surrogate (6.2", "Bethe surrogate (12.5", "pixels (25.0", "likelihood (37.5"]
    places = [ranking.index(words) for words in order]
    assert places == sorted(places)
    assert "couplings of 2.00 and 2.50 and a pixel weight of 1.50" in why
    assert "trust neighbours more" in why
    assert "even worse than ignoring neighbours" in why
    assert "times as many" not in why  # there is one level only
    assert sure.count("is sure of 99.0") == 4

    weak = {"couplings": (0.5, 0.5), "pixel_weight": 3.5}
    better = fabricated(level, "pseudolikelihood", share_wrong=0.0, **weak)
    better_level = Level(level.digits, (alone, better, trw, bethe))
    ranking, why, sure = findings([better_level, worse_level], better_level)
    assert ranking.startswith("Wrong test pixels, from the fewest to the most: pseudo-likelihood")
    assert "trust neighbours more" not in why
    assert "even worse" not in why
    assert "makes 0.0 times" in why
    assert "6.0 times as many at noise" in why
    assert "pseudo-likelihood" not in sure

    # differences that are none
    alike = {"couplings": (1.02, 1.26), "pixel_weight": 2.95}
    equal = fabricated(level, "pseudolikelihood", share_wrong=1 / 4, **alike)
    equal_level = Level(level.digits, (alone, equal, trw, bethe))
    why = findings([equal_level], equal_level)[1]
    assert "trust neighbours more" not in why
    assert "even worse" not in why


def test_perfect_restorations_divide_by_nothing(levels):
    perfect = [
        Level(
            level.digits,
            tuple(fabricated(level, m.objective, share_wrong=0.0) for m in METHODS if m.in_study),
        )
        for level in levels
    ]
    told = " ".join(findings(perfect, perfect[0]))
    assert "times as many" not in told
    assert "should be as high" not in told
    assert "0.0 %" in told.replace("\N{NO-BREAK SPACE}", " ")


def test_the_two_restore_with_the_same_inference():
    """The page says so of pseudo-likelihood and the TRW surrogate."""
    graph = FactorGraph.grid(4, 4, n_labels=2)
    ours, theirs = (make_objective(name).prediction(graph) for name in ("pseudolikelihood", "trw"))
    assert (type(ours), ours.entropy) == (type(theirs), theirs.entropy)


@pytest.mark.parametrize("method", METHODS[1:4], ids=lambda method: method.objective)
def test_knowing_nothing_is_log_two(method):
    """The page says so of likelihoods."""
    graph = FactorGraph.grid(5, 4, n_labels=2)
    labels = np.random.default_rng(0).integers(0, 2, 20)
    nothing = Potentials(graph, np.zeros((20, 2)), np.zeros((2, 2)))
    value, _ = make_objective(method.objective).value_and_grad(graph, nothing, labels)
    assert_allclose(value / 20, np.log(2), rtol=1e-9)


def test_first_program_is_on_the_page(levels):
    """`test_docs.py` runs it."""
    page = demo_page(Report(levels, 1.0, 0, False, "1.2.3"))
    assert html.escape(FIRST_PROGRAM) in page


# -- the problem --------------------------------------------------------------------------


def test_digits_take_turns_and_differ():
    digits = NoisyDigits.load(3, 2, noise=0.8, seed=5)
    (_, train), (_, test) = digits.train, digits.test
    assert train.shape == (30, 28, 28)
    assert test.shape == (20, 28, 28)
    assert len(np.unique(digits.clean.reshape(50, -1), axis=0)) == 50  # none is in both
    ink = digits.clean.mean(axis=(1, 2))
    assert ink.min() > 0.08
    assert ink.max() < 0.4
    # pictures of one digit have more in common than pictures of different ones
    means = np.stack([digits.clean[d::N_KINDS].mean(axis=0) for d in range(N_KINDS)]).reshape(
        10, -1
    )
    nearest = ((digits.clean.reshape(50, 1, -1) - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == np.arange(50) % N_KINDS).mean() > 0.8


def test_seed_and_noise():
    digits = NoisyDigits.load(1, 1, noise=0.8, seed=5)
    assert_array_equal(digits.noisy, NoisyDigits.load(1, 1, noise=0.8, seed=5).noisy)
    assert not np.array_equal(digits.clean, NoisyDigits.load(1, 1, noise=0.8, seed=6).clean)
    louder = digits.with_noise(1.6)
    assert_array_equal(louder.clean, digits.clean)
    assert_allclose(louder.noisy - louder.clean, 2 * (digits.noisy - digits.clean), atol=1e-12)
    assert_allclose((digits.noisy - digits.clean).std(), 0.8, rtol=0.02)


def test_losses_of_known_answers():
    digits = NoisyDigits.load(1, 2, noise=0.8, seed=0)
    truth = (digits.test[1] == 1).astype(float)
    assert_array_equal(digits.errors(truth), np.zeros(20))
    assert_array_equal(digits.errors(1 - truth), np.ones(20))
    assert_allclose(digits.log_loss(np.full(truth.shape, 0.5)), np.log(2), rtol=1e-12)
    assert digits.log_loss(truth) == 0
    assert np.isfinite(digits.log_loss(1 - truth))


def test_spread_and_confidence_of_known_answers(levels):
    level = levels[0]
    ink = np.full(level.digits.test[1].shape, 0.25)
    ink[:5] = 0.9
    outcome = replace(level.outcomes[0], ink=ink)
    assert_allclose(level.confidence(outcome), (0.9 + 0.75) / 2, rtol=1e-12)
    errors = level.digits.errors(ink)
    assert_allclose(level.standard_error(outcome), np.sqrt(errors.var() / 9), rtol=1e-12)


def test_independent_pixels_are_bayes_rule():
    """The log-odds of a pixel alone have slope 1 / noise^2, as the page says."""
    digits = NoisyDigits.load(20, 1, noise=0.8, seed=0)
    outcome = learn(METHODS[0], digits)
    assert isinstance(outcome, Outcome)
    assert_allclose(outcome.pixel_weight, 1 / 0.8**2, rtol=0.03)
    ink_share = digits.train[1].mean()
    odds = ink_share / (1 - ink_share) * np.exp((2 * digits.test[0] - 1) / (2 * 0.8**2))
    assert_allclose(outcome.ink, odds / (1 + odds), atol=0.03)


def test_learning_with_neighbours_helps(levels):
    quiet, loud = levels
    for method in METHODS[1:]:
        if not method.in_study:
            continue
        outcome = quiet.find(method.objective)
        assert quiet.error(outcome) < quiet.error(quiet.find(None)) / 2, method.name
        assert min(outcome.couplings) > 0
        assert len(outcome.curve) == outcome.n_iter
    assert loud.error(loud.find("trw")) < loud.error(loud.find("pseudolikelihood"))


def test_what_the_second_process_compiles_runs():
    demo_methods._compile_the_rest()


# -- drawn data -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_data_are_learned_from(name, tmp_path, capsys):
    """Compared, recommended, fitted, and both pages written."""
    options = ["--quick", "--quiet", "--json", "--seed", "1", "--out", str(tmp_path)]
    assert main(["demo", name, *options]) == 0
    fields = json.loads(capsys.readouterr().out)
    rows = {row["method"]: row for row in fields["methods"]}
    assert set(rows) == {"independent", *DRAWN[name].methods}
    assert all(row["test_error"] is not None for row in rows.values())
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    parsed(page)
    assert 'href="fit.html"' in page
    assert f"fieldfit demo {name} --seed 1 --quick" in page
    assert (tmp_path / "fit.html").exists()


def test_what_is_true_is_learned():
    """With data enough, the weights beside the true ones are close to them."""
    rng = np.random.default_rng(0)
    for name, objective in (("network", "likelihood"), ("matching", "likelihood")):
        demo = DRAWN[name]
        drawn = demo.draw(rng, False)
        given = (drawn.train.X,) if drawn.train.Y is None else (drawn.train.X, drawn.train.Y)
        learned = demo.learned(demo.estimator().set_params(objective=objective).fit(*given))
        truth = dict(drawn.truth[1])
        signs = [np.sign(learned[key]) == np.sign(truth[key]) for key in truth]
        assert np.mean(signs) > 0.85
        assert np.corrcoef(list(learned.values()), list(truth.values()))[0, 1] > 0.8


def test_words_of_the_grammar_are_ambiguous():
    drawn = DRAWN["text"].draw(np.random.default_rng(0), True)
    classes = {}
    for tokens, labels in zip(drawn.train.X, drawn.train.Y, strict=True):
        for token, label in zip(tokens, labels, strict=True):
            classes.setdefault(token["word"], set()).add(label)
    assert sum(len(found) > 1 for found in classes.values()) >= 5
