"""Belief optimisation: a minimum of Bethe's free energy over the beliefs of variables alone.

For given beliefs ``q`` of variables the best factor beliefs are known: in closed form for pairs of
binary variables, by iterative proportional fitting for all other factors (`bethe_free_energy`).  So
Bethe's free energy is a function ``F(q)`` of the beliefs of variables, with a derivative, and can
be lowered step by step from any start, where belief propagation may oscillate.  A stationary
point of ``F`` is a fixed point of propagation and the other way round.

One run takes each example of a batch through up to three stages, none of which raises its ``F``:

1. A few sweeps of belief propagation from where it starts; without cycles they are exact, and hard
   zeros are passed along.  What they find is taken only if its ``F`` is not larger.
2. Descent: damped Newton steps by conjugate gradients (`bethe_newton`), or, where the Hessian would
   need too much memory, natural gradient steps with Anderson acceleration (`anderson`).
3. Where these are slow, as with couplings so strong that neighbours are tied together to more
   digits than a belief has, interior-point steps (`bethe_interior_point`), rounds of concave
   problems (`double_loop`), and descent again.

Hard zeros in factors whose beliefs have no closed form may bind the beliefs of variables to each
other exactly, so that ``F(q)`` is infinite almost everywhere.  Such models go through interior-
point steps on the beliefs of variables and factors together first, unless a start is given.

References: Welling and Teh, "Belief optimization for binary networks: a stable alternative to loopy
belief propagation", UAI 2001; Yedidia, Freeman and Weiss, "Constructing free-energy approximations
and generalized belief propagation algorithms", IEEE Trans. Information Theory 51 (2005).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._parallel import require_jobs
from fieldfit._typing import FloatArray
from fieldfit._validation import require_integer, require_number
from fieldfit.entropy.counting_numbers import Bethe
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import expand
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Inference, Progress, ending, require_model, require_result
from fieldfit.inference.conditioning import condition
from fieldfit.inference.free_energy.bethe_descent import (
    BetheSearch,
    BetheSearchResult,
    normalised,
)
from fieldfit.inference.free_energy.bethe_free_energy import BetheEnergy
from fieldfit.inference.free_energy.bethe_interior_point import (
    bethe_interior_point,
    fits_in_memory,
)
from fieldfit.inference.free_energy.k_step_descent import KStepResult, descend_bethe
from fieldfit.inference.messages.message_arrays import State
from fieldfit.inference.second_order.kkt_pattern import slot_entries

__all__ = ["BeliefOptimization", "KStepResult", "descend_bethe"]

#: Belief with which a label returns that had none in the beliefs to start from: they may come from
#: other observations.
RETURNING = 1e-4


@dataclass(frozen=True, kw_only=True)
class BeliefOptimization(Inference):
    """Bethe's beliefs by descent on the free energy; it converges, from any start.

    Parameters
    ----------
    tol
        Converged when a full step would move no belief of a variable by more than this.
    max_iter
        Most steps, sweeps and rounds together.
    n_jobs
        Threads for sweeps of propagation; 1 if ``None``.  The result does not depend on it.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> result = BeliefOptimization().run(graph, ff.Potentials(graph))
    >>> round(result.log_partition, 6), result.bound
    (2.079442, 'exact')
    """

    tol: float = field(default=1e-8, kw_only=False)
    max_iter: int = 1000
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        require_number("tol", self.tol, above=0)
        require_integer("max_iter", self.max_iter, at_least=1)
        require_jobs(self.n_jobs)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | Beliefs | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs, and one log-partition for each example of a batch.

        The descent begins at the beliefs of variables in ``init``, or at uniform ones.
        """
        require_model(batch, potentials, progress)
        require_result(init, Beliefs)
        graph = batch.graph
        model, _ = condition(graph, potentials, observed)
        binding = not graph.is_acyclic and _has_binding_zeros(batch, potentials)
        if init is None and binding and fits_in_memory(batch):
            found = bethe_interior_point(
                batch, model.unary, potentials.factor_values, self.tol, self.max_iter, progress
            )
            if found.converged:
                return _named(found)
        energy = BetheEnergy(batch, model.unary, potentials.factor_values)
        start = _start(graph, model.unary, init)
        messages = None
        if isinstance(init, InferenceResult) and isinstance(init.state, State):
            # an excluded label may be possible under the new potentials: forget exclusions
            messages = np.where(np.isneginf(init.state.message), 0.0, init.state.message)
        search = BetheSearch(
            batch,
            energy,
            start,
            np.ones(graph.n_variables, dtype=np.bool_),
            self.tol,
            self.max_iter,
            self.n_jobs,
            messages,
            progress,
        )
        return self._result(batch, energy, search.run())

    def _result(
        self, batch: Batch, energy: BetheEnergy, found: BetheSearchResult
    ) -> InferenceResult:
        graph = batch.graph
        energy(found.log_unary, np.arange(batch.n_examples), np.empty_like(found.log_unary))
        converged = bool(found.converged_examples.all())
        residual = float(found.residuals.max(initial=0.0))
        return InferenceResult(
            beliefs=Beliefs(graph, energy.state.beliefs, energy.tables()),
            log_partition=float(-found.free_energies.sum()),
            bound=Bethe().counting_numbers(graph).bound if converged else None,
            converged=converged,
            n_iter=found.n_iter,
            residual=residual,
            status=self._status(found, residual),
            method="BeliefOptimization",
            log_partitions=-found.free_energies,
            converged_examples=found.converged_examples,
            state=State(_messages(graph, energy, found), found.log_unary),
        )

    def _status(self, found: BetheSearchResult, residual: float) -> str:
        converged = found.converged_examples
        work = f"{found.n_iter} step{'s' if found.n_iter != 1 else ''}"
        measure = f"a full step would move a belief by {residual:.2g} after {work}"
        return ending(converged, measure, self.tol, "more steps")


