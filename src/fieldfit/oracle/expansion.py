r"""Expansion moves: labellings of many labels by a minimum cut for each move.

A *move* to label ``c`` lets every variable keep its label or take ``c``.  With
``th(a, b) + th(c, c) >= th(a, c) + th(c, b)`` the best of these labellings, of which there are
exponentially many, is a minimum cut.  Rounds of moves to all labels end when none improves the
score.  If ``V = -th`` is a metric on every pair and unary potentials are at most 0, the cost
``-s`` of the result is at most ``2 max V / min V`` (off the diagonal, for each pair) times the
least: a factor of two for Potts tables.

The start is the best label of every variable by itself.

Reference: Boykov, Veksler and Zabih, "Fast approximate energy minimization via graph cuts", IEEE
Trans. Pattern Analysis and Machine Intelligence 23 (2001).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.potentials import Potentials
from fieldfit.errors import InvalidInputError
from fieldfit.kernels.cuts import NOT_FIRST, NOT_SECOND, Pairs, fill_capacities
from fieldfit.kernels.max_flow import SIDE, SINK, Flow, Trees, solve
from fieldfit.kernels.moves import find_unsuitable_move, offer_label, take_best_labels
from fieldfit.oracle._cuts import Arcs, examples_with, new_flow, new_trees

__all__ = ["Expansion", "expand"]

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]

#: A move must gain more than this, relative to the score, to count: less is rounding.
GAIN = 1e-12


@dataclass(frozen=True, eq=False)
class Expansion:
    """The labelling that moves lead to; ``converged`` if no single move improves it."""

    labels: IntArray
    n_rounds: int
    converged: bool


def expand(
    batch: Batch,
    arcs: Arcs,
    pairs: Pairs,
    potentials: Potentials,
    by_moves: BoolArray,
    start: IntArray,
    max_iter: int,
) -> Expansion:
    """Rounds of moves for some examples; the variables of the others keep their label of ``start``.

    An example leaves when a whole round has not improved it, so it does not depend on its company.
    """
    graph, structure = batch.graph, batch.graph.structure
    moving = np.repeat(by_moves, np.diff(batch.variable_offsets))
    _require_moves(batch, arcs, pairs, moving)
    labels = start.copy()
    take_best_labels(structure, pairs.unary, moving, labels)
    scores = batch.scores(potentials, labels)
    offered = np.empty_like(labels)
    flow = new_flow(graph.n_variables, len(arcs.network.heads))
    trees = new_trees(graph.n_variables)
    active = by_moves.copy()
    n_labels = int(graph.cardinalities[moving].max(initial=0))
    n_rounds = 0
    while n_rounds < max_iter and active.any():
        n_rounds += 1
        improved = np.zeros_like(active)
        moving = np.repeat(active, np.diff(batch.variable_offsets))
        for label in range(n_labels):
            if offer_label(structure, pairs.unary, moving, labels, label, offered) == 0:
                continue
            choice = pairs._replace(first=labels, second=offered)
            changed, possible = _best_move(batch, arcs, choice, flow, trees)
            changed_scores = batch.scores(potentials, changed)
            with np.errstate(invalid="ignore"):  # from one impossible labelling to another
                gains = changed_scores - scores > GAIN * (1.0 + np.abs(changed_scores))
            better = active & possible & gains
            taken = np.repeat(better, np.diff(batch.variable_offsets))
            labels = np.where(taken, changed, labels)
            scores = np.where(better, changed_scores, scores)
            improved |= better
        active &= improved
    return Expansion(labels, n_rounds, converged=not active.any())


def _best_move(
    batch: Batch, arcs: Arcs, choice: Pairs, flow: Flow, trees: Trees
) -> tuple[IntArray, BoolArray]:
    """The best labelling within a move, and the examples in which hard zeros allow any."""
    graph = batch.graph
    forbidden = np.empty(graph.n_variables, dtype=np.uint8)
    fill_capacities(
        graph.structure, choice, arcs.slot_arcs, flow.residual, flow.terminal, forbidden
    )
    solve(arcs.network, flow, trees)
    labels = np.where(trees.node[:, SIDE] == SINK, choice.second, choice.first)
    impossible = (flow.conflict != 0) | (forbidden == (NOT_FIRST | NOT_SECOND))
    return labels, ~examples_with(batch, impossible)


def _require_moves(batch: Batch, arcs: Arcs, pairs: Pairs, moving: BoolArray) -> None:
    structure = batch.graph.structure
    factor, a, b, c = (
        int(k)
        for k in find_unsuitable_move(structure, pairs.unary, pairs.tables, arcs.factors, moving)
    )
    if factor >= 0:
        start, stop = structure.table_offsets[factor : factor + 2]
        table = pairs.tables[start:stop].reshape(batch.graph.table_shape(factor))
        raise InvalidInputError(
            f"factor {factor} must have th(a,b) + th(c,c) >= th(a,c) + th(c,b) for all labels, as "
            f"Potts tables have, for MaxFlow with more than two labels, got {table[a, b]:.6g} + "
            f"{table[c, c]:.6g} < {table[a, c]:.6g} + {table[c, b]:.6g} for a={a}, b={b}, c={c}; "
            "MaxProduct takes any table"
        )
