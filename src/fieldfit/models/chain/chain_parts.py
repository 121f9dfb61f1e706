"""Linear chains as factor graphs with templates: the general path, for any objective.

The weights are those of `ChainLayout`, so a model can be learned on one path and used on the other,
and both give the same value and gradient for the same objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LabelArray
from fieldfit.entropy.counting_numbers import Bethe, TreeReweighted
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.template import Block, Template, add_tied, gather_tied
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.learners.problem import Part
from fieldfit.models.chain.chain_layout import AttributeLayout
from fieldfit.models.chain.chain_tokens import EncodedRows, EncodedTokens
from fieldfit.models.chain.sparse_scores import (
    add_token_gradients,
    collect_rows,
    spread_rows,
    token_scores,
)
from fieldfit.objectives.base import Inference

__all__ = ["AttributeBlock", "chain_parts", "is_exact_on_chains"]

# -- Sparse features of tokens and edges as blocks of a template ---------------------------
# Weights of (attribute, label) pairs on tokens, and of (attribute, pair of labels) on edges.
#
# A table with attributes ``x_r`` gets ``th_r(s) = sum_f x_r[f] w(f, g(s))``, as `Block` has it
# with sparse features; but here an attribute has weights only for the labels that its layout
# lists, and the products are those of the chain kernels, which need no values where all of them
# are 1.


class _Entries(NamedTuple):
    """A block's features for `TemplateProblem.fingerprint`, as a CSR matrix would show them."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: FloatArray


@dataclass(frozen=True)
class AttributeBlock(Block):
    """Weights of the pairs in a layout, on tables that have the encoded ``rows`` from ``begin``."""

    rows: EncodedRows | None = None
    begin: int = 0

    @classmethod
    def of(
        cls,
        name: str,
        part: Literal["unary", "factors"],
        starts: NDArray[np.int64],
        groups: NDArray[np.int64],
        rows: EncodedRows,
        begin: int,
    ) -> AttributeBlock:
        """The block of the tables at ``starts``; ``groups`` are labels of the rows' layout."""
        offsets = rows.entries.offsets
        end = begin + len(starts)
        first, last = offsets[begin], offsets[end]
        features = _Entries(
            offsets[begin : end + 1],
            rows.entries.codes[first:last],
            rows.entries.values[first:last],
        )
        return cls(name, part, starts, groups, features, rows=rows, begin=begin)

    @property
    def _rows(self) -> EncodedRows:
        assert self.rows is not None
        return self.rows

    @property
    def layout(self) -> AttributeLayout:
        return self._rows.layout

    @property
    def n_weights(self) -> int:
        return self.layout.n_states

    def _n_features(self) -> int:
        return len(self.layout.state_offsets) - 1

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """A table if every pair has a weight, otherwise one row."""
        return self.layout.state_shape

    def add_potentials(self, weights: FloatArray, vector: FloatArray) -> None:
        """Add the scores of the rows to their tables."""
        states, width = self._rows.states, self.layout.width
        weights = np.ascontiguousarray(weights)
        spread = np.empty(len(states.row_attributes) * width)
        spread_rows(states, weights, width, spread)
        scores = np.empty((len(self.starts), width))
        token_scores(
            self.layout.row_shape, self._rows.entries, states, weights, spread,
            self.begin, self.begin + len(self.starts), scores.reshape(-1),
        )  # fmt: skip
        add_tied(scores, self.groups, self.starts, vector)

    def gradient(self, vector: FloatArray) -> FloatArray:
        """The transpose of `add_potentials`."""
        states, width = self._rows.states, self.layout.width
        residuals = np.zeros((len(self.starts), width))
        gather_tied(vector, self.groups, self.starts, residuals)
        spread = np.zeros(len(states.row_attributes) * width)
        gradient = np.zeros(self.layout.n_states)
        add_token_gradients(
            self.layout.row_shape, self._rows.entries, states, residuals.reshape(-1),
            self.begin, self.begin + len(self.starts), spread, gradient,
        )  # fmt: skip
        collect_rows(states, spread, width, gradient)
        return gradient


# -- Parts ---------------------------------------------------------------------------------


#: Type of the factors between a token and the next.
CHAIN = 0
#: Table entries of one part, at least ...
ENTRIES_PER_PART = 2**20
#: ... and vectors of potentials, beliefs and gradients that exist while it is evaluated.
VECTORS_PER_PART = 5


