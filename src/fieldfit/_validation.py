"""Checks of options, in one place: one sentence with the argument, the requirement and the value.

Options are checked where an object is made (``__post_init__``), data where they are used.  Arrays
have checks of their own in `_arrays.py`, ``random_state`` in `_random_state.py`.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fieldfit.errors import InvalidInputError

__all__ = [
    "is_integer",
    "made_folder",
    "may_be_written",
    "refuse_unused",
    "require_callable",
    "require_flag",
    "require_index",
    "require_instance",
    "require_integer",
    "require_list",
    "require_number",
    "require_one_of",
    "require_output",
    "require_path",
    "require_sequence_of",
    "require_text",
    "require_texts",
    "require_verbose",
    "shown",
]

#: Longest text of a value in a message.
SHOWN = 80


def is_integer(value: Any) -> bool:
    """Whether a value is an integer of Python or of NumPy; truth values are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value for a message: on one line, and cut where it is long.

    Examples
    --------
    >>> print(shown("a" * 200)[-8:])
    aaaaa...
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def require_integer(
    name: str,
    value: Any,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    or_none: bool = False,
) -> None:
    """Refuse what is not an integer in the range.

    Examples
    --------
    >>> require_integer("max_iter", 0, at_least=1)
    Traceback (most recent call last):
    ...
    fieldfit.errors.InvalidInputError: max_iter must be an integer of at least 1, got 0
    """
    if or_none and value is None:
        return
    if not is_integer(value) or not _in_range(value, at_least, None, at_most, None):
        wanted = "an integer" + _range(at_least, None, at_most, None, " of at least ", " in ")
        _refuse(name, wanted, or_none, value)


def require_number(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    or_none: bool = False,
    finite: bool = True,
) -> None:
    """Refuse what is not a real number in the range, NaN included.

    Examples
    --------
    >>> require_number("damping", 1.0, at_least=0, below=1)
    Traceback (most recent call last):
    ...
    fieldfit.errors.InvalidInputError: damping must be in [0, 1), got 1.0
    """
    if or_none and value is None:
        return
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    fits = is_number and not math.isnan(value) and (math.isfinite(value) or not finite)
    if not fits or not _in_range(value, at_least, above, at_most, below):
        wanted = _range(at_least, above, at_most, below, "at least ", "in ") or "a number"
        if finite and is_number and not math.isfinite(value):
            wanted = f"finite and {wanted}"
        _refuse(name, wanted, or_none, value)


def require_one_of(
    name: str, value: Any, choices: Collection[Any], *, or_none: bool = False
) -> None:
    """Refuse what is none of the choices."""
    if or_none and value is None:
        return
    try:
        known = value in choices
    except (TypeError, ValueError):  # an array, or something that cannot be compared
        known = False
    if not known:
        _refuse(name, "one of " + ", ".join(repr(choice) for choice in choices), or_none, value)


def require_flag(name: str, value: Any) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        _refuse(name, "True or False", False, value)


def require_instance(
    name: str, value: Any, wanted: type | tuple[type, ...], example: str, *, or_none: bool = False
) -> None:
    """Refuse an object of another class; ``example`` says what would do."""
    if or_none and value is None:
        return
    if not isinstance(value, wanted):
        _refuse(name, f"an object such as {example}", or_none, value)


def require_sequence_of(name: str, values: Any, wanted: type, example: str) -> None:
    """Refuse what is no list of objects of a class."""
    require_list(name, values, f"objects such as {example}")
    for index, value in enumerate(values):
        require_instance(f"{name}[{index}]", value, wanted, example)


def require_callable(name: str, value: Any, *, or_none: bool = False) -> None:
    """Refuse what cannot be called."""
    if not (callable(value) or (or_none and value is None)):
        _refuse(name, "a function", or_none, value)


def require_index(name: str, value: Any, count: int) -> None:
    """Refuse what is no index of ``count`` things.

    Examples
    --------
    >>> require_index("variable", 3, 3)
    Traceback (most recent call last):
    ...
    fieldfit.errors.InvalidInputError: variable must be in 0..2, got 3
    """
    if not is_integer(value) or not 0 <= value < count:
        _refuse(name, f"in 0..{count - 1}", False, value)


