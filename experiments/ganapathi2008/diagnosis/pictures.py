"""Superpixels and potentials of ``camel-diagnosis``: two ways to cut, two classifiers.

*SLIC* is what ``camel-segmentation`` has.  *Cuts* are nearer to the paper's normalised cuts: SLIC
into many small regions, which normalised cuts of their graph (spectral clustering) join again.  The
*wide* classifier sees all features of `region_features`, the *narrow* one only the colour and the
texture of the superpixel itself, as the paper's appearance features do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.ganapathi2008.segmentation.classifier import Boosting, Unaries, classified
from experiments.ganapathi2008.segmentation.data import FloatArray, LabelArray, Picture
from fieldfit.features.image import (
    region_feature_names,
    region_features,
    region_graph,
    region_labels,
    superpixels,
)

#: Small regions for each superpixel that normalised cuts make of them.
FINER = 5
#: Colours of two small regions at this distance are alike to ``1/e``.
COLOUR_SCALE = 0.1
#: Beginnings of the names of what the narrow classifier sees.
APPEARANCE = ("mean ", "spread ", "binary pattern ")


def cut_picture(image: FloatArray, truth: LabelArray, n_regions: int, cut: str) -> Picture:
    """A photograph as a graph of about ``n_regions`` superpixels."""
    segments = superpixels(image, n_regions)
    if cut == "cuts":
        segments = normalised_cuts(image, superpixels(image, FINER * n_regions), n_regions)
    return Picture(
        image=image,
        truth=truth,
        segments=segments,
        edges=region_graph(segments),
        features=region_features(image, segments).astype(np.float32),
        labels=region_labels(truth, segments),
    )


def normalised_cuts(image: FloatArray, small: NDArray[np.intp], n_regions: int) -> NDArray[np.intp]:
    """Join small regions by normalised cuts; parts that do not touch become regions of their own.

    Neighbours are as alike as ``exp(- |difference of mean colours| / scale)``.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from sklearn.cluster import spectral_clustering

    edges = region_graph(small)
    n_small = int(small.max()) + 1
    if n_small <= n_regions:
        return small
    sizes = np.bincount(small.ravel(), minlength=n_small)
    colours = np.stack(
        [np.bincount(small.ravel(), image[:, :, c].ravel(), n_small) / sizes for c in range(3)],
        axis=1,
    )
    apart = np.linalg.norm(colours[edges[:, 0]] - colours[edges[:, 1]], axis=1)
    alike = np.exp(-apart / COLOUR_SCALE) + 1e-6  # no region is cut off for good
    ends = edges[:, 0], edges[:, 1]
    affinity = coo_array((alike, ends), shape=(n_small, n_small)).tocsr()
    joined = spectral_clustering(
        (affinity + affinity.T).toarray(), n_clusters=n_regions, assign_labels="cluster_qr",
        eigen_solver="arpack", random_state=0,
    )  # fmt: skip
    inside = joined[edges[:, 0]] == joined[edges[:, 1]]
    kept = coo_array((np.ones(inside.sum()), edges[inside].T), shape=(n_small, n_small))
    parts = connected_components(kept, directed=False)[1]
    return np.asarray(parts[small], dtype=np.intp)


def potentials_of_half(
    training: Sequence[Picture],
    test: Sequence[Picture],
    classifier: str,
    boosting: Boosting,
    n_folds: int,
    seed: int,
) -> Unaries:
    """Log-probabilities of all superpixels, in sample and out of fold."""
    columns = columns_of(classifier)

    def seen(pictures: Sequence[Picture]) -> list[Picture]:
        return [replace(picture, features=picture.features[:, columns]) for picture in pictures]

    return classified(seen(training), seen(test), boosting, n_folds, seed)


def columns_of(classifier: str) -> Any:
    """Columns of the features that a classifier sees."""
    names = region_feature_names()
    if classifier == "wide":
        return np.arange(len(names))
    return np.flatnonzero([_is_appearance(name) for name in names])


def _is_appearance(name: str) -> bool:
    is_own = name.startswith(APPEARANCE) or " in bin " in name
    return is_own and not name.startswith("picture's")
