"""Double loop (concave-convex procedure, CCCP): a convergent way to a Bethe stationary point.

Bethe's objective is a concave part plus a convex one,

    <th, tau> + sum_a H(tau_a) - sum_i (d_i - 1) H(tau_i)

and ``- H(tau_i) >= sum_y tau_i(y) log old_i(y)``, with equality at ``tau_i = old_i``.  Putting this
linear bound in place of the convex part leaves a concave problem: that of `Convex` with no entropy
of variables and the potentials

    th_i + (d_i - 1) log old_i

Its maximum is at least as good as the old beliefs were, so the objective rises in every round, and
beliefs that stay where they are form a stationary point: loopy belief propagation that is started
there does not move.  Where plain propagation oscillates this still converges, at the cost of
some more rounds of message passing.  Rounds gain a constant factor each; where they would be too
many, interior-point steps (`bethe_interior_point`) go on, and what they find is taken if its
objective is not lower.  They begin in the middle, because that is fastest.  Who gives ``init``
wants the stationary point that rounds lead to from there: then steps begin at the beliefs of the
last round, are given up unless they converge at once, and are tried again after twice the rounds.

Reference: Yuille, "CCCP algorithms to minimize the Bethe and Kikuchi free energies: convergent
alternatives to belief propagation", Neural Computation 14 (2002).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._parallel import require_jobs
from fieldfit._typing import BoolArray, FloatArray
from fieldfit._validation import require_flag, require_integer, require_number
from fieldfit.entropy.counting_numbers import Bethe, Convex
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Inference, Progress, ending, require_model, require_result
from fieldfit.inference.conditioning import condition
from fieldfit.inference.free_energy.bethe_interior_point import (
    bethe_interior_point,
    fits_in_memory,
)
from fieldfit.inference.messages.message_arrays import State
from fieldfit.inference.messages.sum_product import SumProduct

__all__ = ["DoubleLoop", "entropy_counts", "log_beliefs"]

#: Least probability whose logarithm goes into a linearisation: a label is never excluded for good
#: because its belief has underflowed.
SMALLEST = 1e-300
#: Rounds before interior-point steps are tried (first, where they begin at beliefs of rounds), and
#: most of these.
ROUNDS_ALONE = 20
MAX_STEPS = 500
#: Rounding of objectives that are compared.
ROUNDING = 1e-12
#: Probability of such labels in beliefs to start from: they may come from other observations.
RETURNING = 1e-4


@dataclass(frozen=True, kw_only=True)
class DoubleLoop(Inference):
    """Bethe's beliefs by repeated concave problems; slower than `SumProduct`, but it converges.

    Parameters
    ----------
    tol
        Converged when no belief of a variable moves by more than this in a round.
    max_rounds
        Most rounds.
    max_iter
        Most sweeps of message passing in one round.
    n_jobs
        Threads; 1 if ``None``.  The result does not depend on it.
    accelerate
        Where rounds do not converge soon, go on with interior-point steps; ``status`` then says so.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> result = DoubleLoop().run(graph, ff.Potentials(graph))
    >>> round(result.log_partition, 6), result.bound
    (2.079442, 'exact')
    """

    tol: float = field(default=1e-8, kw_only=False)
    max_rounds: int = 1000
    max_iter: int = 1000
    n_jobs: int | None = None
    accelerate: bool = True

    def __post_init__(self) -> None:
        require_number("tol", self.tol, above=0)
        require_integer("max_rounds", self.max_rounds, at_least=1)
        require_integer("max_iter", self.max_iter, at_least=1)
        require_jobs(self.n_jobs)
        require_flag("accelerate", self.accelerate)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs, and one log-partition for each example of a batch.

        The first round linearises at ``init``, or leaves the entropies of variables out.
        """
        require_model(batch, potentials, progress)
        require_result(init)
        graph = batch.graph
        if init is not None and not init.beliefs.graph.has_structure_of(graph):
            raise InvalidInputError("init must be a result on a graph of this structure")
        inner = SumProduct(
            entropy=Convex(unary=0.0), tol=self.tol, max_iter=self.max_iter, n_jobs=self.n_jobs
        )
        counts = entropy_counts(graph)
        by_entry = np.repeat(counts, graph.cardinalities)
        # where nothing is linearised the first round is the last
        moving = batch.max_variables(counts) > 0.0
        residuals = np.where(moving, np.inf, 0.0)
        old = np.zeros(len(by_entry))
        if init is not None:
            given = init.beliefs.unary_values
            old = np.log(np.where(given < SMALLEST, RETURNING, given))
        result, n_rounds, n_sweeps, n_steps = init, 0, 0, 0
        next_try = ROUNDS_ALONE if self.accelerate else None
        while True:
            linearised = Potentials.from_flat(
                graph, potentials.unary_values + by_entry * old, potentials.factor_values
            )
            before = result
            result = inner.run_batch(batch, linearised, observed, before)
            n_rounds += 1
            n_sweeps += result.n_iter
            unary = result.beliefs.unary_values
            new = log_beliefs(unary)
            if before is not None:
                changes = _by_variable(np.maximum, graph, unary - before.beliefs.unary_values)
                residuals[moving] = batch.max_variables(changes)[moving]
            # what the linearisation leaves out of the objective: (d_i - 1) KL(new, old)
            gaps = batch.sum_variables(_by_variable(np.add, graph, by_entry * unary * (new - old)))
            moving &= residuals > self.tol
            if n_rounds == next_try and moving.any():
                result, finished, steps = _finish(
                    batch, potentials, observed, result, gaps, moving, self.tol, init is not None
                )
                n_steps += steps
                next_try = None if init is None else 2 * n_rounds
                residuals[finished], gaps[finished] = min(result.residual, self.tol), 0.0
                moving &= ~finished
            if progress is not None:
                progress(n_rounds, float(residuals.max(initial=0.0)))
            if not moving.any() or n_rounds >= self.max_rounds:
                break
            # examples that have converged keep their linearisation, so that a batch is its examples
            old = np.where(_by_entry(batch, moving), new, old)
        assert result.log_partitions is not None
        assert result.converged_examples is not None
        values = result.log_partitions + gaps
        converged_examples = result.converged_examples & ~moving
        converged = bool(converged_examples.all())
        residual = float(residuals.max(initial=0.0))
        return replace(
            result,
            log_partition=float(values.sum()),
            log_partitions=values,
            bound=Bethe().counting_numbers(graph).bound if converged else None,
            converged=converged,
            converged_examples=converged_examples,
            n_iter=n_rounds,
            residual=residual,
            status=self._status(converged_examples, residual, n_rounds, n_sweeps, n_steps),
            method="DoubleLoop",
            diagnostics={"n_sweeps": n_sweeps, "n_interior_point": n_steps},
        )

    def _status(
        self,
        converged_examples: NDArray[np.bool_],
        residual: float,
        n_rounds: int,
        n_sweeps: int,
        n_steps: int,
    ) -> str:
        work = f"{n_rounds} round{'s' if n_rounds != 1 else ''} and {n_sweeps} sweeps"
        if n_steps:
            work += f", and {n_steps} interior-point steps"
        measure = f"largest change of a belief {residual:.2g} after {work}"
        advice = "more rounds or more sweeps in a round"
        return ending(converged_examples, measure, self.tol, advice)


