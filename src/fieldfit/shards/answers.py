"""Predictions, scores and bounds over shards: computed shard by shard, and written so if asked for.

A file of answers belongs to each shard: the values of all variables, one example after the other.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit._validation import require_path, shown
from fieldfit.errors import ConvergenceWarning, FileFormatError, InvalidInputError, Place
from fieldfit.graph.ragged import offsets_of
from fieldfit.io._container import map_container, write_container
from fieldfit.io.stored import Stored
from fieldfit.shards.reading import Shards

__all__ = ["ShardAnswers", "read_answers", "shard_bounds", "shard_score"]

FORMAT, VERSION = "fieldfit-answers", 1


class ShardAnswers:
    """Labels or marginals of each example of some shards, in their order, computed when asked for.

    Iterating gives one array for each example, in the user's shape; one shard is in memory at a
    time.  `write` puts them into files instead, which `read_answers` reads.

    Parameters
    ----------
    estimator
        Fitted.
    shards
        What to answer for.
    what
        ``"labels"`` or ``"marginals"``.
    """

    def __init__(
        self, estimator: Any, shards: Shards, what: Literal["labels", "marginals"]
    ) -> None:
        _require_model(estimator, shards)
        self.estimator = estimator
        self.shards = shards
        self.what = what

    def __len__(self) -> int:
        """Number of examples."""
        return self.shards.manifest.n_examples

    def __repr__(self) -> str:
        return f"{self.what} of {self.shards!r}"

    def __iter__(self) -> Iterator[NDArray[Any]]:
        n_failed = 0
        for shard in range(len(self.shards)):
            answers, failed = self._of_shard(shard)
            n_failed += failed
            yield from answers
        self._warn(n_failed)

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write a file for each shard, ``labels-00000.safetensors`` and so on; their names."""
        require_path("folder", folder)
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        n_failed, written = 0, []
        for shard in range(len(self.shards)):
            answers, failed = self._of_shard(shard)
            n_failed += failed
            n_axes = 1 if self.what == "marginals" else 0
            shapes = [answer.shape[: answer.ndim - n_axes] for answer in answers]
            arrays = {
                "values": np.concatenate(
                    [
                        answer.reshape(-1, *answer.shape[answer.ndim - n_axes :])
                        for answer in answers
                    ]
                ),
                "offsets": offsets_of([int(np.prod(shape)) for shape in shapes]),
                "shapes": np.array(shapes, dtype=np.int64),
            }
            written.append(path / f"{self.what}-{shard:05d}.safetensors")
            content = {"shard": shard, "n_shards": len(self.shards), "what": self.what}
            write_container(written[-1], FORMAT, VERSION, content, arrays)
        self._warn(n_failed)
        return written

    def _of_shard(self, shard: int) -> tuple[list[NDArray[Any]], int]:
        estimator = self.estimator
        X = estimator._stored_examples(self.shards.read(shard))  # noqa: N806
        infer = estimator._best_labels if self.what == "labels" else estimator._beliefs
        found, n_failed = infer(estimator._objective(), estimator._encode(X), estimator.weights_)
        show = estimator._shown_labels if self.what == "labels" else estimator._shown
        return [show(x, values) for x, values in zip(X, found, strict=True)], n_failed

    def _warn(self, n_failed: int) -> None:
        _warn(self.estimator, n_failed, len(self))


def read_answers(folder: str | os.PathLike[str]) -> Iterator[NDArray[Any]]:
    """Answers that `ShardAnswers.write` wrote, one array for each example.

    Parameters
    ----------
    folder
        Where `ShardAnswers.write` wrote.

    Returns
    -------
    iterator of arrays
        One for each example, in their order.
    """
    require_path("folder", folder)
    paths = sorted(Path(folder).glob("*-?????.safetensors"))
    if not paths:
        raise FileFormatError(f"{os.fspath(folder)}: expected files of answers, found none")
    for number, path in enumerate(paths):
        content, arrays = map_container(path, FORMAT, VERSION, "")
        stored = Stored(arrays, content)
        if stored.integer("shard", 0) != number or stored.integer("n_shards", 1) != len(paths):
            raise FileFormatError(
                f"{os.fspath(path)}: expected answers of shard {number} of {len(paths)}, found "
                f"those of shard {stored.integer('shard', 0)} of {stored.integer('n_shards', 1)}"
            )
        values = arrays["values"]
        for part, shape in zip(
            np.split(values, stored.offsets("offsets", len(values))[1:-1]),
            arrays["shapes"].tolist(),
            strict=True,
        ):
            yield part.reshape(*shape, *values.shape[1:])


def shard_score(estimator: Any, shards: Shards, Y: Any) -> float:  # noqa: N803
    """Share of labelled variables whose label is found, over all shards."""
    _refuse_labels(Y)
    _require_model(estimator, shards)
    objective = estimator._objective()
    n_right = n_known = n_failed = 0
    for shard in range(len(shards)):
        X, labels = _examples(estimator, shards, shard)  # noqa: N806
        found, failed = estimator._best_labels(objective, estimator._encode(X), estimator.weights_)
        truth, guess = np.concatenate(labels), np.concatenate(found)
        known = truth != -1  # a label that the model does not know is an error
        n_right += int((truth == guess)[known].sum())
        n_known += int(known.sum())
        n_failed += failed
    _warn(estimator, n_failed, shards.manifest.n_examples)
    if n_known == 0:
        raise InvalidInputError(
            "must hold at least one label to score against, got none", Place("Y")
        )
    return n_right / n_known


def shard_bounds(estimator: Any, shards: Shards, Y: Any) -> tuple[FloatArray, FloatArray]:  # noqa: N803
    """Bounds on the log-likelihood of each example, over all shards."""
    _refuse_labels(Y)
    _require_model(estimator, shards)
    found = [
        estimator._bounds(*_examples(estimator, shards, shard)) for shard in range(len(shards))
    ]
    return np.concatenate([low for low, _ in found]), np.concatenate([high for _, high in found])


def _examples(estimator: Any, shards: Shards, shard: int) -> tuple[list[Any], list[Any]]:
    stored = shards.read(shard)
    return estimator._stored_examples(stored), estimator._stored_labels(stored)


def _require_model(estimator: Any, shards: Shards) -> None:
    """Refuse shards that a fitted model cannot read."""
    shards.manifest.require_options(type(estimator).__name__, estimator._shard_options())
    for name, wanted in estimator._model_metadata().items():
        if shards.manifest.model.get(name, wanted) != wanted:
            raise InvalidInputError(
                f"shards must have {name}={wanted} as the fitted model, got "
                f"{name}={shards.manifest.model.get(name)}"
            )
    arrays = shards.model().arrays
    for name, array in estimator._model_arrays().items():
        if not np.array_equal(arrays.get(name, ()), array):
            raise InvalidInputError(
                f"shards must have been written with this fitted model, or be those that it "
                f"learned from, got shards of another vocabulary ({name})"
            )


def _refuse_labels(given: Any) -> None:
    if given is not None:
        raise InvalidInputError(f"Y must be None, because shards hold labels, got {shown(given)}")


def _warn(estimator: Any, n_failed: int, count: int) -> None:
    if n_failed:
        warnings.warn(
            f"{type(estimator).__name__}: the inference of {n_failed} of {count} examples did not "
            "converge; their beliefs are the last ones reached",
            ConvergenceWarning,
            stacklevel=4,
        )
