"""Superpixels and their features, against slow twins; out-of-fold log-probabilities."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fieldfit.errors import InvalidInputError, MissingDependencyError
from fieldfit.features import _image_regions as regions
from fieldfit.features.image import (
    boundary_features,
    out_of_fold,
    paint,
    region_feature_names,
    region_features,
    region_graph,
    region_labels,
    stretched,
    superpixels,
)

pytest.importorskip("skimage")

DATA = os.environ.get("FIELDFIT_DATA")
#: Column where the colour of `two_colours` changes.
BORDER = 11


def random_segments(rng, height=9, width=11, n_regions=7):
    """A label image in which every number occurs, in no order."""
    segments = rng.integers(0, n_regions, size=(height, width))
    segments.flat[rng.choice(segments.size, n_regions, replace=False)] = np.arange(n_regions)
    return segments


def two_colours(height=24, width=30):
    """Dark blue on the left and bright orange on the right, with a little noise.

    The border is not where a tiling with squares would have one.
    """
    rng = np.random.default_rng(0)
    image = np.empty((height, width, 3))
    image[:, :BORDER] = (0.1, 0.1, 0.5)
    image[:, BORDER:] = (0.9, 0.6, 0.2)
    return np.clip(image + 0.02 * rng.normal(size=image.shape), 0.0, 1.0)


# -- superpixels --------------------------------------------------------------------------


def test_superpixels_are_connected_and_follow_colours():
    from scipy.ndimage import label

    image = two_colours()
    segments = superpixels(image, n=12)
    n_regions = segments.max() + 1
    assert_array_equal(np.unique(segments), np.arange(n_regions))
    assert 6 <= n_regions <= 24
    assert all(label(segments == region)[1] == 1 for region in range(n_regions))
    is_left = np.arange(30) < BORDER
    truth = np.broadcast_to(is_left, segments.shape).astype(int)
    assert (
        np.mean(paint(region_labels(truth, segments), segments) == truth) > 0.95
    )  # smoothed by a pixel


def test_bytes_and_numbers_are_one_picture():
    image = np.rint(two_colours() * 255).astype(np.uint8)
    assert_array_equal(superpixels(image, 10), superpixels(image / 255.0, 10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": np.zeros((4, 5))}, r"image must have shape \(height, width, 3\)"),
        ({"image": np.full((4, 5, 3), 2.0)}, "got numbers from 2 to 2"),
        ({"image": np.full((4, 5, 3), np.nan)}, "image must hold bytes"),
        ({"image": np.zeros((4, 5, 3), dtype=int)}, "got dtype int64"),
        ({"n": 0}, r"n must be an integer in \[1, "),
        ({"n": 10**6}, r"n must be an integer in \[1, "),
        ({"compactness": 0.0}, "compactness must be positive"),
        ({"sigma": -1.0}, "sigma must be"),
    ],
)
def test_superpixels_refuse(change, message):
    arguments = {"image": two_colours(), **change}
    with pytest.raises(InvalidInputError, match=message):
        superpixels(**arguments)


def test_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'fieldfit\[images\]'"):
        superpixels(two_colours())
    with pytest.raises(MissingDependencyError):
        region_features(two_colours(), np.zeros((24, 30), dtype=int))


# -- sums over regions --------------------------------------------------------------------


def test_graph_and_lengths_by_loops():
    segments = random_segments(np.random.default_rng(1))
    lengths = {}
    for row in range(segments.shape[0]):
        for column in range(segments.shape[1]):
            for other in ((row + 1, column), (row, column + 1)):
                if other[0] < segments.shape[0] and other[1] < segments.shape[1]:
                    pair = tuple(sorted((segments[row, column], segments[other])))
                    if pair[0] != pair[1]:
                        lengths[pair] = lengths.get(pair, 0) + 1
    edges, found = regions.adjacent_regions(segments)
    assert {tuple(edge): length for edge, length in zip(edges, found, strict=True)} == lengths
    assert_array_equal(region_graph(segments), edges)
    assert region_graph(np.zeros((3, 4), dtype=int)).shape == (0, 2)


def test_statistics_by_loops():
    rng = np.random.default_rng(2)
    segments = random_segments(rng)
    channels = rng.normal(size=(*segments.shape, 3)) + 1e3
    bins = rng.integers(0, 4, size=segments.shape)
    mean = regions.means(segments, channels)
    spread = regions.spreads(segments, channels, mean)
    shares = regions.histograms(segments, bins, 4)
    for region in range(7):
        inside = segments == region
        assert_allclose(mean[region], channels[inside].mean(axis=0), rtol=1e-13)
        assert_allclose(spread[region], channels[inside].std(axis=0), rtol=1e-9)
        assert_allclose(shares[region], np.bincount(bins[inside], minlength=4) / inside.sum())


def test_neighbour_means_by_loops():
    rng = np.random.default_rng(3)
    edges = np.array([[0, 1], [0, 2], [1, 2]])
    lengths = np.array([2, 5, 1])
    values = rng.normal(size=(4, 3))
    found = regions.neighbour_means(values, edges, lengths)
    assert_allclose(found[0], (2 * values[1] + 5 * values[2]) / 7)
    assert_allclose(found[1], (2 * values[0] + 1 * values[2]) / 3)
    assert_allclose(found[2], (5 * values[0] + 1 * values[1]) / 6)
    assert_allclose(found[3], values[3])  # without neighbours


def test_shapes_of_rectangles():
    segments = np.zeros((8, 10), dtype=int)
    segments[:, 6:] = 1  # 8 x 4, at top, bottom and right
    segments[2:4, 1:3] = 2  # a square of 2 x 2 inside
    found = regions.shapes(segments, *regions.adjacent_regions(segments))
    shape = [dict(zip(regions.SHAPE_NAMES, row, strict=True)) for row in found]
    assert_allclose(shape[2]["row"], 3 / 8)
    assert_allclose(shape[2]["column"], 2 / 10)
    assert_allclose(shape[2]["roundness"], 1.0)
    assert_allclose(shape[2]["elongation"], 1.0)
    assert_allclose([shape[2]["height"], shape[2]["width"], shape[2]["area"]], [0.25, 0.2, 0.05])
    assert_allclose(shape[1]["elongation"], 0.5)  # a rectangle of 4 x 8, pixels have a size
    assert_allclose([shape[1]["at top"], shape[1]["at bottom"]], [0.4, 0.4])
    assert_allclose([shape[1]["at side"], shape[2]["at side"]], [1.0, 0.0])
    assert_allclose(shape[1]["roundness"], 16 * 32 / 24**2)


# -- features -----------------------------------------------------------------------------


def test_features_have_names_and_no_surprises():
    image = two_colours()
    segments = superpixels(image, 12)
    features = region_features(image, segments)
    names = region_feature_names()
    assert len(set(names)) == len(names) == features.shape[1]
    assert features.shape[0] == segments.max() + 1
    assert np.isfinite(features).all()
    assert np.abs(features).max() < 20.0
    red = features[:, names.index("mean red")]
    is_right = features[:, names.index("column")] > BORDER / 30
    assert red[is_right].min() > 0.6 > 0.4 > red[~is_right].max()
    picture = [index for index, name in enumerate(names) if name.startswith("picture's")]
    assert_allclose(np.ptp(features[:, picture], axis=0), 0.0, atol=1e-12)
    assert_allclose(
        features[0, names.index("picture's mean lightness")],
        paint(features[:, names.index("mean lightness")], segments).mean(),
    )


def test_numbers_of_regions_do_not_matter():
    rng = np.random.default_rng(4)
    image = two_colours()
    segments = superpixels(image, 12)
    order = rng.permutation(segments.max() + 1)
    assert_allclose(
        region_features(image, order[segments])[order],
        region_features(image, segments),
        rtol=1e-9,
        atol=1e-12,
    )


def test_a_mirrored_picture_differs_only_where_it_should():
    rng = np.random.default_rng(5)
    image = np.clip(two_colours() + 0.1 * rng.random((24, 30, 3)), 0.0, 1.0)
    segments = superpixels(image, 12)
    names = region_feature_names()
    here = region_features(image, segments)
    mirrored = region_features(image[:, ::-1], segments[:, ::-1])
    differ = {
        name for name, a, b in zip(names, here.T, mirrored.T, strict=True)
        if not np.allclose(a, b, rtol=1e-6, atol=1e-8)
    }  # fmt: skip
    assert "column" in differ
    assert all(
        name == "column" or name.startswith("mean diagonal") or "column" in name for name in differ
    ), differ


def test_a_picture_of_one_colour_is_no_accident():
    features = region_features(np.full((6, 6, 3), 0.5), np.arange(36).reshape(6, 6) // 18)
    assert np.isfinite(features).all()


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        (np.zeros((24, 31), dtype=int), "segments must have the shape of the image"),
        (np.zeros((24, 30)), "segments must be integers"),
        (np.full((24, 30), -1), "segments must be at least 0"),
        (np.full((24, 30), 1), "segments must use every number from 0"),
        (np.full((24, 30), 10**12), "segments must use every number from 0"),
    ],
)
def test_features_refuse(segments, message):
    with pytest.raises(InvalidInputError, match=message):
        region_features(two_colours(), segments)


def test_features_need_a_picture_of_some_size():
    with pytest.raises(InvalidInputError, match="at least 3 x 3 pixels"):
        region_features(np.zeros((2, 9, 3)), np.zeros((2, 9), dtype=int))


def test_boundaries():
    image = two_colours()
    segments = np.zeros((24, 30), dtype=int)
    segments[:, BORDER:] = 1
    segments[12:, :BORDER] = 2
    edges = region_graph(segments).tolist()
    length, likeness, product = boundary_features(image, segments).T
    across, along = edges.index([0, 1]), edges.index([0, 2])
    assert_allclose(length[along], BORDER / (132 * 132) ** 0.25)
    assert_allclose(length[across], 12 / (132 * 456) ** 0.25)
    assert likeness[along] > 0.9 > 0.4 > likeness[across]
    assert_allclose(product, length * likeness)
    alone = np.zeros((24, 30), dtype=int)
    assert boundary_features(image, alone).shape == (0, 3)


# -- labels -------------------------------------------------------------------------------


def test_labels_are_the_commonest():
    rng = np.random.default_rng(6)
    segments = random_segments(rng)
    labels = rng.integers(-1, 3, size=segments.shape)
    labels[segments == 4] = -1
    found = region_labels(labels, segments)
    for region in range(7):
        known = labels[(segments == region) & (labels >= 0)]
        expected = np.bincount(known, minlength=3).argmax() if len(known) else -1
        assert found[region] == expected
    assert found[4] == -1
    sure = region_labels(labels, segments, min_share=0.5)
    for region in range(7):
        inside = labels[segments == region]
        assert sure[region] in (found[region], -1)
        assert (sure[region] == -1) == (
            found[region] == -1 or np.mean(inside == found[region]) < 0.5
        )


def test_labels_of_bytes_and_of_nothing():
    segments = np.array([[0, 0, 1]])
    assert_array_equal(region_labels(np.array([[3, 3, 200]], dtype=np.uint8), segments), [3, 200])
    assert_array_equal(region_labels([[-1, -1, -1]], segments), [-1, -1])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1]], "labels must be integers of shape"),
        ([[0.0, 1.0, 1.0]], "got dtype float64"),
        ([[0, 1, -2]], "labels must be at least -1, got -2"),
    ],
)
def test_labels_refuse(labels, message):
    with pytest.raises(InvalidInputError, match=message):
        region_labels(labels, [[0, 0, 1]])


def test_paint_vectors_and_refuse():
    segments = np.array([[0, 1], [1, 1]])
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert_array_equal(paint(values, segments), values[segments])
    with pytest.raises(InvalidInputError, match="one entry for each of the 2 regions"):
        paint([1, 2, 3], segments)


def test_stretched():
    rng = np.random.default_rng(7)
    image = 0.2 + 0.3 * rng.random((20, 20, 3)) * [1.0, 0.5, 1.0]
    together, apart = stretched(image), stretched(image, by_channel=True)
    for result in (together, apart):
        assert result.min() == 0.0
        assert result.max() == 1.0
    assert together[:, :, 1].max() < 0.6  # the ratio of the channels is kept
    assert_allclose(apart.max(axis=(0, 1)), 1.0)
    assert_allclose(stretched(np.full((4, 4, 3), 0.5)), 0.0)
    with pytest.raises(InvalidInputError, match="percent must be"):
        stretched(image, percent=50.0)


# -- out of fold --------------------------------------------------------------------------


def grouped(n_groups=6, n_rows=5):
    rng = np.random.default_rng(8)
    groups = np.repeat(np.arange(n_groups), n_rows)
    labels = rng.integers(0, 3, size=len(groups))
    labels[:3] = (0, 1, 2)
    return np.arange(len(groups), dtype=float)[:, None], labels, groups


def nearest():
    """Learns every row by heart; `predict_proba` is 1 for the label of the nearest."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(n_neighbors=1)


