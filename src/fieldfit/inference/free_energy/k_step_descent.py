"""k-step descent on a free energy from given beliefs, for contrastive free energies.

From beliefs near the labels of an example towards those of the model, by ``k`` steps of natural
gradient descent (`natural_gradient`) on Bethe's free energy or on that of mean field; without a
limit of steps, to a stationary point by faster methods (`bethe_descent`, `anderson`).

Reference: Welling and Sutton, "Learning in Markov random fields with contrastive free energies",
AISTATS 2005.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Potentials, folded_unary, require_graph
from fieldfit.inference.free_energy.anderson import descend
from fieldfit.inference.free_energy.bethe_descent import BetheSearch, BetheSearchResult
from fieldfit.inference.free_energy.bethe_free_energy import BetheEnergy
from fieldfit.inference.free_energy.mean_field_free_energy import MeanFieldEnergy
from fieldfit.inference.free_energy.natural_gradient import DescentResult, natural_gradient_steps

__all__ = ["KStepResult", "descend_bethe", "descend_mean_field"]

Energy = BetheEnergy | MeanFieldEnergy

#: Convergence and the most steps without a limit ``k``; as in `BeliefOptimization`.
TOL = 1e-8
MAX_ITER = 1000


@dataclass(frozen=True)
class KStepResult:
    """Beliefs after some steps down a free energy, and how far down they went.

    Attributes
    ----------
    unary, factors
        Beliefs of variables and factors, flat; they agree with each other.
    start_unary, start_factors
        Likewise, before the first step.
    free_energies, start_free_energies
        Of each example, after the steps and before; never larger after than before.
    converged_examples
        Where one more full step would move no belief by more than 1e-8.
    n_evaluations
        Evaluations of the free energy of at least one example.
    n_messages
        Vectors over the labels of a variable, one for each factor on it, that these evaluations
        needed: the unit in which message passing is counted, too.
    log_unary
        Logarithms of ``unary``, also where that has underflowed.
    state
        Where another descent may start its proportional fitting; ``None`` if there is none.
    """

    unary: FloatArray
    factors: FloatArray
    start_unary: FloatArray
    start_factors: FloatArray
    free_energies: FloatArray
    start_free_energies: FloatArray
    converged_examples: BoolArray
    n_evaluations: int
    n_messages: int
    log_unary: FloatArray
    state: FloatArray | None


def descend_bethe(
    batch: Batch,
    potentials: Potentials,
    log_unary: FloatArray,
    n_steps: int | None,
    free: BoolArray,
    state: FloatArray | None = None,
) -> KStepResult:
    """``n_steps`` steps of every example down Bethe's free energy; to convergence if ``None``.

    The steps begin at the flat log-beliefs ``log_unary``.  Variables that are not ``free`` stay
    where they are, for example at an observed label.  Labels that unary potentials forbid lose
    their belief before the first step.
    """
    start, unary = _checked_start(batch, potentials, log_unary, free)
    energy = BetheEnergy(batch, unary, potentials.factor_values, state)
    recorded = _Start(energy)
    if n_steps is not None:
        return _result(recorded, natural_gradient_steps(batch, recorded, start, free, n_steps, TOL))
    recorded(start, np.arange(batch.n_examples), np.empty_like(start))
    return _result(recorded, BetheSearch(batch, energy, start, free, TOL, MAX_ITER).run())


def descend_mean_field(
    batch: Batch,
    potentials: Potentials,
    log_unary: FloatArray,
    n_steps: int | None,
    free: BoolArray,
    state: FloatArray | None = None,
) -> KStepResult:
    """The same for mean field's free energy; tables must be finite (``state`` is not used)."""
    start, unary = _checked_start(batch, potentials, log_unary, free)
    recorded = _Start(MeanFieldEnergy(batch, unary, potentials.factor_values))
    if n_steps is not None:
        return _result(recorded, natural_gradient_steps(batch, recorded, start, free, n_steps, TOL))
    return _result(recorded, descend(batch, recorded, start, free, MAX_ITER, TOL))


class _Start:
    """Passes calls on, and keeps the beliefs of the first one, which is of all examples."""

    def __init__(self, energy: Energy) -> None:
        self.energy = energy
        self.unary: FloatArray
        self.factors: FloatArray
        self.n_messages = 0
        batch = energy.batch
        self._slots = np.diff(batch.graph.scope_offsets[batch.factor_offsets])
        self._is_first = True

    def __call__(
        self, log_unary: FloatArray, examples: NDArray[np.int64], targets: FloatArray
    ) -> FloatArray:
        energies = self.energy(log_unary, examples, targets)
        self.n_messages += int(self._slots[examples].sum())
        if self._is_first:
            self.unary, self.factors = self.energy.beliefs.copy(), self.energy.tables()
            self._is_first = False
        return energies


def _checked_start(
    batch: Batch, potentials: Potentials, log_unary: FloatArray, free: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Log-beliefs without forbidden labels, and unary potentials."""
    graph = batch.graph
    require_graph(graph, potentials)
    start = np.array(log_unary, dtype=np.float64)
    if start.shape != (int(graph.unary_offsets[-1]),) or free.shape != (graph.n_variables,):
        raise InvalidInputError(
            f"log_unary and free must have shapes ({int(graph.unary_offsets[-1])},) and "
            f"({graph.n_variables},), got {start.shape} and {free.shape}"
        )
    unary = folded_unary(potentials)
    start[np.isneginf(unary) & np.repeat(free, graph.cardinalities)] = -np.inf
    return start, unary


def _result(start: _Start, found: BetheSearchResult | DescentResult) -> KStepResult:
    energy = start.energy
    lost = np.flatnonzero(~np.isfinite(found.start_free_energies))
    if len(lost):
        raise InvalidInputError(
            f"beliefs at the start must be allowed by the potentials, those of example {lost[0]} "
            f"have infinite free energy: a potential of -inf excludes them"
        )
    n_evaluations = found.n_evaluations if isinstance(found, DescentResult) else found.n_iter
    # what the energy holds may be of a point that was tried and not taken
    everyone = np.arange(len(found.start_free_energies))
    stale = found.refused if isinstance(found, DescentResult) else everyone
    if len(stale):
        start(found.log_unary, stale, np.empty_like(found.log_unary))
        n_evaluations += 1
    return KStepResult(
        unary=energy.beliefs,
        factors=energy.tables(),
        start_unary=start.unary,
        start_factors=start.factors,
        free_energies=found.free_energies,
        start_free_energies=found.start_free_energies,
        converged_examples=found.converged_examples,
        n_evaluations=n_evaluations,
        n_messages=start.n_messages,
        log_unary=found.log_unary,
        state=energy.vectors,
    )
