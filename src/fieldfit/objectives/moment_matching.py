"""Pseudo-moment matching: maximum surrogate likelihood of untied tables in closed form.

With the counting numbers ``c_a`` and totals ``chat_i = c_i + sum_a c_a`` of an entropy,

    th_a = c_a log(mu_a / prod_{i in a} mu_i)            th_i = chat_i log mu_i

make ``mu`` a stationary point of ``<th, tau> + H_c(tau)``: with the dual variables
``lam_ai = c_a log mu_i`` both ``th_a + sum_i lam_ai = c_a log mu_a`` and
``th_i - sum_a lam_ai = c_i log mu_i`` hold, and the surrogate log-partition is 0.  For Bethe's and
tree-reweighted entropies ``chat_i = 1``.  Where the entropy is concave ``mu`` is the only maximum,
so these potentials maximise the surrogate likelihood among all full, untied tables.

Reference: Wainwright, Jaakkola and Willsky, "Tree-reweighted belief propagation algorithms and
approximate ML estimation by pseudo-moment matching", Artificial Intelligence and Statistics (2003).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import plain_array, real_numbers
from fieldfit._typing import FloatArray, IntArray, LabelArray
from fieldfit._validation import require_instance, require_number
from fieldfit.entropy.counting_numbers import Entropy, TreeReweighted
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import expand, row_numbers
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.message_beliefs import largest_disagreements
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.numeric.compile import kernel
from fieldfit.objectives.base import Evaluation, Objective
from fieldfit.objectives.likelihood import Likelihood

__all__ = ["MomentMatching", "count_configurations", "smoothed_moments"]

# -- Counts of labels and of configurations in samples -------------------------------------


@kernel
def count_configurations(
    structure: Structure,
    columns: IntArray,
    weights: FloatArray,
    unary: FloatArray,
    tables: FloatArray,
) -> None:
    """Add the weight of every sample to the entries that it selects.

    ``columns`` holds the samples variable by variable: the table of one factor stays in the cache
    while its few columns are read in order.
    """
    n_samples = columns.shape[1]
    for variable in range(len(structure.cardinalities)):
        start = structure.unary_offsets[variable]
        for sample in range(n_samples):
            unary[start + columns[variable, sample]] += weights[sample]
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        start = structure.table_offsets[factor]
        for sample in range(n_samples):
            entry = 0
            for slot in range(begin, end):
                variable = structure.slot_variables[slot]
                entry = entry * structure.cardinalities[variable] + columns[variable, sample]
            tables[start + entry] += weights[sample]


def smoothed_moments(
    graph: FactorGraph, unary: FloatArray, tables: FloatArray, total: float, smoothing: float
) -> Beliefs:
    """Relative frequencies from counts in samples of weight ``total``."""
    found = []
    for values, offsets in ((unary, graph.unary_offsets), (tables, graph.table_offsets)):
        smoothed = values + expand(smoothing / np.maximum(np.diff(offsets), 1), offsets)
        found.append(smoothed / (total + smoothing))
    return Beliefs(graph, *found)


# -- The estimate --------------------------------------------------------------------------

#: How far the margins of given moments may be from each other.
CONSISTENT = 1e-6


@dataclass(frozen=True, kw_only=True)
class MomentMatching(Objective):
    """Closed-form learning of untied tables; as an objective, the surrogate likelihood.

    Parameters
    ----------
    entropy
        Of the surrogate; predictions use the same.
    smoothing
        Number of imaginary samples that `moments` adds, spread evenly over the configurations of
        every table (so that margins still agree).  With 0, a configuration that never occurs
        is refused, because its potential would be ``-inf``.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> learner = MomentMatching(smoothing=1.0)
    >>> moments = learner.moments(graph, [[0, 0], [1, 1], [1, 1]])
    >>> potentials = learner.potentials(graph, moments)
    >>> learner.prediction(graph).run(graph, potentials).beliefs.factor(0)
    array([[0.3125, 0.0625],
           [0.0625, 0.5625]])
    """

    name: ClassVar[str] = "moment-matching"
    problem_kind: ClassVar[str] = "moments"
    entropy: Entropy = field(default_factory=TreeReweighted, kw_only=False)
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        require_instance("entropy", self.entropy, Entropy, "TreeReweighted() or Bethe()")
        require_number("smoothing", self.smoothing, at_least=0)
        if self.entropy.is_optimized:
            raise InvalidInputError(
                "entropy must have weights that do not depend on the potentials, "
                "got TreeReweighted('optimized')"
            )

    def moments(
        self, graph: FactorGraph, samples: ArrayLike, weights: ArrayLike | None = None
    ) -> Beliefs:
        """Relative frequencies of labels and of factors' configurations, smoothed.

        ``samples`` has one complete labelling in each row; ``weights`` count a sample more or less
        than once.
        """
        labels = _checked_samples(graph, samples)
        mass = _checked_weights(weights, len(labels))
        unary = np.zeros(int(graph.unary_offsets[-1]))
        tables = np.zeros(int(graph.table_offsets[-1]))
        columns = np.ascontiguousarray(labels.T)
        count_configurations(graph.structure, columns, mass, unary, tables)
        return smoothed_moments(graph, unary, tables, float(mass.sum()), self.smoothing)

    def potentials(self, graph: FactorGraph, moments: Beliefs) -> Potentials:
        """Potentials under which the surrogate's beliefs are the moments, all of them positive."""
        require_factor_graph(graph)
        require_instance("moments", moments, Beliefs, "MomentMatching().moments(graph, samples)")
        if not moments.graph.has_structure_of(graph):
            raise InvalidInputError(
                f"moments must belong to the given graph ({graph!r}), got {moments.graph!r}"
            )
        _require_positive("unary", moments.unary_values, graph.unary_offsets)
        linking = graph.arities >= 2
        used = expand(linking, graph.table_offsets)
        _require_positive("factors", np.where(used, moments.factor_values, 1.0),
                          graph.table_offsets)  # fmt: skip
        gaps = np.empty(graph.n_variables)
        largest_disagreements(graph.structure, moments.unary_values, moments.factor_values, gaps)
        if gaps.max(initial=0.0) > CONSISTENT:
            raise InvalidInputError(
                f"moments must have factor tables whose margins are the unary ones, got a "
                f"difference of {gaps.max():.3g} at variable {int(gaps.argmax())}"
            )
        counting = self.entropy.counting_numbers(graph)
        log_unary = np.log(moments.unary_values)
        independent = _sums_over_scopes(graph, log_unary)
        weight = expand(np.where(linking, counting.factor, 0.0), graph.table_offsets)
        with np.errstate(divide="ignore"):
            tables = np.log(np.where(used, moments.factor_values, 1.0))
        factors = np.where(used, weight * (tables - independent), 0.0)
        unary = expand(counting.variable_total, graph.unary_offsets) * log_unary
        return Potentials.from_flat(graph, unary, factors)

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """The surrogate likelihood, which `potentials` minimises for complete labels."""
        return self._likelihood().evaluate(batch, potentials, labels, init)

    def prediction(self, graph: FactorGraph) -> SumProduct:
        """Message passing with the same entropy."""
        return SumProduct(entropy=self.entropy)

    def _likelihood(self) -> Likelihood:
        return Likelihood(SumProduct(entropy=self.entropy))