def test_a_group_is_classified_by_those_that_have_not_seen_it():
    features, labels, groups = grouped()
    found = out_of_fold(nearest(), features, labels, groups, n_folds=6, random_state=0)
    for row in range(len(features)):
        others = np.flatnonzero(groups != groups[row])
        best = others[np.argmin(np.abs(features[others, 0] - features[row, 0]))]
        distances = np.abs(features[others, 0] - features[row, 0])
        if np.sum(distances == distances.min()) == 1:
            assert found.log_probabilities[row].argmax() == labels[best]
    assert_array_equal(found.predict_log_proba(features).argmax(axis=1), labels)


def test_floor_and_sums():
    features, labels, groups = grouped()
    found = out_of_fold(nearest(), features, labels, groups, n_folds=3, n_labels=5, floor=0.01)
    probabilities = np.exp(found.log_probabilities)
    assert probabilities.shape == (30, 5)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert_allclose(probabilities.min(), 0.01)
    assert_allclose(probabilities.max(), 0.96)  # 1 - 4 * 0.01
    assert_allclose(probabilities[:, 3:], 0.01)  # never seen


def test_missing_labels_are_classified_but_not_learned_from():
    features, labels, groups = grouped()
    hidden = labels.copy()
    hidden[groups == 2] = -1
    found = out_of_fold(nearest(), features, hidden, groups, n_folds=3, random_state=1)
    assert found.classifier.n_samples_fit_ == 25
    assert np.isfinite(found.log_probabilities).all()


