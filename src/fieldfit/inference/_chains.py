"""Running several Gibbs chains on one graph with threads; the labels do not depend on them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.kernels.gibbs import (
    Chains,
    Record,
    count_factors,
    run_binary_chains,
    run_general_chains,
    update_binary,
    update_general,
)
from fieldfit.kernels.models import BinaryPairwise, GeneralModel

__all__ = ["ChainRunner", "new_record"]


def new_record(graph: FactorGraph, n_chains: int, n_jobs: int) -> Record:
    """Zero sums and counts; factor counts have one row for each thread."""
    entries = int(graph.unary_offsets[-1])
    return Record(
        conditional_sums=np.zeros((n_chains, entries)),
        label_counts=np.zeros((n_chains, entries), dtype=np.int32),
        factor_counts=np.zeros((n_jobs, int(graph.table_offsets[-1])), dtype=np.int32),
    )


class ChainRunner:
    """Advances chains in place; a context manager, because it owns threads.

    With at least as many chains as threads each thread runs its own chains.  Otherwise the
    threads share out the variables of each colour, which are independent given the rest.

    Parameters
    ----------
    graph, form
        The structure, and the model in the form that its kernel takes.
    colors
        Colour of each variable in the order of ``form.variables``, never decreasing.
    chains
        Labels, changed in place, and keys.
    n_jobs
        Number of threads.
    """

    def __init__(
        self,
        graph: FactorGraph,
        form: GeneralModel | BinaryPairwise,
        colors: NDArray[np.int32],
        chains: Chains,
        n_jobs: int,
    ) -> None:
        self.structure = graph.structure
        self.form = form
        self.chains = chains
        self.n_jobs = n_jobs
        self.n_done = 0
        self._color_bounds = np.flatnonzero(np.diff(colors, prepend=-1, append=-1))
        self._factor_blocks = _blocks(0, graph.n_factors, n_jobs)
        binary = isinstance(form, BinaryPairwise)
        self._run_chains = run_binary_chains if binary else run_general_chains
        self._update = update_binary if binary else update_general
        self._nothing = new_record(FactorGraph([]), 0, n_jobs)
        self._pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None

    def __enter__(self) -> ChainRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def advance(self, until: int, record: Record | None = None) -> None:
        """Run every chain up to sweep ``until``, adding to ``record`` if there is one."""
        n_chains = len(self.chains.keys)
        if until <= self.n_done or n_chains == 0:
            return
        if self.n_jobs == 1 or n_chains >= self.n_jobs:
            tasks = [
                self._chain_task(thread, begin, end, until, record)
                for thread, (begin, end) in enumerate(_blocks(0, n_chains, self.n_jobs))
            ]
            self._together(tasks)
        else:
            for sweep in range(self.n_done, until):
                for chain in range(n_chains):
                    self._shared_sweep(chain, sweep, record)
        self.n_done = until

    def _chain_task(
        self, thread: int, begin: int, end: int, until: int, record: Record | None
    ) -> Callable[[], Any]:
        own = Chains(self.chains.labels[begin:end], self.chains.keys[begin:end])
        sums = record or self._nothing
        own_record = Record(
            sums.conditional_sums[begin:end],
            sums.label_counts[begin:end],
            sums.factor_counts[thread],
        )
        n_sweeps = until - self.n_done
        return lambda: self._run_chains(
            self.structure, self.form, own, self.n_done, n_sweeps, record is not None, own_record
        )

    def _shared_sweep(self, chain: int, sweep: int, record: Record | None) -> None:
        """One sweep of one chain by all threads, which wait for each other after a colour."""
        sums = record or self._nothing
        shared = Record(sums.conditional_sums, sums.label_counts, sums.factor_counts[0])
        recording = record is not None
        for color in range(len(self._color_bounds) - 1):
            bounds = self._color_bounds[color : color + 2]
            self._together(
                [
                    _bound(
                        self._update,
                        self.form,
                        begin,
                        end,
                        self.chains,
                        chain,
                        sweep,
                        recording,
                        shared,
                    )
                    for begin, end in _blocks(int(bounds[0]), int(bounds[1]), self.n_jobs)
                ]
            )
        if recording:
            self._together(
                [
                    _bound(
                        count_factors,
                        self.structure,
                        begin,
                        end,
                        self.chains,
                        chain,
                        shared.factor_counts,
                    )
                    for begin, end in self._factor_blocks
                ]
            )

    def _together(self, tasks: list[Callable[[], Any]]) -> None:
        """Run tasks at the same time and wait for all; the first one in this thread."""
        if self._pool is None:
            for task in tasks:
                task()
            return
        waiting = [self._pool.submit(task) for task in tasks[1:]]
        tasks[0]()
        for future in waiting:
            future.result()


def _bound(kernel: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: kernel(*arguments)


def _blocks(begin: int, end: int, n_blocks: int) -> list[tuple[int, int]]:
    """``n_blocks`` ranges of nearly equal length that cover ``begin:end``."""
    edges = np.linspace(begin, end, n_blocks + 1).astype(int)
    return [(int(first), int(last)) for first, last in pairwise(edges)]
