r"""Conditional likelihoods of blocks of variables, as the likelihood of a smaller, derived graph.

    value = - sum_b log p(y_b | y_observed without b)
          = sum_b [log Z(b and the missing variables around it free) - log Z(only those free)]

Everything else is fixed at its label, which turns each factor into a table over its free variables:
a selection of its own entries.  Those selections are found once for given labels; a value is then a
gather, one inference on the union of all terms, and a scatter.  Terms without cycles are solved by
message passing along the tree, the others by a clique tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import MAX_ENTRIES, FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import TooLargeError
from fieldfit.inference.exact import Exact
from fieldfit.inference.sum_product import SumProduct
from fieldfit.kernels.conditioning import Derived, add_at, add_from, condition_terms
from fieldfit.objective._base import Inference
from fieldfit.objective._blocks import MissingGroups, Terms
from fieldfit.objective.likelihood import Likelihood

__all__ = ["Conditioned"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


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
        variable_offsets = np.concatenate([[0], np.cumsum(n_variables)])[ends]
        factor_offsets = np.concatenate([[0], np.cumsum(n_factors)])[ends]
        graph = FactorGraph.from_flat(cardinalities, derived.slot_variables, derived.arities)
        starts = np.repeat(source.unary_offsets[derived.variables], cardinalities)
        within = np.arange(len(starts)) - np.repeat(graph.unary_offsets[:-1], cardinalities)
        return cls(
            batch=Batch(
                graph,
                variable_offsets,
                factor_offsets,
                tuple(_parts(graph, variable_offsets, factor_offsets)),
            ),
            examples=examples.astype(np.int32),
            labels=labels[derived.variables],
            unary_source=(starts + within).astype(np.int32),
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
        converged: NDArray[np.bool_],
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
) -> tuple[Derived, NDArray[np.bool_], IntArray, IntArray]:
    """The derived graph (empty without ``fill``); which terms have cycles, and their sizes."""
    n_terms = len(terms.examples)
    cyclic = np.empty(n_terms, dtype=np.bool_)
    n_variables = np.empty(n_terms, dtype=np.int32)
    n_factors = np.empty(n_terms, dtype=np.int32)

    def run(derived: Derived, write: bool) -> tuple[int, ...]:
        return condition_terms(  # type: ignore[no-any-return]
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
