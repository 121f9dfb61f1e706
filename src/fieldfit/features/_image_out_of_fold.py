"""Log-probabilities of a classifier, for training data by classifiers that have not seen them.

A classifier is surer of what it was trained on than of anything else.  A random field that takes
its probabilities for features would learn to trust them too much, and its edges would be worth
nothing.  So the training data are cut into folds, by group (regions of one picture are alike), and
each fold is classified by a copy that was trained on the others; new data, by one that was trained
on everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import plain_array
from fieldfit._random_state import random_generator
from fieldfit._typing import FloatArray
from fieldfit._validation import require_index, require_integer, require_number, shown
from fieldfit.errors import InvalidInputError

__all__ = ["OutOfFold", "out_of_fold"]


@dataclass(frozen=True)
class OutOfFold:
    """What `out_of_fold` found.

    Attributes
    ----------
    log_probabilities
        ``(M, K)``, of the training data, each row by a classifier that was not trained on its
        group.
    classifier
        Trained on everything, for new data.
    floor
        Smallest probability, see `out_of_fold`.
    folds
        ``(M,)``, the fold of each row.
    classifiers
        One for each fold, trained on the others.
    """

    log_probabilities: FloatArray
    classifier: Any
    floor: float
    folds: NDArray[np.int64]
    classifiers: tuple[Any, ...]

    def predict_log_proba(self, features: ArrayLike, fold: int | None = None) -> FloatArray:
        """Log-probabilities ``(M, K)`` of new data, or by the classifier of one fold."""
        if fold is not None:
            require_index("fold", fold, len(self.classifiers))
        chosen = self.classifier if fold is None else self.classifiers[fold]
        n_labels = self.log_probabilities.shape[1]
        rows = _checked_rows(features)
        n_known = getattr(chosen, "n_features_in_", rows.shape[1])
        if rows.shape[1] != n_known:
            raise InvalidInputError(
                f"features must have {n_known} columns as in training, got {rows.shape[1]}"
            )
        return _log_probabilities(chosen, rows, n_labels, self.floor)


def out_of_fold(
    classifier: Any,
    features: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    *,
    n_folds: int = 5,
    n_labels: int | None = None,
    floor: float = 1e-3,
    random_state: int | np.random.Generator | None = None,
) -> OutOfFold:
    """Log-probabilities by classifiers that were trained on other groups, and one for new data.

    Parameters
    ----------
    classifier
        A scikit-learn classifier with ``predict_proba``; copies of it are trained.
    features, labels, groups
        ``(M, F)``, ``(M,)`` and ``(M,)``; rows of label ``-1`` are classified, but nothing is
        learned from them.
    n_folds
        Parts into which the groups are cut at random, as even as can be.
    n_labels
        Number of labels, if larger than what ``labels`` shows.
    floor
        Mixed into the probabilities, ``(1 - K floor) p + floor``, because forests and missing
        labels give zeros, and no classifier is that sure.
    random_state
        Of the folds.

    Returns
    -------
    OutOfFold
        Log-probabilities of these rows, and a classifier for new ones.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> features = np.array([[0.0], [9.0], [2.0], [8.0], [1.0], [7.0]])
    >>> found = out_of_fold(
    ...     LogisticRegression(), features, [0, 1, 0, 1, 0, -1], [0, 0, 1, 1, 2, 2], n_folds=3
    ... )
    >>> found.log_probabilities.argmax(axis=1)
    array([0, 1, 0, 1, 0, 1])
    >>> found.predict_log_proba([[6.0]]).argmax(axis=1)
    array([1])
    """
    from sklearn.base import clone

    if isinstance(classifier, type) or not hasattr(classifier, "predict_proba"):
        raise InvalidInputError(
            "classifier must be an object with predict_proba, such as LogisticRegression(), "
            f"got {shown(classifier)}"
        )
    rows, known, part = _checked(features, labels, groups)
    require_integer("n_labels", n_labels, or_none=True)
    n_seen = int(known.max()) + 1
    n_labels = n_seen if n_labels is None else n_labels
    names, member = np.unique(part, return_inverse=True)
    if n_labels < n_seen:
        raise InvalidInputError(f"n_labels must be at least {n_seen} as in labels, got {n_labels}")
    require_integer("n_folds", n_folds)
    if not 2 <= n_folds <= len(names):
        raise InvalidInputError(
            f"n_folds must be from 2 to the number of groups ({len(names)}), got {n_folds}"
        )
    require_number("floor", floor)
    if not 0.0 < floor < 1.0 / n_labels:
        raise InvalidInputError(f"floor must be between 0 and 1 / {n_labels}, got {floor}")
    fold = random_generator(random_state).permutation(len(names))[member] % n_folds

    found, classifiers = np.empty((len(rows), n_labels)), []
    for held_out in range(n_folds):
        seen = (fold != held_out) & (known >= 0)
        if not seen.any():
            raise InvalidInputError(
                "labels must be known in at least two folds, got known ones in only one"
            )
        trained = clone(classifier).fit(rows[seen], known[seen])
        classifiers.append(trained)
        rest = fold == held_out
        found[rest] = _log_probabilities(trained, rows[rest], n_labels, floor)
    everything = clone(classifier).fit(rows[known >= 0], known[known >= 0])
    return OutOfFold(found, everything, floor, fold, tuple(classifiers))


def _log_probabilities(
    classifier: Any, features: NDArray[Any], n_labels: int, floor: float
) -> FloatArray:
    """A label that the classifier has never seen has the probability ``floor``."""
    probabilities = np.zeros((len(features), n_labels))
    probabilities[:, classifier.classes_] = classifier.predict_proba(features)
    return np.log((1.0 - n_labels * floor) * probabilities + floor)


def _checked_rows(features: ArrayLike) -> NDArray[Any]:
    """Numbers of any width: classifiers know single precision."""
    rows = plain_array("features", features)
    if rows.ndim != 2 or len(rows) == 0 or rows.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"features must be numbers of shape (M, F), got dtype {rows.dtype} and shape "
            f"{rows.shape}"
        )
    return rows


def _checked(
    features: ArrayLike, labels: ArrayLike, groups: ArrayLike
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    rows = _checked_rows(features)
    known, part = plain_array("labels", labels), plain_array("groups", groups)
    for name, given in (("labels", known), ("groups", part)):
        if given.shape != (len(rows),):
            raise InvalidInputError(f"{name} must have shape ({len(rows)},), got {given.shape}")
    if known.dtype.kind not in "iu" or known.min() < -1:
        raise InvalidInputError(
            f"labels must be integers of at least -1, got dtype {known.dtype} and {shown(known)}"
        )
    if part.dtype.kind not in "iuU":
        raise InvalidInputError(f"groups must be integers or texts, got dtype {part.dtype}")
    if known.max() < 0:
        raise InvalidInputError("labels must be known in some rows, got only -1")
    return rows, known, part
