"""Conditional random fields on arbitrary graphs: a label for every node.

    p(y | x) ∝ exp(sum_i w(y_i)·x_i + sum_{(i, j)} V(y_i, y_j; e_ij) + sum_{t, a} V_t(y_a; x_a))

The table ``V`` of edges is a constant and, where edges have features ``e_ij``, a linear function
of them; so are the tables ``V_t`` of other types of factors, which join any number of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import Place
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.template import Block, PairTying, Tying
from fieldfit.io.stored import Stored
from fieldfit.models.conditional import FactorGraphCRF
from fieldfit.models.field_shards import FieldCoder, stored_graphs
from fieldfit.models.graphs.factor_types import (
    FactorType,
    TypesSeen,
    check_factors,
    require_affordable,
    require_searches,
    require_type,
    restored_types,
    shard_types,
    stored_types,
    type_blocks,
    typed_graph,
)
from fieldfit.models.graphs.graph_examples import EDGES, read_graph_example
from fieldfit.models.parts import Example, ExampleSize, FactorFeatures
from fieldfit.models.single_examples import refuse_one_graph
from fieldfit.objectives.base import Objective
from fieldfit.shards.reading import Shards

__all__ = ["GraphCRF"]


class GraphCRF(FactorGraphCRF):
    """A conditional random field on graphs that differ from example to example.

    An example is ``(node_features (N, F), edges (E, 2))`` or
    ``(node_features, edges, edge_features (E, D))``; node features may be sparse (CSR).  With
    factors of more than two nodes it is ``(node_features, factors)``: a dictionary from the name
    of a type to ``scopes (S, n)``, the nodes of each factor, or to a pair
    ``(scopes, features (S, D))``.  The type ``"edges"`` has pairs; any others have the names,
    arities ``n`` and numbers of features that the training examples give them, and weights of
    their own.

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
    factors
        Tables of the other types, by name: ``{"triples": "potts"}``.  ``"full"`` (a scope is
        ordered), ``"symmetric"`` (only how often each label occurs counts), ``"robust-potts"``
        (only how many labels agree), ``"potts-labels"`` (all have label ``k``), ``"potts"`` (all
        agree), or ``"auto"``, also for types that are not named: symmetric up to 1000 weights, then
        robust Potts, and Potts for features.  A `fieldfit.models.FactorType` declares a type that
        the examples may lack.
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

    Factors of three nodes, beside the edges:

    >>> X = [(X[0][0], {"edges": edges, "triples": [(0, 1, 2)]})]
    >>> crf = GraphCRF("likelihood", l2=0.1, factors={"triples": "potts"}).fit(X, [[1, 1, 1, 0]])
    >>> {name: weights.shape for name, weights in crf.weight_blocks_.items()}
    {'unary': (1, 2), 'intercept': (2,), 'edges': (3,), 'triples': (1,)}
    """

    _has_own_graphs = True

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
        pairwise: PairTying | Literal["auto"] = "auto",
        factors: Mapping[str, str | FactorType] | None = None,
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
        self.factors = factors
        self.decode = decode
        self.n_labels = n_labels
        self.ignore_label = ignore_label
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def _plain_tables(self) -> PairTying:
        return "symmetric"

    def _refuse_single(self, X: Any, Y: Any = None) -> None:
        refuse_one_graph(X)

    def _check_options(self) -> None:
        super()._check_options()
        check_factors(self.factors)

    def _measure(self, index: int, x: Any) -> ExampleSize:
        example = read_graph_example(index, x)
        counts: dict[int, int] = {}
        for scopes, _ in example.factors.values():
            counts[scopes.shape[1]] = counts.get(scopes.shape[1], 0) + len(scopes)
        return ExampleSize((example.n_nodes,), counts)

    def _example(self, index: int, x: Any) -> Example:
        example = read_graph_example(index, x)
        for name, factors in example.factors.items():
            require_type(self.factor_types_, name, factors, Place("X", index))
        given = {name: example.factors.get(name) for name in self.factor_types_}
        scopes = [
            np.zeros((0, kind.arity), dtype=np.int64)
            if (own := given[name]) is None or not len(own.scopes)
            else own.scopes
            for name, kind in self.factor_types_.items()
        ]
        features = {
            name: np.zeros((0, kind.n_features))
            if (own := given[name]) is None or own.features is None
            else own.features
            for name, kind in self.factor_types_.items()
            if kind.n_features
        }
        graph = typed_graph(example.n_nodes, self.n_labels_, scopes)
        return Example(graph, example.nodes, features)

    # -- types of factors -----------------------------------------------------------------------

    @property
    def n_edge_features_(self) -> int:
        """How many features an edge has."""
        return self.factor_types_[EDGES].n_features if EDGES in self.factor_types_ else 0

    def _learn_structure(self, X: Any) -> None:
        self.factor_types_ = self._types_of(X, self.n_labels_)

    def _types_of(self, X: Any, n_labels: int) -> dict[str, FactorType]:
        """Types of the factors of all examples."""
        seen = TypesSeen(self.factors)
        for index, x in enumerate(X):
            seen.see(read_graph_example(index, x).factors)
        seen.require_names()
        types = seen.types()
        for name, kind in types.items():
            require_affordable(kind, name, n_labels)
        require_searches(self._objective(), types)
        return types

    def _fixed_options(self, X: Any, Y: Any) -> dict[str, Any]:
        fixed = super()._fixed_options(X, Y)
        return {**fixed, "factors": self._types_of(X, fixed["n_labels"])}

    def _forms(self, name: str) -> tuple[Tying, Tying]:
        """How tables of a type are tied, and those of its features."""
        if name == EDGES:
            return self._tyings()
        return self.factor_types_[name].forms(self.n_labels_)

    def _factor_blocks(self, graph: FactorGraph, features: FactorFeatures) -> list[Block]:
        blocks = []
        for number, (name, kind) in enumerate(self.factor_types_.items()):
            factors = np.flatnonzero(graph.factor_types == number)
            shape = (self.n_labels_,) * kind.arity
            blocks += type_blocks(
                graph, name, factors, self._forms(name), shape, features.get(name)
            )
        return blocks

    def _smallest(self) -> tuple[FactorGraph, FactorFeatures]:
        types = self.factor_types_
        n_nodes = max([2, *(kind.arity for kind in types.values())])
        scopes = [np.arange(kind.arity)[None] for kind in types.values()]
        features = {
            name: np.zeros((1, kind.n_features)) for name, kind in types.items() if kind.n_features
        }
        return typed_graph(n_nodes, self.n_labels_, scopes), features

    def _drawn_pairs(self, index: int, x: Any) -> NDArray[np.int64]:
        """Pairs of nodes that an example's factors join."""
        return read_graph_example(index, x).pairs()

    # -- shards ---------------------------------------------------------------------------------

    def _stored_example(self, index: int, x: Any, coder: FieldCoder) -> dict[str, Any]:
        example = read_graph_example(index, x)
        coder.require_features(index, example.nodes)
        coder.require_factors(index, example.factors)
        return {"features": example.nodes, "factors": example.factors}

    def _stored_examples(self, stored: Stored) -> list[Any]:
        return stored_graphs(stored, self.n_features_in_)

    def _type_coder(self) -> TypesSeen:
        return TypesSeen(self.factors)

    def _open_shards(self, shards: Shards) -> None:
        model = shards.model()
        self.n_labels_ = model.integer("n_labels", 2)
        self.factor_types_ = shard_types(model, self.factors, self.n_labels_)
        require_searches(self._objective(), self.factor_types_)
        super()._open_shards(shards)

    # -- files ----------------------------------------------------------------------------------

    def _model_metadata(self) -> dict[str, Any]:
        about = {**super()._model_metadata(), "n_edge_features": self.n_edge_features_}
        if list(self.factor_types_) != [EDGES]:
            about["factor_types"] = stored_types(self.factor_types_)
        return about

    def _restore_model(self, stored: Stored) -> None:
        super()._restore_model(stored)
        self.factor_types_ = restored_types(stored, self.n_labels_, len(self.weights_))
