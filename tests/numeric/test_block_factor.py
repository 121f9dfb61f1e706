"""Factorisations in blocks against that of single numbers and against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fieldfit.numeric.cholesky import (
    factorise,
    factorise_blocks,
    solve_blocks,
    solve_factorised,
    symbolic,
)


def random_system(rng, n_blocks, width, density=0.3):
    """A dense positive definite matrix with a random pattern of blocks, and which blocks it has."""
    pattern = rng.random((n_blocks, n_blocks)) < density
    pattern = pattern | pattern.T | np.eye(n_blocks, dtype=bool)
    values = rng.normal(size=(n_blocks * width,) * 2)
    dense = np.where(np.kron(pattern, np.ones((width, width), dtype=bool)), values + values.T, 0.0)
    dense += np.eye(len(dense)) * (1.0 + np.abs(dense).sum(axis=1).max())
    return dense, pattern


def by_columns(dense, pattern, width):
    """The blocks on and above the diagonal, column by column, and the pattern of blocks."""
    indptr, indices, values = [0], [], []
    block_starts, block_rows = [0], []
    for j in range(len(pattern)):
        above = np.flatnonzero(pattern[: j + 1, j])
        block_rows.extend(above)
        block_starts.append(len(block_rows))
        rows = (above[:, None] * width + np.arange(width)).ravel()
        for k in range(width):
            indices.extend(rows)
            values.extend(dense[rows, j * width + k])
            indptr.append(len(indices))
    shape = symbolic(np.array(block_starts), np.array(block_rows, dtype=np.int32))
    return np.array(indptr), np.array(indices, dtype=np.int32), np.array(values), shape


def factor(columns, width, guard=0.0):
    indptr, indices, values, shape = columns
    n_blocks = int(shape.starts[-1])
    rows = np.empty(n_blocks, dtype=np.int32)
    lower, diagonal = np.empty(n_blocks * width**2), np.empty((len(indptr) - 1) * width)
    labels = (0,) * (width + 1)
    bad = factorise_blocks(labels, indptr, indices, values, shape, rows, lower, diagonal, guard)
    return bad, (labels, shape, rows, lower, diagonal)


@pytest.mark.parametrize("width", [2, 4, 5])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
def test_solutions_are_those_of_the_dense_matrix(width, density):
    rng = np.random.default_rng(width)
    dense, pattern = random_system(rng, 12, width, density)
    columns = by_columns(dense, pattern, width)
    bad, kept = factor(columns, width)
    assert bad == -1
    right = rng.normal(size=len(dense))
    found = right.copy()
    solve_blocks(*kept, found)
    assert_allclose(found, np.linalg.solve(dense, right), rtol=1e-10, atol=1e-13)


def test_single_numbers_give_the_same_solution():
    rng = np.random.default_rng(0)
    dense, pattern = random_system(rng, 9, 4)
    columns = by_columns(dense, pattern, 4)
    indptr, indices, values, _ = columns
    shape = symbolic(indptr, indices)
    fill, n = int(shape.starts[-1]), len(dense)
    rows, lower, pivots = np.empty(fill, dtype=np.int32), np.empty(fill), np.empty(n)
    assert factorise(indptr, indices, values, shape, rows, lower, pivots, 0.0) == -1
    singly = rng.normal(size=n)
    in_blocks = singly.copy()
    solve_factorised(shape, rows, lower, pivots, singly)
    solve_blocks(*factor(columns, 4)[1], in_blocks)
    assert_allclose(in_blocks, singly, rtol=1e-12, atol=1e-15)


def test_indefinite_matrices_are_told_by_their_first_bad_block():
    dense, pattern = random_system(np.random.default_rng(1), 6, 3, 0.5)
    dense[3 * 3 + 1, 3 * 3 + 1] = -1.0
    assert factor(by_columns(dense, pattern, 3), 3)[0] == 3


def test_guarded_pivots_stay_positive():
    # two equal unknowns: the second pivot is zero but for rounding
    dense = np.kron(np.eye(2), np.ones((2, 2)))
    columns = by_columns(dense, np.eye(2, dtype=bool), 2)
    assert factor(columns, 2)[0] == 0
    bad, kept = factor(columns, 2, guard=1e-10)
    assert bad == -1
    found = np.array([2.0, 2.0, 0.0, 0.0])  # in the range of the matrix
    solve_blocks(*kept, found)
    assert_allclose(dense @ found, [2.0, 2.0, 0.0, 0.0], atol=1e-5)
