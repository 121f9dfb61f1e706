"""Closed-form estimates behind the interface of the iterative learners.

Some problems have a known minimum (moment matching of untied tables).  Such a problem is a
`SolvedProblem`; `ClosedForm` asks it for the solution, so that estimators treat it like any other.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from os import PathLike
from typing import ClassVar

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit._validation import require_instance
from fieldfit.learners.base import Fit, Learner, Penalty, Validation, require_task
from fieldfit.learners.problem import Problem

__all__ = ["ClosedForm", "SolvedProblem"]


class SolvedProblem(Problem):
    """Abstract: a problem that knows its minimum (without a penalty)."""

    learner_name = "closed-form"

    @abstractmethod
    def solution(self) -> tuple[FloatArray, str]:
        """The weights, and in what sense they are the solution."""


@dataclass(frozen=True)
class ClosedForm(Learner):
    """Takes the solution that the problem knows; there are no iterations and no penalty."""

    uses_start: ClassVar[bool] = False

    def minimize(
        self,
        problem: Problem,
        start: FloatArray,
        *,
        penalty: Penalty = Penalty(),  # noqa: B008  (frozen)
        checkpoint: str | PathLike[str] | None = None,
        validation: Validation | None = None,
        verbose: int = 0,
    ) -> Fit:
        """The solution of a `SolvedProblem`; what concerns iterations is not used."""
        require_task(problem, penalty, validation, verbose)
        require_instance("problem", problem, SolvedProblem, "a problem with a closed form")
        assert isinstance(problem, SolvedProblem)
        weights, how = problem.solution()
        status = f"closed form: {how}"
        if np.any(np.asarray(penalty.l2) != 0.0) or np.any(np.asarray(penalty.l1) != 0.0):
            status += "; the penalty is not part of it"
        return Fit(weights, 0, True, status + ".", [])
