"""L-BFGS in the weights, with beliefs of few sweeps, growing samples and certificates of the dual.

The method of `MLEStruct(points="marginals", step="quasi-newton")`.  What is minimised is

    P(w) = sum_m max over x of [<Phi_m w, x> + H_m(x)] - <w, f> + l2/2 |w|^2

There are few weights and many beliefs, and as a function of the weights ``P`` is smooth: its
gradient is ``l2 w - f + sum_m Phi_m^T x_m`` at the beliefs of ``w``.  Frank-Wolfe steps of the
blocks do not know how strongly the blocks are coupled through the weights; correction pairs do.

Beliefs are refreshed by a few sweeps from the last messages in every evaluation, and are points of
the polytope however early that ends.  The first iterations use a few blocks only; the sample
doubles when an iteration on it gains little, and the pairs are kept, scaled by its size.

**Certificates.**  Any points of the polytopes prove a lower bound of the smallest ``P``, mixtures
of those visited a much better one (`dual_mixture`).  An upper bound is proved at weights ``w`` by a
MAP search for every block: with slopes ``Phi_m w + grad H(x_m)``, the best vertex is above ``x_m``
by at least what messages left to gain.  Searches are made when the lower bound says that the gap
has become much smaller.  A fit that has converged has the weights that the upper bound is proved
for, so the gap bounds how far their objective is from the smallest one.

References: Liu and Nocedal, Mathematical Programming 45 (1989), for L-BFGS; Byrd, Chin, Nocedal and
Wu, "Sample size selection in optimization methods for machine learning", Mathematical Programming
134 (2012), for growing samples; `dual_frank_wolfe` for the dual.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._parallel import ordered_map
from fieldfit._random_state import random_generator
from fieldfit._typing import FloatArray
from fieldfit.errors import FileFormatError
from fieldfit.inference.frank_wolfe.active_set import add_slopes, entropy
from fieldfit.learners.checkpoint import State
from fieldfit.learners.dual_blocks import SWEEPS, DualModel
from fieldfit.learners.dual_mixture import PointMixture
from fieldfit.learners.lbfgs import CorrectionPairs
from fieldfit.learners.line_search import wolfe_search
from fieldfit.learners.loop import Method, Outcome, Row
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = ["DualQuasiNewton", "sample_sizes"]

#: Correction pairs that are kept.
HISTORY = 10
#: Fewest blocks of a sample.
FIRST_BLOCKS = 8
#: A sample doubles when an iteration lowers its objective by less than this share.
LITTLE = 0.02
#: Sweeps for a block without messages to start from; and for a certificate.
COLD_SWEEPS, PROOF_SWEEPS = 16, 32
#: No more sweeps than this for a point: inexact messages are not what is wrong then.
MAX_SWEEPS = 512
#: Searches are made when the gap is this share of the last one that was proved, judged by the lower
#: bound, or half of what is asked for.
MUCH_SMALLER, SMALL_ENOUGH = 0.001, 0.5


def sample_sizes(n_blocks: int) -> list[int]:
    """Halves, quarters and so on of the blocks, smallest first, all of them last."""
    sizes = [n_blocks]
    while -(-sizes[0] // 2) >= FIRST_BLOCKS:
        sizes.insert(0, -(-sizes[0] // 2))
    return sizes


def _permutation(stored: FloatArray) -> NDArray[np.int64]:
    """The order of the blocks, as a checkpoint holds it."""
    if not np.array_equal(np.sort(stored), np.arange(len(stored))):
        raise FileFormatError("expected 'order' to have every block once, found another array")
    return stored.astype(np.int64)


@dataclass(frozen=True)
class _Sums:
    """Sums over blocks: features and entropies of points, their scores, what they lack at most."""

    features: FloatArray
    entropy: float
    linear: float
    lacks: float = 0.0

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.features + other.features,
            self.entropy + other.entropy,
            self.linear + other.linear,
            self.lacks + other.lacks,
        )


class DualQuasiNewton(Method):
    """The weights, what blocks say there, correction pairs and bounds."""

    def __init__(
        self, objective: MLEStruct, model: DualModel, l2: FloatArray, random_state: int | None
    ) -> None:
        self.objective, self.model, self.l2 = objective, model, l2
        n_blocks, n_weights = len(model.blocks), len(l2)
        self.order = random_generator(random_state).permutation(n_blocks)
        self.labelled = self._features_of_labels()
        self.sizes = [n_blocks] if self.labelled is None else sample_sizes(n_blocks)
        self.n_used = self.sizes[0]
        self.pairs = CorrectionPairs(HISTORY, n_weights)
        self.mixture = PointMixture(model.statistics, l2)
        self.mixture.add(*self._first_point())
        self.n_sweeps = SWEEPS
        self.is_cold = np.ones(n_blocks, dtype=bool)
        self._weights = np.zeros(n_weights)
        self.sums = _Sums(np.zeros(n_weights), 0.0, 0.0)
        # at weights of zero the objective is the entropy
        self.upper = sum(block.largest_entropy() for block in model.blocks)
        self.best = self._weights.copy()

    def _features_of_labels(self) -> list[FloatArray] | None:
        """Statistics block by block, unless a block has none of its own: then all are used."""
        found = [(block, block.labelled()) for block in self.model.blocks]
        if any(labels is None for _, labels in found):
            return None
        return [block.features(labels) for block, labels in found if labels is not None]

    def _first_point(self) -> tuple[float, FloatArray]:
        """Entropy and features of the labels, or of points inside the polytopes."""
        if self.labelled is not None:  # vertices, which have no entropy
            return 0.0, np.sum(self.labelled, axis=0)
        starts = [(block, block.start()) for block in self.model.blocks]
        total = sum(float(entropy(block.coefficients, x)) for block, x in starts)
        return total, np.sum([block.features(x) for block, x in starts], axis=0)

    # -- one iteration --------------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        return self._weights

    def begin(self, start: FloatArray) -> None:
        """Starts at weights of zero, whatever is given: the answer does not depend on it."""
        self.is_consistent = False
        found = self._evaluate(self._weights, self.order[: self.n_used])
        if found is None:
            self._stop("messages do not get any further; points='vertices' needs none")
        else:
            self.sums = found
        self.is_consistent = True

    def step(self) -> Row:
        self.is_consistent = False
        before = self._value(self._weights, self.sums)
        is_lower = self._move()
        fall = before - self._value(self._weights, self.sums)
        if self.n_used < len(self.order):
            if fall <= LITTLE * abs(before - fall):
                self._grow()
        elif not is_lower:
            self._improve_messages()
        elif self._may_prove():
            self._prove()
        gap = max(self.upper - self.mixture.bound(), 0.0)
        if gap <= self._target():
            self._weights = self.best
            self.outcome = Outcome(
                True, f"converged: the objective is within {gap:.3g} of the optimum, certified"
            )
        self.is_consistent = True
        return {"objective": self.mixture.bound(), "gap": gap, "unconverged": 0.0}

    def _target(self) -> float:
        """The gap that is small enough."""
        return self.objective.tol * max(1.0, abs(self.mixture.bound()))

    def _move(self) -> bool:
        """One step of L-BFGS on the sample; False if none lowers the objective."""
        trial: list[tuple[FloatArray, _Sums]] = []

        def evaluate(step: float) -> tuple[float, float]:
            weights = self._weights + step * direction
            found = self._evaluate(weights, self.order[: self.n_used])
            if found is None:
                return np.inf, np.nan
            trial[:] = [(weights, found)]
            slope = float(self._gradient(weights, found) @ direction)
            return self._value(weights, found), slope

        value, gradient = (
            self._value(self._weights, self.sums),
            self._gradient(self._weights, self.sums),
        )
        noise = 0.1 * self.objective.tol * max(1.0, abs(value))
        while True:
            direction = -gradient
            self.pairs.multiply(direction)
            slope, size = float(gradient @ direction), float(np.linalg.norm(direction))
            if slope < 0.0:
                first = 1.0 if self.pairs.count else 1.0 / size
                if wolfe_search(evaluate, value, slope, first, noise).is_good and trial:
                    break
            if self.pairs.count == 0:
                return False
            self.pairs.clear()
        weights, found = trial[0]
        self.pairs.add(weights - self._weights, self._gradient(weights, found) - gradient)
        self._weights, self.sums = weights, found
        return True

    def _grow(self) -> None:
        """The next sample: its new blocks are evaluated, and pairs are scaled by its size."""
        larger = self.sizes[self.sizes.index(self.n_used) + 1]
        added = self._evaluate(self._weights, self.order[self.n_used : larger])
        if added is None:
            self._stop("messages do not get any further; points='vertices' needs none")
            return
        ratio = larger / self.n_used
        self.pairs.changes *= ratio
        self.pairs.curvatures *= ratio
        self.pairs.scale /= ratio
        self.sums, self.n_used = self.sums + added, larger
        self._remember(self.sums)

    def _improve_messages(self) -> None:
        """No step helps: values are too inexact for that, or there is nothing left to gain."""
        if self.n_sweeps < MAX_SWEEPS:
            self.n_sweeps *= 4
            self._prove()
        else:
            self._prove()
            self._stop("no step lowers the objective any further")

    def _stop(self, reason: str) -> None:
        self.outcome = Outcome(False, f"stopped without convergence: {reason}")

    # -- values ---------------------------------------------------------------------------

    def _statistics(self) -> FloatArray:
        """Those of the labels of the sample."""
        if self.labelled is None or self.n_used == len(self.order):
            return self.model.statistics
        used = [self.labelled[k] for k in self.order[: self.n_used]]
        return np.asarray(np.sum(used, axis=0))

    def _share(self) -> float:
        return self.n_used / len(self.order)

    def _value(self, weights: FloatArray, sums: _Sums) -> float:
        """The objective of the sample; too low by what messages lack."""
        penalty = 0.5 * self._share() * float(weights @ (self.l2 * weights))
        return sums.linear + sums.entropy - float(weights @ self._statistics()) + penalty

    def _gradient(self, weights: FloatArray, sums: _Sums) -> FloatArray:
        return self._share() * self.l2 * weights - (self._statistics() - sums.features)

    def _evaluate(
        self, weights: FloatArray, blocks: NDArray[np.integer[Any]], proves: bool = False
    ) -> _Sums | None:
        """Sums over some blocks, or ``None`` where messages find no beliefs."""
        one = partial(self._evaluate_block, weights=weights, proves=proves)
        found = ordered_map(one, blocks.tolist(), self.model.n_jobs)
        total = _Sums(np.zeros(len(weights)), 0.0, 0.0)
        for sums in found:
            if sums is None:
                return None
            total += sums
        if len(blocks) == len(self.order):
            self._remember(total)
        return total

    def _evaluate_block(self, number: int, weights: FloatArray, proves: bool) -> _Sums | None:
        block = self.model.blocks[number]
        potentials = block.potentials(weights)
        least = PROOF_SWEEPS if proves else COLD_SWEEPS if self.is_cold[number] else 0
        x = block.marginals(potentials, max(self.n_sweeps, least))
        if x is None:
            return None
        self.is_cold[number] = False
        linear, lacks = float(potentials @ x), 0.0
        if proves:
            slopes = potentials  # no longer needed
            add_slopes(block.coefficients, x, slopes)
            lacks = max(block.find(slopes).upper_bound - float(slopes @ x), 0.0)
        return _Sums(block.features(x), float(entropy(block.coefficients, x)), linear, lacks)

    # -- bounds ---------------------------------------------------------------------------

    def _remember(self, sums: _Sums) -> None:
        """Points of all blocks, wherever they come from, prove a lower bound."""
        if self.n_used == len(self.order):
            self.mixture.add(sums.entropy, sums.features)

    def _may_prove(self) -> bool:
        """Whether searches for all blocks are worth their time."""
        bound = self.mixture.bound()
        hoped = self._value(self._weights, self.sums) - bound
        return hoped <= max(
            SMALL_ENOUGH * self._target(), MUCH_SMALLER * max(self.upper - bound, 0.0)
        )

    def _prove(self) -> None:
        """An upper bound at the weights; more sweeps from now on if messages are what it lacks."""
        found = self._evaluate(self._weights, self.order, proves=True)
        if found is None:
            return
        self.sums = found
        value = self._value(self._weights, found)
        if value + found.lacks < self.upper:
            self.upper, self.best = value + found.lacks, self._weights.copy()
        allowed = max(SMALL_ENOUGH * self._target(), 0.1 * (value - self.mixture.bound()))
        if found.lacks > allowed:
            self.n_sweeps = min(2 * max(self.n_sweeps, PROOF_SWEEPS), MAX_SWEEPS)

    # -- state ----------------------------------------------------------------------------

    def state(self) -> State:
        sums, pairs, mixture = self.sums, self.pairs, self.mixture
        arrays = {
            "weights": self._weights.copy(), "best": self.best.copy(),
            "features": sums.features.copy(), "order": self.order.astype(np.float64),
            "steps": pairs.steps.copy(), "changes": pairs.changes.copy(),
            "curvatures": pairs.curvatures.copy(), "entropies": mixture.entropies.copy(),
            "residuals": mixture.residuals.copy(), "shares": mixture.shares.copy(),
        }  # fmt: skip
        numbers = {
            "n_used": self.n_used, "n_sweeps": self.n_sweeps, "upper": self.upper,
            "entropy": sums.entropy, "linear": sums.linear, "scale": pairs.scale,
            "count": pairs.count, "newest": pairs.newest, "n_points": len(mixture.shares),
        }  # fmt: skip
        return State(arrays, numbers)

    def restore(self, state: State) -> None:
        shape = self._weights.shape
        self._weights = state.array("weights", shape).copy()
        self.best = state.array("best", shape).copy()
        self.order = _permutation(state.array("order", self.order.shape))
        features = state.array("features", shape).copy()
        self.sums = _Sums(features, state.number("entropy"), state.number("linear"))
        pairs, mixture = self.pairs, self.mixture
        pairs.steps[:] = state.array("steps", pairs.steps.shape)
        pairs.changes[:] = state.array("changes", pairs.changes.shape)
        pairs.curvatures[:] = state.array("curvatures", pairs.curvatures.shape)
        pairs.scale = state.number("scale")
        pairs.count, pairs.newest = state.integer("count", 0), state.integer("newest", -1)
        self.n_used = state.integer("n_used", 1)
        if self.n_used not in self.sizes:
            raise FileFormatError(
                f"expected 'n_used' to be one of {self.sizes}, found {self.n_used}"
            )
        self.n_sweeps = state.integer("n_sweeps", 1)
        self.upper = state.number("upper")
        n_points = state.integer("n_points", 1)
        mixture.entropies = state.array("entropies", (n_points,)).copy()
        mixture.residuals = state.array("residuals", (n_points, len(self.l2))).copy()
        mixture.shares = state.array("shares", (n_points,)).copy()

    def reset_warm_start(self) -> None:
        """Messages start afresh, as they do in a run that resumes."""
        self.is_cold[:] = True
        for block in self.model.blocks:
            block.reset_warm_start()
