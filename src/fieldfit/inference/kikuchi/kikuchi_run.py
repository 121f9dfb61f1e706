"""One run on a region graph: sweeps in threads, the double loop (CCCP), plain messages.

A round of the double loop replaces negative entropies by their tangents at the last beliefs and
solves the concave problem that is left, see `fieldfit.inference.kikuchi.region_sweeps`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fieldfit._parallel import n_threads, ordered_map
from fieldfit._typing import BoolArray, FloatArray, LongArray
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.inference.base import Progress
from fieldfit.inference.kikuchi.region_graph import RegionGraph
from fieldfit.inference.kikuchi.region_sweeps import (
    Bounds,
    RegionModel,
    RegionState,
    dual_values,
    rebuild_outer,
    sweep_examples,
)
from fieldfit.inference.kikuchi.region_tables import add_tables, sum_tables

__all__ = ["DoubleLoopRounds", "RegionRun", "plain_messages", "run_rounds"]

#: Probability of labels that a start excludes but that may come back under other potentials.
RETURNING = 1e-4


class RegionRun:
    """Potentials, numbers and beliefs of all regions of a batch.

    ``unary`` are the unary log-potentials with evidence and factors of one variable folded in.
    """

    def __init__(
        self,
        batch: Batch,
        regions: RegionGraph,
        potentials: Potentials,
        unary: FloatArray,
        n_jobs: int | None = None,
    ) -> None:
        self.batch, self.regions = batch, regions
        self.n_threads = n_threads(n_jobs)
        self.bounds = _bounds(batch, regions)
        total, tangent = _split_counts(regions)
        self.model = RegionModel(
            potential=_region_potentials(batch, regions, potentials, unary),
            weight=regions.counts[: regions.n_outer],
            total=total,
            tangent=tangent,
            floor=self._floors(potentials, unary),
            agrees_in_logs=np.array(
                np.broadcast_to(regions.acyclic_examples, batch.n_examples), dtype=np.bool_
            ),
        )
        sizes = np.diff(regions.table_offsets)[regions.n_outer :]
        self.uniform = np.repeat(-np.log(sizes), sizes)
        self.state = RegionState(
            log_belief=np.empty(regions.n_tables),
            multiplier=np.zeros(int(regions.message_offsets[-1])),
            log_norm=np.zeros(regions.n_inner),
            old=self.uniform.copy(),
        )
        self.inner_log_belief[:] = self.uniform
        self.constants = _constants(batch, potentials)
        self.n_sweeps = np.zeros(batch.n_examples, dtype=np.int64)
        self.gaps = np.zeros(batch.n_examples)
        self.everyone = np.arange(batch.n_examples)
        self._rebuild(self.everyone)

    @property
    def inner_log_belief(self) -> FloatArray:
        """Log-beliefs of the inner regions (a view)."""
        return self.state.log_belief[self.regions.table_offsets[self.regions.n_outer] :]

    def start_from(self, earlier: object) -> None:
        """Multipliers and beliefs of an earlier run; what it excluded may come back."""
        if not (
            isinstance(earlier, RegionState)
            and len(earlier.multiplier) == len(self.state.multiplier)
            and len(earlier.log_belief) == len(self.state.log_belief)
        ):
            raise InvalidInputError(
                "init must be a GeneralizedSumProduct result with these regions"
            )
        inner = earlier.log_belief[self.regions.table_offsets[self.regions.n_outer] :]
        self.inner_log_belief[:] = np.where(np.isneginf(inner), np.log(RETURNING), inner)
        self.state.old[:] = self.inner_log_belief
        self.state.multiplier[:] = np.where(
            np.isneginf(earlier.multiplier), 0.0, earlier.multiplier
        )
        self._rebuild(self.everyone)

    def start_at(self, log_belief: FloatArray) -> None:
        """Take the tangents at given beliefs of all regions (finite ones), with no multipliers."""
        self.state.old[:] = log_belief[self.regions.table_offsets[self.regions.n_outer] :]
        self.inner_log_belief[:] = self.state.old
        self._rebuild(self.everyone)

    # -- steps ----------------------------------------------------------------------------

    def sweep(
        self,
        examples: LongArray,
        tol: FloatArray,
        max_sweeps: int,
        damping: FloatArray | None = None,
    ) -> None:
        """Sweeps of some examples, each until it agrees to its tolerance.

        Without ``damping`` the tangents stay where they are; with it, one number for each example,
        every update moves its tangent to its own belief (plain messages).
        """
        moves_tangents = damping is not None
        dampings = np.zeros(self.batch.n_examples) if damping is None else damping

        def work(part: LongArray) -> int:
            return int(
                sweep_examples(
                    self.regions.arrays, self.model, self.state, self.bounds, part,
                    moves_tangents, dampings, tol, max_sweeps, self.gaps, self.n_sweeps,
                )
            )  # fmt: skip

        self._require_possible(self._in_threads(work, examples))

    def values(self, examples: LongArray) -> tuple[FloatArray, FloatArray]:
        """Kikuchi's value of each example, and how far inner beliefs are from ``old``."""
        values, changes = np.zeros(self.batch.n_examples), np.zeros(self.batch.n_examples)
        self._require_possible(
            dual_values(
                self.regions.arrays, self.model, self.state, self.bounds, examples, values, changes
            )
        )
        return values + self.constants, changes

    def relinearise_at_beliefs(self, examples: LongArray) -> None:
        """Take the beliefs of some examples as the point where entropies are linearised."""
        chosen = np.zeros(self.batch.n_examples, dtype=np.bool_)
        chosen[examples] = True
        np.copyto(self.state.old, self.inner_log_belief, where=self._by_inner_entry(chosen))
        self._rebuild(examples)

    def reset(self, examples: LongArray, earlier: RegionState) -> None:
        """Put some examples back to where they were."""
        chosen = np.zeros(self.batch.n_examples, dtype=np.bool_)
        chosen[examples] = True
        inner = self._by_inner_entry(chosen)
        outer = expand(chosen, self.regions.table_offsets[self.bounds.outer])
        links = expand(
            chosen, self.regions.message_offsets[self.regions.link_offsets[self.bounds.inner]]
        )
        for mine, before, where in (
            (self.state.log_belief, earlier.log_belief, np.concatenate([outer, inner])),
            (self.state.multiplier, earlier.multiplier, links),
            (self.state.log_norm, earlier.log_norm, expand(chosen, self.bounds.inner)),
            (self.state.old, earlier.old, inner),
        ):
            np.copyto(mine, before, where=where)

    def copy_of_state(self) -> RegionState:
        return RegionState(*(array.copy() for array in self.state))

    def has_tangents(self) -> BoolArray:
        """Examples in which some entropy is negative; the others need a single round."""
        tangents = np.concatenate([[0.0], np.cumsum(self.model.tangent)])
        return tangents[self.bounds.inner[1:]] > tangents[self.bounds.inner[:-1]]

    # -- what comes out -------------------------------------------------------------------

    def beliefs(self) -> Beliefs:
        """Beliefs of variables and factors: sums of those of the smallest regions around them."""
        graph, regions = self.batch.graph, self.regions
        unary = np.empty(int(graph.unary_offsets[-1]))
        factors = np.empty(int(graph.table_offsets[-1]))
        for hosts, maps, offsets, out in (
            (regions.unary_hosts, regions.unary_maps, graph.unary_offsets, unary),
            (regions.factor_hosts, regions.factor_maps, graph.table_offsets, factors),
        ):
            sum_tables(
                regions.table_offsets, hosts, maps, regions.maps, offsets,
                self.state.log_belief, out,
            )  # fmt: skip
        return Beliefs(graph, unary, factors)

    # -- helpers --------------------------------------------------------------------------

    def _rebuild(self, examples: LongArray) -> None:
        rebuild_outer(self.regions.arrays, self.model, self.state, self.bounds, examples)

    def _by_inner_entry(self, flags: BoolArray) -> BoolArray:
        """A flag of each example for each entry of its inner regions."""
        offsets = self.regions.table_offsets[self.regions.n_outer :]
        return expand(flags, offsets[self.bounds.inner])

    def _in_threads(self, work: Callable[[LongArray], int], examples: LongArray) -> int:
        """Largest answer of any part; examples are independent, so that parts do not matter."""
        n_parts = max(1, min(self.n_threads, len(examples)))
        return max(ordered_map(work, np.array_split(examples, n_parts), n_parts))

    def _require_possible(self, region: int) -> None:
        if region >= 0:
            raise ZeroWeightError(
                "the model (with its evidence) has total weight zero: no configuration of the "
                f"variables {self.regions.scope(region)} is possible"
            )

    def _floors(self, potentials: Potentials, unary: FloatArray) -> FloatArray:
        """Ten times less than any sum of potentials of an example over a counting number.

        Finite log-beliefs stay above it: one that diverges cannot pass for a hard zero.
        """
        batch = self.batch
        n_tables = np.diff(batch.variable_offsets) + np.diff(batch.factor_offsets)
        largest = np.full(batch.n_examples, 100.0)
        for values, offsets in (
            (unary, batch.unary_offsets),
            (potentials.factor_values, batch.table_offsets),
        ):
            sizes = np.where(np.isneginf(values), 0.0, np.abs(values))
            largest = np.maximum(largest, reduce_rows(np.maximum, sizes, offsets))
        inverse = reduce_rows(
            np.maximum, 1.0 / self.regions.counts[: self.regions.n_outer], self.bounds.outer
        )
        return -10.0 * largest * (1.0 + n_tables) * np.maximum(inverse, 1.0)


