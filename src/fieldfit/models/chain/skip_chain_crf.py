"""Skip-chain conditional random fields: a chain, and further edges between distant tokens.

    p(y | x) ∝ exp(sum_t w(y_t)·x_t + sum_t V(y_t, y_{t+1}) + sum_{(s, t) linked} U(y_s, y_t))

With ``edge_features`` the tables ``V`` and ``U`` are functions of ``x``, too (`skip_edges`).
Linked tokens are, say, occurrences of one name in a document: what is clear in one place helps in
the other.  The chain may be cut, so that sentences of one document are chains of their own and
only skip edges run between them.  The graph has cycles, so learning takes a surrogate such as
``"trw"``, ``"bethe"`` or ``"camel"``.
Reference: Sutton and McCallum, "Collective segmentation and labeling of distant entities in
information extraction", ICML workshop on statistical relational learning (2004).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import require_flag, require_integer, require_one_of, shown
from fieldfit.errors import InvalidInputError, Place
from fieldfit.graph.batch import Batch
from fieldfit.graph.template import Block, PairTying, tie_entries
from fieldfit.inference.map.max_product import MaxProduct
from fieldfit.io.stored import Stored
from fieldfit.learners.problem import Part, Problem
from fieldfit.models.base import require_list
from fieldfit.models.chain.chain_crf import ChainCRF
from fieldfit.models.chain.chain_features import TokenFeatures
from fieldfit.models.chain.chain_parts import CHAIN, chain_parts
from fieldfit.models.chain.chain_tokens import EncodedTokens, encode
from fieldfit.models.chain.skip_edges import (
    SKIP,
    EdgeWeights,
    Joints,
    LinkedTokens,
    skip_chain_graph,
)
from fieldfit.models.dispatch import make_problem
from fieldfit.models.parts import GraphData
from fieldfit.models.weight_names import describe_labels
from fieldfit.objectives.base import Objective

__all__ = [
    "SkipChainCRF",
    "checked_breaks",
    "checked_links",
    "equal_values",
    "marked_tokens",
    "without_keys",
]

# -- Skip edges and breaks of a sequence ---------------------------------------------------


def equal_values(index: int, x: Any, key: str, max_links: int) -> list[tuple[int, int]]:
    """Pairs of tokens with the same value of a feature.

    All pairs of a group of up to ``max_links`` tokens; larger groups, whose pairs would grow with
    the square, are linked in a row.
    """
    groups: dict[Any, list[int]] = {}
    for position, token in _dictionaries(index, x, "skip_edges", key):
        if key in token:
            groups.setdefault(token[key], []).append(position)
    pairs: list[tuple[int, int]] = []
    for group in groups.values():
        pairs += combinations(group, 2) if len(group) <= max_links else pairwise(group)
    return pairs


def marked_tokens(index: int, x: Any, key: str) -> list[int]:
    """Positions of the tokens that have a feature (``False`` is the same as not having it)."""
    return [
        position
        for position, token in _dictionaries(index, x, "breaks", key)
        if token.get(key, False) is not False
    ]


def _dictionaries(
    index: int, x: Any, option: str, key: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for position, token in enumerate(x):
        if not isinstance(token, Mapping):
            raise InvalidInputError(
                f"must be a feature dictionary, because {option} names "
                f"the feature {key!r}, got {type(token).__name__}",
                Place("X", index, position),
            )
        yield position, token


def without_keys(x: Any, keys: Collection[str]) -> list[Any]:
    """A sequence of feature dictionaries without what only says how tokens are joined."""
    return [
        {name: value for name, value in token.items() if name not in keys}
        if isinstance(token, Mapping)
        else token
        for token in x
    ]


def checked_breaks(index: int, given: Any, length: int) -> NDArray[np.int64]:
    """Different positions inside the sequence, ascending; its beginning needs no break."""
    breaks = np.asarray(given)
    if breaks.size == 0:
        return np.zeros(0, dtype=np.int64)
    if breaks.ndim != 1 or breaks.dtype.kind not in "iu":
        raise InvalidInputError(
            f"breaks must be positions of tokens, got dtype {breaks.dtype} and "
            f"shape {breaks.shape}",
            Place("X", index),
        )
    _require_positions(index, "breaks must be", breaks, length)
    different: NDArray[np.int64] = np.unique(breaks.astype(np.int64))
    return different[different > 0]


def checked_links(
    index: int, given: Any, length: int, breaks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Different pairs of positions, ascending, without those that the chain links already."""
    links = np.asarray(given)
    if links.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if links.ndim != 2 or links.shape[1] != 2 or links.dtype.kind not in "iu":
        raise InvalidInputError(
            f"skip edges must be pairs of positions, got dtype {links.dtype} and "
            f"shape {links.shape}",
            Place("X", index),
        )
    _require_positions(index, "skip edges must join", links, length)
    pairs: NDArray[np.int64] = np.unique(np.sort(links.astype(np.int64), axis=1), axis=0)
    distances = pairs[:, 1] - pairs[:, 0]
    is_apart = (distances > 1) | ((distances == 1) & np.isin(pairs[:, 1], breaks))
    kept: NDArray[np.int64] = pairs[is_apart]
    return kept


