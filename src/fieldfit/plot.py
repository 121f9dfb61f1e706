"""Pictures of fitted models: networks of couplings and contact maps (needs Matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray
from fieldfit._validation import require_integer, require_list, require_number
from fieldfit.errors import InvalidInputError, MissingDependencyError

__all__ = ["plot_contacts", "plot_network", "spring_layout"]


#: Colours that colour-blind readers can tell apart.
POSITIVE, NEGATIVE = "#1b6ca8", "#c8553d"


def plot_network(
    couplings: ArrayLike,
    ax: Any = None,
    names: Sequence[str] | None = None,
    minimum: float = 0.0,
) -> Any:
    """Variables as circles, couplings as lines: blue if positive, red and dashed if negative.

    The width of a line is proportional to the size of its coupling; those below ``minimum``
    (absolute) are left out.  Strongly coupled variables are drawn close to each other.  Returns
    the axes.

    Parameters
    ----------
    couplings
        Symmetric matrix.
    ax
        Matplotlib axes to draw on; ``None`` makes some.
    names
        Of the variables.
    minimum
        Smallest absolute coupling that is drawn.

    Returns
    -------
    axes
        Of Matplotlib.
    """
    matrix = _square("couplings", couplings)
    require_number("minimum", minimum, at_least=0)
    n = len(matrix)
    if names is not None:
        require_list("names", names, "texts")
    labels = [str(k) for k in range(n)] if names is None else [str(name) for name in names]
    if len(labels) != n:
        raise InvalidInputError(f"names must have {n} entries, got {len(labels)}")
    axes = _axes(ax)
    strengths = np.abs(matrix) * (np.abs(matrix) >= minimum)
    np.fill_diagonal(strengths, 0.0)
    places = spring_layout(strengths)
    largest = strengths.max(initial=0.0)
    first, second = np.triu_indices(n, 1)
    order = np.argsort(strengths[first, second])  # strongest last, on top
    for i, j in zip(first[order], second[order], strict=True):
        if strengths[i, j] == 0.0:
            continue
        share = strengths[i, j] / largest
        axes.plot(
            *places[[i, j]].T,
            color=POSITIVE if matrix[i, j] > 0 else NEGATIVE,
            linestyle="-" if matrix[i, j] > 0 else (0, (4, 2)),
            linewidth=0.3 + 5.0 * share,
            alpha=0.25 + 0.65 * share,
            solid_capstyle="round",
            zorder=1,
        )
    axes.scatter(*places.T, s=900, color="white", edgecolor="#444444", linewidth=1.2, zorder=2)
    for place, label in zip(places, labels, strict=True):
        size = 8 if len(label) <= 6 else 6.5
        axes.annotate(label, place, ha="center", va="center", fontsize=size, zorder=3)
    axes.set_aspect("equal")
    axes.margins(0.12)
    axes.set_axis_off()
    return axes


def plot_contacts(
    scores: ArrayLike,
    ax: Any = None,
    contacts: Any = None,
    n_pairs: int = 50,
    min_distance: int = 5,
) -> Any:
    """The ``n_pairs`` strongest pairs, at least ``min_distance`` columns apart, above the diagonal.

    ``contacts`` (a boolean matrix) are drawn in grey on both sides; predicted pairs are blue if
    they are contacts and red crosses if not.  Columns are counted from 0.

    Parameters
    ----------
    scores
        Symmetric matrix, as from ``PottsModel.contact_scores``.
    ax
        Matplotlib axes to draw on; ``None`` makes some.
    contacts
        Boolean matrix of true contacts, if they are known.
    n_pairs
        How many pairs are predicted.
    min_distance
        Least distance of two columns.

    Returns
    -------
    axes
        Of Matplotlib.
    """
    matrix = _square("scores", scores)
    require_integer("n_pairs", n_pairs, at_least=1)
    require_integer("min_distance", min_distance, at_least=1)
    n = len(matrix)
    known = None if contacts is None else _square("contacts", contacts) != 0.0
    if known is not None and known.shape != matrix.shape:
        raise InvalidInputError(f"contacts must have shape {matrix.shape}, got {known.shape}")
    axes = _axes(ax)
    first, second = np.triu_indices(n, min_distance)
    best = np.argsort(-matrix[first, second], kind="stable")[:n_pairs]
    rows, columns = first[best], second[best]
    right = np.ones(len(best), dtype=bool) if known is None else known[rows, columns]
    if known is not None:
        far = known & (np.abs(np.subtract.outer(np.arange(n), np.arange(n))) >= min_distance)
        y, x = np.nonzero(far)
        axes.scatter(x, y, s=14, marker="s", color="#d0d0d0", linewidth=0, label="contact")
    found = "predicted" if known is None else "predicted, contact"
    axes.scatter(columns[right], rows[right], s=14, color=POSITIVE, linewidth=0, label=found)
    if not right.all():
        axes.scatter(
            columns[~right], rows[~right], s=18, marker="x", color=NEGATIVE, label="predicted, none"
        )
    axes.plot([0, n - 1], [0, n - 1], color="#888888", linewidth=0.8)
    axes.set(xlim=(-1, n), ylim=(n, -1), xlabel="column, from 0", ylabel="column, from 0")
    axes.set_aspect("equal")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=3, frameon=False, fontsize=8)
    return axes


def spring_layout(strengths: FloatArray, n_steps: int = 300) -> FloatArray:
    """Places of variables, shape (n, 2): neighbours attract by strength, all pairs repel.

    Forces and cooling of Fruchterman and Reingold ("Graph drawing by force-directed placement",
    Software: Practice and Experience 21, 1991), from a fixed start, so that the picture is always
    the same.

    Parameters
    ----------
    strengths
        Symmetric matrix of strengths, none negative.
    n_steps
        Steps of the simulation.

    Returns
    -------
    array
        Places, ``(n, 2)``.
    """
    require_integer("n_steps", n_steps, at_least=0)
    strengths = _square("strengths", strengths)
    n = len(strengths)
    angle = 2.0 * np.pi * np.arange(n) / max(n, 1)
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if n < 2:
        return places
    # an exact circle is a trap: pairs that face each other pull through the same point
    places += np.random.default_rng(0).normal(scale=0.3, size=places.shape)
    scale = strengths.mean() * n / max(n - 1, 1)
    attraction = strengths / scale if scale > 0.0 else strengths
    wanted = 1.0 / np.sqrt(n)
    for step in range(n_steps):
        apart = places[:, None] - places[None]
        distance = np.sqrt((apart**2).sum(axis=2)) + 1e-9
        force = wanted**2 / distance**2 - attraction * distance / wanted / 16.0
        np.fill_diagonal(force, 0.0)
        move = (force[:, :, None] * apart).sum(axis=1) - 4.0 * wanted * places  # gravity
        length = np.sqrt((move**2).sum(axis=1, keepdims=True)) + 1e-9
        heat = 0.1 * (1.0 - step / n_steps)
        places = places + move / length * np.minimum(length, heat)
    places = places - places.mean(axis=0)
    return np.asarray(places / np.abs(places).max())


def _square(name: str, given: ArrayLike) -> FloatArray:
    matrix = real_numbers(name, given)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise InvalidInputError(f"{name} must be a finite square matrix, got shape {matrix.shape}")
    return matrix


def _axes(ax: Any) -> Any:
    """The given axes, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingDependencyError(
            "plots need Matplotlib: pip install 'fieldfit[plot]'"
        ) from None
    return plt.subplots(figsize=(6, 6), layout="constrained")[1]
