"""Do 95 % intervals hold the true parameters in 95 % of simulations?

python -m benchmarks.coverage [--simulations 200] [--write docs/ising.md]

A 4 x 4 Ising grid on {0, 1} with random thresholds and couplings, 2,000 exact samples in each
simulation, with and without 5 % of the entries missing at random.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.pages import replace_section, stamp
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.errors import ConvergenceWarning
from fieldfit.models.pairwise.ising_model import IsingModel

SIDE, N_SAMPLES, LEVEL = 4, 2000, 0.95
OBJECTIVES = ("likelihood", "pseudolikelihood")


def true_model(seed: int) -> IsingModel:
    """A model with known parameters: fitted to anything, then overwritten."""
    rng = np.random.default_rng(seed)
    edges = FactorGraph.grid(SIDE, SIDE, 2).slot_variables.reshape(-1, 2)
    model = IsingModel(max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.repeat([[0], [1]], SIDE * SIDE, axis=1), edges)
    model.weights_ = np.concatenate(
        [rng.normal(scale=0.5, size=SIDE * SIDE), rng.normal(scale=0.7, size=len(edges))]
    )
    return model


def simulate(truth: IsingModel, objective: str, missing: float, n_simulations: int) -> str:
    """One line of the table."""
    covered, estimates, errors = [], [], []
    start = time.process_time()
    for seed in range(n_simulations):
        rng = np.random.default_rng([seed, 1])
        samples = truth.sample(N_SAMPLES, random_state=rng).astype(np.float64)
        samples[rng.random(samples.shape) < missing] = np.nan
        model = IsingModel(objective, l2=0.0).fit(samples, truth.edges_)
        ends = model.confidence_intervals(LEVEL)
        covered.append((ends[:, 0] <= truth.weights_) & (truth.weights_ <= ends[:, 1]))
        estimates.append(model.weights_)
        errors.append(model.standard_errors_)
    seconds = (time.process_time() - start) / n_simulations
    by_parameter = np.mean(covered, axis=0)
    ratio = np.mean(errors, axis=0) / np.std(estimates, axis=0)
    return (
        f"| {objective} | {100 * missing:g} % | {100 * np.mean(covered):.2f} % | "
        f"{100 * by_parameter.min():.1f} - {100 * by_parameter.max():.1f} % | "
        f"{ratio.mean():.3f} | {seconds:.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    truth = true_model(seed=0)
    lines = [
        stamp("python -m benchmarks.coverage --write docs/ising.md"),
        f"{options.simulations} simulations of {N_SAMPLES} samples, {len(truth.weights_)} "
        'parameters. "Ratio" is the mean standard error over the estimates\' standard deviation.',
        "",
        "| objective | missing | coverage | by parameter | ratio | CPU s each |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for missing in (0.0, 0.05):
        for objective in OBJECTIVES:
            lines.append(simulate(truth, objective, missing, options.simulations))
            print(lines[-1], flush=True)
    if options.write:
        replace_section(options.write, "coverage", lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
