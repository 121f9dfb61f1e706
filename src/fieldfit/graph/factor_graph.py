"""The structure of a factor graph, in flat index arrays.

A graph has *variables* ``i`` with ``cardinalities[i]`` labels and *factors* ``a``, each with a
*scope*: a tuple of distinct variables.  A *slot* is one position of one scope, i.e. one
(factor, variable) incidence; messages live on slots.  Slots are numbered factor by factor.

Three flat vectors are laid out by the graph, all in C order:

* unary entries: variable after variable, ``unary_offsets``;
* table entries: factor after factor, last variable of the scope fastest, ``table_offsets``;
* message entries: slot after slot, ``message_offsets``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import integers
from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit._validation import (
    require_index,
    require_instance,
    require_integer,
    require_one_of,
    shown,
)
from fieldfit.errors import InvalidInputError, Place, TooLargeError
from fieldfit.graph.ragged import offsets_of
from fieldfit.graph.structure import Structure, count_cycles, slots_by_variable
from fieldfit.report.page_parts import small_table

__all__ = ["FactorGraph", "checked_pairs", "require_factor_graph"]

#: Offsets are 32-bit: half the index traffic of 64-bit, and 2**31 doubles are 17 GB.
MAX_ENTRIES = 2**31 - 1
#: Above this number of labels a kernel compiled for the number gains nothing.
MAX_COMPILED_LABELS = 64


class FactorGraph:
    """Immutable structure of a factor graph: no numbers, no labels.

    Parameters
    ----------
    cardinalities
        Number of labels of each variable, each at least 1.
    scopes
        One tuple of distinct variable indices for each factor (any arity, repeated scopes
        allowed), or an integer array ``(n_factors, arity)``.
    factor_types
        Optional non-negative integer for each factor (for example 0 = horizontal,
        1 = vertical); parameter tying goes by type.

    Examples
    --------
    >>> graph = FactorGraph(cardinalities=[2, 3, 2], scopes=[(0, 1), (1, 2)])
    >>> graph.n_variables, graph.n_factors, graph.n_slots
    (3, 2, 4)
    """

    def __init__(
        self,
        cardinalities: ArrayLike,
        scopes: Sequence[Sequence[int]] | NDArray[np.integer[Any]] = (),
        factor_types: ArrayLike | None = None,
    ) -> None:
        slot_variables, arities = _flatten_scopes(scopes)
        self._build(cardinalities, slot_variables, arities, factor_types)

    def _build(
        self,
        cardinalities: ArrayLike,
        slot_variables: NDArray[np.signedinteger[Any]],
        arities: NDArray[np.signedinteger[Any]],
        factor_types: ArrayLike | None,
    ) -> None:
        self.cardinalities = _checked_cardinalities(cardinalities)
        self.scope_offsets = _offsets(arities, "slots")
        self.slot_variables = _checked_slots(slot_variables, arities, self.n_variables)
        self.factor_types = _checked_types(factor_types, self.n_factors)
        self.unary_offsets = _offsets(self.cardinalities, "unary entries")
        sizes = _slot_sizes(self.cardinalities, self.slot_variables)
        self.message_offsets = _offsets(sizes, "message entries")
        self.table_offsets = _offsets(_table_sizes(sizes, arities), "table entries")
        for value in vars(self).values():
            value.flags.writeable = False

    # -- constructors ---------------------------------------------------------------------

    @classmethod
    def from_flat(
        cls,
        cardinalities: ArrayLike,
        slot_variables: ArrayLike,
        arities: ArrayLike,
        factor_types: ArrayLike | None = None,
    ) -> FactorGraph:
        """Graph from concatenated scopes and their lengths (no Python loop over factors)."""
        graph = cls.__new__(cls)
        flat = _integers("slot_variables", slot_variables)
        graph._build(cardinalities, flat, _integers("arities", arities), factor_types)
        return graph

    @classmethod
    def grid(cls, height: int, width: int, n_labels: int, neighbors: int = 4) -> FactorGraph:
        """Pixel grid, row-major; horizontal edges (type 0) first, then vertical (type 1).

        With ``neighbors=8`` the falling (type 2) and rising (type 3) diagonals follow.
        """
        require_integer("height", height, at_least=1)
        require_integer("width", width, at_least=1)
        require_integer("n_labels", n_labels, at_least=1)
        require_one_of("neighbors", neighbors, (4, 8))
        pixel = np.arange(height * width, dtype=np.int32).reshape(height, width)
        pairs = [(pixel[:, :-1], pixel[:, 1:]), (pixel[:-1], pixel[1:])]
        if neighbors == 8:
            pairs += [(pixel[:-1, :-1], pixel[1:, 1:]), (pixel[1:, :-1], pixel[:-1, 1:])]
        offsets = offsets_of([a.size for a, _ in pairs])
        edges = np.empty((int(offsets[-1]), 2), dtype=np.int32)
        for (a, b), start, end in zip(pairs, offsets, offsets[1:], strict=False):
            edges[start:end, 0].reshape(a.shape)[...] = a
            edges[start:end, 1].reshape(b.shape)[...] = b
        types = np.repeat(np.arange(len(pairs), dtype=np.int32), np.diff(offsets))
        return cls(np.full(height * width, n_labels), edges, types)

    @classmethod
    def chain(cls, n_variables: int, n_labels: int) -> FactorGraph:
        """Chain ``0 - 1 - ... - (n_variables - 1)``."""
        require_integer("n_variables", n_variables, at_least=1)
        require_integer("n_labels", n_labels, at_least=1)
        start = np.arange(n_variables - 1)
        return cls(np.full(n_variables, n_labels), np.stack([start, start + 1], axis=1))

    @classmethod
    def from_edges(
        cls, n_variables: int, edges: ArrayLike, n_labels: int | ArrayLike
    ) -> FactorGraph:
        """Pairwise graph from an ``(n_edges, 2)`` array; ``n_labels`` may vary by variable."""
        require_integer("n_variables", n_variables, at_least=0)
        pairs = checked_pairs(edges, n_variables)
        labels = _integers("n_labels", n_labels)
        if labels.shape not in ((), (n_variables,)):
            raise InvalidInputError(
                f"n_labels must be a number or have shape ({n_variables},), got {labels.shape}"
            )
        return cls(np.broadcast_to(labels, (n_variables,)), pairs)

    # -- sizes ----------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        return len(self.cardinalities)

    @property
    def n_factors(self) -> int:
        return len(self.scope_offsets) - 1

    @property
    def n_slots(self) -> int:
        return len(self.slot_variables)

    # -- queries --------------------------------------------------------------------------

    def scope(self, factor: int) -> tuple[int, ...]:
        """Variables of one factor."""
        require_index("factor", factor, self.n_factors)
        begin, end = self.scope_offsets[factor], self.scope_offsets[factor + 1]
        return tuple(int(i) for i in self.slot_variables[begin:end])

    def table_shape(self, factor: int) -> tuple[int, ...]:
        """Shape of one factor's table."""
        return tuple(int(self.cardinalities[i]) for i in self.scope(factor))

    def has_structure_of(self, other: FactorGraph) -> bool:
        """True if the other graph has the same variables and scopes, in the same order."""
        require_instance("other", other, FactorGraph, "FactorGraph.chain(3, 2)")
        return self is other or (
            np.array_equal(self.cardinalities, other.cardinalities)
            and np.array_equal(self.scope_offsets, other.scope_offsets)
            and np.array_equal(self.slot_variables, other.slot_variables)
        )

    @cached_property
    def arities(self) -> IntArray:
        """Number of variables of each factor."""
        return np.diff(self.scope_offsets)

    @cached_property
    def slot_factors(self) -> IntArray:
        """Factor of each slot."""
        return np.repeat(np.arange(self.n_factors, dtype=np.int32), self.arities)

    @cached_property
    def degrees(self) -> IntArray:
        """Number of factors of arity at least 2 on each variable (``d_i``)."""
        return np.diff(self.structure.variable_slot_offsets)

    @cached_property
    def structure(self) -> Structure:
        """All index arrays in one named tuple, for kernels.

        ``variable_slots`` lists, variable by variable, the slots of factors of arity two or
        more: factors of arity one never send messages, they are added to the unary part.
        """
        offsets, slots = slots_by_variable(
            self.n_variables, self.scope_offsets, self.slot_variables
        )
        return Structure(
            cardinalities=self.cardinalities,
            scope_offsets=self.scope_offsets,
            slot_variables=self.slot_variables,
            slot_factors=self.slot_factors,
            unary_offsets=self.unary_offsets,
            table_offsets=self.table_offsets,
            message_offsets=self.message_offsets,
            variable_slot_offsets=offsets,
            variable_slots=slots,
        )

    @cached_property
    def is_acyclic(self) -> bool:
        """True if the bipartite graph of variables and factors has no cycle."""
        return int(count_cycles(self.n_variables, self.scope_offsets, self.slot_variables)) == 0

    @cached_property
    def pair_cardinality(self) -> int:
        """Commonest number of labels of pairwise factors with the same number on both sides.

        Kernels are compiled for it; 2 if there is no such factor.
        """
        first = self.scope_offsets[:-1][self.arities == 2]
        left = self.cardinalities[self.slot_variables[first]]
        right = self.cardinalities[self.slot_variables[first + 1]]
        usable = left[(left == right) & (left >= 2) & (left <= MAX_COMPILED_LABELS)]
        return int(np.bincount(usable).argmax()) if len(usable) else 2

    @cached_property
    def uniform_cardinality(self) -> int | None:
        """The common number of labels, or ``None`` if it varies or there is no variable."""
        first = int(self.cardinalities[0]) if self.n_variables else 0
        return first if first and bool(np.all(self.cardinalities == first)) else None

    def __repr__(self) -> str:
        arities = ", ".join(
            f"{int(count)} of arity {arity}"
            for arity, count in enumerate(np.bincount(self.arities) if self.n_factors else [])
            if count
        )
        labels = "no labels"
        if self.n_variables:
            fewest, most = int(self.cardinalities.min()), int(self.cardinalities.max())
            labels = f"{fewest} labels" if fewest == most else f"{fewest}-{most} labels"
        return f"FactorGraph({self.n_variables} variables, {labels}; factors: {arities or 'none'})"

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        rows: dict[str, Any] = {"variables": self.n_variables, "factors": self.n_factors}
        for arity in np.unique(self.arities).tolist():
            rows[f"factors of arity {arity}"] = int((self.arities == arity).sum())
        if self.n_variables:
            rows["fewest labels"] = int(self.cardinalities.min())
            rows["most labels"] = int(self.cardinalities.max())
        return small_table("FactorGraph", rows)


