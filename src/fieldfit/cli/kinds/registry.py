"""The kinds of models that the learning commands know, by name and by estimator."""

from __future__ import annotations

from typing import Any

from fieldfit.cli.kinds.base import Kind
from fieldfit.cli.kinds.field_kinds import GraphKind, GridKind
from fieldfit.cli.kinds.matching_kind import MatchingKind
from fieldfit.cli.kinds.sample_kinds import IsingKind, PottsKind
from fieldfit.cli.kinds.sequence_kinds import ChainKind, SkipChainKind

__all__ = ["KINDS", "load_model"]

#: In the order of ``--help``.
KINDS: tuple[Kind, ...] = (
    ChainKind(),
    SkipChainKind(),
    GridKind(),
    GraphKind(),
    IsingKind(),
    PottsKind(),
    MatchingKind(),
)


def load_model(path: str) -> tuple[Kind, Any]:
    """A fitted model and its kind; refuses files and kinds that the commands do not know."""
    from fieldfit.errors import InvalidInputError
    from fieldfit.models.loading import load

    model = load(path)
    name = type(model).__name__
    for kind in KINDS:
        if kind.estimator == name:
            return kind, model
    raise InvalidInputError(
        f"{path}: expected a model of {', '.join(kind.estimator for kind in KINDS)}, found {name}, "
        "which the command line does not know"
    )
