"""Scores of edge probabilities, and the baseline that looks at every edge by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: Bins of equal size for calibration.
N_BINS = 10
#: Probabilities are cut here for the log-loss, which one sure mistake would make infinite.
SMALLEST = 1e-6


def edge_logistic(
    features: FloatArray, used: BoolArray, l2: float
) -> tuple[FloatArray, float, bool]:
    """Logistic regression of single edges: weights, intercept, and whether it converged."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0 / l2, max_iter=1000)
    model.fit(features, used)
    return model.coef_[0], float(model.intercept_[0]), bool(model.n_iter_[0] < model.max_iter)


def calibration_error(probabilities: FloatArray, used: BoolArray) -> float:
    """Mean difference of predicted and observed shares in bins of equal numbers of edges."""
    order = np.argsort(probabilities, kind="stable")
    bins = np.array_split(order, N_BINS)
    gaps = [abs(float(probabilities[chosen].mean() - used[chosen].mean())) for chosen in bins]
    sizes = np.array([len(chosen) for chosen in bins], dtype=np.float64)
    return float(sizes @ gaps / sizes.sum())


def log_loss(probabilities: FloatArray, used: BoolArray) -> float:
    """Mean of ``-log p`` of what happened."""
    p = np.clip(probabilities, SMALLEST, 1.0 - SMALLEST)
    return float(-np.where(used, np.log(p), np.log1p(-p)).mean())


def area_under_curve(scores: FloatArray, used: BoolArray) -> float:
    """Probability that a used edge has the larger score than one that is not (ties count half)."""
    from scipy.stats import rankdata

    n_used, n_other = int(used.sum()), int((~used).sum())
    ranks = rankdata(scores)
    return float((ranks[used].sum() - n_used * (n_used + 1) / 2) / (n_used * n_other))
