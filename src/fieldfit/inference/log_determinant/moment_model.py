r"""Moment matrices of discrete variables: unknowns, belief tables and noise of one component.

A variable with ``K`` labels has ``K - 1`` coordinates, the indicators ``z`` of all labels but the
last; ``N`` coordinates in all.  The moment matrix

    Y = [[1, m'], [m, M]],    m = E z,  M = E z z',

is linear in the unknowns: the means ``m``, the moments of pairs that share a factor, and those of
all other pairs, which are free.  Within a variable ``M`` is ``diag(m)``: labels exclude each other.
The table of a pair, all its entries, is linear in them too,

    b = B y + b0,

and so local consistency needs no equations: tables must be non-negative, that is all.

**Noise.**  The values of ``z`` of one variable generate, up to a shift, the lattice of integers;
as corners of a simplex they generate the lattice ``A_{K-1}``.  Uniform noise on the Voronoi cell of
this lattice has, in these coordinates, volume one and covariance

    D = (1/12 + 1/(6 K)) (I - 11'/K),

which does not depend on which label has been left out.  With two labels it is the variance 1/12 of
an interval of length one.

References: Wainwright and Jordan, "Log-determinant relaxation for approximate inference in discrete
Markov random fields", IEEE Trans. Signal Processing 54 (2006); Conway and Sloane, "Voronoi regions
of lattices, second moments of polytopes, and quantization", IEEE Trans. Information Theory 28
(1982), for the second moment of the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.sparse as sparse

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.graph.ragged import offsets_of

__all__ = ["MomentModel", "noise_covariance"]


@dataclass(frozen=True, eq=False)
class MomentModel:
    """Unknowns of one connected component, its variables numbered from 0.

    Indices of the moment matrix count from 1, since row 0 belongs to the constant.  Unknowns are
    the ``n_coordinates`` means, then the moments of pairs in the order of ``rows, columns``: first
    the ``n_linked`` of pairs with a table, then the free ones.
    """

    n_coordinates: int
    n_linked: int
    rows: LongArray
    columns: LongArray
    inner: tuple[LongArray, LongArray]  # pairs of labels of one variable: moment zero
    to_tables: sparse.csr_array  # B, with a column for each mean and linked moment
    from_tables: sparse.csr_array  # its transpose
    table_shift: FloatArray  # b0
    noise: FloatArray  # the covariance of the noise, with a row of zeros for the constant
    uniform: FloatArray  # means and moments of independent uniform variables

    @classmethod
    def of(cls, sizes: IntArray, edges: LongArray) -> MomentModel:
        """``sizes`` are numbers of labels, at least two; ``edges`` pairs of variables, each once.

        Tables stand edge after edge, their last variable fastest.
        """
        n_own = sizes.astype(np.int64) - 1
        first = offsets_of(n_own)
        owner = np.repeat(np.arange(len(sizes)), n_own)
        number = np.arange(len(owner))
        means = 1.0 / sizes[owner]
        linked = [_linked(first, n_own, i, j) for i, j in edges.tolist()]
        rows = _joined([pair[0] for pair in linked])
        columns = _joined([pair[1] for pair in linked])
        is_linked = np.zeros((len(owner), len(owner)), dtype=np.bool_)
        is_linked[rows, columns] = is_linked[columns, rows] = True
        upper = number[:, None] < number[None, :]
        same = owner[:, None] == owner[None, :]
        free = np.nonzero(upper & ~same & ~is_linked)
        inner = np.nonzero(upper & same)
        to_tables, shift = _table_map(sizes, first, edges, len(owner))
        rows, n_linked = np.concatenate([rows, free[0]]), len(rows)
        columns = np.concatenate([columns, free[1]])
        noise = np.zeros((len(owner) + 1, len(owner) + 1))
        for i, size in enumerate(sizes.tolist()):
            own = slice(1 + first[i], 1 + first[i + 1])
            noise[own, own] = noise_covariance(size)
        return cls(
            n_coordinates=len(owner),
            n_linked=n_linked,
            rows=rows + 1,
            columns=columns + 1,
            inner=(inner[0] + 1, inner[1] + 1),
            to_tables=to_tables,
            from_tables=to_tables.T.tocsr(),
            table_shift=shift,
            noise=noise,
            uniform=np.concatenate([means, means[rows] * means[columns]]),
        )

    @property
    def n_tabled(self) -> int:
        """Unknowns that tables depend on."""
        return self.n_coordinates + self.n_linked

    def matrix(self, unknowns: FloatArray, corner: float = 1.0) -> FloatArray:
        """The moment matrix; ``corner`` 0 for a change of it."""
        n = self.n_coordinates
        matrix = np.zeros((n + 1, n + 1))
        matrix[0, 0] = corner
        matrix[0, 1:] = matrix[1:, 0] = unknowns[:n]
        matrix[self.rows, self.columns] = matrix[self.columns, self.rows] = unknowns[n:]
        number = np.arange(1, n + 1)
        matrix[number, number] = unknowns[:n]
        return matrix

    def gather(self, matrix: FloatArray) -> FloatArray:
        """The transpose of `matrix`: a derivative by the matrix becomes one by the unknowns."""
        means = 2.0 * matrix[0, 1:] + np.diagonal(matrix)[1:]
        return np.concatenate([means, 2.0 * matrix[self.rows, self.columns]])

    def unknowns_of(self, matrix: FloatArray) -> FloatArray:
        """Means and moments that a moment matrix holds."""
        return np.concatenate([matrix[0, 1:], matrix[self.rows, self.columns]])

    def tables(self, unknowns: FloatArray) -> FloatArray:
        """Belief tables of all pairs."""
        return np.asarray(self.to_tables @ unknowns[: self.n_tabled]) + self.table_shift


def noise_covariance(size: int) -> FloatArray:
    """Covariance of uniform noise on the Voronoi cell, in the coordinates of ``size`` labels.

    Examples
    --------
    >>> noise_covariance(2) * 12
    array([[1.]])
    """
    return (1.0 / 12.0 + 1.0 / (6.0 * size)) * (np.eye(size - 1) - 1.0 / size)


def _linked(first: LongArray, n_own: LongArray, i: int, j: int) -> tuple[LongArray, LongArray]:
    """Coordinates of all pairs of labels of two variables."""
    return (
        np.repeat(np.arange(first[i], first[i + 1]), n_own[j]),
        np.tile(np.arange(first[j], first[j + 1]), n_own[i]),
    )


@cache
def _table_pattern(size: int, other: int) -> tuple[FloatArray, FloatArray]:
    """One table by its unknowns: means of the first, of the second, moments; and the shift."""
    first, second = _label_map(size), _label_map(other)
    last, other_last = np.eye(size)[:, -1:], np.eye(other)[:, -1:]
    pattern = np.hstack(
        [np.kron(first, other_last), np.kron(last, second), np.kron(first, second)],
        dtype=np.float64,
    )
    return pattern, np.eye(size * other)[-1]


def _label_map(size: int) -> FloatArray:
    """Indicators of all labels by those of all but the last, without the constant."""
    return np.vstack([np.eye(size - 1), -np.ones((1, size - 1))])


def _table_map(
    sizes: IntArray, first: LongArray, edges: LongArray, n_coordinates: int
) -> tuple[sparse.csr_array, FloatArray]:
    entries: tuple[list[LongArray], list[LongArray], list[FloatArray]] = ([], [], [])
    shifts = []
    row, moment = 0, n_coordinates
    for i, j in edges.tolist():
        pattern, shift = _table_pattern(int(sizes[i]), int(sizes[j]))
        n_moments = int((sizes[i] - 1) * (sizes[j] - 1))
        places = np.concatenate(
            [
                np.arange(first[i], first[i + 1]),
                np.arange(first[j], first[j + 1]),
                np.arange(moment, moment + n_moments),
            ]
        )
        at, of = np.nonzero(pattern)
        entries[0].append(at + row)
        entries[1].append(places[of])
        entries[2].append(pattern[at, of])
        shifts.append(shift)
        row, moment = row + len(shift), moment + n_moments
    rows, columns = _joined(entries[0]), _joined(entries[1])
    values = np.concatenate([np.zeros(0), *entries[2]])
    matrix = sparse.csr_array((values, (rows, columns)), shape=(row, moment))
    return matrix, np.concatenate([np.zeros(0), *shifts])


def _joined(parts: list[LongArray]) -> LongArray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
