"""Max-product message passing for MAP labellings, with an upper bound as certificate.

The zero-temperature limit of `SumProduct`: exact on acyclic graphs, a good heuristic elsewhere
(Pearl 1988; Weiss and Freeman 2001; with `TreeReweighted` weights, Wainwright, Jaakkola and
Willsky 2005).  Labels are decoded one after the other, improved by single-variable changes, and
compared with a dual bound: if the two meet, the labelling is proved optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._typing import FloatArray, IntArray
from fieldfit.entropy.counting_numbers import Bethe, Convex, Entropy
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.result import MapResult
from fieldfit.graph.spanning_forests import forest_cover, label_components, rooted_order
from fieldfit.graph.structure import greedy_colors
from fieldfit.inference.map.max_update import decode, dual_bounds, run_max_sweeps
from fieldfit.inference.messages.message_arrays import CONTRADICTION, NO_WEIGHT
from fieldfit.inference.messages.message_run import (
    at_floor,
    build_model,
    initial_state,
    raise_contradiction,
)
from fieldfit.inference.messages.schedule import cached_plan, common_labels
from fieldfit.numeric.compile import kernel

__all__ = ["MaxProduct", "message_bounds"]

#: The bound and the score meet if they differ by less than this, relative to the score.
MEETING = 1e-9


@dataclass(frozen=True)
class MaxProduct:
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

    entropy: Entropy = field(default_factory=Bethe)
    schedule: str = "sequential"
    damping: float = 0.0
    tol: float = 1e-8
    max_iter: int = 1000

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> MapResult:
        """Best labelling found, its score and an upper bound on any score."""
        return self.run_batch(Batch.of([graph]), potentials, observed, progress)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        graph = batch.graph
        if self.schedule not in ("flooding", "sequential", "tree"):
            raise InvalidInputError(
                "schedule must be 'flooding', 'sequential' or 'tree' for MaxProduct, "
                f"got {self.schedule!r}"
            )
        if not 0.0 <= self.damping < 1.0:
            raise InvalidInputError(f"damping must be in [0, 1), got {self.damping}")
        if not self.tol > 0.0:
            raise InvalidInputError(f"tol must be positive, got {self.tol}")
        if self.max_iter < 1:
            raise InvalidInputError(f"max_iter must be at least 1, got {self.max_iter}")
        counting = self.entropy.counting_numbers(graph)
        model = build_model(graph, potentials, counting, observed)
        state = initial_state(graph, model, None)
        is_bethe = bool(np.all(model.factor_weight == 1.0) and np.all(model.variable_total == 1.0))
        plan = cached_plan(graph, self.schedule, is_bethe=is_bethe)
        labels = common_labels(graph)
        structure = graph.structure
        n_iter, residual, flags = 0, np.inf, 0
        per_call = self.max_iter if progress is None else 8
        while n_iter < self.max_iter and residual > self.tol:
            n_sweeps, residual, flags = run_max_sweeps(
                labels, structure, plan, model, state, self.damping, self.tol,
                min(per_call, self.max_iter - n_iter),
            )  # fmt: skip
            n_iter += n_sweeps
            if flags & CONTRADICTION:
                raise_contradiction(graph, state)
            if progress is not None:
                progress(n_iter, float(residual))
        answer = np.empty(graph.n_variables, dtype=np.int32)
        decode(structure, model, state, _root_first(graph), answer)
        answer, scores = _improved(batch, potentials, model, answer)
        converged = bool(residual <= self.tol) and not at_floor(graph, model, state).any()
        if converged and graph.is_acyclic:
            bounds = scores
        else:
            bounds = _bounds(batch, model, state)
            if converged:
                bounds = np.where(_acyclic_examples(batch), scores, bounds)
        # rounding may put the bound a hair below the score of an optimal labelling
        bounds = np.maximum(bounds, scores)
        with np.errstate(invalid="ignore"):  # an impossible labelling with an infinite bound
            meets = bounds - scores <= MEETING * np.maximum(1.0, np.abs(scores))
        proved = (scores > -np.inf) & meets
        score, bound, optimal = float(scores.sum()), float(bounds.sum()), bool(proved.all())
        return MapResult(
            labels=answer,
            score=score,
            upper_bound=bound,
            optimal=optimal,
            status=_status(converged, optimal, score, bound, n_iter, float(residual)),
            method=f"MaxProduct({self.entropy.name}, {self.schedule})",
            converged=converged,
            n_iter=n_iter,
            scores=scores,
            optimal_examples=proved,
        )


def _root_first(graph: FactorGraph) -> NDArray[np.int32]:
    """Variables of a spanning forest from the roots outwards, so that parents come first."""
    cover = forest_cover(graph)
    if len(cover) == 0:
        return np.arange(graph.n_variables, dtype=np.int32)
    return rooted_order(graph, cover[0]).variables


def _improved(
    batch: Batch, potentials: Potentials, model: Any, answer: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Change single labels while that raises the score; colour by colour, all at once."""
    structure = batch.graph.structure
    colors = greedy_colors(structure)
    order = np.argsort(colors, kind="stable").astype(np.int32)
    ascend(structure, model.unary, model.log_table, order, answer)
    return answer, batch.scores(potentials, answer)


