"""Gaussian observation model of a coupled mixture: likelihood of labels, posterior of the signal.

y = alpha z + sqrt(1 - alpha^2) w,   z | x = j ~ N(nu_j, sig_j^2),   w ~ N(0, 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import plain_array, real_numbers
from fieldfit._typing import FloatArray, IntArray
from fieldfit._validation import is_integer, shown
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.models.pairwise.pairwise_parameters import checked_edges
from fieldfit.models.parts import grid_graph

__all__ = ["Components", "MixtureSample", "as_field", "field_graph"]


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
        centres = real_numbers("means", means)
        spreads = real_numbers("variances", variances)
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


# -- Checks of samples and observations ----------------------------------------------------


def field_graph(
    labels: ArrayLike, edges: ArrayLike | None, shape: tuple[int, int] | None, n_labels: int
) -> tuple[IntArray, FactorGraph, tuple[int, ...]]:
    """Checked samples ``(M, N)``, the graph over their variables, and the shape of one sample."""
    array = plain_array("labels", labels)
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
    if shape is not None and not _is_shape(shape):
        raise InvalidInputError(f"shape must be a pair (height, width), got {shown(shape)}")
    own = array.shape[1:] if array.ndim == 3 else shape
    if shape is not None and tuple(shape) != tuple(own or ()):
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


def _is_shape(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and len(given) == 2 and all(map(is_integer, given))


def as_field(
    name: str, values: ArrayLike, alpha: ArrayLike, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Values and ``alpha`` as ``(n, N)``, of fields given one or many, flat or in their shape."""
    array = real_numbers(name, values)
    n_variables = int(np.prod(shape))
    allowed = {shape, (n_variables,)}
    if array.shape not in allowed and array.shape[1:] not in allowed:
        raise InvalidInputError(
            f"{name} must be one field of shape {shape} or several along the first axis, "
            f"got shape {array.shape}"
        )
    if np.isinf(array).any():
        raise InvalidInputError(f"{name} must be finite (NaN: not observed), got infinity")
    share = real_numbers("alpha", alpha)
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


@lru_cache(maxsize=16)
def _edge_graph(n_variables: int, edges: bytes, n_labels: int) -> FactorGraph:
    """The same for edges, given as the bytes of an ``(E, 2)`` array."""
    pairs = np.frombuffer(edges, dtype=np.int64).reshape(-1, 2)
    return FactorGraph.from_edges(n_variables, pairs, n_labels)
