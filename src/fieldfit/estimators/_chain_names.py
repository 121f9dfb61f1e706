"""Names of a chain model's weights, for people and for files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.estimators._chain_layout import ChainLayout

__all__ = ["describe_pair", "describe_weight", "pack_names", "unpack_names"]


def describe_weight(
    layout: ChainLayout, position: int, attributes: Sequence[str], classes: NDArray[Any]
) -> str:
    """What a weight belongs to: ``attribute / label``, ``label -> label`` or ``start / label``."""
    if position < layout.n_states:
        attribute, label = layout.pair(position)
        return f"{attributes[attribute]} / {classes[label]}"
    position -= layout.n_states
    if position < layout.n_transitions:
        return describe_pair(layout.transitions.reshape(-1), position, classes, "->")
    position -= layout.n_transitions
    where = "start" if position < layout.n_labels else "end"
    return f"{where} / {classes[position % layout.n_labels]}"


def describe_pair(groups: NDArray[np.int64], group: int, classes: NDArray[Any], mark: str) -> str:
    """What a parameter of a table of two labels belongs to; ``groups`` has that of each entry.

    >>> describe_pair(np.array([0, 1, 1, 2]), 1, np.array(["A", "B"]), "~")
    'A ~ B'
    >>> describe_pair(np.array([0, -1, -1, 0]), 0, np.array(["A", "B"]), "~")
    'equal labels'
    """
    entries = np.flatnonzero(groups == group)
    first, second = np.divmod(entries, len(classes))
    if len(entries) > 1 and np.all(first == second):
        return "equal labels"
    return f"{classes[first[0]]} {mark} {classes[second[0]]}"


def pack_names(names: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Text as one array of bytes, and where each name ends; names may hold any character."""
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), ends


def unpack_names(text: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[str]:
    """Inverse of `pack_names`."""
    raw, bounds = text.tobytes(), [0, *ends.tolist()]
    return [raw[first:last].decode("utf-8", "surrogatepass") for first, last in pairwise(bounds)]
