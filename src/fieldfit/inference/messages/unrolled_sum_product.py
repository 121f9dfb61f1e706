r"""Unrolled sum-product: a fixed number of sweeps and its exact backward pass (back-propagation).

Propagation that is stopped after a few sweeps of a fixed schedule, from uniform messages, is a
differentiable function, converged or not. `UnrolledSumProduct` evaluates it and propagates
derivatives by beliefs back to the potentials (a vector-Jacobian product), so that a model can be
fitted for the beliefs that this very procedure will give (Domke, thesis 2009, chapter 5; Stoyanov,
Ropson and Eisner, "Empirical risk minimization of graphical model parameters given approximate
inference", 2011). The derivatives are stated in `fieldfit.inference.messages.vjp_arrays`.

The forward pass keeps the messages that every sweep overwrites (the *tape*); with ``checkpoints``
it keeps the state before every few sweeps instead, and the backward pass repeats these sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Any, Literal

import numpy as np

from fieldfit._arrays import integers
from fieldfit._parallel import n_kernel_threads, require_jobs
from fieldfit._typing import FloatArray
from fieldfit._validation import (
    require_integer,
    require_number,
    require_one_of,
    require_sequence_of,
)
from fieldfit.entropy.counting_numbers import Bethe, Entropy
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, add_to_single_factors, require_graph
from fieldfit.graph.ragged import offsets_of, reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Evidence, Inference, Progress, require_batch
from fieldfit.inference.messages.message_arrays import CONTRADICTION, Changes, Model, Plan, State
from fieldfit.inference.messages.message_beliefs import factor_beliefs, pair_beliefs, unary_beliefs
from fieldfit.inference.messages.message_run import build_model, raise_contradiction
from fieldfit.inference.messages.message_sweeps import refresh
from fieldfit.inference.messages.schedule import common_labels
from fieldfit.inference.messages.unrolled_plans import GRID_ORDER, batch_plan
from fieldfit.inference.messages.vjp_arrays import Adjoint, Tape
from fieldfit.inference.messages.vjp_beliefs import (
    normalised_beliefs,
    vjp_factor_beliefs,
    vjp_unary_beliefs,
)
from fieldfit.inference.messages.vjp_sweeps import sweep_with_tape, vjp_refresh, vjp_sweep

__all__ = ["Cotangents", "UnrolledRun", "UnrolledSumProduct", "given_potentials"]

# -- one run: forward with a tape, beliefs, backward --------------------------------------

#: Bounds of kernels are 32-bit, as in plans: for 64-bit ones other code is compiled, which may
#: round differently.
_ZERO = np.int32(0)


@dataclass(frozen=True)
class Cotangents:
    """The vector-Jacobian product: derivatives of ``<g, beliefs>`` for given ``g``.

    Attributes
    ----------
    potentials
        By the potentials: one entry, or one for each sweep if each sweep has its own.
    factor
        By the counting numbers ``c_a`` (zero where the arity is below two), with ``chat`` fixed;
        ``None`` unless it was asked for.
    variable_total
        By ``chat_i = c_i + sum_a c_a``, with ``c_a`` fixed; likewise.
    """

    potentials: tuple[Potentials, ...]
    factor: FloatArray | None = None
    variable_total: FloatArray | None = None


class UnrolledRun:
    """Sweeps on a batch, and the backward pass over them."""

    def __init__(
        self,
        batch: Batch,
        plan: Plan,
        models: Sequence[Model],
        n_sweeps: int,
        length: int,
        damping: float,
        n_jobs: int | None,
        method: str,
    ) -> None:
        """``models`` has one entry for all sweeps, or one for each; ``length`` sweeps of tape."""
        graph = batch.graph
        self.batch = batch
        self.method = method
        self._plan, self._models = plan, tuple(models)
        self._n_sweeps, self._length, self._damping = n_sweeps, length, damping
        self._k, self._structure = common_labels(graph), graph.structure
        self._sweep, self._vjp_sweep = _sweep_kernels(n_jobs)
        self._everyone = np.arange(graph.n_variables, dtype=np.int32)
        self._state = State(
            np.empty(int(graph.message_offsets[-1])), np.empty(int(graph.unary_offsets[-1]))
        )
        widths = graph.cardinalities[graph.slot_variables[plan.slots]]
        offsets = offsets_of(widths)
        pairs = np.empty((length, len(plan.pair_target) * len(self._k)))
        slots = np.empty((length, int(offsets[-1])))
        self._tapes = [Tape(pairs[row], slots[row], offsets) for row in range(length)]
        self._changes = Changes(np.zeros(len(plan.pair_target)), np.zeros(len(plan.slots)))
        self._kept: list[State] = []
        self._is_at_end = False

    # -- forward ------------------------------------------------------------------------------

    def forward(self) -> None:
        """All sweeps; leaves the tape of the last ones and the states before the others.

        The backward pass overwrites the state, so that a second one repeats the sweeps.
        """
        if self._is_at_end:
            return
        self._state.message[:] = 0.0
        self._refresh(self._models[0], self._state)
        self._kept.clear()
        self._is_at_end = True
        n_segments = -(-self._n_sweeps // self._length)
        for segment in range(n_segments):
            if segment < n_segments - 1:
                self._kept.append(_copied(self._state))
            self._sweep_segment(segment, self._state)

    def _sweep_segment(self, segment: int, state: State) -> None:
        first = segment * self._length
        for sweep in range(first, min(first + self._length, self._n_sweeps)):
            model = self._model(sweep)
            if sweep > 0 and len(self._models) > 1:
                self._refresh(model, state)
            flags = self._sweep(
                self._k, self._structure, self._plan, model, state, self._changes,
                self._damping, self._tapes[sweep - first],
            )  # fmt: skip
            if flags & CONTRADICTION:
                raise_contradiction(self.batch.graph, state)

    def _model(self, sweep: int) -> Model:
        return self._models[min(sweep, len(self._models) - 1)]

    def _refresh(self, model: Model, state: State) -> None:
        count = np.int32(len(self._everyone))
        flags = refresh(self._k, self._structure, self._everyone, _ZERO, count, model, state)
        if flags & CONTRADICTION:
            raise_contradiction(self.batch.graph, state)

    # -- beliefs ------------------------------------------------------------------------------

    def beliefs(self, *, tables: bool = True) -> Beliefs:
        """Beliefs after the last sweep; without ``tables`` those of factors are left at zero."""
        self.forward()
        graph = self.batch.graph
        unary = np.empty(int(graph.unary_offsets[-1]))
        normalised_beliefs(graph.unary_offsets, self._state.log_belief, unary)
        values = np.zeros(int(graph.table_offsets[-1]))
        if tables:
            self._fill_tables(self._state, values)
        return Beliefs(graph, unary, values)

    def _fill_tables(self, state: State, tables: FloatArray) -> FloatArray:
        """Beliefs of factors; returns the logarithms of their normalisers."""
        log_factor = np.empty(self.batch.graph.n_factors)
        model = self._models[-1]
        pair_beliefs(self._k, self._structure, model, state, tables, log_factor)
        factor_beliefs(self._structure, model, state, tables, log_factor)
        return log_factor

    def result(self) -> InferenceResult:
        """Beliefs and the value of the surrogate at these messages, of which nothing is proved."""
        self.forward()
        graph, batch, model = self.batch.graph, self.batch, self._models[-1]
        unary, log_variable = np.empty(int(graph.unary_offsets[-1])), np.empty(graph.n_variables)
        # the value needs normalised log-beliefs; the backward pass starts from those with maximum 0
        state = _copied(self._state)
        unary_beliefs(self._structure, model, state, unary, log_variable)
        tables = np.empty(int(graph.table_offsets[-1]))
        log_factor = self._fill_tables(state, tables)
        constants = np.zeros(graph.n_factors)
        empty = graph.arities == 0
        constants[empty] = model.log_table[graph.table_offsets[:-1][empty]]
        values = batch.sum_variables(model.variable_total * log_variable)
        values += batch.sum_factors(model.factor_weight * log_factor + constants)
        residual = max(
            float(self._changes.pair.max(initial=0.0)), float(self._changes.slot.max(initial=0.0))
        )
        sweeps = "1 sweep" if self._n_sweeps == 1 else f"{self._n_sweeps} sweeps"
        return InferenceResult(
            beliefs=Beliefs(graph, unary, tables),
            log_partition=float(values.sum()),
            bound=None,
            converged=False,
            n_iter=self._n_sweeps,
            residual=residual,
            status=f"stopped after {sweeps}, as asked: messages last changed by {residual:.2g}",
            method=self.method,
            log_partitions=values,
        )

    # -- backward -----------------------------------------------------------------------------

    def vjp(self, derivative: Potentials, beliefs: Beliefs, *, entropy: bool = False) -> Cotangents:
        """From a derivative by beliefs to derivatives by potentials and, if asked, entropies.

        ``beliefs`` are those of this run, as `beliefs` gave them (with tables if the derivative by
        those is not zero).
        """
        graph = self.batch.graph
        require_graph(graph, derivative)
        self.forward()
        state, self._is_at_end = self._state, False
        n_messages = len(state.message)
        adjoint = Adjoint(
            message=np.zeros(n_messages),
            incoming=np.zeros(n_messages),
            log_belief=np.zeros(int(graph.unary_offsets[-1])),
            unary=np.zeros(0),
            table=np.zeros(0),
            products=np.zeros(graph.n_factors),
            variable_total=np.zeros(graph.n_variables),
        )
        gradients = [
            Potentials.from_flat(
                graph,
                np.zeros(int(graph.unary_offsets[-1])),
                np.zeros(int(graph.table_offsets[-1])),
            )
            for _ in self._models
        ]
        adjoints = [
            adjoint._replace(unary=one.unary_values, table=one.factor_values) for one in gradients
        ]
        given = np.require(derivative.unary_values, np.float64, ["C", "W"])
        vjp_unary_beliefs(graph.unary_offsets, beliefs.unary_values, given, adjoint.log_belief)
        if derivative.factor_values.any():
            vjp_factor_beliefs(
                self._structure, self._models[-1], state, beliefs.factor_values,
                np.require(derivative.factor_values, np.float64, ["C", "W"]), adjoints[-1], entropy,
            )  # fmt: skip
        n_segments = -(-self._n_sweeps // self._length)
        for segment in range(n_segments - 1, -1, -1):
            if segment < n_segments - 1:
                _copy(self._kept[segment], state)
                self._sweep_segment(segment, state)
            self._vjp_segment(segment, state, adjoints, entropy)
        self._vjp_refresh(0, state, adjoints, entropy)
        for one in gradients:
            add_to_single_factors(graph, one.unary_values, one.factor_values)
        if not entropy:
            return Cotangents(tuple(gradients))
        return Cotangents(
            tuple(gradients), self._by_factor_weights(adjoint, gradients), adjoint.variable_total
        )

    def _vjp_segment(
        self, segment: int, state: State, adjoints: Sequence[Adjoint], entropy: bool
    ) -> None:
        first = segment * self._length
        for sweep in range(min(first + self._length, self._n_sweeps) - 1, first - 1, -1):
            own = min(sweep, len(self._models) - 1)
            self._vjp_sweep(
                self._k, self._structure, self._plan, self._models[own], state, adjoints[own],
                self._damping, entropy, self._tapes[sweep - first],
            )  # fmt: skip
            if sweep > 0 and len(self._models) > 1:
                self._vjp_refresh(own, state, adjoints, entropy)
                self._refresh(self._models[own - 1], state)

    def _vjp_refresh(
        self, own: int, state: State, adjoints: Sequence[Adjoint], entropy: bool
    ) -> None:
        """Backward through the beliefs of all variables at the start of a sweep."""
        count = np.int32(len(self._everyone))
        vjp_refresh(
            self._k, self._structure, self._everyone, _ZERO, count, self._models[own], state,
            adjoints[own], entropy,
        )  # fmt: skip

    def _by_factor_weights(self, adjoint: Adjoint, gradients: Sequence[Potentials]) -> FloatArray:
        """``g[c_a]`` from the inner products with messages and those with potentials."""
        graph = self.batch.graph
        total = adjoint.products.copy()
        for one, model in zip(gradients, self._models, strict=True):
            terms = one.factor_values * np.where(np.isneginf(model.log_table), 0.0, model.log_table)
            total -= reduce_rows(np.add, terms, graph.table_offsets)
        total /= self._models[0].factor_weight
        return np.where(graph.arities >= 2, total, 0.0)


def _sweep_kernels(n_jobs: int | None) -> tuple[Any, Any]:
    """The serial or the threaded sweeps; the threaded ones are compiled only when asked for."""
    if n_kernel_threads(n_jobs) == 1:
        return sweep_with_tape, vjp_sweep
    from fieldfit.inference.messages.vjp_sweeps import threaded_kernels

    return threaded_kernels(n_jobs)


def _copied(state: State) -> State:
    return State(state.message.copy(), state.log_belief.copy())


def _copy(source: State, target: State) -> None:
    target.message[:] = source.message
    target.log_belief[:] = source.log_belief


# -- options ------------------------------------------------------------------------------

SCHEDULES = ("sequential", "flooding", "tree")


@dataclass(frozen=True, kw_only=True)
class UnrolledSumProduct(Inference):
    """Exactly ``n_sweeps`` sweeps of message passing from uniform messages.

    Parameters
    ----------
    n_sweeps
        Sweeps.  There is no early stop: the map is the same for every input.
    entropy, schedule, order
        As in `SumProduct`, but for ``schedule="residual"``, whose order depends on the numbers.
        ``order`` is for one example, and every example of a batch follows it; ``"grid"`` stands for
        `grid_clique_order` on grids of any size.
    damping
        Fraction of the old message that is kept, in [0, 1).
    checkpoints
        ``None`` keeps the tape of all sweeps.  A number ``s`` keeps the messages of every ``s``-th
        sweep and the tape of ``s`` sweeps, and computes the others twice; ``"sqrt"`` takes about
        the square root of ``n_sweeps``, where memory is least.  The numbers are the same bit for
        bit.
    n_jobs
        Threads; 1 if ``None``.  The result does not depend on it.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.0, 1.0]] + [None] * 8, factors=np.eye(2))
    >>> run = UnrolledSumProduct(n_sweeps=2).record(Batch.of([graph]), potentials)
    >>> run.beliefs().unary(5).round(3)
    array([0.432, 0.568])
    """

    n_sweeps: int = field(default=5, kw_only=False)
    entropy: Entropy = field(default_factory=Bethe)
    schedule: str = "sequential"
    order: Any = None
    damping: float = 0.0
    checkpoints: int | Literal["sqrt"] | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        require_integer("n_sweeps", self.n_sweeps, at_least=1)
        if not isinstance(self.entropy, Entropy) or self.entropy.is_optimized:
            raise InvalidInputError(
                "entropy must be an object with fixed counting numbers, such as Bethe() or "
                f"TreeReweighted(), got {self.entropy!r}"
            )
        require_one_of("schedule", self.schedule, SCHEDULES)
        if self.order is not None and not isinstance(self.order, str):
            integers("order", self.order)
        if self.order is not None and self.schedule != "sequential":
            raise InvalidInputError(
                f"order needs schedule='sequential', got schedule={self.schedule!r}"
            )
        if isinstance(self.order, str) and self.order != GRID_ORDER:
            raise InvalidInputError(
                f"order must be an array, {GRID_ORDER!r} or None, got {self.order!r}"
            )
        require_number("damping", self.damping, at_least=0, below=1)
        if not isinstance(self.checkpoints, str) or self.checkpoints != "sqrt":
            require_integer("checkpoints", self.checkpoints, at_least=1, or_none=True)
        require_jobs(self.n_jobs)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: Evidence = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs of every example after the sweeps, as they are.

        ``init`` is ignored: the map starts from uniform messages.  The result says
        ``converged=False``, for no tolerance was asked for or met.
        """
        require_batch(batch, progress)
        result = self._record(batch, potentials, observed, 1).result()
        if progress is not None:
            progress(result.n_iter, result.residual)
        return result

    def record(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: Evidence = None,
    ) -> UnrolledRun:
        """The sweeps with their tape, for derivatives.

        A sequence of ``n_sweeps`` potentials gives each sweep its own: a sweep begins by forming
        the beliefs from its potentials and the messages so far, and the last ones make the final
        beliefs.
        """
        return self._record(batch, potentials, observed, self._sweeps_on_tape())

    def tape_bytes(self, graph: FactorGraph) -> int:
        """Bytes of tape and checkpoints for one graph."""
        plan = self.plan(Batch.of([graph]))
        others = graph.cardinalities[graph.slot_variables[plan.slots]]
        per_sweep = len(plan.pair_target) * graph.pair_cardinality + int(others.sum())
        length = self._sweeps_on_tape()
        n_kept = -(-self.n_sweeps // length) - 1
        state = int(graph.message_offsets[-1]) + int(graph.unary_offsets[-1])
        return 8 * (length * per_sweep + n_kept * state)

    def plan(self, batch: Batch) -> Plan:
        """The messages of one sweep in their order, on the union graph of a batch."""
        counting = self.entropy.counting_numbers(batch.graph)
        return batch_plan(batch, self.schedule, self.order, counting)

    def _sweeps_on_tape(self) -> int:
        if self.checkpoints is None:
            return self.n_sweeps
        if self.checkpoints == "sqrt":
            return 1 + isqrt(self.n_sweeps - 1)
        return min(int(self.checkpoints), self.n_sweeps)

    def _record(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: Evidence,
        length: int,
    ) -> UnrolledRun:
        given = given_potentials(potentials, self.n_sweeps)
        counting = self.entropy.counting_numbers(batch.graph)
        models = [build_model(batch.graph, one, counting, observed) for one in given]
        name = f"UnrolledSumProduct({self.entropy.name}, {self.schedule}, {self.n_sweeps})"
        run = UnrolledRun(
            batch,
            self.plan(batch),
            models,
            self.n_sweeps,
            length,
            float(self.damping),
            self.n_jobs,
            name,
        )
        run.forward()
        return run


def given_potentials(
    potentials: Potentials | Sequence[Potentials], n_sweeps: int
) -> tuple[Potentials, ...]:
    """One entry for all sweeps, or one for each."""
    if isinstance(potentials, Potentials):
        return (potentials,)
    require_sequence_of("potentials", potentials, Potentials, "Potentials(graph)")
    if len(potentials) != n_sweeps:
        raise InvalidInputError(
            f"potentials must be one for all sweeps or {n_sweeps}, one for each, "
            f"got {len(potentials)}"
        )
    return tuple(potentials)
