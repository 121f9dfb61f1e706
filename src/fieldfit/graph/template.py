"""Templates (parameter tying): the linear map from weights to potentials, and its transpose.

A template is a list of blocks.  A block covers ``n`` tables (unary or of factors) of one shape;
table ``r`` with feature vector ``x_r`` gets

    th_r(s) = sum_d x_r[d] W[d, g(s)]

where ``g`` ties the entries ``s`` of a table: all different (full), ``(k, l)`` with ``(l, k)``
(symmetric), only the diagonal (Potts), or entries with as many equal labels (robust Potts).
Without features ``x_r = 1``.  So ``th = Phi w`` and ``Phi^T`` of a vector laid out like potentials
(beliefs, gradients) are two products and a scatter, for all tables of all examples at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray, LongArray
from fieldfit._validation import require_instance, require_one_of, require_sequence_of
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import offsets_of
from fieldfit.numeric.compile import kernel

__all__ = [
    "Block",
    "PairTying",
    "Template",
    "Tying",
    "add_shared",
    "add_tied",
    "gather_shared",
    "gather_tied",
    "tie_entries",
]

# -- kernels: the same few numbers written into, and summed from, many places of a vector --
#
# Table ``r`` of a block has ``S`` entries from ``starts[r]``; entry ``s`` of every table belongs
# to the parameter ``groups[s]`` (``-1``: to none).  Writing and summing are transposes of each
# other.


@kernel
def add_shared(values: FloatArray, groups: LongArray, starts: LongArray, out: FloatArray) -> None:
    """``out[starts[r] + s] += values[groups[s]]`` for every table ``r``."""
    for row in range(starts.size):
        start = starts[row]
        for entry in range(groups.size):
            group = groups[entry]
            if group >= 0:
                out[start + entry] += values[group]


@kernel
def add_tied(values: FloatArray, groups: LongArray, starts: LongArray, out: FloatArray) -> None:
    """``out[starts[r] + s] += values[r, groups[s]]`` for every table ``r``."""
    for row in range(starts.size):
        start = starts[row]
        for entry in range(groups.size):
            group = groups[entry]
            if group >= 0:
                out[start + entry] += values[row, group]


@kernel
def gather_shared(
    vector: FloatArray, groups: LongArray, starts: LongArray, sums: FloatArray, out: FloatArray
) -> None:
    """``out[groups[s]] += sum_r vector[starts[r] + s]``; ``sums`` is scratch of size ``S``.

    Rows are summed entry by entry first: the inner loop is then a vector addition.
    """
    for entry in range(groups.size):
        sums[entry] = 0.0
    for row in range(starts.size):
        start = starts[row]
        for entry in range(groups.size):
            sums[entry] += vector[start + entry]
    for entry in range(groups.size):
        group = groups[entry]
        if group >= 0:
            out[group] += sums[entry]


@kernel
def gather_tied(vector: FloatArray, groups: LongArray, starts: LongArray, out: FloatArray) -> None:
    """``out[r, groups[s]] += vector[starts[r] + s]`` for every table ``r``."""
    for row in range(starts.size):
        start = starts[row]
        for entry in range(groups.size):
            group = groups[entry]
            if group >= 0:
                out[row, group] += vector[start + entry]


# -- blocks and templates -----------------------------------------------------------------

#: Which entries of a table share a parameter (`tie_entries` has the formulas).
Tying = Literal["full", "symmetric", "potts", "potts-labels", "robust-potts"]
#: The same for tables of two labels, where robust Potts is Potts.
PairTying = Literal["full", "symmetric", "potts", "potts-labels"]


@dataclass(frozen=True)
class Block:
    """Weights of shape ``(n_features, n_groups)``, or ``(n_groups,)`` without features.

    Parameters
    ----------
    name
        What the weights are called in ``weight_blocks_``.
    part
        Which vector the tables lie in: ``"unary"`` or ``"factors"``.
    starts
        Where each table begins in that vector.
    groups
        For every entry of a table the parameter that it uses, ``-1`` for none.
    features
        ``(n_tables, n_features)``, dense or sparse (CSR); ``None`` is one constant feature.
    shape
        Shape that the weights are shown in; that of the map above if empty.
    """

    name: str
    part: Literal["unary", "factors"]
    starts: LongArray
    groups: LongArray
    features: Any = None
    shape: tuple[int, ...] = ()
    _transposed: list[Any] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def unary(
        cls,
        graph: FactorGraph,
        features: Any = None,
        *,
        variables: ArrayLike | None = None,
        name: str = "unary",
    ) -> Block:
        """``th_i(y) = sum_d x_i[d] W[d, y]`` for all (or the given) variables."""
        require_factor_graph(graph)
        chosen = np.arange(graph.n_variables) if variables is None else np.asarray(variables)
        cardinality = int(graph.uniform_cardinality or 0)
        if len(chosen):
            (cardinality,) = _one_shape(name, graph.cardinalities[chosen][:, None])
        starts = graph.unary_offsets[chosen].astype(np.int64)
        groups = np.arange(cardinality)
        return cls(name, "unary", starts, groups, _checked(name, features, len(starts)))

    @classmethod
    def tables(
        cls,
        graph: FactorGraph,
        tying: Tying = "full",
        features: Any = None,
        *,
        factors: ArrayLike | None = None,
        name: str = "tables",
        shape: tuple[int, ...] = (),
    ) -> Block:
        """Tables of all (or the given) factors, which must have one shape, of any arity.

        ``shape`` says it for a graph that happens to have no such factor.
        """
        require_factor_graph(graph)
        chosen = np.arange(graph.n_factors) if factors is None else np.asarray(factors)
        if len(chosen):
            arity = int(graph.arities[chosen[0]])
            if not np.all(graph.arities[chosen] == arity):
                raise InvalidInputError(
                    f"block {name!r}: factors must have one arity, "
                    f"got {sorted(set(graph.arities[chosen].tolist()))}"
                )
            slots = graph.scope_offsets[chosen][:, None] + np.arange(arity)
            shape = _one_shape(name, graph.cardinalities[graph.slot_variables[slots]])
        groups, group_shape = tie_entries(shape, tying)
        starts = graph.table_offsets[chosen].astype(np.int64)
        features = _checked(name, features, len(starts))
        leading = () if features is None else (int(features.shape[1]),)
        return cls(name, "factors", starts, groups, features, (*leading, *group_shape))

    @classmethod
    def scaled(cls, graph: FactorGraph, scores: Any, *, name: str = "unary") -> Block:
        """``th_i(y) = w x_i[y]``: given scores of all labels, times one weight."""
        require_factor_graph(graph)
        given = scores.toarray() if hasattr(scores, "tocsr") else scores
        given = real_numbers(f"block {name!r}: scores", given)
        if given.size != graph.unary_offsets[-1]:
            raise InvalidInputError(
                f"block {name!r}: there must be a score for each label of each variable, "
                f"{graph.unary_offsets[-1]} in all, got {given.size}"
            )
        # a table for each entry, which all share their only parameter
        starts = np.arange(given.size, dtype=np.int64)
        features = _checked(name, given.reshape(-1, 1), len(starts))
        return cls(name, "unary", starts, np.zeros(1, dtype=np.int64), features)

    @property
    def n_groups(self) -> int:
        return int(self.groups.max(initial=-1)) + 1

    @property
    def n_weights(self) -> int:
        return self.n_groups * (1 if self.features is None else int(self.features.shape[1]))

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Shape in which the weights are shown."""
        if self.shape:
            return self.shape
        if self.features is None:
            return (self.n_groups,)
        return (int(self.features.shape[1]), self.n_groups)

    def sum_of_squares(self) -> float:
        """``sum_r x_r[d]^2``, mean over the features: how much the tables say about a weight."""
        if self.features is None:
            return float(self.starts.size)
        values = self.features.data if hasattr(self.features, "indptr") else self.features
        return float(np.vdot(values, values)) / max(1, self._n_features())

    def _n_features(self) -> int:
        return int(self.features.shape[1])

    def add_potentials(self, weights: FloatArray, vector: FloatArray) -> None:
        """Add this block's tables to the unary or factor vector of potentials."""
        if self.features is None:
            add_shared(np.ascontiguousarray(weights), self.groups, self.starts, vector)
            return
        values = self.features @ weights.reshape(-1, self.n_groups)
        if self._is_whole(vector):
            vector += values.reshape(-1)
            return
        add_tied(np.ascontiguousarray(values), self.groups, self.starts, vector)

    def gradient(self, vector: FloatArray) -> FloatArray:
        """The transpose of `add_potentials`, flat."""
        if self.features is None:
            out = np.zeros(self.n_groups)
            gather_shared(vector, self.groups, self.starts, np.empty(self.groups.size), out)
            return out
        if self._is_whole(vector):
            gathered = vector.reshape(-1, self.n_groups)
        else:
            gathered = np.zeros((self.starts.size, self.n_groups))
            gather_tied(vector, self.groups, self.starts, gathered)
        product: FloatArray = self._transpose() @ gathered
        return product.reshape(-1)

    def _transpose(self) -> Any:
        if not self._transposed:
            transposed = self.features.T
            # a CSR transpose is CSC; converting it once makes every product a row product
            self._transposed.append(
                transposed.tocsr() if hasattr(transposed, "tocsr") else transposed
            )
        return self._transposed[0]

    def _is_whole(self, vector: FloatArray) -> bool:
        """True if the tables cover the vector in order, without ties."""
        return self.groups.size * self.starts.size == vector.size and self._is_in_order

    @cached_property
    def _is_in_order(self) -> bool:
        """True if the tables follow each other, without ties."""
        size = self.groups.size
        return (
            size == self.n_groups
            and bool(np.array_equal(self.groups, np.arange(size)))
            and bool(np.array_equal(self.starts, np.arange(self.starts.size) * size))
        )


