"""What the writers of model files share: numbers as text, checks, plain or compressed files."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import InvalidInputError
from fieldfit.io._tokens import LOG_10, SMALLEST_NORMAL

__all__ = ["integer_texts", "require_writable", "unary_factors", "weight_texts", "write_text"]

FloatArray = NDArray[np.float64]


def weight_texts(logs: FloatArray) -> list[str]:
    """Weights ``exp(log)`` in decimal, the shortest text that reads back as the same double.

    A weight that no normal double holds is written as mantissa and exponent worked out from its
    logarithm, so no value is flushed to zero; `NumberFile.log_weights` reads it back.
    """
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(logs)
    texts = list(map(repr, weights.tolist()))
    outside = ((weights < SMALLEST_NORMAL) & (logs > -np.inf)) | (weights == np.inf)
    for index in np.flatnonzero(outside):
        exponent = math.floor(logs[index] / LOG_10)
        mantissa = 10.0 ** (logs[index] / LOG_10 - exponent)
        texts[index] = f"{mantissa:.17g}e{exponent:+d}"
    return texts


def integer_texts(values: NDArray[np.integer[Any]]) -> list[str]:
    """Decimal texts of an integer array."""
    return list(map(str, values.tolist()))


def require_writable(graph: FactorGraph, potentials: Potentials) -> None:
    """Refuse potentials of another graph, and values that no weight stands for."""
    other = potentials.graph
    same = other is graph or (
        np.array_equal(other.cardinalities, graph.cardinalities)
        and np.array_equal(other.scope_offsets, graph.scope_offsets)
        and np.array_equal(other.slot_variables, graph.slot_variables)
    )
    if not same:
        raise InvalidInputError(f"potentials must belong to graph {graph!r}, got {potentials!r}")
    for values in (potentials.unary_values, potentials.factor_values):
        if values.size and not np.max(values) < np.inf:
            bad = values[~(values < np.inf)][0]
            raise InvalidInputError(f"potentials must hold log values below +inf, got {bad}")


def unary_factors(potentials: Potentials) -> list[int]:
    """Variables whose unary part is not all zero: files know it only as a factor of arity one."""
    offsets = potentials.graph.unary_offsets[:-1]
    if not len(offsets):
        return []
    used = np.logical_or.reduceat(potentials.unary_values != 0, offsets)
    return [int(variable) for variable in np.flatnonzero(used)]


def write_text(path: str | os.PathLike[str], parts: Iterable[str]) -> None:
    """Write the parts one after another; a name that ends in ``.gz`` is compressed."""
    if Path(path).suffix == ".gz":
        with gzip.open(path, "wt", encoding="ascii", newline="\n") as file:
            file.writelines(parts)
    else:
        with open(path, "w", encoding="ascii", newline="\n") as file:
            file.writelines(parts)
