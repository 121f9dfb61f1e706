"""Piecewise training (piecewise likelihood): every table is normalised by itself.

    value = sum_a [log sum_{y_a} exp th_a(y_a) - th_a(y_a at its labels)]  (and unary tables alike)

The product of the local normalisers counts every labelling, and combinations in which factors
disagree as well, so with complete labels the value is never below that of the likelihood.  No
inference is needed.  Where labels are missing a term sums over those of its own variables.

With *shared* unary potentials a term is one table with a part of the unary potentials of its
variables:

    v(y_a) = th_a(y_a) + sum_{i in a} u_ai(y_i)
    value  = log sum_{y_a} exp v - log sum_{y_a agrees with the labels} exp v

The gradient is the difference of the two distributions, each normalised in its own range.

Reference: Sutton and McCallum, "Piecewise training for undirected models", Uncertainty in
Artificial Intelligence (2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, Index, IntArray, LabelArray
from fieldfit._validation import require_one_of
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, add_to_single_factors, folded_unary
from fieldfit.graph.ragged import expand
from fieldfit.graph.structure import Structure, next_row
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store
from fieldfit.objectives.base import Evaluation, Objective, default_prediction, raise_impossible

__all__ = ["Piecewise", "factor_terms", "unary_terms"]

# -- Kernels: local normalisers, free and with the given labels fixed ----------------------


# Without NaN a maximum is associative and can run in SIMD; potentials never hold one.
@kernel(fastmath={"nnan", "nsz", "reassoc"})
def largest(values: FloatArray, begin: Index, size: int) -> float:
    """Largest of a range; ``-inf`` if it is empty."""
    top = NO_WEIGHT
    for z in range(size):
        top = max(top, load(values, begin + z))
    return top


@kernel(fastmath=SAFE_FASTMATH)
def normalised(source: FloatArray, begin: Index, size: int, out: FloatArray, start: int) -> float:
    """Write ``exp`` of a range of logarithms, scaled to sum one; the logarithm of the sum."""
    top = largest(source, begin, size)
    if top == NO_WEIGHT:
        for z in range(size):
            store(out, start + z, 0.0)
        return NO_WEIGHT
    total = 0.0
    for z in range(size):
        value = fast_exp(load(source, begin + z) - top)
        store(out, start + z, value)
        total += value
    inverse = 1.0 / total
    for z in range(size):
        store(out, start + z, load(out, start + z) * inverse)
    return top + np.log(total)


@kernel
def unary_terms(
    structure: Structure,
    unary: FloatArray,
    labels: IntArray,
    alone: BoolArray,
    gradient: FloatArray,
    values: FloatArray,
) -> int:
    """Terms of the variables that are ``alone``; the first whose label is impossible, or -1.

    Everything is 0 where a label is missing or the variable is not alone.
    """
    impossible = -1
    for i in range(len(labels)):
        begin, end = structure.unary_offsets[i], structure.unary_offsets[i + 1]
        values[i] = 0.0
        if labels[i] < 0 or not alone[i]:
            for z in range(begin, end):
                gradient[z] = 0.0
            continue
        own = unary[begin + labels[i]]
        if own == NO_WEIGHT:
            if impossible < 0:
                impossible = i
            continue
        values[i] = normalised(unary, begin, end - begin, gradient, begin) - own
        gradient[begin + labels[i]] -= 1.0
    return impossible


@kernel(fastmath=SAFE_FASTMATH)
def fill_term(
    structure: Structure,
    tables: FloatArray,
    unary_part: FloatArray,
    starts: IntArray,
    factor: int,
    digits: IntArray,
    term: FloatArray,
    target: Index,
) -> None:
    """``th_a`` plus the unary_part of each of its slots, which begins at ``starts`` of the slot.

    The term begins at ``target``.
    """
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    start = structure.table_offsets[factor]
    n_last = structure.cardinalities[structure.slot_variables[last]]
    last_share = starts[last]
    digits[: last - first] = 0
    for row in range(0, structure.table_offsets[factor + 1] - start, n_last):
        shift = 0.0
        for slot in range(first, last):
            shift += unary_part[starts[slot] + digits[slot - first]]
        for y in range(n_last):
            value = load(tables, start + row + y) + load(unary_part, last_share + y)
            store(term, target + row + y, shift + value)
        if last - first == 1:  # pairs, without a call
            digits[0] += 1
        else:
            next_row(structure, first, last, digits)


@kernel(fastmath=SAFE_FASTMATH)
def add_margins(
    structure: Structure,
    gradient: FloatArray,
    starts: IntArray,
    factor: int,
    digits: IntArray,
    margins: FloatArray,
) -> None:
    """Add the margins of one factor's gradient, that of a slot at its ``starts``."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    n_last = structure.cardinalities[structure.slot_variables[last]]
    target = starts[last]
    digits[: last - first] = 0
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        total = 0.0
        for y in range(n_last):
            value = load(gradient, row + y)
            total += value
            store(margins, target + y, load(margins, target + y) + value)
        for slot in range(first, last):
            margins[starts[slot] + digits[slot - first]] += total
        if last - first == 1:  # pairs, without a call
            digits[0] += 1
        else:
            next_row(structure, first, last, digits)


@kernel
def next_agreeing(
    structure: Structure, labels: IntArray, first: int, last: int, digits: IntArray, entry: int
) -> int:
    """The next entry of a table that agrees with the labels, the last variable fastest."""
    stride = 1
    for slot in range(last, first - 1, -1):
        variable = structure.slot_variables[slot]
        if labels[variable] < 0:
            digits[slot - first] += 1
            entry += stride
            if digits[slot - first] < structure.cardinalities[variable]:
                return entry
            entry -= stride * digits[slot - first]
            digits[slot - first] = 0
        stride *= structure.cardinalities[variable]
    return entry


