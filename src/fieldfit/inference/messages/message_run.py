"""One run of message passing: sweeps until convergence, adaptive damping, and the result.

The value reported is the Lagrangian at the messages, see
`fieldfit.inference.messages.message_beliefs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from fieldfit._typing import BoolArray, FloatArray
from fieldfit.entropy.counting_numbers import CountingNumbers
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, conditioned_unary
from fieldfit.graph.ragged import reduce_rows
from fieldfit.graph.result import Bound, InferenceResult
from fieldfit.inference.base import Evidence, Progress, ending
from fieldfit.inference.messages.binary_sweeps import BinarySweeps
from fieldfit.inference.messages.message_arrays import (
    ABOVE_TOLERANCE,
    CONTRADICTION,
    Model,
    State,
)
from fieldfit.inference.messages.message_beliefs import (
    factor_beliefs,
    fill_exp_tables,
    largest_disagreements,
    pair_beliefs,
    unary_beliefs,
)
from fieldfit.inference.messages.message_sweeps import (
    PlanSweeps,
    Sweeps,
    neighbours_of_moved,
    refresh,
    restricted_plan,
)
from fieldfit.inference.messages.residual_schedule import residual_messages
from fieldfit.inference.messages.schedule import cached_plan, common_labels
from fieldfit.inference.messages.stalled_sweeps import (
    MIN_SWEEPS,
    StallWatch,
    finish_stalled,
    upper_bounds,
)

if TYPE_CHECKING:
    from fieldfit.inference.messages.sum_product import SumProduct

__all__ = [
    "MessageRun",
    "at_floor",
    "build_model",
    "initial_state",
    "raise_contradiction",
]

# -- the model of a run and its first state -----------------------------------------------


def build_model(
    graph: FactorGraph,
    potentials: Potentials,
    counting: CountingNumbers,
    observed: Evidence,
) -> Model:
    """Potentials with evidence and entropy applied, checked for factors that forbid everything."""
    unary = conditioned_unary(graph, potentials, observed)
    weight = np.where(graph.arities >= 2, counting.factor, 1.0)
    # kernels are compiled for writeable arrays; a read-only view is copied
    tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
    exp_table = np.empty(len(tables))
    empty = fill_exp_tables(graph.structure, tables, weight, exp_table)
    if empty >= 0:
        raise ZeroWeightError(
            f"the model has total weight zero: every entry of factors[{empty}] is -inf"
        )
    return Model(
        unary=unary,
        log_table=tables,
        exp_table=exp_table,
        factor_weight=weight,
        variable_total=counting.variable_total,
        floor=_floor(unary, tables, graph.n_variables + graph.n_factors),
    )


def _floor(unary: FloatArray, tables: FloatArray, n_tables: int) -> float:
    """Ten times less than any sum of potentials, one from each table (taken as at least 100).

    On an acyclic graph a message is such a sum, so nothing is cut off there, however long a chain
    of hard constraints adds up its evidence.
    """
    largest = 100.0
    for values in (unary, tables):
        least = float(values.min(initial=0.0))
        if least == -np.inf:
            least = float(values.min(initial=0.0, where=values > -np.inf))
        largest = max(largest, -least, float(values.max(initial=0.0)))
    return -10.0 * largest * (1 + n_tables)


def initial_state(graph: FactorGraph, model: Model, init: InferenceResult | None) -> State:
    """Uniform messages, or those of an earlier result; beliefs to match."""
    n_messages = int(graph.message_offsets[-1])
    if init is None:
        message = np.zeros(n_messages)
    else:
        earlier = init.state
        if not isinstance(earlier, State) or len(earlier.message) != n_messages:
            raise InvalidInputError("init must be a SumProduct result on a graph of this structure")
        # an excluded label may be possible under the new potentials: forget exclusions
        message = np.where(np.isneginf(earlier.message), 0.0, earlier.message)
    state = State(message=message, log_belief=np.empty(int(graph.unary_offsets[-1])))
    refresh_all(graph, model, state)
    return state


def at_floor(graph: FactorGraph, model: Model, state: State) -> BoolArray:
    """Variables with a message near the floor (damping only approaches it): it would fall on."""
    is_low = state.message < 0.5 * model.floor
    if not is_low.any():
        return np.zeros(graph.n_variables, dtype=np.bool_)
    is_low &= state.message > -np.inf
    slots = np.searchsorted(graph.message_offsets, np.flatnonzero(is_low), side="right") - 1
    low = np.zeros(graph.n_variables, dtype=np.bool_)
    low[graph.slot_variables[slots]] = True
    return low


def refresh_all(graph: FactorGraph, model: Model, state: State) -> None:
    """Beliefs of all variables from the messages; raises if a variable has no label left."""
    everyone = np.arange(graph.n_variables, dtype=np.int32)
    k = common_labels(graph)
    flags = refresh(k, graph.structure, everyone, 0, len(everyone), model, state)
    if flags & CONTRADICTION:
        raise_contradiction(graph, state)


def raise_contradiction(graph: FactorGraph, state: State) -> NoReturn:
    """Say which variable has no possible label."""
    possible = (state.log_belief > -np.inf).astype(np.float64)
    empty = np.flatnonzero(reduce_rows(np.add, possible, graph.unary_offsets) == 0)
    where = f"no label of variable {empty[0]} is possible" if len(empty) else "messages vanish"
    raise ZeroWeightError(f"the model (with its evidence) has total weight zero: {where}")


# -- sweeps, convergence, damping ---------------------------------------------------------

#: Messages per kernel call, about half a second: between calls the user may interrupt.
MESSAGES_PER_CALL = 20_000_000
#: Sweeps between two looks at what still changes; 4 to 16 cost about the same on grids.
SWEEPS_PER_CALL = 8
#: Sweeps between two looks at whether the beliefs of a concave entropy agree (about three sweeps'
#: worth of work).
SWEEPS_PER_LOOK = 32
#: Fraction of the tolerance below which a change is not passed on; at 1 the last sweep over
#: everything often finds work left, at 0.1 a tenth more messages are computed.
ACTIVE_FRACTION = 0.25
#: Automatic damping: steps taken when the residual has not fallen for `PATIENCE` calls.
DAMPING_STEPS = (0.3, 0.6, 0.9)
PATIENCE = 8


class MessageRun:
    """One run in progress: the arrays, and what has converged."""

    def __init__(
        self,
        options: SumProduct,
        batch: Batch,
        model: Model,
        state: State,
        counting: CountingNumbers,
        progress: Progress | None,
        free: BoolArray | None = None,
    ) -> None:
        """``free`` marks the variables whose messages matter; ``None`` is all of them."""
        self.options = options
        self.free = free
        self.counting = counting
        self.batch = batch
        self.graph = batch.graph
        self.model = model
        self.state = state
        self.progress = progress
        self.k = common_labels(batch.graph)
        self.is_bethe = bool(
            np.all(model.factor_weight == 1.0) and np.all(model.variable_total == 1.0)
        )
        self.n_iter = 0
        self.n_messages = 0
        self.n_interior = 0  # iterations of the interior-point method
        self.has_stalled = False
        self.changes = np.zeros(batch.graph.n_variables)  # of the messages into each variable

    def sweeps(self, max_sweeps: int, watched: bool = True) -> None:
        """Sweep until nothing changes by more than the tolerance, or (if watched) it stalls.

        Every few sweeps the plan is cut down to what may still change; when that has converged, a
        sweep over everything measures the residual, so that what is reported never rests on a
        message that was left out.
        """
        tol, sweeper = self.options.tol, self._sweeper()
        given = self.options.damping
        if given is None and self.is_bethe and self.graph.is_acyclic:
            given = 0.0  # exact after as many sweeps as a path is long, whatever the residual does
        damping = _Damping(given)
        # without cycles sweeps end after as many as a path is long
        watched = watched and self.options.accelerate and not self.graph.is_acyclic
        watch = StallWatch(tol, self.batch)
        everything = sweeper.everything
        plan, done = everything, 0
        while done < max_sweeps:
            left = max_sweeps - done
            if left == 1:
                plan = everything  # the last sweep measures
            n_messages = sweeper.n_messages(plan)
            n_sweeps, flags, self.changes = sweeper.run(
                plan, damping.value, tol,
                min(SWEEPS_PER_CALL, 1 + MESSAGES_PER_CALL // max(1, n_messages),
                    left if plan is everything else left - 1),
            )  # fmt: skip
            done += n_sweeps
            self.n_iter += n_sweeps
            self.n_messages += n_sweeps * n_messages
            if flags & CONTRADICTION:
                raise_contradiction(self.graph, self.state)
            residual = float(self.changes.max(initial=0.0))
            if self.progress is not None:
                self.progress(self.n_iter, residual)
            looked = (done - n_sweeps) // SWEEPS_PER_LOOK
            if self.counting.concave and done // SWEEPS_PER_LOOK > looked:
                sweeper.write_back()
                disagreement = self._worst_disagreement()
                if disagreement <= tol and done >= MIN_SWEEPS:
                    return
                self.has_stalled = watched and watch.stalls(done, disagreement, max_sweeps - done)
                if self.has_stalled:
                    return
            if flags & ABOVE_TOLERANCE:
                active = neighbours_of_moved(
                    self.graph.structure, self.changes, tol * ACTIVE_FRACTION
                )
                plan = sweeper.restricted(active)
                damping.watch(residual, sweeper.n_active(plan))
            elif plan is everything:
                break
            else:
                plan = everything
        sweeper.write_back()

    def _sweeper(self) -> Sweeps:
        """Sweeps over the schedule's plan, by the kernels that suit the model."""
        graph, options = self.graph, self.options
        plan = cached_plan(graph, options.schedule, options.order, is_bethe=self.is_bethe)
        by_variables = options.schedule in ("sequential", "residual") and options.order is None
        is_tree_plan = graph.is_acyclic and self.is_bethe
        if by_variables and not is_tree_plan and (self.free is None or self.free.all()):
            found = BinarySweeps.of(graph, plan, self.model, self.state, options.n_jobs)
            if found is not None:
                return found
        if self.free is not None:
            plan = restricted_plan(graph.structure, plan, self.free)
        return PlanSweeps(graph, plan, self.k, self.model, self.state, options.n_jobs)

    def residual(self) -> None:
        """Largest pending change first, then sweeps that verify (and, if need be, finish)."""
        graph, options = self.graph, self.options
        n_slots = max(1, len(graph.structure.variable_slots))
        pending = np.zeros((int(graph.unary_offsets[-1]), 2))  # see `run_residual`
        pending[graph.unary_offsets[:-1][graph.degrees > 0], 0] = 1.0 + options.tol
        per_call = MESSAGES_PER_CALL if self.progress is None else 8 * n_slots
        # the last pass may go over by one sweep, and a sweep is needed to verify
        total, most = 0, (options.max_iter - 2) * n_slots
        while total < most:
            n_messages, contradiction = residual_messages(
                graph,
                self.k,
                self.model,
                self.state,
                pending.reshape(-1),
                options.damping or 0.0,
                options.tol,
                min(per_call, most - total),
            )
            total += n_messages
            self.n_messages += n_messages
            self.n_iter = -(-total // n_slots)
            if contradiction:
                raise_contradiction(graph, self.state)
            if self.progress is not None:
                self.progress(self.n_iter, float(pending[:, 0].max(initial=0.0)))
            if n_messages < per_call:
                break
        # the pending changes only estimate the residual; a sweep measures it
        self.sweeps(max(1, options.max_iter - self.n_iter))

    def finish(self) -> None:
        """The maximum of examples that have not converged, by the interior-point method.

        Where that fails, because the system is too large or numbers are, sweeps go on.
        """
        self.has_stalled = False
        before, worst = self.state.message.copy(), self._worst_disagreement()
        beliefs, _, _ = self._beliefs()
        unfinished = self.batch.max_variables(self._disagreements(beliefs)) > self.options.tol
        self.n_interior = finish_stalled(
            self.batch, self.counting, self.model, self.state, beliefs, unfinished,
            self.options.tol,
        )  # fmt: skip
        if self.n_interior:
            refresh_all(self.graph, self.model, self.state)
            self.sweeps(1)  # measures
            now = self._worst_disagreement()
            if now <= self.options.tol:
                return
            if not now <= worst:
                self.state.message[:] = before
                refresh_all(self.graph, self.model, self.state)
        self.sweeps(self.options.max_iter - self.n_iter, watched=False)

    def _worst_disagreement(self) -> float:
        beliefs, _, _ = self._beliefs()
        return float(self._disagreements(beliefs).max(initial=0.0))

    def _beliefs(self) -> tuple[Beliefs, FloatArray, FloatArray]:
        """Normalised beliefs and the logarithms of their normalisers (variables, factors)."""
        graph = self.graph
        unary = np.empty(int(graph.unary_offsets[-1]))
        tables = np.empty(int(graph.table_offsets[-1]))
        log_variable = np.empty(graph.n_variables)
        log_factor = np.empty(graph.n_factors)
        unary_beliefs(graph.structure, self.model, self.state, unary, log_variable)
        pair_beliefs(self.k, graph.structure, self.model, self.state, tables, log_factor)
        factor_beliefs(graph.structure, self.model, self.state, tables, log_factor)
        return Beliefs(graph, unary, tables), log_variable, log_factor

    def _disagreements(self, beliefs: Beliefs) -> FloatArray:
        """For each variable how far its factors' beliefs are from its own."""
        gaps = np.empty(self.graph.n_variables)
        largest_disagreements(
            self.graph.structure, beliefs.unary_values, beliefs.factor_values, gaps
        )
        return gaps

    def result(self) -> InferenceResult:
        """Beliefs, ``B`` and what is proved about it.

        An example has converged if its messages have converged, or, for a concave entropy, if its
        beliefs agree with each other: they are then the maximum (stationarity holds by their
        form), even where messages about labels of vanishing belief still drift.
        """
        graph, batch, tol = self.graph, self.batch, self.options.tol
        beliefs, log_variable, log_factor = self._beliefs()
        constants = np.where(graph.arities == 0, 1.0, 0.0)
        constants[graph.arities == 0] = self.model.log_table[
            graph.table_offsets[:-1][graph.arities == 0]
        ]
        values = batch.sum_variables(self.model.variable_total * log_variable)
        values += batch.sum_factors(self.model.factor_weight * log_factor + constants)
        low = batch.max_variables(at_floor(graph, self.model, self.state).astype(np.float64))
        converged_examples = (batch.max_variables(self.changes) <= tol) & (low == 0.0)
        agreement = None
        if self.counting.concave and not converged_examples.all():
            gaps = batch.max_variables(self._disagreements(beliefs))
            agreement = float(gaps.max(initial=0.0))
            converged_examples |= gaps <= tol
        converged = bool(converged_examples.all())
        residual = float(self.changes.max(initial=0.0))
        bound = self._proved(converged)
        if bound == "upper" and not converged and (self.counting.variable < 0.0).any():
            proved = upper_bounds(batch, self.counting, self.model, self.state)
            if proved is None:
                bound = None
            else:
                values = np.where(converged_examples, values, proved + batch.sum_factors(constants))
        return InferenceResult(
            beliefs=beliefs,
            log_partition=float(values.sum()),
            bound=bound,
            converged=converged,
            n_iter=self.n_iter,
            residual=residual,
            status=self._status(residual, converged_examples, bool(low.any()), agreement),
            method=f"SumProduct({self.options.entropy.name}, {self.options.schedule})",
            log_partitions=values,
            converged_examples=converged_examples,
            diagnostics={"n_messages": self.n_messages, "n_interior_point": self.n_interior},
            state=self.state,
        )

    def _proved(self, converged: bool) -> Bound:
        """What is proved; a bound, though not exactness, also of messages on their way."""
        bound = self.counting.bound
        return bound if converged or bound is None else "upper"

    def _status(
        self, residual: float, converged_examples: BoolArray, is_low: bool, agreement: float | None
    ) -> str:
        sweeps = f"{self.n_iter} sweep{'s' if self.n_iter != 1 else ''}"
        if self.n_interior:
            sweeps += f", which stalled, and {self.n_interior} interior-point iterations"
        if converged_examples.all() and agreement is not None:
            return ending(converged_examples, f"beliefs agree to {agreement:.2g} after {sweeps}")
        if is_low and not converged_examples.all():
            growth = f"hard zeros in cycles make messages grow without bound ({sweeps})"
            return ending(converged_examples, growth, advice="TreeReweighted()")
        return ending(
            converged_examples,
            f"largest message change {residual:.2g} after {sweeps}",
            self.options.tol,
            "more sweeps, damping, another schedule or a concave entropy such as TreeReweighted()",
        )


class _Damping:
    """The current damping: as given, or, if ``None``, raised when the residual stops falling."""

    def __init__(self, given: float | None) -> None:
        self.value = 0.0 if given is None else given
        self._steps = list(DAMPING_STEPS) if given is None else []
        self._best = np.inf
        self._fewest: float = np.inf
        self._calls_without_progress = 0

    def watch(self, residual: float, n_active: int) -> None:
        """Note the last call: progress is a smaller residual or fewer messages that change."""
        if residual < 0.9 * self._best or n_active < 0.95 * self._fewest:
            self._best = min(residual, self._best)
            self._fewest = min(n_active, self._fewest)
            self._calls_without_progress = 0
            return
        self._calls_without_progress += 1
        if self._calls_without_progress > PATIENCE and self._steps:
            self.value = self._steps.pop(0)
            self._best, self._fewest = residual, n_active
            self._calls_without_progress = 0
