"""L-BFGS, and its form for the L1 penalty, OWL-QN.

The direction is ``-H g`` with the inverse Hessian ``H`` of the last steps (`_pairs.py`), the step
comes from a search along it (`_line_search.py`).  With ``l1 > 0`` the objective has corners where a
weight is zero, and three things change (Andrew and Gao, "Scalable training of L1-regularized
log-linear models", ICML 2007): the gradient is replaced by the pseudo-gradient, the one-sided
derivative in the direction of steepest descent; the direction keeps only entries that go downhill;
and the step ends at the border of the orthant of the current weights, so that weights become
exactly zero.  Curvature is that of the smooth part in both cases.

This is an implementation of its own, and not that of SciPy, because its whole state can be written
to a checkpoint, because values may agree only to the tolerance of an iterative inference, and
because OWL-QN needs both of these and the same memory of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError
from fieldfit.learner._base import Fit, Learner, Penalty, Validation
from fieldfit.learner._descent import Descent
from fieldfit.learner._penalised import PenalisedProblem
from fieldfit.learner._run import Run, require_integer, require_options
from fieldfit.learner.problem import Problem

__all__ = ["LBFGS"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class LBFGS(Learner):
    """Quasi-Newton with limited memory, for smooth objectives; OWL-QN if ``l1 > 0``.

    It stops when the Euclidean norm of the gradient, per example or relative to the weights, is
    small, ``|g| <= tol * max(n_examples, |w|)``, or when the objective fell by no more than
    ``value_tol`` of itself in 5 iterations.

    Parameters
    ----------
    max_iter
        Largest number of iterations; nearly always one evaluation each.
    tol
        See above.
    history
        Steps that are remembered; the memory is ``2 * history`` weight vectors.
    value_tol
        See above; ``None`` is ``tol ** 2``, because near the optimum the objective's error is
        quadratic in the gradient.
    patience
        With ``validation``: iterations without a better score after which the run ends.
    checkpoint_every
        With ``checkpoint``: iterations between two writings.  Each one drops the warm starts of
        the inference.

    Examples
    --------
    >>> from fieldfit.learner.problem import Assessment, Problem
    >>> class Parabola(Problem):
    ...     n_weights, n_parts = 2, 1
    ...     def assess(self, weights):
    ...         away = weights - [1.0, 2.0]
    ...         return Assessment(0.5 * float(away @ away), away, 0, 1)
    ...     def assess_part(self, weights, part):
    ...         return self.assess(weights)
    >>> LBFGS().minimize(Parabola(), np.zeros(2), penalty=Penalty(l1=1.5)).weights
    array([0. , 0.5])
    """

    max_iter: int = 200
    tol: float = 1e-5
    history: int = 10
    value_tol: float | None = None
    patience: int = 10
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        require_options(self)
        require_integer("history", self.history, 1)
        for name in ("tol", "value_tol"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InvalidInputError(f"{name} must be at least 0, got {value!r}")

    def _method(self, problem: PenalisedProblem) -> Descent:
        value_tol = self.tol**2 if self.value_tol is None else self.value_tol
        return Descent(problem, self.history, self.tol, value_tol)

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
        """Minimise ``problem`` plus ``penalty`` from ``start``; see `Learner.minimize`."""
        run = Run(
            self,
            self._method(PenalisedProblem(problem, penalty)),
            problem,
            penalty=penalty,
            checkpoint=checkpoint,
            validation=validation,
            verbose=verbose,
        )
        return run.fit(start)