@kernel
def subtract_agreeing(
    structure: Structure,
    labels: IntArray,
    factor: int,
    term: FloatArray,
    digits: IntArray,
    gradient: FloatArray,
) -> float:
    """Take the distribution over agreeing entries from the gradient; its log-normaliser."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    start = structure.table_offsets[factor]
    entry, stride, size = 0, 1, 1
    for slot in range(last, first - 1, -1):
        variable = structure.slot_variables[slot]
        digits[slot - first] = 0
        if labels[variable] < 0:
            size *= structure.cardinalities[variable]
        else:
            entry += stride * labels[variable]
        stride *= structure.cardinalities[variable]
    top = NO_WEIGHT
    for _ in range(size):
        top = max(top, term[entry])
        entry = next_agreeing(structure, labels, first, last, digits, entry)
    if top == NO_WEIGHT:
        return NO_WEIGHT
    total = 0.0
    for _ in range(size):
        total += fast_exp(term[entry] - top)
        entry = next_agreeing(structure, labels, first, last, digits, entry)
    for _ in range(size):
        gradient[start + entry] -= fast_exp(term[entry] - top) / total
        entry = next_agreeing(structure, labels, first, last, digits, entry)
    return top + np.log(total)


@kernel
def factor_terms(
    structure: Structure,
    tables: FloatArray,
    unary_part: FloatArray,
    starts: IntArray,
    shared: bool,
    labels: IntArray,
    gradient: FloatArray,
    margins: FloatArray,
    values: FloatArray,
) -> int:
    """Terms of all factors; the first whose labels are impossible, or -1.

    With ``shared`` the vector ``unary_part`` is added to the terms (that of a slot begins at its
    entry of ``starts``), factors of arity one are in ``unary_part`` and are not terms, and
    ``margins`` receives the derivative by ``unary_part``.
    """
    widest, arity = 1, 1
    for factor in range(len(structure.scope_offsets) - 1):
        widest = max(widest, structure.table_offsets[factor + 1] - structure.table_offsets[factor])
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    term = np.empty(widest if shared else 0)
    digits = np.empty(arity, dtype=np.int32)
    impossible = -1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin, end = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        values[factor] = 0.0
        n_given, entry = 0, 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            n_given += labels[variable] >= 0
            entry = entry * structure.cardinalities[variable] + labels[variable]
        if n_given == 0 or (shared and stop - first == 1):
            for z in range(begin, end):
                gradient[z] = 0.0
            continue
        if shared:
            fill_term(structure, tables, unary_part, starts, factor, digits, term, 0)
            own = term
        else:
            own = tables[begin:end]
        free = normalised(own, 0, end - begin, gradient, begin)
        if n_given == stop - first:  # the common case, without a call
            gradient[begin + entry] -= 1.0
            fixed = own[entry]
        else:
            fixed = subtract_agreeing(structure, labels, factor, own, digits, gradient)
        if fixed == NO_WEIGHT:
            if impossible < 0:
                impossible = factor
            continue
        values[factor] = free - fixed
        if shared:
            add_margins(structure, gradient, starts, factor, digits, margins)
    return impossible


# -- The objective -------------------------------------------------------------------------


@dataclass(frozen=True)
class Piecewise(Objective):
    """Negative log piecewise likelihood.

    Parameters
    ----------
    unary
        ``"separate"``: the unary table of a variable is a term, and so is every factor.
        ``"shared"``: the unary potentials of a variable (factors of arity one included) are spread
        evenly over its factors of larger arity, so that a term sees the evidence of its
        variables; a variable without such factors is a term by itself.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> value, gradient = Piecewise().value_and_grad(graph, ff.Potentials(graph), [0, -1])
    >>> round(value, 6), gradient.factor(0)[0]
    (1.386294, array([-0.25, -0.25]))
    """

    name: ClassVar[str] = "piecewise"
    unary: Literal["separate", "shared"] = "separate"

    def __post_init__(self) -> None:
        require_one_of("unary", self.unary, ("separate", "shared"))

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient in one pass over the tables; nothing is kept."""
        graph = batch.graph
        is_shared = self.unary == "shared"
        tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
        own = folded_unary(potentials) if is_shared else potentials.unary_values
        own = np.require(own, np.float64, ["C", "W"])
        alone = graph.degrees == 0 if is_shared else np.ones(graph.n_variables, dtype=np.bool_)
        unary, factors = np.empty(len(own)), np.empty(len(tables))
        by_variable, by_factor = np.empty(graph.n_variables), np.empty(graph.n_factors)
        weights = expand(1.0 / np.maximum(graph.degrees, 1), graph.unary_offsets)
        unary_part = own * weights if is_shared else own
        starts = graph.unary_offsets[graph.slot_variables]
        impossible = unary_terms(graph.structure, own, labels, alone, unary, by_variable) >= 0
        margins = np.zeros(len(own) if is_shared else 0)
        impossible |= (
            factor_terms(
                graph.structure,
                tables,
                unary_part,
                starts,
                is_shared,
                labels,
                factors,
                margins,
                by_factor,
            )
            >= 0
        )
        if impossible:
            raise_impossible(batch, potentials, labels)
        if is_shared:
            unary += margins * weights
            add_to_single_factors(graph, unary, factors)
        values = batch.sum_variables(by_variable) + batch.sum_factors(by_factor)
        gradient = Potentials.from_flat(graph, unary, factors)
        return Evaluation(values, gradient, np.ones(batch.n_examples, dtype=np.bool_))

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """Exact without cycles, else tree-reweighted (see `default_prediction`)."""
        return default_prediction(graph)
