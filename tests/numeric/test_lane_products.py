"""Contractions of rows of lanes against einsum."""

from __future__ import annotations

import numpy as np
import pytest

from fieldfit.numeric.compile import kernel
from fieldfit.numeric.lane_products import (
    contract_rows,
    contract_table,
    spread_to_rows,
    spread_to_table,
)

LANES = (0.0,) * 8
N_ROWS = 3


@kernel(cache=False)
def run_table(table, vectors, result, slope, table_slopes, vector_slopes):
    contract_table(LANES, N_ROWS, table, 1, vectors, 2, result, 3)
    spread_to_table(
        LANES, N_ROWS, slope, 1, table, table_slopes, 1, vectors, vector_slopes, 2
    )  # fmt: skip


@kernel(cache=False)
def run_rows(table, vectors, result, vector_slopes):
    contract_rows(LANES, N_ROWS, table, 8, vectors, 2, result, 3)
    spread_to_rows(LANES, N_ROWS, table, 0, 8, vectors, vector_slopes, 2)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return [rng.normal(size=8 + N_ROWS * 8) for _ in range(6)]


def test_table_and_its_transpose(arrays):
    table, vectors, result, slope, table_slopes, vector_slopes = arrays
    weights, rows = table[1 : 1 + N_ROWS].copy(), vectors[2:26].reshape(N_ROWS, 8).copy()
    given, before = slope[1:9].copy(), (table_slopes.copy(), vector_slopes.copy())
    run_table(table, vectors, result, slope, table_slopes, vector_slopes)
    np.testing.assert_allclose(result[3:11], np.einsum("s,sl->l", weights, rows), rtol=1e-13)
    before[0][1 : 1 + N_ROWS] += rows @ given
    before[1][2:26] += np.outer(weights, given).reshape(-1)
    np.testing.assert_allclose(table_slopes, before[0], rtol=1e-13)
    np.testing.assert_allclose(vector_slopes, before[1], rtol=1e-13)


def test_rows_and_their_transpose(arrays):
    table, vectors, result, _, _, vector_slopes = arrays
    weights, rows = table[8:32].reshape(N_ROWS, 8).copy(), vectors[2:26].reshape(N_ROWS, 8).copy()
    given, before = table[:8].copy(), vector_slopes.copy()
    run_rows(table, vectors, result, vector_slopes)
    np.testing.assert_allclose(result[3:11], (weights * rows).sum(axis=0), rtol=1e-13)
    before[2:26] += (weights * given).reshape(-1)
    np.testing.assert_allclose(vector_slopes, before, rtol=1e-13)
    np.testing.assert_allclose(table[8:32], (rows * given).reshape(-1), rtol=1e-13)
    np.testing.assert_array_equal(table[:8], given)
