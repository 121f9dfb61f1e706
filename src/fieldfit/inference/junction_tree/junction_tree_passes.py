r"""Message passing on a junction tree (clique tree): both passes, and the traceback of a MAP.

Upward (``L`` is the logarithm of a sum of exponentials, or the maximum):

    m_c(y_S) = L_{y_C \ y_S} [sum_a th_a(y_a) + sum_{children d} m_d(y_{S_d})] - shift_c

where ``shift_c`` makes the largest entry 0, so that digits do not drown in long trees; the sum of
all shifts is the log-partition.  Downward, with ``b_c`` the marginal of the cluster,

    b_c = exp(sum_a th_a + sum_d m_d + n_c - shift_c),    n_d = log sum_{C \ S_d} b_c - m_d

where ``n_d`` takes the place of ``m_d`` in memory.  Beliefs are at most 1, so they are summed in
the linear domain, and what underflows there is below 1e-300 of the total weight.

Reference: Jensen, Lauritzen and Olesen, "Bayesian updating in causal probabilistic networks by
local computations", Computational Statistics Quarterly 4 (1990); Koller and Friedman,
"Probabilistic Graphical Models" (2009), chapter 10.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.structure import Structure
from fieldfit.inference.junction_tree.clique_tables import (
    BLOCK_ENTRIES,
    COPIED,
    FACTOR,
    UNARY,
    JunctionTree,
    Layout,
    LogTables,
    Workspace,
    add_row_totals,
    add_rows,
    build_rows,
    describe,
    finish_sums,
    lay_out,
    start_sums,
)
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp, fast_log

# -- upward ---------------------------------------------------------------------------------


@kernel
def _reduce_rows(
    first: int, n_rows: int, is_start: bool, maximise: bool, n_lanes: int, work: Workspace
) -> None:
    """Take rows of one group into the running maxima and sums of exponentials below them."""
    maxima, sums, old = work.maxima[:n_lanes], work.sums[:n_lanes], work.totals[:n_lanes]
    for lane in range(n_lanes):
        if is_start:
            maxima[lane] = -np.inf
            sums[lane] = 0.0
        old[lane] = maxima[lane]
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


@kernel
def _finish_group(message: FloatArray, maximise: bool, layout: Layout, work: Workspace) -> None:
    """Reduce the eliminated axes in the lanes, and write one part of the message."""
    n_parts = layout.n_separator_lanes
    for lane in range(n_parts, layout.n_lanes):
        i = lane % n_parts
        top = max(work.maxima[i], work.maxima[lane])
        if top > -np.inf and not maximise:
            kept = work.sums[i] * fast_exp(work.maxima[i] - top)
            work.sums[i] = kept + work.sums[lane] * fast_exp(work.maxima[lane] - top)
        work.maxima[i] = top
    if maximise:
        for lane in range(n_parts):
            message[lane] = work.maxima[lane]
        return
    for lane in range(n_parts):
        # the largest term is exp(0), so a sum is at least 1 unless every term is a hard zero
        message[lane] = work.maxima[lane] + fast_log(max(work.sums[lane], 1.0))


@kernel
def pass_upward(
    tree: JunctionTree,
    structure: Structure,
    labels: IntArray,
    tables: LogTables,
    maximise: bool,
    shifts: FloatArray,
    work: Workspace,
) -> bool:
    """All messages to the parents; false if the total weight is zero."""
    for c in range(len(tree.n_eliminated)):
        n_tables = describe(c, tree, structure, labels, False, work)
        n_axes = tree.offsets[c + 1] - tree.offsets[c]
        layout = lay_out(n_tables, n_axes, n_axes, tree.n_eliminated[c], tables, work)
        message = tables.messages[tree.message_offsets[c] : tree.message_offsets[c + 1]]
        block_rows = max(BLOCK_ENTRIES // layout.n_lanes, 1)
        written = 0
        row = 0
        while row < layout.n_rows:
            n_rows = min(block_rows, layout.n_rows - row)
            build_rows(n_rows, layout, tables, work)
            inside = 0
            while inside < n_rows:
                position = (row + inside) % layout.rows_per_group
                n_group = min(layout.rows_per_group - position, n_rows - inside)
                _reduce_rows(inside, n_group, position == 0, maximise, layout.n_lanes, work)
                inside += n_group
                if position + n_group == layout.rows_per_group:
                    part = message[written : written + layout.n_separator_lanes]
                    _finish_group(part, maximise, layout, work)
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


@kernel
def pass_downward(
    tree: JunctionTree,
    structure: Structure,
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
    for c in range(len(tree.n_eliminated) - 1, -1, -1):
        n_tables = describe(c, tree, structure, labels, True, work)
        n_targets = n_tables - 1  # the last table is the clique's own message
        n_axes = tree.offsets[c + 1] - tree.offsets[c]
        layout = lay_out(n_tables, n_axes, n_axes, tree.n_eliminated[c], tables, work)
        n_children = tree.child_offsets[c + 1] - tree.child_offsets[c]
        n_marginals = 0
        for k in range(n_children):
            child = tree.children[tree.child_offsets[c] + k]
            work.origins[n_targets - n_children + k] = n_marginals
            n_marginals += tree.message_offsets[child + 1] - tree.message_offsets[child]
        for k in range(n_marginals):
            marginals[k] = 0.0
        for t in range(n_targets):
            is_copied = work.lane_kinds[t] == COPIED
            work.targets[t] = work.copy_offsets[t] if is_copied else work.origins[t]
        start_sums(n_targets, layout, work)
        total = 0.0
        block_rows = max(BLOCK_ENTRIES // layout.n_lanes, 1)
        row = 0
        while row < layout.n_rows:
            n_rows = min(block_rows, layout.n_rows - row)
            build_rows(n_rows, layout, tables, work)
            block = work.block[: n_rows * layout.n_lanes]
            shift = shifts[c]
            for k in range(len(block)):
                block[k] = fast_exp(block[k] - shift)
            total += add_row_totals(n_rows, layout, work)
            for t in range(n_targets):
                add_rows(_target(work.kinds[t], beliefs, marginals), t, n_rows, layout, work)
            row += n_rows
        for t in range(n_targets):
            finish_sums(
                _target(work.kinds[t], beliefs, marginals), t, work.origins[t], layout, work
            )
        first = 0
        for k in range(n_children):
            child = tree.children[tree.child_offsets[c] + k]
            message = tables.messages[tree.message_offsets[child] : tree.message_offsets[child + 1]]
            # the total is 1 but for rounding, which must not pile up along the tree
            _divide(marginals[first : first + len(message)], total, message)
            first += len(message)


@kernel
def _target(kind: int, beliefs: tuple[FloatArray, FloatArray], marginals: FloatArray) -> FloatArray:
    if kind == UNARY:
        return beliefs[0]
    if kind == FACTOR:
        return beliefs[1]
    return marginals


@kernel
def _divide(marginal: FloatArray, total: float, message: FloatArray) -> None:
    """Replace an upward message by the downward one; 0 / 0 is 0."""
    log_total = np.log(total)
    for k in range(len(message)):
        weight = marginal[k]
        if weight > 2.3e-308:  # `fast_log` wants normal numbers
            message[k] = fast_log(weight) - log_total - message[k]
        else:
            message[k] = -np.inf


# -- traceback ------------------------------------------------------------------------------


@kernel
def trace_back(
    tree: JunctionTree,
    structure: Structure,
    evidence: IntArray,
    tables: LogTables,
    labels: IntArray,
    work: Workspace,
) -> None:
    """Best labels of all free variables, after `pass_upward` with ``maximise``."""
    for c in range(len(tree.n_eliminated) - 1, -1, -1):
        n_tables = describe(c, tree, structure, evidence, False, work)
        begin = tree.offsets[c]
        n_axes = tree.offsets[c + 1] - begin
        n_eliminated = tree.n_eliminated[c]
        for t in range(n_tables):
            for k in range(n_eliminated, n_axes):
                stride = work.strides[t * n_axes + k]
                work.origins[t] += stride * labels[tree.variables[begin + k]]
        layout = lay_out(n_tables, n_axes, n_eliminated, n_eliminated, tables, work)
        block_rows = max(BLOCK_ENTRIES // layout.n_lanes, 1)
        best = -np.inf
        best_entry: Any = np.int64(0)
        row = 0
        while row < layout.n_rows:
            n_rows = min(block_rows, layout.n_rows - row)
            build_rows(n_rows, layout, tables, work)
            for k in range(n_rows * layout.n_lanes):
                if work.block[k] > best:
                    best = work.block[k]
                    best_entry = row * layout.n_lanes + k
            row += n_rows
        # with no separator the rows and lanes run through the eliminated axes in order
        for k in range(n_eliminated - 1, -1, -1):
            labels[tree.variables[begin + k]] = best_entry % work.sizes[k]
            best_entry //= work.sizes[k]
