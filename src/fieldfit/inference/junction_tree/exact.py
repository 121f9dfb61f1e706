"""Exact marginals, log-partition and samples by a junction tree (clique tree).

Variables are eliminated in a greedy order; the maximal cliques that this makes form a tree, and one
pass of messages up and one down this tree give all marginals.  The formulas stand with the kernels
in `fieldfit.inference.junction_tree.junction_tree_passes`; the order is found in
`fieldfit.inference.junction_tree.elimination_order`.

Reference: Lauritzen and Spiegelhalter, "Local computations with probabilities on graphical
structures and their application to expert systems", J. Royal Statistical Society B 50 (1988).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fieldfit._random_state import random_generator
from fieldfit._typing import FloatArray, IntArray, LabelArray, LongArray
from fieldfit._validation import require_instance, require_integer, require_number
from fieldfit.errors import ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import (
    Beliefs,
    Potentials,
    folded_unary,
    observed_labels,
    require_graph,
)
from fieldfit.graph.ragged import ranges
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Evidence, Inference, Progress, require_model
from fieldfit.inference.junction_tree.clique_tables import JunctionTree, LogTables
from fieldfit.inference.junction_tree.elimination_order import (
    Budget,
    EliminationPlan,
    find_plan,
    fixed_labels,
)
from fieldfit.inference.junction_tree.junction_tree_passes import pass_downward, pass_upward

__all__ = ["Exact", "fixed_factor_entries", "log_tables", "sample_exactly", "total_shift"]


@dataclass(frozen=True, kw_only=True)
class Exact(Inference):
    """Exact inference on graphs of moderate treewidth.

    Parameters
    ----------
    max_memory
        Bytes that a run may allocate; above it `run` refuses before it allocates anything large.
    max_operations
        Limit on the entries of all cluster tables together, which is a limit on time: a run
        takes roughly ten nanoseconds for each.
    n_restarts
        Random restarts of the search for an elimination order.  The search stops sooner when it
        has taken as long as the run that it could shorten.
    random_state
        Seed of the restarts; results do not depend on it except for rounding.

    Examples
    --------
    >>> graph = FactorGraph.grid(4, 4, 2)
    >>> result = Exact().run(graph, Potentials(graph))
    >>> round(result.log_partition / math.log(2), 9), result.bound
    (16.0, 'exact')
    """

    max_memory: float = field(default=4e9, kw_only=False)
    max_operations: float = 2e10
    n_restarts: int = 200
    random_state: int = 0

    def __post_init__(self) -> None:
        require_number("max_memory", self.max_memory, above=0, finite=False)
        require_number("max_operations", self.max_operations, above=0, finite=False)
        require_integer("n_restarts", self.n_restarts, at_least=0)
        require_integer("random_state", self.random_state, at_least=0)

    def memory(self, graph: FactorGraph, observed: Evidence = None) -> float:
        """Bytes that `run` would allocate: messages, marginals, beliefs and buffers.

        Where the search gave up on every order, it is the size of the largest table met.
        """
        labels = fixed_labels(graph, observed_labels(graph, observed))
        return find_plan(graph, labels, self._budget()).memory

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Marginals, and one log-partition for each example of a batch.

        ``init`` is ignored: an exact run needs no start.  ``progress`` is told once, at the end.
        """
        require_model(batch, potentials, progress)
        graph = batch.graph
        labels = fixed_labels(graph, observed_labels(graph, observed))
        budget = self._budget()
        plan = find_plan(graph, labels, budget).plan_within(budget, "Exact")
        constant, tables = log_tables(potentials, labels, plan)
        work = plan.workspace()
        shifts = np.empty(plan.n_cliques)
        possible = pass_upward(plan.tree, graph.structure, labels, tables, False, shifts, work)
        log_partition = total_shift(constant, shifts, possible)
        log_partitions = np.array([log_partition])
        if batch.n_examples > 1:
            log_partitions = _example_shifts(batch, potentials, labels, plan, shifts)

        unary_values = np.zeros(graph.unary_offsets[-1])
        factor_values = np.zeros(graph.table_offsets[-1])
        pass_downward(
            plan.tree,
            graph.structure,
            labels,
            tables,
            (unary_values, factor_values),
            shifts,
            np.empty(plan.n_marginals),
            work,
        )
        fixed = np.flatnonzero(labels >= 0)
        unary_values[graph.unary_offsets[fixed] + labels[fixed]] = 1.0
        factor_values[fixed_factor_entries(graph, labels)] = 1.0
        _copy_single_factors(graph, unary_values, factor_values)
        if progress is not None:
            progress(1, 0.0)
        return InferenceResult(
            beliefs=Beliefs(graph, unary_values, factor_values),
            log_partition=log_partition,
            bound="exact",
            converged=True,
            n_iter=1,
            residual=0.0,
            status=f"exact: {plan.n_cliques} cliques of width at most {plan.width}",
            method="Exact",
            log_partitions=log_partitions,
            converged_examples=np.ones(batch.n_examples, dtype=bool),
            diagnostics={
                "width": plan.width,
                "memory": plan.memory,
                "n_cliques": plan.n_cliques,
                "n_operations": plan.n_operations,
            },
        )

    def _budget(self) -> Budget:
        return Budget(self.max_memory, self.max_operations, self.n_restarts, self.random_state)


