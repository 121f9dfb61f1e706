"""Which variables form a term of a block likelihood, and which missing ones go with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.errors import InvalidInputError
from fieldfit.kernels.free_variables import assign_tree_blocks, group_missing, next_to

__all__ = [
    "MissingGroups",
    "Terms",
    "checked_blocks",
    "given_blocks",
    "single_blocks",
    "tree_blocks",
]

IntArray = NDArray[np.int32]
#: Blocks of one graph, each a tuple of its variables.
Blocks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class MissingGroups:
    """Connected groups of variables without a label, and what they leave possible.

    A group is summed out exactly if it has no cycle or at most ``max_missing`` variables.  Next to
    any other group a variable gets no term of its own; it still conditions other terms.

    Attributes
    ----------
    groups
        Group of each variable; -1 for variables with a label and for groups not summed out.
    eligible
        Variables that have a label and may have a term.
    offsets, variables
        The variables of each group.
    """

    groups: IntArray
    eligible: NDArray[np.bool_]
    offsets: IntArray
    variables: IntArray

    @classmethod
    def of(cls, graph: FactorGraph, labels: IntArray, max_missing: int) -> MissingGroups:
        """The groups of some labels."""
        groups = np.empty(graph.n_variables, dtype=np.int32)
        n_groups, cyclic = group_missing(graph.structure, labels, groups)
        missing = np.flatnonzero(groups >= 0)
        sizes = np.bincount(groups[missing], minlength=n_groups)
        order = missing[np.argsort(groups[missing], kind="stable")].astype(np.int32)
        too_large = np.append(cyclic & (sizes > max_missing), False)  # -1 is not too large
        left_out = too_large[groups]
        adjacent = np.zeros(graph.n_variables, dtype=np.bool_)
        if left_out.any():
            next_to(graph.structure, left_out, adjacent)
        groups[left_out] = -1
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return cls(groups, (labels >= 0) & ~adjacent, offsets, order)


@dataclass(frozen=True)
class Terms:
    """Sets of variables, each with the example it belongs to, in the order of the examples."""

    offsets: IntArray
    variables: IntArray
    examples: IntArray

    @classmethod
    def of(cls, batch: Batch, keys: NDArray[Any], variables: NDArray[Any]) -> Terms:
        """Variables with equal keys inside one example form a term; a variable may come twice."""
        examples = batch.variable_examples()[variables]
        order = np.lexsort((variables, keys, examples))
        keys, variables, examples = keys[order], variables[order], examples[order]
        changes = (np.diff(keys) != 0) | (np.diff(examples) != 0)
        starts = np.concatenate([[0], np.flatnonzero(changes) + 1]) if len(keys) else np.zeros(0)
        starts = starts.astype(np.int64)
        offsets = np.append(starts, len(variables)).astype(np.int32)
        return cls(offsets, variables.astype(np.int32), examples[starts].astype(np.int32))

    def chosen(self, terms: NDArray[np.bool_]) -> Terms:
        """Some of the terms."""
        sizes = np.diff(self.offsets)
        offsets = np.concatenate([[0], np.cumsum(sizes[terms])]).astype(np.int32)
        return Terms(offsets, self.variables[np.repeat(terms, sizes)], self.examples[terms])


def single_blocks(batch: Batch, chosen: NDArray[np.bool_]) -> Terms:
    """A term for each of the chosen variables."""
    variables = np.flatnonzero(chosen)
    return Terms.of(batch, variables, variables)


def tree_blocks(batch: Batch, missing: MissingGroups) -> Terms:
    """Few terms without cycles that hold every eligible variable once.

    Variables go, in the order of their indices, to the first block in which they close no cycle.
    On a grid two blocks suffice, the larger one with about two thirds of the pixels.
    """
    graph = batch.graph
    blocks = np.empty(graph.n_variables, dtype=np.int32)
    assign_tree_blocks(graph.structure, missing.eligible, missing.groups, blocks)
    variables = np.flatnonzero(blocks >= 0)
    return Terms.of(batch, blocks[variables], variables)


def given_blocks(
    batch: Batch,
    blocks: Sequence[ArrayLike] | Callable[[FactorGraph], Sequence[ArrayLike]],
    eligible: NDArray[np.bool_],
) -> Terms:
    """The blocks of the user, without the variables that are not eligible."""
    keys, members = [], []
    given: Blocks = ()
    n_variables = batch.graphs[0].n_variables
    for example, graph in enumerate(batch.graphs):
        if callable(blocks):
            given = checked_blocks(blocks(graph), graph.n_variables)
        elif graph.n_variables != n_variables:
            raise InvalidInputError(
                "blocks must be a function of the graph if examples differ in size, got index "
                f"arrays, {n_variables} variables in example 0 and {graph.n_variables} in example "
                f"{example}"
            )
        elif example == 0:
            given = checked_blocks(blocks, n_variables)
        sizes = [len(block) for block in given]
        flat = np.array([variable for block in given for variable in block], dtype=np.int64)
        keys.append(np.repeat(np.arange(len(given)), sizes))
        members.append(flat + batch.variable_offsets[example])
    key, variables = np.concatenate(keys), np.concatenate(members)
    kept = eligible[variables]
    return Terms.of(batch, key[kept], variables[kept])


def checked_blocks(blocks: Any, n_variables: int | None = None) -> Blocks:
    """Blocks as tuples of integers, each with distinct variables (of a graph, if it is known)."""
    try:
        checked = tuple(tuple(int(i) for i in np.asarray(block).ravel()) for block in blocks)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"blocks must be None, 'tree', a sequence of index arrays or a function, got {blocks!r}"
        ) from error
    for number, block in enumerate(checked):
        if len(set(block)) < len(block):
            raise InvalidInputError(f"blocks[{number}] must hold distinct variables, got {block}")
        if block and (min(block) < 0 or (n_variables is not None and max(block) >= n_variables)):
            limit = "" if n_variables is None else f"..{n_variables - 1}"
            raise InvalidInputError(
                f"blocks[{number}] must name variables 0{limit}, got {min(block)} to {max(block)}"
            )
    return checked
