"""Regions of a large problem: some variables, the factors on them, and what those factors touch.

Regions are runs of a breadth-first order, so that they hang together, and overlap with their
neighbours.  A region never holds variables of two examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.inference._convex_problem import ConvexProblem

__all__ = ["Region", "make_regions"]

LongArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Region:
    """A problem with some variables held, and where its numbers lie in the whole one.

    ``entries`` are those of its beliefs in the vector of unary entries and table entries,
    ``messages`` those of its multipliers; ``free`` marks the variables that are not held.
    """

    problem: ConvexProblem
    example: int
    entries: LongArray
    messages: LongArray
    free: NDArray[np.bool_]


def make_regions(problem: ConvexProblem, block_size: int, overlap: int) -> list[Region]:
    """Regions of about ``block_size`` variables each, grown by ``overlap`` steps along factors."""
    from scipy.sparse.csgraph import breadth_first_order

    graph, batch = problem.graph, problem.batch
    touches = _incidence(graph)
    neighbours = (touches.T @ touches).tocsr()
    regions = []
    for example in range(batch.n_examples):
        begin, end = (int(v) for v in batch.variable_offsets[example : example + 2])
        own = neighbours[begin:end, begin:end]
        left = np.ones(end - begin, dtype=np.bool_)
        order: list[int] = []
        while left.any():  # one component after the other
            found = breadth_first_order(own, int(np.argmax(left)), return_predecessors=False)
            left[found] = False
            order.extend(found.tolist())
        for start in range(0, len(order), block_size):
            chosen = np.zeros(graph.n_variables)
            chosen[begin + np.array(order[start : start + block_size])] = 1.0
            for _ in range(overlap):
                chosen = ((neighbours @ chosen > 0.0) | (chosen > 0.0)).astype(np.float64)
            regions.append(_region(problem, example, touches, chosen > 0.0))
    return regions


def _region(
    problem: ConvexProblem, example: int, touches: Any, chosen: NDArray[np.bool_]
) -> Region:
    graph = problem.graph
    factors = np.flatnonzero(touches @ chosen.astype(np.float64) > 0.0)
    slots = _ranges(graph.scope_offsets, factors)
    members = chosen.copy()
    members[graph.slot_variables[slots]] = True
    variables = np.flatnonzero(members)
    names = np.cumsum(members) - 1
    part = FactorGraph.from_flat(
        graph.cardinalities[variables], names[graph.slot_variables[slots]], graph.arities[factors]
    )
    unary, tables = _ranges(graph.unary_offsets, variables), _ranges(graph.table_offsets, factors)
    restricted = ConvexProblem(
        Batch.of([part]), problem.unary[unary], problem.tables[tables],
        problem.unary_weights[unary], problem.factor_weights[tables],
    )  # fmt: skip
    entries = np.concatenate([unary, int(graph.unary_offsets[-1]) + tables])
    return Region(
        restricted, example, entries, _ranges(graph.message_offsets, slots), chosen[variables]
    )


def _incidence(graph: FactorGraph) -> Any:
    """Factors of arity two or more by variables."""
    from scipy.sparse import csr_array

    linking = np.flatnonzero(graph.arities[graph.slot_factors] >= 2)
    places = graph.slot_factors[linking], graph.slot_variables[linking]
    shape = (graph.n_factors, graph.n_variables)
    return csr_array((np.ones(len(linking)), places), shape=shape)


def _ranges(offsets: NDArray[np.int32], chosen: LongArray) -> LongArray:
    """All positions of the chosen ranges, one range after the other."""
    sizes = np.diff(offsets)[chosen].astype(np.int64)
    starts = offsets[chosen] - (np.cumsum(sizes) - sizes)
    return np.asarray(np.repeat(starts, sizes) + np.arange(int(sizes.sum())), dtype=np.int64)