def _sums_over_scopes(graph: FactorGraph, unary: FloatArray) -> FloatArray:
    """``sum_{i in a} u_i(y_i)`` for every table entry, position by position of the scopes."""
    owners = row_numbers(graph.table_offsets)
    rest = np.arange(int(graph.table_offsets[-1])) - graph.table_offsets[owners]
    sums = np.zeros(len(rest))
    for position in range(int(graph.arities.max(initial=0)) - 1, -1, -1):
        has = graph.arities[owners] > position
        variables = graph.slot_variables[graph.scope_offsets[owners[has]] + position]
        # the last position of a scope is the fastest digit: peel digits from the end
        rest[has], digits = np.divmod(rest[has], graph.cardinalities[variables])
        sums[has] += unary[graph.unary_offsets[variables] + digits]
    return sums


def _checked_samples(graph: FactorGraph, samples: ArrayLike) -> IntArray:
    require_factor_graph(graph)
    labels = plain_array("samples", samples)
    if labels.ndim != 2 or labels.shape[1] != graph.n_variables or labels.dtype.kind not in "iu":
        raise InvalidInputError(
            f"samples must be an integer array of shape (n_samples, {graph.n_variables}), "
            f"got dtype {labels.dtype} and shape {labels.shape}"
        )
    if len(labels) == 0:
        raise InvalidInputError("samples must hold at least one row, got none")
    bad = np.argwhere((labels < 0) | (labels >= graph.cardinalities))
    if len(bad):
        row, variable = int(bad[0, 0]), int(bad[0, 1])
        raise InvalidInputError(
            f"samples[{row}]: the label of variable {variable} must be in "
            f"0..{graph.cardinalities[variable] - 1} (none may be missing), "
            f"got {labels[row, variable]}"
        )
    return labels.astype(np.int32)


def _checked_weights(weights: ArrayLike | None, n_samples: int) -> FloatArray:
    if weights is None:
        return np.ones(n_samples)
    array = real_numbers("weights", weights)
    if array.shape != (n_samples,) or not (np.isfinite(array) & (array >= 0.0)).all():
        raise InvalidInputError(
            f"weights must be {n_samples} finite numbers of at least 0, got shape {array.shape}"
        )
    if not array.sum() > 0.0:
        raise InvalidInputError("weights must have a positive sum, got 0")
    return array


def _require_positive(name: str, values: FloatArray, offsets: IntArray) -> None:
    bad = np.flatnonzero(~((values > 0.0) & (values < np.inf)))
    if len(bad):
        index = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise InvalidInputError(
            f"moments must be positive, got {values[bad[0]]:.6g} in {name}[{index}] "
            f"(entry {int(bad[0]) - int(offsets[index])}); use smoothing above 0 if a "
            "configuration never occurs"
        )
