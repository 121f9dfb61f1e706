r"""Upper bounds on a reweighted Kikuchi value at any multipliers, converged or not.

The entropy is a sum of terms ``k_t [H(b_r) - H(b_s)]`` with ``s`` inside ``r`` or empty
(`fieldfit.inference.kikuchi.hypertrees`).  For any table ``f`` on ``r``, given ``b_s``,

    k [H(b_r) - H(b_s)] + <f, b_r>  <=  <g, b_s>,    g(y_s) = k log sum_{y_r \ y_s} exp(f(y_r) / k).

So potentials can be passed from large regions to small ones.  Let ``Theta_r`` be all that ``r`` has
been given (its own potentials, what came from larger regions, and multipliers: what is moved from
one region to another changes nothing on consistent beliefs), and ``K_r`` the sum of ``k_t`` over
the terms with ``r`` on top.  Each of these takes its share ``k_t / K_r`` of ``Theta_r`` and passes
on

    k_t log sum_{y_r \ y_s} exp(Theta_r(y_r) / K_r)

to ``s``; what arrives at the empty region is the bound.  A region without a term on top passes on
the maximum of its ``Theta_r``.  For outer regions ``exp(Theta_r / K_r)`` are the beliefs of the
sweeps, not normalised.  At the maximum ``Theta_r = K_r log b_r`` for all regions, and the bound is
attained.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.graph.ragged import offsets_of
from fieldfit.inference.kikuchi.hypertree_entropy import ReweightedRegions
from fieldfit.inference.kikuchi.hypertrees import weighted_counts
from fieldfit.inference.kikuchi.kikuchi_run import RegionRun
from fieldfit.inference.kikuchi.region_graph import MapPool
from fieldfit.inference.kikuchi.region_sets import SetFamily
from fieldfit.inference.kikuchi.region_sweeps import RegionArrays, RegionModel, RegionState
from fieldfit.inference.kikuchi.region_tables import log_add_up, log_total
from fieldfit.numeric.compile import kernel

__all__ = ["TermPlan", "upper_bounds"]


class TermPlan:
    """Terms of an entropy by their upper region, large ones first, with maps between tables."""

    def __init__(self, reweighted: ReweightedRegions) -> None:
        regions, terms = reweighted.regions, reweighted.terms
        sizes = np.diff(regions.scope_offsets)
        n_regions, n_variables = regions.n_regions, len(regions.cardinalities)
        # nothing lies in a region that is not larger
        self.order = np.argsort(-sizes, kind="stable").astype(np.int64)
        by_upper = np.argsort(terms.upper, kind="stable")
        self.lower, self.weight = terms.lower[by_upper], terms.weight[by_upper]
        self.offsets = offsets_of(np.bincount(terms.upper, minlength=n_regions))
        self.totals = weighted_counts(terms.upper, terms.weight, n_regions)
        family = SetFamily.from_flat(regions.scope_variables, sizes, n_variables)
        pool = MapPool(family, np.concatenate([regions.cardinalities, [1]])[family.rows])
        inside = self.lower >= 0
        self.map_starts = np.zeros(len(self.lower), dtype=np.int64)
        self.map_starts[inside] = pool.maps(
            terms.upper[by_upper][inside], family.rows[self.lower[inside]]
        )
        self.maps = pool.joined()


def upper_bounds(run: RegionRun, plan: TermPlan) -> FloatArray:
    """A bound for each example, from the multipliers where the run is."""
    regions, by_region = run.regions, np.zeros(run.regions.n_regions)
    given = np.empty(regions.n_tables)
    _pass_down(
        regions.arrays, run.model, run.state, plan.order, plan.offsets, plan.lower, plan.weight,
        plan.totals, plan.map_starts, plan.maps, given, by_region,
    )  # fmt: skip
    n_outer = regions.n_outer
    values = run.constants.copy()
    for part, bounds in (
        (by_region[:n_outer], run.bounds.outer),
        (by_region[n_outer:], run.bounds.inner),
    ):
        np.add.at(values, np.repeat(run.everyone, np.diff(bounds)), part)
    return values


@kernel
def _pass_down(
    arrays: RegionArrays,
    model: RegionModel,
    state: RegionState,
    order: NDArray[np.int64],
    offsets: LongArray,
    lower: LongArray,
    weight: FloatArray,
    totals: FloatArray,
    map_starts: LongArray,
    maps: IntArray,
    given: FloatArray,
    by_region: FloatArray,
) -> None:
    """What each region passes on to the empty one; ``given`` is room for all tables."""
    n_outer, tables = arrays.n_outer, arrays.table_offsets
    widest = 1
    for region in range(len(tables) - 1):
        widest = max(widest, tables[region + 1] - tables[region])
    top, margins = np.empty(widest), np.empty(widest)
    # beliefs of outer regions, and what inner ones have of their own and by multipliers
    for entry in range(tables[n_outer]):
        given[entry] = state.log_belief[entry]
    for entry in range(tables[n_outer], tables[-1]):
        given[entry] = model.potential[entry]
    for inner in range(len(arrays.link_offsets) - 1):
        begin = tables[n_outer + inner]
        size = tables[n_outer + inner + 1] - begin
        for link in range(arrays.link_offsets[inner], arrays.link_offsets[inner + 1]):
            at, number = arrays.message_offsets[link], model.weight[arrays.link_outer[link]]
            for y in range(size):
                multiplier = state.multiplier[at + y]
                if multiplier > -np.inf:
                    given[begin + y] -= number * multiplier
                else:  # no configuration of the outer region has these labels
                    given[begin + y] = -np.inf
    for region in order:
        begin, end = tables[region], tables[region + 1]
        if region >= n_outer:
            total = totals[region]
            if total == 0.0:
                by_region[region] = given[begin:end].max()
                continue
            for entry in range(begin, end):
                given[entry] /= total
        for term in range(offsets[region], offsets[region + 1]):
            below = lower[term]
            if below < 0:
                by_region[region] += weight[term] * log_total(given, begin, end)
                continue
            start, n_entries = tables[below], tables[below + 1] - tables[below]
            log_add_up(
                given, begin, end - begin, maps, map_starts[term], top, margins, 0, n_entries
            )
            for y in range(n_entries):
                if margins[y] > -np.inf:
                    given[start + y] += weight[term] * margins[y]
                else:
                    given[start + y] = -np.inf
