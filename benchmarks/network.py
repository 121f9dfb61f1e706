"""A convolutional network with and without a random field on top, on street scenes.

FIELDFIT_DATA=DIR python -m benchmarks.network [--write docs/torch.md]

Needs PyTorch.  The network is trained alone; then it goes on for a few epochs, once alone and once
under a field whose tables are learned with it, so that both have seen the data as often.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import fieldfit as ff
from benchmarks.grid_data import VOID, data_folder
from benchmarks.pages import replace_section, stamp
from fieldfit.torch import CRFLayer, ObjectiveLoss

HEIGHT, WIDTH, N_LABELS = 60, 80, 11
N_ALONE, N_TOGETHER = 30, 8
BATCH, STEP, N_SWEEPS, SEED = 8, 2e-3, 3, 0
#: Tables start at zero beside a network that is trained already, and have a long way to go.
TABLE_STEP = 3e-2
#: Squared differences of colours (of variance 1) at which an edge counts as half as smooth.
CONTRAST = 0.5


class Network(nn.Module):
    """Three layers of 3x3 convolutions over colour and place, the last two dilated."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out, dilation in ((5, 32, 1), (32, 32, 2), (32, 32, 4)):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=dilation, dilation=dilation), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(32, N_LABELS, 1))

    def forward(self, pictures: Tensor) -> Tensor:
        """Scores of labels, last axis."""
        return self.layers(pictures).permute(0, 2, 3, 1)


class Field(nn.Module):
    """A network, and tables of neighbours that depend on their colours."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.graph = ff.FactorGraph.grid(HEIGHT, WIDTH, N_LABELS)
        pairs = self.graph.slot_variables.reshape(-1, 2)
        self.ends = torch.from_numpy(pairs.astype(np.int64))
        self.direction = torch.from_numpy((np.diff(pairs, axis=1)[:, 0] == 1).astype(np.int64))
        # of both directions: a table for edges of any contrast, and one for smooth ones
        self.tables = nn.Parameter(torch.zeros(2, 2, N_LABELS, N_LABELS))

    def potentials(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        colours = pictures[:, :3].flatten(2)
        differences = colours[:, :, self.ends[:, 0]] - colours[:, :, self.ends[:, 1]]
        smooth = torch.exp(-(differences**2).sum(dim=1) / CONTRAST)
        always, alike = self.tables[:, self.direction]
        return self.network(pictures), always + smooth[:, :, None, None] * alike


def scenes(part: str) -> tuple[Tensor, Tensor]:
    data = np.load(data_folder() / "camvid" / "camvid_60x80.npz")
    colours = data[f"x_{part}"].astype(np.float32) / 64.0 - 2.0
    down, right = np.meshgrid(np.linspace(-1, 1, HEIGHT), np.linspace(-1, 1, WIDTH), indexing="ij")
    place = np.broadcast_to(np.stack([down, right], axis=2), (*colours.shape[:3], 2))
    pictures = np.concatenate([colours, place], axis=3).astype(np.float32)
    labels = data[f"y_{part}"].astype(np.int64)
    labels[labels == VOID] = -1
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)


def train(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], data: tuple[Tensor, Tensor], n: int
) -> float:
    """Epochs of Adam with falling steps; seconds of processor time."""
    pictures, labels = data
    generator = torch.Generator().manual_seed(SEED)
    groups = [
        {"params": [values], "lr": TABLE_STEP if name == "tables" else STEP}
        for name, values in module.named_parameters()
    ]
    optimiser = torch.optim.Adam(groups)
    n_batches = -(-len(pictures) // BATCH)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, n * n_batches)
    begin = time.process_time()
    for _ in range(n):
        for chosen in torch.randperm(len(pictures), generator=generator).split(BATCH):
            optimiser.zero_grad()
            loss(pictures[chosen], labels[chosen]).backward()
            optimiser.step()
            falling.step()
    return time.process_time() - begin


def accuracy(find: Callable[[Tensor], Tensor], data: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Share of right pixels, and the mean over labels."""
    found = torch.cat([find(pictures).argmax(-1) for pictures in data[0].split(BATCH)])
    truth, known = data[1], data[1] >= 0
    right = found == truth
    shares = [right[truth == k].float().mean().item() for k in range(N_LABELS)]
    return right[known].float().mean().item(), float(np.mean(shares))


def run() -> list[str]:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    training, test = scenes("train"), scenes("test")
    entropy = nn.CrossEntropyLoss(ignore_index=-1)

    def alone_loss(network: Network) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda pictures, labels: entropy(network(pictures).flatten(0, 2), labels.flatten())

    network = Network()
    first = train(network, alone_loss(network), training, N_ALONE)
    field = Field(copy.deepcopy(network))
    more = train(network, alone_loss(network), training, N_TOGETHER)
    objective = ff.ProceduralLoss("ucl", n_sweeps=N_SWEEPS)
    marginal = ObjectiveLoss(field.graph, objective)
    n_pixels = HEIGHT * WIDTH
    together = train(
        field,
        lambda pictures, labels: marginal(*field.potentials(pictures), labels) / n_pixels,
        training,
        N_TOGETHER,
    )
    layer = CRFLayer(field.graph, ff.inference.UnrolledSumProduct(n_sweeps=N_SWEEPS))
    rows = [
        "method | test accuracy, % | mean over labels, % | CPU seconds",
        "--- | --- | --- | ---",
    ]
    with torch.no_grad():
        for name, find, seconds in (
            ("network", network, first + more),
            ("network under the field, without it", field.network, first + together),
            ("network and field", lambda x: layer(*field.potentials(x)), first + together),
        ):
            whole, mean = accuracy(find, test)
            rows.append(f"{name} | {100 * whole:.2f} | {100 * mean:.2f} | {seconds:.0f}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="page to put the table into")
    given = parser.parse_args()
    lines = [
        stamp("FIELDFIT_DATA=DIR python -m benchmarks.network"),
        "",
        f"CamVid at {HEIGHT}x{WIDTH}: 367 training and 233 test pictures; {N_ALONE} epochs alone, "
        f"then {N_TOGETHER} more; {N_SWEEPS} sweeps; seed {SEED}; one thread.",
        "",
        *(f"| {row} |" for row in run()),
    ]
    print("\n".join(lines))
    if given.write:
        replace_section(given.write, "network", lines)


if __name__ == "__main__":
    main()
