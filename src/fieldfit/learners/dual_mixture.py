"""Lower bound of a penalised likelihood from the points visited, as in bundle methods.

Whatever beliefs ``x_1 .. x_J`` of all examples were visited, every mixture of them is a point of
the polytopes, and the entropy is concave.  So for shares ``a_j >= 0`` that add up to one

    D(sum_j a_j x_j)  >=  sum_j a_j H(x_j) - 1/2 |f - sum_j a_j Phi^T x_j|^2 / l2

and the right-hand side needs one number and one vector of features of each point, not the beliefs.
It is never above the smallest penalised objective, for any shares; pairwise steps make it large.
The best single point is often far worse: a residual ``g`` costs it ``|g|^2 / (2 l2)``, though the
objective is only ``g' H^-1 g / 2`` above its minimum, and mixtures make the residual small.

Reference: the dual of bundle methods; Teo, Vishwanathan, Smola and Le, "Bundle methods for
regularized risk minimization", JMLR 11 (2010).
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray

__all__ = ["PointMixture", "best_shares"]

#: Points that are kept.
MAX_POINTS = 40
#: Pairwise steps for each new point, and the share of the bound that is worth one more.
MAX_STEPS, STEP_TOL = 400, 1e-9


def best_shares(entropies: FloatArray, products: FloatArray, shares: FloatArray) -> FloatArray:
    """Shares that nearly maximise ``<h, a> - 1/2 a' K a``, from given ones, by pairwise steps."""
    shares = shares.copy()
    slopes = entropies - products @ shares
    for _ in range(MAX_STEPS):
        best = int(np.argmax(slopes))
        worst = int(np.argmin(np.where(shares > 0.0, slopes, np.inf)))
        gain = float(slopes[best] - slopes[worst])
        scale = max(1.0, abs(float(slopes @ shares)))
        if best == worst or gain <= STEP_TOL * scale:
            break
        bend = float(products[best, best] + products[worst, worst] - 2.0 * products[best, worst])
        step = float(shares[worst]) if gain >= bend * shares[worst] else gain / bend
        slopes -= step * (products[:, best] - products[:, worst])
        shares[best] += step
        shares[worst] = shares[worst] - step if step < shares[worst] else 0.0
    return shares


class PointMixture:
    """Entropies and residuals of points, and the shares of the best bound so far.

    Parameters
    ----------
    statistics, l2
        ``f``, and one penalty for each weight.
    """

    def __init__(self, statistics: FloatArray, l2: FloatArray) -> None:
        self._statistics, self._root = statistics, np.sqrt(l2)
        self.entropies = np.zeros(0)
        self.residuals = np.zeros((0, len(statistics)))
        self.shares = np.zeros(0)

    def add(self, entropy: float, features: FloatArray) -> None:
        """Take another point over; the one of smallest share goes if there are too many."""
        scaled = (self._statistics - features) / self._root
        kept = np.ones(len(self.shares), dtype=bool)
        if len(kept) >= MAX_POINTS:
            kept[int(np.argmin(self.shares))] = False
        shares = self.shares[kept]
        total = float(shares.sum())
        first = 0.0 if total > 0.0 else 1.0
        self.shares = np.append(shares / total if total > 0.0 else shares, first)
        self.entropies = np.append(self.entropies[kept], entropy)
        self.residuals = np.concatenate([self.residuals[kept], scaled[None]])
        products = self.residuals @ self.residuals.T
        self.shares = best_shares(self.entropies, products, self.shares)

    def bound(self) -> float:
        """Never above the smallest penalised objective."""
        # shares add up to one only up to rounding, of which the bound must not profit
        shares = self.shares / self.shares.sum()
        residual = shares @ self.residuals
        return float(shares @ self.entropies) - 0.5 * float(residual @ residual)
