"""Seminar mails for cross-validation, alike for all experiments on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.seminars_reader import SeminarMail, read_seminars
from fieldfit.features.text import Features, drop_rare

__all__ = [
    "FILE",
    "Example",
    "FoldDesign",
    "Folds",
    "Split",
    "describe_folds",
    "in_matrices",
    "mail_folds",
    "split_mails",
    "without_links",
]

Links = list[tuple[int, int]]
#: Features of the tokens of a mail, and pairs of tokens that are linked.
Example = tuple[list[Features], Links]
#: Where the mails are in the folder of data sets.
FILE = Path("seminars", "seminars.jsonl.gz")


class FoldDesign(Protocol):
    """How many mails are used (``None``: all), in how many parts, how many of which are tested."""

    @property
    def n_mails(self) -> int | None: ...

    @property
    def n_folds(self) -> int: ...

    @property
    def n_runs(self) -> int: ...


def mail_folds(n_mails: int, design: FoldDesign, seed: int) -> list[NDArray[np.intp]]:
    """Which mails are in which fold: random, each in one, sizes differ by one at most."""
    order = np.random.default_rng(seed).permutation(n_mails)[: design.n_mails]
    return [np.sort(fold) for fold in np.array_split(order, design.n_folds)]


@dataclass(frozen=True)
class Folds:
    """Mails in the order of their folds, and where folds end."""

    mails: list[SeminarMail]
    sizes: list[int]

    @classmethod
    def read(cls, data: Path, design: FoldDesign, seed: int) -> Folds:
        """The mails of a folder of data sets, in random folds."""
        mails = read_seminars(data / FILE)
        folds = mail_folds(len(mails), design, seed)
        return cls([mails[index] for index in np.concatenate(folds)], [len(fold) for fold in folds])

    def of(self, fold: int) -> slice:
        """The mails of one fold."""
        begin = sum(self.sizes[:fold])
        return slice(begin, begin + self.sizes[fold])


def describe_folds(design: FoldDesign) -> str:
    """How mails are split, for a report."""
    share = f"{design.n_folds} random parts"
    if design.n_runs == design.n_folds:
        return f"They are split into {share}, each of which is the test set once."
    return f"They are split into {share}, of which {design.n_runs} serves as test set."


@dataclass(frozen=True)
class Split:
    """What to learn from, and what to test on: pairs of features and links, and labels."""

    training: list[Any]
    training_labels: list[list[Any]]
    test: list[Any]
    test_labels: list[list[Any]]


def split_mails(
    examples: list[Example], labels: list[list[Any]], test: slice, min_count: int
) -> Split:
    """All but a slice for training, without the features that are rare there."""
    training = examples[: test.start] + examples[test.stop :]
    kept = drop_rare(without_links(training), min_count)
    return Split(
        training=[(tokens, links) for tokens, (_, links) in zip(kept, training, strict=True)],
        training_labels=labels[: test.start] + labels[test.stop :],
        test=examples[test],
        test_labels=labels[test],
    )


def in_matrices(split: Split) -> Split:
    """The same with sparse matrices, which an estimator reads faster than dictionaries.

    Columns are the features of the training mails; those of test mails that are none are dropped.
    """
    columns: dict[str, int] = {}
    for tokens, _ in split.training:
        for token in tokens:
            for name in _names(token):
                columns.setdefault(name, len(columns))
    return replace(
        split,
        training=[(_matrix(tokens, columns), links) for tokens, links in split.training],
        test=[(_matrix(tokens, columns), links) for tokens, links in split.test],
    )


def _matrix(tokens: Sequence[Features], columns: Mapping[str, int]) -> Any:
    from scipy.sparse import csr_matrix

    found = [[columns[name] for name in _names(token) if name in columns] for token in tokens]
    offsets = np.cumsum([0, *map(len, found)])
    indices = np.array([column for row in found for column in row], dtype=np.int64)
    return csr_matrix((np.ones(len(indices)), indices, offsets), (len(tokens), len(columns)))


def _names(token: Features) -> Iterator[str]:
    """One name for each feature: those with a value have it in their name."""
    for name, value in token.items():
        if isinstance(value, str):
            yield f"{name}:{value}"
        elif value:
            yield name


def without_links(examples: Sequence[Example]) -> list[list[Features]]:
    """The features alone."""
    return [tokens for tokens, _ in examples]
