"""Features of pixels: gradients and patches against slow twins, codebooks, checks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fieldfit.errors import InvalidInputError
from fieldfit.features._image_pixels import gradient_histograms, patches
from fieldfit.features.image import PatchCodebook, SceneFeatures


def inside(index, size):
    return min(max(index, 0), size - 1)


def slow_histograms(image, scale):
    """The definition, pixel by pixel."""
    grey = image.mean(axis=2)
    height, width = grey.shape
    side = 1 + 2 * scale

    def square(row, column):
        return sum(
            grey[inside(row + r, height), inside(column + c, width)]
            for r in range(-scale, scale + 1)
            for c in range(-scale, scale + 1)
        )

    squares = np.array([[square(r, c) for c in range(width)] for r in range(height)])
    lengths, angles = np.zeros_like(grey), np.zeros(grey.shape, dtype=int)
    for r in range(height):
        for c in range(width):
            dx = squares[r, inside(c + side, width)] - squares[r, inside(c - side, width)]
            dy = squares[inside(r + side, height), c] - squares[inside(r - side, height), c]
            lengths[r, c] = np.hypot(dx, dy)
            angles[r, c] = int(np.floor((np.arctan2(dy, dx) % np.pi) / np.pi * 8)) % 8
    found = np.zeros((height, width, 8))
    for r in range(height):
        for c in range(width):
            square_sum = 0.0
            for i in range(-3, 4):
                for j in range(-3, 4):
                    at = inside(r + i * 2**scale, height), inside(c + j * 2**scale, width)
                    found[r, c, angles[at]] += lengths[at]
                    square_sum += lengths[at] ** 2
            found[r, c] /= np.sqrt(0.01**2 + square_sum)
    return found


@pytest.mark.parametrize("scale", [0, 1, 2])
def test_histograms_of_gradients(scale):
    image = np.random.default_rng(scale).random((9, 11, 3))
    assert_allclose(gradient_histograms(image, scale), slow_histograms(image, scale), atol=1e-10)


def test_histograms_show_the_direction_of_edges():
    image = np.zeros((15, 15, 3))
    image[:, 8:] = 1.0
    across, along = (gradient_histograms(x, 0)[7, 7] for x in (image, image.transpose(1, 0, 2)))
    assert across.argmax() == 0  # the gradient runs along x
    assert along.argmax() == 4
    assert_allclose(gradient_histograms(np.full((5, 5, 3), 0.3), 1), 0.0, atol=1e-12)


def test_patches():
    image = np.random.default_rng(0).random((6, 7, 3))
    found = patches(image, 1)
    assert found.shape == (6, 7, 75)
    assert_allclose(found[3, 3].reshape(5, 5, 3), image[1:6, 1:6])
    assert_allclose(found[0, 0].reshape(5, 5, 3)[0, 0], image[0, 0])  # goes on as it ends
    flat = np.full((6, 7, 3), 0.25)
    assert_allclose(patches(flat, 4), 0.25)


def test_codebook_finds_the_nearest_centre():
    rng = np.random.default_rng(1)
    images = [rng.random((8, 9, 3)) for _ in range(3)]
    book = PatchCodebook(6, stride=2, random_state=3).fit(images)
    assert book.centres_.shape == (6, 75)
    around = patches(images[1], 2)
    distances = ((around[:, :, None] - book.centres_) ** 2).sum(axis=3)
    assert_array_equal(book.nearest(images[1]), distances.argmin(axis=2))
    indicators = book.transform(images)[1]
    assert_allclose(indicators.sum(axis=2), 1.0)
    assert_array_equal(indicators.argmax(axis=2), book.nearest(images[1]))
    again = clone(book).fit(images)
    assert_array_equal(again.centres_, book.centres_)


def test_codebook_separates_textures():
    rng = np.random.default_rng(2)
    bright, dark = (
        np.clip(level + 0.02 * rng.normal(size=(10, 10, 3)), 0, 1) for level in (0.9, 0.1)
    )
    book = PatchCodebook(2).fit([bright, dark])
    assert len(set(book.nearest(bright).ravel())) == 1
    assert book.nearest(bright)[0, 0] != book.nearest(dark)[0, 0]


def test_features_of_scenes():
    images = np.random.default_rng(4).integers(0, 256, size=(2, 10, 12, 3)).astype(np.uint8)
    features = SceneFeatures(5, n_patches=100).fit(images)
    found = features.transform(images)
    assert found[0].shape == (10, 12, 3 + 24 + 15)
    assert len(features.feature_names()) == 42
    assert_allclose(found[1][..., :3], images[1] / 255.0)
    assert_allclose(found[1][..., 27:].sum(axis=2), 3.0)
    assert len(SceneFeatures().feature_names()) == 177  # as in the thesis


def test_what_is_refused():
    with pytest.raises(NotFittedError):
        SceneFeatures().transform([np.zeros((5, 5, 3))])
    with pytest.raises(NotFittedError):
        PatchCodebook().nearest(np.zeros((5, 5, 3)))
    with pytest.raises(InvalidInputError, match=r"images\[1\] must have shape"):
        SceneFeatures(2).fit([np.zeros((5, 5, 3)), np.zeros((5, 5))])
    with pytest.raises(InvalidInputError, match="at least one picture"):
        SceneFeatures().fit([])
    with pytest.raises(InvalidInputError, match="n_clusters must be an integer"):
        PatchCodebook(0).fit([np.zeros((5, 5, 3))])
    with pytest.raises(InvalidInputError, match="at least n_clusters = 50 pixels"):
        PatchCodebook(50).fit([np.zeros((5, 5, 3))])
