"""Planar Ising models without field: ground states by matching, log Z by Kasteleyn's Pfaffian.

*Ground states.*  The score ``constant + sum_e J_e s_i s_j`` loses ``2 |J_e|`` for each edge that is
not satisfied.  A set of edges is the unsatisfied set of some spins if and only if it meets the
boundary of each face as often, modulo two, as there are negative couplings on it.  In the dual
graph, whose nodes are faces, that is a set with an odd degree exactly at the *frustrated* faces
(a T-join): paths that join these in pairs.  A lightest one consists of shortest paths between the
pairs of a perfect matching of least weight.

*Partition function* (Kasteleyn, Fisher).  Cuts of the graph are perfect matchings of a planar
graph, whose sum is the Pfaffian of a skew-symmetric matrix with suitable signs.

References: Toulouse, "Theory of the frustration effect in spin glasses", Communications on Physics
2 (1977); Bieche, Maynard, Rammal and Uhry, "On the ground states of the frustration model of a
spin glass by a matching method of graph theory", Journal of Physics A 13 (1980); Kasteleyn, "Dimer
statistics and phase transitions", Journal of Mathematical Physics 4 (1963); Fisher, "On the dimer
solution of planar Ising models", same journal 7 (1966).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit._validation import require_integer
from fieldfit.errors import InvalidInputError, MissingDependencyError, TooLargeError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, folded_unary, observed_labels, require_graph
from fieldfit.graph.result import MapResult
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, optimal_result
from fieldfit.inference.matching.perfect_matching import maximum_weight_edges

__all__ = [
    "Faces",
    "PlanarIsing",
    "SpinModel",
    "embed",
    "joined_spins",
    "planar_ising_log_partition",
    "spin_model",
]

# -- Couplings, embedding in the plane, faces ----------------------------------------------
# With spins ``s = +1`` for label 0 and ``-1`` for label 1, a table of two variables is
#
#     th(s, t) = c + g s + h t + J s t,    4 J = th(0,0) + th(1,1) - th(0,1) - th(1,0),
#
# and the model has no field if the ``g, h`` on each variable and its unary part cancel.  Its score
# is then ``constant + sum_e J_e s_i s_j``, where factors on the same two variables are one edge
# ``e`` and edges with ``J = 0`` are gone.
#
# An edge has two *darts*, ``2e`` from its first end to its second and ``2e + 1`` back.  In an
# embedding each dart lies on one face, and ``next_dart`` walks around it.

#: A field below this, relative to the numbers that it is a sum of, is rounding.
FIELD_TOLERANCE = 1e-12


@dataclass(frozen=True)
class SpinModel:
    """Edges with their couplings, and the constant that the score has besides."""

    n_variables: int
    ends: LongArray
    couplings: FloatArray
    constant: float


@dataclass(frozen=True)
class Faces:
    """An embedding: the next dart on the face of each dart, and the number of that face."""

    next_dart: LongArray
    face: LongArray
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
    unary: FloatArray, tables: FloatArray, first: LongArray, second: LongArray, method: str
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


def _cycles(following: LongArray) -> tuple[int, LongArray]:
    """Number of the cycles of a permutation, and the cycle of each element."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(following)
    ones = np.ones(count, dtype=np.int8)
    steps = coo_array((ones, (np.arange(count), following)), shape=(count, count))
    n_cycles, cycle = connected_components(steps.tocsr(), directed=False)
    return int(n_cycles), cycle.astype(np.int64)


def joined_spins(
    n_variables: int, ends: LongArray, is_equal: BoolArray
) -> tuple[IntArray, LongArray]:
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


# -- Ground states: matching of frustrated faces -------------------------------------------


