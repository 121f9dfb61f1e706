r"""Odd-cycle inequalities: cutting planes and branch and cut for binary pairs.

With ``x_i`` in {0, 1} and ``z_ij = [x_i != x_j]`` the score of a binary pairwise model is linear:

    s = constant + sum_i a_i x_i + sum_ij w_ij z_ij

Along a cycle ``C`` labels change an even number of times, hence for every ``F`` in ``C`` with an
odd number of pairs

    sum_{F} z_ij - sum_{C \ F} z_ij  <=  |F| - 1

Together with ``|x_i - x_j| <= z_ij <= min(x_i + x_j, 2 - x_i - x_j)``, the local polytope, these
inequalities are the cycle relaxation, which is exact for planar models without field.  There are
exponentially many; a violated one is a shortest path from a variable to its copy in a graph with
two nodes for each variable, where a pair joins nodes of the same copy at length ``z_ij`` and nodes
of different copies at length ``1 - z_ij``: a path shorter than 1 is a violated inequality.  Rounds
of a linear program and of this separation lower the bound; with the inequalities found, an integer
program needs few nodes.  Variables that roof duality decides are fixed beforehand.

References: Barahona and Mahjoub, "On the cut polytope", Mathematical Programming 36 (1986); Sontag
and Jaakkola, "New outer bounds on the marginal polytope", NIPS 2007; Bonato, Juenger, Reinelt and
Rinaldi, "Lifting and separation procedures for the cut polytope", Mathematical Programming 146
(2014).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, ByteArray, FloatArray, IntArray, LongArray
from fieldfit._validation import require_flag, require_integer, require_number
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, observed_labels
from fieldfit.graph.ragged import offsets_of, reduce_rows
from fieldfit.graph.result import MapResult
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, certified_result, examples, meets_bound
from fieldfit.inference.map.graph_cut.cut_network import cut_network
from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality
from fieldfit.inference.map.local_search import search_labels, soft_model
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.heap import sift_down, sift_up

__all__ = [
    "CutModel",
    "CycleCuts",
    "CycleRelaxation",
    "branch_and_cut",
    "cut_model",
    "cycle_relaxation",
    "reduced_model",
]

# -- The model as a maximum cut ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CutModel:
    """Linear score of free variables and of pairs of them whose labels differ."""

    variables: LongArray  # free variables, by their number in the graph
    first: IntArray  # label that ``x_i = 0`` stands for, of all variables of the graph
    second: IntArray
    constant: float
    slopes: FloatArray  # a_i, of the free variables
    ends: LongArray  # (pairs, 2), by place among the free variables
    weights: FloatArray  # w_ij

    @property
    def n_free(self) -> int:
        return len(self.variables)

    def labels(self, x: FloatArray) -> IntArray:
        """Labels of the whole graph from a rounded solution."""
        labels = self.first.copy()
        upper = self.variables[x[: self.n_free] > 0.5]
        labels[upper] = self.second[upper]
        return labels


def cut_model(
    graph: FactorGraph,
    unary: FloatArray,
    tables: FloatArray,
    first: IntArray,
    second: IntArray,
) -> CutModel:
    """A model of pairs with labels ``first[i]`` and ``second[i]``; equal ones are no choice.

    Potentials are finite.
    """
    start = graph.unary_offsets[:-1]
    slopes = unary[start + second] - unary[start + first]
    constants = tables[graph.table_offsets[:-1][graph.arities == 0]]
    constant = float(unary[start + first].sum() + constants.sum())
    factors = np.flatnonzero(graph.arities == 2)
    slots = graph.scope_offsets[factors]
    i, j = graph.slot_variables[slots], graph.slot_variables[slots + 1]
    rows = graph.cardinalities[j].astype(np.int64)
    entry = graph.table_offsets[factors].astype(np.int64)
    t00, t01, t10, t11 = (
        tables[entry + yi * rows + yj]
        for yi, yj in (
            (first[i], first[j]),
            (first[i], second[j]),
            (second[i], first[j]),
            (second[i], second[j]),
        )
    )
    weight = 0.5 * ((t10 - t00) + (t01 - t11))
    constant += float(t00.sum())
    np.add.at(slopes, i, t10 - t00 - weight)
    np.add.at(slopes, j, t01 - t00 - weight)
    is_free = first != second
    place = np.cumsum(is_free) - 1
    both = is_free[i] & is_free[j]
    ends = np.sort(np.stack([place[i[both]], place[j[both]]], axis=1), axis=1)
    keys, of_pair = np.unique(ends[:, 0] * graph.n_variables + ends[:, 1], return_inverse=True)
    weights = np.bincount(of_pair, weight[both], minlength=len(keys))
    kept = weights != 0.0
    ends = np.stack(np.divmod(keys[kept], graph.n_variables), axis=1).astype(np.int64)
    variables = np.flatnonzero(is_free)
    return CutModel(variables, first, second, constant, slopes[variables], ends, weights[kept])


# -- Separation ----------------------------------------------------------------------------

#: An inequality must be violated by this much to be of use.
VIOLATION = 1e-3
#: Nodes that the search for a cycle looks at: cycles of use are short.
MAX_NODES = 2000
#: Passes of a round, and what is added to pairs of cycles that were found.
N_PASSES, DETOUR = 2, 0.05


class Neighbours(NamedTuple):
    """For each free variable its pairs, as offsets, neighbours and numbers of pairs."""

    offsets: LongArray
    heads: LongArray
    pairs: LongArray


def neighbour_lists(n_free: int, ends: LongArray) -> Neighbours:
    tails = ends.T.ravel()
    order = np.argsort(tails, kind="stable")
    return Neighbours(
        offsets_of(np.bincount(tails, minlength=n_free)),
        ends[:, ::-1].T.ravel()[order],
        np.tile(np.arange(len(ends)), 2)[order],
    )


@kernel
def shortest_odd_cycles(
    neighbours: Neighbours,
    z: FloatArray,
    extra: FloatArray,
    below: float,
    max_nodes: int,
    sizes: LongArray,
) -> tuple[LongArray, ByteArray]:
    """For each variable the shortest odd cycle through it, if shorter than ``below``.

    ``extra`` is added to the lengths of pairs, whether they are in ``F`` or not.  Returns the pairs
    of all cycles one after the other, and whether each is in ``F``; ``sizes`` receives the number
    of pairs of each variable's cycle, 0 if there is none or if it passes some variable twice (then
    a shorter one goes through that).  Dijkstra's algorithm (1959), which gives up after
    ``max_nodes`` nodes; of paths of equal length it prefers those of few pairs.
    """
    n = len(sizes)
    distance = np.full(2 * n, np.inf)
    ties = np.zeros(2 * n, dtype=np.uint64)
    heap, places = np.empty(2 * n, dtype=np.int64), np.full(2 * n, -1, dtype=np.int64)
    via, is_odd = np.empty(2 * n, dtype=np.int64), np.zeros(2 * n, dtype=np.uint8)
    before = np.empty(2 * n, dtype=np.int64)
    touched = np.empty(2 * n, dtype=np.int64)
    seen = np.full(n, -1, dtype=np.int64)
    pairs, odd = np.empty(16, dtype=np.int64), np.empty(16, dtype=np.uint8)
    n_found = 0
    for source in range(n):
        n_touched, n_heap = 1, 1
        touched[0] = heap[0] = source
        places[source], distance[source] = 0, 0.0
        while n_heap > 0:
            node = heap[0]
            n_heap -= 1
            if n_heap > 0:
                heap[0] = heap[n_heap]
                places[heap[0]] = 0
                sift_down(heap, places, distance, ties, 0, n_heap)
            places[node] = -2
            if node == source + n or n_touched > max_nodes:
                break
            u, copy = node % n, node // n
            for arc in range(neighbours.offsets[u], neighbours.offsets[u + 1]):
                length = z[neighbours.pairs[arc]]
                for crossing in range(2):
                    step = 1.0 - length if crossing else length
                    step += extra[neighbours.pairs[arc]]
                    new = neighbours.heads[arc] + n * (copy ^ crossing)
                    reached = distance[node] + step
                    if reached >= below or places[new] == -2 or reached >= distance[new]:
                        continue
                    if places[new] == -1:
                        touched[n_touched] = new
                        n_touched += 1
                        heap[n_heap] = new
                        places[new] = n_heap
                        n_heap += 1
                    distance[new] = reached
                    ties[new] = ties[node] + np.uint64(1)  # few pairs before many
                    before[new], via[new] = node, neighbours.pairs[arc]
                    is_odd[new] = crossing
                    sift_up(heap, places, distance, ties, places[new])
        sizes[source] = 0
        if places[source + n] == -2:
            node, n_cycle = source + n, 0
            while node != source and n_cycle >= 0:
                if n_found + n_cycle == len(pairs):
                    pairs = np.append(pairs, np.empty_like(pairs))
                    odd = np.append(odd, np.empty_like(odd))
                pairs[n_found + n_cycle], odd[n_found + n_cycle] = via[node], is_odd[node]
                n_cycle = -1 if seen[node % n] == source else n_cycle + 1
                seen[node % n] = source
                node = before[node]
            if n_cycle > 0:
                sizes[source] = n_cycle
                n_found += n_cycle
        for k in range(n_touched):
            distance[touched[k]] = np.inf
            places[touched[k]] = -1
    return pairs[:n_found], odd[:n_found]


def odd_cycles(
    neighbours: Neighbours, z: FloatArray, known: set[bytes]
) -> tuple[LongArray, LongArray, FloatArray, FloatArray]:
    """Violated inequalities that are not yet known: row, pair and coefficient of each entry; right.

    Their keys are added to ``known``.  In every pass the pairs of cycles found before are longer,
    so that others come up.
    """
    new: dict[bytes, LongArray] = {}
    extra = np.zeros(len(z))
    sizes = np.zeros(len(neighbours.offsets) - 1, dtype=np.int64)
    for _ in range(N_PASSES):
        pairs, is_odd = shortest_odd_cycles(neighbours, z, extra, 1.0 - VIOLATION, MAX_NODES, sizes)
        if len(pairs) == 0:
            break
        cycles = np.split(2 * pairs + is_odd, np.cumsum(sizes[sizes > 0])[:-1])
        new |= {key: cycle for cycle in cycles if (key := np.sort(cycle).tobytes()) not in known}
        extra[pairs] += DETOUR
    known |= new.keys()
    lengths = np.array([len(cycle) for cycle in new.values()], dtype=np.int64)
    flat = np.concatenate([np.zeros(0, dtype=np.int64), *new.values()])
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    odd = (flat % 2).astype(np.float64)
    right = np.bincount(rows, odd, minlength=len(lengths)).astype(np.float64) - 1.0
    return rows, flat // 2, 2.0 * odd - 1.0, right


# -- The linear program and its bound ------------------------------------------------------

#: An inequality leaves the program when it is this far from being tight.
SLACK = 0.2
#: HiGHS's smallest tolerance, for coefficients scaled to a largest size of one.
TOLERANCE = 1e-10


@dataclass(eq=False)
class CycleRelaxation:
    """Rounds of cutting planes on one model: the smallest bound so far, and its solution.

    ``matrix`` and ``right`` are the inequalities over ``x`` and ``z``, from which branch and cut
    can start.  ``is_complete`` says that no cycle is violated any more.
    """

    model: CutModel
    bound: float
    solution: FloatArray
    matrix: Any
    right: FloatArray
    n_rounds: int = 0
    n_cuts: int = 0
    work: float = 0.0  # rows times simplex iterations
    is_complete: bool = False

    @property
    def objective(self) -> FloatArray:
        return np.concatenate([self.model.slopes, self.model.weights])

    def labels(self) -> IntArray:
        """Rounded labels."""
        return self.model.labels(self.solution)


def cycle_relaxation(
    model: CutModel,
    max_rounds: int,
    *,
    max_work: float = np.inf,
    deadline: float = np.inf,
    target: float = -np.inf,
) -> CycleRelaxation:
    """Cutting planes until none is violated, the bound is at ``target``, or the limits are reached.

    ``max_work`` limits the sum of rows times simplex iterations; ``deadline`` is a value of
    `time.monotonic`.
    """
    state = _start(model)
    if model.n_free == 0:
        state.is_complete = True
        return state
    neighbours = neighbour_lists(model.n_free, model.ends)
    known: set[bytes] = set()
    n_base = len(state.right)
    while (
        state.n_rounds < max_rounds
        and state.work < max_work
        and state.bound > target
        and time.monotonic() < deadline
    ):
        z = np.clip(state.solution[model.n_free :], 0.0, 1.0)
        rows, pairs, values, right = odd_cycles(neighbours, z, known)
        if len(right) == 0 and state.n_rounds > 0:
            state.is_complete = True
            break
        _add_rows(state, rows, model.n_free + pairs, values, right)
        if not _solve(state, deadline):
            break
        state.n_rounds += 1
        slack = state.right - state.matrix @ state.solution
        _keep_rows(state, (np.arange(len(slack)) < n_base) | (slack < SLACK))
    return state


def _start(model: CutModel) -> CycleRelaxation:
    """The local polytope, where every pair has the two inequalities that its sign makes matter.

    Its solution is not asked for: all beliefs one half are an optimum without the slopes, and their
    violated cycles are the frustrated ones.
    """
    from scipy.sparse import coo_array

    n, n_pairs = model.n_free, len(model.weights)
    prefers_change = model.weights > 0.0
    i, j = model.ends.T
    z = n + np.arange(n_pairs)
    change = np.where(prefers_change, 1.0, -1.0)
    values = [
        *(-change, -np.ones(n_pairs), change),  # z <= x_i + x_j     or   x_i - x_j <= z
        *(change, np.ones(n_pairs), change),  # z <= 2 - x_i - x_j or   x_j - x_i <= z
    ]
    upper, lower = np.arange(n_pairs), n_pairs + np.arange(n_pairs)
    matrix = coo_array(
        (
            np.concatenate(values),
            (np.concatenate([upper] * 3 + [lower] * 3), np.concatenate([i, j, z] * 2)),
        ),
        shape=(2 * n_pairs, n + n_pairs),
    ).tocsr()
    right = np.concatenate([np.zeros(n_pairs), np.where(prefers_change, 2.0, 0.0)])
    halves = np.concatenate([np.full(n, 0.5), prefers_change.astype(np.float64)])
    largest = np.maximum(np.concatenate([model.slopes, model.weights]), 0.0).sum()
    return CycleRelaxation(model, model.constant + float(largest), halves, matrix, right)


def _add_rows(
    state: CycleRelaxation,
    rows: LongArray,
    columns: LongArray,
    values: FloatArray,
    right: FloatArray,
) -> None:
    from scipy.sparse import coo_array, vstack

    added = coo_array((values, (rows, columns)), shape=(len(right), state.matrix.shape[1]))
    state.matrix = vstack([state.matrix, added]).tocsr()
    state.right = np.concatenate([state.right, right])
    state.n_cuts += len(right)


def _keep_rows(state: CycleRelaxation, kept: BoolArray) -> None:
    state.matrix, state.right = state.matrix[kept], state.right[kept]


def _solve(state: CycleRelaxation, deadline: float) -> bool:
    """Solve the linear program; False if the time was over.

    The bound is computed from dual variables ``d >= 0`` by a formula that holds for any of them:
    ``d . right + sum max(0, objective - matrix' d)``.
    """
    from scipy.optimize import linprog

    objective = state.objective
    scale = max(float(np.abs(objective).max(initial=0.0)), 1e-300)
    limit = {} if deadline == np.inf else {"time_limit": max(1e-3, deadline - time.monotonic())}
    found = linprog(
        -objective / scale,
        A_ub=state.matrix,
        b_ub=state.right,
        bounds=(0.0, 1.0),
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }
        | limit,
    )
    if found.status != 0:
        return False
    state.work += float(len(state.right)) * float(found.nit)
    duals = scale * np.maximum(-found.ineqlin.marginals, 0.0)
    left = np.maximum(objective - state.matrix.T @ duals, 0.0)
    bound = state.model.constant + float(duals @ state.right) + float(left.sum())
    state.bound = min(state.bound, bound)
    state.solution = found.x
    return True


# -- Branch and cut ------------------------------------------------------------------------

#: The largest coefficient is scaled to this size: HiGHS ends at an absolute gap of 1e-6.
LARGEST = 1e6


def branch_and_cut(
    state: CycleRelaxation, time_limit: float | None = None, node_limit: int | None = None
) -> tuple[IntArray | None, float, bool]:
    """Labels (if any), bound, and whether the labels are optimal, by an integer program.

    Only ``x`` has to be integral, ``z`` then is; the inequalities found so far are part of it.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    model, objective = state.model, state.objective
    if model.n_free == 0:
        return model.first.copy(), model.constant, True
    scale = LARGEST / max(float(np.abs(objective).max()), 1e-300)
    options: dict[str, float] = {"mip_rel_gap": 0.0}
    options |= {} if time_limit is None else {"time_limit": time_limit}
    options |= {} if node_limit is None else {"node_limit": node_limit}
    found = milp(
        -scale * objective,
        integrality=np.arange(len(objective)) < model.n_free,
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(state.matrix, -np.inf, state.right),
        options=options,
    )
    bound = state.bound
    if found.mip_dual_bound is not None:
        bound = min(bound, model.constant - found.mip_dual_bound / scale)
    labels = None if found.x is None else model.labels(found.x)
    return labels, bound, found.status == 0 and labels is not None


# -- The search ----------------------------------------------------------------------------

#: Work (rows times simplex iterations) that takes some seconds: three for cubic lattices, ten for
#: random graphs, whose cycles are long.
MAX_WORK = 5e7


def reduced_model(
    graph: FactorGraph, potentials: Potentials, observed: IntArray
) -> tuple[CutModel, IntArray]:
    """The model of what roof duality leaves undecided, and evidence with what it decides.

    Some best labelling has all persistent labels, so that a bound for the rest is a bound.  Hard
    zeros are large costs: no labelling loses by that.
    """
    roof = RoofDuality().run(graph, potentials, observed)
    assert roof.beliefs is not None  # roof duality has beliefs
    halves = roof.beliefs.unary_values == 0.5
    is_open = reduce_rows(np.maximum, halves.astype(np.float64), graph.unary_offsets) > 0.0
    evidence: IntArray = np.where(is_open, observed, roof.labels).astype(np.int32)
    soft = soft_model(graph, potentials, evidence)
    only = np.where(is_open, 0, evidence).astype(np.int32)
    second = np.where(soft.movable, 1, only).astype(np.int32)
    return cut_model(graph, soft.unary, soft.tables, only, second), evidence


@dataclass(frozen=True, kw_only=True)
class CycleCuts(MapSearch):
    """The cycle relaxation of binary pairs, by cutting planes: a bound, and rounded labels.

    Factors have at most two variables, and variables two labels.  For some thousand pairs.

    Parameters
    ----------
    max_iter
        Rounds of cutting planes for each example.
    branch
        Whether an integer program goes on with the inequalities found until the labelling is proved
        optimal, which may take long.
    time_limit
        Seconds for each example, ``None`` for no limit.

    Examples
    --------
    >>> graph = FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)], 2)
    >>> potentials = Potentials(graph, [None, None, None, [0.0, 9.0]], 1.0 - np.eye(2))
    >>> result = CycleCuts().run(graph, potentials)
    >>> result.score, round(result.upper_bound, 9), result.optimal
    (12.0, 12.0, True)
    """

    max_arity = 2

    max_iter: int = field(default=100, kw_only=False)
    branch: bool = False
    time_limit: float | None = None

    def __post_init__(self) -> None:
        require_integer("max_iter", self.max_iter, at_least=1)
        require_flag("branch", self.branch)
        require_number("time_limit", self.time_limit, above=0, or_none=True, finite=False)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """Example by example; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        require_binary_pairs(batch.graph, "CycleCuts")
        evidence = observed_labels(batch.graph, observed)
        labels = np.empty(batch.graph.n_variables, dtype=np.int32)
        bounds, proved = np.empty(batch.n_examples), np.zeros(batch.n_examples, dtype=np.bool_)
        n_rounds, n_cuts = 0, 0
        for m, (graph, own, known) in enumerate(examples(batch, potentials, evidence)):
            begin, end = batch.variable_offsets[m : m + 2]
            limit = np.inf if self.time_limit is None else time.monotonic() + self.time_limit
            model, decided = reduced_model(graph, own, known)
            state = cycle_relaxation(model, self.max_iter, deadline=limit)
            labels[begin:end], bounds[m], proved[m] = self._labels(
                graph, own, decided, state, limit
            )
            n_rounds, n_cuts = n_rounds + state.n_rounds, n_cuts + state.n_cuts
        return certified_result(
            labels,
            batch.scores(potentials, labels),
            bounds,
            how=f"{n_cuts} inequalities of odd cycles in {n_rounds} rounds",
            method="CycleCuts",
            is_proved=proved,
            n_iter=n_rounds,
        )

    def _labels(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        decided: IntArray,
        state: CycleRelaxation,
        deadline: float,
    ) -> tuple[IntArray, float, bool]:
        rounded = search_labels(
            graph, potentials, decided, starts=[state.labels()], n_starts=1, n_rounds=1
        )[0]
        left = deadline - time.monotonic()
        score = potentials.score(rounded)
        is_met = bool(meets_bound(np.array([score]), np.array([state.bound]))[0])
        if not self.branch or is_met or left <= 0.0:
            return rounded, state.bound, False
        labels, bound, is_proved = branch_and_cut(state, None if left == np.inf else left)
        if labels is None or (not is_proved and potentials.score(labels) < score):
            labels = rounded
        return labels, bound, is_proved


def require_binary_pairs(graph: FactorGraph, method: str) -> None:
    """Refuse factors of more than two variables and variables of more than two labels."""
    many = np.flatnonzero(graph.cardinalities > 2)
    if len(many):
        raise InvalidInputError(
            f"variable {many[0]} must have at most two labels for {method}, got "
            f"{graph.cardinalities[many[0]]}; LinearProgram takes more"
        )
    cut_network(graph, method)  # refuses larger factors
