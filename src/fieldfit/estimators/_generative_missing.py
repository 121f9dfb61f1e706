"""Rows with missing labels: the few missing ones are summed out by enumeration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import TooLargeError
from fieldfit.estimators._generative_parameters import PairwiseParameters
from fieldfit.estimators._generative_partition import difference_hessian
from fieldfit.estimators._generative_samples import Samples
from fieldfit.kernels.free_labels import new_scratch

__all__ = ["MAX_CONFIGURATIONS", "MissingRows"]

FloatArray = NDArray[np.float64]
#: A kernel of `fieldfit.kernels.free_labels`.
Kernel = Callable[..., float]

#: Configurations of missing labels that are enumerated for one row (about a millisecond).
MAX_CONFIGURATIONS = 2**16


class MissingRows:
    """The rows of some samples that have a missing label.

    ``n_more`` variables are free besides the missing ones (1 for conditionals of single variables).
    """

    def __init__(self, parameters: PairwiseParameters, samples: Samples, n_more: int) -> None:
        self.parameters = parameters
        self.labels = samples.labels[samples.n_complete :]
        self.weights = samples.weights[samples.n_complete :]
        k = parameters.n_labels
        most = int(np.log(MAX_CONFIGURATIONS) / np.log(k) + 1e-9) - n_more
        if samples.max_missing > most:
            row = int(np.flatnonzero(samples.inverse == samples.n_rows - 1)[0])
            raise TooLargeError(
                f"samples must have at most {most} missing labels in a row to be summed out "
                f"({k} labels each), got {samples.max_missing} in row {row}"
            )
        self._max_free = samples.max_missing + n_more

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    def evaluate(self, kernel: Kernel, weights: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value and gradient (on unary and pairwise tables) of all rows."""
        return self._run(kernel, self.parameters.tables(weights), self.labels, self.weights)

    def row_gradients(self, kernel: Kernel, weights: FloatArray) -> FloatArray:
        """Gradient of each row of weight 1, shape (n_rows, n_weights)."""
        gradients = np.empty((self.n_rows, self.parameters.n_weights))
        tables = self.parameters.tables(weights)
        for row in range(self.n_rows):
            _, *found = self._run(kernel, tables, self.labels[row : row + 1], np.ones(1))
            gradients[row] = self.parameters.table_gradient(*found)
        return gradients

    def hessian(self, kernel: Kernel, weights: FloatArray) -> FloatArray:
        """Second derivatives, by differences."""

        def gradient(w: FloatArray) -> FloatArray:
            _, unary, tables = self.evaluate(kernel, w)
            return self.parameters.table_gradient(unary, tables)

        return difference_hessian(gradient, weights)

    def _run(
        self,
        kernel: Kernel,
        tables: tuple[FloatArray, FloatArray],
        labels: NDArray[np.int16],
        weights: FloatArray,
    ) -> tuple[float, FloatArray, FloatArray]:
        given = self.parameters
        scratch = new_scratch(given.n_variables, given.n_labels, self._max_free)
        gradients = np.zeros_like(tables[0]), np.zeros_like(tables[1])
        value = kernel(given.neighbors, *tables, labels, weights, *gradients, scratch)
        return float(value), *gradients
