r"""Max-product (max-sum) belief propagation for MAP, with a dual bound as certificate.

    m_ai(y_i) = max_{y_a \\ y_i} th_a(y_a) + sum_{j != i} lam_aj(y_j)

The zero-temperature limit of `SumProduct`: exact on acyclic graphs (Viterbi), a good heuristic
elsewhere.  Labels are decoded one variable after the other, improved by single-variable changes
(iterated conditional modes), and compared with a dual bound: if the two meet, the labelling is
proved optimal.  With `TreeReweighted` weights this is tree-reweighted max-product (TRW), with
`Convex` ones block-coordinate descent on the dual of the LP relaxation (as MPLP is).

References: Pearl, "Probabilistic Reasoning in Intelligent Systems" (1988); Weiss and Freeman, "On
the optimality of solutions of the max-product belief propagation algorithm", IEEE Transactions on
Information Theory 47 (2001); Wainwright, Jaakkola and Willsky, "MAP estimation via agreement on
trees", same journal 51 (2005); Besag, "On the statistical analysis of dirty pictures", J. Royal
Statistical Society B 48 (1986), for iterated conditional modes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, Index, IntArray
from fieldfit._validation import (
    require_instance,
    require_integer,
    require_number,
    require_one_of,
)
from fieldfit.entropy.counting_numbers import Bethe, Convex, Entropy
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.result import MapResult
from fieldfit.graph.spanning_forests import forest_cover, label_components, rooted_order
from fieldfit.graph.structure import Structure, greedy_colors
from fieldfit.inference.base import Evidence, Progress, ending, require_model
from fieldfit.inference.map.base import MapSearch, certified_result
from fieldfit.inference.map.max_update import decode, dual_bounds, run_max_sweeps
from fieldfit.inference.messages.message_arrays import (
    CONTRADICTION,
    NO_WEIGHT,
    Model,
    State,
)
from fieldfit.inference.messages.message_run import (
    at_floor,
    build_model,
    initial_state,
    raise_contradiction,
)
from fieldfit.inference.messages.schedule import cached_plan, common_labels
from fieldfit.numeric.compile import kernel

__all__ = ["MaxProduct", "iterated_conditional_modes", "message_bounds"]

SCHEDULES = ("sequential", "flooding", "tree")
#: Sweeps between two calls of ``progress``.
REPORT_EVERY = 8


@dataclass(frozen=True, kw_only=True)
class MaxProduct(MapSearch):
    """Max-product with an entropy's weights and a schedule.

    Parameters
    ----------
    entropy
        Weights of the messages; `Bethe()` is plain max-product.
    schedule
        ``"sequential"``, ``"flooding"`` or ``"tree"``.
    damping, tol, max_iter
        As in `SumProduct`.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.0, 1.0], None, [2.0, 0.0]])
    >>> result = ff.MaxProduct().run(graph, potentials)
    >>> result.score, result.optimal
    (3.0, True)
    """

    entropy: Entropy = field(default_factory=Bethe, kw_only=False)
    schedule: str = "sequential"
    damping: float = 0.0
    tol: float = 1e-8
    max_iter: int = 1000

    def __post_init__(self) -> None:
        require_instance("entropy", self.entropy, Entropy, "Bethe() or TreeReweighted()")
        require_one_of("schedule", self.schedule, SCHEDULES)
        require_number("damping", self.damping, at_least=0, below=1)
        require_number("tol", self.tol, above=0)
        require_integer("max_iter", self.max_iter, at_least=1)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        graph = batch.graph
        counting = self.entropy.counting_numbers(graph)
        model = build_model(graph, potentials, counting, observed)
        state = initial_state(graph, model, None)
        n_iter, residual = self._sweep(graph, model, state, progress)
        labels = np.empty(graph.n_variables, dtype=np.int32)
        decode(graph.structure, model, state, _root_first(graph), labels)
        scores = _improve(batch, potentials, model, labels)
        converged = residual <= self.tol and not at_floor(graph, model, state).any()
        if converged and graph.is_acyclic:
            bounds = scores
        else:
            bounds = _dual_bounds(batch, model, state)
            if converged:
                bounds = np.where(_acyclic_examples(batch), scores, bounds)
        sweeps = f"{n_iter} sweep{'s' if n_iter != 1 else ''}"
        return certified_result(
            labels,
            scores,
            bounds,
            how=ending(
                np.array([converged]),
                f"largest change of a message {residual:.2g} after {sweeps}",
                self.tol,
            ),
            method=f"MaxProduct({self.entropy.name}, {self.schedule})",
            converged=converged,
            n_iter=n_iter,
        )

    def _sweep(
        self, graph: FactorGraph, model: Model, state: State, progress: Progress | None
    ) -> tuple[int, float]:
        """Sweep until messages stand still; the number of sweeps and the last change."""
        is_bethe = bool(np.all(model.factor_weight == 1.0) and np.all(model.variable_total == 1.0))
        plan = cached_plan(graph, self.schedule, is_bethe=is_bethe)
        k = common_labels(graph)
        n_iter, residual = 0, np.inf
        per_call = self.max_iter if progress is None else REPORT_EVERY
        while n_iter < self.max_iter and residual > self.tol:
            n_sweeps, residual, flags = run_max_sweeps(
                k, graph.structure, plan, model, state, self.damping, self.tol,
                min(per_call, self.max_iter - n_iter),
            )  # fmt: skip
            n_iter += n_sweeps
            if flags & CONTRADICTION:
                raise_contradiction(graph, state)
            if progress is not None:
                progress(n_iter, float(residual))
        return n_iter, float(residual)


def _root_first(graph: FactorGraph) -> IntArray:
    """Variables of a spanning forest from the roots outwards, so that parents come first."""
    cover = forest_cover(graph)
    if len(cover) == 0:
        return np.arange(graph.n_variables, dtype=np.int32)
    return rooted_order(graph, cover[0]).variables


def _improve(batch: Batch, potentials: Potentials, model: Model, labels: IntArray) -> FloatArray:
    """Change single labels, colour by colour, while that raises the score; the scores."""
    structure = batch.graph.structure
    order = np.argsort(greedy_colors(structure), kind="stable").astype(np.int32)
    iterated_conditional_modes(structure, model.unary, model.log_table, order, labels)
    return batch.scores(potentials, labels)


def _dual_bounds(batch: Batch, model: Model, state: State) -> FloatArray:
    """The smaller of two upper bounds on the score, for each example."""
    by_factor = np.empty((2, batch.graph.n_factors))
    by_variable = np.empty((2, batch.graph.n_variables))
    dual_bounds(batch.graph.structure, model, state, by_factor, by_variable)
    own, shared = (
        batch.sum_factors(by_factor[row]) + batch.sum_variables(by_variable[row])
        for row in range(2)
    )
    return np.minimum(own, shared)


def _acyclic_examples(batch: Batch) -> BoolArray:
    """Which examples have no cycle: the nodes of a forest are its edges and one for each tree."""
    graph = batch.graph
    trees = np.empty(graph.n_variables, dtype=np.int32)
    joining = graph.arities >= 2
    label_components(graph.scope_offsets, graph.slot_variables, joining, trees)
    # components are numbered by their first variable, so a new number opens a new component
    is_first = np.ones(graph.n_variables)
    is_first[1:] = trees[1:] > np.maximum.accumulate(trees)[:-1]
    n_trees = batch.sum_variables(is_first)
    n_edges = batch.sum_factors(np.where(joining, graph.arities, 0).astype(np.float64))
    n_nodes = np.diff(batch.variable_offsets) + batch.sum_factors(joining.astype(np.float64))
    acyclic: BoolArray = n_edges == n_nodes - n_trees
    return acyclic


def message_bounds(
    batch: Batch, potentials: Potentials, observed: Evidence, n_sweeps: int
) -> FloatArray:
    """Upper bounds by a few sweeps of convex max-product, one for each example.

    Messages of any quality give a valid bound.  Convex weights need no spanning trees, and their
    messages are steps of block-coordinate descent on the dual, so that the bound does not get
    worse.
    """
    graph, structure = batch.graph, batch.graph.structure
    model = build_model(graph, potentials, Convex().counting_numbers(graph), observed)
    state = initial_state(graph, model, None)
    plan = cached_plan(graph, "sequential", is_bethe=False)
    k = common_labels(graph)
    flags = run_max_sweeps(k, structure, plan, model, state, 0.0, 1e-12, n_sweeps)[2]
    if flags & CONTRADICTION:
        raise_contradiction(graph, state)
    return _dual_bounds(batch, model, state)


# -- Iterated conditional modes: single-variable ascent on the score of a labelling --------


@kernel
def conditional_scores(
    structure: Structure,
    unary: FloatArray,
    log_table: FloatArray,
    variable: Index,
    labels: IntArray,
    forbidden: IntArray,
    scores: FloatArray,
) -> None:
    """Score of each label of one variable given the others, and how many factors forbid it.

    A label that is excluded by itself counts as more than all factors, so that no broken constraint
    is mended at the cost of evidence.
    """
    first = structure.variable_slot_offsets[variable]
    last = structure.variable_slot_offsets[variable + 1]
    for y in range(structure.cardinalities[variable]):
        value = unary[structure.unary_offsets[variable] + y]
        forbidden[y] = 1 + last - first if value == NO_WEIGHT else 0
        scores[y] = 0.0 if value == NO_WEIGHT else value
    for position in range(first, last):
        slot = structure.variable_slots[position]
        factor = structure.slot_factors[slot]
        entry, stride = 0, 1
        for other in range(
            structure.scope_offsets[factor + 1] - 1, structure.scope_offsets[factor] - 1, -1
        ):
            j = structure.slot_variables[other]
            if other == slot:
                own_stride = stride
            else:
                entry += stride * labels[j]
            stride *= structure.cardinalities[j]
        start = structure.table_offsets[factor] + entry
        for y in range(structure.cardinalities[variable]):
            value = log_table[start + y * own_stride]
            if value == NO_WEIGHT:
                forbidden[y] += 1
            else:
                scores[y] += value


@kernel
def iterated_conditional_modes(
    structure: Structure,
    unary: FloatArray,
    log_table: FloatArray,
    order: IntArray,
    labels: IntArray,
) -> int:
    """Set each variable to its best label until nothing changes; number of changes.

    Labels that are not excluded by themselves come first, then fewer broken hard constraints, then
    the score; each change improves one of these, so this ends.  A gain must exceed rounding to
    count.
    """
    most = 1
    for i in range(len(structure.cardinalities)):
        most = max(most, structure.cardinalities[i])
    forbidden = np.empty(most, dtype=np.int32)
    scores = np.empty(most)
    n_changes = 0
    changed = True
    while changed:
        changed = False
        for i in order:
            conditional_scores(structure, unary, log_table, i, labels, forbidden, scores)
            best = labels[i]
            for y in range(structure.cardinalities[i]):
                gain = scores[y] - scores[best]
                margin = 1e-12 * (1.0 + abs(scores[best]))
                if forbidden[y] < forbidden[best] or (
                    forbidden[y] == forbidden[best] and gain > margin
                ):
                    best = y
            if best != labels[i]:
                labels[i] = best
                changed = True
                n_changes += 1
    return n_changes
