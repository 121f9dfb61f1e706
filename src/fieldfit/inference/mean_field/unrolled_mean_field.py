r"""Unrolled mean field: a fixed number of sweeps and its exact backward pass (back-propagation).

The sweeps are the coordinate updates of `MeanField` from uniform beliefs, variable by variable in
the order of colours.  With damping ``d`` and ``g[x]`` for the derivative of the final value by
``x``,

    forward    e_j(y_j) = th_j(y_j) + sum_{a on j, y_a \ y_j} th_a(y_a) prod_{i != j} b_i(y_i)
               p = exp(e_j) / sum exp(e_j),    b_j = (1 - d) p + d b_j
    backward   h = (1 - d) p (g - <g, p>)  with g = g[b_j];    g[b_j] = d g;    g[th_j] += h;
               g[th_a](y_a) += h(y_j) prod_{i != j} b_i(y_i);
               g[b_i](y_i) += sum_{y_a \ y_i} h(y_j) th_a(y_a) prod_{k != i, j} b_k(y_k)

The backward pass visits variables in the reverse order, and each takes back the belief it had
before the sweep; the others then have the beliefs that its update has seen.  Tables must be finite.
See `UnrolledSumProduct` for the idea and the references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit._validation import require_integer, require_number
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, Potentials, add_to_single_factors, require_graph
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.graph.structure import Structure
from fieldfit.inference.base import Evidence, Inference, Progress, require_batch
from fieldfit.inference.conditioning import BinaryPairwise, GeneralModel, condition, sweep_form
from fieldfit.inference.mean_field.mean_field import product_bound
from fieldfit.inference.mean_field.mean_field_sweeps import (
    binary_sweeps,
    general_sweeps,
    product_tables,
)
from fieldfit.inference.messages.unrolled_sum_product import Cotangents, given_potentials
from fieldfit.numeric.compile import kernel

__all__ = ["UnrolledMeanField", "vjp_mean_field_sweep", "vjp_products"]

# -- vector-Jacobian products -------------------------------------------------------------


@kernel
def vjp_mean_field_sweep(
    structure: Structure,
    variables: IntArray,
    tables: FloatArray,
    damping: float,
    before: FloatArray,
    beliefs: FloatArray,
    gradient: FloatArray,
    unary_gradient: FloatArray,
    table_gradient: FloatArray,
) -> None:
    """Backward over one sweep: ``beliefs`` become ``before``; ``gradient`` is by the beliefs."""
    widest, arity = 1, 1
    for i in range(len(structure.cardinalities)):
        widest = max(widest, structure.cardinalities[i])
    for factor in range(len(structure.scope_offsets) - 1):
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    slope = np.empty(widest)
    digits = np.empty(arity, dtype=np.int64)
    for index in range(len(variables) - 1, -1, -1):
        j = variables[index]
        offset = structure.unary_offsets[j]
        n_labels = structure.cardinalities[j]
        mean = 0.0
        for y in range(n_labels):
            # the update without damping
            slope[y] = beliefs[offset + y]
            if damping != 0.0:
                slope[y] = (slope[y] - damping * before[offset + y]) / (1.0 - damping)
            mean += slope[y] * gradient[offset + y]
        for y in range(n_labels):
            slope[y] *= (1.0 - damping) * (gradient[offset + y] - mean)
            gradient[offset + y] *= damping
            unary_gradient[offset + y] += slope[y]
            beliefs[offset + y] = before[offset + y]
        for position in range(
            structure.variable_slot_offsets[j], structure.variable_slot_offsets[j + 1]
        ):
            slot = structure.variable_slots[position]
            factor = structure.slot_factors[slot]
            first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
            entry = structure.table_offsets[factor]
            if stop - first == 2:
                own_is_first = slot == first
                other = structure.slot_variables[first + 1 if own_is_first else first]
                place = structure.unary_offsets[other]
                n_others = structure.cardinalities[other]
                own_stride = n_others if own_is_first else 1
                other_stride = 1 if own_is_first else n_labels
                for k in range(n_others):
                    belief = beliefs[place + k]
                    total = 0.0
                    for y in range(n_labels):
                        z = entry + y * own_stride + k * other_stride
                        table_gradient[z] += slope[y] * belief
                        total += slope[y] * tables[z]
                    gradient[place + k] += total
                continue
            _vjp_large(
                structure, factor, slot, tables, slope, beliefs, gradient, table_gradient, digits
            )


@kernel
def _vjp_large(
    structure: Structure,
    factor: int,
    own: int,
    tables: FloatArray,
    slope: FloatArray,
    beliefs: FloatArray,
    gradient: FloatArray,
    table_gradient: FloatArray,
    digits: LongArray,
) -> None:
    """One factor of arity above two: entry by entry, each other variable left out in turn."""
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    digits[: stop - first] = 0
    for z in range(structure.table_offsets[factor], structure.table_offsets[factor + 1]):
        weight = slope[digits[own - first]]
        for left_out in range(first, stop):
            product = weight
            for slot in range(first, stop):
                if slot != own and slot != left_out:
                    place = structure.unary_offsets[structure.slot_variables[slot]]
                    product *= beliefs[place + digits[slot - first]]
            if left_out == own:
                table_gradient[z] += product
            else:
                place = structure.unary_offsets[structure.slot_variables[left_out]]
                gradient[place + digits[left_out - first]] += product * tables[z]
        _advance(structure, first, stop, digits)


@kernel
def _advance(structure: Structure, first: int, stop: int, digits: LongArray) -> None:
    """The next configuration of a scope, its last variable fastest."""
    slot = stop - 1
    while slot >= first:
        digits[slot - first] += 1
        if digits[slot - first] < structure.cardinalities[structure.slot_variables[slot]]:
            return
        digits[slot - first] = 0
        slot -= 1


@kernel
def vjp_products(
    structure: Structure, beliefs: FloatArray, derivative: FloatArray, gradient: FloatArray
) -> None:
    """Derivative by factor beliefs ``prod_i b_i`` to derivative by ``b_i``, added up."""
    arity = 1
    for factor in range(len(structure.scope_offsets) - 1):
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    digits = np.empty(arity, dtype=np.int64)
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        digits[: stop - first] = 0
        for z in range(structure.table_offsets[factor], structure.table_offsets[factor + 1]):
            for left_out in range(first, stop):
                product = derivative[z]
                for slot in range(first, stop):
                    if slot != left_out:
                        place = structure.unary_offsets[structure.slot_variables[slot]]
                        product *= beliefs[place + digits[slot - first]]
                place = structure.unary_offsets[structure.slot_variables[left_out]]
                gradient[place + digits[left_out - first]] += product
            _advance(structure, first, stop, digits)


# -- options and runs ---------------------------------------------------------------------

#: Never met: no sweep is left out.
NO_TOLERANCE = -1.0


@dataclass(frozen=True, kw_only=True)
class UnrolledMeanField(Inference):
    """Exactly ``n_sweeps`` coordinate sweeps of mean field from uniform beliefs.

    Parameters
    ----------
    n_sweeps
        Sweeps.
    damping
        Fraction of the old belief that an update keeps, in [0, 1).

    Notes
    -----
    Hard zeros are for single variables only (``-inf`` in unary potentials, evidence).  In larger
    tables they make the updates of `MeanField` jump, and there is no derivative.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.0, 1.0]] + [None] * 8, factors=np.eye(2))
    >>> run = UnrolledMeanField(n_sweeps=2).record(Batch.of([graph]), potentials)
    >>> run.beliefs().unary(5).round(3)
    array([0.417, 0.583])
    """

    n_sweeps: int = field(default=5, kw_only=False)
    damping: float = 0.0

    def __post_init__(self) -> None:
        require_integer("n_sweeps", self.n_sweeps, at_least=1)
        require_number("damping", self.damping, at_least=0, below=1)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: Evidence = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs of every example after the sweeps; their products bound ``log Z`` from below.

        ``init`` is ignored: the map starts from uniform beliefs.
        """
        require_batch(batch, progress)
        result = self.record(batch, potentials, observed).result()
        if progress is not None:
            progress(result.n_iter, result.residual)
        return result

    def record(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: Evidence = None,
    ) -> MeanFieldRun:
        """The sweeps with their tape, for derivatives; see `UnrolledSumProduct.record`."""
        given = given_potentials(potentials, self.n_sweeps)
        models = []
        for one in given:
            model, _ = condition(batch.graph, one, observed)
            if model.hard.any():
                raise InvalidInputError(
                    "potentials must be finite in tables of two or more variables for a derivative "
                    f"of mean field, got -inf in factors[{int(np.argmax(model.hard))}]"
                )
            models.append(model)
        return MeanFieldRun(batch, given, models, self.n_sweeps, float(self.damping))


