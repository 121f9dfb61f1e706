"""Mean field's free energy of a product distribution, and its gradient.

    F(q) = sum_i <q_i, log q_i - th_i> - sum_a E_q[th_a]
    target_i(y_i) = th_i(y_i) + sum_{a on i} E_{q without i}[th_a | y_i]

so that ``dF/dq_i = log q_i - target_i`` up to a constant: a belief that equals its target is the
coordinate update of mean field.  All targets come from the same beliefs, in one pass over the
tables.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray, LongArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.structure import Structure
from fieldfit.inference.free_energy.binary_pair_fitting import variable_beliefs
from fieldfit.inference.free_energy.natural_gradient import example_ranges, sum_examples
from fieldfit.inference.mean_field.mean_field_sweeps import product_tables
from fieldfit.numeric.compile import kernel

__all__ = ["MeanFieldEnergy", "evaluate_mean_field_energy"]


@kernel
def evaluate_mean_field_energy(
    structure: Structure,
    unary: FloatArray,
    tables: FloatArray,
    max_arity: int,
    log_beliefs: FloatArray,
    variable_ranges: LongArray,
    factor_ranges: LongArray,
    beliefs: FloatArray,
    targets: FloatArray,
    variable_terms: FloatArray,
    factor_terms: FloatArray,
) -> None:
    """Terms of the free energy and targets in some ranges; tables must be finite."""
    for run in range(len(variable_ranges)):
        begin, end = variable_ranges[run]
        variable_beliefs(structure, log_beliefs, begin, end, beliefs)
        for variable in range(begin, end):
            term = 0.0
            for z in range(
                structure.unary_offsets[variable], structure.unary_offsets[variable + 1]
            ):
                targets[z] = unary[z]
                if beliefs[z] > 0.0:
                    term += beliefs[z] * (log_beliefs[z] - unary[z])
            variable_terms[variable] = term
    for run in range(len(factor_ranges)):
        begin, end = factor_ranges[run]
        _add_expected_tables(
            structure, tables, max_arity, beliefs, begin, end, targets, factor_terms
        )


@kernel
def _add_expected_tables(
    structure: Structure,
    tables: FloatArray,
    max_arity: int,
    beliefs: FloatArray,
    begin: int,
    end: int,
    fields: FloatArray,
    terms: FloatArray,
) -> None:
    """Add the fields of some factors, and set their ``- E_q[th_a]``; those of arity one are 0.

    (They are part of ``unary``.)
    """
    offsets = np.empty(max_arity, np.int64)
    sizes = np.empty(max_arity, np.int64)
    digits = np.empty(max_arity, np.int64)
    before = np.empty(max_arity + 1)
    for factor in range(begin, end):
        first = structure.scope_offsets[factor]
        arity = structure.scope_offsets[factor + 1] - first
        table = structure.table_offsets[factor]
        if arity == 1:
            terms[factor] = 0.0
            continue
        if arity == 2:
            left, right = structure.slot_variables[first], structure.slot_variables[first + 1]
            terms[factor] = -_add_pair(
                beliefs,
                tables,
                fields,
                np.uint64(structure.unary_offsets[left]),
                np.uint64(structure.unary_offsets[right]),
                np.uint64(structure.cardinalities[left]),
                np.uint64(structure.cardinalities[right]),
                np.uint64(table),
            )
            continue
        n_entries = 1
        for position in range(arity):
            variable = structure.slot_variables[first + position]
            offsets[position] = structure.unary_offsets[variable]
            sizes[position] = structure.cardinalities[variable]
            digits[position] = 0
            n_entries *= sizes[position]
        expected = 0.0
        for entry in range(table, table + n_entries):
            before[0] = 1.0
            for position in range(arity):
                before[position + 1] = (
                    before[position] * beliefs[offsets[position] + digits[position]]
                )
            expected += before[arity] * tables[entry]
            after = tables[entry]
            for position in range(arity - 1, -1, -1):
                place = offsets[position] + digits[position]
                fields[place] += before[position] * after
                after *= beliefs[place]
            for position in range(arity - 1, -1, -1):
                digits[position] += 1
                if digits[position] < sizes[position]:
                    break
                digits[position] = 0
        terms[factor] = -expected


@kernel
def _add_pair(
    beliefs: FloatArray,
    tables: FloatArray,
    fields: FloatArray,
    left: np.uint64,
    right: np.uint64,
    n_left: np.uint64,
    n_right: np.uint64,
    table: np.uint64,
) -> float:
    """The same for a factor of two variables; returns its expectation."""
    expected = 0.0
    for y in range(n_left):
        own = beliefs[left + y]
        inside = 0.0
        for z in range(n_right):
            value = tables[table]
            table += np.uint64(1)
            inside += beliefs[right + z] * value
            fields[right + z] += own * value
        fields[left + y] += inside
        expected += own * inside
    return expected


class MeanFieldEnergy:
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
        evaluate_mean_field_energy(
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
