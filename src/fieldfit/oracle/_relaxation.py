"""Points of the local polytope from MAP searches, for methods that only ever ask for those."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import CountingNumbers, Entropy
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Beliefs, Potentials
from fieldfit.errors import InvalidInputError
from fieldfit.oracle._ascent import Point
from fieldfit.oracle._base import MapOracle

__all__ = [
    "coefficients_of",
    "concave_counting_numbers",
    "find_point",
    "relaxation_oracle",
    "uniform_point",
]

FloatArray = NDArray[np.float64]


def relaxation_oracle(graph: FactorGraph) -> MapOracle:
    """A search over the local polytope of a graph.

    `MaxProduct` where there are no cycles, so that best labellings are enough; `RoofDuality` where
    all variables are binary and factors join two; `LinearProgram` otherwise.
    """
    if graph.is_acyclic:
        from fieldfit.oracle.max_product import MaxProduct

        return MaxProduct()
    if int(graph.cardinalities.max(initial=1)) <= 2 and int(graph.arities.max(initial=0)) <= 2:
        from fieldfit.oracle.roof_duality import RoofDuality

        return RoofDuality()
    from fieldfit.oracle.linear_program import LinearProgram

    return LinearProgram()


def find_point(oracle: MapOracle, batch: Batch, slopes: FloatArray) -> Point:
    """What an oracle finds for flat potentials: unary entries, then those of factors."""
    graph = batch.graph
    cut = int(graph.unary_offsets[-1])
    potentials = Potentials.from_flat(graph, slopes[:cut].copy(), slopes[cut:].copy())
    found = oracle.run_batch(batch, potentials)
    beliefs = found.beliefs
    if beliefs is None:
        beliefs = Beliefs.from_labels(graph, found.labels)
    values = np.concatenate([beliefs.unary_values, beliefs.factor_values])
    return Point(values, found.upper_bound)


def concave_counting_numbers(entropy: Entropy, graph: FactorGraph) -> CountingNumbers:
    """Counting numbers of an entropy that is proved to be concave on this graph, or an error."""
    counting = entropy.counting_numbers(graph)
    if not counting.concave:
        raise InvalidInputError(
            f"entropy must be concave on the local polytope, {entropy.name} is not proved to be on "
            f"this graph ({counting.reason}); TreeReweighted() always is"
        )
    return counting


def coefficients_of(graph: FactorGraph, counting: CountingNumbers) -> FloatArray:
    """The counting number of every entry of a flat vector of beliefs."""
    sizes = np.diff(graph.table_offsets)
    return np.concatenate(
        [np.repeat(counting.variable, graph.cardinalities), np.repeat(counting.factor, sizes)]
    )


def uniform_point(graph: FactorGraph) -> FloatArray:
    """Uniform beliefs, flat."""
    sizes = np.diff(graph.table_offsets)
    cardinalities = graph.cardinalities
    return np.concatenate(
        [np.repeat(1.0 / cardinalities, cardinalities), np.repeat(1.0 / sizes, sizes)]
    )
