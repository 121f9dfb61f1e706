"""What a learner minimises: a sum over examples as a function of the weights.

The data are cut into parts (groups of examples); each part is one batch with its template.  Parts
are evaluated one after the other or in threads and added up in their order, so the result does not
depend on the number of threads.  This is the one place where learning runs in parallel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.template import Template
from fieldfit.learners.dual_blocks import DualModel, graph_blocks
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.objectives.base import Objective
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = [
    "Assessment",
    "Part",
    "Problem",
    "TemplateProblem",
    "one_blas_thread",
    "over_parts",
    "potentials_of",
]

Found = TypeVar("Found")


@dataclass(frozen=True)
class Assessment:
    """The sum over examples at some weights, without the penalty.

    ``value`` is ``None`` if the objective has only a gradient.  ``n_unconverged`` counts the
    examples whose inference did not converge.
    """

    value: float | None
    gradient: FloatArray
    n_unconverged: int
    n_examples: int


class Problem(ABC):
    """A sum over examples; learners see nothing else of the data."""

    #: Length of the weight vector.
    n_weights: int
    #: How many groups of examples can be evaluated separately (mini-batches).
    n_parts: int
    #: False: only learners for subgradients and samples apply.
    is_smooth: bool = True
    #: True: the value is proportional to the weights, and zero at zero (a perceptron).
    is_homogeneous: bool = False
    #: False: the gradient is not that of the value; a search has to go by slopes.
    is_conservative: bool = True
    #: What is summed over the examples, where it is one of the objectives.
    objective: Objective | None = None
    #: True if no label is missing, so that `linear_model` exists.
    is_complete: bool = False

    @abstractmethod
    def assess(self, weights: FloatArray) -> Assessment:
        """Value and gradient over all examples."""

    @abstractmethod
    def assess_part(self, weights: FloatArray, part: int) -> Assessment:
        """Value and gradient over one group of examples."""

    def forget(self) -> None:  # noqa: B027  (most problems keep nothing)
        """Drop what is kept from one evaluation to the next (warm starts).

        Called when a checkpoint is written, so that a run that goes on and a run that is resumed
        from the checkpoint see the same numbers to the last bit.
        """

    def linear_model(self) -> LinearModel:
        """The data as statistics of log-linear models, if they are complete."""
        raise InvalidInputError("problem must have complete labels, got missing ones")

    def dual_model(self, objective: MLEStruct) -> DualModel:
        """Blocks of beliefs for learners that work in the dual, if labels are complete."""
        return graph_blocks(self.linear_model(), objective)

    def fingerprint(self) -> str:
        """A digest of the data and the objective, or an empty text if there is none.

        A checkpoint that was written with another one is refused.
        """
        return ""


@dataclass(frozen=True)
class Part:
    """A group of examples: their union graph, the map from weights, and the labels.

    ``example_weights`` multiply the examples' values (all 1 if ``None``).
    """

    batch: Batch
    template: Template
    labels: NDArray[np.int32]
    example_weights: FloatArray | None = None


class TemplateProblem(Problem):
    """An objective on the potentials that templates make."""

    def __init__(
        self, objective: Objective, parts: Sequence[Part], n_jobs: int | None = None
    ) -> None:
        if len(parts) == 0:
            raise InvalidInputError("parts must hold at least one group of examples, got none")
        self.objective: Objective = objective
        self.parts = tuple(parts)
        self.is_complete = all(bool((part.labels >= 0).all()) for part in parts)
        self._templates = [objective.templates(part.template) for part in parts]
        self.n_weights = sum(template.n_weights for template in self._templates[0])
        self.n_parts = len(parts)
        self.n_jobs = n_threads(n_jobs)
        self.is_smooth = objective.is_smooth
        self.is_homogeneous = objective.is_homogeneous
        self.is_conservative = objective.is_conservative
        self._states: list[Any] = [None] * len(parts)

    def assess(self, weights: FloatArray) -> Assessment:
        """Sum over the parts, in their order."""
        return total(
            over_parts(lambda part: self._assess_part(weights, part), self.n_parts, self.n_jobs)
        )

    def assess_part(self, weights: FloatArray, part: int) -> Assessment:
        """One batch: weights to potentials, objective, and back."""
        with one_blas_thread():
            return self._assess_part(weights, part)

    def _assess_part(self, weights: FloatArray, part: int) -> Assessment:
        given = self.parts[part]
        templates = self._templates[part]
        potentials = potentials_of(templates, weights)
        if isinstance(potentials, Potentials):
            evaluation = self.objective.evaluate(
                given.batch, potentials, given.labels, self._states[part]
            )
            gradients: tuple[Potentials, ...] = (evaluation.gradient,)
        else:
            evaluation = self.objective.evaluate_sets(
                given.batch, potentials, given.labels, self._states[part]
            )
            gradients = evaluation.set_gradients
        self._states[part] = evaluation.state
        values = evaluation.values
        if given.example_weights is not None:
            scale = given.example_weights
            gradients = tuple(weighted(given.batch, one, scale) for one in gradients)
            values = None if values is None else values * scale
        return Assessment(
            value=None if values is None else float(values.sum()),
            gradient=np.concatenate(
                [template.gradient(one) for template, one in zip(templates, gradients, strict=True)]
            ),
            n_unconverged=int((~evaluation.converged_examples).sum()),
            n_examples=given.batch.n_examples,
        )

    def forget(self) -> None:
        """Drop the messages of the last evaluation."""
        self._states = [None] * self.n_parts

    def linear_model(self) -> LinearModel:
        """Templates with the indicators of the labels."""
        if not self.is_complete:
            return super().linear_model()
        linear = []
        statistics = np.zeros(self.n_weights)
        for part in self.parts:
            graph = part.batch.graph
            found = Beliefs.from_labels(graph, part.labels)
            indicators = Potentials.from_flat(graph, found.unary_values, found.factor_values)
            linear.append(
                LinearPart(part.batch, part.template, found.unary_values, part.example_weights)
            )
            if part.example_weights is not None:
                indicators = weighted(part.batch, indicators, part.example_weights)
            statistics += part.template.gradient(indicators)
        n_examples = sum(part.batch.n_examples for part in self.parts)
        return LinearModel(linear, statistics, n_examples, self.n_jobs)

    def fingerprint(self) -> str:
        """A digest of the objective's options, graphs, features, labels and example weights."""
        digest = sha256(repr(self.objective).encode())
        for part in self.parts:
            graph = part.batch.graph
            arrays: list[Any] = [graph.cardinalities, graph.slot_variables, graph.scope_offsets]
            arrays += [part.batch.variable_offsets, part.labels, part.example_weights]
            for block in part.template.blocks:
                features = block.features
                is_sparse = hasattr(features, "indptr")
                arrays += [block.starts, block.groups]
                arrays += (
                    [features.indptr, features.indices, features.data] if is_sparse else [features]
                )
            for array in arrays:
                if array is not None:
                    digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def potentials_of(
    templates: Sequence[Template], weights: FloatArray
) -> Potentials | list[Potentials]:
    """Potentials of the weights, or one for each set of weights if an objective has several."""
    if len(templates) == 1:
        return templates[0].potentials(weights)
    ends = np.cumsum([template.n_weights for template in templates])
    sets = np.split(weights, ends[:-1])
    return [template.potentials(one) for template, one in zip(templates, sets, strict=True)]


