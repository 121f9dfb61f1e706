"""Learning problems of matching models: dual blocks, exact sums, independent choices, hinges.

Weights of edges are ``W = F w``; the statistics of a matching are the sum of its edges' features.
Matchings are found one example at a time, so here, unlike elsewhere, examples are a Python loop; a
search costs more than the loop around it.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from scipy.special import expit

from fieldfit._parallel import n_threads, ordered_map
from fieldfit._typing import FloatArray
from fieldfit._validation import require_one_of
from fieldfit.entropy.counting_numbers import Bethe, TreeReweighted
from fieldfit.errors import InvalidInputError
from fieldfit.inference.frank_wolfe.active_set import add_slopes, entropy
from fieldfit.inference.frank_wolfe.frank_wolfe import Point
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.matching.matching_marginals import best_edges, inner_point
from fieldfit.inference.matching.matching_messages import has_newton, matching_point
from fieldfit.inference.matching.matching_newton import statistics_curvature
from fieldfit.inference.matching.matching_partition import matching_partition
from fieldfit.inference.matching.matching_polytope import Kind, MatchingPolytope, require_rho
from fieldfit.learners.dual_blocks import DualModel
from fieldfit.learners.problem import Problem, ProblemValue, total
from fieldfit.models.dispatch import NotApplicable
from fieldfit.objectives.base import Objective
from fieldfit.objectives.independent import Independent
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.max_margin import MaxMargin, Perceptron
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = [
    "ExactMatchings",
    "IndependentChoices",
    "MatchingBlock",
    "MatchingData",
    "MatchingExample",
    "MatchingHinge",
    "MatchingProblem",
    "dual_matching_problem",
    "exact_matching_problem",
    "independent_matching_problem",
    "matching_hinge_problem",
    "node_counting_number",
    "require_capacity",
    "require_kind",
]

#: Of the tolerance of the gap (if that is below `LOOSEST`), messages get this share.
MESSAGE_SHARE, LOOSEST = 1e-4, 1e-3


@dataclass(frozen=True, eq=False)
class MatchingExample:
    """The graph of an example, features of its edges, and the edges of its matching (0 or 1).

    Parameters
    ----------
    polytope
        The edges, as a `MatchingPolytope`.
    features
        ``(n_edges, n_features)``.
    matched
        1 for the edges of the matching, else 0.
    weight
        Factor of the example's value.
    """

    polytope: MatchingPolytope
    features: FloatArray
    matched: FloatArray
    weight: float = 1.0

    @property
    def statistics(self) -> FloatArray:
        return self.weight * (self.matched @ self.features)

    def weight_matrix(self, weights: FloatArray) -> FloatArray:
        """``W``, with ``-inf`` where there is no edge."""
        return self.polytope.matrix(self.features @ weights, -np.inf)


class MatchingBlock:
    """The polytope of one example as a block of the dual."""

    def __init__(self, example: MatchingExample, rho: float, tol: float = 1e-10) -> None:
        self._example = example
        self._rho, self._tol = rho, tol
        self._last: FloatArray | None = None
        self._n_rest = example.polytope.n_edges + len(example.polytope.alone)
        self.coefficients = example.weight * example.polytope.coefficients(rho)

    def start(self) -> FloatArray:
        return inner_point(self._example.polytope)

    def labelled(self) -> FloatArray | None:
        return self._example.polytope.point(self._example.matched)

    def largest_entropy(self) -> float:
        # it is concave: no more than its tangent at a point inside
        inside = self.start()
        slopes = np.zeros_like(inside)
        add_slopes(self.coefficients, inside, slopes)
        gap = self.find(slopes).upper_bound - float(slopes @ inside)
        return float(entropy(self.coefficients, inside)) + max(gap, 0.0)

    def potentials(self, weights: FloatArray) -> FloatArray:
        given = self._example
        return np.concatenate([given.weight * (given.features @ weights), np.zeros(self._n_rest)])

    def features(self, x: FloatArray) -> FloatArray:
        given = self._example
        return given.weight * (x[: given.polytope.n_edges] @ given.features)

    def find(self, slopes: FloatArray) -> Point:
        return best_edges(self._example.polytope, slopes)

    def marginals(self, potentials: FloatArray, n_sweeps: int = 0) -> FloatArray | None:
        given = self._example
        weights = potentials[: given.polytope.n_edges] / given.weight
        found = matching_point(given.polytope, weights, self._rho, self._tol, init=self._last)
        self._last = found.state
        return found.point

    def curvature(self, x: FloatArray) -> FloatArray:
        given = self._example
        found = statistics_curvature(given.polytope, given.features, self._rho, x)
        return given.weight * found

    def reset_warm_start(self) -> None:
        self._last = None


class MatchingProblem(Problem):
    """Abstract: a sum over examples with complete matchings.

    Parameters
    ----------
    objective
        An objective of matchings.
    examples
        `MatchingExample` objects.
    rho
        Counting number of the nodes.
    n_jobs
        Threads.
    """

    is_complete = True

    def __init__(
        self, objective: Objective, examples: list[MatchingExample], rho: float, n_jobs: int | None
    ) -> None:
        self.objective: Objective = objective
        self.examples = examples
        self.rho = rho
        self.n_jobs = n_threads(n_jobs)
        self.n_weights = examples[0].features.shape[1]
        self.n_parts = len(examples)

    def dual_model(self, objective: MLEStruct) -> DualModel:
        """One block for each example."""
        tol = MESSAGE_SHARE * min(objective.tol, LOOSEST)
        # examples of weight zero contribute nothing, and would divide by it
        used = [example for example in self.examples if example.weight > 0.0]
        blocks = [MatchingBlock(example, self.rho, tol) for example in used]
        statistics = np.sum([example.statistics for example in self.examples], axis=0)
        with_curvature = blocks if all(has_newton(example.polytope) for example in used) else []
        return DualModel(blocks, statistics, len(self.examples), self.n_jobs, with_curvature)

    def evaluate(self, weights: FloatArray) -> ProblemValue:
        return total(
            ordered_map(
                lambda part: self.evaluate_part(weights, part), range(self.n_parts), self.n_jobs
            )
        )

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        raise InvalidInputError(
            "learner must be None for mle-struct on matchings, which has steps of its own"
        )

    def fingerprint(self) -> str:
        digest = sha256(f"{self.objective!r} {self.rho!r}".encode())
        for example in self.examples:
            for array in (example.polytope.edges, example.features, example.matched):
                digest.update(np.ascontiguousarray(array).data)
            polytope = example.polytope
            digest.update(
                repr((example.weight, polytope.perfect, polytope.shape, polytope.kind)).encode()
            )
            for capacity in polytope.capacities or ():
                digest.update(np.ascontiguousarray(capacity).data)
        return digest.hexdigest()


class ExactMatchings(MatchingProblem):
    """``log Z(W) - <W, Y>`` with the exact sum over all matchings (small graphs).

    Parameters
    ----------
    objective
        An objective of matchings.
    examples
        `MatchingExample` objects.
    rho
        Counting number of the nodes.
    n_jobs
        Threads.
    """

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        given = self.examples[part]
        polytope = given.polytope
        found = matching_partition(given.weight_matrix(weights), polytope.kind, polytope.perfect)
        change = polytope.values(found.marginals) - given.matched
        score = float(given.matched @ (given.features @ weights))
        return ProblemValue(
            value=given.weight * (found.log_partition - score),
            gradient=given.weight * (change @ given.features),
            n_unconverged=0,
            n_examples=1,
        )


class IndependentChoices(MatchingProblem):
    r"""Everybody chooses a partner, whatever the others choose (a multinomial logit).

        sum over nodes i of  log (sum over edges e at i of exp W_e  [+ 1 if i may stay alone])
                             - sum over edges e of Y at i of W_e

    With capacities, where several are chosen, edges are independent of each other:
    ``sum over edges e of log (1 + exp W_e) - Y_e W_e``.
    """

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        given = self.examples[part]
        scores = given.features @ weights
        choose = _node_choices if given.polytope.capacities is None else _edge_choices
        log_partition, expected, counts = choose(given.polytope, scores)
        matched = counts * given.matched
        return ProblemValue(
            value=given.weight * (log_partition - float(matched @ scores)),
            gradient=given.weight * ((expected - matched) @ given.features),
            n_unconverged=0,
            n_examples=1,
        )


def _node_choices(
    polytope: MatchingPolytope, scores: FloatArray
) -> tuple[float, FloatArray, float]:
    """Sum of the nodes' log-partitions, expected number of each edge, and how often one counts."""
    largest = np.full(polytope.n_nodes, -np.inf)
    largest[polytope.alone] = 0.0
    for end in polytope.ends.T:
        np.maximum.at(largest, end, scores)
    largest[np.isinf(largest)] = 0.0  # nobody to choose
    totals = np.zeros(polytope.n_nodes)
    totals[polytope.alone] = np.exp(-largest[polytope.alone])
    shares = [np.exp(scores - largest[end]) for end in polytope.ends.T]
    for end, share in zip(polytope.ends.T, shares, strict=True):
        totals += np.bincount(end, share, polytope.n_nodes)
    chosen = totals > 0.0
    log_partition = float((largest[chosen] + np.log(totals[chosen])).sum())
    expected = sum(share / totals[end] for end, share in zip(polytope.ends.T, shares, strict=True))
    return log_partition, np.asarray(expected), 2.0  # once at each end


