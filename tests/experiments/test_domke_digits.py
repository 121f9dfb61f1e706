"""The experiment ``domke-digits``: pictures, noise, scores, and the whole on a small scale."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from experiments.base import Settings
from experiments.domke2009.digits.run import COLUMNS, Design, NoisyDigits
from experiments.domke2009.digits_data import FILE, draw_split, read_digits
from experiments.domke2009.digits_methods import METHODS, Limits, belief_scores, held_out_split
from experiments.driver import run_plan
from fieldfit.errors import FileFormatError

N_PIXELS = 8


def write_digits(folder, n_each=4, seed=0):
    """Grey bars in place of digits, two pixels wide, at a place that depends on the picture."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for part in ("train", "test"):
        digits = np.repeat(np.arange(10), n_each).astype(np.uint8)
        images = np.zeros((len(digits), N_PIXELS, N_PIXELS), dtype=np.uint8)
        for image in images:
            column = int(rng.integers(1, N_PIXELS - 3))
            image[1:-1, column : column + 3] = (60, 255, 255)
        arrays |= {f"x_{part}": images, f"y_{part}": digits}
    path = folder / FILE
    path.parent.mkdir(parents=True)
    np.savez(path, **arrays)
    return folder


def test_splits(tmp_path):
    digits = read_digits(write_digits(tmp_path) / FILE)
    clean = draw_split(digits, 3, 0.0, (0,))
    assert clean.train.shape == clean.test.shape == (27, N_PIXELS, N_PIXELS)
    assert_allclose(clean.noisy_train, clean.train)
    noisy = draw_split(digits, 3, 0.5, (0,))
    assert_allclose(noisy.train, clean.train)  # the same pictures at every level
    # half of the pixels are drawn, and half of those are then wrong: 27 * 64 pixels, four sigma
    assert abs(np.mean(noisy.noisy_test != noisy.test) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 1728)
    assert draw_split(digits, 3, 0.0, (0,), ink=127).test.sum() < clean.test.sum()


def test_archives_that_are_none(tmp_path):
    with pytest.raises(FileFormatError, match="expected an archive"):
        read_digits(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(FileFormatError, match="x_train"):
        read_digits(tmp_path / "other.npz")


def test_what_is_held_out_is_not_learned_from(tmp_path):
    split = draw_split(read_digits(write_digits(tmp_path) / FILE), 3, 0.5, (0,))
    cut = held_out_split(split)
    assert [len(cut.train), len(cut.test)] == [18, 9]
    assert_allclose(cut.noisy_test, split.noisy_train[2::3])
    assert_allclose(cut.train[:2], split.train[:2])


def test_scores_of_beliefs():
    beliefs = np.array([[[0.8, 0.2], [0.3, 0.7]]])
    scores = belief_scores(beliefs, np.array([[0, 0]]))
    assert scores["uclass"] == 0.5
    assert_allclose(scores["ucl"], -0.5 * (np.log(0.8) + np.log(0.3)))
    assert_allclose(scores["uquad"], 0.5 * (0.68 - 1.6 + 0.58 - 0.6))
    assert np.isfinite(belief_scores(np.array([[0.0, 1.0]]), np.array([0]))["ucl"])


def test_every_method_starts_from_one_before_it():
    seen = set()
    for name, method in METHODS.items():
        assert method.start is None or method.start in seen
        seen.add(name)


def test_which_methods_run_where():
    design = Design()
    assert design.methods_at(0.5, 0) == tuple(METHODS)
    assert "ucl+entropy" not in design.methods_at(0.7, 0)
    later = design.methods_at(0.5, design.n_side_repeats)
    assert later == (
        "pseudo", "convex", "lbp", "ucl", "ucl+entropy", "ucl-1", "ucl-2", "ucl-3", "ucl-4",
    )  # fmt: skip


def test_the_whole_experiment(tmp_path):
    data = write_digits(tmp_path)
    design = Design(
        noises=(0.1, 0.7),
        n_each=2,
        n_repeats=1,
        methods=("pseudo", "convex", "lbp", "ucl", "ucl+entropy", "ucl-1", "uquad-2"),
        entropy_noises=(0.1, 0.7),
        ink_methods=("convex",),
        penalties=(0.1, 10.0),
        limits=Limits(max_iter=15),
        entropy_iter=15,
    )
    outcome = run_plan(NoisyDigits(design, Settings(data=data)))
    assert [row["method"] for row in outcome.rows] == 2 * list(design.methods)
    assert all(tuple(row) == COLUMNS for row in outcome.rows)
    errors = {(row["method"], row["noise"]): row["uclass"] for row in outcome.rows}
    # 5 % of the pixels are wrong as they are seen
    assert errors["convex", 0.1] < 0.03
    assert errors["ucl-1", 0.1] < 0.03
    assert errors["uquad-2", 0.7] < 0.35
    held_out = {
        (row["method"], row["noise"], row["l2"]): row["held_out_uclass"]
        for row in outcome.tables["choose"]
    }
    for row in outcome.rows:
        own = {"lbp": "convex", "ucl+entropy": "ucl", "ucl-1": "ucl-4", "uquad-2": "ucl-4"}
        chooser = own.get(row["method"], row["method"])
        best = min(held_out[chooser, row["noise"], l2] for l2 in design.penalties)
        assert held_out[chooser, row["noise"], row["l2"]] == best
    assert {row["ink"] for row in outcome.tables["ink"]} == {127}
    assert "| .158" not in outcome.report
    assert "/ .158" in outcome.report
    assert set(outcome.headline) == set(design.methods)
    figure = pytest.importorskip("matplotlib.figure").Figure
    for draw in outcome.figures.values():
        draw(figure())
