"""CAMEL written out on public parts of the library, so that beliefs can be seen round by round.

With ``s`` the part of the convex entropies that is in (0: CAMEL(0), 1: Bethe), the objective is

    L_s(pi) = sum_a H(pi_a) - s sum_i (d_i - 1) H(pi_i) - |f - E_pi[f]|^2 / (2 l2)

and a round maximises it with ``s (d_i - 1) <pi_i, log old_i>`` in place of the convex part, which
is the minimum over weights of a convex function (`Linearised`).  It is the same as `Camel`, by
another route: what both find is compared in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.ganapathi2008.segmentation.data import LABELS, FloatArray, Picture
from fieldfit import LBFGS, Bethe, Convex, DoubleLoop, FactorGraph, Potentials, SumProduct
from fieldfit.graph import Batch, Beliefs, Block, InferenceResult, Template
from fieldfit.inference import LinearResponse
from fieldfit.learners import Part, Penalty, Problem, ProblemValue

#: Least belief whose logarithm goes into a round.
SMALLEST = 1e-300


class Field:
    """Pictures as one union graph, with the paper's weights: 56 for superpixels, 28 for edges.

    ``scale`` are the mean and the spread of the training potentials, as columns: the same model in
    other units, in which a descent is quicker.
    """

    def __init__(
        self,
        pictures: Sequence[Picture],
        potentials: Sequence[FloatArray],
        scale: tuple[FloatArray, FloatArray],
    ) -> None:
        n_labels = len(LABELS)
        self.batch = Batch.of(
            [FactorGraph.from_edges(one.n_regions, one.edges, n_labels) for one in pictures]
        )
        graph = self.graph = self.batch.graph
        features = (np.concatenate(list(potentials)) - scale[0]) / scale[1]
        self.template = Template(
            graph,
            [
                Block.unary(graph, features),
                Block.unary(graph, name="intercept"),
                Block.tables(graph, "symmetric", name="edges"),
            ],
        )
        self.labels = np.concatenate([picture.labels for picture in pictures]).astype(np.int32)
        self.part = Part(self.batch, self.template, self.labels)
        #: ``d_i - 1`` for every unary entry.
        self.counts = np.repeat(np.maximum(graph.degrees - 1.0, 0.0), n_labels)
        ends = self.labels[graph.slot_variables.reshape(-1, 2)]
        tables = np.zeros((graph.n_factors, n_labels**2))
        tables[np.arange(graph.n_factors), ends[:, 0] * n_labels + ends[:, 1]] = 1.0
        truth = np.eye(n_labels)[self.labels].ravel()
        #: The data's moments.
        self.moments = self.template.gradient(Potentials.from_flat(graph, truth, tables.ravel()))

    # -- what beliefs are worth -----------------------------------------------------------

    def entropy(self, beliefs: Beliefs, part: float = 1.0) -> float:
        """``sum_a H(pi_a) - part sum_i (d_i - 1) H(pi_i)``."""
        convex = float(self.counts @ _x_log_x(beliefs.unary_values))
        return part * convex - float(_x_log_x(beliefs.factor_values).sum())

    def mismatch(self, beliefs: Beliefs) -> FloatArray:
        """``f - E_pi[f]``, which is ``l2 w`` at the optimum of a round."""
        return np.asarray(self.moments - self.template.gradient(beliefs), dtype=np.float64)

    def objective(self, beliefs: Beliefs, l2: float) -> float:
        """``L_1``: what CAMEL maximises."""
        missing = self.mismatch(beliefs)
        return self.entropy(beliefs) - float(missing @ missing) / (2.0 * l2)

    def value(self, weights: FloatArray, beliefs: Beliefs) -> float:
        """Bethe's ``<th, pi> + H(pi)`` at the potentials of the weights."""
        th = self.template.potentials(weights)
        score = th.unary_values @ beliefs.unary_values + th.factor_values @ beliefs.factor_values
        return float(score) + self.entropy(beliefs)

    def accuracy(self, beliefs: Beliefs) -> float:
        """Share of superpixels whose likeliest label is right."""
        rows = beliefs.unary_values.reshape(-1, len(LABELS))
        return float(np.mean(rows.argmax(axis=1) == self.labels))

    def dominance(self, beliefs: Beliefs | None = None) -> float:
        """Share of a picture that has its commonest label, on average; of the data if ``None``."""
        found = self.labels
        if beliefs is not None:
            found = beliefs.unary_values.reshape(-1, len(LABELS)).argmax(axis=1)
        parts = np.split(found, self.batch.variable_offsets[1:-1])
        return float(np.mean([np.bincount(part).max() / len(part) for part in parts]))

    def uncertainty(self, beliefs: Beliefs) -> float:
        """Mean entropy of a superpixel's belief."""
        return float(-_x_log_x(beliefs.unary_values).sum()) / self.graph.n_variables

    def distance(self, one: Beliefs, other: Beliefs) -> float:
        """Half the absolute difference of a superpixel's beliefs (total variation), on average."""
        apart = np.abs(one.unary_values - other.unary_values).sum()
        return float(apart) / (2.0 * self.graph.n_variables)

    def minima(self, beliefs: Beliefs) -> float:
        """Share of pictures at whose beliefs Bethe's free energy curves upwards everywhere."""
        pairs = zip(self.batch.graphs, self.batch.split(beliefs), strict=True)
        found = [
            LinearResponse(graph, own, Bethe().counting_numbers(graph)).is_minimum
            for graph, own in pairs
        ]
        return float(np.mean(found))

    # -- inference ------------------------------------------------------------------------

    def concave(self, weights: FloatArray, tol: float = 1e-5) -> InferenceResult:
        """Beliefs under the entropy of CAMEL(0)."""
        inference = SumProduct(entropy=Convex(unary=0.0), tol=tol)
        return inference.run_batch(self.batch, self.template.potentials(weights))

    def propagate(
        self, weights: FloatArray, start: InferenceResult | None = None
    ) -> InferenceResult:
        """Residual belief propagation, as all methods of the paper predict; cold or from a start.

        A start is the result of another entropy: its messages are where propagation begins.
        """
        inference = SumProduct(entropy=Bethe(), schedule="residual", tol=1e-4)
        return inference.run_batch(self.batch, self.template.potentials(weights), init=start)

    def double_loop(
        self, weights: FloatArray, start: InferenceResult, max_rounds: int
    ) -> InferenceResult:
        """Rounds at fixed weights, the same as in learning, from given beliefs."""
        inference = DoubleLoop(tol=1e-3, max_rounds=max_rounds, accelerate=False)
        return inference.run_batch(self.batch, self.template.potentials(weights), init=start)


