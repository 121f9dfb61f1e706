"""Pictures that are predicted window by window: equal to the whole, bounded, visible, refused."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.entropy.tree_weights import tree_weights
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.models import grid_crf, large_pictures
from fieldfit.models.grid_crf import GridCRF
from fieldfit.models.large_pictures import Windows

SHAPE = (60, 70)


@pytest.fixture
def tiny_windows(monkeypatch):
    """Windows of at most 36 x 36 pixels for every picture."""
    monkeypatch.setattr(grid_crf, "WINDOWED_BYTES", 1e5)
    monkeypatch.setattr(grid_crf, "OVERLAP", 6)
    monkeypatch.setattr(grid_crf, "window_side", lambda *_: 36)


def model(n_labels, neighbors=4, objective=None, **options):
    """A model with weights that are given, not learned, of moderate couplings."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, n_labels, (8, 8))
    if objective is None:
        objective = ff.Likelihood(ff.SumProduct(ff.TreeReweighted(), tol=1e-9))
    crf = GridCRF(objective, neighbors=neighbors, n_labels=n_labels, max_iter=1, **options)
    with pytest.warns(ConvergenceWarning):
        crf.fit([truth[:, :, None] + rng.normal(size=(8, 8, 1))], [truth])
    weights = 0.3 * rng.normal(size=crf.weights_.shape)
    crf.weights_ = weights
    return crf


def picture(seed=1, n_features=1):
    return np.random.default_rng(seed).normal(size=(*SHAPE, n_features))


@pytest.mark.parametrize("neighbors", [4, 8])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_equals_the_whole_picture(neighbors, n_labels, request):
    crf, x = model(n_labels, neighbors), picture()
    whole = crf.predict_marginals([x])[0]
    labels = crf.predict([x])[0]
    request.getfixturevalue("tiny_windows")
    np.testing.assert_allclose(crf.predict_marginals([x])[0], whole, atol=1e-6)
    is_clear = np.diff(np.sort(whole, axis=2)[:, :, -2:], axis=2)[:, :, 0] > 1e-5
    np.testing.assert_array_equal(crf.predict([x])[0][is_clear], labels[is_clear])


def test_one_round_is_not_enough(tiny_windows, monkeypatch):
    """The comparison above can fail, and what has not converged says so."""
    crf, x = model(2), picture()
    expected = crf.predict_marginals([x])[0]
    monkeypatch.setattr(large_pictures, "MAX_ROUNDS", 1)
    with pytest.warns(ConvergenceWarning, match="1 of 1 examples did not converge"):
        found = crf.predict_marginals([x])[0]
    assert np.abs(found - expected).max() > 1e-6


def test_edge_features_small_pictures_and_scores(request):
    crf = model(2, edge_features=True)
    pictures = [picture(2)[:9, :11], picture(3), picture(4)[:5, :8]]
    truth = [np.zeros(x.shape[:2], dtype=int) for x in pictures]
    expected = crf.predict_marginals(pictures)
    score = crf.score(pictures, truth)
    request.getfixturevalue("tiny_windows")
    for found, wanted in zip(crf.predict_marginals(pictures), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert crf.score(pictures, truth) == pytest.approx(score, abs=1e-3)


def test_progress_is_shown(tiny_windows, capsys):
    crf = model(2)
    crf.verbose = 1
    crf.predict([picture()])
    assert "9 windows of 32 x 36" in capsys.readouterr().err


@pytest.mark.parametrize("objective", ["bethe", "mean-field", "likelihood"])
def test_other_inferences_are_refused(objective, tiny_windows):
    crf = model(2, objective=objective)
    with pytest.raises(InvalidInputError, match=r"TreeReweighted\(\), such as 'trw'"):
        crf.predict_marginals([picture()])


def test_jointly_best_labels_are_refused(tiny_windows):
    crf = model(2, decode="map")
    with pytest.raises(InvalidInputError, match="decode must be 'marginals'"):
        crf.predict([picture()])


def test_bad_features_are_found_where_they_are(tiny_windows):
    x = picture()
    x[41, 17] = np.nan
    with pytest.raises(InvalidInputError, match=r"got nan at row 41, column 17"):
        model(2).predict([x])


def test_windows_cover_the_picture_once():
    windows = Windows((23, 31), 2, 8, side=12, overlap=2)
    seen = np.zeros((23, 31), dtype=int)
    for window in range(len(windows)):
        rows, columns = windows.core(window)
        seen[rows, columns] += 1
        row, column = windows.start(window)
        assert 0 <= row <= rows.start
        assert rows.stop <= row + windows.size[0] <= 23
        assert 0 <= column <= columns.start
        assert columns.stop <= column + windows.size[1] <= 31
    np.testing.assert_array_equal(seen, 1)


@pytest.mark.parametrize("neighbors", [4, 8])
def test_border_finds_its_messages(neighbors):
    """Every edge with one pixel inside, once, at the slot of that pixel in the owner's graph."""
    windows = Windows((23, 31), 2, neighbors, side=14, overlap=3)
    graph, whole = windows.graph(), ff.FactorGraph.grid(23, 31, 2, neighbors)
    pairs = whole.slot_variables.reshape(-1, 2)
    for window in range(len(windows)):
        row, column = windows.start(window)
        inside = np.zeros((23, 31), dtype=bool)
        inside[row : row + windows.size[0], column : column + windows.size[1]] = True
        crossing = inside.reshape(-1)[pairs].sum(axis=1) == 1
        border = windows.border(window)
        found = set()
        for pixel, owner, slot in zip(border.inside, border.owner, border.slot, strict=True):
            first = windows.start(int(owner))
            ends = graph.slot_variables[[slot, slot ^ 1]]
            rows, columns = np.divmod(ends, windows.size[1])
            places = (rows + first[0]) * 31 + columns + first[1]
            assert places[0] == (pixel // windows.size[1] + row) * 31 + (
                pixel % windows.size[1] + column
            )
            found.add(tuple(sorted(places.tolist())))
        assert found == {tuple(sorted(pair)) for pair in pairs[crossing].tolist()}


def test_tree_weights_of_a_larger_grid_are_near_the_exact_ones(monkeypatch):
    monkeypatch.setattr(large_pictures, "EXACT_SIDE", 24)
    windows = Windows((60, 60), 2, 4, side=60, overlap=0)
    found = windows.tree_weights()(0)
    exact = tree_weights(ff.FactorGraph.grid(60, 60, 2))
    assert np.abs(found - exact).max() < 5e-3
    assert np.abs(found - exact).max() > 0.0
