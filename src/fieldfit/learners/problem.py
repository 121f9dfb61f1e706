"""Empirical risk as a function of the weights: value and gradient of a sum over examples.

    F(w) = sum over examples m of  v_m * objective(Phi_m w, y_m)

The data are cut into parts (groups of examples, the mini-batches of stochastic learners); each part
is one batch of graphs with its template ``Phi``.  Parts are evaluated one after the other or in
threads and added up in their order, so the result does not depend on the number of threads.  Large
data are cut into shards; the parts of a shard are added up first, then the shards, so that it does
not matter either where a shard was evaluated (`fieldfit.shards`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._arrays import integers
from fieldfit._parallel import n_threads, one_blas_thread, ordered_map
from fieldfit._typing import FloatArray
from fieldfit._validation import require_index, require_instance, require_sequence_of, shown
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.ragged import expand
from fieldfit.graph.template import Template
from fieldfit.learners.dual_blocks import DualModel, graph_blocks
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.objectives.base import Objective
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = [
    "WHOLE_KINDS",
    "Part",
    "Problem",
    "ProblemValue",
    "SumProblem",
    "TemplateProblem",
    "potentials_of",
    "total",
]


#: Kinds of objectives whose learners see the beliefs of all examples, so that data are not cut.
WHOLE_KINDS = ("camel", "dual")


@dataclass(frozen=True)
class ProblemValue:
    """The sum over examples at some weights, without the penalty.

    ``value`` is ``None`` if the objective has only a gradient.  ``n_unconverged`` counts the
    examples whose inference did not converge.

    Attributes
    ----------
    value
        The sum, or ``None`` if the objective has only a gradient.
    gradient
        With respect to the weights.
    n_unconverged, n_examples
        Examples whose inference did not converge, and all.
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
    #: The only learner that applies, where it is not the objective's choice.
    learner_name: str | None = None
    #: Whether workers that lack its warm starts replay the evaluations since the last reset
    #: (`fieldfit.shards`); a run then resets them now and then, in memory as over shards.
    is_replayed: bool = False
    #: Clauses for the status of a fit: where a general method took the place of a special one.
    notes: tuple[str, ...] = ()

    @property
    def has_kinks(self) -> bool:
        """Whether the minimum may have no small gradient (see `Objective.has_kinks`)."""
        return self.objective is not None and self.objective.has_kinks

    @abstractmethod
    def evaluate(self, weights: FloatArray) -> ProblemValue:
        """Value and gradient over all examples."""

    @abstractmethod
    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        """Value and gradient over one group of examples."""

    def reset_warm_start(self) -> None:  # noqa: B027  (most problems keep nothing)
        """Drop what is kept from one evaluation to the next (warm starts).

        Called when a checkpoint is written, so that a run that goes on and a run that is resumed
        from the checkpoint see the same numbers to the last bit.
        """

    def take_warm_start(self) -> Any:
        """What is kept from one evaluation to the next, which goes; ``None`` if that is nothing."""
        return None

    def give_warm_start(self, state: Any) -> None:  # noqa: B027  (most problems keep nothing)
        """Put back what `take_warm_start` gave, perhaps to another problem of the same data."""

    def graphs(self) -> Sequence[FactorGraph]:
        """Graphs that a warm start may refer to, in a fixed order."""
        return ()

    def take_figures(self) -> dict[str, Any]:
        """What a row of the trace adds about the evaluations since the last row."""
        return {}

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

    def first_weights(self, start: FloatArray | None) -> FloatArray:
        """Where a learner begins: at zero, or at the weights that a user gives."""
        return np.zeros(self.n_weights) if start is None else start


@dataclass(frozen=True)
class Part:
    """A group of examples: their union graph, the map from weights, and the labels.

    ``example_weights`` multiply the examples' values (all 1 if ``None``).

    Parameters
    ----------
    batch
        The examples.
    template
        Makes potentials of their union graph from weights.
    labels
        One for each variable of the union graph, ``-1`` where missing.
    example_weights
        Factors of the examples' values; all 1 if ``None``.
    """

    batch: Batch
    template: Template
    labels: NDArray[np.int32]
    example_weights: FloatArray | None = None


