r"""Pseudo-likelihood and composite (block) likelihood: products of conditional distributions.

    value = - sum_i log p(y_i | all other labels)
    p(y_i | rest) = softmax over y of th_i(y) + sum_{a on i} th_a(y, y_{a \ i})

Exact, convex and cheap: no inference, one pass over the tables.  With blocks the terms are
``log p(y_b | labels outside b)``; one block with everything is the likelihood.

Where labels are missing, only variables with a label have terms, and the missing ones are summed
out: the term of ``i`` is ``log p(y_i | the other given labels)``.

References: Besag, "Statistical analysis of non-lattice data", The Statistician 24 (1975); Lindsay,
"Composite likelihood methods", Contemporary Mathematics 80 (1988); Huang and Ogata, "Generalized
pseudo-likelihood estimates for Markov random fields on lattice", Annals of the Institute of
Statistical Mathematics 54 (2002), for blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import BoolArray, FloatArray, IntArray, LabelArray
from fieldfit._validation import require_integer
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, add_to_single_factors, folded_unary
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store
from fieldfit.objectives.base import Evaluation, Objective, default_prediction, raise_impossible
from fieldfit.objectives.block_likelihood import (
    Conditioned,
    MissingGroups,
    checked_blocks,
    given_blocks,
    single_blocks,
    tree_blocks,
)

__all__ = [
    "PseudoLikelihood",
    "add_conditioned",
    "conditional_residuals",
    "spread_residuals",
    "with_known_neighbours",
]

# -- Kernels: conditional distributions of single variables, a whole graph in one pass -----
# Tables are read, and their gradient is written, factor by factor: memory is passed through in
# order, and each table only once for all its variables.


@kernel
def with_known_neighbours(structure: Structure, labels: IntArray, known: BoolArray) -> None:
    """Mark the variables that have a label and whose neighbours all have one."""
    for i in range(len(known)):
        known[i] = labels[i] >= 0
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        complete = True
        for slot in range(begin, end):
            complete &= labels[structure.slot_variables[slot]] >= 0
        if not complete:
            for slot in range(begin, end):
                known[structure.slot_variables[slot]] = False


@kernel
def own_entries(structure: Structure, labels: IntArray, slot: int) -> tuple[int, int]:
    """First table entry, and step, along one variable of a factor, the others at their labels."""
    factor = structure.slot_factors[slot]
    entry, stride, step = structure.table_offsets[factor], 1, 1
    for other in range(
        structure.scope_offsets[factor + 1] - 1, structure.scope_offsets[factor] - 1, -1
    ):
        variable = structure.slot_variables[other]
        if other == slot:
            step = stride
        else:
            entry += stride * labels[variable]
        stride *= structure.cardinalities[variable]
    return entry, step


@kernel(fastmath=SAFE_FASTMATH)
def add_conditioned(
    structure: Structure, tables: FloatArray, labels: IntArray, known: BoolArray, scores: FloatArray
) -> None:
    """Add ``th_a(y, rest)`` of every factor to the scores of its variables that are ``known``."""
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        if end - begin == 2:
            i, j = structure.slot_variables[begin], structure.slot_variables[begin + 1]
            n_i, n_j = structure.cardinalities[i], structure.cardinalities[j]
            start = structure.table_offsets[factor]
            if known[i]:
                target, column = structure.unary_offsets[i], start + labels[j]
                for y in range(n_i):
                    value = load(scores, target + y) + load(tables, column + y * n_j)
                    store(scores, target + y, value)
            if known[j]:
                target, row = structure.unary_offsets[j], start + labels[i] * n_j
                for y in range(n_j):
                    store(scores, target + y, load(scores, target + y) + load(tables, row + y))
            continue
        for slot in range(begin, end):
            variable = structure.slot_variables[slot]
            if known[variable]:
                entry, step = own_entries(structure, labels, slot)
                target = structure.unary_offsets[variable]
                for y in range(structure.cardinalities[variable]):
                    scores[target + y] += tables[entry + y * step]


@kernel(fastmath=SAFE_FASTMATH)
def conditional_residuals(
    structure: Structure, labels: IntArray, known: BoolArray, scores: FloatArray, values: FloatArray
) -> int:
    """Turn scores into ``p(y | rest) - 1{y = y_i}`` and write ``-log p(y_i | rest)``.

    Both are 0 for variables that are not ``known``.  Returns the first variable whose label has
    probability zero, or -1.
    """
    impossible = -1
    for i in range(len(structure.cardinalities)):
        begin, end = structure.unary_offsets[i], structure.unary_offsets[i + 1]
        values[i] = 0.0
        if not known[i]:
            for z in range(begin, end):
                scores[z] = 0.0
            continue
        own = scores[begin + labels[i]]
        if own == NO_WEIGHT:
            if impossible < 0:
                impossible = i
            continue
        top = own
        for z in range(begin, end):
            top = max(top, load(scores, z))
        total = 0.0
        for z in range(begin, end):
            value = fast_exp(load(scores, z) - top)
            store(scores, z, value)
            total += value
        inverse = 1.0 / total
        for z in range(begin, end):
            store(scores, z, load(scores, z) * inverse)
        scores[begin + labels[i]] -= 1.0
        values[i] = (top - own) + np.log(total)
    return impossible


@kernel(fastmath=SAFE_FASTMATH)
def spread_residuals(
    structure: Structure,
    labels: IntArray,
    known: BoolArray,
    residuals: FloatArray,
    gradient: FloatArray,
) -> None:
    """The transpose of `add_conditioned`: write (not add) the gradient of every table."""
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        start, stop = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        for z in range(start, stop):
            store(gradient, z, 0.0)
        if end - begin == 2:
            i, j = structure.slot_variables[begin], structure.slot_variables[begin + 1]
            n_i, n_j = structure.cardinalities[i], structure.cardinalities[j]
            if known[j]:
                source, row = structure.unary_offsets[j], start + labels[i] * n_j
                for y in range(n_j):
                    store(gradient, row + y, load(residuals, source + y))
            if known[i]:
                source, column = structure.unary_offsets[i], start + labels[j]
                for y in range(n_i):
                    value = load(gradient, column + y * n_j) + load(residuals, source + y)
                    store(gradient, column + y * n_j, value)
            continue
        for slot in range(begin, end):
            variable = structure.slot_variables[slot]
            if known[variable]:
                entry, step = own_entries(structure, labels, slot)
                source = structure.unary_offsets[variable]
                for y in range(structure.cardinalities[variable]):
                    gradient[entry + y * step] += residuals[source + y]


# -- The objective -------------------------------------------------------------------------

BlockRule = Callable[[FactorGraph], Sequence[ArrayLike]]


@dataclass(frozen=True, kw_only=True)
class PseudoLikelihood(Objective):
    """Negative log pseudo-likelihood.

    Parameters
    ----------
    blocks
        ``None``: every variable given all others.  ``"tree"``: a few blocks without cycles that
        hold every variable once.  A sequence of index arrays: these blocks, for examples of one
        size; they may overlap, and variables in no block only condition.  A function: called
        with each example's graph, returns such a sequence.
    max_missing
        Missing variables are summed out with the terms next to them.  A connected group of them
        that has a cycle and more than this many variables is not: the variables next to it
        then have no term and only condition others.

    Notes
    -----
    A block that has cycles, alone or with the missing variables next to it, is solved by `Exact`,
    which refuses with a memory figure if it is too wide.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> potentials = ff.Potentials(graph, factors=[[[1.0, 0.0], [0.0, 1.0]]])
    >>> value, gradient = PseudoLikelihood().value_and_grad(graph, potentials, [0, 0])
    >>> round(value, 6), gradient.unary(0).round(6)
    (0.626523, array([-0.268941,  0.268941]))
    """

    name: ClassVar[str] = "pseudolikelihood"
    problem_kind: ClassVar[str] = "pseudolikelihood"
    blocks: Literal["tree"] | Sequence[ArrayLike] | BlockRule | None = field(
        default=None, kw_only=False
    )
    max_missing: int = 8

    def __post_init__(self) -> None:
        given = self.blocks
        if isinstance(given, str) and given != "tree":
            raise InvalidInputError(
                f"blocks must be None, 'tree', a sequence of index arrays or a function, "
                f"got {given!r}"
            )
        if not (given is None or isinstance(given, str) or callable(given)):
            object.__setattr__(self, "blocks", checked_blocks(given))
        require_integer("max_missing", self.max_missing, at_least=0)

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Values and gradient; ``init`` keeps what depends on the labels alone."""
        terms = init if isinstance(init, _Terms) and init.fit(batch, labels) else None
        if terms is None:
            terms = self._terms(batch, labels)
        graph = batch.graph
        structure = graph.structure
        tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
        unary = potentials.unary_values.copy()
        values = np.empty(graph.n_variables)
        add_conditioned(structure, tables, labels, terms.known, unary)
        if conditional_residuals(structure, labels, terms.known, unary, values) >= 0:
            raise_impossible(batch, potentials, labels)
        factors = np.empty(len(tables))
        spread_residuals(structure, labels, terms.known, unary, factors)
        totals = batch.sum_variables(values)
        converged = np.ones(batch.n_examples, dtype=np.bool_)
        if terms.parts:
            starts = _add_parts(potentials, terms, totals, unary, factors, converged)
            terms = replace(terms, starts=starts)
        gradient = Potentials.from_flat(graph, unary, factors)
        return Evaluation(totals, gradient, converged, terms)

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """Exact without cycles, else tree-reweighted (see `default_prediction`)."""
        return default_prediction(graph)

    def _terms(self, batch: Batch, labels: LabelArray) -> _Terms:
        """Which variables the fast kernel serves, and the derived graphs of all other terms."""
        known = np.zeros(batch.graph.n_variables, dtype=np.bool_)
        if self.blocks is None:
            with_known_neighbours(batch.graph.structure, labels, known)
            if np.array_equal(known, labels >= 0):
                return _Terms(batch, labels.copy(), known)
        missing = MissingGroups.of(batch.graph, labels, self.max_missing)
        if self.blocks is None:
            chosen = single_blocks(batch, missing.eligible & ~known)
        elif isinstance(self.blocks, str):
            chosen = tree_blocks(batch, missing)
        else:
            chosen = given_blocks(batch, self.blocks, missing.eligible)
        parts = Conditioned.of(batch, labels, missing, chosen)
        return _Terms(batch, labels.copy(), known, parts, [None] * len(parts))


@dataclass(frozen=True, eq=False)
class _Terms:
    """What depends on the labels alone, and where the inferences of the terms start from."""

    batch: Batch
    labels: LabelArray
    known: BoolArray
    parts: Sequence[Conditioned] = ()
    starts: Sequence[Any] = ()

    def fit(self, batch: Batch, labels: LabelArray) -> bool:
        """True if they were made for this batch and these labels."""
        return self.batch is batch and np.array_equal(self.labels, labels)


def _add_parts(
    potentials: Potentials,
    terms: _Terms,
    values: FloatArray,
    unary: FloatArray,
    factors: FloatArray,
    converged: BoolArray,
) -> list[Any]:
    """Add the terms that need an inference; what the next evaluation may start from."""
    folded = folded_unary(potentials)
    change = np.zeros(len(unary))
    starts = []
    try:
        for part, start in zip(terms.parts, terms.starts, strict=True):
            starts.append(
                part.add_to(potentials, folded, start, values, change, factors, converged)
            )
    except ZeroWeightError:
        raise_impossible(terms.batch, potentials, terms.labels)
    unary += change
    add_to_single_factors(terms.batch.graph, change, factors)
    return starts
