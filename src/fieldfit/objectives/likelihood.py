"""Likelihood and surrogate (Bethe, tree-reweighted, convex, mean-field) likelihoods.

    value = B(th) - B(th; y)            gradient = tau - tau(y)

``B`` is the log-partition of the chosen inference and ``tau`` its beliefs (``grad B = tau``,
because the beliefs are a stationary point of what ``B`` maximises).  If every label is given, the
second term is just the score ``<th, y>``; where labels are missing (latent variables) it is the
log-partition of the model with the other labels observed.

**Mean field.**  ``B(th) = max_b <th, b> + H(b)`` over products ``b`` is a maximum of linear
functions: convex, and never below the score of a labelling, which is itself a product.  So the
value is convex and at least 0.  Where variables depend on each other no product has their moments,
no branch of the maximum has a stationary point, and the minimum is where branches meet.  With a
local maximum ``b`` in place of the best the value falls without bound.  Therefore mean field is
started again from the labels wherever they are worth more than the beliefs found.

With `Exact` this is the likelihood; with `SumProduct` the Bethe, tree-reweighted or convex
surrogate; with `MeanField` the variational one.  Reference: Wainwright, "Estimating the 'wrong'
graphical model", J. Machine Learning Research 7 (2006); Sutton and McCallum, "An introduction to
conditional random fields", Foundations and Trends in Machine Learning 4 (2012).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, LabelArray, LongArray
from fieldfit.errors import ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, selected_entries
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.mean_field.mean_field import MeanField, better_examples
from fieldfit.objectives.base import (
    Evaluation,
    Inference,
    Objective,
    raise_impossible,
    require_inference,
    require_possible,
)

__all__ = ["MEAN_FIELD_ADVICE", "Likelihood"]

#: For fits by the mean-field likelihood that end without a small gradient.
MEAN_FIELD_ADVICE = (
    "the mean-field likelihood of variables that depend on each other has its minimum where two "
    "mean-field solutions are equally good, and no stationary point; "
    "objective='pseudolikelihood', 'likelihood' where exact inference is cheap, or a larger l2 has"
)


@dataclass(frozen=True)
class Likelihood(Objective):
    """Negative (surrogate) log-likelihood of the labels that are given.

    Parameters
    ----------
    inference
        `Exact()`, `SumProduct(...)`, `MeanField(...)` or another with ``run_batch``.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> value, gradient = Likelihood().value_and_grad(graph, ff.Potentials(graph), [0, -1])
    >>> round(value, 6), gradient.unary(0), gradient.unary(1)
    (0.693147, array([-0.5,  0.5]), array([0., 0.]))
    """

    name: ClassVar[str] = "likelihood"
    problem_kind: ClassVar[str] = "likelihood"
    inference: Inference = field(default_factory=Exact)

    def __post_init__(self) -> None:
        require_inference(self.inference)

    @property
    def has_kinks(self) -> bool:
        """Mean field changes from one product distribution to another one."""
        return isinstance(self.inference, MeanField)

    @property
    def advice(self) -> str:
        """What to do where mean field has no minimum to converge to."""
        return MEAN_FIELD_ADVICE if self.has_kinks else ""

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """Free minus observed, on every example at once; warm-started from ``init``."""
        free_init, observed_init, entries = (None, None, None) if init is None else init
        free = self.inference.run_batch(batch, potentials, init=free_init)
        if isinstance(self.inference, MeanField):
            free = self._not_below_labels(batch, potentials, labels, free)
        assert free.log_partitions is not None
        start = light_start(free)  # before the beliefs, which are ours, turn into the gradient
        unary, factors = free.beliefs.unary_values, free.beliefs.factor_values
        values = free.log_partitions.copy()
        converged = converged_examples(free, batch)
        observed_start: InferenceResult | None = None
        if entries is None or entries.labels is not labels:
            entries = LabelEntries.of(batch, labels) if np.all(labels >= 0) else None
        if entries is not None:
            values -= subtract_labels(batch, potentials, entries, unary, factors)
        else:
            try:
                observed = self.inference.run_batch(
                    batch, potentials, observed=labels, init=observed_init
                )
            except ZeroWeightError:
                raise_impossible(batch, potentials, labels)
            assert observed.log_partitions is not None
            values -= observed.log_partitions
            unary -= observed.beliefs.unary_values
            factors -= observed.beliefs.factor_values
            converged = converged & converged_examples(observed, batch)
            observed_start = light_start(observed)
        gradient = Potentials.from_flat(batch.graph, unary, factors)
        return Evaluation(values, gradient, converged, (start, observed_start, entries))

    def _not_below_labels(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, free: InferenceResult
    ) -> InferenceResult:
        """Mean field once more, from the labels, if those of an example have a larger bound."""
        if not np.all(labels >= 0):
            return free
        scores = batch.scores(potentials, labels)
        assert free.log_partitions is not None
        if np.all(free.log_partitions >= scores):
            return free
        start = Beliefs.from_labels(batch.graph, labels)
        again = self.inference.run_batch(batch, potentials, init=replace(free, beliefs=start))
        return better_examples(batch, free, again)

    def prediction(self, graph: FactorGraph) -> Inference:
        """The inference of the objective."""
        return self.inference


def light_start(result: InferenceResult) -> InferenceResult:
    """What a later run can start from, without the tables: those are most of the memory.

    Message passing starts from ``state``, mean field from unary beliefs; the tables are replaced
    by zeros that take no room.
    """
    beliefs = result.beliefs
    no_tables = np.broadcast_to(np.float64(0.0), beliefs.factor_values.shape)
    return replace(result, beliefs=Beliefs(beliefs.graph, beliefs.unary_values.copy(), no_tables))


def converged_examples(result: InferenceResult, batch: Batch) -> BoolArray:
    """Which examples of a batch have converged."""
    if result.converged_examples is not None:
        return result.converged_examples
    return np.full(batch.n_examples, result.converged)


@dataclass(frozen=True, eq=False)
class LabelEntries:
    """Where a complete labelling finds its potentials: the same at every step of learning."""

    labels: LabelArray
    unary: LongArray
    table: LongArray

    @classmethod
    def of(cls, batch: Batch, labels: LabelArray) -> LabelEntries:
        return cls(labels, *selected_entries(batch.graph, labels))


def subtract_labels(
    batch: Batch,
    potentials: Potentials,
    entries: LabelEntries,
    unary: FloatArray,
    factors: FloatArray,
) -> FloatArray:
    """Take the indicator of complete labels from two vectors; return each example's score."""
    scores = batch.sum_variables(potentials.unary_values[entries.unary])
    scores += batch.sum_factors(potentials.factor_values[entries.table])
    require_possible(batch, scores)
    unary[entries.unary] -= 1.0
    factors[entries.table] -= 1.0
    return scores
