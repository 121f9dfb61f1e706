"""Which tokens of a sequence a skip-chain links."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError

__all__ = ["checked_links", "equal_values", "without_key"]


def equal_values(index: int, x: Any, key: str, max_links: int) -> list[tuple[int, int]]:
    """Pairs of tokens with the same value of a feature.

    All pairs of a group of up to ``max_links`` tokens; larger groups, whose pairs would grow with
    the square, are linked in a row.
    """
    groups: dict[Any, list[int]] = {}
    for position, token in enumerate(x):
        if not isinstance(token, Mapping):
            raise InvalidInputError(
                f"X[{index}][{position}] must be a feature dictionary, because skip_edges names "
                f"the feature {key!r}, got {type(token).__name__}"
            )
        if key in token:
            groups.setdefault(token[key], []).append(position)
    pairs: list[tuple[int, int]] = []
    for group in groups.values():
        pairs += combinations(group, 2) if len(group) <= max_links else pairwise(group)
    return pairs


def without_key(x: Any, key: str) -> list[Any]:
    """A sequence of feature dictionaries without the feature that only says what is linked."""
    return [
        {name: value for name, value in token.items() if name != key}
        if isinstance(token, Mapping)
        else token
        for token in x
    ]


def checked_links(index: int, given: Any, length: int) -> NDArray[np.int64]:
    """Different pairs of positions, ascending; neighbours are linked by the chain already."""
    links = np.asarray(given)
    if links.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if links.ndim != 2 or links.shape[1] != 2 or links.dtype.kind not in "iu":
        raise InvalidInputError(
            f"X[{index}]: skip edges must be pairs of positions, got dtype {links.dtype} and "
            f"shape {links.shape}"
        )
    if links.min() < 0 or links.max() >= length:
        wrong = links.min() if links.min() < 0 else links.max()
        raise InvalidInputError(
            f"X[{index}]: skip edges must join positions 0..{length - 1}, got {wrong}"
        )
    pairs: NDArray[np.int64] = np.unique(np.sort(links.astype(np.int64), axis=1), axis=0)
    return pairs[pairs[:, 1] - pairs[:, 0] > 1]
