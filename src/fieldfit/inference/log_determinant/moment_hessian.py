r"""Newton systems on moment matrices: a step of means and moments with two log-determinants.

A step ``V`` of the moment matrix, with the unknowns ``v`` on it, solves

    min  1/2 <V, K V> + 1/2 <v, B' W B v> - <R, V> - <r, v>,

    K V = 1/2 Z^-1 V Z^-1 + G V G,

``Z`` the moment matrix with noise, ``G`` the scaling matrix of the semidefinite constraint, and
``W`` the weights of the entries of the tables.

*All unknowns* (`AllMoments`): the matrix of this system is formed and factorised.

*Tabled unknowns* (`TabledMoments`): where most pairs have no table, their moments are eliminated.
In a basis ``F`` where ``G`` is the identity and ``1/2 Z^-1`` diagonal, ``a_i``, the inverse of
``K`` is

    K^-1 R = F [C * (F' R F)] F',    C_ij = 1 / (1 + a_i a_j / 2).

Only its entries on the pattern of the graph are needed; they form the compliance of this pattern,
whose inverse takes the place of ``K``.

Digits that are lost come back by iterative refinement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.inference.log_determinant.moment_model import MomentModel
from fieldfit.numeric.compile import kernel

__all__ = ["AllMoments", "MomentSystem", "TabledMoments", "moment_system", "step_cost"]

#: Most refinements of a solve; none is needed where so little of the right-hand side is left.
REFINEMENTS, ENOUGH = 4, 1e-13
#: What is added to the diagonal, as a fraction of it, where rounding has spoilt a factorisation.
RIDGES = (0.0, 1e-15, 1e-13, 1e-11, 1e-9)


class MomentSystem(ABC):
    """The system at one point; ``scaling`` is ``Q`` with ``G = (Q Q')^-1``, and its inverse."""

    def __init__(
        self,
        model: MomentModel,
        inverse: FloatArray,
        scaling: FloatArray,
        inverse_scaling: FloatArray,
        weights: FloatArray,
    ) -> None:
        self.model = model
        self.inverse = inverse  # Z^-1
        self.scaling = scaling
        self.metric = inverse_scaling.T @ inverse_scaling  # G
        self.weights = weights
        self._factorise()

    @abstractmethod
    def _factorise(self) -> None: ...

    @abstractmethod
    def _solve_once(self, right: FloatArray) -> FloatArray:
        """All unknowns, for a right-hand side of all unknowns."""

    def solve(self, matrix: FloatArray, vector: FloatArray) -> FloatArray:
        """The step of all unknowns for ``R`` and ``r``, with iterative refinement."""
        rest = self.model.gather(matrix)
        rest[: self.model.n_tabled] += vector
        enough = ENOUGH * float(np.abs(rest).max())
        step = best = self._solve_once(rest)
        smallest = np.inf
        for _ in range(REFINEMENTS):
            rest = self._rest(matrix, vector, step)
            size = float(np.abs(rest).max())
            if not size < smallest:
                return best
            best, smallest = step, size
            if size <= enough:
                return best
            step = step + self._solve_once(rest)
        return step

    def _rest(self, matrix: FloatArray, vector: FloatArray, step: FloatArray) -> FloatArray:
        """What is left of the right-hand side after a step."""
        model = self.model
        change = model.matrix(step, 0.0)
        rest = matrix - 0.5 * self.inverse @ change @ self.inverse
        rest = model.gather(rest - self.metric @ change @ self.metric)
        pulled = self.weights * (model.to_tables @ step[: model.n_tabled])
        rest[: model.n_tabled] += vector - model.from_tables @ pulled
        return rest

    def _add_tables(self, total: FloatArray) -> None:
        """Add ``B' W B`` to a matrix of unknowns."""
        rows = self.model.to_tables
        _add_squares(rows.indptr, rows.indices, rows.data, self.weights, total)


@kernel
def _add_squares(
    indptr: IntArray, indices: IntArray, values: FloatArray, weights: FloatArray, total: FloatArray
) -> None:
    for row in range(len(weights)):
        for p in range(indptr[row], indptr[row + 1]):
            scaled = weights[row] * values[p]
            for q in range(indptr[row], indptr[row + 1]):
                total[indices[p], indices[q]] += scaled * values[q]


class AllMoments(MomentSystem):
    """Means and all moments at once."""

    def _factorise(self) -> None:
        model = self.model
        n = model.n_coordinates
        first = np.concatenate([np.zeros(n, dtype=np.int64), model.rows])
        second = np.concatenate([np.arange(1, n + 1), model.columns])
        total = np.empty((len(first), len(first)))
        _fill_hessian(first, second, n, self.inverse, self.metric, total)
        self._add_tables(total)
        self.root = _factor(total)

    def _solve_once(self, right: FloatArray) -> FloatArray:
        return np.asarray(cho_solve(self.root, right, check_finite=False))


@kernel
def _fill_hessian(
    first: LongArray,
    second: LongArray,
    n_means: int,
    inverse: FloatArray,
    metric: FloatArray,
    total: FloatArray,
) -> None:
    """``<V, K V>`` as a matrix of the unknowns, whose entries are ``first, second``.

    A mean is in row 0, which is its ``first``, and on the diagonal as well.
    """
    for p in range(len(first)):
        a, b = first[p], second[p]
        for q in range(p + 1):
            c, d = first[q], second[q]
            value = inverse[a, c] * inverse[b, d] + inverse[a, d] * inverse[b, c]
            other = metric[a, c] * metric[b, d] + metric[a, d] * metric[b, c]
            value, other = 2.0 * value, 2.0 * other
            if q < n_means:
                value += 2.0 * inverse[a, d] * inverse[b, d]
                other += 2.0 * metric[a, d] * metric[b, d]
                if p < n_means:
                    value += (2.0 * inverse[c, b] + inverse[d, b]) * inverse[d, b]
                    other += (2.0 * metric[c, b] + metric[d, b]) * metric[d, b]
            total[p, q] = total[q, p] = 0.5 * value + other


class TabledMoments(MomentSystem):
    """Means and moments of pairs with tables; the other moments are eliminated."""

    def _factorise(self) -> None:
        model = self.model
        n = model.n_coordinates
        first, second, kept = pattern(model)
        # singular values instead of eigenvalues: twice the digits of the small ones
        root = np.linalg.cholesky(self.inverse)
        _, values, vectors = np.linalg.svd(root.T @ self.scaling)
        self._basis = self.scaling @ vectors.T
        self._kernel = 1.0 / (1.0 + 0.5 * np.outer(values**2, values**2))
        compliance = self._entries(first, second)
        self._pattern = first, second
        self._compliance = _factor(compliance)
        # columns of A: a mean is both in row 0 and on the diagonal
        spread = np.zeros((len(first), model.n_tabled))
        spread[kept[:n], np.arange(n)] = spread[kept[n : 2 * n], np.arange(n)] = 1.0
        spread[kept[2 * n :], np.arange(n, model.n_tabled)] = 1.0
        self._spread = spread
        self._stiff = cho_solve(self._compliance, spread, check_finite=False)  # C^-1 A
        total = spread.T @ self._stiff
        self._add_tables(total)
        self.root = _factor(total)

    def _entries(self, first: LongArray, second: LongArray) -> FloatArray:
        """Entries of ``K^-1`` on the pattern, those of one row of the moment matrix at a time."""
        basis = self._basis
        entries = np.empty((len(first), len(first)))
        for row in np.unique(first):
            chosen = np.flatnonzero(first == row)
            left = (basis * basis[row]) @ self._kernel
            sums = left[first] * basis[second] + left[second] * basis[first]
            entries[:, chosen] = 0.5 * sums @ basis[second[chosen]].T
        return 0.5 * (entries + entries.T)

    def _solve_once(self, right: FloatArray) -> FloatArray:
        model = self.model
        first, second = self._pattern
        own, free = slice(0, model.n_tabled), slice(model.n_linked, None)
        matrix = np.zeros_like(self.inverse)  # free entries alone: the others would cancel
        halves = 0.5 * right[model.n_tabled :]
        matrix[model.rows[free], model.columns[free]] = halves
        matrix[model.columns[free], model.rows[free]] = halves
        alone = self._applied(matrix)[first, second]
        tabled = cho_solve(self.root, right[own] + self._stiff.T @ alone, check_finite=False)
        forces = cho_solve(self._compliance, self._spread @ tabled - alone, check_finite=False)
        np.add.at(matrix, (first, second), 0.5 * forces)
        np.add.at(matrix, (second, first), 0.5 * forces)
        step = model.unknowns_of(self._applied(matrix))
        step[own] = tabled
        return step

    def _applied(self, matrix: FloatArray) -> FloatArray:
        """``K^-1`` of a matrix."""
        inside = self._basis.T @ matrix @ self._basis
        return np.asarray(self._basis @ (self._kernel * inside) @ self._basis.T)


def pattern(model: MomentModel) -> tuple[LongArray, LongArray, LongArray]:
    """Entries of the matrix that are not free; where in them means and moments are.

    First the means in row 0, the diagonal and the linked moments, then what is constant.
    """
    number = np.arange(1, model.n_coordinates + 1)
    none = np.zeros(len(number), dtype=np.int64)
    linked = slice(0, model.n_linked)
    corner = np.zeros(1, dtype=np.int64)
    first = np.concatenate([none, number, model.rows[linked], corner, model.inner[0]])
    second = np.concatenate([number, number, model.columns[linked], corner, model.inner[1]])
    return first, second, np.arange(2 * len(number) + model.n_linked)


def moment_system(model: MomentModel, *point: Any) -> MomentSystem:
    """The cheaper of the two systems, for the arguments of `MomentSystem` after the model."""
    n, n_linked = model.n_coordinates, model.n_linked
    everything, eliminated = _costs(n, len(model.uniform), n_linked + len(model.inner[0]))
    return (TabledMoments if eliminated < everything else AllMoments)(model, *point)


def step_cost(sizes: IntArray, edges: LongArray) -> float:
    """About how many multiplications a step takes, before anything is allocated."""
    own = sizes.astype(np.float64) - 1.0
    n, inner = float(own.sum()), float((own * (own - 1.0) / 2.0).sum())
    linked = float((own[edges[:, 0]] * own[edges[:, 1]]).sum())
    return min(_costs(n, n + n * (n - 1.0) / 2.0 - inner, linked + inner))


def _costs(n: float, n_unknowns: float, n_kept: float) -> tuple[float, float]:
    """Of a step with all unknowns, and of one with free moments eliminated."""
    pattern_size = 1.0 + 2.0 * n + n_kept
    return n_unknowns**3 / 3.0 + 10.0 * n_unknowns**2, n**4 + 2.0 * pattern_size**3


def _factor(matrix: FloatArray) -> Any:
    """A Cholesky root in units in which the diagonal is one; a ridge where rounding needs it."""
    for ridge in RIDGES:
        try:
            trial = matrix if ridge == 0.0 else matrix + np.diag(ridge * np.diagonal(matrix))
            return cho_factor(trial, lower=True, check_finite=False)
        except LinAlgError:
            continue
    raise LinAlgError("the matrix of a Newton step is not positive definite")
