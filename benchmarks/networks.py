"""Symptom networks: exact likelihood against pseudo-likelihood, and a published model recovered.

FIELDFIT_DATA=folder python -m benchmarks.networks [--write docs/ising.md] [--images docs/images]

Wenchuan: 17 symptoms of 362 people, answers of 3 and above count as 1, 22 answers missing.
ADHD: 18 symptoms of 355 people.  Depression: 9 symptoms, 5,000 samples of a published model.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.pages import replace_section, stamp
from fieldfit.errors import ConvergenceWarning
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.io.samples import SampleTable, read_samples

N_DRAWN = 5000


def wenchuan(folder: Path) -> SampleTable:
    table = read_samples(folder / "wenchuan.csv.gz")
    answers = np.where(np.isnan(table.values), np.nan, table.values >= 3)
    return SampleTable(answers, table.names)


def adhd(folder: Path) -> SampleTable:
    table = read_samples(folder / "adhd.csv.gz")
    return table.columns([name for name in table.names if name != "group"])


def compare(name: str, table: SampleTable) -> tuple[str, dict[str, IsingModel]]:
    """One line: both objectives on the same answers."""
    models, seconds = {}, {}
    for objective in ("likelihood", "pseudolikelihood"):
        start = time.process_time()
        models[objective] = IsingModel(objective).fit(table.values)
        _ = models[objective].standard_errors_
        seconds[objective] = time.process_time() - start
    exact, fast = models["likelihood"], models["pseudolikelihood"]
    ratio = np.abs(exact.weights_ - fast.weights_) / exact.standard_errors_
    errors = fast.standard_errors_ / exact.standard_errors_
    line = (
        f"| {name} | {table.values.shape[0]} x {table.values.shape[1]} | "
        f"{int(np.isnan(table.values).sum())} | {len(ratio)} | {ratio.max():.2f} | "
        f"{int((ratio > 1).sum())} | {int((ratio > 2).sum())} | {np.median(errors):.2f} | "
        f"{seconds['likelihood']:.1f} / {seconds['pseudolikelihood']:.1f} |"
    )
    return line, models


def published_model(path: Path) -> IsingModel:
    """The depression model of the file, ready to be sampled from."""
    rows = [line.split(",") for line in path.read_text().split()]
    numbers = np.array([row[1:] for row in rows[1:]], dtype=np.float64)
    model = IsingModel(max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.repeat([[0], [1]], len(numbers), axis=1))
    first, second = model.edges_.T
    model.weights_ = np.concatenate([numbers[:, 0], numbers[first, 1 + second]])
    return model


def recover(truth: IsingModel, objective: str) -> str:
    """One line: a fit to samples from a known model."""
    samples = truth.sample(N_DRAWN, random_state=0)
    model = IsingModel(objective, l2=0.0).fit(samples)
    ends = model.confidence_intervals(0.95)
    inside = np.mean((ends[:, 0] <= truth.weights_) & (truth.weights_ <= ends[:, 1]))
    ratio = np.abs(model.weights_ - truth.weights_) / model.standard_errors_
    difference = np.abs(model.weights_ - truth.weights_).max()
    return (
        f"| {objective} | {len(ratio)} | {difference:.2f} | {ratio.max():.2f} | "
        f"{100 * inside:.0f} % |"
    )


def draw(model: IsingModel, names: tuple[str, ...], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    axes = model.plot_network(names=names, level=0.95)
    axes.figure.savefig(path, dpi=80)
    print(f"wrote {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--images", type=Path)
    options = parser.parse_args()
    if "FIELDFIT_DATA" not in os.environ:
        print("FIELDFIT_DATA must name the folder of the data sets", file=sys.stderr)
        return 2
    folder = Path(os.environ["FIELDFIT_DATA"]) / "ising_networks"
    lines = [
        stamp("python -m benchmarks.networks --write docs/ising.md --images docs/images"),
        '"Difference" is that of exact likelihood and pseudo-likelihood over the standard error of '
        "the former; \"ratio\" the median of pseudo-likelihood's error over the exact one's; CPU "
        "seconds with standard errors.",
        "",
        "| data | samples | missing | weights | largest difference | > 1 | > 2 | ratio | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, table in (("Wenchuan", wenchuan(folder)), ("ADHD", adhd(folder))):
        line, models = compare(name, table)
        print(line, flush=True)
        lines.append(line)
        if options.images:
            path = options.images / f"{name.lower()}.png"
            draw(models["pseudolikelihood"], table.names, path)
    lines += [
        "",
        f"The published depression model, from {N_DRAWN:,} samples of it:",
        "",
        "| objective | weights | largest error | in standard errors | inside 95 % intervals |",
        "|---|---|---|---|---|",
    ]
    truth = published_model(folder / "mdd_ising_model.csv")
    for objective in ("likelihood", "pseudolikelihood"):
        lines.append(recover(truth, objective))
        print(lines[-1], flush=True)
    if options.write:
        replace_section(options.write, "networks", lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
