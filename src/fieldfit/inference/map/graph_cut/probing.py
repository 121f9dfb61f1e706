r"""Probing: what roof duality proves after a variable has been given each of its labels in turn.

Let ``U_a`` be the roof-dual bound of the model with ``x_i = a``, and ``P_a`` the variables that are
persistent there.  A best labelling has ``x_i = 0`` or ``x_i = 1``, and some best labelling of
either part has the labels of all of ``P_a``.  Therefore

* ``max(U_0, U_1)`` bounds the score of every labelling, and is at most the bound without probing;
* if ``U_a`` is below the score of a known labelling, ``x_i`` is not ``a`` in a better one;
* a variable in ``P_0`` and ``P_1`` with the same label has it in some best labelling, and one with
  two labels is ``x_i`` or ``1 - x_i`` there, so that the two variables become one.

All of these hold together for one ``i``.  They are applied before the next variable is probed: the
model shrinks, and roof duality of what is left proves more.

References: Boros, Hammer and Tavares, "Preprocessing of unconstrained quadratic binary
optimization", RUTCOR report 10-2006; Rother, Kolmogorov, Lempitsky and Szummer, "Optimizing binary
MRFs via extended roof duality", CVPR 2007.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit._validation import require_integer, require_number
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, observed_labels
from fieldfit.graph.result import MapResult
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, certified_result, examples, meets_bound
from fieldfit.inference.map.graph_cut.cut_network import binary_choices, cut_network
from fieldfit.inference.map.graph_cut.roof_duality import HALF, RoofDuality

__all__ = ["Effort", "Probed", "Probing", "probe"]

#: Probes whose yield decides whether to go on.
WINDOW = 50
#: In place of the number of a variable: it has a label.
FIXED = -1


class _Pairs(NamedTuple):
    """``constant + sum_i unary[i, x_i] + sum_e tables[e, x_i, x_j]`` over binary variables."""

    constant: float
    unary: FloatArray
    edges: IntArray
    tables: FloatArray


class Places(NamedTuple):
    """Where each variable has gone: ``x = z[variable] ^ switch``, or ``switch`` itself if fixed."""

    variable: IntArray
    switch: IntArray

    def lifted(self, labels: IntArray) -> IntArray:
        """Labels of the variables from those of the places they have gone to."""
        padded = np.append(labels, 0)  # fixed variables read the last entry
        lifted: IntArray = (padded[self.variable] ^ self.switch).astype(np.int32)
        return lifted

    def after(self, later: Places) -> Places:
        """Both steps in one."""
        variable = np.append(later.variable, FIXED)[self.variable]
        switch = np.append(later.switch, 0)[self.variable] ^ self.switch
        return Places(variable, switch)


@dataclass(frozen=True, kw_only=True)
class Probing(MapSearch):
    """Roof duality with probing: a smaller bound and more proved labels, for two cuts a variable.

    Every variable that roof duality leaves undecided is given each of its labels in turn; what both
    cases have in common is fixed, and variables that are always equal, or always different, become
    one.  Models as those of `RoofDuality`: factors of at most two variables, and variables of at
    most two possible labels.

    Parameters
    ----------
    n_rounds
        How often at most all undecided variables are probed; the search ends before, once a round
        finds nothing.
    time_limit
        Seconds of wall time, respected to within two cuts for each example of a batch; ``None``: no
        limit.

    Examples
    --------
    >>> graph = FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)], 2)
    >>> potentials = Potentials(graph, [None, None, None, [0.0, 9.0]], 1.0 - np.eye(2))
    >>> RoofDuality().run(graph, potentials).upper_bound
    12.5
    >>> result = Probing().run(graph, potentials)
    >>> result.score, result.upper_bound, result.optimal
    (12.0, 12.0, True)
    """

    max_arity = 2
    n_rounds: int = 3
    time_limit: float | None = None

    def __post_init__(self) -> None:
        require_integer("n_rounds", self.n_rounds, at_least=1)
        require_number("time_limit", self.time_limit, above=0, or_none=True)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs, one after the other."""
        require_model(batch, potentials, progress)
        evidence = observed_labels(batch.graph, observed)
        end = np.inf if self.time_limit is None else time.monotonic() + self.time_limit
        labels, bounds, n_left, n_probes = [], [], 0, 0
        for graph, own, known in examples(batch, potentials, evidence):
            found = probe(graph, own, known, Effort(self.n_rounds, end))
            labels.append(found.labels)
            bounds.append(found.bound)
            n_left += found.graph.n_variables
            n_probes += found.n_probes
        joined = np.concatenate(labels)
        n_decided = batch.graph.n_variables - n_left
        return certified_result(
            joined,
            batch.scores(potentials, joined),
            np.array(bounds),
            how=f"{n_decided} of {batch.graph.n_variables} variables are decided or follow others",
            method="Probing",
            converged=time.monotonic() < end,
            n_iter=n_probes,
        )


