"""Model files: what an estimator has learned, without pickle.

A model file holds the name of the estimator's class, its parameters (as given to the constructor,
option objects included), metadata that the estimator needs in order to work again (label names,
shapes, convergence), and named arrays.  `_container.py` describes the bytes.  A file that is cut
short or altered at any byte is refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._registry import find, stored_classes
from fieldfit._validation import require_output, shown
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io._container import read_container, write_container
from fieldfit.io.stored import Stored

__all__ = [
    "FORMAT",
    "VERSION",
    "ModelFile",
    "decode",
    "encode",
    "read_model",
    "write_model",
]

# -- Option objects as JSON, and back, without pickle --------------------------------------
# An object such as ``Likelihood(SumProduct(TreeReweighted()))`` is its class name and its fields.
# Only classes that the registry marks as stored can be written or read; a file cannot name anything
# else, so reading one runs no code but the constructors of these dataclasses, which check their
# fields.
#
# Plain values and lists stand for themselves.  What JSON does not have is an object that says so:
#
#     {"class": "Convex", "fields": {...}}    {"tuple": [...]}    {"float": "inf"}
#     {"dictionary": [[key, value], ...]}     {"texts": [...]}    (an array of texts)
#     {"array": name}                         (an array of numbers, which is stored beside)

#: Fields that had another name in earlier versions: class -> old name -> new name.
RENAMED_FIELDS = {"FrankWolfe": {"is_stored": "keep_active_set"}}

Arrays = dict[str, NDArray[Any]]


def encode(value: Any, arrays: Arrays, where: str = "value") -> Any:
    """JSON for a value; arrays in it are put into ``arrays`` under the name ``where`` they are."""
    if isinstance(value, (np.bool_, np.integer, np.floating, np.str_)):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        if _is_texts(value):
            return value
        return [encode(entry, arrays, f"{where}.{index}") for index, entry in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": encode(list(value), arrays, where)}
    if isinstance(value, Mapping):
        pairs = enumerate(value.items())
        return {"dictionary": [encode(list(pair), arrays, f"{where}.{n}") for n, pair in pairs]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        arrays[where] = value
        return {"array": where}
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return {"texts": value.tolist()}
    name = type(value).__name__
    if is_dataclass(value) and stored_classes().get(name) == type(value).__module__:
        given = {
            field.name: encode(getattr(value, field.name), arrays, f"{where}.{field.name}")
            for field in fields(value)
            if field.init
        }
        return {"class": name, "fields": given}
    raise InvalidInputError(
        f"{where} must be a number, text, array or one of fieldfit's option objects to be stored, "
        f"got {value!r}"
    )


def decode(stored: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """What `encode` was given; `FileFormatError` if it can have come from nowhere."""
    try:
        return _decode(stored, arrays)
    except FileFormatError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        what = str(error) if isinstance(error, InvalidInputError) else type(error).__name__
        raise FileFormatError(f"expected stored values, found {shown(stored)} ({what})") from None


def _decode(stored: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if isinstance(stored, list):
        if _is_texts(stored):
            return stored
        return [_decode(entry, arrays) for entry in stored]
    if not isinstance(stored, dict):
        return stored
    if "class" in stored:
        cls = _class_of(stored["class"])
        new_names = RENAMED_FIELDS.get(stored["class"], {})
        return cls(
            **{
                new_names.get(name, name): _decode(entry, arrays)
                for name, entry in stored["fields"].items()
            }
        )
    kind, content = _only_item(stored)
    if kind == "tuple":
        return tuple(_decode(content, arrays))
    if kind == "dictionary":
        return dict(tuple(_decode(pair, arrays)) for pair in content)
    if kind == "array":
        return arrays[content]
    if kind == "texts":
        return np.array(content, dtype=str)
    if kind == "float":
        return float(content)
    raise FileFormatError(f"expected a stored value, found one of the unknown kind {kind!r}")


def _is_texts(entries: list[Any]) -> bool:
    """True for a list of texts, such as a vocabulary of a million names: nothing to be done."""
    return all(type(entry) is str for entry in entries)


def _only_item(stored: dict[str, Any]) -> tuple[str, Any]:
    if len(stored) != 1:
        raise FileFormatError(f"expected a stored value with one key, found {sorted(stored)}")
    return next(iter(stored.items()))


def _class_of(name: str) -> type[Any]:
    """A class of the registry, imported only now: most models use few of them."""
    if name not in stored_classes():
        raise FileFormatError(
            f"expected an option object of this version of fieldfit, found {name!r}"
        )
    found: type[Any] = find(name)
    return found


# -- the file -----------------------------------------------------------------------------


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
    require_output("path", path)
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
        stored = Stored({}, content)
        parameters = {n: decode(v, objects) for n, v in stored.mapping("parameters").items()}
        metadata = {n: decode(v, objects) for n, v in stored.mapping("metadata").items()}
        kind = stored.text("kind")
    except FileFormatError as error:
        raise FileFormatError(f"{os.fspath(path)}: {error}") from None
    arrays = {
        name.removeprefix(_ARRAYS): array
        for name, array in everything.items()
        if name.startswith(_ARRAYS)
    }
    return ModelFile(kind, parameters, metadata, arrays)
