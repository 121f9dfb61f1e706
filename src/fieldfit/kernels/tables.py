r"""Sums and maxima over the clusters of a clique tree, without ever storing a cluster table.

The cluster of clique ``c`` is the sum of the log tables that belong to it: unary potentials,
factors, messages of its children and, on the way down, its own message.  Its variables are
split into those eliminated here and the *separator* that it shares with its parent.

Upward (``L`` is the logarithm of a sum of exponentials, or the maximum):

    m_c(y_S) = L_{y_C \ y_S} [sum_a th_a(y_a) + sum_{children d} m_d(y_{S_d})] - shift_c

where ``shift_c`` makes the largest entry 0, so that digits do not drown in long trees; the sum of
all shifts is the log-partition.  Downward, with ``b_c`` the marginal of the cluster,

    b_c = exp(sum_a th_a + sum_d m_d + n_c - shift_c),    n_d = log sum_{C \ S_d} b_c - m_d

where ``n_d`` takes the place of ``m_d`` in memory.  Beliefs are at most 1, so they are summed in the
linear domain, and what underflows there is below 1e-300 of the total weight.

A cluster is visited in *rows* of at most ``MAX_LANES`` consecutive configurations, *lanes*, built in a
buffer that stays in the cache.  The axes run from slow to fast as

    separator (outer) | eliminated (outer) | eliminated (lanes) | separator (lanes)

so that all rows of one *group* reduce lane by lane to one piece of the message.  Every table is
addressed by an offset that moves with the rows and an index for each lane; tables may therefore
have any order of axes, and evidence is an offset.  Memory is the messages and little else.

Reference: Jensen, Lauritzen and Olesen, "Bayesian updating in causal probabilistic networks by
local computations", Computational Statistics Quarterly 4 (1990); Koller and Friedman,
"Probabilistic Graphical Models" (2009), chapter 10.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.simd import fast_exp, fast_log

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]

#: Long enough for SIMD and to hide the cost of starting a row, short enough that a block of rows
#: (`BLOCK_ENTRIES` doubles, 64 kB) stays in the second-level cache.
MAX_LANES = 256
MIN_LANES = 16
BLOCK_ENTRIES = 8192
MAX_BLOCK_ROWS = BLOCK_ENTRIES // MIN_LANES

UNARY, FACTOR, MESSAGE = 0, 1, 2
SPREAD, CONTIGUOUS, SCATTERED = 0, 1, 2


class CliqueTree(NamedTuple):
    """Cliques so that a clique comes before its parent, and what belongs to each.

    ``variables`` lists the eliminated variables of each clique and then its separator, both in
    elimination order.  Messages are laid out in that order, the last variable fastest.
    """

    offsets: LongArray  # of variables, by clique
    variables: IntArray
    n_eliminated: IntArray
    parents: IntArray  # -1 at a root
    factor_offsets: LongArray
    factors: IntArray
    child_offsets: LongArray
    children: IntArray
    message_offsets: LongArray


class LogTables(NamedTuple):
    """Where the terms of a cluster come from: the three kinds of table."""

    unary: FloatArray
    factors: FloatArray
    messages: FloatArray


class Workspace(NamedTuple):
    """Buffers for the largest clique; see `fieldfit.inference.elimination.Plan`."""

    axes: IntArray  # axis of each variable in the present cluster
    sizes: LongArray  # labels of each axis
    digits: LongArray  # position of the present row on the outer axes
    outer: LongArray  # outer axes, slow to fast
    kinds: IntArray  # of each table
    lane_kinds: IntArray
    offsets: LongArray
    strides: LongArray  # tables x axes
    steps: LongArray  # tables x outer axes: change of the offset when this axis advances
    lane_indices: LongArray  # tables x lanes
    carries: IntArray  # outer axis that advances after each row of the block
    block: FloatArray  # rows x lanes
    maxima: FloatArray  # lanes
    sums: FloatArray  # twice the lanes


class Layout(NamedTuple):
    """How the rows of one cluster are cut."""

    n_tables: int
    n_lanes: int
    n_separator_lanes: int
    n_outer: int
    n_rows: int
    rows_per_group: int


# -- describing one cluster -----------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def _describe(
    c: int, tree: Any, structure: Any, labels: IntArray, with_own: bool, work: Any
) -> int:
    """Kinds, offsets and strides of the tables of clique ``c``; their number."""
    begin, end = tree.offsets[c], tree.offsets[c + 1]
    n_axes = end - begin
    n_eliminated = tree.n_eliminated[c]
    for k in range(n_axes):
        i = tree.variables[begin + k]
        work.axes[i] = k
        work.sizes[k] = structure.cardinalities[i]
    n_factors = tree.factor_offsets[c + 1] - tree.factor_offsets[c]
    n_children = tree.child_offsets[c + 1] - tree.child_offsets[c]
    n_tables = n_eliminated + n_factors + n_children + (1 if with_own else 0)
    work.strides[: n_tables * n_axes] = 0
    t = 0
    for k in range(n_eliminated):
        work.kinds[t] = UNARY
        work.offsets[t] = structure.unary_offsets[tree.variables[begin + k]]
        work.strides[t * n_axes + k] = 1
        t += 1
    for position in range(tree.factor_offsets[c], tree.factor_offsets[c + 1]):
        factor = tree.factors[position]
        work.kinds[t] = FACTOR
        offset = np.int64(structure.table_offsets[factor])
        stride = 1
        first = structure.scope_offsets[factor]
        for slot in range(structure.scope_offsets[factor + 1] - 1, first - 1, -1):
            i = structure.slot_variables[slot]
            if labels[i] >= 0:
                offset += stride * labels[i]
            else:
                work.strides[t * n_axes + work.axes[i]] = stride
            stride *= structure.cardinalities[i]
        work.offsets[t] = offset
        t += 1
    for position in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
        child = tree.children[position]
        _describe_message(child, tree, structure, work, t, n_axes)
        t += 1
    if with_own:
        _describe_message(c, tree, structure, work, t, n_axes)
    return n_tables


@njit(cache=True, nogil=True, error_model="numpy")
def _describe_message(
    sender: int, tree: Any, structure: Any, work: Any, t: int, n_axes: int
) -> None:
    work.kinds[t] = MESSAGE
    work.offsets[t] = tree.message_offsets[sender]
    stride = 1
    first = tree.offsets[sender] + tree.n_eliminated[sender]
    for position in range(tree.offsets[sender + 1] - 1, first - 1, -1):
        i = tree.variables[position]
        work.strides[t * n_axes + work.axes[i]] = stride
        stride *= structure.cardinalities[i]


@njit(cache=True, nogil=True, error_model="numpy")
def lane_split(sizes: LongArray, n_axes: int, n_eliminated: int) -> tuple[int, int, int, int]:
    """First separator axis and first eliminated axis in the lanes; lanes of both, of the former."""
    n_lanes = 1
    separator = n_axes
    while separator > n_eliminated and (
        n_lanes < MIN_LANES or n_lanes * sizes[separator - 1] <= MAX_LANES
    ):
        separator -= 1
        n_lanes *= sizes[separator]
    n_separator_lanes = n_lanes
    eliminated = n_eliminated
    if separator == n_eliminated:
        while eliminated > 0 and (
            n_lanes < MIN_LANES or n_lanes * sizes[eliminated - 1] <= MAX_LANES
        ):
            eliminated -= 1
            n_lanes *= sizes[eliminated]
    return separator, eliminated, n_lanes, n_separator_lanes


@njit(cache=True, nogil=True, error_model="numpy")
def _lay_out(n_tables: int, n_axes: int, n_eliminated: int, work: Any) -> Layout:
    """Cut the cluster into rows and lanes; steps and lane indices of every table."""
    separator, eliminated, n_lanes, n_separator_lanes = lane_split(work.sizes, n_axes, n_eliminated)
    n_outer = 0
    n_groups = 1
    for k in range(n_eliminated, separator):
        work.outer[n_outer] = k
        n_outer += 1
        n_groups *= work.sizes[k]
    rows_per_group = 1
    for k in range(eliminated):
        work.outer[n_outer] = k
        n_outer += 1
        rows_per_group *= work.sizes[k]
    for k in range(n_outer):
        work.digits[k] = 0
    for t in range(n_tables):
        strides = work.strides[t * n_axes : (t + 1) * n_axes]
        # when axis k advances, all faster outer axes fall back to 0
        fall = np.int64(0)
        first_step = t * (n_outer + 1)
        work.steps[first_step + n_outer] = 0
        for k in range(n_outer - 1, -1, -1):
            axis = work.outer[k]
            work.steps[first_step + k] = strides[axis] - fall
            fall += strides[axis] * (work.sizes[axis] - 1)
        # lane by lane, the fastest axis first
        indices = work.lane_indices[t * n_lanes : (t + 1) * n_lanes]
        indices[0] = 0
        filled = 1
        for axis in range(n_axes - 1, separator - 1, -1):
            filled = _extend(indices, filled, work.sizes[axis], strides[axis])
        for axis in range(n_eliminated - 1, eliminated - 1, -1):
            filled = _extend(indices, filled, work.sizes[axis], strides[axis])
        is_spread = True
        is_contiguous = True
        for lane in range(n_lanes):
            is_spread = is_spread and indices[lane] == 0
            is_contiguous = is_contiguous and indices[lane] == lane
        if is_spread:
            work.lane_kinds[t] = SPREAD
        else:
            work.lane_kinds[t] = CONTIGUOUS if is_contiguous else SCATTERED
    n_rows = n_groups * rows_per_group
    return Layout(n_tables, n_lanes, n_separator_lanes, n_outer, n_rows, rows_per_group)


@njit(cache=True, nogil=True, error_model="numpy")
def _extend(indices: LongArray, filled: int, size: int, stride: int) -> int:
    for label in range(1, size):
        for lane in range(filled):
            indices[label * filled + lane] = indices[lane] + label * stride
    return filled * size


@njit(cache=True, nogil=True, error_model="numpy")
def buffer_lengths(tree: CliqueTree, cardinalities: IntArray) -> tuple[int, int, int, int]:
    """Largest numbers of axes, of lanes, of tables, and of tables times axes or lanes."""
    most_axes, most_lanes, most_tables, most_places = 1, 1, 1, 1
    sizes = np.ones(64, dtype=np.int64)
    for c in range(len(tree.n_eliminated)):
        n_axes = tree.offsets[c + 1] - tree.offsets[c]
        if n_axes > len(sizes):
            sizes = np.ones(2 * n_axes, dtype=np.int64)
        for k in range(n_axes):
            sizes[k] = cardinalities[tree.variables[tree.offsets[c] + k]]
        n_lanes = lane_split(sizes, n_axes, tree.n_eliminated[c])[2]
        n_tables = (
            tree.n_eliminated[c]
            + tree.factor_offsets[c + 1]
            - tree.factor_offsets[c]
            + tree.child_offsets[c + 1]
            - tree.child_offsets[c]
            + 1
        )
        most_axes = max(most_axes, n_axes)
        most_lanes = max(most_lanes, n_lanes)
        most_tables = max(most_tables, n_tables)
        most_places = max(most_places, n_tables * max(n_axes + 1, n_lanes))
    return most_axes, most_lanes, most_tables, most_places


# -- rows -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def _advance(n_rows: int, layout: Layout, work: Any) -> None:
    """Which outer axis advances after each of the next rows."""
    for row in range(n_rows):
        k = layout.n_outer - 1
        while k >= 0 and work.digits[k] + 1 == work.sizes[work.outer[k]]:
            work.digits[k] = 0
            k -= 1
        if k >= 0:
            work.digits[k] += 1
        work.carries[row] = k if k >= 0 else layout.n_outer


@njit(cache=True, nogil=True, error_model="numpy")
def _add_terms(n_rows: int, layout: Layout, tables: Any, work: Any) -> None:
    """Block of the next rows: the sum of all tables of the cluster."""
    n_lanes = layout.n_lanes
    work.block[: n_rows * n_lanes] = 0.0
    for t in range(layout.n_tables):
        if work.kinds[t] == UNARY:
            source = tables.unary
        elif work.kinds[t] == FACTOR:
            source = tables.factors
        else:
            source = tables.messages
        steps = work.steps[t * (layout.n_outer + 1) : (t + 1) * (layout.n_outer + 1)]
        indices = work.lane_indices[t * n_lanes : (t + 1) * n_lanes]
        lane_kind = work.lane_kinds[t]
        offset = work.offsets[t]
        for row in range(n_rows):
            lanes = work.block[row * n_lanes : (row + 1) * n_lanes]
            if lane_kind == SPREAD:
                value = source[offset]
                for lane in range(n_lanes):
                    lanes[lane] += value
            elif lane_kind == CONTIGUOUS:
                piece = source[offset : offset + n_lanes]
                for lane in range(n_lanes):
                    lanes[lane] += piece[lane]
            else:
                piece = source[offset:]
                for lane in range(n_lanes):
                    lanes[lane] += piece[np.uint64(indices[lane])]
            offset += steps[work.carries[row]]
        work.offsets[t] = offset


@njit(cache=True, nogil=True, error_model="numpy")
def _add_rows(
    target: FloatArray, t: int, offset: int, n_rows: int, layout: Layout, work: Any
) -> int:
    """Add the block to the places of table ``t`` in ``target``; the offset after it.

    Rows that go to the same place are added up lane by lane first.
    """
    n_lanes = layout.n_lanes
    steps = work.steps[t * (layout.n_outer + 1) : (t + 1) * (layout.n_outer + 1)]
    indices = work.lane_indices[t * n_lanes : (t + 1) * n_lanes]
    lane_kind = work.lane_kinds[t]
    total = work.sums[:n_lanes]
    row = 0
    while row < n_rows:
        total[:] = work.block[row * n_lanes : (row + 1) * n_lanes]
        step = steps[work.carries[row]]
        row += 1
        while step == 0 and row < n_rows:
            lanes = work.block[row * n_lanes : (row + 1) * n_lanes]
            for lane in range(n_lanes):
                total[lane] += lanes[lane]
            step = steps[work.carries[row]]
            row += 1
        if lane_kind == SPREAD:
            value = 0.0
            for lane in range(n_lanes):
                value += total[lane]
            target[offset] += value
        elif lane_kind == CONTIGUOUS:
            piece = target[offset : offset + n_lanes]
            for lane in range(n_lanes):
                piece[lane] += total[lane]
        else:
            piece = target[offset:]
            for lane in range(n_lanes):
                piece[np.uint64(indices[lane])] += total[lane]
        offset += step
    return offset


# -- upward ---------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def _reduce_rows(
    first: int, n_rows: int, is_start: bool, maximise: bool, n_lanes: int, work: Any
) -> None:
    """Take rows of one group into the running maxima and sums of exponentials below them."""
    maxima, sums = work.maxima[:n_lanes], work.sums[:n_lanes]
    old = work.sums[n_lanes : 2 * n_lanes]
    if is_start:
        maxima[:] = -np.inf
        sums[:] = 0.0
    old[:] = maxima
    for row in range(first, first + n_rows):
        lanes = work.block[row * n_lanes : (row + 1) * n_lanes]
        for lane in range(n_lanes):
            maxima[lane] = max(maxima[lane], lanes[lane])
    if maximise:
        return
    if is_start and n_rows == 1:
        for lane in range(n_lanes):
            sums[lane] = 1.0 if maxima[lane] > -np.inf else 0.0
        return
    if not is_start:
        for lane in range(n_lanes):
            top = maxima[lane] if maxima[lane] > -np.inf else 0.0
            sums[lane] *= fast_exp(old[lane] - top)
    for row in range(first, first + n_rows):
        lanes = work.block[row * n_lanes : (row + 1) * n_lanes]
        for lane in range(n_lanes):
            top = maxima[lane] if maxima[lane] > -np.inf else 0.0
            sums[lane] += fast_exp(lanes[lane] - top)


@njit(cache=True, nogil=True, error_model="numpy")
def _finish_group(message: FloatArray, maximise: bool, layout: Layout, work: Any) -> None:
    """Reduce the eliminated axes in the lanes, and write one piece of the message."""
    n_pieces = layout.n_separator_lanes
    for lane in range(n_pieces, layout.n_lanes):
        i = lane % n_pieces
        top = max(work.maxima[i], work.maxima[lane])
        if top > -np.inf and not maximise:
            kept = work.sums[i] * fast_exp(work.maxima[i] - top)
            work.sums[i] = kept + work.sums[lane] * fast_exp(work.maxima[lane] - top)
        work.maxima[i] = top
    if maximise:
        message[:] = work.maxima[:n_pieces]
        return
    for lane in range(n_pieces):
        # the largest term is exp(0), so a sum is at least 1 unless every term is a hard zero
        message[lane] = work.maxima[lane] + fast_log(max(work.sums[lane], 1.0))


@njit(cache=True, nogil=True, error_model="numpy")
def pass_upward(
    tree: CliqueTree,
    structure: Any,
    labels: IntArray,
    tables: LogTables,
    maximise: bool,
    shifts: FloatArray,
    work: Workspace,
) -> bool:
    """All messages to the parents; false if the total weight is zero."""
    for c in range(len(tree.n_eliminated)):
        n_tables = _describe(c, tree, structure, labels, False, work)
        n_axes = tree.offsets[c + 1] - tree.offsets[c]
        layout = _lay_out(n_tables, n_axes, tree.n_eliminated[c], work)
        message = tables.messages[tree.message_offsets[c] : tree.message_offsets[c + 1]]
        block_rows = max(BLOCK_ENTRIES // layout.n_lanes, 1)
        written = 0
        row = 0
        while row < layout.n_rows:
            n_rows = min(block_rows, layout.n_rows - row)
            _advance(n_rows, layout, work)
            _add_terms(n_rows, layout, tables, work)
            inside = 0
            while inside < n_rows:
                position = (row + inside) % layout.rows_per_group
                n_group = min(layout.rows_per_group - position, n_rows - inside)
                _reduce_rows(inside, n_group, position == 0, maximise, layout.n_lanes, work)
                inside += n_group
                if position + n_group == layout.rows_per_group:
                    piece = message[written : written + layout.n_separator_lanes]
                    _finish_group(piece, maximise, layout, work)
                    written += layout.n_separator_lanes
            row += n_rows
        shift = -np.inf
        for k in range(len(message)):
            shift = max(shift, message[k])
        shifts[c] = shift
        if shift == -np.inf:
            return False
        for k in range(len(message)):
            message[k] -= shift
    return True


# -- downward -------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def pass_downward(
    tree: CliqueTree,
    structure: Any,
    labels: IntArray,
    tables: LogTables,
    beliefs: tuple[FloatArray, FloatArray],
    shifts: FloatArray,
    marginals: FloatArray,
    work: Workspace,
) -> None:
    """Add the marginals of every free variable and factor into ``beliefs`` (unary, factors).

    Overwrites the upward messages; ``marginals`` holds the separators of one clique's children.
    """
    targets = np.empty(len(work.offsets), dtype=np.int64)
    for c in range(len(tree.n_eliminated) - 1, -1, -1):
        n_tables = _describe(c, tree, structure, labels, True, work)
        n_targets = n_tables - 1
        n_axes = tree.offsets[c + 1] - tree.offsets[c]
        layout = _lay_out(n_tables, n_axes, tree.n_eliminated[c], work)
        first_child = tree.child_offsets[c]
        n_children = tree.child_offsets[c + 1] - first_child
        targets[:n_targets] = work.offsets[:n_targets]
        n_marginals = 0
        for k in range(n_children):
            child = tree.children[first_child + k]
            targets[n_targets - n_children + k] = n_marginals
            n_marginals += tree.message_offsets[child + 1] - tree.message_offsets[child]
        marginals[:n_marginals] = 0.0
        block_rows = max(BLOCK_ENTRIES // layout.n_lanes, 1)
        row = 0
        while row < layout.n_rows:
            n_rows = min(block_rows, layout.n_rows - row)
            _advance(n_rows, layout, work)
            _add_terms(n_rows, layout, tables, work)
            block = work.block[: n_rows * layout.n_lanes]
            shift = shifts[c]
            for k in range(len(block)):
                block[k] = fast_exp(block[k] - shift)
            for t in range(n_targets):
                if work.kinds[t] == UNARY:
                    target = beliefs[0]
                elif work.kinds[t] == FACTOR:
                    target = beliefs[1]
                else:
                    target = marginals
                targets[t] = _add_rows(target, t, targets[t], n_rows, layout, work)
            row += n_rows
        first = 0
        for k in range(n_children):
            child = tree.children[first_child + k]
            message = tables.messages[tree.message_offsets[child] : tree.message_offsets[child + 1]]
            for position in range(len(message)):
                weight = marginals[first + position]
                if weight > 0.0:
                    message[position] = np.log(weight) - message[position]
                else:
                    message[position] = -np.inf
            first += len(message)


# -- traceback ------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def trace_back(
    tree: CliqueTree,
    structure: Any,
    evidence: IntArray,
    tables: LogTables,
    labels: IntArray,
    work: Workspace,
) -> None:
    """Best labels of all free variables, after `pass_upward` with ``maximise``."""
    for c in range(len(tree.n_eliminated) - 1, -1, -1):
        n_tables = _describe(c, tree, structure, evidence, False, work)
        begin = tree.offsets[c]
        n_axes = tree.offsets[c + 1] - begin
        n_eliminated = tree.n_eliminated[c]
        for t in range(n_tables):
            for k in range(n_eliminated, n_axes):
                stride = work.strides[t * n_axes + k]
                work.offsets[t] += stride * labels[tree.variables[begin + k]]
        work.digits[:n_eliminated] = 0
        best = -np.inf
        while True:
            value = 0.0
            for t in range(n_tables):
                if work.kinds[t] == UNARY:
                    value += tables.unary[work.offsets[t]]
                elif work.kinds[t] == FACTOR:
                    value += tables.factors[work.offsets[t]]
                else:
                    value += tables.messages[work.offsets[t]]
            if value > best:
                best = value
                for k in range(n_eliminated):
                    labels[tree.variables[begin + k]] = work.digits[k]
            k = n_eliminated - 1
            while k >= 0:
                moved = np.int64(1)
                if work.digits[k] + 1 == work.sizes[k]:
                    moved = -work.digits[k]
                work.digits[k] += moved
                for t in range(n_tables):
                    work.offsets[t] += moved * work.strides[t * n_axes + k]
                if moved == 1:
                    break
                k -= 1
            if k < 0:
                break
