"""The report of each kind of model, by the name of its estimator."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fieldfit.report.kinds.base import KindReport

__all__ = ["KINDS", "report_kind"]

#: Estimator -> module and class; classes that derive from an estimator have its report.
KINDS = {
    "ChainCRF": "sequence_report:SequenceReport",
    "GridCRF": "picture_report:PictureReport",
    "GraphCRF": "graph_report:GraphReport",
    "IsingModel": "network_report:NetworkReport",
    "PottsModel": "potts_report:PottsReport",
    "MatchingCRF": "matching_report:MatchingReport",
    "MixtureField": "mixture_report:MixtureReport",
}


def report_kind(estimator: Any) -> type[KindReport]:
    """The class that makes the report of an estimator; the general one where none is listed."""
    for cls in type(estimator).__mro__:
        if cls.__name__ in KINDS:
            module, name = KINDS[cls.__name__].split(":")
            found: type[KindReport] = getattr(
                import_module(f"fieldfit.report.kinds.{module}"), name
            )
            return found
    return KindReport
