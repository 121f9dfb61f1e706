"""The experiment ``domke-scenes``: labels, choice of pictures, and the whole on a small scale."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from experiments.base import Settings
from experiments.domke2009.scenes.data import FILE, LABELS, draw_scenes, five_labels
from experiments.domke2009.scenes.run import COLUMNS, METHODS, Design, StreetScenes
from experiments.driver import run_plan
from fieldfit.errors import FileFormatError


def write_scenes(folder, count=4, seed=0):
    """Sky above a road, with a car of its own colour and an unlabelled column."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for part in ("train", "test"):
        codes = np.zeros((count, 8, 10), dtype=np.uint8)
        images = np.zeros((count, 8, 10, 3))
        for m in range(count):
            horizon, left = rng.integers(3, 6), rng.integers(1, 6)
            codes[m, horizon:] = 3
            codes[m, horizon : horizon + 2, left : left + 3] = 8
            codes[m, :, 9] = 11
        for code, colour in ((0, 0.8), (3, 0.4), (8, 0.1), (11, 0.5)):
            images[codes == code] = colour
        images += 0.1 * rng.normal(size=images.shape)
        arrays[f"x_{part}"] = (255 * np.clip(images, 0, 1)).astype(np.uint8)
        arrays[f"y_{part}"] = codes
    path = folder / FILE
    path.parent.mkdir(parents=True)
    np.savez(path, **arrays)
    return folder


def test_labels():
    names = list(LABELS)
    found = five_labels(np.array([[0, 1, 2], [3, 4, 11]], dtype=np.uint8))
    road = names.index("road or pavement")
    assert_array_equal(found, [[names.index("sky"), names.index("building"), -1], [road, road, -1]])


def test_pictures_are_drawn(tmp_path):
    path = write_scenes(tmp_path) / FILE
    scenes = draw_scenes(path, 2, 3, 2, np.random.default_rng(0))
    assert [len(scenes.train_images), len(scenes.test_images)] == [2, 3]
    assert scenes.train_images[0].shape == (4, 5, 3)
    assert scenes.train_labels[0].shape == (4, 5)
    with pytest.raises(FileFormatError, match="expected an archive"):
        draw_scenes(tmp_path / "none.npz", 1, 1, 1, np.random.default_rng(0))


def test_the_whole_experiment(tmp_path):
    design = Design(
        n_train=4, n_test=2, n_clusters=3, penalties=(1.0, 100.0), choice_iter=2, stages=(2, 5)
    )
    plan = StreetScenes(design, Settings(data=write_scenes(tmp_path)))
    outcome = run_plan(plan)
    assert list(dict.fromkeys(row["method"] for row in outcome.rows)) == list(METHODS)
    by_step = [row["n_iter"] for row in outcome.rows if row["method"] == "uquad-1"]
    assert by_step == [2, 5]
    # every method has the penalty with fewest held-out errors, a fitted entropy its start's
    held_out = {}
    for row in outcome.tables["penalties"]:
        held_out.setdefault(row["method"], []).append((row["held_out_uclass"], row["l2"]))
    for row in outcome.rows:
        chosen = min(held_out[METHODS[row["method"]].start or row["method"]])
        assert row["l2"] == chosen[1]
    assert all(tuple(row) == COLUMNS for row in outcome.rows)
    assert outcome.headline["baseline"] < 0.4
    assert all(-1.0 <= row["uquad"] <= 1.0 for row in outcome.rows)
    assert "0.333" in outcome.report
    figure = pytest.importorskip("matplotlib.figure").Figure
    for draw in outcome.figures.values():
        draw(figure())