# -- checks -------------------------------------------------------------------------------


def require_factor_graph(graph: Any) -> None:
    """Refuse what is no graph."""
    require_instance("graph", graph, FactorGraph, "FactorGraph.chain(3, 2)")


def checked_pairs(
    edges: ArrayLike, n_variables: int, place: Place | None = None, what: str = "variables"
) -> NDArray[np.signedinteger[Any]]:
    """Edges as an array ``(n_edges, 2)`` of different variables (nodes) of a graph."""
    pairs = integers("edges", edges, place)
    if pairs.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InvalidInputError(f"edges must have shape (n_edges, 2), got {pairs.shape}", place)
    if pairs.min() < 0 or pairs.max() >= n_variables:
        bad = int(np.flatnonzero(((pairs < 0) | (pairs >= n_variables)).any(axis=1))[0])
        raise InvalidInputError(
            f"edges must name {what} 0..{n_variables - 1}, got {pairs[bad].tolist()} at {bad}",
            place,
        )
    loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if len(loops):
        raise InvalidInputError(
            f"edges must join two different {what}, got {pairs[loops[0]].tolist()} at {loops[0]}",
            place,
        )
    return pairs


def _integers(name: str, values: ArrayLike) -> NDArray[np.signedinteger[Any]]:
    return integers(name, values, allow_whole_floats=True)


