"""Matchings as factor graphs (all-different labels, edge variables): recognised and read back.

Two encodings are known.

*All-different labels.*  Every variable has the same labels, and a factor on each pair forbids equal
ones and is constant otherwise.  Rows are variables, columns are labels, weights are unary.

*Edge variables.*  A binary variable is an edge, used if its label is 1.  A factor is a node: its
table is ``-inf`` but where one of its variables is 1 (and, unless the node must have a partner,
where none is).  A variable lies in two such factors at most; an end without a factor is free.
Entries that are not ``-inf`` may have any value, they are part of the weights of edges.

Evidence and labels of potential ``-inf`` take edges, and nodes, out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, conditioned_unary
from fieldfit.inference.base import Evidence

__all__ = ["ENCODES_A_MATCHING", "Matching", "recognize"]

#: Why a search for a matching has found a best labelling, for the status of results.
ENCODES_A_MATCHING = "the model encodes a matching"


@dataclass(frozen=True)
class Matching:
    """A weighted graph whose matchings are labellings.

    ``ends`` are the two nodes of each edge, ``required`` the nodes that must have a partner.  Using
    edge ``e`` gives variable ``variables[e]`` the label ``labels[e]``; the others keep ``base``.
    """

    ends: LongArray
    weights: FloatArray
    required: BoolArray
    variables: LongArray
    labels: LongArray
    base: IntArray

    def labels_of(self, edges: LongArray) -> IntArray:
        """The labelling that uses these edges."""
        labels = self.base.copy()
        labels[self.variables[edges]] = self.labels[edges]
        return labels

    def sides(self) -> BoolArray | None:
        """A side for each node such that every edge joins both, or ``None``.

        In the graph of (node, parity of a walk) a node meets its other parity by odd cycles only.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        n = len(self.required)
        first, second = self.ends.T
        tails = np.concatenate([first, second])
        heads = np.concatenate([second, first]) + n
        ones = np.ones(len(tails), dtype=np.int8)
        walks = coo_array((ones, (tails, heads)), shape=(2 * n, 2 * n))
        _, component = connected_components(walks.tocsr(), directed=False)
        if (component[:n] == component[n:]).any():
            return None
        side: BoolArray = component[:n] > component[n:]
        return side

    def matrix(self, sides: BoolArray) -> tuple[FloatArray, BoolArray, BoolArray, LongArray]:
        """Weights of rows and columns, which of them need a partner, and the edge of each entry."""
        place = np.where(sides, np.cumsum(sides), np.cumsum(~sides)) - 1
        is_column = sides[self.ends]
        rows = place[np.where(is_column[:, 0], self.ends[:, 1], self.ends[:, 0])]
        columns = place[np.where(is_column[:, 0], self.ends[:, 0], self.ends[:, 1])]
        shape = (int((~sides).sum()), int(sides.sum()))
        weights = np.full(shape, -np.inf)
        edge_of = np.full(shape, -1, dtype=np.int64)
        order = np.argsort(self.weights, kind="stable")  # the best of parallel edges comes last
        weights[rows[order], columns[order]] = self.weights[order]
        edge_of[rows[order], columns[order]] = order
        return weights, self.required[~sides], self.required[sides], edge_of


def recognize(batch: Batch, potentials: Potentials, observed: Evidence) -> list[Matching]:
    """The matchings that the examples of a batch encode; raises if one does not."""
    unary = conditioned_unary(batch.graph, potentials, observed)
    unary_parts = np.split(unary, batch.unary_offsets[1:-1])
    table_parts = np.split(potentials.factor_values, batch.table_offsets[1:-1])
    models = []
    for example, graph in enumerate(batch.graphs):
        own, tables = unary_parts[example], table_parts[example]
        constants = tables[graph.table_offsets[:-1][graph.arities == 0]]
        if (constants == -np.inf).any():
            raise _no_weight(example, "a constant is -inf")
        by_labels = _all_different(graph, own, tables, example)
        if isinstance(by_labels, Matching):
            models.append(by_labels)
            continue
        by_edges = _edge_variables(graph, own, tables, example)
        if isinstance(by_edges, Matching):
            models.append(by_edges)
            continue
        raise InvalidInputError(
            f"the model of example {example} must encode a matching, either by labels that all "
            f"differ (but {by_labels}) or by edge variables (but {by_edges})"
        )
    return models


def _no_weight(example: int, reason: str) -> ZeroWeightError:
    return ZeroWeightError(f"the model of example {example} has total weight zero: {reason}")


# -- All-different labels ------------------------------------------------------------------


