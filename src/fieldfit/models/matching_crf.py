"""Conditional random fields over matchings (permutations, partners), with features of edges.

    p(Y | F) ~ exp(sum_ij W_ij Y_ij),    W = sum_k w_k F_k

``Y`` is a matching: everybody has one partner (or at most one), or as many as a capacity says.  Its
log-partition is a permanent or a hafnian, so learning goes by best matchings alone (`MLEStruct`),
by exact sums over small graphs, or by the margin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import plain_array, real_numbers
from fieldfit._random_state import random_generator
from fieldfit._typing import FloatArray
from fieldfit._validation import require_flag, require_integer
from fieldfit.errors import InvalidInputError, Place
from fieldfit.inference.matching.matching_marginals import matching_marginals, matching_oracle
from fieldfit.inference.matching.matching_partition import matching_partition
from fieldfit.inference.matching.matching_polytope import Capacities, Kind, MatchingPolytope
from fieldfit.io.stored import Stored
from fieldfit.learners.base import Validation
from fieldfit.models.answer_list import AnswerList
from fieldfit.models.base import (
    FieldEstimator,
    Path,
    example_weights,
    held_out_pair,
    require_list,
    require_pairs,
)
from fieldfit.models.dispatch import make_problem
from fieldfit.models.matching_problems import (
    MatchingData,
    MatchingExample,
    node_counting_number,
    require_capacity,
    require_kind,
)
from fieldfit.objectives.base import Objective
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = ["MatchingCRF", "agreement", "checked_capacities", "checked_features", "checked_matching"]

# -- Checks of examples --------------------------------------------------------------------


def agreement(
    found: Sequence[NDArray[np.int32]], given: Sequence[Any], has_capacities: bool
) -> float:
    """Share of rows with the given partner; F1 of the edges if there are capacities."""
    n_right = n_all = 0
    for one, y in zip(found, given, strict=True):
        if has_capacities:
            n_right += 2 * int((one * np.asarray(y)).sum())
            n_all += int(one.sum() + np.asarray(y).sum())
        else:
            n_right += int((one == np.asarray(y)).sum())
            n_all += len(one)
    return n_right / max(n_all, 1)


def checked_features(place: Place, x: Any, kind: Kind, perfect: bool) -> FloatArray:
    """Features ``(n, m, K)``, NaN where there is no edge."""
    array = real_numbers("", x, place)
    if array.ndim != 3:
        hint = "; one example is [features]" if array.ndim == 2 else ""
        raise InvalidInputError(
            f"must have shape (n, m, n_features), got {array.shape}{hint}", place
        )
    if np.isinf(array[~np.isnan(array).any(axis=2)]).any():
        raise InvalidInputError("must be finite, or NaN where there is no edge, got inf", place)
    if kind == "bipartite":
        return array
    n = len(array)
    is_square = array.shape[1] == n
    off = ~np.eye(n, dtype=bool)
    if not is_square or not np.array_equal(
        array[off], array.transpose(1, 0, 2)[off], equal_nan=True
    ):
        raise InvalidInputError(
            f"must be square and symmetric for kind='general', got shape {array.shape}", place
        )
    if perfect and n % 2:
        raise InvalidInputError(
            f"must have an even number of nodes for perfect matchings, got {n}", place
        )
    return array


def checked_capacities(
    index: int, given: Any, shape: tuple[int, ...], kind: Kind
) -> Capacities | None:
    """Numbers of partners of an example's rows and columns; ``None`` for one each."""
    if given is None:
        return None
    if kind == "general":
        raise InvalidInputError("capacities must be None for kind='general'")
    pair = given if isinstance(given, (tuple, list)) else (given, given)
    found = []
    for side, count in zip(pair, shape, strict=True):
        array = plain_array(f"capacities[{index}]", side)
        if array.dtype.kind not in "iu" or array.shape not in ((), (count,)):
            raise InvalidInputError(
                f"capacities[{index}] must be integers, {shape[0]} of rows and {shape[1]} of "
                f"columns, got shape {array.shape} of {array.dtype}"
            )
        found.append(np.array(np.broadcast_to(array, (count,)), dtype=np.int64))
    return found[0], found[1]