def _split_counts(regions: RegionGraph) -> tuple[FloatArray, FloatArray]:
    """``total`` and ``tangent`` of the inner regions (see the kernels).

    Positive entropies are kept and negative ones become tangents, so that what is left is concave.
    """
    counts = regions.counts[regions.n_outer :]
    around = reduce_rows(np.add, regions.counts[regions.link_outer], regions.link_offsets)
    return around + np.maximum(counts, 0.0), np.maximum(-counts, 0.0)


def _bounds(batch: Batch, regions: RegionGraph) -> Bounds:
    """Where the regions of each example begin."""
    examples = batch.variable_examples()
    owners = examples[regions.scope_variables[regions.scope_offsets[:-1]]]
    every = np.arange(batch.n_examples + 1)
    outer, inner = owners[: regions.n_outer], owners[regions.n_outer :]
    return Bounds(
        np.searchsorted(outer, every).astype(np.int64),
        np.searchsorted(inner, every).astype(np.int64),
    )


def _region_potentials(
    batch: Batch, regions: RegionGraph, potentials: Potentials, unary: FloatArray
) -> FloatArray:
    """Potentials of regions: each variable and factor in the smallest region around it."""
    graph = batch.graph
    values = np.zeros(regions.n_tables)
    # kernels are compiled for writeable arrays; a read-only view is copied
    tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
    linking = np.where(graph.arities >= 2, regions.factor_hosts, -1).astype(np.int32)
    for hosts, maps, offsets, given in (
        (regions.unary_hosts, regions.unary_maps, graph.unary_offsets, unary),
        (linking, regions.factor_maps, graph.table_offsets, tables),
    ):
        add_tables(regions.table_offsets, hosts, maps, regions.maps, offsets, given, values)
    outer = slice(0, int(regions.table_offsets[regions.n_outer]))
    values[outer] /= expand(
        regions.counts[: regions.n_outer], regions.table_offsets[: regions.n_outer + 1]
    )
    return values


