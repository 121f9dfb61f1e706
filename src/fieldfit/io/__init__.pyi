"""Written by make stubs from fieldfit._registry."""

from fieldfit.io.alignments import read_alignment as read_alignment
from fieldfit.io.fg import read_fg as read_fg
from fieldfit.io.fg import write_fg as write_fg
from fieldfit.io.images import read_image_archive as read_image_archive
from fieldfit.io.samples import read_fasta as read_fasta
from fieldfit.io.samples import read_samples as read_samples
from fieldfit.io.sequences import read_columns as read_columns
from fieldfit.io.uai import read_uai as read_uai
from fieldfit.io.uai import write_uai as write_uai
from fieldfit.io.uai_answers import Answer as Answer
from fieldfit.io.uai_answers import MapAnswer as MapAnswer
from fieldfit.io.uai_answers import MarginalAnswer as MarginalAnswer
from fieldfit.io.uai_answers import PartitionAnswer as PartitionAnswer
from fieldfit.io.uai_answers import format_answer as format_answer
from fieldfit.io.uai_answers import read_answer as read_answer
from fieldfit.io.uai_answers import read_evidence as read_evidence
from fieldfit.io.uai_answers import write_answer as write_answer
from fieldfit.io.uai_answers import write_evidence as write_evidence

__all__ = [
    "Answer",
    "MapAnswer",
    "MarginalAnswer",
    "PartitionAnswer",
    "format_answer",
    "read_alignment",
    "read_answer",
    "read_columns",
    "read_evidence",
    "read_fasta",
    "read_fg",
    "read_image_archive",
    "read_samples",
    "read_uai",
    "write_answer",
    "write_evidence",
    "write_fg",
    "write_uai",
]
