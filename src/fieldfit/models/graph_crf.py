"""Conditional random fields on arbitrary graphs: a label for every node.

    p(y | x) ∝ exp(sum_i w(y_i)·x_i + sum_{(i, j)} V(y_i, y_j; e_ij))

The table ``V`` is a constant and, where edges have features ``e_ij``, a linear function of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError, Place
from fieldfit.graph.factor_graph import FactorGraph, checked_pairs
from fieldfit.graph.template import Block, Tying
from fieldfit.io.stored import Stored
from fieldfit.models.conditional import FactorGraphCRF
from fieldfit.models.field_shards import FieldCoder, stored_graphs
from fieldfit.models.grid_crf import edge_blocks
from fieldfit.models.parts import Example
from fieldfit.objectives.base import Objective
from fieldfit.shards.reading import Shards

__all__ = ["GraphCRF"]


class GraphCRF(FactorGraphCRF):
    """A conditional random field on graphs that differ from example to example.

    An example is ``(node_features (N, F), edges (E, 2))`` or
    ``(node_features, edges, edge_features (E, D))``; node features may be sparse (CSR).

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
    pairwise
        Tables of neighbouring nodes: ``"symmetric"`` (edges have no direction), ``"full"`` (an edge
        points from its first node to its second), ``"potts"``, ``"potts-labels"`` or ``"auto"``: a
        symmetric table, and Potts for edge features, which then say how alike neighbours are.
    decode
        ``"marginals"`` (label of largest belief), ``"map"`` (jointly best), ``None``: as the
        objective was made for.
    n_labels
        Number of labels.  ``None``: as many as the training labels show, which must then be 0..K-1
        without gaps.
    ignore_label
        A label that says "not labelled", besides ``-1``: nodes that have it (255, say) are missing
        in ``fit``, ``score`` and wherever labels are given.
    batch_size
        Examples that are evaluated together, and for a stochastic learner the mini-batch.
        ``None``: as memory suggests, or 20 mini-batches.
    random_state, n_jobs, verbose
        Seed, threads (the result does not depend on their number), progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> edges = [(0, 1), (1, 2), (2, 0), (2, 3)]
    >>> X = [(np.array([[1.0], [0.2], [0.9], [-1.0]]), edges)]
    >>> crf = GraphCRF(objective="likelihood", l2=0.1).fit(X, [[1, 1, 1, 0]])
    >>> crf.predict(X)[0]
    array([1, 1, 1, 0], dtype=int32)
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
        pairwise: Tying | Literal["auto"] = "auto",
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
        self.pairwise = pairwise
        self.decode = decode
        self.n_labels = n_labels
        self.ignore_label = ignore_label
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def _plain_tables(self) -> Tying:
        return "symmetric"

    def _measure(self, index: int, x: Any) -> tuple[tuple[int, ...], int]:
        nodes, edges, _ = _unpacked(index, x)
        return (int(nodes.shape[0]),), len(edges)

    def _example(self, index: int, x: Any) -> Example:
        nodes, edges, given = _unpacked(index, x)
        edge_features = None
        if self.n_edge_features_:
            edge_features = given if len(edges) else np.zeros((0, self.n_edge_features_))
        n_given = 0 if given is None else given.shape[1]
        if len(edges) and n_given != self.n_edge_features_:
            raise InvalidInputError(
                f"edges must have {self.n_edge_features_} features as in the first "
                f"example of the fit, got {n_given}",
                Place("X", index),
            )
        graph = FactorGraph.from_edges(int(nodes.shape[0]), edges, self.n_labels_)
        return Example(graph, nodes, edge_features)

    def _stored_example(self, index: int, x: Any, coder: FieldCoder) -> dict[str, Any]:
        nodes, edges, given = _unpacked(index, x)
        coder.require_features(index, nodes)
        if len(edges):  # an example without edges says nothing about their features
            coder.require_edge_features(index, 0 if given is None else int(given.shape[1]))
        has_features = len(edges) > 0 and given is not None
        return {"features": nodes, "edges": edges, "edge_features": given if has_features else None}

    def _stored_examples(self, stored: Stored) -> list[Any]:
        return stored_graphs(stored, self.n_features_in_, self.n_edge_features_)

    def _open_shards(self, shards: Shards) -> None:
        self.n_edge_features_ = shards.model().integer("n_edge_features", 0)
        super()._open_shards(shards)

    def _reader(self, X: Any) -> Callable[[int], Example]:
        if not hasattr(self, "n_edge_features_"):
            self.n_edge_features_ = 0
            for index, x in enumerate(X):
                _, edges, features = _unpacked(index, x)
                if len(edges):  # an example without edges says nothing about their features
                    self.n_edge_features_ = 0 if features is None else int(features.shape[1])
                    break
        return super()._reader(X)

    def _edge_blocks(self, graph: FactorGraph, edge_features: FloatArray | None) -> list[Block]:
        factors = np.arange(graph.n_factors)
        return edge_blocks(graph, "edges", factors, self._tyings(), self.n_labels_, edge_features)

    def _model_metadata(self) -> dict[str, Any]:
        return {**super()._model_metadata(), "n_edge_features": self.n_edge_features_}

    def _restore_model(self, stored: Stored) -> None:
        super()._restore_model(stored)
        self.n_edge_features_ = stored.integer("n_edge_features", 0, len(self.weights_))

    def _smallest(self) -> tuple[FactorGraph, FloatArray | None]:
        features = np.zeros((1, self.n_edge_features_)) if self.n_edge_features_ else None
        return FactorGraph.chain(2, self.n_labels_), features


def _unpacked(index: int, x: Any) -> tuple[Any, NDArray[np.int64], FloatArray | None]:
    """Node features, edges and edge features of one example, checked."""
    if not (isinstance(x, (tuple, list)) and len(x) in (2, 3)):
        raise InvalidInputError(
            f"must be (node_features, edges) or (node_features, edges, "
            f"edge_features), got {type(x).__name__}",
            Place("X", index),
        )
    is_sparse = hasattr(x[0], "tocsr")
    nodes = x[0].tocsr() if is_sparse else real_numbers("node features", x[0], Place("X", index))
    if nodes.ndim != 2 or nodes.shape[0] == 0:
        raise InvalidInputError(
            f"node features must have shape (N, F) with at least one node, got {nodes.shape}",
            Place("X", index),
        )
    edges = checked_pairs(x[1], int(nodes.shape[0]), Place("X", index), "nodes").astype(np.int64)
    if len(x) == 2 or x[2] is None:
        return nodes, edges, None
    features = real_numbers("edge features", x[2], Place("X", index))
    if features.ndim != 2 or features.shape[0] != len(edges):
        raise InvalidInputError(
            f"edge features must have shape ({len(edges)}, D), got {features.shape}",
            Place("X", index),
        )
    if not np.isfinite(features).all():
        raise InvalidInputError(
            "edge features must be finite, got NaN or infinity", Place("X", index)
        )
    return nodes, edges, features