def _constants(batch: Batch, potentials: Potentials) -> FloatArray:
    """Sum of the factors of no variable, for each example."""
    graph = batch.graph
    constant = np.flatnonzero(graph.arities == 0)
    values = np.zeros(graph.n_factors)
    values[constant] = potentials.factor_values[graph.table_offsets[constant]]
    if np.isneginf(values).any():
        raise ZeroWeightError("the model has total weight zero: a constant factor is -inf")
    return batch.sum_factors(values)


# -- the two loops: rounds of concave problems, and plain messages ------------------------

#: A round is solved until regions agree to this fraction of the last change of beliefs: exact
#: enough for values to rise, and a third of the sweeps that a fixed tolerance costs.
ACCURACY = 0.01
#: Fraction of the tolerance that rounds are not solved beyond, ...
FINEST = 0.1
#: ... unless a value has fallen by more than `SLACK` times its size: then they are solved once
#: more, this much better.
MUCH_BETTER = 1e-4
SLACK = 1e-12

#: Damping of plain messages when the disagreement has not fallen for `PATIENCE` calls.
DAMPING_STEPS = (0.3, 0.6, 0.9)
PATIENCE = 8
SWEEPS_PER_CALL = 8


@dataclass(frozen=True)
class DoubleLoopRounds:
    """What rounds led to, for each example; ``values`` has a row for each round."""

    values: FloatArray
    changes: FloatArray
    moving: BoolArray
    n_rounds: int


