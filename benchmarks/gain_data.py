"""Real tasks with the log-probabilities of a classifier as features, for `benchmarks.gain`.

A task is what a practitioner brings: a classifier that looks at one pixel, region, cell or letter
at a time (gradient boosting or logistic regression with scikit-learn's defaults), its
log-probabilities for the training data out of fold, and the structure that it does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.grid_data import data_folder, digits, scene_features, snakes, street_scenes
from fieldfit.features.image import (
    boundary_features,
    out_of_fold,
    region_features,
    region_graph,
    region_labels,
    superpixels,
)

Array = NDArray[Any]


@dataclass(frozen=True)
class Task:
    """Examples of one data set; ``model`` is the estimator that they are for."""

    name: str
    model: str
    train: tuple[list[Any], list[Array]]
    test: tuple[list[Any], list[Array]]


@dataclass(frozen=True)
class _Raw:
    """Descriptions ``(..., F)`` of the variables of each example, and their labels."""

    features: Sequence[Array]
    labels: Sequence[Array]
    structure: Sequence[tuple[Array, ...]] | None = None


def make_task(name: str, seed: int) -> Task:
    """One of `TASKS`, with another choice of examples for each seed."""
    model, read, classifier = TASKS[name]
    train, test = read(np.random.default_rng([seed, len(name)]))
    log_train, log_test = _classified(train, test, classifier(seed), seed)
    return Task(name, model, _examples(train, log_train), _examples(test, log_test))


def _classified(train: _Raw, test: _Raw, classifier: Any, seed: int) -> tuple[Any, Any]:
    """Log-probabilities of every variable, shaped as its example."""
    n_features = train.features[0].shape[-1]
    rows = [np.reshape(x, (-1, n_features)) for x in train.features]
    labels = np.concatenate([np.ravel(y) for y in train.labels])
    groups = np.repeat(np.arange(len(rows)), [len(x) for x in rows])
    n_labels = 1 + max(int(np.max(y)) for y in (*train.labels, *test.labels))
    found = out_of_fold(
        classifier, np.concatenate(rows), labels, groups, n_labels=n_labels, random_state=seed
    )
    ends = np.cumsum([len(x) for x in rows])[:-1]
    own = [
        part.reshape(*np.shape(y), n_labels)
        for part, y in zip(np.split(found.log_probabilities, ends), train.labels, strict=True)
    ]
    new = [
        found.predict_log_proba(np.reshape(x, (-1, n_features))).reshape(*np.shape(y), n_labels)
        for x, y in zip(test.features, test.labels, strict=True)
    ]
    return own, new


def _examples(raw: _Raw, log_probabilities: Any) -> tuple[list[Any], list[Array]]:
    labels = [np.asarray(y) for y in raw.labels]
    if raw.structure is None:
        return list(log_probabilities), labels
    return [
        (nodes, *edges) for nodes, edges in zip(log_probabilities, raw.structure, strict=True)
    ], labels


# -- the data sets ------------------------------------------------------------------------


def _camvid(rng: np.random.Generator) -> tuple[_Raw, _Raw]:
    """Street scenes of 60 x 80 pixels, 11 labels: 30 pictures to learn from, 60 to test."""
    (x, y), (x_test, y_test) = street_scenes()
    own, new = rng.choice(len(x), 30, replace=False), rng.choice(len(x_test), 60, replace=False)
    return _Raw(x[own], y[own]), _Raw(x_test[new], y_test[new])


def _horses(rng: np.random.Generator) -> tuple[_Raw, _Raw]:
    """Horses of 64 x 64 pixels, figure and ground: 100 and 100."""
    data = np.load(data_folder() / "weizmann_horses" / "horses_64x64.npz")
    chosen = rng.permutation(len(data["images"]))
    sets = []
    for part in (chosen[:100], chosen[100:200]):
        sets.append(
            _Raw(scene_features(data["images"][part]), data["masks"][part].astype(np.int32))
        )
    return sets[0], sets[1]


def _corel(rng: np.random.Generator) -> tuple[_Raw, _Raw]:
    """Superpixels of Corel's photographs, 7 labels: 50 and 50."""
    data = np.load(data_folder() / "corel" / "corel.npz")
    chosen = rng.permutation(len(data["images"]))
    sets = []
    for part in (chosen[:50], chosen[50:]):
        features, labels, structure = [], [], []
        for index in part:
            image = data["images"][index]
            segments = superpixels(image)
            features.append(region_features(image, segments))
            labels.append(region_labels(data["labels"][index].astype(np.int32), segments))
            structure.append((region_graph(segments), boundary_features(image, segments)))
        sets.append(_Raw(features, labels, structure))
    return sets[0], sets[1]


def _digits(rng: np.random.Generator) -> tuple[_Raw, _Raw]:
    """Noisy digits of 28 x 28 pixels, windows of 5 x 5 seen by the classifier: 90 and 90."""
    sets = []
    for noisy, labels in digits():
        padded = np.pad(noisy, ((0, 0), (2, 2), (2, 2)), constant_values=-1.0)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(1, 2))
        sets.append(_Raw(windows.reshape(*noisy.shape, 25), labels))
    return sets[0], sets[1]


def _snakes(rng: np.random.Generator) -> tuple[_Raw, _Raw]:
    """Snakes, 11 labels, edges with their direction: 200 and 100."""
    sets = []
    for part in ("train", "test"):
        X, Y = snakes(part, "directions")
        sets.append(_Raw([x[0] for x in X], Y, [x[1:] for x in X]))
    return sets[0], sets[1]


def _letters(rng: np.random.Generator) -> tuple[_Raw, _Raw]:
    """Letters of handwritten words, 26 labels: one fold to learn from, one to test."""
    data = np.load(data_folder() / "ocr_letters" / "letters.npz")
    folds = rng.permutation(10)[:2]
    sets = []
    for fold in folds:
        words = np.flatnonzero(data["fold"] == fold)
        spans = [slice(*data["offsets"][word : word + 2]) for word in words]
        sets.append(
            _Raw(
                [data["pixels"][span].reshape(-1, 128).astype(float) for span in spans],
                [data["labels"][span].astype(np.int32) for span in spans],
            )
        )
    return sets[0], sets[1]


def _boosting(seed: int) -> Any:
    return HistGradientBoostingClassifier(random_state=seed)


def _logistic(seed: int) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


#: Name -> estimator, reader, classifier.
TASKS: dict[str, tuple[str, Callable[[Any], tuple[_Raw, _Raw]], Callable[[int], Any]]] = {
    "camvid": ("GridCRF", _camvid, _boosting),
    "corel": ("GraphCRF", _corel, _boosting),
    "horses": ("GridCRF", _horses, _boosting),
    "digits": ("GridCRF", _digits, _logistic),
    "snakes": ("GraphCRF", _snakes, _logistic),
    "letters": ("ChainCRF", _letters, _logistic),
}
