"""Chains on the general path: batches of factor graphs with a template, for any objective.

The weights are those of `ChainLayout`, so a model can be learned on one path and used on the other,
and both give the same value and gradient for the same objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import Bethe, TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.template import Block, Template
from fieldfit.estimators._chain_layout import ChainLayout
from fieldfit.estimators._chain_tokens import EncodedTokens
from fieldfit.inference.exact import Exact
from fieldfit.inference.sum_product import SumProduct
from fieldfit.kernels.chain_features import (
    add_token_gradients,
    collect_rows,
    spread_rows,
    token_scores,
)
from fieldfit.learner.problem import Part
from fieldfit.objective._base import Inference

__all__ = ["StateBlock", "chain_parts", "is_exact_on_chains"]

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]

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


class _Entries(NamedTuple):
    """A block's features for `TemplateProblem.fingerprint`, as a CSR matrix would show them."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: FloatArray


@dataclass(frozen=True)
class StateBlock(Block):
    """Weights of (attribute, label) pairs on the tokens ``begin`` to ``end``.

    Like `Block.unary` with sparse features, but with weights only for the pairs that the layout
    has.
    """

    tokens: EncodedTokens | None = None
    begin: int = 0
    end: int = 0

    @classmethod
    def of(cls, tokens: EncodedTokens, begin: int, end: int) -> StateBlock:
        """The block of a range of tokens."""
        offsets = tokens.entries.offsets
        first, last = offsets[begin], offsets[end]
        n_labels = tokens.layout.n_labels
        return cls(
            name="state",
            part="unary",
            starts=np.arange(end - begin, dtype=np.int64) * n_labels,
            groups=np.arange(n_labels),
            features=_Entries(
                offsets[begin : end + 1],
                tokens.entries.codes[first:last],
                tokens.entries.values[first:last],
            ),
            tokens=tokens,
            begin=begin,
            end=end,
        )

    @property
    def layout(self) -> ChainLayout:
        assert self.tokens is not None
        return self.tokens.layout

    @property
    def n_weights(self) -> int:
        return self.layout.n_states

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """One weight for each pair."""
        return (self.layout.n_states,)

    def add_potentials(self, weights: FloatArray, vector: FloatArray) -> None:
        """Add the scores of the tokens."""
        assert self.tokens is not None
        width, states = self.layout.width, self.tokens.states
        weights = np.ascontiguousarray(weights)
        rows = np.empty(len(states.row_attributes) * width)
        spread_rows(states, weights, width, rows)
        scores = np.empty((self.end - self.begin, width))
        token_scores(
            self.layout.row_shape, self.tokens.entries, states, weights, rows, self.begin, self.end,
            scores.reshape(-1),
        )  # fmt: skip
        vector += scores[:, : self.layout.n_labels].reshape(-1)

    def gradient(self, vector: FloatArray) -> FloatArray:
        """The transpose of `add_potentials`."""
        assert self.tokens is not None
        width, states = self.layout.width, self.tokens.states
        residuals = np.zeros((self.end - self.begin, width))
        residuals[:, : self.layout.n_labels] = vector.reshape(-1, self.layout.n_labels)
        rows = np.zeros(len(states.row_attributes) * width)
        gradient = np.zeros(self.layout.n_states)
        add_token_gradients(
            self.layout.row_shape, self.tokens.entries, states, residuals.reshape(-1),
            self.begin, self.end, rows, gradient,
        )  # fmt: skip
        collect_rows(states, rows, width, gradient)
        return gradient


def chain_parts(
    tokens: EncodedTokens,
    labels: LabelArray | None = None,
    sequence_weights: FloatArray | None = None,
    batch_size: int | None = None,
    *,
    graphs: Sequence[FactorGraph] | None = None,
    further: Callable[[Batch], list[Block]] | None = None,
) -> list[Part]:
    """Batches of consecutive sequences; empty ones are left out.

    ``graphs`` (one for each sequence, its chain in factors of type `CHAIN`) and ``further``
    blocks on their batches make models that are more than chains.
    """
    offsets = tokens.sequence_offsets
    if graphs is None:
        graphs = _chains(np.diff(offsets), tokens.layout.n_labels)
    parts = []
    for chosen in _groups(tokens, graphs, batch_size):
        batch = Batch.of([graphs[m] for m in chosen])
        begin, end = int(offsets[chosen[0]]), int(offsets[chosen[-1] + 1])
        blocks = _blocks(tokens, batch, begin, end) + ([] if further is None else further(batch))
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
    balanced = np.sqrt(float(total) * tokens.layout.n_weights / VECTORS_PER_PART)
    size = max(ENTRIES_PER_PART, int(balanced))
    bounds = np.unique(np.searchsorted(entries, np.arange(size, total, size)))
    for group in np.split(filled, bounds):
        if len(group):
            yield group


def _blocks(tokens: EncodedTokens, batch: Batch, begin: int, end: int) -> list[Block]:
    layout, graph = tokens.layout, batch.graph
    chain = np.flatnonzero(graph.factor_types == CHAIN)
    tables = graph.table_offsets[:-1][chain].astype(np.int64)
    blocks: list[Block] = [
        StateBlock.of(tokens, begin, end),
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
