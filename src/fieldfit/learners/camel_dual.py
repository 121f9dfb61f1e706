"""Duals of the concave problem in one round of CAMEL: joint, and over the weights alone.

With the slopes ``s`` of ``- sum_i (d_i - 1) H(pi_i)`` fixed, the maximum over beliefs ``pi`` that
agree with each other and have the data's moments is the minimum over weights and multipliers of

    sum_m sum_a log Z_a^m(w, delta) - <w, f>              pi_a ∝ exp(w·f_a + delta·h_a + s_a)

where ``h`` marks the slots of a factor and ``<w, f>`` is the score of the data
(`fieldfit.learners.camel_dual`).  `JointDual` is this function of ``(w, delta)``: as cheap as
piecewise training, and one descent solves learning and inference at once.  `WeightDual` minimises
over ``delta`` by message passing first: a function of ``w`` alone, a double loop.  Both have the
same minimum.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fieldfit._parallel import ordered_map
from fieldfit._typing import FloatArray
from fieldfit.entropy.counting_numbers import Convex
from fieldfit.errors import ZeroWeightError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, add_to_single_factors, folded_unary
from fieldfit.graph.ragged import expand, ranges
from fieldfit.graph.structure import Structure
from fieldfit.inference.free_energy.double_loop import SMALLEST, entropy_counts, log_beliefs
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.inference.messages.schedule import common_labels
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.learners.problem import Problem, ProblemValue, weighted
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store
from fieldfit.objectives.likelihood import light_start
from fieldfit.objectives.piecewise import add_margins, fill_term, largest, normalised

__all__ = [
    "Dual",
    "JointDual",
    "PiecewiseDual",
    "Relinearisation",
    "WeightDual",
    "factor_models",
    "linearise_slots",
    "slot_vectors",
    "variable_models",
]

# -- The dual of the linearised maximum-entropy problem of CAMEL, in one pass over a graph ---
# Every factor of arity two or more is a log-linear model of its own, as in piecewise training,
# that also sees one vector ``u`` for each of its slots:
#
#     pi_a(y_a) = exp(th_a(y_a) + sum_{i in a} u_ai(y_i)) / Z_a
#     u_ai      = th_i / d_i + bias_ai + delta_ai - mean over b of delta_bi
#
# ``delta`` are the multipliers of the constraints that factors agree on their variables; taking
# away their mean over the factors of a variable makes them sum to zero, so that what one factor is
# given another one pays.  The derivative of ``sum_a log Z_a`` by ``delta_ai`` is then how far the
# margin of ``pi_a`` lies from the mean of all margins for ``i``.  A variable without such a factor
# is a model by itself.


@kernel(fastmath=SAFE_FASTMATH)
def slot_vectors(
    structure: Structure, unary: FloatArray, bias: FloatArray, delta: FloatArray, out: FloatArray
) -> None:
    """``u`` of every slot, laid out like messages; an empty ``bias`` is zero."""
    for i in range(len(structure.cardinalities)):
        first, stop = structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        if first == stop:
            continue
        begin, n_labels = structure.unary_offsets[i], structure.cardinalities[i]
        inverse = 1.0 / (stop - first)
        # the place of the first slot holds the sum until its own turn, the last, comes
        total = structure.message_offsets[structure.variable_slots[first]]
        for y in range(n_labels):
            store(out, total + y, load(unary, begin + y))
        for k in range(first, stop):
            place = structure.message_offsets[structure.variable_slots[k]]
            for y in range(n_labels):
                store(out, total + y, load(out, total + y) - load(delta, place + y))
        for k in range(stop - 1, first - 1, -1):
            place = structure.message_offsets[structure.variable_slots[k]]
            for y in range(n_labels):
                store(out, place + y, load(out, total + y) * inverse + load(delta, place + y))
    if len(bias):
        for z in range(len(out)):
            store(out, z, load(out, z) + load(bias, z))


@kernel(fastmath=SAFE_FASTMATH)
def pair_model(
    k: tuple[int, ...], tables: FloatArray, vectors: FloatArray, begin: int, left: int, right: int,
    beliefs: FloatArray, margins: FloatArray,
) -> float:  # fmt: skip
    """Beliefs, margins and ``log Z`` of one pairwise factor with ``len(k)`` labels each."""
    n_labels = len(k)
    size = n_labels * n_labels
    for x in range(n_labels):
        shift = load(vectors, left + x)
        row = begin + x * n_labels
        for y in range(n_labels):
            store(beliefs, row + y, load(tables, row + y) + load(vectors, right + y) + shift)
    top = largest(beliefs, begin, size)
    if top == NO_WEIGHT:
        return NO_WEIGHT
    for z in range(size):
        store(beliefs, begin + z, fast_exp(load(beliefs, begin + z) - top))
    total = 0.0
    for x in range(n_labels):
        row = begin + x * n_labels
        own = 0.0
        for y in range(n_labels):
            value = load(beliefs, row + y)
            own += value
            store(margins, right + y, load(margins, right + y) + value)
        store(margins, left + x, own)
        total += own
    inverse = 1.0 / total
    for z in range(size):
        store(beliefs, begin + z, load(beliefs, begin + z) * inverse)
    for y in range(n_labels):
        store(margins, left + y, load(margins, left + y) * inverse)
        store(margins, right + y, load(margins, right + y) * inverse)
    return top + np.log(total)


@kernel
def factor_models(
    k: tuple[int, ...],
    structure: Structure,
    tables: FloatArray,
    vectors: FloatArray,
    beliefs: FloatArray,
    margins: FloatArray,
    values: FloatArray,
) -> int:
    """``pi_a``, its margins and ``log Z_a`` of all factors; one without weight, or -1.

    Factors of arity one have no beliefs of their own here, and constants only their value.  The
    length of the tuple ``k`` (static K) is the number of labels that pairs are compiled for;
    ``margins`` is given as zeros.
    """
    n_labels = len(k)
    starts = structure.message_offsets
    arity = 1
    for factor in range(len(values)):
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    digits = np.empty(arity, dtype=np.int32)
    impossible = -1
    for factor in range(len(values)):
        n_slots = structure.scope_offsets[factor + 1] - structure.scope_offsets[factor]
        begin, end = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        if n_slots == 0:
            values[factor] = tables[begin]
            beliefs[begin] = 1.0
            continue
        if n_slots == 1:
            values[factor] = 0.0
            beliefs[begin:end] = 0.0
            continue
        first = structure.scope_offsets[factor]
        is_pair = n_slots == 2
        for slot in range(first, first + n_slots):
            is_pair &= structure.cardinalities[structure.slot_variables[slot]] == n_labels
        if is_pair:
            left, right = structure.message_offsets[first], structure.message_offsets[first + 1]
            values[factor] = pair_model(k, tables, vectors, begin, left, right, beliefs, margins)
            if values[factor] == NO_WEIGHT and impossible < 0:
                impossible = factor
            continue
        fill_term(structure, tables, vectors, starts, factor, digits, beliefs, begin)
        # reads an entry before it writes it, so a table may be replaced where it lies
        values[factor] = normalised(beliefs, begin, end - begin, beliefs, begin)
        if values[factor] == NO_WEIGHT and impossible < 0:
            impossible = factor
        add_margins(structure, beliefs, starts, factor, digits, margins)
    return impossible


@kernel(fastmath=SAFE_FASTMATH)
def variable_models(
    structure: Structure,
    unary: FloatArray,
    margins: FloatArray,
    beliefs: FloatArray,
    gaps: FloatArray,
    values: FloatArray,
) -> int:
    """Beliefs of variables: the mean of their margins; ``gaps`` are the margins less that mean.

    A variable without factors is a log-linear model by itself, and adds its ``log Z``.  Returns
    one without weight, or -1.
    """
    impossible = -1
    for i in range(len(values)):
        first, stop = structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        begin = structure.unary_offsets[i]
        n_labels = structure.cardinalities[i]
        values[i] = 0.0
        if first == stop:
            values[i] = normalised(unary, begin, n_labels, beliefs, begin)
            if values[i] == NO_WEIGHT and impossible < 0:
                impossible = i
            continue
        inverse = 1.0 / (stop - first)
        for y in range(n_labels):
            store(beliefs, begin + y, 0.0)
        for k in range(first, stop):
            place = structure.message_offsets[structure.variable_slots[k]]
            for y in range(n_labels):
                store(beliefs, begin + y, load(beliefs, begin + y) + load(margins, place + y))
        for y in range(n_labels):
            store(beliefs, begin + y, load(beliefs, begin + y) * inverse)
        for k in range(first, stop):
            place = structure.message_offsets[structure.variable_slots[k]]
            for y in range(n_labels):
                store(gaps, place + y, load(margins, place + y) - load(beliefs, begin + y))
    return impossible


@kernel
def linearise_slots(
    structure: Structure, margins: FloatArray, on_both_sides: bool, smallest: float, out: FloatArray
) -> None:
    """Slopes of ``- (d_i - 1) H(tau_i)``, shared out over the slots of each variable.

    The factors of a variable are ordered, and each of the ``d_i - 1`` entropies belongs to two
    neighbours in this order.  It is a function of the first one's margin, which then gets all of
    its slope, or of the mean of both margins, and each gets half.
    """
    out[:] = 0.0
    for i in range(len(structure.cardinalities)):
        first, stop = structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        for k in range(first, stop - 1):
            left = structure.message_offsets[structure.variable_slots[k]]
            right = structure.message_offsets[structure.variable_slots[k + 1]]
            for y in range(structure.cardinalities[i]):
                if on_both_sides:
                    mean = 0.5 * (margins[left + y] + margins[right + y])
                    half = 0.5 * np.log(max(mean, smallest))
                    out[left + y] += half
                    out[right + y] += half
                else:
                    out[left + y] += np.log(max(margins[left + y], smallest))


# -- The duals as problems -----------------------------------------------------------------


Found = TypeVar("Found")


@dataclass(frozen=True)
class Relinearisation:
    """What moving the linearisation to new beliefs says about the old one.

    ``gap`` is by how much the entropy of the new beliefs exceeds its linearisation,
    ``sum_i (d_i - 1) KL(new_i, old_i)``; if the entropies of variables were left out before, it is
    their sum.  ``change`` is the distance between a variable's old and new beliefs, as a root mean
    square over the linearised entropies, and infinite if there were no old ones.
    """

    gap: float
    change: float


class Dual(Problem):
    """Abstract base: a dual whose linearisation can be moved.

    The first ``n_shared`` of its weights are those of the model.
    """

    n_parts = 1

    def __init__(self, model: LinearModel) -> None:
        self.model = model
        self.n_shared = model.n_weights
        #: Slopes of the linearised entropies by part; empty arrays are zero.
        self.slopes: list[FloatArray] = [np.zeros(0) for _ in model.parts]
        #: Beliefs of the variables at which the slopes were taken; empty if the slopes are.
        self.centres: list[FloatArray] = [np.zeros(0) for _ in model.parts]

    def linearise_at(self, unary: Sequence[FloatArray]) -> None:
        """Take the slopes at given beliefs of the variables, part by part."""
        for index, beliefs in enumerate(unary):
            self._linearise_at(index, beliefs)
            self.centres[index] = beliefs

    def relinearise(self, weights: FloatArray) -> Relinearisation:
        """Take the slopes at the beliefs that belong to ``weights``."""
        found = self._over_parts(lambda index: self._relinearise(index, weights))
        gap, squares, count = (float(sum(values)) for values in zip(*found, strict=True))
        return Relinearisation(gap, float(np.sqrt(squares / count)) if count else 0.0)

    @abstractmethod
    def _linearise_at(self, index: int, beliefs: FloatArray) -> None:
        """Slopes of one part at given beliefs."""

    @abstractmethod
    def _relinearise(self, index: int, weights: FloatArray) -> tuple[float, float, float]:
        """Slopes of one part; gap, squared distance, and the number of linearised entropies."""

    def _compare(
        self, index: int, unary: FloatArray, margins: FloatArray
    ) -> tuple[float, float, float]:
        """Old slopes and centres of a part against new beliefs, which become the centres.

        ``margins`` are the new beliefs in the layout of the slopes: by slot, or by variable.
        """
        part, slopes, old = self.model.parts[index], self.slopes[index], self.centres[index]
        graph, given = part.batch.graph, part.weight_of_examples()
        counts = entropy_counts(graph)
        batch = part.batch
        factors = np.repeat(counts, graph.cardinalities) * expand(given, batch.unary_offsets)
        gap = float(factors @ (unary * log_beliefs(unary)))
        if len(slopes):
            by_variable = len(slopes) == len(unary)
            offsets = batch.unary_offsets if by_variable else batch.message_offsets
            gap -= float((margins * slopes) @ expand(given, offsets))
        count = float(part.batch.sum_variables(counts) @ given)
        squares = float(factors @ (unary - old) ** 2) if len(old) else np.inf
        self.centres[index] = unary.copy()
        return gap, squares if count else 0.0, count

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        return self.evaluate(weights)

    def _over_parts(self, run: Callable[[int], Found]) -> list[Found]:
        return ordered_map(run, range(len(self.model.parts)), self.model.n_jobs)


class JointDual(Dual):
    """Over ``(w, delta)``; ``delta`` has the layout of messages, part after part.

    ``on_both_sides``: see `linearise_slots`.
    """

    def __init__(self, model: LinearModel, *, on_both_sides: bool = True) -> None:
        super().__init__(model)
        self.on_both_sides = on_both_sides
        sizes = [int(part.batch.graph.message_offsets[-1]) for part in model.parts]
        self.offsets = self.n_shared + np.cumsum([0, *sizes])
        self.n_weights = int(self.offsets[-1])

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        """Value and gradient in one pass over the tables."""
        shared = np.ascontiguousarray(weights[: self.n_shared])
        gradient = np.empty(self.n_weights)

        def run(index: int) -> tuple[float, FloatArray]:
            part = self.model.parts[index]
            place = slice(self.offsets[index], self.offsets[index + 1])
            models = _evaluate(part, shared, weights[place], self.slopes[index], gradient[place])
            graph = part.batch.graph
            beliefs = Potentials.from_flat(graph, models.unary, models.factors)
            given = part.example_weights
            if given is not None:
                beliefs = weighted(part.batch, beliefs, given)
                gradient[place] *= expand(given, part.batch.message_offsets)
                return float(given @ models.values), part.mapping.gradient(beliefs)
            return float(models.values.sum()), part.mapping.gradient(beliefs)

        value = -float(shared @ self.model.statistics)
        gradient[: self.n_shared] = -self.model.statistics
        for more, moments in self._over_parts(run):
            value += more
            gradient[: self.n_shared] += moments
        return ProblemValue(value, gradient, 0, self.model.n_examples)

    def _linearise_at(self, index: int, beliefs: FloatArray) -> None:
        graph = self.model.parts[index].batch.graph
        self.slopes[index] = self._slopes(graph, _spread(graph, beliefs))

    def _relinearise(self, index: int, weights: FloatArray) -> tuple[float, float, float]:
        part = self.model.parts[index]
        place = slice(self.offsets[index], self.offsets[index + 1])
        shared = np.ascontiguousarray(weights[: self.n_shared])
        rest = np.empty(self.offsets[index + 1] - self.offsets[index])
        models = _evaluate(part, shared, weights[place], self.slopes[index], rest)
        found = self._compare(index, models.unary, models.margins)
        self.slopes[index] = self._slopes(part.batch.graph, models.margins)
        return found

    def _slopes(self, graph: FactorGraph, margins: FloatArray) -> FloatArray:
        slopes = np.empty(len(margins))
        linearise_slots(graph.structure, margins, self.on_both_sides, SMALLEST, slopes)
        return slopes


class PiecewiseDual(Problem):
    """A joint dual whose factors need not agree (``delta = 0``): piecewise training."""

    n_parts = 1

    def __init__(self, joint: JointDual) -> None:
        self._joint = joint
        self.n_weights = joint.n_shared
        self._weights = np.zeros(joint.n_weights)

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        self._weights[: self.n_weights] = weights
        found = self._joint.evaluate(self._weights)
        return ProblemValue(found.value, found.gradient[: self.n_weights], 0, found.n_examples)

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        return self.evaluate(weights)


class WeightDual(Dual):
    """Over ``w``, the multipliers minimised by message passing with a concave entropy."""

    def __init__(self, model: LinearModel, *, tol: float = 1e-6) -> None:
        super().__init__(model)
        self.n_weights = self.n_shared
        self.inference = SumProduct(entropy=Convex(unary=0.0), tol=tol)
        self._states: list[Any] = [None] * len(model.parts)

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        def run(index: int) -> tuple[float, FloatArray, int]:
            part = self.model.parts[index]
            result = self._infer(index, weights)
            graph, beliefs = part.batch.graph, result.beliefs
            vector = Potentials.from_flat(graph, beliefs.unary_values, beliefs.factor_values)
            values = result.log_partitions
            assert values is not None
            assert result.converged_examples is not None
            if part.example_weights is not None:
                vector = weighted(part.batch, vector, part.example_weights)
                values = values * part.example_weights
            n_unconverged = int((~result.converged_examples).sum())
            return float(values.sum()), part.mapping.gradient(vector), n_unconverged

        value, gradient = -float(weights @ self.model.statistics), -self.model.statistics
        n_unconverged = 0
        for more, moments, count in self._over_parts(run):
            value += more
            gradient += moments
            n_unconverged += count
        return ProblemValue(value, gradient, n_unconverged, self.model.n_examples)

    def _linearise_at(self, index: int, beliefs: FloatArray) -> None:
        graph = self.model.parts[index].batch.graph
        counts = np.repeat(entropy_counts(graph), graph.cardinalities)
        self.slopes[index] = counts * log_beliefs(beliefs)

    def _relinearise(self, index: int, weights: FloatArray) -> tuple[float, float, float]:
        unary = self._infer(index, weights).beliefs.unary_values
        found = self._compare(index, unary, unary)
        self._linearise_at(index, unary)
        return found

    def _infer(self, index: int, weights: FloatArray) -> Any:
        part = self.model.parts[index]
        potentials = part.mapping.potentials(weights)
        if len(self.slopes[index]):
            potentials = Potentials.from_flat(
                potentials.graph,
                potentials.unary_values + self.slopes[index],
                potentials.factor_values,
            )
        result = self.inference.run_batch(part.batch, potentials, init=self._states[index])
        self._states[index] = light_start(result)
        return result

    def reset_warm_start(self) -> None:
        """Drop the messages of the last evaluation."""
        self._states = [None] * len(self.model.parts)


# -- Helpers for one part ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Models:
    """Beliefs of the local models of a part, their margins, and the values of its examples."""

    unary: FloatArray
    factors: FloatArray
    margins: FloatArray
    values: FloatArray


def _evaluate(
    part: LinearPart, weights: FloatArray, delta: FloatArray, slopes: FloatArray, gaps: FloatArray
) -> _Models:
    """All local models; ``gaps`` receives the derivative by ``delta``."""
    graph = part.batch.graph
    potentials = part.mapping.potentials(weights)
    unary = np.require(folded_unary(potentials), np.float64, ["C"])
    tables = np.require(potentials.factor_values, np.float64, ["C"])
    n_messages = int(graph.message_offsets[-1])
    vectors, margins = np.zeros(n_messages), np.zeros(n_messages)
    slot_vectors(graph.structure, unary, slopes, np.ascontiguousarray(delta), vectors)
    beliefs, by_factor = np.empty(len(tables)), np.empty(graph.n_factors)
    own, by_variable = np.empty(len(unary)), np.empty(graph.n_variables)
    gaps[:] = 0.0
    k = common_labels(graph)
    bad = factor_models(k, graph.structure, tables, vectors, beliefs, margins, by_factor)
    worse = variable_models(graph.structure, unary, margins, own, gaps, by_variable)
    if bad >= 0 or worse >= 0:
        where = f"factor {bad}" if bad >= 0 else f"variable {worse}"
        raise ZeroWeightError(f"all labellings of {where} of a union graph have zero weight")
    add_to_single_factors(graph, own, beliefs)
    values = part.batch.sum_variables(by_variable) + part.batch.sum_factors(by_factor)
    return _Models(own, beliefs, margins, values)


def _spread(graph: FactorGraph, unary: FloatArray) -> FloatArray:
    """A vector of each variable at each of its slots."""
    starts = graph.unary_offsets[graph.slot_variables]
    return unary[ranges(starts, np.diff(graph.message_offsets))]
