"""Parts of pages: numbers, tables, charts, heat maps, networks; names never become markup."""

from __future__ import annotations

import base64
import hashlib
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from report_cases import HOSTILE, Page

from fieldfit.report.charts import Calibration, Series, bar, calibration_chart, line_chart
from fieldfit.report.heat_maps import confusion_table, heat_map
from fieldfit.report.kinds.sequence_report import token_word
from fieldfit.report.label_colors import label_pixels, rgb_colors
from fieldfit.report.network_drawing import network
from fieldfit.report.page_parts import (
    Cell,
    Section,
    card,
    cards,
    facts,
    number,
    page,
    small_table,
    table,
    tally,
    text,
)
from fieldfit.report.page_script import SCRIPT


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "\u2013"),
        (float("nan"), "\u2013"),
        (float("inf"), "∞"),
        (-np.inf, "\u2212∞"),
        (True, "yes"),
        (np.bool_(False), "no"),
        (7, "7"),
        (np.int64(1234567), "1\u202f234\u202f567"),
        (-0.123456, "\u22120.1235"),
        (12345.678, "12\u202f346"),
        (1e-9, "1e\u221209"),
        (0.0, "0"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


def test_lone_surrogates_do_not_break_a_page():
    assert text("a\udc80b").encode() == b"a?b"
    Page(page("\udc80", Section("x\udc80", "")))


def test_script_is_the_one_that_the_policy_names():
    source = page("x", "<p>y</p>")
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    (policy,) = (
        attrs["content"]
        for attrs in Page(source).all("meta")
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert f"<script>{SCRIPT}</script>" in source
    assert "//" not in SCRIPT
    assert "</" not in SCRIPT


def test_sections_have_links_where_there_are_several():
    sections = [Section(name, "<p>x</p>") for name in ("First one", HOSTILE, "Third")]
    found = Page(page(HOSTILE, *sections, lead="<p>lead</p>", footer="end"))
    names = [attrs.get("id") for attrs in found.all("section")]
    assert [attrs["href"] for attrs in found.all("a")] == [f"#{name}" for name in names]
    assert found.headings == ["First one", HOSTILE, "Third"]
    assert Page(page("x", sections[0], lead="<p>lead</p>")).all("nav") == []


def test_tables_sort_by_all_digits():
    rows = [("b", 1 / 3, None, True), (HOSTILE, float("nan"), Cell("<b>1</b>", 0.25), False)]
    found = Page(table(("name", "x", "y", "z"), rows, caption="T", titles=["one", HOSTILE]))
    assert found.tables["T"].column("x") == [repr(1 / 3), ""]
    assert found.tables["T"].column("y") == ["", "0.25"]
    assert found.tables["T"].column("z") == ["1", "0"]
    assert found.tables["T"].rows[1][0] == HOSTILE
    assert found.all("table")[0]["class"] == "sortable"
    assert "sortable" not in table(("a", "b", "c"), [], sortable=False)


def test_boxes_and_lists():
    assert cards("", "<p>one</p>") == "<p>one</p>"
    assert Page(cards(card("a"), card("b"))).all("div")[0]["class"] == "wide"
    for made in (
        facts({HOSTILE: HOSTILE}),
        tally({HOSTILE: HOSTILE}),
        small_table(HOSTILE, {"a": 1}),
    ):
        assert HOSTILE not in made
        Page(made)


# -- charts ----------------------------------------------------------------------------------


def test_chart_carries_its_values():
    made = line_chart(
        [Series(HOSTILE, "", [(1, 10.0), (2, 100.0), (3, -1.0)])], "x", "y", log_y=True
    )
    found = Page(made)
    (chart,) = (attrs for _, attrs in found.tags if attrs.get("class") == "chart")
    (line,) = json.loads(chart["data-series"])
    assert line["name"] == HOSTILE
    assert [point[2:] for point in line["points"]] == [["1", "10"], ["2", "100"]]
    assert "legend" not in made  # one line is what the axis says
    assert "legend" in line_chart([Series(n, "", [(0, 0), (1, 1)]) for n in "ab"], "x", "y")


def test_charts_of_nothing_of_one_point_and_of_many():
    assert "nothing to draw" in line_chart([Series("a", "", [(1, np.nan)])], "x", "y")
    assert "NaN" not in line_chart([Series("a", "", [(0.0, 5e9), (1.0, 5e9)])], "x", "y")
    assert "nan" not in line_chart([Series("a", "", [(3.0, 2.0)])], "x", "y")
    many = line_chart([Series("a", "", [(k, k) for k in range(10_000)])], "x", "y")
    (chart,) = (attrs for _, attrs in Page(many).tags if attrs.get("class") == "chart")
    points = json.loads(chart["data-series"])[0]["points"]
    assert len(points) == 400
    assert (points[0][2], points[-1][2]) == ("0", "9999")


def test_calibration():
    confidence = np.array([0.95, 0.91, 0.55, 0.52, 1.0])
    right = np.array([True, False, True, False, True])
    found = Calibration.of(confidence, right)
    assert found.counts.tolist() == [2, 3]
    assert_allclose(found.confidence, [0.535, (0.95 + 0.91 + 1.0) / 3])
    assert_allclose(found.right, [0.5, 2 / 3])
    expected = (2 * 0.035 + 3 * ((0.95 + 0.91 + 1.0) / 3 - 2 / 3)) / 5
    assert_allclose(found.error, expected)
    assert "of 3 predictions" in calibration_chart(found)
    empty = Calibration.of(np.zeros(0), np.zeros(0, dtype=bool))
    assert empty.error == 0.0
    assert "nothing to draw" in calibration_chart(empty)


def test_bars():
    assert "--negative" in bar(-2.0, 4.0).html
    assert "2.00rem" in bar(-2.0, 4.0).html
    assert bar(float("nan"), 4.0).html.startswith('<i style="width:0.00rem')


# -- heat maps -------------------------------------------------------------------------------


def test_heat_map_shows_numbers_marks_and_gaps():
    matrix = np.array([[1.25, -2.5], [np.nan, 0.0]])
    found = Page(heat_map(matrix, ["a", HOSTILE], ["c", "d"], caption="H", marked={(1, 1)}))
    assert found.tables["H"].rows == [["a", "1.25", "\u22122.50"], [HOSTILE, "\u2013", "0"]]
    assert [a.get("class") for a in found.all("td")][1:] == [None, None, "none", "marked"]
    assert "--negative" in found.all("td")[2]["style"]


def test_heat_maps_that_are_large():
    wide = Page(heat_map(np.ones((2, 20)), range(2), range(20), caption="W"))
    assert wide.tables["W"].rows[0][1:] == [""] * 20
    assert wide.all("td")[1]["title"] == "0, 0: 1"
    assert len(Page(heat_map(np.ones((50, 50)), range(50), range(50))).all("img")) == 1
    Page(heat_map(np.zeros((0, 0)), [], []))
    Page(heat_map(np.zeros((2, 2)), "ab", "cd"))


def test_confusions_by_share_of_the_row():
    found = Page(confusion_table(np.array([[3, 1], [0, 0]]), ["a", HOSTILE]))
    assert found.tables["Confusion matrix"].rows == [["a", "3", "1"], [HOSTILE, "0", "0"]]
    hints = [attrs.get("title") for attrs in found.all("td")][1:]
    assert hints[0] == "a predicted as a: 3, 75.0 %"


# -- networks and colours --------------------------------------------------------------------


def test_networks():
    matrix = np.array([[0, 2.0, 0], [2.0, 0, -1.0], [0, -1.0, 0]])
    found = Page(network(matrix, ["a", HOSTILE, "c"], wrong=[True, False, False]))
    assert sorted(a["class"] for a in found.all("line")) == ["minus", "plus"]
    assert [a.get("class") for a in found.all("circle")] == ["wrong", None, None]
    places = np.array([[float(a["cx"]), float(a["cy"])] for a in found.all("circle")])
    assert (places >= 0).all()
    assert (places <= 640).all()
    for n in (1, 2, 40):
        drawn = Page(network(np.zeros((n, n)), range(n))).all("circle")
        places = np.array([[float(a["cx"]), float(a["cy"])] for a in drawn])
        assert len(np.unique(places.round(), axis=0)) == n


def test_colours_of_labels_differ():
    assert len(np.unique(rgb_colors(40), axis=0)) == 40
    assert label_pixels(np.array([[0, -1]]), 2)[0, 1].tolist() == [255, 255, 255]


@pytest.mark.parametrize(
    ("tokens", "word"),
    [
        ([{"word": "dog"}], "dog"),
        ([{"w[0]=dog": 1.0, "pos=NN": 1.0}], "dog"),
        ([["pos[0]=NN", "w[0]=dog"]], "dog"),
        ([["word:dog"]], "dog"),
        ([{"bias": 1.0}], "0"),
        ([3], "0"),
        (np.zeros((1, 2)), "0"),
    ],
)
def test_words_of_tokens(tokens, word):
    assert token_word(tokens, 0) == word