class Effort(NamedTuple):
    """When to stop: rounds, a time of `time.monotonic`, and how little is found for the work.

    ``max_work`` is counted in variables and pairs, for each probe; the search also ends when the
    last `WINDOW` probes have decided less than ``min_yield`` variables each.
    """

    n_rounds: int
    end: float = np.inf
    max_work: float = np.inf
    min_yield: float = 0.0


class Probed(NamedTuple):
    """The best labelling and the bound, and a smaller model with the same best score.

    That is, the best score is the larger one of ``score`` and of ``constant`` plus the best score
    of ``graph`` and ``potentials``.
    """

    labels: IntArray
    score: float
    bound: float
    n_probes: int
    graph: FactorGraph
    potentials: Potentials
    constant: float
    places: Places
    first: IntArray
    second: IntArray

    def lifted(self, labels: IntArray) -> IntArray:
        """Labels of the given graph from those of the smaller one."""
        return np.where(self.places.lifted(labels) == 1, self.second, self.first).astype(np.int32)

    def lowered(self, labels: IntArray) -> IntArray:
        """Labels of the smaller graph: each variable as the first of those that have become it."""
        variables, where = np.unique(self.places.variable, return_index=True)
        where = where[variables != FIXED]
        ones = (labels == self.second)[where] & (self.first != self.second)[where]
        return (ones ^ self.places.switch[where]).astype(np.int32)


def probe(graph: FactorGraph, potentials: Potentials, observed: IntArray, effort: Effort) -> Probed:
    """Probe the variables of one graph."""
    pairs, first, second = _binary_pairs(graph, potentials, observed)
    search = _Search(pairs, effort)
    search.run()
    return Probed(
        labels=np.where(search.labels == 1, second, first).astype(np.int32),
        score=search.score,
        bound=search.bound,
        n_probes=search.n_probes,
        graph=search.graph,
        potentials=search.potentials,
        constant=search.model.constant,
        places=search.places,
        first=first,
        second=second,
    )


def _binary_pairs(
    graph: FactorGraph, potentials: Potentials, observed: IntArray
) -> tuple[_Pairs, IntArray, IntArray]:
    """The model over the two possible labels of each variable, and these labels."""
    cuts = cut_network(graph, "Probing")
    pairs, counts = binary_choices(graph, potentials, observed, cuts.factors)
    many = np.flatnonzero(counts > 2)
    if len(many):
        raise InvalidInputError(
            f"variable {many[0]} must have at most two possible labels for Probing, got "
            f"{counts[many[0]]}; MaxFlow and MaxProduct take more"
        )
    choices = np.stack([pairs.first, pairs.second], axis=1)
    unary = pairs.unary[graph.unary_offsets[:-1, None] + choices]
    slots = graph.structure.scope_offsets[cuts.factors]
    edges = np.stack([graph.structure.slot_variables[slots + k] for k in (0, 1)], axis=1)
    widths = graph.cardinalities[edges[:, 1]]
    entries = (
        graph.table_offsets[cuts.factors][:, None, None]
        + choices[edges[:, 0]][:, :, None] * widths[:, None, None]
        + choices[edges[:, 1]][:, None, :]
    )
    constants = potentials.factor_values[graph.table_offsets[:-1][graph.arities == 0]]
    model = _Pairs(float(constants.sum()), unary, edges, pairs.tables[entries])
    return model, pairs.first, pairs.second


# -- The search ----------------------------------------------------------------------------


class _Part(NamedTuple):
    """What roof duality says of a model: bound, a labelling, and 0, 1 or `HALF` by variable."""

    bound: float
    score: float
    labels: IntArray
    choices: IntArray


