r"""Alpha-expansion: MAP with many labels by a sequence of minimum cuts.

An *expansion move* to label ``c`` lets every variable keep its label or take ``c``.  With
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

from fieldfit._typing import BoolArray, FloatArray, IntArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.ragged import expand
from fieldfit.graph.structure import Structure
from fieldfit.inference.map.graph_cut.boykov_kolmogorov import SIDE, SINK, Flow, Trees, solve
from fieldfit.inference.map.graph_cut.cut_network import (
    NOT_FIRST,
    NOT_SECOND,
    BinaryPairs,
    CutNetwork,
    examples_with,
    fill_capacities,
    is_submodular,
    new_flow,
    new_trees,
)
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.numeric.compile import kernel

__all__ = ["ExpansionResult", "alpha_expansion"]

# -- Kernels: the start, the labels that a move offers, and the pairs that it accepts ------


@kernel
def take_best_labels(
    structure: Structure, unary: FloatArray, moving: BoolArray, labels: IntArray
) -> None:
    """Give every moving variable its best label by itself."""
    for i in range(len(labels)):
        if moving[i]:
            start = structure.unary_offsets[i]
            labels[i] = np.argmax(unary[start : structure.unary_offsets[i + 1]])


@kernel
def offer_label(
    structure: Structure,
    unary: FloatArray,
    moving: BoolArray,
    labels: IntArray,
    label: int,
    offered: IntArray,
) -> int:
    """What each variable may change to: ``label`` if it may move and has it, else its own label.

    Returns the number of variables that may change.
    """
    n_offers = 0
    for i in range(len(labels)):
        offered[i] = labels[i]
        if (
            moving[i]
            and labels[i] != label
            and label < structure.cardinalities[i]
            and unary[structure.unary_offsets[i] + label] != NO_WEIGHT
        ):
            offered[i] = label
            n_offers += 1
    return n_offers


@kernel
def find_nonsubmodular_move(
    structure: Structure,
    unary: FloatArray,
    tables: FloatArray,
    factors: IntArray,
    moving: BoolArray,
) -> IntArray:
    """Factor and labels ``a, b, c`` for which a move to ``c`` is no minimum cut; -1 if none.

    Moves need ``th(a, b) + th(c, c) >= th(a, c) + th(c, b)`` for all possible labels.
    """
    found = np.full(4, -1, dtype=np.int32)
    for factor in factors:
        slot = structure.scope_offsets[factor]
        i, j = structure.slot_variables[slot], structure.slot_variables[slot + 1]
        if not moving[i]:
            continue
        n_rows, n_columns = structure.cardinalities[i], structure.cardinalities[j]
        table = tables[structure.table_offsets[factor] : structure.table_offsets[factor + 1]]
        if _is_potts(table, n_rows, n_columns):
            continue
        of_i = unary[structure.unary_offsets[i] : structure.unary_offsets[i + 1]]
        of_j = unary[structure.unary_offsets[j] : structure.unary_offsets[j + 1]]
        for c in range(min(n_rows, n_columns)):
            if of_i[c] == NO_WEIGHT or of_j[c] == NO_WEIGHT:
                continue
            for a in range(n_rows):
                if a == c or of_i[a] == NO_WEIGHT:
                    continue
                for b in range(n_columns):
                    if b == c or of_j[b] == NO_WEIGHT:
                        continue
                    if not is_submodular(
                        table[a * n_columns + b],
                        table[a * n_columns + c],
                        table[c * n_columns + b],
                        table[c * n_columns + c],
                    ):
                        found[0], found[1], found[2], found[3] = factor, a, b, c
                        return found
    return found


@kernel
def _is_potts(table: FloatArray, n_rows: int, n_columns: int) -> bool:
    """One value off the diagonal and none on it that is smaller: no need to look at all triples."""
    if n_rows < 2 or n_columns < 2:
        return True
    off = table[1]
    for a in range(n_rows):
        for b in range(n_columns):
            value = table[a * n_columns + b]
            if (value < off) if a == b else (value != off):
                return False
    return True


# -- Rounds of moves -----------------------------------------------------------------------

#: A move must gain more than this, relative to the score, to count: less is rounding.
GAIN = 1e-12


@dataclass(frozen=True, eq=False)
class ExpansionResult:
    """The labelling that moves lead to; ``converged`` if no single move improves it."""

    labels: IntArray
    n_rounds: int
    converged: bool


def alpha_expansion(
    batch: Batch,
    cuts: CutNetwork,
    pairs: BinaryPairs,
    potentials: Potentials,
    by_moves: BoolArray,
    start: IntArray,
    max_iter: int,
) -> ExpansionResult:
    """Rounds of moves for some examples; the variables of the others keep their label of ``start``.

    An example leaves when a whole round has not improved it, so it does not depend on its company.
    """
    graph, structure = batch.graph, batch.graph.structure
    moving = expand(by_moves, batch.variable_offsets)
    _require_moves(batch, cuts, pairs, moving)
    labels = start.copy()
    take_best_labels(structure, pairs.unary, moving, labels)
    scores = batch.scores(potentials, labels)
    offered = np.empty_like(labels)
    flow = new_flow(graph.n_variables, len(cuts.network.heads))
    trees = new_trees(graph.n_variables)
    active = by_moves.copy()
    n_labels = int(graph.cardinalities[moving].max(initial=0))
    n_rounds = 0
    while n_rounds < max_iter and active.any():
        n_rounds += 1
        improved = np.zeros_like(active)
        moving = expand(active, batch.variable_offsets)
        for label in range(n_labels):
            if offer_label(structure, pairs.unary, moving, labels, label, offered) == 0:
                continue
            choice = pairs._replace(first=labels, second=offered)
            changed, possible = _best_move(batch, cuts, choice, flow, trees)
            changed_scores = batch.scores(potentials, changed)
            with np.errstate(invalid="ignore"):  # from one impossible labelling to another
                gains = changed_scores - scores > GAIN * (1.0 + np.abs(changed_scores))
            better = active & possible & gains
            taken = expand(better, batch.variable_offsets)
            labels = np.where(taken, changed, labels)
            scores = np.where(better, changed_scores, scores)
            improved |= better
        active &= improved
    return ExpansionResult(labels, n_rounds, converged=not active.any())


def _best_move(
    batch: Batch, cuts: CutNetwork, choice: BinaryPairs, flow: Flow, trees: Trees
) -> tuple[IntArray, BoolArray]:
    """The best labelling within a move, and the examples in which hard zeros allow any."""
    graph = batch.graph
    forbidden = np.empty(graph.n_variables, dtype=np.uint8)
    fill_capacities(
        graph.structure, choice, cuts.slot_arcs, flow.residual, flow.terminal, forbidden
    )
    solve(cuts.network, flow, trees)
    labels = np.where(trees.node[:, SIDE] == SINK, choice.second, choice.first)
    impossible = (flow.conflict != 0) | (forbidden == (NOT_FIRST | NOT_SECOND))
    return labels, ~examples_with(batch, impossible)


def _require_moves(batch: Batch, cuts: CutNetwork, pairs: BinaryPairs, moving: BoolArray) -> None:
    structure = batch.graph.structure
    factor, a, b, c = (
        int(k)
        for k in find_nonsubmodular_move(structure, pairs.unary, pairs.tables, cuts.factors, moving)
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