def log_tables(
    potentials: Potentials, labels: LabelArray, plan: EliminationPlan
) -> tuple[float, LogTables]:
    """The constant that the fixed labels contribute, and the tables of all other terms."""
    graph = potentials.graph
    unary = folded_unary(potentials)
    # kernels are compiled for writeable arrays; a read-only view is copied
    factors = np.require(potentials.factor_values, np.float64, ["C", "W"])
    fixed = np.flatnonzero(labels >= 0)
    constant = float(
        unary[graph.unary_offsets[fixed] + labels[fixed]].sum()
        + factors[fixed_factor_entries(graph, labels)].sum()
    )
    return constant, LogTables(unary, factors, np.empty(plan.tree.message_offsets[-1]))


def fixed_factor_entries(graph: FactorGraph, labels: LabelArray) -> LongArray:
    """Table entries that fixed labels select, of factors without a free variable.

    Factors of arity one are left out: they are part of the unary potentials.
    """
    free = np.bincount(
        graph.slot_factors[labels[graph.slot_variables] < 0], minlength=graph.n_factors
    )
    factors = np.flatnonzero((free == 0) & (graph.arities != 1))
    local = np.zeros(len(factors), dtype=np.int64)
    for position in range(int(graph.arities[factors].max(initial=0))):
        has = np.flatnonzero(graph.arities[factors] > position)
        variables = graph.slot_variables[graph.scope_offsets[factors[has]] + position]
        local[has] = local[has] * graph.cardinalities[variables] + labels[variables]
    return graph.table_offsets[factors] + local


def total_shift(constant: float, shifts: FloatArray, possible: bool) -> float:
    """Log-partition (or best score) from the shifts of all cliques."""
    if not possible or constant == -math.inf:
        raise ZeroWeightError("the model with its evidence must have positive weight, got zero")
    return math.fsum([constant, *shifts])


def _example_shifts(
    batch: Batch,
    potentials: Potentials,
    labels: LabelArray,
    plan: EliminationPlan,
    shifts: FloatArray,
) -> FloatArray:
    """The log-partition of each example: a clique and a fixed label belong to one of them."""
    graph, tree = batch.graph, plan.tree
    unary = folded_unary(potentials)
    fixed = np.flatnonzero(labels >= 0)
    per_variable = np.zeros(graph.n_variables)
    per_variable[fixed] = unary[graph.unary_offsets[fixed] + labels[fixed]]
    # cliques come in the order of elimination; the first variable of each is eliminated there
    np.add.at(per_variable, tree.variables[tree.offsets[:-1]], shifts)
    entries = fixed_factor_entries(graph, labels)
    per_factor = np.zeros(graph.n_factors)
    factors = np.searchsorted(graph.table_offsets, entries, side="right") - 1
    per_factor[factors] = potentials.factor_values[entries]
    return batch.sum_variables(per_variable) + batch.sum_factors(per_factor)


