"""Tables and figures of experiments with methods and folds."""

from __future__ import annotations

import pytest

from experiments.ganapathi2008.methods import TITLES
from experiments.ganapathi2008.report import training_columns
from experiments.tables import (
    Column,
    bar_chart,
    fold_cell,
    means,
    paper_table,
    terminal_table,
)

ROWS = [
    {"method": "camel0", "fold": 0, "accuracy": 0.80, "seconds": 10.0, "converged": True},
    {"method": "camel0", "fold": 1, "accuracy": 0.84, "seconds": 14.0, "converged": True},
    {"method": "lbp", "fold": 0, "accuracy": 0.5, "seconds": 7.0, "converged": False},
    {"method": "lbp", "fold": 1, "accuracy": None, "seconds": 8.0, "converged": True},
]
ACCURACY = Column("accuracy", "accuracy", paper={"camel0": "82.9 (.9)"})
SECONDS = Column("seconds", "seconds", scale=1.0, digits=0)


def test_paper_stands_beside_ours():
    assert paper_table(ROWS, [SECONDS, ACCURACY], TITLES).splitlines() == [
        "| method | seconds | accuracy, paper | accuracy |",
        "| --- | --- | --- | --- |",
        "| CAMEL(0) | 12 (3) | 82.9 (.9) | 82.0 (2.8) |",
        "| LBP | 8 (1) | - | 50.0 |",
    ]


def test_terminal_shows_ours_alone():
    assert terminal_table(ROWS, [ACCURACY, SECONDS], TITLES).splitlines() == [
        "method      accuracy  seconds",
        "CAMEL(0)  82.0 (2.8)   12 (3)",
        "LBP             50.0    8 (1)",
    ]


def test_means_are_shares_and_skip_what_is_missing():
    assert means(ROWS, ACCURACY) == pytest.approx({"camel0": 0.82, "lbp": 0.5}, abs=1e-12)
    assert means(ROWS, Column("converged", "converged")) == {"camel0": 1.0, "lbp": 0.5}


def test_deviation_is_that_of_a_sample():
    assert fold_cell([1.0, 2.0, 3.0, 6.0], digits=3) == "3.000 (2.160)"
    assert fold_cell([3.0]) == "3.0"


def test_training_columns_carry_what_the_paper_prints():
    columns = {column.key: column for column in training_columns({"cccp": "2"})}
    assert list(columns) == ["converged", "outer_loops", "inner_iterations", "seconds"]
    assert columns["outer_loops"].paper == {"cccp": "2"}
    assert not columns["seconds"].paper


@pytest.mark.parametrize("printed", ["82.9 (.9)", "82.9(0.9)", "82.9", "97,20,12"])
def test_bars(printed):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    column = Column("accuracy", "accuracy, %", paper={"camel0": printed})
    bar_chart(ROWS, column, "a title", TITLES)(figure)
    (axes,) = figure.axes
    widths = [round(bar.get_width(), 6) for bar in axes.patches]
    # a cell of the paper that is not one number has no bar
    assert widths == ([82.0, 50.0] if "," in printed else [82.0, 82.9, 50.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CAMEL(0)", "LBP"]
    begin, end = axes.get_xlim()
    assert 0.0 <= begin < 50.0
    assert end > 84.8
