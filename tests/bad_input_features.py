"""Entry points outside the registry: features, scores and plots (see `bad_input.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from bad_input import Entry, entry_of

from fieldfit import metrics, plot
from fieldfit.features import image, text

IMAGE = np.random.default_rng(0).random((6, 6, 3))
SEGMENTS = np.repeat([[0, 1]], 6, axis=0).repeat(3, axis=1)
WORDS = ["Ann", "ran"]
#: Modules whose ``__all__`` is public, but not part of the registry.
MODULES = (image, text, metrics, plot)


def entries() -> Iterator[Entry]:
    """All of them."""
    yield from _pictures()
    yield from _folds()
    yield from _texts()
    yield from _scores()


def _pictures() -> Iterator[Entry]:
    both = {"image": IMAGE, "segments": SEGMENTS}
    yield entry_of("superpixels", image.superpixels, {"image": IMAGE, "n": 4})
    yield entry_of("stretched", image.stretched, {"image": IMAGE})
    yield entry_of("region_graph", image.region_graph, {"segments": SEGMENTS})
    yield entry_of("boundary_features", image.boundary_features, both)
    yield entry_of("region_features", image.region_features, both)
    labels = {"labels": SEGMENTS, "segments": SEGMENTS}
    yield entry_of("region_labels", image.region_labels, labels)
    yield entry_of("paint", image.paint, {"values": [5, 7], "segments": SEGMENTS})
    for made in (image.PatchCodebook, image.SceneFeatures):
        name = made.__name__
        # options are checked by fit, as scikit-learn's rules want it
        yield entry_of(name, made, {"n_clusters": 2}).called_by(_fit(made))
        yield entry_of(f"{name}.fit", made(2).fit, {"images": [IMAGE]}, "y")
        given = _fitted(made)
        yield entry_of(f"{name}.transform", given.transform, {"images": [IMAGE]})
    nearest = _fitted(image.PatchCodebook).nearest
    yield entry_of("PatchCodebook.nearest", nearest, {"image": IMAGE})


def _fit(made: Any) -> Any:
    return lambda **options: made(**options).fit([IMAGE])


@cache
def _fitted(made: Any) -> Any:
    return made(2).fit([IMAGE])


def _folds() -> Iterator[Entry]:
    from sklearn.linear_model import LogisticRegression

    given = {
        "classifier": LogisticRegression(),
        "features": np.arange(6.0)[:, None],
        "labels": [0, 1, 0, 1, 0, 1],
        "groups": [0, 0, 1, 1, 2, 2],
        "n_folds": 3,
    }
    yield entry_of("out_of_fold", image.out_of_fold, given)
    found = image.out_of_fold(**given)
    yield entry_of(
        "OutOfFold.predict_log_proba", found.predict_log_proba, {"features": [[1.0], [2.0]]}
    )


def _texts() -> Iterator[Entry]:
    yield entry_of("TextFeatures", text.TextFeatures)
    yield entry_of("word_shape", text.word_shape, {"word": "Ann"})
    yield entry_of("sentence_features", text.sentence_features, {"words": WORDS})
    yield entry_of("document_features", text.document_features, {"sentences": [WORDS]})
    yield entry_of("repeated_capitalised", text.repeated_capitalised, {"words": WORDS})
    yield entry_of("drop_rare", text.drop_rare, {"sequences": [[{"a": 1}, {"a": 1}]]})


def _scores() -> Iterator[Entry]:
    pair = {"true": [["B-A", "O"]], "predicted": [["B-A", None]]}
    yield entry_of("chunks", metrics.chunks, {"labels": ["B-A", "O"]})
    yield entry_of("chunk_scores", metrics.chunk_scores, pair)
    yield entry_of("chunk_f1", metrics.chunk_f1, pair)
    ax = _Axes()
    matrix = np.eye(2)
    yield entry_of("plot_network", plot.plot_network, {"couplings": matrix, "ax": ax}, "ax")
    scores = {"scores": matrix, "ax": ax, "min_distance": 1}
    yield entry_of("plot_contacts", plot.plot_contacts, scores, "ax")
    yield entry_of("spring_layout", plot.spring_layout, {"strengths": matrix})


class _Axes:
    """Axes that draw nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None
