"""How beliefs respond to potentials: the Hessian of a surrogate log-partition.

At an interior optimum of ``B(th) = max over tau in L of <th, tau> + H_c(tau)`` the beliefs are
differentiable, and ``d tau / d th = grad^2 B`` follows from the conditions of the optimum.
Constraints of the local polytope (normalisation, agreement of factors with variables) are ``A tau
= b``; a change ``dth`` then solves, with ``D = - grad^2 H_c = diag(c / tau)``,

    [ D  A^T ] [ dtau ]   [ dth ]
    [ A   0  ] [ dlam ] = [  0  ]

Substituting ``dtau = sqrt(tau) x`` leaves ``c`` on the diagonal, so that small beliefs do no harm.
One sparse factorisation serves any number of right-hand sides.  Reference: Wainwright, "Estimating
the 'wrong' graphical model", J. Machine Learning Research 7 (2006), section 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.entropy.counting_numbers import CountingNumbers
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs

__all__ = ["LinearResponse"]

#: Beliefs below this cannot be told from zero; their entries do not respond.
SMALLEST_BELIEF = 1e-280
#: Constraints are met to about this: beliefs of zero leave some of them empty or dependent, and the
#: system would be singular without it.
SLACK = 1e-12


class LinearResponse:
    """``d tau / d th`` at the beliefs of a converged run, for an entropy's counting numbers.

    Vectors are unary entries followed by table entries, as in ``Potentials``.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph([2], [])
    >>> beliefs = ff.Exact().run(graph, ff.Potentials(graph)).beliefs
    >>> response = LinearResponse(graph, beliefs, ff.Bethe().counting_numbers(graph))
    >>> response.apply(np.array([0.0, 1.0])).round(6).tolist()
    [-0.25, 0.25]
    """

    def __init__(self, graph: FactorGraph, beliefs: Beliefs, counting: CountingNumbers) -> None:
        from scipy.sparse import bmat, diags_array
        from scipy.sparse.linalg import splu

        if bool(np.any(graph.arities < 2)):
            raise InvalidInputError(
                "graph must have only factors of arity at least 2, got one of arity "
                f"{int(graph.arities.min())}; add it to the unary potentials"
            )
        tau = np.concatenate([beliefs.unary_values, beliefs.factor_values])
        self.root = np.sqrt(np.where(tau > SMALLEST_BELIEF, tau, 0.0))
        numbers = np.concatenate(
            [
                np.repeat(counting.variable, graph.cardinalities),
                np.repeat(counting.factor, np.diff(graph.table_offsets)),
            ]
        )
        # an entry that is zero has no say: any non-zero number keeps the system regular
        numbers = np.where(self.root > 0.0, numbers, 1.0)
        constraints = _constraints(graph) @ diags_array(self.root)
        self.n_constraints = constraints.shape[0]
        slack = diags_array(np.full(self.n_constraints, -SLACK))
        matrix = bmat([[diags_array(numbers), constraints.T], [constraints, slack]], format="csc")
        self._solver: Any = splu(matrix)

    @property
    def n_entries(self) -> int:
        return len(self.root)

    def apply(self, change: FloatArray) -> FloatArray:
        """First-order change of the beliefs for a change of the potentials (vector or columns)."""
        columns = change.reshape(self.n_entries, -1)
        right = np.zeros((self.n_entries + self.n_constraints, columns.shape[1]))
        right[: self.n_entries] = self.root[:, None] * columns
        solution = self._solver.solve(right)[: self.n_entries]
        response: FloatArray = (self.root[:, None] * solution).reshape(change.shape)
        return response

    def norm(self, tol: float = 1e-8) -> float:
        """Spectral norm of ``d tau / d th``: the local Lipschitz constant of the beliefs."""
        from scipy.sparse.linalg import LinearOperator, eigsh

        if self.n_entries <= 64:
            dense = self.apply(np.eye(self.n_entries))
            return float(np.abs(np.linalg.eigvalsh((dense + dense.T) / 2.0)).max(initial=0.0))
        operator = LinearOperator(
            (self.n_entries, self.n_entries), matvec=self.apply, dtype=np.float64
        )
        start = np.random.default_rng(0).normal(size=self.n_entries)
        (value,) = eigsh(operator, k=1, which="LM", v0=start, tol=tol, return_eigenvectors=False)
        return float(abs(value))


def _constraints(graph: FactorGraph) -> Any:
    """Independent rows: one for each variable, and agreement for each slot.

    All slots of a factor fix its total, so every slot but the first leaves out its last label.
    """
    from scipy.sparse import csr_array

    n_unary = int(graph.unary_offsets[-1])
    rows = [np.repeat(np.arange(graph.n_variables), graph.cardinalities)]
    columns = [np.arange(n_unary)]
    values = [np.ones(n_unary)]
    n_rows = graph.n_variables
    for position in range(int(graph.arities.max(initial=0))):
        factors = np.flatnonzero(graph.arities > position)
        variables = graph.slot_variables[graph.scope_offsets[factors] + position]
        sizes = graph.cardinalities[variables].astype(np.int64)
        kept = sizes if position == 0 else sizes - 1
        first_row = n_rows + np.cumsum(kept) - kept
        n_rows += int(kept.sum())
        # label of this position in every entry of every table
        entries = np.diff(graph.table_offsets)[factors].astype(np.int64)
        owner = np.repeat(np.arange(len(factors)), entries)
        local = np.arange(entries.sum()) - np.repeat(np.cumsum(entries) - entries, entries)
        stride = _strides(graph, factors, position)
        label = local // stride[owner] % sizes[owner]
        used = label < kept[owner]
        rows.append((first_row[owner] + label)[used])
        columns.append((n_unary + graph.table_offsets[factors][owner] + local)[used])
        values.append(np.ones(int(used.sum())))
        # minus the belief of the variable
        which = np.repeat(np.arange(len(factors)), kept)
        own = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
        rows.append(first_row[which] + own)
        columns.append(graph.unary_offsets[variables][which] + own)
        values.append(np.full(int(kept.sum()), -1.0))
    shape = (n_rows, n_unary + int(graph.table_offsets[-1]))
    data = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return csr_array(data, shape=shape)


def _strides(graph: FactorGraph, factors: NDArray[np.int64], position: int) -> NDArray[np.int64]:
    """Distance between labels of one scope position in the tables (the last is fastest)."""
    stride = np.ones(len(factors), dtype=np.int64)
    for later in range(position + 1, int(graph.arities[factors].max(initial=0))):
        has = np.flatnonzero(graph.arities[factors] > later)
        variables = graph.slot_variables[graph.scope_offsets[factors[has]] + later]
        stride[has] *= graph.cardinalities[variables]
    return stride
