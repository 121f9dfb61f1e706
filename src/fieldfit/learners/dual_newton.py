"""Newton's method on a penalised surrogate likelihood, with certificates from its dual.

The method behind `MLEStruct(points="marginals")` for blocks with curvature (matchings);
`dual_frank_wolfe.py` says what is maximised.  Marginal points, the beliefs ``tau(u)`` at weights
``u``, take the place of the vertices that MAP searches find.  The dual asks for weights ``w(tau) =
(f - Phi^T tau) / l2``; a plain step there changes beliefs too much, because ``tau`` follows the
weights.  To first order it does so by ``tau(u + z) = tau(u) + C Phi z`` with the covariance ``C``
of the surrogate, so the weights that agree with what the dual asks for after the step are

    (l2 + sum_m Phi_m^T C_m Phi_m) z = l2 (w(tau) - u)

which is Newton's method.  Steps are halved until the penalised objective falls.

Each point is certified from both sides.  At any weights the penalised objective is an upper bound
of the dual, at any point of the polytope the dual is a lower bound of the objective, and a MAP
search bounds what messages left to gain:

    D(tau) <= max D = min P <= P(u) = sum_m [<Phi u, tau_m> + H(tau_m) + left_m] - <u, f>
                                      + l2/2 |u|^2
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fieldfit._parallel import ordered_map
from fieldfit._typing import FloatArray
from fieldfit.inference.frank_wolfe.active_set import add_slopes, entropy
from fieldfit.learners.checkpoint import State
from fieldfit.learners.dual_blocks import DualModel
from fieldfit.learners.loop import Method, Outcome, Row
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = ["DualNewton"]

#: Halvings of a step before giving up.
MAX_HALVINGS = 20
#: Least decrease of a step, as a fraction of what its slope predicts (Armijo).
DECREASE = 1e-4
#: No score changes by more than this in one step: beliefs are exponential in scores.
REACH = 20.0


@dataclass(frozen=True)
class _Trial:
    """Weights, beliefs of all blocks there, their features, and bounds from both sides."""

    weights: FloatArray
    beliefs: list[FloatArray]
    features: FloatArray
    objective: float
    dual: float


class DualNewton(Method):
    """The weights, their beliefs, and the best bounds so far."""

    def __init__(self, objective: MLEStruct, model: DualModel, l2: FloatArray) -> None:
        self.objective, self.model, self.l2 = objective, model, l2
        self.blocks = model.with_curvature
        self.upper, self.lower = np.inf, -np.inf
        self._weights = np.zeros(len(l2))
        self._now: _Trial | None = None

    @property
    def weights(self) -> FloatArray:
        return self._weights

    def begin(self, start: FloatArray) -> None:
        """Starts at weights of zero, whatever is given: the answer does not depend on it."""

    def step(self) -> Row:
        self.is_consistent = False
        now = self._now if self._now is not None else self._try(self._weights)
        found = None if now is None else self._search(now)
        if found is None:
            self.outcome = Outcome(
                False, "stopped: messages do not get any further; points='vertices' needs none"
            )
        else:
            self._now, self._weights = found, found.weights
            self._certify(found)
        gap = max(self.upper - self.lower, 0.0)
        if gap <= self._target():
            self.outcome = Outcome(
                True, f"converged: the objective is within {gap:.3g} of the optimum, certified"
            )
        self.is_consistent = True
        return {"objective": self.lower, "gap": gap, "unconverged": 0.0}

    def _target(self) -> float:
        """The gap that is small enough."""
        value = self._now.dual if self._now is not None else 1.0
        return self.objective.tol * max(1.0, abs(value))

    # -- a step of the weights ------------------------------------------------------------

    def _search(self, now: _Trial) -> _Trial | None:
        """The next weights, and beliefs there."""
        gradient = self.l2 * now.weights - (self.model.statistics - now.features)
        curvatures = ordered_map(
            lambda k: self.blocks[k].curvature(now.beliefs[k]),
            range(len(now.beliefs)),
            self.model.n_jobs,
        )
        scale = 1.0 / np.sqrt(self.l2)
        values, vectors = np.linalg.eigh(
            np.eye(len(gradient)) + scale[:, None] * np.sum(curvatures, axis=0) * scale
        )
        # never below the penalty's part: rounding, where beliefs are nearly certain
        values = np.maximum(np.abs(values), 1.0)
        step = -scale * (vectors @ ((vectors.T @ (scale * gradient)) / values))
        predicted = -float(gradient @ step)
        reach = max(
            float(np.ptp(block.potentials(step)) / np.abs(block.coefficients).max())
            for block in self.blocks  # coefficients have the weight of an example, too
        )
        length = min(1.0, REACH / reach) if reach > 0.0 else 1.0
        slack = 0.1 * self._target()  # messages are not exact
        for _ in range(MAX_HALVINGS):
            trial = self._try(now.weights + length * step)
            limit = now.objective - DECREASE * length * predicted + slack
            if trial is not None and trial.objective <= limit:
                return trial
            length *= 0.5
        return None

    def _try(self, weights: FloatArray) -> _Trial | None:
        """Beliefs of all blocks at some weights, unless messages run away."""
        numbers = range(len(self.blocks))
        found = ordered_map(lambda k: self._beliefs(k, weights), numbers, self.model.n_jobs)
        beliefs = [one for one in found if one is not None]
        if len(beliefs) < len(found):
            return None
        features = np.zeros(len(weights))
        total = 0.0
        for block, marginal in zip(self.blocks, beliefs, strict=True):
            features += block.features(marginal)
            total += float(entropy(block.coefficients, marginal))
        # messages that stop too early would make bad weights look good: see `left` above
        total_left = sum(
            ordered_map(lambda k: self._left(k, weights, beliefs[k]), numbers, self.model.n_jobs)
        )
        residual = self.model.statistics - features
        penalty = 0.5 * float(weights @ (self.l2 * weights))
        return _Trial(
            weights,
            beliefs,
            features,
            objective=total + total_left - float(weights @ residual) + penalty,
            dual=total - 0.5 * float(residual @ (residual / self.l2)),
        )

    def _beliefs(self, number: int, weights: FloatArray) -> FloatArray | None:
        block = self.blocks[number]
        return block.marginals(block.potentials(weights))

    # -- bounds ---------------------------------------------------------------------------

    def _certify(self, found: _Trial) -> None:
        self.lower = max(self.lower, found.dual)
        self.upper = min(self.upper, found.objective)

    def _left(self, number: int, weights: FloatArray, marginal: FloatArray) -> float:
        """How far messages are from the largest ``<th, x> + H(x)`` of a block, at most."""
        block = self.blocks[number]
        slopes = block.potentials(weights)
        add_slopes(block.coefficients, marginal, slopes)
        return max(block.find(slopes).upper_bound - float(slopes @ marginal), 0.0)

    # -- state ----------------------------------------------------------------------------

    def state(self) -> State:
        bounds = [bound if np.isfinite(bound) else None for bound in (self.lower, self.upper)]
        return State({"weights": self._weights.copy()}, {"bounds": bounds})

    def restore(self, state: State) -> None:
        self._weights = state.array("weights", self._weights.shape).copy()
        self._now = None
        lower, upper = state.items("bounds", (int, float, type(None)), length=2)
        self.lower = -np.inf if lower is None else float(lower)
        self.upper = np.inf if upper is None else float(upper)

    def reset_warm_start(self) -> None:
        """Beliefs are computed afresh, as they are by a run that resumes."""
        self._now = None
        for block in self.blocks:
            block.reset_warm_start()
