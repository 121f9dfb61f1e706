"""Implicit fits under an entropy that stays as it is, and of the entropy as well.

An entropy is one number for each configuration of a pixel, of a horizontal and of a vertical pair;
`ImplicitLoss(fit_entropy=True)` has them as further weights.  To keep them where they are is to
leave their part of the gradient out (`HeldEntropy`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from experiments.domke2009.digits_methods import IMPLICIT_TOL, Limits
from fieldfit import LBFGS, Convex, FactorGraph, ImplicitLoss
from fieldfit.entropy import WIDEST
from fieldfit.graph import Batch, Block, Template
from fieldfit.learners import (
    Fit,
    Part,
    Penalty,
    Problem,
    ProblemValue,
    TemplateProblem,
    potentials_of,
)
from fieldfit.objectives import Objective

FloatArray = NDArray[np.float64]

#: Pictures in a part.
PART_SIZE = 10
#: Of a random entropy: under weights near zero beliefs are nearly those of a linear program.
LEAST_WEIGHT = 0.02


@dataclass(frozen=True)
class StartingEntropy:
    """Weights of ``entropy`` times those that ``parameters`` stand for (see `entropy_template`)."""

    entropy: Convex
    parameters: FloatArray

    @property
    def objective(self) -> ImplicitLoss:
        """The loss on beliefs under entropies that can be fitted."""
        return ImplicitLoss("ucl", entropy=self.entropy, fit_entropy=True, tol=IMPLICIT_TOL)


#: Configurations of a pixel, of a horizontal and of a vertical pair.
N_CONFIGURATIONS = 2 + 4 + 4
#: ``w(y_c) = 1`` and three weights of variables.
NAMED: dict[str, StartingEntropy] = {
    name: StartingEntropy(Convex(unary=unary, factor=1.0), np.zeros(N_CONFIGURATIONS))
    for name, unary in (("A", 0.01), ("B", 0.1), ("C", 1.0))
}


def random_entropy(rng: np.random.Generator) -> StartingEntropy:
    """Every weight uniform in [0, 1] (but not below `LEAST_WEIGHT`)."""
    weights = np.maximum(rng.random(N_CONFIGURATIONS), LEAST_WEIGHT)
    parameters = WIDEST * np.arctanh(np.log(weights) / WIDEST)
    return StartingEntropy(Convex(unary=1.0, factor=1.0), parameters)


class HeldEntropy(Problem):
    """A problem whose last weights stay as they are."""

    def __init__(self, problem: Problem, held: FloatArray) -> None:
        self.problem = problem
        self.held = held
        self.n_weights = problem.n_weights - len(held)
        self.n_parts = problem.n_parts

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        """The problem without the gradient by what is held."""
        return self._shortened(self.problem.evaluate(np.concatenate([weights, self.held])))

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        """The same for one part."""
        return self._shortened(
            self.problem.evaluate_part(np.concatenate([weights, self.held]), part)
        )

    def reset_warm_start(self) -> None:
        """Drop what the problem keeps."""
        self.problem.reset_warm_start()

    def _shortened(self, found: ProblemValue) -> ProblemValue:
        return replace(found, gradient=found.gradient[: self.n_weights])


def digit_parts(noisy: FloatArray, labels: NDArray[np.int32]) -> list[Part]:
    """Pictures on grids, with a table of label and noisy pixel and one for each direction."""
    graph = _grid(*labels.shape[1:])
    parts = []
    for first in range(0, len(labels), PART_SIZE):
        chosen = slice(first, first + PART_SIZE)
        batch = Batch.of([graph] * len(labels[chosen]))
        seen = np.eye(2)[noisy[chosen].ravel().astype(np.intp)]
        blocks = [Block.unary(batch.graph, seen)] + [
            Block.tables(
                batch.graph,
                factors=np.flatnonzero(batch.graph.factor_types == direction),
                name=name,
                shape=(2, 2),
            )
            for direction, name in enumerate(("horizontal", "vertical"))
        ]
        template = Template(batch.graph, blocks)
        parts.append(Part(batch, template, labels[chosen].ravel().astype(np.int32)))
    return parts


def minimize(problem: Problem, start: FloatArray, limits: Limits) -> tuple[Fit, float]:
    """A fit within the limits, and its seconds."""
    began = time.perf_counter()
    with threadpool_limits(limits=1, user_api="blas"):
        fit = LBFGS(max_iter=limits.max_iter, tol=limits.tol).minimize(
            problem, start, penalty=Penalty(l2=limits.l2)
        )
    return fit, time.perf_counter() - began


def digit_problem(objective: Objective, parts: list[Part], limits: Limits) -> TemplateProblem:
    """The sum of an objective over pictures."""
    return TemplateProblem(objective, parts, limits.n_jobs)


def ink_beliefs(objective: Objective, parts: list[Part], weights: FloatArray) -> FloatArray:
    """Beliefs ``(pixels, 2)`` of all pictures, one after the other."""
    found = []
    for part in parts:
        potentials = potentials_of(objective.templates(part.template), weights)
        inference = objective.prediction(part.batch.graph)
        found.append(inference.run_batch(part.batch, potentials).beliefs.unary_matrix())
    return np.concatenate(found)


@lru_cache(maxsize=4)
def _grid(height: int, width: int) -> FactorGraph:
    return FactorGraph.grid(height, width, 2)
