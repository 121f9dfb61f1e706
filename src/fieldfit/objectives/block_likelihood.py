r"""Composite likelihood: conditional likelihoods of blocks as the likelihood of a derived graph.

    value = - sum_b log p(y_b | y_observed without b)
          = sum_b [log Z(b and the missing variables around it free) - log Z(only those free)]

Everything else is fixed at its label, which turns each factor into a table over its free variables:
a selection of its own entries.  Those selections are found once for given labels; a value is then a
gather, one inference on the union of all terms, and a scatter.  Terms without cycles are solved by
message passing along the tree, the others by a junction tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import integers
from fieldfit._typing import BoolArray, FloatArray, IntArray
from fieldfit._validation import shown
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import MAX_ENTRIES, FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.ragged import offsets_of, rows
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.objectives.base import Inference
from fieldfit.objectives.block_conditioning import (
    Derived,
    add_at,
    add_from,
    assign_tree_blocks,
    condition_terms,
    group_missing,
    next_to,
)
from fieldfit.objectives.likelihood import Likelihood

__all__ = [
    "Conditioned",
    "MissingGroups",
    "Terms",
    "checked_blocks",
    "given_blocks",
    "single_blocks",
    "tree_blocks",
]

# -- Terms: blocks of variables, with the missing ones next to them ------------------------

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
    eligible: BoolArray
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
        offsets = offsets_of(sizes).astype(np.int32)
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

    def chosen(self, terms: BoolArray) -> Terms:
        """Some of the terms."""
        sizes = np.diff(self.offsets)
        offsets = offsets_of(sizes[terms]).astype(np.int32)
        return Terms(offsets, self.variables[np.repeat(terms, sizes)], self.examples[terms])


def single_blocks(batch: Batch, chosen: BoolArray) -> Terms:
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
    eligible: BoolArray,
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
    if isinstance(blocks, (str, bytes, dict)) or not hasattr(blocks, "__iter__"):
        raise InvalidInputError(
            "blocks must be None, 'tree', a sequence of index arrays or a function, "
            f"got {shown(blocks)}"
        )
    checked = tuple(
        tuple(integers(f"blocks[{number}]", block).ravel().tolist())
        for number, block in enumerate(blocks)
    )
    for number, block in enumerate(checked):
        if len(set(block)) < len(block):
            raise InvalidInputError(f"blocks[{number}] must hold distinct variables, got {block}")
        if block and (min(block) < 0 or (n_variables is not None and max(block) >= n_variables)):
            limit = "" if n_variables is None else f"..{n_variables - 1}"
            raise InvalidInputError(
                f"blocks[{number}] must name variables 0{limit}, got {min(block)} to {max(block)}"
            )
    return checked


# -- Derived graphs of the terms -----------------------------------------------------------


@dataclass(frozen=True)
class Conditioned:
    """Terms as a batch of derived graphs, with the source of every entry.

    ``examples`` maps the examples of ``batch`` (those that have terms) to the original ones.
    """

    batch: Batch
    examples: IntArray
    labels: IntArray
    unary_source: IntArray
    derived: Derived
    inference: Inference

    @classmethod
    def of(
        cls, batch: Batch, labels: IntArray, missing: MissingGroups, terms: Terms
    ) -> list[Conditioned]:
        """Derived batches of the terms without cycles and of the others (those there are)."""
        if len(terms.examples) == 0:
            return []
        cyclic = _derive(batch.graph, labels, missing, terms)[1]
        parts = []
        for chosen, inference in ((~cyclic, SumProduct()), (cyclic, Exact())):
            if chosen.any():
                parts.append(cls._build(batch, labels, missing, terms.chosen(chosen), inference))
        return parts

    @classmethod
    def _build(
        cls,
        batch: Batch,
        labels: IntArray,
        missing: MissingGroups,
        terms: Terms,
        inference: Inference,
    ) -> Conditioned:
        source = batch.graph
        derived, _, n_variables, n_factors = _derive(source, labels, missing, terms, fill=True)
        cardinalities = source.cardinalities[derived.variables]
        examples, first = np.unique(terms.examples, return_index=True)
        ends = np.append(first, len(terms.examples))
        variable_offsets = offsets_of(n_variables)[ends]
        factor_offsets = offsets_of(n_factors)[ends]
        graph = FactorGraph.from_flat(cardinalities, derived.slot_variables, derived.arities)
        return cls(
            batch=Batch(
                graph,
                variable_offsets,
                factor_offsets,
                tuple(_parts(graph, variable_offsets, factor_offsets)),
            ),
            examples=examples.astype(np.int32),
            labels=labels[derived.variables],
            unary_source=rows(source.unary_offsets, derived.variables).astype(np.int32),
            derived=derived,
            inference=inference,
        )

    def add_to(
        self,
        potentials: Potentials,
        folded: FloatArray,
        init: Any,
        values: FloatArray,
        unary: FloatArray,
        factors: FloatArray,
        converged: BoolArray,
    ) -> Any:
        """Add values and gradient of all terms; the state for the next evaluation.

        ``folded`` is the unary part with factors of arity one added in; their gradient is left
        to the caller.
        """
        tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
        derived_unary = folded[self.unary_source]
        add_from(tables, self.derived.single_source, self.derived.single_target, derived_unary)
        gathered = Potentials.from_flat(
            self.batch.graph, derived_unary, tables[self.derived.table_source]
        )
        evaluation = Likelihood(self.inference).evaluate(self.batch, gathered, self.labels, init)
        assert evaluation.values is not None
        values[self.examples] += evaluation.values
        converged[self.examples] &= evaluation.converged_examples
        gradient = evaluation.gradient
        add_at(gradient.unary_values, self.unary_source, unary)
        add_from(
            gradient.unary_values, self.derived.single_target, self.derived.single_source, factors
        )
        add_at(gradient.factor_values, self.derived.table_source, factors)
        return evaluation.state


def _derive(
    graph: FactorGraph, labels: IntArray, missing: MissingGroups, terms: Terms, fill: bool = False
) -> tuple[Derived, BoolArray, IntArray, IntArray]:
    """The derived graph (empty without ``fill``); which terms have cycles, and their sizes."""
    n_terms = len(terms.examples)
    cyclic = np.empty(n_terms, dtype=np.bool_)
    n_variables = np.empty(n_terms, dtype=np.int32)
    n_factors = np.empty(n_terms, dtype=np.int32)

    def run(derived: Derived, write: bool) -> tuple[int, ...]:
        return condition_terms(
            graph.structure, labels, missing.groups, missing.offsets, missing.variables,
            terms.offsets, terms.variables, cyclic, n_variables, n_factors, write, derived,
        )  # fmt: skip

    empty = np.zeros(0, dtype=np.int32)
    derived = Derived(empty, empty, empty, empty, empty, empty)
    counts = run(derived, False)
    if fill:
        if max(counts) > MAX_ENTRIES:
            raise TooLargeError(
                f"the blocks need tables of {max(counts)} entries, the limit is {MAX_ENTRIES}"
            )
        sizes = (*counts, counts[-1])  # added entries have a source and a target
        derived = Derived(*(np.empty(size, dtype=np.int32) for size in sizes))
        run(derived, True)
    return derived, cyclic, n_variables, n_factors


def _parts(
    graph: FactorGraph, variable_offsets: NDArray[Any], factor_offsets: NDArray[Any]
) -> Sequence[FactorGraph]:
    """The graph of each example of a union."""
    if len(variable_offsets) == 2:
        return [graph]
    slots = graph.scope_offsets[factor_offsets]
    return [
        FactorGraph.from_flat(
            graph.cardinalities[variable_offsets[m] : variable_offsets[m + 1]],
            graph.slot_variables[slots[m] : slots[m + 1]] - np.int32(variable_offsets[m]),
            graph.arities[factor_offsets[m] : factor_offsets[m + 1]],
        )
        for m in range(len(variable_offsets) - 1)
    ]
