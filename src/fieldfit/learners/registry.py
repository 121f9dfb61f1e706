"""Which learner to use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fieldfit.errors import InvalidInputError
from fieldfit.learners.base import Learner
from fieldfit.learners.camel_rounds import CamelRounds
from fieldfit.learners.dual_frank_wolfe import DualFrankWolfe
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.problem import Problem
from fieldfit.learners.stochastic import SGD, Adam
from fieldfit.objectives.camel import Camel
from fieldfit.objectives.contrastive_divergence import ContrastiveDivergence
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = ["LEARNERS", "as_seed", "make_learner"]

LEARNERS = ("lbfgs", "adam", "sgd")
#: First step for persistent chains, which must keep up with the weights.  With Adam's own, 0.1,
#: a machine of 8 hidden units on digits was worse after 100 epochs than independent pixels; with
#: this one it was as good as with chains that start at the data.
PERSISTENT_STEP = 0.02


def make_learner(
    learner: str | Learner | None,
    problem: Problem | None,
    max_iter: int | None = None,
    tol: float | None = None,
    random_state: Any = None,
) -> Learner:
    """The learner that is meant by a name or ``None``; an object is returned as it is.

    ``None`` is `LBFGS` where the problem is smooth and averaged `Adam` where it is not (with short
    steps for the persistent chains of `ContrastiveDivergence`).
    Where labels are complete, the objective `Camel` has rounds of its own around L-BFGS, and
    `MLEStruct` has `DualFrankWolfe`, whose tolerance is that of the objective.
    ``max_iter``, ``tol`` and ``random_state`` complete a name; ``None`` keeps a default.

    Examples
    --------
    >>> make_learner("adam", None, max_iter=20, random_state=0)
    Adam(step=None, max_iter=20, tol=1e-05, averaging=True, decay=0.0, random_state=0, \
patience=10, checkpoint_every=10, beta1=0.9, beta2=0.999)
    """
    objective = None if problem is None else problem.objective
    if problem is not None and isinstance(objective, Camel) and problem.is_complete:
        return CamelRounds(objective, _lbfgs(learner, max_iter, tol))
    if isinstance(learner, Learner):
        return learner
    if (
        learner is None
        and problem is not None
        and isinstance(objective, MLEStruct)
        and problem.is_complete
    ):
        seed = as_seed(random_state)
        return DualFrankWolfe(objective, **_given(max_iter=max_iter, random_state=seed))
    step = None
    if learner is None:
        learner = "lbfgs" if problem is None or problem.is_smooth else "adam"
        if isinstance(objective, ContrastiveDivergence) and objective.persistent:
            step = PERSISTENT_STEP
    if learner == "lbfgs":
        return _lbfgs(learner, max_iter, tol)
    if learner in ("adam", "sgd"):
        stochastic = Adam() if learner == "adam" else SGD()
        seed = as_seed(random_state)
        return replace(
            stochastic, **_given(step=step, max_iter=max_iter, tol=tol, random_state=seed)
        )
    raise InvalidInputError(
        f"learner must be None, an object or one of {LEARNERS}, got {learner!r}"
    )


def _lbfgs(learner: str | Learner | None, max_iter: int | None, tol: float | None) -> LBFGS:
    if isinstance(learner, LBFGS):
        return learner
    if learner not in (None, "lbfgs"):
        raise InvalidInputError(
            f"learner must be None, 'lbfgs' or an LBFGS for the rounds of CAMEL, got {learner!r}"
        )
    return replace(LBFGS(), **_given(max_iter=max_iter, tol=tol))


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def as_seed(random_state: Any) -> int | None:
    """An integer for whatever scikit-learn takes as a ``random_state``."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    raise InvalidInputError(
        f"random_state must be None, an integer or a random generator, got {random_state!r}"
    )