@dataclass(frozen=True)
class PlanarIsing(MapSearch):
    """Exact MAP of binary pairwise models on planar graphs whose labels can be exchanged.

    Tables are arbitrary as long as the field that they and the unary potentials imply vanishes on
    every variable.  At most one variable of each connected component may be observed.  Needs the
    extra ``planar``.

    Parameters
    ----------
    max_frustrated
        Frustrated faces of one component that are matched at most.  All pairs of them become edges,
        and the time grows with more than the third power: spin glasses on grids of 32x32 have about
        500 and take a second, those of 45x45 twice as many and ten seconds.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(2, 2, 2)
    >>> spins = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> tables = np.array([1.0, 1.0, 1.0, -2.0])[:, None, None] * spins
    >>> result = PlanarIsing().run(graph, Potentials(graph, None, tables))  # doctest: +SKIP
    >>> result.score  # doctest: +SKIP
    3.0
    """

    max_arity = 2

    max_frustrated: int = 2000

    def __post_init__(self) -> None:
        require_integer("max_frustrated", self.max_frustrated, at_least=0)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        graph = batch.graph
        evidence = observed_labels(graph, observed)
        model = spin_model(graph, potentials, "PlanarIsing")
        faces = embed(model, "PlanarIsing")
        broken, n_frustrated = _unsatisfied_edges(model, faces, self.max_frustrated)
        labels, component = joined_spins(
            model.n_variables, model.ends, (model.couplings > 0.0) ^ broken
        )
        labels = _with_evidence(labels, component, evidence)
        return optimal_result(
            batch,
            potentials,
            labels,
            how=f"{n_frustrated} of {faces.n_faces} faces are frustrated",
            method="PlanarIsing",
        )