class Template:
    """Blocks of weights over one graph (usually the union of a batch).

    Parameters
    ----------
    graph
        The structure that potentials are made for.
    blocks
        The `Block` objects, in the order of the weights.

    Examples
    --------
    >>> graph = FactorGraph.chain(3, 2)
    >>> features = np.array([[1.0], [0.0], [2.0]])
    >>> blocks = [Block.unary(graph, features), Block.tables(graph, "potts", name="coupling")]
    >>> template = Template(graph, blocks)
    >>> template.n_weights
    3
    >>> potentials = template.potentials(np.array([0.0, 1.0, 0.5]))
    >>> potentials.unary(2), potentials.factor(0)
    (array([0., 2.]), array([[0.5, 0. ],
           [0. , 0.5]]))
    """

    def __init__(self, graph: FactorGraph, blocks: Sequence[Block]) -> None:
        require_factor_graph(graph)
        require_sequence_of("blocks", blocks, Block, "Block.unary(graph)")
        names = [block.name for block in blocks]
        if len(set(names)) < len(names):
            raise InvalidInputError(f"blocks must have different names, got {names}")
        self.graph = graph
        self.blocks = tuple(blocks)
        self.offsets = offsets_of([block.n_weights for block in blocks])

    @property
    def n_weights(self) -> int:
        return int(self.offsets[-1])

    def potentials(self, weights: FloatArray) -> Potentials:
        """``Phi w``."""
        weights = self._checked_weights(weights)
        unary = np.zeros(int(self.graph.unary_offsets[-1]))
        factors = np.zeros(int(self.graph.table_offsets[-1]))
        for block, start, end in zip(self.blocks, self.offsets, self.offsets[1:], strict=False):
            block.add_potentials(weights[start:end], unary if block.part == "unary" else factors)
        return Potentials.from_flat(self.graph, unary, factors)

    def _checked_weights(self, given: FloatArray) -> FloatArray:
        weights = real_numbers("weights", given)
        if weights.shape != (self.n_weights,):
            raise InvalidInputError(
                f"weights must have shape ({self.n_weights},), got {weights.shape}"
            )
        return weights

    def gradient(self, vector: Potentials | Beliefs) -> FloatArray:
        """``Phi^T`` of beliefs, or of a gradient with respect to potentials."""
        require_instance("vector", vector, (Potentials, Beliefs), "result.beliefs")
        gradient = np.empty(self.n_weights)
        for block, start, end in zip(self.blocks, self.offsets, self.offsets[1:], strict=False):
            values = vector.unary_values if block.part == "unary" else vector.factor_values
            gradient[start:end] = block.gradient(values)
        return gradient

    def split(self, weights: FloatArray) -> dict[str, FloatArray]:
        """Views of a flat weight vector, by the name of the block."""
        weights = self._checked_weights(weights)
        return {
            block.name: weights[start:end].reshape(block.weight_shape)
            for block, start, end in zip(self.blocks, self.offsets, self.offsets[1:], strict=False)
        }


