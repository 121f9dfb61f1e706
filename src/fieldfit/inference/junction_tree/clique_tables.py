r"""Cluster tables of a junction tree as streams of rows: built and summed, never stored.

The cluster of a clique is the sum of the log tables that belong to it: unary potentials, factors,
messages of its children and, in the downward pass, its own message.  Its variables are split into
those *eliminated* here and the *separator* that it shares with its parent.

A cluster is visited in *rows* of some 256 consecutive configurations, *lanes*, built in a buffer
that stays in the cache.  Its axes run from slow to fast as

    separator (outer) | eliminated (outer) | eliminated (lanes) | separator (lanes)

so that all rows of one *group* reduce lane by lane to one part of the message.  Every table has
an offset that moves with the rows and an index for each lane; tables may therefore have any order
of axes, and evidence is an offset.  Most tables of a large cluster are small, and cost far less
than a pass over it: those without an axis in the lanes add one number to a row, those without an
outer axis are summed once, and small ones with both are copied out lane by lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.graph.structure import Structure
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH

#: Long enough for SIMD and to hide the cost of starting a row, short enough that a block of rows
#: (`BLOCK_ENTRIES` doubles, 64 kB) and the copied tables stay in a second-level cache of 512 kB.
MAX_LANES = 256
MIN_LANES = 16
BLOCK_ENTRIES = 8192
MAX_BLOCK_ROWS = BLOCK_ENTRIES // MIN_LANES
#: Tables are copied out lane by lane if they have at most this many configurations outside the
#: lanes, and while all copies of the cluster fit into this many doubles.
MAX_COPIES = 16
COPY_ENTRIES = 16384

UNARY, FACTOR, MESSAGE = 0, 1, 2
#: How a table enters a row: one number for all lanes, the same lanes in every row, consecutive
#: entries, entries anywhere, or consecutive entries of its copy.
SPREAD, REPEATED, CONTIGUOUS, SCATTERED, COPIED = 0, 1, 2, 3, 4


class JunctionTree(NamedTuple):
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
    """Buffers for the largest clique; see `elimination_order.EliminationPlan`."""

    axes: IntArray  # axis of each variable in the present cluster
    sizes: LongArray  # labels of each axis
    digits: LongArray  # position of the present row on the outer axes
    outer: LongArray  # outer axes, slow to fast
    kinds: IntArray  # of each table
    lane_kinds: IntArray
    origins: LongArray  # first entry of each table
    offsets: LongArray  # entry of each table for the present row
    targets: LongArray  # the same where its belief is summed
    strides: LongArray  # tables x axes
    steps: LongArray  # tables x outer axes: change of the offset when this axis advances
    lane_indices: LongArray  # tables x lanes
    copy_indices: LongArray  # tables x MAX_COPIES
    n_copies: IntArray  # of each table
    copy_offsets: LongArray  # of each table in ``copies`` and ``copied_sums``
    copies: FloatArray
    copied_sums: FloatArray
    carries: IntArray  # outer axis that advances after each row of the block
    row_values: FloatArray  # rows
    block: FloatArray  # rows x lanes
    base: FloatArray  # lanes
    totals: FloatArray  # lanes
    maxima: FloatArray  # lanes
    sums: FloatArray  # lanes


class Layout(NamedTuple):
    """How the rows of one cluster are cut."""

    n_tables: int
    n_lanes: int
    n_separator_lanes: int
    n_outer: int
    n_rows: int
    rows_per_group: int


# -- describing one cluster -----------------------------------------------------------------


@kernel
def describe(
    c: int,
    tree: JunctionTree,
    structure: Structure,
    labels: IntArray,
    with_own: bool,
    work: Workspace,
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
    for k in range(n_tables * n_axes):
        work.strides[k] = 0
    t = 0
    for k in range(n_eliminated):
        work.kinds[t] = UNARY
        work.origins[t] = structure.unary_offsets[tree.variables[begin + k]]
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
        work.origins[t] = offset
        t += 1
    first_child = tree.child_offsets[c]
    for k in range(n_tables - t):
        sender = tree.children[first_child + k] if k < n_children else c
        work.kinds[t] = MESSAGE
        work.origins[t] = tree.message_offsets[sender]
        separator = tree.variables[
            tree.offsets[sender] + tree.n_eliminated[sender] : tree.offsets[sender + 1]
        ]
        strides = work.strides[t * n_axes : (t + 1) * n_axes]
        _set_message_strides(separator, structure.cardinalities, work.axes, strides)
        t += 1
    return n_tables


@kernel
def _set_message_strides(
    separator: IntArray, cardinalities: IntArray, axes: IntArray, strides: LongArray
) -> None:
    stride = 1
    for k in range(len(separator) - 1, -1, -1):
        i = separator[k]
        strides[axes[i]] = stride
        stride *= cardinalities[i]


@kernel
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


@kernel
def _extend(indices: LongArray, filled: int, size: int, stride: int) -> int:
    for label in range(1, size):
        for lane in range(filled):
            indices[label * filled + lane] = indices[lane] + label * stride
    return filled * size


@kernel
def lay_out(
    n_tables: int, n_axes: int, n_used: int, n_eliminated: int, tables: LogTables, work: Workspace
) -> Layout:
    """Cut the first ``n_used`` axes of the cluster into rows and lanes; prepare every table.

    The offsets move to the first row.  Axes beyond ``n_used`` stay where the origins put them.
    """
    separator, eliminated, n_lanes, n_separator_lanes = lane_split(work.sizes, n_used, n_eliminated)
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
    n_rows = n_groups * rows_per_group
    layout = Layout(n_tables, n_lanes, n_separator_lanes, n_outer, n_rows, rows_per_group)
    for k in range(n_outer):
        work.digits[k] = 0
    for lane in range(n_lanes):
        work.base[lane] = 0.0
    n_copied = 0
    for t in range(n_tables):
        strides = work.strides[t * n_axes : (t + 1) * n_axes]
        indices = work.lane_indices[t * n_lanes : (t + 1) * n_lanes]
        indices[0] = 0
        filled = 1
        for axis in range(n_used - 1, separator - 1, -1):
            filled = _extend(indices, filled, work.sizes[axis], strides[axis])
        for axis in range(n_eliminated - 1, eliminated - 1, -1):
            filled = _extend(indices, filled, work.sizes[axis], strides[axis])
        n_copies = 1
        for k in range(n_outer):
            if strides[work.outer[k]] != 0:
                n_copies = min(n_copies * work.sizes[work.outer[k]], n_rows)
        lane_kind = _lane_kind(indices, n_copies, n_rows)
        source = _source(work.kinds[t], tables)
        work.offsets[t] = work.origins[t]
        if lane_kind == REPEATED:
            for lane in range(n_lanes):
                work.base[lane] += source[work.origins[t] + indices[lane]]
        elif lane_kind == COPIED:
            if n_copied + n_copies * n_lanes > COPY_ENTRIES:
                lane_kind = SCATTERED
            else:
                work.n_copies[t] = n_copies
                work.copy_offsets[t] = n_copied
                work.offsets[t] = n_copied
                _copy_out(source, t, n_outer, strides, n_lanes, work)
                n_copied += n_copies * n_lanes
        work.lane_kinds[t] = lane_kind
        # when axis k advances, all faster outer axes fall back to 0
        fall = np.int64(0)
        first = t * (n_outer + 1)
        work.steps[first + n_outer] = 0
        for k in range(n_outer - 1, -1, -1):
            axis = work.outer[k]
            work.steps[first + k] = strides[axis] - fall
            fall += strides[axis] * (work.sizes[axis] - 1)
    return layout


@kernel
def _lane_kind(indices: LongArray, n_copies: int, n_rows: int) -> int:
    is_spread = True
    is_contiguous = True
    for lane in range(len(indices)):
        is_spread = is_spread and indices[lane] == 0
        is_contiguous = is_contiguous and indices[lane] == lane
    if is_spread:
        return SPREAD
    if n_copies == 1:
        return REPEATED
    if is_contiguous:
        return CONTIGUOUS
    # a copy is worth its making if it serves several rows
    return COPIED if n_copies <= MAX_COPIES and 4 * n_copies <= n_rows else SCATTERED


@kernel
def _copy_out(
    source: FloatArray, t: int, n_outer: int, strides: LongArray, n_lanes: int, work: Workspace
) -> None:
    """Copy a table lane by lane, and let its strides on the outer axes go through the copy."""
    combinations = work.copy_indices[t * MAX_COPIES : (t + 1) * MAX_COPIES]
    combinations[0] = 0
    filled = 1
    for k in range(n_outer - 1, -1, -1):
        axis = work.outer[k]
        if strides[axis] != 0:
            stride = filled * n_lanes
            filled = _extend(combinations, filled, work.sizes[axis], strides[axis])
            strides[axis] = stride
    for k in range(filled):
        lanes = work.copies[work.copy_offsets[t] + k * n_lanes :]
        first = work.origins[t] + combinations[k]
        for lane in range(n_lanes):
            lanes[lane] = source[first + work.lane_indices[t * n_lanes + lane]]


@kernel
def _source(kind: int, tables: LogTables) -> FloatArray:
    if kind == UNARY:
        return tables.unary
    if kind == FACTOR:
        return tables.factors
    return tables.messages


@kernel
def buffer_lengths(tree: JunctionTree, cardinalities: IntArray) -> tuple[int, int, int, int]:
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


@kernel
def build_rows(n_rows: int, layout: Layout, tables: LogTables, work: Workspace) -> None:
    """The next rows of the cluster, in ``work.block``: the sum of all its tables."""
    n_lanes = layout.n_lanes
    for row in range(n_rows):  # which outer axis advances after each row
        k = layout.n_outer - 1
        while k >= 0 and work.digits[k] + 1 == work.sizes[work.outer[k]]:
            work.digits[k] = 0
            k -= 1
        if k >= 0:
            work.digits[k] += 1
        work.carries[row] = k if k >= 0 else layout.n_outer
    for row in range(n_rows):
        work.row_values[row] = 0.0
    for t in range(layout.n_tables):
        if work.lane_kinds[t] == SPREAD:
            source = _source(work.kinds[t], tables)
            steps = work.steps[t * (layout.n_outer + 1) :]
            offset = work.offsets[t]
            for row in range(n_rows):
                work.row_values[row] += source[offset]
                offset += steps[work.carries[row]]
            work.offsets[t] = offset
    base = work.base[:n_lanes]
    for row in range(n_rows):
        lanes = work.block[row * n_lanes : (row + 1) * n_lanes]
        value = work.row_values[row]
        for lane in range(n_lanes):
            lanes[lane] = base[lane] + value
    for t in range(layout.n_tables):
        if work.lane_kinds[t] >= CONTIGUOUS:
            _add_table(t, n_rows, layout, tables, work)


@kernel
def _add_table(t: int, n_rows: int, layout: Layout, tables: LogTables, work: Workspace) -> None:
    n_lanes = layout.n_lanes
    steps = work.steps[t * (layout.n_outer + 1) :]
    indices = work.lane_indices[t * n_lanes : (t + 1) * n_lanes]
    lane_kind = work.lane_kinds[t]
    source = work.copies if lane_kind == COPIED else _source(work.kinds[t], tables)
    offset = work.offsets[t]
    for row in range(n_rows):
        lanes = work.block[row * n_lanes : (row + 1) * n_lanes]
        if lane_kind == SCATTERED:
            for lane in range(n_lanes):
                lanes[lane] += source[np.uint64(offset + indices[lane])]
        else:
            part = source[offset : offset + n_lanes]
            for lane in range(n_lanes):
                lanes[lane] += part[lane]
        offset += steps[work.carries[row]]
    work.offsets[t] = offset


@kernel
def start_sums(n_targets: int, layout: Layout, work: Workspace) -> None:
    """Before the first `add_rows` of a cluster; ``work.targets`` holds the places of its tables."""
    for lane in range(layout.n_lanes):
        work.totals[lane] = 0.0
    for t in range(n_targets):
        if work.lane_kinds[t] == COPIED:
            for k in range(work.n_copies[t] * layout.n_lanes):
                work.copied_sums[work.copy_offsets[t] + k] = 0.0


@kernel(fastmath=SAFE_FASTMATH)
def add_row_totals(n_rows: int, layout: Layout, work: Workspace) -> float:
    """Sums of the block over its lanes and over its rows, which serve many tables; its sum."""
    n_lanes = layout.n_lanes
    totals = work.totals[:n_lanes]
    total = 0.0
    for row in range(n_rows):
        lanes = work.block[row * n_lanes : (row + 1) * n_lanes]
        value = 0.0
        for lane in range(n_lanes):
            totals[lane] += lanes[lane]
            value += lanes[lane]
        work.row_values[row] = value
        total += value
    return total


@kernel
def add_rows(target: FloatArray, t: int, n_rows: int, layout: Layout, work: Workspace) -> None:
    """Add the block to the places of table ``t`` in ``target``."""
    n_lanes = layout.n_lanes
    lane_kind = work.lane_kinds[t]
    if lane_kind == REPEATED:
        return
    steps = work.steps[t * (layout.n_outer + 1) :]
    if lane_kind == SPREAD:
        offset = work.targets[t]
        value = 0.0
        for row in range(n_rows):
            value += work.row_values[row]
            step = steps[work.carries[row]]
            if step != 0:
                target[offset] += value
                value = 0.0
                offset += step
        target[offset] += value
        work.targets[t] = offset
        return
    indices = work.lane_indices[t * n_lanes : (t + 1) * n_lanes]
    sums = work.copied_sums if lane_kind == COPIED else target
    offset = work.targets[t]
    for row in range(n_rows):
        lanes = work.block[row * n_lanes : (row + 1) * n_lanes]
        if lane_kind == SCATTERED:
            for lane in range(n_lanes):
                sums[np.uint64(offset + indices[lane])] += lanes[lane]
        else:
            part = sums[offset : offset + n_lanes]
            for lane in range(n_lanes):
                part[lane] += lanes[lane]
        offset += steps[work.carries[row]]
    work.targets[t] = offset


@kernel
def finish_sums(target: FloatArray, t: int, origin: int, layout: Layout, work: Workspace) -> None:
    """Add what was summed aside for table ``t`` to its places, from entry ``origin``."""
    n_lanes = layout.n_lanes
    indices = work.lane_indices[t * n_lanes : (t + 1) * n_lanes]
    if work.lane_kinds[t] == REPEATED:
        for lane in range(n_lanes):
            target[origin + indices[lane]] += work.totals[lane]
    elif work.lane_kinds[t] == COPIED:
        for k in range(work.n_copies[t]):
            lanes = work.copied_sums[work.copy_offsets[t] + k * n_lanes :]
            first = origin + work.copy_indices[t * MAX_COPIES + k]
            for lane in range(n_lanes):
                target[first + indices[lane]] += lanes[lane]