def _unsatisfied_edges(
    model: SpinModel, faces: Faces, max_frustrated: int
) -> tuple[BoolArray, int]:
    """A lightest set of edges that meets the frustrated faces oddly and the others evenly."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_edges = len(model.couplings)
    broken = np.zeros(n_edges, dtype=np.bool_)
    is_negative = np.repeat(model.couplings < 0.0, 2)
    n_negative = np.bincount(faces.face, is_negative, minlength=faces.n_faces)
    frustrated = np.flatnonzero(n_negative % 2 == 1)
    if len(frustrated) == 0:
        return broken, 0
    # of several edges between two faces only the lightest is needed; bridges are loops
    ends = np.sort(faces.face.reshape(-1, 2), axis=1)
    weights = np.abs(model.couplings)
    order = np.lexsort((weights, ends[:, 1], ends[:, 0]))
    is_first = np.ones(n_edges, dtype=np.bool_)
    is_first[1:] = (ends[order][1:] != ends[order][:-1]).any(axis=1)
    lightest = order[is_first]
    lightest = lightest[ends[lightest, 0] != ends[lightest, 1]]
    shape = (faces.n_faces, faces.n_faces)
    rows, columns = ends[lightest].T
    dual = coo_array((weights[lightest], (rows, columns)), shape=shape).tocsr()
    edge_of = coo_array((lightest + 1, (rows, columns)), shape=shape).tocsr()
    edge_of = edge_of + edge_of.T
    _, component = connected_components(dual, directed=False)
    for number in np.unique(component[frustrated]):
        chosen = frustrated[component[frustrated] == number]
        if len(chosen) > max_frustrated:
            raise TooLargeError(
                f"PlanarIsing matches at most max_frustrated {max_frustrated} frustrated faces of "
                f"a component, got {len(chosen)}"
            )
        here, there = _shortest_paths(dual, chosen)
        used = np.asarray(edge_of[here, there]).ravel() - 1
        broken |= np.bincount(used, minlength=n_edges) % 2 == 1  # where two paths meet, they cancel
    return broken, len(frustrated)


def _shortest_paths(dual: object, frustrated: LongArray) -> tuple[LongArray, LongArray]:
    """The steps, from here to there, of paths that join the frustrated faces in pairs."""
    from scipy.sparse.csgraph import dijkstra

    n = len(frustrated)
    distance, previous = dijkstra(
        dual, directed=False, indices=frustrated, return_predecessors=True
    )
    ends = np.argwhere(np.triu(np.ones((n, n), dtype=np.bool_), 1))
    lengths = distance[ends[:, 0], frustrated[ends[:, 1]]]
    pairs = ends[maximum_weight_edges(n, ends, -lengths, perfect=True)]
    here, there = [], []
    source, face = pairs[:, 0], frustrated[pairs[:, 1]]
    while len(source):  # one step of all paths at a time
        before = previous[source, face].astype(np.int64)
        here.append(face)
        there.append(before)
        unfinished = before != frustrated[source]
        source, face = source[unfinished], before[unfinished]
    return np.concatenate(here), np.concatenate(there)


def _with_evidence(labels: IntArray, component: LongArray, evidence: IntArray) -> IntArray:
    """Exchange the labels of components whose observed variable has the other one."""
    observed = np.flatnonzero(evidence >= 0)
    counts = np.bincount(component[observed])
    if counts.max(initial=0) > 1:
        together = observed[component[observed] == np.argmax(counts)]
        raise InvalidInputError(
            "PlanarIsing allows one observed variable in each connected component, got "
            f"{together[0]} and {together[1]} in one"
        )
    flip = np.zeros(int(component.max(initial=-1)) + 1, dtype=np.bool_)
    flip[component[observed]] = labels[observed] != evidence[observed]
    return np.where(flip[component], 1 - labels, labels).astype(np.int32)


# -- Log-partition: the Kasteleyn-Fisher Pfaffian ------------------------------------------
# Let ``s`` be any spins and ``K_e = J_e s_i s_j`` the couplings seen from them.  Other spins
# differ from ``s`` at some variables; the edges with exactly one end among these form a cut, and
#
#     Z = 2 exp(constant + sum_e K_e) * sum over cuts C of prod_{e in C} exp(-2 K_e).
#
# Draw the graph in the plane and cut its faces into triangles by edges with ``J = 0``.  A set of
# edges is a cut if and only if it has zero or two edges on every triangle.  Put a node on each of
# the two sides (*darts*) of every edge, join the two by an edge of weight 1, and the three nodes
# inside each triangle by edges of weight ``exp(-K_e - K_f)``.  Perfect matchings of this graph are
# cuts: what is not matched across is cut, and the sum above is the sum over perfect matchings.
# Kasteleyn: with suitable signs it is the Pfaffian of a skew-symmetric matrix, the root of its
# determinant. Here the edges inside a triangle point around it, and the ones across are chosen
# such that an odd number of them points at each variable.
#
# All terms of the sum are positive, but those of an elimination are not, and at low temperature
# (from about ``|J| = 10`` on) digits cancel.  Therefore the determinant is computed in two orders,
# and the answer is given only if they agree.

#: Sum of two couplings against the chosen spins whose exponential is still in range.
MAX_EXPONENT = 600.0
#: Two orders of elimination agree if their logarithms differ by less, relative to ``log Z``.  Of
#: 480 spin glasses with couplings of 2 to 30 this refused 45, and no other was off by over 2e-10.
AGREEMENT = 1e-10


def planar_ising_log_partition(graph: FactorGraph, potentials: Potentials) -> float:
    """``log Z`` of a binary pairwise model without field on a planar graph.

    Tables are arbitrary as long as the field that they and the unary potentials imply vanishes on
    every variable; otherwise, and if the graph is not planar, the model is refused.  So is one
    whose couplings are too strong for double precision.  Needs the extra ``planar``.

    Parameters
    ----------
    graph, potentials
        The model.

    Returns
    -------
    float
        The natural logarithm, exact.

    Examples
    --------
    >>> graph = FactorGraph.grid(3, 3, 2)
    >>> round(planar_ising_log_partition(graph, Potentials(graph)) / np.log(2), 9)  # doctest: +SKIP
    9.0
    """
    model = spin_model(graph, potentials, "planar_ising_log_partition")
    faces = embed(model, "planar_ising_log_partition")
    spins, component = _strong_spins(model)
    first, second = model.ends.T
    seen = model.couplings * spins[first] * spins[second]
    sizes = np.bincount(component, minlength=1)
    value = model.constant + float(seen.sum()) + int(np.count_nonzero(sizes)) * math.log(2.0)
    # an edge by itself bounds a single face of two sides, which is no triangle
    is_alone = sizes[component[first]] == 2
    value += float(np.log1p(np.exp(-2.0 * seen[is_alone])).sum())
    one, other = (value + part for part in _log_pfaffians(model, faces, seen, ~is_alone))
    if not abs(one - other) <= AGREEMENT * max(1.0, abs(one)):  # NaN must not pass
        raise InvalidInputError(
            "planar_ising_log_partition needs couplings that double precision can resolve, got "
            f"couplings up to {np.abs(model.couplings).max():.3g} and two values of log Z that "
            f"differ by {abs(one - other):.2g}"
        )
    return one


def _strong_spins(model: SpinModel) -> tuple[FloatArray, LongArray]:
    """Spins that satisfy a spanning tree of the strongest couplings, and components."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    n = model.n_variables
    first, second = model.ends.T
    # ranks instead of sizes: all positive, whatever the couplings
    order = np.argsort(-np.abs(model.couplings), kind="stable")
    rank = np.empty(len(order))
    rank[order] = np.arange(1, len(order) + 1)
    weighted = coo_array((rank, (first, second)), shape=(n, n))
    tree = minimum_spanning_tree(weighted.tocsr()).tocoo()
    kept = order[tree.data.astype(np.int64) - 1]
    labels, component = joined_spins(n, model.ends[kept], model.couplings[kept] > 0.0)
    return np.where(labels == 0, 1.0, -1.0), component


