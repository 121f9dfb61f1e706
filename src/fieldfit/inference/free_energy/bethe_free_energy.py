"""Bethe's free energy as a function of the beliefs of variables, and its gradient.

The factor beliefs are the best ones for the given beliefs of variables, in closed form for binary
pairs (`binary_pair_fitting`, which states the formulas) and by iterative proportional fitting for
all other factors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.structure import Structure
from fieldfit.inference.free_energy.binary_pair_fitting import (
    GENERAL,
    factor_kinds,
    fit_binary_pairs,
    variable_beliefs,
    variable_targets,
)
from fieldfit.inference.free_energy.iterative_proportional_fitting import fill_tables, fit_factors
from fieldfit.inference.free_energy.natural_gradient import example_ranges, sum_examples
from fieldfit.numeric.compile import kernel

__all__ = ["BetheEnergy", "EnergyModel", "EnergyState", "evaluate_energy"]


class EnergyModel(NamedTuple):
    """Numbers that stay the same from one evaluation to the next."""

    unary: FloatArray  # th_i, factors of arity one included
    tables: FloatArray  # th_a
    kinds: NDArray[np.uint8]  # of the factors, see `factor_kinds`
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


@kernel
def evaluate_energy(
    structure: Structure,
    model: EnergyModel,
    state: EnergyState,
    log_beliefs: FloatArray,
    variable_ranges: LongArray,
    factor_ranges: LongArray,
    targets: FloatArray,
) -> int:
    """Terms of the free energy and targets in some ranges; how many factors could not be fitted."""
    for run in range(len(variable_ranges)):
        begin, end = variable_ranges[run]
        variable_beliefs(structure, log_beliefs, begin, end, state.beliefs)
    fit_binary_pairs(
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


#: Proportional fitting ends when no logarithm of a margin is further than this from its target ...
FITTING_TOL = 1e-12
#: ... or after so many rounds, with a step of Newton's method after every twelve: about 150 steps.
#: Equal small margins that strong potentials tie in pairs need 40: a step is safe over about one
#: unit of a vector, and what decides between such pairs is tens of units away.
MAX_ROUNDS = 2000


class BetheEnergy:
    """The free energy of a batch: an `Evaluate`, with the factor beliefs behind its last answers.

    ``unary`` are the potentials of variables, factors of arity one and evidence included;
    ``vectors`` a place for proportional fitting to start from.
    """

    def __init__(
        self,
        batch: Batch,
        unary: FloatArray,
        tables: FloatArray,
        vectors: FloatArray | None = None,
    ) -> None:
        graph = batch.graph
        self.batch = batch
        kinds = np.empty(graph.n_factors, dtype=np.uint8)
        # kernels are compiled for writeable arrays; a read-only view is copied
        tables = np.require(tables, np.float64, ["C", "W"])
        factor_kinds(graph.structure, tables, kinds)
        self.model = EnergyModel(
            unary, tables, kinds, graph.uniform_cardinality == 2, FITTING_TOL, MAX_ROUNDS
        )
        self.has_general = bool((kinds >= GENERAL).any() or (kinds == 0).any())
        n_messages = int(graph.message_offsets[-1])
        self.state = EnergyState(
            beliefs=np.empty(int(graph.unary_offsets[-1])),
            vectors=np.zeros(n_messages) if vectors is None else vectors.copy(),
            tables=np.empty(len(tables) if self.has_general else 0),
            variable_terms=np.zeros(graph.n_variables),
            factor_terms=np.zeros(graph.n_factors),
        )

    def __call__(
        self, log_unary: FloatArray, examples: LongArray, targets: FloatArray
    ) -> FloatArray:
        """Free energies of these examples; ``inf`` where hard zeros forbid such beliefs."""
        batch = self.batch
        evaluate_energy(
            batch.graph.structure,
            self.model,
            self.state,
            log_unary,
            example_ranges(batch.variable_offsets, examples),
            example_ranges(batch.factor_offsets, examples),
            targets,
        )
        energies = np.zeros(len(examples))
        sum_examples(self.state.variable_terms, batch.variable_offsets, examples, energies)
        sum_examples(self.state.factor_terms, batch.factor_offsets, examples, energies)
        return energies

    @property
    def beliefs(self) -> FloatArray:
        """Beliefs of variables at the last point at which each example was evaluated."""
        return self.state.beliefs

    @property
    def vectors(self) -> FloatArray | None:
        """Where proportional fitting may start again; ``None`` if all factors have closed forms."""
        return self.state.vectors if self.has_general else None

    def tables(self) -> FloatArray:
        """Factor beliefs at the last point at which each example was evaluated (a new array)."""
        graph = self.batch.graph
        filled = np.empty(int(graph.table_offsets[-1]))
        fill_tables(
            graph.structure,
            self.model.kinds,
            self.model.tables,
            self.state.beliefs,
            self.state.vectors,
            0,
            graph.n_factors,
            filled,
        )
        return filled
