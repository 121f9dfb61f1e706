"""What a file of ours holds, taken out entry by entry with a check of type, range and shape.

The digest of a container says that nothing was damaged, not that the content makes sense: another
version or another program may have written it.  Whoever takes values out of a model file or a
checkpoint does it through `Stored`, and anything unexpected is one sentence.
"""

from __future__ import annotations

import math
import numbers as number_types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._validation import is_integer, shown
from fieldfit.errors import FileFormatError

__all__ = ["Stored"]

#: Kinds of arrays: the types of NumPy that may hold them, and what they are called.
_KINDS = {"f": ("f", "numbers"), "i": ("iu", "integers"), "b": ("u", "bytes")}


@dataclass(frozen=True)
class Stored:
    """Arrays, and numbers and texts as JSON has them.

    Examples
    --------
    >>> stored = Stored({"weights": np.zeros(3)}, {"n_iter": -1})
    >>> stored.array("weights", (3,))
    array([0., 0., 0.])
    >>> stored.integer("n_iter", low=0)
    Traceback (most recent call last):
    ...
    fieldfit.errors.FileFormatError: expected 'n_iter' to be an integer of at least 0, found -1
    """

    arrays: dict[str, NDArray[Any]]
    numbers: dict[str, Any]

    def value(self, name: str) -> Any:
        """An entry of any type."""
        if not isinstance(self.numbers, Mapping) or name not in self.numbers:
            raise FileFormatError(f"expected an entry {name!r}, found none")
        return self.numbers[name]

    def integer(self, name: str, low: int, high: int | None = None) -> int:
        """An integer in ``low..high``."""
        found = self.value(name)
        if not is_integer(found) or found < low or (high is not None and found > high):
            limits = f"of at least {low}" if high is None else f"in {low}..{high}"
            self._refuse(name, f"an integer {limits}", found)
        return int(found)

    def number(self, name: str, *, default: float | None = None) -> float:
        """A real number; ``null`` is the default if there is one."""
        found = self.value(name)
        if found is None and default is not None:
            return default
        if not _is_real(found):
            self._refuse(name, "a number", found)
        return float(found)

    def flag(self, name: str) -> bool:
        """True or false."""
        found = self.value(name)
        if not isinstance(found, bool):
            self._refuse(name, "true or false", found)
        return bool(found)

    def text(self, name: str) -> str:
        """A text."""
        found = self.value(name)
        if not isinstance(found, str):
            self._refuse(name, "a text", found)
        return str(found)

    def mapping(self, name: str) -> dict[str, Any]:
        """An object of JSON."""
        found = self.value(name)
        if not isinstance(found, dict):
            self._refuse(name, "an object", found)
        return dict(found)

    def items(
        self, name: str, wanted: type | tuple[type, ...], length: int | None = None
    ) -> list[Any]:
        """A list of entries of a type; truth values are no integers."""
        found = self.value(name)
        is_list = isinstance(found, (list, tuple)) and length in (None, len(found))
        if not is_list or not all(_is_of(entry, wanted) for entry in found):
            count = "" if length is None else f"{length} "
            self._refuse(name, f"a list of {count}entries of their type", found)
        return list(found)

    def array(self, name: str, shape: tuple[int | None, ...], kind: str = "f") -> NDArray[Any]:
        """An array of a shape (``None``: any length); numbers must be finite."""
        types, what = _KINDS[kind]
        if name not in self.arrays:
            raise FileFormatError(f"expected an array {name!r}, found none")
        found = self.arrays[name]
        fits = found.ndim == len(shape) and all(
            wanted is None or wanted == length
            for wanted, length in zip(shape, found.shape, strict=True)
        )
        if not fits or found.dtype.kind not in types:
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            raise FileFormatError(
                f"expected {name!r} to be {what} of shape ({wanted}), found {found.dtype} of shape "
                f"{found.shape}"
            )
        if kind == "f" and not np.isfinite(found).all():
            raise FileFormatError(f"expected {name!r} to be finite, found NaN or infinity")
        return found

    def indices(self, name: str, shape: tuple[int | None, ...], low: int, high: int) -> Any:
        """An array of integers in ``low..high``."""
        found = self.array(name, shape, "i")
        if found.size and (found.min() < low or found.max() > high):
            wrong = found.min() if found.min() < low else found.max()
            raise FileFormatError(f"expected {name!r} to be in {low}..{high}, found {wrong}")
        return found

    def offsets(self, name: str, last: int) -> NDArray[Any]:
        """Where rows begin, from 0 to ``last``."""
        found = self.array(name, (None,), "i")
        if len(found) == 0 or found[0] != 0 or found[-1] != last or (np.diff(found) < 0).any():
            raise FileFormatError(
                f"expected {name!r} to rise from 0 to {last}, found other numbers"
            )
        return found

    def part(self, prefix: str, numbers: Any) -> Stored:
        """The arrays whose names begin with a prefix, without it, and other numbers."""
        arrays = {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }
        return Stored(arrays, numbers)

    def _refuse(self, name: str, wanted: str, found: Any) -> None:
        raise FileFormatError(f"expected {name!r} to be {wanted}, found {shown(found)}")


def _is_real(value: Any) -> bool:
    is_number = isinstance(value, number_types.Real) and not isinstance(value, bool)
    return is_number and not (isinstance(value, int) and not math.isfinite(_as_float(value)))


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _is_of(entry: Any, wanted: type | tuple[type, ...]) -> bool:
    if wanted is float:
        return _is_real(entry)
    if wanted is int:
        return is_integer(entry)
    return isinstance(entry, wanted)