def _edge_choices(
    polytope: MatchingPolytope, scores: FloatArray
) -> tuple[float, FloatArray, float]:
    """The same for edges that are independent of each other."""
    return float(np.logaddexp(0.0, scores).sum()), expit(scores), 1.0


class MatchingHinge(MatchingProblem):
    """``max over Y' of <W, Y'> + margin |Y - Y'| - <W, Y>``: wrong partners count one each.

    With ``margin=0`` it is the perceptron's loss.
    """

    is_smooth = False

    def __init__(
        self,
        objective: Objective,
        examples: list[MatchingExample],
        rho: float,
        n_jobs: int | None,
        margin: float,
    ) -> None:
        super().__init__(objective, examples, rho, n_jobs)
        self.margin = margin
        self.is_homogeneous = margin == 0.0

    def evaluate_part(self, weights: FloatArray, part: int) -> ProblemValue:
        given = self.examples[part]
        polytope = given.polytope
        scores = given.features @ weights
        # |matched| minus the edges in common, which is linear in the edges
        slopes = np.zeros(2 * polytope.n_edges + len(polytope.alone))
        slopes[: polytope.n_edges] = scores - self.margin * given.matched
        rival = best_edges(polytope, slopes)
        edges = rival.values[: polytope.n_edges]
        value = rival.upper_bound + self.margin * given.matched.sum() - given.matched @ scores
        return ProblemValue(
            value=given.weight * max(float(value), 0.0),
            gradient=given.weight * ((edges - given.matched) @ given.features),
            n_unconverged=0,
            n_examples=1,
        )


