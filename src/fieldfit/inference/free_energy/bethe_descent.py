"""Search for a minimum of Bethe's free energy: propagation, Newton-CG, interior points.

See `belief_optimization` for the three stages.  Whatever a stage proposes for an example is taken
only if its free energy is not larger than before, up to the rounding of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Progress
from fieldfit.inference.free_energy.anderson import ROUNDING, descend
from fieldfit.inference.free_energy.bethe_free_energy import BetheEnergy
from fieldfit.inference.free_energy.bethe_interior_point import (
    bethe_interior_point,
    fits_in_memory,
)
from fieldfit.inference.free_energy.bethe_newton import newton_descend, newton_memory
from fieldfit.inference.free_energy.double_loop import DoubleLoop
from fieldfit.inference.messages.message_arrays import State
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.inference.second_order.kkt_pattern import slot_entries

__all__ = ["BetheSearch", "BetheSearchResult", "normalised"]

#: Sweeps over spanning trees that every example begins with: without cycles the first one is
#: exact and the second one says so.
TREE_SWEEPS = 2
#: Steps of descent before an example that has not converged gets concave problems, and how many of
#: these; both double every time.  From uniform beliefs descent converges in 10 to 50 steps at
#: couplings of 8, and rounds help where it starts far from any beliefs that strong couplings allow.
FIRST_STEPS = 60
FIRST_ROUNDS = 10
#: Largest second derivative, in bytes; beyond it there are steps along the gradient only.
MAX_MEMORY = 5e8


@dataclass(frozen=True)
class BetheSearchResult:
    """Where the search ended, for each example."""

    log_unary: FloatArray
    free_energies: FloatArray
    start_free_energies: FloatArray
    residuals: FloatArray
    converged_examples: BoolArray
    n_iter: int


class BetheSearch:
    """A search in progress.

    ``log_unary`` is where it starts, ``free`` which variables may move; those that may not must be
    certain of a label for propagation to be of use.  ``messages`` may come from an earlier run.
    """

    def __init__(
        self,
        batch: Batch,
        energy: BetheEnergy,
        log_unary: FloatArray,
        free: BoolArray,
        tol: float,
        max_iter: int,
        n_jobs: int | None = None,
        messages: FloatArray | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.batch, self.energy, self.free = batch, energy, free
        self.tol, self.max_iter, self.n_jobs = tol, max_iter, n_jobs
        self.messages, self.progress = messages, progress
        self.log_unary = log_unary.copy()
        self.n_iter = 0
        # no steps, only where they would lead
        begin = descend(batch, energy, self.log_unary, free, 0, tol)
        self.start = begin.free_energies
        self.energies = self.start.copy()
        self.residuals = begin.residuals
        self.converged = begin.converged_examples
        self.can_propagate = self._others_are_certain()
        self.can_use_newton = newton_memory(batch) <= MAX_MEMORY

    def _others_are_certain(self) -> bool:
        """True if every variable that is not free has one label only."""
        graph = self.batch.graph
        if self.free.all():
            return True
        labels = np.add.reduceat(self.log_unary > -np.inf, graph.unary_offsets[:-1], dtype=np.int64)
        return bool(np.all(labels[~self.free] == 1))

    # -- the stages -----------------------------------------------------------------------

    def run(self) -> BetheSearchResult:
        """All stages, as far as they are needed."""
        if self.can_propagate:
            self._propagate(self._unconverged(), "tree", TREE_SWEEPS, keep_unconverged=False)
            infinite = self._unconverged(np.isinf(self.energies))
            self._propagate(infinite, "sequential", self._left(), keep_unconverged=True)
        n_steps, n_rounds = FIRST_STEPS, FIRST_ROUNDS
        while len(self._unconverged()) and self._left() > 0:
            before = self.n_iter
            self._descend(self._unconverged(np.isfinite(self.energies)), n_steps)
            if self.can_propagate:
                self._solve_interior(self._unconverged())
                self._solve_concave(self._unconverged(), n_rounds)
            if self.n_iter == before:
                break
            n_steps, n_rounds = 2 * n_steps, 2 * n_rounds
        return BetheSearchResult(
            self.log_unary,
            np.minimum(self.energies, self.start),
            self.start,
            self.residuals,
            self.converged,
            self.n_iter,
        )

    def _unconverged(self, chosen: BoolArray | None = None) -> LongArray:
        """Examples that have not converged (among some)."""
        wanted = ~self.converged if chosen is None else ~self.converged & chosen
        return np.flatnonzero(wanted)

    def _left(self) -> int:
        return self.max_iter - self.n_iter

    def _propagate(
        self, examples: LongArray, schedule: str, max_iter: int, keep_unconverged: bool
    ) -> None:
        """Sweeps of belief propagation; what has not converged may be kept as a better point."""
        if len(examples) == 0 or max_iter < 1:
            return
        part = _Part(self.batch, examples)
        solver = SumProduct(schedule=schedule, tol=self.tol, max_iter=max_iter, n_jobs=self.n_jobs)
        result = solver.run_batch(part.batch, self._potentials(part), init=self._warm_start(part))
        self.n_iter += result.n_iter
        self._propose(part, result, examples, keep_unconverged)

    def _descend(self, examples: LongArray, n_steps: int) -> None:
        """Steps of Newton's method or, where it needs too much memory, along the gradient."""
        if len(examples) == 0 or self._left() < 1:
            return
        method = newton_descend if self.can_use_newton else descend
        found = method(
            self.batch,
            self.energy,
            self.log_unary,
            self.free,
            min(n_steps, self._left()),
            self.tol,
            examples,
            self._report(),
        )
        self.n_iter += found.n_evaluations - 1
        self.log_unary = found.log_unary
        self.energies[examples] = found.free_energies[examples]
        self.residuals[examples] = found.residuals[examples]
        self.converged[examples] = found.converged_examples[examples]

    def _report(self) -> Progress | None:
        """Progress of a stage that counts its own steps from 1."""
        report, done = self.progress, self.n_iter
        if report is None:
            return None
        return lambda n_steps, residual: report(done + n_steps, residual)

    def _solve_concave(self, examples: LongArray, n_rounds: int) -> None:
        if len(examples) == 0 or self._left() < 1:
            return
        part = _Part(self.batch, examples)
        warm_start = self._warm_start(part)
        solver = DoubleLoop(
            tol=self.tol, max_rounds=min(n_rounds, self._left()), n_jobs=self.n_jobs
        )
        result = solver.run_batch(part.batch, self._potentials(part), init=warm_start)
        self.n_iter += result.n_iter
        self._propose(part, result, examples, keep_unconverged=True)

    def _solve_interior(self, examples: LongArray) -> None:
        """Interior-point steps from the middle; what they find is taken if it is better.

        Whether it has converged is left for the next descent to find out: where couplings are
        strong, ``F(q)`` tells beliefs apart that no change of a belief would.
        """
        if len(examples) == 0 or self._left() < 1:
            return
        part = _Part(self.batch, examples)
        if not fits_in_memory(part.batch):
            return
        potentials = self._potentials(part)
        unary, tables = potentials.unary_values, potentials.factor_values
        result = bethe_interior_point(part.batch, unary, tables, self.tol, self._left())
        self.n_iter += result.n_iter
        nobody = np.zeros(len(examples), dtype=np.bool_)
        proposed = replace(result, converged=False, converged_examples=nobody)
        self._propose(part, proposed, examples, keep_unconverged=True)

    # -- in and out of message passing ----------------------------------------------------

    def _potentials(self, part: _Part) -> Potentials:
        """Potentials of some examples, with certain variables observed and singles folded in."""
        graph = part.batch.graph
        unary = self.energy.model.unary[part.entries]
        out = np.isneginf(self.log_unary[part.entries])
        unary[out] = -np.inf
        tables = self.energy.model.tables[part.table_entries]
        tables[np.repeat(graph.arities == 1, np.diff(graph.table_offsets))] = 0.0
        return Potentials.from_flat(graph, unary, tables)

    def _warm_start(self, part: _Part) -> InferenceResult:
        """Where some examples are, in the form that message passing starts from."""
        if self.messages is not None:
            message = self.messages[part.message_entries]
        else:
            message = self._messages_here(part)
        log_belief = self.log_unary[part.entries]
        beliefs = Beliefs(part.batch.graph, np.exp(log_belief), np.zeros(len(part.table_entries)))
        return InferenceResult(
            beliefs, 0.0, None, False, 0, np.inf, "", state=State(message, log_belief)
        )

    def _messages_here(self, part: _Part) -> FloatArray:
        """``log m_ai = log q_i - u_ai``, maximum 0; none where the free energy is infinite."""
        self.energy(self.log_unary, part.examples, np.empty_like(self.log_unary))
        graph = part.batch.graph
        vectors = self.energy.state.vectors[part.message_entries]
        unary, _ = slot_entries(graph)
        infinite = np.repeat(
            np.isinf(self.energies[part.examples]), part.sizes(graph.message_offsets)
        )
        own = self.log_unary[part.entries][unary]
        usable = (own > -np.inf) & (vectors > -np.inf) & ~infinite
        message = np.where(usable, own - np.where(usable, vectors, 0.0), 0.0)
        if len(message):
            top = np.maximum.reduceat(message, graph.message_offsets[:-1])
            message -= np.repeat(top, np.diff(graph.message_offsets))
        return message

    def _propose(
        self, part: _Part, result: InferenceResult, examples: LongArray, keep_unconverged: bool
    ) -> None:
        """Take what message passing has found for each example whose free energy does not rise."""
        graph = part.batch.graph
        state: Any = result.state
        log_belief = normalised(graph, state.log_belief)
        trial = self.log_unary.copy()
        trial[part.entries] = log_belief
        own = log_belief[slot_entries(graph)[0]]
        usable = (own > -np.inf) & (state.message > -np.inf)
        self.energy.state.vectors[part.message_entries] = np.where(
            usable, own - np.where(usable, state.message, 0.0), -np.inf
        )
        values = self.energy(trial, examples, np.empty_like(trial))
        assert result.converged_examples is not None
        rounding = ROUNDING * (1.0 + np.abs(self.energies[examples]))
        wanted = result.converged_examples | keep_unconverged
        better = np.isfinite(values) & wanted
        better &= ~(values > self.energies[examples] + np.where(np.isfinite(rounding), rounding, 0))
        taken = examples[better]
        entries = np.repeat(better, part.sizes(graph.unary_offsets))
        self.log_unary[part.entries[entries]] = log_belief[entries]
        self.energies[taken] = np.minimum(values[better], self.energies[taken])
        self.converged[taken] = result.converged_examples[better]
        self.residuals[taken] = np.where(
            result.converged_examples[better], min(result.residual, self.tol), result.residual
        )
        if self.progress is not None:
            self.progress(self.n_iter, float(self.residuals.max(initial=0.0)))


