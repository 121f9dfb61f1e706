"""Seminar mails for cross-validation, alike for all experiments on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.seminars_reader import SeminarMail, read_seminars
from fieldfit.estimators._chain_features import TokenFeatures, Vocabulary, read_items
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
    """The same with sparse matrices, which an estimator reads faster than dictionaries."""
    vocabulary = Vocabulary()
    training = read_items(without_links(split.training), vocabulary, grow=True)
    test = read_items(without_links(split.test), vocabulary)
    return replace(
        split,
        training=_matrices(training, [links for _, links in split.training]),
        test=_matrices(test, [links for _, links in split.test]),
    )


def _matrices(features: TokenFeatures, links: Sequence[Links]) -> list[tuple[Any, Links]]:
    from scipy.sparse import csr_matrix

    found = []
    for (begin, end), pairs in zip(pairwise(features.sequence_offsets), links, strict=True):
        offsets = features.offsets[begin : end + 1]
        indices = features.indices[offsets[0] : offsets[-1]]
        values = features.values[offsets[0] : offsets[-1]]
        if not features.values.size:
            values = np.ones(len(indices))
        shape = (end - begin, features.n_attributes)
        found.append((csr_matrix((values, indices, offsets - offsets[0]), shape), pairs))
    return found


def without_links(examples: Sequence[Example]) -> list[list[Features]]:
    """The features alone."""
    return [tokens for tokens, _ in examples]
