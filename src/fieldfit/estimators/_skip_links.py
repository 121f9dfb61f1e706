"""Which tokens of a sequence a skip-chain links, and where its chain is cut."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError

__all__ = ["checked_breaks", "checked_links", "equal_values", "marked_tokens", "without_keys"]


def equal_values(index: int, x: Any, key: str, max_links: int) -> list[tuple[int, int]]:
    """Pairs of tokens with the same value of a feature.

    All pairs of a group of up to ``max_links`` tokens; larger groups, whose pairs would grow with
    the square, are linked in a row.
    """
    groups: dict[Any, list[int]] = {}
    for position, token in _dictionaries(index, x, "skip_edges", key):
        if key in token:
            groups.setdefault(token[key], []).append(position)
    pairs: list[tuple[int, int]] = []
    for group in groups.values():
        pairs += combinations(group, 2) if len(group) <= max_links else pairwise(group)
    return pairs


def marked_tokens(index: int, x: Any, key: str) -> list[int]:
    """Positions of the tokens that have a feature (``False`` is the same as not having it)."""
    return [
        position
        for position, token in _dictionaries(index, x, "breaks", key)
        if token.get(key, False) is not False
    ]


def _dictionaries(
    index: int, x: Any, option: str, key: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for position, token in enumerate(x):
        if not isinstance(token, Mapping):
            raise InvalidInputError(
                f"X[{index}][{position}] must be a feature dictionary, because {option} names "
                f"the feature {key!r}, got {type(token).__name__}"
            )
        yield position, token


def without_keys(x: Any, keys: Collection[str]) -> list[Any]:
    """A sequence of feature dictionaries without what only says how tokens are joined."""
    return [
        {name: value for name, value in token.items() if name not in keys}
        if isinstance(token, Mapping)
        else token
        for token in x
    ]


def checked_breaks(index: int, given: Any, length: int) -> NDArray[np.int64]:
    """Different positions inside the sequence, ascending; its beginning needs no break."""
    breaks = np.asarray(given)
    if breaks.size == 0:
        return np.zeros(0, dtype=np.int64)
    if breaks.ndim != 1 or breaks.dtype.kind not in "iu":
        raise InvalidInputError(
            f"X[{index}]: breaks must be positions of tokens, got dtype {breaks.dtype} and "
            f"shape {breaks.shape}"
        )
    _require_positions(index, "breaks must be", breaks, length)
    different: NDArray[np.int64] = np.unique(breaks.astype(np.int64))
    return different[different > 0]


def checked_links(
    index: int, given: Any, length: int, breaks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Different pairs of positions, ascending, without those that the chain links already."""
    links = np.asarray(given)
    if links.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if links.ndim != 2 or links.shape[1] != 2 or links.dtype.kind not in "iu":
        raise InvalidInputError(
            f"X[{index}]: skip edges must be pairs of positions, got dtype {links.dtype} and "
            f"shape {links.shape}"
        )
    _require_positions(index, "skip edges must join", links, length)
    pairs: NDArray[np.int64] = np.unique(np.sort(links.astype(np.int64), axis=1), axis=0)
    distances = pairs[:, 1] - pairs[:, 0]
    is_apart = (distances > 1) | ((distances == 1) & np.isin(pairs[:, 1], breaks))
    kept: NDArray[np.int64] = pairs[is_apart]
    return kept


def _require_positions(index: int, what: str, given: NDArray[Any], length: int) -> None:
    if given.min() < 0 or given.max() >= length:
        wrong = given.min() if given.min() < 0 else given.max()
        raise InvalidInputError(f"X[{index}]: {what} positions 0..{length - 1}, got {wrong}")
