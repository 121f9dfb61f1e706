r"""Concave free energy with an entropy weight for every configuration, and its Lagrangian dual.

    max_b  <th, b> - sum_a sum_y w_a(y) b_a(y) log b_a(y) - sum_i sum_y w_i(y) b_i(y) log b_i(y)

over locally consistent beliefs, all weights positive.  With a Lagrange multiplier ``lam_ai(y_i)``
for each demand that the margin of ``b_a`` be ``b_i`` the dual is

    G(lam) = sum_a phi_a(th_a + sum_i lam_ai) + sum_i phi_i(th_i - sum_a lam_ai),

``phi`` as in `weighted_entropy`: convex, without constraints, never below the maximum, and
with the gradient "margins of ``b_a`` minus ``b_i``" (the marginalisation residual) at the beliefs
that the multipliers make.  Its second derivative is that of `marginal_hessian`.

Evidence and hard zeros are scores of ``-inf``; labels that hard zeros rule out by arc consistency,
and the configurations that hold them, are ruled out beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._typing import FloatArray
from fieldfit.entropy.configuration_weights import EntropyWeights
from fieldfit.entropy.counting_numbers import Entropy
from fieldfit.entropy.weighted_entropy import (
    add_to_margins,
    add_to_tables,
    subtract_from_unary,
    weighted_beliefs,
)
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, Potentials, add_to_single_factors
from fieldfit.graph.ragged import reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.conditioning import condition
from fieldfit.inference.second_order.kkt_pattern import slot_entries

__all__ = ["ConvexProblem", "DualPoint", "Multipliers", "positive_weights", "start_messages"]


@dataclass(frozen=True)
class Multipliers:
    """What a later run can start from."""

    messages: FloatArray


@dataclass(frozen=True, eq=False)
class DualPoint:
    """The dual at some multipliers: beliefs (and their logarithms), values by example, gradient."""

    messages: FloatArray
    unary: FloatArray
    log_unary: FloatArray
    factors: FloatArray
    log_factors: FloatArray
    values: FloatArray
    residual: FloatArray  # the gradient: margins of factor beliefs minus beliefs of variables


class ConvexProblem:
    """The problem of a batch: scores with evidence, weights, and sums over examples."""

    def __init__(
        self,
        batch: Batch,
        unary: FloatArray,
        tables: FloatArray,
        unary_weights: FloatArray,
        factor_weights: FloatArray,
    ) -> None:
        """Scores with evidence, ``-inf`` where impossible; weights positive where they matter."""
        graph = batch.graph
        self.batch, self.graph = batch, graph
        self.entries, self.is_single = slot_entries(graph)
        self.unary = unary
        self.impossible = np.isneginf(unary)
        self._is_linking = graph.arities >= 2
        self.is_linking_entry = np.repeat(self._is_linking, np.diff(graph.table_offsets))
        self.tables = np.where(self.is_linking_entry, tables, 0.0)
        if self.impossible.any():
            ruled_out = np.where(self.impossible, -np.inf, 0.0)[self.entries]
            add_to_tables(graph.structure, ruled_out, self.tables)
        self.unary_weights = unary_weights
        # factors without entropy take part as constants of no effect
        self.factor_weights = np.where(self.is_linking_entry, factor_weights, 1.0)
        constant = graph.arities == 0
        self._constants = np.zeros(graph.n_factors)
        self._constants[constant] = tables[graph.table_offsets[:-1][constant]]
        #: Factors of arity zero, by example.
        self.constants = batch.sum_factors(self._constants)
        self._unary_sizes = np.diff(graph.unary_offsets[batch.variable_offsets])
        self._table_sizes = np.diff(graph.table_offsets[batch.factor_offsets])
        slots = graph.scope_offsets[batch.factor_offsets]
        self._message_ends = graph.message_offsets[slots]

    @classmethod
    def of(
        cls,
        batch: Batch,
        potentials: Potentials,
        weights: EntropyWeights,
        observed: dict[int, int] | ArrayLike | None,
    ) -> ConvexProblem:
        """The problem of potentials with evidence."""
        model, _ = condition(batch.graph, potentials, observed)
        return cls(
            batch, model.unary, potentials.factor_values, weights.unary_values,
            weights.factor_values,
        )  # fmt: skip

    # -- the dual -----------------------------------------------------------------------------

    def dual(self, messages: FloatArray, temperature: FloatArray) -> DualPoint:
        """Value, beliefs and gradient, with ``temperature`` added to every weight of an example."""
        graph, structure = self.graph, self.graph.structure
        unary_weights, factor_weights = self.tempered_weights(temperature)
        scores = self.unary.copy()
        subtract_from_unary(structure, messages, scores)
        unary, log_unary = np.empty(len(scores)), np.empty(len(scores))
        unary_values = np.empty(graph.n_variables)
        weighted_beliefs(graph.unary_offsets, scores, unary_weights, unary, log_unary, unary_values)
        tables = self.tables.copy()
        add_to_tables(structure, messages, tables)
        factors, log_factors = np.empty(len(tables)), np.empty(len(tables))
        factor_values = np.empty(graph.n_factors)
        weighted_beliefs(
            graph.table_offsets, tables, factor_weights, factors, log_factors, factor_values
        )
        residual = self.residual(unary, factors)
        factor_values[~self._is_linking] = self._constants[~self._is_linking]
        values = self.batch.sum_variables(unary_values) + self.batch.sum_factors(factor_values)
        return DualPoint(messages, unary, log_unary, factors, log_factors, values, residual)

    def residual(self, unary: FloatArray, factors: FloatArray) -> FloatArray:
        """Margins of factor beliefs minus beliefs of variables, by message entry."""
        residual = np.zeros(len(self.entries))
        add_to_margins(self.graph.structure, factors, residual)
        residual -= unary[self.entries]
        residual[self.is_single] = 0.0
        return residual

    def tempered_weights(self, temperature: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weights of variables and factors with the temperature of each example added."""
        if not temperature.any():
            return self.unary_weights, self.factor_weights
        return (
            self.unary_weights + np.repeat(temperature, self._unary_sizes),
            self.factor_weights + np.repeat(temperature, self._table_sizes),
        )

    def gaps(self, residual: FloatArray) -> FloatArray:
        """For each example the largest distance between a margin and its belief."""
        return self._by_example(np.maximum, np.abs(residual))

    def slopes(self, residual: FloatArray, direction: FloatArray) -> FloatArray:
        """Derivative of the dual along a direction, by example."""
        return self._by_example(np.add, residual * direction)

    def by_message(self, values: NDArray[Any]) -> NDArray[Any]:
        """A number of each example for each of its message entries."""
        return np.repeat(values, np.diff(self._message_ends))

    def by_unary(self, values: NDArray[Any]) -> NDArray[Any]:
        """The same for unary entries."""
        return np.repeat(values, self._unary_sizes)

    def by_table(self, values: NDArray[Any]) -> NDArray[Any]:
        """The same for table entries."""
        return np.repeat(values, self._table_sizes)

    def start(self) -> FloatArray:
        """Multipliers that split the scores of a variable between its factors, by mean weights."""
        graph = self.graph
        mean_factor = np.zeros(graph.n_factors)
        if graph.n_factors:
            sums = np.add.reduceat(self.factor_weights, graph.table_offsets[:-1])
            mean_factor = np.where(self._is_linking, sums / np.diff(graph.table_offsets), 0.0)
        total = np.zeros(graph.n_variables)
        if graph.n_variables:
            total += np.add.reduceat(self.unary_weights, graph.unary_offsets[:-1])
            total /= graph.cardinalities
            total += np.bincount(
                graph.slot_variables, mean_factor[graph.slot_factors], graph.n_variables
            )
        fraction = mean_factor[graph.slot_factors] / total[graph.slot_variables]
        scores = np.where(self.impossible, 0.0, self.unary)[self.entries]
        return np.asarray(scores * np.repeat(fraction, np.diff(graph.message_offsets)))

    def largest_by_example(self, unary: FloatArray, tables: FloatArray) -> FloatArray:
        """The largest of some non-negative numbers, one for each entry, of each example."""
        return np.maximum(
            reduce_rows(np.maximum, unary, self.graph.unary_offsets[self.batch.variable_offsets]),
            reduce_rows(np.maximum, tables, self.graph.table_offsets[self.batch.factor_offsets]),
        )

    def ranges(self) -> FloatArray:
        """The largest size of a finite score of each example."""
        sizes = [
            np.where(np.isfinite(values), np.abs(values), 0.0)
            for values in (self.unary, self.tables)
        ]
        return self.largest_by_example(*sizes)

    def least_weights(self) -> FloatArray:
        """The smallest weight of each example."""
        inverse = self.largest_by_example(1.0 / self.unary_weights, 1.0 / self.factor_weights)
        return np.asarray(1.0 / np.maximum(inverse, 1e-300))

    # -- the primal ---------------------------------------------------------------------------

    def beliefs(self, unary: FloatArray, factors: FloatArray) -> Beliefs:
        """Beliefs with those of factors of arity zero and one filled in (in place)."""
        graph = self.graph
        factors[~self.is_linking_entry] = 0.0
        factors[graph.table_offsets[:-1][graph.arities == 0]] = 1.0
        add_to_single_factors(graph, unary, factors)
        return Beliefs(graph, unary, factors)

    def primal(self, unary: FloatArray, factors: FloatArray, temperature: FloatArray) -> FloatArray:
        """The value of some beliefs by example, consistent or not."""
        graph = self.graph
        unary_weights, factor_weights = self.tempered_weights(temperature)
        terms = []
        for beliefs, scores, weights, offsets in (
            (unary, self.unary, unary_weights, graph.unary_offsets[self.batch.variable_offsets]),
            (factors, self.tables, factor_weights,
             graph.table_offsets[self.batch.factor_offsets]),
        ):  # fmt: skip
            used = beliefs > 0.0
            logs = np.log(beliefs, out=np.zeros(len(beliefs)), where=used)
            gains = np.where(used, scores, 0.0) - weights * logs
            if beliefs is factors:
                gains[~self.is_linking_entry] = 0.0
            terms.append(reduce_rows(np.add, beliefs * gains, offsets))
        return np.asarray(terms[0] + terms[1] + self.constants)

    def _by_example(self, combine: np.ufunc, values: FloatArray) -> FloatArray:
        return reduce_rows(combine, values, self._message_ends)


def positive_weights(
    batch: Batch, entropy: Entropy, weights: EntropyWeights | None
) -> EntropyWeights:
    """The weights that were given, or those of an entropy, if all are positive."""
    if weights is None:
        weights = EntropyWeights.of(entropy, batch.graph)
        if not weights.is_positive:
            raise InvalidInputError(
                f"entropy must have positive weights for every variable and factor, got {entropy!r}"
            )
    if not weights.graph.has_structure_of(batch.graph):
        raise InvalidInputError(
            f"weights must belong to the given graph ({batch.graph!r}), got {weights.graph!r}"
        )
    if not weights.is_positive:
        raise InvalidInputError("weights must all be above 0, got others")
    return weights


def start_messages(problem: ConvexProblem, init: InferenceResult | None) -> FloatArray | None:
    """The multipliers of an earlier result, if it has any; its structure must fit."""
    if init is None:
        return None
    if not init.beliefs.graph.has_structure_of(problem.graph):
        raise InvalidInputError("init must be a result on a graph of this structure")
    if not isinstance(init.state, Multipliers):
        return None
    return init.state.messages.copy()