class _Part:
    """Some examples of a batch as a batch of their own, and where its entries lie in the whole."""

    def __init__(self, batch: Batch, examples: LongArray) -> None:
        graph = batch.graph
        self.examples = examples
        everything = len(examples) == batch.n_examples
        self.batch = batch if everything else Batch.of([batch.graphs[m] for m in examples])
        slots = graph.scope_offsets[batch.factor_offsets]
        self.entries = rows(graph.unary_offsets[batch.variable_offsets], examples)
        self.table_entries = rows(graph.table_offsets[batch.factor_offsets], examples)
        self.message_entries = rows(graph.message_offsets[slots], examples)

    def sizes(self, offsets: NDArray[np.int32]) -> LongArray:
        """Entries of each example in a vector that the part's graph lays out by ``offsets``."""
        graph, batch = self.batch.graph, self.batch
        if offsets is graph.message_offsets:
            return _int64(np.diff(offsets[graph.scope_offsets[batch.factor_offsets]]))
        return _int64(np.diff(offsets[batch.variable_offsets]))


def _int64(values: NDArray[Any]) -> LongArray:
    return np.asarray(values, dtype=np.int64)


def normalised(graph: FactorGraph, log_values: FloatArray) -> FloatArray:
    """Log-beliefs whose exponentials sum to one for each variable."""
    if graph.n_variables == 0:
        return log_values.copy()
    starts = graph.unary_offsets[:-1]
    top = np.maximum.reduceat(log_values, starts)
    shifted = log_values - np.repeat(top, graph.cardinalities)
    total = np.log(np.add.reduceat(np.exp(shifted), starts))
    return np.asarray(shifted - np.repeat(total, graph.cardinalities))
