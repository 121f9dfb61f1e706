"""Attributes of tokens from column files: words and tags in a window, and spelling.

The first column is the word (``w``), the second usually its part of speech (``pos``), further ones
are ``c3``, ``c4``, ...  ``pos[-1]|pos[0]=DT|NN`` says that the token is an ``NN`` after a ``DT``.
With a window of 2, ``"window"`` gives the attributes that are usual for chunking (those of
CRFsuite's tutorial): words from two before to two behind, pairs of the word with its neighbours,
and tags in the same window with all their pairs and triples.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["FEATURES", "token_attributes"]

#: ``plain``: the token's own columns; ``window``: see above; ``spelling``: also affixes and shape.
FEATURES = ("plain", "window", "spelling")

#: Longest prefix and suffix.
MAX_AFFIX = 4
_SHAPES = ((re.compile(r"[A-Z]+"), "A"), (re.compile(r"[a-z]+"), "a"), (re.compile(r"[0-9]+"), "0"))


def token_attributes(rows: Sequence[Sequence[str]], features: str, window: int) -> list[list[str]]:
    """Names of the attributes of each token of one sequence, from its columns.

    >>> token_attributes([["the", "DT"], ["dog", "NN"]], "plain", 0)
    [['w[0]=the', 'pos[0]=DT'], ['w[0]=dog', 'pos[0]=NN']]
    """
    n_tokens = len(rows)
    attributes: list[list[str]] = [[] for _ in range(n_tokens)]
    for number, column in enumerate(zip(*rows, strict=True)):
        name = ("w", "pos")[number] if number < 2 else f"c{number + 1}"
        if features == "plain":
            for found, value in zip(attributes, column, strict=True):
                found.append(f"{name}[0]={value}")
            continue
        _add_runs(attributes, name, column, 1, range(-window, window + 1))
        if number == 0:
            _add_runs(attributes, name, column, 2, range(-min(window, 1), min(window, 1)))
        else:
            _add_runs(attributes, name, column, 2, range(-window, window))
            _add_runs(attributes, name, column, 3, range(-window, window - 1))
    if features == "spelling":
        for found, row in zip(attributes, rows, strict=True):
            found.extend(_spelling(row[0]))
    if features != "plain" and n_tokens:
        attributes[0].append("__BOS__")
        attributes[-1].append("__EOS__")
    return attributes


def _add_runs(
    attributes: list[list[str]], name: str, column: Sequence[str], length: int, offsets: range
) -> None:
    """Values of ``length`` neighbouring tokens, the first of them at each offset."""
    runs = ["|".join(run) for run in zip(*(column[k:] for k in range(length)), strict=False)]
    for offset in offsets:
        label = "|".join(f"{name}[{offset + k}]" for k in range(length)) + "="
        # token t has the run that begins at t + offset, if that lies inside the sequence
        for t in range(max(0, -offset), min(len(column), len(runs) - offset)):
            attributes[t].append(label + runs[t + offset])


def _spelling(word: str) -> list[str]:
    """Affixes, shape (``Xaver-7`` is ``Aa-0``) and lower case of a word."""
    shape = word
    for pattern, letter in _SHAPES:
        shape = pattern.sub(letter, shape)
    longest = min(MAX_AFFIX, len(word) - 1)
    return [
        f"lower={word.lower()}",
        f"shape={shape}",
        *(f"prefix={word[:k]}" for k in range(1, longest + 1)),
        *(f"suffix={word[-k:]}" for k in range(1, longest + 1)),
    ]
