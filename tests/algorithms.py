"""The registry of algorithms: one line each, with what each one promises.

A new inference or MAP search is one line here; the laws of `test_laws.py` then hold it to its
promises on every problem of `problems.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fieldfit as ff
from fieldfit._registry import PUBLIC
from fieldfit.inference.auto import Map
from fieldfit.inference.base import Inference
from fieldfit.inference.convex.convex_dual import ConvexDual
from fieldfit.inference.convex.convex_primal import ConvexPrimal
from fieldfit.inference.convex.interior_point import InteriorPoint
from fieldfit.inference.free_energy.belief_optimization import BeliefOptimization
from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct
from fieldfit.inference.log_determinant.log_determinant import LogDeterminant
from fieldfit.inference.map.base import MapSearch
from fieldfit.inference.map.linear_program import LinearProgram


@dataclass(frozen=True, eq=False)
class Algorithm:
    """An inference and its promises.

    ``exact``: "everywhere", "acyclic" or "never".  ``bound``: what its value is, whatever the graph
    ("upper", "lower" or ``None``).  ``unique``: on which graphs the answer is a property of the
    model alone, so that neither the schedule nor the names of variables and labels matter
    ("everywhere", "pairwise", "acyclic" or "never").  ``consistent``: factor beliefs have the unary
    beliefs as their margins.  ``entropy``: whose surrogate is maximised.  ``sampled``: the answer
    is random, and laws about numbers hold only for what is proved.  ``slack``: answers are known
    to a certified gap, not to the last digits; tolerances are times this.  ``pairs_only``: factors
    of three variables, and tables with hard zeros, are refused.  ``at_zero``: the value at zero
    potentials, where it is not that of the entropy.
    """

    name: str
    solver: Any
    exact: str
    bound: str | None
    unique: str
    consistent: bool = True
    entropy: ff.entropy.Entropy | None = None
    sampled: bool = False
    slack: float = 1.0
    pairs_only: bool = False
    at_zero: Callable[[ff.FactorGraph], float] | None = None

    def __str__(self) -> str:
        return self.name

    def takes(self, problem) -> bool:
        return not self.pairs_only or (problem.max_arity <= 2 and not problem.has_table_zeros)

    def run(self, problem, **options):
        return self.solver.run(problem.graph, problem.potentials, problem.observed, **options)

    def is_exact_on(self, problem) -> bool:
        return self.exact == "everywhere" or (self.exact == "acyclic" and problem.is_acyclic)

    def is_unique_on(self, problem) -> bool:
        """Weights of tree-reweighting depend on an arbitrary order where arities exceed two."""
        if problem.is_acyclic and self.exact != "never":
            return True
        return self.unique == "everywhere" or (self.unique == "pairwise" and problem.max_arity <= 2)


@dataclass(frozen=True, eq=False)
class MapAlgorithm:
    """A MAP search; ``optimal``: "everywhere" or "acyclic"."""

    name: str
    solver: Any
    optimal: str

    def __str__(self) -> str:
        return self.name

    def takes(self, problem) -> bool:
        return True

    def run(self, problem):
        return self.solver.run(problem.graph, problem.potentials, problem.observed)


SCHEDULES = ("flooding", "sequential", "tree", "residual")


def _sum_product(name, entropy, exact, bound, unique):
    # a tight tolerance: a residual is not yet a distance, and laws compare distances to 1e-6
    return tuple(
        Algorithm(
            f"{name}, {schedule}",
            ff.SumProduct(entropy=entropy, schedule=schedule, tol=1e-10, max_iter=20_000),
            exact=exact,
            bound=bound,
            unique=unique,
            entropy=entropy,
        )
        for schedule in SCHEDULES
    )


SUM_PRODUCT = (
    *_sum_product("Bethe", ff.Bethe(), "acyclic", None, "acyclic"),
    *_sum_product("TreeReweighted", ff.TreeReweighted(), "acyclic", "upper", "pairwise"),
    *_sum_product("Convex", ff.Convex(), "never", "upper", "everywhere"),
    *_sum_product("Convex without variables", ff.Convex(unary=0.0), "never", "upper", "everywhere"),
    *_sum_product(
        "Convex at half weight", ff.Convex(0.5, factor=0.5), "never", "upper", "everywhere"
    ),
)


def gaussian_entropy(graph):
    """The bound of the log-determinant on the entropy of uniform variables."""
    k = graph.cardinalities.astype(float)
    noisy = 1.0 / k + 1.0 / 12.0 + 1.0 / (6.0 * k)
    return 0.5 * float(np.sum((k - 1.0) * np.log(2.0 * np.pi * np.e * noisy) - np.log(k)))


INFERENCES = (
    Algorithm(
        "DoubleLoop",
        ff.DoubleLoop(tol=1e-11, max_rounds=20_000, max_iter=20_000),
        "acyclic",
        None,
        "acyclic",
        entropy=ff.Bethe(),
    ),
    Algorithm(
        "BeliefOptimization",
        BeliefOptimization(tol=1e-11, max_iter=20_000),
        "acyclic",
        None,
        "acyclic",
        entropy=ff.Bethe(),
    ),
    # on acyclic graphs the regions are edges; every variable counts once, as it does for Bethe
    *(
        Algorithm(
            f"GeneralizedSumProduct with {regions}, {method}",
            GeneralizedSumProduct(
                regions, method=method, tol=1e-11, max_rounds=20_000, max_iter=20_000
            ),
            "acyclic",
            None,
            "acyclic",
            entropy=ff.Bethe(),
        )
        for regions, method in (
            ("plaquettes", "double-loop"),
            ("plaquettes", "messages"),
            ("bethe", "double-loop"),
        )
    ),
    # which hypertrees a mixture has depends on the names of variables
    *(
        Algorithm(
            f"GeneralizedSumProduct with hypertrees, {method}",
            GeneralizedSumProduct(
                entropy=ff.HypertreeReweighted(),
                method=method,
                tol=1e-11,
                max_rounds=20_000,
                max_iter=20_000,
            ),
            "acyclic",
            "upper",
            "acyclic",
            entropy=ff.Bethe(),
        )
        for method in ("double-loop", "messages")
    ),
    *(
        Algorithm(name, solver, "never", "upper", "everywhere", entropy=solver.entropy)
        for name, solver in (
            ("ConvexDual", ConvexDual(tol=1e-11)),
            ("ConvexDual at half weight", ConvexDual(ff.Convex(0.5, factor=0.5), tol=1e-11)),
            ("ConvexPrimal", ConvexPrimal(tol=1e-11)),
            ("InteriorPoint with Convex", InteriorPoint(ff.Convex(), tol=1e-11)),
            ("InteriorPoint without variables", InteriorPoint(ff.Convex(unary=0.0), tol=1e-11)),
        )
    ),
    Algorithm(
        "InteriorPoint",
        InteriorPoint(tol=1e-11),
        "acyclic",
        "upper",
        "pairwise",
        entropy=ff.TreeReweighted(),
    ),
    Algorithm("BruteForce", ff.BruteForce(), "everywhere", None, "everywhere"),
    Algorithm("Exact", ff.Exact(), "everywhere", None, "everywhere"),
    *SUM_PRODUCT,
    Algorithm("MeanField", ff.MeanField(tol=1e-10, max_iter=20_000), "never", "lower", "never"),
    Algorithm(
        "MeanField in parallel",
        ff.MeanField(update="parallel", damping=0.5, tol=1e-10, max_iter=20_000),
        "never",
        "lower",
        "never",
    ),
    Algorithm(
        "FrankWolfe",
        ff.FrankWolfe(entropy=ff.TreeReweighted(), tol=1e-7),
        "never",
        "upper",
        "pairwise",
        entropy=ff.TreeReweighted(),
        slack=1e5,
    ),
    Algorithm(
        "LogDeterminant",
        LogDeterminant(tol=1e-10),
        "never",
        "upper",
        "everywhere",
        slack=100.0,
        pairs_only=True,
        at_zero=gaussian_entropy,
    ),
    Algorithm(
        "Gibbs",
        ff.Gibbs(n_sweeps=50, burn_in=5, random_state=0),
        "never",
        "lower",
        "never",
        consistent=False,
        sampled=True,
    ),
)

MAP_SEARCHES = (
    MapAlgorithm("ExactMap", ff.ExactMap(), "everywhere"),
    MapAlgorithm("ExactMap by integers", ff.ExactMap(method="integer"), "everywhere"),
    MapAlgorithm("Map", Map(), "everywhere"),
    MapAlgorithm("LinearProgram", LinearProgram(), "acyclic"),
    *(
        MapAlgorithm(
            f"MaxProduct with {type(entropy).__name__}, {schedule}",
            ff.MaxProduct(entropy=entropy, schedule=schedule),
            optimal,
        )
        for entropy, optimal in (
            (ff.Bethe(), "acyclic"),
            (ff.TreeReweighted(), "acyclic"),
            (ff.Convex(), "never"),
        )
        for schedule in ("flooding", "sequential", "tree")
    ),
)


# -- what the registry lists and nothing above covers: held to the laws all the same --------


def registered(kind: type) -> list[type]:
    """Concrete classes of the registry that are of a kind and have no line of their own."""
    classes = [entry.load() for entry in PUBLIC.values() if entry.stored]
    return [cls for cls in classes if issubclass(cls, kind) and not inspect.isabstract(cls)]


#: Maps with a fixed number of sweeps, which have laws of their own.
OTHER_LAWS = {"UnrolledMeanField", "UnrolledSumProduct"}
#: Searches that refuse most models.
PARTIAL = {
    "Assignment",
    "CycleCuts",
    "MaxFlow",
    "PerfectMatching",
    "PlanarIsing",
    "Probing",
    "RoofDuality",
}

_ENTROPIES = {type(algorithm.entropy) for algorithm in INFERENCES}
INFERENCES += tuple(
    algorithm
    for cls in registered(ff.entropy.Entropy)
    if cls not in _ENTROPIES
    for algorithm in _sum_product(cls.__name__, cls(), "never", None, "never")
)
_SOLVERS = {type(algorithm.solver) for algorithm in INFERENCES}
INFERENCES += tuple(
    Algorithm(cls.__name__, cls(), "never", None, "never", consistent=False)
    for cls in registered(Inference)
    if cls not in _SOLVERS and cls.__name__ not in OTHER_LAWS
)
_SEARCHES = {type(algorithm.solver) for algorithm in MAP_SEARCHES}
MAP_SEARCHES += tuple(
    MapAlgorithm(cls.__name__, cls(), "never")
    for cls in registered(MapSearch)
    if cls not in _SEARCHES and cls.__name__ not in PARTIAL
)
