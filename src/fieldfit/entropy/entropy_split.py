r"""Concave entropies as non-negative sums of entropies and conditional entropies.

    sum_a c_a H(tau_a) + sum_i c_i H(tau_i)
        = sum_a k_a H(tau_a) + sum_i k_i H(tau_i) + sum_ai k_ai (H(tau_a) - H(tau_i)),

    k_a + sum_i k_ai = c_a,      k_i - sum_a k_ai = c_i,      all k >= 0

Each term is concave where ``tau_a`` has the margin ``tau_i``, so such weights prove that the sum is
(Heskes, "Convexity arguments for efficient minimization of the Bethe and Kikuchi free energies",
JAIR 26, 2006), and a dual function that is a bound at any multipliers follows from them
(`fieldfit.inference.convex.split_dual`).  For a forest with a root in every tree, ``k_ai = 1`` if
variable ``i`` is the parent of factor ``a``, and ``k_i = 1`` for roots; tree-reweighted numbers are
averages of these, so they have such weights, too.

If no ``c_i`` is negative, ``k_ai = 0`` will do.  Otherwise, of all solutions with ``k_a = 0``, the
one of maximum entropy is taken: for every factor a distribution over its variables, for every
component of the graph a distribution over its roots,

    k_ai = c_a exp(x_i) / sum_{j in a} exp(x_j),    k_i = r exp(-x_i) / sum_j exp(-x_j),

where ``x`` minimises a smooth convex function with the gradient ``sum_a k_ai - k_i + c_i``.
Newton's method needs a few sparse solves.  Of a component with one cycle under Bethe's entropy
nothing is left for roots, ``r = 0``: the function is then constant along ``x + const``, and its
minimum may lie at infinity, because what hangs on the cycle must have ``k_ai = 0``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fieldfit._typing import FloatArray, LongArray
from fieldfit.entropy.counting_numbers import CountingNumbers
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.spanning_forests import label_components

__all__ = ["EntropySplit", "split_entropy"]

#: A few steps, but where the minimum lies at infinity: 23 for graphs of 100 variables, 67 for a
#: path of 5,000 that hangs on a cycle.
MAX_STEPS = 200
#: Roots need not have the weight of the solution: half of it is as good.
ROOT_FRACTION = 0.5
#: Line search of Newton's method: sufficient fraction of the slope, shortest step.
SUFFICIENT = 1e-4
SHORTEST = 1e-6
#: Sums of numbers that differ from zero by less are zero, but for rounding; what variables may lack
#: where the minimum lies at infinity.  It is made up for, so that bounds stay bounds.
ROUNDING = 1e-10
#: The diagonal of Newton's matrix is larger by this fraction: more than rounding, so that the
#: matrix is not singular where the function is constant, too little to change its directions.
GUARD = 1e-12


@dataclass(frozen=True, eq=False)
class EntropySplit:
    """The weights ``k`` of factors, variables and slots, none negative.

    ``factor_total`` is ``k_a + sum_i k_ai``, the counting number ``c_a`` but for rounding.
    """

    factor: FloatArray
    variable: FloatArray
    slot: FloatArray
    factor_total: FloatArray


# values do not refer to their keys, so numbers that are dropped take their split with them
_kept: WeakKeyDictionary[CountingNumbers, EntropySplit | None] = WeakKeyDictionary()


def split_entropy(graph: FactorGraph, counting: CountingNumbers) -> EntropySplit | None:
    """The split of counting numbers of this graph, or ``None`` if none was found.

    Examples
    --------
    >>> from fieldfit.entropy.counting_numbers import TreeReweighted
    >>> graph = FactorGraph.from_edges(3, [(0, 1), (1, 2), (0, 2)], 2)
    >>> split = split_entropy(graph, TreeReweighted().counting_numbers(graph))
    >>> split.slot.round(3), split.variable.round(3)
    (array([0.333, 0.333, 0.333, 0.333, 0.333, 0.333]), array([0.333, 0.333, 0.333]))
    """
    if counting not in _kept:
        _kept[counting] = _split(graph, counting)
    return _kept[counting]


def _split(graph: FactorGraph, counting: CountingNumbers) -> EntropySplit | None:
    factor = np.where(graph.arities >= 2, counting.factor, 0.0)
    if (factor < 0.0).any():
        return None
    if (counting.variable >= 0.0).all():
        return EntropySplit(factor, counting.variable.copy(), np.zeros(graph.n_slots), factor)
    problem = _RootBalance(graph, factor, counting.variable)
    if (problem.roots < 0.0).any():
        return None
    slot = _balanced(problem)
    variable = counting.variable + np.bincount(graph.slot_variables, slot, graph.n_variables)
    if not (np.isfinite(variable).all() and (variable >= -ROUNDING).all()):
        return None
    total = np.bincount(graph.slot_factors, slot, graph.n_factors).astype(np.float64)
    return EntropySplit(np.zeros(graph.n_factors), np.maximum(variable, 0.0), slot, total)


def _balanced(problem: _RootBalance) -> FloatArray:
    """``k_ai`` of maximum entropy; where Newton's method has stopped, solved or not."""
    graph, variable = problem.graph, problem.variable
    x = np.zeros(graph.n_variables)
    value, slot, root = problem.evaluate(x)
    for _ in range(MAX_STEPS):
        incoming = np.bincount(graph.slot_variables, slot, graph.n_variables)
        if (variable + incoming >= ROOT_FRACTION * root - ROUNDING).all():
            break
        gradient = incoming - root + variable
        direction = -problem.solve(slot, root, gradient)
        slope, length = float(gradient @ direction), 1.0
        while length >= SHORTEST:
            trial = problem.evaluate(x + length * direction)
            if trial[0] <= value + SUFFICIENT * length * slope:
                break
            length *= 0.5
        else:
            break  # rounding
        x = x + length * direction
        value, slot, root = trial
    return slot


