"""The Potts model of categorical observations; direct coupling analysis of protein sequences.

    p(y) ∝ exp(sum_i f_i(y_i) + sum_(ij) J_ij(y_i, y_j)),      y_i in 0..q-1

Fitted to the aligned sequences of a protein family by pseudo-likelihood, strong couplings point to
residues that touch in the folded structure.  The score of a pair is the Frobenius norm of its
coupling in the zero-sum gauge, with the average-product correction ``F_ij - F_i F_j / F`` (means
over pairs), which removes what is due to the variability of single columns.

References: Ekeberg et al., "Improved contact prediction in proteins: using pseudolikelihoods to
infer Potts models", Physical Review E 87 (2013); Dunn, Wahl and Gloor, Bioinformatics 24 (2008)
for the correction.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import integers
from fieldfit._parallel import n_threads, ordered_map
from fieldfit._typing import FloatArray, LabelMatrix
from fieldfit._validation import require_integer, require_number, require_one_of, shown
from fieldfit.errors import FileFormatError, InvalidInputError, Place
from fieldfit.io.stored import Stored
from fieldfit.models.base import require_no_gaps
from fieldfit.models.pairwise.pairwise_mrf import PairwiseMRF
from fieldfit.models.pairwise.pairwise_parameters import PottsParameters, zero_sum
from fieldfit.models.pairwise.sample_data import (
    MAX_LABELS,
    checked_labels,
    checked_sample_weight,
    require_labels,
)
from fieldfit.models.pairwise.sequence_identity import CHUNK, add_similar
from fieldfit.models.weight_names import potts_name
from fieldfit.objectives.base import Objective

__all__ = ["PottsModel", "sequence_weights"]


class PottsModel(PairwiseMRF):
    """Fields and full coupling tables of variables with ``q`` labels.

    Parameters
    ----------
    n_labels
        ``q``; ``None``: as many as the samples show, which must then be 0..q-1 without gaps.
    objective, l2, l1, max_iter, tol, learner, random_state, n_jobs, verbose
        As for `IsingModel`.  Tables are redundant, and a penalty chooses among equal
        distributions; with ``l2 = 0`` the learner's answer does.
    identity
        Share of equal columns from which ``fit(..., sample_weight="identity")`` counts sequences as
        similar.

    Attributes
    ----------
    fields_ : (n_variables, q)
    couplings_ : (n_edges, q, q), in the order of ``edges_``
    zero_sum_fields_, zero_sum_couplings_
        The same distribution in the gauge in which every row and column sums to 0.
    standard_errors_ : (n_weights,)
        Of the parameters in the *zero-sum gauge* (fields, then couplings), because data determine
        only what does not depend on the gauge.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(0, 3, 3000)
    >>> second = (first + rng.integers(0, 2, 3000)) % 3
    >>> samples = np.stack([first, second, rng.integers(0, 3, 3000)], axis=1)
    >>> scores = PottsModel(l2=1.0).fit(samples).contact_scores()
    >>> bool(scores[0, 1] > max(scores[0, 2], scores[1, 2]))
    True
    """

    _parameters: PottsParameters

    def __init__(
        self,
        objective: str | Objective = "pseudolikelihood",
        *,
        n_labels: int | None = None,
        l2: float = 1.0,  # tables are redundant and large: a prior chooses the gauge
        l1: float = 0.0,
        max_iter: int = 500,  # a million weights, of which the ranking of contacts is wanted
        tol: float = 1e-4,
        learner: Any = None,
        identity: float = 0.8,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.n_labels = n_labels
        self.l2 = l2
        self.l1 = l1
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.identity = identity
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def fields_(self) -> FloatArray:
        """``f_i(k)``, shape (n_variables, q)."""
        return self.weight_blocks_["fields"]

    @property
    def couplings_(self) -> FloatArray:
        """``J_ij(k, l)``, shape (n_edges, q, q), in the order of ``edges_``."""
        return self.weight_blocks_["couplings"]

    @property
    def zero_sum_fields_(self) -> FloatArray:
        """Fields in the zero-sum gauge."""
        return zero_sum(self.fields_, self.couplings_, self.edges_)[0]

    @property
    def zero_sum_couplings_(self) -> FloatArray:
        """Couplings in the zero-sum gauge."""
        return zero_sum(self.fields_, self.couplings_, self.edges_)[1]

    def contact_scores(
        self,
        gauge: str = "zero-sum",
        correction: str | None = "average-product",
        ignore_labels: ArrayLike = (),
    ) -> FloatArray:
        """Coupling strength of every pair, a symmetric matrix with zero diagonal.

        Rows and columns are variables, counted from 0.

        Frobenius norms in the given gauge (``"zero-sum"``, or ``"fitted"`` for the tables as they
        are), without the rows and columns of ``ignore_labels`` (gaps, for instance);
        ``correction=None`` leaves them as they are.  Pairs without an edge have 0.
        """
        require_one_of("gauge", gauge, ("zero-sum", "fitted"))
        require_one_of("correction", correction, ("average-product",), or_none=True)
        tables = self.zero_sum_couplings_ if gauge == "zero-sum" else self.couplings_
        q = tables.shape[1]
        ignored = integers("ignore_labels", ignore_labels).reshape(-1)
        if ignored.size and (ignored.min() < 0 or ignored.max() >= q):
            raise InvalidInputError(f"ignore_labels must be in 0..{q - 1}, got {ignored.tolist()}")
        kept = np.setdiff1d(np.arange(q), ignored)
        norms = np.sqrt((tables[:, kept][:, :, kept] ** 2).sum(axis=(1, 2)))
        first, second = self.edges_[:, 0], self.edges_[:, 1]
        n = self.n_features_in_
        if correction is not None and len(norms):
            degrees = np.bincount(self.edges_.reshape(-1), minlength=n)
            sums = np.bincount(first, norms, n) + np.bincount(second, norms, n)
            means = sums / np.maximum(degrees, 1)
            overall = norms.mean()
            if overall > 0.0:
                norms = norms - means[first] * means[second] / overall
        scores = np.zeros((n, n))
        scores[first, second] = norms
        scores[second, first] = norms
        return scores

    def summary(self, n_pairs: int = 20, names: Any = None) -> str:
        """The strongest pairs as a table; variables without names are counted from 0."""
        require_integer("n_pairs", n_pairs, at_least=0)
        shown = self._names(names)
        scores = self.contact_scores()
        strength = self.contact_scores(correction=None)
        first, second = self.edges_[:, 0], self.edges_[:, 1]
        order = np.argsort(-scores[first, second], kind="stable")[:n_pairs]
        labels = {int(e): f"{shown[first[e]]} - {shown[second[e]]}" for e in order}
        width = max([len("pair"), *(len(label) for label in labels.values())])
        lines = [
            f"PottsModel: {self.n_features_in_} variables with {self._parameters.n_labels} labels, "
            f"{len(self.edges_)} couplings; objective {self.objective}, l2 {self.l2:g}",
            self.status_,
            "",
            f"{'pair':<{width}}  {'corrected':>9}  {'norm':>8}",
        ]
        for e, label in labels.items():
            i, j = first[e], second[e]
            lines.append(f"{label:<{width}}  {scores[i, j]:>9.4f}  {strength[i, j]:>8.4f}")
        return "\n".join(lines)

    def plot_contacts(self, ax: Any = None, contacts: Any = None, n_pairs: int = 50) -> Any:
        """Map of the strongest pairs, above the diagonal; known contacts below it.

        Variables are counted from 0.
        """
        from fieldfit.plot import plot_contacts

        require_integer("n_pairs", n_pairs, at_least=0)
        return plot_contacts(self.contact_scores(), ax=ax, contacts=contacts, n_pairs=n_pairs)

    # -- what the base class asks ---------------------------------------------------------

    def _labels(self, samples: Any) -> LabelMatrix:
        labels = checked_labels(samples)
        if self.n_labels is not None:
            require_labels(labels, self.n_labels)
        return labels

    def _values(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        return labels

    def _n_labels(self, n_seen: int) -> int:
        return n_seen if self.n_labels is None else int(self.n_labels)

    def _new_parameters(self, n_variables: int, edges: Any, n_labels: int) -> PottsParameters:
        return PottsParameters(n_variables, edges, n_labels)

    def _check_options(self) -> None:
        super()._check_options()
        require_integer("n_labels", self.n_labels, at_least=2, at_most=MAX_LABELS, or_none=True)
        require_number("identity", self.identity, above=0, at_most=1)

    def _check_columns(self, seen: NDArray[np.bool_]) -> None:
        labels = np.flatnonzero(seen.any(axis=0))
        if len(labels) < 2:
            found = f"only {labels[0]}" if len(labels) else "none"
            raise InvalidInputError(f"must have at least two labels, got {found}", Place("samples"))
        if self.n_labels is None:
            require_no_gaps(labels, "samples")
        constant = np.flatnonzero(seen.sum(axis=1) == 1)
        if len(constant) and self.l2 == 0.0:
            raise InvalidInputError(
                "must have two labels in every column unless l2 is positive (drop a column that is "
                f"constant), got only {np.argmax(seen[constant[0]])}",
                Place("samples", column=int(constant[0])),
            )

    def _shard_options(self) -> dict[str, Any]:
        return {}

    def _weights_of_samples(self, weight: Any, labels: LabelMatrix) -> FloatArray:
        if isinstance(weight, str):
            if weight != "identity":
                raise InvalidInputError(
                    f"sample_weight must be an array, None or 'identity', got {shown(weight)}"
                )
            return sequence_weights(labels, self.identity, n_jobs=self.n_jobs)
        return checked_sample_weight(weight, len(labels))

    def _weight_namer(self) -> Callable[[int], str]:
        names, n_labels = self._variable_names(), self._parameters.n_labels
        return lambda position: potts_name(position, names, self.edges_, n_labels)

    def _edge_strengths(self) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        scores = self.contact_scores()[self.edges_[:, 0], self.edges_[:, 1]]
        return scores, scores, None

    def _estimates(self) -> FloatArray:
        fields, couplings = zero_sum(self.fields_, self.couplings_, self.edges_)
        return np.concatenate([fields.reshape(-1), couplings.reshape(-1)])

    def _of_estimates(self, covariance: FloatArray) -> FloatArray:
        """The change of gauge is linear: ``T covariance T^T``."""
        given = self._parameters

        def change(columns: FloatArray) -> FloatArray:
            moved = np.empty_like(columns)
            for index, column in enumerate(columns.T):
                fields, couplings = zero_sum(*_split(given, column), given.edges)
                moved[:, index] = np.concatenate([fields.reshape(-1), couplings.reshape(-1)])
            return moved

        return change(change(covariance).T)

    def _model_metadata(self) -> dict[str, Any]:
        return {**super()._model_metadata(), "n_labels": self._parameters.n_labels}

    def _stored_parameters(self, stored: Stored) -> PottsParameters:
        n_labels = stored.integer("n_labels", 2, MAX_LABELS)
        parameters = PottsParameters(self.n_features_in_, self.edges_, n_labels)
        if parameters.block_shapes != self._block_shapes:  # the gauge of estimates depends on it
            raise FileFormatError(
                f"expected 'block_shapes' {shown(parameters.block_shapes)}, found "
                f"{shown(self._block_shapes)}"
            )
        return parameters


def _split(parameters: PottsParameters, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    shapes = parameters.block_shapes
    fields, couplings = np.split(weights, [parameters.n_variables * parameters.n_labels])
    return fields.reshape(shapes["fields"]), couplings.reshape(shapes["couplings"])


def sequence_weights(
    samples: Any, identity: float = 0.8, *, n_jobs: int | None = None
) -> FloatArray:
    """One over the number of samples (itself included) that are similar to each sample.

    Similar samples are equal in at least a share ``identity`` of their columns.

    The sum of the weights is the effective number of sequences.  A missing entry equals only
    another missing entry.

    Parameters
    ----------
    samples
        Labels, ``(n_samples, n_variables)``.
    identity
        Share of equal columns that makes two samples similar.
    n_jobs
        Threads.

    Returns
    -------
    array
        One weight for each sample.

    Examples
    --------
    >>> sequence_weights([[0, 1, 2, 3], [0, 1, 2, 2], [3, 3, 3, 3]], identity=0.75).tolist()
    [0.5, 0.5, 1.0]
    """
    require_number("identity", identity, above=0, at_most=1)
    labels = checked_labels(samples)
    distinct, inverse, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    n_rows, n_columns = distinct.shape
    padded = np.zeros((n_rows, -(-n_columns // CHUNK) * CHUNK), dtype=np.uint8)
    padded[:, :n_columns] = distinct + 1
    # the slack keeps 0.8 * 5 = 4.000...1 from asking for five equal columns
    most_different = n_columns - int(np.ceil(identity * n_columns - 1e-9))
    totals = counts.astype(np.float64)
    n_jobs = min(n_threads(n_jobs), n_rows)
    # equal numbers of pairs: the rows of a range compare with all later rows
    share = 1.0 - np.sqrt(1.0 - np.linspace(0.0, 1.0, n_jobs + 1))
    bounds = np.round(share * n_rows).astype(int).tolist()

    def compare(rows: tuple[int, int]) -> FloatArray:
        found = np.zeros(n_rows)
        add_similar(padded, counts.astype(np.float64), most_different, *rows, found)
        return found

    for found in ordered_map(compare, pairwise(bounds), n_jobs):
        totals += found  # whole numbers: the sum is exact in any order
    return np.asarray(1.0 / totals[inverse.reshape(-1)])