def _named(found: InferenceResult) -> InferenceResult:
    """A result of interior-point steps as one of this class."""
    bound = Bethe().counting_numbers(found.beliefs.graph).bound
    status = f"{found.status}, interior-point steps because of hard zeros"
    return replace(found, bound=bound, method="BeliefOptimization", status=status)


def _has_binding_zeros(batch: Batch, potentials: Potentials) -> bool:
    """True if hard zeros are in factors other than pairs of binary variables."""
    graph = batch.graph
    is_pair = (graph.arities == 2) & (np.diff(graph.table_offsets) == 4)
    others = expand((graph.arities >= 2) & ~is_pair, graph.table_offsets)
    return bool(np.isneginf(potentials.factor_values[others]).any())


# -- helpers ------------------------------------------------------------------------------


def _start(
    graph: FactorGraph, unary: FloatArray, init: InferenceResult | Beliefs | None
) -> FloatArray:
    """Normalised log-beliefs to start from: labels without weight have none, all others some."""
    possible = unary > -np.inf
    if init is None:
        return normalised(graph, np.where(possible, 0.0, -np.inf))
    beliefs = init.beliefs if isinstance(init, InferenceResult) else init
    if not beliefs.graph.has_structure_of(graph):
        raise InvalidInputError(
            f"init must be beliefs on a graph of this structure ({graph!r}), got {beliefs.graph!r}"
        )
    values = beliefs.unary_values
    if not (np.isfinite(values).all() and (values >= 0.0).all()):
        raise InvalidInputError("init must hold finite beliefs of at least 0, got others")
    if isinstance(init, InferenceResult) and isinstance(init.state, State):
        logs = init.state.log_belief  # these do not underflow
    else:
        logs = np.full(len(values), -np.inf)
        np.log(values, where=values > 0.0, out=logs)
    logs = np.where(np.isneginf(logs), np.log(RETURNING), logs)
    return normalised(graph, np.where(possible, logs, -np.inf))


def _messages(graph: FactorGraph, energy: BetheEnergy, found: BetheSearchResult) -> FloatArray:
    """Messages that make these beliefs, for propagation to start from: ``log q_i - u_ai``."""
    own, vectors = found.log_unary[slot_entries(graph)[0]], energy.state.vectors
    usable = (own > -np.inf) & (vectors > -np.inf)
    message = np.where(usable, own - np.where(usable, vectors, 0.0), -np.inf)
    if len(message):
        top = np.maximum.reduceat(message, graph.message_offsets[:-1])
        message -= np.repeat(np.where(np.isneginf(top), 0.0, top), np.diff(graph.message_offsets))
    return message
