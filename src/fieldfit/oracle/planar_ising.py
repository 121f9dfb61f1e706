"""Ground states of planar Ising models without field, by matching frustrated faces.

The score ``constant + sum_e J_e s_i s_j`` loses ``2 |J_e|`` for each edge that is not satisfied.  A
set of edges is the unsatisfied set of some spins if and only if it meets the boundary of each face
as often, modulo two, as there are negative couplings on it.  In the dual graph, whose nodes are
faces, that is a set with an odd degree exactly at the *frustrated* faces: paths that join these in
pairs.  A lightest one consists of shortest paths between the pairs of a perfect matching of least
weight.

References: Toulouse, "Theory of the frustration effect in spin glasses", Communications on Physics
2 (1977); Bieche, Maynard, Rammal and Uhry, "On the ground states of the frustration model of a
spin glass by a matching method of graph theory", Journal of Physics A 13 (1980).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.potentials import Potentials, observed_labels
from fieldfit.core.result import MapResult
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference._planar_ising import Faces, SpinModel, embed, joined_spins, spin_model
from fieldfit.oracle._base import MapSearch
from fieldfit.oracle.perfect_matching import maximum_weight_edges

__all__ = ["PlanarIsing"]

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]


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

    max_frustrated: int = 2000

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        graph = batch.graph
        evidence = observed_labels(graph, observed)
        model = spin_model(graph, potentials, "PlanarIsing")
        faces = embed(model, "PlanarIsing")
        broken, n_frustrated = _unsatisfied_edges(model, faces, self.max_frustrated)
        labels, component = joined_spins(
            model.n_variables, model.ends, (model.couplings > 0.0) ^ broken
        )
        labels = _with_evidence(labels, component, evidence)
        scores = batch.scores(potentials, labels)
        score = float(scores.sum())
        return MapResult(
            labels=labels,
            score=score,
            upper_bound=score,
            optimal=True,
            status=f"optimal: {n_frustrated} of {faces.n_faces} faces are frustrated",
            method="PlanarIsing",
            n_iter=1,
            scores=scores,
            optimal_examples=np.ones(batch.n_examples, dtype=np.bool_),
        )


def _unsatisfied_edges(
    model: SpinModel, faces: Faces, max_frustrated: int
) -> tuple[NDArray[np.bool_], int]:
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


def _shortest_paths(dual: object, frustrated: IndexArray) -> tuple[IndexArray, IndexArray]:
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


def _with_evidence(
    labels: NDArray[np.int32], component: IndexArray, evidence: NDArray[np.int32]
) -> NDArray[np.int32]:
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
