r"""Fusion moves: from two labellings one that is at least as good as either.

Two labellings differ on some variables.  Factors join these to *components*, and the score of a
labelling that takes each component from one or the other is a sum over components:

    s(y) = s(y') + sum_c d_c [component c is taken from the other]

so that the best of these, exponentially many in the number of components, takes every component
with ``d_c > 0``.  This holds for any tables.  For pairs one can go on inside a component: every
variable chooses between its two labels, a binary model whose roof-dual relaxation (QPBO) decides
some of them.  Overwriting any labelling with what is decided never lowers its score, and what is
undecided stays as it was.

References: Lempitsky, Rother, Roth and Blake, "Fusion moves for Markov random field optimization",
IEEE Trans. Pattern Analysis and Machine Intelligence 32 (2010); Whitley, Hains and Howe, "Tunneling
between optima: partition crossover for the traveling salesman problem", GECCO 2009.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.structure import Structure, find_root
from fieldfit.inference.map.graph_cut.cut_network import BinaryPairs, cut_network
from fieldfit.inference.map.graph_cut.roof_duality import half_integral
from fieldfit.numeric.compile import kernel

__all__ = ["fuse_by_roof_duality", "fuse_components"]

# -- Components of the differences ---------------------------------------------------------


@kernel
def fuse_components(
    structure: Structure,
    unary: FloatArray,
    tables: FloatArray,
    labels: IntArray,
    other: IntArray,
    parents: IntArray,
    gains: FloatArray,
) -> float:
    """Take each component of the differences from ``other`` unless that is worse; the gain.

    ``parents`` and ``gains``, of the length of ``labels``, are scratch.  Afterwards ``other`` is
    ``labels``.  Potentials are finite.
    """
    for i in range(len(labels)):
        parents[i] = i
        gains[i] = 0.0
    for factor in range(len(structure.scope_offsets) - 1):
        first = -1
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            i = structure.slot_variables[slot]
            if labels[i] != other[i]:
                if first >= 0:
                    parents[find_root(parents, i)] = find_root(parents, first)
                first = i
    for i in range(len(labels)):
        if labels[i] != other[i]:
            start = structure.unary_offsets[i]
            gains[find_root(parents, i)] += unary[start + other[i]] - unary[start + labels[i]]
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        if stop - first < 2:  # part of the unary potentials
            continue
        old, new = structure.table_offsets[factor], structure.table_offsets[factor]
        differs = -1
        stride = 1
        for slot in range(stop - 1, first - 1, -1):
            i = structure.slot_variables[slot]
            old += stride * labels[i]
            new += stride * other[i]
            stride *= structure.cardinalities[i]
            if labels[i] != other[i]:
                differs = i
        if differs >= 0:
            gains[find_root(parents, differs)] += tables[new] - tables[old]
    total = 0.0
    for i in range(len(labels)):
        if labels[i] != other[i]:
            root = find_root(parents, i)
            if root == i:
                total += max(0.0, gains[i])
    for i in range(len(labels)):
        if labels[i] != other[i]:
            if gains[find_root(parents, i)] >= 0.0:
                labels[i] = other[i]
            else:
                other[i] = labels[i]
    return total


# -- Variables one by one, for pairs -------------------------------------------------------


def fuse_by_roof_duality(
    graph: FactorGraph, unary: FloatArray, tables: FloatArray, labels: IntArray, other: IntArray
) -> IntArray:
    """Labels with those of ``other`` where roof duality decides for them; never a worse labelling.

    Factors have at most two variables, and potentials are finite.
    """
    cuts = cut_network(graph, "fusion moves")
    pairs = BinaryPairs(unary, tables, cuts.factors, labels, other)
    choices, _ = half_integral(Batch.of([graph]), cuts, pairs)  # undecided: neither 0 nor 1
    fused: IntArray = np.where(choices == 1, other, labels).astype(np.int32)
    return fused
