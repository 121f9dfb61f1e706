"""Distributions over the matchings of a graph, with weights learned from features of edges.

    p(Y | F) ~ exp(sum_ij W_ij Y_ij),    W = sum_k w_k F_k

``Y`` is a matching: everybody has one partner (or at most one).  Its log-partition is a permanent
or a hafnian, so learning goes by best matchings alone (`MLEStruct`), by exact sums over small
graphs, or by the margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.entropy import Bethe, TreeReweighted
from fieldfit.core.matching_polytope import Kind, MatchingPolytope, require_rho
from fieldfit.errors import InvalidInputError
from fieldfit.estimators._base import FieldEstimator, FloatArray, Path
from fieldfit.estimators._checks import example_weights, require_list, require_pairs
from fieldfit.estimators._matching_problems import (
    ExactMatchings,
    MatchingExample,
    MatchingHinge,
    MatchingProblem,
)
from fieldfit.inference.exact import Exact
from fieldfit.inference.matching_messages import matching_messages
from fieldfit.inference.matching_newton import newton_marginals
from fieldfit.inference.matching_partition import matching_partition
from fieldfit.objective._base import Objective
from fieldfit.objective.likelihood import Likelihood
from fieldfit.objective.max_margin import MaxMargin
from fieldfit.objective.mle_struct import MLEStruct
from fieldfit.objective.perceptron import Perceptron
from fieldfit.oracle.assignment import Assignment
from fieldfit.oracle.matching_marginals import matching_marginals
from fieldfit.oracle.perfect_matching import PerfectMatching

__all__ = ["MatchingCRF"]

Examples = Sequence[Any]
Partners = NDArray[np.int32]

#: Of the gap when marginals are predicted.
MARGINALS_TOL = 1e-4
#: Of messages, which are tried first, and how many sweeps (with each damping) they get.
MESSAGES_TOL, MAX_SWEEPS = 1e-8, 100


class MatchingCRF(FieldEstimator):
    """A conditional distribution over matchings.

    Parameters
    ----------
    objective
        ``"mle-struct"`` (default), ``"likelihood"`` (exact, up to about 20 on a side),
        ``"max-margin"``, ``"perceptron"``, or an object.
    kind
        ``"bipartite"``: rows are matched with columns.  ``"general"``: nodes with nodes; needs the
        extra ``matching``.
    perfect
        Everybody has a partner, of a rectangular matrix everybody on the smaller side; otherwise
        anybody may stay alone (partner -1).
    rho
        Counting number of nodes in the entropy: 1 is Bethe's, 1/2 bounds the likelihood from below.
        ``None`` takes that of the objective's entropy, and 1 if it has none.
    l2, learner, max_iter, tol, random_state, n_jobs, verbose
        As in the other estimators.

    Examples
    --------
    >>> import fieldfit as ff
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20, 5, 5, 2))
    >>> Y = [ff.Assignment().match(x @ [2.0, -1.0]).partners for x in X]
    >>> crf = ff.MatchingCRF(l2=1.0).fit(X, Y)
    >>> crf.score(X, Y) > 0.9, crf.predict_marginals(X)[0].sum(axis=1).round(6).tolist()
    (True, [1.0, 1.0, 1.0, 1.0, 1.0])
    """

    n_features_in_: int

    def __init__(
        self,
        objective: str | Objective = "mle-struct",
        *,
        kind: Kind = "bipartite",
        perfect: bool = True,
        rho: float | None = None,
        l2: float = 1.0,
        l1: float = 0.0,
        learner: Any = None,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.kind = kind
        self.perfect = perfect
        self.rho = rho
        self.l2 = l2
        self.l1 = l1
        self.learner = learner
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # -- the public methods -------------------------------------------------------------------

    def fit(
        self,
        X: Examples,
        Y: Examples,
        *,
        sample_weight: ArrayLike | None = None,
        checkpoint: Path | None = None,
    ) -> MatchingCRF:
        """Learn the weights of the features.

        Parameters
        ----------
        X
            Features of the edges of each example, ``(n, m, K)``, for a general graph symmetric in
            the first two axes; edges whose features are not a number do not exist.
        Y
            The partner of every row (node), ``-1`` for none.
        sample_weight
            One factor for each example's share of the objective.
        checkpoint
            File to resume from if it exists, and to write progress to.
        """
        self._check_options()
        objective, rho = self._objective(), self._rho()
        require_pairs(X, Y)
        weights = example_weights(sample_weight, len(X))
        examples = []
        for index, (x, y) in enumerate(zip(X, Y, strict=True)):
            polytope, features = self._read(index, x)
            if index == 0:
                self.n_features_in_ = features.shape[1]
            partners = _checked_partners(f"Y[{index}]", y, polytope)
            weight = 1.0 if weights is None else float(weights[index])
            examples.append(
                MatchingExample(polytope, features, polytope.of_partners(partners), weight)
            )
        problem = self._problem(objective, examples, rho)
        self._block_shapes = {"edges": (self.n_features_in_,)}
        self._learn(problem, np.zeros(self.n_features_in_), checkpoint=checkpoint)
        return self

    def predict(self, X: Examples) -> list[Partners]:
        """The best matching of each example: partners of its rows (nodes), -1 for none."""
        return [self._best(matrix) for matrix in self.predict_weights(X)]

    def predict_weights(self, X: Examples) -> list[FloatArray]:
        """``W`` of each example, ``-inf`` where there is no edge."""
        self._require_fit()
        require_list("X", X)
        found = []
        for index, x in enumerate(X):
            polytope, features = self._read(index, x)
            found.append(polytope.matrix(features @ self.weights_, -np.inf))
        return found

    def predict_marginals(self, X: Examples) -> list[FloatArray]:
        """Probabilities of edges under the entropy that the model was learned with."""
        rho = self._rho()
        found = []
        n_open = 0
        for matrix in self.predict_weights(X):
            soft = self._messages(matrix, rho)
            if soft is None:
                one = matching_marginals(matrix, self.kind, self.perfect, rho, MARGINALS_TOL)
                n_open += not one.converged
                soft = one.marginals
            found.append(soft)
        self._warn(n_open, len(found))
        return found

    def score(self, X: Examples, Y: Examples) -> float:
        """Share of rows (nodes) whose partner `predict` finds."""
        require_pairs(X, Y)
        n_right = n_all = 0
        for found, y in zip(self.predict(X), Y, strict=True):
            n_right += int((found == np.asarray(y)).sum())
            n_all += len(found)
        return n_right / max(n_all, 1)

    def log_likelihood(self, X: Examples, Y: Examples) -> FloatArray:
        """Exact ``log p(y | x)`` of each example; small graphs only."""
        return np.array(
            [
                score - matching_partition(matrix, self.kind, self.perfect).log_partition
                for matrix, score in self._scored(X, Y)
            ]
        )

    def log_likelihood_bounds(self, X: Examples, Y: Examples) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on ``log p(y | x)`` of each example.

        The reweighted entropy (``rho = 1/2``) gives the lower one.  Bethe's gives the upper one on
        bipartite graphs; for others it is 0, because nothing better is proved.
        """
        lower, upper = [], []
        for matrix, score in self._scored(X, Y):
            wide = matching_marginals(matrix, self.kind, self.perfect, 0.5, MARGINALS_TOL)
            lower.append(score - wide.log_partition)
            if self.kind == "general":
                upper.append(0.0)
                continue
            narrow = matching_marginals(matrix, self.kind, self.perfect, 1.0, MARGINALS_TOL)
            upper.append(min(score - narrow.log_partition, 0.0))
        return np.array(lower), np.array(upper)

    def sample(
        self, X: Examples, n_samples: int = 1, random_state: int | None = None
    ) -> list[NDArray[np.int32]]:
        """Matchings of each example by perturb-and-MAP: best ones of weights with Gumbel noise.

        Each edge gets noise of its own, which is not quite a draw of the model (Papandreou and
        Yuille, ICCV 2011): matchings that differ in one exchange are drawn too much alike.
        """
        rng = np.random.default_rng(self.random_state if random_state is None else random_state)
        drawn = []
        for matrix in self.predict_weights(X):
            rows = []
            for _ in range(n_samples):
                noise = rng.gumbel(size=matrix.shape)
                if self.kind == "general":
                    noise = np.triu(noise, 1)
                    noise = noise + noise.T
                rows.append(self._best(matrix + noise))
            drawn.append(np.array(rows, dtype=np.int32).reshape(n_samples, len(matrix)))
        return drawn

    # -- options --------------------------------------------------------------------------

    def _check_options(self) -> None:
        super()._check_options()
        if self.kind not in ("bipartite", "general"):
            raise InvalidInputError(f"kind must be 'bipartite' or 'general', got {self.kind!r}")
        self._rho()

    def _rho(self) -> float:
        """The counting number of nodes, from the option or from the objective's entropy."""
        if self.rho is not None:
            return require_rho(self.rho)
        objective = self.objective
        if not isinstance(objective, MLEStruct) or isinstance(objective.entropy, Bethe):
            return 1.0
        if isinstance(objective.entropy, TreeReweighted):
            rho = objective.entropy.rho
            if rho is None:
                return 0.5
            if np.isscalar(rho) and not isinstance(rho, str):
                return require_rho(float(rho))  # type: ignore[arg-type]
        raise InvalidInputError(
            "objective must have the entropy Bethe() or TreeReweighted(rho=NUMBER) for matchings, "
            f"got {objective.entropy!r}"
        )

    def _problem(
        self, objective: Objective, examples: list[MatchingExample], rho: float
    ) -> MatchingProblem:
        if isinstance(objective, MLEStruct):
            return MatchingProblem(objective, examples, rho, self.n_jobs)
        if isinstance(objective, Likelihood) and isinstance(objective.inference, Exact):
            return ExactMatchings(objective, examples, rho, self.n_jobs)
        if isinstance(objective, (MaxMargin, Perceptron)):
            margin = 1.0 if isinstance(objective, MaxMargin) else 0.0
            return MatchingHinge(objective, examples, rho, self.n_jobs, margin)
        raise InvalidInputError(
            "objective must be 'mle-struct', 'likelihood', 'max-margin' or 'perceptron' for "
            f"matchings, got {self.objective!r}"
        )

    # -- examples -------------------------------------------------------------------------

    def _read(self, index: int, x: Any) -> tuple[MatchingPolytope, FloatArray]:
        """The graph of an example, and the features of its edges."""
        array = np.asarray(x, dtype=np.float64)
        name = f"X[{index}]"
        if array.ndim != 3:
            raise InvalidInputError(f"{name} must have shape (n, m, n_features), got {array.shape}")
        n_features = getattr(self, "n_features_in_", array.shape[2])
        if array.shape[2] != n_features and index:
            raise InvalidInputError(
                f"{name} must have {n_features} features as X[0], got {array.shape[2]}"
            )
        if hasattr(self, "weights_") and array.shape[2] != len(self.weights_):
            raise InvalidInputError(
                f"{name} must have {len(self.weights_)} features as in fit, got {array.shape[2]}"
            )
        allowed: NDArray[np.bool_] = np.logical_not(np.isnan(array).any(axis=2))
        if np.isinf(array[allowed]).any():
            raise InvalidInputError(
                f"{name} must be finite, or NaN where there is no edge, got inf"
            )
        if self.kind == "general":
            off = ~np.eye(len(array), dtype=bool) if array.shape[0] == array.shape[1] else None
            if off is None or not np.array_equal(
                array[off], array.transpose(1, 0, 2)[off], equal_nan=True
            ):
                raise InvalidInputError(
                    f"{name} must be square and symmetric for kind='general', got shape "
                    f"{array.shape}"
                )
            if self.perfect and len(array) % 2:
                raise InvalidInputError(
                    f"{name} must have an even number of nodes for perfect matchings, "
                    f"got {len(array)}"
                )
        polytope = MatchingPolytope(allowed, self.kind, self.perfect)
        rows, columns = polytope.edges.T
        return polytope, np.ascontiguousarray(array[rows, columns])

    def _scored(self, X: Examples, Y: Examples) -> list[tuple[FloatArray, float]]:
        """Weights of each example and the score of its matching."""
        require_pairs(X, Y)
        found = []
        for index, (matrix, y) in enumerate(zip(self.predict_weights(X), Y, strict=True)):
            polytope = MatchingPolytope.of_weights(matrix, self.kind, self.perfect)
            edges = polytope.of_partners(_checked_partners(f"Y[{index}]", y, polytope))
            found.append((matrix, float(edges @ polytope.values(matrix))))
        return found

    def _best(self, matrix: FloatArray) -> Partners:
        oracle = Assignment if self.kind == "bipartite" else PerfectMatching
        return oracle(perfect=self.perfect).match(matrix).partners

    def _messages(self, matrix: FloatArray, rho: float) -> FloatArray | None:
        """Marginals by message passing, much faster than by best matchings where it converges."""
        if self.kind == "general":  # messages do not know about odd sets of nodes
            return None
        polytope = MatchingPolytope.of_weights(matrix, self.kind, self.perfect)
        weights = polytope.values(matrix)
        found = matching_messages(polytope, weights, rho, MESSAGES_TOL, MAX_SWEEPS)
        point: FloatArray | None = found.point if found.converged else None
        if point is None and np.isfinite(found.residual):
            point = newton_marginals(polytope, weights, rho, found.point, MESSAGES_TOL)
        return None if point is None else polytope.matrix(point[: polytope.n_edges])

    def _warn(self, n_open: int, count: int) -> None:
        if n_open:
            import warnings

            from fieldfit.errors import ConvergenceWarning

            warnings.warn(
                f"MatchingCRF: the marginals of {n_open} of {count} examples did not converge; "
                "they are the last ones reached",
                ConvergenceWarning,
                stacklevel=3,
            )

    # -- files ----------------------------------------------------------------------------

    def _model_metadata(self) -> dict[str, Any]:
        return {"n_features_in": self.n_features_in_}

    def _restore_model(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.n_features_in_ = int(metadata["n_features_in"])


def _checked_partners(name: str, y: Any, polytope: MatchingPolytope) -> Partners:
    """Partners that make a matching of the graph."""
    partners = np.asarray(y)
    n_rows, n_columns = polytope.shape
    if partners.shape != (n_rows,) or partners.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must be {n_rows} integers, the partner of each row, got shape "
            f"{partners.shape} of {partners.dtype}"
        )
    if ((partners < -1) | (partners >= n_columns)).any():
        row = int(np.argmax((partners < -1) | (partners >= n_columns)))
        raise InvalidInputError(
            f"{name}[{row}] must be a column below {n_columns} or -1, got {partners[row]}"
        )
    edges = polytope.of_partners(partners)
    n_used = int((partners >= 0).sum())
    if polytope.kind == "general":
        matched = np.flatnonzero(partners >= 0)
        if (partners[partners[matched]] != matched).any():
            raise InvalidInputError(f"{name} must be mutual: the partner of i's partner is i")
        n_used //= 2
    elif len(np.unique(partners[partners >= 0])) != n_used:
        raise InvalidInputError(f"{name} must name no column twice, got {partners.tolist()}")
    if int(edges.sum()) != n_used:
        raise InvalidInputError(f"{name} must use edges that X has, got one that does not exist")
    point = polytope.point(edges)
    covered = np.zeros(polytope.n_nodes)
    for side in range(2):
        covered += np.bincount(polytope.ends[:, side], weights=edges, minlength=polytope.n_nodes)
    must = np.ones(polytope.n_nodes, dtype=bool)
    must[polytope.alone] = False
    if (covered[must] != 1.0).any() or (point < 0.0).any():
        node = int(np.flatnonzero(must & (covered != 1.0))[0])
        raise InvalidInputError(f"{name} must give everybody a partner, node {node} has none")
    return partners.astype(np.int32)
