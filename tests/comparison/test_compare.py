"""Comparisons of methods: rows, choice, what is kept, what goes wrong, the command."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser

import numpy as np
import pytest
from learning_files import write_training

import fieldfit as ff
from fieldfit.cli.main import main
from fieldfit.comparison import compare_methods, method_search
from fieldfit.comparison.comparison_result import COLUMNS, Comparison
from fieldfit.comparison.held_out_scores import HeldOutScores
from fieldfit.comparison.method_candidates import default_methods, penalties
from fieldfit.comparison.method_search import MethodRow
from fieldfit.models.penalties import RelativePenalty

#: More than any of these fits takes: nothing here may depend on a clock.
PLENTY = 1e4


def stripes(n=12, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    Y = [np.repeat(rng.integers(0, 2, (6, 1)), 6, axis=1) for _ in range(n)]
    return [y + noise * rng.normal(size=y.shape) for y in Y], Y


def scores_of(right, count=10.0):
    right = np.asarray(right, dtype=float)
    count = np.full(len(right), count)
    return HeldOutScores(right, count, count - right, np.zeros((10, 3)))


def made(measure="error", **rights):
    rows = [
        MethodRow(name.replace("_", "-"), l2=1.0, scores=scores_of(right), converged=True)
        for name, right in rights.items()
    ]
    return Comparison(ff.ChainCRF(), tuple(rows), measure, "ten examples.")


def test_a_field_that_pays():
    X, Y = stripes()
    found = ff.compare(ff.GridCRF(), X, Y, ["trw", "piecewise"], PLENTY, test=(X, Y), verbose=0)
    assert [row.method for row in found.methods] == ["independent", "trw", "piecewise"]
    assert found.best.method == "trw"
    assert "trw has the least error" in found.recommendation
    assert "less than independent variables" in found.recommendation
    assert all(row.converged for row in found.methods)
    # the line that fits the winner does
    names = {"ff": ff, "X": X, "Y": Y}
    exec(found.code, names)
    model = names["model"]
    assert model.objective == "trw"
    assert model.l2 == found.best.l2
    assert model.score(X, Y) > ff.GridCRF("independent", l2=0.1).fit(X, Y).score(X, Y)
    # every example is held out once, and counts as it should
    assert found.best.scores.n_examples == 12
    np.testing.assert_array_equal(found.best.scores.count, 36.0)
    assert found.best.test.n_examples == 12
    row = found.rows[1]
    assert tuple(row) == COLUMNS
    assert row["error"] == found.best.scores.error
    gain, error = found.gain(found.best)
    assert gain == pytest.approx(found.rows[0]["error"] - row["error"])
    assert gain > error > 0
    assert "trw" in str(found)


def test_folds_hold_every_example_out_once():
    data = method_search.Data(list(range(10)), list(range(10)))
    for folds, sizes in ((1, [2]), (3, [4, 3, 3]), (10, [1] * 10)):
        cut = compare_methods._folds(data, folds, 0)
        assert [len(fold.held_out) for fold in cut] == sizes
        for fold in cut:
            assert sorted(fold.train.X + fold.held_out.X) == list(range(10))
            assert fold.held_out.X == fold.held_out.Y
        if folds > 1:
            assert sorted(x for fold in cut for x in fold.held_out.X) == list(range(10))


def test_labels_that_a_fold_lacks():
    """The number of labels is that of all samples."""
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 3, (30, 3))
    samples[0, 0] = 3
    found = ff.compare(ff.PottsModel(), samples, None, ["pseudolikelihood"], PLENTY, verbose=0)
    assert [row.failed for row in found.methods] == ["", ""]
    assert found.best.scores.n_examples == 30


# -- the recommendation ------------------------------------------------------------------------


def test_recommendations():
    plain = [5.0, 6.0, 5.0, 6.0]
    pays = made(independent=plain, trw=[9.0, 9.0, 8.0, 9.0], bethe=[9.0, 9.0, 8.0, 8.0])
    assert pays.best.method == "trw"
    assert "bethe is within one standard error of it" in pays.recommendation
    assert pays.worse == []
    loses = made(independent=plain, piecewise=[3.0, 3.0, 4.0, 3.0])
    assert loses.best.method == "independent"
    assert "so couplings do not pay here" in loses.recommendation
    assert [row.method for row in loses.worse] == ["piecewise"]
    assert "* piecewise does worse than independent variables" in str(loses)
    chance = made(independent=plain, trw=[7.0, 5.0, 6.0, 5.0])
    assert "no more than chance explains" in chance.recommendation
    assert chance.code == "model = ff.ChainCRF('trw', l2=1).fit(X, Y)"
    tie = made(independent=plain, trw=plain)
    tie.methods[1].scores = HeldOutScores(
        tie.methods[1].scores.right, np.full(4, 10.0), np.zeros(4), np.zeros((10, 3))
    )
    assert tie.best.method == "trw"  # by log-loss
    nothing = Comparison(ff.ChainCRF(), (MethodRow("trw", failed="too large"),), "error", "")
    assert nothing.recommendation == "No method could be fitted (trw: too large)."
    assert nothing.code == ""


def test_what_fails_is_a_row():
    X, Y = stripes(n=8)
    found = ff.compare(
        ff.GridCRF(pairwise="potts"), X, Y, ["moment-matching", "trw"], PLENTY, verbose=0
    )
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(6, 3, 3, 2))
    partners = [rng.permutation(3) for _ in range(6)]
    refused = ff.compare(ff.MatchingCRF(), pairs, partners, ["trw"], PLENTY, verbose=0)
    row = refused.methods[1]
    assert "matchings is exact" in row.failed
    assert row.scores is None
    assert refused.best.method == "independent"
    assert refused.rows[1]["status"] == row.failed
    assert "failed: " in refused.table()
    assert found.best is not None


def test_a_limit_is_said_to_be_one(monkeypatch):
    """By a clock that runs so fast that every fit ends after an iteration."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("fieldfit.learners.loop.time.monotonic", lambda: 100.0 * next(ticks))
    X, Y = stripes(n=8)
    found = ff.compare(ff.GridCRF(), X, Y, ["trw"], 1.0, verbose=0)
    row = found.methods[1]
    assert not row.converged
    assert "at the time limit of" in row.status
    assert row.scores is not None


