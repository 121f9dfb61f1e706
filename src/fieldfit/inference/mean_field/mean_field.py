"""Naive mean field: the product distribution that gives the best lower bound on ``log Z``.

Maximises ``E_b[s(y)] + H(b)`` over ``b(y) = prod_j b_j(y_j)``, by coordinate updates

    b_j(y_j) ∝ exp(th_j(y_j) + sum_{a on j} E_{b without j}[th_a | y_j])

or by the same updates made for all variables at once (parallel), which needs damping to
converge.  The value is a lower bound on ``log Z`` for every product ``b``, converged or not
(Gibbs' inequality); under coordinate updates it never falls.

Reference: Peterson and Anderson, "A mean field theory learning algorithm for neural networks",
Complex Systems 1, 1987; the damped parallel form with step 0.1 (``damping=0.9``) is used by
Welling and Sutton, "Learning in Markov random fields with contrastive free energies", 2005.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fieldfit._random_state import random_generator, require_random_state
from fieldfit._typing import FloatArray
from fieldfit._validation import require_integer, require_number, require_one_of
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import (
    Evidence,
    Inference,
    Progress,
    ending,
    require_model,
    require_result,
)
from fieldfit.inference.conditioning import (
    BinaryPairwise,
    GeneralModel,
    condition,
    feasible_labels,
    sweep_form,
)
from fieldfit.inference.mean_field.mean_field_sweeps import (
    binary_sweeps,
    general_sweeps,
    product_tables,
)

__all__ = ["MeanField", "better_examples", "product_bound"]

#: Slot updates per kernel call, about half a second: between calls the user may interrupt.
UPDATES_PER_CALL = 20_000_000


@dataclass(frozen=True, kw_only=True)
class MeanField(Inference):
    """Naive mean field on any graph.

    Parameters
    ----------
    update
        ``"coordinate"``: one variable after the other, colour by colour; the bound never falls.
        ``"parallel"``: all at once from the old beliefs.
    damping
        Fraction of the old belief that an update keeps, in [0, 1).
    tol
        Converged when no belief is further than this from its update.
    max_iter
        Largest number of sweeps from one starting point.
    n_restarts
        Number of starting points: the first is ``init`` or uniform, the others are random; the
        best bound wins, example by example.
    random_state
        Seed of the random starting points: an integer, a NumPy generator or ``None``.  With an
        integer, an example has the same starting points in any batch.

    Notes
    -----
    With hard zeros in tables the updates first lower the probability of forbidden
    configurations.  If that ends above zero (as between two equally good halves of a parity
    constraint), the run starts again from one possible configuration, found by search.

    In a model that is symmetric under exchange of labels the uniform start is a fixed point and
    often a saddle point; ``n_restarts`` of 2 or more leaves it.

    Examples
    --------
    >>> graph = FactorGraph.chain(2, 2)
    >>> result = MeanField().run(graph, Potentials(graph))
    >>> round(result.log_partition, 6), result.bound
    (1.386294, 'lower')
    """

    update: Literal["coordinate", "parallel"] = field(default="coordinate", kw_only=False)
    damping: float = 0.0
    tol: float = 1e-8
    max_iter: int = 1000
    n_restarts: int = 1
    random_state: int | np.random.Generator | None = None

    def __post_init__(self) -> None:
        require_one_of("update", self.update, ("coordinate", "parallel"))
        require_number("damping", self.damping, at_least=0, below=1)
        require_number("tol", self.tol, at_least=0)
        require_integer("max_iter", self.max_iter, at_least=1)
        require_integer("n_restarts", self.n_restarts, at_least=1)
        require_random_state(self.random_state)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        init: InferenceResult | Beliefs | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs, and one lower bound for each example of a batch.

        ``init`` is an earlier result of any method, or beliefs; only those of variables are used.
        """
        require_model(batch, potentials, progress)
        require_result(init, Beliefs)
        graph = batch.graph
        model, _ = condition(graph, potentials, observed)
        form = sweep_form(graph, model)
        starts = _RandomStarts(batch, self.random_state)
        best: _Outcome | None = None
        for restart in range(self.n_restarts):
            if restart > 0:
                start = _normalised(graph, model, starts.draw())
            else:
                start = _first_start(graph, model, init)
            outcome = self._ascend(batch, potentials, form, start, progress)
            if np.isneginf(outcome.values).any():
                possible = self._possible_start(batch, model, outcome)
                if possible is not None:
                    again = self._ascend(batch, potentials, form, possible, progress)
                    outcome = outcome.merged(batch, again)
            best = outcome if best is None else best.merged(batch, outcome)
        assert best is not None
        return self._result(batch, potentials, best)

    def _ascend(
        self,
        batch: Batch,
        potentials: Potentials,
        form: GeneralModel | BinaryPairwise,
        beliefs: FloatArray,
        progress: Progress | None,
    ) -> _Outcome:
        """Sweeps from one starting point, which is overwritten."""
        graph = batch.graph
        changes = np.zeros(graph.n_variables)
        sweeps: Any = binary_sweeps if isinstance(form, BinaryPairwise) else general_sweeps
        per_call = 1 if progress else max(1, UPDATES_PER_CALL // max(1, graph.n_slots))
        n_iter, residual = 0, np.inf
        while n_iter < self.max_iter and residual > self.tol:
            n_sweeps = min(per_call, self.max_iter - n_iter)
            done, residual = sweeps(
                form,
                beliefs,
                changes,
                self.update == "parallel",
                float(self.damping),
                n_sweeps,
                float(self.tol),
            )
            n_iter += done
            if progress is not None:
                progress(n_iter, residual)
        values, _ = product_bound(batch, potentials, beliefs)
        return _Outcome(beliefs, values, batch.max_variables(changes), n_iter)

    def _possible_start(
        self, batch: Batch, model: GeneralModel, outcome: _Outcome
    ) -> FloatArray | None:
        """One possible configuration in place of the beliefs of examples without a bound."""
        labels = feasible_labels(model, preference=outcome.beliefs)
        if labels is None:
            return None
        points = np.zeros_like(outcome.beliefs)
        points[batch.graph.unary_offsets[:-1] + labels] = 1.0
        unbounded = expand(np.isneginf(outcome.values), batch.unary_offsets)
        return np.where(unbounded, points, outcome.beliefs)

    def _result(self, batch: Batch, potentials: Potentials, outcome: _Outcome) -> InferenceResult:
        values, products = product_bound(batch, potentials, outcome.beliefs)
        residual = float(outcome.residuals.max(initial=0.0))
        bounded = values > -np.inf
        converged = bounded & (outcome.residuals <= self.tol)
        if not bounded.all():
            status = (
                "stopped without a product distribution of possible configurations: every one "
                "that was found gives positive probability to a hard zero, so the bound is -inf"
            )
        else:
            sweeps = "1 sweep" if outcome.n_iter == 1 else f"{outcome.n_iter} sweeps"
            status = ending(
                converged,
                f"beliefs moved by {residual:.2g} after {sweeps}",
                self.tol,
                "more sweeps",
            )
            if not converged.all():
                status += "; the lower bound holds in any case"
        return InferenceResult(
            beliefs=Beliefs(batch.graph, outcome.beliefs, products),
            log_partition=float(values.sum()),
            bound="lower" if bounded.all() else None,
            converged=bool(converged.all()),
            n_iter=outcome.n_iter,
            residual=residual,
            status=status,
            method=f"MeanField({self.update})",
            log_partitions=values,
            converged_examples=converged,
        )


def product_bound(
    batch: Batch, potentials: Potentials, beliefs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """``E_b[s] + H(b)`` of each example for the product of these unary beliefs.

    Also returns the factor beliefs, products of the unary ones.  The value is a lower bound on
    each example's log-partition; it is ``-inf`` where a forbidden configuration has probability.
    """
    graph = batch.graph
    products = np.empty(graph.table_offsets[-1])
    expectations = np.empty(graph.n_factors)
    product_tables(graph.structure, beliefs, potentials.factor_values, products, expectations)
    terms = np.zeros_like(beliefs)
    used = beliefs > 0.0
    terms[used] = beliefs[used] * (potentials.unary_values[used] - np.log(beliefs[used]))
    by_variable = reduce_rows(np.add, terms, graph.unary_offsets)
    values = batch.sum_variables(by_variable) + batch.sum_factors(expectations)
    return values, products


def better_examples(
    batch: Batch, first: InferenceResult, second: InferenceResult
) -> InferenceResult:
    """Of two runs of mean field the one with the larger bound, example by example."""
    assert first.log_partitions is not None
    assert second.log_partitions is not None
    assert first.converged_examples is not None
    assert second.converged_examples is not None
    better = second.log_partitions > first.log_partitions
    if not better.any():
        return first
    if better.all():
        return second
    unary, table = expand(better, batch.unary_offsets), expand(better, batch.table_offsets)
    values = np.where(better, second.log_partitions, first.log_partitions)
    converged = np.where(better, second.converged_examples, first.converged_examples)
    beliefs = Beliefs(
        batch.graph,
        np.where(unary, second.beliefs.unary_values, first.beliefs.unary_values),
        np.where(table, second.beliefs.factor_values, first.beliefs.factor_values),
    )
    return replace(
        first,
        beliefs=beliefs,
        log_partition=float(values.sum()),
        bound="lower" if (values > -np.inf).all() else None,
        converged=bool(converged.all()),
        n_iter=max(first.n_iter, second.n_iter),
        residual=max(first.residual, second.residual),
        log_partitions=values,
        converged_examples=converged,
    )


@dataclass(frozen=True)
class _Outcome:
    """Where one starting point led: a value and a residual for each example."""

    beliefs: FloatArray
    values: FloatArray
    residuals: FloatArray
    n_iter: int

    def merged(self, batch: Batch, other: _Outcome) -> _Outcome:
        """The better one of two, example by example."""
        better = other.values > self.values
        return _Outcome(
            beliefs=np.where(expand(better, batch.unary_offsets), other.beliefs, self.beliefs),
            values=np.where(better, other.values, self.values),
            residuals=np.where(better, other.residuals, self.residuals),
            n_iter=max(self.n_iter, other.n_iter),
        )


# -- starting points ----------------------------------------------------------------------


class _RandomStarts:
    """Random weights of all labels; an example gets the same ones whatever the batch."""

    def __init__(self, batch: Batch, random_state: int | np.random.Generator | None) -> None:
        self._batch, self._seed = batch, random_state
        self._generators: list[np.random.Generator] = []

    def draw(self) -> FloatArray:
        """Exponential weights: normalised, they are uniform on the simplex."""
        if not self._generators:
            examples = range(self._batch.n_examples)
            self._generators = [random_generator(self._seed) for _ in examples]
        sizes = np.diff(self._batch.unary_offsets)
        return np.concatenate(
            [
                generator.exponential(size=size)
                for generator, size in zip(self._generators, sizes, strict=True)
            ]
        )


def _normalised(graph: FactorGraph, model: GeneralModel, weights: FloatArray) -> FloatArray:
    """Weights restricted to possible labels and normalised; uniform where none is left."""
    possible = model.unary > -np.inf
    kept = np.where(possible, weights, 0.0)
    empty = expand(reduce_rows(np.add, kept, graph.unary_offsets) <= 0.0, graph.unary_offsets)
    kept[empty] = possible[empty]
    return kept / expand(reduce_rows(np.add, kept, graph.unary_offsets), graph.unary_offsets)


def _first_start(
    graph: FactorGraph, model: GeneralModel, init: InferenceResult | Beliefs | None
) -> FloatArray:
    if init is None:
        return _normalised(graph, model, np.ones(len(model.unary)))
    beliefs = init.beliefs if isinstance(init, InferenceResult) else init
    values = beliefs.unary_values
    if values.shape != model.unary.shape:
        raise InvalidInputError(
            f"init must hold {len(model.unary)} unary beliefs, got {len(values)}"
        )
    if not (np.isfinite(values).all() and (values >= 0.0).all()):
        raise InvalidInputError("init must hold finite beliefs of at least 0, got others")
    return _normalised(graph, model, values)
