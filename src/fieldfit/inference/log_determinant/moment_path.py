r"""Interior-point method of the log-determinant relaxation, with a certified gap.

    max_y  f(y) = <th, y> + 1/2 log det(Y(y) + D)     tables b(y) >= 0,  Y(y) semidefinite

`MomentModel` has the unknowns ``y``.  With multipliers ``l`` of the tables and ``S`` of the moment
matrix, ``l b = t`` and ``Y S = t I`` define the central path, ``t -> 0``.  Steps are those of
Mehrotra, a prediction for ``t = 0`` and a correction, in the scaling of Nesterov and Todd for the
matrices; the objective is not linear, so primal and dual take the same length of them, else their
residual would not fall.

**Gap.**  The point is always inside.  By concavity, at any other point ``y'`` of the set

    f(y') - f(y) <= <grad f(y), y' - y>  <=  <l, b> + <S, Y> + <e, y' - y>,

    e = grad f(y) + B' l + Y^T(S),

for any non-negative ``l`` and semidefinite ``S``.  Moments lie between 0 and 1, those of free pairs
between -1 and 1, so the last term has a bound that is read off; ``f(y)`` plus the whole is an upper
bound on the maximum, wherever the path has been left.

References: Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J.
Optimization 2 (1992); Todd, Toh and Tütüncü, "On the Nesterov-Todd direction in semidefinite
programming", SIAM J. Optimization 8 (1998).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg import solve_triangular

from fieldfit._typing import FloatArray
from fieldfit.inference.base import Progress
from fieldfit.inference.log_determinant.moment_hessian import MomentSystem, moment_system
from fieldfit.inference.log_determinant.moment_model import MomentModel

__all__ = ["MomentPath", "PathPoint", "PathStart"]

#: First ``t``, as a fraction of the range of the potentials.
INITIAL_BARRIER = 0.025
#: Fraction of the way to the boundary.
BACK_OFF = 0.98
#: ``t`` falls at most by this factor in a step.
LEAST_CENTRING = 1e-4
#: Products ``l b`` become no smaller than this fraction of what the tolerance asks for: tables
#: closer to zero would cost digits of everything else.
LEAST_PRODUCT = 0.1
#: A later run begins at the last point whose average of ``l b`` was above this, relative to the
#: range of the potentials: the end of the path is too close to the boundary to move from.  It
#: begins in the middle if that average is below the second number times as much, for its range.
WARM, LEAST_WARM = 1e-4, 0.1
#: Steps without a smaller gap before a run gives up: far from the answer, where the first steps may
#: lose what was gained, and near it, the gap below a fraction of the value: there it is rounding.
PATIENCE_FAR, PATIENCE_NEAR, NEAR = 20, 3, 1e-2


@dataclass(frozen=True)
class PathPoint:
    """Unknowns, tables and multipliers, all strictly inside."""

    unknowns: FloatArray
    tables: FloatArray
    slack: FloatArray  # l
    dual: FloatArray  # S


@dataclass(frozen=True)
class Scaling:
    """``Q`` with ``Q^-1 Y Q^-T = Q' S Q = diag(s)``."""

    values: FloatArray  # s
    matrix: FloatArray
    inverse: FloatArray


@dataclass(frozen=True)
class Direction:
    """A step; the matrices are in the scaling, where they add up to what was asked."""

    unknowns: FloatArray
    tables: FloatArray
    slack: FloatArray
    matrix: FloatArray
    dual: FloatArray


@dataclass(frozen=True)
class PathStart:
    """Where an earlier path has ended, and a place before that to go on from."""

    end: PathPoint
    inside: PathPoint