def checked_matching(place: Place, y: Any, polytope: MatchingPolytope) -> FloatArray:
    """The edges (0 or 1) of a matching: partners of rows, or a matrix if there are capacities."""
    if polytope.capacities is not None:
        return _edges_of_matrix(place, y, polytope)
    return _edges_of_partners(place, y, polytope)


def require_answer(place: Place, y: Any, polytope: MatchingPolytope) -> None:
    """Refuse what says nothing about the partners of an example; they need be no matching."""
    if polytope.capacities is not None:
        _checked_matrix(place, y, polytope)
    else:
        _checked_partners(place, y, polytope)


def _checked_matrix(place: Place, y: Any, polytope: MatchingPolytope) -> NDArray[Any]:
    matrix = plain_array("", y, place)
    if (
        matrix.shape != polytope.shape
        or matrix.dtype.kind not in "biuf"
        or not np.isin(matrix, (0, 1)).all()
    ):
        raise InvalidInputError(
            f"must be a matrix of 0 and 1 of shape {polytope.shape} with capacities, got "
            f"shape {matrix.shape} of {matrix.dtype}",
            place,
        )
    return matrix


def _edges_of_matrix(place: Place, y: Any, polytope: MatchingPolytope) -> FloatArray:
    matrix = _checked_matrix(place, y, polytope)
    edges = polytope.values(matrix.astype(np.float64))
    if edges.sum() != matrix.sum():
        raise InvalidInputError("must use edges that X has, got one that does not exist", place)
    assert polytope.capacities is not None
    capacities = np.concatenate(polytope.capacities)
    degrees = polytope.degrees(edges)
    wrong = degrees != capacities if polytope.perfect else degrees > capacities
    if wrong.any():
        node = int(np.argmax(wrong))
        n_rows = polytope.shape[0]
        who = f"row {node}" if node < n_rows else f"column {node - n_rows}"
        demand = "exactly" if polytope.perfect else "at most"
        raise InvalidInputError(
            f"must have {demand} {capacities[node]} partners of {who}, got {int(degrees[node])}",
            place,
        )
    return edges


def _checked_partners(place: Place, y: Any, polytope: MatchingPolytope) -> NDArray[Any]:
    partners = plain_array("", y, place)
    n_rows, n_columns = polytope.shape
    if partners.shape != (n_rows,) or partners.dtype.kind not in "iu":
        raise InvalidInputError(
            f"must be {n_rows} integers, the partner of each row, got shape "
            f"{partners.shape} of {partners.dtype}",
            place,
        )
    if ((partners < -1) | (partners >= n_columns)).any():
        row = int(np.argmax((partners < -1) | (partners >= n_columns)))
        raise InvalidInputError(
            f"must be a column below {n_columns} or -1, got {partners[row]}",
            replace(place, position=row),
        )
    return partners


def _edges_of_partners(place: Place, y: Any, polytope: MatchingPolytope) -> FloatArray:
    partners = _checked_partners(place, y, polytope)
    edges = polytope.of_partners(partners)
    n_used = int((partners >= 0).sum())
    if polytope.kind == "general":
        matched = np.flatnonzero(partners >= 0)
        if (partners[partners[matched]] != matched).any():
            raise InvalidInputError("must be mutual: the partner of i's partner is i", place)
        n_used //= 2
    elif len(np.unique(partners[partners >= 0])) != n_used:
        raise InvalidInputError(f"must name no column twice, got {partners.tolist()}", place)
    if int(edges.sum()) != n_used:
        raise InvalidInputError("must use edges that X has, got one that does not exist", place)
    must = np.ones(polytope.n_nodes, dtype=bool)
    must[polytope.alone] = False
    lonely = np.flatnonzero(must & (polytope.degrees(edges) != 1.0))
    if len(lonely):
        raise InvalidInputError(
            f"must give everybody a partner, node {int(lonely[0])} has none", place
        )
    return edges


