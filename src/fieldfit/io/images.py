"""Images with a label for every pixel: NumPy archives and folders of PNG files.

An archive (``.npz``) holds ``x`` (or ``X``), ``(n, height, width)`` or ``(n, height, width,
features)``, and ``y`` (or ``Y``), integer labels ``(n, height, width)``.  A folder holds
``images/NAME.png`` and ``labels/NAME.png``, which belong together by name and may differ in size
from one name to the next; a label is the grey value or palette index of its pixel.  PNG files need
Pillow.

Eight- and sixteen-bit pixels become numbers in [0, 1], so that weights learned from an archive of
bytes and from PNG files are the same; all other numbers are features as they are.  The label
``missing`` (255 unless told otherwise) and every ``-1`` stand for "not labelled".
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import require_flag, require_integer, require_path, shown
from fieldfit.errors import FileFormatError, InvalidInputError, MissingDependencyError
from fieldfit.io._archive import opened_archive
from fieldfit.io._atomic_file import write_atomically

__all__ = [
    "MISSING",
    "LabelledImages",
    "read_image_archive",
    "read_image_folder",
    "read_images",
    "write_image_archive",
    "write_label_images",
]

PathName = str | os.PathLike[str]

#: What the label images of common data sets hold where nothing is labelled.
MISSING = 255
#: Modes of Pillow whose pixels are one number each.
_GREY_MODES = ("1", "L", "I", "I;16", "I;16B", "I;16L")


@dataclass(frozen=True)
class LabelledImages:
    """Pictures, their labels (``None`` if none were asked for) and where each came from.

    ``images`` are ``(height, width, features)``, ``labels`` are ``(height, width)`` with ``-1``
    where missing; ``places`` name each image for error messages.
    """

    images: list[FloatArray]
    labels: list[LabelArray] | None
    places: list[str]


def read_images(
    path: PathName,
    *,
    with_labels: bool = True,
    missing: int = MISSING,
    arrays: tuple[str, str] | None = None,
) -> LabelledImages:
    """Read a folder of PNG files or an archive; ``arrays`` names those of an archive."""
    if os.path.isdir(path):
        return read_image_folder(path, with_labels=with_labels, missing=missing)
    return read_image_archive(path, with_labels=with_labels, missing=missing, arrays=arrays)


# -- archives -----------------------------------------------------------------------------


def read_image_archive(
    path: PathName,
    *,
    with_labels: bool = True,
    missing: int = MISSING,
    arrays: tuple[str, str] | None = None,
) -> LabelledImages:
    """Images and labels of an ``.npz`` file; ``arrays`` are the names if not ``x`` and ``y``.

    Parameters
    ----------
    path
        The file.
    with_labels
        Whether to read labels, too.
    missing
        The label that means "not labelled", besides ``-1``.
    arrays
        Names of the two arrays.

    Returns
    -------
    LabelledImages
        ``images``, ``labels`` (``-1`` where missing) and ``places``, one of each for every picture.
    """
    require_path("path", path)
    require_flag("with_labels", with_labels)
    require_integer("missing", missing)
    if arrays is not None and not (
        isinstance(arrays, (tuple, list)) and len(arrays) == 2 and all(map(_is_text, arrays))
    ):
        raise InvalidInputError(
            f"arrays must be the names of the images and of the labels, got {shown(arrays)}"
        )
    name = os.fspath(path)
    image_names = ("x", "X") if arrays is None else arrays[:1]
    label_names = ("y", "Y") if arrays is None else arrays[1:]
    wanted = [image_names, label_names] if with_labels else [image_names]
    pixels, *labels = _read_arrays(path, wanted)
    if pixels.dtype.kind not in "biuf":
        raise FileFormatError(
            f"{name}: expected an array of numbers as {image_names[0]!r}, found {pixels.dtype}"
        )
    if pixels.ndim not in (3, 4) or 0 in pixels.shape:
        raise FileFormatError(
            f"{name}: expected {image_names[0]!r} of shape (n, height, width) or (n, height, "
            f"width, features), none of them 0, found {pixels.shape}"
        )
    places = [f"{name}, image {index}" for index in range(len(pixels))]
    images = list(_scaled(pixels if pixels.ndim == 4 else pixels[..., None]))
    if not labels:
        return LabelledImages(images, None, places)
    if labels[0].shape != pixels.shape[:3]:
        raise FileFormatError(
            f"{name}: expected {label_names[0]!r} of shape {pixels.shape[:3]} as "
            f"{image_names[0]!r}, found {labels[0].shape}"
        )
    found = [_labels(place, label, missing) for place, label in zip(places, labels[0], strict=True)]
    return LabelledImages(images, found, places)


def write_image_archive(
    path: PathName, labels: Sequence[LabelArray], marginals: Sequence[FloatArray] | None = None
) -> None:
    """Write predicted labels ``y`` (and ``marginals``) of images that have one size."""
    shapes = {label.shape for label in labels}
    if len(shapes) > 1:
        raise InvalidInputError(
            "labels of images must have one shape to be written to one archive, "
            f"got {' and '.join(map(str, sorted(shapes)))}"
        )
    arrays: dict[str, Any] = {"y": np.stack(labels).astype(np.int32)}
    if marginals is not None:
        arrays["marginals"] = np.stack(marginals)
    memory = io.BytesIO()
    np.savez_compressed(memory, **arrays)
    write_atomically(path, [memory.getvalue()])


def _read_arrays(path: PathName, wanted: Sequence[tuple[str, ...]]) -> list[NDArray[Any]]:
    """One array for each tuple of names that it may have."""
    name = os.fspath(path)
    data = Path(path).read_bytes()  # so that a missing file is an OSError that names it
    if not data:
        raise FileFormatError(f"{name}: the file is empty, expected an .npz archive")
    if data.startswith(b"\x93NUMPY"):
        raise FileFormatError(f"{name}: expected an .npz archive, found a single array")
    found = []
    with opened_archive(name, data) as archive:
        for names in wanted:
            chosen = next((choice for choice in names if choice in archive.files), None)
            if chosen is None:
                raise FileFormatError(
                    f"{name}: expected an array named {' or '.join(names)}, "
                    f"found {', '.join(archive.files) or 'nothing'}"
                )
            found.append(archive[chosen])
    return found


# -- folders ------------------------------------------------------------------------------


def read_image_folder(
    path: PathName, *, with_labels: bool = True, missing: int = MISSING
) -> LabelledImages:
    """Pictures ``images/*.png`` and ``labels/*.png`` of a folder, in the order of their names.

    Without labels, pictures may also lie in the folder itself.
    """
    image_folder = Path(path, "images")
    if not with_labels and not image_folder.is_dir():
        image_folder = Path(path)
    images = _pictures(image_folder)
    places = [os.fspath(file) for file in images.values()]
    pixels = [_read_pixels(file) for file in images.values()]
    if not with_labels:
        return LabelledImages(pixels, None, places)
    label_files = _pictures(Path(path, "labels"))
    for given, others, what in ((images, label_files, "labels"), (label_files, images, "images")):
        lonely = sorted(set(given) - set(others))
        if lonely:
            raise FileFormatError(
                f"{os.fspath(given[lonely[0]])}: expected a file of the same name in the folder "
                f"{what}, found none"
            )
    labels = []
    for name, image in zip(images, pixels, strict=True):
        file = label_files[name]
        label = _labels(os.fspath(file), _read_indices(file), missing)
        if label.shape != image.shape[:2]:
            raise FileFormatError(
                f"{os.fspath(file)}: expected {image.shape[0]} x {image.shape[1]} pixels (height "
                f"x width) as its image, found {label.shape[0]} x {label.shape[1]}"
            )
        labels.append(label)
    return LabelledImages(pixels, labels, places)


def write_label_images(
    folder: PathName, names: Sequence[str], labels: Sequence[LabelArray]
) -> None:
    """Write each label array as an 8-bit grey PNG file of the given name; the folder is made."""
    pillow = _pillow()
    os.makedirs(folder, exist_ok=True)
    for name, label in zip(names, labels, strict=True):
        if label.min(initial=0) < 0 or label.max(initial=0) > 255:
            raise InvalidInputError(
                f"labels must be in 0..255 to be written as a PNG file, got {label.min()}.."
                f"{label.max()}"
            )
        memory = io.BytesIO()
        pillow.fromarray(label.astype(np.uint8)).save(memory, format="PNG")
        write_atomically(Path(folder, name), [memory.getvalue()])


def _pictures(folder: Path) -> dict[str, Path]:
    """PNG files of a folder by name without ending."""
    if not folder.is_dir():
        raise FileFormatError(f"{os.fspath(folder)}: expected a folder of PNG files, found none")
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".png")
    if not files:
        raise FileFormatError(f"{os.fspath(folder)}: expected at least one PNG file, found none")
    return {file.stem: file for file in files}


def _read_pixels(file: Path) -> FloatArray:
    """One picture as features; transparency is ignored."""
    with _opened(file) as picture:
        if picture.mode in ("LA", "La"):
            picture = picture.convert("L")
        elif picture.mode not in ("RGB", *_GREY_MODES):
            picture = picture.convert("RGB")
        array = np.asarray(picture)
    if array.dtype.kind == "i":  # Pillow gives 16-bit pictures in one of several wider types
        array = array.astype(np.uint16)
    return _scaled(array if array.ndim == 3 else array[:, :, None])


def _read_indices(file: Path) -> NDArray[Any]:
    """Grey values or palette indices of one picture."""
    with _opened(file) as picture:
        if picture.mode not in ("P", *_GREY_MODES):
            raise FileFormatError(
                f"{os.fspath(file)}: expected a grey or palette picture whose values are labels, "
                f"found mode {picture.mode}"
            )
        return np.asarray(picture)


def _opened(file: Path) -> Any:
    """A picture whose pixels have been decoded."""
    pillow = _pillow()
    data = file.read_bytes()
    try:
        picture = pillow.open(io.BytesIO(data), formats=["PNG"])
        picture.load()
    except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        raise FileFormatError(
            f"{os.fspath(file)}: the file is not a complete PNG picture ({len(data)} bytes)"
        ) from error
    return picture


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependencyError(
            "reading and writing PNG files needs the package Pillow, which is not installed; "
            "pip install fieldfit[images] brings it"
        ) from error
    return Image


# -- values -------------------------------------------------------------------------------


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _scaled(pixels: NDArray[Any]) -> FloatArray:
    """Bytes and 16-bit pixels as numbers in [0, 1], everything else as it is."""
    if pixels.dtype in (np.uint8, np.uint16):
        return pixels / float(np.iinfo(pixels.dtype).max)
    return pixels.astype(np.float64)


def _labels(place: str, given: NDArray[Any], missing: int) -> LabelArray:
    """Labels with ``-1`` for missing ones."""
    if given.dtype.kind not in "biu":
        raise FileFormatError(f"{place}: expected integer labels, found {given.dtype}")
    labels = given.astype(np.int64)
    labels[labels == missing] = -1
    if labels.min(initial=0) < -1 or labels.max(initial=0) > np.iinfo(np.int32).max:
        wrong = labels.min() if labels.min() < -1 else labels.max()
        raise FileFormatError(f"{place}: expected labels of at least -1 (missing), found {wrong}")
    return labels.astype(np.int32)