def is_exact_on_chains(inference: Inference) -> bool:
    """True if an inference is known to give exact marginals on graphs without cycles."""
    if isinstance(inference, SumProduct):
        entropy = inference.entropy
        return isinstance(entropy, Bethe) or (
            isinstance(entropy, TreeReweighted) and not isinstance(entropy.rho, (float, np.ndarray))
        )
    return isinstance(inference, Exact)


def chain_parts(
    tokens: EncodedTokens,
    labels: LabelArray | None = None,
    sequence_weights: FloatArray | None = None,
    batch_size: int | None = None,
    *,
    graphs: Sequence[FactorGraph] | None = None,
    further: Callable[[Batch, NDArray[np.int64]], list[Block]] | None = None,
) -> list[Part]:
    """Batches of consecutive sequences; empty ones are left out.

    ``graphs`` (one for each sequence, its chain in factors of type `CHAIN`) and ``further``
    blocks, made from the batch of a part and the numbers of its sequences, make models that are
    more than chains.
    """
    offsets = tokens.sequence_offsets
    if graphs is None:
        graphs = _chains(np.diff(offsets), tokens.layout.n_labels)
    parts = []
    for chosen in _groups(tokens, graphs, batch_size):
        batch = Batch.of([graphs[m] for m in chosen])
        begin, end = int(offsets[chosen[0]]), int(offsets[chosen[-1] + 1])
        blocks = _blocks(tokens, batch, begin, end)
        if further is not None:
            blocks += further(batch, chosen)
        parts.append(
            Part(
                batch,
                Template(batch.graph, blocks),
                np.full(end - begin, -1, dtype=np.int32) if labels is None else labels[begin:end],
                None if sequence_weights is None else sequence_weights[chosen],
            )
        )
    return parts


def _chains(lengths: NDArray[np.int64], n_labels: int) -> list[FactorGraph]:
    """A chain for each length; equal lengths share one."""
    made = {
        int(length): FactorGraph.chain(int(length), n_labels)
        if length
        else FactorGraph(cardinalities=[])
        for length in np.unique(lengths)
    }
    return [made[length] for length in lengths.tolist()]


def _groups(
    tokens: EncodedTokens, graphs: Sequence[FactorGraph], batch_size: int | None
) -> Iterator[NDArray[np.int64]]:
    """Sequences of each part: at most ``batch_size``, or as many as make the best use of memory.

    A part needs its tables several times, and every part has a gradient of its own.
    """
    filled = np.flatnonzero(np.diff(tokens.sequence_offsets) > 0)
    if batch_size is not None:
        for start in range(0, len(filled), batch_size):
            yield filled[start : start + batch_size]
        return
    sizes = [graphs[m].table_offsets[-1] + graphs[m].unary_offsets[-1] for m in filled.tolist()]
    entries = np.cumsum(sizes, dtype=np.int64)
    total = int(entries[-1]) if len(entries) else 0
    balanced = np.sqrt(float(total) * tokens.n_weights / VECTORS_PER_PART)
    size = max(ENTRIES_PER_PART, int(balanced))
    bounds = np.unique(np.searchsorted(entries, np.arange(size, total, size)))
    for group in np.split(filled, bounds):
        if len(group):
            yield group


def _blocks(tokens: EncodedTokens, batch: Batch, begin: int, end: int) -> list[Block]:
    layout, graph = tokens.layout, batch.graph
    chain = np.flatnonzero(graph.factor_types == CHAIN)
    tables = graph.table_offsets[:-1][chain].astype(np.int64)
    n_labels = layout.n_labels
    starts = np.arange(end - begin, dtype=np.int64) * n_labels
    blocks: list[Block] = [
        AttributeBlock.of("state", "unary", starts, np.arange(n_labels), tokens, begin),
        Block("transition", "factors", tables, layout.transitions.reshape(-1)),
    ]
    if layout.boundary:
        # not those of the batch: a sequence may be cut into several chains
        firsts = graph.slot_variables[graph.scope_offsets[chain]]
        starts = np.setdiff1d(np.arange(graph.n_variables), firsts + 1)
        ends = np.setdiff1d(np.arange(graph.n_variables), firsts)
        blocks.append(Block.unary(graph, variables=starts, name="start"))
        blocks.append(Block.unary(graph, variables=ends, name="end"))
    return blocks