def _all_different(
    graph: FactorGraph, unary: FloatArray, tables: FloatArray, example: int
) -> Matching | str:
    n, n_labels = graph.n_variables, graph.uniform_cardinality
    if n_labels is None:
        return "variables differ in their numbers of labels"
    if graph.arities.max(initial=0) > 2:
        return f"there is a factor of arity {graph.arities.max()}"
    pairs = np.flatnonzero(graph.arities == 2)
    first = graph.slot_variables[graph.scope_offsets[pairs]].astype(np.int64)
    second = graph.slot_variables[graph.scope_offsets[pairs] + 1].astype(np.int64)
    covered = np.unique(np.minimum(first, second) * n + np.maximum(first, second))
    if len(covered) < n * (n - 1) // 2:
        return f"only {len(covered)} of {n * (n - 1) // 2} pairs of variables have a factor"
    entries = np.repeat(graph.table_offsets[pairs], n_labels**2).reshape(-1, n_labels**2)
    values = tables[entries + np.arange(n_labels**2)].reshape(-1, n_labels, n_labels)
    equal = np.eye(n_labels, dtype=np.bool_)
    wrong = (values[:, equal] > -np.inf).any(axis=1)
    if n_labels > 1:
        others = values[:, ~equal]
        wrong |= (others[:, :1] == -np.inf)[:, 0] | (others != others[:, :1]).any(axis=1)
    if wrong.any():
        factor = int(pairs[np.argmax(wrong)])
        return f"the table of factor {factor} is not -inf for equal labels and constant for others"
    if n_labels < n:
        raise _no_weight(example, f"{n} variables must have different labels, there are {n_labels}")
    allowed = np.flatnonzero(unary > -np.inf)
    variables, labels = np.divmod(allowed, n_labels)
    return Matching(
        ends=np.stack([variables, n + labels], axis=1),
        weights=unary[allowed],
        required=np.arange(n + n_labels) < n,
        variables=variables,
        labels=labels,
        base=np.zeros(n, dtype=np.int32),
    )


# -- Edge variables ------------------------------------------------------------------------


def _edge_variables(
    graph: FactorGraph, unary: FloatArray, tables: FloatArray, example: int
) -> Matching | str:
    n_variables = graph.n_variables
    if (graph.cardinalities != 2).any():
        variable = int(np.argmax(graph.cardinalities != 2))
        return f"variable {variable} has {graph.cardinalities[variable]} labels instead of 2"
    if graph.degrees.max(initial=0) > 2:
        variable = int(np.argmax(graph.degrees))
        return f"variable {variable} is in {graph.degrees[variable]} factors instead of 2"
    nodes = np.flatnonzero(graph.arities >= 2)
    slots = np.flatnonzero(graph.arities[graph.slot_factors] >= 2)
    factors = graph.slot_factors[slots]
    # the entry where only this variable is 1: the last variable of a scope is the fastest
    behind = graph.scope_offsets[factors + 1] - 1 - slots
    alone = tables[graph.table_offsets[factors] + (np.int64(1) << behind)]
    none = tables[graph.table_offsets[nodes]]
    node_of = np.full(graph.n_factors, -1, dtype=np.int64)
    node_of[nodes] = np.arange(len(nodes))
    slot_nodes = node_of[factors]
    n_allowed = np.bincount(slot_nodes, alone > -np.inf, minlength=len(nodes))
    n_allowed += none > -np.inf
    n_finite = np.add.reduceat(
        np.append(tables > -np.inf, False), graph.table_offsets[:-1], dtype=np.int64
    )[nodes]
    if (n_finite > n_allowed).any():
        factor = int(nodes[np.argmax(n_finite > n_allowed)])
        return f"factor {factor} allows two of its variables to be 1"
    required = none == -np.inf

    # ends without a factor are free nodes of their own, numbered after the factors
    order = np.argsort(graph.slot_variables[slots], kind="stable")
    variables = graph.slot_variables[slots][order]
    position = np.arange(len(slots)) - np.searchsorted(variables, variables)
    ends = len(nodes) + np.arange(2 * n_variables).reshape(-1, 2)
    ends[variables, position] = slot_nodes[order]
    gains = np.where(required[slot_nodes], alone, alone - np.where(required, 0.0, none)[slot_nodes])
    weights = np.bincount(graph.slot_variables[slots], gains, minlength=n_variables)
    required = np.concatenate([required, np.zeros(2 * n_variables, dtype=np.bool_)])

    off, on = unary.reshape(-1, 2).T
    on = np.where(weights == -np.inf, -np.inf, on)
    if ((off == -np.inf) & (on == -np.inf)).any():
        variable = int(np.argmax((off == -np.inf) & (on == -np.inf)))
        raise _no_weight(example, f"no label of variable {variable} is possible")
    forced = off == -np.inf
    taken = np.bincount(ends[forced].ravel(), minlength=len(required))
    if taken.max(initial=0) > 1:
        raise _no_weight(example, "a factor allows one of its variables to be 1, two must be")
    required &= taken == 0
    usable = np.flatnonzero(~forced & (on > -np.inf) & ~taken[ends].astype(np.bool_).any(axis=1))
    return Matching(
        ends=ends[usable],
        weights=weights[usable] + on[usable] - off[usable],
        required=required,
        variables=usable,
        labels=np.ones(len(usable), dtype=np.int64),
        base=forced.astype(np.int32),
    )
