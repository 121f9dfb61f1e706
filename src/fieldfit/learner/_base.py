"""What every learner is: a problem and a starting point in, weights and their history out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.learner.problem import Problem

__all__ = ["Fit", "Learner", "Penalty", "Validation"]

FloatArray = NDArray[np.float64]
#: Score of some weights on held-out data; larger is better.
Validation = Callable[[FloatArray], float]


@dataclass(frozen=True)
class Penalty:
    """``l2/2 |w|^2 + l1 |w|_1``; a prior of variance ``1/l2`` and one of scale ``1/l1``.

    Either may be an array with one value for each weight.
    """

    l2: float | FloatArray = 0.0
    l1: float | FloatArray = 0.0


@dataclass(frozen=True)
class Fit:
    """What a learner returns.

    ``trace`` has one dictionary for each iteration: ``"objective"`` (with the penalty; ``None`` if
    there is no value), ``"gradient_norm"``, ``"unconverged"`` (share of examples whose inference
    did not converge), ``"seconds"`` (since the start, over all resumed runs), and ``"validation"``
    where a validation score was computed.
    """

    weights: FloatArray
    n_iter: int
    converged: bool
    status: str
    trace: list[dict[str, Any]] = field(default_factory=list)


class Learner(ABC):
    """Moves weights until a problem is solved; subclasses are frozen dataclasses of options."""

    @abstractmethod
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
        """Minimise ``problem`` plus ``penalty`` from ``start``.

        ``checkpoint`` names a file that is written now and then, and resumed from if it exists;
        ``validation`` is called after every iteration and can end the run early; ``verbose=1``
        shows a progress bar.
        """
