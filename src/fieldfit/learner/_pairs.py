"""The memory of L-BFGS: the last steps and changes of the gradient, and what they say.

With pairs ``s_k = w_{k+1} - w_k`` and ``y_k = g_{k+1} - g_k`` the two-loop recursion multiplies a
vector by the inverse Hessian of BFGS without ever forming it, started from the multiple
``(s.y / y.y) I`` of the newest pair.  Reference: Nocedal, "Updating quasi-Newton matrices with
limited storage", Mathematics of Computation 35 (1980); Liu and Nocedal, Mathematical Programming
45 (1989).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pairs"]

FloatArray = NDArray[np.float64]

#: Below this cosine of the angle between step and change of gradient the curvature of a pair is
#: rounding, and would blow up the next direction.
SMALLEST_COSINE = 1e-12


class Pairs:
    """The newest ``history`` pairs, in two matrices that are filled in a circle."""

    def __init__(self, history: int, n_weights: int) -> None:
        self.steps = np.zeros((history, n_weights))
        self.changes = np.zeros((history, n_weights))
        self.curvatures = np.zeros(history)
        self.count = 0
        self.newest = -1
        self.scale = 1.0
        self._factors = np.zeros(history)

    def add(self, step: FloatArray, change: FloatArray) -> bool:
        """Take a pair over; False if its curvature is not safely positive, and it is left out."""
        curvature = float(np.dot(step, change))
        squared = float(np.dot(change, change))
        norms = np.sqrt(float(np.dot(step, step)) * squared)
        if not curvature > SMALLEST_COSINE * norms:
            return False
        self.newest = (self.newest + 1) % len(self.curvatures)
        self.count = min(self.count + 1, len(self.curvatures))
        np.copyto(self.steps[self.newest], step)
        np.copyto(self.changes[self.newest], change)
        self.curvatures[self.newest] = curvature
        self.scale = curvature / squared
        return True

    def clear(self) -> None:
        """Forget all pairs: the next direction is that of steepest descent."""
        self.count, self.newest = 0, -1

    def multiply(self, vector: FloatArray) -> None:
        """Replace a contiguous vector by its product with the inverse Hessian."""
        if self.count == 0:
            return
        # in place and in one pass: memory is what this costs, 4 * history passes over the weights
        from scipy.linalg.blas import daxpy

        for row in self._rows():
            factor = float(np.dot(self.steps[row], vector)) / self.curvatures[row]
            self._factors[row] = factor
            daxpy(self.changes[row], vector, a=-factor)
        vector *= self.scale
        for row in reversed(self._rows()):
            factor = float(np.dot(self.changes[row], vector)) / self.curvatures[row]
            daxpy(self.steps[row], vector, a=self._factors[row] - factor)

    def _rows(self) -> list[int]:
        """Rows in use, the newest first."""
        return [(self.newest - age) % len(self.curvatures) for age in range(self.count)]
