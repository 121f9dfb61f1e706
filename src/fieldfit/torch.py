"""Random fields on top of networks: the kernels of fieldfit as functions of PyTorch tensors.

A network makes potentials, `CRFLayer` turns them into beliefs, `ObjectiveLoss` into a loss;
gradients go back into the network through the same compiled adjoints that `ProceduralLoss` and the
other objectives use.  Needs ``pip install 'fieldfit[torch]'``.

Kernels run on the processor in double precision, whatever the tensors are; results come back on
their device in their precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError, MissingDependencyError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, observed_labels
from fieldfit.inference.messages.unrolled_sum_product import UnrolledSumProduct
from fieldfit.objectives.base import Objective
from fieldfit.objectives.procedural_loss import ProceduralLoss

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise MissingDependencyError(
        "fieldfit.torch needs PyTorch: pip install 'fieldfit[torch]'"
    ) from error

__all__ = ["CRFLayer", "ObjectiveLoss"]


#: Union graphs that are kept, by number of examples: the last batch of an epoch is smaller.
N_BATCHES = 4


class _Field(nn.Module):
    """A graph, and how tensors are its potentials."""

    def __init__(self, graph: FactorGraph) -> None:
        super().__init__()
        self.graph = graph
        labels = np.unique(graph.cardinalities)
        if len(labels) != 1:
            raise InvalidInputError(
                f"graph must have the same number of labels everywhere, got {labels.tolist()}"
            )
        if not np.all(graph.arities == 2):
            raise InvalidInputError(
                f"graph must have pairwise factors only, got arities "
                f"{np.unique(graph.arities).tolist()}"
            )
        self.n_labels = int(labels[0])
        self.batch: Callable[[int], Batch] = lru_cache(N_BATCHES)(
            lambda count: Batch.of([graph] * count)
        )

    def flat(self, unary: Tensor, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Potentials of all examples as two flat tensors."""
        n, k = self.graph.n_variables, self.n_labels
        if unary.ndim < 2 or unary.shape[-1] != k or unary[0].numel() != n * k:
            raise InvalidInputError(
                f"unary must have shape (examples, {n} variables, {k} labels), variables in one "
                f"axis or several, got {tuple(unary.shape)}"
            )
        count = unary.shape[0]
        whole = (count, self.graph.n_factors, k, k)
        if tables.ndim == 3:  # of an edge, the same in every example
            tables = tables[None]
        try:
            spread = tables.expand(whole)
        except RuntimeError:
            raise InvalidInputError(
                f"tables must have shape ({k}, {k}), ({whole[1]}, {k}, {k}) or {whole}, "
                f"got {tuple(tables.shape)}"
            ) from None
        return unary.reshape(-1), spread.reshape(-1)


class CRFLayer(_Field):
    """Beliefs of a random field whose potentials a network makes.

    Parameters
    ----------
    graph
        Of every example, e.g. ``FactorGraph.grid(60, 80, 11)``; pairwise, with the same number of
        labels everywhere.
    sweeps
        The map from potentials to beliefs, by default five sweeps of loopy propagation.

    Examples
    --------
    >>> import torch, fieldfit as ff
    >>> layer = CRFLayer(ff.FactorGraph.grid(4, 4, 3), UnrolledSumProduct(n_sweeps=3))
    >>> unary = torch.zeros(2, 4, 4, 3, requires_grad=True)
    >>> beliefs = layer(unary, torch.eye(3))
    >>> beliefs.shape
    torch.Size([2, 4, 4, 3])
    """

    def __init__(self, graph: FactorGraph, sweeps: UnrolledSumProduct | None = None) -> None:
        super().__init__(graph)
        self.sweeps = UnrolledSumProduct() if sweeps is None else sweeps

    def forward(self, unary: Tensor, tables: Tensor) -> Tensor:
        """Beliefs of variables, in the shape of ``unary``.

        ``unary`` is ``(examples, ..., labels)`` with variables in the middle (for a grid, height
        and width); ``tables`` is one table for all edges, one for each edge, or one for each edge
        of each example.
        """
        flat_unary, flat_tables = self.flat(unary, tables)
        found = _Beliefs.apply(flat_unary, flat_tables, self.batch(len(unary)), self.sweeps)
        return found.reshape(unary.shape)


