r"""Log-determinant relaxation: an upper bound on the log-partition by a Gaussian entropy.

Discrete variables with uniform noise have a density, whose differential entropy is their own
entropy; no density of a given covariance has more than the Gaussian.  With ``N`` coordinates, the
indicators of all labels but one of every variable,

    log Z(th) <= max_mu  <th, mu> + 1/2 log det(cov(mu) + D) + N/2 log(2 pi e),

where ``mu`` runs over beliefs of pairs that agree with each other and whose moment matrix is
positive semidefinite, and ``D`` is the covariance of the noise (`moment_model`).  Moments of pairs
without a factor are free.  The problem is strictly concave; its maximiser is the gradient of the
bound by the potentials.

Connected components are solved one by one (the best covariance between them is zero), each by the
interior-point method of `moment_path`, whose gap is certified: what is reported is an upper bound
at any time.

Reference: Wainwright and Jordan, "Log-determinant relaxation for approximate inference in discrete
Markov random fields", IEEE Trans. Signal Processing 54 (2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fieldfit._typing import BoolArray, FloatArray, IntArray, LabelArray, LongArray
from fieldfit._validation import require_integer, require_number
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, add_to_single_factors
from fieldfit.graph.ragged import offsets_of, reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import GraphInference, Progress, ending, require_result
from fieldfit.inference.conditioning import condition
from fieldfit.inference.log_determinant.moment_hessian import step_cost
from fieldfit.inference.log_determinant.moment_model import MomentModel
from fieldfit.inference.log_determinant.moment_path import MomentPath, PathPoint, PathStart

__all__ = ["LogDeterminant"]


@dataclass(frozen=True, kw_only=True)
class LogDeterminant(GraphInference):
    """Upper bounds and beliefs by the largest log-determinant of a moment matrix.

    Made for models with many strong couplings of mixed signs, where bounds by trees are weak; where
    couplings are weak or few, trees are better.  Takes factors of at most two variables.  Hard
    zeros may rule out labels; a table with one between labels that are left is refused.

    Parameters
    ----------
    tol
        Converged when the gap, which bounds the distance from the maximum, is at most this times
        the value of the component (or times 1, if that is larger).
    max_iter
        Most iterations of each connected component.
    max_operations
        Limit on the multiplications of an iteration; above it `run` refuses.  The default is
        passed by 103 variables with two labels that are all linked, and by a grid of 22 x 22.

    Examples
    --------
    >>> import numpy as np, fieldfit as ff
    >>> graph = ff.FactorGraph.from_edges(4, [(i, j) for i in range(4) for j in range(i)], 2)
    >>> potentials = ff.Potentials(graph, factors=2.0 * np.eye(2)[::-1])
    >>> result = ff.inference.LogDeterminant().run(graph, potentials)
    >>> result.bound, result.converged, round(result.log_partition, 3)
    ('upper', True, 11.12)
    >>> round(ff.Exact().run(graph, potentials).log_partition, 3)
    9.958
    """

    #: Most variables of a factor.
    max_arity: ClassVar[int | None] = 2

    tol: float = 1e-7
    max_iter: int = 100
    max_operations: float = 5e10

    def __post_init__(self) -> None:
        require_number("tol", self.tol, above=0)
        require_integer("max_iter", self.max_iter, at_least=1)
        require_number("max_operations", self.max_operations, above=0, finite=False)

    def run_graph(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: LabelArray,
        init: InferenceResult | None,
        progress: Progress | None,
    ) -> InferenceResult:
        """Beliefs of one graph; a start helps if the same labels were possible then."""
        require_result(init)
        _require_pairs(graph)
        model = _PairModel(graph, potentials, observed)
        starts = _starts(init, model)
        paths = [
            self._solved(component, start, progress)
            for component, start in zip(model.components, starts, strict=True)
        ]
        gap = sum(path.upper - path.value for path, _ in paths)
        value = model.constant + sum(path.upper for path, _ in paths)
        converged = all(is_solved for _, is_solved in paths)
        n_iter = max((path.n_iter for path, _ in paths), default=0)
        return InferenceResult(
            beliefs=model.beliefs([path.point for path, _ in paths]),
            log_partition=float(value),
            bound="upper",
            converged=converged,
            n_iter=n_iter,
            residual=float(gap),
            status=ending(
                np.array([converged]),
                f"gap {gap:.2g} after {n_iter} iterations",
                self.tol,
                "more iterations or a larger tol",
            ),
            method="LogDeterminant",
            log_partitions=np.array([value]),
            converged_examples=np.array([converged]),
            diagnostics={"gap": float(gap)},
            state=_State(model.is_possible, tuple(path.start for path, _ in paths)),
        )

    def _solved(
        self, component: _Component, start: PathStart | None, progress: Progress | None
    ) -> tuple[MomentPath, bool]:
        cost = step_cost(component.sizes, component.edges)
        if cost > self.max_operations:
            raise TooLargeError(
                f"LogDeterminant takes models of at most max_operations {self.max_operations:.3g} "
                f"multiplications for an iteration, this one needs {cost:.3g}"
            )
        moments = MomentModel.of(component.sizes, component.edges)
        path = MomentPath(moments, component.linear(moments))
        if start is not None:
            path.warm_start(start, self.tol)
        return path, path.run(self.tol, self.max_iter, progress)


@dataclass(frozen=True)
class _State:
    """Where a later run may begin, and which labels were possible."""

    is_possible: BoolArray
    starts: tuple[PathStart, ...]


def _starts(init: InferenceResult | None, model: _PairModel) -> list[PathStart | None]:
    none: list[PathStart | None] = [None] * len(model.components)
    if init is None:
        return none
    if not init.beliefs.graph.has_structure_of(model.graph):
        raise InvalidInputError("init must be a result on a graph of this structure")
    state = init.state
    if not isinstance(state, _State) or not np.array_equal(state.is_possible, model.is_possible):
        return none
    return list(state.starts)


def _require_pairs(graph: FactorGraph) -> None:
    arity = int(graph.arities.max(initial=0))
    if arity > 2:
        raise InvalidInputError(
            f"LogDeterminant takes factors of at most two variables, got one of {arity}: {graph!r}"
        )


# -- from a graph to components and back ------------------------------------------------------


@dataclass(frozen=True)
class _Component:
    """A connected component of the variables that still have a choice."""

    variables: LongArray
    sizes: IntArray  # labels that are left
    edges: LongArray  # pairs of places in `variables`
    unary: list[FloatArray]  # by variable
    tables: list[FloatArray]  # by edge

    def linear(self, moments: MomentModel) -> FloatArray:
        """Potentials by unknown, without the constant."""
        total = np.zeros(len(moments.uniform))
        if self.tables:
            flat = np.concatenate([table.ravel() for table in self.tables])
            total[: moments.n_tabled] = moments.from_tables @ flat
        means = [own[:-1] - own[-1] for own in self.unary]
        total[: moments.n_coordinates] += np.concatenate(means)
        return total

    def constant(self) -> float:
        """What `linear` leaves out, and the constant of the entropy."""
        last = sum(float(own[-1]) for own in self.unary)
        last += sum(float(table[-1, -1]) for table in self.tables)
        return last + 0.5 * float(np.sum(self.sizes - 1)) * float(np.log(2.0 * np.pi * np.e))


class _PairModel:
    """A conditioned model: possible labels, components with their numbers, a constant."""

    def __init__(self, graph: FactorGraph, potentials: Potentials, observed: LabelArray) -> None:
        self.graph = graph
        conditioned, _ = condition(graph, potentials, observed)
        self._unary = conditioned.unary
        self.is_possible = np.isfinite(conditioned.unary)
        offsets = graph.unary_offsets
        self.labels = [
            np.flatnonzero(self.is_possible[offsets[i] : offsets[i + 1]])
            for i in range(graph.n_variables)
        ]
        self.n_left = np.array([len(labels) for labels in self.labels], dtype=np.int32)
        own = [
            conditioned.unary[offsets[i] : offsets[i + 1]][labels]
            for i, labels in enumerate(self.labels)
        ]
        tables = potentials.factor_values[graph.table_offsets[:-1][graph.arities == 0]]
        self.constant = float(tables.sum())
        pairs = self._joined_pairs(potentials, own)
        self.constant += sum(float(own[i][0]) for i in np.flatnonzero(self.n_left == 1))
        self.components = self._components(own, pairs)
        self.constant += sum(component.constant() for component in self.components)

    def _joined_pairs(
        self, potentials: Potentials, own: list[FloatArray]
    ) -> dict[tuple[int, int], FloatArray]:
        """One table for each pair of variables with a choice; other tables go to ``own``."""
        graph = self.graph
        pairs: dict[tuple[int, int], FloatArray] = {}
        for a in np.flatnonzero(graph.arities == 2).tolist():
            i, j = graph.scope(a)
            table = potentials.factor(a)[np.ix_(self.labels[i], self.labels[j])]
            if not np.isfinite(table).all():
                raise InvalidInputError(
                    "LogDeterminant takes pairs without hard zeros between possible labels, "
                    f"got one in factor {a}"
                )
            if self.n_left[j] == 1:
                own[i] = own[i] + table[:, 0]
            elif self.n_left[i] == 1:
                own[j] = own[j] + table[0]
            else:
                key, table = ((i, j), table) if i < j else ((j, i), table.T)
                pairs[key] = pairs[key] + table if key in pairs else table
        return pairs

    def _components(
        self, own: list[FloatArray], pairs: dict[tuple[int, int], FloatArray]
    ) -> list[_Component]:
        n = self.graph.n_variables
        ends = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
        links = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
        _, member = connected_components(links, directed=False) if n else (0, np.zeros(0, int))
        place = np.zeros(n, dtype=np.int64)
        found = []
        for number in np.unique(member[self.n_left > 1]).tolist():
            variables = np.flatnonzero((member == number) & (self.n_left > 1))
            place[variables] = np.arange(len(variables))
            chosen = np.flatnonzero(member[ends[:, 0]] == number)
            keys = [(int(i), int(j)) for i, j in ends[chosen]]
            found.append(
                _Component(
                    variables,
                    self.n_left[variables],
                    place[ends[chosen]],
                    [own[i] for i in variables],
                    [pairs[key] for key in keys],
                )
            )
        return found

    def beliefs(self, points: list[PathPoint]) -> Beliefs:
        """Beliefs of all variables and factors; what is not possible has none."""
        graph = self.graph
        unary = self.is_possible.astype(np.float64)  # right where one label is left
        tables: dict[tuple[int, int], FloatArray] = {}
        for component, point in zip(self.components, points, strict=True):
            self._read(component, point, unary, tables)
        factors = np.zeros(int(graph.table_offsets[-1]))
        add_to_single_factors(graph, unary, factors)
        for a in np.flatnonzero(graph.arities != 1).tolist():
            table = factors[graph.table_offsets[a] : graph.table_offsets[a + 1]]
            if graph.arities[a] == 0:
                table[:] = 1.0
                continue
            i, j = graph.scope(a)
            shaped = table.reshape(graph.table_shape(a))
            key = (i, j) if i < j else (j, i)
            if key in tables:
                found = tables[key] if i < j else tables[key].T
                shaped[np.ix_(self.labels[i], self.labels[j])] = found
            else:  # one of the two has a single label
                rows, columns = (
                    unary[graph.unary_offsets[v] : graph.unary_offsets[v + 1]] for v in (i, j)
                )
                shaped[:] = np.outer(rows, columns)
        return Beliefs(graph, unary, factors)

    def _read(
        self,
        component: _Component,
        point: PathPoint,
        unary: FloatArray,
        tables: dict[tuple[int, int], FloatArray],
    ) -> None:
        """Means and tables of one component, normalised."""
        first = offsets_of(component.sizes - 1)
        for k, i in enumerate(component.variables.tolist()):
            own = point.unknowns[first[k] : first[k + 1]]
            values = np.maximum(np.append(own, 1.0 - own.sum()), 0.0)
            unary[self.graph.unary_offsets[i] + self.labels[i]] = values / values.sum()
        sizes = component.sizes[component.edges].prod(axis=1)
        offsets = offsets_of(sizes)
        totals = reduce_rows(np.add, point.tables, offsets)
        for e, (k, m) in enumerate(component.edges.tolist()):
            shape = int(component.sizes[k]), int(component.sizes[m])
            values = point.tables[offsets[e] : offsets[e + 1]].reshape(shape) / totals[e]
            i, j = int(component.variables[k]), int(component.variables[m])
            tables[i, j] = values
