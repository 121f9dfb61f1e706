"""What other parts of the package need of a MAP search."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import ArrayLike

from fieldfit.core.batch import Batch
from fieldfit.core.potentials import Potentials
from fieldfit.core.result import MapResult
from fieldfit.errors import InvalidInputError

__all__ = ["MapOracle", "require_oracle"]


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


def require_oracle(oracle: Any) -> None:
    """Refuse what is no MAP search."""
    if oracle is not None and not hasattr(oracle, "run_batch"):
        raise InvalidInputError(
            f"oracle must be None or an object such as MaxProduct() or ExactMap(), got {oracle!r}"
        )
