"""Base class of the scikit-learn estimators: options, ``fit``, fitted weights, model files.

Data become a problem (`fieldfit.models.dispatch`), a learner minimises it with the penalty,

    weights_ = argmin over w of  sum over examples of objective(w) + l2/2 |w|^2 + l1 |w|_1,

and what came out is stored here, once for all estimators.  Estimators keep scikit-learn's rules:
every option is an argument of ``__init__``, stored as given;
checks happen in ``fit``, and what was learned ends in an underscore.

Defaults are the same everywhere (``l1=0``, ``max_iter=200``, ``tol=1e-5``, ``random_state=0``) but
where a model has a reason of its own, which stands beside it in its ``__init__``; ``l2`` depends on
what weights multiply.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fieldfit._arrays import plain_array, real_numbers
from fieldfit._parallel import one_blas_thread, require_jobs
from fieldfit._random_state import require_random_state
from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import (
    require_integer,
    require_number,
    require_output,
    require_verbose,
    shown,
)
from fieldfit.errors import ConvergenceWarning, FileFormatError, InvalidInputError, Place
from fieldfit.io.model_file import write_model
from fieldfit.io.stored import Stored
from fieldfit.learners.base import Learner, Penalty, Validation, checked_start
from fieldfit.learners.problem import Problem
from fieldfit.learners.registry import learner_for, make_learner
from fieldfit.models.weight_names import data_frame
from fieldfit.objectives.base import Objective
from fieldfit.objectives.registry import make_objective
from fieldfit.report.kinds.base import Request
from fieldfit.report.notebook_views import fit_view
from fieldfit.report.report_page import write_report

__all__ = [
    "FieldEstimator",
    "about_validation",
    "accuracy",
    "are_log_probabilities",
    "checked_labels",
    "count_labels",
    "example_weights",
    "held_out_pair",
    "require_features",
    "require_list",
    "require_no_gaps",
    "require_pairs",
    "with_clauses",
]

Path = str | PathLike[str]


class FieldEstimator(BaseEstimator):  # type: ignore[misc]
    """Abstract base of the estimators.

    Subclasses have at least the options ``objective``, ``l2``, ``l1``, ``learner``, ``max_iter``,
    ``tol``, ``random_state``, ``n_jobs`` and ``verbose``, set ``_block_shapes`` in ``fit`` and call
    `_learn`.
    """

    objective: str | Objective
    l2: Any
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
    #: Whether graphs of a shard are its own, so that what was made of them is worth keeping.
    _has_own_graphs = False
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

    def top_weights(self, n: int = 20) -> list[tuple[float, str]]:
        """The ``n`` weights that are largest in size, each with what it belongs to.

        >>> import fieldfit as ff
        >>> X = [[{"word": "the"}, {"word": "dog"}]]
        >>> for weight, what in ff.ChainCRF(l2=0.1).fit(X, [["DET", "NOUN"]]).top_weights(3):
        ...     print(f"{weight:.2f} {what}")
        1.60 DET -> NOUN
        0.93 word:dog / NOUN
        0.93 word:the / DET
        """
        self._require_fit()
        require_integer("n", n, at_least=0)
        name = self._weight_namer()
        order = np.argsort(-np.abs(self.weights_), kind="stable")[:n]
        return [(float(self.weights_[k]), name(int(k))) for k in order]

    def weights_frame(self) -> Any:
        """All weights as a pandas data frame: columns ``block``, ``name`` and ``weight``.

        Names are those of `top_weights`.  An `IsingModel` adds ``standard_error``, if it has them.
        Needs pandas.
        """
        self._require_fit()
        name = self._weight_namer()
        sizes = [math.prod(shape) for shape in self._block_shapes.values()]
        columns: dict[str, Any] = {
            "block": np.repeat(np.array(list(self._block_shapes), dtype=object), sizes),
            "name": [name(position) for position in range(len(self.weights_))],
            "weight": self.weights_.copy(),
        }
        return data_frame(columns | self._further_columns())

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

    def report(
        self,
        path: Path,
        X: Any = None,
        Y: Any = None,
        *,
        n_examples: int = 4,
        label_names: Sequence[Any] | None = None,
        feature_names: Sequence[Any] | None = None,
    ) -> None:
        """Write a report of the fit: one HTML page that needs no network.

        It shows how the fit ended, the learning curve, weights by block, options, versions and how
        to make it again; with data also predictions beside the truth, calibration, confusions and,
        where the model has them, bounds on the likelihood.

        Parameters
        ----------
        path
            Of the HTML file.
        X, Y
            Data to show the model on, as `fit` takes them (the estimator keeps none), best such
            that it was not fitted on; samples have no ``Y``.
        n_examples
            Examples that are shown one by one.
        label_names, feature_names
            What labels that are numbers, and features or variables, are called on the page.
        """
        self._require_fit()
        write_report(path, Request(self, X, Y, n_examples, label_names, feature_names))

    def _repr_html_inner(self) -> str:
        """For notebooks: scikit-learn's table of options and, after a fit, how it ended."""
        shown: str = super()._repr_html_inner()
        return shown + fit_view(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += fit_view(self)
        return bundle

    def _restore(self, stored: Stored) -> None:
        """Set what `save` wrote; called by `fieldfit.load`."""
        self._check_options()
        self._objective()  # refuses what is none
        self.n_iter_ = stored.integer("n_iter", 0)
        self.converged_ = stored.flag("converged")
        self.status_ = stored.text("status")
        self.trace_ = stored.items("trace", dict)
        self.notes_ = stored.mapping("notes")
        self._block_shapes = _restored_shapes(stored)
        n_weights = sum(math.prod(shape) for shape in self._block_shapes.values())
        self.weights_ = stored.array("weights", (n_weights,))
        self._restore_model(Stored(stored.arrays, stored.mapping("model")))
        expected = self._shapes_of_model()
        if self._block_shapes != expected:
            raise FileFormatError(
                f"expected 'block_shapes' {shown(expected)}, found {shown(self._block_shapes)}"
            )

    def _model_metadata(self) -> dict[str, Any]:
        """What a subclass needs to predict, as JSON (class names, vocabulary, ...)."""
        return {}

    def _model_arrays(self) -> dict[str, NDArray[Any]]:
        """The same, as arrays."""
        return {}

    def _restore_model(self, stored: Stored) -> None:
        """Inverse of `_model_metadata` and `_model_arrays`; `weights_` are there already."""

    def _shapes_of_model(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the blocks of weights, from all that is known of the model but its weights."""
        raise NotImplementedError

    def _weight_namer(self) -> Callable[[int], str]:
        """A function from the position of a weight to what it belongs to, in words."""
        raise NotImplementedError

    def _further_columns(self) -> dict[str, Any]:
        """What else `weights_frame` says about each weight."""
        return {}

    def _objective(self) -> Objective:
        return make_objective(self.objective)

    def _check_options(self) -> None:
        """Refuse options that make no sense; called at the start of ``fit``."""
        self._check_l2()
        require_number("l1", self.l1, at_least=0)
        require_integer("max_iter", self.max_iter, at_least=1)
        require_number("tol", self.tol, above=0)
        require_random_state(self.random_state)
        require_jobs(self.n_jobs)
        require_verbose(self.verbose)

    def _check_l2(self) -> None:
        require_number("l2", self.l2, at_least=0)

    def _reset_fit(self) -> None:
        """Drop what an earlier fit has left, so that a fit that fails leaves no mixture."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _learn(
        self,
        problem: Problem,
        start: ArrayLike | None,
        *,
        default_start: FloatArray | None = None,
        checkpoint: Path | None = None,
        validation: Validation | None = None,
        l2: float | FloatArray | None = None,
        clauses: Sequence[str] = (),
    ) -> None:
        """Minimise the problem and store what came out; warns of what did not converge.

        ``start`` is what the user gave, ``default_start`` where to begin otherwise (zeros); ``l2``
        the penalty, where it is not the option of that name; ``clauses`` are added to the status.
        """
        if checkpoint is not None:
            require_output("checkpoint", checkpoint)
        given = default_start if start is None else real_numbers("start", start)
        first = checked_start(problem.first_weights(given), problem.n_weights)
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
                first,
                penalty=Penalty(l2=self.l2 if l2 is None else l2, l1=self.l1),
                checkpoint=checkpoint,
                validation=validation,
                verbose=self.verbose,
            )
        self.weights_ = fit.weights
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        said = [*clauses, *self._clauses(problem, learner, start)]
        if not fit.converged and objective is not None and objective.advice:
            said.append(objective.advice)
        self.status_ = with_clauses(fit.status, said)
        self.trace_ = fit.trace
        unconverged = fit.trace[-1]["unconverged"] if fit.trace else 0.0
        # a search for the best labelling that proves nothing is common, and no failure
        if not fit.converged or (problem.is_smooth and unconverged > 0.0):
            warnings.warn(
                f"{type(self).__name__}: {self.status_}", ConvergenceWarning, stacklevel=3
            )

    def _clauses(self, problem: Problem, learner: Learner, start: Any) -> list[str]:
        """What the status adds: where a general method took the place of a special one."""
        clauses = list(problem.notes)
        if self.learner is None:
            clauses.append(learner_for(problem)[1])
        if start is not None and not learner.uses_start:
            clauses.append(f"start was not used, because {type(learner).__name__} needs none")
        return [clause for clause in clauses if clause]

    def _validation(self, objective: Objective, given: Any) -> Validation | None:
        """The score of held-out data as a function of the weights; ``None`` without such data."""
        if given is None:
            return None
        with about_validation():
            return self._held_out(objective, given)

    def _held_out(self, objective: Objective, given: Any) -> Validation:
        """What subclasses whose ``fit`` takes ``validation`` make of it."""
        raise NotImplementedError

    def _warn(self, n_unconverged: int, count: int) -> None:
        """Warn of examples without converged beliefs; for public methods to call."""
        if n_unconverged:
            warnings.warn(
                f"{type(self).__name__}: the inference of {n_unconverged} of {count} examples did "
                "not converge; their beliefs are the last ones reached",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _for_workers(self) -> Any:
        """A copy that is not fitted, with all that makes problems of shards."""
        return type(self)(**self.get_params(deep=False))

    def _require_fit(self) -> None:
        if not hasattr(self, "weights_"):
            raise NotFittedError(f"this {type(self).__name__} must be fitted first; call fit")


def _restored_shapes(stored: Stored) -> dict[str, tuple[int, ...]]:
    """Names and shapes of blocks, as `FieldEstimator.save` lists them."""
    shapes = {}
    for entry in stored.items("block_shapes", list):
        pair = Stored({}, {"name": entry[:1], "shape": entry[1] if len(entry) == 2 else None})
        (name,) = pair.items("name", str, length=1)
        shape = tuple(pair.items("shape", int))
        if min(shape, default=0) < 0:
            raise FileFormatError(f"expected 'block_shapes' of at least 0, found {shown(entry)}")
        shapes[name] = shape
    return shapes


def with_clauses(status: str, clauses: list[str]) -> str:
    """A status with more to say."""
    return "; ".join([status.removesuffix("."), *clauses]) + "."


# -- Checks of what users hand to the estimators: one sentence that names the example ------


@contextmanager
def about_validation() -> Iterator[None]:
    """What is wrong inside is said of the examples that were given for validation."""
    try:
        yield
    except InvalidInputError as error:
        if error.place is None:
            prefix = "" if error.requirement.startswith("validation") else "validation: "
            raise InvalidInputError(f"{prefix}{error.requirement}") from None
        place = replace(error.place, is_validation=True)
        raise InvalidInputError(error.requirement, place) from None


def held_out_pair(given: Any) -> tuple[Any, Any]:
    """``validation`` of a conditional model."""
    if not (isinstance(given, (tuple, list)) and len(given) == 2):
        raise InvalidInputError("validation must be a pair (X, Y) of held-out examples")
    return given[0], given[1]


def require_list(name: str, given: Any) -> None:
    """Refuse what is no list or array of examples."""
    if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__len__"):
        raise InvalidInputError(
            f"must be a list of examples, got {type(given).__name__} {given!r:.40}", Place(name)
        )


def require_pairs(X: Any, Y: Any) -> None:
    """Refuse examples and labels that do not belong together, and empty lists."""
    require_list("X", X)
    require_list("Y", Y)
    if len(X) == 0:
        raise InvalidInputError("must hold at least one example, got an empty list", Place("X"))
    if len(X) != len(Y):
        raise InvalidInputError(
            f"X and Y must have one entry for each example, got {len(X)} and {len(Y)}"
        )


def are_log_probabilities(features: Any) -> bool:
    """Whether each row holds the logarithms of probabilities, as a classifier gives them."""
    if hasattr(features, "tocsr") or not np.isfinite(features).all():
        return False
    # a classifier's probabilities may have been cut off from below
    return bool(
        (features <= 1e-9).all() and np.allclose(np.exp(features).sum(axis=1), 1, atol=1e-2)
    )


def require_features(place: Place, features: Any, n_features: int) -> None:
    """Refuse features that are not finite, or not as many as in the first example of the fit."""
    values = features.data if hasattr(features, "tocsr") else features
    if not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise InvalidInputError(f"features must be finite, got {bad}", place)
    if features.shape[1] != n_features:
        raise InvalidInputError(
            f"there must be {n_features} features as in the first example of the fit, "
            f"got {features.shape[1]}",
            place,
        )


def checked_labels(
    place: Place,
    given: Any,
    shape: tuple[int, ...],
    n_labels: int | None,
    ignore_label: int | None = None,
) -> LabelArray:
    """Integer labels of a given shape, flat; ``-1`` is missing, and so is ``ignore_label``.

    ``n_labels=None``: any number of labels.
    """
    array = plain_array("", given, place)
    if array.shape != shape:
        raise InvalidInputError(f"must have shape {shape} as its example, got {array.shape}", place)
    if array.dtype.kind not in "iub":
        raise InvalidInputError(f"must hold integer labels, got dtype {array.dtype}", place)
    array = array.reshape(-1).astype(np.uint64 if array.dtype.kind == "u" else np.int64)
    if ignore_label is not None:
        array = np.where(array == ignore_label, -1, array.astype(np.int64))
    lowest, largest = int(array.min(initial=0)), int(array.max(initial=0))
    if lowest < -1:
        raise InvalidInputError(f"labels must be at least -1 (missing), got {lowest}", place)
    if largest >= (MAX_LABEL if n_labels is None else n_labels):
        allowed = f"in 0..{n_labels - 1}" if n_labels is not None else f"below {MAX_LABEL}"
        raise InvalidInputError(f"labels must be {allowed}, got {largest}", place)
    return array.astype(np.int32)


#: Labels are 32-bit.
MAX_LABEL = 2**31 - 1


def count_labels(labels: Sequence[LabelArray], n_labels: int | None) -> int:
    """How many labels there are: as many as is said, or as many as were seen."""
    if n_labels is not None:
        require_integer("n_labels", n_labels, at_least=2)
        for index, given in enumerate(labels):
            largest = int(given.max(initial=-1))
            if largest >= n_labels:
                raise InvalidInputError(
                    f"labels must be in 0..{n_labels - 1} (n_labels), got {largest}",
                    Place("Y", index),
                )
        return int(n_labels)
    seen = np.unique(np.concatenate([np.unique(given) for given in labels]))
    seen = seen[seen >= 0]
    if len(seen) < 2:
        found = f"only label {seen[0]}" if len(seen) else "no label at all"
        raise InvalidInputError(
            f"must hold at least two different labels over all {len(labels)} examples, "
            f"got {found}; n_labels=2 or more states the number of labels",
            Place("Y"),
        )
    largest = int(seen[-1])
    require_no_gaps(seen, "Y", f"-1 or ignore_label={largest} counts it as missing, ")
    return largest + 1


def require_no_gaps(seen: NDArray[Any], argument: str, remedy: str = "") -> None:
    """Refuse labels with gaps: a void label of 255 would ask for 256 labels, a scale 1..5 for six.

    ``seen`` are the labels that occur, ascending.
    """
    largest = int(seen[-1])
    if largest >= len(seen):
        gap = int(np.argmax(seen != np.arange(len(seen))))
        raise InvalidInputError(
            f"must hold labels 0..K-1 without gaps, got {largest} and no {gap}: {remedy}"
            f"np.unique({argument}, return_inverse=True) renumbers labels, and n_labels="
            f"{largest + 1} says that labels may be absent",
            Place(argument),
        )


def example_weights(given: ArrayLike | None, count: int) -> FloatArray | None:
    """``sample_weight``: one finite number of at least 0 for each example."""
    if given is None:
        return None
    weights = real_numbers("sample_weight", given)
    if weights.shape != (count,):
        raise InvalidInputError(
            f"sample_weight must have shape ({count},), one number for each example, "
            f"got {weights.shape}"
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InvalidInputError(
            f"sample_weight[{bad[0]}] must be a finite number of at least 0, got {weights[bad[0]]}"
        )
    if not weights.any():
        raise InvalidInputError("sample_weight must not be 0 for every example, got only zeros")
    return weights


def accuracy(labels: Sequence[LabelArray], found: Sequence[LabelArray]) -> float:
    """Share of the labels that were found, of those that are not missing (-1).

    A label below -1 is one that the model does not know: never predicted, so always an error.
    """
    truth, guess = np.concatenate(labels), np.concatenate(found)
    known = truth != -1
    if not known.any():
        raise InvalidInputError(
            "must hold at least one label to score against, got none", Place("Y")
        )
    return float(np.mean(truth[known] == guess[known]))