# -- The estimator -------------------------------------------------------------------------


Examples = Sequence[Any]
#: The partner of each row, or a matrix of 0 and 1.
Matches = NDArray[np.int32]
Capacity = int | tuple[int, int]
#: Numbers of partners of the rows and of the columns of each example.
GivenCapacities = Sequence[tuple[ArrayLike, ArrayLike]]

#: Of the gap when marginals are predicted.
MARGINALS_TOL = 1e-4


class MatchingCRF(FieldEstimator):
    """A conditional distribution over matchings.

    Parameters
    ----------
    objective
        ``"mle-struct"`` (default; with ``points="marginals"`` on bipartite graphs, see
        `MLEStruct`), ``"likelihood"`` (exact, up to about 20 on a side), ``"independent"``
        (everybody chooses a partner, whatever the others choose), ``"max-margin"``,
        ``"perceptron"``, or an object.
    kind
        ``"bipartite"``: rows are matched with columns.  ``"general"``: nodes with nodes; needs the
        extra ``matching``.
    perfect
        Everybody has a partner, of a rectangular matrix everybody on the smaller side; otherwise
        anybody may stay alone (partner -1).
    rho
        Counting number of nodes in the entropy: 1 is Bethe's, 1/2 bounds the likelihood from below.
        ``None`` takes that of the objective's entropy, and 1 if it has none.
    capacity
        Several partners each, on bipartite graphs: one integer for all, or a pair (of rows, of
        columns).  With ``perfect`` everybody has exactly so many, otherwise at most.  Matchings are
        then matrices of 0 and 1.  The entropy is that of independent edges (``rho = 0``), which is
        never below the true one, because what edges tell of each other only lowers it; so the
        surrogate still bounds the likelihood from below, more loosely.
    l2, l1, learner, max_iter, tol, random_state, n_jobs, verbose
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
        capacity: Capacity | None = None,
        l2: float = 1.0,  # the dual divides by it
        l1: float = 0.0,
        learner: Any = None,
        max_iter: int = 200,
        tol: float = 1e-4,  # of a certified gap, not of a gradient
        random_state: int | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.kind = kind
        self.perfect = perfect
        self.rho = rho
        self.capacity = capacity
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
        validation: tuple[Examples, Examples] | None = None,
        capacities: GivenCapacities | None = None,
        start: ArrayLike | None = None,
    ) -> MatchingCRF:
        """Learn the weights of the features.

        Parameters
        ----------
        X
            Features of the edges of each example, ``(n, m, K)``, for a general graph symmetric in
            the first two axes; edges whose features are not a number do not exist.
        Y
            The partner of every row (node), ``-1`` for none; with capacities a matrix of 0 and 1.
        sample_weight
            One factor for each example's share of the objective.
        checkpoint
            File to resume from if it exists, and to write progress to.
        validation
            Held-out ``(X, Y)``: its score is put in the trace, and the fit ends when it has stopped
            rising.
        capacities
            Where numbers of partners are known for each example: a pair of integer arrays (of rows,
            of columns) for each, in place of the option `capacity`.
        start
            Weights to begin with; zeros if ``None``.
        """
        self._check_options()
        objective = self._objective()
        rho = self._rho(capacities)
        require_pairs(X, Y)
        weights = example_weights(sample_weight, len(X))
        self._reset_fit()
        examples = []
        for index, (x, y) in enumerate(zip(X, Y, strict=True)):
            polytope, features = self._read(index, x, capacities)
            if index == 0:
                self.n_features_in_ = features.shape[1]
            matched = checked_matching(Place("Y", index), y, polytope)
            weight = 1.0 if weights is None else float(weights[index])
            examples.append(MatchingExample(polytope, features, matched, weight))
        data = MatchingData(examples, rho, self.n_jobs)
        problem = make_problem("matchings", objective, data)
        self._block_shapes = self._shapes_of_model()
        self._learn(
            problem,
            start,
            checkpoint=checkpoint,
            validation=self._validation(objective, validation),
        )
        return self

    def predict(self, X: Examples, capacities: GivenCapacities | None = None) -> list[Matches]:
        """The best matching of each example: partners of its rows (nodes), -1 for none.

        With capacities it is a matrix of 0 and 1.
        """
        found = self._weight_matrices(X, capacities)
        return AnswerList(_best(polytope, matrix) for polytope, matrix in found)

    def predict_weights(self, X: Examples) -> list[FloatArray]:
        """``W`` of each example, ``-inf`` where there is no edge."""
        return [matrix for _, matrix in self._weight_matrices(X, None)]

    def predict_marginals(
        self, X: Examples, capacities: GivenCapacities | None = None
    ) -> list[FloatArray]:
        """Probabilities of edges under the entropy that the model was learned with."""
        rho = self._rho(capacities)
        found = []
        n_open = 0
        for polytope, matrix in self._weight_matrices(X, capacities):
            one = matching_marginals(
                matrix, self.kind, self.perfect, rho, MARGINALS_TOL, capacities=polytope.capacities
            )
            n_open += not one.converged
            found.append(one.marginals)
        self._warn(n_open, len(found))
        return found

    def score(self, X: Examples, Y: Examples, capacities: GivenCapacities | None = None) -> float:
        """Share of rows (nodes) whose partner `predict` finds.

        With capacities, F1 of the edges: twice those in common, of the sum of both numbers.
        """
        require_pairs(X, Y)
        has_capacities = capacities is not None or self.capacity is not None
        found = self._weight_matrices(X, capacities)
        for index, (polytope, _) in enumerate(found):
            require_answer(Place("Y", index), Y[index], polytope)
        return agreement([_best(*pair) for pair in found], Y, has_capacities)

    def log_likelihood(self, X: Examples, Y: Examples) -> FloatArray:
        """Exact ``log p(y | x)`` of each example; small graphs only, and one partner each."""
        if self.capacity is not None:
            raise InvalidInputError(
                "capacity must be None for an exact log-likelihood, see log_likelihood_bounds, "
                f"got {self.capacity!r}"
            )
        return np.array(
            [
                score - matching_partition(matrix, self.kind, self.perfect).log_partition
                for _, matrix, score in self._scored(X, Y, None)
            ]
        )

    def log_likelihood_bounds(
        self, X: Examples, Y: Examples, capacities: GivenCapacities | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on ``log p(y | x)`` of each example.

        The reweighted entropy (``rho = 1/2``) gives the lower one.  Bethe's gives the upper one on
        bipartite graphs; for others it is 0, because nothing better is proved.  With capacities the
        lower one comes from independent edges, and the upper one is 0.
        """
        lower, upper = [], []
        for polytope, matrix, score in self._scored(X, Y, capacities):
            pair = polytope.capacities
            rho = 0.5 if pair is None else 0.0
            wide = matching_marginals(
                matrix, self.kind, self.perfect, rho, MARGINALS_TOL, capacities=pair
            )
            lower.append(score - wide.log_partition)
            if self.kind == "general" or pair is not None:
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
        require_integer("n_samples", n_samples, at_least=0)
        rng = random_generator(self.random_state if random_state is None else random_state)
        drawn = []
        for polytope, matrix in self._weight_matrices(X, None):
            rows = []
            for _ in range(n_samples):
                noise = rng.gumbel(size=matrix.shape)
                if self.kind == "general":
                    noise = np.triu(noise, 1)
                    noise = noise + noise.T
                rows.append(_best(polytope, matrix + noise))
            shape = matrix.shape[:1] if polytope.capacities is None else matrix.shape
            drawn.append(np.array(rows, dtype=np.int32).reshape(n_samples, *shape))
        return drawn

    # -- options --------------------------------------------------------------------------

    def _check_options(self) -> None:
        super()._check_options()
        require_kind(self.kind)
        require_flag("perfect", self.perfect)
        require_capacity(self.capacity, self.kind)
        self._rho()

    def _objective(self) -> Objective:
        if self.objective == "mle-struct":
            # an inner point needs many vertices; messages find it at once on bipartite graphs
            points: Literal["vertices", "marginals"] = (
                "marginals" if self.kind == "bipartite" else "vertices"
            )
            return MLEStruct(tol=self.tol, points=points)
        return super()._objective()

    def _rho(self, capacities: GivenCapacities | None = None) -> float:
        has_capacities = capacities is not None or self.capacity is not None
        return node_counting_number(self.rho, self.objective, has_capacities)

    # -- examples -------------------------------------------------------------------------

    def _read(
        self, index: int, x: Any, capacities: GivenCapacities | None = None
    ) -> tuple[MatchingPolytope, FloatArray]:
        """The graph of an example, and the features of its edges."""
        place = Place("X", index)
        array = checked_features(place, x, self.kind, self.perfect)
        if index and array.shape[2] != self.n_features_in_:
            raise InvalidInputError(
                f"must have {self.n_features_in_} features as X[0], got {array.shape[2]}", place
            )
        if hasattr(self, "weights_") and array.shape[2] != len(self.weights_):
            raise InvalidInputError(
                f"must have {len(self.weights_)} features as in fit, got {array.shape[2]}", place
            )
        allowed = np.logical_not(np.isnan(array).any(axis=2))
        given: Any = self.capacity
        if capacities is not None:
            given = tuple(capacities[index])
        pair = checked_capacities(index, given, allowed.shape, self.kind)
        polytope = MatchingPolytope(allowed, self.kind, self.perfect, pair)
        rows, columns = polytope.edges.T
        return polytope, np.ascontiguousarray(array[rows, columns])

    def _weight_matrices(
        self, X: Examples, capacities: GivenCapacities | None
    ) -> list[tuple[MatchingPolytope, FloatArray]]:
        """Graph and ``W`` of each example."""
        self._require_fit()
        require_list("X", X)
        found = []
        for index, x in enumerate(X):
            polytope, features = self._read(index, x, capacities)
            found.append((polytope, polytope.matrix(features @ self.weights_, -np.inf)))
        return found

    def _scored(
        self, X: Examples, Y: Examples, capacities: GivenCapacities | None
    ) -> list[tuple[MatchingPolytope, FloatArray, float]]:
        """Graph and weights of each example, and the score of its matching."""
        require_pairs(X, Y)
        found = []
        for index, (polytope, matrix) in enumerate(self._weight_matrices(X, capacities)):
            edges = checked_matching(Place("Y", index), Y[index], polytope)
            found.append((polytope, matrix, float(edges @ polytope.values(matrix))))
        return found

    def _held_out(self, objective: Objective, given: Any) -> Validation:
        X, Y = held_out_pair(given)
        require_pairs(X, Y)
        read = [self._read(index, x) for index, x in enumerate(X)]
        for index, (polytope, features) in enumerate(read):
            if features.shape[1] != self.n_features_in_:
                raise InvalidInputError(
                    f"must have {self.n_features_in_} features as in training, got "
                    f"{features.shape[1]}",
                    Place("X", index),
                )
            checked_matching(Place("Y", index), Y[index], polytope)

        def score(weights: FloatArray) -> float:
            matrices = [(one, one.matrix(features @ weights, -np.inf)) for one, features in read]
            found = [_best(one, matrix) for one, matrix in matrices]
            return agreement(found, Y, self.capacity is not None)

        return score

    # -- names and files ------------------------------------------------------------------

    def _weight_namer(self) -> Callable[[int], str]:
        return lambda position: f"feature {position}"

    def _model_metadata(self) -> dict[str, Any]:
        return {"n_features_in": self.n_features_in_}

    def _restore_model(self, stored: Stored) -> None:
        self.n_features_in_ = stored.integer("n_features_in", 1)

    def _shapes_of_model(self) -> dict[str, tuple[int, ...]]:
        return {"edges": (self.n_features_in_,)}


def _best(polytope: MatchingPolytope, matrix: FloatArray) -> Matches:
    """The best matching: partners, or a matrix if there may be several."""
    found = matching_oracle(polytope).match(matrix)
    return found.partners if polytope.capacities is None else found.edges.astype(np.int32)
