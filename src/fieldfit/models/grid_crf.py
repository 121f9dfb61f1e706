"""Conditional random fields on images: a label for every pixel.

    p(y | x) ∝ exp(sum_s w(y_s)·x_s + sum_{s ~ t} V_d(y_s, y_t))

with one table ``V_d`` for each direction ``d`` of the grid (or one for all), that may depend on how
much the features of the two pixels differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fieldfit._arrays import plain_array, real_numbers
from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import require_one_of, shown
from fieldfit.errors import InvalidInputError, Place
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.template import Block, PairTying, Template
from fieldfit.io.stored import Stored
from fieldfit.learners.problem import Part
from fieldfit.models.base import require_features, require_list
from fieldfit.models.conditional import Examples, FactorGraphCRF
from fieldfit.models.field_shards import FieldCoder, stored_grids
from fieldfit.models.graphs.factor_types import type_blocks
from fieldfit.models.large_pictures import (
    OVERLAP,
    LargePicture,
    Take,
    Windows,
    require_windowed,
    window_side,
    windowed_beliefs,
)
from fieldfit.models.parts import (
    Example,
    ExampleSize,
    FactorFeatures,
    beliefs_of,
    best_labels,
    grid_graph,
    make_parts,
)
from fieldfit.models.single_examples import refuse_one_picture
from fieldfit.objectives.base import Objective

__all__ = ["GridCRF"]

#: Bytes of the tables of a picture above which it is predicted window by window.
WINDOWED_BYTES = 5e8
#: Rows of such a picture that are checked together.
ROWS_AT_ONCE = 256

#: Factor types of `FactorGraph.grid`.
DIRECTIONS = ("horizontal", "vertical", "diagonal", "antidiagonal")


class GridCRF(FactorGraphCRF):
    """A conditional random field on a 4- or 8-connected grid.

    Parameters
    ----------
    objective
        A name (``"trw"``, ``"likelihood"``, ``"pseudolikelihood"``, ...) or an object such as
        ``Likelihood(SumProduct(TreeReweighted()))``.
    l2, l1
        Penalties ``l2/2 |w|^2 + l1 |w|_1`` on all weights, beside the sum over examples.  ``l2``
        may be a dictionary of numbers by the names of the blocks, or ``"auto"``: chosen on a
        quarter of the examples, which is held out, from independent variables to ever weaker
        penalties on couplings.  ``status_`` says what was chosen, ``path_`` has the fits.
    learner
        ``None`` chooses: L-BFGS where the objective is smooth.
    max_iter, tol
        Limits of the learner.
    fit_intercept
        Give every label a constant besides the features.
    unary
        ``"full"``: each label has a weight for each feature.  ``"scale"``: features are scores of
        the labels, such as log-probabilities of a classifier, and share one weight.  ``"auto"``:
        ``"scale"`` if the features of every training example are log-probabilities of its labels.
    neighbors
        4, or 8 with the diagonals.
    pairwise
        Tables of neighbouring pixels: ``"full"``, ``"symmetric"``, ``"potts"`` (one weight for
        equal labels), ``"potts-labels"`` (one for each label) or ``"auto"``: a full table
        (symmetric, where directions are shared), and Potts for ``edge_features``.
    directions
        ``"separate"`` tables for each direction, or ``"shared"`` (not for full tables, whose two
        axes differ in meaning from one direction to the next).
    edge_features
        Let tables depend on ``|x_s - x_t|``, feature by feature: ``True``, or the numbers of the
        features that count.
    decode
        ``"marginals"`` (label of largest belief), ``"map"`` (jointly best), ``None``: as the
        objective was made for.
    n_labels
        Number of labels.  ``None``: as many as the training labels show, which must then be 0..K-1
        without gaps.
    ignore_label
        A label that says "not labelled", besides ``-1``: pixels that have it (255, say) are missing
        in ``fit``, ``score`` and wherever labels are given.
    batch_size
        Examples that are evaluated together, and for a stochastic learner the mini-batch.
        ``None``: as memory suggests, or 20 mini-batches.
    random_state, n_jobs, verbose
        Seed, threads (the result does not depend on their number), progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Y = np.repeat(rng.integers(0, 2, size=(6, 8, 1)), 8, axis=2)   # stripes
    >>> X = Y + rng.normal(size=Y.shape)
    >>> crf = GridCRF(objective="trw", l2=0.1).fit(X[:4], Y[:4])
    >>> bool(crf.score(X[4:], Y[4:]) > np.mean((X[4:] > 0.5) == Y[4:]))
    True
    """

    def __init__(
        self,
        objective: str | Objective = "trw",
        *,
        l2: float | Mapping[str, float] | Literal["auto"] = "auto",
        l1: float = 0.0,
        learner: Any = None,
        max_iter: int = 200,
        tol: float = 1e-5,
        fit_intercept: bool = True,
        unary: str = "auto",
        neighbors: int = 4,
        pairwise: PairTying | Literal["auto"] = "auto",
        directions: str = "separate",
        edge_features: bool | Sequence[int] = False,
        decode: str | None = None,
        n_labels: int | None = None,
        ignore_label: int | None = None,
        batch_size: int | None = None,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.l2 = l2
        self.l1 = l1
        self.learner = learner
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.unary = unary
        self.neighbors = neighbors
        self.pairwise = pairwise
        self.directions = directions
        self.edge_features = edge_features
        self.decode = decode
        self.n_labels = n_labels
        self.ignore_label = ignore_label
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def _plain_tables(self) -> PairTying:
        return "symmetric" if self.directions == "shared" else "full"

    def _check_options(self) -> None:
        super()._check_options()
        require_one_of("neighbors", self.neighbors, (4, 8))
        require_one_of("directions", self.directions, ("separate", "shared"))
        chosen = plain_array("edge_features", self.edge_features)
        if not (isinstance(self.edge_features, bool) or _are_numbers(chosen)):
            raise InvalidInputError(
                "edge_features must be True, False or numbers of features, "
                f"got {shown(self.edge_features)}"
            )
        if self.directions == "shared" and self.pairwise == "full":
            raise InvalidInputError(
                "directions='shared' needs pairwise='symmetric', 'potts' or 'potts-labels', "
                "got 'full'"
            )

    def _refuse_single(self, X: Any, Y: Any = None) -> None:
        refuse_one_picture(X, Y, getattr(self, "n_features_in_", None) if Y is None else None)

    def _measure(self, index: int, x: Any) -> ExampleSize:
        height, width = _shape(index, x)[:2]
        n_edges = height * (width - 1) + (height - 1) * width
        if self.neighbors == 8:
            n_edges += 2 * (height - 1) * (width - 1)
        return ExampleSize((height, width), {2: n_edges})

    def _example(self, index: int, x: Any) -> Example:
        height, width, n_features = _shape(index, x)
        features = real_numbers("", x, Place("X", index)).reshape(-1, n_features)
        _require_finite(index, features, width)
        graph = grid_graph(height, width, self.n_labels_, self.neighbors)
        return Example(graph, features, self._differences(index, graph, features))

    def _differences(
        self, index: int, graph: FactorGraph, features: FloatArray
    ) -> dict[str, FloatArray]:
        """``|x_s - x_t|`` of every pair, if they were asked for."""
        if self.edge_features is False:
            return {}
        chosen = np.arange(features.shape[1])
        if self.edge_features is not True:
            chosen = np.asarray(self.edge_features)
            if len(chosen) == 0 or chosen.min() < 0 or chosen.max() >= features.shape[1]:
                raise InvalidInputError(
                    f"edge_features must name features 0..{features.shape[1] - 1} of X[{index}], "
                    f"got {self.edge_features!r}"
                )
        columns = features[:, chosen]
        pairs = graph.slot_variables.reshape(-1, 2)
        differences = columns[pairs[:, 0]]
        differences -= columns[pairs[:, 1]]
        return {"edges": np.abs(differences, out=differences)}

    def _stored_example(self, index: int, x: Any, coder: FieldCoder) -> dict[str, Any]:
        height, width, n_features = _shape(index, x)
        features = real_numbers("", x, Place("X", index)).reshape(-1, n_features)
        _require_finite(index, features, width)
        coder.require_features(index, features)
        given = plain_array("", x, Place("X", index)).reshape(-1, n_features)
        is_same = given.dtype.kind in "iufb" and given.dtype.itemsize < 8
        return {"features": given if is_same else features, "shape": (height, width)}

    def _stored_examples(self, stored: Stored) -> list[Any]:
        return stored_grids(stored, self.n_features_in_)

    def _factor_blocks(self, graph: FactorGraph, features: FactorFeatures) -> list[Block]:
        if self.directions == "shared":
            types = [("edges", np.arange(graph.n_factors))]
        else:
            types = [
                (name, np.flatnonzero(graph.factor_types == direction))
                for direction, name in enumerate(DIRECTIONS[: self.neighbors // 2])
            ]
        differences = features.get("edges")
        shape = (self.n_labels_, self.n_labels_)
        return [
            block
            for name, factors in types
            for block in type_blocks(
                graph,
                name,
                factors,
                self._tyings(),
                shape,
                None if differences is None else differences[factors],
            )
        ]

    def _smallest(self) -> tuple[FactorGraph, FactorFeatures]:
        graph = grid_graph(2, 2, self.n_labels_, self.neighbors)
        return graph, self._differences(0, graph, np.zeros((4, self.n_features_in_)))

    def _shown(self, x: Any, values: NDArray[Any]) -> NDArray[Any]:
        return values.reshape(*np.shape(x)[:2], *values.shape[1:])

    # -- pictures that are predicted window by window -------------------------------------------

    def _encode(self, X: Examples, keep: bool = False) -> Iterable[Any]:
        """Parts, and large pictures as they are."""
        require_list("X", X)
        is_large = [8.0 * entries > WINDOWED_BYTES for entries in self._entries(X)]
        if not any(is_large) or self._is_independent():
            return super()._encode(X, keep)
        pictures = self._pictures(X, is_large)
        return list(pictures) if keep else pictures

    def _pictures(self, X: Examples, is_large: list[bool]) -> Iterator[Part | LargePicture]:
        read = self._reader(X)
        for index, large in enumerate(is_large):
            if large:
                yield LargePicture(index, plain_array("", X[index], Place("X", index)))
            else:
                yield from make_parts([np.array([index])], read, self._blocks)

    def _best_labels(
        self, objective: Objective, encoded: Iterable[Any], weights: FloatArray
    ) -> tuple[list[LabelArray], int]:
        decoding = self._decoding(objective)
        found, n_failed = list[LabelArray](), 0
        for pictures in _runs(encoded):
            if isinstance(pictures, LargePicture):
                labels, failed = self._large_labels(objective, decoding, pictures, weights)
            else:
                labels, failed = best_labels(objective, decoding, pictures, weights, self.n_jobs)
            found += labels
            n_failed += failed
        return found, n_failed

    def _beliefs(
        self, objective: Objective, encoded: Iterable[Any], weights: FloatArray
    ) -> tuple[list[FloatArray], int]:
        found, n_failed = list[FloatArray](), 0
        for pictures in _runs(encoded):
            if isinstance(pictures, LargePicture):
                height, width = pictures.x.shape[:2]
                values = np.empty((height, width, self.n_labels_))

                def take(rows: slice, columns: slice, core: FloatArray, into: Any = values) -> None:
                    into[rows, columns] = core

                beliefs = [values.reshape(-1, self.n_labels_)]
                failed = self._by_windows(objective, pictures, weights, take)
            else:
                beliefs, failed = beliefs_of(objective, pictures, weights, self.n_jobs)
            found += beliefs
            n_failed += failed
        return found, n_failed

    def _large_labels(
        self, objective: Objective, decoding: str, picture: LargePicture, weights: FloatArray
    ) -> tuple[list[LabelArray], int]:
        """Labels of largest belief; beliefs exist for one window at a time."""
        if decoding == "map":
            raise InvalidInputError(
                "decode must be 'marginals' for pictures of this size, which are cut into "
                "windows, got 'map'",
                Place("X", picture.index),
            )
        labels = np.empty(picture.x.shape[:2], dtype=np.int32)

        def take(rows: slice, columns: slice, core: FloatArray) -> None:
            labels[rows, columns] = core.argmax(axis=2)

        n_failed = self._by_windows(objective, picture, weights, take)
        return [labels.reshape(-1)], n_failed

    def _by_windows(
        self, objective: Objective, picture: LargePicture, weights: FloatArray, take: Take
    ) -> int:
        """Beliefs of one picture, core by core; 1 if they did not converge."""
        index, x = picture.index, picture.x
        height, width, n_features = _shape(index, x)
        for row in range(0, height, ROWS_AT_ONCE):
            rows = real_numbers("", x[row : row + ROWS_AT_ONCE], Place("X", index))
            _require_finite(index, rows.reshape(-1, n_features), width, row)
        side = window_side(self.n_labels_, self.neighbors, n_features)
        windows = Windows((height, width), self.n_labels_, self.neighbors, side, OVERLAP)
        inference = require_windowed(objective.prediction(windows.graph()))

        def make_potentials(row: int, column: int, graph: FactorGraph) -> Potentials:
            window = x[row : row + windows.size[0], column : column + windows.size[1]]
            example = self._example(index, window)
            require_features(Place("X", index), example.features, self.n_features_in_)
            blocks = self._blocks(graph, example.features, example.factor_features)
            return Template(graph, blocks).potentials(weights)

        inference = replace(inference, n_jobs=self.n_jobs)
        converged, _ = windowed_beliefs(windows, inference, make_potentials, take, self.verbose)
        return int(not converged)


def _runs(encoded: Iterable[Any]) -> Iterator[Any]:
    """Large pictures one by one, and what is between them as iterators over parts."""
    for is_large, items in groupby(encoded, key=lambda item: isinstance(item, LargePicture)):
        if is_large:
            yield from items
        else:
            yield items


def _require_finite(index: int, features: FloatArray, width: int, first_row: int = 0) -> None:
    """Refuse features that are no numbers; ``first_row`` is that of the picture."""
    if not np.isfinite(features).all():
        pixel, feature = np.argwhere(~np.isfinite(features))[0]
        raise InvalidInputError(
            f"features must be finite, got {features[pixel, feature]} at row "
            f"{first_row + pixel // width}, column {pixel % width}",
            Place("X", index),
        )


def _are_numbers(chosen: NDArray[Any]) -> bool:
    return chosen.ndim == 1 and (chosen.dtype.kind in "iu" or chosen.size == 0)


def _shape(index: int, x: Any) -> tuple[int, int, int]:
    """Height, width and number of features of one example."""
    shape = plain_array("", x, Place("X", index)).shape
    if len(shape) not in (2, 3) or 0 in shape:
        raise InvalidInputError(
            f"must have shape (height, width) or (height, width, features), none of "
            f"them 0, got {shape}",
            Place("X", index),
        )
    return shape[0], shape[1], shape[2] if len(shape) == 3 else 1
