"""The experiment ``domke-iterations`` on a small scale."""

from __future__ import annotations

import pytest
from test_domke_digits import write_digits

from experiments.base import Settings
from experiments.domke2009.digits_methods import Limits
from experiments.domke2009.iterations.run import COLUMNS, Design, Iterations
from experiments.driver import run_plan


def test_the_whole_experiment(tmp_path):
    design = Design(
        n_each=1, n_repeats=1, trained=(1, 2), tested=(1, 2, 5), limits=Limits(max_iter=10)
    )
    outcome = run_plan(Iterations(design, Settings(data=write_digits(tmp_path))))
    assert all(tuple(row) == COLUMNS for row in outcome.rows)
    assert [(row["method"], row["n_iterations"]) for row in outcome.rows] == [
        (f"ucl-{trained}", tested) for trained in (1, 2) for tested in (1, 2, 5)
    ]
    # the test really runs other numbers of iterations
    assert len({row["ucl"] for row in outcome.rows}) == len(outcome.rows)
    # the iterations it was fitted for are the best in the loss it was fitted with
    assert outcome.rows[0]["ucl"] < outcome.rows[2]["ucl"]
    assert "as trained" in outcome.headline["ucl-1 at 0.5"]
    figure = pytest.importorskip("matplotlib.figure").Figure
    for draw in outcome.figures.values():
        draw(figure())
