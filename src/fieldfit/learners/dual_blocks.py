"""Blocks of the dual of a penalised likelihood: polytopes with an entropy and a linear map.

    maximise over x_m in M_m   sum_m H_m(x_m) - 1/2 |f - sum_m Phi_m^T x_m|^2 / l2

`dual_frank_wolfe.py` maximises over their product.  Here are those of factor graphs; an estimator
whose examples are something else (matchings) brings its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import expand
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.frank_wolfe.active_set import entropy
from fieldfit.inference.frank_wolfe.frank_wolfe import (
    Point,
    coefficients_of,
    concave_counting_numbers,
    find_point,
    relaxation_oracle,
    uniform_point,
)
from fieldfit.inference.messages.local_polytope_point import ConsistentPoints
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = [
    "SWEEPS",
    "BlockWithCurvature",
    "DualBlock",
    "DualModel",
    "GraphBlock",
    "graph_blocks",
]

#: Messages to this: margins of a point then agree to about as much.
MARGINALS_TOL = 1e-10
#: Sweeps for a point where any number of them gives one: at first 2, 4 and 8 made no difference.
SWEEPS = 4


class DualBlock(Protocol):
    """One example, or a few together: flat vectors ``x`` in a polytope.

    ``coefficients`` are the ``c`` of the entropy ``- sum c x log x``.
    """

    coefficients: FloatArray

    def start(self) -> FloatArray:
        """A point inside the polytope."""
        ...

    def labelled(self) -> FloatArray | None:
        """The vertex of the labels, or ``None`` where one example represents many samples."""
        ...

    def largest_entropy(self) -> float:
        """An upper bound of ``- sum c x log x`` over the polytope."""
        ...

    def potentials(self, weights: FloatArray) -> FloatArray:
        """``Phi w``, flat."""
        ...

    def features(self, x: FloatArray) -> FloatArray:
        """``Phi^T x``."""
        ...

    def find(self, slopes: FloatArray) -> Point:
        """A point of largest linear score."""
        ...

    def marginals(self, potentials: FloatArray, n_sweeps: int = SWEEPS) -> FloatArray | None:
        """A point near the largest ``<th, x> + H(x)``, or ``None`` where messages find none.

        Where any number of sweeps gives a point, so many are made at most.
        """
        ...

    def reset_warm_start(self) -> None:
        """Let messages start afresh."""
        ...


class BlockWithCurvature(DualBlock, Protocol):
    """A block whose marginals message passing finds, with their derivative by the potentials."""

    def curvature(self, x: FloatArray) -> FloatArray:
        """``Phi^T C Phi`` with the covariance of the surrogate whose marginals are ``x``."""
        ...


@dataclass(frozen=True, eq=False)
class DualModel:
    """All blocks, and the statistics of the labels.

    ``with_curvature``: the blocks again, if all of them have a curvature (for Newton's method).
    """

    blocks: Sequence[DualBlock]
    statistics: FloatArray
    n_examples: int
    n_jobs: int = 1
    with_curvature: Sequence[BlockWithCurvature] = ()


class GraphBlock:
    """The beliefs of the graphs of one part: unary entries, then those of factors."""

    def __init__(self, part: LinearPart, objective: MLEStruct) -> None:
        batch = part.batch
        graph = batch.graph
        counting = concave_counting_numbers(objective.entropy, graph)
        given = objective.oracle
        self._oracle = relaxation_oracle(graph) if given is None else given
        self._part = part
        self._cut = int(graph.unary_offsets[-1])
        self._scale: FloatArray | None = None
        self._inference = SumProduct(entropy=objective.entropy, tol=MARGINALS_TOL)
        self._last: InferenceResult | None = None
        self._points: ConsistentPoints | None = None
        if ConsistentPoints.suits(batch, objective.entropy):
            self._points = ConsistentPoints(batch, objective.entropy)
        self.coefficients = coefficients_of(graph, counting)
        if part.example_weights is not None:
            both = (batch.unary_offsets, batch.table_offsets)
            self._scale = np.concatenate([expand(part.example_weights, one) for one in both])
            self.coefficients = self.coefficients * self._scale

    def start(self) -> FloatArray:
        return uniform_point(self._part.batch.graph)

    def labelled(self) -> FloatArray | None:
        graph, given = self._part.batch.graph, self._part.unary_statistics
        chosen = np.flatnonzero(given == 1.0)
        if len(chosen) != graph.n_variables or np.any((given != 0.0) & (given != 1.0)):
            return None
        found = Beliefs.from_labels(graph, (chosen - graph.unary_offsets[:-1]).astype(np.int32))
        return np.concatenate([found.unary_values, found.factor_values])

    def largest_entropy(self) -> float:
        # it is concave, and exchanging labels changes nothing
        return float(entropy(self.coefficients, self.start()))

    def potentials(self, weights: FloatArray) -> FloatArray:
        found = self._part.mapping.potentials(weights)
        flat = np.concatenate([found.unary_values, found.factor_values])
        return flat if self._scale is None else flat * self._scale

    def features(self, x: FloatArray) -> FloatArray:
        given = x if self._scale is None else x * self._scale
        graph = self._part.batch.graph
        return self._part.mapping.gradient(
            Potentials.from_flat(graph, given[: self._cut].copy(), given[self._cut :].copy())
        )

    def find(self, slopes: FloatArray) -> Point:
        return find_point(self._oracle, self._part.batch, slopes)

    def marginals(self, potentials: FloatArray, n_sweeps: int = SWEEPS) -> FloatArray | None:
        flat = potentials
        if self._scale is not None:  # beliefs of examples without weight do not matter
            flat = np.zeros_like(potentials)
            np.divide(potentials, self._scale, out=flat, where=self._scale > 0.0)
        batch = self._part.batch
        given = Potentials.from_flat(
            batch.graph, flat[: self._cut].copy(), flat[self._cut :].copy()
        )
        if self._points is not None:
            return self._points.find(given, n_sweeps)
        found = self._inference.run_batch(batch, given, init=self._last)
        self._last = found
        if not found.converged:
            return None
        return np.concatenate([found.beliefs.unary_values, found.beliefs.factor_values])

    def reset_warm_start(self) -> None:
        self._last = None
        if self._points is not None:
            self._points.reset_warm_start()


def graph_blocks(model: LinearModel, objective: MLEStruct) -> DualModel:
    """One block for each part."""
    blocks = [GraphBlock(part, objective) for part in model.parts]
    return DualModel(blocks, model.statistics, model.n_examples, model.n_jobs)