def _checked_cardinalities(values: ArrayLike) -> IntArray:
    array = _integers("cardinalities", values)
    if array.ndim != 1:
        raise InvalidInputError(f"cardinalities must be one-dimensional, got shape {array.shape}")
    bad = np.flatnonzero((array < 1) | (array > MAX_ENTRIES))
    if len(bad):
        raise InvalidInputError(f"cardinalities[{bad[0]}] must be at least 1, got {array[bad[0]]}")
    return array.astype(np.int32)


def _flatten_scopes(
    scopes: Sequence[Sequence[int]] | NDArray[np.integer[Any]],
) -> tuple[NDArray[np.signedinteger[Any]], NDArray[np.signedinteger[Any]]]:
    """Slot variables and arities; arrays of one arity do not pass through Python objects."""
    if isinstance(scopes, np.ndarray) and scopes.ndim == 2:
        flat = _integers("scopes", scopes).ravel()
        return flat, np.broadcast_to(np.int64(scopes.shape[1]), scopes.shape[:1])
    try:
        arities = np.fromiter((len(scope) for scope in scopes), dtype=np.int64, count=len(scopes))
        variables = [variable for scope in scopes for variable in scope]
    except TypeError:
        raise InvalidInputError(
            f"scopes must be one tuple of variables for each factor, got {shown(scopes)}"
        ) from None
    return _integers("scopes", variables).ravel(), arities


