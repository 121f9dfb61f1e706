"""Skip-chain graphs and edge features: the graph of a sequence, and attributes of its edges.

The table of an edge may depend on the input.  An edge of the chain then has the attributes of its
first token, a skip edge those of both of its tokens (an attribute that both have counts twice), and
each attribute has weights for pairs of labels:

    V_t(k, l) = V(k, l) + sum_f x_t[f] v(f, k, l)
    U_st(k, l) = U(k, l) + sum_f (x_s[f] + x_t[f]) u(f, k, l)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import LabelArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.template import Block
from fieldfit.io.stored import Stored
from fieldfit.models.chain.chain_features import TokenFeatures
from fieldfit.models.chain.chain_layout import AttributeLayout, attribute_layout
from fieldfit.models.chain.chain_parts import CHAIN, AttributeBlock
from fieldfit.models.chain.chain_tokens import EncodedRows, EncodedTokens, encode
from fieldfit.models.chain.sparse_scores import join_rows
from fieldfit.models.weight_names import describe_labels

__all__ = [
    "EDGE_BLOCKS",
    "SKIP",
    "EdgeRows",
    "EdgeWeights",
    "Edges",
    "Joints",
    "LinkedTokens",
    "all_edges",
    "edge_attributes",
    "edge_labels",
    "skip_chain_graph",
]

#: Type of the factors between linked tokens; those of the chain are of type `CHAIN`.
SKIP = 1
#: Names of the blocks with weights of attributes, by the type of the edges.
EDGE_BLOCKS = {CHAIN: "transition_features", SKIP: "skip_features"}


class Joints(NamedTuple):
    """Skip edges ``(E, 2)`` of one sequence, and where a new chain begins in it."""

    links: NDArray[np.int64]
    breaks: NDArray[np.int64]

    def chain_edges(self, length: int) -> NDArray[np.int64]:
        """Neighbours ``(E, 2)`` in the chains of a sequence of that length."""
        seconds = np.setdiff1d(np.arange(1, max(length, 1)), self.breaks, assume_unique=True)
        return np.stack([seconds - 1, seconds], axis=1)


def skip_chain_graph(length: int, joints: Joints, n_labels: int) -> FactorGraph:
    """A chain, without its edges at the breaks, and then the skip edges."""
    chain = joints.chain_edges(length)
    edges = np.concatenate([chain, joints.links])
    types = np.repeat([CHAIN, SKIP], [len(chain), len(joints.links)])
    return FactorGraph.from_flat(
        np.full(length, n_labels), edges.reshape(-1), np.full(len(edges), 2), types
    )


class Edges(NamedTuple):
    """Edges of one type of all sequences, one sequence after the other.

    ``tokens`` ``(E, 2)`` counts through all sequences; those of sequence ``m`` are edges
    ``offsets[m]`` to ``offsets[m + 1]``.
    """

    factor_type: int
    tokens: NDArray[np.int64]
    offsets: NDArray[np.int64]


def all_edges(sequence_offsets: NDArray[np.int64], joints: Sequence[Joints]) -> list[Edges]:
    """Edges of the chains and skip edges, in the order in which graphs have them."""
    lengths = np.diff(sequence_offsets).tolist()
    chains = [given.chain_edges(length) for length, given in zip(lengths, joints, strict=True)]
    found = []
    for factor_type, edges in ((CHAIN, chains), (SKIP, [given.links for given in joints])):
        counts = np.array([len(pairs) for pairs in edges], dtype=np.int64)
        tokens = np.concatenate([np.zeros((0, 2), dtype=np.int64), *edges])
        tokens += np.repeat(sequence_offsets[:-1], counts)[:, None]
        found.append(Edges(factor_type, tokens, np.concatenate([[0], np.cumsum(counts)])))
    return found


def edge_attributes(features: TokenFeatures, edges: Edges, n_attributes: int) -> TokenFeatures:
    """Attributes of edges, of those that are numbered below ``n_attributes``."""
    tokens = edges.tokens[:, :1] if edges.factor_type == CHAIN else edges.tokens
    offsets = np.zeros(len(tokens) + 1, dtype=np.int64)
    indices, values = np.zeros(0, dtype=np.int32), np.zeros(0)
    for _ in range(2):  # the first time, to learn how many there are
        join_rows(
            features.offsets, features.indices, features.values, np.ascontiguousarray(tokens),
            n_attributes, offsets, indices, values,
        )  # fmt: skip
        if not len(indices):
            indices = np.zeros(offsets[-1], dtype=np.int32)
            values = np.zeros(offsets[-1] if features.values.size else 0)
    return TokenFeatures(edges.offsets, offsets, indices, values, n_attributes)


def edge_labels(
    labels: LabelArray, edges: Edges, groups: NDArray[np.int64], n_labels: int
) -> LabelArray:
    """For each edge the parameter of its pair of labels; ``-1`` if one is missing."""
    first, second = labels[edges.tokens].T.astype(np.int64)
    known = (first >= 0) & (second >= 0)
    return np.where(known, groups[first * n_labels + second], -1).astype(np.int32)


@dataclass(frozen=True)
class EdgeRows(EncodedRows):
    """Encoded attributes of edges; labels of the layout are the parameters of a table.

    ``groups`` has the parameter of each entry of a table, ``-1`` for none.
    """

    factor_type: int
    groups: NDArray[np.int64]
    edge_offsets: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        layout: AttributeLayout,
        attributes: TokenFeatures,
        edges: Edges,
        groups: NDArray[np.int64],
    ) -> EdgeRows:
        return cls(layout, *encode(layout, attributes), edges.factor_type, groups, edges.offsets)

    def block(self, batch: Batch, sequences: NDArray[np.int64]) -> Block:
        """Weights on the edges of some sequences, which follow each other."""
        factors = np.flatnonzero(batch.graph.factor_types == self.factor_type)
        return AttributeBlock.of(
            EDGE_BLOCKS[self.factor_type],
            "factors",
            batch.graph.table_offsets[:-1][factors].astype(np.int64),
            self.groups,
            self,
            int(self.edge_offsets[sequences[0]]),
        )


@dataclass(frozen=True)
class LinkedTokens(EncodedTokens):
    """Tokens, how those of each sequence are joined, and attributes of edges if they have any."""

    joints: tuple[Joints, ...]
    edges: tuple[EdgeRows, ...]

    @property
    def n_weights(self) -> int:
        """With those of edges."""
        return self.layout.n_weights + sum(rows.layout.n_states for rows in self.edges)


# -- Weights of edge features --------------------------------------------------------------
# Which weights the attributes of a skip-chain's edges have, and where they lie in its files.


#: For each type of edges the parameter of every entry of a table, ``-1`` for none.
Groups = Mapping[int, NDArray[np.int64]]
#: Numbers of parameters are kept in 16 bits.
MOST_PARAMETERS = 2**16


@dataclass(frozen=True)
class EdgeWeights:
    """Weights of (attribute, parameter of a table), for each type of edges."""

    layouts: dict[int, AttributeLayout]
    groups: Groups

    @classmethod
    def choose(
        cls,
        features: TokenFeatures,
        joints: Sequence[Joints],
        labels: LabelArray,
        groups: Groups,
        n_labels: int,
        n_attributes: int,
        *,
        all_possible: bool,
        min_freq: float,
    ) -> EdgeWeights:
        """Those for what occurs in training at least ``min_freq`` times, or all possible ones.

        Attributes from ``n_attributes`` on have none: the intercept, as tables have constants.
        """
        layouts = {}
        for edges in all_edges(features.sequence_offsets, joints):
            of_entries = groups[edges.factor_type]
            layouts[edges.factor_type] = attribute_layout(
                edge_attributes(features, edges, n_attributes),
                edge_labels(labels, edges, of_entries, n_labels),
                n_parameters(of_entries),
                all_possible=all_possible,
                min_freq=min_freq,
            )
        return cls(layouts, groups)

    def rows(self, features: TokenFeatures, joints: Sequence[Joints]) -> tuple[EdgeRows, ...]:
        """Attributes of the edges of some sequences."""
        found = []
        for edges in all_edges(features.sequence_offsets, joints):
            layout = self.layouts[edges.factor_type]
            attributes = edge_attributes(features, edges, layout.n_attributes)
            found.append(EdgeRows.of(layout, attributes, edges, self.groups[edges.factor_type]))
        return tuple(found)

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the blocks."""
        return {EDGE_BLOCKS[kind]: layout.state_shape for kind, layout in self.layouts.items()}

    def describe(self, position: int, attributes: Sequence[str], classes: NDArray[Any]) -> str:
        """What a weight belongs to, such as ``attribute / label -> label``."""
        for kind, layout in self.layouts.items():
            if position < layout.n_states:
                attribute, group = layout.pair(position)
                mark = "~" if kind == SKIP else "->"
                pair = describe_labels(self.groups[kind], group, classes, mark)
                return f"{attributes[attribute]} / {pair}"
            position -= layout.n_states
        raise IndexError("position must be that of a weight of an edge")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file has to keep."""
        found: dict[str, NDArray[Any]] = {}
        for kind, layout in self.layouts.items():
            found[f"{EDGE_BLOCKS[kind]}_offsets"] = layout.state_offsets
            found[f"{EDGE_BLOCKS[kind]}_labels"] = layout.state_labels
        return found

    @classmethod
    def restored(cls, stored: Stored, groups: Groups) -> EdgeWeights:
        """Inverse of `arrays`, from a model file."""
        layouts = {}
        for kind, name in EDGE_BLOCKS.items():
            count = n_parameters(groups[kind])
            layouts[kind] = AttributeLayout(
                count, *AttributeLayout.restored_states(stored, count, name)
            )
        return cls(layouts, groups)


def n_parameters(groups: NDArray[np.int64]) -> int:
    """Parameters of a table."""
    count = int(groups.max(initial=-1)) + 1
    if count > MOST_PARAMETERS:
        raise InvalidInputError(
            f"edge_features must be False where a table of two labels has more than "
            f"{MOST_PARAMETERS} parameters, got {count}"
        )
    return count
