r"""Generalised belief propagation on region graphs: sweeps over inner regions, dual values.

The structure is two-layered.  Every *inner* region ``s`` is linked to every *outer* region ``r``
that contains it; a link has a map from the entries of the table of ``r`` to those of ``s``, and
sums over a map are all that is needed for any arity and any cardinalities.  The beliefs are

    log b_r = th_r / c_r + sum_{s in r} lam_rs    (outer; counting number c_r > 0)
    log b_s                                       (inner)

and the update of one inner region makes it and all the outer ones around it agree:

    m_rs     = log sum_{y_r \ y_s} b_r - lam_rs
    log b_s  = (th_s + tangent_s log old_s + sum_r c_r m_rs) / total_s - log_norm_s
    lam_rs   = log b_s - m_rs

(``c_r lam_rs`` is the multiplier of the constraint that ``r`` and ``s`` agree.)  With ``c_s`` the
counting number of ``s`` and ``n_s`` the sum of ``c_r`` over its links, ``total_s - tangent_s =
n_s + c_s``.  For fixed ``old`` and ``total_s >= n_s`` this is an exact step on all multipliers of
``s`` in the dual of a concave problem, so the dual value

    sum_r c_r log sum b_r + sum_s total_s log_norm_s

never rises.  An outer belief is normalised as soon as one of its inner regions has been updated.
A configuration that is excluded has ``-inf`` everywhere; finite values stay above a floor.

Regions agree when their probabilities do, except where they form a junction tree: there logarithms
must agree, and with the value at the end is the log-partition.  Strong couplings make a label that
is to become likely rise from 1e-100 by many powers of ten in a sweep, and all the while the
probabilities of all regions agree, about another one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray, IntArray
from fieldfit.inference.kikuchi.region_tables import add_up, log_add_up, log_total, multiply
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp, fast_log, load

#: Multipliers beyond this many times the floor have diverged: only plain messages may do that.
DIVERGED = 1000.0
#: Sums of probabilities above this are right to full precision: what has underflowed is below
#: 1e-300.  An entry that was lost comes back with the next sweep, which starts from logarithms.
TINY = 1e-200
#: Rounding of logarithms of beliefs, relative to the floor.
ROUNDING = 1e-14


class RegionArrays(NamedTuple):
    """Outer regions, then inner ones; links inner region by inner region."""

    n_outer: int
    table_offsets: IntArray  # of all regions
    link_offsets: IntArray  # links of each inner region
    link_outer: IntArray
    link_map: NDArray[np.int64]  # where the map of a link begins in `maps`
    link_run: IntArray  # how many neighbouring entries the map of a link sends to the same one
    message_offsets: IntArray  # of links
    maps: IntArray


class RegionModel(NamedTuple):
    """Potentials of all regions; the numbers of each region; a floor for each example.

    Potentials of outer regions are divided by their counting numbers.
    """

    potential: FloatArray
    weight: FloatArray  # counting numbers of outer regions
    total: FloatArray
    tangent: FloatArray
    floor: FloatArray
    agrees_in_logs: BoolArray  # examples whose regions form a junction tree


class RegionState(NamedTuple):
    """Logarithms of beliefs (outer ones as they come, inner ones normalised) and multipliers."""

    log_belief: FloatArray
    multiplier: FloatArray
    log_norm: FloatArray  # of each inner region
    old: FloatArray  # log-beliefs of inner regions where entropies are linearised


class Bounds(NamedTuple):
    """Where the regions of each example begin: outer ones, and inner ones counted from 0."""

    outer: NDArray[np.int64]
    inner: NDArray[np.int64]


class RegionScratch(NamedTuple):
    """Buffers of one inner region and its links, and of the outer regions of an example."""

    top: FloatArray
    target: FloatArray
    belief: FloatArray  # before the update
    margins: FloatArray  # link after link
    sums: FloatArray  # likewise, of ``linear``
    linear: FloatArray  # exp(log-belief - shift) of outer regions
    shifts: FloatArray
    scales: FloatArray  # exp(shift)


@kernel
def make_scratch(
    arrays: RegionArrays, bounds: Bounds, examples: NDArray[np.int64]
) -> RegionScratch:
    """Buffers that are large enough for some examples."""
    entries, margins, outer, tables = 1, 1, 1, 1
    for example in examples:
        first, last = bounds.outer[example], bounds.outer[example + 1]
        outer = max(outer, last - first)
        tables = max(tables, arrays.table_offsets[last] - arrays.table_offsets[first])
        for inner in range(bounds.inner[example], bounds.inner[example + 1]):
            region = arrays.n_outer + inner
            size = arrays.table_offsets[region + 1] - arrays.table_offsets[region]
            n_links = arrays.link_offsets[inner + 1] - arrays.link_offsets[inner]
            entries, margins = max(entries, size), max(margins, size * n_links)
    return RegionScratch(
        np.empty(entries),
        np.empty(entries),
        np.empty(entries),
        np.empty(margins),
        np.empty(margins),
        np.empty(tables),
        np.empty(outer),
        np.empty(outer),
    )


@kernel
def sweep_example(
    arrays: RegionArrays,
    model: RegionModel,
    state: RegionState,
    scratch: RegionScratch,
    bounds: Bounds,
    example: int,
    is_backward: bool,
    moves_tangents: bool,
    damping: float,
) -> tuple[float, int]:
    """Update all inner regions of an example; how far apart they were, and -1 or an impossible one.

    Apart is the largest difference between a belief before and after its update, or before and a
    margin, of logarithms where they must agree; infinite if a multiplier diverges.  The sweep runs
    on probabilities until a sum is too small for them, and on logarithms from there.

    One long loop on local names: Numba counts references to arrays that are taken out of tuples,
    which would cost as much as the arithmetic if an update were a function of its own.
    """
    table_offsets, link_offsets = arrays.table_offsets, arrays.link_offsets
    link_outer, link_map, link_run = arrays.link_outer, arrays.link_map, arrays.link_run
    message_offsets, maps = arrays.message_offsets, arrays.maps
    log_belief, multiplier, old = state.log_belief, state.multiplier, state.old
    top, target, belief = scratch.top, scratch.target, scratch.belief
    margins, sums, linear = scratch.margins, scratch.sums, scratch.linear
    shifts, scales = scratch.shifts, scratch.scales
    n_outer, first_outer = arrays.n_outer, bounds.outer[example]
    begin_inner, end_inner = bounds.inner[example], bounds.inner[example + 1]
    old_shift, linear_shift = table_offsets[n_outer], table_offsets[first_outer]
    floor, agrees_in_logs = model.floor[example], model.agrees_in_logs[example]
    rounding = ROUNDING * -floor
    widest, is_linear, step = 0.0, True, 0
    while step < end_inner - begin_inner:
        inner = end_inner - 1 - step if is_backward else begin_inner + step
        begin = table_offsets[n_outer + inner]
        n_entries = table_offsets[n_outer + inner + 1] - begin
        first, last = link_offsets[inner], link_offsets[inner + 1]
        tangent, inverse_total = model.tangent[inner], 1.0 / model.total[inner]
        gap, is_too_small = 0.0, False

        # what comes in
        for y in range(n_entries):
            target[y] = model.potential[begin + y]
            belief[y] = fast_exp(log_belief[begin + y])
            if tangent > 0.0 and target[y] > -np.inf:
                target[y] += tangent * (
                    log_belief[begin + y] if moves_tangents else old[begin - old_shift + y]
                )
        for link in range(first, last):
            outer = link_outer[link]
            start, size = table_offsets[outer], table_offsets[outer + 1] - table_offsets[outer]
            at, message = (link - first) * n_entries, message_offsets[link]
            weight = model.weight[outer]
            if is_linear:
                add_up(
                    linear, start - linear_shift, size, maps, link_map[link], link_run[link],
                    sums, at, n_entries,
                )  # fmt: skip
                shift, scale = shifts[outer - first_outer], scales[outer - first_outer]
                for y in range(n_entries):
                    gap = max(gap, abs(min(sums[at + y] * scale, 1.0) - belief[y]))
                    if sums[at + y] >= TINY:
                        margins[at + y] = fast_log(sums[at + y]) + shift
                    else:
                        margins[at + y] = -np.inf
                        is_too_small |= log_belief[begin + y] > -np.inf
            else:
                log_add_up(
                    log_belief, start, size, maps, link_map[link], top, margins, at, n_entries
                )
                for y in range(n_entries):
                    gap = max(gap, abs(fast_exp(min(margins[at + y], 0.0)) - belief[y]))
            for y in range(n_entries):
                if margins[at + y] > -np.inf:
                    if agrees_in_logs:
                        gap = max(gap, abs(margins[at + y] - log_belief[begin + y]) - rounding)
                    target[y] += weight * (margins[at + y] - multiplier[message + y])
                else:
                    target[y] = -np.inf
        if is_too_small:  # nothing has been changed yet: once more, with logarithms
            rebuild_example(arrays, model, state, bounds, example)
            is_linear = False
            continue

        # the new belief
        largest, total = -np.inf, 0.0
        for y in range(n_entries):
            target[y] *= inverse_total
            largest = max(largest, target[y])
        if largest == -np.inf:
            return widest, n_outer + inner
        for y in range(n_entries):
            top[y] = fast_exp(target[y] - largest)
            total += top[y]
        log_norm = largest + fast_log(total)
        state.log_norm[inner] = log_norm
        for y in range(n_entries):
            gap = max(gap, abs(top[y] / total - belief[y]))
            belief[y] = top[y] / total
            if target[y] > -np.inf:
                target[y] = max(target[y] - log_norm, floor)
                if agrees_in_logs:
                    gap = max(gap, abs(target[y] - log_belief[begin + y]) - rounding)
        if damping > 0.0 and tangent > 0.0:
            total = 0.0
            for y in range(n_entries):
                if target[y] > -np.inf:
                    target[y] += damping * (log_belief[begin + y] - target[y])
                belief[y] = fast_exp(target[y])
                total += belief[y]
            for y in range(n_entries):
                target[y] -= fast_log(total)
                belief[y] /= total
        for y in range(n_entries):
            log_belief[begin + y] = target[y]

        # what goes out
        for link in range(first, last):
            outer = link_outer[link]
            start, size = table_offsets[outer], table_offsets[outer + 1] - table_offsets[outer]
            at, message = (link - first) * n_entries, message_offsets[link]
            for y in range(n_entries):
                if target[y] > -np.inf:
                    top[y] = target[y] - margins[at + y]
                    multiplier[message + y] += top[y]
                    if not abs(multiplier[message + y]) < DIVERGED * -floor:
                        gap = np.inf
                else:
                    top[y] = -np.inf
                    multiplier[message + y] = -np.inf
            if is_linear:
                for y in range(n_entries):
                    top[y] = belief[y] / sums[at + y] if target[y] > -np.inf else 0.0
                shifts[outer - first_outer], scales[outer - first_outer] = 0.0, 1.0
                multiply(
                    linear, start - linear_shift, size, maps, link_map[link], link_run[link], top
                )
            else:
                for x in range(size):
                    log_belief[start + x] += load(top, load(maps, link_map[link] + x))
        widest = max(widest, gap)
        step += 1
    return widest, -1


@kernel
def sweep_examples(
    arrays: RegionArrays,
    model: RegionModel,
    state: RegionState,
    bounds: Bounds,
    examples: NDArray[np.int64],
    moves_tangents: bool,
    damping: FloatArray,
    tol: FloatArray,
    max_sweeps: int,
    gaps: FloatArray,
    n_sweeps: NDArray[np.int64],
) -> int:
    """Sweeps of each example until its regions agree to its ``tol``; -1, or the impossible region.

    Sweeps alternate their direction, so that information crosses a grid in one of them.  ``gaps``
    receives the last disagreement of each example, ``n_sweeps`` is added to.
    """
    scratch = make_scratch(arrays, bounds, examples)
    for example in examples:
        gap = 0.0
        for sweep in range(max_sweeps):
            rebuild_example(arrays, model, state, bounds, example)
            fill_linear(arrays, state, bounds, example, scratch)
            gap, impossible = sweep_example(
                arrays, model, state, scratch, bounds, example, sweep % 2 == 1, moves_tangents,
                damping[example],
            )  # fmt: skip
            if impossible >= 0:
                return impossible
            n_sweeps[example] += 1
            if gap <= tol[example] or gap == np.inf:
                break
        rebuild_example(arrays, model, state, bounds, example)
        gaps[example] = gap
    return -1


@kernel
def fill_linear(
    arrays: RegionArrays, state: RegionState, bounds: Bounds, example: int, scratch: RegionScratch
) -> None:
    """Probabilities of the outer regions of an example, with maximum one."""
    first = bounds.outer[example]
    base = arrays.table_offsets[first]
    for outer in range(first, bounds.outer[example + 1]):
        begin, end = arrays.table_offsets[outer], arrays.table_offsets[outer + 1]
        shift = -np.inf
        for entry in range(begin, end):
            shift = max(shift, state.log_belief[entry])
        if shift == -np.inf:
            shift = 0.0
        scratch.shifts[outer - first] = shift
        scratch.scales[outer - first] = fast_exp(min(shift, 0.0))  # above 0: not yet normalised
        for entry in range(begin, end):
            scratch.linear[entry - base] = fast_exp(state.log_belief[entry] - shift)


@kernel
def rebuild_outer(
    arrays: RegionArrays,
    model: RegionModel,
    state: RegionState,
    bounds: Bounds,
    examples: NDArray[np.int64],
) -> None:
    """Log-beliefs of outer regions from the multipliers, so that no rounding adds up."""
    for example in examples:
        rebuild_example(arrays, model, state, bounds, example)


@kernel
def rebuild_example(
    arrays: RegionArrays, model: RegionModel, state: RegionState, bounds: Bounds, example: int
) -> None:
    """`rebuild_outer` of one example."""
    first = arrays.table_offsets[bounds.outer[example]]
    last = arrays.table_offsets[bounds.outer[example + 1]]
    for entry in range(first, last):
        state.log_belief[entry] = model.potential[entry]
    for link in range(
        arrays.link_offsets[bounds.inner[example]], arrays.link_offsets[bounds.inner[example + 1]]
    ):
        outer = arrays.link_outer[link]
        at, base = arrays.message_offsets[link], arrays.link_map[link]
        start = arrays.table_offsets[outer]
        for x in range(arrays.table_offsets[outer + 1] - start):
            state.log_belief[start + x] += state.multiplier[at + load(arrays.maps, base + x)]


@kernel
def dual_values(
    arrays: RegionArrays,
    model: RegionModel,
    state: RegionState,
    bounds: Bounds,
    examples: NDArray[np.int64],
    values: FloatArray,
    changes: FloatArray,
) -> int:
    """Value of the concave problem plus what its tangents leave out; -1, or the impossible region.

    A tangent leaves out ``tangent_s KL(b_s, old_s)``.  ``changes`` receives the largest change of
    an inner belief from ``old`` (of its logarithm where these must agree), or, if there is no inner
    region, 0.
    """
    shift = arrays.table_offsets[arrays.n_outer]
    for example in examples:
        value, change, rounding = 0.0, 0.0, ROUNDING * -model.floor[example]
        for outer in range(bounds.outer[example], bounds.outer[example + 1]):
            total = log_total(
                state.log_belief, arrays.table_offsets[outer], arrays.table_offsets[outer + 1]
            )
            if total == -np.inf:
                return outer
            value += model.weight[outer] * total
        for inner in range(bounds.inner[example], bounds.inner[example + 1]):
            value += model.total[inner] * state.log_norm[inner]
            region = arrays.n_outer + inner
            left_out = 0.0
            for entry in range(arrays.table_offsets[region], arrays.table_offsets[region + 1]):
                log_belief = state.log_belief[entry]
                if log_belief == -np.inf:
                    continue
                belief, old = np.exp(log_belief), state.old[entry - shift]
                left_out += belief * (log_belief - old)
                change = max(change, abs(belief - np.exp(min(old, 0.0))))
                if model.agrees_in_logs[example] and old > -np.inf:
                    change = max(change, abs(log_belief - old) - rounding)
            value += model.tangent[inner] * left_out
        values[example] = value
        changes[example] = change
    return -1
