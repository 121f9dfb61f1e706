"""Penalty-free fits by the mean-field likelihood: how many run away.

[FIELDFIT_DATA=folder] python -m benchmarks.mean_field_fits [--tables 100] [--write PAGE]

Tables of 8 yes-or-no questions: half of them drawn from models with couplings of standard deviation
1, half of them (if there are data) columns and people drawn from two questionnaires.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.pages import replace_section, stamp
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.learners.base import Fit
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.models.pairwise.pairwise_parameters import IsingParameters, full_edges
from fieldfit.models.pairwise.pairwise_problems import LikelihoodProblem, independent_start
from fieldfit.models.pairwise.sample_data import Samples
from fieldfit.models.pairwise.sample_partition import InferredPartition
from fieldfit.objectives.likelihood import Likelihood

N_COLUMNS, N_ROWS = 8, 350
#: A weight beyond this, or a probability above 1 of the samples, is a run-away.
LARGEST = 100.0


def drawn_table(seed: int) -> np.ndarray:
    """Samples of a model with moderate couplings, by enumeration."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(2**N_COLUMNS)[:, None] >> np.arange(N_COLUMNS)) & 1
    parameters = IsingParameters(N_COLUMNS, full_edges(N_COLUMNS))
    couplings = rng.normal(size=parameters.n_edges)
    thresholds = -0.5 * parameters.coupling_matrix(couplings).sum(axis=1)
    scores = parameters.statistics(labels) @ np.concatenate([thresholds, couplings])
    weights = np.exp(scores - scores.max())
    return labels[rng.choice(len(labels), N_ROWS, p=weights / weights.sum())]


def questionnaire(folder: Path, seed: int) -> np.ndarray:
    """Some columns and people of a questionnaire."""
    rng = np.random.default_rng(seed)
    name, least, first = (("wenchuan", 3, 0), ("adhd", 1, 1))[seed % 2]
    with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
        rows = [
            row[first:] for row in list(csv.reader(file))[1:] if "NA" not in row and "" not in row
        ]
    answers = (np.array(rows, dtype=float) >= least).astype(int)
    columns = rng.permutation(answers.shape[1])[:N_COLUMNS]
    return answers[rng.integers(0, len(answers), N_ROWS)][:, columns]


def tables(count: int) -> Iterator[np.ndarray]:
    folder = os.environ.get("FIELDFIT_DATA")
    for seed in range(count):
        if folder and seed % 2:
            table = questionnaire(Path(folder) / "ising_networks", seed // 2)
        else:
            table = drawn_table(seed)
        if np.all(table.any(axis=0) & ~table.all(axis=0)):
            yield table


def fit(table: np.ndarray, *, one_branch: bool) -> Fit:
    """With ``one_branch`` mean field starts only from its last beliefs, and kinks are not known."""
    samples = Samples.of(table.astype(np.int16), np.ones(len(table)))
    parameters = IsingParameters(N_COLUMNS, full_edges(N_COLUMNS))
    objective = None if one_branch else Likelihood(MeanField())
    problem = LikelihoodProblem(parameters, samples, MeanField(), objective)
    if one_branch:
        problem.partition = InferredPartition(parameters, MeanField())
    return LBFGS(tol=1e-6).minimize(problem, independent_start(parameters, problem.counts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    given = list(tables(options.tables))
    lines = [
        stamp(
            f"python -m benchmarks.mean_field_fits --tables {options.tables} "
            "--write docs/mean-field.md"
        ),
        f"{len(given)} tables of {N_ROWS} x {N_COLUMNS} binary answers (seeds 0 to "
        f"{options.tables - 1}), `l2=0`. A run-away has a weight above {LARGEST:g} or gives the "
        "samples a probability above 1; falsely converged is called so with a gradient norm above "
        "1.",
        "",
        "| starts of mean field | run away | falsely converged | converged | median objective "
        "| CPU s |",
        "|---" * 6 + "|",
    ]
    for one_branch, name in (
        (True, "last beliefs (before)"),
        (False, "last, uniform, best sample"),
    ):
        start = time.process_time()
        fits = [fit(table, one_branch=one_branch) for table in given]
        seconds = time.process_time() - start
        values = np.array([found.trace[-1]["objective"] for found in fits])
        norms = np.array([found.trace[-1]["gradient_norm"] for found in fits])
        sizes = np.array([np.abs(found.weights).max() for found in fits])
        converged = np.array([found.converged for found in fits])
        away = (values < 0.0) | (sizes > LARGEST)
        lines.append(
            f"| {name} | {away.sum()} | {(converged & (norms > 1.0)).sum()} | {converged.sum()} | "
            f"{np.median(values):.4g} | {seconds:.1f} |"
        )
    print("\n".join(lines))
    if options.write:
        replace_section(options.write, "mean-field-fits", lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
