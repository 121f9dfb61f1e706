"""Features of tokens in texts, as dictionaries that `ChainCRF` and `SkipChainCRF` take.

Words, spelling, tags and neighbours as in Finkel, Grenager and Manning, "Incorporating non-local
information into information extraction systems by Gibbs sampling", ACL (2005); what a token owes
to the rest of its document in the spirit of Chieu and Ng, "Named entity recognition with a maximum
entropy approach", CoNLL (2003); links between equal words as in Sutton and McCallum, "Collective
segmentation and labeling of distant entities in information extraction" (2004).  Nothing but the
text itself is used: no lists of names, no word vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import chain, combinations, pairwise
from typing import Any

from fieldfit._validation import (
    require_flag,
    require_instance,
    require_integer,
    require_list,
    require_sequence_of,
    require_texts,
    shown,
)
from fieldfit.errors import InvalidInputError
from fieldfit.features._text_document import (
    add_acronyms,
    add_context,
    add_place,
    add_runs,
    add_spelling,
    add_topic,
    add_truecase,
)
from fieldfit.features._text_words import (
    Features,
    WordReader,
    add_conjunctions,
    add_mixed_conjunctions,
    add_nearby,
    add_tags,
    add_window,
    is_capitalised,
    shape_of,
    word_shape,
)

__all__ = [
    "Features",
    "TextFeatures",
    "document_features",
    "drop_rare",
    "repeated_capitalised",
    "sentence_features",
    "word_shape",
]

#: Capitalised words that say nothing about each other when they are repeated.
COMMON_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "from", "had", "has", "have",
    "he", "her", "his", "if", "in", "is", "it", "its", "my", "no", "not", "of", "on", "or", "our",
    "she", "so", "that", "the", "their", "there", "these", "they", "this", "those", "to", "was",
    "we", "were", "what", "when", "where", "which", "while", "who", "will", "with", "would", "you",
    "your",
))  # fmt: skip


@dataclass(frozen=True)
class TextFeatures:
    """Which features tokens get; every option stands by itself.

    Parameters
    ----------
    word, lower
        The word; the word in lower case.
    shape
        Kinds of characters (`word_shape`), with runs cut at four and at one.
    prefixes, suffixes
        Beginnings and ends of the word, up to this length.
    ngrams
        All character sequences of two to this many characters, ends of the word marked; 0 for none.
    window
        How many neighbours on either side give their word, lower case, shape and tags.
    conjunctions
        Pairs of the word, the shape and the tags with those of the next neighbours, and triples.
    nearby
        Words up to this distance before and behind, whatever their distance.
    place
        Number of the sentence in the document (of the first ones), and whether it is in capitals.
    topic
        First word of the document, for capitalised tokens.
    spelling
        Whether the document has the word in lower case, capitalised within a sentence, in
        capitals, in a sentence of capitals, or only once.
    truecase
        How the document writes the word within sentences, for words at the beginning of a sentence
        and in sentences of capitals; other words are taken as they are.
    context
        Words beside the other occurrences of a capitalised word in the document.
    runs
        First and last words, lengths and places of the runs of capitalised words that a
        capitalised word stands in, anywhere in the document.
    acronyms
        Acronyms that the document spells out, and the words that they stand for.
    """

    word: bool = True
    lower: bool = True
    shape: bool = True
    prefixes: int = 6
    suffixes: int = 6
    ngrams: int = 0
    window: int = 2
    conjunctions: bool = True
    nearby: int = 4
    place: bool = True
    topic: bool = True
    spelling: bool = True
    truecase: bool = True
    context: bool = True
    runs: bool = True
    acronyms: bool = True

    def __post_init__(self) -> None:
        for option in fields(self):
            if isinstance(option.default, bool):
                require_flag(option.name, getattr(self, option.name))
            else:
                require_integer(option.name, getattr(self, option.name), at_least=0)


def sentence_features(
    words: Sequence[str],
    *,
    tags: dict[str, Sequence[str]] | None = None,
    options: TextFeatures = TextFeatures(),
) -> list[Features]:
    """Features of the tokens of one sentence, without those that need a document.

    Parameters
    ----------
    words
        The tokens.
    tags
        Further columns by their name, with one text for each token, such as parts of speech
        (``"pos"``) and chunks.
    options
        Which features.

    Returns
    -------
    list of dicts
        One for each token.

    Examples
    --------
    >>> few = TextFeatures(prefixes=0, suffixes=1, window=1, conjunctions=False, nearby=0)
    >>> tokens = sentence_features(["Ann", "ran"], tags={"pos": ["NNP", "VBD"]}, options=few)
    >>> tokens[0]["w"], tokens[0]["shape"], tokens[0]["pos[+1]"], tokens[0]["w[-1]"]
    ('Ann', 'Xxx', 'VBD', '<s>')
    """
    require_texts("words", words)
    require_instance("options", options, TextFeatures, "TextFeatures()")
    columns = _columns(tags)
    for name, column in columns.items():
        require_texts(f"tags[{name!r}]", column)
    return _sentence_features(words, columns, options)


def _columns(tags: Any) -> dict[str, Any]:
    """Further columns by their name, none if there are none."""
    columns = {} if tags is None else tags
    if not (isinstance(columns, dict) and all(isinstance(name, str) for name in columns)):
        raise InvalidInputError(f"tags must be columns by their name, got {shown(tags)}")
    return columns


def _sentence_features(
    words: Sequence[str], tags: dict[str, Sequence[str]], options: TextFeatures
) -> list[Features]:
    reader = _reader(options)
    features = [dict(reader.own(word)) for word in words]
    folded = [word.lower() for word in words]
    add_window(features, words, options.window, reader)
    if options.conjunctions:
        shapes = [shape_of(word) for word in words]
        add_conjunctions(features, "shape", shapes)
        add_mixed_conjunctions(features, shapes, folded)
    for name, column in tags.items():
        if len(column) != len(words):
            raise InvalidInputError(
                f"tags[{name!r}] must have one entry for each of the {len(words)} words, "
                f"got {len(column)}"
            )
        add_tags(features, name, column, options.window, options.conjunctions)
    if options.nearby:
        add_nearby(features, folded, options.nearby)
    return features


def document_features(
    sentences: Sequence[Sequence[str]],
    *,
    tags: dict[str, Sequence[Sequence[str]]] | None = None,
    options: TextFeatures = TextFeatures(),
) -> list[list[Features]]:
    """Features of the tokens of each sentence of one document.

    Parameters
    ----------
    sentences
        The tokens of each sentence.
    tags
        Further columns by their name, sentence by sentence as the tokens.
    options
        Which features.

    Returns
    -------
    list of lists of dicts
        One dictionary for each token of each sentence.

    Examples
    --------
    >>> document = [["Peter", "Blackburn"], ["Yesterday", "Blackburn", "slept"]]
    >>> first, second = document_features(document)
    >>> second[1]["document[-1]:peter"], second[0]["document:once"]
    (True, True)
    """
    require_list("sentences", sentences, "sentences")
    require_instance("options", options, TextFeatures, "TextFeatures()")
    for number, words in enumerate(sentences):
        require_texts(f"sentences[{number}]", words)
    columns = _columns(tags)
    for name, column in columns.items():
        require_list(f"tags[{name!r}]", column, "tags of sentences")
        if len(column) != len(sentences):
            raise InvalidInputError(
                f"tags[{name!r}] must have one entry for each of the {len(sentences)} sentences, "
                f"got {len(column)}"
            )
        for number, tags_of_words in enumerate(column):
            require_texts(f"tags[{name!r}][{number}]", tags_of_words)
    features = [
        _sentence_features(
            words, {name: column[number] for name, column in columns.items()}, options
        )
        for number, words in enumerate(sentences)
    ]
    for chosen, add in (
        (options.place, add_place),
        (options.topic, add_topic),
        (options.spelling, add_spelling),
        (options.truecase, add_truecase),
        (options.context, add_context),
        (options.runs, add_runs),
        (options.acronyms, add_acronyms),
    ):
        if chosen:
            add(features, sentences)
    return features


def repeated_capitalised(
    words: Sequence[str],
    *,
    max_links: int = 10,
    exclude: Iterable[str] = COMMON_WORDS,
    fold: bool = False,
) -> list[tuple[int, int]]:
    """Pairs of positions with the same capitalised word: skip edges of a document.

    Parameters
    ----------
    words
        All tokens of a document.
    max_links
        Most occurrences that are linked pair by pair; of more, each is linked to the next.
    exclude
        Words, in lower case, that are never linked; also single characters.
    fold
        Whether ``GERMANY`` is linked to ``Germany``.

    Returns
    -------
    list of pairs
        Positions ``(i, j)``, ``i < j``.

    Examples
    --------
    >>> repeated_capitalised("The bank said Bank of Spain is the Bank".split())
    [(3, 8)]
    """
    require_texts("words", words)
    require_integer("max_links", max_links, at_least=2)
    require_flag("fold", fold)
    excluded = _excluded(exclude)
    groups: dict[str, list[int]] = {}
    for position, word in enumerate(words):
        if len(word) > 1 and is_capitalised(word) and word.lower() not in excluded:
            groups.setdefault(word.lower() if fold else word, []).append(position)
    pairs = (
        combinations(group, 2) if len(group) <= max_links else pairwise(group)
        for group in groups.values()
    )
    return sorted(chain.from_iterable(pairs))


def _excluded(exclude: Any) -> frozenset[str]:
    if isinstance(exclude, (str, bytes, dict)) or not isinstance(exclude, Iterable):
        raise InvalidInputError(f"exclude must be words, got {shown(exclude)}")
    words = list(exclude)
    require_texts("exclude", words)
    return frozenset(words)


def drop_rare(sequences: Sequence[Sequence[dict[str, Any]]], min_count: int = 2) -> list[Any]:
    """Sequences of feature dictionaries without features that fewer than ``min_count`` tokens have.

    A feature that occurs once only helps a model to remember its training data.

    Parameters
    ----------
    sequences
        Of feature dictionaries.
    min_count
        Tokens that must have a feature.

    Returns
    -------
    list
        The same sequences, with fewer features.

    Examples
    --------
    >>> drop_rare([[{"w": "a", "x": True}, {"w": "b", "x": True}]])
    [[{'x': True}, {'x': True}]]
    """
    require_list("sequences", sequences, "sequences of tokens")
    require_integer("min_count", min_count, at_least=1)
    counts: Counter[tuple[str, Any]] = Counter()
    for number, tokens in enumerate(sequences):
        require_sequence_of(f"sequences[{number}]", tokens, dict, "{'w': 'word'}")
        for position, token in enumerate(tokens):
            try:
                counts.update(token.items())
            except TypeError:
                raise InvalidInputError(
                    f"sequences[{number}][{position}] must have texts, numbers or truth values as "
                    f"features, got {shown(token)}"
                ) from None
    rare = {item for item, count in counts.items() if count < min_count}
    return [
        [dict(item for item in token.items() if item not in rare) for token in tokens]
        for tokens in sequences
    ]


@lru_cache(maxsize=8)
def _reader(options: TextFeatures) -> WordReader:
    return WordReader(
        word=options.word,
        lower=options.lower,
        shape=options.shape,
        prefixes=options.prefixes,
        suffixes=options.suffixes,
        ngrams=options.ngrams,
    )
