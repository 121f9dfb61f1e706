"""Kernels of Gibbs sweeps: variables drawn in turn from their conditional distributions.

A sweep visits the variables colour by colour; variables of one colour share no factor, so they
are independent given the others and any split of a colour among threads gives the same chain.
The draw of a variable is named by (key of the chain, number of the sweep, variable), see
`fieldfit.numeric.random_numbers`, so the result does not depend on threads at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.structure import Structure
from fieldfit.inference.conditioning import BinaryPairwise, GeneralModel
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.random_numbers import random_uniform
from fieldfit.numeric.simd import fast_exp


class Chains(NamedTuple):
    """Several chains on one graph."""

    labels: IntArray  # (n_chains, n_variables), changed in place
    keys: NDArray[np.uint64]  # (n_chains,) streams of random numbers


class Record(NamedTuple):
    """What a run adds up after burn-in, one row for each chain."""

    conditional_sums: FloatArray  # (n_chains, unary entries): sums of p(y_i | others)
    label_counts: IntArray  # (n_chains, unary entries)
    factor_counts: IntArray  # (table entries,) over all chains of one thread


@kernel(inline="always")
def _add_entries(
    weights: FloatArray, tables: FloatArray, entry: np.uint64, stride: np.uint64, n_labels: int
) -> None:
    """Add every ``stride``-th entry of a table; unsigned, so that no index needs a test."""
    for y in range(n_labels):
        weights[y] += tables[entry]
        entry += stride


@kernel(inline="always")
def _draw(weights: FloatArray, n_labels: int, current: int, uniform: float) -> tuple[int, float]:
    """Turn log weights into weights and draw a label; the label and the sum of weights.

    The label is the last one that has weight and begins at or below the threshold: never one
    of weight zero, even if rounding lifts the threshold to the sum.
    """
    largest = -np.inf
    for y in range(n_labels):
        largest = max(largest, weights[y])
    if largest == -np.inf:  # finite terms that overflowed together: stay where we are
        weights[current] = 0.0
        largest = 0.0
    total = 0.0
    for y in range(n_labels):
        weights[y] = fast_exp(weights[y] - largest)
        total += weights[y]
    threshold = uniform * total
    running = 0.0
    label = 0
    for y in range(n_labels):
        if weights[y] > 0.0 and running <= threshold:
            label = y
        running += weights[y]
    return label, total


@kernel
def update_general(
    model: GeneralModel,
    begin: int,
    end: int,
    chains: Chains,
    chain: int,
    sweep: int,
    recording: bool,
    record: Record,
) -> None:
    """Update variables ``begin:end`` of the sweep's order in one chain of any model."""
    structure = model.structure
    labels = chains.labels[chain]
    key = chains.keys[chain]
    counter = sweep * len(labels)
    weights = np.empty(model.max_labels)
    for variable in model.variables[begin:end]:
        n_labels = structure.cardinalities[variable]
        offset = structure.unary_offsets[variable]
        for y in range(n_labels):
            weights[y] = model.unary[offset + y]
        for position in range(
            structure.variable_slot_offsets[variable],
            structure.variable_slot_offsets[variable + 1],
        ):
            slot = structure.variable_slots[position]
            factor = structure.slot_factors[slot]
            # Horner's rule with own label 0; ``stride`` is the distance between own labels
            index = np.uint64(0)
            stride = np.uint64(0)
            for other in range(
                structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
            ):
                other_variable = structure.slot_variables[other]
                cardinality = np.uint64(structure.cardinalities[other_variable])
                index *= cardinality
                if other == slot:
                    stride = np.uint64(1)
                else:
                    index += np.uint64(labels[other_variable])
                    stride *= cardinality
            index += np.uint64(structure.table_offsets[factor])
            _add_entries(weights, model.tables, index, stride, n_labels)
        uniform = random_uniform(key, counter + variable)
        label, total = _draw(weights, n_labels, labels[variable], uniform)
        labels[variable] = label
        if recording:
            scale = 1.0 / total
            for y in range(n_labels):
                record.conditional_sums[chain, offset + y] += weights[y] * scale
            record.label_counts[chain, offset + label] += 1


@kernel
def update_binary(
    model: BinaryPairwise,
    begin: int,
    end: int,
    chains: Chains,
    chain: int,
    sweep: int,
    recording: bool,
    record: Record,
) -> None:
    """`update_general` for a `BinaryPairwise` model."""
    labels = chains.labels[chain]
    key = chains.keys[chain]
    counter = sweep * len(labels)
    for row in range(begin, end):
        field = model.fields[row]
        for entry in range(model.offsets[row], model.offsets[row + 1]):
            field += model.couplings[entry] * labels[model.neighbors[entry]]
        # exp of a negative number: no overflow, and infinite fields give exactly 0 and 1
        ratio = fast_exp(-abs(field))
        larger = 1.0 / (1.0 + ratio)
        zero = ratio * larger if field > 0.0 else larger
        variable = model.variables[row]
        label = np.int32(random_uniform(key, counter + variable) >= zero)
        labels[variable] = label
        if recording:
            record.conditional_sums[chain, 2 * variable] += zero
            record.conditional_sums[chain, 2 * variable + 1] += 1.0 - zero
            record.label_counts[chain, 2 * variable + label] += 1


@kernel
def count_factors(
    structure: Structure, begin: int, end: int, chains: Chains, chain: int, factor_counts: IntArray
) -> None:
    """Add one to the entry that a chain's labels select in each table of ``begin:end``."""
    labels = chains.labels[chain]
    for factor in range(begin, end):
        index = 0
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            variable = structure.slot_variables[slot]
            index = index * structure.cardinalities[variable] + labels[variable]
        factor_counts[structure.table_offsets[factor] + index] += 1


@kernel
def run_general_chains(
    structure: Structure,
    model: GeneralModel,
    chains: Chains,
    first_sweep: int,
    n_sweeps: int,
    recording: bool,
    record: Record,
) -> None:
    """Whole sweeps of every chain."""
    n_factors = len(structure.scope_offsets) - 1
    n_variables = len(model.variables)
    for chain in range(len(chains.keys)):
        for sweep in range(first_sweep, first_sweep + n_sweeps):
            update_general(model, 0, n_variables, chains, chain, sweep, recording, record)
            if recording:
                count_factors(structure, 0, n_factors, chains, chain, record.factor_counts)


@kernel
def run_binary_chains(
    structure: Structure,
    model: BinaryPairwise,
    chains: Chains,
    first_sweep: int,
    n_sweeps: int,
    recording: bool,
    record: Record,
) -> None:
    """`run_general_chains` for a `BinaryPairwise` model."""
    n_factors = len(structure.scope_offsets) - 1
    n_variables = len(model.variables)
    for chain in range(len(chains.keys)):
        for sweep in range(first_sweep, first_sweep + n_sweeps):
            update_binary(model, 0, n_variables, chains, chain, sweep, recording, record)
            if recording:
                count_factors(structure, 0, n_factors, chains, chain, record.factor_counts)
