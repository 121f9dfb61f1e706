"""Reading and writing files."""

from fieldfit.io.fg import read_fg, write_fg
from fieldfit.io.uai import read_uai, write_uai
from fieldfit.io.uai_answers import (
    Answer,
    MapAnswer,
    MarginalAnswer,
    PartitionAnswer,
    format_answer,
    read_answer,
    read_evidence,
    write_answer,
    write_evidence,
)

__all__ = [
    "Answer",
    "MapAnswer",
    "MarginalAnswer",
    "PartitionAnswer",
    "format_answer",
    "read_answer",
    "read_evidence",
    "read_fg",
    "read_uai",
    "write_answer",
    "write_evidence",
    "write_fg",
    "write_uai",
]
