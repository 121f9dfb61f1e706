"""CAMEL's outer loop: the concave-convex procedure (CCCP) for maximum entropy with Bethe's entropy.

A round solves a concave problem, in which the convex part is replaced by its tangent, and moves the
tangent to the solution.

`fieldfit.objectives.camel` says what is maximised.  A round is a descent of L-BFGS on one of the
duals of `camel_dual.py`; in the next one the linearised entropies touch the true ones at the
beliefs found.  With ``D_t`` the optimum of round ``t`` and ``L(pi_t)`` the true objective there,

    L(pi_{t-1}) <= D_t <= L(pi_t)

because the tangent lies below the convex part, and touches it at ``pi_{t-1}``.  The trace holds
``L`` at the end of every round (``"entropy"``): it never falls, but for the accuracy of the rounds.
When beliefs no longer move, the rounds end.

A first stage of piecewise training (no agreement, no negative entropies) gives the first weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit._validation import require_instance
from fieldfit.errors import FileFormatError
from fieldfit.learners.base import Fit, Learner, PenalisedProblem, Penalty, Validation, require_task
from fieldfit.learners.camel_dual import Dual, JointDual, PiecewiseDual, WeightDual
from fieldfit.learners.checkpoint import State
from fieldfit.learners.lbfgs import LBFGS, Descent
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.learners.loop import Method, Outcome, Row, Run, restored_outcome
from fieldfit.learners.problem import Problem
from fieldfit.objectives.camel import Camel

__all__ = ["CamelRounds"]

#: The first stage only has to come near: it ends when the objective falls by less than this
#: fraction of itself in a few iterations.
PIECEWISE_TOL = 1e-4
#: Number of the stage before the first round.
PIECEWISE = -1


@dataclass(frozen=True, kw_only=True)
class CamelRounds(Learner):
    """Rounds of L-BFGS for the objective `Camel`.

    Parameters
    ----------
    objective
        Variant, solver and limits of the rounds.
    inner
        Solves a round; its ``max_iter`` and ``tol`` hold for each of them.
    """

    objective: Camel = field(default_factory=Camel, kw_only=False)
    inner: LBFGS = field(default_factory=LBFGS)

    def __post_init__(self) -> None:
        require_instance("objective", self.objective, Camel, "Camel()")
        require_instance("inner", self.inner, LBFGS, "LBFGS()")

    @property
    def max_iter(self) -> int:
        """Most iterations of all stages together."""
        return self.inner.max_iter * (self.objective.max_rounds + 1)

    @property
    def patience(self) -> int:
        return self.inner.patience

    @property
    def checkpoint_every(self) -> int:
        return self.inner.checkpoint_every

    def minimize(
        self,
        problem: Problem,
        start: FloatArray,
        *,
        penalty: Penalty = Penalty(),  # noqa: B008  (frozen)
        checkpoint: str | PathLike[str] | None = None,
        validation: Validation | None = None,
        verbose: int = 0,
    ) -> Fit:
        """Run the rounds on ``problem.linear_model()``; see `Learner.minimize`."""
        require_task(problem, penalty, validation, verbose)
        run = Run(
            self,
            Rounds(self.objective, self.inner, problem.linear_model(), penalty),
            problem,
            penalty=penalty,
            checkpoint=checkpoint,
            validation=validation,
            verbose=verbose,
        )
        return run.fit(start)


class Rounds(Method):
    """The stages in progress: which one, its dual, and the descent on it."""

    is_open_ended = True

    def __init__(
        self, objective: Camel, inner: LBFGS, model: LinearModel, penalty: Penalty
    ) -> None:
        self.objective, self.inner, self.model = objective, inner, model
        self.dual: Dual
        if objective.solver == "joint":
            self.dual = JointDual(model, on_both_sides=objective.sides == "both")
        else:
            self.dual = WeightDual(model, tol=objective.tol)
        self._penalty = penalty
        self._penalised = PenalisedProblem(
            self.dual, _extended(penalty, self.dual.n_shared, self.dual.n_weights)
        )
        self.stage = PIECEWISE
        self.n_steps = 0
        self.descent: Descent

    # -- stages ---------------------------------------------------------------------------

    def begin(self, start: FloatArray) -> None:
        self.is_consistent = False
        if self.objective.start == "piecewise":
            self.descent = self._new_descent()
            self.descent.begin(start)
        else:
            self._begin_first(start)
        self.is_consistent = True

    def step(self) -> Row:
        """One iteration; the last one of a stage also moves on to the next stage."""
        if self.descent.outcome is None:
            try:
                row = self.descent.step()
            finally:
                self.is_consistent = self.descent.is_consistent
            self.n_steps += 1
        else:  # a stage whose start was its end
            row = self.descent.row()
        row["stage"] = "piecewise" if self.stage == PIECEWISE else f"round {self.stage}"
        if self.descent.outcome is not None or self.n_steps >= self.inner.max_iter:
            self.is_consistent = False
            if self.stage == PIECEWISE:
                self._begin_first(self.descent.weights)
            else:
                self._end_round(row)
            self.is_consistent = True
        return row

    def _begin_first(self, start: FloatArray) -> None:
        if self.objective.variant == "cccp-empirical":
            mixed = self.objective.smoothing
            self.dual.linearise_at(
                [
                    (1.0 - mixed) * part.unary_statistics + mixed / _cardinality_of_entries(part)
                    for part in self.model.parts
                ]
            )
        weights = np.zeros(self.dual.n_weights)
        weights[: self.dual.n_shared] = start
        self.stage = 0
        self._begin_round(weights)

    def _begin_round(self, weights: FloatArray) -> None:
        self.n_steps = 0
        self.descent = self._new_descent()
        self.descent.begin(weights)

    def _new_descent(self) -> Descent:
        """A descent for the current stage."""
        if self.stage == PIECEWISE:
            joint = self.dual if isinstance(self.dual, JointDual) else JointDual(self.model)
            piecewise = PenalisedProblem(PiecewiseDual(joint), self._penalty)
            return Descent(piecewise, self.inner.history, self.inner.tol, PIECEWISE_TOL)
        value_tol = self.inner.tol**2 if self.inner.value_tol is None else self.inner.value_tol
        return Descent(self._penalised, self.inner.history, self.inner.tol, value_tol)

    def _end_round(self, row: Row) -> None:
        """Judge the round, and begin the next one if there is to be one."""
        solved = self.descent.outcome
        weights = self.descent.weights.copy()
        found = self.dual.relinearise(weights)
        row["entropy"] = self.descent.point.value + found.gap
        if np.isfinite(found.change):
            row["change"] = found.change
        ended = "" if solved is None else solved.status
        if solved is None:
            ended = f"the last round stopped at max_iter={self.inner.max_iter}"
        is_solved = solved is not None and solved.converged
        n_rounds = self.stage + 1
        if self.objective.variant == "camel0":
            self.outcome = Outcome(is_solved, ended)
        elif found.change <= self.objective.round_tol:
            self.outcome = Outcome(
                is_solved,
                f"{'converged' if is_solved else 'stopped without convergence'}: beliefs moved by "
                f"{found.change:.2g} in round {n_rounds}; {ended}",
            )
        elif n_rounds >= self.objective.max_rounds:
            self.outcome = Outcome(
                False,
                f"stopped at max_rounds={self.objective.max_rounds} without convergence: beliefs "
                f"still moved by {found.change:.2g}, round_tol is {self.objective.round_tol:.2g}",
            )
        if self.outcome is None:
            self.stage += 1
            self._begin_round(weights)

    # -- state ----------------------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        return self.descent.weights[: self.dual.n_shared]

    def reset_warm_start(self) -> None:
        self.dual.reset_warm_start()

    def state(self) -> State:
        inner = self.descent.state()
        arrays = {f"descent.{name}": array for name, array in inner.arrays.items()}
        for index in range(len(self.model.parts)):
            arrays[f"slopes.{index}"] = self.dual.slopes[index]
            arrays[f"centres.{index}"] = self.dual.centres[index]
        outcome = self.descent.outcome
        numbers = {
            "descent": inner.numbers,
            "descent_outcome": None if outcome is None else [outcome.converged, outcome.status],
            "stage": self.stage,
            "n_steps": self.n_steps,
        }
        return State(arrays, numbers)

    def restore(self, state: State) -> None:
        self.stage = state.integer("stage", PIECEWISE)
        self.n_steps = state.integer("n_steps", 0)
        for index, part in enumerate(self.model.parts):
            graph = part.batch.graph
            sizes = 0, int(graph.unary_offsets[-1]), int(graph.message_offsets[-1])
            slopes = state.array(f"slopes.{index}", (None,))
            centres = state.array(f"centres.{index}", (None,))
            if len(slopes) not in sizes or len(centres) not in sizes[:2]:
                raise FileFormatError(
                    f"expected 'slopes.{index}' and 'centres.{index}' to have one entry for each "
                    f"label or none, found {len(slopes)} and {len(centres)}"
                )
            self.dual.slopes[index], self.dual.centres[index] = slopes, centres
        self.descent = self._new_descent()
        self.descent.restore(state.part("descent.", state.value("descent")))
        self.descent.outcome = restored_outcome(state, "descent_outcome")


def _cardinality_of_entries(part: LinearPart) -> FloatArray:
    """The number of labels of its variable, for every unary entry."""
    cardinalities = part.batch.graph.cardinalities
    return np.repeat(cardinalities, cardinalities).astype(np.float64)


def _extended(penalty: Penalty, n_shared: int, n_weights: int) -> Penalty:
    """A penalty on the weights of the model, and none on the multipliers after them."""
    if n_shared == n_weights:
        return penalty

    def extend(given: float | FloatArray) -> float | FloatArray:
        if np.ndim(given) == 0 and float(given) == 0.0:
            return 0.0
        extended = np.zeros(n_weights)
        extended[:n_shared] = given
        return extended

    return Penalty(l2=extend(penalty.l2), l1=extend(penalty.l1))
