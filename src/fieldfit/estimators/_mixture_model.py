"""The Gaussian part of a coupled mixture: what an observation says about label and signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference.exact import Exact
from fieldfit.inference.exact_sampling import sample_exactly
from fieldfit.inference.gibbs import Gibbs

__all__ = ["Components", "MixtureSample", "draw_field"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]

#: Exact sampling up to a few seconds; beyond that Gibbs sampling with this many sweeps before the
#: first sample of a chain and between two of them.
EXACT_LIMITS = Exact(max_memory=1e9, max_operations=1e8)
GIBBS_BURN_IN = 1000
GIBBS_SWEEPS_BETWEEN = 20


class MixtureSample(NamedTuple):
    """Samples of a coupled mixture, one field along the first axis of each array."""

    labels: IntArray
    signal: FloatArray
    observations: FloatArray

    def reshaped(self, shape: tuple[int, ...]) -> MixtureSample:
        """The same with every field in the given shape."""
        return MixtureSample(
            self.labels.reshape(-1, *shape),
            self.signal.reshape(-1, *shape),
            self.observations.reshape(-1, *shape),
        )


@dataclass(frozen=True)
class Components:
    """Means and variances of the signal for each label."""

    means: FloatArray
    variances: FloatArray

    @classmethod
    def checked(cls, means: ArrayLike, variances: ArrayLike) -> Components:
        """Components of two vectors of one length; variances must be positive."""
        centres = np.asarray(means, dtype=np.float64)
        spreads = np.asarray(variances, dtype=np.float64)
        if centres.ndim != 1 or len(centres) < 2 or not np.isfinite(centres).all():
            raise InvalidInputError(
                f"means must hold at least two finite numbers, one for each label, got {means!r}"
            )
        if spreads.shape != centres.shape:
            raise InvalidInputError(
                f"variances must hold {len(centres)} numbers, as many as means, got {variances!r}"
            )
        if not (np.isfinite(spreads).all() and (spreads > 0.0).all()):
            raise InvalidInputError(f"variances must be finite and positive, got {variances!r}")
        return cls(centres, spreads)

    @property
    def n_components(self) -> int:
        return len(self.means)

    def gains(self, alpha: ArrayLike) -> FloatArray:
        """``om_j``, components along a new last axis."""
        share = np.asarray(alpha, dtype=np.float64)[..., None]
        gains: FloatArray = share * self.variances / self._spread_of_observation(share)
        return gains

    def condition(
        self, observations: FloatArray, alpha: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Given each label: log-likelihood of ``y``, and mean and variance of ``z`` given ``y``.

        All three have the components along a new last axis.  Where ``y`` is NaN nothing was
        observed: the log-likelihood is 0 and the signal has its own mean and variance.
        """
        share = np.asarray(alpha, dtype=np.float64)[..., None]
        spread = self._spread_of_observation(share)
        missing = np.isnan(observations)[..., None]
        rest = np.where(missing, 0.0, observations[..., None] - share * self.means)
        likelihood = -0.5 * (rest**2 / spread + np.log(spread))
        mean = self.means + (share * self.variances / spread) * rest
        # the variance left over, in the form that does not subtract nearly equal numbers
        left = self.variances * (1.0 - share**2) / spread
        return (
            np.where(missing, 0.0, likelihood),
            mean,
            np.where(missing, self.variances, left),
        )

    def draw(
        self, labels: IntArray, alpha: FloatArray, generator: np.random.Generator
    ) -> MixtureSample:
        """Signal and observations for given labels."""
        noise = generator.normal(size=(2, *labels.shape))
        signal = self.means[labels] + np.sqrt(self.variances[labels]) * noise[0]
        observations = alpha * signal + np.sqrt(1.0 - alpha**2) * noise[1]
        return MixtureSample(labels, signal, observations)

    def _spread_of_observation(self, share: FloatArray) -> FloatArray:
        """Variance of ``y`` for each label."""
        spread: FloatArray = share**2 * self.variances + (1.0 - share**2)
        return spread


def draw_field(
    graph: FactorGraph, potentials: Potentials, n_samples: int, generator: np.random.Generator
) -> IntArray:
    """Labels ``(n_samples, N)``: exact samples where that is quick, else a Gibbs sampler's."""
    try:
        return sample_exactly(
            graph, potentials, n_samples, random_state=generator, limits=EXACT_LIMITS
        )
    except TooLargeError:
        sampler = Gibbs(burn_in=GIBBS_BURN_IN, random_state=generator)
        return sampler.sample(graph, potentials, n_samples, n_sweeps_between=GIBBS_SWEEPS_BETWEEN)
