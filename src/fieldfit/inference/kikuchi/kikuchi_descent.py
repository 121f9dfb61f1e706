"""k-step descent of Kikuchi's free energy from a data point, for contrastive objectives.

The start is a product of given unary beliefs, a consistent point of every region graph, with the
free energy ``- <th, b> - sum_i H(b_i)`` (every variable counts once).  Each round replaces
negative entropies by their tangents at the last beliefs and solves the concave problem that is
left, so that the free energy falls, and the difference to that of the start is a contrastive free
energy of at least 0.  Observed variables stay points.

With hidden variables the start is an earlier descent, of the hidden ones alone, with a little of
the uniform distribution mixed in: a mixture of consistent beliefs is consistent, and a tangent at
probability zero would hold the observed labels where they are.

Reference: Welling and Sutton, "Learning in Markov random fields with contrastive free energies",
AISTATS 2005 (section on Kikuchi's free energy).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import BoolArray, FloatArray
from fieldfit._validation import require_integer, require_number
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, folded_unary, require_graph
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.inference.kikuchi.kikuchi_run import RegionRun, run_rounds
from fieldfit.inference.kikuchi.region_graph import RegionGraph, Regions
from fieldfit.inference.kikuchi.region_tables import kikuchi_terms, product_tables_of_regions

__all__ = ["KikuchiDescent", "descend_kikuchi"]

#: Least log-belief where a tangent may lie: no label is excluded for good.
LOG_SMALLEST = -690.0


@dataclass(frozen=True)
class KikuchiDescent:
    """Beliefs and free energies at the start and the end of the descent.

    Attributes
    ----------
    unary, factors
        Beliefs, laid out by the graph of the batch.
    start_unary, start_factors
        Likewise, where it began.
    free_energies, start_free_energies
        Of each example, at the end and at the start; the first is never larger.
    converged_examples
        Examples whose rounds were solved: the regions agree.
    moving_examples
        Examples that another round would change by more than the tolerance.
    log_belief
        Of all regions, to start another descent from; not meant to be read.
    """

    unary: FloatArray
    factors: FloatArray
    start_unary: FloatArray
    start_factors: FloatArray
    free_energies: FloatArray
    start_free_energies: FloatArray
    converged_examples: BoolArray
    moving_examples: BoolArray
    log_belief: FloatArray = field(repr=False)


def descend_kikuchi(
    batch: Batch | FactorGraph,
    potentials: Potentials,
    start: FloatArray | KikuchiDescent,
    n_rounds: int,
    free: ArrayLike | None = None,
    regions: Regions = "plaquettes",
    smoothing: float = 0.0,
    tol: float = 1e-5,
    max_iter: int = 1000,
    n_jobs: int | None = None,
) -> KikuchiDescent:
    """Let beliefs descend Kikuchi's free energy for some rounds.

    Parameters
    ----------
    batch, potentials
        The model.
    start
        Flat unary beliefs, normalised by variable (smoothed data, for example), whose product is
        the start; or an earlier descent with these regions.
    n_rounds
        Rounds; 0 leaves everything at the start.
    free
        One flag for each variable; those that are not free stay at their label of largest belief.
        ``None``: all are free.
    smoothing
        Fraction of the uniform distribution that is mixed into an earlier descent, in [0, 1).
    regions, tol, max_iter, n_jobs
        As in `GeneralizedSumProduct`: regions agree to ``tol`` at the end of a round, after at
        most ``max_iter`` sweeps.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> start = np.tile([0.9, 0.1], 9)
    >>> found = descend_kikuchi(graph, ff.Potentials(graph), start, n_rounds=5)
    >>> bool(found.free_energies[0] < found.start_free_energies[0])
    True
    """
    whole = batch if isinstance(batch, Batch) else Batch.of([batch])
    graph = whole.graph
    require_graph(graph, potentials)
    require_integer("n_rounds", n_rounds, at_least=0)
    require_number("smoothing", smoothing, at_least=0, below=1)
    region_graph = RegionGraph.of_batch(whole, regions)
    earlier = start.unary if isinstance(start, KikuchiDescent) else start
    begin_unary, points = _checked_start(graph, earlier, free)
    unary = folded_unary(potentials)
    unary[expand(points, graph.unary_offsets) & (begin_unary == 0.0)] = -np.inf
    run = RegionRun(whole, region_graph, potentials, unary, n_jobs)
    run.model.agrees_in_logs[:] = False  # a descent need not end at the log-partition
    if isinstance(start, KikuchiDescent):
        begin = _mixed(region_graph, start, smoothing)
    else:
        begin = product_log_beliefs(region_graph, graph, begin_unary)
    start_values = kikuchi_values(run, begin)
    run.state.log_belief[:] = begin
    first = run.beliefs()
    values, converged = start_values, np.ones(whole.n_examples, dtype=np.bool_)
    moving = converged.copy()
    if n_rounds:
        run.start_at(np.maximum(begin, LOG_SMALLEST))
        rounds = run_rounds(run, n_rounds, max_iter, tol, accuracy=0.0, start_values=start_values)
        values, converged, moving = rounds.values[-1], run.gaps <= tol, rounds.moving
    last = run.beliefs()
    return KikuchiDescent(
        unary=last.unary_values,
        factors=last.factor_values,
        start_unary=first.unary_values,
        start_factors=first.factor_values,
        free_energies=-values,
        start_free_energies=-start_values,
        converged_examples=converged,
        moving_examples=moving,
        log_belief=run.state.log_belief,
    )


def _mixed(regions: RegionGraph, start: KikuchiDescent, smoothing: float) -> FloatArray:
    """Beliefs of an earlier descent with a fraction of uniform ones."""
    if len(start.log_belief) != regions.n_tables:
        raise InvalidInputError("start must be a descent with these regions")
    if smoothing == 0.0:
        return start.log_belief
    sizes = np.diff(regions.table_offsets)
    uniform = np.repeat(np.log(smoothing / sizes), sizes)
    return np.asarray(np.logaddexp(start.log_belief + np.log1p(-smoothing), uniform))


def product_log_beliefs(regions: RegionGraph, graph: FactorGraph, unary: FloatArray) -> FloatArray:
    """Log-beliefs of all regions, products of unary ones."""
    with np.errstate(divide="ignore"):
        log_unary = np.log(unary)
    log_belief = np.empty(regions.n_tables)
    product_tables_of_regions(
        regions.table_offsets, regions.scope_offsets, regions.scope_variables,
        graph.cardinalities, graph.unary_offsets, log_unary, log_belief,
    )  # fmt: skip
    return log_belief


def kikuchi_values(run: RegionRun, log_belief: FloatArray) -> FloatArray:
    """``<th, b> + sum_r c_r H(b_r)`` of each example at given beliefs of all regions."""
    regions, n_outer = run.regions, run.regions.n_outer
    terms = np.empty(regions.n_regions)
    kikuchi_terms(regions.table_offsets, regions.counts, run.model.potential, log_belief, terms)
    values = run.constants.copy()
    for part, bounds in ((terms[:n_outer], run.bounds.outer), (terms[n_outer:], run.bounds.inner)):
        values += reduce_rows(np.add, part, bounds)
    return values


def _checked_start(
    graph: FactorGraph, given: FloatArray, free: ArrayLike | None
) -> tuple[FloatArray, BoolArray]:
    """The start with points where variables are not free, and which those are."""
    start = np.array(given, dtype=np.float64)
    if start.shape != (int(graph.unary_offsets[-1]),):
        raise InvalidInputError(
            f"start must have shape ({int(graph.unary_offsets[-1])},), got {start.shape}"
        )
    sums = reduce_rows(np.add, start, graph.unary_offsets)
    if not ((start >= 0.0).all() and np.allclose(sums, 1.0, rtol=0.0, atol=1e-6)):
        raise InvalidInputError("start must be a distribution for each variable")
    points = np.zeros(graph.n_variables, dtype=np.bool_)
    if free is not None:
        flags = np.asarray(free)
        if flags.shape != (graph.n_variables,) or flags.dtype != np.bool_:
            raise InvalidInputError(
                f"free must be a boolean array of shape ({graph.n_variables},), "
                f"got dtype {flags.dtype} and shape {flags.shape}"
            )
        points = ~flags
    if points.any():
        labels = Beliefs(graph, start, np.zeros(int(graph.table_offsets[-1]))).argmax()
        fixed = expand(points, graph.unary_offsets)
        start[fixed] = 0.0
        start[(graph.unary_offsets[:-1] + labels)[points]] = 1.0
    return start, points
