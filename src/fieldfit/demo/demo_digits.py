"""The pictures of ``fieldfit demo``: handwritten digits under noise.

scikit-learn ships 1,797 digits of 8 x 8 grey values (from the UCI repository), so nothing is
downloaded.  They are enlarged three times by cubic splines, cut at half of full ink and given a
margin: 28 x 28 labels ``y_s`` (0 = paper, 1 = ink).  What is seen is ``x_s = y_s + noise * e_s``
with standard normal ``e_s``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fieldfit._typing import FloatArray, LabelArray

__all__ = ["N_KINDS", "NoisyDigits"]

#: Digits 0 to 9.
N_KINDS = 10
ENLARGEMENT, MARGIN = 3, 2
FULL_INK = 16.0  # the largest grey value of the data


@dataclass(frozen=True)
class NoisyDigits:
    """Pictures for training, then pictures for testing; both go through 0, 1, ..., 9 in turns."""

    clean: LabelArray  # (pictures, height, width)
    deviations: FloatArray  # e_s, of the same shape
    n_train: int
    noise: float

    @classmethod
    def load(cls, train_each: int, test_each: int, noise: float, seed: int) -> NoisyDigits:
        """``train_each`` and ``test_each`` random pictures of every digit."""
        from scipy.ndimage import zoom
        from sklearn.datasets import load_digits

        data = load_digits()
        rng = np.random.default_rng(seed)
        # row d: pictures of digit d; transposed, so that digits take turns
        chosen = np.stack(
            [
                rng.choice(np.flatnonzero(data.target == d), train_each + test_each, replace=False)
                for d in range(N_KINDS)
            ]
        ).T.ravel()
        grey = data.images[chosen] / FULL_INK
        enlarged = zoom(
            grey, (1, ENLARGEMENT, ENLARGEMENT), order=3, mode="grid-constant", grid_mode=True
        )
        margin = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))
        clean = np.pad(enlarged > 0.5, margin).astype(np.int32)
        return cls(clean, rng.normal(size=clean.shape), train_each * N_KINDS, noise)

    def with_noise(self, noise: float) -> NoisyDigits:
        """The same pictures and the same deviations, scaled differently."""
        return replace(self, noise=noise)

    def small(self) -> NoisyDigits:
        """One picture to learn from and one to test, for a run whose results do not matter."""
        chosen = [0, self.n_train]
        return replace(
            self, clean=self.clean[chosen], deviations=self.deviations[chosen], n_train=1
        )

    @property
    def noisy(self) -> FloatArray:
        """What is seen of all pictures."""
        return self.clean + self.noise * self.deviations

    @property
    def train(self) -> tuple[FloatArray, LabelArray]:
        """Noisy and clean pictures to learn from."""
        return self.noisy[: self.n_train], self.clean[: self.n_train]

    @property
    def test(self) -> tuple[FloatArray, LabelArray]:
        """Noisy and clean pictures that no method has learned from."""
        return self.noisy[self.n_train :], self.clean[self.n_train :]

    @property
    def size(self) -> int:
        """Pixels along one side."""
        return int(self.clean.shape[1])

    # -- how well a restoration fits the truth ------------------------------------------------

    def errors(self, ink: FloatArray) -> FloatArray:
        """Share of wrong pixels of every test picture, given the probability of ink."""
        _, truth = self.test
        wrong = (ink > 0.5) != (truth == 1)
        return np.asarray(wrong.mean(axis=(1, 2)), dtype=np.float64)

    def log_loss(self, ink: FloatArray) -> float:
        """Mean over test pixels of ``-log p(true label)``; log 2 is the loss of knowing nothing."""
        _, truth = self.test
        given = np.where(truth == 1, ink, 1.0 - ink)
        return float(-np.log(np.maximum(given, 1e-300)).mean())