def entropy_counts(graph: FactorGraph) -> FloatArray:
    """``d_i - 1``, how often the entropy of each variable is taken away; never below 0."""
    return np.maximum(graph.degrees - 1, 0).astype(np.float64)


def log_beliefs(unary: FloatArray) -> FloatArray:
    """Logarithms of beliefs for a linearisation, finite where a belief has vanished."""
    return np.log(np.maximum(unary, SMALLEST))


def _finish(
    batch: Batch,
    potentials: Potentials,
    observed: dict[int, int] | ArrayLike | None,
    result: InferenceResult,
    gaps: FloatArray,
    moving: BoolArray,
    tol: float,
    stays: bool,
) -> tuple[InferenceResult, BoolArray, int]:
    """Interior-point steps for some examples: the new result, who has converged, and steps.

    ``result`` is that of the last round, ``gaps`` what its objectives lack of Bethe's; with
    ``stays`` the steps begin there.
    """
    chosen, finished = np.flatnonzero(moving), np.zeros(batch.n_examples, dtype=np.bool_)
    part = batch if moving.all() else Batch.of([batch.graphs[m] for m in chosen])
    if not fits_in_memory(part):
        return result, finished, 0
    model, _ = condition(batch.graph, potentials, observed)
    entries, table_entries = rows(batch.unary_offsets, chosen), rows(batch.table_offsets, chosen)
    tables = potentials.factor_values[table_entries]
    start = None
    if stays:
        given = result.beliefs
        start = Beliefs(part.graph, given.unary_values[entries], given.factor_values[table_entries])
    found = bethe_interior_point(part, model.unary[entries], tables, tol, MAX_STEPS, start=start)
    assert result.log_partitions is not None
    assert found.log_partitions is not None
    assert found.converged_examples is not None
    objectives = (result.log_partitions + gaps)[chosen]
    rounding = ROUNDING * (1.0 + np.abs(objectives))
    taken = found.converged_examples & (found.log_partitions >= objectives - rounding)
    finished[chosen] = taken
    own = np.flatnonzero(taken)
    unary, table = rows(part.unary_offsets, own), rows(part.table_offsets, own)
    message = rows(part.message_offsets, own)
    new_unary, new_table = result.beliefs.unary_values.copy(), result.beliefs.factor_values.copy()
    new_unary[entries[unary]] = found.beliefs.unary_values[unary]
    new_table[table_entries[table]] = found.beliefs.factor_values[table]
    state = State(result.state.message.copy(), result.state.log_belief.copy())
    state.log_belief[entries[unary]] = found.state.log_belief[unary]
    state.message[rows(batch.message_offsets, chosen)[message]] = found.state.message[message]
    values, converged = result.log_partitions.copy(), np.array(result.converged_examples)
    values[finished] = found.log_partitions[taken]
    converged[finished] = True
    beliefs = Beliefs(batch.graph, new_unary, new_table)
    joined = replace(
        result, beliefs=beliefs, log_partitions=values, converged_examples=converged, state=state,
        residual=found.residual,
    )  # fmt: skip
    return joined, finished, found.n_iter


# -- helpers ------------------------------------------------------------------------------


def _by_variable(reduce: np.ufunc, graph: FactorGraph, entries: FloatArray) -> FloatArray:
    """Sum, or largest size, of the entries of each variable."""
    if graph.n_variables == 0:
        return np.zeros(0)
    given = entries if reduce is np.add else np.abs(entries)
    return np.asarray(reduce.reduceat(given, graph.unary_offsets[:-1]))


def _by_entry(batch: Batch, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A flag of each example for each of its unary entries."""
    sizes = np.diff(batch.graph.unary_offsets[batch.variable_offsets])
    return np.repeat(flags, sizes)
