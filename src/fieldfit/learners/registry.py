"""Which learner solves a problem: a table of learners by name, and the rule that picks one.

The problem decides, or else its objective (`Objective.learner_name`).  Learners that work on the
beliefs of complete data (CAMEL's rounds, Frank-Wolfe on the dual) are replaced by L-BFGS on the
objective's own value where labels are missing, and the status of the fit says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fieldfit._random_state import as_seed
from fieldfit._validation import shown
from fieldfit.errors import InvalidInputError
from fieldfit.learners.base import Learner
from fieldfit.learners.camel_rounds import CamelRounds
from fieldfit.learners.closed_form import ClosedForm
from fieldfit.learners.dual_frank_wolfe import DualFrankWolfe
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.problem import Problem
from fieldfit.learners.stochastic import SGD, Adam

__all__ = ["LEARNERS", "learner_for", "make_learner"]


@dataclass(frozen=True)
class _Request:
    """What an estimator asks for."""

    given: str | Learner | None
    objective: Any
    max_iter: int | None
    tol: float | None
    random_state: Any

    @property
    def seed(self) -> int | None:
        return as_seed(self.random_state)

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.objective is None else self.objective.learner_options()


def _lbfgs(request: _Request) -> LBFGS:
    return replace(LBFGS(), **_given(max_iter=request.max_iter, tol=request.tol))


def _adam(request: _Request) -> Adam:
    options = _given(max_iter=request.max_iter, tol=request.tol, random_state=request.seed)
    return replace(Adam(), **options, **(request.options if request.given is None else {}))


def _sgd(request: _Request) -> SGD:
    options = _given(max_iter=request.max_iter, tol=request.tol, random_state=request.seed)
    return replace(SGD(), **options)


def _camel_rounds(request: _Request) -> CamelRounds:
    given = request.given
    is_named = given is None or (isinstance(given, str) and given == "lbfgs")
    if not is_named and not isinstance(given, LBFGS):
        raise InvalidInputError(
            f"learner must be None, 'lbfgs' or an LBFGS for the rounds of CAMEL, got {shown(given)}"
        )
    inner = given if isinstance(given, LBFGS) else _lbfgs(request)
    return CamelRounds(request.objective, inner=inner)


def _dual_frank_wolfe(request: _Request) -> DualFrankWolfe:
    options = _given(max_iter=request.max_iter, random_state=request.seed)
    return DualFrankWolfe(request.objective, **options)


def _closed_form(request: _Request) -> ClosedForm:
    if request.given is not None:
        raise InvalidInputError(
            f"learner must be None for a closed form, which has no iterations, "
            f"got {request.given!r}"
        )
    return ClosedForm()


@dataclass(frozen=True)
class _Entry:
    """How a learner is made, and when.

    ``is_fixed``: whatever the user asks for goes through it (and may be refused).
    ``needs_labels``: it works on the statistics of complete data.
    """

    make: Callable[[_Request], Learner]
    is_fixed: bool = False
    needs_labels: bool = False


_TABLE = {
    "lbfgs": _Entry(_lbfgs),
    "adam": _Entry(_adam),
    "sgd": _Entry(_sgd),
    "camel-rounds": _Entry(_camel_rounds, is_fixed=True, needs_labels=True),
    "dual-frank-wolfe": _Entry(_dual_frank_wolfe, needs_labels=True),
    "closed-form": _Entry(_closed_form, is_fixed=True),
}

#: What users may ask for; the others belong to objectives.
LEARNERS = ("lbfgs", "adam", "sgd")


def make_learner(
    learner: str | Learner | None,
    problem: Problem | None,
    max_iter: int | None = None,
    tol: float | None = None,
    random_state: Any = None,
) -> Learner:
    """The learner that is meant by a name or ``None``; an object is returned as it is.

    ``None`` is the learner of the objective: `LBFGS` where the problem is smooth and averaged
    `Adam` where it is not; where labels are complete, the objective `Camel` has rounds of its own
    around L-BFGS, and `MLEStruct` has `DualFrankWolfe`, whose tolerance is that of the objective.
    ``max_iter``, ``tol`` and ``random_state`` complete a name; ``None`` keeps a default.

    Examples
    --------
    >>> make_learner("adam", None, max_iter=20, random_state=0)
    Adam(step=None, max_iter=20, tol=1e-05, averaging=True, decay=0.0, random_state=0, \
patience=10, checkpoint_every=10, beta1=0.9, beta2=0.999)
    """
    own, _ = learner_for(problem)
    objective = None if problem is None else problem.objective
    request = _Request(learner, objective, max_iter, tol, random_state)
    if _TABLE[own].is_fixed or learner is None:
        return _TABLE[own].make(request)
    if isinstance(learner, Learner):
        return learner
    if not isinstance(learner, str) or learner not in LEARNERS:
        raise InvalidInputError(
            f"learner must be None, an object or one of {LEARNERS}, got {shown(learner)}"
        )
    return _TABLE[learner].make(request)


def learner_for(problem: Problem | None) -> tuple[str, str]:
    """The name of the learner made for a problem; and why it is not that of the objective."""
    if problem is None:
        return "lbfgs", ""
    if problem.learner_name is not None:
        return problem.learner_name, ""
    general = "lbfgs" if problem.is_smooth else "adam"
    own = general if problem.objective is None else problem.objective.learner_name
    if own == "lbfgs":
        own = general
    if _TABLE[own].needs_labels and not problem.is_complete:
        return general, (
            f"labels are missing, so L-BFGS minimised the objective as its inference evaluates it "
            f"({own} needs complete labels)"
        )
    return own, ""


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
