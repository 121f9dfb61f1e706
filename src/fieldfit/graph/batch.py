"""Batches: many graphs as one disjoint union, with the boundaries of the examples.

One kernel call then serves ten thousand short chains as well as one large grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit._validation import require_instance, require_sequence_of
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, require_graph, selected_entries
from fieldfit.graph.ragged import offsets_of, reduce_rows, row_numbers

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """A union graph and where each example's variables and factors lie in it.

    Parameters
    ----------
    graph
        The disjoint union.
    variable_offsets, factor_offsets
        Where the variables and factors of each example begin, and where the last ones end.
    graphs
        The graphs of the examples.  `Batch.of` makes all of this from them.

    Examples
    --------
    >>> batch = Batch.of([FactorGraph.chain(3, 2), FactorGraph.chain(5, 4)])
    >>> batch.graph.n_variables, batch.n_examples
    (8, 2)
    """

    graph: FactorGraph
    variable_offsets: LongArray
    factor_offsets: LongArray
    graphs: tuple[FactorGraph, ...]

    @classmethod
    def of(cls, graphs: Sequence[FactorGraph]) -> Batch:
        """The union of several graphs, in the given order."""
        require_sequence_of("graphs", graphs, FactorGraph, "FactorGraph.chain(3, 2)")
        if len(graphs) == 0:
            raise InvalidInputError("graphs must hold at least one graph, got none")
        variable_offsets = offsets_of([g.n_variables for g in graphs])
        factor_offsets = offsets_of([g.n_factors for g in graphs])
        if len(graphs) == 1:
            union = graphs[0]
        else:
            shifts = np.repeat(variable_offsets[:-1], [g.n_slots for g in graphs])
            slots = np.concatenate([g.slot_variables for g in graphs]) + shifts
            union = FactorGraph.from_flat(
                cardinalities=np.concatenate([g.cardinalities for g in graphs]),
                slot_variables=slots,
                arities=np.concatenate([g.arities for g in graphs]),
                factor_types=np.concatenate([g.factor_types for g in graphs]),
            )
        return cls(union, variable_offsets, factor_offsets, tuple(graphs))

    @property
    def n_examples(self) -> int:
        return len(self.graphs)

    @property
    def unary_offsets(self) -> IntArray:
        """Where the unary entries of each example begin, with the end of the last."""
        return self.graph.unary_offsets[self.variable_offsets]

    @property
    def table_offsets(self) -> IntArray:
        """Where the table entries of each example begin, with the end of the last."""
        return self.graph.table_offsets[self.factor_offsets]

    @property
    def message_offsets(self) -> IntArray:
        """Where the message entries of each example begin, with the end of the last."""
        return self.graph.message_offsets[self.graph.scope_offsets[self.factor_offsets]]

    def pack(self, potentials: Sequence[Potentials]) -> Potentials:
        """Potentials of the examples, joined."""
        require_sequence_of("potentials", potentials, Potentials, "Potentials(graph)")
        if len(potentials) != self.n_examples:
            raise InvalidInputError(
                f"potentials must have {self.n_examples} entries, got {len(potentials)}"
            )
        for example, (graph, given) in enumerate(zip(self.graphs, potentials, strict=True)):
            if not given.graph.has_structure_of(graph):
                raise InvalidInputError(
                    f"potentials[{example}] must belong to {graph!r}, got {given.graph!r}"
                )
        return Potentials.from_flat(
            self.graph,
            np.concatenate([p.unary_values for p in potentials]),
            np.concatenate([p.factor_values for p in potentials]),
        )

    def split(self, beliefs: Beliefs) -> list[Beliefs]:
        """Beliefs of each example (views)."""
        require_instance("beliefs", beliefs, (Beliefs, Potentials), "result.beliefs")
        unary, table = self.unary_offsets, self.table_offsets
        return [
            Beliefs(
                self.graphs[m],
                beliefs.unary_values[unary[m] : unary[m + 1]],
                beliefs.factor_values[table[m] : table[m + 1]],
            )
            for m in range(self.n_examples)
        ]

    def scores(self, potentials: Potentials, labels: ArrayLike) -> FloatArray:
        """``s(y)`` of each example for a complete labelling of the union."""
        require_graph(self.graph, potentials)
        if self.n_examples == 1:
            return np.array([potentials.score(labels)])  # the same to the last bit
        unary, table = selected_entries(self.graph, labels)
        return self.sum_variables(potentials.unary_values[unary]) + self.sum_factors(
            potentials.factor_values[table]
        )

    def sum_variables(self, values: FloatArray) -> FloatArray:
        """Sum of a per-variable quantity over each example."""
        return reduce_rows(np.add, values, self.variable_offsets)

    def sum_factors(self, values: FloatArray) -> FloatArray:
        """Sum of a per-factor quantity over each example."""
        return reduce_rows(np.add, values, self.factor_offsets)

    def max_variables(self, values: FloatArray) -> FloatArray:
        """Largest value of a per-variable quantity in each example (0 if it has none)."""
        return reduce_rows(np.maximum, values, self.variable_offsets)

    def variable_examples(self) -> IntArray:
        """Example of every variable of the union."""
        return row_numbers(self.variable_offsets).astype(np.int32)