def tie_entries(shape: tuple[int, ...], tying: Tying) -> tuple[LongArray, tuple[int, ...]]:
    """Parameter of every entry of a table (row-major), and the shape of the parameters.

    With ``n_k`` the number of variables that have label ``k`` in an entry ``y``, of ``n`` in all,

    ====================  =================================================================
    ``"full"``            ``V(y) = w[y_1, ..., y_n]``
    ``"symmetric"``       ``V(y) = w[n_0, n_1, ...]``, sorted labels in the order of entries
    ``"potts-labels"``    ``V(y) = w[k]`` if ``n_k = n``, else 0
    ``"potts"``           ``V(y) = w`` if ``n_k = n`` for some ``k``, else 0
    ``"robust-potts"``    ``V(y) = w[max_k n_k]``, 0 for the smallest value that can be
    ====================  =================================================================

    Robust Potts: Kohli, Ladicky and Torr, "Robust higher order potentials for enforcing label
    consistency", Int. J. Computer Vision 82 (2009), with a free weight for each number of labels
    that agree.
    """
    require_one_of("tying", tying, get_args(Tying))
    if tying != "full" and (len(shape) < 2 or len(set(shape)) != 1):
        raise InvalidInputError(
            f"tying {tying!r} needs tables whose variables have one number of labels, got {shape}"
        )
    return _tied(tuple(shape), tying)


