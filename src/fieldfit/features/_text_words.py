"""Features of a word by itself, and of its neighbours in the sentence.

Texts repeat their words, so what depends on one word is made once and kept; the features of a
token are then a few merges of dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby

from fieldfit._validation import require_integer, shown
from fieldfit.errors import InvalidInputError

__all__ = ["Features", "WordReader", "is_capitalised", "shape_of", "word_shape"]

#: Features of a token: a text under a key is a category, ``True`` a mark that the token bears.
Features = dict[str, str | bool]

#: Words whose features are kept: more than the vocabulary of a year of a newspaper.
KEPT = 2**17
#: What stands beyond the ends of a sentence.
BEFORE, BEHIND = "<s>", "</s>"


def word_shape(word: str, max_run: int = 4) -> str:
    """Kinds of characters in a word: ``X`` upper, ``x`` lower case, ``d`` digit, others as is.

    Of a run of one kind, ``max_run`` characters are kept: with 1 the shape says only which kinds
    follow each other.

    Parameters
    ----------
    word
        The word.
    max_run
        Characters that are kept of a run of one kind.

    Returns
    -------
    str
        The shape.

    Examples
    --------
    >>> word_shape("McDonald"), word_shape("1996-08-22"), word_shape("U.N.")
    ('XxXxxxx', 'dddd-dd-dd', 'X.X.')
    >>> word_shape("McDonald", max_run=1)
    'XxXx'
    """
    if not isinstance(word, str):
        raise InvalidInputError(f"word must be a text, got {shown(word)}")
    require_integer("max_run", max_run, at_least=1)
    return shape_of(word, max_run)


@lru_cache(maxsize=KEPT)
def shape_of(word: str, max_run: int = 4) -> str:
    """`word_shape` of a text, kept because texts repeat their words."""
    kinds = (
        "X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word
    )
    return "".join(kind * min(len(list(run)), max_run) for kind, run in groupby(kinds))


def is_capitalised(word: str) -> bool:
    """Whether the first character is a capital letter."""
    return word[:1].isupper()


class WordReader:
    """Features of words and their neighbours, for some of the options of `TextFeatures`."""

    def __init__(
        self, *, word: bool, lower: bool, shape: bool, prefixes: int, suffixes: int, ngrams: int
    ) -> None:
        self.word = word
        self.lower = lower
        self.shape = shape
        self.prefixes = prefixes
        self.suffixes = suffixes
        self.ngrams = ngrams
        #: ``own(word)``: of the token itself.  What is kept is shared: copy, never change it.
        self.own: Callable[[str], Features] = lru_cache(maxsize=KEPT)(self._own)
        #: ``neighbour(word, distance)``: of the token at a distance such as ``"[-1]"``.
        self.neighbour: Callable[[str, str], Features] = lru_cache(maxsize=KEPT)(self._neighbour)

    def _own(self, word: str) -> Features:
        features: Features = {"bias": True}
        if self.word:
            features["w"] = word
        if self.lower:
            features["lower"] = word.lower()
        if self.shape:
            features["shape"] = shape_of(word)
            features["form"] = shape_of(word, 1)
        # a prefix or suffix that is the whole word says nothing new
        for length in range(1, min(self.prefixes, len(word) - 1) + 1):
            features[f"prefix{length}"] = word[:length]
        for length in range(1, min(self.suffixes, len(word) - 1) + 1):
            features[f"suffix{length}"] = word[-length:]
        marked = f"<{word}>"
        for length in range(2, self.ngrams + 1):
            for start in range(len(marked) - length + 1):
                features[f"ngram:{marked[start : start + length]}"] = True
        return features

    def _neighbour(self, word: str, distance: str) -> Features:
        features: Features = {}
        if self.word:
            features[f"w{distance}"] = word
        if self.lower:
            features[f"lower{distance}"] = word.lower()
        if self.shape:
            features[f"shape{distance}"] = shape_of(word)
        return features


def add_window(
    features: Sequence[Features], words: Sequence[str], window: int, reader: WordReader
) -> None:
    """Add what stands up to ``window`` places before and behind every token."""
    length = len(words)
    for distance in range(1, window + 1):
        before, behind = f"[-{distance}]", f"[+{distance}]"
        for position, token in enumerate(features):
            near = position - distance
            token.update(reader.neighbour(words[near] if near >= 0 else BEFORE, before))
            near = position + distance
            token.update(reader.neighbour(words[near] if near < length else BEHIND, behind))


def add_tags(
    features: Sequence[Features], name: str, tags: Sequence[str], window: int, conjunctions: bool
) -> None:
    """Add the tags of the tokens in a window, and the pairs and the triple around the token."""
    padded = [BEFORE] * window + list(tags) + [BEHIND] * window
    for distance in range(-window, window + 1):
        key = f"{name}[{distance:+d}]" if distance else name
        for token, tag in zip(features, padded[window + distance :], strict=False):
            token[key] = tag
    if conjunctions:
        add_conjunctions(features, name, tags)


def add_conjunctions(features: Sequence[Features], name: str, values: Sequence[str]) -> None:
    """Add pairs of a token's value with those of its neighbours, and the triple of all three."""
    padded = [BEFORE, *values, BEHIND]
    left, right, both = f"{name}[-1]|{name}", f"{name}|{name}[+1]", f"{name}[-1]|{name}|{name}[+1]"
    for token, before, own, behind in zip(features, padded, values, padded[2:], strict=False):
        token[left] = f"{before}|{own}"
        token[right] = f"{own}|{behind}"
        token[both] = f"{before}|{own}|{behind}"


def add_mixed_conjunctions(
    features: Sequence[Features], shapes: Sequence[str], words: Sequence[str]
) -> None:
    """Add pairs of a token's shape with the words beside it, and of a word with its neighbours."""
    padded = [BEFORE, *words, BEHIND]
    for token, shape, before, own, behind in zip(
        features, shapes, padded, words, padded[2:], strict=False
    ):
        token["lower[-1]|lower"] = f"{before}|{own}"
        token["lower|lower[+1]"] = f"{own}|{behind}"
        token["lower[-1]|shape"] = f"{before}|{shape}"
        token["shape|lower[+1]"] = f"{shape}|{behind}"


def add_nearby(features: Sequence[Features], words: Sequence[str], reach: int) -> None:
    """Mark the words up to ``reach`` places before and behind, without saying how far they are."""
    before = [f"before:{word}" for word in words]
    behind = [f"behind:{word}" for word in words]
    for position, token in enumerate(features):
        token.update(dict.fromkeys(before[max(position - reach, 0) : position], True))
        token.update(dict.fromkeys(behind[position + 1 : position + 1 + reach], True))