def run_rounds(
    run: RegionRun,
    max_rounds: int,
    max_sweeps: int,
    tol: float,
    accuracy: float = ACCURACY,
    start_values: FloatArray | None = None,
    progress: Progress | None = None,
) -> DoubleLoopRounds:
    """Solve concave problems, each with its tangents at the beliefs of the last one.

    A dual value is never below that of the maximum, so that a round that is solved loosely is
    overrated, by the square of what regions disagree; when the next round shows it, the value is
    corrected.  ``start_values`` are those of consistent beliefs where the tangents are at first.
    """
    n_examples = run.batch.n_examples
    is_convexified = run.has_tangents()
    values = np.full(n_examples, -np.inf) if start_values is None else start_values.copy()
    changes = np.where(run.n_sweeps > 0, run.gaps, 1.0)
    moving = np.ones(n_examples, dtype=np.bool_)
    history: list[FloatArray] = []
    while moving.any() and len(history) < max_rounds:
        left = np.flatnonzero(moving)
        if history:
            run.relinearise_at_beliefs(left)
        closeness = accuracy * np.minimum(changes, 1.0)  # changes of logarithms may be larger
        closeness = np.maximum(np.where(is_convexified, closeness, 0.0), FINEST * tol)
        run.sweep(left, closeness, max_sweeps)
        found, moved = run.values(left)
        fell = left[found[left] < (values - SLACK * (1.0 + np.abs(values)))[left]]
        if len(fell):
            run.sweep(fell, MUCH_BETTER * closeness, max_sweeps)
            found[fell], moved[fell] = (result[fell] for result in run.values(fell))
        values[left], changes[left] = found[left], moved[left]
        changes[~is_convexified] = 0.0  # without a tangent a single round is exact
        history.append(values.copy())
        moving &= (changes > tol) | (run.gaps > tol)
        if progress is not None:
            progress(len(history), float(changes.max(initial=0.0)))
    rows = np.array(history).reshape(len(history), n_examples)
    risen = np.minimum.accumulate(rows[::-1], axis=0)[::-1]
    if start_values is not None:
        risen = np.maximum(risen, start_values)  # up to rounding they are
    return DoubleLoopRounds(risen, changes, moving, len(history))


def plain_messages(
    run: RegionRun,
    max_sweeps: int,
    tol: float,
    damping: float | None,
    progress: Progress | None = None,
) -> None:
    """Sweeps in which every update moves its tangent along; fast, but they may oscillate.

    Without a given ``damping`` each example gets some when its disagreement stops falling; one
    whose multipliers diverge starts again with more.
    """
    n_examples = run.batch.n_examples
    start = run.copy_of_state()
    dampings = np.full(n_examples, 0.0 if damping is None else damping)
    steps = np.zeros(n_examples, dtype=np.int64)
    best = np.full(n_examples, np.inf)
    waited = np.zeros(n_examples, dtype=np.int64)
    moving, n_sweeps = np.ones(n_examples, dtype=np.bool_), 0
    while moving.any() and n_sweeps < max_sweeps:
        n_more = min(SWEEPS_PER_CALL, max_sweeps - n_sweeps)
        run.sweep(np.flatnonzero(moving), np.full(n_examples, tol), n_more, dampings)
        n_sweeps += n_more
        if progress is not None:
            progress(n_sweeps, float(run.gaps.max(initial=0.0)))
        better = run.gaps < 0.9 * best
        best = np.minimum(best, run.gaps)
        waited = np.where(better, 0, waited + 1)
        lost = moving & np.isinf(run.gaps)
        run.reset(np.flatnonzero(lost), start)
        stuck = moving & ((waited > PATIENCE) | lost)
        moving &= (run.gaps > tol) & ~(lost & (steps >= len(DAMPING_STEPS)))
        if damping is None:
            raised = stuck & (steps < len(DAMPING_STEPS))
            dampings[raised] = np.array(DAMPING_STEPS)[steps[raised]]
            steps[raised] += 1
            waited[raised], best[raised] = 0, np.inf
        else:
            moving &= ~lost