def test_folds_come_from_the_seed():
    features, labels, groups = grouped()

    def found(seed):
        result = out_of_fold(nearest(), features, labels, groups, n_folds=2, random_state=seed)
        return result.log_probabilities

    assert_array_equal(found(0), found(0))
    assert any((found(0) != found(seed)).any() for seed in range(1, 9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(3, dtype=int)}, r"labels must have shape \(30,\)"),
        ({"groups": np.zeros(3, dtype=int)}, r"groups must have shape \(30,\)"),
        ({"labels": np.full(30, -1)}, "labels must be known in some rows"),
        ({"labels": np.full(30, -2)}, "labels must be integers of at least -1"),
        ({"labels": np.where(np.arange(30) < 5, 0, -1)}, "known in at least two folds"),
        ({"features": np.zeros(30)}, r"features must be numbers of shape \(M, F\)"),
        ({"n_folds": 1}, "n_folds must be from 2 to the number of groups"),
        ({"n_folds": 7}, "n_folds must be from 2 to the number of groups"),
        ({"n_labels": 2}, "n_labels must be at least 3"),
        ({"floor": 0.5}, "floor must be between 0 and 1 / 3"),
    ],
)
def test_out_of_fold_refuses(change, message):
    features, labels, groups = grouped()
    arguments = {"features": features, "labels": labels, "groups": groups, "n_folds": 6, **change}
    with pytest.raises(InvalidInputError, match=message):
        out_of_fold(nearest(), **arguments)


# -- real photographs ---------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="FIELDFIT_DATA does not name the data sets")
def test_superpixels_keep_the_labels_of_photographs():
    with np.load(Path(DATA, "corel", "corel.npz")) as archive:
        images, truths = archive["images"][:6], archive["labels"][:6].astype(int)
    for image, truth in zip(images, truths, strict=True):
        segments = superpixels(image, 200)
        assert 120 <= segments.max() + 1 <= 300
        kept = paint(region_labels(truth, segments), segments)
        assert np.mean(kept == truth) > 0.9
        assert np.isfinite(region_features(image, segments)).all()