@lru_cache(maxsize=64)
def _tied(shape: tuple[int, ...], tying: Tying) -> tuple[LongArray, tuple[int, ...]]:
    """`tie_entries`, once for all parts; nobody writes to the array."""
    if tying == "full":
        return np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64), shape
    labels = np.indices(shape).reshape(len(shape), -1)
    if tying == "symmetric":
        first = np.ravel_multi_index(tuple(np.sort(labels, axis=0)), shape)
        _, groups = np.unique(first, return_inverse=True)
        return groups.astype(np.int64), (int(groups.max()) + 1,)
    if tying == "robust-potts":
        counts = np.stack([(labels == label).sum(axis=0) for label in range(shape[0])])
        agreeing = counts.max(axis=0)
        groups = agreeing - agreeing.min() - 1
        return groups.astype(np.int64), (int(groups.max()) + 1,)
    same = np.all(labels == labels[0], axis=0)
    if tying == "potts":
        return np.where(same, 0, -1), (1,)
    return np.where(same, labels[0], -1), (shape[0],)


def _one_shape(name: str, sizes: NDArray[Any]) -> tuple[int, ...]:
    if not np.all(sizes == sizes[0]):
        raise InvalidInputError(
            f"block {name!r}: tables must have one shape, got {tuple(sizes[0].tolist())} and "
            f"{tuple(sizes[np.flatnonzero(np.any(sizes != sizes[0], axis=1))[0]].tolist())}"
        )
    return tuple(int(size) for size in sizes[0])


def _checked(name: str, features: Any, n_tables: int) -> Any:
    """Features as a contiguous float matrix or CSR, one row for each table."""
    if features is None:
        return None
    if hasattr(features, "tocsr"):
        features = features.tocsr()
        values = features.data
    else:
        features = values = real_numbers(f"block {name!r}: features", features)
    if features.ndim != 2 or features.shape[0] != n_tables:
        raise InvalidInputError(
            f"block {name!r}: features must have shape ({n_tables}, n_features), "
            f"got {features.shape}"
        )
    if values.size and not np.isfinite(values).all():
        raise InvalidInputError(f"block {name!r}: features must be finite, got NaN or infinity")
    return features
