"""Which weights the attributes of a skip-chain's edges have, and where they lie in its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError
from fieldfit.estimators._chain_features import TokenFeatures
from fieldfit.estimators._chain_layout import AttributeLayout, attribute_layout
from fieldfit.estimators._chain_names import describe_pair
from fieldfit.estimators._skip_edges import (
    EDGE_BLOCKS,
    SKIP,
    EdgeRows,
    Joints,
    all_edges,
    edge_attributes,
    edge_labels,
)

__all__ = ["EdgeWeights"]

LabelArray = NDArray[np.int32]
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
                pair = describe_pair(self.groups[kind], group, classes, mark)
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
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], groups: Groups) -> EdgeWeights:
        """Inverse of `arrays`."""
        layouts = {
            kind: AttributeLayout(
                n_parameters(groups[kind]), arrays[f"{name}_offsets"], arrays[f"{name}_labels"]
            )
            for kind, name in EDGE_BLOCKS.items()
        }
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
