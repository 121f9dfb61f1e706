"""Contrastive divergence (CD-k) and persistent contrastive divergence, by Gibbs chains.

    gradient = E[statistics after k sweeps from the data] - statistics of the data

A sweep is drawn with the current potentials; what it makes of the data is the *reconstruction*.  If
reconstructions tend to leave the data in some direction, the weights are moved against it; a model
that is right leaves the statistics where they are.  A few sweeps (often one) do, because the data
are near the modes that matter.  Long chains, or *persistent* ones that go on from evaluation to
evaluation, come nearer to the likelihood.

Missing labels are drawn first, with the known ones observed, and then all labels.  There is no
value, only this sample of a gradient, so learning takes a stochastic learner.

References: Hinton, "Training products of experts by minimizing contrastive divergence", Neural
Computation 14 (2002); Tieleman, "Training restricted Boltzmann machines using approximations to the
likelihood gradient", ICML (2008), for persistent chains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import LabelArray
from fieldfit._validation import require_flag, require_integer
from fieldfit.errors import ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, selected_entries
from fieldfit.inference.gibbs.gibbs import Gibbs, gibbs_sweeps
from fieldfit.objectives.base import (
    Evaluation,
    Inference,
    Objective,
    default_prediction,
    raise_impossible,
    require_possible,
)

__all__ = ["ContrastiveDivergence", "Drawn"]

#: First step of the learner with persistent chains, which must keep up with the weights.  With
#: Adam's own, 0.1, a machine of 8 hidden units on digits was worse after 100 epochs than
#: independent pixels; with this one it was as good as with chains that start at the data.
PERSISTENT_STEP = 0.02


class Drawn(NamedTuple):
    """Labels that the next evaluation goes on from: completed data, and persistent chains."""

    completed: LabelArray
    chain: LabelArray


@dataclass(frozen=True, kw_only=True)
class ContrastiveDivergence(Objective):
    """The change of the statistics in ``n_sweeps`` Gibbs sweeps from the data.

    Parameters
    ----------
    n_sweeps
        Sweeps of each evaluation.
    persistent
        Go on where the chains of the last evaluation ended, instead of starting at the data.
    n_hidden_sweeps
        Sweeps over missing labels with the known ones observed, from where the last evaluation
        left them.
    random_state
        Seed.  Random numbers depend on it and on the potentials (and on persistent chains), not on
        what was evaluated before, so a run can be repeated, and resumed.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> objective = ContrastiveDivergence(n_sweeps=1, random_state=0)
    >>> value, gradient = objective.value_and_grad(graph, ff.Potentials(graph), [0, 1, 1])
    >>> value is None, bool(gradient.unary(0).sum() == 0.0)
    (True, True)
    """

    name: ClassVar[str] = "cd"
    problem_kind: ClassVar[str] = "chains"
    learner_name: ClassVar[str] = "adam"
    is_smooth: ClassVar[bool] = False
    is_conservative: ClassVar[bool] = False
    n_sweeps: int = field(default=1, kw_only=False)
    persistent: bool = False
    n_hidden_sweeps: int = 5
    random_state: int = 0

    def __post_init__(self) -> None:
        require_integer("n_sweeps", self.n_sweeps, at_least=1)
        require_flag("persistent", self.persistent)
        require_integer("n_hidden_sweeps", self.n_hidden_sweeps, at_least=1)
        require_integer("random_state", self.random_state, at_least=0)

    def learner_options(self) -> dict[str, float]:
        """Short steps for persistent chains."""
        return {"step": PERSISTENT_STEP} if self.persistent else {}

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """One sample of the gradient; ``values`` are ``None``."""
        graph = batch.graph
        before: Drawn | None = init
        generator = self.generator(potentials, before, labels)
        completed = labels
        if np.any(labels < 0):
            completed = self._completed(batch, potentials, labels, before, generator)
        require_possible(batch, batch.scores(potentials, completed))
        start = completed
        if self.persistent and before is not None:
            start = before.chain
        chain = gibbs_sweeps(graph, potentials, start, self.n_sweeps, generator)
        gradient = Potentials(graph)
        for drawn, sign in ((completed, -1.0), (chain, 1.0)):
            unary, tables = selected_entries(graph, drawn)
            gradient.unary_values[unary] += sign
            gradient.factor_values[tables] += sign
        converged = np.ones(batch.n_examples, dtype=np.bool_)
        return Evaluation(None, gradient, converged, Drawn(completed, chain))

    def prediction(self, graph: FactorGraph) -> Inference:
        """Sampling binds predictions to no surrogate (see `default_prediction`)."""
        return default_prediction(graph)

    def _completed(
        self,
        batch: Batch,
        potentials: Potentials,
        labels: LabelArray,
        before: Drawn | None,
        generator: np.random.Generator,
    ) -> LabelArray:
        """Missing labels drawn from their conditional distribution, as well as sweeps can."""
        sampler = Gibbs(
            n_sweeps=1, burn_in=self.n_hidden_sweeps, n_chains=1, random_state=generator
        )
        start = labels if before is None else np.where(labels < 0, before.completed, labels)
        try:
            drawn = sampler.sample(batch.graph, potentials, 1, observed=labels, init=start)
        except ZeroWeightError:
            raise_impossible(batch, potentials, labels)
        return np.ascontiguousarray(drawn[0])

    def generator(
        self, potentials: Potentials, before: Drawn | None, labels: LabelArray
    ) -> np.random.Generator:
        """Random numbers of an evaluation."""
        digest = blake2b(repr(self.random_state).encode(), digest_size=32)
        seen = [potentials.unary_values, potentials.factor_values, labels]
        if self.persistent and before is not None:
            # or a chain would meet the same numbers again and again where the weights stand still
            seen.append(before.chain)
        for values in seen:
            digest.update(np.ascontiguousarray(values).data)
        entropy: NDArray[np.uint32] = np.frombuffer(digest.digest(), dtype=np.uint32)
        return np.random.default_rng(entropy)
