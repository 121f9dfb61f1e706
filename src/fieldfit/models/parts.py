"""Batching of examples for learning and prediction: parts, their union graphs and templates.

A *part* is the group of examples that are evaluated together: one batch, one template.

How examples are grouped depends on the data alone, never on the number of threads, so that sums
over parts are the same to the last bit whoever computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fieldfit._parallel import n_threads, ordered_map
from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import require_integer
from fieldfit.errors import TooLargeError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.template import Block, Template
from fieldfit.inference.gibbs.gibbs import Gibbs
from fieldfit.inference.junction_tree.exact import Exact, sample_exactly
from fieldfit.inference.likelihood_bounds import log_likelihood_bounds
from fieldfit.learners.problem import Part, TemplateProblem, potentials_of
from fieldfit.objectives.base import Objective
from fieldfit.objectives.max_margin import default_oracle

__all__ = [
    "Example",
    "ExampleSize",
    "FactorFeatures",
    "GraphData",
    "beliefs_of",
    "best_labels",
    "block_scales",
    "block_shapes",
    "bounds_of",
    "draw_labels",
    "even_groups",
    "graph_problem",
    "grid_graph",
    "isolated_variables",
    "make_parts",
    "mapped",
    "mini_batches",
    "require_draws",
    "summed_scales",
]

#: Features of factors by a name that the model gives to some of them, rows in their order.
FactorFeatures = Mapping[str, FloatArray]
#: Blocks of a union graph with the given features of variables and factors.
BlockMaker = Callable[[FactorGraph, Any, FactorFeatures], list[Block]]

#: Parts hold tables of at most eight megabytes, which a processor's cache almost holds ...
MOST_ENTRIES = 2**20
#: ... and at least half a megabyte, so that what a call costs by itself (about a millisecond) does
#: not count; in between there are enough parts to keep several threads busy.
LEAST_ENTRIES = 2**16
WANTED_PARTS = 8
#: Unions of repeated graphs that are kept, with their plans, for the parts to come.
KEPT_UNIONS = 16
#: Mini-batches of a stochastic learner in an epoch, if there are enough examples.
MINI_BATCHES = 20


@dataclass(frozen=True)
class Example:
    """One graph with its features.

    ``features`` has a row for each variable (dense or CSR).  ``factor_features`` has arrays by
    names that all examples of a model share; the model knows to which factors their rows belong.
    """

    graph: FactorGraph
    features: Any
    factor_features: FactorFeatures = field(default_factory=dict)


class ExampleSize(NamedTuple):
    """Shape of an example's labels, and how many factors it has of each arity."""

    shape: tuple[int, ...]
    factors: Mapping[int, int]

    @property
    def n_variables(self) -> int:
        return int(np.prod(self.shape))

    @property
    def n_edges(self) -> int:
        """Pairs of variables in a factor, over all factors: a factor of three counts as three."""
        return sum(count * arity * (arity - 1) // 2 for arity, count in self.factors.items())

    def table_entries(self, n_labels: int) -> int:
        """Entries of all tables."""
        return sum(count * n_labels**arity for arity, count in self.factors.items())


def even_groups(entries: Sequence[int], batch_size: int | None = None) -> list[NDArray[Any]]:
    """Consecutive examples in groups of about equal numbers of table entries.

    ``entries`` has the number of entries of each example's potentials; ``batch_size`` is the
    number of examples in a group, if it is given.
    """
    count = len(entries)
    if batch_size is not None:
        return [
            np.arange(start, min(start + batch_size, count))
            for start in range(0, count, batch_size)
        ]
    sizes = np.asarray(entries, dtype=np.float64)
    total = float(sizes.sum())
    limit = min(max(total / WANTED_PARTS, LEAST_ENTRIES), MOST_ENTRIES)
    n_groups = max(1, int(np.ceil(total / limit)))
    # an example belongs to the group in which its middle lies
    middles = np.cumsum(sizes) - 0.5 * sizes
    places = np.floor(middles * n_groups / max(total, 1.0)).astype(np.int64)
    cuts = np.flatnonzero(np.diff(places)) + 1
    return [group for group in np.split(np.arange(count), cuts) if len(group)]


def mini_batches(
    count: int, batch_size: int | None = None, n_examples: int | None = None
) -> list[NDArray[Any]]:
    """Groups for a stochastic learner: every ``P``-th example, because data often come sorted.

    ``count`` examples of one shard are grouped, of ``n_examples`` in all (``None``: these are all).
    """
    everything = count if n_examples is None else n_examples
    size = max(1, -(-everything // MINI_BATCHES)) if batch_size is None else batch_size
    n_groups = -(-count // size)
    return [np.arange(first, count, n_groups) for first in range(n_groups)]


def make_parts(
    groups: Sequence[NDArray[Any]],
    example: Callable[[int], Example],
    make_blocks: BlockMaker,
    labels: Sequence[LabelArray] | None = None,
    weights: FloatArray | None = None,
    unions: dict[tuple[int, ...], Batch] | None = None,
) -> Iterator[Part]:
    """One part for each group, made when it is asked for; ``example`` is called once for each.

    ``unions`` keeps unions of graphs that come again, at most `KEPT_UNIONS`, from call to call.
    """
    unions = {} if unions is None else unions
    for group in groups:
        chosen = [example(int(index)) for index in group]
        batch = _union([one.graph for one in chosen], unions)
        factor_features = {
            name: np.concatenate([one.factor_features[name] for one in chosen])
            for name in chosen[0].factor_features
        }
        features = _stacked([one.features for one in chosen])
        blocks = make_blocks(batch.graph, features, factor_features)
        yield Part(
            batch,
            Template(batch.graph, blocks),
            np.full(batch.graph.n_variables, -1, dtype=np.int32)
            if labels is None
            else np.concatenate([labels[index] for index in group]),
            None if weights is None else weights[group],
        )


@dataclass(frozen=True, eq=False)
class GraphData:
    """Parts to learn from: what the family "graphs" of `fieldfit.models.dispatch` takes."""

    parts: Sequence[Part]
    n_jobs: int | None = None
    shard_parts: Sequence[int] | None = None


def graph_problem(objective: Objective, data: GraphData) -> TemplateProblem:
    """Any objective on factor graphs with a template."""
    return TemplateProblem(objective, data.parts, data.n_jobs, data.shard_parts)


@lru_cache(maxsize=64)
def grid_graph(height: int, width: int, n_labels: int, neighbors: int = 4) -> FactorGraph:
    """Grids of one size share their graph, and with it all plans made for it."""
    return FactorGraph.grid(height, width, n_labels, neighbors=neighbors)


@lru_cache(maxsize=64)
def isolated_variables(n_variables: int, n_labels: int) -> FactorGraph:
    """Variables without factors; equal ones share their graph."""
    return FactorGraph([n_labels] * n_variables, [])


def block_shapes(templates: Sequence[Template]) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights by the name of their block, in order.

    Where a template comes several times it is that of several sweeps, whose number is added.
    """
    if len(set(map(id, templates))) == len(templates):
        return {
            block.name: block.weight_shape for template in templates for block in template.blocks
        }
    return {
        f"{block.name}, sweep {sweep}": block.weight_shape
        for sweep, template in enumerate(templates, start=1)
        for block in template.blocks
    }


def block_scales(objective: Objective, parts: Sequence[Part]) -> dict[str, tuple[float, bool]]:
    """Sums of squares of what the weights of each block multiply, and whether it couples variables.

    Blocks that are not the model's own (of entropies) count as couplings; see
    `fieldfit.models.penalties`.
    """
    scales: dict[str, tuple[float, bool]] = {}
    for part in parts:
        mean = 1.0 if part.example_weights is None else float(part.example_weights.mean())
        for template in dict.fromkeys(objective.templates(part.template)):
            is_own = template is part.template
            for block in template.blocks:
                before, _ = scales.get(block.name, (0.0, False))
                couples = block.part == "factors" or not is_own
                scales[block.name] = (before + mean * block.sum_of_squares(), couples)
    return scales


def summed_scales(
    shards: Iterable[dict[str, tuple[float, bool]]],
) -> dict[str, tuple[float, bool]]:
    """Scales of all shards from those of each, added up in their order."""
    total: dict[str, tuple[float, bool]] = {}
    for scales in shards:
        for name, (scale, couples) in scales.items():
            total[name] = (total.get(name, (0.0, False))[0] + scale, couples)
    return total


def _union(graphs: list[FactorGraph], unions: dict[tuple[int, ...], Batch]) -> Batch:
    """The union of the graphs; equal unions of repeated graphs are one, and so are their plans."""
    distinct = {id(graph) for graph in graphs}
    if len(distinct) == len(graphs):
        return Batch.of(graphs)
    key = tuple(id(graph) for graph in graphs)
    if key not in unions:
        if len(unions) >= KEPT_UNIONS:
            del unions[next(iter(unions))]
        unions[key] = Batch.of(graphs)
    return unions[key]


def _stacked(features: list[Any]) -> Any:
    if len(features) == 1:
        return features[0]
    if any(hasattr(given, "tocsr") for given in features):
        from scipy.sparse import vstack

        return vstack(features, format="csr")
    return np.concatenate(features)


# -- Prediction: beliefs, labels and bounds of fitted weights on parts ----------------------


Answer = TypeVar("Answer")


def mapped(
    function: Callable[[Part], Answer], parts: Iterable[Part], n_jobs: int | None
) -> list[Answer]:
    """Results in the order of the parts; a few parts exist at a time, because they take memory."""
    threads = n_threads(n_jobs)
    at_once = 1 if threads == 1 else 2 * threads
    waiting, found = iter(parts), list[Answer]()
    while chosen := list(islice(waiting, at_once)):
        found += ordered_map(function, chosen, threads)
    return found


def beliefs_of(
    objective: Objective, parts: Iterable[Part], weights: FloatArray, n_jobs: int | None
) -> tuple[list[FloatArray], int]:
    """Unary beliefs of each example, and how many examples' inference did not converge."""

    def infer(part: Part) -> tuple[list[FloatArray], int]:
        potentials = potentials_of(objective.templates(part.template), weights)
        result = objective.prediction(part.batch.graph).run_batch(part.batch, potentials)
        beliefs = np.split(result.beliefs.unary_matrix(), part.batch.variable_offsets[1:-1])
        converged = result.converged_examples
        return beliefs, 0 if converged is None else int((~converged).sum())

    found = mapped(infer, parts, n_jobs)
    return [one for beliefs, _ in found for one in beliefs], sum(failed for _, failed in found)


def best_labels(
    objective: Objective,
    decoding: str,
    parts: Iterable[Part],
    weights: FloatArray,
    n_jobs: int | None,
) -> tuple[list[LabelArray], int]:
    """Labels of each example, and how many examples' inference did not converge.

    ``decoding`` is ``"marginals"``, the label of largest belief, or ``"map"``: the jointly best
    labels by the objective's own search or, if it has none, by `default_oracle`.  A search that
    proves nothing does not count as not converged.
    """
    if decoding == "marginals":
        beliefs, n_unconverged = beliefs_of(objective, parts, weights, n_jobs)
        return [one.argmax(axis=1).astype(np.int32) for one in beliefs], n_unconverged

    def search(part: Part) -> list[LabelArray]:
        oracle = getattr(objective, "oracle", None) or default_oracle(part.batch.graph)
        labels = oracle.run_batch(part.batch, part.template.potentials(weights)).labels
        return np.split(labels, part.batch.variable_offsets[1:-1])

    return [one for found in mapped(search, parts, n_jobs) for one in found], 0


def bounds_of(
    parts: Iterable[Part], weights: FloatArray, n_jobs: int | None
) -> tuple[FloatArray, FloatArray]:
    """Bounds on the log-likelihood of each example's labels."""

    def bracket(part: Part) -> tuple[FloatArray, FloatArray]:
        return log_likelihood_bounds(part.batch, part.template.potentials(weights), part.labels)

    found = mapped(bracket, parts, n_jobs)
    return np.concatenate([low for low, _ in found]), np.concatenate([high for _, high in found])


# -- Samples from a model ------------------------------------------------------------------

#: Up to these limits, a second or two, samples are exact; beyond them Gibbs sampling takes over.
EXACT_SAMPLING = Exact(max_memory=1e9, max_operations=2e8)
#: Gibbs chains that run side by side; more samples are taken from the same chains later on.
MAX_CHAINS = 64


def require_draws(n_samples: Any, burn_in: Any, n_sweeps_between: Any) -> None:
    """Refuse what says nothing about how samples are drawn."""
    require_integer("n_samples", n_samples, at_least=0)
    require_integer("burn_in", burn_in, at_least=0)
    require_integer("n_sweeps_between", n_sweeps_between, at_least=1)


def draw_labels(
    graph: FactorGraph,
    potentials: Potentials,
    n_samples: int,
    generator: np.random.Generator,
    burn_in: int,
    n_sweeps_between: int,
) -> LabelArray:
    """Samples, one in each row: exact and independent where that is cheap, else by Gibbs chains."""
    require_draws(n_samples, burn_in, n_sweeps_between)
    try:
        return sample_exactly(
            graph, potentials, n_samples, random_state=generator, limits=EXACT_SAMPLING
        )
    except TooLargeError:
        n_chains = max(1, min(n_samples, MAX_CHAINS))
        gibbs = Gibbs(burn_in=burn_in, n_chains=n_chains, random_state=generator)
        return gibbs.sample(graph, potentials, n_samples, n_sweeps_between)