class TemplateProblem(Problem):
    """An objective on the potentials that templates make.

    ``shard_parts`` says how many parts each shard has; ``None``: all parts are one shard.

    Parameters
    ----------
    objective
        What is summed over the examples.
    parts
        Groups of examples.
    n_jobs
        Threads; the result does not depend on it.
    shard_parts
        How many parts each shard has; ``None``: all parts are one shard.
    """

    def __init__(
        self,
        objective: Objective,
        parts: Sequence[Part],
        n_jobs: int | None = None,
        shard_parts: Sequence[int] | None = None,
    ) -> None:
        require_instance("objective", objective, Objective, "PseudoLikelihood()")
        require_sequence_of("parts", parts, Part, "Part(batch, template, labels)")
        if len(parts) == 0:
            raise InvalidInputError("parts must hold at least one group of examples, got none")
        self.objective: Objective = objective
        self.parts = tuple(parts)
        self._shard_ends = _shard_ends(shard_parts, len(parts))
        self.is_complete = all(bool((part.labels >= 0).all()) for part in parts)
        self._templates = [objective.templates(part.template) for part in parts]
        self.n_weights = sum(template.n_weights for template in self._templates[0])
        self.n_parts = len(parts)
        self.n_jobs = n_threads(n_jobs)
        self.is_smooth = objective.is_smooth
        self.is_homogeneous = objective.is_homogeneous
        self.is_conservative = objective.is_conservative
        self.is_replayed = objective.problem_kind not in WHOLE_KINDS
        self._states: list[Any] = [None] * len(parts)

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        """Sum over the parts of each shard and over the shards, in their order."""
        found = ordered_map(
            lambda part: self._evaluate_part(weights, part), range(self.n_parts), self.n_jobs
        )
        begins = [0, *self._shard_ends[:-1]]
        return total(
            [total(found[begin:end]) for begin, end in zip(begins, self._shard_ends, strict=True)]
        )

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        """One batch: weights to potentials, objective, and back."""
        require_index("part", part, self.n_parts)
        with one_blas_thread():
            return self._evaluate_part(weights, part)

    def _evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
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
        return ProblemValue(
            value=None if values is None else float(values.sum()),
            gradient=np.concatenate(
                [template.gradient(one) for template, one in zip(templates, gradients, strict=True)]
            ),
            n_unconverged=int((~evaluation.converged_examples).sum()),
            n_examples=given.batch.n_examples,
        )

    def reset_warm_start(self) -> None:
        """Drop the messages of the last evaluation."""
        self._states = [None] * self.n_parts

    def take_warm_start(self) -> Any:
        """The messages of the last evaluation, part by part."""
        states, self._states = self._states, [None] * self.n_parts
        return None if all(state is None for state in states) else states

    def graphs(self) -> Sequence[FactorGraph]:
        """The union graph of each part, then those of its examples."""
        return [graph for part in self.parts for graph in (part.batch.graph, *part.batch.graphs)]

    def give_warm_start(self, state: Any) -> None:
        """Go on from such messages."""
        self._states = [None] * self.n_parts if state is None else list(state)

    def first_weights(self, start: FloatArray | None) -> FloatArray:
        """Zeros, weights for all sets, those for potentials, or those of single variables.

        Weights for potentials are repeated where every sweep has its own; other sets (of entropies)
        begin at 0.  Weights of the blocks of single variables, if these come first, are those of an
        independent model, to which couplings of 0 are added.
        """
        own = self._templates[0][0]
        n_unary = sum(
            block.n_weights for block in takewhile(lambda block: block.part == "unary", own.blocks)
        )
        if start is not None and start.shape == (n_unary,):
            start = np.concatenate([start, np.zeros(own.n_weights - n_unary)])
        if start is None or start.shape != (own.n_weights,):
            return super().first_weights(start)  # its length is checked by the learner
        return np.concatenate(
            [start if one is own else np.zeros(one.n_weights) for one in self._templates[0]]
        )

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


def _shard_ends(given: Any, n_parts: int) -> NDArray[Any]:
    """Where the parts of each shard end."""
    if given is None:
        return np.array([n_parts])
    counts = integers("shard_parts", given)
    if counts.ndim != 1 or counts.min(initial=1) < 1 or counts.sum() != n_parts:
        raise InvalidInputError(
            f"shard_parts must be numbers of at least 1 with the sum {n_parts}, one for each "
            f"shard, got {shown(given)}"
        )
    return np.cumsum(counts)


class SumProblem(Problem):
    """Problems of several shards in memory, with the same weights, as one."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        self.problems = tuple(problems)
        self.n_weights = first.n_weights
        self.n_parts = sum(problem.n_parts for problem in problems)
        self.is_smooth = first.is_smooth
        self.is_homogeneous = first.is_homogeneous
        self.is_conservative = first.is_conservative
        self.objective = first.objective
        self.is_complete = all(problem.is_complete for problem in problems)
        self.is_replayed = first.is_replayed
        self.learner_name = first.learner_name
        self.notes = first.notes

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        """Sum over the shards, in their order."""
        return total([problem.evaluate(weights) for problem in self.problems])

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        """One part of one shard."""
        for problem in self.problems:
            if part < problem.n_parts:
                return problem.evaluate_part(weights, part)
            part -= problem.n_parts
        raise IndexError(part)

    def reset_warm_start(self) -> None:
        for problem in self.problems:
            problem.reset_warm_start()

    def first_weights(self, start: FloatArray | None) -> FloatArray:
        return self.problems[0].first_weights(start)

    def fingerprint(self) -> str:
        """A digest of those of all shards."""
        texts = [problem.fingerprint() for problem in self.problems]
        return sha256(" ".join(texts).encode()).hexdigest()


def potentials_of(
    templates: Sequence[Template], weights: FloatArray
) -> Potentials | list[Potentials]:
    """Potentials of the weights, or one for each set of weights if an objective has several.

    Parameters
    ----------
    templates
        One, or one for each set of weights.
    weights
        All weights, one set after the other.

    Returns
    -------
    Potentials or list of Potentials
        One for each template.
    """
    if len(templates) == 1:
        return templates[0].potentials(weights)
    ends = np.cumsum([template.n_weights for template in templates])
    sets = np.split(weights, ends[:-1])
    return [template.potentials(one) for template, one in zip(templates, sets, strict=True)]


def total(parts: Sequence[ProblemValue]) -> ProblemValue:
    """The sum over several parts, in the given order."""
    values = [given.value for given in parts]
    gradient = parts[0].gradient.copy()
    for given in parts[1:]:
        gradient += given.gradient
    known = [value for value in values if value is not None]
    return ProblemValue(
        value=float(sum(known)) if len(known) == len(values) else None,
        gradient=gradient,
        n_unconverged=sum(given.n_unconverged for given in parts),
        n_examples=sum(given.n_examples for given in parts),
    )


def weighted(batch: Batch, gradient: Potentials, example_weights: FloatArray) -> Potentials:
    """A gradient with each example's entries multiplied by the example's weight."""
    return Potentials.from_flat(
        batch.graph,
        gradient.unary_values * expand(example_weights, batch.unary_offsets),
        gradient.factor_values * expand(example_weights, batch.table_offsets),
    )
