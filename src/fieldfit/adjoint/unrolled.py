r"""A fixed number of sweeps as a map from potentials to beliefs, and the exact way back through it.

Propagation that is stopped after a few sweeps of a fixed schedule, from uniform messages, is a
differentiable function, converged or not.  `UnrolledSumProduct` evaluates it and pulls derivatives
by beliefs back to the potentials, so that a model can be fitted for the beliefs that this very
procedure will give (Domke, thesis 2009, chapter 5; Stoyanov, Ropson and Eisner, "Empirical risk
minimization of graphical model parameters given approximate inference", 2011).  The derivatives are
stated in `fieldfit.kernels.reverse_arrays`.

The forward pass keeps the messages that every sweep overwrites (the *tape*); with ``checkpoints``
it keeps the state before every few sweeps instead, and the way back repeats these sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.adjoint._unrolled_run import UnrolledRun
from fieldfit.adjoint.plans import GRID_ORDER, batch_plan
from fieldfit.core.batch import Batch
from fieldfit.core.entropy import Bethe, Entropy
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.core.result import InferenceResult
from fieldfit.errors import InvalidInputError
from fieldfit.inference._message_model import build_model
from fieldfit.kernels.arrays import Plan

__all__ = ["UnrolledSumProduct", "given_potentials", "require_count"]

FloatArray = NDArray[np.float64]

SCHEDULES = ("sequential", "flooding", "tree")


@dataclass(frozen=True)
class UnrolledSumProduct:
    """Exactly ``n_sweeps`` sweeps of message passing from uniform messages.

    Parameters
    ----------
    n_sweeps
        Sweeps.  There is no early stop: the map is the same for every input.
    entropy, schedule, order
        As in `SumProduct`, but for ``schedule="residual"``, whose order depends on the numbers.
        ``order`` is for one example, and every example of a batch follows it; ``"grid"`` stands for
        `grid_clique_order` on grids of any size.
    damping
        Share of the old message that is kept, in [0, 1).
    checkpoints
        ``None`` keeps the tape of all sweeps.  A number ``s`` keeps the messages of every ``s``-th
        sweep and the tape of ``s`` sweeps, and computes the others twice; ``"sqrt"`` takes about
        the square root of ``n_sweeps``, where memory is least.  The numbers are the same bit for
        bit.
    n_jobs
        Threads; 1 if ``None``.  The result does not depend on it.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.0, 1.0]] + [None] * 8, factors=np.eye(2))
    >>> run = UnrolledSumProduct(n_sweeps=2).record(Batch.of([graph]), potentials)
    >>> run.beliefs().unary(5).round(3)
    array([0.432, 0.568])
    """

    n_sweeps: int = 5
    entropy: Entropy = field(default_factory=Bethe)
    schedule: str = "sequential"
    order: Any = None
    damping: float = 0.0
    checkpoints: int | Literal["sqrt"] | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        require_count("n_sweeps", self.n_sweeps)
        if not isinstance(self.entropy, Entropy) or self.entropy.is_optimized:
            raise InvalidInputError(
                "entropy must be an object with fixed counting numbers, such as Bethe() or "
                f"TreeReweighted(), got {self.entropy!r}"
            )
        if self.schedule not in SCHEDULES:
            raise InvalidInputError(f"schedule must be one of {SCHEDULES}, got {self.schedule!r}")
        if self.order is not None and self.schedule != "sequential":
            raise InvalidInputError(
                f"order needs schedule='sequential', got schedule={self.schedule!r}"
            )
        if isinstance(self.order, str) and self.order != GRID_ORDER:
            raise InvalidInputError(
                f"order must be an array, {GRID_ORDER!r} or None, got {self.order!r}"
            )
        if not 0.0 <= self.damping < 1.0:
            raise InvalidInputError(f"damping must be in [0, 1), got {self.damping}")
        if self.checkpoints is not None and self.checkpoints != "sqrt":
            require_count("checkpoints", self.checkpoints)

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """Beliefs of one graph after the sweeps."""
        return self.run_batch(Batch.of([graph]), potentials, observed, init)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """Beliefs of every example after the sweeps, as they are.

        ``init`` is there for the protocol of inferences and not used: the map starts from uniform
        messages.  The result says ``converged=False``, for no tolerance was asked for or met.
        """
        return self._record(batch, potentials, observed, 1).result()

    def record(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> UnrolledRun:
        """The sweeps with their tape, for derivatives.

        A sequence of ``n_sweeps`` potentials gives each sweep its own: a sweep begins by forming
        the beliefs from its potentials and the messages so far, and the last ones make the final
        beliefs.
        """
        return self._record(batch, potentials, observed, self._sweeps_on_tape())

    def tape_bytes(self, graph: FactorGraph) -> int:
        """Bytes of tape and checkpoints for one graph."""
        plan = self.plan(Batch.of([graph]))
        others = graph.cardinalities[graph.slot_variables[plan.slots]]
        per_sweep = len(plan.pair_target) * graph.pair_cardinality + int(others.sum())
        length = self._sweeps_on_tape()
        n_kept = -(-self.n_sweeps // length) - 1
        state = int(graph.message_offsets[-1]) + int(graph.unary_offsets[-1])
        return 8 * (length * per_sweep + n_kept * state)

    def plan(self, batch: Batch) -> Plan:
        """The messages of one sweep in their order, on the union graph of a batch."""
        counting = self.entropy.counting_numbers(batch.graph)
        return batch_plan(batch, self.schedule, self.order, counting)

    def _sweeps_on_tape(self) -> int:
        if self.checkpoints is None:
            return self.n_sweeps
        if self.checkpoints == "sqrt":
            return 1 + isqrt(self.n_sweeps - 1)
        return min(int(self.checkpoints), self.n_sweeps)

    def _record(
        self,
        batch: Batch,
        potentials: Potentials | Sequence[Potentials],
        observed: dict[int, int] | ArrayLike | None,
        length: int,
    ) -> UnrolledRun:
        given = given_potentials(potentials, self.n_sweeps)
        counting = self.entropy.counting_numbers(batch.graph)
        models = [build_model(batch.graph, one, counting, observed) for one in given]
        name = f"UnrolledSumProduct({self.entropy.name}, {self.schedule}, {self.n_sweeps})"
        run = UnrolledRun(
            batch,
            self.plan(batch),
            models,
            self.n_sweeps,
            length,
            float(self.damping),
            self.n_jobs,
            name,
        )
        run.forward()
        return run


def given_potentials(
    potentials: Potentials | Sequence[Potentials], n_sweeps: int
) -> tuple[Potentials, ...]:
    """One entry for all sweeps, or one for each."""
    if isinstance(potentials, Potentials):
        return (potentials,)
    if len(potentials) != n_sweeps:
        raise InvalidInputError(
            f"potentials must be one for all sweeps or {n_sweeps}, one for each, "
            f"got {len(potentials)}"
        )
    return tuple(potentials)


def require_count(name: str, value: Any) -> None:
    """Refuse what is not a positive integer."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise InvalidInputError(f"{name} must be an integer of at least 1, got {value!r}")
