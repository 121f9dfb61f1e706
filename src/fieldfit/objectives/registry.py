"""Table of objectives by name: what ``objective=`` of the estimators and of the command takes."""

from __future__ import annotations

from fieldfit._registry import OBJECTIVES
from fieldfit.errors import InvalidInputError
from fieldfit.objectives.base import Objective

__all__ = ["make_objective"]


def make_objective(objective: str | Objective) -> Objective:
    """The objective of a name, or the object itself.

    Examples
    --------
    >>> make_objective("trw").inference.entropy
    TreeReweighted(rho=None)
    """
    if isinstance(objective, Objective):
        return objective
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        names = ", ".join(repr(name) for name in OBJECTIVES)
        raise InvalidInputError(
            f"objective must be one of {names} or an object such as PseudoLikelihood(), "
            f"got {objective!r}"
        )
    made: Objective = OBJECTIVES[objective].make()
    return made
