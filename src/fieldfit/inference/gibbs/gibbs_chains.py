"""Gibbs chains in threads, and how well they mix: effective sample size and split R-hat.

The labels of the chains do not depend on the number of threads.  Both figures are taken on the
label indicators ``[y_i = k]``, from counts alone, so no chain is stored.

* Effective sample size by batch means: with batches of length ``b`` (about the square root of the
  run), ``sigma^2 = b Var(batch means)`` estimates the asymptotic variance, and
  ``N p (1 - p) / sigma^2`` independent draws would be as good as the ``N`` of the chains.
* Split R-hat: each chain is cut in two; the spread between halves is compared with the spread
  inside them.  Where it shows that chains stay apart for longer than a batch, the halves themselves
  serve as batches, because the short ones would miss that.

References: Flegal and Jones, "Batch means and spectral variance estimators in Markov chain Monte
Carlo", Annals of Statistics 38, 2010; Gelman et al., "Bayesian Data Analysis", 3rd edition, 11.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._parallel import worker_threads
from fieldfit._typing import FloatArray
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.inference.conditioning import BinaryPairwise, GeneralModel
from fieldfit.inference.gibbs.gibbs_sweeps import (
    Chains,
    Record,
    count_factors,
    run_binary_chains,
    run_general_chains,
    update_binary,
    update_general,
)

__all__ = ["MAX_SPLIT_R_HAT", "ChainRunner", "CountHistory", "Mixing", "new_record"]


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
    threads split the variables of each colour, which are independent given the rest.

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
        self._run_chains: Any = run_binary_chains if binary else run_general_chains
        self._update = update_binary if binary else update_general
        self._nothing = new_record(FactorGraph([]), 0, n_jobs)
        self._workers = worker_threads(n_jobs)
        self._map: Callable[..., list[Any]]

    def __enter__(self) -> ChainRunner:
        self._map = self._workers.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._workers.__exit__(kind, error, traceback)

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
        """Run tasks at the same time and wait for all."""
        self._map(_call, tasks)


def _call(task: Callable[[], Any]) -> Any:
    return task()


def _bound(kernel: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: kernel(*arguments)


def _blocks(begin: int, end: int, n_blocks: int) -> list[tuple[int, int]]:
    """``n_blocks`` ranges of nearly equal length that cover ``begin:end``."""
    edges = np.linspace(begin, end, n_blocks + 1).astype(int)
    return [(int(first), int(last)) for first, last in pairwise(edges)]


# -- effective sample size and split R-hat ------------------------------------------------

#: Above this, chains are taken to be apart: Gelman's 1.1 made stricter.
MAX_SPLIT_R_HAT = 1.05


@dataclass(frozen=True)
class Mixing:
    """For each unary entry: frequency, effective sample size and split R-hat."""

    frequencies: FloatArray
    effective_sample_sizes: FloatArray
    split_r_hats: FloatArray

    def standard_errors(self) -> FloatArray:
        """Of the frequencies."""
        variance = self.frequencies * (1.0 - self.frequencies)
        errors: FloatArray = np.sqrt(variance / self.effective_sample_sizes)
        return errors


class CountHistory:
    """Keeps what `Mixing` needs while a run adds up label counts, at the stops it names."""

    def __init__(self, counts: NDArray[np.int32], n_sweeps: int) -> None:
        self.counts = counts  # (n_chains, entries), owned and increased by the run
        self.n_sweeps = n_sweeps
        self.batch_length = max(1, math.isqrt(n_sweeps))
        self.n_batches = 0
        self._previous = np.zeros_like(counts)
        self._squares = np.zeros(counts.shape[1])
        self._half = np.zeros_like(counts)

    def stops(self) -> list[int]:
        """Sweeps after which `note` must be called: ends of batches, the middle, the end."""
        ends = set(range(self.batch_length, self.n_sweeps + 1, self.batch_length))
        return sorted(ends | {max(1, self.n_sweeps // 2), self.n_sweeps})

    def note(self, done: int) -> None:
        """Take in the counts after ``done`` sweeps."""
        if done % self.batch_length == 0:
            batch = (self.counts - self._previous).astype(np.float64)
            self._squares += (batch * batch).sum(axis=0)
            self._previous[:] = self.counts
            self.n_batches += 1
        if done == max(1, self.n_sweeps // 2):
            self._half[:] = self.counts

    def mixing(self) -> Mixing:
        """The figures of the finished run."""
        n_draws = self.counts.shape[0] * self.n_sweeps
        frequencies = self.counts.sum(axis=0) / n_draws
        sizes = self._effective_sample_sizes(n_draws)
        means = self._half_means()
        ratios = self._split_r_hats(means)
        apart = ratios > MAX_SPLIT_R_HAT
        if len(means):
            variance = frequencies[apart] * (1.0 - frequencies[apart])
            by_halves = len(means) * variance / means[:, apart].var(axis=0, ddof=1)
            sizes[apart] = np.clip(by_halves, 1.0, sizes[apart])
        return Mixing(frequencies, sizes, ratios)

    def _effective_sample_sizes(self, n_draws: int) -> FloatArray:
        n_means = self.counts.shape[0] * self.n_batches
        if n_means < 2:
            return np.ones(self.counts.shape[1])
        length = self.batch_length
        center = self._previous.sum(axis=0) / (n_means * length)
        spread = self._squares / length**2 - n_means * center**2
        asymptotic = length * spread / (n_means - 1)
        variance = center * (1.0 - center)
        sizes = np.full(len(center), float(n_draws))
        # alternating chains can beat independent draws, but noise can too: no more than n_draws
        slow = asymptotic > variance
        sizes[slow] = n_draws * variance[slow] / asymptotic[slow]
        np.maximum(sizes, 1.0, out=sizes)
        return sizes

    def _half_means(self) -> FloatArray:
        """Frequencies in each half of each chain; no rows if the run is too short."""
        length = self.n_sweeps // 2
        if length < 2:
            return np.zeros((0, self.counts.shape[1]))
        second = (self.counts - self._half) / (self.n_sweeps - length)
        return np.concatenate([self._half / length, second])

    def _split_r_hats(self, means: FloatArray) -> FloatArray:
        if len(means) == 0:
            return np.full(self.counts.shape[1], np.inf)
        length = self.n_sweeps // 2
        within = (means * (1.0 - means)).mean(axis=0) * length / (length - 1)
        between = means.var(axis=0, ddof=1)
        ratios = np.where(between > 0.0, np.inf, 1.0)  # never moved: stuck apart, or constant
        moving = within > 0.0
        ratios[moving] = np.sqrt((length - 1) / length + between[moving] / within[moving])
        return ratios
