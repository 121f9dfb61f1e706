"""Matrices of edge weights: what counts as symmetric."""

from __future__ import annotations

import numpy as np
import pytest

from fieldfit.errors import InvalidInputError
from fieldfit.inference.matching.matching_polytope import checked_weights


def test_weights_that_differ_by_rounding_are_symmetric():
    weights = np.array([[0.0, 0.1 + 0.2], [0.3, 0.0]])  # 0.30000000000000004 and 0.3
    checked = checked_weights(weights, "general")
    np.testing.assert_array_equal(checked, checked.T)
    assert checked[1, 0] == weights[0, 1]


@pytest.mark.parametrize("other", [0.3 + 1e-6, -np.inf])
def test_weights_that_differ_by_more_are_not(other):
    weights = np.array([[0.0, 0.3], [other, 0.0]])
    with pytest.raises(InvalidInputError, match="weights must be symmetric"):
        checked_weights(weights, "general")


def test_edges_that_are_not_there_are_symmetric():
    weights = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    np.testing.assert_array_equal(checked_weights(weights, "general"), weights)
