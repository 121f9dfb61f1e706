"""Scores of predictions beyond accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fieldfit._validation import require_list, shown
from fieldfit.errors import InvalidInputError

__all__ = ["ChunkScore", "chunk_f1", "chunk_scores", "chunks"]


@dataclass(frozen=True)
class ChunkScore:
    """How many chunks there are, were predicted, and were predicted exactly.

    Parameters
    ----------
    n_true, n_predicted, n_correct
        The three numbers.

    Examples
    --------
    >>> score = ChunkScore(n_true=4, n_predicted=5, n_correct=2)
    >>> score.precision, score.recall
    (0.4, 0.5)
    """

    n_true: int
    n_predicted: int
    n_correct: int

    @property
    def precision(self) -> float:
        """Share of predicted chunks that are right (0 if there are none)."""
        return self.n_correct / self.n_predicted if self.n_predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of true chunks that were found (0 if there are none)."""
        return self.n_correct / self.n_true if self.n_true else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.n_true + self.n_predicted
        return 2.0 * self.n_correct / total if total else 0.0


def chunks(labels: Iterable[Any]) -> set[tuple[int, int, str]]:
    """Begin, end and type of the chunks of one sequence of labels ``B-type``, ``I-type``, ``O``.

    The rules of the CoNLL shared tasks: a chunk begins at ``B``, and also at ``I`` after ``O`` or
    after another type, so files in the older IOB notation mean the same.  ``E`` and ``S`` (last
    token, single token) are understood too; a missing label (``None``) is ``O``.

    Parameters
    ----------
    labels
        Of one sequence.

    Returns
    -------
    set of tuples
        ``(begin, end, type)``.

    Examples
    --------
    >>> sorted(chunks(["B-NP", "I-NP", "I-VP", "O", "B-NP", "B-NP"]))
    [(0, 2, 'NP'), (2, 3, 'VP'), (4, 5, 'NP'), (5, 6, 'NP')]
    """
    return _chunks("labels", labels)


def _chunks(name: str, labels: Iterable[Any]) -> set[tuple[int, int, str]]:
    if isinstance(labels, (str, bytes, dict)) or not isinstance(labels, Iterable):
        raise InvalidInputError(f"{name} must be a sequence of labels, got {shown(labels)}")
    found: set[tuple[int, int, str]] = set()
    begin = 0
    kind: str | None = None  # of the chunk that is open, if any
    closed = False
    position = -1
    for position, label in enumerate(labels):
        if not (label is None or isinstance(label, str)):
            raise InvalidInputError(f"{name}[{position}] must be a text, got {shown(label)}")
        mark, _, new_kind = ("O" if label is None else label).partition("-")
        inside = mark != "O"
        if kind is not None and (not inside or closed or mark in "BS" or new_kind != kind):
            found.add((begin, position, kind))
            kind = None
        if inside and kind is None:
            begin, kind = position, new_kind
        closed = mark in "ES"
    if kind is not None:
        found.add((begin, position + 1, kind))
    return found


def chunk_scores(
    true: Sequence[Iterable[Any]], predicted: Sequence[Iterable[Any]]
) -> dict[str, ChunkScore]:
    """Scores by type of chunk, types sorted; the key ``""`` has those of all chunks together.

    Parameters
    ----------
    true, predicted
        Labels of each sequence.

    Returns
    -------
    dict
        A `ChunkScore` for each type.

    Examples
    --------
    >>> chunk_scores([["B-NP", "O"]], [["B-NP", "B-VP"]])["NP"].n_correct
    1
    """
    for name, sequences in (("true", true), ("predicted", predicted)):
        require_list(name, sequences, "sequences of labels")
    if len(true) != len(predicted):
        raise InvalidInputError(
            f"true and predicted must have one entry for each sequence, got {len(true)} and "
            f"{len(predicted)}"
        )
    counts: dict[str, list[int]] = {"": [0, 0, 0]}
    for index, (given, guess) in enumerate(zip(true, predicted, strict=True)):
        wanted = _chunks(f"true[{index}]", given)
        found = _chunks(f"predicted[{index}]", guess)
        for column, members in enumerate((wanted, found, wanted & found)):
            counts[""][column] += len(members)
            for _, _, kind in members:
                counts.setdefault(kind, [0, 0, 0])[column] += 1
    return {kind: ChunkScore(*counts[kind]) for kind in sorted(counts)}


def chunk_f1(true: Sequence[Iterable[Any]], predicted: Sequence[Iterable[Any]]) -> float:
    """F1 of exactly matching chunks over all sequences, by the rules of the CoNLL shared tasks.

    Parameters
    ----------
    true, predicted
        Labels of each sequence.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> chunk_f1([["B-NP", "I-NP", "O"]], [["B-NP", "I-NP", "B-VP"]])
    0.6666666666666666
    """
    return chunk_scores(true, predicted)[""].f1
