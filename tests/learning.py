"""Problems for learners, small enough to be solved independently."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_expit

from fieldfit.learners.problem import Problem, ProblemValue, total


class Function(Problem):
    """Any function that gives a value and a gradient; keeps all values."""

    n_parts = 1

    def __init__(self, function, n_weights, n_examples=1):
        self.function = function
        self.n_weights = n_weights
        self.n_examples = n_examples
        self.values = []

    def evaluate(self, weights):
        value, gradient = self.function(weights)
        self.values.append(value)
        return ProblemValue(value, gradient, 0, self.n_examples)

    def evaluate_part(self, weights, part):
        return self.evaluate(weights)


class Logistic(Problem):
    """Logistic regression (or the hinge loss) in parts of different sizes."""

    def __init__(self, n_examples=300, n_weights=12, n_parts=4, seed=0, hinge=False):
        rng = np.random.default_rng(seed)
        true = 2.0 * rng.normal(size=n_weights) * (rng.random(n_weights) < 0.5)
        self.features = rng.normal(size=(n_examples, n_weights))
        self.signs = np.where(rng.random(n_examples) < expit(self.features @ true), 1.0, -1.0)
        cuts = np.sort(rng.choice(np.arange(1, n_examples), n_parts - 1, replace=False))
        self.rows = np.split(np.arange(n_examples), cuts)
        self.n_weights, self.n_parts, self.hinge = n_weights, n_parts, hinge
        self.is_smooth = not hinge
        self.n_calls = 0

    def evaluate(self, weights):
        return total([self.evaluate_part(weights, part) for part in range(self.n_parts)])

    def evaluate_part(self, weights, part):
        self.n_calls += 1
        features, signs = self.features[self.rows[part]], self.signs[self.rows[part]]
        margins = signs * (features @ weights)
        if self.hinge:
            value = np.maximum(0.0, 1.0 - margins).sum()
            gradient = -features.T @ (signs * (margins < 1.0))
        else:
            value = -log_expit(margins).sum()
            gradient = -features.T @ (signs * expit(-margins))
        return ProblemValue(float(value), gradient, 0, len(signs))


class Remembering(Logistic):
    """Answers that depend a little on the last ones, like those of warm-started inference."""

    def __init__(self, **options):
        super().__init__(**options)
        self.reset_warm_start()

    def evaluate_part(self, weights, part):
        found = super().evaluate_part(weights, part)
        gradient = found.gradient + 1e-7 * self.memory[part]
        self.memory[part] = np.tanh(found.gradient)
        return ProblemValue(found.value, gradient, part % 2, found.n_examples)

    def reset_warm_start(self):
        self.memory = np.zeros((self.n_parts, self.n_weights))


class Failing(Problem):
    """Another problem that raises an error at its n-th evaluation."""

    def __init__(self, problem, n_calls, error):
        self.problem, self.n_calls, self.error = problem, n_calls, error
        self.n_weights, self.n_parts = problem.n_weights, problem.n_parts
        self.is_smooth = problem.is_smooth

    def _count(self):
        self.n_calls -= 1
        if self.n_calls == 0:
            raise self.error

    def evaluate(self, weights):
        self._count()
        return self.problem.evaluate(weights)

    def evaluate_part(self, weights, part):
        self._count()
        return self.problem.evaluate_part(weights, part)

    def reset_warm_start(self):
        self.problem.reset_warm_start()

    def fingerprint(self):
        return self.problem.fingerprint()


def proximal_gradient(problem, l1, l2, n_steps=20_000):
    """Independent solution with an L1 penalty: proximal gradient with momentum and restarts."""
    bound = 0.25 * np.linalg.norm(problem.features, 2) ** 2 + l2
    weights = ahead = np.zeros(problem.n_weights)
    momentum = 1.0
    for _ in range(n_steps):
        gradient = problem.evaluate(ahead).gradient + l2 * ahead
        moved = ahead - gradient / bound
        new = np.sign(moved) * np.maximum(np.abs(moved) - l1 / bound, 0.0)
        if (ahead - new) @ (new - weights) > 0:  # the momentum leads uphill
            momentum = 1.0
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / following * (new - weights)
        if np.abs(new - weights).max() == 0.0:
            break
        weights, momentum = new, following
    return weights
