"""Parametrisations of pairwise Markov random fields: weights to log tables, gradients back.

Both parametrisations are linear, ``th = Phi w``, and have a field for each variable and a coupling
for each edge:

* `IsingParameters`: ``s(x) = sum_i t_i x_i + sum_(ij) w_ij x_i x_j`` with ``x`` in {0, 1} or {-1,
  +1};
* `PottsParameters`: full tables ``f_i(k)`` and ``J_ij(k, l)``.  They are redundant: constants can
  be moved between tables and fields without changing the distribution (a gauge).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._typing import FloatArray, LongArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph, checked_pairs
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.models.pairwise.sample_conditionals import Neighbors

__all__ = [
    "Encoding",
    "IsingParameters",
    "PairwiseParameters",
    "PottsParameters",
    "checked_edges",
    "full_edges",
    "indicators",
    "zero_sum",
]

Encoding = Literal["binary", "spin"]


class PairwiseParameters(ABC):
    """Abstract base: a pairwise graph on which every variable has ``n_labels`` labels."""

    n_labels: int

    def __init__(self, n_variables: int, edges: LongArray) -> None:
        self.n_variables = n_variables
        self.edges = edges

    @property
    def n_edges(self) -> int:
        return len(self.edges)

    @property
    def n_weights(self) -> int:
        return sum(int(np.prod(shape, dtype=np.int64)) for shape in self.block_shapes.values())

    @cached_property
    def graph(self) -> FactorGraph:
        """Variables and edges as a factor graph, factors in the order of the edges."""
        return FactorGraph.from_edges(self.n_variables, self.edges, self.n_labels)

    @cached_property
    def neighbors(self) -> Neighbors:
        """The edges around each variable, for kernels."""
        ends = np.concatenate([self.edges[:, 0], self.edges[:, 1]])
        others = np.concatenate([self.edges[:, 1], self.edges[:, 0]])
        order = np.lexsort((others, ends))
        counts = np.bincount(ends, minlength=self.n_variables)
        return Neighbors(
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            variables=others[order],
            edges=np.tile(np.arange(self.n_edges), 2)[order],
            sides=np.repeat(np.arange(2), self.n_edges)[order],
        )

    @property
    @abstractmethod
    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the two blocks of weights, in their order."""

    @abstractmethod
    def potentials(self, weights: FloatArray) -> Potentials:
        """``Phi w``, up to a constant."""

    @abstractmethod
    def gradient(self, vector: Potentials | Beliefs) -> FloatArray:
        """``Phi^T`` of a vector laid out like potentials."""

    @abstractmethod
    def weights_of(self, potentials: Potentials) -> FloatArray:
        """Weights of the same distribution as any potentials on the graph."""

    @abstractmethod
    def statistics(self, labels: NDArray[np.int16]) -> FloatArray:
        """``Phi^T`` of each row's label indicators, without terms of missing labels (-1)."""

    def tables(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log tables in the shapes (n_variables, K) and (n_edges, K, K)."""
        potentials = self.potentials(weights)
        k = self.n_labels
        return (
            potentials.unary_values.reshape(-1, k),
            potentials.factor_values.reshape(-1, k, k),
        )

    def table_gradient(self, unary: FloatArray, tables: FloatArray) -> FloatArray:
        """``Phi^T`` of a gradient on the arrays of `tables`."""
        return self.gradient(
            Potentials.from_flat(self.graph, unary.reshape(-1), tables.reshape(-1))
        )

    def design(self) -> FloatArray:
        """``Phi`` as a dense matrix: one row for each entry of the potentials."""
        rows = []
        for index in range(self.n_weights):
            unit = np.zeros(self.n_weights)
            unit[index] = 1.0
            potentials = self.potentials(unit)
            rows.append(np.concatenate([potentials.unary_values, potentials.factor_values]))
        return np.array(rows).T


class IsingParameters(PairwiseParameters):
    """Thresholds and couplings; spins are turned into the same model on {0, 1}.

    With ``x = 2 y - 1`` the model on spins is, up to a constant, the one on {0, 1} with thresholds
    ``2 t_i - 2 sum_j w_ij`` and couplings ``4 w_ij``.
    """

    n_labels = 2

    def __init__(self, n_variables: int, edges: LongArray, encoding: Encoding = "binary") -> None:
        super().__init__(n_variables, edges)
        self.encoding = encoding

    @property
    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"thresholds": (self.n_variables,), "couplings": (self.n_edges,)}

    def binary(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Thresholds and couplings of the model on {0, 1}."""
        thresholds, couplings = np.split(weights, [self.n_variables])
        if self.encoding == "binary":
            return thresholds, couplings
        return 2.0 * thresholds - 2.0 * self._around(couplings), 4.0 * couplings

    def binary_gradient(self, thresholds: FloatArray, couplings: FloatArray) -> FloatArray:
        """The transpose of `binary`, of one vector or of many along leading axes."""
        if self.encoding == "binary":
            return np.concatenate([thresholds, couplings], axis=-1)
        ends = thresholds[..., self.edges[:, 0]] + thresholds[..., self.edges[:, 1]]
        return np.concatenate([2.0 * thresholds, 4.0 * couplings - 2.0 * ends], axis=-1)

    def potentials(self, weights: FloatArray) -> Potentials:
        thresholds, couplings = self.binary(weights)
        unary = np.zeros(2 * self.n_variables)
        tables = np.zeros(4 * self.n_edges)
        unary[1::2] = thresholds
        tables[3::4] = couplings
        return Potentials.from_flat(self.graph, unary, tables)

    def gradient(self, vector: Potentials | Beliefs) -> FloatArray:
        return self.binary_gradient(vector.unary_values[1::2], vector.factor_values[3::4])

    def weights_of(self, potentials: Potentials) -> FloatArray:
        unary = potentials.unary_values.reshape(-1, 2)
        tables = potentials.factor_values.reshape(-1, 2, 2)
        couplings = tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0] + tables[:, 0, 0]
        thresholds = unary[:, 1] - unary[:, 0]
        np.add.at(thresholds, self.edges[:, 0], tables[:, 1, 0] - tables[:, 0, 0])
        np.add.at(thresholds, self.edges[:, 1], tables[:, 0, 1] - tables[:, 0, 0])
        if self.encoding == "spin":
            couplings = couplings / 4.0
            thresholds = thresholds / 2.0 + self._around(couplings)
        return np.concatenate([thresholds, couplings])

    def statistics(self, labels: NDArray[np.int16]) -> FloatArray:
        ones = (labels == 1).astype(np.float64)
        return self.binary_gradient(ones, ones[:, self.edges[:, 0]] * ones[:, self.edges[:, 1]])

    def coupling_matrix(self, couplings: FloatArray) -> FloatArray:
        """One value for each edge as a symmetric matrix."""
        matrix = np.zeros((self.n_variables, self.n_variables))
        matrix[self.edges[:, 0], self.edges[:, 1]] = couplings
        matrix[self.edges[:, 1], self.edges[:, 0]] = couplings
        return matrix

    def _around(self, couplings: FloatArray) -> FloatArray:
        """Sum of the couplings of each variable."""
        sums = np.bincount(self.edges[:, 0], couplings, minlength=self.n_variables)
        sums += np.bincount(self.edges[:, 1], couplings, minlength=self.n_variables)
        return sums.astype(np.float64)


