r"""Sum-product sweeps over pairs of binary variables: messages as log-ratios, one number each.

With two labels a message matters only by ``d = (m(1) - m(0)) / c`` and a belief by
``b = log tau(1) - log tau(0)``, so that the update of `message_arrays` becomes

    r_ai = b_j - d_aj                                            for a = {i, j}
    d_ai = log (E(0,1) + E(1,1) exp r_ai) / (1 + E(1,0) exp r_ai)
    b_i  = (th_i(1) - th_i(0) + sum_a c_a d_ai) / chat_i

with ``E = exp((th_a - th_a(0,0)) / c_a)``, the first index that of ``j``.  Messages stand in the
order of a sequential plan, those into one variable side by side.  When a belief changes, ``r`` is
written to where the messages in the other direction will read it.  A sweep then reads its arrays
from front to back, in SIMD; a sweep over a part of the messages has copies of their numbers.

What is left out: hard zeros, evidence, and tables whose entries differ by so much that a sum could
overflow.  `BinarySweeps.of` refuses those, and the general kernels take them.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import carray, prange

from fieldfit._parallel import kernel_threads, n_kernel_threads
from fieldfit._typing import BoolArray, FloatArray, Index, IntArray
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.message_arrays import ABOVE_TOLERANCE, Model, Plan, State
from fieldfit.inference.messages.message_sweeps import SMALLEST_CHUNK, Sweeps, chunk_bound
from fieldfit.inference.messages.pair_update import BLOCK
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, stack_scratch, store

__all__ = ["BinarySweeps"]

#: Least ratio of two entries of a table, exp(-200).
LEAST_ENTRY = 1.4e-87
#: Beyond this ``r`` does not matter: one of two terms is below exp(-250) of the other.  It leaves
#: ``E exp r``, at most exp(650), in range.
LARGEST_RATIO = 450.0
#: Nanoseconds of a message, for the choice of the number of threads.
MESSAGE_COST = 5
#: Two labels, as kernels take them.
BINARY = (0, 0)


class BinaryPlan(NamedTuple):
    """Messages by position; variables, in the order of the plan, are called by their rank."""

    variables: IntArray  # variable of each rank
    levels: IntArray  # ranks, cut into levels
    starts: IntArray  # messages into rank n are at starts[n] .. starts[n + 1]
    reverses: IntArray  # position of the message in the other direction, or one beyond the last
    origins: IntArray  # rank in the plan of which this one is a part


class BinaryModel(NamedTuple):
    """Numbers of one run; tables by position, so that each message reads its own."""

    entry_01: FloatArray  # E(0,1)
    entry_10: FloatArray  # E(1,0)
    entry_11: FloatArray  # E(1,1)
    weights: FloatArray  # c_a, by position
    unary: FloatArray  # th_i(1) - th_i(0), by rank
    inverse_totals: FloatArray  # 1 / chat_i, by rank


class BinaryState(NamedTuple):
    """What a sweep changes."""

    message: FloatArray  # d, by position
    incoming: FloatArray  # r, by position; one more for messages that are not part of the plan
    belief: FloatArray  # b, by rank
    change: FloatArray  # of the last update, as a change of m, by position


class Sweep(NamedTuple):
    """All that a sweep needs."""

    plan: BinaryPlan
    model: BinaryModel
    state: BinaryState


# -- sweeps -------------------------------------------------------------------------------


@kernel(fastmath=SAFE_FASTMATH)
def update_messages(
    k: tuple[int, ...],
    begin: Index,
    end: Index,
    model: BinaryModel,
    state: BinaryState,
    damping: float,
    tol: float,
) -> int:
    """New messages at positions ``begin`` to ``end``, in blocks; returns flags."""
    # stack memory cannot be that of an array, which lets the first loop run in SIMD
    values = carray(stack_scratch(k, 16), (BLOCK,))
    flags = 0
    for block in range(begin, end, BLOCK):
        count = min(BLOCK, end - block)
        for m in range(count):
            ratio = load(state.incoming, block + m)
            x = fast_exp(min(max(ratio, -LARGEST_RATIO), LARGEST_RATIO))
            sum_0 = 1.0 + load(model.entry_10, block + m) * x
            sum_1 = load(model.entry_01, block + m) + load(model.entry_11, block + m) * x
            store(values, m, fast_log(sum_1 / sum_0))
        for m in range(count):
            value, old = load(values, m), load(state.message, block + m)
            change = load(model.weights, block + m) * abs(value - old)
            store(state.change, block + m, change)
            store(state.message, block + m, value + damping * (old - value))
            flags |= ABOVE_TOLERANCE if change > tol else 0
    return flags


@kernel(fastmath=SAFE_FASTMATH)
def update_beliefs(
    plan: BinaryPlan, begin: Index, end: Index, model: BinaryModel, state: BinaryState
) -> None:
    """Beliefs of ranks ``begin`` to ``end``, and what the messages that they send will read."""
    for rank in range(begin, end):
        first, stop = load(plan.starts, rank), load(plan.starts, rank + 1)
        total = load(model.unary, rank)
        for position in range(first, stop):
            total += load(model.weights, position) * load(state.message, position)
        total *= load(model.inverse_totals, rank)
        store(state.belief, rank, total)
        for position in range(first, stop):
            value = total - load(state.message, position)
            store(state.incoming, load(plan.reverses, position), value)


@kernel
def run_binary_sweeps(
    k: tuple[int, ...],
    plan: BinaryPlan,
    model: BinaryModel,
    state: BinaryState,
    damping: float,
    tol: float,
    max_sweeps: int,
) -> tuple[int, int]:
    """Sweep until no message changes by more than ``tol``; number of sweeps and flags."""
    flags = ABOVE_TOLERANCE
    n_sweeps = 0
    while n_sweeps < max_sweeps and flags == ABOVE_TOLERANCE:
        flags = 0
        for level in range(len(plan.levels) - 1):
            begin, end = plan.levels[level], plan.levels[level + 1]
            flags |= update_messages(
                k, plan.starts[begin], plan.starts[end], model, state, damping, tol
            )
            update_beliefs(plan, begin, end, model, state)
        n_sweeps += 1
    return n_sweeps, flags


@kernel(parallel=True)
def run_binary_sweeps_in_threads(
    k: tuple[int, ...],
    plan: BinaryPlan,
    model: BinaryModel,
    state: BinaryState,
    damping: float,
    tol: float,
    max_sweeps: int,
    n_chunks: int,
) -> tuple[int, int]:
    """`run_binary_sweeps` with ``n_chunks`` chunks for each level that is large enough."""
    chunk_flags = np.zeros(n_chunks, dtype=np.int64)
    flags = ABOVE_TOLERANCE
    n_sweeps = 0
    while n_sweeps < max_sweeps and flags == ABOVE_TOLERANCE:
        flags = 0
        chunk_flags[:] = 0
        for level in range(len(plan.levels) - 1):
            begin, end = plan.levels[level], plan.levels[level + 1]
            first, last = plan.starts[begin], plan.starts[end]
            if (last - first) * MESSAGE_COST < SMALLEST_CHUNK * n_chunks:
                flags |= update_messages(k, first, last, model, state, damping, tol)
                update_beliefs(plan, begin, end, model, state)
                continue
            for chunk in prange(n_chunks):
                chunk_flags[chunk] |= update_messages(
                    k,
                    chunk_bound(first, last, chunk, n_chunks),
                    chunk_bound(first, last, chunk + 1, n_chunks),
                    model,
                    state,
                    damping,
                    tol,
                )
            # this loop also keeps Numba from making one of the two around it, as it does with
            # neighbours of equal length: beliefs need the messages of other chunks
            for chunk in range(n_chunks):
                flags |= chunk_flags[chunk]
            for chunk in prange(n_chunks):
                update_beliefs(
                    plan,
                    chunk_bound(begin, end, chunk, n_chunks),
                    chunk_bound(begin, end, chunk + 1, n_chunks),
                    model,
                    state,
                )
        n_sweeps += 1
    return n_sweeps, flags


# -- parts of a sweep -----------------------------------------------------------------------


def empty_sweep(n_ranks: int, n_positions: int, n_levels: int) -> Sweep:
    """Arrays for so many variables, messages and levels.

    In Python: a signal that arrives while Numba makes named tuples within a tuple ends the
    process (``tests/numeric/test_kernels.py``).
    """
    return Sweep(
        BinaryPlan(
            np.empty(n_ranks, dtype=np.int32),
            np.zeros(n_levels + 1, dtype=np.int32),
            np.zeros(n_ranks + 1, dtype=np.int32),
            np.empty(n_positions, dtype=np.int32),
            np.empty(n_ranks, dtype=np.int32),
        ),
        BinaryModel(
            np.empty(n_positions),
            np.empty(n_positions),
            np.empty(n_positions),
            np.empty(n_positions),
            np.empty(n_ranks),
            np.empty(n_ranks),
        ),
        BinaryState(
            np.empty(n_positions),
            np.empty(n_positions + 1),
            np.empty(n_ranks),
            np.zeros(n_positions),
        ),
    )


@kernel
def size_of_part(plan: BinaryPlan, active: BoolArray) -> tuple[int, int]:
    """Numbers of active variables and of messages into them."""
    n_ranks, n_positions = 0, 0
    for rank in range(len(plan.variables)):
        if active[load(plan.variables, rank)]:
            n_ranks += 1
            n_positions += load(plan.starts, rank + 1) - load(plan.starts, rank)
    return n_ranks, n_positions


@kernel
def fill_part(whole: Sweep, active: BoolArray, part: Sweep) -> None:
    """The messages into active variables, with copies of their numbers; levels are kept."""
    plan, model, state = whole
    own, numbers, ratios = part
    n_positions = len(own.reverses)
    places = np.full(len(plan.reverses), n_positions, dtype=np.int32)
    n, p = 0, 0
    for level in range(len(plan.levels) - 1):
        for rank in range(plan.levels[level], plan.levels[level + 1]):
            variable = load(plan.variables, rank)
            if not active[variable]:
                continue
            store(own.variables, n, variable)
            store(own.origins, n, np.int32(rank))
            store(numbers.unary, n, load(model.unary, rank))
            store(numbers.inverse_totals, n, load(model.inverse_totals, rank))
            store(ratios.belief, n, load(state.belief, rank))
            for position in range(load(plan.starts, rank), load(plan.starts, rank + 1)):
                store(places, position, np.int32(p))
                store(own.reverses, p, load(plan.reverses, position))
                store(numbers.entry_01, p, load(model.entry_01, position))
                store(numbers.entry_10, p, load(model.entry_10, position))
                store(numbers.entry_11, p, load(model.entry_11, position))
                store(numbers.weights, p, load(model.weights, position))
                store(ratios.message, p, load(state.message, position))
                store(ratios.incoming, p, load(state.incoming, position))
                p += 1
            n += 1
            store(own.starts, n, np.int32(p))
        own.levels[level + 1] = n
    for p in range(n_positions):
        store(own.reverses, p, load(places, load(own.reverses, p)))


@kernel
def put_back(whole: Sweep, part: Sweep) -> None:
    """Messages and beliefs of a part into the arrays that it was taken from."""
    p = 0
    for n in range(len(part.plan.origins)):
        rank = load(part.plan.origins, n)
        belief = load(part.state.belief, n)
        store(whole.state.belief, rank, belief)
        for position in range(load(whole.plan.starts, rank), load(whole.plan.starts, rank + 1)):
            message = load(part.state.message, p)
            store(whole.state.message, position, message)
            store(whole.state.incoming, load(whole.plan.reverses, position), belief - message)
            p += 1


@kernel
def largest_changes(sweep: Sweep, n_variables: int) -> FloatArray:
    """Largest change of a message into each variable in the last sweep."""
    largest = np.zeros(n_variables)
    for rank in range(len(sweep.plan.variables)):
        value = 0.0
        for position in range(load(sweep.plan.starts, rank), load(sweep.plan.starts, rank + 1)):
            value = max(value, load(sweep.state.change, position))
        store(largest, load(sweep.plan.variables, rank), value)
    return largest


# -- from the general arrays, and back --------------------------------------------------------


@kernel
def fill_arrays(
    structure: Structure, given: Plan, model: Model, state: State, sweep: Sweep
) -> bool:
    """Potentials and messages as ratios; whether they suit, see above."""
    plan, own, ratios = sweep
    suits = True
    for rank in range(len(plan.variables)):
        variable = load(plan.variables, rank)
        start = load(structure.unary_offsets, variable)
        value = load(model.unary, start + 1) - load(model.unary, start)
        suits &= abs(value) < np.inf
        store(own.unary, rank, value)
        store(own.inverse_totals, rank, 1.0 / load(model.variable_total, variable))
    for position in range(len(given.pair_target)):
        signed = load(given.pair_factor, position)
        factor = signed if signed >= 0 else ~signed
        table = load(structure.table_offsets, factor)
        first, last = load(model.exp_table, table), load(model.exp_table, table + 3)
        right, left = load(model.exp_table, table + 1), load(model.exp_table, table + 2)
        suits &= min(min(first, last), min(left, right)) >= LEAST_ENTRY
        inverse = 1.0 / first
        store(own.entry_01, position, inverse * (right if signed >= 0 else left))
        store(own.entry_10, position, inverse * (left if signed >= 0 else right))
        store(own.entry_11, position, inverse * last)
        weight = load(model.factor_weight, factor)
        store(own.weights, position, weight)
        target = load(given.pair_target, position)
        value = (load(state.message, target + 1) - load(state.message, target)) / weight
        suits &= abs(value) < np.inf and weight > 0.0
        store(ratios.message, position, value)
    return suits


@kernel
def write_messages(structure: Structure, given: Plan, sweep: Sweep, state: State) -> None:
    """Messages and log-beliefs with maximum 0."""
    for position in range(len(given.pair_target)):
        target = load(given.pair_target, position)
        value = load(sweep.model.weights, position) * load(sweep.state.message, position)
        store(state.message, target, min(0.0, -value))
        store(state.message, target + 1, min(0.0, value))
    for rank in range(len(sweep.plan.variables)):
        start = load(structure.unary_offsets, load(sweep.plan.variables, rank))
        value = load(sweep.state.belief, rank)
        store(state.log_belief, start, min(0.0, -value))
        store(state.log_belief, start + 1, min(0.0, value))


class BinarySweeps(Sweeps):
    """Sweeps over pairs of binary variables, each of which comes once in a sweep."""

    def __init__(
        self, graph: FactorGraph, plan: Plan, everything: Sweep, state: State, n_jobs: int | None
    ) -> None:
        self.everything = everything
        self._graph = graph
        self._plan = plan
        self._state = state
        self._n_jobs = n_jobs

    @classmethod
    def of(
        cls, graph: FactorGraph, plan: Plan, model: Model, state: State, n_jobs: int | None
    ) -> BinarySweeps | None:
        """Sweeps over a sequential plan by colours, or ``None`` if the model does not suit."""
        binary = _binary_plan(graph, plan)
        if binary is None:
            return None
        n_ranks = len(binary.variables)
        empty = empty_sweep(n_ranks, len(binary.reverses), 0)
        everything = empty._replace(plan=binary)
        if not fill_arrays(graph.structure, plan, model, state, everything):
            return None
        update_beliefs(binary, 0, n_ranks, everything.model, everything.state)
        return cls(graph, plan, everything, state, n_jobs)

    def restricted(self, active: BoolArray) -> Sweep:
        plan = self.everything.plan
        part = empty_sweep(*size_of_part(plan, active), len(plan.levels) - 1)
        fill_part(self.everything, active, part)
        return part

    def n_messages(self, part: Sweep) -> int:
        return len(part.plan.reverses)

    def n_active(self, part: Sweep) -> int:
        return len(part.plan.variables)

    def run(
        self, part: Sweep, damping: float, tol: float, max_sweeps: int
    ) -> tuple[int, int, FloatArray]:
        if n_kernel_threads(self._n_jobs) == 1:
            n_sweeps, flags = run_binary_sweeps(BINARY, *part, damping, tol, max_sweeps)
        else:
            with kernel_threads(self._n_jobs) as n_chunks:
                n_sweeps, flags = run_binary_sweeps_in_threads(
                    BINARY, *part, damping, tol, max_sweeps, n_chunks
                )
        if part is not self.everything:
            put_back(self.everything, part)
        return int(n_sweeps), int(flags), largest_changes(part, self._graph.n_variables)

    def write_back(self) -> None:
        write_messages(self._graph.structure, self._plan, self.everything, self._state)


_PLANS: WeakKeyDictionary[FactorGraph, BinaryPlan | None] = WeakKeyDictionary()


def _binary_plan(graph: FactorGraph, plan: Plan) -> BinaryPlan | None:
    """The sequential plan of a graph of binary pairs, by position; remembered with the graph."""
    if graph not in _PLANS:
        suits = np.all(graph.cardinalities == 2) and graph.arities.max(initial=0) == 2
        _PLANS[graph] = _by_position(graph, plan) if suits else None
    return _PLANS[graph]


def _by_position(graph: FactorGraph, plan: Plan) -> BinaryPlan:
    starts = np.concatenate([[0], np.cumsum(graph.degrees[plan.variables])]).astype(np.int32)
    n_positions = len(plan.pair_target)
    position_of = np.empty(int(graph.message_offsets[-1]), dtype=np.int32)
    position_of[plan.pair_target] = np.arange(n_positions, dtype=np.int32)
    # the two messages of a pair are neighbours in `State.message`
    other = np.where(plan.pair_factor >= 0, plan.pair_target - 2, plan.pair_target + 2)
    ranks = np.arange(len(plan.variables), dtype=np.int32)
    return BinaryPlan(plan.variables, plan.variable_offsets, starts, position_of[other], ranks)
