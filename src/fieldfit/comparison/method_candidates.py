"""What is tried: objectives by kind and size of the data, and penalties for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fieldfit._registry import OBJECTIVES
from fieldfit._validation import shown
from fieldfit.comparison.held_out_scores import EXACT_MATCHING
from fieldfit.errors import InvalidInputError
from fieldfit.models.penalties import COUPLING_STRENGTHS, UNARY_STRENGTHS, RelativePenalty

__all__ = ["BASELINE", "checked_methods", "default_methods", "family_of", "penalties"]

#: Always a row, and always the first one.
BASELINE = "independent"

#: Which family an estimator belongs to, by the name of its class or of one that it derives from.
FAMILIES = {
    "SkipChainCRF": "skip chains",
    "ChainCRF": "chains",
    "GridCRF": "graphs",
    "GraphCRF": "graphs",
    "PairwiseMRF": "samples",
    "MatchingCRF": "matchings",
}
#: Entries of all tables up to which a method's pass takes seconds rather than minutes.
AFFORDABLE = {"implicit": 3e6, "mle-struct": 3e6, "camel0": 1e7, "procedural": 3e7}
#: Logarithm (base 2) of the states that exact inference sums over at once.
EXACT_BITS = 12
#: More weights than this leave pseudo-likelihood alone affordable.
MANY_WEIGHTS = 100_000

#: Penalties of chains, beside a sum over sequences.
CHAIN_L2 = (3.0, 1.0, 0.3, 0.1)
#: Penalties of samples, for each of them.
SAMPLE_L2 = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0)
MATCHING_L2 = (10.0, 1.0, 0.1, 0.01)


def family_of(estimator: Any) -> str:
    """Chains, skip chains, graphs, samples or matchings; others are refused."""
    for cls in type(estimator).__mro__:
        if cls.__name__ in FAMILIES:
            return FAMILIES[cls.__name__]
    raise InvalidInputError(
        "estimator must be a ChainCRF, SkipChainCRF, GridCRF, GraphCRF, IsingModel, PottsModel or "
        f"MatchingCRF, got {shown(estimator)}"
    )


def checked_methods(methods: Any) -> tuple[str, ...]:
    """Names of objectives, independent variables first; refuses what is none."""
    if isinstance(methods, str) or not hasattr(methods, "__iter__"):
        raise InvalidInputError(
            f"methods must be a list of names of objectives, got {shown(methods)}"
        )
    given = list(methods)
    for name in given:
        if not isinstance(name, str) or name not in OBJECTIVES:
            raise InvalidInputError(
                f"methods must be names of objectives ({', '.join(OBJECTIVES)}), got {shown(name)}"
            )
    return tuple(dict.fromkeys([BASELINE, *given]))


def default_methods(estimator: Any, X: Any, Y: Any) -> tuple[str, ...]:
    """What somebody who knows the field would try on such data."""
    family = family_of(estimator)
    if family == "chains":
        return (BASELINE, "likelihood", "pseudolikelihood", "piecewise", "perceptron", "max-margin")
    if family == "skip chains":
        return (BASELINE, "pseudolikelihood", "trw", "bethe", "cf-bethe", "procedural")
    if family == "samples":
        return _of_samples(estimator, X)
    if family == "matchings":
        exact = max(max(np.shape(x)[:2]) for x in X) <= EXACT_MATCHING
        exact &= getattr(estimator, "capacity", None) is None
        return (BASELINE, "mle-struct", *["likelihood"] * exact, "max-margin", "perceptron")
    return _of_graphs(estimator, X, Y)


def _of_graphs(estimator: Any, X: Any, Y: Any) -> tuple[str, ...]:
    sizes = [estimator._measure(index, x) for index, x in enumerate(X)]
    n_labels = estimator._fixed_options(X, Y)["n_labels"]
    entries = float(sum(size.table_entries(n_labels) for size in sizes))
    names = [BASELINE, "pseudolikelihood"]
    if all(_is_exact(size, n_labels) for size in sizes):
        names.append("likelihood")
    names += ["trw", "bethe"]
    names += [name for name in ("camel0",) if entries <= AFFORDABLE[name]]
    names.append("cf-bethe")
    rest = ("implicit", "procedural", "mle-struct")
    return (*names, *(name for name in rest if entries <= AFFORDABLE[name]))


def _is_exact(size: Any, n_labels: int) -> bool:
    """Whether a clique tree is small: forests, narrow grids."""
    if len(size.shape) == 2:
        width = min(size.shape)
    elif sum((arity - 1) * count for arity, count in size.factors.items()) < size.n_variables:
        width = max(size.factors, default=1) - 1
    else:
        return False
    return bool((width + 1) * np.log2(n_labels) <= EXACT_BITS)


def _of_samples(estimator: Any, samples: Any) -> tuple[str, ...]:
    labels = estimator._labels(samples)
    n_variables, n_labels = labels.shape[1], int(labels.max(initial=1)) + 1
    n_weights = n_variables * n_labels + n_variables * (n_variables - 1) / 2 * (n_labels - 1) ** 2
    if n_weights > MANY_WEIGHTS:
        return (BASELINE, "pseudolikelihood")
    exact = ["likelihood"] if n_variables * np.log2(n_labels) <= EXACT_BITS + 6 else []
    return (BASELINE, "pseudolikelihood", *exact, "trw", "bethe", "camel0", "cf-bethe")


def penalties(estimator: Any, method: str, n_examples: int, unary: float) -> list[Any]:
    """Values of ``l2`` to search; ``unary`` is the strength that was best without couplings."""
    family = family_of(estimator)
    if method == "moment-matching":
        return [0.0]
    if family == "graphs":
        if method == BASELINE:
            return [RelativePenalty(c, couplings=c) for c in UNARY_STRENGTHS]
        return [RelativePenalty(unary, couplings=c) for c in COUPLING_STRENGTHS[1:-1]]
    found: Sequence[float] = CHAIN_L2
    if family == "samples":
        found = [c * n_examples for c in SAMPLE_L2]
    elif family == "matchings":
        found = MATCHING_L2
    own = estimator.l2
    is_number = isinstance(own, (int, float)) and not isinstance(own, bool)
    more = [float(own)] if is_number and own not in found else []
    return sorted([*found, *more], reverse=True)
