"""Log-potentials and beliefs (marginals, pseudo-marginals) of a factor graph, in one flat layout.

Both hold ``unary_values`` (one entry per variable and label) and ``factor_values`` (one entry per
factor and configuration), laid out by the graph.  Gradients with respect to potentials are
`Potentials`; marginals, pseudo-marginals and label indicators are `Beliefs`.  So moments, scores
and gradients are all inner products of two such vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import plain_array, real_numbers
from fieldfit._typing import FloatArray, IntArray, LabelArray, LongArray
from fieldfit._validation import is_integer, require_index, require_instance, shown
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.ragged import expand, ranges
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import load, store

__all__ = [
    "Beliefs",
    "Potentials",
    "add_to_single_factors",
    "conditioned_unary",
    "folded_unary",
    "observed_labels",
    "require_graph",
    "selected_entries",
    "with_evidence",
]

Tables = Sequence[ArrayLike | None] | NDArray[Any] | None


class _GraphVector:
    """Abstract base: a value for every unary entry and every table entry of a graph."""

    graph: FactorGraph
    unary_values: FloatArray
    factor_values: FloatArray

    def unary(self, variable: int) -> FloatArray:
        """Values of one variable, shape ``(K_i,)`` (a view)."""
        offsets = self.graph.unary_offsets
        require_index("variable", variable, self.graph.n_variables)
        return self.unary_values[offsets[variable] : offsets[variable + 1]]

    def factor(self, factor: int) -> FloatArray:
        """Table of one factor, one axis for each variable of its scope (a view)."""
        offsets = self.graph.table_offsets
        require_index("factor", factor, self.graph.n_factors)
        table = self.factor_values[offsets[factor] : offsets[factor + 1]]
        return table.reshape(self.graph.table_shape(factor))

    def unary_matrix(self) -> FloatArray:
        """Values of all variables, shape ``(n_variables, K)``, if all have K labels (a view)."""
        cardinality = self.graph.uniform_cardinality
        if cardinality is None:
            raise InvalidInputError(
                f"unary_matrix needs variables with one number of labels, got {self.graph!r}"
            )
        return self.unary_values.reshape(-1, cardinality)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.graph!r})"


class Potentials(_GraphVector):
    """Log-potentials of a graph; natural logarithms, ``-inf`` is a hard zero.

    Parameters
    ----------
    graph
        The structure.
    unary
        One log table for each variable (``None`` entries are zero), or an array
        ``(n_variables, K)`` or, for a grid, ``(height, width, K)``, or ``None`` for zero.
    factors
        One log table for each factor, axes in the order of its scope, or an array with the
        factors along its first axis, or ``None`` for zero.  An array with the axes of a single
        table is that table for every factor.

    Examples
    --------
    >>> graph = FactorGraph([2, 2], [(0, 1)])
    >>> potentials = Potentials(graph, unary=[[0.0, 1.0], None], factors=[[[1.0, 0.0], [0.0, 1.0]]])
    >>> potentials.score([1, 1])
    2.0
    """

    def __init__(self, graph: FactorGraph, unary: Tables = None, factors: Tables = None) -> None:
        require_factor_graph(graph)
        self.graph = graph
        self.unary_values = _flatten("unary", unary, graph, _unary_shape, graph.unary_offsets)
        self.factor_values = _flatten(
            "factors", factors, graph, FactorGraph.table_shape, graph.table_offsets
        )
        _require_log_values("unary", self.unary_values, graph.unary_offsets)
        _require_log_values("factors", self.factor_values, graph.table_offsets)

    @classmethod
    def from_flat(
        cls, graph: FactorGraph, unary_values: ArrayLike, factor_values: ArrayLike
    ) -> Potentials:
        """Wrap two flat vectors; doubles are not copied, and their values are not looked at."""
        potentials = cls.__new__(cls)
        _attach(potentials, graph, unary_values, factor_values)
        return potentials

    def score(self, labels: ArrayLike) -> float:
        """``s(y) = sum_i th_i(y_i) + sum_a th_a(y_a)`` of one complete labelling."""
        unary, table = selected_entries(self.graph, labels)
        return float(self.unary_values[unary].sum() + self.factor_values[table].sum())

    def dot(self, beliefs: Beliefs) -> float:
        """``<th, tau>``, with ``-inf * 0 = 0``."""
        require_instance("beliefs", beliefs, Beliefs, "result.beliefs")
        if not beliefs.graph.has_structure_of(self.graph):
            raise InvalidInputError(f"beliefs must belong to {self.graph!r}, got {beliefs.graph!r}")
        total = 0.0
        for values, weights in (
            (self.unary_values, beliefs.unary_values),
            (self.factor_values, beliefs.factor_values),
        ):
            if np.isneginf(values).any():
                used = weights > 0
                total += float(np.dot(values[used], weights[used]))
            else:
                total += float(np.dot(values, weights))
        return total


class Beliefs(_GraphVector):
    """Marginals, pseudo-marginals or label indicators of a graph.

    Parameters
    ----------
    graph
        The structure.
    unary_values, factor_values
        The two flat vectors, laid out as the module `fieldfit.graph` describes;
        `Beliefs.from_labels` and the inferences make them.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> beliefs = ff.infer(graph, ff.Potentials(graph, [[0.0, 0.0], [0.0, 0.0]])).beliefs
    >>> beliefs.unary(0).tolist(), beliefs.factor(0).shape
    ([0.5, 0.5], (2, 2))
    """

    def __init__(
        self, graph: FactorGraph, unary_values: ArrayLike, factor_values: ArrayLike
    ) -> None:
        _attach(self, graph, unary_values, factor_values)

    @classmethod
    def from_labels(cls, graph: FactorGraph, labels: ArrayLike) -> Beliefs:
        """Indicator vector of one complete labelling."""
        unary, table = selected_entries(graph, labels)
        unary_values = np.zeros(graph.unary_offsets[-1])
        factor_values = np.zeros(graph.table_offsets[-1])
        unary_values[unary] = 1.0
        factor_values[table] = 1.0
        return cls(graph, unary_values, factor_values)

    def argmax(self) -> LabelArray:
        """Label of largest belief of every variable (the first one on a tie)."""
        cardinality = self.graph.uniform_cardinality
        if cardinality is not None:
            best = np.argmax(self.unary_values.reshape(-1, cardinality), axis=1)
            return np.asarray(best, dtype=np.int32)
        return np.array(
            [self.unary(i).argmax() for i in range(self.graph.n_variables)], dtype=np.int32
        )


def folded_unary(potentials: Potentials) -> FloatArray:
    """Unary log-potentials with every factor of arity one added in (a new array)."""
    values = potentials.unary_values.copy()
    target, source = _single_entries(potentials.graph)
    if len(target):
        np.add.at(values, target, potentials.factor_values[source])
    return values


def add_to_single_factors(
    graph: FactorGraph, unary_values: FloatArray, factor_values: FloatArray
) -> None:
    """Add unary values to every factor of arity one: the transpose of `folded_unary`."""
    source, target = _single_entries(graph)
    if len(target):
        factor_values[target] += unary_values[source]


def _single_entries(graph: FactorGraph) -> tuple[LongArray, LongArray]:
    """Unary entries and table entries of all factors of arity one, in the same order."""
    single = np.flatnonzero(graph.arities == 1)
    variables = graph.slot_variables[graph.scope_offsets[single]]
    sizes = graph.cardinalities[variables]
    return ranges(graph.unary_offsets[variables], sizes), ranges(graph.table_offsets[single], sizes)


def conditioned_unary(
    graph: FactorGraph, potentials: Potentials, observed: dict[int, int] | ArrayLike | None
) -> FloatArray:
    """`folded_unary` with evidence: the other labels of an observed variable get ``-inf``."""
    require_graph(graph, potentials)
    labels = observed_labels(graph, observed)
    return with_evidence(graph, folded_unary(potentials), labels)


def with_evidence(graph: FactorGraph, unary: FloatArray, labels: LabelArray) -> FloatArray:
    """Unary log-potentials with ``-inf`` for the other labels of every observed variable."""
    clamped = np.flatnonzero(labels >= 0)
    if len(clamped) == 0:
        return unary
    excluded = expand(labels >= 0, graph.unary_offsets)
    excluded[graph.unary_offsets[clamped] + labels[clamped]] = False
    return np.where(excluded, -np.inf, unary)


def require_graph(graph: FactorGraph, potentials: Potentials) -> None:
    """Refuse what is no graph or no potentials, and potentials of another structure."""
    require_factor_graph(graph)
    require_instance("potentials", potentials, Potentials, "Potentials(graph)")
    if not potentials.graph.has_structure_of(graph):
        raise InvalidInputError(
            f"potentials must belong to the given graph ({graph!r}), got {potentials.graph!r}"
        )


def observed_labels(
    graph: FactorGraph, observed: dict[int, int] | ArrayLike | None, name: str = "observed"
) -> LabelArray:
    """Evidence as one integer for each variable, ``-1`` where it is free.

    ``observed`` is a mapping from variable to label, or already such an array.
    """
    require_factor_graph(graph)
    labels = np.full(graph.n_variables, -1, dtype=np.int32)
    if observed is None:
        return labels
    if isinstance(observed, dict):
        for variable, label in observed.items():
            if not is_integer(variable) or not 0 <= variable < graph.n_variables:
                raise InvalidInputError(
                    f"{name} must name variables 0..{graph.n_variables - 1}, got {shown(variable)}"
                )
            labels[variable] = _checked_label(name, graph, variable, label)
        return labels
    array = plain_array(name, observed)
    if array.shape != (graph.n_variables,) or array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must be a mapping or an integer array of shape ({graph.n_variables},), "
            f"got dtype {array.dtype} and shape {array.shape}"
        )
    bad = np.flatnonzero((array < -1) | (array >= graph.cardinalities))
    if len(bad):
        _checked_label(name, graph, int(bad[0]), int(array[bad[0]]))
    return array.astype(np.int32)


# -- helpers ------------------------------------------------------------------------------


def _attach(
    vector: _GraphVector, graph: FactorGraph, unary_values: ArrayLike, factor_values: ArrayLike
) -> None:
    require_factor_graph(graph)
    # kernels take contiguous doubles and nothing else
    unary = real_numbers("unary_values", unary_values)
    factors = real_numbers("factor_values", factor_values)
    expected = (int(graph.unary_offsets[-1]),), (int(graph.table_offsets[-1]),)
    if (unary.shape, factors.shape) != expected:
        raise InvalidInputError(
            f"unary_values and factor_values must have shapes {expected[0]} and {expected[1]}, "
            f"got {unary.shape} and {factors.shape}"
        )
    vector.graph = graph
    vector.unary_values = unary
    vector.factor_values = factors


def _unary_shape(graph: FactorGraph, variable: int) -> tuple[int, ...]:
    return (int(graph.cardinalities[variable]),)


def _flatten(
    name: str,
    tables: Tables,
    graph: FactorGraph,
    shape_of: Callable[[FactorGraph, int], tuple[int, ...]],
    offsets: IntArray,
) -> FloatArray:
    count = len(offsets) - 1
    if tables is None:
        return np.zeros(offsets[-1])
    if isinstance(tables, (str, bytes, dict)) or not hasattr(tables, "__len__"):
        raise InvalidInputError(f"{name} must have {count} tables, got {shown(tables)}")
    if isinstance(tables, np.ndarray):
        tables = _one_axis_of_tables(name, tables, graph)
    if len(tables) != count:
        raise InvalidInputError(f"{name} must have {count} tables, got {len(tables)}")
    if (
        isinstance(tables, np.ndarray)
        and tables.dtype.kind in "fiub"
        and count
        and _all_shapes(graph, name, tables.shape[1:])
    ):
        return np.array(tables, dtype=np.float64, order="C").reshape(-1)
    values = np.zeros(offsets[-1])
    for index, table in enumerate(tables):
        if table is None:
            continue
        array = real_numbers(f"{name}[{index}]", table)
        if array.shape != shape_of(graph, index):
            raise InvalidInputError(
                f"{name}[{index}] must have shape {shape_of(graph, index)}, got {array.shape}"
            )
        values[offsets[index] : offsets[index + 1]] = array.ravel()
    return values


def _one_axis_of_tables(name: str, tables: NDArray[Any], graph: FactorGraph) -> NDArray[Any]:
    """An array whose first axis runs over variables or factors."""
    if name == "unary" and tables.ndim > 2:
        return tables.reshape(-1, tables.shape[-1])
    if name == "factors" and graph.n_factors and tables.ndim == int(graph.arities[0]) > 0:
        if _all_shapes(graph, name, tables.shape):
            return np.broadcast_to(tables, (graph.n_factors, *tables.shape))
        raise InvalidInputError(
            f"factors must have {graph.n_factors} tables, or be one table of a shape that all "
            f"factors share, got an array of shape {tables.shape}"
        )
    return tables


def _all_shapes(graph: FactorGraph, name: str, shape: tuple[int, ...]) -> bool:
    """True if every table of the graph has this one shape (no Python loop over tables)."""
    if name == "unary":
        return len(shape) == 1 and bool(np.all(graph.cardinalities == shape[0]))
    if not bool(np.all(graph.arities == len(shape))):
        return False
    if graph.uniform_cardinality is not None:
        return all(size == graph.uniform_cardinality for size in shape)
    sizes = graph.cardinalities[graph.slot_variables].reshape(graph.n_factors, len(shape))
    return bool(np.all(sizes == np.array(shape, dtype=np.int32)))


def _require_log_values(name: str, values: FloatArray, offsets: IntArray) -> None:
    # NaN and +inf are the two values whose maximum with anything finite is not finite
    if values.size and not np.max(values) < np.inf:
        bad = int(np.flatnonzero(~(values < np.inf))[0])
        index = int(np.searchsorted(offsets, bad, side="right")) - 1
        raise InvalidInputError(
            f"{name}[{index}] must hold log values below +inf (-inf is allowed), got {values[bad]}"
        )


def _checked_label(name: str, graph: FactorGraph, variable: int, label: Any) -> int:
    cardinality = int(graph.cardinalities[variable])
    if not is_integer(label) or not 0 <= label < cardinality:
        raise InvalidInputError(
            f"{name}: the label of variable {variable} must be in 0..{cardinality - 1}, "
            f"got {shown(label)}"
        )
    return int(label)


def selected_entries(graph: FactorGraph, labels: ArrayLike) -> tuple[LongArray, LongArray]:
    """Flat indices of the unary and table entries that a complete labelling selects."""
    require_factor_graph(graph)
    array = plain_array("labels", labels)
    if array.shape != (graph.n_variables,) or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"labels must be an integer array of shape ({graph.n_variables},), "
            f"got dtype {array.dtype} and shape {array.shape}"
        )
    bad = np.flatnonzero((array < 0) | (array >= graph.cardinalities))
    if len(bad):
        _checked_label("labels", graph, int(bad[0]), int(array[bad[0]]))
    labelling = array.astype(np.int64)
    unary = graph.unary_offsets[:-1] + labelling
    table = np.empty(graph.n_factors, dtype=np.int64)
    fill_table_entries(
        graph.scope_offsets, graph.slot_variables, graph.cardinalities, graph.table_offsets,
        labelling, table,
    )  # fmt: skip
    return unary, table


@kernel
def fill_table_entries(
    scope_offsets: IntArray,
    slot_variables: IntArray,
    cardinalities: IntArray,
    table_offsets: IntArray,
    labels: LongArray,
    entries: LongArray,
) -> None:
    """The entry of each table, by Horner's rule: ``(...(y_0 K_1 + y_1) K_2 + ...)``."""
    for factor in range(len(entries)):
        local = 0
        for slot in range(load(scope_offsets, factor), load(scope_offsets, factor + 1)):
            variable = load(slot_variables, slot)
            local = local * load(cardinalities, variable) + load(labels, variable)
        store(entries, factor, load(table_offsets, factor) + local)
