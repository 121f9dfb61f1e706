"""Model files: what an estimator has learned, without pickle.

A model file holds the name of the estimator's class, its parameters (as given to the constructor,
option objects included), metadata that the estimator needs in order to work again (label names,
shapes, convergence), and named arrays.  `_container.py` describes the bytes.  A file that is cut
short or altered at any byte is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io._container import read_container, write_container
from fieldfit.io._objects import decode, encode

__all__ = ["FORMAT", "VERSION", "ModelFile", "read_model", "write_model"]

FORMAT, VERSION = "fieldfit-model", 1

# arrays of the estimator, and arrays inside parameters and metadata, cannot have the same name
_ARRAYS, _OBJECTS = "arrays.", "objects."


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file.

    Attributes
    ----------
    kind
        Class name of the estimator.
    parameters
        Arguments of its constructor.
    metadata
        What else it wrote, apart from arrays.
    arrays
        Weights and other arrays by name, writeable copies.
    """

    kind: str
    parameters: dict[str, Any]
    metadata: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write_model(
    path: str | os.PathLike[str],
    kind: str,
    parameters: Mapping[str, Any],
    metadata: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write a model file atomically.

    ``parameters`` and ``metadata`` may hold numbers, texts, lists, tuples, dictionaries, arrays
    and fieldfit's option objects.
    """
    _require_folder(path)
    stored: dict[str, NDArray[Any]] = {}
    content = {
        "kind": kind,
        "parameters": {
            name: encode(value, stored, f"parameter {name}") for name, value in parameters.items()
        },
        "metadata": {
            name: encode(value, stored, f"metadata {name}") for name, value in metadata.items()
        },
    }
    everything = {_OBJECTS + name: array for name, array in stored.items()}
    everything |= {_ARRAYS + name: array for name, array in arrays.items()}
    write_container(path, FORMAT, VERSION, content, everything)


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model file; raises `FileFormatError` if it is damaged, foreign or too new."""
    content, everything = read_container(path, FORMAT, VERSION)
    objects = {
        name.removeprefix(_OBJECTS): array
        for name, array in everything.items()
        if name.startswith(_OBJECTS)
    }
    try:
        parameters = {name: decode(v, objects) for name, v in content["parameters"].items()}
        metadata = {name: decode(v, objects) for name, v in content["metadata"].items()}
        kind = content["kind"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{os.fspath(path)}: {error}") from error
    arrays = {
        name.removeprefix(_ARRAYS): array
        for name, array in everything.items()
        if name.startswith(_ARRAYS)
    }
    return ModelFile(kind, parameters, metadata, arrays)


def _require_folder(path: str | os.PathLike[str]) -> None:
    folder = os.path.dirname(os.fspath(path)) or "."
    if not os.path.isdir(folder):
        raise InvalidInputError(f"path must lie in a folder that exists, got {os.fspath(path)!r}")
