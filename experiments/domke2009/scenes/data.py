"""The street scenes of ``domke-scenes``: CamVid with the five labels of the thesis."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import FileFormatError

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]

#: Where the pictures are in the folder of data sets.
FILE = Path("camvid", "camvid_60x80.npz")
#: The labels of the thesis, and which of CamVid's they are; pixels of all others are unlabelled.
LABELS: dict[str, tuple[int, ...]] = {
    "building": (1,),
    "sky": (0,),
    "car": (8,),
    "road or pavement": (3, 4),
    "tree": (5,),
}
N_CODES = 256


@dataclass(frozen=True)
class Scenes:
    """Pictures ``(height, width, 3)`` as bytes and labels, -1 where there is none."""

    train_images: list[NDArray[np.uint8]]
    train_labels: list[LabelArray]
    test_images: list[NDArray[np.uint8]]
    test_labels: list[LabelArray]


def five_labels(codes: NDArray[Any]) -> LabelArray:
    """Labels of the thesis from CamVid's codes."""
    known = np.full(N_CODES, -1, dtype=np.int32)
    for label, own in enumerate(LABELS.values()):
        known[list(own)] = label
    return np.asarray(known[codes])


def draw_scenes(
    path: Path, n_train: int, n_test: int, stride: int, rng: np.random.Generator
) -> Scenes:
    """Random training and test pictures, from the sets that the data come in.

    Frames of one video are alike, so the two sets are never mixed.  Of every ``stride`` x
    ``stride`` pixels one is kept.
    """
    names = ("x_train", "y_train", "x_test", "y_test")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = [archive[name] for name in names]
    except (OSError, ValueError, KeyError) as error:
        raise FileFormatError(f"{path}: expected an archive with {names}, {error}") from None
    found: list[Any] = []
    for images, codes, count in ((*arrays[:2], n_train), (*arrays[2:], n_test)):
        chosen = np.sort(rng.choice(len(images), min(count, len(images)), replace=False))
        found.append(list(images[chosen, ::stride, ::stride]))
        found.append(list(five_labels(codes[chosen, ::stride, ::stride])))
    return Scenes(*found)
