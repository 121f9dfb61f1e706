"""Scores of the seminar experiment: F1 of tokens and of whole fields.

The paper does not say what its F1 counts.  *Entities* are tagged fields, and right if both ends and
the field are; *tokens* are right if they have the right field, whether it begins there or not.
Micro-F1 pools the counts of the four fields, macro-F1 is the mean of their F1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from experiments.seminars_reader import FIELDS
from fieldfit.metrics import ChunkScore, chunk_scores

Labels = Sequence[Iterable[str]]


def field_scores(true: Labels, predicted: Labels) -> dict[str, float]:
    """F1 by level: ``entity_micro_f1``, ``entity_macro_f1``, ``entity_f1_stime``, ..., ``token_``.

    >>> scores = field_scores([["B-stime", "I-stime", "O"]], [["B-stime", "O", "O"]])
    >>> scores["entity_f1_stime"], round(scores["token_f1_stime"], 3)
    (0.0, 0.667)
    """
    found: dict[str, float] = {}
    for level, counted in (
        ("entity", chunk_scores(true, predicted)),
        ("token", token_scores(true, predicted)),
    ):
        by_field = [_f1(counted, name) for name in FIELDS]
        found[f"{level}_micro_f1"] = _f1(counted, "")
        found[f"{level}_macro_f1"] = sum(by_field) / len(FIELDS)
        for name, score in zip(FIELDS, by_field, strict=True):
            found[f"{level}_f1_{name}"] = score
    return found


def token_scores(true: Labels, predicted: Labels) -> dict[str, ChunkScore]:
    """Counts of tokens by field; the key ``""`` has those of all fields together."""
    counts = {name: [0, 0, 0] for name in ("", *FIELDS)}
    for given, guess in zip(true, predicted, strict=True):
        for wanted, label in zip(map(_field, given), map(_field, guess), strict=True):
            is_correct = wanted == label
            for column, name in ((0, wanted), (1, label), (2, wanted if is_correct else "")):
                if name:
                    counts[name][column] += 1
                    counts[""][column] += 1
    return {name: ChunkScore(*numbers) for name, numbers in counts.items()}


def _field(label: str) -> str:
    """The field of a label such as ``I-stime``; nothing for ``O``."""
    return str(label).partition("-")[2]


def _f1(counted: Mapping[str, ChunkScore], name: str) -> float:
    return counted[name].f1 if name in counted else 0.0
