"""A fixed number of mean-field sweeps as a map, and the exact way back through it.

The sweeps are the coordinate updates of `MeanField` from uniform beliefs, variable by variable in
the order of colours; the derivatives are stated in `fieldfit.kernels.reverse_mean_field`.  See
`UnrolledSumProduct` for the idea.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.adjoint._unrolled_run import PulledBack
from fieldfit.adjoint.unrolled import given_potentials, require_count
from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Beliefs, Potentials, add_to_single_factors, require_graph
from fieldfit.core.result import InferenceResult
from fieldfit.errors import InvalidInputError
from fieldfit.inference._conditioned import condition, sweep_form
from fieldfit.inference.mean_field import product_bound
from fieldfit.kernels.mean_field import binary_sweeps, general_sweeps
from fieldfit.kernels.models import BinaryPairwise, GeneralModel
from fieldfit.kernels.product import product_tables
from fieldfit.kernels.reverse_mean_field import reverse_mean_field_sweep, reverse_products

__all__ = ["UnrolledMeanField"]

FloatArray = NDArray[np.float64]

#: Never met: no sweep is left out.
NO_TOLERANCE = -1.0


@dataclass(frozen=True)
class UnrolledMeanField:
    """Exactly ``n_sweeps`` coordinate sweeps of mean field from uniform beliefs.

    Parameters
    ----------
    n_sweeps
        Sweeps.
    damping
        Share of the old belief that an update keeps, in [0, 1).

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

    n_sweeps: int = 5
    damping: float = 0.0

    def __post_init__(self) -> None:
        require_count("n_sweeps", self.n_sweeps)
        if not 0.0 <= self.damping < 1.0:
            raise InvalidInputError(f"damping must be in [0, 1), got {self.damping}")

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """Beliefs of one graph after the sweeps; ``init`` is not used."""
        return self.run_batch(Batch.of([graph]), potentials, observed, init)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """Beliefs of every example after the sweeps; their products bound ``log Z`` from below."""
        return self.record(batch, potentials, observed).result()

    def record(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: dict[int, int] | ArrayLike | None = None,
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
    """Sweeps on a batch, and the way back over them."""

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
        if graph.n_variables:
            counts = np.add.reduceat(possible, graph.unary_offsets[:-1])
            possible /= np.repeat(counts, graph.cardinalities)
        self._beliefs = possible
        self._tape = np.empty((n_sweeps, len(possible)))
        self._residual = 0.0
        changes = np.zeros(graph.n_variables)
        forms = [sweep_form(graph, model) for model in self._models]
        for sweep in range(n_sweeps):
            self._tape[sweep] = self._beliefs
            form = forms[min(sweep, len(forms) - 1)]
            kernel = binary_sweeps if isinstance(form, BinaryPairwise) else general_sweeps
            _, self._residual = kernel(
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

    def pull_back(self, derivative: Potentials, beliefs: Beliefs) -> PulledBack:
        """From a derivative by beliefs to derivatives by potentials; any number of times."""
        graph = self.batch.graph
        require_graph(graph, derivative)
        state = self._beliefs.copy()
        gradient = derivative.unary_values.copy()
        if derivative.factor_values.any():
            given = np.require(derivative.factor_values, np.float64, ["C", "W"])
            reverse_products(graph.structure, state, given, gradient)
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
            reverse_mean_field_sweep(
                graph.structure, model.variables, np.require(model.tables, np.float64, ["C", "W"]),
                self._damping, self._tape[sweep], state, gradient, gradients[own].unary_values,
                gradients[own].factor_values,
            )  # fmt: skip
        for one in gradients:
            add_to_single_factors(graph, one.unary_values, one.factor_values)
        return PulledBack(gradients)
