"""Checks of what users hand to the estimators: one sentence that names the example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.template import Template
from fieldfit.errors import InvalidInputError

__all__ = [
    "accuracy",
    "as_numbers",
    "checked_labels",
    "count_labels",
    "example_weights",
    "require_features",
    "require_list",
    "require_pairs",
    "start_weights",
]

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]


def require_list(name: str, given: Any) -> None:
    """Refuse what is no list or array of examples."""
    if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__len__"):
        raise InvalidInputError(
            f"{name} must be a list of examples, got {type(given).__name__} {given!r:.40}"
        )


def require_pairs(X: Any, Y: Any) -> None:
    """Refuse examples and labels that do not belong together, and empty lists."""
    require_list("X", X)
    require_list("Y", Y)
    if len(X) == 0:
        raise InvalidInputError("X must hold at least one example, got an empty list")
    if len(X) != len(Y):
        raise InvalidInputError(
            f"X and Y must have one entry for each example, got {len(X)} and {len(Y)}"
        )


def as_numbers(name: str, given: Any) -> FloatArray:
    """A contiguous array of floats; the array itself if it is one."""
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "fiubO":
            raise TypeError
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{name} must be an array of real numbers, got {type(given).__name__} {given!r:.40}"
        ) from None


def require_features(name: str, features: Any, n_features: int) -> None:
    """Refuse features that are not finite, or not as many as in the first example of the fit."""
    values = features.data if hasattr(features, "tocsr") else features
    if not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise InvalidInputError(f"{name}: features must be finite, got {bad}")
    if features.shape[1] != n_features:
        raise InvalidInputError(
            f"{name}: there must be {n_features} features as in the first example of the fit, "
            f"got {features.shape[1]}"
        )


def checked_labels(
    name: str, given: Any, shape: tuple[int, ...], n_labels: int | None
) -> LabelArray:
    """Integer labels of a given shape, flat; ``-1`` is missing.

    ``n_labels=None``: any number of labels.
    """
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        raise InvalidInputError(f"{name} must have shape {shape} as its example") from None
    if array.shape != shape:
        raise InvalidInputError(f"{name} must have shape {shape} as its example, got {array.shape}")
    if array.dtype.kind not in "iub":
        raise InvalidInputError(f"{name} must hold integer labels, got dtype {array.dtype}")
    lowest, largest = int(array.min(initial=0)), int(array.max(initial=0))
    if lowest < -1:
        raise InvalidInputError(f"{name}: labels must be at least -1 (missing), got {lowest}")
    if n_labels is not None and largest >= n_labels:
        raise InvalidInputError(f"{name}: labels must be in 0..{n_labels - 1}, got {largest}")
    return array.reshape(-1).astype(np.int32)


def count_labels(labels: Sequence[LabelArray], n_labels: int | None) -> int:
    """How many labels there are: as many as is said, or one more than the largest seen."""
    if n_labels is not None:
        if not (isinstance(n_labels, (int, np.integer)) and n_labels >= 2):
            raise InvalidInputError(f"n_labels must be an integer of at least 2, got {n_labels!r}")
        for index, given in enumerate(labels):
            largest = int(given.max(initial=-1))
            if largest >= n_labels:
                raise InvalidInputError(
                    f"Y[{index}]: labels must be in 0..{n_labels - 1} (n_labels), got {largest}"
                )
        return int(n_labels)
    seen = np.unique(np.concatenate([np.unique(given) for given in labels]))
    seen = seen[seen >= 0]
    if len(seen) < 2:
        found = f"only label {seen[0]}" if len(seen) else "no label at all"
        raise InvalidInputError(
            f"Y must hold at least two different labels over all {len(labels)} examples, "
            f"got {found}; n_labels=2 or more states the number of labels"
        )
    return int(seen[-1]) + 1


def example_weights(given: ArrayLike | None, count: int) -> FloatArray | None:
    """``sample_weight``: one finite number of at least 0 for each example."""
    if given is None:
        return None
    weights = as_numbers("sample_weight", given)
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
    return weights


def start_weights(given: ArrayLike | None, templates: Sequence[Template]) -> FloatArray:
    """``start``: zeros, weights for all sets, or those for potentials.

    The latter are repeated where every sweep has its own; other sets (of entropies) begin at 0.
    """
    counts = [template.n_weights for template in templates]
    if given is None:
        return np.zeros(sum(counts))
    weights = as_numbers("start", given)
    if weights.shape != (counts[0],):
        return weights  # its length is checked by the learner
    own = templates[0]
    return np.concatenate([weights if one is own else np.zeros(one.n_weights) for one in templates])


def accuracy(labels: Sequence[LabelArray], found: Sequence[LabelArray]) -> float:
    """Share of the labels there are that were found."""
    truth, guess = np.concatenate(labels), np.concatenate(found)
    known = truth >= 0
    if not known.any():
        raise InvalidInputError("Y must hold at least one label to score against, got none")
    return float(np.mean(truth[known] == guess[known]))
