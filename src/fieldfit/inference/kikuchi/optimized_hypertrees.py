r"""Reweighted Kikuchi values as proved bounds, and weights that make them tight.

As a function of the distribution ``rho`` over hypertrees the bound is

    B(rho) = max_b <th, b> + sum_T rho(T) H_T(b),

a maximum of functions linear in ``rho``, hence convex, with derivative ``H_T(b*)``.  A step of the
conditional gradient method goes towards a hypertree of small entropy under the beliefs.  The best
one is hard to find; a good one is the best of those of the first mixture and of some that are grown
greedily by information.  The step is halved until the bound improves, so the bound never loosens.
The bound of a trial holds whether its sweeps have converged or not, so they need not; only the
weights that are kept are solved to the end.

Reference: Wainwright, Jaakkola and Willsky (2005), sections VI and VII.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.graph.ragged import reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.kikuchi.hypertree_bound import TermPlan, upper_bounds
from fieldfit.inference.kikuchi.hypertree_entropy import HypertreeMixture, ReweightedRegions
from fieldfit.inference.kikuchi.hypertrees import EntropyTerms, Forest, forest_of, mixture_terms
from fieldfit.inference.kikuchi.kikuchi_run import RegionRun

__all__ = ["solve_reweighted"]

MAX_STEPS = 50
MAX_HALVINGS = 6
#: Fraction of the first mixture that every hypertree keeps: no weight of an outer region can then
#: vanish, by which messages divide. The bound loosens by at most this fraction.
KEPT = 0.02
#: Stop when the hypertrees that are known can gain at most this much, relative to the bound.
RELATIVE_GAP = 1e-4
#: Sweeps of plain messages in a trial, and once more in a round of the double loop.
TRIAL_SWEEPS = 200

#: Sweeps between two looks at a bound that is above its value though regions agree, and most looks.
SWEEPS_PER_LOOK = 8
MAX_LOOKS = 25
#: What rounding leaves of a bound, relative to its size.
SLACK = 1e-13

Solve = Callable[..., tuple[RegionRun, InferenceResult]]


def solve_reweighted(
    reweighted: ReweightedRegions, solve: Solve, start: object, is_optimized: bool
) -> InferenceResult:
    """Beliefs and proved bounds; ``solve`` runs sweeps on regions with given counting numbers."""
    run, best = _bounded(reweighted, solve, start)
    if not is_optimized or reweighted.regions.is_acyclic:
        return best
    first = reweighted
    for step in range(MAX_STEPS):
        target = _target(first, run)
        bounds = np.asarray(best.log_partitions)
        gap = _entropies_by_example(reweighted, run) - _entropies_by_example(target, run)
        wanted = gap > RELATIVE_GAP * np.maximum(1.0, np.abs(bounds))
        if not wanted.any():
            break
        size = np.where(wanted, 2.0 / (step + 2.0) if step else 0.5, 0.0)
        moved = _step(reweighted, target, size, bounds, solve, run.state)
        if moved is None:
            break
        reweighted, run, best = moved
    if not best.converged:
        last = _bounded(reweighted, solve, run.state)[1]
        values = np.minimum(np.asarray(last.log_partitions), np.asarray(best.log_partitions))
        best = replace(last, log_partition=float(values.sum()), log_partitions=values)
    return best


def _bounded(
    reweighted: ReweightedRegions, solve: Solve, start: object, *limits: int
) -> tuple[RegionRun, InferenceResult]:
    """A run whose value is a bound at its multipliers, whatever they are."""
    run, found = solve(reweighted.regions, start, *limits)
    if found.bound == "exact":
        return run, found
    values = _tightened(run, found, TermPlan(reweighted))
    return run, replace(
        found, log_partition=float(values.sum()), log_partitions=values, bound="upper"
    )


def _tightened(run: RegionRun, found: InferenceResult, plan: TermPlan) -> FloatArray:
    """Bounds of all examples, as close to the values of the run as regions agree.

    Regions agree when probabilities do; a bound takes maxima over labels, whose logarithms may
    still be off where probabilities vanish.  More sweeps bring these to rest.
    """
    values, goals = upper_bounds(run, plan), np.asarray(found.log_partitions)
    none = np.zeros(run.batch.n_examples)
    loose = np.asarray(found.converged_examples)
    slack = np.maximum(run.gaps, SLACK) * np.maximum(1.0, np.abs(goals))
    for _ in range(MAX_LOOKS):
        loose = loose & (values > goals + slack)
        if not loose.any():
            break
        before, gaps = run.copy_of_state(), run.gaps.copy()
        left = np.flatnonzero(loose)
        run.sweep(left, none, SWEEPS_PER_LOOK, none)
        values = np.minimum(values, upper_bounds(run, plan))
        lost = left[run.gaps[left] > np.maximum(2.0 * gaps[left], SLACK)]
        run.reset(lost, before)
        run.gaps[lost] = gaps[lost]
        loose[lost] = False
    return values


def _step(
    reweighted: ReweightedRegions,
    target: ReweightedRegions,
    size: FloatArray,
    bounds: FloatArray,
    solve: Solve,
    start: object,
) -> tuple[ReweightedRegions, RegionRun, InferenceResult] | None:
    """The longest of some steps that improves the bound of every example that moves."""
    for _ in range(MAX_HALVINGS):
        trial = reweighted.with_terms(_mixed(reweighted, target, size))
        run, found = _bounded(trial, solve, start, TRIAL_SWEEPS)
        gained = np.asarray(found.log_partitions) < bounds
        accepted = gained | (size == 0.0)
        if accepted.all():
            return (trial, run, found) if (size > 0.0).any() else None
        size = np.where(accepted, size, size / 2.0)
    # keep what helped: steps of the examples that gained, none for the others
    size = np.where(gained, size, 0.0)
    if not (size > 0.0).any():
        return None
    trial = reweighted.with_terms(_mixed(reweighted, target, size))
    run, found = _bounded(trial, solve, start, TRIAL_SWEEPS)
    is_better = bool(np.all(np.asarray(found.log_partitions) <= bounds))
    return (trial, run, found) if is_better else None


def _mixed(
    reweighted: ReweightedRegions, target: ReweightedRegions, size: FloatArray
) -> EntropyTerms:
    """Each example some way towards the target."""
    by_region = np.zeros(reweighted.regions.n_regions)
    parts = len(reweighted.firsts)
    for part in range(parts):
        own = reweighted.part_regions(part)
        by_region[own] = size[part] if parts == len(size) else size.min()
    return reweighted.terms.mixed(target.terms, by_region)


def _target(first: ReweightedRegions, run: RegionRun) -> ReweightedRegions:
    """The best known hypertree of each part, with a fraction of the first mixture."""
    entropies = _region_entropies(run)
    upper, lower, weight = [], [], []
    for part, mixture in enumerate(first.mixtures):
        own = first.part_regions(part)
        forest = _best_forest(mixture, entropies[own])
        terms = mixture_terms([forest], np.ones(1))
        upper.append(own[terms.upper])
        lower.append(np.where(terms.lower < 0, -1, own[terms.lower]))
        weight.append(terms.weight)
    best = EntropyTerms(np.concatenate(upper), np.concatenate(lower), np.concatenate(weight))
    return first.with_terms(best.mixed(first.terms, np.full(first.regions.n_regions, KEPT)))


def _best_forest(mixture: HypertreeMixture, entropies: FloatArray) -> Forest:
    """The forest of smallest entropy among those of the mixture and some grown greedily."""
    nesting = mixture.nesting
    sizes = np.diff(nesting.scope_offsets)
    singles = np.empty(mixture.n_variables)
    is_single = sizes == 1
    singles[nesting.scope_variables[nesting.scope_offsets[:-1][is_single]]] = entropies[is_single]
    around = reduce_rows(np.add, singles[nesting.scope_variables], nesting.scope_offsets)
    information = around - entropies  # of all variables of a region about each other
    candidates = list(mixture.forests)
    for score in (information, information / np.maximum(sizes - 1, 1)):
        order = np.argsort(-score, kind="stable")
        candidates.append(forest_of(nesting, mixture.n_variables, order))
    return min(candidates, key=lambda forest: forest.entropy(entropies))


def _region_entropies(run: RegionRun) -> FloatArray:
    """``H(b_r)`` of every region at the beliefs of the run."""
    logs = run.state.log_belief
    finite = np.where(np.isneginf(logs), 0.0, logs)
    return -reduce_rows(np.add, np.exp(logs) * finite, run.regions.table_offsets)


def _entropies_by_example(reweighted: ReweightedRegions, run: RegionRun) -> FloatArray:
    """``sum_r c_r H(b_r)`` of each example."""
    terms = reweighted.regions.counts * _region_entropies(run)
    n_outer = reweighted.regions.n_outer
    values = np.zeros(run.batch.n_examples)
    for part, bounds in ((terms[:n_outer], run.bounds.outer), (terms[n_outer:], run.bounds.inner)):
        np.add.at(values, np.repeat(run.everyone, np.diff(bounds)), part)
    return values
