"""The bridge to PyTorch: gradients by its own checker, and agreement with objectives."""

from __future__ import annotations

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.errors import InvalidInputError
from fieldfit.inference.messages.unrolled_sum_product import UnrolledSumProduct
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.procedural_loss import ProceduralLoss

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
bridge = pytest.importorskip("fieldfit.torch")

GRAPH = ff.FactorGraph.grid(2, 3, 3)


def tensors(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes
    ]


@pytest.mark.parametrize(
    "tables", [(3, 3), (GRAPH.n_factors, 3, 3), (2, GRAPH.n_factors, 3, 3)], ids=str
)
def test_gradients_of_beliefs(tables):
    layer = bridge.CRFLayer(GRAPH, UnrolledSumProduct(n_sweeps=2))
    assert torch.autograd.gradcheck(layer, tensors((2, 2, 3, 3), tables))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("objective", [ProceduralLoss("uquad", n_sweeps=2), Likelihood()], ids=repr)
def test_gradients_of_losses(objective, reduction):
    loss = bridge.ObjectiveLoss(GRAPH, objective, reduction)
    labels = torch.tensor([[[0, 1, 2], [2, -1, 0]], [[1, 1, 1], [0, 0, 2]]])
    unary, tables = tensors((2, 2, 3, 3), (3, 3))
    assert torch.autograd.gradcheck(lambda u, t: loss(u, t, labels), (unary, tables))


def test_values_are_those_of_the_objective():
    objective = ProceduralLoss("ucl", n_sweeps=3)
    unary, tables = tensors((1, 2, 3, 3), (3, 3))
    labels = np.array([0, 1, 2, 2, 1, 0])
    table = tables.detach().numpy()
    potentials = ff.Potentials(
        GRAPH, unary.detach().numpy().reshape(6, 3), [table] * GRAPH.n_factors
    )
    value, gradient = objective.value_and_grad(GRAPH, potentials, labels)
    found = bridge.ObjectiveLoss(GRAPH, objective)(
        unary, tables, torch.from_numpy(labels).reshape(1, 2, 3)
    )
    found.backward()
    assert found.item() == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(unary.grad.numpy().ravel(), gradient.unary_values, rtol=1e-12)
    np.testing.assert_allclose(
        tables.grad.numpy(), gradient.factor_values.reshape(-1, 3, 3).sum(axis=0), rtol=1e-12
    )


def test_single_precision_comes_back_as_it_came():
    layer = bridge.CRFLayer(GRAPH)
    unary, tables = tensors((2, 6, 3), (3, 3), dtype=torch.float32)
    found = layer(unary, tables)
    assert found.dtype == torch.float32
    assert torch.allclose(found.sum(dim=-1), torch.ones(2, 6))
    found[..., 0].sum().backward()
    assert unary.grad.dtype == torch.float32
    assert tables.grad.abs().sum() > 0


def test_a_network_learns_through_it():
    """Large squares under noise: a field over one convolution."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, size=(20, 2, 2)).repeat(4, axis=1).repeat(4, axis=2)
    noisy = torch.from_numpy(truth + 1.5 * rng.normal(size=truth.shape)).float()
    labels = torch.from_numpy(truth)
    torch.manual_seed(0)
    network = torch.nn.Conv2d(1, 2, 1)
    tables = torch.nn.Parameter(torch.zeros(2, 2))
    graph = ff.FactorGraph.grid(8, 8, 2)
    loss = bridge.ObjectiveLoss(graph, ProceduralLoss("ucl", n_sweeps=3))
    optimiser = torch.optim.Adam([*network.parameters(), tables], lr=0.1)
    values = []
    for _ in range(40):
        optimiser.zero_grad()
        value = loss(network(noisy[:, None]).permute(0, 2, 3, 1), tables, labels)
        value.backward()
        optimiser.step()
        values.append(value.item())
    assert values[-1] < 0.8 * values[0]
    layer = bridge.CRFLayer(graph, UnrolledSumProduct(n_sweeps=3))
    unary = network(noisy[:, None]).permute(0, 2, 3, 1)
    field = (layer(unary, tables).argmax(-1) == labels).float().mean()
    alone = (unary.argmax(-1) == labels).float().mean()
    assert field > alone + 0.05


def test_shapes_are_checked():
    layer = bridge.CRFLayer(GRAPH)
    with pytest.raises(InvalidInputError, match="unary must have shape"):
        layer(torch.zeros(2, 5, 3), torch.zeros(3, 3))
    with pytest.raises(InvalidInputError, match="tables must have shape"):
        layer(torch.zeros(2, 6, 3), torch.zeros(2, 2))
    with pytest.raises(InvalidInputError, match="labels must have shape"):
        bridge.ObjectiveLoss(GRAPH)(
            torch.zeros(2, 6, 3), torch.zeros(3, 3), torch.zeros(6, dtype=torch.int64)
        )
    with pytest.raises(InvalidInputError, match="graph must have pairwise factors"):
        bridge.CRFLayer(ff.FactorGraph([2, 2, 2], [(0, 1, 2)]))
    with pytest.raises(InvalidInputError, match="reduction must be"):
        bridge.ObjectiveLoss(GRAPH, reduction="all")
