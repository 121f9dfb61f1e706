"""What all estimators share: objective and learner from their options, fitted weights, files.

Estimators keep scikit-learn's rules: every option is an argument of ``__init__``, stored as given;
checks happen in ``fit``, and what was learned ends in an underscore.
"""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.io.model_file import write_model
from fieldfit.learner._base import Penalty, Validation
from fieldfit.learner.auto import make_learner
from fieldfit.learner.problem import Problem, one_blas_thread
from fieldfit.objective._base import Objective
from fieldfit.objective.auto import make_objective

__all__ = ["FieldEstimator"]

FloatArray = NDArray[np.float64]
Path = str | PathLike[str]


class FieldEstimator(BaseEstimator):  # type: ignore[misc]
    """Abstract base of the estimators.

    Subclasses have at least the options ``objective``, ``l2``, ``l1``, ``learner``, ``max_iter``,
    ``tol``, ``random_state``, ``n_jobs`` and ``verbose``, set ``_block_shapes`` in ``fit`` and call
    `_learn`.
    """

    objective: str | Objective
    l2: float
    l1: float
    learner: Any
    max_iter: int
    tol: float
    random_state: int | None
    n_jobs: int | None
    verbose: int

    weights_: FloatArray
    n_iter_: int
    converged_: bool
    status_: str
    trace_: list[dict[str, Any]]
    #: What a program that fits models wants to find again in their files (as JSON has it); the
    #: command line keeps here how it read its data.
    notes_: dict[str, Any]
    #: Whether an objective may have several sets of weights (for every sweep, for entropies).
    _takes_weight_sets = False
    #: Shapes of the blocks that `weights_` consists of, in their order.
    _block_shapes: dict[str, tuple[int, ...]]

    @property
    def weight_blocks_(self) -> dict[str, FloatArray]:
        """Views of `weights_` by the name of the block."""
        self._require_fit()
        views, start = {}, 0
        for name, shape in self._block_shapes.items():
            size = int(np.prod(shape, dtype=np.int64))
            views[name] = self.weights_[start : start + size].reshape(shape)
            start += size
        return views

    def save(self, path: Path) -> None:
        """Write the fitted model to one file, which `fieldfit.load` reads; never a pickle."""
        self._require_fit()
        metadata = {
            "n_iter": self.n_iter_,
            "converged": self.converged_,
            "status": self.status_,
            "trace": self.trace_,
            "block_shapes": [[name, list(shape)] for name, shape in self._block_shapes.items()],
            "notes": getattr(self, "notes_", {}),
            "model": self._model_metadata(),
        }
        arrays = {"weights": self.weights_, **self._model_arrays()}
        write_model(path, type(self).__name__, self.get_params(deep=False), metadata, arrays)

    def _restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Set what `save` wrote; called by `fieldfit.load`."""
        self.weights_ = arrays.pop("weights")
        self.n_iter_ = metadata["n_iter"]
        self.converged_ = metadata["converged"]
        self.status_ = metadata["status"]
        self.trace_ = metadata["trace"]
        self._block_shapes = {name: tuple(shape) for name, shape in metadata["block_shapes"]}
        self.notes_ = metadata["notes"]
        self._restore_model(metadata["model"], arrays)

    def _model_metadata(self) -> dict[str, Any]:
        """What a subclass needs to predict, as JSON (class names, vocabulary, ...)."""
        return {}

    def _model_arrays(self) -> dict[str, NDArray[Any]]:
        """The same, as arrays."""
        return {}

    def _restore_model(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Inverse of `_model_metadata` and `_model_arrays`."""

    def _objective(self) -> Objective:
        return make_objective(self.objective)

    def _check_options(self) -> None:
        """Refuse options that make no sense; called at the start of ``fit``."""
        for name in ("l2", "l1"):
            value = getattr(self, name)
            if not (np.isscalar(value) and np.isfinite(value) and value >= 0.0):  # type: ignore[operator]
                raise InvalidInputError(
                    f"{name} must be a finite number of at least 0, got {value!r}"
                )
        if not (isinstance(self.max_iter, (int, np.integer)) and self.max_iter >= 1):
            raise InvalidInputError(
                f"max_iter must be an integer of at least 1, got {self.max_iter!r}"
            )
        if not self.tol > 0.0:
            raise InvalidInputError(f"tol must be positive, got {self.tol!r}")

    def _learn(
        self,
        problem: Problem,
        start: FloatArray,
        *,
        checkpoint: Path | None = None,
        validation: Validation | None = None,
    ) -> None:
        """Minimise the problem and store what came out; warns of what did not converge."""
        objective = problem.objective
        if objective is not None and objective.n_weight_sets > 1 and not self._takes_weight_sets:
            raise InvalidInputError(
                f"objective must have one set of weights for {type(self).__name__}, "
                f"got {self.objective!r}"
            )
        learner = make_learner(
            self.learner,
            problem,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
        )
        # threads of the linear algebra library spin between the short sums of a learner, which
        # makes these twenty times slower and takes the processors away from ours
        with one_blas_thread():
            fit = learner.minimize(
                problem,
                start,
                penalty=Penalty(l2=self.l2, l1=self.l1),
                checkpoint=checkpoint,
                validation=validation,
                verbose=self.verbose,
            )
        self.weights_ = fit.weights
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        self.status_ = fit.status
        self.trace_ = fit.trace
        unconverged = fit.trace[-1]["unconverged"] if fit.trace else 0.0
        # a search for the best labelling that proves nothing is common, and no failure
        if not fit.converged or (problem.is_smooth and unconverged > 0.0):
            warnings.warn(f"{type(self).__name__}: {fit.status}", ConvergenceWarning, stacklevel=3)

    def _require_fit(self) -> None:
        if not hasattr(self, "weights_"):
            raise NotFittedError(f"this {type(self).__name__} must be fitted first; call fit")
