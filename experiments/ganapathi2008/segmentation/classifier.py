"""Singleton potentials of ``camel-segmentation``: what boosted trees make of a superpixel alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.ganapathi2008.segmentation.data import LABELS, FloatArray, Picture
from fieldfit.features.image import out_of_fold


@dataclass(frozen=True)
class Boosting:
    """Gradient-boosted trees, several times with other random choices, averaged.

    The paper has seven boosted classifiers, one against all each.  Trees, forests and linear models
    were compared by cross-validation inside training pictures, mostly those of the first two
    halves.  There the same boosting with another seed differs by almost a point of accuracy: there
    are few pictures, and trees that know the picture can memorise them.  So trees are small,
    look at a random twentieth of the features in each node, and several are averaged.
    """

    n_members: int = 4
    n_rounds: int = 80
    learning_rate: float = 0.12
    n_leaves: int = 6
    share_of_features: float = 0.05
    l2: float = 5.0
    #: Thresholds that are tried for a feature.  More take longer, and fit the noise.
    n_bins: int = 63

    def classifier(self, seed: int) -> Any:
        """A scikit-learn classifier."""
        from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier

        members = [
            HistGradientBoostingClassifier(
                max_iter=self.n_rounds,
                learning_rate=self.learning_rate,
                max_leaf_nodes=self.n_leaves,
                max_features=self.share_of_features,
                l2_regularization=self.l2,
                max_bins=self.n_bins,
                early_stopping=False,
                random_state=seed * self.n_members + member,
            )
            for member in range(self.n_members)
        ]
        named = [(f"member {index}", member) for index, member in enumerate(members)]
        return VotingClassifier(named, voting="soft")


@dataclass(frozen=True)
class Unaries:
    """Log-probabilities of superpixels, picture by picture.

    ``in_sample`` are of the training pictures by the classifier that was trained on them, and
    ``unseen`` by classifiers that were trained on others; ``test`` are of the test pictures.
    """

    in_sample: list[FloatArray]
    unseen: list[FloatArray]
    test: list[FloatArray]
    trial: Trial

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The same in a few arrays, which can be stored."""
        return {
            "in_sample": np.concatenate(self.in_sample),
            "unseen": np.concatenate(self.unseen),
            "test": np.concatenate(self.test),
            "trial": np.concatenate(self.trial.potentials),
            "seen": np.array(self.trial.seen),
            "held_out": np.array(self.trial.held_out),
        }

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], sizes: Sequence[int], test_sizes: Sequence[int]
    ) -> Unaries:
        """What was stored; ``sizes`` are numbers of superpixels of the pictures."""
        ends, test_ends = np.cumsum(sizes)[:-1], np.cumsum(test_sizes)[:-1]
        return cls(
            in_sample=np.split(arrays["in_sample"], ends),
            unseen=np.split(arrays["unseen"], ends),
            test=np.split(arrays["test"], test_ends),
            trial=Trial(
                arrays["seen"].tolist(),
                arrays["held_out"].tolist(),
                np.split(arrays["trial"], ends),
            ),
        )


@dataclass(frozen=True)
class Trial:
    """Training pictures cut in two, with a classifier that knows only the first of them.

    What is chosen on ``held_out`` has seen nothing of the test pictures.
    """

    seen: list[int]
    held_out: list[int]
    potentials: list[FloatArray]


def classified(
    training: Sequence[Picture],
    test: Sequence[Picture],
    boosting: Boosting,
    n_folds: int,
    seed: int,
) -> Unaries:
    """Train the classifiers of a half, and their potentials of every picture."""
    sizes = [picture.n_regions for picture in training]
    found = out_of_fold(
        boosting.classifier(seed),
        np.concatenate([picture.features for picture in training]),
        np.concatenate([picture.labels for picture in training]),
        np.repeat(np.arange(len(training)), sizes),
        n_folds=n_folds,
        n_labels=len(LABELS),
        random_state=seed,
    )
    ends = np.cumsum(sizes)
    folds = found.folds[ends - 1]
    return Unaries(
        in_sample=[found.predict_log_proba(picture.features) for picture in training],
        unseen=np.split(found.log_probabilities, ends[:-1]),
        test=[found.predict_log_proba(picture.features) for picture in test],
        trial=Trial(
            seen=np.flatnonzero(folds != 0).tolist(),
            held_out=np.flatnonzero(folds == 0).tolist(),
            potentials=[found.predict_log_proba(picture.features, 0) for picture in training],
        ),
    )
