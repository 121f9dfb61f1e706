"""Plain NumPy twin of the best shares of a mixture: every face of the simplex in turn."""

from __future__ import annotations

from itertools import combinations

import numpy as np


def simplex_maximum(entropies, products):
    """The largest ``<h, a> - 1/2 a' K a`` over the simplex, ``K`` positive semidefinite.

    The maximum lies inside some face, where it is stationary on the plane ``sum a = 1``.
    """
    best = -np.inf
    for size in range(1, len(entropies) + 1):
        for face in map(list, combinations(range(len(entropies)), size)):
            system = np.ones((size + 1, size + 1))
            system[:size, :size] = products[np.ix_(face, face)]
            system[size, size] = 0.0
            right = np.append(entropies[face], 1.0)
            shares = np.linalg.lstsq(system, right, rcond=None)[0][:size]
            if shares.min() >= -1e-12 and abs(shares.sum() - 1.0) < 1e-9:
                value = entropies[face] @ shares
                value -= 0.5 * shares @ products[np.ix_(face, face)] @ shares
                best = max(best, value)
    return best