class MeanFieldRun:
    """Sweeps on a batch, and the backward pass over them."""

    def __init__(
        self,
        batch: Batch,
        potentials: tuple[Potentials, ...],
        models: Sequence[GeneralModel],
        n_sweeps: int,
        damping: float,
    ) -> None:
        self.batch = batch
        self._potentials, self._models = potentials, tuple(models)
        self._n_sweeps, self._damping = n_sweeps, damping
        graph = batch.graph
        possible = (self._models[0].unary > -np.inf).astype(np.float64)
        possible /= expand(reduce_rows(np.add, possible, graph.unary_offsets), graph.unary_offsets)
        self._beliefs = possible
        self._tape = np.empty((n_sweeps, len(possible)))
        self._residual = 0.0
        changes = np.zeros(graph.n_variables)
        forms = [sweep_form(graph, model) for model in self._models]
        for sweep in range(n_sweeps):
            self._tape[sweep] = self._beliefs
            form = forms[min(sweep, len(forms) - 1)]
            sweeps: Any = binary_sweeps if isinstance(form, BinaryPairwise) else general_sweeps
            _, self._residual = sweeps(
                form, self._beliefs, changes, False, damping, 1, NO_TOLERANCE
            )

    def beliefs(self, *, tables: bool = True) -> Beliefs:
        """Beliefs after the last sweep; without ``tables`` those of factors are left at zero."""
        graph = self.batch.graph
        products = np.zeros(int(graph.table_offsets[-1]))
        if tables:
            product_tables(
                graph.structure, self._beliefs, self._potentials[-1].factor_values, products,
                np.empty(graph.n_factors),
            )  # fmt: skip
        return Beliefs(graph, self._beliefs.copy(), products)

    def result(self) -> InferenceResult:
        """Beliefs and the bound that their product gives."""
        values, products = product_bound(self.batch, self._potentials[-1], self._beliefs)
        sweeps = "1 sweep" if self._n_sweeps == 1 else f"{self._n_sweeps} sweeps"
        return InferenceResult(
            beliefs=Beliefs(self.batch.graph, self._beliefs.copy(), products),
            log_partition=float(values.sum()),
            bound="lower",
            converged=False,
            n_iter=self._n_sweeps,
            residual=float(self._residual),
            status=f"stopped after {sweeps}, as asked: beliefs last moved by {self._residual:.2g}",
            method=f"UnrolledMeanField({self._n_sweeps})",
            log_partitions=values,
        )

    def vjp(self, derivative: Potentials, beliefs: Beliefs) -> Cotangents:
        """From a derivative by beliefs to derivatives by potentials; any number of times."""
        graph = self.batch.graph
        require_graph(graph, derivative)
        state = self._beliefs.copy()
        gradient = derivative.unary_values.copy()
        if derivative.factor_values.any():
            given = np.require(derivative.factor_values, np.float64, ["C", "W"])
            vjp_products(graph.structure, state, given, gradient)
        gradients = tuple(
            Potentials.from_flat(
                graph,
                np.zeros(int(graph.unary_offsets[-1])),
                np.zeros(int(graph.table_offsets[-1])),
            )
            for _ in self._models
        )
        for sweep in range(self._n_sweeps - 1, -1, -1):
            own = min(sweep, len(self._models) - 1)
            model = self._models[own]
            vjp_mean_field_sweep(
                graph.structure, model.variables, np.require(model.tables, np.float64, ["C", "W"]),
                self._damping, self._tape[sweep], state, gradient, gradients[own].unary_values,
                gradients[own].factor_values,
            )  # fmt: skip
        for one in gradients:
            add_to_single_factors(graph, one.unary_values, one.factor_values)
        return Cotangents(gradients)
