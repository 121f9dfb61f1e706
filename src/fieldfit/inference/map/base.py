"""What all MAP searches have in common, and what other parts of the package need of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from numpy.typing import ArrayLike

from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.result import MapResult

__all__ = ["MapOracle", "MapSearch", "require_oracle"]


class MapOracle(Protocol):
    """A MAP search over the graphs of a batch."""

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """Labels of the union graph, or the beliefs of a relaxation, with an upper bound.

        ``scores`` and ``optimal_examples`` speak of each example.
        """
        ...


class MapSearch(ABC):
    """A MAP search whose single graphs are batches of one."""

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """A labelling of one graph that agrees with the evidence, and what is proved about it."""
        return self.run_batch(Batch.of([graph]), potentials, observed)

    @abstractmethod
    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""


def require_oracle(oracle: Any) -> None:
    """Refuse what is no MAP search."""
    if oracle is not None and not hasattr(oracle, "run_batch"):
        raise InvalidInputError(
            f"oracle must be None or an object such as MaxProduct() or ExactMap(), got {oracle!r}"
        )
