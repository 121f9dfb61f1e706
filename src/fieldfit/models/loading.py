"""Loading saved models: fitted estimators from their files, without executing anything in them."""

from __future__ import annotations

import os
from typing import Any

from fieldfit._registry import MODELS, find
from fieldfit.errors import FileFormatError
from fieldfit.io.model_file import read_model
from fieldfit.io.stored import Stored
from fieldfit.models.base import FieldEstimator, Path

__all__ = ["load"]


def load(path: Path) -> Any:
    """Read a fitted estimator from a file that its ``save`` wrote.

    Nothing in the file is executed; a file that is cut short or altered is refused.

    Parameters
    ----------
    path
        A file that ``save`` wrote.

    Returns
    -------
    estimator
        Fitted, of the class that was saved.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fieldfit.models.graphs.graph_crf import GraphCRF
    >>> X = [(np.array([[1.0], [-1.0], [2.0]]), [(0, 1), (1, 2)])]
    >>> crf = GraphCRF(objective="likelihood", l2=0.1).fit(X, [[1, 0, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     crf.save(f"{folder}/model.ff")
    ...     again = load(f"{folder}/model.ff")
    >>> bool((again.predict(X)[0] == crf.predict(X)[0]).all())
    True
    """
    stored = read_model(path)
    name = os.fspath(path)
    if stored.kind not in MODELS:  # a file cannot make anything else run
        raise FileFormatError(
            f"{name}: expected a model of {', '.join(sorted(MODELS))}, found {stored.kind!r}"
        )
    estimator_class: type[FieldEstimator] = find(stored.kind)
    try:
        estimator = estimator_class(**stored.parameters)
        estimator._restore(Stored(stored.arrays, stored.metadata))
    except FileFormatError as error:
        raise FileFormatError(f"{name}: {error}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # the checksum is right, so another version of the package wrote it
        raise FileFormatError(
            f"{name}: the file does not fit this version of fieldfit "
            f"({stored.kind}: {type(error).__name__}: {error})"
        ) from error
    return estimator
