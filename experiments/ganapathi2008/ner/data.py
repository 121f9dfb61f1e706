"""CoNLL-2003 for ``camel-ner``: documents, their features and links, and scores of predictions.

The files have the columns word, part of speech, chunk and entity; a line ``-DOCSTART-`` begins a
document.  Reference: Tjong Kim Sang and De Meulder, "Introduction to the CoNLL-2003 shared task:
language-independent named entity recognition", CoNLL (2003).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

from fieldfit import InvalidInputError
from fieldfit.errors import FileFormatError
from fieldfit.features.text import TextFeatures, document_features, repeated_capitalised
from fieldfit.io import read_columns
from fieldfit.metrics import ChunkScore, chunk_scores, chunks

#: What begins a document in place of a word.
START = "-DOCSTART-"
#: Types of entities.
KINDS = ("LOC", "MISC", "ORG", "PER")
Example = tuple[list[dict[str, Any]], list[tuple[int, int]], list[int]]


@dataclass(frozen=True)
class Document:
    """Sentences of one article, column by column (that of chunks is not used)."""

    words: list[list[str]]
    pos: list[list[str]]
    entities: list[list[str]]

    @property
    def n_tokens(self) -> int:
        return sum(map(len, self.words))


def read_documents(folder: Path, part: str) -> list[Document]:
    """The documents of ``train``, ``testa`` or ``testb``."""
    path = folder / "conll2003" / f"eng.{part}.gz"
    if not path.exists():
        raise InvalidInputError(f"--data must hold the file conll2003/eng.{part}.gz, found none")
    documents: list[Document] = []
    for sentence in read_columns(path):
        if len(sentence[0]) != 4:
            raise FileFormatError(
                f"{path}: expected 4 columns (word, part of speech, chunk, entity), "
                f"found {len(sentence[0])}"
            )
        if sentence[0][0] == START or not documents:
            documents.append(Document([], [], []))
        if sentence[0][0] != START:
            words, pos, _, entities = (list(column) for column in zip(*sentence, strict=True))
            documents[-1].words.append(words)
            documents[-1].pos.append(pos)
            documents[-1].entities.append(entities)
    return [document for document in documents if document.words]


def examples(documents: Iterable[Document], options: TextFeatures, max_links: int) -> list[Example]:
    """For each document ``(tokens, skip edges, where sentences begin)``, as skip-chains take it."""
    found = []
    for document in documents:
        tokens = document_features(document.words, tags={"pos": document.pos}, options=options)
        words = list(chain.from_iterable(document.words))
        begins = list(accumulate(map(len, document.words[:-1])))
        links = repeated_capitalised(words, max_links=max_links)
        found.append((list(chain.from_iterable(tokens)), links, begins))
    return found


def begin_marked(labels: Sequence[str]) -> list[str]:
    """Labels of a sentence in the notation in which every entity begins with ``B``.

    The files mark a beginning only where an entity follows another of its type.

    >>> begin_marked(["I-PER", "I-PER", "O", "I-ORG", "B-ORG"])
    ['B-PER', 'I-PER', 'O', 'B-ORG', 'B-ORG']
    """
    begins = {begin for begin, _, _ in chunks(labels)}
    return [
        f"B-{label.partition('-')[2]}" if position in begins else label
        for position, label in enumerate(labels)
    ]


def model_labels(documents: Iterable[Document]) -> list[list[str]]:
    """Labels of all tokens of each document, as the model predicts them."""
    return [
        list(chain.from_iterable(map(begin_marked, document.entities))) for document in documents
    ]


def entity_scores(
    documents: Sequence[Document], predicted: Sequence[Sequence[str]]
) -> dict[str, float | None]:
    """F1 of whole entities by the rules of the shared task, and F1 of tokens in entities.

    ``predicted`` has the labels of all tokens of each document.  *Micro* counts all entities
    (tokens) together, *macro* is the mean over their types; a type that is nowhere has no score.
    """
    true_entities: list[list[str]] = []
    found_entities: list[list[str]] = []
    for document, labels in zip(documents, predicted, strict=True):
        remaining = iter(labels)
        for sentence in document.entities:
            true_entities.append(sentence)
            found_entities.append(list(islice(remaining, len(sentence))))
    entities = chunk_scores(true_entities, found_entities)
    # a token by itself is an entity of one token
    tokens = chunk_scores(_single_tokens(true_entities), _single_tokens(found_entities))
    return {
        "micro_f1": entities[""].f1,
        "macro_f1": _macro(entities),
        "token_micro_f1": tokens[""].f1,
        "token_macro_f1": _macro(tokens),
        **{f"f1_{kind.lower()}": entities[kind].f1 if kind in entities else None for kind in KINDS},
    }


def _single_tokens(sentences: Iterable[Sequence[str]]) -> list[list[str]]:
    return [
        [label if label == "O" else f"B-{label.partition('-')[2]}" for label in sentence]
        for sentence in sentences
    ]


def _macro(scores: dict[str, ChunkScore]) -> float:
    by_kind = [score.f1 for kind, score in scores.items() if kind]
    return sum(by_kind) / len(by_kind) if by_kind else 0.0