class ObjectiveLoss(_Field):
    """An objective as a loss of a network: by default a `ProceduralLoss`.

    Parameters
    ----------
    graph
        As in `CRFLayer`.
    objective
        Any objective with values, e.g. ``ProceduralLoss("uquad", n_sweeps=3)``, ``ImplicitLoss()``,
        ``Likelihood(...)``.
    reduction
        ``"mean"`` or ``"sum"`` over examples, or ``"none"``.

    Examples
    --------
    >>> import torch, fieldfit as ff
    >>> loss = ObjectiveLoss(ff.FactorGraph.grid(2, 2, 2), ff.ProceduralLoss("ucl", n_sweeps=2))
    >>> unary = torch.zeros(1, 2, 2, 2, requires_grad=True)
    >>> value = loss(unary, torch.zeros(2, 2), torch.zeros(1, 2, 2, dtype=torch.int64))
    >>> value.backward()
    >>> round(value.item(), 4), unary.grad[0, 0, 0].tolist()
    (2.7726, [-0.5, 0.5])
    """

    def __init__(
        self, graph: FactorGraph, objective: Objective | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(graph)
        self.objective = ProceduralLoss() if objective is None else objective
        if reduction not in ("mean", "sum", "none"):
            raise InvalidInputError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        self.reduction = reduction

    def forward(self, unary: Tensor, tables: Tensor, labels: Tensor) -> Tensor:
        """The loss; ``labels`` has the shape of ``unary`` without the labels' axis, -1: unknown."""
        if labels.shape != unary.shape[:-1]:
            raise InvalidInputError(
                f"labels must have shape {tuple(unary.shape[:-1])}, got {tuple(labels.shape)}"
            )
        flat_unary, flat_tables = self.flat(unary, tables)
        batch = self.batch(len(unary))
        given = observed_labels(batch.graph, labels.reshape(-1).cpu().numpy())
        values = _Losses.apply(flat_unary, flat_tables, batch, self.objective, given)
        if self.reduction == "none":
            return values
        return values.mean() if self.reduction == "mean" else values.sum()


class _Beliefs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, unary: Tensor, tables: Tensor, batch: Batch, sweeps: UnrolledSumProduct
    ) -> Tensor:
        run = sweeps.record(batch, _potentials(batch, unary, tables))
        ctx.run, ctx.beliefs = run, run.beliefs(tables=False)
        ctx.kinds = _kind(unary), _kind(tables)
        return _tensor(ctx.beliefs.unary_values, _kind(unary))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        graph = ctx.run.batch.graph
        derivative = Potentials.from_flat(
            graph, _array(slope), np.zeros(int(graph.table_offsets[-1]))
        )
        (found,) = ctx.run.vjp(derivative, ctx.beliefs).potentials
        of_unary, of_tables = ctx.kinds
        return (
            _tensor(found.unary_values, of_unary),
            _tensor(found.factor_values, of_tables),
            None,
            None,
        )


class _Losses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        unary: Tensor,
        tables: Tensor,
        batch: Batch,
        objective: Objective,
        labels: NDArray[np.int32],
    ) -> Tensor:
        found = objective.evaluate(batch, _potentials(batch, unary, tables), labels)
        if found.values is None:
            raise InvalidInputError(
                f"objective must have values to be a loss, got {objective.name!r}"
            )
        ctx.gradient, ctx.kinds = found.gradient, (_kind(unary), _kind(tables))
        ctx.n_examples = batch.n_examples
        return _tensor(found.values, _kind(unary))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        # examples share no potentials, so each part of the gradient has the slope of its example
        each = _array(slope)[:, None]
        unary, tables = (
            (each * values.reshape(ctx.n_examples, -1)).reshape(-1)
            for values in (ctx.gradient.unary_values, ctx.gradient.factor_values)
        )
        of_unary, of_tables = ctx.kinds
        return _tensor(unary, of_unary), _tensor(tables, of_tables), None, None, None


def _potentials(batch: Batch, unary: Tensor, tables: Tensor) -> Potentials:
    return Potentials.from_flat(batch.graph, _array(unary), _array(tables))


def _array(tensor: Tensor) -> FloatArray:
    found: FloatArray = tensor.detach().cpu().to(torch.float64).contiguous().numpy()
    return found


def _kind(tensor: Tensor) -> tuple[Any, Any]:
    """Device and precision; the tensors themselves would be kept alive by what is made of them."""
    return tensor.device, tensor.dtype


def _tensor(values: FloatArray, kind: tuple[Any, Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(*kind)
