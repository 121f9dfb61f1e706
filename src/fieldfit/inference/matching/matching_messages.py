"""Belief propagation for matchings (Bethe permanent), and Sinkhorn-like sweeps for b-matchings.

Both find the point of a matching polytope that maximises ``<W, t> + H(t)``, with the entropy of
`fieldfit.inference.matching.matching_polytope`.

*One partner each.*  With ``rho`` the counting number of nodes and ``x_ie`` the log-odds form of the
message of node ``i`` about its edge ``e`` (the belief of the node is the softmax of ``x_i``),
stationary points satisfy

    L_ie = log sum over other edges k of i of exp x_ik   (+ 1 inside, if i may stay alone)
    x_ie = W_e + (1 - rho) L_ie - rho L_je               for the other end j of e

because the odds of an edge, ``x_ie - L_ie``, are the same for both ends: ``W_e - rho (L_ie +
L_je)``.  For ``rho = 1`` this is belief propagation.

*Several partners each* (``rho = 0``, independent edges).  The maximum is

    t_ij = 1 / (1 + exp(a_i + b_j - W_ij))

where the dual variable ``a_i`` of a row makes ``sum_j t_ij`` its capacity, and ``b_j`` likewise.
If capacities need not be filled, dual variables are at least 0, and 0 where capacity is left.  A
sweep sets all rows, then all columns: it maximises the dual, which is smooth and concave, over one
side given the other.  With one partner each and probabilities instead of odds this would be
Sinkhorn's scaling.

References: Huang and Jebara, "Approximating the permanent with belief propagation" (2009);
Vontobel, "The Bethe permanent of a nonnegative matrix", IEEE Transactions on Information Theory 59
(2013), who proves convergence for ``rho = 1`` and perfect bipartite matchings; Chertkov and
Yedidia, "Approximating the permanent with fractional belief propagation", JMLR 14 (2013); Sinkhorn
and Knopp, "Concerning nonnegative matrices and doubly stochastic matrices", Pacific Journal of
Mathematics 21 (1967).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray, LongArray
from fieldfit.inference.matching.matching_newton import newton_marginals
from fieldfit.inference.matching.matching_polytope import MatchingPolytope
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp, fast_log

__all__ = [
    "CapacityBeliefs",
    "MatchingBeliefs",
    "MatchingPoint",
    "capacity_messages",
    "has_newton",
    "matching_messages",
    "matching_point",
    "rounded_to_polytope",
    "run_capacity_sweeps",
    "run_matching_sweeps",
]

# -- Messages of nodes about their edges ---------------------------------------------------

#: Messages beyond this diverge: the maximum is at a vertex, where odds are infinite.
DIVERGED = 1e6
#: The smallest normal number: logarithms of less are not taken.
TINY = 2.2250738585072014e-308


@kernel
def _others(
    incident: LongArray, x: FloatArray, alone: bool, scratch: FloatArray, others: FloatArray
) -> float:
    """``L`` of all edges of a node, and the logarithm of the whole sum.

    Sums of what comes before and after an edge have only positive terms, so nothing cancels when
    one edge is nearly certain.  Loops with exponentials and logarithms do nothing else, so that
    they become vector instructions.
    """
    n = incident.size
    largest = 0.0 if alone else -np.inf
    terms, before = scratch[0][:n], scratch[1][:n]
    for k in range(n):
        terms[k] = x[incident[k]]
        largest = max(largest, terms[k])
    if largest == -np.inf:
        for place in incident:
            others[place] = -np.inf
        return -np.inf
    for k in range(n):
        terms[k] = fast_exp(terms[k] - largest)
    total = fast_exp(-largest) if alone else 0.0
    for k in range(n):
        before[k] = total
        total += terms[k]
    after = 0.0
    for k in range(n - 1, -1, -1):
        before[k] += after
        after += terms[k]
    for k in range(n):
        terms[k] = fast_log(max(before[k], TINY))
    for k in range(n):
        others[incident[k]] = largest + terms[k] if before[k] > 0.0 else -np.inf
    return largest + np.log(total)


@kernel
def run_matching_sweeps(
    offsets: LongArray,
    incident: LongArray,
    may_be_alone: NDArray[np.bool_],
    weights: FloatArray,
    rho: float,
    damping: float,
    tol: float,
    max_iter: int,
    x: FloatArray,
    others: FloatArray,
    totals: FloatArray,
    scratch: FloatArray,
) -> tuple[int, float]:
    """Sweeps over the nodes until no ``x`` changes by more than ``tol``.

    Places are ends of edges: end ``s`` of edge ``e`` is ``s * n_edges + e``; ``incident[offsets[i]
    : offsets[i + 1]]`` are those of node ``i``.  ``x`` and ``others`` (that is ``L``) are changed;
    ``totals`` gets the logarithm of each node's sum.  ``scratch`` has two rows of the largest
    degree.  Returns the number of sweeps and the last change.
    """
    n_edges = weights.size
    n_nodes = offsets.size - 1
    for node in range(n_nodes):
        mine = incident[offsets[node] : offsets[node + 1]]
        totals[node] = _others(mine, x, may_be_alone[node], scratch, others)
    change = np.inf
    for sweep in range(max_iter):
        change = 0.0
        for node in range(n_nodes):
            mine = incident[offsets[node] : offsets[node + 1]]
            for place in mine:
                edge = place if place < n_edges else place - n_edges
                other_end = place + n_edges if place < n_edges else place - n_edges
                new = weights[edge] + (1.0 - rho) * others[place] - rho * others[other_end]
                new = damping * x[place] + (1.0 - damping) * new
                if not abs(new) < DIVERGED:  # or not a number
                    return sweep + 1, np.inf
                moved = abs(new - x[place])
                if moved > change:
                    change = moved
                x[place] = new
            totals[node] = _others(mine, x, may_be_alone[node], scratch, others)
        if change <= tol:
            return sweep + 1, change
    return max_iter, change


#: Where messages oscillate: sweeps are tried with these dampings in turn.
DAMPINGS = (0.0, 0.5, 0.9)


@dataclass(frozen=True)
class MatchingBeliefs:
    """A point of the polytope (see `MatchingPolytope.point`), and how the sweeps ended.

    ``state`` is where later sweeps may start.  Where messages diverge there is no point (``NaN``).
    """

    point: FloatArray
    converged: bool
    n_iter: int
    residual: float
    state: FloatArray


def matching_messages(
    polytope: MatchingPolytope,
    weights: FloatArray,
    rho: float,
    tol: float = 1e-10,
    max_iter: int = 1000,
    init: FloatArray | None = None,
) -> MatchingBeliefs:
    """Beliefs with weights of edges, one for each edge of the polytope.

    Both ends of an edge agree about it, and beliefs of a node add up to one, to about ``tol``.
    """
    n = polytope.n_edges
    offsets, incident = polytope.incident()
    alone = np.zeros(polytope.n_nodes, dtype=np.bool_)
    alone[polytope.alone] = True
    start = np.concatenate([weights, weights]) if init is None else init
    x = start.copy()
    others, totals = np.empty(2 * n), np.empty(polytope.n_nodes)
    scratch = np.empty((2, int(np.diff(offsets).max(initial=0))))
    n_iter, residual = 0, np.inf
    for damping in DAMPINGS:
        done, residual = run_matching_sweeps(
            offsets, incident, alone, np.ascontiguousarray(weights), float(rho), damping, tol,
            max_iter, x, others, totals, scratch,
        )  # fmt: skip
        n_iter += int(done)
        if residual <= tol:
            break
        if not np.isfinite(residual):
            x[:] = start
    if not np.isfinite(residual):
        nothing = np.full(2 * n + len(polytope.alone), np.nan)
        return MatchingBeliefs(nothing, False, n_iter, np.inf, start)
    first = polytope.ends[:, 0]
    t = np.exp(x[:n] - totals[first])
    rest = np.exp(others[:n] - totals[first])
    point = np.concatenate([t, rest, np.exp(-totals[polytope.alone])])
    return MatchingBeliefs(point, bool(residual <= tol), n_iter, float(residual), x)


# -- Capacities: dual variables of rows and columns ----------------------------------------

#: A dual variable is found when a step of Newton's method moves it by less than this.
DUAL_TOL = 1e-13
MAX_NEWTON = 60


@kernel
def _expected_degree(x: FloatArray, count: int, dual: float) -> tuple[float, float]:
    """Sum of ``1 / (1 + exp(dual - x))``, and minus its derivative."""
    total = slope = 0.0
    for k in range(count):
        # exponentials of negative numbers only, so that nothing overflows
        small = math.exp(-abs(x[k] - dual))
        larger = 1.0 / (1.0 + small)
        total += larger if x[k] >= dual else 1.0 - larger
        slope += larger * (1.0 - larger)
    return total, slope


@kernel
def _dual_variable(x: FloatArray, count: int, capacity: int, is_free: bool, start: float) -> float:
    """At which the expected degree is the capacity (``is_free``: at most, and none below 0)."""
    if count == 0 or (is_free and capacity >= count):
        return 0.0
    if is_free and _expected_degree(x, count, 0.0)[0] <= capacity:
        return 0.0
    least, most = x[0], x[0]
    for k in range(1, count):
        least, most = min(least, x[k]), max(most, x[k])
    # were all entries equal, this would be the answer; the root lies between the extremes
    shift = math.log(capacity / (count - capacity))
    low, high = least - shift - 1.0, most - shift + 1.0
    dual = min(max(start, low), high)
    for _ in range(MAX_NEWTON):
        total, slope = _expected_degree(x, count, dual)
        if total > capacity:
            low = dual
        else:
            high = dual
        trial = dual + (total - capacity) / slope if slope > 0.0 else low - 1.0
        if not low < trial < high:
            trial = 0.5 * (low + high)
        moved = abs(trial - dual)
        dual = trial
        if moved <= DUAL_TOL * max(1.0, abs(dual)):
            break
    return max(dual, 0.0) if is_free else dual


@kernel
def run_capacity_sweeps(
    weights: FloatArray,
    allowed: BoolArray,
    row_capacities: LongArray,
    column_capacities: LongArray,
    is_free: bool,
    tol: float,
    max_iter: int,
    rows: FloatArray,
    columns: FloatArray,
    scratch: FloatArray,
) -> tuple[int, float]:
    """Sweeps until degrees of rows are right to ``tol``; changes the duals ``rows``, ``columns``.

    Nodes with a capacity of 0, or of all their edges if that must be filled, must have no edges
    (they have no dual variable).  ``scratch`` has room for the edges of a node.  Returns the number
    of sweeps and the largest error of a row's degree; those of columns are right after a sweep.
    """
    n, m = weights.shape
    residual = np.inf
    for n_iter in range(max_iter):
        residual = 0.0
        for i in range(n):
            count = 0
            for j in range(m):
                if allowed[i, j]:
                    scratch[count] = weights[i, j] - columns[j]
                    count += 1
            total = _expected_degree(scratch, count, rows[i])[0]
            excess = total - row_capacities[i]
            if count > 0 and (not is_free or rows[i] > 0.0 or excess > 0.0):
                residual = max(residual, abs(excess))
            rows[i] = _dual_variable(scratch, count, row_capacities[i], is_free, rows[i])
        if n_iter > 0 and residual <= tol:
            return n_iter, residual
        for j in range(m):
            count = 0
            for i in range(n):
                if allowed[i, j]:
                    scratch[count] = weights[i, j] - rows[i]
                    count += 1
            columns[j] = _dual_variable(scratch, count, column_capacities[j], is_free, columns[j])
    return max_iter, residual


@dataclass(frozen=True)
class CapacityBeliefs:
    """A point of the polytope, ``None`` if sweeps did not converge; ``state`` are the duals."""

    point: FloatArray | None
    n_iter: int
    residual: float
    state: FloatArray


def capacity_messages(
    polytope: MatchingPolytope,
    weights: FloatArray,
    tol: float = 1e-11,
    max_iter: int = 2000,
    init: FloatArray | None = None,
) -> CapacityBeliefs:
    """The maximum of ``<W, t> + H(t)`` with independent edges, of a polytope with capacities.

    Dual variables diverge where some edges are in every matching, or in none, for a reason that no
    node shows by itself; then there is no point.
    """
    assert polytope.capacities is not None
    n, m = polytope.shape
    allowed = polytope.matrix(np.ones(polytope.n_edges)) > 0.0
    is_free = not polytope.perfect
    rows, columns = (capacity.copy() for capacity in polytope.capacities)
    forced = _fix_forced_edges(allowed, rows, columns, is_free)
    duals = np.zeros(n + m) if init is None else init.copy()
    n_iter, residual = run_capacity_sweeps(
        polytope.matrix(weights), allowed, rows, columns, is_free, tol, max_iter,
        duals[:n], duals[n:], np.empty(max(n, m, 1)),
    )  # fmt: skip
    if not residual <= tol:
        return CapacityBeliefs(None, int(n_iter), float(residual), np.zeros(n + m))
    first, second = polytope.edges.T
    # t and 1 - t by themselves, so that small ones keep their digits
    surplus = weights - duals[first] - duals[n + second]
    is_open = allowed[first, second]
    is_forced = forced[first, second].astype(np.float64)
    t = np.where(is_open, np.exp(-np.logaddexp(0.0, -surplus)), is_forced)
    rest = np.where(is_open, np.exp(-np.logaddexp(0.0, surplus)), 1.0 - is_forced)
    return CapacityBeliefs(np.concatenate([t, rest]), int(n_iter), float(residual), duals)


def _fix_forced_edges(
    allowed: BoolArray, rows: LongArray, columns: LongArray, is_free: bool
) -> BoolArray:
    """Take out of ``allowed`` (and the capacities) edges that a node alone decides.

    Returns those that must be used.
    """
    forced = np.zeros_like(allowed)
    while True:
        closed = allowed & ((rows == 0)[:, None] | (columns == 0)[None, :])
        full = np.zeros_like(allowed)
        if not is_free:
            full = allowed & (
                (rows == allowed.sum(axis=1))[:, None] | (columns == allowed.sum(axis=0))[None, :]
            )
        full &= ~closed
        if not closed.any() and not full.any():
            return forced
        forced |= full
        rows -= full.sum(axis=1)
        columns -= full.sum(axis=0)
        allowed &= ~(closed | full)


# -- The point, by whatever finds it -------------------------------------------------------

#: Sweeps with each damping before Newton's method takes over, and if that was too early.
SWEEPS = (30, 300)


@dataclass(frozen=True)
class MatchingPoint:
    """The point, ``None`` if it was not found, and where later messages may start."""

    point: FloatArray | None
    state: FloatArray | None = None


def has_newton(polytope: MatchingPolytope) -> bool:
    """Whether Newton's method applies: bipartite graphs, one partner each.

    On general graphs messages ignore the odd-set (blossom) constraints of the matching polytope, so
    that their points may lie outside of it.
    """
    return polytope.kind == "bipartite" and polytope.capacities is None


def matching_point(
    polytope: MatchingPolytope,
    weights: FloatArray,
    rho: float,
    tol: float = 1e-10,
    init: FloatArray | None = None,
) -> MatchingPoint:
    """By dual variables with capacities, by messages of nodes and Newton's method otherwise.

    Where neither converges, a point of the polytope close to where messages are is given instead:
    the callers certify points by best matchings, whatever they are.
    """
    if polytope.capacities is not None:
        found = capacity_messages(polytope, weights, init=init)
        return MatchingPoint(found.point, None if found.point is None else found.state)
    if not has_newton(polytope):
        return MatchingPoint(None)
    for n_sweeps in SWEEPS:
        beliefs = matching_messages(polytope, weights, rho, tol, n_sweeps, init=init)
        if not np.isfinite(beliefs.residual):
            return MatchingPoint(None)
        if beliefs.converged:
            return MatchingPoint(beliefs.point, beliefs.state)
        init = beliefs.state
        # messages of nearly certain matchings converge slowly
        point = newton_marginals(polytope, weights, rho, beliefs.point, tol)
        if point is not None:
            return MatchingPoint(point, init)
    return MatchingPoint(rounded_to_polytope(polytope, beliefs.point), init)


def rounded_to_polytope(polytope: MatchingPolytope, point: FloatArray) -> FloatArray | None:
    """A point whose rows and columns add up to one, close to a given one.

    Rows and columns are scaled down to at most one, and what is missing is spread over all edges
    (Altschuler, Weed and Rigollet, "Near-linear time approximation algorithms for optimal transport
    via Sinkhorn iteration", NIPS 2017).  ``None`` if nodes may be alone or edges are missing.
    """
    if len(polytope.alone) or not polytope.is_complete:
        return None
    t = polytope.matrix(point[: polytope.n_edges])
    t /= np.maximum(t.sum(axis=1, keepdims=True), 1.0)
    t /= np.maximum(t.sum(axis=0), 1.0)
    rows, columns = 1.0 - t.sum(axis=1), 1.0 - t.sum(axis=0)
    missing = rows.sum()
    if missing > 0.0:
        t += np.outer(np.maximum(rows, 0.0), np.maximum(columns, 0.0)) / missing
    return polytope.point(polytope.values(t))