# -- the search --------------------------------------------------------------------------------


def test_half_of_the_penalties_go_on(monkeypatch):
    X, Y = stripes()
    monkeypatch.setattr(method_search, "SEARCH_TOL", 1e-12)  # none ends before its iterations
    found = ff.compare(ff.GridCRF(tol=1e-12), X, Y, ["trw"], PLENTY, verbose=0)
    search = found.methods[1].search
    names = [row["l2"] for row in search]
    first, rest = names[:4], names[4:]
    assert len(set(first)) == 4
    by_score = sorted(range(4), key=lambda k: search[k]["error"])
    assert set(rest) == {first[k] for k in by_score[:2]}
    assert str(found.methods[1].l2) in first


def test_candidates():
    chain = ff.ChainCRF(l2=0.7)
    assert 0.7 in penalties(chain, "likelihood", 10, 1e-3)
    assert penalties(chain, "moment-matching", 10, 1e-3) == [0.0]
    grid = penalties(ff.GridCRF(), "trw", 10, 1e-4)
    assert all(one.unary == 1e-4 for one in grid)
    assert grid == sorted(grid, key=lambda one: -one.couplings)
    assert penalties(ff.IsingModel(), "trw", 1000, 0.0)[0] == 300.0
    X, Y = stripes(n=4)
    small = default_methods(ff.GridCRF(), X, Y)
    assert small[0] == "independent"
    assert {"trw", "bethe", "camel0", "cf-bethe", "implicit", "procedural", "mle-struct"} <= set(
        small
    )
    assert "likelihood" in small
    wide = default_methods(ff.GridCRF(), [np.zeros((60, 60))] * 4, [np.eye(60, dtype=int)] * 4)
    assert "likelihood" not in wide
    many = default_methods(
        ff.GridCRF(), [np.zeros((500, 500))] * 4, [np.arange(250000).reshape(500, 500) % 9] * 4
    )
    assert "implicit" not in many
    assert "trw" in many


# -- what is kept ------------------------------------------------------------------------------