class PottsParameters(PairwiseParameters):
    """Full tables; weights and potentials are the same numbers in the same order."""

    def __init__(self, n_variables: int, edges: LongArray, n_labels: int) -> None:
        super().__init__(n_variables, edges)
        self.n_labels = n_labels

    @classmethod
    def on(cls, graph: FactorGraph) -> PottsParameters:
        """Full tables on a pairwise graph, which keeps the plans made for it."""
        edges = graph.slot_variables.reshape(-1, 2).astype(np.int64)
        parameters = cls(graph.n_variables, edges, graph.uniform_cardinality or 0)
        parameters.graph = graph
        return parameters

    @property
    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        k = self.n_labels
        return {"fields": (self.n_variables, k), "couplings": (self.n_edges, k, k)}

    def potentials(self, weights: FloatArray) -> Potentials:
        unary, tables = np.split(weights, [self.n_variables * self.n_labels])
        return Potentials.from_flat(self.graph, unary, tables)

    def gradient(self, vector: Potentials | Beliefs) -> FloatArray:
        return np.concatenate([vector.unary_values, vector.factor_values])

    def weights_of(self, potentials: Potentials) -> FloatArray:
        return self.gradient(potentials)

    def statistics(self, labels: NDArray[np.int16]) -> FloatArray:
        chosen = indicators(labels, self.n_labels)
        left, right = chosen[:, self.edges[:, 0]], chosen[:, self.edges[:, 1]]
        pairs = left[:, :, :, None] * right[:, :, None, :]
        return np.concatenate(
            [chosen.reshape(len(labels), -1), pairs.reshape(len(labels), -1)], axis=1
        )


def indicators(labels: NDArray[np.int16], n_labels: int) -> FloatArray:
    """``[y_mi = k]`` in the shape (n_rows, n_variables, n_labels); zero where missing."""
    return np.asarray(labels[:, :, None] == np.arange(n_labels), dtype=np.float64)


def zero_sum(
    fields: FloatArray, couplings: FloatArray, edges: LongArray
) -> tuple[FloatArray, FloatArray]:
    """The same distribution with fields and every row and column of a coupling summing to 0.

    What a coupling says about one variable alone goes to that variable's field.
    """
    rows = couplings.mean(axis=2)  # by label of the first variable
    columns = couplings.mean(axis=1)
    overall = couplings.mean(axis=(1, 2))
    centred = couplings - rows[:, :, None] - columns[:, None, :] + overall[:, None, None]
    moved = fields - fields.mean(axis=1, keepdims=True)
    np.add.at(moved, edges[:, 0], rows - overall[:, None])
    np.add.at(moved, edges[:, 1], columns - overall[:, None])
    return moved, centred


def full_edges(n_variables: int) -> LongArray:
    """All pairs ``i < j``, row by row."""
    return np.stack(np.triu_indices(n_variables, 1), axis=1).astype(np.int64)


def checked_edges(edges: ArrayLike | None, n_variables: int) -> LongArray:
    """Edges as integers, in the given order; all pairs if ``None``."""
    if edges is None:
        return full_edges(n_variables)
    array = checked_pairs(edges, n_variables).astype(np.int64)
    keys = np.sort(array, axis=1) @ np.array([n_variables, 1])
    _, first = np.unique(keys, return_index=True)
    if len(first) < len(keys):
        twice = int(np.setdiff1d(np.arange(len(keys)), first)[0])
        raise InvalidInputError(
            f"edges must name every pair once, got {array[twice].tolist()} again at {twice}"
        )
    return array
