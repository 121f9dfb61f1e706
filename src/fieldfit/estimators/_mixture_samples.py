"""Samples of labels on one graph: checks, and the problem that a learner minimises."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.errors import InvalidInputError
from fieldfit.estimators._generative_copies import CopiesProblem, GenerativeProblem
from fieldfit.estimators._generative_parameters import PottsParameters, checked_edges
from fieldfit.estimators._generative_problems import ConditionalsProblem, MomentProblem
from fieldfit.estimators._generative_samples import Samples
from fieldfit.objective._base import Objective
from fieldfit.objective.likelihood import Likelihood
from fieldfit.objective.pseudo_likelihood import PseudoLikelihood

__all__ = ["as_field", "field_graph", "grid_graph", "sample_problem"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


def field_graph(
    labels: ArrayLike, edges: ArrayLike | None, shape: tuple[int, int] | None, n_labels: int
) -> tuple[IntArray, FactorGraph, tuple[int, ...]]:
    """Checked samples ``(M, N)``, the graph over their variables, and the shape of one sample."""
    array = np.asarray(labels)
    if array.ndim not in (2, 3) or array.size == 0:
        raise InvalidInputError(
            f"labels must have shape (M, N) or (M, height, width), none of them 0, got "
            f"{array.shape}"
        )
    if array.dtype.kind not in "iub":
        raise InvalidInputError(f"labels must be integers, got dtype {array.dtype}")
    bad = np.argwhere((array < -1) | (array >= n_labels))
    if len(bad):
        raise InvalidInputError(
            f"labels[{bad[0][0]}]: labels must be in 0..{n_labels - 1} (as many as means), or -1 "
            f"for missing, got {array[tuple(bad[0])]}"
        )
    samples = array.reshape(len(array), -1).astype(np.int32)
    n_variables = samples.shape[1]
    own = array.shape[1:] if array.ndim == 3 else shape
    if shape is not None and (len(shape) != 2 or tuple(shape) != tuple(own or ())):
        raise InvalidInputError(
            f"shape must be the (height, width) of labels {array.shape}, got {shape}"
        )
    if own is not None and (min(own) < 1 or own[0] * own[1] != n_variables):
        raise InvalidInputError(
            f"shape must have {n_variables} pixels, as many as labels has columns, got {shape}"
        )
    field_shape = (n_variables,) if own is None else (int(own[0]), int(own[1]))
    if edges is not None:
        pairs = checked_edges(edges, n_variables)
        return samples, _edge_graph(n_variables, pairs.tobytes(), n_labels), field_shape
    if own is None:
        raise InvalidInputError(
            "edges or shape must be given with labels of shape (M, N), got neither"
        )
    return samples, grid_graph(*field_shape, n_labels), field_shape


def as_field(
    name: str, values: ArrayLike, alpha: ArrayLike, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Values and ``alpha`` as ``(n, N)``, of fields given one or many, flat or in their shape."""
    array = np.asarray(values, dtype=np.float64)
    n_variables = int(np.prod(shape))
    allowed = {shape, (n_variables,)}
    if array.shape not in allowed and array.shape[1:] not in allowed:
        raise InvalidInputError(
            f"{name} must be one field of shape {shape} or several along the first axis, "
            f"got shape {array.shape}"
        )
    if np.isinf(array).any():
        raise InvalidInputError(f"{name} must be finite (NaN: not observed), got infinity")
    share = np.asarray(alpha, dtype=np.float64)
    if not ((share >= 0.0) & (share <= 1.0)).all():
        raise InvalidInputError(f"alpha must be in [0, 1], got {alpha!r}")
    try:
        share = np.broadcast_to(share, array.shape)
    except ValueError:
        raise InvalidInputError(
            f"alpha must be a number or an array that broadcasts to the shape {array.shape} of "
            f"{name}, got shape {share.shape}"
        ) from None
    return array.reshape(-1, n_variables), share.reshape(-1, n_variables)


def sample_problem(
    objective: Objective, graph: FactorGraph, samples: IntArray, n_jobs: int | None
) -> GenerativeProblem:
    """The objective summed over samples; the weights are the unary potentials and the tables."""
    edges = graph.slot_variables.reshape(-1, 2).astype(np.int64)
    parameters = PottsParameters(graph.n_variables, edges, graph.uniform_cardinality or 0)
    rows = Samples.of(samples.astype(np.int16), np.ones(len(samples)))
    if isinstance(objective, Likelihood):
        return MomentProblem(parameters, rows, objective.inference)
    if isinstance(objective, PseudoLikelihood) and objective.blocks is None:
        return ConditionalsProblem(parameters, rows, n_jobs)
    return CopiesProblem(parameters, rows, objective)


@lru_cache(maxsize=16)
def grid_graph(height: int, width: int, n_labels: int) -> FactorGraph:
    """Fields of one size share their graph, and with it all plans made for it."""
    return FactorGraph.grid(height, width, n_labels)


@lru_cache(maxsize=16)
def _edge_graph(n_variables: int, edges: bytes, n_labels: int) -> FactorGraph:
    """The same for edges, given as the bytes of an ``(E, 2)`` array."""
    pairs = np.frombuffer(edges, dtype=np.int64).reshape(-1, 2)
    return FactorGraph.from_edges(n_variables, pairs, n_labels)
