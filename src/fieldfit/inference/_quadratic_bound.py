"""One iteration of `ConvexPrimal`: a quadratic problem, and what its negative entries become."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit.inference._convex_problem import ConvexProblem
from fieldfit.inference._node_system import NodeSystem

__all__ = [
    "BOUND",
    "SMALLEST",
    "Move",
    "by_entry",
    "largest_by_example",
    "move",
    "possible_entries",
]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: Curvature of the quadratic problem as a multiple of ``w / b``: that of the bound, and Newton's,
#: which is used after a move of which Newton's would have taken away at most this share of any
#: belief above the least that counts (those below fall towards zero in many small steps, and moves
#: with the bound's curvature, which halve the error, would go on as long).
BOUND = 2.0
NEWTON = 1.0
CALM = 0.75
NOTABLE = 1e-6
#: Rounds of repeated solves in a step.
ROUNDS = 2
#: Least belief of a possible configuration, and the share to which one may fall in an iteration.
SMALLEST = 1e-100
FALL = 1e-4
#: Beliefs that the multipliers make this many times as large come back.
RISE = 10.0


class Move(NamedTuple):
    """New beliefs, multipliers and what the dual is there, and the curvature for the next move."""

    beliefs: FloatArray
    messages: FloatArray
    bounds: FloatArray
    curvature: FloatArray


def move(
    problem: ConvexProblem,
    old: FloatArray,
    counts: FloatArray,
    heat: FloatArray,
    curvature: FloatArray,
    free: BoolArray | None,
) -> Move:
    """One quadratic problem; counts of entries that went astray go up."""
    possible = possible_entries(problem)
    new, messages = _quadratic(problem, old, heat, curvature, possible, free)
    loss = np.divide(old - new, old, out=np.zeros(len(old)), where=old > NOTABLE)
    calm = curvature * largest_by_example(problem, np.maximum(loss, 0.0)) <= CALM
    dual = problem.dual(messages, heat)
    made = np.concatenate([dual.unary, dual.factors])
    # what was negative falls; what fell too far comes back
    astray = possible & (~(new > 0.0) | (made > RISE * new))
    ceiling = 1.0 / (10.0 * counts[astray]) ** 2
    new[astray] = np.maximum(
        np.minimum(ceiling, made[astray]), np.maximum(new[astray], FALL * old[astray])
    )
    counts[astray] += 1.0
    new = np.where(possible, np.clip(new, SMALLEST, 1.0), 0.0)
    return Move(new, messages, dual.values, np.where(calm, NEWTON, BOUND))


def _quadratic(
    problem: ConvexProblem,
    old: FloatArray,
    heat: FloatArray,
    curvature: FloatArray,
    possible: BoolArray,
    free: BoolArray | None,
) -> tuple[FloatArray, FloatArray]:
    """The solution of the quadratic problem, and its multipliers."""
    graph, cut = problem.graph, len(problem.unary)
    unary_weights, factor_weights = problem.heated(heat)
    weights = np.concatenate([unary_weights, factor_weights])
    scores = np.concatenate([problem.unary, problem.tables])
    logs = np.log(old, out=np.zeros(len(old)), where=possible)
    force = np.where(possible, scores - weights * (logs + 1.0), 0.0)
    system = NodeSystem(
        graph, old[:cut], old[cut:], problem.by_unary(curvature) * unary_weights,
        problem.by_table(curvature) * factor_weights, free=free,
        impossible=problem.impossible,
    )  # fmt: skip
    unary = _normalised(graph.unary_offsets, old[:cut], old[:cut] / unary_weights)
    if free is not None:
        held = np.repeat(~free, graph.cardinalities)
        unary[held] = old[:cut][held]
    factors = _normalised(graph.table_offsets, old[cut:], system.compliance)
    response = system.respond(force[:cut], force[cut:], unary, factors, ROUNDS)
    proposed = np.concatenate([unary + response.unary, factors + response.factors])
    return proposed, response.messages


def possible_entries(problem: ConvexProblem) -> BoolArray:
    return np.concatenate([~problem.impossible, np.isfinite(problem.tables)])


def by_entry(problem: ConvexProblem, flags: BoolArray) -> BoolArray:
    return np.concatenate([problem.by_unary(flags), problem.by_table(flags)], dtype=np.bool_)


def largest_by_example(problem: ConvexProblem, values: FloatArray) -> FloatArray:
    cut = len(problem.unary)
    return problem.largest_by_example(values[:cut], values[cut:])


def _normalised(
    offsets: NDArray[np.int32], values: FloatArray, compliance: FloatArray
) -> FloatArray:
    """Every vector moved to the sum one, in proportion to how easily its entries give way."""
    if len(offsets) == 1:
        return values.copy()
    total = np.add.reduceat(values, offsets[:-1])
    give = np.add.reduceat(compliance, offsets[:-1])
    rate = np.divide(1.0 - total, give, out=np.zeros(len(total)), where=give > 0.0)
    return np.asarray(values + compliance * np.repeat(rate, np.diff(offsets)))