def _copy_single_factors(
    graph: FactorGraph, unary_values: FloatArray, factor_values: FloatArray
) -> None:
    """The belief of a factor of arity one is that of its variable."""
    single = np.flatnonzero(graph.arities == 1)
    variables = graph.slot_variables[graph.scope_offsets[single]]
    sizes = graph.cardinalities[variables]
    source = ranges(graph.unary_offsets[variables], sizes)
    factor_values[ranges(graph.table_offsets[single], sizes)] = unary_values[source]


# -- independent exact samples ------------------------------------------------------------
#
# The upward pass over the tree (`fieldfit.inference.junction_tree.junction_tree_passes`) leaves at
# every clique the messages ``m_d`` of its children.  From the roots down, the eliminated variables
# ``E`` of a clique are then drawn given the labels of its separator ``S``, which are known by that
# time:
#
#     p(y_E | y_S) ∝ exp(sum_a th_a(y_a) + sum_{children d} m_d(y_{S_d}))
#
# Every clique is visited once, for all samples together.  Reference: Dawid, "Applications of a
# general propagation algorithm for probabilistic expert systems", Statistics and Computing 2
# (1992).


#: Samples are compared with distribution functions in chunks of this many numbers (16 MB).
ENTRIES_PER_CHUNK = 2_000_000


def sample_exactly(
    graph: FactorGraph,
    potentials: Potentials,
    n_samples: int,
    *,
    random_state: int | np.random.Generator | None = None,
    observed: Evidence = None,
    limits: Exact | None = None,
) -> IntArray:
    """Independent labellings, shape ``(n_samples, n_variables)``, from the distribution itself.

    ``limits`` has the limits on memory and time (those of `Exact()` if ``None``); here the largest
    cluster table is stored, and its size counts as memory.

    Parameters
    ----------
    graph, potentials
        The model.
    n_samples
        How many labellings.
    random_state
        A seed or a generator.
    observed
        Evidence: ``{variable: label}``, or one integer for each variable with ``-1`` for "not
        observed".
    limits
        An `Exact` with the limits on memory and time.

    Returns
    -------
    array
        Labels, ``(n_samples, n_variables)``.

    Examples
    --------
    >>> graph = FactorGraph.chain(3, 2)
    >>> potentials = Potentials(graph, factors=np.log([[1.0, 1e-9], [1e-9, 1.0]]))
    >>> labels = sample_exactly(graph, potentials, 4, random_state=0)
    >>> labels.shape, bool((labels[:, :1] == labels).all())
    ((4, 3), True)
    """
    require_integer("n_samples", n_samples, at_least=0)
    require_graph(graph, potentials)
    require_instance("limits", limits, Exact, "Exact(max_memory=1e9)", or_none=True)
    generator = random_generator(random_state)
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
        cluster = _cluster(graph, plan.tree, clique, tables, fixed)
        _draw(cluster, plan, clique, labels, generator)
    return labels


def _draw(
    cluster: FloatArray,
    plan: EliminationPlan,
    clique: int,
    labels: IntArray,
    generator: np.random.Generator,
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
    chunk = max(1, ENTRIES_PER_CHUNK // n_outcomes)
    for begin in range(0, len(labels), chunk):
        part = slice(begin, begin + chunk)
        distribution = cumulative[rows[part]]
        # uniform < 1, so an outcome of probability zero is never the first above the threshold
        threshold = uniform[part] * distribution[:, -1]
        outcomes[part] = (distribution <= threshold[:, None]).sum(axis=1)
    chosen = np.unravel_index(outcomes, sizes[:n_eliminated])
    for variable, drawn in zip(variables, chosen, strict=False):
        labels[:, variable] = drawn


def _cluster(
    graph: FactorGraph, tree: JunctionTree, clique: int, tables: LogTables, fixed: IntArray
) -> FloatArray:
    """Sum of the clique's log tables, one axis for each of its variables."""
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