def _bounds(batch: Batch, model: Any, state: Any) -> NDArray[np.float64]:
    """The smaller of two upper bounds on the score, for each example."""
    by_factor = np.empty((2, batch.graph.n_factors))
    by_variable = np.empty((2, batch.graph.n_variables))
    dual_bounds(batch.graph.structure, model, state, by_factor, by_variable)
    own, shared = (
        batch.sum_factors(by_factor[row]) + batch.sum_variables(by_variable[row])
        for row in range(2)
    )
    return np.minimum(own, shared)


def _acyclic_examples(batch: Batch) -> NDArray[np.bool_]:
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
    acyclic: NDArray[np.bool_] = n_edges == n_nodes - n_trees
    return acyclic


def _status(
    converged: bool, optimal: bool, score: float, bound: float, n_iter: int, residual: float
) -> str:
    how = "converged" if converged else f"not converged (largest message change {residual:.2g})"
    sweeps = f"{how} after {n_iter} sweep{'s' if n_iter != 1 else ''}"
    if score == -np.inf:
        return f"{sweeps}; the labelling found breaks a hard constraint, try an exact method"
    if optimal:
        return f"{sweeps}; the labelling is optimal"
    return f"{sweeps}; the labelling is at most {bound - score:.3g} below the best score"


# -- Upper bounds on the score of any labelling by a few sweeps of convex max-product ------


def message_bounds(
    batch: Batch,
    potentials: Potentials,
    observed: dict[int, int] | ArrayLike | None,
    n_sweeps: int,
) -> NDArray[np.float64]:
    """One bound for each example; messages of any quality give a valid one.

    Convex weights need no spanning trees, and their messages are steps of block-coordinate descent
    on the dual, so that the bound does not get worse.
    """
    graph, structure = batch.graph, batch.graph.structure
    model = build_model(graph, potentials, Convex().counting_numbers(graph), observed)
    state = initial_state(graph, model, None)
    plan = cached_plan(graph, "sequential", is_bethe=False)
    labels = common_labels(graph)
    flags = run_max_sweeps(labels, structure, plan, model, state, 0.0, 1e-12, n_sweeps)[2]
    if flags & CONTRADICTION:
        raise_contradiction(graph, state)
    by_factor = np.empty((2, graph.n_factors))
    by_variable = np.empty((2, graph.n_variables))
    dual_bounds(structure, model, state, by_factor, by_variable)
    rows = [
        batch.sum_factors(by_factor[row]) + batch.sum_variables(by_variable[row])
        for row in range(2)
    ]
    bounds: NDArray[np.float64] = np.minimum(*rows)
    return bounds


# -- Ascent --------------------------------------------------------------------------------
# Single-variable ascent on the score of a labelling (iterated conditional modes, Besag 1986).


@kernel
def conditional_scores(
    structure: Any,
    unary: FloatArray,
    log_table: FloatArray,
    variable: int,
    labels: IntArray,
    forbidden: IntArray,
    scores: FloatArray,
) -> None:
    """Score of each label of one variable given the others, and how many factors forbid it."""
    for y in range(structure.cardinalities[variable]):
        value = unary[structure.unary_offsets[variable] + y]
        forbidden[y] = 1 if value == NO_WEIGHT else 0
        scores[y] = 0.0 if value == NO_WEIGHT else value
    for position in range(
        structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
    ):
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
def ascend(
    structure: Any, unary: FloatArray, log_table: FloatArray, order: IntArray, labels: IntArray
) -> int:
    """Set each variable to its best label until nothing changes; number of changes.

    Fewer broken hard constraints come first, then the score; each change improves one of the two,
    so this ends.  A gain must exceed rounding to count.
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
