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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.result import InferenceResult
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

__all__ = ["MeanField", "product_bound"]

Progress = Callable[[int, float], None]

#: Slot updates per kernel call, about half a second: between calls the user may interrupt.
UPDATES_PER_CALL = 20_000_000


@dataclass(frozen=True)
class MeanField:
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
        Seed of the random starting points: an integer, a NumPy generator or ``None``.

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

    update: Literal["coordinate", "parallel"] = "coordinate"
    damping: float = 0.0
    tol: float = 1e-8
    max_iter: int = 1000
    n_restarts: int = 1
    random_state: int | np.random.Generator | None = None

    def __post_init__(self) -> None:
        if self.update not in ("coordinate", "parallel"):
            raise InvalidInputError(
                f'update must be "coordinate" or "parallel", got {self.update!r}'
            )
        if not 0.0 <= self.damping < 1.0:
            raise InvalidInputError(f"damping must be in [0, 1), got {self.damping}")
        if not self.tol >= 0.0:
            raise InvalidInputError(f"tol must be at least 0, got {self.tol}")
        for name in ("max_iter", "n_restarts"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be at least 1, got {getattr(self, name)}")

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | Beliefs | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs and lower bound of one graph; ``progress`` is told (sweeps, residual)."""
        return self.run_batch(Batch.of([graph]), potentials, observed, init, progress)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | Beliefs | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs, and one lower bound for each example of a batch."""
        graph = batch.graph
        model, _ = condition(graph, potentials, observed)
        form = sweep_form(graph, model)
        generator = np.random.default_rng(self.random_state)
        best: _Outcome | None = None
        for restart in range(self.n_restarts):
            if restart > 0:
                start = _normalised(graph, model, generator.exponential(size=len(model.unary)))
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
        return _Outcome(beliefs, values, _largest_by_example(batch, changes), n_iter)

    def _possible_start(
        self, batch: Batch, model: GeneralModel, outcome: _Outcome
    ) -> FloatArray | None:
        """One possible configuration in place of the beliefs of examples without a bound."""
        labels = feasible_labels(model, preference=outcome.beliefs)
        if labels is None:
            return None
        points = np.zeros_like(outcome.beliefs)
        points[batch.graph.unary_offsets[:-1] + labels] = 1.0
        return np.where(_by_entry(batch, np.isneginf(outcome.values)), points, outcome.beliefs)

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
        elif converged.all():
            status = f"converged after {outcome.n_iter} sweeps: beliefs moved by {residual:.1e}"
        else:
            status = (
                f"stopped at max_iter={self.max_iter} sweeps: beliefs still moved by "
                f"{residual:.1e}, tol is {self.tol:.1e}; the lower bound holds all the same"
            )
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
    by_variable = _row_reduce(graph, terms, np.add)
    values = batch.sum_variables(by_variable) + batch.sum_factors(expectations)
    return values, products


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
            beliefs=np.where(_by_entry(batch, better), other.beliefs, self.beliefs),
            values=np.where(better, other.values, self.values),
            residuals=np.where(better, other.residuals, self.residuals),
            n_iter=max(self.n_iter, other.n_iter),
        )


# -- helpers ------------------------------------------------------------------------------


def _row_reduce(graph: FactorGraph, values: FloatArray, operation: np.ufunc) -> FloatArray:
    """Reduce each variable's entries (every variable has at least one)."""
    if graph.n_variables == 0:
        return np.zeros(0)
    reduced: FloatArray = operation.reduceat(values, graph.unary_offsets[:-1])
    return reduced


def _by_entry(batch: Batch, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A choice of examples, as a choice of unary entries."""
    entries: NDArray[np.bool_] = np.repeat(
        chosen, np.diff(batch.graph.unary_offsets[batch.variable_offsets])
    )
    return entries


def _largest_by_example(batch: Batch, values: FloatArray) -> FloatArray:
    largest = np.zeros(batch.n_examples)
    np.maximum.at(largest, batch.variable_examples(), values)
    return largest


def _normalised(graph: FactorGraph, model: GeneralModel, weights: FloatArray) -> FloatArray:
    """Weights restricted to possible labels and normalised; uniform where none is left."""
    possible = model.unary > -np.inf
    kept = np.where(possible, weights, 0.0)
    total = _row_reduce(graph, kept, np.add)
    empty = np.repeat(total <= 0.0, graph.cardinalities)
    kept[empty] = possible[empty]
    total = _row_reduce(graph, kept, np.add)
    return kept / np.repeat(total, graph.cardinalities)


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