class _RootBalance:
    """The convex function of ``x``, its weights, and Newton's directions."""

    def __init__(self, graph: FactorGraph, factor: FloatArray, variable: FloatArray) -> None:
        self.graph, self.factor, self.variable = graph, factor, variable
        component = np.empty(graph.n_variables, dtype=np.int32)
        linking = graph.arities >= 2
        label_components(graph.scope_offsets, graph.slot_variables, linking, component)
        _, self._component = np.unique(component, return_inverse=True)
        self._slots: LongArray = np.flatnonzero(linking[graph.slot_factors])
        owner = self._component[graph.slot_variables[self._slots]]
        # what is left of the numbers of a component after its conditional entropies
        share = (factor / np.maximum(graph.arities, 1))[graph.slot_factors[self._slots]]
        roots = np.bincount(self._component, variable) + np.bincount(
            owner, share, int(self._component.max(initial=-1)) + 1
        )
        self.roots = np.where(np.abs(roots) > ROUNDING, roots, 0.0)

    def evaluate(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, ``k_ai`` by slot, and ``k_i``."""
        graph, slots = self.graph, self._slots
        slot = np.zeros(graph.n_slots)
        log_sum, part = _log_softmax(
            x[graph.slot_variables[slots]], graph.slot_factors[slots], graph.n_factors
        )
        slot[slots] = self.factor[graph.slot_factors[slots]] * part
        value = float(self.factor @ log_sum) + float(self.variable @ x)
        log_sum, part = _log_softmax(-x, self._component, len(self.roots))
        return value + float(self.roots @ log_sum), slot, self.roots[self._component] * part

    def solve(self, slot: FloatArray, root: FloatArray, gradient: FloatArray) -> FloatArray:
        """``M^-1 g`` for the Hessian ``M``, the rank-one terms of the roots left out."""
        from scipy.sparse import coo_array, diags_array
        from scipy.sparse.linalg import splu

        graph, slots = self.graph, self._slots
        places = graph.slot_factors[slots], graph.slot_variables[slots]
        weights = slot[slots]
        shape = (graph.n_factors, graph.n_variables)
        scale = np.sqrt(np.maximum(self.factor, 1e-300))[places[0]]
        rows: Any = coo_array((weights / scale, places), shape=shape).tocsr()
        diagonal = np.bincount(places[1], weights, graph.n_variables) + root
        diagonal = np.maximum((1.0 + GUARD) * diagonal, GUARD)
        matrix = (diags_array(diagonal) - rows.T @ rows).tocsc()
        options = {"SymmetricMode": True}
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
        return np.asarray(factors.solve(gradient), dtype=np.float64)


def _log_softmax(x: FloatArray, group: Any, n_groups: int) -> tuple[FloatArray, FloatArray]:
    """Log-sum-exp of each group (0 if it is empty), and the softmax of each entry in its group."""
    top = np.full(n_groups, -np.inf)
    np.maximum.at(top, group, x)
    weights = np.exp(x - top[group])
    total = np.bincount(group, weights, n_groups)
    log_sum = np.where(total > 0.0, np.log(np.maximum(total, 1e-300)) + top, 0.0)
    return np.where(total > 0.0, log_sum, 0.0), weights / total[group]