class MomentPath:
    """One run in progress; ``linear`` is ``th`` by unknown (zero on free moments)."""

    def __init__(self, model: MomentModel, linear: FloatArray) -> None:
        self.model, self.linear = model, linear
        self.range = max(1.0, float(np.abs(linear).max(initial=0.0)))
        self.n_iter = 0
        self.failed = False
        self._is_warm = False
        self._least = 0.0
        n_free = len(model.uniform) - model.n_tabled
        self._n_products = len(model.table_shift) + model.n_coordinates + 1
        self._lowest = np.concatenate([np.zeros(model.n_tabled), np.full(n_free, -1.0)])
        self._begin_at(self._middle())

    def _begin_at(self, point: PathPoint) -> None:
        self._move_to(point)
        self.upper = self.value + self.gap
        self.inside = point
        self._best = self.gap, point
        self._n_idle = 0

    def warm_start(self, start: PathStart, tol: float) -> None:
        """Stay at the end of an earlier path if it is the answer, or begin inside if that helps."""
        cold = self.point, self.gap
        self._begin_at(start.end)
        if self.is_solved(tol):
            self.inside = start.inside
            return
        self._begin_at(start.inside)
        self._is_warm = self.gap < cold[1] and self.average > LEAST_WARM * WARM * self.range
        if not self._is_warm:
            self._begin_at(cold[0])

    @property
    def start(self) -> PathStart:
        """Where a later run may begin."""
        return PathStart(self.point, self.inside)

    def _middle(self) -> PathPoint:
        """Independent uniform variables."""
        model = self.model
        tables = model.tables(model.uniform)
        inverse: FloatArray = np.linalg.inv(model.matrix(model.uniform)).astype(np.float64)
        barrier = INITIAL_BARRIER * self.range
        return PathPoint(model.uniform, tables, barrier / tables, barrier * inverse)

    def _move_to(self, point: PathPoint) -> None:
        """Value, derivative and gap at a point."""
        model = self.model
        matrix = model.matrix(point.unknowns)
        noisy = matrix + model.noise
        self.point, self.matrix = point, matrix
        self.inverse = np.linalg.inv(noisy)
        self.inverse = 0.5 * (self.inverse + self.inverse.T)
        self.value = float(self.linear @ point.unknowns) + 0.5 * float(np.linalg.slogdet(noisy)[1])
        self.slope = self.linear + model.gather(0.5 * self.inverse)
        rest = self.slope + model.gather(point.dual)
        rest[: model.n_tabled] += model.from_tables @ point.slack
        product = float(point.slack @ point.tables) + float(np.sum(point.dual * matrix))
        self.average = product / self._n_products
        above, below = 1.0 - point.unknowns, self._lowest - point.unknowns
        self.gap = product + float(np.maximum(rest * above, rest * below).sum())

    def run(self, tol: float, max_iter: int, progress: Progress | None = None) -> bool:
        """Steps until the gap is small enough; whether it is.  Ends at the point of least gap."""
        while not (solved := self.is_solved(tol)):
            if self.n_iter == max_iter:
                break
            patience = PATIENCE_NEAR if self.is_solved(NEAR) else PATIENCE_FAR
            if self.failed or self._n_idle > patience:
                if not self._is_warm:
                    break
                self._start_again()
            self._least = LEAST_PRODUCT * self._allowed(tol) / self._n_products
            self.step()
            if progress is not None:
                progress(self.n_iter, self.gap)
        if self._best[1] is not self.point:
            self._move_to(self._best[1])
        return solved

    def _start_again(self) -> None:
        """Begin in the middle after all; what was proved stays."""
        self._is_warm = self.failed = False
        upper = self.upper
        self._begin_at(self._middle())
        self.upper = min(upper, self.upper)

    def is_solved(self, tol: float) -> bool:
        """Whether the gap is small enough."""
        return self._best[0] <= self._allowed(tol)

    def _allowed(self, tol: float) -> float:
        return tol * max(1.0, abs(self.value))

    def step(self) -> None:
        """A prediction and a correction; the point stays where it is if rounding spoils them."""
        self.n_iter += 1
        before = self.point
        try:
            self._move_to(self._next_point())
        except LinAlgError:
            self.failed = True
        if self.failed or not np.isfinite(self.gap):
            self.failed = True
            self._move_to(before)
        self._n_idle += 1
        self.upper = min(self.upper, self.value + self.gap)
        if self.gap < self._best[0]:
            self._best, self._n_idle = (self.gap, self.point), 0
        if self.average > WARM * self.range:
            self.inside = self.point

    def _next_point(self) -> PathPoint:
        point, model = self.point, self.model
        scaling = self._scaling()
        weights = point.slack / point.tables
        system = moment_system(model, self.inverse, scaling.matrix, scaling.inverse, weights)
        none, nothing = np.zeros(len(point.tables)), np.zeros_like(self.matrix)
        ahead = self._direction(system, scaling, 0.0, none, nothing)
        length = self._length(ahead, scaling, 1.0)
        reached = self._average_after(ahead, scaling, length) / self.average
        barrier = max(self.average * min(1.0, max(reached**3, LEAST_CENTRING)), self._least)
        moved = ahead.matrix @ ahead.dual
        sums = scaling.values[:, None] + scaling.values[None, :]
        second_order = (moved + moved.T) / sums
        step = self._direction(system, scaling, barrier, ahead.tables * ahead.slack, second_order)
        length = self._length(step, scaling, BACK_OFF)
        dual = scaling.inverse.T @ step.dual @ scaling.inverse
        return PathPoint(
            point.unknowns + length * step.unknowns,
            point.tables + length * step.tables,
            point.slack + length * step.slack,
            point.dual + length * 0.5 * (dual + dual.T),
        )

    def _scaling(self) -> Scaling:
        root = np.linalg.cholesky(self.matrix)
        dual_root = np.linalg.cholesky(self.point.dual)
        _, values, right = np.linalg.svd(dual_root.T @ root)
        inverse = solve_triangular(root, np.eye(len(root)), lower=True, check_finite=False)
        scale = np.sqrt(values)
        return Scaling(values, (root @ right.T) / scale, scale[:, None] * (right @ inverse))

    def _direction(
        self,
        system: MomentSystem,
        scaling: Scaling,
        barrier: float,
        product: FloatArray,
        second_order: FloatArray,
    ) -> Direction:
        """Towards ``l b = t - product`` and its counterpart of the matrices."""
        point, model = self.point, self.model
        pull = (barrier - product) / point.tables
        inside = np.diag(barrier / scaling.values) - second_order
        target = scaling.inverse.T @ inside @ scaling.inverse
        matrix = 0.5 * self.inverse + 0.5 * (target + target.T)
        vector = self.linear[: model.n_tabled] + model.from_tables @ pull
        unknowns = system.solve(matrix, vector)
        tables = np.asarray(model.to_tables @ unknowns[: model.n_tabled])
        slack = pull - point.slack - point.slack / point.tables * tables
        change = scaling.inverse @ model.matrix(unknowns, 0.0) @ scaling.inverse.T
        dual = inside - np.diag(scaling.values) - change
        return Direction(unknowns, tables, slack, change, dual)

    def _length(self, step: Direction, scaling: Scaling, back_off: float) -> float:
        """At most the whole step, and so much of the way to the boundary."""
        point = self.point
        scale = np.sqrt(scaling.values)
        units = scale[:, None] * scale[None, :]
        steepest = max(
            float(np.max(-step.tables / point.tables, initial=0.0)),
            float(np.max(-step.slack / point.slack, initial=0.0)),
            -float(np.linalg.eigvalsh(step.matrix / units)[0]),
            -float(np.linalg.eigvalsh(step.dual / units)[0]),
        )
        return min(1.0, back_off / max(steepest, back_off))

    def _average_after(self, step: Direction, scaling: Scaling, length: float) -> float:
        point = self.point
        tables = point.tables + length * step.tables
        slack = point.slack + length * step.slack
        both = np.diag(scaling.values)
        matrices = np.sum((both + length * step.matrix) * (both + length * step.dual))
        return (float(tables @ slack) + float(matrices)) / self._n_products
