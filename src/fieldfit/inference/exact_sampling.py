"""Independent exact samples from a clique tree.

The upward pass over the tree (`fieldfit.kernels.clique_tree`) leaves at every clique the messages
``m_d`` of its children.  From the roots down, the eliminated variables ``E`` of a clique are then
drawn given the labels of its separator ``S``, which are known by that time:

    p(y_E | y_S) ∝ exp(sum_a th_a(y_a) + sum_{children d} m_d(y_{S_d}))

Every clique is visited once, for all samples together.  Reference: Dawid, "Applications of a
general propagation algorithm for probabilistic expert systems", Statistics and Computing 2 (1992).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials, observed_labels
from fieldfit.errors import InvalidInputError
from fieldfit.inference.elimination import Budget, Plan, find_plan, fixed_labels
from fieldfit.inference.exact import Exact, log_tables, total_shift
from fieldfit.kernels.clique_tree import pass_upward
from fieldfit.kernels.tables import LogTables

__all__ = ["sample_exactly"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]

#: Samples are compared with distribution functions in pieces of this many numbers (16 MB).
ENTRIES_PER_PIECE = 2_000_000


def sample_exactly(
    graph: FactorGraph,
    potentials: Potentials,
    n_samples: int,
    *,
    random_state: int | np.random.Generator | None = None,
    observed: dict[int, int] | ArrayLike | None = None,
    limits: Exact | None = None,
) -> IntArray:
    """Independent labellings, shape ``(n_samples, n_variables)``, from the distribution itself.

    ``limits`` has the limits on memory and time (those of `Exact()` if ``None``); here the largest
    cluster table is stored, and its size counts as memory.

    Examples
    --------
    >>> graph = FactorGraph.chain(3, 2)
    >>> potentials = Potentials(graph, factors=np.log([[1.0, 1e-9], [1e-9, 1.0]]))
    >>> labels = sample_exactly(graph, potentials, 4, random_state=0)
    >>> labels.shape, bool((labels[:, :1] == labels).all())
    ((4, 3), True)
    """
    if n_samples < 0:
        raise InvalidInputError(f"n_samples must be at least 0, got {n_samples}")
    generator = np.random.default_rng(random_state)
    limits = Exact() if limits is None else limits
    fixed = fixed_labels(graph, observed_labels(graph, observed))
    # a cluster is stored twice (logarithms and probabilities), so both limits apply to it
    budget = Budget(
        limits.max_memory,
        min(limits.max_operations, limits.max_memory / 16.0),
        limits.n_restarts,
        limits.random_state,
    )
    plan = find_plan(graph, fixed, budget).plan_within(budget, "sample_exactly")
    constant, tables = log_tables(potentials, fixed, plan)
    shifts = np.empty(plan.n_cliques)
    possible = pass_upward(
        plan.tree, graph.structure, fixed, tables, False, shifts, plan.workspace()
    )
    total_shift(constant, shifts, possible)  # raises if there is nothing to sample
    labels = np.repeat(fixed[None], n_samples, axis=0)
    for clique in reversed(range(plan.n_cliques)):
        _draw(_cluster(plan, clique, tables, fixed), plan, clique, labels, generator)
    return labels


def _draw(
    cluster: FloatArray, plan: Plan, clique: int, labels: IntArray, generator: np.random.Generator
) -> None:
    """Labels of the variables that one clique eliminates, given those of its separator."""
    tree = plan.tree
    variables = tree.variables[tree.offsets[clique] : tree.offsets[clique + 1]]
    n_eliminated = int(tree.n_eliminated[clique])
    sizes = cluster.shape
    n_outcomes = int(np.prod(sizes[:n_eliminated]))
    given = np.ascontiguousarray(cluster.reshape(n_outcomes, -1).T)
    largest = given.max(axis=1, keepdims=True)
    cumulative = np.cumsum(np.exp(given - np.where(largest > -np.inf, largest, 0.0)), axis=1)
    separator = labels[:, variables[n_eliminated:]]
    rows = np.zeros(len(labels), dtype=np.int64)
    for axis, size in enumerate(sizes[n_eliminated:]):
        rows = rows * size + separator[:, axis]
    uniform = generator.random(len(labels))
    outcomes = np.empty(len(labels), dtype=np.int64)
    piece = max(1, ENTRIES_PER_PIECE // n_outcomes)
    for begin in range(0, len(labels), piece):
        part = slice(begin, begin + piece)
        distribution = cumulative[rows[part]]
        # uniform < 1, so an outcome of probability zero is never the first above the threshold
        threshold = uniform[part] * distribution[:, -1]
        outcomes[part] = (distribution <= threshold[:, None]).sum(axis=1)
    chosen = np.unravel_index(outcomes, sizes[:n_eliminated])
    for variable, drawn in zip(variables, chosen, strict=False):
        labels[:, variable] = drawn


def _cluster(plan: Plan, clique: int, tables: LogTables, fixed: IntArray) -> FloatArray:
    """Sum of the clique's log tables, one axis for each of its variables."""
    graph, tree = plan.graph, plan.tree
    variables = tree.variables[tree.offsets[clique] : tree.offsets[clique + 1]]
    axes = {int(variable): axis for axis, variable in enumerate(variables)}
    cluster = np.zeros([int(graph.cardinalities[variable]) for variable in variables])
    for variable in variables[: tree.n_eliminated[clique]]:
        begin, end = graph.unary_offsets[variable], graph.unary_offsets[variable + 1]
        cluster += _spread(tables.unary[begin:end], [axes[int(variable)]], cluster.ndim)
    for factor in tree.factors[tree.factor_offsets[clique] : tree.factor_offsets[clique + 1]]:
        begin, end = graph.table_offsets[factor], graph.table_offsets[factor + 1]
        table = tables.factors[begin:end].reshape(graph.table_shape(int(factor)))
        scope = graph.scope(int(factor))
        table = table[tuple(slice(None) if i in axes else int(fixed[i]) for i in scope)]
        cluster += _spread(table, [axes[i] for i in scope if i in axes], cluster.ndim)
    for child in tree.children[tree.child_offsets[clique] : tree.child_offsets[clique + 1]]:
        first = tree.offsets[child] + tree.n_eliminated[child]
        separator = [int(i) for i in tree.variables[first : tree.offsets[child + 1]]]
        begin, end = tree.message_offsets[child], tree.message_offsets[child + 1]
        message = tables.messages[begin:end].reshape(
            [int(graph.cardinalities[i]) for i in separator]
        )
        cluster += _spread(message, [axes[i] for i in separator], cluster.ndim)
    return cluster


def _spread(table: FloatArray, axes: list[int], n_axes: int) -> FloatArray:
    """A table whose dimensions are the given axes, ready to be added to all ``n_axes``."""
    order = np.argsort(axes)
    shape = np.ones(n_axes, dtype=np.int64)
    shape[np.asarray(axes)[order]] = np.array(table.shape)[order]
    return table.transpose(order).reshape(shape)