def _require_positions(index: int, what: str, given: NDArray[Any], length: int) -> None:
    if given.min() < 0 or given.max() >= length:
        wrong = given.min() if given.min() < 0 else given.max()
        raise InvalidInputError(f"{what} positions 0..{length - 1}, got {wrong}", Place("X", index))


# -- The estimator -------------------------------------------------------------------------


#: The name of a feature, a function of a sequence, or nothing: given with the sequences.
Joining = str | Callable[[Any], ArrayLike] | None


class SkipChainCRF(ChainCRF):
    """A chain with skip edges.

    Parameters
    ----------
    objective
        ``"trw"``, ``"bethe"``, ``"pseudolikelihood"``, ``"piecewise"``, ... or an object.
    skip_edges
        Which tokens are linked.  A name of a feature: tokens of a sequence whose feature
        dictionaries have the same value under it (leave the key out where nothing should be
        linked; it is not used as a feature itself).  A function from one sequence to pairs of
        positions.  ``None``: every sequence is given as a pair ``(tokens, edges)``, or as
        ``(tokens, edges, breaks)``.
    max_links
        Most tokens in one group of equal values that are linked pair by pair; larger groups are
        linked in a row, each to the next.
    breaks
        Where the chain of a sequence is cut: before these tokens.  A name of a feature: before
        every token whose dictionary has it (it is not used as a feature itself).  A function from
        one sequence to positions.  ``None``: nowhere, but for the ``breaks`` in a sequence that is
        given as ``(tokens, edges, breaks)``.
    skip_table
        ``"symmetric"``, ``"full"``, ``"potts"`` or ``"potts-labels"``.
    edge_features
        Whether tables depend on the input: that of an edge of the chain on the features of its
        first token, that of a skip edge on the sum of the features of both tokens.  As for states,
        an attribute has weights for the pairs of labels that it occurs with in training, or for
        all (``all_possible_states``), and ``min_freq`` applies.
    l2, l1, learner, max_iter, tol, fit_intercept, all_possible_states, all_possible_transitions
        As for `ChainCRF`.
    min_freq, boundary_weights, decode, batch_size, random_state, n_jobs, verbose
        As for `ChainCRF`.

    Examples
    --------
    >>> X = [[{"w": "Ann", "name": "Ann"}, {"w": "said"}, {"w": "Ann", "name": "Ann"}]]
    >>> crf = SkipChainCRF(skip_edges="name", l2=0.1).fit(X, [["PER", "O", "PER"]])
    >>> sorted(crf.weight_blocks_)
    ['skip', 'state', 'transition']
    >>> [labels.tolist() for labels in crf.predict(X)]
    [['PER', 'O', 'PER']]

    Two sentences of one document; position 2 begins the second of them:

    >>> X = [([{"w": "Ann"}, {"w": "ran"}, {"w": "Ann"}, {"w": "sat"}], [(0, 2)], [2])]
    >>> crf = SkipChainCRF(l2=0.1).fit(X, [["PER", "O", "PER", "O"]])
    >>> len(crf.weight_blocks_["transition"])  # only from PER to O: none from O to PER
    1
    """

    #: Weights of the attributes of edges; ``None`` without ``edge_features``.
    _edge_weights: EdgeWeights | None

    def __init__(
        self,
        objective: str | Objective = "trw",
        *,
        skip_edges: Joining = None,
        max_links: int = 10,
        breaks: Joining = None,
        skip_table: PairTying = "symmetric",
        edge_features: bool = False,
        l2: float = 1.0,  # as for chains
        l1: float = 0.0,
        learner: Any = None,
        max_iter: int = 200,
        tol: float = 1e-5,
        fit_intercept: bool = True,
        all_possible_states: bool | None = None,
        all_possible_transitions: bool = False,
        min_freq: float = 0,
        boundary_weights: bool = False,
        decode: str | None = None,
        batch_size: int | None = None,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            objective,
            l2=l2,
            l1=l1,
            learner=learner,
            max_iter=max_iter,
            tol=tol,
            fit_intercept=fit_intercept,
            all_possible_states=all_possible_states,
            all_possible_transitions=all_possible_transitions,
            min_freq=min_freq,
            boundary_weights=boundary_weights,
            decode=decode,
            batch_size=batch_size,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.skip_edges = skip_edges
        self.max_links = max_links
        self.breaks = breaks
        self.skip_table = skip_table
        self.edge_features = edge_features

    # -- from sequences to tokens with links --------------------------------------------------

    #: Links are not stored.
    _has_shards = False

    def _shard_options(self) -> dict[str, Any]:
        return super(ChainCRF, self)._shard_options()  # refuses

    def _check_options(self) -> None:
        super()._check_options()
        for option in ("skip_edges", "breaks"):
            value = getattr(self, option)
            if not (value is None or isinstance(value, str) or callable(value)):
                raise InvalidInputError(
                    f"{option} must be the name of a feature, a function of a sequence, or None, "
                    f"got {shown(value)}"
                )
        require_integer("max_links", self.max_links, at_least=2)
        require_one_of("skip_table", self.skip_table, get_args(PairTying))
        require_flag("edge_features", self.edge_features)

    def save(self, path: Any) -> None:
        """Write the fitted model to one file; functions among the options cannot be written."""
        for option in ("skip_edges", "breaks"):
            if callable(getattr(self, option)):
                raise InvalidInputError(
                    f"save: {option} must be the name of a feature or None, because a function "
                    "cannot be written to a model file"
                )
        super().save(path)

    def _sequences(self, X: Sequence[Any]) -> Sequence[Any]:
        """The sequences themselves, without what only says how tokens are joined."""
        require_list("X", X)
        if isinstance(X, tuple) and X and self.skip_edges is None and isinstance(X[0], list):
            raise InvalidInputError(
                "must be a list of sequences, got the parts of one: one sequence is "
                "[(tokens, edges)]",
                Place("X"),
            )
        if self.skip_edges is None:
            X = [self._unpacked(index, x)[0] for index, x in enumerate(X)]
        keys = {key for key in (self.skip_edges, self.breaks) if isinstance(key, str)}
        X = super()._sequences(X)
        return [without_keys(x, keys) for x in X] if keys else X

    def _unpacked(self, index: int, x: Any) -> tuple[Any, Any, Any]:
        """Tokens, skip edges and breaks of a sequence that comes with its edges."""
        if isinstance(x, tuple) and len(x) == 2:
            return (*x, ())
        if isinstance(x, tuple) and len(x) == 3 and self.breaks is None:
            return x
        expected = "a pair (tokens, edges)"
        if self.breaks is None:
            expected += " or a triple (tokens, edges, breaks)"
        raise InvalidInputError(
            f"must be {expected}, because skip_edges is None", Place("X", index)
        )

    def _joints(self, X: Sequence[Any]) -> tuple[Joints, ...]:
        """Skip edges and breaks of every sequence."""
        joints = []
        for index, x in enumerate(X):
            named = self.skip_edges is not None
            tokens, given, breaks = (x, (), ()) if named else self._unpacked(index, x)
            if isinstance(self.skip_edges, str):
                given = equal_values(index, tokens, self.skip_edges, self.max_links)
            elif self.skip_edges is not None:
                given = self.skip_edges(tokens)
            if isinstance(self.breaks, str):
                breaks = marked_tokens(index, tokens, self.breaks)
            elif self.breaks is not None:
                breaks = self.breaks(tokens)
            length = tokens.shape[0] if hasattr(tokens, "shape") else len(tokens)
            cuts = checked_breaks(index, breaks, length)
            joints.append(Joints(checked_links(index, given, length, cuts), cuts))
        return tuple(joints)

    def _encode_training(self, X: Sequence[Any], labels: LabelArray) -> EncodedTokens:
        joints = self._joints(X)
        features, dense = self._read_training(self._sequences(X))
        starts = features.sequence_offsets
        cuts = [begin + given.breaks for begin, given in zip(starts, joints, strict=False)]
        chains = replace(features, sequence_offsets=np.sort(np.concatenate([starts, *cuts])))
        self._layout = self._choose_weights(chains, labels, dense)
        self._edge_weights = None
        if self.edge_features:
            self._edge_weights = EdgeWeights.choose(
                features,
                joints,
                labels,
                self._groups(),
                self._layout.n_labels,
                self.n_features_in_,
                all_possible=self._has_all_states(dense),
                min_freq=self.min_freq,
            )
        self._block_shapes = self._shapes_of_model()
        return self._linked(features, joints)

    def _encode(self, X: Sequence[Any], keep: bool = False) -> EncodedTokens:
        return self._linked(self._read(X), self._joints(X))

    def _linked(self, features: TokenFeatures, joints: tuple[Joints, ...]) -> LinkedTokens:
        edges = () if self._edge_weights is None else self._edge_weights.rows(features, joints)
        encoded = encode(self._layout, features)
        return LinkedTokens(self._layout, *encoded, features.sequence_offsets, joints, edges)

    def _groups(self) -> dict[int, NDArray[np.int64]]:
        """For each type of edges the parameter of every entry of a table, ``-1`` for none."""
        n_labels = self._layout.n_labels
        skip, _ = tie_entries((n_labels, n_labels), self.skip_table)
        return {CHAIN: self._layout.transitions.reshape(-1), SKIP: skip}

    # -- learning and prediction on graphs with cycles ------------------------------------------

    def _parts(
        self,
        tokens: EncodedTokens,
        labels: LabelArray | None = None,
        sequence_weights: FloatArray | None = None,
    ) -> list[Part]:
        assert isinstance(tokens, LinkedTokens)
        n_labels = tokens.layout.n_labels
        graphs = [
            skip_chain_graph(int(length), joints, n_labels)
            for length, joints in zip(np.diff(tokens.sequence_offsets), tokens.joints, strict=True)
        ]

        def edge_blocks(batch: Batch, sequences: NDArray[np.int64]) -> list[Block]:
            factors = np.flatnonzero(batch.graph.factor_types == SKIP)
            shape = (n_labels, n_labels)
            constants = Block.tables(
                batch.graph, self.skip_table, factors=factors, name="skip", shape=shape
            )
            return [constants, *(rows.block(batch, sequences) for rows in tokens.edges)]

        return chain_parts(
            tokens, labels, sequence_weights, self.batch_size, graphs=graphs, further=edge_blocks
        )

    def _problem_of_tokens(
        self,
        objective: Objective,
        tokens: EncodedTokens,
        labels: LabelArray,
        weights: FloatArray | None,
    ) -> Problem:
        data = GraphData(self._parts(tokens, labels, weights), self.n_jobs)
        return make_problem("graphs", objective, data)

    def _flat_beliefs(
        self, objective: Objective, tokens: EncodedTokens, weights: FloatArray
    ) -> tuple[FloatArray, int]:
        return self._beliefs_of_parts(objective, self._parts(tokens), weights)

    def _best_sequences(self, tokens: EncodedTokens, weights: FloatArray) -> LabelArray:
        """Jointly best labels, by max-product: the graph may have cycles."""
        found = [np.zeros(0, dtype=np.int32)]
        for part in self._parts(tokens):
            potentials = part.template.potentials(weights)
            found.append(MaxProduct().run_batch(part.batch, potentials).labels)
        return np.concatenate(found)

    # -- names and files ------------------------------------------------------------------------

    def _describe_weight(self, position: int, attributes: Sequence[str]) -> str:
        if position < self._layout.n_weights:
            return super()._describe_weight(position, attributes)
        position -= self._layout.n_weights
        n_skip = int(np.prod(self._block_shapes["skip"], dtype=np.int64))
        if position < n_skip or self._edge_weights is None:
            return describe_labels(self._groups()[SKIP], position, self.classes_, "~")
        return self._edge_weights.describe(position - n_skip, attributes, self.classes_)

    def _model_arrays(self) -> dict[str, NDArray[Any]]:
        edges = {} if self._edge_weights is None else self._edge_weights.arrays()
        return super()._model_arrays() | edges

    def _restore_model(self, stored: Stored) -> None:
        super()._restore_model(stored)
        self._edge_weights = (
            EdgeWeights.restored(stored, self._groups()) if self.edge_features else None
        )

    def _shapes_of_model(self) -> dict[str, tuple[int, ...]]:
        n_labels = self._layout.n_labels
        _, skip_shape = tie_entries((n_labels, n_labels), self.skip_table)
        shapes = {**self._layout.block_shapes(), "skip": skip_shape}
        return shapes if self._edge_weights is None else shapes | self._edge_weights.block_shapes()
