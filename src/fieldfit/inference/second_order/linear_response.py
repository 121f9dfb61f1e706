"""Linear response of beliefs to potentials: the Hessian of a surrogate log-partition function.

At an interior optimum of ``B(th) = max over tau in L of <th, tau> + H_c(tau)`` the beliefs are
differentiable, and ``d tau / d th = grad^2 B`` is the inverse of ``- grad^2 H_c = diag(c / tau)``
on the directions that the constraints of the local polytope leave (normalisation, agreement of
factors with variables): one solve of `MarginalHessian` with the counting numbers as entropy
weights.

A stationary point that is no maximum (of Bethe's objective on a graph with cycles) has a response,
too, unless the Hessian is singular there.

References: Wainwright, "Estimating the 'wrong' graphical model", J. Machine Learning Research 7
(2006), section 4; Welling and Teh, "Linear response algorithms for approximate inference in
graphical models", Neural Computation 16 (2004).
"""

from __future__ import annotations

import numpy as np

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray
from fieldfit._validation import require_instance, require_number
from fieldfit.entropy.counting_numbers import CountingNumbers
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.potentials import Beliefs
from fieldfit.inference.second_order.marginal_hessian import MarginalHessian

__all__ = ["LinearResponse"]

#: Beliefs below this cannot be told from zero; their entries do not respond.
SMALLEST_BELIEF = 1e-280


class LinearResponse:
    """``d tau / d th`` at the beliefs of a converged run, for an entropy's counting numbers.

    Vectors are unary entries followed by table entries, as in ``Potentials``.

    Parameters
    ----------
    graph
        The structure.
    beliefs
        Of a converged run.
    counting
        Counting numbers of the entropy that the run used.

    Raises
    ------
    IndefiniteError
        Where the Hessian is singular, so that there is no response.

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
        require_factor_graph(graph)
        require_instance("beliefs", beliefs, Beliefs, "result.beliefs")
        require_instance("counting", counting, CountingNumbers, "Bethe().counting_numbers(graph)")
        if bool(np.any(graph.arities < 2)):
            raise InvalidInputError(
                "graph must have only factors of arity at least 2, got one of arity "
                f"{int(graph.arities.min())}; add it to the unary potentials"
            )
        unary, factors = (
            np.where(values > SMALLEST_BELIEF, values, 0.0)
            for values in (beliefs.unary_values, beliefs.factor_values)
        )
        self.n_entries = len(unary) + len(factors)
        self._n_unary = len(unary)
        self._hessian = MarginalHessian(
            graph,
            unary,
            factors,
            np.repeat(counting.variable, graph.cardinalities),
            np.repeat(counting.factor, np.diff(graph.table_offsets)),
            direct=True,
            require_definite=False,
        )

    @property
    def is_minimum(self) -> bool:
        """Whether the free energy curves upwards in all directions that leave beliefs consistent.

        A stationary point is then a local minimum of the free energy, and otherwise a saddle (or a
        degenerate one).
        """
        return self._hessian.is_definite

    def apply(self, change: FloatArray) -> FloatArray:
        """First-order change of the beliefs for a change of the potentials (vector or columns)."""
        change = real_numbers("change", change)
        if change.ndim not in (1, 2) or len(change) != self.n_entries:
            raise InvalidInputError(
                f"change must be a vector or columns of {self.n_entries} entries, got shape "
                f"{change.shape}"
            )
        if not np.isfinite(change).all():
            raise InvalidInputError("change must be finite, got NaN or infinity")
        columns = np.ascontiguousarray(change.reshape(self.n_entries, -1).T)
        response = np.empty_like(columns)
        for column, moved in zip(columns, response, strict=True):
            found = self._hessian.solve(column[: self._n_unary], column[self._n_unary :])
            moved[: self._n_unary], moved[self._n_unary :] = found.unary, found.factors
        return np.ascontiguousarray(response.T).reshape(change.shape)

    def norm(self, tol: float = 1e-8) -> float:
        """Spectral norm of ``d tau / d th``: the local Lipschitz constant of the beliefs."""
        from scipy.sparse.linalg import LinearOperator, eigsh

        require_number("tol", tol, at_least=0)
        if self.n_entries <= 64:
            dense = self.apply(np.eye(self.n_entries))
            return float(np.abs(np.linalg.eigvalsh((dense + dense.T) / 2.0)).max(initial=0.0))
        operator = LinearOperator(
            (self.n_entries, self.n_entries), matvec=self.apply, dtype=np.float64
        )
        start = np.random.default_rng(0).normal(size=self.n_entries)
        (value,) = eigsh(operator, k=1, which="LM", v0=start, tol=tol, return_eigenvectors=False)
        return float(abs(value))
