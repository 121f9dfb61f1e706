"""Images with labels: archives, folders of PNG files, and what is wrong with them."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fieldfit.errors import FileFormatError, InvalidInputError, MissingDependencyError
from fieldfit.io.images import (
    read_image_archive,
    read_images,
    write_image_archive,
    write_label_images,
)

Image = pytest.importorskip("PIL.Image")


def save_png(path, array, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(np.asarray(array))
    if mode is not None:
        picture = picture.convert(mode)
    picture.save(path)


@pytest.fixture
def folder(tmp_path):
    """Two colour pictures of different sizes with grey labels, one pixel of which is missing."""
    rng = np.random.default_rng(0)
    for name, shape in (("b", (3, 4)), ("a", (2, 5))):
        save_png(tmp_path / "images" / f"{name}.png", rng.integers(0, 256, (*shape, 3), np.uint8))
        labels = rng.integers(0, 3, shape, np.uint8)
        labels[0, 0] = 255
        save_png(tmp_path / "labels" / f"{name}.png", labels)
    return tmp_path


# -- archives -----------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("x", "y"), ("X", "Y")])
def test_archive(tmp_path, names):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(3, 4, 5, 2)), rng.integers(-1, 3, size=(3, 4, 5))
    np.savez(tmp_path / "data.npz", **dict(zip(names, (x, y), strict=True)))
    data = read_images(tmp_path / "data.npz")
    assert_array_equal(np.stack(data.images), x)
    assert_array_equal(np.stack(data.labels), y)
    assert data.labels[0].dtype == np.int32
    assert data.places[2] == f"{tmp_path / 'data.npz'}, image 2"


def test_archive_with_other_names_void_and_bytes(tmp_path):
    x = np.array([[[0, 51], [255, 102]]], np.uint8)
    y = np.array([[[0, 11], [1, 255]]], np.uint8)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y)
    data = read_images(tmp_path / "data.npz", arrays=("x_train", "y_train"), missing=11)
    assert_allclose(data.images[0][:, :, 0], [[0.0, 0.2], [1.0, 0.4]], rtol=1e-15)
    assert_array_equal(data.labels[0], [[0, -1], [1, 255]])


def test_archive_without_labels(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((2, 3, 3)))
    assert read_images(tmp_path / "data.npz", with_labels=False).labels is None
    with pytest.raises(
        FileFormatError, match=r"data\.npz: expected an array named y or Y, found x"
    ):
        read_images(tmp_path / "data.npz")


@pytest.mark.parametrize(
    ("place", "byte", "message"), [(4, 99, "zip file version"), (6, 1, "is encrypted")]
)
def test_archives_of_later_versions_and_encrypted_ones_are_refused(place, byte, message, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((2, 3, 3)))
    data = bytearray((tmp_path / "data.npz").read_bytes())
    # the header of the array, and what the directory at the end says of it
    for header, offset in ((b"PK\x03\x04", place), (b"PK\x01\x02", place + 2)):
        data[data.index(header) + offset] = byte
    (tmp_path / "data.npz").write_bytes(data)
    with pytest.raises(FileFormatError, match=rf"data\.npz: the file is not .*{message}"):
        read_images(tmp_path / "data.npz", with_labels=False)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 3)), "y": np.zeros((3, 3), int)}, r"\(n, height, width\).*\(3, 3\)"),
        ({"x": np.zeros((0, 3, 3)), "y": np.zeros((0, 3, 3), int)}, "none of them 0"),
        ({"x": np.zeros((2, 3, 3)), "y": np.zeros((2, 3, 4), int)}, r"\(2, 3, 3\).*\(2, 3, 4\)"),
        ({"x": np.zeros((2, 3, 3)), "y": np.zeros((2, 3, 3))}, "integer labels, found float64"),
        ({"x": np.zeros((2, 3, 3)), "y": np.full((2, 3, 3), -2)}, "image 0.*-1.*found -2"),
        ({"x": np.full((1, 1, 1), "a"), "y": np.zeros((1, 1, 1), int)}, "array of numbers"),
    ],
)  # fmt: skip
def test_wrong_arrays(tmp_path, arrays, message):
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(FileFormatError, match=message):
        read_images(tmp_path / "data.npz")


def test_files_that_are_no_archives(tmp_path):
    path = tmp_path / "data.npz"
    with pytest.raises(FileNotFoundError):
        read_images(path)
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="empty"):
        read_images(path)
    path.write_bytes(b"hello, this is text")
    with pytest.raises(FileFormatError, match="not a complete"):
        read_images(path)
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(FileFormatError, match="single array"):
        read_images(tmp_path / "single.npy")
    np.savez(path, x=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(FileFormatError, match="not a complete"):  # pickles are not read
        read_images(path)


def test_every_truncation_of_an_archive_is_refused(tmp_path):
    whole = tmp_path / "whole.npz"
    np.savez_compressed(whole, x=np.arange(18.0).reshape(2, 3, 3), y=np.zeros((2, 3, 3), int))
    data = whole.read_bytes()
    cut = tmp_path / "cut.npz"
    for length in range(0, len(data), 7):
        cut.write_bytes(data[:length])
        with pytest.raises(FileFormatError):
            read_image_archive(cut)


def test_written_archive(tmp_path):
    labels = [np.array([[0, 1]], np.int32), np.array([[2, 1]], np.int32)]
    marginals = [np.full((1, 2, 3), 1 / 3)] * 2
    write_image_archive(tmp_path / "out.npz", labels, marginals)
    with np.load(tmp_path / "out.npz") as archive:
        assert_array_equal(archive["y"], labels)
        assert_array_equal(archive["marginals"], marginals)
    with pytest.raises(InvalidInputError, match=r"one shape.*\(1, 2\) and \(2, 2\)"):
        write_image_archive(tmp_path / "out.npz", [labels[0], np.zeros((2, 2), np.int32)])


# -- folders ------------------------------------------------------------------------------


def test_folder(folder):
    data = read_images(folder)
    assert [image.shape for image in data.images] == [(2, 5, 3), (3, 4, 3)]  # in order of names
    with Image.open(folder / "images" / "b.png") as picture:
        assert_allclose(data.images[1], np.asarray(picture) / 255.0, rtol=1e-15)
    assert all(labels[0, 0] == -1 for labels in data.labels)
    assert max(labels.max() for labels in data.labels) == 2
    assert data.places[0].endswith("images/a.png")


def test_pictures_alone(folder, tmp_path):
    nested = read_images(folder, with_labels=False)
    flat = read_images(folder / "images", with_labels=False)
    for one, other in zip(nested.images, flat.images, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("pixels", "mode", "expected"),
    [
        (np.array([[0, 255]], np.uint8), None, [[[0.0], [1.0]]]),
        (np.array([[0, 255]], np.uint8), "1", [[[0.0], [1.0]]]),
        (np.array([[0, 255]], np.uint8), "LA", [[[0.0], [1.0]]]),
        (np.array([[0, 65535]], np.uint16), None, [[[0.0], [1.0]]]),
        (np.full((1, 1, 3), 51, np.uint8), "RGBA", [[[0.2, 0.2, 0.2]]]),
        (np.full((1, 1, 3), 255, np.uint8), "P", [[[1.0, 1.0, 1.0]]]),
    ],
)
def test_modes_of_pictures(tmp_path, pixels, mode, expected):
    save_png(tmp_path / "one.png", pixels, mode)
    assert_allclose(read_images(tmp_path, with_labels=False).images[0], expected, rtol=1e-12)


def test_palette_and_bitmap_labels_are_indices(folder):
    palette = Image.fromarray(np.array([[0, 1, 2, 1, 255], [2, 2, 0, 0, 1]], np.uint8))
    palette.putpalette([7, 8, 9] * 256)
    palette.save(folder / "labels" / "a.png")
    save_png(folder / "labels" / "b.png", np.array([[0, 255] * 2] * 3, np.uint8), "1")
    data = read_images(folder)
    assert_array_equal(data.labels[0], [[0, 1, 2, 1, -1], [2, 2, 0, 0, 1]])
    assert_array_equal(data.labels[1], [[0, 1, 0, 1]] * 3)


def test_wrong_folders(folder, tmp_path):
    save_png(folder / "labels" / "a.png", np.zeros((2, 4), np.uint8))
    with pytest.raises(FileFormatError, match=r"labels/a\.png: expected 2 x 5.*found 2 x 4"):
        read_images(folder)
    save_png(folder / "labels" / "a.png", np.zeros((2, 5, 3), np.uint8))
    with pytest.raises(FileFormatError, match=r"labels/a\.png.*grey or palette.*RGB"):
        read_images(folder)
    (folder / "labels" / "a.png").unlink()
    with pytest.raises(FileFormatError, match=r"images/a\.png.*same name in the folder labels"):
        read_images(folder)
    (folder / "images" / "a.png").rename(folder / "labels" / "a.png")
    with pytest.raises(FileFormatError, match=r"labels/a\.png.*same name in the folder images"):
        read_images(folder)
    (folder / "labels" / "a.png").unlink()
    data = (folder / "images" / "b.png").read_bytes()
    for content in (b"", b"text", data[:20], data[: len(data) // 2]):
        (folder / "images" / "b.png").write_bytes(content)
        with pytest.raises(FileFormatError, match=r"images/b\.png.*not a complete PNG"):
            read_images(folder)
    (folder / "images" / "b.png").unlink()
    with pytest.raises(FileFormatError, match="images: expected at least one PNG"):
        read_images(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileFormatError, match="empty/images: expected a folder"):
        read_images(tmp_path / "empty")


def test_written_labels_read_back(folder, tmp_path):
    labels = [np.array([[0, 1], [2, 250]], np.int32)]
    write_label_images(tmp_path / "new" / "predicted", ["a.png"], labels)
    with Image.open(tmp_path / "new" / "predicted" / "a.png") as picture:
        assert_array_equal(np.asarray(picture), labels[0])
    with pytest.raises(InvalidInputError, match=r"0\.\.255"):
        write_label_images(tmp_path / "new", ["a.png"], [np.array([[256]])])


def test_without_pillow(folder, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "PIL":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"Pillow.*fieldfit\[images\]"):
        read_images(folder)