def _log_pfaffians(
    model: SpinModel, faces: Faces, seen: FloatArray, used: BoolArray
) -> tuple[float, float]:
    """Logarithm of the sum over cuts of the edges ``used``, by two orders of elimination."""
    from scipy.sparse import coo_array

    if not used.any():
        return 0.0, 0.0
    ends, triangles = _triangulated(model.ends, faces, used)
    couplings = np.concatenate([seen, np.zeros(len(ends) - len(seen))])
    in_use = np.concatenate([used, np.ones(len(ends) - len(seen), dtype=np.bool_)])
    edges = np.flatnonzero(in_use)
    around = np.stack([triangles, np.roll(triangles, -1, axis=1)], axis=-1).reshape(-1, 2)
    exponents = -(couplings[around // 2].sum(axis=1))
    if exponents.max() > MAX_EXPONENT:
        return np.nan, np.nan
    rows = np.concatenate([2 * edges, around[:, 0]])
    columns = np.concatenate([2 * edges + 1, around[:, 1]])
    values = np.concatenate([_signs(model.n_variables, ends, edges), np.exp(exponents)])
    place = np.cumsum(np.repeat(in_use, 2)) - 1
    size = 2 * len(edges)
    upper = coo_array((values, (place[rows], place[columns])), shape=(size, size))
    skew = (upper - upper.T).tocsc()
    # the second order starts from a shuffled matrix, so that other pivots are chosen
    rows, columns = np.random.default_rng(0).permuted(np.tile(np.arange(size), (2, 1)), axis=1)
    return _half_log_determinant(skew), _half_log_determinant(skew[rows][:, columns])


def _half_log_determinant(matrix: Any) -> float:
    from scipy.sparse.linalg import splu

    try:
        factors = splu(matrix, options={"Equil": False})
    except RuntimeError:  # exactly singular, after all digits are gone
        return np.nan
    return 0.5 * float(np.log(np.abs(factors.U.diagonal())).sum())


def _triangulated(ends: LongArray, faces: Faces, used: BoolArray) -> tuple[LongArray, LongArray]:
    """Edges with those added that cut every face into triangles, and the darts of these.

    Ears are cut off one by one: of the darts ``a, b, ...`` of a face, a new edge from the start of
    ``a`` to the end of ``b`` closes a triangle and takes their place.  It may join a variable to
    itself or neighbours again, which does no harm.
    """
    first, second = ends.T.tolist()
    start = [v for pair in zip(first, second, strict=True) for v in pair]  # of each dart
    following = faces.next_dart.tolist()
    triangles = []
    is_seen = np.repeat(~used, 2).tolist()
    for dart in range(len(following)):
        if is_seen[dart]:
            continue
        face = []
        while not is_seen[dart]:
            is_seen[dart] = True
            face.append(dart)
            dart = following[dart]
        while len(face) > 3:
            b, a = face.pop(), face.pop()
            new = len(start)
            start += [start[a], start[b ^ 1]]
            triangles.append((a, b, new + 1))
            face.append(new)
        triangles.append((face[0], face[1], face[2]))
    return np.array(start, dtype=np.int64).reshape(-1, 2), np.array(triangles, dtype=np.int64)


def _signs(n_variables: int, ends: LongArray, edges: LongArray) -> FloatArray:
    """+1: an edge points at its second end, -1: at its first; an odd number at each variable.

    All point at their second ends to begin with; edges of a spanning tree are reversed from the
    leaves on.  The roots come out right, as a triangulated component has as many edges as
    variables, modulo two.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    signs = np.ones(len(edges))
    first, second = ends[edges].T
    is_odd = (np.bincount(second, minlength=n_variables) % 2 == 1).tolist()
    shape = (n_variables, n_variables)
    ones = np.ones(len(edges), dtype=np.int8)
    graph = coo_array((ones, (first, second)), shape=shape).tocsr()
    edge_of = {}
    for k, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        edge_of[pair] = edge_of[pair[::-1]] = k
    _, component = connected_components(graph, directed=False)
    _, roots = np.unique(component, return_index=True)
    for root in roots[np.bincount(component)[component[roots]] > 1].tolist():
        order, parents = breadth_first_order(graph, root, directed=False)
        for variable in order[:0:-1].tolist():
            if not is_odd[variable]:
                parent = int(parents[variable])
                signs[edge_of[variable, parent]] *= -1.0
                is_odd[variable] = True
                is_odd[parent] = not is_odd[parent]
    return signs
