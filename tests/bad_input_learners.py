"""Learners and their problems (see `bad_input.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from bad_input import BATCH, GRAPH, Entry, entry_of
from learning import Logistic

import fieldfit as ff
from fieldfit._registry import PUBLIC, find
from fieldfit.learners.base import Learner
from fieldfit.learners.closed_form import SolvedProblem


class _Solved(SolvedProblem):
    """A problem with a known solution."""

    n_weights, n_parts = 12, 1

    def evaluate(self, weights: Any) -> Any:
        raise NotImplementedError

    def evaluate_part(self, weights: Any, part: int) -> Any:
        raise NotImplementedError

    def solution(self) -> Any:
        return np.zeros(12), "known"


def _problem() -> Any:
    template = find("Template")(GRAPH, [find("Block").unary(GRAPH)])
    part = find("Part")(BATCH, template, np.array([0, 1, 1], dtype=np.int32))
    return find("TemplateProblem")(ff.PseudoLikelihood(), [part])


def _task(name: str) -> dict[str, Any]:
    """A problem that a learner can work on."""
    penalty = find("Penalty")(l2=0.1)
    if name == "ClosedForm":
        return {"problem": _Solved(), "start": np.zeros(12)}
    if name in ("CamelRounds", "DualFrankWolfe"):
        return {"problem": _problem(), "start": np.zeros(2), "penalty": penalty}
    return {"problem": Logistic(), "start": np.zeros(12), "penalty": penalty}


def entries() -> Iterator[Entry]:
    """All of them."""
    for name, entry in PUBLIC.items():
        found = entry.load() if entry.stored else object
        if issubclass(found, Learner):
            # a closed form has no iterations, so that start and checkpoint are not used
            unused = ("start", "checkpoint") if name == "ClosedForm" else ()
            yield entry_of(f"{name}.minimize", found().minimize, _task(name), *unused)
    yield entry_of("Penalty", find("Penalty"))
    yield entry_of("time_limit", find("time_limit"), {"seconds": 1.0})
    problem = _problem()
    parts = {"objective": ff.PseudoLikelihood(), "parts": list(problem.parts)}
    yield entry_of("TemplateProblem", find("TemplateProblem"), parts)
    weights = {"weights": np.zeros(2)}
    yield entry_of("TemplateProblem.evaluate", problem.evaluate, weights)
    yield entry_of("TemplateProblem.evaluate_part", problem.evaluate_part, {**weights, "part": 0})
