"""Exact likelihood of linear chains by fused forward-backward kernels: the fast path of `ChainCRF`.

    minimise  sum over sequences of log Z(x; w) - log Z(x, given labels; w)

The weights are, in this order: one for every (attribute, label) pair that the model has,
attribute by attribute; one for every (label, next label) pair that it has; and, if asked for, one
for each label of a sequence's first and of its last token.

Sequences are cut into groups of about equal work, whose number depends on the data only.  Each
thread works on one group at a time and adds its gradient to the total when all groups before it
have been added; so there is one gradient for each thread besides the total, and the sum does not
depend on the number of threads, to the last bit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fieldfit._parallel import n_threads, ordered_map
from fieldfit._typing import FloatArray, LabelArray
from fieldfit.learners.problem import Problem, ProblemValue, TemplateProblem
from fieldfit.models.chain.chain_parts import chain_parts, is_exact_on_chains
from fieldfit.models.chain.chain_tokens import EncodedTokens
from fieldfit.models.chain.forward_backward import (
    ChainModel,
    ChainScratch,
    add_and_clear,
    chain_group,
)
from fieldfit.models.chain.sparse_scores import collect_rows
from fieldfit.models.dispatch import NotApplicable
from fieldfit.objectives.base import Objective
from fieldfit.objectives.likelihood import Likelihood

__all__ = ["ChainData", "ChainProblem", "chain_graph_problem", "exact_chain_problem"]

#: Adding up a group's gradient may cost this share of computing it ...
SHARE_OF_SUMMING = 0.1
#: ... where one weight costs as much as this many multiplications, and a group is at least so many.
COST_OF_WEIGHT = 10.0
SMALLEST_GROUP = 2e6
MAX_GROUPS = 64


class ChainProblem(Problem):
    """Sum over sequences of the negative log-likelihood of the labels that are given."""

    def __init__(
        self,
        tokens: EncodedTokens,
        labels: LabelArray,
        *,
        sequence_weights: FloatArray | None = None,
        n_jobs: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.tokens = tokens
        self.labels = labels
        self.sequence_weights = np.zeros(0) if sequence_weights is None else sequence_weights
        self.n_jobs = n_threads(n_jobs)
        self.n_weights = tokens.layout.n_weights
        self.bounds = self._bounds(batch_size)
        self.n_parts = len(self.bounds) - 1
        self._scratch: list[ChainScratch] = []

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        """Value and gradient over all sequences."""
        return self._sum(weights, range(self.n_parts))

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        """Value and gradient over one group."""
        return self._sum(weights, range(part, part + 1))

    def fingerprint(self) -> str:
        """A digest of features, labels, weights of sequences, and of how they are grouped."""
        tokens, layout = self.tokens, self.tokens.layout
        digest = sha256(b"chain likelihood")
        arrays = [tokens.entries.offsets, tokens.entries.codes, tokens.entries.values]
        arrays += [tokens.sequence_offsets, self.labels, self.sequence_weights, self.bounds]
        arrays += [layout.state_offsets, layout.state_labels, layout.transitions]
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest() + ("+boundary" if layout.boundary else "")

    def _bounds(self, batch_size: int | None) -> NDArray[np.int64]:
        count = self.tokens.n_sequences
        if batch_size is not None:
            return np.unique(np.append(np.arange(0, count, batch_size), count)).astype(np.int64)
        work = float(self.tokens.sequence_work().sum())
        affordable = SHARE_OF_SUMMING * work / (COST_OF_WEIGHT * max(1, self.n_weights))
        n_groups = int(np.clip(min(affordable, work / SMALLEST_GROUP), 1, MAX_GROUPS))
        return self.tokens.groups(n_groups)

    def _sum(self, weights: FloatArray, groups: range) -> ProblemValue:
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        model = self.tokens.model(weights)
        n_workers = min(self.n_jobs, len(groups))
        while len(self._scratch) < n_workers:
            self._scratch.append(self.tokens.scratch(self.n_weights))
        gradient = np.zeros(self.n_weights)
        values = np.zeros(len(groups))
        turns = _Turns(groups)

        def work(scratch: ChainScratch) -> None:
            try:
                while (group := turns.take()) is not None:
                    value = self._group(model, group, scratch)
                    with turns.of(group):
                        add_and_clear(scratch.gradient, gradient)
                        values[group - groups.start] = value
            except BaseException:
                turns.give_up()
                self._scratch.clear()  # it may hold half a gradient
                raise

        ordered_map(work, self._scratch[:n_workers], n_workers)
        value = float(values.sum())
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            # weights beyond the range of scores: the worst of all points, from which to step back
            value, gradient = np.inf, np.zeros(self.n_weights)
        first, last = self.bounds[groups.start], self.bounds[groups.stop]
        return ProblemValue(value, gradient, 0, int(last - first))

    def _group(self, model: ChainModel, group: int, scratch: ChainScratch) -> float:
        """Value of a group; its gradient is left in ``scratch.gradient``, all else is cleared."""
        tokens, layout = self.tokens, self.tokens.layout
        width, n_labels = layout.width, layout.n_labels
        value, _ = chain_group(
            layout.row_shape, n_labels, tokens.entries, tokens.states, model,
            tokens.sequence_offsets, self.labels, self.sequence_weights, self.bounds[group],
            self.bounds[group + 1], scratch,
        )  # fmt: skip
        collect_rows(tokens.states, scratch.rows, width, scratch.gradient)
        counts = (scratch.outer - scratch.observed_outer) * model.exp_transition
        counts += scratch.counts - scratch.observed_counts
        square = counts.reshape(width, width)[:n_labels, :n_labels]
        _, pairs, start, end = layout.split(scratch.gradient)
        chosen = layout.transitions >= 0
        pairs[layout.transitions[chosen]] = square[chosen]
        if layout.boundary:
            start[:] = scratch.start[:n_labels]
            end[:] = scratch.end[:n_labels]
        for used in (scratch.outer, scratch.observed_outer, scratch.counts,
                     scratch.observed_counts, scratch.start, scratch.end):  # fmt: skip
            used.fill(0.0)
        return float(value)


class _Turns:
    """Hands out groups in order, and lets their results be added in the same order."""

    def __init__(self, groups: range) -> None:
        self._waiting = iter(groups)
        self._next = groups.start
        self._failed = False
        self._changed = threading.Condition()

    def take(self) -> int | None:
        """The next group to work on, or ``None``."""
        with self._changed:
            return None if self._failed else next(self._waiting, None)

    @contextmanager
    def of(self, group: int) -> Iterator[None]:
        """Wait until all groups before this one have had their turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._next == group)
        yield
        with self._changed:
            self._next = group + 1
            self._changed.notify_all()

    def give_up(self) -> None:
        """Let nobody wait for a worker that has failed."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()


# -- The builders that `fieldfit.models.dispatch` names ------------------------------------


@dataclass(frozen=True, eq=False)
class ChainData:
    """Encoded sequences with their labels and weights."""

    tokens: EncodedTokens
    labels: LabelArray
    sequence_weights: FloatArray | None = None
    batch_size: int | None = None
    n_jobs: int | None = None


def exact_chain_problem(objective: Likelihood, data: ChainData) -> ChainProblem | NotApplicable:
    """Forward-backward, if the likelihood is exact on chains."""
    if not is_exact_on_chains(objective.inference):
        return NotApplicable(
            "the forward-backward kernels are exact, so this surrogate likelihood was evaluated on "
            "factor graphs"
        )
    return ChainProblem(
        data.tokens,
        data.labels,
        sequence_weights=data.sequence_weights,
        n_jobs=data.n_jobs,
        batch_size=data.batch_size,
    )


def chain_graph_problem(objective: Objective, data: ChainData) -> TemplateProblem:
    """Any objective, on factor graphs of the chains."""
    parts = chain_parts(data.tokens, data.labels, data.sequence_weights, data.batch_size)
    return TemplateProblem(objective, parts, data.n_jobs)
