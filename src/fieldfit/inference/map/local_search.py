r"""Local search for MAP: tree moves from many starts, random kicks, and fusion of what they find.

One round changes a labelling in random places (a *kick*), repairs it by a few tree moves, and takes
over every component of the differences that does not lower the score:

    y' = kick(y),    y'_F <- argmax s(y'_F, y'_{\F})  for random forests F,    y <- fuse(y, y')

Places that lie apart are accepted or refused independently of each other, so that a round makes
progress everywhere in a large graph at once.  Several labellings are improved in turn; the first of
them, the best one, is fused with the others; one that no longer improves begins again.

Hard zeros cost more than all other potentials together.  So a search comes to possible labellings
first, and never leaves them again.

References: Lourenco, Martin and Stutzle, "Iterated local search", Handbook of Metaheuristics, 2003;
see `fieldfit.inference.map.tree_moves` and `fieldfit.inference.map.fusion_moves` for the moves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, Index, IntArray
from fieldfit._validation import require_integer, require_number
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import (
    Potentials,
    conditioned_unary,
    observed_labels,
    selected_entries,
)
from fieldfit.graph.ragged import reduce_rows, row_numbers
from fieldfit.graph.result import MapResult
from fieldfit.graph.structure import Structure
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, certified_result, examples, no_labelling
from fieldfit.inference.map.fusion_moves import fuse_by_roof_duality, fuse_components
from fieldfit.inference.map.max_product import iterated_conditional_modes, message_bounds
from fieldfit.inference.map.tree_moves import Forest, grow_forest, label_forest, new_forest
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.random_numbers import random_bits, random_uniform

__all__ = ["LocalSearch", "SoftModel", "search_labels", "soft_model"]

# -- The model without hard zeros ----------------------------------------------------------


class SoftModel(NamedTuple):
    """Finite potentials of one graph, with its evidence, and what may change."""

    structure: Structure
    unary: FloatArray
    tables: FloatArray
    is_possible: BoolArray  # unary entries
    movable: BoolArray  # variables with a choice


def soft_model(graph: FactorGraph, potentials: Potentials, observed: IntArray) -> SoftModel:
    """Potentials in which an excluded entry costs more than all others together can gain."""
    unary = conditioned_unary(graph, potentials, observed)
    tables = np.require(potentials.factor_values, np.float64, ["C", "W"])
    if np.isneginf(tables[graph.table_offsets[:-1][graph.arities == 0]]).any():
        raise no_labelling("a constant factor is -inf")
    is_possible = unary > -np.inf
    counts = reduce_rows(np.add, is_possible.astype(np.float64), graph.unary_offsets)
    if (counts == 0.0).any():
        raise no_labelling(f"no label of variable {np.flatnonzero(counts == 0.0)[0]} is possible")
    if not is_possible.all() or np.isneginf(tables).any():
        penalty = 1.0 + _total_range(unary, graph.unary_offsets)
        penalty += _total_range(tables, graph.table_offsets)
        unary = _lowered(unary, graph.unary_offsets, penalty)
        tables = _lowered(tables, graph.table_offsets, penalty)
    return SoftModel(graph.structure, unary, tables, is_possible, counts > 1.0)


def _total_range(values: FloatArray, offsets: IntArray) -> float:
    """Sum over rows of the largest minus the smallest finite value."""
    finite = np.isfinite(values)
    top = reduce_rows(np.maximum, np.where(finite, values, -np.inf), offsets)
    low = reduce_rows(np.minimum, np.where(finite, values, np.inf), offsets)
    known = np.isfinite(top)
    return float((top[known] - low[known]).sum())


def _lowered(values: FloatArray, offsets: IntArray, penalty: float) -> FloatArray:
    """Excluded entries at ``penalty`` below the smallest finite one of their row."""
    excluded = np.isneginf(values)
    low = reduce_rows(np.minimum, np.where(excluded, np.inf, values), offsets)
    floor = np.where(np.isfinite(low), low, 0.0) - penalty
    return np.where(excluded, np.repeat(floor, np.diff(offsets)), values)


# -- Rounds: kick, tree moves, fusion ------------------------------------------------------

#: Tree moves of a round, variables for each kick, and how many of them a kick may change.  Of 4 to
#: 16 moves, 32 to 256 variables and 12 to 100 changes these were best for spin glasses of 400.
N_MOVES, PER_KICK, LARGEST_KICK = 8, 64, 60


@kernel
def search_rounds(
    model: SoftModel, labels: IntArray, key: np.uint64, first_round: int, n_rounds: int
) -> float:
    """Improve labels by some rounds; the gain.  A round is a function of its number and the key."""
    structure, n = model.structure, len(labels)
    forest = new_forest(structure)
    order = np.flatnonzero(model.movable).astype(np.int32)
    other = labels.copy()
    parents, gains = np.empty(n, dtype=np.int32), np.empty(n)
    total = 0.0
    for number in range(first_round, first_round + n_rounds):
        own_key = random_bits(key, number)
        order.sort()
        counter = _kick(model, other, own_key, parents, forest)
        for _ in range(N_MOVES):
            for k in range(len(order) - 1, 0, -1):
                place = int(random_uniform(own_key, counter) * (k + 1))
                counter += 1
                order[k], order[place] = order[place], order[k]
            n_free, n_factors = grow_forest(structure, order, forest)
            label_forest(structure, model.unary, model.tables, other, forest, n_free, n_factors)
        # forests of dense graphs are small, single changes finish what they leave
        iterated_conditional_modes(structure, model.unary, model.tables, order, other)
        total += fuse_components(
            structure, model.unary, model.tables, labels, other, parents, gains
        )
    return total


@kernel
def _kick(
    model: SoftModel, labels: IntArray, key: np.uint64, marks: IntArray, forest: Forest
) -> int:
    """Change about half of the labels around some variables; random numbers used."""
    structure, n, queue = model.structure, len(labels), forest.queue
    counter = 0
    marks[:] = -1
    for kick in range(1 + n // PER_KICK):
        n_wanted = 1 + int(random_uniform(key, counter) * min(LARGEST_KICK, n))
        queue[0] = int(random_uniform(key, counter + 1) * n)
        counter += 2
        marks[queue[0]] = kick
        n_queue, place = 1, 0
        while place < n_queue:
            i = queue[place]
            if model.movable[i] and (place == 0 or random_uniform(key, counter) < 0.5):
                n_others = structure.cardinalities[i] - 1
                step = 1 + int(random_uniform(key, counter + 1) * n_others)
                labels[i] = (labels[i] + step) % structure.cardinalities[i]
            counter += 2
            place += 1
            n_queue = _add_neighbours(structure, i, kick, n_wanted, marks, queue, n_queue)
    return counter


@kernel(forceinline=True)
def _add_neighbours(
    structure: Structure,
    variable: Index,
    mark: int,
    n_wanted: int,
    marks: IntArray,
    queue: IntArray,
    n_queue: int,
) -> int:
    for position in range(
        structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
    ):
        factor = structure.slot_factors[structure.variable_slots[position]]
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            j = structure.slot_variables[slot]
            if marks[j] != mark and n_queue < n_wanted:
                marks[j] = mark
                queue[n_queue] = j
                n_queue += 1
    return n_queue


# -- Several labellings --------------------------------------------------------------------

#: Rounds that a labelling is improved by in its turn.
PER_TURN = 20
#: A turn that gains less than this, relative to the score, has come to an end.
GAIN = 1e-12
#: Variables and slots times rounds of one kernel call: some hundredths of a second, so that a time
#: limit is noticed.
PER_CALL = 100_000


def search_labels(
    graph: FactorGraph,
    potentials: Potentials,
    observed: IntArray,
    *,
    starts: Sequence[IntArray] = (),
    n_starts: int,
    n_rounds: int,
    random_state: int = 0,
    deadline: float = np.inf,
    target: float = np.inf,
) -> tuple[IntArray, int]:
    """The best labelling found and the number of rounds; never worse than any of ``starts``.

    ``deadline`` is a value of `time.monotonic`; the search also ends at a score of ``target``.
    """
    model = soft_model(graph, potentials, observed)
    rng = np.random.default_rng(random_state)
    key = np.uint64(rng.integers(2**63))
    score = partial(_score, graph, model)
    drawn = [_random_labels(graph, model, rng) for _ in range(n_starts)]
    # what cannot move has its only label, also where a start breaks a hard constraint
    labellings = [np.where(model.movable, start, drawn[0]).astype(np.int32) for start in starts]
    labellings.sort(key=score, reverse=True)
    labellings += drawn[len(labellings) :]
    best = max(labellings, key=score).copy()
    n_done = 0
    while n_done < n_rounds and model.movable.any() and score(best) < target:
        labellings[0] = best.copy()
        for k in range(n_starts):
            n_turn = min(PER_TURN, n_rounds - n_done)
            n_own, gain = _one_turn(graph, model, labellings[k], key, n_done, n_turn, deadline)
            n_done += n_own
            best = _better(graph, model, best, labellings[k])
            if n_done >= n_rounds or time.monotonic() >= deadline:
                return best, n_done
            if gain <= GAIN * abs(score(labellings[k])):
                labellings[k] = _random_labels(graph, model, rng)
    return best, n_done


def _one_turn(
    graph: FactorGraph,
    model: SoftModel,
    labels: IntArray,
    key: np.uint64,
    first_round: int,
    n_rounds: int,
    deadline: float,
) -> tuple[int, float]:
    """Improve one labelling; rounds done before the deadline, and the gain."""
    per_call = max(1, PER_CALL // (graph.n_variables + graph.n_slots + 1))
    n_done, gain = 0, 0.0
    while n_done < n_rounds and (n_done == 0 or time.monotonic() < deadline):
        n_next = min(per_call, n_rounds - n_done)
        gain += search_rounds(model, labels, key, first_round + n_done, n_next)
        n_done += n_next
    return n_done, gain


def _better(graph: FactorGraph, model: SoftModel, best: IntArray, labels: IntArray) -> IntArray:
    """The best of two labellings and of what their fusion gives."""
    score = partial(_score, graph, model)
    low, high = sorted((labels, best), key=score)
    candidates = [high]
    if not np.array_equal(low, high):
        fused, other = high.copy(), low.copy()
        parents, gains = np.empty(len(low), dtype=np.int32), np.empty(len(low))
        fuse_components(model.structure, model.unary, model.tables, fused, other, parents, gains)
        candidates.append(fused)
        if graph.arities.max(initial=0) <= 2:
            candidates.append(fuse_by_roof_duality(graph, model.unary, model.tables, fused, low))
    return max(candidates, key=score).copy()


def _score(graph: FactorGraph, model: SoftModel, labels: IntArray) -> float:
    """The score by potentials without hard zeros; factors of arity one are in the unary ones."""
    unary, table = selected_entries(graph, labels)
    joint = table[graph.arities != 1]
    return float(model.unary[unary].sum() + model.tables[joint].sum())


def _random_labels(graph: FactorGraph, model: SoftModel, rng: np.random.Generator) -> IntArray:
    """Any possible label of each variable."""
    draws = np.where(model.is_possible, rng.random(len(model.unary)), -1.0)
    order = np.lexsort((draws, row_numbers(graph.unary_offsets)))
    last = order[graph.unary_offsets[1:] - 1]
    labels: IntArray = (last - graph.unary_offsets[:-1]).astype(np.int32)
    return labels


# -- The search ----------------------------------------------------------------------------

#: Variables and slots times rounds of a whole search: about a second.
WORK = 2_000_000
#: Rounds for each variable of a small model, and at most.
ROUNDS_PER_VARIABLE, MOST_ROUNDS = 4, 800
#: Sweeps of convex max-product for the bound.
BOUND_SWEEPS = 100


def default_rounds(graph: FactorGraph) -> int:
    """Rounds that suit a graph: more for more variables, until a second is over."""
    wanted = min(MOST_ROUNDS, ROUNDS_PER_VARIABLE * graph.n_variables)
    return max(PER_TURN, min(wanted, WORK // (graph.n_variables + graph.n_slots + 1)))


@dataclass(frozen=True, kw_only=True)
class LocalSearch(MapSearch):
    """A good labelling by tree moves, kicks and fusion moves, for any arities and cardinalities.

    It proves little: the bound is that of a few sweeps of convex max-product.  `Map` puts better
    bounds beside it.

    Parameters
    ----------
    n_starts
        Labellings that are improved in turn and fused.
    n_rounds
        Rounds for each example, all starts together; ``None``: by the size of the graph, about a
        second for a large one.
    time_limit
        Seconds for each example, ``None`` for no limit.  Without it, results depend on
        ``random_state`` alone.
    random_state
        Seed of starts, kicks and forests.

    Examples
    --------
    >>> graph = FactorGraph.grid(4, 4, 2)
    >>> signs = np.where(np.arange(24) % 3 == 0, -1.0, 1.0)[:, None, None]
    >>> result = LocalSearch().run(graph, Potentials(graph, None, signs * np.eye(2)))
    >>> result.score == Potentials(graph, None, signs * np.eye(2)).score(result.labels)
    True
    """

    n_starts: int = field(default=4, kw_only=False)
    n_rounds: int | None = None
    time_limit: float | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        require_integer("n_starts", self.n_starts, at_least=1)
        require_integer("n_rounds", self.n_rounds, at_least=1, or_none=True)
        require_number("time_limit", self.time_limit, above=0, or_none=True)
        require_integer("random_state", self.random_state, at_least=0)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """Example by example; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        evidence = observed_labels(batch.graph, observed)
        bounds = message_bounds(batch, potentials, evidence, BOUND_SWEEPS)
        labels = np.empty(batch.graph.n_variables, dtype=np.int32)
        n_done = 0
        for m, (graph, own, known) in enumerate(examples(batch, potentials, evidence)):
            begin, end = batch.variable_offsets[m : m + 2]
            limit = np.inf if self.time_limit is None else time.monotonic() + self.time_limit
            labels[begin:end], n_own = search_labels(
                graph,
                own,
                known,
                n_starts=self.n_starts,
                n_rounds=self._rounds(graph),
                random_state=self.random_state,
                deadline=limit,
                target=float(bounds[m]),
            )
            n_done += n_own
        return certified_result(
            labels,
            batch.scores(potentials, labels),
            bounds,
            how=f"{n_done} round{'s' if n_done != 1 else ''} of tree moves",
            method="LocalSearch",
            n_iter=n_done,
        )

    def _rounds(self, graph: FactorGraph) -> int:
        if self.n_rounds is not None:
            return self.n_rounds
        return default_rounds(graph) if self.time_limit is None else sys.maxsize
