"""Bethe's free energy at beliefs of variables, and the targets of these (see `scaling`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.fitting import fit_factors
from fieldfit.kernels.scaling import scale_binary_pairs, variable_beliefs, variable_targets

__all__ = ["EnergyModel", "EnergyState", "evaluate_energy"]

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]


class EnergyModel(NamedTuple):
    """Numbers that stay the same from one evaluation to the next."""

    unary: FloatArray  # th_i, factors of arity one included
    tables: FloatArray  # th_a
    kinds: NDArray[np.uint8]  # of the factors, see `scaling.factor_kinds`
    is_binary: bool  # all variables have two labels
    tol: float  # of proportional fitting, on logarithms of margins
    max_rounds: int


class EnergyState(NamedTuple):
    """Working memory; what an evaluation leaves here belongs to the examples it was asked for."""

    beliefs: FloatArray  # q_i
    vectors: FloatArray  # u_ai, also where proportional fitting starts
    tables: FloatArray  # working memory of proportional fitting; empty if there is none
    variable_terms: FloatArray
    factor_terms: FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate_energy(
    structure: Any,
    model: Any,
    state: Any,
    log_beliefs: FloatArray,
    variable_ranges: LongArray,
    factor_ranges: LongArray,
    targets: FloatArray,
) -> int:
    """Terms of the free energy and targets in some ranges; how many factors could not be fitted."""
    for run in range(len(variable_ranges)):
        begin, end = variable_ranges[run]
        variable_beliefs(structure, log_beliefs, begin, end, state.beliefs)
    scale_binary_pairs(
        structure, model.kinds, model.tables, state.beliefs, log_beliefs, factor_ranges,
        state.vectors, state.factor_terms,
    )  # fmt: skip
    failures = 0
    for run in range(len(factor_ranges) if len(state.tables) else 0):
        begin, end = factor_ranges[run]
        failures += fit_factors(
            structure, model.kinds, model.tables, state.beliefs, log_beliefs, begin, end,
            model.tol, model.max_rounds, state.vectors, state.tables, state.factor_terms,
        )  # fmt: skip
    for run in range(len(variable_ranges)):
        begin, end = variable_ranges[run]
        variable_targets(
            structure, model.is_binary, model.unary, state.beliefs, log_beliefs, state.vectors,
            begin, end, targets, state.variable_terms,
        )  # fmt: skip
    return failures
