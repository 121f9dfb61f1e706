"""Written by make stubs from fieldfit._registry."""

from fieldfit.shards.answers import ShardAnswers as ShardAnswers
from fieldfit.shards.answers import read_answers as read_answers
from fieldfit.shards.reading import Shards as Shards
from fieldfit.shards.workers import Workers as Workers
from fieldfit.shards.writing import write as write

__all__ = [
    "ShardAnswers",
    "Shards",
    "Workers",
    "read_answers",
    "write",
]
