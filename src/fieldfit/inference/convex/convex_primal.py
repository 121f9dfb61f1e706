r"""Newton's method and majorise-minimise for a concave free energy; overlapping Schwarz subdomains.

Near beliefs ``b0`` every entropy term is replaced by a quadratic function, which under the linear
constraints of consistency is one solve of the reduced KKT system (`marginal_hessian`) and needs no
line search.

*Majorise-minimise.*  For positive ``b`` and ``b0``

    b log b <= b (log b0 - 1) + b^2 / b0,

with equality at ``b0``, a bound with twice the curvature.  Entries of its solution that are
positive are taken over; the others become

    min(eps(n), exp((th + lam - mu) / w - 1)),      eps(n) = 1 / (10 n)^2,

where ``n`` counts how often this has happened to the entry and the exponential is the belief that
the multipliers ``lam`` of the solve make in the dual.  So the bound is also a penalty on negative
entries, which grows.  Its steps halve the distance at best, but none is too long.

*Newton's method* has the true curvature ``w / b0``.  It begins as soon as steps leave all beliefs
of an example well above zero, and at once from an earlier result.  There, where its step ``d``
leaves little of a belief, the same step in ``log b`` is made, ``b = b0 exp(d / b0)``, which stays
positive and satisfies the condition of stationarity exactly; the sums that it spoils are part of
the next solve.  That goes on until a step is longer than the last one.

The algorithm of the reference is the first one alone.  There, negative entries become ``eps(n)``,
which is much too large for beliefs such as 1e-10; the exponential lets them fall faster (to `FALL`
of what they were in one iteration), and restores those that fell too far (`RISE`).  Large scores
start at a temperature above zero (annealing), as in `convex_dual`.  And convergence is not just a
small change: the dual value at the multipliers, an upper bound, must meet the value of the beliefs.

*Overlapping Schwarz.*  For large graphs the variables are divided into subdomains that overlap; a
solve moves the variables of one subdomain and the factors on them, with all other variables fixed.

Reference: Domke, thesis (2009), section 4.4, algorithms 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray, LongArray
from fieldfit._validation import require_integer
from fieldfit.entropy.counting_numbers import Convex, Entropy
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.ragged import rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Progress
from fieldfit.inference.convex.convex_dual import ANNEAL_FACTOR, MIN_TEMPERATURE
from fieldfit.inference.convex.convex_problem import ConvexProblem
from fieldfit.inference.convex.convex_solver import ConvexResult, ConvexSolver
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, MarginalHessian

__all__ = [
    "BOUND",
    "SMALLEST",
    "ConvexPrimal",
    "QuadraticStepResult",
    "Subdomain",
    "by_entry",
    "largest_by_example",
    "make_subdomains",
    "possible_entries",
    "quadratic_step",
]

# -- subdomains (overlapping Schwarz) -------------------------------------------------------------
# Some variables, the factors on them, and what those factors touch.  Subdomains are runs of a
# breadth-first order, so that they are connected, and overlap with their neighbours.  None has
# variables of two examples.


@dataclass(frozen=True, eq=False)
class Subdomain:
    """A problem with some variables fixed, and where its numbers lie in the whole one.

    ``entries`` are those of its beliefs in the vector of unary entries and table entries,
    ``messages`` those of its multipliers; ``free`` marks the variables that are not fixed.
    """

    problem: ConvexProblem
    example: int
    entries: LongArray
    messages: LongArray
    free: NDArray[np.bool_]


def make_subdomains(problem: ConvexProblem, block_size: int, overlap: int) -> list[Subdomain]:
    """Subdomains of about ``block_size`` variables, grown by ``overlap`` steps along factors."""
    from scipy.sparse.csgraph import breadth_first_order

    graph, batch = problem.graph, problem.batch
    touches = _incidence(graph)
    neighbours = (touches.T @ touches).tocsr()
    subdomains = []
    for example in range(batch.n_examples):
        begin, end = (int(v) for v in batch.variable_offsets[example : example + 2])
        own = neighbours[begin:end, begin:end]
        left = np.ones(end - begin, dtype=np.bool_)
        order: list[int] = []
        while left.any():  # one component after the other
            found = breadth_first_order(own, int(np.argmax(left)), return_predecessors=False)
            left[found] = False
            order.extend(found.tolist())
        for start in range(0, len(order), block_size):
            chosen = np.zeros(graph.n_variables)
            chosen[begin + np.array(order[start : start + block_size])] = 1.0
            for _ in range(overlap):
                chosen = ((neighbours @ chosen > 0.0) | (chosen > 0.0)).astype(np.float64)
            subdomains.append(_subdomain(problem, example, touches, chosen > 0.0))
    return subdomains


def _subdomain(
    problem: ConvexProblem, example: int, touches: Any, chosen: NDArray[np.bool_]
) -> Subdomain:
    graph = problem.graph
    factors = np.flatnonzero(touches @ chosen.astype(np.float64) > 0.0)
    slots = rows(graph.scope_offsets, factors)
    members = chosen.copy()
    members[graph.slot_variables[slots]] = True
    variables = np.flatnonzero(members)
    names = np.cumsum(members) - 1
    part = FactorGraph.from_flat(
        graph.cardinalities[variables], names[graph.slot_variables[slots]], graph.arities[factors]
    )
    unary, tables = rows(graph.unary_offsets, variables), rows(graph.table_offsets, factors)
    restricted = ConvexProblem(
        Batch.of([part]), problem.unary[unary], problem.tables[tables],
        problem.unary_weights[unary], problem.factor_weights[tables],
    )  # fmt: skip
    entries = np.concatenate([unary, int(graph.unary_offsets[-1]) + tables])
    return Subdomain(
        restricted, example, entries, rows(graph.message_offsets, slots), chosen[variables]
    )


def _incidence(graph: FactorGraph) -> Any:
    """Factors of arity two or more by variables."""
    from scipy.sparse import csr_array

    linking = np.flatnonzero(graph.arities[graph.slot_factors] >= 2)
    places = graph.slot_factors[linking], graph.slot_variables[linking]
    shape = (graph.n_factors, graph.n_variables)
    return csr_array((np.ones(len(linking)), places), shape=shape)


# -- one quadratic problem, and what its negative entries become ----------------------------------

#: Curvature of the quadratic problem as a multiple of ``w / b``: that of the bound, and Newton's,
#: which comes after a step of which Newton's would have taken away at most this fraction of any
#: belief above the least that counts (those below fall towards zero in many small steps, and steps
#: with the bound's curvature, which halve the error, would go on as long).
BOUND = 2.0
NEWTON = 1.0
MAX_RELATIVE_LOSS = 0.75
LEAST_RELEVANT_BELIEF = 1e-6
#: What Newton's step from an earlier result leaves less than this fraction of moves in ``log b``
#: instead, at most by this;
#: so does what becomes more than twice as large and stays below the third number.
LEAST_LEFT = 0.3
LARGEST_CHANGE = 9.0
TINY_BELIEF = 1e-6
#: Steps from an earlier result take one solve, and two after a change that was smaller than this:
#: what the first leaves, some 1e-8, is part of the right-hand side of the next step.
NEAR = 1e-3
#: Least belief of a possible configuration, and the fraction to which one may fall under the bound.
SMALLEST = 1e-100
FALL = 1e-4
#: Beliefs that the multipliers make this many times as large are restored under the bound.
RISE = 10.0


class QuadraticStepResult(NamedTuple):
    """New beliefs and multipliers, and the Hessian of the problem that was solved.

    ``losses``: the largest fraction that Newton's step would have taken away of any belief that
    counts, by example.
    """

    beliefs: FloatArray
    messages: FloatArray
    losses: FloatArray
    hessian: MarginalHessian


def quadratic_step(
    problem: ConvexProblem,
    old: FloatArray,
    counts: FloatArray,
    temperature: FloatArray,
    curvature: FloatArray,
    in_log: BoolArray,
    free: BoolArray | None,
    n_solves: int,
) -> QuadraticStepResult:
    """One quadratic problem, for examples whose steps are mended in ``log b`` or repaired.

    Counts of entries that had to be repaired go up.
    """
    possible = possible_entries(problem)
    new, messages, hessian = _solve_quadratic(
        problem, old, temperature, curvature, possible, free, n_solves
    )
    loss = np.divide(old - new, old, out=np.zeros(len(old)), where=old > LEAST_RELEVANT_BELIEF)
    losses = curvature * largest_by_example(problem, np.maximum(loss, 0.0))
    by_log = possible & by_entry(problem, in_log)
    _move_by_factors(old, new, by_log)
    if not in_log.all():
        dual = problem.dual(messages, temperature)
        made = np.concatenate([dual.unary, dual.factors])
        _repair(old, new, made, counts, possible & ~by_log)
    beliefs = np.where(possible, np.clip(new, SMALLEST, 1.0), 0.0)
    return QuadraticStepResult(beliefs, messages, losses, hessian)


def _move_by_factors(old: FloatArray, new: FloatArray, entries: BoolArray) -> None:
    """What Newton's step takes most of changes by ``exp`` of its relative change instead.

    That is the same step in ``log b``, which satisfies the condition of stationarity exactly.  So
    do tiny beliefs that grow, whose sums with others hardly change.
    """
    falling = np.flatnonzero(entries & (new < LEAST_LEFT * old))
    before = old[falling]
    left = np.exp(np.maximum(new[falling] / before - 1.0, -LARGEST_CHANGE))
    new[falling] = before * np.minimum(left, LEAST_LEFT)
    rising = np.flatnonzero(entries & (new > 2.0 * old) & (new < TINY_BELIEF))
    before = old[rising]
    grown = before * np.exp(np.minimum(new[rising] / before - 1.0, LARGEST_CHANGE))
    new[rising] = np.minimum(grown, TINY_BELIEF)


def _repair(
    old: FloatArray, new: FloatArray, made: FloatArray, counts: FloatArray, entries: BoolArray
) -> None:
    """What is negative under the bound falls; what fell too far is restored."""
    repaired = entries & (~(new > 0.0) | (made > RISE * new))
    ceiling = 1.0 / (10.0 * counts[repaired]) ** 2
    new[repaired] = np.maximum(
        np.minimum(ceiling, made[repaired]), np.maximum(new[repaired], FALL * old[repaired])
    )
    counts[repaired] += 1.0


def _solve_quadratic(
    problem: ConvexProblem,
    old: FloatArray,
    temperature: FloatArray,
    curvature: FloatArray,
    possible: BoolArray,
    free: BoolArray | None,
    n_solves: int,
) -> tuple[FloatArray, FloatArray, MarginalHessian]:
    """The solution of the quadratic problem, its multipliers, and its Hessian."""
    graph, cut = problem.graph, len(problem.unary)
    unary_weights, factor_weights = problem.tempered_weights(temperature)
    weights = np.concatenate([unary_weights, factor_weights])
    scores = np.concatenate([problem.unary, problem.tables])
    logs = np.log(old, out=np.zeros(len(old)), where=possible)
    gradient = np.where(possible, scores - weights * (logs + 1.0), 0.0)
    hessian = MarginalHessian(
        graph, old[:cut], old[cut:], problem.by_unary(curvature) * unary_weights,
        problem.by_table(curvature) * factor_weights, free=free,
        impossible=problem.impossible,
    )  # fmt: skip
    unary = _normalised(graph.unary_offsets, old[:cut], old[:cut] / unary_weights)
    if free is not None:
        fixed = np.repeat(~free, graph.cardinalities)
        unary[fixed] = old[:cut][fixed]
    factors = _normalised(graph.table_offsets, old[cut:], hessian.inverse_hessian_diagonal)
    step = hessian.solve(gradient[:cut], gradient[cut:], unary, factors, n_solves)
    proposed = np.concatenate([unary + step.unary, factors + step.factors])
    return proposed, step.multipliers, hessian


def possible_entries(problem: ConvexProblem) -> BoolArray:
    """Entries that are not excluded by a hard zero, unary ones first."""
    return np.concatenate([~problem.impossible, np.isfinite(problem.tables)])


def by_entry(problem: ConvexProblem, flags: BoolArray) -> BoolArray:
    """A flag of each example repeated for each of its entries."""
    return np.concatenate([problem.by_unary(flags), problem.by_table(flags)], dtype=np.bool_)


def largest_by_example(problem: ConvexProblem, values: FloatArray) -> FloatArray:
    """Largest value among the entries of each example."""
    cut = len(problem.unary)
    return problem.largest_by_example(values[:cut], values[cut:])


def _normalised(
    offsets: NDArray[np.int32], values: FloatArray, inverse_diagonal: FloatArray
) -> FloatArray:
    """Every vector moved to the sum one, in proportion to the inverse Hessian diagonal."""
    if len(offsets) == 1:
        return values.copy()
    total = np.add.reduceat(values, offsets[:-1])
    slope = np.add.reduceat(inverse_diagonal, offsets[:-1])
    rate = np.divide(1.0 - total, slope, out=np.zeros(len(total)), where=slope > 0.0)
    return np.asarray(values + inverse_diagonal * np.repeat(rate, np.diff(offsets)))


# -- the solver -----------------------------------------------------------------------------------

#: Scores that are larger than this many weights need annealing (see `convex_dual`); the temperature
#: falls when no belief moves by more than the second number.
MAX_SCORE = 30.0
STAGE_TOL = 0.1
#: Rounding of values, as a fraction of them.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class ConvexPrimal(ConvexSolver):
    """Successive quadratic bounds of a concave problem, and Newton's steps near its solution.

    Parameters
    ----------
    entropy
        An entropy with positive numbers for variables and factors, such as `Convex()`; a run may be
        given weights for every configuration instead.
    block_size
        Variables of a subdomain; ``None`` moves all variables at once.
    overlap
        By how many steps along factors subdomains grow beyond their own variables.
    tol
        Converged when no belief changes by more than this in an iteration, margins of factor
        beliefs and beliefs of variables agree to this, and so do the value and its upper bound by
        the dual.
    max_iter
        Most iterations (with subdomains: over all of them).

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.0, 1.0]] + [None] * 8, factors=np.eye(2))
    >>> result = ConvexPrimal().run(graph, potentials)
    >>> result.converged, result.beliefs.unary(8).round(3)
    (True, array([0.499, 0.501]))
    """

    entropy: Entropy = field(default_factory=Convex, kw_only=False)
    block_size: int | None = None
    overlap: int = 5
    tol: float = 1e-8
    max_iter: int = 500

    _work: ClassVar[str] = "iteration"
    _measure: ClassVar[str] = "largest change of a belief"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("block_size", self.block_size, at_least=1, or_none=True)
        require_integer("overlap", self.overlap, at_least=0)

    def _solve(
        self, problem: ConvexProblem, init: InferenceResult | None, progress: Progress | None
    ) -> ConvexResult:
        subdomains = None
        if self.block_size is not None and self.block_size < problem.graph.n_variables:
            subdomains = make_subdomains(problem, self.block_size, self.overlap)
        ascent = _Ascent(problem, subdomains, init)
        while ascent.active(self.tol).any() and ascent.n_iter < self.max_iter:
            ascent.iterate(self.tol)
            if progress is not None:
                progress(ascent.n_iter, float(ascent.changes.max(initial=0.0)))
            if ascent.has_failed:
                break
        return ConvexResult(
            beliefs=problem.beliefs(*ascent.normalised()),
            multipliers=ascent.messages,
            values=problem.dual(ascent.messages, np.zeros(problem.batch.n_examples)).values,
            converged=~ascent.active(self.tol),
            residual=float(ascent.changes.max(initial=0.0)),
            n_iter=ascent.n_iter,
            hessian=ascent.hessian,
        )


class _Ascent:
    """One run in progress; beliefs of variables and factors are one vector, cut at ``_cut``."""

    def __init__(
        self,
        problem: ConvexProblem,
        subdomains: list[Subdomain] | None,
        init: InferenceResult | None,
    ) -> None:
        graph, n_examples = problem.graph, problem.batch.n_examples
        self.problem = problem
        self.n_iter = 0
        self.messages = np.zeros(int(graph.message_offsets[-1]))
        self.changes = np.full(n_examples, np.inf)
        self.gaps = np.full(n_examples, np.inf)
        self.distances = np.full(n_examples, np.inf)
        self.has_failed = False
        #: That of the last step, if it was Newton's for all examples.
        self.hessian: MarginalHessian | None = None
        self._subdomains = subdomains
        # near an earlier result Newton's steps are taken until one is longer than the last
        self._trusts_newton = np.full(n_examples, init is not None)
        n_problems = n_examples if subdomains is None else len(subdomains)
        self._losses = np.full(n_problems, np.inf)
        self._cut = len(problem.unary)
        self._possible = possible_entries(problem)
        self._counts = np.ones(len(self._possible))
        ranges = problem.ranges()
        largest = max(
            problem.unary_weights.max(initial=0.0), problem.factor_weights.max(initial=0.0)
        )
        self._least_weights = problem.least_weights()
        self.temperature = np.zeros(n_examples)
        if init is None:
            self.temperature = np.where(ranges > MAX_SCORE * largest, ranges / MAX_SCORE, 0.0)
            # uniform over what is possible
            uniform = problem.dual(self.messages, 1e6 * (1.0 + ranges))
            self.beliefs = np.concatenate([uniform.unary, uniform.factors])
        else:
            if not init.beliefs.graph.has_structure_of(graph):
                raise InvalidInputError("init must be a result on a graph of this structure")
            sizes = np.repeat(np.diff(graph.table_offsets), np.diff(graph.table_offsets))
            factors = np.where(problem.is_linking_entry, init.beliefs.factor_values, 1.0 / sizes)
            self.beliefs = np.concatenate([init.beliefs.unary_values, factors])
        self.beliefs = np.where(self._possible, np.maximum(self.beliefs, SMALLEST), 0.0)

    def active(self, tol: float) -> BoolArray:
        """Examples that have not converged."""
        converged = (self.changes <= tol) & (self.gaps <= tol) & (self.distances <= tol)
        return np.asarray(~(converged & (self.temperature == 0.0)))

    def iterate(self, tol: float) -> None:
        """One quadratic problem of all examples at once, or of one subdomain after the other."""
        problem, cut, old = self.problem, self._cut, self.beliefs
        is_done = (self.temperature > 0.0) & (self.changes <= STAGE_TOL)
        lowered = np.where(is_done, ANNEAL_FACTOR * self.temperature, self.temperature)
        is_cold = lowered < MIN_TEMPERATURE * self._least_weights
        self.temperature = np.where(is_cold, 0.0, lowered)
        before = np.where(is_done, np.inf, self.changes)  # a stage begins with longer steps
        self.distances[is_done] = np.inf
        active = self.active(tol)
        self.n_iter += 1
        try:
            step = self._step_all if self._subdomains is None else self._step_subdomains
            new = step(active)
        except IndefiniteError:
            self.has_failed = True
            return
        self.changes = np.where(
            active, largest_by_example(problem, np.abs(new - old)), self.changes
        )
        gaps = problem.gaps(problem.residual(new[:cut], new[cut:]))
        self.gaps = np.where(active, gaps, self.gaps)
        self.beliefs = new
        if np.any(active & (self.changes <= tol) & (self.gaps <= tol)):
            bounds = problem.dual(self.messages, self.temperature).values
            distances = np.abs(bounds - problem.primal(new[:cut], new[cut:], self.temperature))
            self.distances = np.where(active, distances - ROUNDING * np.abs(bounds), self.distances)
        self._trusts_newton &= self.changes <= before

    def _curvature(self, losses: FloatArray, trusts_newton: BoolArray) -> FloatArray:
        return np.where(trusts_newton | (losses <= MAX_RELATIVE_LOSS), NEWTON, BOUND)

    def _n_solves(self) -> int:
        is_far = self._trusts_newton & (self.changes > NEAR)
        return 1 if is_far.all() else 2

    def _step_all(self, active: BoolArray) -> FloatArray:
        """New beliefs of active examples."""
        problem = self.problem
        counts = self._counts.copy()
        curvature = self._curvature(self._losses, self._trusts_newton)
        self.hessian = None  # makes room for the next
        found = quadratic_step(
            problem, self.beliefs, counts, self.temperature, curvature, self._trusts_newton, None,
            self._n_solves(),
        )  # fmt: skip
        if np.all(curvature == NEWTON) and not self.temperature.any():
            self.hessian = found.hessian
        self._losses = found.losses
        moving = by_entry(problem, active)
        self._counts = np.where(moving, counts, self._counts)
        self.messages = np.where(problem.by_message(active), found.messages, self.messages)
        return np.where(moving, found.beliefs, self.beliefs)

    def _step_subdomains(self, active: BoolArray) -> FloatArray:
        assert self._subdomains is not None
        new = self.beliefs.copy()
        for index, subdomain in enumerate(self._subdomains):
            if not active[subdomain.example]:
                continue
            part, cut = subdomain.problem, len(subdomain.problem.unary)
            old, counts = new[subdomain.entries], self._counts[subdomain.entries]
            example = [subdomain.example]
            curvature = self._curvature(self._losses[[index]], self._trusts_newton[example])
            found = quadratic_step(
                part, old, counts, self.temperature[example], curvature,
                self._trusts_newton[example], subdomain.free, self._n_solves(),
            )  # fmt: skip
            fixed = np.repeat(~subdomain.free, part.graph.cardinalities)
            found.beliefs[:cut][fixed] = old[:cut][fixed]
            new[subdomain.entries], self._counts[subdomain.entries] = found.beliefs, counts
            self.messages[subdomain.messages] = found.messages
            self._losses[[index]] = found.losses
        return new

    def normalised(self) -> tuple[FloatArray, FloatArray]:
        """The beliefs, each table scaled to the sum one."""
        parts = []
        for offsets, values in (
            (self.problem.graph.unary_offsets, self.beliefs[: self._cut]),
            (self.problem.graph.table_offsets, self.beliefs[self._cut :]),
        ):
            total = np.add.reduceat(values, offsets[:-1]) if len(offsets) > 1 else np.zeros(0)
            parts.append(values / np.repeat(total, np.diff(offsets)))
        return parts[0], parts[1]