# -- Options of matching models ------------------------------------------------------------


def require_kind(kind: Any) -> None:
    """Refuse what is no kind of graph."""
    require_one_of("kind", kind, ("bipartite", "general"))


def require_capacity(capacity: Any, kind: Kind) -> None:
    """Refuse numbers of partners that are none, or that the kind of graph does not know."""
    if capacity is None:
        return
    pair = capacity if isinstance(capacity, (tuple, list)) else [capacity]
    is_number = [isinstance(one, (int, np.integer)) and one >= 1 for one in pair]
    if not all(is_number) or len(pair) not in (1, 2):
        raise InvalidInputError(
            f"capacity must be an integer of at least 1 or a pair of them, got {capacity!r}"
        )
    if kind == "general":
        raise InvalidInputError(f"capacity must be None for kind='general', got {capacity!r}")


def node_counting_number(rho: Any, objective: str | Objective, has_capacities: bool) -> float:
    """From the option ``rho``, or from the entropy of the objective."""
    if has_capacities:
        if rho not in (None, 0):
            raise InvalidInputError(
                f"rho must be None or 0 with capacities (independent edges), got {rho!r}"
            )
        return 0.0
    if rho is not None:
        return require_rho(rho)
    entropy = getattr(objective, "entropy", Bethe())  # of an objective that has none
    if isinstance(entropy, Bethe):
        return 1.0
    if isinstance(entropy, TreeReweighted):
        if entropy.rho is None:
            return 0.5
        if isinstance(entropy.rho, numbers.Real):
            return require_rho(float(entropy.rho))
    raise InvalidInputError(
        "objective must have the entropy Bethe() or TreeReweighted(rho=NUMBER) for matchings, "
        f"got {entropy!r}"
    )


# -- The builders that `fieldfit.models.dispatch` names ------------------------------------


@dataclass(frozen=True, eq=False)
class MatchingData:
    """Examples, and the counting number of nodes in their entropy."""

    examples: list[MatchingExample]
    rho: float
    n_jobs: int | None = None


def dual_matching_problem(objective: MLEStruct, data: MatchingData) -> MatchingProblem:
    """Blocks of the dual, one for each example; it has no value of its own."""
    return MatchingProblem(objective, data.examples, data.rho, data.n_jobs)


def exact_matching_problem(
    objective: Likelihood, data: MatchingData
) -> ExactMatchings | NotApplicable:
    """Sums over all matchings of small graphs."""
    if not isinstance(objective.inference, Exact):
        return NotApplicable("a likelihood of matchings is exact: no surrogate is known for it")
    if data.examples[0].polytope.capacities is not None:
        raise InvalidInputError(
            "objective must not be 'likelihood' with capacities, which has no exact sums"
        )
    return ExactMatchings(objective, data.examples, data.rho, data.n_jobs)


def independent_matching_problem(objective: Independent, data: MatchingData) -> IndependentChoices:
    """What matchings must do better than."""
    return IndependentChoices(objective, data.examples, data.rho, data.n_jobs)


def matching_hinge_problem(objective: MaxMargin | Perceptron, data: MatchingData) -> MatchingHinge:
    """The hinge loss; without a margin, for a perceptron, it is homogeneous."""
    margin = 0.0 if objective.is_homogeneous else 1.0
    return MatchingHinge(objective, data.examples, data.rho, data.n_jobs, margin)