class _Search:
    """A model that shrinks, the best labelling so far, and the bound."""

    def __init__(self, model: _Pairs, effort: Effort) -> None:
        n = len(model.unary)
        self._effort = effort
        self._work = 0.0
        self._sizes = [n]
        self.labels = np.zeros(n, dtype=np.int32)
        self.score = -np.inf
        self.bound = np.inf
        self.n_probes = 0
        self.places = Places(np.arange(n, dtype=np.int32), np.zeros(n, dtype=np.int32))
        self._become(model)

    def _become(self, model: _Pairs) -> None:
        self.model = model
        self.graph = FactorGraph.from_edges(len(model.unary), model.edges, 2)
        self.potentials = Potentials.from_flat(
            self.graph, model.unary.ravel(), model.tables.ravel()
        )

    @property
    def is_closed(self) -> bool:
        """Whether the labelling is proved optimal."""
        return bool(meets_bound(np.array([self.score]), np.array([self.bound]))[0])

    @property
    def is_over(self) -> bool:
        """Whether the labelling is proved optimal, or the effort made."""
        effort, recent = self._effort, self._sizes[-1 - WINDOW :]
        few = effort.min_yield * WINDOW
        return (
            self.is_closed
            or time.monotonic() >= effort.end
            or self._work >= effort.max_work
            or (len(recent) > WINDOW and recent[0] - recent[-1] < few)
        )

    def run(self) -> None:
        """Roof duality, then probes of all variables until a round finds nothing."""
        part = self._solve(None)
        self.bound = max(self.score, part.bound)
        self._shrink(Places(*_decided(part.choices)))
        self._sizes = [len(self.model.unary)]
        for _ in range(self._effort.n_rounds):
            if not self._round():
                break

    def _round(self) -> bool:
        """Probe every variable that is left; whether that has made the model smaller."""
        before = len(self.model.unary)
        is_done = self.places.variable == FIXED
        for original in range(len(is_done)):
            if self.is_over:
                return False
            if not is_done[original]:
                variable = int(self.places.variable[original])
                is_done |= self.places.variable == variable
                self._probe(variable)
                self._work += len(self.model.unary) + len(self.model.edges)
                self._sizes.append(len(self.model.unary))
                is_done |= self.places.variable == FIXED
        return len(self.model.unary) < before

    def _probe(self, variable: int) -> None:
        parts = [self._solve({variable: label}) for label in (0, 1)]
        self.n_probes += 1
        bounds = [part.bound for part in parts]
        self.bound = max(self.score, min(self.bound, max(bounds)))
        worse = int(bounds[1] < bounds[0])
        if bounds[worse] <= self.score:  # nothing better has this label
            self._shrink(Places(*_decided(parts[1 - worse].choices)))
        else:
            self._shrink(_common(variable, parts[0].choices, parts[1].choices))

    def _solve(self, observed: dict[int, int] | None) -> _Part:
        """Roof duality of the model with a label given; its labelling may be the best so far."""
        try:
            result = RoofDuality().run(self.graph, self.potentials, observed)
        except ZeroWeightError:
            if observed is None:
                raise
            none = np.empty(0, dtype=np.int32)
            return _Part(-np.inf, -np.inf, none, none)
        assert result.beliefs is not None
        ones = result.beliefs.unary_matrix()[:, 1] if len(result.labels) else np.empty(0)
        choices = np.where(ones == 0.5, HALF, ones).astype(np.int32)
        constant = self.model.constant
        part = _Part(constant + result.upper_bound, constant + result.score, result.labels, choices)
        if part.score > self.score:
            self.score, self.labels = part.score, self.places.lifted(part.labels)
        return part

    def _shrink(self, places: Places) -> None:
        """Go over to the model of the variables that are left."""
        if (places.variable != np.arange(len(places.variable))).any():
            model, numbered = _contracted(self.model, places)
            self.places = self.places.after(numbered)
            self._become(model)


def _decided(choices: IntArray) -> tuple[IntArray, IntArray]:
    """Variables with a choice have this label, the others stay."""
    is_open = choices == HALF
    return np.where(is_open, np.arange(len(choices)), FIXED), np.where(is_open, 0, choices)


def _common(variable: int, when_0: IntArray, when_1: IntArray) -> Places:
    """What both labels of a variable imply: labels, and variables that are equal or different."""
    variables, labels = _decided(np.where(when_0 == when_1, when_0, HALF))
    is_tied = (when_0 != when_1) & (when_0 != HALF) & (when_1 != HALF)
    variables[is_tied] = variable
    return Places(variables, np.where(is_tied, when_0, labels))


def _contracted(model: _Pairs, places: Places) -> tuple[_Pairs, Places]:
    """The model of the variables that are left, and where the old ones are among them."""
    is_fixed = places.variable == FIXED
    kept = np.unique(places.variable[~is_fixed])
    numbers = np.where(is_fixed, FIXED, np.searchsorted(kept, places.variable))
    both = np.arange(2)
    # entry x of a new variable is entry x ^ switch of an old one; fixed ones have one entry
    labels = np.where(is_fixed[:, None], places.switch[:, None], both ^ places.switch[:, None])
    own = np.take_along_axis(model.unary, labels, axis=1)
    left, right = labels[model.edges[:, 0]], labels[model.edges[:, 1]]
    rows = np.arange(len(model.edges))[:, None, None]
    tables = model.tables[rows, left[:, :, None], right[:, None, :]]
    i, j = numbers[model.edges[:, 0]], numbers[model.edges[:, 1]]

    constant = model.constant + own[is_fixed, 0].sum() + tables[(i < 0) & (j < 0), 0, 0].sum()
    unary = np.zeros((len(kept), 2))
    np.add.at(unary, numbers[~is_fixed], own[~is_fixed])
    for ends, entries in (
        (np.where(j < 0, i, FIXED), tables[:, :, 0]),
        (np.where(i < 0, j, FIXED), tables[:, 0, :]),
        (np.where(i == j, i, FIXED), np.diagonal(tables, axis1=1, axis2=2)),
    ):
        np.add.at(unary, ends[ends >= 0], entries[ends >= 0])
    is_pair = (i >= 0) & (j >= 0) & (i != j)
    i, j, tables = i[is_pair], j[is_pair], tables[is_pair]
    tables = np.where((i > j)[:, None, None], tables.swapaxes(1, 2), tables)
    edges, of_edge = np.unique(
        np.stack([np.minimum(i, j), np.maximum(i, j)], axis=1), axis=0, return_inverse=True
    )
    sums = np.zeros((len(edges), 2, 2))
    np.add.at(sums, of_edge.ravel(), tables)
    return _Pairs(float(constant), unary, edges, sums), Places(numbers, places.switch)
