"""Mean field's free energy as a function of the beliefs of variables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.errors import InvalidInputError
from fieldfit.inference._relaxation import example_ranges
from fieldfit.kernels.product import product_tables
from fieldfit.kernels.product_energy import evaluate_product_energy
from fieldfit.kernels.relaxation import sum_examples

__all__ = ["ProductEnergy"]

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]


class ProductEnergy:
    """The free energy of a batch of products: an `Evaluate`, with the beliefs of its last answers.

    ``unary`` are the potentials of variables, factors of arity one included; ``tables`` must be
    finite.
    """

    #: Nothing is solved by iteration, so there is nothing to start from.
    vectors: FloatArray | None = None

    def __init__(self, batch: Batch, unary: FloatArray, tables: FloatArray) -> None:
        if not np.isfinite(tables).all():
            raise InvalidInputError(
                "potentials must have finite tables for a product distribution that starts at "
                "the data, got -inf"
            )
        graph = batch.graph
        self.batch = batch
        self._unary = np.require(unary, np.float64, ["C", "W"])
        self._tables = np.require(tables, np.float64, ["C", "W"])
        self._max_arity = int(graph.arities.max(initial=1))
        self.beliefs = np.empty(int(graph.unary_offsets[-1]))
        self._variable_terms = np.zeros(graph.n_variables)
        self._factor_terms = np.zeros(graph.n_factors)

    def __call__(
        self, log_unary: FloatArray, examples: LongArray, targets: FloatArray
    ) -> FloatArray:
        """Free energies of these examples."""
        batch = self.batch
        evaluate_product_energy(
            batch.graph.structure,
            self._unary,
            self._tables,
            self._max_arity,
            log_unary,
            example_ranges(batch.variable_offsets, examples),
            example_ranges(batch.factor_offsets, examples),
            self.beliefs,
            targets,
            self._variable_terms,
            self._factor_terms,
        )
        energies = np.zeros(len(examples))
        sum_examples(self._variable_terms, batch.variable_offsets, examples, energies)
        sum_examples(self._factor_terms, batch.factor_offsets, examples, energies)
        return energies

    def tables(self) -> FloatArray:
        """Factor beliefs at the last point at which each example was evaluated (a new array)."""
        graph = self.batch.graph
        filled, expectations = np.empty(int(graph.table_offsets[-1])), np.empty(graph.n_factors)
        product_tables(graph.structure, self.beliefs, self._tables, filled, expectations)
        return filled
