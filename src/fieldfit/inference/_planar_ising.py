"""Binary pairwise models without field on planar graphs: couplings, embedding, faces.

With spins ``s = +1`` for label 0 and ``-1`` for label 1, a table of two variables is

    th(s, t) = c + g s + h t + J s t,    4 J = th(0,0) + th(1,1) - th(0,1) - th(1,0),

and the model has no field if the ``g, h`` on each variable and its unary part cancel.  Its score is
then ``constant + sum_e J_e s_i s_j``, where factors on the same two variables are one edge ``e``
and edges with ``J = 0`` are gone.

An edge has two *darts*, ``2e`` from its first end to its second and ``2e + 1`` back.  In an
embedding each dart lies on one face, and ``next_dart`` walks around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials, folded_unary, require_graph
from fieldfit.errors import InvalidInputError, MissingDependencyError

__all__ = ["Faces", "SpinModel", "embed", "joined_spins", "spin_model"]

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

#: A field below this, relative to the numbers that it is a sum of, is rounding.
FIELD_TOLERANCE = 1e-12


@dataclass(frozen=True)
class SpinModel:
    """Edges with their couplings, and the constant that the score has besides."""

    n_variables: int
    ends: IndexArray
    couplings: FloatArray
    constant: float


@dataclass(frozen=True)
class Faces:
    """An embedding: the next dart on the face of each dart, and the number of that face."""

    next_dart: IndexArray
    face: IndexArray
    n_faces: int


def spin_model(graph: FactorGraph, potentials: Potentials, method: str) -> SpinModel:
    """The couplings of a model; raises if it is not binary, not pairwise, or has a field."""
    require_graph(graph, potentials)
    if (graph.cardinalities != 2).any():
        variable = int(np.argmax(graph.cardinalities != 2))
        raise InvalidInputError(
            f"{method} needs binary variables, got {graph.cardinalities[variable]} labels of "
            f"variable {variable}"
        )
    if graph.arities.max(initial=0) > 2:
        factor = int(np.argmax(graph.arities))
        raise InvalidInputError(
            f"{method} needs factors of arity at most 2, got arity {graph.arities[factor]} of "
            f"factor {factor}"
        )
    unary = folded_unary(potentials).reshape(-1, 2)
    pairs = np.flatnonzero(graph.arities == 2)
    entries = graph.table_offsets[pairs].astype(np.int64)[:, None] + np.arange(4)
    tables = potentials.factor_values[entries]
    constants = potentials.factor_values[graph.table_offsets[:-1][graph.arities == 0]]
    if not (
        np.isfinite(unary).all() and np.isfinite(tables).all() and np.isfinite(constants).all()
    ):
        raise InvalidInputError(f"{method} needs finite potentials, got -inf")
    slots = graph.scope_offsets[pairs].astype(np.int64)
    first = graph.slot_variables[slots].astype(np.int64)
    second = graph.slot_variables[slots + 1].astype(np.int64)
    _require_no_field(unary, tables, first, second, method)

    couplings = 0.25 * (tables[:, 0] + tables[:, 3] - tables[:, 1] - tables[:, 2])
    n = graph.n_variables
    keys, edge = np.unique(
        np.minimum(first, second) * n + np.maximum(first, second), return_inverse=True
    )
    joined = np.bincount(edge, couplings, minlength=len(keys)) if len(keys) else np.zeros(0)
    kept = joined != 0.0
    ends = np.stack(np.divmod(keys, max(n, 1)), axis=1)[kept].astype(np.int64)
    constant = float(constants.sum() + 0.5 * unary.sum() + 0.25 * tables.sum())
    return SpinModel(n, ends, joined[kept], constant)


def _require_no_field(
    unary: FloatArray, tables: FloatArray, first: IndexArray, second: IndexArray, method: str
) -> None:
    n = len(unary)
    fields = 0.5 * (unary[:, 0] - unary[:, 1])
    of_first = 0.25 * (tables[:, 0] + tables[:, 1] - tables[:, 2] - tables[:, 3])
    of_second = 0.25 * (tables[:, 0] - tables[:, 1] + tables[:, 2] - tables[:, 3])
    sizes = np.abs(unary).sum(axis=1)
    table_sizes = np.abs(tables).sum(axis=1)
    for variables, parts in ((first, of_first), (second, of_second)):
        fields = fields + np.bincount(variables, parts, minlength=n)
        sizes = sizes + np.bincount(variables, table_sizes, minlength=n)
    wrong = np.abs(fields) > FIELD_TOLERANCE * sizes
    if wrong.any():
        variable = int(np.argmax(wrong))
        raise InvalidInputError(
            f"{method} needs a model without field: the two labels of every variable must be "
            f"alike, got a field of {fields[variable]:.3g} on variable {variable}"
        )


def embed(model: SpinModel, method: str) -> Faces:
    """A planar embedding of the edges; raises if there is none."""
    try:
        import networkx
    except ImportError:
        raise MissingDependencyError(
            f"{method} needs NetworkX: pip install 'fieldfit[planar]'"
        ) from None
    graph = networkx.Graph()
    pairs = model.ends.tolist()
    graph.add_edges_from(pairs)
    is_planar, embedding = networkx.check_planarity(graph)
    if not is_planar:
        raise InvalidInputError(
            f"{method} needs a planar graph of couplings, got one with {len(graph)} variables and "
            f"{len(pairs)} pairs that cannot be drawn without crossings"
        )
    dart_of = {}
    for edge, (first, second) in enumerate(pairs):
        dart_of[first, second], dart_of[second, first] = 2 * edge, 2 * edge + 1
    next_dart = np.empty(2 * len(pairs), dtype=np.int64)
    for (first, second), dart in dart_of.items():
        next_dart[dart] = dart_of[embedding.next_face_half_edge(first, second)]
    n_faces, face = _cycles(next_dart)
    return Faces(next_dart, face, n_faces)


def _cycles(following: IndexArray) -> tuple[int, IndexArray]:
    """Number of the cycles of a permutation, and the cycle of each element."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(following)
    ones = np.ones(count, dtype=np.int8)
    steps = coo_array((ones, (np.arange(count), following)), shape=(count, count))
    n_cycles, cycle = connected_components(steps.tocsr(), directed=False)
    return int(n_cycles), cycle.astype(np.int64)


def joined_spins(
    n_variables: int, ends: IndexArray, is_equal: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], IndexArray]:
    """Labels in which the ends of each edge are equal or not as told, and components.

    In the graph of (variable, parity) an edge keeps or changes the parity; the two copies of a
    variable are in two components, unless a cycle demands the impossible.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = n_variables
    first, second = ends.T
    tails = np.concatenate([first, first + n])
    heads = np.concatenate(
        [np.where(is_equal, second, second + n), np.where(is_equal, second + n, second)]
    )
    ones = np.ones(len(tails), dtype=np.int8)
    copies = coo_array((ones, (tails, heads)), shape=(2 * n, 2 * n))
    _, component = connected_components(copies.tocsr(), directed=False)
    here, there = component[:n], component[n:]
    assert not (here == there).any()  # a bug: the told edges do not fit together
    return (here > there).astype(np.int32), np.minimum(here, there).astype(np.int64)
