"""Marginal-based losses: univariate and clique log-loss, quadratic (Brier) and smoothed 0-1 loss.

With ``t_i`` the label of variable ``i`` and ``t_a`` the labels of the variables of factor ``a``:

    ucl       sum_i -log b_i(t_i)                            univariate conditional likelihood
    uquad     sum_i (sum_y b_i(y)^2 - 2 b_i(t_i))            univariate quadratic loss
    suclass   sum_i s(sharpness (max_{y != t_i} b_i(y) - b_i(t_i)))   smoothed number of errors
    uclass    sum_i [t_i is not the label of largest belief]          number of errors

and ``ccl``, ``cquad``, ``scclass``, ``cclass``, the same sums over the beliefs of factors; ``s`` is
the logistic function.  The quadratic losses are Brier's score less a constant, -1 when certain and
right.  The last ones of each row are for evaluation: they have no derivative.

Only what is known counts: a variable with a label, a factor all of whose variables have one.
Factors of arity zero and one do not count in the losses on factors: the first are constants, and
whether a variable's own potentials are a factor or not must make no difference.

References: Kakade, Teh and Roweis, "An alternate objective function for Markovian fields", ICML
(2002), for the univariate likelihood; Domke, "Learning convex inference of marginals", Uncertainty
in Artificial Intelligence (2008), and his thesis (2009), table 4.1; the smoothed error is that of
Gross, Russakovsky, Do and Batzoglou, "Training conditional random fields for maximum labelwise
accuracy" (2007).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fieldfit._typing import FloatArray, IntArray, LabelArray, LongArray
from fieldfit._validation import require_number, require_one_of
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.structure import Structure
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp, fast_log

__all__ = [
    "HARD",
    "LOG",
    "LOSSES",
    "QUADRATIC",
    "SMALLEST_BELIEF",
    "SMOOTH",
    "SMOOTH_LOSSES",
    "MarginalLoss",
    "belief_losses",
    "true_configurations",
]

# -- Kernels: one normalised vector at a time, the belief of a variable or of a factor -----
# With ``t`` the entry of the true label, or of the true configuration,
#
#     LOG         -log b(t)                         derivative  -1 / b(t)  at t
#     QUADRATIC   sum_y b(y)^2 - 2 b(t)                         2 b - 2 [y = t]
#     SMOOTH      s(sharpness (max_{y != t} b(y) - b(t)))       s' sharpness ([y = best] - [y = t])
#     HARD        [t is not the first largest entry]            none
#
# where ``s(x) = 1 / (1 + exp(-x))``.

LOG, QUADRATIC, SMOOTH, HARD = 0, 1, 2, 3

#: A smaller belief of a true label counts as this one: the logarithm and its slope stay finite, and
#: so does the product of the slope with anything that is itself as small as the belief.
SMALLEST_BELIEF = 1e-300


@kernel
def belief_losses(
    kind: int,
    sharpness: float,
    beliefs: FloatArray,
    offsets: IntArray,
    true_entries: LongArray,
    values: FloatArray,
    derivative: FloatArray,
) -> None:
    """Value of each vector ``beliefs[offsets[k]:offsets[k + 1]]``, and the derivative.

    ``true_entries`` are positions in ``beliefs``, -1 where there is no truth; such a vector counts
    nothing.  ``derivative`` must hold zeros; an empty one stands for "not needed".
    """
    wanted = len(derivative) > 0
    for k in range(len(true_entries)):
        truth = true_entries[k]
        values[k] = 0.0
        if truth < 0:
            continue
        begin, end = offsets[k], offsets[k + 1]
        if kind == LOG:
            belief = max(beliefs[truth], SMALLEST_BELIEF)
            values[k] = -fast_log(belief)
            if wanted:
                derivative[truth] = -1.0 / belief
        elif kind == QUADRATIC:
            total = 0.0
            for z in range(begin, end):
                total += beliefs[z] * beliefs[z]
            values[k] = total - 2.0 * beliefs[truth]
            if wanted:
                for z in range(begin, end):
                    derivative[z] = 2.0 * beliefs[z]
                derivative[truth] -= 2.0
        else:
            best = -1
            for z in range(begin, end):
                if z != truth and (best < 0 or beliefs[z] > beliefs[best]):
                    best = z
            if best < 0:  # a single label cannot be wrong
                continue
            gap = beliefs[best] - beliefs[truth]
            if kind == HARD:
                values[k] = 1.0 if gap > 0.0 or (gap == 0.0 and best < truth) else 0.0
                continue
            # written for the sign of the gap, so that the exponential never overflows
            small = fast_exp(-abs(sharpness * gap))
            larger = 1.0 / (1.0 + small)
            values[k] = larger if gap >= 0.0 else small * larger
            if wanted:
                slope = sharpness * small * larger * larger
                derivative[best] = slope
                derivative[truth] = -slope


@kernel
def true_configurations(structure: Structure, labels: LabelArray, entries: LongArray) -> None:
    """Table entry of the labels of each factor, -1 where one is missing or the arity below two."""
    for factor in range(len(entries)):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        entry = 0 if stop - first >= 2 else -1
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            if labels[variable] < 0:
                entry = -1
            elif entry >= 0:
                entry = entry * structure.cardinalities[variable] + labels[variable]
        entries[factor] = structure.table_offsets[factor] + entry if entry >= 0 else -1


# -- Losses by name ------------------------------------------------------------------------

_KINDS = {
    "ucl": LOG,
    "ccl": LOG,
    "uquad": QUADRATIC,
    "cquad": QUADRATIC,
    "suclass": SMOOTH,
    "scclass": SMOOTH,
    "uclass": HARD,
    "cclass": HARD,
}
_ON_FACTORS = ("ccl", "cquad", "scclass", "cclass")

#: Every name; the first six have derivatives.
LOSSES = tuple(_KINDS)
SMOOTH_LOSSES = tuple(name for name, kind in _KINDS.items() if kind != HARD)


@dataclass(frozen=True, kw_only=True)
class MarginalLoss:
    """A loss on beliefs, by its name.

    Parameters
    ----------
    name
        One of the names above.
    sharpness
        Of ``suclass`` and ``scclass``: what the gap between two beliefs is multiplied with.  The
        references leave it open.  At 10 a gap of 0.2 already counts as 0.88 of an error, while
        certain answers (a gap of 1) still have a slope.

    Notes
    -----
    A belief of exactly zero, or one that has underflowed, makes ``ucl`` and ``ccl`` infinite.  The
    belief of a true label is therefore taken as at least 1e-300: value 691, slope -1e300, both
    finite.  Labels that a hard zero rules out are for the caller to refuse; the objectives do.

    Examples
    --------
    >>> import fieldfit as ff
    >>> batch = Batch.of([ff.FactorGraph.chain(2, 2)])
    >>> beliefs = ff.SumProduct().run_batch(batch, ff.Potentials(batch.graph)).beliefs
    >>> MarginalLoss("ccl").values(batch, beliefs, np.array([0, 1])).round(4)
    array([1.3863])
    """

    name: str = field(default="ucl", kw_only=False)
    sharpness: float = 10.0

    def __post_init__(self) -> None:
        require_one_of("name", self.name, LOSSES)
        require_number("sharpness", self.sharpness, above=0)

    @classmethod
    def to_learn_with(cls, given: str | MarginalLoss) -> MarginalLoss:
        """The loss of a name, or a loss itself, if it has a derivative."""
        if not isinstance(given, MarginalLoss):
            require_one_of("loss", given, LOSSES)
        loss = given if isinstance(given, MarginalLoss) else cls(given)
        if not loss.is_smooth:
            raise InvalidInputError(
                f"loss must be one of {SMOOTH_LOSSES} to be learned with, got {given!r}"
            )
        return loss

    @property
    def is_smooth(self) -> bool:
        """True if there is a derivative."""
        return self.name in SMOOTH_LOSSES

    @property
    def reads_factors(self) -> bool:
        """True if it looks at the beliefs of factors, false if at those of variables."""
        return self.name in _ON_FACTORS

    def values(self, batch: Batch, beliefs: Beliefs, labels: LabelArray) -> FloatArray:
        """One value for each example; ``labels`` of the union graph, -1 where missing."""
        return self._fill(batch, beliefs, labels, np.empty(0), np.empty(0))

    def value_and_derivative(
        self, batch: Batch, beliefs: Beliefs, labels: LabelArray
    ) -> tuple[FloatArray, Potentials]:
        """One value for each example, and the derivative of their sum by every belief.

        The derivative is laid out like potentials, as what beliefs have inner products with.
        """
        if not self.is_smooth:
            raise InvalidInputError(
                f"loss must be one of {SMOOTH_LOSSES} to have a derivative, got {self.name!r}"
            )
        graph = batch.graph
        unary = np.zeros(int(graph.unary_offsets[-1]))
        tables = np.zeros(int(graph.table_offsets[-1]))
        values = self._fill(batch, beliefs, labels, unary, tables)
        return values, Potentials.from_flat(graph, unary, tables)

    def _fill(
        self,
        batch: Batch,
        beliefs: Beliefs,
        labels: LabelArray,
        unary: FloatArray,
        tables: FloatArray,
    ) -> FloatArray:
        """Values; the derivative goes into two arrays of zeros unless these are empty."""
        graph = batch.graph
        if self.reads_factors:
            entries = np.empty(graph.n_factors, dtype=np.int64)
            true_configurations(graph.structure, labels.astype(np.int32), entries)
            offsets, given, derivative = graph.table_offsets, beliefs.factor_values, tables
        else:
            entries = np.where(labels >= 0, graph.unary_offsets[:-1] + labels, np.int64(-1))
            offsets, given, derivative = graph.unary_offsets, beliefs.unary_values, unary
        values = np.empty(len(entries))
        belief_losses(
            _KINDS[self.name], float(self.sharpness), np.require(given, np.float64, ["C", "W"]),
            offsets, entries.astype(np.int64), values, derivative,
        )  # fmt: skip
        sums = batch.sum_factors if self.reads_factors else batch.sum_variables
        return sums(values)