def test_an_interrupted_comparison_goes_on(tmp_path, monkeypatch):
    X, Y = stripes(n=8)
    arguments = (ff.GridCRF(), X, Y, ["pseudolikelihood", "trw"], PLENTY)
    whole = ff.compare(*arguments, verbose=0)
    done, original = [], compare_methods.run_method

    def interrupted(task, method, *rest):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(method)
        return original(task, method, *rest)

    monkeypatch.setattr(compare_methods, "run_method", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ff.compare(*arguments, folder=tmp_path, verbose=0)
    assert done == ["independent", "pseudolikelihood"]
    done.clear()
    again = ff.compare(*arguments, folder=tmp_path, verbose=0)
    assert done == ["trw"]
    for one, two in zip(whole.methods, again.methods, strict=True):
        assert one.method == two.method
        assert one.l2 == two.l2
        np.testing.assert_array_equal(one.scores.right, two.scores.right)
    with open(tmp_path / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["independent", "pseudolikelihood", "trw"]
    with pytest.raises(ff.InvalidInputError, match="holds a comparison of other data or options"):
        ff.compare(ff.GridCRF(neighbors=8), X, Y, folder=tmp_path, verbose=0)
    (tmp_path / "methods" / "trw.json").write_text('{"method": "trw"}')
    with pytest.raises(ff.errors.FileFormatError, match="expected the row of a method"):
        ff.compare(*arguments, folder=tmp_path, verbose=0)
    (tmp_path / "comparison.json").write_text("[")
    with pytest.raises(ff.errors.FileFormatError, match="expected a JSON object"):
        ff.compare(*arguments, folder=tmp_path, verbose=0)


def test_rows_survive_a_file():
    row = MethodRow("trw", l2=RelativePenalty(1e-3, couplings=0.1), scores=scores_of([3.0, 4.0]))
    restored = MethodRow.from_json(json.loads(json.dumps(row.as_json())))
    assert restored.l2 == row.l2
    assert restored.scores.error == row.scores.error


# -- the page and the command ------------------------------------------------------------------


class Tags(HTMLParser):
    """Fails on tags that do not match."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "br", "input", "link", "circle", "line", "path", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page(tmp_path):
    found = made(independent=[5.0, 6.0], trw=[3.0, 3.0])
    rows = (*found.methods, MethodRow("bethe", failed="<script>alert(1)</script>"))
    Comparison(ff.ChainCRF(), rows, "error", "two examples.", "fieldfit compare").write(tmp_path)
    page = (tmp_path / "index.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert "<script>alert" not in page
    told = " ".join(tags.text)
    assert "Worse than independent variables on these data: trw." in told
    assert "bethe (failed)" in told
    assert "fieldfit compare" in told
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "<table" in found._repr_html_()


def run(*words):
    return main([str(word) for word in words])


@pytest.mark.parametrize(
    "kind", ["chain", "skip-chain", "grid", "graph", "ising", "potts", "matching"]
)
@pytest.mark.filterwarnings("ignore")
def test_the_command(kind, tmp_path, capsys):
    train = write_training(kind, tmp_path)
    method = {"matching": "mle-struct"}.get(kind, "pseudolikelihood")
    command = ["compare", kind, "--train", train, "--test", train, "--methods", method]
    command += ["--budget", PLENTY, "--out", tmp_path / "out"]
    assert run(*command, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in told["methods"]] == ["independent", method]
    assert all(row["error"] is not None for row in told["methods"]), told
    assert all(row["test_error"] is not None for row in told["methods"])
    page = (tmp_path / "out" / "index.html").read_text()
    assert f"fieldfit compare {kind}" in page
    assert run(*command) == 0  # nothing is fitted again
    out = capsys.readouterr().out
    assert told["recommendation"] in out
    assert "index.html" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"estimator": ff.MixtureField()}, "estimator must be a ChainCRF, "),
        ({"methods": "trw"}, "methods must be a list of names"),
        ({"methods": ["nope"]}, "methods must be names of objectives"),
        ({"budget": 0}, "budget must be"),
        ({"folds": 100}, "folds must be at most the number of examples, 12, got 100"),
        ({"X": [np.zeros((2, 2))] * 3, "Y": [np.eye(2, dtype=int)] * 3}, "at least 4 examples"),
        ({"test": 3}, "test must be a pair"),
        ({"fit_options": 3}, "fit_options must be a dictionary"),
    ],
)
def test_bad_arguments(arguments, message):
    X, Y = stripes()
    given = {"estimator": ff.GridCRF(), "X": X, "Y": Y, "verbose": 0} | arguments
    with pytest.raises(ff.InvalidInputError, match=message):
        ff.compare(**given)


def test_samples_have_no_labels():
    with pytest.raises(ff.InvalidInputError, match="Y must be None for samples"):
        ff.compare(ff.IsingModel(), np.zeros((9, 2)), np.zeros(9))