def require_text(name: str, value: Any, *, or_none: bool = False) -> None:
    """Refuse what is not a text of at least one character."""
    if not ((isinstance(value, str) and value) or (or_none and value is None)):
        _refuse(name, "a text", or_none, value)


def require_texts(name: str, values: Any) -> None:
    """Refuse what is no list of texts; a single text is none, although it is one of letters.

    Examples
    --------
    >>> require_texts("words", ["a", 3])
    Traceback (most recent call last):
    ...
    fieldfit.errors.InvalidInputError: words[1] must be a text, got 3
    """
    require_list(name, values, "texts")
    for index, value in enumerate(values):
        if not isinstance(value, str):
            _refuse(f"{name}[{index}]", "a text", False, value)


def require_list(name: str, values: Any, of: str) -> None:
    """Refuse what has no entries in an order; ``of`` says what they should be."""
    if isinstance(values, (str, bytes, dict, set)) or not hasattr(values, "__len__"):
        _refuse(name, f"a list of {of}", False, values)
    if getattr(values, "ndim", 1) == 0:  # an array of no dimensions has no length
        _refuse(name, f"a list of {of}", False, values)


def require_path(name: str, path: Any) -> None:
    """Refuse what cannot be the name of a file."""
    is_path = isinstance(path, (str, os.PathLike)) and isinstance(os.fspath(path), str)
    if not is_path or not os.fspath(path) or "\0" in os.fspath(path):
        _refuse(name, "the name of a file", False, path)


def require_output(name: str, path: Any) -> None:
    """Refuse what cannot be the name of a file to write, before the work is done."""
    require_path(name, path)
    if not os.path.isdir(os.path.dirname(os.fspath(path)) or ".") or os.path.isdir(path):
        _refuse(name, "a file in a folder that exists", False, os.fspath(path))
    if not may_be_written(path):
        _refuse(name, "a file in a folder that may be written to", False, os.fspath(path))


def made_folder(name: str, path: Any) -> Path:
    """A folder to write to, made if need be; refuses what cannot be one."""
    require_path(name, path)
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(
            f"{name} must be a folder that exists or can be made, got {str(path)!r} ({reason})"
        ) from None
    return folder


def may_be_written(path: str | os.PathLike[str]) -> bool:
    """Whether a file may be made or replaced; a device or pipe is written to as it is."""
    if os.path.exists(path) and not os.path.isfile(path):
        return True
    return os.access(os.path.dirname(os.fspath(path)) or ".", os.W_OK | os.X_OK)


def require_verbose(verbose: Any) -> None:
    """Refuse what is no level of detail: 0 (or ``False``) is silent."""
    if not isinstance(verbose, bool):
        require_integer("verbose", verbose, at_least=0)


def refuse_unused(method: str, used: Collection[str], **options: Any) -> None:
    """Refuse options that were given (not ``None``) to a method that would ignore them."""
    for name, value in options.items():
        if value is not None and name not in used:
            raise InvalidInputError(
                f"{name} must be left out for method {method!r}, which does not use it, "
                f"got {value!r}"
            )


def _in_range(
    value: Any,
    at_least: float | None,
    above: float | None,
    at_most: float | None,
    below: float | None,
) -> bool:
    return (
        (at_least is None or value >= at_least)
        and (above is None or value > above)
        and (at_most is None or value <= at_most)
        and (below is None or value < below)
    )


def _range(
    at_least: float | None,
    above: float | None,
    at_most: float | None,
    below: float | None,
    lower: str,
    both: str,
) -> str:
    """The range in words: "at least 1", "positive", "in [0, 1)"."""
    low, high = above if at_least is None else at_least, below if at_most is None else at_most
    if low is not None and high is not None:
        opening, closing = "[" if above is None else "(", "]" if below is None else ")"
        return f"{both}{opening}{low}, {high}{closing}"
    if low is not None:
        if above is None:
            return f"{lower}{low}"
        return "positive" if above == 0 else f"above {above}"
    if high is not None:
        return f"at most {at_most}" if below is None else f"below {below}"
    return ""


def _refuse(name: str, wanted: str, or_none: bool, value: Any) -> None:
    raise InvalidInputError(f"{name} must be {wanted}{' or None' * or_none}, got {shown(value)}")
