"""Options of models of matchings: the entropy, numbers of partners, and what they ask for."""

from __future__ import annotations

from typing import Any

import numpy as np

from fieldfit.core.entropy import Bethe, TreeReweighted
from fieldfit.core.matching_polytope import Kind, require_rho
from fieldfit.errors import InvalidInputError
from fieldfit.estimators._matching_problems import (
    ExactMatchings,
    MatchingExample,
    MatchingHinge,
    MatchingProblem,
)
from fieldfit.inference.exact import Exact
from fieldfit.objective._base import Objective
from fieldfit.objective.likelihood import Likelihood
from fieldfit.objective.max_margin import MaxMargin
from fieldfit.objective.mle_struct import MLEStruct
from fieldfit.objective.perceptron import Perceptron

__all__ = ["matching_problem", "node_counting_number", "require_capacity", "require_kind"]


def require_kind(kind: Any) -> None:
    """Refuse what is no kind of graph."""
    if kind not in ("bipartite", "general"):
        raise InvalidInputError(f"kind must be 'bipartite' or 'general', got {kind!r}")


def require_capacity(capacity: Any, kind: Kind) -> None:
    """Refuse numbers of partners that are none, or that the kind of graph does not know."""
    if capacity is None:
        return
    pair = capacity if isinstance(capacity, (tuple, list)) else [capacity]
    is_number = [isinstance(one, (int, np.integer)) and one >= 1 for one in pair]
    if not all(is_number) or len(pair) not in (1, 2):
        raise InvalidInputError(
            f"capacity must be an integer of at least 1 or a pair of them, got {capacity!r}"
        )
    if kind == "general":
        raise InvalidInputError(f"capacity must be None for kind='general', got {capacity!r}")


def node_counting_number(rho: Any, objective: str | Objective, has_capacities: bool) -> float:
    """From the option ``rho``, or from the entropy of the objective."""
    if has_capacities:
        if rho not in (None, 0):
            raise InvalidInputError(
                f"rho must be None or 0 with capacities (independent edges), got {rho!r}"
            )
        return 0.0
    if rho is not None:
        return require_rho(rho)
    if not isinstance(objective, MLEStruct) or isinstance(objective.entropy, Bethe):
        return 1.0
    if isinstance(objective.entropy, TreeReweighted):
        given = objective.entropy.rho
        if given is None:
            return 0.5
        if np.isscalar(given) and not isinstance(given, str):
            return require_rho(float(given))  # type: ignore[arg-type]
    raise InvalidInputError(
        "objective must have the entropy Bethe() or TreeReweighted(rho=NUMBER) for matchings, "
        f"got {objective.entropy!r}"
    )


def matching_problem(
    objective: Objective, examples: list[MatchingExample], rho: float, n_jobs: int | None
) -> MatchingProblem:
    """What a learner makes small."""
    if isinstance(objective, MLEStruct):
        return MatchingProblem(objective, examples, rho, n_jobs)
    if isinstance(objective, Likelihood) and isinstance(objective.inference, Exact):
        if examples[0].polytope.capacities is not None:
            raise InvalidInputError(
                "objective must not be 'likelihood' with capacities, which has no exact sums"
            )
        return ExactMatchings(objective, examples, rho, n_jobs)
    if isinstance(objective, (MaxMargin, Perceptron)):
        margin = 1.0 if isinstance(objective, MaxMargin) else 0.0
        return MatchingHinge(objective, examples, rho, n_jobs, margin)
    raise InvalidInputError(
        "objective must be 'mle-struct', 'likelihood', 'max-margin' or 'perceptron' for "
        f"matchings, got {objective!r}"
    )
