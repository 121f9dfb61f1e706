"""Choose a MAP method: exact where it fits in memory, otherwise max-product with its bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from numpy.typing import ArrayLike

from fieldfit.core.entropy import TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.core.result import MapResult
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference.auto import refuse_unused
from fieldfit.oracle.exact_map import ExactMap
from fieldfit.oracle.max_product import MaxProduct

__all__ = ["MAP_METHODS", "decode"]

MAP_METHODS = ("auto", "exact", "max-product", "bp", "trw")

_USED = frozenset({"damping", "max_iter", "schedule", "tol"})

Progress = Callable[[int, float], None]


def decode(
    graph: FactorGraph,
    potentials: Potentials,
    method: str = "auto",
    observed: dict[int, int] | ArrayLike | None = None,
    max_memory: float = 4e9,
    schedule: str | None = None,
    damping: float | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    progress: Progress | None = None,
) -> MapResult:
    """A best labelling by a named method; options left ``None`` keep their defaults.

    ``"auto"`` is `ExactMap` if its tables fit in ``max_memory`` bytes, otherwise the better of
    plain and tree-reweighted max-product, with the smaller of their upper bounds.
    ``"max-product"`` and ``"bp"`` are the same method.
    """
    if method not in MAP_METHODS:
        raise InvalidInputError(f"method must be one of {MAP_METHODS}, got {method!r}")
    refuse_unused(
        method,
        frozenset() if method == "exact" else _USED,
        schedule=schedule,
        damping=damping,
        tol=tol,
        max_iter=max_iter,
    )
    if method == "exact":
        return ExactMap(max_memory=max_memory).run(graph, potentials, observed)
    defaults = MaxProduct()
    plain = MaxProduct(
        schedule=defaults.schedule if schedule is None else schedule,
        damping=defaults.damping if damping is None else damping,
        tol=defaults.tol if tol is None else tol,
        max_iter=defaults.max_iter if max_iter is None else max_iter,
    )
    reweighted = replace(plain, entropy=TreeReweighted())
    if method in ("max-product", "bp"):
        return plain.run(graph, potentials, observed, progress=progress)
    if method == "trw":
        return reweighted.run(graph, potentials, observed, progress=progress)
    try:
        return ExactMap(max_memory=max_memory).run(graph, potentials, observed)
    except TooLargeError as refusal:
        reason = f"exact search refused ({refusal})"
    first = plain.run(graph, potentials, observed, progress=progress)
    if first.optimal:
        return replace(first, status=f"{reason}; {first.method} {first.status}")
    second = reweighted.run(graph, potentials, observed, progress=progress)
    best = max(first, second, key=lambda result: result.score)
    bound = min(first.upper_bound, second.upper_bound)
    return replace(best, upper_bound=bound, status=f"{reason}; {best.method} {best.status}")
