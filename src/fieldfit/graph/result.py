"""Results of inferences and MAP searches: beliefs, log-partition, bound, labels, status.

Failure is a value: whether the method converged, how far it was, and what the number in
``log_partition`` proves are fields, with one sentence for people in ``status``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fieldfit.graph.potentials import Beliefs
from fieldfit.report.page_parts import small_table

__all__ = ["Bound", "InferenceResult", "MapResult"]

Bound = Literal["exact", "upper", "lower"] | None


@dataclass(frozen=True)
class InferenceResult:
    """Beliefs and log-partition of one run.

    Attributes
    ----------
    beliefs
        (Pseudo-)marginals of every variable and factor.
    log_partition
        The value of ``A(th)`` or of its approximation, natural logarithm.
    bound
        What is proved about ``log_partition``: it equals the true value ("exact"), is never
        below it ("upper"), never above it ("lower"), or nothing (``None``).
    converged, n_iter, residual
        Whether the tolerance was met, after how many sweeps, and the last change.
    status
        One sentence that says how the run ended.
    method
        Name of the algorithm, e.g. ``"SumProduct(Bethe, sequential)"``.
    log_partitions
        One value for each example of a batch; a single graph has one.
    diagnostics
        Figures that only some methods have (effective sample size, treewidth, ...).  Methods that
        run the examples of a batch one by one have a list of them under ``"examples"``.
    state
        What a later run can start from (``init=``); not meant to be read.
    converged_examples
        Which examples of a batch converged; ``None`` for a single graph.
    """

    beliefs: Beliefs
    log_partition: float
    bound: Bound
    converged: bool
    n_iter: int
    residual: float
    status: str
    method: str = ""
    log_partitions: NDArray[np.float64] | None = None
    converged_examples: NDArray[np.bool_] | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)
    state: Any = field(default=None, repr=False)

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        graph = self.beliefs.graph
        rows = {
            "log partition": float(self.log_partition),
            "bound": self.bound or "nothing is proved",
            "converged": bool(self.converged),
            "iterations": int(self.n_iter),
            "residual": float(self.residual),
            "status": self.status,
            "variables": graph.n_variables,
            "factors": graph.n_factors,
        }
        return small_table(self.method or "InferenceResult", rows)


@dataclass(frozen=True)
class MapResult:
    """A labelling, its score, and what is proved about it.

    ``upper_bound`` is never below the best score of any labelling; ``optimal`` is true only if
    the labelling is proved to be a best one.  ``scores`` and ``optimal_examples`` say the same of
    each example of a batch (``None``: of a single graph).  ``beliefs`` are those of the relaxation
    over the local polytope where the method solves that; their linear score is the upper bound.

    Attributes
    ----------
    labels
        One label for each variable.
    score
        Of these labels.
    upper_bound
        Never below the best score of any labelling.
    optimal
        True only if the labelling is proved to be a best one.
    status
        One sentence that says how the search ended.
    method
        Name of the algorithm.
    converged, n_iter
        Whether the search met its tolerance, and after how many rounds.
    scores, optimal_examples
        The same for each example of a batch; ``None`` for a single graph.
    beliefs
        Those of the relaxation over the local polytope where the method solves that; their linear
        score is the upper bound.

    Examples
    --------
    >>> import numpy as np, fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> potentials = ff.Potentials(graph, [[0.0, 2.0], [0.0, 0.1], [0.5, 0.0]], np.eye(2))
    >>> result = ff.decode(graph, potentials)
    >>> result.labels.tolist(), round(result.score, 6), result.optimal
    ([1, 1, 1], 4.1, True)
    """

    labels: NDArray[np.int32]
    score: float
    upper_bound: float
    optimal: bool
    status: str
    method: str = ""
    converged: bool = True
    n_iter: int = 0
    scores: NDArray[np.float64] | None = None
    optimal_examples: NDArray[np.bool_] | None = None
    beliefs: Beliefs | None = None

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        rows = {
            "score": float(self.score),
            "upper bound": float(self.upper_bound),
            "optimal": bool(self.optimal),
            "status": self.status,
            "labels": np.array2string(self.labels, threshold=20),
        }
        return small_table(self.method or "MapResult", rows)
