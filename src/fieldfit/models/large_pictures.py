"""Beliefs of a large picture by overlapping Schwarz: windows that exchange messages at their edges.

A picture is cut into *cores*; a *window* is a core with a margin of `OVERLAP` pixels.  What lies
outside a window acts on it only through the messages that cross its border, so with these fixed

    th_i + sum over factors a outside of m_ai        unary potentials of a window

sum-product on the window alone makes the messages of the whole picture.  Windows take turns, and
give the messages that cross the borders of others, until no such message changes by more than
the tolerance: the messages then are a fixed point of the whole picture.  Under a concave entropy
it is the only one; others are refused, because windows might find another one than sweeps over
everything would.  Kept are messages at borders and, of one window at a time, the tables.

**Tree weights.**  Those of the whole picture, cut out for a window.  Beyond `EXACT_SIDE` pixels
they are taken from a grid of that side, by the distance from the border of the picture: in the
middle of a grid they are nearly constant.

Reference: Toselli and Widlund, "Domain decomposition methods", Springer (2005), chapter 1, for the
alternating method of Schwarz.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fieldfit._typing import FloatArray, LongArray
from fieldfit.entropy.counting_numbers import CountingNumbers, Entropy, TreeReweighted
from fieldfit.entropy.tree_weights import tree_weights
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.models.parts import grid_graph

__all__ = [
    "OVERLAP",
    "LargePicture",
    "Take",
    "Windows",
    "require_windowed",
    "window_side",
    "windowed_beliefs",
]

#: Pixels that a window extends beyond its core; influence falls off over a few pixels.
OVERLAP = 32
#: Bytes of one window: potentials, messages and beliefs.
WINDOW_BYTES = 1e9
#: Largest side of a grid whose exact tree weights are computed (about a second).
EXACT_SIDE = 256
#: Times that every window may have its turn.
MAX_ROUNDS = 30

#: For each direction of `FactorGraph.grid`: by how much its edges are fewer than the pixels (down,
#: across), and where the first and the second pixel of an edge are.
EDGES = (
    ((0, 1), (0, 0), (0, 1)),
    ((1, 0), (0, 0), (1, 0)),
    ((1, 1), (0, 0), (1, 1)),
    ((1, 1), (1, 0), (0, 1)),
)

#: Potentials of a window: first row, first column, its graph.
MakePotentials = Callable[[int, int, FactorGraph], Potentials]
#: Takes the beliefs of a core: rows, columns, beliefs with labels along the last axis.
Take = Callable[[slice, slice, FloatArray], None]


@dataclass(frozen=True, eq=False)
class LargePicture:
    """A picture that is predicted by windows: its number among the examples, and its features."""

    index: int
    x: Any


@dataclass(frozen=True, eq=False)
class WindowEntropy(Entropy):
    """Tree weights that are given for the factors of a window."""

    rho: FloatArray

    def compute(self, graph: FactorGraph) -> CountingNumbers:
        """The totals of variables are 1, as in the whole picture, whatever was cut off."""
        return CountingNumbers.of_tree_weights(
            graph, self.rho, bound="upper", reason="A part of a forest is a forest."
        )


@dataclass(eq=False)
class Border:
    """The edges that leave a window; the message to the pixel inside comes from the ``owner``."""

    inside: LongArray  # pixel of the window
    owner: LongArray  # window whose core holds the pixel outside
    slot: LongArray  # of the message, in the graph of the owner
    messages: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))  # (n_edges, K)
    used: FloatArray | None = None  # those of the last turn

    @property
    def change(self) -> float:
        """Largest change of a message since the last turn."""
        if self.used is None:
            return np.inf
        return float(np.abs(self.messages - self.used).max(initial=0.0))


class Windows:
    """Windows of one size that cover a picture; cores are even and do not overlap."""

    def __init__(
        self, shape: tuple[int, int], n_labels: int, neighbors: int, side: int, overlap: int
    ) -> None:
        self.shape, self.n_labels, self.neighbors = shape, n_labels, neighbors
        self.bounds: list[LongArray] = []
        sizes, self._starts = [], []
        for length in shape:
            core = max(1, side - 2 * overlap)
            bounds = np.linspace(0, length, -(-length // core) + 1).round().astype(np.int64)
            size = min(length, int(np.diff(bounds).max()) + 2 * overlap)
            self.bounds.append(bounds)
            self._starts.append(np.clip(bounds[:-1] - overlap, 0, length - size))
            sizes.append(size)
        self.size = (sizes[0], sizes[1])

    def __len__(self) -> int:
        return len(self._starts[0]) * len(self._starts[1])

    def start(self, window: int) -> tuple[int, int]:
        """First row and column of a window."""
        row, column = divmod(window, len(self._starts[1]))
        return int(self._starts[0][row]), int(self._starts[1][column])

    def core(self, window: int) -> tuple[slice, slice]:
        """Rows and columns of the picture that a window answers for."""
        row, column = divmod(window, len(self._starts[1]))
        rows, columns = self.bounds
        return slice(rows[row], rows[row + 1]), slice(columns[column], columns[column + 1])

    def graph(self) -> FactorGraph:
        """The graph of every window."""
        return grid_graph(*self.size, self.n_labels, self.neighbors)

    def border(self, window: int) -> Border:
        """The edges with one pixel in the window."""
        start, owners = self.start(window), len(self._starts[1])
        found: list[tuple[LongArray, LongArray, LongArray]] = []
        before = 0  # edges of earlier directions in the graph of a window
        for fewer, first, second in EDGES[: self.neighbors // 2]:
            n_down, n_across = (size - less for size, less in zip(self.size, fewer, strict=True))
            spans = [
                np.arange(max(begin - 1, 0), min(begin + size, length - less))
                for begin, size, length, less in zip(
                    start, self.size, self.shape, fewer, strict=True
                )
            ]
            for inner, outer, side in ((first, second, 0), (second, first, 1)):
                is_in = [
                    [(s + shift[axis] >= start[axis])
                     & (s + shift[axis] < start[axis] + self.size[axis])
                     for axis, s in enumerate(spans)]
                    for shift in (inner, outer)
                ]  # fmt: skip
                crosses = np.outer(*is_in[0]) & ~np.outer(*is_in[1])
                row, column = (s[k] for s, k in zip(spans, np.nonzero(crosses), strict=True))
                owner = self._core_of(0, row + outer[0]) * owners
                owner += self._core_of(1, column + outer[1])
                own_row, own_column = divmod(owner, owners)
                edge = before + (row - self._starts[0][own_row]) * n_across
                edge += column - self._starts[1][own_column]
                pixel = (row + inner[0] - start[0]) * self.size[1] + column + inner[1] - start[1]
                found.append((pixel, owner, 2 * edge + side))
            before += n_down * n_across
        inside, owner, slot = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return Border(inside, owner, slot, np.zeros((len(inside), self.n_labels)))

    def _core_of(self, axis: int, places: LongArray) -> LongArray:
        return np.searchsorted(self.bounds[axis], places, side="right") - 1

    def tree_weights(self) -> Callable[[int], FloatArray]:
        """Weights of the factors of a window."""
        small = (min(self.shape[0], EXACT_SIDE), min(self.shape[1], EXACT_SIDE))
        weights = tree_weights(grid_graph(*small, 2, self.neighbors))
        tables, before = [], 0
        for fewer, _, _ in EDGES[: self.neighbors // 2]:
            size = (small[0] - fewer[0], small[1] - fewer[1])
            tables.append(weights[before : before + size[0] * size[1]].reshape(size))
            before += size[0] * size[1]

        def cut(window: int) -> FloatArray:
            parts = []
            for table, (fewer, _, _) in zip(tables, EDGES, strict=False):
                places = [
                    _scaled_down(begin + np.arange(size - less), length - less, table.shape[axis])
                    for axis, (begin, size, length, less) in enumerate(
                        zip(self.start(window), self.size, self.shape, fewer, strict=True)
                    )
                ]
                parts.append(table[np.ix_(*places)].reshape(-1))
            return np.concatenate(parts)

        return cut


def _scaled_down(places: LongArray, length: int, small: int) -> LongArray:
    """The same distance from the nearer end of a shorter line, or its middle."""
    half = small // 2
    from_end = small - length + places
    return np.where(places < half, places, np.maximum(from_end, half))


def window_side(n_labels: int, neighbors: int, n_features: int) -> int:
    """Side of a window whose potentials, messages and beliefs take about `WINDOW_BYTES`."""
    side = 64
    graph = grid_graph(side, side, n_labels, neighbors)
    entries = int(graph.unary_offsets[-1] + graph.table_offsets[-1])
    index = 24 * graph.n_slots + 16 * graph.n_variables  # of the graph itself, about
    features = 8 * (graph.n_variables + graph.n_factors) * n_features
    one = SumProduct().memory(graph) + 16.0 * entries + index + features
    return max(4 * OVERLAP, int(side * np.sqrt(WINDOW_BYTES / one)))


def require_windowed(inference: Any) -> SumProduct:
    """Refuse what windows cannot do."""
    if isinstance(inference, SumProduct):
        entropy = inference.entropy
        if isinstance(entropy, TreeReweighted) and entropy.rho is None:
            return inference
        given = f"SumProduct with {entropy!r}"
    else:
        given = type(inference).__name__
    raise InvalidInputError(
        "objective must predict by SumProduct with TreeReweighted(), such as 'trw', for pictures "
        f"of this size, which are cut into windows, got {given}"
    )


def windowed_beliefs(
    windows: Windows,
    inference: SumProduct,
    make_potentials: MakePotentials,
    take: Take,
    verbose: int = 0,
) -> tuple[bool, str]:
    """Beliefs of all cores, given to ``take``; whether they have converged, and a sentence."""
    graph = windows.graph()
    weights = windows.tree_weights()
    borders = [windows.border(window) for window in range(len(windows))]
    readers = _readers(borders)
    unfinished = np.ones(len(windows), dtype=np.bool_)
    with _bar(windows, verbose) as bar:
        for round_number in range(MAX_ROUNDS):
            waiting = [w for w in range(len(windows)) if borders[w].change > inference.tol]
            if not waiting:
                break
            if bar is not None and round_number > 0:
                bar.total += len(waiting)
            for window in waiting:
                border = borders[window]
                border.used = border.messages.copy()
                given = make_potentials(*windows.start(window), graph)
                unary = given.unary_matrix().copy()
                np.add.at(unary, border.inside, border.messages)
                # the factorisations of the interior-point method would take too much memory
                own = replace(inference, entropy=WindowEntropy(weights(window)), accelerate=False)
                result = own.run(
                    graph, Potentials.from_flat(graph, unary.reshape(-1), given.factor_values)
                )
                unfinished[window] = not result.converged
                messages = result.state.message.reshape(-1, windows.n_labels)
                for reader, places in readers[window]:
                    borders[reader].messages[places] = messages[borders[reader].slot[places]]
                take(*windows.core(window), _core_beliefs(windows, window, result.beliefs))
                if bar is not None:
                    bar.update()
    change = max(border.change for border in borders)
    converged = change <= inference.tol and not unfinished.any()
    status = (
        f"{len(windows)} windows of {windows.size[0]} x {windows.size[1]} pixels: messages between "
        f"them changed by {change:.2g} in the last round"
    )
    if unfinished.any():
        status += f"; {int(unfinished.sum())} windows did not converge"
    return converged, status


def _readers(borders: list[Border]) -> list[list[tuple[int, LongArray]]]:
    """For each window those that read its messages, and which of theirs."""
    readers: list[list[tuple[int, LongArray]]] = [[] for _ in borders]
    for window, border in enumerate(borders):
        for owner in np.unique(border.owner):
            readers[int(owner)].append((window, np.flatnonzero(border.owner == owner)))
    return readers


def _core_beliefs(windows: Windows, window: int, beliefs: Any) -> FloatArray:
    rows, columns = windows.core(window)
    first_row, first_column = windows.start(window)
    values = beliefs.unary_matrix().reshape(*windows.size, windows.n_labels)
    return np.asarray(
        values[
            rows.start - first_row : rows.stop - first_row,
            columns.start - first_column : columns.stop - first_column,
        ]
    )


def _bar(windows: Windows, verbose: int) -> Any:
    """A progress bar over windows, or nothing."""
    if verbose <= 0:
        return nullcontext()
    from tqdm import tqdm

    size = "{} x {}".format(*windows.size)
    return tqdm(total=len(windows), unit="window", desc=f"{len(windows)} windows of {size}")
