r"""Convexified Kikuchi entropies: counting numbers from a distribution over hypertrees.

    H_rho(b) = sum_T rho(T) H_T(b) = sum_r c_r H(b_r)

Every ``H_T`` is concave in consistent beliefs of regions and never below the true entropy
(`fieldfit.inference.kikuchi.hypertrees` has the proof), hence so is the average, and

    max_b <th, b> + H_rho(b)  >=  log Z.

The proof comes with the numbers: `HypertreeMixture` holds the forests, their probabilities and the
conditional entropies that they consist of.  Nothing that is given is trusted: a family that is not
acyclic is refused.

References: Wainwright, Jaakkola and Willsky, "A new class of upper bounds on the log partition
function", IEEE Transactions on Information Theory 51 (2005), section VII; Wainwright and Jordan,
"Graphical models, exponential families, and variational inference", Foundations and Trends in
Machine Learning 1 (2008), section 7.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray, LongArray
from fieldfit._validation import shown
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.ragged import offsets_of
from fieldfit.inference.kikuchi import cluster_variation as build
from fieldfit.inference.kikuchi.hypertrees import (
    EntropyTerms,
    Forest,
    Nesting,
    even_mixture,
    forest_of,
    mixture_terms,
)
from fieldfit.inference.kikuchi.region_graph import (
    RegionGraph,
    Regions,
    checked_key,
    structure_of,
    union_of_regions,
)
from fieldfit.inference.kikuchi.region_sets import SetFamily

__all__ = ["HypertreeMixture", "HypertreeReweighted", "ReweightedRegions"]

Hypertree = Sequence[Sequence[int]]
#: Given probabilities sum to one up to this.
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class HypertreeReweighted:
    """Entropy of `GeneralizedSumProduct`: an average over hypertrees of regions.

    Concave, and an upper bound on the log-partition at any time.

    Parameters
    ----------
    rho
        ``None``: equal weights.  ``"optimized"``: starts from these, and the inference tightens the
        bound for the potentials at hand.  Numbers: the probability of each of ``hypertrees``.
    hypertrees
        ``None``: a mixture that holds all outer regions about equally often.  Or the hypertrees,
        each a list of regions, each region a list of variables that lies in an outer region.  Every
        one must be acyclic, and every outer region must be in one of them.  They are completed by
        smaller regions where that closes no cycle.  In a batch they name the variables of each
        example.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> potentials = ff.Potentials(graph)
    >>> result = ff.GeneralizedSumProduct(entropy=HypertreeReweighted()).run(graph, potentials)
    >>> result.bound, bool(result.log_partition >= 9 * np.log(2) - 1e-9)
    ('upper', True)
    """

    rho: ArrayLike | Literal["optimized"] | None = None
    hypertrees: Sequence[Hypertree] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.hypertrees is not None:
            object.__setattr__(self, "hypertrees", _checked_hypertrees(self.hypertrees))
        if self.rho is None or (isinstance(self.rho, str) and self.rho == "optimized"):
            return
        if isinstance(self.rho, str) or self.hypertrees is None:
            raise InvalidInputError(
                'rho must be None, "optimized" or, with hypertrees, the probability of each one, '
                f"got {shown(self.rho)}" + ("" if isinstance(self.rho, str) else " without them")
            )
        rho = real_numbers("rho", self.rho).copy()
        if rho.shape != (len(self.hypertrees),):
            raise InvalidInputError(
                f"rho must have shape ({len(self.hypertrees)},), one entry for each hypertree, "
                f"got {rho.shape}"
            )
        if not ((rho > 0.0).all() and abs(float(rho.sum()) - 1.0) <= TOLERANCE):
            raise InvalidInputError(
                f"rho must be positive with the sum 1, got {shown(rho.tolist())}"
            )
        rho.flags.writeable = False
        object.__setattr__(self, "rho", rho)

    @property
    def is_optimized(self) -> bool:
        """True if the inference is to improve the weights for the potentials at hand."""
        return isinstance(self.rho, str)

    @property
    def name(self) -> str:
        """How results name the entropy."""
        return type(self).__name__ + ("(optimized)" if self.is_optimized else "")

    def _key(self) -> Any:
        rho = self.rho.tobytes() if isinstance(self.rho, np.ndarray) else None
        return rho, self.hypertrees

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, HypertreeReweighted)
            and self._key() == other._key()
            and self.is_optimized == other.is_optimized
        )

    def __hash__(self) -> int:
        return hash((HypertreeReweighted, self._key(), self.is_optimized))


@dataclass(frozen=True, eq=False)
class HypertreeMixture:
    """A distribution over forests of regions: the proof that comes with counting numbers.

    Attributes
    ----------
    nesting, n_variables
        The regions that the forests are made of.
    forests, weights
        Acyclic families and their probabilities.
    terms
        The conditional entropies that their average consists of.
    """

    nesting: Nesting
    n_variables: int
    forests: tuple[Forest, ...]
    weights: FloatArray
    terms: EntropyTerms


@dataclass(frozen=True, eq=False)
class ReweightedRegions:
    """Regions whose counting numbers are those of ``terms``, one mixture for each part.

    ``firsts`` gives for each part the numbers of its first outer and its first inner region.
    """

    regions: RegionGraph
    terms: EntropyTerms
    mixtures: tuple[HypertreeMixture, ...]
    firsts: tuple[tuple[int, int], ...]

    def with_terms(self, terms: EntropyTerms) -> ReweightedRegions:
        """The same regions with other numbers."""
        counts = terms.counts(self.regions.n_regions)
        return replace(self, regions=replace(self.regions, counts=counts), terms=terms)

    def part_regions(self, part: int) -> LongArray:
        """The regions of one part in the numbers of the union."""
        ends = (*self.firsts, (self.regions.n_outer, self.regions.n_regions))[part + 1]
        outer, inner = self.firsts[part]
        return np.concatenate([np.arange(outer, ends[0]), np.arange(inner, ends[1])])


def reweighted_regions(
    batch: Batch, regions: Regions, entropy: HypertreeReweighted
) -> ReweightedRegions:
    """Regions of every example with the counting numbers of the entropy.

    Kept as long as the graphs live; examples of one structure share the work.
    """
    if batch.n_examples == 1 or isinstance(regions, RegionGraph):
        return _of_graph(batch.graph, regions, entropy)
    key = "examples", checked_key(regions), entropy._key()
    known = _KNOWN.setdefault(batch.graph, {})
    if key not in known:
        firsts: dict[tuple[bytes, ...], FactorGraph] = {}
        parts = [
            _of_graph(firsts.setdefault(structure_of(graph), graph), regions, entropy)
            for graph in batch.graphs
        ]
        known[key] = _union(batch, parts)
    return known[key]


# values do not refer to their graph, which takes them with it
_KNOWN: WeakKeyDictionary[FactorGraph, dict[Any, ReweightedRegions]] = WeakKeyDictionary()


def _of_graph(
    graph: FactorGraph, regions: Regions, entropy: HypertreeReweighted
) -> ReweightedRegions:
    if isinstance(regions, RegionGraph):
        given = RegionGraph.of(graph, regions)  # checks that they fit
        regions = [given.scope(r) for r in range(given.n_outer)]
    key = checked_key(regions), entropy._key()
    known = _KNOWN.setdefault(graph, {})
    if key not in known:
        known[key] = _made(graph, key[0], entropy)
    return known[key]


def _made(graph: FactorGraph, key: Any, entropy: HypertreeReweighted) -> ReweightedRegions:
    if isinstance(key, str):
        candidates = build.plaquettes(graph) if key == "plaquettes" else build.scopes(graph)
    else:
        candidates = build.given(graph, key)
    wanted = entropy.hypertrees or ()
    extra = build.given(
        graph, tuple({tuple(r): None for tree in wanted for r in tree}), "hypertrees"
    )
    regions = build.with_small_regions(graph, candidates, extra)
    nesting = _nesting(regions)
    if wanted:
        forests = _given_forests(graph, regions, nesting, wanted)
    elif regions.is_acyclic:
        # the only hypertree that there is any use for: all outer regions
        forests = [_forest(graph, regions, nesting, _outer_family(graph, regions), "regions")]
    else:
        random = np.random.default_rng(0)
        forests = even_mixture(nesting, graph.n_variables, regions.n_outer, random)
    weights = np.full(len(forests), 1.0 / len(forests))
    if isinstance(entropy.rho, np.ndarray):
        weights = entropy.rho
    terms = mixture_terms(forests, weights)
    counts = terms.counts(regions.n_regions)
    for region in np.flatnonzero(counts[: regions.n_outer] <= 0.0)[:1]:
        raise InvalidInputError(
            "hypertrees must hold every outer region, "
            f"{regions.scope(int(region))} is in none of them"
        )
    mixture = HypertreeMixture(nesting, graph.n_variables, tuple(forests), weights, terms)
    # a junction tree is the only hypertree in which all of its outer regions count once
    is_junction_tree = regions.is_acyclic and np.allclose(counts[: regions.n_outer], 1.0, rtol=0)
    numbered = replace(regions, counts=counts, acyclic_examples=np.array([is_junction_tree]))
    return ReweightedRegions(numbered, terms, (mixture,), ((0, regions.n_outer),))


def _nesting(regions: RegionGraph) -> Nesting:
    """Which regions lie inside which."""
    n_variables = len(regions.cardinalities)
    family = SetFamily.from_flat(
        regions.scope_variables, np.diff(regions.scope_offsets), n_variables
    )
    lower, upper = family.inside(family)
    proper = lower != upper
    order = np.lexsort((lower[proper], upper[proper]))
    return Nesting(
        regions.scope_offsets,
        regions.scope_variables,
        offsets_of(np.bincount(upper[proper], minlength=len(family))),
        lower[proper][order],
    )


def _outer_family(graph: FactorGraph, regions: RegionGraph) -> SetFamily:
    end = regions.scope_offsets[regions.n_outer]
    sizes = np.diff(regions.scope_offsets[: regions.n_outer + 1])
    return SetFamily.from_flat(regions.scope_variables[:end], sizes, graph.n_variables)


def _given_forests(
    graph: FactorGraph,
    regions: RegionGraph,
    nesting: Nesting,
    hypertrees: Sequence[Hypertree],
) -> list[Forest]:
    return [
        _forest(
            graph,
            regions,
            nesting,
            SetFamily.of(tree, graph.n_variables).maximal(),
            f"hypertrees[{k}]",
        )
        for k, tree in enumerate(hypertrees)
    ]


def _forest(
    graph: FactorGraph, regions: RegionGraph, nesting: Nesting, largest: SetFamily, name: str
) -> Forest:
    """The forest with all sets of an acyclic family; smaller regions complete it."""
    order = build.junction_order(largest)
    if order is None:
        raise InvalidInputError(f"{name} must be acyclic, got regions around a cycle")
    n_variables, sizes = graph.n_variables, np.diff(regions.scope_offsets)
    everything = SetFamily.from_flat(regions.scope_variables, sizes, n_variables)
    first = largest.positions_in(everything)[order]
    rest = np.setdiff1d(np.arange(regions.n_outer, regions.n_regions), first)
    rest = rest[np.argsort(-sizes[rest], kind="stable")]
    forest = forest_of(nesting, n_variables, np.concatenate([first, rest]))
    assert np.isin(first, forest.members).all()
    return forest


def _checked_hypertrees(given: Any) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Hypertrees as sorted tuples, which can be looked up."""
    message = f"hypertrees must be lists of regions, each a list of variables, got {shown(given)}"
    if isinstance(given, str):
        raise InvalidInputError(message)
    found = []
    try:
        trees = list(given)
    except TypeError:
        raise InvalidInputError(message) from None
    for tree in trees:
        key = None if isinstance(tree, str) else checked_key(tree, message)
        if not key:
            raise InvalidInputError(message)
        found.append(key)
    if not found:
        raise InvalidInputError(message)
    return tuple(found)  # type: ignore[arg-type]


def _union(batch: Batch, parts: list[ReweightedRegions]) -> ReweightedRegions:
    """The regions of all examples, and their terms in the numbers of the union."""
    graphs = [part.regions for part in parts]
    outer = offsets_of([g.n_outer for g in graphs])
    inner = outer[-1] + offsets_of([g.n_inner for g in graphs])
    upper: list[LongArray] = []
    lower: list[LongArray] = []
    for part, first, second in zip(parts, outer, inner, strict=False):
        n_outer = part.regions.n_outer
        for found, values in ((upper, part.terms.upper), (lower, part.terms.lower)):
            shift = np.where(values < n_outer, first, second - n_outer)
            found.append(np.where(values < 0, -1, values + shift))
    terms = EntropyTerms(
        np.concatenate(upper),
        np.concatenate(lower),
        np.concatenate([part.terms.weight for part in parts]),
    )
    return ReweightedRegions(
        union_of_regions(batch, graphs),
        terms,
        tuple(part.mixtures[0] for part in parts),
        tuple(zip(outer[:-1].tolist(), inner[:-1].tolist(), strict=True)),
    )
