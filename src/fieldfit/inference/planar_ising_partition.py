"""Exact log-partition of planar Ising models without field, by a Pfaffian.

Let ``s`` be any spins and ``K_e = J_e s_i s_j`` the couplings seen from them.  Other spins differ
from ``s`` at some variables; the edges with exactly one end among these form a cut, and

    Z = 2 exp(constant + sum_e K_e) * sum over cuts C of prod_{e in C} exp(-2 K_e).

Draw the graph in the plane and cut its faces into triangles by edges with ``J = 0``.  A set of
edges is a cut if and only if it has zero or two edges on every triangle.  Put a node on each of the
two sides (*darts*) of every edge, join the two by an edge of weight 1, and the three nodes inside
each triangle by edges of weight ``exp(-K_e - K_f)``.  Perfect matchings of this graph are cuts:
what is not matched across is cut, and the sum above is the sum over perfect matchings.  Kasteleyn:
with suitable signs it is the Pfaffian of a skew-symmetric matrix, the root of its determinant.
Here the edges inside a triangle point around it, and the ones across are chosen such that an odd
number of them points at each variable.

All terms of the sum are positive, but those of an elimination are not, and at low temperature (from
about ``|J| = 10`` on) digits cancel.  Therefore the determinant is computed in two orders, and the
answer is given only if they agree.

References: Kasteleyn, "Dimer statistics and phase transitions", Journal of Mathematical Physics 4
(1963); Fisher, "On the dimer solution of planar Ising models", same journal 7 (1966).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import InvalidInputError
from fieldfit.inference._planar_ising import Faces, SpinModel, embed, joined_spins, spin_model

__all__ = ["planar_ising_log_partition"]

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

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


def _strong_spins(model: SpinModel) -> tuple[FloatArray, IndexArray]:
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
    model: SpinModel, faces: Faces, seen: FloatArray, used: NDArray[np.bool_]
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


def _triangulated(
    ends: IndexArray, faces: Faces, used: NDArray[np.bool_]
) -> tuple[IndexArray, IndexArray]:
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


def _signs(n_variables: int, ends: IndexArray, edges: IndexArray) -> FloatArray:
    """+1: an edge points at its second end, -1: at its first; an odd number at each variable.

    All point at their second ends to begin with; edges of a spanning tree are turned from the
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
