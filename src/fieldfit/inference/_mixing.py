"""How well several chains have mixed: effective sample sizes and split R-hat.

Both are taken on the label indicators ``[y_i = k]``, from counts alone, so no chain is stored.

* Effective sample size by batch means: with batches of length ``b`` (about the square root of
  the run), ``sigma^2 = b Var(batch means)`` estimates the asymptotic variance, and
  ``N p (1 - p) / sigma^2`` independent draws would be as good as the ``N`` of the chains.
* Split R-hat: each chain is cut in two; the spread between halves is compared with the
  spread inside them.  Where it shows that chains stay apart for longer than a batch, the halves
  themselves serve as batches, because the short ones would miss that.

References: Flegal and Jones, "Batch means and spectral variance estimators in Markov chain Monte
Carlo", Annals of Statistics 38, 2010; Gelman et al., "Bayesian Data Analysis", 3rd edition, 11.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_SPLIT_R_HAT", "CountHistory", "Mixing"]

FloatArray = NDArray[np.float64]

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
