"""Which problem an objective becomes for a family of models: one table for all estimators.

    (family of models, kind of objective)  ->  problem  ->  learner

A family has problems made for some kinds of objectives (`Objective.problem_kind`): exact chains
have forward-backward kernels, samples of one model share its log-partition, and so on.  What no
special problem serves takes the general one of the family, if it has one, and the status of the fit
says so in a clause (`Problem.notes`); otherwise the objective is refused.  The learner then follows
from the problem (`fieldfit.learners.registry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from fieldfit._registry import OBJECTIVES_OF
from fieldfit.errors import InvalidInputError
from fieldfit.learners.problem import Problem
from fieldfit.objectives.base import Objective

__all__ = ["FAMILIES", "Family", "NotApplicable", "make_problem"]


@dataclass(frozen=True)
class NotApplicable:
    """What a special builder returns where it does not serve an objective, with the reason."""

    reason: str


@dataclass(frozen=True)
class Family:
    """Builders of a family's problems, as ``"module:function"`` so that none is loaded in vain.

    A builder takes the objective and the family's data, and gives a `Problem` or `NotApplicable`.

    Attributes
    ----------
    data
        What the models of the family learn from, for error messages.
    special
        Builders by kind of objective.
    general
        The builder for all other objectives; ``None``: they are refused.
    notes
        Clauses for kinds of objectives that have a special method elsewhere, and not here.
    works
        Names of the objectives that the family takes, if it does not take all.
    """

    data: str
    special: Mapping[str, str] = field(default_factory=dict)
    general: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    works: tuple[str, ...] = ()


_SURROGATE = {
    "moments": "the closed form of moment matching is for samples of one model, so its surrogate "
    "likelihood was minimised"
}
_PAIRWISE = "fieldfit.models.pairwise"
_MATCHING = "fieldfit.models.matching_problems"

#: `GridCRF`, `GraphCRF` and `SkipChainCRF` are "graphs", `ChainCRF` is "chains"; `IsingModel`,
#: `PottsModel` and `MixtureField` are "samples", `MatchingCRF` is "matchings".
FAMILIES = {
    "graphs": Family(
        data="graphs", general="fieldfit.models.parts:graph_problem", notes=_SURROGATE
    ),
    "chains": Family(
        data="chains",
        special={"likelihood": "fieldfit.models.chain.chain_problem:exact_chain_problem"},
        general="fieldfit.models.chain.chain_problem:chain_graph_problem",
        notes=_SURROGATE,
    ),
    "samples": Family(
        data="samples of one model",
        special={
            "likelihood": f"{_PAIRWISE}.pairwise_problems:likelihood_problem",
            "camel": f"{_PAIRWISE}.pairwise_problems:likelihood_problem",
            "dual": f"{_PAIRWISE}.pairwise_problems:dual_problem",
            "moments": f"{_PAIRWISE}.pairwise_problems:moment_matching_problem",
            "pseudolikelihood": f"{_PAIRWISE}.pairwise_problems:pseudo_likelihood_problem",
            "chains": f"{_PAIRWISE}.sample_chains:gibbs_chains_problem",
        },
        general=f"{_PAIRWISE}.pairwise_problems:replicated_problem",
    ),
    "matchings": Family(
        data="matchings",
        special={
            "dual": f"{_MATCHING}:dual_matching_problem",
            "independent": f"{_MATCHING}:independent_matching_problem",
            "likelihood": f"{_MATCHING}:exact_matching_problem",
            "margin": f"{_MATCHING}:matching_hinge_problem",
        },
        works=OBJECTIVES_OF["matching"],
    ),
}


def make_problem(family: str, objective: Objective, data: Any) -> Problem:
    """What a learner minimises for this objective; refuses what the family cannot learn by."""
    given = FAMILIES[family]
    notes = [given.notes[objective.problem_kind]] if objective.problem_kind in given.notes else []
    if objective.problem_kind in given.special:
        found = _call(given.special[objective.problem_kind], objective, data)
        if isinstance(found, Problem):
            return found
        notes.append(found.reason)
    if given.general is None:
        works = " or ".join([", ".join(map(repr, given.works[:-1])), repr(given.works[-1])])
        reason = f" ({notes[-1]})" if notes else ""
        raise InvalidInputError(
            f"objective must be {works} for {given.data}, got {objective!r}{reason}"
        )
    problem = _call(given.general, objective, data)
    assert isinstance(problem, Problem)
    problem.notes = (*notes, *problem.notes)
    return problem


def _call(builder: str, objective: Objective, data: Any) -> Problem | NotApplicable:
    module, name = builder.split(":")
    found: Problem | NotApplicable = getattr(import_module(module), name)(objective, data)
    return found