class Linearised(Problem):
    """A round as a function of the weights: ``sum_m B_m(w, slopes) - <w, f>``, convex."""

    n_parts = 1

    def __init__(
        self, field: Field, slopes: FloatArray, tol: float, last: InferenceResult | None
    ) -> None:
        self.field, self.slopes, self.last = field, slopes, last
        self.n_weights = field.template.n_weights
        self._inference = SumProduct(entropy=Convex(unary=0.0), tol=tol)

    def infer(self, weights: FloatArray) -> InferenceResult:
        """Beliefs of all pictures; messages start from those of the last call."""
        th = self.field.template.potentials(weights)
        th = Potentials.from_flat(th.graph, th.unary_values + self.slopes, th.factor_values)
        self.last = self._inference.run_batch(self.field.batch, th, init=self.last)
        return self.last

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        found, batch = self.infer(weights), self.field.batch
        assert found.converged_examples is not None
        value = found.log_partition - float(weights @ self.field.moments)
        n_bad = int((~found.converged_examples).sum())
        return ProblemValue(value, -self.field.mismatch(found.beliefs), n_bad, batch.n_examples)

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        return self.evaluate(weights)


@dataclass(frozen=True)
class Precision:
    """How exactly a round is solved: messages, L-BFGS, and its most iterations."""

    tol: float = 1e-5
    learner_tol: float = 1e-4
    value_tol: float = 1e-6
    max_iter: int = 100


@dataclass(frozen=True)
class Round:
    """The end of a round.

    ``bound`` is ``D_t``, the optimum of the round; ``change`` how far beliefs moved in it (root
    mean square over linearised entropies, infinite in the first round); ``solved`` whether the
    descent converged.
    """

    number: int
    part: float
    weights: FloatArray
    result: InferenceResult
    bound: float
    change: float
    n_iter: int
    solved: bool


def rounds(
    field: Field,
    l2: float,
    parts: Sequence[float],
    precision: Precision,
    weights: FloatArray | None = None,
    centre: FloatArray | None = None,
) -> Iterator[Round]:
    """A round for each of ``parts``, the shares of the convex entropies that are in.

    ``centre`` are the beliefs of superpixels at which the first round is linearised.  A part of -1
    is the sign that the paper prints; nothing then says that the objective rises.
    """
    w = np.zeros(field.template.n_weights) if weights is None else weights
    last: InferenceResult | None = None
    learner = LBFGS(
        max_iter=precision.max_iter, tol=precision.learner_tol, value_tol=precision.value_tol
    )
    for number, part in enumerate(parts):
        slopes = np.zeros(len(field.counts))
        if part != 0.0:
            assert centre is not None
            slopes = part * field.counts * np.log(np.maximum(centre, SMALLEST))
        problem = Linearised(field, slopes, precision.tol, last)
        fit = learner.minimize(problem, w, penalty=Penalty(l2=l2))
        w, last = fit.weights, problem.infer(fit.weights)
        unary = last.beliefs.unary_values
        change = np.inf
        if centre is not None:
            moved = float(field.counts @ (unary - centre) ** 2)
            change = float(np.sqrt(moved * len(LABELS) / field.counts.sum()))
        bound = last.log_partition - float(w @ field.moments) + 0.5 * l2 * float(w @ w)
        centre = unary
        yield Round(number, part, w, last, bound, change, len(fit.trace), bool(fit.converged))


def smoothed_labels(field: Field, mixed: float = 0.1) -> FloatArray:
    """Labels of the data as beliefs, with some of a uniform distribution."""
    indicators = np.eye(len(LABELS))[field.labels].ravel()
    return np.asarray((1.0 - mixed) * indicators + mixed / len(LABELS), dtype=np.float64)


def random_beliefs(field: Field, seed: Any) -> FloatArray:
    """Beliefs drawn uniformly from all there are, superpixel by superpixel."""
    rng = np.random.default_rng(seed)
    drawn = rng.dirichlet(np.ones(len(LABELS)), size=field.graph.n_variables)
    return np.asarray(drawn.ravel(), dtype=np.float64)


def _x_log_x(values: FloatArray) -> FloatArray:
    return np.asarray(values * np.log(np.maximum(values, SMALLEST)), dtype=np.float64)
