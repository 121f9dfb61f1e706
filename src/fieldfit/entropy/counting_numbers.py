"""Entropies of pseudo-marginals, given by counting numbers.

Every surrogate for the log-partition in this package has the form ::

    B(th) = max over tau in L of <th, tau> + H_c(tau)
    H_c(tau) = sum over a of c_a H(tau_a) + sum over i of c_i H(tau_i)

where ``L`` is the local polytope.  An `Entropy` is a rule that gives the counting numbers ``c``
for any graph.  If ``H_c(mu) >= H(mu)`` for the marginals ``mu`` of every distribution, then ``B``
is an upper bound on the log-partition, because ``L`` contains all such ``mu``.

Factors of arity zero and one have ``c_a = 0``: they are part of the constant and of the unary
potentials.  A variable without a factor of arity two or more has ``c_i = 1``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import plain_array
from fieldfit._typing import FloatArray
from fieldfit._validation import require_number, shown
from fieldfit.entropy.tree_weights import TOLERANCE, is_mixture_of_forests, tree_weights
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.memos import Memo
from fieldfit.graph.spanning_forests import label_components

__all__ = ["Bethe", "Convex", "CountingNumbers", "Entropy", "TreeReweighted"]

EntropyBound = Literal["exact", "upper"] | None

#: Results kept for each graph; learners ask for the same ones thousands of times.
MAX_CACHED = 4


@dataclass(frozen=True, eq=False)
class CountingNumbers:
    """Counting numbers of one graph, and what is proved about them.

    Attributes
    ----------
    factor
        ``c_a``, shape ``(n_factors,)``; 0 for factors of arity zero and one.
    variable
        ``c_i``, shape ``(n_variables,)``.
    variable_total
        ``c_i`` plus the ``c_a`` of all factors on ``i``, by which messages are divided.
    bound
        What the maximum ``B`` is: the log-partition ("exact"), never below it ("upper"), or
        nothing is proved (``None``).
    concave
        True if ``H_c`` is proved to be concave on the local polytope, so that ``B`` has no
        other local maximum.
    reason
        One sentence that says why.
    """

    factor: FloatArray
    variable: FloatArray
    variable_total: FloatArray
    bound: EntropyBound
    concave: bool
    reason: str

    @classmethod
    def of(
        cls,
        graph: FactorGraph,
        factor: FloatArray,
        variable: FloatArray,
        *,
        bound: EntropyBound,
        concave: bool,
        reason: str,
    ) -> CountingNumbers:
        """Counting numbers with their totals; arrays are kept and made read-only."""
        total = variable + _sum_around_variables(graph, factor)
        return cls._frozen(factor, variable, total, bound, concave, reason)

    @classmethod
    def of_tree_weights(
        cls, graph: FactorGraph, rho: FloatArray, *, bound: EntropyBound, reason: str
    ) -> CountingNumbers:
        """``c_a = rho_a`` and ``c_i = 1 - sum of rho``, so that every total is exactly 1.

        The caller vouches for ``bound``: it is "upper" if ``rho`` is a mixture of forests.  For
        those of an acyclic graph with ``rho = 1`` the bound becomes "exact".
        """
        factor = np.where(graph.arities >= 2, rho, 0.0)
        variable = 1.0 - _sum_around_variables(graph, factor)
        if bound == "upper" and graph.is_acyclic and bool(np.all(factor[graph.arities >= 2] == 1)):
            bound, reason = "exact", "The graph has no cycle, where all weights are 1."
        total = np.ones(graph.n_variables)
        return cls._frozen(factor, variable, total, bound, bound is not None, reason)

    @classmethod
    def _frozen(
        cls,
        factor: FloatArray,
        variable: FloatArray,
        total: FloatArray,
        bound: EntropyBound,
        concave: bool,
        reason: str,
    ) -> CountingNumbers:
        for array in (factor, variable, total):
            array.flags.writeable = False
        return cls(factor, variable, total, bound, concave, reason)


class Entropy(ABC):
    """Abstract base: a rule that gives counting numbers for any graph.

    Subclasses are frozen dataclasses, hashable by value, and implement `compute`.
    """

    def counting_numbers(self, graph: FactorGraph) -> CountingNumbers:
        """Counting numbers of ``graph``, kept as long as the graph lives."""
        require_factor_graph(graph)
        kept: dict[Entropy, CountingNumbers] = _kept_numbers.setdefault(graph, {})
        numbers = kept.get(self)
        if numbers is None:
            numbers = self.compute(graph)
            if len(kept) >= MAX_CACHED:
                kept.clear()
            kept[self] = numbers
        return numbers

    @property
    def name(self) -> str:
        """How results name the entropy."""
        return type(self).__name__ + ("(optimized)" if self.is_optimized else "")

    @property
    def is_optimized(self) -> bool:
        """True if the numbers are to be improved for the potentials at hand."""
        return False

    @abstractmethod
    def compute(self, graph: FactorGraph) -> CountingNumbers:
        """Counting numbers of ``graph``, computed afresh."""


# weak keys, and values that do not refer to the graph: a graph takes its numbers with it
_kept_numbers = Memo("counting numbers")


@dataclass(frozen=True)
class Bethe(Entropy):
    """Bethe's entropy: ``c_a = 1``, ``c_i = 1 - d_i``; its message passing is plain BP.

    Exact on graphs without cycles.  Concave if no component has more than one cycle (Heskes
    2004; counted in the bipartite graph of variables and factors).

    Examples
    --------
    >>> Bethe().counting_numbers(FactorGraph.chain(3, 2)).variable
    array([ 0., -1.,  0.])
    """

    def compute(self, graph: FactorGraph) -> CountingNumbers:
        factor = (graph.arities >= 2).astype(np.float64)
        variable = 1.0 - graph.degrees.astype(np.float64)
        if graph.is_acyclic:
            return CountingNumbers.of(
                graph,
                factor,
                variable,
                bound="exact",
                concave=True,
                reason="The graph has no cycle, where Bethe's entropy is the true one.",
            )
        concave = _has_single_cycles(graph)
        return CountingNumbers.of(
            graph,
            factor,
            variable,
            bound=None,
            concave=concave,
            reason="The graph has cycles, where Bethe's entropy may lie on either side"
            + (", though no component has two." if concave else "."),
        )


@dataclass(frozen=True, eq=False)
class TreeReweighted(Entropy):
    """Average of the entropies of forests: ``c_a = rho_a``, ``c_i = 1 - sum of rho_a``.

    Parameters
    ----------
    rho
        Fraction of the forests that hold each factor (edge appearance probability).  ``None``
        takes `tree_weights`: the probability in a uniform random spanning tree, and a balanced
        mixture of acyclic sub-hypergraphs where a component has factors of arity above two.  A
        number in (0, 1] holds for every factor; an array has one entry for each factor (those of
        arity zero and one are ignored).  Given weights make an upper bound only if they are a
        mixture of forests, which is checked.  ``"optimized"`` starts from the default, and the
        inference tightens the bound for the potentials at hand.

    Examples
    --------
    >>> numbers = TreeReweighted().counting_numbers(FactorGraph.grid(2, 2, n_labels=3))
    >>> numbers.factor, numbers.bound
    (array([0.75, 0.75, 0.75, 0.75]), 'upper')
    """

    rho: ArrayLike | Literal["optimized"] | None = None

    def __post_init__(self) -> None:
        if self.rho is None or (isinstance(self.rho, str) and self.rho == "optimized"):
            return
        array = plain_array("rho", self.rho).copy()
        if array.dtype.kind not in "iuf" or array.ndim > 1:
            raise InvalidInputError(
                "rho must be None, a number, an array with one entry for each factor, or "
                f'"optimized", got {shown(self.rho)}'
            )
        if array.ndim == 0:
            _require_weight("rho", float(array))
            object.__setattr__(self, "rho", float(array))
            return
        array = array.astype(np.float64)
        array.flags.writeable = False
        object.__setattr__(self, "rho", array)

    @property
    def is_optimized(self) -> bool:
        """True if the inference is to improve the weights for the potentials at hand."""
        return isinstance(self.rho, str)

    def compute(self, graph: FactorGraph) -> CountingNumbers:
        if self.rho is None or self.is_optimized:
            return CountingNumbers.of_tree_weights(
                graph,
                tree_weights(graph),
                bound="upper",
                reason="The weights are those of a mixture of forests.",
            )
        rho = self._given(graph)
        bound, reason = _proof_for_weights(graph, rho)
        return CountingNumbers.of_tree_weights(graph, rho, bound=bound, reason=reason)

    def _given(self, graph: FactorGraph) -> FloatArray:
        linking = graph.arities >= 2
        rho = np.asarray(self.rho, dtype=np.float64)
        if rho.ndim == 0:
            return np.where(linking, rho, 0.0)
        if rho.shape != (graph.n_factors,):
            raise InvalidInputError(
                f"rho must have shape ({graph.n_factors},), one entry for each factor, "
                f"got {rho.shape}"
            )
        for factor in np.flatnonzero(linking & ~((rho > 0) & (rho <= 1)))[:1]:
            _require_weight(f"rho[{factor}]", float(rho[factor]))
        return np.where(linking, rho, 0.0)

    def _key(self) -> Any:
        return self.rho.tobytes() if isinstance(self.rho, np.ndarray) else self.rho

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeReweighted) and bool(self._key() == other._key())

    def __hash__(self) -> int:
        return hash((TreeReweighted, self._key()))


@dataclass(frozen=True, kw_only=True)
class Convex(Entropy):
    """Constant non-negative counting numbers: ``c_a = factor``, ``c_i = unary``.

    Concave.  An upper bound if every variable is counted at least once in total, by Shearer's
    inequality (Chung, Graham, Frankl and Shearer 1986): non-negative weights of sets that cover
    every variable with total weight at least 1 give ``sum of w_S H(y_S) >= H(y)``.

    Parameters
    ----------
    unary, factor
        The counting numbers of variables and factors.

    Examples
    --------
    >>> Convex().counting_numbers(FactorGraph.chain(3, 2)).variable_total
    array([1.01, 2.01, 1.01])
    """

    unary: float = field(default=0.01, kw_only=False)
    factor: float = 1.0

    def __post_init__(self) -> None:
        require_number("unary", self.unary, at_least=0)
        require_number("factor", self.factor, above=0)

    def compute(self, graph: FactorGraph) -> CountingNumbers:
        factor = np.where(graph.arities >= 2, float(self.factor), 0.0)
        variable = np.where(graph.degrees > 0, float(self.unary), 1.0)
        total = variable + self.factor * graph.degrees
        bound: EntropyBound
        if graph.is_acyclic and self._is_bethe(graph):
            bound, reason = "exact", "These are Bethe's numbers on a graph without cycles."
        elif bool(np.all(total >= 1.0)):
            bound, reason = "upper", "No number is negative and every variable counts at least 1."
        else:
            bound = None
            reason = f"Variable {int(np.argmin(total))} counts {total.min():.6g} in total, below 1."
        return CountingNumbers.of(graph, factor, variable, bound=bound, concave=True, reason=reason)

    def _is_bethe(self, graph: FactorGraph) -> bool:
        connected = graph.degrees[graph.degrees > 0]
        return connected.size == 0 or (
            self.factor == 1.0 and bool(np.all(self.unary == 1.0 - connected))
        )


# -- helpers ------------------------------------------------------------------------------


def _sum_around_variables(graph: FactorGraph, factor: FloatArray) -> FloatArray:
    """Sum of a per-factor quantity over the factors on each variable."""
    sums = np.bincount(
        graph.slot_variables, weights=factor[graph.slot_factors], minlength=graph.n_variables
    )
    return sums.astype(np.float64)


def _has_single_cycles(graph: FactorGraph) -> bool:
    """True if no component of the bipartite graph has more than one independent cycle."""
    linking = graph.arities >= 2
    labels = np.empty(graph.n_variables, dtype=np.int32)
    n_components = int(label_components(graph.scope_offsets, graph.slot_variables, linking, labels))
    owners = labels[graph.slot_variables[graph.scope_offsets[:-1][linking]]]
    n_edges = np.bincount(owners, weights=graph.arities[linking], minlength=n_components)
    n_nodes = np.bincount(labels, minlength=n_components)
    n_nodes += np.bincount(owners, minlength=n_components)
    return bool(np.all(n_edges <= n_nodes))


def _proof_for_weights(graph: FactorGraph, rho: FloatArray) -> tuple[EntropyBound, str]:
    """What given tree weights prove, with the reason."""
    if bool(np.all(_sum_around_variables(graph, rho) <= 1.0 + TOLERANCE)):
        return "upper", "The weights around every variable sum to at most 1."
    proved = is_mixture_of_forests(graph, rho)
    if proved:
        return "upper", "The weights are those of a mixture of forests."
    if proved is None:
        return None, "It was not proved that the given rho is a mixture of forests."
    return None, "The given rho is not a mixture of forests."


def _require_weight(name: str, value: float) -> None:
    require_number(name, value, above=0, at_most=1)
