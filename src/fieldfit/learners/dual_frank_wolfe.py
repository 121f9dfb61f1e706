"""Block-coordinate Frank-Wolfe on the dual of a penalised likelihood: learning by MAP searches.

`fieldfit.objectives.mle_struct` says what is maximised.  An iteration asks every block for a point
of its polytope (a MAP search at potentials ``Phi_m w + grad H(tau_m)``), and moves the block:

* ``"frank-wolfe"``: towards the new point, by the best step or by a fixed one;
* ``"pairwise"``: the new atom takes weight from the worst one of the active set (pairwise steps);
  then weights go on moving between the atoms of all blocks, which needs no search, until what that
  gains is a fraction of the gap that the searches found.

The gap is certified.  At one point of the product, the Frank-Wolfe gap of all blocks,
``sum_m <grad, s_m - tau_m>``, is never below how far the dual is from its maximum; the smallest
``value + gap`` so far is an upper bound of the maximum for good, and the gap of every row of the
trace is measured from there.  Since primal and dual meet, it also bounds the objective of the
weights.  With blocks, weights change between the searches, so every fifth iteration keeps them
still.

References: Tang et al. (AISTATS 2016), see `mle_struct`; Lacoste-Julien, Jaggi, Schmidt and
Pletscher, "Block-coordinate Frank-Wolfe optimization for structural SVMs", ICML (2013), for blocks;
Osokin et al., "Minding the gaps for block Frank-Wolfe optimization of structured SVMs", ICML
(2016), for active sets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fieldfit._parallel import ordered_map
from fieldfit._random_state import random_generator, require_random_state
from fieldfit._typing import FloatArray
from fieldfit._validation import require_flag, require_instance
from fieldfit.errors import InvalidInputError
from fieldfit.inference.frank_wolfe.active_set import LONGEST, ActiveSet, add_slopes, entropy
from fieldfit.learners.base import Fit, Learner, Penalty, Validation, require_task
from fieldfit.learners.checkpoint import State, restore_generator
from fieldfit.learners.dual_blocks import SWEEPS, DualModel
from fieldfit.learners.dual_newton import DualNewton
from fieldfit.learners.dual_quasi_newton import DualQuasiNewton
from fieldfit.learners.loop import Method, Outcome, Row, Run, require_options
from fieldfit.learners.problem import Problem
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = ["DualFrankWolfe"]

#: Iterations with moving weights between two that certify.
CERTIFY_EVERY = 5
#: Share of the labels in a start from them.  The rest keeps slopes finite; on photographs with a
#: large penalty 0.9 and 0.999 took the same passes to 1 %, with a small one neither was better.
LABEL_SHARE = 0.9
#: Sweeps for marginal points after so many passes: what messages lack is then what is left of the
#: gap, and with `SWEEPS` small grids took three times the passes that they took with so many.
LATER_SWEEPS, LATER = 16, 25
#: In a round of moves every block takes so many steps; rounds end when what is left to gain is
#: below this fraction of the gap that the searches found, or after so many.
MOVES, PATIENCE, MAX_ROUNDS = 3, 0.1, 30
#: Blocks whose searches use the same weights in ``"block"`` mode, so that they can run in threads.
#: The same for any number of threads, or answers would depend on it.
AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class DualFrankWolfe(Learner):
    """Frank-Wolfe steps for the objective `MLEStruct`.

    ``max_iter`` counts passes over the examples.

    Parameters
    ----------
    objective
        An `MLEStruct`, which has the oracle, the entropy and the tolerance.
    max_iter
        Most passes over the examples.
    random_state
        Seed of the order of the examples.
    patience
        Passes without a better validation score that end a fit.
    checkpoint_every
        Passes between two checkpoints.
    averaging
        Whether the weights are a weighted average of all iterates of Frank-Wolfe steps, the last
        ones with the largest weights, until the gap is closed.  The gap remains that of the last
        iterate.  Refused for Newton's and quasi-Newton steps.
    """

    uses_start: ClassVar[bool] = False
    objective: MLEStruct = field(default_factory=MLEStruct, kw_only=False)
    max_iter: int = 1000
    random_state: int | None = 0
    patience: int = 10
    checkpoint_every: int = 10
    averaging: bool = False

    def __post_init__(self) -> None:
        require_flag("averaging", self.averaging)
        require_instance("objective", self.objective, MLEStruct, "MLEStruct()")
        require_options(self)
        require_random_state(self.random_state)

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
        """Maximise the dual; beliefs have their own start, so only the length of ``start`` matters.

        See `Learner.minimize`.
        """
        require_task(problem, penalty, validation, verbose)
        model = problem.dual_model(self.objective)
        l2 = _checked_l2(penalty, len(model.statistics))
        method: Method
        if self.objective.step == "quasi-newton":
            method = DualQuasiNewton(self.objective, model, l2, self.random_state)
        elif self.objective.points == "marginals" and model.with_curvature:
            method = DualNewton(self.objective, model, l2)
        else:
            method = Passes(self.objective, model, l2, self.random_state, self.averaging)
        if self.averaging and not isinstance(method, Passes):
            raise InvalidInputError(
                "averaging must be False for Newton's and quasi-Newton steps, whose iterates are "
                "not averaged, got True"
            )
        run = Run(
            self,
            method,
            problem,
            penalty=penalty,
            checkpoint=checkpoint,
            validation=validation,
            verbose=verbose,
        )
        return run.fit(start)


def _checked_l2(penalty: Penalty, n_weights: int) -> FloatArray:
    """One positive number for each weight."""
    l2 = np.broadcast_to(np.asarray(penalty.l2, dtype=np.float64), (n_weights,))
    if not np.all(l2 > 0.0):
        raise InvalidInputError(
            f"l2 must be positive for mle-struct, whose dual divides by it, got {l2.min():g}"
        )
    if np.any(np.asarray(penalty.l1) != 0.0):
        raise InvalidInputError("l1 must be 0 for mle-struct, whose dual has only l2")
    return l2


class Passes(Method):
    """The blocks, the residual that couples them, and the best bound so far."""

    def __init__(
        self,
        objective: MLEStruct,
        model: DualModel,
        l2: FloatArray,
        random_state: int | None,
        averaging: bool,
    ) -> None:
        self.objective, self.model = objective, model
        #: Weighted average of the residuals after every group of blocks, and how many there were.
        self.averages = averaging
        self.mean_residual = np.zeros(len(l2))
        self.n_averaged = 0
        self.inverse = 1.0 / l2
        self.generator = random_generator(random_state)
        self.n_passes = 0
        self.predicted = np.inf
        self.active_sets: list[ActiveSet] = []
        self.residual = model.statistics.copy()
        bound = 0.0
        for block in model.blocks:
            first = block.start()
            labelled = block.labelled() if objective.start == "labels" else None
            if labelled is not None:
                bound += block.largest_entropy()
                first = LABEL_SHARE * labelled + (1.0 - LABEL_SHARE) * first
            else:
                bound = np.inf
            active = ActiveSet(
                first, block.features(first), 0.0, block.coefficients, self.inverse,
                keep_active_set=objective.directions == "pairwise",
            )  # fmt: skip
            self.active_sets.append(active)
            self.residual -= active.features
        # weights of zero are as good as their entropy; and the first pass is not to be spent on
        # certifying, which keeps them there
        self.upper = bound
        self.first_certified = 0 if np.isinf(bound) else CERTIFY_EVERY - 1

    # -- one iteration --------------------------------------------------------------------

    def begin(self, start: FloatArray) -> None:
        """Beliefs have their start already."""

    @property
    def weights(self) -> FloatArray:
        is_proved = self.outcome is not None and self.outcome.converged
        if self.averages and self.n_averaged and not is_proved:
            return self.inverse * self.mean_residual
        return self.last_weights

    @property
    def last_weights(self) -> FloatArray:
        """Those of the beliefs of the blocks."""
        return self.inverse * self.residual

    def _average(self) -> None:
        """Iterate ``k`` has a weight in proportion to ``k``."""
        self.mean_residual += 2.0 / (self.n_averaged + 2.0) * (self.residual - self.mean_residual)
        self.n_averaged += 1

    def value(self) -> float:
        """The dual, never above the smallest penalised objective."""
        penalty = 0.5 * float(self.residual @ (self.inverse * self.residual))
        return sum(active.entropy() for active in self.active_sets) - penalty

    def step(self) -> Row:
        self.is_consistent = False
        n_blocks = len(self.active_sets)
        before = self.value()
        certifies = (
            self.objective.mode == "batch"
            or self.n_passes % CERTIFY_EVERY == self.first_certified
            or self.predicted <= self.objective.tol * max(1.0, abs(before))
        )
        order = self.generator.permutation(n_blocks)
        at_once = n_blocks if certifies else AT_ONCE
        self.predicted = 0.0
        steps: list[float] = []
        for begin in range(0, n_blocks, at_once):
            chosen = order[begin : begin + at_once]
            weights = self.last_weights.copy()
            search = partial(self._search, weights=weights, certifies=certifies)
            found = ordered_map(search, chosen.tolist(), self.model.n_jobs)
            for block, (point, gap) in zip(chosen.tolist(), found, strict=True):
                self.predicted += gap
                steps.append(self._move(block, point, self.n_passes * n_blocks + begin))
            if self.averages:
                self._average()
        if certifies:
            self.upper = min(self.upper, before + self.predicted)
        if self.objective.directions == "pairwise":
            self._move_atom_weights()
        self.n_passes += 1
        value = self.value()
        gap = max(self.upper - value, 0.0)
        if gap <= self.objective.tol * max(1.0, abs(value)):
            self.outcome = Outcome(
                True, f"converged: the objective is within {gap:.3g} of the optimum, certified"
            )
        self.is_consistent = True
        row: Row = {"objective": value, "gap": gap, "unconverged": 0.0}
        if self.objective.directions == "frank-wolfe":
            row["mean_step"] = float(np.mean(steps))
        return row

    def _search(self, block: int, weights: FloatArray, certifies: bool) -> tuple[FloatArray, float]:
        """A new point, and its Frank-Wolfe gap at these weights: at most so much can be gained."""
        active, given = self.active_sets[block], self.model.blocks[block]
        potentials = given.potentials(weights)
        if self.objective.points == "marginals":
            marginal = given.marginals(
                potentials, SWEEPS if self.n_passes < LATER else LATER_SWEEPS
            )
            if marginal is not None:
                gain = self._gain_of(block, potentials, marginal)
                if gain > 0.0:  # it may not be near enough to help
                    return marginal, gain + (
                        self._lacks(block, potentials, marginal) if certifies else 0.0
                    )
        slopes = active.slopes(potentials)
        point = given.find(slopes)
        return point.values, max(point.upper_bound - float(slopes @ active.x), 0.0)

    def _gain_of(self, block: int, potentials: FloatArray, marginal: FloatArray) -> float:
        """How far ``<th, x> + H(x)`` is larger at ``marginal`` than at the point itself."""
        active = self.active_sets[block]
        change = float(potentials @ (marginal - active.x))
        return change + float(entropy(active.coefficients, marginal)) - active.entropy()

    def _lacks(self, block: int, potentials: FloatArray, marginal: FloatArray) -> float:
        """How far ``marginal`` is from the maximum of ``<th, x> + H(x)``, at most.

        Near the maximum slopes are level, so the gap of a MAP search there is small, and it
        certifies far better than one at the point itself.
        """
        slopes = potentials.copy()
        add_slopes(self.active_sets[block].coefficients, marginal, slopes)
        upper = self.model.blocks[block].find(slopes).upper_bound
        return max(upper - float(slopes @ marginal), 0.0)

    def _move(self, block: int, point: FloatArray, n_searches: int) -> float:
        """A step towards a new point; returns its length (0 for a pairwise one)."""
        active = self.active_sets[block]
        features = self.model.blocks[block].features(point)
        if self.objective.directions == "pairwise":
            place = active.add(point, features, 0.0)
            active.move_weights(self.residual, 0.0, 1, place)
            return 0.0
        step = None
        if self.objective.step == "fixed":
            n_blocks = len(self.active_sets)
            step = 2.0 / (self.n_passes + 2.0)
            if self.objective.mode == "block":
                step = min(1.0, 2.0 * n_blocks / (n_searches + 2.0 * n_blocks))
            step = min(step, LONGEST)
        return active.step_towards(point, features, 0.0, self.residual, step)

    def _move_atom_weights(self) -> None:
        target = PATIENCE * self.predicted
        for _ in range(MAX_ROUNDS):
            left = 0.0
            for active in self.active_sets:
                left += active.move_weights(
                    self.residual, 0.1 * target / len(self.active_sets), MOVES
                )[1]
            if left <= target:
                break
        # sums of many small changes are summed up again
        self.residual[:] = self.model.statistics
        for active in self.active_sets:
            self.residual -= active.features

    # -- state ----------------------------------------------------------------------------

    def state(self) -> State:
        arrays: dict[str, NDArray[Any]] = {
            "residual": self.residual, "mean_residual": self.mean_residual
        }  # fmt: skip
        for number, active in enumerate(self.active_sets):
            arrays |= {f"{number}.{name}": array for name, array in active.state().items()}
        numbers = {
            "n_passes": self.n_passes,
            "n_averaged": self.n_averaged,
            "upper": None if np.isinf(self.upper) else self.upper,
            "promised": None if np.isinf(self.predicted) else self.predicted,
            "generator": self.generator.bit_generator.state,
        }
        return State(arrays, numbers)

    def restore(self, state: State) -> None:
        self.n_passes = state.integer("n_passes", 0)
        self.upper = state.number("upper", default=np.inf)
        self.predicted = state.number("promised", default=np.inf)
        restore_generator(self.generator, state)
        self.residual[:] = state.array("residual", self.residual.shape)
        self.mean_residual[:] = state.array("mean_residual", self.residual.shape)
        self.n_averaged = state.integer("n_averaged", 0)
        for number, active in enumerate(self.active_sets):
            active.restore(state.part(f"{number}.", {}))

    def reset_warm_start(self) -> None:
        """Messages start afresh, as they do in a run that resumes."""
        for block in self.model.blocks:
            block.reset_warm_start()
