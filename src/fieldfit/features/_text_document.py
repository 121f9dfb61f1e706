"""Features that a token owes to the rest of its document.

What is unclear in one place is often clear in another: a name at the beginning of a sentence is
known by its capital in the middle of the next, and ``Blackburn`` by a ``Peter Blackburn`` further
up.  The ideas are those of Chieu and Ng, "Named entity recognition with a maximum entropy
approach", CoNLL (2003); no list of names or titles is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from fieldfit.features._text_words import BEFORE, BEHIND, Features, is_capitalised, shape_of

__all__ = [
    "add_acronyms",
    "add_context",
    "add_place",
    "add_runs",
    "add_spelling",
    "add_topic",
    "add_truecase",
]

Sentences = Sequence[Sequence[str]]
#: Sentences from this one on count as the body of the document.
BODY = 3
#: Runs of capitalised words of this length or more are alike, ...
LONG_RUN = 4
#: ... and so are words in them with this many or more before them, or behind.
FAR = 2
#: Words that may stand inside a name without a letter in its acronym.
LINKING = frozenset(("of", "the", "and", "for", "in", "on", "&"))


def is_shouted(words: Sequence[str]) -> bool:
    """Whether a sentence has no lower-case letter, so that capitals in it mean nothing."""
    return not any(character.islower() for word in words for character in word)


def add_place(features: Sequence[Sequence[Features]], sentences: Sentences) -> None:
    """Where in the document the sentence stands, and whether it is in capitals throughout."""
    for number, (tokens, words) in enumerate(zip(features, sentences, strict=True)):
        place = str(number) if number < BODY else "body"
        if is_shouted(words):
            place += " capitals"
        for token, word in zip(tokens, words, strict=True):
            token["place"] = place
            token["place|shape"] = f"{place}|{shape_of(word)}"


def add_topic(features: Sequence[Sequence[Features]], sentences: Sentences) -> None:
    """The first word of the document, for capitalised tokens: news begin with their section."""
    topic = next((words[0] for words in sentences if words), "")
    for tokens, words in zip(features, sentences, strict=True):
        for token, word in zip(tokens, words, strict=True):
            if is_capitalised(word):
                token["topic"] = topic


def add_spelling(features: Sequence[Sequence[Features]], sentences: Sentences) -> None:
    """How the word is written in the whole document, where its sentence leaves a choice."""
    seen: dict[str, Features] = {}
    counts: dict[str, int] = {}
    for words in sentences:
        shouted = is_shouted(words)
        for position, word in enumerate(words):
            key = word.lower()
            counts[key] = counts.get(key, 0) + 1
            if not word[:1].isalpha():
                continue
            marks = seen.setdefault(key, {})
            if shouted:
                marks["document:headline"] = True
            elif word[0].islower():
                marks["document:lower"] = True
            elif position:
                marks["document:capitalised"] = True
            if not shouted and len(word) > 1 and word.isupper():
                marks["document:capitals"] = True
    for tokens, words in zip(features, sentences, strict=True):
        for token, word in zip(tokens, words, strict=True):
            key = word.lower()
            token.update(seen.get(key, {}))
            if counts[key] == 1:
                token["document:once"] = True


def add_truecase(features: Sequence[Sequence[Features]], sentences: Sentences) -> None:
    """The spelling of a word within sentences, where its own place in a sentence hides it.

    At the beginning of a sentence, and in one of capitals, that is the commonest spelling within
    the other sentences of the document (and its shape, ``?`` if there is none); elsewhere the
    word itself.
    """
    spellings: dict[str, Counter[str]] = {}
    for words in sentences:
        if not is_shouted(words):
            for word in words[1:]:
                spellings.setdefault(word.lower(), Counter())[word] += 1
    for tokens, words in zip(features, sentences, strict=True):
        shouted = is_shouted(words)
        for position, (token, word) in enumerate(zip(tokens, words, strict=True)):
            true = word
            if is_capitalised(word) and (shouted or not position):
                found = spellings.get(word.lower())
                if found:
                    # of equally common ones the first in the document
                    true = found.most_common(1)[0][0]
                token["true shape"] = shape_of(true) if found else "?"
            token["true"] = true


def add_context(features: Sequence[Sequence[Features]], sentences: Sentences) -> None:
    """Words beside all occurrences of a capitalised word that occurs more than once."""
    contexts: dict[str, list[Features]] = {}
    for words in sentences:
        padded = [BEFORE, *map(str.lower, words), BEHIND]
        for word, before, key, behind in zip(words, padded, padded[1:], padded[2:], strict=False):
            if is_capitalised(word):
                near: Features = {f"document[-1]:{before}": True, f"document[+1]:{behind}": True}
                contexts.setdefault(key, []).append(near)
    merged = {
        key: {name: True for near in found for name in near}
        for key, found in contexts.items()
        if len(found) > 1
    }
    for tokens, words in zip(features, sentences, strict=True):
        for token, word in zip(tokens, words, strict=True):
            if is_capitalised(word):
                token.update(merged.get(word.lower(), {}))


def add_runs(features: Sequence[Sequence[Features]], sentences: Sentences) -> None:
    """Runs of capitalised words that a word stands in, anywhere in the document.

    Their first and last words, their lengths, and where in them the word stands: a ``Blackburn``
    alone is somebody where there is a ``Peter Blackburn``, and a club by ``Blackburn Rovers``.
    """
    runs: dict[str, Features] = {}
    for words in sentences:
        if is_shouted(words):
            continue
        for is_name, run in groupby(words, is_capitalised):
            name = [word.lower() for word in run] if is_name else []
            if len(name) < 2:
                continue
            whole: Features = {
                f"run first:{name[0]}": True,
                f"run last:{name[-1]}": True,
                f"run length:{min(len(name), LONG_RUN)}": True,
            }
            for position, word in enumerate(name):
                place = f"run place:{min(position, FAR)}/{min(len(name) - 1 - position, FAR)}"
                runs.setdefault(word, {}).update({**whole, place: True})
    for tokens, words in zip(features, sentences, strict=True):
        for token, word in zip(tokens, words, strict=True):
            if is_capitalised(word):
                token.update(runs.get(word.lower(), {}))


def add_acronyms(features: Sequence[Sequence[Features]], sentences: Sentences) -> None:
    """Mark acronyms that the document spells out, and the words that they stand for."""
    capitals = {
        word
        for words in sentences
        for word in words
        if len(word) > 1 and word.isalpha() and word.isupper()
    }
    if not capitals:
        return
    explained: set[str] = set()
    spelt_out: set[str] = set()
    for words in sentences:
        if is_shouted(words):
            continue
        for run in _capitalised_runs(words):
            initials = "".join(word[0] for word in run)
            for first in range(len(run) - 1):
                for last in range(first + 2, len(run) + 1):
                    if initials[first:last] in capitals:
                        explained.add(initials[first:last])
                        spelt_out.update(run[first:last])
    for tokens, words in zip(features, sentences, strict=True):
        for token, word in zip(tokens, words, strict=True):
            if word in explained:
                token["acronym"] = True
            if word in spelt_out:
                token["spelt out"] = True


def _capitalised_runs(words: Sequence[str]) -> Iterator[list[str]]:
    """Capitalised words that follow each other; a linking word does not interrupt."""
    run: list[str] = []
    for word, following in pairwise([*words, ""]):
        if is_capitalised(word):
            run.append(word)
        elif not (run and word in LINKING and is_capitalised(following)):
            if len(run) > 1:
                yield run
            run = []
    if len(run) > 1:
        yield run
