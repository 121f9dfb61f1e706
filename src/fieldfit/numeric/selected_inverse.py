"""Selected inversion: chosen entries of the inverse of a sparse symmetric matrix.

With ``A = L D L'`` the entries of ``Z = inv(A)`` on the pattern of ``L`` follow from the last
column to the first, without any other entry of ``Z`` (Takahashi, Fagan and Chen 1973; Erisman
and Tinney 1975)::

    Z[i, j] = - sum over k > j of Z[i, k] L[k, j]                (i > j, in the pattern)
    Z[j, j] = 1 / D[j] - sum over k > j of Z[k, j] L[k, j]

The cost is that of the factorisation: ``sum over j of (entries of column j) ** 2``.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.numeric.compile import kernel


@kernel
def selected_inverse(
    starts: IntArray,
    rows: IntArray,
    lower: FloatArray,
    pivots: FloatArray,
    n_open: int,
    diagonal: FloatArray,
    below: FloatArray,
) -> bool:
    """Fill ``diagonal`` and ``below`` (one value for each entry of ``L`` under the diagonal).

    ``starts``, ``rows``, ``lower`` hold the strictly lower part of ``L`` by columns, rows
    ascending; ``pivots`` holds ``D``.  Columns from ``n_open`` on are filled already.  The pattern
    must contain all fill: if rows ``i < k`` are both in column ``j``, row ``k`` is in column ``i``.
    False where it does not, which leaves the rest as it was.
    """
    product = np.zeros(len(pivots))
    for j in range(n_open - 1, -1, -1):
        begin, end = starts[j], starts[j + 1]
        for p in range(begin, end):
            product[rows[p]] = 0.0
        for p in range(begin, end):
            k = rows[p]
            value = lower[p]
            total = product[k] + diagonal[k] * value
            q, stop = starts[k], starts[k + 1]
            for r in range(p + 1, end):
                i = rows[r]
                while q < stop and rows[q] != i:
                    q += 1
                if q == stop:
                    return False
                total += below[q] * lower[r]
                product[i] += below[q] * value
            product[k] = total
        total = 1.0 / pivots[j]
        for p in range(begin, end):
            below[p] = -product[rows[p]]
            total -= below[p] * lower[p]
        diagonal[j] = total
    return True


@kernel
def resistances(
    starts: IntArray,
    rows: IntArray,
    diagonal: FloatArray,
    below: FloatArray,
    ends: IntArray,
    result: FloatArray,
) -> None:
    """``Z[u, u] + Z[v, v] - 2 Z[u, v]`` for each pair ``ends[e]``; -1 stands for the ground."""
    for e in range(len(ends)):
        u, v = min(ends[e, 0], ends[e, 1]), max(ends[e, 0], ends[e, 1])
        if u < 0:
            result[e] = diagonal[v]
            continue
        low, high = starts[u], starts[u + 1]
        while high - low > 1:
            middle = (low + high) // 2
            if rows[middle] <= v:
                low = middle
            else:
                high = middle
        result[e] = diagonal[u] + diagonal[v] - 2.0 * below[low]


@kernel
def elimination_cost(starts: IntArray, neighbors: IntArray, max_cost: float) -> float:
    """Multiplications of a factorisation in minimum-degree order, or infinity above ``max_cost``.

    Runs the elimination on the quotient graph: an eliminated node becomes an *element* that
    stands for the clique of its neighbours, so no fill is stored twice, and a new element
    absorbs those it contains.  Degrees are the upper bounds of Amestoy, Davis and Duff (1996).
    """
    n_nodes = len(starts) - 1
    lists = neighbors.copy()  # each node: first its elements, then its remaining neighbours
    n_elements = np.zeros(n_nodes, dtype=np.int32)
    n_neighbors = np.zeros(n_nodes, dtype=np.int32)
    for i in range(n_nodes):
        kept = starts[i]
        for p in range(starts[i], starts[i + 1]):
            if neighbors[p] != i:
                lists[kept] = neighbors[p]
                kept += 1
        n_neighbors[i] = kept - starts[i]
    members = np.empty(4 * len(neighbors) + n_nodes, dtype=np.int32)  # of elements, grown below
    member_starts = np.zeros(n_nodes, dtype=np.int64)
    element_sizes = np.zeros(n_nodes, dtype=np.int32)  # 0: not an element, or absorbed
    n_members = 0
    # nodes of one degree form a doubly linked list
    degrees = n_neighbors.copy()
    first = np.full(n_nodes + 1, -1, dtype=np.int32)
    following = np.full(n_nodes, -1, dtype=np.int32)
    previous = np.full(n_nodes, -1, dtype=np.int32)
    for i in range(n_nodes - 1, -1, -1):
        following[i] = first[degrees[i]]
        if first[degrees[i]] >= 0:
            previous[first[degrees[i]]] = i
        first[degrees[i]] = i
    in_pivot = np.full(n_nodes, -1, dtype=np.int32)  # last step whose pivot had this neighbour
    counted = np.full(n_nodes, -1, dtype=np.int32)  # last step that met this element
    outside = np.zeros(n_nodes, dtype=np.int32)  # members of the element not around the pivot
    cost = 0.0
    lowest = 0
    for step in range(n_nodes):
        while first[lowest] < 0:
            lowest += 1
        pivot = first[lowest]
        first[lowest] = following[pivot]
        if following[pivot] >= 0:
            previous[following[pivot]] = -1
        # the pivot's neighbours: its own list and the members of its elements
        in_pivot[pivot] = step
        needed = n_members + n_nodes - step
        if needed > len(members):
            grown = np.empty(max(2 * len(members), needed), dtype=np.int32)
            grown[:n_members] = members[:n_members]
            members = grown
        begin = n_members
        for p in range(starts[pivot], starts[pivot] + n_elements[pivot]):
            element = lists[p]
            for q in range(member_starts[element], member_starts[element] + element_sizes[element]):
                if in_pivot[members[q]] != step:
                    in_pivot[members[q]] = step
                    members[n_members] = members[q]
                    n_members += 1
            element_sizes[element] = 0
        base = starts[pivot] + n_elements[pivot]
        for p in range(base, base + n_neighbors[pivot]):
            if in_pivot[lists[p]] != step:
                in_pivot[lists[p]] = step
                members[n_members] = lists[p]
                n_members += 1
        size = n_members - begin
        cost += float(size) * float(size)
        if cost > max_cost:
            return np.inf
        remaining = n_nodes - step - 1
        if size == remaining:  # all that is left is one clique
            left = float(remaining)
            cost += (left - 1.0) * left * (2.0 * left - 1.0) / 6.0  # 1 + 4 + ... + (left - 1)**2
            return cost if cost <= max_cost else np.inf
        member_starts[pivot] = begin
        element_sizes[pivot] = size
        for q in range(begin, n_members):
            i = members[q]
            for p in range(starts[i], starts[i] + n_elements[i]):
                element = lists[p]
                if element_sizes[element] == 0:
                    continue
                if counted[element] != step:
                    counted[element] = step
                    outside[element] = element_sizes[element]
                outside[element] -= 1
        for q in range(begin, n_members):
            i = members[q]
            kept = starts[i]
            degree = size - 1
            end_elements = starts[i] + n_elements[i]
            end_lists = end_elements + n_neighbors[i]
            for p in range(starts[i], end_elements):
                element = lists[p]
                if element_sizes[element] > 0 and outside[element] > 0:
                    lists[kept] = element
                    kept += 1
                    degree += outside[element]
            n_kept = kept - starts[i]
            # neighbours around the pivot are covered by the new element; the rest is packed
            for p in range(end_elements, end_lists):
                if in_pivot[lists[p]] != step:
                    lists[kept] = lists[p]
                    kept += 1
            n_neighbors[i] = kept - starts[i] - n_kept
            degree += n_neighbors[i]
            # room for the new element: the pivot, or an element it absorbed, has left the list
            lists[kept] = lists[starts[i] + n_kept]
            lists[starts[i] + n_kept] = pivot
            n_elements[i] = n_kept + 1
            # move the node to its new degree
            if previous[i] >= 0:
                following[previous[i]] = following[i]
            else:
                first[degrees[i]] = following[i]
            if following[i] >= 0:
                previous[following[i]] = previous[i]
            degree = min(degree, remaining - 1)
            degrees[i] = degree
            previous[i] = -1
            following[i] = first[degree]
            if first[degree] >= 0:
                previous[first[degree]] = i
            first[degree] = i
            lowest = min(lowest, degree)
    return cost
