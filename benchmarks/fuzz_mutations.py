"""Mutations of files for `benchmarks.fuzz`: of bytes, of tokens, and of what is stored in JSON.

A mutation takes the content of a file that can be read and makes another one of it, by a random
generator alone, so that a seed gives the same mutant again.
"""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np

__all__ = ["mutated_bytes", "mutated_stored"]

#: Numbers and words that readers meet seldom.
TOKENS = (
    b"", b"0", b"-1", b"1", b"2", b"-0", b"+3", b"0.5", b"1e400", b"1e-400", b"-1e400", b"nan",
    b"inf", b"-inf", b"NaN", b"NA", b"None", b"null", b"true", b"1_0", b"0x10", b"1e", b"e5",
    b"--1", b"2147483647", b"2147483648", b"4294967296", b"9223372036854775808", b"1e18",
    b"1" * 40, b"1e" + b"9" * 30, b"1e-" + b"9" * 400, b"9" * 5000, b"0." + b"0" * 2000 + b"1",
    b"[]", b"{}",
    b'"', b"'", b",", b":", b"\\", b"#", b">", b"\t", b"\n\n", b"\r\n", b"\0", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\xc3", "ü".encode(), "😀".encode(),
)  # fmt: skip
#: Values that a stored entry may be replaced by.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 10**6, 10**30, 0.5, -2.5, 1e300, "", "a", "inf", [], [1], [[]],
    {}, {"a": 1}, {"class": "Exact"}, {"class": "os.system", "fields": {}}, {"tuple": 3},
    {"array": "nope"}, {"float": "nan"}, {"float": "x"}, {"dictionary": [1]}, {"texts": 5},
    {"class": "SumProduct", "fields": {"tol": -1}},
)  # fmt: skip
#: What stands between tokens, in one format or another.
SEPARATORS = tuple(bytes([one]) for one in b' \t\r\n,:=[]{}"')
#: Depth of nested brackets, beyond what parsers that call themselves can hold.
DEEP = 100_000
#: Bytes of a field that nobody wrote by hand.
LONG = 2**20


# -- bytes and tokens ----------------------------------------------------------------------------


def mutated_bytes(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """One to four mutations one after the other; ``other`` is a file to take pieces of."""
    for _ in range(int(rng.integers(1, 5))):
        data = _WAYS[int(rng.choice(len(_WAYS), p=_SHARES))](data, rng, other)
    return data


def _place(data: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(0, len(data) + 1))


def _span(data: bytes, rng: np.random.Generator) -> tuple[int, int]:
    first = _place(data, rng)
    return first, min(len(data), first + int(rng.geometric(0.1)))


def _token_span(data: bytes, rng: np.random.Generator) -> tuple[int, int]:
    """A run of bytes between separators."""
    place = _place(data, rng)
    first = 1 + max(data.rfind(one, 0, place) for one in SEPARATORS)
    found = [data.find(one, place) for one in SEPARATORS]
    return first, min((last for last in found if last >= 0), default=len(data))


def _flip(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    first = _place(data, rng)
    return data[:first] + bytes([int(rng.integers(256))]) + data[first + 1 :]


def _delete(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    first, last = _span(data, rng)
    return data[:first] + data[last:]


def _repeat(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    first, last = _span(data, rng)
    return data[:last] + data[first:last] * int(rng.integers(1, 20)) + data[last:]


def _truncate(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    return data[: _place(data, rng)]


def _splice(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    return data[: _place(data, rng)] + other[_place(other, rng) :]


def _replace_token(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    first, last = _token_span(data, rng)
    return data[:first] + TOKENS[int(rng.integers(len(TOKENS)))] + data[last:]


def _swap_tokens(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    (a, b), (c, d) = sorted([_token_span(data, rng), _token_span(data, rng)])
    return data if c < b else data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _mark(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    return (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\n", b" ")[int(rng.integers(5))] + data


def _compress(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    packed = gzip.compress(data, 1)
    return packed if rng.random() < 0.5 else packed[: _place(packed, rng)]


def _windows(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def _nest(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    first, last = _token_span(data, rng)
    return data[:first] + b"[" * DEEP + data[first:last] + b"]" * DEEP + data[last:]


def _stretch(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    first, last = _token_span(data, rng)
    return data[:last] + (data[first:last] or b"7")[-1:] * LONG + data[last:]


_WAYS = (
    *(_flip, _delete, _repeat, _truncate, _splice, _replace_token, _swap_tokens),
    *(_mark, _compress, _windows, _nest, _stretch),
)
_SHARES = np.array([14, 14, 10, 8, 8, 24, 12, 3, 3, 2, 1, 1]) / 100.0


# -- what is stored ------------------------------------------------------------------------------


def mutated_stored(
    content: Any, arrays: dict[str, np.ndarray], rng: np.random.Generator
) -> tuple[Any, dict[str, np.ndarray]]:
    """Another description and other arrays, as a forger would write them with a right digest."""
    for _ in range(int(rng.integers(1, 3))):
        if arrays and rng.random() < 0.4:
            arrays = _mutated_arrays(dict(arrays), rng)
        else:
            content = _mutated_tree(content, rng)
    return content, arrays


def _mutated_tree(tree: Any, rng: np.random.Generator) -> Any:
    """A copy in which one entry was replaced, dropped, or put in a list."""
    is_inner = isinstance(tree, (dict, list)) and len(tree) > 0
    if not is_inner or rng.random() < 0.15:
        kind = int(rng.integers(3))
        return [tree] if kind == 0 else VALUES[int(rng.integers(len(VALUES)))]
    if isinstance(tree, list):
        index = int(rng.integers(len(tree)))
        if rng.random() < 0.1:
            return tree[:index] + tree[index + 1 :]
        return [*tree[:index], _mutated_tree(tree[index], rng), *tree[index + 1 :]]
    name = sorted(tree)[int(rng.integers(len(tree)))]
    if rng.random() < 0.1:
        return {key: value for key, value in tree.items() if key != name}
    return {**tree, name: _mutated_tree(tree[name], rng)}


def _mutated_arrays(
    arrays: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    name = sorted(arrays)[int(rng.integers(len(arrays)))]
    array = arrays.pop(name)
    ways = (
        lambda: None,
        lambda: array[:-1] if array.ndim else array.reshape(1),
        lambda: array.reshape(-1),
        lambda: array[None],
        lambda: np.concatenate([array, array]) if array.ndim else array.reshape(1, 1),
        lambda: array.astype(np.float32),
        lambda: array.astype(np.int64),
        lambda: array.astype(bool),
        lambda: array + array.dtype.type(1) if array.dtype != bool else ~array,
        lambda: np.full_like(array, np.iinfo(array.dtype).max if array.dtype.kind in "iu" else 1),
        lambda: np.full_like(array, -1) if array.dtype.kind in "if" else array * 0,
        lambda: np.full(array.shape, np.nan),
        lambda: np.full(array.shape, 1e300),
        lambda: rng.permutation(array) if array.ndim else array,
    )
    with np.errstate(all="ignore"):
        changed = ways[int(rng.integers(len(ways)))]()
    return arrays if changed is None else {**arrays, name: changed}
