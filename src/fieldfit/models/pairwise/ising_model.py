"""The Ising model of binary observations: thresholds and pairwise couplings.

    p(x) ∝ exp(sum_i t_i x_i + sum_(ij) w_ij x_i x_j),      x_i in {0, 1} or {-1, +1}

On {0, 1} it is the network model of psychometrics (IsingFit): ``w_ij`` is the change of the log
odds of ``x_i`` when ``x_j`` goes from 0 to 1, all other variables held.

Reference: van Borkulo et al., "A new method for constructing networks from binary data", Scientific
Reports 4 (2014).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LabelMatrix
from fieldfit._validation import require_number, require_one_of
from fieldfit.errors import InvalidInputError, Place
from fieldfit.io.stored import Stored
from fieldfit.models.pairwise.pairwise_mrf import PairwiseMRF
from fieldfit.models.pairwise.pairwise_parameters import Encoding, IsingParameters
from fieldfit.models.pairwise.sample_data import checked_labels
from fieldfit.objectives.base import Objective

__all__ = ["IsingModel"]

_VALUES: dict[str, tuple[int, int]] = {"binary": (0, 1), "spin": (-1, 1)}


class IsingModel(PairwiseMRF):
    """Thresholds and couplings of binary variables, with standard errors.

    Parameters
    ----------
    objective
        ``"pseudolikelihood"`` (fast for any number of variables, missing entries summed out),
        ``"likelihood"`` (exact: up to about 24 variables, or sparse edges), ``"bethe"``,
        ``"trw"``, ``"trw-kikuchi"``, ``"convex"``, ``"log-determinant"``, ``"mean-field"``
        (surrogates), ``"moment-matching"`` (closed form, no penalty), or an objective object.
    l2, l1
        Penalties ``l2/2 |w|^2`` and ``l1 |w|_1`` on all weights, added to the sum over samples.
    max_iter, tol, learner
        Of the learner; `LBFGS` unless another one is given.
    encoding
        ``"binary"``: values 0 and 1, with -1 or NaN for missing.  ``"spin"``: values -1 and +1,
        with NaN for missing.  The parameters refer to these values.
    random_state, n_jobs, verbose
        Seed of stochastic learners; threads of the pseudo-likelihood; 1 shows a progress bar.

    Attributes
    ----------
    thresholds_ : (n_variables,)
    couplings_ : (n_variables, n_variables), symmetric with zeros on the diagonal
    standard_errors_ : (n_weights,)
        Of ``weights_``, i.e. thresholds and then couplings in the order of ``edges_``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(0, 2, 2000)
    >>> second = np.where(rng.random(2000) < 0.8, first, 1 - first)
    >>> model = IsingModel(l2=0.0).fit(np.stack([first, second], axis=1))
    >>> bool(abs(model.couplings_[0, 1] - 2 * np.log(4.0)) < 3 * model.standard_errors_[2])
    True
    """

    _parameters: IsingParameters

    def __init__(
        self,
        objective: str | Objective = "pseudolikelihood",
        *,
        l2: float = 0.01,  # against separation only: estimates are to be read, with their errors
        l1: float = 0.0,
        max_iter: int = 1000,  # standard errors are those of the optimum, so it is met closely
        tol: float = 1e-6,
        learner: Any = None,
        encoding: Encoding = "binary",
        random_state: int | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.l2 = l2
        self.l1 = l1
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.encoding = encoding
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def thresholds_(self) -> FloatArray:
        """``t_i``, shape (n_variables,)."""
        return self.weight_blocks_["thresholds"]

    @property
    def couplings_(self) -> FloatArray:
        """``w_ij`` as a symmetric matrix, zero where there is no edge."""
        return self._parameters.coupling_matrix(self.weight_blocks_["couplings"])

    @property
    def coupling_errors_(self) -> FloatArray:
        """Standard errors of `couplings_`, in the same matrix form."""
        return self._parameters.coupling_matrix(self.standard_errors_[self.n_features_in_ :])

    def summary(self, level: float = 0.95, names: Any = None) -> str:
        """A table of estimates, standard errors and intervals; strongest couplings first.

        Where there are no standard errors (``l1 > 0``, say) it has the estimates, and says why.
        """
        require_number("level", level, above=0, below=1)
        shown = self._names(names)
        labels = shown + [f"{shown[i]} - {shown[j]}" for i, j in self.edges_]
        errors, reason = self._errors()
        n = self.n_features_in_
        order = [*range(n), *(n + np.argsort(-np.abs(self.weights_[n:]), kind="stable"))]
        width = max(len("parameter"), *(len(label) for label in labels))
        samples = "" if self._data is None else f", {self._data.n_samples} samples"
        penalties = f"l2 {self.l2:g}" + (f", l1 {self.l1:g}" if self.l1 else "")
        about_errors = f"no standard errors: {reason}" if reason else "sandwich standard errors"
        lines = [
            f"IsingModel: {n} variables, {len(self.edges_)} couplings{samples}; "
            f"objective {self.objective}, {penalties}",
            f"{self.status_.rstrip('.')}; {about_errors}",
            "",
            f"{'parameter':<{width}}  {'estimate':>9}",
        ]
        cells = [f"{estimate:>9.4f}" for estimate in self.weights_]
        if errors is not None:
            lines[-1] += f"  {'error':>8}  {'z':>7}  {f'{100 * level:g} % interval':>20}"
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = self.weights_ / errors
            ends = self.confidence_intervals(level)
            for index, cell in enumerate(cells):
                cells[index] = (
                    f"{cell}  {errors[index]:>8.4f}  {ratios[index]:>7.2f}  "
                    f"{ends[index, 0]:>9.4f} {ends[index, 1]:>10.4f}"
                )
        for position, index in enumerate(order):
            if position in (0, n):
                lines.append("thresholds" if position == 0 else "couplings")
            lines.append(f"{labels[index]:<{width}}  {cells[index]}")
        return "\n".join(lines)

    def plot_network(
        self, ax: Any = None, names: Any = None, minimum: float = 0.0, level: float | None = None
    ) -> Any:
        """Draw the couplings as a network; returns the axes (needs Matplotlib).

        Couplings below ``minimum`` (absolute) are left out and, if ``level`` is given, those whose
        confidence interval of that level holds 0.
        """
        from fieldfit.plot import plot_network

        require_number("minimum", minimum, at_least=0)
        require_number("level", level, above=0, below=1, or_none=True)
        shown = self.couplings_
        if level is not None:
            ends = self.confidence_intervals(level)[self.n_features_in_ :]
            clear = (ends[:, 0] > 0.0) | (ends[:, 1] < 0.0)
            shown = shown * self._parameters.coupling_matrix(clear.astype(np.float64))
        return plot_network(shown, ax=ax, names=self._names(names), minimum=minimum)

    # -- what the base class asks ---------------------------------------------------------

    def _check_options(self) -> None:
        super()._check_options()
        require_one_of("encoding", self.encoding, tuple(_VALUES))

    def _labels(self, samples: Any) -> LabelMatrix:
        return checked_labels(samples, _VALUES[self.encoding])

    def _values(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array(_VALUES[self.encoding])[labels]

    def _n_labels(self, n_seen: int) -> int:
        return 2

    def _new_parameters(self, n_variables: int, edges: Any, n_labels: int) -> IsingParameters:
        return IsingParameters(n_variables, edges, self.encoding)

    def _check_columns(self, seen: NDArray[np.bool_]) -> None:
        hidden = ~seen.any(axis=1)
        for label, value in enumerate(_VALUES[self.encoding]):
            fine = seen[:, label] | hidden
            if not fine.all():
                raise InvalidInputError(
                    "must have both values in every column (drop a column that is constant), "
                    f"got no {value}",
                    Place("samples", column=int(np.argmin(fine))),
                )

    def _shard_options(self) -> dict[str, Any]:
        return {"encoding": self.encoding}

    def _weight_namer(self) -> Callable[[int], str]:
        names, n = self._variable_names(), self.n_features_in_

        def name(position: int) -> str:
            if position < n:
                return f"threshold of {names[position]}"
            i, j = self.edges_[position - n]
            return f"{names[i]} - {names[j]}"

        return name

    def _further_columns(self) -> dict[str, Any]:
        errors, _ = self._errors()
        return {} if errors is None else {"standard_error": errors}

    def _edge_strengths(self) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        errors, _ = self._errors()
        couplings = self.weight_blocks_["couplings"]
        chosen = None if errors is None else errors[self.n_features_in_ :]
        return couplings, np.abs(couplings), chosen

    def _stored_parameters(self, stored: Stored) -> IsingParameters:
        return IsingParameters(self.n_features_in_, self.edges_, self.encoding)