def over_parts(run: Callable[[int], Found], n_parts: int, n_jobs: int) -> list[Found]:
    """What ``run`` gives for every part, in their order; in threads if asked."""
    with one_blas_thread():
        if n_jobs == 1 or n_parts == 1:
            return [run(part) for part in range(n_parts)]
        with ThreadPoolExecutor(min(n_jobs, n_parts)) as pool:
            return list(pool.map(run, range(n_parts)))


def total(assessments: Sequence[Assessment]) -> Assessment:
    """The sum of several assessments, in the given order."""
    values = [given.value for given in assessments]
    gradient = assessments[0].gradient.copy()
    for given in assessments[1:]:
        gradient += given.gradient
    known = [value for value in values if value is not None]
    return Assessment(
        value=float(sum(known)) if len(known) == len(values) else None,
        gradient=gradient,
        n_unconverged=sum(given.n_unconverged for given in assessments),
        n_examples=sum(given.n_examples for given in assessments),
    )


def weighted(batch: Batch, gradient: Potentials, example_weights: FloatArray) -> Potentials:
    """A gradient with each example's entries multiplied by the example's weight."""
    graph = batch.graph
    unary = np.diff(graph.unary_offsets[batch.variable_offsets])
    table = np.diff(graph.table_offsets[batch.factor_offsets])
    return Potentials.from_flat(
        graph,
        gradient.unary_values * np.repeat(example_weights, unary),
        gradient.factor_values * np.repeat(example_weights, table),
    )


def n_threads(n_jobs: int | None) -> int:
    """Threads for ``n_jobs`` in scikit-learn's sense: ``None`` is one, ``-1`` all processors."""
    import os

    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise InvalidInputError("n_jobs must not be 0, got 0")
    return n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)


def one_blas_thread() -> Any:
    """A context in which matrix products stay in the thread that asks for them.

    Products with features are small and many, and parts already run in parallel: threads of the
    linear algebra library would get in the way of ours and, on a busy machine, mostly wait for each
    other.  Their number would also change the last bits of a sum.
    """
    return _blas().limit(limits=1)


@cache
def _blas() -> Any:
    # comes with scikit-learn
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")
