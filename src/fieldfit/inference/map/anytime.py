"""Anytime MAP of one graph: bounds from above and labellings from below, until they meet.

    s(y)  <=  max_y s(y)  <=  bound

What is known at first, labellings and a bound of some relaxation, is improved step by step: probing
of binary pairs, cutting planes of odd cycles, local search, and where the time allows an integer
program.
Every step can only narrow the gap, so that the result is valid whenever the time is over.  Without
a time limit, steps are limited by counts of rounds, and the result depends on the seed alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fieldfit._typing import IntArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.map.base import MEETING, meets_bound
from fieldfit.inference.map.cycle_cuts import (
    MAX_WORK,
    CutModel,
    CycleRelaxation,
    branch_and_cut,
    cycle_relaxation,
    reduced_model,
)
from fieldfit.inference.map.exact_map import integer_program
from fieldfit.inference.map.graph_cut.probing import Effort, probe
from fieldfit.inference.map.local_search import default_rounds, search_labels
from fieldfit.inference.map.projected_cycles import n_projected_pairs, projected_relaxation

__all__ = ["Bracket", "is_binary_pairwise", "narrow"]

#: Free variables and pairs of a model whose cycle relaxation is solved in seconds; with a time
#: limit the linear program stops by itself.
MAX_CUT_COLUMNS, MAX_LIMITED_CUT_COLUMNS = 10_000, 100_000
#: Entries of all tables of a model with more labels, for the same.
MAX_PROJECTED_COLUMNS = 30_000
#: Rounds of cutting planes.
MAX_ROUNDS = 200
#: Entries of all tables of a model that is given to an integer program.
MAX_INTEGER_COLUMNS = 200_000
#: Branch and cut begins below this gap, relative to the score: it halves a gap of some percent only
#: by very many nodes, while local search still finds better labels.
BRANCHING_GAP = 0.02
#: Rounds of probing, what it must decide for each probe to go on, and variables and pairs of all
#: probed models without a time limit (about two seconds).
PROBING_ROUNDS, PROBING_YIELD, PROBING_WORK = 3, 0.5, 2e6
#: Labellings of the local search.
N_STARTS = 4


@dataclass(eq=False)
class Bracket:
    """The best labelling and the smallest bound of one example, and who found them."""

    labels: IntArray
    score: float
    bound: float
    labels_by: str
    bound_by: str
    is_proved: bool = False
    n_iter: int = 0
    starts: list[IntArray] = field(default_factory=list)

    def raise_score(self, labels: IntArray, score: float, name: str) -> None:
        """Take a labelling if it is better."""
        if score > self.score:
            self.labels, self.score, self.labels_by = labels, score, name

    def lower_bound_to(self, bound: float, name: str) -> None:
        """Take a bound if it is smaller."""
        if bound < self.bound:
            self.bound, self.bound_by = bound, name

    @property
    def is_closed(self) -> bool:
        """Whether the labelling is proved optimal."""
        return self.is_proved or bool(
            meets_bound(np.array([self.score]), np.array([self.bound]))[0]
        )

    @property
    def gap(self) -> float:
        """Difference of bound and score, relative to the score."""
        if self.score == -np.inf:
            return np.inf
        return (self.bound - self.score) / max(1.0, abs(self.score))


def is_binary_pairwise(graph: FactorGraph) -> bool:
    """Whether all variables have at most two labels and all factors at most two variables."""
    return bool(graph.cardinalities.max(initial=0) <= 2 and graph.arities.max(initial=0) <= 2)


def narrow(
    bracket: Bracket,
    graph: FactorGraph,
    potentials: Potentials,
    observed: IntArray,
    *,
    time_limit: float | None = None,
    random_state: int = 0,
) -> None:
    """Improve a bracket in place; ``time_limit`` in seconds."""
    clock = _Clock(time_limit)
    bracket.starts.append(bracket.labels)
    if is_binary_pairwise(graph):
        _narrow_pairs(bracket, graph, potentials, observed, clock, random_state)
    else:
        search = _Search(bracket, graph, potentials, observed, random_state)
        _first_labels(search, clock)
        if not bracket.is_closed:
            _relax_labels(bracket, graph, potentials, observed, clock)
        search.run(default_rounds(graph), clock.after(0.3))
        is_small = graph.unary_offsets[-1] + graph.table_offsets[-1] <= MAX_INTEGER_COLUMNS
        if clock.is_limited and is_small and not bracket.is_closed:
            _integer(bracket, graph, potentials, observed, clock.left)
        _last_labels(search, clock)


def _narrow_pairs(
    bracket: Bracket,
    graph: FactorGraph,
    potentials: Potentials,
    observed: IntArray,
    clock: _Clock,
    random_state: int,
) -> None:
    """Probing first: what it decides need not be searched, cut or branched on."""
    max_work = np.inf if clock.is_limited else PROBING_WORK
    effort = Effort(PROBING_ROUNDS, clock.after(0.2), max_work, PROBING_YIELD)
    probed = probe(graph, potentials, observed, effort)
    bracket.n_iter += probed.n_probes
    bracket.raise_score(probed.labels, probed.score, "Probing")
    bracket.lower_bound_to(max(probed.bound, bracket.score), "Probing")
    if bracket.is_closed:
        return
    start = probed.lowered(bracket.labels)
    rest = Bracket(
        labels=start,
        score=probed.potentials.score(start),
        bound=bracket.bound - probed.constant,
        labels_by=bracket.labels_by,
        bound_by=bracket.bound_by,
        starts=[start],
    )
    _cut_and_search(rest, probed.graph, probed.potentials, clock, random_state)
    bracket.n_iter += rest.n_iter
    labels = probed.lifted(rest.labels)
    bracket.raise_score(labels, potentials.score(labels), rest.labels_by)
    bound = rest.score if rest.is_proved else rest.bound
    bracket.lower_bound_to(max(bound + probed.constant, bracket.score), rest.bound_by)


def _cut_and_search(
    bracket: Bracket,
    graph: FactorGraph,
    potentials: Potentials,
    clock: _Clock,
    random_state: int,
) -> None:
    """Cutting planes of odd cycles, local search, and branch and cut if there is a time limit."""
    unobserved = np.full(graph.n_variables, -1, dtype=np.int32)
    model, evidence = reduced_model(graph, potentials, unobserved)
    search = _Search(bracket, graph, potentials, evidence, random_state)
    _first_labels(search, clock)
    relaxation = None if bracket.is_closed else _relax(bracket, model, clock)
    search.run(default_rounds(graph), clock.after(0.3))
    if clock.is_limited and relaxation is not None and bracket.gap <= BRANCHING_GAP:
        _branch(bracket, potentials, relaxation, clock.left)
    _last_labels(search, clock)


def _first_labels(search: _Search, clock: _Clock) -> None:
    """Labels before bounds if the time is limited: a linear program may take all of it."""
    if clock.is_limited:
        search.run(default_rounds(search.graph) // 4, clock.after(0.2))


def _last_labels(search: _Search, clock: _Clock) -> None:
    """Whatever time is left goes into the search."""
    if clock.is_limited and clock.left > 0.0 and not search.bracket.is_closed:
        search.run(sys.maxsize, clock.after(1.0))


class _Clock:
    """Deadlines as shares of the time that is left."""

    def __init__(self, time_limit: float | None) -> None:
        self.end = np.inf if time_limit is None else time.monotonic() + time_limit

    @property
    def is_limited(self) -> bool:
        return bool(self.end < np.inf)

    @property
    def left(self) -> float:
        return float(self.end - time.monotonic())

    def after(self, share: float) -> float:
        """A deadline for `time.monotonic`."""
        return np.inf if self.end == np.inf else time.monotonic() + share * max(0.0, self.left)


def _relax(bracket: Bracket, model: CutModel, clock: _Clock) -> CycleRelaxation | None:
    """Cutting planes of odd cycles, if the model is not too large for them."""
    n_columns = model.n_free + len(model.weights)
    if n_columns > (MAX_LIMITED_CUT_COLUMNS if clock.is_limited else MAX_CUT_COLUMNS):
        return None
    relaxation = cycle_relaxation(
        model,
        MAX_ROUNDS,
        max_work=np.inf if clock.is_limited else MAX_WORK,
        deadline=clock.after(0.6),
        target=bracket.score + _tolerance(bracket),
    )
    bracket.n_iter += relaxation.n_rounds
    bracket.lower_bound_to(relaxation.bound, "CycleCuts")
    bracket.starts.append(relaxation.labels())
    return relaxation


def _relax_labels(
    bracket: Bracket,
    graph: FactorGraph,
    potentials: Potentials,
    observed: IntArray,
    clock: _Clock,
) -> None:
    """Odd cycles of labels, if the linear program is not too large for them."""
    n_pairs = n_projected_pairs(graph)
    n_columns = int(graph.unary_offsets[-1] + graph.table_offsets[-1])
    if n_pairs == 0 or n_columns > MAX_PROJECTED_COLUMNS:
        return
    relaxation = projected_relaxation(
        graph,
        potentials,
        observed,
        MAX_ROUNDS,
        max_work=np.inf if clock.is_limited else MAX_WORK,
        deadline=clock.after(0.4),
        target=bracket.score + _tolerance(bracket),
    )
    bracket.n_iter += relaxation.n_rounds
    bracket.lower_bound_to(relaxation.bound, "LinearProgram with odd cycles")
    if relaxation.labels is not None:
        bracket.starts.append(relaxation.labels)


@dataclass(eq=False)
class _Search:
    """Local search that goes on with other random numbers when it is run again."""

    bracket: Bracket
    graph: FactorGraph
    potentials: Potentials
    evidence: IntArray
    seed: int

    def run(self, n_rounds: int, deadline: float) -> None:
        bracket = self.bracket
        if bracket.is_closed:
            return
        labels, n_done = search_labels(
            self.graph,
            self.potentials,
            self.evidence,
            starts=_agreeing(bracket.starts, self.evidence),
            n_starts=N_STARTS,
            n_rounds=n_rounds,
            random_state=self.seed,
            deadline=deadline,
            target=bracket.bound - _tolerance(bracket),
        )
        self.seed += 1
        bracket.n_iter += n_done
        bracket.raise_score(labels, self.potentials.score(labels), "LocalSearch")
        bracket.starts = [bracket.labels]


def _tolerance(bracket: Bracket) -> float:
    """Half of the difference at which score and bound count as equal."""
    return 0.5 * MEETING * max(1.0, abs(bracket.score)) if bracket.score > -np.inf else 0.0


def _agreeing(starts: Sequence[IntArray], evidence: IntArray) -> list[IntArray]:
    """Starts with the labels of evidence, which include persistent ones."""
    return [np.where(evidence >= 0, evidence, start).astype(np.int32) for start in starts]


def _branch(
    bracket: Bracket, potentials: Potentials, relaxation: CycleRelaxation, time_limit: float
) -> None:
    if time_limit <= 0.0:
        return
    labels, bound, is_proved = branch_and_cut(relaxation, time_limit)
    bracket.lower_bound_to(bound, "CycleCuts")
    if labels is not None:
        score = potentials.score(labels)
        if is_proved and score >= bracket.score - abs(bracket.score) * 1e-9:
            bracket.is_proved = True
        bracket.raise_score(labels, score, "CycleCuts")


def _integer(
    bracket: Bracket,
    graph: FactorGraph,
    potentials: Potentials,
    observed: IntArray,
    time_limit: float,
) -> None:
    if time_limit <= 0.0:
        return
    found = integer_program(Batch.of([graph]), potentials, observed, time_limit)
    bracket.lower_bound_to(found.upper_bound, "ExactMap")
    bracket.is_proved = found.optimal
    bracket.raise_score(found.labels, found.score, "ExactMap")
