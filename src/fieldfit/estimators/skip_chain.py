"""Skip-chain conditional random fields: a chain, and further edges between distant tokens.

    p(y | x) ∝ exp(sum_t w(y_t)·x_t + sum_t V(y_t, y_{t+1}) + sum_{(s, t) linked} U(y_s, y_t))

Linked tokens are, say, occurrences of one name in a document: what is clear in one place helps in
the other.  The graph has cycles, so learning takes a surrogate such as ``"trw"`` or ``"bethe"``.
Reference: Sutton and McCallum, "Collective segmentation and labeling of distant entities in
information extraction", ICML workshop on statistical relational learning (2004).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.template import Block, Tying, tie_entries
from fieldfit.errors import InvalidInputError
from fieldfit.estimators._base import FloatArray
from fieldfit.estimators._chain_parts import chain_parts
from fieldfit.estimators._chain_tokens import EncodedTokens
from fieldfit.estimators._skip_links import checked_links, equal_values, without_key
from fieldfit.estimators.chain import ChainCRF
from fieldfit.learner.problem import Part, Problem, TemplateProblem
from fieldfit.objective._base import Objective
from fieldfit.oracle.max_product import MaxProduct

__all__ = ["SkipChainCRF"]

LabelArray = NDArray[np.int32]
SkipEdges = str | Callable[[Any], ArrayLike] | None

#: Factor types of the graphs.
CHAIN, SKIP = 0, 1


@dataclass(frozen=True)
class LinkedTokens(EncodedTokens):
    """Tokens with the skip edges of each sequence, ``(E, 2)`` positions within it."""

    links: tuple[NDArray[np.int64], ...] = ()


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
        positions.  ``None``: every sequence is given as a pair ``(tokens, edges)``.
    max_links
        Most tokens in one group of equal values that are linked pair by pair; larger groups are
        linked in a row, each to the next.
    skip_table
        ``"symmetric"``, ``"full"``, ``"potts"`` or ``"potts-labels"``.
    l2, l1, learner, max_iter, tol, fit_intercept, all_possible_states, all_possible_transitions
        As for `ChainCRF`, and so are ``min_freq``, ``boundary_weights``, ``decode``,
        ``batch_size``, ``random_state``, ``n_jobs`` and ``verbose``.

    Examples
    --------
    >>> X = [[{"w": "Ann", "name": "Ann"}, {"w": "said"}, {"w": "Ann", "name": "Ann"}]]
    >>> crf = SkipChainCRF(skip_edges="name", l2=0.1).fit(X, [["PER", "O", "PER"]])
    >>> sorted(crf.weight_blocks_)
    ['skip', 'state', 'transition']
    >>> [labels.tolist() for labels in crf.predict(X)]
    [['PER', 'O', 'PER']]
    """

    kind: ClassVar[str] = "skip-chain"

    def __init__(
        self,
        objective: str | Objective = "trw",
        *,
        skip_edges: SkipEdges = None,
        max_links: int = 10,
        skip_table: Tying = "symmetric",
        l2: float = 1.0,
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
        random_state: int | None = None,
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
        self.skip_table = skip_table

    # -- from sequences to tokens with links --------------------------------------------------

    def _check_options(self) -> None:
        super()._check_options()
        is_known = self.skip_edges is None or isinstance(self.skip_edges, str)
        if not (is_known or callable(self.skip_edges)):
            raise InvalidInputError(
                "skip_edges must be the name of a feature, a function of a sequence, or None, "
                f"got {self.skip_edges!r}"
            )
        if self.max_links < 2:
            raise InvalidInputError(f"max_links must be at least 2, got {self.max_links!r}")

    def save(self, path: Any) -> None:
        """Write the fitted model to one file; a function in ``skip_edges`` cannot be written."""
        if callable(self.skip_edges):
            raise InvalidInputError(
                "save: skip_edges must be the name of a feature or None, because a function cannot "
                "be written to a model file"
            )
        super().save(path)

    def _sequences(self, X: Sequence[Any]) -> Sequence[Any]:
        """The sequences themselves, without what only says which tokens are linked."""
        if isinstance(self.skip_edges, str):
            return [without_key(x, self.skip_edges) for x in X]
        if self.skip_edges is not None:
            return X
        for index, x in enumerate(X):
            if not (isinstance(x, tuple) and len(x) == 2):
                raise InvalidInputError(
                    f"X[{index}] must be a pair (tokens, edges), because skip_edges is None"
                )
        return [x[0] for x in X]

    def _links(self, X: Sequence[Any]) -> tuple[NDArray[np.int64], ...]:
        """Skip edges of every sequence."""
        links = []
        for index, x in enumerate(X):
            if self.skip_edges is None:
                tokens, given = x
            elif isinstance(self.skip_edges, str):
                tokens, given = x, equal_values(index, x, self.skip_edges, self.max_links)
            else:
                tokens, given = x, self.skip_edges(x)
            length = tokens.shape[0] if hasattr(tokens, "shape") else len(tokens)
            links.append(checked_links(index, given, length))
        return tuple(links)

    def _encode_training(self, X: Sequence[Any], labels: LabelArray) -> EncodedTokens:
        tokens = super()._encode_training(X, labels)
        n_labels = self._layout.n_labels
        _, shape = tie_entries((n_labels, n_labels), self.skip_table)
        self._block_shapes = {**self._block_shapes, "skip": shape}
        return _linked(tokens, self._links(X))

    def _encode(self, X: Sequence[Any]) -> EncodedTokens:
        return _linked(super()._encode(X), self._links(X))

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
            _skip_chain(int(length), links, n_labels)
            for length, links in zip(np.diff(tokens.sequence_offsets), tokens.links, strict=True)
        ]

        def skip_block(batch: Batch) -> list[Block]:
            factors = np.flatnonzero(batch.graph.factor_types == SKIP)
            shape = (n_labels, n_labels)
            return [
                Block.tables(
                    batch.graph, self.skip_table, factors=factors, name="skip", shape=shape
                )
            ]

        return chain_parts(
            tokens, labels, sequence_weights, self.batch_size, graphs=graphs, further=skip_block
        )

    def _problem(
        self,
        objective: Objective,
        tokens: EncodedTokens,
        labels: LabelArray,
        sequence_weights: FloatArray | None,
    ) -> Problem:
        return TemplateProblem(
            objective, self._parts(tokens, labels, sequence_weights), self.n_jobs
        )

    def _marginals_flat(
        self, objective: Objective, tokens: EncodedTokens, weights: FloatArray
    ) -> FloatArray:
        return self._marginals_of_parts(objective, self._parts(tokens), weights)

    def _predict_flat(
        self, objective: Objective, tokens: EncodedTokens, weights: FloatArray
    ) -> LabelArray:
        if self._decoding(objective) == "marginals":
            best: LabelArray = self._marginals_flat(objective, tokens, weights).argmax(axis=1)
            return best.astype(np.int32)
        found = [np.zeros(0, dtype=np.int32)]
        for part in self._parts(tokens):
            potentials = part.template.potentials(weights)
            found.append(MaxProduct().run_batch(part.batch, potentials).labels)
        return np.concatenate(found)


def _linked(tokens: EncodedTokens, links: tuple[NDArray[np.int64], ...]) -> LinkedTokens:
    return LinkedTokens(
        tokens.layout, tokens.states, tokens.entries, tokens.sequence_offsets, links
    )


def _skip_chain(length: int, links: NDArray[np.int64], n_labels: int) -> FactorGraph:
    """A chain of type 0 and its skip edges of type 1."""
    chain = np.stack([np.arange(max(length - 1, 0)), np.arange(1, max(length, 1))], axis=1)
    edges = np.concatenate([chain, links])
    types = np.repeat([CHAIN, SKIP], [len(chain), len(links)])
    return FactorGraph.from_flat(
        np.full(length, n_labels), edges.reshape(-1), np.full(len(edges), 2), types
    )