def _checked_slots(
    slot_variables: NDArray[np.signedinteger[Any]],
    arities: NDArray[np.signedinteger[Any]],
    n_variables: int,
) -> IntArray:
    if slot_variables.size and (slot_variables.min() < 0 or slot_variables.max() >= n_variables):
        bad = int(np.flatnonzero((slot_variables < 0) | (slot_variables >= n_variables))[0])
        factor = int(np.searchsorted(np.cumsum(arities), bad, side="right"))
        raise InvalidInputError(
            f"scopes[{factor}] must name variables 0..{n_variables - 1}, got {slot_variables[bad]}"
        )
    if np.all(arities == 2):  # the common case, without a sort
        twice = np.flatnonzero(slot_variables[::2] == slot_variables[1::2])
        where = [(int(f), int(slot_variables[2 * f])) for f in twice[:1]]
    else:
        factors = np.repeat(np.arange(len(arities)), arities)
        key = factors * np.int64(n_variables) + slot_variables
        key.sort()
        twice = np.flatnonzero(key[1:] == key[:-1])
        where = [divmod(int(key[k]), n_variables) for k in twice[:1]]
    for factor, variable in where:
        raise InvalidInputError(
            f"scopes[{factor}] must name distinct variables, got variable {variable} twice"
        )
    return slot_variables.astype(np.int32)


def _checked_types(values: ArrayLike | None, n_factors: int) -> IntArray:
    if values is None:
        return np.zeros(n_factors, dtype=np.int32)
    array = _integers("factor_types", values)
    if array.shape != (n_factors,):
        raise InvalidInputError(f"factor_types must have shape ({n_factors},), got {array.shape}")
    if array.size and array.min() < 0:
        raise InvalidInputError(f"factor_types must be at least 0, got {array.min()}")
    return array.astype(np.int32)


def _slot_sizes(cardinalities: IntArray, slot_variables: IntArray) -> IntArray:
    """Number of labels of the variable of each slot."""
    if len(cardinalities) and np.all(cardinalities == cardinalities[0]):
        return np.broadcast_to(cardinalities[0], slot_variables.shape)  # without a look at slots
    return cardinalities[slot_variables]


def _table_sizes(sizes: IntArray, arities: NDArray[np.signedinteger[Any]]) -> LongArray:
    """Entries of each factor's table; in floating point first, because products overflow."""
    if len(arities) == 0:
        return np.zeros(0, dtype=np.int64)
    arity = int(arities[0])
    if arity > 0 and np.all(arities == arity):  # the common case, without offsets
        with np.errstate(over="ignore"):  # infinitely many entries are too many as well
            products = sizes[::arity].astype(np.float64)
            for position in range(1, arity):  # a product along the short axis is slow
                products *= sizes[position::arity]
        return _checked_table_sizes(products)
    starts = offsets_of(arities)[:-1]
    padded = np.concatenate([sizes, [1]]).astype(np.float64)  # so that a last empty scope is legal
    with np.errstate(over="ignore"):
        products = np.multiply.reduceat(padded, starts)
    products[arities == 0] = 1.0
    return _checked_table_sizes(products)


def _checked_table_sizes(products: FloatArray) -> LongArray:
    large = int(np.argmax(products))
    if products[large] > MAX_ENTRIES:
        raise TooLargeError(
            f"scopes[{large}] needs a table of {products[large]:.3g} entries "
            f"({products[large] * 8 / 1e9:.3g} GB), the limit is {MAX_ENTRIES} entries"
        )
    return products.astype(np.int64)


def _offsets(sizes: NDArray[np.integer[Any]], what: str) -> IntArray:
    total = int(sizes.sum(dtype=np.int64)) if len(sizes) else 0
    if total > MAX_ENTRIES:
        raise TooLargeError(f"the graph has {total} {what}, the limit is {MAX_ENTRIES}")
    if total and np.all(sizes == sizes[0]):  # the common case, in a quarter of the time
        return np.arange(0, total + 1, int(sizes[0]), dtype=np.int32)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
